//! `inspect --tags`: how often keys and tags occur.
//!
//! A worker counts string numbers within a block, then adds the sums to its own table of strings, so that a
//! string is hashed once for each block that has it. When the tables outgrow the memory budget, the tags are
//! split in two halves by hash, again and again: only one part is counted on, and the others in further
//! passes. So the counts are exact with any budget.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use hashbrown::HashMap;
use osmill_engine::{BlobEntry, Input, Job, KernelResult, Plan, Result};
use osmill_model::{Kind, KindSet, Tag};
use osmill_pbf::{Block, Item, Tags};
use serde::Serialize;

use crate::filter::TagFilter;

/// What to count.
#[derive(Debug, Clone)]
pub struct Options {
    /// Kinds of elements whose tags are counted.
    pub kinds: KindSet,
    /// Tags that are counted.
    pub filter: TagFilter,
    /// Fewer occurrences are not reported.
    pub min_count: u64,
    /// More occurrences are not reported.
    pub max_count: u64,
    /// Report keys, whatever their values.
    pub keys: bool,
    /// Report tags: keys with values.
    pub values: bool,
}

/// A key or a tag and how often it occurs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct TagCount {
    /// Number of elements that have it.
    pub count: u64,
    /// The key.
    pub key: String,
    /// The value; absent for a count of a key with all its values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// Counts tags; the most frequent come first, equal ones by name.
pub fn count(job: &Job, input: &Input, plan: &Plan, options: &Options) -> Result<Vec<TagCount>> {
    let blobs: Vec<BlobEntry> = plan
        .blobs
        .iter()
        .filter(|blob| {
            blob.index
                .is_none_or(|record| record.has_tags && record.kinds.intersects(options.kinds))
        })
        .copied()
        .collect();
    let hasher = RandomState::new();
    // Parts still to be counted, each as the low bits that hashes in it have and how many of them count.
    let mut parts = vec![(0u64, 0u32)];
    let mut found = Vec::new();
    while let Some((bits, width)) = parts.pop() {
        let width = AtomicU32::new(width);
        let budget = job.options().memory as usize / 2 / job.options().threads.max(1);
        let make = || Counter {
            bits,
            budget,
            ..Counter::new(options, &hasher, &width)
        };
        let start = width.load(Relaxed);
        let counters = job
            .pass("tags", input.file(), &blobs)
            .scan(make, |counter, blob| counter.add(blob.block()?))?;
        let end = width.load(Relaxed);
        // Halves that were given up on the way.
        for given_up in start..end {
            parts.push((bits | 1 << given_up, given_up + 1));
        }
        let mut counters = counters.into_iter();
        let Some(mut all) = counters.next() else { continue };
        for counter in counters {
            for (tag, count) in counter.table {
                *all.table.entry(tag).or_default() += count;
            }
        }
        let mask = (1u64 << end) - 1;
        found.extend(
            all.table
                .into_iter()
                .filter(|(tag, _)| hasher.hash_one(tag) & mask == bits)
                .filter(|(_, count)| (options.min_count..=options.max_count).contains(count))
                .map(|(tag, count)| decode(&tag, count)),
        );
    }
    found.sort_unstable_by(|a, b| {
        b.count
            .cmp(&a.count)
            .then_with(|| (&a.key, &a.value).cmp(&(&b.key, &b.value)))
    });
    Ok(found)
}

/// Length of the key, key, value. A key alone is marked by the highest bit of the length.
type Encoded = Box<[u8]>;

/// Hash bits that parts are told apart by at most.
const MOST_BITS: u32 = 48;

const KEY_ONLY: u32 = 1 << 31;

fn encode(out: &mut Vec<u8>, key: &[u8], value: Option<&[u8]>) {
    out.clear();
    let length = key.len() as u32 | if value.is_none() { KEY_ONLY } else { 0 };
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(key);
    out.extend_from_slice(value.unwrap_or_default());
}

fn decode(tag: &[u8], count: u64) -> TagCount {
    let (length, rest) = tag.split_first_chunk::<4>().unwrap_or((&[0; 4], &[]));
    let length = u32::from_le_bytes(*length);
    let (key, value) = rest.split_at((length & !KEY_ONLY) as usize);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    TagCount {
        count,
        key: text(key),
        value: (length & KEY_ONLY == 0).then(|| text(value)),
    }
}

struct Counter<'a> {
    options: &'a Options,
    hasher: &'a RandomState,
    bits: u64,
    /// How many low bits of a hash have to be as in `bits`; grows for all workers when one runs out of memory.
    width: &'a AtomicU32,
    budget: usize,
    table: HashMap<Encoded, u64>,
    bytes: usize,
    pairs: [Vec<u64>; 3],
    scratch: Vec<u8>,
}

