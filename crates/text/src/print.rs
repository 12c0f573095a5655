//! What all writers of text share.

use osmill_model::Location;
use osmill_pbf::{BlockError, MetadataFields, Node};

/// How elements are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PrintOptions {
    /// Which metadata is printed.
    pub metadata: MetadataFields,
    /// XML only: print OsmChange.
    pub change: bool,
    /// XML only: print a `visible` attribute.
    pub visible: bool,
    /// Print the locations that ways carry.
    pub locations_on_ways: bool,
}

/// The location of a node, that of a deleted one included where its file had it.
pub(crate) fn stored_location(node: &Node<'_>) -> Result<Option<Location>, BlockError> {
    node.location()
}

/// Appends a decimal number.
pub(crate) fn push_int(out: &mut Vec<u8>, value: i64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}
