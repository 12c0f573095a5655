//! The file format, common to all indexes.
//!
//! # Specification, version 1
//!
//! All numbers are little-endian. A file is a header of 512 bytes and up to eight *sections*, each an array of 64-byte lines
//! starting on a 64-byte boundary, in the order of the section table, without gaps.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..8 | magic: `89 53 54 52 45 45 0D 0A` |
//! | 8..12 | version, 1. A reader refuses any other |
//! | 12..16 | kind of index: 1 search tree, 2 bucket index, 3 rank bitmap, 4 digest index |
//! | 16..20 | key type: 1 `u32`, 2 `u64`, 3 `i32`, 4 `i64`; for digests their length in bytes |
//! | 20..24 | number of sections |
//! | 24..32 | number of keys |
//! | 32..40 | length of the file in bytes |
//! | 40..44 | CRC-32 (IEEE) of the header with these four bytes zero |
//! | 44..48 | zero |
//! | 48..240 | 24 parameters of 8 bytes; each kind documents its own, in its module |
//! | 240..496 | section table: per section offset (8), number of lines (8), CRC-32 of its bytes (4), zero (12) |
//! | 496..512 | zero |
//!
//! The header says everything about the geometry: nothing is guessed from the machine that reads. Opening checks the header,
//! its checksum, and that the sections lie inside the file; it reads nothing else and takes the same time for every size.
//! [`verify`] reads the whole file against the checksums. A file that was damaged and not verified gives wrong answers, never
//! anything worse: look-ups are total over any bytes.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

use crate::error::{Error, Result};
use crate::kernel::{Line, cast};
use crate::memory::Store;

/// First bytes of every file.
const MAGIC: [u8; 8] = *b"\x89STREE\r\n";
/// Version written and read.
const VERSION: u32 = 1;
/// Bytes of the header.
const HEADER: usize = 512;
/// Number of parameters.
pub(crate) const PARAMS: usize = 24;
/// Largest number of sections.
const SECTIONS: usize = 8;

/// Which index a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// [`SearchTree`](crate::SearchTree).
    Tree,
    /// [`BucketIndex`](crate::BucketIndex).
    Buckets,
    /// [`RankBitmap`](crate::RankBitmap).
    Bitmap,
    /// [`DigestIndex`](crate::DigestIndex).
    Digests,
}

impl Kind {
    const ALL: [Kind; 4] = [Kind::Tree, Kind::Buckets, Kind::Bitmap, Kind::Digests];

    fn number(self) -> u32 {
        self as u32 + 1
    }

    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Tree => "search tree",
            Kind::Buckets => "bucket index",
            Kind::Bitmap => "rank bitmap",
            Kind::Digests => "digest index",
        }
    }

    fn section_names(self) -> &'static [&'static str] {
        match self {
            Kind::Tree => &["levels", "column"],
            Kind::Buckets | Kind::Digests => &["buckets"],
            Kind::Bitmap => &["lines", "directory", "segments", "samples"],
        }
    }
}

/// What the header of a file says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileInfo {
    /// Which index it is.
    pub kind: Kind,
    /// Key type, as numbered in the module documentation.
    pub key_type: u32,
    /// Number of keys.
    pub keys: u64,
    /// Length of the file in bytes.
    pub bytes: u64,
}

/// The name of a key type in messages.
fn key_name(kind: Kind, tag: u32) -> String {
    match (kind, tag) {
        (Kind::Digests, length) => format!("{length}-byte digests"),
        (_, 1) => "u32".into(),
        (_, 2) => "u64".into(),
        (_, 3) => "i32".into(),
        (_, 4) => "i64".into(),
        (_, other) => format!("unknown key type {other}"),
    }
}

/// An array on its way into a file: what of it is in memory, and zero bytes that fill its first and last line.
#[derive(Clone, Copy)]
pub(crate) struct Section<'a> {
    pub front: usize,
    pub body: &'a [u8],
}

