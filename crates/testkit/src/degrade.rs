//! From any PBF file a variant that is harder to read, with the same elements or with a known change to them.
//!
//! Two passes over the input: the first notes where the frames lie, the second reads their blocks in the order
//! wanted. Elements go through [`model::Element`](crate::model::Element) and [`encode`], never
//! through the production builder. Memory is that of a few blocks, and 16 bytes for each blob of the input.
//!
//! Elements keep what they have unless an option says otherwise. Header flags are kept even where they become
//! lies: files that claim to be sorted and are not exist, and readers must find out. [`Flags::Strip`] takes
//! them away.

use std::io::{Read, Seek, SeekFrom, Write};

use osmill_model::ElementId;
use osmill_pbf::{
    BlobHeader, BlobType, Block, Compression, Decompressor, FileHeader, IndexRecord, MetadataFields,
    parse_blob, parse_header_length,
};

use crate::encode::{Layout, encode_block};
use crate::file::{Frame, Frames, WriteError, WriteOptions, read_header, write_blocks};
use crate::model::{Element, ReadError};
use crate::random::{Random, mix};

/// The order of the elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// As in the input.
    #[default]
    Keep,
    /// Blobs in random order, each in itself as in the input.
    ShuffleBlobs,
    /// Blobs from last to first.
    ReverseBlobs,
    /// Blobs as in the input, the elements of each block of the output in random order.
    ShuffleElements,
}

/// What becomes of ids, and of the references to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ids {
    /// They stay.
    #[default]
    Keep,
    /// The sign changes. What was sorted stays sorted, since negative ids are sorted by absolute value.
    Negate,
    /// Their absolute value grows by 2⁵⁰, beyond any table that is indexed by ids.
    Huge,
}

impl Ids {
    /// The new id of an old one.
    pub const fn map(self, id: i64) -> i64 {
        match self {
            Ids::Keep => id,
            Ids::Negate => id.wrapping_neg(),
            Ids::Huge => id.wrapping_add(id.signum() << 50),
        }
    }
}

/// What becomes of the header's optional features (order, locations on ways).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Flags {
    /// They stay, true or not.
    #[default]
    Keep,
    /// They go.
    Strip,
    /// The file claims to be sorted, whether it is or not.
    ClaimSorted,
}

/// What to do to a file. The default does nothing but encode anew.
#[derive(Debug, Clone)]
pub struct Degrade {
    /// The order of the elements.
    pub order: Order,
    /// Elements in a block; `None` for the blocks of the input. Blocks of one kind are not ensured.
    pub elements_per_block: Option<usize>,
    /// Metadata values that are kept.
    pub metadata: MetadataFields,
    /// What becomes of ids.
    pub ids: Ids,
    /// How many of a million elements are left out, chosen by id. References to them dangle.
    pub drop_per_million: u32,
    /// The form of the blocks.
    pub layout: Layout,
    /// The codecs, one blob after the other in turn; none for the default.
    pub compressions: Vec<Compression>,
    /// Whether blobs get index records; those of the input are never kept.
    pub index: bool,
    /// Whether the header loses its bounding box.
    pub strip_bbox: bool,
    /// What becomes of the header's optional features.
    pub flags: Flags,
    /// Seed of everything random.
    pub seed: u64,
    /// Threads that encode and compress.
    pub threads: usize,
}

impl Default for Degrade {
    fn default() -> Self {
        Degrade {
            order: Order::Keep,
            elements_per_block: None,
            metadata: MetadataFields::ALL,
            ids: Ids::Keep,
            drop_per_million: 0,
            layout: Layout::default(),
            compressions: Vec::new(),
            index: false,
            strip_bbox: false,
            flags: Flags::Keep,
            seed: 1,
            threads: WriteOptions::default().threads,
        }
    }
}

/// Why a file could not be degraded.
#[derive(Debug, thiserror::Error)]
pub enum DegradeError {
    /// The input.
    #[error("reading: {0}")]
    Read(#[from] ReadError),
    /// The output.
    #[error("writing: {0}")]
    Write(#[from] WriteError),
}

/// What came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Report {
    /// Elements read.
    pub read: u64,
    /// Elements written.
    pub written: u64,
    /// Blobs written, the header's not counted.
    pub blobs: u64,
    /// Bytes written.
    pub bytes: u64,
}

impl Degrade {
    /// Whether the element with this id of the input is left out.
    pub fn drops(&self, id: ElementId) -> bool {
        let hash = mix(self.seed ^ mix(id.id as u64 ^ (id.kind as u64) << 61));
        hash % 1_000_000 < u64::from(self.drop_per_million)
    }

