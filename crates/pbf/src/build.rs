//! Building PrimitiveBlocks.
//!
//! A [`BlockBuilder`] takes elements one by one, from plain values or from another block, and gives the bytes
//! of a block with its own string table. Nodes are written dense. A group ends where the kind changes or, for
//! nodes, where the set of metadata values that are there changes: columns cannot have gaps, and a missing
//! version must not become 0.
//!
//! Copying from a source block translates string numbers through a table, so that each string of a source is
//! hashed once, and takes references, members and locations over as bytes.

use osmill_model::{ElementId, Kind, Location, Member, Metadata, Tag};

use crate::arrays::{MessageArrays, NodeArrays};
use crate::block::Block;
use crate::element::{Element, Node, RawMetadata, RawTags, Relation, Way};
use crate::error::{BlockError, BlockErrorKind};
use crate::index::{IndexBuilder, IndexRecord};
use crate::strings::StringTable;
use crate::wire::{
    Varints, bytes_field_len, write_bytes_field, write_deltas, write_packed_field, write_sint, write_varint,
    write_varint_field, write_varints,
};

/// Elements in a block unless the caller wants another number: what other writers take.
pub const ELEMENTS_PER_BLOCK: usize = 8000;
/// Bytes from which on a block counts as full, well under the limit of readers.
const BYTES_PER_BLOCK: usize = 12 << 20;

/// Which metadata values are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetadataFields {
    /// Keep versions.
    pub version: bool,
    /// Keep timestamps.
    pub timestamp: bool,
    /// Keep changeset numbers.
    pub changeset: bool,
    /// Keep user numbers.
    pub uid: bool,
    /// Keep user names.
    pub user: bool,
    /// Keep visibility.
    pub visible: bool,
}

impl MetadataFields {
    /// Everything.
    pub const ALL: Self = MetadataFields {
        version: true,
        timestamp: true,
        changeset: true,
        uid: true,
        user: true,
        visible: true,
    };
    /// Nothing.
    pub const NONE: Self = MetadataFields {
        version: false,
        timestamp: false,
        changeset: false,
        uid: false,
        user: false,
        visible: false,
    };

    /// What both keep.
    pub fn and(self, other: Self) -> Self {
        MetadataFields {
            version: self.version && other.version,
            timestamp: self.timestamp && other.timestamp,
            changeset: self.changeset && other.changeset,
            uid: self.uid && other.uid,
            user: self.user && other.user,
            visible: self.visible && other.visible,
        }
    }

    /// The metadata with what is not kept made absent.
    pub fn filter(self, metadata: Metadata<'_>) -> Metadata<'_> {
        Metadata {
            version: metadata.version.filter(|_| self.version),
            timestamp: metadata.timestamp.filter(|_| self.timestamp),
            changeset: metadata.changeset.filter(|_| self.changeset),
            uid: metadata.uid.filter(|_| self.uid),
            user: metadata.user.filter(|_| self.user),
            visible: metadata.visible.filter(|_| self.visible),
        }
    }

    fn apply(self, metadata: RawMetadata) -> RawMetadata {
        RawMetadata {
            version: metadata.version.filter(|_| self.version),
            timestamp: metadata.timestamp.filter(|_| self.timestamp),
            changeset: metadata.changeset.filter(|_| self.changeset),
            uid: metadata.uid.filter(|_| self.uid),
            user_sid: metadata.user_sid.filter(|_| self.user),
            visible: metadata.visible.filter(|_| self.visible),
        }
    }
}

impl Default for MetadataFields {
    fn default() -> Self {
        MetadataFields::ALL
    }
}

/// The open group of dense nodes.
#[derive(Debug, Default)]
struct DenseColumns {
    mask: u8,
    ids: Vec<u8>,
    lats: Vec<u8>,
    lons: Vec<u8>,
    tags: Vec<u8>,
    any_tag: bool,
    info: [Vec<u8>; 6],
    last: [i64; 7],
}

impl DenseColumns {
    fn clear(&mut self) {
        for column in [&mut self.ids, &mut self.lats, &mut self.lons, &mut self.tags] {
            column.clear();
        }
        self.info.iter_mut().for_each(Vec::clear);
        self.any_tag = false;
        self.last = [0; 7];
    }

    fn len(&self) -> usize {
        self.ids.len()
            + self.lats.len()
            + self.lons.len()
            + self.tags.len()
            + self.info.iter().map(Vec::len).sum::<usize>()
    }

