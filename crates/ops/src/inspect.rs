//! `inspect`: what a file holds.
//!
//! [`inspect`] reads blob headers and their index records only; [`extended`] decodes everything in one pass
//! and verifies what the headers claim. Blobs are looked at column by column where they have columns.

mod nodes;
mod range;
mod show;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use osmill_engine::{
    Blob, BlockStream, Counts, Error, Fault, Input, Job, KernelResult, Plan, Result, Syntax, TextCompression,
    TextFormat,
};
use osmill_model::{BoundingBox, ElementId, Kind, KindSet, Timestamp};
use osmill_pbf::wire::{Fields, Value as FieldValue, Varints, count_checked};
use osmill_pbf::{
    Block, BlockError, BlockErrorKind, Element, Facts, FileHeader, HeaderBox, IndexBuilder, IndexRecord,
    Items, RawItem, RawMetadata,
};
use serde::Serialize;
use serde_json::{Value, json};

pub use nodes::{NodeStatistics, nodes};
pub use show::{Shown, show};

use self::range::Range;
use crate::order::Order;

/// Names of the metadata values, in the order of the counts in [`Extended::metadata`].
pub const METADATA_NAMES: [&str; 5] = ["version", "timestamp", "changeset", "uid", "user"];

/// What the headers of a file and its index records say.
#[derive(Debug)]
pub struct Inspection {
    /// The file's name as it was given.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// The format, if it is text. Then the plan is that of a copy as PBF.
    pub text: Option<TextFormat>,
    /// The blobs and the file header.
    pub plan: Plan,
    /// What all blobs hold together, if all have index records.
    pub index: Option<IndexTotals>,
}

/// Sums over index records.
#[derive(Debug, Clone, Default)]
pub struct IndexTotals {
    /// Elements.
    pub counts: Counts,
    /// Smallest and largest id of each kind, in file order; exact only where blobs hold one kind each.
    pub ids: [Option<(i64, i64)>; 3],
    /// Rectangle around the nodes.
    pub bbox: Option<BoundingBox>,
    /// Node references of ways plus members of relations.
    pub refs: u64,
    /// Whether the records show the file to be sorted.
    pub sorted: bool,
    /// Blobs of each set of kinds, with their compressed bytes.
    pub blobs: BTreeMap<u8, (u64, u64)>,
}

/// Opens a file and sums up what its headers say.
pub fn inspect(job: &Job, path: &Path) -> Result<(Input, Inspection)> {
    let input = job.open(path)?;
    let plan = input.plan(job.options().threads)?;
    let index = totals(&plan);
    let inspection = Inspection {
        name: path.display().to_string(),
        size: input.size(),
        text: input.text_format(),
        plan,
        index,
    };
    Ok((input, inspection))
}

/// What the beginning of a text file says, and the rest of it for [`extended_stream`]; `None` for PBF files and for
/// what comes through a pipe.
pub fn head(job: &Job, path: &Path) -> Result<Option<(Inspection, BlockStream)>> {
    let Some(size) = path.metadata().ok().filter(std::fs::Metadata::is_file) else {
        return Ok(None);
    };
    let Some(stream) = job.stream(path)? else {
        return Ok(None);
    };
    let head = Inspection {
        name: path.display().to_string(),
        size: size.len(),
        text: stream.text_format(),
        plan: Plan {
            header: stream.header().clone(),
            header_count: 1,
            blobs: Vec::new(),
            other_blobs: 0,
        },
        index: None,
    };
    Ok(Some((head, stream)))
}

fn totals(plan: &Plan) -> Option<IndexTotals> {
    let mut totals = IndexTotals {
        sorted: plan.is_sorted()?,
        ..IndexTotals::default()
    };
    for blob in &plan.blobs {
        let record = blob.index?;
        totals.counts += record.counts.into();
        totals.refs += record.refs;
        if let Some(bbox) = record.bbox {
            totals.bbox = Some(totals.bbox.map_or(bbox, |all| all.union(bbox)));
        }
        for id in [record.first(), record.last()].into_iter().flatten() {
            note_id(&mut totals.ids[id.kind as usize], id.id);
        }
        let entry = totals.blobs.entry(record.kinds.bits()).or_default();
        entry.0 += 1;
        entry.1 += u64::from(blob.data_size);
    }
    Some(totals)
}