impl<'a> Section<'a> {
    /// Whole lines.
    pub(crate) fn lines(lines: &'a [Line]) -> Section<'a> {
        Section {
            front: 0,
            body: cast::bytes(lines),
        }
    }

    fn pieces(&self) -> [&'a [u8]; 3] {
        let used = self.front + self.body.len();
        [
            &[0; 64][..self.front],
            self.body,
            &[0; 64][..used.next_multiple_of(64) - used],
        ]
    }

    /// Number of lines in the file.
    pub(crate) fn len(&self) -> u64 {
        (self.front + self.body.len()).div_ceil(64) as u64
    }

    fn crc(&self) -> u32 {
        let mut crc = crc32fast::Hasher::new();
        self.pieces().iter().for_each(|piece| crc.update(piece));
        crc.finalize()
    }
}

/// Everything there is to an index.
pub(crate) struct Parts<'a> {
    pub kind: Kind,
    pub key_type: u32,
    pub keys: u64,
    pub params: [u64; PARAMS],
    pub sections: Vec<Section<'a>>,
}

/// Where the bytes of a file are.
pub(crate) enum Source<'a> {
    Bytes(&'a [u8]),
    Mapped(Arc<Mmap>),
}

/// An opened file: its numbers, and its sections in place.
pub(crate) struct Opened<'a> {
    pub keys: u64,
    pub params: [u64; PARAMS],
    pub sections: std::vec::IntoIter<Store<'a>>,
}

impl<'a> Opened<'a> {
    /// The next section.
    pub(crate) fn section(&mut self) -> Result<Store<'a>> {
        self.sections
            .next()
            .ok_or_else(|| malformed("a section is missing"))
    }
}

/// A [`Error::Format`].
pub(crate) fn malformed(why: impl Into<String>) -> Error {
    Error::Format { why: why.into() }
}

/// The header of a file as numbers.
struct Header {
    info: FileInfo,
    params: [u64; PARAMS],
    /// Start in lines, number of lines, checksum.
    sections: Vec<(usize, usize, u32)>,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|index| bytes[at + index]))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|index| bytes[at + index]))
}

/// CRC-32 of the header with its checksum field zero.
fn header_crc(header: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&header[..40]);
    crc.update(&[0; 4]);
    crc.update(&header[44..HEADER]);
    crc.finalize()
}

impl Header {
    fn read(bytes: &[u8]) -> Result<Header> {
        if bytes.len() < HEADER {
            return Err(malformed(format!(
                "{} bytes are too few for the header of {HEADER}",
                bytes.len()
            )));
        }
        if bytes[..8] != MAGIC {
            return Err(malformed("it does not start with the magic number"));
        }
        let version = u32_at(bytes, 8);
        if version != VERSION {
            return Err(malformed(format!(
                "format version {version}, this program reads {VERSION}; rebuild it"
            )));
        }
        let (found, wanted) = (header_crc(bytes), u32_at(bytes, 40));
        if found != wanted {
            return Err(Error::Checksum {
                section: "header",
                found,
                wanted,
            });
        }
        let number = u32_at(bytes, 12);
        let kind = Kind::ALL
            .into_iter()
            .find(|kind| kind.number() == number)
            .ok_or_else(|| malformed(format!("unknown kind of index {number}")))?;
        let length = u64_at(bytes, 32);
        if length != bytes.len() as u64 {
            return Err(malformed(format!(
                "{} bytes where the header says {length}: cut short?",
                bytes.len()
            )));
        }
        let count = u32_at(bytes, 20) as usize;
        if count != kind.section_names().len() {
            return Err(malformed(format!("{count} sections in a {}", kind.name())));
        }
        let mut sections = Vec::new();
        let mut expected = HEADER as u64;
        for index in 0..count {
            let at = 240 + 32 * index;
            let (offset, lines) = (u64_at(bytes, at), u64_at(bytes, at + 8));
            let end = lines.checked_mul(64).and_then(|bytes| bytes.checked_add(offset));
            if offset != expected || end.is_none_or(|end| end > length) {
                return Err(malformed(format!("section {index} does not lie where it must")));
            }
            expected = end.unwrap_or(length);
            sections.push((offset as usize / 64, lines as usize, u32_at(bytes, at + 16)));
        }
        Ok(Header {
            info: FileInfo {
                kind,
                key_type: u32_at(bytes, 16),
                keys: u64_at(bytes, 24),
                bytes: length,
            },
            params: std::array::from_fn(|index| u64_at(bytes, 48 + 8 * index)),
            sections,
        })
    }
}

