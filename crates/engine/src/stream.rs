//! Inputs that are read once, from begin to end.
//!
//! Blobs of a PBF stream come as they are stored; those of a text file are made by a parser, which works on
//! several threads where the format allows it.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use osmill_pbf::{
    BlobHeader, Decompressor, FileHeader, FrameError, MAX_BLOB_HEADER_SIZE, parse_blob, parse_header_length,
};
use osmill_text::Reader;
use osmill_text::format::{FormatSpec, Sniffed, Syntax, TextCompression};

use crate::error::{Error, Malformed, Result};
use crate::file::read_full;
use crate::job::Blob;
use crate::plan::{BlobEntry, FrameKind, Origin, classify, merge_headers};

/// Bytes from somewhere.
pub(crate) struct Bytes(Box<dyn Read + Send>);

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Bytes")
    }
}

impl Bytes {
    pub fn new(bytes: impl Read + Send + 'static) -> Self {
        Bytes(Box::new(bytes))
    }
}

impl Read for Bytes {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(buffer)
    }
}

/// Bytes needed to recognise a format, unless long comments come first.
pub(crate) const HEAD: usize = 4096;

/// Whether bytes that begin like this are text, compressed or not, that a parser is to be tried on.
pub(crate) fn is_text(head: &[u8]) -> bool {
    match Sniffed::of(head) {
        Sniffed::OsmXml | Sniffed::Opl | Sniffed::O5m | Sniffed::Gzip | Sniffed::Bzip2 => true,
        // A comment may reach beyond the head.
        Sniffed::Xml | Sniffed::Unknown => head.trim_ascii_start().starts_with(b"<"),
        _ => false,
    }
}

/// An input that is read once: a PBF stream, or text.
#[derive(Debug)]
pub struct BlockStream {
    header: FileHeader,
    inner: Inner,
}

#[derive(Debug)]
enum Inner {
    Frames(Box<FrameStream<Bytes>>),
    Text(Box<TextStream>),
}

impl BlockStream {
    /// A PBF stream; reads its file header.
    pub(crate) fn frames(source: Bytes, path: PathBuf) -> Result<Self> {
        let mut frames = FrameStream::new(source, path);
        Ok(BlockStream {
            header: frames.header()?,
            inner: Inner::Frames(Box::new(frames)),
        })
    }

    /// A text stream, as far as `format` tells of history and changes.
    pub(crate) fn text(source: Bytes, path: PathBuf, format: &FormatSpec, threads: usize) -> Result<Self> {
        let (header, text) = TextStream::open(source, path, format, threads)?;
        Ok(BlockStream {
            header,
            inner: Inner::Text(Box::new(text)),
        })
    }

    /// The file header, or for text one that says the same.
    pub fn header(&self) -> &FileHeader {
        &self.header
    }

    /// The path, for messages.
    pub fn path(&self) -> &Path {
        match &self.inner {
            Inner::Frames(frames) => frames.path(),
            Inner::Text(text) => &text.path,
        }
    }

    /// The format, if it is text.
    pub fn text_format(&self) -> Option<TextFormat> {
        match &self.inner {
            Inner::Frames(_) => None,
            Inner::Text(text) => Some(text.format()),
        }
    }

    /// Whether a file header has come that says something else than the first one did, order aside: what was
    /// written of the first one is not true of the whole stream then.
    pub fn headers_differ(&self) -> bool {
        match &self.inner {
            Inner::Frames(frames) => frames.headers_differ(),
            Inner::Text(_) => false,
        }
    }

    /// Bytes of the file, if it is one.
    pub(crate) fn size(&self) -> Option<u64> {
        let metadata = std::fs::metadata(self.path()).ok()?;
        metadata.is_file().then_some(metadata.len())
    }

    /// What was passed over, as sentences.
    pub fn warnings(&self) -> Vec<String> {
        match &self.inner {
            Inner::Frames(_) => Vec::new(),
            Inner::Text(text) => {
                let name = text.path.display();
                let warnings = text.reader.warnings().iter();
                warnings.map(|warning| format!("{name}: {warning}")).collect()
            }
        }
    }

