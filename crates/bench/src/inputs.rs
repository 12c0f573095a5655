//! The files a row reads: the input, its change file, and what is derived from them before anything is measured.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use xxhash_rust::xxh3::xxh3_64;

use crate::definitions::{Suite, expand};
use crate::digest::{Digest, DigestError};
use crate::machine;
use crate::record;
use crate::tools::Tool;

/// An input and what is known about it.
#[derive(Debug)]
pub struct Input {
    /// Absolute path.
    pub path: PathBuf,
    /// The change file, where there is one.
    pub changes: Option<PathBuf>,
    /// What its elements are: the oracle of rows that must not change them.
    pub digest: Digest,
    /// As the record has it.
    pub info: record::Input,
}

/// Why a file that a row needs is not there.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is no PBF.
    #[error(transparent)]
    Digest(#[from] DigestError),
    /// A row needs a change file.
    #[error("needs a change file: give --osc FILE, or put NAME.osc.gz beside NAME.osm.pbf")]
    NoChanges,
    /// Nothing in the input has that kind.
    #[error("the input has no {0}")]
    NoSample(String),
    /// No tool at hand makes this derived input.
    #[error("no tool at hand makes the derived input `{0}`")]
    NoRecipe(String),
    /// The tool failed.
    #[error("derived input `{name}`: `{command}` failed: {detail}")]
    Recipe {
        /// Placeholder name.
        name: String,
        /// What was run.
        command: String,
        /// Its last words.
        detail: String,
    },
}

impl Input {
    /// Reads and digests the PBF at `path`; `changes` is its change file, or else `X.osc.gz` or `X.osc` beside `X.osm.pbf`.
    pub fn open(path: &Path, changes: Option<&Path>, threads: usize) -> Result<Self, InputError> {
        let io = |source| InputError::Io {
            path: path.to_owned(),
            source,
        };
        let path = path.canonicalize().map_err(io)?;
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let stem = name
            .strip_suffix(".osm.pbf")
            .or(name.strip_suffix(".pbf"))
            .unwrap_or(&name);
        let beside = ["osc.gz", "osc"].map(|suffix| path.with_file_name(format!("{stem}.{suffix}")));
        let changes = match changes {
            Some(changes) => {
                let io = |source| InputError::Io {
                    path: changes.to_owned(),
                    source,
                };
                Some(changes.canonicalize().map_err(io)?)
            }
            None => beside.into_iter().find(|file| file.is_file()),
        };
        let info = record::Input {
            bytes: fs::metadata(&path).map_err(io)?.len(),
            hash: machine::fingerprint(&path).map_err(io)?,
            name,
        };
        Ok(Self {
            digest: Digest::of_file(&path, threads)?,
            path,
            changes,
            info,
        })
    }
}

/// Resolves placeholders to files and values, making derived inputs when they are first asked for.
#[derive(Debug)]
pub struct Resolver<'s> {
    suite: &'s Suite,
    tools: &'s [Tool],
    /// Folder of the derived inputs; kept from run to run.
    folder: PathBuf,
    bbox: String,
    /// Derived inputs by the hash of everything they depend on.
    made: BTreeMap<String, PathBuf>,
}

/// A command line ready to run.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// Arguments without the program.
    pub arguments: Vec<String>,
    /// The files it reads.
    pub reads: Vec<PathBuf>,
}

impl<'s> Resolver<'s> {
    /// A resolver that keeps derived inputs in `folder`.
    pub fn new(
        suite: &'s Suite,
        tools: &'s [Tool],
        folder: &Path,
        bbox: Option<&str>,
    ) -> Result<Self, InputError> {
        let io = |source| InputError::Io {
            path: folder.to_owned(),
            source,
        };
        fs::create_dir_all(folder).map_err(io)?;
        let bbox = bbox
            .or(suite.defaults.get("bbox").map(String::as_str))
            .unwrap_or("-180,-90,180,90");
        let folder = folder.canonicalize().map_err(io)?;
        Ok(Self {
            suite,
            tools,
            folder,
            bbox: bbox.to_owned(),
            made: BTreeMap::new(),
        })
    }

