//! What meets a region without a node inside: ways that cross it, areas that surround it.
//!
//! Few elements do, so most are ruled out without their geometry. Every node gets the sides of the region's box
//! that it lies beyond (west, east, south, north; none of them if it is within the box). Two nodes with a side in
//! common have nothing of the box between them, and a ring all of whose nodes have a side in common surrounds
//! nothing of it. This takes four bits a node. Locations are then read for the nodes of what is left, and the
//! geometry decides.
//!
//! Longitudes are taken relative to the middle of the box, the shorter way around the earth, so the
//! antimeridian is a place like any other.

use std::collections::{HashMap, HashSet};

use osmill_engine::{Blob, IdSet, Result};
use osmill_geometry::{Region, assemble};
use osmill_model::{BoundingBox, Kind, KindSet, Location};
use osmill_pbf::{Element, NodeColumns};

use super::boundary;
use super::passes::Work;
use super::region_ids::{Gather, RegionIds};
use crate::filter::can_be_area;
use crate::select::{self, IdBudget, Wanted};

/// What was found, all for region 0.
#[derive(Debug, Default)]
pub struct Around {
    /// Ways that cross or surround the region.
    pub ways: Gather,
    /// Their nodes.
    pub nodes: Gather,
    /// Multipolygon and boundary relations that surround it.
    pub relations: HashSet<i64>,
}

/// What is looked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wish {
    /// Ways with a segment in the region.
    pub crossing: bool,
    /// Areas that have a part of the region inside.
    pub enclosing: bool,
}

/// Sides of a box: bits 0 to 3 are west, east, south, north.
struct Sides {
    middle: i64,
    half_width: i64,
    south: i32,
    north: i32,
}

/// Units of longitude all around the earth.
const TURN: i64 = 3_600_000_000;

impl Sides {
    fn of(bbox: BoundingBox) -> Sides {
        let (left, mut right) = (i64::from(bbox.min.lon), i64::from(bbox.max.lon));
        if right < left {
            right += TURN;
        }
        // Doubled, so that the middle is a whole number.
        Sides {
            middle: left + right,
            half_width: right - left,
            south: bbox.min.lat,
            north: bbox.max.lat,
        }
    }

    fn beyond(&self, location: Location) -> u8 {
        let offset = (2 * i64::from(location.lon) - self.middle + TURN).rem_euclid(2 * TURN) - TURN;
        u8::from(offset < -self.half_width)
            | u8::from(offset > self.half_width) << 1
            | u8::from(location.lat < self.south) << 2
            | u8::from(location.lat > self.north) << 3
    }
}

/// The sides of all nodes.
#[derive(Default)]
struct Codes([IdSet; 4]);

impl Codes {
    fn of(&self, id: i64) -> u8 {
        let bits = self.0.iter().enumerate();
        bits.fold(0, |code, (side, ids)| code | u8::from(ids.contains(id)) << side)
    }
}

/// Finds what meets the region of `work`, which has one, and is not among `ways` already.
pub fn around(work: &Work<'_>, region: &Region, ways: &RegionIds, wish: Wish) -> Result<Around> {
    let Some(bbox) = region.bbox() else {
        return Ok(Around::default());
    };
    let sides = Sides::of(bbox);
    let codes = node_codes(work, &sides)?;
    let mut candidates = candidate_ways(work, &codes, ways, wish)?;
    candidates.sort_unstable_by_key(|(id, _)| *id);
    candidates.dedup_by_key(|(id, _)| *id);
    let locations = locations_of(work, &candidates)?;
    let mut found = Around::default();
    for (id, refs) in &candidates {
        if meets(region, refs, &locations, wish) {
            found.ways.add(0, *id);
            refs.iter().for_each(|node| found.nodes.add(0, *node));
        }
    }
    if wish.enclosing {
        found.relations = surrounding_relations(work, region, &codes)?;
    }
    Ok(found)
}

/// Whether a way has a point in the region, or surrounds a part of it. Nodes that are not there are gaps.
fn meets(region: &Region, refs: &[i64], locations: &HashMap<i64, Location>, wish: Wish) -> bool {
    let line: Vec<Option<Location>> = refs.iter().map(|id| locations.get(id).copied()).collect();
    let crosses = line
        .windows(2)
        .any(|pair| matches!(pair, &[Some(a), Some(b)] if region.intersects_segment(a, b)));
    if crosses {
        return wish.crossing;
    }
    let ring: Option<Vec<Location>> = line.into_iter().collect();
    let closed = refs.len() >= 4 && refs.first() == refs.last();
    wish.enclosing && closed && ring.is_some_and(|ring| region.is_enclosed_by_ring(&ring))
}

fn node_codes(work: &Work<'_>, sides: &Sides) -> Result<Codes> {
    let codes = Codes::default();
    let budget = IdBudget::of(work.job, "the sides of the region that nodes lie on");
    let blobs = select::blobs_of(&work.known.plan, KindSet::NODES, |_| true);
    work.job.pass("sides", work.input.file(), &blobs).scan(
        <(NodeColumns, [Vec<i64>; 4])>::default,
        |(columns, beyond), blob| {
            columns.read(blob.block()?)?;
            beyond.iter_mut().for_each(Vec::clear);
            for (id, location) in columns.ids.iter().zip(&columns.locations) {
                let Some(location) = location else { continue };
                let code = sides.beyond(*location);
                for (side, ids) in beyond.iter_mut().enumerate() {
                    if code >> side & 1 == 1 {
                        ids.push(*id);
                    }
                }
            }
            for (set, ids) in codes.0.iter().zip(beyond) {
                set.insert_all(ids);
            }
            Ok(budget.check(codes.0.iter().map(IdSet::bytes).sum())?)
        },
    )?;
    Ok(codes)
}

