//! The questions every index answers.

use std::ops::Range;

use crate::kernel::{Isa, prefetch};

/// Position that [`Search::position_into`] writes for a key that is not there.
pub const NOT_FOUND: u64 = u64::MAX;

/// Payload fetches in flight in [`Search::gather_into`].
const IN_FLIGHT: usize = 32;

/// Queries below which a batch is not worth splitting over threads.
const MIN_PER_THREAD: usize = 4096;

/// Look-ups in a sorted sequence of keys `k[0] <= k[1] <= ...`, of which the index knows the positions.
///
/// Batches are many times faster than single look-ups: they keep some thirty cache lines in flight. A single look-up has the
/// latency of the lines it touches, one after the other. All methods are total: they answer for every key, present or not.
///
/// ```
/// use osmill_stree::{NOT_FOUND, Search, SearchTree};
///
/// let tree = SearchTree::from_sorted(&[10u64, 20, 20, 30])?;
/// assert_eq!(tree.lower_bound(20), 1);
/// assert_eq!(tree.upper_bound(20), 3);
/// assert_eq!(tree.position(25), None);
/// assert_eq!(tree.range(15..30), 1..3);
/// assert_eq!(tree.predecessor(29), Some(2));
///
/// let mut positions = [0; 3];
/// tree.position_into(&[30, 5, 10], &mut positions);
/// assert_eq!(positions, [3, NOT_FOUND, 0]);
/// # Ok::<(), osmill_stree::Error>(())
/// ```
pub trait Search<Q: Copy + Ord + Sync>: Sync {
    /// Number of keys.
    fn len(&self) -> u64;

    /// The instruction set in use.
    fn isa(&self) -> Isa;

    /// Number of keys `< key`: the position of the first key that is not below it, or `len()`.
    fn lower_bound(&self, key: Q) -> u64;

    /// Number of keys `<= key`: the position of the first key above it, or `len()`.
    fn upper_bound(&self, key: Q) -> u64;

    /// Position of the first key equal to `key`.
    fn position(&self, key: Q) -> Option<u64>;

    /// The key at a position, if `position < len()`.
    fn select(&self, position: u64) -> Option<Q>;

    /// Calls `each(i, lower_bound(queries[i]))` once for every `i`, in no particular order, as the answers come out of the
    /// pipeline. `each` is compiled into the loop: keep it short. This is the staged form: what `each` touches first with
    /// [`prefetch`] and reads some calls later costs little.
    fn for_each_lower_bound<F: FnMut(usize, u64)>(&self, queries: &[Q], each: F);

    /// As [`for_each_lower_bound`](Search::for_each_lower_bound), with [`upper_bound`](Search::upper_bound).
    fn for_each_upper_bound<F: FnMut(usize, u64)>(&self, queries: &[Q], each: F);

    /// As [`for_each_lower_bound`](Search::for_each_lower_bound), with the position or [`NOT_FOUND`].
    fn for_each_position<F: FnMut(usize, u64)>(&self, queries: &[Q], each: F);

    /// Whether there is no key.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether `key` is there.
    fn contains(&self, key: Q) -> bool {
        self.position(key).is_some()
    }

    /// Position of the last key `<= key`.
    fn predecessor(&self, key: Q) -> Option<u64> {
        self.upper_bound(key).checked_sub(1)
    }

    /// Position of the first key `>= key`.
    fn successor(&self, key: Q) -> Option<u64> {
        Some(self.lower_bound(key)).filter(|&position| position < self.len())
    }

    /// Positions of the keys in `keys.start <= key < keys.end`; empty if the range is.
    fn range(&self, keys: Range<Q>) -> Range<u64> {
        let start = self.lower_bound(keys.start);
        start..self.lower_bound(keys.end).max(start)
    }

    /// Writes the lower bound of each query.
    ///
    /// # Panics
    ///
    /// If the slices differ in length; so do the other batch methods.
    fn lower_bound_into(&self, queries: &[Q], out: &mut [u64]) {
        assert_eq!(queries.len(), out.len(), "one answer per query");
        self.for_each_lower_bound(queries, |index, position| out[index] = position);
    }

    /// Writes the upper bound of each query.
    fn upper_bound_into(&self, queries: &[Q], out: &mut [u64]) {
        assert_eq!(queries.len(), out.len(), "one answer per query");
        self.for_each_upper_bound(queries, |index, position| out[index] = position);
    }

    /// Writes the position of each query, or [`NOT_FOUND`].
    fn position_into(&self, queries: &[Q], out: &mut [u64]) {
        assert_eq!(queries.len(), out.len(), "one answer per query");
        self.for_each_position(queries, |index, position| out[index] = position);
    }

    /// Writes `payload[position]` for each query that is found, else `missing`. The fetch of the payload runs in the same
    /// pipeline as the look-ups. A position beyond the payload is missing too.
    fn gather_into<T: Copy>(&self, queries: &[Q], payload: &[T], missing: T, out: &mut [T]) {
        assert_eq!(queries.len(), out.len(), "one answer per query");
        let mut waiting = [(usize::MAX, 0); IN_FLIGHT];
        let mut turn = 0;
        let mut finish = |(index, position): (usize, u64)| {
            if let Some(slot) = out.get_mut(index) {
                let position = usize::try_from(position).unwrap_or(usize::MAX);
                *slot = payload.get(position).copied().unwrap_or(missing);
            }
        };
        self.for_each_position(queries, |index, position| {
            prefetch(payload, usize::try_from(position).unwrap_or(usize::MAX));
            finish(std::mem::replace(&mut waiting[turn], (index, position)));
            turn = (turn + 1) % IN_FLIGHT;
        });
        waiting.into_iter().for_each(finish);
    }

    /// [`lower_bound_into`](Search::lower_bound_into), split over `threads` threads.
    fn lower_bound_parallel(&self, queries: &[Q], out: &mut [u64], threads: usize) {
        split(queries, out, threads, |queries, out| {
            self.lower_bound_into(queries, out)
        });
    }

    /// [`position_into`](Search::position_into), split over `threads` threads.
    fn position_parallel(&self, queries: &[Q], out: &mut [u64], threads: usize) {
        split(queries, out, threads, |queries, out| {
            self.position_into(queries, out)
        });
    }
}

/// Runs `work` on equal parts of the batch, each on a thread of its own; small batches run here.
fn split<Q: Sync>(queries: &[Q], out: &mut [u64], threads: usize, work: impl Fn(&[Q], &mut [u64]) + Sync) {
    assert_eq!(queries.len(), out.len(), "one answer per query");
    let part = queries.len().div_ceil(threads.max(1)).max(MIN_PER_THREAD);
    if part >= queries.len() {
        return work(queries, out);
    }
    std::thread::scope(|scope| {
        for (queries, out) in queries.chunks(part).zip(out.chunks_mut(part)) {
            let work = &work;
            scope.spawn(move || work(queries, out));
        }
    });
}
