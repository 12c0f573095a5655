//! NEON. It is part of every 64-bit Arm target Rust has, so nothing needs to be enabled.

use std::arch::aarch64::*;

use super::scalar::Scalar;
use super::{Line, Vector, cast};

/// 128-bit comparisons.
#[derive(Clone, Copy, Debug)]
pub(super) struct Neon;

// SAFETY, for every method: NEON is a base feature of the target; each load of 16 bytes lies within the 64 behind the reference.
#[allow(clippy::undocumented_unsafe_blocks)]
impl Vector for Neon {
    #[inline(always)]
    fn below_u16<const SKIP: u32>(line: &Line, needle: u16) -> usize {
        let lanes = cast::u16_lanes(line);
        // A lane that is below compares to all ones, that is, to minus one.
        let sum = unsafe {
            let needle = vdupq_n_u16(needle);
            let mut sum = vdupq_n_u16(0);
            for quarter in 0..4 {
                sum = vaddq_u16(sum, vcltq_u16(vld1q_u16(lanes.as_ptr().add(8 * quarter)), needle));
            }
            vaddvq_u16(sum)
        };
        let skipped: usize = lanes[..SKIP as usize]
            .iter()
            .map(|&lane| usize::from(lane < needle))
            .sum();
        usize::from(sum.wrapping_neg()) - skipped
    }

    #[inline(always)]
    fn below_u32<const SKIP: u32>(lanes: &[u32; 16], needle: u32, flip: u32) -> usize {
        let sum = unsafe {
            let (needle, flip) = (vdupq_n_u32(needle), vdupq_n_u32(flip));
            let mut sum = vdupq_n_u32(0);
            for quarter in 0..4 {
                let lanes = veorq_u32(vld1q_u32(lanes.as_ptr().add(4 * quarter)), flip);
                sum = vaddq_u32(sum, vcltq_u32(lanes, needle));
            }
            vaddvq_u32(sum)
        };
        let skipped: usize = lanes[..SKIP as usize]
            .iter()
            .map(|&lane| usize::from((lane ^ flip) < needle))
            .sum();
        sum.wrapping_neg() as usize - skipped
    }

    #[inline(always)]
    fn below_u64<const SKIP: u32>(lanes: &[u64; 8], needle: u64, flip: u64) -> usize {
        let sum = unsafe {
            let (needle, flip) = (vdupq_n_u64(needle), vdupq_n_u64(flip));
            let mut sum = vdupq_n_u64(0);
            for quarter in 0..4 {
                let lanes = veorq_u64(vld1q_u64(lanes.as_ptr().add(2 * quarter)), flip);
                sum = vaddq_u64(sum, vcltq_u64(lanes, needle));
            }
            vaddvq_u64(sum)
        };
        let skipped: usize = lanes[..SKIP as usize]
            .iter()
            .map(|&lane| usize::from((lane ^ flip) < needle))
            .sum();
        sum.wrapping_neg() as usize - skipped
    }

    #[inline(always)]
    fn ones_before(line: &Line, bit: u32) -> usize {
        Scalar::ones_before(line, bit)
    }

    #[inline(always)]
    fn below_u48(line: &Line, needle: u64) -> usize {
        Scalar::below_u48(line, needle)
    }

    #[inline(always)]
    fn equal_20(line: &Line, needle: &[u8; 20]) -> u32 {
        Scalar::equal_20(line, needle)
    }
}
