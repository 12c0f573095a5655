//! A short run of the fuzz targets, on any toolchain: the odd files, and random changes of good blocks.

mod common;
#[path = "../../../fuzz/src/targets.rs"]
mod targets;

use common::{Folder, Form, form, job, pbf};
use osmill_engine::Input;
use osmill_ops::inspect;
use osmill_pbf::{BlobType, Compression, Decompressor, parse_blob};
use osmill_testkit::encode::encode_block;
use osmill_testkit::file::{FrameBuilder, Frames};
use osmill_testkit::fixtures::{files, shared_data, small_extracts};
use osmill_testkit::model::{Data, Element};
use osmill_testkit::random::Random;
use osmill_testkit::strategies::data;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

type Messages = Vec<Vec<u8>>;

/// Header messages, Blob messages and blocks of a file, as far as it can be read.
fn parts(bytes: &[u8]) -> (Messages, Messages, Messages) {
    let (mut headers, mut blobs, mut blocks) = (Vec::new(), Vec::new(), Vec::new());
    let mut frames = Frames::new(bytes);
    while let Ok(Some(frame)) = frames.next_frame() {
        let mut raw = Vec::new();
        let whole =
            parse_blob(&frame.blob).is_ok_and(|b| Decompressor::default().decompress(&b, &mut raw).is_ok());
        if whole {
            match frame.blob_type() {
                BlobType::Header => headers.push(raw),
                _ => blocks.push(raw),
            }
        }
        blobs.push(frame.header);
        blobs.push(frame.blob);
    }
    (headers, blobs, blocks)
}

/// Changes some bytes: a flipped bit, another byte, a byte more or less, a piece doubled.
fn mutate(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..=random.below(3) {
        if bytes.is_empty() {
            return;
        }
        let at = random.below(bytes.len() as u64) as usize;
        match random.below(6) {
            0 | 1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes[at] = random.bits() as u8,
            3 => drop(bytes.remove(at)),
            4 => bytes.insert(at, [0, 0xff, 0x80, 1][random.below(4) as usize]),
            _ => {
                let piece = bytes[at..(at + 12).min(bytes.len())].to_vec();
                bytes.splice(at..at, piece);
            }
        }
    }
}

/// Blocks of generated data in all forms.
fn generated(count: usize) -> Vec<Vec<u8>> {
    let mut runner = TestRunner::deterministic();
    (0..count)
        .map(|_| {
            let (data, form): (Data, Form) = (data(), form()).new_tree(&mut runner).unwrap().current();
            encode_block(&data.elements, &form.layout)
        })
        .collect()
}

#[test]
fn targets_on_files() {
    let mut all = small_extracts(200 << 10);
    if let Some(shared) = shared_data() {
        all.extend(files(&shared.join("odd"), ".pbf"));
        all.extend(files(&shared.join("cases"), ".pbf"));
    }
    let mut random = Random::new(3, 0);
    for path in all {
        let bytes = std::fs::read(&path).unwrap();
        let (headers, blobs, blocks) = parts(&bytes);
        let rounds = if bytes.len() > 10_000 { 3 } else { 60 };
        for (target, inputs) in [
            (targets::header as fn(&[u8]), headers),
            (targets::blob, blobs),
            (targets::block, blocks),
        ] {
            for input in inputs {
                target(&input);
                for _ in 0..rounds {
                    let mut changed = input.clone();
                    mutate(&mut random, &mut changed);
                    target(&changed);
                }
            }
        }
    }
}

#[test]
fn targets_on_changes_of_generated_blocks() {
    let mut random = Random::new(4, 0);
    for raw in generated(150) {
        targets::block(&raw);
        for _ in 0..60 {
            let mut changed = raw.clone();
            mutate(&mut random, &mut changed);
            targets::block(&changed);
        }
    }
}

/// What `inspect -e` lets pass, a reader of all values reads.
#[test]
fn a_file_that_inspect_accepts_can_be_read() {
    let mut random = Random::new(5, 0);
    let folder = Folder::new();
    let head = pbf(&Data::default(), &Form::default());
    let (mut accepted, mut refused) = (0, 0);
    for raw in generated(60) {
        for _ in 0..25 {
            let mut changed = raw.clone();
            mutate(&mut random, &mut changed);
            let mut frames = FrameBuilder::new(Compression::NONE, false);
            frames.add_raw(BlobType::Data, &changed, None);
            let path = folder.file("a.osm.pbf", &[&head[..], &frames.take().unwrap()].concat());
            let input = Input::open(&path, false, folder.0.path()).unwrap();
            let inspected = input
                .plan(1)
                .and_then(|plan| inspect::extended(&job(1), &input, &plan));
            let read = osmill_pbf::Block::parse(changed).and_then(|block| {
                block
                    .elements()
                    .map(|element| Element::of(&element?))
                    .collect::<Result<Data, _>>()
            });
            match (&inspected, &read) {
                (Ok(found), Ok(data)) => assert_eq!(found.counts.total(), data.elements.len() as u64),
                // It looks at whole columns, and so at numbers behind the last one that is needed, too.
                (Err(_), _) => refused += 1,
                _ => panic!(
                    "inspect: {:?}, elements: {read:?}",
                    inspected.map(|found| found.counts)
                ),
            }
            accepted += u32::from(read.is_ok());
        }
    }
    assert!(accepted > 100 && refused > 100, "{accepted} {refused}");
}
