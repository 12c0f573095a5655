//! Frames: `length (4 bytes, big-endian) | BlobHeader | Blob`, over and over.

use crate::codec::{BlobData, Codec, Compressor};
use crate::error::FrameError;
use crate::index::IndexRecord;
use crate::wire::{Fields, write_bytes_field, write_varint_field};

/// The most bytes a BlobHeader may have (64 KiB).
pub const MAX_BLOB_HEADER_SIZE: usize = 64 * 1024;
/// The most bytes a blob may have, compressed and uncompressed (32 MiB).
pub const MAX_BLOB_SIZE: usize = 32 * 1024 * 1024;
/// The longest BlobHeader that we write: libosmium before 2.23.1 rejects longer ones.
pub const MAX_WRITTEN_BLOB_HEADER_SIZE: usize = 127;

/// What a blob is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlobType<'a> {
    /// `OSMHeader`: the file header.
    Header,
    /// `OSMData`: a PrimitiveBlock.
    Data,
    /// Any other type; readers skip it.
    Other(&'a [u8]),
}

/// A parsed BlobHeader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobHeader<'a> {
    /// What the blob is for.
    pub blob_type: BlobType<'a>,
    /// Bytes of the blob that follows.
    pub data_size: usize,
    /// The index field, free for any use.
    pub index_data: Option<&'a [u8]>,
}

/// Reads the length that stands before a BlobHeader.
pub fn parse_header_length(bytes: [u8; 4]) -> Result<usize, FrameError> {
    let length = u32::from_be_bytes(bytes);
    if length as usize > MAX_BLOB_HEADER_SIZE {
        return Err(FrameError::HeaderTooLong(length));
    }
    Ok(length as usize)
}

impl<'a> BlobHeader<'a> {
    /// Reads a BlobHeader message.
    pub fn parse(message: &'a [u8]) -> Result<Self, FrameError> {
        let (mut blob_type, mut data_size, mut index_data) = (None, None, None);
        let mut fields = Fields::new(message);
        while let Some((number, value)) = fields.try_next().map_err(FrameError::Header)? {
            match number {
                1 => blob_type = Some(value.bytes().map_err(FrameError::Header)?),
                2 => index_data = Some(value.bytes().map_err(FrameError::Header)?),
                3 => data_size = Some(value.varint().map_err(FrameError::Header)?),
                _ => {}
            }
        }
        let blob_type = match blob_type.ok_or(FrameError::NoType)? {
            b"OSMHeader" => BlobType::Header,
            b"OSMData" => BlobType::Data,
            other => BlobType::Other(other),
        };
        let data_size = data_size.ok_or(FrameError::NoDataSize)?;
        if data_size == 0 || data_size > MAX_BLOB_SIZE as u64 {
            return Err(FrameError::DataSize(data_size as i64));
        }
        Ok(BlobHeader {
            blob_type,
            data_size: data_size as usize,
            index_data,
        })
    }
}

/// Reads a Blob message.
///
/// Of several data fields the last one counts, as protobuf's `oneof` has it.
pub fn parse_blob(message: &[u8]) -> Result<BlobData<'_>, FrameError> {
    let (mut found, mut raw_size) = (None, None);
    let mut fields = Fields::new(message);
    while let Some((number, value)) = fields.try_next().map_err(FrameError::Blob)? {
        let codec = match number {
            1 => Codec::Raw,
            3 => Codec::Zlib,
            6 => Codec::Lz4,
            7 => Codec::Zstd,
            4 => return Err(FrameError::Codec("lzma")),
            5 => return Err(FrameError::Codec("bzip2 (obsolete)")),
            2 => {
                let size = value.varint().map_err(FrameError::Blob)?;
                if size > crate::MAX_BLOB_SIZE as u64 {
                    return Err(FrameError::RawSize(size as i64));
                }
                raw_size = Some(size as usize);
                continue;
            }
            _ => continue,
        };
        found = Some((codec, value.bytes().map_err(FrameError::Blob)?));
    }
    let (codec, data) = found.ok_or(FrameError::NoData)?;
    if codec == Codec::Raw && data.len() > MAX_BLOB_SIZE {
        return Err(FrameError::RawSize(data.len() as i64));
    }
    Ok(BlobData {
        codec,
        raw_size,
        data,
    })
}

