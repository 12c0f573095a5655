//! Extents: one block of sorted keys and their values.
//!
//! ```text
//!  0 u32 checksum  xxh3 of bytes 4..4096, seeded with block number and file id, low half
//!  4 u16 magic     0xDA5E            6 u8 format    7 u8 codec: 0 raw, 1 packed, 2 bitmap
//!  8 u16 count     keys             10 u16 used     payload bytes
//! 12 u32 file id   drawn at creation
//! 16 u64 epoch     the commit this extent was written for
//! 24 u64 low, 32 u64 high: the key range this extent answers for, both inclusive
//! 40 u64 zero
//! 48 payload
//! ```
//!
//! The fences make the directory rebuildable from the extents alone: of two extents whose ranges overlap the one with
//! the higher epoch is alive. The checksum is repeated in the parent, so a write that was lost or went to
//! another place is noticed although the block there is valid by itself.

pub(crate) mod bitmap;
pub(crate) mod bits;
mod packed;

use crate::buf::{BLOCK, prefetch};
use crate::value::Shape;
use packed::Packed;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes before the payload.
pub const HEADER: usize = 48;
/// Bytes of payload.
pub const PAYLOAD: usize = BLOCK - HEADER;
/// Marks an extent.
pub const MAGIC: u16 = 0xDA5E;
/// Version of the file format as a whole.
pub const FORMAT: u8 = 1;

const RAW: u8 = 0;
const PACKED: u8 = 1;
const BITMAP: u8 = 2;

/// How extents are written. Reading handles all forms at all times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// Keys and values as they are: fastest single operations, 8 bytes a key plus the value.
    Raw,
    /// Per extent the smallest of packed, bitmap and raw.
    #[default]
    Packed,
}

/// Keys and row-major values, outside of a block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rows {
    pub keys: Vec<u64>,
    pub vals: Vec<u8>,
}

impl Rows {
    pub fn clear(&mut self) {
        self.keys.clear();
        self.vals.clear();
    }
}

/// What an extent says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub checksum: u32,
    pub codec: u8,
    pub count: usize,
    pub used: usize,
    pub file_id: u32,
    pub epoch: u64,
    pub low: u64,
    pub high: u64,
}

fn u16_at(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([b[at], b[at + 1]])
}

pub(crate) fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(b[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn u64_at(b: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(b[at..at + 8].try_into().expect("eight bytes"))
}

/// Checksum of a block or run of blocks: everything after the checksum itself, bound to its place and file.
pub(crate) fn checksum(bytes: &[u8], block: u32, file_id: u32) -> u32 {
    xxh3_64_with_seed(&bytes[4..], u64::from(block) | u64::from(file_id) << 32) as u32
}

impl Header {
    /// Reads the header; `Err` says what is wrong. `bytes` is one block.
    pub fn read(bytes: &[u8], block: u32, file_id: u32) -> Result<Self, &'static str> {
        if u16_at(bytes, 4) != MAGIC {
            return Err("not an extent");
        }
        let sum = u32_at(bytes, 0);
        if checksum(bytes, block, file_id) != sum {
            return Err("checksum of the extent does not match its bytes");
        }
        if bytes[6] != FORMAT || bytes[7] > BITMAP {
            return Err("extent of another format");
        }
        let header = Self {
            checksum: sum,
            codec: bytes[7],
            count: u16_at(bytes, 8).into(),
            used: u16_at(bytes, 10).into(),
            file_id: u32_at(bytes, 12),
            epoch: u64_at(bytes, 16),
            low: u64_at(bytes, 24),
            high: u64_at(bytes, 32),
        };
        if header.file_id != file_id {
            return Err("extent of another file");
        }
        if header.used > PAYLOAD || header.low > header.high {
            return Err("extent header contradicts itself");
        }
        Ok(header)
    }
}

/// A readable extent. Never panics, whatever the bytes; order of keys is checked by [`Page::decode`] alone.
#[derive(Clone, Copy)]
pub(crate) struct Page<'a> {
    shape: &'a Shape,
    count: usize,
    body: Body<'a>,
}

