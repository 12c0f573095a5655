//! Stores on disk under one memory limit, page cache counted: each runs in a process of its own, inside a control group where the system lets us make
//! one.

use crate::keys::{Random, absent, present, spread};
use crate::{Args, per_second, rate, resident};
use osmill_diskarray::{Batch, Durability, Encoding, Options, OrderedMap};
use std::path::Path;
use std::time::Instant;

/// What a store has to do.
trait Rival {
    /// Adds ascending keys, durable when it returns; called several times.
    fn load(&mut self, keys: &[u64]);
    /// Whether all keys are there, one by one.
    fn search(&mut self, keys: &[u64]) -> bool;
    /// Whether all keys are there, by the store's best way for many.
    fn search_many(&mut self, keys: &[u64]) -> bool;
    /// Adds keys in any order as one durable transaction.
    fn insert(&mut self, keys: &[u64]);
}

const NAMES: [&str; 5] = ["diskarray raw", "diskarray packed", "redb", "lmdb", "fjall"];

/// Where the child finds its limit.
const LIMIT: &str = "DISKARRAY_BENCH_RIVAL";

pub fn disk(args: &Args) {
    let n = args.n.unwrap_or(20_000_000);
    let memory = args.memory.unwrap_or(128 << 20);
    if let Ok(name) = std::env::var(LIMIT) {
        return one(args, &name, n, memory);
    }
    println!(
        "{n} keys spread over 64 bits, {} MiB of memory each, page cache counted",
        memory >> 20
    );
    for name in NAMES {
        let group = ControlGroup::new(memory + (48 << 20));
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(std::env::args().skip(1)).env(LIMIT, name);
        let mut child = command.spawn().unwrap();
        if group.as_ref().is_none_or(|g| !g.add(child.id())) {
            println!("(no control group: the page cache of {name} is not limited)");
        }
        child.wait().unwrap();
    }
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

fn one(args: &Args, name: &str, n: u64, memory: u64) {
    // The parent moves this process into its control group first.
    std::thread::sleep(std::time::Duration::from_millis(200));
    let dir = args
        .dir
        .join(format!("diskarray-bench-rival-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let mut rival: Box<dyn Rival> = match name {
        "redb" => Box::new(Redb::new(&dir, memory)),
        "lmdb" => Box::new(Lmdb::new(&dir)),
        "fjall" => Box::new(Fjall::new(&dir, memory)),
        _ => Box::new(Ours::new(args, &dir, memory, name)),
    };
    let start = Instant::now();
    for from in (0..n).step_by(1 << 20) {
        let keys: Vec<u64> = (from..n.min(from + (1 << 20))).map(|i| spread(i, n)).collect();
        rival.load(&keys);
    }
    let load = n as f64 / start.elapsed().as_secs_f64();
    let size = size(&dir) as f64 / n as f64;
    let mut random = Random(61);
    let ops = 50_000u64;
    let keys: Vec<u64> = (0..ops).map(|_| present(&mut random, n)).collect();
    let single = rate(ops, || assert!(rival.search(&keys)));
    let keys: Vec<u64> = (0..4 * ops).map(|_| present(&mut random, n)).collect();
    let many = rate(4 * ops, || assert!(rival.search_many(&keys)));
    let mut insert = 0.0f64;
    for _ in 0..3 {
        let fresh: Vec<u64> = (0..65_536).map(|_| absent(&mut random)).collect();
        insert = insert.max(rate(65_536, || rival.insert(&fresh)));
        assert!(rival.search(&fresh[..100]));
    }
    println!(
        "{name:<17} load {:>10}  search {:>10}  search of 200 k {:>10}  durable insert of 64 k {:>10}  {size:>5.1} bytes a key, {:.1} after the inserts; peak resident {:.0} MiB",
        per_second(load),
        per_second(single),
        per_second(many),
        per_second(insert),
        self::size(&dir) as f64 / n as f64,
        resident().0
    );
    drop(rival);
    let _ = std::fs::remove_dir_all(&dir);
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

fn sorted(keys: &[u64]) -> Vec<u64> {
    let mut keys = keys.to_vec();
    keys.sort_unstable();
    keys
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

impl Rival for Ours {
    fn load(&mut self, keys: &[u64]) {
        self.insert(keys);
    }
    fn search(&mut self, keys: &[u64]) -> bool {
        keys.iter().all(|&k| self.0.contains(k).unwrap())
    }
    fn search_many(&mut self, keys: &[u64]) -> bool {
        self.0.get_many(keys).unwrap().iter().all(Option::is_some)
    }
    fn insert(&mut self, keys: &[u64]) {
        let mut batch = Batch::new();
        keys.iter().for_each(|&k| batch.put(k, ()));
        self.0.apply(&mut batch).unwrap();
        self.0.commit(Durability::Batch, &[]).unwrap();
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
    fn search(&mut self, keys: &[u64]) -> bool {
        use redb::ReadableDatabase;
        let table = self.0.begin_read().unwrap().open_table(TABLE).unwrap();
        keys.iter().all(|k| table.get(k).unwrap().is_some())
    }
    fn search_many(&mut self, keys: &[u64]) -> bool {
        self.search(&sorted(keys))
    }
    fn insert(&mut self, keys: &[u64]) {
        let transaction = self.0.begin_write().unwrap();
        {
            let mut table = transaction.open_table(TABLE).unwrap();
            sorted(keys)
                .iter()
                .for_each(|k| drop(table.insert(k, ()).unwrap()));
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
        // SAFETY: the file is made here and nobody else maps or truncates it.
        let env = unsafe { options.open(dir) }.unwrap();
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
    fn search(&mut self, keys: &[u64]) -> bool {
        let transaction = self.0.read_txn().unwrap();
        keys.iter()
            .all(|k| self.1.get(&transaction, k).unwrap().is_some())
    }
    fn search_many(&mut self, keys: &[u64]) -> bool {
        self.search(&sorted(keys))
    }
    fn insert(&mut self, keys: &[u64]) {
        let mut transaction = self.0.write_txn().unwrap();
        for k in &sorted(keys) {
            self.1.put(&mut transaction, k, &()).unwrap();
        }
        transaction.commit().unwrap();
    }
}

struct Fjall(fjall::Database, fjall::Keyspace);

impl Fjall {
    fn new(dir: &Path, memory: u64) -> Self {
        let database = fjall::Database::builder(dir.join("fjall"))
            .cache_size(memory / 2)
            .open()
            .unwrap();
        let keys = database
            .keyspace("set", fjall::KeyspaceCreateOptions::default)
            .unwrap();
        Self(database, keys)
    }
}

impl Rival for Fjall {
    fn load(&mut self, keys: &[u64]) {
        self.insert(keys);
    }
    fn search(&mut self, keys: &[u64]) -> bool {
        keys.iter().all(|k| self.1.contains_key(k.to_be_bytes()).unwrap())
    }
    fn search_many(&mut self, keys: &[u64]) -> bool {
        self.search(&sorted(keys))
    }
    fn insert(&mut self, keys: &[u64]) {
        let mut batch = self.0.batch();
        for k in &sorted(keys) {
            batch.insert(&self.1, k.to_be_bytes(), []);
        }
        batch.commit().unwrap();
        self.0.persist(fjall::PersistMode::SyncAll).unwrap();
    }
}
