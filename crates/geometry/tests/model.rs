//! Regions and sets of them against a slow and obvious model.
//!
//! The model shares no line with the crate: it shoots its ray upwards instead of to the left, and decides by
//! `i128` fractions.

use osmill_geometry::{Coverage, MultiPolygon, Region, RegionSet, parse_bbox};
use osmill_model::{BoundingBox, Location};
use proptest::prelude::*;

type Ring = Vec<Location>;
type Polygon = (Ring, Vec<Ring>);

fn on_segment(a: Location, b: Location, p: Location) -> bool {
    let wide = |l: Location| (i128::from(l.lon), i128::from(l.lat));
    let ((ax, ay), (bx, by), (px, py)) = (wide(a), wide(b), wide(p));
    (bx - ax) * (py - ay) == (by - ay) * (px - ax)
        && ax.min(bx) <= px
        && px <= ax.max(bx)
        && ay.min(by) <= py
        && py <= ay.max(by)
}

/// -1 outside, 0 on an edge, 1 inside.
fn place(ring: &[Location], p: Location) -> i32 {
    let mut around = 0;
    for i in 0..ring.len() {
        let (a, b) = (ring[i], ring[(i + 1) % ring.len()]);
        if on_segment(a, b, p) {
            return 0;
        }
        if (a.lon < p.lon) != (b.lon < p.lon) {
            // The latitude of the crossing less that of p, times the run.
            let run = i128::from(b.lon) - i128::from(a.lon);
            let above = (i128::from(a.lat) - i128::from(p.lat)) * run
                + (i128::from(b.lat) - i128::from(a.lat)) * (i128::from(p.lon) - i128::from(a.lon));
            if above.signum() * run.signum() > 0 {
                around += run.signum();
            }
        }
    }
    if around == 0 { -1 } else { 1 }
}

fn model(polygons: &[Polygon], p: Location) -> bool {
    polygons
        .iter()
        .any(|(outer, holes)| place(outer, p) >= 0 && holes.iter().all(|hole| place(hole, p) <= 0))
}

fn area(polygons: &[Polygon]) -> MultiPolygon {
    let mut area = MultiPolygon::new();
    for (outer, holes) in polygons {
        area.add_polygon(outer, holes);
    }
    area
}

/// Coordinates of a few sizes, so that both coincidences and wide spaces occur.
fn location(range: i32) -> impl Strategy<Value = Location> {
    (-range..=range, -range / 2..=range / 2).prop_map(|(lon, lat)| Location::new(lon, lat))
}

fn ring(range: i32, corners: std::ops::Range<usize>) -> impl Strategy<Value = Ring> {
    prop::collection::vec(location(range), corners)
}

/// A ring around a centre, star-shaped, with many short edges: what real borders look like.
fn border(range: i32) -> impl Strategy<Value = Ring> {
    (location(range / 2), 3usize..200, any::<u64>(), 1..range / 2 + 2).prop_map(
        |(centre, corners, seed, radius)| {
            let mut state = seed | 1;
            (0..corners)
                .map(|i| {
                    state = state
                        .wrapping_mul(6364136223846793005)
                        .wrapping_add(1442695040888963407);
                    let r = f64::from(radius) * (0.3 + 0.7 * (state >> 40) as f64 / (1u64 << 24) as f64);
                    let angle = i as f64 / corners as f64 * std::f64::consts::TAU;
                    Location::new(
                        centre.lon + (r * angle.cos()) as i32,
                        centre.lat + (r * angle.sin() / 2.0) as i32,
                    )
                })
                .collect()
        },
    )
}

fn any_ring(range: i32) -> impl Strategy<Value = Ring> {
    prop_oneof![ring(range, 1..12), border(range), ring(range, 30..60)]
}

fn polygons(range: i32) -> impl Strategy<Value = Vec<Polygon>> {
    prop::collection::vec(
        (any_ring(range), prop::collection::vec(any_ring(range), 0..3)),
        1..4,
    )
}

fn ranges() -> impl Strategy<Value = i32> {
    prop::sample::select(vec![3, 10, 100, 3000, 1_000_000, 1_799_999_999])
}

