//! OSM XML 0.6 (`.osm`, `.osh`) and OsmChange (`.osc`).

mod parse;
mod scan;
mod value;
mod write;

pub(crate) use parse::XmlParser;
#[cfg(test)]
pub(crate) use write::push_escaped;
pub(crate) use write::{close_action, open_action, print_element, write_end, write_header};
