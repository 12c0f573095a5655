//! Reading OPL.

use osmill_model::{ElementId, Kind, Location};

use crate::assemble::{Assembler, Draft, Span};
use crate::error::{Bad, Problem, Stop};
use crate::number::{coordinate, integer, time};
use crate::pieces::Fork;
use crate::reader::{Header, Parse};

/// The parser; see [`Parse`].
#[derive(Debug, Default)]
pub(crate) struct OplParser {
    header: Header,
    draft: Draft,
    warned: bool,
    warnings: Vec<(usize, String)>,
}

impl Parse for OplParser {
    fn parse(&mut self, data: &[u8], last: bool, out: &mut Assembler) -> Result<usize, Box<Bad>> {
        let mut at = 0;
        while !out.is_ready() {
            let rest = &data[at..];
            let (line, next) = match memchr::memchr(b'\n', rest) {
                Some(end) => (&rest[..end], at + end + 1),
                None if last && !rest.is_empty() => {
                    self.warnings
                        .push((at, "the last line has no end; the file may be truncated".into()));
                    (rest, data.len())
                }
                None => {
                    if last {
                        out.flush();
                    }
                    return Ok(at);
                }
            };
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            match self.line(line, at) {
                Ok(Some(kind)) => out.push(kind, None, &self.draft),
                Ok(None) => {}
                Err(Stop::Bad(bad)) => return Err(bad),
                Err(Stop::More) => incomplete_line(at)?,
            }
            at = next;
        }
        Ok(at)
    }

    fn header(&self) -> &Header {
        &self.header
    }

    fn warnings(&mut self) -> &mut Vec<(usize, String)> {
        &mut self.warnings
    }
}

impl Fork for OplParser {
    fn cut(&self, data: &[u8], from: usize) -> Option<usize> {
        memchr::memchr(b'\n', &data[from..]).map(|at| from + at + 1)
    }

    fn fork(&self) -> Self {
        OplParser {
            warned: self.warned,
            ..OplParser::default()
        }
    }

    fn fork_behind(&self, _: &[u8]) -> Self {
        self.fork()
    }

    fn agrees(&self, _: &Self) -> bool {
        true
    }

    fn join(&mut self, piece: Self) {
        self.warned |= piece.warned;
    }
}

/// Fields ask for nothing beyond their line.
#[cold]
fn incomplete_line(at: usize) -> Result<(), Box<Bad>> {
    Err(Box::new(Bad {
        offset: at,
        element: None,
        problem: Problem::Truncated("a line"),
    }))
}

fn bad(attribute: &'static str, value: &[u8], at: usize, expected: &'static str) -> Stop {
    Bad::stop(at, Problem::value(attribute, value, expected))
}

impl OplParser {
    /// Reads a line, which begins at `offset`, into the draft.
    fn line(&mut self, line: &[u8], offset: usize) -> Result<Option<Kind>, Stop> {
        let offset = if offset == 0 && line.starts_with(b"\xef\xbb\xbf") {
            3
        } else {
            offset
        };
        let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        let kind = match line.first() {
            None | Some(b'#') => return Ok(None),
            Some(b'n') => Kind::Node,
            Some(b'w') => Kind::Way,
            Some(b'r') => Kind::Relation,
            Some(b'c') => {
                if !self.warned {
                    self.warned = true;
                    self.warnings.push((offset, "changesets are passed over".into()));
                }
                return Ok(None);
            }
            Some(_) if line.trim_ascii().is_empty() => return Ok(None),
            Some(_) => {
                return Err(bad(
                    "the line",
                    line,
                    offset,
                    "one that begins with n, w, r, c or #",
                ));
            }
        };
        self.draft.clear();
        self.fields(line, offset, kind)
            .map_err(|stop| stop.of(self.draft.id.map(|id| ElementId::new(kind, id))))?;
        Ok(Some(kind))
    }

    fn fields(&mut self, line: &[u8], offset: usize, kind: Kind) -> Result<(), Stop> {
        let draft = &mut self.draft;
        let mut begin = 0;
        for field in line.split(|b| matches!(b, b' ' | b'\t')) {
            let at = offset + begin;
            begin += field.len() + 1;
            let Some((&letter, value)) = field.split_first() else {
                continue;
            };
            if at == offset {
                let expected = "a whole number of 64 bits";
                draft.id = Some(integer(value).ok_or_else(|| bad("id", value, at, expected))?);
                continue;
            }
            let number = |name, max: i64| match integer(value) {
                _ if value.is_empty() => Ok(None),
                Some(0) => Ok(None),
                Some(number) if (0..=max).contains(&number) => Ok(Some(number)),
                _ => Err(bad(name, value, at, "a number from 0 on that is not too large")),
            };
            match letter {
                b'v' => draft.version = number("version", i32::MAX.into())?.map(|v| v as i32),
                b'c' => draft.changeset = number("changeset", u32::MAX.into())?,
                // 0 is what writers put for no user, and also a user's number; with a name it is the latter.
                b'i' => draft.uid = number("uid", i32::MAX.into())?.map(|uid| uid as i32),
                b'd' => {
                    draft.visible = match value {
                        b"V" => None,
                        b"D" => Some(false),
                        _ => return Err(bad("d", value, at, "V (visible) or D (deleted)")),
                    };
                }
                b't' if value.is_empty() => {}
                b't' => {
                    let expected = "a time like 2024-02-29T23:59:59Z";
                    draft.timestamp = Some(time(value).ok_or_else(|| bad("timestamp", value, at, expected))?);
                }
                b'u' if value.is_empty() => {}
                b'u' => draft.user = Some(keep(draft, value, at + 1)?),
                b'T' => tags(draft, value, at + 1)?,
                b'x' if kind == Kind::Node => draft.lon = degrees("longitude", value, at, 1_800_000_000)?,
                b'y' if kind == Kind::Node => draft.lat = degrees("latitude", value, at, 900_000_000)?,
                b'N' if kind == Kind::Way => nodes(draft, value, at + 1)?,
                b'M' if kind == Kind::Relation => members(draft, value, at + 1)?,
                _ => {
                    let expected = "one that elements of this kind have";
                    return Err(bad("field", field, at, expected));
                }
            }
        }
        if kind == Kind::Node && draft.lon.is_some() != draft.lat.is_some() {
            let problem = Problem::Expected {
                expected: "both x and y, or none",
                found: "one of them".into(),
            };
            return Err(Bad::stop(offset, problem));
        }
        Ok(())
    }
}

