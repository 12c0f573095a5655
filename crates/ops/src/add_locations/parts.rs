//! Which blobs hold nodes, and which hold the rest.

use osmill_engine::{Blob, BlobEntry, Input, Job, Plan, Result};
use osmill_model::{Kind, KindSet};
use osmill_pbf::SORTED;

/// The blobs of a file by what they are read for.
#[derive(Debug)]
pub(crate) struct Parts {
    /// Blobs that may have nodes.
    pub nodes: Vec<BlobEntry>,
    /// Blobs that may have ways or relations.
    pub ways: Vec<BlobEntry>,
    /// In a file that is taken to be sorted, the number of the first blob with ways or relations, which is the
    /// only one that may have nodes, too; a number that no blob has, if there is none.
    pub boundary: Option<u64>,
}

impl Parts {
    /// Finds the parts from the index, or in a file that claims to be sorted by bisection: O(log blobs) are
    /// read. Only a file that does neither is read as a whole.
    ///
    /// The claim of the header is taken back in the plan where the index shows that it is wrong.
    pub fn find(job: &Job, input: &Input, plan: &mut Plan) -> Result<Parts> {
        if plan.is_sorted().is_none() && !plan.header.claims_sorted() {
            job.complete(input.file(), plan)?;
        }
        if plan.is_sorted() == Some(false) {
            plan.header.set_optional(SORTED, false);
            job.complete(input.file(), plan)?;
            return Ok(Parts::unsorted(plan));
        }
        let mut reader = Blob::new(input.file().clone());
        let mut has_others = |entry: &BlobEntry| -> Result<bool> {
            reader.begin(*entry);
            match reader.record() {
                Ok(record) => Ok(record.kinds.intersects(KindSet::WAYS | KindSet::RELATIONS)),
                Err(fault) => Err(reader.locate(fault)),
            }
        };
        let (mut low, mut high) = (0, plan.blobs.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if has_others(&plan.blobs[middle])? {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        let boundary = plan.blobs.get(low).map_or(u64::MAX, |blob| blob.number);
        let through = plan.blobs.len().min(low + 1);
        Ok(Parts {
            nodes: plan.blobs[..through].to_vec(),
            ways: plan.blobs[low..].to_vec(),
            boundary: Some(boundary),
        })
    }

    /// The parts of a file in any order, all of whose blobs have records.
    pub fn unsorted(plan: &Plan) -> Parts {
        let with = |kinds: KindSet| {
            let has = |blob: &&BlobEntry| blob.index.is_none_or(|record| record.kinds.intersects(kinds));
            plan.blobs.iter().filter(has).copied().collect()
        };
        Parts {
            nodes: with(Kind::Node.into()),
            ways: with(KindSet::WAYS | KindSet::RELATIONS),
            boundary: None,
        }
    }
}
