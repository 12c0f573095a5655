//! `nodes`: the persistent store of node locations, built, asked, updated, copied.
//!
//! * [`build`]: from the nodes of a PBF file. A sorted file is loaded in order, others in batches.
//! * [`apply`]: OsmChange files, each in one atomic step with its sequence number.
//! * [`import`], [`export`]: the flat file of osmium (`dense_file_array`) and osm2pgsql (`--flat-nodes`): for
//!   each id from 0 on longitude and latitude as little-endian `i32` in units of 10⁻⁷ degrees, both `i32::MAX`
//!   where there is no node.
//!
//! What makes a file makes it under another name beside the target and renames it at the end.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use osmill_engine::{BlobEntry, Counts, Error, Input, Job, Origin, Result};
use osmill_model::{Kind, Location, Timestamp};
use osmill_nodes::{NodeBatch, NodeStore, State, free_space};
use osmill_pbf::Element;
use osmill_text::Action;
use serde::Serialize;

use crate::add_locations::parts::Parts;

/// Blobs that are decoded at once before they are loaded.
const WINDOW: usize = 256;

/// What was put into a new store.
#[derive(Debug, Clone, Serialize)]
pub struct BuildReport {
    /// Nodes in the store.
    pub nodes: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// A store that is being made beside its final place.
struct Building {
    folder: tempfile::TempDir,
    target: PathBuf,
    store: NodeStore,
}

impl Building {
    fn begin(job: &Job, target: &Path, overwrite: bool) -> Result<Building> {
        if !overwrite && target.exists() {
            return Err(Error::Exists(target.to_owned()));
        }
        let parent = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let folder = tempfile::Builder::new()
            .prefix(".osmill-nodes-")
            .tempdir_in(parent)
            .map_err(|e| Error::io("create a folder in", parent, e))?;
        let store = NodeStore::create(&folder.path().join("store"), job.options().memory)?;
        Ok(Building {
            folder,
            target: target.to_owned(),
            store,
        })
    }

