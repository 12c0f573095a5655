//! Blocks with names: checked reads of extents and nodes through the caches, reads ahead, gathered writes.

use crate::backend::{AlignedBuf, BLOCK, Backend, Completion, Kind, Queue, Request};
use crate::codec::{Encoded, Encoding, Guess, Header, Page, prefetch_near, seal};
use crate::error::{Error, Result};
use crate::node::{Expect, NODE_BYTES, Node};
use crate::pool::{BlockMap, Pool};
use crate::space::Run;
use crate::value::Shape;
use std::collections::VecDeque;
use std::io;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Memory taken from the pool until it is dropped.
pub struct Loan<S: Deref<Target = Store>> {
    store: S,
    bytes: usize,
}

/// Loans up to this size are covered by the slack of the budget.
const SMALL_LOAN: usize = 48 << 10;

impl<S: Deref<Target = Store>> Loan<S> {
    /// Takes memory from the pool for a call that needs some for itself. Little of it is not worth the trouble: the budget has slack.
    pub fn new(store: S, bytes: usize) -> Self {
        let bytes = if bytes > SMALL_LOAN { bytes } else { 0 };
        if bytes > 0 {
            store.pool_lent.fetch_add(bytes, Relaxed);
            store.fit_pool();
        }
        Self { store, bytes }
    }
}

impl<S: Deref<Target = Store>> Drop for Loan<S> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.store.pool_lent.fetch_sub(self.bytes, Relaxed);
            self.store.fit_pool();
        }
    }
}

/// What moved, since the store was opened.
#[derive(Default)]
pub struct Counters {
    pub reads: AtomicU64,
    pub read_bytes: AtomicU64,
    pub writes: AtomicU64,
    pub written_bytes: AtomicU64,
    pub flushes: AtomicU64,
    pub hits: AtomicU64,
    pub misses: AtomicU64,
}

fn count(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Relaxed);
}

/// Nodes that are not pinned, least recently used first out.
#[derive(Default)]
struct NodeCache {
    nodes: BlockMap<(Arc<Node>, u64)>,
    tick: u64,
}

/// Everything that the writer and all readers share.
pub struct Store {
    pub backend: Arc<dyn Backend>,
    pub name: String,
    pub shape: Shape,
    pub encoding: Encoding,
    pub file_id: u32,
    pub pool: Pool,
    /// What the budget gives the pool, and how much of it is lent to calls in progress.
    pool_grant: AtomicUsize,
    pool_lent: AtomicUsize,
    nodes: Mutex<NodeCache>,
    node_capacity: AtomicUsize,
    pub counters: Counters,
    pub poisoned: AtomicBool,
    /// Requests in flight of one queue.
    pub depth: usize,
    /// Blocks that one reading-ahead holds.
    pub window: usize,
    #[cfg(test)]
    pub drop_parent_checksum: AtomicBool,
}

impl Store {
    pub fn new(
        backend: Arc<dyn Backend>,
        name: String,
        shape: Shape,
        encoding: Encoding,
        file_id: u32,
        (depth, window): (usize, usize),
        slab: usize,
    ) -> Self {
        Self {
            backend,
            name,
            shape,
            encoding,
            file_id,
            pool: Pool::new(slab),
            pool_grant: 0.into(),
            pool_lent: 0.into(),
            nodes: Mutex::default(),
            node_capacity: 8.into(),
            counters: Counters::default(),
            poisoned: false.into(),
            depth,
            window,
            #[cfg(test)]
            drop_parent_checksum: false.into(),
        }
    }

    /// Gives the pool a share of the budget.
    pub fn grant_pool(&self, bytes: usize) {
        self.pool_grant.store(bytes, Relaxed);
        self.fit_pool();
    }

    fn fit_pool(&self) {
        let bytes = self
            .pool_grant
            .load(Relaxed)
            .saturating_sub(self.pool_lent.load(Relaxed));
        self.pool.resize(bytes);
    }

    /// Most bytes that one call should borrow.
    pub fn most_lent(&self) -> usize {
        (self.pool_grant.load(Relaxed) / 2).max(SMALL_LOAN)
    }

    /// Bytes lent at present.
    pub fn lent(&self) -> usize {
        self.pool_lent.load(Relaxed)
    }

    pub fn io(&self, what: &'static str, offset: u64) -> impl FnOnce(io::Error) -> Error {
        let file = self.name.clone();
        move |source| Error::Io {
            file,
            what,
            offset,
            source,
        }
    }

