//! Cutting elements out of a block while its string table is kept.
//!
//! Ways and relations are taken over as the bytes they are, unknown fields included. Dense nodes have to be
//! coded anew, since each is a difference to the one before; their string numbers stay as they are.

use crate::block::{Block, Element, Item};
use crate::dense::DenseNodes;
use crate::error::BlockError;
use crate::wire::{write_bytes_field, write_packed_field, write_sint, write_varint};

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
