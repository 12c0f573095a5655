//! Filling a table from nodes.
//!
//! A worker that has a blob of ascending nodes makes the pages that lie within it on its own. The first and the last
//! page of a blob may have nodes in other blobs, too: those are handed over as nodes, put together in the order
//! of the blobs, and written as a page by whichever worker completes them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use osmill_engine::{Fault, IdSet, KernelResult, Malformed, Result};
use osmill_model::{ElementId, Kind, Location, id_order};
use osmill_pbf::{Block, NodeColumns, RawItem};
use osmill_stree::NOT_FOUND;

use crate::ids::{IdRange, NodeIds};
use crate::page;
use crate::table::{LocationTable, Pages};

/// Nodes of a blob as columns, and the means to pack them. Buffers are kept between blobs.
#[derive(Debug, Default)]
pub struct NodeBatch {
    columns: NodeColumns,
    others: usize,
    slots: Vec<u64>,
    run: Run,
    writer: PageWriter,
}

impl NodeBatch {
    /// Replaces the contents by the nodes of a block.
    pub fn read(&mut self, block: &Block) -> KernelResult {
        self.columns.clear();
        self.others = 0;
        for group in block.groups() {
            let mut items = group.items();
            while let Some((item, message)) = items.try_next_raw()? {
                match item {
                    RawItem::Dense => self.columns.push_dense(&items.parse_dense(message)?)?,
                    RawItem::Node => self.columns.push(&items.parse_node(message)?)?,
                    RawItem::Way | RawItem::Relation => self.others += 1,
                }
            }
        }
        Ok(())
    }

    /// The ids of the nodes.
    pub fn ids(&self) -> &[i64] {
        &self.columns.ids
    }

    /// How many elements of other kinds the block holds.
    pub fn others(&self) -> usize {
        self.others
    }

    /// Where each of them is.
    pub fn locations(&self) -> &[Option<Location>] {
        &self.columns.locations
    }

    /// The columns themselves, for those who have another use for them.
    pub fn columns_mut(&mut self) -> &mut NodeColumns {
        &mut self.columns
    }
}

/// Nodes in ascending order of their keys ([`id_order`]), each once.
#[derive(Debug, Default)]
struct Run {
    keys: Vec<u64>,
    locations: Vec<Location>,
}

/// Nodes of one page.
#[derive(Debug, Default)]
struct Part {
    keys: Vec<u64>,
    locations: Vec<Location>,
}

impl Run {
    /// Adds a node that does not come before the last one; of two with one id the later one stays.
    #[inline(always)]
    fn push(&mut self, key: u64, location: Location) {
        if self.keys.last() == Some(&key) {
            self.locations.pop();
        } else {
            self.keys.push(key);
        }
        self.locations.push(location);
    }

    fn clear(&mut self) {
        self.keys.clear();
        self.locations.clear();
    }

    /// The nodes of the first page and those of the last one. Between them are the pages that lie within the
    /// run.
    fn ends(&self) -> (Range<usize>, Range<usize>) {
        let Some((first, last)) = self.keys.first().zip(self.keys.last()) else {
            return (0..0, 0..0);
        };
        let (first, last) = (page::number(*first), page::number(*last));
        let head = self.keys.partition_point(|key| page::number(*key) == first);
        let tail = self.keys.partition_point(|key| page::number(*key) < last);
        (0..head, tail.max(head)..self.keys.len())
    }

    fn part(&self, range: Range<usize>) -> Part {
        Part {
            keys: self.keys[range.clone()].to_vec(),
            locations: self.locations[range].to_vec(),
        }
    }
}

/// Writes pages; a worker's.
#[derive(Debug, Default)]
struct PageWriter {
    pages: page::Writer,
    index: Vec<(u64, u64)>,
}

impl PageWriter {
    /// Makes pages of these nodes, whose keys ascend.
    fn write<'a>(
        &mut self,
        nodes: impl IntoIterator<Item = (&'a [u64], &'a [Location])>,
        pages: &Mutex<Pages>,
    ) -> Result<()> {
        let mut chunk = lock(pages).take_chunk()?;
        let mut count = 0;
        self.index.clear();
        for (keys, locations) in nodes {
            let mut at = 0;
            for own in keys.chunk_by(|a, b| page::number(*a) == page::number(*b)) {
                let page = self.pages.write(own, &locations[at..at + own.len()]);
                at += own.len();
                let offset = loop {
                    match chunk.append(page) {
                        Some(offset) => break offset,
                        None => {
                            let mut pages = lock(pages);
                            pages.put_full(chunk);
                            chunk = pages.take_chunk()?;
                        }
                    }
                };
                self.index.push((page::number(own[0]), offset));
            }
            count += keys.len();
        }
        lock(pages).put(chunk, &self.index, count);
        Ok(())
    }
}

