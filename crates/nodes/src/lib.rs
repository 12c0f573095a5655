//! Node locations by id.
