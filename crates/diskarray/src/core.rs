//! The writer: its parts, its budget, single operations.

use crate::backend::{BLOCK, Backend};
use crate::codec::{Encoder, Encoding, Page, Rows};
use crate::device::Device;
use crate::dirty::Dirty;
use crate::error::{Error, Result};
use crate::log::Superblock;
use crate::node::{CHANGED, Entry, NODE_BYTES, NOWHERE};
use crate::options::Options;
use crate::pool::Pool;
use crate::space::{LEAST, Run, SEGMENT, Space};
use crate::store::Store;
use crate::transfer::Gather;
use crate::tree::{Freed, Tree, guess};
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
pub(crate) struct Journal {
    pub bytes: Vec<u8>,
    pub items: u32,
    pub overflow: bool,
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
    /// Most bytes of a record of the log, lent by the pool on its way to or from disk.
    pub record: usize,
    /// Bytes of operations remembered for a logged commit.
    pub journal: usize,
}

/// One ordered map of fixed-size byte values, with its file. Typed faces stand in `map` and `set`.
pub struct Core {
    pub store: Arc<Store>,
    pub tree: Tree,
    pub(crate) space: Space,
    pub dirty: Dirty,
    /// Rows on their way from an extent to a slot.
    scratch: Rows,
    pub(crate) gather: Gather,
    pub(crate) encoder: Encoder,
    pub(crate) options: Options,
    /// What was measured, or tried to be.
    pub(crate) measured: Option<Device>,
    pub(crate) budget: Budget,
    pub epoch: u64,
    pub metadata: Arc<[u8]>,
    pub holds: Holds,
    pub(crate) published: Option<Arc<Mutex<Published>>>,
    /// Ranges whose extents differ from what the log knows.
    pub(crate) touched: Ranges,
    /// Node blocks that the last checkpoint still needs.
    pub(crate) freed_nodes: Freed,
    /// Changed nodes went to disk before their commit, so the commit has to be a checkpoint.
    pub(crate) nodes_settled: bool,
    pub(crate) superblock: Superblock,
    pub(crate) log_used: u32,
    pub(crate) log_chain: u32,
    pub(crate) journal: Journal,
    /// The log ends with operations whose extents are still only in memory.
    pub(crate) logged: bool,
    pub(crate) last_durable: Instant,
    pub(crate) file_blocks: u32,
    pub(crate) unflushed: bool,
    pub(crate) move_log: bool,
    /// Something changed since the last commit of any level.
    pub(crate) uncommitted: bool,
}

/// A union of key ranges.
pub struct Ranges {
    pub map: BTreeMap<u64, u64>,
    /// Too many to remember: everything may have changed.
    pub all: bool,
    /// Ranges remembered at most.
    most: usize,
}

impl Ranges {
    /// Bytes of a range in a half-full tree.
    const BYTES: usize = 40;

    /// None so far. More than fit a small part of the budget make a checkpoint cheaper than a record.
    pub fn new(budget: usize) -> Self {
        Self {
            map: BTreeMap::new(),
            all: false,
            most: (budget / 32 / Self::BYTES).clamp(64, 1 << 18),
        }
    }

    /// Forgets all ranges.
    pub fn clear(&mut self) {
        self.map.clear();
        self.all = false;
    }

    pub fn memory(&self) -> usize {
        self.map.len() * Self::BYTES
    }

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
        if self.map.len() > self.most {
            self.all = true;
            self.map.clear();
        }
    }
}

impl Core {
    /// Makes an empty store on an empty back end.
    pub fn create(backend: Arc<dyn Backend>, name: &str, shape: Shape, options: Options) -> Result<Self> {
        let file_id = random_id();
        let mut core = Self::bare(backend, name, shape, options, file_id, LEAST)?;
        core.lengthen((0, LEAST), LEAST)?;
        core.checkpoint(&[])?;
        // Both parities and their twins are in place before anyone relies on the file.
        core.checkpoint(&[])?;
        core.flush()?;
        Ok(core)
    }

