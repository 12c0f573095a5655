//! The persistent store: a file that maps node ids to locations.
//!
//! An [`OrderedMap`] whose keys are ids in the order of sorted files ([`id_order`]) and whose values are
//! longitude and latitude as two columns, which pack well among neighbours. A commit is atomic and carries the
//! store's [`State`] in the map's metadata: so a change file and its sequence number are there together, or
//! neither is.
//!
//! The metadata is text: a line `osmill nodes 1` with the version of the format, then a line `name value` for
//! each value that is known.

use std::fmt;
use std::path::{Path, PathBuf};

use osmill_diskarray::{
    Applied, Batch, CompactReport, Durability, Options, OrderedMap, Snapshot, Stats, VerifyReport,
};
use osmill_engine::{Error, Result};
use osmill_model::{Location, Timestamp, id_order};

/// First line of the metadata.
const FORMAT: &str = "osmill nodes 1";
/// Keys of positive ids lie above this.
const POSITIVE: u64 = 1 << 63;
/// Rows that are applied at once where they do not come in order.
const BATCH: usize = 1 << 21;

/// Which data a store holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct State {
    /// The number of the last change file that was applied.
    pub sequence: Option<i64>,
    /// Up to when changes are in the data.
    pub timestamp: Option<Timestamp>,
    /// Where change files are found.
    pub base_url: Option<String>,
}

impl State {
    fn encode(&self) -> Vec<u8> {
        let mut text = format!("{FORMAT}\n");
        let mut line = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                text.push_str(&format!("{name} {}\n", value.replace('\n', " ")));
            }
        };
        line("sequence", self.sequence.map(|n| n.to_string()));
        line("timestamp", self.timestamp.map(|t| t.0.to_string()));
        line("url", self.base_url.clone());
        text.into_bytes()
    }

    fn decode(bytes: &[u8]) -> Option<State> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut lines = text.lines();
        if lines.next() != Some(FORMAT) {
            return None;
        }
        let mut state = State::default();
        for line in lines {
            match line.split_once(' ')? {
                ("sequence", value) => state.sequence = Some(value.parse().ok()?),
                ("timestamp", value) => state.timestamp = Some(Timestamp(value.parse().ok()?)),
                ("url", value) => state.base_url = Some(value.to_owned()),
                // Later versions may know more.
                _ => {}
            }
        }
        Some(state)
    }
}

/// A file of node locations; see the [module's documentation](self).
pub struct NodeStore {
    map: OrderedMap<(i32, i32)>,
    path: PathBuf,
    state: State,
}

impl fmt::Debug for NodeStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeStore")
            .field("path", &self.path)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// The id of a key.
fn id_of(key: u64) -> i64 {
    if key & POSITIVE != 0 && key != POSITIVE {
        (key & !POSITIVE) as i64
    } else {
        (key as i64).wrapping_neg()
    }
}

fn location_of((lon, lat): (i32, i32)) -> Location {
    Location { lon, lat }
}

fn failed(error: osmill_diskarray::Error) -> Error {
    use osmill_diskarray::Error as E;
    match error {
        E::Exists { file } => Error::Exists(file.into()),
        error @ (E::NotOurs { .. } | E::Version { .. } | E::ValueShape { .. }) => {
            Error::Usage(format!("{error}; this is not a node store of osmill"))
        }
        error => Error::Failed(error.to_string()),
    }
}

impl NodeStore {
    /// Makes an empty store that uses `memory` bytes. Nothing of it lasts before the first commit.
    ///
    /// # Errors
    ///
    /// [`Error::Exists`], or what the system says.
    pub fn create(path: &Path, memory: u64) -> Result<NodeStore> {
        Ok(NodeStore {
            map: OrderedMap::create(path, Options::default().memory(memory)).map_err(failed)?,
            path: path.to_owned(),
            state: State::default(),
        })
    }

