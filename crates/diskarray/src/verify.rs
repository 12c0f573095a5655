//! Checking every block of a state.

use crate::backend::{AlignedBuf, BLOCK};
use crate::codec::{Header, Rows};
use crate::error::{Error, Result};
use crate::node::{CHANGED, Entry, NODE_BLOCKS, NOWHERE, Node};
use crate::tree::range_of;
use crate::view::View;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::{Duration, Instant};

/// One contradiction found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Block (4096 bytes each); 0 if it lies in memory only.
    pub block: u64,
    /// What contradicts what.
    pub reason: String,
}

/// What a check saw.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifyReport {
    /// Keys counted in sound extents.
    pub keys: u64,
    /// Extents looked at.
    pub extents: u64,
    /// Extents written raw, packed, as bitmaps.
    pub codecs: [u64; 3],
    /// Bytes of payload in use.
    pub payload_bytes: u64,
    /// Nodes of the directory.
    pub nodes: u64,
    /// The first [`VerifyReport::MOST`] contradictions.
    pub problems: Vec<Problem>,
    /// All contradictions.
    pub problem_count: u64,
}

impl VerifyReport {
    /// Problems listed at most.
    pub const MOST: usize = 100;

    /// Whether nothing contradicts.
    pub fn is_sound(&self) -> bool {
        self.problem_count == 0
    }

    fn add(&mut self, block: u32, reason: impl Into<String>) {
        self.problem_count += 1;
        if self.problems.len() < Self::MOST {
            self.problems.push(Problem {
                block: block.into(),
                reason: reason.into(),
            });
        }
    }
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [raw, packed, bitmap] = self.codecs;
        writeln!(
            f,
            "{} keys in {} extents ({raw} raw, {packed} packed, {bitmap} bitmap), {} directory nodes",
            self.keys, self.extents, self.nodes
        )?;
        for p in &self.problems {
            writeln!(f, "block {}: {}", p.block, p.reason)?;
        }
        match self.problem_count {
            0 => write!(f, "sound"),
            n => write!(f, "{n} problems"),
        }
    }
}

/// Blocks read at once.
const RUN: usize = 64;

pub(crate) fn verify(view: &View<'_>, pace: Option<f64>) -> Result<VerifyReport> {
    let mut report = VerifyReport::default();
    let mut seen = Seen::default();
    let start = Instant::now();
    let mut read_bytes = 0u64;
    let walked = view.tree.visit(view.store, &mut |node, range, loc| {
        report.nodes += 1;
        if let Err(why) = node.check() {
            report.add(loc, why);
        }
        if loc != NOWHERE && !seen.take(loc, NODE_BLOCKS) {
            report.add(loc, "directory node overlaps another block in use");
        }
        if node.keys[0] != range.0 || node.keys[node.len() - 1] > range.1 {
            report.add(loc, "directory node does not cover its range");
        }
        if node.level == 1 {
            leaf(view, node, range.1, &mut report, &mut seen, &mut read_bytes)?;
        } else {
            kids(node, &mut report);
        }
        if let Some(pace) = pace.filter(|&p| p > 0.0) {
            let due = Duration::from_secs_f64(read_bytes as f64 / pace);
            std::thread::sleep(due.saturating_sub(start.elapsed()));
        }
        Ok(())
    });
    match walked {
        Err(Error::Corrupt { block, reason, .. }) => report.add(block as u32, reason),
        other => other?,
    }
    Ok(report)
}

fn kids(node: &Node, report: &mut VerifyReport) {
    for (i, kid) in node.kids.iter().enumerate() {
        if kid.as_ref().is_some_and(|kid| kid.total != node.count(i)) {
            report.add(
                node.locs[i],
                "a count in the directory differs from the total of its child",
            );
        }
    }
}

#[derive(Default)]
struct Seen(Vec<u64>);

impl Seen {
    fn take(&mut self, block: u32, n: u32) -> bool {
        let mut free = true;
        for b in block..block.saturating_add(n) {
            let word = b as usize / 64;
            if self.0.len() <= word {
                self.0.resize(word + 1, 0);
            }
            free &= self.0[word] >> (b % 64) & 1 == 0;
            self.0[word] |= 1 << (b % 64);
        }
        free
    }
}

fn leaf(
    view: &View<'_>,
    node: &Node,
    high: u64,
    report: &mut VerifyReport,
    seen: &mut Seen,
    read_bytes: &mut u64,
) -> Result<()> {
    let mut extents: Vec<(Entry, (u64, u64))> = vec![];
    for i in 0..node.len() {
        let (e, range) = (node.entry(i), range_of(node, i, high));
        if e.loc & CHANGED != 0 {
            let mut rows = Rows::default();
            view.rows(&e, &mut rows)?;
            report.extents += 1;
            check_rows(&rows, &e, range, report);
        } else if e.loc != NOWHERE {
            if !seen.take(e.loc, 1) {
                report.add(e.loc, "extent is referred to twice");
            }
            extents.push((e, range));
        } else if e.count != 0 {
            report.add(0, "keys without an extent");
        }
    }
    extents.sort_unstable_by_key(|(e, _)| e.loc);
    let mut at = 0;
    let mut buf = AlignedBuf::new(RUN);
    while at < extents.len() {
        let first = extents[at].0.loc;
        let mut n = 1;
        while at + n < extents.len() && n < RUN && extents[at + n].0.loc == first + n as u32 {
            n += 1;
        }
        // A device that cannot read a run may still read parts of it.
        let whole = view.store.read(first, &mut buf[..n * BLOCK]).is_ok();
        for (j, (e, range)) in extents[at..at + n].iter().enumerate() {
            let bytes = &mut buf[j * BLOCK..(j + 1) * BLOCK];
            if !whole && let Err(why) = view.store.read(e.loc, bytes) {
                report.add(e.loc, why.to_string());
                continue;
            }
            extent(view, e, *range, bytes, report);
        }
        *read_bytes += (n * BLOCK) as u64;
        at += n;
    }
    Ok(())
}

fn extent(view: &View<'_>, e: &Entry, range: (u64, u64), bytes: &[u8], report: &mut VerifyReport) {
    report.extents += 1;
    let header: Header = match view.store.check_extent(e.loc, e.sum, bytes) {
        Ok(header) => header,
        Err(Error::Corrupt { reason, .. }) => return report.add(e.loc, reason),
        Err(other) => return report.add(e.loc, other.to_string()),
    };
    report.codecs[usize::from(header.codec)] += 1;
    report.payload_bytes += header.used as u64;
    if (header.low, header.high) != range {
        report.add(e.loc, "key range of the extent differs from its parent's");
    }
    let mut rows = Rows::default();
    match view.store.page(e.loc, bytes).map(|page| page.decode(&mut rows)) {
        Ok(Ok(())) => check_rows(&rows, e, range, report),
        Ok(Err(why)) => report.add(e.loc, why),
        Err(_) => report.add(e.loc, "extent payload contradicts its header"),
    }
}

fn check_rows(rows: &Rows, e: &Entry, range: (u64, u64), report: &mut VerifyReport) {
    report.keys += rows.keys.len() as u64;
    if rows.keys.len() as u64 != e.count {
        report.add(
            e.loc,
            format!("{} keys, but the directory counts {}", rows.keys.len(), e.count),
        );
    }
    if !rows.keys.is_sorted_by(|a, b| a < b) {
        report.add(e.loc, "keys do not ascend");
    }
    if rows.keys.first().is_some_and(|&k| k < range.0) || rows.keys.last().is_some_and(|&k| k > range.1) {
        report.add(e.loc, "keys outside of the extent's range");
    }
}
