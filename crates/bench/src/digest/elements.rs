//! One PrimitiveBlock into the tally: every element adds a number to the sum of each of its facets.

use std::collections::BTreeMap;

use xxhash_rust::xxh3::xxh3_64;

use super::wire::{Coding, Malformed, Message, Value, append, integrate};
use super::{BlobOrder, Facet};

const FACETS: usize = Facet::ALL.len();
const NODE: u8 = 0;
const WAY: u8 = 1;
const RELATION: u8 = 2;

/// Position in the field's order: nodes, ways, relations; negative ids first, by absolute value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub kind: u8,
    positive: bool,
    magnitude: u64,
}

impl Key {
    fn new(kind: u8, id: i64) -> Self {
        Self {
            kind,
            positive: id > 0,
            magnitude: id.unsigned_abs(),
        }
    }
}

/// Folds `b` into `a` (the multiply-and-fold step of wyhash).
#[inline]
fn mix(a: u64, b: u64) -> u64 {
    let product =
        u128::from(a ^ 0xa076_1d64_78bd_642f) * u128::from(b.rotate_left(32) ^ 0xe703_7ed1_a0b4_28db);
    (product as u64) ^ ((product >> 64) as u64)
}

/// Sums and counts of any number of blocks.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    sums: [u64; FACETS],
    elements: [i64; 3],
    ids: [Option<(i64, i64)>; 3],
    refs: i64,
    members: i64,
    tags: i64,
    tagged_nodes: i64,
}

impl Tally {
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in self.sums.iter_mut().zip(other.sums) {
            *sum = sum.wrapping_add(more);
        }
        for kind in 0..3 {
            self.elements[kind] += other.elements[kind];
            if let Some((low, high)) = other.ids[kind] {
                self.widen(kind, low, high);
            }
        }
        self.refs += other.refs;
        self.members += other.members;
        self.tags += other.tags;
        self.tagged_nodes += other.tagged_nodes;
    }

    pub fn counts(&self) -> BTreeMap<String, i64> {
        let mut counts: BTreeMap<String, i64> = [
            ("nodes", self.elements[0]),
            ("ways", self.elements[1]),
            ("relations", self.elements[2]),
            ("refs", self.refs),
            ("members", self.members),
            ("tags", self.tags),
            ("tagged_nodes", self.tagged_nodes),
        ]
        .into_iter()
        .map(|(name, count)| (name.to_owned(), count))
        .collect();
        for (range, name) in self.ids.iter().zip(["node", "way", "relation"]) {
            if let &Some((low, high)) = range {
                counts.insert(format!("min_{name}_id"), low);
                counts.insert(format!("max_{name}_id"), high);
            }
        }
        counts
    }

    pub fn facets(&self) -> BTreeMap<Facet, String> {
        Facet::ALL
            .into_iter()
            .map(|facet| (facet, format!("{:016x}", self.sums[facet as usize])))
            .collect()
    }

    fn widen(&mut self, kind: usize, low: i64, high: i64) {
        let range = self.ids[kind].get_or_insert((low, high));
        *range = (range.0.min(low), range.1.max(high));
    }

    #[inline]
    fn put(&mut self, facet: Facet, value: u64) {
        let sum = &mut self.sums[facet as usize];
        *sum = sum.wrapping_add(value);
    }
}

/// Columns that are filled anew for every group or element, kept for their capacity.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    strings: Vec<u64>,
    columns: [Vec<i64>; 6],
    info: [Vec<i64>; 6],
}

/// What holds for a whole block.
#[derive(Debug, Clone, Copy)]
struct Frame {
    granularity: i64,
    date_granularity: i64,
    latitude_offset: i64,
    longitude_offset: i64,
}

/// One element's metadata; 0 stands for absent.
#[derive(Debug, Clone, Copy, Default)]
struct Info {
    version: i64,
    timestamp: i64,
    changeset: i64,
    uid: i64,
    user: i64,
    invisible: bool,
}

/// The state of one pass over one block.
struct Pass<'t> {
    tally: &'t mut Tally,
    frame: Frame,
    last: Option<Key>,
    order: BlobOrder,
}

