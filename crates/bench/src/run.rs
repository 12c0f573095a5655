//! The toolkit suite: whole processes that take turns.
//!
//! For each row, input and number of processors: every arm runs once as a warm-up and its output is verified; then the arms
//! take turns (A B C A B C ...), and what a repeat writes must equal what the warm-up wrote, or is verified anew. Between runs the
//! old output is deleted and the file system synced, so that no arm pays for another's dirty pages, and the input is read through (or,
//! cold, its pages are dropped).
//!
//! An arm repeats until it has `repeats` samples or has used up its seconds. An arm whose warm-up takes more than a quarter of
//! those counts the warm-up as a sample and says so ([`Sample::from_warm_up`]).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::definitions::{Against, Row, Suite, Verify, selected};
use crate::inputs::{self, Input, Resolver};
use crate::measure::{Launch, Sample};
use crate::record::{self, Arm, Outcome, Verified};
use crate::tools::{self, Tool};
use crate::verify::{self, Evidence, Places};

/// What to run and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// Comma-separated patterns of row names; `None`: all.
    pub rows: Option<String>,
    /// Leave out rows and arms that are marked heavy.
    pub skip_heavy: bool,
    /// Measure peers against each other where osmill cannot do a row yet.
    pub without_own: bool,
    /// Samples an arm.
    pub repeats: usize,
    /// Seconds an arm may take in a row, warm-up not counted.
    pub arm_seconds: f64,
    /// Seconds that all rows together may take; rows that find nothing left are skipped.
    pub budget: Duration,
    /// Limit for a single run.
    pub timeout: Duration,
    /// Numbers of processors, one after the other; empty: all.
    pub processors: Vec<usize>,
    /// Drop the input's pages before each run.
    pub cold: bool,
    /// Folder for outputs and derived inputs.
    pub scratch: PathBuf,
    /// The binary with the `measure` command.
    pub launcher: PathBuf,
}

/// Runs the rows of `suite` over `inputs` and hands each finished one to `sink`. Returns how many rows failed.
pub fn rows<E>(
    run: &str,
    suite: &Suite,
    tools: &[Tool],
    inputs: &[Input],
    resolver: &mut Resolver<'_>,
    options: &Options,
    mut sink: impl FnMut(record::Row) -> Result<(), E>,
) -> Result<usize, E> {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let counts = if options.processors.is_empty() {
        vec![all]
    } else {
        options.processors.clone()
    };
    let chosen: Vec<&Row> = suite
        .row
        .iter()
        .filter(|row| selected(options.rows.as_deref(), &row.name))
        .collect();
    let (start, mut failed) = (Instant::now(), 0);
    let mut left = chosen.len() * inputs.len() * counts.len();
    for row in chosen {
        for input in inputs {
            for &processors in &counts {
                let remaining = options.budget.saturating_sub(start.elapsed());
                // Half of a row's share is for samples; warm-ups and verification take the other half.
                let share = remaining.as_secs_f64() / left.max(1) as f64 / 2.0;
                left = left.saturating_sub(1);
                let job = Job {
                    row,
                    input,
                    processors,
                    all,
                    tools,
                    options,
                    share,
                };
                let mut result = record::Row {
                    run: run.to_owned(),
                    row: row.name.clone(),
                    input: input.info.name.clone(),
                    input_bytes: input.info.bytes,
                    processors,
                    cold: options.cold,
                    outcome: Outcome::Ok,
                    reason: String::new(),
                    arms: Vec::new(),
                    goals: row.goals.clone(),
                };
                eprintln!(
                    "{} over {} on {processors} processor(s)",
                    row.name, input.info.name
                );
                let done = if remaining.is_zero() {
                    Err(Stop::Skipped("the time budget is used up".to_owned()))
                } else {
                    job.measure(resolver)
                };
                match done {
                    Ok(arms) => result.arms = arms,
                    Err(stop) => (result.outcome, result.reason, result.arms) = stop.into_parts(),
                }
                report(&result);
                failed += usize::from(result.outcome == Outcome::Failed);
                sink(result)?;
            }
        }
    }
    Ok(failed)
}

fn report(row: &record::Row) {
    if row.outcome != Outcome::Ok {
        eprintln!("  {:?}: {}", row.outcome, row.reason);
    }
    for arm in &row.arms {
        let (Some(wall), Some(peak)) = (arm.wall(), arm.peak()) else {
            continue;
        };
        let note = if arm.verified.differences.is_empty() {
            ""
        } else {
            "  (output differs, as known)"
        };
        eprintln!(
            "  {:<12} {wall:8.3} s  {:7.1} MB  {} sample(s){note}",
            arm.arm,
            peak / 1e6,
            arm.samples.len()
        );
    }
}

