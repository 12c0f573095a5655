//! The table: which page of nodes begins where, and the pages.

use osmill_engine::Result;
use osmill_model::{Location, id_order};
use osmill_stree::{LineBuffer, NOT_FOUND, RankBitmap, RankBitmapBuilder, Search, prefetch};

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
    data: Data,
    len: u64,
}

/// Pages in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    data: Data,
    /// Number and offset.
    index: Vec<(u64, u64)>,
    len: u64,
}

/// The bytes of pages. None crosses the end of a chunk.
#[derive(Debug, Default)]
struct Data {
    chunks: Vec<LineBuffer>,
    /// Bytes used of the last chunk.
    used: usize,
}

impl Data {
    fn append(&mut self, page: &[u8]) -> Result<u64> {
        if self.chunks.is_empty() || self.used + page.len() + SPARE > 1 << CHUNK {
            self.chunks
                .push(LineBuffer::zeroed((1 << CHUNK) / 64).map_err(failed)?);
            self.used = 0;
        }
        let number = self.chunks.len() - 1;
        self.chunks[number].bytes_mut()[self.used..self.used + page.len()].copy_from_slice(page);
        let offset = (number << CHUNK | self.used) as u64;
        self.used += page.len();
        Ok(offset)
    }

    fn view(&self) -> Vec<&[u8]> {
        self.chunks.iter().map(LineBuffer::bytes).collect()
    }

    fn bytes(&self) -> u64 {
        let whole = self.chunks.len().saturating_sub(1);
        ((whole << CHUNK) + self.used) as u64
    }
}

/// Chunk of an offset, and where it points to in that.
#[inline(always)]
fn split(offset: u64) -> (usize, usize) {
    ((offset >> CHUNK) as usize, (offset & ((1 << CHUNK) - 1)) as usize)
}

impl Pages {
    /// Adds a page of `nodes` nodes.
    pub fn append(&mut self, number: u64, page: &[u8], nodes: usize) -> Result<()> {
        let offset = self.data.append(page)?;
        self.index.push((number, offset));
        self.len += nodes as u64;
        Ok(())
    }

    /// The table of the pages, each of which was added once.
    pub fn finish(mut self) -> Result<LocationTable> {
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
            data: self.data,
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
        self.data.bytes() + self.offsets.len() as u64 * 8 + self.rest.bytes() + self.positive.bytes()
    }

    /// Where a node is; `None` if the table does not have it. For many, see [`locate`](LocationTable::locate).
    pub fn get(&self, id: i64) -> Option<Location> {
        let key = id_order(id);
        let position = match page::number(key).checked_sub(FIRST_POSITIVE) {
            Some(number) => self.rest.len() + self.positive.position(number)?,
            None => self.rest.position(page::number(key))?,
        };
        let (chunk, at) = split(self.offsets[position as usize]);
        let data = self.data.chunks[chunk].bytes();
        Some(Spot::find(key, at, data)?.read(data))
    }

    /// Appends where each of these nodes is. Batches of some hundred or more are many times faster than one by
    /// one: each stage of a look-up is done for all of a batch, and asks for the lines that the next one reads.
    pub fn locate(&self, ids: &[i64], locations: &mut Vec<Option<Location>>) {
        let view = self.data.view();
        for batch in ids.chunks(BATCH) {
            let start = locations.len();
            locations.resize(start + batch.len(), None);
            let out = &mut locations[start..];
            if batch.iter().all(|id| *id > 0) {
                self.locate_positive(batch, &view, out);
            } else {
                for (at, id) in out.iter_mut().zip(batch) {
                    *at = self.get(*id);
                }
            }
        }
    }

    /// The stages for at most [`BATCH`] ids.
    fn locate_positive(&self, ids: &[i64], view: &[&[u8]], out: &mut [Option<Location>]) {
        let offsets = &self.offsets[self.rest.len() as usize..];
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
        self.positive
            .for_each_position(&pages[..count], |turn, position| {
                positions[turn] = position;
                if position != NOT_FOUND {
                    prefetch(offsets, position as usize);
                }
            });
        const NOTHING: (usize, usize) = (usize::MAX, 0);
        let mut starts = [NOTHING; BATCH];
        for (start, position) in starts.iter_mut().zip(&positions[..count]) {
            if *position != NOT_FOUND {
                *start = split(offsets[*position as usize]);
                let data = view[start.0];
                prefetch(data, start.1);
                prefetch(data, start.1 + 64);
            }
        }
        let mut spots = [None; BATCH];
        for ((spot, id), turn) in spots.iter_mut().zip(ids).zip(&turns) {
            let (chunk, at) = starts[usize::from(*turn)];
            if chunk == usize::MAX {
                continue;
            }
            let data = view[chunk];
            *spot = Spot::find(*id as u64, at, data);
            if let Some(spot) = spot {
                prefetch(data, spot.block());
                prefetch(data, spot.near());
            }
        }
        for ((at, spot), turn) in out.iter_mut().zip(&spots).zip(&turns) {
            if let Some(spot) = spot {
                *at = Some(spot.read(view[starts[usize::from(*turn)].0]));
            }
        }
    }
}
