//! The independent tool: `osmium`, found on PATH.
//!
//! Tests call [`available`] first and pass where it is `false`, so that they run everywhere; CI installs the
//! tool.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use osmill_pbf::Block;

use crate::file::read_blocks;
use crate::model::{Data, ReadError};

/// Why the tool gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum OsmiumError {
    /// It could not be run.
    #[error("osmium could not be run: {0}")]
    Io(#[from] std::io::Error),
    /// It said no.
    #[error("osmium {arguments} ended with {code:?}: {stderr}")]
    Failed {
        /// Its arguments.
        arguments: String,
        /// Its exit code; `None` after a signal.
        code: Option<i32>,
        /// What it said.
        stderr: String,
    },
    /// It gave lines that cannot be read.
    #[error(transparent)]
    Opl(#[from] crate::model::ParseOplError),
}

/// The first line of `osmium --version`, such as `osmium version 1.15.0`; `None` where it is not installed.
pub fn version() -> Option<&'static str> {
    static VERSION: OnceLock<Option<String>> = OnceLock::new();
    VERSION
        .get_or_init(|| {
            let output = Command::new("osmium").arg("--version").output().ok()?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            Some(text.lines().next()?.to_owned())
        })
        .as_deref()
}

/// Whether the tool is installed. Says so on standard error when it is not.
pub fn available() -> bool {
    if version().is_none() {
        eprintln!("osmium is not installed: nothing is compared with it");
    }
    version().is_some()
}

/// Runs the tool to its end with `input` on standard input, whatever its exit code.
pub fn run(
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    input: &[u8],
) -> Result<Output, OsmiumError> {
    let mut child = Command::new("osmium")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if let Some(stdin) = &mut stdin {
                // The tool may end before it has read everything; its exit code tells.
                let _ = stdin.write_all(input);
            }
        });
        Ok(child.wait_with_output()?)
    })
}

/// Runs the tool and gives its standard output; an exit code other than 0 is an error.
pub fn stdout(
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    input: &[u8],
) -> Result<Vec<u8>, OsmiumError> {
    let arguments: Vec<_> = arguments.into_iter().map(|a| a.as_ref().to_os_string()).collect();
    let output = run(&arguments, input)?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(OsmiumError::Failed {
        arguments: arguments.join(OsStr::new(" ")).to_string_lossy().into_owned(),
        code: output.status.code(),
        stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

/// The lines of `osmium cat -f opl FILE`, without the locations that ways may carry.
pub fn opl_lines(file: &Path) -> Result<Vec<String>, OsmiumError> {
    opl_lines_in(file, "opl")
}

/// As [`opl_lines`], with the locations that ways carry; one that a way lacks shows as `xy`.
pub fn opl_lines_with_locations(file: &Path) -> Result<Vec<String>, OsmiumError> {
    opl_lines_in(file, "opl,locations_on_ways=true")
}

fn opl_lines_in(file: &Path, format: &str) -> Result<Vec<String>, OsmiumError> {
    let arguments = ["cat".as_ref(), "-f".as_ref(), OsStr::new(format), file.as_ref()];
    Ok(lines(&stdout(arguments, b"")?))
}

/// The data that a command of the tool makes of PBF data: `command` with its arguments, among which `{}`
/// stands for a file with the data. The command must write OPL to standard output.
pub fn data(data: &Data, command: &[&str]) -> Result<Data, OsmiumError> {
    data_of(&[("{}", &data.to_pbf(), "osm.pbf")], command)
}

/// As [`data`], for commands with several inputs: name among the arguments, contents, suffix of each.
pub fn data_of(inputs: &[(&str, &[u8], &str)], command: &[&str]) -> Result<Data, OsmiumError> {
    let directory = tempfile::tempdir()?;
    let mut paths = Vec::new();
    for (i, (name, contents, suffix)) in inputs.iter().enumerate() {
        let path = directory.path().join(format!("{i}.{suffix}"));
        std::fs::write(&path, contents)?;
        paths.push((*name, path));
    }
    let arguments = command
        .iter()
        .map(|argument| match paths.iter().find(|(name, _)| name == argument) {
            Some((_, path)) => path.clone().into_os_string(),
            None => argument.into(),
        });
    let out = stdout(arguments, b"")?;
    let lines = lines(&out);
    Ok(lines
        .iter()
        .map(|line| line.parse())
        .collect::<Result<Data, _>>()?)
}

fn lines(bytes: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(bytes)
        .lines()
        .map(str::to_owned)
        .collect()
}

/// The lines that the tool would print for a PBF file, by our own reader and OPL writer.
pub fn opl_lines_of_pbf(bytes: &[u8]) -> Result<Vec<String>, ReadError> {
    let mut out = Vec::new();
    read_blocks(bytes, |block: &Block| {
        osmill_text::opl::write_block(block, &mut out)?;
        Ok::<_, ReadError>(())
    })?;
    Ok(lines(&out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_command_and_reason() {
        if !available() {
            return;
        }
        let error = stdout(["cat", "-f", "opl", "/no/such/file.osm.pbf"], b"").unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("cat -f opl /no/such/file.osm.pbf") && text.contains("No such file"),
            "{text}"
        );
    }

    #[test]
    fn what_we_write_is_what_the_tool_reads() {
        if !available() {
            return;
        }
        let data = Data::opl(
            "n1 v1 dV c2 t2024-02-29T12:00:00Z i3 uAna%20%B x1.5 y-2.25 Tname=Z%fc%rich
             w5 v3 dV c0 t i0 u Nn1,n2 Thighway=x
             r9 v1 dV c0 t i0 u Mw5@outer,n1@",
        );
        let file = tempfile::Builder::new().suffix(".osm.pbf").tempfile().unwrap();
        std::fs::write(file.path(), data.to_pbf()).unwrap();
        assert_eq!(opl_lines(file.path()).unwrap(), data.opl_lines());
    }
}