/// Why a row has no figures.
enum Stop {
    Absent(String),
    Skipped(String),
    Failed(String, Vec<Arm>),
}

impl Stop {
    fn into_parts(self) -> (Outcome, String, Vec<Arm>) {
        match self {
            Self::Absent(reason) => (Outcome::Absent, reason, Vec::new()),
            Self::Skipped(reason) => (Outcome::Skipped, reason, Vec::new()),
            Self::Failed(reason, arms) => (Outcome::Failed, reason, arms),
        }
    }
}

/// One row over one input.
struct Job<'a> {
    row: &'a Row,
    input: &'a Input,
    processors: usize,
    all: usize,
    tools: &'a [Tool],
    options: &'a Options,
    /// Seconds of the time budget that are this row's.
    share: f64,
}

/// One arm while it runs.
struct Runner<'a> {
    tool: &'a Tool,
    exits: &'a [i32],
    differs: Option<&'a str>,
    command: Vec<String>,
    after: Option<Vec<String>>,
    reads: Vec<PathBuf>,
    folder: PathBuf,
    places: Places,
    samples: Vec<Sample>,
    logs: Vec<Vec<Value>>,
    evidence: Option<Evidence>,
    prints: Vec<String>,
    verified: Verified,
    output_bytes: Option<u64>,
    last_wall: f64,
}

impl<'a> Job<'a> {
    fn measure(&self, resolver: &mut Resolver<'_>) -> Result<Vec<Arm>, Stop> {
        if self.row.heavy && self.options.skip_heavy {
            return Err(Stop::Skipped("heavy".to_owned()));
        }
        let mut arms = self.arms(resolver)?;
        for arm in &mut arms {
            self.once(arm, true)?;
        }
        self.judge(&mut arms, resolver)?;
        let seconds = self.options.arm_seconds.min(self.share / arms.len() as f64);
        for arm in &mut arms {
            if arm.last_wall <= seconds / 4.0 {
                arm.samples.clear();
                arm.logs.clear();
            }
        }
        loop {
            let mut ran = false;
            for arm in &mut arms {
                let used: f64 = arm.samples.iter().map(|sample| sample.wall_s).sum();
                let room = used + arm.last_wall <= seconds || arm.samples.is_empty();
                if arm.samples.len() < self.options.repeats && room {
                    self.once(arm, false)?;
                    ran = true;
                }
            }
            if !ran {
                break;
            }
        }
        let _ = fs::remove_dir_all(self.options.scratch.join("run"));
        Ok(arms.into_iter().map(|arm| self.finish(arm)).collect())
    }

