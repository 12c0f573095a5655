//! The rows of a suite, as data: `definitions/*.toml`.
//!
//! A row names, for every kind of tool that can do the job, the arguments, and one way to verify the outputs. Adding a command or a
//! peer is a change of that file, not of code. Arguments are split at white space; what stands in braces is replaced:
//!
//! | placeholder | stands for |
//! | --- | --- |
//! | `{in}` | the input file |
//! | `{osc}` | the change file beside it (`X.osc.gz` of `X.osm.pbf`, or `--osc`) |
//! | `{out}`, `{outdir}` | where the arm writes |
//! | `{bbox}` | the region of `--bbox`, or of the suite's `[defaults]` |
//! | `{node}`, `{way}`, `{relation}` | an id from the middle of the input |
//! | `{file:NAME}` | a configuration file that the suite defines under `[[file]]` |
//! | `{NAME}` | an input derived from `{in}` as `[[derived]]` says, made before the measurement and kept |

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::digest::Facet;

/// Rows of one suite and what they need.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suite {
    /// Values that options override.
    #[serde(default)]
    pub defaults: BTreeMap<String, String>,
    /// Inputs made from the input.
    #[serde(default)]
    pub derived: Vec<Derived>,
    /// Configuration files that rows name.
    #[serde(default)]
    pub file: Vec<ConfigFile>,
    /// The rows, in the order in which they run.
    #[serde(default)]
    pub row: Vec<Row>,
    /// Programs that measure in-process and print JSON lines.
    #[serde(default)]
    pub program: Vec<Program>,
}

/// An input made from the input by one of the tools, outside the measurement.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Derived {
    /// Placeholder name.
    pub name: String,
    /// What it is, for `list`.
    pub what: String,
    /// Suffix of the file.
    #[serde(default = "pbf_suffix")]
    pub suffix: String,
    /// Arguments by kind of tool, `{out}` being the file to make. Steps are separated by ` && `; `{step}` is a file between them.
    pub by: BTreeMap<String, String>,
    /// One file for all (made by the first of osmium, pbfhogg, osmill that is there and has a recipe) instead of one a tool.
    #[serde(default)]
    pub shared: bool,
    /// The placeholder that tools without a recipe get instead.
    #[serde(default, rename = "else")]
    pub otherwise: Option<String>,
}

fn pbf_suffix() -> String {
    "osm.pbf".to_owned()
}

/// A configuration file written for a row.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigFile {
    /// Name in `{file:NAME}`.
    pub name: String,
    /// The contents, or
    #[serde(default)]
    pub contents: Option<String>,
    /// an extract configuration of this many boxes that tile `{bbox}`: outputs `region-0.osm.pbf` and so on.
    #[serde(default)]
    pub grid: Option<usize>,
}

/// One row: a job, the tools that can do it, and how to verify what they made.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Name, unique in the suite.
    pub name: String,
    /// The job in words.
    pub what: String,
    /// Whether `--skip-heavy` leaves it out.
    #[serde(default)]
    pub heavy: bool,
    /// Suffix of the output file.
    #[serde(default = "pbf_suffix")]
    pub suffix: String,
    /// Arguments by kind of tool.
    pub arms: BTreeMap<String, ArmDefinition>,
    /// How outputs are verified.
    pub verify: Verify,
    /// By how much osmill means to be faster than a peer: ratio of walls.
    #[serde(default)]
    pub goals: BTreeMap<String, f64>,
}

/// How one kind of tool does a row's job.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArmDefinition {
    /// Arguments with placeholders.
    pub args: String,
    /// Exit codes that are answers, not failures.
    #[serde(default = "exit_zero")]
    pub exit: Vec<i32>,
    /// Whether `--skip-heavy` leaves this arm out.
    #[serde(default)]
    pub heavy: bool,
    /// Why this peer's output is known to differ. Then a difference is recorded instead of failing the row.
    #[serde(default)]
    pub differs: Option<String>,
    /// Run after the measured run, untimed, in the same directory; its output is what `verify` reads.
    #[serde(default)]
    pub after: Option<String>,
}

fn exit_zero() -> Vec<i32> {
    vec![0]
}

/// What outputs are compared with.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Against {
    /// `input`: the job must not change the elements.
    Input,
    /// `reference`: the first arm of osmium, pbfhogg, osmill that took part and has no known difference.
    Reference,
    /// `derived:NAME`: a derived input, for jobs whose result another tool gets to by another way.
    Derived(String),
}

impl TryFrom<String> for Against {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "input" => Ok(Self::Input),
            None if text == "reference" => Ok(Self::Reference),
            Some(("derived", name)) => Ok(Self::Derived(name.to_owned())),
            _ => Err(format!("`{text}` is none of input, reference, derived:NAME")),
        }
    }
}

