//! The lexical level of XML: tags, attributes, entities, over a slice of the file.
//!
//! A slice may end anywhere. What is cut off makes a function stop with [`Stop::More`]; the caller begins
//! again at the last place where it was complete, with more bytes.
//!
//! What writers of OSM data put down, ` name="value"` with nothing in the value to be rewritten, is read eight
//! bytes at a time: [`Cursor::plain_attribute`], and [`Cursor::plain_tag`] and its like for the small
//! elements that files consist of. These give up without moving where anything else stands, and the general way takes over.

use super::value::Value;
use crate::error::{Bad, Problem, Stop, shortened};

/// A place in a slice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'a> {
    pub data: &'a [u8],
    pub at: usize,
}

/// The name of an attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name<'a> {
    pub text: &'a [u8],
    /// [`code`] of it.
    pub code: u128,
}

impl<'a> Name<'a> {
    fn new(text: &'a [u8]) -> Self {
        Name {
            text,
            code: code(text),
        }
    }
}

/// A name of up to 16 bytes as a number, to be compared at once; longer ones are all alike.
pub(crate) const fn code(name: &[u8]) -> u128 {
    if name.len() > 16 {
        return u128::MAX;
    }
    let mut code = 0;
    let mut at = 0;
    while at < name.len() {
        code |= (name[at] as u128) << (8 * at);
        at += 1;
    }
    code
}

/// What comes next inside a start tag.
#[derive(Debug)]
pub(crate) enum Attribute<'a> {
    /// `name="value"`.
    Pair(Name<'a>, Value<'a>),
    /// `>`.
    Open,
    /// `/>`.
    Empty,
}