    #[inline]
    fn delta(&mut self, slot: usize, value: i64) -> i64 {
        let delta = value.wrapping_sub(self.last[slot]);
        self.last[slot] = value;
        delta
    }

    #[inline]
    fn push_metadata(&mut self, metadata: &RawMetadata) {
        if let Some(version) = metadata.version {
            write_varint(&mut self.info[0], i64::from(version) as u64);
        }
        if let Some(timestamp) = metadata.timestamp {
            let delta = self.delta(3, timestamp.0);
            write_sint(&mut self.info[1], delta);
        }
        if let Some(changeset) = metadata.changeset {
            let delta = self.delta(4, changeset);
            write_sint(&mut self.info[2], delta);
        }
        if let Some(uid) = metadata.uid {
            let delta = self.delta(5, i64::from(uid));
            write_sint(&mut self.info[3], delta);
        }
        if let Some(sid) = metadata.user_sid {
            let delta = self.delta(6, sid as i64);
            write_sint(&mut self.info[4], delta);
        }
        if let Some(visible) = metadata.visible {
            self.info[5].push(u8::from(visible));
        }
    }

    fn info_len(&self) -> usize {
        self.info.iter().map(|column| packed_len(column)).sum()
    }

    /// Bytes of the DenseNodes message.
    fn message_len(&self) -> usize {
        let info = self.info_len();
        let columns = [&self.ids, &self.lats, &self.lons];
        columns.iter().map(|column| packed_len(column)).sum::<usize>()
            + if info > 0 { bytes_field_len(info) } else { 0 }
            + if self.any_tag { packed_len(&self.tags) } else { 0 }
    }

    /// Appends the DenseNodes message.
    fn encode(&self, out: &mut Vec<u8>) {
        write_packed_field(out, 1, &self.ids);
        let info = self.info_len();
        if info > 0 {
            write_length(out, 5, info);
            for (i, column) in self.info.iter().enumerate() {
                write_packed_field(out, i as u32 + 1, column);
            }
        }
        write_packed_field(out, 8, &self.lats);
        write_packed_field(out, 9, &self.lons);
        if self.any_tag {
            write_packed_field(out, 10, &self.tags);
        }
    }
}

/// Bytes of a packed column's field, which is left out if there is nothing in it.
fn packed_len(column: &[u8]) -> usize {
    match column {
        [] => 0,
        column => bytes_field_len(column.len()),
    }
}

/// Appends the beginning of a length-delimited field.
fn write_length(out: &mut Vec<u8>, field: u32, len: usize) {
    write_varint(out, u64::from(field) << 3 | 2);
    write_varint(out, len as u64);
}

fn mask_of(metadata: &RawMetadata) -> u8 {
    u8::from(metadata.version.is_some())
        | u8::from(metadata.timestamp.is_some()) << 1
        | u8::from(metadata.changeset.is_some()) << 2
        | u8::from(metadata.uid.is_some()) << 3
        | u8::from(metadata.user_sid.is_some()) << 4
        | u8::from(metadata.visible.is_some()) << 5
}

/// String numbers of a source block, translated into the builder's.
#[derive(Debug, Default)]
struct Translation {
    serial: u64,
    /// Number + 1, or 0 where it has not been needed yet.
    numbers: Vec<u32>,
    /// Strings that are about to get a number, and their hashes.
    pending: Vec<(u32, u32)>,
}

/// Instead of a number: the string is pending.
const PENDING: u32 = u32::MAX;

/// Builds one block after another. See the module's documentation.
#[derive(Debug)]
pub struct BlockBuilder {
    fields: MetadataFields,
    strings: StringTable,
    translation: Translation,
    groups: Vec<u8>,
    open: Option<Kind>,
    dense: DenseColumns,
    /// Messages of the open group of ways or relations.
    body: Vec<u8>,
    index: IndexBuilder,
    message: Vec<u8>,
    columns: [Vec<u8>; 3],
}

impl Default for BlockBuilder {
    fn default() -> Self {
        BlockBuilder::new(MetadataFields::ALL)
    }
}

impl BlockBuilder {
    /// A builder that writes these metadata values of the elements it is given.
    pub fn new(fields: MetadataFields) -> Self {
        BlockBuilder {
            fields,
            strings: StringTable::new(),
            translation: Translation::default(),
            groups: Vec::new(),
            open: None,
            dense: DenseColumns::default(),
            body: Vec::new(),
            index: IndexBuilder::default(),
            message: Vec::new(),
            columns: Default::default(),
        }
    }

