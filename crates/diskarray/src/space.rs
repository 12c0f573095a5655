//! Which blocks are in use, and where the next ones come from.
//!
//! Blocks are handed out in runs inside segments of 1 MiB, so that copy-on-write turns scattered changes into large
//! writes: first segments that are free altogether, then, once a quarter of the file is free, the holes of the emptiest
//! segments, else new segments at the end. A freed block is not handed out again before the commit that freed it is durable
//! and no snapshot can reach it. The map is not stored: opening a file rebuilds it from the directory.

use std::collections::VecDeque;

/// Blocks of a segment. Tests use small ones, so that blocks are soon used again.
pub const SEGMENT: u32 = if cfg!(test) { 64 } else { 256 };
/// First blocks of the file, kept for superblocks.
pub const RESERVED: u32 = 64;
/// Block numbers stay below this; the bit above marks changed extents in memory.
pub const MAX_BLOCKS: u32 = 1 << 31;

/// A run of blocks: first block and length.
pub type Run = (u32, u32);

/// Blocks that wait to be free: runs while they are few, a bit a block when that is smaller.
#[derive(Default)]
struct Freed {
    runs: Vec<Run>,
    map: Vec<u64>,
    blocks: u64,
}

impl Freed {
    /// `total`: blocks of the file.
    fn add(&mut self, run: Run, total: u32) {
        self.blocks += u64::from(run.1);
        if !self.map.is_empty() {
            return self.set(run);
        }
        // A rewritten stretch frees its blocks in order: one run instead of thousands.
        match self.runs.last_mut() {
            Some(last) if last.0 + last.1 == run.0 => last.1 += run.1,
            _ => self.runs.push(run),
        }
        let bits = total as usize / 64 + 1;
        if self.runs.len() > bits.max(64) {
            self.map = vec![0; bits];
            std::mem::take(&mut self.runs)
                .into_iter()
                .for_each(|run| self.set(run));
        }
    }

    fn set(&mut self, run: Run) {
        let words = (run.0 + run.1) as usize / 64 + 1;
        if self.map.len() < words {
            self.map.resize(words, 0);
        }
        (run.0..run.0 + run.1).for_each(|b| self.map[b as usize / 64] |= 1 << (b % 64));
    }

    fn memory(&self) -> usize {
        self.runs.capacity() * 8 + self.map.capacity() * 8
    }
}

pub struct Space {
    used: Vec<u64>,
    live: Vec<u16>,
    total: u32,
    used_blocks: u32,
    /// Rest of the segment that is being filled.
    cursor: u32,
    cursor_end: u32,
    /// Emptiest segments, best last.
    candidates: Vec<u32>,
    /// Segments below this one are known to hold something.
    empty_hint: usize,
    freed: Freed,
    waiting: VecDeque<(u64, Freed)>,
    /// Allocate at the lowest free place, as compaction wants.
    pack: bool,
}

impl Space {
    /// A map of `total` free blocks, the superblocks aside.
    pub fn new(total: u32) -> Self {
        let mut space = Self {
            used: vec![],
            live: vec![],
            total: 0,
            used_blocks: 0,
            cursor: 0,
            cursor_end: 0,
            candidates: vec![],
            empty_hint: 0,
            freed: Freed::default(),
            waiting: VecDeque::new(),
            pack: false,
        };
        space.set_total(total.max(SEGMENT));
        space.mark((0, RESERVED));
        space
    }

    fn set_total(&mut self, total: u32) {
        self.total = total.next_multiple_of(SEGMENT);
        self.used.resize(self.total as usize / 64, 0);
        self.live.resize((self.total / SEGMENT) as usize, 0);
    }

    pub fn total(&self) -> u32 {
        self.total
    }

    /// Blocks in use, superblocks and blocks that wait for reuse included.
    pub fn used_blocks(&self) -> u32 {
        self.used_blocks
    }

    /// Freed blocks that a commit or snapshot still holds.
    pub fn waiting_blocks(&self) -> u64 {
        self.waiting.iter().map(|(_, freed)| freed.blocks).sum::<u64>() + self.freed.blocks
    }

    pub fn memory(&self) -> usize {
        let waiting: usize = self.waiting.iter().map(|(_, freed)| freed.memory()).sum();
        self.used.capacity() * 8 + self.live.capacity() * 2 + self.freed.memory() + waiting
    }