/// Locations that are likely to be on edges, corners and borders of cells, and some that are not.
fn probes(polygons: &[Polygon], range: i32, seeds: &[(u32, u32, i8, i8)]) -> Vec<Location> {
    let corners: Vec<Location> = polygons
        .iter()
        .flat_map(|(outer, holes)| outer.iter().chain(holes.iter().flatten()).copied())
        .collect();
    seeds
        .iter()
        .enumerate()
        .map(|(i, &(a, b, dx, dy))| {
            let (p, q) = (
                corners[a as usize % corners.len()],
                corners[b as usize % corners.len()],
            );
            let near = |v: i64, d: i8, limit: i64| (v + i64::from(d % 2)).clamp(-limit, limit) as i32;
            let middle = |u: i32, v: i32| (i64::from(u) + i64::from(v)) / 2;
            let (x, y) = match i % 4 {
                0 => (i64::from(p.lon), i64::from(q.lat)),
                1 => (i64::from(p.lon), i64::from(p.lat)),
                2 => (middle(p.lon, q.lon), middle(p.lat, q.lat)),
                _ => (
                    i64::from(a as i32) % (i64::from(range) + 1),
                    i64::from(b as i32) % (i64::from(range) / 2 + 1),
                ),
            };
            Location::new(near(x, dx, 1_799_999_999), near(y, dy, 900_000_000))
        })
        .collect()
}

fn seeds(count: usize) -> impl Strategy<Value = Vec<(u32, u32, i8, i8)>> {
    prop::collection::vec(any::<(u32, u32, i8, i8)>(), count)
}

