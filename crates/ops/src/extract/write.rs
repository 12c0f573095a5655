//! Writing all outputs in one pass.

use osmill_engine::{Blob, Held, HoldStore, KernelResult, TaskOutputs};
use osmill_pbf::{DensePicker, Element, NodeColumns};

use super::region_ids::Cursor;
use crate::select;

/// Elements of a blob that are held as views at once.
const HELD: usize = 1 << 14;

/// What a worker needs to write the elements of a blob to the outputs of their regions.
#[derive(Default)]
pub struct Parts {
    /// Pairs of the number of an element in the blob and a region that it belongs to, in the order of elements.
    pairs: Vec<(u32, u32)>,
    /// Elements of the blob so far.
    total: u32,
    /// How many elements of the blob each region has.
    counts: Vec<u32>,
    picker: DensePicker,
    /// For each region whether it has more in the blob than what is held.
    stale: Vec<bool>,
}

impl Parts {
    /// Takes over what has been read of the blob's nodes.
    pub fn lend(&mut self, columns: &mut NodeColumns) {
        self.picker.lend(columns);
    }

    /// Forgets the blob before.
    pub fn begin(&mut self) {
        self.pairs.clear();
        self.stale.clear();
        self.total = 0;
    }

    /// Turns to the element of this number, counted from 0, which does not lie before the one at hand.
    #[inline]
    pub fn turn_to(&mut self, number: u32) {
        self.total = number;
    }

    /// Turns to the next element of the blob.
    #[inline]
    pub fn next(&mut self) {
        self.total += 1;
    }

    /// Notes that the element at hand belongs to a region. Once for each region.
    #[inline]
    pub fn add(&mut self, region: u32) {
        self.pairs.push((self.total, region));
    }

    /// As [`Parts::add`], of an element that was not known when the blob was held.
    #[inline]
    pub fn add_more(&mut self, region: u32) {
        self.add(region);
        if self.stale.len() <= region as usize {
            self.stale.resize(region as usize + 1, false);
        }
        self.stale[region as usize] = true;
    }

    /// Writes the elements of the blob to the outputs of regions that have more in it than what is held. To others
    /// goes what is held.
    pub fn rewrite(
        &mut self,
        blob: &mut Blob,
        outs: &mut TaskOutputs<'_>,
        mut held: Held,
        store: &HoldStore,
    ) -> KernelResult {
        let Parts { pairs, stale, .. } = self;
        let is_stale = |region: u32| stale.get(region as usize) == Some(&true);
        held.retain(|region| !is_stale(region));
        outs.restore(held, store)?;
        pairs.retain(|(_, region)| is_stale(*region));
        self.write(blob, outs)
    }

    /// Writes the elements of the blob, which has been decoded.
    pub fn write(&mut self, blob: &mut Blob, outs: &mut TaskOutputs<'_>) -> KernelResult {
        let Parts {
            pairs,
            total,
            counts,
            picker,
            ..
        } = self;
        if pairs.is_empty() {
            return Ok(());
        }
        let total = *total;
        if outs.len() == 1 && pairs.len() < total as usize {
            let wanted = pairs.iter().map(|(at, _)| *at);
            return outs.to(0, |out| select::keep_picked(blob.decoded(), picker, wanted, out));
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
        write_parts(blob, pairs, picker, outs)
    }
}

/// A worker's state in writing what is known by id.
pub struct Writing<'r> {
    /// For each kind the ids that may be held, and those that came after.
    cursors: [[Cursor<'r>; 2]; 3],
    parts: Parts,
    ids: Vec<i64>,
}

impl<'r> Writing<'r> {
    /// Writes elements for which the cursors know regions: for each kind those that may be held, and those that
    /// came after.
    pub fn new(cursors: [[Cursor<'r>; 2]; 3]) -> Self {
        Writing {
            cursors,
            parts: Parts::default(),
            ids: Vec::new(),
        }
    }

    /// Writes the elements of a blob to the outputs of their regions, for some of which they may be held.
    pub fn blob(
        &mut self,
        blob: &mut Blob,
        outs: &mut TaskOutputs<'_>,
        held: Option<(Held, &HoldStore)>,
    ) -> KernelResult {
        let Writing { cursors, parts, ids } = self;
        parts.begin();
        for group in blob.block()?.groups() {
            let mut items = group.items();
            while let Some((item, message)) = items.try_next_raw()? {
                ids.clear();
                items.parse_ids(item, message, ids)?;
                let [known, more] = &mut cursors[select::kind_of(item) as usize];
                for id in ids.iter() {
                    known.each(*id, |region| parts.add(region));
                    more.each(*id, |region| parts.add_more(region));
                    parts.next();
                }
            }
        }
        match held {
            Some((held, store)) => parts.rewrite(blob, outs, held, store),
            None => parts.write(blob, outs),
        }
    }
}

/// Writes elements to the outputs of their regions, given as pairs in the order of the elements. Each element is
/// read once, whatever the number of regions.
fn write_parts(
    blob: &Blob,
    pairs: &[(u32, u32)],
    picker: &mut DensePicker,
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
    let by_element = || pairs.chunk_by(|a, b| a.0 == b.0);
    let wanted = by_element().map(|run| run[0].0);
    let mut runs = by_element();
    select::for_each_picked(blob.decoded(), picker, wanted, |_, element| {
        let run = runs.next().unwrap_or_default();
        places.extend(run.iter().map(|(_, region)| (*region, held.len() as u32)));
        held.push(element);
        match held.len() == HELD {
            true => flush(&mut held, &mut places),
            false => Ok(()),
        }
    })?;
    flush(&mut held, &mut places)
}
