//! A block encoder for the forms that the production builder never writes: plain nodes, unpacked columns,
//! other granularities and offsets, groups of any size.
//!
//! It is small and slow, and shares nothing with the production builder but varints, so that the two check
//! each other.

use std::collections::HashMap;

use osmill_model::{Kind, Location};
use osmill_pbf::wire::{write_bytes_field, write_sint, write_varint, write_varint_field};

use crate::model::{Element, Metadata, Text};

/// The form of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Nodes in columns; otherwise one message each.
    pub dense: bool,
    /// Repeated numbers in one packed field; otherwise a field for each number.
    pub packed: bool,
    /// Nanodegrees in a unit of coordinates, positive. Coordinates are rounded to a multiple where 100 is not
    /// one of it.
    pub granularity: i32,
    /// Nanodegrees that are added to each latitude.
    pub lat_offset: i64,
    /// Nanodegrees that are added to each longitude.
    pub lon_offset: i64,
    /// Milliseconds in a unit of time, positive. Times are rounded down to a multiple.
    pub date_granularity: i32,
    /// The most elements in a group.
    pub group_size: usize,
}

impl Default for Layout {
    /// The form that the production builder writes.
    fn default() -> Self {
        Layout {
            dense: true,
            packed: true,
            granularity: 100,
            lat_offset: 0,
            lon_offset: 0,
            date_granularity: 1000,
            group_size: usize::MAX,
        }
    }
}

impl Layout {
    fn raw(&self, units: i32, offset: i64) -> i64 {
        let nanodegrees = i64::from(units) * 100 - offset;
        let granularity = i64::from(self.granularity);
        // To the nearest multiple: exact where one exists.
        (nanodegrees + granularity / 2).div_euclid(granularity)
    }

    fn raw_lat(&self, location: Location) -> i64 {
        self.raw(location.lat, self.lat_offset)
    }

    fn raw_lon(&self, location: Location) -> i64 {
        self.raw(location.lon, self.lon_offset)
    }

    /// Whether a coordinate comes out of the block as it went in.
    fn is_exact(&self) -> bool {
        let granularity = i64::from(self.granularity);
        100 % granularity == 0 && self.lat_offset % granularity == 0 && self.lon_offset % granularity == 0
    }

    fn raw_time(&self, seconds: i64) -> i64 {
        (i128::from(seconds) * 1000).div_euclid(i128::from(self.date_granularity)) as i64
    }
}

/// Where a location is not known, this stands in columns, which cannot have gaps.
const UNKNOWN: Location = Location::new(i32::MAX, i32::MAX);

/// The uncompressed bytes of a block with these elements, of whatever kinds, in this order.
///
/// A group ends where the kind changes and, for dense nodes, where the set of metadata values that are there
/// changes. Nodes without a location are written as messages of their own where the coordinates of the block
/// could not say "unknown" in a column; ways with such a location lose all of theirs.
pub fn encode_block(elements: &[Element], layout: &Layout) -> Vec<u8> {
    let mut encoder = Encoder {
        layout: *layout,
        strings: Strings::default(),
    };
    let mut groups = Vec::new();
    let mut rest = elements;
    while let Some(first) = rest.first() {
        let form = encoder.form(first);
        let fits = rest
            .iter()
            .take(layout.group_size.max(1))
            .take_while(|e| encoder.form(e) == form)
            .count();
        let (group, after) = rest.split_at(fits);
        let mut body = Vec::new();
        match form {
            Form::Dense(_) => write_bytes_field(&mut body, 2, &encoder.dense(group)),
            Form::Node => group
                .iter()
                .for_each(|e| write_bytes_field(&mut body, 1, &encoder.node(e))),
            Form::Way => group
                .iter()
                .for_each(|e| write_bytes_field(&mut body, 3, &encoder.way(e))),
            Form::Relation => group
                .iter()
                .for_each(|e| write_bytes_field(&mut body, 4, &encoder.relation(e))),
        }
        write_bytes_field(&mut groups, 2, &body);
        rest = after;
    }
    let mut out = Vec::new();
    let mut table = Vec::new();
    for text in &encoder.strings.list {
        write_bytes_field(&mut table, 1, text);
    }
    write_bytes_field(&mut out, 1, &table);
    out.extend_from_slice(&groups);
    let plain = Layout::default();
    if layout.granularity != plain.granularity {
        write_varint_field(&mut out, 17, layout.granularity as u64);
    }
    if layout.date_granularity != plain.date_granularity {
        write_varint_field(&mut out, 18, layout.date_granularity as u64);
    }
    for (field, offset) in [(19, layout.lat_offset), (20, layout.lon_offset)] {
        if offset != 0 {
            write_varint_field(&mut out, field, offset as u64);
        }
    }
    out
}

/// How an element is written; a group holds elements of one form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// With the metadata values that are there.
    Dense([bool; 6]),
    Node,
    Way,
    Relation,
}

fn presence(m: &Metadata) -> [bool; 6] {
    [
        m.version.is_some(),
        m.timestamp.is_some(),
        m.changeset.is_some(),
        m.uid.is_some(),
        m.user.is_some(),
        m.visible.is_some(),
    ]
}