    /// How many elements the block has so far.
    pub fn len(&self) -> usize {
        self.index.record.count() as usize
    }

    /// Whether the block has no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// About how many bytes the block will have.
    pub fn size(&self) -> usize {
        self.groups.len() + self.body.len() + self.dense.len() + self.strings.encoded_len()
    }

    /// Whether the block should be finished before another element is added.
    pub fn is_full(&self) -> bool {
        self.len() >= ELEMENTS_PER_BLOCK || self.size() >= BYTES_PER_BLOCK
    }

    /// The kind of the elements added last.
    pub fn kind(&self) -> Option<Kind> {
        self.open
    }

    fn begin(&mut self, kind: Kind, mask: u8) {
        if self.open == Some(kind) && (kind != Kind::Node || self.dense.mask == mask) {
            return;
        }
        self.close_group();
        self.open = Some(kind);
        self.dense.mask = mask;
    }

    fn close_group(&mut self) {
        match self.open.take() {
            None => {}
            Some(Kind::Node) => {
                let message = self.dense.message_len();
                write_length(&mut self.groups, 2, bytes_field_len(message));
                write_length(&mut self.groups, 2, message);
                self.dense.encode(&mut self.groups);
                self.dense.clear();
            }
            Some(_) => write_bytes_field(&mut self.groups, 2, &self.body),
        }
        self.body.clear();
    }

    /// Makes the builder's numbers for the strings of this block.
    fn open_source(&mut self, block: &Block) -> Result<(), BlockError> {
        if self.translation.serial != block.serial() {
            self.translation.numbers.clear();
            self.translation.numbers.resize(block.string_count()?, 0);
            self.translation.serial = block.serial();
        }
        Ok(())
    }

    #[inline]
    fn translate(&mut self, block: &Block, sid: u64) -> Result<u32, BlockErrorKind> {
        match self.translation.numbers.get(sid as usize) {
            Some(&number) if number != 0 => Ok(number - 1),
            _ => {
                let number = self.strings.number(block.string(sid)?);
                self.translation.numbers[sid as usize] = number + 1;
                Ok(number)
            }
        }
    }

    /// Translates all these strings, in their order: many are several times faster than one by one. An unknown one is an
    /// error, and none is translated.
    fn translate_all(
        &mut self,
        block: &Block,
        sids: impl Iterator<Item = u64>,
    ) -> Result<(), BlockErrorKind> {
        let Translation { numbers, pending, .. } = &mut self.translation;
        pending.clear();
        for sid in sids {
            match numbers.get_mut(sid as usize) {
                Some(number @ 0) => {
                    *number = PENDING;
                    pending.push((sid as u32, self.strings.hash(block.string(sid)?)));
                }
                Some(_) => {}
                None => {
                    pending.iter().for_each(|(sid, _)| numbers[*sid as usize] = 0);
                    block.string(sid)?;
                }
            }
        }
        self.strings.fetch(pending.iter().map(|(_, hash)| *hash));
        for (sid, hash) in pending.iter() {
            let number = self.strings.number_hashed(block.string(u64::from(*sid))?, *hash);
            numbers[*sid as usize] = number + 1;
        }
        Ok(())
    }

    fn own_metadata(&mut self, metadata: &Metadata<'_>) -> RawMetadata {
        let user = metadata.user.filter(|_| self.fields.user);
        self.fields.apply(RawMetadata {
            version: metadata.version,
            timestamp: metadata.timestamp,
            changeset: metadata.changeset,
            uid: metadata.uid,
            user_sid: user.map(|user| u64::from(self.strings.number(user))),
            visible: metadata.visible,
        })
    }

    fn translated_metadata(
        &mut self,
        block: &Block,
        metadata: RawMetadata,
    ) -> Result<RawMetadata, BlockErrorKind> {
        let mut metadata = self.fields.apply(metadata);
        if let Some(sid) = metadata.user_sid {
            metadata.user_sid = Some(u64::from(self.translate(block, sid)?));
        }
        Ok(metadata)
    }

