//! In-process benchmarks: programs that measure themselves and print what they found.
//!
//! The two engines are libraries, and a process start would drown what they do. Their crates carry benchmark programs, with the
//! peers behind cargo features of their own; `run stree` and `run diskarray` start those and append what they print to the record.
//!
//! # The contract
//!
//! The program prints, on standard output, one JSON object a line for each figure. Lines that do not start with `{` are passed on to
//! standard error. An object without `row` is passed over (a program may describe itself in one).
//!
//! | key | type | meaning |
//! | --- | --- | --- |
//! | `row` | string | what was measured, e.g. `"search-batch"`. Required |
//! | `arm` | string | who did it: a layout, a store, a peer. Required |
//! | `checked` | bool | whether the answers of *this* measurement were compared with an oracle's and equal. Required; anything but `true` makes the run fail |
//! | `ns_per_query` | number | cost of one operation in ns, or |
//! | `ops_per_s` | number | operations a second, or |
//! | `seconds` | number | time of the whole, or |
//! | `bytes_per_key` | number | memory or disk a key, for rows about size. One of the four is required |
//! | `n` | number | size: keys in the structure |
//! | `threads` | number | threads that did it (1 when absent) |
//! | `peer` | bool | whether the arm is someone else's (false when absent): peers are shown, never judged |
//! | `bytes` | number | memory or disk that the structure takes |
//!
//! Every further key is kept as it is. Arms of a row take turns inside the program; several lines with equal `row`, `arm`, `n`
//! and `threads` are repeats, from which median and noise band are made.
//!
//! Exit code 0 says that the program got to its end. Anything else fails the run, whatever was printed before.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::definitions::Program;
use crate::record::ProgramResult;

/// A program that did not keep the contract.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It cannot be started or read.
    #[error("{program}: {source}")]
    Io {
        /// Which.
        program: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// It printed a line that is no figure.
    #[error("{program}: {what}: {line}")]
    Line {
        /// Which.
        program: String,
        /// What is wrong.
        what: String,
        /// The line.
        line: String,
    },
    /// It printed nothing that is a figure.
    #[error("{program}: printed no figure (a JSON object a line, see the contract of osmill-bench)")]
    NoFigure {
        /// Which.
        program: String,
    },
    /// It failed.
    #[error("{program}: ended with {status}")]
    Ended {
        /// Which.
        program: String,
        /// How.
        status: std::process::ExitStatus,
    },
}

/// The figure of a line as a cost: nanoseconds an operation, seconds, or bytes a key; less is better.
pub fn cost(line: &Value) -> Option<f64> {
    let number = |key: &str| line.get(key).and_then(Value::as_f64).filter(|value| *value > 0.0);
    number("ns_per_query")
        .or_else(|| number("ops_per_s").map(|rate| 1e9 / rate))
        .or_else(|| number("seconds"))
        .or_else(|| number("bytes_per_key"))
}

/// What makes two lines repeats of each other: row, arm, size and threads.
pub fn key(line: &Value) -> (String, String, u64, u64) {
    let text = |key: &str| {
        line.get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let number = |key: &str| line.get(key).and_then(Value::as_f64).map(|value| value as u64);
    (
        text("row"),
        text("arm"),
        number("n").unwrap_or(0),
        number("threads").unwrap_or(1),
    )
}

/// Whether a line is a peer's.
pub fn is_peer(line: &Value) -> bool {
    line.get("peer").and_then(Value::as_bool).unwrap_or(false)
}

fn check(line: &Value) -> Result<(), &'static str> {
    let text = |key: &str| {
        line.get(key)
            .and_then(Value::as_str)
            .is_some_and(|text| !text.is_empty())
    };
    if !text("row") || !text("arm") {
        return Err("a figure needs `row` and `arm`");
    }
    if cost(line).is_none() {
        return Err("a figure needs a positive `ns_per_query`, `ops_per_s`, `seconds` or `bytes_per_key`");
    }
    if line.get("checked") != Some(&Value::Bool(true)) {
        return Err("answers were not checked, or were wrong (`checked` is not true)");
    }
    Ok(())
}

