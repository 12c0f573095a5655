//! The benchmark runner.
