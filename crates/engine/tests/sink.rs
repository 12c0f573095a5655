//! Sinks: whatever workers hand over, and however many they are, the output has it in order, in full blocks.

use std::path::Path;

use osmill_engine::{Error, Job, JobOptions, OutputOptions, Sink};
use osmill_model::Kind;
use osmill_pbf::{Block, BlockBuilder, ELEMENTS_PER_BLOCK, FileHeader, IndexRecord};
use osmill_testkit::file::Frames;
use osmill_testkit::model::{Data, Element, Text};
use proptest::prelude::*;

/// What a task does with its elements.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// Keeps each on its own, to be gathered with others.
    Keep,
    /// Writes a block.
    Block,
    /// Keeps one half, then writes the other as a block.
    Both,
}

fn raw(elements: &[Element]) -> (Vec<u8>, IndexRecord) {
    let mut builder = BlockBuilder::default();
    elements.iter().for_each(|element| element.add_to(&mut builder));
    let mut raw = Vec::new();
    let record = builder.finish(&mut raw);
    (raw, record)
}

fn job(threads: usize) -> Job {
    Job::new(JobOptions {
        threads,
        ..JobOptions::default()
    })
}

fn write(path: &Path, tasks: &[(Vec<Element>, Way)], threads: usize, direct: bool) -> Vec<u8> {
    let options = OutputOptions {
        overwrite: true,
        direct,
        ..OutputOptions::new(path)
    };
    let sink = Sink::create_pbf(options, &FileHeader::new("test")).unwrap();
    let job = job(threads);
    job.tasks(
        "test",
        tasks.len() as u64,
        &sink,
        || (),
        |(), task, out| {
            let (elements, way) = &tasks[task as usize];
            let (kept, blocked) = match way {
                Way::Keep => (&elements[..], &[][..]),
                Way::Block => (&[][..], &elements[..]),
                Way::Both => elements.split_at(elements.len() / 2),
            };
            // Tasks end in any order.
            std::thread::sleep(std::time::Duration::from_micros(task * 7919 % 300));
            let block = Block::parse(raw(kept).0).unwrap();
            for element in block.elements() {
                out.keep(&element.unwrap()).unwrap();
            }
            if !blocked.is_empty() {
                let (raw, record) = raw(blocked);
                out.block(&raw, &record).unwrap();
            }
            Ok(())
        },
    )
    .unwrap();
    let counts = sink.counts();
    let bytes = sink.bytes();
    sink.finish().unwrap();
    let file = std::fs::read(path).unwrap();
    let expected: u64 = tasks.iter().map(|(elements, _)| elements.len() as u64).sum();
    assert_eq!(counts.total(), expected);
    assert!(bytes <= file.len() as u64);
    file
}

