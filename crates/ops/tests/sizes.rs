//! How large outputs are: full blobs after filtering, and zlib no larger than zlib's own level 6.

mod common;

use std::io::Write;

use common::{Folder, Form, job, options, pbf};
use osmill_model::{Kind, KindSet, Location};
use osmill_pbf::{BlobType, Compression, Decompressor, ELEMENTS_PER_BLOCK, IndexRecord, parse_blob};
use osmill_testkit::file::Frames;
use osmill_testkit::fixtures::{extract, small_extracts};
use osmill_testkit::model::{Data, Element};

/// The index records of a file's blobs.
fn records(bytes: &[u8]) -> Vec<IndexRecord> {
    let mut frames = Frames::new(bytes);
    let mut records = Vec::new();
    while let Some(frame) = frames.next_frame().unwrap() {
        if frame.blob_type() == BlobType::Data {
            records.extend(
                frame
                    .index_data()
                    .and_then(|bytes| IndexRecord::decode(bytes, frame.blob.len())),
            );
        }
    }
    records
}

#[test]
fn few_elements_of_many_blobs_become_full_blobs() {
    // 300 blobs of 100 nodes and 50 ways each, mixed.
    let data: Data = (0..300i64)
        .flat_map(|blob| {
            (0..150).map(move |i| {
                let kind = if i < 100 { Kind::Node } else { Kind::Way };
                let mut element = Element::new(kind, blob * 150 + i + 1);
                element
                    .tags
                    .push(("name".into(), format!("{blob} {i}").as_str().into()));
                if kind == Kind::Node {
                    element.location = Some(Location::new((blob * 1000 + i) as i32, i as i32));
                } else {
                    element.refs = vec![blob * 150 + 1, blob * 150 + 2];
                }
                element
            })
        })
        .collect();
    let folder = Folder::new();
    let form = Form {
        elements_per_block: 150,
        ..Form::default()
    };
    let path = folder.file("a.osm.pbf", &pbf(&data, &form));
    for (kind, count) in [(KindSet::NODES, 30_000), (KindSet::WAYS, 15_000)] {
        let options = osmill_ops::cat::Options {
            kinds: kind,
            ..options()
        };
        let mut outputs = Vec::new();
        for threads in 1..4 {
            let (_, bytes) = folder
                .cat(
                    &job(threads),
                    std::slice::from_ref(&path),
                    &options,
                    folder.output(),
                )
                .unwrap();
            let records = records(&bytes);
            assert_eq!(records.iter().map(IndexRecord::count).sum::<u64>(), count);
            let (last, full) = records.split_last().unwrap();
            assert!(
                full.iter()
                    .all(|record| record.count() >= ELEMENTS_PER_BLOCK as u64),
                "{records:?}"
            );
            assert!(last.count() <= 2 * ELEMENTS_PER_BLOCK as u64);
            assert_eq!(
                Data::from_pbf(&bytes).unwrap(),
                data.keep(|e| kind.contains(e.kind()))
            );
            outputs.push(bytes);
        }
        assert!(
            outputs.windows(2).all(|w| w[0] == w[1]),
            "the same for any number of threads"
        );
    }
    // One blob for what fits into one, however many inputs it comes from.
    let options = osmill_ops::cat::Options {
        kinds: KindSet::WAYS,
        ..options()
    };
    let few = folder.file("few.osm.pbf", &pbf(&data.keep(|e| e.id.id % 10 == 0), &form));
    let (_, bytes) = folder
        .cat(&job(2), &[few.clone(), few], &options, folder.output())
        .unwrap();
    assert_eq!(records(&bytes).len(), 1);
}

/// The blocks of a file, uncompressed, and how large their blobs are.
fn blocks(bytes: &[u8]) -> Vec<(Vec<u8>, usize)> {
    let mut frames = Frames::new(bytes);
    let mut decompressor = Decompressor::default();
    let mut blocks = Vec::new();
    while let Some(frame) = frames.next_frame().unwrap() {
        if frame.blob_type() == BlobType::Data {
            let (mut raw, blob) = (Vec::new(), parse_blob(&frame.blob).unwrap());
            decompressor.decompress(&blob, &mut raw).unwrap();
            blocks.push((raw, blob.data.len()));
        }
    }
    blocks
}

#[test]
fn zlib_output_is_no_larger_than_level_6_gives() {
    let mut files: Vec<_> = [
        "monaco-osrm-backend",
        "gibraltar-osmose-backend",
        "planet-planet-dump-ng",
    ]
    .iter()
    .filter_map(|name| extract(name))
    .collect();
    if files.is_empty() {
        files = small_extracts(4 << 20);
    }
    let folder = Folder::new();
    for path in files {
        let output = osmill_engine::OutputOptions {
            compression: Compression::default(),
            recompress: true,
            ..folder.output()
        };
        let (_, bytes) = folder
            .cat(&job(2), std::slice::from_ref(&path), &options(), output)
            .unwrap();
        let (mut ours, mut theirs) = (0, 0);
        for (raw, size) in blocks(&bytes) {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::new(6));
            encoder.write_all(&raw).unwrap();
            ours += size;
            theirs += encoder.finish().unwrap().len();
        }
        eprintln!("{}: {ours} bytes, zlib level 6 {theirs}", path.display());
        assert!(
            ours <= theirs,
            "{}: {ours} bytes, zlib level 6 {theirs}",
            path.display()
        );
    }
}