#[derive(Clone, Copy)]
enum Body<'a> {
    Raw(&'a [[u8; 8]], &'a [u8]),
    Packed(Packed<'a>),
    Bitmap(u64, &'a [u8]),
}

impl<'a> Page<'a> {
    /// Views a block; `None` when sizes in the header do not fit together.
    pub fn new(shape: &'a Shape, bytes: &'a [u8]) -> Option<Self> {
        let count = usize::from(u16_at(bytes, 8));
        let data = bytes.get(HEADER..HEADER + usize::from(u16_at(bytes, 10)))?;
        let body = match bytes[7] {
            RAW => {
                let (keys, vals) = data.get(..count * (8 + shape.width))?.split_at(count * 8);
                Body::Raw(keys.as_chunks().0, vals)
            }
            PACKED => Body::Packed(Packed::new(shape, data, count)?),
            BITMAP if shape.width == 0 => Body::Bitmap(u64_at(data.get(..8)?, 0), &data[8..]),
            _ => return None,
        };
        Some(Self { shape, count, body })
    }

    /// Views rows in memory, keys little endian.
    pub fn of_rows(shape: &'a Shape, keys: &'a [[u8; 8]], vals: &'a [u8]) -> Self {
        Self {
            shape,
            count: keys.len(),
            body: Body::Raw(keys, vals),
        }
    }

    /// Views the payload of a bitmap.
    pub fn of_bitmap(shape: &'a Shape, payload: &'a [u8], count: usize) -> Self {
        Self {
            shape,
            count,
            body: Body::Bitmap(u64_at(payload, 0), &payload[8..]),
        }
    }

    /// First key and bits, where the extent is a bitmap.
    pub fn bitmap(&self) -> Option<(u64, &'a [u8])> {
        match self.body {
            Body::Bitmap(base, map) => Some((base, map)),
            _ => None,
        }
    }

    /// Number of keys.
    pub fn count(&self) -> usize {
        self.count
    }

    /// As [`lower_bound_near`](Self::lower_bound_near), without an idea of the place.
    pub fn lower_bound(&self, key: u64) -> (usize, bool) {
        self.lower_bound_near(key, usize::MAX)
    }

    /// Number of keys below `key`, and whether `key` itself is there. Among raw keys a good guess makes it a look at a few cache lines; else
    /// O(log n) steps and at most one group.
    #[inline]
    pub fn lower_bound_near(&self, key: u64, guess: usize) -> (usize, bool) {
        match &self.body {
            Body::Raw(keys, _) => {
                let i = raw_lower_bound_near(keys, key, guess);
                (i, keys.get(i).is_some_and(|k| u64::from_le_bytes(*k) == key))
            }
            Body::Packed(p) => p.lower_bound(key),
            Body::Bitmap(base, map) => {
                let Some(bit) = key.checked_sub(*base) else {
                    return (0, false);
                };
                if bit >= map.len() as u64 * 8 {
                    return (self.count, false);
                }
                let (word, rest) = ((bit / 64) as usize, (bit % 64) as u32);
                let ones: u32 = words(map).take(word).map(u64::count_ones).sum();
                let here = bits::get(map, word * 64, 64);
                (
                    (ones + (here & !(u64::MAX << rest)).count_ones()) as usize,
                    (here >> rest) & 1 == 1,
                )
            }
        }
    }

    /// The `i`-th key; 0 beyond the end.
    pub fn key_at(&self, i: usize) -> u64 {
        match &self.body {
            Body::Raw(keys, _) => keys.get(i).map_or(0, |k| u64::from_le_bytes(*k)),
            Body::Packed(p) => p.key_at(i),
            Body::Bitmap(base, map) => {
                let mut left = i;
                for (w, mut word) in words(map).enumerate() {
                    let ones = word.count_ones() as usize;
                    if left < ones {
                        (0..left).for_each(|_| word &= word - 1);
                        return base.wrapping_add(w as u64 * 64 + u64::from(word.trailing_zeros()));
                    }
                    left -= ones;
                }
                0
            }
        }
    }

    /// Writes the `i`-th value into `out`, which has the shape's width.
    pub fn value_at(&self, i: usize, out: &mut [u8]) {
        match &self.body {
            Body::Raw(_, vals) => {
                let at = i * self.shape.width;
                if let Some(v) = vals.get(at..at + self.shape.width) {
                    out.copy_from_slice(v);
                }
            }
            Body::Packed(p) => p.value_at(i, out),
            Body::Bitmap(..) => {}
        }
    }

    /// Appends all rows; `Err` when keys do not ascend.
    pub fn decode(&self, rows: &mut Rows) -> Result<(), &'static str> {
        let start = rows.keys.len();
        rows.keys.reserve(self.count);
        rows.vals.reserve(self.count * self.shape.width);
        match &self.body {
            Body::Raw(keys, vals) => {
                rows.keys.extend(keys.iter().map(|k| u64::from_le_bytes(*k)));
                rows.vals.extend_from_slice(vals);
            }
            Body::Packed(p) => p.decode(&mut rows.keys, &mut rows.vals),
            Body::Bitmap(base, map) => {
                for (w, mut word) in words(map).enumerate() {
                    while word != 0 {
                        rows.keys
                            .push(base.wrapping_add(w as u64 * 64 + u64::from(word.trailing_zeros())));
                        word &= word - 1;
                    }
                }
            }
        }
        let keys = &rows.keys[start..];
        if keys.len() != self.count {
            return Err("number of keys differs from the count in the header");
        }
        if !keys.is_sorted_by(|a, b| a < b) {
            return Err("keys do not ascend");
        }
        Ok(())
    }
}

