//! Sets of ids as bits with ranks: the answer lies in the line that is asked.
//!
//! # Layout
//!
//! The ids are cut into *lines* of 448: line number `id / 448`. A line is 64 bytes: word 0 is its rank (how many ids of the
//! set lie before the line), words 1 to 7 are the bits. So the position of an id, and whether it is there at all, come from
//! one cache line: `word0 + ones before the bit`.
//!
//! * **Plain**: all lines from the first to the last id, with an empty line before and after, so that ids outside the span
//!   need no special case. A look-up is one line.
//! * **Paged**: only lines that hold an id. Sixteen line numbers make a *page* (7168 ids); a page has an 8-byte directory
//!   entry, `offset << 16 | mask`: which of its lines exist, and where the first lies. A line that does not exist is answered
//!   by the rank of the next that does. The directory is 1.1 bytes per 1000 ids of the span and mostly stays in cache, so a
//!   look-up is one line and a bit.
//! * The directory covers the whole span where that costs no more than half of what the lines do. Where ids are strewn too thin
//!   for that, it is cut into *segments* at the large gaps, and a sorted array of segment starts stands above it. Memory
//!   follows the number of ids, whatever their span: at worst (every id alone) 110 bytes an id.
//!
//! The plain layout is taken when it is at most a quarter larger. The rank in the line is `rank9` (Vigna, 2008) taken to the
//! width of a modern line, with the rank moved into the line that it counts for, so that no second array is read.
//!
//! `select` goes from a sample of every 4096th id to a binary search among the few lines or directory entries between
//! two samples, then within the line.
//!
//! # File
//!
//! Key type `u64`. Parameters: 0 layout (0 plain, 1 paged); 1 number of the first line, of a multiple of 16 when paged; 2 number
//! of directory entries; 3 number of segments; 4 number of samples. Sections: `lines`; `directory`, one `u64` per entry, the
//! first and the last of each segment's run being entries without lines; `segments`, pairs of first page and first entry, with
//! a closing pair; `samples`, one `u64` each, a line (plain) or a directory entry (paged). Unused tails of lines are zero.

mod build;
mod collect;

pub use build::RankBitmapBuilder;
pub(crate) use build::size_for;
pub use collect::BitmapCollector;

use crate::error::Result;
use crate::file::{Kind, Opened, PARAMS, Parts, Section, Source, file_methods};
use crate::kernel::{Batch, Isa, Line, Vector, cast, dispatch, prefetch_ref};
use crate::key::Key;
use crate::memory::{PageReport, Store};
use crate::search::{NOT_FOUND, Search};

/// Ids per line.
const PER_LINE: u64 = 448;
/// Lines per page.
const PAGE_LINES: u64 = 16;
/// Ids between two samples of `select`.
const SAMPLE: u64 = 4096;
/// Queries between asking for a line and reading it.
const DISTANCE: usize = 32;

/// A set of `u64` ids that knows the position of each: bits with ranks in the same cache line.
///
/// Best for ids that are dense somewhere: from about one id in 300 on it is the smallest and fastest of the indexes. Built by
/// [`RankBitmapBuilder`] from ascending ids, or by [`BitmapCollector`] from ids in any order on any number of threads. The
/// layout is described in the [module documentation](self).
///
/// ```
/// use osmill_stree::{NOT_FOUND, RankBitmap, Search};
///
/// let set = RankBitmap::from_sorted([3, 5, 1_000_000_007, 1_000_000_008])?;
/// assert_eq!(set.position(1_000_000_007), Some(2));
/// assert_eq!(set.select(3), Some(1_000_000_008));
/// let mut positions = [0; 2];
/// set.position_into(&[5, 4], &mut positions);
/// assert_eq!(positions, [1, NOT_FOUND]);
/// # Ok::<(), osmill_stree::Error>(())
/// ```
#[derive(Debug)]
pub struct RankBitmap<'a> {
    keys: u64,
    paged: bool,
    /// Number of the first line of the span; a multiple of [`PAGE_LINES`] when paged.
    first_line: u64,
    lines: Store<'a>,
    directory: Store<'a>,
    directory_len: usize,
    segments: Store<'a>,
    segments_len: usize,
    samples: Store<'a>,
    samples_len: usize,
    isa: Isa,
}

