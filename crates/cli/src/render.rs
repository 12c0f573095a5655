//! Text for people.

use std::io::{self, Write};

use osmill_engine::{Counts, Error, Job, Result};

use crate::args::{Common, LogFormat};

/// Bytes as people read them: `510 MB`.
pub fn bytes(n: u64) -> String {
    scaled(n, &["bytes", "kB", "MB", "GB", "TB"])
}

/// A number as people read it: `47.2 M`.
fn scaled(n: u64, units: &[&str]) -> String {
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    match unit {
        0 => format!("{n} {}", units[0]).trim_end().to_owned(),
        _ if value < 9.995 => format!("{value:.2} {}", units[unit]),
        _ if value < 99.95 => format!("{value:.1} {}", units[unit]),
        _ => format!("{value:.0} {}", units[unit]),
    }
}

/// A number with its thousands set apart: `47,228,136`.
pub fn number(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// `47,228,136 nodes, 6,339,534 ways, 96,510 relations`.
pub fn counts(counts: &Counts) -> String {
    let part = |n: u64, name: &str| format!("{} {name}{}", number(n), if n == 1 { "" } else { "s" });
    format!(
        "{}, {}, {}",
        part(counts.nodes, "node"),
        part(counts.ways, "way"),
        part(counts.relations, "relation")
    )
}

/// Writes to standard output.
pub fn print(text: &str) -> Result<()> {
    let fail = |e| Error::io("write", std::path::Path::new("standard output"), e);
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(fail)
}

/// Writes the account of a finished job to standard error.
pub fn account(common: &Common, command: &str, job: &Job) {
    let summary = job.summary();
    if common.log == LogFormat::Json {
        for phase in &summary.phases {
            eprintln!("{}", serde_json::json!({ "command": command, "phase": phase }));
        }
        eprintln!(
            "{}",
            serde_json::json!({ "command": command, "summary": summary })
        );
        return;
    }
    for warning in &summary.warnings {
        eprintln!("osmill {command}: warning: {warning}");
    }
    if common.quiet {
        return;
    }
    if common.verbose {
        for phase in &summary.phases {
            eprintln!(
                "osmill {command}: phase {}: {:.2} s, {:.2} s of processor time; {} blobs read, {} decoded, {} copied, \
                 {} written; reading {:.2} s, inflating {:.2} s, deflating {:.2} s, writing {:.2} s, waiting {:.2} s",
                phase.name,
                phase.wall_s,
                phase.cpu_s,
                number(phase.blobs_read),
                number(phase.blobs_decoded),
                number(phase.blobs_copied),
                number(phase.blobs_written),
                phase.read_s,
                phase.inflate_s,
                phase.deflate_s,
                phase.write_s,
                phase.wait_s,
            );
            if let Some(allocations) = phase.allocations {
                eprintln!(
                    "osmill {command}: phase {}: {} allocations of {}",
                    phase.name,
                    number(allocations.calls),
                    bytes(allocations.bytes)
                );
            }
        }
    }
    let mut parts = Vec::new();
    if let Some(counts_in) = &summary.objects_in {
        parts.push(format!("in: {}", counts(counts_in)));
    }
    if let Some(counts_out) = &summary.objects_out {
        parts.push(format!("out: {}", counts(counts_out)));
    }
    parts.push(format!(
        "{}, {} read, {} written, peak memory {}",
        osmill_engine::format_duration(std::time::Duration::from_secs_f64(summary.wall_s)),
        bytes(summary.bytes_read),
        bytes(summary.bytes_written),
        bytes(summary.peak_memory)
    ));
    eprintln!("osmill {command}: {}", parts.join("; "));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_people_read_them() {
        assert_eq!(number(47228136), "47,228,136");
        assert_eq!(number(999), "999");
        assert_eq!(bytes(999), "999 bytes");
        assert_eq!(bytes(509_589_195), "510 MB");
        assert_eq!(bytes(1_234), "1.23 kB");
        assert_eq!(bytes(999_999), "1.00 MB");
    }
}
