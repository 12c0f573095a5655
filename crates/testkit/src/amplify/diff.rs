//! A day of changes that fits the amplified file.
//!
//! About 0.2 % of the elements change: nodes move a little or get a tag, ways get or lose a node or a tag,
//! members change places; elements that nothing refers to are deleted; new nodes, buildings and multipolygons
//! come, with ids after all others. The actions stand in order of kind and id. Applied to the file, the result
//! is referentially complete again.

use std::collections::BTreeMap;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use osmill_model::{ElementId, Kind, Location, Timestamp};

use super::{Copies, user_name};
use crate::model::{Action, Element, Member, Metadata, OscWriter, Text};
use crate::random::{Random, mix};

/// Nodes, ways and relations that were created, modified and deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiffReport {
    /// New elements.
    pub created: [u64; 3],
    /// Changed elements.
    pub modified: [u64; 3],
    /// Deleted elements.
    pub deleted: [u64; 3],
}

/// How many of 100,000 elements are modified, and how many of those that nothing refers to are deleted.
const RATES: [(u64, u64); 3] = [(90, 150), (150, 30), (400, 40)];

fn fate(id: ElementId, referenced: bool) -> Option<Action> {
    let (modified, deleted) = RATES[id.kind as usize];
    let draw = hash(id, 1) % 100_000;
    if draw < modified {
        Some(Action::Modify)
    } else if draw < modified + deleted && !referenced {
        Some(Action::Delete)
    } else {
        None
    }
}

fn hash(id: ElementId, purpose: u64) -> u64 {
    mix(id.id as u64 ^ mix((id.kind as u64) << 8 | purpose))
}

struct Diff<'a, W: Write> {
    copies: &'a Copies,
    seconds: i64,
    changeset: i64,
    out: OscWriter<W>,
    report: DiffReport,
}

impl<W: Write> Diff<'_, W> {
    /// Metadata of a change on that day.
    fn today(&self, id: ElementId, version: i32) -> Metadata {
        let draw = hash(id, 2);
        let user = (draw % 400) as u32;
        Metadata {
            version: Some(version),
            timestamp: Some(Timestamp(self.seconds + (draw >> 20) as i64 % 86_400)),
            changeset: Some(self.changeset + (draw >> 40) as i64 % 9000),
            uid: Some(20_000_000 + user as i32 * 37),
            user: Some(user_name(user).as_str().into()),
            visible: None,
        }
    }

    fn write(&mut self, action: Action, element: &Element) -> io::Result<()> {
        let counts = match action {
            Action::Create => &mut self.report.created,
            Action::Modify => &mut self.report.modified,
            Action::Delete => &mut self.report.deleted,
        };
        counts[element.kind() as usize] += 1;
        self.out.write(action, element)
    }

    fn create(&mut self, mut element: Element) -> io::Result<()> {
        element.metadata = self.today(element.id, 1);
        self.write(Action::Create, &element)
    }

    /// Calls `change` with every element of a kind that has a fate, in id order, and writes the result.
    fn walk(&mut self, kind: Kind, change: impl Fn(&mut Element)) -> io::Result<()> {
        let copies = self.copies;
        for piece in copies.layouts[kind as usize].pieces() {
            for index in piece.start..piece.end {
                let id = ElementId::new(kind, copies.id(kind, index, piece.copy));
                let referenced = copies.base.referenced[kind as usize][index as usize];
                let Some(action) = fate(id, referenced) else {
                    continue;
                };
                let mut element = copies.element(kind, index, piece.copy);
                let version = element.version() + 1;
                if action == Action::Delete {
                    let location = element.location;
                    element = Element::new(kind, id.id);
                    element.location = location;
                } else {
                    change(&mut element);
                }
                element.metadata = self.today(id, version);
                self.write(action, &element)?;
            }
        }
        Ok(())
    }
}

