//! Faults that need a process or a file system of their own.

use osmill_diskarray::{Access, Batch, Durability, Error, Options, OrderedMap, OrderedSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const CHILD: &str = "DISKARRAY_TEST_CHILD";

fn options() -> Options {
    Options::default().memory(8 << 20)
}

/// Key `k` of commit `n`: each commit puts its number under a hundred keys and takes some of the last commit's out.
fn transaction(n: u64) -> Batch<u64> {
    let mut batch = Batch::new();
    (0..100).for_each(|i| batch.put(n * 100 + i, n));
    (0..30).for_each(|i| batch.remove((n - 1) * 100 + i * 3));
    batch
}

fn check(path: &Path, acknowledged: u64) -> u64 {
    let map = OrderedMap::<u64>::open(path, options()).unwrap();
    let n = map.metadata().try_into().map_or(0, u64::from_le_bytes);
    assert!(
        n >= acknowledged && n <= acknowledged + 1,
        "state {n}, acknowledged {acknowledged}"
    );
    let report = map.verify(None).unwrap();
    assert!(report.is_sound(), "{report}");
    assert_eq!(map.len(), if n == 0 { 0 } else { (n - 1) * 70 + 100 });
    for row in map.iter() {
        let (k, v) = row.unwrap();
        assert_eq!(k / 100, v);
    }
    n
}

/// The child of [`a_killed_process_loses_nothing_acknowledged`]; does nothing when run as a test.
#[test]
fn child() {
    let Ok(path) = std::env::var(CHILD) else { return };
    let mut map = OrderedMap::<u64>::open(&path, options()).unwrap();
    let first = map.metadata().try_into().map_or(0, u64::from_le_bytes) + 1;
    let mut out = std::io::stdout();
    for n in first.. {
        map.apply(&mut transaction(n)).unwrap();
        let level = if n % 3 == 0 {
            Durability::Batch
        } else {
            Durability::Logged
        };
        map.commit(level, &n.to_le_bytes()).unwrap();
        writeln!(out, "\nacknowledged {n}").unwrap();
        out.flush().unwrap();
    }
}

#[test]
fn a_killed_process_loses_nothing_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("map");
    drop(OrderedMap::<u64>::create(&path, options()).unwrap());
    let mut acknowledged = 0;
    for round in 0..12u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["child", "--exact", "--nocapture"])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let reader = std::thread::spawn(move || {
            let number = |l: String| l.strip_prefix("acknowledged ")?.parse::<u64>().ok();
            lines.map_while(Result::ok).filter_map(number).last()
        });
        std::thread::sleep(Duration::from_millis(60 + round * 37 % 200));
        child.kill().unwrap();
        child.wait().unwrap();
        acknowledged = reader.join().unwrap().unwrap_or(acknowledged).max(acknowledged);
        acknowledged = check(&path, acknowledged);
    }
    assert!(acknowledged > 12, "the child made {acknowledged} commits only");
}

#[test]
fn every_way_to_reach_a_file_gives_the_same() {
    let dir = tempfile::tempdir().unwrap();
    for access in [Access::Auto, Access::Uring, Access::Threads, Access::Buffered] {
        let path = dir.path().join(format!("{access:?}"));
        let options = options().access(access);
        let mut set = match OrderedSet::create(&path, options.clone()) {
            Ok(set) => set,
            // Containers forbid io_uring; the error has to say so.
            Err(Error::Io { source, .. }) if access == Access::Uring => {
                assert!(source.to_string().contains("io_uring"));
                continue;
            }
            Err(e) => panic!("{e}"),
        };
        assert_eq!(set.bulk_load((0..300_000).map(|k| k * 7)).unwrap(), 300_000);
        set.commit(Durability::Batch, b"loaded").unwrap();
        set.insert_many((0..50_000).map(|k| (k * 7_919) % 2_100_000))
            .unwrap();
        set.commit(Durability::Batch, b"more").unwrap();
        drop(set);
        let set = OrderedSet::open(&path, options).unwrap();
        let model: std::collections::BTreeSet<u64> = (0..300_000)
            .map(|k| k * 7)
            .chain((0..50_000).map(|k| (k * 7_919) % 2_100_000))
            .collect();
        assert_eq!(set.len(), model.len() as u64);
        assert!(set.range(..).map(Result::unwrap).eq(model.iter().copied()));
        assert!(
            set.range(..)
                .rev()
                .map(Result::unwrap)
                .eq(model.iter().rev().copied())
        );
        let keys: Vec<u64> = (0..20_000).map(|k| k * 101).collect();
        let found = set.contains_many(&keys).unwrap();
        assert!(keys.iter().zip(found).all(|(k, hit)| model.contains(k) == hit));
        assert!(set.map().verify(None).unwrap().is_sound());
        println!("{}", set.map().stats().unwrap());
    }
}

