//! Regions for extracts, and exact tests against them.
//!
//! * [`MultiPolygon`] is an area: polygons with holes, united, edges included. [`parse_bbox`], [`parse_poly`]
//!   and [`parse_geojson`] read one, [`read_region`] and [`parse_region`] tell the format themselves, and
//!   [`assemble()`] makes one of the ways of a boundary relation.
//! * [`Region`] answers for one area, [`RegionSet`] for thousands of them: which locations, boxes
//!   ([`Coverage`]) and segments are inside.
//! * [`Config`] and [`parse_features`] read lists of areas with the outputs they are for.
//!
//! ```
//! use osmill_geometry::{Coverage, Region, parse_bbox};
//! use osmill_model::{BoundingBox, Location};
//!
//! let region = Region::new(parse_bbox("170,60,-170,70")?);
//! assert!(region.contains(Location::new(-1_750_000_000, 650_000_000)));
//! assert_eq!(region.classify(BoundingBox::new(0, 0, 10, 10)), Coverage::Outside);
//! # Ok::<(), osmill_geometry::RegionError>(())
//! ```
//!
//! # What is inside
//!
//! Every coordinate is an integer, and every test is decided by comparing integers, so answers do not depend
//! on an order of operations, and locations exactly on an edge belong to the region, between corners as well
//! as on them. Overlapping parts are united, and a ring that crosses itself encloses all its loops (the
//! non-zero rule); there are holes only where the source says so. Edges are straight in longitude and
//! latitude. Regions may cross the antimeridian, which is one line under two names (±180).
//!
//! osmium-tool decides with the even-odd rule instead, and has the edges of overlapping parts cut holes.
//! On areas whose rings neither overlap nor cross themselves both agree, but for locations exactly on an edge
//! that runs due east or west, some of which osmium-tool leaves out.
//!
//! # How
//!
//! All tests go through one cell index, a tree of grids described in the `index` module: a lookup in a cell
//! that edges touch looks at sixteen of these at most, as a rule, and in other cells at none. Lookups allocate
//! nothing, but for locations exactly on the antimeridian in a [`RegionSet`].
//!
//! Floating-point geometry libraries were not used: they give no answer for locations on an edge that is not
//! parallel to an axis, since its points are not representable, and OSM coordinates are integers anyway.

mod assemble;
mod bbox_text;
mod config;
mod error;
mod exact;
mod features;
mod geojson;
mod index;
mod multipolygon;
mod poly;
mod region;
mod region_set;
mod source;
mod walk;

pub use assemble::{BorderWay, OpenEnd, RingError, Role, assemble};
pub use bbox_text::{looks_swapped, parse_bbox};
pub use config::{Config, ConfigExtract, HeaderValue, RegionSource, parse_config, read_config};
pub use error::RegionError;
pub use features::{NamedArea, parse_features, read_features};
pub use geojson::parse_geojson;
pub use multipolygon::MultiPolygon;
pub use poly::parse_poly;
pub use region::Region;
pub use region_set::RegionSet;
pub use source::{MAX_FILE_SIZE, RegionFormat, parse_region, read_region, sniff};
pub use walk::Coverage;
