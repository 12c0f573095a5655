//! The writer: opening and recovery, single operations, commits.

use crate::backend::{AlignedBuf, BLOCK, Backend};
use crate::codec::{Encoder, Encoding, Rows, u64_at};
use crate::dirty::{Dirty, Slot};
use crate::error::{Error, Result};
use crate::log::{
    MAX_METADATA, NoSuperblock, Record, RecordBuilder, RecordKind, Superblock, places, record_blocks,
};
use crate::node::{CHANGED, Entry, Expect, MAX_LEVEL, NODE_BLOCKS, NODE_BYTES, NOWHERE, Node};
use crate::options::{Durability, Options};
use crate::space::{MAX_BLOCKS, RESERVED, Run, SEGMENT, Space};
use crate::store::{Gather, Store};
use crate::tree::{Freed, Tree};
use crate::value::Shape;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

/// Smallest workable memory budget.
pub const LEAST_MEMORY: u64 = 4 << 20;

/// Epochs that readers hold, with how many.
#[derive(Clone, Default)]
pub struct Holds(Arc<Mutex<BTreeMap<u64, usize>>>);

/// Keeps the blocks of an epoch from being handed out.
pub struct Hold {
    holds: Holds,
    epoch: u64,
}

impl Holds {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, usize>> {
        self.0.lock().unwrap_or_else(|poison| poison.into_inner())
    }
    pub fn hold(&self, epoch: u64) -> Hold {
        *self.lock().entry(epoch).or_default() += 1;
        Hold {
            holds: self.clone(),
            epoch,
        }
    }
    pub fn oldest(&self) -> u64 {
        self.lock().keys().next().copied().unwrap_or(u64::MAX)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut holds = self.holds.lock();
        if let Some(n) = holds.get_mut(&self.epoch) {
            *n -= 1;
            if *n == 0 {
                holds.remove(&self.epoch);
            }
        }
    }
}

/// The last state that readers may take.
pub struct Published {
    pub tree: Tree,
    pub epoch: u64,
    pub metadata: Arc<[u8]>,
    /// Kept for its effect.
    pub _hold: Hold,
}

/// Operations since the last commit, for [`Durability::Logged`].
#[derive(Default)]
struct Journal {
    bytes: Vec<u8>,
    items: u32,
    overflow: bool,
}

/// How the budget is cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub total: usize,
    /// Blocks of one gathered write.
    pub run_blocks: u32,
    /// Bytes that changed extents and the pool share.
    pub shared: usize,
    /// Bytes of them granted to changed extents at present; grows up to three quarters before extents are written.
    pub dirty: usize,
    /// Bytes of directory that stay in memory.
    pub directory: usize,
}

/// One ordered map of fixed-size byte values, with its file. Typed faces stand in `map` and `set`.
pub struct Core {
    pub store: Arc<Store>,
    pub tree: Tree,
    pub(crate) space: Space,
    pub dirty: Dirty,
    pub(crate) gather: Gather,
    pub(crate) encoder: Encoder,
    pub(crate) options: Options,
    pub(crate) budget: Budget,
    pub epoch: u64,
    pub metadata: Arc<[u8]>,
    pub holds: Holds,
    published: Option<Arc<Mutex<Published>>>,
    /// Ranges whose extents differ from what the log knows.
    pub(crate) touched: Ranges,
    /// Node blocks that the last checkpoint still needs.
    pub(crate) freed_nodes: Freed,
    /// Changed nodes went to disk before their commit, so the commit has to be a checkpoint.
    pub(crate) nodes_settled: bool,
    superblock: Superblock,
    log_used: u32,
    log_chain: u32,
    journal: Journal,
    /// The log ends with operations whose extents are still only in memory.
    pub(crate) logged: bool,
    last_durable: Instant,
    file_blocks: u32,
    unflushed: bool,
    move_log: bool,
    /// Something changed since the last commit of any level.
    pub(crate) uncommitted: bool,
}

/// A union of key ranges.
#[derive(Default)]
pub struct Ranges {
    map: BTreeMap<u64, u64>,
    /// Too many to remember: everything may have changed.
    all: bool,
}

impl Ranges {
    /// Ranges remembered at most; more make a checkpoint cheaper than a record.
    const MOST: usize = 1 << 18;

    pub fn add(&mut self, mut low: u64, mut high: u64) {
        if self.all {
            return;
        }
        if let Some((&l, &h)) = self.map.range(..=low).next_back()
            && h >= low.saturating_sub(1)
        {
            low = l;
            high = high.max(h);
        }
        while let Some((&l, &h)) = self.map.range(low..).next()
            && l <= high.saturating_add(1)
        {
            high = high.max(h);
            self.map.remove(&l);
        }
        self.map.insert(low, high);
        if self.map.len() > Self::MOST {
            self.all = true;
            self.map.clear();
        }
    }
}

