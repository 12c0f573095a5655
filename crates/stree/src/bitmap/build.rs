//! Building a bitmap from ascending ids, and the last step that all builders share.

use super::{PAGE_LINES, PER_LINE, RankBitmap, SAMPLE};
use crate::error::{Error, Result};
use crate::kernel::{Isa, Line};
use crate::memory::{LineBuffer, Store};

/// A flat directory may always be this many bytes.
const FREE_DIRECTORY: u64 = 64 << 10;
/// Pages without ids at which a directory that has become too large is cut.
const LARGE_GAP: u64 = 16;

/// A page that has lines: its number, and its directory entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page {
    pub number: u64,
    /// `offset << 16 | mask`.
    pub entry: u64,
}

/// Lines with ranks, in id order, and the pages they belong to.
#[derive(Debug)]
pub(super) struct Pieces {
    pub lines: LineBuffer,
    pub pages: Vec<Page>,
    pub keys: u64,
}

/// An array of `u64` in lines.
fn words(values: impl ExactSizeIterator<Item = u64>) -> Result<(Store<'static>, usize)> {
    let len = values.len();
    let mut buffer = LineBuffer::zeroed(len.div_ceil(8))?;
    buffer
        .keys_mut::<u64>()
        .iter_mut()
        .zip(values)
        .for_each(|(word, value)| *word = value);
    Ok((Store::Owned(buffer), len))
}

impl Pieces {
    /// Chooses the layout and lays the pieces out.
    pub(super) fn assemble(self) -> Result<RankBitmap<'static>> {
        let (Some(first), Some(last)) = (self.pages.first(), self.pages.last()) else {
            return self.plain(0, 0);
        };
        let slot = |entry: u64, last| {
            u64::from(if last {
                15 - (entry as u16).leading_zeros()
            } else {
                entry.trailing_zeros()
            })
        };
        let first_line = first.number * PAGE_LINES + slot(first.entry, false);
        let last_line = last.number * PAGE_LINES + slot(last.entry, true);
        let span = last_line - first_line + 1;
        let paged_bytes = self.lines.len() as u64 * 64 + (last.number - first.number + 3).saturating_mul(8);
        if span.saturating_add(2).saturating_mul(64) <= (paged_bytes + paged_bytes / 4).max(1024) {
            self.plain(first_line, span as usize)
        } else {
            self.paged()
        }
    }

    /// Spreads the lines over the span, in place, from the back: no line moves to before where it was.
    fn plain(mut self, first_line: u64, span: usize) -> Result<RankBitmap<'static>> {
        let mut from = self.lines.len();
        self.lines.resize(span + 2)?;
        let lines = self.lines.lines_mut();
        let mut to = span + 1;
        let mut rank = self.keys;
        let empty = |rank| Line([rank, 0, 0, 0, 0, 0, 0, 0]);
        for page in self.pages.iter().rev() {
            for slot in (0..PAGE_LINES).rev().filter(|slot| page.entry >> slot & 1 == 1) {
                let place = (page.number * PAGE_LINES + slot - first_line) as usize + 1;
                from -= 1;
                let line = lines[from];
                lines[place + 1..=to].fill(empty(rank));
                lines[place] = line;
                rank = line.0[0];
                to = place - 1;
            }
        }
        lines[..=to].fill(empty(rank));
        let mut samples = Vec::new();
        for (index, line) in lines.iter().enumerate() {
            let next = lines.get(index + 1).map_or(self.keys, |next| next.0[0]);
            if next > line.0[0] {
                sample(&mut samples, next, index);
            }
        }
        self.finish(false, first_line, samples, Vec::new(), Vec::new())
    }

    fn paged(mut self) -> Result<RankBitmap<'static>> {
        let sentinel = self.lines.len() as u64;
        self.lines.push(Line([self.keys, 0, 0, 0, 0, 0, 0, 0]))?;
        let pages = std::mem::take(&mut self.pages);
        let span = pages.last().map_or(0, |last| last.number) - pages.first().map_or(0, |first| first.number);
        let flat = span.saturating_mul(8) <= (sentinel * 32).max(FREE_DIRECTORY);
        let mut directory: Vec<u64> = Vec::new();
        let mut segments: Vec<[u64; 2]> = Vec::new();
        let mut samples = Vec::new();
        let mut next_page = None;
        for page in &pages {
            let offset = page.entry >> 16;
            match next_page {
                Some(next) if flat || page.number - next <= LARGE_GAP => {
                    // Pages without ids: the entry has no lines and lends the rank of the page that follows.
                    directory.extend((next..page.number).map(|_| offset << 16));
                }
                _ => {
                    if next_page.is_some() {
                        directory.push(offset << 16);
                    }
                    segments.push([page.number, directory.len() as u64]);
                    directory.push(offset << 16);
                }
            }
            let after = offset as usize + (page.entry as u16).count_ones() as usize;
            sample(&mut samples, self.lines.lines()[after].0[0], directory.len());
            directory.push(page.entry);
            next_page = Some(page.number + 1);
        }
        directory.push(sentinel << 16);
        segments.push([u64::MAX, directory.len() as u64]);
        let first_line = pages.first().map_or(0, |first| first.number * PAGE_LINES);
        self.finish(true, first_line, samples, directory, segments)
    }

    fn finish(
        self,
        paged: bool,
        first_line: u64,
        samples: Vec<u64>,
        directory: Vec<u64>,
        segments: Vec<[u64; 2]>,
    ) -> Result<RankBitmap<'static>> {
        let (samples, samples_len) = words(samples.into_iter())?;
        let (directory, directory_len) = words(directory.into_iter())?;
        let (flat_segments, words_len) = words(segments.into_flattened().into_iter())?;
        Ok(RankBitmap {
            keys: self.keys,
            paged,
            first_line,
            lines: Store::Owned(self.lines),
            directory,
            directory_len,
            segments: flat_segments,
            segments_len: words_len / 2,
            samples,
            samples_len,
            isa: Isa::best(),
        })
    }
}

