//! What a caller may choose.

use crate::backend::Access;
use crate::codec::Encoding;
use crate::device::Device;
use std::time::Duration;

/// How to open or create a store. Start from `Options::default()` and set what differs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Memory budget in bytes: directory, cached extents, changed extents and I/O buffers together. Default 64 MiB.
    /// Batches and results belong to the caller and are not in it, nor are nodes that only a snapshot still holds.
    pub memory: u64,
    /// How the file is reached.
    pub access: Access,
    /// How new extents are written. Fixed at creation.
    pub encoding: Encoding,
    /// Requests in flight. Default 64; deeper than the device's knee only adds latency.
    pub depth: usize,
    /// Opens for reading: takes a shared lock and refuses changes.
    pub read_only: bool,
    /// What the planner assumes about the device. Without it a file on disk is measured when the first batch of a thousand operations
    /// meets 16 MiB of data or more, which takes some 30 ms; other back ends count as [`Device::default`].
    pub device: Option<Device>,
    /// Longest time between durable commits under [`Durability::Eventual`].
    pub eventual: Duration,
    #[cfg(test)]
    pub(crate) bugs: Bugs,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            memory: 64 << 20,
            access: Access::Auto,
            encoding: Encoding::Packed,
            depth: 64,
            read_only: false,
            device: None,
            eventual: Duration::from_secs(1),
            #[cfg(test)]
            bugs: Bugs::default(),
        }
    }
}

impl Options {
    /// Sets the memory budget in bytes.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = bytes;
        self
    }
    /// Sets how the file is reached.
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }
    /// Sets how new extents are written.
    pub fn encoding(mut self, encoding: Encoding) -> Self {
        self.encoding = encoding;
        self
    }
    /// Opens for reading only.
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }
}

/// When a commit is safe from a power failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Never by itself: only with a later commit of another level. Readers see it.
    None,
    /// At the latest with the first commit after [`Options::eventual`] has passed since the last durable one.
    Eventual,
    /// When the call returns. Changed extents are written, then a record that names them: two flushes.
    #[default]
    Batch,
    /// When the call returns. The operations themselves are logged, changed extents stay in memory: one flush, for
    /// small commits. Falls back to [`Durability::Batch`] when the operations are too many for the log, or when readers
    /// exist, who could not see extents in memory.
    Logged,
}

/// Errors planted on purpose, which the fault suite has to find.
#[cfg(test)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bugs {
    /// No flush between extents and the record that names them.
    pub skip_data_flush: bool,
    /// No flush after the record.
    pub skip_log_flush: bool,
    /// Freed blocks are handed out before the commit is durable.
    pub reuse_early: bool,
    /// Storage of blocks that wait for a commit is given back before it.
    pub trim_early: bool,
    /// Extents are not compared with the checksum in their parent.
    pub drop_parent_checksum: bool,
    /// A subtotal of the directory is off by one.
    pub wrong_subtotal: bool,
    /// A commit forgets one replaced extent.
    pub forget_interval: bool,
}
