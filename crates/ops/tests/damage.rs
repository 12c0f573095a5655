//! Damaged files: cut off at every byte, single bits flipped. No panic, no hang, no memory beyond the limits;
//! what is accepted has the content of the undamaged file, unless the damage hit what the format does not
//! protect.

mod common;

use std::fs::OpenOptions;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use cap::Cap;
use common::{Folder, job, options};
use osmill_engine::{Error, Input, Job, Malformed, OutputOptions};
use osmill_ops::cat::cat;
use osmill_ops::check::{self, RefOptions};
use osmill_ops::inspect;
use osmill_pbf::{BlobHeader, MAX_BLOB_SIZE};
use osmill_testkit::fixtures::{extract, small_extracts};
use osmill_testkit::random::Random;

#[global_allocator]
static MEMORY: Cap<std::alloc::System> = Cap::new(std::alloc::System, usize::MAX);

/// A worker's blob, its block and the compressed bytes of either, twice for growing buffers; the tests of this
/// binary may run two at a time, with two threads each.
const LIMIT: usize = 4 * 4 * MAX_BLOB_SIZE;

#[track_caller]
fn assert_memory_is_bounded() {
    let peak = MEMORY.max_allocated();
    assert!(peak < LIMIT, "{} MiB were allocated", peak >> 20);
}

/// A real file of less than 100 kB; the smallest there is.
fn small_file() -> Option<Vec<u8>> {
    let path = extract("saint_barthelemy-osmose-backend").or_else(|| {
        let mut small = small_extracts(1 << 20);
        small.sort_by_key(|path| path.metadata().map_or(u64::MAX, |m| m.len()));
        small.into_iter().next()
    })?;
    Some(std::fs::read(path).unwrap())
}

/// The frames of an undamaged file: the whole frame, and where its compressed data lies.
fn frames(bytes: &[u8]) -> Vec<(Range<usize>, Range<usize>)> {
    let (mut frames, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let length = u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        let header = BlobHeader::parse(&bytes[at + 4..at + 4 + length]).unwrap();
        let blob = at + 4 + length;
        let end = blob + header.data_size;
        let (_, _, data) = osmill_pbf::peek_blob(&bytes[blob..end], end - blob).unwrap();
        frames.push((at..end, blob + data.start..blob + data.end));
        at = end;
    }
    frames
}

fn extended(job: &Job, path: &Path) -> Result<inspect::Extended, Error> {
    let input = Input::open(path, false, Path::new("/tmp"))?;
    let plan = input.plan(1)?;
    inspect::extended(job, &input, &plan)
}

fn text(job: &Job, path: &Path, out: &Path) -> Result<Vec<u8>, Error> {
    let output = OutputOptions {
        overwrite: true,
        format: "opl".parse().unwrap(),
        ..OutputOptions::new(out)
    };
    cat(job, &[path.to_owned()], &options(), output)?;
    Ok(std::fs::read(out).unwrap())
}

#[test]
fn cut_off_at_every_byte() {
    let Some(bytes) = small_file() else { return };
    let folder = Folder::new();
    let path = folder.file("cut.osm.pbf", &bytes);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let starts: Vec<usize> = frames(&bytes).iter().map(|(frame, _)| frame.start).collect();
    let whole = extended(&job(1), &path).unwrap().counts;
    for len in (0..bytes.len()).rev() {
        file.set_len(len as u64).unwrap();
        let found = extended(&job(1), &path);
        let frame = starts.partition_point(|start| *start < len) - usize::from(len > 0);
        match found {
            // Where a frame ends nothing tells that there were more.
            Ok(found) => {
                assert!(len > 0 && starts.contains(&len), "{len}");
                assert!(found.counts.total() < whole.total(), "{len}");
            }
            Err(Error::NotPbf { .. }) => assert!(frame == 0, "{len}"),
            Err(Error::Malformed {
                blob, offset, source, ..
            }) => {
                assert_eq!((blob, offset), (frame as u64, starts[frame] as u64), "{len}");
                let Malformed::Truncated { found, expected } = source else {
                    panic!("{len}: {source}")
                };
                assert!(
                    found == (len - starts[frame]) as u64 && expected > found,
                    "{len}: {found} {expected}"
                );
            }
            Err(other) => panic!("{len}: {other}"),
        }
    }
    assert_memory_is_bounded();
}

