//! Sets of element ids that grow on demand and are shared by all workers.

use std::ops::RangeInclusive;
use std::sync::Mutex;

use osmill_model::{ElementId, Kind};
use osmill_stree::{BitmapCollector, RankBitmap};

use crate::error::{Error, Result};

/// A set of ids of one kind: any `i64`, negative ones in a half of their own.
///
/// Threads insert and ask at the same time. Memory follows the ids that are there, not the largest one; see
/// [`BitmapCollector`].
#[derive(Debug, Default)]
pub struct IdSet {
    positive: BitmapCollector,
    rest: BitmapCollector,
}

impl IdSet {
    /// An empty set.
    pub fn new() -> Self {
        IdSet::default()
    }

    /// Adds an id; whether it is new.
    #[inline]
    pub fn insert(&self, id: i64) -> bool {
        if id > 0 {
            self.positive.insert(id as u64)
        } else {
            self.rest.insert(id.unsigned_abs())
        }
    }

    /// Adds many ids, with the cache misses of a block of them overlapped.
    pub fn insert_all(&self, ids: &[i64]) {
        let mut block = [0u64; 64];
        for chunk in ids.chunks(block.len()) {
            if chunk.iter().all(|id| *id > 0) {
                for (place, id) in block.iter_mut().zip(chunk) {
                    *place = *id as u64;
                }
                self.positive.insert_all(&block[..chunk.len()]);
            } else {
                chunk.iter().for_each(|id| {
                    self.insert(*id);
                });
            }
        }
    }

    /// Whether the id was added.
    #[inline]
    pub fn contains(&self, id: i64) -> bool {
        if id > 0 {
            self.positive.contains(id as u64)
        } else {
            self.rest.contains(id.unsigned_abs())
        }
    }

    /// Number of ids. O(memory).
    pub fn count(&self) -> u64 {
        self.positive.count() + self.rest.count()
    }

    /// Bytes taken by the ids.
    pub fn bytes(&self) -> u64 {
        self.positive.bytes() + self.rest.bytes()
    }

    /// Bytes of a page; see [`IdSet::pages_of`].
    pub const PAGE_BYTES: u64 = BitmapCollector::PAGE_BYTES;

    /// The pages that ids from `first` to `last` in the order of sorted files lie in, both positive or neither, by
    /// numbers that ascend in that order. A set has [`IdSet::PAGE_BYTES`] for each page with any id.
    pub fn pages_of(first: i64, last: i64) -> RangeInclusive<u64> {
        let pages = BitmapCollector::pages_of(first.unsigned_abs(), last.unsigned_abs());
        let half = if first > 0 { 1 << 63 } else { 0 };
        half | pages.start()..=half | pages.end()
    }

    /// Calls `visit` with every id, in the order of sorted files. O(memory).
    pub fn for_each(&self, mut visit: impl FnMut(i64)) {
        self.rest.for_each(|id| visit((id as i64).wrapping_neg()));
        self.positive.for_each(|id| visit(id as i64));
    }

    /// 0 and the negative ids by absolute value, and the positive ones.
    pub fn into_halves(self) -> (BitmapCollector, BitmapCollector) {
        (self.rest, self.positive)
    }
}

/// A set of elements: an [`IdSet`] for each kind.
#[derive(Debug, Default)]
pub struct IdSets {
    sets: [IdSet; 3],
}

impl IdSets {
    /// Three empty sets.
    pub fn new() -> Self {
        IdSets::default()
    }

    /// The ids of one kind.
    pub fn of(&self, kind: Kind) -> &IdSet {
        &self.sets[kind as usize]
    }

    /// Adds an element; whether it is new.
    #[inline]
    pub fn insert(&self, element: ElementId) -> bool {
        self.of(element.kind).insert(element.id)
    }

    /// Whether the element was added.
    #[inline]
    pub fn contains(&self, element: ElementId) -> bool {
        self.of(element.kind).contains(element.id)
    }
}

/// Ascending numbers, each with its rank: how many there are before it.
///
/// Memory follows how many there are, not the largest: a few bits each where they are dense, 110 bytes for one that
/// has no other within thousands. The default has none.
#[derive(Debug, Default)]
pub struct Ranks(Table);

/// Where numbers are not strewn thin, the shorter way to the answer is taken.
#[derive(Debug)]
enum Table {
    /// For each 64 numbers which of them are there, and how many are before them.
    Dense(Vec<(u64, u32)>),
    Sparse(Box<RankBitmap<'static>>),
}

impl Default for Table {
    fn default() -> Self {
        Table::Dense(Vec::new())
    }
}

impl Ranks {
    /// Numbers that a dense table may have room for, for each one that is there.
    const SPREAD: u64 = 512;
    /// A dense table has room for so many numbers in any case: 64 KiB.
    const FEW: u64 = 1 << 18;

