//! The table: which page of nodes begins where, and the pages.

use osmill_engine::Result;
use osmill_model::{Location, id_order};
use osmill_stree::{LineBuffer, NOT_FOUND, RankBitmap, RankBitmapBuilder, Search, Wide, prefetch, run_wide};

use crate::failed;
use crate::packed::SPARE;
use crate::page::{self, Spot};

/// Look-ups of a batch.
const BATCH: usize = 256;
/// Bytes of a chunk of pages, as a power of two.
const CHUNK: u32 = 24;
/// Number of the page on which positive ids begin.
const FIRST_POSITIVE: u64 = page::number(1 << 63);

/// The locations of nodes; see the [crate's documentation](crate).
#[derive(Debug)]
pub struct LocationTable {
    /// Pages of 0 and the negative ids, by their numbers.
    rest: RankBitmap<'static>,
    /// Pages of positive ids, by their numbers from [`FIRST_POSITIVE`] on.
    positive: RankBitmap<'static>,
    /// Where each page begins; those of `rest` come first.
    offsets: Vec<u64>,
    chunks: Vec<LineBuffer>,
    /// Bytes of the pages.
    bytes: u64,
    len: u64,
}

/// Pages in the order in which they came, in chunks. A worker has a chunk of its own while it writes pages to it.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    /// Those that are full; others are empty in their place.
    full: Vec<LineBuffer>,
    /// Those that are not full, and that no worker has.
    open: Vec<Chunk>,
    /// Number and offset of each page.
    index: Vec<(u64, u64)>,
    len: u64,
    bytes: u64,
}

/// Bytes of pages. No page crosses the end of a chunk.
#[derive(Debug)]
pub(crate) struct Chunk {
    number: usize,
    buffer: LineBuffer,
    used: usize,
}

impl Chunk {
    /// Appends a page and gives its offset, unless there is no room for it.
    pub fn append(&mut self, page: &[u8]) -> Option<u64> {
        let end = self.used + page.len();
        if end + SPARE > 1 << CHUNK {
            return None;
        }
        self.buffer.bytes_mut()[self.used..end].copy_from_slice(page);
        let offset = (self.number << CHUNK | self.used) as u64;
        self.used = end;
        Some(offset)
    }
}

/// Chunk of an offset, and where it points to in that.
#[inline(always)]
fn split(offset: u64) -> (usize, usize) {
    ((offset >> CHUNK) as usize, (offset & ((1 << CHUNK) - 1)) as usize)
}

impl Pages {
    /// A chunk to write pages to.
    pub fn take_chunk(&mut self) -> Result<Chunk> {
        if let Some(chunk) = self.open.pop() {
            return Ok(chunk);
        }
        let number = self.full.len();
        self.full.push(LineBuffer::zeroed(0).map_err(failed)?);
        Ok(Chunk {
            number,
            buffer: LineBuffer::zeroed((1 << CHUNK) / 64).map_err(failed)?,
            used: 0,
        })
    }

    /// Takes back a chunk that has no room for the next page.
    pub fn put_full(&mut self, chunk: Chunk) {
        self.bytes += chunk.used as u64;
        self.full[chunk.number] = chunk.buffer;
    }

    /// Takes back a chunk to which other pages may be appended, and the numbers and offsets of pages that were
    /// written, which hold `nodes` nodes.
    pub fn put(&mut self, chunk: Chunk, index: &[(u64, u64)], nodes: usize) {
        self.open.push(chunk);
        self.index.extend_from_slice(index);
        self.len += nodes as u64;
    }

    /// The table of the pages, each of which was added once.
    pub fn finish(mut self) -> Result<LocationTable> {
        for chunk in std::mem::take(&mut self.open) {
            self.put_full(chunk);
        }
        self.index.sort_unstable();
        let (mut rest, mut positive) = (
            RankBitmapBuilder::new().map_err(failed)?,
            RankBitmapBuilder::new().map_err(failed)?,
        );
        for (number, _) in &self.index {
            match number.checked_sub(FIRST_POSITIVE) {
                Some(number) => positive.push(number),
                None => rest.push(*number),
            }
            .map_err(failed)?;
        }
        Ok(LocationTable {
            rest: rest.finish().map_err(failed)?,
            positive: positive.finish().map_err(failed)?,
            offsets: self.index.iter().map(|(_, offset)| *offset).collect(),
            chunks: self.full,
            bytes: self.bytes,
            len: self.len,
        })
    }
}