    pub fn is_used(&self, block: u32) -> bool {
        block >= self.total || self.used[block as usize / 64] >> (block % 64) & 1 == 1
    }

    /// Takes blocks that recovery found in use. False when one of them was taken already or lies outside.
    pub fn mark(&mut self, run: Run) -> bool {
        let end = run.0.checked_add(run.1).filter(|&end| end <= self.total);
        if end.is_none() || (run.0..run.0 + run.1).any(|b| self.is_used(b)) {
            return false;
        }
        for b in run.0..run.0 + run.1 {
            self.used[b as usize / 64] |= 1 << (b % 64);
            self.live[(b / SEGMENT) as usize] += 1;
        }
        self.used_blocks += run.1;
        true
    }

    /// Frees blocks at once, as recovery does before anything else is written.
    pub fn release(&mut self, run: Run) {
        for b in run.0..run.0 + run.1 {
            debug_assert!(self.is_used(b), "block {b} is freed twice");
            self.used[b as usize / 64] &= !(1 << (b % 64));
            let segment = (b / SEGMENT) as usize;
            self.live[segment] -= 1;
            if self.live[segment] == 0 {
                self.empty_hint = self.empty_hint.min(segment);
            }
        }
        self.used_blocks -= run.1;
    }

    /// Frees blocks at the next durable commit.
    pub fn free(&mut self, run: Run) {
        self.freed.add(run, self.total);
    }

    /// The commit of `epoch` is durable: what was freed before it may go once no snapshot is older.
    pub fn committed(&mut self, epoch: u64) {
        if self.freed.blocks > 0 {
            self.waiting.push_back((epoch, std::mem::take(&mut self.freed)));
        }
    }

    /// Gives back blocks freed by commits up to `oldest`, the oldest epoch that a reader holds.
    pub fn reclaim(&mut self, oldest: u64) {
        while self.waiting.front().is_some_and(|w| w.0 <= oldest) {
            let (_, freed) = self.waiting.pop_front().expect("front exists");
            freed.runs.into_iter().for_each(|run| self.release(run));
            for (word, bits) in (0..).zip(freed.map) {
                let mut rest = bits;
                while rest != 0 {
                    self.release((word * 64 + rest.trailing_zeros(), 1));
                    rest &= rest - 1;
                }
            }
            self.candidates.clear();
        }
    }

    /// Gives back what was freed since the last durable commit as well: a planted error for the fault suite.
    #[cfg(test)]
    pub fn reclaim_too_early(&mut self) {
        self.committed(0);
        self.reclaim(u64::MAX);
    }

    /// Next free run of at least `least` blocks at or after `from`, before `end`, cut to `want`.
    fn scan(&self, mut from: u32, end: u32, least: u32, want: u32) -> Option<Run> {
        while from < end {
            if self.is_used(from) {
                // Skip whole words of used blocks.
                let word = self.used[from as usize / 64] >> (from % 64);
                from += word.trailing_ones().max(1);
                continue;
            }
            let mut n = 0;
            while n < want && from + n < end && !self.is_used(from + n) {
                n += 1;
            }
            if n >= least {
                return Some((from, n));
            }
            from += n;
        }
        None
    }

    /// Takes a run of `least..=want` blocks, `least <= SEGMENT`. `None` at the end of the format.
    pub fn allocate(&mut self, least: u32, want: u32) -> Option<Run> {
        // Holes are looked through once a call: a large run may fit none of them.
        let mut refills = 1;
        loop {
            if self.pack {
                if let Some(run) = self.scan(0, self.total, least, want) {
                    self.mark(run);
                    return Some(run);
                }
                self.extend(1)?;
                continue;
            }
            if let Some(run) = self.scan(self.cursor, self.cursor_end, least, want) {
                self.cursor = run.0 + run.1;
                self.mark(run);
                return Some(run);
            }
            let segment = match self.next_segment(&mut refills) {
                Some(s) => s,
                None => self.extend(1)?,
            };
            self.cursor = segment * SEGMENT;
            self.cursor_end = self.cursor + SEGMENT;
        }
    }

