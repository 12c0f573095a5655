//! The .osm.pbf format.
