//! Order-preserving buckets: the key's value says which cache line it is in.
//!
//! # Layout
//!
//! With `v = key - smallest` (ordered bits), the home of a key is line `(v * multiplier) >> 64`, where the multiplier spreads the
//! span of the keys over the lines. Lines are filled from the left; a key whose home is full *spills* to the next line with room,
//! so all keys stay in order. A line begins with its rank, the number of keys before it. A look-up reads the home line: the
//! position is the rank plus the number of its keys below the query; only if all its keys are below the query, and it is full,
//! may the answer lie further right. Four kinds of line, of which the first that fits is taken:
//!
//! | kind | line | for | filled to |
//! | --- | --- | --- | --- |
//! | narrow | rank `u32`, 30 x `u16` | at least one key in some 700 of the span | 0.75 |
//! | middle | rank `u32`, 15 x `u32` `v` | spans below 2^32 | 0.75 |
//! | split | rank `u32`, 10 x 48 bits | at least one key in 2^42 of the span | 0.75 |
//! | wide | rank `u64`, 7 x `u64` `v` | any keys | 0.7 |
//!
//! A narrow line stores 14 bits of the fraction `v * multiplier mod 2^64`, a split line 45 bits. These are different for different
//! keys of a line as long as the multiplier is at least 2^50 or 2^19, so they say as much as the key. Above the fraction stands
//! `r - d` for a key `d` lines from home, so that order is kept; `d` is at most `r`, which is 2 in narrow and 6 in split lines. A
//! split line has the low 32 bits of all its numbers first and then the high 16 bits of all, which SIMD compares without moving
//! anything. Unused slots are all ones.
//!
//! Smaller lines are not only smaller: a random line of 1.1 GB costs 8 ns where one of 1.8 GB costs 10.
//!
//! This needs keys that are spread about evenly: hashes, random ids. The farthest distance from home is stored and bounds
//! every look-up; keys that would need more than 64 lines are refused with [`Error::Uneven`], and a
//! [`SearchTree`](crate::SearchTree) is the answer. Learned positions are the same idea taken to uneven keys; they need a second
//! array to end the search in, and so a second line.
//!
//! # Batches
//!
//! The home line is asked for 32 queries ahead. Queries that need a further line ask for it and wait in a queue while the
//! batch goes on.
//!
//! # File
//!
//! Parameters: 0 kind (0 wide, 1 middle, 2 narrow, 3 split); 1 smallest key (ordered bits); 2 largest minus smallest; 3 multiplier;
//! 4 farthest distance from home; 5 number of keys not at home. Section: `buckets`.

mod kinds;

use std::marker::PhantomData;

use kinds::{LineKind, Middle, Narrow, Split, Wide};

use crate::error::{Error, Result};
use crate::file::{Kind, PARAMS, Parts, Section, Source, file_methods, malformed};
use crate::kernel::scalar::Scalar;
use crate::kernel::{Batch, Isa, Line, Vector, dispatch, prefetch_ref};
use crate::key::Key;
use crate::memory::{PageReport, Store};
use crate::place::{Placed, Plan, REACH, too_far};
use crate::search::{NOT_FOUND, Search};
use crate::tree::first_descent;

/// Name in errors.
const LAYOUT: &str = "a bucket index";
/// Queries between asking for a line and reading it.
const DISTANCE: usize = 64;
/// Queries that wait for a further line.
const QUEUE: usize = 64;
/// Among keys of which more than this share are not at home, a tree does better.
const MOST_SPILLED: f64 = 0.5;

/// Which kind of line an index has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lines {
    Wide,
    Middle,
    Narrow,
    Split,
}

/// An index over evenly spread keys: one cache line per look-up.
///
/// It holds the keys itself, in 0.7 (dense `u32`) to 1.1 (`u64`; 1.6 if sparse) times their size. The layout is described in the
/// [module documentation](self).
///
/// ```
/// use osmill_stree::{BucketIndex, Search};
///
/// let mut keys: Vec<u64> = (1..5000u64).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect();
/// keys.sort_unstable();
/// let index = BucketIndex::from_sorted(&keys)?;
/// assert_eq!(index.position(keys[1234]), Some(1234));
/// assert_eq!(index.select(4998), Some(keys[4998]));
/// # Ok::<(), osmill_stree::Error>(())
/// ```
#[derive(Debug)]
pub struct BucketIndex<'a, K: Key> {
    keys: u64,
    lines: Store<'a>,
    kind: Lines,
    smallest: u64,
    span: u64,
    multiplier: u64,
    reach: u64,
    spilled: u64,
    isa: Isa,
    key: PhantomData<K>,
}

