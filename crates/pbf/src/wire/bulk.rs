//! Whole packed columns at once.
//!
//! A column is read 64 bytes at a time: the ends of its varints are found as bits of one word, so that decoding
//! one varint does not wait for the length of the one before. With AVX2 and BMI2 the bits come from a byte
//! mask, and the sevens of a varint are gathered by one instruction; the portable way needs a dozen for each. Which
//! one runs is decided once for a column. The tests hold the two against each other.
#![allow(unsafe_code)]

use super::{WireError, gather_sevens, read_varint};

/// The steps that differ between processors.
trait Steps {
    /// One bit for each byte that ends a varint: its continuation bit is not set.
    fn varint_ends(chunk: &[u8; 64]) -> u64;
    /// The value of a varint of `len` bytes, from 1 to 8, at the beginning of `word`.
    fn value(word: u64, len: usize) -> u64;
}

struct Portable;

impl Steps for Portable {
    #[inline(always)]
    fn varint_ends(chunk: &[u8; 64]) -> u64 {
        let (words, _) = chunk.as_chunks::<8>();
        let mut ends = 0;
        for (i, word) in words.iter().enumerate() {
            // Multiplying moves the eight lowest bits of the bytes next to each other.
            let bits = (!u64::from_le_bytes(*word) >> 7) & 0x0101_0101_0101_0101;
            ends |= (bits.wrapping_mul(0x0102_0408_1020_4080) >> 56) << (8 * i);
        }
        ends
    }

    #[inline(always)]
    fn value(word: u64, len: usize) -> u64 {
        gather_sevens(word & (u64::MAX >> (64 - 8 * len)))
    }
}

/// Calls `visit` with each number of a packed column.
///
/// # Errors
///
/// A varint that is cut off or too long; those before it were visited.
#[inline]
pub(super) fn decode_all(bytes: &[u8], visit: &mut impl FnMut(u64)) -> Result<(), WireError> {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() >= 72 && x86::is_fast() {
        // SAFETY: the processor has what the function was compiled for.
        return unsafe { x86::decode_all(bytes, visit) };
    }
    decode_with::<Portable>(bytes, visit)
}

#[inline(always)]
fn decode_with<S: Steps>(bytes: &[u8], visit: &mut impl FnMut(u64)) -> Result<(), WireError> {
    let (mut start, mut at) = (0, 0);
    // Eight more bytes, so that each varint can be read as one word.
    while let Some(chunk) = bytes.get(at..at + 72).and_then(|chunk| chunk.first_chunk::<64>()) {
        let mut ends = S::varint_ends(chunk);
        if ends == u64::MAX && start == at {
            chunk.iter().for_each(|byte| visit(u64::from(*byte)));
            start += 64;
            ends = 0;
        }
        while ends != 0 {
            let end = at + ends.trailing_zeros() as usize;
            ends &= ends - 1;
            let len = end + 1 - start;
            match bytes[start..].first_chunk::<8>() {
                Some(word) if len <= 8 => visit(S::value(u64::from_le_bytes(*word), len)),
                _ => visit(read_varint(&mut &bytes[start..])?),
            }
            start = end + 1;
        }
        at += 64;
    }
    let mut rest = &bytes[start..];
    while !rest.is_empty() {
        visit(read_varint(&mut rest)?);
    }
    Ok(())
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;
    use std::sync::OnceLock;

    use super::{Steps, WireError, decode_with};

    /// Whether the processor has AVX2 and a fast BMI2.
    #[inline]
    pub fn is_fast() -> bool {
        static FAST: OnceLock<bool> = OnceLock::new();
        *FAST.get_or_init(|| {
            let has = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2");
            has && !gathers_slowly()
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
            // SAFETY: the pointers are to 32 readable bytes each; AVX2 is there, or `decode_all` is not called.
            unsafe {
                let low = _mm256_loadu_si256(chunk.as_ptr().cast());
                let high = _mm256_loadu_si256(chunk.as_ptr().add(32).cast());
                let bits = |half| u64::from(_mm256_movemask_epi8(half) as u32);
                !(bits(low) | bits(high) << 32)
            }
        }

        #[inline(always)]
        fn value(word: u64, len: usize) -> u64 {
            // SAFETY: BMI2 is there, or `decode_all` is not called.
            unsafe { _pext_u64(word, _bzhi_u64(0x7f7f_7f7f_7f7f_7f7f, 8 * len as u32)) }
        }
    }

    #[target_feature(enable = "avx2,bmi1,bmi2")]
    pub fn decode_all(bytes: &[u8], visit: &mut impl FnMut(u64)) -> Result<(), WireError> {
        decode_with::<Avx2>(bytes, visit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::write_varint;
    use proptest::prelude::*;

    fn decoded(
        decode: impl Fn(&[u8], &mut dyn FnMut(u64)) -> Result<(), WireError>,
        bytes: &[u8],
    ) -> (Vec<u64>, Result<(), WireError>) {
        let mut values = Vec::new();
        let result = decode(bytes, &mut |value| values.push(value));
        (values, result)
    }

    fn one_by_one(mut bytes: &[u8], visit: &mut dyn FnMut(u64)) -> Result<(), WireError> {
        while !bytes.is_empty() {
            visit(read_varint(&mut bytes)?);
        }
        Ok(())
    }

    proptest! {
        /// Whichever processor runs the test, both ways give what reading varint by varint gives.
        #[test]
        fn all_ways_agree(
            values in proptest::collection::vec((any::<u64>(), 0u32..64).prop_map(|(v, shift)| v >> shift), 0..300),
            ones in 0usize..200,
            noise in proptest::collection::vec(prop_oneof![any::<u8>(), 0x80u8..], 0..20),
        ) {
            let mut bytes = Vec::new();
            values.iter().for_each(|v| write_varint(&mut bytes, *v));
            bytes.resize(bytes.len() + ones, 1);
            bytes.extend(noise);
            let expected = decoded(one_by_one, &bytes);
            prop_assert_eq!(decoded(|bytes, mut visit| decode_with::<Portable>(bytes, &mut visit), &bytes), expected.clone());
            prop_assert_eq!(decoded(|bytes, mut visit| decode_all(bytes, &mut visit), &bytes), expected);
        }
    }
}
