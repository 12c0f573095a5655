//! Ids, each with the regions that it belongs to.
//!
//! Ids are taken 64 at a time: a block of ids and a region have a mask of the ids that belong. Workers note
//! masks in lists of their own ([`Gather`]); between two passes the lists are sorted and put under a table
//! ([`RegionIds`]) with a place for every 64 blocks up to a limit, and a map beyond. Neighbouring ids mostly belong to the same regions, so memory follows
//! the data: about 16 bytes for 64 neighbouring ids and a region, whatever the number of regions and the
//! largest id. A bitmap of ids for each region would need memory for each of them before it holds an id.

use std::collections::HashMap;
use std::ops::Range;

use osmill_engine::{Error, Result};
use osmill_pbf::IndexRecord;

/// Block and bit of an id. Negative ids are in blocks of their own.
#[inline]
fn place(id: i64) -> (u64, u64) {
    let (base, id) = if id >= 0 {
        (0, id as u64)
    } else {
        (1 << 58, !id as u64)
    };
    (base + (id >> 6), 1 << (id & 63))
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    block: u64,
    mask: u64,
    region: u32,
}

/// Ids of regions as a worker notes them.
#[derive(Debug, Default)]
pub struct Gather {
    entries: Vec<Entry>,
    /// How many entries were left when they were last put together.
    settled: usize,
}

impl Gather {
    /// How many of the last entries are looked at for one to add to: about as many as regions lie one in
    /// another.
    const RECENT: usize = 4;
    /// Fewer entries than this are not worth sorting.
    const FEW: usize = 1 << 16;

    /// Notes that an id belongs to a region.
    #[inline]
    pub fn add(&mut self, region: u32, id: i64) {
        let (block, mask) = place(id);
        let mut recent = self.entries.iter_mut().rev().take(Self::RECENT);
        if let Some(entry) = recent.find(|entry| entry.block == block && entry.region == region) {
            entry.mask |= mask;
            return;
        }
        if self.entries.len() >= Self::FEW.max(2 * self.settled) {
            self.settle();
        }
        self.entries.push(Entry { block, mask, region });
    }