impl Core {
    /// Makes an empty store on an empty back end.
    pub fn create(backend: Arc<dyn Backend>, name: &str, shape: Shape, options: Options) -> Result<Self> {
        let file_id = random_id();
        let mut core = Self::bare(backend, name, shape, options, file_id, SEGMENT)?;
        core.grow(SEGMENT)?;
        core.checkpoint(&[])?;
        // Both parities and their twins are in place before anyone relies on the file.
        core.checkpoint(&[])?;
        core.flush()?;
        Ok(core)
    }

    fn bare(
        backend: Arc<dyn Backend>,
        name: &str,
        shape: Shape,
        options: Options,
        file_id: u32,
        blocks: u32,
    ) -> Result<Self> {
        if options.memory < LEAST_MEMORY {
            return Err(Error::Budget {
                given: options.memory,
                least: LEAST_MEMORY,
            });
        }
        let total = options.memory as usize;
        let io = (total / 8).clamp(1 << 20, 16 << 20);
        let run_blocks = (io / 2 / 5 / BLOCK).clamp(8, SEGMENT as usize) as u32;
        let window = (io / 4 / BLOCK).clamp(64, 1024);
        let depth = options.depth.clamp(1, window);
        let store = Arc::new(Store::new(
            backend,
            name.into(),
            shape.clone(),
            file_id,
            depth,
            window,
        ));
        let gather = Gather::new(&store, run_blocks)?;
        let superblock = Superblock {
            file_id,
            sequence: 0,
            epoch: 0,
            count: 0,
            root: 0,
            root_sum: 0,
            root_level: 1,
            log: (0, 0),
            columns: shape.columns.clone(),
            encoding: options.encoding,
            metadata: vec![],
        };
        let mut core = Self {
            store,
            tree: Tree::empty(),
            space: Space::new(blocks),
            dirty: Dirty::default(),
            gather,
            encoder: Encoder::new(shape, options.encoding),
            options,
            budget: Budget {
                total,
                run_blocks,
                shared: 0,
                dirty: 0,
                directory: total / 8 * 5,
            },
            epoch: 0,
            metadata: Arc::new([]),
            holds: Holds::default(),
            published: None,
            touched: Ranges::default(),
            freed_nodes: vec![],
            nodes_settled: false,
            superblock,
            log_used: 0,
            log_chain: 0,
            journal: Journal::default(),
            logged: false,
            last_durable: Instant::now(),
            file_blocks: 0,
            unflushed: false,
            move_log: false,
            uncommitted: false,
        };
        #[cfg(test)]
        core.store
            .drop_parent_checksum
            .store(core.options.bugs.drop_parent_checksum, Relaxed);
        core.rebudget();
        Ok(core)
    }

    /// Cuts the budget anew after the directory changed: what directory, buffers and maps leave goes to changed extents and the pool.
    pub(crate) fn rebudget(&mut self) {
        let io = Gather::memory(self.budget.run_blocks) + 2 * self.store.window * BLOCK;
        let (directory, _) = self.tree.memory();
        let nodes = self.budget.total / 16;
        self.store.set_node_cache(nodes);
        let fixed = io + directory + nodes + self.space.memory() + self.budget.total / 32;
        let shared = self.budget.total.saturating_sub(fixed).max(512 << 10);
        self.budget.shared = shared;
        self.budget.dirty = (shared / 4).max(self.dirty.bytes).min(shared / 4 * 3);
        self.store.pool.resize(shared - self.budget.dirty);
    }

    /// Changed extents have outgrown their grant: takes from the pool, or writes them.
    fn make_room(&mut self) -> Result<()> {
        if self.budget.dirty >= self.budget.shared / 4 * 3 {
            return self.guarded(Self::spill);
        }
        self.budget.dirty += self.budget.shared / 16;
        self.store.pool.resize(self.budget.shared - self.budget.dirty);
        Ok(())
    }

    pub fn shape(&self) -> &Shape {
        &self.store.shape
    }

    pub fn encoding(&self) -> Encoding {
        self.superblock.encoding
    }

