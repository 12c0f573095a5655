//! The node store against `osmium` on real data, and its copies.
//!
//! What needs real data runs where `osmium` is installed and `../shared/data` stands beside the workspace; it
//! says so and passes elsewhere.

use std::path::{Path, PathBuf};
use std::process::Command;

use osmill_engine::{Error, Job, JobOptions, OutputOptions, Sink};
use osmill_model::{Location, Metadata};
use osmill_nodes::NodeStore;
use osmill_ops::add_locations::{self, add_locations};
use osmill_ops::nodes;
use osmill_pbf::FileHeader;

const MEMORY: u64 = 16 << 20;

fn job() -> Job {
    Job::new(JobOptions {
        threads: 2,
        memory: MEMORY,
        ..JobOptions::default()
    })
}

fn osmium(arguments: &[&str], files: &[&Path]) -> Option<Vec<u8>> {
    let output = Command::new("osmium").args(arguments).args(files).output().ok()?;
    output.status.success().then_some(output.stdout)
}

fn all(store: &Path) -> Vec<(i64, Location)> {
    let store = NodeStore::open(store, MEMORY, true).unwrap();
    assert!(store.check().unwrap().is_sound());
    store.iter().map(Result::unwrap).collect()
}

fn write(path: &Path, nodes: &[(i64, Location)], sorted: bool) {
    let mut header = FileHeader::new("test");
    header.set_optional(osmill_pbf::SORTED, sorted);
    header.replication_sequence = Some(7);
    let sink = Sink::create_pbf(OutputOptions::new(path), &header).unwrap();
    let parts: Vec<_> = nodes.chunks(100).collect();
    job()
        .tasks(
            "write",
            parts.len() as u64,
            &sink,
            osmill_pbf::BlockBuilder::default,
            |builder, task, out| {
                for (id, at) in parts[task as usize] {
                    builder.add_node(*id, Some(*at), None, &Metadata::default());
                }
                let mut raw = Vec::new();
                let index = builder.finish(&mut raw);
                out.block(&raw, &index)
                    .map_err(|e| Error::Failed(format!("{e:?}")))
            },
        )
        .unwrap();
    sink.finish().unwrap();
}

#[test]
fn stores_are_built_and_copied() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut nodes: Vec<(i64, Location)> = (0..2500)
        .map(|i| (3 * i + i % 3, Location::new(i as i32 * 1000, -(i as i32))))
        .collect();
    nodes.push((100_000, Location::new(0, 0)));
    write(&at("sorted.osm.pbf"), &nodes, true);
    let report = nodes::build(&job(), &at("sorted.osm.pbf"), &at("a"), false).unwrap();
    assert_eq!(report.nodes, nodes.len() as u64);
    assert!(all(&at("a")) == nodes);
    assert_eq!(
        NodeStore::open(&at("a"), MEMORY, true).unwrap().state().sequence,
        Some(7)
    );
    let again = nodes::build(&job(), &at("sorted.osm.pbf"), &at("a"), false);
    assert!(matches!(again, Err(Error::Exists(_))));

    // In any order, the last one of a node counts.
    let mut mixed = nodes.clone();
    mixed.reverse();
    mixed.insert(0, (4, Location::new(1, 1)));
    write(&at("mixed.osm.pbf"), &mixed, false);
    nodes::build(&job(), &at("mixed.osm.pbf"), &at("a"), true).unwrap();
    assert!(all(&at("a")) == nodes);

    // There and back by the flat file.
    let report = nodes::export(&job(), &at("a"), &at("flat"), false).unwrap();
    assert_eq!(report.bytes, 8 * 100_001);
    assert_eq!(std::fs::metadata(at("flat")).unwrap().len(), report.bytes);
    nodes::import(&job(), &at("flat"), &at("b"), false).unwrap();
    assert!(all(&at("b")) == nodes);

    std::fs::write(at("flat"), b"abc").unwrap();
    let error = nodes::import(&job(), &at("flat"), &at("c"), false).unwrap_err();
    assert!(
        error.exit_code() == 2 && error.to_string().contains("3 bytes"),
        "{error}"
    );
    assert!(!at("c").exists());
}

