//! Generators, oracles and fixtures for the tests of osmill.
//!
//! * [`model`]: OSM data in memory and what each command makes of it, slowly and obviously.
//! * [`strategies`]: proptest strategies for small data sets, consistent or wild.
//! * [`osmium`]: the independent tool as second oracle, where it is installed.
//! * [`fixtures`]: the real and the odd files that stand beside or in the repository.
//! * [`amplify`]: many shifted copies of real extracts as one large, consistent file, with a daily diff.
//! * [`synth`]: a planet-shaped file from nothing but a seed.
//! * [`degrade`]: from any file a variant that is harder to read.
//! * [`encode`]: a block encoder for the forms that the production builder never writes.
//! * [`file`]: frames one after the other, and blocks built and compressed by several threads.
//!
//! The binary `osmill-testkit` runs the three generators from the command line.

pub mod amplify;
pub mod degrade;
pub mod encode;
pub mod file;
pub mod fixtures;
pub mod model;
pub mod osmium;
pub mod random;
pub mod strategies;
pub mod synth;