    pub(crate) fn bare(
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
        let run_blocks = 1 << (io / 2 / 5 / BLOCK).clamp(8, SEGMENT as usize).ilog2();
        let window = (io / 4 / BLOCK).clamp(64, 1024);
        let depth = options.depth.clamp(1, window);
        let store = Arc::new(Store::new(
            backend,
            name.into(),
            shape.clone(),
            options.encoding,
            file_id,
            (depth, window),
            Pool::slab_for(total),
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
            tree: Tree::empty(),
            space: Space::new(blocks),
            dirty: Dirty::new(store.shape.clone(), total),
            scratch: Rows::default(),
            store,
            gather,
            encoder: Encoder::new(shape, options.encoding),
            options,
            measured: None,
            budget: Budget {
                total,
                run_blocks,
                shared: 0,
                dirty: 0,
                directory: total / 8 * 5,
                record: (total / 16).min(16 << 20),
                journal: (total / 64).min(1 << 20),
            },
            epoch: 0,
            metadata: Arc::new([]),
            holds: Holds::default(),
            published: None,
            touched: Ranges::new(total),
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
        let directory = self.tree.footprint();
        // A directory that is all in memory needs no cache beside it, but for the moment of a commit.
        let nodes = if directory.paged {
            self.budget.total / 16
        } else {
            4 * NODE_BYTES
        };
        self.store.set_node_cache(nodes);
        let log = 2 * self.budget.journal + self.touched.memory();
        // The rest of a thirty-second part is for the allocator's own needs, stacks and small loans.
        let fixed = io + directory.bytes + nodes + log + self.space.memory() + self.budget.total / 32;
        let shared = self.budget.total.saturating_sub(fixed).max(64 << 10);
        self.budget.shared = shared;
        self.budget.dirty = (shared / 16).max(self.dirty.memory()).min(self.most_dirty());
        self.grant_pool();
    }

    /// Most that changed extents get of what they share with the pool: beside what is lent, some of it stays a cache. A shard of the pool without any
    /// frame would have the operations of a pipeline read again what was read ahead for them.
    fn most_dirty(&self) -> usize {
        let (shared, store) = (self.budget.shared, &self.store);
        let least = 2 * store.pool.least().max(shared / 32);
        shared - (shared / 4).max(store.lent() + least).min(shared)
    }

    /// Changed extents have outgrown their grant: takes from the pool, or writes them.
    pub(crate) fn make_room(&mut self) -> Result<()> {
        let most = self.most_dirty();
        if self.budget.dirty >= most {
            return self.guarded(Self::spill);
        }
        self.budget.dirty = (self.budget.dirty + self.budget.shared / 16).min(most);
        self.grant_pool();
        Ok(())
    }

    /// What changed extents leave is the pool's.
    fn grant_pool(&self) {
        let dirty = self.budget.dirty.max(self.dirty.memory());
        self.store.grant_pool(self.budget.shared.saturating_sub(dirty));
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

    pub(crate) fn flush(&mut self) -> Result<()> {
        self.store.flush()?;
        self.unflushed = false;
        Ok(())
    }

    /// Makes the file long enough for a run of blocks, and a stretch longer where segments are absent.
    fn provide(&mut self, run: Run) -> Result<()> {
        let end = run.0 + run.1;
        while let Some(stretch) = self.space.absent_stretch(run) {
            self.lengthen(stretch, end)?;
        }
        // The last segment of a file may be cut short.
        if end > self.file_blocks {
            self.lengthen((self.file_blocks, end - self.file_blocks), end)?;
        }
        Ok(())
    }

    /// Makes the file long enough for a stretch, of which the blocks below `end` are needed.
    fn lengthen(&mut self, stretch: Run, end: u32) -> Result<()> {
        let bytes = |blocks: u32| u64::from(blocks) * BLOCK as u64;
        // Where a file may not grow by all of it, the blocks themselves may still fit.
        let needed = end.min(stretch.0 + stretch.1) - stretch.0;
        let segments = needed.next_multiple_of(SEGMENT).min(stretch.1);
        let mut result = Ok(());
        for blocks in [stretch.1, segments, needed] {
            let last = stretch.0 + blocks;
            result = match last > self.file_blocks {
                true => self.store.backend.set_len(bytes(last)),
                false => Ok(()),
            };
            if result.is_ok() {
                self.space.provided((stretch.0, blocks));
                self.file_blocks = self.file_blocks.max(last);
                break;
            }
        }
        result.map_err(self.store.io("resize", bytes(stretch.0)))
    }

    /// Gives storage back that recent commits do not call for.
    pub(crate) fn trim(&mut self) {
        for (block, blocks) in self.space.trim() {
            let bytes = |n: u32| u64::from(n) * BLOCK as u64;
            let within = blocks.min(self.file_blocks.saturating_sub(block));
            // Where it fails the storage is there still, which does no harm.
            let _ = self.store.backend.release(bytes(block), bytes(within));
        }
    }

    /// Takes a run of blocks and makes the file long enough for it.
    pub(crate) fn allocate(&mut self, least: u32, want: u32) -> Result<Run> {
        #[cfg(test)]
        if self.options.bugs.reuse_early {
            self.space.reclaim_too_early();
        }
        let run = self.space.allocate(least, want).ok_or_else(|| Error::Full {
            file: self.store.name.clone(),
        })?;
        self.provide(run)?;
        self.unflushed = true;
        Ok(run)
    }

    /// Sends what was gathered, waits for all writes, and gives back what is left of the last run.
    pub(crate) fn finish_writes(&mut self) -> Result<()> {
        let store = self.store.clone();
        if let Some(rest) = self.gather.finish(&store)? {
            self.space.give_back(rest);
        }
        Ok(())
    }

    /// What the planner goes by for a batch of so many operations. A file that is worth it is measured once.
    pub(crate) fn device(&mut self, operations: usize) -> Device {
        const WORTH: (usize, u32, usize) = (1000, (16 << 20) / BLOCK as u32, 16 << 20);
        if let Some(device) = self.options.device.or(self.measured) {
            return device;
        }
        let worth =
            operations >= WORTH.0 && self.space.used_blocks() >= WORTH.1 && self.budget.total >= WORTH.2;
        if !worth || !self.store.backend.is_device() {
            return Device::default();
        }
        // A device that fails here will fail again where it matters.
        let device = Device::calibrate(self).unwrap_or_default();
        self.measured = Some(device);
        device
    }

    /// Applies one change to the extent of `key`, in memory: a value to put, or none to remove. `old` receives the value before. Returns whether
    /// there was one.
    fn change(&mut self, key: u64, value: Option<&[u8]>, old: &mut [u8]) -> Result<bool> {
        self.uncommitted = true;
        let Self {
            tree,
            store,
            dirty,
            space,
            freed_nodes,
            scratch,
            ..
        } = self;
        let (mut place, mut known, mut outside) = ((0, 0), false, false);
        tree.modify(store, key, freed_nodes, &mut |leaf, i, (low, high)| {
            let loc = leaf.locs[i];
            let slot = if loc & CHANGED != 0 {
                loc & !CHANGED
            } else {
                scratch.clear();
                let mut slot = None;
                if loc != NOWHERE {
                    let mut take = |page: &Page<'_>| {
                        slot = dirty.add_bitmap(low, high, page);
                        if slot.is_some() {
                            Ok(())
                        } else {
                            page.decode(scratch)
                        }
                    };
                    store
                        .with_extent(loc, leaf.sums[i], &mut take)?
                        .map_err(|why| store.corrupt(loc, why))?;
                    space.free((loc, 1));
                    store.pool.remove(loc);
                }
                let slot = slot.unwrap_or_else(|| dirty.add(low, high, &scratch.keys, &scratch.vals));
                leaf.set_place(i, CHANGED | slot, 0);
                slot
            };
            let page = dirty.page(slot);
            let (at, hit) = page.lower_bound_near(key, guess(key, (low, high), leaf.count(i)));
            if hit {
                page.value_at(at, old);
            }
            known = hit;
            let reach = dirty.reach(slot);
            let n = match value {
                Some(value) if hit => {
                    dirty.set(slot, at, value);
                    leaf.count(i) as usize
                }
                Some(_) if !(reach.0..=reach.1).contains(&key) => {
                    outside = true;
                    leaf.count(i) as usize
                }
                Some(value) => dirty.insert(slot, at, key, value),
                None if hit => dirty.remove(slot, at, key),
                None => leaf.count(i) as usize,
            };
            place = (slot, n);
            Ok(n as u64)
        })?;
        let (slot, n) = place;
        let raw = crate::apply::CAPACITY / (8 + self.store.shape.width);
        let most = if self.encoding() == Encoding::Raw {
            2 * raw
        } else {
            (4 * raw).max(if cfg!(test) { 64 } else { 4096 })
        };
        if outside {
            self.add_beside(slot, key, n)?;
        } else if n > most && !self.dirty.is_bitmap(slot) {
            self.split_slot(slot)?;
        }
        if self.dirty.memory() > self.budget.dirty {
            self.make_room()?;
        }
        Ok(known)
    }

    /// Adds a key of a set beside a changed bitmap of `n` keys, whose bits do not reach it: its range is cut.
    fn add_beside(&mut self, slot: u32, key: u64, n: usize) -> Result<()> {
        let ((low, high), reach) = (self.dirty.range(slot), self.dirty.reach(slot));
        let (old, new) = if key < reach.0 {
            ((reach.0, high), (low, reach.0 - 1))
        } else {
            ((low, reach.1), (reach.1 + 1, high))
        };
        self.dirty.set_range(slot, old);
        let added = self.dirty.add(new.0, new.1, &[key], &[]);
        let entry = |key: u64, count: usize, slot: u32| Entry {
            key,
            count: count as u64,
            loc: CHANGED | slot,
            sum: 0,
        };
        let mut entries = [entry(old.0, n, slot), entry(new.0, 1, added)];
        entries.sort_unstable_by_key(|e| e.key);
        self.tree
            .replace(&self.store, low, high, &entries, &mut self.freed_nodes)
    }

    /// Cuts a changed extent in two, so that changes in it stay cheap.
    fn split_slot(&mut self, slot: u32) -> Result<()> {
        let w = self.store.shape.width;
        self.scratch.clear();
        let (low, high) = self.dirty.take(slot, &mut self.scratch);
        let Rows { keys, vals } = &self.scratch;
        // Ascending growth leaves a full left half behind.
        let middle = if high == u64::MAX {
            keys.len() * 9 / 10
        } else {
            keys.len() / 2
        };
        let cut = keys[middle];
        let new = [(low, cut - 1, 0..middle), (cut, high, middle..keys.len())].map(|(low, high, range)| {
            let vals = &vals[range.start * w..range.end * w];
            let slot = self.dirty.add(low, high, &keys[range.clone()], vals);
            Entry {
                key: low,
                count: range.len() as u64,
                loc: CHANGED | slot,
                sum: 0,
            }
        });
        self.tree
            .replace(&self.store, low, high, &new, &mut self.freed_nodes)
    }

    /// Remembers an operation for a logged commit; false when there are too many.
    pub(crate) fn log_operation(&mut self, key: u64, value: Option<&[u8]>) -> bool {
        let journal = &mut self.journal;
        if journal.overflow || journal.bytes.len() > self.budget.journal {
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
        let known = self.change(key, Some(value), old)?;
        self.log_operation(key, Some(value));
        Ok(known)
    }

    /// Removes; `old` receives the former value. Returns whether there was one.
    pub fn remove(&mut self, key: u64, old: &mut [u8]) -> Result<bool> {
        self.check_writable()?;
        // Looking first spares a rewrite of the extent when the key is absent.
        let changed = self.tree.find_entry(&self.store, key)?.0.loc & CHANGED != 0;
        if !changed && !self.view().get(key, old)? {
            return Ok(false);
        }
        let known = self.change(key, None, old)?;
        if known {
            self.log_operation(key, None);
        }
        Ok(known)
    }
}

fn random_id() -> u32 {
    use std::hash::{BuildHasher, Hasher};
    let mut h = std::hash::RandomState::new().build_hasher();
    h.write_u64(std::time::UNIX_EPOCH.elapsed().map_or(0, |d| d.as_nanos() as u64));
    (h.finish() as u32).max(1)
}