/// Keys looked at to both sides of a guess. Interpolation among 500 evenly drawn keys is wrong by 11 on average at the worst place.
const NEAR: usize = 24;

#[inline]
fn raw_lower_bound_near(keys: &[[u8; 8]], key: u64, guess: usize) -> usize {
    let from = guess.min(keys.len()).saturating_sub(NEAR);
    let near = &keys[from..keys.len().min(from + 2 * NEAR)];
    let (Some(first), Some(last)) = (near.first(), near.last()) else {
        return 0;
    };
    let left = from == 0 || u64::from_le_bytes(*first) < key;
    let right = from + near.len() == keys.len() || u64::from_le_bytes(*last) >= key;
    if left && right {
        return from
            + near
                .iter()
                .map(|k| usize::from(u64::from_le_bytes(*k) < key))
                .sum::<usize>();
    }
    raw_lower_bound(keys, key)
}

/// Two rounds of independent loads, where a binary search has nine that wait for each other: the first counts the pivots below `key`, one in
/// [`STRIDE`] keys, the second the keys between two pivots.
fn raw_lower_bound(keys: &[[u8; 8]], key: u64) -> usize {
    let below = |k: &[u8; 8]| usize::from(u64::from_le_bytes(*k) < key);
    let pivots: usize = keys.iter().skip(STRIDE - 1).step_by(STRIDE).map(below).sum();
    let from = pivots * STRIDE;
    let rest = &keys[from..keys.len().min(from + STRIDE)];
    from + rest.iter().map(below).sum::<usize>()
}

/// Asks for the cache lines of an extent that a search with this guess will read: header and groups' first keys, and those around the guess.
#[inline]
pub(crate) fn prefetch_near(bytes: &[u8], guess: Guess) {
    prefetch(bytes, 0);
    match guess.encoding {
        Encoding::Raw => {
            let at = HEADER + guess.at.saturating_sub(NEAR) * 8;
            (0..2 * NEAR * 8 + 64)
                .step_by(64)
                .for_each(|line| prefetch(bytes, at + line));
        }
        Encoding::Packed => {
            prefetch(bytes, 64);
            prefetch(bytes, 128);
            // Groups lie behind each other and are of about equal size.
            let at = HEADER + (PAYLOAD * 9 / 10) * guess.at / guess.of.max(1);
            (0..4).for_each(|line| prefetch(bytes, (at + 64 * line).saturating_sub(64)));
        }
    }
}

/// Where in an extent a key is likely to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guess {
    /// Row.
    pub at: usize,
    /// Rows of the extent.
    pub of: usize,
    /// How extents of this file are written.
    pub encoding: Encoding,
}

/// Keys between pivots: four cache lines.
const STRIDE: usize = 32;

fn words(map: &[u8]) -> impl Iterator<Item = u64> {
    (0..map.len().div_ceil(8)).map(move |w| bits::get(map, w * 64, 64))
}

/// Writes payloads; keeps its scratch between calls.
pub(crate) struct Encoder {
    shape: Shape,
    encoding: Encoding,
    scratch: Vec<u8>,
}

/// Result of one [`Encoder::encode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Encoded {
    pub codec: u8,
    /// Leading keys written.
    pub count: usize,
    /// Bytes of payload.
    pub used: usize,
}

impl Encoder {
    pub fn new(shape: Shape, encoding: Encoding) -> Self {
        Self {
            shape,
            encoding,
            scratch: Vec::with_capacity(BLOCK),
        }
    }

    /// Keys that fit `limit` bytes of raw payload.
    fn raw_fit(&self, limit: usize) -> usize {
        limit / (8 + self.shape.width)
    }

