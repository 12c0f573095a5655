//! Getting the keys back when the directory is lost: from the extents' own headers.

use crate::backend::{AlignedBuf, BLOCK, Backend};
use crate::codec::{Header, MAGIC, Page, Rows, u32_at};
use crate::core::Core;
use crate::error::{Error, Result};
use crate::log::{Record, Superblock, record_blocks};
use crate::map::open_file;
use crate::options::{Durability, Options};
use crate::value::Shape;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// What a rebuild found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RebuildReport {
    /// Keys in the new file.
    pub keys: u64,
    /// Extents taken.
    pub extents: u64,
    /// Sound extents passed over because a newer one answers for their keys.
    pub stale: u64,
    /// Ranges of keys (both ends inclusive) for which no sound extent was found; the first 100.
    pub gaps: Vec<(u64, u64)>,
    /// Newest commit that an extent was taken from. A commit that was under way when the old file was last written may be in it in part.
    pub epoch: u64,
}

impl fmt::Display for RebuildReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} keys from {} extents; {} stale ones passed over",
            self.keys, self.extents, self.stale
        )?;
        self.gaps
            .iter()
            .try_for_each(|(low, high)| writeln!(f, "lost: keys {low} to {high}"))?;
        write!(f, "newest commit seen: {}", self.epoch)
    }
}

#[derive(Clone, Copy)]
struct Found {
    epoch: u64,
    block: u32,
    low: u64,
    high: u64,
}

/// Blocks read at once.
const RUN: usize = 256;

/// Reads every extent of a damaged file `source` and loads the newest for each key range into a new file `target`. `columns` are the widths of the value's columns, which the
/// superblock would tell if it can be read.
///
/// # Errors
/// Of the disks; [`Error::Exists`] for the target; [`Error::NotOurs`] when there are no extents at all.
pub fn rebuild(
    source: impl AsRef<Path>,
    target: impl AsRef<Path>,
    columns: &[u8],
    options: Options,
) -> Result<RebuildReport> {
    let (source, target) = (source.as_ref(), target.as_ref());
    let from = open_file(source, &options.clone().read_only(), false)?;
    let to = open_file(target, &options, true)?;
    rebuild_on(
        &*from,
        &source.display().to_string(),
        to,
        &target.display().to_string(),
        columns,
        options,
    )
}

/// As [`rebuild`], on any back ends.
///
/// # Errors
/// As [`rebuild`].
pub fn rebuild_on(
    source: &dyn Backend,
    source_name: &str,
    target: Arc<dyn Backend>,
    target_name: &str,
    columns: &[u8],
    options: Options,
) -> Result<RebuildReport> {
    let io = |source| Error::Io {
        file: source_name.into(),
        what: "read",
        offset: 0,
        source,
    };
    let blocks = (source.len().map_err(io)? / BLOCK as u64).min(1 << 31) as u32;
    let last_commit = newest_commit(source, blocks);
    let mut found = scan(source, blocks, last_commit).map_err(io)?;
    if found.is_empty() {
        return Err(Error::NotOurs {
            file: source_name.into(),
            reason: "no extents in it".into(),
        });
    }
    let shape = Shape::new(columns).ok_or_else(|| Error::ValueShape {
        file: target_name.into(),
        found: vec![],
        expected: columns.to_vec(),
    })?;
    let mut report = RebuildReport::default();
    // Newest first; an extent is alive if nothing newer reaches into its range.
    found.sort_unstable_by_key(|f| (std::cmp::Reverse(f.epoch), f.low, f.block));
    let mut alive: std::collections::BTreeMap<u64, Found> = std::collections::BTreeMap::new();
    for f in found {
        let before = alive
            .range(..=f.high)
            .next_back()
            .is_some_and(|(_, a)| a.high >= f.low);
        if before {
            report.stale += 1;
        } else {
            alive.insert(f.low, f);
        }
    }
    report.extents = alive.len() as u64;
    let mut next_low = Some(0u64);
    for f in alive.values() {
        report.epoch = report.epoch.max(f.epoch);
        if let Some(low) = next_low.filter(|&low| low < f.low) {
            report.gaps.push((low, f.low - 1));
        }
        next_low = f.high.checked_add(1);
    }
    report.gaps.extend(next_low.map(|low| (low, u64::MAX)));
    report.gaps.truncate(100);
    let mut core = Core::create(target, target_name, shape.clone(), options)?;
    let mut failure = None;
    let mut extents = alive.values();
    let (mut rows, mut at) = (Rows::default(), 0);
    report.keys = core.bulk_load(&mut |out| {
        while at == rows.keys.len() {
            rows.clear();
            at = 0;
            let f = extents.next()?;
            if let Err(e) = read_rows(source, source_name, &shape, f, &mut rows) {
                failure = Some(e);
                return None;
            }
        }
        let w = shape.width;
        out.copy_from_slice(&rows.vals[at * w..at * w + w]);
        at += 1;
        Some(rows.keys[at - 1])
    })?;
    match failure {
        Some(e) => Err(e),
        None => core.commit(Durability::Batch, &[]).map(|_| report),
    }
}