fn case() -> impl Strategy<Value = (i32, Vec<Polygon>)> {
    ranges().prop_flat_map(|range| (Just(range), polygons(range)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn locations((range, polygons) in case(), seeds in seeds(60)) {
        let area = area(&polygons);
        let region = Region::new(area.clone());
        for p in probes(&polygons, range, &seeds) {
            let expected = model(&polygons, p);
            prop_assert_eq!(region.contains(p), expected, "{} region", p);
            prop_assert_eq!(area.contains(p), expected, "{} area", p);
        }
    }

    #[test]
    fn sets(
        (range, regions) in ranges().prop_flat_map(|range| (Just(range), prop::collection::vec(polygons(range), 1..6))),
        seeds in seeds(30),
    ) {
        let areas: Vec<_> = regions.iter().map(|polygons| area(polygons)).collect();
        let set = RegionSet::new(&areas);
        for polygons in &regions {
            for p in probes(polygons, range, &seeds) {
                let mut found = Vec::new();
                set.for_each_containing(p, |region| found.push(region));
                found.sort_unstable();
                let expected: Vec<u32> =
                    (0..regions.len()).filter(|&i| model(&regions[i], p)).map(|i| i as u32).collect();
                prop_assert_eq!(&found, &expected, "{}", p);
                prop_assert_eq!(set.any_contains(p), !expected.is_empty());
                let mut near = vec![7];
                set.find_near(&[None, Some(p), None], &mut near);
                prop_assert!(near == [7, 1] || near == [7] && expected.is_empty(), "{} is near: {:?}", p, near);
            }
        }
    }

    /// `Inside` and `Outside` are true of every location of the box, for sets as for single regions.
    #[test]
    fn boxes((range, polygons) in case(), corners in seeds(24)) {
        let area = area(&polygons);
        let region = Region::new(area.clone());
        let other = MultiPolygon::from_bbox(BoundingBox::new(-range, -range / 2, 0, 0));
        let set = RegionSet::new([&area, &other]);
        let probes = probes(&polygons, range, &corners);
        for pair in probes.windows(2) {
            let (a, b) = (pair[0], pair[1]);
            let mut bbox = BoundingBox::of(a);
            bbox.extend(b);
            let coverage = region.classify(bbox);
            let of_set = set.classify(bbox);
            let union = set.classify_union(bbox);
            let inner = |i: u32| {
                let part = |from: i32, to: i32, k: u32| (i64::from(from) + (i64::from(to) - i64::from(from)) * i64::from(k) / 5) as i32;
                Location::new(part(bbox.min.lon, bbox.max.lon, i % 6), part(bbox.min.lat, bbox.max.lat, i / 6))
            };
            for p in (0..36).map(inner) {
                let expected = model(&polygons, p);
                let fits = |coverage: Coverage, expected: bool| match coverage {
                    Coverage::Inside => expected,
                    Coverage::Outside => !expected,
                    Coverage::Mixed => true,
                };
                prop_assert!(fits(coverage, expected), "{} {} {:?}", bbox, p, coverage);
                prop_assert!(fits(of_set[0], expected), "{} {} {:?}", bbox, p, of_set);
                prop_assert!(fits(of_set[1], other.contains(p)), "{} {} {:?}", bbox, p, of_set);
                prop_assert!(fits(union, expected || other.contains(p)), "{} {} {:?}", bbox, p, union);
            }
        }
        // A box of one location is never mixed unless an edge goes through it.
        for p in probes {
            if region.classify(BoundingBox::of(p)) == Coverage::Mixed {
                let touched = polygons.iter().any(|(outer, holes)| {
                    std::iter::once(outer).chain(holes).any(|ring| place(ring, p) == 0)
                });
                prop_assert!(touched, "{}", p);
            }
        }
    }

    /// Segments against an area without holes, where a segment is in it if an end is or it touches an edge.
    #[test]
    fn segments(
        (range, rings) in ranges().prop_flat_map(|range| (Just(range), prop::collection::vec(any_ring(range), 1..4))),
        ends in seeds(24),
    ) {
        let polygons: Vec<Polygon> = rings.into_iter().map(|ring| (ring, Vec::new())).collect();
        let area = area(&polygons);
        let region = Region::new(area.clone());
        let set = RegionSet::new([&area]);
        for pair in probes(&polygons, range, &ends).windows(2) {
            let (a, b) = (pair[0], pair[1]);
            if (i64::from(a.lon) - i64::from(b.lon)).abs() > 1_800_000_000 {
                continue;
            }
            let side = |u: Location, v: Location, p: Location| {
                ((i128::from(v.lon) - i128::from(u.lon)) * (i128::from(p.lat) - i128::from(u.lat))
                    - (i128::from(v.lat) - i128::from(u.lat)) * (i128::from(p.lon) - i128::from(u.lon)))
                .signum()
            };
            let touch = |u: Location, v: Location| {
                on_segment(u, v, a) || on_segment(u, v, b) || on_segment(a, b, u) || on_segment(a, b, v)
                    || (side(u, v, a) * side(u, v, b) < 0 && side(a, b, u) * side(a, b, v) < 0)
            };
            let expected = model(&polygons, a) || model(&polygons, b)
                || polygons.iter().any(|(ring, _)| {
                    (0..ring.len()).any(|i| touch(ring[i], ring[(i + 1) % ring.len()]))
                });
            prop_assert_eq!(region.intersects_segment(a, b), expected, "{} {}", a, b);
            prop_assert_eq!(region.intersects_line(&[a, b]), expected);
            let mut found = 0;
            set.for_each_intersecting(a, b, |_| found += 1);
            prop_assert_eq!(found, usize::from(expected));
        }
    }
}

fn degrees(lon: f64, lat: f64) -> Location {
    Location::from_degrees(lon, lat).unwrap()
}

/// Every location of a small world, so that no corner of a cell is left out.
#[test]
fn exhaustively_on_a_small_lattice() {
    let mut state = 1u64;
    let mut next = |n: u64| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) % n
    };
    for _ in 0..60 {
        let mut ring = |corners: u64| -> Ring {
            (0..corners)
                .map(|_| Location::new(next(70) as i32 - 5, next(70) as i32 - 5))
                .collect()
        };
        let polygons = vec![(ring(40), vec![ring(5)]), (ring(7), vec![])];
        let region = Region::new(area(&polygons));
        for lon in -7..68 {
            for lat in -7..68 {
                let p = Location::new(lon, lat);
                assert_eq!(region.contains(p), model(&polygons, p), "{p}");
            }
        }
    }
}

#[test]
fn all_edges_of_a_diamond_are_inside() {
    let diamond = osmill_geometry::parse_poly(b"t\n1\n 1 3\n 3 5\n 5 3\n 3 1\n 1 3\nEND\nEND\n").unwrap();
    let region = Region::new(diamond);
    for (lon, lat) in [(3, 1), (4, 2), (5, 3), (4, 4), (3, 5), (2, 4), (1, 3), (2, 2)] {
        assert!(region.contains(degrees(lon.into(), lat.into())), "{lon} {lat}");
    }
    assert!(!region.contains(Location::new(19_999_999, 20_000_000)));
}

