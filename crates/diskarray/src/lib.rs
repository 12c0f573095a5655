//! A sorted set and map of 64-bit keys on disk, with order statistics: point search, the key of a rank, the rank of a key, counts of ranges,
//! insertion, removal, scans; crash-safe, within a memory budget that does not grow with the number of keys.
//!
//! ```
//! use osmill_diskarray::{Batch, Durability, Options, OrderedMap};
//!
//! # fn main() -> osmill_diskarray::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("places");
//! let mut places = OrderedMap::<(i32, i32)>::create(&path, Options::default().memory(64 << 20))?;
//! places.bulk_load((0..100_000u64).map(|id| (id * 3, (id as i32, 7))))?;
//! places.commit(Durability::Batch, b"sequence 1")?;
//!
//! let mut batch = Batch::new();
//! batch.put(4, (40, 40));
//! batch.remove(3);
//! places.apply(&mut batch)?;
//! places.commit(Durability::Batch, b"sequence 2")?;
//!
//! assert_eq!(places.get(4)?, Some((40, 40)));
//! assert_eq!(places.at(1)?, Some((4, (40, 40))));
//! assert_eq!(places.rank(6)?, 2);
//! assert_eq!(places.count(0..300)?, 100);
//! drop(places);
//!
//! let places = OrderedMap::<(i32, i32)>::open(&path, Options::default())?;
//! assert_eq!(places.metadata(), b"sequence 2");
//! # Ok(())
//! # }
//! ```
//!
//! # Parts
//!
//! - [`OrderedMap`] and [`OrderedSet`]: the one writer. [`Reader`] and [`Snapshot`]: any number of threads that read committed states.
//! - [`Batch`]: many operations applied together, the fast way to change. [`Pipeline`]: many single operations in flight.
//!   [`OrderedMap::get_many`] and its kin: many lookups together.
//! - [`Options`], [`Durability`], [`Device`]: the memory knob, when a commit is safe, what the planner assumes.
//! - [`backend`]: the trait that blocks are reached by, with io_uring, a thread pool, the page cache, memory and a simulated disk.
//! - [`Stats`], [`VerifyReport`], [`CompactReport`], [`RebuildReport`], [`rebuild()`]: care and repair. All reports are `Display` and `serde`.
//!
//! # Data structure
//!
//! One counted B+-tree. Its leaves, the *extents*, are blocks of 4096 bytes with up to a few thousand sorted keys; an inner *node* of
//! 16 KiB has up to 816 entries {first key, number of keys, block, checksum of the child}, in memory with a subtotal of every 64 counts. Levels above are
//! of the same kind, so nothing in the structure is linear in the number of keys. Search descends by key, `at` by
//! counts; both touch one extent. Nodes are pinned from the top while the budget lasts, and paged beyond it.
//!
//! Extents are raw, packed or bitmaps ([`Encoding`]): packed ones hold groups of 64 keys behind a skip table, so that a search decodes one group;
//! values are cut into integer columns ([`Value`]), each with its own width in each group. A bitmap is changed as a bitmap, by single changes and by batches
//! alike: it may hold tens of thousands of keys, which nobody wants to unpack for the sake of one.
//!
//! # Changes
//!
//! Nothing that the last commit refers to is ever overwritten. A single change takes its extent into memory, where it stays changed until a
//! commit or until the write buffer is full. A batch is sorted, and goes through the directory leaf by leaf: extents are read ahead with many
//! requests in flight, in the order of the file within groups of up to 256, those close together in one request; merged with their operations; and written behind in runs of up to 1 MiB. Where a batch touches
//! a third of a leaf's extents or more (see [`Device::regroup_share`]) the whole leaf is rewritten as one stream, which costs no more and restores key order on
//! disk; elsewhere an extent splits evenly when it overflows (nine to one at the end of all keys), and one under 35 % takes in its neighbour.
//! Before the first large batch the device is measured on the file itself, which takes some 30 ms ([`Options::device`]). Blocks come from free segments of 1 MiB first, from holes once a quarter of the file is free, else from the end of the file.
//!
//! What a batch replaces is free after its commit, and the next batch wants as much again: writing to storage that the file system has to find for
//! each write takes twice the time and more. So free segments are kept as far as recent commits took so many; the rest, but for a sixteenth of what is in
//! use, goes back to the file system at a commit, 64 MiB at a time, as holes, and at checkpoints the end of the file is cut. The room ebbs by a thirty-second part a
//! commit.
//!
//! # Memory
//!
//! [`Options::memory`] is one budget for everything that the store holds: directory, pool of extents, changed extents, I/O buffers, maps of free
//! space, a record of the log, the nodes fetched for a moment. It is cut anew as the parts grow: what the directory and
//! a batch in progress need is taken from the pool. Pool, changed extents and buffers are mappings of their own and go back to the system when they
//! shrink; freed blocks are kept as runs or, when those would be larger, as a bit a block; records of the log are made in the length they will have
//! and read a few entries at a time; a lookup of many keys borrows from the pool what sorting them takes, and goes in parts where that is
//! not enough. A test holds a process to the budget by a limit on its address space. Beside it are the caller's: batches (12 bytes an operation, and
//! the value), results, and nodes that only snapshots hold.
//!
//! A directory that is larger than five eighths of the budget is paged: its lowest nodes are read when they are needed, a second read for a search.
//!
//! # Single operations
//!
//! A search reads the directory, guesses by interpolation between the ends of an extent's range where the key is, and asks for the cache lines there
//! and of the header at once; among raw keys that are spread evenly the guess holds, elsewhere two rounds of independent loads follow. A
//! [`Pipeline`] does the same for operations that are still to come: from disk into the pool, or from memory into the cache.
//!
//! # Commits and recovery
//!
//! A commit writes changed extents, flushes, appends a *delta* (which extents answer for which key ranges from now on, with the caller's
//! metadata) to the log, and flushes. When the log is full, or the delta is larger than what it would save, the commit is a *checkpoint* instead: changed nodes are
//! written, flushed, and a superblock that names the new root, flushed. [`Durability::Logged`] writes the operations themselves: one flush.
//! Freed extents are handed out again after the commit that freed them and when no snapshot can see them; freed nodes after the next
//! checkpoint, which recovery starts from.
//!
//! Opening reads the newest valid superblock, then the directory, marking every block in use (the map of free space is not stored and cannot be
//! wrong), then replays the log up to the first record that does not continue the chain of checksums.
//!
//! A failed write or flush poisons the writer: what the disk holds is unknown until the file is opened again. Readers go on from the last commit.
//! Each extent and node is checked against the checksum in itself, which is bound to its place and file, and the one in its parent, when it is
//! read from disk.
//!
//! # File format, version 1
//!
//! Little endian throughout; blocks of 4096 bytes, numbered from 0. Blocks 0, 16, 32, 48 hold superblocks; the first 64 blocks hold nothing else. All other blocks
//! are extents, nodes (4 blocks), the log (a run of blocks) or free. Checksums are the low half of XXH3-64 with the
//! block number plus 2^32 times the file id as seed (0 as file id for superblocks).
//!
//! ```text
//! superblock   0 u32 checksum of bytes 4..4096    4 12 bytes "osmill.disk\0"   16 u32 version
//!             20 u32 file id    24 u64 sequence   32 u64 epoch    40 u64 keys
//!             48 u32 root block 52 u32 root checksum   56 u32 root level
//!             60 u32 log block  64 u32 log blocks
//!             68 u8 columns     69 8 x u8 bytes of a column   77 u8 encoding: 0 raw, 1 packed
//!             78 u16 metadata bytes   80 metadata
//!             checkpoint n is at block 16 * (n % 2), its twin 32 blocks further
//!
//! log record   0 u32 checksum of bytes 4..length   4 u16 0xDA5C   6 u8 version   7 u8 kind: 1 delta, 2 operations
//! (block       8 u32 length     12 u32 chain: checksum of the record before; of the first, XXH3-64 of the superblock's
//!  aligned)                     sequence (8 bytes) with the file id as seed, low half
//!             16 u64 epoch      24 u64 keys after it   32 u32 metadata bytes   36 u32 items   40 zero
//!             48 metadata, items
//!             delta item        u64 low, u64 high (both inclusive), u32 n, n x { u64 first key, u32 keys, u32 block, u32 checksum }
//!             operations item   u64 key, u8 1 put or 0 remove, value if put
//!
//! node         0 u32 checksum of bytes 4..16384    4 u16 0xDA5D   6 u8 version   7 u8 level, 1 above extents
//!              8 u32 entries    12 u32 file id     16 u64 epoch
//!             24 u64 low, 32 u64 high key          40 u64 keys below   48 zero
//!             64 columns: first key u64; keys u32 (level 1) or u64; block u32 (0: nothing there); checksum of the child u32
//!
//! extent       0 u32 checksum of bytes 4..4096     4 u16 0xDA5E   6 u8 version   7 u8 codec: 0 raw, 1 packed, 2 bitmap
//!              8 u16 keys       10 u16 payload bytes   12 u32 file id   16 u64 epoch
//!             24 u64 low, 32 u64 high key it answers for   40 zero   48 payload
//!  raw        keys u64 each, then values, row by row
//!  packed     first key of each group of 64, u64; a table row a group { u16 offset of its data in the payload, u8 key mode, per column
//!             { base, as wide as the column; u8 mode } }; data of each group: its columns, then its keys, each starting on a byte
//!             key mode 0..=64: differences less 1 in so many bits; 128: bitmap of the keys after the first, up to the next group
//!             column mode, low 7 bits: width; high bit clear: value less base (the least); set: base is the first value, then
//!             zigzag differences
//!  bitmap     u64 first key, then one bit a key from it on (sets only)
//! ```
//!
//! # What was tried and refuted
//!
//! - Batches of 2048 with a barrier between them: a third of the speed of a sliding window.
//! - Extents of 8 or 16 KiB: fewer random operations a second on the devices measured, and dearer single changes.
//! - Queues deeper than the device's knee, registered buffers, SQPOLL: no gain, or loss.
//! - Extents looked ahead in the pool until their turn: changed extents and their writing pushed them out, and a third of single changes read twice.
//! - Reserving space with `fallocate`, 64 MiB ahead: writes alone are a third faster into it, but the first batch of 1 M into a scattered file of 128 M keys took
//!   4.8 and 6.9 s instead of 2.7 and 2.8.
//! - Unpacking bitmaps to change them: 130 us a change.
//! - Binary search in a raw extent: nine dependent cache misses; two rounds of independent loads are twice as fast.
//! - Changed extents as vectors on the heap: freed, they left holes of an eighth of their size, and nothing went back to the system.
//! - A radix sort of batches: a second copy of the batch for no gain over one pass into buckets and a sort of each.
//! - A fixed share of memory for changed extents: single insertions thrashed at a tenth of the speed of a share that grows into the pool.

mod apply;
pub mod backend;
mod batch;
mod buf;
mod bulk;
mod codec;
mod commit;
mod compact;
mod core;
mod device;
mod dirty;
mod error;
mod log;
mod map;
mod node;
mod options;
mod pipeline;
mod pool;
mod rebuild;
mod recover;
mod set;
mod space;
mod stats;
mod store;
mod transfer;
mod tree;
mod value;
mod verify;
mod view;

#[cfg(test)]
mod tests;

pub use apply::Applied;
pub use backend::Access;
pub use batch::Batch;
pub use codec::Encoding;
pub use compact::CompactReport;
pub use device::Device;
pub use error::{Error, Result};
pub use log::MAX_METADATA;
pub use map::{OrderedMap, Range, Reader, Snapshot};
pub use options::{Durability, Options};
pub use pipeline::{Operation, Pipeline, Reply};
pub use rebuild::{RebuildReport, rebuild, rebuild_on};
pub use set::{Keys, OrderedSet};
pub use stats::Stats;
pub use value::{MAX_COLUMNS, MAX_VALUE, Value};
pub use verify::{Problem, VerifyReport};