fn degrees(name: &'static str, value: &[u8], at: usize, max: i64) -> Result<Option<i32>, Stop> {
    if value.is_empty() {
        return Ok(None);
    }
    match coordinate(value) {
        Some(units) if (-max..=max).contains(&units) => Ok(Some(units as i32)),
        _ => Err(bad(
            name,
            value,
            at,
            "a number of degrees within the earth's limits",
        )),
    }
}

/// Items between commas with where each begins; nothing for an empty list.
fn items(list: &[u8], offset: usize) -> impl Iterator<Item = (&[u8], usize)> {
    let mut begin = offset;
    let parts = if list.is_empty() {
        None
    } else {
        Some(list.split(|b| *b == b','))
    };
    parts.into_iter().flatten().map(move |item| {
        let at = begin;
        begin += item.len() + 1;
        (item, at)
    })
}

fn tags(draft: &mut Draft, list: &[u8], offset: usize) -> Result<(), Stop> {
    for (item, at) in items(list, offset) {
        let equals = memchr::memchr(b'=', item).ok_or_else(|| bad("a tag", item, at, "KEY=VALUE"))?;
        let key = keep(draft, &item[..equals], at)?;
        let value = keep(draft, &item[equals + 1..], at + equals + 1)?;
        draft.tags.push((key, value));
    }
    Ok(())
}

fn nodes(draft: &mut Draft, list: &[u8], offset: usize) -> Result<(), Stop> {
    for (item, at) in items(list, offset) {
        let expected = "nID or nIDxLONyLAT";
        let fail = || bad("a node reference", item, at, expected);
        let rest = item.strip_prefix(b"n").ok_or_else(fail)?;
        let x = memchr::memchr(b'x', rest);
        let id = integer(&rest[..x.unwrap_or(rest.len())]).ok_or_else(fail)?;
        let mut location = None;
        if let Some(x) = x {
            let place = &rest[x + 1..];
            let y = memchr::memchr(b'y', place).ok_or_else(fail)?;
            let lon = degrees("longitude", &place[..y], at, 1_800_000_000)?;
            let lat = degrees("latitude", &place[y + 1..], at, 900_000_000)?;
            location = lon.zip(lat).map(|(lon, lat)| Location { lon, lat });
        }
        draft.push_ref(id, location);
    }
    Ok(())
}

fn members(draft: &mut Draft, list: &[u8], offset: usize) -> Result<(), Stop> {
    for (item, at) in items(list, offset) {
        let fail = || bad("a member", item, at, "nID@ROLE, wID@ROLE or rID@ROLE");
        let (letter, rest) = item.split_first().ok_or_else(fail)?;
        let kind = match letter {
            b'n' => Kind::Node,
            b'w' => Kind::Way,
            b'r' => Kind::Relation,
            _ => return Err(fail()),
        };
        let role = memchr::memchr(b'@', rest).ok_or_else(fail)?;
        let id = integer(&rest[..role]).ok_or_else(fail)?;
        let role = keep(draft, &rest[role + 1..], at + role + 2)?;
        draft.members.push((ElementId::new(kind, id), role));
    }
    Ok(())
}

/// Keeps a text, `%hex%` replaced by the character.
fn keep(draft: &mut Draft, text: &[u8], offset: usize) -> Result<Span, Stop> {
    let Some(mut escape) = memchr::memchr(b'%', text) else {
        return Ok(draft.keep(text));
    };
    draft.keep_with(|out| {
        let mut rest = text;
        loop {
            out.extend_from_slice(&rest[..escape]);
            let at = offset + text.len() - rest.len() + escape;
            let code = &rest[escape + 1..];
            let end = code.iter().take(9).position(|b| *b == b'%');
            let digits = &code[..end.unwrap_or(code.len().min(8))];
            let c = end.and_then(|_| character(digits)).ok_or_else(|| {
                bad(
                    "an escape",
                    digits,
                    at,
                    "the hexadecimal number of a character between %",
                )
            })?;
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            rest = &code[digits.len() + 1..];
            match memchr::memchr(b'%', rest) {
                Some(next) => escape = next,
                None => {
                    out.extend_from_slice(rest);
                    return Ok(());
                }
            }
        }
    })
}

fn character(digits: &[u8]) -> Option<char> {
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let code = u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    char::from_u32(code)
}
