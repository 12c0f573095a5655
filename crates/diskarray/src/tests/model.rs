//! Every operation against a `BTreeMap`.

use super::{Make, Random};
use crate::backend::{Backend, MemoryBackend};
use crate::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

type Model<V> = BTreeMap<u64, V>;

struct Run<V: Value> {
    backend: Arc<MemoryBackend>,
    map: Option<OrderedMap<V>>,
    model: Model<V>,
    committed: Model<V>,
    /// At the last commit of any level.
    visible: Model<V>,
    metadata: Vec<u8>,
    snapshots: Vec<(Snapshot<V>, Model<V>)>,
    readers: Vec<Reader<V>>,
    options: Options,
    random: Random,
    spread: u64,
}

impl<V: Make> Run<V> {
    fn new(seed: u64, encoding: Encoding, spread: u64) -> Self {
        let backend = Arc::new(MemoryBackend::new());
        let options = Options {
            eventual: std::time::Duration::ZERO,
            ..Options::default()
        };
        let options = options.memory(4 << 20).encoding(encoding);
        let map = OrderedMap::create_on(backend.clone(), "model", options.clone()).unwrap();
        Self {
            backend,
            map: Some(map),
            model: Model::new(),
            committed: Model::new(),
            visible: Model::new(),
            metadata: vec![],
            snapshots: vec![],
            readers: vec![],
            options,
            random: Random(seed),
            spread,
        }
    }

    fn map(&mut self) -> &mut OrderedMap<V> {
        self.map.as_mut().unwrap()
    }

    fn key(&mut self) -> u64 {
        self.random.key(self.spread)
    }

    fn step(&mut self) {
        let key = self.key();
        let value = V::make(self.random.next());
        match self.random.below(100) {
            0..=29 => {
                let n = self.random.below(40);
                for _ in 0..n {
                    let (key, value) = (self.key(), V::make(self.random.next()));
                    let old = self.map().insert(key, value).unwrap();
                    assert_eq!(old, self.model.insert(key, value));
                }
            }
            30..=44 => {
                let n = self.random.below(40);
                for _ in 0..n {
                    let key = self.key();
                    assert_eq!(self.map().remove(key).unwrap(), self.model.remove(&key));
                }
            }
            45..=54 => self.batch(),
            55..=57 => {
                self.map().put(key, value).unwrap();
                self.map().drain().unwrap();
                self.model.insert(key, value);
            }
            58..=69 => self.commit(),
            70..=71 => self.reopen(),
            72..=74 => {
                // Refused while there are changes, also such that changed nothing in the end.
                match self.map().reader() {
                    Ok(reader) => {
                        self.snapshots.push((reader.snapshot(), self.visible.clone()));
                        self.readers.push(reader);
                    }
                    Err(e) => assert!(matches!(e, Error::Uncommitted { .. }), "{e}"),
                }
            }
            75..=76 => {
                if self.random.below(2) == 0 {
                    self.readers.clear();
                }
                let keep = self.snapshots.len() / 2;
                self.snapshots.truncate(keep);
            }
            77 => {
                let budget = self.random.below(1 << 20);
                self.map().compact(budget).unwrap();
                self.committed = self.model.clone();
                self.visible = self.model.clone();
                self.metadata = self.map().metadata().to_vec();
            }
            78..=79 => self.clear_range(),
            80..=84 => self.pipeline(),
            85 => {
                let report = self.map().verify(None).unwrap();
                assert!(report.is_sound(), "{report}");
                assert_eq!(report.keys, self.model.len() as u64);
            }
            _ => self.look(),
        }
    }

    fn batch(&mut self) {
        let n = self
            .random
            .below(if self.random.0.is_multiple_of(3) { 3000 } else { 60 });
        let (from, width) = (self.key(), 1 + self.random.below(2 * self.spread));
        let local = self.random.below(2) == 0;
        let mut batch = Batch::new();
        let mut want = Vec::new();
        for _ in 0..n {
            let key = if local {
                from.saturating_add(self.random.below(width))
            } else {
                self.key()
            };
            if self.random.below(3) > 0 {
                let value = V::make(self.random.next());
                batch.put(key, value);
                want.push(self.model.insert(key, value));
            } else {
                batch.remove(key);
                want.push(self.model.remove(&key));
            }
        }
        let mut got = vec![None; want.len()];
        let applied = self.map().apply_with(&mut batch, |i, old| got[i] = old).unwrap();
        assert_eq!(got, want);
        let Applied {
            inserted,
            replaced,
            removed,
            absent,
        } = applied;
        assert_eq!(inserted + replaced + removed + absent, n);
    }