/// A string table: number 0 is the empty string, and so is number 1, for keys of dense nodes.
struct Strings {
    list: Vec<Vec<u8>>,
    numbers: HashMap<Vec<u8>, u64>,
}

impl Default for Strings {
    fn default() -> Self {
        Strings {
            list: vec![Vec::new(), Vec::new()],
            numbers: HashMap::from([(Vec::new(), 0)]),
        }
    }
}

impl Strings {
    fn number(&mut self, Text(text): &Text) -> u64 {
        *self.numbers.entry(text.clone()).or_insert_with(|| {
            self.list.push(text.clone());
            self.list.len() as u64 - 1
        })
    }

    fn dense_key(&mut self, key: &Text) -> u64 {
        self.number(key).max(1)
    }
}

struct Encoder {
    layout: Layout,
    strings: Strings,
}

impl Encoder {
    fn form(&self, element: &Element) -> Form {
        match element.kind() {
            Kind::Way => Form::Way,
            Kind::Relation => Form::Relation,
            Kind::Node => {
                let sayable = element.location.is_some() || !element.is_visible() || self.layout.is_exact();
                if self.layout.dense && sayable {
                    Form::Dense(presence(&element.metadata))
                } else {
                    Form::Node
                }
            }
        }
    }

    /// Appends a repeated field of numbers.
    fn column(&self, out: &mut Vec<u8>, field: u32, values: impl IntoIterator<Item = u64>) {
        let mut packed = Vec::new();
        for value in values {
            if self.layout.packed {
                write_varint(&mut packed, value);
            } else {
                write_varint_field(out, field, value);
            }
        }
        if !packed.is_empty() {
            write_bytes_field(out, field, &packed);
        }
    }

    /// Appends a repeated field of signed differences.
    fn deltas(&self, out: &mut Vec<u8>, field: u32, values: impl IntoIterator<Item = i64>) {
        let mut last = 0i64;
        let deltas = values.into_iter().map(|value| {
            let delta = value.wrapping_sub(last);
            last = value;
            osmill_pbf::wire::zigzag_encode(delta)
        });
        self.column(out, field, deltas);
    }

    fn dense(&mut self, nodes: &[Element]) -> Vec<u8> {
        let mut out = Vec::new();
        self.deltas(&mut out, 1, nodes.iter().map(|n| n.id.id));
        let mut info = Vec::new();
        let metadata = || nodes.iter().map(|n| &n.metadata);
        let layout = self.layout;
        self.column(
            &mut info,
            1,
            metadata().filter_map(|m| m.version).map(|v| v as i64 as u64),
        );
        let times = metadata().filter_map(|m| m.timestamp);
        self.deltas(&mut info, 2, times.map(|t| layout.raw_time(t.0)));
        self.deltas(&mut info, 3, metadata().filter_map(|m| m.changeset));
        self.deltas(&mut info, 4, metadata().filter_map(|m| m.uid).map(i64::from));
        let users: Vec<_> = metadata()
            .filter_map(|m| m.user.as_ref())
            .map(|user| self.strings.number(user) as i64)
            .collect();
        self.deltas(&mut info, 5, users);
        self.column(&mut info, 6, metadata().filter_map(|m| m.visible).map(u64::from));
        if !info.is_empty() {
            write_bytes_field(&mut out, 5, &info);
        }
        let locations = || nodes.iter().map(|n| n.location.unwrap_or(UNKNOWN));
        self.deltas(&mut out, 8, locations().map(|l| layout.raw_lat(l)));
        self.deltas(&mut out, 9, locations().map(|l| layout.raw_lon(l)));
        if nodes.iter().any(|n| !n.tags.is_empty()) {
            let mut keys_and_values = Vec::new();
            for node in nodes {
                for (key, value) in &node.tags {
                    keys_and_values.push(self.strings.dense_key(key));
                    keys_and_values.push(self.strings.number(value));
                }
                keys_and_values.push(0);
            }
            self.column(&mut out, 10, keys_and_values);
        }
        out
    }

    /// The fields 2, 3 and 4 that all messages share: keys, values, metadata.
    fn tags_and_info(&mut self, out: &mut Vec<u8>, element: &Element) {
        let keys: Vec<_> = element
            .tags
            .iter()
            .map(|(key, _)| self.strings.number(key))
            .collect();
        let values: Vec<_> = element
            .tags
            .iter()
            .map(|(_, value)| self.strings.number(value))
            .collect();
        self.column(out, 2, keys);
        self.column(out, 3, values);
        let m = &element.metadata;
        let mut info = Vec::new();
        let mut field = |number, value: Option<u64>| {
            if let Some(value) = value {
                write_varint_field(&mut info, number, value);
            }
        };
        field(1, m.version.map(|v| v as i64 as u64));
        field(2, m.timestamp.map(|t| self.layout.raw_time(t.0) as u64));
        field(3, m.changeset.map(|c| c as u64));
        field(4, m.uid.map(|u| i64::from(u) as u64));
        field(5, m.user.as_ref().map(|user| self.strings.number(user)));
        field(6, m.visible.map(u64::from));
        if !info.is_empty() {
            write_bytes_field(out, 4, &info);
        }
    }

