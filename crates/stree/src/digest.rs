//! Indexes of digests: object ids, content hashes.
//!
//! # Layout
//!
//! A *bucket* is the fewest whole lines that hold a rank (`u32`, the number of ids before the bucket) and three ids, stored as
//! they are: one line for 20-byte ids, two for 32. The home of an id is bucket `(first eight bytes, big-endian) * buckets >> 64`;
//! full buckets spill to the right, so the ids stay sorted. Since digests are spread evenly, that needs no table and no tuning.
//! Rank and whole ids being in one place, a look-up reads one bucket and compares every byte: an answer is exact, for ids that
//! are there and ids that are not. Unused slots are all ones.
//!
//! Digests that are not evenly spread (an adversary can choose ids) are refused when an id would lie more than 64 buckets from
//! home.
//!
//! # Batches
//!
//! As for the [bucket index](crate::buckets): asked for 32 queries ahead; what may lie further right waits in a queue.
//!
//! # File
//!
//! Key type: the length of an id. Parameters: 0 number of homes; 1 farthest distance from home; 2 number of ids not at home.
//! Section: `buckets`.

use crate::error::{Error, Result};
use crate::file::{Kind, PARAMS, Parts, Section, Source, file_methods, malformed};
use crate::kernel::{Batch, Isa, Line, Vector, cast, dispatch, prefetch_ref};
use crate::memory::{PageReport, Store};
use crate::place::{Placed, Plan, REACH};
use crate::search::{NOT_FOUND, Search};

/// Ids per bucket.
const CAPACITY: usize = 3;
/// Share of the slots that is filled.
const LOAD: f64 = 0.6;
/// Bytes of the rank.
const RANK: usize = 4;
/// Queries between asking for a bucket and reading it.
const DISTANCE: usize = 32;
/// Queries that wait for a further bucket.
const QUEUE: usize = 64;

/// Sorted digests of `N` bytes (20 and 32 are usual, 8 to 1024 possible) and their positions: one bucket per look-up.
///
/// 36 bytes per 20-byte id, which includes the id. The layout is described in the [module documentation](self).
///
/// ```
/// use osmill_stree::{DigestIndex, Search};
///
/// let ids = [[7u8; 20], [9; 20], [200; 20]];
/// let index = DigestIndex::from_sorted(&ids)?;
/// assert_eq!(index.position([200; 20]), Some(2));
/// assert_eq!(index.position([201; 20]), None);
/// assert_eq!(index.lower_bound([8; 20]), 1);
/// # Ok::<(), osmill_stree::Error>(())
/// ```
#[derive(Debug)]
pub struct DigestIndex<'a, const N: usize> {
    keys: u64,
    homes: u64,
    reach: u64,
    spilled: u64,
    buckets: Store<'a>,
    isa: Isa,
}

/// First eight bytes, as a number of the same order.
#[inline(always)]
fn prefix<const N: usize>(digest: &[u8; N]) -> u64 {
    const { assert!(N >= 8 && N <= 1024) }
    digest.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// The index as a look-up uses it.
#[derive(Clone, Copy)]
struct View<'v, const N: usize> {
    lines: &'v [Line],
    keys: u64,
    homes: u64,
    reach: u64,
}

impl<'v, const N: usize> View<'v, N> {
    /// Lines per bucket.
    const LINES: usize = (RANK + CAPACITY * N).div_ceil(64);

    fn buckets(&self) -> usize {
        self.lines.len() / Self::LINES
    }

    #[inline(always)]
    fn home(&self, digest: &[u8; N]) -> usize {
        home_of(digest, self.homes).min(self.buckets() as u64 - 1) as usize
    }

