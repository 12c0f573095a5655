//! Ids, each with the regions that it belongs to.
//!
//! Ids are taken 64 at a time: a block of ids and a region have a mask of the ids that belong. Workers note
//! masks in lists of their own ([`Gather`]); between two passes the lists are sorted and put under the ranks of
//! their groups of 64 blocks ([`RegionIds`]). Neighbouring ids mostly belong to the same regions, so memory follows
//! the data: about 16 bytes for 64 neighbouring ids and a region, half of that if there is one region only, whatever
//! the number of regions and the largest id, and up to four bytes for a filter where ids are thinly strewn. A bitmap
//! of ids for each region would need memory for each of them before it holds an id.

use std::ops::Range;

use osmill_engine::{Error, Ranks, Result};
use osmill_pbf::IndexRecord;

use crate::select::IdBudget;

/// Block and bit of an id. Negative ids are in blocks of their own.
#[inline(always)]
fn place(id: i64) -> (u64, u64) {
    // All ones for a negative id.
    let sign = id >> 63;
    let bits = (id ^ sign) as u64;
    (bits >> 6 | sign as u64 & 1 << 58, 1 << (bits & 63))
}

/// Regions that there may be.
pub const REGIONS: usize = 1 << REGION_BITS;
const REGION_BITS: u32 = 20;
/// Blocks below this are noted in one word with the region: all of ids below 2^50.
const NEAR_BLOCKS: u64 = 1 << (u64::BITS - REGION_BITS);

/// A block and a region as one word, if there is room.
#[inline(always)]
fn near_key(block: u64, region: u32) -> Option<u64> {
    (block < NEAR_BLOCKS).then_some(block << REGION_BITS | u64::from(region))
}

/// Which ids of a block belong to a region.
#[derive(Debug, Clone, Copy)]
struct Entry {
    block: u64,
    region: u32,
    mask: u64,
}

/// Masks, each with what it is about. One thing may have several.
#[derive(Debug, Default)]
struct Notes<K> {
    entries: Vec<(K, u64)>,
    /// How many entries were left when they were last put together.
    settled: usize,
}

impl<K: Ord + Copy> Notes<K> {
    /// How many of the last entries are looked at for one to add to: about as many as regions lie one in
    /// another.
    const RECENT: usize = 4;
    /// Fewer entries than this are not worth sorting.
    const FEW: usize = 1 << 16;

    #[inline]
    fn add(&mut self, key: K, mask: u64) {
        let mut recent = self.entries.iter_mut().rev().take(Self::RECENT);
        if let Some((_, known)) = recent.find(|(known, _)| *known == key) {
            *known |= mask;
            return;
        }
        if self.entries.len() >= Self::FEW.max(2 * self.settled) {
            self.settle();
        }
        self.entries.push((key, mask));
    }

    /// Sorts the entries and puts those of the same key together.
    fn settle(&mut self) {
        self.entries.sort_unstable_by_key(|(key, _)| *key);
        self.entries.dedup_by(|(key, mask), (kept, all)| {
            let same = key == kept;
            if same {
                *all |= *mask;
            }
            same
        });
        self.settled = self.entries.len();
    }

    /// Takes over what others have noted, in the order of keys.
    fn gather(notes: impl Iterator<Item = Self>) -> Self {
        let all = notes.reduce(|mut all, mut more| {
            all.settle();
            more.settle();
            all.entries.append(&mut more.entries);
            all
        });
        let Some(mut all) = all else {
            return Notes {
                entries: Vec::new(),
                settled: 0,
            };
        };
        // Sorted runs one after the other, which the stable sort merges.
        all.entries.sort_by_key(|(key, _)| *key);
        all.settle();
        all
    }

    fn bytes(&self) -> u64 {
        (self.entries.len() * size_of::<(K, u64)>()) as u64
    }
}

/// Ids of regions as a worker notes them.
#[derive(Debug, Default)]
pub struct Gather {
    /// Blocks with regions below them.
    near: Notes<u64>,
    /// Those of huge and of negative ids.
    far: Notes<(u64, u32)>,
    /// Bytes that a budget knows of.
    charged: u64,
}

impl Gather {
    /// Notes that an id belongs to a region.
    #[inline]
    pub fn add(&mut self, region: u32, id: i64) {
        let (block, mask) = place(id);
        match near_key(block, region) {
            Some(key) => self.near.add(key, mask),
            None => self.far.add((block, region), mask),
        }
    }

    /// Charges a budget with what the notes have grown by, and with what it takes to put them together.
    pub fn charge(&mut self, budget: &IdBudget) -> Result<()> {
        let bytes = 2 * (self.near.bytes() + self.far.bytes());
        let more = bytes.saturating_sub(self.charged);
        self.charged += more;
        budget.charge(more)
    }

