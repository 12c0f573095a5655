//! The ids of elements that are kept, and what memory they may take.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use osmill_engine::{Blob, Error, IdSet, Input, Job, KernelResult, Plan, Result};
use osmill_model::{ElementId, Kind};
use osmill_nodes::IdRange;
use osmill_pbf::IndexRecord;

use super::marks::Marks;

/// [`limit`] whatever the memory of a job.
const IDS_LEAST: u64 = 64 << 20;
/// [`limit_of_range`] whatever the memory of a job: some ids, or there would be no end of ranges.
const RANGE_LEAST: u64 = 8 << 10;

/// Bytes that ids of one kind may take which are needed all at once.
pub(super) fn limit(job: &Job) -> u64 {
    job.options().memory.max(IDS_LEAST)
}

/// Bytes that ids may take which can be found a range at a time: what is found with them needs as much.
fn limit_of_range(job: &Job) -> u64 {
    (job.options().memory / 2).max(RANGE_LEAST)
}

/// How much memory the ids of one kind that a pass finds may take, where they are needed all at once.
#[derive(Debug)]
pub(crate) struct IdBudget {
    what: &'static str,
    limit: u64,
    used: AtomicU64,
}

impl IdBudget {
    /// That of a job. `what` names the ids for messages.
    pub fn of(job: &Job, what: &'static str) -> Self {
        IdBudget {
            what,
            limit: limit(job),
            used: AtomicU64::new(0),
        }
    }

    /// That of a job for ids that can be found a range at a time.
    pub fn of_range(job: &Job, what: &'static str) -> Self {
        IdBudget {
            limit: limit_of_range(job),
            ..IdBudget::of(job, what)
        }
    }

    /// Notes that so many bytes more are in use.
    pub fn charge(&self, bytes: u64) -> Result<()> {
        self.check(self.used.fetch_add(bytes, Relaxed) + bytes)
    }

    /// Refuses more bytes than there may be.
    pub fn check(&self, bytes: u64) -> Result<()> {
        match bytes > self.limit {
            false => Ok(()),
            true => Err(Error::Memory {
                what: self.what,
                needed: bytes,
                allowed: self.limit,
            }),
        }
    }
}

/// Ids of one kind, with a coarse copy that tells of a range of ids whether any is there.
#[derive(Debug, Default)]
struct Ids {
    fine: IdSet,
    coarse: IdSet,
    /// Whether ids found no room: they are in the coarse copy only.
    full: AtomicBool,
}

/// Ids that are wanted.
///
/// Where those of nodes or ways take more memory than the job has, [`Wanted::resolve`] finds them a range at a time,
/// and keeps a mark for each element instead. Ids of relations, of which there are few, have to fit.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// By kind. Ranges of one kind share the others.
    ids: [Arc<Ids>; 3],
    /// Of this kind, ids beyond the range are not added.
    range: (Kind, IdRange),
    /// Bytes that the ids of each kind may take.
    limits: [u64; 3],
    /// By kind, if elements are marked.
    marks: [Option<Arc<Marks>>; 3],
}

/// Ids that share a bit of the coarse copy: a power of two, as a shift.
const COARSE: u32 = 12;

/// The bit of an id in the coarse copy. In the order of sorted files, ids ascend with their bits.
#[inline]
fn coarse(id: i64) -> i64 {
    match id > 0 {
        true => (id >> COARSE) + 1,
        false => -((id.unsigned_abs() >> COARSE) as i64),
    }
}

/// The first and the last id, in the order of sorted files, of a bit of the coarse copy.
fn ids_of(bit: i64) -> (i64, i64) {
    let (start, len) = ((bit - i64::from(bit > 0)).unsigned_abs() << COARSE, 1 << COARSE);
    let end = start + (len - 1);
    match bit > 0 {
        true => (start.max(1) as i64, end as i64),
        false => {
            let end = end.min(i64::MIN.unsigned_abs());
            ((start as i64).wrapping_neg(), (end as i64).wrapping_neg())
        }
    }
}

