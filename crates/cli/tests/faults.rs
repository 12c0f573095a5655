//! What goes wrong outside: full disks, kills, inputs that fail half-way, outputs that are inputs, streams.

mod common;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{assert_refused, command, names, run, run_with_input, stderr, stdout};
use osmill_model::{Kind, Location};
use osmill_pbf::{BlobHeader, BlobType, Compression};
use osmill_testkit::model::{Data, Element, PbfOptions};

/// A sorted file of many blobs, which do not compress.
fn large(compression: Compression) -> Vec<u8> {
    let mut random = 1u64;
    let data: Data = (1..=60_000)
        .map(|id| {
            let mut node = Element::new(Kind::Node, id);
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            node.location = Some(Location::new((random >> 34) as i32, (random >> 35) as i32 / 2));
            node
        })
        .collect();
    data.to_pbf_with(&PbfOptions {
        elements_per_block: 1000,
        index: false,
        compression,
        ..PbfOptions::default()
    })
}

fn write(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

/// Where a frame of the file begins and where its Blob message does.
fn frames(bytes: &[u8]) -> Vec<(usize, usize)> {
    let (mut frames, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let length = u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        let header = BlobHeader::parse(&bytes[at + 4..at + 4 + length]).unwrap();
        frames.push((at, at + 4 + length));
        at += 4 + length + header.data_size;
    }
    frames
}

#[test]
fn a_full_device_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let input = write(folder.path(), "in.osm.pbf", &large(Compression::default()));
    let output = run([
        "cat".as_ref(),
        input.as_os_str(),
        "-O".as_ref(),
        "-o".as_ref(),
        "/dev/full".as_ref(),
    ]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("/dev/full: the disk is full") && said.lines().count() == 1,
        "{said}"
    );
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = command(["cat".as_ref(), input.as_os_str(), "-o".as_ref(), "-".as_ref()])
        .stdout(full)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("full") && said.lines().count() == 1, "{said}");
}

/// A folder for a small file system that only the child of a script sees which begins with this command. Needs the
/// right to mount; without it nothing is tested.
fn small_disk(folder: &Path, size: &str) -> Option<(PathBuf, String)> {
    let small = folder.join("small");
    std::fs::create_dir(&small).unwrap();
    let mount = format!("mount -t tmpfs -o size={size} tmpfs \"$1\" || exit 77");
    let can = Command::new("unshare")
        .args(["-m", "sh", "-c", &mount, "sh"])
        .arg(&small)
        .stderr(Stdio::null())
        .status();
    if !can.is_ok_and(|status| status.success()) {
        eprintln!("no file system can be mounted: a full disk is not tested");
        return None;
    }
    Some((small, mount))
}

/// Marks of elements that are found in ranges of ids.
#[test]
fn full_scratch_is_named_and_leaves_the_output_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "in.osm.pbf", &large(Compression::default()));
    write(folder.path(), "out.osm.pbf", b"old");
    let ids: String = (1..=60_000).map(|id| format!("n{id}\n")).collect();
    write(folder.path(), "ids", ids.as_bytes());
    let Some((small, mount)) = small_disk(folder.path(), "4k") else {
        return;
    };
    for (scratch, code) in [("small", 1), (".", 0)] {
        let script = format!(
            "{mount}; cd \"$2\"; \"$3\" getid -q -r -i ids --memory 4K --scratch {scratch} -O -o out.osm.pbf in.osm.pbf"
        );
        let output = Command::new("unshare")
            .args(["-m", "sh", "-c", &script, "sh"])
            .args([&small, folder.path()])
            .arg(env!("CARGO_BIN_EXE_osmill"))
            .output()
            .unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert_eq!(said.contains("small: the disk is full"), code == 1, "{said}");
        let old = std::fs::read(folder.path().join("out.osm.pbf")).unwrap() == b"old";
        assert_eq!(old, code == 1);
        assert_eq!(
            names(folder.path()),
            ["ids", "in.osm.pbf", "out.osm.pbf", "small"]
        );
    }
}

/// A file system of 128 KiB.
#[test]
fn a_full_disk_is_named_and_cleaned_up() {
    let folder = tempfile::tempdir().unwrap();
    let input = write(folder.path(), "in.osm.pbf", &large(Compression::default()));
    let Some((small, mount)) = small_disk(folder.path(), "128k") else {
        return;
    };
    for options in [
        "",
        "--compression zstd",
        "-f opl",
        "-j 3 -t node",
        "--direct-io",
        "--dedupe",
        "--fsync",
    ] {
        for before in ["", "old"] {
            let script = format!(
                "{mount}; cd \"$1\"; [ -z '{before}' ] || printf {before} > out.osm.pbf; \
                 \"$2\" cat -q {options} -O -o out.osm.pbf \"$3\"; code=$?; ls -A; cat out.osm.pbf 2>&-; exit $code"
            );
            let output = Command::new("unshare")
                .args(["-m", "sh", "-c", &script, "sh"])
                .arg(&small)
                .arg(env!("CARGO_BIN_EXE_osmill"))
                .arg(&input)
                .output()
                .unwrap();
            let said = stderr(&output);
            assert_eq!(output.status.code(), Some(1), "'{options}': {said}");
            assert!(
                said.contains("out.osm.pbf: the disk is full") && said.lines().count() == 1,
                "'{options}': {said}"
            );
            let left = String::from_utf8_lossy(&output.stdout).into_owned();
            let expected = if before.is_empty() { "" } else { "out.osm.pbf\nold" };
            assert_eq!(left, expected, "'{options}'");
        }
    }
}

