//! What is known of the input while it is read.
//!
//! Extracts want to know of each blob what kind is in it, and whether the file is orderly. Where index records do not
//! tell, a file that claims to be sorted is believed for the time being: bisection finds where its kinds begin, each
//! pass over a kind makes the records of its blobs, and at its end the records have to show what was presumed.

use std::ops::Range;

use osmill_engine::{Blob, BlobEntry, Input, KernelResult, Plan};
use osmill_model::{Kind, KindSet};
use osmill_pbf::wire::Refs;
use osmill_pbf::{BlockError, IndexRecord, NodeColumns};

use crate::select;
use crate::split;

/// Where the kinds of a file are thought to be, as ranges of its plan's blobs: for [`Known::new`]. `None` if the index
/// records tell, and where it is not to be expected that the file is orderly.
pub fn presume(input: &Input, plan: &Plan) -> Option<[Range<usize>; 3]> {
    if plan.is_indexed() || input.is_change() {
        return None;
    }
    // What is wrong with a blob is for those to tell who read all of them.
    let kinds = split::by_kind(input, plan).ok().flatten()?;
    let apart = kinds[0].end <= kinds[1].start && kinds[1].end <= kinds[2].start;
    apart.then_some(kinds)
}

/// A plan that is being completed.
pub struct Known {
    pub plan: Plan,
    presumed: Option<[Range<usize>; 3]>,
}

/// Records that a worker has made, by the numbers of their blobs.
#[derive(Default)]
pub struct Learned(Vec<(u64, IndexRecord)>);

impl Learned {
    /// Makes the blob's record if the plan has none.
    pub fn look(&mut self, blob: &mut Blob) -> KernelResult {
        if blob.entry().index.is_none() {
            let record = blob.record()?;
            self.0.push((blob.entry().number, record));
        }
        Ok(())
    }

    /// Reads the nodes of a blob, and makes its record if the plan has none.
    pub fn read_nodes(&mut self, blob: &mut Blob, columns: &mut NodeColumns) -> KernelResult {
        if blob.entry().index.is_some() {
            return Ok(columns.read(blob.block()?)?);
        }
        let record = columns.read_with_record(blob.block()?)?;
        blob.learn(record);
        self.0.push((blob.entry().number, record));
        Ok(())
    }

    /// Calls `visit` with the id and the references of each way of a blob, and makes its record if the plan has none.
    pub fn read_ways(
        &mut self,
        blob: &mut Blob,
        visit: impl FnMut(i64, Refs<'_>) -> Result<(), BlockError>,
    ) -> KernelResult {
        if blob.entry().index.is_some() {
            return select::for_each_way(blob, visit);
        }
        let record = IndexRecord::with_ways(blob.block()?, visit)?;
        blob.learn(record);
        self.0.push((blob.entry().number, record));
        Ok(())
    }
}

impl Known {
    /// What a plan says of a file. It is complete, or the kinds are presumed to be in these ranges of its blobs.
    pub fn new(plan: Plan, presumed: Option<[Range<usize>; 3]>) -> Self {
        Known { plan, presumed }
    }

    /// Whether the order of the file was presumed.
    pub fn is_presumed(&self) -> bool {
        self.presumed.is_some()
    }

    /// The blobs of a kind for which `also` holds, and those of which is not known whether it does.
    pub fn blobs_of(&self, kind: Kind, mut also: impl FnMut(&IndexRecord) -> bool) -> Vec<BlobEntry> {
        let Some(kinds) = &self.presumed else {
            return select::blobs_of(&self.plan, KindSet::from(kind), also);
        };
        let mut blobs = self.plan.blobs[kinds[kind as usize].clone()].to_vec();
        blobs.retain(|blob| blob.index.is_none_or(|record| also(&record)));
        blobs
    }

    /// Takes over the records that a pass over [`Known::blobs_of`] a kind has made. Whether the file is as it was
    /// presumed to be, up to the end of that kind. To be called for one kind after the other.
    #[must_use]
    pub fn learn(&mut self, kind: Kind, learned: impl IntoIterator<Item = Learned>) -> bool {
        let Some(kinds) = &self.presumed else {
            return true;
        };
        let range = kinds[kind as usize].clone();
        let mut records: Vec<_> = learned.into_iter().flat_map(|learned| learned.0).collect();
        records.sort_unstable_by_key(|(number, _)| *number);
        let mut records = records.into_iter().peekable();
        for blob in &mut self.plan.blobs[range.clone()] {
            if let Some((_, record)) = records.next_if(|(number, _)| *number == blob.number) {
                blob.index = Some(record);
            }
        }
        let is_of_kind = |blob: &BlobEntry| {
            let kinds = blob.index.map(|record| record.kinds);
            kinds.is_some_and(|kinds| kinds == KindSet::NONE || kinds == KindSet::from(kind))
        };
        self.plan.blobs[range.clone()].iter().all(is_of_kind)
            && select::is_orderly(&self.plan.blobs[..range.end])
    }
}