    /// `args` for `tool` over `input`, writing to `out` and `outdir`.
    pub fn resolve(
        &mut self,
        args: &str,
        tool: &Tool,
        input: &Input,
        out: &Path,
        outdir: &Path,
    ) -> Result<Resolved, InputError> {
        let mut reads = Vec::new();
        let arguments = expand(args, |name| match name {
            "out" => Ok(out.display().to_string()),
            "outdir" => Ok(outdir.display().to_string()),
            "bbox" => Ok(self.bbox.clone()),
            "node" | "way" | "relation" => {
                let sample = input.digest.samples.get(name);
                sample
                    .map(i64::to_string)
                    .ok_or_else(|| InputError::NoSample(name.to_owned()))
            }
            name => {
                let path = match name.strip_prefix("file:") {
                    Some(file) => self.config_file(file)?,
                    None => self.file(name, tool, input)?,
                };
                let text = path.display().to_string();
                reads.push(path);
                Ok(text)
            }
        })?;
        Ok(Resolved { arguments, reads })
    }

    /// The digest of a shared derived input.
    pub fn oracle(&mut self, name: &str, input: &Input, threads: usize) -> Result<Digest, InputError> {
        let tool = self
            .tools
            .first()
            .ok_or_else(|| InputError::NoRecipe(name.to_owned()))?;
        let path = self.file(name, tool, input)?;
        Ok(Digest::of_file(&path, threads)?)
    }

    fn file(&mut self, name: &str, tool: &Tool, input: &Input) -> Result<PathBuf, InputError> {
        if name == "in" {
            return Ok(input.path.clone());
        }
        if name == "osc" {
            return input.changes.clone().ok_or(InputError::NoChanges);
        }
        let derived = self.suite.derived.iter().find(|derived| derived.name == name);
        let derived = derived.ok_or_else(|| InputError::NoRecipe(name.to_owned()))?;
        let makers: Vec<&Tool> = if derived.shared {
            let order = ["osmium", "pbfhogg", "osmill"];
            order
                .iter()
                .filter_map(|kind| self.tools.iter().find(|tool| tool.kind == *kind))
                .collect()
        } else {
            self.tools
                .iter()
                .filter(|known| known.name == tool.name)
                .collect()
        };
        let maker = makers
            .into_iter()
            .find_map(|tool| Some((tool, derived.by.get(&tool.kind)?)));
        match (maker, &derived.otherwise) {
            (Some((maker, args)), _) => {
                let (maker, args) = (maker.clone(), args.clone());
                self.make(name, &derived.suffix, &args, &maker, input)
            }
            (None, Some(otherwise)) => self.file(&otherwise.clone(), tool, input),
            (None, None) => Err(InputError::NoRecipe(name.to_owned())),
        }
    }

    /// Makes a derived input unless it is there already. Its name carries the hashes of input, change file, tool and arguments.
    fn make(
        &mut self,
        name: &str,
        suffix: &str,
        args: &str,
        tool: &Tool,
        input: &Input,
    ) -> Result<PathBuf, InputError> {
        let changes = match (&input.changes, args.contains("{osc}") || args.contains("{next}")) {
            (Some(path), true) => machine::fingerprint(path).map_err(|source| InputError::Io {
                path: path.clone(),
                source,
            })?,
            _ => String::new(),
        };
        let depends = [&*input.info.hash, &*changes, &*tool.binary, args].join("\n");
        let key = format!("{:016x}", xxh3_64(depends.as_bytes()));
        if let Some(path) = self.made.get(&key) {
            return Ok(path.clone());
        }
        let path = self.folder.join(format!("{name}-{}-{key}.{suffix}", tool.name));
        if !path.is_file() {
            eprintln!("  making {name} with {}", tool.name);
            // The suffix stays at the end: tools choose formats by it.
            let partial = self.folder.join(format!("partial-{key}.{suffix}"));
            let step = self.folder.join(format!("step-{key}.{suffix}"));
            let log = self.folder.join(format!("log-{key}"));
            let _ = fs::remove_file(&partial);
            let mut done = Ok(());
            for args in args.split(" && ") {
                let args = args.replace("{step}", &step.display().to_string());
                let resolved = self.resolve(&args, tool, input, &partial, &self.folder.clone())?;
                done = done.and_then(|()| execute(tool, &resolved.arguments, &log));
            }
            let _ = fs::remove_file(&step);
            let _ = fs::remove_file(&log);
            if done.is_ok() && !partial.is_file() {
                done = Err("no output file".to_owned());
            }
            if let Err(detail) = done {
                let _ = fs::remove_file(&partial);
                return Err(InputError::Recipe {
                    name: name.to_owned(),
                    command: format!("{} {args}", tool.name),
                    detail,
                });
            }
            fs::rename(&partial, &path).map_err(|source| InputError::Io {
                path: path.clone(),
                source,
            })?;
        }
        self.made.insert(key, path.clone());
        Ok(path)
    }

