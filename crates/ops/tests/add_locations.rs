//! `add-locations-to-ways` against a naive model, and against `osmium` on real files.
//!
//! The comparison runs where `osmium` is installed and `../shared/data` stands beside the workspace;
//! it takes minutes and is not run by default:
//! `cargo test -p osmill-ops --test add_locations -- --ignored`.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use osmill_engine::{Error, Input, Job, JobOptions, OutputOptions, Sink};
use osmill_model::{ElementId, Kind, Location, Member, Metadata, Tag, id_order};
use osmill_ops::add_locations::{self, Options, Report};
use osmill_pbf::{Block, Element, FileHeader, LOCATIONS_ON_WAYS, SORTED};
use proptest::prelude::*;

fn job(threads: usize, memory: u64, scratch: &Path) -> Job {
    Job::new(JobOptions {
        threads,
        memory,
        scratch: scratch.to_owned(),
        ..JobOptions::default()
    })
}

fn add_locations(job: &Job, path: &Path, options: &Options, output: OutputOptions) -> Result<Report, Error> {
    add_locations::add_locations(job, &[path.to_owned()], options, output)
}

fn blocks(path: &Path) -> (FileHeader, Vec<Vec<u8>>) {
    let input = Input::open(path, false, Path::new(".")).unwrap();
    let plan = input.plan(1).unwrap();
    let mut blocks: Vec<(u64, Vec<u8>)> = job(1, 1, Path::new("."))
        .pass("read", input.file(), &plan.blobs)
        .scan(Vec::new, |found, blob| {
            let number = blob.entry().number;
            found.push((number, blob.block()?.data().to_vec()));
            Ok(())
        })
        .unwrap()
        .concat();
    blocks.sort();
    (plan.header, blocks.into_iter().map(|(_, data)| data).collect())
}

#[derive(Debug, Clone)]
enum Item {
    Node(i64, Option<Location>, bool),
    Way(i64, Vec<i64>, bool),
    Relation(i64, Vec<i64>),
}

impl Item {
    fn key(&self) -> (u8, u64) {
        match self {
            Item::Node(id, ..) => (0, id_order(*id)),
            Item::Way(id, ..) => (1, id_order(*id)),
            Item::Relation(id, _) => (2, id_order(*id)),
        }
    }
}

fn old_location(i: usize) -> Option<Location> {
    (!i.is_multiple_of(3)).then(|| Location::new(-(i as i32), 77))
}

/// Writes a file whose blobs have `per_blob` elements.
fn write(path: &Path, items: &[Item], sorted: bool, per_blob: usize) {
    let mut header = FileHeader::new("test");
    header.set_optional(SORTED, sorted);
    let sink = Sink::create_pbf(OutputOptions::new(path), &header).unwrap();
    let parts: Vec<&[Item]> = items.chunks(per_blob).collect();
    let tags = |on: &bool| {
        on.then_some(Tag {
            key: b"k",
            value: b"v",
        })
    };
    job(1, 1, Path::new("."))
        .tasks(
            "write",
            parts.len() as u64,
            &sink,
            osmill_pbf::BlockBuilder::default,
            |builder, task, out| {
                for item in parts[task as usize] {
                    match item {
                        Item::Node(id, at, tagged) => {
                            builder.add_node(*id, *at, tags(tagged), &Metadata::default())
                        }
                        Item::Way(id, refs, located) => {
                            let old: Vec<_> = (0..refs.len()).map(old_location).collect();
                            builder.add_way(
                                *id,
                                refs,
                                located.then_some(&old[..]),
                                tags(&true),
                                &Metadata::default(),
                            );
                        }
                        Item::Relation(id, members) => {
                            let members: Vec<Member<'_>> = members
                                .iter()
                                .map(|id| Member {
                                    element: ElementId::new(Kind::Node, *id),
                                    role: b"",
                                })
                                .collect();
                            builder.add_relation(*id, &members, None, &Metadata::default());
                        }
                    }
                }
                let mut raw = Vec::new();
                let index = builder.finish(&mut raw);
                // Every other blob goes without an index record.
                if task % 2 == 0 {
                    out.block(&raw, &index)
                        .map_err(|e| Error::Failed(format!("{e:?}")))
                } else {
                    let mut compressor = osmill_pbf::Compressor::new(Default::default());
                    let kind = osmill_pbf::BlobType::Data;
                    osmill_pbf::write_frame(out.bytes(), kind, None, &raw, &mut compressor)
                        .map(drop)
                        .map_err(|e| Error::Failed(e.to_string()))
                }
            },
        )
        .unwrap();
    sink.finish().unwrap();
}

type Line = (ElementId, Vec<(i64, Option<Location>)>);