impl LocationTable {
    /// Number of nodes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that the table takes: pages and what finds them.
    pub fn bytes(&self) -> u64 {
        self.bytes + self.offsets.len() as u64 * 8 + self.rest.bytes() + self.positive.bytes()
    }

    /// Where a node is; `None` if the table does not have it. For many, see [`locate`](LocationTable::locate).
    pub fn get(&self, id: i64) -> Option<Location> {
        let key = id_order(id);
        let position = match page::number(key).checked_sub(FIRST_POSITIVE) {
            Some(number) => self.rest.len() + self.positive.position(number)?,
            None => self.rest.position(page::number(key))?,
        };
        let (chunk, at) = split(self.offsets[position as usize]);
        let page = &self.chunks[chunk].bytes()[at..];
        Spot::find(key, page)?.read(page)
    }

    /// Appends where each of these nodes is. Batches of some hundred or more are many times faster than one by
    /// one: each stage of a look-up is done for all of a batch, and asks for the lines that the next one reads.
    ///
    /// Gives whether all were found.
    pub fn locate(&self, ids: &[i64], locations: &mut Vec<Option<Location>>) -> bool {
        let mut are_found = true;
        let view: Vec<&[u8]> = self.chunks.iter().map(LineBuffer::bytes).collect();
        for batch in ids.chunks(BATCH) {
            let start = locations.len();
            locations.resize(start + batch.len(), None);
            let out = &mut locations[start..];
            // Negative if any id is not positive.
            let signs = batch.iter().fold(0, |signs, id| signs | id | id.wrapping_sub(1));
            if signs >= 0 {
                run_wide(Batch {
                    table: self,
                    ids: batch,
                    view: &view,
                    out,
                    are_found: &mut are_found,
                });
            } else {
                for (at, id) in out.iter_mut().zip(batch) {
                    *at = self.get(*id);
                    are_found &= at.is_some();
                }
            }
        }
        are_found
    }
}

/// At most [`BATCH`] positive ids to look up.
struct Batch<'a> {
    table: &'a LocationTable,
    ids: &'a [i64],
    /// The bytes of the chunks.
    view: &'a [&'a [u8]],
    out: &'a mut [Option<Location>],
    are_found: &'a mut bool,
}

impl Wide for Batch<'_> {
    #[inline(always)]
    fn run(self) {
        let Batch {
            table,
            ids,
            view,
            out,
            are_found,
        } = self;
        let offsets = &table.offsets[table.rest.len() as usize..];
        // Neighbours in a way often share a page.
        let (mut pages, mut turns, mut count) = ([0u64; BATCH], [0u16; BATCH], 0);
        let mut last = u64::MAX;
        for (turn, id) in turns.iter_mut().zip(ids) {
            let page = page::number(*id as u64);
            count += usize::from(page != last);
            last = page;
            pages[count - 1] = page;
            *turn = (count - 1) as u16;
        }
        let mut positions = [NOT_FOUND; BATCH];
        table
            .positive
            .for_each_position(&pages[..count], |turn, position| {
                positions[turn] = position;
                if position != NOT_FOUND {
                    prefetch(offsets, position as usize);
                }
            });
        // Those that are not there are empty.
        let mut starts: [&[u8]; BATCH] = [&[]; BATCH];
        for (start, position) in starts.iter_mut().zip(&positions[..count]) {
            if *position != NOT_FOUND {
                let (chunk, at) = split(offsets[*position as usize]);
                *start = &view[chunk][at..];
                // The words of ids and what is said of the blocks, of most pages.
                prefetch(start, 0);
                prefetch(start, 64);
                prefetch(start, 128);
            }
        }
        let mut spots = [None; BATCH];
        for ((spot, id), turn) in spots.iter_mut().zip(ids).zip(&turns) {
            let page = starts[usize::from(*turn) % BATCH];
            *spot = Spot::find(*id as u64, page);
            if let Some(spot) = spot {
                prefetch(page, spot.block());
                prefetch(page, spot.near());
            }
        }
        for ((at, spot), turn) in out.iter_mut().zip(&spots).zip(&turns) {
            match spot {
                Some(spot) => *at = spot.read(starts[usize::from(*turn) % BATCH]),
                None => *are_found = false,
            }
        }
    }
}
