//! The programs that are measured: where they are and what they can do.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::definitions::ArmDefinition;
use crate::machine;

/// The project's own tool; arms of this kind are judged, all others are what they are judged by.
pub const OWN: &str = "osmill";

/// A program found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// Name in the record: `osmium`, `osmill-before`.
    pub name: String,
    /// Kind, which says which arguments it takes: the name up to the first `-`.
    pub kind: String,
    /// Where it is.
    #[serde(skip)]
    pub path: PathBuf,
    /// First line of `--version`.
    pub version: String,
    /// Hash of the binary: two builds of one version are told apart.
    pub binary: String,
}

/// A program that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{name}: {}: {source}", path.display())]
pub struct ToolError {
    name: String,
    path: PathBuf,
    source: std::io::Error,
}

impl Tool {
    /// The program at `path` under `name`.
    pub fn at(name: &str, path: &Path) -> Result<Self, ToolError> {
        let fail = |source| ToolError {
            name: name.to_owned(),
            path: path.to_owned(),
            source,
        };
        let path = path.canonicalize().map_err(fail)?;
        let binary = machine::fingerprint(&path).map_err(fail)?;
        let output = Command::new(&path)
            .arg("--version")
            .stdin(Stdio::null())
            .output()
            .map_err(fail)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(Self {
            name: name.to_owned(),
            kind: name.split('-').next().unwrap_or(name).to_owned(),
            version: text.lines().next().unwrap_or("unknown").trim().to_owned(),
            binary,
            path,
        })
    }

    /// The program called `name` on PATH.
    pub fn on_path(name: &str) -> Option<Self> {
        let path = std::env::var_os("PATH")?;
        let found = std::env::split_paths(&path)
            .map(|folder| folder.join(name))
            .find(|file| file.is_file())?;
        Self::at(name, &found).ok()
    }

    /// Whether this is a build of the project's own tool.
    pub fn is_own(&self) -> bool {
        self.kind == OWN
    }

    /// Why this program cannot do what `definition` asks, or `None` when it can: the command must answer to `--help`, and an
    /// own build's help must mention every long option.
    pub fn lacks(&self, definition: &ArmDefinition) -> Option<String> {
        let command = definition.args.split_whitespace().next().unwrap_or_default();
        let Some(help) = self.help(command) else {
            return Some(format!("{} has no command `{command}`", self.name));
        };
        let missing = definition
            .args
            .split_whitespace()
            .filter(|word| word.starts_with("--") && self.is_own())
            .map(|word| word.split('=').next().unwrap_or(word))
            .find(|option| !help.contains(option))?;
        Some(format!("`{} {command}` has no option `{missing}`", self.name))
    }

    /// The help of `command`; `None` when there is no such command.
    pub fn help(&self, command: &str) -> Option<String> {
        let output = Command::new(&self.path)
            .args([command, "--help"])
            .stdin(Stdio::null())
            .output()
            .ok()?;
        output.status.success().then(|| {
            let text = [output.stdout, output.stderr].concat();
            String::from_utf8_lossy(&text).into_owned()
        })
    }
}
