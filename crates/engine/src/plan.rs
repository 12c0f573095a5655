//! Plans: which blobs a file has, and what is known of each.
//!
//! A plan is made from blob headers alone. They are found by walking from frame to frame: 4 bytes of length,
//! the header, over the data. Large files are walked by several threads at once: each starts inside the file,
//! looks for bytes that can be a data blob's header and believes them when three frames in a row follow; the
//! pieces are stitched where one walk meets the start of the next, and walked again where it does not.
//!
//! What a header's index record does not say can be found out by [`crate::Job::complete`], which decodes the
//! blobs in question.

use std::sync::Arc;

use osmill_model::KindSet;
use osmill_pbf::{
    BlobHeader, BlobType, Codec, Decompressor, FileHeader, IndexRecord, MAX_WRITTEN_BLOB_HEADER_SIZE,
    parse_blob, parse_header_length, peek_blob,
};

use crate::error::{Error, Malformed, Result};
use crate::file::{ReadBuffer, ReadFile};
use osmill_text::Action;
use osmill_text::format::Sniffed;

/// A data blob of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlobEntry {
    /// Number of the blob in its file, counted from 0, headers and unknown blobs included.
    pub number: u64,
    /// Where the frame begins: its length bytes.
    pub offset: u64,
    /// Bytes from there to the Blob message.
    pub header_size: u32,
    /// Bytes of the Blob message.
    pub data_size: u32,
    /// How the blob is compressed, if its first bytes tell.
    pub codec: Option<Codec>,
    /// Bytes of the uncompressed block, if the first bytes tell.
    pub raw_size: Option<u32>,
    /// What is in the blob, if that is known.
    pub index: Option<IndexRecord>,
    /// Whether that stands in the blob's header.
    pub indexed: bool,
    /// What the blob was made from.
    pub origin: Origin,
}

/// What a blob was made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Origin {
    /// A PBF file.
    #[default]
    Pbf,
    /// A text file. Elements of change files are all of one action.
    ///
    /// Deleted elements have `visible` false, whatever the syntax, so that a command that wants to know no more
    /// than that need not look here.
    Text(Option<Action>),
}

impl BlobEntry {
    /// The entry of a frame whose header took `length` bytes. Of the message the first bytes are enough.
    pub(crate) fn of_frame(
        number: u64,
        offset: u64,
        length: usize,
        header: &BlobHeader<'_>,
        message: &[u8],
    ) -> (FrameKind, Self) {
        let (kind, index) = classify(header);
        let (codec, raw_size) = peek(message, header.data_size);
        let entry = BlobEntry {
            number,
            offset,
            header_size: 4 + length as u32,
            data_size: header.data_size as u32,
            codec,
            raw_size,
            index,
            indexed: index.is_some(),
            origin: Origin::Pbf,
        };
        (kind, entry)
    }

    /// Whether the frame stands in the file as it would be written here.
    pub(crate) fn is_ours(&self) -> bool {
        self.indexed && self.header_size as usize <= 4 + MAX_WRITTEN_BLOB_HEADER_SIZE
    }

    /// Where the Blob message begins.
    pub fn data_offset(&self) -> u64 {
        self.offset + u64::from(self.header_size)
    }

    /// Where the next frame begins.
    pub fn end(&self) -> u64 {
        self.data_offset() + u64::from(self.data_size)
    }

    /// Bytes of the whole frame.
    pub fn frame_size(&self) -> u64 {
        self.end() - self.offset
    }
}

/// What a frame is, as far as its header tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameKind {
    Header,
    Data,
    Other,
}

/// What kind of frame follows, and its index record if it has one of ours.
pub(crate) fn classify(header: &BlobHeader<'_>) -> (FrameKind, Option<IndexRecord>) {
    match header.blob_type {
        BlobType::Header => (FrameKind::Header, None),
        BlobType::Data => {
            let decode = |bytes| IndexRecord::decode(bytes, header.data_size);
            (FrameKind::Data, header.index_data.and_then(decode))
        }
        BlobType::Other(_) => (FrameKind::Other, None),
    }
}

