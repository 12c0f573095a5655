//! The store alone: against the device, in batches, as a table of node locations, and beyond memory.

use crate::figures::{Figures, Rate};
use crate::keys::{Pattern, Random, absent, locations, node_ids, present, spread, zipf};
use crate::{Args, cpu_seconds, per_second, rate, resident};
use osmill_diskarray::backend::{Backend, FileBackend};
use osmill_diskarray::{Batch, Device, Durability, Encoding, Operation, Options, OrderedMap, Reply};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

struct File(PathBuf);

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn file(args: &Args, name: &str) -> File {
    let path = args.dir.join(format!("diskarray-bench-{name}"));
    let _ = std::fs::remove_file(&path);
    File(path)
}

/// What the device gives through our own back end, before and after everything else.
pub fn ceiling(args: &Args, figures: &Figures, when: &str) -> Device {
    let file = file(args, "device");
    let backend: Arc<dyn Backend> = Arc::new(FileBackend::open(&file.0, args.access, true, true).unwrap());
    let device = Device::measure(&backend, 1 << 30, 64, Duration::from_millis(800)).unwrap();
    figures.note(&format!(
        "device {when}: {} random reads of 4 KiB at depth 64, {:.2} GB/s sequential read, {:.2} GB/s write ({}); regrouped from a share of {:.2}",
        per_second(device.iops),
        device.read_rate / 1e9,
        device.write_rate / 1e9,
        backend.describe(),
        device.regroup_share()
    ));
    for (row, ops_per_s) in [
        ("device 4 KiB reads", device.iops),
        ("device read bytes", device.read_rate),
        ("device write bytes", device.write_rate),
    ] {
        figures.rate(&Rate {
            row,
            arm: &format!("device {when}"),
            n: 0,
            ops_per_s,
            peer: true,
        });
    }
    device
}

fn options(args: &Args, memory: u64) -> Options {
    Options::default()
        .memory(args.memory.unwrap_or(memory))
        .access(args.access)
}

/// A store's figure: what it holds and what it may take.
fn ours(figures: &Figures, row: &str, map: &OrderedMap<()>, n: u64, ops_per_s: f64) {
    let stats = map.stats().unwrap();
    figures.rate(&Rate {
        row,
        arm: &format!("osmill {}, {} MiB", stats.encoding, stats.memory_budget >> 20),
        n,
        ops_per_s,
        peer: false,
    });
}

fn build(args: &Args, figures: &Figures, n: u64, memory: u64, encoding: Encoding) -> (File, OrderedMap<()>) {
    let file = file(args, "set");
    let mut map = OrderedMap::<()>::create(&file.0, options(args, memory).encoding(encoding)).unwrap();
    let start = Instant::now();
    map.bulk_load((0..n).map(|i| (spread(i, n), ()))).unwrap();
    map.commit(Durability::Batch, &[]).unwrap();
    let stats = map.stats().unwrap();
    let load = n as f64 / start.elapsed().as_secs_f64();
    figures.note(&format!(
        "{n} keys {}, bulk load {}, {:.2} bytes a key, directory {:.4} bytes a key, memory budget {} MiB",
        stats.encoding,
        per_second(load),
        stats.bytes_a_key,
        stats.directory_memory as f64 / n as f64,
        stats.memory_budget >> 20,
    ));
    ours(figures, "file load", &map, n, load);
    (file, map)
}

/// What a map has read and written so far: reads, their bytes, writes, their bytes.
struct Moved([u64; 4]);

impl Moved {
    fn until_now(map: &OrderedMap<()>) -> Self {
        let stats = map.stats().unwrap();
        Self([stats.reads, stats.read_bytes, stats.writes, stats.written_bytes])
    }

    /// What was moved since, an operation.
    fn a_key(&self, map: &OrderedMap<()>, ops: u64) -> String {
        let now = Self::until_now(map);
        let a_key = |i: usize| (now.0[i] - self.0[i]) as f64 / ops as f64;
        format!(
            "{:.2} reads of {:.0} bytes and {:.2} writes of {:.0} bytes an operation",
            a_key(0),
            a_key(1),
            a_key(2),
            a_key(3)
        )
    }
}

/// Operations a second of one kind, and what one of them takes.
struct Flight {
    name: &'static str,
    rate: f64,
    costs: String,
}