fn note_id(range: &mut Option<(i64, i64)>, id: i64) {
    let order = osmill_model::id_order;
    let (min, max) = range.get_or_insert((id, id));
    if order(id) < order(*min) {
        *min = id;
    }
    if order(id) > order(*max) {
        *max = id;
    }
}

/// What decoding the whole file shows.
#[derive(Debug, Clone, Default)]
pub struct Extended {
    /// Elements.
    pub counts: Counts,
    /// Elements with tags.
    pub tagged: Counts,
    /// Tags.
    pub tags: Counts,
    /// Elements with negative ids.
    pub negative: Counts,
    /// Smallest and largest id of each kind, in file order.
    pub ids: [Option<(i64, i64)>; 3],
    /// Node references of ways.
    pub refs: u64,
    /// Members of relations.
    pub members: u64,
    /// The most references of a way, and the most members of a relation, with their ids.
    pub largest: [Option<(u64, i64)>; 2],
    /// Ways that carry locations.
    pub located_ways: u64,
    /// Rectangle around the nodes.
    pub bbox: Option<BoundingBox>,
    /// First and last time of an element.
    pub timestamps: Option<(Timestamp, Timestamp)>,
    /// How many elements have each of [`METADATA_NAMES`].
    pub metadata: [u64; 5],
    /// Elements that are deleted.
    pub deleted: u64,
    /// Compressed and uncompressed bytes of blobs, by the kinds in them.
    pub bytes: BTreeMap<u8, BlobBytes>,
    /// Blobs by codec.
    pub codecs: BTreeMap<&'static str, u64>,
    /// Neighbours that are out of order, and the first of them.
    pub descents: u64,
    /// The first element that is out of order.
    pub first_descent: Option<crate::order::Offence>,
    /// Neighbours with the same id, and the same version where there is history.
    pub repeats: u64,
    /// The first element that is there twice in a row.
    pub first_repeat: Option<crate::order::Offence>,
    orders: Vec<Order>,
    /// The largest string number that the block at hand uses.
    largest_string: u64,
    history: bool,
}

/// Sizes of blobs.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct BlobBytes {
    /// Number of blobs.
    pub blobs: u64,
    /// Bytes in the file.
    pub compressed: u64,
    /// Bytes when decompressed.
    pub raw: u64,
}

/// Decodes every blob and verifies what the headers claim.
pub fn extended(job: &Job, input: &Input, plan: &Plan) -> Result<Extended> {
    let make = Extended::of_header(&plan.header);
    let pass = job.pass("read", input.file(), &plan.blobs);
    let states = pass.scan(&make, Extended::add_blob)?;
    Ok(Extended::of_states(job, make(), states))
}

/// Reads a stream to its end; see [`extended`].
pub fn extended_stream(job: &Job, stream: BlockStream) -> Result<Extended> {
    let make = Extended::of_header(stream.header());
    let stream = Mutex::new(stream);
    let states = job.stream_pass("read", &stream).scan(&make, Extended::add_blob)?;
    job.end_stream(&stream.into_inner().unwrap_or_else(PoisonError::into_inner));
    Ok(Extended::of_states(job, make(), states))
}

impl Extended {
    fn of_header(header: &FileHeader) -> impl Fn() -> Extended + Sync + use<> {
        let history = header.has_history();
        move || Extended {
            history,
            ..Extended::default()
        }
    }

    fn of_states(job: &Job, mut all: Extended, states: Vec<Extended>) -> Extended {
        for state in states {
            all.merge(state);
        }
        let order = Order::of_blobs(std::mem::take(&mut all.orders));
        (all.descents, all.first_descent) = (order.descents, order.first_descent);
        (all.repeats, all.first_repeat) = (order.repeats, order.first_repeat);
        job.objects_in(all.counts);
        all
    }

    /// Whether the file is sorted by kind, id and version.
    pub fn is_sorted(&self) -> bool {
        self.descents == 0
    }

