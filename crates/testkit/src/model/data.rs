//! Data, to and from PBF, and the commands that keep or reorder whole elements.

use std::collections::{BTreeMap, BTreeSet};

use osmill_model::{ElementId, Kind, KindSet, Location, Timestamp, id_order};
use osmill_pbf::{
    BlobType, Block, BlockError, Compression, Decompressor, FileHeader, FrameError, HeaderError,
    LOCATIONS_ON_WAYS, MetadataFields, SORTED, parse_blob,
};

use super::element::Element;
use crate::file::{FrameBuilder, Frames};

/// OSM data: elements in file order.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Data {
    /// The elements, sorted or not, repeated or not.
    pub elements: Vec<Element>,
}

impl std::fmt::Debug for Data {
    /// One element a line.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.elements
            .iter()
            .try_for_each(|element| write!(f, "\n    {element}"))
    }
}

impl FromIterator<Element> for Data {
    fn from_iter<I: IntoIterator<Item = Element>>(elements: I) -> Self {
        Data {
            elements: elements.into_iter().collect(),
        }
    }
}

/// Why bytes could not be read as a PBF file.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Reading failed, or a frame is cut off.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A frame is wrong.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A file header is wrong.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// A block is wrong.
    #[error(transparent)]
    Block(#[from] BlockError),
}

/// How [`Data`] is laid out as PBF.
#[derive(Debug, Clone)]
pub struct PbfOptions {
    /// The compression of the blobs.
    pub compression: Compression,
    /// Elements in a block; a block also ends where the kind changes.
    pub elements_per_block: usize,
    /// Whether blob headers carry index records.
    pub index: bool,
    /// The file header; `None` for one that tells the truth about order, history and locations on ways.
    pub header: Option<FileHeader>,
}

impl Default for PbfOptions {
    fn default() -> Self {
        PbfOptions {
            compression: Compression::default(),
            elements_per_block: 8000,
            index: true,
            header: None,
        }
    }
}

/// A reference to an element that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MissingReference {
    /// The way or relation that refers.
    pub from: ElementId,
    /// What it refers to.
    pub to: ElementId,
}

/// An element that does not come after the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderFault {
    /// It should stand before the element before it.
    Unsorted {
        /// Its position in the file, from 0.
        at: usize,
        /// The element.
        element: ElementId,
    },
    /// It is the same as the element before it: same kind, same id.
    Repeated {
        /// Its position in the file, from 0.
        at: usize,
        /// The element.
        element: ElementId,
    },
}

/// What a renumbering does with references to elements that are not in the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unresolved {
    /// The missing element gets the next free number, as osmium has it.
    Number,
    /// The reference keeps the old id.
    Keep,
}

/// What elements are sorted by.
fn order(element: &Element) -> (Kind, u64, i32, i64) {
    (
        element.kind(),
        id_order(element.id.id),
        element.version(),
        element.seconds(),
    )
}

impl Data {
    /// Data from lines of OPL; empty lines and lines that begin with `#` are passed over.
    ///
    /// # Panics
    ///
    /// If a line is not OPL: a case written by hand has a mistake.
    pub fn opl(lines: &str) -> Data {
        lines
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(|line| line.parse().unwrap_or_else(|error| panic!("{error}")))
            .collect()
    }

    /// Reads a PBF file. Blobs of unknown type are passed over.
    pub fn from_pbf(bytes: &[u8]) -> Result<Data, ReadError> {
        Ok(Self::with_header_from_pbf(bytes)?.1)
    }

    /// Reads a PBF file, and gives the last file header in it, too.
    pub fn with_header_from_pbf(bytes: &[u8]) -> Result<(FileHeader, Data), ReadError> {
        let (mut header, mut data) = (FileHeader::default(), Data::default());
        let mut frames = Frames::new(bytes);
        let mut decompressor = Decompressor::default();
        while let Some(frame) = frames.next_frame()? {
            let mut raw = Vec::new();
            match frame.blob_type() {
                BlobType::Other(_) => {}
                BlobType::Header => {
                    decompressor.decompress(&parse_blob(&frame.blob)?, &mut raw)?;
                    header = FileHeader::parse(&raw)?;
                }
                BlobType::Data => {
                    decompressor.decompress(&parse_blob(&frame.blob)?, &mut raw)?;
                    let block = Block::parse(raw)?;
                    for element in block.elements() {
                        data.elements.push(Element::of(&element?)?);
                    }
                }
            }
        }
        Ok((header, data))
    }

    /// The data as a PBF file with default options.
    pub fn to_pbf(&self) -> Vec<u8> {
        self.to_pbf_with(&PbfOptions::default())
    }

