//! o5m and o5c, read only.
//!
//! A file is a row of data sets: a type byte; for types below 0xf0 a length and that many bytes. Numbers are
//! varints, signed ones zigzag-coded and mostly differences to the value before. Pairs of strings stand in
//! place or refer to one of the last 15,000 that did.

use osmill_model::{BoundingBox, ElementId, Kind, Location, Timestamp};

use crate::assemble::{Action, Assembler, Draft};
use crate::error::{Bad, Problem, Stop};
use crate::reader::{Header, Parse};

/// Entries of the string table.
const TABLE: usize = 15_000;
/// Bytes of a pair of strings, terminators included, up to which it goes into the table.
const TABLE_STRING: usize = 252;

/// The strings that were met last.
#[derive(Debug, Default)]
struct Strings {
    /// The bytes of a pair, without its last terminator.
    entries: Vec<Vec<u8>>,
    next: usize,
}

impl Strings {
    fn clear(&mut self) {
        self.entries.clear();
        self.next = 0;
    }

    fn add(&mut self, pair: &[u8]) {
        if pair.len() + 1 > TABLE_STRING {
            return;
        }
        match self.entries.get_mut(self.next) {
            Some(entry) => {
                entry.clear();
                entry.extend_from_slice(pair);
            }
            None => self.entries.push(pair.to_vec()),
        }
        self.next = (self.next + 1) % TABLE;
    }

    /// The entry that was added `back` entries ago, 1 being the last.
    fn get(&self, back: u64) -> Option<&[u8]> {
        let back = usize::try_from(back)
            .ok()
            .filter(|b| (1..=self.entries.len()).contains(b))?;
        Some(&self.entries[(self.next + self.entries.len() - back) % self.entries.len()])
    }
}

/// Values that the next difference refers to.
#[derive(Debug, Default)]
struct Last {
    id: i64,
    timestamp: i64,
    changeset: i64,
    lon: i64,
    lat: i64,
    node: i64,
    members: [i64; 3],
}

/// The parser; see [`Parse`].
#[derive(Debug, Default)]
pub(crate) struct O5mParser {
    header: Header,
    draft: Draft,
    strings: Strings,
    last: Last,
    pair: Vec<u8>,
    ended: bool,
    warnings: Vec<(usize, String)>,
}