/// What comes next in the content of an element.
#[derive(Debug)]
pub(crate) enum Content<'a> {
    /// `<name`, read up to the end of the name.
    Start(&'a [u8]),
    /// `</name>`.
    End(&'a [u8]),
    /// Text other than white space, or a CDATA section; read over.
    Text,
}

/// Bytes that end a name.
const NAME_END: [bool; 256] = {
    let mut table = [false; 256];
    let ends = b" \t\r\n=/><\"'&";
    let mut i = 0;
    while i < ends.len() {
        table[ends[i] as usize] = true;
        i += 1;
    }
    table
};

/// Bits before the first byte of a word that is 0.
#[inline]
fn first_zero(word: u64) -> Option<u32> {
    lowest(zeros(word))
}

/// Bits before the first byte of a word that a value cannot have, or that is rewritten in it: the quote, `<`, `&`, and
/// control characters.
#[inline]
fn first_special(word: u64) -> Option<u32> {
    let is = |byte: u8| zeros(word ^ u64::from_le_bytes([byte; 8]));
    let control = word.wrapping_sub(u64::from_le_bytes([b' '; 8])) & !word;
    lowest(is(b'"') | is(b'<') | is(b'&') | control)
}

/// Sets the uppermost bit of the first byte that is 0, and clears that of all bytes before it.
#[inline]
fn zeros(word: u64) -> u64 {
    word.wrapping_sub(u64::from_le_bytes([1; 8])) & !word
}

/// Bits before the first byte whose uppermost bit is set.
#[inline]
fn lowest(word: u64) -> Option<u32> {
    let marks = word & u64::from_le_bytes([0x80; 8]);
    (marks != 0).then(|| marks.trailing_zeros() & !7)
}

#[inline]
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

impl<'a> Cursor<'a> {
    #[inline]
    fn peek(&self) -> Result<u8, Stop> {
        self.data.get(self.at).copied().ok_or(Stop::More)
    }

    #[inline]
    pub fn skip_space(&mut self) {
        while self.data.get(self.at).copied().is_some_and(is_space) {
            self.at += 1;
        }
    }

    #[inline]
    fn name(&mut self) -> Result<&'a [u8], Stop> {
        let start = self.at;
        loop {
            match self.data.get(self.at) {
                Some(byte) if NAME_END[*byte as usize] => break,
                Some(_) => self.at += 1,
                None => return Err(Stop::More),
            }
        }
        if start == self.at {
            return Err(self.expected("a name"));
        }
        Ok(&self.data[start..self.at])
    }

    /// The error that something else should stand here.
    #[cold]
    pub fn expected(&self, expected: &'static str) -> Stop {
        let rest = &self.data[self.at.min(self.data.len())..];
        let found = format!("'{}'", shortened(&rest[..rest.len().min(12)]));
        Bad::stop(self.at, Problem::Expected { expected, found })
    }

    /// Reads on behind the next `end`; `from` bytes further on at the earliest.
    fn skip_past(&mut self, from: usize, end: &[u8]) -> Result<(), Stop> {
        let rest = self.data.get(self.at + from..).ok_or(Stop::More)?;
        let found = memchr::memmem::find(rest, end).ok_or(Stop::More)?;
        self.at += from + found + end.len();
        Ok(())
    }

    /// The next tag or text of an element's content. Comments and processing instructions are passed over.
    #[inline]
    pub fn content(&mut self) -> Result<Content<'a>, Stop> {
        loop {
            self.skip_space();
            if self.peek()? != b'<' {
                let rest = &self.data[self.at..];
                self.at += memchr::memchr(b'<', rest).ok_or(Stop::More)?;
                return Ok(Content::Text);
            }
            match *self.data.get(self.at + 1).ok_or(Stop::More)? {
                b'/' => {
                    self.at += 2;
                    let name = self.name()?;
                    self.skip_space();
                    if self.peek()? != b'>' {
                        return Err(self.expected("'>'"));
                    }
                    self.at += 1;
                    return Ok(Content::End(name));
                }
                b'!' | b'?' => {
                    if self.markup()? {
                        return Ok(Content::Text);
                    }
                }
                _ => {
                    self.at += 1;
                    return Ok(Content::Start(self.name()?));
                }
            }
        }
    }

    /// Passes over a comment, processing instruction, CDATA section or document type. Gives whether it was
    /// a CDATA section.
    pub fn markup(&mut self) -> Result<bool, Stop> {
        let rest = &self.data[self.at..];
        let begins = |word: &[u8]| match rest.get(..word.len()) {
            Some(start) => Ok(start == word),
            // A start of the word that is cut off may become the word.
            None if word.starts_with(rest) => Err(Stop::More),
            None => Ok(false),
        };
        if begins(b"<?")? {
            self.skip_past(2, b"?>")?;
        } else if begins(b"<!--")? {
            self.skip_past(4, b"-->")?;
        } else if begins(b"<![CDATA[")? {
            self.skip_past(9, b"]]>")?;
            return Ok(true);
        } else if begins(b"<!DOCTYPE")? {
            self.document_type()?;
        } else {
            return Err(self.expected("a tag"));
        }
        Ok(false)
    }

    /// Passes over a document type with its internal subset. Entities defined in it are not known later.
    fn document_type(&mut self) -> Result<(), Stop> {
        let mut brackets = 0u32;
        let mut at = self.at;
        loop {
            match *self.data.get(at).ok_or(Stop::More)? {
                b'[' => brackets += 1,
                b']' => brackets = brackets.saturating_sub(1),
                b'>' if brackets == 0 => break,
                quote @ (b'"' | b'\'') => {
                    let rest = &self.data[at + 1..];
                    at += 1 + memchr::memchr(quote, rest).ok_or(Stop::More)?;
                }
                _ => {}
            }
            at += 1;
        }
        self.at = at + 1;
        Ok(())
    }

    /// ` name="value"`, the name of up to 15 letters, `_` or other bytes beyond `@`, all of which may stand in a
    /// name, and the value plain.
    #[inline(always)]
    fn plain_attribute(&mut self) -> Option<(Name<'a>, Value<'a>)> {
        let rest = self.data.get(self.at..)?;
        let start = rest.strip_prefix(b" ")?.first_chunk::<16>()?;
        let word = u128::from_le_bytes(*start);
        let bits = first_zero(word as u64 ^ u64::from_le_bytes([b'='; 8]))
            .or_else(|| Some(64 + first_zero((word >> 64) as u64 ^ u64::from_le_bytes([b'='; 8]))?))?;
        // A name has at least a byte, and all of its bytes have one of the upper two bits.
        let mask = (1u128 << bits) - 1;
        const BIT: u128 = u128::from_le_bytes([0x40; 16]);
        if bits == 0 || (word | word >> 1) & BIT & mask != BIT & mask {
            return None;
        }
        let len = bits as usize / 8;
        let value = self.attempt(|c| {
            c.at += len + 2;
            c.plain_value()
        })?;
        let name = Name {
            text: &rest[1..1 + len],
            code: word & mask,
        };
        Some((name, value))
    }

    /// `"value"`, in which nothing has to be rewritten.
    #[inline(always)]
    fn plain_value(&mut self) -> Option<Value<'a>> {
        let text = self.data.get(self.at..)?.strip_prefix(b"\"")?;
        let mut len = 0;
        loop {
            let word = u64::from_le_bytes(*text.get(len..)?.first_chunk::<8>()?);
            match first_special(word) {
                Some(bits) => {
                    len += bits as usize / 8;
                    break;
                }
                None => len += 8,
            }
        }
        if text[len] != b'"' {
            return None;
        }
        let value = Value {
            text: &text[..len],
            at: self.at + 1,
            is_plain: true,
        };
        self.at += len + 2;
        Some(value)
    }

    /// What `read` finds, or nothing, and then the cursor stays where it is.
    #[inline(always)]
    fn attempt<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let mut next = *self;
        let found = read(&mut next)?;
        *self = next;
        Some(found)
    }

    #[inline(always)]
    fn literal<const N: usize>(&mut self, text: &[u8; N]) -> Option<()> {
        (self.data.get(self.at..)?.first_chunk()? == text).then(|| self.at += N)
    }

    /// `<nd ref="value"/>`
    #[inline]
    pub fn plain_reference(&mut self) -> Option<Value<'a>> {
        self.attempt(|c| {
            c.literal(b"<nd ref=")?;
            let node = c.plain_value()?;
            c.literal(b"/>")?;
            Some(node)
        })
    }

    /// `<tag k="key" v="value"/>`
    #[inline]
    pub fn plain_tag(&mut self) -> Option<[Value<'a>; 2]> {
        self.attempt(|c| {
            c.literal(b"<tag k=")?;
            let key = c.plain_value()?;
            c.literal(b" v=")?;
            let value = c.plain_value()?;
            c.literal(b"/>")?;
            Some([key, value])
        })
    }

    /// `<member type="kind" ref="id" role="role"/>`
    #[inline]
    pub fn plain_member(&mut self) -> Option<[Value<'a>; 3]> {
        self.attempt(|c| {
            c.literal(b"<member type=")?;
            let kind = c.plain_value()?;
            c.literal(b" ref=")?;
            let id = c.plain_value()?;
            c.literal(b" role=")?;
            let role = c.plain_value()?;
            c.literal(b"/>")?;
            Some([kind, id, role])
        })
    }

    /// The next attribute of a start tag, or its end.
    fn any_attribute(&mut self) -> Result<Attribute<'a>, Stop> {
        self.skip_space();
        match self.peek()? {
            b'>' => {
                self.at += 1;
                return Ok(Attribute::Open);
            }
            b'/' => {
                if *self.data.get(self.at + 1).ok_or(Stop::More)? != b'>' {
                    return Err(self.expected("'/>'"));
                }
                self.at += 2;
                return Ok(Attribute::Empty);
            }
            _ => {}
        }
        let name = self.name()?;
        self.skip_space();
        if self.peek()? != b'=' {
            return Err(self.expected("'=' behind the name of an attribute"));
        }
        self.at += 1;
        self.skip_space();
        let quote = self.peek()?;
        if quote != b'"' && quote != b'\'' {
            return Err(self.expected("a quoted value"));
        }
        self.at += 1;
        let start = self.at;
        let len = memchr::memchr2(quote, b'<', &self.data[start..]).ok_or(Stop::More)?;
        self.at += len;
        if self.data[self.at] == b'<' {
            // The quote is missing, or the text was not escaped: either way the rest would be misread.
            return Err(self.expected("the closing quote of a value ('<' inside is written &lt;)"));
        }
        self.at += 1;
        let value = Value {
            text: &self.data[start..start + len],
            at: start,
            is_plain: false,
        };
        Ok(Attribute::Pair(Name::new(name), value))
    }

    /// Calls `each` with the attributes that are left; gives whether the element is open.
    #[inline]
    pub fn attributes(
        &mut self,
        mut each: impl FnMut(Name<'a>, Value<'a>) -> Result<(), Stop>,
    ) -> Result<bool, Stop> {
        loop {
            let (name, value) = match self.plain_attribute() {
                Some(pair) => pair,
                None => match self.any_attribute()? {
                    Attribute::Pair(name, value) => (name, value),
                    Attribute::Open => return Ok(true),
                    Attribute::Empty => return Ok(false),
                },
            };
            each(name, value)?;
        }
    }

    /// Passes over the attributes that are left, and the content of the element if it is open.
    pub fn skip_element(&mut self) -> Result<(), Stop> {
        let is_open = self.skip_attributes()?;
        self.skip_content_if(is_open)
    }

    fn skip_attributes(&mut self) -> Result<bool, Stop> {
        self.attributes(|_, _| Ok(()))
    }

    /// Passes over the content of an element, its end tag included, if it is open.
    #[inline]
    pub fn skip_content_if(&mut self, is_open: bool) -> Result<(), Stop> {
        if is_open { self.skip_content() } else { Ok(()) }
    }

    /// Passes over the content of an open element, its end tag included.
    fn skip_content(&mut self) -> Result<(), Stop> {
        let mut depth = 1u64;
        loop {
            match self.content()? {
                Content::Start(_) => depth += u64::from(self.skip_attributes()?),
                Content::End(_) => {
                    depth -= 1;
                    if depth == 0 {
                        return Ok(());
                    }
                }
                Content::Text => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What the general way finds where a plain attribute stands.
    fn generally<'a>(c: &mut Cursor<'a>) -> (Name<'a>, Value<'a>) {
        match c.any_attribute() {
            Ok(Attribute::Pair(name, value)) => {
                let is_plain = !value.text.iter().any(|b| *b == b'&' || *b < b' ');
                (name, Value { is_plain, ..value })
            }
            other => panic!("{other:?}"),
        }
    }

    proptest! {
        #[test]
        fn plain_attributes_like_any(
            name in "[a-zA-Z_:=\u{e9} ]{1,3}[a-z]{0,16}",
            value in "[a-z0-9\u{fc} <&\"'\t\u{1f}/>]{0,4}[a-z0-9\u{fc} ]{0,30}[a-z0-9 <&\"']{0,2}",
            end in "[/> a-z]{0,20}",
            bytes: Vec<u8>,
        ) {
            let text = [b" ", name.as_bytes(), b"=\"", value.as_bytes(), b"\"", end.as_bytes(), &bytes].concat();
            let (mut quick, mut general) = (Cursor { data: &text, at: 0 }, Cursor { data: &text, at: 0 });
            if let Some(pair) = quick.plain_attribute() {
                prop_assert_eq!(pair, generally(&mut general));
                prop_assert_eq!(quick.at, general.at);
            } else {
                prop_assert_eq!(quick.at, 0);
                let common = value.bytes().all(|b| b.is_ascii_lowercase())
                    && name.bytes().all(|b| b.is_ascii_lowercase());
                prop_assert!(!common || name.len() > 15 || end.len() + bytes.len() < 16);
            }
        }

        #[test]
        fn plain_children_like_any(
            names in prop::sample::select(vec![
                &["nd", "ref"][..],
                &["tag", "k", "v"],
                &["member", "type", "ref", "role"],
            ]),
            values in prop::collection::vec("[a-z\u{fc}<&\"]{0,1}[a-z0-9 ]{0,20}", 3),
            before in "[ ]{1,2}|/> ",
            after in "/>|>|/ >| x=\"\"/>",
        ) {
            let values = &values[..names.len() - 1];
            let pairs = names[1..].iter().zip(values).map(|(name, value)| format!("{before}{name}=\"{value}\""));
            let text = format!("<{}{}{after}                ", names[0], pairs.collect::<String>());
            let mut quick = Cursor { data: text.as_bytes(), at: 0 };
            let found = match names.len() {
                2 => quick.plain_reference().map(|value| vec![value]),
                3 => quick.plain_tag().map(Vec::from),
                _ => quick.plain_member().map(Vec::from),
            };
            if let Some(found) = found {
                let mut general = Cursor { data: text.as_bytes(), at: names[0].len() + 1 };
                for (name, value) in names[1..].iter().zip(found) {
                    prop_assert_eq!((Name::new(name.as_bytes()), value), generally(&mut general));
                }
                prop_assert!(matches!(general.any_attribute(), Ok(Attribute::Empty)));
                prop_assert_eq!(quick.at, general.at);
            } else {
                prop_assert_eq!(quick.at, 0);
                let is_plain = before == " " && after == "/>";
                prop_assert!(!is_plain || values.iter().any(|value| value.contains(['<', '&', '"'])));
            }
        }
    }
}