    #[inline(always)]
    fn bucket(&self, number: usize) -> &'v [Line] {
        &self.lines[number * Self::LINES..(number + 1) * Self::LINES]
    }

    #[inline(always)]
    fn rank(bucket: &[Line]) -> u64 {
        bucket[0].0[0] & u64::from(u32::MAX)
    }

    /// The id in a slot of a bucket.
    #[inline(always)]
    fn id(bucket: &[Line], slot: usize) -> &[u8; N] {
        let bytes = &cast::bytes(bucket)[RANK + slot * N..];
        // There are `LINES` lines, enough for three ids.
        bytes.first_chunk().unwrap_or(const { &[0; N] })
    }

    /// How many ids of a bucket are below the query.
    #[inline(always)]
    fn below(bucket: &[Line], query: &[u8; N]) -> usize {
        let first = prefix(query);
        (0..CAPACITY)
            .map(|slot| {
                let id = Self::id(bucket, slot);
                let own = prefix(id);
                usize::from(own < first || own == first && id < query)
            })
            .sum()
    }

    /// Lower bound and presence, looking right as far as it takes. O(reach).
    #[inline(always)]
    fn find(&self, query: &[u8; N]) -> (u64, bool) {
        let home = self.home(query);
        let last = (home as u64 + self.reach).min(self.buckets() as u64 - 1) as usize;
        let mut at = home;
        loop {
            let bucket = self.bucket(at);
            let below = Self::below(bucket, query);
            if below < CAPACITY || at == last {
                let position = Self::rank(bucket) + below as u64;
                let found = below < CAPACITY && position < self.keys && Self::id(bucket, below) == query;
                return (position, found);
            }
            at += 1;
        }
    }
}

#[inline(always)]
fn home_of<const N: usize>(digest: &[u8; N], homes: u64) -> u64 {
    ((u128::from(prefix(digest)) * u128::from(homes)) >> 64) as u64
}

/// A batch. `each(i, position or lower bound, present)`; with `EXACT`, only positions of present ids mean anything. Without `ONCE`,
/// `each` hears twice of ids that need a further bucket, the second time the truth; see the bucket index.
struct Probe<'v, 'q, F, const N: usize, const EXACT: bool, const ONCE: bool> {
    view: View<'v, N>,
    queries: &'q [[u8; N]],
    each: F,
}

impl<F: FnMut(usize, u64, bool), const N: usize, const EXACT: bool, const ONCE: bool>
    Probe<'_, '_, F, N, EXACT, ONCE>
{
    #[inline(always)]
    fn flush(&mut self, waiting: &[usize]) {
        for &index in waiting {
            let (position, found) = self.view.find(&self.queries[index]);
            (self.each)(index, position, found);
        }
    }
}

impl<F: FnMut(usize, u64, bool), const N: usize, const EXACT: bool, const ONCE: bool> Batch
    for Probe<'_, '_, F, N, EXACT, ONCE>
{
    #[inline(always)]
    fn run<V: Vector>(mut self) {
        let (view, queries) = (self.view, self.queries);
        let ask = |query: &[u8; N]| {
            let home = view.home(query);
            view.bucket(home).iter().for_each(|line| prefetch_ref(line));
        };
        queries.iter().take(DISTANCE).for_each(ask);
        let mut waiting = [0; QUEUE];
        let mut waiting_len = 0;
        for (index, query) in queries.iter().enumerate() {
            if let Some(query) = queries.get(index + DISTANCE) {
                ask(query);
            }
            let home = view.home(query);
            let bucket = view.bucket(home);
            let (below, found);
            if EXACT && N == 20 {
                // Compare all three ids at once for equality; only absent and spilled ids need an order.
                let equal = query
                    .first_chunk()
                    .map_or(0, |query| V::equal_20(&bucket[0], query));
                found = equal != 0;
                let last = View::<N>::id(bucket, CAPACITY - 1);
                below = if found {
                    equal.trailing_zeros() as usize
                } else if prefix(last) <= prefix(query) {
                    CAPACITY
                } else {
                    0
                };
            } else {
                below = View::below(bucket, query);
                found = below < CAPACITY && View::id(bucket, below) == query;
            }
            let beyond = below == CAPACITY;
            if !(ONCE && beyond) {
                let position = View::<N>::rank(bucket) + below as u64;
                (self.each)(index, position, found && position < view.keys);
            }
            // The home bucket for those that need no further one.
            let next = view
                .lines
                .as_ptr()
                .wrapping_add((home + usize::from(beyond)) * View::<N>::LINES);
            (0..View::<N>::LINES).for_each(|line| prefetch_ref(next.wrapping_add(line)));
            waiting[waiting_len] = index;
            waiting_len += usize::from(beyond);
            if waiting_len == QUEUE {
                self.flush(&waiting);
                waiting_len = 0;
            }
        }
        self.flush(&waiting[..waiting_len]);
    }
}

