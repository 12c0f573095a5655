//! Kinds of elements and their ids.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// The kind of an OSM element, in the order in which sorted files hold them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// A point.
    Node = 0,
    /// A line or ring through nodes.
    Way = 1,
    /// A list of members with roles.
    Relation = 2,
}

impl Kind {
    /// All kinds, in file order.
    pub const ALL: [Kind; 3] = [Kind::Node, Kind::Way, Kind::Relation];

    /// The lower-case name, as OSM XML spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Node => "node",
            Kind::Way => "way",
            Kind::Relation => "relation",
        }
    }

    /// The letter that id lists and OPL use: `n`, `w` or `r`.
    pub const fn letter(self) -> char {
        match self {
            Kind::Node => 'n',
            Kind::Way => 'w',
            Kind::Relation => 'r',
        }
    }

    /// The kind with this number (0 node, 1 way, 2 relation), which is also PBF's member type.
    pub const fn from_index(index: u64) -> Option<Kind> {
        match index {
            0 => Some(Kind::Node),
            1 => Some(Kind::Way),
            2 => Some(Kind::Relation),
            _ => None,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of [`Kind`]s.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct KindSet(u8);

impl KindSet {
    /// No kind.
    pub const NONE: KindSet = KindSet(0);
    /// Nodes only.
    pub const NODES: KindSet = KindSet(1);
    /// Ways only.
    pub const WAYS: KindSet = KindSet(2);
    /// Relations only.
    pub const RELATIONS: KindSet = KindSet(4);
    /// Every kind.
    pub const ALL: KindSet = KindSet(7);

    /// Whether `kind` is in the set.
    pub const fn contains(self, kind: Kind) -> bool {
        self.0 & (1 << kind as u8) != 0
    }

    /// Whether the sets share a kind.
    pub const fn intersects(self, other: KindSet) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether every kind of `other` is in this set.
    pub const fn is_superset(self, other: KindSet) -> bool {
        self.0 & other.0 == other.0
    }

    /// The kinds that are in either set.
    pub const fn union(self, other: KindSet) -> KindSet {
        KindSet(self.0 | other.0)
    }

    /// Adds a kind.
    pub fn insert(&mut self, kind: Kind) {
        self.0 |= 1 << kind as u8;
    }

    /// Whether no kind is in the set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The number of kinds in the set.
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// The kinds in file order.
    pub fn iter(self) -> impl Iterator<Item = Kind> {
        Kind::ALL.into_iter().filter(move |kind| self.contains(*kind))
    }

    /// The only kind of the set, if there is exactly one.
    pub fn single(self) -> Option<Kind> {
        (self.len() == 1).then(|| self.iter().next()).flatten()
    }

    /// The set as three bits: 1 node, 2 way, 4 relation.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The set of these bits; higher bits are dropped.
    pub const fn from_bits(bits: u8) -> KindSet {
        KindSet(bits & 7)
    }
}

impl From<Kind> for KindSet {
    fn from(kind: Kind) -> Self {
        KindSet(1 << kind as u8)
    }
}

impl FromIterator<Kind> for KindSet {
    fn from_iter<I: IntoIterator<Item = Kind>>(kinds: I) -> Self {
        kinds
            .into_iter()
            .fold(KindSet::NONE, |set, kind| set.union(kind.into()))
    }
}

impl std::ops::BitOr for KindSet {
    type Output = KindSet;
    fn bitor(self, other: KindSet) -> KindSet {
        self.union(other)
    }
}

impl fmt::Debug for KindSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl fmt::Display for KindSet {
    /// `node+way`, or `none`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        for (i, kind) in self.iter().enumerate() {
            if i > 0 {
                f.write_str("+")?;
            }
            f.write_str(kind.name())?;
        }
        Ok(())
    }
}

/// A number that orders ids as sorted OSM files do: 0, then -1, -2, ... (by absolute value), then 1, 2, ...
///
/// The mapping is one to one on all of `i64`.
///
/// ```
/// use osmill_model::id_order;
/// let mut ids = [2, -2, 1, 0, -1];
/// ids.sort_by_key(|&id| id_order(id));
/// assert_eq!(ids, [0, -1, -2, 1, 2]);
/// ```
#[inline]
pub const fn id_order(id: i64) -> u64 {
    if id > 0 {
        (1 << 63) | id as u64
    } else {
        id.unsigned_abs()
    }
}

/// A kind and an id. The order is that of sorted files: kind, then [`id_order`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ElementId {
    /// The kind of the element.
    pub kind: Kind,
    /// Its id; negative for elements that no server has numbered yet.
    pub id: i64,
}