    /// Turns `blob` to the next data blob. `false` at the end.
    pub(crate) fn next(&mut self, blob: &mut Blob) -> Result<bool> {
        match &mut self.inner {
            Inner::Frames(frames) => loop {
                let Some((kind, entry)) = frames.next(blob.stored_mut())? else {
                    return Ok(false);
                };
                match kind {
                    FrameKind::Data => {
                        blob.begin_read(entry, frames.path().to_owned());
                        return Ok(true);
                    }
                    FrameKind::Header => {
                        frames.parse_header(blob.stored_mut(), &entry)?;
                    }
                    FrameKind::Other => {}
                }
            },
            Inner::Text(text) => text.next(blob),
        }
    }
}

/// Syntax and compression of a text file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextFormat {
    /// How elements are written down.
    pub syntax: Syntax,
    /// Whether the file holds changes.
    pub change: bool,
    /// The compression around it.
    pub compression: TextCompression,
}

impl std::fmt::Display for TextFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match (self.syntax, self.change) {
            (Syntax::Xml, false) => "OSM XML",
            (Syntax::Xml, true) => "OsmChange",
            (Syntax::Opl, _) => "OPL",
            (Syntax::O5m, false) => "o5m",
            (Syntax::O5m, true) => "o5c",
            (Syntax::Pbf, _) => "PBF",
        })?;
        f.write_str(match self.compression {
            TextCompression::None => "",
            TextCompression::Gzip => ", gzip",
            TextCompression::Bzip2 => ", bzip2",
        })
    }
}

/// Counts the bytes that go through.
struct Counting {
    bytes: Bytes,
    count: Arc<AtomicU64>,
}

impl Read for Counting {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let n = self.bytes.read(buffer)?;
        self.count.fetch_add(n as u64, Relaxed);
        Ok(n)
    }
}

#[derive(Debug)]
struct TextStream {
    reader: Reader,
    path: PathBuf,
    number: u64,
    /// Bytes read from the file, before decompression.
    count: Arc<AtomicU64>,
    counted: u64,
    raw: Vec<u8>,
}

impl TextStream {
    fn open(bytes: Bytes, path: PathBuf, format: &FormatSpec, threads: usize) -> Result<(FileHeader, Self)> {
        let count = Arc::new(AtomicU64::new(0));
        let counting = Counting {
            bytes,
            count: count.clone(),
        };
        let reader = Reader::open_as(counting, threads, format.syntax).map_err(|e| Error::text(&path, e))?;
        let mut header = reader.header().to_file_header();
        header.set_history(header.has_history() || format.history == Some(true));
        let stream = TextStream {
            reader,
            path,
            number: 0,
            count,
            counted: 0,
            raw: Vec::new(),
        };
        Ok((header, stream))
    }

    fn format(&self) -> TextFormat {
        TextFormat {
            syntax: self.reader.syntax(),
            change: self.reader.header().is_change,
            compression: self.reader.compression(),
        }
    }

    fn next(&mut self, blob: &mut Blob) -> Result<bool> {
        let offset = self.reader.bytes_read();
        let next = self.reader.next_block(&mut self.raw);
        let Some(block) = next.map_err(|e| Error::text(&self.path, e))? else {
            return Ok(false);
        };
        let counted = self.count.load(Relaxed);
        let read = counted - std::mem::replace(&mut self.counted, counted);
        let entry = BlobEntry {
            number: self.number,
            offset,
            data_size: read.min(u64::from(u32::MAX)) as u32,
            raw_size: u32::try_from(self.raw.len()).ok(),
            index: Some(block.index),
            origin: Origin::Text(block.action),
            ..BlobEntry::default()
        };
        self.number += 1;
        blob.begin_made(entry, &self.path, &mut self.raw, read)?;
        Ok(true)
    }
}

/// Reads frames one after the other from a stream that cannot be sought.
#[derive(Debug)]
pub(crate) struct FrameStream<R> {
    source: R,
    path: PathBuf,
    offset: u64,
    number: u64,
    header: Vec<u8>,
    first_header: Option<FileHeader>,
    headers_differ: bool,
}

impl<R: Read> FrameStream<R> {
    /// The frames of this stream; `path` is for messages.
    pub fn new(source: R, path: PathBuf) -> Self {
        FrameStream {
            source,
            path,
            offset: 0,
            number: 0,
            header: Vec::new(),
            first_header: None,
            headers_differ: false,
        }
    }

    /// Whether a file header has come that says something else than the first one did, order aside: what was
    /// written of the first one is not true of the whole stream then.
    pub fn headers_differ(&self) -> bool {
        self.headers_differ
    }

