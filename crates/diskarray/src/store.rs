//! Blocks with names: checked reads of extents and nodes through the caches.

use crate::backend::{AlignedBuf, BLOCK, Backend, Queue};
use crate::codec::{Encoding, Guess, Header, Page, prefetch_near};
use crate::error::{Error, Result};
use crate::node::{Expect, NODE_BYTES, Node};
use crate::pool::{BlockMap, Pool};
use crate::value::Shape;
use std::io;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Memory taken from the pool until it is dropped.
pub struct Loan<S: Deref<Target = Store>> {
    store: S,
    bytes: usize,
}

/// Loans up to this size are covered by the slack of the budget.
const SMALL_LOAN: usize = 48 << 10;

impl<S: Deref<Target = Store>> Loan<S> {
    /// Takes memory from the pool for a call that needs some for itself. Little of it is not worth the trouble: the budget has slack.
    pub fn new(store: S, bytes: usize) -> Self {
        let bytes = if bytes > SMALL_LOAN { bytes } else { 0 };
        if bytes > 0 {
            store.pool_lent.fetch_add(bytes, Relaxed);
            store.fit_pool();
        }
        Self { store, bytes }
    }
}

impl<S: Deref<Target = Store>> Drop for Loan<S> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.store.pool_lent.fetch_sub(self.bytes, Relaxed);
            self.store.fit_pool();
        }
    }
}

/// What moved, since the store was opened.
#[derive(Default)]
pub struct Counters {
    pub reads: AtomicU64,
    pub read_bytes: AtomicU64,
    pub writes: AtomicU64,
    pub written_bytes: AtomicU64,
    pub flushes: AtomicU64,
    pub hits: AtomicU64,
    pub misses: AtomicU64,
}

pub fn count(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Relaxed);
}

/// Nodes that are not pinned, least recently used first out.
#[derive(Default)]
struct NodeCache {
    nodes: BlockMap<(Arc<Node>, u64)>,
    tick: u64,
}

/// Everything that the writer and all readers share.
pub struct Store {
    pub backend: Arc<dyn Backend>,
    pub name: String,
    pub shape: Shape,
    pub encoding: Encoding,
    pub file_id: u32,
    pub pool: Pool,
    /// What the budget gives the pool, and how much of it is lent to calls in progress.
    pool_grant: AtomicUsize,
    pool_lent: AtomicUsize,
    nodes: Mutex<NodeCache>,
    node_capacity: AtomicUsize,
    pub counters: Counters,
    pub poisoned: AtomicBool,
    /// Requests in flight of one queue.
    pub depth: usize,
    /// Blocks that one reading-ahead holds.
    pub window: usize,
    #[cfg(test)]
    pub drop_parent_checksum: AtomicBool,
}

impl Store {
    pub fn new(
        backend: Arc<dyn Backend>,
        name: String,
        shape: Shape,
        encoding: Encoding,
        file_id: u32,
        (depth, window): (usize, usize),
        slab: usize,
    ) -> Self {
        Self {
            backend,
            name,
            shape,
            encoding,
            file_id,
            pool: Pool::new(slab),
            pool_grant: 0.into(),
            pool_lent: 0.into(),
            nodes: Mutex::default(),
            node_capacity: 8.into(),
            counters: Counters::default(),
            poisoned: false.into(),
            depth,
            window,
            #[cfg(test)]
            drop_parent_checksum: false.into(),
        }
    }

    /// Gives the pool a share of the budget.
    pub fn grant_pool(&self, bytes: usize) {
        self.pool_grant.store(bytes, Relaxed);
        self.fit_pool();
    }

    fn fit_pool(&self) {
        let bytes = self
            .pool_grant
            .load(Relaxed)
            .saturating_sub(self.pool_lent.load(Relaxed));
        self.pool.resize(bytes);
    }

    /// Most bytes that one call should borrow.
    pub fn most_lent(&self) -> usize {
        (self.pool_grant.load(Relaxed) / 2).max(SMALL_LOAN)
    }

    /// Bytes lent at present.
    pub fn lent(&self) -> usize {
        self.pool_lent.load(Relaxed)
    }

    pub fn io(&self, what: &'static str, offset: u64) -> impl FnOnce(io::Error) -> Error {
        let file = self.name.clone();
        move |source| Error::Io {
            file,
            what,
            offset,
            source,
        }
    }

    pub fn corrupt(&self, block: u32, reason: impl Into<String>) -> Error {
        Error::Corrupt {
            file: self.name.clone(),
            block: block.into(),
            reason: reason.into(),
        }
    }

    /// Memory for nodes that are not pinned.
    pub fn set_node_cache(&self, bytes: usize) {
        self.node_capacity.store((bytes / NODE_BYTES).max(4), Relaxed);
    }

    pub fn read(&self, block: u32, buf: &mut [u8]) -> Result<()> {
        let offset = u64::from(block) * BLOCK as u64;
        count(&self.counters.reads, 1);
        count(&self.counters.read_bytes, buf.len() as u64);
        self.backend
            .read_at(offset, buf)
            .map_err(|e| self.read_error(block, e))
    }

