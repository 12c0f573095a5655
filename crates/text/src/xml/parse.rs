//! OSM XML and OsmChange: what the tags mean.

use std::collections::HashSet;

use osmill_model::{BoundingBox, ElementId, Kind, Location, Timestamp};

use super::scan::{Attribute, Content, Cursor, is_escaped, unescape};
use crate::assemble::{Action, Assembler, Draft, Span};
use crate::error::{Bad, Problem, Stop, shortened};
use crate::number::{coordinate, integer};
use crate::pieces::Fork;
use crate::reader::{Header, Parse};

/// Distinct warnings that are kept; a file of nothing but unknown names must not fill the memory.
const MAX_WARNINGS: usize = 100;

/// Where in the document the parser is, between two elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Section {
    Start,
    Prolog,
    Data,
    Change,
    Action(Action),
    Epilog,
}

/// The parser; see [`Parse`].
#[derive(Debug)]
pub(crate) struct XmlParser {
    section: Section,
    header: Header,
    draft: Draft,
    warned: HashSet<Vec<u8>>,
    warnings: Vec<(usize, String)>,
}

impl Default for XmlParser {
    fn default() -> Self {
        XmlParser {
            section: Section::Start,
            header: Header::default(),
            draft: Draft::default(),
            warned: HashSet::new(),
            warnings: Vec::new(),
        }
    }
}

impl Parse for XmlParser {
    fn parse(&mut self, data: &[u8], last: bool, out: &mut Assembler) -> Result<usize, Box<Bad>> {
        let mut cursor = Cursor { data, at: 0 };
        while !out.is_ready() {
            if self.section != Section::Start {
                cursor.skip_space();
            }
            let before = cursor.at;
            match self.step(&mut cursor, last, out) {
                Ok(()) => {}
                Err(Stop::Bad(bad)) => return Err(bad),
                Err(Stop::More) if !last => return Ok(before),
                Err(Stop::More) => {
                    if self.section == Section::Epilog && is_blank(&data[before..]) {
                        out.flush();
                        return Ok(data.len());
                    }
                    return Err(self.truncated(data, before));
                }
            }
        }
        Ok(cursor.at)
    }

    fn header(&self) -> &Header {
        &self.header
    }

    fn warnings(&mut self) -> &mut Vec<(usize, String)> {
        &mut self.warnings
    }
}

impl Fork for XmlParser {
    fn cut(&self, data: &[u8], from: usize) -> Option<usize> {
        if !matches!(self.section, Section::Data | Section::Action(_)) {
            return None;
        }
        memchr::memchr_iter(b'<', &data[from..])
            .map(|at| from + at)
            .find(|at| {
                let rest = &data[at + 1..];
                [b"node".as_slice(), b"way", b"relation"].iter().any(|name| {
                    rest.strip_prefix(*name)
                        .and_then(<[u8]>::first)
                        .is_some_and(u8::is_ascii_whitespace)
                })
            })
    }

    fn fork(&self) -> Self {
        XmlParser {
            section: self.section,
            header: Header {
                bounds: Vec::new(),
                ..self.header.clone()
            },
            warned: self.warned.clone(),
            ..XmlParser::default()
        }
    }

    fn agrees(&self, other: &Self) -> bool {
        self.section == other.section
    }

    fn join(&mut self, mut piece: Self) {
        self.section = piece.section;
        self.header.timestamp = piece.header.timestamp;
        self.header.bounds.append(&mut piece.header.bounds);
        self.warned.extend(piece.warned);
    }
}

impl XmlParser {
    #[cold]
    fn truncated(&self, data: &[u8], before: usize) -> Box<Bad> {
        let inside_element = !data[before..].trim_ascii().is_empty();
        Box::new(Bad {
            offset: data.len(),
            element: None,
            problem: Problem::Truncated(match self.section {
                Section::Start | Section::Prolog => "what comes before the root element",
                Section::Epilog => "what comes after the root element",
                _ if inside_element => "an element, comment or tag",
                Section::Data => "<osm>",
                Section::Change => "<osmChange>",
                Section::Action(Action::Create) => "<create>",
                Section::Action(Action::Modify) => "<modify>",
                Section::Action(Action::Delete) => "<delete>",
            }),
        })
    }

