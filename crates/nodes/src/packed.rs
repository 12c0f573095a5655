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

/// Bytes of a page that is being made. No page is longer than 64 KiB.
pub(crate) type PageBytes = [u8; MOST + 8];
const MOST: usize = 1 << 16;

/// Puts a number on a page.
#[inline(always)]
pub(crate) fn put<const N: usize>(page: &mut PageBytes, at: usize, bytes: [u8; N]) {
    const { assert!(N <= 8) }
    let at = at % MOST;
    page[at..at + N].copy_from_slice(&bytes);
}

/// A coordinate of each location of a block. Behind the last one the first one is repeated.
type Column = [i32; BLOCK];

/// Smallest and largest number of a column.
#[derive(Debug, Clone, Copy)]
struct Extent {
    min: i32,
    max: i32,
}

impl Extent {
    /// The extent of those numbers of a column for which `is` holds at their places.
    #[inline(always)]
    fn of(column: &Column, is: impl Fn(usize) -> bool) -> Extent {
        let (mut min, mut max) = (i32::MAX, i32::MIN);
        for (place, number) in column.iter().enumerate() {
            min = min.min(if is(place) { *number } else { i32::MAX });
            max = max.max(if is(place) { *number } else { i32::MIN });
        }
        Extent { min, max }
    }

    /// Bits that the differences take.
    #[inline(always)]
    fn width(self) -> u32 {
        32 - self.max.wrapping_sub(self.min).cast_unsigned().leading_zeros()
    }
}

/// Smallest rectangle around locations.
#[derive(Debug, Clone, Copy)]
struct Around {
    lon: Extent,
    lat: Extent,
}

impl Around {
    #[inline(always)]
    fn of(lons: &Column, lats: &Column, is: impl Fn(usize) -> bool) -> Around {
        Around {
            lon: Extent::of(lons, &is),
            lat: Extent::of(lats, &is),
        }
    }

    #[inline(always)]
    fn widths(&self) -> (u32, u32) {
        (self.lon.width(), self.lat.width())
    }

    /// The base of a block or a group.
    #[inline(always)]
    fn base(&self) -> [u8; 8] {
        let [lon, lat] = [self.lon.min, self.lat.min].map(i32::cast_unsigned);
        (u64::from(lat) << 32 | u64::from(lon)).to_le_bytes()
    }

    /// The differences of a location to the base, as the number that they make together.
    #[inline(always)]
    fn difference(&self, lon: i32, lat: i32) -> u64 {
        let lon_difference = lon.wrapping_sub(self.lon.min).cast_unsigned();
        let lat_difference = lat.wrapping_sub(self.lat.min).cast_unsigned();
        u64::from(lat_difference) << self.lon.width() | u64::from(lon_difference)
    }
}

/// Appends bits to a page.
struct Bits<'a> {
    page: &'a mut PageBytes,
    /// Where the next byte comes.
    at: usize,
    /// Bits that make no byte yet.
    word: u64,
    filled: u32,
}

impl Bits<'_> {
    #[inline(always)]
    fn put(&mut self, number: u64, width: u32) {
        self.word |= number << self.filled;
        put(self.page, self.at, self.word.to_le_bytes());
        self.filled += width;
        let bytes = self.filled / 8;
        self.at += bytes as usize;
        self.word >>= 8 * bytes;
        self.filled %= 8;
    }

    /// Puts locations, each as the number that its differences make.
    #[inline(always)]
    fn put_all(&mut self, numbers: impl Iterator<Item = u64>, (lon, lat): (u32, u32)) {
        if lon + lat <= 56 {
            numbers.for_each(|number| self.put(number, lon + lat));
        } else {
            numbers.for_each(|number| {
                self.put(number & mask(lon), lon);
                self.put(number >> lon, lat);
            });
        }
    }

    /// Gives where the bits end.
    #[inline(always)]
    fn finish(self) -> usize {
        self.at + usize::from(self.filled > 0)
    }
}

/// Differences that take fewer bits than this in all are not worth a split.
const WORTH: u32 = 22;

