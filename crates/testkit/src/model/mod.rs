//! Slow and obvious OSM data in memory: the oracle of property tests.
//!
//! [`Data`] is a list of owned [`Element`]s in file order; a [`Change`] is a list of actions. Each command of
//! the toolkit is a function on them, written to be read, not to be fast: most are quadratic or rebuild maps
//! as they go. Short text in OPL makes cases by hand:
//!
//! ```
//! use osmill_testkit::model::Data;
//!
//! let data = Data::opl("
//!     n1 v1 x1 y1
//!     n2 v1 x2 y2 Tbarrier=gate
//!     w1 v1 Nn1,n2,n3 Thighway=track
//! ");
//! assert_eq!(data.missing_references(false).len(), 1);
//! assert_eq!(Data::from_pbf(&data.to_pbf()).unwrap(), data);
//! ```
//!
//! # Order and sameness
//!
//! Elements are in order by kind, [`id_order`](osmill_model::id_order), version, time; an absent version or
//! time counts as 0 here (and only here). Of two versions of an element the *newer* is the one with the
//! greater version, then the later time, then the one that was given later.

mod change;
mod data;
mod element;
mod filter;
mod select;
#[cfg(test)]
mod tests;

pub use change::{Action, Change, Difference, OscWriter, diff};
pub use data::{Data, MissingReference, OrderFault, PbfOptions, ReadError, Unresolved};
pub use element::{Element, Member, Metadata, ParseOplError, Text};
pub use filter::TagExpression;
pub use select::{Completeness, Selected, SmartOptions};