impl Copies {
    /// A copy as an owned element.
    pub(super) fn element(&self, kind: Kind, index: u32, copy: u32) -> Element {
        let own = |tags: &[super::OwnTag<'_>]| -> Vec<(Text, Text)> {
            tags.iter()
                .map(|(key, value)| ((*key).into(), value.as_ref().into()))
                .collect()
        };
        match kind {
            Kind::Node => self.node(index, copy, |id, location, tags, metadata| Element {
                location: Some(location),
                tags: own(tags),
                metadata: Metadata::of(metadata),
                ..Element::new(kind, id)
            }),
            Kind::Way => self.way(index, copy, |id, refs, tags, metadata| Element {
                refs: refs.to_vec(),
                tags: own(tags),
                metadata: Metadata::of(metadata),
                ..Element::new(kind, id)
            }),
            Kind::Relation => self.relation(index, copy, |id, members, tags, metadata| Element {
                members: members
                    .iter()
                    .map(|m| Member {
                        element: m.element,
                        role: m.role.into(),
                    })
                    .collect(),
                tags: own(tags),
                metadata: Metadata::of(metadata),
                ..Element::new(kind, id)
            }),
        }
    }
}

fn shifted(location: Location, lon: i32, lat: i32) -> Location {
    Location::new(
        (location.lon.saturating_add(lon)).clamp(-1_800_000_000, 1_800_000_000),
        (location.lat.saturating_add(lat)).clamp(-900_000_000, 900_000_000),
    )
}

fn tags(pairs: &[(&str, &str)]) -> Vec<(Text, Text)> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).into(), (*value).into()))
        .collect()
}

/// What is new on that day, by its place in the id space.
struct Created {
    /// From the modified way that takes it up to the new node's id.
    inserted: BTreeMap<i64, i64>,
    nodes: Vec<Element>,
    ways: Vec<Element>,
    relations: Vec<Element>,
}

impl Created {
    fn new(copies: &Copies, seed: u64) -> Created {
        let mut created = Created {
            inserted: BTreeMap::new(),
            nodes: Vec::new(),
            ways: Vec::new(),
            relations: Vec::new(),
        };
        created.insert_into_ways(copies);
        created.build(copies, seed);
        created
    }

    /// A node with the next id after all others; new ids have gaps, as elsewhere.
    fn node(&mut self, copies: &Copies, location: Location) -> &mut Element {
        let id = copies.layouts[0].end + 1000 + self.nodes.len() as i64 * 3;
        let mut node = Element::new(Kind::Node, id);
        node.location = Some(location);
        self.nodes.push(node);
        let last = self.nodes.len() - 1;
        &mut self.nodes[last]
    }

    /// A quarter of the modified ways get a node after their first one.
    fn insert_into_ways(&mut self, copies: &Copies) {
        for piece in copies.layouts[1].pieces() {
            for index in piece.start..piece.end {
                let id = ElementId::new(Kind::Way, copies.id(Kind::Way, index, piece.copy));
                let referenced = copies.base.referenced[1][index as usize];
                if fate(id, referenced) != Some(Action::Modify) || !hash(id, 3).is_multiple_of(4) {
                    continue;
                }
                let refs = copies.base.ways[index as usize].refs.start as usize;
                let end = |i: usize| {
                    let node = &copies.base.nodes[copies.base.refs[refs + i] as usize];
                    copies.location(node, piece.copy)
                };
                let (a, b) = (end(0), end(1));
                let middle = |a: i32, b: i32| ((i64::from(a) + i64::from(b)) / 2) as i32;
                let location = shifted(Location::new(middle(a.lon, b.lon), middle(a.lat, b.lat)), 13, 11);
                let node = self.node(copies, location).id.id;
                self.inserted.insert(id.id, node);
            }
        }
    }

