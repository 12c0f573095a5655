//! The naive model that every index is compared with, and the key distributions.

#![allow(dead_code)] // each test binary uses its part

use osmill_stree::{Key, NOT_FOUND, Search};
use proptest::prelude::*;

/// Compares every answer of an index with that of `partition_point` over the sorted keys.
pub fn check<Q: Copy + Ord + Sync + std::fmt::Debug, S: Search<Q>>(index: &S, keys: &[Q], queries: &[Q]) {
    let lower = |q: Q| keys.partition_point(|&key| key < q) as u64;
    let upper = |q: Q| keys.partition_point(|&key| key <= q) as u64;
    let position = |q: Q| Some(lower(q)).filter(|&at| keys.get(at as usize) == Some(&q));
    let isa = index.isa();
    assert_eq!(index.len(), keys.len() as u64);
    assert_eq!(index.is_empty(), keys.is_empty());
    for &q in queries {
        assert_eq!(index.lower_bound(q), lower(q), "lower bound of {q:?}, {isa:?}");
        assert_eq!(index.upper_bound(q), upper(q), "upper bound of {q:?}, {isa:?}");
        assert_eq!(index.position(q), position(q), "position of {q:?}, {isa:?}");
        assert_eq!(index.contains(q), position(q).is_some());
        assert_eq!(index.predecessor(q), upper(q).checked_sub(1));
        assert_eq!(
            index.successor(q),
            Some(lower(q)).filter(|&at| at < keys.len() as u64)
        );
    }
    for pair in queries.windows(2).take(20) {
        let range = index.range(pair[0]..pair[1]);
        assert_eq!(range, lower(pair[0])..lower(pair[1]).max(lower(pair[0])));
    }
    for at in (0..keys.len())
        .step_by(1 + keys.len() / 97)
        .chain(keys.len().checked_sub(1))
    {
        assert_eq!(index.select(at as u64), Some(keys[at]), "select {at}");
    }
    assert_eq!(index.select(keys.len() as u64), None);
    assert_eq!(index.select(u64::MAX), None);

    // Batches: every length up to three times the pipeline's depth, then all.
    let deep = 3 * 32 + 2;
    let lengths = (0..deep.min(queries.len())).step_by(if queries.len() > 300 { 1 } else { 7 });
    let payload: Vec<u64> = (0..keys.len() as u64).map(|at| at ^ 0xABCD).collect();
    for length in lengths.chain([queries.len()]) {
        let queries = &queries[queries.len() - length..];
        let mut out = vec![1; length];
        index.lower_bound_into(queries, &mut out);
        assert!(
            queries.iter().zip(&out).all(|(&q, &at)| at == lower(q)),
            "lower bounds, {isa:?}, {length}"
        );
        index.upper_bound_into(queries, &mut out);
        assert!(
            queries.iter().zip(&out).all(|(&q, &at)| at == upper(q)),
            "upper bounds, {isa:?}, {length}"
        );
        index.position_into(queries, &mut out);
        for (&q, &at) in queries.iter().zip(&out) {
            assert_eq!(
                at,
                position(q).unwrap_or(NOT_FOUND),
                "position of {q:?}, {isa:?}, batch of {length}"
            );
        }
        index.gather_into(queries, &payload, 7, &mut out);
        for (&q, &found) in queries.iter().zip(&out) {
            assert_eq!(found, position(q).map_or(7, |at| at ^ 0xABCD));
        }
    }
    let mut out = vec![1; queries.len()];
    index.position_parallel(queries, &mut out, 3);
    assert!(
        queries
            .iter()
            .zip(&out)
            .all(|(&q, &at)| at == position(q).unwrap_or(NOT_FOUND))
    );
    index.lower_bound_parallel(queries, &mut out, 2);
    assert!(queries.iter().zip(&out).all(|(&q, &at)| at == lower(q)));
}

/// Queries around the keys: each of (at most a thousand of) them, its two neighbours, the extremes, and some of no relation.
pub fn queries_for<K: Key>(keys: &[K], strays: &[u64]) -> Vec<K> {
    let mut queries = vec![K::MIN, K::MAX];
    for key in keys.iter().step_by(1 + keys.len() / 1000) {
        let bits = key.ordered();
        let (below, above) = (
            bits.saturating_sub(1),
            bits.saturating_add(1).min(K::MAX.ordered()),
        );
        queries.extend([*key, K::from_ordered(below), K::from_ordered(above)]);
    }
    queries.extend(strays.iter().map(|&bits| K::from_ordered(bits)));
    // A fixed shuffle, so that neighbours in the batch are no neighbours in the tree.
    let len = queries.len();
    for at in 0..len {
        queries.swap(at, at * 7919 % len);
    }
    queries
}

/// A pseudo-random sequence (splitmix64).
pub fn random(seed: u64) -> impl Iterator<Item = u64> {
    (1..).map(move |step: u64| {
        let mut x = seed.wrapping_add(step.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ x >> 31
    })
}

/// How keys are spread.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// Hash-like.
    Uniform,
    /// 0, 1, 2, ... with few gaps.
    Dense,
    /// Runs of consecutive keys with gaps of every size between them.
    Runs,
    /// Few distinct values, many times each.
    Duplicates,
    /// Exponentially growing.
    Powers,
    /// Two tight clusters at the ends of the range.
    Ends,
}

pub fn shapes() -> impl Strategy<Value = Shape> {
    prop_oneof![
        Just(Shape::Uniform),
        Just(Shape::Dense),
        Just(Shape::Runs),
        Just(Shape::Duplicates),
        Just(Shape::Powers),
        Just(Shape::Ends),
    ]
}

/// `count` sorted keys of a shape; possibly with duplicates.
pub fn keys_of<K: Key>(shape: Shape, count: usize, seed: u64) -> Vec<K> {
    let mut random = random(seed);
    let mut next = move || random.next().unwrap_or(0);
    let top = K::MAX.ordered();
    let mut at = next() % 1000;
    let mut keys: Vec<K> = (0..count as u64)
        .map(|index| {
            let bits = match shape {
                Shape::Uniform => next(),
                Shape::Dense => {
                    at += 1 + u64::from(next() % 8 == 0);
                    at
                }
                Shape::Runs => {
                    let gap = if next() % 50 == 0 {
                        1 << (next() % (K::BITS as u64 - 8))
                    } else {
                        1
                    };
                    at = at.saturating_add(gap).min(top);
                    at
                }
                Shape::Duplicates => next() % (1 + count as u64 / 40) * 1000,
                Shape::Powers => (next() | 1 << 63) >> (64 - K::BITS) >> (next() % (K::BITS as u64)),
                Shape::Ends => {
                    if index % 2 == 0 {
                        next() % (3 * count as u64)
                    } else {
                        top - next() % (3 * count as u64)
                    }
                }
            };
            K::from_ordered(if K::BITS == 32 && matches!(shape, Shape::Uniform) {
                bits >> 32
            } else {
                bits
            })
        })
        .collect();
    keys.sort_unstable();
    keys
}