    /// Reads one thing at the level between elements.
    fn step(&mut self, c: &mut Cursor<'_>, last: bool, out: &mut Assembler) -> Result<(), Stop> {
        if self.section == Section::Start {
            if c.data.len() < 5 && !last {
                return Err(Stop::More);
            }
            if c.data.starts_with(b"\xef\xbb\xbf") {
                c.at += 3;
            }
            check_declaration(c)?;
            self.section = Section::Prolog;
        }
        let before = c.at;
        let content = c.content()?;
        match (self.section, content) {
            (Section::Data, Content::Start(name)) => match kind_of(name) {
                Some(kind) => {
                    self.element(c, kind)?;
                    out.push(kind, None, &self.draft);
                }
                None => self.root_child(c, name, before)?,
            },
            (Section::Action(action), Content::Start(name)) => match kind_of(name) {
                Some(kind) => {
                    self.element(c, kind)?;
                    if action == Action::Delete {
                        self.draft.visible = Some(false);
                    }
                    out.push(kind, Some(action), &self.draft);
                }
                None => self.pass_over(c, before, action.name(), name)?,
            },
            (Section::Change, Content::Start(name)) => {
                let action = match name {
                    b"create" => Action::Create,
                    b"modify" => Action::Modify,
                    b"delete" => Action::Delete,
                    _ if kind_of(name).is_some() => {
                        let problem = Problem::NoAction(kind_of(name).unwrap_or(Kind::Node));
                        return Err(Bad::stop(before, problem));
                    }
                    _ => return self.root_child(c, name, before),
                };
                if c.skip_attributes()? {
                    self.section = Section::Action(action);
                }
            }
            (Section::Data, Content::End(name)) => self.close(before, name, "osm", Section::Epilog)?,
            (Section::Change, Content::End(name)) => {
                self.close(before, name, "osmChange", Section::Epilog)?;
            }
            (Section::Action(action), Content::End(name)) => {
                self.close(before, name, action.name(), Section::Change)?;
            }
            (Section::Start | Section::Prolog, Content::Start(name)) => self.root(c, name, before)?,
            (Section::Start | Section::Prolog | Section::Epilog, _) => {
                c.at = before;
                return Err(c.expected(if self.section == Section::Epilog {
                    "the end of the file"
                } else {
                    "<osm> or <osmChange>"
                }));
            }
            (Section::Data | Section::Change | Section::Action(_), Content::Text) => {
                self.warn(before, "text", b"", || {
                    "text between elements is passed over".into()
                });
            }
        }
        Ok(())
    }

    fn close(&mut self, at: usize, found: &[u8], expected: &'static str, next: Section) -> Result<(), Stop> {
        if found != expected.as_bytes() {
            return Err(mismatch(at, found, expected));
        }
        self.section = next;
        Ok(())
    }

    fn root(&mut self, c: &mut Cursor<'_>, name: &[u8], at: usize) -> Result<(), Stop> {
        let section = match name {
            b"osm" => Section::Data,
            b"osmChange" => Section::Change,
            _ => return Err(Bad::stop(at, Problem::Root(shortened(name)))),
        };
        let mut header = Header {
            is_change: section == Section::Change,
            ..Header::default()
        };
        let open = loop {
            let (name, value, offset) = match c.attribute()? {
                Attribute::Pair(name, value, offset) => (name, value, offset),
                Attribute::Open => break true,
                Attribute::Empty => break false,
            };
            match name {
                b"version" => header.version = Some(text(value, offset)?),
                b"generator" => header.generator = Some(text(value, offset)?),
                b"upload" => header.upload = Some(text(value, offset)?),
                b"timestamp" | b"osmosis_replication_timestamp" => {
                    header.timestamp = Some(timestamp(value, offset)?);
                }
                b"copyright" | b"attribution" | b"license" => {}
                name if name.starts_with(b"xmlns") || name.starts_with(b"xsi:") => {}
                name => self.warn_attribute(offset, "osm", name),
            }
        };
        self.header = header;
        self.section = if open { section } else { Section::Epilog };
        Ok(())
    }

