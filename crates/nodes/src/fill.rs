//! Filling a table from nodes.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use osmill_engine::{Fault, KernelResult, Malformed, Result};
use osmill_model::{ElementId, Kind, Location, id_order};
use osmill_pbf::{Block, Item};
use osmill_stree::NOT_FOUND;

use crate::ids::NodeIds;
use crate::packed::{BLOCK, Entry, pack};
use crate::table::{Blocks, LocationTable};

/// Nodes of a blob as columns, and the means to pack them. Buffers are kept between blobs.
#[derive(Debug, Default)]
pub struct NodeBatch {
    ids: Vec<i64>,
    locations: Vec<Option<Location>>,
    slots: Vec<u64>,
    others: usize,
    run: Run,
}

impl NodeBatch {
    /// Replaces the contents by the nodes of a block.
    pub fn read(&mut self, block: &Block) -> KernelResult {
        self.ids.clear();
        self.locations.clear();
        self.others = 0;
        for group in block.groups() {
            let mut items = group.items();
            while let Some(item) = items.try_next()? {
                match item {
                    Item::Dense(dense) => {
                        dense.ids().column().decode_deltas_into(&mut self.ids)?;
                        dense.locations_into(&mut self.locations)?;
                    }
                    Item::Node(node) => {
                        self.ids.push(node.id());
                        self.locations.push(node.location()?);
                    }
                    Item::Way(_) | Item::Relation(_) => self.others += 1,
                }
            }
        }
        Ok(())
    }

    /// The ids of the nodes.
    pub fn ids(&self) -> &[i64] {
        &self.ids
    }

    /// How many elements of other kinds the block holds.
    pub fn others(&self) -> usize {
        self.others
    }

    /// Where each of them is.
    pub fn locations(&self) -> &[Option<Location>] {
        &self.locations
    }
}

/// What a blob of ascending nodes adds to the blocks. Its first and its last block may have slots in other
/// blobs, too; those between are its own.
#[derive(Debug, Default)]
struct Run {
    head: Vec<(u64, Location)>,
    tail: Vec<(u64, Location)>,
    blocks: Vec<(u64, Entry)>,
    data: Vec<u8>,
    present: u64,
}

/// A block that is being gathered.
#[derive(Debug)]
struct Open {
    number: u64,
    slots: [Option<Location>; BLOCK],
}

const CLOSED: Open = Open {
    number: u64::MAX,
    slots: [None; BLOCK],
};

impl Open {
    /// Packs the block if it is another one than `number`, and opens that. Gives the block that was packed.
    fn turn_to(&mut self, number: u64, slots: u64, data: &mut Vec<u8>) -> Option<(u64, Entry, u64)> {
        if number == self.number {
            return None;
        }
        let done = std::mem::replace(&mut self.number, number);
        if done == u64::MAX {
            return None;
        }
        let len = (slots - done * BLOCK as u64).min(BLOCK as u64) as usize;
        let own = &mut self.slots[..len];
        let present = own.iter().flatten().count() as u64;
        let entry = pack(own, data);
        own.fill(None);
        Some((done, entry, present))
    }
}

impl Run {
    /// Packs what lies at these slots; `slots` is how many the table has.
    fn pack(&mut self, at: impl Iterator<Item = (u64, Location)>, slots: u64) {
        self.head.clear();
        self.tail.clear();
        self.blocks.clear();
        self.data.clear();
        self.present = 0;
        let mut first = None;
        let mut open = CLOSED;
        for (slot, location) in at {
            let number = slot / BLOCK as u64;
            if *first.get_or_insert(number) == number {
                self.head.push((slot, location));
                continue;
            }
            if let Some((number, entry, present)) = open.turn_to(number, slots, &mut self.data) {
                self.blocks.push((number, entry));
                self.present += present;
            }
            open.slots[(slot % BLOCK as u64) as usize] = Some(location);
        }
        if open.number != u64::MAX {
            let start = open.number * BLOCK as u64;
            let last = (start..).zip(open.slots);
            self.tail
                .extend(last.filter_map(|(slot, location)| Some((slot, location?))));
        }
    }
}

/// The blocks as far as they are, and what waits for blobs before it.
#[derive(Debug)]
struct Sorted {
    blocks: Blocks,
    present: u64,
    /// The blob whose edges come next.
    next: usize,
    early: BTreeMap<usize, Edges>,
    open: Open,
    /// The last node of the blobs before.
    last: Option<i64>,
    data: Vec<u8>,
}

#[derive(Debug)]
struct Edges {
    /// First and last node of the blob.
    ends: Option<(i64, i64)>,
    head: Vec<(u64, Location)>,
    tail: Vec<(u64, Location)>,
}

