//! OSM text formats.