    /// The ranks of these numbers, which have to be ascending. O(numbers).
    ///
    /// # Errors
    ///
    /// If the system refuses the memory, or there are more than 2^32 numbers.
    pub fn of(numbers: impl Iterator<Item = u64> + Clone) -> Result<Ranks> {
        let (mut count, mut largest) = (0u64, 0);
        numbers
            .clone()
            .for_each(|number| (count, largest) = (count + 1, number));
        let failed = |why: &dyn std::fmt::Display| Error::Failed(format!("a table of ids: {why}"));
        if u32::try_from(count).is_err() {
            return Err(failed(&"there are more than 2^32 ranges of them"));
        }
        if largest >= (count * Self::SPREAD).max(Self::FEW) {
            let table = RankBitmap::from_sorted(numbers).map_err(|error| failed(&error))?;
            return Ok(Ranks(Table::Sparse(Box::new(table))));
        }
        let mut words = vec![(0u64, 0u32); (largest / 64 + 1) as usize];
        for number in numbers {
            words[(number / 64) as usize].0 |= 1 << (number % 64);
        }
        let mut before = 0;
        for (bits, rank) in &mut words {
            *rank = before;
            before += bits.count_ones();
        }
        Ok(Ranks(Table::Dense(words)))
    }

    /// The rank of a number, if it is there. O(1), one cache line where numbers are dense.
    #[inline]
    pub fn get(&self, number: u64) -> Option<usize> {
        match &self.0 {
            Table::Dense(words) => {
                let (bits, rank) = *words.get((number / 64) as usize)?;
                let bit = 1u64 << (number % 64);
                (bits & bit != 0).then(|| rank as usize + (bits & (bit - 1)).count_ones() as usize)
            }
            Table::Sparse(table) => {
                let (rank, present) = table.rank(number);
                present.then_some(rank as usize)
            }
        }
    }
}

/// Ids of one kind, collected blob by blob first and asked for later: a few bits an id.
///
/// [`IdRuns::add`] takes the ids of one blob, from any thread, and packs them if they are ascending: for each
/// 4096 ids a mask of the 64-bit words that are not empty, and those words. [`IdRuns::freeze`] puts [`Ranks`] over
/// them. Asking takes four memory accesses, the first of them to a few hundred kilobytes. What does not fit,
/// negative and huge ids, blobs that are not sorted or that overlap, goes into an [`IdSet`].
#[derive(Debug, Default)]
pub struct IdRuns {
    runs: Mutex<Vec<Run>>,
    rest: IdSet,
}

/// The packed ids of one blob.
#[derive(Debug, Default)]
struct Run {
    groups: Vec<Group>,
    words: Vec<u64>,
}

/// 4096 ids.
#[derive(Debug, Clone, Copy)]
struct Group {
    /// Which of the 64 words are there.
    mask: u64,
    /// Where the first of them is.
    start: u32,
    /// The ids divided by 4096.
    number: u32,
}

/// Ids below this are packed: 2^40, some eighty times what the database has used up.
const PACKED_LIMIT: i64 = 1 << 40;

impl IdRuns {
    /// Nothing collected.
    pub fn new() -> Self {
        IdRuns::default()
    }

    /// Adds the ids of a blob. O(ids).
    pub fn add(&self, ids: &[i64]) {
        let sorted = ids.is_sorted() && ids.first().is_some_and(|id| *id >= 0);
        if !sorted || ids.last().is_some_and(|id| *id >= PACKED_LIMIT) {
            self.rest.insert_all(ids);
            return;
        }
        let mut run = Run::default();
        let mut last_word = u64::MAX;
        for &id in ids {
            let (number, word) = ((id >> 12) as u32, id as u64 >> 6);
            if word != last_word {
                if run.groups.last().is_none_or(|group| group.number != number) {
                    run.groups.push(Group {
                        mask: 0,
                        start: run.words.len() as u32,
                        number,
                    });
                }
                if let Some(group) = run.groups.last_mut() {
                    group.mask |= 1 << (word & 63);
                }
                run.words.push(0);
                last_word = word;
            }
            if let Some(bits) = run.words.last_mut() {
                *bits |= 1 << (id & 63);
            }
        }
        run.groups.shrink_to_fit();
        run.words.shrink_to_fit();
        self.runs
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .push(run);
    }