/// Ways that may meet the region, with their nodes.
fn candidate_ways(
    work: &Work<'_>,
    codes: &Codes,
    ways: &RegionIds,
    wish: Wish,
) -> Result<Vec<(i64, Vec<i64>)>> {
    let blobs = select::blobs_of(&work.known.plan, KindSet::WAYS, |_| true);
    let look = |found: &mut Vec<(i64, Vec<i64>)>, blob: &mut Blob| {
        let mut known = ways.cursor();
        let mut refs = Vec::new();
        select::for_each_way(blob, |id, column| {
            if known.any(id) {
                return Ok(());
            }
            refs.clear();
            column.decode_into(&mut refs)?;
            let (mut all, mut last, mut crosses) = (0b1111, 0b1111, false);
            for node in &refs {
                let code = codes.of(*node);
                all &= code;
                crosses |= last & code == 0;
                last = code;
            }
            let closed = refs.len() >= 4 && refs.first() == refs.last();
            if wish.crossing && crosses || wish.enclosing && closed && all == 0 {
                found.push((id, refs.clone()));
            }
            Ok(())
        })
    };
    select::find(work.job, ("ways around", work.input, &blobs), look)
}

fn locations_of(work: &Work<'_>, ways: &[(i64, Vec<i64>)]) -> Result<HashMap<i64, Location>> {
    let wanted = Wanted::new(work.job);
    for (_, refs) in ways {
        wanted.insert_all(Kind::Node, refs);
    }
    select::locations_of(work.job, "nodes around", (work.input, &work.known.plan), &wanted)
}

/// Relations that are areas and have a part of the region inside. Those whose borders are not all there are
/// passed over.
fn surrounding_relations(work: &Work<'_>, region: &Region, codes: &Codes) -> Result<HashSet<i64>> {
    // Areas with their member ways, then the sides that all nodes of each of these have in common.
    let blobs = select::blobs_of(&work.known.plan, KindSet::RELATIONS, |_| true);
    let members = Wanted::new(work.job);
    let areas = select::find(work.job, ("areas around", work.input, &blobs), |found, blob| {
        select::for_each_relation(blob, |relation| {
            if !can_be_area(&Element::Relation(relation.clone()))? {
                return Ok(());
            }
            let mut ways = Vec::new();
            for member in relation.members() {
                let member = member?;
                if member.element.kind == Kind::Way {
                    members.insert(member.element);
                    ways.push(member.element.id);
                }
            }
            found.push((relation.id(), ways));
            Ok(())
        })
    })?;
    members.complete()?;
    let blobs = select::blobs_of(&work.known.plan, KindSet::WAYS, |record| {
        members.may_touch(record)
    });
    let common = select::find(work.job, ("borders around", work.input, &blobs), |found, blob| {
        select::for_each_way(blob, |id, refs| {
            if members.has(Kind::Way, id) {
                let all = refs.fold(0b1111, |all, node| all & codes.of(node))?;
                found.push((id, all));
            }
            Ok(())
        })
    })?;
    let common: HashMap<i64, u8> = common.into_iter().collect();
    let candidates: HashSet<i64> = areas
        .into_iter()
        .filter(|(_, ways)| {
            let sides = ways.iter().filter_map(|way| common.get(way));
            sides.fold(0b1111, |all, side| all & side) == 0
        })
        .map(|(id, _)| id)
        .collect();
    let borders = boundary::borders(work.job, (work.input, &work.known.plan), |relation| {
        candidates.contains(&relation.id())
    })?;
    let surrounds = |border: &[_]| assemble(border).is_ok_and(|area| region.is_enclosed_by(&area));
    Ok(borders
        .into_iter()
        .filter(|(_, border)| surrounds(border))
        .map(|(id, _)| id)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_go_the_shorter_way_around() {
        let degrees = |lon: f64, lat: f64| Location::from_degrees(lon, lat).unwrap();
        let beyond = |bbox: [i32; 4], lon: f64, lat: f64| {
            let [left, bottom, right, top] = bbox.map(|degrees| degrees * 10_000_000);
            Sides::of(BoundingBox::new(left, bottom, right, top)).beyond(degrees(lon, lat))
        };
        let here = [-1, -1, 1, 1];
        assert_eq!(beyond(here, 0.0, 0.0), 0);
        assert_eq!(beyond(here, 1.0, -1.0), 0);
        assert_eq!(beyond(here, -1.1, 0.0), 1);
        assert_eq!(beyond(here, 179.0, 2.0), 0b1010);
        assert_eq!(beyond(here, -179.0, -2.0), 0b0101);
        let across = [170, 60, -170, 70];
        assert_eq!(beyond(across, 180.0, 65.0), 0);
        assert_eq!(beyond(across, -180.0, 65.0), 0);
        assert_eq!(beyond(across, 169.0, 65.0), 1);
        assert_eq!(beyond(across, -169.0, 71.0), 0b1010);
    }
}
