//! Errors that end a job, with what a person needs to act on them.

use std::io;
use std::path::{Path, PathBuf};

use osmill_model::ElementId;
use osmill_pbf::wire::WireError;
use osmill_pbf::{BlockError, FrameError, HeaderError};

use osmill_text::format::Sniffed;

/// Result of the engine's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a job ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused something.
    #[error("{}: cannot {what}: {source}", path.display())]
    Io {
        /// What was tried: "read", "create", ...
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A write found no space.
    #[error(
        "{}: the disk is full after {written} bytes of output; nothing was left under that name. \
         Free some space, or write to another disk", path.display()
    )]
    DiskFull {
        /// The output.
        path: PathBuf,
        /// Bytes written before.
        written: u64,
    },
    /// The input is no OSM data.
    #[error("{}: this is {what}, not OSM data{hint}", path.display(), hint = what.hint())]
    NotPbf {
        /// The input.
        path: PathBuf,
        /// What it is.
        what: Sniffed,
    },
    /// The input is text with something wrong in it.
    #[error("{}: {source}", path.display())]
    Text {
        /// The input.
        path: PathBuf,
        /// What is wrong, and where.
        source: osmill_text::Error,
    },
    /// The input is damaged.
    #[error("{}: blob {blob} at byte {offset}: {source}", path.display())]
    Malformed {
        /// The input.
        path: PathBuf,
        /// Number of the blob, from 0 (the file header).
        blob: u64,
        /// Where in the file its frame begins.
        offset: u64,
        /// What is wrong.
        source: Malformed,
    },
    /// The output exists.
    #[error("{}: the file exists; use -O (--overwrite) to replace it", .0.display())]
    Exists(PathBuf),
    /// What a command has to keep in memory is more than `--memory` allows.
    #[error(
        "{what} need about {needed} bytes of memory, and --memory allows {allowed}; give more memory, or do the \
         work in parts"
    )]
    Memory {
        /// What is kept.
        what: &'static str,
        /// Bytes, as far as is known.
        needed: u64,
        /// Bytes.
        allowed: u64,
    },
    /// The arguments do not fit together, or not to the input.
    #[error("{0}")]
    Usage(String),
    /// The work cannot be done.
    #[error("{0}")]
    Failed(String),
}

/// What is wrong with an input's bytes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// The file ends inside a frame.
    #[error("the file ends after {found} of {expected} bytes; it is truncated, fetch it again")]
    Truncated {
        /// Bytes that are there.
        found: u64,
        /// Bytes that were announced.
        expected: u64,
    },
    /// A frame is damaged.
    #[error("{0}{hint}", hint = frame_hint(.0))]
    Frame(#[from] FrameError),
    /// The file header is damaged or asks for too much.
    #[error("{0}{hint}", hint = header_hint(.0))]
    Header(#[from] HeaderError),
    /// The first blob is not a file header.
    #[error(
        "the file does not begin with a file header (OSMHeader); a piece is missing, fetch the file again"
    )]
    NoHeader,
    /// A block is damaged.
    #[error("{0}{DAMAGED}")]
    Block(#[from] BlockError),
    /// The input has to be sorted and is not.
    #[error(
        "{element} comes after {previous}, but the input has to be sorted by kind and id; run osmill sort first"
    )]
    Unsorted {
        /// The element that is out of place.
        element: ElementId,
        /// The one before it.
        previous: ElementId,
    },
}

/// What to do about damage, as the end of a message.
const DAMAGED: &str = "; fetch the file again, or ask whoever wrote it";

fn frame_hint(error: &FrameError) -> &'static str {
    match error {
        // These say themselves what to do.
        FrameError::Codec(_) | FrameError::TooLargeToWrite(_) => "",
        _ => DAMAGED,
    }
}

fn header_hint(error: &HeaderError) -> &'static str {
    match error {
        HeaderError::RequiredFeature(_) => ", convert it with that",
        _ => DAMAGED,
    }
}

impl Error {
    /// An I/O error with its file.
    pub fn io(what: &'static str, path: &Path, source: io::Error) -> Self {
        Error::Io {
            what,
            path: path.to_owned(),
            source,
        }
    }

    /// An error in reading text.
    pub fn text(path: &Path, source: osmill_text::Error) -> Self {
        use osmill_text::Error as Text;
        match source {
            Text::Open { path, source } => Error::io("open", &path, source),
            Text::Read(source) => Error::io("read", path, source),
            Text::Format(Sniffed::Pbf) => Error::Usage(format!(
                "{}: this is OSM PBF inside other compression; unpack it first (PBF files are compressed inside)",
                path.display()
            )),
            Text::Format(what) => Error::NotPbf {
                path: path.to_owned(),
                what,
            },
            source => Error::Text {
                path: path.to_owned(),
                source,
            },
        }
    }

    /// An error in writing to `path` after `written` bytes.
    pub fn write(path: &Path, written: u64, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::StorageFull => Error::DiskFull {
                path: path.to_owned(),
                written,
            },
            _ => Error::io("write", path, source),
        }
    }

    /// The exit code of a program that ends with this error: 1 where the work failed, 2 where arguments or
    /// inputs are at fault.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::DiskFull { .. } | Error::Failed(_) => 1,
            Error::Io { what, .. } if matches!(*what, "write" | "finish") => 1,
            _ => 2,
        }
    }
}

/// What a kernel may return: an error inside the block at hand, to which the engine adds file, blob number
/// and byte offset, or one that is complete.
#[derive(Debug)]
pub enum Fault {
    /// An error in the block at hand.
    Here(Malformed),
    /// Any other error.
    Other(Box<Error>),
}

impl From<BlockError> for Fault {
    fn from(error: BlockError) -> Self {
        Fault::Here(error.into())
    }
}

impl From<WireError> for Fault {
    fn from(error: WireError) -> Self {
        Fault::Here(BlockError::from(error).into())
    }
}

impl From<FrameError> for Fault {
    fn from(error: FrameError) -> Self {
        Fault::Here(error.into())
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Fault::Other(Box::new(error))
    }
}

/// Result of a kernel.
pub type KernelResult<T = ()> = std::result::Result<T, Fault>;