    /// Fails when the writer may not go on.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.store.poisoned.load(Relaxed) {
            return Err(Error::Poisoned {
                file: self.store.name.clone(),
            });
        }
        if self.options.read_only {
            return Err(Error::ReadOnly {
                file: self.store.name.clone(),
            });
        }
        Ok(())
    }

    /// Runs a change after whose failure memory and disk may disagree.
    pub(crate) fn guarded<R>(&mut self, change: impl FnOnce(&mut Self) -> Result<R>) -> Result<R> {
        self.check_writable()?;
        let r = change(self);
        if r.is_err() {
            self.store.poisoned.store(true, Relaxed);
        }
        r
    }

    fn flush(&mut self) -> Result<()> {
        self.store.flush()?;
        self.unflushed = false;
        Ok(())
    }

    /// Makes the file long enough for `blocks`.
    fn grow(&mut self, blocks: u32) -> Result<()> {
        if blocks <= self.file_blocks {
            return Ok(());
        }
        let step = (self.file_blocks / 8).clamp(SEGMENT, 64 * SEGMENT);
        let wanted = blocks.next_multiple_of(step).min(MAX_BLOCKS).max(blocks);
        let bytes = |blocks: u32| u64::from(blocks) * BLOCK as u64;
        // On a nearly full disk the step may not fit where the blocks themselves do.
        let grown = [wanted, blocks]
            .into_iter()
            .find(|&b| self.store.backend.set_len(bytes(b)).is_ok());
        self.file_blocks = match grown {
            Some(b) => b,
            None => {
                let io = self.store.io("resize", bytes(blocks));
                self.store.backend.set_len(bytes(blocks)).map_err(io)?;
                blocks
            }
        };
        Ok(())
    }

    /// Takes a run of blocks and makes the file long enough for it.
    pub(crate) fn allocate(&mut self, least: u32, want: u32) -> Result<Run> {
        #[cfg(test)]
        if self.options.bugs.reuse_early {
            self.space.reclaim_too_early();
        }
        let run = if least > SEGMENT {
            self.space.allocate_exact(least)
        } else {
            self.space.allocate(least, want)
        };
        let run = run.ok_or_else(|| Error::Full {
            file: self.store.name.clone(),
        })?;
        self.grow(run.0 + run.1)?;
        self.unflushed = true;
        Ok(run)
    }

    // ---- single operations -------------------------------------------------------------------------------------

    /// Applies one change to the extent of `key`, in memory. `change` gets the rows, the place of the key and whether it is there.
    fn change(&mut self, key: u64, change: &mut dyn FnMut(&mut Rows, usize, bool)) -> Result<()> {
        self.uncommitted = true;
        let Self {
            tree,
            store,
            dirty,
            space,
            freed_nodes,
            ..
        } = self;
        let mut slot_len = (0, 0);
        tree.modify(store, key, freed_nodes, &mut |leaf, i, (low, high)| {
            let loc = leaf.locs[i];
            let slot = if loc & CHANGED != 0 {
                loc & !CHANGED
            } else {
                let mut rows = dirty.rows();
                if loc != NOWHERE {
                    store
                        .with_extent(loc, leaf.sums[i], |page| page.decode(&mut rows))?
                        .map_err(|why| store.corrupt(loc, why))?;
                    space.free((loc, 1));
                    store.pool.remove(loc);
                }
                let slot = dirty.add(Slot { rows, low, high });
                leaf.set_place(i, CHANGED | slot, 0);
                slot
            };
            let n = dirty.with(slot, |rows| {
                let at = rows.keys.partition_point(|&k| k < key);
                let hit = rows.keys.get(at) == Some(&key);
                change(rows, at, hit);
                rows.keys.len()
            });
            slot_len = (slot, n);
            Ok(n as u64)
        })?;
        let (slot, n) = slot_len;
        let raw = crate::apply::CAPACITY / (8 + self.store.shape.width);
        let most = if self.encoding() == Encoding::Raw {
            2 * raw
        } else {
            (4 * raw).max(if cfg!(test) { 64 } else { 4096 })
        };
        if n > most {
            self.split_slot(slot)?;
        }
        if self.dirty.bytes > self.budget.dirty {
            self.make_room()?;
        }
        Ok(())
    }

    /// Cuts a changed extent in two, so that changes in it stay cheap.
    fn split_slot(&mut self, slot: u32) -> Result<()> {
        let w = self.store.shape.width;
        let Slot { rows, low, high } = self.dirty.remove(slot);
        // Ascending growth leaves a full left half behind.
        let middle = if high == u64::MAX {
            rows.keys.len() * 9 / 10
        } else {
            rows.keys.len() / 2
        };
        let cut = rows.keys[middle];
        let mut left = self.dirty.rows();
        let mut right = self.dirty.rows();
        for (half, range) in [(&mut left, 0..middle), (&mut right, middle..rows.keys.len())] {
            half.keys.extend_from_slice(&rows.keys[range.clone()]);
            half.vals
                .extend_from_slice(&rows.vals[range.start * w..range.end * w]);
        }
        self.dirty.recycle(rows);
        let counts = [left.keys.len() as u64, right.keys.len() as u64];
        let a = self.dirty.add(Slot {
            rows: left,
            low,
            high: cut - 1,
        });
        let b = self.dirty.add(Slot {
            rows: right,
            low: cut,
            high,
        });
        let new = [(low, counts[0], a), (cut, counts[1], b)].map(|(key, count, slot)| Entry {
            key,
            count,
            loc: CHANGED | slot,
            sum: 0,
        });
        self.tree
            .replace(&self.store, low, high, &new, &mut self.freed_nodes)
    }

    /// Remembers an operation for a logged commit; false when there are too many.
    pub(crate) fn log_operation(&mut self, key: u64, value: Option<&[u8]>) -> bool {
        let journal = &mut self.journal;
        if journal.overflow || journal.bytes.len() > 1 << 20 {
            journal.overflow = true;
            return false;
        }
        journal.bytes.extend_from_slice(&key.to_le_bytes());
        journal.bytes.push(value.is_some().into());
        journal.bytes.extend_from_slice(value.unwrap_or_default());
        journal.items += 1;
        true
    }

    /// No change made so far may be committed.
    pub(crate) fn poison(&mut self) {
        self.store.poisoned.store(true, Relaxed);
    }

    /// Operations of a batch went to disk as extents; they cannot be logged one by one any more.
    pub(crate) fn journal_overflows(&mut self) {
        self.journal.overflow = true;
    }

    /// Inserts or replaces; `old` receives the former value. Returns whether there was one.
    pub fn insert(&mut self, key: u64, value: &[u8], old: &mut [u8]) -> Result<bool> {
        self.check_writable()?;
        let w = value.len();
        let mut known = false;
        self.change(key, &mut |rows, at, hit| {
            known = hit;
            if hit {
                old.copy_from_slice(&rows.vals[at * w..at * w + w]);
                rows.vals[at * w..at * w + w].copy_from_slice(value);
            } else {
                // A little at a time: these rows are most of the memory.
                if rows.keys.len() == rows.keys.capacity() {
                    let more = rows.keys.len() / 8 + 16;
                    rows.keys.reserve_exact(more);
                    rows.vals.reserve_exact(more * w);
                }
                rows.keys.insert(at, key);
                if w > 0 {
                    rows.vals.splice(at * w..at * w, value.iter().copied());
                }
            }
        })?;
        self.log_operation(key, Some(value));
        Ok(known)
    }

    /// Removes; `old` receives the former value. Returns whether there was one.
    pub fn remove(&mut self, key: u64, old: &mut [u8]) -> Result<bool> {
        self.check_writable()?;
        // Looking first spares a rewrite of the extent when the key is absent.
        if !self.view().get(key, old)? {
            return Ok(false);
        }
        let w = old.len();
        self.change(key, &mut |rows, at, hit| {
            if hit {
                rows.keys.remove(at);
                rows.vals.drain(at * w..at * w + w);
            }
        })?;
        self.log_operation(key, None);
        Ok(true)
    }

    // ---- commits -----------------------------------------------------------------------------------------------

    /// Commits everything since the last commit, with the caller's metadata, and returns the new epoch.
    pub fn commit(&mut self, durability: Durability, metadata: &[u8]) -> Result<u64> {
        if metadata.len() > MAX_METADATA {
            return Err(Error::MetadataTooLong {
                len: metadata.len(),
                max: MAX_METADATA,
            });
        }
        self.guarded(|core| core.commit_unguarded(durability, metadata))
    }

    fn readers(&self) -> bool {
        self.published.as_ref().is_some_and(|p| Arc::strong_count(p) > 1)
    }

    fn commit_unguarded(&mut self, durability: Durability, metadata: &[u8]) -> Result<u64> {
        if self.published.is_some() && !self.readers() {
            self.published = None;
        }
        let overdue = self.last_durable.elapsed() >= self.options.eventual;
        let durable = match durability {
            Durability::None => false,
            Durability::Eventual => overdue,
            Durability::Batch | Durability::Logged => true,
        };
        if !durable {
            if self.readers() {
                self.spill()?;
            }
            // The journal stays: a later logged commit has to carry these operations too.
            self.epoch += 1;
        } else if !(durability == Durability::Logged && !self.readers() && self.commit_logged(metadata)?) {
            self.spill()?;
            match self.delta(metadata)? {
                Some(record) => {
                    #[cfg(test)]
                    let skip = self.options.bugs.skip_data_flush;
                    #[cfg(not(test))]
                    let skip = false;
                    if self.unflushed && !skip {
                        self.flush()?;
                    }
                    self.append(record)?;
                    self.epoch += 1;
                }
                None => self.checkpoint(metadata)?,
            }
            self.settled();
        }
        #[cfg(test)]
        if self.options.bugs.wrong_subtotal {
            Arc::make_mut(&mut self.tree.root).spoil_subtotal();
        }
        self.metadata = metadata.into();
        self.uncommitted = false;
        self.publish();
        self.rebudget();
        Ok(self.epoch)
    }

    /// Everything is durable as extents and directory.
    fn settled(&mut self) {
        self.last_durable = Instant::now();
        self.touched = Ranges::default();
        self.journal = Journal::default();
        self.logged = false;
        self.space.committed(self.epoch);
        self.space.reclaim(self.holds.oldest());
    }

    /// Writes the operations to the log; false when they do not fit.
    fn commit_logged(&mut self, metadata: &[u8]) -> Result<bool> {
        // Under a full log or an overflow the extents are written instead.
        let room = (self.superblock.log.1 - self.log_used) as usize * BLOCK;
        let mut record = RecordBuilder::new(RecordKind::Operations, self.epoch + 1, metadata);
        if self.journal.overflow || record.len() + self.journal.bytes.len() > room {
            return Ok(false);
        }
        record.operations(&self.journal.bytes, self.journal.items);
        self.append(record)?;
        self.epoch += 1;
        self.journal = Journal::default();
        self.logged = true;
        self.last_durable = Instant::now();
        Ok(true)
    }

    /// The record that tells the log what changed; `None` when a checkpoint is due.
    fn delta(&mut self, metadata: &[u8]) -> Result<Option<RecordBuilder>> {
        let (directory, changed) = self.tree.memory();
        let room = (self.superblock.log.1 - self.log_used) as usize * BLOCK;
        let crowded = directory > self.budget.directory && changed > self.budget.directory / 4;
        if self.nodes_settled || self.touched.all || crowded || self.touched.map.len() * 40 > room {
            return Ok(None);
        }
        let mut record = RecordBuilder::new(RecordKind::Delta, self.epoch + 1, metadata);
        #[cfg(test)]
        if self.options.bugs.forget_interval {
            self.touched.map.pop_first();
        }
        let mut entries = vec![];
        for (&low, &high) in &self.touched.map {
            entries.clear();
            self.view().entries(low, high, &mut |e, _| {
                entries.push(*e);
                Ok(())
            })?;
            record.interval(low, high, &entries);
            if record.len() > room {
                return Ok(None);
            }
        }
        Ok(Some(record))
    }

    /// Writes a record behind the last one and makes it durable.
    fn append(&mut self, record: RecordBuilder) -> Result<()> {
        let block = self.superblock.log.0 + self.log_used;
        let (bytes, sum) = record.finish(self.tree.count(), self.log_chain, block, self.store.file_id);
        self.store.write(block, &bytes)?;
        #[cfg(test)]
        let skip = self.options.bugs.skip_log_flush;
        #[cfg(not(test))]
        let skip = false;
        if !skip {
            self.flush()?;
        }
        self.log_used += bytes.blocks() as u32;
        self.log_chain = sum;
        Ok(())
    }

    /// Writes all changed nodes, in runs.
    pub(crate) fn settle_nodes(&mut self) -> Result<()> {
        let epoch = self.epoch + 1;
        let mut tree = self.tree.clone();
        // The writer's own tree must not count as a second holder while nodes are changed.
        self.tree = Tree::empty();
        let mut batch = NodeBatch::default();
        let r = tree.settle(&mut |node, range| batch.put(self, node, range, epoch));
        self.tree = tree;
        r?;
        batch.finish(self)
    }

    /// Writes the directory and a superblock: two flushes.
    fn checkpoint(&mut self, metadata: &[u8]) -> Result<()> {
        self.settle_nodes()?;
        let root_run = self.allocate(NODE_BLOCKS, NODE_BLOCKS)?;
        let mut buf = AlignedBuf::new(NODE_BYTES / BLOCK);
        let root = &self.tree.root;
        let root_sum = root.write(
            &mut buf,
            (0, u64::MAX),
            self.epoch + 1,
            root_run.0,
            self.store.file_id,
        );
        self.store.write(root_run.0, &buf)?;
        let directory = self.tree.memory().0 / BLOCK;
        let wanted = (directory / 4).clamp(64, 4096) as u32;
        let old = self.superblock.clone();
        let mut log = old.log;
        if log.1 < wanted / 2 || log.1 == 0 || std::mem::take(&mut self.move_log) {
            log = self.allocate(wanted, wanted)?;
        }
        self.superblock = Superblock {
            sequence: old.sequence + 1,
            epoch: self.epoch + 1,
            count: self.tree.count(),
            root: root_run.0,
            root_sum,
            root_level: self.tree.root.level,
            log,
            metadata: metadata.to_vec(),
            ..old.clone()
        };
        self.flush()?;
        let [first, twin] = places(self.superblock.sequence);
        self.store.write(first, &self.superblock.write(first))?;
        self.flush()?;
        self.store.write(twin, &self.superblock.write(twin))?;
        self.epoch += 1;
        if old.root != 0 {
            self.space.free((old.root, NODE_BLOCKS));
            if log != old.log {
                self.space.free(old.log);
            }
        }
        for run in self.freed_nodes.drain(..) {
            self.space.free(run);
        }
        (self.log_used, self.log_chain) = (0, self.superblock.chain());
        self.nodes_settled = false;
        if self.tree.memory().0 > self.budget.directory {
            self.tree.unpin(self.budget.directory);
        }
        self.settled();
        Ok(())
    }

    /// A checkpoint, whatever the log has room for.
    pub(crate) fn checkpoint_now(&mut self, metadata: &[u8]) -> Result<()> {
        self.spill()?;
        self.checkpoint(metadata)?;
        self.metadata = metadata.into();
        self.publish();
        self.rebudget();
        Ok(())
    }

    /// A checkpoint that also moves nodes and log from blocks at or above `cut`.
    pub(crate) fn checkpoint_moving(&mut self, metadata: &[u8], cut: u32) -> Result<()> {
        let mut far = vec![];
        self.tree.visit(&self.store, &mut |node, range, loc| {
            if loc != NOWHERE && loc >= cut {
                far.push((range.0, node.level));
            }
            Ok(())
        })?;
        for (key, level) in far {
            self.tree
                .displace(&self.store, key, level, &mut self.freed_nodes)?;
        }
        if self.superblock.log.0 >= cut {
            self.move_log = true;
        }
        self.checkpoint_now(metadata)
    }

    /// Blocks that a round of compaction needs beside what is in use.
    pub(crate) fn space_slack(&self) -> u32 {
        self.superblock.log.1 + SEGMENT
    }

    /// Cuts free segments from the end of the file.
    pub(crate) fn cut_file(&mut self) -> Result<()> {
        let blocks = self.space.shrink();
        if blocks < self.file_blocks {
            let bytes = u64::from(blocks) * BLOCK as u64;
            self.store
                .backend
                .set_len(bytes)
                .map_err(self.store.io("resize", bytes))?;
            self.file_blocks = blocks;
            self.flush()?;
        }
        Ok(())
    }

    fn publish(&mut self) {
        if let Some(published) = &self.published {
            let hold = self.holds.hold(self.epoch);
            let new = Published {
                tree: self.tree.clone(),
                epoch: self.epoch,
                metadata: self.metadata.clone(),
                _hold: hold,
            };
            *published.lock().unwrap_or_else(|poison| poison.into_inner()) = new;
        }
    }

    /// Where readers find the last committed state. Fails while changes wait for a commit.
    pub fn published(&mut self) -> Result<Arc<Mutex<Published>>> {
        if let Some(published) = &self.published
            && self.readers()
        {
            return Ok(published.clone());
        }
        if self.uncommitted {
            return Err(Error::Uncommitted {
                file: self.store.name.clone(),
            });
        }
        if !self.dirty.is_empty() {
            // Logged commits and those without durability live in memory; a reader needs them on disk.
            self.guarded(Self::spill)?;
        }
        let hold = self.holds.hold(self.epoch);
        let new = Published {
            tree: self.tree.clone(),
            epoch: self.epoch,
            metadata: self.metadata.clone(),
            _hold: hold,
        };
        let published = Arc::new(Mutex::new(new));
        self.published = Some(published.clone());
        Ok(published)
    }

    // ---- recovery ----------------------------------------------------------------------------------------------

    /// Opens what `create` made: reads the newest checkpoint and replays the log behind it.
    pub fn open(
        backend: Arc<dyn Backend>,
        name: &str,
        shape: Option<Shape>,
        mut options: Options,
    ) -> Result<Self> {
        let read_only = options.read_only;
        let (superblock, repairs) = newest_superblock(&*backend, name)?;
        let found = Shape::new(&superblock.columns)
            .ok_or_else(|| foreign(name, format!("impossible value columns {:?}", superblock.columns)))?;
        if let Some(shape) = shape
            && shape != found
        {
            return Err(Error::ValueShape {
                file: name.into(),
                found: found.columns,
                expected: shape.columns,
            });
        }
        options.encoding = superblock.encoding;
        let bytes = backend.len().map_err(|source| Error::Io {
            file: name.into(),
            what: "measure",
            offset: 0,
            source,
        })?;
        let blocks = (bytes / BLOCK as u64).min(MAX_BLOCKS.into()) as u32;
        let mut core = Self::bare(backend, name, found, options, superblock.file_id, blocks)?;
        core.file_blocks = blocks;
        core.superblock = superblock;
        core.recover()?;
        if !read_only {
            // A log read back must not vanish in a later power failure, and a torn superblock copy is made whole.
            for (place, copy) in repairs {
                core.store.write(place, &copy.write(place))?;
            }
            core.flush()?;
        }
        Ok(core)
    }

    fn recover(&mut self) -> Result<()> {
        let sb = self.superblock.clone();
        let expect = Expect {
            block: sb.root,
            sum: sb.root_sum,
            level: sb.root_level,
            low: 0,
            high: u64::MAX,
            total: sb.count,
        };
        if sb.root_level == 0 || sb.root_level > MAX_LEVEL {
            return Err(self.store.corrupt(0, "directory level outside of the format"));
        }
        let store = self.store.clone();
        let file_blocks = self.file_blocks;
        let mark = |space: &mut Space, run: Run, what: &str| {
            let inside = run.0 >= RESERVED && run.0.checked_add(run.1).is_some_and(|end| end <= file_blocks);
            if inside && space.mark(run) {
                return Ok(());
            }
            let why = if inside {
                "is used twice"
            } else {
                "lies outside of the file"
            };
            Err(store.corrupt(run.0, format!("{what} {why}")))
        };
        let space = &mut self.space;
        mark(space, (sb.root, NODE_BLOCKS), "directory root")?;
        mark(space, sb.log, "log")?;
        let root = self.store.node(&expect)?;
        self.store.forget_node(sb.root);
        self.tree.root = root;
        let extents = |space: &mut Space, node: &Node| {
            if node.level > 1 {
                return Ok(());
            }
            node.locs
                .iter()
                .filter(|&&loc| loc != NOWHERE)
                .try_for_each(|&loc| mark(space, (loc, 1), "extent"))
        };
        extents(space, &self.tree.root)?;
        let limit = self.budget.directory;
        self.tree.load(&self.store, limit, &mut |loc, node| {
            let inside =
                loc >= RESERVED && loc.checked_add(NODE_BLOCKS).is_some_and(|end| end <= file_blocks);
            if !inside || !space.mark((loc, NODE_BLOCKS)) {
                return Err(store.corrupt(loc, "directory node is used twice or lies outside of the file"));
            }
            extents(space, node)
        })?;
        (self.epoch, self.metadata) = (sb.epoch, sb.metadata.into());
        (self.log_used, self.log_chain) = (0, self.superblock.chain());
        self.rebudget();
        self.replay()
    }

    fn next_record(&self) -> Result<Option<Record>> {
        let (start, blocks) = self.superblock.log;
        let (block, room) = (start + self.log_used, blocks - self.log_used);
        if room == 0 {
            return Ok(None);
        }
        let mut first = AlignedBuf::new(1);
        self.store.read(block, &mut first)?;
        let Some(n) = record_blocks(&first, room) else {
            return Ok(None);
        };
        let mut bytes = AlignedBuf::new(n as usize);
        self.store.read(block, &mut bytes)?;
        Ok(Record::read(&bytes, self.log_chain, block, self.store.file_id).filter(|r| r.epoch > self.epoch))
    }

    fn replay(&mut self) -> Result<()> {
        let mut operations: Vec<Record> = vec![];
        while let Some(record) = self.next_record()? {
            let block = self.superblock.log.0 + self.log_used;
            self.log_used += record.blocks;
            self.log_chain = record.sum;
            self.epoch = record.epoch;
            self.metadata = record.metadata.clone().into();
            match record.kind {
                RecordKind::Delta => {
                    // Extents of a delta hold the effect of all operations before it.
                    operations.clear();
                    let malformed = || self.store.corrupt(block, "log record is malformed");
                    let intervals = record.intervals().ok_or_else(malformed)?;
                    for (low, high, new) in intervals {
                        self.replay_interval(low, high, &new)?;
                    }
                    if self.tree.count() != record.count {
                        return Err(self
                            .store
                            .corrupt(block, "number of keys after a log record is not what it says"));
                    }
                }
                RecordKind::Operations => operations.push(record),
            }
        }
        let w = self.store.shape.width;
        let read_only = std::mem::replace(&mut self.options.read_only, false);
        for record in &operations {
            let mut at = &record.body[..];
            for _ in 0..record.items {
                let malformed = || {
                    self.store
                        .corrupt(self.superblock.log.0, "logged operation is malformed")
                };
                let (head, rest) = at.split_at_checked(9).ok_or_else(malformed)?;
                let value = if head[8] == 1 {
                    rest.get(..w).ok_or_else(malformed)?
                } else {
                    &[]
                };
                let (key, mut old) = (u64_at(head, 0), [0; crate::value::MAX_VALUE]);
                if head[8] == 1 {
                    self.insert(key, value, &mut old[..w])?;
                    at = &rest[w..];
                } else {
                    self.remove(key, &mut old[..w])?;
                    at = rest;
                }
            }
        }
        self.options.read_only = read_only;
        self.logged = !operations.is_empty();
        self.uncommitted = false;
        self.journal = Journal::default();
        if let Some(last) = operations.last()
            && self.tree.count() != last.count
        {
            return Err(self.store.corrupt(
                self.superblock.log.0,
                "number of keys after logged operations is not what the log says",
            ));
        }
        Ok(())
    }

    fn replay_interval(&mut self, low: u64, high: u64, new: &[Entry]) -> Result<()> {
        let mut old = vec![];
        self.view().entries(low, high, &mut |e, _| {
            old.push(*e);
            Ok(())
        })?;
        for e in old.iter().filter(|e| e.loc != NOWHERE) {
            self.space.free((e.loc, 1));
        }
        self.space.committed(0);
        self.space.reclaim(0);
        for e in new {
            let inside = e.loc >= RESERVED && e.loc < self.file_blocks;
            if !inside || !self.space.mark((e.loc, 1)) {
                return Err(self.store.corrupt(
                    e.loc,
                    "extent named by the log is used twice or lies outside of the file",
                ));
            }
        }
        self.tree
            .replace(&self.store, low, high, new, &mut self.freed_nodes)
    }

    /// Writes all changed extents. They become part of the next durable commit.
    pub(crate) fn spill(&mut self) -> Result<()> {
        if self.dirty.is_empty() {
            return Ok(());
        }
        self.apply_sorted(&[], &[], None).map(drop)
    }
}