/// Ids that are added before there is another look whether there is room.
const LOOK: usize = 1024;
/// Bits of the coarse copy that are looked at for one range at most.
const COARSE_LOOKS: i64 = 4096;

impl Wanted {
    /// Nothing so far. All has to fit: see [`Wanted::complete`].
    pub fn new(job: &Job) -> Self {
        Wanted {
            ids: Default::default(),
            range: (Kind::Node, IdRange::ALL),
            limits: [limit(job); 3],
            marks: Default::default(),
        }
    }

    /// Nothing so far. Nodes and ways need not fit if [`Wanted::resolve`] is called for them.
    pub fn by_ranges(job: &Job) -> Self {
        let mut wanted = Wanted::new(job);
        let [nodes, ways, _] = &mut wanted.limits;
        (*nodes, *ways) = (limit_of_range(job), limit_of_range(job));
        wanted
    }

    /// The same with half of the room, for a command that keeps as many ids again.
    pub fn of_two_sets(mut self) -> Self {
        let [nodes, ways, _] = &mut self.limits;
        (*nodes, *ways) = (*nodes / 2, *ways / 2);
        self
    }

    fn of(&self, kind: Kind) -> &Ids {
        &self.ids[kind as usize]
    }

    /// Whether there is room for ids near this one.
    fn has_room(&self, kind: Kind, id: i64) -> bool {
        let ids = self.of(kind);
        if ids.coarse.insert(coarse(id)) && ids.fine.bytes() > self.limits[kind as usize] {
            ids.full.store(true, Relaxed);
        }
        !ids.full.load(Relaxed)
    }

    /// Adds an element; whether it is new.
    pub fn insert(&self, element: ElementId) -> bool {
        let ElementId { kind, id } = element;
        let (ranged, range) = &self.range;
        (kind != *ranged || range.contains(id)) && self.has_room(kind, id) && self.of(kind).fine.insert(id)
    }

    /// Adds elements of one kind.
    pub fn insert_all(&self, kind: Kind, ids: &[i64]) {
        let (ranged, range) = &self.range;
        if kind == *ranged && !range.is_all() {
            let mut own = [0; LOOK];
            for some in ids.chunks(LOOK) {
                let mut len = 0;
                for id in some.iter().filter(|id| range.contains(**id)) {
                    own[len] = *id;
                    len += 1;
                }
                self.add(kind, &own[..len]);
            }
        } else {
            ids.chunks(LOOK).for_each(|some| self.add(kind, some));
        }
    }

    fn add(&self, kind: Kind, ids: &[i64]) {
        let near = |a: &i64, b: &i64| coarse(*a) == coarse(*b);
        // All of them are noted coarsely, whether there is room or not.
        let has_room = ids
            .chunk_by(near)
            .fold(true, |room, some| self.has_room(kind, some[0]) & room);
        if has_room {
            self.of(kind).fine.insert_all(ids);
        }
    }

    fn is_full(&self, kind: Kind) -> bool {
        self.of(kind).full.load(Relaxed)
    }

    fn check(&self, kind: Kind) -> Result<()> {
        match self.is_full(kind) {
            false => Ok(()),
            true => Err(Error::Memory {
                what: "the ids of the elements that are kept",
                needed: self.of(kind).fine.bytes(),
                allowed: self.limits[kind as usize],
            }),
        }
    }

    /// Refuses to go on if not all elements found room.
    pub fn complete(&self) -> Result<()> {
        Kind::ALL.into_iter().try_for_each(|kind| self.check(kind))
    }

