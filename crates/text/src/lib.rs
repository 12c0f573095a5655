//! OSM text formats.
//!
//! Formats are ways to print and to make blocks: a writer turns the elements of a block into bytes, so that
//! workers can print blob by blob in parallel.
//!
//! * [`opl`]: one line an element, laid out as `osmium` lays it out.

pub mod opl;
