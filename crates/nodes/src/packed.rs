//! Blocks of locations as fixed-width differences.

use osmill_model::Location;

/// Slots of a block.
pub const BLOCK: usize = 32;

/// Bytes behind the data that a read of the last location may touch.
pub(crate) const SPARE: usize = 16;

/// What the directory has of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Smallest longitude (high half) and latitude (low half).
    pub base: u64,
    /// `offset << 13 | complete << 12 | longitude bits << 6 | latitude bits`.
    pub form: u64,
}

/// Set where every slot has a location.
const COMPLETE: u64 = 1 << 12;
const OFFSET_SHIFT: u32 = 13;

/// Low `width` bits set.
#[inline(always)]
const fn mask(width: u32) -> u64 {
    (1 << width) - 1
}

impl Entry {
    /// A block none of whose slots has a location: the number for absence is the only one.
    pub const EMPTY: Entry = Entry { base: 0, form: 0 };

    /// The entry for data that lies `by` bytes further on.
    pub fn moved(self, by: u64) -> Entry {
        Entry {
            form: self.form + (by << OFFSET_SHIFT),
            ..self
        }
    }

    #[inline(always)]
    fn widths(self) -> (u32, u32) {
        ((self.form >> 6 & 63) as u32, (self.form & 63) as u32)
    }

    /// Where the location at a place in the block begins: the byte, and the bit in it.
    #[inline(always)]
    pub fn address(self, place: u64) -> (usize, u32) {
        let (lon, lat) = self.widths();
        let bit = place * u64::from(lon + lat);
        (((self.form >> OFFSET_SHIFT) + bit / 8) as usize, (bit % 8) as u32)
    }

    /// The location at a place in the block.
    ///
    /// # Panics
    ///
    /// If `data` ends less than [`SPARE`] bytes behind the location.
    #[inline(always)]
    pub fn read(self, place: u64, data: &[u8]) -> Option<Location> {
        let (lon_width, lat_width) = self.widths();
        let (byte, bit) = self.address(place);
        let take = |byte: usize, bit: u32, width: u32| {
            let mut word = [0; 8];
            word.copy_from_slice(&data[byte..byte + 8]);
            u64::from_le_bytes(word) >> bit & mask(width)
        };
        // At most 33 bits, and 7 before them.
        let lon = take(byte, bit, lon_width);
        let next = bit + lon_width;
        let lat = take(byte + (next / 8) as usize, next % 8, lat_width);
        if self.form & COMPLETE == 0 && lon == mask(lon_width) {
            return None;
        }
        Some(Location {
            lon: ((self.base >> 32) as u32).wrapping_add(lon as u32) as i32,
            lat: (self.base as u32).wrapping_add(lat as u32) as i32,
        })
    }
}

/// Appends the data of a block and gives its entry, with the offset counted from the start of `data`.
pub(crate) fn pack(slots: &[Option<Location>], data: &mut Vec<u8>) -> Entry {
    let mut present = slots.iter().flatten();
    let Some(first) = present.next() else {
        return Entry::EMPTY;
    };
    let (mut min, mut max, mut count) = (*first, *first, 1);
    for at in present {
        min = Location::new(min.lon.min(at.lon), min.lat.min(at.lat));
        max = Location::new(max.lon.max(at.lon), max.lat.max(at.lat));
        count += 1;
    }
    let absences = count < slots.len();
    let difference = |min: i32, max: i32| (i64::from(max) - i64::from(min)) as u64;
    let bits = |largest: u64| 64 - largest.leading_zeros();
    // With absences, the largest number of the width has to be free.
    let lon_width = bits(difference(min.lon, max.lon) + u64::from(absences));
    let lat_width = bits(difference(min.lat, max.lat));
    let offset = data.len() as u64;
    let (mut word, mut filled) = (0u64, 0u32);
    let mut put = |number: u64, width: u32| {
        word |= number << filled;
        filled += width;
        while filled >= 8 {
            data.push(word as u8);
            word >>= 8;
            filled -= 8;
        }
    };
    for slot in slots {
        match slot {
            Some(at) => {
                put(difference(min.lon, at.lon), lon_width);
                put(difference(min.lat, at.lat), lat_width);
            }
            None => {
                put(mask(lon_width), lon_width);
                put(0, lat_width);
            }
        }
    }
    if filled > 0 {
        data.push(word as u8);
    }
    Entry {
        base: u64::from(min.lon as u32) << 32 | u64::from(min.lat as u32),
        form: offset << OFFSET_SHIFT
            | if absences { 0 } else { COMPLETE }
            | u64::from(lon_width) << 6
            | u64::from(lat_width),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn location() -> impl Strategy<Value = Location> {
        prop_oneof![
            (-50i32..50, -50i32..50),
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
    fn one_place_takes_no_data() {
        let mut data = vec![9];
        let entry = pack(&[Some(Location::new(-7, 8)); BLOCK], &mut data);
        assert_eq!(data.len(), 1);
        data.resize(1 + SPARE, 0xff);
        assert_eq!(entry.read(63, &data), Some(Location::new(-7, 8)));
        assert_eq!(Entry::EMPTY.read(0, &data), None);
    }

    proptest! {
        #[test]
        fn blocks_read_back(
            before in 0usize..9,
            slots in proptest::collection::vec(proptest::option::weighted(0.8, location()), 0..=BLOCK),
            full in any::<bool>(),
        ) {
            let slots: Vec<_> = slots.into_iter().filter(|slot| !full || slot.is_some()).collect();
            let mut data = vec![0xa5; before];
            let entry = pack(&slots, &mut data);
            data.resize(data.len() + SPARE, 0x5a);
            for (place, slot) in slots.iter().enumerate() {
                prop_assert_eq!(entry.read(place as u64, &data), *slot);
            }
        }
    }
}