impl Parts<'_> {
    fn header(&self) -> [u8; HEADER] {
        debug_assert!(self.sections.len() <= SECTIONS);
        let mut header = [0; HEADER];
        let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(8, &VERSION.to_le_bytes());
        put(12, &self.kind.number().to_le_bytes());
        put(16, &self.key_type.to_le_bytes());
        put(20, &(self.sections.len() as u32).to_le_bytes());
        put(24, &self.keys.to_le_bytes());
        for (index, param) in self.params.iter().enumerate() {
            put(48 + 8 * index, &param.to_le_bytes());
        }
        let mut offset = HEADER as u64;
        for (index, section) in self.sections.iter().enumerate() {
            let at = 240 + 32 * index;
            put(at, &offset.to_le_bytes());
            put(at + 8, &section.len().to_le_bytes());
            put(at + 16, &section.crc().to_le_bytes());
            offset += section.len() * 64;
        }
        put(32, &offset.to_le_bytes());
        let crc = header_crc(&header);
        header[40..44].copy_from_slice(&crc.to_le_bytes());
        header
    }

    /// Writes the file to a stream.
    pub(crate) fn write_to(&self, mut out: impl Write) -> io::Result<()> {
        out.write_all(&self.header())?;
        for piece in self.sections.iter().flat_map(Section::pieces) {
            out.write_all(piece)?;
        }
        out.flush()
    }

    /// Writes the file beside its place, syncs it, and renames it into place.
    pub(crate) fn save(&self, path: &Path) -> Result<()> {
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(format!(".{}.partial", std::process::id()));
        let write = || {
            let mut out = BufWriter::with_capacity(1 << 20, File::create(&temporary)?);
            self.write_to(&mut out)?;
            out.into_inner()?.sync_all()?;
            std::fs::rename(&temporary, path)
        };
        write().map_err(|source| {
            // The error is the caller's; what is left of the attempt is of no use.
            let _ = std::fs::remove_file(&temporary);
            Error::Io {
                what: format!("writing {}", path.display()),
                source,
            }
        })
    }
}

impl Source<'_> {
    /// Maps a file.
    pub(crate) fn map(path: &Path) -> Result<Source<'static>> {
        Ok(Source::Mapped(Arc::new(crate::memory::map_file(path)?)))
    }
}

impl<'a> Source<'a> {
    /// Checks the header against what is wanted and finds the sections.
    pub(crate) fn open(self, kind: Kind, key_type: u32) -> Result<Opened<'a>> {
        let bytes: &[u8] = match &self {
            Source::Bytes(bytes) => bytes,
            Source::Mapped(map) => map,
        };
        let Header {
            info,
            params,
            sections,
        } = Header::read(bytes)?;
        if (info.kind, info.key_type) != (kind, key_type) {
            let name = |kind: Kind, key_type| format!("a {} of {}", kind.name(), key_name(kind, key_type));
            return Err(Error::OtherIndex {
                found: name(info.kind, info.key_type),
                wanted: name(kind, key_type),
            });
        }
        if cast::lines_of(bytes).is_none() {
            return Err(malformed(
                "the bytes do not start on a 64-byte boundary; copy them into a LineBuffer",
            ));
        }
        let store = |&(start, len, _): &(usize, usize, u32)| match &self {
            Source::Bytes(bytes) => {
                let lines = cast::lines_of(bytes).and_then(|lines| lines.get(start..start + len));
                Store::Borrowed(lines.unwrap_or(&[]))
            }
            Source::Mapped(map) => Store::Mapped {
                map: Arc::clone(map),
                start,
                len,
            },
        };
        let sections: Vec<_> = sections.iter().map(store).collect();
        Ok(Opened {
            keys: info.keys,
            params,
            sections: sections.into_iter(),
        })
    }
}

