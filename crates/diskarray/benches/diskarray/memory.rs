//! Everything in memory: the store with all its extents in the pool, against trees and arrays. No durability, no I/O.

use crate::avl::Avl;
use crate::figures::{Figures, Rate};
use crate::keys::{Pattern, Random};
use crate::{Args, rate};
use osmill_diskarray::backend::MemoryBackend;
use osmill_diskarray::{Batch, Durability, Encoding, Operation, Options, OrderedMap, Reply};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A structure under test. Loops are inside, so that no structure pays for a call through a pointer at each operation.
trait Arm {
    /// How many of the keys are there.
    fn search(&mut self, keys: &[u64]) -> usize;
    /// The same for sorted keys, by the structure's best way.
    fn search_sorted(&mut self, keys: &[u64]) -> usize {
        self.search(keys)
    }
    /// Sum of the keys of ranks; `None` where there is no select.
    fn at(&mut self, _: &[u64]) -> Option<u64> {
        None
    }
    /// Inserts keys that are not there; false where it cannot.
    fn insert(&mut self, keys: &[u64]) -> bool;
    /// The same for sorted keys, by the structure's best way.
    fn insert_sorted(&mut self, keys: &[u64]) -> bool {
        self.insert(keys)
    }
    /// Deletes keys that are there; false where it cannot.
    fn delete(&mut self, keys: &[u64]) -> bool;
    /// The same for sorted keys, by the structure's best way.
    fn delete_sorted(&mut self, keys: &[u64]) -> bool {
        self.delete(keys)
    }
    /// Bytes of memory, where the structure knows.
    fn bytes(&self) -> Option<u64> {
        None
    }
}

/// How single operations reach the store.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// One call at a time.
    Calls,
    /// Looked ahead by a pipeline.
    Pipeline(usize),
}

struct Ours {
    map: OrderedMap<()>,
    way: Way,
}

impl Ours {
    fn new(keys: &[u64], encoding: Encoding, way: Way) -> Self {
        let options = Options::default()
            .memory((keys.len() as u64 * 18).max(1 << 30))
            .encoding(encoding);
        let mut map = OrderedMap::<()>::create_on(Arc::new(MemoryBackend::new()), "memory", options).unwrap();
        map.bulk_load(keys.iter().map(|&k| (k, ()))).unwrap();
        map.commit(Durability::None, &[]).unwrap();
        // Brings every extent into the pool.
        for k in keys.iter().step_by(64) {
            map.contains(*k).unwrap();
        }
        Self { map, way }
    }

    /// Answers of operations through the pipeline.
    fn pipe(
        &mut self,
        window: usize,
        ops: impl Iterator<Item = Operation<()>>,
        mut f: impl FnMut(Reply<()>),
    ) {
        let mut pipeline = self.map.pipeline(window);
        for op in ops {
            if let Some(reply) = pipeline.push(op).unwrap() {
                f(reply);
            }
        }
        while let Some(reply) = pipeline.pop().unwrap() {
            f(reply);
        }
    }
}

impl Arm for Ours {
    fn search(&mut self, keys: &[u64]) -> usize {
        match self.way {
            Way::Calls => keys.iter().filter(|&&k| self.map.contains(k).unwrap()).count(),
            Way::Pipeline(window) => {
                let mut n = 0;
                self.pipe(window, keys.iter().map(|&k| Operation::Get(k)), |reply| {
                    n += usize::from(reply == Reply::Value(Some(())));
                });
                n
            }
        }
    }
    fn search_sorted(&mut self, keys: &[u64]) -> usize {
        self.map
            .get_many(keys)
            .unwrap()
            .iter()
            .filter(|v| v.is_some())
            .count()
    }
    fn at(&mut self, ranks: &[u64]) -> Option<u64> {
        let mut sum = 0u64;
        match self.way {
            Way::Calls => ranks
                .iter()
                .for_each(|&r| sum = sum.wrapping_add(self.map.at(r).unwrap().unwrap().0)),
            Way::Pipeline(window) => self.pipe(window, ranks.iter().map(|&r| Operation::At(r)), |reply| {
                if let Reply::Row(Some((key, ()))) = reply {
                    sum = sum.wrapping_add(key);
                }
            }),
        }
        Some(sum)
    }
    fn insert(&mut self, keys: &[u64]) -> bool {
        match self.way {
            Way::Calls => keys.iter().for_each(|&k| {
                self.map.insert(k, ()).unwrap();
            }),
            Way::Pipeline(window) => self.pipe(window, keys.iter().map(|&k| Operation::Insert(k, ())), drop),
        }
        true
    }
    fn insert_sorted(&mut self, keys: &[u64]) -> bool {
        let mut batch = Batch::new();
        keys.iter().for_each(|&k| batch.put(k, ()));
        self.map.apply(&mut batch).unwrap();
        true
    }
    fn delete(&mut self, keys: &[u64]) -> bool {
        match self.way {
            Way::Calls => keys.iter().for_each(|&k| {
                self.map.remove(k).unwrap();
            }),
            Way::Pipeline(window) => self.pipe(window, keys.iter().map(|&k| Operation::Remove(k)), drop),
        }
        true
    }
    fn delete_sorted(&mut self, keys: &[u64]) -> bool {
        let mut batch = Batch::new();
        keys.iter().for_each(|&k| batch.remove(k));
        self.map.apply(&mut batch).unwrap();
        true
    }
    fn bytes(&self) -> Option<u64> {
        let stats = self.map.stats().unwrap();
        Some(stats.pool_memory + stats.directory_memory + stats.changed_memory)
    }
}

