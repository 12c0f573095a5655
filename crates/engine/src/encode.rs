//! How elements and blocks become bytes of an output.
//!
//! A PBF output takes compressed bytes as they are where its options allow that. Otherwise blocks are changed
//! on the wire, without building them anew, and compressed. A text output prints elements; where it is
//! compressed, that is done later, when enough text has been gathered.

use std::sync::atomic::Ordering::Relaxed;

use osmill_pbf::{
    BlobType, Block, BlockBuilder, BlockError, Compressor, ELEMENTS_PER_BLOCK, Element, IndexRecord, Item,
    MetadataFields, NodeArrays, Splicer, write_frame,
};
use osmill_text::compress::TextCompressor;
use osmill_text::format::TextCompression;
use osmill_text::{Action, Printer};

use crate::error::KernelResult;
use crate::output::OutputOptions;
use crate::plan::Origin;
use crate::summary::{Counters, timed};

/// Bytes that a block put together from others may have, well under the limit of readers.
const MOST_BYTES: usize = 24 << 20;

/// A worker's own means of encoding.
#[derive(Debug)]
pub(crate) struct Tools {
    pub builder: BlockBuilder,
    /// A full block that is not put out yet: the task may end with too few elements for one of their own.
    pub aside: BlockBuilder,
    nodes: NodeArrays,
    compressor: Compressor,
    raw: Vec<u8>,
    changes: Changes,
    recompress: bool,
    splicer: Splicer,
    changed: [Block; 3],
    text: Option<TextTools>,
}

#[derive(Debug)]
struct TextTools {
    printer: Printer,
    compression: TextCompression,
    compressor: TextCompressor,
    /// What a change file says of the elements at hand.
    action: Option<Action>,
}

/// What blocks lose on their way into a PBF output.
#[derive(Debug, Clone, Copy)]
struct Changes {
    metadata: MetadataFields,
    plain_nodes: bool,
    strip_locations: bool,
}

impl Changes {
    fn metadata_of(&self, record: &IndexRecord) -> bool {
        record.has_metadata && self.metadata != MetadataFields::ALL
    }

    fn locations_of(&self, record: &IndexRecord) -> bool {
        record.has_way_locations && self.strip_locations
    }

    fn nodes_of(&self, record: &IndexRecord) -> bool {
        record.counts[0] > 0 && self.plain_nodes
    }

    fn any_of(&self, record: &IndexRecord) -> bool {
        self.metadata_of(record) || self.locations_of(record) || self.nodes_of(record)
    }
}

impl Tools {
    pub fn new(options: &OutputOptions) -> Self {
        Tools {
            builder: BlockBuilder::new(options.block_metadata()),
            aside: BlockBuilder::new(options.block_metadata()),
            nodes: NodeArrays::default(),
            compressor: Compressor::new(options.compression),
            raw: Vec::new(),
            changes: Changes {
                metadata: options.block_metadata(),
                plain_nodes: options.format.pbf_dense_nodes == Some(false),
                strip_locations: options.format.locations_on_ways == Some(false),
            },
            recompress: options.recompress,
            splicer: Splicer::default(),
            changed: [Block::empty(), Block::empty(), Block::empty()],
            text: options.printer().map(|printer| TextTools {
                printer,
                compression: options.format.compression,
                compressor: TextCompressor::new(options.format.compression),
                action: None,
            }),
        }
    }

    /// Whether elements are printed.
    pub fn is_text(&self) -> bool {
        self.text.is_some()
    }

    /// Whether what is printed is gathered and compressed.
    pub fn gathers_text(&self) -> bool {
        let text = self.text.as_ref();
        text.is_some_and(|text| text.compression != TextCompression::None)
    }

    /// Whether the compressed bytes of a blob with this record can go into the output.
    pub fn copies(&self, record: &IndexRecord) -> bool {
        !self.is_text() && !self.recompress && !self.changes.any_of(record)
    }

    /// Tells where the elements that follow come from.
    pub fn begin(&mut self, origin: Origin) {
        if let Some(text) = &mut self.text {
            (text.action, text.printer.options_mut().deleted_locations) = match origin {
                Origin::Pbf => (None, false),
                Origin::Text(action) => (action, true),
            };
        }
    }

    /// Prints an element.
    pub fn print(&mut self, out: &mut Vec<u8>, element: &Element<'_>) -> Result<(), BlockError> {
        match &mut self.text {
            Some(text) => {
                let metadata = self.changes.metadata.filter(element.metadata()?);
                text.printer.element(element, &metadata, text.action, out)
            }
            None => Ok(()),
        }
    }

    /// Closes what the printer has left open.
    pub fn end_text(&mut self, out: &mut Vec<u8>) {
        if let Some(text) = &mut self.text {
            text.printer.end_block(out);
        }
    }