    /// What becomes of an element; `None` when it is left out.
    pub fn change(&self, mut element: Element) -> Option<Element> {
        if self.drops(element.id) {
            return None;
        }
        element.id.id = self.ids.map(element.id.id);
        element.refs.iter_mut().for_each(|id| *id = self.ids.map(*id));
        for member in &mut element.members {
            member.element.id = self.ids.map(member.element.id);
        }
        let (fields, m) = (self.metadata, &mut element.metadata);
        m.version = m.version.filter(|_| fields.version);
        m.timestamp = m.timestamp.filter(|_| fields.timestamp);
        m.changeset = m.changeset.filter(|_| fields.changeset);
        m.uid = m.uid.filter(|_| fields.uid);
        m.user = m.user.take().filter(|_| fields.user);
        m.visible = m.visible.filter(|_| fields.visible);
        Some(element)
    }

    fn header(&self, mut header: FileHeader) -> FileHeader {
        if self.strip_bbox {
            header.bbox = None;
        }
        match self.flags {
            Flags::Keep => {}
            Flags::Strip => header.optional_features.clear(),
            Flags::ClaimSorted => header.set_optional(osmill_pbf::SORTED, true),
        }
        header
    }

    /// Writes the variant of `input` to `output`.
    pub fn run(
        &self,
        mut input: impl Read + Seek + Send,
        output: &mut impl Write,
    ) -> Result<Report, DegradeError> {
        let (header, mut blobs) = scan(&mut input)?;
        match self.order {
            Order::Keep | Order::ShuffleElements => {}
            Order::ShuffleBlobs => Random::new(self.seed, 0).shuffle(&mut blobs),
            Order::ReverseBlobs => blobs.reverse(),
        }
        let mut report = Report::default();
        let mut failure = None;
        let mut source = Source {
            input,
            blobs: blobs.into_iter(),
            decompressor: Decompressor::default(),
            block: Block::empty(),
            pending: Vec::new(),
            ended: false,
        };
        let mut number = 0u64;
        let jobs = std::iter::from_fn(|| {
            let elements = match source.next_elements(self, &mut report.read) {
                Ok(elements) => elements?,
                Err(error) => {
                    failure = Some(error);
                    return None;
                }
            };
            report.written += elements.len() as u64;
            report.blobs += 1;
            number += 1;
            Some((number - 1, elements))
        });
        let options = WriteOptions {
            compression: self.compressions.first().copied().unwrap_or_default(),
            index: self.index,
            threads: self.threads,
        };
        let bytes = write_blocks(
            output,
            &self.header(header),
            &options,
            jobs,
            |(number, mut elements), frames| {
                if self.order == Order::ShuffleElements {
                    Random::new(self.seed, number + 1).shuffle(&mut elements);
                }
                let raw = encode_block(&elements, &self.layout);
                let record = if self.index {
                    Block::parse(raw.clone()).and_then(|b| IndexRecord::of(&b)).ok()
                } else {
                    None
                };
                if !self.compressions.is_empty() {
                    let turn = number as usize % self.compressions.len();
                    frames.set_compression(self.compressions[turn]);
                }
                frames.add_raw(BlobType::Data, &raw, record.as_ref());
            },
        )?;
        report.bytes = bytes;
        match failure {
            Some(error) => Err(error.into()),
            None => Ok(report),
        }
    }
}

/// The header, and offset and size of the frame of each data blob.
fn scan(input: &mut (impl Read + Seek)) -> Result<(FileHeader, Vec<(u64, u64)>), ReadError> {
    let mut header = FileHeader::default();
    let mut blobs = Vec::new();
    let end = input.seek(SeekFrom::End(0))?;
    let mut at = 0;
    while at < end {
        input.seek(SeekFrom::Start(at))?;
        let mut length = [0; 4];
        input.read_exact(&mut length)?;
        let mut message = vec![0; parse_header_length(length)?];
        input.read_exact(&mut message)?;
        let (blob_type, size) = {
            let parsed = BlobHeader::parse(&message)?;
            (parsed.blob_type, parsed.data_size)
        };
        let whole = 4 + message.len() as u64 + size as u64;
        match blob_type {
            BlobType::Data => blobs.push((at, whole)),
            BlobType::Other(_) => {}
            BlobType::Header => {
                let mut blob = vec![0; size];
                input.read_exact(&mut blob)?;
                let frame = Frame {
                    header: message,
                    blob,
                };
                header = read_header(&frame, &mut Decompressor::default())?;
            }
        }
        at += whole;
    }
    Ok((header, blobs))
}

struct Source<R> {
    input: R,
    blobs: std::vec::IntoIter<(u64, u64)>,
    decompressor: Decompressor,
    block: Block,
    pending: Vec<Element>,
    ended: bool,
}

impl<R: Read + Seek> Source<R> {
    /// The elements of the next block of the output.
    fn next_elements(
        &mut self,
        options: &Degrade,
        read: &mut u64,
    ) -> Result<Option<Vec<Element>>, ReadError> {
        let Some(size) = options.elements_per_block else {
            while let Some(blob) = self.blobs.next() {
                self.read_blob(blob, options, read)?;
                if !self.pending.is_empty() {
                    return Ok(Some(std::mem::take(&mut self.pending)));
                }
            }
            return Ok(None);
        };
        let size = size.max(1);
        while !self.ended && self.pending.len() < size {
            match self.blobs.next() {
                Some(blob) => self.read_blob(blob, options, read)?,
                None => self.ended = true,
            }
        }
        if self.pending.is_empty() {
            return Ok(None);
        }
        let rest = self.pending.split_off(size.min(self.pending.len()));
        Ok(Some(std::mem::replace(&mut self.pending, rest)))
    }