#[test]
fn a_kill_in_the_middle_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = large(Compression::NONE);
    for before in [None, Some(b"before")] {
        let out = folder.path().join("out.osm.pbf");
        if let Some(before) = before {
            std::fs::write(&out, before).unwrap();
        }
        let mut child = command([
            "cat".as_ref(),
            "-".as_ref(),
            "-O".as_ref(),
            "-o".as_ref(),
            out.as_os_str(),
        ])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(&bytes[..bytes.len() / 2]).unwrap();
        // It has written by now: what it has read of the pipe is more than it keeps in memory at once.
        let written = || {
            let io = std::fs::read_to_string(format!("/proc/{}/io", child.id())).unwrap_or_default();
            let line = io
                .lines()
                .find_map(|line| line.strip_prefix("wchar: ").map(str::to_owned));
            line.and_then(|n| n.parse::<u64>().ok()).unwrap_or(0)
        };
        let start = Instant::now();
        while written() < 10_000 && start.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(5));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        match before {
            None => assert_eq!(names(folder.path()), [""; 0]),
            Some(before) => {
                assert_eq!(names(folder.path()), ["out.osm.pbf"]);
                assert_eq!(std::fs::read(&out).unwrap(), before);
            }
        }
    }
}

#[test]
fn an_input_that_fails_in_the_middle_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = large(Compression::default());
    let frames = frames(&bytes);
    let (frame, body) = frames[40];
    bytes[body + 60] ^= 0x10;
    let input = write(folder.path(), "in.osm.pbf", &bytes);
    let place = format!("in.osm.pbf: blob 40 at byte {frame}: ");
    let outputs = tempfile::tempdir().unwrap();
    let out = outputs.path().join("out.osm.pbf");
    for options in [
        &["cat"][..],
        &["cat", "--direct-io"],
        &["cat", "-c", "user"],
        &["cat", "--compression", "lz4"],
        &["cat", "--dedupe"],
        &["cat", "-f", "opl"],
        &["cat", "-j", "3", "-t", "node"],
    ] {
        let mut command = command(options);
        let output = command
            .args(["-o".as_ref(), out.as_os_str(), input.as_os_str()])
            .output()
            .unwrap();
        assert_refused(&output, &place);
        assert_eq!(names(outputs.path()), [""; 0], "{options:?}");
    }
    // Where the headers tell that it is cut short, nothing is begun.
    let input = write(folder.path(), "in.osm.pbf", &bytes[..frames[50].1 + 100]);
    let output = run(["cat".as_ref(), input.as_os_str(), "-o".as_ref(), out.as_os_str()]);
    assert_refused(
        &output,
        &format!(
            "in.osm.pbf: blob 50 at byte {}: the file ends after",
            frames[50].0
        ),
    );
    // From standard input the failure comes after the beginning has been written.
    let output = run_with_input(
        ["cat".as_ref(), "-".as_ref(), "-o".as_ref(), out.as_os_str()],
        &bytes[..frames[30].1 + 100],
    );
    assert_refused(
        &output,
        &format!(
            "standard input: blob 30 at byte {}: the file ends after",
            frames[30].0
        ),
    );
    assert_eq!(names(outputs.path()), [""; 0]);
}

