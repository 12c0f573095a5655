//! A record as a page: tables in Markdown, pictures beside them.

mod programs;
mod scaling;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::plot::{self, Axes, Bar, Curve, Panel, Scale};
use crate::record::{Arm, Outcome, Record, Row};
use crate::stats;

/// A page that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct ReportError {
    path: PathBuf,
    source: std::io::Error,
}

/// Writes `report.md` and its pictures into `folder`; returns the page's path.
pub fn write(record: &Record, folder: &Path) -> Result<PathBuf, ReportError> {
    let put = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|source| ReportError { path, source })
    };
    fs::create_dir_all(folder).map_err(|source| ReportError {
        path: folder.to_owned(),
        source,
    })?;
    let series = series(record);
    let mut page = head(record);
    let rows: Vec<&Row> = record
        .rows
        .iter()
        .filter(|row| row.outcome == Outcome::Ok)
        .collect();
    if !rows.is_empty() {
        put(
            "walls.svg",
            &bars(&rows, &series, "Wall time, median", Figure::Wall),
        )?;
        put(
            "memory.svg",
            &bars(&rows, &series, "Peak memory, median", Figure::Memory),
        )?;
        page.push_str("## Times and memory\n\n![wall times](walls.svg)\n\n");
        page.push_str(&table(&rows, &series));
        page.push_str("\n![peak memory](memory.svg)\n\n");
        page.push_str(&details(&rows));
        if let Some(picture) = timelines(&rows, &series) {
            put("timelines.svg", &picture)?;
            page.push_str("## Memory over time\n\n![memory timelines](timelines.svg)\n\n");
        }
        for scaling in scaling::pages(&rows, &series) {
            put(&format!("{}.svg", scaling.file), &scaling.picture)?;
            let _ = write!(
                page,
                "## {}\n\n![{}]({}.svg)\n\n{}\n",
                scaling.title, scaling.title, scaling.file, scaling.table
            );
        }
        page.push_str(&phases(&rows));
    }
    if !record.programs.is_empty() {
        for growth in programs::growth(record) {
            put(&format!("{}.svg", growth.file), &growth.picture)?;
            let _ = write!(
                page,
                "## {}\n\n![{}]({}.svg)\n\n",
                growth.title, growth.title, growth.file
            );
        }
        let (text, picture) = programs::costs(record);
        put("programs.svg", &picture)?;
        let _ = write!(
            page,
            "## In-process figures\n\n![in-process figures](programs.svg)\n\n{text}\n"
        );
    }
    page.push_str(&others(record));
    put("report.md", &page)?;
    Ok(folder.join("report.md"))
}

/// Names of all arms: osmill's own first, then peers, each in order of appearance.
fn series(record: &Record) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let arms = || record.rows.iter().flat_map(|row| &row.arms);
    for arm in arms().filter(|arm| arm.own).chain(arms().filter(|arm| !arm.own)) {
        if !names.contains(&arm.arm) {
            names.push(arm.arm.clone());
        }
    }
    // Blue stays osmill's, also where it took no part.
    if !arms().any(|arm| arm.own) && !names.is_empty() {
        names.insert(0, "osmill".to_owned());
    }
    names
}

fn index(series: &[String], arm: &str) -> usize {
    series.iter().position(|name| name == arm).unwrap_or(0)
}

fn seconds(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0} s"),
        value if value >= 1.0 => format!("{value:.2} s"),
        value => format!("{:.0} ms", value * 1e3),
    }
}

fn megabytes(value: f64) -> String {
    if value >= 1e8 {
        format!("{:.0} MB", value / 1e6)
    } else {
        format!("{:.1} MB", value / 1e6)
    }
}

/// Row names, with input, processors and temperature where they vary.
fn label(row: &Row, rows: &[&Row]) -> String {
    let mut label = row.row.clone();
    if rows.iter().any(|other| other.input != row.input) {
        let _ = write!(label, " {}", row.input.trim_end_matches(".osm.pbf"));
    }
    if rows.iter().any(|other| other.processors != row.processors) {
        let _ = write!(label, " {}cpu", row.processors);
    }
    if rows.iter().any(|other| other.cold != row.cold) && row.cold {
        label.push_str(" cold");
    }
    label
}

