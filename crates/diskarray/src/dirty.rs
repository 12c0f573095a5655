//! Extents that are changed in memory and not yet written.

use crate::codec::Rows;
use std::collections::BTreeMap;

/// Keys and values of one changed extent, and the range it answers for.
pub struct Slot {
    pub rows: Rows,
    pub low: u64,
    pub high: u64,
}

/// All changed extents, by slot number and by range.
#[derive(Default)]
pub struct Dirty {
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    by_low: BTreeMap<u64, u32>,
    spare: Vec<Rows>,
    /// Heap bytes of the rows.
    pub bytes: usize,
}

/// Rows kept for the next slot rather than freed.
const SPARE: usize = 64;
/// Bookkeeping of one slot.
const SLOT_BYTES: usize = size_of::<Slot>() + 64;

impl Dirty {
    pub fn is_empty(&self) -> bool {
        self.by_low.is_empty()
    }

    pub fn len(&self) -> usize {
        self.by_low.len()
    }

    pub fn get(&self, slot: u32) -> &Slot {
        self.slots[slot as usize]
            .as_ref()
            .expect("the directory names live slots only")
    }

    /// Empty rows to be filled and handed to [`add`](Self::add).
    pub fn rows(&mut self) -> Rows {
        self.spare.pop().unwrap_or_default()
    }

    pub fn add(&mut self, slot: Slot) -> u32 {
        self.bytes += slot.rows.memory() + SLOT_BYTES;
        let low = slot.low;
        let n = self.free.pop().unwrap_or(self.slots.len() as u32);
        if n as usize == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[n as usize] = Some(slot);
        self.by_low.insert(low, n);
        n
    }

    /// Changes the rows of a slot, keeping the account of memory.
    pub fn with<R>(&mut self, slot: u32, f: impl FnOnce(&mut Rows) -> R) -> R {
        let rows = &mut self.slots[slot as usize]
            .as_mut()
            .expect("the directory names live slots only")
            .rows;
        let before = rows.memory();
        let r = f(rows);
        self.bytes = self.bytes + rows.memory() - before;
        r
    }

    /// Takes a slot out.
    pub fn remove(&mut self, slot: u32) -> Slot {
        let taken = self.slots[slot as usize]
            .take()
            .expect("the directory names live slots only");
        self.by_low.remove(&taken.low);
        self.free.push(slot);
        self.bytes -= taken.rows.memory() + SLOT_BYTES;
        taken
    }

    /// Keeps the memory of rows that are done with.
    pub fn recycle(&mut self, mut rows: Rows) {
        if self.spare.len() < SPARE && rows.memory() < 64 << 10 {
            rows.clear();
            self.spare.push(rows);
        }
    }

    /// First slot whose range starts at or after `low`.
    pub fn next(&self, low: u64) -> Option<u64> {
        self.by_low.range(low..).next().map(|(&low, _)| low)
    }
}
