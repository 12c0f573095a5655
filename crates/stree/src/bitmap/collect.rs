//! Collecting ids in any order, from any number of threads.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, RwLock};

use super::build::{Page, Pieces, fill_ranks, ones};
use super::{PAGE_LINES, PER_LINE, RankBitmap};
use crate::error::{Error, Result};
use crate::kernel::{Line, prefetch_ref};
use crate::memory::{AtomicBuffer, AtomicLine, LineBuffer};

/// Pages per table of the second level.
const TABLE: u64 = 4096;
/// Tables that the first level points to directly: ids below 2.4 * 10^11.
const TABLES: u64 = 8192;
/// Locks over the pages beyond.
const SHARDS: usize = 64;
/// Pages in the first chunk; each chunk holds twice as many as the one before.
const FIRST_CHUNK: u64 = 64;
/// Chunks, for 2^32 pages.
const CHUNKS: usize = 27;
/// Ids in flight in [`BitmapCollector::insert_all`].
const BLOCK: usize = 32;

/// One second-level table: for each page 0, or the number of its place plus one.
type Table = Box<[AtomicU32]>;

/// A growing set of `u64` ids that threads share: `insert` from all of them, then [`freeze`](BitmapCollector::freeze) into a
/// [`RankBitmap`].
///
/// Bits are set with one atomic operation in pages of 7168 ids that appear on first use, on huge pages where there are any.
/// Memory is 1 KiB per page in use, 17 KiB for an id with no other within millions, and the 128 KiB of the first level.
///
/// ```
/// use osmill_stree::{BitmapCollector, Search};
///
/// let ids = BitmapCollector::new();
/// std::thread::scope(|scope| {
///     scope.spawn(|| ids.insert_all(&[90, 7, 1 << 62]));
///     scope.spawn(|| assert!(ids.insert(8)));
/// });
/// assert!(ids.contains(7) && !ids.contains(9));
/// let set = ids.freeze()?;
/// assert_eq!(set.position(90), Some(2));
/// # Ok::<(), osmill_stree::Error>(())
/// ```
#[derive(Debug)]
pub struct BitmapCollector {
    tables: Box<[OnceLock<Table>]>,
    /// Pages of ids beyond the tables, by page number; the value is the number of the place plus one.
    beyond: Box<[RwLock<HashMap<u64, u32>>]>,
    chunks: [OnceLock<AtomicBuffer>; CHUNKS],
    /// Number of places taken.
    places: Mutex<u32>,
    /// Set once memory was refused; told by `freeze`.
    failure: OnceLock<Error>,
}

impl Default for BitmapCollector {
    fn default() -> BitmapCollector {
        BitmapCollector::new()
    }
}

/// Chunk of a place, and the first line of the place in it.
#[inline(always)]
fn chunk_of(place: u32) -> (usize, usize) {
    let shifted = u64::from(place) + FIRST_CHUNK;
    let chunk = (shifted / FIRST_CHUNK).ilog2();
    (
        chunk as usize,
        ((shifted - (FIRST_CHUNK << chunk)) * PAGE_LINES) as usize,
    )
}

/// Line number, and word and mask within the line.
#[inline(always)]
fn locate(id: u64) -> (u64, usize, u64) {
    let number = id / PER_LINE;
    let bit = id - number * PER_LINE;
    (number, 1 + (bit / 64) as usize, 1 << (bit % 64))
}

impl BitmapCollector {
    /// Bytes of a page.
    pub const PAGE_BYTES: u64 = PAGE_LINES * 64;

    /// An empty set.
    pub fn new() -> BitmapCollector {
        BitmapCollector {
            tables: (0..TABLES).map(|_| OnceLock::new()).collect(),
            beyond: (0..SHARDS).map(|_| RwLock::default()).collect(),
            chunks: std::array::from_fn(|_| OnceLock::new()),
            places: Mutex::new(0),
            failure: OnceLock::new(),
        }
    }