fn head(record: &Record) -> String {
    let run = &record.run;
    let mut page = format!("# Benchmark: {}\n\n", run.suite);
    let machine = &run.machine;
    let _ = writeln!(
        page,
        "Run `{}` of commit `{}`{}, begun {}{}.\n",
        run.id,
        run.source.commit.chars().take(12).collect::<String>(),
        if run.source.dirty {
            " **with uncommitted changes**"
        } else {
            ""
        },
        run.started,
        record
            .end
            .as_ref()
            .map_or(" and **not finished**".to_owned(), |end| format!(
                ", {} long",
                seconds(end.wall_s)
            ))
    );
    let _ = writeln!(
        page,
        "Command: `osmill-bench {}`. What these figures mean and do not: `crates/bench/READING.md`.\n",
        run.command.join(" ")
    );
    let _ = writeln!(page, "| | |\n| --- | --- |");
    let _ = writeln!(
        page,
        "| processor | {} x {} ({}) |",
        machine.processors,
        machine.cpu,
        machine.cpu_features.join(", ")
    );
    let _ = writeln!(page, "| caches | {} |", machine.caches.join(", "));
    let _ = writeln!(
        page,
        "| memory | {:.1} GiB, huge pages {} |",
        machine.memory_bytes as f64 / f64::from(1 << 30),
        machine.huge_pages
    );
    let _ = writeln!(page, "| kernel | {} |", machine.kernel);
    let rates: Vec<String> = run
        .calibration
        .rates()
        .iter()
        .map(|(name, rate, _)| format!("{name} {rate:.1}"))
        .collect();
    let _ = writeln!(page, "| calibration | {} |", rates.join("; "));
    if let (Some(one), Some(many)) = (run.calibration.device_iops_1, run.calibration.device_iops_16) {
        let _ = writeln!(
            page,
            "| device, 4 KiB reads/s | {one:.0} one at a time, {many:.0} by 16 threads |"
        );
    }
    let after = record
        .end
        .as_ref()
        .map_or(String::new(), |end| format!(", {:.2} after", end.load.average[0]));
    let _ = writeln!(
        page,
        "| load (1 min) | {:.2} before{after} |",
        run.load.average[0]
    );
    for tool in &run.tools {
        let _ = writeln!(page, "| {} | {} |", tool.name, tool.version);
    }
    for input in &run.inputs {
        let _ = writeln!(
            page,
            "| input | {} ({}, `{}`) |",
            input.name,
            megabytes(input.bytes as f64),
            input.hash
        );
    }
    page.push('\n');
    page
}

#[derive(Clone, Copy)]
enum Figure {
    Wall,
    Memory,
}

fn bars(rows: &[&Row], series: &[String], title: &str, figure: Figure) -> String {
    let groups: Vec<(String, Vec<Bar>)> = rows
        .iter()
        .map(|row| {
            let value = |arm: &Arm| match figure {
                Figure::Wall => arm.wall().unwrap_or(0.0),
                Figure::Memory => arm.peak().unwrap_or(0.0),
            };
            let own = row.arms.iter().find(|arm| arm.own).map(value);
            let bars = row.arms.iter().map(|arm| {
                let value = value(arm);
                let number = match figure {
                    Figure::Wall => seconds(value),
                    Figure::Memory => megabytes(value),
                };
                let ratio = own
                    .filter(|own| !arm.own && *own > 0.0)
                    .map_or(String::new(), |own| format!(" ({:.1}x)", value / own));
                Bar {
                    series: index(series, &arm.arm),
                    value,
                    label: number + &ratio,
                }
            });
            (label(row, rows), bars.collect())
        })
        .collect();
    plot::bars(title, series, &groups)
}

