//! A short run of the fuzz targets of text formats, on any toolchain: the files of the collection as they are, and
//! changed at random.

mod common;
#[path = "../../../fuzz/src/text.rs"]
mod targets;

use common::files;
use proptest::prelude::*;
use proptest::sample::Index;

/// Small files of every format.
fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = [".osm", ".osc", ".osm.gz", ".osm.bz2"]
        .iter()
        .flat_map(|suffix| files("cases", suffix))
        .map(|path| std::fs::read(path).unwrap())
        .filter(|bytes| bytes.len() < 20_000)
        .collect();
    seeds.push(
        b"n1 v1 dV c1 t2014-01-01T00:00:00Z i7 ua%20%b Ta=b x1 y2\nw12 dD Nn1x1y2,n2\nr3 Mn1@r,w12@\n"
            .to_vec(),
    );
    seeds.push(b"<osmChange version='0.6'><create><node id='1' version='2' lat='1' lon='2'/></create><delete><way id='3'/></delete></osmChange>".to_vec());
    seeds.push(b"\xff\xe0\x04o5m2\xff\x10\x0a\x02\x00\x04\x06\x00a\x00b\x00\x00\xfe".to_vec());
    seeds
}

#[test]
fn seeds_as_they_are() {
    for seed in seeds() {
        targets::text(&seed);
        targets::format(&seed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn seeds_with_changes(
        seed: Index,
        changes in prop::collection::vec((any::<Index>(), any::<u8>(), 0..5), 1..5),
    ) {
        let seeds = seeds();
        let mut bytes = seeds[seed.index(seeds.len())].clone();
        for (at, byte, what) in changes {
            if bytes.is_empty() {
                break;
            }
            let at = at.index(bytes.len());
            match what {
                0 => bytes[at] = byte,
                1 => bytes[at] ^= 1 << (byte & 7),
                2 => bytes.insert(at, byte),
                3 => drop(bytes.remove(at)),
                _ => {
                    let piece = bytes[at..(at + 12).min(bytes.len())].to_vec();
                    bytes.splice(at..at, piece);
                }
            }
        }
        targets::text(&bytes);
        targets::format(&bytes);
    }

    #[test]
    fn formats_of_words(words in "[a-z0-9.,=+_]{0,30}") {
        targets::format(words.as_bytes());
    }
}
