//! What can go wrong, and what to do about it.

use std::io;

/// An error of this crate. Look-ups never fail; building, opening and saving can.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Keys given to a builder were not in ascending order (or, for a set, not strictly ascending).
    #[error("key number {position} is out of order ({why}); sort the keys before building")]
    Unsorted {
        /// Index of the first key that is smaller than (or equal to) the one before it.
        position: u64,
        /// Which order was broken.
        why: &'static str,
    },
    /// The keys are too unevenly spread for a layout that computes a key's place from its value.
    #[error(
        "keys are too uneven for {layout}: {why}; use a SearchTree, or the Builder of SortedIndex, which chooses"
    )]
    Uneven {
        /// The layout that was asked for.
        layout: &'static str,
        /// What was found.
        why: String,
    },
    /// More keys than the layout can count.
    #[error("{layout} holds at most {limit} keys")]
    TooMany {
        /// The layout that was asked for.
        layout: &'static str,
        /// Its largest number of keys.
        limit: u64,
    },
    /// A size in bytes that does not fit the address space, or that the system refused.
    #[error("cannot reserve {bytes} bytes of memory: {source}")]
    Memory {
        /// Bytes asked for.
        bytes: u64,
        /// The system's answer.
        source: io::Error,
    },
    /// Bytes that are not an index, or one that this version does not read.
    #[error("not a usable index file: {why}")]
    Format {
        /// What was found, where, and what was expected.
        why: String,
    },
    /// An index of another kind or key type than the one asked for.
    #[error("the file holds {found}, not {wanted}")]
    OtherIndex {
        /// What the header says.
        found: String,
        /// What the caller asked for.
        wanted: String,
    },
    /// A checksum does not match: the bytes changed since they were written.
    #[error(
        "checksum of the section '{section}' is {found:08x}, the header says {wanted:08x}: the file is damaged, build it again"
    )]
    Checksum {
        /// Name of the damaged part.
        section: &'static str,
        /// Checksum of the bytes as they are.
        found: u32,
        /// Checksum in the header.
        wanted: u32,
    },
    /// The instruction set asked for is not available on this processor.
    #[error("this processor does not have {isa}; available: {available}")]
    NoSuchIsa {
        /// What was asked for.
        isa: &'static str,
        /// What there is.
        available: String,
    },
    /// Reading or writing failed.
    #[error("{what}: {source}")]
    Io {
        /// What was being done, to which file.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
}

/// `std::result::Result` with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;