impl Arm for Avl {
    fn search(&mut self, keys: &[u64]) -> usize {
        keys.iter().filter(|&&k| self.contains(k)).count()
    }
    fn at(&mut self, ranks: &[u64]) -> Option<u64> {
        Some(ranks.iter().fold(0, |sum, &r| sum.wrapping_add(Avl::at(self, r))))
    }
    fn insert(&mut self, keys: &[u64]) -> bool {
        keys.iter().for_each(|&k| Avl::insert(self, k));
        true
    }
    fn delete(&mut self, keys: &[u64]) -> bool {
        keys.iter().for_each(|&k| self.remove(k));
        true
    }
    fn bytes(&self) -> Option<u64> {
        Some(self.memory())
    }
}

impl Arm for BTreeSet<u64> {
    fn search(&mut self, keys: &[u64]) -> usize {
        keys.iter().filter(|k| self.contains(k)).count()
    }
    fn insert(&mut self, keys: &[u64]) -> bool {
        keys.iter().for_each(|&k| {
            BTreeSet::insert(self, k);
        });
        true
    }
    fn delete(&mut self, keys: &[u64]) -> bool {
        keys.iter().for_each(|k| {
            self.remove(k);
        });
        true
    }
}

#[cfg(feature = "rivals")]
impl Arm for indexset::BTreeSet<u64> {
    fn search(&mut self, keys: &[u64]) -> usize {
        keys.iter().filter(|k| self.contains(*k)).count()
    }
    fn at(&mut self, ranks: &[u64]) -> Option<u64> {
        let key = |&r: &u64| *self.get_index(r as usize).unwrap();
        Some(ranks.iter().map(key).fold(0, u64::wrapping_add))
    }
    fn insert(&mut self, keys: &[u64]) -> bool {
        keys.iter().for_each(|&k| {
            indexset::BTreeSet::insert(self, k);
        });
        true
    }
    fn delete(&mut self, keys: &[u64]) -> bool {
        keys.iter().for_each(|k| {
            self.remove(k);
        });
        true
    }
}

/// A sorted array: nothing is smaller or simpler, and nothing can be inserted.
impl Arm for Vec<u64> {
    fn search(&mut self, keys: &[u64]) -> usize {
        keys.iter().filter(|k| self.binary_search(k).is_ok()).count()
    }
    fn at(&mut self, ranks: &[u64]) -> Option<u64> {
        Some(ranks.iter().fold(0, |sum, &r| sum.wrapping_add(self[r as usize])))
    }
    fn insert(&mut self, _: &[u64]) -> bool {
        false
    }
    fn delete(&mut self, _: &[u64]) -> bool {
        false
    }
    fn bytes(&self) -> Option<u64> {
        Some(self.capacity() as u64 * 8)
    }
}

/// Structures that large sets are tried with, one at a time, and about how many bytes a key they take; ours with the memory that stands for its disk.
pub const SIZES: &[(&str, u64)] = &[
    ("AVL 72 B", 77),
    ("BTreeSet", 11),
    #[cfg(feature = "rivals")]
    ("indexset", 17),
    ("sorted array", 8),
    ("osmill raw, pipeline", 28),
];
/// Bytes of a key in the list that the questions are made from.
pub const KEY: u64 = 8;

