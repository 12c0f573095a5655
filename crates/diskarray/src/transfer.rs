//! Many requests in flight: reading extents ahead in a given order, and gathering new ones into large writes.

use crate::backend::{AlignedBuf, BLOCK, Completion, Kind, Queue, Request};
use crate::codec::{Encoded, seal};
use crate::error::Result;
use crate::space::Run;
use crate::store::{Store, count};
use std::collections::VecDeque;

/// Most blocks of one read.
const READ_RUN: u32 = 64;
/// Unwanted blocks that a read takes along rather than being cut: reading on is cheaper than a second request.
const READ_GAP: u32 = 3;

/// Buffers to be used again, by size: powers of two, in blocks.
#[derive(Default)]
struct Spares {
    by_size: Vec<Vec<AlignedBuf>>,
    blocks: usize,
}

impl Spares {
    /// A buffer of `blocks` or more.
    fn take(&mut self, blocks: usize) -> AlignedBuf {
        let size = blocks.next_power_of_two();
        match self.by_size.get_mut(size.ilog2() as usize).and_then(Vec::pop) {
            Some(buf) => {
                self.blocks -= AlignedBuf::footprint(size);
                buf
            }
            None => AlignedBuf::new(size),
        }
    }

    /// Keeps a buffer, unless spare ones would be more than `most` blocks.
    fn keep(&mut self, buf: AlignedBuf, most: usize) {
        let size = AlignedBuf::footprint(buf.blocks());
        if self.blocks + size > most {
            return;
        }
        let class = buf.blocks().ilog2() as usize;
        if self.by_size.len() <= class {
            self.by_size.resize_with(class + 1, Vec::new);
        }
        self.blocks += size;
        self.by_size[class].push(buf);
    }
}

/// One read: wanted blocks that lie close together.
struct ReadRun {
    start: u32,
    blocks: u32,
    /// Wanted blocks, by distance from the start, with the checksum their parent has.
    wanted: Vec<(u32, u32)>,
    /// How many of them were not handed out.
    left: usize,
    state: RunState,
}

enum RunState {
    Queued,
    InFlight,
    Done(AlignedBuf),
    /// All was handed out.
    Retired,
}

/// An extent of the order.
struct Item {
    block: u32,
    sum: u32,
    source: Source,
}

enum Source {
    /// In the pool when it was enqueued.
    Pool,
    /// In the group that is still open.
    Group,
    /// Number of the run that brings it.
    Run(u64),
}

/// Reads extents in a given order, many requests at a time. They are read a group at a time in the order of the file, those close together in one request:
/// scattered changes leave neighbours in the order of keys in a few places, in each of which they lie side by side.
pub struct ReadAhead<'s> {
    store: &'s Store,
    queue: Box<dyn Queue>,
    items: VecDeque<Item>,
    /// Enqueued extents that are not in runs yet: block, and number of the item.
    group: Vec<(u32, u64)>,
    /// Number of the first of `items`.
    first_item: u64,
    /// By the first item that needs them.
    runs: VecDeque<ReadRun>,
    /// Number of the first run, for tags.
    first: u64,
    /// First run that was not submitted yet, as an index into `runs`.
    unsent: usize,
    /// Blocks of buffers that are in flight or read and not handed out.
    held: usize,
    spares: Spares,
}

impl<'s> ReadAhead<'s> {
    pub fn new(store: &'s Store) -> Result<Self> {
        Ok(Self {
            store,
            queue: store.queue(store.depth)?,
            items: VecDeque::new(),
            group: vec![],
            first_item: 0,
            runs: VecDeque::new(),
            first: 0,
            unsent: 0,
            held: 0,
            spares: Spares::default(),
        })
    }

    /// Extents enqueued and not yet handed out.
    pub fn pending(&self) -> usize {
        self.items.len()
    }

    /// Adds an extent to the end of the order.
    pub fn enqueue(&mut self, block: u32, sum: u32) {
        let source = if self.store.pool.touch(block) {
            Source::Pool
        } else {
            self.group
                .push((block, self.first_item + self.items.len() as u64));
            Source::Group
        };
        self.items.push_back(Item { block, sum, source });
        // Reading all of a group takes at most `READ_GAP + 1` blocks an extent, and buffers of up to twice that.
        if self.group.len() >= self.store.window / (READ_GAP as usize + 1) {
            self.close_group();
        }
    }