/// What is put together in the order of the blobs.
#[derive(Debug, Default)]
struct Seams {
    /// The blob that comes next.
    next: usize,
    early: BTreeMap<usize, Edges>,
    /// Nodes of the page that may go on in the next blob.
    open: Part,
    /// The last node of the blobs before.
    last: Option<i64>,
}

#[derive(Debug)]
struct Edges {
    /// First and last node of the blob.
    ends: Option<(i64, i64)>,
    parts: [Part; 2],
}

impl Seams {
    /// Takes the edges of all blobs before which none is missing, and gives the parts that have become whole
    /// pages.
    fn advance(&mut self) -> KernelResult<Vec<Part>> {
        let mut whole = Vec::new();
        while let Some(edges) = self.early.remove(&self.next) {
            self.next += 1;
            if let Some((first, last)) = edges.ends {
                if let Some(before) = self.last.filter(|before| id_order(first) < id_order(*before)) {
                    return Err(unsorted(before, first));
                }
                self.last = Some(last);
            }
            for part in edges.parts {
                let Some(first) = part.keys.first() else {
                    continue;
                };
                match self.open.keys.last() {
                    Some(last) if page::number(*last) == page::number(*first) => {
                        if last == first {
                            self.open.keys.pop();
                            self.open.locations.pop();
                        }
                        self.open.keys.extend(part.keys);
                        self.open.locations.extend(part.locations);
                    }
                    _ => whole.push(std::mem::replace(&mut self.open, part)),
                }
            }
        }
        whole.retain(|part| !part.keys.is_empty());
        Ok(whole)
    }
}

/// Slots of a shard of a scattered filler.
const SHARD: u64 = 4096;

/// A place for each slot: the number of the blob that filled it, plus one, and the location.
type Shard = Mutex<Vec<(u32, Location)>>;

#[derive(Debug)]
// There is one at a time.
#[allow(clippy::large_enum_variant)]
enum State {
    Sorted {
        range: IdRange,
        wanted: Option<Box<IdSet>>,
        seams: Mutex<Seams>,
        pages: Mutex<Pages>,
    },
    Scattered(Box<NodeIds>, Vec<Shard>),
}

/// Takes nodes from all threads and gives a [`LocationTable`].
#[derive(Debug)]
pub struct Filler {
    state: State,
}

fn unsorted(previous: i64, id: i64) -> Fault {
    Fault::Here(Malformed::Unsorted {
        element: ElementId::new(Kind::Node, id),
        previous: ElementId::new(Kind::Node, previous),
    })
}

/// A lock that no panic spoils: a panicking worker ends the whole job.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn own<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
}

impl Filler {
    /// A filler for the nodes of a range that ascend in the order of the blobs. Each of the blobs has to be added
    /// once. Nothing is kept but the pages.
    pub fn sorted(range: IdRange) -> Filler {
        Filler::ascending(range, None)
    }

    /// The same for those nodes only that were collected.
    pub fn selected(wanted: IdSet) -> Filler {
        Filler::ascending(IdRange::ALL, Some(Box::new(wanted)))
    }

    fn ascending(range: IdRange, wanted: Option<Box<IdSet>>) -> Filler {
        Filler {
            state: State::Sorted {
                range,
                wanted,
                seams: Mutex::default(),
                pages: Mutex::default(),
            },
        }
    }

    /// A filler for nodes in any order, of which these are wanted. It takes 12 bytes for each of them until it is
    /// finished.
    pub fn scattered(ids: NodeIds) -> Filler {
        let shards = ids.len().div_ceil(SHARD);
        Filler {
            state: State::Scattered(Box::new(ids), (0..shards).map(|_| Shard::default()).collect()),
        }
    }

