//! Benchmarks of the ordered set and map.
//!
//! ```text
//! cargo bench -p osmill-diskarray --bench diskarray [--features rivals] -- [SCENARIO] [OPTION]...
//! ```
//!
//! Without a scenario: a sweep over sizes, patterns and batches that ends in some minutes; `--full` makes it long. Scenarios: `device`, `window`, `batch`,
//! `pool`, `growth`, `nodes`, `dense`, `big`, `disk` (with `rivals`). `--json` prints figures as the benchmark runner wants them. Every scenario checks its answers.
//! Files lie in DIR and are removed at the end.
//!
//! Options: `--n N`, `--pattern uniform|ascending|zipf|osm`, `--memory MIB`, `--limit MIB` (big, disk), `--dir DIR`,
//! `--access auto|uring|threads|buffered`, `--only NAME`, `--ops N`, `--rounds N`, `--patience SECONDS`, `--packed`.

mod avl;
mod figures;
mod keys;
mod memory;
#[cfg(feature = "rivals")]
mod rivals;
mod scenarios;

use figures::Figures;
use keys::Pattern;
use osmill_diskarray::{Access, Encoding};
use std::path::PathBuf;

/// What a run was asked for.
#[derive(Clone)]
pub struct Args {
    /// Keys.
    pub n: Option<u64>,
    /// Memory budget in bytes.
    pub memory: Option<u64>,
    /// Address space of the whole process in bytes.
    pub limit: Option<u64>,
    /// Where files go.
    pub dir: PathBuf,
    /// How files are reached.
    pub access: Access,
    /// Structures whose name contains this.
    pub only: Option<String>,
    /// Operations of one measurement.
    pub ops: Option<u64>,
    /// Rounds in which structures take turns.
    pub rounds: Option<u64>,
    /// Seconds that a store on disk gets.
    pub patience: u64,
    /// Whether figures are JSON.
    pub json: bool,
}

fn main() {
    let mut args = Args {
        n: None,
        memory: None,
        limit: None,
        dir: std::env::temp_dir(),
        access: Access::Auto,
        only: None,
        ops: None,
        rounds: None,
        patience: 60,
        json: false,
    };
    let (mut scenario, mut full, mut encoding) = (String::new(), false, Encoding::Raw);
    let mut pattern = Pattern::Uniform;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().unwrap_or_else(|| panic!("{word} wants a value"));
        match word.as_str() {
            "--n" => args.n = Some(number(&value())),
            "--memory" => args.memory = Some(number(&value()) << 20),
            "--limit" => args.limit = Some(number(&value()) << 20),
            "--only" => args.only = Some(value()),
            "--ops" => args.ops = Some(number(&value())),
            "--rounds" => args.rounds = Some(number(&value())),
            "--patience" => args.patience = number(&value()),
            "--json" => args.json = true,
            "--full" => full = true,
            "--packed" => encoding = Encoding::Packed,
            "--pattern" => {
                let name = value();
                pattern = Pattern::named(&name).unwrap_or_else(|| panic!("there is no pattern {name}"));
            }
            "--dir" => args.dir = value().into(),
            "--access" => {
                args.access = match value().as_str() {
                    "uring" => Access::Uring,
                    "threads" => Access::Threads,
                    "buffered" => Access::Buffered,
                    _ => Access::Auto,
                }
            }
            // Given by cargo.
            "--bench" => {}
            name => scenario = name.into(),
        }
    }
    let figures = Figures::new(args.json);
    let sizes = [(1 << 16, 3), (1 << 20, 2), (8 << 20, 1)];
    let large = args.n.unwrap_or(128_000_000);
    match scenario.as_str() {
        "" => sweep(&args, &figures, full),
        "device" => drop(scenarios::ceiling(&args, &figures, "now")),
        "window" => scenarios::window(&args, &figures, large, encoding),
        "batch" => scenarios::batch(&args, &figures, large, encoding, &sizes),
        "pool" => memory::run(&args, &figures, args.n.unwrap_or(16_000_000), pattern),
        "growth" => growth(&args, &figures),
        "nodes" => scenarios::nodes(&args, &figures),
        "dense" => scenarios::dense(&args, &figures),
        "big" => scenarios::big(&args, &figures),
        #[cfg(feature = "rivals")]
        "disk" => {
            let limit = args.limit.unwrap_or(64 << 20);
            rivals::disk(&args, &figures, args.n.unwrap_or(10_000_000), pattern, limit);
        }
        name => panic!(
            "there is no scenario {name}: device window batch pool growth nodes dense big, and disk with the feature rivals"
        ),
    }
}

