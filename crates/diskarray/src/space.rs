//! Which blocks are in use, and where the next ones come from.
//!
//! Blocks are handed out in runs inside segments of 1 MiB, so that copy-on-write turns scattered changes into large
//! writes: first segments that are free altogether, then, once a quarter of the file is free, the holes of the emptiest
//! segments, else new segments at the end. A freed block is not handed out again before the commit that freed it is durable
//! and no snapshot can reach it. The map is not stored: opening a file rebuilds it from the directory.
//!
//! Free segments beyond what recent commits took, and a sixteenth of what is in use, are *absent*: the file system has them back, as holes or by a
//! shorter file. Writing where the file system has to find storage first takes twice the time and more, so a store that goes on to replace much at each
//! commit keeps the room for it.

use std::collections::VecDeque;

/// Blocks of a segment. Tests use small ones, so that blocks are soon used again.
pub const SEGMENT: u32 = if cfg!(test) { 16 } else { 256 };
/// First blocks of the file, kept for superblocks.
pub const RESERVED: u32 = 64;
/// Blocks of the shortest file: whole segments.
pub const LEAST: u32 = RESERVED.div_ceil(SEGMENT) * SEGMENT;
/// Block numbers stay below this; the bit above marks changed extents in memory.
pub const MAX_BLOCKS: u32 = 1 << 31;
/// Most segments by which a file grows, or whose storage is given back, in one go: some milliseconds.
const STRETCH: u32 = 64;

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
    /// A bit a segment: free, and without storage.
    absent: Vec<u64>,
    absent_segments: u32,
    /// Segments that are free and have storage.
    empty: u32,
    /// Blocks handed out since the last durable commit.
    demand: u32,
    /// What commits took of late, in blocks; ebbs from commit to commit.
    keep: u32,
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
            absent: vec![],
            absent_segments: 0,
            empty: 0,
            demand: 0,
            keep: 0,
            pack: false,
        };
        space.set_total(total.max(LEAST));
        space.empty = space.total / SEGMENT;
        space.mark((0, RESERVED));
        space
    }

    fn set_total(&mut self, total: u32) {
        self.total = total.next_multiple_of(SEGMENT);
        self.used.resize((self.total as usize).div_ceil(64), 0);
        self.live.resize((self.total / SEGMENT) as usize, 0);
        self.absent.resize(self.live.len().div_ceil(64), 0);
    }

    fn is_absent(&self, segment: u32) -> bool {
        self.absent[segment as usize / 64] >> (segment % 64) & 1 == 1
    }

    fn is_empty(&self, segment: u32) -> bool {
        self.live[segment as usize] == 0 && !self.is_absent(segment)
    }

    /// Changes whether a segment has storage.
    fn set_absent(&mut self, segment: u32, absent: bool) {
        debug_assert!(self.is_absent(segment) != absent);
        let was_empty = self.is_empty(segment);
        self.absent[segment as usize / 64] ^= 1 << (segment % 64);
        match absent {
            true => self.absent_segments += 1,
            false => self.absent_segments -= 1,
        }
        self.empty = self.empty + u32::from(self.is_empty(segment)) - u32::from(was_empty);
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
        let maps = (self.used.capacity() + self.absent.capacity()) * 8 + self.live.capacity() * 2;
        maps + self.freed.memory() + waiting
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
            self.empty -= u32::from(self.is_empty(b / SEGMENT));
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
            if self.is_empty(b / SEGMENT) {
                self.empty += 1;
                self.empty_hint = self.empty_hint.min(segment);
            }
        }
        self.used_blocks -= run.1;
    }

    /// Takes back the end of a run just handed out, of which nothing was written: the next run goes on there.
    pub fn give_back(&mut self, rest: Run) {
        self.release(rest);
        self.demand = self.demand.saturating_sub(rest.1);
        if self.cursor == rest.0 + rest.1 {
            self.cursor = rest.0;
        }
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

    /// Takes a run of `least..=want` blocks, which may lie in an absent segment; more than a segment only where `least` is `want`. `None` at the end
    /// of the format.
    pub fn allocate(&mut self, least: u32, want: u32) -> Option<Run> {
        let run = if least > SEGMENT {
            self.allocate_exact(least)
        } else {
            self.allocate_within(least, want)
        }?;
        self.demand += run.1;
        Some(run)
    }

    /// A run inside of a segment.
    fn allocate_within(&mut self, least: u32, want: u32) -> Option<Run> {
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
            if self.is_empty(self.empty_hint as u32 - 1) {
                return Some(self.empty_hint as u32 - 1);
            }
        }
        let stored = self.total - self.absent_segments * SEGMENT;
        if u64::from(self.used_blocks) * 4 > u64::from(stored) * 3 {
            return self.first_absent();
        }
        if self.candidates.is_empty() {
            let Some(left) = refills.checked_sub(1) else {
                return self.first_absent();
            };
            *refills = left;
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

    /// The first absent segment that nothing was taken of.
    fn first_absent(&self) -> Option<u32> {
        let words = (0..).zip(&self.absent).filter(|(_, bits)| **bits != 0);
        let mut segments = words.flat_map(|(word, bits)| {
            (0..64)
                .filter(move |bit| bits >> bit & 1 == 1)
                .map(move |bit| word * 64 + bit)
        });
        segments.find(|&s| self.live[s as usize] == 0)
    }

    /// Adds `segments` absent segments at the end, or more, to be provided together; returns the first.
    fn extend(&mut self, segments: u32) -> Option<u32> {
        let first = self.total / SEGMENT;
        let most = (MAX_BLOCKS - self.total) / SEGMENT;
        let added = segments.max((first / 8).min(STRETCH)).min(most);
        if added < segments {
            return None;
        }
        self.set_total(self.total + added * SEGMENT);
        // They count as empty until then.
        self.empty += added;
        (first..first + added).for_each(|s| self.set_absent(s, true));
        Some(first)
    }

    /// The first absent segments that a run reaches, and those behind them, up to [`STRETCH`], as blocks.
    pub fn absent_stretch(&self, run: Run) -> Option<Run> {
        let last = (run.0 + run.1 - 1) / SEGMENT;
        let first = (run.0 / SEGMENT..=last).find(|&s| self.is_absent(s))?;
        let end = (first..self.total / SEGMENT).take(STRETCH as usize);
        let n = end.take_while(|&s| self.is_absent(s)).count() as u32;
        Some((first * SEGMENT, n * SEGMENT))
    }

    /// All segments that a run reaches have storage now.
    pub fn provided(&mut self, run: Run) {
        for segment in run.0 / SEGMENT..=(run.0 + run.1 - 1) / SEGMENT {
            if self.is_absent(segment) {
                self.set_absent(segment, false);
                self.empty_hint = self.empty_hint.min(segment as usize);
            }
        }
    }

    /// A commit is durable: takes storage from free segments that commits like the recent ones will not need, a stretch at most, the last first. Runs of
    /// blocks, absent from now on.
    pub fn trim(&mut self) -> Vec<Run> {
        let ebb = self.keep.div_ceil(32);
        self.keep = std::mem::take(&mut self.demand).max(self.keep - ebb);
        let slack = (self.used_blocks / 16 / SEGMENT).max(1);
        let surplus = self.empty.saturating_sub(self.keep.div_ceil(SEGMENT) + slack);
        let mut runs: Vec<Run> = vec![];
        if surplus < slack {
            return runs;
        }
        let mut left = surplus.min(STRETCH);
        let filling = self.cursor / SEGMENT;
        for s in (0..self.total / SEGMENT).rev() {
            if left == 0 {
                break;
            }
            if !self.is_empty(s) || s == filling {
                continue;
            }
            self.set_absent(s, true);
            left -= 1;
            match runs.last_mut() {
                Some(last) if last.0 == (s + 1) * SEGMENT => *last = (s * SEGMENT, last.1 + SEGMENT),
                _ => runs.push((s * SEGMENT, SEGMENT)),
            }
        }
        runs
    }

    /// Takes exactly `n` consecutive blocks, more than a segment.
    fn allocate_exact(&mut self, n: u32) -> Option<Run> {
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

    /// Drops free segments from the end, or only absent ones; returns the new total.
    pub fn shrink(&mut self, only_absent: bool) -> u32 {
        let before = self.total;
        while self.live.len() > 1 && self.live.last() == Some(&0) {
            let last = self.live.len() as u32 - 1;
            if self.is_absent(last) {
                self.set_absent(last, false);
            } else if only_absent {
                break;
            }
            self.empty -= 1;
            self.live.pop();
        }
        self.total = self.live.len() as u32 * SEGMENT;
        if self.total == before {
            return before;
        }
        self.used.truncate((self.total as usize).div_ceil(64));
        self.absent.truncate(self.live.len().div_ceil(64));
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
    fn storage_follows_what_commits_take() {
        let mut s = Space::new(SEGMENT);
        let take = |s: &mut Space, n: u32| -> Vec<Run> {
            let runs = (0..n).map(|_| s.allocate(SEGMENT, SEGMENT).unwrap());
            let runs: Vec<Run> = runs.collect();
            runs.iter().for_each(|&run| s.provided(run));
            runs
        };
        let present = |s: &Space| s.total() / SEGMENT - s.absent_segments;
        let data = take(&mut s, 40);
        assert_eq!(s.trim(), []);
        // All is replaced, and would be again.
        let new = take(&mut s, 40);
        data.into_iter().for_each(|run| s.release(run));
        assert_eq!(s.trim(), []);
        assert!(present(&s) >= 81);
        // Commits grow small: the room ebbs away, but for a sixteenth of what is in use.
        let mut trimmed = 0;
        for _ in 0..200 {
            s.demand += 1;
            trimmed += s.trim().iter().map(|run| run.1 / SEGMENT).sum::<u32>();
        }
        assert!(trimmed >= 36, "{trimmed}");
        let held = 40 + LEAST / SEGMENT;
        assert!((held + 1..=held + 5).contains(&present(&s)), "{}", present(&s));
        assert_eq!(s.empty, present(&s) - held);
        // What is absent comes back in one stretch before the file grows.
        let total = s.total();
        let again = take(&mut s, 20);
        let run = s.allocate(SEGMENT, SEGMENT).unwrap();
        assert!(
            s.absent_stretch(run)
                .is_some_and(|stretch| stretch.0 == run.0 && stretch.1 >= run.1)
        );
        assert_eq!(s.total(), total);
        again.into_iter().chain(new).for_each(|run| s.release(run));
        assert!(s.shrink(false) < total);
        assert_eq!(
            s.empty,
            (0..s.total() / SEGMENT).filter(|&i| s.is_empty(i)).count() as u32
        );
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
        assert_eq!(s.shrink(false), LEAST);
        let big = s.allocate(1000, 1000).unwrap();
        assert_eq!(big.1, 1000);
    }
}
