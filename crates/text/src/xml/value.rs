//! The values of attributes.

use osmill_model::Timestamp;

use crate::assemble::{Draft, Span};
use crate::error::{Bad, Problem, Stop, shortened};
use crate::number::{coordinate, integer, time};

/// A value as it stands in the file, and where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Value<'a> {
    pub text: &'a [u8],
    pub at: usize,
    /// Whether there is surely nothing in it to be rewritten.
    pub is_plain: bool,
}

impl Value<'_> {
    /// The error that this is not what the attribute has to be.
    #[cold]
    pub fn bad(self, attribute: &'static str, expected: &'static str) -> Stop {
        Bad::stop(self.at, Problem::value(attribute, self.text, expected))
    }

    /// As text for a header.
    pub fn string(self) -> Result<String, Stop> {
        let mut out = Vec::new();
        unescape(self.text, self.at, &mut out)?;
        Ok(String::from_utf8_lossy(&out).into_owned())
    }

    /// As text of an element.
    #[inline]
    pub fn keep(self, draft: &mut Draft) -> Result<Span, Stop> {
        if self.is_plain || !self.text.iter().any(|b| is_special(*b)) {
            Ok(draft.keep(self.text))
        } else {
            draft.keep_with(|out| unescape(self.text, self.at, out))
        }
    }

    #[inline]
    pub fn id(self, attribute: &'static str) -> Result<i64, Stop> {
        integer(self.text).ok_or_else(|| self.bad(attribute, "a whole number of 64 bits"))
    }

    /// A number of an `i32` that is not negative; `None` for -1, which some writers put where they know none.
    #[inline]
    pub fn number(self, attribute: &'static str) -> Result<Option<i32>, Stop> {
        let number = self.number_to(i32::MAX.into());
        let number = number.ok_or_else(|| self.bad(attribute, "a number from 0 to 2147483647"))?;
        Ok(number.map(|number| number as i32))
    }

    /// The number of a changeset; `None` for -1.
    #[inline]
    pub fn changeset(self) -> Result<Option<i64>, Stop> {
        self.number_to(u32::MAX.into())
            .ok_or_else(|| self.bad("changeset", "a number from 0 to 4294967295"))
    }

    #[inline]
    fn number_to(self, max: i64) -> Option<Option<i64>> {
        match integer(self.text)? {
            -1 => Some(None),
            value if (0..=max).contains(&value) => Some(Some(value)),
            _ => None,
        }
    }

    #[inline]
    pub fn timestamp(self) -> Result<Timestamp, Stop> {
        let expected = "a time like 2024-02-29T23:59:59Z or with an offset like +01:00";
        time(self.text).ok_or_else(|| self.bad("timestamp", expected))
    }

    #[inline]
    pub fn truth(self, attribute: &'static str) -> Result<bool, Stop> {
        match self.text {
            b"true" => Ok(true),
            b"false" => Ok(false),
            _ => Err(self.bad(attribute, "true or false")),
        }
    }

    #[inline]
    pub fn latitude(self) -> Result<i32, Stop> {
        match coordinate(self.text) {
            Some(lat @ -900_000_000..=900_000_000) => Ok(lat as i32),
            _ => Err(self.bad("lat", "a latitude from -90 to 90")),
        }
    }

    #[inline]
    pub fn longitude(self) -> Result<i32, Stop> {
        match coordinate(self.text) {
            Some(lon @ -1_800_000_000..=1_800_000_000) => Ok(lon as i32),
            _ => Err(self.bad("lon", "a longitude from -180 to 180")),
        }
    }

    /// An edge of a box, which files round outwards past the ends of the earth at times.
    pub fn degrees(self, attribute: &'static str) -> Result<i32, Stop> {
        coordinate(self.text)
            .and_then(|units| i32::try_from(units).ok())
            .ok_or_else(|| self.bad(attribute, "a number of degrees"))
    }
}

/// Whether [`unescape`] rewrites this byte.
#[inline]
fn is_special(byte: u8) -> bool {
    byte == b'&' || byte < b' '
}

/// Appends a value with its entities replaced and its line breaks and tabs as spaces, as XML demands.
/// `offset` is where the value stands.
fn unescape(value: &[u8], offset: usize, out: &mut Vec<u8>) -> Result<(), Stop> {
    let mut rest = value;
    while let Some(special) = rest.iter().position(|b| is_special(*b)) {
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