    /// Makes the ids ready to be asked for. O(ids / 4096) where they are dense.
    pub fn freeze(self) -> Result<FrozenIds> {
        let IdRuns { runs, rest } = self;
        let mut runs = runs
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        runs.sort_unstable_by_key(|run| run.groups.first().map(|group| group.number));
        let numbered = runs.iter().enumerate().flat_map(|(r, run)| {
            let groups = run.groups.iter().enumerate();
            groups.map(move |(g, group)| (group.number, (r as u32, g as u32)))
        });
        let mut places: Vec<(u32, (u32, u32))> = numbered.collect();
        // The stable sort takes runs that follow each other as they are.
        places.sort();
        places.dedup_by(|next, kept| {
            let twice = next.0 == kept.0;
            if twice {
                // Another blob has ids of the same group: usually the one before, at its end.
                let (run, group) = next.1;
                let run = &runs[run as usize];
                run.ids_of(&run.groups[group as usize]).for_each(|id| {
                    rest.insert(id);
                });
            }
            twice
        });
        Ok(FrozenIds {
            numbers: Ranks::of(places.iter().map(|(number, _)| u64::from(*number)))?,
            places: places.into_iter().map(|(_, place)| place).collect(),
            has_rest: rest.bytes() > 0,
            runs,
            rest,
        })
    }
}

impl Run {
    fn ids_of<'r>(&'r self, group: &'r Group) -> impl Iterator<Item = i64> + 'r {
        let words = (0..64).filter(|word| group.mask & (1 << word) != 0);
        words
            .zip(&self.words[group.start as usize..])
            .flat_map(move |(word, bits)| {
                let base = i64::from(group.number) << 12 | word << 6;
                (0..64)
                    .filter(move |bit| bits & (1 << bit) != 0)
                    .map(move |bit| base | bit)
            })
    }
}

/// A set of ids that can be asked; see [`IdRuns`].
#[derive(Debug, Default)]
pub struct FrozenIds {
    runs: Vec<Run>,
    /// Each 4096 ids that there are some of.
    numbers: Ranks,
    /// For each of them the run and the group in it.
    places: Vec<(u32, u32)>,
    rest: IdSet,
    has_rest: bool,
}

impl FrozenIds {
    /// Whether the id was added. O(1).
    #[inline]
    pub fn contains(&self, id: i64) -> bool {
        self.is_packed(id) || self.has_rest && self.rest.contains(id)
    }

    #[inline]
    fn is_packed(&self, id: i64) -> bool {
        let find = || {
            let (run, group) = *self.places.get(self.numbers.get(id as u64 >> 12)?)?;
            let run = self.runs.get(run as usize)?;
            let group = run.groups.get(group as usize)?;
            let word = id as u64 >> 6 & 63;
            if group.mask >> word & 1 == 0 {
                return None;
            }
            let at = group.start + (group.mask & ((1 << word) - 1)).count_ones();
            run.words.get(at as usize)
        };
        find().is_some_and(|bits| bits >> (id & 63) & 1 != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranks_are_places(
            numbers in proptest::collection::btree_set(prop_oneof![0u64..3000, 0u64..1 << 20, any::<u64>()], 0..300),
            dense in any::<bool>(),
        ) {
            let numbers: Vec<u64> = numbers.into_iter().filter(|number| !dense || *number < 1 << 18).collect();
            let ranks = Ranks::of(numbers.iter().copied()).unwrap();
            for &number in &numbers {
                for near in [number.wrapping_sub(1), number, number.wrapping_add(1), number.wrapping_add(64)] {
                    prop_assert_eq!(ranks.get(near), numbers.binary_search(&near).ok());
                }
            }
        }

        #[test]
        fn runs_are_a_set(blobs in proptest::collection::vec((
            proptest::collection::vec(
                prop_oneof![0i64..20_000, -50i64..50, any::<i64>(), 0..PACKED_LIMIT / 1000], 0..300,
            ),
            any::<bool>(),
        ), 0..6)) {
            let runs = IdRuns::new();
            let mut model = std::collections::HashSet::new();
            for (mut ids, sorted) in blobs {
                if sorted {
                    ids.sort_unstable();
                }
                runs.add(&ids);
                model.extend(ids);
            }
            let frozen = runs.freeze().unwrap();
            for id in &model {
                for near in [-4096, -64, -1, 0, 1, 64, 4096].map(|step| id.wrapping_add(step)) {
                    prop_assert_eq!(frozen.contains(near), model.contains(&near), "{}", near);
                }
            }
        }
    }

    #[test]
    fn one_huge_id_costs_little() {
        let runs = IdRuns::new();
        runs.add(&[7, PACKED_LIMIT - 1]);
        let frozen = runs.freeze().unwrap();
        assert!(frozen.contains(7) && frozen.contains(PACKED_LIMIT - 1) && !frozen.contains(8));
        assert_eq!(frozen.places.len(), 2);
    }

    #[test]
    fn any_id_of_any_kind() {
        let sets = IdSets::new();
        let ids = [0, 1, -1, i64::MIN, i64::MAX, 1 << 40, -(1 << 40)];
        for kind in Kind::ALL {
            for id in ids {
                assert!(!sets.contains(ElementId::new(kind, id)));
                assert!(sets.insert(ElementId::new(kind, id)));
                assert!(!sets.insert(ElementId::new(kind, id)));
            }
            assert_eq!(sets.of(kind).count(), ids.len() as u64);
            let mut found = Vec::new();
            sets.of(kind).for_each(|id| found.push(id));
            assert_eq!(found, [0, -1, -(1 << 40), i64::MIN, 1, 1 << 40, i64::MAX]);
        }
        assert!(!sets.contains(ElementId::new(Kind::Way, 2)));
    }
}
