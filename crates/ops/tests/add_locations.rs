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
use osmill_ops::add_locations::{Options, Report, add_locations};
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
                    osmill_pbf::write_frame(out.bytes(), kind, None, &raw, &mut compressor, &mut Vec::new())
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
