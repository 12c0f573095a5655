//! Changing blocks on the wire: elements or metadata cut out while all else is kept.
//!
//! [`Splicer::keep`] takes ways and relations over as the bytes they are, unknown fields included. Dense nodes
//! have to be coded anew, since each is a difference to the one before; their string numbers stay as they are.
//! [`Splicer::strip_metadata`] drops metadata fields and columns and copies everything else byte by byte, and so
//! does [`Splicer::strip_way_locations`]. [`Splicer::plain_nodes`] turns dense nodes into messages of their own.

use crate::block::{Block, Item, RawItem};
use crate::build::MetadataFields;
use crate::dense::DenseNodes;
use crate::element::Element;
use crate::error::BlockError;
use crate::wire::{
    Field, Fields, Value, WireError, write_bytes_field, write_packed_field, write_sint, write_varint,
    write_varint_field, zigzag_encode,
};

/// Writes blocks that hold some elements of another. Buffers are kept between blocks.
#[derive(Debug, Default)]
pub struct Splicer {
    group: Vec<u8>,
    message: Vec<u8>,
    columns: [Vec<u8>; 10],
}

/// What a [`Splicer`] has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spliced {
    /// How many elements were kept.
    pub kept: usize,
    /// How many elements the source block has.
    pub total: usize,
}

