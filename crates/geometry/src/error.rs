//! What can be wrong with a region.

use std::path::PathBuf;

use crate::assemble::RingError;

/// Why a region, or a list of them, could not be made from what was given.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// A bounding box was not four numbers in their ranges.
    #[error("bounding box '{text}': {reason}")]
    Bbox {
        /// The text as it was given.
        text: String,
        /// What is wrong with it, and what to write.
        reason: String,
    },
    /// A `.poly` file broke its format.
    #[error("line {line}: {reason}")]
    Poly {
        /// The line, counted from 1.
        line: usize,
        /// What was expected there.
        reason: String,
    },
    /// A document was not JSON, or had values of a wrong type in it.
    #[error("cannot be read as JSON: {0}")]
    Json(
        /// The parser's words, with line and column.
        #[from]
        serde_json::Error,
    ),
    /// A JSON document did not hold what it should.
    #[error("{place}: {reason}")]
    GeoJson {
        /// Where in the document: `features[3].geometry.coordinates[0]`.
        place: String,
        /// What is wrong there.
        reason: String,
    },
    /// The ways of a boundary do not make rings.
    #[error(transparent)]
    Rings(#[from] RingError),
    /// The file holds OSM data. Its relations have to be read and assembled first.
    #[error("this is an OSM file, whose boundary relations have to be assembled first")]
    OsmFile,
    /// The content is none of the known formats.
    #[error("{0}")]
    UnknownFormat(
        /// What it looks like, and what is understood.
        String,
    ),
    /// A file, before or after decompression, is larger than any sensible region.
    #[error("larger than {limit} bytes; simplify the region")]
    TooLarge {
        /// The number of bytes accepted.
        limit: u64,
    },
    /// So many holes meet so many parts that matching them would take too long.
    #[error("{holes} holes and {parts} parts overlap too often; simplify the region")]
    TooComplex {
        /// The number of holes.
        holes: usize,
        /// The number of parts.
        parts: usize,
    },
    /// Nothing encloses an area.
    #[error("{0}")]
    Empty(
        /// What was found instead.
        String,
    ),
    /// A file could not be read.
    #[error("cannot be read: {0}")]
    Read(
        /// The system's words.
        #[from]
        std::io::Error,
    ),
    /// A list of extracts is not as it should be.
    #[error("{}{reason}", .extract.map(|number| format!("extract {number}: ")).unwrap_or_default())]
    Config {
        /// The extract, counted from 1, if it is about one.
        extract: Option<usize>,
        /// What is wrong, and what to write.
        reason: String,
    },
    /// One of the regions of a list is wrong.
    #[error("extract {extract}: {source}")]
    InExtract {
        /// The extract, counted from 1.
        extract: usize,
        /// What is wrong.
        source: Box<RegionError>,
    },
    /// Something is wrong in a file.
    #[error("{}: {source}", .path.display())]
    InFile {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: Box<RegionError>,
    },
}

impl RegionError {
    /// Names the file in which this was found.
    pub fn in_file(self, path: impl Into<PathBuf>) -> RegionError {
        RegionError::InFile {
            path: path.into(),
            source: Box::new(self),
        }
    }
}
