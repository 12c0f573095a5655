//! Directory nodes: sorted entries with counts, in memory and on disk.
//!
//! ```text
//!  0 u32 checksum of bytes 4..16384, seeded as for extents
//!  4 u16 magic 0xDA5D     6 u8 format    7 u8 level (1: entries are extents)
//!  8 u32 entries         12 u32 file id  16 u64 epoch
//! 24 u64 low, 32 u64 high: range of keys, inclusive     40 u64 keys below this node     48 zero
//! 64 columns: first key u64, count (level 1: u32, above: u64), block u32, checksum of the child u32
//! ```
//!
//! In memory each node also keeps a subtotal of the counts of every 64 entries, so that a rank costs a short sum and a changed count
//! touches two numbers.

use crate::buf::BLOCK;
use crate::codec::{FORMAT, checksum, u32_at, u64_at};
use std::sync::Arc;

/// Blocks of a node.
pub const NODE_BLOCKS: u32 = 4;
/// Bytes of a node.
pub const NODE_BYTES: usize = BLOCK * NODE_BLOCKS as usize;
const NODE_HEADER: usize = 64;
/// Marks a node.
const MAGIC: u16 = 0xDA5D;
/// Most levels a sane file can have.
pub const MAX_LEVEL: u8 = 8;
/// Entry of an extent that was never written and holds nothing; above level 1: a child that is only in memory.
pub const NOWHERE: u32 = 0;
/// Marks the location of an extent that is changed in memory; the rest is its slot.
pub const CHANGED: u32 = 1 << 31;

/// Counts are summed in stretches of this many entries.
const STRETCH: usize = 64;

/// One child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: u64,
    pub count: u64,
    pub loc: u32,
    pub sum: u32,
}

#[derive(Clone, Debug)]
enum Counts {
    Narrow(Vec<u32>),
    Wide(Vec<u64>),
}

impl Counts {
    fn get(&self, i: usize) -> u64 {
        match self {
            Self::Narrow(v) => v[i].into(),
            Self::Wide(v) => v[i],
        }
    }
    fn set(&mut self, i: usize, n: u64) {
        match self {
            Self::Narrow(v) => v[i] = n as u32,
            Self::Wide(v) => v[i] = n,
        }
    }
    fn push(&mut self, n: u64) {
        match self {
            Self::Narrow(v) => v.push(n as u32),
            Self::Wide(v) => v.push(n),
        }
    }
    fn sum(&self, from: usize, to: usize) -> u64 {
        match self {
            Self::Narrow(v) => v[from..to].iter().map(|&n| u64::from(n)).sum(),
            Self::Wide(v) => v[from..to].iter().sum(),
        }
    }
}

/// A node in memory.
#[derive(Clone, Debug)]
pub struct Node {
    pub level: u8,
    pub keys: Vec<u64>,
    counts: Counts,
    pub locs: Vec<u32>,
    pub sums: Vec<u32>,
    /// Children held in memory; empty at level 1.
    pub kids: Vec<Option<Arc<Node>>>,
    subtotals: Vec<u64>,
    pub total: u64,
}

/// Most entries of a node of a level. Tests use small nodes, to get deep trees from few keys.
pub fn max_entries(level: u8) -> usize {
    if cfg!(test) { 12 } else { capacity(level) }
}

fn capacity(level: u8) -> usize {
    (NODE_BYTES - NODE_HEADER) / if level == 1 { 20 } else { 24 }
}

/// Below this many entries a node looks for a neighbour to join.
pub fn min_entries(level: u8) -> usize {
    max_entries(level) / 4
}

impl Node {
    pub fn new(level: u8, capacity: usize) -> Self {
        let counts = if level == 1 {
            Counts::Narrow(Vec::with_capacity(capacity))
        } else {
            Counts::Wide(Vec::with_capacity(capacity))
        };
        Self {
            level,
            keys: Vec::with_capacity(capacity),
            counts,
            locs: Vec::with_capacity(capacity),
            sums: Vec::with_capacity(capacity),
            kids: Vec::with_capacity(if level == 1 { 0 } else { capacity }),
            subtotals: Vec::with_capacity(capacity.div_ceil(STRETCH)),
            total: 0,
        }
    }

