//! Real data in real regions, against `osmium extract`.
//!
//! Runs where `osmium` is installed and `../shared/data`, with `extracts/*.osm.pbf` and `regions/*.poly`, stands
//! beside the workspace; says so and passes elsewhere. Both have to choose the same nodes, but for
//! nodes exactly on an edge: all of these are ours, and some of them osmium's. Collections of regions in
//! `regions/*.geojson.gz`, features with an `id`, are compared with their own areas, corner by corner.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use osmill_geometry::{MultiPolygon, Region, RegionSet, read_features, read_region};
use osmill_model::Location;

fn osmium(arguments: &[&str]) -> Option<Vec<u8>> {
    let output = Command::new("osmium").args(arguments).output().ok()?;
    output.status.success().then_some(output.stdout)
}

fn files(directory: &Path, suffix: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(directory)
        .map(|entries| {
            entries
                .filter_map(|entry| entry.ok().map(|entry| entry.path()))
                .collect()
        })
        .unwrap_or_default();
    files.retain(|path| path.to_str().is_some_and(|name| name.ends_with(suffix)));
    files.sort();
    files
}

fn nodes(opl: &[u8]) -> Vec<(i64, Location)> {
    String::from_utf8_lossy(opl)
        .lines()
        .filter_map(|line| {
            let field = |letter| line.split(' ').find_map(|word| word.strip_prefix(letter));
            let degrees = |letter| field(letter)?.parse::<f64>().ok();
            let id = field('n')?.parse().ok()?;
            Some((id, Location::from_degrees(degrees('x')?, degrees('y')?)?))
        })
        .collect()
}

fn text_of(ring: &[Location]) -> String {
    ring.iter()
        .map(|l| format!(" {:.7} {:.7}\n", l.lon_degrees(), l.lat_degrees()))
        .collect()
}

/// A ring through nodes around the middle of all, in order, so that it does not cross itself, and the same ring
/// at two fifths of the size; `None` if the middle is not inside.
fn star(nodes: &[(i64, Location)], corners: usize) -> Option<(Vec<Location>, Vec<Location>)> {
    let mean = |of: fn(&Location) -> i32| {
        nodes.iter().map(|(_, l)| i64::from(of(l))).sum::<i64>() / nodes.len() as i64
    };
    let (x, y) = (mean(|l| l.lon), mean(|l| l.lat));
    let angle = |l: &Location| ((i64::from(l.lat) - y) as f64).atan2((i64::from(l.lon) - x) as f64);
    let mut ring: Vec<Location> = (0..corners).map(|i| nodes[i * nodes.len() / corners].1).collect();
    ring.sort_by(|a, b| angle(a).total_cmp(&angle(b)));
    // Corners in the same direction, or nearly, could make the two rings touch.
    ring.dedup_by(|a, b| angle(a) - angle(b) < 1e-4);
    let next = ring.iter().skip(1).chain(ring.first());
    let around = ring
        .iter()
        .zip(next)
        .all(|(a, b)| (angle(b) - angle(a)).rem_euclid(std::f64::consts::TAU) < std::f64::consts::PI);
    let towards = |v: i32, middle: i64| (middle + (i64::from(v) - middle) * 2 / 5) as i32;
    let hole = ring
        .iter()
        .map(|l| Location::new(towards(l.lon, x), towards(l.lat, y)))
        .collect();
    around.then_some((ring, hole))
}

/// The real files, if they are there.
fn shared_data() -> Option<PathBuf> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    data.canonicalize().ok()
}

