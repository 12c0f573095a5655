//! Stores on disk under one memory limit, page cache counted: each runs in a process of its own, inside a control group where the system lets us make
//! one.

use crate::figures::{Figures, Rate};
use crate::keys::{Pattern, Random};
use crate::{Args, rate, resident};
use osmill_diskarray::{Batch, Durability, Encoding, Options, OrderedMap};
use std::path::Path;
use std::time::{Duration, Instant};

/// What a store has to do.
trait Rival {
    /// Adds ascending keys, durable when it returns; called several times.
    fn load(&mut self, keys: &[u64]);
    /// How many of the keys are there, one by one.
    fn search(&mut self, keys: &[u64]) -> usize;
    /// How many of the sorted keys are there, by the store's best way for many.
    fn search_many(&mut self, keys: &[u64]) -> usize;
    /// Adds sorted keys as one durable transaction.
    fn insert(&mut self, keys: &[u64]);
    /// Deletes sorted keys as one durable transaction.
    fn delete(&mut self, keys: &[u64]);
    /// Adds one key, durable when it returns.
    fn insert_one(&mut self, key: u64) {
        self.insert(&[key]);
    }
}

const NAMES: &[&str] = &[
    "osmill raw",
    "osmill packed",
    "redb",
    "lmdb",
    "fjall",
    #[cfg(feature = "rocksdb")]
    "rocksdb",
];

/// Where the child finds its name.
const CHILD: &str = "DISKARRAY_BENCH_RIVAL";
/// Largest durable transaction.
const LARGEST: usize = 1 << 20;
/// What the benchmark's own batches and the program take of the limit; our store's budget is the rest. The others get a part of that as
/// cache, the page cache uses what they leave.
const OWN: u64 = (8 << 20) + 20 * LARGEST as u64;

/// Keys of one call of [`Rival::load`].
const LOAD: usize = 1 << 17;

pub fn disk(args: &Args, figures: &Figures, n: u64, pattern: Pattern, limit: u64) {
    if let Ok(name) = std::env::var(CHILD) {
        return one(args, figures, &name, n, pattern, limit - OWN);
    }
    figures.note(&format!(
        "{n} keys {}; {} MiB for the process of each store, page cache counted",
        pattern.name(),
        limit >> 20,
    ));
    for &name in NAMES {
        if args
            .only
            .as_ref()
            .is_some_and(|only| !name.contains(only.as_str()))
        {
            continue;
        }
        let group = ControlGroup::new(limit);
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.arg("disk").env(CHILD, name);
        command.args(["--n", &n.to_string(), "--pattern", pattern.name()]);
        command
            .args(["--limit", &(limit >> 20).to_string(), "--dir"])
            .arg(&args.dir);
        if args.json {
            command.arg("--json");
        }
        let mut child = command.spawn().unwrap();
        if group.as_ref().is_none_or(|g| !g.add(child.id())) {
            figures.note(&format!(
                "no control group: the page cache of {name} is not limited"
            ));
        }
        let until = Instant::now() + Duration::from_secs(args.patience);
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break Some(status);
            }
            if Instant::now() > until {
                child.kill().unwrap();
                child.wait().unwrap();
                break None;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        match status {
            Some(status) if status.success() => {}
            Some(status) => figures.note(&format!("{name} ended early under this limit: {status}")),
            None => figures.note(&format!("{name} did not finish within {} s", args.patience)),
        }
        let _ = std::fs::remove_dir_all(folder(args, child.id()));
    }
}

fn folder(args: &Args, process: u32) -> std::path::PathBuf {
    args.dir.join(format!("diskarray-bench-rival-{process}"))
}

/// A memory limit that counts the page cache.
struct ControlGroup(std::path::PathBuf);

