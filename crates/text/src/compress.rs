//! Compression of pieces of text, each on its own.
//!
//! gzip and bzip2 files may consist of several members, one behind the other. Workers compress the text of
//! their blocks into members, and the file is their concatenation.

use std::io::Write;

use crate::format::TextCompression;

/// Compresses pieces of text. Each worker has its own.
pub struct TextCompressor {
    compression: TextCompression,
    gzip: libdeflater::Compressor,
}

impl std::fmt::Debug for TextCompressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TextCompressor")
            .field("compression", &self.compression)
            .finish_non_exhaustive()
    }
}

impl TextCompressor {
    /// A compressor at the usual level of gzip (6) and bzip2 (9).
    pub fn new(compression: TextCompression) -> Self {
        TextCompressor {
            compression,
            gzip: libdeflater::Compressor::new(libdeflater::CompressionLvl::default()),
        }
    }

    /// Appends the text as one member; as it is where there is no compression.
    ///
    /// Empty text gives an empty member: a compressed file needs one at least, and more are a waste.
    pub fn write(&mut self, text: &[u8], out: &mut Vec<u8>) {
        match self.compression {
            TextCompression::None => out.extend_from_slice(text),
            TextCompression::Gzip => {
                let start = out.len();
                out.resize(start + self.gzip.gzip_compress_bound(text.len()), 0);
                let len = self.gzip.gzip_compress(text, &mut out[start..]);
                // The bound was reserved, so there is space.
                out.truncate(start + len.unwrap_or(0));
            }
            TextCompression::Bzip2 => {
                let mut encoder = bzip2::write::BzEncoder::new(&mut *out, bzip2::Compression::best());
                // Writing to memory does not fail.
                let _ = encoder.write_all(text);
                let _ = encoder.finish();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Read;

    proptest! {
        #[test]
        fn members_read_back(pieces in proptest::collection::vec("[a-d]{0,300}", 1..6)) {
            for compression in [TextCompression::None, TextCompression::Gzip, TextCompression::Bzip2] {
                let mut compressor = TextCompressor::new(compression);
                let mut out = Vec::new();
                for piece in &pieces {
                    compressor.write(piece.as_bytes(), &mut out);
                }
                let mut back = String::new();
                match compression {
                    TextCompression::None => back.push_str(std::str::from_utf8(&out).unwrap()),
                    TextCompression::Gzip => {
                        flate2::read::MultiGzDecoder::new(&out[..]).read_to_string(&mut back).unwrap();
                    }
                    TextCompression::Bzip2 => {
                        bzip2::read::MultiBzDecoder::new(&out[..]).read_to_string(&mut back).unwrap();
                    }
                }
                prop_assert_eq!(back, pieces.concat());
            }
        }
    }
}