impl<const N: usize> DigestIndex<'static, N> {
    /// The index of sorted digests; one thread. Copies them.
    ///
    /// # Errors
    ///
    /// As [`with_threads`](DigestIndex::with_threads).
    pub fn from_sorted(digests: &[[u8; N]]) -> Result<DigestIndex<'static, N>> {
        DigestIndex::with_threads(digests, 1)
    }

    /// The index of sorted digests, built by so many threads. O(keys). Duplicates are allowed.
    ///
    /// # Errors
    ///
    /// [`Error::Unsorted`]; [`Error::Uneven`] if they are not spread as digests are; [`Error::TooMany`] from 2^32 on;
    /// [`Error::Memory`].
    pub fn with_threads(digests: &[[u8; N]], threads: usize) -> Result<DigestIndex<'static, N>> {
        if u32::try_from(digests.len()).is_err() {
            return Err(Error::TooMany {
                layout: "a digest index",
                limit: u64::from(u32::MAX),
            });
        }
        if let Some(at) = digests.windows(2).position(|pair| pair[0] > pair[1]) {
            return Err(Error::Unsorted {
                position: at as u64 + 1,
                why: "it is below the one before it",
            });
        }
        let homes = ((digests.len() as f64 / (CAPACITY as f64 * LOAD)).ceil() as u64).max(1);
        let lines = View::<N>::LINES;
        let plan = Plan {
            keys: digests.len(),
            capacity: CAPACITY,
            lines,
            homes,
            home: |index: usize| home_of(&digests[index], homes),
            start: |bucket: &mut [Line], rank: u64| {
                bucket.fill(Line([u64::MAX; 8]));
                cast::u32_lanes_mut(&mut bucket[0])[0] = rank as u32;
            },
            write: |bucket: &mut [Line], slot: usize, index: usize, _| {
                let at = RANK + slot * N;
                cast::bytes_mut(bucket)[at..at + N].copy_from_slice(&digests[index]);
            },
            layout: "a digest index",
            reach: REACH,
        };
        let Placed {
            lines,
            reach,
            spilled,
        } = plan.place(threads)?;
        Ok(DigestIndex {
            keys: digests.len() as u64,
            homes,
            reach,
            spilled,
            buckets: Store::Owned(lines),
            isa: Isa::best(),
        })
    }
}

impl<'a, const N: usize> DigestIndex<'a, N> {
    /// Buckets that a query for a present id reads, on average, at most.
    pub fn expected_buckets(&self) -> f64 {
        1.0 + if self.keys == 0 {
            0.0
        } else {
            self.spilled as f64 / self.keys as f64
        }
    }

    /// Which pages its memory lies on; none if it is mapped or borrowed.
    pub fn pages(&self) -> Option<PageReport> {
        self.buckets.pages()
    }

    fn view(&self) -> View<'_, N> {
        View {
            lines: self.buckets.lines(),
            keys: self.keys,
            homes: self.homes,
            reach: self.reach,
        }
    }

    fn probe<F: FnMut(usize, u64, bool), const EXACT: bool, const ONCE: bool>(
        &self,
        queries: &[[u8; N]],
        each: F,
    ) {
        dispatch(
            self.isa,
            Probe::<F, N, EXACT, ONCE> {
                view: self.view(),
                queries,
                each,
            },
        );
    }

    pub(crate) fn parts(&self) -> Parts<'_> {
        let mut params = [0; PARAMS];
        params[..3].copy_from_slice(&[self.homes, self.reach, self.spilled]);
        let sections = vec![Section::lines(self.buckets.lines())];
        Parts {
            kind: Kind::Digests,
            key_type: N as u32,
            keys: self.keys,
            params,
            sections,
        }
    }

    fn from_source(source: Source<'a>) -> Result<DigestIndex<'a, N>> {
        let mut opened = source.open(Kind::Digests, N as u32)?;
        let buckets = opened.section()?;
        let [homes, reach, spilled] = std::array::from_fn(|index| opened.params[index]);
        let whole = buckets.lines().len() % View::<N>::LINES == 0 && !buckets.lines().is_empty();
        if !whole || reach > REACH || opened.keys > u64::from(u32::MAX) {
            return Err(malformed(
                "the buckets are cut short, or the distance from home is beyond the limit",
            ));
        }
        Ok(DigestIndex {
            keys: opened.keys,
            homes,
            reach,
            spilled,
            buckets,
            isa: Isa::best(),
        })
    }
}

