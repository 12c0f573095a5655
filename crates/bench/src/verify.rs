//! What an arm's output says, in a form that two arms' outputs can be compared in.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use regex::bytes::Regex;
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use crate::definitions::Verify;
use crate::digest::{Digest, DigestError, Facet};
use crate::machine;

/// Where an arm left its output.
#[derive(Debug, Clone)]
pub struct Places {
    /// The file `{out}`.
    pub out: PathBuf,
    /// The folder `{outdir}`.
    pub outdir: PathBuf,
    /// What it printed.
    pub stdout: PathBuf,
    /// What it complained.
    pub stderr: PathBuf,
}

/// The comparable contents of an output.
#[derive(Debug, Clone, PartialEq)]
pub enum Evidence {
    /// One digest a file.
    Elements(Vec<Digest>),
    /// Named values.
    Counts(BTreeMap<String, String>),
    /// How many lines, and the wrapping sum of their hashes.
    Lines {
        /// Lines that matched.
        lines: u64,
        /// Sum of their hashes: order does not matter, repetition does.
        sum: u64,
    },
    /// Hash of the whole file.
    Bytes(String),
}

/// An output that cannot be read, which is a wrong output.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The output file is missing or cannot be read.
    #[error("output {}: {source}", path.display())]
    Output {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is no PBF.
    #[error(transparent)]
    Digest(#[from] DigestError),
    /// What the tool printed has no such count.
    #[error("`{name}` is nowhere in what {tool} printed (looked for {sources})")]
    NoCount {
        /// The tool.
        tool: String,
        /// The count.
        name: String,
        /// Where it was expected.
        sources: String,
    },
    /// The definition has no rule for this tool.
    #[error("the row's definition does not say how to read what {0} prints")]
    NoRule(String),
    /// Nothing matched.
    #[error("no line of what {0} printed is of the expected form")]
    NoLine(String),
    /// The reader of change files.
    #[error("osmium cannot read the change file: {0}")]
    ChangeFile(String),
}

/// Names the files and streams that `verify` looks at, by their contents. Equal names mean that nothing has to be verified anew.
pub fn fingerprint(verify: &Verify, places: &Places) -> std::io::Result<Vec<String>> {
    match verify {
        Verify::Elements { .. } => files(verify, places)
            .iter()
            .map(|path| machine::fingerprint(path))
            .collect(),
        Verify::Bytes | Verify::Changes => Ok(vec![machine::fingerprint(&places.out)?]),
        Verify::Counts { .. } | Verify::Lines { .. } => [&places.stdout, &places.stderr]
            .into_iter()
            .map(|path| machine::fingerprint(path))
            .collect(),
    }
}

/// The output files of an arm; none for what only prints.
pub fn files(verify: &Verify, places: &Places) -> Vec<PathBuf> {
    match verify {
        Verify::Elements { outputs, regions, .. } if !outputs.is_empty() || *regions > 0 => outputs
            .iter()
            .cloned()
            .chain((0..*regions).map(|index| format!("region-{index}.osm.pbf")))
            .map(|name| places.outdir.join(name))
            .collect(),
        Verify::Elements { .. } | Verify::Bytes | Verify::Changes => vec![places.out.clone()],
        Verify::Counts { .. } | Verify::Lines { .. } => Vec::new(),
    }
}

/// What `verify` compares, in words for the record.
pub fn describe(verify: &Verify) -> &'static str {
    match verify {
        Verify::Elements { .. } => "every element, metadata included",
        Verify::Counts { .. } => "counts in the printed text",
        Verify::Lines { .. } => "printed lines",
        Verify::Bytes => "output bytes",
        Verify::Changes => "every change",
    }
}

impl Evidence {
    /// Reads the output in `places` of a tool of `kind`.
    pub fn read(verify: &Verify, kind: &str, places: &Places, threads: usize) -> Result<Self, VerifyError> {
        let output = |path: &Path| {
            let path = path.to_owned();
            move |source| VerifyError::Output { path, source }
        };
        match verify {
            Verify::Elements { .. } => {
                let digests = files(verify, places)
                    .iter()
                    .map(|path| Digest::of_file(path, threads))
                    .collect::<Result<_, _>>()?;
                Ok(Self::Elements(digests))
            }
            Verify::Bytes => {
                let hash = machine::fingerprint(&places.out).map_err(output(&places.out))?;
                Ok(Self::Bytes(hash))
            }
            Verify::Counts { read, .. } => {
                let rules = read
                    .get(kind)
                    .ok_or_else(|| VerifyError::NoRule(kind.to_owned()))?;
                let stdout = std::fs::read(&places.stdout).map_err(output(&places.stdout))?;
                let stderr = std::fs::read(&places.stderr).map_err(output(&places.stderr))?;
                counts(kind, rules, &stdout, &stderr)
            }
            Verify::Lines { read } => {
                let rule = read
                    .get(kind)
                    .ok_or_else(|| VerifyError::NoRule(kind.to_owned()))?;
                let pattern = Regex::new(&rule.pattern).map_err(|_| VerifyError::NoRule(kind.to_owned()))?;
                let file = File::open(&places.stdout).map_err(output(&places.stdout))?;
                let evidence = lines(file, |line, rewritten| {
                    let Some(groups) = pattern.captures(line) else {
                        return false;
                    };
                    groups.expand(rule.to.as_bytes(), rewritten);
                    for [from, to] in &rule.unescape {
                        *rewritten = String::from_utf8_lossy(rewritten).replace(from, to).into_bytes();
                    }
                    true
                })
                .map_err(output(&places.stdout))?;
                match evidence {
                    Self::Lines { lines: 0, .. } => Err(VerifyError::NoLine(kind.to_owned())),
                    evidence => Ok(evidence),
                }
            }
            Verify::Changes => changes(&places.out),
        }
    }