/// Nodes on their way to disk, in runs of up to 64 blocks.
#[derive(Default)]
pub(crate) struct NodeBatch {
    run: Run,
    filled: u32,
    buf: Option<AlignedBuf>,
}

impl NodeBatch {
    pub fn put(&mut self, core: &mut Core, node: &Node, range: (u64, u64), epoch: u64) -> Result<(u32, u32)> {
        if self.filled + NODE_BLOCKS > self.run.1 {
            self.send(core)?;
            self.run = core.allocate(NODE_BLOCKS, 16 * NODE_BLOCKS)?;
            self.filled = 0;
        }
        let buf = self
            .buf
            .get_or_insert_with(|| AlignedBuf::new(16 * NODE_BLOCKS as usize));
        let (block, at) = (self.run.0 + self.filled, self.filled as usize * BLOCK);
        let sum = node.write(
            &mut buf[at..at + NODE_BYTES],
            range,
            epoch,
            block,
            core.store.file_id,
        );
        core.store.forget_node(block);
        self.filled += NODE_BLOCKS;
        Ok((block, sum))
    }

    fn send(&mut self, core: &mut Core) -> Result<()> {
        if let Some(buf) = &self.buf
            && self.filled > 0
        {
            core.store
                .write(self.run.0, &buf[..self.filled as usize * BLOCK])?;
        }
        if self.run.1 > self.filled {
            core.space
                .free((self.run.0 + self.filled, self.run.1 - self.filled));
        }
        Ok(())
    }

