//! Which blobs hold nodes, and which hold the rest.

use osmill_engine::{Blob, BlobEntry, Error, Input, Job, Plan, Result};
use osmill_model::{Kind, KindSet};
use osmill_pbf::SORTED;

/// The blobs of a file by what they are read for.
#[derive(Debug)]
pub(crate) struct Parts {
    /// Blobs that may have nodes.
    pub nodes: Vec<BlobEntry>,
    /// Blobs that may have ways or relations.
    pub ways: Vec<BlobEntry>,
    /// Blobs that may have relations.
    pub relations: Vec<BlobEntry>,
    /// In a file that is taken to be sorted, the number of the first blob with ways or relations, which is the
    /// only one that may have nodes, too; a number that no blob has, if there is none.
    pub boundary: Option<u64>,
}

impl Parts {
    /// Finds the parts from the index, or in a file that claims to be sorted by bisection: O(log blobs) are
    /// begun, and two of them read to the end. Only a file that does neither is read as a whole.
    ///
    /// The claim of the header is taken back in the plan where the index shows that it is wrong.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] for a file with history, and those of reading.
    pub fn find(job: &Job, input: &Input, plan: &mut Plan) -> Result<Parts> {
        if plan.header.has_history() {
            return Err(Error::Usage(format!(
                "{}: a file with history has many locations for a node; take a snapshot of one time first",
                input.path().display()
            )));
        }
        if plan.is_sorted().is_none() && !plan.header.claims_sorted() {
            job.complete(input.file(), plan)?;
        }
        if plan.is_sorted() == Some(false) {
            plan.header.set_optional(SORTED, false);
            job.complete(input.file(), plan)?;
            return Ok(Parts::unsorted(plan));
        }
        let mut reader = Blob::new(input.file().clone());
        let mut first_with = |kinds: KindSet| -> Result<usize> {
            let begin = first_begun_by(&mut reader, &plan.blobs, kinds)?;
            // The blob before has to be read as a whole: it may go on with these kinds.
            let Some(before) = begin.checked_sub(1) else {
                return Ok(begin);
            };
            reader.begin(plan.blobs[before]);
            let record = reader.record().map_err(|fault| reader.locate(fault))?;
            Ok(begin - usize::from(record.kinds.intersects(kinds)))
        };
        let others = first_with(KindSet::WAYS | KindSet::RELATIONS)?;
        let relations = first_with(Kind::Relation.into())?;
        let boundary = plan.blobs.get(others).map_or(u64::MAX, |blob| blob.number);
        let through = plan.blobs.len().min(others + 1);
        Ok(Parts {
            nodes: plan.blobs[..through].to_vec(),
            ways: plan.blobs[others..].to_vec(),
            relations: plan.blobs[relations..].to_vec(),
            boundary: Some(boundary),
        })
    }

    /// Whether a blob that is found to hold these kinds shows that the file is not sorted, contrary to the parts.
    pub fn is_out_of_turn(&self, blob: u64, kinds: KindSet) -> bool {
        let Some(boundary) = self.boundary else {
            return false;
        };
        let first_relations = self.relations.first().map_or(u64::MAX, |blob| blob.number);
        kinds.contains(Kind::Node) && blob > boundary
            || kinds.contains(Kind::Relation) && blob < first_relations
            || kinds.contains(Kind::Way) && blob > first_relations
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
            relations: with(Kind::Relation.into()),
            boundary: None,
        }
    }
}

/// The first blob of a sorted file that begins with one of these kinds, behind which no others come.
fn first_begun_by(reader: &mut Blob, blobs: &[BlobEntry], kinds: KindSet) -> Result<usize> {
    let (mut low, mut high) = (0, blobs.len());
    while low < high {
        let middle = low + (high - low) / 2;
        reader.begin(blobs[middle]);
        let first = reader.first_element().map_err(|fault| reader.locate(fault))?;
        if first.is_some_and(|first| kinds.contains(first.kind)) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Ok(low)
}