    fn clear_range(&mut self) {
        let (low, width) = (self.key(), self.random.below(2 * self.spread));
        let high = low.saturating_add(width);
        let keys: Vec<u64> = self.model.range(low..=high).map(|(&k, _)| k).collect();
        let mut batch = Batch::new();
        for &k in &keys {
            batch.remove(k);
            self.model.remove(&k);
        }
        assert_eq!(self.map().apply(&mut batch).unwrap().removed, keys.len() as u64);
    }

    fn commit(&mut self) {
        let level = [
            Durability::None,
            Durability::Eventual,
            Durability::Batch,
            Durability::Logged,
        ][self.random.below(4) as usize];
        let n = self.random.below(30) as usize;
        let metadata: Vec<u8> = (0..n).map(|i| (self.random.0 >> (i % 50)) as u8).collect();
        self.map().commit(level, &metadata).unwrap();
        assert_eq!(self.map().metadata(), metadata);
        self.visible = self.model.clone();
        if level != Durability::None {
            self.committed = self.model.clone();
            self.metadata = metadata;
            for reader in &self.readers {
                let snapshot = reader.snapshot();
                assert_eq!(snapshot.len(), self.model.len() as u64);
            }
        }
    }

    fn reopen(&mut self) {
        self.map = None;
        self.readers.clear();
        self.snapshots.clear();
        let map = OrderedMap::open_on(self.backend.clone(), "model", self.options.clone()).unwrap();
        assert_eq!(map.metadata(), self.metadata);
        self.map = Some(map);
        self.model = self.committed.clone();
        self.visible = self.model.clone();
        self.check_all();
    }

    fn pipeline(&mut self) {
        let window = 1 + self.random.below(20) as usize;
        let n = self.random.below(100);
        let mut operations = Vec::new();
        for _ in 0..n {
            let (key, value) = (self.key(), V::make(self.random.next()));
            operations.push(match self.random.below(5) {
                0 => Operation::Get(key),
                1 => Operation::Insert(key, value),
                2 => Operation::Remove(key),
                3 => Operation::At(self.random.below(self.model.len() as u64 + 2)),
                _ => Operation::Rank(key),
            });
        }
        let mut replies = Vec::new();
        let mut pipeline = self.map.as_mut().unwrap().pipeline(window);
        for &operation in &operations {
            replies.extend(pipeline.push(operation).unwrap());
        }
        while let Some(reply) = pipeline.pop().unwrap() {
            replies.push(reply);
        }
        let model = &mut self.model;
        for (operation, reply) in operations.into_iter().zip(replies) {
            let want = match operation {
                Operation::Get(k) => Reply::Value(model.get(&k).copied()),
                Operation::Insert(k, v) => Reply::Value(model.insert(k, v)),
                Operation::Remove(k) => Reply::Value(model.remove(&k)),
                Operation::At(i) => Reply::Row(model.iter().nth(i as usize).map(|(&k, &v)| (k, v))),
                Operation::Rank(k) => Reply::Rank(model.range(..k).count() as u64),
            };
            assert_eq!(reply, want, "{operation:?}");
        }
    }

