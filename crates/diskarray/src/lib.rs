//! A sorted set and map of 64-bit keys on disk with order statistics, crash-safe, in a fixed memory budget.
mod apply;
pub mod backend;
mod batch;
mod buf;
mod bulk;
mod codec;
mod compact;
mod core;
mod device;
mod dirty;
mod error;
mod log;
mod map;
mod node;
mod options;
mod pipeline;
mod pool;
mod rebuild;
mod set;
mod space;
mod stats;
mod store;
mod tree;
mod value;
mod verify;
mod view;

#[cfg(test)]
mod tests;

pub use apply::Applied;
pub use backend::Access;
pub use batch::Batch;
pub use codec::Encoding;
pub use compact::CompactReport;
pub use device::Device;
pub use error::{Error, Result};
pub use log::MAX_METADATA;
pub use map::{OrderedMap, Range, Reader, Snapshot};
pub use options::{Durability, Options};
pub use pipeline::{Operation, Pipeline, Reply};
pub use rebuild::{RebuildReport, rebuild, rebuild_on};
pub use set::{Keys, OrderedSet};
pub use stats::Stats;
pub use value::{MAX_COLUMNS, MAX_VALUE, Value};
pub use verify::{Problem, VerifyReport};