/// Runs `definition` with `extra` arguments and hands every figure to `sink` as it comes. The first line that breaks the contract ends
/// the program.
pub fn run<E: From<ProgramError>>(
    run: &str,
    definition: &Program,
    with_peers: bool,
    extra: &[String],
    mut sink: impl FnMut(ProgramResult) -> Result<(), E>,
) -> Result<usize, E> {
    let name = definition.name.clone();
    let io = |source| ProgramError::Io {
        program: name.clone(),
        source,
    };
    let mut command = definition.command.clone();
    if with_peers {
        // Options of cargo stand before the `--` that ends them.
        let at = command
            .iter()
            .position(|word| word == "--")
            .unwrap_or(command.len());
        command.splice(at..at, definition.with_peers.iter().cloned());
    }
    command.extend(extra.iter().cloned());
    let empty = || io(std::io::ErrorKind::InvalidInput.into());
    let (program, arguments) = command.split_first().ok_or_else(empty)?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(io)?;
    let mut count = 0;
    let stdout = child.stdout.take().ok_or_else(empty)?;
    let read = || -> Result<(), E> {
        for text in BufReader::new(stdout).lines() {
            let text = text.map_err(io)?;
            if !text.starts_with('{') {
                eprintln!("{text}");
                continue;
            }
            let broken = |what: String| ProgramError::Line {
                program: name.clone(),
                what,
                line: text.clone(),
            };
            let line: Value = serde_json::from_str(&text).map_err(|error| broken(error.to_string()))?;
            if line.get("row").is_none() {
                continue;
            }
            check(&line).map_err(|what| broken(what.to_owned()))?;
            let (row, arm, n, threads) = key(&line);
            eprintln!(
                "  {row:<24} {arm:<20} n={n} threads={threads}: {:.3}",
                cost(&line).unwrap_or(0.0)
            );
            sink(ProgramResult {
                run: run.to_owned(),
                program: name.clone(),
                line,
            })?;
            count += 1;
        }
        Ok(())
    };
    let done = read();
    if done.is_err() {
        let _ = child.kill();
    }
    let status = child.wait().map_err(io)?;
    done?;
    if !status.success() {
        return Err(ProgramError::Ended {
            program: name.clone(),
            status,
        }
        .into());
    }
    if count == 0 {
        return Err(ProgramError::NoFigure { program: name }.into());
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Program {
        Program {
            name: "test".to_owned(),
            what: String::new(),
            command: ["sh", "-c", script].map(str::to_owned).to_vec(),
            with_peers: Vec::new(),
            heavy: false,
        }
    }

    fn lines(script: &str) -> Result<Vec<Value>, ProgramError> {
        let mut lines = Vec::new();
        run(
            "r",
            &shell(script),
            false,
            &[],
            |result| -> Result<(), ProgramError> {
                lines.push(result.line);
                Ok(())
            },
        )?;
        Ok(lines)
    }

    #[test]
    fn figures_are_taken_and_the_rest_passed_over() {
        let script = r#"echo warming up; echo '{"about":"x"}'
            echo '{"row":"search","arm":"ours","n":1e6,"ns_per_query":12.5,"checked":true,"extra":[1]}'
            echo '{"row":"search","arm":"theirs","n":1000000,"ops_per_s":4e7,"checked":true,"peer":true}'"#;
        let lines = lines(script).unwrap();
        assert_eq!(lines.len(), 2);
        assert_eq!(cost(&lines[0]), Some(12.5));
        assert_eq!(cost(&lines[1]), Some(25.0));
        assert_eq!(
            key(&lines[0]),
            ("search".to_owned(), "ours".to_owned(), 1_000_000, 1)
        );
        assert!(is_peer(&lines[1]) && !is_peer(&lines[0]));
        assert_eq!(lines[0]["extra"][0], 1);
    }

    #[test]
    fn unchecked_figures_and_bad_ends_fail() {
        let unchecked = r#"echo '{"row":"a","arm":"b","ns_per_query":1}'"#;
        assert!(matches!(lines(unchecked), Err(ProgramError::Line { .. })));
        let wrong = r#"echo '{"row":"a","arm":"b","ns_per_query":1,"checked":false}'"#;
        assert!(matches!(lines(wrong), Err(ProgramError::Line { .. })));
        let no_figure = r#"echo '{"row":"a","arm":"b","checked":true}'"#;
        assert!(matches!(lines(no_figure), Err(ProgramError::Line { .. })));
        let failed = r#"echo '{"row":"a","arm":"b","ns_per_query":1,"checked":true}'; exit 3"#;
        assert!(matches!(lines(failed), Err(ProgramError::Ended { .. })));
        assert!(matches!(
            lines("echo nothing to see"),
            Err(ProgramError::NoFigure { .. })
        ));
    }

    #[test]
    fn features_go_before_the_programs_own_arguments() {
        let mut definition = shell("");
        definition.command = ["echo", "{\"row\":\"a\"", "--", "x"].map(str::to_owned).to_vec();
        definition.with_peers = vec!["--features".to_owned()];
        let error = run(
            "r",
            &definition,
            true,
            &["y".to_owned()],
            |_| -> Result<(), ProgramError> { Ok(()) },
        );
        assert!(error.unwrap_err().to_string().contains("--features -- x y"));
    }
}
