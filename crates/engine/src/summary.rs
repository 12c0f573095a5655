//! What a job did: phases, counts, time, memory, bytes.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use osmill_model::Kind;
use serde::Serialize;

/// Counters that workers add to while a phase runs.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub bytes_read: AtomicU64,
    pub bytes_written: AtomicU64,
    pub blobs_read: AtomicU64,
    pub blobs_decoded: AtomicU64,
    pub blobs_copied: AtomicU64,
    pub blobs_written: AtomicU64,
    pub read_ns: AtomicU64,
    pub inflate_ns: AtomicU64,
    pub deflate_ns: AtomicU64,
    pub write_ns: AtomicU64,
    pub wait_ns: AtomicU64,
}

/// Adds the time that a piece of work takes to a counter.
pub(crate) fn timed<T>(counter: &AtomicU64, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    counter.fetch_add(start.elapsed().as_nanos() as u64, Relaxed);
    result
}

/// Nodes, ways and relations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    /// Number of nodes.
    pub nodes: u64,
    /// Number of ways.
    pub ways: u64,
    /// Number of relations.
    pub relations: u64,
}

impl Counts {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.nodes + self.ways + self.relations
    }

    /// The number of one kind.
    pub fn of(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Node => self.nodes,
            Kind::Way => self.ways,
            Kind::Relation => self.relations,
        }
    }

    /// Counts one element.
    pub fn add(&mut self, kind: Kind, n: u64) {
        match kind {
            Kind::Node => self.nodes += n,
            Kind::Way => self.ways += n,
            Kind::Relation => self.relations += n,
        }
    }
}

impl From<[u32; 3]> for Counts {
    fn from([nodes, ways, relations]: [u32; 3]) -> Self {
        Counts {
            nodes: nodes.into(),
            ways: ways.into(),
            relations: relations.into(),
        }
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.nodes += other.nodes;
        self.ways += other.ways;
        self.relations += other.relations;
    }
}

/// One phase of a job.
#[derive(Debug, Clone, Serialize)]
pub struct PhaseSummary {
    /// Its name.
    pub name: String,
    /// Seconds from begin to end.
    pub wall_s: f64,
    /// Processor seconds of the whole process in that time.
    pub cpu_s: f64,
    /// Bytes read from inputs.
    pub bytes_read: u64,
    /// Bytes written to outputs.
    pub bytes_written: u64,
    /// Blobs read.
    pub blobs_read: u64,
    /// Blobs decompressed.
    pub blobs_decoded: u64,
    /// Blobs copied as they are.
    pub blobs_copied: u64,
    /// Blobs compressed and written.
    pub blobs_written: u64,
    /// Thread seconds spent in reading.
    pub read_s: f64,
    /// Thread seconds spent in decompressing.
    pub inflate_s: f64,
    /// Thread seconds spent in compressing.
    pub deflate_s: f64,
    /// Thread seconds spent in writing.
    pub write_s: f64,
    /// Thread seconds spent in waiting for earlier blobs to be written.
    pub wait_s: f64,
    /// Highest resident memory of the process up to the end of the phase, in bytes.
    pub peak_memory: u64,
    /// Memory that was asked for in the phase, where the program counts that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocations: Option<Allocations>,
}

/// Calls of the allocator and the bytes they asked for, growing included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Allocations {
    /// Allocations and reallocations.
    pub calls: u64,
    /// Bytes that they asked for.
    pub bytes: u64,
}

impl Allocations {
    /// What came since an earlier count.
    pub fn since(self, earlier: Allocations) -> Allocations {
        Allocations {
            calls: self.calls.saturating_sub(earlier.calls),
            bytes: self.bytes.saturating_sub(earlier.bytes),
        }
    }
}

/// What a job did as a whole.
#[derive(Debug, Clone, Serialize, Default)]
pub struct Summary {
    /// Elements read, where the job counted them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects_in: Option<Counts>,
    /// Elements written, where the job wrote any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects_out: Option<Counts>,
    /// Seconds since the job began.
    pub wall_s: f64,
    /// Processor seconds.
    pub cpu_s: f64,
    /// Highest resident memory, in bytes.
    pub peak_memory: u64,
    /// Bytes read from inputs.
    pub bytes_read: u64,
    /// Bytes written to outputs.
    pub bytes_written: u64,
    /// The phases in their order.
    pub phases: Vec<PhaseSummary>,
    /// Things that a person should know.
    pub warnings: Vec<String>,
}

/// Processor time that the process has used.
pub(crate) fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Highest resident memory of the process in bytes; 0 where the system does not tell.
pub fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

impl Counters {
    pub fn phase(&self, name: &str, start: Instant, cpu_start: Duration) -> PhaseSummary {
        let seconds = |ns: &AtomicU64| ns.load(Relaxed) as f64 / 1e9;
        PhaseSummary {
            name: name.to_owned(),
            wall_s: start.elapsed().as_secs_f64(),
            cpu_s: cpu_time().saturating_sub(cpu_start).as_secs_f64(),
            bytes_read: self.bytes_read.load(Relaxed),
            bytes_written: self.bytes_written.load(Relaxed),
            blobs_read: self.blobs_read.load(Relaxed),
            blobs_decoded: self.blobs_decoded.load(Relaxed),
            blobs_copied: self.blobs_copied.load(Relaxed),
            blobs_written: self.blobs_written.load(Relaxed),
            read_s: seconds(&self.read_ns),
            inflate_s: seconds(&self.inflate_ns),
            deflate_s: seconds(&self.deflate_ns),
            write_s: seconds(&self.write_ns),
            wait_s: seconds(&self.wait_ns),
            peak_memory: peak_memory(),
            allocations: None,
        }
    }
}