    /// The slot of a page in its table; none for pages beyond the tables, or if there is no table yet.
    #[inline(always)]
    fn slot(&self, page: u64) -> Option<&AtomicU32> {
        let table = self.tables.get(usize::try_from(page / TABLE).ok()?)?;
        Some(&table.get()?[(page % TABLE) as usize])
    }

    /// Place of a page plus one, or 0.
    #[inline(always)]
    fn place(&self, page: u64) -> u32 {
        match self.slot(page) {
            Some(slot) => slot.load(Ordering::Acquire),
            None if page / TABLE < TABLES => 0,
            None => {
                let shard = self.beyond[(page % SHARDS as u64) as usize].read();
                shard
                    .unwrap_or_else(|poisoned| poisoned.into_inner())
                    .get(&page)
                    .copied()
                    .unwrap_or(0)
            }
        }
    }

    /// A line of a page that exists.
    #[inline(always)]
    fn line(&self, place: u32, number: u64) -> Option<&AtomicLine> {
        let (chunk, first) = chunk_of(place.checked_sub(1)?);
        self.chunks[chunk]
            .get()?
            .lines()
            .get(first + (number % PAGE_LINES) as usize)
    }

    /// Takes the next place. The lock makes the chunk's birth visible to whoever sees the place.
    fn take_place(&self, places: &mut u32) -> Result<u32> {
        let limit = Error::TooMany {
            layout: "a bitmap collector",
            limit: u64::from(u32::MAX) * PER_LINE * PAGE_LINES,
        };
        let next = places
            .checked_add(1)
            .filter(|&next| next < u32::MAX - FIRST_CHUNK as u32)
            .ok_or(limit)?;
        let chunk = chunk_of(*places).0;
        if self.chunks[chunk].get().is_none() {
            let lines = (FIRST_CHUNK << chunk) * PAGE_LINES;
            // Only the holder of the lock initialises.
            let _ = self.chunks[chunk].set(AtomicBuffer::zeroed(lines as usize)?);
        }
        *places = next;
        Ok(next)
    }

    /// Makes a page and returns its place plus one.
    #[cold]
    fn make_page(&self, page: u64) -> Result<u32> {
        let mut places = self
            .places
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let present = self.place(page);
        if present != 0 {
            return Ok(present);
        }
        let place = self.take_place(&mut places)?;
        if page / TABLE < TABLES {
            let table = self.tables[(page / TABLE) as usize]
                .get_or_init(|| (0..TABLE).map(|_| AtomicU32::new(0)).collect());
            table[(page % TABLE) as usize].store(place, Ordering::Release);
        } else {
            let shard = self.beyond[(page % SHARDS as u64) as usize].write();
            shard
                .unwrap_or_else(|poisoned| poisoned.into_inner())
                .insert(page, place);
        }
        Ok(place)
    }

    /// Adds an id; returns whether it is new. Lock-free but for the first id of a page.
    ///
    /// If the system refuses memory the id is dropped, and [`freeze`](BitmapCollector::freeze) says so.
    #[inline]
    pub fn insert(&self, id: u64) -> bool {
        let (number, word, mask) = locate(id);
        let page = number / PAGE_LINES;
        let mut place = self.place(page);
        if place == 0 {
            place = match self.make_page(page) {
                Ok(place) => place,
                Err(error) => {
                    let _ = self.failure.set(error);
                    return false;
                }
            };
        }
        let Some(line) = self.line(place, number) else {
            return false;
        };
        // Most ids of a hot line are already there; looking first spares the write.
        line[word].load(Ordering::Relaxed) & mask == 0
            && line[word].fetch_or(mask, Ordering::Relaxed) & mask == 0
    }