/// Single operations, 2048 in flight from one thread; a commit behind each kind.
fn fly(map: &mut OrderedMap<()>, n: u64, ops: u64) -> Vec<Flight> {
    let mut random = Random(5);
    let mut results = vec![];
    for name in ["search", "search zipf", "at", "insert", "delete"] {
        let mut inserted = vec![];
        let moved = Moved::until_now(map);
        let mut pipeline = map.pipeline(2048);
        let mut hits = 0u64;
        let mut note = |reply: Option<Reply<()>>| {
            hits += u64::from(matches!(
                reply,
                Some(Reply::Value(Some(())) | Reply::Row(Some(_)))
            ));
        };
        let cpu = cpu_seconds();
        let r = rate(ops, || {
            for _ in 0..ops {
                let op = match name {
                    "search" => Operation::Get(present(&mut random, n)),
                    "search zipf" => Operation::Get(spread(zipf(&mut random, n), n)),
                    "at" => Operation::At(random.below(n)),
                    "insert" => {
                        inserted.push(absent(&mut random));
                        Operation::Insert(inserted[inserted.len() - 1], ())
                    }
                    _ => Operation::Remove(present(&mut random, n)),
                };
                note(pipeline.push(op).unwrap());
            }
            while let Some(reply) = pipeline.pop().unwrap() {
                note(Some(reply));
            }
        });
        let cpu = (cpu_seconds() - cpu) * 1e6 / ops as f64;
        drop(pipeline);
        let moved = moved.a_key(map, ops);
        match name {
            "search" | "search zipf" | "at" => assert_eq!(hits, ops),
            "insert" => assert!(map.get_many(&inserted).unwrap().iter().all(Option::is_some)),
            // Some are drawn twice.
            _ => assert!(hits > ops / 2),
        }
        let start = Instant::now();
        map.commit(Durability::Batch, &[]).unwrap();
        results.push(Flight {
            name,
            rate: r,
            costs: format!(
                "{cpu:.1} us of CPU an operation, the kernel's included; {moved}; commit after {:.2?}",
                start.elapsed()
            ),
        });
    }
    results
}

/// Single operations in flight from one thread, against the device's random reads before and after. No commit in between.
pub fn window(args: &Args, figures: &Figures, n: u64, encoding: Encoding) {
    let before = ceiling(args, figures, "before");
    let (_file, mut map) = build(args, figures, n, 64 << 20, encoding);
    let results = fly(&mut map, n, args.ops.unwrap_or(200_000));
    let stats = map.stats().unwrap();
    let arm = format!("osmill {}, {} MiB", stats.encoding, stats.memory_budget >> 20);
    figures.bytes("window memory", Pattern::Uniform, n, &arm, stats.memory);
    figures.bytes("window disk", Pattern::Uniform, n, &arm, stats.stored_bytes);
    let after = ceiling(args, figures, "after");
    for Flight { name, rate, costs } in results {
        ours(figures, &format!("window {name}"), &map, n, rate);
        figures.note(&format!(
            "window of 2048: {name} {} = {:.0} % of the random-read ceiling, {costs}",
            per_second(rate),
            rate / before.iops.min(after.iops) * 100.0
        ));
    }
}

/// The store on disk in one budget, in the rows of the structures in memory.
pub fn on_disk(args: &Args, figures: &Figures, n: u64) {
    const MEMORY: u64 = 264 << 20;
    const ARM: &str = "osmill on disk, 264 MiB";
    let file = file(args, "set");
    let mut map = OrderedMap::<()>::create(&file.0, options(args, MEMORY).encoding(Encoding::Raw)).unwrap();
    map.bulk_load((0..n).map(|i| (spread(i, n), ()))).unwrap();
    map.commit(Durability::Batch, &[]).unwrap();
    let stats = map.stats().unwrap();
    figures.bytes("memory", Pattern::Uniform, n, ARM, stats.memory);
    figures.bytes("disk", Pattern::Uniform, n, ARM, stats.stored_bytes);
    for Flight { name, rate, costs } in fly(&mut map, n, args.ops.unwrap_or(200_000).min(n)) {
        if name != "search zipf" {
            figures.rate(&Rate {
                row: &format!("{name} uniform"),
                arm: ARM,
                n,
                ops_per_s: rate,
                peer: false,
            });
        }
        figures.note(&format!("{n} keys on disk: {name} {}, {costs}", per_second(rate)));
    }
}

