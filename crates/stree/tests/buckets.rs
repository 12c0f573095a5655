//! `BucketIndex` and its file against the naive model.

mod common;

use common::{Shape, check, keys_of, queries_for, random};
use osmill_stree::{BucketBuilder, BucketIndex, Error, Isa, Key, LineBuffer, Search};
use proptest::prelude::*;

fn aligned(bytes: &[u8]) -> LineBuffer {
    let mut buffer = LineBuffer::zeroed(bytes.len() / 64).unwrap();
    buffer.bytes_mut().copy_from_slice(bytes);
    buffer
}

fn check_all<K: Key>(index: &BucketIndex<'_, K>, keys: &[K], queries: &[K]) {
    let mut bytes = Vec::new();
    index.write_to(&mut bytes).unwrap();
    osmill_stree::verify(&bytes).unwrap();
    let buffer = aligned(&bytes);
    for isa in Isa::available() {
        let index = BucketIndex::<K>::from_bytes(buffer.bytes())
            .unwrap()
            .with_isa(isa)
            .unwrap();
        check(&index, keys, queries);
    }
}

/// Builds if the keys are even enough, and checks.
fn property<K: Key>(keys: &[K], load: f64, strays: &[u64]) -> bool {
    let mut built = Vec::new();
    for threads in [1, 3] {
        match BucketBuilder::new().load(load).threads(threads).build(keys) {
            Ok(index) => {
                check_all(&index, keys, &queries_for(keys, strays));
                index.write_to(&mut built).unwrap();
            }
            Err(Error::Uneven { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    let (one, three) = built.split_at(built.len() / 2);
    assert!(one == three, "any number of threads builds the same index");
    !built.is_empty()
}

/// Evenly spread keys of any width and density: all three kinds of line.
fn even<K: Key>(count: usize, bits: u32, seed: u64) -> Vec<K> {
    let mut keys: Vec<K> = random(seed)
        .take(count)
        .map(|x| K::from_ordered(x >> (64 - bits)))
        .collect();
    keys.sort_unstable();
    keys
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn even_keys(
        count in 0usize..6000, bits in 1u32..=64, seed: u64, load in 0.2..0.9, unique: bool,
        strays in prop::collection::vec(any::<u64>(), 50),
    ) {
        let mut keys: Vec<u64> = even(count, bits, seed);
        if unique { keys.dedup(); }
        property(&keys, load, &strays);
        let keys: Vec<i64> = even(count, bits, seed);
        property(&keys, load, &strays);
        let mut keys: Vec<u32> = even(count, bits.min(32), seed);
        if unique { keys.dedup(); }
        property(&keys, load, &strays);
        let keys: Vec<i32> = even(count, bits.min(32), seed);
        property(&keys, load, &strays);
    }

    #[test]
    fn any_shape(shape in common::shapes(), count in 0usize..3000, seed: u64) {
        let keys: Vec<u64> = keys_of(shape, count, seed);
        let built = property(&keys, 0.7, &[1, 1 << 40]);
        prop_assert!(built || !matches!(shape, Shape::Uniform | Shape::Dense));
    }

    #[test]
    fn damaged_files(bits in 8u32..64, seed: u64, flips in prop::collection::vec(any::<(u32, u8)>(), 1..40)) {
        let mut keys: Vec<u64> = even(2000, bits, seed);
        keys.dedup();
        let mut bytes = Vec::new();
        match BucketIndex::from_sorted(&keys) {
            Ok(index) => index.write_to(&mut bytes).unwrap(),
            Err(_) => return Ok(()),
        }
        for (at, bit) in flips {
            let at = 512 + at as usize % (bytes.len() - 512);
            bytes[at] ^= 1 << (bit % 8);
        }
        let buffer = aligned(&bytes);
        let index = BucketIndex::<u64>::from_bytes(buffer.bytes()).unwrap();
        let mut out = vec![0; keys.len()];
        index.position_into(&keys, &mut out);
        for &key in &keys {
            index.lower_bound(key);
            index.select(key % 3000);
        }
    }
}

#[test]
fn kinds_are_chosen_by_density() {
    let per_line = |bits| {
        let mut keys: Vec<u64> = even(50_000, bits, 1);
        keys.dedup();
        BucketIndex::from_sorted(&keys).unwrap().keys_per_line()
    };
    assert_eq!(
        [per_line(64), per_line(56), per_line(32), per_line(24)],
        [7, 10, 15, 30]
    );
}

#[test]
fn uneven_keys_are_refused() {
    let keys: Vec<u64> = (0..64)
        .flat_map(|bit| (0..100).map(move |low| (1u64 << bit).saturating_add(low)))
        .collect();
    let mut keys = keys;
    keys.sort_unstable();
    assert!(matches!(
        BucketIndex::from_sorted(&keys),
        Err(Error::Uneven { .. })
    ));
    assert!(matches!(
        BucketIndex::from_sorted(&[2u64, 1]),
        Err(Error::Unsorted { position: 1, .. })
    ));
    assert!(matches!(
        BucketIndex::from_sorted(&vec![5u32; 10_000]),
        Err(Error::Uneven { .. })
    ));
}

#[test]
fn extremes() {
    for keys in [
        vec![],
        vec![0u64],
        vec![u64::MAX],
        vec![0, u64::MAX],
        vec![5, 5, 5],
        vec![u64::MAX; 5],
        vec![0; 5],
    ] {
        assert!(property(&keys, 0.7, &[4, 5, 6, 0, u64::MAX, u64::MAX - 1]));
    }
    for keys in [vec![i32::MIN, i32::MAX], vec![-1, 0], (-1000..1000).collect()] {
        assert!(
            property(&keys, 0.7, &[0, 1 << 31, u64::from(u32::MAX)]),
            "{keys:?}"
        );
    }
}

#[test]
fn saved_and_mapped() {
    let keys: Vec<u64> = even(100_000, 64, 3);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.stree");
    BucketIndex::from_sorted(&keys).unwrap().save(&path).unwrap();
    let index = BucketIndex::<u64>::open(&path).unwrap();
    check(&index, &keys, &queries_for(&keys, &[5]));
    assert!(index.expected_lines() < 1.2 && index.pages().is_none());
}
