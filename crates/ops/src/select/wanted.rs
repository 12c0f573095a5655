//! The ids of elements that are kept, and what memory they may take.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use osmill_engine::{Error, IdSets, Job, Result};
use osmill_model::{ElementId, Kind};
use osmill_pbf::IndexRecord;

/// Bytes that ids may take whatever the memory of a job.
const IDS_LEAST: u64 = 64 << 20;

/// How much memory the ids of one kind that a pass finds may take. They are needed all at once, so it is an error if
/// they do not fit.
#[derive(Debug)]
pub(crate) struct IdBudget {
    what: &'static str,
    memory: u64,
    used: AtomicU64,
}

impl IdBudget {
    /// That of a job. `what` names the ids for messages.
    pub fn of(job: &Job, what: &'static str) -> Self {
        IdBudget {
            what,
            memory: job.options().memory,
            used: AtomicU64::new(0),
        }
    }

    /// Notes that so many bytes more are in use.
    pub fn charge(&self, bytes: u64) -> Result<()> {
        self.check(self.used.fetch_add(bytes, Relaxed) + bytes)
    }

    /// Whether so many bytes are too many.
    fn is_exceeded_by(&self, bytes: u64) -> bool {
        bytes > self.memory.max(IDS_LEAST)
    }

    /// Refuses more bytes than there may be.
    pub fn check(&self, bytes: u64) -> Result<()> {
        match self.is_exceeded_by(bytes) {
            false => Ok(()),
            true => Err(Error::Memory {
                what: self.what,
                needed: bytes,
                allowed: self.memory,
            }),
        }
    }
}

/// Ids that are wanted, with a coarse copy that tells of a range of ids whether any is.
///
/// What would take more memory than the job has is not added; [`Wanted::complete`] tells.
#[derive(Debug)]
pub(crate) struct Wanted {
    ids: IdSets,
    coarse: IdSets,
    budget: IdBudget,
    full: AtomicBool,
}

/// Ids that share a bit of the coarse copy: a power of two, as a shift.
const COARSE: u32 = 12;
/// Ids that are added before there is another look whether there is room.
const LOOK: usize = 1024;
/// Bits of the coarse copy that are looked at for one range at most.
const COARSE_LOOKS: i64 = 4096;

impl Wanted {
    /// Nothing so far.
    pub fn new(job: &Job) -> Self {
        Wanted {
            ids: IdSets::new(),
            coarse: IdSets::new(),
            budget: IdBudget::of(job, "the ids of the elements that are kept"),
            full: AtomicBool::new(false),
        }
    }

    /// Whether there is room for ids near this one.
    fn has_room(&self, kind: Kind, id: i64) -> bool {
        if self.coarse.of(kind).insert(id >> COARSE) && self.budget.is_exceeded_by(self.ids.of(kind).bytes())
        {
            self.full.store(true, Relaxed);
        }
        !self.full.load(Relaxed)
    }

    /// Adds an element; whether it is new.
    pub fn insert(&self, element: ElementId) -> bool {
        self.has_room(element.kind, element.id) && self.ids.insert(element)
    }

    /// Adds elements of one kind.
    pub fn insert_all(&self, kind: Kind, ids: &[i64]) {
        for some in ids.chunks(LOOK) {
            for near in some.chunk_by(|a, b| a >> COARSE == b >> COARSE) {
                if !self.has_room(kind, near[0]) {
                    return;
                }
            }
            self.ids.of(kind).insert_all(some);
        }
    }

    /// Refuses to go on if not all elements found room.
    pub fn complete(&self) -> Result<()> {
        match self.full.load(Relaxed) {
            false => Ok(()),
            true => {
                let bytes = Kind::ALL.map(|kind| self.ids.of(kind).bytes());
                self.budget.check(bytes.into_iter().max().unwrap_or(0))
            }
        }
    }

    /// Whether the element was added.
    #[inline]
    pub fn contains(&self, element: ElementId) -> bool {
        self.ids.contains(element)
    }

    /// Whether the element was added.
    #[inline]
    pub fn has(&self, kind: Kind, id: i64) -> bool {
        self.ids.of(kind).contains(id)
    }

    /// How many elements of a kind were added. O(memory).
    pub fn count(&self, kind: Kind) -> u64 {
        self.ids.of(kind).count()
    }

    /// Whether no element of a kind was added.
    pub fn is_empty(&self, kind: Kind) -> bool {
        self.coarse.of(kind).bytes() == 0
    }

    /// Whether a blob may have any of the elements.
    pub fn may_touch(&self, record: &IndexRecord) -> bool {
        let (Some(first), Some(last)) = (record.first(), record.last()) else {
            return false;
        };
        if first.kind != last.kind || (first.id > 0) != (last.id > 0) {
            return true;
        }
        let (low, high) = (first.id.min(last.id) >> COARSE, first.id.max(last.id) >> COARSE);
        if high - low >= COARSE_LOOKS {
            return true;
        }
        let coarse = self.coarse.of(first.kind);
        (low..=high).any(|bit| coarse.contains(bit))
    }
}

#[cfg(test)]
mod tests {
    use osmill_engine::JobOptions;

    use super::*;

    fn wanted(memory: u64, ids: i64) -> Wanted {
        let job = Job::new(JobOptions {
            memory,
            ..JobOptions::default()
        });
        let wanted = Wanted::new(&job);
        let ids: Vec<i64> = (1..=ids).map(|id| id << 13).collect();
        wanted.insert_all(Kind::Node, &ids);
        wanted
    }

    #[test]
    fn ids_take_no_more_memory_than_the_job_has() {
        // Each of these ids has a page of a KiB for itself.
        for (memory, ids) in [(0, 60_000), (128 << 20, 100_000)] {
            let wanted = wanted(memory, ids);
            wanted.complete().unwrap();
            assert_eq!(wanted.count(Kind::Node), ids as u64);
        }
        let wanted = wanted(1 << 20, 100_000);
        assert!(wanted.ids.of(Kind::Node).bytes() < 70 << 20);
        let error = wanted.complete().unwrap_err();
        assert!(
            matches!(
                error,
                Error::Memory {
                    allowed: 0x0010_0000,
                    ..
                }
            ),
            "{error}"
        );
        assert!(error.to_string().contains("--memory"), "{error}");
    }
}
