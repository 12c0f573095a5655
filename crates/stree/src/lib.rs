//! Static search trees: sorted keys to positions, as fast as memory answers.
//!
//! A sorted, immutable set of keys answers *where is this key?* - its rank, its lower bound, its exact position - for many
//! queries at a time. A binary search in a gigabyte costs a microsecond, because its steps wait for memory one after the other.
//! The indexes here touch one or two cache lines per query and keep dozens of queries in flight, which makes 40 to 200
//! times as many answers per second on one thread.
//!
//! # Which index
//!
//! | index | keys | lines per query | bytes per key |
//! | --- | --- | --- | --- |
//! | [`RankBitmap`] | ids, dense somewhere: `u64` without duplicates | 1, or 1 and a cached one | 0.15 to 2 |
//! | [`BucketIndex`] | spread evenly, as hashes are | 1.1 | 8.5 for `u64` (13 if sparse), 3 to 6 for `u32` |
//! | [`DigestIndex`] | digests of 20, 32, ... bytes | 1.1 (twice that from 21 bytes on) | 1.8 times the digest |
//! | [`SearchTree`] | any, with duplicates; over the caller's column | 1 in the column, 1 or so above | 4 % of the column |
//! | [`SortedIndex`] | any | the best of bitmap, buckets and tree, chosen by its builder | |
//!
//! All answer the questions of the trait [`Search`], one query at a time or, much faster, in batches:
//!
//! ```
//! use osmill_stree::{Search, SortedIndex};
//!
//! let column: Vec<u64> = (0..10_000).map(|key| key * key).collect();
//! let index = SortedIndex::build(&column)?;
//!
//! // One at a time.
//! assert_eq!(index.position(144), Some(12));
//! assert_eq!(index.lower_bound(145), 13);
//!
//! // A batch, into the caller's buffer.
//! let queries = [81, 0, 99_980_001];
//! let mut positions = [0; 3];
//! index.position_into(&queries, &mut positions);
//! assert_eq!(positions, [9, 0, 9999]);
//!
//! // A batch that fetches a payload in the same pipeline.
//! let payload: Vec<f32> = (0..10_000).map(|position| position as f32 / 2.0).collect();
//! let mut values = [0.0; 3];
//! index.gather_into(&queries, &payload, f32::NAN, &mut values);
//! assert_eq!(values, [4.5, 0.0, 4999.5]);
//! # Ok::<(), osmill_stree::Error>(())
//! ```
//!
//! # Keys
//!
//! [`Key`] is `u32`, `u64`, `i32` or `i64`. Inside, keys are *ordered bits*: unsigned numbers of the same order.
//!
//! # Building and files
//!
//! Bitmaps and trees are built from a sorted stream ([`RankBitmapBuilder`], [`TreeBuilder`]), bitmaps also from ids in any order
//! on many threads ([`BitmapCollector`]), the others from sorted slices; all but the streams on as many threads as one likes, with
//! the same result for any number. Input out of order is an error. Every index can be saved, and opened in O(1) from a mapped
//! file or from the caller's bytes; the format is specified in [`file`](mod@file). Any bytes are safe to open and to search: damage gives a
//! wrong answer or an error. [`verify`] tells.
//!
//! # How it is put together
//!
//! * `kernel`: the 64-byte [`Line`], the comparisons within one line (scalar, AVX2, AVX-512, NEON), and the one place where a batch
//!   is dispatched to an instruction set, once. All unsafe code but the memory's is there.
//! * `memory`: buffers on 2 MiB boundaries, with huge pages asked for before the first touch, and the [`PageReport`].
//! * [`bitmap`], [`buckets`], [`digest`], [`tree`]: one layout each. The module documentation is the specification.
//! * `place`: filling buckets in order, in parallel. [`sorted`]: the choice.
//!
//! # Sources
//!
//! Static search trees and their batched descent: R. Groot Koerkamp, "Static search trees: 40x faster than binary search" (2024),
//! after Algorithmica's S-trees; Rao and Ross, cache-sensitive search trees (1998); Kim et al., FAST (2010); Khuong and Morin,
//! "Array layouts for comparison-based searching" (2015). Rank in bit vectors: Vigna, rank9 (2008); Zhou et al., poppy (2013).
//!
//! Refuted, here or by others, and not to be tried again without a new reason: one truncation of all keys for routing (ids share
//! their high words); sorting the queries first; prefix tables; interpolation with a last mile; Roaring-like containers; nodes of
//! two lines; prefetching in the loop that compares.

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
pub use kernel::{Isa, Line, Wide, prefetch, run_wide};
pub use key::Key;
pub use memory::{Advice, LineBuffer, PageReport};
pub use search::{NOT_FOUND, Search};
pub use sorted::{Choice, SortedIndex, SortedIndexBuilder};
pub use tree::{SearchTree, TreeBuilder, Widths};

/// Runs the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
