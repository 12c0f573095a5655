//! Tag expressions as osmium's tags-filter reads them.

use osmill_model::{Kind, KindSet};

use super::element::{Element, Text};

/// A filter expression: `w/highway=primary,secondary`, `name`, `nr/addr:*`, `a/building!=no`.
///
/// Before the slash stand the kinds (`n`, `w`, `r`, and `a` for areas: closed ways of at least four nodes and
/// relations of type multipolygon or boundary); after it a key, alone or with `=` or `!=` and values with
/// commas between them. `*` at the end of a key or value stands for any ending; at both ends or at its
/// beginning, for anything around: a substring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagExpression {
    kinds: KindSet,
    areas: bool,
    keys: Vec<Pattern>,
    values: Option<Vec<Pattern>>,
    negated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    Any,
    Exact(Vec<u8>),
    Prefix(Vec<u8>),
    Substring(Vec<u8>),
}

impl Pattern {
    fn list(text: &str) -> Vec<Pattern> {
        text.split(',').map(|part| Pattern::one(part.trim())).collect()
    }

    fn one(text: &str) -> Pattern {
        match (text.strip_prefix('*'), text.strip_suffix('*')) {
            _ if text == "*" => Pattern::Any,
            (Some(rest), _) => Pattern::Substring(rest.strip_suffix('*').unwrap_or(rest).into()),
            (None, Some(start)) => Pattern::Prefix(start.into()),
            (None, None) => Pattern::Exact(text.into()),
        }
    }

    fn matches(&self, Text(text): &Text) -> bool {
        match self {
            Pattern::Any => true,
            Pattern::Exact(want) => text == want,
            Pattern::Prefix(want) => text.starts_with(want),
            Pattern::Substring(want) => want.is_empty() || text.windows(want.len()).any(|part| part == want),
        }
    }
}

impl TagExpression {
    /// Reads an expression; `None` for one that names a kind that does not exist.
    pub fn parse(text: &str) -> Option<TagExpression> {
        let (kinds, rest) = text.split_once('/').unwrap_or(("", text));
        let mut expression = TagExpression {
            kinds: KindSet::NONE,
            areas: false,
            keys: Vec::new(),
            values: None,
            negated: false,
        };
        for kind in kinds.chars() {
            match kind {
                'n' => expression.kinds.insert(Kind::Node),
                'w' => expression.kinds.insert(Kind::Way),
                'r' => expression.kinds.insert(Kind::Relation),
                'a' => expression.areas = true,
                _ => return None,
            }
        }
        if kinds.is_empty() {
            expression.kinds = KindSet::ALL;
        }
        let (key, values) = match rest.split_once('=') {
            Some((key, values)) => (key, Some(values)),
            None => (rest, None),
        };
        expression.negated = values.is_some() && key.ends_with('!');
        let key = if expression.negated {
            &key[..key.len() - 1]
        } else {
            key
        };
        expression.keys = Pattern::list(key);
        expression.values = values.map(Pattern::list);
        Some(expression)
    }

    /// Whether the element is of a kind asked for and has a tag asked for.
    pub fn matches(&self, element: &Element) -> bool {
        let kind = self.kinds.contains(element.kind()) || (self.areas && is_area(element));
        kind && element.tags.iter().any(|(key, value)| {
            self.keys.iter().any(|pattern| pattern.matches(key))
                && self
                    .values
                    .as_ref()
                    .is_none_or(|values| values.iter().any(|pattern| pattern.matches(value)) != self.negated)
        })
    }
}

fn is_area(element: &Element) -> bool {
    match element.kind() {
        Kind::Node => false,
        Kind::Way => element.refs.len() >= 4 && element.refs.first() == element.refs.last(),
        Kind::Relation => element
            .tag("type")
            .is_some_and(|value| *value == "multipolygon" || *value == "boundary"),
    }
}