#[test]
fn one_writer_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("map");
    let map = OrderedMap::<u64>::create(&path, options()).unwrap();
    assert!(matches!(
        OrderedMap::<u64>::open(&path, options()),
        Err(Error::Locked { .. })
    ));
    assert!(matches!(
        OrderedMap::<u64>::create(&path, options()),
        Err(Error::Exists { .. })
    ));
    drop(map);
    let a = OrderedMap::<u64>::open(&path, options().read_only()).unwrap();
    let mut b = OrderedMap::<u64>::open(&path, options().read_only()).unwrap();
    assert!(matches!(b.insert(1, 1), Err(Error::ReadOnly { .. })));
    assert_eq!(a.len(), 0);
}

const FULL_CHILD: &str = "DISKARRAY_TEST_FULL_CHILD";

/// The child of [`a_file_that_cannot_grow_stops_the_writer_and_loses_nothing`]; does nothing when run as a test.
#[test]
fn full_child() {
    let Ok(path) = std::env::var(FULL_CHILD) else {
        return;
    };
    let mut map = OrderedMap::<u64>::create(&path, options()).unwrap();
    let reader = map.reader().unwrap();
    let mut done = 0;
    let error = loop {
        let mut batch = transaction(done + 1);
        // Ever more, so that the limit comes soon, at different places of a commit.
        (0..20_000).for_each(|i| batch.put((1 << 60) + (i << 20) + done, done));
        let change = map.apply(&mut batch).map(drop);
        match change.and_then(|()| map.commit(Durability::Batch, &(done + 1).to_le_bytes())) {
            Ok(_) => done += 1,
            Err(e) => break e,
        }
    };
    assert!(matches!(error, Error::Io { .. }), "{error}");
    assert!(matches!(map.insert(1, 1), Err(Error::Poisoned { .. })));
    let snapshot = reader.snapshot();
    assert_eq!(snapshot.metadata(), done.to_le_bytes());
    assert!(snapshot.verify(None).unwrap().is_sound());
    println!("\nacknowledged {done}");
}

#[test]
fn a_file_that_cannot_grow_stops_the_writer_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for blocks in [9_000u32, 14_321] {
        let path = dir.path().join(blocks.to_string());
        // A limit of the shell on the size of files, with its signal ignored, makes writes fail as a full disk does.
        let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" full_child --exact --nocapture");
        let output = Command::new("sh")
            .args(["-c", &script])
            .arg(std::env::current_exe().unwrap())
            .env(FULL_CHILD, &path)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "{said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let number = |l: &str| l.strip_prefix("acknowledged ")?.parse::<u64>().ok();
        let acknowledged = said
            .lines()
            .find_map(number)
            .expect("the child says how far it came");
        assert!(acknowledged > 2, "{acknowledged}");
        let map = OrderedMap::<u64>::open(&path, options()).unwrap();
        let state = map.metadata().try_into().map_or(0, u64::from_le_bytes);
        assert!(
            state == acknowledged || state == acknowledged + 1,
            "{state} {acknowledged}"
        );
        assert!(map.verify(None).unwrap().is_sound());
        assert_eq!(map.count(1 << 60..).unwrap(), state * 20_000);
    }
}