    fn node(&mut self, node: &Element) -> Vec<u8> {
        let mut out = Vec::new();
        write_varint(&mut out, 1 << 3);
        write_sint(&mut out, node.id.id);
        self.tags_and_info(&mut out, node);
        if let Some(location) = node.location {
            write_varint(&mut out, 8 << 3);
            write_sint(&mut out, self.layout.raw_lat(location));
            write_varint(&mut out, 9 << 3);
            write_sint(&mut out, self.layout.raw_lon(location));
        }
        out
    }

    fn way(&mut self, way: &Element) -> Vec<u8> {
        let mut out = Vec::new();
        write_varint_field(&mut out, 1, way.id.id as u64);
        self.tags_and_info(&mut out, way);
        self.deltas(&mut out, 8, way.refs.iter().copied());
        let sayable = |locations: &&Vec<Option<Location>>| {
            self.layout.is_exact() || locations.iter().all(Option::is_some)
        };
        if let Some(locations) = way.locations.as_ref().filter(sayable) {
            let locations = || locations.iter().map(|l| l.unwrap_or(UNKNOWN));
            self.deltas(&mut out, 9, locations().map(|l| self.layout.raw_lat(l)));
            self.deltas(&mut out, 10, locations().map(|l| self.layout.raw_lon(l)));
        }
        out
    }

    fn relation(&mut self, relation: &Element) -> Vec<u8> {
        let mut out = Vec::new();
        write_varint_field(&mut out, 1, relation.id.id as u64);
        self.tags_and_info(&mut out, relation);
        let members = &relation.members;
        let roles: Vec<_> = members.iter().map(|m| self.strings.number(&m.role)).collect();
        self.column(&mut out, 8, roles);
        self.deltas(&mut out, 9, members.iter().map(|m| m.element.id));
        self.column(&mut out, 10, members.iter().map(|m| m.element.kind as u64));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Data;
    use crate::strategies;
    use osmill_pbf::{Block, IndexRecord, Item};
    use proptest::prelude::*;

    fn layout() -> impl Strategy<Value = Layout> {
        (any::<bool>(), any::<bool>(), 0usize..4, 1usize..20, any::<bool>()).prop_map(
            |(dense, packed, granularity, group_size, offsets)| Layout {
                dense,
                packed,
                granularity: [1, 10, 50, 100][granularity],
                lat_offset: if offsets { 1_000_000_000 } else { 0 },
                lon_offset: if offsets { -5_000_000_000 } else { 0 },
                date_granularity: if offsets { 1 } else { 1000 },
                group_size,
            },
        )
    }

    fn read(raw: Vec<u8>) -> Data {
        let block = Block::parse(raw).unwrap();
        block
            .elements()
            .map(|e| Element::of(&e.unwrap()).unwrap())
            .collect()
    }

    proptest! {
        #[test]
        fn every_exact_form_reads_back(data in strategies::data(), layout in layout()) {
            let raw = encode_block(&data.elements, &layout);
            IndexRecord::of(&Block::parse(raw.clone()).unwrap()).unwrap();
            prop_assert_eq!(read(raw), data);
        }

        #[test]
        fn coarse_coordinates_move_by_half_a_unit_at_most(data in strategies::data(), granularity in 101i32..100_000) {
            let layout = Layout { granularity, ..Layout::default() };
            let back = read(encode_block(&data.elements, &layout));
            prop_assert_eq!(back.elements.len(), data.elements.len());
            for (a, b) in back.elements.iter().zip(&data.elements) {
                prop_assert_eq!(a.location.is_some(), b.location.is_some());
                if let (Some(a), Some(b)) = (a.location, b.location) {
                    prop_assert!((a.lon - b.lon).abs() <= granularity / 200 + 1 && (a.lat - b.lat).abs() <= granularity / 200 + 1);
                }
            }
        }
    }

    #[test]
    fn forms_are_what_they_say() {
        let data = Data::opl("n1 v1 x1 y1\nn2 v1 x1 y1\nw1 Nn1,n2");
        let items = |layout: Layout| {
            let block = Block::parse(encode_block(&data.elements, &layout)).unwrap();
            let mut found = String::new();
            for group in block.groups() {
                for item in group.items() {
                    found.push(match item.unwrap() {
                        Item::Node(_) => 'n',
                        Item::Dense(_) => 'd',
                        Item::Way(_) => 'w',
                        Item::Relation(_) => 'r',
                    });
                }
                found.push('|');
            }
            found
        };
        assert_eq!(items(Layout::default()), "d|w|");
        let plain = Layout {
            dense: false,
            ..Layout::default()
        };
        assert_eq!(items(plain), "nn|w|");
        let single = Layout {
            group_size: 1,
            ..Layout::default()
        };
        assert_eq!(items(single), "d|d|w|");
    }
}
