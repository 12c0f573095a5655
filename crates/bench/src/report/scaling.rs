//! Growth with input size and with processors, where a row was measured at more than one, and the exponents fitted to it.

use std::fmt::Write as _;

use crate::plot::{self, Axes, Curve, Panel, Scale};
use crate::record::{Arm, Row};
use crate::stats;

/// One picture with its table.
pub(super) struct Page {
    pub file: &'static str,
    pub title: &'static str,
    pub picture: String,
    pub table: String,
}

/// What is drawn over what.
struct Plan {
    file: &'static str,
    title: &'static str,
    x_name: &'static str,
    y_name: &'static str,
    x: fn(&Row) -> f64,
    y: fn(&Arm) -> Option<f64>,
    /// What makes points belong to one curve: the row, and everything of it that is not x.
    subject: fn(&Row) -> Subject,
}

/// Row, input, processors, cold; empty or 0 where it is what varies.
type Subject = (String, String, usize, bool);

fn by_size(row: &Row) -> Subject {
    (row.row.clone(), String::new(), row.processors, row.cold)
}

fn megabytes(row: &Row) -> f64 {
    row.input_bytes as f64 / 1e6
}

const PLANS: [Plan; 3] = [
    Plan {
        file: "scaling-time",
        title: "Wall time over input size",
        x_name: "input MB",
        y_name: "wall s",
        x: megabytes,
        y: Arm::wall,
        subject: by_size,
    },
    Plan {
        file: "scaling-memory",
        title: "Peak memory over input size",
        x_name: "input MB",
        y_name: "peak MB",
        x: megabytes,
        y: |arm| arm.peak().map(|bytes| bytes / 1e6),
        subject: by_size,
    },
    Plan {
        file: "scaling-processors",
        title: "Wall time over processors",
        x_name: "processors",
        y_name: "wall s",
        x: |row| row.processors as f64,
        y: Arm::wall,
        subject: |row| (row.row.clone(), row.input.clone(), 0, row.cold),
    },
];

/// The pages for which there are at least two points.
pub(super) fn pages(rows: &[&Row], series: &[String]) -> Vec<Page> {
    PLANS.iter().filter_map(|plan| plan.page(rows, series)).collect()
}

impl Plan {
    fn page(&self, rows: &[&Row], series: &[String]) -> Option<Page> {
        let mut subjects: Vec<Subject> = Vec::new();
        for row in rows {
            let subject = (self.subject)(row);
            if !subjects.contains(&subject) {
                subjects.push(subject);
            }
        }
        let mut table = format!(
            "| job | arm | points ({}: {}) | exponent |\n| --- | --- | --- | --- |\n",
            self.x_name, self.y_name
        );
        let mut panels = Vec::new();
        for subject in subjects {
            let title = label(&subject, rows);
            let group: Vec<&&Row> = rows.iter().filter(|row| (self.subject)(row) == subject).collect();
            let curves: Vec<Curve> = series
                .iter()
                .enumerate()
                .filter_map(|(index, arm)| {
                    let (curve, exponent) = self.curve(&group, index, arm)?;
                    let point = |(x, y): &(f64, f64)| format!("{}: {}", plot::short(*x), plot::short(*y));
                    let points: Vec<String> = curve.points.iter().map(point).collect();
                    let _ = writeln!(
                        table,
                        "| {title} | {arm} | {} | {exponent:.2} |",
                        points.join(", ")
                    );
                    Some(curve)
                })
                .collect();
            if !curves.is_empty() {
                panels.push(Panel { title, curves });
            }
        }
        let axes = Axes {
            x: self.x_name,
            y: self.y_name,
            x_scale: Scale::Logarithmic,
            y_scale: Scale::Logarithmic,
            dots: true,
        };
        (!panels.is_empty()).then(|| Page {
            file: self.file,
            title: self.title,
            picture: plot::panels(self.title, series, &axes, &panels),
            table,
        })
    }

    fn curve(&self, group: &[&&Row], series: usize, arm: &str) -> Option<(Curve, f64)> {
        let point = |row: &&&Row| {
            let arm = row.arms.iter().find(|other| other.arm == arm)?;
            Some(((self.x)(row), (self.y)(arm)?))
        };
        let mut points: Vec<(f64, f64)> = group.iter().filter_map(point).collect();
        points.sort_by(|one, two| one.0.total_cmp(&two.0));
        let (exponent, _) = stats::power_law(&points)?;
        let note = format!("exponent {exponent:.2}");
        Some((Curve { series, points, note }, exponent))
    }
}

fn label((row, input, processors, cold): &Subject, rows: &[&Row]) -> String {
    let mut label = row.clone();
    if !input.is_empty() {
        let _ = write!(label, " {}", input.trim_end_matches(".osm.pbf"));
    }
    if *processors > 0 && rows.iter().any(|row| row.processors != *processors) {
        let _ = write!(label, " {processors}cpu");
    }
    if *cold {
        label.push_str(" cold");
    }
    label
}
