//! What OpenStreetMap data is, without any I/O.
//!
//! * [`Kind`] and [`KindSet`]: node, way, relation, and sets of them.
//! * [`ElementId`]: a kind and a 64-bit id, ordered as the field orders files ([`id_order`]).
//! * [`Location`]: longitude and latitude in units of 10⁻⁷ degrees, exact.
//! * [`Metadata`]: version, timestamp, changeset, uid, user and visibility, each of them possibly absent.
//! * [`Tag`], [`Member`]: what elements carry. Strings are bytes: OSM says UTF-8, files do not always.
//! * [`BoundingBox`], [`Timestamp`].
//! * [`format_integer`], [`format_coordinate`]: numbers as text.
//!
//! Absence is `Option` throughout: a missing version is not version 0 and a missing location is not 0/0.

mod bbox;
mod decimal;
mod element;
mod id;
mod location;
mod timestamp;

pub use bbox::BoundingBox;
pub use decimal::{format_coordinate, format_integer};
pub use element::{Member, Metadata, Tag};
pub use id::{ElementId, Kind, KindSet, ParseIdError, id_order};
pub use location::{COORDINATE_PRECISION, Location};
pub use timestamp::{ParseTimestampError, Timestamp};
