//! The record: one JSON object a line, appended, never rewritten.
//!
//! A run is a `run` line (machine, source, calibration, tools, inputs), then a line for each thing measured (`row` for whole
//! processes, `program` for a line that an in-process benchmark printed), then an `end` line. Lines of a run carry its id, so that
//! files can be concatenated.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::calibrate::Calibration;
use crate::machine::{Load, Machine, Source};
use crate::measure::Sample;
use crate::stats;
use crate::tools::Tool;

/// One line of a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Line {
    /// A run begins.
    Run(Box<Run>),
    /// One row over one input.
    Row(Row),
    /// One result of an in-process benchmark.
    Program(ProgramResult),
    /// A run is over.
    End(End),
}

/// Under which circumstances the lines of a run were measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Time and suite: `2026-01-31T12:00:00Z-toolkit`.
    pub id: String,
    /// The suite.
    pub suite: String,
    /// When it began, UTC.
    pub started: String,
    /// The runner's own command line.
    pub command: Vec<String>,
    /// The source tree.
    pub source: Source,
    /// The machine.
    pub machine: Machine,
    /// What the machine could do just before.
    pub calibration: Calibration,
    /// Load before.
    pub load: Load,
    /// The programs.
    pub tools: Vec<Tool>,
    /// The inputs.
    pub inputs: Vec<Input>,
}

/// An input of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// File name without folders.
    pub name: String,
    /// Size.
    pub bytes: u64,
    /// See [`crate::machine::fingerprint`].
    pub hash: String,
}

/// How a row ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Measured, outputs verified.
    Ok,
    /// An output was wrong, or a program failed: there is no figure.
    Failed,
    /// osmill cannot do it yet.
    Absent,
    /// Left out on request, for want of time or of an input.
    Skipped,
}

/// One row over one input, with one number of processors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Id of the run.
    pub run: String,
    /// Name of the row.
    pub row: String,
    /// Name of the input.
    pub input: String,
    /// Size of the input.
    pub input_bytes: u64,
    /// Processors that each program was given.
    pub processors: usize,
    /// Whether the input's pages were dropped before each run.
    pub cold: bool,
    /// How it ended.
    pub outcome: Outcome,
    /// Why, unless it ended well.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The programs, in the order in which they took turns.
    #[serde(default)]
    pub arms: Vec<Arm>,
    /// Wanted ratios of walls, by kind of peer.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub goals: std::collections::BTreeMap<String, f64>,
}

/// One program's part in a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Arm {
    /// Name of the tool.
    pub arm: String,
    /// Whether it is a build of osmill.
    pub own: bool,
    /// Its command line; files by their last two path components.
    pub command: Vec<String>,
    /// Measured runs. Empty unless the row is ok.
    pub samples: Vec<Sample>,
    /// What its output was compared with and what came of it.
    pub verified: Verified,
    /// Size of the output files in bytes; `None` when it only printed.
    pub output_bytes: Option<u64>,
    /// Lines that the program itself logged as JSON (`--log json`) in the sample that has the timeline.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<Value>,
}

/// The outcome of a verification.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Verified {
    /// What was compared, in words.
    pub how: String,
    /// How many runs had their output verified, the warm-up included.
    pub runs: usize,
    /// What differed. Empty unless the row failed or the definition says that this peer differs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<String>,
    /// The definition's reason for the difference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<String>,
}

/// A line that an in-process benchmark printed. See [`crate::program`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProgramResult {
    /// Id of the run.
    pub run: String,
    /// Name of the program.
    pub program: String,
    /// The line as printed.
    pub line: Value,
}

/// A run is over.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// Id of the run.
    pub run: String,
    /// When, UTC.
    pub finished: String,
    /// Seconds since the start.
    pub wall_s: f64,
    /// Load after.
    pub load: Load,
}

impl Arm {
    /// All walls, in seconds.
    pub fn walls(&self) -> Vec<f64> {
        self.samples.iter().map(|sample| sample.wall_s).collect()
    }

    /// Median wall in seconds.
    pub fn wall(&self) -> Option<f64> {
        stats::median(&self.walls())
    }

    /// Median processor time (user and system) in seconds.
    pub fn cpu(&self) -> Option<f64> {
        self.middle(|sample| sample.user_s + sample.system_s)
    }

