//! Running osmium beside our own commands.
#![allow(dead_code)] // Each test binary uses a part.

use std::path::{Path, PathBuf};
use std::process::Command;

use osmill_engine::{Job, JobOptions};

/// The real files, if they are there: `../shared/data` beside the workspace.
pub fn data() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    root.canonicalize().ok()
}

/// Whether both osmium and the real files are there; says what is not.
pub fn ready() -> Option<PathBuf> {
    if Command::new("osmium").arg("--version").output().is_err() {
        eprintln!("skipped: osmium is not installed");
        return None;
    }
    let data = data();
    if data.is_none() {
        eprintln!("skipped: there are no real files in ../shared/data");
    }
    data
}

/// Small files for every run.
pub fn few(data: &Path) -> Vec<PathBuf> {
    ["cobb-county.filtered-opentripplanner", "gibraltar-osmose-backend"]
        .iter()
        .map(|name| data.join(format!("extracts/{name}.osm.pbf")))
        .collect()
}

/// All real extracts that osmium reads: it has no zstd. The same extract is there as zlib, too.
pub fn all(data: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(data.join("extracts"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "pbf"))
        .filter(|path| !path.ends_with("liechtenstein2024-zstd.osm.pbf"))
        .collect();
    files.sort();
    files
}

/// Runs osmium; its standard output. Exit code 1 of getid is fine: something is missing.
pub fn osmium<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> Vec<u8> {
    let output = Command::new("osmium").args(arguments).output().unwrap();
    let command = arguments.first().map(AsRef::as_ref);
    let missing = command == Some("getid".as_ref()) && output.status.code() == Some(1);
    assert!(
        output.status.success() || missing,
        "osmium: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

/// What osmium sees in a file, element by element.
pub fn opl(path: &Path) -> String {
    let text = osmium(&["cat", "-f", "opl", "-o", "-", path.to_str().unwrap()]);
    String::from_utf8(text).unwrap()
}

/// A PBF file of a text one, by osmium.
pub fn to_pbf(source: &Path, folder: &Path) -> PathBuf {
    let name = source.file_name().unwrap().to_str().unwrap();
    let target = folder.join(format!("{name}.osm.pbf"));
    let (source, out) = (source.to_str().unwrap(), target.to_str().unwrap());
    osmium(&["cat", "-O", "-o", out, source]);
    target
}

/// A job with two threads and memory for a part of the ids of a file, so that they are found in ranges.
pub fn small_job(file: &Path, bytes_for_a_byte: f64) -> Job {
    let size = std::fs::metadata(file).unwrap().len();
    Job::new(JobOptions {
        // As for a file that is large.
        blobs_of_task: Some(3),
        threads: 2,
        memory: (size as f64 * bytes_for_a_byte) as u64,
        ..JobOptions::default()
    })
}

pub fn job(threads: usize) -> Job {
    Job::new(JobOptions {
        // As for a file that is large.
        blobs_of_task: Some(3),
        threads,
        ..JobOptions::default()
    })
}

/// Fails with the first difference of two OPL texts.
pub fn assert_same(what: &str, ours: &str, theirs: &str) {
    if ours == theirs {
        return;
    }
    let (mut a, mut b) = (ours.lines(), theirs.lines());
    loop {
        match (a.next(), b.next()) {
            (Some(x), Some(y)) if x == y => {}
            (x, y) => panic!(
                "{what}: {} lines and {} lines, the first difference is\n ours {x:?}\n theirs {y:?}",
                ours.lines().count(),
                theirs.lines().count()
            ),
        }
    }
}
