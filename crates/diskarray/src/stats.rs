//! Figures about a store.

use crate::backend::BLOCK;
use crate::core::Core;
use crate::error::Result;
use crate::node::NODE_BYTES;
use crate::space::RESERVED;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::atomic::Ordering::Relaxed;

/// What a store holds, takes and moved. Bytes unless a name says otherwise; traffic is counted since the store was opened.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Keys.
    pub keys: u64,
    /// Number of the last commit.
    pub epoch: u64,
    /// Bytes of a value.
    pub value_bytes: u64,
    /// Encoding of extents, `raw` or `packed`.
    pub encoding: String,
    /// Extents on disk or changed in memory.
    pub extents: u64,
    /// Length of the file.
    pub file_bytes: u64,
    /// What the file takes on disk: its length less what was given back to the file system.
    pub stored_bytes: u64,
    /// Extents, directory and log in use.
    pub used_bytes: u64,
    /// Freed, but held by a commit to come or by a reader.
    pub waiting_bytes: u64,
    /// Used bytes a key.
    pub bytes_a_key: f64,
    /// Nodes of the directory.
    pub directory_nodes: u64,
    /// Levels of the directory.
    pub directory_levels: u64,
    /// Directory on disk.
    pub directory_bytes: u64,
    /// Directory in memory.
    pub directory_memory: u64,
    /// Cached extents.
    pub pool_memory: u64,
    /// Changed extents.
    pub changed_memory: u64,
    /// Extents changed and not written.
    pub changed_extents: u64,
    /// The budget.
    pub memory_budget: u64,
    /// What of it is taken, I/O buffers included.
    pub memory: u64,
    /// Read requests.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Extents found in the pool.
    pub pool_hits: u64,
    /// Extents not found there.
    pub pool_misses: u64,
    /// Back end, and why this one.
    pub backend: String,
    /// What the planner goes by.
    pub device: crate::Device,
    /// Where that comes from: `given`, `measured` or `assumed`.
    pub device_source: String,
}

pub(crate) fn stats(core: &Core) -> Result<Stats> {
    let store = &core.store;
    let (mut nodes, mut extents) = (0, 0);
    core.tree.visit(store, &mut |node, _, _| {
        nodes += 1;
        extents += if node.level == 1 { node.len() as u64 } else { 0 };
        Ok(())
    })?;
    let c = &store.counters;
    let waiting = core.space.waiting_blocks() * BLOCK as u64;
    let used = u64::from(core.space.used_blocks() - RESERVED) * BLOCK as u64 - waiting;
    let keys = core.tree.count();
    let directory = core.tree.footprint().bytes + store.node_cache_memory();
    let io = crate::transfer::Gather::memory(core.budget.run_blocks) + 2 * store.window * BLOCK;
    let pool = store.pool.memory();
    Ok(Stats {
        keys,
        epoch: core.epoch,
        value_bytes: store.shape.width as u64,
        encoding: format!("{:?}", core.encoding()).to_lowercase(),
        extents,
        file_bytes: store.backend.len().map_err(store.io("measure", 0))?,
        stored_bytes: store.backend.stored().map_err(store.io("measure", 0))?,
        used_bytes: used,
        waiting_bytes: waiting,
        bytes_a_key: if keys == 0 { 0.0 } else { used as f64 / keys as f64 },
        directory_nodes: nodes,
        directory_levels: core.tree.root.level.into(),
        directory_bytes: nodes * NODE_BYTES as u64,
        directory_memory: directory as u64,
        pool_memory: pool as u64,
        changed_memory: core.dirty.memory() as u64,
        changed_extents: core.dirty.len() as u64,
        memory_budget: core.budget.total as u64,
        memory: (directory + pool + core.dirty.memory() + io + core.space.memory()) as u64,
        reads: c.reads.load(Relaxed),
        read_bytes: c.read_bytes.load(Relaxed),
        writes: c.writes.load(Relaxed),
        written_bytes: c.written_bytes.load(Relaxed),
        flushes: c.flushes.load(Relaxed),
        pool_hits: c.hits.load(Relaxed),
        pool_misses: c.misses.load(Relaxed),
        backend: store.backend.describe(),
        device: core.options.device.or(core.measured).unwrap_or_default(),
        device_source: match (core.options.device, core.measured) {
            (Some(_), _) => "given",
            (None, Some(_)) => "measured",
            (None, None) => "assumed",
        }
        .into(),
    })
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |b: u64| b as f64 / (1 << 20) as f64;
        writeln!(
            f,
            "keys           {} ({} bytes of value, {})",
            self.keys, self.value_bytes, self.encoding
        )?;
        writeln!(f, "commit         {}", self.epoch)?;
        writeln!(
            f,
            "file           {:.1} MiB, {:.1} stored, {:.1} used, {:.1} waiting for reuse",
            mib(self.file_bytes),
            mib(self.stored_bytes),
            mib(self.used_bytes),
            mib(self.waiting_bytes)
        )?;
        writeln!(f, "bytes a key    {:.2}", self.bytes_a_key)?;
        writeln!(
            f,
            "extents        {}, {} changed in memory",
            self.extents, self.changed_extents
        )?;
        writeln!(
            f,
            "directory      {} nodes, {} levels, {:.1} MiB on disk",
            self.directory_nodes,
            self.directory_levels,
            mib(self.directory_bytes)
        )?;
        writeln!(
            f,
            "memory         {:.1} of {:.1} MiB: directory {:.1}, pool {:.1}, changed {:.1}",
            mib(self.memory),
            mib(self.memory_budget),
            mib(self.directory_memory),
            mib(self.pool_memory),
            mib(self.changed_memory)
        )?;
        writeln!(
            f,
            "read           {} requests, {:.1} MiB; pool {} hits, {} misses",
            self.reads,
            mib(self.read_bytes),
            self.pool_hits,
            self.pool_misses
        )?;
        writeln!(
            f,
            "written        {} requests, {:.1} MiB, {} flushes",
            self.writes,
            mib(self.written_bytes),
            self.flushes
        )?;
        writeln!(f, "back end       {}", self.backend)?;
        let crate::Device {
            iops,
            read_rate,
            write_rate,
        } = self.device;
        write!(
            f,
            "device         {:.0} K random reads/s, {:.2} GB/s read, {:.2} GB/s write ({})",
            iops / 1e3,
            read_rate / 1e9,
            write_rate / 1e9,
            self.device_source
        )
    }
}
