//! A page: the nodes of 4096 ids in a row, which of them there are and where.
//!
//! Bytes of a page, little-endian:
//!
//! | bytes | what |
//! | --- | --- |
//! | 8 | which of the 64 words of ids hold a node |
//! | 10 for each such word | its bits, 8 bytes; how many nodes lie in the words before it, 2 bytes |
//! | 4 for each block | offset of the block in the page, 2 bytes; its [`Form`], 2 bytes |
//! | | the blocks |

use osmill_model::Location;
use osmill_stree::{Wide, run_wide};

use crate::packed::{BLOCK, Form, PageBytes, SPARE, array, pack, put};

/// Ids of a page.
pub(crate) const IDS: u64 = 4096;
/// Bytes of an entry for a word.
const WORD: usize = 10;
/// Bytes before the blocks, at most.
const DIRECTORY: usize = 8 + (IDS / 64) as usize * WORD + 4 * (IDS as usize / BLOCK);

/// Number of the page that a key lies on.
#[inline(always)]
pub(crate) const fn number(key: u64) -> u64 {
    key / IDS
}

/// Means of making pages.
pub(crate) struct Writer {
    page: Box<PageBytes>,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}

impl Default for Writer {
    fn default() -> Self {
        Writer {
            page: Box::new([0; size_of::<PageBytes>()]),
        }
    }
}

impl Writer {
    /// Makes the page that holds these nodes. Their keys ascend, each is there once, and all lie on one page.
    ///
    /// A page is smaller than 64 KiB.
    pub fn write(&mut self, keys: &[u64], locations: &[Location]) -> &[u8] {
        let mut len = 0;
        run_wide(Page {
            keys,
            locations,
            page: &mut self.page,
            len: &mut len,
        });
        &self.page[..len]
    }
}

/// A page that is to be made.
struct Page<'a> {
    keys: &'a [u64],
    locations: &'a [Location],
    page: &'a mut PageBytes,
    len: &'a mut usize,
}

impl Wide for Page<'_> {
    #[inline(always)]
    fn run(self) {
        let Page {
            keys,
            locations,
            page,
            len,
        } = self;
        let Some(first) = keys.first() else { return };
        let (mut there, mut at) = (0u64, 8);
        let (mut word, mut bits, mut before) = (first / 64, 0u64, 0);
        let mut put_word = |word: u64, bits: u64, before: usize, page: &mut PageBytes| {
            there |= 1 << (word % 64);
            put(page, at, bits.to_le_bytes());
            put(page, at + 8, (before as u16).to_le_bytes());
            at += WORD;
        };
        for (ordinal, key) in keys.iter().enumerate() {
            if key / 64 != word {
                put_word(word, bits, before, page);
                (word, bits, before) = (key / 64, 0, ordinal);
            }
            bits |= 1 << (key % 64);
        }
        put_word(word, bits, before, page);
        put(page, 0, there.to_le_bytes());
        let mut entry = at;
        at += 4 * locations.len().div_ceil(BLOCK);
        for block in locations.chunks(BLOCK) {
            let (form, end) = pack(block, page, at);
            put(page, entry, (at as u16).to_le_bytes());
            put(page, entry + 2, form.0.to_le_bytes());
            (entry, at) = (entry + 4, end);
        }
        *len = at;
    }
}

/// Where on its page the location of a node is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spot {
    block: u16,
    form: Form,
    place: u8,
}

impl Spot {
    /// Finds a node on the page that `page` begins with; where that is empty, there is no node.
    #[inline(always)]
    pub fn find(key: u64, page: &[u8]) -> Option<Spot> {
        const { assert!(DIRECTORY <= SPARE) }
        // With room for the longest directory, no part of it has to be checked for being there.
        let directory = page.first_chunk::<DIRECTORY>()?;
        let there = u64::from_le_bytes(array(directory, 0));
        let number = key % IDS / 64;
        if there >> number & 1 == 0 {
            return None;
        }
        let at = 8 + WORD * (there & ((1 << number) - 1)).count_ones() as usize;
        let bits = u64::from_le_bytes(array(directory, at));
        if bits >> (key % 64) & 1 == 0 {
            return None;
        }
        let below = (bits & ((1 << (key % 64)) - 1)).count_ones();
        let before = u16::from_le_bytes(array(directory, at + 8));
        let ordinal = (usize::from(before) + below as usize) % IDS as usize;
        let entry = 8 + WORD * there.count_ones() as usize + 4 * (ordinal / BLOCK);
        let entry = u32::from_le_bytes(array(directory, entry));
        Some(Spot {
            block: entry as u16,
            form: Form((entry >> 16) as u16),
            place: (ordinal % BLOCK) as u8,
        })
    }

    /// Offset on the page of the byte to fetch early.
    #[inline(always)]
    pub fn near(self) -> usize {
        self.block() + self.form.near(usize::from(self.place))
    }

    /// Offset on the page of the block.
    #[inline(always)]
    pub fn block(self) -> usize {
        usize::from(self.block)
    }

    /// Reads the location. `page` goes on for [`SPARE`] bytes behind its own, or nothing is found.
    #[inline(always)]
    pub fn read(self, page: &[u8]) -> Option<Location> {
        let block = page.get(self.block()..)?.first_chunk()?;
        Some(self.form.read(usize::from(self.place), block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn pages_read_back(
            number in prop_oneof![Just(0u64), any::<u64>().prop_map(|n| n / IDS)],
            nodes in prop_oneof![
                proptest::collection::btree_map(0..IDS, any::<(i32, i32)>(), 1..100),
                proptest::collection::btree_map(70..200u64, (0..9i32, 0..9i32), 1..100),
            ],
            before in 0usize..5,
        ) {
            let nodes: BTreeMap<u64, Location> = nodes
                .into_iter()
                .map(|(id, (lon, lat))| (number * IDS + id, Location::new(lon, lat)))
                .collect();
            let (keys, locations): (Vec<u64>, Vec<Location>) = nodes.iter().unzip();
            let mut data = vec![7; before];
            data.extend_from_slice(Writer::default().write(&keys, &locations));
            data.resize(data.len() + SPARE, 7);
            for key in number * IDS..=number * IDS + (IDS - 1) {
                let page = &data[before..];
                let found = Spot::find(key, page).and_then(|spot| spot.read(page));
                prop_assert_eq!(found.as_ref(), nodes.get(&key));
            }
        }
    }

    #[test]
    fn the_fullest_page_is_small_enough() {
        let keys: Vec<u64> = (0..IDS).collect();
        let corner = |i: u64| if i.is_multiple_of(2) { i32::MIN } else { i32::MAX };
        let places: Vec<Location> = keys
            .iter()
            .map(|i| Location::new(corner(*i), corner(i / 2)))
            .collect();
        let mut data = Writer::default().write(&keys, &places).to_vec();
        assert!(data.len() < 40_000, "{}", data.len());
        data.resize(data.len() + SPARE, 0);
        assert_eq!(Spot::find(4095, &data).unwrap().read(&data), Some(places[4095]));
    }
}