#[test]
fn the_same_nodes_as_osmium() {
    let (Some(data), Some(_)) = (shared_data(), osmium(&["--version"])) else {
        eprintln!("skipped: ../shared/data or osmium is not there");
        return;
    };
    let regions = files(&data.join("regions"), ".poly");
    let scratch = tempfile::tempdir().unwrap();
    let (mut compared, mut on_edges) = (0, 0);
    for input in files(&data.join("extracts"), ".osm.pbf") {
        let small = input.metadata().is_ok_and(|metadata| metadata.len() < 2_000_000);
        let Some(opl) = small
            .then(|| osmium(&["cat", "-t", "node", "-f", "opl", input.to_str().unwrap()]))
            .flatten()
        else {
            continue;
        };
        let nodes = nodes(&opl);
        if nodes.len() < 1000 {
            continue;
        }
        let Some((outer, hole)) = star(&nodes, 300) else {
            continue;
        };
        let drawn = scratch.path().join("drawn.poly");
        std::fs::write(
            &drawn,
            format!(
                "drawn\n1\n{}END\n!hole\n{}END\nEND\n",
                text_of(&outer),
                text_of(&hole)
            ),
        )
        .unwrap();
        for path in std::iter::once(&drawn).chain(&regions) {
            let area = read_region(path, None).unwrap();
            let bbox = area.bbox().unwrap();
            if !nodes.iter().any(|(_, location)| bbox.contains(*location)) {
                continue;
            }
            let (input, path) = (input.to_str().unwrap(), path.to_str().unwrap());
            let Some(chosen) = osmium(&["extract", "-s", "simple", "-f", "opl", "-p", path, input]) else {
                continue;
            };
            let theirs: HashSet<i64> = self::nodes(&chosen).into_iter().map(|(id, _)| id).collect();
            let region = Region::new(area.clone());
            let set = RegionSet::new([&MultiPolygon::new(), &area]);
            for &(id, location) in &nodes {
                let ours = region.contains(location);
                let mut in_set = false;
                set.for_each_containing(location, |region| in_set |= region == 1);
                assert_eq!(ours, in_set, "{path} {input} n{id}");
                if ours != theirs.contains(&id) {
                    assert!(
                        ours && on_edge(&outer, &hole, location),
                        "{path} {input} n{id} at {location}: {ours}"
                    );
                    on_edges += 1;
                }
                compared += 1;
            }
        }
    }
    eprintln!("{compared} nodes compared, {on_edges} of them on edges where osmium leaves them out");
    assert!(compared > 0, "no data in {}", data.display());
}

fn on_edge(outer: &[Location], hole: &[Location], p: Location) -> bool {
    [outer, hole].into_iter().any(|ring| {
        ring.iter()
            .zip(ring.iter().skip(1).chain(ring.first()))
            .any(|(a, b)| {
                let wide = |l: &Location| (i128::from(l.lon), i128::from(l.lat));
                let ((ax, ay), (bx, by), (px, py)) = (wide(a), wide(b), wide(&p));
                (bx - ax) * (py - ay) == (by - ay) * (px - ax)
                    && ax.min(bx) <= px
                    && px <= ax.max(bx)
                    && ay.min(by) <= py
                    && py <= ay.max(by)
            })
    })
}

#[test]
fn a_set_of_real_regions_is_its_regions() {
    let Some(data) = shared_data() else {
        eprintln!("skipped: ../shared/data is not there");
        return;
    };
    for path in files(&data.join("regions"), ".geojson.gz") {
        let features = read_features(&path, "{id}").unwrap();
        let set = RegionSet::new(features.iter().map(|feature| &feature.area));
        let boxes: Vec<_> = features
            .iter()
            .map(|feature| feature.area.bbox().unwrap())
            .collect();
        for (number, feature) in features.iter().enumerate() {
            let region = Region::new(feature.area.clone());
            let bbox = boxes[number];
            // A lattice over the box: what is inside of one region is mostly inside of others as well.
            let width = (i64::from(bbox.max.lon) - i64::from(bbox.min.lon)).rem_euclid(3_600_000_000);
            let height = i64::from(bbox.max.lat) - i64::from(bbox.min.lat);
            for i in 0..36 {
                let lon = i64::from(bbox.min.lon) + width * (i % 6) / 5;
                let lon = if lon > 1_800_000_000 {
                    lon - 3_600_000_000
                } else {
                    lon
                };
                let p = Location::new(
                    lon as i32,
                    (i64::from(bbox.min.lat) + height * (i / 6) / 5) as i32,
                );
                let mut found = Vec::new();
                set.for_each_containing(p, |region| found.push(region as usize));
                found.sort_unstable();
                let expected: Vec<usize> = (0..features.len())
                    .filter(|&other| boxes[other].contains(p) && features[other].area.contains(p))
                    .collect();
                assert_eq!(found, expected, "{} {p}", feature.name);
                assert_eq!(
                    region.contains(p),
                    expected.contains(&number),
                    "{} {p}",
                    feature.name
                );
            }
        }
    }
}