    fn look(&mut self) {
        let n = self.random.below(50) as usize;
        let mut keys: Vec<u64> = (0..n).map(|_| self.key()).collect();
        let existing: Vec<u64> = self
            .model
            .keys()
            .copied()
            .step_by(1 + self.model.len() / 9)
            .collect();
        keys.extend(existing);
        let ranks: Vec<u64> = (0..n)
            .map(|_| self.random.below(self.model.len() as u64 + 3))
            .collect();
        let (a, b) = (self.key(), self.key());
        let (model, map) = (&self.model, self.map.as_ref().unwrap());
        assert_eq!(map.len(), model.len() as u64);
        for &k in &keys {
            assert_eq!(map.get(k).unwrap(), model.get(&k).copied());
            assert_eq!(map.rank(k).unwrap(), model.range(..k).count() as u64);
        }
        let row = |i: u64| model.iter().nth(i as usize).map(|(&k, &v)| (k, v));
        for &i in &ranks {
            assert_eq!(map.at(i).unwrap(), row(i));
        }
        assert_eq!(
            map.get_many(&keys).unwrap(),
            keys.iter().map(|k| model.get(k).copied()).collect::<Vec<_>>()
        );
        let want: Vec<u64> = keys.iter().map(|&k| model.range(..k).count() as u64).collect();
        assert_eq!(map.rank_many(&keys).unwrap(), want);
        assert_eq!(
            map.at_many(&ranks).unwrap(),
            ranks.iter().map(|&i| row(i)).collect::<Vec<_>>()
        );
        assert_eq!(map.first().unwrap(), row(0));
        assert_eq!(
            map.last().unwrap(),
            model.iter().next_back().map(|(&k, &v)| (k, v))
        );
        let (low, high) = (a.min(b), a.max(b));
        assert_eq!(
            map.count(low..high).unwrap(),
            model.range(low..high).count() as u64
        );
        let want: Vec<(u64, V)> = model.range(low..=high).map(|(&k, &v)| (k, v)).collect();
        let got: Vec<(u64, V)> = map.range(low..=high).map(Result::unwrap).collect();
        assert_eq!(got, want);
        let mut got: Vec<(u64, V)> = map.range(low..=high).rev().map(Result::unwrap).collect();
        got.reverse();
        assert_eq!(got, want);
        let (mut scan, mut model_scan) = (map.iter(), model.iter());
        for i in 0..200u64 {
            let from_front = (i * i / 7) % 3 > 0;
            let got = if from_front { scan.next() } else { scan.next_back() };
            let want = if from_front {
                model_scan.next()
            } else {
                model_scan.next_back()
            };
            assert_eq!(got.map(Result::unwrap), want.map(|(&k, &v)| (k, v)));
        }
        for (k, v) in map.sample(20, 5).unwrap() {
            assert_eq!(model.get(&k), Some(&v));
        }
        if let Some((snapshot, then)) = self.snapshots.last() {
            assert!(
                snapshot
                    .iter()
                    .map(Result::unwrap)
                    .eq(then.iter().map(|(&k, &v)| (k, v)))
            );
            assert!(
                keys.iter()
                    .all(|&k| snapshot.get(k).unwrap() == then.get(&k).copied())
            );
        }
    }

    fn check_all(&mut self) {
        let map = self.map.as_ref().unwrap();
        assert!(
            map.iter()
                .map(Result::unwrap)
                .eq(self.model.iter().map(|(&k, &v)| (k, v)))
        );
        assert_eq!(map.len(), self.model.len() as u64);
        map.core.check_memory_of_tree();
    }

    fn finish(mut self) {
        self.check_all();
        for (snapshot, then) in &self.snapshots {
            assert!(
                snapshot
                    .iter()
                    .map(Result::unwrap)
                    .eq(then.iter().map(|(&k, &v)| (k, v)))
            );
            let report = snapshot.verify(None).unwrap();
            assert!(report.is_sound(), "{report}");
        }
        self.snapshots.clear();
        self.readers.clear();
        self.map().commit(Durability::Batch, b"end").unwrap();
        let report = self.map().verify(None).unwrap();
        assert!(report.is_sound(), "{report}");
        // Nothing is leaked: what is marked in use is what a fresh look at the file finds in use.
        let used = |map: &OrderedMap<V>| map.stats().unwrap();
        let before = used(self.map());
        self.committed = self.model.clone();
        self.metadata = b"end".to_vec();
        self.reopen();
        let after = used(self.map());
        assert_eq!(before.used_bytes, after.used_bytes);
        assert_eq!((before.keys, before.extents), (after.keys, after.extents));
    }
}

impl crate::core::Core {
    fn check_memory_of_tree(&self) {
        self.tree
            .visit(&self.store, &mut |node, _, _| {
                let _: () = node.check().unwrap();
                Ok(())
            })
            .unwrap();
    }
}

fn run<V: Make>(seed: u64, encoding: Encoding, spread: u64, steps: usize) {
    let mut run = Run::<V>::new(seed, encoding, spread);
    if seed.is_multiple_of(3) {
        let rows: Model<V> = (0..seed % 5000)
            .map(|n| (run.random.key(spread), V::make(n)))
            .collect();
        assert_eq!(run.map().bulk_load(rows.clone()).unwrap(), rows.len() as u64);
        run.model = rows;
    }
    for _ in 0..steps {
        run.step();
    }
    run.finish();
}

proptest! {
    #![proptest_config(super::cases(24))]

    #[test]
    fn a_set_is_a_btreeset(seed: u64, raw: bool, spread in 10u64..20_000) {
        run::<()>(seed, if raw { Encoding::Raw } else { Encoding::Packed }, spread, 120);
    }

    #[test]
    fn a_map_is_a_btreemap(seed: u64, raw: bool, spread in 10u64..20_000) {
        run::<u64>(seed, if raw { Encoding::Raw } else { Encoding::Packed }, spread, 120);
    }

    #[test]
    fn a_map_of_locations_is_a_btreemap(seed: u64, spread in 10u64..20_000) {
        run::<(i32, i32)>(seed, Encoding::Packed, spread, 120);
    }
}