#[test]
fn changes_come_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    write(
        &at("in.osm.pbf"),
        &[(1, Location::new(1, 1)), (2, Location::new(2, 2))],
        true,
    );
    nodes::build(&job(), &at("in.osm.pbf"), &at("store"), false).unwrap();
    let change = |name: &str, text: &str| {
        std::fs::write(at(name), format!("<osmChange version=\"0.6\">{text}</osmChange>")).unwrap();
        at(name)
    };
    let eight = change(
        "8.osc",
        "<modify><node id=\"1\" version=\"3\" lat=\"5\" lon=\"6\"/></modify>\
         <create><node id=\"1\" version=\"2\" lat=\"9\" lon=\"9\"/><node id=\"-4\" lat=\"0\" lon=\"0\"/></create>\
         <delete><node id=\"2\" version=\"2\" lat=\"7\" lon=\"7\"/></delete>",
    );
    let apply = |sequence| nodes::apply(&job(), &at("store"), std::slice::from_ref(&eight), sequence);
    let before = all(&at("store"));
    for (sequence, why) in [(None, "not known"), (Some(7), "already"), (Some(9), "between")] {
        let error = apply(sequence).unwrap_err();
        assert!(
            error.exit_code() == 1 && error.to_string().contains(why),
            "{error}"
        );
        assert_eq!(all(&at("store")), before);
    }
    std::fs::write(
        at("8.state.txt"),
        "#Mon\nsequenceNumber=8\ntimestamp=2021-08-02T20\\:21\\:57Z\n",
    )
    .unwrap();
    let report = &apply(None).unwrap()[0];
    assert_eq!((report.inserted, report.replaced, report.removed), (1, 1, 1));
    assert_eq!(
        all(&at("store")),
        [
            (-4, Location::new(0, 0)),
            (1, Location::new(60_000_000, 50_000_000))
        ]
    );
    let store = NodeStore::open(&at("store"), MEMORY, true).unwrap();
    assert_eq!(store.state().sequence, Some(8));
    assert_eq!(
        store.state().timestamp.unwrap().to_string(),
        "2021-08-02T20:21:57Z"
    );
    drop(store);
    let error = nodes::apply(&job(), &at("store"), &[at("in.osm.pbf")], Some(9)).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    change("bad.osc", "<modify><node id=\"1\" lat=\"5");
    let error = nodes::apply(&job(), &at("store"), &[at("bad.osc")], Some(9)).unwrap_err();
    assert!(error.to_string().contains("line 1"), "{error}");
}

fn diffs(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_string_lossy().ends_with(".osc.gz") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Daily changes one by one give what the final data gives, and ways get the same locations from either.
#[test]
fn daily_changes_equal_a_rebuild() {
    let (Some(data), Some(_)) = (
        osmill_testkit::fixtures::shared_data(),
        osmium(&["--version"], &[]),
    ) else {
        eprintln!("skipped: ../shared/data or osmium is not there");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let cases = [
        ("monaco-daily", "monaco-210801-incubator-baremaps.osm.pbf", 3047),
        (
            "liechtenstein-daily",
            "liechtenstein-incubator-baremaps-13eeed.osm.pbf",
            2434,
        ),
    ];
    for (name, base, first) in cases {
        let base = data.join("extracts").join(base);
        let diffs = diffs(&data.join("changes").join(name));
        assert!(!diffs.is_empty(), "{name}");
        let (store, rebuilt, last) = (at("store"), at("rebuilt"), at("last.osm.pbf"));
        nodes::build(&job(), &base, &store, true).unwrap();
        for (sequence, diff) in (first + 1..).zip(&diffs) {
            nodes::apply(&job(), &store, std::slice::from_ref(diff), Some(sequence)).unwrap();
        }
        let mut files: Vec<&Path> = vec![&last, &base];
        files.extend(diffs.iter().map(PathBuf::as_path));
        osmium(&["apply-changes", "-O", "-o"], &files).unwrap();
        nodes::build(&job(), &last, &rebuilt, true).unwrap();
        assert!(all(&store) == all(&rebuilt), "{name}");

        let mut bytes = Vec::new();
        for store in [None, Some(store)] {
            let out = at("out.osm.pbf");
            let output = OutputOptions {
                overwrite: true,
                ..OutputOptions::new(&out)
            };
            let options = add_locations::Options {
                ignore_missing: true,
                store,
                ..Default::default()
            };
            add_locations(&job(), std::slice::from_ref(&last), &options, output).unwrap();
            bytes.push(std::fs::read(&out).unwrap());
        }
        assert!(bytes[0] == bytes[1], "{name}");
    }
}