    /// What may stand beside elements: bounds in two spellings, and the note of when the data was taken.
    fn root_child(&mut self, c: &mut Cursor<'_>, name: &[u8], at: usize) -> Result<(), Stop> {
        match name {
            b"bounds" => {
                let [mut left, mut bottom, mut right, mut top] = [None; 4];
                let open = loop {
                    let (name, value, offset) = match c.attribute()? {
                        Attribute::Pair(name, value, offset) => (name, value, offset),
                        Attribute::Open => break true,
                        Attribute::Empty => break false,
                    };
                    match name {
                        b"minlon" => left = Some(degrees("minlon", value, offset)?),
                        b"minlat" => bottom = Some(degrees("minlat", value, offset)?),
                        b"maxlon" => right = Some(degrees("maxlon", value, offset)?),
                        b"maxlat" => top = Some(degrees("maxlat", value, offset)?),
                        b"origin" => {}
                        name => self.warn_attribute(offset, "bounds", name),
                    }
                };
                let (Some(left), Some(bottom), Some(right), Some(top)) = (left, bottom, right, top) else {
                    return Err(missing(at, "bounds", "minlon, minlat, maxlon or maxlat"));
                };
                self.header
                    .bounds
                    .push(BoundingBox::new(left, bottom, right, top));
                if open { c.skip_content() } else { Ok(()) }
            }
            b"bound" => {
                let open = loop {
                    let (name, value, offset) = match c.attribute()? {
                        Attribute::Pair(name, value, offset) => (name, value, offset),
                        Attribute::Open => break true,
                        Attribute::Empty => break false,
                    };
                    if name == b"box" {
                        let mut edges = value.split(|b| *b == b',').map(<[u8]>::trim_ascii);
                        let mut edge = || degrees("box", edges.next().unwrap_or_default(), offset);
                        let [bottom, left, top, right] = [edge()?, edge()?, edge()?, edge()?];
                        self.header
                            .bounds
                            .push(BoundingBox::new(left, bottom, right, top));
                    }
                };
                if open { c.skip_content() } else { Ok(()) }
            }
            b"meta" => {
                let open = loop {
                    match c.attribute()? {
                        Attribute::Pair(b"osm_base", value, offset) => {
                            self.header.timestamp = Some(timestamp(value, offset)?);
                        }
                        Attribute::Pair(..) => {}
                        Attribute::Open => break true,
                        Attribute::Empty => break false,
                    }
                };
                if open { c.skip_content() } else { Ok(()) }
            }
            _ => {
                let parent = if self.header.is_change { "osmChange" } else { "osm" };
                self.pass_over(c, at, parent, name)
            }
        }
    }

    /// Reads an element, whose name has been read, into the draft.
    fn element(&mut self, c: &mut Cursor<'_>, kind: Kind) -> Result<(), Stop> {
        let start = c.at;
        self.draft.clear();
        self.element_parts(c, kind, start)
            .map_err(|stop| stop.of(self.draft.id.map(|id| ElementId::new(kind, id))))
    }

    fn element_parts(&mut self, c: &mut Cursor<'_>, kind: Kind, start: usize) -> Result<(), Stop> {
        let mut deleted = false;
        let open = loop {
            let (name, value, offset) = match c.attribute()? {
                Attribute::Pair(name, value, offset) => (name, value, offset),
                Attribute::Open => break true,
                Attribute::Empty => break false,
            };
            let draft = &mut self.draft;
            match name {
                b"id" => draft.id = Some(id("id", value, offset)?),
                b"lat" if kind == Kind::Node => draft.lat = Some(latitude(value, offset)?),
                b"lon" if kind == Kind::Node => draft.lon = Some(longitude(value, offset)?),
                b"version" => {
                    draft.version = number(value, i64::from(i32::MAX))
                        .ok_or_else(|| bad_value("version", value, offset, "a number from 0 to 2147483647"))?
                        .map(|version| version as i32);
                }
                b"timestamp" => draft.timestamp = Some(timestamp(value, offset)?),
                b"changeset" => {
                    draft.changeset = number(value, i64::from(u32::MAX)).ok_or_else(|| {
                        bad_value("changeset", value, offset, "a number from 0 to 4294967295")
                    })?;
                }
                b"uid" => {
                    draft.uid = number(value, i64::from(i32::MAX))
                        .ok_or_else(|| bad_value("uid", value, offset, "a number from 0 to 2147483647"))?
                        .map(|uid| uid as i32);
                }
                b"user" => draft.user = Some(keep(draft, value, offset)?),
                b"visible" => {
                    draft.visible = Some(match value {
                        b"true" => true,
                        b"false" => false,
                        _ => return Err(bad_value("visible", value, offset, "true or false")),
                    });
                }
                b"action" => deleted = value == b"delete",
                name => self.warn_attribute(offset, kind.name(), name),
            }
        };
        if self.draft.id.is_none() {
            return Err(missing(start, kind.name(), "id"));
        }
        match (kind, self.draft.lon, self.draft.lat) {
            (Kind::Node, Some(_), None) => return Err(missing(start, "node", "lat")),
            (Kind::Node, None, Some(_)) => return Err(missing(start, "node", "lon")),
            _ => {}
        }
        if deleted {
            self.draft.visible = Some(false);
        }
        if open { self.children(c, kind) } else { Ok(()) }
    }