    /// Sorts the entries and puts those of the same block and region together.
    fn settle(&mut self) {
        self.entries
            .sort_unstable_by_key(|entry| (entry.block, entry.region));
        self.entries.dedup_by(|next, kept| {
            let same = next.block == kept.block && next.region == kept.region;
            if same {
                kept.mask |= next.mask;
            }
            same
        });
        self.settled = self.entries.len();
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

/// Groups below this number are found by a table: ids below 2^38, some twenty times what the database has used up.
const TABLE_LIMIT: u64 = 1 << 26;

/// Ids of regions, to be asked.
#[derive(Debug)]
pub struct RegionIds {
    /// In the order of their numbers.
    groups: Vec<Group>,
    /// For each number the place of the group plus one, or 0.
    table: Vec<u32>,
    /// The places of groups beyond the table.
    beyond: HashMap<u64, u32>,
    /// For each block that occurs where its entries begin; one more for the end.
    starts: Vec<u32>,
    masks: Vec<u64>,
    regions: Vec<u32>,
}

impl RegionIds {
    /// Puts together what workers have noted. O(entries log entries + largest id / 4096).
    pub fn new(gathers: impl IntoIterator<Item = Gather>) -> Result<RegionIds> {
        let mut all = Gather::default();
        for mut gather in gathers {
            gather.settle();
            if all.entries.is_empty() {
                all = gather;
            } else {
                all.entries.append(&mut gather.entries);
            }
        }
        // Sorted runs one after the other, which the stable sort merges.
        all.entries.sort_by_key(|entry| (entry.block, entry.region));
        all.settle();
        let entries = all.entries;
        if u32::try_from(entries.len()).is_err() {
            return Err(Error::Failed(
                "ids of regions: there are more than 2^32 blocks of them; extract fewer regions at a time"
                    .into(),
            ));
        }
        let (mut groups, mut starts) = (Vec::<Group>::new(), Vec::new());
        for (at, entry) in entries.iter().enumerate() {
            if at > 0 && entries[at - 1].block == entry.block {
                continue;
            }
            let (number, bit) = (entry.block >> 6, 1 << (entry.block & 63));
            match groups.last_mut().filter(|group| group.number == number) {
                Some(group) => group.blocks |= bit,
                None => groups.push(Group {
                    number,
                    blocks: bit,
                    first: starts.len() as u32,
                }),
            }
            starts.push(at as u32);
        }
        starts.push(entries.len() as u32);
        let in_table = groups.partition_point(|group| group.number < TABLE_LIMIT);
        let last = groups[..in_table].last();
        let mut table = vec![0; last.map_or(0, |group| group.number as usize + 1)];
        for (place, group) in (1..).zip(&groups[..in_table]) {
            table[group.number as usize] = place;
        }
        let beyond = (in_table as u32..).zip(&groups[in_table..]);
        Ok(RegionIds {
            beyond: beyond.map(|(place, group)| (group.number, place)).collect(),
            table,
            groups,
            starts,
            masks: entries.iter().map(|entry| entry.mask).collect(),
            regions: entries.iter().map(|entry| entry.region).collect(),
        })
    }

    /// The same as notes, to be put together with others.
    pub fn to_gather(&self) -> Gather {
        let mut entries = Vec::with_capacity(self.masks.len());
        for group in &self.groups {
            let blocks = (0..64).filter(|bit| group.blocks >> bit & 1 == 1);
            for (block, number) in blocks.zip(group.first as usize..) {
                for at in self.starts[number] as usize..self.starts[number + 1] as usize {
                    entries.push(Entry {
                        block: group.number << 6 | block,
                        mask: self.masks[at],
                        region: self.regions[at],
                    });
                }
            }
        }
        let settled = entries.len();
        Gather { entries, settled }
    }

    /// The ids of these regions that `other` does not have in the same region.
    pub fn without(&self, other: &RegionIds) -> Result<RegionIds> {
        let mut entries = self.to_gather().entries;
        entries.retain_mut(|entry| {
            let known = other.entries_of(entry.block);
            if let Some(at) = known.into_iter().find(|at| other.regions[*at] == entry.region) {
                entry.mask &= !other.masks[at];
            }
            entry.mask != 0
        });
        let settled = entries.len();
        RegionIds::new([Gather { entries, settled }])
    }

    /// Whether there is no id.
    pub fn is_empty(&self) -> bool {
        self.masks.is_empty()
    }

    /// Where the entries of a block are.
    #[inline]
    fn entries_of(&self, block: u64) -> Range<usize> {
        let number = block >> 6;
        let place = match usize::try_from(number).ok().and_then(|n| self.table.get(n)) {
            Some(0) => return 0..0,
            Some(place) => *place - 1,
            None => match self.beyond.get(&number) {
                Some(place) => *place,
                None => return 0..0,
            },
        };
        let group = &self.groups[place as usize];
        let bit = 1u64 << (block & 63);
        if group.blocks & bit == 0 {
            return 0..0;
        }
        let number = group.first as usize + (group.blocks & (bit - 1)).count_ones() as usize;
        self.starts[number] as usize..self.starts[number + 1] as usize
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
            block: u64::MAX,
            entries: 0..0,
        }
    }
}

/// Asks about ids; fastest for one near the one before.
#[derive(Debug, Clone)]
pub struct Cursor<'r> {
    ids: &'r RegionIds,
    block: u64,
    entries: Range<usize>,
}

impl Cursor<'_> {
    #[inline]
    fn seek(&mut self, block: u64) {
        if block != self.block {
            self.block = block;
            self.entries = self.ids.entries_of(block);
        }
    }

    /// Whether the id belongs to any region.
    #[inline]
    pub fn any(&mut self, id: i64) -> bool {
        let (block, bit) = place(id);
        self.seek(block);
        self.ids.masks[self.entries.clone()]
            .iter()
            .any(|mask| mask & bit != 0)
    }

    /// Calls `visit` with every one of `regions` that the id does not belong to.
    #[inline]
    pub fn others(&mut self, id: i64, regions: &[u32], mut visit: impl FnMut(u32)) {
        let (block, bit) = place(id);
        self.seek(block);
        let (of_block, masks) = (
            &self.ids.regions[self.entries.clone()],
            &self.ids.masks[self.entries.clone()],
        );
        for region in regions {
            let at = of_block.iter().position(|known| known == region);
            if at.is_none_or(|at| masks[at] & bit == 0) {
                visit(*region);
            }
        }
    }

    /// Calls `visit` with every region that the id belongs to, in ascending order.
    #[inline]
    pub fn each(&mut self, id: i64, mut visit: impl FnMut(u32)) {
        let (block, bit) = place(id);
        self.seek(block);
        for at in self.entries.clone() {
            if self.ids.masks[at] & bit != 0 {
                visit(self.ids.regions[at]);
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
                    gathers[i % parts].settle();
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
                    prop_assert_eq!(&found, &expected);
                    cursor.others(*id, &[5, 0, 3, 1], |region| found.push(region));
                    let others = [5, 0, 3, 1].into_iter().filter(|region| !expected.contains(region));
                    prop_assert!(others.eq(found[expected.len()..].iter().copied()));
                }
            }
        }
    }
}
