//! `inspect --tags`: how often keys and tags occur.
//!
//! A worker counts string numbers within a block, then adds the sums to its own table of strings, so that a
//! string is hashed once for each block that has it. Keys are numbered, and a tag is the number of its key and the
//! bytes of its value, which lie one after the other in one piece of memory. When the tables outgrow the memory
//! budget, the tags are split in two halves by hash, again and again: only one part is counted on, and the others
//! in further passes. So the counts are exact with any budget. At the end each worker adds up those tags of all
//! tables whose hashes are its share.

use std::cmp::Ordering;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use osmill_engine::{BlobEntry, Input, Job, KernelResult, Plan, Result};
use osmill_model::{Kind, KindSet, Tag};
use osmill_pbf::{Block, RawItem};
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
    let hasher = DefaultHashBuilder::default();
    // Parts still to be counted, each as the leading hash bits of its tags and how many of them count.
    let mut parts = vec![Part { bits: 0, width: 0 }];
    let mut found = Vec::new();
    while let Some(part) = parts.pop() {
        let width = AtomicU32::new(part.width);
        let budget = job.options().memory as usize / 2 / job.options().threads.max(1);
        let make = || Counter {
            options,
            bits: part.bits,
            width: &width,
            budget,
            tally: Tally::new(&hasher),
            pairs: Default::default(),
        };
        let counters = job
            .pass("tags", input.file(), &blobs)
            .scan(make, |counter, blob| counter.add(blob.block()?))?;
        let end = Part {
            width: width.load(Relaxed),
            ..part
        };
        // Halves that were given up on the way.
        parts.extend((part.width..end.width).map(|given_up| Part {
            bits: part.bits | 1 << given_up,
            width: given_up + 1,
        }));
        let tallies: Vec<Tally<'_>> = counters.into_iter().map(|counter| counter.tally).collect();
        found.extend(sum_up(job, &tallies, end, options)?);
    }
    // Stable, because that sort finds the runs that are sorted.
    found.sort_by(TagCount::by_count);
    Ok(found)
}

impl TagCount {
    fn by_count(&self, other: &TagCount) -> Ordering {
        let names = || (&self.key, &self.value).cmp(&(&other.key, &other.value));
        other.count.cmp(&self.count).then_with(names)
    }
}

/// Tags whose hashes begin with certain bits.
#[derive(Debug, Clone, Copy)]
struct Part {
    bits: u64,
    width: u32,
}

/// Hash bits that parts are told apart by at most.
const MOST_BITS: u32 = 40;

impl Part {
    /// The bits in the order in which they count. The first seven and the last ones place a tag in its table, where
    /// all tags of a part must not meet.
    fn order(hash: u64) -> u64 {
        hash.reverse_bits() >> 7
    }

    fn has(self, hash: u64) -> bool {
        Part::order(hash) & ((1 << self.width) - 1) == self.bits
    }
}

/// How often each tag was seen by one worker.
struct Tally<'h> {
    hasher: &'h DefaultHashBuilder,
    key_numbers: HashMap<Box<[u8]>, u32, DefaultHashBuilder>,
    tags: HashTable<Entry>,
    /// The values of all tags.
    values: Vec<u8>,
    /// Bytes that the keys take.
    key_bytes: usize,
}

/// A tag, or a key whatever its values.
#[derive(Debug, Clone, Copy)]
struct Entry {
    hash: u64,
    count: u64,
    /// Where the value begins.
    start: usize,
    /// Bytes of the value, or [`KEY_ONLY`].
    len: u32,
    key: u32,
}

const KEY_ONLY: u32 = u32::MAX;

/// A key of the block at hand, and its number once that is known.
struct Key<'b> {
    text: &'b [u8],
    hash: u64,
    number: Option<u32>,
}

impl<'h> Tally<'h> {
    fn new(hasher: &'h DefaultHashBuilder) -> Self {
        Tally {
            hasher,
            key_numbers: HashMap::with_hasher(hasher.clone()),
            tags: HashTable::new(),
            values: Vec::new(),
            key_bytes: 0,
        }
    }