#[test]
fn across_the_antimeridian() {
    let region = Region::new(parse_bbox("170,60,-170,70").unwrap());
    for lon in [175.0, 180.0, -180.0, -175.0] {
        assert!(region.contains(degrees(lon, 65.0)), "{lon}");
    }
    assert!(!region.contains(degrees(0.0, 65.0)));
    let across = BoundingBox::new(1_750_000_000, 610_000_000, -1_750_000_000, 690_000_000);
    assert_eq!(region.classify(across), Coverage::Inside);
    assert_eq!(
        region.classify(BoundingBox::new(-1_000_000_000, 0, 1_000_000_000, 690_000_000)),
        Coverage::Outside
    );
    assert_eq!(
        region.classify(BoundingBox::new(
            1_600_000_000,
            610_000_000,
            1_750_000_000,
            690_000_000
        )),
        Coverage::Mixed
    );
    // A way that passes the region, from one side of the antimeridian to the other.
    assert!(region.intersects_segment(degrees(169.0, 65.0), degrees(-169.0, 65.0)));
    assert!(!region.intersects_segment(degrees(169.0, 71.0), degrees(-169.0, 71.0)));
    assert!(!region.intersects_segment(degrees(-169.0, 65.0), degrees(0.0, 65.0)));
}

#[test]
fn a_region_that_touches_the_antimeridian_is_seen_from_the_other_side() {
    let east = parse_bbox("170,60,180,70").unwrap();
    let region = Region::new(east.clone());
    assert!(region.contains(degrees(-180.0, 65.0)));
    assert_eq!(
        region.classify(BoundingBox::new(
            -1_800_000_000,
            610_000_000,
            -1_700_000_000,
            690_000_000
        )),
        Coverage::Mixed
    );
    assert_eq!(
        region.classify(BoundingBox::new(
            -1_799_999_999,
            610_000_000,
            -1_700_000_000,
            690_000_000
        )),
        Coverage::Outside
    );
    assert!(region.intersects_segment(degrees(-180.0, 59.0), degrees(-180.0, 71.0)));
    let set = RegionSet::new([&parse_bbox("-180,60,-170,70").unwrap(), &east]);
    let mut found = Vec::new();
    set.for_each_containing(degrees(180.0, 65.0), |region| found.push(region));
    assert_eq!(found, [0, 1]);
}

#[test]
fn the_poles_and_the_whole_earth() {
    let world = Region::new(parse_bbox("-180,-90,180,90").unwrap());
    for (lon, lat) in [(0.0, 90.0), (180.0, -90.0), (-180.0, 90.0), (12.3, 45.6)] {
        assert!(world.contains(degrees(lon, lat)));
    }
    assert!(!world.contains(Location::new(1_800_000_001, 0)));
    assert!(!world.contains(Location::new(0, 900_000_001)));
    assert!(!world.contains(Location::new(i32::MIN, i32::MIN)));
    assert_eq!(
        world.classify(BoundingBox::new(
            -1_799_999_999,
            -899_999_999,
            1_799_999_999,
            899_999_999
        )),
        Coverage::Inside
    );
    assert_eq!(
        world.classify(BoundingBox::new(i32::MIN, i32::MIN, i32::MAX, i32::MAX)),
        Coverage::Mixed
    );
    assert!(!world.intersects_segment(
        Location::new(i32::MIN, i32::MIN),
        Location::new(i32::MAX, i32::MAX)
    ));
}

#[test]
fn nothing_is_in_no_region() {
    let region = Region::new(MultiPolygon::new());
    assert!(!region.contains(Location::default()));
    assert_eq!(
        region.classify(BoundingBox::of(Location::default())),
        Coverage::Outside
    );
    assert_eq!((region.bbox(), region.envelope()), (None, None));
    let set = RegionSet::new([]);
    assert!(set.is_empty() && !set.any_contains(Location::default()));
    assert!(set.classify(BoundingBox::of(Location::default())).is_empty());
    let set = RegionSet::new([&MultiPolygon::new(), &parse_bbox("0,0,1,1").unwrap()]);
    assert_eq!(
        set.classify(BoundingBox::new(1, 1, 2, 2)),
        [Coverage::Outside, Coverage::Inside]
    );
}

