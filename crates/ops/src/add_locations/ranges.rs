//! How many ranges of ids are done one after the other, and where they are cut.
//!
//! What a range costs is estimated from blobs that are read as a sample, spread evenly over those with nodes:
//! the bytes of the table, for every node as if it were referred to; its bitmap; and the pages in which the
//! references of the next range are collected meanwhile. A sampled blob stands for those up to the next one, by
//! their bytes. In a sorted file their nodes are taken to be spread evenly over the ids up to the next sample;
//! in others the ids of the sample stand for all.

use osmill_engine::{Blob, BlobEntry, Input, Job, Result};
use osmill_model::id_order;
use osmill_nodes::{IdRange, NodeBatch};

use super::Parts;

/// Bytes of scratch that are set aside for a reference: two coordinates that differ by some kilometres.
pub(super) const SCRATCH_BYTES: u64 = 6;

/// Blobs that are read to estimate.
const SAMPLE: usize = 48;

/// Bytes of a slot in a table: its share of block and directory.
const SLOT_BYTES: f64 = 5.5;
/// The same while a table is filled out of order.
const SCATTERED_SLOT_BYTES: f64 = 12.0 + SLOT_BYTES;

/// A sampled blob.
struct Sample {
    /// Its ids in their order; first and last one only, if the file is sorted.
    ids: Vec<i64>,
    /// Nodes of the blobs for which it stands.
    nodes: f64,
    /// Bytes of the bitmap over them.
    lines: f64,
    /// Bytes of the pages in which they are collected.
    pages: f64,
}

/// Cuts the ids into ranges each of which fits in the job's memory.
pub(super) fn cut(job: &Job, input: &Input, parts: &Parts) -> Result<Vec<IdRange>> {
    let memory = job.options().memory as f64;
    // A node takes more than this in any file.
    let bytes: u64 = parts.nodes.iter().map(|blob| u64::from(blob.data_size)).sum();
    if bytes as f64 * 8.0 < memory {
        return Ok(vec![IdRange::ALL]);
    }
    let sorted = parts.boundary.is_some();
    let samples = samples(input, &parts.nodes, sorted)?;
    // All at once, the pages are gone before the table is filled.
    let total = |of: fn(&Sample) -> f64| samples.iter().map(of).sum::<f64>();
    let slot = if sorted { SLOT_BYTES } else { SCATTERED_SLOT_BYTES };
    if total(|s| s.lines) + (slot * total(|s| s.nodes)).max(total(|s| s.pages)) <= memory {
        return Ok(vec![IdRange::ALL]);
    }
    let stretches = if sorted {
        sorted_stretches(&samples)
    } else {
        scattered_stretches(samples)
    };
    Ok(IdRange::cut_at(&cuts(&stretches, memory)))
}

fn samples(input: &Input, blobs: &[BlobEntry], sorted: bool) -> Result<Vec<Sample>> {
    let step = blobs.len().div_ceil(SAMPLE).max(1);
    let mut reader = Blob::new(input.file().clone());
    let mut nodes = NodeBatch::default();
    let mut samples = Vec::new();
    for stretch in blobs.chunks(step) {
        reader.begin(stretch[0]);
        let read = reader.block().and_then(|block| nodes.read(block));
        read.map_err(|fault| reader.locate(fault))?;
        let (Some(first), Some(last)) = (nodes.ids().first(), nodes.ids().last()) else {
            continue;
        };
        let size = |blobs: &[BlobEntry]| blobs.iter().map(|b| u64::from(b.data_size)).sum::<u64>() as f64;
        let weight = size(stretch) / size(&stretch[..1]);
        samples.push(Sample {
            nodes: nodes.ids().len() as f64 * weight,
            lines: weight * 64.0 * different(nodes.ids(), 448),
            pages: weight * 1024.0 * different(nodes.ids(), 7168),
            ids: if sorted {
                vec![*first, *last]
            } else {
                nodes.ids().to_vec()
            },
        });
    }
    Ok(samples)
}

/// Ids from `first` on, up to where the next stretch begins, and the bytes that they cost.
struct Stretch {
    first: i64,
    span: u64,
    cost: f64,
}