    fn children(&mut self, c: &mut Cursor<'_>, kind: Kind) -> Result<(), Stop> {
        loop {
            c.skip_space();
            let before = c.at;
            match c.content()? {
                Content::Start(b"tag") => self.tag(c, before)?,
                Content::Start(b"nd") if kind == Kind::Way => self.node_reference(c, before)?,
                Content::Start(b"member") if kind == Kind::Relation => self.member(c, before)?,
                Content::Start(name) => self.pass_over(c, before, kind.name(), name)?,
                Content::End(name) if name == kind.name().as_bytes() => return Ok(()),
                Content::End(name) => return Err(mismatch(before, name, kind.name())),
                Content::Text => self.warn(before, "text", kind.name().as_bytes(), || {
                    format!("text in <{kind}> is passed over")
                }),
            }
        }
    }

    fn tag(&mut self, c: &mut Cursor<'_>, start: usize) -> Result<(), Stop> {
        let (mut key, mut value) = (None, None);
        let open = loop {
            match c.attribute()? {
                Attribute::Pair(b"k", text, offset) => key = Some(keep(&mut self.draft, text, offset)?),
                Attribute::Pair(b"v", text, offset) => value = Some(keep(&mut self.draft, text, offset)?),
                Attribute::Pair(name, _, offset) => self.warn_attribute(offset, "tag", name),
                Attribute::Open => break true,
                Attribute::Empty => break false,
            }
        };
        let key = key.ok_or_else(|| missing(start, "tag", "k"))?;
        let value = value.ok_or_else(|| missing(start, "tag", "v"))?;
        self.draft.tags.push((key, value));
        if open { c.skip_content() } else { Ok(()) }
    }

    fn node_reference(&mut self, c: &mut Cursor<'_>, start: usize) -> Result<(), Stop> {
        let (mut node, mut lon, mut lat) = (None, None, None);
        let open = loop {
            match c.attribute()? {
                Attribute::Pair(b"ref", value, offset) => node = Some(id("ref", value, offset)?),
                Attribute::Pair(b"lat", value, offset) => lat = Some(latitude(value, offset)?),
                Attribute::Pair(b"lon", value, offset) => lon = Some(longitude(value, offset)?),
                Attribute::Pair(name, _, offset) => self.warn_attribute(offset, "nd", name),
                Attribute::Open => break true,
                Attribute::Empty => break false,
            }
        };
        let node = node.ok_or_else(|| missing(start, "nd", "ref"))?;
        let location = lon.zip(lat).map(|(lon, lat)| Location { lon, lat });
        self.draft.push_ref(node, location);
        if open { c.skip_content() } else { Ok(()) }
    }

    fn member(&mut self, c: &mut Cursor<'_>, start: usize) -> Result<(), Stop> {
        let (mut kind, mut member, mut role) = (None, None, None);
        let open = loop {
            match c.attribute()? {
                Attribute::Pair(b"type", value, offset) => {
                    let known = kind_of(value);
                    kind =
                        Some(known.ok_or_else(|| bad_value("type", value, offset, "node, way or relation"))?);
                }
                Attribute::Pair(b"ref", value, offset) => member = Some(id("ref", value, offset)?),
                Attribute::Pair(b"role", value, offset) => role = Some(keep(&mut self.draft, value, offset)?),
                Attribute::Pair(name, _, offset) => self.warn_attribute(offset, "member", name),
                Attribute::Open => break true,
                Attribute::Empty => break false,
            }
        };
        let kind = kind.ok_or_else(|| missing(start, "member", "type"))?;
        let member = member.ok_or_else(|| missing(start, "member", "ref"))?;
        self.draft
            .members
            .push((ElementId::new(kind, member), role.unwrap_or(0..0)));
        if open { c.skip_content() } else { Ok(()) }
    }

    /// Passes over an element that OSM data has no place for, with all that is in it.
    fn pass_over(&mut self, c: &mut Cursor<'_>, at: usize, parent: &str, name: &[u8]) -> Result<(), Stop> {
        if c.skip_attributes()? {
            c.skip_content()?;
        }
        self.warn(at, parent, name, || {
            format!("<{}> in <{parent}> is passed over", shortened(name))
        });
        Ok(())
    }

    #[cold]
    fn warn_attribute(&mut self, at: usize, element: &str, name: &[u8]) {
        let mut attribute = b"@".to_vec();
        attribute.extend_from_slice(name);
        self.warn(at, element, &attribute, || {
            format!("attribute {} of <{element}> is passed over", shortened(name))
        });
    }

    #[cold]
    fn warn(&mut self, at: usize, parent: &str, name: &[u8], text: impl FnOnce() -> String) {
        let key = [parent.as_bytes(), b"/", name].concat();
        if self.warned.len() < MAX_WARNINGS && self.warned.insert(key) {
            self.warnings.push((at, text()));
        }
    }
}