fn read(path: &Path) -> Vec<Line> {
    let mut lines = Vec::new();
    for data in blocks(path).1 {
        for element in Block::parse(data).unwrap().elements() {
            let element = element.unwrap();
            let refs = match &element {
                Element::Node(node) => vec![(0, node.location().unwrap())],
                Element::Way(way) => way
                    .refs()
                    .map(Result::unwrap)
                    .zip(way.locations().map(Result::unwrap))
                    .collect(),
                Element::Relation(relation) => relation
                    .members()
                    .map(|m| (m.unwrap().element.id, None))
                    .collect(),
            };
            lines.push((element.element_id(), refs));
        }
    }
    lines
}

fn model(items: &[Item], options: &Options) -> Vec<Line> {
    let mut locations = BTreeMap::new();
    let mut members = HashSet::new();
    for item in items {
        match item {
            Item::Node(id, Some(at), _) => {
                locations.insert(*id, *at);
            }
            Item::Relation(_, ids) => members.extend(ids.iter().copied()),
            _ => {}
        }
    }
    items
        .iter()
        .filter_map(|item| {
            Some(match item {
                Item::Node(id, at, tagged) => {
                    let keep =
                        *tagged || options.keep_untagged || options.keep_members && members.contains(id);
                    keep.then(|| (ElementId::new(Kind::Node, *id), vec![(0, *at)]))?
                }
                Item::Way(id, refs, located) => {
                    let at = |(i, id): (usize, &i64)| {
                        let old = if *located { old_location(i) } else { None };
                        (*id, locations.get(id).copied().or(old))
                    };
                    (
                        ElementId::new(Kind::Way, *id),
                        refs.iter().enumerate().map(at).collect(),
                    )
                }
                Item::Relation(id, ids) => (
                    ElementId::new(Kind::Relation, *id),
                    ids.iter().map(|id| (*id, None)).collect(),
                ),
            })
        })
        .collect()
}

fn id() -> impl Strategy<Value = i64> {
    prop_oneof![8 => 1i64..300, 1 => -20i64..=0, 1 => any::<i64>()]
}

fn item() -> impl Strategy<Value = Item> {
    let at = prop_oneof![
        9 => (any::<i8>(), any::<i8>()).prop_map(|(x, y)| Some(Location::new(x.into(), y.into()))),
        1 => Just(None),
    ];
    prop_oneof![
        6 => (id(), at, any::<bool>()).prop_map(|(id, at, tagged)| Item::Node(id, at, tagged)),
        2 => (id(), proptest::collection::vec(id(), 0..9), any::<bool>())
            .prop_map(|(id, refs, located)| Item::Way(id, refs, located)),
        1 => (id(), proptest::collection::vec(id(), 0..4)).prop_map(|(id, ids)| Item::Relation(id, ids)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    /// Missing and repeated nodes, any ids, sorted or not, honest about it or not, any memory and threads.
    #[test]
    fn ways_get_what_the_nodes_say(
        mut items in proptest::collection::vec(item(), 0..300),
        sorted in any::<bool>(),
        claimed in any::<bool>(),
        per_blob in 1usize..60,
        (keep_untagged, keep_members) in any::<(bool, bool)>(),
        memory in 10_000u64..200_000,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in.osm.pbf");
        if sorted {
            items.sort_by_key(Item::key);
        }
        write(&path, &items, claimed, per_blob);
        let options = Options { keep_untagged, keep_members, ignore_missing: true, ..Options::default() };
        let expected = model(&items, &options);
        let mut first = None;
        for (threads, memory) in [(1, 1 << 30), (1, memory), (3, memory), (2, 1 << 30)] {
            let out = folder.path().join("out.osm.pbf");
            let output = OutputOptions { overwrite: true, ..OutputOptions::new(&out) };
            let report = add_locations(&job(threads, memory, folder.path()), &path, &options, output).unwrap();
            prop_assert_eq!(read(&out), expected.clone());
            prop_assert_eq!(report.written.total(), expected.len() as u64);
            prop_assert!(blocks(&out).0.has_optional(LOCATIONS_ON_WAYS));
            let bytes = std::fs::read(&out).unwrap();
            prop_assert!(first.get_or_insert_with(|| bytes.clone()) == &bytes, "{threads} threads, {memory} bytes");
        }
    }
}

#[test]
fn missing_nodes_are_counted_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let (path, out) = (
        folder.path().join("in.osm.pbf"),
        folder.path().join("out.osm.pbf"),
    );
    let mut items = vec![Item::Node(1, Some(Location::new(0, 0)), false)];
    items.extend((1..20).map(|id| Item::Way(id, vec![1, id + 1, -7], false)));
    write(&path, &items, true, 5);
    for memory in [3000, 1 << 30] {
        let job = job(2, memory, folder.path());
        let error = add_locations(&job, &path, &Options::default(), OutputOptions::new(&out)).unwrap_err();
        assert_eq!(error.exit_code(), 1);
        let message = error.to_string();
        assert!(
            message.contains("20 nodes") && message.contains("-7, 2, 3, 4, 5, ..."),
            "{message}"
        );
        assert!(!out.exists());
    }
}

#[test]
fn scratch_that_the_disk_cannot_hold_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (path, out) = (
        folder.path().join("in.osm.pbf"),
        folder.path().join("out.osm.pbf"),
    );
    // Records that tell of more references than any disk could note.
    let mut header = FileHeader::new("test");
    header.set_optional(SORTED, true);
    let sink = Sink::create_pbf(OutputOptions::new(&path), &header).unwrap();
    let make = osmill_pbf::BlockBuilder::default;
    job(1, 1, folder.path())
        .tasks("write", 6, &sink, make, |builder, task, out| {
            let first = 1 + 1000 * task as i64;
            if task < 5 {
                for id in first..first + 1000 {
                    let at = Location::new(id as i32 * 7919, id as i32 * 104_729);
                    builder.add_node(id, Some(at), [], &Metadata::default());
                }
            } else {
                builder.add_way(1, &[1, 4000], None, [], &Metadata::default());
            }
            let mut raw = Vec::new();
            let mut record = builder.finish(&mut raw);
            record.refs *= 1 << 60;
            out.block(&raw, &record)
                .map_err(|e| Error::Failed(format!("{e:?}")))
        })
        .unwrap();
    sink.finish().unwrap();
    let with = |memory| {
        let job = job(2, memory, folder.path());
        add_locations(&job, &path, &Options::default(), OutputOptions::new(&out))
    };
    let error = with(1000).unwrap_err();
    assert_eq!(error.exit_code(), 1);
    let message = error.to_string();
    assert!(
        message.contains("scratch") && message.contains("are free"),
        "{message}"
    );
    assert!(!out.exists());
    // In one range nothing is noted.
    assert_eq!(with(1 << 30).unwrap().ranges, 1);
}

