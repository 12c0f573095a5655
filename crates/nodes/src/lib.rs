//! Node id -> location, at any scale.
//!
//! # The table
//!
//! [`LocationTable`] is made of *pages*: the nodes of 4096 ids in a row, which of them there are and where they
//! are, in one piece of bytes. The ids are bits, of which only the 64-bit words that are not empty are kept, each with the
//! number of nodes before it in its page. The locations follow in blocks of 32 in the order of ids: the smallest longitude and
//! latitude of the block, and the differences to them as fixed-width numbers, so that one location is read by
//! address arithmetic. Ids are given in the order in which people upload, so a block often mixes two places far
//! from each other: such a block is split into two groups with bases and widths of their own. Which page begins where is
//! a rank bitmap over the numbers of pages (which fits in a cache even for the planet: 3.3 million bits) and an array of
//! offsets.
//!
//! A look-up touches the lines of a page that hold the word and the block. A batch goes through the stages (number of the
//! page, where it begins, its words of ids, the block) side by side, so that many lines are on their way at once.
//!
//! Bytes a node that ways refer to, everything counted, with all nodes of the file in the table, and nanoseconds a look-up in the
//! order of the ways on one thread (2 cores of Zen 4, `cargo bench -p osmill-nodes -- FILE`, the answers compared with a
//! search in a sorted array):
//!
//! | file | nodes | referred to | bytes | ns |
//! | --- | --- | --- | --- | --- |
//! | amp-500m (amplified from extracts) | 47.2 M | 46.2 M | 5.17 | 14 |
//! | the same, referred nodes only | | 46.2 M | 5.00 | |
//! | an area of 8 degrees in Asia | 653 k | 651 k | 4.94 | |
//! | Liechtenstein | 319 k | 304 k | 5.67 | |
//! | Malta | 334 k | 325 k | 6.60 | |
//!
//! Small extracts cost more because their ids lie thin: Malta's 334 k nodes lie on 10.5 k pages.
//!
//! Coordinates are exact. That a node is absent is no location of its own.
//!
//! A page does not depend on any other, so workers make them of the blobs that they read, in parallel; only the
//! nodes at the two ends of a blob wait for its neighbours. There are three ways to fill a table:
//!
//! * [`Filler::sorted`]: all nodes of a range of ids. Blobs may come in any order, but what they hold has to be ascending
//!   in their order. Nothing is kept but the pages.
//! * [`Filler::selected`]: the same for those nodes only that an [`IdSet`](osmill_engine::IdSet) has.
//! * [`Filler::scattered`]: nodes in any order at all, for 12 bytes a node while it is filled; which ones are wanted
//!   has to be known.
//!
//! Of a node that is there several times, the last one in the order of the file counts, whatever the threads do.
//!
//! Tried and left: a rank bitmap over all ids with the rank as slot of the location (one line of 64 bytes for 448 ids, most of
//! which are empty in an extract: 1.6 to 2 bytes a node for the ids instead of 0.7, a second directory for the blocks, and every
//! block has to wait for the nodes before it); collecting the references first, in order to keep only the nodes that ways refer to
//! (in extracts these are 95 to 98 % of all, and the pass takes longer than the rest is worth).
//!
//! Of look-ups: a stage of its own to fetch what is said of a block (14.3 instead of 13.8 ns), batches of 128, 512 or 1024 instead of
//! 256, no branch for blocks that are split (15 ns), appending locations instead of filling them in (0.5 ns more). Two
//! thirds of the time is waiting for memory: in a table of 42 MB a look-up takes 11 ns. Of making pages: smallest and largest
//! coordinates in lanes with masks for the groups (a third slower: the compiler makes 32 KB of code of it). Of memory: small pages
//! are quicker to get than huge ones where the host has to provide them first, but a random read then takes 17 to 19 ns instead of 14.
//!
//! # Ranges
//!
//! What does not fit in memory is done in passes over ranges of ids ([`IdRange`]). Each pass makes the table of
//! one range and notes the locations of all references into it, in the order of the references, one stream for
//! each blob of ways ([`LocationStreams`]). In the end the streams are merged by looking at which range the next
//! reference lies in. There is no sorting, and no id in scratch: a reference costs the bytes of the difference to
//! the location before, 4.2 bytes on the files below.
//!
//! How `osmill add-locations-to-ways` grows, on 2 cores of Zen 4, everything in the page cache. Time is that of both
//! processors; the command keeps both busy, so that the time on the wall is half of it: 38.6 s and 50.9 s for the last two rows:
//!
//! | input | references | `--memory` | ranges | scratch | processor time | peak memory | ns a reference |
//! | --- | --- | --- | --- | --- | --- | --- | --- |
//! | amp-80m, 0.08 GB, 7.9 M nodes | 9.5 M | 1 GiB | 1 | 0 | 1.7 s | 0.08 GB | 182 |
//! | amp-500m, 0.5 GB, 47 M nodes | 57 M | 1 GiB | 1 | 0 | 11.0 s | 0.28 GB | 193 |
//! | amp-2500m, 2.5 GB, 268 M nodes | 323 M | 1 GiB | 2 | 0.66 GB | 71.6 s | 0.76 GB | 222 |
//! | amp-2500m | 323 M | 256 MiB | 8 | 1.19 GB | 100 s | 0.23 GB | 310 |
//!
//! So time grows with the references, and each range more costs another 15 to 35 ns a reference (the ways are inflated and
//! decoded once more). For the planet (10.45 G nodes, 12.4 G references, 90 GB) at 24 GiB, *extrapolated, not measured*: at 5
//! bytes a node the table takes 52 GB, so 3 ranges; scratch 2/3 of the references at 4.2 bytes, 35 GB; time 12.4 G times some
//! 240 ns, 50 minutes of processor time, 25 on two such cores. This assumes that nodes pack as in extracts (denser ids cost less for
//! the words, not for the locations), that neighbouring references are as near to each other, and a disk that keeps up: it reads
//! the nodes once and two thirds of them again, the ways three times, and writes output and scratch, about 0.4 TB in all, 250 MB/s.
//!
//! # The store
//!
//! [`NodeStore`] is the other user of the idea: a file that maps the ids of all nodes to locations, follows the
//! change files of the data, and is asked by id, today and after the next restart.
//!
//! With the nodes of amp-500m (47.2 M) on 2 cores of Zen 4: 7.5 bytes a node, 7.6 with what the file holds in reserve;
//! `osmill nodes build` 17 to 23 M nodes/s; `osmill nodes get` of a million ids in the order of ways, text in and out, 0.38 s,
//! 2.6 M/s; `osmill nodes apply` of a change of 10 000 nodes (4471 new, 5336 moved, 193 gone, all over the
//! file), durable, 0.15 s on the wall, with 5800 reads of 5 KB and 40 MB of writes.
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
//! use osmill_engine::{IdSet, Input, Job, JobOptions};
//! use osmill_nodes::{Filler, LocationTable, NodeBatch};
//! # use osmill_model::{Location, Metadata};
//! # use osmill_pbf::{BlobType, BlockBuilder, Compressor, FileHeader, write_frame};
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("region.osm.pbf");
//! # let (mut file, mut raw, mut compressor) = (Vec::new(), Vec::new(), Compressor::new(Default::default()));
//! # write_frame(&mut file, BlobType::Header, None, &FileHeader::new("test").encode(), &mut compressor).unwrap();
//! # let mut builder = BlockBuilder::default();
//! # builder.add_node(1, Some(Location::new(95_000_000, 471_000_000)), [], &Metadata::default());
//! # builder.add_node(2, Some(Location::new(95_000_001, 471_000_002)), [], &Metadata::default());
//! # builder.add_way(5, &[2, 1, 9], None, [], &Metadata::default());
//! # let index = builder.finish(&mut raw);
//! # write_frame(&mut file, BlobType::Data, Some(&index), &raw, &mut compressor).unwrap();
//! # std::fs::write(&path, &file).unwrap();
//!
//! let job = Job::new(JobOptions::default());
//! let input = Input::open(&path, false, &std::env::temp_dir())?;
//! let plan = input.plan(1)?;
//!
//! let wanted = IdSet::new();
//! job.pass("references", input.file(), &plan.blobs).scan(Vec::new, |refs, blob| {
//!     refs.clear();
//!     blob.block()?.way_refs_into(refs)?;
//!     wanted.insert_all(refs);
//!     Ok(())
//! })?;
//!
//! let filler = Filler::selected(wanted);
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
//! # Ok::<(), osmill_engine::Error>(())
//! ```

mod fill;
mod ids;
mod packed;
mod page;
pub mod store;
mod streams;
mod table;

pub use fill::{Filler, NodeBatch};
pub use ids::{IdRange, NodeIds};
pub use store::{NodeSnapshot, NodeStore, State};
pub use streams::{LocationStreams, Stream, free_space};
pub use table::LocationTable;

/// An error of the index structures as one of the job.
fn failed(error: osmill_stree::Error) -> osmill_engine::Error {
    osmill_engine::Error::Failed(format!("node locations: {error}"))
}
