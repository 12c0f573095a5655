//! What a point-in-region test costs.
//!
//! A border of 100,000 corners is asked about a million locations, in turns with the test of a bounding box
//! and with the method of osmium-tool (bands of latitude, all edges of a band looked at for each location), in
//! one process; all answers have to agree. `OSMILL_REGIONS=index.geojson.gz` adds a set of regions read from a
//! file, against the regions one by one.

use std::hint::black_box;
use std::time::Instant;

use osmill_geometry::{Coverage, MultiPolygon, Region, RegionSet, parse_features};
use osmill_model::{BoundingBox, Location};

const CORNERS: usize = 100_000;
const LOCATIONS: usize = 1_000_000;
const ROUNDS: usize = 7;

struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A border around 10/50 with a radius of about three degrees, as rugged at every scale.
fn border(random: &mut Random) -> Vec<Location> {
    let mut radius = vec![0.0f64; CORNERS.next_power_of_two()];
    let count = radius.len();
    let (mut step, mut size) = (count / 4, 0.5);
    while step > 0 {
        for i in (0..count).step_by(step * 2) {
            let middle = (radius[i] + radius[(i + step * 2) % count]) / 2.0;
            radius[(i + step) % count] = middle + (random.unit() - 0.5) * size;
        }
        step /= 2;
        size *= 0.62;
    }
    (0..CORNERS)
        .map(|i| {
            let r = 2.0 * radius[i * count / CORNERS].exp();
            let angle = i as f64 / CORNERS as f64 * std::f64::consts::TAU;
            let (lon, lat) = (10.0 + 1.5 * r * angle.cos(), 50.0 + r * angle.sin());
            Location::new((lon * 1e7) as i32, (lat * 1e7) as i32)
        })
        .collect()
}

/// Walks of a few hundred steps of about 20 metres, as towns and roads are, begun anywhere around the box.
fn clustered(random: &mut Random, bbox: BoundingBox) -> Vec<Location> {
    let mut locations = Vec::with_capacity(LOCATIONS);
    while locations.len() < LOCATIONS {
        let mut at = anywhere(random, bbox);
        for _ in 0..500 {
            at.lon += ((random.unit() - 0.5) * 4000.0) as i32;
            at.lat += ((random.unit() - 0.5) * 4000.0) as i32;
            locations.push(at);
        }
    }
    locations.truncate(LOCATIONS);
    locations
}

fn anywhere(random: &mut Random, bbox: BoundingBox) -> Location {
    let between = |unit: f64, from: i32, to: i32| {
        let (from, to) = (f64::from(from), f64::from(to));
        (from + (unit * 1.2 - 0.1) * (to - from)) as i32
    };
    Location::new(
        between(random.unit(), bbox.min.lon, bbox.max.lon),
        between(random.unit(), bbox.min.lat, bbox.max.lat),
    )
}

/// osmium-tool's method, in our words.
struct Bands {
    bbox: BoundingBox,
    height: i32,
    bands: Vec<Vec<(Location, Location)>>,
}

impl Bands {
    fn new(ring: &[Location], bbox: BoundingBox) -> Bands {
        let count = (ring.len() / 10).clamp(1, 10_000) as i32;
        let height = (bbox.max.lat - bbox.min.lat) / count;
        let mut bands = vec![Vec::new(); count as usize];
        for (i, &a) in ring.iter().enumerate() {
            let b = ring[(i + 1) % ring.len()];
            let band = |lat: i32| (((lat - bbox.min.lat) / height) as usize).min(count as usize - 1);
            for edges in &mut bands[band(a.lat.min(b.lat))..=band(a.lat.max(b.lat))] {
                edges.push((a, b));
            }
        }
        Bands { bbox, height, bands }
    }

    fn contains(&self, p: Location) -> bool {
        if !self.bbox.contains(p) {
            return false;
        }
        let band = (((p.lat - self.bbox.min.lat) / self.height) as usize).min(self.bands.len() - 1);
        let mut inside = false;
        for &(a, b) in &self.bands[band] {
            if a == p || b == p {
                return true;
            }
            if (a.lat > p.lat) != (b.lat > p.lat) {
                let rise = i64::from(a.lat) - i64::from(b.lat);
                let along = (i64::from(p.lon) - i64::from(b.lon)) * rise;
                let across = (i64::from(a.lon) - i64::from(b.lon)) * (i64::from(p.lat) - i64::from(b.lat));
                inside ^= (rise > 0) == (along < across);
            }
        }
        inside
    }
}

/// A named way to count the locations inside.
type Counter<'a> = (&'a str, Box<dyn Fn(&[Location]) -> usize + 'a>);

