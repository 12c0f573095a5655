//! Extents kept in memory: a sharded clock cache of single blocks.
//!
//! A reachable block never changes, so a frame is valid until its block is handed out again; the writer then replaces it.

use crate::buf::{AlignedBuf, BLOCK, HUGE};
use crate::codec::{Guess, prefetch_near};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

/// Hash of small integers by one multiplication.
#[derive(Default)]
pub struct BlockHasher(u64);

impl Hasher for BlockHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&b| self.write_u32(b.into()));
    }
    fn write_u32(&mut self, n: u32) {
        let h = (self.0 ^ u64::from(n)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = h ^ (h >> 32);
    }
}

pub type BlockMap<V> = HashMap<u32, V, BuildHasherDefault<BlockHasher>>;

const SHARDS: usize = 16;
/// Bytes of one frame with its bookkeeping, the map at its emptiest and while it grows included.
pub const FRAME_BYTES: usize = BLOCK + 40;

#[derive(Default)]
struct Shard {
    /// Frames of one allocation.
    slab: usize,
    map: BlockMap<u32>,
    slabs: Vec<AlignedBuf>,
    /// Block in each frame, and whether it was used since the hand came by. 0 is no block.
    owner: Vec<(u32, bool)>,
    spare: Vec<u32>,
    hand: usize,
}

impl Shard {
    fn frame(&self, i: u32) -> &[u8] {
        let at = i as usize % self.slab * BLOCK;
        &self.slabs[i as usize / self.slab][at..at + BLOCK]
    }

    fn frame_mut(&mut self, i: u32) -> &mut [u8] {
        let at = i as usize % self.slab * BLOCK;
        &mut self.slabs[i as usize / self.slab][at..at + BLOCK]
    }

    fn shrink(&mut self, frames: usize) {
        if self.owner.len() <= frames {
            return;
        }
        self.spare.retain(|&f| (f as usize) < frames);
        for tail in frames..self.owner.len() {
            let (block, used) = self.owner[tail];
            if block == 0 {
                continue;
            }
            self.map.remove(&block);
            if let Some(frame) = self.spare.pop() {
                let mut page = [0; BLOCK];
                page.copy_from_slice(self.frame(tail as u32));
                self.frame_mut(frame).copy_from_slice(&page);
                self.owner[frame as usize] = (block, used);
                self.map.insert(block, frame);
            }
        }
        self.owner.truncate(frames);
        self.owner.shrink_to_fit();
        self.slabs.truncate(frames.div_ceil(self.slab));
        self.map.shrink_to(frames);
        self.hand = 0;
    }

    fn victim(&mut self, capacity: usize) -> Option<u32> {
        if let Some(frame) = self.spare.pop() {
            return Some(frame);
        }
        if self.owner.len() < capacity {
            if self.owner.len().is_multiple_of(self.slab) {
                self.slabs.push(AlignedBuf::new(self.slab));
                self.owner.reserve_exact(self.slab);
            }
            self.owner.push((0, false));
            return Some(self.owner.len() as u32 - 1);
        }
        let n = self.owner.len();
        for _ in 0..2 * n {
            self.hand = (self.hand + 1) % n;
            let (block, used) = &mut self.owner[self.hand];
            if !std::mem::take(used) {
                self.map.remove(block);
                return Some(self.hand as u32);
            }
        }
        None
    }
}

/// The cache.
pub struct Pool {
    shards: Vec<Mutex<Shard>>,
    slab: usize,
    /// Slabs of all shards together.
    slabs: AtomicUsize,
}

impl Pool {
    /// An empty cache that takes memory by slabs of so many frames.
    pub fn new(slab: usize) -> Self {
        let shard = || {
            Mutex::new(Shard {
                slab,
                ..Shard::default()
            })
        };
        Self {
            shards: (0..SHARDS).map(|_| shard()).collect(),
            slab,
            slabs: 0.into(),
        }
    }

    /// A slab size that fits a budget: large ones, which have huge pages, where every shard gets several, whatever else the budget has to hold. A
    /// shard without any would read its blocks again and again.
    pub fn slab_for(budget: usize) -> usize {
        match budget >> 20 {
            0..128 => 8,
            128..1024 => 64,
            _ => HUGE,
        }
    }

    /// Bytes with which every shard has a slab.
    pub fn least(&self) -> usize {
        SHARDS * self.slab * FRAME_BYTES
    }

    fn shard(&self, block: u32) -> MutexGuard<'_, Shard> {
        let shard = &self.shards[block as usize % SHARDS];
        shard.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    /// Frames that a shard may have.
    fn capacity(&self, shard: usize) -> usize {
        let slabs = self.slabs.load(Ordering::Relaxed);
        (slabs / SHARDS + usize::from(shard < slabs % SHARDS)) * self.slab
    }

