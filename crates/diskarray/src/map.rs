//! The typed faces: [`OrderedMap`], its snapshots, and iterators.

use crate::apply::{Applied, Op, REMOVE};
use crate::backend::{Backend, FileBackend};
use crate::batch::{Batch, sort};
use crate::codec::Encoding;
use crate::core::{Core, Hold, LEAST_MEMORY, Published};
use crate::error::{Error, Result};
use crate::options::{Durability, Options};
use crate::store::{Loan, Store};
use crate::tree::Tree;
use crate::value::{MAX_VALUE, Shape, Value};
use crate::view::{Scan, View};
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// A sorted map of `u64` keys to values of fixed size, on disk, with order statistics. One writer; any number of [`Snapshot`]s.
///
/// Changes are in memory or in blocks that nothing refers to until [`commit`](Self::commit); dropping the map without a commit drops them.
/// Single operations cost O(log n) of memory work and at most one block read each; batches share reads and writes.
pub struct OrderedMap<V: Value> {
    pub(crate) core: Core,
    /// Blind writes that wait to be applied together.
    pending: Batch<V>,
}

/// A committed state that stays as it is, for reading on any thread while the writer goes on.
pub struct Snapshot<V: Value> {
    store: Arc<Store>,
    tree: Tree,
    epoch: u64,
    metadata: Arc<[u8]>,
    _hold: Hold,
    value: PhantomData<V>,
}

/// Hands out the newest committed state; stays usable when the writer fails or is gone. Cheap to clone.
///
/// While a reader exists, every commit keeps the nodes of the directory that changed since the last one twice.
#[derive(Clone)]
pub struct Reader<V: Value> {
    store: Arc<Store>,
    published: Arc<Mutex<Published>>,
    holds: crate::core::Holds,
    value: PhantomData<V>,
}

impl<V: Value> Reader<V> {
    /// The newest committed state.
    pub fn snapshot(&self) -> Snapshot<V> {
        let published = self.published.lock().unwrap_or_else(|poison| poison.into_inner());
        Snapshot {
            store: self.store.clone(),
            tree: published.tree.clone(),
            epoch: published.epoch,
            metadata: published.metadata.clone(),
            _hold: self.holds.hold(published.epoch),
            value: PhantomData,
        }
    }
}

fn bounds(range: impl RangeBounds<u64>) -> Option<(u64, u64)> {
    let low = match range.start_bound() {
        Bound::Included(&k) => k,
        Bound::Excluded(&k) => k.checked_add(1)?,
        Bound::Unbounded => 0,
    };
    let high = match range.end_bound() {
        Bound::Included(&k) => k,
        Bound::Excluded(&k) => k.checked_sub(1)?,
        Bound::Unbounded => u64::MAX,
    };
    (low <= high).then_some((low, high))
}

/// Rows of a key range in order, from both ends. Yields errors of the disk in place of rows, and then ends.
pub struct Range<'a, V> {
    scan: Scan<'a>,
    failed: bool,
    value: PhantomData<V>,
}

impl<V: Value> Range<'_, V> {
    fn give(
        &mut self,
        row: impl FnOnce(&mut Scan<'_>) -> Result<Option<(u64, V)>>,
    ) -> Option<Result<(u64, V)>> {
        if self.failed {
            return None;
        }
        let r = row(&mut self.scan).transpose();
        self.failed = matches!(r, Some(Err(_)));
        r
    }
}

impl<V: Value> Iterator for Range<'_, V> {
    type Item = Result<(u64, V)>;
    fn next(&mut self) -> Option<Self::Item> {
        self.give(|scan| Ok(scan.next_row()?.map(|(k, v)| (k, V::load(v)))))
    }
}

impl<V: Value> DoubleEndedIterator for Range<'_, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.give(|scan| Ok(scan.next_row_back()?.map(|(k, v)| (k, V::load(v)))))
    }
}

/// Requests in sorted order, with where their answers belong.
struct Ordered<'k> {
    keys: &'k [u64],
    /// Empty when the keys are in order as they are.
    order: Vec<Op>,
    _loan: Loan<&'k Store>,
}

