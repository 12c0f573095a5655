//! A planet-shaped file from nothing but a seed and a size.
//!
//! # How it is made
//!
//! The file is a row of *units* of 256 nodes each, and everything about a unit is drawn from a generator that
//! is seeded with its number: its ways, which of its nodes they use, tags, times. So any thread can make any
//! unit at any time, nodes, ways and relations are written in three walks over the units without remembering
//! anything, and size is limited by the disk alone. The bytes depend on seed and number of nodes alone.
//!
//! Units belong to *places*, forty to a place, and the units of a place lie far apart in the id space, as edits
//! of one town are spread over the years: a reference that leaves its unit leads to another unit of the place,
//! to older or newer ids. Places lie in clusters, clusters in a dozen regions of unequal weight.
//!
//! # The numbers
//!
//! Taken from seven real extracts of Europe and Asia (2.2 million nodes, 269,000 ways, 6,000 relations):
//!
//! | what | there | here |
//! | --- | --- | --- |
//! | nodes with tags | 5.5 % | 5.5 % |
//! | nodes used by ways | 96.8 % | 96 to 97 % |
//! | nodes for each way | 8.2 | 9.1 |
//! | ways that are closed | 43.5 % | 43.5 % |
//! | references of a closed way: 5, 6 to 9, 10 to 19, 20 to 99, more | 44, 26, 18, 10, 0.9 % | drawn so |
//! | references of an open way: 2, 3, 4, 5 to 9, 10 to 19, 20 to 99, more | 26, 15, 11, 27, 13.5, 7, 0.6 % | drawn so |
//! | steps from reference to reference: to the next id, to the one before, other steps of up to 1,000 ids | 25, 10, 42 % | 25, 10, 58 % |
//! | steps far away (2²⁶ ids or more there, to another unit here) | 17 % | 7 % |
//! | ways with `highway`, `building`, `name` | 50, 28, 20 % | 50, 28, 20 % |
//! | relations for each way | 2.2 % | 2.2 % |
//! | members: node, way, relation | 9, 89.5, 1.5 % | 9, 89.5, 1.5 % |
//! | members of a relation: 2, 3, 4 to 9, 10 to 99, more | 29, 27, 15, 18, 9 % | drawn so, at most 400 |
//! | versions 1, 2, 3, 4, 5, more | 80, 12.5, 4, 1.4, 0.7, 1.4 % | drawn so |
//!
//! From the planet: 1.3 ids for each node that exists, 1.2 for each way, 1.4 for each relation. (Within an
//! extract gaps are far larger, since it misses the rest of the world.)

mod tags;

use std::io::Write;

use osmill_model::{ElementId, Kind, Location, Member, Metadata, Timestamp};
use osmill_pbf::{FileHeader, HeaderBox, SORTED};

use crate::amplify::user_name;
use crate::file::{FrameBuilder, WriteError, WriteOptions, write_blocks};
use crate::random::{Random, mix};

/// Nodes in a unit.
const NODES: u64 = 256;
/// Ids that a unit's nodes are spread over: 1.3 for each.
const NODE_IDS: u64 = 333;
/// Ways of a unit at most, and the ids they are spread over.
const MOST_WAYS: usize = 38;
const WAY_IDS: i64 = 38;
/// Units in a place.
const UNITS_PER_PLACE: u64 = 40;

/// What to make.
#[derive(Debug, Clone)]
pub struct Synth {
    /// How many nodes; rounded up to a multiple of 256.
    pub nodes: u64,
    /// Seed of everything.
    pub seed: u64,
    /// How the file is written.
    pub write: WriteOptions,
}

impl Default for Synth {
    fn default() -> Self {
        Synth {
            nodes: 1_000_000,
            seed: 1,
            write: WriteOptions::default(),
        }
    }
}

/// A way of a unit, before it has ids and tags.
struct Way {
    /// Unit and number in the unit of each node.
    refs: Vec<(u64, u8)>,
    closed: bool,
}

/// What a unit holds.
struct Unit {
    ways: Vec<Way>,
    locations: Vec<Location>,
}

/// Draws from weights that add up to anything.
fn weighted<T: Copy>(random: &mut Random, choices: &[(u32, T)]) -> T {
    let total: u32 = choices.iter().map(|(weight, _)| weight).sum();
    let mut draw = random.below(total.into()) as u32;
    for (weight, choice) in choices {
        match draw.checked_sub(*weight) {
            Some(rest) => draw = rest,
            None => return *choice,
        }
    }
    choices[choices.len() - 1].1
}