    /// Sees to nodes or ways that found no room: they are found anew, a range of ids that has room after the other, and
    /// marked. `find` adds all that are wanted of this kind to what it is given, which takes those of the range and
    /// knows what is wanted of relations, and of ways if these are resolved. `done` has the ids of each range, and
    /// those of them that are in the file.
    pub fn resolve(
        mut self,
        kind: Kind,
        job: &Job,
        (input, plan): (&Input, &Plan),
        find: impl Fn(&Wanted) -> Result<()>,
        mut done: impl FnMut(&IdSet, &IdSet),
    ) -> Result<Wanted> {
        self.check(Kind::Relation)?;
        if !self.is_full(kind) {
            return Ok(self);
        }
        let ranges = self.ranges_of(kind);
        job.warn(format!(
            "the ids of the {kind}s that are kept do not fit in --memory at once: {} ranges of ids",
            ranges.len()
        ));
        let full = std::mem::take(&mut self.ids[kind as usize]);
        let coarse = Arc::into_inner(full).unwrap_or_default().coarse;
        let marks = Marks::new(job, plan, kind)?;
        for range in ranges {
            let mut ids = self.ids.clone();
            ids[kind as usize] = Arc::default();
            let part = Wanted {
                ids,
                range: (kind, range),
                limits: self.limits,
                marks: self.marks.clone(),
            };
            find(&part)?;
            part.check(kind)?;
            let found = marks.mark(job, (input, plan), &part)?;
            done(&part.of(kind).fine, &found);
        }
        self.ids[kind as usize] = Arc::new(Ids {
            coarse,
            ..Ids::default()
        });
        self.marks[kind as usize] = Some(Arc::new(marks));
        Ok(self)
    }

    /// Ranges of ids of a kind, each of which has few enough that are wanted.
    fn ranges_of(&self, kind: Kind) -> Vec<IdRange> {
        let (mut starts, mut bytes, mut last_page) = (Vec::new(), 0, None);
        self.of(kind).coarse.for_each(|bit| {
            let (first, last) = ids_of(bit);
            let pages = IdSet::pages_of(first, last);
            let all = (pages.end() - pages.start() + 1) * IdSet::PAGE_BYTES;
            let is_shared = last_page.replace(*pages.end()) == Some(*pages.start());
            bytes += all - if is_shared { IdSet::PAGE_BYTES } else { 0 };
            if bytes > self.limits[kind as usize] {
                starts.push(first);
                bytes = all;
            }
        });
        IdRange::cut_at(&starts)
    }

    /// Whether the element was added. Not of a kind that is marked; see [`Wanted::here`].
    #[inline]
    pub fn contains(&self, element: ElementId) -> bool {
        self.has(element.kind, element.id)
    }

    /// [`Wanted::contains`].
    #[inline]
    pub fn has(&self, kind: Kind, id: i64) -> bool {
        self.of(kind).fine.contains(id)
    }

    /// The ids of one kind. None if it is marked.
    pub fn ids(&self, kind: Kind) -> &IdSet {
        &self.of(kind).fine
    }

    /// Whether no element of a kind was added.
    pub fn is_empty(&self, kind: Kind) -> bool {
        self.of(kind).coarse.bytes() == 0
    }

    /// Whether a blob may have any of the elements.
    pub fn may_touch(&self, record: &IndexRecord) -> bool {
        let (Some(first), Some(last)) = (record.first(), record.last()) else {
            return false;
        };
        if first.kind != last.kind || (first.id > 0) != (last.id > 0) {
            return true;
        }
        let (low, high) = (coarse(first.id.min(last.id)), coarse(first.id.max(last.id)));
        if high - low >= COARSE_LOOKS {
            return true;
        }
        let bits = &self.of(first.kind).coarse;
        (low..=high).any(|bit| bits.contains(bit))
    }

    /// Whether elements of a kind are marked, not noted by their ids.
    pub fn is_marked(&self, kind: Kind) -> bool {
        self.marks[kind as usize].is_some()
    }

