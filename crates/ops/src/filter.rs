//! Tag expressions, as `osmium` has them.
//!
//! `[nwr]/KEY`, `[nwr]/KEY=VALUE`, `[nwr]/KEY!=VALUE`. The letters in front of the slash restrict the kinds;
//! without them, or with nothing before the slash, all kinds are meant. KEY and VALUE are
//!
//! * a word, which has to be equal;
//! * several words separated by commas, of which one has to be equal;
//! * `*`, which everything matches;
//! * `word*`, a beginning; `*word` or `*word*`, a part anywhere.

use osmill_engine::{Error, Result};
use osmill_model::{Kind, KindSet, Tag};

/// What a key or a value is compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    Any,
    Equal(Vec<u8>),
    OneOf(Vec<Vec<u8>>),
    Prefix(Vec<u8>),
    Part(Vec<u8>),
}

impl Pattern {
    fn parse(text: &str) -> Pattern {
        let text = text.trim();
        let bytes = |s: &str| s.as_bytes().to_vec();
        match (text.strip_prefix('*'), text.strip_suffix('*')) {
            _ if text == "*" => Pattern::Any,
            (None, None) if text.contains(',') => {
                Pattern::OneOf(text.split(',').map(|word| bytes(word.trim())).collect())
            }
            (None, None) => Pattern::Equal(bytes(text)),
            (None, Some(prefix)) => Pattern::Prefix(bytes(prefix)),
            (Some(part), _) => Pattern::Part(bytes(part.strip_suffix('*').unwrap_or(part))),
        }
    }

    fn matches(&self, text: &[u8]) -> bool {
        match self {
            Pattern::Any => true,
            Pattern::Equal(word) => text == &word[..],
            Pattern::OneOf(words) => words.iter().any(|word| text == &word[..]),
            Pattern::Prefix(prefix) => text.starts_with(prefix),
            Pattern::Part(part) => part.is_empty() || text.windows(part.len()).any(|w| w == &part[..]),
        }
    }
}

/// One expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagExpression {
    kinds: KindSet,
    key: Pattern,
    value: Pattern,
    /// Whether the value must not match.
    differs: bool,
}

impl TagExpression {
    /// Reads an expression; see the module's documentation.
    pub fn parse(text: &str) -> Result<TagExpression> {
        let (kinds, tag) = match text.split_once('/') {
            Some((letters, tag)) if letters.chars().all(|c| "nwr".contains(c)) => {
                let kinds: KindSet = letters
                    .chars()
                    .filter_map(|c| Kind::ALL.into_iter().find(|kind| kind.letter() == c))
                    .collect();
                (if kinds.is_empty() { KindSet::ALL } else { kinds }, tag)
            }
            _ => (KindSet::ALL, text),
        };
        let (key, value, differs) = match tag.split_once('=') {
            Some((key, value)) => match key.strip_suffix('!') {
                Some(key) => (key, value, true),
                None => (key, value, false),
            },
            None => (tag, "*", false),
        };
        if key.trim().is_empty() {
            return Err(Error::Usage(format!(
                "'{text}' is not a tag expression; write KEY, KEY=VALUE or n/KEY=VALUE"
            )));
        }
        Ok(TagExpression {
            kinds,
            key: Pattern::parse(key),
            value: Pattern::parse(value),
            differs,
        })
    }

    /// Whether a tag of an element of this kind matches.
    pub fn matches(&self, kind: Kind, tag: Tag<'_>) -> bool {
        self.kinds.contains(kind)
            && self.key.matches(tag.key)
            && self.value.matches(tag.value) != self.differs
    }
}

/// Expressions of which one has to match. None at all match everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TagFilter {
    expressions: Vec<TagExpression>,
}

impl TagFilter {
    /// Reads expressions.
    pub fn parse<S: AsRef<str>>(texts: &[S]) -> Result<TagFilter> {
        let expressions = texts
            .iter()
            .map(|text| TagExpression::parse(text.as_ref()))
            .collect::<Result<_>>()?;
        Ok(TagFilter { expressions })
    }

    /// Whether there is no expression.
    pub fn is_empty(&self) -> bool {
        self.expressions.is_empty()
    }

    /// Whether some expression matches the tag, or there is none.
    pub fn matches(&self, kind: Kind, tag: Tag<'_>) -> bool {
        self.expressions.is_empty() || self.expressions.iter().any(|e| e.matches(kind, tag))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_match_as_osmiums_do() {
        let matches = |expression: &str, kind: Kind, key: &str, value: &str| {
            let tag = Tag {
                key: key.as_bytes(),
                value: value.as_bytes(),
            };
            TagExpression::parse(expression).unwrap().matches(kind, tag)
        };
        use Kind::{Node, Relation, Way};
        assert!(matches("highway", Way, "highway", "primary"));
        assert!(!matches("highway", Way, "highways", "primary"));
        assert!(matches(
            "w/highway=primary,secondary",
            Way,
            "highway",
            "secondary"
        ));
        assert!(!matches("w/highway=primary", Node, "highway", "primary"));
        assert!(matches("nr/a=b", Relation, "a", "b") && matches("/a=b", Way, "a", "b"));
        assert!(
            matches("highway!=primary", Way, "highway", "x") && !matches("highway!=primary", Way, "a", "x")
        );
        assert!(matches("name:*", Way, "name:de", "x") && !matches("name:*", Way, "name", "x"));
        assert!(matches("n/name=*y", Node, "name", "xyz") && matches("name=*y*", Node, "name", "y"));
        assert!(matches("amenity,shop", Node, "shop", "x") && matches("*=yes", Node, "q", "yes"));
        assert!(TagExpression::parse("n/=x").is_err() && TagExpression::parse("").is_err());
    }
}