/// The index as a look-up uses it.
#[derive(Clone, Copy)]
struct View<'v> {
    lines: &'v [Line],
    keys: u64,
    smallest: u64,
    span: u64,
    multiplier: u64,
    reach: u64,
}

/// The product whose high half is the line and whose low half is the place within it.
#[inline(always)]
fn product(value: u64, multiplier: u64) -> u128 {
    u128::from(value) * u128::from(multiplier)
}

impl View<'_> {
    /// The query relative to the smallest key, clamped to the span.
    #[inline(always)]
    fn value(&self, query: u64) -> u64 {
        query.saturating_sub(self.smallest).min(self.span)
    }

    #[inline(always)]
    fn home(&self, value: u64) -> usize {
        ((product(value, self.multiplier) >> 64) as usize).min(self.lines.len() - 1)
    }

    /// Position and presence once the line of the answer is known, with `below` of its keys below the query.
    #[inline(always)]
    fn answer<L: LineKind>(&self, query: u64, line: &Line, below: usize, probe: u64) -> (u64, bool) {
        let position = L::rank(line).wrapping_add(below as u64);
        let value = query.wrapping_sub(self.smallest);
        let found = position < self.keys && value <= self.span && L::slot(line, below) == Some(probe);
        let above = query > self.smallest.wrapping_add(self.span);
        (if above { self.keys } else { position }, found)
    }

    /// Looks at the lines after the home line. O(reach).
    #[inline(always)]
    fn beyond<L: LineKind, V: Vector>(&self, query: u64) -> (u64, bool) {
        let value = self.value(query);
        let product = product(value, self.multiplier);
        let home = self.home(value);
        let last = (home as u64 + self.reach).min(self.lines.len() as u64 - 1) as usize;
        let mut at = home;
        loop {
            let line = &self.lines[at];
            let probe = L::probe(value, product, (at - home) as u64);
            let below = L::below::<V>(line, probe);
            if below < L::CAPACITY || at == last {
                return self.answer::<L>(query, line, below, probe);
            }
            at += 1;
        }
    }
}

/// A batch. `each(i, position, present)`; with `UPPER`, upper bounds.
///
/// Without `ONCE`, `each` hears of a query that needs a further line twice, first of a position that is too small: with nothing
/// but stores to do there, that is faster than the jump that tells such queries from the others.
struct Probe<'v, 'q, K, L, F, const UPPER: bool, const ONCE: bool> {
    view: View<'v>,
    queries: &'q [K],
    kind: PhantomData<L>,
    each: F,
}

/// With `UPPER`, the successor of the query; the largest key stands for itself.
#[inline(always)]
fn needle<K: Key, const UPPER: bool>(query: K) -> u64 {
    if UPPER {
        query.ordered() + u64::from(query != K::MAX)
    } else {
        query.ordered()
    }
}

impl<K: Key, L: LineKind, F: FnMut(usize, u64, bool), const UPPER: bool, const ONCE: bool>
    Probe<'_, '_, K, L, F, UPPER, ONCE>
{
    #[inline(always)]
    fn tell(&mut self, index: usize, (position, found): (u64, bool)) {
        // Nothing lies above the largest key there can be.
        let all = UPPER && self.queries[index] == K::MAX;
        (self.each)(index, if all { self.view.keys } else { position }, found);
    }

    #[inline(always)]
    fn flush<V: Vector>(&mut self, waiting: &[usize]) {
        for &index in waiting {
            let answer = self.view.beyond::<L, V>(needle::<K, UPPER>(self.queries[index]));
            self.tell(index, answer);
        }
    }
}

