//! Compression of blobs: zlib (by libdeflate), zstd, lz4, none.

use std::fmt;
use std::str::FromStr;

use crate::MAX_BLOB_SIZE;
use crate::error::FrameError;
use crate::index::IndexRecord;
use crate::wire::{write_varint, write_varint_field};

/// How a blob's bytes are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Codec {
    /// Not compressed.
    Raw,
    /// zlib, which every reader knows.
    Zlib,
    /// Zstandard.
    Zstd,
    /// LZ4 block format.
    Lz4,
}

impl Codec {
    /// The name that options and reports use.
    pub const fn name(self) -> &'static str {
        match self {
            Codec::Raw => "none",
            Codec::Zlib => "zlib",
            Codec::Zstd => "zstd",
            Codec::Lz4 => "lz4",
        }
    }

    /// Field number of the data in a Blob message.
    pub(crate) const fn field(self) -> u32 {
        match self {
            Codec::Raw => 1,
            Codec::Zlib => 3,
            Codec::Lz4 => 6,
            Codec::Zstd => 7,
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A codec and how hard to try: `none`, `zlib`, `zlib:9`, `zstd:3`, `lz4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compression {
    /// The codec.
    pub codec: Codec,
    /// Its level: 0 to 12 for zlib (libdeflate's), 1 to 22 for zstd, without meaning for others. `None`: what suits
    /// each block.
    pub level: Option<i32>,
}

impl Compression {
    /// No compression.
    pub const NONE: Compression = Compression {
        codec: Codec::Raw,
        level: None,
    };

    /// A codec with the level that suits each block.
    pub const fn default_of(codec: Codec) -> Compression {
        Compression { codec, level: None }
    }

    /// The level for a block with this record, of a codec that has levels.
    ///
    /// libdeflate's level 4 writes OSM blocks slightly smaller than zlib's level 6 does, at three times its speed; where ways
    /// carry locations it takes level 5.
    fn level_for(self, index: Option<&IndexRecord>) -> i32 {
        self.level.unwrap_or(match self.codec {
            Codec::Zlib if index.is_some_and(|index| index.has_way_locations) => 5,
            Codec::Zlib => 4,
            Codec::Zstd => 3,
            Codec::Raw | Codec::Lz4 => 0,
        })
    }
}

impl Default for Compression {
    fn default() -> Self {
        Compression::default_of(Codec::Zlib)
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.codec.name())?;
        match self.level {
            Some(level) => write!(f, ":{level}"),
            None => Ok(()),
        }
    }
}

/// A compression that could not be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a compression; write none, zlib, zlib:LEVEL (0-12), zstd, zstd:LEVEL (1-22) or lz4")]
pub struct ParseCompressionError(
    /// The text as it was given.
    pub String,
);

impl FromStr for Compression {
    type Err = ParseCompressionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fail = || ParseCompressionError(text.to_owned());
        let (name, level) = match text.split_once(':') {
            Some((name, level)) => (name, Some(level.parse::<i32>().map_err(|_| fail())?)),
            None => (text, None),
        };
        let (codec, levels) = match name {
            "none" | "raw" | "false" => (Codec::Raw, 0..=0),
            "zlib" | "true" => (Codec::Zlib, 0..=12),
            "zstd" => (Codec::Zstd, 1..=22),
            "lz4" => (Codec::Lz4, 0..=0),
            _ => return Err(fail()),
        };
        let mut compression = Compression::default_of(codec);
        if let Some(level) = level {
            if !levels.contains(&level) || *levels.end() == 0 {
                return Err(fail());
            }
            compression.level = Some(level);
        }
        Ok(compression)
    }
}

/// Decompresses blobs, with state that is worth keeping between them. One per thread.
#[derive(Default)]
pub struct Decompressor {
    zlib: libdeflater::Decompressor,
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl fmt::Debug for Decompressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decompressor").finish_non_exhaustive()
    }
}

/// The compressed (or raw) data of a blob as it stands in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobData<'a> {
    /// How it is stored.
    pub codec: Codec,
    /// Its size when uncompressed, if the blob says so.
    pub raw_size: Option<usize>,
    /// The stored bytes.
    pub data: &'a [u8],
}

impl Decompressor {
    /// Uncompresses a blob into `out`, whose former contents are lost. Never allocates more than
    /// [`MAX_BLOB_SIZE`].
    pub fn decompress(&mut self, blob: &BlobData<'_>, out: &mut Vec<u8>) -> Result<(), FrameError> {
        let size = match (blob.codec, blob.raw_size) {
            (Codec::Raw, _) => {
                if blob.data.len() > MAX_BLOB_SIZE {
                    return Err(FrameError::RawSize(blob.data.len() as i64));
                }
                out.clear();
                out.extend_from_slice(blob.data);
                return Ok(());
            }
            (_, Some(size)) => size,
            // Without a size, a guess that holds for OSM data is doubled until it does.
            (_, None) => return self.decompress_unsized(blob, out),
        };
        match self.decompress_to(blob, size, out)? {
            Some(found) if found == size => Ok(()),
            Some(found) => Err(damaged(
                blob.codec,
                format!("{size} bytes were announced, {found} came out"),
            )),
            None => Err(damaged(
                blob.codec,
                format!("more than the {size} bytes announced came out"),
            )),
        }
    }

    fn decompress_unsized(&mut self, blob: &BlobData<'_>, out: &mut Vec<u8>) -> Result<(), FrameError> {
        let mut size = blob.data.len().saturating_mul(4).clamp(1 << 16, MAX_BLOB_SIZE);
        loop {
            if self.decompress_to(blob, size, out)?.is_some() {
                return Ok(());
            }
            if size == MAX_BLOB_SIZE {
                return Err(FrameError::RawSize(MAX_BLOB_SIZE as i64 + 1));
            }
            size = (size * 2).min(MAX_BLOB_SIZE);
        }
    }

    /// Uncompresses at most `size` bytes; `None` if there are more.
    fn decompress_to(
        &mut self,
        blob: &BlobData<'_>,
        size: usize,
        out: &mut Vec<u8>,
    ) -> Result<Option<usize>, FrameError> {
        // Growing only, so that a reused buffer is not zeroed again for each blob.
        if out.len() < size {
            out.resize(size, 0);
        }
        out.truncate(size);
        let written = match blob.codec {
            Codec::Raw => unreachable!("raw blobs are copied by the caller"),
            Codec::Zlib => match self.zlib.zlib_decompress(blob.data, out) {
                Ok(written) => Some(written),
                Err(libdeflater::DecompressionError::InsufficientSpace) => None,
                Err(libdeflater::DecompressionError::BadData) => {
                    return Err(damaged(blob.codec, "corrupt stream or wrong checksum".into()));
                }
            },
            Codec::Zstd => {
                let zstd = match &mut self.zstd {
                    Some(zstd) => zstd,
                    slot => slot.insert(
                        zstd::bulk::Decompressor::new().map_err(|e| damaged(blob.codec, e.to_string()))?,
                    ),
                };
                match zstd.decompress_to_buffer(blob.data, out.as_mut_slice()) {
                    Ok(written) => Some(written),
                    Err(error) if error.to_string().contains("too small") => None,
                    Err(error) => return Err(damaged(blob.codec, error.to_string())),
                }
            }
            Codec::Lz4 => match lz4_flex::block::decompress_into(blob.data, out) {
                Ok(written) => Some(written),
                Err(lz4_flex::block::DecompressError::OutputTooSmall { .. }) => None,
                Err(error) => return Err(damaged(blob.codec, error.to_string())),
            },
        };
        if let Some(written) = written {
            out.truncate(written);
        }
        Ok(written)
    }
}

fn damaged(codec: Codec, what: String) -> FrameError {
    FrameError::Compressed {
        codec: codec.name(),
        what,
    }
}

/// Compresses blobs, with state that is worth keeping between them. One per thread.
pub struct Compressor {
    compression: Compression,
    /// One for each level that was used.
    zlib: Vec<(i32, libdeflater::Compressor)>,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    buffer: Vec<u8>,
    /// What stands before the data in a Blob message.
    head: Vec<u8>,
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compressor")
            .field("compression", &self.compression)
            .finish_non_exhaustive()
    }
}

impl Compressor {
    /// A compressor of this kind.
    pub fn new(compression: Compression) -> Self {
        Compressor {
            compression,
            zlib: Vec::new(),
            zstd: None,
            buffer: Vec::new(),
            head: Vec::new(),
        }
    }

    /// The Blob message that holds `raw`, of which this is the index record, if it is a block: two pieces that come one
    /// after the other.
    pub fn blob<'a>(
        &'a mut self,
        raw: &'a [u8],
        index: Option<&IndexRecord>,
    ) -> Result<[&'a [u8]; 2], FrameError> {
        if raw.len() > MAX_BLOB_SIZE {
            return Err(FrameError::TooLargeToWrite(raw.len()));
        }
        let codec = self.compression.codec;
        let level = self.compression.level_for(index);
        let failed = |what: String| FrameError::Compressed {
            codec: codec.name(),
            what,
        };
        let data: &[u8] = match codec {
            Codec::Raw => raw,
            Codec::Zlib => {
                let at = match self.zlib.iter().position(|(known, _)| *known == level) {
                    Some(at) => at,
                    None => {
                        let libdeflate = libdeflater::CompressionLvl::new(level)
                            .map_err(|_| failed(format!("level {level} does not exist")))?;
                        self.zlib.push((level, libdeflater::Compressor::new(libdeflate)));
                        self.zlib.len() - 1
                    }
                };
                let zlib = &mut self.zlib[at].1;
                grow(&mut self.buffer, zlib.zlib_compress_bound(raw.len()));
                let written = zlib
                    .zlib_compress(raw, &mut self.buffer)
                    .map_err(|e| failed(e.to_string()))?;
                &self.buffer[..written]
            }
            Codec::Zstd => {
                let zstd = match &mut self.zstd {
                    Some(zstd) => zstd,
                    slot => {
                        slot.insert(zstd::bulk::Compressor::new(level).map_err(|e| failed(e.to_string()))?)
                    }
                };
                grow(&mut self.buffer, zstd::zstd_safe::compress_bound(raw.len()));
                let written = zstd
                    .compress_to_buffer(raw, self.buffer.as_mut_slice())
                    .map_err(|e| failed(e.to_string()))?;
                &self.buffer[..written]
            }
            Codec::Lz4 => {
                grow(
                    &mut self.buffer,
                    lz4_flex::block::get_maximum_output_size(raw.len()),
                );
                let written = lz4_flex::block::compress_into(raw, &mut self.buffer)
                    .map_err(|e| failed(e.to_string()))?;
                &self.buffer[..written]
            }
        };
        self.head.clear();
        if codec != Codec::Raw {
            if data.len() + 24 > MAX_BLOB_SIZE {
                return Err(FrameError::TooLargeToWrite(data.len()));
            }
            write_varint_field(&mut self.head, 2, raw.len() as u64);
        }
        write_varint(&mut self.head, u64::from(codec.field()) << 3 | 2);
        write_varint(&mut self.head, data.len() as u64);
        Ok([&self.head, data])
    }
}

fn grow(buffer: &mut Vec<u8>, len: usize) {
    if buffer.len() < len {
        buffer.resize(len, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::parse_blob;
    use proptest::prelude::*;

    fn message(compressor: &mut Compressor, raw: &[u8], index: Option<&IndexRecord>) -> Vec<u8> {
        compressor.blob(raw, index).unwrap().concat()
    }

    fn of_name(name: &str) -> Compressor {
        Compressor::new(name.parse().unwrap())
    }

    const ALL: [&str; 8] = [
        "none", "zlib", "zlib:0", "zlib:12", "zstd", "zstd:19", "lz4", "zlib:1",
    ];

    #[test]
    fn names_and_levels() {
        assert_eq!("zlib".parse(), Ok(Compression::default()));
        assert_eq!("zstd:19".parse::<Compression>().unwrap().to_string(), "zstd:19");
        for bad in [
            "", "zlib:13", "zlib:x", "zstd:0", "lz4:1", "none:0", "lzma", "zlib:",
        ] {
            assert!(bad.parse::<Compression>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_level_suits_the_block_unless_it_is_given() {
        let located = IndexRecord {
            has_way_locations: true,
            ..IndexRecord::default()
        };
        // Words at random, whose matches are not all found at once.
        let words = |i: u64| (i.wrapping_mul(i).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 55).to_string();
        let raw: Vec<u8> = (0..60_000).flat_map(|i| words(i).into_bytes()).collect();
        let size = |compression: &str, index| message(&mut of_name(compression), &raw, index).len();
        let (four, five) = (size("zlib:4", None), size("zlib:5", None));
        assert!(four != five);
        assert_eq!((size("zlib", None), size("zlib", Some(&located))), (four, five));
        assert_eq!(size("zlib:4", Some(&located)), four);
    }

    #[test]
    fn a_missing_size_is_found_out() {
        let raw = vec![7u8; 3_000_000];
        for name in ["zlib", "zstd", "lz4"] {
            let message = message(&mut of_name(name), &raw, None);
            let blob = BlobData {
                raw_size: None,
                ..parse_blob(&message).unwrap()
            };
            let mut out = Vec::new();
            Decompressor::default().decompress(&blob, &mut out).unwrap();
            assert!(out == raw, "{name}");
            for wrong in [raw.len() - 1, raw.len() + 1] {
                let blob = BlobData {
                    raw_size: Some(wrong),
                    ..blob
                };
                assert!(
                    Decompressor::default().decompress(&blob, &mut out).is_err(),
                    "{name} {wrong}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_compressed_comes_back(raw: Vec<u8>, repeat in 1usize..50) {
            let raw = raw.repeat(repeat);
            let mut out = vec![1, 2, 3];
            let mut decompressor = Decompressor::default();
            for name in ALL {
                let message = message(&mut of_name(name), &raw, None);
                let blob = parse_blob(&message).unwrap();
                decompressor.decompress(&blob, &mut out).unwrap();
                prop_assert_eq!(&out, &raw);
            }
        }

        #[test]
        fn damaged_bytes_give_errors_only(data: Vec<u8>, size in 0usize..10_000) {
            let mut out = Vec::new();
            for codec in [Codec::Raw, Codec::Zlib, Codec::Zstd, Codec::Lz4] {
                for raw_size in [None, Some(size)] {
                    let blob = BlobData { codec, raw_size, data: &data };
                    let _ = Decompressor::default().decompress(&blob, &mut out);
                }
            }
        }
    }
}
