//! Node id -> location, at any scale.
//!
//! # The table
//!
//! [`LocationTable`] holds the locations of the nodes that something refers to, and of no others. The ids
//! ([`NodeIds`]) are a rank bitmap: the rank of an id is its *slot*. Locations lie at their slots in blocks of
//! [`BLOCK`] slots. A block has a directory entry of 16 bytes (smallest longitude and latitude, how many bits
//! the differences to them take, where the data begins), and the differences as fixed-width numbers, longitude
//! and latitude in turn. So one location is read by address arithmetic, and a look-up touches three cache
//! lines: one of the bitmap, one of the directory, one of the data. A batch keeps some thirty look-ups in
//! flight at each of the three.
//!
//! Coordinates are exact. That a node is absent is no location of its own: in a block with absent slots the
//! widths leave room for one more longitude, which stands for absence.
//!
//! The life of a table: a [`ReferenceCollector`] takes the ids in any order from all threads, and is frozen;
//! a [`Filler`] takes the nodes, blob by blob, from all threads; what comes out is the table.
//!
//! * [`Filler::sorted`]: blobs may come in any order, but what they hold has to be ascending in their order.
//!   Nothing is kept but the packed blocks.
//! * [`Filler::scattered`]: any order at all, for 12 bytes a slot while it is filled.
//!
//! Of a node that is there several times, the last one in the order of the file counts, whatever the threads do.
//!
//! # Ranges
//!
//! What does not fit in memory is done in passes over ranges of ids ([`IdRange`]). Each pass makes the table of
//! one range and notes the locations of all references into it, in the order of the references, one stream for
//! each blob of ways ([`LocationStreams`]). In the end the streams are merged by looking at which range the next
//! reference lies in. There is no sorting, and no id in scratch: a reference costs the bytes of the difference to
//! the location before.
//!
//! # The store
//!
//! [`NodeStore`] is the other user of the idea: a file that maps the ids of all nodes to locations, follows the
//! change files of the data, and is asked by id, today and after the next restart.
//!
//! ```
//! use osmill_model::Location;
//! use osmill_nodes::{NodeStore, State};
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("nodes");
//! let mut store = NodeStore::create(&path, 64 << 20)?;
//! store.load([Ok((1, Location::new(74_000_000, 437_000_000))), Ok((2, Location::new(74_000_100, 437_000_200)))])?;
//! store.commit(State { sequence: Some(3047), ..State::default() })?;
//! // A change file: node 2 has moved, node 1 is gone. It is there as a whole, with its number, or not at all.
//! store.change([(2, Some(Location::new(74_000_101, 437_000_200))), (1, None)])?;
//! store.commit(State { sequence: Some(3048), ..State::default() })?;
//! drop(store);
//!
//! let store = NodeStore::open(&path, 64 << 20, true)?;
//! let mut way = Vec::new();
//! store.locate(&[2, 1], &mut way)?;
//! assert_eq!(way, [Some(Location::new(74_000_101, 437_000_200)), None]);
//! assert_eq!(store.state().sequence, Some(3048));
//! # Ok::<(), osmill_engine::Error>(())
//! ```
//!
//! # Example: the ways of a file
//!
//! ```
//! use osmill_engine::{Input, Job, JobOptions};
//! use osmill_nodes::{Filler, LocationTable, NodeBatch, ReferenceCollector};
//! # use osmill_model::{Location, Metadata};
//! # use osmill_pbf::{BlobType, BlockBuilder, Compressor, FileHeader, write_frame};
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("region.osm.pbf");
//! # let (mut file, mut raw, mut compressor) = (Vec::new(), Vec::new(), Compressor::new(Default::default()));
//! # write_frame(&mut file, BlobType::Header, None, &FileHeader::new("test").encode(), &mut compressor, &mut Vec::new()).unwrap();
//! # let mut builder = BlockBuilder::default();
//! # builder.add_node(1, Some(Location::new(95_000_000, 471_000_000)), [], &Metadata::default());
//! # builder.add_node(2, Some(Location::new(95_000_001, 471_000_002)), [], &Metadata::default());
//! # builder.add_way(5, &[2, 1, 9], None, [], &Metadata::default());
//! # let index = builder.finish(&mut raw);
//! # write_frame(&mut file, BlobType::Data, Some(&index), &raw, &mut compressor, &mut Vec::new()).unwrap();
//! # std::fs::write(&path, &file).unwrap();
//!
//! let job = Job::new(JobOptions::default());
//! let input = Input::open(&path, false, &std::env::temp_dir())?;
//! let plan = input.plan(1)?;
//!
//! let wanted = ReferenceCollector::new();
//! job.pass("references", input.file(), &plan.blobs).scan(Vec::new, |refs, blob| {
//!     refs.clear();
//!     blob.block()?.way_refs_into(refs)?;
//!     wanted.insert_all(refs);
//!     Ok(())
//! })?;
//!
//! let filler = Filler::sorted(wanted.freeze(1)?)?;
//! job.pass("nodes", input.file(), &plan.blobs).scan(NodeBatch::default, |nodes, blob| {
//!     let number = blob.entry().number;
//!     nodes.read(blob.block()?)?;
//!     let at = plan.blobs.iter().position(|b| b.number == number).unwrap();
//!     filler.add(at, nodes)?;
//!     Ok(())
//! })?;
//! let table: LocationTable = filler.finish()?;
//!
//! let mut locations = Vec::new();
//! table.locate(&[2, 1, 9], &mut locations);
//! assert_eq!(locations[0].unwrap().to_string(), "9.5000001,47.1000002");
//! assert_eq!(locations[2], None);
//! assert_eq!(table.missing().next(), Some(9));
//! # Ok::<(), osmill_engine::Error>(())
//! ```

mod fill;
mod ids;
mod packed;
pub mod store;
mod streams;
mod table;

pub use fill::{Filler, NodeBatch};
pub use ids::{IdRange, NodeIds, ReferenceCollector};
pub use packed::BLOCK;
pub use store::{NodeSnapshot, NodeStore, State};
pub use streams::{LocationStreams, Stream, free_space};
pub use table::LocationTable;

/// An error of the index structures as one of the job.
fn failed(error: osmill_stree::Error) -> osmill_engine::Error {
    osmill_engine::Error::Failed(format!("node locations: {error}"))
}
