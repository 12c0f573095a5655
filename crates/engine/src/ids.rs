//! Sets of element ids that grow on demand and are shared by all workers.

use osmill_model::{ElementId, Kind};
use osmill_stree::BitmapCollector;

/// A set of ids of one kind: any `i64`, negative ones in a half of their own.
///
/// Threads insert and ask at the same time. Memory follows the ids that are there, not the largest one; see
/// [`BitmapCollector`].
#[derive(Debug, Default)]
pub struct IdSet {
    positive: BitmapCollector,
    rest: BitmapCollector,
}

impl IdSet {
    /// An empty set.
    pub fn new() -> Self {
        IdSet::default()
    }

    /// Adds an id; whether it is new.
    #[inline]
    pub fn insert(&self, id: i64) -> bool {
        if id > 0 {
            self.positive.insert(id as u64)
        } else {
            self.rest.insert(id.unsigned_abs())
        }
    }

    /// Adds many ids, with the cache misses of a block of them overlapped.
    pub fn insert_all(&self, ids: &[i64]) {
        let mut block = [0u64; 64];
        for chunk in ids.chunks(block.len()) {
            if chunk.iter().all(|id| *id > 0) {
                for (place, id) in block.iter_mut().zip(chunk) {
                    *place = *id as u64;
                }
                self.positive.insert_all(&block[..chunk.len()]);
            } else {
                chunk.iter().for_each(|id| {
                    self.insert(*id);
                });
            }
        }
    }

    /// Whether the id was added.
    #[inline]
    pub fn contains(&self, id: i64) -> bool {
        if id > 0 {
            self.positive.contains(id as u64)
        } else {
            self.rest.contains(id.unsigned_abs())
        }
    }

    /// Number of ids. O(memory).
    pub fn count(&self) -> u64 {
        self.positive.count() + self.rest.count()
    }

    /// Bytes taken by the ids.
    pub fn bytes(&self) -> u64 {
        self.positive.bytes() + self.rest.bytes()
    }
}

/// A set of elements: an [`IdSet`] for each kind.
#[derive(Debug, Default)]
pub struct IdSets {
    sets: [IdSet; 3],
}

impl IdSets {
    /// Three empty sets.
    pub fn new() -> Self {
        IdSets::default()
    }

    /// The ids of one kind.
    pub fn of(&self, kind: Kind) -> &IdSet {
        &self.sets[kind as usize]
    }

    /// Adds an element; whether it is new.
    #[inline]
    pub fn insert(&self, element: ElementId) -> bool {
        self.of(element.kind).insert(element.id)
    }

    /// Whether the element was added.
    #[inline]
    pub fn contains(&self, element: ElementId) -> bool {
        self.of(element.kind).contains(element.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_id_of_any_kind() {
        let sets = IdSets::new();
        let ids = [0, 1, -1, i64::MIN, i64::MAX, 1 << 40, -(1 << 40)];
        for kind in Kind::ALL {
            for id in ids {
                assert!(!sets.contains(ElementId::new(kind, id)));
                assert!(sets.insert(ElementId::new(kind, id)));
                assert!(!sets.insert(ElementId::new(kind, id)));
            }
            assert_eq!(sets.of(kind).count(), ids.len() as u64);
        }
        assert!(!sets.contains(ElementId::new(Kind::Way, 2)));
    }
}
