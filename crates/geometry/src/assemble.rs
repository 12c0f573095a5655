//! Rings from the ways of a boundary or multipolygon relation.

use std::collections::{HashMap, HashSet};
use std::fmt;

use osmill_model::Location;

use crate::{MultiPolygon, RegionError};

/// What a way is to the area of its relation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Part of the border around the area.
    Outer,
    /// Part of the border of a hole.
    Inner,
}

impl Role {
    /// The role that a way has by the role of its membership; `None` if such members are no border: those of a
    /// boundary's `subarea`, `label` and `admin_centre` above all. No role is `outer`.
    pub fn of_member(role: &[u8]) -> Option<Role> {
        match role {
            b"" | b"outer" | b"exclave" => Some(Role::Outer),
            b"inner" | b"enclave" => Some(Role::Inner),
            _ => None,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Outer => "outer",
            Role::Inner => "inner",
        })
    }
}

/// A way of a border.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BorderWay {
    /// The way's id, under which it counts once even if it is a member twice.
    pub id: i64,
    /// What it is part of.
    pub role: Role,
    /// Its nodes, in order: id and location.
    pub nodes: Vec<(i64, Location)>,
}

/// A node where a border ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenEnd {
    /// The node.
    pub node: i64,
    /// Where it is.
    pub location: Location,
    /// A way that ends there.
    pub way: i64,
}

impl fmt::Display for OpenEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "node {} at {} (end of way {})",
            self.node, self.location, self.way
        )
    }
}

/// Why ways make no area.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// There are gaps.
    #[error(
        "the {role} border is open at {total} nodes: {}{}; are all its ways there?",
        .ends.iter().map(OpenEnd::to_string).collect::<Vec<_>>().join(", "),
        if ends.len() < *total { ", ..." } else { "" }
    )]
    Open {
        /// Of which border.
        role: Role,
        /// The number of nodes where an odd number of ways end.
        total: usize,
        /// The first of these, at most [`RingError::SHOWN`].
        ends: Vec<OpenEnd>,
    },
    /// No way is part of an outer border.
    #[error("no member way encloses anything (of {ways} ways, none makes an outer ring)")]
    NoOuter {
        /// The number of ways given.
        ways: usize,
    },
}

impl RingError {
    /// The most open ends that an error lists.
    pub const SHOWN: usize = 5;
}

/// Joins ways at their ends to rings, and makes an area of these as [`MultiPolygon::from_rings`] does.
///
/// Ways are joined by the ids of their end nodes, outer with outer and inner with inner ways, in any direction
/// and order. Where rings touch at a node, they are taken apart so that no ring passes it twice. Ways that
/// enclose nothing (closed ones of fewer than three nodes, ones of a single node) are passed over.
/// O(nodes) expected.
///
/// # Errors
///
/// [`RegionError::Rings`] if a border has gaps, or there is no outer ring; [`RegionError::TooComplex`].
pub fn assemble(ways: &[BorderWay]) -> Result<MultiPolygon, RegionError> {
    let outers = rings(ways, Role::Outer)?;
    if outers.is_empty() {
        return Err(RingError::NoOuter { ways: ways.len() }.into());
    }
    MultiPolygon::from_rings(&outers, &rings(ways, Role::Inner)?)
}

