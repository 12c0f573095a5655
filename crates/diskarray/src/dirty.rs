//! Extents that are changed in memory and not yet written.
//!
//! Their rows lie in slabs of equal chunks, one chunk an extent: keys first, then values. Slabs are mappings of their own, so what the
//! account says is what the process holds, and memory that writing them sets free is at once the pool's. Chunks come in four sizes
//! for each doubling, so about a tenth of them is empty. A bitmap stays one: its chunk is a payload, and a change is a bit of it.

use crate::apply::CAPACITY;
use crate::buf::{AlignedBuf, BLOCK, HUGE, prefetch};
use crate::codec::{Page, Rows, bitmap};
use crate::value::Shape;

/// Smallest chunk in bytes.
const LEAST: usize = 512;
/// Sizes up to 16 MiB.
const CLASSES: usize = 61;

/// Bytes of a chunk of a class: 512 * {4, 5, 6, 7} / 4, and so on at each doubling.
fn class_bytes(class: usize) -> usize {
    (LEAST << (class / 4)) / 4 * (4 + class % 4)
}

fn class_for(bytes: usize) -> usize {
    let doubling = (bytes.max(LEAST) / LEAST).ilog2() as usize;
    (4 * doubling..)
        .find(|&c| class_bytes(c) >= bytes)
        .expect("sizes grow without end")
}

#[derive(Clone, Copy, Default)]
struct Chunk {
    slab: u32,
    /// Byte offset in the slab.
    at: u32,
    class: u8,
}

struct Slab {
    buf: AlignedBuf,
    free: Vec<u32>,
    used: u32,
}

/// Slabs of one class.
#[derive(Default)]
struct Class {
    slabs: Vec<Option<Slab>>,
    /// Slabs with free chunks, and some without.
    open: Vec<u32>,
    /// Numbers without a slab.
    gone: Vec<u32>,
}

/// One changed extent: where its rows are, and the range it answers for.
#[derive(Clone, Copy, Default)]
struct Slot {
    low: u64,
    high: u64,
    chunk: Chunk,
    len: u32,
    /// Rows that fit the chunk; 0 for a slot that is free.
    room: u32,
    /// The chunk is a bitmap.
    bits: bool,
}

/// All changed extents, by slot number.
pub struct Dirty {
    shape: Shape,
    slab_bytes: usize,
    slots: Vec<Slot>,
    free: Vec<u32>,
    classes: Vec<Class>,
    /// Bytes of slabs.
    slabs: usize,
}