    /// Adds many ids, with the cache misses of a block of them overlapped: several times faster than one by one when the set
    /// is larger than the caches.
    pub fn insert_all(&self, ids: &[u64]) {
        for block in ids.chunks(BLOCK) {
            for &id in block {
                if let Some(slot) = self.slot(id / (PER_LINE * PAGE_LINES)) {
                    prefetch_ref(slot);
                }
            }
            for &id in block {
                let (number, word, _) = locate(id);
                let place = self
                    .slot(number / PAGE_LINES)
                    .map_or(0, |slot| slot.load(Ordering::Acquire));
                if let Some(line) = self.line(place, number) {
                    prefetch_ref(&raw const line[word]);
                }
            }
            for &id in block {
                self.insert(id);
            }
        }
    }

    /// Whether an id was added.
    #[inline]
    pub fn contains(&self, id: u64) -> bool {
        let (number, word, mask) = locate(id);
        self.line(self.place(number / PAGE_LINES), number)
            .is_some_and(|line| line[word].load(Ordering::Relaxed) & mask != 0)
    }

    /// Removes an id; returns whether it was there.
    pub fn remove(&self, id: u64) -> bool {
        let (number, word, mask) = locate(id);
        self.line(self.place(number / PAGE_LINES), number)
            .is_some_and(|line| line[word].fetch_and(!mask, Ordering::Relaxed) & mask != 0)
    }

    /// Number of ids. Counts them: O(memory).
    pub fn count(&self) -> u64 {
        let chunks = self.chunks.iter().filter_map(OnceLock::get);
        let words = chunks.flat_map(|chunk| chunk.lines().iter().flatten());
        words
            .map(|word: &AtomicU64| u64::from(word.load(Ordering::Relaxed).count_ones()))
            .sum()
    }

    /// Calls `visit` with every id, in ascending order. O(memory); ids that come in the meantime may be left out.
    pub fn for_each(&self, mut visit: impl FnMut(u64)) {
        for (page, place) in self.pages() {
            for (slot, line) in self.lines_of(place) {
                let first = (page * PAGE_LINES + slot) * PER_LINE;
                for (word, bits) in (0..).zip(&line.0[1..]) {
                    let mut left = *bits;
                    while left != 0 {
                        visit(first + 64 * word + u64::from(left.trailing_zeros()));
                        left &= left - 1;
                    }
                }
            }
        }
    }

    /// The numbers of the pages that ids from `first` to `last` lie in.
    pub fn pages_of(first: u64, last: u64) -> RangeInclusive<u64> {
        let page = |id| id / (PER_LINE * PAGE_LINES);
        page(first)..=page(last)
    }

    /// Bytes reserved for pages.
    pub fn bytes(&self) -> u64 {
        let places = *self
            .places
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        u64::from(places) * Self::PAGE_BYTES
    }

    /// Pages in order of their numbers, with their places.
    fn pages(&self) -> Vec<(u64, u32)> {
        let mut pages = Vec::new();
        for (index, table) in self.tables.iter().enumerate() {
            let Some(table) = table.get() else { continue };
            let places = table.iter().map(|place| place.load(Ordering::Acquire));
            let numbered = (index as u64 * TABLE..).zip(places);
            pages.extend(numbered.filter(|&(_, place)| place != 0));
        }
        let from = pages.len();
        for shard in &self.beyond {
            let shard = shard.read().unwrap_or_else(|poisoned| poisoned.into_inner());
            pages.extend(shard.iter().map(|(&page, &place)| (page, place)));
        }
        pages[from..].sort_unstable();
        pages
    }

