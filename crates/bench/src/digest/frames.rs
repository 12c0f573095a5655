//! The blobs of a PBF file: where they are, and their uncompressed bytes.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::wire::{Malformed, Message, Value};

/// Largest blob header and largest uncompressed blob that the format allows, in bytes.
const MAX_HEADER: u32 = 64 << 10;
const MAX_BLOB: usize = 32 << 20;

/// One `OSMData` blob.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame {
    /// Byte offset of the `Blob` message (behind its header).
    pub offset: u64,
    /// Length of the `Blob` message in bytes.
    pub length: usize,
}

/// Walks the blob headers of a file of `size` bytes and lists its data blobs in file order.
/// The error carries the byte offset of the frame.
pub(super) fn walk(file: &File, size: u64) -> Result<Vec<Frame>, (u64, String)> {
    let mut frames = Vec::new();
    let mut header = Vec::new();
    let mut at = 0u64;
    while at < size {
        let fail = |what: &str| (at, what.to_owned());
        let mut length = [0u8; 4];
        file.read_exact_at(&mut length, at)
            .map_err(|_| fail("file ends inside a blob header"))?;
        let length = u32::from_be_bytes(length);
        if length > MAX_HEADER {
            return Err(fail("blob header longer than 64 KiB: not a PBF, or damaged"));
        }
        header.resize(length as usize, 0);
        file.read_exact_at(&mut header, at + 4)
            .map_err(|_| fail("file ends inside a blob header"))?;
        let (kind, data_size) = parse_header(&header).map_err(|error| fail(error.0))?;
        if data_size > MAX_BLOB + (1 << 20) {
            return Err(fail("blob larger than the format allows"));
        }
        let offset = at + 4 + u64::from(length);
        if offset + data_size as u64 > size {
            return Err(fail("file ends inside a blob"));
        }
        if kind == b"OSMData" {
            frames.push(Frame {
                offset,
                length: data_size,
            });
        }
        at = offset + data_size as u64;
    }
    Ok(frames)
}

fn parse_header(bytes: &[u8]) -> Result<(&[u8], usize), Malformed> {
    let mut message = Message::new(bytes);
    let mut kind: &[u8] = &[];
    let mut size = None;
    while let Some(field) = message.next()? {
        match field {
            (1, Value::Bytes(bytes)) => kind = bytes,
            (3, Value::Varint(value)) => size = usize::try_from(value).ok(),
            _ => {}
        }
    }
    Ok((kind, size.ok_or(Malformed("blob header without a size"))?))
}

/// Reads blobs of one file; owns the buffers and the decompressor of one worker.
pub(super) struct BlobReader<'f> {
    file: &'f File,
    packed: Vec<u8>,
    plain: Vec<u8>,
    inflate: libdeflater::Decompressor,
}

impl<'f> BlobReader<'f> {
    pub fn new(file: &'f File) -> Self {
        Self {
            file,
            packed: Vec::new(),
            plain: Vec::new(),
            inflate: libdeflater::Decompressor::new(),
        }
    }

    /// The uncompressed bytes of `frame`, valid until the next call.
    pub fn read(&mut self, frame: Frame) -> Result<&[u8], String> {
        self.packed.resize(frame.length, 0);
        self.file
            .read_exact_at(&mut self.packed, frame.offset)
            .map_err(|error| error.to_string())?;
        let mut message = Message::new(&self.packed);
        let mut raw_size = 0usize;
        let mut data = None;
        while let Some((field, value)) = message.next().map_err(|error| error.0.to_owned())? {
            match (field, value) {
                (2, Value::Varint(size)) => {
                    raw_size = usize::try_from(size).unwrap_or(usize::MAX);
                }
                (1 | 3..=7, Value::Bytes(bytes)) => data = Some((field, bytes)),
                _ => {}
            }
        }
        if raw_size > MAX_BLOB {
            return Err("blob claims more than 32 MiB".to_owned());
        }
        let (codec, bytes) = data.ok_or("blob without data")?;
        if codec == 1 {
            self.plain.clear();
            self.plain.extend_from_slice(bytes);
            return Ok(&self.plain);
        }
        self.plain.resize(raw_size, 0);
        let written = match codec {
            3 => self
                .inflate
                .zlib_decompress(bytes, &mut self.plain)
                .map_err(|error| format!("zlib: {error}"))?,
            6 => lz4_flex::block::decompress_into(bytes, &mut self.plain)
                .map_err(|error| format!("lz4: {error}"))?,
            7 => zstd::bulk::decompress_to_buffer(bytes, &mut self.plain)
                .map_err(|error| format!("zstd: {error}"))?,
            4 => return Err("lzma blob: not supported".to_owned()),
            _ => return Err("bzip2 blob: not supported".to_owned()),
        };
        if written != raw_size {
            return Err(format!("blob claims {raw_size} bytes and holds {written}"));
        }
        Ok(&self.plain)
    }
}
