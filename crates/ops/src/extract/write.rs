//! Writing all outputs in one pass.

use osmill_engine::{Blob, KernelResult, TaskOutputs};
use osmill_pbf::Element;

use super::region_ids::Cursor;
use crate::select::{self, ElementWriter, Fate};

/// Elements of a blob that are held as views at once.
const HELD: usize = 1 << 14;

/// A worker's state in writing.
pub struct Writing<'r> {
    cursors: [Cursor<'r>; 3],
    writer: ElementWriter,
    /// Pairs of the number of an element in the blob and a region that it belongs to.
    pairs: Vec<(u32, u32)>,
    /// How many elements of the blob each region has.
    counts: Vec<u32>,
    fates: Vec<Fate>,
    ids: Vec<i64>,
}

impl<'r> Writing<'r> {
    /// Writes elements for which the cursors, one for each kind, know regions.
    pub fn new(cursors: [Cursor<'r>; 3], writer: ElementWriter) -> Self {
        Writing {
            cursors,
            writer,
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
            writer,
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
            return outs.to(0, |out| writer.write(blob, out, fates));
        }
        counts.clear();
        counts.resize(outs.len(), 0);
        pairs.iter().for_each(|(_, region)| counts[*region as usize] += 1);
        for (region, _) in counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count == total && total > 0)
        {
            outs.to(region, |out| writer.copy_whole(blob, out))?;
        }
        pairs.retain(|(_, region)| counts[*region as usize] < total);
        write_parts(blob, *writer, pairs, outs)
    }
}

/// Writes elements to the outputs of their regions, given as pairs in the order of the elements. Each element is
/// read once, whatever the number of regions.
fn write_parts(
    blob: &Blob,
    writer: ElementWriter,
    pairs: &[(u32, u32)],
    outs: &mut TaskOutputs<'_>,
) -> KernelResult {
    let mut held: Vec<Element<'_>> = Vec::new();
    let mut places: Vec<(u32, u32)> = Vec::new();
    let mut flush = |held: &mut Vec<Element<'_>>, places: &mut Vec<(u32, u32)>| -> KernelResult {
        places.sort_unstable();
        for run in places.chunk_by(|a, b| a.0 == b.0) {
            outs.to(run[0].0 as usize, |out| {
                run.iter()
                    .try_for_each(|(_, at)| writer.put(&held[*at as usize], out))
            })?;
        }
        held.clear();
        places.clear();
        Ok(())
    };
    let mut runs = pairs.chunk_by(|a, b| a.0 == b.0).peekable();
    for (at, element) in (0u32..).zip(blob.decoded().elements()) {
        let element = element?;
        let Some(run) = runs.next_if(|run| run[0].0 == at) else {
            if runs.peek().is_none() {
                break;
            }
            continue;
        };
        places.extend(run.iter().map(|(_, region)| (*region, held.len() as u32)));
        held.push(element);
        if held.len() == HELD {
            flush(&mut held, &mut places)?;
        }
    }
    flush(&mut held, &mut places)
}