/// Codec and uncompressed size, from the first bytes of a Blob message of `size` bytes.
fn peek(prefix: &[u8], size: usize) -> (Option<Codec>, Option<u32>) {
    match peek_blob(prefix, size) {
        Some((Codec::Raw, _, data)) => (Some(Codec::Raw), u32::try_from(data.len()).ok()),
        Some((codec, raw_size, _)) => (Some(codec), raw_size.and_then(|size| u32::try_from(size).ok())),
        None => (None, None),
    }
}

/// Bytes read ahead for a frame's header: enough for all that are written in practice.
const HEADER_GUESS: usize = 256;

/// Reads the frame header at `offset`. `None` at the end of the file.
fn read_frame_header(
    file: &ReadFile,
    offset: u64,
    buffer: &mut ReadBuffer,
) -> Result<Result<Option<(FrameKind, BlobEntry)>, Malformed>> {
    if offset >= file.size() {
        return Ok(Ok(None));
    }
    let left = file.size() - offset;
    file.read_at(offset, HEADER_GUESS, buffer)?;
    let truncated = |found: u64, expected: u64| Ok(Err(Malformed::Truncated { found, expected }));
    let Some((length, _)) = buffer.as_slice().split_first_chunk::<4>() else {
        return truncated(left, 4);
    };
    let length = match parse_header_length(*length) {
        Ok(length) => length,
        Err(e) => return Ok(Err(e.into())),
    };
    if 4 + length as u64 > left {
        return truncated(left, 4 + length as u64);
    }
    if 4 + length > buffer.as_slice().len() {
        file.read_at(offset, 4 + length, buffer)?;
        if buffer.as_slice().len() < 4 + length {
            return truncated(buffer.as_slice().len() as u64, 4 + length as u64);
        }
    }
    let header = match BlobHeader::parse(&buffer.as_slice()[4..4 + length]) {
        Ok(header) => header,
        Err(e) => return Ok(Err(e.into())),
    };
    let frame_size = (4 + length + header.data_size) as u64;
    if frame_size > left {
        return truncated(left, frame_size);
    }
    let message = &buffer.as_slice()[4 + length..];
    Ok(Ok(Some(BlobEntry::of_frame(0, offset, length, &header, message))))
}

/// The blobs of a file and what its headers say.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The file header. Where files were concatenated, the first one, with what does not hold for all removed.
    pub header: FileHeader,
    /// How many file headers there are.
    pub header_count: usize,
    /// The data blobs in the order of the file.
    pub blobs: Vec<BlobEntry>,
    /// Frames of a type that is not known here, which are passed over.
    pub other_blobs: u64,
}

#[derive(Debug, Default)]
struct Walk {
    headers: Vec<BlobEntry>,
    blobs: Vec<BlobEntry>,
    other: u64,
    /// Where the walk stopped.
    end: u64,
    /// Why, if not for reaching its goal.
    error: Option<Malformed>,
}

impl Walk {
    fn frames(&self) -> u64 {
        self.headers.len() as u64 + self.blobs.len() as u64 + self.other
    }

    /// Walks from `start` to the first frame at or after `goal`.
    fn run(file: &ReadFile, start: u64, goal: u64) -> Result<Walk> {
        let mut walk = Walk {
            end: start,
            ..Walk::default()
        };
        let mut buffer = ReadBuffer::default();
        while walk.end < goal {
            let (kind, mut entry) = match read_frame_header(file, walk.end, &mut buffer)? {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(error) => {
                    walk.error = Some(error);
                    break;
                }
            };
            entry.number = walk.frames();
            walk.end = entry.end();
            match kind {
                FrameKind::Header => walk.headers.push(entry),
                FrameKind::Data => walk.blobs.push(entry),
                FrameKind::Other => walk.other += 1,
            }
        }
        Ok(walk)
    }

