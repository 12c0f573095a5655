//! Facts about the machine and the source tree that a record must carry.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

/// The machine, as far as it bears on a figure.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Processor model.
    pub cpu: String,
    /// Processors that this process may use.
    pub processors: usize,
    /// Instruction sets that the code looks for, of those the processor has.
    pub cpu_features: Vec<String>,
    /// Cache sizes as the kernel names them, smallest level first.
    pub caches: Vec<String>,
    /// Kernel name and release.
    pub kernel: String,
    /// Installed memory in bytes.
    pub memory_bytes: u64,
    /// Setting of transparent huge pages.
    pub huge_pages: String,
    /// Frequency governor, where there is one.
    pub governor: Option<String>,
}

/// The source tree that the runner was started in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Commit, or `unknown` outside a repository.
    pub commit: String,
    /// Whether tracked files differ from that commit.
    pub dirty: bool,
}

/// How busy the machine was.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Load averages over 1, 5 and 15 minutes.
    pub average: [f64; 3],
    /// Memory that can be had without swapping, in bytes.
    pub available_bytes: u64,
    /// Percent of the last 10 seconds in which some task waited for the processor; `None` without pressure accounting.
    pub cpu_pressure: Option<f64>,
    /// The same for I/O.
    pub io_pressure: Option<f64>,
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn memory_field(name: &str) -> u64 {
    let text = read("/proc/meminfo").unwrap_or_default();
    let kilobytes = text.lines().find_map(|line| {
        line.strip_prefix(name)?
            .strip_prefix(':')?
            .split_whitespace()
            .next()?
            .parse::<u64>()
            .ok()
    });
    kilobytes.unwrap_or(0) * 1024
}

impl Machine {
    /// Reads the facts from `/proc` and `/sys`.
    pub fn read() -> Self {
        let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            cpuinfo.lines().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                (key.trim() == name).then(|| value.trim().to_owned())
            })
        };
        let flags = field("flags").or_else(|| field("Features")).unwrap_or_default();
        let wanted = ["avx2", "bmi2", "avx512f", "avx512vbmi", "gfni", "asimd", "sve"];
        let uname = rustix::system::uname();
        let caches = (0..8).filter_map(|index| {
            let base = format!("/sys/devices/system/cpu/cpu0/cache/index{index}");
            let level = read(&format!("{base}/level"))?;
            let kind = read(&format!("{base}/type"))?;
            Some(format!("L{level} {kind} {}", read(&format!("{base}/size"))?))
        });
        Self {
            cpu: field("model name").unwrap_or_else(|| uname.machine().to_string_lossy().into_owned()),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            cpu_features: wanted
                .into_iter()
                .filter(|want| flags.split_whitespace().any(|flag| flag == *want))
                .map(str::to_owned)
                .collect(),
            caches: caches.collect(),
            kernel: format!(
                "{} {}",
                uname.sysname().to_string_lossy(),
                uname.release().to_string_lossy()
            ),
            memory_bytes: memory_field("MemTotal"),
            huge_pages: read("/sys/kernel/mm/transparent_hugepage/enabled")
                .unwrap_or_else(|| "unknown".to_owned()),
            governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        }
    }
}

impl Source {
    /// Asks git about `directory`.
    pub fn read(directory: &Path) -> Self {
        let git = |arguments: &[&str]| {
            let output = Command::new("git")
                .arg("-C")
                .arg(directory)
                .args(arguments)
                .output()
                .ok()?;
            output
                .status
                .success()
                .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        Self {
            commit: git(&["rev-parse", "HEAD"]).unwrap_or_else(|| "unknown".to_owned()),
            dirty: git(&["status", "--porcelain", "--untracked-files=no"])
                .is_some_and(|text| !text.is_empty()),
        }
    }
}

impl Load {
    /// Reads load, memory and pressure now.
    pub fn now() -> Self {
        let mut average = [0.0; 3];
        let text = read("/proc/loadavg").unwrap_or_default();
        for (slot, word) in average.iter_mut().zip(text.split_whitespace()) {
            *slot = word.parse().unwrap_or(0.0);
        }
        let pressure = |what: &str| {
            let text = read(&format!("/proc/pressure/{what}"))?;
            text.split_whitespace()
                .find_map(|word| word.strip_prefix("avg10=")?.parse::<f64>().ok())
        };
        Self {
            average,
            available_bytes: memory_field("MemAvailable"),
            cpu_pressure: pressure("cpu"),
            io_pressure: pressure("io"),
        }
    }
}

/// Names the contents of a file: `xxh3:HEX` over all of it up to 4 GiB, `xxh3-sampled:HEX` over its size and 4,096 evenly
/// spread pieces of 64 KiB beyond.
pub fn fingerprint(path: &Path) -> std::io::Result<String> {
    const WHOLE: u64 = 4 << 30;
    const PIECE: usize = 64 << 10;
    const PIECES: u64 = 4096;
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut hash = Xxh3::new();
    hash.update(&size.to_le_bytes());
    if size <= WHOLE {
        let mut buffer = vec![0u8; 1 << 20];
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                length => hash.update(&buffer[..length]),
            }
        }
        return Ok(format!("xxh3:{:032x}", hash.digest128()));
    }
    let mut piece = vec![0u8; PIECE];
    for index in 0..PIECES {
        file.read_exact_at(&mut piece, (size - PIECE as u64) / (PIECES - 1) * index)?;
        hash.update(&piece);
    }
    Ok(format!("xxh3-sampled:{:032x}", hash.digest128()))
}

/// The time now as `YYYY-MM-DDTHH:MM:SSZ`.
pub fn timestamp() -> String {
    let seconds = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |time| time.as_secs());
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Civil date from a day count, by eras of 400 years that start in March (H. Hinnant, chrono-compatible algorithms).
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 {
        month_index + 3
    } else {
        month_index - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}
