//! Writing all outputs in one pass.

use osmill_engine::{Blob, KernelResult, TaskOutputs};
use osmill_pbf::Element;

use super::region_ids::Cursor;
use crate::select::{self, Fate};

/// Elements of a blob that are held as views at once.
const HELD: usize = 1 << 14;

/// A worker's state in writing.
pub struct Writing<'r> {
    cursors: [Cursor<'r>; 3],
    /// Pairs of the number of an element in the blob and a region that it belongs to.
    pairs: Vec<(u32, u32)>,
    /// How many elements of the blob each region has.
    counts: Vec<u32>,
    fates: Vec<Fate>,
    ids: Vec<i64>,
}

impl<'r> Writing<'r> {
    /// Writes elements for which the cursors, one for each kind, know regions.
    pub fn new(cursors: [Cursor<'r>; 3]) -> Self {
        Writing {
            cursors,
            pairs: Vec::new(),
            counts: Vec::new(),
            fates: Vec::new(),
            ids: Vec::new(),
        }
    }

    /// Writes the elements of a blob to the outputs of their regions.
    pub fn blob(&mut self, blob: &mut Blob, outs: &mut TaskOutputs<'_>) -> KernelResult {
        let Writing {
            cursors,
            pairs,
            counts,
            fates,
            ids,
        } = self;
        pairs.clear();
        let mut total = 0u32;
        for group in blob.block()?.groups() {
            let mut items = group.items();
            while let Some((item, message)) = items.try_next_raw()? {
                ids.clear();
                items.parse_ids(item, message, ids)?;
                let cursor = &mut cursors[select::kind_of(item) as usize];
                for id in ids.iter() {
                    cursor.each(*id, |region| pairs.push((total, region)));
                    total += 1;
                }
            }
        }
        if outs.len() == 1 {
            fates.clear();
            fates.resize(total as usize, Fate::Drop);
            for (at, _) in pairs.iter() {
                fates[*at as usize] = Fate::Keep;
            }
            return outs.to(0, |out| select::write_fates(blob, out, fates));
        }
        counts.clear();
        counts.resize(outs.len(), 0);
        pairs.iter().for_each(|(_, region)| counts[*region as usize] += 1);
        for (region, _) in counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count == total && total > 0)
        {
            outs.to(region, |out| out.copy(blob))?;
        }
        pairs.retain(|(_, region)| counts[*region as usize] < total);
        fates.clear();
        fates.resize(total as usize, Fate::Drop);
        pairs.iter().for_each(|(at, _)| fates[*at as usize] = Fate::Keep);
        write_parts(blob, pairs, fates, outs)
    }
}

/// Writes elements to the outputs of their regions, given as pairs in the order of the elements. Each element is
/// read once, whatever the number of regions. `wanted` tells which elements have pairs.
fn write_parts(
    blob: &Blob,
    pairs: &[(u32, u32)],
    wanted: &[Fate],
    outs: &mut TaskOutputs<'_>,
) -> KernelResult {
    let mut held: Vec<Element<'_>> = Vec::new();
    let mut places: Vec<(u32, u32)> = Vec::new();
    let mut flush = |held: &mut Vec<Element<'_>>, places: &mut Vec<(u32, u32)>| -> KernelResult {
        places.sort_unstable();
        for run in places.chunk_by(|a, b| a.0 == b.0) {
            outs.to(run[0].0 as usize, |out| {
                run.iter().try_for_each(|(_, at)| out.keep(&held[*at as usize]))
            })?;
        }
        held.clear();
        places.clear();
        Ok(())
    };
    let Some((last, _)) = pairs.last() else {
        return Ok(());
    };
    let mut runs = pairs.chunk_by(|a, b| a.0 == b.0).peekable();
    let end = *last as usize + 1;
    select::for_each_picked(
        blob.decoded(),
        end,
        |at| wanted[at] == Fate::Keep,
        |at, element| {
            let Some(run) = runs.next_if(|run| run[0].0 as usize == at) else {
                return Ok(());
            };
            places.extend(run.iter().map(|(_, region)| (*region, held.len() as u32)));
            held.push(element);
            match held.len() == HELD {
                true => flush(&mut held, &mut places),
                false => Ok(()),
            }
        },
    )?;
    flush(&mut held, &mut places)
}
