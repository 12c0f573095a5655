//! Whole packed columns at once.
//!
//! A column is read 64 bytes at a time: the ends of its varints are found as bits of one word, so that decoding
//! one varint does not wait for the length of the one before. With AVX2 and BMI2 the bits come from a byte
//! mask, and the sevens of a varint are gathered by one instruction; the portable way needs a dozen for each. Which
//! one runs is decided once for a column. The tests hold the two against each other.
//!
//! Most columns of ways are shorter than 64 bytes. They are read in the same way where as many can be read from their
//! beginning on, whatever these are: copied to a place of their own, or read number by number, they cost twice as much.
//!
//! Tried and left: to write eight numbers at a time with AVX-512, spread over lanes and packed. Whether they
//! come from iterators or from slices, adding locations gains 1 % at most; where all columns are copied it costs 1 %.
#![allow(unsafe_code)]

use super::columns::count_varints;
use super::{WireError, gather_sevens, read_varint, write_varint, zigzag_decode};

/// The bytes of a chunk and eight more, so that each varint that ends in it can be read as one word.
const CHUNK_AND_WORD: usize = 64 + 8;

/// The steps that differ between processors.
trait Steps {
    /// One bit for each byte that ends a varint: its continuation bit is not set.
    fn varint_ends(chunk: &[u8; 64]) -> u64;
    /// One bit for each byte that is 0.
    fn zeros(chunk: &[u8; 64]) -> u64;
    /// The value of a varint of `len` bytes, from 1 to 8, at the beginning of `word`.
    fn value(word: u64, len: usize) -> u64;
    /// The 56 lowest bits of a value, seven in each byte.
    fn sevens(value: u64) -> u64;
}

/// One bit for each of eight bytes that ends a varint.
#[inline(always)]
pub(super) fn eight_ends(bytes: [u8; 8]) -> u64 {
    // Multiplying moves the lowest bits of the bytes next to each other.
    let bits = (!u64::from_le_bytes(bytes) >> 7) & 0x0101_0101_0101_0101;
    bits.wrapping_mul(0x0102_0408_1020_4080) >> 56
}

/// Whether each byte ends a varint or one of its seven predecessors does, if those before the first do. Then no
/// varint is longer than eight bytes.
#[inline(always)]
pub(super) fn none_is_long(ends: u64) -> bool {
    let mut near = ends;
    near |= near << 1 | 0x1;
    near |= near << 2 | 0x3;
    near |= near << 4 | 0xf;
    near == u64::MAX
}

struct Portable;

impl Steps for Portable {
    #[inline(always)]
    fn varint_ends(chunk: &[u8; 64]) -> u64 {
        let words = chunk.as_chunks::<8>().0.iter().enumerate();
        words.fold(0, |ends, (i, word)| ends | eight_ends(*word) << (8 * i))
    }

    #[inline(always)]
    fn zeros(chunk: &[u8; 64]) -> u64 {
        // Adding 0x7f to seven bits reaches the eighth unless they are 0.
        let others = chunk.as_chunks::<8>().0.iter().map(|word| {
            let word = u64::from_le_bytes(*word);
            ((word & 0x7f7f_7f7f_7f7f_7f7f) + 0x7f7f_7f7f_7f7f_7f7f) | word
        });
        let bits = others
            .enumerate()
            .map(|(i, word)| eight_ends(word.to_le_bytes()) << (8 * i));
        bits.fold(0, |zeros, bits| zeros | bits)
    }

    #[inline(always)]
    fn value(word: u64, len: usize) -> u64 {
        gather_sevens(word & (u64::MAX >> (64 - 8 * len)))
    }

    #[inline(always)]
    fn sevens(value: u64) -> u64 {
        let x = (value & 0x0fff_ffff) | (value & 0x00ff_ffff_f000_0000) << 4;
        let x = (x & 0x0000_3fff_0000_3fff) | (x & 0x0fff_c000_0fff_c000) << 2;
        (x & 0x007f_007f_007f_007f) | (x & 0x3f80_3f80_3f80_3f80) << 1
    }
}