    /// Adds a node. `location` is `None` for a deleted node or one whose location is not known.
    pub fn add_node<'t>(
        &mut self,
        id: i64,
        location: Option<Location>,
        tags: impl IntoIterator<Item = Tag<'t>>,
        metadata: &Metadata<'_>,
    ) {
        let metadata = self.own_metadata(metadata);
        self.begin(Kind::Node, mask_of(&metadata));
        for tag in tags {
            let (key, value) = (self.strings.number(tag.key), self.strings.number(tag.value));
            self.push_dense_tag(key, value);
        }
        self.finish_node(id, location, &metadata);
    }

    #[inline]
    fn push_dense_tag(&mut self, key: u32, value: u32) {
        // The empty string is number 0, which ends the tags of a node where a key stands. An empty key is
        // kept under a second number.
        let key = if key == 0 {
            self.strings.number_of_second_empty()
        } else {
            key
        };
        write_varint(&mut self.dense.tags, u64::from(key));
        write_varint(&mut self.dense.tags, u64::from(value));
        self.dense.any_tag = true;
    }

    #[inline]
    fn finish_node(&mut self, id: i64, location: Option<Location>, metadata: &RawMetadata) {
        self.dense.tags.push(0);
        let delta = self.dense.delta(0, id);
        write_sint(&mut self.dense.ids, delta);
        let Location { lon, lat } = location.unwrap_or(Location::new(i32::MAX, i32::MAX));
        let delta = self.dense.delta(1, i64::from(lat));
        write_sint(&mut self.dense.lats, delta);
        let delta = self.dense.delta(2, i64::from(lon));
        write_sint(&mut self.dense.lons, delta);
        self.dense.push_metadata(metadata);
        self.index.note(Kind::Node, id);
        if let Some(location) = location {
            self.index.note_location(location);
        }
        let record = &mut self.index.record;
        record.has_tags |= self.dense.any_tag;
        record.has_metadata |= self.dense.mask != 0;
        record.has_visibility |= metadata.visible.is_some();
    }

