//! `RankBitmap`, its two builders and its file against the naive model.

mod common;

use common::{Shape, check, keys_of, queries_for, random, shapes};
use osmill_stree::{BitmapCollector, Isa, LineBuffer, RankBitmap, Search};
use proptest::prelude::*;

fn ids_of(shape: Shape, count: usize, seed: u64) -> Vec<u64> {
    let mut ids: Vec<u64> = keys_of(shape, count, seed);
    ids.dedup();
    ids
}

/// The bytes of an index, aligned.
fn aligned(bytes: &[u8]) -> (LineBuffer, usize) {
    let mut buffer = LineBuffer::zeroed(bytes.len().div_ceil(64)).unwrap();
    buffer.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
    (buffer, bytes.len())
}

fn check_all(set: RankBitmap<'_>, ids: &[u64], strays: &[u64]) {
    let queries = queries_for(ids, strays);
    assert!(set.iter().eq(ids.iter().copied()));
    for isa in Isa::available() {
        let mut copy = Vec::new();
        set.write_to(&mut copy).unwrap();
        let (buffer, len) = aligned(&copy);
        let set = RankBitmap::from_bytes(&buffer.bytes()[..len])
            .unwrap()
            .with_isa(isa)
            .unwrap();
        check(&set, ids, &queries);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn sorted_ids(shape in shapes(), count in 0usize..3000, seed: u64, strays in prop::collection::vec(any::<u64>(), 300)) {
        let ids = ids_of(shape, count, seed);
        check_all(RankBitmap::from_sorted(ids.iter().copied()).unwrap(), &ids, &strays);
    }

    #[test]
    fn collected_ids(shape in shapes(), count in 0usize..3000, seed: u64, threads in 1usize..4) {
        let ids = ids_of(shape, count, seed);
        let mut shuffled: Vec<(u64, u64)> = random(seed).zip(ids.iter().copied()).collect();
        shuffled.sort_unstable();
        let shuffled: Vec<u64> = shuffled.into_iter().map(|(_, id)| id).collect();
        let collector = BitmapCollector::new();
        std::thread::scope(|scope| {
            for part in shuffled.chunks(1 + shuffled.len() / threads) {
                scope.spawn(|| collector.insert_all(part));
            }
            // Every thread may bring the same ids.
            scope.spawn(|| shuffled.iter().for_each(|&id| { collector.insert(id); }));
        });
        prop_assert_eq!(collector.count(), ids.len() as u64);
        prop_assert!(shuffled.iter().all(|&id| collector.contains(id)));
        let mut visited = Vec::new();
        collector.for_each(|id| visited.push(id));
        prop_assert!(visited == ids);
        let mut pages: Vec<u64> = ids.iter().flat_map(|id| BitmapCollector::pages_of(*id, *id)).collect();
        pages.dedup();
        prop_assert_eq!(collector.bytes(), pages.len() as u64 * BitmapCollector::PAGE_BYTES);
        let set = collector.freeze_with(threads).unwrap();
        let direct = RankBitmap::from_sorted(ids.iter().copied()).unwrap();
        let (mut one, mut other) = (Vec::new(), Vec::new());
        set.write_to(&mut one).unwrap();
        direct.write_to(&mut other).unwrap();
        prop_assert!(one == other, "both builders must give the same bytes");
        check_all(set, &ids, &[0, 1, u64::MAX]);
    }

    /// Damaged bytes give wrong answers or an error; never a panic, a hang or a fault.
    #[test]
    fn damaged_files(shape in shapes(), count in 1usize..2000, seed: u64, flips in prop::collection::vec(any::<(u32, u8)>(), 1..40)) {
        let ids = ids_of(shape, count, seed);
        let mut bytes = Vec::new();
        RankBitmap::from_sorted(ids.iter().copied()).unwrap().write_to(&mut bytes).unwrap();
        for (at, bit) in flips {
            let at = 512 + at as usize % (bytes.len() - 512);
            bytes[at] ^= 1 << (bit % 8);
        }
        let (buffer, len) = aligned(&bytes);
        let bytes = &buffer.bytes()[..len];
        let set = RankBitmap::from_bytes(bytes).unwrap();
        set.iter().take(10_000).count();
        let mut out = vec![0; ids.len()];
        set.position_into(&ids, &mut out);
        set.lower_bound_into(&ids, &mut out);
        for &id in &ids {
            set.rank(id);
            set.select(set.lower_bound(id));
        }
        for cut in (0..len).step_by(61) {
            prop_assert!(RankBitmap::from_bytes(&bytes[..cut]).is_err());
        }
    }
}

#[test]
fn extreme_ids() {
    let ids = [
        0,
        1,
        447,
        448,
        7167,
        7168,
        1 << 33,
        (1 << 34) - 1,
        1 << 63,
        u64::MAX - 1,
        u64::MAX,
    ];
    for take in 0..ids.len() {
        let part = &ids[take..];
        check_all(RankBitmap::from_sorted(part.iter().copied()).unwrap(), part, &ids);
        let part = &ids[..take];
        check_all(RankBitmap::from_sorted(part.iter().copied()).unwrap(), part, &ids);
    }
}

#[test]
fn saved_and_mapped() {
    let ids: Vec<u64> = (0..100_000).map(|id| id * 3 + id / 1000 * 50_000).collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ids.stree");
    RankBitmap::from_sorted(ids.iter().copied())
        .unwrap()
        .save(&path)
        .unwrap();
    let set = RankBitmap::open(&path).unwrap();
    check(&set, &ids, &queries_for(&ids, &[5, 1 << 40]));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let error = RankBitmap::open(folder.path().join("absent"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("absent"), "{error}");
}