impl<K: Key, L: LineKind, F: FnMut(usize, u64, bool), const UPPER: bool, const ONCE: bool> Batch
    for Probe<'_, '_, K, L, F, UPPER, ONCE>
{
    #[inline(always)]
    fn run<V: Vector>(mut self) {
        let (view, queries) = (self.view, self.queries);
        let ask = |query: K| {
            let home = view.home(view.value(needle::<K, UPPER>(query)));
            prefetch_ref(&raw const view.lines[home]);
            home
        };
        let mut homes = [0; DISTANCE];
        for (home, &query) in homes.iter_mut().zip(queries) {
            *home = ask(query);
        }
        let mut waiting = [0; QUEUE];
        let mut waiting_len = 0;
        for index in 0..queries.len() {
            let home = homes[index % DISTANCE];
            if let Some(&query) = queries.get(index + DISTANCE) {
                homes[index % DISTANCE] = ask(query);
            }
            let query = needle::<K, UPPER>(queries[index]);
            let value = view.value(query);
            let line = &view.lines[home];
            let probe = L::probe(value, product(value, view.multiplier), 0);
            let below = L::below::<V>(line, probe);
            let beyond = below == L::CAPACITY;
            if ONCE && beyond {
                prefetch_ref(view.lines.as_ptr().wrapping_add(home + 1));
            } else {
                self.tell(index, view.answer::<L>(query, line, below, probe));
            }
            if !ONCE {
                // The home line for those that need no further one.
                prefetch_ref(view.lines.as_ptr().wrapping_add(home + usize::from(beyond)));
            }
            waiting[waiting_len] = index;
            waiting_len += usize::from(beyond);
            if waiting_len == QUEUE {
                self.flush::<V>(&waiting);
                waiting_len = 0;
            }
        }
        self.flush::<V>(&waiting[..waiting_len]);
    }
}

/// What is tried for one kind of line: with the keys and their span.
type Attempt<K, R> = fn(BucketBuilder, &[K], u64) -> Result<R>;

/// Builds a [`BucketIndex`].
#[derive(Clone, Copy, Debug)]
pub struct BucketBuilder {
    threads: usize,
    load: Option<f64>,
}

impl Default for BucketBuilder {
    fn default() -> BucketBuilder {
        BucketBuilder::new()
    }
}

impl BucketBuilder {
    /// A builder of one thread, with the usual filling.
    pub fn new() -> BucketBuilder {
        BucketBuilder {
            threads: 1,
            load: None,
        }
    }

    /// Uses so many threads.
    pub fn threads(mut self, threads: usize) -> BucketBuilder {
        self.threads = threads.max(1);
        self
    }

    /// Fills lines to this share on average, 0.1 to 0.95: less is larger and spills less.
    pub fn load(mut self, load: f64) -> BucketBuilder {
        self.load = Some(load.clamp(0.1, 0.95));
        self
    }