fn table(rows: &[&Row], series: &[String]) -> String {
    let present: Vec<&String> = series
        .iter()
        .filter(|name| {
            rows.iter()
                .any(|row| row.arms.iter().any(|arm| arm.arm == **name))
        })
        .collect();
    let mut text = String::from("| job |");
    for name in &present {
        let _ = write!(text, " {name} |");
    }
    text.push_str(" goals |\n| --- |");
    text.push_str(&" --- |".repeat(present.len() + 1));
    text.push('\n');
    for row in rows {
        let _ = write!(text, "| {} |", label(row, rows));
        let own = row.arms.iter().find(|arm| arm.own).and_then(Arm::wall);
        for name in &present {
            let Some(arm) = row.arms.iter().find(|arm| arm.arm == **name) else {
                text.push_str(" |");
                continue;
            };
            let wall = arm.wall().unwrap_or(0.0);
            let _ = write!(text, " {}", seconds(wall));
            if let Some(band) = stats::noise_band(&arm.walls()) {
                let _ = write!(text, " ±{:.0} %", band * 100.0);
            }
            let _ = write!(text, ", {}", megabytes(arm.peak().unwrap_or(0.0)));
            if let Some(own) = own.filter(|own| !arm.own && *own > 0.0) {
                let _ = write!(text, ", **{:.1}x**", wall / own);
            }
            if !arm.verified.differences.is_empty() {
                text.push_str(" †");
            }
            if arm.foreign_cpu() > 0.1 {
                text.push_str(" ‡");
            }
            text.push_str(" |");
        }
        let goals = row.goals.iter().filter_map(|(peer, goal)| {
            let wall = row
                .arms
                .iter()
                .find(|arm| !arm.own && arm.arm.starts_with(peer.as_str()))?
                .wall()?;
            let ratio = wall / own?;
            Some(format!(
                "{peer} {goal}x {}",
                if ratio >= *goal { "met" } else { "**missed**" }
            ))
        });
        let _ = writeln!(text, " {} |", goals.collect::<Vec<_>>().join(", "));
    }
    text.push_str(
        "\nWall ± half the spread of the repeats, peak resident memory; **bold**: the peer's wall over osmill's. \
         † its output is known to differ. ‡ other processes took more than a tenth of the machine.\n",
    );
    text
}

fn details(rows: &[&Row]) -> String {
    let mut text = String::from(
        "## Where the time went\n\n| job | arm | runs | user s | system s | read calls | write calls | device reads | \
         faults | waits | preempted | output | verified |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for row in rows {
        for arm in &row.arms {
            let middle = |figure: fn(&crate::measure::Sample) -> f64| arm.middle(figure).unwrap_or(0.0);
            let bytes = |figure: fn(&crate::measure::IoCounts) -> u64| {
                let values: Vec<f64> = arm
                    .samples
                    .iter()
                    .filter_map(|sample| sample.io.as_ref())
                    .map(|io| figure(io) as f64)
                    .collect();
                stats::median(&values).map_or("?".to_owned(), megabytes)
            };
            let warm = if arm.samples.iter().any(|sample| sample.from_warm_up) {
                " (w)"
            } else {
                ""
            };
            let _ = writeln!(
                text,
                "| {} | {} | {}{warm} | {:.2} | {:.2} | {} | {} | {} | {} + {} | {} | {} | {} | {}, {} runs{} |",
                label(row, rows),
                arm.arm,
                arm.samples.len(),
                middle(|sample| sample.user_s),
                middle(|sample| sample.system_s),
                bytes(|io| io.read_call_bytes),
                bytes(|io| io.write_call_bytes),
                bytes(|io| io.device_read_bytes),
                plot::short(middle(|sample| sample.minor_faults as f64)),
                plot::short(middle(|sample| sample.major_faults as f64)),
                plot::short(middle(|sample| sample.voluntary_switches as f64)),
                plot::short(middle(|sample| sample.involuntary_switches as f64)),
                arm.output_bytes
                    .map_or("-".to_owned(), |bytes| megabytes(bytes as f64)),
                arm.verified.how,
                arm.verified.runs,
                match &arm.verified.known {
                    Some(known) => format!("; differs: {known} ({})", arm.verified.differences.join(", ")),
                    None => String::new(),
                }
            );
        }
    }
    text.push_str("\n(w): the warm-up counts as a sample, because the program is too slow for more.\n\n");
    text
}

