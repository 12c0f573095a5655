//! `SortedIndex`: whatever is chosen answers as the naive model does, and what is chosen is what should be.

mod common;

use common::{Shape, check, keys_of, queries_for, random};
use osmill_stree::{Error, Key, SortedIndex, SortedIndexBuilder};
use proptest::prelude::*;

fn property<K: Key>(shape: Shape, count: usize, seed: u64, budget: Option<u64>, strays: &[u64]) {
    let keys = keys_of::<K>(shape, count, seed);
    let mut builder = SortedIndexBuilder::new().threads(2);
    if let Some(budget) = budget {
        builder = builder.budget(budget);
    }
    let index = builder.build(&keys).unwrap();
    check(&index, &keys, &queries_for(&keys, strays));
    let taken: Vec<_> = index
        .choices()
        .iter()
        .filter(|choice| choice.verdict.contains("taken"))
        .collect();
    assert_eq!(taken.len(), 1, "{:?}", index.choices());
    assert!(index.choices().iter().all(|choice| !choice.verdict.is_empty()));
    // The bytes that were estimated are those of the index; the cut directory of strewn ids is estimated from above.
    if let Some(buckets) = index.as_buckets() {
        assert_eq!(buckets.bytes(), taken[0].bytes);
    }
    if let Some(tree) = index.as_tree() {
        assert!(tree.bytes() >= taken[0].bytes / 64 * 64);
    }
    if let Some(bitmap) = index.as_bitmap() {
        let rest = bitmap.bytes() / 8 + 1024;
        assert!(
            bitmap.bytes() <= taken[0].bytes + rest,
            "{} {}",
            bitmap.bytes(),
            taken[0].bytes
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_keys(
        shape in common::shapes(), count in 0usize..4000, seed: u64, kind in 0..4,
        budget in proptest::option::of(0u64..100_000), strays in prop::collection::vec(any::<u64>(), 50),
    ) {
        match kind {
            0 => property::<u32>(shape, count, seed, budget, &strays),
            1 => property::<u64>(shape, count, seed, budget, &strays),
            2 => property::<i32>(shape, count, seed, budget, &strays),
            _ => property::<i64>(shape, count, seed, budget, &strays),
        }
    }
}

#[test]
fn the_choice_follows_the_keys() {
    let mut ids: Vec<u64> = (0..3_000_000).filter(|id| id % 5 != 0).collect();
    assert!(SortedIndex::build(&ids).unwrap().as_bitmap().is_some());
    ids = random(1).take(3_000_000).collect();
    ids.sort_unstable();
    assert!(SortedIndex::build(&ids).unwrap().as_buckets().is_some());
    // Over a budget that only the tree meets.
    let budget = ids.len() as u64 * 9;
    let index = SortedIndexBuilder::new().budget(budget).build(&ids).unwrap();
    assert!(index.as_tree().is_some(), "{:?}", index.choices());
    // Nothing meets this one.
    let index = SortedIndexBuilder::new().budget(1).build(&ids).unwrap();
    assert!(
        index
            .choices()
            .iter()
            .any(|choice| choice.verdict.contains("smallest"))
    );
    // Clumps with duplicates: neither bits nor buckets will do.
    let clumps: Vec<u64> = (0..1_000_000u64)
        .map(|key| (key / 1000) * (key / 1000) * 1_000_003 + key % 1000 / 2)
        .collect();
    let index = SortedIndex::build(&clumps).unwrap();
    assert!(index.as_tree().is_some());
    let text: Vec<String> = index.choices().iter().map(ToString::to_string).collect();
    assert!(
        text[0].contains("comes twice") && text[1].contains("uneven"),
        "{text:?}"
    );
    assert!(matches!(
        SortedIndex::build(&[2, 1]),
        Err(Error::Unsorted { position: 1, .. })
    ));
}