    /// The data as a PBF file.
    ///
    /// # Panics
    ///
    /// If an element does not fit into a blob (32 MiB).
    pub fn to_pbf_with(&self, options: &PbfOptions) -> Vec<u8> {
        let header = options.header.clone().unwrap_or_else(|| self.header());
        let mut frames = FrameBuilder::new(options.compression, options.index);
        frames.add_raw(BlobType::Header, &header.encode(), None);
        for (i, element) in self.elements.iter().enumerate() {
            element.add_to(frames.open());
            let next = self.elements.get(i + 1);
            if frames.len() >= options.elements_per_block
                || next.is_none_or(|next| next.kind() != element.kind())
            {
                frames.close_block();
            }
        }
        frames.take().expect("the data fits into blobs")
    }

    /// A file header that is true of the data: features for order, history and locations on ways.
    pub fn header(&self) -> FileHeader {
        let mut header = FileHeader::new("osmill-testkit");
        header.set_optional(SORTED, self.is_sorted());
        header.set_optional(
            LOCATIONS_ON_WAYS,
            self.elements.iter().any(|e| e.locations.is_some()),
        );
        header.set_history(self.elements.iter().any(|e| e.metadata.visible.is_some()));
        header
    }

    /// The lines that `osmium cat -f opl` prints for the data.
    ///
    /// # Panics
    ///
    /// If the data does not fit into PBF.
    pub fn opl_lines(&self) -> Vec<String> {
        crate::osmium::opl_lines_of_pbf(&self.to_pbf()).expect("what was written can be read")
    }

    /// Whether elements come by kind, id and version.
    pub fn is_sorted(&self) -> bool {
        self.elements
            .is_sorted_by_key(|e| (e.kind(), id_order(e.id.id), e.version()))
    }

    /// The ids that occur.
    pub fn ids(&self) -> BTreeSet<ElementId> {
        self.elements.iter().map(|e| e.id).collect()
    }

    /// The elements that the closure takes, in their order.
    pub fn keep(&self, keep: impl Fn(&Element) -> bool) -> Data {
        self.elements.iter().filter(|e| keep(e)).cloned().collect()
    }

    /// *cat*: the elements of these kinds of all inputs, one input after the other.
    pub fn cat(inputs: &[&Data], kinds: KindSet) -> Data {
        inputs
            .iter()
            .flat_map(|data| data.elements.iter())
            .filter(|e| kinds.contains(e.kind()))
            .cloned()
            .collect()
    }

    /// *cat --clean*: metadata values that are not among `fields` are taken away.
    pub fn clean(&self, fields: MetadataFields) -> Data {
        let mut data = self.clone();
        for element in &mut data.elements {
            let m = &mut element.metadata;
            m.version = m.version.filter(|_| fields.version);
            m.timestamp = m.timestamp.filter(|_| fields.timestamp);
            m.changeset = m.changeset.filter(|_| fields.changeset);
            m.uid = m.uid.filter(|_| fields.uid);
            m.user = m.user.take().filter(|_| fields.user);
            m.visible = m.visible.filter(|_| fields.visible);
        }
        data
    }

    /// *sort*: by kind, id, version and time; elements equal in all of them keep their order.
    pub fn sort(&self) -> Data {
        let mut data = self.clone();
        data.elements.sort_by_key(order);
        data
    }

    /// *cat --dedupe*, *merge*: all inputs sorted together, of each element the newest version only.
    ///
    /// At equal version and time the element of the first input stands.
    pub fn merge(inputs: &[&Data]) -> Data {
        let mut newest: BTreeMap<ElementId, Element> = BTreeMap::new();
        for element in inputs.iter().flat_map(|data| &data.elements) {
            match newest.get(&element.id) {
                Some(known) if order(known) >= order(element) => {}
                _ => {
                    newest.insert(element.id, element.clone());
                }
            }
        }
        newest.into_values().collect()
    }

    /// *cat --dedupe*, *merge* with history: all inputs sorted together, each version of an element once.
    ///
    /// At equal version the element with the latest time stands; at equal time that of the first input.
    pub fn merge_history(inputs: &[&Data]) -> Data {
        let mut versions: BTreeMap<(ElementId, i32), Element> = BTreeMap::new();
        for element in inputs.iter().flat_map(|data| &data.elements) {
            let key = (element.id, element.version());
            match versions.get(&key) {
                Some(known) if known.seconds() >= element.seconds() => {}
                _ => {
                    versions.insert(key, element.clone());
                }
            }
        }
        versions.into_values().collect()
    }

    /// *check --ids*: every element that does not come after the one before it.
    ///
    /// With `history`, an element may follow itself with a greater version.
    pub fn order_faults(&self, history: bool) -> Vec<OrderFault> {
        let mut faults = Vec::new();
        for (i, pair) in self.elements.windows(2).enumerate() {
            let (last, element) = (&pair[0], &pair[1]);
            let at = i + 1;
            let element_id = element.id;
            if element.id < last.id
                || (history && element.id == last.id && element.version() < last.version())
            {
                faults.push(OrderFault::Unsorted {
                    at,
                    element: element_id,
                });
            } else if element.id == last.id && !(history && element.version() > last.version()) {
                faults.push(OrderFault::Repeated {
                    at,
                    element: element_id,
                });
            }
        }
        faults
    }

