//! The lexical level of XML: tags, attributes, entities, over a slice of the file.
//!
//! A slice may end anywhere. What is cut off makes a function stop with [`Stop::More`]; the caller begins
//! again at the last place where it was complete, with more bytes.

use crate::error::{Bad, Problem, Stop, shortened};

/// A place in a slice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cursor<'a> {
    pub data: &'a [u8],
    pub at: usize,
}

/// What comes next inside a start tag.
#[derive(Debug)]
pub(crate) enum Attribute<'a> {
    /// `name="value"`, the value as it stands, and where it stands.
    Pair(&'a [u8], &'a [u8], usize),
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

    /// The next attribute of a start tag, or its end.
    #[inline]
    pub fn attribute(&mut self) -> Result<Attribute<'a>, Stop> {
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
        Ok(Attribute::Pair(name, &self.data[start..start + len], start))
    }

    /// Passes over the attributes that are left; gives whether the element is open.
    pub fn skip_attributes(&mut self) -> Result<bool, Stop> {
        loop {
            match self.attribute()? {
                Attribute::Pair(..) => {}
                Attribute::Open => return Ok(true),
                Attribute::Empty => return Ok(false),
            }
        }
    }

    /// Passes over the content of an open element, its end tag included.
    pub fn skip_content(&mut self) -> Result<(), Stop> {
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

/// Whether a value has to be rewritten by [`unescape`].
#[inline]
pub(crate) fn is_escaped(value: &[u8]) -> bool {
    value.iter().any(|b| *b == b'&' || *b < b' ')
}

/// Appends a value with its entities replaced and its line breaks and tabs as spaces, as XML demands.
/// `offset` is where the value stands.
pub(crate) fn unescape(value: &[u8], offset: usize, out: &mut Vec<u8>) -> Result<(), Stop> {
    let mut rest = value;
    while let Some(special) = rest.iter().position(|b| *b == b'&' || *b < b' ') {
        out.extend_from_slice(&rest[..special]);
        let at = offset + value.len() - rest.len() + special;
        let byte = rest[special];
        rest = &rest[special + 1..];
        match byte {
            b'&' => {
                let end = rest.iter().take(12).position(|b| *b == b';');
                let name = &rest[..end.unwrap_or(rest.len().min(12))];
                let c = end.and_then(|_| entity(name));
                let c = c.ok_or_else(|| Bad::stop(at, Problem::Entity(shortened(name))))?;
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                rest = &rest[name.len() + 1..];
            }
            b'\r' if rest.first() == Some(&b'\n') => {}
            b'\n' | b'\r' | b'\t' => out.push(b' '),
            other => out.push(other),
        }
    }
    out.extend_from_slice(rest);
    Ok(())
}

fn entity(name: &[u8]) -> Option<char> {
    Some(match name {
        b"amp" => '&',
        b"lt" => '<',
        b"gt" => '>',
        b"quot" => '"',
        b"apos" => '\'',
        [b'#', b'x' | b'X', digits @ ..] => char::from_u32(number(digits, 16)?)?,
        [b'#', digits @ ..] => char::from_u32(number(digits, 10)?)?,
        _ => return None,
    })
}

fn number(digits: &[u8], radix: u32) -> Option<u32> {
    if !digits.iter().all(u8::is_ascii_alphanumeric) {
        return None;
    }
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn unescaped(text: &str) -> Result<String, Stop> {
        let mut out = Vec::new();
        unescape(text.as_bytes(), 0, &mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn entities() {
        let text = "a&amp;b&lt;&gt;&quot;&apos;&#10;&#x1F600;\r\nx\ty";
        assert_eq!(unescaped(text).unwrap(), "a&b<>\"'\n\u{1f600} x y");
        for bad in ["&nbsp;", "&", "&amp", "&#xD800;", "&#;", "&#+5;", "&;"] {
            assert!(matches!(unescaped(bad), Err(Stop::Bad(_))), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn escaped_text_reads_back(text: String) {
            let mut escaped = Vec::new();
            crate::xml::push_escaped(&mut escaped, text.as_bytes());
            prop_assert_eq!(unescaped(std::str::from_utf8(&escaped).unwrap()).unwrap(), text);
        }
    }
}
