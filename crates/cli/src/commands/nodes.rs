//! `osmill nodes`.

use std::fmt::Write as _;
use std::io::{BufRead, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use osmill_engine::{Error, Result};
use osmill_model::{Location, format_coordinate};
use osmill_nodes::NodeStore;
use osmill_ops::nodes;
use serde_json::json;

use crate::args::{Common, NodesCommand};
use crate::render::{self, bytes, number};

pub fn run(common: &Common, command: &NodesCommand) -> Result<ExitCode> {
    let job = common.job()?;
    let open = |store: &Path| NodeStore::open(store, common.memory, true);
    match command {
        NodesCommand::Build {
            file,
            store,
            overwrite,
        } => {
            let report = nodes::build(&job, file, store, *overwrite)?;
            tell(common, &made(&report));
            render::account(common, "nodes build", &job);
        }
        NodesCommand::Import {
            flat,
            store,
            overwrite,
        } => {
            let report = nodes::import(&job, flat, store, *overwrite)?;
            tell(common, &made(&report));
        }
        NodesCommand::Export {
            store,
            flat,
            overwrite,
        } => {
            let report = nodes::export(&job, store, flat, *overwrite)?;
            if report.negative > 0 {
                eprintln!(
                    "osmill nodes export: warning: {} nodes with negative ids have no place in a flat file",
                    number(report.negative)
                );
            }
            tell(
                common,
                &format!("{} nodes, {}", number(report.nodes), bytes(report.bytes)),
            );
        }
        NodesCommand::Get { store, ids } => return get(&open(store)?, ids),
        NodesCommand::Apply {
            store,
            changes,
            sequence,
        } => {
            for report in nodes::apply(&job, store, changes, *sequence)? {
                let sequence = report.sequence.map(|n| format!(" (sequence number {n})"));
                tell(
                    common,
                    &format!(
                        "{}{}: {} nodes inserted, {} replaced, {} removed",
                        report.change.display(),
                        sequence.unwrap_or_default(),
                        number(report.inserted),
                        number(report.replaced),
                        number(report.removed)
                    ),
                );
            }
        }
        NodesCommand::Dump { store } => dump(&open(store)?)?,
        NodesCommand::Stats { store, json } => stats(&open(store)?, *json)?,
        NodesCommand::Check { store } => {
            let report = open(store)?.check()?;
            render::print(&report.to_string())?;
            return Ok(ExitCode::from(u8::from(!report.is_sound())));
        }
        NodesCommand::Compact { store } => {
            let report = NodeStore::open(store, common.memory, false)?.compact()?;
            tell(common, &report.to_string());
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn tell(common: &Common, text: &str) {
    if !common.quiet {
        eprintln!("osmill nodes: {text}");
    }
}

fn made(report: &nodes::BuildReport) -> String {
    format!(
        "{} nodes, {} ({:.2} bytes a node)",
        number(report.nodes),
        bytes(report.bytes),
        report.bytes as f64 / report.nodes.max(1) as f64
    )
}

/// Ids from arguments, or from standard input.
fn parse_ids(arguments: &[String]) -> Result<Vec<i64>> {
    let mut ids = Vec::new();
    let mut parse = |text: &str| -> Result<()> {
        let digits = ["node/", "node ", "n"]
            .iter()
            .find_map(|prefix| text.strip_prefix(prefix))
            .unwrap_or(text);
        let id = digits.trim().parse().map_err(|_| {
            Error::Usage(format!(
                "'{text}' is not the id of a node; write 17, n17 or node/17"
            ))
        })?;
        ids.push(id);
        Ok(())
    };
    for argument in arguments {
        if argument == "-" {
            for line in std::io::stdin().lock().lines() {
                let line = line.map_err(|e| Error::io("read", Path::new("standard input"), e))?;
                if !line.trim().is_empty() {
                    parse(line.trim())?;
                }
            }
        } else {
            parse(argument)?;
        }
    }
    Ok(ids)
}

/// Appends a node as OPL has it: `n17 x9.5209 y47.141`.
fn line(out: &mut Vec<u8>, id: i64, at: Location) {
    out.push(b'n');
    out.extend_from_slice(id.to_string().as_bytes());
    out.extend_from_slice(b" x");
    format_coordinate(out, at.lon);
    out.extend_from_slice(b" y");
    format_coordinate(out, at.lat);
    out.push(b'\n');
}

fn get(store: &NodeStore, arguments: &[String]) -> Result<ExitCode> {
    let ids = parse_ids(arguments)?;
    let mut locations = Vec::new();
    store.locate(&ids, &mut locations)?;
    let (mut out, mut missing) = (Vec::new(), String::new());
    for (id, at) in ids.iter().zip(locations) {
        match at {
            Some(at) => line(&mut out, *id, at),
            None => {
                let _ = write!(missing, " {id}");
            }
        }
    }
    print(&out)?;
    if missing.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("osmill nodes get: not in the store:{missing}");
    Ok(ExitCode::from(1))
}

fn print(text: &[u8]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text)
        .and_then(|()| out.flush())
        .map_err(|e| Error::io("write", Path::new("standard output"), e))
}

fn dump(store: &NodeStore) -> Result<()> {
    let fail = |e| Error::io("write", Path::new("standard output"), e);
    let mut out = BufWriter::with_capacity(1 << 18, std::io::stdout().lock());
    let mut text = Vec::new();
    for node in store.iter() {
        let (id, at) = node?;
        text.clear();
        line(&mut text, id, at);
        out.write_all(&text).map_err(fail)?;
    }
    out.flush().map_err(fail)
}

fn stats(store: &NodeStore, as_json: bool) -> Result<()> {
    let (stats, state) = (store.stats()?, store.state());
    if as_json {
        let value = json!({
            "sequence": state.sequence,
            "timestamp": state.timestamp.map(|t| t.to_string()),
            "base_url": state.base_url,
            "store": stats,
        });
        return render::print(&format!("{value:#}\n"));
    }
    let mut text = String::new();
    let mut row = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<22}{value}");
    };
    row("Nodes", number(stats.keys));
    row("File", bytes(stats.file_bytes));
    row(
        "In use",
        format!(
            "{} ({:.2} bytes a node)",
            bytes(stats.used_bytes),
            stats.bytes_a_key
        ),
    );
    let known = |value: Option<String>| value.unwrap_or_else(|| "not known".into());
    row("Sequence number", known(state.sequence.map(|n| n.to_string())));
    row("Data up to", known(state.timestamp.map(|t| t.to_string())));
    row("Change files", known(state.base_url.clone()));
    render::print(&text)
}