    /// Cuts the group into runs.
    fn close_group(&mut self) {
        let mut group = std::mem::take(&mut self.group);
        group.sort_unstable();
        let mut runs: Vec<(u64, ReadRun, Vec<u64>)> = vec![];
        for (block, number) in group.drain(..) {
            let sum = self.items[(number - self.first_item) as usize].sum;
            if let Some((first, run, numbers)) = runs.last_mut()
                && block <= run.start + run.blocks + READ_GAP
                && block - run.start < READ_RUN
            {
                run.blocks = block - run.start + 1;
                run.wanted.push((block - run.start, sum));
                run.left += 1;
                *first = number.min(*first);
                numbers.push(number);
                continue;
            }
            let run = ReadRun {
                start: block,
                blocks: 1,
                wanted: vec![(0, sum)],
                left: 1,
                state: RunState::Queued,
            };
            runs.push((number, run, vec![number]));
        }
        self.group = group;
        runs.sort_unstable_by_key(|(first, ..)| *first);
        for (_, run, numbers) in runs {
            let place = self.first + self.runs.len() as u64;
            for number in numbers {
                self.items[(number - self.first_item) as usize].source = Source::Run(place);
            }
            self.runs.push_back(run);
        }
    }

    fn keep(&mut self, buf: AlignedBuf) {
        self.spares.keep(buf, self.store.window.saturating_sub(self.held));
    }

