//! The `osmill` program.

fn main() {}
