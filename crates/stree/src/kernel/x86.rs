//! AVX2 and AVX-512.
//!
//! The intrinsics are called inside `#[inline(always)]` methods that end up in [`run_avx2`] or [`run_avx512`], which carry the
//! features.

use std::arch::x86_64::*;

use super::scalar::Scalar;
use super::{Batch, Line, Vector};

/// Whether the processor has what [`run_avx2`] is compiled for.
#[inline]
pub(super) fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt")
}

/// Whether the processor has what [`run_avx512`] is compiled for.
#[inline]
pub(super) fn has_avx512() -> bool {
    has_avx2()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vpopcntdq")
}

/// Runs a batch with AVX2.
///
/// # Safety
///
/// [`has_avx2`] must hold.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(super) unsafe fn run_avx2<B: Batch>(batch: B) {
    batch.run::<Avx2>();
}

/// Runs a batch with AVX-512.
///
/// # Safety
///
/// [`has_avx512`] must hold.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512vpopcntdq")]
pub(super) unsafe fn run_avx512<B: Batch>(batch: B) {
    batch.run::<Avx512>();
}

/// 256-bit comparisons.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx2;

/// The two halves of a line.
///
/// # Safety
///
/// AVX must be available.
#[inline(always)]
unsafe fn halves<T>(line: &T) -> (__m256i, __m256i) {
    const { assert!(size_of::<T>() == 64) }
    let at = std::ptr::from_ref(line).cast::<__m256i>();
    // SAFETY: both loads lie within the 64 bytes behind the reference; they are of the unaligned kind.
    unsafe { (_mm256_loadu_si256(at), _mm256_loadu_si256(at.add(1))) }
}

// SAFETY, for every method: called only under `run_avx2`, whose features they need; loads go through `halves`.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Vector for Avx2 {
    #[inline(always)]
    fn below_u16<const SKIP: u32>(line: &Line, needle: u16) -> usize {
        unsafe {
            let (low, high) = halves(line);
            let needle = _mm256_set1_epi16(needle as i16);
            let zero = _mm256_setzero_si256();
            // needle - lane saturates to zero exactly when lane >= needle.
            let low = _mm256_cmpeq_epi16(_mm256_subs_epu16(needle, low), zero);
            let high = _mm256_cmpeq_epi16(_mm256_subs_epu16(needle, high), zero);
            // The pack shuffles quarters: lanes 0-7, 16-23, 8-15, 24-31. The skipped ones stay at the bottom.
            let not_below = _mm256_movemask_epi8(_mm256_packs_epi16(low, high)) as u32;
            (!not_below & (u32::MAX << SKIP)).count_ones() as usize
        }
    }

    #[inline(always)]
    fn below_u32<const SKIP: u32>(lanes: &[u32; 16], needle: u32, flip: u32) -> usize {
        unsafe {
            let (low, high) = halves(lanes);
            // The comparison is signed, so unsigned order is had by flipping the sign bit of both sides.
            let sign = 1u32 << 31;
            let flip = _mm256_set1_epi32((flip ^ sign) as i32);
            let needle = _mm256_set1_epi32((needle ^ sign) as i32);
            let low = _mm256_cmpgt_epi32(needle, _mm256_xor_si256(low, flip));
            let high = _mm256_cmpgt_epi32(needle, _mm256_xor_si256(high, flip));
            let below = _mm256_movemask_ps(_mm256_castsi256_ps(low)) as u32
                | (_mm256_movemask_ps(_mm256_castsi256_ps(high)) as u32) << 8;
            (below & (u32::MAX << SKIP)).count_ones() as usize
        }
    }

    #[inline(always)]
    fn below_u64<const SKIP: u32>(lanes: &[u64; 8], needle: u64, flip: u64) -> usize {
        unsafe {
            let (low, high) = halves(lanes);
            let sign = 1u64 << 63;
            let flip = _mm256_set1_epi64x((flip ^ sign) as i64);
            let needle = _mm256_set1_epi64x((needle ^ sign) as i64);
            let low = _mm256_cmpgt_epi64(needle, _mm256_xor_si256(low, flip));
            let high = _mm256_cmpgt_epi64(needle, _mm256_xor_si256(high, flip));
            let below = _mm256_movemask_pd(_mm256_castsi256_pd(low)) as u32
                | (_mm256_movemask_pd(_mm256_castsi256_pd(high)) as u32) << 4;
            (below & (u32::MAX << SKIP)).count_ones() as usize
        }
    }

    #[inline(always)]
    fn ones_before(line: &Line, bit: u32) -> usize {
        // With the population count instruction the plain loop is seven counts and as many masks.
        Scalar::ones_before(line, bit)
    }

    #[inline(always)]
    fn below_u48(line: &Line, needle: u64) -> usize {
        unsafe {
            let (low, high) = halves(line);
            let tops = _mm256_set1_epi16((needle >> 32) as i16);
            // Lanes 22 to 31 are lanes 6 to 15 here; a mask has two bits for each.
            let at_most = _mm256_cmpeq_epi16(_mm256_subs_epu16(high, tops), _mm256_setzero_si256());
            let equal = _mm256_movemask_epi8(_mm256_cmpeq_epi16(high, tops)) as u32 >> 12;
            let above = !(_mm256_movemask_epi8(at_most) as u32) >> 12;
            let sign = 1u32 << 31;
            let (flip, rest) = (
                _mm256_set1_epi32(sign as i32),
                _mm256_set1_epi32((needle as u32 ^ sign) as i32),
            );
            let low = _mm256_cmpgt_epi32(rest, _mm256_xor_si256(low, flip));
            let high = _mm256_cmpgt_epi32(rest, _mm256_xor_si256(high, flip));
            let less = (_mm256_movemask_ps(_mm256_castsi256_ps(low)) as u32
                | (_mm256_movemask_ps(_mm256_castsi256_ps(high)) as u32) << 8)
                >> 1;
            let even = 0x5_5555;
            let less = _pdep_u32(less, even);
            (((!equal & !above) | (equal & less)) & even).count_ones() as usize
        }
    }

    #[inline(always)]
    fn equal_20(line: &Line, needle: &[u8; 20]) -> u32 {
        unsafe {
            let (low, high) = halves(line);
            let needle = record(needle);
            let first = _mm256_permutevar8x32_epi32(needle, _mm256_setr_epi32(0, 0, 1, 2, 3, 4, 0, 1));
            let second = _mm256_permutevar8x32_epi32(needle, _mm256_setr_epi32(2, 3, 4, 0, 1, 2, 3, 4));
            let low = _mm256_castsi256_ps(_mm256_cmpeq_epi32(low, first));
            let high = _mm256_castsi256_ps(_mm256_cmpeq_epi32(high, second));
            records(_mm256_movemask_ps(low) as u32 | (_mm256_movemask_ps(high) as u32) << 8)
        }
    }
}

