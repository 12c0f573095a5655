//! Order and uniqueness of elements, blob by blob and across blobs.

use osmill_engine::KernelResult;
use osmill_model::ElementId;
use osmill_pbf::{Block, IndexRecord, Item};
use serde::Serialize;

/// Two neighbours of which the second should not come after the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Offence {
    /// Number of the blob that holds `element`.
    pub blob: u64,
    /// The element that came before.
    #[serde(serialize_with = "as_text")]
    pub previous: ElementId,
    /// The element that is out of place, or there again.
    #[serde(serialize_with = "as_text")]
    pub element: ElementId,
}

fn as_text<S: serde::Serializer>(id: &ElementId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

/// Position of an element in a sorted file: its id, then its version where there is history.
///
/// `None` where versions were not looked at.
type Place = (ElementId, Option<i32>);

/// What order the elements of one blob, or of neighbouring blobs, are in.
#[derive(Debug, Clone, Default)]
pub(crate) struct Order {
    first: Option<Place>,
    last: Option<Place>,
    /// How many elements are smaller than the one before.
    pub descents: u64,
    pub first_descent: Option<Offence>,
    /// How many elements are equal to the one before.
    pub repeats: u64,
    pub first_repeat: Option<Offence>,
    blob: u64,
}

impl Order {
    /// The order of the elements of a block. With `history`, versions count.
    pub fn of(block: &Block, blob: u64, history: bool) -> KernelResult<Order> {
        let mut order = Order {
            blob,
            ..Order::default()
        };
        if history {
            for element in block.elements() {
                let element = element?;
                order.push((element.element_id(), Some(element.version()?.unwrap_or(0))));
            }
            return Ok(order);
        }
        use osmill_model::Kind::{Node, Relation, Way};
        for group in block.groups() {
            let mut items = group.items();
            while let Some(item) = items.try_next()? {
                let id = match item {
                    Item::Dense(dense) => {
                        let mut ids = dense.ids();
                        while let Some(id) = ids.try_next()? {
                            order.push((ElementId::new(Node, id), None));
                        }
                        continue;
                    }
                    Item::Node(node) => ElementId::new(Node, node.id()),
                    Item::Way(way) => ElementId::new(Way, way.id()),
                    Item::Relation(relation) => ElementId::new(Relation, relation.id()),
                };
                order.push((id, None));
            }
        }
        Ok(order)
    }

    /// The order of a blob from its index record, as far as that tells: not where elements are out of order
    /// or repeated, and not with history.
    pub fn of_record(record: &IndexRecord, blob: u64) -> Option<Order> {
        (record.unique && !record.has_visibility || record.count() == 0)
            .then(|| Order::of_sorted(record, blob))
    }

    /// The order of a blob whose record says that it is sorted: where it begins and ends. Repetitions inside
    /// are not told.
    pub fn of_sorted(record: &IndexRecord, blob: u64) -> Order {
        Order {
            first: record.first().map(|id| (id, None)),
            last: record.last().map(|id| (id, None)),
            blob,
            ..Order::default()
        }
    }

    #[inline]
    fn push(&mut self, place: Place) {
        match self.last {
            Some(last) => self.compare(last, place, self.blob),
            None => self.first = Some(place),
        }
        self.last = Some(place);
    }

    #[inline]
    fn compare(&mut self, last: Place, place: Place, blob: u64) {
        let same = place.0 == last.0;
        let later = match (last.1, place.1) {
            (Some(before), Some(version)) if same => version.cmp(&before),
            // Versions tell nothing where one of them is not known.
            _ => place.0.cmp(&last.0),
        };
        if later.is_gt() {
            return;
        }
        let offence = Offence {
            blob,
            previous: last.0,
            element: place.0,
        };
        if later.is_eq() {
            self.repeats += 1;
            self.first_repeat.get_or_insert(offence);
        } else {
            self.descents += 1;
            self.first_descent.get_or_insert(offence);
        }
    }

    /// Appends the order of the next blob.
    pub fn append(&mut self, next: &Order) {
        if let (Some(last), Some(first)) = (self.last, next.first) {
            self.compare(last, first, next.blob);
        }
        self.first = self.first.or(next.first);
        self.last = next.last.or(self.last);
        self.descents += next.descents;
        self.repeats += next.repeats;
        self.first_descent = self.first_descent.or(next.first_descent);
        self.first_repeat = self.first_repeat.or(next.first_repeat);
    }

    /// The order of a file from those of its blobs, which may be given in any order.
    pub fn of_blobs(orders: impl IntoIterator<Item = Order>) -> Order {
        let mut orders: Vec<Order> = orders.into_iter().collect();
        orders.sort_unstable_by_key(|order| order.blob);
        let mut whole = Order::default();
        orders.iter().for_each(|order| whole.append(order));
        whole
    }

    pub fn is_sorted(&self) -> bool {
        self.descents == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use osmill_model::{Kind, Metadata};
    use osmill_pbf::BlockBuilder;

    fn order(blobs: &[&[(Kind, i64, i32)]], history: bool) -> Order {
        Order::of_blobs(blobs.iter().enumerate().map(|(i, places)| {
            let mut builder = BlockBuilder::default();
            for (kind, id, version) in *places {
                let metadata = Metadata {
                    version: Some(*version),
                    ..Metadata::default()
                };
                match kind {
                    Kind::Node => builder.add_node(*id, None, [], &metadata),
                    Kind::Way => builder.add_way(*id, &[], None, [], &metadata),
                    Kind::Relation => builder.add_relation(*id, &[], [], &metadata),
                }
            }
            let mut raw = Vec::new();
            builder.finish(&mut raw);
            Order::of(&Block::parse(raw).unwrap(), i as u64, history).unwrap()
        }))
    }

    #[test]
    fn unknown_versions_are_not_out_of_order() {
        let way = ElementId::new(Kind::Way, -16);
        let ends = |version, blob| Order {
            first: Some((way, version)),
            last: Some((way, version)),
            blob,
            ..Order::default()
        };
        for (before, after) in [(Some(1), None), (None, Some(1)), (None, None)] {
            let order = Order::of_blobs([ends(before, 0), ends(after, 1)]);
            assert_eq!((order.descents, order.repeats), (0, 1));
        }
        let order = Order::of_blobs([ends(Some(4), 0), ends(Some(1), 1)]);
        assert_eq!((order.descents, order.repeats), (1, 0));
    }

    #[test]
    fn offences_are_found_within_blobs_and_between() {
        use Kind::{Node, Way};
        let good = order(
            &[
                &[(Node, -1, 1), (Node, -2, 1), (Node, 1, 1)],
                &[],
                &[(Way, -5, 1)],
            ],
            false,
        );
        assert!(good.is_sorted() && good.repeats == 0);
        let bad = order(
            &[
                &[(Node, 1, 1), (Node, 5, 1)],
                &[(Node, 3, 1), (Node, 3, 2), (Way, 1, 1)],
            ],
            false,
        );
        assert_eq!((bad.descents, bad.repeats), (1, 1));
        let (n3, n5) = (ElementId::new(Node, 3), ElementId::new(Node, 5));
        assert_eq!(
            bad.first_descent,
            Some(Offence {
                blob: 1,
                previous: n5,
                element: n3
            })
        );
        assert_eq!(
            bad.first_repeat,
            Some(Offence {
                blob: 1,
                previous: n3,
                element: n3
            })
        );
        let history = order(
            &[&[(Node, 3, 1), (Node, 3, 2)], &[(Node, 3, 2), (Node, 3, 1)]],
            true,
        );
        assert_eq!((history.descents, history.repeats), (1, 1));
    }
}
