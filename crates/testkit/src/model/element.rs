//! Owned elements, and their short text form.

use std::fmt;

use osmill_model::{ElementId, Kind, Location, Timestamp};
use osmill_pbf as pbf;

/// Bytes that are text nearly always. Files hold what they hold, so nothing is assumed.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Text(
    /// The bytes.
    pub Vec<u8>,
);

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Text(text.as_bytes().to_vec())
    }
}

impl From<&[u8]> for Text {
    fn from(text: &[u8]) -> Self {
        Text(text.to_vec())
    }
}

impl PartialEq<str> for Text {
    fn eq(&self, other: &str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        self == *other
    }
}

/// Metadata with its own strings; see [`osmill_model::Metadata`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Metadata {
    /// The version.
    pub version: Option<i32>,
    /// When this version was made.
    pub timestamp: Option<Timestamp>,
    /// The changeset that made it.
    pub changeset: Option<i64>,
    /// The number of the user.
    pub uid: Option<i32>,
    /// The name of the user.
    pub user: Option<Text>,
    /// Whether the element exists in this version.
    pub visible: Option<bool>,
}

impl Metadata {
    /// The same as a view.
    pub fn view(&self) -> osmill_model::Metadata<'_> {
        osmill_model::Metadata {
            version: self.version,
            timestamp: self.timestamp,
            changeset: self.changeset,
            uid: self.uid,
            user: self.user.as_ref().map(|user| user.0.as_slice()),
            visible: self.visible,
        }
    }

    /// A copy of a view.
    pub fn of(view: &osmill_model::Metadata<'_>) -> Self {
        Metadata {
            version: view.version,
            timestamp: view.timestamp,
            changeset: view.changeset,
            uid: view.uid,
            user: view.user.map(Text::from),
            visible: view.visible,
        }
    }
}

/// A member of a relation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Member {
    /// What it refers to.
    pub element: ElementId,
    /// As what.
    pub role: Text,
}

/// A node, way or relation that owns everything it has. Fields of other kinds are empty.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Element {
    /// Kind and id.
    pub id: ElementId,
    /// Metadata, each value of which may be absent.
    pub metadata: Metadata,
    /// Tags in their order; keys may repeat.
    pub tags: Vec<(Text, Text)>,
    /// Of a node: where it is; `None` for deleted nodes and unknown locations.
    pub location: Option<Location>,
    /// Of a way: the ids of its nodes.
    pub refs: Vec<i64>,
    /// Of a way that carries locations: one for each reference.
    pub locations: Option<Vec<Option<Location>>>,
    /// Of a relation: its members.
    pub members: Vec<Member>,
}

impl Element {
    /// An element with nothing but its id.
    pub fn new(kind: Kind, id: i64) -> Self {
        Element {
            id: ElementId::new(kind, id),
            metadata: Metadata::default(),
            tags: Vec::new(),
            location: None,
            refs: Vec::new(),
            locations: None,
            members: Vec::new(),
        }
    }

    /// A copy of a block's element.
    pub fn of(element: &pbf::Element<'_>) -> Result<Self, pbf::BlockError> {
        let mut own = Element::new(element.kind(), element.id());
        own.metadata = Metadata::of(&element.metadata()?);
        for tag in element.tags() {
            let tag = tag?;
            own.tags.push((tag.key.into(), tag.value.into()));
        }
        match element {
            pbf::Element::Node(node) => own.location = node.location()?,
            pbf::Element::Way(way) => {
                own.refs = way.refs().collect::<Result<_, _>>()?;
                if way.has_locations() {
                    own.locations = Some(way.locations().collect::<Result<_, _>>()?);
                }
            }
            pbf::Element::Relation(relation) => {
                for member in relation.members() {
                    let member = member?;
                    own.members.push(Member {
                        element: member.element,
                        role: member.role.into(),
                    });
                }
            }
        }
        Ok(own)
    }

    /// The kind.
    pub fn kind(&self) -> Kind {
        self.id.kind
    }

    /// The version, or 0 where there is none: how sorting and merging see it.
    pub fn version(&self) -> i32 {
        self.metadata.version.unwrap_or(0)
    }

    /// The time in seconds, or 0 where there is none: how sorting and merging see it.
    pub fn seconds(&self) -> i64 {
        self.metadata.timestamp.map_or(0, |t| t.0)
    }

    /// Whether the element exists in this version.
    pub fn is_visible(&self) -> bool {
        self.metadata.visible != Some(false)
    }

    /// The value of the first tag with this key.
    pub fn tag(&self, key: &str) -> Option<&Text> {
        self.tags.iter().find(|(k, _)| *k == key).map(|(_, value)| value)
    }

    /// What the element refers to: nodes of a way, members of a relation; in order, with repetitions.
    pub fn references(&self) -> Vec<ElementId> {
        let nodes = self.refs.iter().map(|id| ElementId::new(Kind::Node, *id));
        nodes.chain(self.members.iter().map(|m| m.element)).collect()
    }

    /// Appends the element to a block.
    pub fn add_to(&self, builder: &mut pbf::BlockBuilder) {
        let tags = self.tags.iter().map(|(key, value)| osmill_model::Tag {
            key: &key.0,
            value: &value.0,
        });
        let metadata = self.metadata.view();
        match self.kind() {
            Kind::Node => builder.add_node(self.id.id, self.location, tags, &metadata),
            Kind::Way => builder.add_way(self.id.id, &self.refs, self.locations.as_deref(), tags, &metadata),
            Kind::Relation => {
                let members: Vec<_> = self
                    .members
                    .iter()
                    .map(|m| osmill_model::Member {
                        element: m.element,
                        role: &m.role.0,
                    })
                    .collect();
                builder.add_relation(self.id.id, &members, tags, &metadata);
            }
        }
    }
}

