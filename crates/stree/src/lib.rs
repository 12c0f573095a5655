//! Static search trees.
#![deny(unsafe_code)]

pub mod bitmap;
pub mod buckets;
pub mod digest;
mod error;
pub mod file;
mod kernel;
mod key;
mod memory;
mod place;
mod search;
pub mod sorted;
pub mod tree;

pub use bitmap::{BitmapCollector, RankBitmap, RankBitmapBuilder};
pub use buckets::{BucketBuilder, BucketIndex};
pub use digest::DigestIndex;
pub use error::{Error, Result};
pub use file::{FileInfo, Kind, describe, verify};
pub use kernel::cast::{bytes as line_bytes, bytes_mut as line_bytes_mut};
pub use kernel::{Isa, Line, prefetch};
pub use key::Key;
pub use memory::{Advice, LineBuffer, PageReport};
pub use search::{NOT_FOUND, Search};
pub use sorted::{Choice, SortedIndex, SortedIndexBuilder};
pub use tree::{SearchTree, TreeBuilder, Widths};