    /// The index over sorted keys, duplicates allowed. Copies them; O(keys).
    ///
    /// # Errors
    ///
    /// [`Error::Unsorted`], [`Error::Uneven`] or [`Error::Memory`].
    pub fn build<K: Key>(self, keys: &[K]) -> Result<BucketIndex<'static, K>> {
        if let Some(position) = first_descent(keys, self.threads) {
            return Err(Error::Unsorted {
                position: position as u64,
                why: "it is below the one before it",
            });
        }
        self.first_even(
            keys,
            [
                Self::build_as::<K, Narrow>,
                Self::build_as::<K, Middle>,
                Self::build_as::<K, Split>,
                Self::build_as::<K, Wide>,
            ],
        )
    }

    /// Bytes and lines per query of the index that would be built of keys known to be sorted.
    pub(crate) fn measure<K: Key>(self, keys: &[K]) -> Result<(u64, f64)> {
        self.first_even(
            keys,
            [
                Self::measure_as::<K, Narrow>,
                Self::measure_as::<K, Middle>,
                Self::measure_as::<K, Split>,
                Self::measure_as::<K, Wide>,
            ],
        )
    }

    /// The result for the first kind of line, smallest first, that can hold the keys.
    fn first_even<K: Key, R>(self, keys: &[K], kinds: [Attempt<K, R>; 4]) -> Result<R> {
        let mut uneven = Error::Uneven {
            layout: LAYOUT,
            why: String::new(),
        };
        for attempt in kinds {
            match attempt(self, keys, span_of(keys)) {
                Err(error @ Error::Uneven { .. }) => uneven = error,
                result => return result,
            }
        }
        Err(uneven)
    }

    /// Whether a kind of line can count the keys and tell them apart.
    fn fits<L: LineKind>(self, keys: usize, span: u64) -> Result<()> {
        let counted = L::RANK_BITS == 64 || keys as u64 >> 32 == 0;
        if counted && L::tells_apart(self.multiplier::<L>(keys, span), span) {
            return Ok(());
        }
        Err(Error::Uneven {
            layout: LAYOUT,
            why: "they are too far apart for a narrow line".into(),
        })
    }

    /// Number of lines that the keys have their homes in.
    fn homes<L: LineKind>(self, keys: usize, span: u64) -> u64 {
        let per_line = L::CAPACITY as f64 * self.load.unwrap_or(L::LOAD);
        ((keys as f64 / per_line).ceil() as u64).clamp(1, span.saturating_add(1))
    }

    fn multiplier<L: LineKind>(self, keys: usize, span: u64) -> u64 {
        let homes = u128::from(self.homes::<L>(keys, span));
        u64::try_from((homes << 64) / (u128::from(span) + 1)).unwrap_or(u64::MAX)
    }

    /// How keys are laid out in lines of a kind.
    #[allow(clippy::type_complexity)] // three closures; no alias can name them
    fn plan<'k, K: Key, L: LineKind>(
        self,
        keys: &'k [K],
        span: u64,
    ) -> Plan<
        impl Fn(usize) -> u64 + Sync + use<'k, K, L>,
        impl Fn(&mut [Line], u64) + Sync + use<'k, K, L>,
        impl Fn(&mut [Line], usize, usize, u64) + Sync + use<'k, K, L>,
    > {
        let multiplier = self.multiplier::<L>(keys.len(), span);
        let smallest = keys.first().map_or(0, |key| key.ordered());
        let value = move |index: usize| keys[index].ordered() - smallest;
        Plan {
            keys: keys.len(),
            capacity: L::CAPACITY,
            lines: 1,
            homes: self.homes::<L>(keys.len(), span),
            home: move |index| (product(value(index), multiplier) >> 64) as u64,
            start: |lines: &mut [Line], rank| lines[0] = L::empty(rank),
            write: move |lines: &mut [Line], slot, index, away| {
                let value = value(index);
                L::put(
                    &mut lines[0],
                    slot,
                    L::probe(value, product(value, multiplier), away),
                );
            },
            layout: LAYOUT,
            reach: L::REACH,
        }
    }

    fn measure_as<K: Key, L: LineKind>(self, keys: &[K], span: u64) -> Result<(u64, f64)> {
        self.fits::<L>(keys.len(), span)?;
        let (buckets, reach, spilled) = self.plan::<K, L>(keys, span).measure();
        if reach > L::REACH {
            return Err(Error::Uneven {
                layout: LAYOUT,
                why: too_far(reach),
            });
        }
        not_too_many(spilled, keys.len())?;
        Ok((buckets * 64, 1.0 + spilled as f64 / keys.len().max(1) as f64))
    }

    fn build_as<K: Key, L: LineKind>(self, keys: &[K], span: u64) -> Result<BucketIndex<'static, K>> {
        self.fits::<L>(keys.len(), span)?;
        let Placed {
            lines,
            reach,
            spilled,
        } = self.plan::<K, L>(keys, span).place(self.threads)?;
        not_too_many(spilled, keys.len())?;
        Ok(BucketIndex {
            keys: keys.len() as u64,
            lines: Store::Owned(lines),
            kind: L::KIND,
            smallest: keys.first().map_or(0, |key| key.ordered()),
            span,
            multiplier: self.multiplier::<L>(keys.len(), span),
            reach,
            spilled,
            isa: Isa::best(),
            key: PhantomData,
        })
    }
}

