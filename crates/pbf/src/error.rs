//! What can be wrong with a file's bytes.
//!
//! These errors know the element at most; whoever read the bytes adds file, blob number and byte offset.

use osmill_model::ElementId;

use crate::wire::WireError;
use crate::{MAX_BLOB_HEADER_SIZE, MAX_BLOB_SIZE};

/// An error in the frame of a blob: its length, header, or compressed body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The four length bytes hold more than a BlobHeader may have.
    #[error("a blob header of {0} bytes is announced where at most {MAX_BLOB_HEADER_SIZE} are allowed")]
    HeaderTooLong(u32),
    /// The blob header is not a BlobHeader message.
    #[error("the blob header is damaged: {0}")]
    Header(WireError),
    /// A BlobHeader without a type.
    #[error("the blob header has no type")]
    NoType,
    /// A BlobHeader without the size of its blob.
    #[error("the blob header does not say how long its blob is")]
    NoDataSize,
    /// A blob that is announced as negative, empty or over the limit.
    #[error("a blob of {0} bytes is announced where 1 to {MAX_BLOB_SIZE} are allowed")]
    DataSize(i64),
    /// The blob is not a Blob message.
    #[error("the blob is damaged: {0}")]
    Blob(WireError),
    /// A Blob without any of the data fields.
    #[error("the blob contains no data")]
    NoData,
    /// The uncompressed size is negative or over the limit.
    #[error("an uncompressed size of {0} bytes is announced where at most {MAX_BLOB_SIZE} are allowed")]
    RawSize(i64),
    /// A codec that is not supported; by name.
    #[error(
        "the blob is compressed with {0}, which is not supported; rewrite the file with zlib, zstd or lz4"
    )]
    Codec(&'static str),
    /// The compressed bytes do not decompress.
    #[error("the {codec} data of the blob is damaged: {what}")]
    Compressed {
        /// Name of the codec.
        codec: &'static str,
        /// What the decoder found.
        what: String,
    },
    /// A blob that would be written is over the limit.
    #[error(
        "a block of {0} bytes would be written where readers take at most {MAX_BLOB_SIZE}; one element is too large for PBF"
    )]
    TooLargeToWrite(usize),
}

/// An error in a file header block.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The header block is not a HeaderBlock message.
    #[error("the file header is damaged: {0}")]
    Wire(#[from] WireError),
    /// A required feature that this reader does not know.
    #[error(
        "the file requires the feature '{0}', which is not supported; it was written by a newer or special program"
    )]
    RequiredFeature(String),
}

/// An error in a PrimitiveBlock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}{what}", Prefix(.element))]
pub struct BlockError {
    /// The element in which it was found, if one is known.
    pub element: Option<ElementId>,
    /// What is wrong.
    pub what: BlockErrorKind,
}

struct Prefix<'a>(&'a Option<ElementId>);

impl std::fmt::Display for Prefix<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(element) => write!(f, "{element}: "),
            None => Ok(()),
        }
    }
}

/// What can be wrong inside a PrimitiveBlock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BlockErrorKind {
    /// Broken protobuf.
    #[error("{0}")]
    Wire(#[from] WireError),
    /// A string number that the block's table does not have.
    #[error("string {index} is used, but the string table has {len} entries")]
    StringIndex {
        /// The number used.
        index: u64,
        /// How many strings there are.
        len: usize,
    },
    /// Two parallel columns of different length.
    #[error("column '{column}' has {found} values where {expected} are needed")]
    Lengths {
        /// Name of the column.
        column: &'static str,
        /// How many there should be.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// A granularity that is zero, negative or beyond 32 bits.
    #[error("a granularity of {0} is not allowed")]
    Granularity(i64),
    /// A coordinate beyond what 32 bits of 10⁻⁷ degrees can hold.
    #[error("a coordinate is out of range")]
    Coordinate,
    /// A version, uid, changeset or timestamp out of range.
    #[error("the {name} {value} is out of range")]
    Metadata {
        /// Name of the field.
        name: &'static str,
        /// Its value.
        value: i64,
    },
    /// A member type that is not node, way or relation.
    #[error("member type {0} is unknown")]
    MemberType(u64),
    /// An element without id.
    #[error("an element has no id")]
    NoId,
}

impl BlockErrorKind {
    /// The error as that of an element.
    pub fn of(self, element: ElementId) -> BlockError {
        BlockError {
            element: Some(element),
            what: self,
        }
    }
}

impl From<BlockErrorKind> for BlockError {
    fn from(what: BlockErrorKind) -> Self {
        BlockError { element: None, what }
    }
}

impl From<WireError> for BlockError {
    fn from(error: WireError) -> Self {
        BlockErrorKind::Wire(error).into()
    }
}