/// The arrays of a bitmap, as a batch uses them. None is empty but `directory` and `segments` when plain.
#[derive(Clone, Copy)]
struct View<'v> {
    lines: &'v [Line],
    directory: &'v [u64],
    /// First page and first entry of each segment.
    segments: &'v [[u64; 2]],
    first_line: u64,
}

/// Bits below `slot` of a page's mask, `slot < 16`.
#[inline(always)]
fn lines_before(mask: u16, slot: u64) -> u64 {
    u64::from((mask & ((1u16 << (slot & 15)) - 1)).count_ones())
}

/// Where the answer to one query lies: a line and a bit in it, or a line that only lends its rank.
#[derive(Clone, Copy)]
struct Spot {
    line: usize,
    bit: u32,
    /// Whether the bit is that of the query: 0 or 1.
    exists: u32,
}

impl View<'_> {
    #[inline(always)]
    fn spot_plain(&self, id: u64) -> Spot {
        let line = id / PER_LINE;
        let bit = (id - line * PER_LINE) as u32;
        // Line 0 is the empty one before the span.
        let index = (line + 1)
            .saturating_sub(self.first_line)
            .min(self.lines.len() as u64 - 1);
        Spot {
            line: index as usize,
            bit,
            exists: 1,
        }
    }

    /// Entry of the directory for a page.
    #[inline(always)]
    fn entry_of(&self, page: u64) -> usize {
        let (mut first, mut start, mut end) = (self.segments[0][0], self.segments[0][1], self.segments[1][1]);
        if self.segments.len() > 2 {
            let after =
                self.segments[..self.segments.len() - 1].partition_point(|segment| segment[0] <= page);
            let segment = after.saturating_sub(1);
            [first, start] = self.segments[segment];
            end = self.segments[segment + 1][1];
        }
        // The entry before a segment's first is empty, and so is its last: pages outside land there.
        let entry = start
            .saturating_add((page + 1).saturating_sub(first))
            .min(end.wrapping_sub(1));
        entry.min(self.directory.len() as u64 - 1) as usize
    }

    #[inline(always)]
    fn spot_paged(&self, entry: usize, id: u64) -> Spot {
        let number = id / PER_LINE;
        let bit = id - number * PER_LINE;
        let entry = self.directory[entry];
        let slot = number % PAGE_LINES;
        let mask = entry as u16;
        let exists = u64::from(mask >> slot & 1);
        let line = ((entry >> 16) + lines_before(mask, slot)).min(self.lines.len() as u64 - 1);
        Spot {
            line: line as usize,
            bit: (bit * exists) as u32,
            exists: exists as u32,
        }
    }

    /// Rank of the query at a spot, and whether it is there (0 or 1).
    #[inline(always)]
    fn answer<V: Vector>(&self, spot: Spot) -> (u64, u64) {
        let line = &self.lines[spot.line];
        let bit = line.0[1 + (spot.bit as usize / 64).min(6)] >> (spot.bit % 64) & u64::from(spot.exists);
        (line.0[0].wrapping_add(V::ones_before(line, spot.bit) as u64), bit)
    }
}

/// Ranks and presence of a batch. `each(i, rank, present)`.
struct RankBatch<'v, 'q, K, F, const PAGED: bool> {
    view: View<'v>,
    queries: &'q [K],
    each: F,
}

