//! What a run found, for people and for the benchmark runner.

use crate::keys::Pattern;
use serde_json::json;

/// Prints figures as they come: a line of text each, or a JSON object as the benchmark runner wants it. Answers were compared before a figure gets here: a
/// wrong one ends the program.
pub struct Figures {
    json: bool,
}

/// Operations a second.
pub struct Rate<'a> {
    pub row: &'a str,
    pub arm: &'a str,
    /// Keys in the structure.
    pub n: u64,
    pub ops_per_s: f64,
    pub peer: bool,
}

impl Figures {
    pub fn new(json: bool) -> Self {
        Self { json }
    }

    /// Says something that is no figure.
    pub fn note(&self, text: &str) {
        if self.json {
            println!("{}", json!({ "note": text }));
        } else {
            println!("{text}");
        }
    }

    pub fn rate(&self, rate: &Rate<'_>) {
        let Rate {
            row,
            arm,
            n,
            ops_per_s,
            peer,
        } = *rate;
        if self.json {
            let line = json!({
                "row": row, "arm": arm, "n": n, "threads": 1, "ops_per_s": ops_per_s, "peer": peer, "checked": true,
            });
            println!("{line}");
        } else {
            println!(
                "{row:<26} {arm:<26} {n:>11} keys {:>12}",
                crate::per_second(ops_per_s)
            );
        }
    }

    /// Memory or disk that a structure takes, as bytes a key.
    pub fn bytes(&self, what: &str, pattern: Pattern, n: u64, arm: &str, bytes: u64) {
        let row = format!("{what} bytes a key {}", pattern.name());
        let a_key = bytes as f64 / n as f64;
        if self.json {
            // The runner wants a cost, and knows less of one to be better: bytes a key stand where seconds would.
            let line = json!({
                "row": row, "arm": arm, "n": n, "threads": 1, "seconds": a_key.max(1e-9), "unit": "bytes a key", "bytes": bytes,
                "peer": !arm.starts_with("osmill"), "checked": true,
            });
            println!("{line}");
        } else {
            println!("{row:<26} {arm:<26} {n:>11} keys {a_key:>8.2} bytes a key");
        }
    }
}
