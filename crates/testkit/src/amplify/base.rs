//! The real extracts in memory, as compact as they can be read once and copied often.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::ops::Range;
use std::path::Path;

use osmill_model::{BoundingBox, Kind, Location, Metadata, Timestamp};
use osmill_pbf::{Block, Element};

use super::{AmplifyError, MetadataMode};
use crate::file::read_blocks;
use crate::model::ReadError;
use crate::random::mix;

/// Every string once.
#[derive(Default)]
pub(super) struct Strings {
    numbers: HashMap<Box<[u8]>, u32>,
    list: Vec<Box<[u8]>>,
}

impl Strings {
    pub fn number(&mut self, text: &[u8]) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.list.len() as u32;
        self.list.push(text.into());
        self.numbers.insert(text.into(), number);
        number
    }

    pub fn get(&self, number: u32) -> &[u8] {
        &self.list[number as usize]
    }
}

/// Metadata in 20 bytes; the largest number of each field stands for absence.
#[derive(Clone, Copy)]
pub(super) struct PackedMetadata {
    version: u32,
    timestamp: u32,
    changeset: u32,
    uid: u32,
    user: u32,
}

const ABSENT: u32 = u32::MAX;

fn pack(value: Option<i64>) -> u32 {
    value
        .and_then(|v| u32::try_from(v).ok())
        .filter(|v| *v <= i32::MAX as u32)
        .unwrap_or(ABSENT)
}

fn unpack(value: u32) -> Option<u32> {
    (value != ABSENT).then_some(value)
}

impl PackedMetadata {
    fn of(metadata: &Metadata<'_>, strings: &mut Strings) -> Self {
        PackedMetadata {
            version: pack(metadata.version.map(i64::from)),
            timestamp: pack(metadata.timestamp.map(|t| t.0)),
            changeset: pack(metadata.changeset),
            uid: pack(metadata.uid.map(i64::from)),
            user: metadata.user.map_or(ABSENT, |user| strings.number(user)),
        }
    }

    pub fn view<'a>(&self, strings: &'a Strings) -> Metadata<'a> {
        Metadata {
            version: unpack(self.version).map(|v| v as i32),
            timestamp: unpack(self.timestamp).map(|t| Timestamp(t.into())),
            changeset: unpack(self.changeset).map(i64::from),
            uid: unpack(self.uid).map(|u| u as i32),
            user: unpack(self.user).map(|user| strings.get(user)),
            visible: None,
        }
    }
}

pub(super) struct BaseNode {
    pub id: i64,
    pub location: Location,
    pub metadata: PackedMetadata,
    pub first_tag: u32,
    pub tags: u16,
    pub region: u16,
}

pub(super) struct BaseWay {
    pub id: i64,
    pub metadata: PackedMetadata,
    pub tags: Range<u32>,
    pub refs: Range<u32>,
}

pub(super) struct BaseRelation {
    pub id: i64,
    pub metadata: PackedMetadata,
    pub tags: Range<u32>,
    pub members: Range<u32>,
}

#[derive(Clone, Copy)]
pub(super) struct BaseMember {
    pub kind: Kind,
    /// Position in the list of its kind.
    pub index: u32,
    pub role: u32,
}

/// All extracts as one: sorted, each id once, every reference resolved to a position.
#[derive(Default)]
pub(super) struct Base {
    pub strings: Strings,
    pub tags: Vec<(u32, u32)>,
    pub nodes: Vec<BaseNode>,
    pub ways: Vec<BaseWay>,
    pub relations: Vec<BaseRelation>,
    /// Positions of nodes.
    pub refs: Vec<u32>,
    pub members: Vec<BaseMember>,
    /// Where the nodes of each extract lie.
    pub bounds: Vec<BoundingBox>,
    /// Of each kind: whether something refers to the element.
    pub referenced: [Vec<bool>; 3],
    pub report: BaseReport,
}

/// What was read, and what had to be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BaseReport {
    /// Nodes, ways and relations kept.
    pub elements: [u64; 3],
    /// References to nodes that no extract has.
    pub dropped_refs: u64,
    /// Members that no extract has.
    pub dropped_members: u64,
}

/// As read, before references are resolved.
#[derive(Default)]
struct Unresolved {
    refs: Vec<i64>,
    members: Vec<(Kind, i64, u32)>,
}