fn timelines(rows: &[&Row], series: &[String]) -> Option<String> {
    let panels: Vec<Panel> = rows
        .iter()
        .filter_map(|row| {
            let curves: Vec<Curve> = row
                .arms
                .iter()
                .filter_map(|arm| {
                    let sample = arm.samples.get(arm.typical()?)?;
                    // A line needs two points; shorter runs have their peak in the table.
                    (sample.timeline.len() >= 3).then(|| Curve {
                        series: index(series, &arm.arm),
                        points: sample
                            .timeline
                            .iter()
                            .map(|point| (point.ms as f64 / 1e3, point.rss as f64 / 1e6))
                            .collect(),
                        note: String::new(),
                    })
                })
                .collect();
            (!curves.is_empty()).then(|| Panel {
                title: label(row, rows),
                curves,
            })
        })
        .collect();
    let axes = Axes {
        x: "seconds",
        y: "resident MB",
        x_scale: Scale::Linear,
        y_scale: Scale::Linear,
        dots: false,
    };
    (!panels.is_empty()).then(|| {
        plot::panels(
            "Resident memory over time, one typical run an arm",
            series,
            &axes,
            &panels,
        )
    })
}

/// What the programs logged about themselves: a table a program, one line a phase, whatever the keys are called.
fn phases(rows: &[&Row]) -> String {
    let mut text = String::new();
    for row in rows {
        for arm in &row.arms {
            let objects = logged(&arm.log);
            let mut keys: Vec<&str> = Vec::new();
            for key in objects.iter().flat_map(|object| object.keys()) {
                if !keys.contains(key) {
                    keys.push(key);
                }
            }
            if keys.is_empty() {
                continue;
            }
            keys.sort_by_key(|key| !matches!(*key, "phase" | "name"));
            let _ = write!(
                text,
                "**{}, {}**\n\n| {} |\n",
                label(row, rows),
                arm.arm,
                keys.join(" | ")
            );
            let _ = writeln!(text, "|{}", " --- |".repeat(keys.len()));
            for object in objects {
                let cells = keys
                    .iter()
                    .map(|key| object.get(key).copied().map_or(String::new(), cell));
                let _ = writeln!(text, "| {} |", cells.collect::<Vec<_>>().join(" | "));
            }
            text.push('\n');
        }
    }
    if text.is_empty() {
        return text;
    }
    format!("## Phases, as logged by the programs\n\n{text}")
}

/// The phases of a log and then its summary, as objects without their own lists. A summary that lists phases stands for the lines
/// before it.
fn logged(log: &[Value]) -> Vec<BTreeMap<&str, &Value>> {
    let summary = log.iter().rev().find_map(|line| line.get("summary")?.as_object());
    let listed = summary.and_then(|summary| summary.get("phases")?.as_array());
    let mut objects: Vec<&serde_json::Map<String, Value>> = match listed {
        Some(phases) => phases.iter().filter_map(Value::as_object).collect(),
        None => log
            .iter()
            .filter(|line| line.get("phase").is_some())
            .filter_map(|line| {
                line.get("phase")
                    .filter(|phase| phase.is_object())
                    .unwrap_or(line)
                    .as_object()
            })
            .collect(),
    };
    objects.extend(summary);
    let scalars = |object| -> BTreeMap<&str, &Value> {
        let object: &serde_json::Map<String, Value> = object;
        let fields = object.iter().filter(|(_, value)| !value.is_array());
        fields.map(|(key, value)| (key.as_str(), value)).collect()
    };
    objects.into_iter().map(scalars).collect()
}

fn cell(value: &Value) -> String {
    match value {
        Value::String(text) => text.replace('|', "\\|"),
        Value::Number(number) => number.as_f64().map_or(number.to_string(), plot::short),
        Value::Null => String::new(),
        other => other.to_string().replace('|', "\\|"),
    }
}

/// Rows without figures, with their reasons.
fn others(record: &Record) -> String {
    let mut text = String::new();
    for row in record.rows.iter().filter(|row| row.outcome != Outcome::Ok) {
        let outcome = format!("{:?}", row.outcome).to_lowercase();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {outcome} | {} |",
            row.row,
            row.input,
            row.processors,
            row.reason.replace('|', "\\|")
        );
    }
    if text.is_empty() {
        return text;
    }
    format!(
        "## Rows without figures\n\n| job | input | processors | outcome | reason |\n| --- | --- | --- | --- | --- |\n{text}"
    )
}
