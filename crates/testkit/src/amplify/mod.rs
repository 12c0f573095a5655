//! Many shifted copies of real extracts as one large file that is sorted and referentially complete, with a
//! daily diff that fits it.
//!
//! Real data in any size: tags, shapes, versions and histories are those of the extracts, ids interleave as
//! editing around the world makes them interleave (see the module `layout`), and every copy lies elsewhere
//! within a box, by a few percent larger or smaller, with house numbers of its own.
//!
//! # Passes and memory
//!
//! 1. The extracts are read into compact tables: about 60 bytes a node, 50 a way, 4 a reference, and every
//!    string once. References that lead nowhere, and what loses its sense without them, are dropped.
//! 2. Ids are laid out: per kind 8 bytes an element and 4 bytes for each run and copy.
//! 3. With a diff: one walk over the ids alone, which decides by a hash of kind and id what is modified or
//!    deleted, and writes that to the change file. Only what nothing refers to is deleted.
//! 4. The file is written in blocks of 8,000 elements; several threads build and compress them from the tables.
//!
//! Memory follows the extracts (about 1 GB for 8 million nodes), not the output: 20 GB and more are a matter of
//! time and disk. The bytes depend on extracts and options alone.

mod base;
mod diff;
mod layout;

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use osmill_model::{BoundingBox, ElementId, Kind, Location, Member, Metadata, Tag, Timestamp};
use osmill_pbf::{ELEMENTS_PER_BLOCK, FileHeader, HeaderBox, SORTED};

pub use base::BaseReport;
pub(crate) use base::user_name;
pub use diff::DiffReport;

use base::{Base, BaseNode};
use layout::{Layout, Piece, Shape};

use crate::file::{FrameBuilder, WriteError, WriteOptions, write_blocks};
use crate::model::ReadError;
use crate::random::Random;

/// What becomes of metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MetadataMode {
    /// As the extracts have it.
    #[default]
    Keep,
    /// What is absent is made up, so that every element has everything.
    Fill,
    /// Versions and times only, as public extracts have it; absent ones are made up.
    Strip,
}

/// What to make.
#[derive(Debug, Clone)]
pub struct Amplify {
    /// How many copies; 1 lays the extracts out as one file.
    pub copies: usize,
    /// What becomes of metadata.
    pub metadata: MetadataMode,
    /// Where the copies lie. An extract that does not fit stays where it is.
    pub bbox: BoundingBox,
    /// Seed of everything random.
    pub seed: u64,
    /// How the file is written.
    pub write: WriteOptions,
}

impl Default for Amplify {
    fn default() -> Self {
        let unit = 10_000_000;
        Amplify {
            copies: 1,
            metadata: MetadataMode::Keep,
            bbox: BoundingBox::new(-170 * unit, -55 * unit, 170 * unit, 70 * unit),
            seed: 42,
            write: WriteOptions::default(),
        }
    }
}

/// Why nothing could be made.
#[derive(Debug, thiserror::Error)]
pub enum AmplifyError {
    /// An extract cannot be read.
    #[error("{path}: {error}")]
    Base {
        /// The extract.
        path: PathBuf,
        /// Why.
        error: ReadError,
    },
    /// The extracts have no node with a positive id.
    #[error("the extracts hold no nodes with positive ids; there is nothing to copy")]
    Empty,
    /// Ids would leave 64 bits.
    #[error("{0} copies do not fit into the space of ids")]
    TooMany(usize),
    /// No copies were asked for.
    #[error("the number of copies must be at least 1")]
    NoCopies,
    /// The output cannot be written.
    #[error("{path}: {error}")]
    Output {
        /// The output.
        path: PathBuf,
        /// Why.
        error: WriteError,
    },
}

/// What was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// What the extracts gave.
    pub base: BaseReport,
    /// Nodes, ways and relations written.
    pub elements: [u64; 3],
    /// The largest ids are below these.
    pub id_ends: [i64; 3],
    /// Bytes written.
    pub bytes: u64,
    /// What is in the diff, where one was asked for.
    pub diff: Option<DiffReport>,
}

/// Where a copy of an extract lies: its centre moves, and it grows or shrinks around it.
#[derive(Debug, Clone, Copy)]
struct Place {
    from: Location,
    to: Location,
    scale: f64,
}

impl Place {
    fn of(&self, location: Location) -> Location {
        let axis = |value: i32, from: i32, to: i32, limit: f64| {
            let moved = f64::from(to) + (f64::from(value) - f64::from(from)) * self.scale;
            moved.round().clamp(-limit, limit) as i32
        };
        Location::new(
            axis(location.lon, self.from.lon, self.to.lon, 1.8e9),
            axis(location.lat, self.from.lat, self.to.lat, 9e8),
        )
    }

