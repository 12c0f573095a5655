//! An ordered set and map of 64-bit keys on disk.