    fn append(&mut self, mut next: Walk) {
        let before = self.frames();
        for entry in next.headers.iter_mut().chain(&mut next.blobs) {
            entry.number += before;
        }
        self.headers.append(&mut next.headers);
        self.blobs.append(&mut next.blobs);
        self.other += next.other;
        self.end = next.end;
        self.error = next.error;
    }
}

/// A piece of a file that is worth a thread of its own.
const WALK_PIECE: u64 = 256 << 20;

/// Finds the first place at or after `from` where a data blob's header seems to begin.
fn resynchronise(file: &ReadFile, from: u64, until: u64) -> Result<Option<u64>> {
    const MARK: &[u8] = b"\x0a\x07OSMData";
    let mut buffer = ReadBuffer::default();
    let mut probe = ReadBuffer::default();
    let mut at = from;
    while at < until {
        file.read_at(at, 1 << 20, &mut buffer)?;
        let bytes = buffer.as_slice();
        for start in bytes
            .windows(4 + MARK.len())
            .enumerate()
            .filter(|(_, w)| &w[4..] == MARK)
            .map(|(i, _)| i)
        {
            let mut offset = at + start as u64;
            let chained = (0..3).try_fold(true, |chained, _| -> Result<bool> {
                Ok(chained
                    && match read_frame_header(file, offset, &mut probe)? {
                        Ok(Some((_, entry))) => {
                            offset = entry.end();
                            true
                        }
                        Ok(None) => true,
                        Err(_) => false,
                    })
            })?;
            if chained {
                return Ok(Some(at + start as u64));
            }
        }
        if bytes.len() < 1 << 20 {
            break;
        }
        at += (bytes.len() - (3 + MARK.len())) as u64;
    }
    Ok(None)
}