/// References of a closed way, from and to, by weight.
const CLOSED: &[(u32, (u64, u64))] = &[
    (440, (5, 5)),
    (262, (6, 9)),
    (184, (10, 19)),
    (53, (20, 29)),
    (51, (30, 99)),
    (9, (100, 240)),
];
/// The same of an open way.
const OPEN: &[(u32, (u64, u64))] = &[
    (256, (2, 2)),
    (154, (3, 3)),
    (112, (4, 4)),
    (266, (5, 9)),
    (135, (10, 19)),
    (37, (20, 29)),
    (34, (30, 99)),
    (6, (100, 240)),
];
/// Members of a relation.
const MEMBERS: &[(u32, (u64, u64))] = &[
    (20, (1, 1)),
    (291, (2, 2)),
    (267, (3, 3)),
    (150, (4, 9)),
    (180, (10, 99)),
    (92, (100, 400)),
];
const VERSIONS: &[(u32, (u64, u64))] = &[
    (800, (1, 1)),
    (125, (2, 2)),
    (40, (3, 3)),
    (14, (4, 4)),
    (7, (5, 5)),
    (14, (6, 30)),
];

fn within(random: &mut Random, choices: &[(u32, (u64, u64))]) -> u64 {
    let (low, high) = weighted(random, choices);
    low + random.below(high - low + 1)
}

/// New numbers for the nodes of a unit: some stretches go up, some go down, some have no order, as editors and
/// uploads leave them.
fn renumbered(random: &mut Random) -> [u8; NODES as usize] {
    let mut numbers: [u8; NODES as usize] = std::array::from_fn(|i| i as u8);
    let mut rest = &mut numbers[..];
    while !rest.is_empty() {
        let length = (4 + random.below(100) as usize).min(rest.len());
        let (stretch, after) = std::mem::take(&mut rest).split_at_mut(length);
        match random.below(100) {
            0..33 => {}
            33..46 => stretch.reverse(),
            _ => random.shuffle(stretch),
        }
        rest = after;
    }
    numbers
}

/// Weights, and longitude, latitude and extent in degrees of the regions in which places lie.
const REGIONS: &[(u32, (i32, i32, i32))] = &[
    (30, (10, 50, 12)),
    (12, (25, 52, 12)),
    (14, (-85, 38, 14)),
    (6, (-115, 40, 9)),
    (5, (-55, -15, 14)),
    (8, (105, 30, 12)),
    (8, (138, 36, 4)),
    (7, (78, 22, 9)),
    (5, (110, -3, 12)),
    (4, (25, 0, 18)),
    (3, (145, -33, 8)),
    (2, (60, 57, 14)),
];

impl Synth {
    fn units(&self) -> u64 {
        self.nodes.div_ceil(NODES)
    }

    fn places(&self) -> u64 {
        self.units().div_ceil(UNITS_PER_PLACE).max(1)
    }

    fn random(&self, unit: u64, purpose: u64) -> Random {
        Random::new(self.seed ^ mix(purpose), unit)
    }

    /// Another unit of the same place, before or after.
    fn neighbour(&self, unit: u64, random: &mut Random) -> u64 {
        let place = unit % self.places();
        let in_place = (self.units() - place).div_ceil(self.places());
        place + random.below(in_place) * self.places()
    }

    /// Ids of a unit's nodes: runs of neighbours, with gaps where nodes were deleted.
    fn node_ids(&self, unit: u64) -> [i64; NODES as usize] {
        let mut random = self.random(unit, 1);
        let mut spare = NODE_IDS - NODES;
        let mut next = (unit * NODE_IDS) as i64;
        std::array::from_fn(|_| {
            next += 1;
            if spare > 0 && random.chance(0.14) {
                let gap = (1 + random.below(4)).min(spare);
                spare -= gap;
                next += gap as i64;
            }
            next
        })
    }

    fn way_id(&self, unit: u64, way: usize, ways: usize) -> i64 {
        unit as i64 * WAY_IDS + way as i64 * WAY_IDS / ways.max(1) as i64 + 1
    }

    fn has_relation(&self, unit: u64) -> bool {
        self.random(unit, 2).chance(0.7)
    }