    /// The root of an empty tree.
    pub fn empty() -> Self {
        let mut node = Self::new(1, 1);
        node.push(
            Entry {
                key: 0,
                count: 0,
                loc: NOWHERE,
                sum: 0,
            },
            None,
        );
        node
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub fn push(&mut self, e: Entry, kid: Option<Arc<Node>>) {
        if self.keys.len().is_multiple_of(STRETCH) {
            self.subtotals.push(0);
        }
        *self.subtotals.last_mut().expect("pushed above") += e.count;
        self.total += e.count;
        self.keys.push(e.key);
        self.counts.push(e.count);
        self.locs.push(e.loc);
        self.sums.push(e.sum);
        if self.level > 1 {
            self.kids.push(kid);
        }
    }

    pub fn entry(&self, i: usize) -> Entry {
        Entry {
            key: self.keys[i],
            count: self.counts.get(i),
            loc: self.locs[i],
            sum: self.sums[i],
        }
    }

    pub fn count(&self, i: usize) -> u64 {
        self.counts.get(i)
    }

    /// Entry whose range holds `key`; `key` is not below the first.
    pub fn find(&self, key: u64) -> usize {
        self.keys.partition_point(|&k| k <= key).saturating_sub(1)
    }

    /// Sum of the counts before entry `i`.
    pub fn before(&self, i: usize) -> u64 {
        let stretch = i / STRETCH;
        self.subtotals[..stretch].iter().sum::<u64>() + self.counts.sum(stretch * STRETCH, i)
    }

    /// Entry that holds the `rank`-th key, and the sum of counts before it; `rank < total`.
    pub fn find_rank(&self, rank: u64) -> (usize, u64) {
        let (mut stretch, mut before) = (0, 0);
        while stretch + 1 < self.subtotals.len() && before + self.subtotals[stretch] <= rank {
            before += self.subtotals[stretch];
            stretch += 1;
        }
        let mut i = stretch * STRETCH;
        while i + 1 < self.len() && before + self.counts.get(i) <= rank {
            before += self.counts.get(i);
            i += 1;
        }
        (i, before)
    }

    pub fn set_count(&mut self, i: usize, count: u64) {
        let old = self.counts.get(i);
        self.counts.set(i, count);
        let stretch = &mut self.subtotals[i / STRETCH];
        *stretch = stretch.wrapping_sub(old).wrapping_add(count);
        self.total = self.total.wrapping_sub(old).wrapping_add(count);
    }

    /// Replaces location and checksum of an entry.
    pub fn set_place(&mut self, i: usize, loc: u32, sum: u32) {
        self.locs[i] = loc;
        self.sums[i] = sum;
    }

    /// A wrong subtotal, for the fault suite.
    #[cfg(test)]
    pub fn spoil_subtotal(&mut self) {
        self.subtotals[0] += 1;
    }

    /// The entries `from..to` with their children, as a new node.
    pub fn slice(&self, from: usize, to: usize) -> Node {
        let mut node = Node::new(self.level, to - from);
        for i in from..to {
            node.push(self.entry(i), self.kids.get(i).cloned().flatten());
        }
        node
    }

    /// Replaces entries `from..to`.
    pub fn splice(
        &mut self,
        from: usize,
        to: usize,
        new: impl ExactSizeIterator<Item = (Entry, Option<Arc<Node>>)>,
    ) {
        let mut node = Node::new(self.level, self.len() + new.len() - (to - from));
        for i in 0..from {
            node.push(self.entry(i), self.kids.get_mut(i).and_then(Option::take));
        }
        for (entry, kid) in new {
            node.push(entry, kid);
        }
        for i in to..self.len() {
            node.push(self.entry(i), self.kids.get_mut(i).and_then(Option::take));
        }
        *self = node;
    }

    /// Heap bytes of this node alone.
    pub fn memory(&self) -> usize {
        let counts = match &self.counts {
            Counts::Narrow(v) => v.capacity() * 4,
            Counts::Wide(v) => v.capacity() * 8,
        };
        let columns = self.keys.capacity() * 8 + self.locs.capacity() * 4 + self.sums.capacity() * 4;
        size_of::<Self>() + counts + columns + self.kids.capacity() * 8 + self.subtotals.capacity() * 8
    }

    /// Whether subtotals and total agree with the counts, and keys ascend.
    pub fn check(&self) -> Result<(), &'static str> {
        if !self.keys.is_sorted_by(|a, b| a < b) {
            return Err("keys of a directory node do not ascend");
        }
        let mut total = 0;
        for (s, &sum) in self.subtotals.iter().enumerate() {
            if self
                .counts
                .sum(s * STRETCH, (s * STRETCH + STRETCH).min(self.len()))
                != sum
            {
                return Err("a subtotal of a directory node differs from its counts");
            }
            total += sum;
        }
        if total == self.total {
            Ok(())
        } else {
            Err("the total of a directory node differs from its subtotals")
        }
    }