impl ControlGroup {
    /// A group below the present one, so that outer limits go on to hold.
    fn new(bytes: u64) -> Option<Self> {
        let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        for line in own.lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            let (root, file) = match controllers {
                "" => ("/sys/fs/cgroup", "memory.max"),
                "memory" => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                _ => continue,
            };
            let dir = Path::new(root).join(path.trim_start_matches('/'));
            let group = Self(dir.join(format!("diskarray-bench-{}", std::process::id())));
            if std::fs::create_dir(&group.0).is_ok()
                && std::fs::write(group.0.join(file), bytes.to_string()).is_ok()
            {
                return Some(group);
            }
        }
        None
    }

    fn add(&self, process: u32) -> bool {
        std::fs::write(self.0.join("cgroup.procs"), process.to_string()).is_ok()
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

fn one(args: &Args, figures: &Figures, name: &str, n: u64, pattern: Pattern, memory: u64) {
    // The parent moves this process into its control group first.
    std::thread::sleep(Duration::from_millis(200));
    let dir = folder(args, std::process::id());
    std::fs::create_dir_all(&dir).unwrap();
    let mut rival: Box<dyn Rival> = match name {
        "redb" => Box::new(Redb::new(&dir, memory)),
        "lmdb" => Box::new(Lmdb::new(&dir)),
        "fjall" => Box::new(Fjall::new(&dir, memory)),
        #[cfg(feature = "rocksdb")]
        "rocksdb" => Box::new(Rocks::new(&dir, memory)),
        _ => Box::new(Ours::new(args, &dir, memory, name)),
    };
    let figure = |row: &str, ops_per_s: f64| {
        figures.rate(&Rate {
            row: &format!("disk {row} {}", pattern.name()),
            arm: name,
            n,
            ops_per_s,
            peer: !name.starts_with("osmill"),
        });
    };
    let start = Instant::now();
    let mut stream = pattern.stream(n);
    loop {
        let keys: Vec<u64> = stream.by_ref().take(LOAD).collect();
        if keys.is_empty() {
            break;
        }
        rival.load(&keys);
    }
    figure("load", n as f64 / start.elapsed().as_secs_f64());
    figures.bytes("disk", pattern, n, name, size(&dir));
    let mut random = Random(61);
    let ask =
        |random: &mut Random, m: usize| -> Vec<u64> { (0..m).map(|_| pattern.rank_key(random, n)).collect() };
    // Caches as they are after a while of such searches.
    let keys = ask(&mut random, 20_000);
    assert_eq!(rival.search(&keys), keys.len());
    let keys = ask(&mut random, 10_000);
    figure(
        "search",
        rate(keys.len() as u64, || assert_eq!(rival.search(&keys), keys.len())),
    );
    let mut keys = ask(&mut random, 1 << 16);
    keys.sort_unstable();
    figure(
        "search 64 K sorted",
        rate(keys.len() as u64, || {
            assert_eq!(rival.search_many(&keys), keys.len())
        }),
    );
    // Small transactions first: who is slow at large ones may not live to see their end.
    let mut largest = 0;
    for (round, size) in (0..).zip([1 << 14, 1 << 16, 1 << 16, 1 << 18, LARGEST, LARGEST]) {
        let fresh = pattern.new_keys(&mut random, n, size, round);
        let (m, label, before) = (fresh.len() as u64, size >> 10, written());
        figure(
            &format!("insert {label} K durable"),
            rate(m, || rival.insert(&fresh)),
        );
        let sample: Vec<u64> = fresh.iter().copied().step_by(97).collect();
        assert_eq!(rival.search(&sample), sample.len());
        largest = largest.max(self::size(&dir));
        figure(
            &format!("delete {label} K durable"),
            rate(m, || rival.delete(&fresh)),
        );
        assert_eq!(rival.search(&sample), 0);
        largest = largest.max(self::size(&dir));
        let moved = written() - before;
        figures.bytes(
            &format!("disk written, {label} K changes,"),
            pattern,
            2 * m,
            name,
            moved,
        );
    }
    figures.bytes("disk at its largest", pattern, n, name, largest);
    let fresh = pattern.new_keys(&mut random, n, 300, 9);
    figure(
        "insert 1 durable",
        rate(fresh.len() as u64, || {
            fresh.iter().for_each(|&k| rival.insert_one(k))
        }),
    );
    assert_eq!(rival.search(&fresh), fresh.len());
    figures.bytes("disk after changes", pattern, n, name, size(&dir));
    figures.note(&format!("{name}: peak resident {:.0} MiB", resident().0));
    drop(rival);
    let _ = std::fs::remove_dir_all(&dir);
}

/// Bytes that this process has written to disk, or made dirty in the page cache.
fn written() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn size(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(dir).unwrap().flatten();
    entries
        .map(|e| {
            if e.path().is_dir() {
                size(&e.path())
            } else {
                e.metadata().map_or(0, |m| m.blocks() * 512)
            }
        })
        .sum()
}

struct Ours(OrderedMap<()>);

impl Ours {
    fn new(args: &Args, dir: &Path, memory: u64, name: &str) -> Self {
        let encoding = if name.ends_with("raw") {
            Encoding::Raw
        } else {
            Encoding::Packed
        };
        let options = Options::default()
            .memory(memory)
            .encoding(encoding)
            .access(args.access);
        Self(OrderedMap::create(dir.join("set"), options).unwrap())
    }
}

impl Ours {
    fn change(&mut self, fill: impl FnOnce(&mut Batch<()>), durability: Durability) {
        let mut batch = Batch::new();
        fill(&mut batch);
        self.0.apply(&mut batch).unwrap();
        self.0.commit(durability, &[]).unwrap();
    }
}

impl Rival for Ours {
    fn load(&mut self, keys: &[u64]) {
        self.insert(keys);
    }
    fn search(&mut self, keys: &[u64]) -> usize {
        keys.iter().filter(|&&k| self.0.contains(k).unwrap()).count()
    }
    fn search_many(&mut self, keys: &[u64]) -> usize {
        self.0.get_many(keys).unwrap().iter().flatten().count()
    }
    fn insert(&mut self, keys: &[u64]) {
        self.change(|b| keys.iter().for_each(|&k| b.put(k, ())), Durability::Batch);
    }
    fn delete(&mut self, keys: &[u64]) {
        self.change(|b| keys.iter().for_each(|&k| b.remove(k)), Durability::Batch);
    }
    fn insert_one(&mut self, key: u64) {
        self.0.insert(key, ()).unwrap();
        self.0.commit(Durability::Logged, &[]).unwrap();
    }
}

struct Redb(redb::Database);

const TABLE: redb::TableDefinition<'_, u64, ()> = redb::TableDefinition::new("set");

impl Redb {
    fn new(dir: &Path, memory: u64) -> Self {
        Self(
            redb::Builder::new()
                .set_cache_size(memory as usize / 2)
                .create(dir.join("redb"))
                .unwrap(),
        )
    }
}

impl Rival for Redb {
    fn load(&mut self, keys: &[u64]) {
        self.insert(keys);
    }
    fn search(&mut self, keys: &[u64]) -> usize {
        use redb::ReadableDatabase;
        let table = self.0.begin_read().unwrap().open_table(TABLE).unwrap();
        keys.iter().filter(|k| table.get(**k).unwrap().is_some()).count()
    }
    fn search_many(&mut self, keys: &[u64]) -> usize {
        self.search(keys)
    }
    fn insert(&mut self, keys: &[u64]) {
        let transaction = self.0.begin_write().unwrap();
        {
            let mut table = transaction.open_table(TABLE).unwrap();
            keys.iter().for_each(|k| drop(table.insert(k, ()).unwrap()));
        }
        transaction.commit().unwrap();
    }
    fn delete(&mut self, keys: &[u64]) {
        let transaction = self.0.begin_write().unwrap();
        {
            let mut table = transaction.open_table(TABLE).unwrap();
            keys.iter().for_each(|k| drop(table.remove(k).unwrap()));
        }
        transaction.commit().unwrap();
    }
}

type LmdbKeys = heed::Database<heed::types::U64<heed::byteorder::BigEndian>, heed::types::Unit>;

struct Lmdb(heed::Env, LmdbKeys);

impl Lmdb {
    #[allow(unsafe_code)]
    fn new(dir: &Path) -> Self {
        let mut options = heed::EnvOpenOptions::new();
        options.map_size(16 << 30);
        // SAFETY: the file is made here and nobody else maps or truncates it. A writable map lets changed pages go to disk under pressure, where
        // a private copy of each would not fit the limit; reading around a page that is asked for would push out others for nothing.
        let env = unsafe {
            let flags = heed::EnvFlags::WRITE_MAP | heed::EnvFlags::NO_READ_AHEAD;
            options.flags(flags).open(dir)
        }
        .unwrap();
        let mut transaction = env.write_txn().unwrap();
        let keys = env.create_database(&mut transaction, None).unwrap();
        transaction.commit().unwrap();
        Self(env, keys)
    }
}

impl Rival for Lmdb {
    fn load(&mut self, keys: &[u64]) {
        let mut transaction = self.0.write_txn().unwrap();
        for k in keys {
            self.1
                .put_with_flags(&mut transaction, heed::PutFlags::APPEND, k, &())
                .unwrap();
        }
        transaction.commit().unwrap();
    }
    fn search(&mut self, keys: &[u64]) -> usize {
        let transaction = self.0.read_txn().unwrap();
        keys.iter()
            .filter(|k| self.1.get(&transaction, k).unwrap().is_some())
            .count()
    }
    fn search_many(&mut self, keys: &[u64]) -> usize {
        self.search(keys)
    }
    fn insert(&mut self, keys: &[u64]) {
        let mut transaction = self.0.write_txn().unwrap();
        for k in keys {
            self.1.put(&mut transaction, k, &()).unwrap();
        }
        transaction.commit().unwrap();
    }
    fn delete(&mut self, keys: &[u64]) {
        let mut transaction = self.0.write_txn().unwrap();
        for k in keys {
            self.1.delete(&mut transaction, k).unwrap();
        }
        transaction.commit().unwrap();
    }
}

struct Fjall(fjall::Database, fjall::Keyspace);

impl Fjall {
    fn new(dir: &Path, memory: u64) -> Self {
        let database = fjall::Database::builder(dir.join("fjall"))
            .cache_size(memory / 4)
            .worker_threads(1)
            .open()
            .unwrap();
        let keys = database
            .keyspace("set", || {
                fjall::KeyspaceCreateOptions::default().max_memtable_size(memory / 10)
            })
            .unwrap();
        Self(database, keys)
    }
}

impl Rival for Fjall {
    /// Batches of ascending keys would be held in memory several times over; ingestion writes them as tables.
    fn load(&mut self, keys: &[u64]) {
        let mut ingestion = self.1.start_ingestion().unwrap();
        keys.iter()
            .for_each(|k| ingestion.write(k.to_be_bytes(), []).unwrap());
        ingestion.finish().unwrap();
    }
    fn search(&mut self, keys: &[u64]) -> usize {
        let there = |k: &&u64| self.1.contains_key(k.to_be_bytes()).unwrap();
        keys.iter().filter(there).count()
    }
    fn search_many(&mut self, keys: &[u64]) -> usize {
        self.search(keys)
    }
    fn insert(&mut self, keys: &[u64]) {
        let mut batch = self.0.batch();
        for k in keys {
            batch.insert(&self.1, k.to_be_bytes(), []);
        }
        batch.commit().unwrap();
        self.0.persist(fjall::PersistMode::SyncAll).unwrap();
    }
    fn delete(&mut self, keys: &[u64]) {
        let mut batch = self.0.batch();
        for k in keys {
            batch.remove(&self.1, k.to_be_bytes());
        }
        batch.commit().unwrap();
        self.0.persist(fjall::PersistMode::SyncAll).unwrap();
    }
}

#[cfg(feature = "rocksdb")]
struct Rocks(rocksdb::DB, rocksdb::WriteOptions);

#[cfg(feature = "rocksdb")]
impl Rocks {
    fn new(dir: &Path, memory: u64) -> Self {
        let mut table = rocksdb::BlockBasedOptions::default();
        table.set_block_cache(&rocksdb::Cache::new_lru_cache(memory as usize / 2).unwrap());
        table.set_cache_index_and_filter_blocks(true);
        table.set_pin_l0_filter_and_index_blocks_in_cache(true);
        table.set_bloom_filter(10.0, false);
        let mut options = rocksdb::Options::default();
        options.create_if_missing(true);
        options.set_block_based_table_factory(&table);
        options.set_write_buffer_size(memory as usize / 16);
        options.set_max_write_buffer_number(2);
        options.set_max_background_jobs(2);
        options.set_max_open_files(64);
        options.set_compression_type(rocksdb::DBCompressionType::None);
        let mut write = rocksdb::WriteOptions::default();
        write.set_sync(true);
        Self(rocksdb::DB::open(&options, dir.join("rocksdb")).unwrap(), write)
    }
}

#[cfg(feature = "rocksdb")]
impl Rival for Rocks {
    fn load(&mut self, keys: &[u64]) {
        self.insert(keys);
    }
    fn search(&mut self, keys: &[u64]) -> usize {
        let there = |k: &&u64| self.0.get_pinned(k.to_be_bytes()).unwrap().is_some();
        keys.iter().filter(there).count()
    }
    fn search_many(&mut self, keys: &[u64]) -> usize {
        let mut found = 0;
        // Pinned blocks have to fit the cache.
        for part in keys.chunks(512) {
            let names: Vec<[u8; 8]> = part.iter().map(|k| k.to_be_bytes()).collect();
            let values = self.0.multi_get(&names);
            found += values.iter().filter(|v| v.as_ref().unwrap().is_some()).count();
        }
        found
    }
    fn insert(&mut self, keys: &[u64]) {
        let mut batch = rocksdb::WriteBatch::default();
        keys.iter().for_each(|k| batch.put(k.to_be_bytes(), []));
        self.0.write_opt(batch, &self.1).unwrap();
    }
    fn delete(&mut self, keys: &[u64]) {
        let mut batch = rocksdb::WriteBatch::default();
        keys.iter().for_each(|k| batch.delete(k.to_be_bytes()));
        self.0.write_opt(batch, &self.1).unwrap();
    }
}
