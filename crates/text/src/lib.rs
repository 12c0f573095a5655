//! OSM text formats, and the names and options of all formats.
//!
//! Formats are ways to make and to print blocks. A [`Reader`] turns OSM XML, OsmChange, OPL, o5m or o5c,
//! plain or compressed, into blocks of one kind (and, for changes, of one [`Action`]); a [`Printer`] turns
//! the elements of a block into bytes, so that workers can print block by block in parallel.
//!
//! * [`Reader`]: any of the formats, recognised by content.
//! * [`Printer`]: OSM XML, OsmChange and OPL, laid out as `osmium` lays them out; [`opl`] tells more of OPL.
//! * [`compress`]: gzip members and bzip2 streams, made in parallel and put one behind the other.
//! * [`format`](mod@format): names, suffixes and options of formats, PBF included, and [`format::Sniffed`].
//!
//! # Reading
//!
//! A parser is given the unread bytes of the file as one slice. It goes through them without copying, stops
//! behind the last element that is whole, and starts there again when more bytes have come: there is no state
//! inside an element, so elements may be cut anywhere. The text of an element is copied once, unescaped, into
//! a buffer from which the block is built. Line numbers are counted in passing, a chunk at a time.
//!
//! With several threads, text is cut where elements begin, and a few pieces are parsed ahead of the reader; guesses
//! about the cuts are verified. Small XML files, o5m, and whatever comes before the first element are parsed on
//! the calling thread.
//!
//! Most of XML is attributes that are laid out alike, and most of their values numbers: both are read eight bytes at a
//! time, and anything that looks otherwise by the general rules. Handing such an attribute on as a variant of an enum
//! costs more than reading it: it is copied in memory wider than it was written, and each copy waits.
//!
//! Inflating gzip on its own thread is what bounds the reading of `.osc.gz` files: about 300 MB of text a second. A
//! member has no places to begin in the middle, so more threads do not help.
//!
//! Absent values stay absent: a node without `lat` and `lon` has no location, and -1 as version, changeset or
//! user number means that there is none. Elements in `<delete>`, and those that JOSM marks with
//! `action='delete'`, are not visible. Strings are not checked for UTF-8.

mod assemble;
pub mod compress;
mod error;
pub mod format;
mod number;
mod o5m;
pub mod opl;
mod pieces;
mod print;
mod reader;
mod source;
mod xml;

pub use assemble::{Action, TextBlock};
pub use error::{Error, Place, Problem, Warning};
pub use print::{ActionJoiner, PrintHeader, PrintOptions, Printer};
pub use reader::{Header, Reader};
