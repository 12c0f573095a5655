//! What the fuzz targets do with bytes, as plain functions: `cargo fuzz run header`, `blob`, `block`, `text` and
//! `format` call them, and so do tests that run on any toolchain.
//!
//! A function returns for every input. It panics if what was read does not agree with itself, such as an
//! index record with what a reader of elements finds.

mod targets;
mod text;

pub use targets::{blob, block, header};
pub use text::{format, text};