    fn next_segment(&mut self, refills: &mut u32) -> Option<u32> {
        while self.empty_hint < self.live.len() {
            self.empty_hint += 1;
            if self.live[self.empty_hint - 1] == 0 {
                return Some(self.empty_hint as u32 - 1);
            }
        }
        if u64::from(self.used_blocks) * 4 > u64::from(self.total) * 3 {
            return None;
        }
        if self.candidates.is_empty() {
            *refills = refills.checked_sub(1)?;
            let sparse = |s: &u32| u32::from(self.live[*s as usize]) * 10 <= SEGMENT * 7;
            self.candidates = (0..self.live.len() as u32).filter(sparse).collect();
            self.candidates
                .sort_unstable_by_key(|&s| std::cmp::Reverse(self.live[s as usize]));
            if self.candidates.len() > 1024 {
                self.candidates.drain(..self.candidates.len() - 1024);
            }
        }
        self.candidates.pop()
    }

    /// Adds free segments at the end and returns the first.
    fn extend(&mut self, segments: u32) -> Option<u32> {
        let first = self.total / SEGMENT;
        let total = self
            .total
            .checked_add(segments * SEGMENT)
            .filter(|&t| t <= MAX_BLOCKS)?;
        self.set_total(total);
        Some(first)
    }

    /// Takes exactly `n` consecutive blocks, of any number.
    pub fn allocate_exact(&mut self, n: u32) -> Option<Run> {
        if n <= SEGMENT {
            return self.allocate(n, n);
        }
        let segments = n.div_ceil(SEGMENT);
        let mut streak = 0;
        for s in 0..self.live.len() as u32 {
            streak = if self.live[s as usize] == 0 { streak + 1 } else { 0 };
            if streak == segments {
                let run = ((s + 1 - segments) * SEGMENT, n);
                self.mark(run);
                return Some(run);
            }
        }
        let run = (self.extend(segments)? * SEGMENT, n);
        self.mark(run);
        Some(run)
    }

    /// From now on allocates at the lowest free place, or no longer.
    pub fn set_pack(&mut self, pack: bool) {
        self.pack = pack;
        self.empty_hint = 0;
        (self.cursor, self.cursor_end) = (0, 0);
        self.candidates.clear();
    }

    /// Drops free segments from the end; returns the new total.
    pub fn shrink(&mut self) -> u32 {
        while self.live.len() > 1 && self.live.last() == Some(&0) {
            self.live.pop();
        }
        self.total = self.live.len() as u32 * SEGMENT;
        self.used.truncate(self.total as usize / 64);
        (self.cursor, self.cursor_end, self.empty_hint) = (0, 0, 0);
        self.candidates.clear();
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_blocks_wait_for_commit_and_readers() {
        let mut s = Space::new(SEGMENT * 4);
        let a = s.allocate(1, 50).unwrap();
        s.free(a);
        s.reclaim(u64::MAX);
        assert!(s.is_used(a.0), "not committed yet");
        s.committed(5);
        s.reclaim(4);
        assert!(s.is_used(a.0), "a reader of epoch 4 may look at it");
        s.reclaim(5);
        assert!(!s.is_used(a.0));
        assert_eq!(s.used_blocks(), RESERVED);
    }

    #[test]
    fn runs_never_overlap_and_holes_are_filled() {
        let mut s = Space::new(SEGMENT);
        let mut runs: Vec<Run> = vec![];
        let mut seed = 7u64;
        for step in 0..4000u64 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
            if seed >> 40 & 3 == 0 && !runs.is_empty() {
                let run = runs.swap_remove((seed >> 20) as usize % runs.len());
                s.free(run);
                s.committed(step);
                s.reclaim(step);
            } else {
                let want = 1 + (seed >> 50) as u32 % 9;
                let run = s.allocate(1, want).unwrap();
                assert!(run.1 >= 1 && run.1 <= want && run.0 >= RESERVED);
                assert!(runs.iter().all(|r| run.0 + run.1 <= r.0 || r.0 + r.1 <= run.0));
                runs.push(run);
            }
        }
        let used: u32 = runs.iter().map(|r| r.1).sum();
        assert_eq!(s.used_blocks(), used + RESERVED);
        runs.drain(..).for_each(|r| s.free(r));
        s.committed(9999);
        s.reclaim(9999);
        assert_eq!(s.shrink(), SEGMENT);
        let big = s.allocate_exact(1000).unwrap();
        assert_eq!(big.1, 1000);
    }
}
