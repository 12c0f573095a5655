//! Blocks of locations as fixed-width differences.
//!
//! A block holds up to [`BLOCK`] locations, each as the difference to the smallest longitude and latitude of
//! the block, with as many bits as the largest differences take. Where a block mixes two places, which is common
//! because ids are given in the order in which people upload, it is *split*: a bit for each location tells to
//! which of two groups it belongs, and each group has a base and widths of its own.
//!
//! Bytes of a block, little-endian: longitude and latitude of the base, 4 bytes each. If it is split: base of the
//! second group, the bits that tell the group (4 bytes), widths of the second group (2 bytes). Then the differences:
//! those of the first group in order, then those of the second.

use osmill_model::Location;

/// Locations of a block.
pub const BLOCK: usize = 32;

/// Bytes that reading a location takes from the beginning of its block on, whatever its [`Form`] says: two groups whose
/// differences take 63 bits each, and a word behind them.
const WINDOW: usize = SPLIT_HEAD + (2 * BLOCK * 2 * 63).div_ceil(8) + 8;

/// Bytes behind those of a page that reading it may touch.
pub(crate) const SPARE: usize = 2048;
const _: () = assert!(WINDOW <= SPARE);

/// Bytes before the differences of a block.
const HEAD: usize = 8;
/// The same where it is split.
const SPLIT_HEAD: usize = HEAD + 14;

/// How the differences of a block are coded: `split << 12 | longitude bits << 6 | latitude bits`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Form(pub u16);

const SPLIT: u16 = 1 << 12;

/// Low `width` bits set.
#[inline(always)]
const fn mask(width: u32) -> u64 {
    (1 << width) - 1
}

/// The bytes from `at` on.
#[inline(always)]
pub(crate) fn array<const N: usize>(data: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&data[at..at + N]);
    bytes
}

#[inline(always)]
fn base_at(data: &[u8], at: usize) -> (u32, u32) {
    let base = u64::from_le_bytes(array(data, at));
    (base as u32, (base >> 32) as u32)
}

impl Form {
    fn new(widths: (u32, u32)) -> Form {
        Form((widths.0 << 6 | widths.1) as u16)
    }

    #[inline(always)]
    fn widths(self) -> (u32, u32) {
        (u32::from(self.0 >> 6 & 63), u32::from(self.0 & 63))
    }

    /// About where in its block a location lies, in bytes; exact unless the block is split.
    #[inline(always)]
    pub fn near(self, place: usize) -> usize {
        let (lon, lat) = self.widths();
        HEAD + place * (lon + lat) as usize / 8
    }

    /// The location at a place of a block.
    #[inline(always)]
    pub fn read(self, place: usize, block: &[u8; WINDOW]) -> Location {
        let mut base = base_at(block, 0);
        let mut widths = self.widths();
        let mut bits = HEAD * 8;
        let mut before = place % BLOCK;
        if self.0 & SPLIT != 0 {
            bits = SPLIT_HEAD * 8;
            let groups = u32::from_le_bytes(array(block, 16));
            let second = (groups & mask(before as u32) as u32).count_ones() as usize;
            if groups >> before & 1 == 0 {
                before = (before - second) % BLOCK;
            } else {
                // Bits behind the last location are set, too.
                bits += groups.count_zeros() as usize * (widths.0 + widths.1) as usize;
                before = second;
                base = base_at(block, 8);
                widths = Form(u16::from_le_bytes(array(block, 20))).widths();
            }
        }
        let (lon_width, lat_width) = widths;
        bits += before * (lon_width + lat_width) as usize;
        let word = u64::from_le_bytes(array(block, bits / 8)) >> (bits % 8);
        let lon = word & mask(lon_width);
        let lat = if lon_width + lat_width <= 57 {
            word >> lon_width
        } else {
            let bits = bits + lon_width as usize;
            u64::from_le_bytes(array(block, bits / 8)) >> (bits % 8)
        };
        Location {
            lon: base.0.wrapping_add(lon as u32) as i32,
            lat: base.1.wrapping_add((lat & mask(lat_width)) as u32) as i32,
        }
    }
}

/// Smallest rectangle around locations.
#[derive(Debug, Clone, Copy)]
struct Around {
    min: Location,
    max: Location,
}

impl Around {
    const NOTHING: Around = Around {
        min: Location {
            lon: i32::MAX,
            lat: i32::MAX,
        },
        max: Location {
            lon: i32::MIN,
            lat: i32::MIN,
        },
    };

    #[inline(always)]
    fn add(&mut self, at: Location) {
        self.min = Location::new(self.min.lon.min(at.lon), self.min.lat.min(at.lat));
        self.max = Location::new(self.max.lon.max(at.lon), self.max.lat.max(at.lat));
    }

    fn of(locations: impl Iterator<Item = Location>) -> Around {
        let mut around = Around::NOTHING;
        locations.for_each(|at| around.add(at));
        around
    }

    /// Bits that the differences take.
    fn widths(&self) -> (u32, u32) {
        let bits = |min: i32, max: i32| 32 - max.wrapping_sub(min).cast_unsigned().leading_zeros();
        (bits(self.min.lon, self.max.lon), bits(self.min.lat, self.max.lat))
    }
}

/// Appends bits to bytes.
struct Bits<'a> {
    data: &'a mut Vec<u8>,
    word: u64,
    filled: u32,
}