    fn add_blob(&mut self, blob: &mut Blob) -> KernelResult {
        let codec = match blob.is_stored() {
            true => Some(blob.data()?.codec.name()),
            false => None,
        };
        let (number, compressed) = (blob.entry().number, u64::from(blob.entry().data_size));
        let block = blob.block()?;
        let record = self.add_block(block)?;
        self.orders.push(match Order::of_record(&record, number) {
            Some(order) if !self.history => order,
            _ => Order::of(block, number, self.history)?,
        });
        self.add_ids(block, &record)?;
        if let Some(codec) = codec {
            *self.codecs.entry(codec).or_default() += 1;
        }
        let bytes = self.bytes.entry(record.kinds.bits()).or_default();
        bytes.blobs += 1;
        bytes.compressed += compressed;
        bytes.raw += block.data().len() as u64;
        self.counts += record.counts.into();
        if let Some(bbox) = record.bbox {
            self.bbox = Some(self.bbox.map_or(bbox, |all| all.union(bbox)));
        }
        Ok(())
    }

    /// Adds what stands in a block, and gives the record that it should have.
    fn add_block(&mut self, block: &Block) -> Result<IndexRecord, Fault> {
        let mut builder = IndexBuilder::default();
        self.largest_string = 0;
        for group in block.groups() {
            let mut items = group.items();
            while let Some((item, message)) = items.try_next_raw()? {
                match item {
                    RawItem::Dense => {
                        let dense = items.parse_dense(message)?;
                        builder.note_dense(&dense)?;
                        self.add_dense_tags(dense.tag_column())?;
                        if let Some(info) = dense.info() {
                            self.add_dense_info(block, info, dense.len())?;
                        }
                    }
                    RawItem::Node => {
                        let node = items.parse_node(message)?;
                        builder.note_plain_node(&node)?;
                        let (mut tags, mut count) = (node.tags(), 0);
                        while let Some((key, value)) = tags.try_next_ids()? {
                            self.note_string(key.max(value));
                            count += 1;
                        }
                        self.add_tags_of(Kind::Node, count);
                        let metadata = Element::Node(node).raw_metadata()?;
                        self.note_string(metadata.user_sid.unwrap_or(0));
                        self.add_metadata(block, metadata);
                    }
                    RawItem::Way => {
                        let facts = self.add_message(&items, block, Kind::Way, message)?;
                        builder.note_facts(Kind::Way, &facts);
                    }
                    RawItem::Relation => {
                        let facts = self.add_message(&items, block, Kind::Relation, message)?;
                        builder.note_facts(Kind::Relation, &facts);
                    }
                }
            }
        }
        if self.largest_string > 0 {
            block.string(self.largest_string).map_err(BlockError::from)?;
        }
        Ok(builder.finish())
    }

    /// Adds the extreme ids and the negative ones.
    fn add_ids(&mut self, block: &Block, record: &IndexRecord) -> KernelResult {
        let ends_tell = record.sorted && record.kinds.len() == 1;
        if ends_tell {
            for id in [record.first(), record.last()].into_iter().flatten() {
                note_id(&mut self.ids[id.kind as usize], id.id);
            }
            // Sorted, so 0 and negative ids would be in front.
            if record.first_id > 0 {
                return Ok(());
            }
        }
        let mut ids = Vec::new();
        for group in block.groups() {
            let mut items = group.items();
            while let Some((item, message)) = items.try_next_raw()? {
                let kind = match item {
                    RawItem::Node | RawItem::Dense => Kind::Node,
                    RawItem::Way => Kind::Way,
                    RawItem::Relation => Kind::Relation,
                };
                ids.clear();
                items.parse_ids(item, message, &mut ids)?;
                for id in &ids {
                    if !ends_tell {
                        note_id(&mut self.ids[kind as usize], *id);
                    }
                    self.negative.add(kind, u64::from(*id < 0));
                }
            }
        }
        Ok(())
    }

