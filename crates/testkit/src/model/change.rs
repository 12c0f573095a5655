//! Changes: applied, merged, derived; and differences.

use std::collections::BTreeMap;
use std::io::{self, Write};

use osmill_model::{ElementId, Kind, Location, format_coordinate, id_order};

use super::data::Data;
use super::element::{Element, Text};

/// What a change file does with an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// The element is new.
    Create,
    /// The element replaces an older version.
    Modify,
    /// The element is no more.
    Delete,
}

impl Action {
    /// The name of the XML element.
    pub const fn name(self) -> &'static str {
        match self {
            Action::Create => "create",
            Action::Modify => "modify",
            Action::Delete => "delete",
        }
    }
}

/// A change: actions in file order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Change {
    /// The actions and the elements they bring. Elements do not carry `visible`; the action says it.
    pub actions: Vec<(Action, Element)>,
}

/// Whether the first of two versions of an element gives way to the second: see the module's order.
fn gives_way(first: &Element, second: &Element) -> bool {
    (first.version(), first.seconds()) <= (second.version(), second.seconds())
}

impl Change {
    /// A change from lines of OPL, each with `+`, `~` or `-` before it: `~ n1 v2 x1 y1`.
    ///
    /// # Panics
    ///
    /// If a line does not read so.
    pub fn opl(lines: &str) -> Change {
        let actions = lines
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .map(|line| {
                let (action, element) = line.split_at(1);
                let action = match action {
                    "+" => Action::Create,
                    "~" => Action::Modify,
                    "-" => Action::Delete,
                    _ => panic!("'{line}' does not begin with +, ~ or -"),
                };
                (action, element.parse().unwrap_or_else(|error| panic!("{error}")))
            })
            .collect();
        Change { actions }
    }

    /// *merge-changes*: all actions, sorted by kind, id, version and time; equal ones keep their order.
    pub fn merge(changes: &[&Change]) -> Change {
        let mut actions: Vec<_> = changes.iter().flat_map(|c| c.actions.clone()).collect();
        actions.sort_by_key(|(_, e)| (e.kind(), id_order(e.id.id), e.version(), e.seconds()));
        Change { actions }
    }

    /// *merge-changes --simplify*: of each element the newest action only.
    pub fn simplify(changes: &[&Change]) -> Change {
        let mut newest: BTreeMap<ElementId, (Action, Element)> = BTreeMap::new();
        for (action, element) in Change::merge(changes).actions {
            newest.insert(element.id, (action, element));
        }
        Change {
            actions: newest.into_values().collect(),
        }
    }

    /// The change as an OsmChange document.
    pub fn to_osc(&self) -> Vec<u8> {
        let write = || -> io::Result<Vec<u8>> {
            let mut writer = OscWriter::new(Vec::new(), "osmill-testkit")?;
            for (action, element) in &self.actions {
                writer.write(*action, element)?;
            }
            writer.finish()
        };
        write().expect("memory takes everything")
    }
}

/// Writes an OsmChange document, action by action. Neighbours with the same action share an element.
#[derive(Debug)]
pub struct OscWriter<W: Write> {
    out: W,
    open: Option<Action>,
    text: String,
}

impl<W: Write> OscWriter<W> {
    /// Begins a document.
    pub fn new(mut out: W, generator: &str) -> io::Result<Self> {
        let head = "<?xml version='1.0' encoding='UTF-8'?>";
        writeln!(
            out,
            "{head}\n<osmChange version=\"0.6\" generator=\"{generator}\">"
        )?;
        Ok(OscWriter {
            out,
            open: None,
            text: String::new(),
        })
    }

    /// Writes an action.
    pub fn write(&mut self, action: Action, element: &Element) -> io::Result<()> {
        if self.open != Some(action) {
            self.close()?;
            writeln!(self.out, " <{}>", action.name())?;
            self.open = Some(action);
        }
        self.text.clear();
        push_xml(&mut self.text, element);
        self.out.write_all(self.text.as_bytes())
    }