    /// Sets the budget; gives memory back at once when it shrank below what is held, spare frames first.
    pub fn resize(&self, bytes: usize) {
        let slabs = bytes / FRAME_BYTES / self.slab;
        if self.slabs.swap(slabs, Ordering::Relaxed) <= slabs {
            return;
        }
        for (i, shard) in self.shards.iter().enumerate() {
            shard
                .lock()
                .unwrap_or_else(|poison| poison.into_inner())
                .shrink(self.capacity(i));
        }
    }

    /// Bytes held now.
    pub fn memory(&self) -> usize {
        let frames = |s: &Mutex<Shard>| {
            let s = s.lock().unwrap_or_else(|poison| poison.into_inner());
            s.slabs.len() * self.slab * BLOCK + s.owner.capacity() * 8 + s.map.capacity() * 12
        };
        self.shards.iter().map(frames).sum()
    }

    /// Runs `f` on the block if it is here.
    #[inline]
    pub fn with<R>(&self, block: u32, f: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let mut shard = self.shard(block);
        let frame = *shard.map.get(&block)?;
        shard.owner[frame as usize].1 = true;
        Some(f(shard.frame(frame)))
    }

    /// Whether the block is here; counts as a use.
    pub fn touch(&self, block: u32) -> bool {
        let mut shard = self.shard(block);
        let Some(&frame) = shard.map.get(&block) else {
            return false;
        };
        shard.owner[frame as usize].1 = true;
        true
    }

    /// Whether the block is here; counts as a use, and asks for the cache lines that a search will read.
    pub fn fetch(&self, block: u32, guess: Guess) -> bool {
        let mut shard = self.shard(block);
        let Some(&frame) = shard.map.get(&block) else {
            return false;
        };
        shard.owner[frame as usize].1 = true;
        prefetch_near(shard.frame(frame), guess);
        true
    }

    /// Puts a block in unless it is here.
    pub fn insert_new(&self, block: u32, bytes: &[u8]) {
        if !self.touch(block) {
            self.insert(block, bytes);
        }
    }

    /// Whether the block is here.
    #[cfg(test)]
    pub fn holds(&self, block: u32) -> bool {
        self.shard(block).map.contains_key(&block)
    }

    /// Puts a copy of the block in, over an older one of the same number.
    pub fn insert(&self, block: u32, bytes: &[u8]) {
        let capacity = self.capacity(block as usize % SHARDS);
        let mut shard = self.shard(block);
        let known = shard.map.get(&block).copied();
        let Some(frame) = known.or_else(|| shard.victim(capacity)) else {
            return;
        };
        shard.map.insert(block, frame);
        shard.owner[frame as usize] = (block, true);
        shard.frame_mut(frame).copy_from_slice(bytes);
    }

    /// Puts a copy of a new block in while that pushes nothing out; an older one of the same number is forgotten in any case.
    pub fn offer(&self, block: u32, bytes: &[u8]) {
        self.remove(block);
        let capacity = self.capacity(block as usize % SHARDS);
        let shard = self.shard(block);
        let room = !shard.spare.is_empty() || shard.owner.len() < capacity;
        drop(shard);
        if room {
            self.insert(block, bytes);
        }
    }

    /// Forgets a block; true when it was here.
    pub fn remove(&self, block: u32) -> bool {
        let mut shard = self.shard(block);
        let Some(frame) = shard.map.remove(&block) else {
            return false;
        };
        shard.owner[frame as usize] = (0, false);
        shard.spare.push(frame);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_what_was_put_and_stays_within_its_budget() {
        let pool = Pool::new(8);
        pool.resize(64 * FRAME_BYTES * SHARDS);
        for b in 1..5000u32 {
            pool.insert(b, &[b as u8; BLOCK]);
            assert_eq!(pool.with(b, |p| p[17]), Some(b as u8));
        }
        let held = (1..5000).filter(|&b| pool.holds(b)).count();
        assert!(held <= 64 * SHARDS && held > 32 * SHARDS, "{held}");
        assert!(pool.remove(4999) && !pool.holds(4999));
        pool.insert(4998, &[9; BLOCK]);
        assert_eq!(pool.with(4998, |p| p[0]), Some(9));
        assert!(pool.memory() <= 64 * FRAME_BYTES * SHARDS);
        pool.resize(8 * FRAME_BYTES * SHARDS);
        assert!(pool.memory() <= 8 * FRAME_BYTES * SHARDS);
        pool.insert(1, &[3; BLOCK]);
        assert_eq!(pool.with(1, |p| p[0]), Some(3));
        pool.resize(0);
        pool.insert(1, &[3; BLOCK]);
        assert!(!pool.holds(1) && pool.memory() == 0);
    }
}
