//! Commands that select: extract, tags-filter, getid, getparents.

use std::collections::BTreeSet;

use osmill_model::{ElementId, Kind, Location};

use super::data::Data;
use super::element::Element;

/// How much of what crosses a region's edge an extract takes along.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Completeness {
    /// Ways with a node inside, relations with such a node or way; nothing is completed.
    Simple,
    /// Besides, all nodes of the ways, and the relations that contain the relations.
    CompleteWays,
    /// Besides, members of some relations.
    Smart(SmartOptions),
}

/// Which relations the smart strategy completes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmartOptions {
    /// Values of the tag `type` to complete; `None` for every relation.
    pub types: Option<Vec<String>>,
}

impl Default for SmartOptions {
    /// Multipolygons, as osmium has it.
    fn default() -> Self {
        SmartOptions {
            types: Some(vec!["multipolygon".into()]),
        }
    }
}

/// What was asked for and what came along, of a selection by ids or tags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selected {
    /// The elements, in the order of the input.
    pub data: Data,
    /// Those that were selected themselves.
    pub matched: BTreeSet<ElementId>,
    /// Those that came along because a selected one refers to them.
    pub referenced: BTreeSet<ElementId>,
}

impl Data {
    /// Adds whatever the ids refer to, over any number of steps.
    pub fn close_over_references(&self, ids: &BTreeSet<ElementId>) -> BTreeSet<ElementId> {
        let mut closed = ids.clone();
        loop {
            let before = closed.len();
            for element in &self.elements {
                if closed.contains(&element.id) {
                    closed.extend(element.references());
                }
            }
            if closed.len() == before {
                return closed;
            }
        }
    }

    /// Adds the relations that have one of the relations among the ids as a member, over any number of steps.
    pub fn close_over_parents(&self, ids: &BTreeSet<ElementId>) -> BTreeSet<ElementId> {
        let mut closed = ids.clone();
        loop {
            let before = closed.len();
            for element in &self.elements {
                let is_parent = element
                    .members
                    .iter()
                    .any(|m| m.element.kind == Kind::Relation && closed.contains(&m.element));
                if is_parent {
                    closed.insert(element.id);
                }
            }
            if closed.len() == before {
                return closed;
            }
        }
    }

    /// *extract*: what lies in a region. `inside` tells of a location whether it does.
    pub fn extract(&self, inside: impl Fn(Location) -> bool, strategy: &Completeness) -> Data {
        let mut ids: BTreeSet<ElementId> = self
            .elements
            .iter()
            .filter(|e| e.location.is_some_and(&inside))
            .map(|e| e.id)
            .collect();
        let has_one_of = |element: &Element, ids: &BTreeSet<ElementId>| {
            element
                .references()
                .iter()
                .any(|to| to.kind != Kind::Relation && ids.contains(to))
        };
        for kind in [Kind::Way, Kind::Relation] {
            let found: Vec<_> = self
                .elements
                .iter()
                .filter(|e| e.kind() == kind && has_one_of(e, &ids))
                .map(|e| e.id)
                .collect();
            ids.extend(found);
        }
        if *strategy == Completeness::Simple {
            return self.keep(|e| ids.contains(&e.id));
        }
        let inner = ids.clone();
        ids = self.close_over_parents(&ids);
        if let Completeness::Smart(options) = strategy {
            for element in self.elements.iter().filter(|e| e.kind() == Kind::Relation) {
                let wanted = match &options.types {
                    None => true,
                    Some(types) => types
                        .iter()
                        .any(|t| element.tag("type").is_some_and(|value| *value == t.as_str())),
                };
                if wanted && inner.contains(&element.id) {
                    let members = element.members.iter().map(|m| m.element);
                    ids.extend(members.filter(|to| to.kind != Kind::Relation));
                }
            }
        }
        let nodes: Vec<_> = self
            .elements
            .iter()
            .filter(|e| e.kind() == Kind::Way && ids.contains(&e.id))
            .flat_map(Element::references)
            .collect();
        ids.extend(nodes);
        self.keep(|e| ids.contains(&e.id))
    }

    fn selected(&self, matched: BTreeSet<ElementId>, references: bool, remove_tags: bool) -> Selected {
        let all = if references {
            self.close_over_references(&matched)
        } else {
            matched.clone()
        };
        let mut data = self.keep(|e| all.contains(&e.id));
        if remove_tags {
            for element in data.elements.iter_mut().filter(|e| !matched.contains(&e.id)) {
                element.tags.clear();
            }
        }
        let referenced = data.ids().difference(&matched).copied().collect();
        Selected {
            data,
            matched,
            referenced,
        }
    }

    /// *tags-filter*: the elements that match and, unless `omit_referenced`, what they refer to, over any
    /// number of steps. With `remove_tags` those that only came along lose their tags.
    pub fn tags_filter(
        &self,
        matches: impl Fn(&Element) -> bool,
        omit_referenced: bool,
        remove_tags: bool,
    ) -> Selected {
        let matched = self
            .elements
            .iter()
            .filter(|e| matches(e))
            .map(|e| e.id)
            .collect();
        self.selected(matched, !omit_referenced, remove_tags)
    }

    /// *getid*: the elements with these ids and, with `references`, what they refer to, over any number of
    /// steps; and which ids were not found.
    pub fn get_ids(
        &self,
        ids: &BTreeSet<ElementId>,
        references: bool,
        remove_tags: bool,
    ) -> (Selected, BTreeSet<ElementId>) {
        let there = self.ids();
        let found = ids.intersection(&there).copied().collect();
        let missing = ids.difference(&there).copied().collect();
        (self.selected(found, references, remove_tags), missing)
    }

    /// *removeid*: all but the elements with these ids.
    pub fn remove_ids(&self, ids: &BTreeSet<ElementId>) -> Data {
        self.keep(|e| !ids.contains(&e.id))
    }

    /// *getparents*: the ways and relations that refer to one of the ids directly, and with `add_self` the
    /// elements themselves.
    pub fn get_parents(&self, ids: &BTreeSet<ElementId>, add_self: bool) -> Data {
        self.keep(|e| (add_self && ids.contains(&e.id)) || e.references().iter().any(|to| ids.contains(to)))
    }
}
