//! The `.osm.pbf` format, read and written.
//!
//! A file is a row of frames: four length bytes, a BlobHeader, a Blob. The first blob is the file header
//! ([`FileHeader`]), every other one of type `OSMData` holds a PrimitiveBlock, compressed.
//!
//! * [`BlobHeader`], [`parse_blob`], [`write_frame`]: frames, with every limit checked before allocation.
//! * [`Decompressor`], [`Compressor`]: zlib by libdeflate, zstd, lz4, none.
//! * [`Block`]: a decompressed PrimitiveBlock. Its [`Element`]s are views over the wire bytes.
//! * [`BlockBuilder`]: blocks from plain values or from elements of other blocks. [`Splicer`]: a block with
//!   some of another's elements and the same string table. [`WayLocationSplicer`]: a block with locations on
//!   its ways.
//! * [`IndexRecord`]: what is in a blob, kept in its header, for planning without decompressing.
//!
//! The crate reads and writes bytes in memory only; files and threads are the engine's.
//!
//! ```
//! use osmill_model::{Location, Metadata, Tag};
//! use osmill_pbf::{Block, BlockBuilder, Element};
//!
//! let mut builder = BlockBuilder::default();
//! let name = Tag { key: b"name", value: b"Vaduz" };
//! builder.add_node(17, Some(Location::new(95_209_000, 471_410_000)), [name], &Metadata::default());
//! let mut bytes = Vec::new();
//! builder.finish(&mut bytes);
//!
//! let block = Block::parse(bytes)?;
//! for element in block.elements() {
//!     let Element::Node(node) = element? else { continue };
//!     assert_eq!(node.location()?.unwrap().to_string(), "9.5209,47.141");
//!     assert_eq!(node.tags().next().unwrap()?, name);
//! }
//! # Ok::<(), osmill_pbf::BlockError>(())
//! ```
//!
//! # Reading
//!
//! The whole format is read: dense and plain nodes, any mix of kinds and groups, packed and unpacked repeated
//! fields, also split into several pieces, granularity and offsets, absent and partial metadata, locations on
//! ways, history. Two DenseNodes messages in a group are read as one after the other, each with differences
//! of its own. Unknown fields and blob types are passed over; changesets have no place in the model and are
//! passed over, too.
//!
//! Coordinates are rounded toward zero to 10⁻⁷ degrees where a block's granularity is finer, as libosmium
//! does. Deleted nodes have no location, whatever stands in the columns.

mod arrays;
mod block;
mod build;
mod codec;
mod dense;
mod element;
mod error;
mod frame;
mod header;
mod index;
mod locate;
mod splice;
mod strings;
pub mod wire;

pub use arrays::{MessageArrays, NodeArrays, peek_first_element};
pub use block::{Block, Elements, Group, Item, Items, RawItem};
pub use build::{BlockBuilder, ELEMENTS_PER_BLOCK, MetadataFields, encode_way_locations};
pub use codec::{BlobData, Codec, Compression, Compressor, Decompressor, ParseCompressionError};
pub use dense::{DenseInfo, DenseNodes, DensePicker, NodeColumns};
pub use element::{Element, Members, Node, RawMetadata, Relation, Tags, Way, WayLocations};
pub use error::{BlockError, BlockErrorKind, FrameError, HeaderError};
pub use frame::{
    BlobHeader, BlobType, MAX_BLOB_HEADER_SIZE, MAX_BLOB_SIZE, MAX_WRITTEN_BLOB_HEADER_SIZE, parse_blob,
    parse_header_length, peek_blob, write_blob_header, write_frame,
};
pub use header::{FileHeader, HISTORY, HeaderBox, LOCATIONS_ON_WAYS, SORTED, SUPPORTED_FEATURES};
pub use index::{Facts, INDEX_RECORD_SIZE, IndexBuilder, IndexRecord};
pub use locate::WayLocationSplicer;
pub use splice::{Spliced, Splicer};