    /// Where a place lies.
    fn centre(&self, place: u64) -> (f64, f64, f64) {
        let mut random = self.random(place, 3);
        let (lon, lat, extent) = weighted(&mut random, REGIONS);
        // Places crowd around a few dozen centres of a region.
        let cluster = random.below(24).min(random.below(24));
        let mut around = self.random(cluster ^ (lon as u64) << 8, 4);
        let extent = f64::from(extent) * 1e7;
        let size = random.unit();
        let near = extent * 0.1 * size * size;
        (
            f64::from(lon) * 1e7 + (around.unit() - 0.5) * extent + (random.unit() - 0.5) * near,
            f64::from(lat) * 1e7 + (around.unit() - 0.5) * extent * 0.8 + (random.unit() - 0.5) * near,
            20_000.0 + 400_000.0 * random.unit() * random.unit(),
        )
    }

    fn unit(&self, unit: u64) -> Unit {
        let mut random = self.random(unit, 5);
        let (lon, lat, radius) = self.centre(unit % self.places());
        let mut locations: Vec<Location> = Vec::with_capacity(NODES as usize);
        let mut ways = Vec::new();
        let corner = |random: &mut Random| {
            let distance = radius * random.unit().sqrt();
            let angle = random.unit() * std::f64::consts::TAU;
            (lon + distance * angle.cos(), lat + distance * angle.sin())
        };
        let put =
            |(x, y): (f64, f64)| Location::new(x.clamp(-1.8e9, 1.8e9) as i32, y.clamp(-9e8, 9e8) as i32);
        // A few nodes belong to no way.
        let loose = 4 + random.below(9) as usize;
        while locations.len() < NODES as usize - loose && ways.len() < MOST_WAYS {
            let room = NODES as usize - loose - locations.len();
            let closed = random.chance(0.435);
            let wanted = within(&mut random, if closed { CLOSED } else { OPEN }) as usize;
            let own = if closed { wanted - 1 } else { wanted };
            let mut refs = Vec::with_capacity(wanted);
            let mut at = corner(&mut random);
            let mut heading = random.unit() * std::f64::consts::TAU;
            for i in 0..own.min(room.max(if closed { 3 } else { 2 })) {
                // Open ways begin, end and cross at nodes of others.
                let junction = !closed && (i == 0 || i + 1 == own || i % 5 == 4) && !locations.is_empty();
                if junction && random.chance(0.5) {
                    let here = random.chance(0.45);
                    let other = if here {
                        unit
                    } else {
                        self.neighbour(unit, &mut random)
                    };
                    let limit = if other == unit {
                        locations.len() as u64
                    } else {
                        NODES
                    };
                    let node = random.below(limit) as u8;
                    if !refs.contains(&(other, node)) {
                        refs.push((other, node));
                    }
                    continue;
                }
                if locations.len() == NODES as usize {
                    break;
                }
                refs.push((unit, locations.len() as u8));
                locations.push(put(at));
                let step = if closed { 1200.0 } else { 3000.0 } * (random.unit() * 4.0 - 2.0).exp2();
                heading += if closed {
                    std::f64::consts::TAU / own as f64
                } else {
                    random.unit() - 0.5
                };
                at = (at.0 + step * heading.cos(), at.1 + step * heading.sin());
            }
            if refs.len() < if closed { 3 } else { 2 } {
                continue;
            }
            if closed {
                refs.push(refs[0]);
            }
            ways.push(Way { refs, closed });
        }
        while locations.len() < NODES as usize {
            locations.push(put(corner(&mut random)));
        }
        let numbers = renumbered(&mut random);
        let mut moved = locations.clone();
        for (location, number) in locations.into_iter().zip(numbers) {
            moved[usize::from(number)] = location;
        }
        for (other, node) in ways.iter_mut().flat_map(|way| &mut way.refs) {
            if *other == unit {
                *node = numbers[usize::from(*node)];
            }
        }
        Unit {
            ways,
            locations: moved,
        }
    }

