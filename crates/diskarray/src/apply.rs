//! Sorted batches: each touched extent is read once, merged with its operations and written to a new place.
//!
//! Work goes leaf by leaf of the directory, with reads ahead and writes behind. Where a batch touches a large share of a leaf's extents
//! ([`Device::regroup_share`](crate::Device::regroup_share)) all of them are rewritten as one stream: it costs no more than the scattered reads, and puts key order back on disk.
//! Elsewhere each extent stands for itself: it splits evenly when it overflows, and takes in its right neighbour when removals leave it
//! under 35 %.

use crate::codec::{Encoded, Encoding, Page, Rows, bitmap};
use crate::core::Core;
use crate::error::Result;
use crate::node::{CHANGED, Entry, NOWHERE};
use crate::store::Store;
use crate::transfer::ReadAhead;
use crate::tree::range_of;
use std::collections::VecDeque;

/// One operation of a batch; its value lies at `seq` in the batch's values. Twelve bytes: batches are most of what a caller holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, packed(4))]
pub struct Op {
    pub key: u64,
    /// Place in the batch; the high bit is set for a removal.
    pub seq: u32,
}

/// Set in [`Op::seq`] for a removal.
pub const REMOVE: u32 = 1 << 31;

/// What a batch did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Applied {
    /// Keys that were not there before.
    pub inserted: u64,
    /// Keys that were there and got a value.
    pub replaced: u64,
    /// Keys taken out.
    pub removed: u64,
    /// Removals of keys that were not there.
    pub absent: u64,
}

impl Applied {
    /// The count of operations that found the key, or not, and put or remove it.
    fn outcome(&mut self, known: bool, remove: bool) -> &mut u64 {
        match (known, remove) {
            (false, false) => &mut self.inserted,
            (true, false) => &mut self.replaced,
            (true, true) => &mut self.removed,
            (false, true) => &mut self.absent,
        }
    }
}

/// Called with the place of an operation in its batch and the value before it.
pub type OnOld<'f> = &'f mut dyn FnMut(u32, Option<&[u8]>);

/// Bytes of payload that new extents are filled to. Tests use small extents, to get deep trees from few keys.
pub const CAPACITY: usize = if cfg!(test) { 600 } else { crate::codec::PAYLOAD };
/// An extent is joined with its neighbour below this many bytes of payload.
const SHORT: usize = CAPACITY * 35 / 100;
/// Bytes of payload that a stream fills: room for later single insertions.
pub const FILL: usize = CAPACITY * 9 / 10;

struct Item {
    entry: Entry,
    low: u64,
    high: u64,
    ops: std::ops::Range<usize>,
}

/// The work on one leaf of the directory.
struct Chunk {
    high: u64,
    items: Vec<Item>,
    /// All extents of the leaf are rewritten together.
    stream: bool,
}

/// Where a batch stands in its planning.
struct Planner {
    next_op: usize,
    /// For writing changed extents: where the ranges of all of them start, and the range to look at next.
    starts: Vec<u64>,
    next_low: Option<u64>,
    share: f64,
    /// Everything below is planned already. Leaves may have been joined since, so a stream must not reach back.
    bound: u64,
}

impl Planner {
    fn next(&mut self, core: &Core, ops: &[Op], spill: bool) -> Result<Option<Chunk>> {
        let from = if spill {
            self.next_low.and_then(|low| {
                self.starts
                    .get(self.starts.partition_point(|&s| s < low))
                    .copied()
            })
        } else {
            ops.get(self.next_op).map(|op| op.key)
        };
        let Some(from) = from else { return Ok(None) };
        let spot = core.tree.find(&core.store, from)?;
        let (leaf, high) = (&spot.leaf, spot.leaf_high);
        let mut items = vec![];
        let item = |i: usize, ops: std::ops::Range<usize>| {
            let (low, high) = range_of(leaf, i, high);
            Item {
                entry: leaf.entry(i),
                low,
                high,
                ops,
            }
        };
        if spill {
            items.extend(
                (spot.i..leaf.len())
                    .filter(|&i| leaf.locs[i] & CHANGED != 0)
                    .map(|i| item(i, 0..0)),
            );
            self.next_low = high.checked_add(1);
        } else {
            let (mut at, mut i) = (self.next_op, spot.i);
            while at < ops.len() && ops[at].key <= high {
                // The next extent is often the next entry; else it is searched.
                if leaf.keys.get(i + 1).is_some_and(|&k| k <= ops[at].key) {
                    i += 1;
                    if leaf.keys.get(i + 1).is_some_and(|&k| k <= ops[at].key) {
                        i = leaf.find(ops[at].key);
                    }
                }
                let start = at;
                let last = range_of(leaf, i, high).1;
                while at < ops.len() && ops[at].key <= last {
                    at += 1;
                }
                items.push(item(i, start..at));
            }
            self.next_op = at;
        }
        let first = leaf.keys.partition_point(|&k| k < self.bound);
        self.bound = high.saturating_add(1);
        let within = leaf.len() - first;
        let stream = within > 2 && items.len() as f64 >= self.share * within as f64;
        if stream && items.len() < within {
            let mut touched = items.into_iter().peekable();
            items = (first..leaf.len())
                .map(|i| match touched.next_if(|t| t.low == leaf.keys[i]) {
                    Some(t) => t,
                    None => item(i, 0..0),
                })
                .collect();
        }
        Ok(Some(Chunk { high, items, stream }))
    }
}