    pub fn corrupt(&self, block: u32, reason: impl Into<String>) -> Error {
        Error::Corrupt {
            file: self.name.clone(),
            block: block.into(),
            reason: reason.into(),
        }
    }

    /// Memory for nodes that are not pinned.
    pub fn set_node_cache(&self, bytes: usize) {
        self.node_capacity.store((bytes / NODE_BYTES).max(4), Relaxed);
    }

    pub fn read(&self, block: u32, buf: &mut [u8]) -> Result<()> {
        let offset = u64::from(block) * BLOCK as u64;
        count(&self.counters.reads, 1);
        count(&self.counters.read_bytes, buf.len() as u64);
        self.backend
            .read_at(offset, buf)
            .map_err(|e| self.read_error(block, e))
    }

    /// Counts a read that somebody else submits.
    pub fn count_read(&self, bytes: usize) {
        count(&self.counters.reads, 1);
        count(&self.counters.read_bytes, bytes as u64);
    }

    fn read_error(&self, block: u32, e: io::Error) -> Error {
        if e.kind() == io::ErrorKind::UnexpectedEof {
            return self.corrupt(block, "the file ends before this block");
        }
        self.io("read", u64::from(block) * BLOCK as u64)(e)
    }

    pub fn write(&self, block: u32, buf: &[u8]) -> Result<()> {
        let offset = u64::from(block) * BLOCK as u64;
        count(&self.counters.writes, 1);
        count(&self.counters.written_bytes, buf.len() as u64);
        self.backend
            .write_at(offset, buf)
            .map_err(self.io("write", offset))
    }

    pub fn flush(&self) -> Result<()> {
        count(&self.counters.flushes, 1);
        self.backend.flush().map_err(self.io("flush", 0))
    }

    pub fn queue(&self, depth: usize) -> Result<Box<dyn Queue>> {
        self.backend
            .clone()
            .queue(depth)
            .map_err(self.io("start a queue", 0))
    }

    /// A guess at where in an extent of `of` rows a search ends.
    #[inline]
    pub fn guess(&self, at: usize, of: u64) -> Guess {
        Guess {
            at,
            of: of as usize,
            encoding: self.encoding,
        }
    }

    /// Checks an extent against itself and its parent.
    pub fn check_extent(&self, block: u32, sum: u32, bytes: &[u8]) -> Result<Header> {
        let header = Header::read(bytes, block, self.file_id).map_err(|why| self.corrupt(block, why))?;
        #[cfg(test)]
        if self.drop_parent_checksum.load(Relaxed) {
            return Ok(header);
        }
        if header.checksum != sum {
            return Err(self.corrupt(
                block,
                "extent is valid but not the one its parent names (a lost or misplaced write)",
            ));
        }
        Ok(header)
    }

    pub fn page<'a>(&'a self, block: u32, bytes: &'a [u8]) -> Result<Page<'a>> {
        Page::new(&self.shape, bytes)
            .ok_or_else(|| self.corrupt(block, "extent payload contradicts its header"))
    }

