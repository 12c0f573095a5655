//! The memory budget is kept by every operation: a child process goes through all of them while the kernel refuses it more address space than the
//! budget and what the child itself holds.
//!
//! A program of its own, without the test harness, whose threads would take address space.

use osmill_diskarray::{Batch, Durability, Encoding, Operation, Options, OrderedMap};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::path::Path;
use std::process::Command;

/// Budget in MiB and encoding, for the child.
const CHILD: &str = "DISKARRAY_MEMORY_CHILD";

/// What the child holds beside the store: keys, one batch, answers, threads' stacks where io_uring is missing.
const OWN: u64 = 4 << 20;

fn main() {
    if let Ok(child) = std::env::var(CHILD) {
        let (budget, raw) = child.split_once(' ').expect("budget and encoding");
        return everything(budget.parse::<u64>().expect("MiB") << 20, raw == "raw");
    }
    // The harness's arguments: listing finds nothing to filter.
    if std::env::args().any(|a| a == "--list") || !cfg!(target_os = "linux") {
        return;
    }
    for child in ["4 packed", "16 raw", "16 packed"] {
        let status = Command::new(std::env::current_exe().expect("this program has a path"))
            .env(CHILD, child)
            .env("MALLOC_ARENA_MAX", "1")
            .status()
            .expect("the child starts");
        assert!(status.success(), "budget {child}: {status}");
    }
}

/// A field of the process's status in bytes.
fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status
        .lines()
        .find(|l| l.starts_with(field))
        .expect("the field is there");
    line.split_whitespace()
        .nth(1)
        .and_then(|n| n.parse::<u64>().ok())
        .expect("a number")
        * 1024
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        self.0 ^ self.0 >> 31
    }
}

fn everything(budget: u64, raw: bool) {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("map");
    let before = (status("VmSize"), status("VmRSS"));
    let most = before.0 + budget + OWN;
    let limit = Rlimit {
        current: Some(most),
        maximum: Some(most),
    };
    setrlimit(Resource::As, limit).expect("a limit can be lowered");
    let encoding = if raw { Encoding::Raw } else { Encoding::Packed };
    let options = Options::default().memory(budget).encoding(encoding);
    work(&path, &options, budget);
    let taken = (status("VmPeak") - before.0, status("VmHWM") - before.1);
    println!(
        "budget {} MiB, {encoding:?}: {:.1} MiB of address space taken, {:.1} resident",
        budget >> 20,
        taken.0 as f64 / f64::from(1 << 20),
        taken.1 as f64 / f64::from(1 << 20)
    );
}

fn work(path: &Path, options: &Options, budget: u64) {
    // Several times what the budget holds.
    let n = budget / 8 * 2;
    let width = u64::MAX / n;
    let mut map = OrderedMap::<u32>::create(path, options.clone()).unwrap();
    map.bulk_load((0..n).map(|i| (i * width, i as u32))).unwrap();
    map.commit(Durability::Batch, b"loaded").unwrap();

    let mut random = Random(7);
    // Scattered batches: some rewrite everything, the small ones leave holes.
    for (size, durability) in [
        (40_000u64, Durability::Batch),
        (40_000, Durability::Batch),
        (3_000, Durability::Batch),
        (3_000, Durability::None),
        (500, Durability::Logged),
    ] {
        let mut batch = Batch::new();
        for i in 0..size {
            if i % 3 == 0 {
                batch.remove(random.next() % n * width);
            } else {
                batch.put(random.next(), 7);
            }
        }
        map.apply(&mut batch).unwrap();
        map.commit(durability, b"batch").unwrap();
    }
    // A dense batch in one place, growth at the end.
    let mut batch = Batch::new();
    (0..40_000).for_each(|i| batch.put((1 << 40) + i, 1));
    (0..20_000).for_each(|i| batch.put(u64::MAX - 20_000 + i, 1));
    map.apply(&mut batch).unwrap();
    map.commit(Durability::Batch, b"dense").unwrap();
    drop(batch);

    // Single changes until changed extents fill their share several times over.
    for i in 0..30_000 {
        map.insert(random.next(), 3).unwrap();
        if i % 4 == 0 {
            map.remove(random.next() % n * width).unwrap();
        }
        map.put(random.next(), 4).unwrap();
    }
    map.commit(Durability::Eventual, b"singles").unwrap();

    let keys: Vec<u64> = (0..40_000).map(|_| random.next()).collect();
    assert_eq!(map.get_many(&keys).unwrap().len(), keys.len());
    assert!(map.rank_many(&keys).unwrap().iter().all(|&r| r <= map.len()));
    let ranks: Vec<u64> = keys.iter().map(|k| k % map.len()).collect();
    assert!(map.at_many(&ranks).unwrap().iter().all(Option::is_some));
    let mut pipeline = map.pipeline(1024);
    let mut answers = 0;
    for &key in keys.iter().take(6_000) {
        for operation in [
            Operation::Get(key),
            Operation::Insert(key, 5),
            Operation::Rank(key),
        ] {
            answers += usize::from(pipeline.push(operation).unwrap().is_some());
        }
    }
    while pipeline.pop().unwrap().is_some() {
        answers += 1;
    }
    assert_eq!(answers, 18_000);
    drop(pipeline);
    map.commit(Durability::Logged, b"pipeline").unwrap();

    let scanned = map.iter().map(Result::unwrap).count() as u64;
    assert_eq!(scanned, map.len());
    assert_eq!(
        map.range(..1 << 60).rev().map(Result::unwrap).count() as u64,
        map.count(..1 << 60).unwrap()
    );
    assert!(map.verify(None).unwrap().is_sound());

    // The log is replayed on opening; then compaction.
    drop(map);
    let mut map = OrderedMap::<u32>::open(path, options.clone()).unwrap();
    assert_eq!(map.metadata(), b"pipeline");
    assert_eq!(map.len(), scanned);
    let snapshot = map.reader().unwrap().snapshot();
    assert_eq!(snapshot.at(100).unwrap(), map.at(100).unwrap());
    drop(snapshot);
    map.compact(u64::MAX).unwrap();
    let stats = map.stats().unwrap();
    assert!(stats.memory <= budget, "{stats}");
    assert!(map.verify(None).unwrap().is_sound());
    assert_eq!(map.len(), scanned);
}
