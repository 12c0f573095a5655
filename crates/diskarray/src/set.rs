//! The set: a map without values.

use crate::Reader;
use crate::apply::Applied;
use crate::backend::Backend;
use crate::batch::Batch;
use crate::error::Result;
use crate::map::{OrderedMap, Range};
use crate::options::{Durability, Options};
use std::ops::RangeBounds;
use std::path::Path;
use std::sync::Arc;

/// A sorted set of `u64` keys on disk, with order statistics. See [`OrderedMap`], which it wraps, for costs and errors.
pub struct OrderedSet(OrderedMap<()>);

/// Keys of a range in order, from both ends.
pub struct Keys<'a>(Range<'a, ()>);

impl Iterator for Keys<'_> {
    type Item = Result<u64>;
    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.next()?.map(|row| row.0))
    }
}

impl DoubleEndedIterator for Keys<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        Some(self.0.next_back()?.map(|row| row.0))
    }
}

impl OrderedSet {
    /// Makes a new, empty file.
    ///
    /// # Errors
    /// As [`OrderedMap::create`].
    pub fn create(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        OrderedMap::create(path, options).map(Self)
    }

    /// Opens a file.
    ///
    /// # Errors
    /// As [`OrderedMap::open`].
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        OrderedMap::open(path, options).map(Self)
    }

    /// Opens a file, or makes it if there is none.
    ///
    /// # Errors
    /// As [`OrderedMap::open`].
    pub fn open_or_create(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        OrderedMap::open_or_create(path, options).map(Self)
    }

    /// Makes an empty set on any back end.
    ///
    /// # Errors
    /// As [`OrderedMap::create_on`].
    pub fn create_on(backend: Arc<dyn Backend>, name: &str, options: Options) -> Result<Self> {
        OrderedMap::create_on(backend, name, options).map(Self)
    }

    /// Opens a set on any back end.
    ///
    /// # Errors
    /// As [`OrderedMap::open`].
    pub fn open_on(backend: Arc<dyn Backend>, name: &str, options: Options) -> Result<Self> {
        OrderedMap::open_on(backend, name, options).map(Self)
    }

    /// The map beneath: batches (`put(key, ())`), pipelines, verification, compaction, statistics, readers.
    pub fn map(&self) -> &OrderedMap<()> {
        &self.0
    }

    /// The map beneath, to be changed.
    pub fn map_mut(&mut self) -> &mut OrderedMap<()> {
        &mut self.0
    }

    /// Adds a key; whether it was new.
    ///
    /// # Errors
    /// As [`OrderedMap::insert`].
    pub fn insert(&mut self, key: u64) -> Result<bool> {
        Ok(self.0.insert(key, ())?.is_none())
    }

    /// Takes a key out; whether it was there.
    ///
    /// # Errors
    /// As [`OrderedMap::remove`].
    pub fn remove(&mut self, key: u64) -> Result<bool> {
        Ok(self.0.remove(key)?.is_some())
    }

    /// Adds many keys in any order.
    ///
    /// # Errors
    /// As [`OrderedMap::apply`].
    pub fn insert_many(&mut self, keys: impl IntoIterator<Item = u64>) -> Result<Applied> {
        let mut batch = Batch::new();
        keys.into_iter().for_each(|k| batch.put(k, ()));
        self.0.apply(&mut batch)
    }

    /// Takes out many keys in any order.
    ///
    /// # Errors
    /// As [`OrderedMap::apply`].
    pub fn remove_many(&mut self, keys: impl IntoIterator<Item = u64>) -> Result<Applied> {
        let mut batch = Batch::new();
        keys.into_iter().for_each(|k| batch.remove(k));
        self.0.apply(&mut batch)
    }

    /// Fills an empty set from ascending keys.
    ///
    /// # Errors
    /// As [`OrderedMap::bulk_load`].
    pub fn bulk_load(&mut self, keys: impl IntoIterator<Item = u64>) -> Result<u64> {
        self.0.bulk_load(keys.into_iter().map(|k| (k, ())))
    }

    /// Number of keys.
    pub fn len(&self) -> u64 {
        self.0.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a key is there: the point search.
    ///
    /// # Errors
    /// As [`OrderedMap::get`].
    pub fn contains(&self, key: u64) -> Result<bool> {
        self.0.contains(key)
    }

    /// Which of many keys are there.
    ///
    /// # Errors
    /// As [`OrderedMap::get_many`].
    pub fn contains_many(&self, keys: &[u64]) -> Result<Vec<bool>> {
        Ok(self.0.get_many(keys)?.iter().map(Option::is_some).collect())
    }

    /// Number of keys below `key`.
    ///
    /// # Errors
    /// As [`OrderedMap::rank`].
    pub fn rank(&self, key: u64) -> Result<u64> {
        self.0.rank(key)
    }

    /// The key with `rank` keys before it.
    ///
    /// # Errors
    /// As [`OrderedMap::at`].
    pub fn at(&self, rank: u64) -> Result<Option<u64>> {
        Ok(self.0.at(rank)?.map(|row| row.0))
    }

    /// Number of keys in a range.
    ///
    /// # Errors
    /// As [`OrderedMap::count`].
    pub fn count(&self, range: impl RangeBounds<u64>) -> Result<u64> {
        self.0.count(range)
    }

    /// Keys of a range in order.
    pub fn range(&self, range: impl RangeBounds<u64>) -> Keys<'_> {
        Keys(self.0.range(range))
    }

    /// Commits all changes; see [`OrderedMap::commit`].
    ///
    /// # Errors
    /// As [`OrderedMap::commit`].
    pub fn commit(&mut self, durability: Durability, metadata: &[u8]) -> Result<u64> {
        self.0.commit(durability, metadata)
    }

    /// A source of snapshots for other threads.
    ///
    /// # Errors
    /// As [`OrderedMap::reader`].
    pub fn reader(&mut self) -> Result<Reader<()>> {
        self.0.reader()
    }
}