/// How many different multiples of `per` these ids lie above.
fn different(ids: &[i64], per: u64) -> f64 {
    let mut numbers: Vec<u64> = ids.iter().map(|id| id_order(*id) / per).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers.len() as f64
}

fn sorted_stretches(samples: &[Sample]) -> Vec<Stretch> {
    let mut stretches = Vec::new();
    for (i, sample) in samples.iter().enumerate() {
        let first = sample.ids[0];
        let next = samples.get(i + 1).map_or(sample.ids[1], |next| next.ids[0]);
        let span = id_order(next).saturating_sub(id_order(first));
        stretches.push(Stretch {
            first,
            span,
            cost: sample.nodes * SLOT_BYTES + sample.lines + sample.pages,
        });
    }
    stretches
}

fn scattered_stretches(samples: Vec<Sample>) -> Vec<Stretch> {
    let mut ids: Vec<(i64, f64)> = samples
        .into_iter()
        .flat_map(|sample| {
            let cost = sample.nodes * SCATTERED_SLOT_BYTES + sample.lines + sample.pages;
            let cost = cost / sample.ids.len() as f64;
            sample.ids.into_iter().map(move |id| (id, cost))
        })
        .collect();
    ids.sort_unstable_by_key(|(id, _)| id_order(*id));
    let chunk = ids.len().div_ceil(1024).max(1);
    let starts: Vec<i64> = ids.iter().step_by(chunk).map(|(id, _)| *id).collect();
    ids.chunks(chunk)
        .enumerate()
        .map(|(i, own)| {
            let (first, last) = (own[0].0, own[own.len() - 1].0);
            let next = starts.get(i + 1).copied().unwrap_or(last);
            let span = id_order(next).saturating_sub(id_order(first));
            Stretch {
                first,
                span,
                cost: own.iter().map(|(_, cost)| cost).sum(),
            }
        })
        .collect()
}

/// The ids where ranges of equal cost begin, each of which costs at most `memory`.
fn cuts(stretches: &[Stretch], memory: f64) -> Vec<i64> {
    let total: f64 = stretches.iter().map(|stretch| stretch.cost).sum();
    // More ranges than this would each find little to do.
    let ranges = (total / memory).ceil().clamp(1.0, 1024.0);
    let target = total / ranges;
    let mut cuts = Vec::new();
    let mut before = 0.0;
    for stretch in stretches {
        let mut goal = target * (cuts.len() + 1) as f64;
        while goal < before + stretch.cost && ((cuts.len() + 1) as f64) < ranges {
            let part = ((goal - before) / stretch.cost).clamp(0.0, 1.0) * stretch.span as f64;
            cuts.push(step(stretch.first, part as u64));
            goal = target * (cuts.len() + 1) as f64;
        }
        before += stretch.cost;
    }
    cuts
}

/// The id that lies `by` places after another in the order of ids.
fn step(id: i64, by: u64) -> i64 {
    if id > 0 {
        return id.saturating_add_unsigned(by);
    }
    let place = id.unsigned_abs().saturating_add(by);
    // Behind the negative ids come the positive ones.
    i64::try_from(place).map_or(1, |place| -place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cost_the_same() {
        let stretches: Vec<Stretch> = (0..10)
            .map(|i| Stretch {
                first: 1 + 1000 * i,
                span: 1000,
                cost: 100.0,
            })
            .collect();
        assert_eq!(cuts(&stretches, 1000.0), Vec::<i64>::new());
        assert_eq!(cuts(&stretches, 999.0), [5001]);
        assert_eq!(cuts(&stretches, 250.0), [2501, 5001, 7501]);
        assert_eq!(cuts(&stretches, 30.0).len(), 33);
        assert_eq!(cuts(&[], 30.0), Vec::<i64>::new());
    }

    #[test]
    fn steps_follow_the_order_of_ids() {
        assert_eq!(step(5, 3), 8);
        assert_eq!(step(0, 3), -3);
        assert_eq!(step(-5, 3), -8);
        assert_eq!(step(i64::MIN, u64::MAX), 1);
        assert_eq!(step(i64::MAX, 9), i64::MAX);
    }
}