    /// Median peak resident size in bytes.
    pub fn peak(&self) -> Option<f64> {
        self.middle(|sample| sample.peak_rss_bytes as f64)
    }

    /// Median of any figure of the samples.
    pub fn middle(&self, figure: impl Fn(&Sample) -> f64) -> Option<f64> {
        stats::median(&self.samples.iter().map(figure).collect::<Vec<_>>())
    }

    /// Index of the sample whose wall is nearest to the median.
    pub fn typical(&self) -> Option<usize> {
        let wall = self.wall()?;
        let distance = |sample: &Sample| (sample.wall_s - wall).abs();
        (0..self.samples.len())
            .min_by(|&a, &b| distance(&self.samples[a]).total_cmp(&distance(&self.samples[b])))
    }

    /// Largest share of the machine that other processes took during a sample.
    pub fn foreign_cpu(&self) -> f64 {
        self.samples
            .iter()
            .map(|sample| sample.foreign_cpu)
            .fold(0.0, f64::max)
    }
}

impl Row {
    /// What makes it the same row in another record.
    pub fn key(&self) -> (String, String, usize, bool) {
        (self.row.clone(), self.input.clone(), self.processors, self.cold)
    }
}

/// A record that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A line is no record line.
    #[error("{}:{line}: {source}", path.display())]
    Line {
        /// Which file.
        path: PathBuf,
        /// Line number from 1.
        line: usize,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// Nothing in it.
    #[error("{}: no run in this record", path.display())]
    Empty {
        /// Which file.
        path: PathBuf,
    },
}

/// Appends lines to a file, each written whole before the next is measured: an aborted run keeps what it has.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    file: File,
}

impl Writer {
    /// Opens `path` for appending; makes it and its folder where needed.
    pub fn append_to(path: &Path) -> Result<Self, RecordError> {
        let fail = |source| RecordError::Io {
            path: path.to_owned(),
            source,
        };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(fail)?;
        }
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .map_err(fail)?;
        Ok(Self {
            path: path.to_owned(),
            file,
        })
    }

    /// Where it goes.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends one line.
    pub fn write(&mut self, line: &Line) -> Result<(), RecordError> {
        let fail = |source| RecordError::Io {
            path: self.path.clone(),
            source,
        };
        let mut text = serde_json::to_string(line).map_err(|error| fail(error.into()))?;
        text.push('\n');
        self.file.write_all(text.as_bytes()).map_err(fail)
    }
}

/// One run read back.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Record {
    /// The circumstances.
    pub run: Run,
    /// Rows in order.
    pub rows: Vec<Row>,
    /// Lines of in-process benchmarks in order.
    pub programs: Vec<ProgramResult>,
    /// How it ended; `None` for a run that was aborted.
    pub end: Option<End>,
}

/// All runs of a record file, oldest first.
pub fn load(path: &Path) -> Result<Vec<Record>, RecordError> {
    let io = |source| RecordError::Io {
        path: path.to_owned(),
        source,
    };
    let mut records: Vec<Record> = Vec::new();
    for (index, text) in BufReader::new(File::open(path).map_err(io)?).lines().enumerate() {
        let text = text.map_err(io)?;
        if text.trim().is_empty() {
            continue;
        }
        let line = serde_json::from_str(&text).map_err(|source| RecordError::Line {
            path: path.to_owned(),
            line: index + 1,
            source,
        })?;
        let of =
            |records: &mut Vec<Record>, run: &str| records.iter().rposition(|record| record.run.id == run);
        match line {
            Line::Run(run) => records.push(Record {
                run: *run,
                ..Record::default()
            }),
            Line::Row(row) => {
                if let Some(at) = of(&mut records, &row.run) {
                    records[at].rows.push(row);
                }
            }
            Line::Program(result) => {
                if let Some(at) = of(&mut records, &result.run) {
                    records[at].programs.push(result);
                }
            }
            Line::End(end) => {
                if let Some(at) = of(&mut records, &end.run) {
                    records[at].end = Some(end);
                }
            }
        }
    }
    if records.is_empty() {
        return Err(RecordError::Empty {
            path: path.to_owned(),
        });
    }
    Ok(records)
}

/// The last run of a record file.
pub fn load_last(path: &Path) -> Result<Record, RecordError> {
    load(path)?.pop().ok_or_else(|| RecordError::Empty {
        path: path.to_owned(),
    })
}