/// Checks the XML declaration, if one stands here, for an encoding that can be read.
fn check_declaration(c: &mut Cursor<'_>) -> Result<(), Stop> {
    let start = c.at;
    c.skip_space();
    let rest = &c.data[c.at..];
    let Some(declaration) = rest.strip_prefix(b"<?xml") else {
        c.at = start;
        return Ok(());
    };
    let end = memchr::memmem::find(declaration, b"?>").ok_or(Stop::More)?;
    let declaration = &declaration[..end];
    if let Some(at) = memchr::memmem::find(declaration, b"encoding") {
        let value = declaration[at + 8..]
            .split(|b| matches!(b, b'"' | b'\''))
            .nth(1)
            .unwrap_or_default();
        let known: [&[u8]; 4] = [b"utf-8", b"utf8", b"us-ascii", b"ascii"];
        if !known.iter().any(|name| value.eq_ignore_ascii_case(name)) {
            return Err(Bad::stop(c.at, Problem::Encoding(shortened(value))));
        }
    }
    c.at += 5 + end + 2;
    Ok(())
}

/// Whether there is nothing but white space and comments.
fn is_blank(data: &[u8]) -> bool {
    let mut c = Cursor { data, at: 0 };
    loop {
        c.skip_space();
        match &data[c.at..] {
            [] => return true,
            [b'<', b'!' | b'?', ..] if matches!(c.markup(), Ok(false)) => {}
            _ => return false,
        }
    }
}

#[inline]
fn kind_of(name: &[u8]) -> Option<Kind> {
    match name {
        b"node" => Some(Kind::Node),
        b"way" => Some(Kind::Way),
        b"relation" => Some(Kind::Relation),
        _ => None,
    }
}

#[cold]
fn bad_value(attribute: &'static str, value: &[u8], offset: usize, expected: &'static str) -> Stop {
    Bad::stop(offset, Problem::value(attribute, value, expected))
}

#[cold]
fn missing(at: usize, element: &'static str, attribute: &'static str) -> Stop {
    Bad::stop(at, Problem::Missing { element, attribute })
}

#[cold]
fn mismatch(at: usize, found: &[u8], expected: &str) -> Stop {
    let problem = Problem::Mismatch {
        expected: expected.into(),
        found: shortened(found),
    };
    Bad::stop(at, problem)
}

fn text(value: &[u8], offset: usize) -> Result<String, Stop> {
    let mut out = Vec::new();
    unescape(value, offset, &mut out)?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

#[inline]
fn keep(draft: &mut Draft, value: &[u8], offset: usize) -> Result<Span, Stop> {
    if is_escaped(value) {
        draft.keep_with(|out| unescape(value, offset, out))
    } else {
        Ok(draft.keep(value))
    }
}

#[inline]
fn id(attribute: &'static str, value: &[u8], offset: usize) -> Result<i64, Stop> {
    integer(value).ok_or_else(|| bad_value(attribute, value, offset, "a whole number of 64 bits"))
}

/// A number from 0 to `max`; `Some(None)` for -1, which some writers put where they know none.
#[inline]
fn number(value: &[u8], max: i64) -> Option<Option<i64>> {
    match integer(value)? {
        -1 => Some(None),
        value if (0..=max).contains(&value) => Some(Some(value)),
        _ => None,
    }
}

#[inline]
fn timestamp(value: &[u8], offset: usize) -> Result<Timestamp, Stop> {
    std::str::from_utf8(value)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| {
            let expected = "a time like 2024-02-29T23:59:59Z or with an offset like +01:00";
            bad_value("timestamp", value, offset, expected)
        })
}

#[inline]
fn latitude(value: &[u8], offset: usize) -> Result<i32, Stop> {
    match coordinate(value) {
        Some(lat @ -900_000_000..=900_000_000) => Ok(lat as i32),
        _ => Err(bad_value("lat", value, offset, "a latitude from -90 to 90")),
    }
}

#[inline]
fn longitude(value: &[u8], offset: usize) -> Result<i32, Stop> {
    match coordinate(value) {
        Some(lon @ -1_800_000_000..=1_800_000_000) => Ok(lon as i32),
        _ => Err(bad_value("lon", value, offset, "a longitude from -180 to 180")),
    }
}

/// An edge of a box, which files round outwards past the ends of the earth at times.
fn degrees(attribute: &'static str, value: &[u8], offset: usize) -> Result<i32, Stop> {
    coordinate(value)
        .and_then(|units| i32::try_from(units).ok())
        .ok_or_else(|| bad_value(attribute, value, offset, "a number of degrees"))
}
