//! The four kinds of line.

use super::Lines;
use crate::kernel::{Line, Vector, cast};
use crate::place;

/// How a line of a bucket index stores its rank and keys.
pub(super) trait LineKind {
    /// Its number.
    const KIND: Lines;
    /// Keys per line.
    const CAPACITY: usize;
    /// Share of the slots to fill.
    const LOAD: f64;
    /// Farthest that a key may lie from home.
    const REACH: u64;

    /// Bits of the rank.
    const RANK_BITS: u32;

    /// Whether lines with this multiplier store something different for different keys.
    fn tells_apart(multiplier: u64, span: u64) -> bool;
    /// A line without keys.
    fn empty(rank: u64) -> Line;
    /// Number of keys before the line.
    fn rank(line: &Line) -> u64;
    /// What is stored for a value, and compared with it, in the line `away` lines from home. `product` is value times multiplier.
    fn probe(value: u64, product: u128, away: u64) -> u64;
    /// How many slots are below a probe.
    fn below<V: Vector>(line: &Line, probe: u64) -> usize;
    /// What is stored in a slot, if there is such a slot.
    fn slot(line: &Line, slot: usize) -> Option<u64>;
    /// Stores a probe.
    fn put(line: &mut Line, slot: usize, probe: u64);
    /// The value that a slot of line number `number` stands for.
    fn value(line: &Line, number: u64, slot: usize, multiplier: u64) -> Option<u64>;
}

/// Rank `u64`, seven `u64`.
pub(super) struct Wide;

impl LineKind for Wide {
    const KIND: Lines = Lines::Wide;
    const CAPACITY: usize = 7;
    const LOAD: f64 = 0.7;
    const REACH: u64 = place::REACH;
    const RANK_BITS: u32 = 64;

    fn tells_apart(_: u64, _: u64) -> bool {
        true
    }

    fn empty(rank: u64) -> Line {
        let mut line = Line([u64::MAX; 8]);
        line.0[0] = rank;
        line
    }

    #[inline(always)]
    fn rank(line: &Line) -> u64 {
        line.0[0]
    }

    #[inline(always)]
    fn probe(value: u64, _: u128, _: u64) -> u64 {
        value
    }

    #[inline(always)]
    fn below<V: Vector>(line: &Line, probe: u64) -> usize {
        V::below_u64::<1>(&line.0, probe, 0)
    }

    #[inline(always)]
    fn slot(line: &Line, slot: usize) -> Option<u64> {
        line.0.get(1 + slot).copied()
    }

    #[inline(always)]
    fn put(line: &mut Line, slot: usize, probe: u64) {
        line.0[1 + slot] = probe;
    }

    fn value(line: &Line, _: u64, slot: usize, _: u64) -> Option<u64> {
        line.0.get(slot.checked_add(1)?).copied()
    }
}

/// Rank `u32`, ten numbers of 48 bits: low 32 bits of all, then high 16 bits of all.
pub(super) struct Split;

/// Bits of the fraction that a split line keeps.
const SPLIT_FRACTION: u32 = 45;
/// Farthest that a key may lie from home in split lines. Among tens of millions of lines some spill three lines on.
const SPLIT_REACH: u64 = 6;

impl LineKind for Split {
    const KIND: Lines = Lines::Split;
    const CAPACITY: usize = 10;
    const LOAD: f64 = 0.75;
    const REACH: u64 = SPLIT_REACH;
    const RANK_BITS: u32 = 32;

    fn tells_apart(multiplier: u64, _: u64) -> bool {
        multiplier >> (64 - SPLIT_FRACTION) != 0
    }

    fn empty(rank: u64) -> Line {
        Middle::empty(rank)
    }

    #[inline(always)]
    fn rank(line: &Line) -> u64 {
        Middle::rank(line)
    }

    #[inline(always)]
    fn probe(_: u64, product: u128, away: u64) -> u64 {
        let fraction = product as u64 >> (64 - SPLIT_FRACTION);
        (SPLIT_REACH.saturating_sub(away) << SPLIT_FRACTION) + fraction
    }

    #[inline(always)]
    fn below<V: Vector>(line: &Line, probe: u64) -> usize {
        V::below_u48(line, probe)
    }

    #[inline(always)]
    fn slot(line: &Line, slot: usize) -> Option<u64> {
        if slot >= Self::CAPACITY {
            return None;
        }
        Some(u64::from(cast::u16_lanes(line)[22 + slot]) << 32 | u64::from(cast::u32_lanes(line)[1 + slot]))
    }

