//! The simulated disk under every fault, and planted errors that must be found.

use super::{Make, Random};
use crate::backend::{Backend, Fault, SimDisk, Tear};
use crate::options::Bugs;
use crate::*;
use std::collections::BTreeMap;
use std::sync::Arc;

type Model = BTreeMap<u64, u64>;

/// What was done to a disk: the state after each commit, and how far commits came.
struct History {
    states: Vec<Model>,
    /// Index of the last state whose commit returned.
    acknowledged: usize,
    error: Option<Error>,
    /// A snapshot taken along the way, and which state it shows.
    snapshot: Option<(Snapshot<u64>, usize)>,
    map: Option<OrderedMap<u64>>,
}

fn options(bugs: Bugs) -> Options {
    Options {
        bugs,
        ..Options::default()
    }
    .memory(4 << 20)
}

fn create(bugs: Bugs) -> (Arc<SimDisk>, OrderedMap<u64>) {
    let disk = Arc::new(SimDisk::new());
    let map = OrderedMap::create_on(disk.clone(), "sim", options(bugs)).unwrap();
    (disk, map)
}

/// Runs transactions until they are done or one fails.
fn work(mut map: OrderedMap<u64>, seed: u64, transactions: usize, first: Model) -> History {
    let mut random = Random(seed);
    let mut h = History {
        states: vec![first],
        acknowledged: 0,
        error: None,
        snapshot: None,
        map: None,
    };
    let spread = 50 + random.below(1500);
    for n in 1..=transactions {
        let mut model = h.states[n - 1].clone();
        let changes = random.below(3) * random.below(150) + 1;
        let durability = if random.below(3) == 0 {
            Durability::Logged
        } else {
            Durability::Batch
        };
        let as_batch = random.below(3) == 0;
        let done = (|| {
            let mut batch = Batch::new();
            for _ in 0..changes {
                let (key, value) = (random.key(spread), u64::make(random.next()));
                let put = random.below(5) > 1;
                if put {
                    model.insert(key, value)
                } else {
                    model.remove(&key)
                };
                match (as_batch, put) {
                    (true, true) => batch.put(key, value),
                    (true, false) => batch.remove(key),
                    (false, true) => drop(map.insert(key, value)?),
                    (false, false) => drop(map.remove(key)?),
                }
            }
            map.apply(&mut batch)?;
            map.commit(durability, &(n as u64).to_le_bytes())?;
            if n == transactions / 3 {
                h.snapshot = Some((map.reader()?.snapshot(), n));
            }
            if n == transactions * 2 / 3 {
                // From here on blocks are used again.
                h.snapshot = None;
            }
            if n == transactions / 2 {
                map.compact(1 << 20)?;
            }
            Ok(())
        })();
        h.states.push(model);
        match done {
            Ok(()) => h.acknowledged = n,
            Err(e) => {
                h.error = Some(e);
                break;
            }
        }
    }
    h.map = Some(map);
    h
}

fn state_of(map: &OrderedMap<u64>) -> usize {
    <[u8; 8]>::try_from(map.metadata()).map_or(0, |n| u64::from_le_bytes(n) as usize)
}

/// Whether a disk holds exactly one of the states it may hold.
fn check(disk: Arc<SimDisk>, h: &History, bugs: Bugs) -> Result<usize, String> {
    let map = OrderedMap::<u64>::open_on(disk, "sim", options(bugs)).map_err(|e| format!("open: {e}"))?;
    let n = state_of(&map);
    if n < h.acknowledged || n >= h.states.len() {
        return Err(format!(
            "state {n}, but {} was acknowledged and {} begun",
            h.acknowledged,
            h.states.len() - 1
        ));
    }
    let model = &h.states[n];
    let rows: Result<Model> = map.iter().collect();
    if rows.map_err(|e| format!("state {n}: {e}"))? != *model {
        return Err(format!("state {n} has other rows"));
    }
    if map.len() != model.len() as u64 {
        return Err(format!(
            "state {n} counts {} keys, not {}",
            map.len(),
            model.len()
        ));
    }
    for (i, (&k, &v)) in model.iter().enumerate().step_by(1 + model.len() / 20) {
        let (rank, at) = (
            map.rank(k).map_err(|e| e.to_string())?,
            map.at(i as u64).map_err(|e| e.to_string())?,
        );
        if rank != i as u64 || at != Some((k, v)) {
            return Err(format!("state {n}: rank or at of {k} is wrong"));
        }
    }
    let report = map.verify(None).map_err(|e| e.to_string())?;
    if !report.is_sound() {
        return Err(format!("state {n}: {report}"));
    }
    // Work goes on, and what it does is there after another opening.
    Ok(n)
}