/// How a row is verified. Every row has to say.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Verify {
    /// Outputs are PBF files with the same elements ([`crate::digest`]).
    Elements {
        /// What with.
        against: Against,
        /// Facets that the job changes, when compared with the input.
        #[serde(default)]
        ignore: Vec<Facet>,
        /// File names under `{outdir}`; empty: the one file `{out}`.
        #[serde(default)]
        outputs: Vec<String>,
        /// Instead of `outputs`: `region-0.osm.pbf` to `region-N-1.osm.pbf`.
        #[serde(default)]
        regions: usize,
    },
    /// Numbers and words in the text that the tools print agree.
    Counts {
        /// By tool: name of the count -> where it is, the first that is found: `json:/pointer` or `re:expression with (one group)`.
        read: BTreeMap<String, BTreeMap<String, Vec<String>>>,
        /// Counts that must equal those of the input's digest.
        #[serde(default)]
        input: Vec<String>,
    },
    /// The lines that the tools print agree after rewriting, in whatever order.
    Lines {
        /// By tool: lines that match are rewritten and compared, others ignored.
        read: BTreeMap<String, LineRule>,
    },
    /// Output files are equal byte by byte.
    Bytes,
    /// Outputs are change files that say the same, read through `osmium cat -f opl`.
    Changes,
}

/// How a printed line becomes a comparable one.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LineRule {
    /// A regular expression for the whole line.
    #[serde(rename = "match")]
    pub pattern: String,
    /// The replacement (`$1`, `$2`).
    pub to: String,
    /// Texts replaced after that, each by the one behind it: what a tool doubles or escapes.
    #[serde(default)]
    pub unescape: Vec<[String; 2]>,
}

/// A program of a suite that measures in its own process. See the contract in [`crate::program`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Name, for `--rows`.
    pub name: String,
    /// What it measures.
    pub what: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Added to the command when peers are asked for (`--with-peers`): cargo features, mostly.
    #[serde(default)]
    pub with_peers: Vec<String>,
    /// Whether `--skip-heavy` leaves it out.
    #[serde(default)]
    pub heavy: bool,
}

/// A definition file that does not make sense.
#[derive(Debug, thiserror::Error)]
pub enum DefinitionError {
    /// There is no such suite.
    #[error("no suite named `{0}`; there are: {known}", known = SUITES.map(|(name, _)| name).join(", "))]
    UnknownSuite(String),
    /// The file is no valid TOML or has unknown keys.
    #[error("definitions of suite `{suite}`: {source}")]
    Syntax {
        /// Which suite.
        suite: String,
        /// What is wrong, with the line.
        source: Box<toml::de::Error>,
    },
    /// A row contradicts itself.
    #[error("row `{row}`: {what}")]
    Row {
        /// Which row.
        row: String,
        /// What is wrong.
        what: String,
    },
}

/// Suites by name.
pub const SUITES: [(&str, &str); 3] = [
    ("toolkit", include_str!("../definitions/toolkit.toml")),
    ("stree", include_str!("../definitions/stree.toml")),
    ("diskarray", include_str!("../definitions/diskarray.toml")),
];

impl Suite {
    /// The suite of that name.
    pub fn named(name: &str) -> Result<Self, DefinitionError> {
        let (_, text) = SUITES
            .into_iter()
            .find(|(known, _)| *known == name)
            .ok_or_else(|| DefinitionError::UnknownSuite(name.to_owned()))?;
        Self::parse(name, text)
    }

    /// Reads and checks definitions in TOML.
    pub fn parse(name: &str, text: &str) -> Result<Self, DefinitionError> {
        let suite: Self = toml::from_str(text).map_err(|source| DefinitionError::Syntax {
            suite: name.to_owned(),
            source: Box::new(source),
        })?;
        suite.check()?;
        Ok(suite)
    }