impl ElementId {
    /// The element of this kind and id.
    pub const fn new(kind: Kind, id: i64) -> Self {
        ElementId { kind, id }
    }
}

impl Ord for ElementId {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.kind, id_order(self.id)).cmp(&(other.kind, id_order(other.id)))
    }
}

impl PartialOrd for ElementId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for ElementId {
    /// `n17`, `w-3`: the spelling of OPL and of id lists.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.kind.letter(), self.id)
    }
}

/// An element id that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not an element id; write n17, w-3, node/17, relation 5 or an openstreetmap.org address of one"
)]
pub struct ParseIdError(
    /// The text as it was given.
    pub String,
);

impl ElementId {
    /// Reads an id in any spelling that people use: `n17`, `node/17`, `node 17`, `way:17`, a bare `17` of
    /// the `default` kind, or the address of an element's page on a map server.
    pub fn parse_with_default(text: &str, default: Option<Kind>) -> Result<ElementId, ParseIdError> {
        let fail = || ParseIdError(text.to_owned());
        let mut rest = text.trim();
        if let Some((_, path)) = rest.split_once("://") {
            let path = path.split_once('/').ok_or_else(fail)?.1;
            rest = path.split(['#', '?']).next().unwrap_or_default();
            rest = rest
                .strip_suffix("/history")
                .unwrap_or(rest)
                .trim_end_matches('/');
        }
        let digits = rest
            .find(|c: char| c.is_ascii_digit() || c == '-' || c == '+')
            .ok_or_else(fail)?;
        let (word, number) = rest.split_at(digits);
        let kind = match word.trim_end_matches(['/', ' ', ':', '=', '\t']) {
            "" if word.is_empty() => default.ok_or_else(fail)?,
            "n" | "node" | "N" => Kind::Node,
            "w" | "way" | "W" => Kind::Way,
            "r" | "relation" | "rel" | "R" => Kind::Relation,
            _ => return Err(fail()),
        };
        number
            .parse()
            .map(|id| ElementId::new(kind, id))
            .map_err(|_| fail())
    }
}

impl FromStr for ElementId {
    type Err = ParseIdError;
    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        ElementId::parse_with_default(text, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn order_is_the_fields() {
        let ids = [0, -1, -2, i64::MIN, 1, 2, i64::MAX];
        assert!(ids.windows(2).all(|w| id_order(w[0]) < id_order(w[1])));
        assert!(ElementId::new(Kind::Node, 9) < ElementId::new(Kind::Way, -1));
    }

    #[test]
    fn every_spelling_of_an_id() {
        for text in [
            "n17",
            "node/17",
            "node 17",
            "https://www.openstreetmap.org/node/17",
            "N17",
            "https://www.openstreetmap.org/node/17/history#map=19/1.0/2.0",
            " n17 ",
        ] {
            assert_eq!(
                text.parse::<ElementId>(),
                Ok(ElementId::new(Kind::Node, 17)),
                "{text}"
            );
        }
        assert_eq!("w-3".parse::<ElementId>(), Ok(ElementId::new(Kind::Way, -3)));
        assert_eq!(
            ElementId::parse_with_default("5", Some(Kind::Relation)),
            Ok(ElementId::new(Kind::Relation, 5))
        );
        for text in [
            "",
            "x1",
            "n",
            "17",
            "n1x",
            "node/",
            "n99999999999999999999",
            "https://a",
            "/5",
        ] {
            assert!(text.parse::<ElementId>().is_err(), "{text}");
        }
    }

    #[test]
    fn kind_sets() {
        let set: KindSet = [Kind::Node, Kind::Relation].into_iter().collect();
        assert_eq!(set.to_string(), "node+relation");
        assert_eq!(set.single(), None);
        assert_eq!(KindSet::WAYS.single(), Some(Kind::Way));
        assert!(KindSet::ALL.is_superset(set) && !set.is_superset(KindSet::ALL));
        assert_eq!(KindSet::from_bits(set.bits()), set);
        assert_eq!(KindSet::NONE.to_string(), "none");
    }

    proptest! {
        #[test]
        fn id_order_is_one_to_one(a: i64, b: i64) {
            prop_assert_eq!(a == b, id_order(a) == id_order(b));
        }

        #[test]
        fn display_parses_back(id: i64, kind in 0u64..3) {
            let id = ElementId::new(Kind::from_index(kind).unwrap(), id);
            prop_assert_eq!(id.to_string().parse::<ElementId>(), Ok(id));
        }
    }
}