    /// Adds the nodes of blob number `blob`, counted from 0 without gaps.
    ///
    /// # Errors
    ///
    /// [`Malformed::Unsorted`] where nodes have to ascend and do not.
    pub fn add(&self, blob: usize, nodes: &mut NodeBatch) -> KernelResult {
        match &self.state {
            State::Sorted {
                range,
                wanted,
                seams,
                pages,
            } => {
                let ends = nodes.ids().first().copied().zip(nodes.ids().last().copied());
                nodes.select(range, wanted.as_deref())?;
                let NodeBatch { run, writer, .. } = nodes;
                let (head, tail) = run.ends();
                let within = head.end..tail.start;
                let whole = {
                    let parts = [run.part(head), run.part(tail)];
                    let mut seams = lock(seams);
                    seams.early.insert(blob, Edges { ends, parts });
                    seams.advance()?
                };
                let whole = whole.iter().map(|part| (&part.keys[..], &part.locations[..]));
                let own = (&run.keys[within.clone()], &run.locations[within]);
                Ok(writer.write(whole.chain([own]), pages)?)
            }
            State::Scattered(ids, shards) => {
                nodes.slots.clear();
                let NodeBatch { columns, slots, .. } = nodes;
                slots.resize(columns.ids.len(), NOT_FOUND);
                ids.for_each_slot(&columns.ids, |i, slot| slots[i] = slot);
                let filled = slots.iter().zip(&columns.locations);
                let mut filled: Vec<(u64, Location)> = filled
                    .filter_map(|(slot, location)| {
                        Some((*slot, (*location)?)).filter(|(slot, _)| *slot != NOT_FOUND)
                    })
                    .collect();
                filled.sort_by_key(|(slot, _)| *slot);
                let stamp = u32::try_from(blob + 1).unwrap_or(u32::MAX);
                for same in filled.chunk_by(|a, b| a.0 / SHARD == b.0 / SHARD) {
                    let number = same[0].0 / SHARD;
                    let mut shard = lock(&shards[number as usize]);
                    if shard.is_empty() {
                        let len = (ids.len() - number * SHARD).min(SHARD);
                        shard.resize(len as usize, (0, Location::default()));
                    }
                    for (slot, location) in same {
                        let place = &mut shard[(slot % SHARD) as usize];
                        if place.0 <= stamp {
                            *place = (stamp, *location);
                        }
                    }
                }
                Ok(())
            }
        }
    }

    /// The table of what was added.
    pub fn finish(self) -> Result<LocationTable> {
        let mut writer = PageWriter::default();
        match self.state {
            State::Sorted { seams, pages, .. } => {
                let open = own(seams).open;
                writer.write([(&open.keys[..], &open.locations[..])], &pages)?;
                own(pages).finish()
            }
            State::Scattered(ids, shards) => {
                let pages = Mutex::default();
                let mut run = Part::default();
                let mut ids = ids.iter();
                for shard in shards {
                    // Shards are as long as their stretch of the ids, or empty.
                    let shard = own(shard);
                    if shard.is_empty() {
                        let _ = ids.by_ref().take(SHARD as usize).last();
                    }
                    // The last page may go on in the next shard.
                    let last = run.keys.last().map(|last| page::number(*last));
                    let open = run.keys.partition_point(|key| Some(page::number(*key)) != last);
                    writer.write([(&run.keys[..open], &run.locations[..open])], &pages)?;
                    run.keys.drain(..open);
                    run.locations.drain(..open);
                    for (id, (stamp, location)) in ids.by_ref().take(shard.len()).zip(&shard) {
                        if *stamp > 0 {
                            run.keys.push(id_order(id));
                            run.locations.push(*location);
                        }
                    }
                }
                writer.write([(&run.keys[..], &run.locations[..])], &pages)?;
                own(pages).finish()
            }
        }
    }
}

