//! The commands of osmill as library functions: one module a command, each a short list of passes.
//!
//! * [`cat`]: copy, index, filter by kind, clean, recompress, merge.
//! * [`inspect`]: what a file holds, from its headers or from every byte of it.
//! * [`tags`]: how often tags occur.
//! * [`extract`]: what is in a region, for many regions at once.
//! * [`tags_filter`]: elements whose tags match, and what they refer to.
//! * [`getid`], [`getparents`]: elements by their ids ([`ids`]), and what refers to them.
//! * [`filter`]: tag expressions.
//! * [`check`]: order, uniqueness and references.
//! * [`add_locations`]: the locations of their nodes on ways.
//! * [`nodes`]: the persistent store of node locations.
//!
//! A function takes a [`osmill_engine::Job`] with the budgets, the inputs, and an options struct; it returns
//! what it found out. Rendering is the caller's.

pub mod add_locations;
pub mod cat;
pub mod check;
pub mod extract;
pub mod filter;
pub mod getid;
pub mod getparents;
pub mod ids;
pub mod inspect;
mod merge;
pub mod nodes;
mod order;
pub mod select;
mod split;
pub mod tags;
pub mod tags_filter;
