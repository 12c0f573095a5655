//! The three kinds of line.

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

/// Rank `u32`, fifteen `u32`.
pub(super) struct Middle;

impl LineKind for Middle {
    const KIND: Lines = Lines::Middle;
    const CAPACITY: usize = 15;
    const LOAD: f64 = 0.75;
    const REACH: u64 = place::REACH;

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
        let place = (u128::from(number) << FRACTION) + u128::from(stored);
        let place = place.checked_sub(u128::from(NARROW_REACH << FRACTION))?;
        // The smallest value whose product reaches this place; there is no other in it.
        let product = place << (64 - FRACTION);
        u64::try_from(product.div_ceil(u128::from(multiplier.max(1)))).ok()
    }
}
