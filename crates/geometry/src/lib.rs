//! Regions and geometry tests.