    /// The path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn malformed(&self, source: impl Into<Malformed>) -> Error {
        Error::Malformed {
            path: self.path.clone(),
            blob: self.number,
            offset: self.offset,
            source: source.into(),
        }
    }

    /// Fills `bytes`, of a frame of which `before` bytes have been read. `false` if the stream ended before
    /// the frame began.
    fn read(&mut self, bytes: &mut [u8], before: usize) -> Result<bool> {
        let found = read_full(&mut self.source, bytes).map_err(|e| Error::io("read", &self.path, e))?;
        if found == 0 && before == 0 {
            return Ok(false);
        }
        if found < bytes.len() {
            let (found, expected) = ((before + found) as u64, (before + bytes.len()) as u64);
            return Err(self.malformed(Malformed::Truncated { found, expected }));
        }
        Ok(true)
    }

    /// Reads the next frame into `message` (the Blob message) and gives what its header says. `None` at the
    /// end of the stream.
    pub(crate) fn next(&mut self, message: &mut Vec<u8>) -> Result<Option<(FrameKind, BlobEntry)>> {
        let mut header = std::mem::take(&mut self.header);
        header.resize(4 + MAX_BLOB_HEADER_SIZE, 0);
        let frame = self.next_with(&mut header, message);
        self.header = header;
        frame
    }

    fn next_with(
        &mut self,
        bytes: &mut [u8],
        message: &mut Vec<u8>,
    ) -> Result<Option<(FrameKind, BlobEntry)>> {
        if !self.read(&mut bytes[..4], 0)? {
            if self.number == 0 {
                return Err(Error::NotPbf {
                    path: self.path.clone(),
                    what: Sniffed::Empty,
                });
            }
            return Ok(None);
        }
        // At the very start, bytes of another format deserve a better message than "damaged".
        let refuse = |stream: &Self, head: &[u8], error: FrameError| match Sniffed::of(head) {
            what if stream.number == 0 && what != Sniffed::Pbf => Error::NotPbf {
                path: stream.path.clone(),
                what,
            },
            _ => stream.malformed(error),
        };
        let length = match parse_header_length([bytes[0], bytes[1], bytes[2], bytes[3]]) {
            Ok(length) => length,
            Err(e) => {
                let found = read_full(&mut self.source, &mut bytes[4..512]).unwrap_or(0);
                return Err(refuse(self, &bytes[..4 + found], e));
            }
        };
        self.read(&mut bytes[4..4 + length], 4)?;
        let header = match BlobHeader::parse(&bytes[4..4 + length]) {
            Ok(header) => header,
            Err(e) => return Err(refuse(self, &bytes[..(4 + length).min(512)], e)),
        };
        if self.number == 0 && classify(&header).0 != FrameKind::Header {
            return Err(self.malformed(Malformed::NoHeader));
        }
        message.resize(header.data_size, 0);
        self.read(message, 4 + length)?;
        let (kind, entry) = BlobEntry::of_frame(self.number, self.offset, length, &header, message);
        self.number += 1;
        self.offset = entry.end();
        Ok(Some((kind, entry)))
    }

    /// Reads the file header at the start of the stream.
    pub fn header(&mut self) -> Result<FileHeader> {
        let mut message = Vec::new();
        let Some((_, entry)) = self.next(&mut message)? else {
            unreachable!("an empty stream is an error")
        };
        self.parse_header(&message, &entry)
    }

    pub(crate) fn parse_header(&mut self, message: &[u8], entry: &BlobEntry) -> Result<FileHeader> {
        let mut raw = Vec::new();
        let header = parse_blob(message)
            .and_then(|blob| Decompressor::default().decompress(&blob, &mut raw))
            .map_err(Malformed::from)
            .and_then(|()| FileHeader::parse(&raw).map_err(Malformed::from))
            .map_err(|source| Error::Malformed {
                path: self.path.clone(),
                blob: entry.number,
                offset: entry.offset,
                source,
            })?;
        match &self.first_header {
            None => self.first_header = Some(header.clone()),
            Some(first) => {
                let mut alone = first.clone();
                alone.set_optional(osmill_pbf::SORTED, false);
                self.headers_differ |= merge_headers(vec![first.clone(), header.clone()]) != alone;
            }
        }
        Ok(header)
    }
}
