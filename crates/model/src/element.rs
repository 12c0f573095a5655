//! What elements carry besides their id.

use crate::{ElementId, Timestamp};

/// A key and a value. OSM says UTF-8 of at most 255 characters each; files hold what they hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
}

/// A member of a relation: what it refers to, and as what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Member<'a> {
    /// The element referred to.
    pub element: ElementId,
    /// The role, often empty.
    pub role: &'a [u8],
}

/// Who changed an element last, when, and how often it was changed. Each value may be absent from a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Metadata<'a> {
    /// The version, counted from 1 by the server.
    pub version: Option<i32>,
    /// When this version was made.
    pub timestamp: Option<Timestamp>,
    /// The changeset that made it.
    pub changeset: Option<i64>,
    /// The number of the user who made it; 0 is an anonymous one.
    pub uid: Option<i32>,
    /// The name of the user.
    pub user: Option<&'a [u8]>,
    /// Whether the element exists in this version; absent in files without history, where all exist.
    pub visible: Option<bool>,
}

impl Metadata<'_> {
    /// Whether the element exists in this version: anything but an explicit `false`.
    pub fn is_visible(&self) -> bool {
        self.visible != Some(false)
    }

    /// Whether no value is there.
    pub fn is_empty(&self) -> bool {
        *self == Metadata::default()
    }
}