    /// Adds a way or a relation, checking its columns without making values of them.
    fn add_message(
        &mut self,
        items: &Items<'_>,
        block: &Block,
        kind: Kind,
        message: &[u8],
    ) -> Result<Facts, Fault> {
        // How many numbers a column has, and the largest.
        let (mut keys, mut values) = ((0, 0), (0, 0));
        // References or roles; members or latitudes; member types or longitudes.
        let (mut eights, mut nines, mut tens) = ((0, 0), (0, 0), (0, 0));
        let (mut id, mut info) = (None, None);
        let mut fields = Fields::new(message);
        while let Some((number, value)) = fields.try_next()? {
            match (number, value) {
                (1, value) => id = Some(value.varint()? as i64),
                (2, value) => keys = count_more(keys, value)?,
                (3, value) => values = count_more(values, value)?,
                (4, value) => info = Some(value.bytes()?),
                // References tell nothing that has to be known; roles are numbers of strings.
                (8, FieldValue::Bytes(column)) if kind == Kind::Way => eights.0 += count_checked(column)?,
                (8, value) => eights = count_more(eights, value)?,
                (9, value) => nines = count_more(nines, value)?,
                (10, value) => tens = count_more(tens, value)?,
                _ => {}
            }
        }
        let element = ElementId::new(kind, id.ok_or(BlockErrorKind::NoId).map_err(BlockError::from)?);
        let largest_string = keys.1.max(values.1);
        let ((keys, _), (values, _)) = (keys, values);
        let ((eights, largest_role), (nines, _), (tens, largest_type)) = (eights, nines, tens);
        let same_length = |column, expected, found| match found == expected {
            true => Ok(()),
            false => Err(BlockErrorKind::Lengths {
                column,
                expected,
                found,
            }
            .of(element)),
        };
        same_length("vals", keys, values)?;
        self.note_string(largest_string);
        self.add_tags_of(kind, keys as u64);
        let mut facts = Facts {
            id: element.id,
            has_tags: keys > 0,
            ..Facts::default()
        };
        if kind == Kind::Way {
            facts.refs = eights as u64;
            self.refs += facts.refs;
            note_largest(&mut self.largest[0], facts.refs, element.id);
            if nines + tens > 0 {
                facts.has_locations = true;
                self.located_ways += 1;
                items
                    .parse_way(message)?
                    .locations()
                    .try_for_each(|location| location.map(|_| ()))?;
            }
        } else {
            same_length("types", nines, tens)?;
            same_length("roles_sid", nines, eights)?;
            if largest_type > 2 {
                return Err(BlockErrorKind::MemberType(largest_type).of(element).into());
            }
            self.note_string(largest_role);
            facts.refs = nines as u64;
            self.members += facts.refs;
            note_largest(&mut self.largest[1], facts.refs, element.id);
        }
        if let Some(info) = info {
            let metadata = block.read_info(info).map_err(|e| e.what.of(element))?;
            facts.has_metadata = !info.is_empty();
            facts.has_visibility = metadata.visible.is_some();
            self.note_string(metadata.user_sid.unwrap_or(0));
            self.add_metadata(block, metadata);
        }
        Ok(facts)
    }

    fn note_string(&mut self, index: u64) {
        self.largest_string = self.largest_string.max(index);
    }

    fn add_dense_tags(&mut self, column: Varints<'_>) -> KernelResult {
        // Zeros end the tags of a node where a key stands; values may be the empty string's zero, too.
        let (tagged, words, before, largest) = column.fold(
            [0u64; 4].into(),
            |(tagged, words, before, largest): (u64, u64, u64, u64), sid| {
                if sid == 0 && (words - before) % 2 == 0 {
                    (tagged + u64::from(words > before), words, words, largest)
                } else {
                    (tagged, words + 1, before, sid.max(largest))
                }
            },
        )?;
        self.note_string(largest);
        if (words - before) % 2 != 0 {
            let column = BlockErrorKind::Lengths {
                column: "keys_vals",
                expected: 2,
                found: 1,
            };
            return Err(BlockError::from(column).into());
        }
        self.tagged.nodes += tagged + u64::from(words > before);
        self.tags.nodes += words / 2;
        Ok(())
    }

