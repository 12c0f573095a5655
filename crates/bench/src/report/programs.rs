//! Figures that programs printed about themselves.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use crate::plot::{self, Axes, Curve, Panel, Scale};
use crate::record::Record;
use crate::{program, stats};

/// Names of all arms, peers last.
fn arms(record: &Record) -> Vec<String> {
    let mut names: Vec<(bool, String)> = Vec::new();
    for result in &record.programs {
        let name = (program::is_peer(&result.line), program::key(&result.line).1);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.sort_by_key(|(peer, _)| *peer);
    names.into_iter().map(|(_, name)| name).collect()
}

/// A picture of what grows with size.
pub(super) struct Growth {
    pub file: &'static str,
    pub title: &'static str,
    pub picture: String,
}

/// What is drawn over n.
struct Plan {
    file: &'static str,
    title: &'static str,
    y_name: &'static str,
    y: fn(&Value) -> Option<f64>,
}

const PLANS: [Plan; 2] = [
    Plan {
        file: "rates",
        title: "Operations a second over size",
        y_name: "million/s",
        y: |line| Some(line.get("ops_per_s")?.as_f64()? / 1e6),
    },
    Plan {
        file: "sizes",
        title: "Memory and disk over size",
        y_name: "MiB",
        y: |line| Some(line.get("bytes")?.as_f64()? / f64::from(1 << 20)),
    },
];

/// Pictures of the rows that some arm has at two sizes or more.
pub(super) fn growth(record: &Record) -> Vec<Growth> {
    let names = arms(record);
    PLANS
        .iter()
        .filter_map(|plan| plan.draw(record, &names))
        .collect()
}

impl Plan {
    fn draw(&self, record: &Record, names: &[String]) -> Option<Growth> {
        // Rows, in which arms have figures by size.
        let mut rows: BTreeMap<String, BTreeMap<usize, BTreeMap<u64, Vec<f64>>>> = BTreeMap::new();
        for result in &record.programs {
            let (row, arm, n, _) = program::key(&result.line);
            if let Some(y) = (self.y)(&result.line)
                && let Some(series) = names.iter().position(|name| *name == arm)
            {
                let sizes = rows.entry(row).or_default().entry(series).or_default();
                sizes.entry(n).or_default().push(y);
            }
        }
        let mut panels = Vec::new();
        for (title, arms) in rows {
            if arms.values().all(|sizes| sizes.len() < 2) {
                continue;
            }
            let curve = |(series, sizes): (usize, BTreeMap<u64, Vec<f64>>)| Curve {
                series,
                points: sizes
                    .into_iter()
                    .filter_map(|(n, values)| Some((n as f64, stats::median(&values)?)))
                    .collect(),
                note: String::new(),
            };
            let curves = arms.into_iter().map(curve).collect();
            panels.push(Panel { title, curves });
        }
        let axes = Axes {
            x: "n",
            y: self.y_name,
            x_scale: Scale::Logarithmic,
            y_scale: Scale::Logarithmic,
            dots: true,
        };
        (!panels.is_empty()).then(|| Growth {
            file: self.file,
            title: self.title,
            picture: plot::panels(self.title, names, &axes, &panels),
        })
    }
}

/// Every figure as a cost: a table, and pictures of cost over size.
pub(super) fn costs(record: &Record) -> (String, String) {
    let names = arms(record);
    // Rows with their threads, in which arms with their sizes have costs.
    type Costs = BTreeMap<(String, u64), Vec<f64>>;
    let mut costs: BTreeMap<(String, u64), Costs> = BTreeMap::new();
    for result in &record.programs {
        let (row, arm, n, threads) = program::key(&result.line);
        let row = format!("{}/{row}", result.program);
        let entry = costs
            .entry((row, threads))
            .or_default()
            .entry((arm, n))
            .or_default();
        entry.extend(program::cost(&result.line));
    }
    let mut text =
        String::from("| row | threads | n | arm | cost | repeats |\n| --- | --- | --- | --- | --- | --- |\n");
    let mut panels = Vec::new();
    for ((row, threads), arms) in &costs {
        let mut curves = Vec::new();
        for (index, name) in names.iter().enumerate() {
            let mut points = Vec::new();
            for ((_, n), values) in arms.iter().filter(|((arm, _), _)| arm == name) {
                let Some(cost) = stats::median(values) else {
                    continue;
                };
                let band = stats::noise_band(values)
                    .map_or(String::new(), |band| format!(" ±{:.0} %", band * 100.0));
                let _ = writeln!(
                    text,
                    "| {row} | {threads} | {} | {name} | {cost:.2}{band} | {} |",
                    plot::short(*n as f64),
                    values.len()
                );
                points.push((*n as f64, cost));
            }
            if !points.is_empty() {
                curves.push(Curve {
                    series: index,
                    points,
                    note: String::new(),
                });
            }
        }
        panels.push(Panel {
            title: format!("{row}, {threads} thread(s)"),
            curves,
        });
    }
    text.push_str("\nCost: ns an operation (or seconds, or bytes a key, where the program gives those).\n");
    let axes = Axes {
        x: "n",
        y: "cost",
        x_scale: Scale::Logarithmic,
        y_scale: Scale::Logarithmic,
        dots: true,
    };
    let picture = plot::panels("In-process figures: cost over size", &names, &axes, &panels);
    (text, picture)
}
