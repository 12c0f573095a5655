//! Every index and every way in and out of it, over sets small enough for an interpreter: `cargo +nightly miri test -p osmill-stree
//! --test small` runs the scalar kernels, the casts and the shared buffers under Miri.

mod common;

use common::{check, queries_for, random};
use osmill_stree::{
    BitmapCollector, BucketIndex, DigestIndex, LineBuffer, RankBitmap, Search, SearchTree, SortedIndex,
    TreeBuilder,
};

fn aligned(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> LineBuffer {
    let mut bytes = Vec::new();
    write(&mut bytes).unwrap();
    let mut buffer = LineBuffer::zeroed(bytes.len() / 64).unwrap();
    buffer.bytes_mut().copy_from_slice(&bytes);
    buffer
}

#[test]
fn trees() {
    let keys: Vec<u32> = (0..150).map(|key| key * key).collect();
    let queries = queries_for(&keys[..20], &[1 << 40]);
    check(&SearchTree::over(&keys).unwrap(), &keys, &queries);
    check(&SearchTree::over(&keys[3..]).unwrap(), &keys[3..], &queries);
    let mut builder = TreeBuilder::new();
    keys.iter().for_each(|&key| builder.push(key).unwrap());
    let buffer = aligned(|bytes| builder.finish().unwrap().write_to(bytes));
    check(
        &SearchTree::<u32>::from_bytes(buffer.bytes()).unwrap(),
        &keys,
        &queries,
    );
}

#[test]
fn buckets() {
    let mut keys: Vec<i64> = random(1).take(60).map(|key| key as i64).collect();
    keys.sort_unstable();
    let queries = queries_for(&keys, &[5]);
    let buffer = aligned(|bytes| BucketIndex::from_sorted(&keys).unwrap().write_to(bytes));
    check(
        &BucketIndex::<i64>::from_bytes(buffer.bytes()).unwrap(),
        &keys,
        &queries[..40],
    );
    let dense: Vec<i32> = (-30..30).map(|key| key * 3).collect();
    check(
        &BucketIndex::from_sorted(&dense).unwrap(),
        &dense,
        &queries_for(&dense[..10], &[5]),
    );
}

#[test]
fn bitmaps() {
    let ids: Vec<u64> = (0..40).map(|id| id * 300 + id / 20 * (1 << 40)).collect();
    let queries = queries_for(&ids[..15], &[1 << 63]);
    let buffer = aligned(|bytes| {
        RankBitmap::from_sorted(ids.iter().copied())
            .unwrap()
            .write_to(bytes)
    });
    let set = RankBitmap::from_bytes(buffer.bytes()).unwrap();
    check(&set, &ids, &queries);
    assert!(set.iter().eq(ids.iter().copied()));
}

#[test]
fn digests() {
    let mut ids: Vec<[u8; 20]> = random(2)
        .take(20)
        .map(|word| std::array::from_fn(|index| word.rotate_left(index as u32 * 3) as u8))
        .collect();
    ids.sort_unstable();
    let buffer = aligned(|bytes| DigestIndex::from_sorted(&ids).unwrap().write_to(bytes));
    check(
        &DigestIndex::<20>::from_bytes(buffer.bytes()).unwrap(),
        &ids,
        &ids,
    );
}

#[test]
fn collectors() {
    let collector = BitmapCollector::new();
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let collector = &collector;
            scope.spawn(move || {
                let ids: Vec<u64> = (0..10).map(|id| id * 3 + thread + (id % 2) * (1 << 50)).collect();
                collector.insert_all(&ids);
                ids.iter()
                    .for_each(|&id| assert!(!collector.insert(id) && collector.contains(id)));
            });
        }
    });
    let set = collector.freeze_with(2).unwrap();
    assert_eq!(set.len(), 30);
    assert_eq!(set.position(4), None);
    assert_eq!(set.position(7 + (1 << 50)), None);
    assert_eq!(set.select(15), Some(3 + (1 << 50)));
}

#[test]
fn chosen() {
    let keys: Vec<u64> = (0..50).map(|key| key * key * key).collect();
    check(
        &SortedIndex::build(&keys).unwrap(),
        &keys,
        &queries_for(&keys[..10], &[]),
    );
}