    /// Adds the metadata of so many dense nodes.
    fn add_dense_info(
        &mut self,
        block: &Block,
        info: osmill_pbf::DenseInfo<'_>,
        count: usize,
    ) -> KernelResult {
        let versions = info
            .versions
            .fold(Range::default(), |range, v| range.with(v as i64))?;
        versions.check("version", -1, i32::MAX.into())?;
        self.metadata[0] += versions.known(count, || {
            info.versions
                .fold(0, |known, version| known + u64::from(version as i64 > 0))
        })?;

        let mut times = Range::of_sums(info.timestamps)?;
        self.metadata[1] += times.known(count, || {
            // Nodes of time 0 have none.
            let (known, range) = info.timestamps.column().fold_sums(
                (0, Range::default()),
                |(known, range), time| match time {
                    0 => (known, range),
                    time => (known + 1, range.with(time)),
                },
            )?;
            times = range;
            Ok(known)
        })?;
        if !times.is_empty() {
            // The granularity of dates is positive, so the order stays.
            self.note_time(block.timestamp(times.least)?);
            self.note_time(block.timestamp(times.most)?);
        }

        const U32: i64 = u32::MAX as i64;
        for (slot, column, name, least, most) in [
            (2, info.changesets, "changeset", -1, U32),
            (3, info.uids, "uid", i32::MIN.into(), i32::MAX.into()),
        ] {
            let range = Range::of_sums(column)?;
            range.check(name, least, most)?;
            self.metadata[slot] += range.known(count, || {
                column
                    .column()
                    .fold_sums(0, |known, value| known + u64::from(value > 0))
            })?;
        }

        let users = Range::of_sums(info.user_sids)?;
        users.check("user_sid", 0, U32)?;
        self.note_string(users.most.max(0) as u64);
        let count_named = || {
            info.user_sids
                .column()
                .fold_sums(0, |named, sid| named + u64::from(is_named(block, sid as u64)))
        };
        // Empty names are none, and rare: number 0 is the empty string.
        let all_have_names = (1..block.string_count()? as u64).all(|sid| is_named(block, sid));
        self.metadata[4] += match all_have_names {
            true => users.known(count, count_named)?,
            false => count_named()?,
        };

        self.deleted += info
            .visibles
            .fold(0, |deleted, visible| deleted + u64::from(visible == 0))?;
        Ok(())
    }

    fn note_time(&mut self, time: Timestamp) {
        let (first, last) = self.timestamps.get_or_insert((time, time));
        (*first, *last) = ((*first).min(time), (*last).max(time));
    }

    fn add_tags_of(&mut self, kind: Kind, count: u64) {
        self.tags.add(kind, count);
        self.tagged.add(kind, u64::from(count > 0));
    }

    fn add_metadata(&mut self, block: &Block, metadata: RawMetadata) {
        let present = [
            metadata.version.is_some_and(|v| v > 0),
            metadata.timestamp.is_some_and(|t| t.0 != 0),
            metadata.changeset.is_some_and(|c| c > 0),
            metadata.uid.is_some_and(|u| u > 0),
            metadata.user_sid.is_some_and(|sid| is_named(block, sid)),
        ];
        for (count, present) in self.metadata.iter_mut().zip(present) {
            *count += u64::from(present);
        }
        if let Some(time) = metadata.timestamp.filter(|t| t.0 != 0) {
            self.note_time(time);
        }
        self.deleted += u64::from(metadata.visible == Some(false));
    }

    fn merge(&mut self, other: Extended) {
        self.counts += other.counts;
        self.tagged += other.tagged;
        self.tags += other.tags;
        self.negative += other.negative;
        for (range, other) in self.ids.iter_mut().zip(other.ids) {
            for id in other.into_iter().flat_map(|(min, max)| [min, max]) {
                note_id(range, id);
            }
        }
        self.refs += other.refs;
        self.members += other.members;
        for (largest, other) in self.largest.iter_mut().zip(other.largest) {
            if let Some((size, id)) = other {
                note_largest(largest, size, id);
            }
        }
        self.located_ways += other.located_ways;
        self.bbox = match (self.bbox, other.bbox) {
            (Some(a), Some(b)) => Some(a.union(b)),
            (a, b) => a.or(b),
        };
        if let Some((first, last)) = other.timestamps {
            self.note_time(first);
            self.note_time(last);
        }
        for (count, other) in self.metadata.iter_mut().zip(other.metadata) {
            *count += other;
        }
        self.deleted += other.deleted;
        for (kinds, bytes) in other.bytes {
            let mine = self.bytes.entry(kinds).or_default();
            mine.blobs += bytes.blobs;
            mine.compressed += bytes.compressed;
            mine.raw += bytes.raw;
        }
        for (codec, blobs) in other.codecs {
            *self.codecs.entry(codec).or_default() += blobs;
        }
        self.orders.extend(other.orders);
    }
}