    /// Starts reads up to the queue's depth, while there is memory for them or `needed`, an index into the runs, is not under way.
    fn pump(&mut self, needed: usize) -> Result<()> {
        while self.unsent < self.runs.len()
            && self.queue.in_flight() < self.store.depth
            && (self.held < self.store.window || self.unsent <= needed)
        {
            let i = self.unsent;
            self.unsent += 1;
            let run = &mut self.runs[i];
            let buf = self.spares.take(run.blocks as usize);
            self.held += AlignedBuf::footprint(buf.blocks());
            run.state = RunState::InFlight;
            let (offset, len) = (u64::from(run.start) * BLOCK as u64, run.blocks as usize * BLOCK);
            self.store.count_read(len);
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
        for &(at, sum) in &run.wanted {
            let bytes = &done.buf[at as usize * BLOCK..(at as usize + 1) * BLOCK];
            self.store.check_extent(start + at, sum, bytes)?;
        }
        run.state = RunState::Done(done.buf);
        Ok(())
    }

    /// Runs `f` on the next extent of the order; its last argument tells that the pool has it, and is locked.
    pub fn next<R>(&mut self, f: impl FnOnce(u32, &[u8], bool) -> R) -> Result<R> {
        if let Some(Item {
            source: Source::Group,
            ..
        }) = self.items.front()
        {
            self.close_group();
        }
        let Some(Item { block, sum, source }) = self.items.pop_front() else {
            return Err(self.store.corrupt(0, "read order exhausted"));
        };
        self.first_item += 1;
        match source {
            Source::Run(number) => self.next_read(number, block, f),
            Source::Pool | Source::Group => self.next_cached(block, sum, f),
        }
    }

    fn next_read<R>(&mut self, number: u64, block: u32, f: impl FnOnce(u32, &[u8], bool) -> R) -> Result<R> {
        let i = (number - self.first) as usize;
        loop {
            self.pump(i)?;
            if let RunState::Done(buf) = &self.runs[i].state {
                let at = (block - self.runs[i].start) as usize * BLOCK;
                let r = f(block, &buf[at..at + BLOCK], false);
                self.hand_out(i);
                return Ok(r);
            }
            let done = self.queue.complete(true).map_err(self.store.io("read", 0))?;
            let lost = || self.store.corrupt(block, "a read did not come back");
            self.settle(done.ok_or_else(lost)?)?;
        }
    }

    /// One extent less is wanted of a run.
    fn hand_out(&mut self, i: usize) {
        let run = &mut self.runs[i];
        run.left -= 1;
        if run.left > 0 {
            return;
        }
        if let RunState::Done(buf) = std::mem::replace(&mut run.state, RunState::Retired) {
            self.held -= AlignedBuf::footprint(buf.blocks());
            self.keep(buf);
        }
        while matches!(self.runs.front().map(|run| &run.state), Some(RunState::Retired)) {
            self.runs.pop_front();
            self.first += 1;
            self.unsent -= 1;
        }
    }

    fn next_cached<R>(&mut self, block: u32, sum: u32, f: impl FnOnce(u32, &[u8], bool) -> R) -> Result<R> {
        self.pump(0)?;
        let mut f = Some(f);
        let mut run = |bytes: &[u8], cached| (f.take().expect("called once"))(block, bytes, cached);
        if let Some(r) = self.store.pool.with(block, |bytes| run(bytes, true)) {
            count(&self.store.counters.hits, 1);
            return Ok(r);
        }
        // Evicted since.
        let mut buf = self.spares.take(1);
        self.store.read(block, &mut buf)?;
        self.store.check_extent(block, sum, &buf)?;
        let r = run(&buf, false);
        self.keep(buf);
        Ok(r)
    }
}

/// Gathers new extents into large writes. Where free space is in pieces the writes are short, and more of them are in flight.
pub struct Gather {
    queue: Box<dyn Queue>,
    run: Run,
    filled: u32,
    buf: Option<AlignedBuf>,
    spares: Spares,
    run_blocks: u32,
    /// Requests in flight, and the blocks of their buffers.
    in_flight: usize,
    held: usize,
}

/// Writes of full length in flight.
const WRITES: usize = 4;

impl Gather {
    /// Writes in runs of up to `run_blocks` blocks; memory is five such runs.
    pub fn new(store: &Store, run_blocks: u32) -> Result<Self> {
        Ok(Self {
            queue: store.queue(store.depth)?,
            run: (0, 0),
            filled: 0,
            buf: None,
            spares: Spares::default(),
            run_blocks,
            in_flight: 0,
            held: 0,
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

    /// Adds an extent; returns its block and checksum. `keep` puts it into the pool as well; else it goes there
    /// if there is room.
    pub fn put(
        &mut self,
        store: &Store,
        payload: &[u8],
        encoded: Encoded,
        fences: (u64, u64),
        epoch: u64,
        keep: bool,
    ) -> (u32, u32) {
        let buf = self
            .buf
            .get_or_insert_with(|| self.spares.take(self.run.1 as usize));
        let at = self.filled as usize * BLOCK;
        let bytes = &mut buf[at..at + BLOCK];
        let block = self.run.0 + self.filled;
        bytes[crate::codec::HEADER..crate::codec::HEADER + encoded.used]
            .copy_from_slice(&payload[..encoded.used]);
        let sum = seal(bytes, encoded, fences, epoch, block, store.file_id);
        if keep {
            store.pool.insert(block, bytes);
        } else {
            store.pool.offer(block, bytes);
        }
        self.filled += 1;
        (block, sum)
    }

    /// Sends what was gathered.
    pub fn send(&mut self, store: &Store) -> Result<()> {
        let Some(buf) = self.buf.take() else { return Ok(()) };
        while self.in_flight >= store.depth
            || (self.in_flight > 0
                && self.held + AlignedBuf::footprint(buf.blocks()) > WRITES * self.run_blocks as usize)
        {
            self.reap(store)?;
        }
        let offset = u64::from(self.run.0) * BLOCK as u64;
        let len = self.filled as usize * BLOCK;
        count(&store.counters.writes, 1);
        count(&store.counters.written_bytes, len as u64);
        self.in_flight += 1;
        self.held += AlignedBuf::footprint(buf.blocks());
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
            (self.in_flight, self.held) = (0, 0);
            return Ok(());
        };
        self.in_flight -= 1;
        self.held -= AlignedBuf::footprint(done.buf.blocks());
        let room = (WRITES * self.run_blocks as usize).saturating_sub(self.held);
        self.spares.keep(done.buf, room);
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