/// Whether all lines of a span take at most a quarter more than those that hold ids, with their directory.
fn plain_is_better(first_line: u64, last_line: u64, lines: u64) -> bool {
    let paged = lines * 64 + (last_line / PAGE_LINES - first_line / PAGE_LINES + 3).saturating_mul(8);
    (last_line - first_line).saturating_add(3).saturating_mul(64) <= (paged + paged / 4).max(1024)
}

/// Bytes of the parts of a bitmap that look-ups read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Size {
    pub lines: u64,
    /// Zero for the plain layout.
    pub directory: u64,
}

/// What the bitmap of ascending ids will take. For ids so thin that the directory is cut, an upper bound.
pub(crate) fn size_for(ids: impl Iterator<Item = u64>) -> Size {
    let (mut first, mut last, mut lines, mut pages) = (None, 0, 0u64, 0u64);
    for id in ids {
        let line = id / PER_LINE;
        if first.is_none() || line != last {
            lines += 1;
            pages += u64::from(first.is_none() || line / PAGE_LINES != last / PAGE_LINES);
        }
        first.get_or_insert(line);
        last = line;
    }
    let Some(first) = first else {
        return Size {
            lines: 128,
            directory: 0,
        };
    };
    if plain_is_better(first, last, lines) {
        return Size {
            lines: (last - first + 3) * 64,
            directory: 0,
        };
    }
    let flat = (last / PAGE_LINES - first / PAGE_LINES + 3).saturating_mul(8);
    let cut = pages.saturating_mul(8 * (LARGE_GAP + 2) + 16);
    Size {
        lines: (lines + 1) * 64,
        directory: if flat <= (lines * 32).max(FREE_DIRECTORY) {
            flat
        } else {
            cut
        },
    }
}

/// Notes `place` for every sample that it holds, given the rank after it.
fn sample(samples: &mut Vec<u64>, rank_after: u64, place: usize) {
    while (samples.len() as u64) * SAMPLE < rank_after {
        samples.push(place as u64);
    }
}

/// Builds a [`RankBitmap`] from ascending ids, one at a time, in the memory of the result: the ids are never held.
///
/// ```
/// use osmill_stree::{RankBitmapBuilder, Search};
///
/// let mut builder = RankBitmapBuilder::new()?;
/// for id in (0..10_000).step_by(3) {
///     builder.push(id)?;
/// }
/// let set = builder.finish()?;
/// assert_eq!(set.position(9_999), Some(3333));
/// # Ok::<(), osmill_stree::Error>(())
/// ```
#[derive(Debug)]
pub struct RankBitmapBuilder {
    pieces: Pieces,
    /// The line being filled, and its number.
    line: Line,
    number: u64,
    last: Option<u64>,
}

impl RankBitmapBuilder {
    /// An empty builder.
    ///
    /// # Errors
    ///
    /// [`Error::Memory`].
    pub fn new() -> Result<RankBitmapBuilder> {
        let pieces = Pieces {
            lines: LineBuffer::zeroed(0)?,
            pages: Vec::new(),
            keys: 0,
        };
        Ok(RankBitmapBuilder {
            pieces,
            line: Line::ZERO,
            number: 0,
            last: None,
        })
    }

