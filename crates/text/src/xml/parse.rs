//! OSM XML and OsmChange: what the tags mean.

use std::collections::HashSet;

use osmill_model::{BoundingBox, ElementId, Kind, Location};

use super::scan::{Content, Cursor, code};
use super::value::Value;
use crate::assemble::{Action, Assembler, Draft};
use crate::error::{Bad, Problem, Stop, shortened};
use crate::pieces::Fork;
use crate::reader::{Header, MAX_WARNINGS, Parse};

// Attributes of elements.
const ID: u128 = code(b"id");
const LAT: u128 = code(b"lat");
const LON: u128 = code(b"lon");
const VERSION: u128 = code(b"version");
const TIMESTAMP: u128 = code(b"timestamp");
const CHANGESET: u128 = code(b"changeset");
const UID: u128 = code(b"uid");
const USER: u128 = code(b"user");
const VISIBLE: u128 = code(b"visible");
const ACTION: u128 = code(b"action");

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
                is_change: self.header.is_change,
                ..Header::default()
            },
            warned: self.warned.clone(),
            ..XmlParser::default()
        }
    }

    fn fork_behind(&self, data: &[u8]) -> Self {
        let mut fork = self.fork();
        if let Section::Action(_) = self.section {
            let tags = memchr::memrchr_iter(b'<', data).map(|at| &data[at + 1..]);
            let action = tags.filter_map(Action::at_start).next();
            fork.section = action.map_or(self.section, Section::Action);
        }
        fork
    }

    fn agrees(&self, other: &Self) -> bool {
        self.section == other.section
    }

    fn join(&mut self, mut piece: Self) {
        self.section = piece.section;
        self.header.timestamp = piece.header.timestamp.or(self.header.timestamp);
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
                if c.attributes(|_, _| Ok(()))? {
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
        let open = c.attributes(|name, value| {
            match name.text {
                b"version" => header.version = Some(value.string()?),
                b"generator" => header.generator = Some(value.string()?),
                b"upload" => header.upload = Some(value.string()?),
                b"timestamp" | b"osmosis_replication_timestamp" => {
                    header.timestamp = Some(value.timestamp()?);
                }
                b"copyright" | b"attribution" | b"license" => {}
                name if name.starts_with(b"xmlns") || name.starts_with(b"xsi:") => {}
                name => self.warn_attribute(value.at, "osm", name),
            }
            Ok(())
        })?;
        self.header = header;
        self.section = if open { section } else { Section::Epilog };
        Ok(())
    }

    /// What may stand beside elements: bounds in two spellings, and the note of when the data was taken.
    fn root_child(&mut self, c: &mut Cursor<'_>, name: &[u8], at: usize) -> Result<(), Stop> {
        let open = match name {
            b"bounds" => self.bounds(c, at)?,
            b"bound" => self.bound(c)?,
            b"meta" => c.attributes(|name, value| {
                if name.text == b"osm_base" {
                    self.header.timestamp = Some(value.timestamp()?);
                }
                Ok(())
            })?,
            _ => {
                let parent = if self.header.is_change { "osmChange" } else { "osm" };
                return self.pass_over(c, at, parent, name);
            }
        };
        c.skip_content_if(open)
    }

    /// Reads the attributes of `<bounds>`; gives whether the element is open.
    fn bounds(&mut self, c: &mut Cursor<'_>, at: usize) -> Result<bool, Stop> {
        let [mut left, mut bottom, mut right, mut top] = [None; 4];
        let open = c.attributes(|name, value| {
            match name.text {
                b"minlon" => left = Some(value.degrees("minlon")?),
                b"minlat" => bottom = Some(value.degrees("minlat")?),
                b"maxlon" => right = Some(value.degrees("maxlon")?),
                b"maxlat" => top = Some(value.degrees("maxlat")?),
                b"origin" => {}
                name => self.warn_attribute(value.at, "bounds", name),
            }
            Ok(())
        })?;
        let (Some(left), Some(bottom), Some(right), Some(top)) = (left, bottom, right, top) else {
            return Err(missing(at, "bounds", "minlon, minlat, maxlon or maxlat"));
        };
        let bounds = BoundingBox::new(left, bottom, right, top);
        self.header.bounds.push(bounds);
        Ok(open)
    }

    /// Reads the attributes of `<bound>`, as older files have it; gives whether the element is open.
    fn bound(&mut self, c: &mut Cursor<'_>) -> Result<bool, Stop> {
        c.attributes(|name, value| {
            if name.text == b"box" {
                let mut edges = value.text.split(|b| *b == b',').map(<[u8]>::trim_ascii);
                let mut edge = || {
                    let text = edges.next().unwrap_or_default();
                    Value { text, ..value }.degrees("box")
                };
                let [bottom, left, top, right] = [edge()?, edge()?, edge()?, edge()?];
                let bounds = BoundingBox::new(left, bottom, right, top);
                self.header.bounds.push(bounds);
            }
            Ok(())
        })
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
        let open = c.attributes(|name, value| {
            let draft = &mut self.draft;
            match name.code {
                ID => draft.id = Some(value.id("id")?),
                LAT if kind == Kind::Node => draft.lat = Some(value.latitude()?),
                LON if kind == Kind::Node => draft.lon = Some(value.longitude()?),
                VERSION => draft.version = value.number("version")?,
                TIMESTAMP => draft.timestamp = Some(value.timestamp()?),
                CHANGESET => draft.changeset = value.changeset()?,
                UID => draft.uid = value.number("uid")?,
                USER => draft.user = Some(value.keep(draft)?),
                VISIBLE => draft.visible = Some(value.truth("visible")?),
                ACTION => deleted = value.text == b"delete",
                _ => self.warn_attribute(value.at, kind.name(), name.text),
            }
            Ok(())
        })?;
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
            if self.plain_child(c, kind)? {
                continue;
            }
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

    /// Reads a child in the layout that writers give it; `false` where anything else stands.
    #[inline]
    fn plain_child(&mut self, c: &mut Cursor<'_>, kind: Kind) -> Result<bool, Stop> {
        let draft = &mut self.draft;
        if kind == Kind::Way
            && let Some(node) = c.plain_reference()
        {
            draft.push_ref(node.id("ref")?, None);
        } else if let Some([key, value]) = c.plain_tag() {
            let (key, value) = (key.keep(draft)?, value.keep(draft)?);
            draft.tags.push((key, value));
        } else if kind == Kind::Relation
            && let Some([kind, member, role]) = c.plain_member()
        {
            let member = ElementId::new(member_kind(kind)?, member.id("ref")?);
            let role = role.keep(draft)?;
            draft.members.push((member, role));
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn tag(&mut self, c: &mut Cursor<'_>, start: usize) -> Result<(), Stop> {
        let (mut key, mut value) = (None, None);
        let open = c.attributes(|name, text| {
            match name.text {
                b"k" => key = Some(text.keep(&mut self.draft)?),
                b"v" => value = Some(text.keep(&mut self.draft)?),
                name => self.warn_attribute(text.at, "tag", name),
            }
            Ok(())
        })?;
        let key = key.ok_or_else(|| missing(start, "tag", "k"))?;
        let value = value.ok_or_else(|| missing(start, "tag", "v"))?;
        self.draft.tags.push((key, value));
        c.skip_content_if(open)
    }

    fn node_reference(&mut self, c: &mut Cursor<'_>, start: usize) -> Result<(), Stop> {
        let (mut node, mut lon, mut lat) = (None, None, None);
        let open = c.attributes(|name, value| {
            match name.text {
                b"ref" => node = Some(value.id("ref")?),
                b"lat" => lat = Some(value.latitude()?),
                b"lon" => lon = Some(value.longitude()?),
                name => self.warn_attribute(value.at, "nd", name),
            }
            Ok(())
        })?;
        let node = node.ok_or_else(|| missing(start, "nd", "ref"))?;
        let location = lon.zip(lat).map(|(lon, lat)| Location { lon, lat });
        self.draft.push_ref(node, location);
        c.skip_content_if(open)
    }

    fn member(&mut self, c: &mut Cursor<'_>, start: usize) -> Result<(), Stop> {
        let (mut kind, mut member, mut role) = (None, None, None);
        let open = c.attributes(|name, value| {
            match name.text {
                b"type" => kind = Some(member_kind(value)?),
                b"ref" => member = Some(value.id("ref")?),
                b"role" => role = Some(value.keep(&mut self.draft)?),
                name => self.warn_attribute(value.at, "member", name),
            }
            Ok(())
        })?;
        let kind = kind.ok_or_else(|| missing(start, "member", "type"))?;
        let member = member.ok_or_else(|| missing(start, "member", "ref"))?;
        self.draft
            .members
            .push((ElementId::new(kind, member), role.unwrap_or(0..0)));
        c.skip_content_if(open)
    }

    /// Passes over an element that OSM data has no place for, with all that is in it.
    fn pass_over(&mut self, c: &mut Cursor<'_>, at: usize, parent: &str, name: &[u8]) -> Result<(), Stop> {
        c.skip_element()?;
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

fn member_kind(value: Value<'_>) -> Result<Kind, Stop> {
    kind_of(value.text).ok_or_else(|| value.bad("type", "node, way or relation"))
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