/// Adds the elements of the uncompressed block `bytes` to `tally`.
pub(super) fn block(bytes: &[u8], tally: &mut Tally, scratch: &mut Scratch) -> Result<BlobOrder, Malformed> {
    let mut frame = Frame {
        granularity: 100,
        date_granularity: 1000,
        latitude_offset: 0,
        longitude_offset: 0,
    };
    scratch.strings.clear();
    let mut message = Message::new(bytes);
    while let Some(field) = message.next()? {
        match field {
            (1, Value::Bytes(table)) => {
                let mut table = Message::new(table);
                while let Some((field, value)) = table.next()? {
                    if let (1, Value::Bytes(string)) = (field, value) {
                        scratch
                            .strings
                            .push(if string.is_empty() { 0 } else { xxh3_64(string) });
                    }
                }
            }
            (17, Value::Varint(value)) => frame.granularity = value as i64,
            (18, Value::Varint(value)) => frame.date_granularity = value as i64,
            (19, Value::Varint(value)) => frame.latitude_offset = value as i64,
            (20, Value::Varint(value)) => frame.longitude_offset = value as i64,
            _ => {}
        }
    }
    let order = BlobOrder {
        sorted: true,
        ..BlobOrder::default()
    };
    let mut pass = Pass {
        tally,
        frame,
        last: None,
        order,
    };
    let mut message = Message::new(bytes);
    while let Some(field) = message.next()? {
        let (2, Value::Bytes(group)) = field else { continue };
        let mut group = Message::new(group);
        while let Some(field) = group.next()? {
            match field {
                (1, Value::Bytes(bytes)) => pass.node(bytes, scratch)?,
                (2, Value::Bytes(bytes)) => pass.dense(bytes, scratch)?,
                (3, Value::Bytes(bytes)) => pass.way(bytes, scratch)?,
                (4, Value::Bytes(bytes)) => pass.relation(bytes, scratch)?,
                _ => {}
            }
        }
    }
    Ok(pass.order)
}

fn string(strings: &[u64], index: i64) -> Result<u64, Malformed> {
    usize::try_from(index)
        .ok()
        .and_then(|index| strings.get(index).copied())
        .ok_or(Malformed("string index out of range"))
}