/// Puts a block of 1 to [`BLOCK`] locations on a page, from byte `at` on. Gives its form and where it ends.
#[inline(always)]
pub(crate) fn pack(locations: &[Location], page: &mut PageBytes, at: usize) -> (Form, usize) {
    let count = locations.len().min(BLOCK);
    let mut all = [locations[0]; BLOCK];
    all[..count].copy_from_slice(&locations[..count]);
    let (lons, lats) = (all.map(|at| at.lon), all.map(|at| at.lat));
    let whole = Around::of(&lons, &lats, |_| true);
    let widths = whole.widths();
    let size = |count: usize, widths: (u32, u32)| count * (widths.0 + widths.1) as usize;
    if widths.0 + widths.1 >= WORTH && count > 4 {
        // The groups lie on the two sides of the middle of the longer edge.
        let (axis, edge) = match widths.0 >= widths.1 {
            true => (&lons, whole.lon),
            false => (&lats, whole.lat),
        };
        let half = edge.max.wrapping_sub(edge.min).cast_unsigned() / 2;
        let middle = edge.min.wrapping_add(half.cast_signed());
        let first = Around::of(&lons, &lats, |place| axis[place] <= middle);
        let second = Around::of(&lons, &lats, |place| axis[place] > middle);
        let sides = axis.iter().enumerate();
        let groups = sides.fold(0, |groups, (place, at)| groups | u32::from(*at > middle) << place);
        // Set behind the last location.
        let groups = groups | !mask(count as u32) as u32;
        let own_count = groups.count_zeros() as usize;
        let (own, others) = (first.widths(), second.widths());
        let split = size(own_count, own) + size(count - own_count, others);
        if split.div_ceil(8) + SPLIT_HEAD < size(count, widths).div_ceil(8) + HEAD {
            put(page, at, first.base());
            put(page, at + 8, second.base());
            put(page, at + 16, groups.to_le_bytes());
            put(page, at + 20, Form::new(others).0.to_le_bytes());
            let mut bits = Bits {
                page,
                at: at + SPLIT_HEAD,
                word: 0,
                filled: 0,
            };
            let numbers = |around: Around, group: u32| {
                Ones(group).map(move |place| around.difference(lons[place], lats[place]))
            };
            bits.put_all(numbers(first, !groups), own);
            bits.put_all(numbers(second, groups & mask(count as u32) as u32), others);
            return (Form(SPLIT | Form::new(own).0), bits.finish());
        }
    }
    put(page, at, whole.base());
    let mut numbers = [0; BLOCK];
    for (place, number) in numbers.iter_mut().enumerate() {
        *number = whole.difference(lons[place], lats[place]);
    }
    let mut bits = Bits {
        page,
        at: at + HEAD,
        word: 0,
        filled: 0,
    };
    bits.put_all(numbers[..count].iter().copied(), widths);
    (Form::new(widths), bits.finish())
}

/// The places of the bits that are set.
struct Ones(u32);

impl Iterator for Ones {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        let place = self.0.trailing_zeros() as usize % BLOCK;
        let any = self.0 != 0;
        self.0 &= self.0.wrapping_sub(1);
        any.then_some(place)
    }
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

    /// A block behind some bytes of a page of noise: those bytes, its form, and what follows.
    fn packed(locations: &[Location], before: usize) -> (Form, usize, Box<PageBytes>) {
        let mut page = Box::new([0xa5; MOST + 8]);
        let (form, end) = pack(locations, &mut page, before);
        assert!(page[..before].iter().all(|byte| *byte == 0xa5));
        page[end..].fill(0x5a);
        (form, end - before, page)
    }

    #[test]
    fn one_place_takes_no_bits() {
        let (form, len, page) = packed(&[Location::new(-7, 8); BLOCK], 0);
        assert_eq!(len, HEAD);
        assert_eq!(form.read(31, page.first_chunk().unwrap()), Location::new(-7, 8));
    }

    #[test]
    fn two_places_are_split() {
        let places: Vec<Location> = (0..BLOCK as i32)
            .map(|i| Location::new(i % 2 * 900_000_000 + i, i))
            .collect();
        let (form, len, _) = packed(&places, 0);
        assert_eq!(form.0 & SPLIT, SPLIT);
        assert!(len <= SPLIT_HEAD + 40, "{len}");
    }

    proptest! {
        #[test]
        fn blocks_read_back(
            before in 0usize..9,
            locations in proptest::collection::vec(location(), 1..=BLOCK),
            places in 1usize..5,
        ) {
            for locations in [&locations[..], &locations[..places.min(locations.len())]] {
                let (form, _, page) = packed(locations, before);
                for (place, at) in locations.iter().enumerate() {
                    prop_assert_eq!(form.read(place, page[before..].first_chunk().unwrap()), *at);
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
            let (form, _, page) = packed(&locations, 0);
            for (place, at) in locations.iter().enumerate() {
                prop_assert_eq!(form.read(place, page.first_chunk().unwrap()), *at);
            }
        }
    }
}
