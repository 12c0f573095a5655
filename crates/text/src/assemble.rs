//! From parsed elements to blocks.

use std::ops::Range;

use osmill_model::{ElementId, Kind, Location, Member, Metadata, Tag, Timestamp};
use osmill_pbf::{Block, BlockBuilder, IndexRecord};

/// What a change file says about an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Action {
    /// It is new.
    Create,
    /// It has another version.
    Modify,
    /// It is no more.
    Delete,
}

impl Action {
    /// All of them.
    pub(crate) const ALL: [Action; 3] = [Action::Create, Action::Modify, Action::Delete];

    /// The name of OsmChange's element.
    pub const fn name(self) -> &'static str {
        match self {
            Action::Create => "create",
            Action::Modify => "modify",
            Action::Delete => "delete",
        }
    }

    /// The action whose name stands at the start of this text.
    pub(crate) fn at_start(text: &[u8]) -> Option<Action> {
        Action::ALL
            .into_iter()
            .find(|action| text.starts_with(action.name().as_bytes()))
    }
}

/// What is in a block that was read from text: elements of one kind, in the order of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextBlock {
    /// What the file says about all of the elements; `None` in data files.
    pub action: Option<Action>,
    /// Their kind.
    pub kind: Kind,
    /// How many they are, at least one.
    pub count: u32,
    /// What an index says of the block.
    pub index: IndexRecord,
}

/// A piece of [`Draft::text`].
pub(crate) type Span = Range<u32>;

/// The element that is being read. Its buffers are kept from one to the next.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub id: Option<i64>,
    pub lon: Option<i32>,
    pub lat: Option<i32>,
    pub version: Option<i32>,
    pub timestamp: Option<Timestamp>,
    pub changeset: Option<i64>,
    pub uid: Option<i32>,
    pub user: Option<Span>,
    pub visible: Option<bool>,
    pub text: Vec<u8>,
    pub tags: Vec<(Span, Span)>,
    pub refs: Vec<i64>,
    /// As long as `refs` where `any_location`.
    pub ref_locations: Vec<Option<Location>>,
    pub any_location: bool,
    pub members: Vec<(ElementId, Span)>,
}

impl Draft {
    pub fn clear(&mut self) {
        self.id = None;
        (self.lon, self.lat) = (None, None);
        self.version = None;
        self.timestamp = None;
        self.changeset = None;
        self.uid = None;
        self.user = None;
        self.visible = None;
        self.text.clear();
        self.tags.clear();
        self.refs.clear();
        self.ref_locations.clear();
        self.any_location = false;
        self.members.clear();
    }

    /// Keeps a piece of text.
    #[inline]
    pub fn keep(&mut self, text: &[u8]) -> Span {
        let start = self.text.len() as u32;
        self.text.extend_from_slice(text);
        start..self.text.len() as u32
    }

    /// Keeps what `write` appends.
    pub fn keep_with<E>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<Span, E> {
        let start = self.text.len() as u32;
        write(&mut self.text)?;
        Ok(start..self.text.len() as u32)
    }

    /// Adds a reference to a node.
    #[inline]
    pub fn push_ref(&mut self, id: i64, location: Option<Location>) {
        if location.is_some() && !self.any_location {
            self.any_location = true;
            self.ref_locations.resize(self.refs.len(), None);
        }
        self.refs.push(id);
        if self.any_location {
            self.ref_locations.push(location);
        }
    }
}

/// Puts elements into blocks of one kind and action.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    builder: BlockBuilder,
    open: Option<TextBlock>,
    done: Option<TextBlock>,
    bytes: Vec<u8>,
}

impl Assembler {
    /// Adds an element, which must have an id. Where it does not go into the open block, that is done first:
    /// [`is_ready`](Self::is_ready) is then true, and must be false before the next element is added.
    pub fn push(&mut self, kind: Kind, action: Option<Action>, draft: &Draft) {
        match &self.open {
            Some(open) if open.kind == kind && open.action == action && !self.builder.is_full() => {}
            _ => self.flush(),
        }
        let block = self.open.get_or_insert(TextBlock {
            action,
            kind,
            count: 0,
            index: IndexRecord::default(),
        });
        block.count += 1;
        let text = |span: &Span| &draft.text[span.start as usize..span.end as usize];
        let tags = draft.tags.iter().map(|(key, value)| Tag {
            key: text(key),
            value: text(value),
        });
        let metadata = Metadata {
            version: draft.version,
            timestamp: draft.timestamp,
            changeset: draft.changeset,
            uid: draft.uid,
            user: draft.user.as_ref().map(text),
            visible: draft.visible,
        };
        let id = draft.id.unwrap_or_default();
        match kind {
            Kind::Node => {
                let location = draft.lon.zip(draft.lat);
                let location = location.map(|(lon, lat)| Location { lon, lat });
                self.builder.add_node(id, location, tags, &metadata);
            }
            Kind::Way => {
                let locations = draft.any_location.then_some(draft.ref_locations.as_slice());
                self.builder.add_way(id, &draft.refs, locations, tags, &metadata);
            }
            Kind::Relation => {
                let members: Vec<Member<'_>> = draft
                    .members
                    .iter()
                    .map(|(element, role)| Member {
                        element: *element,
                        role: text(role),
                    })
                    .collect();
                self.builder.add_relation(id, &members, tags, &metadata);
            }
        }
    }

    /// Finishes the open block, if there is one. No other may be ready.
    pub fn flush(&mut self) {
        if let Some(block) = self.open.take() {
            debug_assert!(self.done.is_none(), "the block before was taken");
            self.bytes.clear();
            let index = self.builder.finish(&mut self.bytes);
            self.done = Some(TextBlock { index, ..block });
        }
    }

    /// Whether a block waits to be taken.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.done.is_some()
    }

    /// Takes the block that is ready; its bytes replace those of `out`.
    pub fn take(&mut self, out: &mut Vec<u8>) -> Option<TextBlock> {
        let block = self.done.take()?;
        std::mem::swap(&mut self.bytes, out);
        Some(block)
    }
}

/// Reads the bytes that a reader gave as a block.
pub(crate) fn refill(block: &mut Block, bytes: &mut Vec<u8>) -> Result<(), osmill_pbf::BlockError> {
    block.refill(|data| {
        std::mem::swap(data, bytes);
        Ok(())
    })
}