/// Bytes of memory that the system could give.
pub fn available() -> u64 {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = info.lines().find(|line| line.starts_with("MemAvailable:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

struct Competitor {
    name: &'static str,
    arm: Box<dyn Arm>,
    /// Heap taken while it was built, for those that do not know.
    grown: u64,
}

fn competitors(args: &Args, keys: &[u64]) -> Vec<Competitor> {
    let mut all = vec![];
    let mut add = |name: &'static str, build: &dyn Fn() -> Box<dyn Arm>| {
        if args.only.as_ref().is_none_or(|only| name.contains(only.as_str())) {
            let before = crate::resident().1;
            let arm = build();
            let grown = (crate::resident().1 - before).max(0.0) * f64::from(1 << 20);
            let grown = grown as u64;
            all.push(Competitor { name, arm, grown });
        }
    };
    add("AVL 72 B", &|| Box::new(Avl::from_sorted(keys)));
    add("BTreeSet", &|| {
        Box::new(keys.iter().copied().collect::<BTreeSet<u64>>())
    });
    #[cfg(feature = "rivals")]
    add("indexset", &|| {
        let mut set = indexset::BTreeSet::new();
        keys.iter().for_each(|&k| {
            set.insert(k);
        });
        Box::new(set)
    });
    add("sorted array", &|| Box::new(keys.to_vec()));
    add("osmill raw", &|| {
        Box::new(Ours::new(keys, Encoding::Raw, Way::Calls))
    });
    add("osmill raw, pipeline", &|| {
        Box::new(Ours::new(keys, Encoding::Raw, Way::Pipeline(64)))
    });
    add("osmill packed", &|| {
        Box::new(Ours::new(keys, Encoding::Packed, Way::Calls))
    });
    add("osmill packed, pipeline", &|| {
        Box::new(Ours::new(keys, Encoding::Packed, Way::Pipeline(64)))
    });
    all
}

/// One figure of one structure; nothing when it cannot do what is asked.
fn measure(
    figures: &Figures,
    c: &mut Competitor,
    (pattern, n): (Pattern, u64),
    (row, ops): (&str, usize),
    f: impl FnOnce(&mut dyn Arm) -> bool,
) -> bool {
    let mut can = false;
    let ops_per_s = rate(ops as u64, || can = f(&mut *c.arm));
    if can {
        figures.rate(&Rate {
            row: &format!("{row} {}", pattern.name()),
            arm: c.name,
            n,
            ops_per_s,
            peer: !c.name.starts_with("osmill"),
        });
    }
    can
}

/// All structures on one set of keys, taking turns.
pub fn run(args: &Args, figures: &Figures, n: u64, pattern: Pattern) {
    let keys = pattern.keys(n);
    let ops = (args.ops.unwrap_or(500_000) as usize).min(keys.len() * 16);
    let mut arms = competitors(args, &keys);
    for c in &arms {
        figures.bytes("memory", pattern, n, c.name, c.arm.bytes().unwrap_or(c.grown));
    }
    let mut random = Random(41);
    let what = (pattern, n);
    for round in 0..args.rounds.unwrap_or(3) {
        // One in eight is not there.
        let asked: Vec<u64> = (0..ops)
            .map(|i| match i % 8 {
                0 => pattern.absent(&mut random, &keys),
                _ => pattern.present(&mut random, &keys),
            })
            .collect();
        let hits = asked.iter().filter(|k| keys.binary_search(k).is_ok()).count();
        let ranks: Vec<u64> = (0..ops).map(|_| random.below(n)).collect();
        let sum = ranks
            .iter()
            .fold(0u64, |sum, &r| sum.wrapping_add(keys[r as usize]));
        let fresh = pattern.fresh(&mut random, &keys, ops.min(keys.len()));
        let m = fresh.len();
        let sample: Vec<u64> = fresh.iter().copied().step_by(17).collect();
        let sorted = |keys: &[u64]| {
            let mut sorted = keys.to_vec();
            sorted.sort_unstable();
            sorted
        };
        let (asked_sorted, fresh_sorted) = (sorted(&asked), sorted(&fresh));
        // Whoever comes after a larger structure finds a colder cache: each round begins with another one.
        arms.rotate_left(usize::from(round > 0));
        for c in &mut arms {
            let all =
                |found: usize, wanted: usize| assert_eq!(found, wanted, "answers at {n} {}", pattern.name());
            measure(figures, c, what, ("search", ops), |arm| {
                all(arm.search(&asked), hits);
                true
            });
            measure(figures, c, what, ("search sorted", ops), |arm| {
                all(arm.search_sorted(&asked_sorted), hits);
                true
            });
            measure(figures, c, what, ("at", ops), |arm| {
                arm.at(&ranks).is_some_and(|found| {
                    assert_eq!(found, sum);
                    true
                })
            });
            if !measure(figures, c, what, ("insert", m), |arm| arm.insert(&fresh)) {
                continue;
            }
            all(c.arm.search(&sample), sample.len());
            measure(figures, c, what, ("delete", m), |arm| arm.delete(&fresh));
            all(c.arm.search(&sample), 0);
            measure(figures, c, what, ("insert sorted", m), |arm| {
                arm.insert_sorted(&fresh_sorted)
            });
            all(c.arm.search(&sample), sample.len());
            measure(figures, c, what, ("delete sorted", m), |arm| {
                arm.delete_sorted(&fresh_sorted)
            });
            all(c.arm.search(&sample), 0);
        }
    }
}