/// Appends numbers as varints: each is written as a word of eight bytes of which the next one overwrites what is too
/// much, so that lengths need no branches.
#[inline]
pub(super) fn encode_all(out: &mut Vec<u8>, values: impl Iterator<Item = u64>) {
    #[cfg(target_arch = "x86_64")]
    if x86::is_fast() {
        // SAFETY: the processor has what the function was compiled for.
        return unsafe { x86::encode_all(out, values) };
    }
    encode_with::<Portable>(out, values)
}

#[inline(always)]
fn encode_with<S: Steps>(out: &mut Vec<u8>, values: impl Iterator<Item = u64>) {
    /// Bytes to make room for at a time.
    const ROOM: usize = 256;
    let mut len = out.len();
    for value in values {
        if value >> 56 != 0 || out.capacity() - len < 8 {
            // SAFETY: so many bytes have been written.
            unsafe { out.set_len(len) };
            if value >> 56 != 0 {
                write_varint(out, value);
                len = out.len();
                continue;
            }
            out.reserve(ROOM);
        }
        // The number of sevens is that of bits divided by seven, rounded up.
        let bytes = ((64 - (value | 1).leading_zeros()) * 37 + 222) >> 8;
        let more = 0x0080_8080_8080_8080 & ((1 << (8 * (bytes - 1))) - 1);
        let word = (S::sevens(value) | more).to_le_bytes();
        // SAFETY: there is room for eight bytes behind the first `len`.
        unsafe { out.as_mut_ptr().add(len).cast::<[u8; 8]>().write_unaligned(word) };
        len += bytes as usize;
    }
    // SAFETY: so many bytes have been written.
    unsafe { out.set_len(len) };
}

/// Folds the numbers of a packed column, the first `len` of these bytes, each with its place, counted from 0. What is
/// folded travels by value, so that it stays in registers. With `SKIP_ZEROS` numbers that are a single byte 0 may be left
/// out, which saves most of the work where most are.
///
/// A short column is folded faster if 72 bytes can be read from its beginning on.
///
/// # Errors
///
/// A varint that is cut off or too long; those before it were folded.
#[inline]
pub(super) fn fold<const SKIP_ZEROS: bool, A: Copy>(
    bytes: &[u8],
    len: usize,
    init: A,
    step: impl FnMut(A, usize, u64) -> A,
) -> Result<A, WireError> {
    if bytes.len() < CHUNK_AND_WORD {
        return fold_short(&bytes[..len], 0, init, step);
    }
    #[cfg(target_arch = "x86_64")]
    if x86::is_fast() {
        // SAFETY: the processor has what the function was compiled for.
        return unsafe { x86::fold::<SKIP_ZEROS, A>(bytes, len, init, step) };
    }
    fold_with::<Portable, SKIP_ZEROS, A>(bytes, len, init, step)
}

/// The values of a delta-coded column, all together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sums {
    /// How many there are.
    pub count: usize,
    /// The last one.
    pub last: i64,
    /// The least one.
    pub least: i64,
    /// The greatest one.
    pub greatest: i64,
}

impl Sums {
    /// Before the first value.
    pub const NONE: Sums = Sums {
        count: 0,
        last: 0,
        least: i64::MAX,
        greatest: i64::MIN,
    };

    /// With the next value, for which there may be a slot.
    #[inline(always)]
    fn and(self, delta: u64, slots: &mut [i64]) -> Sums {
        let value = self.last.wrapping_add(zigzag_decode(delta));
        if let Some(slot) = slots.get_mut(self.count) {
            *slot = value;
        }
        Sums {
            count: self.count + 1,
            last: value,
            least: self.least.min(value),
            greatest: self.greatest.max(value),
        }
    }
}

