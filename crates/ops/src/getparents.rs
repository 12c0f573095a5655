//! `getparents`: the ways and relations that refer to given elements.
//!
//! One pass. Ways are read only if a node is asked about; blobs that can hold no parent and none of the
//! elements themselves are passed over. One level of references is looked at: neither relations of the parents
//! nor parents of the parents are written.

use std::path::Path;

use osmill_engine::{Job, KernelResult, Result};
use osmill_model::{ElementId, Kind, KindSet};
use osmill_pbf::{RawItem, Relation};

use crate::select::{self, Fate, Judged, Requested, Target};

/// What is looked for.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The elements whose parents are wanted.
    pub ids: Vec<ElementId>,
    /// Write these elements, too.
    pub add_self: bool,
}

/// Writes the elements of `input` that refer to one of the ids; see the module's documentation.
pub fn getparents(job: &Job, input: &Path, options: &Options, target: &Target) -> Result<()> {
    let input = job.open(input)?;
    let plan = input.plan(job.options().threads)?;
    let requested = Requested::new(&options.ids).with_set(job);
    let asks_nodes = requested.ids().iter().any(|id| id.kind == Kind::Node);
    // Most references are told by the range of the nodes that are asked about.
    let nodes = requested
        .ids()
        .iter()
        .filter(|id| id.kind == Kind::Node)
        .map(|id| id.id);
    let (low, high) = nodes.fold((i64::MAX, i64::MIN), |(low, high), id| {
        (low.min(id), high.max(id))
    });
    let is_asked = |id: i64| (low..=high).contains(&id) && requested.contains(ElementId::new(Kind::Node, id));
    let parents: KindSet = [
        (Kind::Way, asks_nodes),
        (Kind::Relation, !requested.ids().is_empty()),
    ]
    .into_iter()
    .filter_map(|(kind, may_refer)| may_refer.then_some(kind))
    .collect();
    let blobs = select::blobs_of(&plan, KindSet::ALL, |record| {
        record.kinds.intersects(parents) || options.add_self && requested.may_touch(record)
    });
    let source = (&input, &plan);
    select::write_judged(job, source, &blobs, target, |blob, fates, ids| {
        select::for_each_in(blob, ids, |items, item, message, id| {
            let id = ElementId::new(select::kind_of(item), id);
            let refers = match item {
                RawItem::Way if asks_nodes => {
                    let (_, refs) = items.parse_refs(message)?;
                    refs.any(is_asked)?
                }
                RawItem::Relation => refers(&items.parse_relation(message)?, &requested)?,
                _ => false,
            };
            fates.push(Fate::keep_if(
                refers || options.add_self && requested.contains(id),
            ));
            Ok(())
        })?;
        Ok(Judged::EachByFate)
    })
}

/// Whether a relation has one of these members.
fn refers(relation: &Relation<'_>, requested: &Requested) -> KernelResult<bool> {
    for member in relation.members() {
        if requested.contains(member?.element) {
            return Ok(true);
        }
    }
    Ok(false)
}