    /// Notes of entries that are in the order of blocks and regions, each once.
    fn of_settled(entries: impl Iterator<Item = Entry>) -> Gather {
        let mut notes = Gather::default();
        for Entry { block, region, mask } in entries {
            match near_key(block, region) {
                Some(key) => notes.near.entries.push((key, mask)),
                None => notes.far.entries.push(((block, region), mask)),
            }
        }
        notes.near.settled = notes.near.entries.len();
        notes.far.settled = notes.far.entries.len();
        notes
    }

    fn len(&self) -> usize {
        self.near.entries.len() + self.far.entries.len()
    }

    /// The entries, by block and region if they are settled.
    fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        let near = self.near.entries.iter().map(|&(key, mask)| Entry {
            block: key >> REGION_BITS,
            region: key as u32 % REGIONS as u32,
            mask,
        });
        let far = self
            .far
            .entries
            .iter()
            .map(|&((block, region), mask)| Entry { block, region, mask });
        near.chain(far)
    }
}

/// 64 blocks, those that occur one after the other.
#[derive(Debug, Clone, Copy)]
struct Group {
    number: u64,
    /// Which blocks occur.
    blocks: u64,
    /// Number of the first of them among all that occur.
    first: u32,
}

/// Ids of regions, to be asked.
#[derive(Debug)]
pub struct RegionIds {
    /// In the order of their numbers.
    groups: Vec<Group>,
    /// The ranks of their numbers are their places.
    numbers: Ranks,
    masks: Vec<u64>,
    shape: Shape,
    filter: Filter,
}

/// Tells of most blocks that do not occur that they do not: from one word, without a branch that could be foretold
/// wrongly. Groups share words by chance. (Words of neighbouring groups in one cache line are no faster.)
#[derive(Debug)]
struct Filter {
    /// Which blocks occur of the groups of a word. Their number is a power of two.
    words: Vec<u64>,
    /// By what the product of a group's number is shifted to give the number of its word.
    shift: u32,
}

impl Filter {
    /// Of these groups, of which so many blocks occur: two words for each, or one for two blocks if that is less.
    fn of(groups: &[Group], blocks: u32) -> Filter {
        let words = groups.len().min(blocks as usize / 4) * 2;
        let bits = words.max(2).next_power_of_two().ilog2();
        let mut filter = Filter {
            words: vec![0; 1 << bits],
            shift: u64::BITS - bits,
        };
        for group in groups {
            let word = filter.word(group.number);
            filter.words[word] |= group.blocks;
        }
        filter
    }

    /// The word of a group: neighbouring ones are far apart (Knuth's multiplicative hashing).
    #[inline(always)]
    fn word(&self, group: u64) -> usize {
        (group.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift) as usize
    }
}

/// Which masks are a block's, and whose they are.
#[derive(Debug)]
enum Shape {
    /// All ids belong to this region: a mask for each block that occurs.
    One(u32),
    /// For each block that occurs where its masks begin; one more for the end. For each mask the region.
    Many { starts: Vec<u32>, regions: Vec<u32> },
}

impl RegionIds {
    /// Puts together what workers have noted. O(entries log entries).
    pub fn new(gathers: impl IntoIterator<Item = Gather>) -> Result<RegionIds> {
        let (near, far): (Vec<_>, Vec<_>) = gathers.into_iter().map(|notes| (notes.near, notes.far)).unzip();
        let all = Gather {
            near: Notes::gather(near.into_iter()),
            far: Notes::gather(far.into_iter()),
            charged: 0,
        };
        RegionIds::of_settled(&all)
    }

    /// What is noted, which is settled.
    fn of_settled(all: &Gather) -> Result<RegionIds> {
        if u32::try_from(all.len()).is_err() {
            return Err(Error::Failed(
                "ids of regions: there are more than 2^32 blocks of them; extract fewer regions at a time"
                    .into(),
            ));
        }
        let (mut groups, mut blocks, mut last) = (Vec::<Group>::new(), 0, None);
        for Entry { block, .. } in all.entries() {
            if last.replace(block) == Some(block) {
                continue;
            }
            let (number, bit) = (block >> 6, 1 << (block & 63));
            match groups.last_mut().filter(|group| group.number == number) {
                Some(group) => group.blocks |= bit,
                None => groups.push(Group {
                    number,
                    blocks: bit,
                    first: blocks,
                }),
            }
            blocks += 1;
        }
        Ok(RegionIds {
            numbers: Ranks::of(groups.iter().map(|group| group.number))?,
            filter: Filter::of(&groups, blocks),
            groups,
            masks: all.entries().map(|entry| entry.mask).collect(),
            shape: Shape::of(all),
        })
    }

    fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        self.groups.iter().flat_map(move |group| {
            let blocks = (0..64).filter(|bit| group.blocks >> bit & 1 == 1);
            blocks
                .zip(group.first as usize..)
                .flat_map(move |(block, number)| {
                    self.shape.masks_of(number).map(move |at| Entry {
                        block: group.number << 6 | block,
                        region: self.shape.region(at),
                        mask: self.masks[at],
                    })
                })
        })
    }

    /// The same as notes, to be put together with others.
    pub fn to_gather(&self) -> Gather {
        Gather::of_settled(self.entries())
    }

    /// The ids of these regions that `other` does not have in the same region.
    pub fn without(&self, other: &RegionIds) -> Result<RegionIds> {
        RegionIds::of_settled(&Gather::of_settled(self.entries().filter_map(|mut entry| {
            let mut known = other.masks_of(entry.block);
            if let Some(at) = known.find(|at| other.shape.region(*at) == entry.region) {
                entry.mask &= !other.masks[at];
            }
            (entry.mask != 0).then_some(entry)
        })))
    }

    /// Whether an id may be there. `false` is certain, `true` is not: an id near it is there, or chance has it. The
    /// quickest way to tell that none of many ids is there.
    #[inline(always)]
    pub fn may_have(&self, id: i64) -> bool {
        let (block, _) = place(id);
        let word = self.filter.words.get(self.filter.word(block >> 6));
        word.is_some_and(|word| word >> (block & 63) & 1 == 1)
    }

    /// Whether there is no id.
    pub fn is_empty(&self) -> bool {
        self.masks.is_empty()
    }

    /// The blocks that occur of a group, and the number of the first of them.
    #[inline]
    fn group(&self, number: u64) -> (u64, u32) {
        match self.numbers.get(number).and_then(|place| self.groups.get(place)) {
            Some(group) => (group.blocks, group.first),
            None => (0, 0),
        }
    }

    /// The masks of a block.
    fn masks_of(&self, block: u64) -> Range<usize> {
        let (blocks, first) = self.group(block >> 6);
        match number_of(block, blocks, first) {
            Some(number) => self.shape.masks_of(number),
            None => 0..0,
        }
    }

    /// Whether some id of a blob may be there.
    pub fn may_touch(&self, record: &IndexRecord) -> bool {
        let (Some(first), Some(last)) = (record.first(), record.last()) else {
            return false;
        };
        // In file order 0 comes first, then negative ids, then positive ones: only among ids of one sign do
        // the ends enclose all.
        if first.kind != last.kind || first.id.signum() != last.id.signum() {
            return true;
        }
        let (low, high) = (place(first.id).0 >> 6, place(last.id).0 >> 6);
        let at = self.groups.partition_point(|group| group.number < low.min(high));
        self.groups
            .get(at)
            .is_some_and(|group| group.number <= low.max(high))
    }

    /// A way to ask about ids one after the other.
    pub fn cursor(&self) -> Cursor<'_> {
        Cursor {
            ids: self,
            group: u64::MAX,
            blocks: 0,
            first: 0,
        }
    }
}

/// The number of a block among all that occur, if it does; its group has `blocks`, of which `first` is the first.
#[inline]
fn number_of(block: u64, blocks: u64, first: u32) -> Option<usize> {
    let bit = 1u64 << (block & 63);
    (blocks & bit != 0).then(|| first as usize + (blocks & (bit - 1)).count_ones() as usize)
}

impl Shape {
    /// That of settled notes.
    fn of(notes: &Gather) -> Shape {
        let first = notes.entries().next().map_or(0, |entry| entry.region);
        if notes.entries().all(|entry| entry.region == first) {
            return Shape::One(first);
        }
        let mut last = None;
        let numbered = (0..).zip(notes.entries());
        let starts = numbered.filter(|(_, entry)| last.replace(entry.block) != Some(entry.block));
        let starts = starts.map(|(at, _)| at);
        Shape::Many {
            starts: starts.chain([notes.len() as u32]).collect(),
            regions: notes.entries().map(|entry| entry.region).collect(),
        }
    }

    /// The masks of a block, by its number among all that occur.
    #[inline]
    fn masks_of(&self, number: usize) -> Range<usize> {
        match self {
            Shape::One(_) => number..number + 1,
            Shape::Many { starts, .. } => starts[number] as usize..starts[number + 1] as usize,
        }
    }

