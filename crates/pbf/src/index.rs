//! The index record that osmill keeps in the header of each data blob (`BlobHeader.indexdata`).
//!
//! 64 bytes, little-endian:
//!
//! | bytes | what |
//! | --- | --- |
//! | 0-1 | magic `oi` |
//! | 2 | version of the record, 1 |
//! | 3 | kinds in the blob: 1 node, 2 way, 4 relation |
//! | 4-5 | flags: 1 sorted, 2 ids unique, 4 some element has tags, 8 some has metadata, 16 some way has locations, 32 some element says whether it is visible, 64 the bounding box is there |
//! | 6-7 | 0 |
//! | 8-15 | id of the first element in file order (kind, then id) |
//! | 16-23 | id of the last element in file order |
//! | 24-35 | number of nodes, ways, relations, 4 bytes each |
//! | 36-43 | number of node references of ways plus members of relations |
//! | 44-59 | bounding box of the nodes: left, bottom, right, top in 10⁻⁷ degrees |
//! | 60-63 | FNV-1a over bytes 0-59 and the size of the blob (8 bytes) |
//!
//! The check value ties the record to its blob: a program that copies the header but writes another blob
//! almost always changes the size, and the record is then ignored. Records of other magic or version are
//! ignored, too: the field is free for any use.

use osmill_model::{BoundingBox, ElementId, Kind, KindSet, Location, id_order};

use crate::block::{Block, RawItem};
use crate::dense::DenseNodes;
use crate::element::{MetadataSource, Node};
use crate::error::{BlockError, BlockErrorKind};
use crate::wire::{Field, Fields, Refs, Value, Varints, WireError, bulk, from_here, zigzag_decode};

/// Bytes of an encoded record.
pub const INDEX_RECORD_SIZE: usize = 64;

const MAGIC: [u8; 3] = [b'o', b'i', 1];

/// What is in a data blob, for planning without decompressing it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IndexRecord {
    /// Kinds that occur.
    pub kinds: KindSet,
    /// Number of nodes, ways and relations.
    pub counts: [u32; 3],
    /// Id of the first element in file order (of the first kind that occurs).
    pub first_id: i64,
    /// Id of the last element in file order (of the last kind that occurs).
    pub last_id: i64,
    /// Whether kinds and ids never go down within the blob.
    pub sorted: bool,
    /// Whether, besides, no element occurs twice.
    pub unique: bool,
    /// Whether some element has a tag.
    pub has_tags: bool,
    /// Whether some element has metadata.
    pub has_metadata: bool,
    /// Whether some way carries locations.
    pub has_way_locations: bool,
    /// Whether some element says whether it is visible, as in files with history.
    pub has_visibility: bool,
    /// Node references of ways plus members of relations.
    pub refs: u64,
    /// Smallest rectangle around the nodes' locations.
    pub bbox: Option<BoundingBox>,
}

