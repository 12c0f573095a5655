//! proptest strategies for small data sets.
//!
//! Ids and coordinates come from small ranges, so that references meet, versions collide and locations lie
//! on each other: that is where the cases are. Everything generated survives a round trip through PBF: deleted
//! nodes have no location, and a way without references has no list of locations.

use osmill_model::{ElementId, Kind, Location, Timestamp};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::model::{Action, Change, Data, Element, Member, Metadata, Text};

/// What a generated data set may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// The most elements.
    pub elements: usize,
    /// Ids run from 1 to this, and from -1 down to minus this where negative ones are allowed.
    pub ids: i64,
    /// Whether negative ids (and 0) occur.
    pub negative: bool,
    /// Whether an id may occur in several versions, and versions may be deletions.
    pub history: bool,
    /// Whether ids and versions may repeat, and nothing is sorted.
    pub wild: bool,
    /// Whether metadata values may be absent one by one; otherwise each is there.
    pub partial_metadata: bool,
    /// Whether ways may carry locations.
    pub locations_on_ways: bool,
    /// Whether references may lead to elements that are not there.
    pub dangling: bool,
}

impl Shape {
    /// Sorted, one version of each element, every reference satisfied, positive ids.
    pub const CONSISTENT: Shape = Shape {
        elements: 40,
        ids: 20,
        negative: false,
        history: false,
        wild: false,
        partial_metadata: false,
        locations_on_ways: false,
        dangling: false,
    };
    /// Sorted, one version of each element; everything else may occur.
    pub const SORTED: Shape = Shape {
        negative: true,
        partial_metadata: true,
        locations_on_ways: true,
        dangling: true,
        ..Shape::CONSISTENT
    };
    /// Sorted, several versions of an element, deletions among them.
    pub const HISTORY: Shape = Shape {
        history: true,
        dangling: true,
        negative: true,
        ..Shape::CONSISTENT
    };
    /// Anything that a file can hold.
    pub const WILD: Shape = Shape {
        history: true,
        wild: true,
        ..Shape::SORTED
    };
}

/// Consistent, sorted, dangling, historic and wild data sets, each now and then.
pub fn data() -> impl Strategy<Value = Data> {
    prop_oneof![
        data_of(Shape::CONSISTENT),
        data_of(Shape::SORTED),
        data_of(Shape::HISTORY),
        data_of(Shape::WILD),
    ]
}

/// Data sets of a shape.
pub fn data_of(shape: Shape) -> impl Strategy<Value = Data> {
    vec(element(shape), 0..=shape.elements).prop_map(move |elements| tidy(Data { elements }, shape))
}

fn tidy(data: Data, shape: Shape) -> Data {
    let mut data = match (shape.wild, shape.history) {
        (true, _) => data,
        (false, true) => Data::merge_history(&[&data]),
        (false, false) => Data::merge(&[&data]),
    };
    if !shape.dangling {
        let ids = data.ids();
        for element in &mut data.elements {
            let there = |kind, id| ids.contains(&ElementId::new(kind, id));
            element.refs.retain(|id| there(Kind::Node, *id));
            element.locations = None;
            element.members.retain(|m| ids.contains(&m.element));
        }
    }
    data
}

fn id(shape: Shape) -> BoxedStrategy<i64> {
    if shape.negative {
        (-shape.ids..=shape.ids).boxed()
    } else {
        (1..=shape.ids).boxed()
    }
}

/// Ids of a kind and a shape, as elements of [`data_of`] have them.
pub fn element_id(shape: Shape) -> impl Strategy<Value = ElementId> {
    (kind(), id(shape)).prop_map(|(kind, id)| ElementId::new(kind, id))
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![4 => Just(Kind::Node), 2 => Just(Kind::Way), 1 => Just(Kind::Relation)]
}

/// Locations within a few degrees around 0/0, many of them equal to each other.
pub fn location() -> impl Strategy<Value = Location> {
    prop_oneof![
        (-3..=3, -3..=3).prop_map(|(x, y): (i32, i32)| Location::new(x * 10_000_000, y * 10_000_000)),
        (-30_000_000..=30_000_000, -30_000_000..=30_000_000).prop_map(|(x, y)| Location::new(x, y)),
    ]
}