/// Counts the numbers of a column and finds the largest, on top of `before`.
#[inline(always)]
fn count_more(before: (usize, u64), value: FieldValue<'_>) -> KernelResult<(usize, u64)> {
    let note = |(count, largest): (usize, u64), value: u64| (count + 1, value.max(largest));
    Ok(match value {
        FieldValue::Bytes(column) => Varints::packed(column).fold(before, note)?,
        value => note(before, value.varint()?),
    })
}

/// Whether this string is there and not empty: files without user names often have empty ones.
fn is_named(block: &Block, user_sid: u64) -> bool {
    user_sid > 0 && block.string(user_sid).is_ok_and(|user| !user.is_empty())
}

fn note_largest(largest: &mut Option<(u64, i64)>, size: u64, id: i64) {
    // Of equals the smallest id, so that the answer does not depend on the threads.
    if largest.is_none_or(|(known, known_id)| size > known || size == known && id < known_id) {
        *largest = Some((size, id));
    }
}

fn ids_value(ids: &[Option<(i64, i64)>; 3], pick: impl Fn(&(i64, i64)) -> i64) -> Value {
    let of = |kind: Kind| ids[kind as usize].as_ref().map(&pick);
    json!({ "nodes": of(Kind::Node), "ways": of(Kind::Way), "relations": of(Kind::Relation) })
}

fn box_value(bbox: &BoundingBox) -> Value {
    json!([
        bbox.min.lon_degrees(),
        bbox.min.lat_degrees(),
        bbox.max.lon_degrees(),
        bbox.max.lat_degrees()
    ])
}

/// The edges of a header's box in degrees: left, bottom, right, top.
pub fn header_box_degrees(bbox: &HeaderBox) -> [f64; 4] {
    [bbox.left, bbox.bottom, bbox.right, bbox.top].map(|nanodegrees| nanodegrees as f64 / 1e9)
}

fn header_value(header: &FileHeader) -> Value {
    let mut option = serde_json::Map::new();
    let mut put = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            option.insert(key.to_owned(), value.into());
        }
    };
    put("generator", header.writing_program.clone());
    put("source", header.source.clone());
    put(
        "osmosis_replication_base_url",
        header.replication_base_url.clone(),
    );
    put(
        "osmosis_replication_sequence_number",
        header.replication_sequence.map(|n| n.to_string()),
    );
    let time = header.replication_timestamp.map(|t| t.to_string());
    put("osmosis_replication_timestamp", time.clone());
    put("timestamp", time);
    put("sorting", header.claims_sorted().then(|| "Type_then_ID".into()));
    put(
        "locations_on_ways",
        header.claims_locations_on_ways().then(|| "true".into()),
    );
    for (i, feature) in header.optional_features.iter().enumerate() {
        put(&format!("pbf_optional_feature_{i}"), Some(feature.clone()));
    }
    let boxes: Vec<_> = header.bbox.iter().map(header_box_degrees).collect();
    json!({
        "boxes": boxes,
        "bbox": boxes.first(),
        "with_history": header.has_history(),
        "option": option,
        "required_features": header.required_features,
        "optional_features": header.optional_features,
    })
}