impl IndexRecord {
    /// Number of elements.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|n| u64::from(*n)).sum()
    }

    /// The first element in file order, if there is any.
    pub fn first(&self) -> Option<ElementId> {
        self.kinds
            .iter()
            .next()
            .map(|kind| ElementId::new(kind, self.first_id))
    }

    /// The last element in file order, if there is any.
    pub fn last(&self) -> Option<ElementId> {
        self.kinds
            .iter()
            .last()
            .map(|kind| ElementId::new(kind, self.last_id))
    }

    /// The record of a block, by reading ids, locations and counts, not strings.
    pub fn of(block: &Block) -> Result<IndexRecord, BlockError> {
        IndexRecord::beside(block, &mut Nothing)
    }

    /// The same for those who need the references of ways, too: calls `visit` with the id and the references of each.
    pub fn with_ways<'a>(
        block: &'a Block,
        mut visit: impl FnMut(i64, Refs<'a>) -> Result<(), BlockError>,
    ) -> Result<IndexRecord, BlockError> {
        IndexRecord::with_walked(block, |way| visit(way.facts.id, way.refs))
    }

    /// The same for those who need something of each way, too.
    pub(crate) fn with_walked<'a>(
        block: &'a Block,
        visit: impl FnMut(&Walked<'a>) -> Result<(), BlockError>,
    ) -> Result<IndexRecord, BlockError> {
        IndexRecord::beside(block, &mut Ways(visit))
    }

    /// The record of a block of which something else is read, too.
    pub(crate) fn beside<'a, B: Beside<'a>>(
        block: &'a Block,
        beside: &mut B,
    ) -> Result<IndexRecord, BlockError> {
        let mut builder = IndexBuilder::default();
        for group in block.groups() {
            let mut items = group.items();
            while let Some((item, message)) = items.try_next_raw()? {
                match item {
                    RawItem::Dense => beside.dense(&DenseNodes::parse(block, message)?, &mut builder)?,
                    RawItem::Node => {
                        let node = Node::parse(block, message)?;
                        builder.note_plain_node(&node)?;
                        beside.node(&node)?;
                    }
                    RawItem::Way => {
                        let way = Walked::of::<B>(block, Kind::Way, message)?;
                        builder.note_facts(Kind::Way, &way.facts);
                        beside.way(&way)?;
                    }
                    RawItem::Relation => {
                        let relation = Walked::of::<Nothing>(block, Kind::Relation, message)?;
                        builder.note_facts(Kind::Relation, &relation.facts);
                    }
                }
            }
        }
        Ok(builder.finish())
    }

    /// The record as bytes, for a blob of `data_size` bytes.
    pub fn encode(&self, data_size: usize) -> [u8; INDEX_RECORD_SIZE] {
        let mut out = [0; INDEX_RECORD_SIZE];
        out[..3].copy_from_slice(&MAGIC);
        out[3] = self.kinds.bits();
        let flags = [
            self.sorted,
            self.unique,
            self.has_tags,
            self.has_metadata,
            self.has_way_locations,
            self.has_visibility,
            self.bbox.is_some(),
        ];
        let flags = flags
            .iter()
            .enumerate()
            .fold(0u16, |bits, (i, on)| bits | u16::from(*on) << i);
        out[4..6].copy_from_slice(&flags.to_le_bytes());
        out[8..16].copy_from_slice(&self.first_id.to_le_bytes());
        out[16..24].copy_from_slice(&self.last_id.to_le_bytes());
        for (i, count) in self.counts.iter().enumerate() {
            out[24 + 4 * i..28 + 4 * i].copy_from_slice(&count.to_le_bytes());
        }
        out[36..44].copy_from_slice(&self.refs.to_le_bytes());
        if let Some(bbox) = self.bbox {
            for (i, value) in [bbox.min.lon, bbox.min.lat, bbox.max.lon, bbox.max.lat]
                .iter()
                .enumerate()
            {
                out[44 + 4 * i..48 + 4 * i].copy_from_slice(&value.to_le_bytes());
            }
        }
        let check = check_value(&out[..60], data_size);
        out[60..].copy_from_slice(&check.to_le_bytes());
        out
    }

    /// Reads a record that stands before a blob of `data_size` bytes. `None` if it is not one of ours or
    /// not of this blob.
    pub fn decode(bytes: &[u8], data_size: usize) -> Option<IndexRecord> {
        let bytes: &[u8; INDEX_RECORD_SIZE] = bytes.try_into().ok()?;
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if bytes[..3] != MAGIC || u32_at(60) != check_value(&bytes[..60], data_size) {
            return None;
        }
        let flag = |bit: u32| u32_at(4) & (1 << bit) != 0;
        Some(IndexRecord {
            kinds: KindSet::from_bits(bytes[3]),
            counts: [u32_at(24), u32_at(28), u32_at(32)],
            first_id: u64_at(8) as i64,
            last_id: u64_at(16) as i64,
            sorted: flag(0),
            unique: flag(1),
            has_tags: flag(2),
            has_metadata: flag(3),
            has_way_locations: flag(4),
            has_visibility: flag(5),
            refs: u64_at(36),
            bbox: flag(6).then(|| {
                let edge = |i: usize| u32_at(44 + 4 * i) as i32;
                BoundingBox::new(edge(0), edge(1), edge(2), edge(3))
            }),
        })
    }
}