    /// Runs `f` on a checked extent, from the pool or the disk.
    pub fn with_extent<R>(&self, block: u32, sum: u32, f: impl FnOnce(&Page<'_>) -> R) -> Result<R> {
        self.with_extent_near(block, sum, None, f)
    }

    /// As [`with_extent`](Self::with_extent), for a search that is likely to end at `guess`.
    #[inline]
    pub fn with_extent_near<R>(
        &self,
        block: u32,
        sum: u32,
        guess: Option<Guess>,
        f: impl FnOnce(&Page<'_>) -> R,
    ) -> Result<R> {
        let mut f = Some(f);
        let mut run = |bytes: &[u8]| {
            if let Some(guess) = guess {
                prefetch_near(bytes, guess);
            }
            let page = self.page(block, bytes)?;
            Ok((f.take().expect("called once"))(&page))
        };
        if let Some(r) = self.pool.with(block, &mut run) {
            count(&self.counters.hits, 1);
            return r;
        }
        count(&self.counters.misses, 1);
        let mut buf = AlignedBuf::new(1);
        self.read(block, &mut buf)?;
        self.check_extent(block, sum, &buf)?;
        let r = run(&buf);
        self.pool.insert(block, &buf);
        r
    }

    /// A node that is not pinned.
    pub fn node(&self, expect: &Expect) -> Result<Arc<Node>> {
        let mut cache = self.nodes.lock().unwrap_or_else(|poison| poison.into_inner());
        cache.tick += 1;
        let tick = cache.tick;
        if let Some((node, used)) = cache.nodes.get_mut(&expect.block) {
            *used = tick;
            return Ok(node.clone());
        }
        drop(cache);
        let mut buf = AlignedBuf::new(NODE_BYTES / BLOCK);
        self.read(expect.block, &mut buf)?;
        let node = Arc::new(self.read_node(&buf, expect)?);
        let mut cache = self.nodes.lock().unwrap_or_else(|poison| poison.into_inner());
        while cache.nodes.len() >= self.node_capacity.load(Relaxed) {
            let oldest = cache
                .nodes
                .iter()
                .min_by_key(|(_, (_, used))| *used)
                .map(|(&b, _)| b);
            cache.nodes.remove(&oldest.expect("not empty"));
        }
        cache.nodes.insert(expect.block, (node.clone(), tick));
        Ok(node)
    }

    pub fn read_node(&self, bytes: &[u8], expect: &Expect) -> Result<Node> {
        Node::read(bytes, expect, self.file_id).map_err(|why| self.corrupt(expect.block, why))
    }

    /// The blocks will be written anew: forgets what the caches know of them.
    pub fn forget_node(&self, block: u32) {
        self.nodes
            .lock()
            .unwrap_or_else(|poison| poison.into_inner())
            .nodes
            .remove(&block);
    }

    pub fn node_cache_memory(&self) -> usize {
        self.nodes
            .lock()
            .unwrap_or_else(|poison| poison.into_inner())
            .nodes
            .len()
            * NODE_BYTES
    }
}

/// Most blocks of one read.
const READ_RUN: u32 = 64;
/// Unwanted blocks that a read takes along rather than being cut: reading on is cheaper than a second request.
const READ_GAP: u32 = 3;

struct ReadRun {
    start: u32,
    blocks: u32,
    /// Wanted blocks, by distance from the start, with the checksum their parent has.
    items: Vec<(u32, u32)>,
    state: RunState,
}

enum RunState {
    /// In the pool when it was enqueued.
    Cached,
    Queued,
    InFlight,
    Done(AlignedBuf),
}

/// Reads extents in a given order, many requests at a time, adjacent ones in one.
pub struct ReadAhead<'s> {
    store: &'s Store,
    queue: Box<dyn Queue>,
    runs: VecDeque<ReadRun>,
    /// Sequence number of the first run, for tags.
    first: u64,
    /// First run that was not submitted yet, as an index into `runs`.
    unsent: usize,
    /// Place in the front run.
    item: usize,
    /// Blocks enqueued and not yet handed out.
    pub pending: usize,
    /// Blocks of buffers that are in flight or read and not handed out.
    held: usize,
    spare: [Vec<AlignedBuf>; CLASSES.len()],
    spare_blocks: usize,
}

/// Sizes of read buffers in blocks, so that they can be used again.
const CLASSES: [usize; 4] = [1, 4, 16, (READ_RUN + READ_GAP) as usize];

fn class_of(blocks: usize) -> usize {
    CLASSES
        .iter()
        .position(|&c| c >= blocks)
        .expect("a run is no longer than the largest class")
}

impl<'s> ReadAhead<'s> {
    pub fn new(store: &'s Store) -> Result<Self> {
        let queue = store.queue(store.depth)?;
        let runs = VecDeque::new();
        let spare = Default::default();
        Ok(Self {
            store,
            queue,
            runs,
            first: 0,
            unsent: 0,
            item: 0,
            pending: 0,
            held: 0,
            spare,
            spare_blocks: 0,
        })
    }

    /// Adds an extent to the end of the order.
    pub fn enqueue(&mut self, block: u32, sum: u32) {
        self.pending += 1;
        if let Some(run) = self.runs.back_mut()
            && matches!(run.state, RunState::Queued)
            && block >= run.start + run.blocks
            && block - (run.start + run.blocks) <= READ_GAP
            && block - run.start < READ_RUN
        {
            run.blocks = block - run.start + 1;
            run.items.push((block - run.start, sum));
            return;
        }
        let mut run = ReadRun {
            start: block,
            blocks: 1,
            items: vec![(0, sum)],
            state: RunState::Queued,
        };
        if self.store.pool.touch(block) {
            run.state = RunState::Cached;
        }
        self.runs.push_back(run);
    }