impl Dirty {
    /// None so far, in a budget that decides about the size of slabs.
    pub fn new(shape: Shape, budget: usize) -> Self {
        Self {
            shape,
            slab_bytes: match budget >> 20 {
                0..256 => (budget / 256).clamp(64 << 10, 256 << 10) / BLOCK * BLOCK,
                _ => HUGE * BLOCK,
            },
            slots: vec![],
            free: vec![],
            classes: (0..CLASSES).map(|_| Class::default()).collect(),
            slabs: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Bytes held, and those that [`starts`](Self::starts) takes.
    pub fn memory(&self) -> usize {
        self.slabs + self.slots.capacity() * (size_of::<Slot>() + 8) + self.free.capacity() * 4
    }

    fn row(&self) -> usize {
        8 + self.shape.width
    }

    fn chunk(&mut self, bytes: usize) -> Chunk {
        let class = class_for(bytes);
        let size = class_bytes(class);
        let c = &mut self.classes[class];
        while let Some(&slab) = c.open.last() {
            if let Some(s) = &mut c.slabs[slab as usize]
                && let Some(at) = s.free.pop()
            {
                s.used += 1;
                return Chunk {
                    slab,
                    at,
                    class: class as u8,
                };
            }
            c.open.pop();
        }
        let buf = AlignedBuf::new(self.slab_bytes.max(size).div_ceil(BLOCK));
        self.slabs += buf.len();
        let n = (buf.len() / size) as u32;
        let slab = Slab {
            free: (1..n).rev().map(|i| i * size as u32).collect(),
            used: 1,
            buf,
        };
        let number = c.gone.pop().unwrap_or(c.slabs.len() as u32);
        if number as usize == c.slabs.len() {
            c.slabs.push(None);
        }
        c.slabs[number as usize] = Some(slab);
        c.open.push(number);
        Chunk {
            slab: number,
            at: 0,
            class: class as u8,
        }
    }

    fn give_back(&mut self, chunk: Chunk) {
        let c = &mut self.classes[usize::from(chunk.class)];
        let place = &mut c.slabs[chunk.slab as usize];
        let slab = place.as_mut().expect("chunks in use lie in slabs");
        slab.used -= 1;
        if slab.used == 0 {
            self.slabs -= slab.buf.len();
            *place = None;
            c.gone.push(chunk.slab);
            c.open.retain(|&s| s != chunk.slab);
        } else {
            if slab.free.is_empty() {
                c.open.push(chunk.slab);
            }
            slab.free.push(chunk.at);
        }
    }

    fn bytes(&self, chunk: Chunk) -> &[u8] {
        let slab = self.classes[usize::from(chunk.class)].slabs[chunk.slab as usize].as_ref();
        let at = chunk.at as usize;
        &slab.expect("chunks in use lie in slabs").buf[at..at + class_bytes(chunk.class.into())]
    }

    fn bytes_mut(&mut self, chunk: Chunk) -> &mut [u8] {
        let slab = self.classes[usize::from(chunk.class)].slabs[chunk.slab as usize].as_mut();
        let at = chunk.at as usize;
        &mut slab.expect("chunks in use lie in slabs").buf[at..at + class_bytes(chunk.class.into())]
    }

    /// Rows of a slot: the bytes of keys and of values, room included.
    #[inline]
    fn columns(&self, s: &Slot) -> (&[u8], &[u8]) {
        self.bytes(s.chunk).split_at(s.room as usize * 8)
    }

    /// Payload of a slot that is a bitmap, zeros behind it included.
    fn payload(&self, s: &Slot) -> &[u8] {
        &self.bytes(s.chunk)[..CAPACITY]
    }

    /// A slot as a readable extent.
    #[inline]
    pub fn page(&self, slot: u32) -> Page<'_> {
        let s = &self.slots[slot as usize];
        if s.bits {
            return Page::of_bitmap(&self.shape, self.payload(s), s.len as usize);
        }
        let (keys, vals) = self.columns(s);
        Page::of_rows(
            &self.shape,
            &keys.as_chunks().0[..s.len as usize],
            &vals[..s.len as usize * self.shape.width],
        )
    }

    /// Whether a slot is a bitmap.
    pub fn is_bitmap(&self, slot: u32) -> bool {
        self.slots[slot as usize].bits
    }

    /// Range of keys that a slot answers for.
    pub fn range(&self, slot: u32) -> (u64, u64) {
        let s = &self.slots[slot as usize];
        (s.low, s.high)
    }

    /// The part of a slot's range in which it can take keys.
    pub fn reach(&self, slot: u32) -> (u64, u64) {
        let s = &self.slots[slot as usize];
        if !s.bits {
            return (s.low, s.high);
        }
        let (low, high) = bitmap::span(self.payload(s));
        (low.max(s.low), high.min(s.high))
    }

    /// Narrows the range of a slot.
    pub fn set_range(&mut self, slot: u32, (low, high): (u64, u64)) {
        let s = &mut self.slots[slot as usize];
        (s.low, s.high) = (low, high);
    }

    /// Asks for the cache lines around a row.
    #[inline]
    pub fn prefetch(&self, slot: u32, row: usize) {
        let s = &self.slots[slot as usize];
        let bytes = self.bytes(s.chunk);
        let at = row.saturating_sub(24) * 8;
        (0..8).for_each(|line| prefetch(bytes, at + 64 * line));
    }

    /// Room for `rows`, as large as its chunk allows.
    fn place(&mut self, rows: usize) -> (Chunk, u32) {
        let chunk = self.chunk(rows * self.row());
        (chunk, (class_bytes(chunk.class.into()) / self.row()) as u32)
    }

    fn put(&mut self, slot: Slot) -> u32 {
        match self.free.pop() {
            Some(n) => {
                self.slots[n as usize] = slot;
                n
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
        }
    }

    /// Takes rows in, with some room to grow.
    pub fn add(&mut self, low: u64, high: u64, keys: &[u64], vals: &[u8]) -> u32 {
        let (chunk, room) = self.place(keys.len() + 1);
        let (key_bytes, val_bytes) = self.bytes_mut(chunk).split_at_mut(room as usize * 8);
        for (to, key) in key_bytes.as_chunks_mut().0.iter_mut().zip(keys) {
            *to = key.to_le_bytes();
        }
        val_bytes[..vals.len()].copy_from_slice(vals);
        self.put(Slot {
            low,
            high,
            chunk,
            len: keys.len() as u32,
            room,
            bits: false,
        })
    }

    /// Takes an extent in as it is, if it is a bitmap.
    pub fn add_bitmap(&mut self, low: u64, high: u64, page: &Page<'_>) -> Option<u32> {
        page.bitmap()?;
        let chunk = self.chunk(CAPACITY);
        if bitmap::copy(page, &mut self.bytes_mut(chunk)[..CAPACITY]).is_none() {
            self.give_back(chunk);
            return None;
        }
        Some(self.put(Slot {
            low,
            high,
            chunk,
            len: page.count() as u32,
            room: 1,
            bits: true,
        }))
    }

    /// Sets or clears the bit of a key within the [`reach`](Self::reach) of a slot.
    fn flip(&mut self, slot: u32, key: u64) {
        let chunk = self.slots[slot as usize].chunk;
        let payload = &mut self.bytes_mut(chunk)[..CAPACITY];
        let bit = bitmap::place(payload, key).expect("the key is within reach");
        bitmap::flip(payload, bit);
    }

    /// Puts a row, which is new and within [`reach`](Self::reach), before the one at `at`; returns the number of rows.
    pub fn insert(&mut self, slot: u32, at: usize, key: u64, value: &[u8]) -> usize {
        if self.is_bitmap(slot) {
            self.flip(slot, key);
            self.slots[slot as usize].len += 1;
            return self.slots[slot as usize].len as usize;
        }
        if self.slots[slot as usize].len == self.slots[slot as usize].room {
            self.enlarge(slot);
        }
        let (w, s) = (self.shape.width, self.slots[slot as usize]);
        let (n, room) = (s.len as usize, s.room as usize);
        let (keys, vals) = self.bytes_mut(s.chunk).split_at_mut(room * 8);
        keys.copy_within(at * 8..n * 8, at * 8 + 8);
        keys[at * 8..at * 8 + 8].copy_from_slice(&key.to_le_bytes());
        vals.copy_within(at * w..n * w, at * w + w);
        vals[at * w..at * w + w].copy_from_slice(value);
        self.slots[slot as usize].len += 1;
        n + 1
    }

    /// Replaces the value of the row at `at`.
    pub fn set(&mut self, slot: u32, at: usize, value: &[u8]) {
        if self.is_bitmap(slot) {
            return;
        }
        let (w, s) = (self.shape.width, self.slots[slot as usize]);
        let from = s.room as usize * 8 + at * w;
        self.bytes_mut(s.chunk)[from..from + w].copy_from_slice(value);
    }

    /// Takes the row of `key`, at `at`, out; returns the number of rows.
    pub fn remove(&mut self, slot: u32, at: usize, key: u64) -> usize {
        if self.is_bitmap(slot) {
            self.flip(slot, key);
            self.slots[slot as usize].len -= 1;
            return self.slots[slot as usize].len as usize;
        }
        let (w, s) = (self.shape.width, self.slots[slot as usize]);
        let (n, room) = (s.len as usize, s.room as usize);
        let (keys, vals) = self.bytes_mut(s.chunk).split_at_mut(room * 8);
        keys.copy_within(at * 8 + 8..n * 8, at * 8);
        vals.copy_within(at * w + w..n * w, at * w);
        self.slots[slot as usize].len -= 1;
        n - 1
    }

    /// Moves a full slot to a chunk with an eighth more room.
    fn enlarge(&mut self, slot: u32) {
        let old = self.slots[slot as usize];
        let (n, w) = (old.len as usize, self.shape.width);
        let (chunk, room) = self.place(n + n / 8 + 1);
        let (old_room, new_room) = (old.room as usize, room as usize);
        // Keys and values are carried over a piece at a time, through a small buffer: two chunks of one table cannot be borrowed together.
        let mut piece = [0u8; 1024];
        for (from, to, len) in [(0, 0, n * 8), (old_room * 8, new_room * 8, n * w)] {
            let mut at = 0;
            while at < len {
                let step = piece.len().min(len - at);
                piece[..step].copy_from_slice(&self.bytes(old.chunk)[from + at..from + at + step]);
                self.bytes_mut(chunk)[to + at..to + at + step].copy_from_slice(&piece[..step]);
                at += step;
            }
        }
        self.give_back(old.chunk);
        let s = &mut self.slots[slot as usize];
        (s.chunk, s.room) = (chunk, room);
    }

    /// Takes a slot out and appends its rows to `rows`; returns its range.
    pub fn take(&mut self, slot: u32, rows: &mut Rows) -> (u64, u64) {
        self.page(slot).decode(rows).expect("changed rows are in order");
        self.forget(slot)
    }

    /// Takes a slot out; returns its range.
    pub fn forget(&mut self, slot: u32) -> (u64, u64) {
        let s = std::mem::take(&mut self.slots[slot as usize]);
        self.give_back(s.chunk);
        self.free.push(slot);
        if self.is_empty() {
            self.slots = vec![];
            self.free = vec![];
            for c in &mut self.classes {
                *c = Class::default();
            }
        }
        (s.low, s.high)
    }

    /// Where the ranges of all slots start, sorted.
    pub fn starts(&self) -> Vec<u64> {
        let mut starts: Vec<u64> = self.slots.iter().filter(|s| s.room > 0).map(|s| s.low).collect();
        starts.sort_unstable();
        starts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_fit_and_waste_little() {
        for bytes in (1..200_000).step_by(37) {
            let size = class_bytes(class_for(bytes));
            assert!(
                size >= bytes && (size == LEAST || size <= bytes * 5 / 4 + 128),
                "{bytes} {size}"
            );
        }
        assert!(class_for(16 << 20) < CLASSES);
    }

    #[test]
    fn rows_come_back_and_memory_goes() {
        let shape = Shape::new(&[3]).unwrap();
        let mut dirty = Dirty::new(shape, 4 << 20);
        type Row = (u64, [u8; 3]);
        let mut model: Vec<(u32, Vec<Row>)> = vec![];
        let mut seed = 5u64;
        for step in 0..60_000u64 {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let pick = (seed >> 33) as usize;
            let value = [step as u8, (step >> 8) as u8, 7];
            if model.len() < 40 {
                let rows: Vec<Row> = (0..pick as u64 % 300).map(|k| (k * 1000, value)).collect();
                let keys: Vec<u64> = rows.iter().map(|r| r.0).collect();
                let vals: Vec<u8> = rows.iter().flat_map(|r| r.1).collect();
                model.push((dirty.add(step, step + 1, &keys, &vals), rows));
                continue;
            }
            let n = model.len();
            let (slot, rows) = &mut model[pick % n];
            let at = rows.partition_point(|r| r.0 < seed >> 44);
            match seed >> 20 & 15 {
                0 => {
                    let (slot, rows) = model.swap_remove(pick % n);
                    let mut out = Rows::default();
                    dirty.take(slot, &mut out);
                    assert!(out.keys.iter().eq(rows.iter().map(|r| &r.0)));
                    assert!(out.vals.iter().eq(rows.iter().flat_map(|r| &r.1)));
                }
                1..5 if at < rows.len() => {
                    rows.remove(at);
                    assert_eq!(dirty.remove(*slot, at, 0), rows.len());
                }
                5 if at < rows.len() => {
                    rows[at].1 = value;
                    dirty.set(*slot, at, &value);
                }
                _ if rows.get(at).is_none_or(|r| r.0 != seed >> 44) => {
                    rows.insert(at, (seed >> 44, value));
                    assert_eq!(dirty.insert(*slot, at, seed >> 44, &value), rows.len());
                }
                _ => {}
            }
        }
        assert_eq!((dirty.len(), dirty.starts().len()), (model.len(), model.len()));
        for (slot, rows) in model {
            let mut out = Rows::default();
            dirty.take(slot, &mut out);
            assert!(out.keys.iter().eq(rows.iter().map(|r| &r.0)));
        }
        assert_eq!((dirty.memory(), dirty.len()), (0, 0));
    }
}
