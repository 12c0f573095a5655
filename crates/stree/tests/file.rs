//! What opening does with files that are not what they should be.

use osmill_stree::{Error, Kind, LineBuffer, SearchTree, describe, verify};
use proptest::prelude::*;

fn file() -> Vec<u8> {
    let keys: Vec<u32> = (0..1000).map(|key| key * 7).collect();
    let mut bytes = Vec::new();
    SearchTree::over(&keys).unwrap().write_to(&mut bytes).unwrap();
    bytes
}

fn aligned(bytes: &[u8]) -> LineBuffer {
    let mut buffer = LineBuffer::zeroed(bytes.len().div_ceil(64)).unwrap();
    buffer.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
    buffer
}

#[test]
fn every_truncation_is_an_error() {
    let bytes = file();
    let buffer = aligned(&bytes);
    for length in 0..bytes.len() {
        assert!(
            SearchTree::<u32>::from_bytes(&buffer.bytes()[..length]).is_err(),
            "{length}"
        );
        assert!(verify(&bytes[..length]).is_err());
    }
    assert!(SearchTree::<u32>::from_bytes(&buffer.bytes()[..bytes.len()]).is_ok());
    let info = verify(&bytes).unwrap();
    assert_eq!(
        (info.kind, info.keys, info.bytes),
        (Kind::Tree, 1000, bytes.len() as u64)
    );
}

#[test]
fn every_bit_of_the_file_is_under_a_checksum() {
    let mut bytes = file();
    for at in 0..bytes.len() {
        bytes[at] ^= 1 << (at % 8);
        assert!(verify(&bytes).is_err(), "byte {at}");
        if at < 512 {
            assert!(describe(&bytes).is_err(), "header byte {at}");
        }
        bytes[at] ^= 1 << (at % 8);
    }
}

#[test]
fn damage_is_named() {
    let mut bytes = file();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    let error = verify(&bytes).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Checksum {
                section: "column",
                ..
            }
        ),
        "{error}"
    );
    bytes[8] = 2;
    assert!(verify(&bytes).unwrap_err().to_string().contains("version 2"));
    // A file that lies one byte off a line.
    let mut shifted = vec![0];
    shifted.extend(file());
    let buffer = aligned(&shifted);
    let error = SearchTree::<u32>::from_bytes(&buffer.bytes()[1..shifted.len()]).unwrap_err();
    assert!(error.to_string().contains("64-byte"), "{error}");
}

#[test]
fn failed_saves_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let tree = SearchTree::from_sorted(&[1u64, 2]).unwrap();
    let error = tree
        .save(folder.path().join("no folder").join("keys"))
        .unwrap_err();
    assert!(
        matches!(error, Error::Io { .. }) && error.to_string().contains("no folder"),
        "{error}"
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

proptest! {
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        prop_assert!(describe(&bytes).is_err());
    }

    /// A header with a sound checksum that says anything at all.
    #[test]
    fn any_header(changes in prop::collection::vec((8usize..496, any::<u8>()), 1..6)) {
        let mut bytes = file();
        for (at, byte) in changes {
            if !(40..44).contains(&at) {
                bytes[at] = byte;
            }
        }
        bytes[40..44].fill(0);
        let crc = crc32fast::hash(&bytes[..512]).to_le_bytes();
        bytes[40..44].copy_from_slice(&crc);
        let buffer = aligned(&bytes);
        if let Ok(tree) = SearchTree::<u32>::from_bytes(buffer.bytes()) {
            let mut out = [0; 50];
            osmill_stree::Search::lower_bound_into(&tree, &[3; 50], &mut out);
            osmill_stree::Search::select(&tree, 5);
        }
    }
}