    fn read_blob(
        &mut self,
        (at, size): (u64, u64),
        options: &Degrade,
        read: &mut u64,
    ) -> Result<(), ReadError> {
        self.input.seek(SeekFrom::Start(at))?;
        let frame = Frames::new((&mut self.input).take(size)).next_frame()?;
        let frame = frame.ok_or(std::io::Error::from(std::io::ErrorKind::UnexpectedEof))?;
        let blob = parse_blob(&frame.blob)?;
        let decompressor = &mut self.decompressor;
        self.block
            .refill(|raw| decompressor.decompress(&blob, raw).map_err(ReadError::from))?;
        for element in self.block.elements() {
            *read += 1;
            self.pending.extend(options.change(Element::of(&element?)?));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use crate::model::{Data, PbfOptions};
    use crate::osmium;
    use crate::strategies;
    use osmill_pbf::{Codec, peek_blob};
    use proptest::prelude::*;
    use std::io::Cursor;

    fn degraded(options: &Degrade, pbf: &[u8]) -> (Vec<u8>, Report) {
        let mut out = Vec::new();
        let report = options.run(Cursor::new(pbf), &mut out).unwrap();
        assert_eq!(report.bytes, out.len() as u64);
        (out, report)
    }

    /// Elements in an order that does not depend on the file's.
    fn as_set(data: &Data) -> Vec<String> {
        let mut lines: Vec<_> = data.elements.iter().map(|e| format!("{e:?}")).collect();
        lines.sort();
        lines
    }

    fn options() -> impl Strategy<Value = Degrade> {
        let orders = [
            Order::Keep,
            Order::ShuffleBlobs,
            Order::ReverseBlobs,
            Order::ShuffleElements,
        ];
        (
            prop::sample::select(orders.to_vec()),
            proptest::option::of(1usize..12),
            any::<[bool; 4]>(),
            prop::sample::select(vec![1, 10, 100]),
            prop::sample::select(vec![vec![], vec!["none"], vec!["zstd", "lz4", "zlib", "none"]]),
            any::<u64>(),
        )
            .prop_map(
                |(order, elements_per_block, [dense, packed, index, bbox], granularity, codecs, seed)| {
                    Degrade {
                        order,
                        elements_per_block,
                        layout: Layout {
                            dense,
                            packed,
                            granularity,
                            ..Layout::default()
                        },
                        compressions: codecs.iter().map(|c| c.parse().unwrap()).collect(),
                        index,
                        strip_bbox: bbox,
                        seed,
                        ..Degrade::default()
                    }
                },
            )
    }

    proptest! {
        #[test]
        fn elements_survive_every_variant(data in strategies::data(), options in options(), blocks in 1usize..10) {
            let layout = PbfOptions { elements_per_block: blocks, ..PbfOptions::default() };
            let (out, report) = degraded(&options, &data.to_pbf_with(&layout));
            let back = Data::from_pbf(&out).unwrap();
            prop_assert_eq!(report.written, data.elements.len() as u64);
            prop_assert_eq!(as_set(&back), as_set(&data));
            if options.order == Order::Keep {
                prop_assert_eq!(back, data);
            }
        }

        #[test]
        fn ids_and_metadata_change_as_said(data in strategies::data(), huge: bool, per_million in 0u32..1_000_000) {
            let options = Degrade {
                ids: if huge { Ids::Huge } else { Ids::Negate },
                metadata: MetadataFields { version: true, ..MetadataFields::NONE },
                drop_per_million: per_million,
                ..Degrade::default()
            };
            let expected: Data = data.elements.iter().filter_map(|e| options.change(e.clone())).collect();
            let (out, _) = degraded(&options, &data.to_pbf());
            // A deleted node whose deletion is no longer said has whatever stood in the column.
            let visible = |data: Data| data.keep(|e| e.location.is_some() || e.kind() != osmill_model::Kind::Node);
            let expected_ids: Vec<_> = expected.elements.iter().map(|e| e.id).collect();
            let back = Data::from_pbf(&out).unwrap();
            prop_assert_eq!(back.elements.iter().map(|e| e.id).collect::<Vec<_>>(), expected_ids);
            prop_assert_eq!(visible(back), visible(expected));
        }
    }

    #[test]
    fn headers_and_frames_are_degraded() {
        let data = Data::opl("n1 v1 x1 y1\nn2 v1 x2 y2\nn3 v1 x3 y3\nw1 Nn1,n2");
        let mut header = data.header();
        header.bbox = Some(osmill_pbf::HeaderBox {
            left: 0,
            right: 1,
            top: 1,
            bottom: 0,
        });
        let pbf = data.to_pbf_with(&PbfOptions {
            header: Some(header),
            ..PbfOptions::default()
        });
        let options = Degrade {
            order: Order::ReverseBlobs,
            strip_bbox: true,
            elements_per_block: Some(1),
            compressions: vec!["none".parse().unwrap(), "lz4".parse().unwrap()],
            ..Degrade::default()
        };
        let (out, report) = degraded(&options, &pbf);
        assert_eq!(report.blobs, 4);
        let (header, back) = Data::with_header_from_pbf(&out).unwrap();
        assert!(header.bbox.is_none() && header.claims_sorted() && !back.is_sorted());
        let mut frames = Frames::new(&out[..]);
        let mut codecs = Vec::new();
        while let Some(frame) = frames.next_frame().unwrap() {
            assert!(frame.index_data().is_none());
            codecs.push(peek_blob(&frame.blob, frame.blob.len()).unwrap().0);
        }
        assert_eq!(codecs[1..], [Codec::Raw, Codec::Lz4, Codec::Raw, Codec::Lz4]);
        let stripped = Degrade {
            flags: Flags::Strip,
            index: true,
            ..Degrade::default()
        };
        let (out, _) = degraded(&stripped, &pbf);
        assert!(
            Data::with_header_from_pbf(&out)
                .unwrap()
                .0
                .optional_features
                .is_empty()
        );
    }

    #[test]
    fn a_real_extract_reads_the_same_in_the_tool() {
        let Some(path) = fixtures::small_extracts(600_000).into_iter().next() else {
            return;
        };
        if !osmium::available() {
            return;
        }
        let options = Degrade {
            elements_per_block: Some(50_000),
            layout: Layout {
                dense: false,
                granularity: 10,
                ..Layout::default()
            },
            compressions: vec![
                "zlib:1".parse().unwrap(),
                "lz4".parse().unwrap(),
                "none".parse().unwrap(),
            ],
            ..Degrade::default()
        };
        let (out, report) = degraded(&options, &std::fs::read(&path).unwrap());
        assert_eq!(report.read, report.written);
        let file = tempfile::Builder::new().suffix(".osm.pbf").tempfile().unwrap();
        std::fs::write(file.path(), out).unwrap();
        assert!(osmium::opl_lines(file.path()).unwrap() == osmium::opl_lines(&path).unwrap());
    }
}
