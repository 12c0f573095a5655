//! Superblocks and log records: what a commit writes besides extents.
//!
//! A checkpoint names a directory on disk and a run of blocks for the log that follows it:
//!
//! ```text
//! superblock, one block, four copies at blocks 0, 16, 32, 48
//!   0 u32 checksum (as for extents)     4 12 bytes "osmill.disk\0"    16 u32 format
//!  20 u32 file id     24 u64 sequence   32 u64 epoch    40 u64 keys
//!  48 u32 root block, 52 u32 root checksum, 56 u32 root level
//!  60 u32 log block,  64 u32 log blocks
//!  68 u8 columns, 69 8 x u8 column bytes, 77 u8 encoding (0 raw, 1 packed), 78 u16 metadata bytes
//!  80 metadata
//! ```
//!
//! Checkpoint `n` writes the copy at block `16 * (n % 2)`, flushes, and then, without waiting, its twin 32 blocks further: at any moment
//! at most one copy is being written, each parity has a whole one, and the highest valid sequence is the truth.
//!
//! ```text
//! log record, block aligned, records follow each other from the start of the run
//!   0 u32 checksum (bytes 4..length)  4 u16 magic 0xDA5C  6 u8 format  7 u8 kind: 1 delta, 2 operations
//!   8 u32 length   12 u32 chain: checksum of the record before, or a hash of file id and sequence
//!  16 u64 epoch    24 u64 keys after it    32 u32 metadata bytes   36 u32 items   40 zero
//!  48 metadata, then items
//! delta item       u64 low, u64 high, u32 n, n x { u64 first key, u32 count, u32 block, u32 checksum }:
//!                  the extents that answer for low..=high from now on
//! operations item  u64 key, u8 1 put | 0 remove, value bytes if put
//! ```

use crate::buf::{AlignedBuf, BLOCK};
use crate::codec::{Encoding, FORMAT, checksum, u32_at, u64_at};
use crate::node::Entry;
use crate::space::Run;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Most bytes of the caller's metadata.
pub const MAX_METADATA: usize = 1024;
const NAME: &[u8; 12] = b"osmill.disk\0";
const RECORD_MAGIC: u16 = 0xDA5C;
const RECORD_HEADER: usize = 48;

/// Blocks of the copies of a checkpoint: the one written first, then its twin.
pub fn places(sequence: u64) -> [u32; 2] {
    let first = (sequence % 2) as u32 * 16;
    [first, first + 32]
}

/// A checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    pub file_id: u32,
    pub sequence: u64,
    pub epoch: u64,
    pub count: u64,
    pub root: u32,
    pub root_sum: u32,
    pub root_level: u8,
    pub log: Run,
    pub columns: Vec<u8>,
    pub encoding: Encoding,
    pub metadata: Vec<u8>,
}

/// Why a block is not a superblock.
pub enum NoSuperblock {
    /// Nothing of ours.
    Foreign,
    /// Ours, of another version.
    Version(u32),
    /// Ours, and damaged.
    Damaged,
}

impl Superblock {
    pub fn write(&self, block: u32) -> AlignedBuf {
        let mut out = AlignedBuf::new(1);
        out[4..16].copy_from_slice(NAME);
        out[16..20].copy_from_slice(&u32::from(FORMAT).to_le_bytes());
        out[20..24].copy_from_slice(&self.file_id.to_le_bytes());
        out[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        out[32..40].copy_from_slice(&self.epoch.to_le_bytes());
        out[40..48].copy_from_slice(&self.count.to_le_bytes());
        let words = [
            self.root,
            self.root_sum,
            self.root_level.into(),
            self.log.0,
            self.log.1,
        ];
        for (i, w) in words.iter().enumerate() {
            out[48 + i * 4..52 + i * 4].copy_from_slice(&w.to_le_bytes());
        }
        out[68] = self.columns.len() as u8;
        out[69..69 + self.columns.len()].copy_from_slice(&self.columns);
        out[77] = matches!(self.encoding, Encoding::Packed).into();
        out[78..80].copy_from_slice(&(self.metadata.len() as u16).to_le_bytes());
        out[80..80 + self.metadata.len()].copy_from_slice(&self.metadata);
        let sum = checksum(&out, block, 0);
        out[..4].copy_from_slice(&sum.to_le_bytes());
        out
    }

    pub fn read(bytes: &[u8], block: u32) -> Result<Self, NoSuperblock> {
        if &bytes[4..16] != NAME {
            return Err(NoSuperblock::Foreign);
        }
        let sum_holds = u32_at(bytes, 0) == checksum(bytes, block, 0);
        let version = u32_at(bytes, 16);
        if version != u32::from(FORMAT) {
            return Err(if sum_holds {
                NoSuperblock::Version(version)
            } else {
                NoSuperblock::Damaged
            });
        }
        let columns = usize::from(bytes[68]);
        let metadata = usize::from(u16::from_le_bytes([bytes[78], bytes[79]]));
        if !sum_holds || columns > 8 || metadata > MAX_METADATA || u32_at(bytes, 56) > 255 {
            return Err(NoSuperblock::Damaged);
        }
        Ok(Self {
            file_id: u32_at(bytes, 20),
            sequence: u64_at(bytes, 24),
            epoch: u64_at(bytes, 32),
            count: u64_at(bytes, 40),
            root: u32_at(bytes, 48),
            root_sum: u32_at(bytes, 52),
            root_level: u32_at(bytes, 56) as u8,
            log: (u32_at(bytes, 60), u32_at(bytes, 64)),
            columns: bytes[69..69 + columns].to_vec(),
            encoding: if bytes[77] == 0 {
                Encoding::Raw
            } else {
                Encoding::Packed
            },
            metadata: bytes[80..80 + metadata].to_vec(),
        })
    }

    /// Chain value of the first record of this checkpoint's log.
    pub fn chain(&self) -> u32 {
        xxh3_64_with_seed(&self.sequence.to_le_bytes(), self.file_id.into()) as u32
    }
}

/// What a record carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// Extents replaced.
    Delta = 1,
    /// Operations to be done again.
    Operations = 2,
}