impl<'k> Ordered<'k> {
    fn new(store: &'k Store, keys: &'k [u64]) -> Self {
        if keys.is_sorted() {
            return Self {
                keys,
                order: vec![],
                _loan: Loan::new(store, 0),
            };
        }
        let _loan = Loan::new(store, size_of_val(keys) / 8 * size_of::<Op>());
        let mut order: Vec<Op> = keys.iter().zip(0..).map(|(&key, seq)| Op { key, seq }).collect();
        sort(&mut order);
        Self { keys, order, _loan }
    }

    fn key(&self, i: usize) -> u64 {
        self.order.get(i).map_or_else(|| self.keys[i], |op| op.key)
    }

    fn place(&self, i: usize) -> usize {
        self.order.get(i).map_or(i, |op| op.seq as usize)
    }
}

/// Many requests, cut where sorting them all at once would take more of the budget than is there, with the place of each part.
fn parts<'k>(store: &'k Store, keys: &'k [u64]) -> impl Iterator<Item = (usize, Ordered<'k>)> {
    let most = (store.most_lent() / size_of::<Op>()).clamp(1, 1 << 30);
    keys.chunks(most)
        .enumerate()
        .map(move |(i, part)| (i * most, Ordered::new(store, part)))
}

macro_rules! reading {
    ($name:ident) => {
        impl<V: Value> $name<V> {
            /// Number of keys. O(1).
            pub fn len(&self) -> u64 {
                self.view().tree.count()
            }

            /// Whether there are no keys.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// Value of a key: the point search. At most one block read.
            ///
            /// # Errors
            /// Of the disk, or [`Error::Corrupt`].
            pub fn get(&self, key: u64) -> Result<Option<V>> {
                let mut value = [0; MAX_VALUE];
                let view = self.view();
                let out = &mut value[..view.store.shape.width];
                Ok(view.get(key, out)?.then(|| V::load(out)))
            }

            /// Whether a key is there.
            ///
            /// # Errors
            /// As [`get`](Self::get).
            pub fn contains(&self, key: u64) -> Result<bool> {
                Ok(self.get(key)?.is_some())
            }

            /// Number of keys below `key`, which need not be there itself.
            ///
            /// # Errors
            /// As [`get`](Self::get).
            pub fn rank(&self, key: u64) -> Result<u64> {
                self.view().rank(key)
            }

            /// The key and value with `rank` keys before it; `None` if there are no more than `rank` keys.
            ///
            /// # Errors
            /// As [`get`](Self::get).
            pub fn at(&self, rank: u64) -> Result<Option<(u64, V)>> {
                let mut value = [0; MAX_VALUE];
                let view = self.view();
                let out = &mut value[..view.store.shape.width];
                Ok(view.at(rank, out)?.map(|key| (key, V::load(out))))
            }

            /// Number of keys in a range: two ranks.
            ///
            /// # Errors
            /// As [`get`](Self::get).
            pub fn count(&self, range: impl RangeBounds<u64>) -> Result<u64> {
                let Some((low, high)) = bounds(range) else {
                    return Ok(0);
                };
                let end = match high.checked_add(1) {
                    Some(end) => self.rank(end)?,
                    None => self.len(),
                };
                Ok(end - self.rank(low)?)
            }

            /// Rows of a range in key order; a double-ended iterator that reads ahead once it has run for a while.
            pub fn range(&self, range: impl RangeBounds<u64>) -> Range<'_, V> {
                let (low, high) = bounds(range).unwrap_or((1, 0));
                Range {
                    scan: self.view().scan(low, high),
                    failed: false,
                    value: PhantomData,
                }
            }

            /// All rows in key order.
            pub fn iter(&self) -> Range<'_, V> {
                self.range(..)
            }

            /// Least key and its value.
            ///
            /// # Errors
            /// As [`get`](Self::get).
            pub fn first(&self) -> Result<Option<(u64, V)>> {
                self.at(0)
            }

            /// Greatest key and its value.
            ///
            /// # Errors
            /// As [`get`](Self::get).
            pub fn last(&self) -> Result<Option<(u64, V)>> {
                self.len()
                    .checked_sub(1)
                    .map_or(Ok(None), |rank| self.at(rank))
            }

            /// Values of many keys in any order: sorted inside, each extent read once, many reads in flight.
            ///
            /// # Errors
            /// As [`get`](Self::get).
            pub fn get_many(&self, keys: &[u64]) -> Result<Vec<Option<V>>> {
                let view = self.view();
                let mut values = vec![None; keys.len()];
                for (from, part) in parts(view.store, keys) {
                    view.get_sorted(part.keys.len(), &|i| part.key(i), &mut |i, value| {
                        values[from + part.place(i)] = value.map(V::load);
                    })?;
                }
                Ok(values)
            }

            /// Ranks of many keys in any order, as [`get_many`](Self::get_many).
            ///
            /// # Errors
            /// As [`get`](Self::get).
            pub fn rank_many(&self, keys: &[u64]) -> Result<Vec<u64>> {
                let view = self.view();
                let mut ranks = vec![0; keys.len()];
                for (from, part) in parts(view.store, keys) {
                    let mut found = |i: usize, rank| ranks[from + part.place(i)] = rank;
                    view.rank_sorted(part.keys.len(), &|i| part.key(i), &mut found)?;
                }
                Ok(ranks)
            }

            /// Rows of many ranks in any order; `None` for ranks that are not below [`len`](Self::len).
            ///
            /// # Errors
            /// As [`get`](Self::get).
            pub fn at_many(&self, ranks: &[u64]) -> Result<Vec<Option<(u64, V)>>> {
                let view = self.view();
                let mut rows = vec![None; ranks.len()];
                for (from, part) in parts(view.store, ranks) {
                    let below = (0..part.keys.len())
                        .rev()
                        .find(|&i| part.key(i) < self.len());
                    let n = below.map_or(0, |i| i + 1);
                    view.at_sorted(n, &|i| part.key(i), &mut |i, key, value| {
                        rows[from + part.place(i)] = Some((key, V::load(value)));
                    })?;
                }
                Ok(rows)
            }

            /// `n` rows drawn uniformly with replacement, reproducibly from a seed. Empty if there are no keys.
            ///
            /// # Errors
            /// As [`get`](Self::get).
            pub fn sample(&self, n: usize, mut seed: u64) -> Result<Vec<(u64, V)>> {
                let len = self.len();
                let mut draw = || {
                    seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
                    let z = (seed ^ (seed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
                    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
                    (u128::from(z ^ (z >> 31)) * u128::from(len) >> 64) as u64
                };
                let ranks: Vec<u64> = (0..if len == 0 { 0 } else { n }).map(|_| draw()).collect();
                Ok(self.at_many(&ranks)?.into_iter().flatten().collect())
            }

            /// Number of the last commit that this state holds.
            pub fn epoch(&self) -> u64 {
                self.state().0
            }

            /// Metadata given with that commit.
            pub fn metadata(&self) -> &[u8] {
                self.state().1
            }

            /// Checks every block that this state refers to: checksums, parents, order, counts. Reads the whole file once, at `pace` bytes a second
            /// if given. Damage is reported, not returned as an error.
            ///
            /// # Errors
            /// When the disk refuses to read at all.
            pub fn verify(&self, pace: Option<f64>) -> Result<crate::VerifyReport> {
                crate::verify::verify(&self.view(), pace)
            }
        }
    };
}
reading!(OrderedMap);
reading!(Snapshot);