impl NodeBatch {
    /// Checks the order of the nodes, and makes a run of those that are wanted and have a location.
    fn select(&mut self, range: &IdRange, wanted: Option<&IdSet>) -> KernelResult {
        let NodeBatch { columns, run, .. } = self;
        let NodeColumns { ids, locations, .. } = columns;
        run.clear();
        let (Some(first), Some(last)) = (ids.first(), ids.last()) else {
            return Ok(());
        };
        let ascending = *first > 0 && ids.is_sorted_by(|a, b| a < b);
        if ascending && wanted.is_none() && range.contains(*first) && range.contains(*last) {
            let mut are_known = true;
            run.locations.extend(locations.iter().map(|at| {
                are_known &= at.is_some();
                at.unwrap_or_default()
            }));
            if are_known {
                run.keys.extend(ids.iter().map(|id| id_order(*id)));
                return Ok(());
            }
            run.clear();
        }
        if let Some(pair) = ids.windows(2).find(|pair| id_order(pair[1]) < id_order(pair[0])) {
            return Err(unsorted(pair[0], pair[1]));
        }
        for (id, location) in ids.iter().zip(locations) {
            let Some(location) = location else { continue };
            if range.contains(*id) && wanted.is_none_or(|wanted| wanted.contains(*id)) {
                run.push(id_order(*id), *location);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    type Nodes = Vec<(i64, Option<Location>)>;

    fn collected(wanted: &[i64]) -> IdSet {
        let collector = IdSet::new();
        collector.insert_all(wanted);
        collector
    }

    fn batch(nodes: &Nodes) -> NodeBatch {
        let mut batch = NodeBatch::default();
        batch.columns.ids.extend(nodes.iter().map(|(id, _)| *id));
        batch.columns.locations.extend(nodes.iter().map(|(_, at)| *at));
        batch
    }

    /// Compares a table with what a map says of these ids; it has no others.
    fn check(table: &LocationTable, wanted: &[i64], model: &BTreeMap<u64, Location>) {
        let mut asked: Vec<i64> = wanted.to_vec();
        asked.extend([5_000_000_000, -77, 0, i64::MIN, i64::MAX]);
        let mut found = vec![None];
        let are_found = table.locate(&asked, &mut found);
        assert_eq!(are_found, !found[1..].contains(&None));
        assert_eq!(found.len(), asked.len() + 1);
        for (id, found) in asked.iter().zip(&found[1..]) {
            let expected = model.get(&id_order(*id)).filter(|_| wanted.contains(id));
            assert_eq!(found.as_ref(), expected, "{id}");
            assert_eq!(table.get(*id).as_ref(), expected, "{id}");
        }
        let mut there: Vec<i64> = wanted.to_vec();
        there.retain(|id| model.contains_key(&id_order(*id)));
        there.sort_unstable();
        there.dedup();
        assert_eq!(table.len(), there.len() as u64);
    }

    fn id() -> impl Strategy<Value = i64> {
        prop_oneof![8 => 1i64..600, 4 => 4000i64..9000, 1 => -40i64..=0, 1 => any::<i64>(), 1 => Just(i64::MIN)]
    }

    fn location() -> impl Strategy<Value = Option<Location>> {
        prop_oneof![
            6 => (-50i32..50, -50i32..50),
            1 => (any::<i32>(), any::<i32>()),
            1 => Just((0, 0)),
        ]
        .prop_map(|(lon, lat)| Some(Location::new(lon, lat)))
    }

    proptest! {
        /// Duplicates, gaps, missing nodes, negative and huge ids, blobs of all sizes, in any order of arrival.
        #[test]
        fn all_fillers_agree_with_a_map(
            mut nodes in proptest::collection::vec((id(), prop_oneof![9 => location(), 1 => Just(None)]), 0..900),
            wanted in proptest::collection::vec(id(), 0..700),
            cuts in proptest::collection::vec(0usize..900, 0..12),
            seed: u64,
            cut in id(),
        ) {
            let blobs = |nodes: &Nodes| -> Vec<Nodes> {
                let mut cuts: Vec<_> = cuts.iter().map(|c| c % (nodes.len() + 1)).chain([0, nodes.len()]).collect();
                cuts.sort_unstable();
                cuts.windows(2).map(|pair| nodes[pair[0]..pair[1]].to_vec()).collect()
            };
            let arrival = |count: usize| {
                let mut order: Vec<usize> = (0..count).collect();
                order.sort_by_key(|i| (*i as u64 ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15));
                order
            };
            let model = |nodes: &Nodes| {
                nodes.iter().filter_map(|(id, at)| Some((id_order(*id), (*at)?))).collect::<BTreeMap<_, _>>()
            };
            let parts = blobs(&nodes);
            let filler = Filler::scattered(NodeIds::freeze(collected(&wanted), 1).unwrap());
            for i in arrival(parts.len()) {
                filler.add(i, &mut batch(&parts[i])).unwrap();
            }
            check(&filler.finish().unwrap(), &wanted, &model(&nodes));

            nodes.sort_by_key(|(id, _)| id_order(*id));
            let parts = blobs(&nodes);
            let all: Vec<i64> = nodes.iter().map(|(id, _)| *id).collect();
            let mut fillers = vec![(Filler::selected(collected(&wanted)), wanted), (Filler::sorted(IdRange::ALL), all.clone())];
            for range in IdRange::cut_at(&[cut]) {
                let within = all.iter().copied().filter(|id| range.contains(*id)).collect();
                fillers.push((Filler::sorted(range), within));
            }
            let model = model(&nodes);
            for (filler, wanted) in fillers {
                for i in arrival(parts.len()) {
                    filler.add(i, &mut batch(&parts[i])).unwrap();
                }
                let own = model.iter().filter(|(key, _)| wanted.iter().any(|id| id_order(*id) == **key));
                check(&filler.finish().unwrap(), &wanted, &own.map(|(key, at)| (*key, *at)).collect());
            }
        }
    }

    #[test]
    fn what_is_not_sorted_is_noticed() {
        let at = Some(Location::new(1, 1));
        let filler = Filler::sorted(IdRange::ALL);
        let inside = filler.add(0, &mut batch(&vec![(2, at), (1, at)]));
        assert!(matches!(inside, Err(Fault::Here(Malformed::Unsorted { .. }))));
        let filler = Filler::sorted(IdRange::ALL);
        assert!(filler.add(1, &mut batch(&vec![(2, at)])).is_ok());
        let between = filler.add(0, &mut batch(&vec![(3, at)]));
        assert!(matches!(between, Err(Fault::Here(Malformed::Unsorted { .. }))));
    }
}