    fn finish(mut self, state: State) -> Result<BuildReport> {
        self.store.commit(state)?;
        let report = BuildReport {
            nodes: self.store.len(),
            bytes: self.store.stats()?.file_bytes,
        };
        drop(self.store);
        std::fs::rename(self.folder.path().join("store"), &self.target)
            .map_err(|e| Error::io("finish", &self.target, e))?;
        Ok(report)
    }
}

/// Makes a store of all nodes of a file that have a location. What the file's header says about replication
/// becomes the state of the store.
pub fn build(job: &Job, input: &Path, store: &Path, overwrite: bool) -> Result<BuildReport> {
    let mut building = Building::begin(job, store, overwrite)?;
    let input = job.open(input)?;
    let mut plan = input.plan(job.options().threads)?;
    let parts = Parts::find(job, &input, &mut plan)?;
    let windows = parts.nodes.chunks(WINDOW);
    if parts.boundary.is_some() {
        let rows = windows.flat_map(|blobs| {
            let (rows, error) = match read_window(job, &input, blobs) {
                Ok(rows) => (rows, None),
                Err(error) => (Vec::new(), Some(Err(error))),
            };
            rows.into_iter().map(Ok).chain(error)
        });
        building.store.load(rows)?;
    } else {
        for blobs in windows {
            let rows = read_window(job, &input, blobs)?;
            building
                .store
                .change(rows.into_iter().map(|(id, at)| (id, Some(at))))?;
        }
    }
    let header = &plan.header;
    let report = building.finish(State {
        sequence: header.replication_sequence,
        timestamp: header.replication_timestamp,
        base_url: header.replication_base_url.clone(),
    })?;
    job.objects_out(Counts {
        nodes: report.nodes,
        ..Counts::default()
    });
    Ok(report)
}

/// The nodes of some blobs in the order of the file.
fn read_window(job: &Job, input: &Input, blobs: &[BlobEntry]) -> Result<Vec<(i64, Location)>> {
    let states = job.pass("nodes", input.file(), blobs).scan(
        <(NodeBatch, u64, Vec<(u64, Vec<(i64, Location)>)>)>::default,
        |(nodes, count, found), blob| {
            let number = blob.entry().number;
            nodes.read(blob.block()?)?;
            *count += nodes.ids().len() as u64;
            let rows = nodes.ids().iter().zip(nodes.locations());
            found.push((number, rows.filter_map(|(id, at)| Some((*id, (*at)?))).collect()));
            Ok(())
        },
    )?;
    let mut found = Vec::new();
    for (_, nodes, own) in states {
        job.objects_in(Counts {
            nodes,
            ..Counts::default()
        });
        found.extend(own);
    }
    found.sort_unstable_by_key(|(number, _)| *number);
    Ok(found.into_iter().flat_map(|(_, rows)| rows).collect())
}

/// What a change file did to a store.
#[derive(Debug, Clone, Serialize)]
pub struct ApplyReport {
    /// The change file.
    pub change: PathBuf,
    /// Its sequence number, if that is known.
    pub sequence: Option<i64>,
    /// Nodes that the store did not have.
    pub inserted: u64,
    /// Nodes whose location was set again.
    pub replaced: u64,
    /// Nodes that were removed.
    pub removed: u64,
}

/// Applies change files in this order; each is one atomic and durable step.
///
/// A file's sequence number is `sequence` and up, or that of a file `NAME.state.txt` beside `NAME.osc[.gz]`.
///
/// # Errors
///
/// [`Error::Failed`] where a number does not follow that of the store; the files before it are applied.
pub fn apply(
    job: &Job,
    store: &Path,
    changes: &[PathBuf],
    sequence: Option<i64>,
) -> Result<Vec<ApplyReport>> {
    let mut store = NodeStore::open(store, job.options().memory, false)?;
    let mut reports = Vec::new();
    for (offset, change) in (0..).zip(changes) {
        let mut state = state_beside(change)?;
        if let Some(first) = sequence {
            state.sequence = Some(first + offset);
        }
        check_sequence(&store, change, state.sequence)?;
        let nodes = read_changes(job, change)?;
        let applied = store.change(nodes)?;
        store.commit(State {
            timestamp: state.timestamp.or(store.state().timestamp),
            base_url: store.state().base_url.clone(),
            ..state.clone()
        })?;
        reports.push(ApplyReport {
            change: change.clone(),
            sequence: state.sequence,
            inserted: applied.inserted,
            replaced: applied.replaced,
            removed: applied.removed,
        });
    }
    Ok(reports)
}

fn check_sequence(store: &NodeStore, change: &Path, sequence: Option<i64>) -> Result<()> {
    let Some(last) = store.state().sequence else {
        return Ok(());
    };
    let (name, store) = (change.display(), store.path().display());
    Err(Error::Failed(match sequence {
        Some(next) if next == last.wrapping_add(1) => return Ok(()),
        Some(next) if next <= last => {
            format!("{name}: its sequence number is {next}, and {store} has everything up to {last} already")
        }
        Some(next) => format!(
            "{name}: its sequence number is {next}, but {store} is at {last}; apply those between first"
        ),
        None => format!(
            "{name}: {store} is at sequence number {last}, and that of the change is not known; \
             give it with --sequence, or put the state file beside the change"
        ),
    }))
}

/// What the state file of a change says, if there is one.
fn state_beside(change: &Path) -> Result<State> {
    let name = change.to_string_lossy();
    let stem = name.trim_end_matches(".gz").trim_end_matches(".bz2");
    let Some(stem) = stem.strip_suffix(".osc") else {
        return Ok(State::default());
    };
    let path = PathBuf::from(format!("{stem}.state.txt"));
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(State::default()),
        Err(e) => return Err(Error::io("read", &path, e)),
    };
    let mut state = State::default();
    for line in text.lines() {
        let bad = || Error::Usage(format!("{}: '{line}' cannot be understood", path.display()));
        match line.split_once('=') {
            Some(("sequenceNumber", value)) => {
                state.sequence = Some(value.trim().parse().map_err(|_| bad())?)
            }
            Some(("timestamp", value)) => {
                // Java's properties escape colons.
                let value = value.trim().replace('\\', "");
                state.timestamp = Some(value.parse::<Timestamp>().map_err(|_| bad())?);
            }
            _ => {}
        }
    }
    Ok(state)
}

/// The nodes of a change file: where each is after it, or that it is gone. Of several versions of a node the
/// highest counts, and of equal ones the last.
fn read_changes(job: &Job, path: &Path) -> Result<Vec<(i64, Option<Location>)>> {
    let stream = job.stream(path)?;
    let Some(stream) = stream.filter(|stream| stream.text_format().is_some_and(|format| format.change))
    else {
        return Err(Error::Usage(format!(
            "{}: this is a data file, not a change file (OsmChange)",
            path.display()
        )));
    };
    let stream = Mutex::new(stream);
    let states = job.stream_pass("changes", &stream).scan(
        <(Counts, Vec<(u64, ChangedNode)>)>::default,
        |(counts, nodes), blob| {
            let record = blob.record()?;
            *counts += record.counts.into();
            let BlobEntry { number, origin, .. } = *blob.entry();
            if !record.kinds.contains(Kind::Node) {
                return Ok(());
            }
            let deleted = origin == Origin::Text(Some(Action::Delete));
            for element in blob.block()?.elements() {
                let element = element?;
                let Element::Node(node) = &element else { continue };
                let node = ChangedNode {
                    id: node.id(),
                    version: element.version()?,
                    location: if deleted { None } else { node.location()? },
                };
                nodes.push((number, node));
            }
            Ok(())
        },
    )?;
    let stream = stream.into_inner().unwrap_or_else(PoisonError::into_inner);
    job.end_stream(&stream);
    let mut nodes = Vec::new();
    for (counts, own) in states {
        job.objects_in(counts);
        nodes.extend(own);
    }
    nodes.sort_by_key(|(blob, node)| (node.id, node.version, *blob));
    let last = nodes
        .chunk_by(|(_, a), (_, b)| a.id == b.id)
        .filter_map(|same| same.last());
    Ok(last.map(|(_, node)| (node.id, node.location)).collect())
}