    fn close(&mut self) -> io::Result<()> {
        match self.open.take() {
            Some(action) => writeln!(self.out, " </{}>", action.name()),
            None => Ok(()),
        }
    }

    /// Ends the document.
    pub fn finish(mut self) -> io::Result<W> {
        self.close()?;
        writeln!(self.out, "</osmChange>")?;
        Ok(self.out)
    }
}

/// Appends text with what XML gives a meaning to, and white space, as references.
fn push_xml_text(out: &mut String, text: &[u8]) {
    for c in String::from_utf8_lossy(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\n' | '\r' | '\t' => out.push_str(&format!("&#{};", c as u32)),
            c => out.push(c),
        }
    }
}

fn degrees(value: i32) -> String {
    let mut out = Vec::new();
    format_coordinate(&mut out, value);
    String::from_utf8_lossy(&out).into_owned()
}

/// Appends an element as OSM XML.
fn push_xml(out: &mut String, element: &Element) {
    let name = element.kind().name();
    out.push_str(&format!("  <{name} id=\"{}\"", element.id.id));
    let m = &element.metadata;
    let mut attribute = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            out.push_str(&format!(" {name}=\""));
            push_xml_text(out, value.as_bytes());
            out.push('"');
        }
    };
    attribute("version", m.version.map(|v| v.to_string()));
    attribute("timestamp", m.timestamp.map(|t| t.to_string()));
    attribute("changeset", m.changeset.map(|c| c.to_string()));
    attribute("uid", m.uid.map(|u| u.to_string()));
    let user = m.user.as_ref();
    attribute(
        "user",
        user.map(|Text(u)| String::from_utf8_lossy(u).into_owned()),
    );
    attribute("lat", element.location.map(|l| degrees(l.lat)));
    attribute("lon", element.location.map(|l| degrees(l.lon)));
    if element.refs.is_empty() && element.members.is_empty() && element.tags.is_empty() {
        out.push_str("/>\n");
        return;
    }
    out.push_str(">\n");
    for id in &element.refs {
        out.push_str(&format!("   <nd ref=\"{id}\"/>\n"));
    }
    for member in &element.members {
        let ElementId { kind, id } = member.element;
        out.push_str(&format!("   <member type=\"{kind}\" ref=\"{id}\" role=\""));
        push_xml_text(out, &member.role.0);
        out.push_str("\"/>\n");
    }
    for (key, value) in &element.tags {
        out.push_str("   <tag k=\"");
        push_xml_text(out, &key.0);
        out.push_str("\" v=\"");
        push_xml_text(out, &value.0);
        out.push_str("\"/>\n");
    }
    out.push_str(&format!("  </{name}>\n"));
}

/// How two versions of data differ in one element.
// Plain to match on; there are few of them.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    /// Only the first data has it.
    Left(Element),
    /// Only the second data has it.
    Right(Element),
    /// Both have this kind, id and version, but not with the same contents.
    Changed(Element, Element),
    /// Both have it.
    Same(Element),
}

/// *diff*: two sorted data compared version by version, as osmium does: elements belong together when kind,
/// id and version are equal.
///
/// `same` tells whether two elements that belong together have the same contents; `==` compares everything.
pub fn diff(left: &Data, right: &Data, same: impl Fn(&Element, &Element) -> bool) -> Vec<Difference> {
    let key = |e: &Element| (e.id, e.version());
    let (mut left, mut right) = (left.elements.iter().peekable(), right.elements.iter().peekable());
    let mut out = Vec::new();
    loop {
        let before = match (left.peek(), right.peek()) {
            (None, None) => return out,
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some(l), Some(r)) => key(l).cmp(&key(r)),
        };
        let l = left.next_if(|_| before.is_le());
        let r = right.next_if(|_| before.is_ge());
        out.push(match (l, r) {
            (Some(l), Some(r)) if same(l, r) => Difference::Same(l.clone()),
            (Some(l), Some(r)) => Difference::Changed(l.clone(), r.clone()),
            (Some(l), None) => Difference::Left(l.clone()),
            (None, Some(r)) => Difference::Right(r.clone()),
            (None, None) => return out,
        });
    }
}