impl<'a> Counter<'a> {
    fn new(options: &'a Options, hasher: &'a RandomState, width: &'a AtomicU32) -> Self {
        Counter {
            options,
            hasher,
            bits: 0,
            width,
            budget: 0,
            table: HashMap::new(),
            bytes: 0,
            pairs: Default::default(),
            scratch: Vec::new(),
        }
    }

    fn add(&mut self, block: &Block) -> KernelResult {
        for group in block.groups() {
            let mut items = group.items();
            while let Some(item) = items.try_next()? {
                match item {
                    Item::Dense(dense) if self.options.kinds.contains(Kind::Node) => {
                        let (pairs, mut key) = (&mut self.pairs[0], 0);
                        dense.tag_column().for_each(|sid| match (key, sid) {
                            (0, sid) => key = sid,
                            (open, value) => {
                                pairs.push(pair(open, value));
                                key = 0;
                            }
                        })?;
                    }
                    Item::Node(node) => self.add_tags(Kind::Node, node.tags())?,
                    Item::Way(way) => self.add_tags(Kind::Way, way.tags())?,
                    Item::Relation(relation) => self.add_tags(Kind::Relation, relation.tags())?,
                    Item::Dense(_) => {}
                }
            }
        }
        self.sum_up(block)
    }

    fn add_tags(&mut self, kind: Kind, mut tags: Tags<'_>) -> KernelResult {
        if self.options.kinds.contains(kind) {
            while let Some((key, value)) = tags.try_next_ids()? {
                self.pairs[kind as usize].push(pair(key, value));
            }
        }
        Ok(())
    }

    /// Adds the block's pairs of string numbers to the table.
    fn sum_up(&mut self, block: &Block) -> KernelResult {
        for kind in Kind::ALL {
            let mut pairs = std::mem::take(&mut self.pairs[kind as usize]);
            pairs.sort_unstable();
            for of_key in pairs.chunk_by(|a, b| a >> 32 == b >> 32) {
                let key = string(block, of_key[0] >> 32)?;
                let mut matched = 0;
                for run in of_key.chunk_by(|a, b| a == b) {
                    let tag = Tag {
                        key,
                        value: string(block, run[0] & 0xffff_ffff)?,
                    };
                    if self.options.filter.matches(kind, tag) {
                        matched += run.len() as u64;
                        if self.options.values {
                            self.note(key, Some(tag.value), run.len() as u64);
                        }
                    }
                }
                if self.options.keys && matched > 0 {
                    self.note(key, None, matched);
                }
            }
            pairs.clear();
            self.pairs[kind as usize] = pairs;
        }
        Ok(())
    }

    fn note(&mut self, key: &[u8], value: Option<&[u8]>, count: u64) {
        encode(&mut self.scratch, key, value);
        if let Some(known) = self.table.get_mut(&self.scratch[..]) {
            *known += count;
            return;
        }
        let mask = (1u64 << self.width.load(Relaxed)) - 1;
        let tag: Encoded = self.scratch[..].into();
        if self.hasher.hash_one(&tag) & mask != self.bits {
            return;
        }
        // The text, its allocation's overhead, and its share of a table that is half full.
        self.bytes += tag.len() + 16 + 2 * (size_of::<(Encoded, u64)>() + 1);
        self.table.insert(tag, count);
        // A single tag is counted whatever the budget: without it a pass would count nothing.
        if self.bytes > self.budget && self.table.len() > 1 {
            self.give_up_half();
        }
    }

    /// Drops the tags whose next hash bit is set, for this and all other workers.
    fn give_up_half(&mut self) {
        let grow = |width| (width < MOST_BITS).then_some(width + 1);
        let Ok(before) = self.width.fetch_update(Relaxed, Relaxed, grow) else {
            return;
        };
        let mask = (1u64 << (before + 1)) - 1;
        let (hasher, bits) = (self.hasher, self.bits);
        self.table.retain(|tag, _| hasher.hash_one(tag) & mask == bits);
        self.table.shrink_to_fit();
        self.bytes = self
            .table
            .keys()
            .map(|tag| tag.len() + 16 + 2 * (size_of::<(Encoded, u64)>() + 1))
            .sum();
    }
}

/// Blocks have at most 2^24 strings, so two numbers fit; larger ones are errors that [`string`] finds.
fn pair(key: u64, value: u64) -> u64 {
    key.min(0xffff_ffff) << 32 | value.min(0xffff_ffff)
}

fn string(block: &Block, index: u64) -> KernelResult<&[u8]> {
    Ok(block.string(index).map_err(osmill_pbf::BlockError::from)?)
}
