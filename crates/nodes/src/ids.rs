//! Which nodes are asked for, and the slot of each.

use osmill_engine::{IdSet, Result};
use osmill_model::id_order;
use osmill_stree::{NOT_FOUND, RankBitmap, Search};

use crate::failed;

/// A range of ids in the order of sorted files; see [`id_order`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdRange {
    first: u64,
    last: u64,
}

impl IdRange {
    /// All ids.
    pub const ALL: IdRange = IdRange {
        first: 0,
        last: u64::MAX,
    };

    /// Cuts all ids into ranges: each of `starts`, which ascend in the order of ids, begins a new one.
    pub fn cut_at(starts: &[i64]) -> Vec<IdRange> {
        let mut ranges = vec![IdRange::ALL];
        for start in starts.iter().map(|id| id_order(*id)) {
            if let Some(open) = ranges.last_mut().filter(|open| start > open.first) {
                open.last = start - 1;
                ranges.push(IdRange {
                    first: start,
                    last: u64::MAX,
                });
            }
        }
        ranges
    }

    /// Whether an id lies in the range.
    #[inline(always)]
    pub fn contains(&self, id: i64) -> bool {
        let key = id_order(id);
        self.first <= key && key <= self.last
    }

    /// Whether any id from `first` to `last` may lie in the range.
    pub fn intersects(&self, first: i64, last: i64) -> bool {
        id_order(first) <= self.last && id_order(last) >= self.first
    }

    /// Whether the range holds all ids.
    pub fn is_all(&self) -> bool {
        *self == IdRange::ALL
    }
}

/// A set of node ids, each of which has a slot: its position in the order of sorted files.
#[derive(Debug)]
pub struct NodeIds {
    /// 0 and the negative ids, by absolute value.
    rest: RankBitmap<'static>,
    positive: RankBitmap<'static>,
    /// The slot of the first positive id.
    rest_len: u64,
}

/// Queries that are handed on at once.
const BATCH: usize = 1024;

impl NodeIds {
    /// Gives the ids of a set their slots. O(memory); for a moment both forms are there.
    pub fn freeze(set: IdSet, threads: usize) -> Result<Self> {
        let (rest, positive) = set.into_halves();
        let rest = rest.freeze_with(1).map_err(failed)?;
        Ok(NodeIds {
            rest_len: rest.len(),
            rest,
            positive: positive.freeze_with(threads).map_err(failed)?,
        })
    }

    /// Bytes taken by the bitmaps.
    pub fn bytes(&self) -> u64 {
        self.rest.bytes() + self.positive.bytes()
    }

    /// Number of ids, which is the number of slots.
    pub fn len(&self) -> u64 {
        self.rest_len + self.positive.len()
    }

    /// Whether there is no id.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The slot of an id that is in the set.
    pub fn slot(&self, id: i64) -> Option<u64> {
        if id > 0 {
            Some(self.rest_len + self.positive.position(id as u64)?)
        } else {
            self.rest.position(id.unsigned_abs())
        }
    }

    /// The ids in the order of their slots.
    pub fn iter(&self) -> impl Iterator<Item = i64> + '_ {
        let rest = self.rest.iter().map(|id| (id as i64).wrapping_neg());
        rest.chain(self.positive.iter().map(|id| id as i64))
    }

    /// Calls `each(i, slot)` once for each id, with [`NOT_FOUND`] for those that are not in the set, as the
    /// answers come out of the pipeline.
    #[inline]
    pub(crate) fn for_each_slot(&self, ids: &[i64], mut each: impl FnMut(usize, u64)) {
        let mut queries = [0u64; BATCH];
        for (number, chunk) in ids.chunks(BATCH).enumerate() {
            let start = number * BATCH;
            if chunk.iter().all(|id| *id > 0) {
                for (query, id) in queries.iter_mut().zip(chunk) {
                    *query = *id as u64;
                }
                let base = self.rest_len;
                self.positive
                    .for_each_position(&queries[..chunk.len()], |i, position| {
                        let slot = if position == NOT_FOUND {
                            NOT_FOUND
                        } else {
                            base + position
                        };
                        each(start + i, slot);
                    });
            } else {
                for (i, id) in chunk.iter().enumerate() {
                    each(start + i, self.slot(*id).unwrap_or(NOT_FOUND));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_hold_every_id_once() {
        let ranges = IdRange::cut_at(&[-5, 1, 1, 100]);
        assert_eq!(ranges.len(), 4);
        for id in [0, -1, -4, -5, -6, i64::MIN, 1, 99, 100, i64::MAX] {
            assert_eq!(
                ranges.iter().filter(|range| range.contains(id)).count(),
                1,
                "{id}"
            );
        }
        assert!(ranges[0].contains(-4) && ranges[1].contains(-5) && ranges[2].contains(99));
        assert!(ranges[1].intersects(-3, -9) && !ranges[0].intersects(2, 3));
        assert!(IdRange::cut_at(&[]) == [IdRange::ALL]);
    }

    proptest! {
        #[test]
        fn slots_are_positions_in_id_order(mut ids in proptest::collection::vec(
            prop_oneof![-20i64..20, any::<i64>()], 0..200,
        )) {
            let wanted = IdSet::new();
            wanted.insert_all(&ids);
            let set = NodeIds::freeze(wanted, 2).unwrap();
            ids.sort_by_key(|id| id_order(*id));
            ids.dedup();
            prop_assert_eq!(set.len(), ids.len() as u64);
            let mut seen = 0;
            set.for_each_slot(&ids, |i, slot| {
                assert_eq!(slot, i as u64);
                seen += 1;
            });
            prop_assert_eq!(seen, ids.len());
            prop_assert!(set.iter().eq(ids.iter().copied()));
            for (slot, id) in ids.iter().enumerate() {
                prop_assert_eq!(set.slot(*id), Some(slot as u64));
            }
        }
    }
}