    /// Adds a way. `locations`, where given, holds one entry for each reference.
    ///
    /// # Panics
    ///
    /// If `locations` is given with another length than `refs`.
    pub fn add_way<'t>(
        &mut self,
        id: i64,
        refs: &[i64],
        locations: Option<&[Option<Location>]>,
        tags: impl IntoIterator<Item = Tag<'t>>,
        metadata: &Metadata<'_>,
    ) {
        let metadata = self.own_metadata(metadata);
        self.begin(Kind::Way, 0);
        self.begin_message(id);
        self.put_tags(tags);
        self.put_metadata(&metadata);
        self.put_deltas(8, refs.iter().copied());
        if let Some(locations) = locations {
            assert_eq!(locations.len(), refs.len(), "one location for each reference");
            self.put_locations(locations.iter().copied());
        }
        self.index.record.has_way_locations |= locations.is_some_and(|l| !l.is_empty());
        self.finish_message(Kind::Way, id, refs.len());
    }

    /// Adds a relation.
    pub fn add_relation<'t>(
        &mut self,
        id: i64,
        members: &[Member<'_>],
        tags: impl IntoIterator<Item = Tag<'t>>,
        metadata: &Metadata<'_>,
    ) {
        let metadata = self.own_metadata(metadata);
        self.begin(Kind::Relation, 0);
        self.begin_message(id);
        self.put_tags(tags);
        self.put_metadata(&metadata);
        let [roles, kinds, _] = &mut self.columns;
        roles.clear();
        kinds.clear();
        for member in members {
            write_varint(roles, u64::from(self.strings.number(member.role)));
            kinds.push(member.element.kind as u8);
        }
        write_packed_field(&mut self.message, 8, roles);
        self.put_deltas(9, members.iter().map(|m| m.element.id));
        write_packed_field(&mut self.message, 10, &self.columns[1]);
        self.finish_message(Kind::Relation, id, members.len());
    }

    fn begin_message(&mut self, id: i64) {
        self.message.clear();
        write_varint_field(&mut self.message, 1, id as u64);
    }

    fn put_tags<'t>(&mut self, tags: impl IntoIterator<Item = Tag<'t>>) {
        let [keys, values, _] = &mut self.columns;
        keys.clear();
        values.clear();
        for tag in tags {
            write_varint(keys, u64::from(self.strings.number(tag.key)));
            write_varint(values, u64::from(self.strings.number(tag.value)));
        }
        self.index.record.has_tags |= !keys.is_empty();
        write_packed_field(&mut self.message, 2, keys);
        write_packed_field(&mut self.message, 3, values);
    }

    fn put_metadata(&mut self, metadata: &RawMetadata) {
        if mask_of(metadata) == 0 {
            return;
        }
        let info = &mut self.columns[2];
        info.clear();
        if let Some(version) = metadata.version {
            write_varint_field(info, 1, i64::from(version) as u64);
        }
        if let Some(timestamp) = metadata.timestamp {
            write_varint_field(info, 2, timestamp.0 as u64);
        }
        if let Some(changeset) = metadata.changeset {
            write_varint_field(info, 3, changeset as u64);
        }
        if let Some(uid) = metadata.uid {
            write_varint_field(info, 4, i64::from(uid) as u64);
        }
        if let Some(sid) = metadata.user_sid {
            write_varint_field(info, 5, sid);
        }
        if let Some(visible) = metadata.visible {
            write_varint_field(info, 6, u64::from(visible));
        }
        write_bytes_field(&mut self.message, 4, info);
        self.index.record.has_metadata = true;
        self.index.record.has_visibility |= metadata.visible.is_some();
    }

    fn put_deltas(&mut self, field: u32, values: impl Iterator<Item = i64>) {
        let column = &mut self.columns[0];
        column.clear();
        let mut last = 0i64;
        for value in values {
            write_sint(column, value.wrapping_sub(last));
            last = value;
        }
        write_packed_field(&mut self.message, field, column);
    }

    fn put_locations(&mut self, locations: impl Iterator<Item = Option<Location>>) {
        let [lats, lons, _] = &mut self.columns;
        lats.clear();
        lons.clear();
        encode_way_locations(locations, lats, lons);
        write_packed_field(&mut self.message, 9, lats);
        write_packed_field(&mut self.message, 10, lons);
    }

    fn finish_message(&mut self, kind: Kind, id: i64, refs: usize) {
        let field = if kind == Kind::Way { 3 } else { 4 };
        write_bytes_field(&mut self.body, field, &self.message);
        self.index.note(kind, id);
        self.index.record.refs += refs as u64;
    }

    /// Adds an element of another block as it is there, but for metadata that the builder leaves out.
    ///
    /// O(bytes of the element); each string of the other block is looked up once.
    pub fn copy(&mut self, element: &Element<'_>) -> Result<(), BlockError> {
        match element {
            Element::Node(node) => self.copy_node(node),
            Element::Way(way) => self.copy_way(way),
            Element::Relation(relation) => self.copy_relation(relation),
        }
        .map_err(|e| BlockError {
            element: e.element.or(Some(element.element_id())),
            what: e.what,
        })
    }

    fn copy_node(&mut self, node: &Node<'_>) -> Result<(), BlockError> {
        self.open_source(node.block)?;
        let location = node.location()?;
        let metadata = self.translated_metadata(node.block, node.raw_metadata()?)?;
        self.begin(Kind::Node, mask_of(&metadata));
        let start = self.dense.tags.len();
        if let Err(error) = self.copy_dense_tags(node) {
            self.dense.tags.truncate(start);
            return Err(error);
        }
        self.finish_node(node.id, location, &metadata);
        Ok(())
    }

    /// Adds a range of a block's nodes that were read into arrays; like [`BlockBuilder::copy`] for each of
    /// them, and several times faster.
    ///
    /// # Panics
    ///
    /// If the range reaches beyond the arrays.
    pub fn copy_nodes(
        &mut self,
        block: &Block,
        columns: &NodeArrays,
        range: std::ops::Range<usize>,
    ) -> Result<(), BlockError> {
        if range.is_empty() {
            return Ok(());
        }
        self.open_source(block)?;
        let present = |array: &[i64], keep: bool| keep && !array.is_empty();
        let fields = self.fields;
        let version = present(&columns.versions, fields.version);
        let timestamp = present(&columns.timestamps, fields.timestamp);
        let changeset = present(&columns.changesets, fields.changeset);
        let uid = present(&columns.uids, fields.uid);
        let user = present(&columns.user_sids, fields.user);
        let mask = [version, timestamp, changeset, uid, user];
        let mask = mask
            .iter()
            .enumerate()
            .fold(0, |mask, (i, on)| mask | u8::from(*on) << i);
        // Strings first: an unknown one must not leave half a node behind.
        let tags = columns.tag_starts[range.start] as usize..columns.tag_starts[range.end] as usize;
        let users = match user {
            true => &columns.user_sids[range.clone()],
            false => &[],
        };
        let tags = columns.tags[tags].iter().map(|sid| u64::from(*sid));
        self.translate_all(block, tags.chain(users.iter().map(|sid| *sid as u64)))
            .map_err(|e| columns.error_of(block, range.clone(), user).unwrap_or(e.into()))?;
        self.begin(Kind::Node, mask);
        let DenseColumns {
            ids,
            lats,
            lons,
            last,
            ..
        } = &mut self.dense;
        last[0] = write_deltas(ids, last[0], columns.ids[range.clone()].iter().copied());
        last[1] = write_deltas(lats, last[1], columns.lats[range.clone()].iter().copied());
        last[2] = write_deltas(lons, last[2], columns.lons[range.clone()].iter().copied());
        if version {
            let versions = columns.versions[range.clone()].iter();
            write_varints(&mut self.dense.info[0], versions.map(|version| *version as u64));
        }
        for (on, slot, values) in [
            (timestamp, 1, &columns.timestamps),
            (changeset, 2, &columns.changesets),
            (uid, 3, &columns.uids),
        ] {
            if on {
                let last = &mut self.dense.last[slot + 2];
                let values = values[range.clone()].iter().copied();
                *last = write_deltas(&mut self.dense.info[slot], *last, values);
            }
        }
        if user {
            let numbers = &self.translation.numbers;
            let sids = columns.user_sids[range.clone()].iter();
            let sids = sids.map(|sid| i64::from(numbers[*sid as usize] - 1));
            self.dense.last[6] = write_deltas(&mut self.dense.info[4], self.dense.last[6], sids);
        }
        for starts in columns.tag_starts[range.start..=range.end].windows(2) {
            let tags = starts[0] as usize..starts[1] as usize;
            for pair in columns.tags[tags].chunks_exact(2) {
                let number = |sid: u32| self.translation.numbers[sid as usize] - 1;
                let (key, value) = (number(pair[0]), number(pair[1]));
                self.push_dense_tag(key, value);
            }
            self.dense.tags.push(0);
        }
        self.index.note_ids(&columns.ids[range.clone()]);
        let none = i64::from(i32::MAX);
        let (lats, lons) = (&columns.lats[range.clone()], &columns.lons[range]);
        let extremes = |values: &[i64]| {
            let pick = |(low, high): (i64, i64), value: &i64| (low.min(*value), high.max(*value));
            values.iter().fold((i64::MAX, i64::MIN), pick)
        };
        let ((south, north), (west, east)) = (extremes(lats), extremes(lons));
        if north == none && east == none {
            // Some node may be without a location, which must not count.
            for (lat, lon) in lats.iter().zip(lons).filter(|at| *at != (&none, &none)) {
                self.index.note_location(Location::new(*lon as i32, *lat as i32));
            }
        } else {
            self.index.note_location(Location::new(west as i32, south as i32));
            self.index.note_location(Location::new(east as i32, north as i32));
        }
        let record = &mut self.index.record;
        record.has_tags |= self.dense.any_tag;
        record.has_metadata |= mask != 0;
        Ok(())
    }

    /// Adds a way or a relation of a block whose messages were found; like [`BlockBuilder::copy`].
    ///
    /// # Panics
    ///
    /// If there are not so many.
    pub fn copy_message(
        &mut self,
        block: &Block,
        kind: Kind,
        messages: &MessageArrays,
        at: usize,
    ) -> Result<(), BlockError> {
        let (start, end) = messages.places[at];
        let message = &block.data()[start as usize..end as usize];
        let copied = match kind {
            Kind::Way => Way::parse(block, message).and_then(|way| self.copy_way(&way)),
            _ => Relation::parse(block, message).and_then(|relation| self.copy_relation(&relation)),
        };
        copied.map_err(|e| BlockError {
            element: e.element.or(Some(ElementId::new(kind, messages.ids[at]))),
            what: e.what,
        })
    }

    fn copy_dense_tags(&mut self, node: &Node<'_>) -> Result<(), BlockError> {
        let mut tags = node.tags;
        while let Some((key, value)) = tags.try_next()? {
            let key = self.translate(node.block, key)?;
            let value = self.translate(node.block, value)?;
            self.push_dense_tag(key, value);
        }
        Ok(())
    }

    fn copy_way(&mut self, way: &Way<'_>) -> Result<(), BlockError> {
        let metadata = self.copy_head(Kind::Way, way.block, way.id, way.tags, way.info)?;
        self.put_metadata(&metadata);
        self.copy_column(8, way.refs)?;
        if way.has_locations() {
            if way.block.scale().is_plain() {
                self.copy_column(9, way.lats)?;
                self.copy_column(10, way.lons)?;
            } else {
                let locations = way.locations().collect::<Result<Vec<_>, _>>()?;
                self.put_locations(locations.into_iter());
            }
            self.index.record.has_way_locations = true;
        }
        self.finish_message(Kind::Way, way.id, way.ref_count());
        Ok(())
    }

    /// Adds a way of another block as it is there, but with these locations: one for each reference.
    pub fn copy_way_with_locations(
        &mut self,
        way: &Way<'_>,
        locations: impl Iterator<Item = Option<Location>>,
    ) -> Result<(), BlockError> {
        let metadata = self.copy_head(Kind::Way, way.block, way.id, way.tags, way.info)?;
        self.put_metadata(&metadata);
        self.copy_column(8, way.refs)?;
        self.put_locations(locations);
        let refs = way.ref_count();
        self.index.record.has_way_locations |= refs > 0;
        self.finish_message(Kind::Way, way.id, refs);
        Ok(())
    }

    fn copy_relation(&mut self, relation: &Relation<'_>) -> Result<(), BlockError> {
        let metadata = self.copy_head(
            Kind::Relation,
            relation.block,
            relation.id,
            relation.tags,
            relation.info,
        )?;
        self.put_metadata(&metadata);
        let mut roles = relation.roles;
        self.columns[0].clear();
        while let Some(role) = roles.try_next()? {
            let role = self.translate(relation.block, role)?;
            write_varint(&mut self.columns[0], u64::from(role));
        }
        write_packed_field(&mut self.message, 8, &self.columns[0]);
        self.copy_column(9, relation.ids)?;
        self.copy_column(10, relation.kinds)?;
        self.finish_message(Kind::Relation, relation.id, relation.member_count());
        Ok(())
    }

    fn copy_head(
        &mut self,
        kind: Kind,
        block: &Block,
        id: i64,
        mut tags: RawTags<'_>,
        info: Option<&[u8]>,
    ) -> Result<RawMetadata, BlockError> {
        self.open_source(block)?;
        let metadata = self.translated_metadata(block, RawMetadata::read(block, info)?)?;
        self.begin(kind, 0);
        self.begin_message(id);
        self.columns[0].clear();
        self.columns[1].clear();
        while let Some((key, value)) = tags.try_next()? {
            let (key, value) = (self.translate(block, key)?, self.translate(block, value)?);
            write_varint(&mut self.columns[0], u64::from(key));
            write_varint(&mut self.columns[1], u64::from(value));
        }
        self.index.record.has_tags |= !self.columns[0].is_empty();
        write_packed_field(&mut self.message, 2, &self.columns[0]);
        write_packed_field(&mut self.message, 3, &self.columns[1]);
        Ok(metadata)
    }

    fn copy_column(&mut self, field: u32, mut column: Varints<'_>) -> Result<(), BlockError> {
        match column.as_packed() {
            Some(bytes) => write_packed_field(&mut self.message, field, bytes),
            None => {
                self.columns[0].clear();
                while let Some(value) = column.try_next()? {
                    write_varint(&mut self.columns[0], value);
                }
                write_packed_field(&mut self.message, field, &self.columns[0]);
            }
        }
        Ok(())
    }

    /// Appends the block's bytes to `out`, empties the builder, and gives the block's index record.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> IndexRecord {
        self.close_group();
        self.message.clear();
        self.strings.encode(&mut self.message);
        write_bytes_field(out, 1, &self.message);
        out.extend_from_slice(&self.groups);
        self.groups.clear();
        self.strings.clear();
        self.translation.serial = 0;
        std::mem::take(&mut self.index).finish()
    }
}

/// Appends the delta-coded columns of a way's locations; an unknown location is written as libosmium does.
pub fn encode_way_locations(
    locations: impl Iterator<Item = Option<Location>>,
    lats: &mut Vec<u8>,
    lons: &mut Vec<u8>,
) {
    let (mut last_lat, mut last_lon) = (0i64, 0i64);
    for location in locations {
        let Location { lon, lat } = location.unwrap_or(Location::new(i32::MAX, i32::MAX));
        write_sint(lats, i64::from(lat) - last_lat);
        write_sint(lons, i64::from(lon) - last_lon);
        (last_lat, last_lon) = (i64::from(lat), i64::from(lon));
    }
}