    /// Adds an id above all ids so far. Amortised O(1).
    ///
    /// # Errors
    ///
    /// [`Error::Unsorted`] for an id that is not above the last one; the builder is as before. [`Error::Memory`].
    #[inline]
    pub fn push(&mut self, id: u64) -> Result<()> {
        if self.last.is_some_and(|last| last >= id) {
            return Err(Error::Unsorted {
                position: self.pieces.keys,
                why: "a set holds each id once, ascending",
            });
        }
        let number = id / PER_LINE;
        if number != self.number || self.last.is_none() {
            self.close_line()?;
            self.number = number;
            self.line.0[0] = self.pieces.keys;
        }
        let bit = id - number * PER_LINE;
        self.line.0[1 + (bit / 64) as usize] |= 1 << (bit % 64);
        self.pieces.keys += 1;
        self.last = Some(id);
        Ok(())
    }

    fn close_line(&mut self) -> Result<()> {
        let line = std::mem::take(&mut self.line);
        if self.last.is_none() {
            return Ok(());
        }
        let (page, slot) = (self.number / PAGE_LINES, self.number % PAGE_LINES);
        let offset = self.pieces.lines.len() as u64;
        self.pieces.lines.push(line)?;
        match self.pieces.pages.last_mut() {
            Some(last) if last.number == page => last.entry |= 1 << slot,
            _ => self.pieces.pages.push(Page {
                number: page,
                entry: offset << 16 | 1 << slot,
            }),
        }
        Ok(())
    }

    /// Number of ids so far.
    pub fn len(&self) -> u64 {
        self.pieces.keys
    }

    /// Whether no id was added.
    pub fn is_empty(&self) -> bool {
        self.pieces.keys == 0
    }

    /// The bitmap.
    ///
    /// # Errors
    ///
    /// [`Error::Memory`].
    pub fn finish(mut self) -> Result<RankBitmap<'static>> {
        self.close_line()?;
        self.pieces.assemble()
    }
}

impl RankBitmap<'static> {
    /// The bitmap of ascending ids.
    ///
    /// # Errors
    ///
    /// [`Error::Unsorted`] or [`Error::Memory`].
    pub fn from_sorted(ids: impl IntoIterator<Item = u64>) -> Result<RankBitmap<'static>> {
        let mut builder = RankBitmapBuilder::new()?;
        ids.into_iter().try_for_each(|id| builder.push(id))?;
        builder.finish()
    }
}

/// Fills lines with the ranks they count from, given their bits; returns the rank after them.
pub(super) fn fill_ranks(lines: &mut [Line], mut rank: u64) -> u64 {
    for line in lines {
        line.0[0] = rank;
        rank += ones(line);
    }
    rank
}

/// Number of ids in a line.
pub(super) fn ones(line: &Line) -> u64 {
    line.0[1..].iter().map(|word| u64::from(word.count_ones())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Search;
    use crate::kernel::cast;

    #[test]
    fn layouts_are_chosen_by_density() {
        let dense = RankBitmap::from_sorted(0..100_000).unwrap();
        assert!(!dense.is_paged());
        assert!(dense.bytes() < 100_000 / 6);
        let pages = RankBitmap::from_sorted((0..10_000).map(|id| id * 5000)).unwrap();
        assert!(pages.is_paged());
        assert_eq!(pages.segments_len, 2);
        // Every id alone in a universe of 2^63: memory follows the ids.
        let strewn = RankBitmap::from_sorted((0..10_000).map(|id| id << 49)).unwrap();
        assert!(strewn.is_paged());
        assert!(strewn.bytes() <= 10_000 * 112, "{}", strewn.bytes());
        assert_eq!(strewn.position(7 << 49), Some(7));
    }

    #[test]
    fn unsorted_ids_are_refused() {
        let mut builder = RankBitmapBuilder::new().unwrap();
        builder.push(5).unwrap();
        for id in [5, 4] {
            assert!(matches!(
                builder.push(id),
                Err(Error::Unsorted { position: 1, .. })
            ));
        }
        builder.push(6).unwrap();
        assert_eq!(builder.finish().unwrap().len(), 2);
    }

    #[test]
    fn word_arrays_are_padded_with_zeros() {
        let (store, len) = words([1, 2, 3].into_iter()).unwrap();
        assert_eq!(
            (len, cast::keys::<u64>(store.lines())),
            (3, &[1, 2, 3, 0, 0, 0, 0, 0][..])
        );
    }
}
