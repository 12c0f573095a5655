//! The strict form of tag expressions: nothing is guessed, and everything can be written.
//!
//! ```text
//! expression = [ letters "/" ] condition { "&" condition }
//! condition  = list                      some tag has one of these keys
//!            | "!" list                  no tag has one of these keys
//!            | list "=" list             some tag has one of the keys with one of the values
//!            | list "!=" list            some tag has one of the keys with another value
//!            | list "~" regex            some tag has one of the keys with a value in which the regex is found
//!            | list "!~" regex           some tag has one of the keys with a value in which it is not
//! list       = word { "," word }
//! word       = characters, "*" for any number of any, "\" before a character that is meant as it is,
//!              or text in double quotes, in which only \" and \\ are special
//! regex      = a regular expression up to the next "&", or in double quotes up to the closing one
//! ```
//!
//! A star stands for anything at any place of a word: `*y` is an ending, `a*b` a beginning and an ending.
//! Spaces around words are left out unless quoted or escaped. A regular expression is of the syntax of the
//! `regex` crate; `^` and `$` tie it to the ends, `(?i)` makes it ignore case.

use osmill_engine::{Error, Result};
use osmill_model::KindSet;
use regex::bytes::Regex;

use super::{Pattern, TagExpression, Term, kinds_of};

/// Conditions an expression can have: their fulfilment is kept in the bits of a word.
const MAX_TERMS: usize = 64;

struct Parser<'t> {
    text: &'t str,
    rest: &'t str,
}

/// A word: literal pieces with stars between them.
#[derive(Default)]
struct Word {
    /// `None` is a star.
    pieces: Vec<Option<String>>,
}

impl Word {
    fn push(&mut self, text: &str) {
        match self.pieces.last_mut() {
            Some(Some(last)) => last.push_str(text),
            _ => self.pieces.push(Some(text.to_owned())),
        }
    }

    fn pattern(mut self) -> Pattern {
        if self.pieces.iter().all(Option::is_some) {
            let word = self.pieces.pop().flatten().unwrap_or_default();
            return Pattern::Equal(word.into_bytes());
        }
        let before = matches!(self.pieces.first(), Some(None));
        let after = matches!(self.pieces.last(), Some(None));
        let words: Vec<_> = self
            .pieces
            .into_iter()
            .flatten()
            .map(String::into_bytes)
            .collect();
        match words.is_empty() {
            true => Pattern::Any,
            false => Pattern::Glob(words, before, after),
        }
    }
}