fn goes_on(disk: &Arc<SimDisk>, h: &History, n: usize, bugs: Bugs) -> Result<(), String> {
    let map = OrderedMap::open_on(disk.clone(), "sim", options(bugs)).map_err(|e| e.to_string())?;
    let more = work(map, n as u64 ^ 99, 4, h.states[n].clone());
    match &more.error {
        Some(e) => Err(format!("going on after state {n}: {e}")),
        None => check(Arc::new(disk.after_crash(Tear::Nothing)), &more, bugs).map(drop),
    }
}

fn tears(seed: u64) -> [Tear; 6] {
    [
        Tear::Nothing,
        Tear::Everything,
        Tear::Writes(seed),
        Tear::Writes(seed + 1),
        Tear::Sectors(seed, 512),
        Tear::Sectors(seed, 4096),
    ]
}

/// Crashes at every `stride`-th change of a workload, with every kind of tear; returns the first violation.
fn crashes(seed: u64, transactions: usize, stride: usize, bugs: Bugs) -> Result<(), String> {
    let (disk, map) = create(Bugs::default());
    drop(map);
    let start = disk.to_bytes();
    let run = |fault: Fault| {
        let disk = Arc::new(SimDisk::from_bytes(start.clone()));
        let map = OrderedMap::open_on(disk.clone(), "sim", options(bugs)).unwrap();
        disk.inject(fault);
        let h = work(map, seed, transactions, Model::new());
        (disk, h)
    };
    let (disk, h) = run(Fault::Crash(u64::MAX));
    if let Some(e) = h.error {
        return Err(format!("without a crash: {e}"));
    }
    let live = h.map.as_ref().unwrap().verify(None).map_err(|e| e.to_string())?;
    if !live.is_sound() {
        return Err(format!("without a crash: {live}"));
    }
    let total = disk.changes();
    for at in (seed % stride as u64..total).step_by(stride) {
        let (disk, h) = run(Fault::Crash(at));
        assert!(disk.crashed(), "crash at {at} of {total}");
        for (i, tear) in tears(seed * 1000 + at).into_iter().enumerate() {
            let after = Arc::new(disk.after_crash(tear));
            let context = |e| format!("crash at {at} of {total}, {tear:?}: {e}");
            // Recovery itself is cut off now and then, at each of its few writes and flushes.
            let mut survivor = after.clone();
            for again in 0..if i >= 2 { 3 } else { 0 } {
                let disk = Arc::new(SimDisk::from_bytes(survivor.to_bytes()));
                disk.inject(Fault::Crash(again));
                let _ = OrderedMap::<u64>::open_on(disk.clone(), "sim", options(bugs));
                survivor = Arc::new(disk.after_crash(tears(at)[i]));
            }
            let n = check(survivor.clone(), &h, bugs).map_err(context)?;
            if (at + i as u64).is_multiple_of(7) {
                goes_on(&survivor, &h, n, bugs).map_err(context)?;
            }
        }
    }
    Ok(())
}

