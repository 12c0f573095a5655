//! `SearchTree` and its file against the naive model.

mod common;

use common::{Shape, check, keys_of, queries_for, shapes};
use osmill_stree::{Isa, Key, LineBuffer, Search, SearchTree, TreeBuilder, Widths};
use proptest::prelude::*;

fn aligned(bytes: &[u8]) -> LineBuffer {
    let mut buffer = LineBuffer::zeroed(bytes.len() / 64).unwrap();
    buffer.bytes_mut().copy_from_slice(bytes);
    buffer
}

/// Every instruction set, both kinds of separators, own, borrowed and stored columns.
fn check_all<K: Key>(keys: &[K], queries: &[K]) {
    for isa in Isa::available() {
        check(
            &SearchTree::from_sorted(keys).unwrap().with_isa(isa).unwrap(),
            keys,
            queries,
        );
        let plain = TreeBuilder::new()
            .widths(Widths::Plain)
            .threads(2)
            .over(keys)
            .unwrap();
        check(&plain.with_isa(isa).unwrap(), keys, queries);
    }
    // A column that starts anywhere in its line, and its file.
    for skip in 1..4 {
        let mut shifted = vec![K::MIN; skip];
        shifted.extend_from_slice(keys);
        let tree = SearchTree::over(&shifted[skip..]).unwrap();
        check(&tree, keys, queries);
        let mut bytes = Vec::new();
        tree.write_to(&mut bytes).unwrap();
        osmill_stree::verify(&bytes).unwrap();
        let buffer = aligned(&bytes);
        let stored = SearchTree::<K>::from_bytes(buffer.bytes()).unwrap();
        assert_eq!(stored.keys(), keys);
        assert_eq!(stored.widths(), tree.widths());
        check(&stored, keys, queries);
    }
}

fn property<K: Key>(shape: Shape, count: usize, seed: u64, strays: &[u64]) {
    let keys = keys_of::<K>(shape, count, seed);
    check_all(&keys, &queries_for(&keys, strays));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_keys(
        shape in shapes(), count in prop_oneof![0usize..40, 0usize..6000], seed: u64,
        kind in 0..4, strays in prop::collection::vec(any::<u64>(), 50),
    ) {
        match kind {
            0 => property::<u32>(shape, count, seed, &strays),
            1 => property::<u64>(shape, count, seed, &strays),
            2 => property::<i32>(shape, count, seed, &strays),
            _ => property::<i64>(shape, count, seed, &strays),
        }
    }

    #[test]
    fn damaged_files(
        shape in shapes(), count in 0usize..3000, seed: u64, flips in prop::collection::vec(any::<(u32, u8)>(), 1..40)
    ) {
        let keys = keys_of::<u64>(shape, count, seed);
        let mut bytes = Vec::new();
        SearchTree::over(&keys).unwrap().write_to(&mut bytes).unwrap();
        let len = bytes.len();
        for (at, bit) in flips.into_iter().filter(|_| len > 512) {
            let at = 512 + at as usize % (bytes.len() - 512);
            bytes[at] ^= 1 << (bit % 8);
        }
        let buffer = aligned(&bytes);
        let tree = SearchTree::<u64>::from_bytes(buffer.bytes()).unwrap();
        let mut out = vec![0; keys.len()];
        tree.position_into(&keys, &mut out);
        tree.lower_bound_into(&keys, &mut out);
        prop_assert!(out.iter().all(|&at| at <= keys.len() as u64));
        for &key in &keys {
            tree.upper_bound(key);
        }
    }
}

/// Sizes around every boundary of a node or a level.
#[test]
fn boundaries() {
    let leaves = [1usize, 2, 9, 15, 29, 30, 81, 82, 29 * 29, 29 * 29 + 1];
    for leaves in leaves {
        for count in [leaves * 8 - 1, leaves * 8, leaves * 8 + 1] {
            let keys: Vec<u64> = (0..count as u64).map(|key| key * 3 + 1).collect();
            let queries: Vec<u64> = (0..count as u64 * 3 + 3).collect();
            let mut out = vec![0; queries.len()];
            for isa in Isa::available() {
                let tree = SearchTree::from_sorted(&keys).unwrap().with_isa(isa).unwrap();
                tree.lower_bound_into(&queries, &mut out);
                for (&q, &at) in queries.iter().zip(&out) {
                    assert_eq!(at, keys.partition_point(|&key| key < q) as u64);
                }
                for &q in &queries {
                    assert_eq!(tree.lower_bound(q), keys.partition_point(|&key| key < q) as u64);
                }
            }
        }
    }
}

/// Runs of keys whose separators collide in 16 and in 32 bits, and long runs of one key.
#[test]
fn collisions() {
    let mut keys: Vec<u64> = Vec::new();
    for cluster in 0..40u64 {
        let base = cluster << 58;
        keys.extend((0..100).map(|key| base + key));
        keys.extend(std::iter::repeat_n(base + 50, cluster as usize * 3));
    }
    keys.extend([u64::MAX; 50]);
    keys.extend([0; 50]);
    keys.sort_unstable();
    check_all(&keys, &queries_for(&keys, &[1 << 57, 1 << 63]));
    check_all(&vec![7i64; 1000], &[6, 7, 8, i64::MIN, i64::MAX]);
    check_all(&vec![u32::MAX; 100], &[0, u32::MAX - 1, u32::MAX]);
}

/// Keys that share their high words, as node ids below 2^34 do.
#[test]
fn low_ids() {
    let keys: Vec<i64> = (0..50_000).map(|key| key * 250_000 + key % 7).collect();
    assert!(keys[keys.len() - 1] < 1 << 34);
    check_all(&keys, &queries_for(&keys, &[3]));
}

#[test]
fn saved_and_mapped() {
    let keys: Vec<u32> = (0..100_000).map(|key| key * 3).collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.stree");
    SearchTree::over(&keys).unwrap().save(&path).unwrap();
    let tree = SearchTree::<u32>::open(&path).unwrap();
    check(&tree, &keys, &queries_for(&keys, &[5]));
    let error = SearchTree::<u64>::open(&path).unwrap_err().to_string();
    assert!(error.contains("u32") && error.contains("u64"), "{error}");
}