/// The byte that the field `visible` of an Info message begins with: field 6, a number.
const VISIBLE_KEY: u8 = 6 << 3;

/// Walks the fields of an Info message, the first `len` of these bytes, and tells whether `visible` is among them.
#[inline]
fn has_visible_field(readable: &[u8], len: usize) -> Result<bool, WireError> {
    match bulk::has_number_field(readable, len, VISIBLE_KEY) {
        Some(visible) => Ok(visible),
        None => walk_info(&readable[..len]),
    }
}

fn walk_info(info: &[u8]) -> Result<bool, WireError> {
    let (mut rest, mut visible) = (info, false);
    while let [key, value @ ..] = rest {
        if key & 0x87 != 0 || *key == 0 {
            // Not a number, or a field of a high number, or of none.
            let mut fields = Fields::new(rest);
            while let Some((number, _)) = fields.try_next()? {
                visible |= number == 6;
            }
            break;
        }
        visible |= *key == VISIBLE_KEY;
        // Byte by byte: lengths are alike from one message to the next, so that they are foreseen, where a word of eight
        // bytes would have to be waited for.
        match value.iter().position(|byte| *byte < 0x80) {
            Some(end @ ..10) => rest = &value[end + 1..],
            Some(_) => return Err(WireError::VarintTooLong),
            None => return Err(WireError::Truncated),
        }
    }
    Ok(visible)
}

fn check_value(bytes: &[u8], data_size: usize) -> u32 {
    let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    let hash = bytes.iter().fold(0x811c_9dc5, step);
    (data_size as u64).to_le_bytes().iter().fold(hash, step)
}

/// What a record needs to know of a way or a relation.
#[derive(Debug, Clone, Copy, Default)]
pub struct Facts {
    /// The id.
    pub id: i64,
    /// Node references of a way, or members of a relation.
    pub refs: u64,
    /// Whether it has a tag.
    pub has_tags: bool,
    /// Whether it is a way that carries locations.
    pub has_locations: bool,
    /// Whether it has any metadata.
    pub has_metadata: bool,
    /// Whether it says that it is visible, or that it is not.
    pub has_visibility: bool,
}

/// A way's or a relation's message of which no more was read than a record needs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Walked<'a> {
    pub facts: Facts,
    /// The references of a way, not decoded, if they were asked for.
    pub refs: Refs<'a>,
    /// Whether there is a field of a way's locations, be it an empty one.
    pub location_field: bool,
}

impl<'a> Walked<'a> {
    /// Columns are counted, not decoded.
    fn of<B: Beside<'a>>(block: &'a Block, kind: Kind, message: &'a [u8]) -> Result<Self, BlockError> {
        let (mut id, mut facts) = (None, Facts::default());
        let (mut refs, mut location_field) = (Varints::default(), false);
        let counted = if kind == Kind::Way { 8 } else { 9 };
        let mut fields = Fields::new(message);
        while let Some(field @ Field { number, value, .. }) = fields.try_next_field()? {
            if B::REFS && number == 8 {
                refs.push(field)?;
            }
            if let (2 | 3 | 8 | 9 | 10, Value::Bytes([.., 0x80..=0xff])) = (number, value) {
                // The last varint of a column is cut off.
                return Err(WireError::Truncated.into());
            }
            match (number, value) {
                (1, value) => id = Some(value.varint()? as i64),
                (2, Value::Bytes(keys)) => facts.has_tags |= !keys.is_empty(),
                (2, _) => facts.has_tags = true,
                (4, value) => {
                    let info = value.bytes()?;
                    facts.has_metadata = !info.is_empty();
                    facts.has_visibility = has_visible_field(from_here(block.data(), info), info.len())?;
                }
                (9 | 10, value) if kind == Kind::Way => {
                    location_field = true;
                    facts.has_locations |= value != Value::Bytes(&[]);
                }
                (number, Value::Bytes(column)) if number == counted => {
                    facts.refs += bulk::count(from_here(block.data(), column), column.len()) as u64;
                }
                (number, _) if number == counted => facts.refs += 1,
                _ => {}
            }
        }
        facts.id = id.ok_or(BlockErrorKind::NoId)?;
        Ok(Walked {
            facts,
            refs: Refs::within(refs, block.data()),
            location_field,
        })
    }
}

