//! What the fuzz targets do with bytes, as plain functions: `cargo fuzz run header`, `blob` and `block` call
//! them, and so does a test that runs on any toolchain.
//!
//! A function returns for every input. It panics if what was read does not agree with itself, such as an
//! index record with what a reader of elements finds.

mod targets;

pub use targets::{blob, block, header};