#[test]
fn a_crash_anywhere_leaves_a_committed_state() {
    for seed in 0..12 {
        crashes(seed, 14, 3, Bugs::default()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
    // Long enough for blocks to be used again, and given back, many times.
    for seed in 12..15 {
        crashes(seed, 45, 17, Bugs::default()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
}

#[test]
#[ignore = "minutes: every crash point of many workloads"]
fn a_crash_anywhere_leaves_a_committed_state_at_length() {
    for seed in 100..160 {
        crashes(seed, 20, 1, Bugs::default()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
}

/// Runs a workload under a fault that shows; the writer must stop and everything else go on.
fn loud(seed: u64, fault: Fault) -> bool {
    let (disk, map) = create(Bugs::default());
    disk.inject(fault);
    let mut h = work(map, seed, 15, Model::new());
    let Some(error) = h.error.take() else { return false };
    assert!(matches!(error, Error::Io { .. }), "{fault:?}: {error}");
    let mut map = h.map.take().unwrap();
    if matches!(
        fault,
        Fault::FailWrite(_) | Fault::FailFlush(_) | Fault::Capacity(_)
    ) {
        assert!(
            matches!(map.insert(1, 1), Err(Error::Poisoned { .. })),
            "{fault:?}: the writer must stop"
        );
        assert!(matches!(
            map.commit(Durability::Batch, &[]),
            Err(Error::Poisoned { .. })
        ));
    }
    if let Some((snapshot, n)) = &h.snapshot {
        let rows: Result<Model> = snapshot.iter().collect();
        assert_eq!(rows.unwrap(), h.states[*n], "{fault:?}: readers go on");
    }
    drop(map);
    h.snapshot = None;
    for tear in tears(seed) {
        let disk = Arc::new(disk.after_crash(tear));
        let n =
            check(disk.clone(), &h, Bugs::default()).unwrap_or_else(|e| panic!("{fault:?} {tear:?}: {e}"));
        goes_on(&disk, &h, n, Bugs::default()).unwrap_or_else(|e| panic!("{fault:?} {tear:?}: {e}"));
    }
    true
}

#[test]
fn failures_of_reads_writes_flushes_and_space_stop_the_writer_only() {
    let mut struck = 0;
    for seed in 0..3u64 {
        for n in (0..120).step_by(5) {
            for fault in [
                Fault::FailRead(n / 3),
                Fault::FailWrite(n / 2),
                Fault::FailFlush(n / 3),
            ] {
                struck += u32::from(loud(seed + n, fault));
            }
        }
        for blocks in (200..900).step_by(40) {
            struck += u32::from(loud(seed, Fault::Capacity(blocks * 4096)));
        }
    }
    assert!(struck > 80, "only {struck} faults struck");
}

/// Rows after a fault that does not show: damage may be reported, wrong rows may not be given out.
fn silent(seed: u64, transactions: usize, fault: Fault, bugs: Bugs) -> Result<bool, String> {
    let (disk, map) = create(bugs);
    disk.inject(fault);
    let h = work(map, seed, transactions, Model::new());
    if let Some(e) = &h.error {
        return match e {
            Error::Corrupt { .. } => Ok(true),
            other => Err(format!("{fault:?}: {other}")),
        };
    }
    let disk = Arc::new(SimDisk::from_bytes(disk.to_bytes()));
    let map = match OrderedMap::<u64>::open_on(disk, "sim", options(bugs)) {
        Ok(map) => map,
        Err(Error::Corrupt { .. } | Error::NotOurs { .. }) => return Ok(true),
        Err(other) => return Err(format!("{fault:?}: {other}")),
    };
    let n = state_of(&map);
    let Some(model) = h.states.get(n) else {
        return Err(format!("{fault:?}: state {n} never was"));
    };
    let mut noticed = n != h.acknowledged;
    let mut wrong = None;
    for (&k, &v) in model {
        match map.get(k) {
            Ok(got) if got == Some(v) => {}
            Ok(got) => wrong = Some(format!("{fault:?}: state {n}: {k} is {got:?}, not {v}")),
            Err(Error::Corrupt { .. }) => noticed = true,
            Err(other) => return Err(other.to_string()),
        }
    }
    for row in map.iter() {
        match row {
            Ok((k, v)) if model.get(&k) == Some(&v) => {}
            Ok((k, _)) => wrong = Some(format!("{fault:?}: state {n}: {k} was given out")),
            Err(Error::Corrupt { .. }) => noticed = true,
            Err(other) => return Err(other.to_string()),
        }
    }
    let sound = map.verify(None).map_err(|e| e.to_string())?.is_sound();
    match wrong {
        Some(wrong) => Err(wrong),
        None if sound == noticed && n == h.acknowledged => Err(format!("{fault:?}: verify says {sound}")),
        None => Ok(noticed),
    }
}

fn silent_faults(seeds: std::ops::Range<u64>, bugs: Bugs) -> Result<u32, String> {
    let mut noticed = 0;
    for seed in seeds {
        for n in 0..60 {
            for fault in [Fault::LoseWrite(n), Fault::Misdirect(n), Fault::FlipWrite(n)] {
                noticed += u32::from(silent(seed, 12, fault, bugs)?);
            }
        }
    }
    Ok(noticed)
}

#[test]
fn lost_misplaced_and_flipped_writes_never_give_wrong_rows() {
    let noticed = silent_faults(0..4, Bugs::default()).unwrap_or_else(|e| panic!("{e}"));
    assert!(noticed > 20, "only {noticed} faults were noticed");
}

#[test]
fn planted_errors_are_found() {
    let clean = Bugs::default();
    let found = |bugs: Bugs| (0..6).any(|seed| crashes(seed, 12, 3, bugs).is_err());
    let found_late = |bugs: Bugs| (0..6).any(|seed| crashes(seed, 45, 17, bugs).is_err());
    assert!(
        found(Bugs {
            skip_data_flush: true,
            ..clean
        }),
        "extents without a flush"
    );
    assert!(
        found(Bugs {
            skip_log_flush: true,
            ..clean
        }),
        "records without a flush"
    );
    assert!(
        found_late(Bugs {
            reuse_early: true,
            ..clean
        }),
        "blocks handed out too early"
    );
    assert!(
        found_late(Bugs {
            trim_early: true,
            ..clean
        }),
        "storage given back too early"
    );
    assert!(
        found(Bugs {
            wrong_subtotal: true,
            ..clean
        }),
        "a wrong subtotal"
    );
    assert!(
        found(Bugs {
            forget_interval: true,
            ..clean
        }),
        "an extent that the record forgets"
    );
    // A lost write shows only where the block held a valid extent before and nothing was written over it since: late in a
    // workload that uses its blocks again.
    let lost = |bugs: Bugs| {
        (0..30).any(|seed| {
            let (disk, map) = create(clean);
            disk.inject(Fault::Capacity(u64::MAX));
            drop(work(map, seed, 40, Model::new()));
            let writes = disk.counts().1;
            (1..14).any(|back| silent(seed, 40, Fault::LoseWrite(writes - back), bugs).is_err())
        })
    };
    assert!(
        lost(Bugs {
            drop_parent_checksum: true,
            ..clean
        }),
        "checksums not compared"
    );
    assert!(!lost(clean), "the same faults with checksums compared");
}

/// A small store of several commits, as bytes, with its rows.
fn sample() -> (Vec<u8>, Model) {
    let (disk, map) = create(Bugs::default());
    let mut h = work(map, 5, 10, Model::new());
    let map = h.map.take().unwrap();
    assert!(h.error.is_none());
    drop((map, h.snapshot));
    (disk.to_bytes(), h.states.pop().unwrap())
}

/// Opens arbitrary bytes and reads everything: no panic, no wrong rows, at worst a typed error.
fn harmless(bytes: Vec<u8>, states: &[&Model]) {
    let disk = Arc::new(SimDisk::from_bytes(bytes));
    let Ok(map) = OrderedMap::<u64>::open_on(disk, "bytes", options(Bugs::default())) else {
        return;
    };
    let _ = map.verify(None).unwrap();
    let rows: Vec<(u64, u64)> = map.iter().map_while(Result::ok).collect();
    assert!(
        states
            .iter()
            .any(|m| rows.iter().all(|(k, v)| m.get(k) == Some(v))),
        "wrong rows were given out"
    );
}

#[test]
fn flips_and_truncations_give_typed_errors() {
    let (bytes, model) = sample();
    let last = [&model];
    // Every byte of the superblocks and of block heads, and a sample of all others.
    let heads = (0..bytes.len())
        .step_by(4096)
        .flat_map(|b| (b..b + 80).step_by(13));
    for (i, at) in heads.chain((0..bytes.len()).step_by(4099)).enumerate() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (i % 8);
        let disk = Arc::new(SimDisk::from_bytes(flipped));
        let Ok(map) = OrderedMap::<u64>::open_on(disk, "bytes", options(Bugs::default())) else {
            continue;
        };
        if map.verify(None).unwrap().is_sound() && map.len() == model.len() as u64 {
            assert!(
                map.iter()
                    .map(Result::unwrap)
                    .eq(model.iter().map(|(&k, &v)| (k, v))),
                "flip at {at}"
            );
        }
    }
    for blocks in 0..bytes.len() / 4096 {
        harmless(bytes[..blocks * 4096].to_vec(), &last);
        harmless(bytes[..blocks * 4096 + 1000].to_vec(), &last);
    }
    let mut random = Random(3);
    for n in [0usize, 1, 100, 4096, 300_000, 1 << 20] {
        harmless((0..n).map(|_| random.next() as u8).collect(), &last);
        harmless(vec![0; n], &last);
    }
}

#[test]
fn foreign_and_newer_files_are_named() {
    let open = |bytes: Vec<u8>| {
        let disk = Arc::new(SimDisk::from_bytes(bytes));
        OrderedMap::<u64>::open_on(disk, "f", options(Bugs::default()))
            .err()
            .unwrap()
    };
    assert!(matches!(open(b"not a store".to_vec()), Error::NotOurs { .. }));
    assert!(matches!(open(vec![7; 1 << 20]), Error::NotOurs { .. }));
    let (mut bytes, _) = sample();
    for place in [0, 16, 32, 48] {
        let head = &mut bytes[place * 4096..(place + 1) * 4096];
        head[16] = 9;
        let sum = crate::codec::checksum(head, place as u32, 0);
        head[..4].copy_from_slice(&sum.to_le_bytes());
    }
    assert!(matches!(
        open(bytes),
        Error::Version {
            found: 9,
            expected: 1,
            ..
        }
    ));
}

#[test]
fn a_lost_directory_is_rebuilt_from_the_extents() {
    let (disk, map) = create(Bugs::default());
    let mut h = work(map, 11, 12, Model::new());
    let mut map = h.map.take().unwrap();
    map.commit(Durability::Batch, b"").unwrap();
    let mut bytes = disk.to_bytes();
    drop((map, h.snapshot));
    for superblocks in [true, false] {
        if !superblocks {
            // Neither superblocks nor directory nodes.
            bytes[..4096 * 64].fill(0);
            for block in bytes.chunks_exact_mut(4096).filter(|b| b[4..6] == [0x5D, 0xDA]) {
                block.fill(0xEE);
            }
        }
        let target = Arc::new(SimDisk::new());
        let source = SimDisk::from_bytes(bytes.clone());
        let report = rebuild_on(
            &source,
            "lost",
            target.clone(),
            "found",
            &[8],
            options(Bugs::default()),
        )
        .unwrap();
        assert_eq!(report.gaps, []);
        let map = OrderedMap::<u64>::open_on(target, "found", options(Bugs::default())).unwrap();
        assert!(
            map.iter()
                .map(Result::unwrap)
                .eq(h.states.last().unwrap().iter().map(|(&k, &v)| (k, v)))
        );
        assert!(map.verify(None).unwrap().is_sound());
    }
}

#[test]
fn a_damaged_superblock_copy_is_made_whole() {
    let (bytes, model) = sample();
    for place in [0usize, 16, 32, 48] {
        let mut torn = bytes.clone();
        torn[place * 4096 + 100..place * 4096 + 600].fill(0xAB);
        let disk = Arc::new(SimDisk::from_bytes(torn));
        let map = OrderedMap::<u64>::open_on(disk.clone(), "t", options(Bugs::default())).unwrap();
        assert_eq!(map.len(), model.len() as u64);
        drop(map);
        let healed = disk.after_crash(Tear::Nothing);
        let map = OrderedMap::<u64>::open_on(Arc::new(healed), "t", options(Bugs::default())).unwrap();
        assert_eq!(map.len(), model.len() as u64);
        assert!(disk.len().unwrap() > 0);
    }
}
