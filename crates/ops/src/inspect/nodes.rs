//! Statistics of nodes.

use osmill_engine::{BlobEntry, Counts, Input, Job, Plan, Result};
use osmill_model::Kind;
use osmill_pbf::Element;
use serde::Serialize;

use super::note_id;

/// Statistics of the nodes' ids and locations, for judging what a table of locations will take.
#[derive(Debug, Clone, Default, Serialize)]
pub struct NodeStatistics {
    /// Number of nodes.
    pub nodes: u64,
    /// Nodes with tags.
    pub tagged: u64,
    /// Nodes without a location.
    pub without_location: u64,
    /// Smallest and largest id, in file order.
    pub ids: Option<(i64, i64)>,
    /// Bits an id takes in blocks of 64 nodes in file order, each a frame of reference with packed offsets,
    /// without block headers.
    pub id_bits: f64,
    /// Bits a location takes in the same blocks.
    pub location_bits: f64,
    #[serde(skip)]
    sums: [u64; 2],
}

/// Nodes that [`NodeStatistics`] packs together.
const NODE_BLOCK: usize = 64;

/// Reads all nodes for their statistics.
pub fn nodes(job: &Job, input: &Input, plan: &Plan) -> Result<NodeStatistics> {
    let blobs: Vec<BlobEntry> = plan
        .blobs
        .iter()
        .filter(|blob| blob.index.is_none_or(|record| record.kinds.contains(Kind::Node)))
        .copied()
        .collect();
    let states = job
        .pass("nodes", input.file(), &blobs)
        .scan(NodeStatistics::default, |state, blob| {
            let mut columns: [Vec<i64>; 3] = Default::default();
            for element in blob.block()?.elements() {
                let Element::Node(node) = element? else { continue };
                state.nodes += 1;
                state.tagged += u64::from(!node.tags().is_empty());
                note_id(&mut state.ids, node.id());
                columns[0].push(node.id());
                match node.location()? {
                    Some(location) => {
                        columns[1].push(location.lon.into());
                        columns[2].push(location.lat.into());
                    }
                    None => state.without_location += 1,
                }
            }
            for (i, column) in columns.iter().enumerate() {
                for block in column.chunks(NODE_BLOCK) {
                    let (min, max) = block
                        .iter()
                        .fold((i64::MAX, i64::MIN), |(a, b), v| (a.min(*v), b.max(*v)));
                    let bits = u64::BITS - (max.wrapping_sub(min) as u64).leading_zeros();
                    state.sums[usize::from(i > 0)] += u64::from(bits) * block.len() as u64;
                }
            }
            Ok(())
        })?;
    let mut all = NodeStatistics::default();
    for state in states {
        all.nodes += state.nodes;
        all.tagged += state.tagged;
        all.without_location += state.without_location;
        for id in state.ids.into_iter().flat_map(|(min, max)| [min, max]) {
            note_id(&mut all.ids, id);
        }
        all.sums = [all.sums[0] + state.sums[0], all.sums[1] + state.sums[1]];
    }
    let per = |sum: u64, n: u64| if n == 0 { 0.0 } else { sum as f64 / n as f64 };
    all.id_bits = per(all.sums[0], all.nodes);
    all.location_bits = per(all.sums[1], all.nodes - all.without_location);
    job.objects_in(Counts {
        nodes: all.nodes,
        ..Counts::default()
    });
    Ok(all)
}