    /// Writes as many leading rows as fit `limit <= PAYLOAD` bytes into `out`. At least one row is written if there is one
    /// and `limit` is a raw row or more.
    pub fn encode(&mut self, keys: &[u64], vals: &[u8], limit: usize, out: &mut [u8]) -> Encoded {
        let raw = self.raw_fit(limit).min(keys.len());
        if self.encoding == Encoding::Packed && !keys.is_empty() {
            let dense = if self.shape.width == 0 {
                bitmap::fit(keys, limit)
            } else {
                0
            };
            let packed = if dense > packed::GROUP * packed::MAX_GROUPS {
                0
            } else {
                packed::encode(&self.shape, keys, vals, limit, &mut self.scratch)
            };
            let packed_is_smaller = packed > raw || self.scratch.len() < raw * (8 + self.shape.width);
            if packed >= raw.max(dense) && packed > 0 && packed_is_smaller {
                out[..self.scratch.len()].copy_from_slice(&self.scratch);
                return Encoded {
                    codec: PACKED,
                    count: packed,
                    used: self.scratch.len(),
                };
            }
            if dense > raw {
                return bitmap::write(keys, dense, out);
            }
        }
        for (slot, key) in out.as_chunks_mut::<8>().0.iter_mut().zip(&keys[..raw]) {
            *slot = key.to_le_bytes();
        }
        let used = raw * (8 + self.shape.width);
        out[raw * 8..used].copy_from_slice(&vals[..raw * self.shape.width]);
        Encoded {
            codec: RAW,
            count: raw,
            used,
        }
    }
}

