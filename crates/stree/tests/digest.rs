//! `DigestIndex` and its file against the naive model.

mod common;

use common::{check, random};
use osmill_stree::{DigestIndex, Error, Isa, LineBuffer, Search};
use proptest::prelude::*;

/// Sorted pseudo-digests; with `crowd`, some differ from their neighbours only near the end.
fn digests<const N: usize>(count: usize, seed: u64, crowd: bool) -> Vec<[u8; N]> {
    let mut random = random(seed);
    let mut last = [0; N];
    let mut digests: Vec<[u8; N]> = (0..count)
        .map(|_| {
            let word = random.next().unwrap_or(0);
            if crowd && word.is_multiple_of(16) {
                last[N - 1 - (word >> 8) as usize % (N - 8)] ^= 1 << (word >> 5 & 7);
            } else {
                for chunk in last.chunks_mut(8) {
                    let word = random.next().unwrap_or(0).to_le_bytes();
                    chunk.copy_from_slice(&word[..chunk.len()]);
                }
            }
            last
        })
        .collect();
    digests.sort_unstable();
    digests
}

fn queries_for<const N: usize>(digests: &[[u8; N]], seed: u64) -> Vec<[u8; N]> {
    let mut queries = digests.to_vec();
    for digest in digests.iter().step_by(1 + digests.len() / 300) {
        for (at, change) in [(N - 1, 1), (N - 1, 255), (8, 1), (8, 255), (0, 1)] {
            let mut query = *digest;
            query[at] = query[at].wrapping_add(change);
            queries.push(query);
        }
    }
    queries.extend([[0; N], [255; N]]);
    let mut shuffled: Vec<_> = random(seed).zip(queries).collect();
    shuffled.sort_unstable();
    shuffled.into_iter().map(|(_, query)| query).collect()
}

fn property<const N: usize>(digests: &[[u8; N]], seed: u64) {
    let queries = queries_for(digests, seed);
    let (mut bytes, mut again) = (Vec::new(), Vec::new());
    DigestIndex::from_sorted(digests)
        .unwrap()
        .write_to(&mut bytes)
        .unwrap();
    DigestIndex::with_threads(digests, 3)
        .unwrap()
        .write_to(&mut again)
        .unwrap();
    assert!(bytes == again, "any number of threads builds the same index");
    osmill_stree::verify(&bytes).unwrap();
    let mut buffer = LineBuffer::zeroed(bytes.len() / 64).unwrap();
    buffer.bytes_mut().copy_from_slice(&bytes);
    for isa in Isa::available() {
        let index = DigestIndex::<N>::from_bytes(buffer.bytes())
            .unwrap()
            .with_isa(isa)
            .unwrap();
        check(&index, digests, &queries);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_digests(count in 0usize..2500, seed: u64, crowd: bool) {
        property::<20>(&digests(count, seed, crowd), seed);
        property::<32>(&digests(count, seed, crowd), seed);
        property::<16>(&digests(count / 4, seed, crowd), seed);
    }

    #[test]
    fn damaged_files(seed: u64, flips in prop::collection::vec(any::<(u32, u8)>(), 1..40)) {
        let digests = digests::<20>(1000, seed, true);
        let mut bytes = Vec::new();
        DigestIndex::from_sorted(&digests).unwrap().write_to(&mut bytes).unwrap();
        for (at, bit) in flips {
            let at = 512 + at as usize % (bytes.len() - 512);
            bytes[at] ^= 1 << (bit % 8);
        }
        let mut buffer = LineBuffer::zeroed(bytes.len() / 64).unwrap();
        buffer.bytes_mut().copy_from_slice(&bytes);
        let index = DigestIndex::<20>::from_bytes(buffer.bytes()).unwrap();
        let mut out = vec![0; digests.len()];
        index.position_into(&digests, &mut out);
        index.lower_bound_into(&digests, &mut out);
        for (&digest, at) in digests.iter().zip(0..) {
            index.upper_bound(digest);
            index.select(at);
        }
    }
}

#[test]
fn extremes() {
    for digests in [
        vec![],
        vec![[0; 20]],
        vec![[255; 20]],
        vec![[0; 20], [255; 20]],
        vec![[9; 20]; 7],
    ] {
        property::<20>(&digests, 1);
    }
    let mut same = digests::<32>(300, 1, false);
    same.push([255; 32]);
    property::<32>(&same, 1);
}

#[test]
fn chosen_digests_are_refused() {
    let chosen: Vec<[u8; 20]> = (0..100_000u32)
        .map(|index| {
            let mut digest = [1; 20];
            digest[16..].copy_from_slice(&index.to_be_bytes());
            digest
        })
        .collect();
    assert!(matches!(
        DigestIndex::from_sorted(&chosen),
        Err(Error::Uneven { .. })
    ));
    assert!(matches!(
        DigestIndex::from_sorted(&[[2; 20], [1; 20]]),
        Err(Error::Unsorted { position: 1, .. })
    ));
}

#[test]
fn saved_and_mapped() {
    let digests = digests::<32>(20_000, 5, false);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ids.stree");
    DigestIndex::from_sorted(&digests).unwrap().save(&path).unwrap();
    let index = DigestIndex::<32>::open(&path).unwrap();
    check(&index, &digests, &queries_for(&digests, 5));
    assert!(index.expected_buckets() < 1.3);
    let error = DigestIndex::<20>::open(&path).unwrap_err().to_string();
    assert!(error.contains("32-byte") && error.contains("20-byte"), "{error}");
}
