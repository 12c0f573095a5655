//! Tag expressions.
//!
//! As `osmium` has them: `[nwra]/KEY`, `[nwra]/KEY=VALUE`, `[nwra]/KEY!=VALUE`. The letters in front of the
//! slash restrict the kinds; without them, or with nothing before the slash, all kinds are meant. `a` means
//! areas: closed ways of four or more references, and relations of type multipolygon or boundary. KEY and
//! VALUE are
//!
//! * a word, which has to be equal;
//! * several words separated by commas, of which one has to be equal;
//! * `*`, which everything matches;
//! * `word*`, a beginning; `*word` or `*word*`, a part anywhere.
//!
//! [`TagExpression::parse_strict`] reads a richer form; see the `strict` module.
//!
//! # How a file is matched
//!
//! A [`BlockMatcher`] looks at the strings of a block first: which of them can be a key of some expression.
//! Most blocks have none, and need no look at their elements. In others only tags with such a key are compared.

mod strict;

use std::collections::HashSet;

use osmill_engine::{Error, KernelResult, Result};
use osmill_model::{Kind, KindSet, Tag};
use osmill_pbf::wire::Varints;
use osmill_pbf::{Block, Element};
use regex::bytes::Regex;

/// What a key or a value is compared with.
#[derive(Debug, Clone)]
enum Pattern {
    Any,
    Equal(Vec<u8>),
    OneOf(Vec<Vec<u8>>),
    Prefix(Vec<u8>),
    Part(Vec<u8>),
    /// Words with anything between them; the flags tell whether anything may stand before and after, too.
    Glob(Vec<Vec<u8>>, bool, bool),
    Either(Vec<Pattern>),
    Regex(Box<Regex>),
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

    /// Whether it is worth asking of every string of a block.
    fn is_cheap(&self) -> bool {
        matches!(self, Pattern::Equal(_) | Pattern::OneOf(_) | Pattern::Prefix(_))
    }

    fn matches(&self, text: &[u8]) -> bool {
        match self {
            Pattern::Any => true,
            Pattern::Equal(word) => text == &word[..],
            Pattern::OneOf(words) => words.iter().any(|word| text == &word[..]),
            Pattern::Prefix(prefix) => text.starts_with(prefix),
            Pattern::Part(part) => find(text, part).is_some(),
            Pattern::Glob(words, before, after) => glob(text, words, *before, *after),
            Pattern::Either(patterns) => patterns.iter().any(|pattern| pattern.matches(text)),
            Pattern::Regex(regex) => regex.is_match(text),
        }
    }
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    if part.is_empty() {
        return Some(0);
    }
    text.windows(part.len()).position(|window| window == part)
}

/// Whether `words` follow one another in `text`, each as early as possible, the last one at the end.
fn glob(mut text: &[u8], words: &[Vec<u8>], before: bool, after: bool) -> bool {
    let Some((last, words)) = words.split_last() else {
        return before || after || text.is_empty();
    };
    let mut floating = before;
    for word in words {
        let at = match floating {
            true => find(text, word),
            false => text.starts_with(word).then_some(0),
        };
        let Some(at) = at else { return false };
        text = &text[at + word.len()..];
        floating = true;
    }
    match (floating, after) {
        (false, false) => text == &last[..],
        (false, true) => text.starts_with(last),
        (true, false) => text.ends_with(last),
        (true, true) => find(text, last).is_some(),
    }
}

/// What a tag of an element has to be like.
#[derive(Debug, Clone)]
struct Term {
    key: Pattern,
    value: Pattern,
    /// Whether the value must not match.
    differs: bool,
    /// Whether no tag may be like this.
    absent: bool,
}

impl Term {
    fn matches(&self, tag: Tag<'_>) -> bool {
        self.key.matches(tag.key) && self.value.matches(tag.value) != self.differs
    }
}

/// One expression.
#[derive(Debug, Clone)]
pub struct TagExpression {
    kinds: KindSet,
    /// Whether ways and relations that can be areas are meant besides.
    areas: bool,
    /// All of these have to hold; one at least, 64 at most.
    terms: Vec<Term>,
}

/// The kinds that letters before a slash name, and whether areas are among them. `None` if another letter is
/// among them.
fn kinds_of(letters: &str) -> Option<(KindSet, bool)> {
    let kind_of = |c: char| Kind::ALL.into_iter().find(|kind| kind.letter() == c);
    if letters.is_empty() {
        return Some((KindSet::ALL, false));
    }
    if !letters.chars().all(|c| c == 'a' || kind_of(c).is_some()) {
        return None;
    }
    Some((
        letters.chars().filter_map(kind_of).collect(),
        letters.contains('a'),
    ))
}