/// Everything that fits some minutes, or with `full` the sizes of the design.
fn sweep(args: &Args, figures: &Figures, full: bool) {
    let sizes: &[u64] = if full {
        &[
            2_000, 8_000, 32_000, 128_000, 512_000, 2_000_000, 8_000_000, 16_000_000, 32_000_000, 64_000_000,
        ]
    } else {
        &[2_000, 32_000, 500_000, 4_000_000, 16_000_000]
    };
    for &n in sizes {
        memory::run(args, figures, n, Pattern::Uniform);
    }
    for pattern in [Pattern::Ascending, Pattern::Zipf, Pattern::Osm] {
        memory::run(args, figures, if full { 16_000_000 } else { 1_000_000 }, pattern);
    }
    let large = if full { 128_000_000 } else { 64_000_000 };
    scenarios::window(args, figures, large, Encoding::Raw);
    scenarios::window(args, figures, large, Encoding::Packed);
    let sizes: &[(u64, usize)] = if full {
        &[(1 << 16, 3), (1 << 20, 3), (8 << 20, 1)]
    } else {
        &[(1 << 16, 3), (1 << 20, 2)]
    };
    scenarios::batch(args, figures, large, Encoding::Raw, sizes);
    #[cfg(feature = "rivals")]
    for &(n, pattern) in if full {
        &[
            (10_000_000, Pattern::Uniform),
            (40_000_000, Pattern::Uniform),
            (10_000_000, Pattern::Zipf),
            (10_000_000, Pattern::Ascending),
        ][..]
    } else {
        &[(10_000_000, Pattern::Uniform)]
    } {
        rivals::disk(args, figures, n, pattern, 64 << 20);
    }
    if full {
        scenarios::big(args, figures);
    }
}

/// Every structure from 2 K keys to 1 G: in memory as far as it lets them, and the store on disk in one budget all the way.
fn growth(args: &Args, figures: &Figures) {
    const TOGETHER: u64 = 16_000_000;
    for n in [2_000, 32_000, 500_000, 4_000_000, TOGETHER] {
        memory::run(args, figures, n, Pattern::Uniform);
    }
    for pattern in [Pattern::Ascending, Pattern::Zipf, Pattern::Osm] {
        for n in [2_000, 128_000, 2_000_000, TOGETHER] {
            let args = Args {
                rounds: Some(1),
                ..args.clone()
            };
            memory::run(&args, figures, n, pattern);
        }
    }
    for n in [64_000_000, 256_000_000, 1_000_000_000] {
        for (name, bytes) in memory::SIZES {
            let needed = n * (bytes + memory::KEY);
            if needed > memory::available() / 4 * 3 {
                figures.note(&format!(
                    "{name} ends before {n} keys, which take {} MiB with those it is asked for",
                    needed >> 20
                ));
                continue;
            }
            let args = Args {
                rounds: Some(1),
                only: Some((*name).into()),
                ..args.clone()
            };
            memory::run(&args, figures, n, Pattern::Uniform);
        }
    }
    for n in [
        2_000,
        32_000,
        500_000,
        4_000_000,
        TOGETHER,
        64_000_000,
        256_000_000,
        1_000_000_000,
    ] {
        scenarios::on_disk(args, figures, n);
    }
}

/// Numbers with k, M, G.
fn number(word: &str) -> u64 {
    let (digits, unit) = match word.chars().last() {
        Some('k' | 'K') => (&word[..word.len() - 1], 1_000),
        Some('M') => (&word[..word.len() - 1], 1_000_000),
        Some('G') => (&word[..word.len() - 1], 1_000_000_000),
        _ => (word, 1),
    };
    digits
        .parse::<u64>()
        .unwrap_or_else(|_| panic!("{word} is not a number"))
        * unit
}

/// Operations a second of `f`, which does `n`.
pub fn rate(n: u64, f: impl FnOnce()) -> f64 {
    let start = std::time::Instant::now();
    f();
    n as f64 / start.elapsed().as_secs_f64()
}

/// Thousands or millions a second.
pub fn per_second(rate: f64) -> String {
    if rate >= 1e6 {
        format!("{:.2} M/s", rate / 1e6)
    } else {
        format!("{:.1} K/s", rate / 1e3)
    }
}

/// Peak and present resident memory in MiB.
pub fn resident() -> (f64, f64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find(|l| l.starts_with(name));
        let kib = line
            .and_then(|l| l.split_whitespace().nth(1))
            .and_then(|n| n.parse::<f64>().ok());
        kib.unwrap_or(0.0) / 1024.0
    };
    (field("VmHWM"), field("VmRSS"))
}

/// Seconds of processor time that this process has taken, the kernel's work for it included.
pub fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let field = |i: usize| {
        after_name
            .split_whitespace()
            .nth(i)
            .and_then(|n| n.parse::<f64>().ok())
    };
    (field(11).unwrap_or(0.0) + field(12).unwrap_or(0.0)) / rustix::param::clock_ticks_per_second() as f64
}