/// A record being written, whose length is known beforehand.
pub struct RecordBuilder {
    out: AlignedBuf,
    at: usize,
    items: u32,
}

impl RecordBuilder {
    /// Bytes of an interval without its entries.
    pub const INTERVAL: usize = 20;
    /// Bytes of an entry.
    pub const ENTRY: usize = 20;

    /// Bytes of a record without items.
    pub fn length(metadata: &[u8]) -> usize {
        RECORD_HEADER + metadata.len()
    }

    /// A record that will have `length` bytes altogether.
    pub fn new(kind: RecordKind, epoch: u64, metadata: &[u8], length: usize) -> Self {
        let mut out = AlignedBuf::new(length.div_ceil(BLOCK));
        out[4..6].copy_from_slice(&RECORD_MAGIC.to_le_bytes());
        out[6] = FORMAT;
        out[7] = kind as u8;
        out[8..12].copy_from_slice(&(length as u32).to_le_bytes());
        out[16..24].copy_from_slice(&epoch.to_le_bytes());
        out[32..36].copy_from_slice(&(metadata.len() as u32).to_le_bytes());
        let (at, items) = (RECORD_HEADER, 0);
        let mut record = Self { out, at, items };
        record.put(metadata);
        record
    }

    fn put(&mut self, bytes: &[u8]) {
        self.out[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    /// Opens an interval of `n` entries, which follow.
    pub fn interval(&mut self, low: u64, high: u64, n: u32) {
        self.put(&low.to_le_bytes());
        self.put(&high.to_le_bytes());
        self.put(&n.to_le_bytes());
        self.items += 1;
    }

    pub fn entry(&mut self, e: &Entry) {
        self.put(&e.key.to_le_bytes());
        for word in [e.count as u32, e.loc, e.sum] {
            self.put(&word.to_le_bytes());
        }
    }

    pub fn operations(&mut self, bytes: &[u8], items: u32) {
        self.put(bytes);
        self.items += items;
    }

    /// Closes the record for a place; returns its blocks and its checksum.
    pub fn finish(mut self, count: u64, chain: u32, block: u32, file_id: u32) -> (AlignedBuf, u32) {
        debug_assert_eq!(
            self.at,
            u32_at(&self.out, 8) as usize,
            "the length was told right"
        );
        self.out[12..16].copy_from_slice(&chain.to_le_bytes());
        self.out[24..32].copy_from_slice(&count.to_le_bytes());
        self.out[36..40].copy_from_slice(&self.items.to_le_bytes());
        let sum = checksum(&self.out[..self.at], block, file_id);
        self.out[..4].copy_from_slice(&sum.to_le_bytes());
        (self.out, sum)
    }
}

/// A record read back: header fields, metadata and, in the blocks it was read into, its items.
#[derive(Debug)]
pub struct Record {
    pub kind: RecordKind,
    pub epoch: u64,
    pub count: u64,
    pub sum: u32,
    pub blocks: u32,
    pub items: u32,
    pub metadata: Vec<u8>,
    bytes: AlignedBuf,
    body: std::ops::Range<usize>,
}

/// Extents that answer for a range of keys, as a record has them.
#[derive(Clone, Copy)]
pub struct Interval<'r> {
    pub low: u64,
    pub high: u64,
    rows: &'r [[u8; RecordBuilder::ENTRY]],
}

impl<'r> Interval<'r> {
    pub fn entries(&self) -> impl ExactSizeIterator<Item = Entry> + use<'r> {
        self.rows.iter().map(|r| Entry {
            key: u64_at(r, 0),
            count: u32_at(r, 8).into(),
            loc: u32_at(r, 12),
            sum: u32_at(r, 16),
        })
    }
}