    fn key<'b>(&self, text: &'b [u8]) -> Key<'b> {
        Key {
            text,
            hash: self.hasher.hash_one(text),
            number: self.key_numbers.get(text).copied(),
        }
    }

    fn hash(&self, key: &Key<'_>, value: Option<&[u8]>) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u64(key.hash);
        if let Some(value) = value {
            hasher.write(value);
            hasher.write_u8(1);
        }
        hasher.finish()
    }

    /// Where the value lies that an entry speaks of.
    fn value(&self, entry: &Entry) -> Option<&[u8]> {
        (entry.len != KEY_ONLY).then(|| &self.values[entry.start..][..entry.len as usize])
    }

    /// Counts a tag `count` times if it is known.
    fn note_known(&mut self, key: &Key<'_>, hash: u64, value: Option<&[u8]>, count: u64) -> bool {
        let Some(number) = key.number else { return false };
        let values = &self.values;
        let len = value.map_or(KEY_ONLY, |value| value.len() as u32);
        let same = |entry: &Entry| {
            entry.key == number
                && entry.len == len
                && value.is_none_or(|value| &values[entry.start..][..value.len()] == value)
        };
        let known = self.tags.find_mut(hash, same);
        known.map(|entry| entry.count += count).is_some()
    }

    fn insert(&mut self, key: &mut Key<'_>, hash: u64, value: Option<&[u8]>, count: u64) {
        let number = *key.number.get_or_insert_with(|| {
            let number = self.key_numbers.len() as u32;
            self.key_numbers.insert(key.text.into(), number);
            // The text, its allocation's overhead, and its share of a table that is half full.
            self.key_bytes += key.text.len() + 16 + 2 * (size_of::<(Box<[u8]>, u32)>() + 1);
            number
        });
        let entry = Entry {
            hash,
            count,
            start: self.values.len(),
            len: value.map_or(KEY_ONLY, |value| value.len() as u32),
            key: number,
        };
        self.values.extend_from_slice(value.unwrap_or_default());
        self.tags.insert_unique(hash, entry, |entry| entry.hash);
    }

    fn bytes(&self) -> usize {
        self.key_bytes + self.values.capacity() + self.tags.capacity() * 8 / 7 * (size_of::<Entry>() + 1)
    }

    /// The keys by their numbers.
    fn keys(&self) -> Vec<&[u8]> {
        let mut keys = vec![[].as_slice(); self.key_numbers.len()];
        for (text, number) in &self.key_numbers {
            keys[*number as usize] = text;
        }
        keys
    }

    /// The same without the tags outside a part.
    fn reduced_to(&self, part: Part) -> Tally<'h> {
        let (mut kept, keys) = (Tally::new(self.hasher), self.keys());
        for entry in self.tags.iter().filter(|entry| part.has(entry.hash)) {
            let mut key = kept.key(keys[entry.key as usize]);
            kept.insert(&mut key, entry.hash, self.value(entry), entry.count);
        }
        kept
    }
}

/// Adds up what the workers counted, for the tags of a part. The result is sorted in runs.
fn sum_up(job: &Job, tallies: &[Tally<'_>], part: Part, options: &Options) -> Result<Vec<TagCount>> {
    // All keys in their order, and for each tally the place of its keys in it.
    let keys: Vec<Vec<&[u8]>> = tallies.iter().map(Tally::keys).collect();
    let mut all: Vec<&[u8]> = keys.iter().flatten().copied().collect();
    all.sort_unstable();
    all.dedup();
    let place = |key: &&[u8]| all.partition_point(|other| other < key);
    let places: Vec<Vec<usize>> = keys.iter().map(|keys| keys.iter().map(place).collect()).collect();
    struct Sum<'t> {
        hash: u64,
        key: usize,
        value: Option<&'t [u8]>,
        count: u64,
    }
    let shares = job.options().threads.max(1) as u64;
    let found = job.each("sum", shares, Vec::new, |found: &mut Vec<TagCount>, share| {
        let mut sums: HashTable<Sum<'_>> = HashTable::new();
        for (tally, places) in tallies.iter().zip(&places) {
            let mine = |entry: &&Entry| entry.hash % shares == share && part.has(entry.hash);
            for entry in tally.tags.iter().filter(mine) {
                let (key, value) = (places[entry.key as usize], tally.value(entry));
                let same = |sum: &Sum<'_>| sum.key == key && sum.value == value;
                // The share is one of the low bits: the place in the table must not be.
                let sum = sums.entry(entry.hash.rotate_left(16), same, |sum| sum.hash.rotate_left(16));
                let new = Sum {
                    hash: entry.hash,
                    key,
                    value,
                    count: 0,
                };
                sum.or_insert(new).get_mut().count += entry.count;
            }
        }
        let wanted = options.min_count..=options.max_count;
        let mut sums: Vec<Sum<'_>> = sums
            .into_iter()
            .filter(|sum| wanted.contains(&sum.count))
            .collect();
        sums.sort_unstable_by(|a, b| (b.count, a.key, a.value).cmp(&(a.count, b.key, b.value)));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        found.extend(sums.iter().map(|sum| TagCount {
            count: sum.count,
            key: text(all[sum.key]),
            value: sum.value.map(text),
        }));
        Ok(())
    })?;
    Ok(found.into_iter().flatten().collect())
}

