//! The comparisons without SIMD: the oracle of the other files in this folder.

use super::{Line, Vector, cast};

/// Plain Rust.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scalar;

impl Vector for Scalar {
    #[inline(always)]
    fn below_u16<const SKIP: u32>(line: &Line, needle: u16) -> usize {
        cast::u16_lanes(line)[SKIP as usize..]
            .iter()
            .map(|&lane| usize::from(lane < needle))
            .sum()
    }

    #[inline(always)]
    fn below_u32<const SKIP: u32>(lanes: &[u32; 16], needle: u32, flip: u32) -> usize {
        lanes[SKIP as usize..]
            .iter()
            .map(|&lane| usize::from((lane ^ flip) < needle))
            .sum()
    }

    #[inline(always)]
    fn below_u64<const SKIP: u32>(lanes: &[u64; 8], needle: u64, flip: u64) -> usize {
        lanes[SKIP as usize..]
            .iter()
            .map(|&lane| usize::from((lane ^ flip) < needle))
            .sum()
    }

    #[inline(always)]
    fn ones_before(line: &Line, bit: u32) -> usize {
        let mut ones = 0;
        for (index, &word) in line.0[1..].iter().enumerate() {
            let take = (bit as i32 - 64 * index as i32).clamp(0, 64) as u32;
            // Two shifts, since one by 64 is not defined.
            let mask = !(u64::MAX << (take / 2) << (take - take / 2));
            ones += (word & mask).count_ones();
        }
        ones as usize
    }

    #[inline(always)]
    fn below_u48(line: &Line, needle: u64) -> usize {
        let (low, high) = (&cast::u32_lanes(line)[1..11], &cast::u16_lanes(line)[22..]);
        let numbers = low
            .iter()
            .zip(high)
            .map(|(&low, &high)| u64::from(high) << 32 | u64::from(low));
        numbers.map(|number| usize::from(number < needle)).sum()
    }

    #[inline(always)]
    fn equal_20(line: &Line, needle: &[u8; 20]) -> u32 {
        let bytes = cast::bytes(std::slice::from_ref(line));
        (0..3)
            .map(|record| u32::from(bytes[4 + 20 * record..][..20] == *needle) << record)
            .sum()
    }
}
