//! Giving space back: extents from the end of the file move into holes, then the file is cut.

use crate::backend::BLOCK;
use crate::codec::{Encoded, HEADER, PAYLOAD};
use crate::core::Core;
use crate::error::Result;
use crate::node::{CHANGED, Entry, NOWHERE};
use crate::options::Durability;
use crate::transfer::ReadAhead;
use crate::tree::range_of;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a compaction did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactReport {
    /// Length of the file before.
    pub before_bytes: u64,
    /// Length of the file after.
    pub after_bytes: u64,
    /// Extents moved.
    pub moved_extents: u64,
    /// Whether the budget ended it before the file was as short as it can be.
    pub stopped: bool,
}

impl fmt::Display for CompactReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stopped = if self.stopped {
            "; the budget ended it early"
        } else {
            ""
        };
        let Self {
            before_bytes,
            after_bytes,
            moved_extents,
            ..
        } = self;
        write!(
            f,
            "{before_bytes} bytes before, {after_bytes} after, {moved_extents} extents moved{stopped}"
        )
    }
}

/// Rounds at most; each halves what is left to move, about.
const ROUNDS: usize = 8;

pub(crate) fn compact(core: &mut Core, budget: u64) -> Result<CompactReport> {
    core.check_writable()?;
    let length = |core: &Core| core.store.backend.len().map_err(core.store.io("measure", 0));
    let mut report = CompactReport {
        before_bytes: length(core)?,
        ..CompactReport::default()
    };
    let metadata = core.metadata.clone();
    core.commit(Durability::Batch, &metadata)?;
    let mut left = budget / BLOCK as u64;
    for _ in 0..ROUNDS {
        // Two checkpoints: what the first replaces, the second finds free.
        core.guarded(|core| core.checkpoint_now(&metadata))?;
        let used = core.space.used_blocks() - core.space.waiting_blocks() as u32;
        // Some slack: moved blocks need a new place before their old one is free.
        let cut = used + used / 16 + core.space_slack();
        if core.space.total() <= cut {
            break;
        }
        core.space.set_pack(true);
        let moved = core.guarded(|core| move_extents(core, cut, &mut left));
        let settled = moved.and_then(|n| {
            report.moved_extents += n;
            core.guarded(|core| core.checkpoint_moving(&metadata, cut))
        });
        core.space.set_pack(false);
        settled?;
        if left == 0 {
            report.stopped = true;
            break;
        }
        core.guarded(|core| core.checkpoint_now(&metadata))?;
        core.guarded(Core::cut_file)?;
    }
    core.guarded(Core::cut_file)?;
    report.after_bytes = length(core)?;
    Ok(report)
}

/// Moves extents at or above block `cut` to lower places; returns how many.
fn move_extents(core: &mut Core, cut: u32, left: &mut u64) -> Result<u64> {
    let store = core.store.clone();
    let mut moved = 0;
    let mut from = Some(0u64);
    while let Some(low) = from {
        let spot = core.tree.find(&store, low)?;
        let leaf = spot.leaf.share();
        let high = spot.leaf_high;
        from = high.checked_add(1);
        let far = |loc: u32| loc != NOWHERE && loc & CHANGED == 0 && loc >= cut;
        let far: Vec<usize> = (0..leaf.len()).filter(|&i| far(leaf.locs[i])).collect();
        let mut ahead = ReadAhead::new(&store)?;
        let take = far.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
        far[..take]
            .iter()
            .for_each(|&i| ahead.enqueue(leaf.locs[i], leaf.sums[i]));
        let mut new: Vec<(Entry, (u64, u64))> = Vec::with_capacity(take);
        let mut payload = vec![0; PAYLOAD];
        for &i in &far[..take] {
            let (e, range) = (leaf.entry(i), range_of(&leaf, i, high));
            let encoded = ahead.next(|block, bytes, _| {
                payload.copy_from_slice(&bytes[HEADER..]);
                let header = store.check_extent(block, e.sum, bytes)?;
                Ok(Encoded {
                    codec: header.codec,
                    count: header.count,
                    used: header.used,
                })
            })??;
            let keep = store.pool.remove(e.loc);
            new.push((core.put_extent(&payload, encoded, range, keep)?, range));
            core.space.free((e.loc, 1));
        }
        drop(leaf);
        for (entry, range) in new {
            core.tree
                .replace(&store, range.0, range.1, &[entry], &mut core.freed_nodes)?;
            core.touched.add(range.0, range.1);
        }
        moved += take as u64;
        *left -= take as u64;
        if *left == 0 {
            break;
        }
    }
    core.finish_writes()?;
    Ok(moved)
}