/// Puts the values of a packed delta-coded column, which go on from those `before`, into the slots of their numbers,
/// as far as there are some. With AVX-512 eight at a time: two and a half times as fast as [`fold`]. (Loading from the end
/// of every eighth number on, each load waits for the one before: that is slower than one by one.)
///
/// # Errors
///
/// As [`fold`].
pub(super) fn sums_to(bytes: &[u8], before: Sums, slots: &mut [i64]) -> Result<Sums, WireError> {
    let (mut sums, mut rest) = (before, bytes);
    #[cfg(target_arch = "x86_64")]
    if bytes.len() >= x86::WIDE && x86::is_wide() {
        // SAFETY: the processor has what the function was compiled for.
        (sums, rest) = unsafe { x86::sums_to(bytes, before, slots) };
    }
    fold::<false, _>(rest, rest.len(), sums, |sums, _, delta| sums.and(delta, slots))
}

/// How many varints end in the first `len` of these bytes. Faster for a few if 64 can be read.
#[inline]
pub(crate) fn count(bytes: &[u8], len: usize) -> usize {
    #[cfg(target_arch = "x86_64")]
    if let Some(chunk) = bytes.first_chunk::<64>()
        && len <= 64
        && x86::is_fast()
    {
        // SAFETY: the processor has what the function was compiled for.
        return unsafe { x86::count(chunk, len) };
    }
    count_varints(&bytes[..len])
}

/// Whether a message, the first `len` of these bytes, has a field with this key. `None` where that cannot be told at a
/// glance: anything but a message of at most 32 bytes of numbers in fields up to 15, in a place where 32 can be read.
#[inline]
pub(crate) fn has_number_field(bytes: &[u8], len: usize, key: u8) -> Option<bool> {
    #[cfg(target_arch = "x86_64")]
    if let Some(chunk) = bytes.first_chunk::<32>()
        && (1..=32).contains(&len)
        && x86::is_fast()
    {
        // SAFETY: as above.
        return unsafe { x86::has_number_field(chunk, len, key) };
    }
    let _ = (bytes, len, key);
    None
}

/// Varint by varint.
#[inline(always)]
fn fold_short<A>(
    mut bytes: &[u8],
    first: usize,
    init: A,
    mut step: impl FnMut(A, usize, u64) -> A,
) -> Result<A, WireError> {
    let (mut folded, mut place) = (init, first);
    while !bytes.is_empty() {
        folded = step(folded, place, read_varint(&mut bytes)?);
        place += 1;
    }
    Ok(folded)
}

