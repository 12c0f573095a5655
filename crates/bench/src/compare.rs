//! Two records of the same rows: what became slower, faster, bigger or smaller.
//!
//! For each figure the ratio new/old of the medians stands beside a noise band, the root of the sum of squares of both records' bands
//! ([`crate::stats::noise_band`]). A figure is *worse* when the ratio is beyond the limit **and** beyond the band **and** the
//! difference is above what the clock can tell ([`FIGURES`]); beyond the limit but inside the band it is *unclear*, which is
//! a request to measure again and not a pass mark. Only osmill's own arms are judged. Peers are the control: when they moved
//! as well, it was the machine.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::record::{Arm, Outcome, Record};
use crate::{program, stats};

/// Figures of whole-process rows, each with the smallest difference that means anything (s, s, bytes).
pub const FIGURES: [(&str, f64); 3] = [("wall", 0.005), ("cpu", 0.01), ("memory", 1e6)];

/// What a ratio says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Within the limit.
    Same,
    /// Beyond the limit and the noise, for the better.
    Better,
    /// Beyond the limit and the noise, for the worse: fails.
    Worse,
    /// Beyond the limit, inside the noise.
    Unclear,
    /// A figure of the old record has no counterpart: fails.
    Gone,
    /// The row failed in the new record: fails.
    Failed,
}

/// One figure of one arm in both records.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// Row, with input and processors.
    pub row: String,
    /// Arm.
    pub arm: String,
    /// Which figure.
    pub figure: &'static str,
    /// Whether it is judged (osmill's own) or a control (a peer's).
    pub own: bool,
    /// Medians, old and new; `None` where there is none.
    pub medians: Option<(f64, f64)>,
    /// Noise band of the ratio; 0 when neither record has repeats.
    pub band: f64,
    /// The verdict.
    pub verdict: Verdict,
}

impl Comparison {
    /// New over old.
    pub fn ratio(&self) -> Option<f64> {
        self.medians.map(|(old, new)| new / old)
    }

    /// Whether it makes the comparison fail.
    pub fn fails(&self) -> bool {
        self.own && matches!(self.verdict, Verdict::Worse | Verdict::Gone | Verdict::Failed)
    }
}

/// Everything that two records have to say about each other.
#[derive(Debug, Clone, Default)]
pub struct Outlook {
    /// Figure by figure.
    pub comparisons: Vec<Comparison>,
    /// Reasons to doubt all of it: another machine, another calibration, a busy machine.
    pub warnings: Vec<String>,
}

/// Compares `new` with `old`; `limit` is the tolerated relative change (0.1 for 10 %).
pub fn compare(old: &Record, new: &Record, limit: f64) -> Outlook {
    let mut outlook = Outlook {
        comparisons: Vec::new(),
        warnings: warnings(old, new, limit),
    };
    for before in old.rows.iter().filter(|row| row.outcome == Outcome::Ok) {
        let name = format!(
            "{} [{}, {} cpu{}]",
            before.row,
            before.input,
            before.processors,
            if before.cold { ", cold" } else { "" }
        );
        let after = new.rows.iter().rfind(|row| row.key() == before.key());
        for arm in &before.arms {
            let bare = |verdict| Comparison {
                row: name.clone(),
                arm: arm.arm.clone(),
                figure: "wall",
                own: arm.own,
                medians: None,
                band: 0.0,
                verdict,
            };
            let Some(after) = after else {
                outlook.comparisons.push(bare(Verdict::Gone));
                continue;
            };
            if after.outcome == Outcome::Failed {
                outlook.comparisons.push(bare(Verdict::Failed));
                continue;
            }
            let Some(other) = after.arms.iter().find(|other| other.arm == arm.arm) else {
                outlook.comparisons.push(bare(Verdict::Gone));
                continue;
            };
            for (figure, floor) in FIGURES {
                let (one, two) = (values(arm, figure), values(other, figure));
                let (medians, band, verdict) = judge(&one, &two, floor, limit);
                outlook.comparisons.push(Comparison {
                    row: name.clone(),
                    arm: arm.arm.clone(),
                    figure,
                    own: arm.own,
                    medians,
                    band,
                    verdict,
                });
            }
        }
    }
    let (before, after) = (programs(old), programs(new));
    for (key, (peer, costs)) in before {
        let other = after
            .get(&key)
            .map(|(_, costs)| costs.as_slice())
            .unwrap_or_default();
        let (medians, band, verdict) = judge(&costs, other, 0.0, limit);
        let (program, row, arm, n, threads) = key;
        outlook.comparisons.push(Comparison {
            row: format!("{program}/{row} [n={n}, {threads} thread(s)]"),
            arm,
            figure: "cost",
            own: !peer,
            medians,
            band,
            verdict,
        });
    }
    outlook
}

fn values(arm: &Arm, figure: &str) -> Vec<f64> {
    arm.samples
        .iter()
        .map(|sample| match figure {
            "wall" => sample.wall_s,
            "cpu" => sample.user_s + sample.system_s,
            _ => sample.peak_rss_bytes as f64,
        })
        .collect()
}

type ProgramKey = (String, String, String, u64, u64);