    fn config_file(&self, name: &str) -> Result<PathBuf, InputError> {
        let file = self.suite.file.iter().find(|file| file.name == name);
        let file = file.ok_or_else(|| InputError::NoRecipe(name.to_owned()))?;
        let contents = match (&file.contents, file.grid) {
            (Some(contents), _) => contents.clone(),
            (None, Some(boxes)) => grid(&self.bbox, boxes),
            (None, None) => return Err(InputError::NoRecipe(name.to_owned())),
        };
        let path = self.folder.join(format!("{name}.json"));
        fs::write(&path, contents).map_err(|source| InputError::Io {
            path: path.clone(),
            source,
        })?;
        Ok(path)
    }
}

/// Longest time for one step of a recipe.
const RECIPE_LIMIT: Duration = Duration::from_secs(1800);

/// Runs a step of a recipe, what it prints going to `log`; the error is its last line.
fn execute(tool: &Tool, arguments: &[String], log: &Path) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    let mut child = Command::new(&tool.path)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(log).map_err(text)?)
        .spawn()
        .map_err(text)?;
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(text)? {
            break status;
        }
        if start.elapsed() > RECIPE_LIMIT {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("not done after {} s", RECIPE_LIMIT.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    if status.success() {
        return Ok(());
    }
    let words = fs::read(log).map_err(text)?;
    let words = String::from_utf8_lossy(&words)
        .trim()
        .lines()
        .last()
        .map(str::to_owned);
    Err(words.unwrap_or_else(|| format!("{status}, without a word")))
}

/// An extract configuration in osmium's form: `count` boxes in rows and columns over `bbox` (left,bottom,right,top).
fn grid(bbox: &str, count: usize) -> String {
    let corners: Vec<f64> = bbox
        .split(',')
        .filter_map(|corner| corner.trim().parse().ok())
        .collect();
    let [left, bottom, right, top] = corners[..] else {
        return "{}".to_owned();
    };
    let columns = (1..=count)
        .rev()
        .find(|columns| columns * columns <= count)
        .unwrap_or(1);
    let rows = count.div_ceil(columns);
    let extracts: Vec<serde_json::Value> = (0..count)
        .map(|index| {
            let (column, row) = ((index % columns) as f64, (index / columns) as f64);
            let (width, height) = ((right - left) / columns as f64, (top - bottom) / rows as f64);
            // Corners at seven digits, so that every reader sees the same box.
            let at = |value: f64| (value * 1e7).round() / 1e7;
            serde_json::json!({
                "output": format!("region-{index}.osm.pbf"),
                "bbox": [
                    at(left + column * width),
                    at(bottom + row * height),
                    at(left + (column + 1.0) * width),
                    at(bottom + (row + 1.0) * height),
                ],
            })
        })
        .collect();
    serde_json::json!({ "extracts": extracts }).to_string()
}

/// Reads `path` through once, so that its pages are in the page cache.
pub fn read_through(path: &Path) -> std::io::Result<()> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0u8; 1 << 20];
    while file.read(&mut buffer)? > 0 {}
    Ok(())
}

/// Drops the pages of `path` from the page cache, and of nothing else. Dirty pages stay, so the file is synced first.
pub fn drop_pages(path: &Path) -> std::io::Result<()> {
    let file = File::open(path)?;
    file.sync_all()?;
    Ok(rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_tiles_its_box() {
        for count in [1, 5, 400] {
            let config: serde_json::Value = serde_json::from_str(&grid("5,45,15,55", count)).unwrap();
            let extracts = config["extracts"].as_array().unwrap();
            assert_eq!(extracts.len(), count);
            let area: f64 = extracts
                .iter()
                .map(|extract| {
                    let corner = |index: usize| extract["bbox"][index].as_f64().unwrap();
                    assert!(corner(0) >= 5.0 && corner(2) <= 15.0 && corner(1) >= 45.0 && corner(3) <= 55.0);
                    (corner(2) - corner(0)) * (corner(3) - corner(1))
                })
                .sum();
            assert!(area <= 100.0 + 1e-3 && area > 60.0, "{count} boxes cover {area}");
        }
    }
}