#[test]
fn an_output_may_be_an_input() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "x.osm.pbf", &large(Compression::default()));
    let opl = |path: &Path| {
        stdout([
            "cat".as_ref(),
            "-f".as_ref(),
            "opl".as_ref(),
            path.as_os_str(),
            "-o".as_ref(),
            "-".as_ref(),
        ])
    };
    let before = opl(&path);
    let cat = |options: &[&str]| {
        let mut command = command(["cat".as_ref(), path.as_os_str(), "-o".as_ref(), path.as_os_str()]);
        command.args(options).output().unwrap()
    };
    let refused = cat(&[]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        stderr(&refused).contains("the file exists; use -O"),
        "{}",
        stderr(&refused)
    );
    for options in [
        &["-O"][..],
        &["-O"],
        &["-O", "--compression", "zstd"],
        &["-O", "--direct-io"],
        &["-O", "--dedupe"],
        &["-O", "-j", "3", "--fsync"],
    ] {
        let output = cat(options);
        assert!(output.status.success(), "{options:?}: {}", stderr(&output));
        assert!(opl(&path) == before, "{options:?}");
        assert_eq!(names(folder.path()), ["x.osm.pbf"], "{options:?}");
    }
    // Through a link, which stays one.
    let link = folder.path().join("link.osm.pbf");
    std::os::unix::fs::symlink("x.osm.pbf", &link).unwrap();
    let output = run([
        "cat".as_ref(),
        link.as_os_str(),
        path.as_os_str(),
        "-O".as_ref(),
        "--dedupe".as_ref(),
        "-o".as_ref(),
        link.as_os_str(),
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(link.is_symlink() && opl(&path) == before);
}

#[test]
fn standard_input_and_output_are_as_files() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = large(Compression::default());
    let input = write(folder.path(), "in.osm.pbf", &bytes);
    let mut twice = bytes.clone();
    twice.extend_from_slice(&bytes);
    for options in [
        &["cat"][..],
        &["cat", "-t", "node"],
        &["cat", "-f", "opl"],
        &["cat", "--dedupe"],
        &["cat", "--compression", "none", "-j", "3"],
    ] {
        let from_file = stdout(
            options
                .iter()
                .copied()
                .chain([input.to_str().unwrap(), "-o", "-"]),
        );
        let out = folder.path().join("out");
        let mut to_file = command(options);
        assert!(
            to_file
                .args(["-O".as_ref(), "-o".as_ref(), out.as_os_str(), input.as_os_str()])
                .status()
                .unwrap()
                .success()
        );
        assert!(
            std::fs::read(&out).unwrap() == from_file,
            "{options:?}: to a file and to a stream"
        );
        let streamed = run_with_input(options.iter().copied().chain(["-", "-o", "-"]), &bytes);
        assert!(streamed.status.success(), "{options:?}: {}", stderr(&streamed));
        assert!(streamed.stdout == from_file, "{options:?}: from a stream");
    }
    for options in [
        &["inspect", "--json", "-e"][..],
        &["inspect", "--tags", "--json"],
        &["check", "--json"],
    ] {
        let whole = |output: std::process::Output| {
            let mut value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            if let Some(name) = value.get_mut("file").and_then(|file| file.get_mut("name")) {
                *name = "".into();
            }
            (output.status.code(), value)
        };
        let from_file = whole(run(options.iter().copied().chain([input.to_str().unwrap()])));
        let streamed = whole(run_with_input(options.iter().copied().chain(["-"]), &bytes));
        assert_eq!(streamed, from_file, "{options:?}");
    }
    // Two files one after the other are one stream with two headers. The claim to be sorted does not hold.
    let double = run_with_input(["cat", "-f", "opl", "-", "-o", "-"], &twice);
    assert!(double.status.success(), "{}", stderr(&double));
    let once = stdout([
        "cat".as_ref(),
        "-f".as_ref(),
        "opl".as_ref(),
        input.as_os_str(),
        "-o".as_ref(),
        "-".as_ref(),
    ]);
    assert!(double.stdout == [&once[..], &once].concat());
    let double = run_with_input(["cat", "-", "-o", "-"], &twice);
    assert_eq!(double.status.code(), Some(1));
    assert!(
        stderr(&double).contains("the data is sorted, but n1 comes after n60000"),
        "{}",
        stderr(&double)
    );
    // Nor does what the first header says of history and area hold for another file.
    let history = Data::opl("n70000 v1 dV x1 y1\nn70000 v2 dD x y").to_pbf();
    let both = [&bytes[..], &history].concat();
    let refused = run_with_input(["cat", "-", "-o", "-"], &both);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        stderr(&refused).contains("several file headers"),
        "{}",
        stderr(&refused)
    );
    let printed = run_with_input(["cat", "-f", "opl", "-", "-o", "-"], &both);
    assert!(printed.status.success(), "{}", stderr(&printed));
    // A file can be read twice, and gets the header that holds for all of it.
    let file = write(folder.path(), "both.osm.pbf", &both);
    let copied = stdout(["cat".as_ref(), file.as_os_str(), "-o".as_ref(), "-".as_ref()]);
    let (header, data) = Data::with_header_from_pbf(&copied).unwrap();
    assert!(header.has_history() && !header.claims_sorted());
    assert_eq!(data.elements.len(), 60_002);
}

#[test]
fn a_gone_reader_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let input = write(folder.path(), "in.osm.pbf", &large(Compression::default()));
    let mut child = command([
        "cat".as_ref(),
        "-f".as_ref(),
        "opl".as_ref(),
        input.as_os_str(),
        "-o".as_ref(),
        "-".as_ref(),
    ])
    .stdout(Stdio::piped())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.stderr.is_empty(), "{}", stderr(&output));
}

#[test]
fn no_blob_header_is_long() {
    let folder = tempfile::tempdir().unwrap();
    let input = write(folder.path(), "in.osm.pbf", &large(Compression::default()));
    for options in [
        &["cat"][..],
        &["cat", "--compression", "none"],
        &["cat", "-c", "uid"],
    ] {
        let out = stdout(
            options
                .iter()
                .copied()
                .chain([input.to_str().unwrap(), "-o", "-"]),
        );
        for (start, body) in frames(&out) {
            assert!(body - start - 4 <= 127);
            let header = BlobHeader::parse(&out[start + 4..body]).unwrap();
            assert_eq!(header.blob_type == BlobType::Data, header.index_data.is_some());
        }
    }
}