impl Parse for O5mParser {
    fn parse(&mut self, data: &[u8], last: bool, out: &mut Assembler) -> Result<usize, Box<Bad>> {
        let mut at = 0;
        while !out.is_ready() {
            if at == data.len() || self.ended {
                if !last {
                    // Whatever follows the end mark is dropped.
                    return Ok(if self.ended { data.len() } else { at });
                }
                if !self.ended {
                    let problem = Problem::Truncated("the row of data sets (there is no end mark)");
                    return Err(Box::new(Bad {
                        offset: at,
                        element: None,
                        problem,
                    }));
                }
                out.flush();
                return Ok(data.len());
            }
            match self.data_set(data, at, out) {
                Ok(next) => at = next,
                Err(Stop::Bad(bad)) => return Err(bad),
                Err(Stop::More) if !last => return Ok(at),
                Err(Stop::More) => {
                    let problem = Problem::Truncated("a data set");
                    return Err(Box::new(Bad {
                        offset: data.len(),
                        element: None,
                        problem,
                    }));
                }
            }
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

/// The rest of a data set.
#[derive(Debug)]
struct Input<'a> {
    rest: &'a [u8],
    /// Where in the parser's data the rest ends.
    end: usize,
}

impl<'a> Input<'a> {
    fn offset(&self) -> usize {
        self.end - self.rest.len()
    }

    #[cold]
    fn fail(&self, problem: Problem) -> Stop {
        Bad::stop(self.offset(), problem)
    }

    #[inline]
    fn unsigned(&mut self) -> Result<u64, Stop> {
        let mut value = 0u64;
        for (i, byte) in self.rest.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte & 0x80 == 0 {
                if i == 9 && *byte > 1 {
                    return Err(self.fail(Problem::Number));
                }
                self.rest = &self.rest[i + 1..];
                return Ok(value);
            }
        }
        Err(self.fail(Problem::Number))
    }

    #[inline]
    fn signed(&mut self) -> Result<i64, Stop> {
        let raw = self.unsigned()?;
        Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    fn delta(&mut self, last: &mut i64) -> Result<i64, Stop> {
        *last = last.wrapping_add(self.signed()?);
        Ok(*last)
    }

    /// Splits the next `len` bytes off.
    fn split(&mut self, len: u64) -> Result<Input<'a>, Stop> {
        let len = usize::try_from(len).ok().filter(|len| *len <= self.rest.len());
        let len = len.ok_or_else(|| self.fail(Problem::Truncated("a data set")))?;
        let end = self.offset() + len;
        let (rest, after) = self.rest.split_at(len);
        self.rest = after;
        Ok(Input { rest, end })
    }
}

impl O5mParser {
    /// Reads the data set at `at`, and gives where the next one begins.
    fn data_set(&mut self, data: &[u8], at: usize, out: &mut Assembler) -> Result<usize, Stop> {
        let kind = data[at];
        match kind {
            0xff => {
                self.strings.clear();
                self.last = Last::default();
                return Ok(at + 1);
            }
            0xfe => {
                self.ended = true;
                return Ok(at + 1);
            }
            0xf0.. => return Ok(at + 1),
            _ => {}
        }
        let head = &data[at + 1..data.len().min(at + 11)];
        if head.len() < 10 && head.iter().all(|b| b & 0x80 != 0) {
            return Err(Stop::More);
        }
        let mut head = Input {
            rest: head,
            end: at + 1 + head.len(),
        };
        let len = head.unsigned()?;
        let begin = head.offset();
        let Some(end) = usize::try_from(len).ok().and_then(|len| begin.checked_add(len)) else {
            return Err(Bad::stop(at, Problem::Number));
        };
        let Some(body) = data.get(begin..end) else {
            return Err(Stop::More);
        };
        let mut body = Input { rest: body, end };
        match kind {
            0x10 => self.element(&mut body, Kind::Node, out)?,
            0x11 => self.element(&mut body, Kind::Way, out)?,
            0x12 => self.element(&mut body, Kind::Relation, out)?,
            0xdb => {
                let mut edges = [0i32; 4];
                for edge in &mut edges {
                    let value = body.signed()?;
                    *edge = i32::try_from(value).map_err(|_| body.fail(Problem::Number))?;
                }
                let [left, bottom, right, top] = edges;
                self.header
                    .bounds
                    .push(BoundingBox::new(left, bottom, right, top));
            }
            0xdc => self.header.timestamp = Some(Timestamp(body.signed()?)),
            0xe0 => match body.rest {
                b"o5m2" => self.header.is_change = false,
                b"o5c2" => self.header.is_change = true,
                other => {
                    let problem = Problem::value("the format", other, "o5m2 or o5c2");
                    return Err(Bad::stop(begin, problem));
                }
            },
            _ => {}
        }
        Ok(end)
    }

    fn element(&mut self, body: &mut Input<'_>, kind: Kind, out: &mut Assembler) -> Result<(), Stop> {
        self.draft.clear();
        let exists = self
            .fields(body, kind)
            .map_err(|stop| stop.of(self.draft.id.map(|id| ElementId::new(kind, id))))?;
        if !exists {
            self.draft.visible = Some(false);
        }
        let action = self
            .header
            .is_change
            .then_some(match (exists, self.draft.version) {
                (false, _) => Action::Delete,
                (true, Some(1)) => Action::Create,
                (true, _) => Action::Modify,
            });
        out.push(kind, action, &self.draft);
        Ok(())
    }