    /// The lines of a page that hold an id, with their slots.
    fn lines_of(&self, place: u32) -> impl Iterator<Item = (u64, Line)> + '_ {
        (0..PAGE_LINES).filter_map(move |slot| {
            let line = self.line(place, slot)?;
            let line = Line(std::array::from_fn(|word| line[word].load(Ordering::Relaxed)));
            (line.0[1..] != [0; 7]).then_some((slot, line))
        })
    }

    /// The set as a [`RankBitmap`]; one thread. See [`freeze_with`](BitmapCollector::freeze_with).
    ///
    /// # Errors
    ///
    /// [`Error::Memory`], also if an `insert` was refused memory before.
    pub fn freeze(self) -> Result<RankBitmap<'static>> {
        self.freeze_with(1)
    }

    /// The set as a [`RankBitmap`], made by `threads` threads. O(memory); needs the memory of the result on top of its own.
    ///
    /// # Errors
    ///
    /// As [`freeze`](BitmapCollector::freeze).
    pub fn freeze_with(mut self, threads: usize) -> Result<RankBitmap<'static>> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let pages = self.pages();
        let part = pages.len().div_ceil(threads.max(1)).max(1);
        let parts: Vec<&[(u64, u32)]> = pages.chunks(part).collect();
        // How many lines and ids each part has says where it starts.
        let counts = each_part(&parts, |pages| {
            let lines = pages.iter().flat_map(|&(_, place)| self.lines_of(place));
            lines.fold((0, 0), |(lines, keys), (_, line)| (lines + 1, keys + ones(&line)))
        });
        let mut lines = LineBuffer::zeroed(counts.iter().map(|&(lines, _)| lines).sum())?;
        let mut rest = lines.lines_mut();
        let (mut first_line, mut keys) = (0u64, 0);
        let mut work = Vec::new();
        for (pages, (count, ids)) in parts.iter().zip(counts) {
            let (own, others) = rest.split_at_mut(count);
            rest = others;
            work.push((*pages, own, first_line, keys));
            first_line += count as u64;
            keys += ids;
        }
        let fill = |(pages, own, first_line, rank): (&[(u64, u32)], &mut [Line], u64, u64)| {
            let mut at = 0;
            let mut records = Vec::with_capacity(pages.len());
            for &(number, place) in pages {
                let mut entry = (first_line + at as u64) << 16;
                for (slot, line) in self.lines_of(place) {
                    own[at] = line;
                    at += 1;
                    entry |= 1 << slot;
                }
                if entry as u16 != 0 {
                    records.push(Page { number, entry });
                }
            }
            fill_ranks(own, rank);
            records
        };
        let pages = if work.len() == 1 {
            work.into_iter().flat_map(fill).collect()
        } else {
            let fill = &fill;
            std::thread::scope(|scope| {
                let threads: Vec<_> = work
                    .into_iter()
                    .map(|work| scope.spawn(move || fill(work)))
                    .collect();
                threads.into_iter().flat_map(join).collect()
            })
        };
        drop(self);
        Pieces { lines, pages, keys }.assemble()
    }
}

/// The result of a thread; its panic is this thread's.
fn join<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Applies `work` to every part, each on its own thread if there are several.
fn each_part<P: Sync, R: Send>(parts: &[P], work: impl Fn(&P) -> R + Sync) -> Vec<R> {
    if parts.len() < 2 {
        return parts.iter().map(work).collect();
    }
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = parts.iter().map(|part| scope.spawn(move || work(part))).collect();
        threads.into_iter().map(join).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Search;

    #[test]
    fn places_fill_chunks_without_gaps() {
        let mut expected = (0, 0);
        for place in 0..5000 {
            assert_eq!(chunk_of(place), expected);
            expected.1 += PAGE_LINES as usize;
            if expected.1 as u64 == (FIRST_CHUNK << expected.0) * PAGE_LINES {
                expected = (expected.0 + 1, 0);
            }
        }
        assert!(chunk_of(u32::MAX - FIRST_CHUNK as u32).0 < CHUNKS);
    }

    #[test]
    fn removed_ids_leave_nothing() {
        let ids = BitmapCollector::new();
        assert!(ids.insert(5) && !ids.insert(5) && ids.insert(1 << 50));
        assert!(ids.remove(5) && !ids.remove(5) && !ids.remove(77));
        assert_eq!((ids.count(), ids.bytes()), (1, 2048));
        let set = ids.freeze().unwrap();
        assert_eq!(set.iter().collect::<Vec<_>>(), [1 << 50]);
        assert!(BitmapCollector::new().freeze().unwrap().is_empty());
    }
}
