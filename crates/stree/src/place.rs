//! Laying keys into buckets that their values name, spilling to the right: common to the bucket and the digest index.
//!
//! Key `i` of a sorted sequence wants bucket `home[i]`, which never decreases; a bucket has `capacity` slots. Filling from the
//! left, the slot of a key is the first free one in or after its home: `max(slot[i - 1] + 1, capacity * home[i])`, which is
//! `i + max over j <= i of (capacity * home[j] - j)`. A running maximum can be cut into parts, so threads can fill in parallel.

use crate::error::{Error, Result};
use crate::kernel::Line;
use crate::memory::LineBuffer;

/// Farthest that a key may lie from its home, in buckets.
pub(crate) const REACH: u64 = 64;

/// What to lay out, and how.
pub(crate) struct Plan<H, S, W> {
    /// Number of keys.
    pub keys: usize,
    /// Slots per bucket.
    pub capacity: usize,
    /// Lines per bucket.
    pub lines: usize,
    /// Number of different homes.
    pub homes: u64,
    /// Home of a key.
    pub home: H,
    /// Begins a bucket: its lines, and how many keys lie before it.
    pub start: S,
    /// Writes a key: the lines of its bucket, its slot there, its number, and how many buckets it is from home.
    pub write: W,
    /// Name of the layout in errors.
    pub layout: &'static str,
    /// Largest distance from home that the layout bears.
    pub reach: u64,
}

/// Buckets, filled.
pub(crate) struct Placed {
    pub lines: LineBuffer,
    /// Farthest that a key lies from its home.
    pub reach: u64,
    /// Number of keys that are not at home.
    pub spilled: u64,
}

/// A range of keys that fills a range of buckets alone.
#[derive(Clone, Copy, Debug)]
struct Part {
    first: usize,
    /// The running maximum before the first key.
    maximum: i64,
    bucket: usize,
}

impl<H, S, W> Plan<H, S, W>
where
    H: Fn(usize) -> u64 + Sync,
    S: Fn(&mut [Line], u64) + Sync,
    W: Fn(&mut [Line], usize, usize, u64) + Sync,
{
    /// The running maximum after a key.
    #[inline(always)]
    fn advance(&self, maximum: i64, key: usize) -> i64 {
        maximum.max(((self.home)(key) * self.capacity as u64) as i64 - key as i64)
    }

    fn bucket(&self, maximum: i64, key: usize) -> usize {
        (maximum + key as i64) as usize / self.capacity
    }

    /// Number of buckets, farthest distance from home and number of keys not at home, without filling anything.
    pub(crate) fn measure(&self) -> (u64, u64, u64) {
        let (mut maximum, mut reach, mut spilled) = (0, 0, 0);
        for key in 0..self.keys {
            maximum = self.advance(maximum, key);
            let away = self.bucket(maximum, key) as u64 - (self.home)(key);
            reach = reach.max(away);
            spilled += u64::from(away > 0);
        }
        let used = self
            .keys
            .checked_sub(1)
            .map_or(0, |last| self.bucket(maximum, last) as u64 + 1);
        (used.max(self.homes).max(1), reach, spilled)
    }

    /// Fills all buckets.
    pub(crate) fn place(&self, threads: usize) -> Result<Placed> {
        let part = self.keys.div_ceil(threads.max(1)).max(1 << 12);
        let starts: Vec<usize> = (0..self.keys).step_by(part).collect();
        let maxima = parallel(starts.clone(), |first| {
            (first..(first + part).min(self.keys)).fold(i64::MIN, |maximum, key| self.advance(maximum, key))
        });
        let mut maximum = 0;
        let mut parts: Vec<Part> = Vec::new();
        for (first, own) in starts.into_iter().zip(maxima) {
            let mut at = Part {
                first,
                maximum,
                bucket: 0,
            };
            // Move the cut to where a new bucket begins.
            while first > 0 && at.first < self.keys {
                let before = self.bucket(at.maximum, at.first - 1);
                at.bucket = self.bucket(self.advance(at.maximum, at.first), at.first);
                if at.bucket > before {
                    break;
                }
                at.maximum = self.advance(at.maximum, at.first);
                at.first += 1;
            }
            if at.first < self.keys && parts.last().is_none_or(|last| last.first < at.first) {
                parts.push(at);
            }
            maximum = maximum.max(own);
        }
        let used = self
            .keys
            .checked_sub(1)
            .map_or(0, |last| self.bucket(maximum, last) + 1);
        let buckets = used.max(self.homes as usize).max(1);
        let bytes = || Error::Memory {
            bytes: u64::MAX,
            source: std::io::ErrorKind::OutOfMemory.into(),
        };
        let mut lines = LineBuffer::zeroed(buckets.checked_mul(self.lines).ok_or_else(bytes)?)?;
        let mut work = Vec::new();
        let mut rest = lines.lines_mut();
        if parts.is_empty() {
            parts.push(Part {
                first: 0,
                maximum: 0,
                bucket: 0,
            });
        }
        for (index, from) in parts.iter().enumerate() {
            let (end, end_bucket) = match parts.get(index + 1) {
                Some(next) => (next.first, next.bucket),
                None => (self.keys, buckets),
            };
            let (own, others) = rest.split_at_mut((end_bucket - from.bucket) * self.lines);
            rest = others;
            work.push((*from, end, own));
        }
        let results = parallel(work, |(from, end, own)| self.fill(from, end, own));
        let reach = results.iter().map(|&(reach, _)| reach).max().unwrap_or(0);
        let spilled = results.iter().map(|&(_, spilled)| spilled).sum();
        if reach > self.reach.min(REACH) {
            let why = format!("a key would lie {reach} buckets from where it belongs");
            return Err(Error::Uneven {
                layout: self.layout,
                why,
            });
        }
        Ok(Placed {
            lines,
            reach,
            spilled,
        })
    }

    /// Fills the buckets of one part. Returns the farthest distance from home and the number of keys not at home. Keys too
    /// far from home are counted but not written.
    fn fill(&self, from: Part, end: usize, lines: &mut [Line]) -> (u64, u64) {
        let mut buckets = lines.chunks_exact_mut(self.lines);
        let mut at = from.bucket;
        let mut maximum = from.maximum;
        let (mut reach, mut spilled) = (0, 0);
        let mut current = buckets.next();
        if let Some(bucket) = &mut current {
            (self.start)(bucket, from.first as u64);
        }
        for key in from.first..end {
            maximum = self.advance(maximum, key);
            let slot = (maximum + key as i64) as usize;
            while at < slot / self.capacity {
                at += 1;
                current = buckets.next();
                if let Some(bucket) = &mut current {
                    (self.start)(bucket, key as u64);
                }
            }
            let away = at as u64 - (self.home)(key);
            reach = reach.max(away);
            spilled += u64::from(away > 0);
            if let (Some(bucket), true) = (&mut current, away <= self.reach) {
                (self.write)(bucket, slot % self.capacity, key, away);
            }
        }
        buckets.for_each(|bucket| (self.start)(bucket, end as u64));
        (reach, spilled)
    }
}

/// Why a layout cannot be.
pub(crate) fn too_far(reach: u64) -> String {
    format!("a key would lie {reach} buckets from where it belongs")
}

/// Applies `work` to every item, each on a thread of its own if there are several.
fn parallel<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    if items.len() < 2 {
        return items.into_iter().map(work).collect();
    }
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = items
            .into_iter()
            .map(|item| scope.spawn(move || work(item)))
            .collect();
        let results = threads.into_iter().map(|thread| thread.join());
        results
            .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}
