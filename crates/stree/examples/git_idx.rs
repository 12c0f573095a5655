//! A git object index: from a pack index (`.idx`, version 2) to a `DigestIndex` mapped beside it.
//!
//! ```text
//! cargo run --release -p osmill-stree --example git_idx -- build  pack-….idx      writes pack-….stree
//! cargo run --release -p osmill-stree --example git_idx -- lookup pack-….idx      ids in hex on stdin, offsets on stdout
//! cargo run --release -p osmill-stree --example git_idx -- bench  pack-….idx      ns per look-up, next to git's own way
//! ```
//!
//! A version 2 index is: `FF 't' 'O' 'c'`, version, 256 cumulative counts by first byte (the fan-out), the sorted ids, a CRC-32
//! of each object, its offset in the pack in 4 bytes (or, with the top bit set, a number into a table of 8-byte offsets),
//! and two checksums. All numbers are big-endian. The index of ids built here answers with a position; the offset is then read
//! from the pack index, in the same pipeline.

use std::error::Error;
use std::io::{BufRead, Write};
use std::path::Path;
use std::time::Instant;

use memmap2::Mmap;
use osmill_stree::{DigestIndex, NOT_FOUND, Search};

type Result<T> = std::result::Result<T, Box<dyn Error>>;
type Id = [u8; 20];

/// A pack index, version 2, with 20-byte ids.
struct PackIndex<'a> {
    fan_out: &'a [[u8; 4]],
    ids: &'a [Id],
    offsets: &'a [[u8; 4]],
    large_offsets: &'a [[u8; 8]],
}

impl<'a> PackIndex<'a> {
    fn parse(bytes: &'a [u8]) -> Result<PackIndex<'a>> {
        let header = bytes.get(..8 + 1024).ok_or("too short for a pack index")?;
        if header[..8] != *b"\xfftOc\0\0\0\x02" {
            return Err("not a pack index of version 2".into());
        }
        let fan_out = header[8..].as_chunks::<4>().0;
        let counts: Vec<u32> = fan_out.iter().map(|&count| u32::from_be_bytes(count)).collect();
        if !counts.is_sorted() {
            return Err("the fan-out table is not ascending: the file is damaged".into());
        }
        let count = counts[255] as usize;
        let rest = &bytes[8 + 1024..];
        // Ids, checksums, offsets, and two 20-byte checksums at the end.
        if rest.len() < count * 28 + 40 {
            return Err(format!("{} bytes are too few for {count} objects", bytes.len()).into());
        }
        let (ids, rest) = rest.split_at(count * 20);
        let (offsets, rest) = rest[count * 4..].split_at(count * 4);
        Ok(PackIndex {
            fan_out,
            ids: ids.as_chunks().0,
            offsets: offsets.as_chunks().0,
            large_offsets: rest[..rest.len() - 40].as_chunks().0,
        })
    }

    /// Offset in the pack of the object at a position.
    fn offset(&self, position: u64) -> Option<u64> {
        let offset = u32::from_be_bytes(*self.offsets.get(usize::try_from(position).ok()?)?);
        match offset.checked_sub(1 << 31) {
            None => Some(u64::from(offset)),
            Some(large) => self
                .large_offsets
                .get(large as usize)
                .map(|&offset| u64::from_be_bytes(offset)),
        }
    }

    /// As git does it: the first byte picks a range of the ids, and the range is bisected.
    fn bisect(&self, id: &Id) -> u64 {
        let count = |first: usize| u32::from_be_bytes(self.fan_out[first]) as usize;
        let first = usize::from(id[0]);
        let start = if first == 0 { 0 } else { count(first - 1) };
        self.ids[start..count(first)]
            .binary_search(id)
            .map_or(NOT_FOUND, |at| (start + at) as u64)
    }
}

fn map(path: &Path) -> Result<Mmap> {
    let file = std::fs::File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    // SAFETY: git never changes a pack index in place; it writes a new one and renames it.
    #[allow(unsafe_code)]
    Ok(unsafe { Mmap::map(&file)? })
}

fn parse_hex(text: &str) -> Option<Id> {
    let digits = text.trim().as_bytes();
    if digits.len() != 40 {
        return None;
    }
    let mut id = [0; 20];
    for (byte, pair) in id.iter_mut().zip(digits.as_chunks::<2>().0) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
    }
    Some(id)
}