    fn new(bounds: BoundingBox, within: BoundingBox, first: bool, random: &mut Random) -> Place {
        let middle = |a: i32, b: i32| ((i64::from(a) + i64::from(b)) / 2) as i32;
        let from = Location::new(
            middle(bounds.min.lon, bounds.max.lon),
            middle(bounds.min.lat, bounds.max.lat),
        );
        let scale = if first { 1.0 } else { 0.97 + 0.06 * random.unit() };
        let mut axis = |bounds: (i32, i32), within: (i32, i32), stay: i32| {
            let half = (f64::from(bounds.1) - f64::from(bounds.0)) / 2.0 * scale;
            let (low, high) = (f64::from(within.0) + half, f64::from(within.1) - half);
            let draw = random.unit();
            if low < high {
                (low + draw * (high - low)) as i32
            } else {
                stay
            }
        };
        let to = Location::new(
            axis(
                (bounds.min.lon, bounds.max.lon),
                (within.min.lon, within.max.lon),
                from.lon,
            ),
            axis(
                (bounds.min.lat, bounds.max.lat),
                (within.min.lat, within.max.lat),
                from.lat,
            ),
        );
        Place { from, to, scale }
    }
}

/// Everything a worker needs.
struct Copies {
    base: Base,
    copies: usize,
    layouts: [Layout; 3],
    /// Region × copies + copy.
    places: Vec<Place>,
    house_number: Option<u32>,
}

type OwnTag<'a> = (&'a [u8], Cow<'a, [u8]>);