/// Writes the header around a payload already in `bytes[HEADER..]`, and returns the checksum.
pub(crate) fn seal(
    bytes: &mut [u8],
    encoded: Encoded,
    fences: (u64, u64),
    epoch: u64,
    block: u32,
    file_id: u32,
) -> u32 {
    bytes[HEADER + encoded.used..].fill(0);
    bytes[4..6].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[6] = FORMAT;
    bytes[7] = encoded.codec;
    bytes[8..10].copy_from_slice(&(encoded.count as u16).to_le_bytes());
    bytes[10..12].copy_from_slice(&(encoded.used as u16).to_le_bytes());
    bytes[12..16].copy_from_slice(&file_id.to_le_bytes());
    bytes[16..24].copy_from_slice(&epoch.to_le_bytes());
    bytes[24..32].copy_from_slice(&fences.0.to_le_bytes());
    bytes[32..40].copy_from_slice(&fences.1.to_le_bytes());
    bytes[40..48].fill(0);
    let sum = checksum(bytes, block, file_id);
    bytes[..4].copy_from_slice(&sum.to_le_bytes());
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn any_guess_finds_the_same() {
        for n in [0u64, 1, 5, 47, 48, 49, 500, 1000] {
            let keys: Vec<[u8; 8]> = (0..n).map(|k| (k * k * 3 + 1).to_le_bytes()).collect();
            for key in (0..n * n * 3 + 10).step_by(1 + n as usize * 7) {
                let want = keys.iter().filter(|k| u64::from_le_bytes(**k) < key).count();
                for guess in [0, 1, 20, 30, 100, 490, 2000, usize::MAX] {
                    assert_eq!(
                        raw_lower_bound_near(&keys, key, guess),
                        want,
                        "{key} of {n} near {guess}"
                    );
                }
            }
        }
    }

    fn keys_strategy() -> impl Strategy<Value = Vec<u64>> {
        let gap = prop_oneof![
            Just(1u64),
            1u64..3,
            1u64..200,
            1u64..(1 << 40),
            Just(u64::MAX / 3)
        ];
        let pieces = prop::collection::vec((gap, 1usize..300), 1..6);
        (any::<u32>(), pieces, any::<u64>()).prop_map(|(start, pieces, seed)| {
            let (mut keys, mut k, mut s) = (vec![], u64::from(start), seed | 1);
            for (gap, n) in pieces {
                for _ in 0..n {
                    s = s
                        .wrapping_mul(6364136223846793005)
                        .wrapping_add(1442695040888963407);
                    match k.checked_add(1 + (s >> 33) % gap) {
                        Some(next) => k = next,
                        None => return keys,
                    }
                    keys.push(k);
                }
            }
            keys
        })
    }

    fn check(
        columns: &[u8],
        encoding: Encoding,
        keys: &[u64],
        spread: u32,
        limit: usize,
    ) -> Result<(), TestCaseError> {
        let shape = Shape::new(columns).unwrap();
        let mut s = 88172645463325252u64;
        let mut vals = vec![0u8; keys.len() * shape.width];
        for row in vals.chunks_exact_mut(shape.width.max(1)) {
            let mut at = 0;
            for &w in columns {
                s ^= s << 13;
                s ^= s >> 7;
                s ^= s << 17;
                let v = (s >> 1 >> spread) as i64 - (1i64 << 62 >> spread);
                row[at..at + w as usize].copy_from_slice(&v.to_le_bytes()[..w as usize]);
                at += w as usize;
            }
        }
        let mut block = vec![0xAA; BLOCK];
        let encoded = Encoder::new(shape.clone(), encoding).encode(keys, &vals, limit, &mut block[HEADER..]);
        prop_assert!(encoded.used <= limit && encoded.count <= keys.len());
        prop_assert!(encoded.count >= keys.len().min(limit / (8 + shape.width)));
        let sum = seal(&mut block, encoded, (0, u64::MAX), 9, 77, 5);
        let header = Header::read(&block, 77, 5).unwrap();
        prop_assert_eq!(
            (header.checksum, header.epoch, header.count),
            (sum, 9, encoded.count)
        );
        prop_assert!(
            Header::read(&block, 78, 5).is_err(),
            "a misdirected block is noticed"
        );
        let page = Page::new(&shape, &block).unwrap();
        let mut rows = Rows::default();
        page.decode(&mut rows).unwrap();
        let n = encoded.count;
        prop_assert_eq!(&rows.keys[..], &keys[..n]);
        prop_assert_eq!(&rows.vals[..], &vals[..n * shape.width]);
        let mut out = vec![0; shape.width];
        for i in (0..n).step_by(1 + n / 50) {
            prop_assert_eq!(page.key_at(i), keys[i]);
            page.value_at(i, &mut out);
            prop_assert_eq!(&out[..], &vals[i * shape.width..(i + 1) * shape.width]);
            for probe in [keys[i].saturating_sub(1), keys[i], keys[i].saturating_add(1)] {
                let want = (
                    keys[..n].partition_point(|&k| k < probe),
                    keys[..n].binary_search(&probe).is_ok(),
                );
                prop_assert_eq!(page.lower_bound(probe), want);
            }
        }
        prop_assert_eq!(page.lower_bound(0).0, 0);
        Ok(())
    }

    proptest! {
        #[test]
        fn extents_come_back(keys in keys_strategy(), spread in 0u32..60, short: bool) {
            let limit = if short { 900 } else { PAYLOAD };
            for encoding in [Encoding::Raw, Encoding::Packed] {
                for columns in [&[][..], &[8], &[4, 4], &[1, 2, 3], &[8, 8, 8, 8]] {
                    check(columns, encoding, &keys, spread, limit)?;
                }
            }
        }

        #[test]
        fn any_payload_is_harmless(bytes in prop::collection::vec(any::<u8>(), 300), codec in 0u8..3, count: u16, used in 0u16..4048) {
            for columns in [&[][..], &[4, 4]] {
                let shape = Shape::new(columns).unwrap();
                let mut block: Vec<u8> = bytes.iter().copied().cycle().take(BLOCK).collect();
                block[7] = codec;
                block[8..10].copy_from_slice(&(count % 9000).to_le_bytes());
                block[10..12].copy_from_slice(&used.to_le_bytes());
                if let Some(page) = Page::new(&shape, &block) {
                    let mut out = vec![0; shape.width];
                    for i in [0, 1, 63, 64, 1000, 70000] {
                        page.lower_bound(page.key_at(i).wrapping_add(i as u64));
                        page.value_at(i, &mut out);
                    }
                    let _ = page.decode(&mut Rows::default());
                }
            }
        }
    }

    #[test]
    fn dense_keys_take_a_fraction_of_a_byte() {
        let shape = Shape::new(&[]).unwrap();
        let mut out = vec![0; PAYLOAD];
        let keys: Vec<u64> = (0..40_000u64)
            .filter(|k| k % 5 != 3)
            .map(|k| k + 1_000_000_000)
            .collect();
        let e = Encoder::new(shape, Encoding::Packed).encode(&keys, &[], PAYLOAD, &mut out);
        assert!(e.used as f64 / (e.count as f64) < 0.3, "{e:?}");
    }
}