/// A record of 20 bytes in the first five lanes.
///
/// # Safety
///
/// AVX must be available.
#[inline(always)]
unsafe fn record(bytes: &[u8; 20]) -> __m256i {
    let last = i32::from_le_bytes([bytes[16], bytes[17], bytes[18], bytes[19]]);
    // SAFETY: the load is of the first 16 of the 20 bytes, and of the unaligned kind.
    unsafe {
        let first = _mm_loadu_si128(bytes.as_ptr().cast());
        _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(first), _mm_cvtsi32_si128(last))
    }
}

/// From one bit per equal `u32` lane to one bit per equal record of five lanes, the first at lane 1.
#[inline(always)]
fn records(lanes: u32) -> u32 {
    let all = |record: u32| u32::from(lanes >> (1 + 5 * record) & 31 == 31) << record;
    all(0) | all(1) | all(2)
}

/// 512-bit comparisons.
#[derive(Clone, Copy, Debug)]
pub(super) struct Avx512;

/// A whole line.
///
/// # Safety
///
/// AVX-512 F must be available.
#[inline(always)]
unsafe fn whole<T>(line: &T) -> __m512i {
    const { assert!(size_of::<T>() == 64) }
    // SAFETY: the load is of the 64 bytes behind the reference, and of the unaligned kind.
    unsafe { _mm512_loadu_si512(std::ptr::from_ref(line).cast()) }
}

// SAFETY, for every method: called only under `run_avx512`, whose features they need; loads go through `whole`.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Vector for Avx512 {
    #[inline(always)]
    fn below_u16<const SKIP: u32>(line: &Line, needle: u16) -> usize {
        unsafe {
            let below = _mm512_cmplt_epu16_mask(whole(line), _mm512_set1_epi16(needle as i16));
            (below & (u32::MAX << SKIP)).count_ones() as usize
        }
    }

    #[inline(always)]
    fn below_u32<const SKIP: u32>(lanes: &[u32; 16], needle: u32, flip: u32) -> usize {
        unsafe {
            let lanes = _mm512_xor_si512(whole(lanes), _mm512_set1_epi32(flip as i32));
            let below = _mm512_cmplt_epu32_mask(lanes, _mm512_set1_epi32(needle as i32));
            (u32::from(below) & (u32::MAX << SKIP)).count_ones() as usize
        }
    }

    #[inline(always)]
    fn below_u64<const SKIP: u32>(lanes: &[u64; 8], needle: u64, flip: u64) -> usize {
        unsafe {
            let lanes = _mm512_xor_si512(whole(lanes), _mm512_set1_epi64(flip as i64));
            let below = _mm512_cmplt_epu64_mask(lanes, _mm512_set1_epi64(needle as i64));
            (u32::from(below) & (u32::MAX << SKIP)).count_ones() as usize
        }
    }

    #[inline(always)]
    fn ones_before(line: &Line, bit: u32) -> usize {
        unsafe {
            // Bits to take of each word; the header word takes none. Shifts by 64 and more give zero here.
            let before = _mm512_setr_epi64(512, 0, 64, 128, 192, 256, 320, 384);
            let take = _mm512_sub_epi64(_mm512_set1_epi64(i64::from(bit)), before);
            let take = _mm512_max_epi64(take, _mm512_setzero_si512());
            let above = _mm512_sllv_epi64(_mm512_set1_epi64(-1), take);
            let taken = _mm512_andnot_si512(above, whole(line));
            _mm512_reduce_add_epi64(_mm512_popcnt_epi64(taken)) as usize
        }
    }

    #[inline(always)]
    fn below_u48(line: &Line, needle: u64) -> usize {
        unsafe {
            let line = whole(line);
            let tops = _mm512_set1_epi16((needle >> 32) as i16);
            let below = _mm512_cmplt_epu16_mask(line, tops) >> 22;
            let equal = _mm512_cmpeq_epu16_mask(line, tops) >> 22;
            let less = u32::from(_mm512_cmplt_epu32_mask(line, _mm512_set1_epi32(needle as i32))) >> 1;
            (below | (equal & less)).count_ones() as usize
        }
    }

    #[inline(always)]
    fn equal_20(line: &Line, needle: &[u8; 20]) -> u32 {
        unsafe {
            let needle = _mm512_castsi256_si512(record(needle));
            let order = _mm512_setr_epi32(0, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4);
            let needle = _mm512_permutexvar_epi32(order, needle);
            records(u32::from(_mm512_cmpeq_epi32_mask(whole(line), needle)))
        }
    }
}