/// Epoch of the last commit that superblocks and log tell of.
fn newest_commit(source: &dyn Backend, blocks: u32) -> Option<u64> {
    let mut buf = AlignedBuf::new(1);
    let mut read = |place: u32| {
        source.read_at(u64::from(place) * BLOCK as u64, &mut buf).ok()?;
        Superblock::read(&buf, place).ok()
    };
    let sb = [0, 16, 32, 48]
        .into_iter()
        .filter_map(&mut read)
        .max_by_key(|sb| sb.sequence)?;
    let (mut epoch, mut used, mut chain) = (sb.epoch, 0, sb.chain());
    while used < sb.log.1 {
        let block = sb.log.0.checked_add(used).filter(|&b| b < blocks)?;
        let offset = u64::from(block) * BLOCK as u64;
        source.read_at(offset, &mut buf).ok()?;
        let Some(n) = record_blocks(&buf, (sb.log.1 - used).min(blocks - block)) else {
            break;
        };
        let mut bytes = AlignedBuf::new(n as usize);
        source.read_at(offset, &mut bytes).ok()?;
        let Some(record) = Record::read(bytes, chain, block, sb.file_id) else {
            break;
        };
        (epoch, used, chain) = (record.epoch, used + record.blocks, record.sum);
    }
    Some(epoch)
}

/// All sound extents up to a commit, of the file that most of them belong to.
fn scan(source: &dyn Backend, blocks: u32, last_commit: Option<u64>) -> std::io::Result<Vec<Found>> {
    let mut files: HashMap<u32, Vec<Found>> = HashMap::new();
    let mut buf = AlignedBuf::new(RUN);
    for start in (0..blocks).step_by(RUN) {
        let n = RUN.min((blocks - start) as usize);
        let whole = source
            .read_at(u64::from(start) * BLOCK as u64, &mut buf[..n * BLOCK])
            .is_ok();
        for i in 0..n {
            let block = start + i as u32;
            let bytes = &mut buf[i * BLOCK..(i + 1) * BLOCK];
            // Unreadable places cost the extents that lie there, not the others.
            if !whole && source.read_at(u64::from(block) * BLOCK as u64, bytes).is_err() {
                continue;
            }
            if bytes[4..6] != MAGIC.to_le_bytes() {
                continue;
            }
            let file_id = u32_at(bytes, 12);
            if let Ok(Header { epoch, low, high, .. }) = Header::read(bytes, block, file_id)
                && last_commit.is_none_or(|last| epoch <= last)
            {
                files.entry(file_id).or_default().push(Found {
                    epoch,
                    block,
                    low,
                    high,
                });
            }
        }
    }
    Ok(files.into_values().max_by_key(Vec::len).unwrap_or_default())
}

fn read_rows(source: &dyn Backend, name: &str, shape: &Shape, f: &Found, rows: &mut Rows) -> Result<()> {
    let offset = u64::from(f.block) * BLOCK as u64;
    let mut buf = AlignedBuf::new(1);
    let io = |source| Error::Io {
        file: name.into(),
        what: "read",
        offset,
        source,
    };
    source.read_at(offset, &mut buf).map_err(io)?;
    let corrupt = |reason: &str| Error::Corrupt {
        file: name.into(),
        block: f.block.into(),
        reason: reason.into(),
    };
    let page = Page::new(shape, &buf).ok_or_else(|| corrupt("extent does not hold values of this shape"))?;
    page.decode(rows).map_err(corrupt)
}