fn views<'a>(tags: &'a [OwnTag<'a>]) -> impl Iterator<Item = Tag<'a>> {
    tags.iter().map(|(key, value)| Tag { key, value })
}

impl Copies {
    fn id(&self, kind: Kind, element: u32, copy: u32) -> i64 {
        self.layouts[kind as usize].id(element, copy)
    }

    fn location(&self, node: &BaseNode, copy: u32) -> Location {
        self.places[node.region as usize * self.copies + copy as usize].of(node.location)
    }

    fn tags(&self, first: u32, end: u32, copy: u32) -> Vec<OwnTag<'_>> {
        let strings = &self.base.strings;
        self.base.tags[first as usize..end as usize]
            .iter()
            .map(|&(key, value)| {
                let text = strings.get(value);
                let value = match self.house_number {
                    Some(number) if number == key && copy > 0 => other_house(text, copy),
                    _ => Cow::Borrowed(text),
                };
                (strings.get(key), value)
            })
            .collect()
    }

    fn node<R>(
        &self,
        element: u32,
        copy: u32,
        take: impl FnOnce(i64, Location, &[OwnTag<'_>], &Metadata<'_>) -> R,
    ) -> R {
        let node = &self.base.nodes[element as usize];
        let tags = self.tags(node.first_tag, node.first_tag + u32::from(node.tags), copy);
        let metadata = node.metadata.view(&self.base.strings);
        take(
            self.id(Kind::Node, element, copy),
            self.location(node, copy),
            &tags,
            &metadata,
        )
    }

    fn way<R>(
        &self,
        element: u32,
        copy: u32,
        take: impl FnOnce(i64, &[i64], &[OwnTag<'_>], &Metadata<'_>) -> R,
    ) -> R {
        let way = &self.base.ways[element as usize];
        let refs: Vec<i64> = self.base.refs[way.refs.start as usize..way.refs.end as usize]
            .iter()
            .map(|node| self.id(Kind::Node, *node, copy))
            .collect();
        let tags = self.tags(way.tags.start, way.tags.end, copy);
        let metadata = way.metadata.view(&self.base.strings);
        take(self.id(Kind::Way, element, copy), &refs, &tags, &metadata)
    }

    fn relation<R>(
        &self,
        element: u32,
        copy: u32,
        take: impl FnOnce(i64, &[Member<'_>], &[OwnTag<'_>], &Metadata<'_>) -> R,
    ) -> R {
        let relation = &self.base.relations[element as usize];
        let members: Vec<Member<'_>> = self.base.members
            [relation.members.start as usize..relation.members.end as usize]
            .iter()
            .map(|m| Member {
                element: ElementId::new(m.kind, self.id(m.kind, m.index, copy)),
                role: self.base.strings.get(m.role),
            })
            .collect();
        let tags = self.tags(relation.tags.start, relation.tags.end, copy);
        let metadata = relation.metadata.view(&self.base.strings);
        take(self.id(Kind::Relation, element, copy), &members, &tags, &metadata)
    }

    fn build(&self, kind: Kind, pieces: &[Piece], frames: &mut FrameBuilder) {
        for piece in pieces {
            for element in piece.start..piece.end {
                let builder = frames.next_builder();
                match kind {
                    Kind::Node => self.node(element, piece.copy, |id, location, tags, metadata| {
                        builder.add_node(id, Some(location), views(tags), metadata);
                    }),
                    Kind::Way => self.way(element, piece.copy, |id, refs, tags, metadata| {
                        builder.add_way(id, refs, None, views(tags), metadata);
                    }),
                    Kind::Relation => self.relation(element, piece.copy, |id, members, tags, metadata| {
                        builder.add_relation(id, members, views(tags), metadata);
                    }),
                }
            }
        }
    }

    fn header(&self, end: i64) -> FileHeader {
        let corners = self.base.bounds.iter().enumerate().flat_map(|(region, bounds)| {
            let places = &self.places[region * self.copies..(region + 1) * self.copies];
            places.iter().flat_map(|p| [p.of(bounds.min), p.of(bounds.max)])
        });
        let bounds = corners
            .map(BoundingBox::of)
            .reduce(BoundingBox::union)
            .unwrap_or(BoundingBox::of(Location::default()));
        let nano = |units: i32| i64::from(units) * 100;
        let mut header = FileHeader::new(concat!("osmill-testkit/", env!("CARGO_PKG_VERSION")));
        header.bbox = Some(HeaderBox {
            left: nano(bounds.min.lon),
            right: nano(bounds.max.lon),
            top: nano(bounds.max.lat),
            bottom: nano(bounds.min.lat),
        });
        header.set_optional(SORTED, true);
        header.replication_timestamp = Some(Timestamp(end));
        header.replication_sequence = Some(5000);
        header.replication_base_url = Some("https://updates.example/amplify".into());
        header
    }
}

/// A house number for another copy, so that addresses differ; what is no plain number stays.
fn other_house(value: &[u8], copy: u32) -> Cow<'_, [u8]> {
    let digits = value.iter().take_while(|b| b.is_ascii_digit()).count();
    let number = std::str::from_utf8(&value[..digits]).ok();
    match number.and_then(|n| n.parse::<u32>().ok()) {
        Some(number) if digits <= 5 => {
            let mut other = ((number + 7 * copy) % 499 + 1).to_string().into_bytes();
            other.extend_from_slice(&value[digits..]);
            Cow::Owned(other)
        }
        _ => Cow::Borrowed(value),
    }
}

impl Amplify {
    /// Writes the file, and the diff where a path for it is given.
    pub fn run(
        &self,
        bases: &[impl AsRef<Path>],
        output: &Path,
        diff: Option<&Path>,
    ) -> Result<Report, AmplifyError> {
        if self.copies == 0 {
            return Err(AmplifyError::NoCopies);
        }
        let base = Base::read(bases, self.metadata)?;
        let copies = self.lay_out(base)?;
        let (end, changeset) = copies.base.end();
        let fail = |path: &Path| {
            let path = path.to_path_buf();
            move |error| AmplifyError::Output { path, error }
        };
        let diff = match diff {
            None => None,
            Some(path) => {
                let create = || -> io::Result<DiffReport> {
                    let file = BufWriter::new(File::create(path)?);
                    diff::write(&copies, self.seed, end, changeset, file)
                };
                Some(create().map_err(|e| fail(path)(e.into()))?)
            }
        };
        let file = File::create(output).map_err(|e| fail(output)(e.into()))?;
        let mut file = BufWriter::with_capacity(1 << 20, file);
        let jobs = Kind::ALL.into_iter().flat_map(|kind| {
            let blocks = copies.layouts[kind as usize].blocks(ELEMENTS_PER_BLOCK);
            blocks.map(move |pieces| (kind, pieces))
        });
        let header = copies.header(end);
        let bytes = write_blocks(&mut file, &header, &self.write, jobs, |(kind, pieces), frames| {
            copies.build(kind, &pieces, frames);
        })
        .map_err(fail(output))?;
        Ok(Report {
            base: copies.base.report,
            elements: copies.base.report.elements.map(|n| n * self.copies as u64),
            id_ends: [0, 1, 2].map(|kind: usize| copies.layouts[kind].end),
            bytes,
            diff,
        })
    }

    fn lay_out(&self, mut base: Base) -> Result<Copies, AmplifyError> {
        let house_number = Some(base.strings.number(b"addr:housenumber"));
        let nodes: Vec<i64> = base.nodes.iter().map(|n| n.id).collect();
        let ways: Vec<i64> = base.ways.iter().map(|w| w.id).collect();
        let relations: Vec<i64> = base.relations.iter().map(|r| r.id).collect();
        // Largest ids of the planet, and runs of about what one editing session leaves behind.
        let shape = |largest_id, gap, longest| Shape {
            largest_id,
            gap,
            longest,
        };
        let layouts = [
            Layout::new(&nodes, self.copies, shape(12_600_000_000, 5000, 200))?,
            Layout::new(&ways, self.copies, shape(1_400_000_000, 500, 50))?,
            Layout::new(&relations, self.copies, shape(19_000_000, 50, 8))?,
        ];
        let mut random = Random::new(self.seed, 0);
        let mut places = Vec::with_capacity(base.bounds.len() * self.copies);
        for bounds in &base.bounds {
            for copy in 0..self.copies {
                places.push(Place::new(*bounds, self.bbox, copy == 0, &mut random));
            }
        }
        Ok(Copies {
            base,
            copies: self.copies,
            layouts,
            places,
            house_number,
        })
    }
}

#[cfg(test)]
mod tests;
