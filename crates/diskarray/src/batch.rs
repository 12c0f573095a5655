//! Operations gathered to be applied together.

use crate::apply::{Op, REMOVE};
use crate::value::Value;
use std::marker::PhantomData;

/// A batch of operations on a map, in the order given: of several operations on one key each sees the one before.
///
/// Takes 12 bytes an operation and the value, and is sorted in place. Batches of a thousand operations and more run at many times the speed of single ones, because
/// every extent is read and written once.
#[derive(Clone, Debug)]
pub struct Batch<V> {
    pub(crate) ops: Vec<Op>,
    pub(crate) vals: Vec<u8>,
    width: usize,
    sorted: bool,
    value: PhantomData<V>,
}

impl<V: Value> Default for Batch<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V: Value> Batch<V> {
    /// Most operations of a batch.
    pub const MOST: usize = (1 << 31) - 1;

    /// An empty batch.
    pub fn new() -> Self {
        let width = V::COLUMNS.iter().map(|&c| usize::from(c)).sum();
        Self {
            ops: vec![],
            vals: vec![],
            width,
            sorted: true,
            value: PhantomData,
        }
    }

    fn push(&mut self, key: u64, value: Option<&V>) {
        assert!(
            self.ops.len() < Self::MOST,
            "a batch holds at most 2^31 - 1 operations"
        );
        let flag = if value.is_none() { REMOVE } else { 0 };
        self.sorted &= self.ops.last().is_none_or(|last| last.key <= key);
        self.ops.push(Op {
            key,
            seq: self.ops.len() as u32 | flag,
        });
        let at = self.vals.len();
        self.vals.resize(at + self.width, 0);
        if let Some(value) = value {
            value.store(&mut self.vals[at..]);
        }
    }

    /// Inserts the key, or replaces its value.
    ///
    /// # Panics
    /// Beyond [`Self::MOST`] operations.
    pub fn put(&mut self, key: u64, value: V) {
        self.push(key, Some(&value));
    }

    /// Removes the key if it is there.
    ///
    /// # Panics
    /// Beyond [`Self::MOST`] operations.
    pub fn remove(&mut self, key: u64) {
        self.push(key, None);
    }

    /// Number of operations.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Forgets all operations and keeps the memory.
    pub fn clear(&mut self) {
        self.ops.clear();
        self.vals.clear();
        self.sorted = true;
    }

    /// Sorts by key, keeping the order among equal keys. O(n).
    pub(crate) fn sort(&mut self) {
        if !self.sorted {
            sort(&mut self.ops);
            self.sorted = true;
        }
    }
}

/// Sorts by key, and by place among equal keys, without a second copy: one pass puts every item into the bucket of its leading bits, and
/// each bucket, small enough for the cache, is sorted by itself.
pub(crate) fn sort(items: &mut [Op]) {
    let whole = |op: &Op| (op.key, op.seq & !REMOVE);
    let (all, any) = items
        .iter()
        .fold((u64::MAX, 0), |(all, any), op| (all & op.key, any | op.key));
    let width = 64 - (all ^ any).leading_zeros();
    if items.len() < 4096 || width == 0 {
        items.sort_unstable_by_key(whole);
        return;
    }
    let bits = width.min((items.len() / 256).ilog2().clamp(4, 12));
    let mask = (1usize << bits) - 1;
    let bucket = |op: &Op| (op.key >> (width - bits)) as usize & mask;
    let mut ends = vec![0usize; mask + 1];
    items.iter().for_each(|op| ends[bucket(op)] += 1);
    let mut sum = 0;
    for end in &mut ends {
        sum += *end;
        *end = sum;
    }
    let starts: Vec<usize> = std::iter::once(0).chain(ends.iter().copied()).collect();
    let mut next = starts.clone();
    for b in 0..=mask {
        while next[b] < ends[b] {
            // Carries items to their buckets until one for this place turns up.
            let mut item = items[next[b]];
            loop {
                let to = bucket(&item);
                std::mem::swap(&mut item, &mut items[next[to]]);
                next[to] += 1;
                if to == b {
                    break;
                }
            }
        }
    }
    for b in 0..=mask {
        items[starts[b]..ends[b]].sort_unstable_by_key(whole);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_keys_keep_their_order() {
        let mut seed = 1u64;
        for (n, mask) in [
            (10, 7),
            (5000, 0xFFFF),
            (5000, 0),
            (70_000, u64::MAX),
            (20_000, 0xFF00_0000_00FF),
        ] {
            let mut items: Vec<Op> = (0..n)
                .map(|i| {
                    seed = seed
                        .wrapping_mul(6364136223846793005)
                        .wrapping_add(1442695040888963407);
                    Op {
                        key: seed & mask,
                        seq: i | if seed >> 60 == 3 { REMOVE } else { 0 },
                    }
                })
                .collect();
            let mut want = items.clone();
            want.sort_by_key(|op| op.key);
            sort(&mut items);
            assert_eq!(items, want);
        }
    }
}
