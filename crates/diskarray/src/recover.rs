//! Opening a file: the newest checkpoint, and the log behind it.

use crate::backend::{AlignedBuf, BLOCK, Backend};
use crate::codec::u64_at;
use crate::core::{Core, Journal};
use crate::error::{Error, Result};
use crate::log::{Interval, NoSuperblock, Record, RecordKind, Superblock, record_blocks};
use crate::node::{Expect, MAX_LEVEL, NODE_BLOCKS, NOWHERE, Node};
use crate::options::Options;
use crate::space::{MAX_BLOCKS, RESERVED, Run, Space};
use crate::store::Loan;
use crate::value::Shape;
use crate::view::View;
use std::sync::Arc;

impl Core {
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
        Ok(Record::read(bytes, self.log_chain, block, self.store.file_id).filter(|r| r.epoch > self.epoch))
    }

    fn replay(&mut self) -> Result<()> {
        let (mut operations, mut loans): (Vec<Record>, Vec<_>) = (vec![], vec![]);
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
                    loans.clear();
                    let store = self.store.clone();
                    let malformed = || store.corrupt(block, "log record is malformed");
                    record
                        .intervals(|interval| self.replay_interval(interval))
                        .unwrap_or_else(|| Err(malformed()))?;
                    if self.tree.count() != record.count {
                        return Err(self
                            .store
                            .corrupt(block, "number of keys after a log record is not what it says"));
                    }
                }
                RecordKind::Operations => {
                    loans.push(Loan::new(self.store.clone(), record.blocks as usize * BLOCK));
                    operations.push(record);
                }
            }
        }
        let w = self.store.shape.width;
        let read_only = std::mem::replace(&mut self.options.read_only, false);
        for record in &operations {
            let mut at = record.body();
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

    fn replay_interval(&mut self, interval: Interval<'_>) -> Result<()> {
        let Self {
            store,
            tree,
            space,
            file_blocks,
            freed_nodes,
            ..
        } = self;
        let view = View {
            store,
            tree,
            dirty: None,
        };
        view.entries(interval.low, interval.high, &mut |e, _| {
            if e.loc != NOWHERE {
                space.release((e.loc, 1));
            }
            Ok(())
        })?;
        for e in interval.entries() {
            let inside = e.loc >= RESERVED && e.loc < *file_blocks;
            if !inside || !space.mark((e.loc, 1)) {
                return Err(store.corrupt(
                    e.loc,
                    "extent named by the log is used twice or lies outside of the file",
                ));
            }
        }
        // A few at a time: the last of them answers for the rest of the range until its followers come.
        let mut entries = interval.entries().peekable();
        let (mut low, mut part) = (interval.low, Vec::with_capacity(PART + 1));
        while entries.peek().is_some() {
            part.extend(entries.by_ref().take(PART));
            tree.replace(store, low, interval.high, &part, freed_nodes)?;
            part.drain(..part.len() - 1);
            low = part[0].key;
        }
        Ok(())
    }
}

/// Entries of a record that go into the directory at once.
const PART: usize = if cfg!(test) { 5 } else { 512 };

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