/// Keys, values, roles and names: common words, odd characters, the empty string.
pub fn text() -> impl Strategy<Value = Text> {
    prop_oneof![
        8 => prop::sample::select(vec![
            "highway", "primary", "name", "type", "multipolygon", "route", "boundary", "yes", "no", "building",
        ])
        .prop_map(Text::from),
        1 => "\\PC{0,6}".prop_map(|s| Text::from(s.as_str())),
        1 => prop::sample::select(vec!["", "a b", "x=y,z", "100%", "Zürich", "日本", "\u{1f600}", "<&>\"'"])
            .prop_map(Text::from),
    ]
}

fn tags() -> impl Strategy<Value = Vec<(Text, Text)>> {
    prop_oneof![3 => Just(Vec::new()), 2 => vec((text(), text()), 0..4)]
}

fn metadata(shape: Shape) -> BoxedStrategy<Metadata> {
    let version = if shape.history { 1..5 } else { 1..3 };
    let full = (version, 0..50i64, 1..9i64, 0..5i32, text(), any::<bool>()).prop_map(
        move |(version, time, changeset, uid, user, visible)| Metadata {
            version: Some(version),
            timestamp: Some(Timestamp(1_500_000_000 + time * 86_400)),
            changeset: Some(changeset),
            uid: Some(uid),
            user: Some(user),
            visible: shape.history.then_some(visible),
        },
    );
    if !shape.partial_metadata {
        return full.boxed();
    }
    (full, option::weighted(0.3, any::<[bool; 6]>()))
        .prop_map(|(mut m, absent)| {
            let [a, b, c, d, e, f] = absent.unwrap_or_default();
            m.version = m.version.filter(|_| !a);
            m.timestamp = m.timestamp.filter(|_| !b);
            m.changeset = m.changeset.filter(|_| !c);
            m.uid = m.uid.filter(|_| !d);
            m.user = m.user.filter(|_| !e);
            m.visible = m.visible.filter(|_| !f);
            m
        })
        .boxed()
}

/// Elements of a shape.
pub fn element(shape: Shape) -> impl Strategy<Value = Element> {
    (
        element_id(shape),
        metadata(shape),
        tags(),
        option::weighted(0.95, location()),
        vec((id(shape), option::weighted(0.8, location())), 0..6),
        any::<bool>(),
        vec((element_id(shape), text()), 0..5),
    )
        .prop_map(
            move |(id, metadata, tags, location, refs, carries_locations, members)| {
                let mut element = Element::new(id.kind, id.id);
                element.metadata = metadata;
                element.tags = tags;
                match id.kind {
                    Kind::Node => element.location = location.filter(|_| element.is_visible()),
                    Kind::Way => {
                        element.refs = refs.iter().map(|(id, _)| *id).collect();
                        if shape.locations_on_ways && carries_locations && !refs.is_empty() {
                            element.locations = Some(refs.into_iter().map(|(_, l)| l).collect());
                        }
                    }
                    Kind::Relation => {
                        element.members = members
                            .into_iter()
                            .map(|(element, role)| Member { element, role })
                            .collect();
                    }
                }
                element
            },
        )
}

/// Changes: creations, modifications and deletions of elements of a shape, in any order, repeated or not.
pub fn change(shape: Shape) -> impl Strategy<Value = Change> {
    let action = prop::sample::select(vec![Action::Create, Action::Modify, Action::Delete]);
    vec((action, element(shape)), 0..15).prop_map(|mut actions| {
        for (action, element) in &mut actions {
            element.metadata.visible = None;
            element.locations = None;
            if *action == Action::Create {
                element.metadata.version = element.metadata.version.map(|_| 1);
            }
        }
        Change { actions }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest! {
        #[test]
        fn everything_survives_pbf(data in data()) {
            prop_assert_eq!(Data::from_pbf(&data.to_pbf()).unwrap(), data);
        }

        #[test]
        fn consistent_data_is(data in data_of(Shape::CONSISTENT)) {
            prop_assert!(data.is_sorted());
            prop_assert_eq!(data.order_faults(false), vec![]);
            prop_assert_eq!(data.missing_references(true), vec![]);
        }

        #[test]
        fn history_is_sorted(data in data_of(Shape::HISTORY)) {
            prop_assert_eq!(data.order_faults(true), vec![]);
        }
    }
}