fn tasks() -> impl Strategy<Value = Vec<(Vec<Element>, Way)>> {
    let task = (
        prop_oneof![40 => 0usize..400, 1 => 7_900usize..17_000],
        prop::sample::select(vec![Kind::Node, Kind::Node, Kind::Way, Kind::Relation]),
        prop::sample::select(vec![Way::Keep, Way::Keep, Way::Keep, Way::Block, Way::Both]),
    );
    prop::collection::vec(task, 0..90).prop_map(|tasks| {
        let mut id = 0;
        tasks
            .into_iter()
            .map(|(count, kind, way)| {
                let elements = (0..count)
                    .map(|_| {
                        id += 1;
                        Element::new(kind, id)
                    })
                    .collect();
                (elements, way)
            })
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    #[test]
    fn order_is_kept(tasks in tasks()) {
        // The folder for temporary files may be in memory, where direct I/O does not exist.
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = folder.path().join("out.osm.pbf");
        let one = write(&path, &tasks, 1, false);
        let expected: Data = tasks.iter().flat_map(|(elements, _)| elements.iter().cloned()).collect();
        prop_assert_eq!(Data::from_pbf(&one).unwrap(), expected);
        for (threads, direct) in [(2, false), (3, false), (3, true)] {
            prop_assert!(write(&path, &tasks, threads, direct) == one, "{} threads", threads);
        }
    }
}

#[test]
fn thin_pieces_become_full_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let tasks: Vec<_> = (0..1000i64)
        .map(|task| {
            (
                (0..30).map(|i| Element::new(Kind::Way, task * 30 + i)).collect(),
                Way::Keep,
            )
        })
        .collect();
    let bytes = write(&folder.path().join("out.osm.pbf"), &tasks, 3, false);
    let counts = counts_of_blobs(&bytes);
    let (last, full) = counts.split_last().unwrap();
    assert!(
        full.iter().all(|count| *count >= ELEMENTS_PER_BLOCK),
        "{counts:?}"
    );
    assert_eq!(full.iter().sum::<usize>() + last, 30_000);
}

/// How many elements each blob has.
fn counts_of_blobs(file: &[u8]) -> Vec<usize> {
    let mut frames = Frames::new(file);
    let mut counts = Vec::new();
    while let Some(frame) = frames.next_frame().unwrap() {
        let record = frame
            .index_data()
            .and_then(|bytes| IndexRecord::decode(bytes, frame.blob.len()));
        counts.extend(record.map(|record| record.count() as usize));
    }
    counts
}

#[test]
fn the_end_of_a_task_goes_with_its_full_block() {
    let folder = tempfile::tempdir().unwrap();
    let most = ELEMENTS_PER_BLOCK;
    let lens = [
        2 * most + 1,
        most,
        most + most / 2 - 1,
        most + most / 2,
        most / 2,
        3 * most - 1,
    ];
    let tasks: Vec<_> = lens
        .iter()
        .zip((0..).step_by(100_000))
        .map(|(len, first)| {
            let elements = (0..*len as i64).map(|i| Element::new(Kind::Node, first + i));
            (elements.collect(), Way::Keep)
        })
        .collect();
    let bytes = write(&folder.path().join("out.osm.pbf"), &tasks, 2, false);
    let expected: Data = tasks.into_iter().flat_map(|(elements, _)| elements).collect();
    assert_eq!(Data::from_pbf(&bytes).unwrap(), expected);
    assert_eq!(
        counts_of_blobs(&bytes),
        [
            [most, most + 1].as_slice(),
            &[most],
            &[most + most / 2 - 1],
            &[most, most / 2],
            &[most / 2],
            &[most, most, most - 1],
        ]
        .concat()
    );
}

/// Three elements of 11 MB are few, and too much for one block.
#[test]
fn large_elements_are_not_put_together() {
    let folder = tempfile::tempdir().unwrap();
    let large = |id: i64| {
        let mut element = Element::new(Kind::Way, id);
        let value = vec![b'a' + id as u8; 11_000_000];
        element.tags.push((Text(b"note".to_vec()), Text(value)));
        element
    };
    let tasks: Vec<_> = (0..3).map(|id| (vec![large(id)], Way::Keep)).collect();
    let bytes = write(&folder.path().join("out.osm.pbf"), &tasks, 2, false);
    assert_eq!(counts_of_blobs(&bytes), [2, 1]);
    let expected: Data = tasks.into_iter().flat_map(|(elements, _)| elements).collect();
    assert!(Data::from_pbf(&bytes).unwrap() == expected);
}

#[test]
fn a_failing_task_ends_the_job_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.osm.pbf");
    for threads in 1..4 {
        let sink = Sink::create_pbf(OutputOptions::new(&path), &FileHeader::new("test")).unwrap();
        let result = job(threads).tasks(
            "test",
            500,
            &sink,
            || (),
            |(), task, out| {
                if task == 300 || task == 310 {
                    return Err(Error::Failed(format!("task {task}")));
                }
                let (raw, record) = raw(&[Element::new(Kind::Node, task as i64)]);
                out.block(&raw, &record).unwrap();
                Ok(())
            },
        );
        // The first failure in order is told, unless the second one kept it from beginning.
        let error = result.unwrap_err().to_string();
        assert!(error == "task 300" || error == "task 310", "{error}");
        drop(sink);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

#[test]
fn an_empty_output_is_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = write(&folder.path().join("out.osm.pbf"), &[], 2, false);
    let (header, data) = Data::with_header_from_pbf(&bytes).unwrap();
    assert_eq!((header, data), (FileHeader::new("test"), Data::default()));
}
