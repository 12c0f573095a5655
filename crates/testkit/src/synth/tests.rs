use super::*;
use crate::model::Data;
use crate::osmium;

fn synthetic(nodes: u64, seed: u64, threads: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let write = WriteOptions {
        threads,
        ..WriteOptions::default()
    };
    let size = Synth { nodes, seed, write }.run(&mut out).unwrap();
    assert_eq!(size, out.len() as u64);
    out
}

#[test]
fn bytes_depend_on_seed_and_size_alone() {
    assert!(synthetic(30_000, 1, 1) == synthetic(30_000, 1, 3));
    assert!(synthetic(30_000, 1, 1) != synthetic(30_000, 2, 1));
}

#[test]
fn any_size_is_sorted_and_complete() {
    for nodes in [0, 1, 256, 257, 5_000, 60_000] {
        let data = Data::from_pbf(&synthetic(nodes, 7, 2)).unwrap();
        let count = data.elements.iter().filter(|e| e.kind() == Kind::Node).count() as u64;
        assert_eq!(count, nodes.div_ceil(256) * 256);
        assert_eq!(data.order_faults(false), []);
        assert_eq!(data.missing_references(true), []);
        assert!(
            data.elements
                .iter()
                .all(|e| e.location.is_none_or(Location::is_valid))
        );
    }
}

/// Share of the elements of a kind.
fn share(data: &Data, kind: Kind, holds: impl Fn(&crate::model::Element) -> bool) -> f64 {
    let all: Vec<_> = data.elements.iter().filter(|e| e.kind() == kind).collect();
    all.iter().filter(|e| holds(e)).count() as f64 / all.len() as f64
}

#[test]
fn shapes_are_those_of_real_data() {
    let data = Data::from_pbf(&synthetic(150_000, 3, 2)).unwrap();
    let count = |kind| data.elements.iter().filter(|e| e.kind() == kind).count() as f64;
    let used: std::collections::BTreeSet<i64> = data
        .elements
        .iter()
        .flat_map(|e| e.refs.iter().copied())
        .collect();
    let refs: Vec<usize> = data
        .elements
        .iter()
        .filter(|e| e.kind() == Kind::Way)
        .map(|e| e.refs.len())
        .collect();
    let members = || data.elements.iter().flat_map(|e| &e.members);
    let last = |kind| {
        data.elements
            .iter()
            .filter(|e| e.kind() == kind)
            .map(|e| e.id.id)
            .max()
            .unwrap() as f64
    };
    let closed = |e: &crate::model::Element| e.refs.first() == e.refs.last();
    for (what, value, low, high) in [
        (
            "tagged nodes",
            share(&data, Kind::Node, |e| !e.tags.is_empty()),
            0.045,
            0.065,
        ),
        ("used nodes", used.len() as f64 / count(Kind::Node), 0.955, 0.98),
        ("nodes a way", count(Kind::Node) / count(Kind::Way), 7.5, 9.5),
        ("closed ways", share(&data, Kind::Way, closed), 0.40, 0.47),
        (
            "long ways",
            refs.iter().filter(|n| **n >= 20).count() as f64 / refs.len() as f64,
            0.06,
            0.12,
        ),
        (
            "highways",
            share(&data, Kind::Way, |e| e.tag("highway").is_some()),
            0.47,
            0.55,
        ),
        (
            "buildings",
            share(&data, Kind::Way, |e| e.tag("building").is_some()),
            0.25,
            0.31,
        ),
        (
            "named ways",
            share(&data, Kind::Way, |e| e.tag("name").is_some()),
            0.16,
            0.23,
        ),
        (
            "first versions",
            share(&data, Kind::Way, |e| e.version() == 1),
            0.77,
            0.83,
        ),
        (
            "relations a way",
            count(Kind::Relation) / count(Kind::Way),
            0.018,
            0.027,
        ),
        (
            "way members",
            members().filter(|m| m.element.kind == Kind::Way).count() as f64 / members().count() as f64,
            0.86,
            0.92,
        ),
        ("node ids", last(Kind::Node) / count(Kind::Node), 1.25, 1.35),
        ("way ids", last(Kind::Way) / count(Kind::Way), 1.1, 1.4),
    ] {
        assert!((low..high).contains(&value), "{what}: {value}");
    }
}

#[test]
fn the_tool_finds_nothing_wrong() {
    if !osmium::available() {
        return;
    }
    let file = tempfile::Builder::new().suffix(".osm.pbf").tempfile().unwrap();
    std::fs::write(file.path(), synthetic(100_000, 5, 2)).unwrap();
    let path = file.path().to_str().unwrap();
    osmium::stdout(["check-refs", "-r", path], b"").unwrap();
    let ordered = osmium::stdout(["fileinfo", "-e", "-g", "data.objects_ordered", path], b"").unwrap();
    assert_eq!(ordered, b"yes\n");
}