    /// New benches and buildings near old nodes, and some multipolygons of two buildings.
    fn build(&mut self, copies: &Copies, seed: u64) {
        let mut random = Random::new(seed, 1);
        let total = copies.base.nodes.len() as u64 * copies.copies as u64;
        for number in 0..(total / 4000).max(20) {
            let near = &copies.base.nodes[random.below(copies.base.nodes.len() as u64) as usize];
            let copy = random.below(copies.copies as u64) as u32;
            let corner = shifted(copies.location(near, copy), 700, 500);
            if number.is_multiple_of(5) {
                self.node(copies, corner).tags = tags(&[("amenity", "bench"), ("backrest", "yes")]);
                continue;
            }
            let (width, height) = (600 + random.below(1500) as i32, 500 + random.below(1200) as i32);
            let id = copies.layouts[1].end + 1000 + self.ways.len() as i64 * 2;
            let mut way = Element::new(Kind::Way, id);
            for (x, y) in [(0, 0), (width, 0), (width, height), (0, height)] {
                way.refs.push(self.node(copies, shifted(corner, x, y)).id.id);
            }
            way.refs.push(way.refs[0]);
            let count = self.ways.len();
            // Every tenth is a part of a multipolygon and has no tags of its own.
            if count % 10 != 9 {
                way.tags = tags(&[("building", "yes")]);
                if count.is_multiple_of(3) {
                    way.tags.extend(tags(&[
                        ("addr:housenumber", &(count % 200 + 1).to_string()),
                        ("addr:street", &format!("New Street {}", count % 17)),
                    ]));
                }
            }
            self.ways.push(way);
        }
        for (number, parts) in self.ways.chunks_exact(200).enumerate() {
            let mut relation = Element::new(Kind::Relation, copies.layouts[2].end + 100 + number as i64);
            relation.tags = tags(&[("type", "multipolygon"), ("landuse", "grass")]);
            relation.members = [&parts[9], &parts[19]]
                .map(|way| Member {
                    element: way.id,
                    role: "outer".into(),
                })
                .to_vec();
            self.relations.push(relation);
        }
    }
}

fn change_node(node: &mut Element) {
    let draw = hash(node.id, 4);
    let step = |bits: u64| (bits % 201) as i32 - 100;
    node.location = node.location.map(|l| shifted(l, step(draw >> 8), step(draw)));
    if !node.tags.is_empty() && draw.is_multiple_of(3) {
        match node.tags.iter_mut().find(|(key, _)| *key == "check_date") {
            Some((_, value)) => *value = "2026-11-02".into(),
            None => node.tags.extend(tags(&[("check_date", "2026-11-02")])),
        }
    }
}

fn change_way(way: &mut Element, inserted: &BTreeMap<i64, i64>) {
    if let Some(node) = inserted.get(&way.id.id) {
        way.refs.insert(1, *node);
    } else if way.refs.len() > 4 && way.refs.first() != way.refs.last() && hash(way.id, 5).is_multiple_of(3) {
        way.refs.pop();
    } else if way.tag("surface").is_some() {
        way.tags.retain(|(key, _)| *key != "surface");
    } else {
        way.tags.extend(tags(&[("surface", "asphalt")]));
    }
}

fn change_relation(relation: &mut Element) {
    if relation.members.len() > 3 && hash(relation.id, 6).is_multiple_of(2) {
        relation.members.swap(0, 1);
    } else if relation.tag("fixme").is_some() {
        relation.tags.retain(|(key, _)| *key != "fixme");
    } else {
        relation.tags.extend(tags(&[("fixme", "check members & order")]));
    }
}

/// Writes the change file, gzipped. `seconds` is when the day begins, `changeset` its first changeset.
pub(super) fn write(
    copies: &Copies,
    seed: u64,
    seconds: i64,
    changeset: i64,
    out: impl Write,
) -> io::Result<DiffReport> {
    let created = Created::new(copies, seed);
    let mut diff = Diff {
        copies,
        seconds,
        changeset,
        out: OscWriter::new(GzEncoder::new(out, Compression::new(6)), "osmill-testkit")?,
        report: DiffReport::default(),
    };
    diff.walk(Kind::Node, change_node)?;
    created.nodes.into_iter().try_for_each(|node| diff.create(node))?;
    diff.walk(Kind::Way, |way| change_way(way, &created.inserted))?;
    created.ways.into_iter().try_for_each(|way| diff.create(way))?;
    diff.walk(Kind::Relation, change_relation)?;
    created.relations.into_iter().try_for_each(|r| diff.create(r))?;
    diff.out.finish()?.finish()?.flush()?;
    Ok(diff.report)
}