/// The rings of one role.
fn rings(ways: &[BorderWay], role: Role) -> Result<Vec<Vec<Location>>, RingError> {
    let mut seen = HashSet::new();
    let ways = ways.iter().filter(|way| way.role == role && seen.insert(way.id));
    let mut rings = Vec::new();
    let mut open: Vec<&BorderWay> = Vec::new();
    for way in ways {
        let ([(first, _), .., (last, _)], 2..) = (&way.nodes[..], way.nodes.len()) else {
            continue;
        };
        if first != last {
            open.push(way);
        } else if way.nodes.len() > 3 {
            rings.push(locations(way, false).collect());
        }
    }
    let mut at_node: HashMap<i64, Vec<usize>> = HashMap::new();
    for (number, way) in open.iter().enumerate() {
        for node in ends(way) {
            at_node.entry(node).or_default().push(number);
        }
    }
    check_closed(&open, &at_node, role)?;
    let mut used = vec![false; open.len()];
    for start in 0..open.len() {
        if used[start] {
            continue;
        }
        // Every node has an even number of ends, so a walk can only stop where it began.
        let mut path: Vec<(usize, bool)> = Vec::new();
        let mut passed: HashMap<i64, usize> = HashMap::new();
        let mut node = ends(open[start])[0];
        passed.insert(node, 0);
        loop {
            let next = at_node.get_mut(&node).and_then(|ways| {
                while ways.last().is_some_and(|&way| used[way]) {
                    ways.pop();
                }
                ways.pop()
            });
            let Some(next) = next else { break };
            used[next] = true;
            let [first, last] = ends(open[next]);
            let reversed = first != node;
            path.push((next, reversed));
            node = if reversed { first } else { last };
            if let Some(&begin) = passed.get(&node) {
                let ring: Vec<_> = path
                    .drain(begin..)
                    .flat_map(|(number, reversed)| {
                        let way = open[number];
                        passed.remove(&ends(way)[usize::from(!reversed)]);
                        locations(way, reversed)
                    })
                    .collect();
                passed.insert(node, begin);
                rings.push(ring);
            } else {
                passed.insert(node, path.len());
            }
        }
    }
    Ok(rings)
}

/// The first and the last node of an open way.
fn ends(way: &BorderWay) -> [i64; 2] {
    let id = |node: Option<&(i64, Location)>| node.map_or(0, |&(id, _)| id);
    [id(way.nodes.first()), id(way.nodes.last())]
}

/// The locations of a way but the last one, which the next way begins with.
fn locations(way: &BorderWay, reversed: bool) -> impl Iterator<Item = Location> {
    let count = way.nodes.len() - 1;
    (0..count).map(move |i| way.nodes[if reversed { count - i } else { i }].1)
}