impl Parser<'_> {
    fn fail<T>(&self, what: &str) -> Result<T> {
        let at = self.text.len() - self.rest.len() + 1;
        Err(Error::Usage(format!(
            "'{}' is not a strict tag expression: {what} at character {at}",
            self.text
        )))
    }

    fn spaces(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn take(&mut self, sign: &str) -> bool {
        match self.rest.strip_prefix(sign) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Text up to the closing quote, the opening one being read. A backslash stands before `"` and `\` only.
    fn quoted(&mut self) -> Result<String> {
        let mut text = String::new();
        let mut chars = self.rest.chars();
        while let Some(c) = chars.next() {
            match c {
                '"' => {
                    self.rest = chars.as_str();
                    return Ok(text);
                }
                '\\' if chars.as_str().starts_with(['"', '\\']) => text.extend(chars.next()),
                c => text.push(c),
            }
        }
        self.fail("a closing quote is missing for the one before the text")
    }

    fn word(&mut self) -> Result<Pattern> {
        self.spaces();
        let mut word = Word::default();
        // Unquoted spaces, which count only if something follows them.
        let mut spaces = String::new();
        let mut any = false;
        while let Some(c) = self.rest.chars().next() {
            let after = &self.rest[c.len_utf8()..];
            if matches!(c, ',' | '=' | '~' | '&') || c == '!' && after.starts_with(['=', '~']) {
                break;
            }
            self.rest = after;
            if c.is_whitespace() {
                spaces.push(c);
                continue;
            }
            if any && !spaces.is_empty() {
                word.push(&spaces);
            }
            spaces.clear();
            any = true;
            match c {
                '"' => word.push(&self.quoted()?),
                '\\' => match self.rest.chars().next() {
                    Some(c) => {
                        self.rest = &self.rest[c.len_utf8()..];
                        word.push(c.encode_utf8(&mut [0; 4]));
                    }
                    None => return self.fail("nothing follows the backslash"),
                },
                '*' => word.pieces.push(None),
                c => word.push(c.encode_utf8(&mut [0; 4])),
            }
        }
        if !any {
            return self.fail("a word is missing (write \"\" for an empty one)");
        }
        Ok(word.pattern())
    }

    fn list(&mut self) -> Result<Pattern> {
        let mut words = vec![self.word()?];
        while self.take(",") {
            words.push(self.word()?);
        }
        if words.iter().all(|word| matches!(word, Pattern::Equal(_))) && words.len() > 1 {
            let words = words.into_iter().filter_map(|word| match word {
                Pattern::Equal(word) => Some(word),
                _ => None,
            });
            return Ok(Pattern::OneOf(words.collect()));
        }
        Ok(match words.len() {
            1 => words.remove(0),
            _ => Pattern::Either(words),
        })
    }

    fn regex(&mut self) -> Result<Pattern> {
        self.spaces();
        let text = match self.take("\"") {
            true => self.quoted()?,
            false => {
                let end = self.rest.find('&').unwrap_or(self.rest.len());
                let (text, rest) = self.rest.split_at(end);
                self.rest = rest;
                text.trim_end().to_owned()
            }
        };
        match Regex::new(&text) {
            Ok(regex) => Ok(Pattern::Regex(Box::new(regex))),
            Err(error) => self.fail(&format!("the regular expression does not hold ({error})")),
        }
    }

    fn term(&mut self) -> Result<Term> {
        self.spaces();
        let absent = self.take("!");
        let key = self.list()?;
        let mut term = Term {
            key,
            value: Pattern::Any,
            differs: false,
            absent,
        };
        if absent {
            return Ok(term);
        }
        if self.take("!=") || self.take("!~") {
            term.differs = true;
            let before = self.text.len() - self.rest.len() - 1;
            term.value = match self.text.as_bytes()[before] {
                b'~' => self.regex()?,
                _ => self.list()?,
            };
        } else if self.take("=") {
            term.value = self.list()?;
        } else if self.take("~") {
            term.value = self.regex()?;
        }
        Ok(term)
    }
}

impl TagExpression {
    /// Reads an expression in the strict form; see the module's documentation.
    pub fn parse_strict(text: &str) -> Result<TagExpression> {
        let prefix = text.split_once('/').and_then(|(letters, rest)| {
            let (kinds, areas) = kinds_of(letters.trim())?;
            Some((kinds, areas, rest))
        });
        let (kinds, areas, rest) = prefix.unwrap_or((KindSet::ALL, false, text));
        let mut parser = Parser { text, rest };
        let mut terms = vec![parser.term()?];
        loop {
            parser.spaces();
            if parser.rest.is_empty() {
                break;
            }
            if !parser.take("&") {
                return parser.fail("'&' or the end is expected");
            }
            terms.push(parser.term()?);
            if terms.len() > MAX_TERMS {
                return parser.fail("there are more than 64 conditions");
            }
        }
        Ok(TagExpression { kinds, areas, terms })
    }
}

#[cfg(test)]
mod tests {
    use osmill_model::{Kind, Metadata, Tag};
    use osmill_pbf::{Block, BlockBuilder};

    use crate::filter::{BlockMatcher, TagFilter};

    fn matches(expression: &str, tags: &[(&str, &str)]) -> bool {
        let filter = TagFilter::parse_strict(&[expression]).unwrap();
        let mut builder = BlockBuilder::default();
        let tags = tags.iter().map(|(key, value)| Tag {
            key: key.as_bytes(),
            value: value.as_bytes(),
        });
        builder.add_node(1, None, tags, &Metadata::default());
        let mut bytes = Vec::new();
        builder.finish(&mut bytes);
        let block = Block::parse(bytes).unwrap();
        let mut matcher = BlockMatcher::new(&filter);
        let may = matcher.begin(&block).unwrap();
        let element = block.elements().next().unwrap().unwrap();
        assert_eq!(element.kind(), Kind::Node);
        let found = matcher.matches(&block, &element).unwrap();
        assert!(may || !found, "the block was given up, but an element matches");
        found
    }

    #[test]
    fn words_stars_and_quotes() {
        assert!(matches("n/name=*y", &[("name", "xy")]) && !matches("n/name=*y", &[("name", "xyz")]));
        assert!(matches("name=a*c", &[("name", "abc")]) && !matches("name=a*c", &[("name", "abcd")]));
        assert!(matches("name=a*a", &[("name", "aa")]) && !matches("name=a*a", &[("name", "a")]));
        assert!(matches("name=*b*", &[("name", "abc")]) && matches("*:de=x", &[("name:de", "x")]));
        assert!(matches(r#"name="a,b=c*""#, &[("name", "a,b=c*")]));
        assert!(!matches(r#"name="a,b=c*""#, &[("name", "a,b=cd")]));
        assert!(matches(r"name=a\,b\=c\*", &[("name", "a,b=c*")]));
        assert!(matches("name = a b , c ", &[("name", "a b")]) && matches("name=a b,c", &[("name", "c")]));
        assert!(matches(r#"name="""#, &[("name", "")]) && !matches("w/name", &[("name", "x")]));
        assert!(matches(r#"a\/b=1"#, &[("a/b", "1")]) && matches(r#"x/y"#, &[("x/y", "1")]));
    }

    #[test]
    fn conditions_together() {
        let both = [("highway", "primary"), ("name", "Rue X")];
        assert!(matches("highway=primary & name~^Rue", &both));
        assert!(!matches("highway=primary & name~^rue", &both) && matches("name~(?i)^rue", &both));
        assert!(!matches("highway & !name", &both) && matches("highway & !tunnel,bridge", &both));
        assert!(matches("highway!=secondary", &both) && !matches("highway!=primary", &both));
        assert!(matches("highway !~ second", &both) && !matches(r#"highway!~"^p""#, &both));
        assert!(matches("!name", &[]) && !matches("!name", &both));
        assert!(matches(r#"name~"a&b" & !x"#, &[("name", "a&b")]));
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for bad in [
            "", "n/", "a=", "=x", "a,", "a & ", "a=\"x", "a~(", "a\\", "a=b=c", "!a=b", "a~b~c & ",
        ] {
            assert!(TagFilter::parse_strict(&[bad]).is_err(), "{bad}");
        }
    }
}