/// Like [`parse_blob`], from the first bytes of a Blob message of `size` bytes: the codec, the uncompressed
/// size and where in the message the data lies. `None` if the prefix does not reach up to the data.
pub fn peek_blob(prefix: &[u8], size: usize) -> Option<(Codec, Option<usize>, std::ops::Range<usize>)> {
    let mut rest = prefix;
    let mut raw_size = None;
    loop {
        let key = crate::wire::read_varint(&mut rest).ok()?;
        match (key >> 3, key & 7) {
            (2, 0) => raw_size = Some(usize::try_from(crate::wire::read_varint(&mut rest).ok()?).ok()?),
            (number, 2) => {
                let len = usize::try_from(crate::wire::read_varint(&mut rest).ok()?).ok()?;
                let start = prefix.len() - rest.len();
                let codec = match number {
                    1 => Codec::Raw,
                    3 => Codec::Zlib,
                    6 => Codec::Lz4,
                    7 => Codec::Zstd,
                    _ => return None,
                };
                return (len <= size.checked_sub(start)?).then_some((codec, raw_size, start..start + len));
            }
            _ => return None,
        }
    }
}

/// Appends length and BlobHeader for a blob of `data_size` bytes.
///
/// `index` is left out where the header would come out longer than [`MAX_WRITTEN_BLOB_HEADER_SIZE`].
pub fn write_blob_header(out: &mut Vec<u8>, blob_type: BlobType<'_>, index: Option<&[u8]>, data_size: usize) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    let name = match blob_type {
        BlobType::Header => b"OSMHeader",
        BlobType::Data => b"OSMData".as_slice(),
        BlobType::Other(name) => name,
    };
    write_bytes_field(out, 1, name);
    if let Some(index) = index
        && out.len() - start - 4 + index.len() + 2 + 6 <= MAX_WRITTEN_BLOB_HEADER_SIZE
    {
        write_bytes_field(out, 2, index);
    }
    write_varint_field(out, 3, data_size as u64);
    let length = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// Appends a whole frame: `raw` compressed, with its header before it. Returns the size of the Blob message.
pub fn write_frame(
    out: &mut Vec<u8>,
    blob_type: BlobType<'_>,
    index: Option<&IndexRecord>,
    raw: &[u8],
    compressor: &mut Compressor,
) -> Result<usize, FrameError> {
    let blob = compressor.blob(raw, index)?;
    let size = blob.iter().map(|piece| piece.len()).sum();
    let record = index.map(|index| index.encode(size));
    write_blob_header(out, blob_type, record.as_ref().map(|r| r.as_slice()), size);
    blob.iter().for_each(|piece| out.extend_from_slice(piece));
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Compression;
    use proptest::prelude::*;

    #[test]
    fn limits_are_checked() {
        assert_eq!(parse_header_length([0, 1, 0, 0]), Ok(65536));
        assert_eq!(
            parse_header_length([0, 1, 0, 1]),
            Err(FrameError::HeaderTooLong(65537))
        );
        let header = |size: u64| {
            let mut m = Vec::new();
            write_bytes_field(&mut m, 1, b"OSMData");
            write_varint_field(&mut m, 3, size);
            BlobHeader::parse(&m).map(|h| h.data_size)
        };
        assert_eq!(header(0), Err(FrameError::DataSize(0)));
        assert_eq!(header(32 << 20), Ok(32 << 20));
        assert_eq!(header((32 << 20) + 1), Err(FrameError::DataSize((32 << 20) + 1)));
        assert_eq!(header(u64::MAX), Err(FrameError::DataSize(-1)));
        assert_eq!(BlobHeader::parse(&[]), Err(FrameError::NoType));
        assert_eq!(parse_blob(&[]), Err(FrameError::NoData));
        let mut compressor = Compressor::new(Compression::NONE);
        let large = vec![0; MAX_BLOB_SIZE + 1];
        assert!(compressor.blob(&large, None).is_err());
    }

    proptest! {
        #[test]
        fn headers_read_back_and_stay_short(index in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..200)), size in 1usize..=MAX_BLOB_SIZE) {
            let mut out = Vec::new();
            write_blob_header(&mut out, BlobType::Data, index.as_deref(), size);
            let length = parse_header_length(out[..4].try_into().unwrap()).unwrap();
            prop_assert_eq!(length, out.len() - 4);
            prop_assert!(length <= MAX_WRITTEN_BLOB_HEADER_SIZE);
            let header = BlobHeader::parse(&out[4..]).unwrap();
            prop_assert_eq!(header.data_size, size);
            prop_assert!(header.index_data.is_none() || header.index_data == index.as_deref());
        }

        #[test]
        fn any_bytes_are_safe(bytes: Vec<u8>) {
            let _ = BlobHeader::parse(&bytes);
            let _ = parse_blob(&bytes);
            let _ = peek_blob(&bytes, 1000);
        }
    }
}