    /// Appends the elements of a block: as a frame, or as text.
    pub fn block(
        &mut self,
        out: &mut Vec<u8>,
        block: &Block,
        index: &IndexRecord,
        counters: &Counters,
    ) -> KernelResult {
        if self.is_text() {
            for element in block.elements() {
                self.print(out, &element?)?;
            }
            return Ok(());
        }
        let Tools {
            changes,
            splicer,
            changed: [a, b, c],
            compressor,
            ..
        } = self;
        let (mut block, mut index) = (block, *index);
        if changes.metadata_of(&index) {
            a.refill(|bytes| {
                bytes.clear();
                index.has_metadata = splicer.strip_metadata(block, changes.metadata, bytes)?;
                index.has_visibility &= changes.metadata.visible;
                Ok::<_, BlockError>(())
            })?;
            block = a;
        }
        if changes.locations_of(&index) {
            b.refill(|bytes| {
                bytes.clear();
                index.has_way_locations = false;
                splicer.strip_way_locations(block, bytes)
            })?;
            block = b;
        }
        if changes.nodes_of(&index) {
            c.refill(|bytes| {
                bytes.clear();
                splicer.plain_nodes(block, bytes)
            })?;
            block = c;
        }
        timed(&counters.deflate_ns, || {
            write_frame(out, BlobType::Data, Some(&index), block.data(), compressor)
        })?;
        counters.blobs_written.fetch_add(1, Relaxed);
        Ok(())
    }

    /// As [`Tools::block`], from the bytes of the block. These are only looked into where they have to be.
    pub fn raw_block(
        &mut self,
        out: &mut Vec<u8>,
        raw: &[u8],
        index: &IndexRecord,
        counters: &Counters,
    ) -> KernelResult {
        if !self.is_text() && !self.changes.any_of(index) {
            timed(&counters.deflate_ns, || {
                write_frame(out, BlobType::Data, Some(index), raw, &mut self.compressor)
            })?;
            counters.blobs_written.fetch_add(1, Relaxed);
            return Ok(());
        }
        self.block(out, &Block::parse(raw.to_vec())?, index, counters)
    }

    /// Appends the builder's block.
    pub fn flush_builder(&mut self, out: &mut Vec<u8>, counters: &Counters) -> KernelResult<IndexRecord> {
        let mut raw = std::mem::take(&mut self.raw);
        raw.clear();
        let index = self.builder.finish(&mut raw);
        // The builder has left out what metadata is not wanted.
        let metadata = std::mem::replace(&mut self.changes.metadata, MetadataFields::ALL);
        let framed = self.raw_block(out, &raw, &index, counters);
        self.changes.metadata = metadata;
        self.raw = raw;
        framed.map(|()| index)
    }

    /// Adds what the builder has to the block that was put aside, which takes its place. `false` if there is none, or
    /// that would be too much.
    pub fn join_aside(&mut self) -> KernelResult<bool> {
        if self.aside.is_empty() || self.aside.size() + self.builder.size() > MOST_BYTES {
            return Ok(false);
        }
        std::mem::swap(&mut self.builder, &mut self.aside);
        let mut rest = Vec::new();
        self.aside.finish(&mut rest);
        self.add_block(&Block::parse(rest)?)?;
        Ok(true)
    }

    /// Appends many blocks as one, or as few as can be, or pieces of text as one compressed member. Buffers of
    /// text are left in `parts`.
    pub fn merge(
        &mut self,
        parts: &mut Vec<Vec<u8>>,
        out: &mut Vec<u8>,
        counters: &Counters,
    ) -> KernelResult {
        if let Some(text) = &mut self.text {
            self.raw.clear();
            parts.iter().for_each(|part| self.raw.extend_from_slice(part));
            timed(&counters.deflate_ns, || text.compressor.write(&self.raw, out));
            return Ok(());
        }
        for bytes in parts.drain(..) {
            if !self.builder.is_empty() && self.builder.size() + bytes.len() > MOST_BYTES {
                self.flush_builder(out, counters)?;
            }
            self.add_block(&Block::parse(bytes)?)?;
            if self.builder.is_full() && self.builder.len() >= 2 * ELEMENTS_PER_BLOCK {
                self.flush_builder(out, counters)?;
            }
        }
        if !self.builder.is_empty() {
            self.flush_builder(out, counters)?;
        }
        Ok(())
    }

    /// Adds the elements of a block to the builder, nodes many at a time.
    fn add_block(&mut self, block: &Block) -> KernelResult {
        for group in block.groups() {
            for item in group.items() {
                match item? {
                    Item::Dense(dense) if self.nodes.read(block, &dense)? => {
                        self.builder
                            .copy_nodes(block, &self.nodes, 0..self.nodes.ids.len())?;
                    }
                    Item::Dense(dense) => {
                        for node in dense {
                            self.builder.copy(&Element::Node(node?))?;
                        }
                    }
                    Item::Node(node) => self.builder.copy(&Element::Node(node))?,
                    Item::Way(way) => self.builder.copy(&Element::Way(way))?,
                    Item::Relation(relation) => self.builder.copy(&Element::Relation(relation))?,
                }
            }
        }
        Ok(())
    }
}