    /// Counts a read that somebody else submits.
    pub fn count_read(&self, bytes: usize) {
        count(&self.counters.reads, 1);
        count(&self.counters.read_bytes, bytes as u64);
    }

    pub fn read_error(&self, block: u32, e: io::Error) -> Error {
        if e.kind() == io::ErrorKind::UnexpectedEof {
            return self.corrupt(block, "the file ends before this block");
        }
        self.io("read", u64::from(block) * BLOCK as u64)(e)
    }

    pub fn write(&self, block: u32, buf: &[u8]) -> Result<()> {
        let offset = u64::from(block) * BLOCK as u64;
        count(&self.counters.writes, 1);
        count(&self.counters.written_bytes, buf.len() as u64);
        self.backend
            .write_at(offset, buf)
            .map_err(self.io("write", offset))
    }

    pub fn flush(&self) -> Result<()> {
        count(&self.counters.flushes, 1);
        self.backend.flush().map_err(self.io("flush", 0))
    }

    pub fn queue(&self, depth: usize) -> Result<Box<dyn Queue>> {
        self.backend
            .clone()
            .queue(depth)
            .map_err(self.io("start a queue", 0))
    }

    /// A guess at where in an extent of `of` rows a search ends.
    #[inline]
    pub fn guess(&self, at: usize, of: u64) -> Guess {
        Guess {
            at,
            of: of as usize,
            encoding: self.encoding,
        }
    }

    /// Checks an extent against itself and its parent.
    pub fn check_extent(&self, block: u32, sum: u32, bytes: &[u8]) -> Result<Header> {
        let header = Header::read(bytes, block, self.file_id).map_err(|why| self.corrupt(block, why))?;
        #[cfg(test)]
        if self.drop_parent_checksum.load(Relaxed) {
            return Ok(header);
        }
        if header.checksum != sum {
            return Err(self.corrupt(
                block,
                "extent is valid but not the one its parent names (a lost or misplaced write)",
            ));
        }
        Ok(header)
    }

    pub fn page<'a>(&'a self, block: u32, bytes: &'a [u8]) -> Result<Page<'a>> {
        Page::new(&self.shape, bytes)
            .ok_or_else(|| self.corrupt(block, "extent payload contradicts its header"))
    }

    /// Runs `f` on a checked extent, from the pool or the disk.
    pub fn with_extent<R>(&self, block: u32, sum: u32, f: impl FnOnce(&Page<'_>) -> R) -> Result<R> {
        self.with_extent_near(block, sum, None, f)
    }

    /// As [`with_extent`](Self::with_extent), for a search that is likely to end at `guess`.
    #[inline]
    pub fn with_extent_near<R>(
        &self,
        block: u32,
        sum: u32,
        guess: Option<Guess>,
        f: impl FnOnce(&Page<'_>) -> R,
    ) -> Result<R> {
        let mut f = Some(f);
        let mut run = |bytes: &[u8]| {
            if let Some(guess) = guess {
                prefetch_near(bytes, guess);
            }
            let page = self.page(block, bytes)?;
            Ok((f.take().expect("called once"))(&page))
        };
        if let Some(r) = self.pool.with(block, &mut run) {
            count(&self.counters.hits, 1);
            return r;
        }
        count(&self.counters.misses, 1);
        let mut buf = AlignedBuf::new(1);
        self.read(block, &mut buf)?;
        self.check_extent(block, sum, &buf)?;
        let r = run(&buf);
        self.pool.insert(block, &buf);
        r
    }

    /// A node that is not pinned.
    pub fn node(&self, expect: &Expect) -> Result<Arc<Node>> {
        let mut cache = self.nodes.lock().unwrap_or_else(|poison| poison.into_inner());
        cache.tick += 1;
        let tick = cache.tick;
        if let Some((node, used)) = cache.nodes.get_mut(&expect.block) {
            *used = tick;
            return Ok(node.clone());
        }
        drop(cache);
        let mut buf = AlignedBuf::new(NODE_BYTES / BLOCK);
        self.read(expect.block, &mut buf)?;
        let node = Arc::new(self.read_node(&buf, expect)?);
        let mut cache = self.nodes.lock().unwrap_or_else(|poison| poison.into_inner());
        while cache.nodes.len() >= self.node_capacity.load(Relaxed) {
            let oldest = cache
                .nodes
                .iter()
                .min_by_key(|(_, (_, used))| *used)
                .map(|(&b, _)| b);
            cache.nodes.remove(&oldest.expect("not empty"));
        }
        cache.nodes.insert(expect.block, (node.clone(), tick));
        Ok(node)
    }

    pub fn read_node(&self, bytes: &[u8], expect: &Expect) -> Result<Node> {
        Node::read(bytes, expect, self.file_id).map_err(|why| self.corrupt(expect.block, why))
    }

    /// The blocks will be written anew: forgets what the caches know of them.
    pub fn forget_node(&self, block: u32) {
        self.nodes
            .lock()
            .unwrap_or_else(|poison| poison.into_inner())
            .nodes
            .remove(&block);
    }

    pub fn node_cache_memory(&self) -> usize {
        self.nodes
            .lock()
            .unwrap_or_else(|poison| poison.into_inner())
            .nodes
            .len()
            * NODE_BYTES
    }
}