/// Rows on their way out, and the range they cover so far.
#[derive(Default)]
pub(crate) struct Out {
    pub rows: Rows,
    /// Rows before this one are written.
    at: usize,
    low: u64,
    pub entries: Vec<Entry>,
    payload: Vec<u8>,
    /// Rows of the last extent, to guess when the next is full.
    pub typical: usize,
    /// Whether new extents go to the pool.
    keep: bool,
}

/// State of one batch.
struct Batch<'b> {
    ops: &'b [Op],
    vals: &'b [u8],
    on_old: Option<OnOld<'b>>,
    applied: Applied,
    source: Rows,
    out: Out,
}

impl Core {
    /// Applies operations sorted by key, and by place in the batch among equal keys. Without operations writes all changed extents.
    /// The result is part of the next commit.
    pub(crate) fn apply_sorted<'b>(
        &mut self,
        ops: &'b [Op],
        vals: &'b [u8],
        on_old: Option<OnOld<'b>>,
    ) -> Result<Applied> {
        let store = self.store.clone();
        let mut ahead = ReadAhead::new(&store)?;
        let mut planner = Planner {
            next_op: 0,
            starts: if ops.is_empty() {
                self.dirty.starts()
            } else {
                vec![]
            },
            next_low: Some(0),
            share: self.device(ops.len()).regroup_share(),
            bound: 0,
        };
        let out = Out::new();
        let mut batch = Batch {
            ops,
            vals,
            on_old,
            applied: Applied::default(),
            source: Rows::default(),
            out,
        };
        let mut chunks: VecDeque<Chunk> = VecDeque::new();
        let (mut planned, mut done) = (true, 0);
        loop {
            // At least two leaves ahead, so that reading does not pause between them.
            while planned
                && (chunks.len() < 2 || (ahead.pending() < store.window && chunks.len() < store.window))
            {
                match planner.next(self, ops, ops.is_empty())? {
                    Some(chunk) => {
                        for item in &chunk.items {
                            if item.entry.loc != NOWHERE && item.entry.loc & CHANGED == 0 {
                                ahead.enqueue(item.entry.loc, item.entry.sum);
                            }
                        }
                        chunks.push_back(chunk);
                    }
                    None => planned = false,
                }
            }
            let Some(chunk) = chunks.pop_front() else { break };
            self.process(&mut batch, &mut ahead, chunk)?;
            done += 1;
            if done % 16 == 0 {
                self.relieve_directory()?;
                self.rebudget();
            }
        }
        self.finish_writes()?;
        self.relieve_directory()?;
        self.rebudget();
        Ok(batch.applied)
    }

    /// Writes changed nodes and lets go of them when the directory outgrows its share of the budget.
    fn relieve_directory(&mut self) -> Result<()> {
        if self.tree.footprint().bytes > self.budget.directory {
            self.settle_nodes()?;
            self.nodes_settled = true;
            self.tree.unpin(self.budget.directory * 3 / 4);
        }
        Ok(())
    }

    /// Takes the rows of an extent into `batch.source`. With `alone` a bitmap that reaches all its operations goes to `batch.out.payload` as it is; its
    /// number of keys is returned.
    fn take_source(
        &mut self,
        batch: &mut Batch<'_>,
        ahead: &mut ReadAhead<'_>,
        item: &Item,
        alone: bool,
    ) -> Result<Option<usize>> {
        batch.source.clear();
        let entry = &item.entry;
        if entry.loc == NOWHERE {
            return Ok(None);
        }
        let ops = if alone {
            Some(&batch.ops[item.ops.clone()])
        } else {
            None
        };
        if entry.loc & CHANGED != 0 {
            batch.out.keep = true;
            let slot = entry.loc & !CHANGED;
            let bits = ops.and_then(|ops| take_bitmap(&self.dirty.page(slot), ops, &mut batch.out.payload));
            match bits {
                Some(_) => self.dirty.forget(slot),
                None => self.dirty.take(slot, &mut batch.source),
            };
            return Ok(bits);
        }
        let store: &Store = &self.store;
        let bits = ahead.next(|block, bytes, _| {
            let page = store.page(block, bytes)?;
            let bits = ops.and_then(|ops| take_bitmap(&page, ops, &mut batch.out.payload));
            if bits.is_none() {
                let decoded = page.decode(&mut batch.source);
                decoded.map_err(|why| store.corrupt(block, why))?;
            }
            Ok(bits)
        })??;
        batch.out.keep = self.store.pool.remove(entry.loc);
        self.space.free((entry.loc, 1));
        Ok(bits)
    }

    /// Changes the bitmap in `batch.out.payload` and writes it, if it is worth one still; else its rows are in `batch.source` after that.
    fn write_bitmap(&mut self, batch: &mut Batch<'_>, item: &Item, count: usize) -> Result<bool> {
        let count = batch.change_bitmap(item.ops.clone(), count);
        let payload = &batch.out.payload;
        let Some(e) = bitmap::finish(payload, count).filter(|e| e.used >= SHORT) else {
            let page = Page::of_bitmap(&self.store.shape, payload, count);
            let decoded = page.decode(&mut batch.source);
            decoded.map_err(|why| self.store.corrupt(item.entry.loc, why))?;
            return Ok(false);
        };
        self.emit(&mut batch.out, e, item.high)?;
        Ok(true)
    }

    fn process(&mut self, batch: &mut Batch<'_>, ahead: &mut ReadAhead<'_>, chunk: Chunk) -> Result<()> {
        let w = self.store.shape.width;
        let first = &chunk.items[0];
        let (leaf_low, leaf_high) = (first.low, chunk.high);
        batch.out.low = first.low;
        let last = chunk.items.len() - 1;
        // Rows of so many bytes may be short once they are encoded.
        let scarce = if self.encoding() == Encoding::Raw {
            SHORT
        } else {
            4 * SHORT
        };
        for (i, item) in chunk.items.iter().enumerate() {
            let removed = batch.applied.removed;
            let alone = batch.out.waiting() == 0;
            let bits = self.take_source(batch, ahead, item, alone)?;
            if let Some(count) = bits
                && self.write_bitmap(batch, item, count)?
            {
                if !chunk.stream {
                    self.replace_range(&mut batch.out, item.low, item.high)?;
                    batch.out.low = chunk.items.get(i + 1).map_or(0, |next| next.low);
                }
                continue;
            }
            let old_last = batch.source.keys.last().copied();
            batch.merge(if bits.is_some() { 0..0 } else { item.ops.clone() }, w);
            if chunk.stream {
                if batch.out.waiting() > 2 * batch.out.typical.max(32) {
                    self.write_full(&mut batch.out, FILL)?;
                }
                continue;
            }
            let mut high = item.high;
            // Removals one by one are not seen here when their extent is written, so few rows are a hint too.
            let few = batch.ops.is_empty() && batch.out.waiting() * (8 + w) < scarce;
            if batch.applied.removed > removed || few {
                let e = self.encode(&mut batch.out, CAPACITY);
                if e.count == batch.out.waiting() && e.used < SHORT {
                    if i < last && chunk.items[i + 1].low == high.wrapping_add(1) {
                        continue;
                    }
                    if let Some(end) = self.take_neighbour(batch, high, leaf_high)? {
                        high = end;
                    }
                }
            }
            // Growth at the end of all keys leaves full extents behind.
            let new_last = batch.out.rows.keys.last().copied();
            let ascending = high == u64::MAX && !item.ops.is_empty() && old_last < new_last && {
                let first_op = batch.ops[item.ops.start].key;
                old_last.is_none_or(|old| first_op > old)
            };
            let low = batch.out.low;
            if ascending {
                self.write_full(&mut batch.out, FILL)?;
            }
            self.write_rest(&mut batch.out, high)?;
            self.replace_range(&mut batch.out, low, high)?;
            batch.out.low = chunk.items.get(i + 1).map_or(0, |next| next.low);
        }
        if chunk.stream {
            let covered = !batch.out.entries.is_empty() && batch.out.low == leaf_high.wrapping_add(1);
            if !covered {
                self.write_full(&mut batch.out, FILL)?;
                self.write_rest(&mut batch.out, leaf_high)?;
            }
            self.replace_range(&mut batch.out, leaf_low, leaf_high)?;
        }
        Ok(())
    }

    /// Joins the untouched extent behind `high`, if it hangs on the same leaf; returns where it ends.
    fn take_neighbour(&mut self, batch: &mut Batch<'_>, high: u64, leaf_high: u64) -> Result<Option<u64>> {
        if high >= leaf_high {
            return Ok(None);
        }
        let spot = self.tree.find(&self.store, high + 1)?;
        let (e, range) = (spot.entry(), spot.range());
        if e.loc & CHANGED != 0 {
            return Ok(None);
        }
        // An operation of this batch may still come for it.
        let next = batch.ops.partition_point(|op| op.key < range.0);
        if batch.ops.get(next).is_some_and(|op| op.key <= range.1) {
            return Ok(None);
        }
        self.view().rows(&e, &mut batch.out.rows)?;
        if e.loc != NOWHERE {
            self.store.pool.remove(e.loc);
            self.space.free((e.loc, 1));
        }
        Ok(Some(range.1))
    }

    /// Hangs the new extents of a range into the directory.
    fn replace_range(&mut self, out: &mut Out, low: u64, high: u64) -> Result<()> {
        self.tree
            .replace(&self.store, low, high, &out.entries, &mut self.freed_nodes)?;
        self.touched.add(low, high);
        out.entries.clear();
        out.rows.clear();
        out.at = 0;
        Ok(())
    }

    fn encode(&mut self, out: &mut Out, limit: usize) -> Encoded {
        let w = self.store.shape.width;
        self.encoder.encode(
            &out.rows.keys[out.at..],
            &out.rows.vals[out.at * w..],
            limit,
            &mut out.payload,
        )
    }

    /// Writes the extent in `out.payload`, whose range ends at `high`.
    pub(crate) fn put_extent(
        &mut self,
        payload: &[u8],
        e: Encoded,
        fences: (u64, u64),
        keep: bool,
    ) -> Result<Entry> {
        if self.gather.is_full() {
            self.gather.send(&self.store)?;
            let run = self.allocate(1, self.budget.run_blocks)?;
            self.gather.begin(run);
        }
        let (block, sum) = self
            .gather
            .put(&self.store, payload, e, fences, self.epoch + 1, keep);
        Ok(Entry {
            key: fences.0,
            count: e.count as u64,
            loc: block,
            sum,
        })
    }

    /// Writes the extent in `out.payload` for the keys up to `high`.
    fn emit(&mut self, out: &mut Out, e: Encoded, high: u64) -> Result<()> {
        let entry = self.put_extent(&out.payload, e, (out.low, high), out.keep)?;
        out.entries.push(entry);
        out.low = high.wrapping_add(1);
        Ok(())
    }

    /// As [`emit`](Self::emit), for rows that were waiting.
    fn write_one(&mut self, out: &mut Out, e: Encoded, high: u64) -> Result<()> {
        self.emit(out, e, high)?;
        out.typical = e.count;
        out.at += e.count;
        Ok(())
    }

    /// Writes extents filled to `limit` bytes while there is more than one extent's worth.
    pub(crate) fn write_full(&mut self, out: &mut Out, limit: usize) -> Result<()> {
        while out.waiting() > 0 {
            let e = self.encode(out, limit);
            // The rest may fit a last extent, or would make a lopsided pair.
            if out.waiting() <= e.count || out.waiting() < e.count + e.count / 2 {
                break;
            }
            let next = out.rows.keys[out.at + e.count];
            self.write_one(out, e, next - 1)?;
        }
        out.compact(self.store.shape.width);
        Ok(())
    }

    /// Writes what is left, in extents of about equal length, the last up to `high`.
    pub(crate) fn write_rest(&mut self, out: &mut Out, high: u64) -> Result<()> {
        let e = self.encode(out, CAPACITY);
        if e.count == out.waiting() {
            return self.write_one(out, e, high);
        }
        let w = self.store.shape.width;
        let mut parts = out.waiting().div_ceil(e.count).max(2);
        while out.waiting() > 0 {
            let take = out.waiting().div_ceil(parts.max(1));
            let keys = &out.rows.keys[out.at..out.at + take];
            let e = self
                .encoder
                .encode(keys, &out.rows.vals[out.at * w..], CAPACITY, &mut out.payload);
            parts = parts.saturating_sub(1);
            let end = out.rows.keys.get(out.at + e.count).map_or(high, |next| next - 1);
            self.write_one(out, e, end)?;
        }
        Ok(())
    }
}