impl Data {
    /// *apply-changes*: of each element the newest among the data and the changes, unless that is a deletion.
    /// Sorted. At equal version and time a later change stands before an earlier one, and that before the
    /// data.
    pub fn apply(&self, changes: &[&Change]) -> Data {
        let mut newest: BTreeMap<ElementId, (Action, Element)> = BTreeMap::new();
        let old = self.elements.iter().map(|e| (Action::Modify, e.clone()));
        let new = changes.iter().flat_map(|c| c.actions.iter().cloned());
        for (action, element) in old.chain(new) {
            if newest
                .get(&element.id)
                .is_none_or(|(_, known)| gives_way(known, &element))
            {
                newest.insert(element.id, (action, element));
            }
        }
        newest
            .into_values()
            .filter(|(action, _)| *action != Action::Delete)
            .map(|(_, element)| element)
            .collect()
    }

    /// *apply-changes --with-history*: every version of the data and the changes, deletions as versions that
    /// are not visible. Sorted; a version that comes several times stands once, as its last giver has it.
    pub fn apply_history(&self, changes: &[&Change]) -> Data {
        let mut versions: BTreeMap<(ElementId, i32), Element> = self
            .elements
            .iter()
            .map(|e| ((e.id, e.version()), e.clone()))
            .collect();
        for (action, element) in changes.iter().flat_map(|c| &c.actions) {
            let mut element = element.clone();
            element.metadata.visible = Some(*action != Action::Delete);
            if *action == Action::Delete {
                element.location = None;
            }
            versions.insert((element.id, element.version()), element);
        }
        versions.into_values().collect()
    }

    /// *apply-changes --locations-on-ways*: as [`Data::apply`], and every way carries locations: those of the
    /// nodes after the change, else those that some way carried before it. References to deleted or unknown
    /// nodes carry none.
    pub fn apply_with_locations(&self, changes: &[&Change]) -> Data {
        let mut locations: BTreeMap<i64, Option<Location>> = BTreeMap::new();
        for way in &self.elements {
            if let Some(on_way) = &way.locations {
                locations.extend(way.refs.iter().copied().zip(on_way.iter().copied()));
            }
        }
        locations.extend(self.node_locations());
        let mut data = self.apply(changes);
        let after = data.node_locations();
        for (_, node) in changes.iter().flat_map(|c| &c.actions) {
            if node.kind() == Kind::Node && !after.contains_key(&node.id.id) {
                locations.insert(node.id.id, None);
            }
        }
        locations.extend(after);
        for way in data.elements.iter_mut().filter(|e| e.kind() == Kind::Way) {
            let found = way.refs.iter().map(|id| locations.get(id).copied().flatten());
            way.locations = (!way.refs.is_empty()).then(|| found.collect());
        }
        data
    }

    /// *diff --osc*, *derive-changes*: what has to be done to `self`, without history, to make it `new`.
    ///
    /// An element is created when it was not there, modified when anything about it differs, deleted when it
    /// is no more, with its last version's metadata and without tags, references and members.
    pub fn derive(&self, new: &Data) -> Change {
        let index = |data: &Data| -> BTreeMap<ElementId, Element> {
            data.elements.iter().map(|e| (e.id, e.clone())).collect()
        };
        let (old, new) = (index(self), index(new));
        let mut actions: BTreeMap<ElementId, (Action, Element)> = BTreeMap::new();
        for (id, element) in &new {
            match old.get(id) {
                None => actions.insert(*id, (Action::Create, element.clone())),
                Some(before) if before != element => actions.insert(*id, (Action::Modify, element.clone())),
                Some(_) => None,
            };
        }
        for (id, element) in &old {
            if !new.contains_key(id) {
                let mut gone = Element::new(id.kind, id.id);
                gone.metadata = element.metadata.clone();
                gone.location = element.location;
                actions.insert(*id, (Action::Delete, gone));
            }
        }
        Change {
            actions: actions.into_values().collect(),
        }
    }
}