impl Pass<'_> {
    /// Opens an element: order, id, metadata. Returns the seed that its facets are mixed from.
    #[inline]
    fn element(&mut self, kind: u8, id: i64, info: Info, strings: &[u64]) -> Result<u64, Malformed> {
        let key = Key::new(kind, id);
        match self.last {
            Some(last) => self.order.sorted &= last <= key,
            None => self.order.first_id = id,
        }
        self.last = Some(key);
        self.order.ends = Some((self.order.ends.map_or(key, |(first, _)| first), key));
        self.tally.elements[usize::from(kind)] += 1;
        self.tally.widen(usize::from(kind), id, id);
        let seed = mix(id as u64, u64::from(kind) + 1);
        self.tally.put(Facet::Ids, seed);
        if info.version > 0 {
            self.tally.put(Facet::Version, mix(seed, info.version as u64));
        }
        if info.timestamp > 0 {
            let milliseconds = info.timestamp.wrapping_mul(self.frame.date_granularity);
            self.tally.put(Facet::Timestamp, mix(seed, milliseconds as u64));
        }
        if info.changeset > 0 {
            self.tally.put(Facet::Changeset, mix(seed, info.changeset as u64));
        }
        if info.uid > 0 {
            self.tally.put(Facet::Uid, mix(seed, info.uid as u64));
        }
        if info.user > 0 {
            let user = string(strings, info.user)?;
            if user != 0 {
                self.tally.put(Facet::User, mix(seed, user));
            }
        }
        if info.invisible {
            self.tally.put(Facet::Visible, seed);
        }
        Ok(seed)
    }

    fn location(&self, latitude: i64, longitude: i64) -> u64 {
        let Frame {
            granularity,
            latitude_offset,
            longitude_offset,
            ..
        } = self.frame;
        let latitude = latitude_offset.wrapping_add(granularity.wrapping_mul(latitude));
        let longitude = longitude_offset.wrapping_add(granularity.wrapping_mul(longitude));
        mix(latitude as u64, longitude as u64)
    }

    fn tags(
        &mut self,
        seed: u64,
        pairs: impl Iterator<Item = (i64, i64)>,
        strings: &[u64],
    ) -> Result<bool, Malformed> {
        let (mut sum, mut chain, mut count) = (0u64, seed, 0i64);
        for (key, value) in pairs {
            let tag = mix(string(strings, key)?, string(strings, value)?);
            sum = sum.wrapping_add(mix(seed, tag));
            chain = mix(chain, tag);
            count += 1;
        }
        if count > 0 {
            self.tally.put(Facet::Tags, sum);
            self.tally.put(Facet::TagOrder, chain);
            self.tally.tags += count;
        }
        Ok(count > 0)
    }

    fn node(&mut self, bytes: &[u8], scratch: &mut Scratch) -> Result<(), Malformed> {
        let [keys, values, ..] = &mut scratch.columns;
        keys.clear();
        values.clear();
        let (mut id, mut info, mut latitude, mut longitude) = (0, Info::default(), 0, 0);
        let mut message = Message::new(bytes);
        while let Some(field) = message.next()? {
            match field {
                (1, Value::Varint(value)) => id = super::wire::zigzag(value),
                (2, value) => append(keys, value, Coding::Plain)?,
                (3, value) => append(values, value, Coding::Plain)?,
                (4, Value::Bytes(bytes)) => info = plain_info(bytes)?,
                (8, Value::Varint(value)) => latitude = super::wire::zigzag(value),
                (9, Value::Varint(value)) => longitude = super::wire::zigzag(value),
                _ => {}
            }
        }
        let seed = self.element(NODE, id, info, &scratch.strings)?;
        if !info.invisible {
            let location = self.location(latitude, longitude);
            self.tally.put(Facet::Locations, mix(seed, location));
        }
        let [keys, values, ..] = &scratch.columns;
        let pairs = pairs(keys, values)?;
        if self.tags(seed, pairs, &scratch.strings)? {
            self.tally.tagged_nodes += 1;
        }
        Ok(())
    }

    fn dense(&mut self, bytes: &[u8], scratch: &mut Scratch) -> Result<(), Malformed> {
        let Scratch {
            strings,
            columns,
            info,
        } = scratch;
        columns.iter_mut().chain(info.iter_mut()).for_each(Vec::clear);
        let [ids, latitudes, longitudes, tags, ..] = columns;
        let mut message = Message::new(bytes);
        while let Some(field) = message.next()? {
            match field {
                (1, value) => append(ids, value, Coding::Delta)?,
                (5, Value::Bytes(bytes)) => {
                    let mut message = Message::new(bytes);
                    while let Some((field, value)) = message.next()? {
                        match field {
                            1 => append(&mut info[0], value, Coding::Plain)?,
                            2..=5 => append(&mut info[field as usize - 1], value, Coding::Delta)?,
                            6 => append(&mut info[5], value, Coding::Plain)?,
                            _ => {}
                        }
                    }
                }
                (8, value) => append(latitudes, value, Coding::Delta)?,
                (9, value) => append(longitudes, value, Coding::Delta)?,
                (10, value) => append(tags, value, Coding::Plain)?,
                _ => {}
            }
        }
        integrate(ids);
        integrate(latitudes);
        integrate(longitudes);
        info[1..5].iter_mut().for_each(|column| integrate(column));
        if latitudes.len() != ids.len() || longitudes.len() != ids.len() {
            return Err(Malformed("dense nodes with columns of different lengths"));
        }
        let mut tags = tags.as_slice();
        for (index, &id) in ids.iter().enumerate() {
            let at = |column: &[i64]| column.get(index).copied().unwrap_or(0);
            let meta = Info {
                version: at(&info[0]),
                timestamp: at(&info[1]),
                changeset: at(&info[2]),
                uid: at(&info[3]),
                user: at(&info[4]),
                invisible: info[5].get(index) == Some(&0),
            };
            let seed = self.element(NODE, id, meta, strings)?;
            if !meta.invisible {
                let location = self.location(latitudes[index], longitudes[index]);
                self.tally.put(Facet::Locations, mix(seed, location));
            }
            if tags.is_empty() {
                continue;
            }
            let mut length = 0;
            while *tags.get(length).ok_or(Malformed("dense tags without an end"))? != 0 {
                length += 2;
            }
            let (own, rest) = tags
                .split_at_checked(length + 1)
                .ok_or(Malformed("dense tags cut off"))?;
            tags = rest;
            let pairs = own[..length].chunks_exact(2).map(|pair| (pair[0], pair[1]));
            if self.tags(seed, pairs, strings)? {
                self.tally.tagged_nodes += 1;
            }
        }
        Ok(())
    }

    fn way(&mut self, bytes: &[u8], scratch: &mut Scratch) -> Result<(), Malformed> {
        scratch.columns.iter_mut().for_each(Vec::clear);
        let [keys, values, refs, latitudes, longitudes, _] = &mut scratch.columns;
        let (mut id, mut info) = (0, Info::default());
        let mut message = Message::new(bytes);
        while let Some(field) = message.next()? {
            match field {
                (1, Value::Varint(value)) => id = value as i64,
                (2, value) => append(keys, value, Coding::Plain)?,
                (3, value) => append(values, value, Coding::Plain)?,
                (4, Value::Bytes(bytes)) => info = plain_info(bytes)?,
                (8, value) => append(refs, value, Coding::Delta)?,
                (9, value) => append(latitudes, value, Coding::Delta)?,
                (10, value) => append(longitudes, value, Coding::Delta)?,
                _ => {}
            }
        }
        integrate(refs);
        integrate(latitudes);
        integrate(longitudes);
        let seed = self.element(WAY, id, info, &scratch.strings)?;
        self.tally.refs += refs.len() as i64;
        if !refs.is_empty() {
            let chain = refs.iter().fold(seed, |chain, &id| mix(chain, id as u64));
            self.tally.put(Facet::Refs, chain);
        }
        if !latitudes.is_empty() {
            if latitudes.len() != longitudes.len() {
                return Err(Malformed("way locations with columns of different lengths"));
            }
            let chain = latitudes
                .iter()
                .zip(longitudes.iter())
                .fold(seed, |chain, (&latitude, &longitude)| {
                    mix(chain, self.location(latitude, longitude))
                });
            self.tally.put(Facet::WayLocations, chain);
        }
        let pairs = pairs(keys, values)?;
        self.tags(seed, pairs, &scratch.strings)?;
        Ok(())
    }

    fn relation(&mut self, bytes: &[u8], scratch: &mut Scratch) -> Result<(), Malformed> {
        scratch.columns.iter_mut().for_each(Vec::clear);
        let [keys, values, roles, ids, kinds, _] = &mut scratch.columns;
        let (mut id, mut info) = (0, Info::default());
        let mut message = Message::new(bytes);
        while let Some(field) = message.next()? {
            match field {
                (1, Value::Varint(value)) => id = value as i64,
                (2, value) => append(keys, value, Coding::Plain)?,
                (3, value) => append(values, value, Coding::Plain)?,
                (4, Value::Bytes(bytes)) => info = plain_info(bytes)?,
                (8, value) => append(roles, value, Coding::Plain)?,
                (9, value) => append(ids, value, Coding::Delta)?,
                (10, value) => append(kinds, value, Coding::Plain)?,
                _ => {}
            }
        }
        integrate(ids);
        if roles.len() != ids.len() || kinds.len() != ids.len() {
            return Err(Malformed("members with columns of different lengths"));
        }
        let seed = self.element(RELATION, id, info, &scratch.strings)?;
        self.tally.members += ids.len() as i64;
        let mut chain = seed;
        for ((&role, &member), &kind) in roles.iter().zip(ids.iter()).zip(kinds.iter()) {
            chain = mix(mix(chain, member as u64), kind as u64);
            chain = mix(chain, string(&scratch.strings, role)?);
        }
        if !ids.is_empty() {
            self.tally.put(Facet::Members, chain);
        }
        let pairs = pairs(keys, values)?;
        self.tags(seed, pairs, &scratch.strings)?;
        Ok(())
    }
}

fn pairs<'a>(keys: &'a [i64], values: &'a [i64]) -> Result<impl Iterator<Item = (i64, i64)> + 'a, Malformed> {
    if keys.len() != values.len() {
        return Err(Malformed("as many keys as values are needed"));
    }
    Ok(keys.iter().copied().zip(values.iter().copied()))
}

fn plain_info(bytes: &[u8]) -> Result<Info, Malformed> {
    let mut info = Info::default();
    let mut message = Message::new(bytes);
    while let Some(field) = message.next()? {
        match field {
            (1, Value::Varint(value)) => info.version = value as i64,
            (2, Value::Varint(value)) => info.timestamp = value as i64,
            (3, Value::Varint(value)) => info.changeset = value as i64,
            (4, Value::Varint(value)) => info.uid = value as i64,
            (5, Value::Varint(value)) => info.user = value as i64,
            (6, Value::Varint(value)) => info.invisible = value == 0,
            _ => {}
        }
    }
    Ok(info)
}
