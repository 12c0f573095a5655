//! How many ranges of ids are done one after the other, and where they are cut.
//!
//! What a range costs is estimated from blobs that are read as a sample, spread evenly over those with nodes:
//! the bytes of the table (the locations, the words and pages of ids), and what it takes besides while it is filled.
//! What the command takes whatever the ranges are, its code, its plan and the workers' buffers, comes off the budget first;
//! a quarter of the budget is left to the table in any case, so that there is an end. A sampled
//! blob stands for those up to the next one, by their nodes or bytes. In a sorted file their nodes are taken to be spread evenly over
//! the ids up to the next sample; in others the ids of the sample stand for all.

use osmill_engine::{Blob, BlobEntry, Input, Job, Result};
use osmill_model::id_order;
use osmill_nodes::{IdRange, NodeBatch};

use super::Parts;

/// Bytes of scratch that are set aside for a reference: two coordinates that differ by some kilometres.
pub(super) const SCRATCH_BYTES: f64 = 6.0;

/// Blobs that are read to estimate.
const SAMPLE: usize = 256;
/// Blobs that are read first; they are enough where memory is, by their account, this many times what is needed.
const FIRST_SAMPLE: (usize, f64) = (32, 1.5);

/// Bytes of a location in a table, with its share of what its block has in common.
const LOCATION: f64 = 5.0;
/// Bytes of a word of ids.
const WORD: f64 = 10.0;
/// Bytes of a page, besides words and locations, and of what finds it.
const PAGE: f64 = 40.0;
/// Bytes of a node more than those, while a table is filled out of order.
const SCATTERED: f64 = 12.0;

/// Bytes that are in use before the work begins, and of what is gathered and written by all workers together.
const FIXED: u64 = 20 << 20;
/// Bytes of a blob in the plan and its parts, with the index of its streams.
const PLANNED: u64 = 512;
/// Bytes of a worker's buffers that do not depend on the blobs, and as a multiple of the largest of these: its
/// uncompressed bytes, columns of nodes or references and their locations, and what is made of them.
const WORKER: (u64, u64) = (4 << 20, 16);

/// Bytes that are left for a table.
fn for_table(job: &Job, parts: &Parts) -> f64 {
    let blobs = || parts.nodes.iter().chain(&parts.ways);
    let largest = blobs().map(|blob| u64::from(blob.data_size)).max().unwrap_or(0);
    let workers = job.options().threads as u64 * (WORKER.0 + WORKER.1 * largest);
    let memory = job.options().memory;
    let besides = FIXED + PLANNED * blobs().count() as u64 + workers;
    memory.saturating_sub(besides).max(memory / 4) as f64
}

/// A sampled blob.
struct Sample {
    /// Its ids in their order; first and last one only, if the file is sorted.
    ids: Vec<i64>,
    /// Bytes of a table of them.
    table: f64,
    /// Bytes that are needed besides while it is filled.
    besides: f64,
}

impl Sample {
    /// Bytes of memory that it stands for.
    fn cost(&self) -> f64 {
        self.table + self.besides
    }
}

/// Cuts the ids into ranges each of which fits in the job's memory.
pub(super) fn cut(job: &Job, input: &Input, parts: &Parts) -> Result<Vec<IdRange>> {
    let memory = for_table(job, parts);
    // A node takes more than this in any file.
    let bytes: u64 = parts.nodes.iter().map(|blob| u64::from(blob.data_size)).sum();
    if bytes as f64 * 8.0 < memory {
        return Ok(vec![IdRange::ALL]);
    }
    let sorted = parts.boundary.is_some();
    let (few, margin) = FIRST_SAMPLE;
    let first = samples(input, &parts.nodes, sorted, few)?;
    if first.iter().map(Sample::cost).sum::<f64>() * margin < memory {
        return Ok(vec![IdRange::ALL]);
    }
    let samples = samples(input, &parts.nodes, sorted, SAMPLE)?;
    let stretches = if sorted {
        sorted_stretches(&samples)
    } else {
        scattered_stretches(samples)
    };
    Ok(IdRange::cut_at(&cuts(&stretches, memory)))
}

/// Reads at most `most` of the blobs.
fn samples(input: &Input, blobs: &[BlobEntry], sorted: bool, most: usize) -> Result<Vec<Sample>> {
    let step = blobs.len().div_ceil(most).max(1);
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
        // By nodes where they are known, else by bytes.
        let indexed = stretch.iter().all(|blob| blob.index.is_some());
        let weigh = |blob: &BlobEntry| match blob.index {
            Some(index) if indexed => u64::from(index.counts[0]),
            _ => u64::from(blob.data_size),
        };
        let size = |blobs: &[BlobEntry]| blobs.iter().map(weigh).sum::<u64>() as f64;
        let weight = size(stretch) / size(&stretch[..1]).max(1.0);
        let ids = nodes.ids();
        let count = ids.len() as f64;
        let table = LOCATION * count + WORD * different(ids, 64) + PAGE * different(ids, 4096);
        let besides = if sorted {
            0.0
        } else {
            // The places of the nodes, and the bitmap of 64 bytes for 448 ids.
            SCATTERED * count + 64.0 * different(ids, 448)
        };
        samples.push(Sample {
            table: weight * table,
            besides: weight * besides,
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

/// About how many references these blobs have: what their records say, or else what a sample of them says.
pub(super) fn references(input: &Input, blobs: &[BlobEntry]) -> Result<f64> {
    let known: Option<u64> = blobs.iter().map(|blob| blob.index.map(|index| index.refs)).sum();
    if let Some(known) = known {
        return Ok(known as f64);
    }
    let step = blobs.len().div_ceil(SAMPLE).max(1);
    let mut reader = Blob::new(input.file().clone());
    let mut total = 0.0;
    let mut refs = Vec::new();
    for stretch in blobs.chunks(step) {
        refs.clear();
        reader.begin(stretch[0]);
        let read = reader
            .block()
            .and_then(|block| Ok(block.way_refs_into(&mut refs)?));
        read.map_err(|fault| reader.locate(fault))?;
        let bytes: u64 = stretch.iter().map(|blob| u64::from(blob.data_size)).sum();
        total += refs.len() as f64 * bytes as f64 / f64::from(stretch[0].data_size.max(1));
    }
    Ok(total)
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
            cost: sample.cost(),
        });
    }
    stretches
}

fn scattered_stretches(samples: Vec<Sample>) -> Vec<Stretch> {
    let mut ids: Vec<(i64, f64)> = samples
        .into_iter()
        .flat_map(|sample| {
            let cost = sample.cost() / sample.ids.len() as f64;
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
        assert!(cuts(&stretches, 1000.0).is_empty());
        assert_eq!(cuts(&stretches, 999.0), [5001]);
        assert_eq!(cuts(&stretches, 250.0), [2501, 5001, 7501]);
        assert_eq!(cuts(&stretches, 30.0).len(), 33);
        assert!(cuts(&[], 30.0).is_empty());
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