    /// What is wanted of a blob; `None` if nothing is.
    pub fn here(&self, blob: &mut Blob) -> KernelResult<Option<Here<'_>>> {
        let record = blob.record()?;
        if !self.may_touch(&record) {
            return Ok(None);
        }
        let mut here = Here {
            wanted: self,
            marks: Default::default(),
        };
        for (own, marks) in here.marks.iter_mut().zip(&self.marks) {
            if let Some(marks) = marks {
                *own = Some(marks.of(blob.entry())?);
            }
        }
        let marks = record
            .kinds
            .single()
            .and_then(|kind| here.marks[kind as usize].as_ref());
        let nothing = marks.is_some_and(Vec::is_empty);
        Ok((!nothing).then_some(here))
    }
}

/// What is wanted of one blob.
#[derive(Debug)]
pub(crate) struct Here<'w> {
    wanted: &'w Wanted,
    marks: [Option<Vec<u64>>; 3],
}

impl Here<'_> {
    /// Whether an element is wanted, which is the one of this number in the blob.
    #[inline]
    pub fn has(&self, kind: Kind, id: i64, number: usize) -> bool {
        match &self.marks[kind as usize] {
            Some(marks) => super::marks::is_set(marks, number),
            None => self.wanted.has(kind, id),
        }
    }
}

#[cfg(test)]
mod tests {
    use osmill_engine::JobOptions;
    use proptest::prelude::*;

    use super::*;

    fn job(memory: u64) -> Job {
        Job::new(JobOptions {
            memory,
            ..JobOptions::default()
        })
    }

    #[test]
    fn ids_take_no_more_memory_than_the_job_has() {
        // Each of these ids has a page of a KiB for itself.
        let wanted = |memory: u64, ids: i64| {
            let wanted = Wanted::new(&job(memory));
            let ids: Vec<i64> = (1..=ids).map(|id| id << 13).collect();
            wanted.insert_all(Kind::Node, &ids);
            wanted
        };
        for (memory, ids) in [(0, 60_000), (128 << 20, 100_000)] {
            let wanted = wanted(memory, ids);
            wanted.complete().unwrap();
            assert_eq!(wanted.ids(Kind::Node).count(), ids as u64);
        }
        let wanted = wanted(1 << 20, 100_000);
        assert!(wanted.ids(Kind::Node).bytes() < 70 << 20);
        let error = wanted.complete().unwrap_err();
        assert!(matches!(error, Error::Memory { .. }), "{error}");
        assert!(error.to_string().contains("--memory"), "{error}");
    }

    #[test]
    fn bits_stand_for_ids() {
        for id in [
            0,
            1,
            -1,
            4095,
            4096,
            -4095,
            -4096,
            1 << 40,
            i64::MAX,
            i64::MIN,
            i64::MIN + 1,
        ] {
            let (first, last) = ids_of(coarse(id));
            let order = osmill_model::id_order;
            assert!(
                order(first) <= order(id) && order(id) <= order(last),
                "{id}: {first} {last}"
            );
            assert!(order(last) - order(first) < 1 << COARSE, "{id}: {first} {last}");
        }
    }

    proptest! {
        /// The ids of each range fit, and each id is in one of them.
        #[test]
        fn ranges_have_room(
            ids in prop::collection::vec(prop_oneof![
                -60_000i64..60_000, 1i64..1 << 20, (0i64..40).prop_map(|page| page * 7168), any::<i64>(),
            ], 0..300),
            memory in 0u64..200_000,
        ) {
            let wanted = Wanted::by_ranges(&job(memory));
            wanted.insert_all(Kind::Node, &ids);
            let mut found = Vec::new();
            for range in wanted.ranges_of(Kind::Node) {
                let part = Wanted { range: (Kind::Node, range), ..Wanted::by_ranges(&job(memory)) };
                part.insert_all(Kind::Node, &ids);
                prop_assert!(part.complete().is_ok());
                part.ids(Kind::Node).for_each(|id| found.push(id));
            }
            let model: std::collections::BTreeSet<i64> = ids.iter().copied().collect();
            prop_assert_eq!(found.len(), model.len());
            prop_assert!(found.iter().all(|id| model.contains(id)));
        }
    }
}
