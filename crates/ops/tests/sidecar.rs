//! The index beside a file: it tells what the headers do not, and is ignored where it is not of this file.

use std::path::Path;

use osmill_engine::{Job, JobOptions, Plan, sidecar_path};
use osmill_ops::cat::index_beside;

fn job() -> Job {
    Job::new(JobOptions {
        threads: 2,
        ..JobOptions::default()
    })
}

/// The plan of a file, and what was warned of.
fn plan(path: &Path) -> (Plan, Vec<String>) {
    let job = job();
    let input = job.open(path).unwrap();
    (input.plan(2).unwrap(), job.summary().warnings)
}

#[test]
fn an_index_beside_the_file_is_used_while_it_is_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("monaco.osm.pbf");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/monaco.osm.pbf");
    std::fs::copy(source, &path).unwrap();
    assert!(!plan(&path).0.is_indexed(), "the file has no index of its own");

    let job = job();
    let written = index_beside(&job, std::slice::from_ref(&path), false).unwrap();
    assert_eq!(written, [sidecar_path(&path)]);
    let (with, warnings) = plan(&path);
    assert!(with.is_indexed() && warnings.is_empty());
    let mut decoded = Plan::clone(&with);
    decoded.blobs.iter_mut().for_each(|blob| blob.index = None);
    let input = job.open(&path).unwrap();
    job.complete(input.file(), &mut decoded).unwrap();
    assert_eq!(with.blobs, decoded.blobs);
    // The blobs themselves have none: copies must get one.
    assert!(with.blobs.iter().all(|blob| !blob.indexed));

    // Any damage is seen, and never gives other records.
    let good = std::fs::read(&written[0]).unwrap();
    for at in (0..good.len()).step_by(7).chain([good.len() - 1]) {
        let mut bytes = good.clone();
        bytes[at] ^= 0x10;
        std::fs::write(&written[0], &bytes).unwrap();
        let (damaged, warnings) = plan(&path);
        assert!(
            !damaged.is_indexed() && warnings.len() == 1,
            "byte {at}: {warnings:?}"
        );
    }
    for len in [0, 7, 55, 56, 100, good.len() - 1] {
        std::fs::write(&written[0], &good[..len]).unwrap();
        let (cut, warnings) = plan(&path);
        assert!(
            !cut.is_indexed() && warnings.len() == 1,
            "{len} bytes: {warnings:?}"
        );
    }

    // So is a file that is another one now.
    std::fs::write(&written[0], &good).unwrap();
    let mut contents = std::fs::read(&path).unwrap();
    let last = contents.len() - 1;
    contents[last] ^= 1;
    std::fs::write(&path, contents).unwrap();
    let (changed, warnings) = plan(&path);
    assert!(!changed.is_indexed());
    assert!(
        warnings[0].contains("monaco.osm.pbf.idx") && warnings[0].contains("has changed"),
        "{warnings:?}"
    );
}
