//! What a PBF file says, in a few numbers: the oracle that compares outputs of different programs.
//!
//! Two programs never write the same bytes: blobs are cut elsewhere, string tables are ordered otherwise, one writes an
//! index and one does not. A [`Digest`] depends on the elements alone. It has one 64-bit sum per *facet* (ids, locations,
//! tags, node refs, members, version, ...), so that a difference has a name, and so that a row can say that a facet is meant to
//! differ (`cat --clean version`).
//!
//! **Method.** Each element adds, per facet, `mix(kind, id, contents)` to the facet's wrapping sum, with strings hashed
//! by XXH3 and numbers folded in by 64x64 -> 128 bit multiplication (the construction of wyhash). Sums commute, so blobs are
//! digested by several threads in any order, and an element that is there twice counts twice. Order is judged apart:
//! [`Digest::sorted`]. The reader here is on purpose not the one of `osmill-pbf`: a bug in that one must not be able to
//! hide itself.
//!
//! **Absence.** Formats and programs disagree on how to write 'no value'; a version, timestamp, changeset or uid of 0 or
//! less and an empty user name count as absent, `visible = true` as well.
//!
//! Time is about that of inflating the file; memory is one blob a thread plus 32 bytes a blob.

mod elements;
mod frames;
mod wire;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};

use elements::{Key, Tally};
use frames::BlobReader;

/// One aspect of an element that two files can agree or disagree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Facet {
    /// Which elements there are.
    Ids,
    /// Longitude and latitude of nodes, in nanodegrees.
    Locations,
    /// Keys and values, whatever their order.
    Tags,
    /// The order of the tags inside an element.
    TagOrder,
    /// Node refs of ways, in order.
    Refs,
    /// Members of relations with kind and role, in order.
    Members,
    /// Locations on ways, in order.
    WayLocations,
    /// Version numbers.
    Version,
    /// Timestamps in milliseconds.
    Timestamp,
    /// Changeset ids.
    Changeset,
    /// User ids.
    Uid,
    /// User names.
    User,
    /// Deleted versions in a history file.
    Visible,
}

impl Facet {
    /// Every facet, in the order in which differences are reported.
    pub const ALL: [Self; 13] = [
        Self::Ids,
        Self::Locations,
        Self::Tags,
        Self::TagOrder,
        Self::Refs,
        Self::Members,
        Self::WayLocations,
        Self::Version,
        Self::Timestamp,
        Self::Changeset,
        Self::Uid,
        Self::User,
        Self::Visible,
    ];
}

/// Counts, extremes and facet sums of a file. See the [module](self).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    /// `nodes`, `ways`, `relations`, `refs`, `members`, `tags`, `tagged_nodes`, and per kind `min_node_id`, `max_node_id`, ...
    /// (absent for a kind without elements).
    pub counts: BTreeMap<String, i64>,
    /// Facet sums, as hexadecimal numbers.
    pub facets: BTreeMap<Facet, String>,
    /// Whether every element comes after the one before it in the field's order (nodes, ways, relations; ids -1, -2, ...,
    /// 1, 2, ...; equal ids allowed, as history files have them).
    pub sorted: bool,
    /// The first id of the blob in the middle of each kind, for rows that look for ids: `node`, `way`, `relation`.
    pub samples: BTreeMap<String, i64>,
}

/// A file that cannot be digested.
#[derive(Debug, thiserror::Error)]
pub enum DigestError {
    /// The file cannot be opened or measured.
    #[error("{}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The bytes are no readable PBF.
    #[error("{}: blob at byte {offset}: {what}", path.display())]
    Blob {
        /// The file.
        path: PathBuf,
        /// Byte offset of the blob.
        offset: u64,
        /// What is wrong.
        what: String,
    },
}