impl<K: Key, F: FnMut(usize, u64, u64), const PAGED: bool> Batch for RankBatch<'_, '_, K, F, PAGED> {
    #[inline(always)]
    fn run<V: Vector>(mut self) {
        let RankBatch {
            view,
            queries,
            ref mut each,
        } = self;
        let mut spots = [Spot {
            line: 0,
            bit: 0,
            exists: 0,
        }; DISTANCE];
        if !PAGED {
            // Two stages: ask for the line, read the line.
            for (index, query) in queries.iter().enumerate() {
                let spot = view.spot_plain(query.ordered());
                prefetch_ref(&raw const view.lines[spot.line]);
                let due = std::mem::replace(&mut spots[index % DISTANCE], spot);
                if index >= DISTANCE {
                    let (rank, present) = view.answer::<V>(due);
                    each(index - DISTANCE, rank, present);
                }
            }
        } else {
            // Three stages: ask for the directory entry, read it and ask for the line, read the line.
            let mut entries = [0usize; DISTANCE];
            let total = queries.len();
            let lag = DISTANCE.min(total);
            for (entry, query) in entries.iter_mut().zip(queries) {
                *entry = view.entry_of(query.ordered() / (PER_LINE * PAGE_LINES));
                prefetch_ref(&raw const view.directory[*entry]);
            }
            for index in 0..total {
                let slot = index % DISTANCE;
                let spot = view.spot_paged(entries[slot], queries[index].ordered());
                prefetch_ref(&raw const view.lines[spot.line]);
                if let Some(query) = queries.get(index + lag) {
                    entries[slot] = view.entry_of(query.ordered() / (PER_LINE * PAGE_LINES));
                    prefetch_ref(&raw const view.directory[entries[slot]]);
                }
                let due = std::mem::replace(&mut spots[slot], spot);
                if index >= DISTANCE {
                    let (rank, present) = view.answer::<V>(due);
                    each(index - DISTANCE, rank, present);
                }
            }
        }
        for index in queries.len().saturating_sub(DISTANCE)..queries.len() {
            let (rank, present) = view.answer::<V>(spots[index % DISTANCE]);
            each(index, rank, present);
        }
    }
}

/// The number of the bit that is the `nth` set one among words 1 to 7, counting from 0.
fn nth_one(line: &Line, mut nth: u64) -> Option<u64> {
    for (index, &word) in line.0[1..].iter().enumerate() {
        let ones = u64::from(word.count_ones());
        if nth < ones {
            let word = (0..nth).fold(word, |word, _| word & (word - 1));
            return Some(64 * index as u64 + u64::from(word.trailing_zeros()));
        }
        nth -= ones;
    }
    None
}

