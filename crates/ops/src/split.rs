//! Where the kinds of a sorted file begin.

use std::ops::Range;

use osmill_engine::{Blob, BlobEntry, Input, Plan, Result};
use osmill_model::Kind;

/// The blobs that hold nodes, ways and relations, as ranges of the plan's blobs. A blob in which a kind begins
/// and another ends is in both ranges.
///
/// `None` if the header does not say that the file is sorted. Its claim is believed: without index records a
/// bisection decodes a few blobs. Whoever reads the blobs has to see whether they hold what they should.
pub(crate) fn by_kind(input: &Input, plan: &Plan) -> Result<Option<[Range<usize>; 3]>> {
    if !plan.header.claims_sorted() || plan.is_sorted() == Some(false) {
        return Ok(None);
    }
    let mut reader = Blob::new(input.file().clone());
    let mut kinds_of = |entry: &BlobEntry| -> Result<Option<(Kind, Kind)>> {
        reader.begin(*entry);
        let record = reader.record().map_err(|fault| reader.locate(fault))?;
        Ok(record
            .first()
            .zip(record.last())
            .map(|(first, last)| (first.kind, last.kind)))
    };
    // The first blob that ends with this kind or a later one, and whether it begins with an earlier one.
    let mut start_of = |kind: Kind| -> Result<(usize, bool)> {
        let (mut low, mut high) = (0, plan.blobs.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match kinds_of(&plan.blobs[middle])? {
                Some((_, last)) if last >= kind => high = middle,
                _ => low = middle + 1,
            }
        }
        let shared = match plan.blobs.get(low) {
            Some(entry) => kinds_of(entry)?.is_some_and(|(first, _)| first < kind),
            None => false,
        };
        Ok((low, shared))
    };
    let (ways, ways_shared) = start_of(Kind::Way)?;
    let (relations, relations_shared) = start_of(Kind::Relation)?;
    let end = |start: usize, shared: bool| start + usize::from(shared);
    Ok(Some([
        0..end(ways, ways_shared),
        ways..end(relations, relations_shared).max(ways),
        relations..plan.blobs.len(),
    ]))
}