impl Digest {
    /// Digests the PBF at `path` with `threads` workers.
    pub fn of_file(path: &Path, threads: usize) -> Result<Self, DigestError> {
        let open = |source| DigestError::Open {
            path: path.to_owned(),
            source,
        };
        let blob = |(offset, what)| DigestError::Blob {
            path: path.to_owned(),
            offset,
            what,
        };
        let file = File::open(path).map_err(open)?;
        let size = file.metadata().map_err(open)?.len();
        let frames = frames::walk(&file, size).map_err(blob)?;
        let cursor = AtomicUsize::new(0);
        let stop = AtomicBool::new(false);
        let total = Mutex::new((Tally::default(), vec![BlobOrder::default(); frames.len()]));
        let work = || -> Result<(), (u64, String)> {
            let mut reader = BlobReader::new(&file);
            let mut tally = Tally::default();
            let mut orders = Vec::new();
            let mut scratch = elements::Scratch::default();
            while !stop.load(Ordering::Relaxed) {
                let index = cursor.fetch_add(1, Ordering::Relaxed);
                let Some(&frame) = frames.get(index) else { break };
                let plain = reader.read(frame).map_err(|what| (frame.offset, what))?;
                let order = elements::block(plain, &mut tally, &mut scratch)
                    .map_err(|error| (frame.offset, error.0.to_owned()))?;
                orders.push((index, order));
            }
            let mut total = total.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            total.0.add(&tally);
            for (index, order) in orders {
                total.1[index] = order;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads.max(1))
                .map(|_| scope.spawn(|| work().inspect_err(|_| stop.store(true, Ordering::Relaxed))))
                .collect();
            let join = |worker: std::thread::ScopedJoinHandle<'_, _>| match worker.join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            workers.into_iter().try_for_each(join)
        })
        .map_err(blob)?;
        let (tally, orders) = total
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        Ok(Self {
            counts: tally.counts(),
            facets: tally.facets(),
            sorted: in_order(&orders),
            samples: samples(&orders),
        })
    }

    /// The names of what differs between two digests, facets in `ignore` left out: counts first. Empty when the files
    /// say the same. Sortedness is compared too.
    pub fn differences(&self, other: &Self, ignore: &[Facet]) -> Vec<String> {
        let mut found = Vec::new();
        for kind in ["nodes", "ways", "relations"] {
            let (one, two) = (self.count(kind), other.count(kind));
            if one != two {
                found.push(format!("{kind} ({one} and {two})"));
            }
        }
        for facet in Facet::ALL {
            if !ignore.contains(&facet) && self.facets.get(&facet) != other.facets.get(&facet) {
                let name = serde_json::to_string(&facet).unwrap_or_default();
                found.push(name.trim_matches('"').to_owned());
            }
        }
        if self.sorted != other.sorted {
            found.push("sortedness".to_owned());
        }
        found
    }

    /// A count by name; 0 when there is none of that name.
    pub fn count(&self, name: &str) -> i64 {
        self.counts.get(name).copied().unwrap_or(0)
    }
}

/// First and last element of a blob, and whether those between are in order.
#[derive(Debug, Clone, Copy, Default)]
struct BlobOrder {
    ends: Option<(Key, Key)>,
    first_id: i64,
    sorted: bool,
}

fn in_order(orders: &[BlobOrder]) -> bool {
    let mut last: Option<Key> = None;
    for order in orders {
        let Some((first, end)) = order.ends else { continue };
        if !order.sorted || last.is_some_and(|last| last > first) {
            return false;
        }
        last = Some(end);
    }
    true
}

fn samples(orders: &[BlobOrder]) -> BTreeMap<String, i64> {
    let mut found = BTreeMap::new();
    for (kind, name) in ["node", "way", "relation"].into_iter().enumerate() {
        let blobs: Vec<_> = orders
            .iter()
            .filter(|order| {
                order
                    .ends
                    .is_some_and(|(first, _)| usize::from(first.kind) == kind)
            })
            .collect();
        if let Some(order) = blobs.get(blobs.len() / 2) {
            found.insert(name.to_owned(), order.first_id);
        }
    }
    found
}