/// Flips bits, one at a time, at random places.
fn flip(name: &str, bytes: &[u8], flips: usize, seed: u64) {
    let folder = Folder::new();
    let path = folder.file(name, bytes);
    let out: PathBuf = folder.0.path().join("out.opl");
    let right = text(&job(1), &path, &out).unwrap();
    std::fs::remove_file(&out).unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let frames = frames(bytes);
    let mut random = Random::new(seed, 0);
    let (mut refused, mut harmless, mut unprotected) = (0, 0, 0);
    for i in 0..flips {
        // Half of them anywhere, which is mostly in compressed data; the others in what surrounds it.
        let at = if i % 2 == 0 {
            random.below(bytes.len() as u64) as usize
        } else {
            let (frame, data) = &frames[random.below(frames.len() as u64) as usize];
            let head = data.start - frame.start;
            frame.start + random.below(head as u64) as usize
        };
        let bit = 1u8 << random.below(8);
        file.write_all_at(&[bytes[at] ^ bit], at as u64).unwrap();
        let job = job(2);
        let inspected = extended(&job, &path);
        let printed = text(&job, &path, &out);
        assert_eq!(
            inspected.is_ok(),
            printed.is_ok(),
            "byte {at}, bit {bit}: both read everything"
        );
        if let Ok(input) = Input::open(&path, false, Path::new("/tmp"))
            && let Ok(plan) = input.plan(2)
        {
            let relations = RefOptions {
                relations: true,
                list: true,
            };
            let _ = check::refs(&job, &input, &plan, relations);
            let _ = check::ids(&job, &input, &plan);
        }
        match printed {
            Err(error) => {
                assert_eq!(error.exit_code(), 2, "byte {at}, bit {bit}: {error}");
                assert!(!out.exists(), "byte {at}, bit {bit}");
                refused += 1;
            }
            Ok(lines) => {
                std::fs::remove_file(&out).unwrap();
                if lines == right {
                    harmless += 1;
                } else {
                    // Checksums protect what is compressed, nothing protects the frame around it: a blob of
                    // another type is passed over, as the format asks for.
                    let in_data = frames.iter().any(|(_, data)| data.contains(&at));
                    assert!(!in_data, "byte {at}, bit {bit}: the content changed unnoticed");
                    assert!(lines.len() < right.len(), "byte {at}, bit {bit}");
                    unprotected += 1;
                }
            }
        }
        file.write_all_at(&bytes[at..at + 1], at as u64).unwrap();
    }
    eprintln!("{name}: {refused} flips refused, {harmless} without effect, {unprotected} lost a blob");
    assert!(refused > flips / 4);
    assert_memory_is_bounded();
}

#[test]
fn single_bits_flipped() {
    let Some(bytes) = small_file() else { return };
    flip("plain.osm.pbf", &bytes, 1000, 1);
}

#[test]
fn single_bits_flipped_in_an_indexed_file() {
    let Some(bytes) = small_file() else { return };
    let folder = Folder::new();
    let path = folder.file("a.osm.pbf", &bytes);
    let (_, indexed) = folder.cat(&job(2), &[path], &options(), folder.output()).unwrap();
    flip("indexed.osm.pbf", &indexed, 1000, 2);
}

/// Sizes that are announced and do not come: nothing is allocated beyond what the format allows.
#[test]
fn announced_sizes_allocate_within_the_limits() {
    let folder = Folder::new();
    let mut header = osmill_testkit::file::FrameBuilder::new("none".parse().unwrap(), false);
    header.add_raw(
        osmill_pbf::BlobType::Header,
        &osmill_pbf::FileHeader::new("test").encode(),
        None,
    );
    let header = header.take().unwrap();
    for raw_size in [
        0u64,
        1,
        1 << 20,
        MAX_BLOB_SIZE as u64,
        MAX_BLOB_SIZE as u64 + 1,
        1 << 31,
        1 << 32,
        1 << 62,
        u64::MAX,
    ] {
        for field in [3, 6, 7] {
            let mut blob = Vec::new();
            osmill_pbf::wire::write_varint_field(&mut blob, 2, raw_size);
            osmill_pbf::wire::write_bytes_field(&mut blob, field, b"\x78\x9c\x01\x00\x00\xff\xff");
            let mut bytes = header.clone();
            osmill_pbf::write_blob_header(&mut bytes, osmill_pbf::BlobType::Data, None, blob.len());
            bytes.extend_from_slice(&blob);
            let path = folder.file("a.osm.pbf", &bytes);
            assert!(extended(&job(2), &path).is_err(), "{raw_size} {field}");
        }
    }
    assert_memory_is_bounded();
}