impl TagExpression {
    /// Reads an expression as osmium does; see the module's documentation. Where osmium refuses letters before
    /// a slash, the slash is taken to be a part of the expression.
    pub fn parse(text: &str) -> Result<TagExpression> {
        let (kinds, areas, tag) = match text.split_once('/') {
            Some((letters, tag)) => match kinds_of(letters) {
                Some((kinds, areas)) => (kinds, areas, tag),
                None => (KindSet::ALL, false, text),
            },
            None => (KindSet::ALL, false, text),
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
            areas,
            terms: vec![Term {
                key: Pattern::parse(key),
                value: Pattern::parse(value),
                differs,
                absent: false,
            }],
        })
    }

    /// Whether one of the expression's conditions holds for this tag of an element of this kind.
    pub fn matches(&self, kind: Kind, tag: Tag<'_>) -> bool {
        self.may_match(kind) && self.terms.iter().any(|term| !term.absent && term.matches(tag))
    }

    fn may_match(&self, kind: Kind) -> bool {
        self.kinds.contains(kind) || self.areas && kind != Kind::Node
    }

    /// Whether an element without tags can match.
    fn needs_no_tag(&self) -> bool {
        self.terms.iter().all(|term| term.absent)
    }
}

/// Expressions of which one has to match. None at all match everything.
#[derive(Debug, Clone, Default)]
pub struct TagFilter {
    expressions: Vec<TagExpression>,
}

impl TagFilter {
    /// Reads expressions as osmium does.
    pub fn parse<S: AsRef<str>>(texts: &[S]) -> Result<TagFilter> {
        TagFilter::parse_with(texts, TagExpression::parse)
    }

    /// Reads expressions in the strict form.
    pub fn parse_strict<S: AsRef<str>>(texts: &[S]) -> Result<TagFilter> {
        TagFilter::parse_with(texts, TagExpression::parse_strict)
    }

    fn parse_with<S: AsRef<str>>(
        texts: &[S],
        parse: impl Fn(&str) -> Result<TagExpression>,
    ) -> Result<TagFilter> {
        let expressions = texts
            .iter()
            .map(|text| parse(text.as_ref()))
            .collect::<Result<_>>()?;
        Ok(TagFilter { expressions })
    }

    /// Whether there is no expression.
    pub fn is_empty(&self) -> bool {
        self.expressions.is_empty()
    }

    /// Whether some expression is about elements of this kind.
    pub fn asks(&self, kind: Kind) -> bool {
        self.expressions.iter().any(|e| e.may_match(kind))
    }

    /// Whether an element without tags can match.
    pub fn needs_no_tag(&self) -> bool {
        self.expressions.iter().any(TagExpression::needs_no_tag)
    }

    /// Whether some expression has a condition that the tag fulfils, or there is none.
    pub fn matches(&self, kind: Kind, tag: Tag<'_>) -> bool {
        self.expressions.is_empty() || self.expressions.iter().any(|e| e.matches(kind, tag))
    }
}

/// Matches the elements of one block after the other against a filter.
#[derive(Debug)]
pub struct BlockMatcher<'f> {
    filter: &'f TagFilter,
    /// Keys that some expression names as they are.
    words: HashSet<&'f [u8]>,
    /// Other patterns of keys.
    patterns: Vec<&'f Pattern>,
    /// For each string of the block whether it can be a key.
    keys: Vec<bool>,
    /// Values that some expression asks for where all its keys are there.
    values: Vec<&'f Pattern>,
    /// For each expression which of its terms some tag of the element has fulfilled.
    fulfilled: Vec<u64>,
    needs_no_tag: bool,
}

impl<'f> BlockMatcher<'f> {
    /// A matcher of this filter.
    pub fn new(filter: &'f TagFilter) -> Self {
        let mut words = HashSet::new();
        let mut patterns = Vec::new();
        for term in filter.expressions.iter().flat_map(|e| &e.terms) {
            match &term.key {
                Pattern::Equal(word) => {
                    words.insert(&word[..]);
                }
                Pattern::OneOf(list) => words.extend(list.iter().map(|word| &word[..])),
                other => patterns.push(other),
            }
        }
        BlockMatcher {
            filter,
            words,
            patterns,
            keys: Vec::new(),
            values: Vec::new(),
            fulfilled: Vec::new(),
            needs_no_tag: filter.needs_no_tag(),
        }
    }

    /// Words, or expressions, up to which every string is compared with each of them.
    const FEW: usize = 6;

