//! How complete extracts are.

use osmill_engine::{Error, KernelResult, Result};
use osmill_pbf::Relation;

/// How complete an extract is; see the documentation of [`crate::extract`].
#[derive(Debug, Clone, PartialEq)]
pub enum Strategy {
    /// Nodes inside, and what refers to them.
    Simple,
    /// All nodes of the ways, too.
    CompleteWays {
        /// Whether relations are written at all.
        relations: bool,
    },
    /// The members of some relations, too.
    Smart(Smart),
}

impl Default for Strategy {
    fn default() -> Self {
        Strategy::CompleteWays { relations: true }
    }
}

/// Which relations the smart strategy completes.
#[derive(Debug, Clone, PartialEq)]
pub struct Smart {
    /// Those whose tag `type` has one of these values; `None`: all.
    pub types: Option<Vec<String>>,
    /// Of these only relations with one of these tags, if there are any: a key, and a value if it matters.
    pub tags: Vec<(String, Option<String>)>,
    /// Besides, relations of which at least this percentage of the members belongs to the extract.
    pub complete_partial_percentage: f64,
}

impl Default for Smart {
    fn default() -> Self {
        Smart {
            types: Some(vec!["multipolygon".into()]),
            tags: Vec::new(),
            complete_partial_percentage: 100.0,
        }
    }
}

impl Strategy {
    /// Reads a strategy's name and its options in osmium's spelling, `KEY=VALUE`.
    pub fn parse(name: &str, options: &[String]) -> Result<Strategy> {
        let mut strategy = match name {
            "simple" => Strategy::Simple,
            "complete_ways" | "complete-ways" => Strategy::default(),
            "smart" => Strategy::Smart(Smart::default()),
            _ => {
                return Err(Error::Usage(format!(
                    "there is no strategy '{name}'; use simple, complete_ways or smart"
                )));
            }
        };
        for option in options {
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            let bad = |what: &str| Error::Usage(format!("-S {option}: {what}"));
            let words = || value.split(',').map(|word| word.trim().to_owned());
            match (&mut strategy, key) {
                (Strategy::CompleteWays { relations }, "relations") => {
                    *relations = match value {
                        "false" => false,
                        "true" => true,
                        _ => return Err(bad("write relations=false")),
                    };
                }
                (Strategy::Smart(smart), "types") => {
                    smart.types = match value {
                        "any" => None,
                        "" => return Err(bad("write types=any or a list of types")),
                        _ => Some(words().collect()),
                    };
                }
                (Strategy::Smart(smart), "tags") => {
                    let tag = |word: String| match word.split_once('=') {
                        Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
                        None => (word, None),
                    };
                    smart.tags = words().map(tag).collect();
                }
                (Strategy::Smart(smart), "complete-partial-relations") => {
                    let percentage = value.parse().ok().filter(|p| (0.0..=100.0).contains(p));
                    smart.complete_partial_percentage =
                        percentage.ok_or_else(|| bad("write a percentage between 0 and 100"))?;
                }
                _ => return Err(bad(&format!("strategy {name} has no such option"))),
            }
        }
        Ok(strategy)
    }
}

impl Smart {
    /// Whether a relation is completed for its tags.
    pub(super) fn completes(&self, relation: &Relation<'_>) -> KernelResult<bool> {
        let mut type_fits = self.types.is_none();
        let mut tags_fit = self.tags.is_empty();
        for tag in relation.tags() {
            let tag = tag?;
            if let Some(types) = &self.types
                && tag.key == b"type"
            {
                type_fits = types.iter().any(|name| name.as_bytes() == tag.value);
            }
            tags_fit |= self.tags.iter().any(|(key, value)| {
                key.as_bytes() == tag.key && value.as_ref().is_none_or(|value| value.as_bytes() == tag.value)
            });
        }
        Ok(type_fits && tags_fit)
    }
}