/// Nodes in one file and ways in another, in any order of the two, are as good as one file.
#[test]
fn several_inputs_are_taken_as_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let nodes: Vec<Item> = (1..200)
        .map(|id| Item::Node(id, Some(Location::new(id as i32, 5)), false))
        .collect();
    let ways: Vec<Item> = (1..50)
        .map(|id| Item::Way(id, vec![id, 199 - id], false))
        .collect();
    write(&path("nodes"), &nodes, true, 30);
    write(&path("ways"), &ways, true, 7);
    let options = Options::default();
    for names in [["nodes", "ways"], ["ways", "nodes"]] {
        let out = OutputOptions {
            overwrite: true,
            ..OutputOptions::new(path("out"))
        };
        let job = job(2, 1 << 30, folder.path());
        let report = add_locations::add_locations(&job, &names.map(path), &options, out).unwrap();
        assert_eq!((report.written.total(), report.references), (49, 98));
        assert_eq!(
            read(&path("out")),
            model(&[nodes.clone(), ways.clone()].concat(), &options)
        );
        assert_eq!(blocks(&path("out")).0.claims_sorted(), names[0] == "nodes");
    }
}

/// What is written does not depend on the memory, be it so little that there are hundreds of ranges.
#[test]
fn any_memory_gives_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let mut items: Vec<Item> = (1..30_000)
        .map(|i| {
            Item::Node(
                i * 37,
                Some(Location::new((i * i % 99_991) as i32, -(i as i32))),
                i % 50 == 0,
            )
        })
        .collect();
    let refs = |i: i64| {
        (0..9)
            .map(|j| ((i * 7907 + j * j * 12_347) % 29_999 + 1) * 37)
            .collect()
    };
    items.extend((1..6000).map(|i| Item::Way(i, refs(i), false)));
    for sorted in [true, false] {
        if !sorted {
            items.reverse();
        }
        let path = folder.path().join(format!("{sorted}.osm.pbf"));
        write(&path, &items, sorted, 700);
        let mut outputs = HashSet::new();
        let mut ranges = HashSet::new();
        for (threads, memory) in [(2, 1 << 30), (1, 150_000), (3, 40_000), (2, 10_000), (1, 1000)] {
            let out = folder.path().join("out.osm.pbf");
            let output = OutputOptions {
                overwrite: true,
                ..OutputOptions::new(&out)
            };
            let options = Options {
                ignore_missing: true,
                ..Options::default()
            };
            let report =
                add_locations(&job(threads, memory, folder.path()), &path, &options, output).unwrap();
            ranges.insert(report.ranges);
            outputs.insert(std::fs::read(&out).unwrap());
        }
        assert_eq!((outputs.len(), ranges.len()), (1, 5), "{ranges:?}");
    }
}

