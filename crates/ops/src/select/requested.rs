//! Elements that a user asks for by their ids.

use osmill_engine::{IdSets, Job};
use osmill_model::{ElementId, Kind};
use osmill_pbf::IndexRecord;

use super::wanted::limit;

/// Elements in the order of sorted files, each once.
#[derive(Debug)]
pub(crate) struct Requested {
    ids: Vec<ElementId>,
    /// The same for asking in any order, if there is room for it.
    set: Option<IdSets>,
}

impl Requested {
    /// These elements.
    pub fn new(ids: &[ElementId]) -> Self {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids.dedup();
        Requested { ids, set: None }
    }

    /// Makes asking in any order fast, if what that takes is in the memory of the job.
    pub fn with_set(mut self, job: &Job) -> Self {
        let (set, limit) = (IdSets::new(), limit(job));
        let fits = self.ids.chunks(1024).all(|some| {
            some.iter().for_each(|id| {
                set.insert(*id);
            });
            Kind::ALL.map(|kind| set.of(kind).bytes()).iter().sum::<u64>() <= limit
        });
        self.set = fits.then_some(set);
        self
    }

    /// The elements.
    pub fn ids(&self) -> &[ElementId] {
        &self.ids
    }

    /// Whether an element was asked for. O(1) if there is room for that, O(log elements) if not.
    #[inline]
    pub fn contains(&self, element: ElementId) -> bool {
        match &self.set {
            Some(set) => set.contains(element),
            None => self.ids.binary_search(&element).is_ok(),
        }
    }

    /// Whether a blob may have any of the elements.
    pub fn may_touch(&self, record: &IndexRecord) -> bool {
        let (Some(first), Some(last)) = (record.first(), record.last()) else {
            return false;
        };
        let at = self.ids.partition_point(|id| *id < first);
        self.ids.get(at).is_some_and(|id| *id <= last)
    }

    /// The place of an element among those asked for; fast for one that follows the one before. `at` is 0 at first.
    pub fn find(&self, at: &mut usize, element: ElementId) -> Option<usize> {
        let ids = &self.ids;
        if *at > 0 && ids[*at - 1] >= element {
            *at = ids.partition_point(|id| *id < element);
        } else {
            let mut step = 1;
            while ids.get(*at + step).is_some_and(|id| *id < element) {
                step *= 2;
            }
            let far = (*at + step).min(ids.len());
            *at += ids[*at..far].partition_point(|id| *id < element);
        }
        (ids.get(*at) == Some(&element)).then_some(*at)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use osmill_engine::JobOptions;
    use proptest::prelude::*;

    use super::*;

    fn element() -> impl Strategy<Value = ElementId> {
        let id = prop_oneof![-20i64..20, 1i64..2000, any::<i64>()];
        (0u64..3, id).prop_map(|(kind, id)| ElementId::new(Kind::from_index(kind).unwrap(), id))
    }

    proptest! {
        #[test]
        fn as_a_set(
            ids in prop::collection::vec(element(), 0..200),
            asked in prop::collection::vec(element(), 0..100),
            sorted: bool,
            memory in prop_oneof![Just(0u64), Just(1 << 30)],
        ) {
            let job = Job::new(JobOptions { memory, ..JobOptions::default() });
            let model: Vec<ElementId> = ids.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
            let (plain, set) = (Requested::new(&ids), Requested::new(&ids).with_set(&job));
            prop_assert_eq!(plain.ids(), &model[..]);
            let mut asked: Vec<ElementId> = asked.into_iter().chain(ids).collect();
            if sorted {
                asked.sort_unstable();
            }
            let mut at = 0;
            for id in asked {
                let place = model.binary_search(&id).ok();
                prop_assert_eq!(plain.find(&mut at, id), place);
                prop_assert_eq!(plain.contains(id), place.is_some());
                prop_assert_eq!(set.contains(id), place.is_some());
            }
        }
    }
}
