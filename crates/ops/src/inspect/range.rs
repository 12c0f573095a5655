//! What a column's extremes tell.

use osmill_pbf::wire::{Deltas, WireError};
use osmill_pbf::{BlockError, BlockErrorKind};

/// The smallest and the largest number of a column.
#[derive(Debug, Clone, Copy)]
pub struct Range {
    pub least: i64,
    pub most: i64,
}

impl Default for Range {
    fn default() -> Self {
        Range {
            least: i64::MAX,
            most: i64::MIN,
        }
    }
}

impl Range {
    /// The range of the values of a delta-coded column.
    pub fn of_sums(column: Deltas<'_>) -> Result<Range, WireError> {
        column.column().fold_changes(Range::default(), Range::with)
    }

    pub fn is_empty(&self) -> bool {
        self.least > self.most
    }

    /// How many of a column's `count` values, of which this is the range, tell something: all where all are positive, which is
    /// the rule and costs less than counting; else what `recount` gives.
    pub fn known(
        self,
        count: usize,
        recount: impl FnOnce() -> Result<u64, WireError>,
    ) -> Result<u64, WireError> {
        match self {
            _ if self.is_empty() => Ok(0),
            Range { least: 1.., .. } => Ok(count as u64),
            _ => recount(),
        }
    }

    #[inline(always)]
    pub fn with(self, value: i64) -> Range {
        Range {
            least: value.min(self.least),
            most: value.max(self.most),
        }
    }

    /// Refuses numbers outside `least..=most`.
    pub fn check(&self, name: &'static str, least: i64, most: i64) -> Result<(), BlockError> {
        let value = match () {
            _ if self.is_empty() => return Ok(()),
            _ if self.least < least => self.least,
            _ if self.most > most => self.most,
            _ => return Ok(()),
        };
        Err(BlockErrorKind::Metadata { name, value }.into())
    }
}
