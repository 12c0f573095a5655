//! Regions from boundary and multipolygon relations of OSM files.
//!
//! Three passes over the blobs in question: the relations for their member ways, the ways for their nodes, the
//! nodes for their locations.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use osmill_engine::{Blob, Error, Input, Job, Plan, Result};
use osmill_geometry::{BorderWay, MultiPolygon, Role, assemble};
use osmill_model::{ElementId, Kind, KindSet};
use osmill_pbf::{Element, Relation};

use crate::filter::can_be_area;
use crate::select::{self, Wanted};

/// The area of a relation of a PBF file. Members that are no border, such as subareas and labels, are passed
/// over.
///
/// # Errors
///
/// [`Error::Failed`] if the relation is not there or its ways do not close; the message names the open ends.
pub fn boundary_of(job: &Job, path: &Path, relation: i64) -> Result<MultiPolygon> {
    let (input, plan) = select::open_planned(job, path)?;
    let found = borders(job, (&input, &plan), |record| record.id() == relation)?;
    match found.into_iter().next() {
        Some((_, border)) => area_of(path, relation, &border),
        None => Err(Error::Failed(format!(
            "{}: there is no relation r{relation}",
            path.display()
        ))),
    }
}

/// The area of all multipolygon and boundary relations of a PBF file together.
///
/// # Errors
///
/// [`Error::Failed`] if there is none or the ways of one do not close.
pub fn boundaries_of_file(job: &Job, path: &Path) -> Result<MultiPolygon> {
    let (input, plan) = select::open_planned(job, path)?;
    let is_area =
        |relation: &Relation<'_>| can_be_area(&Element::Relation(relation.clone())).unwrap_or(false);
    let mut area = MultiPolygon::new();
    for (id, border) in borders(job, (&input, &plan), is_area)? {
        area.unite(area_of(path, id, &border)?);
    }
    if area.is_empty() {
        return Err(Error::Failed(format!(
            "{}: there is no multipolygon or boundary relation to take the region from",
            path.display()
        )));
    }
    Ok(area)
}

fn area_of(path: &Path, relation: i64, border: &[BorderWay]) -> Result<MultiPolygon> {
    assemble(border).map_err(|e| Error::Failed(format!("{}: relation r{relation}: {e}", path.display())))
}

/// The border ways of all relations that `wants` picks, by the ids of the relations. Nodes that are not in the
/// file are left out of the ways.
pub(super) fn borders(
    job: &Job,
    (input, plan): (&Input, &Plan),
    wants: impl Fn(&Relation<'_>) -> bool + Sync,
) -> Result<Vec<(i64, Vec<BorderWay>)>> {
    type Members = Vec<(i64, Role)>;
    let blobs = select::blobs_of(plan, KindSet::RELATIONS, |_| true);
    let look = |found: &mut Vec<(i64, Members)>, blob: &mut Blob| {
        select::for_each_relation(blob, |relation| {
            if !wants(relation) {
                return Ok(());
            }
            let mut members = Members::new();
            for member in relation.members() {
                let member = member?;
                if let (Kind::Way, Some(role)) = (member.element.kind, Role::of_member(member.role)) {
                    members.push((member.element.id, role));
                }
            }
            found.push((relation.id(), members));
            Ok(())
        })
    };
    let mut relations = select::find(job, ("boundary relations", input, &blobs), look)?;
    relations.sort_unstable_by_key(|(id, _)| *id);

    let wanted = Wanted::new(job);
    for (way, _) in relations.iter().flat_map(|(_, members)| members) {
        wanted.insert(ElementId::new(Kind::Way, *way));
    }
    let blobs = select::blobs_of(plan, KindSet::WAYS, |record| wanted.may_touch(record));
    let ways = select::find(job, ("boundary ways", input, &blobs), |found, blob| {
        select::for_each_way(blob, |id, column| {
            if wanted.has(Kind::Way, id) {
                let mut refs = Vec::new();
                column.decode_into(&mut refs)?;
                wanted.insert_all(Kind::Node, &refs);
                found.push((id, refs));
            }
            Ok(())
        })
    })?;
    let ways: HashMap<i64, Vec<i64>> = ways.into_iter().collect();
    let nodes = select::locations_of(job, "boundary nodes", (input, plan), &wanted)?;

    let border_way = |&(id, role): &(i64, Role)| {
        let refs = ways.get(&id)?;
        let nodes = refs.iter().filter_map(|id| Some((*id, *nodes.get(id)?)));
        Some(BorderWay {
            id,
            role,
            nodes: nodes.collect(),
        })
    };
    let mut seen = HashSet::new();
    Ok(relations
        .iter()
        .filter(|(id, _)| seen.insert(*id))
        .map(|(id, members)| (*id, members.iter().filter_map(border_way).collect()))
        .collect())
}
