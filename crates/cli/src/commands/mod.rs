//! One module a command: arguments to library options, results to text.

pub mod add_locations;
pub mod cat;
pub mod check;
pub mod extract;
pub mod getid;
pub mod help;
pub mod inspect;
pub mod nodes;
pub mod set;
pub mod tags_filter;
pub mod target;
