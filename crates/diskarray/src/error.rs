//! What can go wrong, with the file, the block and the reason.

use std::io;

/// Result of every fallible operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure, named so that a person can act on it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused a read, write, flush or resize.
    #[error("{file}: {what} at byte {offset} failed: {source}")]
    Io {
        /// The store's name.
        file: String,
        /// `read`, `write`, `flush`, `resize`, `open`, ...
        what: &'static str,
        /// Byte offset of the request, 0 where none applies.
        offset: u64,
        /// The system's reason.
        source: io::Error,
    },
    /// The file does not start like a store of this crate.
    #[error("{file}: not an ordered set or map of this program ({reason})")]
    NotOurs {
        /// The store's name.
        file: String,
        /// What was found instead.
        reason: String,
    },
    /// Written by another version of the format.
    #[error(
        "{file}: format version {found}, but this program reads version {expected}; rebuild the file with it"
    )]
    Version {
        /// The store's name.
        file: String,
        /// Version in the file.
        found: u32,
        /// Version this program reads.
        expected: u32,
    },
    /// The file holds values of another shape than the caller asked for.
    #[error("{file}: holds values of columns {found:?} (bytes each), not {expected:?}")]
    ValueShape {
        /// The store's name.
        file: String,
        /// Column widths in the file.
        found: Vec<u8>,
        /// Column widths of the caller's type.
        expected: Vec<u8>,
    },
    /// Bytes on disk contradict their checksum, their parent or the format.
    #[error("{file}: block {block} is damaged: {reason}; run verify, or rebuild from the extents")]
    Corrupt {
        /// The store's name.
        file: String,
        /// Block number (unit 4096 bytes).
        block: u64,
        /// What contradicts what.
        reason: String,
    },
    /// An earlier write or flush failed; the writer's state in memory is no longer known to be on disk.
    #[error(
        "{file}: an earlier write or flush failed, so this writer is closed; reopen to get the last committed state"
    )]
    Poisoned {
        /// The store's name.
        file: String,
    },
    /// Another process or handle has the file open for writing.
    #[error("{file}: in use by another writer")]
    Locked {
        /// The store's name.
        file: String,
    },
    /// `create` found a file already there.
    #[error("{file}: exists already; open it, or allow it to be replaced")]
    Exists {
        /// The store's name.
        file: String,
    },
    /// A reader was asked for while changes wait for a commit.
    #[error("{file}: uncommitted changes; commit before taking a reader")]
    Uncommitted {
        /// The store's name.
        file: String,
    },
    /// A change was asked of a store opened for reading.
    #[error("{file}: opened for reading only")]
    ReadOnly {
        /// The store's name.
        file: String,
    },
    /// The caller's metadata is longer than a commit can carry.
    #[error("metadata of {len} bytes; at most {max} fit a commit")]
    MetadataTooLong {
        /// Bytes offered.
        len: usize,
        /// Bytes that fit.
        max: usize,
    },
    /// A bulk load met a key that is not above its predecessor.
    #[error("bulk load: key {key} does not ascend after {previous}; sort the input and drop duplicates")]
    NotAscending {
        /// The key before.
        previous: u64,
        /// The offending key.
        key: u64,
    },
    /// A bulk load was asked of a store that holds keys already.
    #[error("{file}: bulk load needs an empty store; use a batch instead")]
    NotEmpty {
        /// The store's name.
        file: String,
    },
    /// The memory budget cannot hold the fixed buffers.
    #[error("memory budget of {given} bytes is too small; at least {least} are needed")]
    Budget {
        /// Bytes given.
        given: u64,
        /// Smallest workable budget.
        least: u64,
    },
    /// The file cannot address more blocks.
    #[error("{file}: no room for more blocks (2^31 blocks of 4096 bytes is the end of the format)")]
    Full {
        /// The store's name.
        file: String,
    },
}