impl Sorted {
    /// Takes the edges of all blobs before which none is missing.
    fn advance(&mut self, slots: u64) -> KernelResult {
        while let Some(edges) = self.early.remove(&self.next) {
            self.next += 1;
            if let Some((first, last)) = edges.ends {
                if let Some(before) = self.last.filter(|before| id_order(first) < id_order(*before)) {
                    return Err(unsorted(before, first));
                }
                self.last = Some(last);
            }
            for (slot, location) in edges.head.into_iter().chain(edges.tail) {
                self.turn_to(slot / BLOCK as u64, slots)?;
                self.open.slots[(slot % BLOCK as u64) as usize] = Some(location);
            }
        }
        Ok(())
    }

    fn turn_to(&mut self, number: u64, slots: u64) -> Result<()> {
        self.data.clear();
        if let Some((number, entry, present)) = self.open.turn_to(number, slots, &mut self.data) {
            let offset = self.blocks.append(&self.data)?;
            self.blocks.set(number, entry.moved(offset));
            self.present += present;
        }
        Ok(())
    }
}

/// Slots of a shard of a scattered filler.
const SHARD: u64 = 4096;

/// A place for each slot: the number of the blob that filled it, plus one, and the location.
type Shard = Mutex<Vec<(u32, Location)>>;

#[derive(Debug)]
// There is one of them; boxing would gain nothing.
#[allow(clippy::large_enum_variant)]
enum State {
    Sorted(Box<Mutex<Sorted>>),
    Scattered(Vec<Shard>),
}

/// Takes nodes from all threads and gives a [`LocationTable`].
#[derive(Debug)]
pub struct Filler {
    ids: NodeIds,
    state: State,
}

fn unsorted(previous: i64, id: i64) -> Fault {
    Fault::Here(Malformed::Unsorted {
        element: ElementId::new(Kind::Node, id),
        previous: ElementId::new(Kind::Node, previous),
    })
}

impl Filler {
    /// A filler for nodes that ascend in the order of the blobs. Each of the blobs has to be added once.
    pub fn sorted(ids: NodeIds) -> Result<Filler> {
        let blocks = Blocks::new(ids.len())?;
        Ok(Filler {
            ids,
            state: State::Sorted(Box::new(Mutex::new(Sorted {
                blocks,
                present: 0,
                next: 0,
                early: BTreeMap::new(),
                open: CLOSED,
                last: None,
                data: Vec::new(),
            }))),
        })
    }

    /// A filler for nodes in any order.
    pub fn scattered(ids: NodeIds) -> Filler {
        let shards = ids.len().div_ceil(SHARD);
        Filler {
            ids,
            state: State::Scattered((0..shards).map(|_| Shard::default()).collect()),
        }
    }

    /// The ids that are asked for.
    pub fn ids(&self) -> &NodeIds {
        &self.ids
    }