#[test]
fn surrounding_areas_are_found() {
    let region = Region::new(parse_bbox("-1,-1,1,1").unwrap());
    let around: Ring = vec![
        degrees(-5.0, -5.0),
        degrees(5.0, -5.0),
        degrees(5.0, 5.0),
        degrees(-5.0, 5.0),
    ];
    let beside: Ring = around
        .iter()
        .map(|l| Location::new(l.lon + 200_000_000, l.lat))
        .collect();
    assert!(!region.intersects_line(&around) && region.is_enclosed_by_ring(&around));
    assert!(!region.is_enclosed_by_ring(&beside));
    let mut area = MultiPolygon::new();
    let hole: Ring = around
        .iter()
        .map(|l| Location::new(l.lon / 2, l.lat / 2))
        .collect();
    area.add_polygon(&around, &[]);
    assert!(region.is_enclosed_by(&area));
    let mut area = MultiPolygon::new();
    area.add_polygon(&around, &[hole]);
    assert!(!region.is_enclosed_by(&area));
    // A way straight through, without a node inside.
    assert!(region.intersects_line(&[degrees(-5.0, 0.0), degrees(5.0, 0.0)]));
    assert!(region.intersects_line(&[degrees(-5.0, 1.0), degrees(5.0, 1.0)]));
    assert!(!region.intersects_line(&[degrees(-5.0, 1.0000001), degrees(5.0, 1.0000001)]));
    let mut found = Vec::new();
    let mut enclosing = MultiPolygon::new();
    enclosing.add_polygon(&around, &[]);
    RegionSet::new([&parse_bbox("9,9,10,10").unwrap(), region.area()])
        .for_each_enclosed_by(&enclosing, |region| found.push(region));
    assert_eq!(found, [1]);
}

/// Input made to touch as many cells as possible does not blow the index up.
#[test]
fn hostile_shapes_stay_linear() {
    let mut comb = Vec::new();
    for i in 0..20_000 {
        let lon = -1_700_000_000 + i * 100_000;
        comb.push(Location::new(
            lon,
            if i % 2 == 0 { -800_000_000 } else { 800_000_000 },
        ));
    }
    let mut star = Vec::new();
    for i in 0..20_000 {
        star.push(Location::new(0, 0));
        star.push(Location::new(1_700_000_000, -800_000_000 + i * 80_000));
    }
    for ring in [comb, star] {
        let polygons = vec![(ring, Vec::new())];
        let region = Region::new(area(&polygons));
        let corners = region.area().vertex_count();
        assert!(
            region.index_size() < corners * 700 + (1 << 20),
            "{}",
            region.index_size()
        );
        for i in 0..200 {
            let p = Location::new(i * 8_000_001, i * 3_999_999 - 400_000_000);
            assert_eq!(region.contains(p), model(&polygons, p), "{p}");
        }
    }
    // Every cell in a thousand regions: lists grow as well.
    let boxes: Vec<MultiPolygon> = (0..4000)
        .map(|i| {
            MultiPolygon::from_bbox(BoundingBox::new(
                -1_700_000_000 + i * 300_000,
                -800_000_000 + (i * 7919 % 4000) * 150_000,
                1_700_000_000 - (i * 104_729 % 4000) * 300_000,
                800_000_000 - (i * 611 % 4000) * 150_000,
            ))
        })
        .collect();
    let set = RegionSet::new(&boxes);
    assert!(set.index_size() < 40 << 20, "{}", set.index_size());
    for i in 0..20 {
        let p = Location::new(i * 80_000_001 - 800_000_000, i * 39_999_999 - 400_000_000);
        let mut count = 0;
        set.for_each_containing(p, |_| count += 1);
        assert_eq!(count, boxes.iter().filter(|b| b.contains(p)).count());
    }
    let triangles: Vec<MultiPolygon> = (0..3000)
        .map(|i| {
            let ring = vec![
                Location::new(-1_700_000_000, -800_000_000 + i),
                Location::new(1_700_000_000, -i),
                Location::new(i * 1000, 800_000_000),
            ];
            area(&[(ring, Vec::new())])
        })
        .collect();
    let set = RegionSet::new(&triangles);
    assert!(set.index_size() < 20 << 20, "{}", set.index_size());
    let mut count = 0;
    set.for_each_containing(Location::new(5000, 1000), |_| count += 1);
    assert_eq!(
        count,
        triangles
            .iter()
            .filter(|t| t.contains(Location::new(5000, 1000)))
            .count()
    );
}