fn programs(record: &Record) -> BTreeMap<ProgramKey, (bool, Vec<f64>)> {
    let mut found: BTreeMap<ProgramKey, (bool, Vec<f64>)> = BTreeMap::new();
    for result in &record.programs {
        let (row, arm, n, threads) = program::key(&result.line);
        let entry = found
            .entry((result.program.clone(), row, arm, n, threads))
            .or_default();
        entry.0 = program::is_peer(&result.line);
        entry.1.extend(program::cost(&result.line));
    }
    found
}

fn judge(old: &[f64], new: &[f64], floor: f64, limit: f64) -> (Option<(f64, f64)>, f64, Verdict) {
    let (Some(before), Some(after)) = (stats::median(old), stats::median(new)) else {
        return (None, 0.0, Verdict::Gone);
    };
    let band = |values| stats::noise_band(values).unwrap_or(0.0);
    let band = band(old).hypot(band(new));
    let ratio = after / before;
    let negligible = before <= 0.0 || (after - before).abs() <= floor;
    let verdict = if negligible || (1.0 / (1.0 + limit)..=1.0 + limit).contains(&ratio) {
        Verdict::Same
    } else if (ratio - 1.0).abs() <= band {
        Verdict::Unclear
    } else if ratio > 1.0 {
        Verdict::Worse
    } else {
        Verdict::Better
    };
    (Some((before, after)), band, verdict)
}

fn warnings(old: &Record, new: &Record, limit: f64) -> Vec<String> {
    let mut warnings = Vec::new();
    let (before, after) = (&old.run.machine, &new.run.machine);
    if (&before.cpu, before.processors, before.memory_bytes >> 30)
        != (&after.cpu, after.processors, after.memory_bytes >> 30)
    {
        warnings.push(format!(
            "other machine: {} x {} and {} x {}",
            before.processors, before.cpu, after.processors, after.cpu
        ));
    }
    if before.huge_pages != after.huge_pages {
        warnings.push(format!(
            "huge pages: {} and {}",
            before.huge_pages, after.huge_pages
        ));
    }
    let rates = old
        .run
        .calibration
        .rates()
        .into_iter()
        .zip(new.run.calibration.rates());
    for ((name, one, _), (_, two, _)) in rates {
        if one > 0.0 && two > 0.0 && (two / one > 1.0 + limit || one / two > 1.0 + limit) {
            warnings.push(format!("calibration moved: {name} {one:.1} and {two:.1}"));
        }
    }
    for record in [old, new] {
        let busy = record
            .rows
            .iter()
            .flat_map(|row| &row.arms)
            .filter(|arm| arm.foreign_cpu() > 0.1)
            .count();
        if busy > 0 {
            warnings.push(format!(
                "{}: {busy} arm(s) shared the machine with others",
                record.run.id
            ));
        }
        if record.end.is_none() {
            warnings.push(format!("{}: the run did not get to its end", record.run.id));
        }
    }
    for input in &old.run.inputs {
        let other = new.run.inputs.iter().find(|other| other.name == input.name);
        if other.is_some_and(|other| other.hash != input.hash) {
            warnings.push(format!("{}: same name, other contents", input.name));
        }
    }
    warnings
}

impl Outlook {
    /// Whether anything fails.
    pub fn fails(&self) -> bool {
        self.comparisons.iter().any(Comparison::fails)
    }

    /// How the peers' walls and costs moved: the median of their ratios.
    pub fn control(&self) -> Option<f64> {
        let ratios: Vec<f64> = self
            .comparisons
            .iter()
            .filter(|comparison| !comparison.own && matches!(comparison.figure, "wall" | "cost"))
            .filter_map(Comparison::ratio)
            .collect();
        stats::median(&ratios)
    }

    /// A table of what moved (everything with `all`), the control, the warnings and the verdict.
    pub fn render(&self, all: bool) -> String {
        let mut text = String::new();
        for warning in &self.warnings {
            let _ = writeln!(text, "warning: {warning}");
        }
        for comparison in &self.comparisons {
            let dull = comparison.verdict == Verdict::Same || !comparison.own;
            if dull && !all {
                continue;
            }
            let numbers = match (comparison.medians, comparison.ratio()) {
                (Some((old, new)), Some(ratio)) => {
                    let unit = if comparison.figure == "memory" { 1e6 } else { 1.0 };
                    let (old, new) = (old / unit, new / unit);
                    format!("{old:10.3} -> {new:10.3}  x{ratio:.3} +-{:.3}", comparison.band)
                }
                _ => "no figure".to_owned(),
            };
            let verdict = format!("{:?}", comparison.verdict).to_lowercase();
            let role = if comparison.own { "" } else { " (peer)" };
            let _ = writeln!(
                text,
                "{verdict:<8} {:<44} {:<14} {:<7} {numbers}{role}",
                comparison.row, comparison.arm, comparison.figure
            );
        }
        if let Some(control) = self.control() {
            let _ = writeln!(text, "peers moved by x{control:.3} (median)");
        }
        let judged = self.comparisons.iter().filter(|comparison| comparison.own);
        let count = |wanted: Verdict| {
            judged
                .clone()
                .filter(|comparison| comparison.verdict == wanted)
                .count()
        };
        let _ = writeln!(
            text,
            "{} figures: {} same, {} better, {} worse, {} unclear, {} gone or failed",
            judged.clone().count(),
            count(Verdict::Same),
            count(Verdict::Better),
            count(Verdict::Worse),
            count(Verdict::Unclear),
            count(Verdict::Gone) + count(Verdict::Failed)
        );
        text
    }
}