    /// Opens a store.
    ///
    /// # Errors
    ///
    /// [`Error::Usage`] if the file is something else.
    pub fn open(path: &Path, memory: u64, read_only: bool) -> Result<NodeStore> {
        let mut options = Options::default().memory(memory);
        options.read_only = read_only;
        let map = OrderedMap::open(path, options).map_err(failed)?;
        let Some(state) = State::decode(map.metadata()) else {
            return Err(Error::Usage(format!(
                "{}: this is not a node store of osmill, or it was not finished; build it again",
                path.display()
            )));
        };
        Ok(NodeStore {
            map,
            path: path.to_owned(),
            state,
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Which data the store holds.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Number of nodes. O(1).
    pub fn len(&self) -> u64 {
        self.map.len()
    }

    /// Whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Fills an empty store from nodes that ascend in the order of ids; of equal ids the last one counts.
    /// Part of the next commit. O(n).
    ///
    /// # Errors
    ///
    /// The input's, or [`Error::Failed`] if the ids do not ascend; the store is empty then.
    pub fn load(&mut self, nodes: impl IntoIterator<Item = Result<(i64, Location)>>) -> Result<u64> {
        let mut nodes = nodes.into_iter().peekable();
        let rows = std::iter::from_fn(|| {
            loop {
                let node = nodes.next()?;
                let Ok((id, at)) = node else {
                    return Some(node);
                };
                match nodes.peek() {
                    Some(Ok((next, _))) if *next == id => {}
                    _ => return Some(Ok((id, at))),
                }
            }
        });
        let rows = rows.map(|row| match row {
            Ok((id, at)) => Ok((id_order(id), (at.lon, at.lat))),
            Err(error) => Err(Loading::Input(error)),
        });
        self.map.try_bulk_load(rows).map_err(|error| match error {
            Loading::Input(error) => error,
            Loading::Store(error) => failed(error),
        })
    }

    /// Sets and removes nodes, in this order, in any order of ids. Part of the next commit.
    pub fn change(&mut self, nodes: impl IntoIterator<Item = (i64, Option<Location>)>) -> Result<Applied> {
        let mut total = Applied::default();
        let mut batch = Batch::new();
        let mut nodes = nodes.into_iter();
        loop {
            for (id, at) in nodes.by_ref().take(BATCH) {
                match at {
                    Some(at) => batch.put(id_order(id), (at.lon, at.lat)),
                    None => batch.remove(id_order(id)),
                }
            }
            if batch.is_empty() {
                return Ok(total);
            }
            let applied = self.map.apply(&mut batch).map_err(failed)?;
            total.inserted += applied.inserted;
            total.replaced += applied.replaced;
            total.removed += applied.removed;
            total.absent += applied.absent;
            batch.clear();
        }
    }

    /// Makes all changes and the state last, in one step. When it returns they are safe from a power failure.
    pub fn commit(&mut self, state: State) -> Result<()> {
        self.map
            .commit(Durability::Batch, &state.encode())
            .map_err(failed)?;
        self.state = state;
        Ok(())
    }

    /// The last id in their order: the largest one, if any is positive.
    pub fn last(&self) -> Result<Option<i64>> {
        Ok(self.map.last().map_err(failed)?.map(|(key, _)| id_of(key)))
    }

    /// Where a node is.
    pub fn get(&self, id: i64) -> Result<Option<Location>> {
        Ok(self.map.get(id_order(id)).map_err(failed)?.map(location_of))
    }

    /// Appends where each of these nodes is. Batches share reads: a million at once is many times faster than
    /// one by one.
    pub fn locate(&self, ids: &[i64], locations: &mut Vec<Option<Location>>) -> Result<()> {
        let keys: Vec<u64> = ids.iter().map(|id| id_order(*id)).collect();
        let found = self.map.get_many(&keys).map_err(failed)?;
        locations.extend(found.into_iter().map(|value| value.map(location_of)));
        Ok(())
    }

    /// What the last commit left, for other threads. It stays usable when the store is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Failed`] while changes wait for a commit.
    pub fn snapshot(&mut self) -> Result<NodeSnapshot> {
        Ok(NodeSnapshot(self.map.reader().map_err(failed)?.snapshot()))
    }

    /// All nodes in the order of ids.
    pub fn iter(&self) -> impl Iterator<Item = Result<(i64, Location)>> + '_ {
        self.map.iter().map(|row| {
            let (key, value) = row.map_err(failed)?;
            Ok((id_of(key), location_of(value)))
        })
    }

    /// Figures for people and programs.
    pub fn stats(&self) -> Result<Stats> {
        self.map.stats().map_err(failed)
    }

    /// Reads the whole file and checks it: checksums, parents, order, counts.
    pub fn check(&self) -> Result<VerifyReport> {
        self.map.verify(None).map_err(failed)
    }

    /// Moves data into holes and cuts the file.
    pub fn compact(&mut self) -> Result<CompactReport> {
        self.map.compact(u64::MAX).map_err(failed)
    }
}

/// The nodes of a store as of its last commit, for look-ups from many threads at once.
pub struct NodeSnapshot(Snapshot<(i32, i32)>);

impl fmt::Debug for NodeSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeSnapshot")
    }
}

