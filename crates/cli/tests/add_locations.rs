//! `osmill add-locations-to-ways`: what is given on the command line.

mod common;

use std::collections::HashSet;
use std::path::Path;

use common::run;

const ANDORRA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/andorra.osm.pbf");

#[test]
fn types_of_index_are_shown_and_taken() {
    for flag in ["-I", "--show-index-types"] {
        let output = run(["add-locations-to-ways", flag]);
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        for name in ["auto", "external", "flex_mem", "dense_file_array", "store=PATH"] {
            assert!(text.lines().any(|line| line == name), "{name}");
        }
    }
}

#[test]
fn the_same_bytes_whatever_the_means() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.osm.pbf");
    let scratch = folder.path().to_str().unwrap();
    let mut outputs = HashSet::new();
    for means in [
        &["--memory", "1G", "-j", "1"][..],
        &["--memory", "1M", "-j", "3", "-i", "external"],
        &[
            "--memory",
            "100K",
            "-j",
            "2",
            "-i",
            "sparse_mem_array",
            "--index-type-neg",
            "dense_mem_array",
        ],
        &["--memory", "300K", "-j", "1", "--scratch", scratch, "--direct-io"],
    ] {
        let mut arguments = vec![
            "add-locations-to-ways",
            "--ignore-missing-nodes",
            "-O",
            ANDORRA,
            "-o",
        ];
        arguments.push(out.to_str().unwrap());
        arguments.extend(means);
        let output = run(arguments);
        assert!(
            output.status.success(),
            "{means:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        outputs.insert(std::fs::read(&out).unwrap());
    }
    assert_eq!(outputs.len(), 1);
    assert!(only(folder.path(), "out.osm.pbf"), "nothing is left in scratch");
}

/// Whether a folder holds this file and no other.
fn only(folder: &Path, name: &str) -> bool {
    let entries = folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name());
    entries.eq([name])
}
