//! The benchmark runner: figures that can be trusted, and that anyone can get again.
//!
//! ```text
//! cargo run --release -p osmill-bench -- run toolkit --input amp-500m.osm.pbf --peer pbfhogg=/path/to/pbfhogg
//! cargo run --release -p osmill-bench -- report bench/records/NAME.jsonl
//! cargo run --release -p osmill-bench -- compare OLD.jsonl NEW.jsonl
//! ```
//!
//! A **suite** ([`definitions`]) lists rows as data. A **row** of the `toolkit` suite is one job that several programs can do; they take
//! turns as whole processes ([`run`]), each measured by a launcher of its own ([`measure`]), and every output is verified
//! ([`verify`], [`digest`]): a row with a wrong output is a failure, not a figure. The suites of the two engines run the crates' own
//! benchmark programs ([`program`]). What comes out is a **record** ([`record`]): JSON lines with the machine ([`machine`]), its
//! calibration ([`calibrate`]), the programs and the inputs. [`report`] makes a page of it, [`compare`] judges one against another.
//!
//! How to read the figures is said in [`reading`].

pub mod calibrate;
pub mod compare;
pub mod definitions;
pub mod digest;
pub mod inputs;
pub mod machine;
pub mod measure;
pub mod plot;
pub mod program;
pub mod record;
pub mod report;
pub mod run;
pub mod stats;
pub mod tools;
pub mod verify;

#[doc = include_str!("../READING.md")]
pub mod reading {}