file_methods!(DigestIndex<'a, const N: usize>);

/// The digest that follows in order, if any does.
fn successor<const N: usize>(mut digest: [u8; N]) -> Option<[u8; N]> {
    let at = digest.iter().rposition(|&byte| byte != u8::MAX)?;
    digest[at] += 1;
    digest[at + 1..].fill(0);
    Some(digest)
}

impl<const N: usize> Search<[u8; N]> for DigestIndex<'_, N> {
    fn len(&self) -> u64 {
        self.keys
    }

    fn isa(&self) -> Isa {
        self.isa
    }

    fn lower_bound(&self, key: [u8; N]) -> u64 {
        self.view().find(&key).0
    }

    fn upper_bound(&self, key: [u8; N]) -> u64 {
        successor(key).map_or(self.keys, |next| self.lower_bound(next))
    }

    fn position(&self, key: [u8; N]) -> Option<u64> {
        let (position, found) = self.view().find(&key);
        found.then_some(position)
    }

    fn select(&self, position: u64) -> Option<[u8; N]> {
        if position >= self.keys {
            return None;
        }
        let view = self.view();
        // The last bucket whose rank is at most the position.
        let (mut low, mut high) = (0, view.buckets());
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if View::<N>::rank(view.bucket(middle)) <= position {
                low = middle;
            } else {
                high = middle;
            }
        }
        let slot = position.checked_sub(View::<N>::rank(view.bucket(low)))?;
        (slot < CAPACITY as u64).then(|| *View::id(view.bucket(low), slot as usize))
    }

    fn for_each_lower_bound<F: FnMut(usize, u64)>(&self, queries: &[[u8; N]], mut each: F) {
        self.probe::<_, false, true>(queries, |index, position, _| each(index, position));
    }

    fn for_each_upper_bound<F: FnMut(usize, u64)>(&self, queries: &[[u8; N]], mut each: F) {
        // In blocks, since a successor is made for each query.
        let mut block = [[0; N]; 256];
        for (first, part) in (0..).step_by(block.len()).zip(queries.chunks(block.len())) {
            block
                .iter_mut()
                .zip(part)
                .for_each(|(next, &query)| *next = successor(query).unwrap_or(query));
            self.for_each_lower_bound(&block[..part.len()], |index, position| {
                let all = part[index] == [u8::MAX; N];
                each(first + index, if all { self.keys } else { position });
            });
        }
    }

    fn for_each_position<F: FnMut(usize, u64)>(&self, queries: &[[u8; N]], mut each: F) {
        self.probe::<_, true, true>(queries, |index, position, found| {
            each(index, if found { position } else { NOT_FOUND });
        });
    }

    fn lower_bound_into(&self, queries: &[[u8; N]], out: &mut [u64]) {
        assert_eq!(queries.len(), out.len(), "one answer per query");
        self.probe::<_, false, false>(queries, |index, position, _| out[index] = position);
    }

    fn position_into(&self, queries: &[[u8; N]], out: &mut [u64]) {
        assert_eq!(queries.len(), out.len(), "one answer per query");
        self.probe::<_, true, false>(queries, |index, position, found| {
            out[index] = if found { position } else { NOT_FOUND };
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_whole_lines() {
        assert_eq!(View::<20>::LINES, 1);
        assert_eq!(View::<32>::LINES, 2);
        assert_eq!(
            successor([1, 255, 255, 0, 0, 0, 0, 255]),
            Some([1, 255, 255, 0, 0, 0, 1, 0])
        );
        assert_eq!(successor([255; 8]), None);
    }
}