fn check_closed(
    open: &[&BorderWay],
    at_node: &HashMap<i64, Vec<usize>>,
    role: Role,
) -> Result<(), RingError> {
    let mut listed = HashSet::new();
    let loose: Vec<OpenEnd> = open
        .iter()
        .flat_map(|way| [way.nodes.first(), way.nodes.last()].map(|node| (way.id, node)))
        .filter_map(|(way, node)| node.map(|&(node, location)| OpenEnd { node, location, way }))
        .filter(|end| {
            at_node.get(&end.node).is_some_and(|ways| ways.len() % 2 == 1) && listed.insert(end.node)
        })
        .collect();
    if loose.is_empty() {
        return Ok(());
    }
    Err(RingError::Open {
        role,
        total: loose.len(),
        ends: loose.into_iter().take(RingError::SHOWN).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Node `10 * x + y` lies at x, y degrees.
    fn at(node: i64) -> Location {
        Location::new((node / 10) as i32 * 10_000_000, (node % 10) as i32 * 10_000_000)
    }

    fn way(id: i64, role: Role, nodes: &[i64]) -> BorderWay {
        BorderWay {
            id,
            role,
            nodes: nodes.iter().map(|&node| (node, at(node))).collect(),
        }
    }

    #[test]
    fn ways_in_any_order_and_direction() {
        let ways = [
            way(1, Role::Outer, &[0, 80]),
            way(2, Role::Outer, &[8, 88]),
            way(3, Role::Outer, &[0, 4, 8]),
            way(4, Role::Outer, &[88, 80]),
            way(4, Role::Outer, &[88, 80]),
            way(5, Role::Inner, &[22, 62, 66]),
            way(6, Role::Inner, &[22, 26, 66]),
            way(7, Role::Outer, &[33, 43, 44, 34, 33]),
            way(8, Role::Outer, &[]),
            way(9, Role::Outer, &[5]),
        ];
        let area = assemble(&ways).unwrap();
        let half = |lon: i32, lat: i32| Location::new(lon * 5_000_000, lat * 5_000_000);
        assert!(area.contains(half(2, 2)) && area.contains(half(16, 9)));
        assert!(!area.contains(half(9, 9 + 2)) && area.contains(half(7, 7)) && !area.contains(half(17, 9)));
        assert_eq!(area.part_count(), 2);
    }

    #[test]
    fn rings_touching_at_a_node_are_taken_apart() {
        // Two squares that share the corner 44, of ways that end there.
        let ways = [
            way(1, Role::Outer, &[44, 4, 0, 40, 44]),
            way(2, Role::Outer, &[44, 84]),
            way(3, Role::Outer, &[48, 44]),
            way(4, Role::Outer, &[84, 88, 48]),
            way(5, Role::Outer, &[48, 49]),
            way(6, Role::Outer, &[49, 39, 48]),
        ];
        let area = assemble(&ways).unwrap();
        assert_eq!(area.part_count(), 3);
        assert!(area.rings.iter().all(|ring| {
            let mut sorted = ring.clone();
            sorted.sort_unstable();
            sorted.windows(2).all(|pair| pair[0] != pair[1])
        }));
    }

    #[test]
    fn gaps_are_named() {
        let ways = [
            way(1, Role::Outer, &[0, 80]),
            way(2, Role::Outer, &[80, 88]),
            way(3, Role::Inner, &[0, 88]),
        ];
        let error = assemble(&ways).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the outer border is open at 2 nodes: node 0 at 0,0 (end of way 1), node 88 at 8,8 (end of way 2); \
             are all its ways there?"
        );
        assert!(matches!(
            assemble(&[way(1, Role::Inner, &[0, 80, 88, 0])]),
            Err(RegionError::Rings(RingError::NoOuter { ways: 1 }))
        ));
    }

    #[test]
    fn roles_of_members() {
        assert_eq!(Role::of_member(b""), Some(Role::Outer));
        assert_eq!(Role::of_member(b"inner"), Some(Role::Inner));
        assert_eq!(Role::of_member(b"subarea"), None);
    }

    proptest! {
        /// Cutting closed walks into ways and shuffling them loses no segment, whatever touches whatever.
        #[test]
        fn every_segment_comes_back(
            walks in prop::collection::vec(prop::collection::vec(0i64..60, 3..12), 1..5),
            cuts in prop::collection::vec(any::<u8>(), 60),
            order in any::<u64>(),
        ) {
            let mut ways: Vec<BorderWay> = Vec::new();
            let mut segments: Vec<(Location, Location)> = Vec::new();
            for walk in &walks {
                let mut walk = walk.clone();
                walk.dedup();
                walk.push(walk[0]);
                walk.dedup();
                let mut piece = vec![walk[0]];
                for pair in walk.windows(2) {
                    let (a, b) = (at(pair[0]), at(pair[1]));
                    segments.push((a.min(b), a.max(b)));
                    piece.push(pair[1]);
                    if cuts[pair[1] as usize].is_multiple_of(3) && piece.first() != piece.last() {
                        ways.push(way(ways.len() as i64, Role::Outer, &piece));
                        piece = vec![pair[1]];
                    }
                }
                if piece.len() > 1 {
                    ways.push(way(ways.len() as i64, Role::Outer, &piece));
                }
            }
            // Closed ways of fewer than three nodes are dropped by design.
            prop_assume!(ways.iter().all(|w| w.nodes.first() != w.nodes.last() || w.nodes.len() > 3));
            let count = ways.len().max(1) as u64;
            ways.sort_by_key(|way| (way.id as u64).wrapping_mul(order | 1) % count);
            for (i, way) in ways.iter_mut().enumerate() {
                if order >> (i % 64) & 1 == 1 {
                    way.nodes.reverse();
                }
            }
            let rings = rings(&ways, Role::Outer).unwrap();
            let mut found: Vec<_> = rings
                .iter()
                .flat_map(|ring| ring.iter().zip(ring.iter().skip(1).chain(ring.first())))
                .map(|(&a, &b)| (a.min(b), a.max(b)))
                .collect();
            found.sort_unstable();
            segments.sort_unstable();
            prop_assert_eq!(found, segments);
        }
    }
}
