//! Tests of the whole, with small extents and nodes so that few keys make deep trees.

mod faults;
mod model;

use crate::value::Value;
use proptest::test_runner::Config;

/// So many cases, unless `PROPTEST_CASES` asks for more.
pub fn cases(n: u32) -> Config {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok());
    Config {
        cases: asked.unwrap_or(n),
        ..Config::default()
    }
}

/// A small generator, so that a seed is all that a failure needs.
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }
    /// Keys that are dense here, sparse there, and sometimes at the ends.
    pub fn key(&mut self, spread: u64) -> u64 {
        match self.below(20) {
            0 => self.below(3),
            1 => u64::MAX - self.below(3),
            2..=6 => (1 << 40) + self.below(spread) * 1_000_003,
            _ => 1_000_000 + self.below(spread),
        }
    }
}

/// Values made from a number.
pub trait Make: Value {
    fn make(n: u64) -> Self;
}
impl Make for () {
    fn make(_: u64) -> Self {}
}
impl Make for u64 {
    fn make(n: u64) -> Self {
        n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (n % 60)
    }
}
impl Make for (i32, i32) {
    fn make(n: u64) -> Self {
        ((n as i32).wrapping_mul(77), 500_000_000 - (n % 1000) as i32)
    }
}
