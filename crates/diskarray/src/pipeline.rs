//! Many single operations in flight from one thread.
//!
//! Operations are executed strictly in the order of submission, each on the state that the ones before it left. What runs ahead is
//! only reading: on submission the extent that an operation will need is looked up and requested, and kept aside until its
//! turn comes, when it goes to the pool; of an extent that is in the pool already, the cache lines are requested. If the directory has changed
//! meanwhile, or the pool has let go of the extent, the operation reads for itself. Extents kept aside are borrowed from the pool's memory, so that neither
//! changed extents nor a small pool can push out what was looked ahead.

use crate::backend::{AlignedBuf, BLOCK, Completion, Kind, Queue, Request};
use crate::error::Result;
use crate::map::OrderedMap;
use crate::node::{Entry, NOWHERE};
use crate::pool::BlockMap;
use crate::store::{Loan, Store};
use crate::value::Value;
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes that an operation looked ahead takes: its extent, and entries of queue and maps.
const HELD_BYTES: usize = AlignedBuf::footprint(1) * BLOCK + 128;

/// A single operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operation<V> {
    /// Value of a key.
    Get(u64),
    /// Inserts or replaces; answers the value before.
    Insert(u64, V),
    /// Removes; answers the value.
    Remove(u64),
    /// The row of a rank.
    At(u64),
    /// Keys below a key.
    Rank(u64),
}

/// What an operation found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reply<V> {
    /// Of `Get`, `Insert` and `Remove`.
    Value(Option<V>),
    /// Of `At`.
    Row(Option<(u64, V)>),
    /// Of `Rank`.
    Rank(u64),
}

/// See [`OrderedMap::pipeline`]. Dropping it leaves operations without an answer undone.
pub struct Pipeline<'m, V: Value> {
    map: &'m mut OrderedMap<V>,
    window: usize,
    waiting: VecDeque<(Operation<V>, u32)>,
    queue: Option<Box<dyn Queue>>,
    /// Checksums of blocks that are being read.
    in_flight: BlockMap<u32>,
    /// Blocks that were read, until the first operation that asked for them.
    arrived: BlockMap<AlignedBuf>,
    spare: Vec<AlignedBuf>,
    /// Memory for `in_flight`, `arrived` and `spare`, taken with the first read.
    loan: Option<Loan<Arc<Store>>>,
}

impl<'m, V: Value> Pipeline<'m, V> {
    pub(crate) fn new(map: &'m mut OrderedMap<V>, window: usize) -> Self {
        let most = map.core.store.most_lent() / HELD_BYTES;
        Self {
            map,
            window: window.clamp(1, most.max(1)),
            waiting: VecDeque::new(),
            queue: None,
            in_flight: BlockMap::default(),
            arrived: BlockMap::default(),
            spare: vec![],
            loan: None,
        }
    }

    /// Submits an operation; once the window is full, executes the oldest and returns its answer.
    ///
    /// # Errors
    /// Of the operation executed: as the methods of [`OrderedMap`].
    pub fn push(&mut self, operation: Operation<V>) -> Result<Option<Reply<V>>> {
        self.map.drain()?;
        let core = &self.map.core;
        let entry = match operation {
            Operation::Get(key)
            | Operation::Insert(key, _)
            | Operation::Remove(key)
            | Operation::Rank(key) => Some(core.tree.find_entry(&core.store, key)?),
            Operation::At(rank) if rank < core.tree.count() => {
                let spot = core.tree.find_rank(&core.store, rank)?;
                Some((spot.entry(), (rank - spot.before) as usize))
            }
            Operation::At(_) => None,
        };
        let wanted = match entry {
            Some((entry, at)) if !core.view().fetch(&entry, at) => self.request(entry)?,
            _ => NOWHERE,
        };
        self.waiting.push_back((operation, wanted));
        if self.waiting.len() < self.window {
            Ok(None)
        } else {
            self.pop()
        }
    }

    /// Executes the oldest operation and returns its answer; `None` when none waits.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn pop(&mut self) -> Result<Option<Reply<V>>> {
        let Some((operation, wanted)) = self.waiting.pop_front() else {
            return Ok(None);
        };
        if wanted != NOWHERE {
            self.fetch(wanted)?;
        }
        Ok(Some(match operation {
            Operation::Get(key) => Reply::Value(self.map.get(key)?),
            Operation::Insert(key, value) => Reply::Value(self.map.insert(key, value)?),
            Operation::Remove(key) => Reply::Value(self.map.remove(key)?),
            Operation::At(rank) => Reply::Row(self.map.at(rank)?),
            Operation::Rank(key) => Reply::Rank(self.map.rank(key)?),
        }))
    }

    /// Operations submitted and not answered.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether every operation was answered.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Waits for a block that was asked for, and moves it to the pool.
    fn fetch(&mut self, wanted: u32) -> Result<()> {
        while self.in_flight.contains_key(&wanted) {
            let Some(done) = self.complete(true)? else { break };
            self.settle(done);
        }
        if let Some(buf) = self.arrived.remove(&wanted) {
            self.map.core.store.pool.insert(wanted, &buf);
            self.spare.push(buf);
        }
        Ok(())
    }

    /// Starts reading an extent unless it is here or on its way; returns the block to wait for.
    fn request(&mut self, entry: Entry) -> Result<u32> {
        let store = &self.map.core.store;
        if self.in_flight.contains_key(&entry.loc) || self.arrived.contains_key(&entry.loc) {
            return Ok(entry.loc);
        }
        if self.queue.is_none() {
            self.queue = Some(store.queue(store.depth)?);
            self.loan = Some(Loan::new(store.clone(), self.window * HELD_BYTES));
        }
        let buf = self.spare.pop().unwrap_or_else(|| AlignedBuf::new(1));
        let offset = u64::from(entry.loc) * BLOCK as u64;
        let request = Request {
            tag: entry.loc.into(),
            kind: Kind::Read,
            offset,
            len: BLOCK,
            buf,
        };
        store.count_read(BLOCK);
        let queue = self.queue.as_mut().expect("made above");
        queue.submit(request).map_err(store.io("read", offset))?;
        self.in_flight.insert(entry.loc, entry.sum);
        // What has arrived makes room for what is asked.
        while let Some(done) = self.complete(false)? {
            self.settle(done);
        }
        Ok(entry.loc)
    }

    fn complete(&mut self, wait: bool) -> Result<Option<Completion>> {
        let Some(queue) = &mut self.queue else {
            return Ok(None);
        };
        queue.complete(wait).map_err(self.map.core.store.io("read", 0))
    }

    fn settle(&mut self, done: Completion) {
        let block = done.tag as u32;
        // A read that failed or brought damage is reported by the operation that needs it, which reads again.
        match self.in_flight.remove(&block) {
            Some(sum)
                if done.result.is_ok() && self.map.core.store.check_extent(block, sum, &done.buf).is_ok() =>
            {
                self.arrived.insert(block, done.buf);
            }
            _ => self.spare.push(done.buf),
        }
    }
}