impl Base {
    pub fn read(paths: &[impl AsRef<Path>], mode: MetadataMode) -> Result<Base, AmplifyError> {
        let mut base = Base::default();
        base.strings.number(b"");
        let mut unresolved = Unresolved::default();
        for (region, path) in paths.iter().enumerate() {
            let path = path.as_ref();
            let fail = |error: ReadError| AmplifyError::Base {
                path: path.to_path_buf(),
                error,
            };
            let file = File::open(path).map_err(|e| fail(e.into()))?;
            let first = base.nodes.len();
            read_blocks(BufReader::with_capacity(1 << 20, file), |block| {
                base.read_block(block, region as u16, &mut unresolved)
            })
            .map_err(fail)?;
            let mut locations = base.nodes[first..].iter().map(|n| n.location);
            let mut bounds = BoundingBox::of(locations.next().unwrap_or_default());
            locations.for_each(|l| bounds.extend(l));
            base.bounds.push(bounds);
        }
        base.sort();
        if base.nodes.is_empty() {
            return Err(AmplifyError::Empty);
        }
        base.resolve(&unresolved);
        base.complete_metadata(mode);
        base.report.elements = [base.nodes.len(), base.ways.len(), base.relations.len()].map(|n| n as u64);
        Ok(base)
    }

    fn read_block(
        &mut self,
        block: &Block,
        region: u16,
        unresolved: &mut Unresolved,
    ) -> Result<(), ReadError> {
        for element in block.elements() {
            let element = element?;
            // Copies get ids of their own; what no server has numbered has no place among them.
            if element.id() <= 0 {
                continue;
            }
            let metadata = element.metadata()?;
            if !metadata.is_visible() {
                continue;
            }
            let metadata = PackedMetadata::of(&metadata, &mut self.strings);
            let first_tag = self.tags.len() as u32;
            for tag in element.tags() {
                let tag = tag?;
                self.tags
                    .push((self.strings.number(tag.key), self.strings.number(tag.value)));
            }
            let tags = first_tag..self.tags.len() as u32;
            match &element {
                Element::Node(node) => {
                    let Some(location) = node.location()?.filter(|l| l.is_valid()) else {
                        continue;
                    };
                    self.nodes.push(BaseNode {
                        id: node.id(),
                        location,
                        metadata,
                        first_tag,
                        tags: u16::try_from(tags.len()).unwrap_or(u16::MAX),
                        region,
                    });
                }
                Element::Way(way) => {
                    let first = unresolved.refs.len() as u32;
                    for id in way.refs() {
                        unresolved.refs.push(id.map_err(osmill_pbf::BlockError::from)?);
                    }
                    self.ways.push(BaseWay {
                        id: way.id(),
                        metadata,
                        tags,
                        refs: first..unresolved.refs.len() as u32,
                    });
                }
                Element::Relation(relation) => {
                    let first = unresolved.members.len() as u32;
                    for member in relation.members() {
                        let member = member?;
                        let role = self.strings.number(member.role);
                        unresolved
                            .members
                            .push((member.element.kind, member.element.id, role));
                    }
                    self.relations.push(BaseRelation {
                        id: relation.id(),
                        metadata,
                        tags,
                        members: first..unresolved.members.len() as u32,
                    });
                }
            }
        }
        Ok(())
    }

    /// Sorts by id and keeps the newest version of each.
    fn sort(&mut self) {
        fn newest_first(id: i64, metadata: &PackedMetadata) -> (i64, std::cmp::Reverse<u32>) {
            (id, std::cmp::Reverse(unpack(metadata.version).unwrap_or(0)))
        }
        self.nodes.sort_by_key(|n| newest_first(n.id, &n.metadata));
        self.nodes.dedup_by_key(|n| n.id);
        self.ways.sort_by_key(|w| newest_first(w.id, &w.metadata));
        self.ways.dedup_by_key(|w| w.id);
        self.relations.sort_by_key(|r| newest_first(r.id, &r.metadata));
        self.relations.dedup_by_key(|r| r.id);
    }