const SMALL: &str = "DISKARRAY_TEST_SMALL_FILE_SYSTEM";

/// Runs in a process that has mounted 6 MiB on the directory, in a name space of its own where the system allows that; elsewhere it says so and does nothing.
#[test]
fn a_full_file_system_stops_the_writer_and_loses_nothing() {
    if let Some(dir) = std::env::var_os(SMALL) {
        return fill_file_system(Path::new(&dir));
    }
    const REFUSED: i32 = 77;
    let dir = tempfile::tempdir().unwrap();
    let name = "a_full_file_system_stops_the_writer_and_loses_nothing";
    let script = format!(
        "mount -t tmpfs -o size=6m tmpfs \"$1\" || exit {REFUSED}; exec \"$0\" {name} --exact --nocapture"
    );
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
        .arg(std::env::current_exe().unwrap())
        .arg(dir.path())
        .env(SMALL, dir.path())
        .output();
    match output {
        Ok(output) if output.status.success() => {
            assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
        }
        // What the harness says of a failed test.
        Ok(output) if output.status.code() == Some(101) => {
            panic!("{}", String::from_utf8_lossy(&output.stdout))
        }
        refused => eprintln!("no small file system can be mounted here: {refused:?}"),
    }
}

fn fill_file_system(dir: &Path) {
    let path = dir.join("map");
    let mut map = OrderedMap::<u64>::create(&path, options()).unwrap();
    let mut acknowledged = 0;
    let error = loop {
        let n = acknowledged + 1;
        let mut batch = Batch::new();
        (0..3000).for_each(|i| batch.put(n * 3000 + i, (n * 3000 + i).wrapping_mul(0x9E37_79B9_7F4A_7C15)));
        let done = map
            .apply(&mut batch)
            .and_then(|_| map.commit(Durability::Batch, &n.to_le_bytes()));
        match done {
            Ok(_) => acknowledged = n,
            Err(e) => break e,
        }
    };
    assert!(matches!(error, Error::Io { .. }), "{error}");
    assert!(matches!(map.insert(1, 1), Err(Error::Poisoned { .. })));
    drop(map);
    let map = OrderedMap::<u64>::open(&path, options()).unwrap();
    let n = map.metadata().try_into().map_or(0, u64::from_le_bytes);
    assert!(n == acknowledged || n == acknowledged + 1);
    assert_eq!(map.len(), n * 3000);
    assert!(map.verify(None).unwrap().is_sound());
}

#[test]
fn a_device_is_measured_when_a_batch_asks_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("set");
    let mut set = OrderedSet::create(&path, Options::default()).unwrap();
    set.bulk_load((0..5_000_000).map(|k| k << 40)).unwrap();
    set.commit(Durability::Batch, b"loaded").unwrap();
    assert_eq!(set.map().stats().unwrap().device_source, "assumed");
    set.insert_many([1, 3, 5]).unwrap();
    assert_eq!(
        set.map().stats().unwrap().device_source,
        "assumed",
        "three operations are not worth it"
    );
    let before = std::time::Instant::now();
    set.insert_many((0..2_000).map(|k| (k << 43) + 1)).unwrap();
    let stats = set.map().stats().unwrap();
    assert_eq!(stats.device_source, "measured", "{:?}", before.elapsed());
    let device = stats.device;
    assert!(
        device.iops > 10.0 && device.read_rate > 1e5 && device.write_rate > 1e5,
        "{device:?}"
    );
    set.commit(Durability::Batch, b"measured").unwrap();
    drop(set);
    let set = OrderedSet::open(&path, Options::default()).unwrap();
    assert!(set.map().verify(None).unwrap().is_sound());
    assert_eq!(set.len(), 5_000_000 + 2 + 2_000);
}
