//! The table: ids, a directory of blocks, and the packed locations.

use osmill_engine::Result;
use osmill_model::Location;
use osmill_stree::{LineBuffer, NOT_FOUND, prefetch};

use crate::failed;
use crate::ids::NodeIds;
use crate::packed::{BLOCK, Entry, SPARE};

/// Look-ups in flight at each stage of a batch.
const IN_FLIGHT: usize = 32;

/// The locations of a set of nodes; see the [crate's documentation](crate).
#[derive(Debug)]
pub struct LocationTable {
    ids: NodeIds,
    blocks: Blocks,
    present: u64,
}

/// The directory and the data of the blocks.
#[derive(Debug)]
pub(crate) struct Blocks {
    /// Two words for each block.
    directory: LineBuffer,
    data: LineBuffer,
    used: usize,
}

impl Blocks {
    /// Room for `slots` slots, all without a location.
    pub fn new(slots: u64) -> Result<Blocks> {
        let blocks = usize::try_from(slots.div_ceil(BLOCK as u64)).unwrap_or(usize::MAX / 32);
        // Four to six bytes a location are usual. Memory is taken when it is written, and what is too little is
        // copied once.
        let guess = usize::try_from(slots.saturating_mul(7) / 64).unwrap_or(0) + 1;
        Ok(Blocks {
            directory: LineBuffer::zeroed((blocks * 2).div_ceil(8)).map_err(failed)?,
            data: LineBuffer::zeroed(guess).map_err(failed)?,
            used: 0,
        })
    }

    /// Adds data of blocks and gives its offset.
    pub fn append(&mut self, data: &[u8]) -> Result<u64> {
        let end = self.used + data.len();
        let lines = (end + SPARE).div_ceil(64);
        if lines > self.data.len() {
            self.data.resize(lines).map_err(failed)?;
        }
        self.data.bytes_mut()[self.used..end].copy_from_slice(data);
        Ok(std::mem::replace(&mut self.used, end) as u64)
    }

    /// Sets the entries of consecutive blocks.
    pub fn set(&mut self, block: u64, entry: Entry) {
        let at = block as usize * 2;
        let words = self.directory.keys_mut::<u64>();
        words[at] = entry.base;
        words[at + 1] = entry.form;
    }

    #[inline(always)]
    fn entry(&self, slot: u64) -> Entry {
        let at = (slot / BLOCK as u64) as usize * 2;
        let words = self.directory.keys::<u64>();
        Entry {
            base: words[at],
            form: words[at + 1],
        }
    }

    #[inline(always)]
    fn read(&self, slot: u64) -> Option<Location> {
        self.entry(slot).read(slot % BLOCK as u64, self.data.bytes())
    }
}

impl LocationTable {
    pub(crate) fn new(ids: NodeIds, blocks: Blocks, present: u64) -> LocationTable {
        LocationTable { ids, blocks, present }
    }

    /// The ids that were asked for.
    pub fn ids(&self) -> &NodeIds {
        &self.ids
    }

    /// How many of the ids have a location.
    pub fn present(&self) -> u64 {
        self.present
    }

    /// The ids that have no location, in order. O(slots) for all of them.
    pub fn missing(&self) -> impl Iterator<Item = i64> + '_ {
        let slots = if self.present == self.ids.len() {
            0
        } else {
            self.ids.len()
        };
        (0..slots)
            .filter(|slot| self.blocks.read(*slot).is_none())
            .filter_map(|slot| self.ids.id(slot))
    }

    /// Where a node is; `None` if it was not asked for, or has no location. For many, see
    /// [`locate`](LocationTable::locate).
    pub fn get(&self, id: i64) -> Option<Location> {
        self.blocks.read(self.ids.slot(id)?)
    }

    /// Appends where each of these nodes is. Batches of a thousand or more are many times faster than one by
    /// one.
    pub fn locate(&self, ids: &[i64], locations: &mut Vec<Option<Location>>) {
        let start = locations.len();
        locations.resize(start + ids.len(), None);
        let out = &mut locations[start..];
        let blocks = &self.blocks;
        let (directory, data) = (blocks.directory.keys::<u64>(), blocks.data.bytes());
        // A ring through which a look-up passes twice: half a turn after it came, its directory entry has
        // arrived; a turn after, its data.
        const TURN: usize = 2 * IN_FLIGHT;
        let mut ring = [(usize::MAX, NOT_FOUND); TURN];
        let mut turn = 0;
        let step = |ring: &mut [(usize, u64); TURN], turn: usize, out: &mut [Option<Location>]| {
            let (_, slot) = ring[(turn + IN_FLIGHT) % TURN];
            if slot != NOT_FOUND {
                let (byte, _) = blocks.entry(slot).address(slot % BLOCK as u64);
                prefetch(data, byte);
            }
            let (index, slot) = ring[turn];
            if slot != NOT_FOUND {
                out[index] = blocks.entry(slot).read(slot % BLOCK as u64, data);
            }
        };
        self.ids.for_each_slot(ids, |index, slot| {
            if slot != NOT_FOUND {
                prefetch(directory, (slot / BLOCK as u64) as usize * 2);
            }
            step(&mut ring, turn, out);
            ring[turn] = (index, slot);
            turn = (turn + 1) % TURN;
        });
        for _ in 0..TURN {
            step(&mut ring, turn, out);
            ring[turn].1 = NOT_FOUND;
            turn = (turn + 1) % TURN;
        }
    }

    /// Bytes taken by the blocks: directory and data.
    pub fn block_bytes(&self) -> u64 {
        (self.blocks.directory.bytes().len() + self.blocks.used) as u64
    }
}