    /// Reads an element into the draft; gives whether there is more to it than its id and metadata.
    fn fields(&mut self, body: &mut Input<'_>, kind: Kind) -> Result<bool, Stop> {
        self.draft.id = Some(body.delta(&mut self.last.id)?);
        self.metadata(body)?;
        if body.rest.is_empty() {
            return Ok(false);
        }
        match kind {
            Kind::Node => {
                let lon = body.delta(&mut self.last.lon)?;
                let lat = body.delta(&mut self.last.lat)?;
                for (name, value, max) in [("lon", lon, 1_800_000_000), ("lat", lat, 900_000_000i64)] {
                    if value.abs() > max {
                        let value = value.to_string();
                        let expected = "a coordinate within the earth's limits, in 1e-7 degrees";
                        return Err(body.fail(Problem::value(name, value.as_bytes(), expected)));
                    }
                }
                (self.draft.lon, self.draft.lat) = (Some(lon as i32), Some(lat as i32));
            }
            Kind::Way => {
                let len = body.unsigned()?;
                let mut refs = body.split(len)?;
                while !refs.rest.is_empty() {
                    let id = refs.delta(&mut self.last.node)?;
                    self.draft.push_ref(id, None::<Location>);
                }
            }
            Kind::Relation => {
                let len = body.unsigned()?;
                let mut members = body.split(len)?;
                while !members.rest.is_empty() {
                    self.member(&mut members)?;
                }
            }
        }
        while !body.rest.is_empty() {
            self.pair(body, 2)?;
            let (key, value) = split_pair(&self.pair);
            let tag = (self.draft.keep(key), self.draft.keep(value));
            self.draft.tags.push(tag);
        }
        Ok(true)
    }

    fn metadata(&mut self, body: &mut Input<'_>) -> Result<(), Stop> {
        if body.rest.is_empty() {
            return Ok(());
        }
        let version = body.unsigned()?;
        if version == 0 {
            return Ok(());
        }
        let version = i32::try_from(version).map_err(|_| body.fail(Problem::Number))?;
        self.draft.version = Some(version);
        let timestamp = body.delta(&mut self.last.timestamp)?;
        if timestamp == 0 {
            return Ok(());
        }
        self.draft.timestamp = Some(Timestamp(timestamp));
        let changeset = body.delta(&mut self.last.changeset)?;
        if !(-1..=i64::from(u32::MAX)).contains(&changeset) {
            let value = changeset.to_string();
            return Err(body.fail(Problem::value(
                "changeset",
                value.as_bytes(),
                "from 0 to 4294967295",
            )));
        }
        self.draft.changeset = (changeset >= 0).then_some(changeset);
        self.pair(body, 2)?;
        let (number, user) = split_pair(&self.pair);
        let mut number = Input {
            rest: number,
            end: body.offset(),
        };
        let uid = if number.rest.is_empty() {
            0
        } else {
            number.unsigned()?
        };
        let uid = i32::try_from(uid).map_err(|_| body.fail(Problem::Number))?;
        if uid != 0 || !user.is_empty() {
            self.draft.uid = Some(uid);
            self.draft.user = Some(self.draft.keep(user));
        }
        Ok(())
    }

    fn member(&mut self, members: &mut Input<'_>) -> Result<(), Stop> {
        let difference = members.signed()?;
        self.pair(members, 1)?;
        let (kind, role) = match self.pair.split_first() {
            Some((kind @ b'0'..=b'2', role)) => (kind - b'0', role),
            _ => {
                let problem = Problem::value("the type of a member", &self.pair, "0, 1 or 2 before the role");
                return Err(members.fail(problem));
            }
        };
        let last = &mut self.last.members[usize::from(kind)];
        *last = last.wrapping_add(difference);
        let element = ElementId::new([Kind::Node, Kind::Way, Kind::Relation][usize::from(kind)], *last);
        let role = self.draft.keep(role);
        self.draft.members.push((element, role));
        Ok(())
    }

    /// Reads a string of `parts` parts into `self.pair`: the parts with zero bytes between them.
    fn pair(&mut self, input: &mut Input<'_>, parts: usize) -> Result<(), Stop> {
        self.pair.clear();
        if input.rest.first() != Some(&0) {
            let reference = input.unsigned()?;
            let known = self.strings.get(reference);
            let known = known.ok_or_else(|| input.fail(Problem::StringReference(reference)))?;
            self.pair.extend_from_slice(known);
            return Ok(());
        }
        let text = &input.rest[1..];
        let mut ends = memchr::memchr_iter(0, text);
        let end = ends.nth(parts - 1);
        let end = end.ok_or_else(|| input.fail(Problem::Truncated("a string")))?;
        self.pair.extend_from_slice(&text[..end]);
        input.rest = &text[end + 1..];
        self.strings.add(&self.pair);
        Ok(())
    }
}

fn split_pair(pair: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memchr(0, pair) {
        Some(end) => (&pair[..end], &pair[end + 1..]),
        None => (pair, b""),
    }
}