impl Inspection {
    /// Everything as one JSON value; names follow `osmium fileinfo --json` where it has the same thing.
    pub fn to_json(&self, extended: Option<&Extended>) -> Value {
        let mut codecs: BTreeMap<&str, u64> = BTreeMap::new();
        for blob in &self.plan.blobs {
            *codecs
                .entry(blob.codec.map_or("unknown", |codec| codec.name()))
                .or_default() += 1;
        }
        let indexed = self.plan.blobs.iter().filter(|blob| blob.index.is_some()).count();
        let (format, compression) = match self.text {
            None => ("PBF", "none"),
            Some(text) => (
                match text.syntax {
                    Syntax::Pbf => "PBF",
                    Syntax::Xml => "XML",
                    Syntax::Opl => "OPL",
                    Syntax::O5m => "O5M",
                },
                match text.compression {
                    TextCompression::None => "none",
                    TextCompression::Gzip => "gzip",
                    TextCompression::Bzip2 => "bzip2",
                },
            ),
        };
        let mut value = json!({
            "file": {
                "name": self.name,
                "format": format,
                "compression": compression,
                "size": self.size,
            },
            "header": header_value(&self.plan.header),
        });
        if self.text.is_none() {
            value["blobs"] = json!({
                "count": self.plan.blobs.len(),
                "indexed": indexed,
                "headers": self.plan.header_count,
                "unknown": self.plan.other_blobs,
                "codecs": codecs,
            });
        }
        if let Some(extended) = extended {
            value["data"] = extended.to_json();
            value["metadata"] = extended.metadata_json();
        } else if let Some(index) = &self.index {
            value["data"] = json!({
                "bbox": index.bbox.as_ref().map(box_value),
                "objects_ordered": index.sorted,
                "count": counts_value(&index.counts),
                "minid": ids_value(&index.ids, |ids| ids.0),
                "maxid": ids_value(&index.ids, |ids| ids.1),
                "references": index.refs,
                "bytes": index.blobs.iter().map(|(kinds, (blobs, compressed))| {
                    let bytes = json!({ "blobs": blobs, "compressed": compressed });
                    (KindSet::from_bits(*kinds).to_string(), bytes)
                }).collect::<serde_json::Map<_, _>>(),
            });
        }
        value
    }
}

fn counts_value(counts: &Counts) -> Value {
    json!({ "nodes": counts.nodes, "ways": counts.ways, "relations": counts.relations })
}

impl Extended {
    fn to_json(&self) -> Value {
        let largest =
            |largest: Option<(u64, i64)>| largest.map(|(size, id)| json!({ "id": id, "size": size }));
        json!({
            "bbox": self.bbox.as_ref().map(box_value),
            "timestamp": self.timestamps.map(|(first, last)| {
                json!({ "first": first.to_string(), "last": last.to_string() })
            }),
            "objects_ordered": self.is_sorted(),
            "out_of_order": self.descents,
            "first_out_of_order": self.first_descent,
            "repeated": self.repeats,
            "first_repeated": self.first_repeat,
            "count": counts_value(&self.counts),
            "minid": ids_value(&self.ids, |ids| ids.0),
            "maxid": ids_value(&self.ids, |ids| ids.1),
            "negative_ids": counts_value(&self.negative),
            "tagged": counts_value(&self.tagged),
            "tags": counts_value(&self.tags),
            "way_references": self.refs,
            "relation_members": self.members,
            "largest_way": largest(self.largest[0]),
            "largest_relation": largest(self.largest[1]),
            "ways_with_locations": self.located_ways,
            "deleted": self.deleted,
            "codecs": self.codecs,
            "bytes": self.bytes.iter().map(|(kinds, bytes)| {
                (KindSet::from_bits(*kinds).to_string(), json!(bytes))
            }).collect::<serde_json::Map<_, _>>(),
        })
    }

    fn metadata_json(&self) -> Value {
        let total = self.counts.total();
        let map = |has: &dyn Fn(u64) -> bool| {
            let names = METADATA_NAMES.iter().zip(self.metadata);
            names
                .map(|(name, n)| (name.to_string(), has(n).into()))
                .collect::<serde_json::Map<_, _>>()
        };
        json!({
            "all_objects": map(&|n| n == total && total > 0),
            "some_objects": map(&|n| n > 0),
            "count": METADATA_NAMES.iter().zip(self.metadata).map(|(name, n)| {
                (name.to_string(), n.into())
            }).collect::<serde_json::Map<String, Value>>(),
        })
    }
}

/// Looks a dotted name up in a JSON value: `data.count.nodes`, `header.option.generator`.
pub fn get<'v>(value: &'v Value, name: &str) -> Result<&'v Value> {
    let pointer = format!("/{}", name.replace('.', "/"));
    value.pointer(&pointer).ok_or_else(|| {
        let mut names = Vec::new();
        list_names(value, String::new(), &mut names);
        Error::Usage(format!(
            "there is no value '{name}'; there are: {}",
            names.join(", ")
        ))
    })
}

fn list_names(value: &Value, prefix: String, names: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let name = if prefix.is_empty() {
                    key.clone()
                } else {
                    format!("{prefix}.{key}")
                };
                list_names(value, name, names);
            }
        }
        _ => names.push(prefix),
    }
}
