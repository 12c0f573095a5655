//! One module a command: arguments to library options, results to text.

pub mod cat;
pub mod check;
pub mod inspect;