impl Out {
    pub fn new() -> Self {
        Self {
            payload: vec![0; CAPACITY],
            ..Self::default()
        }
    }

    pub fn waiting(&self) -> usize {
        self.rows.keys.len() - self.at
    }

    /// Forgets rows that are written.
    fn compact(&mut self, w: usize) {
        self.rows.keys.drain(..self.at);
        self.rows.vals.drain(..self.at * w);
        self.at = 0;
    }
}

/// Copies a bitmap that reaches all operations; returns its number of keys.
fn take_bitmap(page: &Page<'_>, ops: &[Op], payload: &mut [u8]) -> Option<usize> {
    page.bitmap()?;
    bitmap::copy(page, payload)?;
    let reached = |op: Option<&Op>| op.is_none_or(|op| bitmap::place(payload, op.key).is_some());
    (reached(ops.first()) && reached(ops.last())).then(|| page.count())
}

impl Batch<'_> {
    /// Applies operations to the bitmap of `count` keys in `out.payload`; returns its new number of keys.
    fn change_bitmap(&mut self, ops: std::ops::Range<usize>, mut count: usize) -> usize {
        for op in &self.ops[ops] {
            let payload = &mut self.out.payload;
            let bit = bitmap::place(payload, op.key).expect("all operations are within reach");
            let (known, remove) = (bitmap::holds(payload, bit), op.seq & REMOVE != 0);
            if let Some(on_old) = &mut self.on_old {
                on_old(op.seq & !REMOVE, known.then_some(&[]));
            }
            *self.applied.outcome(known, remove) += 1;
            if known == remove {
                bitmap::flip(payload, bit);
                count = if remove { count - 1 } else { count + 1 };
            }
        }
        count
    }

    /// Merges the source extent with its operations, behind what `out` holds.
    fn merge(&mut self, ops: std::ops::Range<usize>, w: usize) {
        let Self {
            source,
            out,
            applied,
            on_old,
            ..
        } = self;
        let rows = &mut out.rows;
        let mut from = 0;
        let copy = |rows: &mut Rows, range: std::ops::Range<usize>| {
            rows.keys.extend_from_slice(&source.keys[range.clone()]);
            rows.vals
                .extend_from_slice(&source.vals[range.start * w..range.end * w]);
        };
        let mut ops = self.ops[ops].iter().peekable();
        while let Some(&first) = ops.peek() {
            let key = first.key;
            // Operations come in order, so the next place is near; a short gallop beats a search of all.
            let mut step = 8;
            let mut end = from;
            while end < source.keys.len() && source.keys[end] < key {
                end = (end + step).min(source.keys.len());
                step *= 2;
            }
            let to = from + source.keys[from..end].partition_point(|&k| k < key);
            copy(rows, from..to);
            let hit = source.keys.get(to) == Some(&key);
            let mut value = hit.then(|| &source.vals[to * w..to * w + w]);
            while let Some(op) = ops.next_if(|op| op.key == key) {
                let place = op.seq & !REMOVE;
                if let Some(on_old) = on_old {
                    on_old(place, value);
                }
                let remove = op.seq & REMOVE != 0;
                *applied.outcome(value.is_some(), remove) += 1;
                value = (!remove).then(|| &self.vals[place as usize * w..(place as usize + 1) * w]);
            }
            if let Some(value) = value {
                rows.keys.push(key);
                rows.vals.extend_from_slice(value);
            }
            from = to + usize::from(hit);
        }
        copy(rows, from..source.keys.len());
    }
}