    fn buffer(&mut self, class: usize) -> AlignedBuf {
        match self.spare[class].pop() {
            Some(buf) => {
                self.spare_blocks -= CLASSES[class];
                buf
            }
            None => AlignedBuf::new(CLASSES[class]),
        }
    }

    fn keep(&mut self, buf: AlignedBuf) {
        if self.held + self.spare_blocks + buf.blocks() <= self.store.window {
            self.spare_blocks += buf.blocks();
            self.spare[class_of(buf.blocks())].push(buf);
        }
    }

    /// Starts reads up to the queue's depth. The last run stays open for neighbours unless `all`.
    pub fn pump(&mut self, all: bool) -> Result<()> {
        while self.unsent < self.runs.len()
            && self.queue.in_flight() < self.store.depth
            && (self.held < self.store.window || self.unsent == 0)
        {
            let last = self.unsent + 1 == self.runs.len();
            if last && !all {
                break;
            }
            let i = self.unsent;
            self.unsent += 1;
            if !matches!(self.runs[i].state, RunState::Queued) {
                continue;
            }
            let (start, blocks) = (self.runs[i].start, self.runs[i].blocks);
            let buf = self.buffer(class_of(blocks as usize));
            self.held += buf.blocks();
            self.runs[i].state = RunState::InFlight;
            let len = blocks as usize * BLOCK;
            count(&self.store.counters.reads, 1);
            count(&self.store.counters.read_bytes, len as u64);
            let offset = u64::from(start) * BLOCK as u64;
            let request = Request {
                tag: self.first + i as u64,
                kind: Kind::Read,
                offset,
                len,
                buf,
            };
            self.queue
                .submit(request)
                .map_err(self.store.io("read", offset))?;
        }
        Ok(())
    }

    fn settle(&mut self, done: Completion) -> Result<()> {
        let run = &mut self.runs[(done.tag - self.first) as usize];
        let start = run.start;
        done.result.map_err(|e| self.store.read_error(start, e))?;
        for &(at, sum) in &run.items {
            let bytes = &done.buf[at as usize * BLOCK..(at as usize + 1) * BLOCK];
            self.store.check_extent(start + at, sum, bytes)?;
        }
        run.state = RunState::Done(done.buf);
        Ok(())
    }

    /// Runs `f` on the next extent of the order; its last argument tells that the pool has it, and is locked.
    pub fn next<R>(&mut self, f: impl FnOnce(u32, &[u8], bool) -> R) -> Result<R> {
        if self.runs.front().is_some_and(|run| self.item == run.items.len()) {
            self.retire();
        }
        if matches!(
            self.runs.front(),
            Some(ReadRun {
                state: RunState::Cached,
                ..
            })
        ) {
            return self.next_cached(f);
        }
        loop {
            self.pump(false)?;
            match self.runs.front().map(|run| &run.state) {
                Some(RunState::Done(_)) => break,
                Some(RunState::Queued) => self.pump(true)?,
                Some(RunState::InFlight | RunState::Cached) => {}
                None => return Err(self.store.corrupt(0, "read order exhausted")),
            }
            if matches!(self.runs[0].state, RunState::Done(_)) {
                break;
            }
            if let Some(done) = self.queue.complete(true).map_err(self.store.io("read", 0))? {
                self.settle(done)?;
            }
        }
        let run = &self.runs[0];
        let at = run.items[self.item].0;
        let RunState::Done(buf) = &run.state else {
            unreachable!("the loop above ends with a finished run")
        };
        let r = f(
            run.start + at,
            &buf[at as usize * BLOCK..(at as usize + 1) * BLOCK],
            false,
        );
        self.item += 1;
        self.pending -= 1;
        Ok(r)
    }

    fn next_cached<R>(&mut self, f: impl FnOnce(u32, &[u8], bool) -> R) -> Result<R> {
        self.pump(false)?;
        let (block, sum) = (self.runs[0].start, self.runs[0].items[0].1);
        self.item += 1;
        self.pending -= 1;
        let mut f = Some(f);
        let mut run = |bytes: &[u8], cached| (f.take().expect("called once"))(block, bytes, cached);
        if let Some(r) = self.store.pool.with(block, |bytes| run(bytes, true)) {
            count(&self.store.counters.hits, 1);
            return Ok(r);
        }
        // Evicted since.
        let mut buf = self.buffer(0);
        self.store.read(block, &mut buf)?;
        self.store.check_extent(block, sum, &buf)?;
        let r = run(&buf, false);
        self.keep(buf);
        Ok(r)
    }