#[inline(always)]
fn fold_with<S: Steps, const SKIP_ZEROS: bool, A: Copy>(
    bytes: &[u8],
    len: usize,
    init: A,
    mut step: impl FnMut(A, usize, u64) -> A,
) -> Result<A, WireError> {
    // A copy that is the function's own can be kept in registers.
    let mut folded = init;
    let (mut start, mut at, mut place) = (0, 0, 0);
    while at < len
        && let Some(chunk) = bytes.get(at..at + CHUNK_AND_WORD)
        && let Some(chunk) = chunk.first_chunk::<64>()
    {
        let own = u64::MAX >> (64 - (len - at).min(64));
        let ends = S::varint_ends(chunk) & own;
        let are_short = || none_is_long(ends | !own) && at - start + ends.trailing_zeros() as usize <= 7;
        let mut todo = ends;
        if !SKIP_ZEROS && ends == u64::MAX && start == at {
            for byte in chunk {
                folded = step(folded, place, u64::from(*byte));
                place += 1;
            }
            start += 64;
        } else if SKIP_ZEROS && are_short() {
            let starts = ends << 1 | u64::from(start == at);
            todo &= !(S::zeros(chunk) & starts);
            while todo != 0 {
                let bit = todo.trailing_zeros();
                todo &= todo - 1;
                // It begins where the one before it ends, which may have been a zero.
                let before = ends & ((1 << bit) - 1);
                if before != 0 {
                    start = at + 64 - before.leading_zeros() as usize;
                }
                let end = at + bit as usize + 1;
                // SAFETY: `start` is within the chunk or before it, and eight more bytes follow the chunk.
                let word = unsafe { bytes.as_ptr().add(start).cast::<u64>().read_unaligned() };
                let place = place + before.count_ones() as usize;
                folded = step(folded, place, S::value(u64::from_le(word), end - start));
            }
            place += ends.count_ones() as usize;
            start = at + 64 - ends.leading_zeros() as usize;
        } else if are_short() {
            while todo != 0 {
                let end = at + todo.trailing_zeros() as usize + 1;
                todo &= todo - 1;
                // SAFETY: as above.
                let word = unsafe { bytes.as_ptr().add(start).cast::<u64>().read_unaligned() };
                folded = step(folded, place, S::value(u64::from_le(word), end - start));
                place += 1;
                start = end;
            }
        } else {
            while todo != 0 {
                let end = at + todo.trailing_zeros() as usize + 1;
                todo &= todo - 1;
                folded = step(folded, place, read_varint(&mut &bytes[start..])?);
                place += 1;
                start = end;
            }
        }
        at += 64;
    }
    fold_short(&bytes[start..len], place, folded, step)
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;
    use std::sync::OnceLock;

    use super::{Steps, Sums, WireError, encode_with, fold_with, none_is_long};

    /// Whether the processor has AVX2 and a fast BMI2.
    #[inline]
    pub fn is_fast() -> bool {
        static FAST: OnceLock<bool> = OnceLock::new();
        *FAST.get_or_init(|| {
            let has = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2")
                && is_x86_feature_detected!("lzcnt")
                && is_x86_feature_detected!("popcnt");
            has && !gathers_slowly()
        })
    }

    /// Whether, besides, it has the parts of AVX-512 that move bytes about.
    #[inline]
    pub fn is_wide() -> bool {
        static WIDE: OnceLock<bool> = OnceLock::new();
        *WIDE.get_or_init(|| {
            is_fast()
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vbmi")
                && is_x86_feature_detected!("avx512vbmi2")
        })
    }

    /// AMD's processors before family 19h have `pext` as a microprogram of up to 300 cycles.
    #[allow(unused_unsafe)]
    fn gathers_slowly() -> bool {
        // SAFETY: every x86-64 processor has `cpuid`.
        let (vendor, version) = unsafe { (__cpuid(0), __cpuid(1)) };
        let is_amd = [vendor.ebx, vendor.edx, vendor.ecx]
            .map(u32::to_le_bytes)
            .concat()
            == b"AuthenticAMD";
        let family = (version.eax >> 8 & 0xf) + (version.eax >> 20 & 0xff);
        is_amd && family < 0x19
    }

    struct Avx2;

    impl Steps for Avx2 {
        #[inline(always)]
        fn varint_ends(chunk: &[u8; 64]) -> u64 {
            // SAFETY: the pointers are to 32 readable bytes each; AVX2 is there, or `fold` is not called.
            unsafe {
                let low = _mm256_loadu_si256(chunk.as_ptr().cast());
                let high = _mm256_loadu_si256(chunk.as_ptr().add(32).cast());
                let bits = |half| u64::from(_mm256_movemask_epi8(half) as u32);
                !(bits(low) | bits(high) << 32)
            }
        }

        #[inline(always)]
        fn zeros(chunk: &[u8; 64]) -> u64 {
            // SAFETY: as above.
            unsafe {
                let zero = _mm256_setzero_si256();
                let bits = |at| {
                    let half = _mm256_loadu_si256(chunk.as_ptr().add(at).cast());
                    u64::from(_mm256_movemask_epi8(_mm256_cmpeq_epi8(half, zero)) as u32)
                };
                bits(0) | bits(32) << 32
            }
        }

        #[inline(always)]
        fn value(word: u64, len: usize) -> u64 {
            // SAFETY: BMI2 is there, or `fold` is not called.
            unsafe { _pext_u64(word, _bzhi_u64(0x7f7f_7f7f_7f7f_7f7f, 8 * len as u32)) }
        }

        #[inline(always)]
        fn sevens(value: u64) -> u64 {
            // SAFETY: as above.
            unsafe { _pdep_u64(value, 0x7f7f_7f7f_7f7f_7f7f) }
        }
    }

    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
    pub fn encode_all(out: &mut Vec<u8>, values: impl Iterator<Item = u64>) {
        encode_with::<Avx2>(out, values);
    }

    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    pub fn fold<const SKIP_ZEROS: bool, A: Copy>(
        bytes: &[u8],
        len: usize,
        init: A,
        step: impl FnMut(A, usize, u64) -> A,
    ) -> Result<A, WireError> {
        fold_with::<Avx2, SKIP_ZEROS, A>(bytes, len, init, step)
    }

    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    pub fn count(chunk: &[u8; 64], len: usize) -> usize {
        _bzhi_u64(Avx2::varint_ends(chunk), len as u32).count_ones() as usize
    }

    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    pub fn has_number_field(chunk: &[u8; 32], len: usize, key: u8) -> Option<bool> {
        // SAFETY: as many bytes as are loaded.
        let bytes = unsafe { _mm256_loadu_si256(chunk.as_ptr().cast()) };
        let where_equal = |a, b| u64::from(_mm256_movemask_epi8(_mm256_cmpeq_epi8(a, b)) as u32);
        let has_none_of = |bits| {
            where_equal(
                _mm256_and_si256(bytes, _mm256_set1_epi8(bits)),
                _mm256_setzero_si256(),
            )
        };
        let own = _bzhi_u64(u64::MAX, len as u32);
        let ends = has_none_of(-0x80) & own;
        // A key and a value in turn.
        let keys = _pdep_u64(0x5555_5555_5555_5555, ends);
        let values = ends & !keys;
        let whole = values >> (len - 1) & 1 == 1 && none_is_long(ends | !own);
        // Keys of one byte stand right behind a value.
        let short = keys == (values << 1 | 1) & own;
        let of_numbers = keys & !(has_none_of(0x07) & !has_none_of(0x78)) == 0;
        (whole && short && of_numbers).then(|| keys & where_equal(bytes, _mm256_set1_epi8(key as i8)) != 0)
    }

    /// Bytes that [`sums_to`] wants to see at once.
    pub const WIDE: usize = 128;

    /// What [`super::sums_to`] does, as far as whole chunks go; gives the bytes that are left.
    ///
    /// The places where the varints of a chunk end are packed together, and taken eight at a time. Of each a lane is
    /// made of the eight bytes from its beginning on, of which those behind its end are cleared; multiplying and adding
    /// pairs makes one number of sevens, then of fourteens, and a shift of twenty-eights.
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512vbmi,avx512vbmi2")]
    pub fn sums_to<'b>(bytes: &'b [u8], before: Sums, slots: &mut [i64]) -> (Sums, &'b [u8]) {
        const BYTES: [u8; 64] = {
            let mut bytes = [0; 64];
            let mut at = 0;
            while at < 64 {
                bytes[at] = at as u8;
                at += 1;
            }
            bytes
        };
        // SAFETY: as many bytes as are loaded.
        let each_byte = unsafe { _mm512_loadu_si512(BYTES.as_ptr().cast()) };
        let in_lane = _mm512_set1_epi64(0x0706_0504_0302_0100);
        // Of eight bytes, the first everywhere in lane 0, the second in lane 1, and so on.
        let own = _mm512_srli_epi64(_mm512_and_si512(each_byte, _mm512_set1_epi8(0x38)), 3);
        let of_lane = |bytes: u64| _mm512_shuffle_epi8(_mm512_set1_epi64(bytes as i64), own);
        let zero = _mm512_setzero_si512();
        let mut last = _mm512_set1_epi64(before.last);
        let mut least = _mm512_set1_epi64(before.least);
        let mut greatest = _mm512_set1_epi64(before.greatest);
        let (mut start, mut at, mut count) = (0, 0, before.count);
        while let Some(both) = bytes.get(start..start + WIDE)
            && let Some(slots) = slots.get_mut(count..count + 64)
        {
            // SAFETY: `at` is at most 7 bytes behind `start`.
            let (chunk, low, high) = unsafe {
                (
                    _mm512_loadu_si512(bytes.as_ptr().add(at).cast()),
                    _mm512_loadu_si512(both.as_ptr().cast()),
                    _mm512_loadu_si512(both.as_ptr().add(64).cast()),
                )
            };
            let ends = !_mm512_movepi8_mask(chunk);
            if !none_is_long(ends) || at - start + ends.trailing_zeros() as usize > 7 {
                break;
            }
            let found = ends.count_ones() as usize;
            // From here on places are counted from `start`.
            let mut ends_left = _mm512_add_epi8(
                _mm512_maskz_compress_epi8(ends, each_byte),
                _mm512_set1_epi8((at - start) as i8),
            );
            let mut first = 0;
            for done in (0..found).step_by(8) {
                let ends = _mm_cvtsi128_si64(_mm512_castsi512_si128(ends_left)) as u64;
                ends_left = _mm512_alignr_epi64(zero, ends_left, 1);
                let behind = ends.wrapping_add(0x0101_0101_0101_0101);
                let places = _mm512_add_epi8(of_lane(behind << 8 | first), in_lane);
                first = behind >> 56;
                let within = _mm512_cmple_epu8_mask(places, of_lane(ends));
                let words = _mm512_permutex2var_epi8(low, places, high);
                let sevens = _mm512_maskz_mov_epi8(within, _mm512_and_si512(words, _mm512_set1_epi8(0x7f)));
                let fourteens = _mm512_maddubs_epi16(_mm512_set1_epi16(0x8001u16 as i16), sevens);
                let halves = _mm512_madd_epi16(fourteens, _mm512_set1_epi32(0x4000_0001));
                let low_half = _mm512_set1_epi64(0x0fff_ffff);
                let number = _mm512_ternarylogic_epi64(low_half, halves, _mm512_srli_epi64(halves, 4), 0xca);
                let sign = _mm512_sub_epi64(zero, _mm512_and_si512(number, _mm512_set1_epi64(1)));
                let delta = _mm512_xor_si512(_mm512_srli_epi64(number, 1), sign);
                let sum = _mm512_add_epi64(delta, _mm512_alignr_epi64(delta, zero, 7));
                let sum = _mm512_add_epi64(sum, _mm512_alignr_epi64(sum, zero, 6));
                let sum = _mm512_add_epi64(sum, _mm512_alignr_epi64(sum, zero, 4));
                let sum = _mm512_add_epi64(sum, last);
                // SAFETY: `done` is at most 56, and there are 64 slots.
                unsafe { _mm512_storeu_si512(slots.as_mut_ptr().add(done).cast(), sum) };
                let here = (found - done).min(8);
                let valid = (0xff >> (8 - here)) as u8;
                last = _mm512_permutexvar_epi64(_mm512_set1_epi64(here as i64 - 1), sum);
                least = _mm512_mask_min_epi64(least, valid, least, sum);
                greatest = _mm512_mask_max_epi64(greatest, valid, greatest, sum);
            }
            count += found;
            start = at + 64 - ends.leading_zeros() as usize;
            at += 64;
        }
        let sums = Sums {
            count,
            last: _mm_cvtsi128_si64(_mm512_castsi512_si128(last)),
            least: _mm512_reduce_min_epi64(least),
            greatest: _mm512_reduce_max_epi64(greatest),
        };
        (sums, &bytes[start..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::write_varint;
    use proptest::prelude::*;

    /// Numbers with their places, and how it ended.
    type Decoded = (Vec<(usize, u64)>, Result<(), WireError>);
    type Visit<'v> = &'v mut dyn FnMut(usize, u64);

    fn decoded(decode: impl FnOnce(Visit<'_>) -> Result<(), WireError>) -> Decoded {
        let mut values = Vec::new();
        let result = decode(&mut |place, value| values.push((place, value)));
        (values, result)
    }

    fn one_by_one(mut bytes: &[u8], visit: Visit<'_>) -> Result<(), WireError> {
        let mut places = 0..;
        while !bytes.is_empty() {
            let value = read_varint(&mut bytes)?;
            visit(places.next().unwrap(), value);
        }
        Ok(())
    }

    /// A number of any length, often 0.
    fn number() -> impl Strategy<Value = u64> {
        prop_oneof![
            2 => Just(0),
            3 => (any::<u64>(), 0u32..64).prop_map(|(value, shift)| value >> shift),
        ]
    }

    proptest! {
        /// Whichever processor runs the test, all ways give what reading varint by varint gives.
        #[test]
        fn all_ways_agree(
            values in proptest::collection::vec(number(), 0..300),
            ones in 0usize..200,
            padded in proptest::collection::vec(0usize..11, 0..10),
            noise in proptest::collection::vec(prop_oneof![any::<u8>(), 0x80u8..], 0..20),
            more in proptest::collection::vec(any::<u16>(), 0..100),
            behind in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let mut bytes = Vec::new();
            values.iter().for_each(|v| write_varint(&mut bytes, *v));
            bytes.resize(bytes.len() + ones, 1);
            for padding in padded {
                bytes.resize(bytes.len() + padding, 0x80);
                bytes.push(1);
            }
            bytes.extend(noise);
            more.iter().for_each(|v| write_varint(&mut bytes, (*v).into()));
            let expected = decoded(|visit| one_by_one(&bytes, visit));
            let nonzero = |(values, result): Decoded| {
                (values.into_iter().filter(|(_, v)| *v != 0).collect::<Vec<_>>(), result)
            };
            let len = bytes.len();
            let number = bytes.iter().filter(|byte| **byte < 0x80).count();
            bytes.extend(behind);
            prop_assert_eq!(count(&bytes, len), number);
            // With nothing behind the column, and with what can be read and does not belong to it.
            for bytes in [&bytes[..len], &bytes[..]] {
                let portable = decoded(|visit| fold_with::<Portable, false, ()>(bytes, len, (), |(), at, v| visit(at, v)));
                prop_assert_eq!(portable, expected.clone());
                let fast = decoded(|visit| fold::<false, ()>(bytes, len, (), |(), at, v| visit(at, v)));
                prop_assert_eq!(fast, expected.clone());

                let portable = decoded(|visit| fold_with::<Portable, true, ()>(bytes, len, (), |(), at, v| visit(at, v)));
                prop_assert_eq!(nonzero(portable), nonzero(expected.clone()));
                let fast = decoded(|visit| fold::<true, ()>(bytes, len, (), |(), at, v| visit(at, v)));
                prop_assert_eq!(nonzero(fast), nonzero(expected.clone()));
            }
        }

        /// Sums of a column, of which a part has no slots.
        #[test]
        fn sums_are_those_of_the_numbers(
            values in proptest::collection::vec(number(), 0..600),
            long in any::<bool>(),
            cut in 0usize..20,
            slots in 0usize..700,
            last: i64,
        ) {
            let mut bytes = Vec::new();
            values.iter().for_each(|v| write_varint(&mut bytes, if long { *v } else { *v >> 8 }));
            bytes.truncate(bytes.len().saturating_sub(cut / 10));
            let before = Sums { count: 3, last, ..Sums::NONE };
            let (mut expected, mut found) = (vec![0; slots], vec![0; slots]);
            let slow = fold_short(&bytes, 0, before, |sums, _, delta| sums.and(delta, &mut expected));
            let fast = sums_to(&bytes, before, &mut found);
            prop_assert_eq!(fast, slow);
            // Slots behind the last number are nobody's.
            let count = slow.map_or(0, |sums| sums.count.min(slots));
            prop_assert_eq!(&found[..count], &expected[..count]);
        }

        #[test]
        fn numbers_are_written_as_one_by_one(values in proptest::collection::vec(number(), 0..300)) {
            let mut expected = vec![1, 2, 3];
            let (mut portable, mut fast) = (expected.clone(), expected.clone());
            values.iter().for_each(|v| write_varint(&mut expected, *v));
            encode_with::<Portable>(&mut portable, values.iter().copied());
            encode_all(&mut fast, values.iter().copied());
            prop_assert_eq!(&portable, &expected);
            prop_assert_eq!(&fast, &expected);
        }
    }
}