    /// Adds the nodes of blob number `blob`, counted from 0 without gaps.
    ///
    /// # Errors
    ///
    /// [`Malformed::Unsorted`] where nodes have to ascend and do not.
    pub fn add(&self, blob: usize, nodes: &mut NodeBatch) -> KernelResult {
        nodes.slots.clear();
        nodes.slots.resize(nodes.ids.len(), NOT_FOUND);
        let slots = &mut nodes.slots;
        self.ids.for_each_slot(&nodes.ids, |i, slot| slots[i] = slot);
        let filled = nodes.slots.iter().zip(&nodes.locations);
        let filled = filled.filter_map(|(slot, location)| {
            Some((*slot, (*location)?)).filter(|(slot, _)| *slot != NOT_FOUND)
        });
        match &self.state {
            State::Sorted(sorted) => {
                if let Some(pair) = nodes
                    .ids
                    .windows(2)
                    .find(|pair| id_order(pair[1]) < id_order(pair[0]))
                {
                    return Err(unsorted(pair[0], pair[1]));
                }
                let run = &mut nodes.run;
                run.pack(filled, self.ids.len());
                let edges = Edges {
                    ends: nodes.ids.first().copied().zip(nodes.ids.last().copied()),
                    head: run.head.clone(),
                    tail: run.tail.clone(),
                };
                let mut sorted = sorted.lock().unwrap_or_else(PoisonError::into_inner);
                let offset = sorted.blocks.append(&run.data)?;
                for (number, entry) in &run.blocks {
                    sorted.blocks.set(*number, entry.moved(offset));
                }
                sorted.present += run.present;
                sorted.early.insert(blob, edges);
                sorted.advance(self.ids.len())
            }
            State::Scattered(shards) => {
                let stamp = u32::try_from(blob + 1).unwrap_or(u32::MAX);
                let mut filled: Vec<(u64, Location)> = filled.collect();
                filled.sort_by_key(|(slot, _)| *slot);
                for same in filled.chunk_by(|a, b| a.0 / SHARD == b.0 / SHARD) {
                    let number = same[0].0 / SHARD;
                    let mut shard = shards[number as usize]
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner);
                    if shard.is_empty() {
                        let len = (self.ids.len() - number * SHARD).min(SHARD);
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
        let slots = self.ids.len();
        match self.state {
            State::Sorted(sorted) => {
                let mut sorted = sorted.into_inner().unwrap_or_else(PoisonError::into_inner);
                sorted.turn_to(u64::MAX, slots)?;
                Ok(LocationTable::new(self.ids, sorted.blocks, sorted.present))
            }
            State::Scattered(shards) => {
                let mut blocks = Blocks::new(slots)?;
                let (mut present, mut data) = (0, Vec::new());
                for (number, shard) in (0..).zip(shards) {
                    let shard = shard.into_inner().unwrap_or_else(PoisonError::into_inner);
                    let first = number * (SHARD / BLOCK as u64);
                    for (number, block) in (first..).zip(shard.chunks(BLOCK)) {
                        let mut own = [None; BLOCK];
                        for (own, (stamp, location)) in own.iter_mut().zip(block) {
                            *own = (*stamp > 0).then_some(*location);
                        }
                        let own = &own[..block.len()];
                        present += own.iter().flatten().count() as u64;
                        data.clear();
                        let entry = pack(own, &mut data);
                        let offset = blocks.append(&data)?;
                        blocks.set(number, entry.moved(offset));
                    }
                }
                Ok(LocationTable::new(self.ids, blocks, present))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ReferenceCollector;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    type Nodes = Vec<(i64, Option<Location>)>;

    fn ids(wanted: &[i64]) -> NodeIds {
        let collector = ReferenceCollector::new();
        collector.insert_all(wanted);
        collector.freeze(1).unwrap()
    }

    fn batch(nodes: &Nodes) -> NodeBatch {
        NodeBatch {
            ids: nodes.iter().map(|(id, _)| *id).collect(),
            locations: nodes.iter().map(|(_, at)| *at).collect(),
            ..NodeBatch::default()
        }
    }

    /// Compares a table with what a map says.
    fn check(table: &LocationTable, wanted: &[i64], model: &BTreeMap<u64, Location>) {
        let mut asked: Vec<i64> = wanted.to_vec();
        asked.extend([5_000_000_000, -77, 0]);
        let mut found = vec![None];
        table.locate(&asked, &mut found);
        assert_eq!(found.len(), asked.len() + 1);
        for (id, found) in asked.iter().zip(&found[1..]) {
            let expected = model.get(&id_order(*id)).filter(|_| wanted.contains(id));
            assert_eq!(found.as_ref(), expected, "{id}");
            assert_eq!(table.get(*id).as_ref(), expected, "{id}");
        }
        let mut missing: Vec<i64> = wanted
            .iter()
            .copied()
            .filter(|id| !model.contains_key(&id_order(*id)))
            .collect();
        missing.sort_by_key(|id| id_order(*id));
        missing.dedup();
        assert_eq!(table.missing().collect::<Vec<_>>(), missing);
        assert_eq!(table.ids().len() - table.present(), missing.len() as u64);
    }

    fn id() -> impl Strategy<Value = i64> {
        prop_oneof![8 => 1i64..600, 1 => -40i64..=0, 1 => any::<i64>()]
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
        fn both_fillers_agree_with_a_map(
            mut nodes in proptest::collection::vec((id(), prop_oneof![9 => location(), 1 => Just(None)]), 0..900),
            wanted in proptest::collection::vec(id(), 0..700),
            cuts in proptest::collection::vec(0usize..900, 0..12),
            seed: u64,
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
            let filler = Filler::scattered(ids(&wanted));
            for i in arrival(parts.len()) {
                filler.add(i, &mut batch(&parts[i])).unwrap();
            }
            check(&filler.finish().unwrap(), &wanted, &model(&nodes));

            nodes.sort_by_key(|(id, _)| id_order(*id));
            let parts = blobs(&nodes);
            let filler = Filler::sorted(ids(&wanted)).unwrap();
            for i in arrival(parts.len()) {
                filler.add(i, &mut batch(&parts[i])).unwrap();
            }
            check(&filler.finish().unwrap(), &wanted, &model(&nodes));
        }
    }

    #[test]
    fn what_is_not_sorted_is_noticed() {
        let at = Some(Location::new(1, 1));
        let filler = Filler::sorted(ids(&[1, 2, 3])).unwrap();
        let inside = filler.add(0, &mut batch(&vec![(2, at), (1, at)]));
        assert!(matches!(inside, Err(Fault::Here(Malformed::Unsorted { .. }))));
        let filler = Filler::sorted(ids(&[1, 2, 3])).unwrap();
        assert!(filler.add(1, &mut batch(&vec![(2, at)])).is_ok());
        let between = filler.add(0, &mut batch(&vec![(3, at)]));
        assert!(matches!(between, Err(Fault::Here(Malformed::Unsorted { .. }))));
    }
}