impl<'a> RankBitmap<'a> {
    fn view(&self) -> View<'_> {
        View {
            lines: self.lines.lines(),
            directory: &cast::keys(self.directory.lines())[..self.directory_len],
            segments: &cast::keys::<u64>(self.segments.lines()).as_chunks().0[..self.segments_len],
            first_line: self.first_line,
        }
    }

    /// Runs a batch of queries of any key type, taken by their ordered bits. `each(i, rank, present)`.
    pub(crate) fn for_each_rank<K: Key, F: FnMut(usize, u64, u64)>(&self, queries: &[K], each: F) {
        let view = self.view();
        if self.paged {
            dispatch(self.isa, RankBatch::<_, _, true> { view, queries, each });
        } else {
            dispatch(self.isa, RankBatch::<_, _, false> { view, queries, each });
        }
    }

    /// Rank of an id (how many of the set lie before it), and whether it is of the set. One or two cache lines.
    pub fn rank(&self, id: u64) -> (u64, bool) {
        let view = self.view();
        let spot = if self.paged {
            view.spot_paged(view.entry_of(id / (PER_LINE * PAGE_LINES)), id)
        } else {
            view.spot_plain(id)
        };
        let (rank, present) = view.answer::<crate::kernel::scalar::Scalar>(spot);
        (rank, present == 1)
    }

    /// Whether the layout is the paged one.
    pub fn is_paged(&self) -> bool {
        self.paged
    }

    /// The ids, ascending.
    ///
    /// ```
    /// use osmill_stree::RankBitmap;
    ///
    /// let set = RankBitmap::from_sorted([1, 1 << 40])?;
    /// assert!(set.iter().eq([1, 1 << 40]));
    /// # Ok::<(), osmill_stree::Error>(())
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        let view = self.view();
        let plain = (!self.paged).then(|| {
            let lines = (0..).zip(view.lines.iter().skip(1));
            lines.map(|(index, line)| (self.first_line.wrapping_add(index), *line))
        });
        let paged = self.paged.then(move || {
            view.segments.windows(2).flat_map(move |pair| {
                let entries = pair[0][1] as usize..pair[1][1] as usize;
                let entries = view.directory.get(entries).unwrap_or(&[]);
                let pages = (0..).zip(entries.iter().skip(1));
                pages.flat_map(move |(index, &entry)| {
                    let page = pair[0][0].wrapping_add(index);
                    let slots = (0..PAGE_LINES).filter(move |slot| entry >> slot & 1 == 1);
                    slots.filter_map(move |slot| {
                        let line = (entry >> 16) + lines_before(entry as u16, slot);
                        let number = page.wrapping_mul(PAGE_LINES).wrapping_add(slot);
                        view.lines.get(line as usize).map(|line| (number, *line))
                    })
                })
            })
        });
        plain
            .into_iter()
            .flatten()
            .chain(paged.into_iter().flatten())
            .flat_map(|(number, line)| {
                (0..7).flat_map(move |word| {
                    let first = number.wrapping_mul(PER_LINE).wrapping_add(64 * word);
                    let bits = line.0[1 + word as usize];
                    std::iter::successors(Some(bits), |bits| Some(bits & bits.wrapping_sub(1)))
                        .take_while(|&bits| bits != 0)
                        .map(move |bits| first.wrapping_add(u64::from(bits.trailing_zeros())))
                })
            })
    }

    /// Which pages its memory lies on; none if it is mapped or borrowed.
    pub fn pages(&self) -> Option<PageReport> {
        self.lines.pages()
    }

    pub(crate) fn parts(&self) -> Parts<'_> {
        let mut params = [0; PARAMS];
        params[..5].copy_from_slice(&[
            u64::from(self.paged),
            self.first_line,
            self.directory_len as u64,
            self.segments_len as u64,
            self.samples_len as u64,
        ]);
        let stores = [&self.lines, &self.directory, &self.segments, &self.samples];
        let sections = stores.map(|store| Section::lines(store.lines())).to_vec();
        Parts {
            kind: Kind::Bitmap,
            key_type: <u64 as Key>::TAG,
            keys: self.keys,
            params,
            sections,
        }
    }

    fn from_source(source: Source<'a>) -> Result<RankBitmap<'a>> {
        RankBitmap::from_opened(source.open(Kind::Bitmap, <u64 as Key>::TAG)?)
    }

    fn from_opened(mut opened: Opened<'a>) -> Result<RankBitmap<'a>> {
        let [paged, first_line, directory_len, segments_len, samples_len] =
            std::array::from_fn(|index| opened.params[index]);
        let bitmap = RankBitmap {
            keys: opened.keys,
            paged: paged == 1,
            first_line,
            lines: opened.section()?,
            directory: opened.section()?,
            directory_len: usize::try_from(directory_len).unwrap_or(usize::MAX),
            segments: opened.section()?,
            segments_len: usize::try_from(segments_len).unwrap_or(usize::MAX),
            samples: opened.section()?,
            samples_len: usize::try_from(samples_len).unwrap_or(usize::MAX),
            isa: Isa::best(),
        };
        let lengths = [
            (bitmap.directory_len, bitmap.directory.lines().len() * 8),
            (bitmap.segments_len, bitmap.segments.lines().len() * 4),
            (bitmap.samples_len, bitmap.samples.lines().len() * 8),
        ];
        let missing = bitmap.lines.lines().is_empty()
            || paged > 1
            || bitmap.paged && (bitmap.directory_len == 0 || bitmap.segments_len < 2);
        if missing || lengths.iter().any(|(used, there)| used > there) {
            return Err(crate::file::malformed(
                "the sections of the bitmap are shorter than its parameters say",
            ));
        }
        Ok(bitmap)
    }

    /// Rank at the start of a line (plain) or of a directory entry (paged), clamped to the arrays.
    fn rank_at(&self, view: View<'_>, at: usize) -> u64 {
        let line = if self.paged {
            (view.directory[at] >> 16) as usize
        } else {
            at
        };
        view.lines[line.min(view.lines.len() - 1)].0[0]
    }
}

file_methods!(RankBitmap<'a>);

impl Search<u64> for RankBitmap<'_> {
    fn len(&self) -> u64 {
        self.keys
    }

    fn isa(&self) -> Isa {
        self.isa
    }

    fn lower_bound(&self, key: u64) -> u64 {
        self.rank(key).0
    }

    fn upper_bound(&self, key: u64) -> u64 {
        let (rank, present) = self.rank(key);
        rank.wrapping_add(u64::from(present))
    }

    fn position(&self, key: u64) -> Option<u64> {
        let (rank, present) = self.rank(key);
        present.then_some(rank)
    }

    fn select(&self, position: u64) -> Option<u64> {
        if position >= self.keys {
            return None;
        }
        let view = self.view();
        let count = if self.paged {
            view.directory.len()
        } else {
            view.lines.len()
        };
        let samples = &cast::keys::<u64>(self.samples.lines())[..self.samples_len];
        let sample = (position / SAMPLE) as usize;
        let bound = |sample: usize, or: usize| samples.get(sample).map_or(or, |&at| at as usize).min(count);
        // The last line or entry whose rank is at most the position.
        let (mut low, mut high) = (
            bound(sample, 0),
            bound(sample + 1, count).saturating_add(1).min(count),
        );
        while high.saturating_sub(low) > 1 {
            let middle = low + (high - low) / 2;
            if self.rank_at(view, middle) <= position {
                low = middle;
            } else {
                high = middle;
            }
        }
        if low >= count {
            return None;
        }
        if !self.paged {
            let line = &view.lines[low];
            let bit = nth_one(line, position.wrapping_sub(line.0[0]))?;
            let number = self.first_line.wrapping_add(low as u64).wrapping_sub(1);
            return Some(number.wrapping_mul(PER_LINE).wrapping_add(bit));
        }
        let entry = view.directory[low];
        let (slot, line) = (0..PAGE_LINES)
            .filter(|slot| entry >> slot & 1 == 1)
            .filter_map(|slot| {
                let line = (entry >> 16) + lines_before(entry as u16, slot);
                view.lines.get(line as usize).map(|line| (slot, line))
            })
            .take_while(|(_, line)| line.0[0] <= position)
            .last()?;
        let segment = view
            .segments
            .partition_point(|segment| segment[1] <= low as u64)
            .checked_sub(1)?;
        let [first, start] = view.segments[segment];
        // A segment's run starts with an entry without lines, which stands for the page before its first.
        let page = first.wrapping_add(low as u64 - start).wrapping_sub(1);
        let bit = nth_one(line, position.wrapping_sub(line.0[0]))?;
        let number = page.wrapping_mul(PAGE_LINES).wrapping_add(slot);
        Some(number.wrapping_mul(PER_LINE).wrapping_add(bit))
    }

    fn for_each_lower_bound<F: FnMut(usize, u64)>(&self, queries: &[u64], mut each: F) {
        self.for_each_rank(queries, |index, rank, _| each(index, rank));
    }

    fn for_each_upper_bound<F: FnMut(usize, u64)>(&self, queries: &[u64], mut each: F) {
        self.for_each_rank(queries, |index, rank, present| {
            each(index, rank.wrapping_add(present))
        });
    }

    fn for_each_position<F: FnMut(usize, u64)>(&self, queries: &[u64], mut each: F) {
        // All ones where absent.
        const { assert!(NOT_FOUND == u64::MAX) }
        self.for_each_rank(queries, |index, rank, present| {
            each(index, rank | present.wrapping_sub(1))
        });
    }
}