impl Splicer {
    /// Appends to `out` a block with those elements of `block` for which `keep` is true, in their order.
    ///
    /// The result holds the whole string table of `block`, also where few elements are left; for those
    /// [`crate::BlockBuilder::copy`] is the better way.
    pub fn keep(
        &mut self,
        block: &Block,
        out: &mut Vec<u8>,
        mut keep: impl FnMut(&Element<'_>) -> bool,
    ) -> Result<Spliced, BlockError> {
        let mut spliced = Spliced { kept: 0, total: 0 };
        block.frame_fields(|bytes| out.extend_from_slice(bytes))?;
        for group in block.groups() {
            self.group.clear();
            for item in group.items() {
                let element = match item? {
                    Item::Dense(dense) => {
                        self.keep_dense(dense, &mut spliced, &mut keep)?;
                        continue;
                    }
                    Item::Node(node) => Element::Node(node),
                    Item::Way(way) => Element::Way(way),
                    Item::Relation(relation) => Element::Relation(relation),
                };
                spliced.total += 1;
                if keep(&element) {
                    spliced.kept += 1;
                    match &element {
                        Element::Node(node) => {
                            write_bytes_field(&mut self.group, 1, node.message().unwrap_or_default());
                        }
                        Element::Way(way) => write_bytes_field(&mut self.group, 3, way.message()),
                        Element::Relation(relation) => {
                            write_bytes_field(&mut self.group, 4, relation.message());
                        }
                    }
                }
            }
            write_packed_field(out, 2, &self.group);
        }
        Ok(spliced)
    }

    /// Appends to `out` the block without the metadata that `fields` leaves out. Whether any metadata is left.
    ///
    /// Where user names are dropped, strings that nothing else uses are emptied in the string table; numbers
    /// stay as they are.
    pub fn strip_metadata(
        &mut self,
        block: &Block,
        fields: MetadataFields,
        out: &mut Vec<u8>,
    ) -> Result<bool, BlockError> {
        let mut left = false;
        let used = if fields.user {
            None
        } else {
            Some(strings_in_use(block)?)
        };
        let mut number_of_string = 0;
        copy_fields(block.data(), out, |number, value, out| {
            match (number, value, &used) {
                (1, Value::Bytes(table), Some(used)) => {
                    self.message.clear();
                    copy_fields(table, &mut self.message, |number, value, out| {
                        let (1, Value::Bytes(string)) = (number, value) else {
                            return Ok(false);
                        };
                        let keep = used.get(number_of_string).is_none_or(|used| *used);
                        write_bytes_field(out, 1, if keep { string } else { b"" });
                        number_of_string += 1;
                        Ok(true)
                    })?;
                    write_bytes_field(out, 1, &self.message);
                }
                (2, Value::Bytes(group), _) => {
                    self.group.clear();
                    self.strip_group(group, fields, &mut left)?;
                    write_bytes_field(out, 2, &self.group);
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(left)
    }

    fn strip_group(
        &mut self,
        group: &[u8],
        fields: MetadataFields,
        left: &mut bool,
    ) -> Result<(), WireError> {
        let Splicer {
            group: out,
            message,
            columns,
        } = self;
        let info_out = &mut columns[0];
        copy_fields(group, out, |number, value, out| {
            let (1..=4, Value::Bytes(element)) = (number, value) else {
                return Ok(false);
            };
            // Dense nodes have their metadata in field 5, all others in field 4.
            let info_field = if number == 2 { 5 } else { 4 };
            message.clear();
            copy_fields(element, message, |number, value, out| {
                let Value::Bytes(info) = value else {
                    return Ok(false);
                };
                if number != info_field {
                    return Ok(false);
                }
                info_out.clear();
                copy_fields(info, info_out, |number, _, _| {
                    Ok(match number {
                        1 => !fields.version,
                        2 => !fields.timestamp,
                        3 => !fields.changeset,
                        4 => !fields.uid,
                        5 => !fields.user,
                        6 => !fields.visible,
                        _ => false,
                    })
                })?;
                *left |= !info_out.is_empty();
                write_packed_field(out, info_field, info_out);
                Ok(true)
            })?;
            write_bytes_field(out, number, message);
            Ok(true)
        })
    }

    /// Appends to `out` the block without the locations that ways carry.
    pub fn strip_way_locations(&mut self, block: &Block, out: &mut Vec<u8>) -> Result<(), BlockError> {
        let Splicer { group, message, .. } = self;
        copy_fields(block.data(), out, |number, value, out| {
            let (2, Value::Bytes(fields)) = (number, value) else {
                return Ok(false);
            };
            group.clear();
            copy_fields(fields, group, |number, value, out| {
                let (3, Value::Bytes(way)) = (number, value) else {
                    return Ok(false);
                };
                message.clear();
                copy_fields(way, message, |number, _, _| Ok(matches!(number, 9 | 10)))?;
                write_bytes_field(out, 3, message);
                Ok(true)
            })?;
            write_bytes_field(out, 2, group);
            Ok(true)
        })?;
        Ok(())
    }

    /// Appends to `out` the block with its dense nodes as plain ones, a message each: two to three times as
    /// large, for readers that know no others.
    pub fn plain_nodes(&mut self, block: &Block, out: &mut Vec<u8>) -> Result<(), BlockError> {
        block.frame_fields(|bytes| out.extend_from_slice(bytes))?;
        for group in block.groups() {
            self.group.clear();
            let mut items = group.items();
            while let Some((item, message)) = items.try_next_raw()? {
                let field = match item {
                    RawItem::Dense => {
                        self.scatter(items.parse_dense(message)?)?;
                        continue;
                    }
                    RawItem::Node => 1,
                    RawItem::Way => 3,
                    RawItem::Relation => 4,
                };
                write_bytes_field(&mut self.group, field, message);
            }
            write_packed_field(out, 2, &self.group);
        }
        Ok(())
    }

    /// Appends dense nodes to the group as plain ones. Units stay those of the block.
    fn scatter(&mut self, mut nodes: DenseNodes<'_>) -> Result<(), BlockError> {
        let Splicer {
            group,
            message,
            columns: [keys, values, info, ..],
        } = self;
        while let Some((node, row)) = nodes.try_next_raw()? {
            for column in [&mut *message, keys, values, info] {
                column.clear();
            }
            write_varint_field(message, 1, zigzag_encode(node.id));
            let mut tags = node.tags;
            while let Some((key, value)) = tags.try_next()? {
                write_varint(keys, key);
                write_varint(values, value);
            }
            write_packed_field(message, 2, keys);
            write_packed_field(message, 3, values);
            let fields = [
                row.version,
                row.timestamp.map(|value| value as u64),
                row.changeset.map(|value| value as u64),
                row.uid.map(|value| value as u64),
                row.user_sid.map(|value| value as u64),
                row.visible,
            ];
            for (field, value) in (1..).zip(fields) {
                if let Some(value) = value {
                    write_varint_field(info, field, value);
                }
            }
            write_packed_field(message, 4, info);
            write_varint_field(message, 8, zigzag_encode(node.lat));
            write_varint_field(message, 9, zigzag_encode(node.lon));
            write_bytes_field(group, 1, message);
        }
        Ok(())
    }

    fn keep_dense(
        &mut self,
        dense: DenseNodes<'_>,
        spliced: &mut Spliced,
        keep: &mut impl FnMut(&Element<'_>) -> bool,
    ) -> Result<(), BlockError> {
        self.columns.iter_mut().for_each(Vec::clear);
        let mut last = [0i64; 10];
        let mut any_tag = false;
        let before = spliced.kept;
        let mut put = |column: usize, columns: &mut [Vec<u8>; 10], value: i64| {
            write_sint(&mut columns[column], value.wrapping_sub(last[column]));
            last[column] = value;
        };
        let mut nodes = dense;
        while let Some((node, raw)) = nodes.try_next_raw()? {
            spliced.total += 1;
            let element = Element::Node(node);
            if !keep(&element) {
                continue;
            }
            spliced.kept += 1;
            let Element::Node(node) = element else {
                unreachable!("it was made a node above")
            };
            let columns = &mut self.columns;
            put(0, columns, node.id);
            put(1, columns, node.lat);
            put(2, columns, node.lon);
            if let Some(version) = raw.version {
                write_varint(&mut columns[4], version);
            }
            for (column, value) in [
                (5, raw.timestamp),
                (6, raw.changeset),
                (7, raw.uid),
                (8, raw.user_sid),
            ] {
                if let Some(value) = value {
                    put(column, columns, value);
                }
            }
            if let Some(visible) = raw.visible {
                write_varint(&mut columns[9], visible);
            }
            let mut tags = node.tags;
            while let Some((key, value)) = tags.try_next()? {
                any_tag = true;
                write_varint(&mut columns[3], key);
                write_varint(&mut columns[3], value);
            }
            columns[3].push(0);
        }
        if spliced.kept == before {
            return Ok(());
        }
        let info = &mut Vec::new();
        for (field, column) in (1..).zip(&self.columns[4..]) {
            write_packed_field(info, field, column);
        }
        self.message.clear();
        for (field, column) in [
            (1, &self.columns[0]),
            (5, &*info),
            (8, &self.columns[1]),
            (9, &self.columns[2]),
        ] {
            write_packed_field(&mut self.message, field, column);
        }
        if any_tag {
            write_packed_field(&mut self.message, 10, &self.columns[3]);
        }
        write_bytes_field(&mut self.group, 2, &self.message);
        Ok(())
    }
}

/// Appends the fields of a message to `out`. `change` may write something else for a field, or nothing, and
/// then says so; all other fields are copied as they are.
#[inline]
fn copy_fields<'a>(
    message: &'a [u8],
    out: &mut Vec<u8>,
    mut change: impl FnMut(u32, Value<'a>, &mut Vec<u8>) -> Result<bool, WireError>,
) -> Result<(), WireError> {
    let mut fields = Fields::new(message);
    while let Some(field @ Field { number, value, .. }) = fields.try_next_field()? {
        if !change(number, value, out)? {
            out.extend_from_slice(field.bytes());
        }
    }
    Ok(())
}

/// Which strings of the table tags and roles use.
fn strings_in_use(block: &Block) -> Result<Vec<bool>, BlockError> {
    let mut used = vec![false; block.string_count()?];
    let mut mark = |sid: u64| -> Result<(), BlockError> {
        // Looking the string up refuses numbers that the table does not have.
        block.string(sid)?;
        used[sid as usize] = true;
        Ok(())
    };
    for element in block.elements() {
        let element = element?;
        let mut tags = element.tags();
        while let Some((key, value)) = tags.try_next_ids()? {
            mark(key)?;
            mark(value)?;
        }
        if let Element::Relation(relation) = &element {
            let mut roles = relation.roles;
            while let Some(role) = roles.try_next()? {
                mark(role)?;
            }
        }
    }
    Ok(used)
}