impl NodeSnapshot {
    /// Appends where each of these nodes is; see [`NodeStore::locate`].
    pub fn locate(&self, ids: &[i64], locations: &mut Vec<Option<Location>>) -> Result<()> {
        let keys: Vec<u64> = ids.iter().map(|id| id_order(*id)).collect();
        let found = self.0.get_many(&keys).map_err(failed)?;
        locations.extend(found.into_iter().map(|value| value.map(location_of)));
        Ok(())
    }
}

enum Loading {
    Input(Error),
    Store(osmill_diskarray::Error),
}

impl From<osmill_diskarray::Error> for Loading {
    fn from(error: osmill_diskarray::Error) -> Self {
        Loading::Store(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const MEMORY: u64 = 8 << 20;

    #[test]
    fn states_read_back() {
        let state = State {
            sequence: Some(-3),
            timestamp: Some(Timestamp(77)),
            base_url: Some("a b\nc".into()),
        };
        let read = State::decode(&state.encode()).unwrap();
        assert_eq!((read.sequence, read.timestamp), (state.sequence, state.timestamp));
        assert_eq!(read.base_url.as_deref(), Some("a b c"));
        assert_eq!(State::decode(b""), None);
        assert_eq!(State::decode(b"osmill nodes 2\n"), None);
    }

    #[test]
    fn keys_are_ids() {
        for id in [0, 1, -1, i64::MAX, i64::MIN, i64::MIN + 1, 1 << 40] {
            assert_eq!(id_of(id_order(id)), id);
        }
    }

    #[test]
    fn other_files_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        std::fs::write(&path, b"abc").unwrap();
        let error = NodeStore::open(&path, MEMORY, true).unwrap_err();
        assert!(error.to_string().contains("not"), "{error}");
        assert_eq!(error.exit_code(), 2);
        assert!(matches!(NodeStore::create(&path, MEMORY), Err(Error::Exists(_))));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Loading, changing, committing, reopening against a map.
        #[test]
        fn a_store_is_a_map(
            mut nodes in proptest::collection::vec((prop_oneof![-50i64..500, any::<i64>()], any::<(i32, i32)>()), 0..300),
            changes in proptest::collection::vec(
                proptest::collection::vec((prop_oneof![-50i64..500, any::<i64>()], any::<Option<(i32, i32)>>()), 0..100),
                0..4,
            ),
        ) {
            let at = |(lon, lat)| Location::new(lon, lat);
            nodes.sort_by_key(|(id, _)| id_order(*id));
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("store");
            let mut store = NodeStore::create(&path, MEMORY).unwrap();
            store.load(nodes.iter().map(|(id, l)| Ok((*id, at(*l))))).unwrap();
            let mut model: BTreeMap<u64, (i64, Location)> =
                nodes.iter().map(|(id, l)| (id_order(*id), (*id, at(*l)))).collect();
            store.commit(State::default()).unwrap();
            for (number, change) in (1..).zip(&changes) {
                drop(store);
                store = NodeStore::open(&path, MEMORY, false).unwrap();
                store.change(change.iter().map(|(id, l)| (*id, l.map(at)))).unwrap();
                store.commit(State { sequence: Some(number), ..State::default() }).unwrap();
                for (id, l) in change {
                    match l {
                        Some(l) => { model.insert(id_order(*id), (*id, at(*l))); }
                        None => { model.remove(&id_order(*id)); }
                    }
                }
            }
            drop(store);
            let store = NodeStore::open(&path, MEMORY, true).unwrap();
            prop_assert_eq!(store.state().sequence, (!changes.is_empty()).then_some(changes.len() as i64));
            prop_assert_eq!(store.len(), model.len() as u64);
            let all = store.iter().collect::<Result<Vec<_>>>().unwrap();
            prop_assert_eq!(all, model.values().copied().collect::<Vec<_>>());
            let asked: Vec<i64> = changes.iter().flatten().map(|(id, _)| *id).chain([5, -5]).collect();
            let mut found = Vec::new();
            store.locate(&asked, &mut found).unwrap();
            for (id, found) in asked.iter().zip(found) {
                let expected = model.get(&id_order(*id)).map(|(_, at)| *at);
                prop_assert_eq!(found, expected);
                prop_assert_eq!(store.get(*id).unwrap(), expected);
            }
            prop_assert!(store.check().unwrap().is_sound());
        }
    }
}
