//! Benchmarks of the ordered set and map.
//!
//! ```text
//! cargo bench -p osmill-diskarray [--features rivals] -- SCENARIO [--n N] [--memory MIB] [--dir DIR] [--access auto|uring|threads|buffered]
//! ```
//!
//! Scenarios: `device`, `window`, `batch`, `pool`, `nodes`, `big`, `disk` (the last with `rivals`). Every scenario checks its answers and prints
//! its conditions: keys, budget, queue depth, durability. Files lie in DIR and are removed at the end.

mod avl;
mod figures;
mod keys;
mod memory;
#[cfg(feature = "rivals")]
mod rivals;
mod scenarios;

use osmill_diskarray::Access;
use std::path::PathBuf;

/// What a run was asked for.
pub struct Args {
    /// Which scenario.
    pub scenario: String,
    /// Keys.
    pub n: Option<u64>,
    /// Memory budget in bytes.
    pub memory: Option<u64>,
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
}

fn main() {
    let mut args = Args {
        scenario: String::new(),
        n: None,
        memory: None,
        dir: std::env::temp_dir(),
        access: Access::Auto,
        only: None,
        ops: None,
        rounds: None,
    };
    let mut json = false;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().unwrap_or_else(|| panic!("{word} wants a value"));
        match word.as_str() {
            "--n" => args.n = Some(number(&value())),
            "--memory" => args.memory = Some(number(&value()) << 20),
            "--only" => args.only = Some(value()),
            "--ops" => args.ops = Some(number(&value())),
            "--rounds" => args.rounds = Some(number(&value())),
            "--json" => json = true,
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
            name => args.scenario = name.into(),
        }
    }
    match args.scenario.as_str() {
        "device" => scenarios::device(&args),
        "window" => scenarios::window(&args),
        "batch" => scenarios::batch(&args),
        "pool" => memory::run(
            &args,
            &mut figures::Figures::new(json),
            args.n.unwrap_or(16_000_000),
            keys::Pattern::Uniform,
        ),
        "nodes" => scenarios::nodes(&args),
        "big" => scenarios::big(&args),
        #[cfg(feature = "rivals")]
        "disk" => rivals::disk(&args),
        _ => println!("name a scenario: device window batch pool nodes big disk(with rivals)"),
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
