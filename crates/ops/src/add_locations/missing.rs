//! Nodes that are referred to and not there.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use osmill_model::{Location, id_order};

/// A set of ids that all threads add to. It takes 8 bytes for each of them, and as much again at times.
#[derive(Debug, Default)]
pub(super) struct Missing {
    any: AtomicBool,
    ids: Mutex<Ids>,
}

#[derive(Debug, Default)]
struct Ids {
    ids: Vec<i64>,
    /// How many there were when they were last sorted.
    sorted: usize,
}

impl Ids {
    fn sort(&mut self) {
        self.ids.sort_unstable_by_key(|id| id_order(*id));
        self.ids.dedup();
        self.sorted = self.ids.len();
    }
}

impl Missing {
    /// Adds those ids that have no location.
    pub fn note(&self, ids: &[i64], locations: &[Option<Location>]) {
        if !locations.contains(&None) {
            return;
        }
        self.any.store(true, Relaxed);
        let mut all = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = ids.iter().zip(locations).filter(|(_, at)| at.is_none());
        all.ids.extend(missing.map(|(id, _)| *id));
        if all.ids.len() >= (2 * all.sorted).max(1 << 16) {
            all.sort();
        }
    }

    /// Whether there is any.
    pub fn any(&self) -> bool {
        self.any.load(Relaxed)
    }

    /// Each of the ids once, in their order.
    pub fn sorted(&self) -> Vec<i64> {
        let mut all = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        all.sort();
        std::mem::take(&mut all.ids)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_is_there_once() {
        let missing = Missing::default();
        missing.note(&[1, 2], &[Some(Location::default()); 2]);
        assert!(!missing.any());
        for round in 0..40 {
            let ids: Vec<i64> = (0..10_000).map(|i| (i * 7 + round) % 5000 - 2500).collect();
            missing.note(&ids, &vec![None; ids.len()]);
        }
        assert!(missing.any());
        let mut expected: Vec<i64> = (-2500..2500).collect();
        expected.sort_by_key(|id| id_order(*id));
        assert_eq!(missing.sorted(), expected);
    }
}
