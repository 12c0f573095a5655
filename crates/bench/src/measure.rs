//! One run of one program, measured.
//!
//! The runner does not start programs itself: it starts a *launcher* (this same binary, `osmill-bench measure`), and the launcher
//! starts the program, once. That gives three things that a long-lived runner cannot have:
//!
//! - `getrusage(RUSAGE_CHILDREN)` of the launcher is about exactly this run, children of the program included;
//! - the peak resident size is the program's. Linux lets a child inherit the peak of the process that forked it, so a runner
//!   that has just compared two outputs would lend its own hundreds of megabytes to a program that needs ten;
//! - an end to every run: program and descendants are a process group of their own, killed at the time limit or when
//!   the runner goes away (the launcher's stdin closes).
//!
//! The launcher waits without reaping, so that `/proc/PID/io` still has the final byte counts, then reaps. Its own sampling
//! costs one read of `/proc/PID/status` every 100 ms.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use serde::{Deserialize, Serialize};

/// Everything that was measured about one run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds from just before the program is started until it has ended.
    pub wall_s: f64,
    /// Processor seconds in user mode, all threads and waited-for children.
    pub user_s: f64,
    /// Processor seconds in the kernel.
    pub system_s: f64,
    /// Largest resident size of the largest process, in bytes. Mapped file pages count.
    pub peak_rss_bytes: u64,
    /// Page faults that needed no device.
    pub minor_faults: u64,
    /// Page faults that waited for a device.
    pub major_faults: u64,
    /// Times the program gave up the processor to wait.
    pub voluntary_switches: u64,
    /// Times the kernel took the processor away.
    pub involuntary_switches: u64,
    /// What the program itself asked the kernel for; `None` where `/proc/PID/io` cannot be read.
    pub io: Option<IoCounts>,
    /// Exit status; `None` when a signal ended it.
    pub exit: Option<i32>,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Whether the time limit ended it.
    pub timed_out: bool,
    /// Share of the machine's processor time that *other* processes took meanwhile, 0 to 1. Coarse for runs under 0.2 s.
    pub foreign_cpu: f64,
    /// Processor seconds that the hypervisor gave to others.
    pub steal_s: f64,
    /// Resident size over time, one point every 100 ms.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<Point>,
    /// Whether this was the warm-up run, counted because the program is too slow to be run again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_warm_up: bool,
}

/// Byte counts of `/proc/PID/io`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoCounts {
    /// Bytes that read calls returned, from the page cache or not.
    pub read_call_bytes: u64,
    /// Bytes that write calls accepted.
    pub write_call_bytes: u64,
    /// Bytes fetched from a device.
    pub device_read_bytes: u64,
    /// Bytes that were, or will be, written to a device (dirtied pages).
    pub device_write_bytes: u64,
}

/// One point of the memory timeline.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// Milliseconds since the start.
    pub ms: u64,
    /// Resident bytes.
    pub rss: u64,
    /// Resident bytes that no file backs.
    pub anon: u64,
    /// Threads.
    pub threads: u32,
}

/// What to run and under which limits.
#[derive(Debug, Clone)]
pub struct Launch<'a> {
    /// The binary that has the `measure` command (osmill-bench itself).
    pub launcher: &'a Path,
    /// Program and arguments.
    pub command: &'a [String],
    /// Working directory of the program, and where `stdout`, `stderr` and the launcher's report are put.
    pub directory: &'a Path,
    /// Processors the program may use (`None`: all).
    pub processors: Option<usize>,
    /// Time limit.
    pub timeout: Duration,
}

/// Why there is no sample.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// A file of the launcher, or the launcher itself.
    #[error("{what}: {source}")]
    Io {
        /// What was attempted.
        what: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The launcher did not report.
    #[error("the launcher of `{command}` gave no report: {detail}")]
    NoReport {
        /// The command line.
        command: String,
        /// The launcher's words.
        detail: String,
    },
}