/// Durable batches of insertions and deletions, batches of lookups, between two measurements of the device.
pub fn batch(args: &Args, figures: &Figures, n: u64, encoding: Encoding, sizes: &[(u64, usize)]) {
    ceiling(args, figures, "before");
    let (_file, mut map) = build(args, figures, n, 264 << 20, encoding);
    let mut random = Random(9);
    for &(size, rounds) in sizes {
        let label = match size >> 20 {
            0 => format!("{} K", size >> 10),
            m => format!("{m} M"),
        };
        for _ in 0..rounds {
            let figure = |map: &OrderedMap<()>, row: &str, r: f64| {
                ours(figures, &format!("batch {label} {row}"), map, n, r)
            };
            let keys: Vec<u64> = (0..size).map(|_| absent(&mut random)).collect();
            let before = map.len();
            let moved = Moved::until_now(&map);
            let (cpu, mut applied) = (cpu_seconds(), Duration::ZERO);
            let r = rate(size, || {
                let mut batch = Batch::new();
                keys.iter().for_each(|&k| batch.put(k, ()));
                let start = Instant::now();
                map.apply(&mut batch).unwrap();
                applied = start.elapsed();
                map.commit(Durability::Batch, &[]).unwrap();
            });
            figures.note(&format!(
                "batch {label} insert: {applied:.2?} to apply, {:.2} s of CPU, the kernel's included; {}",
                cpu_seconds() - cpu,
                moved.a_key(&map, size)
            ));
            figure(&map, "insert durable", r);
            let known: Vec<u64> = (0..size).map(|_| present(&mut random, n)).collect();
            assert!(map.get_many(&keys).unwrap().iter().all(Option::is_some));
            let r = rate(size, || {
                assert!(map.get_many(&known).unwrap().iter().all(Option::is_some));
            });
            figure(&map, "search", r);
            let ranks: Vec<u64> = (0..size).map(|_| random.below(map.len())).collect();
            let r = rate(size, || {
                assert!(map.at_many(&ranks).unwrap().iter().all(Option::is_some));
            });
            figure(&map, "at", r);
            let r = rate(size, || {
                let mut batch = Batch::new();
                keys.iter().for_each(|&k| batch.remove(k));
                map.apply(&mut batch).unwrap();
                map.commit(Durability::Batch, &[]).unwrap();
            });
            figure(&map, "delete durable", r);
            assert_eq!(map.len(), before);
        }
    }
    let stats = map.stats().unwrap();
    ceiling(args, figures, "after");
    figures.note(&format!(
        "file {} MiB, peak resident {:.0} MiB",
        stats.file_bytes >> 20,
        resident().0
    ));
}

/// Single changes strewn over dense ids, which bitmaps hold: more of them than the write buffer takes as rows.
pub fn dense(args: &Args, figures: &Figures) {
    let n = args.n.unwrap_or(500_000_000);
    let file = file(args, "dense");
    let mut map = OrderedMap::<()>::create(&file.0, options(args, 64 << 20)).unwrap();
    map.bulk_load(node_ids(n).map(|id| (id, ()))).unwrap();
    map.commit(Durability::Batch, &[]).unwrap();
    let last = map.last().unwrap().unwrap().0;
    let (mut random, ops) = (Random(19), args.ops.unwrap_or(100_000));
    let asked: Vec<u64> = (0..ops).map(|_| random.below(last)).collect();
    let there = map.get_many(&asked).unwrap();
    let known = there.iter().flatten().count();
    for (name, left) in [("insert", ops as usize), ("delete", 0)] {
        let (cpu, mut found) = (cpu_seconds(), 0);
        let r = rate(ops, || {
            let mut pipeline = map.pipeline(512);
            let mut note =
                |reply: Option<Reply<()>>| found += usize::from(reply == Some(Reply::Value(Some(()))));
            for &id in &asked {
                let op = if left > 0 {
                    Operation::Insert(id, ())
                } else {
                    Operation::Remove(id)
                };
                note(pipeline.push(op).unwrap());
            }
            while let Some(reply) = pipeline.pop().unwrap() {
                note(Some(reply));
            }
        });
        let cpu = (cpu_seconds() - cpu) * 1e6 / ops as f64;
        assert!(left == 0 || found >= known);
        assert_eq!(map.get_many(&asked).unwrap().iter().flatten().count(), left);
        let start = Instant::now();
        map.commit(Durability::Batch, &[]).unwrap();
        ours(figures, &format!("dense {name}"), &map, n, r);
        figures.note(&format!(
            "single changes strewn over dense ids: {cpu:.1} us of CPU an operation, the kernel's included; commit after {:.2?}",
            start.elapsed()
        ));
    }
    figures.note(&map.stats().unwrap().to_string());
}