    /// Names unique, placeholders known, expressions well formed.
    fn check(&self) -> Result<(), DefinitionError> {
        let mut names = BTreeSet::new();
        for row in &self.row {
            let fail = |what: String| DefinitionError::Row {
                row: row.name.clone(),
                what,
            };
            if !names.insert(&row.name) {
                return Err(fail("the name is there twice".to_owned()));
            }
            for arm in row.arms.values() {
                let after = arm.after.as_deref().unwrap_or_default();
                for name in placeholders(&arm.args).chain(placeholders(after)) {
                    if !self.knows(name) {
                        return Err(fail(format!("placeholder {{{name}}} is not defined")));
                    }
                }
            }
            match &row.verify {
                Verify::Counts { read, .. } => {
                    for source in read.values().flat_map(BTreeMap::values).flatten() {
                        match source.split_once(':') {
                            Some(("json", _)) => {}
                            Some(("re", expression)) => {
                                regex::Regex::new(expression).map_err(|error| fail(error.to_string()))?;
                            }
                            _ => return Err(fail(format!("`{source}` is neither json: nor re:"))),
                        }
                    }
                }
                Verify::Lines { read } => {
                    for rule in read.values() {
                        regex::Regex::new(&rule.pattern).map_err(|error| fail(error.to_string()))?;
                    }
                }
                Verify::Elements {
                    against: Against::Derived(name),
                    ..
                } if !self.knows(name) => {
                    return Err(fail(format!("derived input `{name}` is not defined")));
                }
                Verify::Elements { .. } | Verify::Bytes | Verify::Changes => {}
            }
        }
        Ok(())
    }

    fn knows(&self, name: &str) -> bool {
        const FIXED: [&str; 8] = ["in", "osc", "out", "outdir", "bbox", "node", "way", "relation"];
        match name.strip_prefix("file:") {
            Some(file) => self.file.iter().any(|known| known.name == file),
            None => FIXED.contains(&name) || self.derived.iter().any(|derived| derived.name == name),
        }
    }
}

/// The names in braces in `args`.
pub fn placeholders(args: &str) -> impl Iterator<Item = &str> {
    args.split('{')
        .skip(1)
        .filter_map(|rest| rest.split_once('}').map(|(name, _)| name))
}

/// Splits `args` at white space and replaces what stands in braces by what `value` gives; its error names the placeholder.
pub fn expand<E>(args: &str, mut value: impl FnMut(&str) -> Result<String, E>) -> Result<Vec<String>, E> {
    args.split_whitespace()
        .map(|word| {
            let mut pieces = word.split('{');
            let mut done = pieces.next().unwrap_or_default().to_owned();
            for piece in pieces {
                match piece.split_once('}') {
                    Some((name, rest)) => {
                        done.push_str(&value(name)?);
                        done.push_str(rest);
                    }
                    None => done.push_str(piece),
                }
            }
            Ok(done)
        })
        .collect()
}

/// Whether `name` matches one of the comma-separated patterns, in which `*` stands for anything.
pub fn selected(patterns: Option<&str>, name: &str) -> bool {
    fn glob(pattern: &str, name: &str) -> bool {
        match pattern.split_once('*') {
            None => pattern == name,
            Some((head, tail)) => name.strip_prefix(head).is_some_and(|rest| {
                rest.char_indices()
                    .map(|(index, _)| index)
                    .chain([rest.len()])
                    .any(|at| glob(tail, &rest[at..]))
            }),
        }
    }
    patterns.is_none_or(|patterns| patterns.split(',').any(|pattern| glob(pattern.trim(), name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suite_reads_and_every_row_has_an_osmill_arm() {
        for (name, _) in SUITES {
            let suite = Suite::named(name).unwrap();
            assert!(!suite.row.is_empty() || !suite.program.is_empty());
            for row in &suite.row {
                assert!(row.arms.contains_key("osmill"), "{} has no osmill arm", row.name);
            }
        }
    }

    #[test]
    fn unknown_placeholders_and_twins_are_refused() {
        let row = |name: &str, args: &str| {
            format!(
                "[[row]]\nname = \"{name}\"\nwhat = \"x\"\narms.osmill.args = \"{args}\"\n\
                 verify = {{ kind = \"bytes\" }}\n"
            )
        };
        assert!(Suite::parse("t", &row("a", "cat {in} -o {out}")).is_ok());
        let error = Suite::parse("t", &row("a", "cat {inn}")).unwrap_err().to_string();
        assert!(error.contains("{inn}"), "{error}");
        let error = Suite::parse("t", &(row("a", "x") + &row("a", "y")))
            .unwrap_err()
            .to_string();
        assert!(error.contains("twice"), "{error}");
    }

    #[test]
    fn arguments_expand_word_by_word() {
        let words = expand("cat {in} n{node} --x={out}.gz", |name| match name {
            "missing" => Err(()),
            name => Ok(format!("<{name} file>")),
        });
        assert_eq!(
            words.unwrap(),
            ["cat", "<in file>", "n<node file>", "--x=<out file>.gz"]
        );
    }

    #[test]
    fn patterns_select_rows() {
        assert!(selected(None, "cat"));
        assert!(selected(Some("check-*,cat"), "check-refs"));
        assert!(selected(Some("*refs*"), "check-refs"));
        assert!(selected(Some("c*-r*s"), "check-refs"));
        assert!(!selected(Some("cat"), "cat-index"));
    }
}
