//! OSM XML 0.6 (`.osm`, `.osh`) and OsmChange (`.osc`).

mod parse;
mod scan;
mod write;

pub(crate) use parse::XmlParser;
pub use write::{XmlHeader, write_block, write_element, write_end, write_header};
#[cfg(test)]
pub(crate) use write::push_escaped;