    /// Writes the node into `out` (16 KiB) and returns its checksum.
    pub fn write(&self, out: &mut [u8], range: (u64, u64), epoch: u64, block: u32, file_id: u32) -> u32 {
        out.fill(0);
        out[4..6].copy_from_slice(&MAGIC.to_le_bytes());
        out[6] = FORMAT;
        out[7] = self.level;
        out[8..12].copy_from_slice(&(self.len() as u32).to_le_bytes());
        out[12..16].copy_from_slice(&file_id.to_le_bytes());
        out[16..24].copy_from_slice(&epoch.to_le_bytes());
        out[24..32].copy_from_slice(&range.0.to_le_bytes());
        out[32..40].copy_from_slice(&range.1.to_le_bytes());
        out[40..48].copy_from_slice(&self.total.to_le_bytes());
        let mut at = NODE_HEADER;
        let mut put = |bytes: &[u8]| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        self.keys.iter().for_each(|k| put(&k.to_le_bytes()));
        match &self.counts {
            Counts::Narrow(v) => v.iter().for_each(|n| put(&n.to_le_bytes())),
            Counts::Wide(v) => v.iter().for_each(|n| put(&n.to_le_bytes())),
        }
        self.locs.iter().for_each(|l| put(&l.to_le_bytes()));
        self.sums.iter().for_each(|s| put(&s.to_le_bytes()));
        let sum = checksum(out, block, file_id);
        out[..4].copy_from_slice(&sum.to_le_bytes());
        sum
    }

    /// Reads a node back; `Err` says what is wrong.
    pub fn read(bytes: &[u8], expect: &Expect, file_id: u32) -> Result<Self, &'static str> {
        let sum = checksum(bytes, expect.block, file_id);
        if u32_at(bytes, 0) != sum || bytes[4..6] != MAGIC.to_le_bytes() {
            return Err("checksum of the directory node does not match its bytes");
        }
        if sum != expect.sum {
            return Err(
                "directory node is valid but not the one its parent names (a lost or misplaced write)",
            );
        }
        let (level, n) = (bytes[7], u32_at(bytes, 8) as usize);
        if bytes[6] != FORMAT || level != expect.level || n == 0 || level == 0 || n > capacity(level) {
            return Err("directory node header contradicts its parent");
        }
        let keys_at = NODE_HEADER;
        let counts_at = keys_at + n * 8;
        let locs_at = counts_at + n * if level == 1 { 4 } else { 8 };
        let sums_at = locs_at + n * 4;
        let mut node = Node::new(level, n);
        for i in 0..n {
            let count = if level == 1 {
                u32_at(bytes, counts_at + i * 4).into()
            } else {
                u64_at(bytes, counts_at + i * 8)
            };
            let (loc, sum) = (u32_at(bytes, locs_at + i * 4), u32_at(bytes, sums_at + i * 4));
            if loc & CHANGED != 0 || (loc == NOWHERE && (level > 1 || count > 0)) || count > 1 << 50 {
                return Err("directory entry without a place");
            }
            node.push(
                Entry {
                    key: u64_at(bytes, keys_at + i * 8),
                    count,
                    loc,
                    sum,
                },
                None,
            );
        }
        node.check()?;
        if node.keys[0] != expect.low || node.keys[n - 1] > expect.high || node.total != expect.total {
            return Err("directory node does not cover the keys its parent expects");
        }
        Ok(node)
    }
}

/// What a parent says about a child node.
#[derive(Clone, Copy, Debug)]
pub struct Expect {
    pub block: u32,
    pub sum: u32,
    pub level: u8,
    pub low: u64,
    pub high: u64,
    pub total: u64,
}