    /// Turns to a block; whether any of its elements can match. O(strings).
    pub fn begin(&mut self, block: &Block) -> KernelResult<bool> {
        let count = block.string_count()?;
        let mut any = self.needs_no_tag;
        self.keys.clear();
        // A few words are compared faster than hashed.
        let few: Option<Vec<&[u8]>> =
            (self.words.len() <= Self::FEW).then(|| self.words.iter().copied().collect());
        for index in 0..count as u64 {
            let text = block.string(index).map_err(osmill_pbf::BlockError::from)?;
            let word = match &few {
                Some(few) => few.contains(&text),
                None => self.words.contains(text),
            };
            let key = word || self.patterns.iter().any(|pattern| pattern.matches(text));
            self.keys.push(key);
            any |= key;
        }
        Ok(any && self.has_values(block, count)?)
    }

    /// Whether some expression finds all the values that it asks for among the strings of the block.
    fn has_values(&mut self, block: &Block, count: usize) -> KernelResult<bool> {
        if self.filter.expressions.len() > Self::FEW {
            return Ok(true);
        }
        for expression in &self.filter.expressions {
            let asked = expression
                .terms
                .iter()
                .filter(|term| !term.absent && !term.differs);
            self.values.clear();
            self.values
                .extend(asked.map(|term| &term.value).filter(|value| value.is_cheap()));
            for index in 0..count as u64 {
                if self.values.is_empty() {
                    break;
                }
                let text = block.string(index).map_err(osmill_pbf::BlockError::from)?;
                self.values.retain(|value| !value.matches(text));
            }
            if self.values.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether an element with these keys can match. Unreadable ones can, so that they are looked at.
    #[inline]
    pub fn may_match_keys(&self, keys: Varints<'_>) -> bool {
        if self.needs_no_tag {
            return true;
        }
        let mut keys = keys;
        loop {
            match keys.try_next() {
                Ok(None) => return false,
                Ok(Some(key)) if self.keys.get(key as usize) == Some(&false) => {}
                _ => return true,
            }
        }
    }

    /// Whether an element of the block matches, given its kind, its tags as pairs of string numbers, and a
    /// way to tell whether it can be an area.
    pub fn matches_ids(
        &mut self,
        block: &Block,
        kind: Kind,
        mut next: impl FnMut() -> KernelResult<Option<(u64, u64)>>,
        mut is_area: impl FnMut() -> KernelResult<bool>,
    ) -> KernelResult<bool> {
        let expressions = &self.filter.expressions;
        let mut area = None;
        let mut any = false;
        self.fulfilled.clear();
        self.fulfilled.resize(expressions.len(), 0);
        while let Some((key, value)) = next()? {
            match self.keys.get(key as usize) {
                Some(false) => continue,
                Some(true) => any = true,
                // The error that a number beyond the table deserves.
                None => {}
            }
            let string = |index| block.string(index).map_err(osmill_pbf::BlockError::from);
            let tag = Tag {
                key: string(key)?,
                value: string(value)?,
            };
            for (expression, fulfilled) in expressions.iter().zip(&mut self.fulfilled) {
                if !expression.may_match(kind) {
                    continue;
                }
                for (i, term) in expression.terms.iter().enumerate() {
                    if *fulfilled >> i & 1 == 0 && term.matches(tag) {
                        *fulfilled |= 1 << i;
                    }
                }
            }
        }
        for (expression, fulfilled) in expressions.iter().zip(&self.fulfilled) {
            if !any && !expression.needs_no_tag() || !expression.may_match(kind) {
                continue;
            }
            let mut terms = expression.terms.iter().enumerate();
            if !terms.all(|(i, term)| (fulfilled >> i & 1 == 1) != term.absent) {
                continue;
            }
            if expression.kinds.contains(kind) {
                return Ok(true);
            }
            let area = match area {
                Some(known) => known,
                None => *area.insert(is_area()?),
            };
            if area {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether an element of the block matches.
    pub fn matches(&mut self, block: &Block, element: &Element<'_>) -> KernelResult<bool> {
        let mut tags = element.tags();
        self.matches_ids(
            block,
            element.kind(),
            || Ok(tags.try_next_ids()?),
            || can_be_area(element),
        )
    }
}

/// Whether an element can be an area: a closed way of four or more references, or a relation of type
/// multipolygon or boundary.
pub fn can_be_area(element: &Element<'_>) -> KernelResult<bool> {
    Ok(match element {
        Element::Node(_) => false,
        Element::Way(way) => {
            let (mut first, mut last, mut count) = (None, None, 0);
            for id in way.refs() {
                let id = id.map_err(osmill_pbf::BlockError::from)?;
                first = first.or(Some(id));
                last = Some(id);
                count += 1;
            }
            count >= 4 && first == last
        }
        Element::Relation(relation) => {
            for tag in relation.tags() {
                let tag = tag?;
                if tag.key == b"type" {
                    return Ok(tag.value == b"multipolygon" || tag.value == b"boundary");
                }
            }
            false
        }
    })
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