    /// The arms that take part: all tools that the row names and that can do it.
    fn arms(&self, resolver: &mut Resolver<'_>) -> Result<Vec<Runner<'a>>, Stop> {
        let mut arms = Vec::new();
        let mut absent = format!("no build of {} at hand", tools::OWN);
        for tool in self.tools {
            let Some(definition) = self.row.arms.get(&tool.kind) else {
                continue;
            };
            if definition.heavy && self.options.skip_heavy {
                continue;
            }
            if let Some(reason) = tool.lacks(definition) {
                if tool.is_own() {
                    absent = reason;
                }
                continue;
            }
            let folder = self.options.scratch.join("run").join(&tool.name);
            let io = |error: std::io::Error| Stop::Skipped(format!("{}: {error}", folder.display()));
            fs::create_dir_all(&folder).map_err(io)?;
            let folder = folder.canonicalize().map_err(io)?;
            let places = Places {
                out: folder.join(format!("out.{}", self.row.suffix)),
                outdir: folder.join("out"),
                stdout: folder.join("stdout"),
                stderr: folder.join("stderr"),
            };
            let mut resolve =
                |args: &str| resolver.resolve(args, tool, self.input, &places.out, &places.outdir);
            let skip = |error: inputs::InputError| Stop::Skipped(format!("{}: {error}", tool.name));
            let resolved = resolve(&definition.args).map_err(skip)?;
            let program = tool.path.display().to_string();
            let mut command = vec![program.clone()];
            command.extend(resolved.arguments);
            if tool.is_own() {
                command.extend(self.own_options(tool, &definition.args));
            }
            let after = definition
                .after
                .as_deref()
                .map(&mut resolve)
                .transpose()
                .map_err(skip)?;
            arms.push(Runner {
                tool,
                exits: &definition.exit,
                differs: definition.differs.as_deref(),
                command,
                after: after.map(|after| [vec![program], after.arguments].concat()),
                reads: resolved.reads,
                folder,
                places,
                samples: Vec::new(),
                logs: Vec::new(),
                evidence: None,
                prints: Vec::new(),
                verified: Verified::default(),
                output_bytes: None,
                last_wall: 0.0,
            });
        }
        let own = arms.iter().any(|arm| arm.tool.is_own());
        if !(own || self.options.without_own && !arms.is_empty()) {
            return Err(Stop::Absent(absent));
        }
        Ok(arms)
    }

    /// Options that every osmill command takes, as far as this build has them.
    fn own_options(&self, tool: &Tool, args: &str) -> Vec<String> {
        let command = args.split_whitespace().next().unwrap_or_default();
        let help = tool.help(command).unwrap_or_default();
        let mut options = Vec::new();
        if help.contains("--log") {
            options.extend(["--log".to_owned(), "json".to_owned()]);
        }
        if self.processors != self.all && help.contains("--threads") {
            options.extend(["--threads".to_owned(), self.processors.to_string()]);
        }
        options
    }

    /// Runs `arm` once and verifies its output: on the first run by reading it, later by comparing with the first.
    fn once(&self, arm: &mut Runner<'a>, first: bool) -> Result<(), Stop> {
        let fail = |what: String| Stop::Failed(what, Vec::new());
        let name = &arm.tool.name;
        clear(&arm.places).map_err(|error| fail(format!("{name}: {error}")))?;
        if let Ok(folder) = fs::File::open(&arm.folder) {
            let _ = rustix::fs::syncfs(&folder);
        }
        for path in &arm.reads {
            let ready = if self.options.cold {
                inputs::drop_pages(path)
            } else {
                inputs::read_through(path)
            };
            ready.map_err(|error| fail(format!("{}: {error}", path.display())))?;
        }
        let launch = Launch {
            launcher: &self.options.launcher,
            command: &arm.command,
            directory: &arm.folder,
            processors: (self.processors != self.all).then_some(self.processors),
            timeout: self.options.timeout,
        };
        let mut sample = launch.run().map_err(|error| fail(error.to_string()))?;
        sample.from_warm_up = first;
        if sample.timed_out {
            let limit = self.options.timeout.as_secs_f64();
            return Err(fail(format!("{name}: ended at the time limit of {limit} s")));
        }
        if !sample.exit.is_some_and(|exit| arm.exits.contains(&exit)) {
            let words = fs::read_to_string(&arm.places.stderr).unwrap_or_default();
            let words = words
                .trim()
                .lines()
                .last()
                .unwrap_or("and said nothing")
                .to_owned();
            let how = match (sample.exit, sample.signal) {
                (Some(exit), _) => format!("exit code {exit}"),
                (None, signal) => format!("signal {}", signal.unwrap_or(0)),
            };
            return Err(fail(format!("{name}: ended with {how}: {words}")));
        }
        let log = log_lines(&arm.places.stderr);
        if let Some(after) = &arm.after {
            let launch = Launch {
                command: after,
                ..launch
            };
            let ended = launch.run().map_err(|error| fail(error.to_string()))?;
            if ended.exit != Some(0) {
                return Err(fail(format!("{name}: `{}` failed", after.join(" "))));
            }
        }
        self.examine(arm)
            .map_err(|what| fail(format!("{name}: {what}")))?;
        arm.last_wall = sample.wall_s;
        arm.samples.push(sample);
        arm.logs.push(log);
        Ok(())
    }

    fn examine(&self, arm: &mut Runner<'a>) -> Result<(), String> {
        let verify = &self.row.verify;
        let prints = verify::fingerprint(verify, &arm.places).map_err(|error| format!("output: {error}"))?;
        let files = verify::files(verify, &arm.places);
        if !files.is_empty() {
            let size = |path: &PathBuf| fs::metadata(path).map_or(0, |data| data.len());
            arm.output_bytes = Some(files.iter().map(size).sum());
        }
        arm.verified.runs += 1;
        if prints == arm.prints {
            return Ok(());
        }
        let evidence = Evidence::read(verify, &arm.tool.kind, &arm.places, self.all)
            .map_err(|error| error.to_string())?;
        match &arm.evidence {
            None => (arm.evidence, arm.prints) = (Some(evidence), prints),
            Some(before) => {
                let differences = evidence.differences(before, &[]);
                if !differences.is_empty() {
                    let what = differences.join(", ");
                    return Err(format!("a repeat gave another output than the first run: {what}"));
                }
            }
        }
        Ok(())
    }

    /// Compares the arms' outputs with the input, a derived input, or the reference arm's.
    fn judge(&self, arms: &mut [Runner<'a>], resolver: &mut Resolver<'_>) -> Result<(), Stop> {
        let (oracle, ignore) = match &self.row.verify {
            Verify::Elements { against, ignore, .. } => {
                let oracle = match against {
                    Against::Reference => None,
                    Against::Input => Some((self.input.digest.clone(), "the input".to_owned())),
                    Against::Derived(name) => {
                        let digest = resolver
                            .oracle(name, self.input, self.all)
                            .map_err(|error| Stop::Skipped(error.to_string()))?;
                        Some((digest, format!("the derived input `{name}`")))
                    }
                };
                (oracle, ignore.as_slice())
            }
            _ => (None, [].as_slice()),
        };
        let oracle = oracle.map(|(digest, name)| (Evidence::Elements(vec![digest]), name));
        let order = ["osmium", "pbfhogg", tools::OWN];
        let reference = order.iter().find_map(|kind| {
            arms.iter()
                .position(|arm| arm.tool.kind == *kind && arm.differs.is_none())
        });
        let reference = reference.unwrap_or(0);
        let expected = (
            arms[reference].tool.name.clone(),
            arms[reference].evidence.clone(),
        );
        let counted = match &self.row.verify {
            Verify::Counts { input, .. } => input.as_slice(),
            _ => &[],
        };
        let alone = arms.len() == 1 && oracle.is_none() && counted.is_empty();
        let mut wrong = Vec::new();
        for (index, arm) in arms.iter_mut().enumerate() {
            let Some(evidence) = &arm.evidence else { continue };
            let what = verify::describe(&self.row.verify);
            let mut differences = Vec::new();
            arm.verified.how = if let Some((oracle, name)) = &oracle {
                differences = evidence.differences(oracle, ignore);
                format!("{what} against {name}")
            } else if index != reference {
                differences.extend(
                    expected
                        .1
                        .as_ref()
                        .map_or(Vec::new(), |other| evidence.differences(other, &[])),
                );
                format!("{what} against {}", expected.0)
            } else {
                format!("{what}; the others are compared with it")
            };
            if !counted.is_empty() {
                differences.extend(evidence.against_counts(&self.input.digest, counted));
                arm.verified.how.push_str("; counts against the input");
            }
            if !differences.is_empty() {
                arm.verified.known = arm.differs.map(str::to_owned);
                if arm.differs.is_none() {
                    wrong.push(format!(
                        "{} differs ({}): {}",
                        arm.tool.name,
                        arm.verified.how,
                        differences.join(", ")
                    ));
                }
            }
            arm.verified.differences = differences;
        }
        if alone {
            wrong.push("no second tool to compare the output with".to_owned());
        }
        if wrong.is_empty() {
            return Ok(());
        }
        // What was seen stays in the record, figures do not.
        let arms = arms.iter().map(|arm| Arm {
            arm: arm.tool.name.clone(),
            own: arm.tool.is_own(),
            command: shown(&arm.command),
            samples: Vec::new(),
            verified: arm.verified.clone(),
            output_bytes: arm.output_bytes,
            log: Vec::new(),
        });
        let reason = wrong.join("; ");
        Err(if alone {
            Stop::Skipped(reason)
        } else {
            Stop::Failed(reason, arms.collect())
        })
    }

    fn finish(&self, arm: Runner<'a>) -> Arm {
        let Runner {
            tool,
            command,
            samples,
            logs,
            verified,
            output_bytes,
            ..
        } = arm;
        let own = tool.is_own();
        let mut done = Arm {
            arm: tool.name.clone(),
            own,
            command: shown(&command),
            samples,
            verified,
            output_bytes,
            log: Vec::new(),
        };
        // One timeline and one log are enough; those of the most typical run.
        if let Some(typical) = done.typical() {
            for (index, sample) in done.samples.iter_mut().enumerate() {
                if index != typical {
                    sample.timeline.clear();
                }
                thin(&mut sample.timeline);
            }
            done.log = logs.into_iter().nth(typical).unwrap_or_default();
        }
        done
    }
}

/// Halves a timeline until it has at most 200 points.
fn thin<T>(points: &mut Vec<T>) {
    while points.len() > 200 {
        let mut index = 0;
        points.retain(|_| {
            index += 1;
            index % 2 == 1
        });
    }
}

fn clear(places: &Places) -> std::io::Result<()> {
    let gone = |result: std::io::Result<()>| match result {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    if places.out.is_dir() {
        fs::remove_dir_all(&places.out)?;
    }
    gone(fs::remove_file(&places.out))?;
    gone(fs::remove_dir_all(&places.outdir))?;
    fs::create_dir_all(&places.outdir)
}

/// A command line without the folders of this machine: paths by their last component.
fn shown(command: &[String]) -> Vec<String> {
    command
        .iter()
        .map(|word| match Path::new(word).file_name() {
            Some(name) if word.starts_with('/') => name.to_string_lossy().into_owned(),
            _ => word.clone(),
        })
        .collect()
}

/// The lines of a log that are JSON objects with a `phase` or a `summary`, as they are.
fn log_lines(path: &Path) -> Vec<Value> {
    let text = fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&text)
        .lines()
        .filter(|line| line.trim_start().starts_with('{'))
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|value| value.get("phase").is_some() || value.get("summary").is_some())
        .collect()
}
