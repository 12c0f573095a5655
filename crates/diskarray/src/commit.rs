//! Commits: records, checkpoints, publication.

use crate::backend::{AlignedBuf, BLOCK};
use crate::core::{Core, Journal, Published};
use crate::error::{Error, Result};
use crate::log::{MAX_METADATA, RecordBuilder, RecordKind, Superblock, places};
use crate::node::{NODE_BLOCKS, NODE_BYTES, NOWHERE, Node};
use crate::options::Durability;
use crate::space::{Run, SEGMENT};
use crate::store::{Loan, Store};
use crate::tree::Tree;
use std::sync::{Arc, Mutex};
use std::time::Instant;

impl Core {
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
        #[cfg(test)]
        if self.options.bugs.trim_early {
            self.space.reclaim_too_early();
            self.trim();
        }
        if !durable {
            if self.readers() {
                self.spill()?;
            }
            // The journal stays: a later logged commit has to carry these operations too.
            self.epoch += 1;
        } else if !(durability == Durability::Logged && !self.readers() && self.commit_logged(metadata)?) {
            self.spill()?;
            match self.delta(metadata)? {
                Some((record, _loan)) => {
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
        if durable {
            self.trim();
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
        self.touched.clear();
        self.journal = Journal::default();
        self.logged = false;
        self.space.committed(self.epoch);
        self.space.reclaim(self.holds.oldest());
    }

    /// Writes the operations to the log; false when they do not fit.
    fn commit_logged(&mut self, metadata: &[u8]) -> Result<bool> {
        // Under a full log or an overflow the extents are written instead.
        let room = (self.superblock.log.1 - self.log_used) as usize * BLOCK;
        let length = RecordBuilder::length(metadata) + self.journal.bytes.len();
        if self.journal.overflow || length > room.min(self.budget.record) {
            return Ok(false);
        }
        let (mut record, _loan) = self.record(RecordKind::Operations, metadata, length);
        record.operations(&self.journal.bytes, self.journal.items);
        self.append(record)?;
        self.epoch += 1;
        self.journal = Journal::default();
        self.logged = true;
        self.last_durable = Instant::now();
        Ok(true)
    }

    /// An empty record of the next commit, with the memory it takes.
    fn record(&self, kind: RecordKind, metadata: &[u8], length: usize) -> (RecordBuilder, Loan<Arc<Store>>) {
        let loan = Loan::new(self.store.clone(), length);
        (RecordBuilder::new(kind, self.epoch + 1, metadata, length), loan)
    }

    /// The record that tells the log what changed; `None` when a checkpoint is due.
    fn delta(&mut self, metadata: &[u8]) -> Result<Option<(RecordBuilder, Loan<Arc<Store>>)>> {
        let directory = self.tree.footprint();
        let room = (self.superblock.log.1 - self.log_used) as usize * BLOCK;
        let crowded =
            directory.bytes > self.budget.directory && directory.changed > self.budget.directory / 4;
        let room = room.min(self.budget.record);
        if self.nodes_settled || self.touched.all || crowded {
            return Ok(None);
        }
        #[cfg(test)]
        if self.options.bugs.forget_interval {
            self.touched.map.pop_first();
        }
        // The length first: a range may cover any number of extents, and only a record that fits is worth making.
        let (touched, view) = (&self.touched.map, self.view());
        let mut length = RecordBuilder::length(metadata);
        let mut counts = Vec::with_capacity(touched.len().min(room / RecordBuilder::INTERVAL));
        for (&low, &high) in touched {
            let n = view.count_entries(low, high)?;
            length += RecordBuilder::INTERVAL + n * RecordBuilder::ENTRY;
            if length > room {
                return Ok(None);
            }
            counts.push(n as u32);
        }
        let (mut record, loan) = self.record(RecordKind::Delta, metadata, length);
        for ((&low, &high), n) in touched.iter().zip(counts) {
            record.interval(low, high, n);
            view.entries(low, high, &mut |e, _| {
                record.entry(e);
                Ok(())
            })?;
        }
        Ok(Some((record, loan)))
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
    pub(crate) fn checkpoint(&mut self, metadata: &[u8]) -> Result<()> {
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
        let directory = self.tree.footprint().bytes / BLOCK;
        let wanted = (directory / 4).min(self.budget.record / BLOCK).clamp(64, 4096) as u32;
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
        if self.tree.footprint().bytes > self.budget.directory {
            self.tree.unpin(self.budget.directory);
        }
        self.settled();
        // Until now the directory of the last checkpoint, which recovery begins with, named extents there.
        self.shorten(true)?;
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
        if self.shorten(false)? {
            self.flush()?;
        }
        Ok(())
    }

    /// Cuts free segments from the end of the file, or only those without storage; whether there were any.
    fn shorten(&mut self, only_absent: bool) -> Result<bool> {
        let blocks = self.space.shrink(only_absent);
        if blocks >= self.file_blocks {
            return Ok(false);
        }
        let bytes = u64::from(blocks) * BLOCK as u64;
        self.store
            .backend
            .set_len(bytes)
            .map_err(self.store.io("resize", bytes))?;
        self.file_blocks = blocks;
        Ok(true)
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
                .give_back((self.run.0 + self.filled, self.run.1 - self.filled));
        }
        Ok(())
    }

    pub fn finish(mut self, core: &mut Core) -> Result<()> {
        self.send(core)
    }
}
