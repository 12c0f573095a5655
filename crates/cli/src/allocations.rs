//! Counting allocations, for those who look for needless ones.

use osmill_engine::Allocations;

#[cfg(feature = "count-allocations")]
#[global_allocator]
static COUNTING: &stats_alloc::StatsAlloc<std::alloc::System> = &stats_alloc::INSTRUMENTED_SYSTEM;

/// What the program has allocated so far, if it was built to count.
#[cfg(feature = "count-allocations")]
pub fn counter() -> Option<fn() -> Allocations> {
    Some(|| {
        let stats = COUNTING.stats();
        Allocations {
            calls: (stats.allocations + stats.reallocations) as u64,
            bytes: stats.bytes_allocated as u64 + stats.bytes_reallocated.max(0) as u64,
        }
    })
}

/// What the program has allocated so far, if it was built to count.
#[cfg(not(feature = "count-allocations"))]
pub fn counter() -> Option<fn() -> Allocations> {
    None
}
