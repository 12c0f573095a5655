//! What can be wrong with a text file. Paths are added by whoever opened the file.

use std::fmt;
use std::io;
use std::path::PathBuf;

use osmill_model::{ElementId, Kind};

use crate::format::Sniffed;

/// Why reading a text file ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file that cannot be opened.
    #[error("{}: cannot open: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The system, or a decompressor, did not give the bytes.
    #[error("cannot read: {0}")]
    Read(#[from] io::Error),
    /// The contents are not one of the formats that are read here.
    #[error("this is {0}, not OSM XML, OsmChange, OPL or o5m")]
    Format(Sniffed),
    /// Something at a place of the file is wrong.
    #[error("{place}: {}{problem}", element.map(|e| format!("{} {}: ", e.kind, e.id)).unwrap_or_default())]
    At {
        /// Where.
        place: Place,
        /// The element there, as far as it was known.
        element: Option<ElementId>,
        /// What.
        problem: Problem,
    },
}

/// A place in a file, after decompression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Line and column, both counted from 1; columns count characters.
    Line {
        /// The line.
        line: u64,
        /// The column.
        column: u64,
    },
    /// Bytes before the place, in binary formats.
    Byte(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Line { line, column } => write!(f, "line {line}, column {column}"),
            Place::Byte(offset) => write!(f, "byte {offset}"),
        }
    }
}

/// What is wrong at a place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The file ends where more has to follow.
    #[error("the file ends inside {0}; it is truncated, fetch it again")]
    Truncated(&'static str),
    /// Something stands where something else has to.
    #[error("expected {expected}, found {found}")]
    Expected {
        /// What has to stand here.
        expected: &'static str,
        /// What stands here.
        found: String,
    },
    /// A value that cannot be.
    #[error("{attribute} is '{value}', which is not {expected}")]
    Value {
        /// The attribute or field.
        attribute: &'static str,
        /// Its value, shortened if long.
        value: String,
        /// What it has to be.
        expected: &'static str,
    },
    /// Something without which an element cannot be.
    #[error("<{element}> has no attribute {attribute}")]
    Missing {
        /// The XML element.
        element: &'static str,
        /// The attribute.
        attribute: &'static str,
    },
    /// An end tag that does not belong to the last start tag.
    #[error("</{found}> where </{expected}> has to stand")]
    Mismatch {
        /// The open element.
        expected: String,
        /// The end tag.
        found: String,
    },
    /// An XML document with another root.
    #[error("the root element is <{0}>, not <osm> or <osmChange>")]
    Root(String),
    /// An encoding other than UTF-8.
    #[error("the encoding is '{0}'; only UTF-8 is read, convert the file first")]
    Encoding(String),
    /// An entity that XML does not define.
    #[error("unknown or broken entity '&{0}'; a plain ampersand is written &amp;")]
    Entity(String),
    /// An element of OsmChange outside of an action.
    #[error("<{0}> outside of <create>, <modify> and <delete>")]
    NoAction(Kind),
    /// An element so large that no block can hold it.
    #[error("one element takes more than {} MiB", .0 >> 20)]
    TooLong(usize),
    /// A reference into the string table of an o5m file that leads nowhere.
    #[error("string {0} of the o5m string table does not exist")]
    StringReference(u64),
    /// A number of an o5m file that is too long, or leads outside the possible values.
    #[error("a number is out of range")]
    Number,
}

impl Problem {
    /// A wrong value.
    pub(crate) fn value(attribute: &'static str, value: &[u8], expected: &'static str) -> Problem {
        Problem::Value {
            attribute,
            value: shortened(value),
            expected,
        }
    }
}

/// Text of a file for a message: at most 60 characters, control characters escaped.
pub(crate) fn shortened(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(&text[..text.len().min(300)]);
    let mut out: String = text.chars().take(60).flat_map(char::escape_debug).collect();
    if text.chars().nth(60).is_some() {
        out.push_str("...");
    }
    out
}

/// Why a parser stopped inside its data.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The data ends before the piece at hand does.
    More,
    /// Something is wrong.
    Bad(Box<Bad>),
}

/// A problem, and where in the parser's data it is.
#[derive(Debug)]
pub(crate) struct Bad {
    pub offset: usize,
    pub element: Option<ElementId>,
    pub problem: Problem,
}

impl Bad {
    #[cold]
    pub fn stop(offset: usize, problem: Problem) -> Stop {
        Stop::Bad(Box::new(Bad {
            offset,
            element: None,
            problem,
        }))
    }
}

impl Stop {
    /// Adds the element at hand, if none is known yet.
    #[cold]
    pub fn of(self, element: Option<ElementId>) -> Stop {
        match self {
            Stop::Bad(mut bad) => {
                bad.element = bad.element.or(element);
                Stop::Bad(bad)
            }
            Stop::More => Stop::More,
        }
    }
}

/// A kind of thing that was passed over because OSM data has no place for it. Each is reported once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The line where it was met first.
    pub line: u64,
    /// What it was, as a sentence.
    pub text: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.text)
    }
}