    /// Turns ids into positions and drops what leads nowhere: references, then ways of less than two nodes,
    /// then relations that have no node and no way of the data.
    fn resolve(&mut self, unresolved: &Unresolved) {
        let mut used = vec![false; self.nodes.len()];
        let (nodes, refs, report) = (&self.nodes, &mut self.refs, &mut self.report);
        self.ways.retain_mut(|way| {
            let first = refs.len();
            for id in &unresolved.refs[way.refs.start as usize..way.refs.end as usize] {
                match nodes.binary_search_by_key(id, |n| n.id) {
                    Ok(at) => refs.push(at as u32),
                    Err(_) => report.dropped_refs += 1,
                }
            }
            if refs.len() - first < 2 {
                refs.truncate(first);
                return false;
            }
            refs[first..].iter().for_each(|at| used[*at as usize] = true);
            way.refs = first as u32..refs.len() as u32;
            true
        });
        let ways = &self.ways;
        let find = |kind: Kind, id: i64| match kind {
            Kind::Node => nodes.binary_search_by_key(&id, |n| n.id).ok(),
            Kind::Way => ways.binary_search_by_key(&id, |w| w.id).ok(),
            Kind::Relation => None,
        };
        let of = |r: &BaseRelation| &unresolved.members[r.members.start as usize..r.members.end as usize];
        self.relations
            .retain(|r| of(r).iter().any(|&(kind, id, _)| find(kind, id).is_some()));
        let ids: Vec<i64> = self.relations.iter().map(|r| r.id).collect();
        let mut used = [used, vec![false; ways.len()], vec![false; ids.len()]];
        for relation in &mut self.relations {
            let first = self.members.len() as u32;
            for &(kind, id, role) in of(relation) {
                let found = match kind {
                    Kind::Relation => ids.binary_search(&id).ok(),
                    _ => find(kind, id),
                };
                let Some(at) = found else {
                    report.dropped_members += 1;
                    continue;
                };
                used[kind as usize][at] = true;
                self.members.push(BaseMember {
                    kind,
                    index: at as u32,
                    role,
                });
            }
            relation.members = first..self.members.len() as u32;
        }
        self.referenced = used;
    }

    /// Makes metadata what the mode wants.
    fn complete_metadata(&mut self, mode: MetadataMode) {
        if mode == MetadataMode::Keep {
            return;
        }
        let users: Vec<(u32, u32)> = (0..3000u32)
            .map(|i| (1000 + i * 4111, self.strings.number(user_name(i).as_bytes())))
            .collect();
        let complete = |m: &mut PackedMetadata, id: i64, last: i64| {
            let age = id as f64 / last.max(1) as f64;
            let absent = |value: u32| value == ABSENT || value == 0;
            if absent(m.version) {
                m.version = 1;
            }
            // OSM began in 2004; earlier times are some writer's word for "unknown".
            if absent(m.timestamp) || m.timestamp < 1_090_000_000 {
                // Ids were given out from 2006 to 2024; some forty neighbours are from the same upload.
                let upload = mix(id as u64 / 40);
                m.timestamp = 1_150_000_000 + (age * 5.6e8) as u32 + (upload % 86_400) as u32;
            }
            if mode == MetadataMode::Strip {
                (m.changeset, m.uid, m.user) = (ABSENT, ABSENT, ABSENT);
                return;
            }
            if absent(m.changeset) {
                let since = u64::from(m.timestamp.saturating_sub(1_100_000_000));
                m.changeset = (since * 26 / 100) as u32 + 1;
            }
            if absent(m.uid) || absent(m.user) {
                // A product of two even numbers: few users do most of the work.
                let hash = mix(m.changeset.into());
                let rank = ((hash % 3000) * (hash >> 32 & 0x3ff)) >> 10;
                (m.uid, m.user) = users[rank as usize];
            }
        };
        let last = self.nodes.last().map_or(1, |n| n.id);
        self.nodes
            .iter_mut()
            .for_each(|n| complete(&mut n.metadata, n.id, last));
        let last = self.ways.last().map_or(1, |w| w.id);
        self.ways
            .iter_mut()
            .for_each(|w| complete(&mut w.metadata, w.id, last));
        let last = self.relations.last().map_or(1, |r| r.id);
        self.relations
            .iter_mut()
            .for_each(|r| complete(&mut r.metadata, r.id, last));
    }

    /// Seconds after every timestamp of the data, at the beginning of a day; and a changeset after every one.
    pub fn end(&self) -> (i64, i64) {
        let metadata = || {
            let nodes = self.nodes.iter().map(|n| &n.metadata);
            let ways = self.ways.iter().map(|w| &w.metadata);
            nodes
                .chain(ways)
                .chain(self.relations.iter().map(|r| &r.metadata))
        };
        let last = metadata().filter_map(|m| unpack(m.timestamp)).max().unwrap_or(0);
        let changeset = metadata().filter_map(|m| unpack(m.changeset)).max().unwrap_or(0);
        (
            i64::from(last) / 86_400 * 86_400 + 86_400,
            i64::from(changeset) + 1,
        )
    }
}

/// Names as they occur: with spaces, umlauts, other scripts, and what XML has to escape.
pub(crate) fn user_name(i: u32) -> String {
    match i % 25 {
        0 => format!("Jörg {i}"),
        1 => format!("участник_{i}"),
        2 => format!("測量{i}"),
        3 => format!("Smith & Sons <{i}>"),
        4 => format!("d'Arc \"{i}\""),
        5 => format!("city_import_{i}"),
        _ => format!("walker{i}"),
    }
}