fn io_error(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> MeasureError {
    let what = what.into();
    move |source| MeasureError::Io { what, source }
}

impl Launch<'_> {
    /// Where the program's standard output went.
    pub fn stdout(&self) -> PathBuf {
        self.directory.join("stdout")
    }

    /// Where the program's standard error went.
    pub fn stderr(&self) -> PathBuf {
        self.directory.join("stderr")
    }

    /// Runs the program through a launcher and returns what was measured. A program that fails is a sample like any other; an
    /// error means that nothing was measured.
    pub fn run(&self) -> Result<Sample, MeasureError> {
        let report = self.directory.join("report.json");
        let _ = fs::remove_file(&report);
        let mut launcher = Command::new(self.launcher);
        launcher
            .arg("measure")
            .arg("--report")
            .arg(&report)
            .arg("--directory")
            .arg(self.directory);
        launcher
            .arg("--timeout")
            .arg(self.timeout.as_secs_f64().to_string());
        if let Some(processors) = self.processors {
            launcher.arg("--processors").arg(processors.to_string());
        }
        launcher.arg("--").args(self.command);
        launcher
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = launcher.spawn().map_err(io_error("start of the launcher"))?;
        // Open until the launcher has ended: when this process dies, the pipe closes and the launcher ends the program.
        let _alive = child.stdin.take();
        let ended = child
            .wait_with_output()
            .map_err(io_error("wait for the launcher"))?;
        let text = fs::read_to_string(&report).unwrap_or_default();
        serde_json::from_str(&text).map_err(|_| MeasureError::NoReport {
            command: self.command.join(" "),
            detail: String::from_utf8_lossy(&ended.stderr).trim().to_owned(),
        })
    }
}

/// The launcher's side: runs `command` in `directory`, its output in the files `stdout` and `stderr` there.
///
/// Blocks until the program has ended, and kills its process group at `timeout` or when this process's stdin closes.
pub fn launch(
    command: &[String],
    directory: &Path,
    processors: Option<usize>,
    timeout: Duration,
) -> Result<Sample, MeasureError> {
    if let Some(count) = processors {
        restrict(count).map_err(io_error("set of processors"))?;
    }
    let stdout = File::create(directory.join("stdout")).map_err(io_error("file for stdout"))?;
    let stderr = File::create(directory.join("stderr")).map_err(io_error("file for stderr"))?;
    let (program, arguments) = command.split_first().ok_or_else(|| MeasureError::Io {
        what: "command line".to_owned(),
        source: std::io::ErrorKind::InvalidInput.into(),
    })?;
    let mut child = Command::new(program);
    child.args(arguments).current_dir(directory).process_group(0);
    child.stdin(Stdio::null()).stdout(stdout).stderr(stderr);

    let machine_before = MachineTime::now();
    let start = Instant::now();
    let mut child = child.spawn().map_err(io_error(format!("start of {program}")))?;
    let pid = Pid::from_child(&child);
    std::thread::spawn(move || {
        let mut byte = [0u8; 1];
        while matches!(std::io::stdin().read(&mut byte), Ok(1..)) {}
        kill(pid);
    });
    let (end, ended) = mpsc::channel::<()>();
    let sampler = std::thread::spawn(move || watch(pid, start, timeout, &ended));
    // Leaves the child as a zombie: its /proc entries stay readable until `wait` below.
    let waited = loop {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        match rustix::process::waitid(WaitId::Pid(pid), options) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other,
        }
    };
    let wall = start.elapsed();
    drop(end);
    waited.map_err(|error| MeasureError::Io {
        what: format!("wait for {program}"),
        source: error.into(),
    })?;
    let io = io_counts(pid);
    let status = child.wait().map_err(io_error(format!("wait for {program}")))?;
    // What the program left running behind its back ends with it.
    kill(pid);
    let machine = MachineTime::now().since(machine_before);
    let (timeline, timed_out) = sampler.join().unwrap_or_default();
    let usage =
        nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_CHILDREN).map_err(|error| {
            MeasureError::Io {
                what: "getrusage".to_owned(),
                source: error.into(),
            }
        })?;
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    let count = |value: i64| u64::try_from(value).unwrap_or(0);
    let (user_s, system_s) = (seconds(usage.user_time()), seconds(usage.system_time()));
    let wall_s = wall.as_secs_f64();
    // The machine's clock has ticks of 10 ms on each processor; what is less than those is nothing.
    let foreign = (machine.busy_s - user_s - system_s - 0.01 * machine.processors).max(0.0);
    Ok(Sample {
        wall_s,
        user_s,
        system_s,
        peak_rss_bytes: count(usage.max_rss()) * 1024,
        minor_faults: count(usage.minor_page_faults()),
        major_faults: count(usage.major_page_faults()),
        voluntary_switches: count(usage.voluntary_context_switches()),
        involuntary_switches: count(usage.involuntary_context_switches()),
        io,
        exit: status.code(),
        signal: status.signal(),
        timed_out,
        foreign_cpu: (foreign / (wall_s.max(0.1) * machine.processors)).min(1.0),
        steal_s: machine.steal_s,
        timeline,
        from_warm_up: false,
    })
}