/// What is read of a block while its record is made.
pub(crate) trait Beside<'a> {
    /// Whether it needs the references of ways.
    const REFS: bool = false;

    /// Reads dense nodes, and notes them for the record.
    fn dense(&mut self, dense: &DenseNodes<'a>, record: &mut IndexBuilder) -> Result<(), BlockError> {
        record.note_dense(dense)
    }

    /// Reads a plain node, which has been noted.
    fn node(&mut self, _: &Node<'a>) -> Result<(), BlockError> {
        Ok(())
    }

    /// Reads a way, which has been noted.
    fn way(&mut self, _: &Walked<'a>) -> Result<(), BlockError> {
        Ok(())
    }
}

/// The record is all there is to read.
struct Nothing;

impl Beside<'_> for Nothing {}

/// Something is read of ways.
struct Ways<F>(F);

impl<'a, F: FnMut(&Walked<'a>) -> Result<(), BlockError>> Beside<'a> for Ways<F> {
    const REFS: bool = true;

    #[inline(always)]
    fn way(&mut self, way: &Walked<'a>) -> Result<(), BlockError> {
        self.0(way)
    }
}

/// Gathers a record element by element, for those who walk a block anyway.
#[derive(Debug, Clone)]
pub struct IndexBuilder {
    pub(crate) record: IndexRecord,
    first: Option<(Kind, u64)>,
    last: (Kind, u64),
    previous: (Kind, u64),
}

impl Default for IndexBuilder {
    fn default() -> Self {
        let record = IndexRecord {
            sorted: true,
            unique: true,
            ..IndexRecord::default()
        };
        IndexBuilder {
            record,
            first: None,
            last: (Kind::Node, 0),
            previous: (Kind::Node, 0),
        }
    }
}

impl IndexBuilder {
    #[inline(always)]
    pub(crate) fn note(&mut self, kind: Kind, id: i64) {
        let key = (kind, id_order(id));
        self.record.counts[kind as usize] += 1;
        match self.first {
            None => {
                self.first = Some(key);
                self.last = key;
                (self.record.first_id, self.record.last_id) = (id, id);
            }
            Some(first) => {
                if key <= self.previous {
                    self.record.unique = false;
                    self.record.sorted &= key == self.previous;
                }
                if key < first {
                    self.first = Some(key);
                    self.record.first_id = id;
                }
                if key >= self.last {
                    self.last = key;
                    self.record.last_id = id;
                }
            }
        }
        self.previous = key;
    }

    /// Notes nodes with these ids.
    pub(crate) fn note_ids(&mut self, ids: &[i64]) {
        match ids {
            // Ascending ones are told by their ends.
            [first, .., last] if *first > 0 && ids.is_sorted_by(|a, b| a < b) => {
                self.note(Kind::Node, *first);
                self.note(Kind::Node, *last);
                self.record.counts[0] += ids.len() as u32 - 2;
            }
            _ => ids.iter().for_each(|id| self.note(Kind::Node, *id)),
        }
    }

    #[inline]
    pub(crate) fn note_location(&mut self, location: Location) {
        match &mut self.record.bbox {
            Some(bbox) => bbox.extend(location),
            none => *none = Some(BoundingBox::of(location)),
        }
    }