struct Counter<'a> {
    options: &'a Options,
    bits: u64,
    /// How many bits of a hash have to be as in `bits`; grows for all workers when one runs out of memory.
    width: &'a AtomicU32,
    budget: usize,
    tally: Tally<'a>,
    /// Tags of the block at hand, by kind, as pairs of string numbers.
    pairs: [Vec<u64>; 3],
}

impl Counter<'_> {
    fn part(&self) -> Part {
        Part {
            bits: self.bits,
            width: self.width.load(Relaxed),
        }
    }

    fn add(&mut self, block: &Block) -> KernelResult {
        for group in block.groups() {
            let mut items = group.items();
            while let Some((item, message)) = items.try_next_raw()? {
                let kind = match item {
                    RawItem::Dense | RawItem::Node => Kind::Node,
                    RawItem::Way => Kind::Way,
                    RawItem::Relation => Kind::Relation,
                };
                if !self.options.kinds.contains(kind) {
                    continue;
                }
                let pairs = &mut self.pairs[kind as usize];
                if item == RawItem::Dense {
                    let mut key = 0;
                    items
                        .parse_dense(message)?
                        .tag_column()
                        .for_each(|sid| match (key, sid) {
                            (0, sid) => key = sid,
                            (open, value) => {
                                pairs.push(pair(open, value));
                                key = 0;
                            }
                        })?;
                    continue;
                }
                let mut tags = items.parse_tags(item, message)?;
                while let Some((key, value)) = tags.try_next_ids()? {
                    pairs.push(pair(key, value));
                }
            }
        }
        self.add_pairs(block)
    }

    /// Adds the block's pairs of string numbers to the tally.
    fn add_pairs(&mut self, block: &Block) -> KernelResult {
        for kind in Kind::ALL {
            let mut pairs = std::mem::take(&mut self.pairs[kind as usize]);
            pairs.sort_unstable();
            for of_key in pairs.chunk_by(|a, b| a >> 32 == b >> 32) {
                let mut key = self.tally.key(string(block, of_key[0] >> 32)?);
                let mut matched = 0;
                for run in of_key.chunk_by(|a, b| a == b) {
                    let tag = Tag {
                        key: key.text,
                        value: string(block, run[0] & 0xffff_ffff)?,
                    };
                    if self.options.filter.matches(kind, tag) {
                        matched += run.len() as u64;
                        if self.options.values {
                            self.note(&mut key, Some(tag.value), run.len() as u64);
                        }
                    }
                }
                if self.options.keys && matched > 0 {
                    self.note(&mut key, None, matched);
                }
            }
            pairs.clear();
            self.pairs[kind as usize] = pairs;
        }
        Ok(())
    }

    fn note(&mut self, key: &mut Key<'_>, value: Option<&[u8]>, count: u64) {
        let hash = self.tally.hash(key, value);
        if self.tally.note_known(key, hash, value, count) || !self.part().has(hash) {
            return;
        }
        self.tally.insert(key, hash, value, count);
        // A single tag is counted whatever the budget: without it a pass would count nothing.
        if self.tally.bytes() > self.budget && self.tally.tags.len() > 1 {
            self.give_up_half();
            *key = self.tally.key(key.text);
        }
    }

    /// Drops the tags whose next hash bit is set, for this and all other workers.
    fn give_up_half(&mut self) {
        let grow = |width| (width < MOST_BITS).then_some(width + 1);
        if self.width.fetch_update(Relaxed, Relaxed, grow).is_ok() {
            self.tally = self.tally.reduced_to(self.part());
        }
    }
}

/// Blocks have at most 2^24 strings, so two numbers fit; larger ones are errors that [`string`] finds.
fn pair(key: u64, value: u64) -> u64 {
    key.min(0xffff_ffff) << 32 | value.min(0xffff_ffff)
}

fn string(block: &Block, index: u64) -> KernelResult<&[u8]> {
    Ok(block.string(index).map_err(osmill_pbf::BlockError::from)?)
}