impl<V: Value> Snapshot<V> {
    pub(crate) fn view(&self) -> View<'_> {
        View {
            store: &self.store,
            tree: &self.tree,
            dirty: None,
        }
    }

    fn state(&self) -> (u64, &[u8]) {
        (self.epoch, &self.metadata)
    }
}

impl<V: Value> OrderedMap<V> {
    pub(crate) fn view(&self) -> View<'_> {
        self.core.view()
    }

    fn state(&self) -> (u64, &[u8]) {
        (self.core.epoch, &self.core.metadata)
    }

    /// Makes a new, empty file.
    ///
    /// # Errors
    /// [`Error::Exists`], or those of the disk.
    pub fn create(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        let path = path.as_ref();
        let backend = open_file(path, &options, true)?;
        Self::create_on(backend, &path.display().to_string(), options)
    }

    /// Opens a file and brings it to its last committed state.
    ///
    /// # Errors
    /// [`Error::NotOurs`], [`Error::Version`], [`Error::ValueShape`], [`Error::Corrupt`], [`Error::Locked`], or those of the disk.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        let path = path.as_ref();
        let backend = open_file(path, &options, false)?;
        Self::open_on(backend, &path.display().to_string(), options)
    }

    /// Opens a file, or makes it if there is none.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_or_create(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        if path.as_ref().exists() {
            Self::open(path, options)
        } else {
            Self::create(path, options)
        }
    }

    /// As [`create`](Self::create), on any back end; `name` stands in messages.
    ///
    /// # Errors
    /// Those of the back end, or [`Error::Budget`].
    pub fn create_on(backend: Arc<dyn Backend>, name: &str, options: Options) -> Result<Self> {
        Ok(Self {
            core: Core::create(backend, name, Shape::of::<V>(), options)?,
            pending: Batch::new(),
        })
    }

    /// As [`open`](Self::open), on any back end.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_on(backend: Arc<dyn Backend>, name: &str, options: Options) -> Result<Self> {
        Ok(Self {
            core: Core::open(backend, name, Some(Shape::of::<V>()), options)?,
            pending: Batch::new(),
        })
    }

    /// Inserts the key or replaces its value; returns the value before. In memory until the next commit or until the
    /// write buffer is full.
    ///
    /// # Errors
    /// Of the disk; [`Error::Poisoned`], [`Error::ReadOnly`], [`Error::Corrupt`].
    pub fn insert(&mut self, key: u64, value: V) -> Result<Option<V>> {
        self.drain()?;
        let (mut new, mut old) = ([0; MAX_VALUE], [0; MAX_VALUE]);
        let w = self.core.shape().width;
        value.store(&mut new[..w]);
        Ok(self
            .core
            .insert(key, &new[..w], &mut old[..w])?
            .then(|| V::load(&old[..w])))
    }

    /// Removes the key; returns its value.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn remove(&mut self, key: u64) -> Result<Option<V>> {
        self.drain()?;
        let mut old = [0; MAX_VALUE];
        let w = self.core.shape().width;
        Ok(self.core.remove(key, &mut old[..w])?.then(|| V::load(&old[..w])))
    }

    /// Inserts or replaces without asking what was there: buffered and applied as a batch. Call [`drain`](Self::drain) before reading your own
    /// blind writes; commits and other changes do so themselves.
    ///
    /// # Errors
    /// As [`insert`](Self::insert), for this or an earlier blind write.
    pub fn put(&mut self, key: u64, value: V) -> Result<()> {
        self.core.check_writable()?;
        self.pending.put(key, value);
        if self.pending.len() >= self.pending_limit() {
            self.drain()
        } else {
            Ok(())
        }
    }

    fn pending_limit(&self) -> usize {
        (self.core.budget.shared / 16 / (16 + self.core.shape().width)).max(256)
    }

    /// Applies the blind writes that wait.
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn drain(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let mut pending = std::mem::take(&mut self.pending);
        let r = self.apply_now(&mut pending, None);
        pending.clear();
        self.pending = pending;
        r.map(drop)
    }

    /// Applies a batch. Part of the next commit.
    ///
    /// # Errors
    /// As [`insert`](Self::insert). After an error the writer is poisoned.
    pub fn apply(&mut self, batch: &mut Batch<V>) -> Result<Applied> {
        self.drain()?;
        self.apply_now(batch, None)
    }

    /// Applies a batch and tells for each operation, by its place in the batch but in order of keys, the value before it.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub fn apply_with(
        &mut self,
        batch: &mut Batch<V>,
        mut old: impl FnMut(usize, Option<V>),
    ) -> Result<Applied> {
        self.drain()?;
        self.apply_now(
            batch,
            Some(&mut |place, value| old(place as usize, value.map(V::load))),
        )
    }

    fn apply_now<'b>(
        &mut self,
        batch: &'b mut Batch<V>,
        on_old: Option<crate::apply::OnOld<'b>>,
    ) -> Result<Applied> {
        self.core.check_writable()?;
        if batch.is_empty() {
            return Ok(Applied::default());
        }
        batch.sort();
        self.core.uncommitted = true;
        let w = self.core.shape().width;
        for op in &batch.ops {
            let at = (op.seq & !REMOVE) as usize * w;
            if !self
                .core
                .log_operation(op.key, (op.seq & REMOVE == 0).then(|| &batch.vals[at..at + w]))
            {
                break;
            }
        }
        self.core
            .guarded(|core| core.apply_sorted(&batch.ops, &batch.vals, on_old))
    }

    /// Fills an empty map from rows in ascending order, at the speed of the disk; extents are filled to 90 %. Part of the next commit.
    /// Returns the number of keys.
    ///
    /// # Errors
    /// [`Error::NotEmpty`], [`Error::NotAscending`] (the map stays as it was), or as [`insert`](Self::insert).
    pub fn bulk_load(&mut self, rows: impl IntoIterator<Item = (u64, V)>) -> Result<u64> {
        self.drain()?;
        let mut rows = rows.into_iter();
        self.core.bulk_load(&mut |out| {
            let (key, value) = rows.next()?;
            value.store(out);
            Some(key)
        })
    }

    /// As [`bulk_load`](Self::bulk_load) from rows that may fail, as decoding a file does; the first failure ends the load and is returned.
    ///
    /// # Errors
    /// The input's, or as [`bulk_load`](Self::bulk_load), converted.
    pub fn try_bulk_load<E: From<Error>>(
        &mut self,
        rows: impl IntoIterator<Item = Result<(u64, V), E>>,
    ) -> Result<u64, E> {
        let mut failure = None;
        let good = rows.into_iter().map_while(|row| match row {
            Ok(row) => Some(row),
            Err(e) => {
                failure = Some(e);
                None
            }
        });
        let loaded = self.bulk_load(good)?;
        match failure {
            // What was loaded must not be committed as if it were all.
            Some(e) => {
                self.core.poison();
                Err(e)
            }
            None => Ok(loaded),
        }
    }

    /// Commits all changes since the last commit, with up to 1024 bytes that come back as [`metadata`](Self::metadata). Returns the new epoch.
    ///
    /// # Errors
    /// [`Error::MetadataTooLong`], or as [`insert`](Self::insert); then whether the commit took place shows on reopening.
    pub fn commit(&mut self, durability: Durability, metadata: &[u8]) -> Result<u64> {
        self.drain()?;
        self.core.commit(durability, metadata)
    }

    /// A source of snapshots for other threads.
    ///
    /// # Errors
    /// [`Error::Uncommitted`] while changes wait for a commit.
    pub fn reader(&mut self) -> Result<Reader<V>> {
        self.drain()?;
        let published = self.core.published()?;
        let (store, holds) = (self.core.store.clone(), self.core.holds.clone());
        Ok(Reader {
            store,
            published,
            holds,
            value: PhantomData,
        })
    }

    /// How extents are written.
    pub fn encoding(&self) -> Encoding {
        self.core.encoding()
    }

    /// Which back end runs, and why.
    pub fn backend(&self) -> String {
        self.core.store.backend.describe()
    }

    /// Figures for people and programs.
    ///
    /// # Errors
    /// Of the disk: nodes of the directory that are not in memory are read.
    pub fn stats(&self) -> Result<crate::Stats> {
        crate::stats::stats(&self.core)
    }

    /// Moves extents from the end of the file into holes and cuts the file, moving at most `budget` bytes. Commits before and after, with the present metadata.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn compact(&mut self, budget: u64) -> Result<crate::CompactReport> {
        self.drain()?;
        crate::compact::compact(&mut self.core, budget)
    }

    /// Answers a stream of single operations in their order, with reads of the extents of later ones under way. `window` operations are looked
    /// ahead (512 or more keep a device busy).
    pub fn pipeline(&mut self, window: usize) -> crate::Pipeline<'_, V> {
        crate::Pipeline::new(self, window)
    }
}

pub(crate) fn open_file(path: &Path, options: &Options, create: bool) -> Result<Arc<dyn Backend>> {
    let file = path.display().to_string();
    // Before a file is made that could not be used.
    if options.memory < LEAST_MEMORY {
        return Err(Error::Budget {
            given: options.memory,
            least: LEAST_MEMORY,
        });
    }
    let backend = FileBackend::open(path, options.access, create, create || !options.read_only);
    match backend {
        Ok(backend) => Ok(Arc::new(backend)),
        Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => Err(Error::Locked { file }),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Err(Error::Exists { file }),
        Err(source) => Err(Error::Io {
            file,
            what: "open",
            offset: 0,
            source,
        }),
    }
}