    fn retire(&mut self) {
        if let Some(ReadRun {
            state: RunState::Done(buf),
            ..
        }) = self.runs.pop_front()
        {
            self.held -= buf.blocks();
            self.keep(buf);
        }
        self.first += 1;
        self.unsent = self.unsent.saturating_sub(1);
        self.item = 0;
    }
}

/// Gathers new extents and nodes into large writes.
pub struct Gather {
    queue: Box<dyn Queue>,
    run: Run,
    filled: u32,
    buf: Option<AlignedBuf>,
    spare: Vec<AlignedBuf>,
    run_blocks: u32,
    in_flight: usize,
}

/// Writes in flight.
const WRITES: usize = 4;

impl Gather {
    /// Writes in runs of up to `run_blocks` blocks; memory is five such runs.
    pub fn new(store: &Store, run_blocks: u32) -> Result<Self> {
        let queue = store.queue(WRITES)?;
        Ok(Self {
            queue,
            run: (0, 0),
            filled: 0,
            buf: None,
            spare: vec![],
            run_blocks,
            in_flight: 0,
        })
    }

    /// Bytes that gathering takes at most.
    pub fn memory(run_blocks: u32) -> usize {
        (WRITES + 1) * run_blocks as usize * BLOCK
    }

    /// Whether the next extent needs a new run.
    pub fn is_full(&self) -> bool {
        self.filled == self.run.1
    }

    /// Goes on in a run of blocks; what was gathered before is sent.
    pub fn begin(&mut self, run: Run) {
        (self.run, self.filled) = (run, 0);
    }

    /// Adds an extent; returns its block and checksum. `keep` puts it into the pool as well.
    pub fn put(
        &mut self,
        store: &Store,
        payload: &[u8],
        encoded: Encoded,
        fences: (u64, u64),
        epoch: u64,
        keep: bool,
    ) -> (u32, u32) {
        let run_blocks = self.run_blocks as usize;
        let buf = self
            .buf
            .get_or_insert_with(|| self.spare.pop().unwrap_or_else(|| AlignedBuf::new(run_blocks)));
        let at = self.filled as usize * BLOCK;
        let bytes = &mut buf[at..at + BLOCK];
        let block = self.run.0 + self.filled;
        bytes[crate::codec::HEADER..crate::codec::HEADER + encoded.used]
            .copy_from_slice(&payload[..encoded.used]);
        let sum = seal(bytes, encoded, fences, epoch, block, store.file_id);
        if keep {
            store.pool.insert(block, bytes);
        } else {
            store.pool.remove(block);
        }
        self.filled += 1;
        (block, sum)
    }

    /// Sends what was gathered.
    pub fn send(&mut self, store: &Store) -> Result<()> {
        let Some(buf) = self.buf.take() else { return Ok(()) };
        while self.in_flight >= WRITES {
            self.reap(store)?;
        }
        let offset = u64::from(self.run.0) * BLOCK as u64;
        let len = self.filled as usize * BLOCK;
        count(&store.counters.writes, 1);
        count(&store.counters.written_bytes, len as u64);
        self.in_flight += 1;
        let request = Request {
            tag: offset,
            kind: Kind::Write,
            offset,
            len,
            buf,
        };
        self.queue.submit(request).map_err(store.io("write", offset))
    }

    fn reap(&mut self, store: &Store) -> Result<()> {
        let Some(done) = self.queue.complete(true).map_err(store.io("write", 0))? else {
            self.in_flight = 0;
            return Ok(());
        };
        self.in_flight -= 1;
        self.spare.push(done.buf);
        done.result.map_err(store.io("write", done.tag))
    }

    /// Sends the rest and waits for all; returns the part of the last run that was not used.
    pub fn finish(&mut self, store: &Store) -> Result<Option<Run>> {
        self.send(store)?;
        while self.in_flight > 0 {
            self.reap(store)?;
        }
        let rest = (self.run.0 + self.filled, self.run.1 - self.filled);
        (self.run, self.filled) = ((0, 0), 0);
        Ok((rest.1 > 0).then_some(rest))
    }
}