    /// Who made an element of a unit, and when.
    fn with_metadata<R>(&self, unit: u64, random: &mut Random, take: impl FnOnce(&Metadata<'_>) -> R) -> R {
        let version = within(random, VERSIONS) as i32;
        let age = unit as f64 / self.units() as f64;
        // From 2006 on; later versions are from later times.
        let later = if version > 1 {
            random.unit() * (1.0 - age)
        } else {
            0.0
        };
        let seconds = 1_150_000_000 + ((age + later) * 6e8) as i64 + (mix(unit) % 86_400) as i64;
        let changeset = (seconds - 1_140_000_000) / 4;
        let draw = mix(self.seed ^ changeset as u64);
        let rank = ((draw % 20_000) * (draw >> 32 & 0x3ff)) >> 10;
        let name = user_name(rank as u32);
        take(&Metadata {
            version: Some(version),
            timestamp: Some(Timestamp(seconds)),
            changeset: Some(changeset),
            uid: Some(1 + rank as i32 * 7),
            user: Some(name.as_bytes()),
            visible: None,
        })
    }

    fn build_nodes(&self, unit: u64, frames: &mut FrameBuilder) {
        let (ids, content) = (self.node_ids(unit), self.unit(unit));
        let mut random = self.random(unit, 6);
        for (id, location) in ids.into_iter().zip(content.locations) {
            let tags = tags::node(unit % self.places(), &mut random);
            self.with_metadata(unit, &mut random, |metadata| {
                let builder = frames.next_builder();
                builder.add_node(id, Some(location), tags::views(&tags), metadata);
            });
        }
    }

    fn build_ways(&self, unit: u64, frames: &mut FrameBuilder) {
        let (ids, content) = (self.node_ids(unit), self.unit(unit));
        let mut random = self.random(unit, 7);
        let count = content.ways.len();
        for (number, way) in content.ways.iter().enumerate() {
            let refs: Vec<i64> = way
                .refs
                .iter()
                .map(|&(other, node)| {
                    if other == unit {
                        ids[usize::from(node)]
                    } else {
                        self.node_ids(other)[usize::from(node)]
                    }
                })
                .collect();
            let tags = tags::way(way.closed, unit % self.places(), &mut random);
            self.with_metadata(unit, &mut random, |metadata| {
                let id = self.way_id(unit, number, count);
                frames
                    .next_builder()
                    .add_way(id, &refs, None, tags::views(&tags), metadata);
            });
        }
    }

    fn build_relation(&self, unit: u64, frames: &mut FrameBuilder) {
        if !self.has_relation(unit) {
            return;
        }
        let mut random = self.random(unit, 8);
        let tags = tags::relation(unit % self.places(), &mut random);
        let mut members = Vec::new();
        let wanted = within(&mut random, MEMBERS) as usize;
        let mut other = unit;
        let mut content = self.unit(other);
        let mut at = 0;
        while members.len() < wanted {
            // Long relations take the ways of a unit one after the other, then go on to another unit.
            if at >= content.ways.len() {
                other = self.neighbour(unit, &mut random);
                content = self.unit(other);
                at = 0;
            }
            let (element, role) = match random.below(1000) {
                0..90 => {
                    let ids = self.node_ids(other);
                    let node = ids[random.below(NODES) as usize];
                    (ElementId::new(Kind::Node, node), "stop")
                }
                90..105 if self.has_relation(other) && other != unit => {
                    (ElementId::new(Kind::Relation, other as i64 + 1), "")
                }
                _ => {
                    let id = self.way_id(other, at, content.ways.len());
                    at += 1;
                    (ElementId::new(Kind::Way, id), tags::role(&tags, &mut random))
                }
            };
            members.push(Member {
                element,
                role: role.as_bytes(),
            });
            // A relation cannot have more than there is around it.
            if at >= content.ways.len() && random.chance(0.02) {
                break;
            }
        }
        self.with_metadata(unit, &mut random, |metadata| {
            frames
                .next_builder()
                .add_relation(unit as i64 + 1, &members, tags::views(&tags), metadata);
        });
    }

    /// Writes the file; gives its size in bytes.
    pub fn run(&self, output: &mut impl Write) -> Result<u64, WriteError> {
        let units = self.units();
        let mut header = FileHeader::new(concat!("osmill-testkit/", env!("CARGO_PKG_VERSION")));
        header.bbox = Some(HeaderBox {
            left: -180_000_000_000,
            right: 180_000_000_000,
            top: 90_000_000_000,
            bottom: -90_000_000_000,
        });
        header.set_optional(SORTED, true);
        header.replication_timestamp = Some(Timestamp(1_760_000_000));
        // About 8,000 elements a job: 31 units of nodes, 256 of ways, 11,000 of relations.
        let jobs = [(Kind::Node, 31), (Kind::Way, 256), (Kind::Relation, 11_000)]
            .into_iter()
            .flat_map(move |(kind, step)| {
                (0..units.div_ceil(step)).map(move |i| (kind, i * step..((i + 1) * step).min(units)))
            });
        write_blocks(output, &header, &self.write, jobs, |(kind, units), frames| {
            for unit in units {
                match kind {
                    Kind::Node => self.build_nodes(unit, frames),
                    Kind::Way => self.build_ways(unit, frames),
                    Kind::Relation => self.build_relation(unit, frames),
                }
            }
        })
    }
}

#[cfg(test)]
mod tests;