    /// *check --refs*: every reference of a way, and with `relations` of a relation, whose element is not in
    /// the data. In file order, one entry for each occurrence.
    pub fn missing_references(&self, relations: bool) -> Vec<MissingReference> {
        let ids = self.ids();
        let mut missing = Vec::new();
        for element in &self.elements {
            if element.kind() == Kind::Relation && !relations {
                continue;
            }
            for to in element.references() {
                if !ids.contains(&to) {
                    missing.push(MissingReference { from: element.id, to });
                }
            }
        }
        missing
    }

    /// *renumber*: nodes, ways and relations get numbers from `start` on, upwards, or downwards where the
    /// start is negative, in file order; references follow.
    ///
    /// A missing element that gets a number gets it where it is referred to first: nodes while ways are
    /// read, the rest while relations are read, after all elements of its kind that the data has.
    pub fn renumber(&self, start: [i64; 3], unresolved: Unresolved) -> Data {
        let mut numbers: BTreeMap<ElementId, i64> = BTreeMap::new();
        let mut next = start;
        let mut number = |id: ElementId| {
            *numbers.entry(id).or_insert_with(|| {
                let slot = &mut next[id.kind as usize];
                let number = *slot;
                *slot += if number < 0 { -1 } else { 1 };
                number
            })
        };
        self.elements.iter().for_each(|e| {
            number(e.id);
        });
        let known = self.ids();
        let mut data = self.clone();
        for element in &mut data.elements {
            let mut follow = |to: ElementId| {
                if unresolved == Unresolved::Number || known.contains(&to) {
                    number(to)
                } else {
                    to.id
                }
            };
            for reference in &mut element.refs {
                *reference = follow(ElementId::new(Kind::Node, *reference));
            }
            for member in &mut element.members {
                member.element.id = follow(member.element);
            }
            element.id.id = number(element.id);
        }
        data
    }

    /// Where each node is; of several versions the last one in file order counts.
    pub fn node_locations(&self) -> BTreeMap<i64, Option<Location>> {
        self.elements
            .iter()
            .filter(|e| e.kind() == Kind::Node)
            .map(|e| (e.id.id, e.location))
            .collect()
    }

    /// *add-locations-to-ways*: ways carry the locations of their nodes, and nodes without tags go, unless
    /// `keep_untagged` or, with `keep_members`, a relation refers to them.
    ///
    /// The second value lists the references to nodes that have no location, in file order.
    pub fn add_locations(&self, keep_untagged: bool, keep_members: bool) -> (Data, Vec<MissingReference>) {
        let locations = self.node_locations();
        let members: BTreeSet<ElementId> = self
            .elements
            .iter()
            .flat_map(|e| e.members.iter().map(|m| m.element))
            .collect();
        let mut missing = Vec::new();
        let mut data = self.keep(|e| {
            e.kind() != Kind::Node
                || keep_untagged
                || !e.tags.is_empty()
                || (keep_members && members.contains(&e.id))
        });
        for way in data.elements.iter_mut().filter(|e| e.kind() == Kind::Way) {
            let found: Vec<_> = way
                .refs
                .iter()
                .map(|id| locations.get(id).copied().flatten())
                .collect();
            for (id, _) in way.refs.iter().zip(&found).filter(|(_, l)| l.is_none()) {
                missing.push(MissingReference {
                    from: way.id,
                    to: ElementId::new(Kind::Node, *id),
                });
            }
            way.locations = (!found.is_empty()).then_some(found);
        }
        (data, missing)
    }

    /// When each version ends: at the time of the next version of the same element. Needs sorted data.
    fn lifetimes(&self) -> impl Iterator<Item = (&Element, i64, i64)> {
        self.elements.iter().enumerate().map(|(i, element)| {
            let next = self.elements.get(i + 1).filter(|next| next.id == element.id);
            (
                element,
                element.seconds(),
                next.map_or(i64::MAX, Element::seconds),
            )
        })
    }

    /// *time-filter T*: what existed at that moment. Needs sorted data.
    pub fn at_time(&self, Timestamp(moment): Timestamp) -> Data {
        self.lifetimes()
            .filter(|(element, start, end)| *start <= moment && moment < *end && element.is_visible())
            .map(|(element, ..)| element.clone())
            .collect()
    }

    /// *time-filter FROM TO*: every version that was current at some moment from FROM to before TO, deletions
    /// included. Needs sorted data.
    pub fn in_time(&self, Timestamp(from): Timestamp, Timestamp(to): Timestamp) -> Data {
        self.lifetimes()
            .filter(|(_, start, end)| *start < to && (*end > from || (start == end && *end == from)))
            .map(|(element, ..)| element.clone())
            .collect()
    }
}