    /// Notes a way or a relation.
    #[inline]
    pub fn note_facts(&mut self, kind: Kind, facts: &Facts) {
        self.note(kind, facts.id);
        self.record.refs += facts.refs;
        self.record.has_tags |= facts.has_tags;
        self.record.has_way_locations |= facts.has_locations;
        self.record.has_metadata |= facts.has_metadata;
        self.record.has_visibility |= facts.has_visibility;
    }

    /// Notes a plain node.
    pub fn note_plain_node(&mut self, node: &Node<'_>) -> Result<(), BlockError> {
        self.note(Kind::Node, node.id());
        self.record.has_tags |= !node.tags().is_empty();
        if let MetadataSource::Info(Some(info @ [_, ..]), _) = node.metadata {
            self.record.has_metadata = true;
            self.record.has_visibility |= has_visible_field(info, info.len())?;
        }
        if let Some(location) = node.location()? {
            self.note_location(location);
        }
        Ok(())
    }

    /// Notes a column of node ids: at once if it is ascending, as it nearly always is.
    fn note_dense_ids(&mut self, column: Varints<'_>) -> Result<(), BlockError> {
        let mut rest = column;
        let Some(first) = rest.try_next()?.map(zigzag_decode) else {
            return Ok(());
        };
        let (sum, least, count) = rest.fold((0i64, i64::MAX, 0u32), |(sum, least, count), delta| {
            let delta = zigzag_decode(delta);
            (sum.wrapping_add(delta), delta.min(least), count + 1)
        })?;
        let last = first.wrapping_add(sum);
        // Positive differences cannot have wrapped around unnoticed: there are too few of them.
        let in_reach = i64::MAX / (i64::from(count) + 1);
        if first > 0 && least > 0 && first < in_reach && last > first && last < in_reach {
            self.note(Kind::Node, first);
            if count > 0 {
                self.note(Kind::Node, last);
                self.record.counts[0] += count - 1;
            }
            return Ok(());
        }
        Ok(column.for_each_sum(|id| self.note(Kind::Node, id))?)
    }

    /// Notes of dense nodes what does not depend on ids and locations.
    pub(crate) fn note_dense_facts(&mut self, dense: &DenseNodes<'_>) {
        self.record.has_tags |= !dense.is_untagged();
        self.record.has_metadata |= dense.has_metadata();
        self.record.has_visibility |= dense.has_visibility();
    }