/// Node id to location, as a table of a planet's nodes that is updated every minute.
pub fn nodes(args: &Args, figures: &Figures) {
    let n = args.n.unwrap_or(50_000_000);
    ceiling(args, figures, "before");
    let file = file(args, "nodes");
    let mut map = OrderedMap::<(i32, i32)>::create(&file.0, options(args, 256 << 20)).unwrap();
    let load = rate(n, || {
        map.bulk_load(node_ids(n).zip(locations())).unwrap();
        map.commit(Durability::Batch, b"1").unwrap();
    });
    let stats = map.stats().unwrap();
    println!(
        "{n} nodes: bulk load {}, {:.2} bytes a node, directory {:.4}",
        per_second(load),
        stats.bytes_a_key,
        stats.directory_memory as f64 / n as f64
    );
    let mut random = Random(3);
    let sample: Vec<u64> = map
        .sample(1_000_000, 7)
        .unwrap()
        .into_iter()
        .map(|row| row.0)
        .collect();
    for round in 0..3 {
        let r = rate(1_000_000, || {
            assert!(map.get_many(&sample).unwrap().iter().all(Option::is_some))
        });
        println!("get_many of 1 M unsorted keys, round {round}: {}", per_second(r));
    }
    let last = map.last().unwrap().unwrap().0;
    for round in 0..5u64 {
        let mut batch = Batch::new();
        for i in 0..10_000u64 {
            match i % 10 {
                0 => batch.remove(sample[random.below(1_000_000) as usize]),
                1..=4 => batch.put(sample[random.below(1_000_000) as usize], (i as i32, 7)),
                _ => batch.put(last + round * 20_000 + i, (i as i32, 9)),
            }
        }
        let start = Instant::now();
        let applied = map.apply(&mut batch).unwrap();
        let middle = start.elapsed();
        map.commit(Durability::Batch, &round.to_le_bytes()).unwrap();
        println!(
            "batch of 10 k mixed operations, durable: {:.2?} ({middle:.2?} to apply); {applied:?}",
            start.elapsed()
        );
    }
    let scan = rate(n, || {
        assert_eq!(
            map.iter().inspect(|r| assert!(r.is_ok())).count() as u64,
            map.len()
        )
    });
    println!("scan in key order: {}", per_second(scan));
    let start = Instant::now();
    let report = map.verify(None).unwrap();
    assert!(report.is_sound());
    println!("verify: {:.2?}\n{}", start.elapsed(), map.stats().unwrap());
    println!("peak resident {:.0} MiB", resident().0);
}

/// More keys than memory. With `--limit` the kernel refuses the whole process more address space than so many MiB.
pub fn big(args: &Args, figures: &Figures) {
    let n = args.n.unwrap_or(1_000_000_000);
    // The batch below and its keys are the caller's, the rest is the store's.
    let size: u64 = 1 << 20;
    let own = (size * 20 + (8 << 20)) >> 20 << 20;
    let limit = args.limit.unwrap_or(264 << 20);
    let memory = args.memory.unwrap_or(limit - own);
    let most = rustix::process::Rlimit {
        current: Some(limit),
        maximum: Some(limit),
    };
    rustix::process::setrlimit(rustix::process::Resource::As, most).unwrap();
    figures.note(&format!(
        "{} MiB of address space for the whole process, {} MiB of them the store's budget",
        limit >> 20,
        memory >> 20
    ));
    let (file, map) = build(args, figures, n, memory, Encoding::Raw);
    drop(map);
    let start = Instant::now();
    let mut map = OrderedMap::<()>::open(&file.0, options(args, memory)).unwrap();
    let recovery = start.elapsed();
    let mut random = Random(77);
    let ops = 200_000;
    let mut found = 0;
    let mut pipeline = map.pipeline(2048);
    let r = rate(ops, || {
        for _ in 0..ops {
            let reply = pipeline.push(Operation::Get(present(&mut random, n))).unwrap();
            found += u64::from(reply == Some(Reply::Value(Some(()))));
        }
        while let Some(reply) = pipeline.pop().unwrap() {
            found += u64::from(reply == Reply::Value(Some(())));
        }
    });
    assert_eq!(found, ops);
    drop(pipeline);
    ours(figures, "window search", &map, n, r);
    for size in [1 << 16, size] {
        let keys: Vec<u64> = (0..size).map(|_| absent(&mut random)).collect();
        let r = rate(size, || {
            let mut batch = Batch::new();
            keys.iter().for_each(|&k| batch.put(k, ()));
            map.apply(&mut batch).unwrap();
            map.commit(Durability::Batch, &[]).unwrap();
        });
        ours(
            figures,
            &format!("batch {} K insert durable", size >> 10),
            &map,
            n,
            r,
        );
        assert!(map.get_many(&keys[..10_000]).unwrap().iter().all(Option::is_some));
    }
    figures.note(&format!(
        "recovery {recovery:.2?}; peak resident {:.0} MiB\n{}",
        resident().0,
        map.stats().unwrap()
    ));
}