/// Reads the header of a file: which index it holds, of how many keys.
///
/// # Errors
///
/// [`Error::Format`] or [`Error::Checksum`] if the bytes do not begin with a sound header.
pub fn describe(bytes: &[u8]) -> Result<FileInfo> {
    Header::read(bytes).map(|header| header.info)
}

/// Checks every section of a file against its checksum. Reads all of it.
///
/// # Errors
///
/// [`Error::Format`] or [`Error::Checksum`], naming the damaged part.
pub fn verify(bytes: &[u8]) -> Result<FileInfo> {
    let header = Header::read(bytes)?;
    for (&(start, lines, wanted), section) in header.sections.iter().zip(header.info.kind.section_names()) {
        let found = crc32fast::hash(&bytes[start * 64..(start + lines) * 64]);
        if found != wanted {
            return Err(Error::Checksum {
                section,
                found,
                wanted,
            });
        }
    }
    Ok(header.info)
}

/// Gives an index its file methods, in terms of its `parts` and `from_source`.
macro_rules! file_methods {
    ($index:ident < $life:lifetime >) => {
        $crate::file::file_methods!($index<$life>, [], []);
    };
    ($index:ident < $life:lifetime, $parameter:ident : $bound:path >) => {
        $crate::file::file_methods!($index<$life>, [$parameter: $bound], [$parameter]);
    };
    ($index:ident < $life:lifetime, const $parameter:ident : $type:ty >) => {
        $crate::file::file_methods!($index<$life>, [const $parameter: $type], [$parameter]);
    };
    ($index:ident < $life:lifetime >, [$($generics:tt)*], [$($parameters:tt)*]) => {
        impl<$life, $($generics)*> $index<$life, $($parameters)*> {
            /// Uses an index that lies in `bytes`, as written by [`write_to`](Self::write_to), in place. O(1).
            ///
            /// # Errors
            ///
            /// If the header is not sound, names another index, or `bytes` do not start on a 64-byte boundary.
            pub fn from_bytes(bytes: &$life [u8]) -> $crate::Result<Self> {
                Self::from_source($crate::file::Source::Bytes(bytes))
            }

            /// Writes the index to a stream, in the format of [`file`](crate::file).
            ///
            /// # Errors
            ///
            /// Those of the stream.
            pub fn write_to(&self, out: impl std::io::Write) -> std::io::Result<()> {
                self.parts().write_to(out)
            }

            /// Saves the index: written beside `path`, synced, then renamed into place.
            ///
            /// # Errors
            ///
            /// [`Error::Io`](crate::Error::Io) with the path.
            pub fn save(&self, path: impl AsRef<std::path::Path>) -> $crate::Result<()> {
                self.parts().save(path.as_ref())
            }

            /// Bytes of the index, in memory or in its file without the header.
            pub fn bytes(&self) -> u64 {
                self.parts().sections.iter().map(|section| section.len() * 64).sum()
            }

            /// Uses another instruction set from now on; for tests and measurements.
            ///
            /// # Errors
            ///
            /// [`Error::NoSuchIsa`](crate::Error::NoSuchIsa) if the processor lacks it.
            pub fn with_isa(mut self, isa: $crate::Isa) -> $crate::Result<Self> {
                self.isa = isa.checked()?;
                Ok(self)
            }
        }

        impl<$($generics)*> $index<'static, $($parameters)*> {
            /// Maps a file that was [`save`](Self::save)d. O(1): nothing but the header is read.
            ///
            /// The file must not be changed while it is mapped; replacing it by a rename, as `save` does, is fine.
            ///
            /// # Errors
            ///
            /// [`Error::Io`](crate::Error::Io) with the path, or as [`from_bytes`](Self::from_bytes).
            pub fn open(path: impl AsRef<std::path::Path>) -> $crate::Result<Self> {
                Self::from_source($crate::file::Source::map(path.as_ref())?)
            }
        }
    };
}
pub(crate) use file_methods;