    /// What differs from `other`, by name. Empty when both say the same.
    pub fn differences(&self, other: &Self, ignore: &[Facet]) -> Vec<String> {
        match (self, other) {
            (Self::Elements(ours), Self::Elements(theirs)) if ours.len() == theirs.len() => ours
                .iter()
                .zip(theirs)
                .enumerate()
                .flat_map(|(index, (ours, theirs))| {
                    let file = if theirs == ours || index == 0 {
                        String::new()
                    } else {
                        format!("file {index}: ")
                    };
                    ours.differences(theirs, ignore)
                        .into_iter()
                        .map(move |name| format!("{file}{name}"))
                })
                .collect(),
            (Self::Counts(ours), Self::Counts(theirs)) => ours
                .iter()
                .filter_map(|(name, value)| {
                    let other = theirs.get(name)?;
                    (other != value).then(|| format!("{name} ({value} and {other})"))
                })
                .collect(),
            (
                Self::Lines { lines, sum },
                Self::Lines {
                    lines: other_lines,
                    sum: other_sum,
                },
            ) => {
                if lines != other_lines {
                    vec![format!("number of lines ({lines} and {other_lines})")]
                } else if sum != other_sum {
                    vec!["lines".to_owned()]
                } else {
                    Vec::new()
                }
            }
            (ours, theirs) if ours == theirs => Vec::new(),
            _ => vec!["bytes".to_owned()],
        }
    }

    /// What of `names` differs from the digest of the input.
    pub fn against_counts(&self, input: &Digest, names: &[String]) -> Vec<String> {
        let Self::Counts(ours) = self else {
            return Vec::new();
        };
        names
            .iter()
            .filter_map(|name| {
                let (value, expected) = (ours.get(name)?, input.count(name).to_string());
                (*value != expected).then(|| format!("{name} ({value}; the input has {expected})"))
            })
            .collect()
    }
}

fn counts(
    tool: &str,
    rules: &BTreeMap<String, Vec<String>>,
    stdout: &[u8],
    stderr: &[u8],
) -> Result<Evidence, VerifyError> {
    let json: Option<Value> = serde_json::from_slice(stdout).ok();
    let find = |source: &str| -> Option<String> {
        match source.split_once(':')? {
            ("json", pointer) => match json.as_ref()?.pointer(pointer)? {
                Value::String(text) => Some(text.clone()),
                value @ (Value::Number(_) | Value::Bool(_)) => Some(value.to_string()),
                _ => None,
            },
            (_, expression) => {
                let expression = Regex::new(expression).ok()?;
                let groups = expression
                    .captures(stdout)
                    .or_else(|| expression.captures(stderr))?;
                let text = String::from_utf8_lossy(groups.get(1)?.as_bytes()).into_owned();
                let digits: String = text
                    .chars()
                    .filter(|char| !matches!(char, ',' | '_' | ' '))
                    .collect();
                Some(if digits.parse::<i64>().is_ok() {
                    digits
                } else {
                    text
                })
            }
        }
    };
    rules
        .iter()
        .map(|(name, sources)| {
            let value = sources.iter().find_map(|source| find(source));
            value
                .map(|value| (name.clone(), value))
                .ok_or_else(|| VerifyError::NoCount {
                    tool: tool.to_owned(),
                    name: name.clone(),
                    sources: sources.join(", "),
                })
        })
        .collect::<Result<_, _>>()
        .map(Evidence::Counts)
}

/// Sums the hashes of the lines that `rewrite` accepts; it gets the line and an empty buffer for the rewritten one.
fn lines(
    input: impl Read,
    mut rewrite: impl FnMut(&[u8], &mut Vec<u8>) -> bool,
) -> std::io::Result<Evidence> {
    let mut input = BufReader::with_capacity(1 << 18, input);
    let (mut line, mut rewritten) = (Vec::new(), Vec::new());
    let (mut count, mut sum) = (0u64, 0u64);
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            return Ok(Evidence::Lines { lines: count, sum });
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        rewritten.clear();
        if rewrite(&line, &mut rewritten) {
            count += 1;
            sum = sum.wrapping_add(xxh3_64(&rewritten));
        }
    }
}

/// Reads a change file through osmium, the one peer that has a lossless text form for it.
fn changes(path: &Path) -> Result<Evidence, VerifyError> {
    let fail = |error: std::io::Error| VerifyError::ChangeFile(error.to_string());
    let mut head = Vec::new();
    File::open(path)
        .and_then(|file| file.take(2).read_to_end(&mut head))
        .map_err(|source| VerifyError::Output {
            path: path.to_owned(),
            source,
        })?;
    let format = if head == [0x1f, 0x8b] { "osc.gz" } else { "osc" };
    let mut child = Command::new("osmium")
        .args(["cat", "-F", format, "-f", "opl", "-o", "-"])
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(fail)?;
    let evidence = child.stdout.take().map(|stdout| {
        lines(stdout, |line, whole| {
            whole.extend_from_slice(line);
            true
        })
    });
    let ended = child.wait_with_output().map_err(fail)?;
    if !ended.status.success() {
        return Err(VerifyError::ChangeFile(
            String::from_utf8_lossy(&ended.stderr).trim().to_owned(),
        ));
    }
    evidence
        .unwrap_or(Ok(Evidence::Lines { lines: 0, sum: 0 }))
        .map_err(fail)
}