impl fmt::Display for Element {
    /// A line of OPL in which what is absent is left out: `w7 v2 Tname=Vaduz Nn1,n2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.id)?;
        let m = &self.metadata;
        if let Some(version) = m.version {
            write!(f, " v{version}")?;
        }
        if let Some(visible) = m.visible {
            f.write_str(if visible { " dV" } else { " dD" })?;
        }
        if let Some(changeset) = m.changeset {
            write!(f, " c{changeset}")?;
        }
        if let Some(timestamp) = m.timestamp {
            write!(f, " t{timestamp}")?;
        }
        if let Some(uid) = m.uid {
            write!(f, " i{uid}")?;
        }
        if let Some(user) = &m.user {
            write!(f, " u{}", Escaped(user))?;
        }
        for (i, (key, value)) in self.tags.iter().enumerate() {
            let start = if i == 0 { " T" } else { "," };
            write!(f, "{start}{}={}", Escaped(key), Escaped(value))?;
        }
        if let Some(location) = self.location {
            let text = location.to_string();
            let (lon, lat) = text.split_once(',').ok_or(fmt::Error)?;
            write!(f, " x{lon} y{lat}")?;
        }
        for (i, id) in self.refs.iter().enumerate() {
            write!(f, "{}n{id}", if i == 0 { " N" } else { "," })?;
            if let Some(locations) = &self.locations {
                match locations.get(i).copied().flatten() {
                    Some(location) => {
                        let text = location.to_string();
                        let (lon, lat) = text.split_once(',').ok_or(fmt::Error)?;
                        write!(f, "x{lon}y{lat}")?;
                    }
                    None => f.write_str("xy")?,
                }
            }
        }
        for (i, member) in self.members.iter().enumerate() {
            let start = if i == 0 { " M" } else { "," };
            write!(f, "{start}{}@{}", member.element, Escaped(&member.role))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Element {
    /// As [`Display`](fmt::Display): one line says it all.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Text with OPL's `%hex%` for everything that could be mistaken for a separator.
struct Escaped<'a>(&'a Text);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if c.is_alphanumeric() || "_:;.-+*/()'\"!?&<>#".contains(c) {
                    write!(f, "{c}")?;
                } else {
                    write!(f, "%{:x}%", c as u32)?;
                }
            }
            if !chunk.invalid().is_empty() {
                f.write_str("%fffd%")?;
            }
        }
        Ok(())
    }
}

/// A line that is not OPL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a line of OPL")]
pub struct ParseOplError(
    /// The line.
    pub String,
);

impl std::str::FromStr for Element {
    type Err = ParseOplError;

    /// Reads a line of OPL. A field that is missing, or that is empty where a number must stand, is absent.
    /// `dV` is read as "visible is not said", since OPL has no other word for that.
    fn from_str(line: &str) -> Result<Self, ParseOplError> {
        parse_line(line).ok_or_else(|| ParseOplError(line.to_owned()))
    }
}

fn parse_line(line: &str) -> Option<Element> {
    let mut fields = line.split_ascii_whitespace();
    let id: ElementId = fields.next()?.parse().ok()?;
    let mut element = Element::new(id.kind, id.id);
    let (mut lon, mut lat) = (None, None);
    for field in fields {
        let (name, value) = field.split_at_checked(1)?;
        let m = &mut element.metadata;
        match name {
            _ if value.is_empty() => {}
            "v" => m.version = Some(value.parse().ok()?),
            "d" => m.visible = (value == "D").then_some(false),
            "c" => m.changeset = Some(value.parse().ok()?),
            "t" => m.timestamp = Some(value.parse().ok()?),
            "i" => m.uid = Some(value.parse().ok()?),
            "u" => m.user = Some(unescape(value)?),
            "x" => lon = Some(parse_coordinate(value)?),
            "y" => lat = Some(parse_coordinate(value)?),
            "T" => {
                for tag in value.split(',') {
                    let (key, value) = tag.split_once('=')?;
                    element.tags.push((unescape(key)?, unescape(value)?));
                }
            }
            "N" => {
                let mut locations = Vec::new();
                for reference in value.split(',') {
                    let (id, location) = match reference.split_once('x') {
                        Some((id, location)) => (id, Some(location)),
                        None => (reference, None),
                    };
                    element.refs.push(id.strip_prefix('n')?.parse().ok()?);
                    if let Some((lon, lat)) = location.and_then(|l| l.split_once('y')) {
                        locations.push(if lon.is_empty() {
                            None
                        } else {
                            Some(Location::new(parse_coordinate(lon)?, parse_coordinate(lat)?))
                        });
                    }
                }
                if !locations.is_empty() {
                    (locations.len() == element.refs.len()).then_some(())?;
                    element.locations = Some(locations);
                }
            }
            "M" => {
                for member in value.split(',') {
                    let (id, role) = member.split_once('@').unwrap_or((member, ""));
                    element.members.push(Member {
                        element: id.parse().ok()?,
                        role: unescape(role)?,
                    });
                }
            }
            _ => return None,
        }
    }
    if let (Some(lon), Some(lat)) = (lon, lat) {
        element.location = Some(Location::new(lon, lat));
    }
    Some(element)
}

fn parse_coordinate(text: &str) -> Option<i32> {
    let units = (text.parse::<f64>().ok()? * 1e7).round();
    (units.abs() <= f64::from(i32::MAX)).then_some(units as i32)
}

fn unescape(text: &str) -> Option<Text> {
    let mut out = String::new();
    let mut parts = text.split('%');
    out.push_str(parts.next()?);
    while let Some(code) = parts.next() {
        out.push(char::from_u32(u32::from_str_radix(code, 16).ok()?)?);
        out.push_str(parts.next()?);
    }
    Some(Text(out.into_bytes()))
}