impl Bits<'_> {
    /// `width` is at most 32.
    #[inline(always)]
    fn put(&mut self, number: u32, width: u32) {
        self.word |= u64::from(number) << self.filled;
        self.filled += width;
        if self.filled >= 32 {
            self.data.extend_from_slice(&(self.word as u32).to_le_bytes());
            self.word >>= 32;
            self.filled -= 32;
        }
    }

    fn put_all(&mut self, locations: impl Iterator<Item = Location>, base: Location, widths: (u32, u32)) {
        for at in locations {
            self.put(at.lon.wrapping_sub(base.lon).cast_unsigned(), widths.0);
            self.put(at.lat.wrapping_sub(base.lat).cast_unsigned(), widths.1);
        }
    }

    fn finish(self) {
        let left = self.filled.div_ceil(8) as usize;
        self.data.extend_from_slice(&self.word.to_le_bytes()[..left]);
    }
}

fn put_base(base: Location, data: &mut Vec<u8>) {
    data.extend_from_slice(&base.lon.to_le_bytes());
    data.extend_from_slice(&base.lat.to_le_bytes());
}

/// Differences that take fewer bits than this in all are not worth a split.
const WORTH: u32 = 22;

/// Appends a block of 1 to [`BLOCK`] locations.
pub(crate) fn pack(locations: &[Location], data: &mut Vec<u8>) -> Form {
    let all = Around::of(locations.iter().copied());
    let widths = all.widths();
    let size = |count: usize, widths: (u32, u32)| count * (widths.0 + widths.1) as usize;
    if widths.0 + widths.1 >= WORTH && locations.len() > 4 {
        // The groups lie on the two sides of the middle of the longer edge.
        let east_west = widths.0 >= widths.1;
        let coordinate = |at: Location| if east_west { at.lon } else { at.lat };
        let (low, high) = (coordinate(all.min), coordinate(all.max));
        let middle = low.wrapping_add((high.wrapping_sub(low).cast_unsigned() / 2).cast_signed());
        let (mut first, mut second) = (Around::NOTHING, Around::NOTHING);
        // Set behind the last location.
        let mut groups = u32::MAX;
        for (place, at) in locations.iter().enumerate() {
            if coordinate(*at) <= middle {
                first.add(*at);
                groups &= !(1 << place);
            } else {
                second.add(*at);
            }
        }
        let count = groups.count_zeros() as usize;
        let (own, others) = (first.widths(), second.widths());
        let split = size(count, own) + size(locations.len() - count, others);
        if split.div_ceil(8) + SPLIT_HEAD < size(locations.len(), widths).div_ceil(8) + HEAD {
            put_base(first.min, data);
            put_base(second.min, data);
            data.extend_from_slice(&groups.to_le_bytes());
            data.extend_from_slice(&Form::new(others).0.to_le_bytes());
            let of_group = |group: u32| {
                let numbered = locations.iter().enumerate();
                numbered
                    .filter(move |(place, _)| groups >> place & 1 == group)
                    .map(|(_, at)| *at)
            };
            let mut bits = Bits {
                data,
                word: 0,
                filled: 0,
            };
            bits.put_all(of_group(0), first.min, own);
            bits.put_all(of_group(1), second.min, others);
            bits.finish();
            return Form(SPLIT | Form::new(own).0);
        }
    }
    put_base(all.min, data);
    let mut bits = Bits {
        data,
        word: 0,
        filled: 0,
    };
    bits.put_all(locations.iter().copied(), all.min, widths);
    bits.finish();
    Form::new(widths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn location() -> impl Strategy<Value = Location> {
        prop_oneof![
            (-50i32..50, -50i32..50),
            (9_000_000i32..9_000_050, 70i32..80),
            (any::<i32>(), any::<i32>()),
            (Just(0), Just(0)),
            (
                prop_oneof![Just(i32::MIN), Just(i32::MAX)],
                prop_oneof![Just(i32::MIN), Just(i32::MAX)]
            ),
        ]
        .prop_map(|(lon, lat)| Location::new(lon, lat))
    }

    #[test]
    fn one_place_takes_no_bits() {
        let mut data = Vec::new();
        let form = pack(&[Location::new(-7, 8); BLOCK], &mut data);
        assert_eq!(data.len(), HEAD);
        data.resize(HEAD + WINDOW, 0xff);
        assert_eq!(form.read(31, data.first_chunk().unwrap()), Location::new(-7, 8));
    }

    #[test]
    fn two_places_are_split() {
        let places: Vec<Location> = (0..BLOCK as i32)
            .map(|i| Location::new(i % 2 * 900_000_000 + i, i))
            .collect();
        let mut data = Vec::new();
        let form = pack(&places, &mut data);
        assert_eq!(form.0 & SPLIT, SPLIT);
        assert!(data.len() <= SPLIT_HEAD + 40, "{}", data.len());
    }

    proptest! {
        #[test]
        fn blocks_read_back(
            before in 0usize..9,
            locations in proptest::collection::vec(location(), 1..=BLOCK),
            places in 1usize..5,
        ) {
            for locations in [&locations[..], &locations[..places.min(locations.len())]] {
                let mut data = vec![0xa5; before];
                let form = pack(locations, &mut data);
                data.resize(data.len() + WINDOW, 0x5a);
                for (place, at) in locations.iter().enumerate() {
                    prop_assert_eq!(form.read(place, data[before..].first_chunk().unwrap()), *at);
                }
            }
        }

        #[test]
        fn two_groups_read_back(
            locations in proptest::collection::vec(
                ((0i32..300, 0i32..70), prop_oneof![Just((0, 0)), Just((i32::MIN, 5)), Just((7, 1 << 29))]),
                1..=BLOCK,
            ),
        ) {
            let locations: Vec<Location> = locations
                .into_iter()
                .map(|((x, y), (lon, lat))| Location::new(lon + x, lat + y))
                .collect();
            let mut data = Vec::new();
            let form = pack(&locations, &mut data);
            data.resize(data.len() + WINDOW, 0x5a);
            for (place, at) in locations.iter().enumerate() {
                prop_assert_eq!(form.read(place, data.first_chunk().unwrap()), *at);
            }
        }
    }
}