#[test]
fn bulk_load_wants_ascending_keys_and_an_empty_map() {
    let mut map =
        OrderedMap::<u64>::create_on(Arc::new(MemoryBackend::new()), "m", Options::default()).unwrap();
    let e = map.bulk_load([(1, 1), (5, 2), (5, 3)]).unwrap_err();
    assert!(matches!(e, Error::NotAscending { previous: 5, key: 5 }), "{e}");
    assert_eq!(map.bulk_load((0..100_000).map(|k| (k * 3, k))).unwrap(), 100_000);
    assert!(matches!(map.bulk_load([(1, 1)]), Err(Error::NotEmpty { .. })));
    map.commit(Durability::Batch, b"x").unwrap();
    assert_eq!(map.at(77).unwrap(), Some((231, 77)));
    assert_eq!(map.rank(u64::MAX).unwrap(), 100_000);
    assert!(map.verify(None).unwrap().is_sound());
}

#[test]
fn the_value_shape_is_checked() {
    let backend = Arc::new(MemoryBackend::new());
    drop(OrderedMap::<u64>::create_on(backend.clone(), "m", Options::default()).unwrap());
    let e = OrderedMap::<(i32, i32)>::open_on(backend.clone(), "m", Options::default())
        .err()
        .unwrap();
    assert!(matches!(e, Error::ValueShape { .. }), "{e}");
    assert!(backend.len().unwrap() > 0);
}

#[test]
fn compaction_gives_space_back() {
    let backend = Arc::new(MemoryBackend::new());
    let mut map = OrderedMap::<u64>::create_on(backend.clone(), "m", Options::default()).unwrap();
    map.bulk_load((0..200_000).map(|k| (k * 3, Random(k).next())))
        .unwrap();
    map.commit(Durability::Batch, b"full").unwrap();
    let mut batch = Batch::new();
    (0..200_000)
        .filter(|k| k % 20_000 > 500)
        .for_each(|k| batch.remove(k * 3));
    map.apply(&mut batch).unwrap();
    map.commit(Durability::Batch, b"thin").unwrap();
    let report = map.compact(u64::MAX).unwrap();
    assert!(!report.stopped && report.moved_extents > 0, "{report}");
    let stats = map.stats().unwrap();
    assert!(report.after_bytes < report.before_bytes / 4, "{report}");
    assert!(stats.file_bytes < stats.used_bytes + (4 << 20), "{stats}");
    assert!(map.verify(None).unwrap().is_sound());
    drop(map);
    let map = OrderedMap::<u64>::open_on(backend, "m", Options::default()).unwrap();
    assert_eq!((map.len(), map.metadata()), (5010, &b"thin"[..]));
    assert!(map.verify(None).unwrap().is_sound());
}

#[test]
fn readers_see_their_state_while_the_writer_goes_on() {
    let backend = Arc::new(MemoryBackend::new());
    let options = Options::default().memory(4 << 20);
    let mut map = OrderedMap::<u64>::create_on(backend, "m", options).unwrap();
    map.bulk_load((0..20_000).map(|k| (k, 0))).unwrap();
    map.commit(Durability::Batch, &[]).unwrap();
    let reader = map.reader().unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for t in 0..2u64 {
            let (reader, stop) = (reader.clone(), &stop);
            scope.spawn(move || {
                let mut random = Random(t);
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let snapshot = reader.snapshot();
                    // Every commit writes its number under all keys.
                    let n = snapshot.get(7).unwrap();
                    for _ in 0..50 {
                        assert_eq!(snapshot.get(random.below(20_000)).unwrap(), n);
                    }
                    let (from, part) = (random.below(19_000), 500);
                    assert!(
                        snapshot
                            .range(from..from + part)
                            .all(|row| Some(row.unwrap().1) == n)
                    );
                }
            });
        }
        for n in 1..60 {
            let mut batch = Batch::new();
            (0..20_000).for_each(|k| batch.put(k, n));
            map.apply(&mut batch).unwrap();
            map.commit(Durability::Batch, &[]).unwrap();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    drop(reader);
    map.commit(Durability::Batch, &[]).unwrap();
    assert!(map.verify(None).unwrap().is_sound());
}