/// Difference of the largest and the smallest key.
fn span_of<K: Key>(keys: &[K]) -> u64 {
    match keys {
        [first, .., last] => last.ordered() - first.ordered(),
        _ => 0,
    }
}

fn not_too_many(spilled: u64, keys: usize) -> Result<()> {
    if spilled as f64 > keys as f64 * MOST_SPILLED {
        let why = format!("{spilled} of {keys} keys would not be where they belong");
        return Err(Error::Uneven { layout: LAYOUT, why });
    }
    Ok(())
}

impl<K: Key> BucketIndex<'static, K> {
    /// The index over sorted keys; see [`BucketBuilder`].
    ///
    /// # Errors
    ///
    /// [`Error::Unsorted`], [`Error::Uneven`] or [`Error::Memory`].
    pub fn from_sorted(keys: &[K]) -> Result<BucketIndex<'static, K>> {
        BucketBuilder::new().build(keys)
    }
}

impl<'a, K: Key> BucketIndex<'a, K> {
    /// Cache lines that a query for a present key reads, on average, at most.
    pub fn expected_lines(&self) -> f64 {
        1.0 + if self.keys == 0 {
            0.0
        } else {
            self.spilled as f64 / self.keys as f64
        }
    }

    /// Keys per line: 7, 10, 15 or 30, by the kind of line.
    pub fn keys_per_line(&self) -> usize {
        match self.kind {
            Lines::Wide => Wide::CAPACITY,
            Lines::Middle => Middle::CAPACITY,
            Lines::Narrow => Narrow::CAPACITY,
            Lines::Split => Split::CAPACITY,
        }
    }

    /// Which pages its memory lies on; none if it is mapped or borrowed.
    pub fn pages(&self) -> Option<PageReport> {
        self.lines.pages()
    }

    fn view(&self) -> View<'_> {
        View {
            lines: self.lines.lines(),
            keys: self.keys,
            smallest: self.smallest,
            span: self.span,
            multiplier: self.multiplier,
            reach: self.reach,
        }
    }

    pub(crate) fn parts(&self) -> Parts<'_> {
        let mut params = [0; PARAMS];
        let kind = self.kind as u64;
        params[..6].copy_from_slice(&[
            kind,
            self.smallest,
            self.span,
            self.multiplier,
            self.reach,
            self.spilled,
        ]);
        let sections = vec![Section::lines(self.lines.lines())];
        Parts {
            kind: Kind::Buckets,
            key_type: K::TAG,
            keys: self.keys,
            params,
            sections,
        }
    }

    fn from_source(source: Source<'a>) -> Result<BucketIndex<'a, K>> {
        let mut opened = source.open(Kind::Buckets, K::TAG)?;
        let lines = opened.section()?;
        let [kind, smallest, span, multiplier, reach, spilled] =
            std::array::from_fn(|index| opened.params[index]);
        let kind = [Lines::Wide, Lines::Middle, Lines::Narrow, Lines::Split]
            .into_iter()
            .find(|known| *known as u64 == kind);
        match kind {
            Some(kind) if !lines.lines().is_empty() && reach <= REACH => {
                let (keys, isa, key) = (opened.keys, Isa::best(), PhantomData);
                Ok(BucketIndex {
                    keys,
                    lines,
                    kind,
                    smallest,
                    span,
                    multiplier,
                    reach,
                    spilled,
                    isa,
                    key,
                })
            }
            _ => Err(malformed(
                "unknown kind of bucket, no buckets, or a distance from home beyond the limit",
            )),
        }
    }

    fn find(&self, query: u64) -> (u64, bool) {
        let view = self.view();
        match self.kind {
            Lines::Wide => view.beyond::<Wide, Scalar>(query),
            Lines::Middle => view.beyond::<Middle, Scalar>(query),
            Lines::Narrow => view.beyond::<Narrow, Scalar>(query),
            Lines::Split => view.beyond::<Split, Scalar>(query),
        }
    }

    fn probe_all<F: FnMut(usize, u64, bool), const UPPER: bool, const ONCE: bool>(
        &self,
        queries: &[K],
        each: F,
    ) {
        let view = self.view();
        match self.kind {
            Lines::Wide => {
                dispatch(
                    self.isa,
                    Probe::<K, Wide, F, UPPER, ONCE> {
                        view,
                        queries,
                        kind: PhantomData,
                        each,
                    },
                );
            }
            Lines::Middle => {
                dispatch(
                    self.isa,
                    Probe::<K, Middle, F, UPPER, ONCE> {
                        view,
                        queries,
                        kind: PhantomData,
                        each,
                    },
                );
            }
            Lines::Narrow => {
                dispatch(
                    self.isa,
                    Probe::<K, Narrow, F, UPPER, ONCE> {
                        view,
                        queries,
                        kind: PhantomData,
                        each,
                    },
                );
            }
            Lines::Split => {
                dispatch(
                    self.isa,
                    Probe::<K, Split, F, UPPER, ONCE> {
                        view,
                        queries,
                        kind: PhantomData,
                        each,
                    },
                );
            }
        }
    }

    /// The value in a slot of a line, as an offset from the smallest key.
    fn value_at<L: LineKind>(&self, line: usize, slot: usize) -> Option<u64> {
        L::value(&self.lines.lines()[line], line as u64, slot, self.multiplier)
    }
}