    /// Notes dense nodes.
    pub fn note_dense(&mut self, dense: &DenseNodes<'_>) -> Result<(), BlockError> {
        self.note_dense_facts(dense);
        self.note_dense_ids(dense.ids().column())?;
        if dense.has_visibility() {
            // Deleted nodes have no location, whatever stands in the columns.
            for node in dense.clone() {
                if let Some(location) = node?.location()? {
                    self.note_location(location);
                }
            }
            return Ok(());
        }
        let scale = dense.scale();
        let (mut lats, mut lons) = dense.raw_locations();
        const NONE: i64 = i32::MAX as i64;
        if !scale.is_plain() {
            while let (Some(lat), Some(lon)) = (lats.try_next()?, lons.try_next()?) {
                if let Some(location) = scale.location(lat, lon)? {
                    self.note_location(location);
                }
            }
            return Ok(());
        }
        let extremes = |column: Varints<'_>| -> Result<(i64, i64), BlockError> {
            Ok(column.fold_sums((i64::MAX, i64::MIN), |(low, high), value| {
                (value.min(low), value.max(high))
            })?)
        };
        let (south, north) = extremes(lats.column())?;
        let (west, east) = extremes(lons.column())?;
        if north == NONE && east == NONE {
            // Some node may be without a location, which must not count.
            while let (Some(lat), Some(lon)) = (lats.try_next()?, lons.try_next()?) {
                if let Some(location) = scale.location(lat, lon)? {
                    self.note_location(location);
                }
            }
        } else if south <= north {
            let corner = |lat: i64, lon: i64| match (i32::try_from(lat), i32::try_from(lon)) {
                (Ok(lat), Ok(lon)) => Ok(Location { lon, lat }),
                _ => Err(BlockErrorKind::Coordinate),
            };
            self.note_location(corner(south, west)?);
            self.note_location(corner(north, east)?);
        }
        Ok(())
    }

    /// The record of what was noted.
    pub fn finish(mut self) -> IndexRecord {
        for kind in Kind::ALL {
            if self.record.counts[kind as usize] > 0 {
                self.record.kinds.insert(kind);
            }
        }
        self.record
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn order_within_a_blob() {
        let record = |ids: &[(Kind, i64)]| {
            let mut builder = IndexBuilder::default();
            ids.iter().for_each(|(kind, id)| builder.note(*kind, *id));
            builder.finish()
        };
        let sorted = record(&[
            (Kind::Node, -1),
            (Kind::Node, -2),
            (Kind::Node, 1),
            (Kind::Way, 1),
        ]);
        assert!(sorted.sorted && sorted.unique);
        assert_eq!((sorted.first_id, sorted.last_id), (-1, 1));
        let twice = record(&[(Kind::Way, 5), (Kind::Way, 5)]);
        assert!(twice.sorted && !twice.unique);
        let wild = record(&[(Kind::Way, 5), (Kind::Node, 7), (Kind::Way, 3)]);
        assert!(!wild.sorted && !wild.unique);
        assert_eq!(wild.first(), Some(ElementId::new(Kind::Node, 7)));
        assert_eq!(wild.last(), Some(ElementId::new(Kind::Way, 5)));
        assert_eq!(record(&[]).first(), None);
    }

    #[test]
    fn a_record_belongs_to_its_blob() {
        let record = IndexRecord {
            first_id: -5,
            refs: 7,
            ..IndexRecord::default()
        };
        let bytes = record.encode(1000);
        assert_eq!(IndexRecord::decode(&bytes, 1000), Some(record));
        assert_eq!(IndexRecord::decode(&bytes, 1001), None);
        assert_eq!(IndexRecord::decode(b"somebody else's", 1000), None);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(IndexRecord::decode(&flipped, 1000), None, "bit {bit}");
        }
    }

    #[test]
    fn a_field_of_no_number_is_damage() {
        assert_eq!(walk_info(&[0x30, 1, 0x00, 1]), Err(WireError::WireType(0)));
        assert_eq!(walk_info(&[0x08, 2, 0x30, 1]), Ok(true));
    }

    proptest! {
        /// The quick ways to go over an Info message and the general one agree, on damaged bytes, too.
        #[test]
        fn visibility_is_seen(info in proptest::collection::vec(prop_oneof![Just(0x30u8), Just(0x08), Just(0x80), any::<u8>()], 0..30)) {
            let slow = || -> Result<bool, WireError> {
                let (mut fields, mut visible) = (Fields::new(&info), false);
                while let Some((number, _)) = fields.try_next()? {
                    visible |= number == 6;
                }
                Ok(visible)
            };
            prop_assert_eq!(walk_info(&info).ok(), slow().ok());
            let mut readable = info.clone();
            readable.resize(40, 0x30);
            prop_assert_eq!(has_visible_field(&readable, info.len()).ok(), slow().ok());
        }

        #[test]
        fn records_read_back(kinds in 0u8..8, counts: [u32; 3], ids: (i64, i64), flags: [bool; 6], refs: u64, bbox: Option<[i32; 4]>, size: u32) {
            let record = IndexRecord {
                kinds: KindSet::from_bits(kinds), counts, first_id: ids.0, last_id: ids.1,
                sorted: flags[0], unique: flags[1], has_tags: flags[2], has_metadata: flags[3],
                has_way_locations: flags[4], has_visibility: flags[5], refs,
                bbox: bbox.map(|[a, b, c, d]| BoundingBox::new(a, b, c, d)),
            };
            prop_assert_eq!(IndexRecord::decode(&record.encode(size as usize), size as usize), Some(record));
        }
    }
}