#[test]
fn history_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (path, out) = (
        folder.path().join("in.osm.pbf"),
        folder.path().join("out.osm.pbf"),
    );
    let mut header = FileHeader::new("test");
    header.set_history(true);
    Sink::create_pbf(OutputOptions::new(&path), &header)
        .unwrap()
        .finish()
        .unwrap();
    let job = job(1, 1 << 30, folder.path());
    let error = add_locations(&job, &path, &Options::default(), OutputOptions::new(&out)).unwrap_err();
    assert!(error.to_string().contains("history"), "{error}");
}

fn osmium(arguments: &[&str], files: &[&Path]) -> Option<Vec<u8>> {
    let output = Command::new("osmium").args(arguments).args(files).output().ok()?;
    output.status.success().then_some(output.stdout)
}

const OPL: &str = "opl,locations_on_ways=true";

/// Compares with osmium, which needs sorted input, and gives what was done.
fn compare(path: &Path, folder: &Path, options: &Options, flag: Option<&str>) -> Option<Report> {
    let sorted = folder.join("sorted.osm.pbf");
    osmium(&["sort", "-O", "-o"], &[&sorted, path])?;
    let mut arguments = vec!["add-locations-to-ways", "--ignore-missing-nodes", "-f", OPL];
    arguments.extend(flag);
    let theirs = osmium(&arguments, &[&sorted])?;
    let mut first = None;
    let mut report = None;
    for (threads, memory) in [(2, 1 << 30), (1, 300_000), (3, 1_000_000)] {
        let out = folder.join("out.osm.pbf");
        let output = OutputOptions {
            overwrite: true,
            ..OutputOptions::new(&out)
        };
        report = Some(add_locations(&job(threads, memory, folder), path, options, output).unwrap());
        let bytes = std::fs::read(&out).unwrap();
        if first.as_ref() == Some(&bytes) {
            continue;
        }
        assert!(
            first.is_none(),
            "{}: {threads} threads, {memory} bytes of memory",
            path.display()
        );
        first = Some(bytes);
        let back = folder.join("back.osm.pbf");
        osmium(
            &["sort", "-O", "-f", "pbf,locations_on_ways=true", "-o"],
            &[&back, &out],
        )
        .unwrap();
        let ours = osmium(&["cat", "-f", OPL], &[&back]).unwrap();
        if ours != theirs {
            let (ours, theirs) = (String::from_utf8_lossy(&ours), String::from_utf8_lossy(&theirs));
            let other = ours.lines().zip(theirs.lines()).find(|(a, b)| a != b);
            panic!(
                "{}: {other:?}, {} and {} lines",
                path.display(),
                ours.lines().count(),
                theirs.lines().count()
            );
        }
    }
    report
}

#[test]
fn andorra_as_osmium_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/andorra.osm.pbf"));
    let options = Options {
        keep_members: true,
        ignore_missing: true,
        ..Options::default()
    };
    if osmium(&["--version"], &[]).is_none() {
        eprintln!("osmium is not installed: nothing is compared");
        return;
    }
    assert!(compare(path, folder.path(), &options, Some("--keep-member-nodes")).is_some());
}

#[test]
#[ignore = "takes minutes; needs osmium and ../shared/data"]
fn real_files_as_osmium_has_them() {
    let data = osmill_testkit::fixtures::shared_data().unwrap();
    osmium(&["--version"], &[]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut files: Vec<PathBuf> = std::fs::read_dir(data.join("extracts"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let mut compared = 0;
    for path in files
        .iter()
        .filter(|path| path.to_string_lossy().ends_with(".osm.pbf"))
    {
        let all = Options {
            keep_untagged: true,
            ignore_missing: true,
            ..Options::default()
        };
        let Some(report) = compare(path, folder.path(), &all, Some("-n")) else {
            eprintln!("{}: osmium cannot read this", path.display());
            continue;
        };
        eprintln!("{}: {report:?}", path.display());
        compared += 1;
        let members = Options {
            keep_members: true,
            ignore_missing: true,
            ..Options::default()
        };
        // osmium cannot keep members with negative ids, and says so.
        compare(path, folder.path(), &members, Some("--keep-member-nodes"));
        let few = Options {
            ignore_missing: true,
            ..Options::default()
        };
        compare(path, folder.path(), &few, None);
    }
    assert!(compared > 0);
}