    #[inline(always)]
    fn put(line: &mut Line, slot: usize, probe: u64) {
        cast::u32_lanes_mut(line)[1 + slot] = probe as u32;
        cast::u16_lanes_mut(line)[22 + slot] = (probe >> 32) as u16;
    }

    fn value(line: &Line, number: u64, slot: usize, multiplier: u64) -> Option<u64> {
        value_of_fraction(
            number,
            Self::slot(line, slot)?,
            SPLIT_FRACTION,
            SPLIT_REACH,
            multiplier,
        )
    }
}

/// The value for which a line stores `stored`: `bits` of fraction and how far from home.
fn value_of_fraction(number: u64, stored: u64, bits: u32, reach: u64, multiplier: u64) -> Option<u64> {
    let place = (u128::from(number) << bits) + u128::from(stored);
    let place = place.checked_sub(u128::from(reach << bits))?;
    // The smallest value whose product reaches this place; there is no other in it.
    let product = place.checked_mul(1 << (64 - bits))?;
    u64::try_from(product.div_ceil(u128::from(multiplier.max(1)))).ok()
}

/// Rank `u32`, fifteen `u32`.
pub(super) struct Middle;

impl LineKind for Middle {
    const KIND: Lines = Lines::Middle;
    const CAPACITY: usize = 15;
    const LOAD: f64 = 0.75;
    const REACH: u64 = place::REACH;
    const RANK_BITS: u32 = 32;

    fn tells_apart(_: u64, span: u64) -> bool {
        span <= u64::from(u32::MAX)
    }

    fn empty(rank: u64) -> Line {
        let mut line = Line([u64::MAX; 8]);
        cast::u32_lanes_mut(&mut line)[0] = rank as u32;
        line
    }

    #[inline(always)]
    fn rank(line: &Line) -> u64 {
        line.0[0] & u64::from(u32::MAX)
    }

    #[inline(always)]
    fn probe(value: u64, _: u128, _: u64) -> u64 {
        value
    }

    #[inline(always)]
    fn below<V: Vector>(line: &Line, probe: u64) -> usize {
        V::below_u32::<1>(cast::u32_lanes(line), probe as u32, 0)
    }

    #[inline(always)]
    fn slot(line: &Line, slot: usize) -> Option<u64> {
        cast::u32_lanes(line).get(1 + slot).map(|&lane| u64::from(lane))
    }

    #[inline(always)]
    fn put(line: &mut Line, slot: usize, probe: u64) {
        cast::u32_lanes_mut(line)[1 + slot] = probe as u32;
    }

    fn value(line: &Line, _: u64, slot: usize, _: u64) -> Option<u64> {
        cast::u32_lanes(line)
            .get(slot.checked_add(1)?)
            .map(|&lane| u64::from(lane))
    }
}

/// Rank `u32`, thirty `u16`.
pub(super) struct Narrow;

/// Bits of the fraction that a narrow line keeps.
const FRACTION: u32 = 14;
/// Farthest that a key may lie from home in narrow lines; two more bits say how far, and all ones must stay free.
const NARROW_REACH: u64 = 2;

impl LineKind for Narrow {
    const KIND: Lines = Lines::Narrow;
    const CAPACITY: usize = 30;
    const LOAD: f64 = 0.75;
    const REACH: u64 = NARROW_REACH;
    const RANK_BITS: u32 = 32;

    fn tells_apart(multiplier: u64, _: u64) -> bool {
        multiplier >> (64 - FRACTION) != 0
    }

    fn empty(rank: u64) -> Line {
        Middle::empty(rank)
    }

    #[inline(always)]
    fn rank(line: &Line) -> u64 {
        Middle::rank(line)
    }

    #[inline(always)]
    fn probe(_: u64, product: u128, away: u64) -> u64 {
        let fraction = product as u64 >> (64 - FRACTION);
        (NARROW_REACH.saturating_sub(away) << FRACTION) + fraction
    }

    #[inline(always)]
    fn below<V: Vector>(line: &Line, probe: u64) -> usize {
        V::below_u16::<2>(line, probe as u16)
    }

    #[inline(always)]
    fn slot(line: &Line, slot: usize) -> Option<u64> {
        cast::u16_lanes(line).get(2 + slot).map(|&lane| u64::from(lane))
    }

    #[inline(always)]
    fn put(line: &mut Line, slot: usize, probe: u64) {
        cast::u16_lanes_mut(line)[2 + slot] = probe as u16;
    }

    fn value(line: &Line, number: u64, slot: usize, multiplier: u64) -> Option<u64> {
        let stored = u64::from(*cast::u16_lanes(line).get(slot.checked_add(2)?)?);
        value_of_fraction(number, stored, FRACTION, NARROW_REACH, multiplier)
    }
}