/// Walks all frames, in `pieces` pieces at once.
fn walk_in_pieces(file: &ReadFile, pieces: u64) -> Result<Walk> {
    let cut = |i: u64| file.size() / pieces * i;
    let walks = std::thread::scope(|scope| {
        let handles: Vec<_> = (1..pieces)
            .map(|i| {
                scope.spawn(move || -> Result<Option<(u64, Walk)>> {
                    let goal = if i + 1 == pieces { file.size() } else { cut(i + 1) };
                    match resynchronise(file, cut(i), goal)? {
                        Some(start) => Ok(Some((start, Walk::run(file, start, goal)?))),
                        None => Ok(None),
                    }
                })
            })
            .collect();
        let first = Walk::run(file, 0, if pieces == 1 { file.size() } else { cut(1) });
        let rest: Result<Vec<_>> = handles
            .into_iter()
            .map(|handle| match handle.join() {
                Ok(walk) => walk,
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .collect();
        Ok::<_, Error>((first?, rest?))
    });
    let (mut whole, rest) = walks?;
    for (start, walk) in rest.into_iter().flatten() {
        if whole.error.is_some() {
            break;
        }
        // A start that was guessed wrongly, or lies behind a frame that reaches far, is not met.
        if whole.end < start {
            whole.append(Walk::run(file, whole.end, start)?);
        }
        if whole.end == start && whole.error.is_none() {
            whole.append(walk);
        }
    }
    if whole.error.is_none() && whole.end < file.size() {
        whole.append(Walk::run(file, whole.end, file.size())?);
    }
    Ok(whole)
}

impl Plan {
    pub(crate) fn walk(file: &Arc<ReadFile>, threads: usize) -> Result<Plan> {
        let pieces = (file.size() / WALK_PIECE).clamp(1, 8 * threads.max(1) as u64);
        let mut walk = walk_in_pieces(file, pieces)?;
        let malformed = |blob: u64, offset: u64, source: Malformed| Error::Malformed {
            path: file.path().to_owned(),
            blob,
            offset,
            source,
        };
        let at_start = walk.frames() == 0;
        if at_start {
            let what = Sniffed::of(&file.head()?);
            if what != Sniffed::Pbf {
                return Err(Error::NotPbf {
                    path: file.path().to_owned(),
                    what,
                });
            }
        }
        if let Some(error) = walk.error.take() {
            return Err(malformed(walk.frames(), walk.end, error));
        }
        match walk.headers.first() {
            Some(first) if first.offset == 0 => {}
            _ => return Err(malformed(0, 0, Malformed::NoHeader)),
        }
        let mut headers = Vec::new();
        let mut buffer = ReadBuffer::default();
        let (mut decompressor, mut raw) = (Decompressor::default(), Vec::new());
        for entry in &walk.headers {
            file.read_at(entry.data_offset(), entry.data_size as usize, &mut buffer)?;
            let header = parse_blob(buffer.as_slice())
                .and_then(|blob| decompressor.decompress(&blob, &mut raw))
                .map_err(Malformed::from)
                .and_then(|()| FileHeader::parse(&raw).map_err(Malformed::from))
                .map_err(|e| malformed(entry.number, entry.offset, e))?;
            headers.push(header);
        }
        Ok(Plan {
            header_count: headers.len(),
            header: merge_headers(headers),
            blobs: walk.blobs,
            other_blobs: walk.other,
        })
    }

    /// Whether every blob has an index record.
    pub fn is_indexed(&self) -> bool {
        self.blobs.iter().all(|blob| blob.index.is_some())
    }

    /// Kinds that occur, if that is known of every blob.
    pub fn kinds(&self) -> Option<KindSet> {
        self.blobs
            .iter()
            .try_fold(KindSet::NONE, |set, blob| Some(set.union(blob.index?.kinds)))
    }

    /// Bytes of all data blobs.
    pub fn data_bytes(&self) -> u64 {
        self.blobs.iter().map(|blob| u64::from(blob.data_size)).sum()
    }

    /// Whether the records show that the file is sorted by kind and id. `None` where records are missing.
    pub fn is_sorted(&self) -> Option<bool> {
        let mut last = None;
        for blob in &self.blobs {
            let record = blob.index?;
            if !record.sorted || record.first().is_some() && record.first() < last {
                return Some(false);
            }
            last = record.last().or(last);
        }
        Some(true)
    }
}

/// What holds of a concatenation: required features of any, optional features of all; order and replication
/// state of none.
pub fn merge_headers(headers: Vec<FileHeader>) -> FileHeader {
    let mut headers = headers.into_iter();
    let Some(mut merged) = headers.next() else {
        return FileHeader::default();
    };
    for header in headers {
        for feature in header.required_features {
            if !merged.required_features.contains(&feature) {
                merged.required_features.push(feature);
            }
        }
        merged
            .optional_features
            .retain(|f| header.optional_features.contains(f));
        merged.set_optional(osmill_pbf::SORTED, false);
        merged.bbox = match (merged.bbox, header.bbox) {
            (Some(a), Some(b)) if a.left <= a.right && b.left <= b.right => Some(osmill_pbf::HeaderBox {
                left: a.left.min(b.left),
                right: a.right.max(b.right),
                top: a.top.max(b.top),
                bottom: a.bottom.min(b.bottom),
            }),
            _ => None,
        };
        if merged.replication_timestamp != header.replication_timestamp
            || merged.replication_sequence != header.replication_sequence
            || merged.replication_base_url != header.replication_base_url
        {
            merged.replication_timestamp = merged.replication_timestamp.min(header.replication_timestamp);
            merged.replication_sequence = None;
            merged.replication_base_url = None;
        }
        if merged.source != header.source {
            merged.source = None;
        }
        if merged.unknown != header.unknown {
            merged.unknown.clear();
        }
    }
    merged
}