/// Length of the record that a block starts, if it looks like one; to be read before [`Record::read`].
pub fn record_blocks(first: &[u8], room: u32) -> Option<u32> {
    let length = u32_at(first, 8) as usize;
    let blocks = length.div_ceil(BLOCK) as u32;
    (first[4..6] == RECORD_MAGIC.to_le_bytes() && length >= RECORD_HEADER && blocks <= room).then_some(blocks)
}

impl Record {
    /// `None` when the bytes are not the next record of this chain: the log ends here.
    pub fn read(buf: AlignedBuf, chain: u32, block: u32, file_id: u32) -> Option<Self> {
        let length = u32_at(&buf, 8) as usize;
        let bytes = buf.get(..length)?;
        let sum = u32_at(bytes, 0);
        if checksum(bytes, block, file_id) != sum || u32_at(bytes, 12) != chain || bytes[6] != FORMAT {
            return None;
        }
        let metadata = u32_at(bytes, 32) as usize;
        if metadata > MAX_METADATA || RECORD_HEADER + metadata > length {
            return None;
        }
        let kind = match bytes[7] {
            1 => RecordKind::Delta,
            2 => RecordKind::Operations,
            _ => return None,
        };
        Some(Self {
            kind,
            epoch: u64_at(bytes, 16),
            count: u64_at(bytes, 24),
            sum,
            blocks: length.div_ceil(BLOCK) as u32,
            items: u32_at(bytes, 36),
            metadata: bytes[RECORD_HEADER..RECORD_HEADER + metadata].to_vec(),
            body: RECORD_HEADER + metadata..length,
            bytes: buf,
        })
    }

    /// Bytes of the items.
    pub fn body(&self) -> &[u8] {
        &self.bytes[self.body.clone()]
    }

    /// Calls `f` for the intervals of a delta in their order; `None` when the body is malformed.
    pub fn intervals<E>(&self, mut f: impl FnMut(Interval<'_>) -> Result<(), E>) -> Option<Result<(), E>> {
        let mut at = self.body();
        for _ in 0..self.items {
            let (head, rest) = at.split_at_checked(RecordBuilder::INTERVAL)?;
            let (low, high, n) = (u64_at(head, 0), u64_at(head, 8), u32_at(head, 16) as usize);
            let (rows, rest) = rest.split_at_checked(n.checked_mul(RecordBuilder::ENTRY)?)?;
            let rows = rows.as_chunks().0;
            let interval = Interval { low, high, rows };
            let sorted = interval.entries().is_sorted_by(|a, b| a.key < b.key);
            if !sorted || interval.entries().next()?.key != low || interval.entries().last()?.key > high {
                return None;
            }
            if let Err(e) = f(interval) {
                return Some(Err(e));
            }
            at = rest;
        }
        Some(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn superblocks_and_records_come_back() {
        let sb = Superblock {
            file_id: 7,
            sequence: 3,
            epoch: 9,
            count: 10,
            root: 70,
            root_sum: 1,
            root_level: 2,
            log: (100, 16),
            columns: vec![4, 4],
            encoding: Encoding::Packed,
            metadata: vec![1, 2, 3],
        };
        assert_eq!(Superblock::read(&sb.write(16), 16).ok(), Some(sb.clone()));
        assert!(Superblock::read(&sb.write(16), 48).is_err());
        let length = RecordBuilder::length(b"meta") + RecordBuilder::INTERVAL + RecordBuilder::ENTRY;
        let builder = || {
            let mut b = RecordBuilder::new(RecordKind::Delta, 5, b"meta", length);
            b.interval(4, 20, 1);
            let (key, count, loc, sum) = (4, 3, 99, 8);
            b.entry(&Entry { key, count, loc, sum });
            b.finish(12, 77, 300, 7)
        };
        let (buf, sum) = builder();
        assert_eq!(record_blocks(&buf, 1), Some(1));
        let r = Record::read(buf, 77, 300, 7).unwrap();
        assert_eq!(
            (r.sum, r.epoch, r.count, &r.metadata[..]),
            (sum, 5, 12, &b"meta"[..])
        );
        let mut seen = 0;
        let read = r.intervals(|i| {
            assert_eq!((i.low, i.high, i.entries().next().unwrap().loc), (4, 20, 99));
            seen += 1;
            Ok::<(), ()>(())
        });
        assert!(read == Some(Ok(())) && seen == 1);
        assert!(Record::read(builder().0, 78, 300, 7).is_none());
        assert!(Record::read(builder().0, 77, 301, 7).is_none());
    }
}