    /// The region of a mask.
    #[inline]
    fn region(&self, at: usize) -> u32 {
        match self {
            Shape::One(region) => *region,
            Shape::Many { regions, .. } => regions[at],
        }
    }
}

/// Asks about ids; fastest for one near the one before.
#[derive(Debug, Clone)]
pub struct Cursor<'r> {
    ids: &'r RegionIds,
    /// The number of the group that was asked about last, and what there is of it.
    group: u64,
    blocks: u64,
    first: u32,
}

impl Cursor<'_> {
    /// Whether a block occurs.
    #[inline(always)]
    fn turn_to(&mut self, block: u64) -> bool {
        if block >> 6 != self.group {
            self.group = block >> 6;
            (self.blocks, self.first) = self.ids.group(self.group);
        }
        self.blocks >> (block & 63) & 1 == 1
    }

    /// The masks of a block.
    #[inline]
    fn seek(&mut self, block: u64) -> Range<usize> {
        self.turn_to(block);
        match number_of(block, self.blocks, self.first) {
            Some(number) => self.ids.shape.masks_of(number),
            None => 0..0,
        }
    }

    /// Whether the id belongs to any region.
    #[inline(always)]
    pub fn any(&mut self, id: i64) -> bool {
        let (block, bit) = place(id);
        self.turn_to(block) && {
            let masks = self.seek(block);
            self.ids.masks[masks].iter().any(|mask| mask & bit != 0)
        }
    }

    /// Calls `visit` with every one of `regions` that the id does not belong to.
    #[inline]
    pub fn others(&mut self, id: i64, regions: &[u32], mut visit: impl FnMut(u32)) {
        let (block, bit) = place(id);
        let masks = self.seek(block);
        let ids = self.ids;
        for region in regions {
            let at = masks.clone().find(|at| ids.shape.region(*at) == *region);
            if at.is_none_or(|at| ids.masks[at] & bit == 0) {
                visit(*region);
            }
        }
    }

    /// Calls `visit` with every region that the id belongs to, in ascending order.
    #[inline]
    pub fn each(&mut self, id: i64, mut visit: impl FnMut(u32)) {
        let (block, bit) = place(id);
        for at in self.seek(block) {
            if self.ids.masks[at] & bit != 0 {
                visit(self.ids.shape.region(at));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;

    fn id() -> impl Strategy<Value = i64> {
        prop_oneof![-200i64..200, 1_000_000i64..1_000_300, any::<i64>()]
    }

    proptest! {
        #[test]
        fn the_same_as_a_set_of_pairs(
            pairs in prop::collection::vec((0u32..6, id()), 0..300),
            parts in 1usize..4,
            asked in prop::collection::vec(id(), 0..100),
        ) {
            let model: BTreeSet<(u32, i64)> = pairs.iter().copied().collect();
            let mut gathers: Vec<Gather> = (0..parts).map(|_| Gather::default()).collect();
            for (i, (region, id)) in pairs.iter().enumerate() {
                gathers[i % parts].add(*region, *id);
                if i % 50 == 0 {
                    gathers[i % parts].near.settle();
                    gathers[i % parts].far.settle();
                }
            }
            let first = RegionIds::new(gathers).unwrap();
            prop_assert_eq!(first.is_empty(), model.is_empty());
            let again = RegionIds::new([Gather::default(), first.to_gather()]).unwrap();
            let mut half = Gather::default();
            pairs.iter().step_by(2).for_each(|(region, id)| half.add(*region, *id));
            let half = RegionIds::new([half]).unwrap();
            let rest = first.without(&half).unwrap();
            for (region, id) in &pairs {
                let has = |ids: &RegionIds| {
                    let mut has = false;
                    ids.cursor().each(*id, |found| has |= found == *region);
                    has
                };
                prop_assert!(has(&half) != has(&rest));
            }
            for ids in [&first, &again] {
                let mut cursor = ids.cursor();
                for id in pairs.iter().map(|(_, id)| id).chain(&asked) {
                    let expected: Vec<u32> = (0..6).filter(|region| model.contains(&(*region, *id))).collect();
                    let mut found = Vec::new();
                    cursor.each(*id, |region| found.push(region));
                    prop_assert_eq!(cursor.any(*id), !expected.is_empty());
                    prop_assert!(ids.may_have(*id) || expected.is_empty());
                    prop_assert_eq!(&found, &expected);
                    cursor.others(*id, &[5, 0, 3, 1], |region| found.push(region));
                    let others = [5, 0, 3, 1].into_iter().filter(|region| !expected.contains(region));
                    prop_assert!(others.eq(found[expected.len()..].iter().copied()));
                }
            }
        }
    }
}
