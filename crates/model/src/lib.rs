//! What OpenStreetMap data is.