    pub fn finish(mut self, core: &mut Core) -> Result<()> {
        self.send(core)
    }
}

fn foreign(name: &str, reason: String) -> Error {
    Error::NotOurs {
        file: name.into(),
        reason,
    }
}

/// The newest of the four copies, and what has to be written to make damaged ones whole.
#[allow(clippy::type_complexity)]
fn newest_superblock(backend: &dyn Backend, name: &str) -> Result<(Superblock, Vec<(u32, Superblock)>)> {
    let io = |source| Error::Io {
        file: name.into(),
        what: "read",
        offset: 0,
        source,
    };
    if backend.len().map_err(io)? < u64::from(RESERVED) * BLOCK as u64 {
        return Err(foreign(name, "shorter than the head of a store".into()));
    }
    let mut copies: Vec<(u32, Option<Superblock>)> = vec![];
    let (mut version, mut damaged) = (None, false);
    for place in [0u32, 16, 32, 48] {
        let mut buf = AlignedBuf::new(1);
        backend
            .read_at(u64::from(place) * BLOCK as u64, &mut buf)
            .map_err(io)?;
        let copy = match Superblock::read(&buf, place) {
            Ok(sb) => Some(sb),
            Err(NoSuperblock::Version(v)) => {
                version = Some(v);
                None
            }
            Err(NoSuperblock::Damaged) => {
                damaged = true;
                None
            }
            Err(NoSuperblock::Foreign) => None,
        };
        copies.push((place, copy));
    }
    let newest = copies
        .iter()
        .filter_map(|(_, c)| c.as_ref())
        .max_by_key(|c| c.sequence)
        .cloned();
    let Some(newest) = newest else {
        return Err(match version {
            Some(found) => Error::Version {
                file: name.into(),
                found,
                expected: crate::codec::FORMAT.into(),
            },
            None if damaged => Error::Corrupt {
                file: name.into(),
                block: 0,
                reason: "no superblock copy is whole".into(),
            },
            None => foreign(name, "no superblock".into()),
        });
    };
    let mut repairs = vec![];
    for parity in [0usize, 1] {
        let pair = [&copies[parity], &copies[parity + 2]];
        let best = pair
            .iter()
            .filter_map(|(_, c)| c.as_ref())
            .max_by_key(|c| c.sequence);
        // One copy at a time is written, so a pair without a whole one was damaged, maybe the newer pair.
        let Some(best) = best else {
            let reason = "both copies of a superblock are damaged; the newest commit cannot be told".into();
            return Err(Error::Corrupt {
                file: name.into(),
                block: pair[0].0.into(),
                reason,
            });
        };
        repairs.extend(
            pair.iter()
                .filter(|(_, c)| c.as_ref() != Some(best))
                .map(|(place, _)| (*place, best.clone())),
        );
    }
    Ok((newest, repairs))
}

fn random_id() -> u32 {
    use std::hash::{BuildHasher, Hasher};
    let mut h = std::hash::RandomState::new().build_hasher();
    h.write_u64(std::time::UNIX_EPOCH.elapsed().map_or(0, |d| d.as_nanos() as u64));
    (h.finish() as u32).max(1)
}