file_methods!(BucketIndex<'a, K: Key>);

impl<K: Key> Search<K> for BucketIndex<'_, K> {
    fn len(&self) -> u64 {
        self.keys
    }

    fn isa(&self) -> Isa {
        self.isa
    }

    fn lower_bound(&self, key: K) -> u64 {
        self.find(key.ordered()).0
    }

    fn upper_bound(&self, key: K) -> u64 {
        if key == K::MAX {
            self.keys
        } else {
            self.find(key.ordered() + 1).0
        }
    }

    fn position(&self, key: K) -> Option<u64> {
        let (position, found) = self.find(key.ordered());
        found.then_some(position)
    }

    fn select(&self, position: u64) -> Option<K> {
        if position >= self.keys {
            return None;
        }
        let lines = self.lines.lines();
        let rank = |line: &Line| match self.kind {
            Lines::Wide => Wide::rank(line),
            Lines::Middle => Middle::rank(line),
            Lines::Narrow => Narrow::rank(line),
            Lines::Split => Split::rank(line),
        };
        let line = lines
            .partition_point(|line| rank(line) <= position)
            .checked_sub(1)?;
        let slot = usize::try_from(position - rank(&lines[line])).ok()?;
        let value = match self.kind {
            Lines::Wide => self.value_at::<Wide>(line, slot),
            Lines::Middle => self.value_at::<Middle>(line, slot),
            Lines::Narrow => self.value_at::<Narrow>(line, slot),
            Lines::Split => self.value_at::<Split>(line, slot),
        };
        Some(K::from_ordered(self.smallest.wrapping_add(value?)))
    }

    fn for_each_lower_bound<F: FnMut(usize, u64)>(&self, queries: &[K], mut each: F) {
        self.probe_all::<_, false, true>(queries, |index, position, _| each(index, position));
    }

    fn for_each_upper_bound<F: FnMut(usize, u64)>(&self, queries: &[K], mut each: F) {
        self.probe_all::<_, true, true>(queries, |index, position, _| each(index, position));
    }

    fn for_each_position<F: FnMut(usize, u64)>(&self, queries: &[K], mut each: F) {
        self.probe_all::<_, false, true>(queries, |index, position, found| {
            each(index, if found { position } else { NOT_FOUND });
        });
    }

    fn lower_bound_into(&self, queries: &[K], out: &mut [u64]) {
        assert_eq!(queries.len(), out.len(), "one answer per query");
        self.probe_all::<_, false, false>(queries, |index, position, _| out[index] = position);
    }

    fn upper_bound_into(&self, queries: &[K], out: &mut [u64]) {
        assert_eq!(queries.len(), out.len(), "one answer per query");
        self.probe_all::<_, true, false>(queries, |index, position, _| out[index] = position);
    }

    fn position_into(&self, queries: &[K], out: &mut [u64]) {
        assert_eq!(queries.len(), out.len(), "one answer per query");
        self.probe_all::<_, false, false>(queries, |index, position, found| {
            out[index] = if found { position } else { NOT_FOUND };
        });
    }
}