fn build(idx: &Path, place: &Path) -> Result<()> {
    let bytes = map(idx)?;
    let pack = PackIndex::parse(&bytes)?;
    let start = Instant::now();
    let index = DigestIndex::from_sorted(pack.ids)?;
    index.save(place)?;
    println!(
        "{} objects, {} bytes, {:.2} buckets per look-up, built in {:.2} s",
        index.len(),
        index.bytes(),
        index.expected_buckets(),
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Answers ids from stdin, a block at a time: `id offset`, or `id missing`.
fn lookup(pack: &PackIndex<'_>, index: &DigestIndex<'_, 20>) -> Result<()> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut lines = std::io::stdin().lock().lines();
    loop {
        let block: Vec<String> = lines.by_ref().take(4096).collect::<std::io::Result<_>>()?;
        if block.is_empty() {
            return Ok(out.flush()?);
        }
        let parse =
            |line: &String| parse_hex(line).ok_or_else(|| format!("not an object id of 40 digits: {line}"));
        let ids = block
            .iter()
            .map(parse)
            .collect::<std::result::Result<Vec<Id>, _>>()?;
        let mut positions = vec![0; ids.len()];
        index.position_into(&ids, &mut positions);
        for (line, &position) in block.iter().zip(&positions) {
            match pack.offset(position) {
                Some(offset) => writeln!(out, "{} {offset}", line.trim())?,
                None => writeln!(out, "{} missing", line.trim())?,
            }
        }
    }
}

fn bench(pack: &PackIndex<'_>, index: &DigestIndex<'_, 20>) -> Result<()> {
    // Every object once, in a scattered order, as a history walk asks.
    let count = pack.ids.len() as u64;
    if count == 0 {
        return Err("the pack is empty".into());
    }
    let stride = (count / 2..)
        .map(|stride| stride | 1)
        .find(|stride| stride % 3 != 0 && stride % 5 != 0);
    let stride = stride.unwrap_or(1);
    let queries: Vec<Id> = (0..count.max(1 << 20))
        .map(|step| pack.ids[(step.wrapping_mul(stride).wrapping_add(step >> 7) % count) as usize])
        .collect();
    let (mut ours, mut theirs) = (vec![0; queries.len()], vec![0; queries.len()]);
    for round in 0..3 {
        let start = Instant::now();
        index.position_into(&queries, &mut ours);
        let batch = start.elapsed().as_nanos() as f64 / queries.len() as f64;
        let start = Instant::now();
        for (out, id) in theirs.iter_mut().zip(&queries) {
            *out = pack.bisect(id);
        }
        let bisection = start.elapsed().as_nanos() as f64 / queries.len() as f64;
        if ours != theirs {
            return Err("the index and bisection disagree: build the index again".into());
        }
        println!(
            "round {round}: {} look-ups, batch {batch:.1} ns, fan-out and bisection {bisection:.1} ns, {:.1} times",
            queries.len(),
            bisection / batch
        );
    }
    Ok(())
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [command, idx] = arguments.as_slice() else {
        return Err("usage: git_idx build|lookup|bench PACK.idx".into());
    };
    let idx = Path::new(idx);
    let place = idx.with_extension("stree");
    if command == "build" {
        return build(idx, &place);
    }
    let bytes = map(idx)?;
    let pack = PackIndex::parse(&bytes)?;
    let index = DigestIndex::<20>::open(&place)?;
    if index.len() != pack.ids.len() as u64 {
        return Err(format!("{} was built from another pack: build it again", place.display()).into());
    }
    match command.as_str() {
        "lookup" => lookup(&pack, &index),
        "bench" => bench(&pack, &index),
        other => Err(format!("no command {other}: build, lookup or bench").into()),
    }
}