/// Runs all counters in turns, and prints the fastest and the median round of each. Answers of those that say
/// so have to agree.
fn race(title: &str, locations: &[Location], counters: &[Counter<'_>], agreeing: usize) {
    let mut times = vec![Vec::new(); counters.len()];
    let mut answers = vec![0; counters.len()];
    for _ in 0..ROUNDS {
        for (i, (_, count)) in counters.iter().enumerate() {
            let start = Instant::now();
            answers[i] = black_box(count(black_box(locations)));
            times[i].push(start.elapsed().as_secs_f64() * 1e9 / locations.len() as f64);
        }
    }
    assert!(
        answers[..agreeing].iter().all(|&answer| answer == answers[0]),
        "{title}: answers differ: {answers:?}"
    );
    println!("{title}");
    for ((name, _), (times, answer)) in counters.iter().zip(times.iter_mut().zip(&answers)) {
        times.sort_by(f64::total_cmp);
        println!(
            "  {name:<28} {:>8.2} ns/location, median {:>8.2}   ({answer} inside)",
            times[0],
            times[ROUNDS / 2]
        );
    }
}

fn counter<'a>(name: &'a str, contains: impl Fn(Location) -> bool + 'a) -> Counter<'a> {
    (
        name,
        Box::new(move |locations| locations.iter().filter(|&&p| contains(p)).count()),
    )
}

fn main() {
    let mut random = Random(1);
    let ring = border(&mut random);
    let mut area = MultiPolygon::new();
    area.add_polygon(&ring, &[]);
    let start = Instant::now();
    let region = Region::new(area);
    println!(
        "index of {CORNERS} corners: {:.1} ms, {:.1} bytes a corner",
        start.elapsed().as_secs_f64() * 1e3,
        region.index_size() as f64 / CORNERS as f64
    );
    let Some(bbox) = region.bbox() else { return };
    let box_region = Region::new(MultiPolygon::from_bbox(bbox));
    let bands = Bands::new(&ring, bbox);

    let uniform: Vec<Location> = (0..LOCATIONS).map(|_| anywhere(&mut random, bbox)).collect();
    let walks = clustered(&mut random, bbox);
    let near: Vec<Location> = (0..LOCATIONS)
        .map(|_| {
            let corner = ring[(random.unit() * CORNERS as f64) as usize];
            let mut shift = || ((random.unit() - 0.5) * 20_000.0) as i32;
            Location::new(corner.lon + shift(), corner.lat + shift())
        })
        .collect();
    for (title, locations) in [
        ("clustered locations", &walks),
        ("uniform locations", &uniform),
        ("locations within 100 m of the border's corners", &near),
    ] {
        let counters = [
            counter("region", |p| region.contains(p)),
            counter("bands of latitude", |p| bands.contains(p)),
            counter("region of the box", |p| box_region.contains(p)),
            counter("box alone", |p| bbox.contains(p)),
        ];
        race(title, locations, &counters, 2);
    }

    let Some(path) = std::env::var_os("OSMILL_REGIONS") else {
        return;
    };
    set_of_regions(&mut random, path.as_ref());
}

fn set_of_regions(random: &mut Random, path: &std::path::Path) {
    let features = match osmill_geometry::read_features(path, "{id}") {
        Ok(features) => features,
        Err(error) => return eprintln!("{error}"),
    };
    let areas: Vec<&MultiPolygon> = features.iter().map(|feature| &feature.area).collect();
    let corners: usize = areas.iter().map(|area| area.vertex_count()).sum();
    let start = Instant::now();
    let set = RegionSet::new(areas.iter().copied());
    println!(
        "index of {} regions, {corners} corners: {:.1} ms, {:.1} MB",
        set.len(),
        start.elapsed().as_secs_f64() * 1e3,
        set.index_size() as f64 / 1e6
    );
    let start = Instant::now();
    let regions: Vec<Region> = areas.iter().map(|&area| Region::new(area.clone())).collect();
    println!("one index each: {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    let earth = BoundingBox::new(-1_500_000_000, -450_000_000, 1_500_000_000, 600_000_000);
    let walks = clustered(random, earth);
    let all: Counter<'_> = (
        "set of regions",
        Box::new(|locations| {
            let mut count = 0;
            locations
                .iter()
                .for_each(|&p| set.for_each_containing(p, |_| count += 1));
            count
        }),
    );
    let each: Counter<'_> = (
        "each region by itself",
        Box::new(|locations| {
            locations
                .iter()
                .map(|&p| regions.iter().filter(|region| region.contains(p)).count())
                .sum()
        }),
    );
    race(
        "clustered locations on land and sea",
        &walks[..100_000],
        &[all, each],
        2,
    );

    let boxes: Vec<BoundingBox> = walks
        .chunks(500)
        .map(|walk| {
            let mut bbox = BoundingBox::of(walk[0]);
            walk.iter().for_each(|&p| bbox.extend(p));
            bbox
        })
        .collect();
    let start = Instant::now();
    let mixed: usize = boxes
        .iter()
        .map(|&bbox| {
            set.classify(bbox)
                .iter()
                .filter(|&&coverage| coverage == Coverage::Mixed)
                .count()
        })
        .sum();
    println!(
        "boxes of 500 locations: {:.0} ns each to tell all regions apart, {:.3} of them mixed",
        start.elapsed().as_secs_f64() * 1e9 / boxes.len() as f64,
        mixed as f64 / boxes.len() as f64
    );
    // Reading is part of what a command waits for.
    if let Ok(bytes) = unzipped(path) {
        let start = Instant::now();
        let count = parse_features(&bytes, "{id}").map_or(0, |features| features.len());
        println!(
            "reading {count} features of {:.1} MB: {:.1} ms",
            bytes.len() as f64 / 1e6,
            start.elapsed().as_secs_f64() * 1e3
        );
    }
}

fn unzipped(path: &std::path::Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    flate2::read::MultiGzDecoder::new(std::fs::File::open(path)?).read_to_end(&mut bytes)?;
    Ok(bytes)
}