fn kill(group: Pid) {
    let _ = rustix::process::kill_process_group(group, Signal::KILL);
}

/// Samples the resident size until `ended` closes; kills the process group at the time limit and says so.
fn watch(pid: Pid, start: Instant, timeout: Duration, ended: &mpsc::Receiver<()>) -> (Vec<Point>, bool) {
    const INTERVAL: Duration = Duration::from_millis(100);
    let mut points = Vec::new();
    let mut timed_out = false;
    let mut next = Duration::ZERO;
    loop {
        points.extend(point(pid, start));
        next += INTERVAL;
        let wait = next
            .saturating_sub(start.elapsed())
            .min(timeout.saturating_sub(start.elapsed()));
        match ended.recv_timeout(wait) {
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            _ => return (points, timed_out),
        }
        if start.elapsed() >= timeout && !timed_out {
            timed_out = true;
            kill(pid);
        }
        if timed_out {
            let _ = ended.recv();
            return (points, true);
        }
    }
}

fn point(pid: Pid, start: Instant) -> Option<Point> {
    let text = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).ok()?;
    let mut point = Point {
        ms: start.elapsed().as_millis() as u64,
        ..Point::default()
    };
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        let number = value
            .split_whitespace()
            .next()
            .and_then(|number| number.parse::<u64>().ok());
        match (name, number) {
            ("VmRSS", Some(kilobytes)) => point.rss = kilobytes * 1024,
            ("RssAnon", Some(kilobytes)) => point.anon = kilobytes * 1024,
            ("Threads", Some(threads)) => point.threads = threads as u32,
            _ => {}
        }
    }
    (point.rss > 0).then_some(point)
}

fn io_counts(pid: Pid) -> Option<IoCounts> {
    let text = fs::read_to_string(format!("/proc/{}/io", pid.as_raw_nonzero())).ok()?;
    let field = |name: &str| {
        text.lines().find_map(|line| {
            line.strip_prefix(name)?
                .strip_prefix(':')?
                .trim()
                .parse::<u64>()
                .ok()
        })
    };
    Some(IoCounts {
        read_call_bytes: field("rchar")?,
        write_call_bytes: field("wchar")?,
        device_read_bytes: field("read_bytes")?,
        device_write_bytes: field("write_bytes")?,
    })
}

/// Keeps this process, and what it starts, on the first `count` of its processors.
fn restrict(count: usize) -> std::io::Result<()> {
    let allowed = rustix::thread::sched_getaffinity(None)?;
    let mut chosen = rustix::thread::CpuSet::new();
    (0..rustix::thread::CpuSet::MAX_CPU)
        .filter(|&processor| allowed.is_set(processor))
        .take(count.max(1))
        .for_each(|processor| chosen.set(processor));
    Ok(rustix::thread::sched_setaffinity(None, &chosen)?)
}

/// Processor time of the whole machine, from `/proc/stat`.
#[derive(Debug, Clone, Copy, Default)]
struct MachineTime {
    busy_s: f64,
    steal_s: f64,
    processors: f64,
}

impl MachineTime {
    fn now() -> Self {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        let ticks = rustix::param::clock_ticks_per_second().max(1) as f64;
        let processors = text
            .lines()
            .skip(1)
            .take_while(|line| line.starts_with("cpu"))
            .count()
            .max(1) as f64;
        let fields: Vec<f64> = text
            .lines()
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .skip(1)
            .map(|field| field.parse::<f64>().unwrap_or(0.0) / ticks)
            .collect();
        // user, nice, system, idle, iowait, irq, softirq, steal
        let field = |index: usize| fields.get(index).copied().unwrap_or(0.0);
        let busy_s = field(0) + field(1) + field(2) + field(5) + field(6);
        Self {
            busy_s,
            steal_s: field(7),
            processors,
        }
    }

    fn since(self, earlier: Self) -> Self {
        Self {
            busy_s: (self.busy_s - earlier.busy_s).max(0.0),
            steal_s: (self.steal_s - earlier.steal_s).max(0.0),
            processors: self.processors,
        }
    }
}