/// A node of a change file.
#[derive(Debug, Clone, Copy)]
struct ChangedNode {
    id: i64,
    version: Option<i32>,
    /// Where it is now, unless it is gone.
    location: Option<Location>,
}

/// Bytes of a location in a flat file.
const FLAT: usize = 8;
/// Stands in a flat file where there is no node.
const ABSENT: Location = Location {
    lon: i32::MAX,
    lat: i32::MAX,
};

/// Makes a store from a flat file.
pub fn import(job: &Job, flat: &Path, store: &Path, overwrite: bool) -> Result<BuildReport> {
    let fail = |e| Error::io("read", flat, e);
    let file = File::open(flat).map_err(|e| Error::io("open", flat, e))?;
    let size = file.metadata().map_err(fail)?.len();
    if size % FLAT as u64 != 0 {
        return Err(Error::Usage(format!(
            "{}: {size} bytes are not a whole number of locations, which take {FLAT} each; \
             this is not a flat node file, or a part of one",
            flat.display()
        )));
    }
    let mut building = Building::begin(job, store, overwrite)?;
    let mut source = BufReader::with_capacity(1 << 20, file);
    let rows = (0..(size / FLAT as u64) as i64).filter_map(|id| {
        let mut bytes = [0; FLAT];
        if let Err(e) = source.read_exact(&mut bytes) {
            return Some(Err(fail(e)));
        }
        let word = u64::from_le_bytes(bytes);
        let at = Location::new(word as u32 as i32, (word >> 32) as u32 as i32);
        (at != ABSENT).then_some(Ok((id, at)))
    });
    building.store.load(rows)?;
    building.finish(State::default())
}

/// What was written to a flat file.
#[derive(Debug, Clone, Serialize)]
pub struct ExportReport {
    /// Nodes in the file.
    pub nodes: u64,
    /// Nodes with negative ids, which have no place in it.
    pub negative: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// Writes a flat file. Its size follows the largest id.
pub fn export(job: &Job, store: &Path, flat: &Path, overwrite: bool) -> Result<ExportReport> {
    if !overwrite && flat.exists() {
        return Err(Error::Exists(flat.to_owned()));
    }
    let store = NodeStore::open(store, job.options().memory, true)?;
    let largest = store.last()?.unwrap_or(0).max(-1);
    let need = (largest as u64 + 1).saturating_mul(FLAT as u64);
    let parent = match flat.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let free = free_space(parent)?;
    if need > free {
        return Err(Error::Failed(format!(
            "{}: for ids up to {largest} a flat file takes {need} bytes, and {free} are free",
            flat.display()
        )));
    }
    let file =
        tempfile::NamedTempFile::new_in(parent).map_err(|e| Error::io("create a file in", parent, e))?;
    let mut report = ExportReport {
        nodes: 0,
        negative: 0,
        bytes: 0,
    };
    let mut out = BufWriter::with_capacity(1 << 20, file.as_file());
    let mut put = |at: Location, bytes: &mut u64| {
        let word = u64::from(at.lon as u32) | u64::from(at.lat as u32) << 32;
        out.write_all(&word.to_le_bytes())
            .map_err(|e| Error::write(flat, *bytes, e))?;
        *bytes += FLAT as u64;
        Ok::<(), Error>(())
    };
    for node in store.iter() {
        let (id, at) = node?;
        if id < 0 {
            report.negative += 1;
            continue;
        }
        while report.bytes < id as u64 * FLAT as u64 {
            put(ABSENT, &mut report.bytes)?;
        }
        put(at, &mut report.bytes)?;
        report.nodes += 1;
    }
    out.flush().map_err(|e| Error::write(flat, report.bytes, e))?;
    drop(out);
    file.persist(flat)
        .map_err(|e| Error::io("finish", flat, e.error))?;
    Ok(report)
}
