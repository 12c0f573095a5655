//! `getparents`: the ways and relations that refer to given elements.
//!
//! One pass. Ways are read only if a node is asked about; blobs that can hold no parent and none of the
//! elements themselves are passed over. One level of references is looked at: neither relations of the parents
//! nor parents of the parents are written.

use std::path::Path;

use osmill_engine::{Job, KernelResult, Result};
use osmill_model::{ElementId, Kind, KindSet};
use osmill_pbf::{DensePicker, RawItem, Relation};

use crate::select::{self, Fate, Target, Wanted};

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
    let wanted = Wanted::new(job);
    options.ids.iter().for_each(|id| {
        wanted.insert(*id);
    });
    wanted.complete()?;
    let asks = |kind: Kind| !wanted.is_empty(kind);
    // Most references are told by the range of the nodes that are asked about.
    let nodes = options
        .ids
        .iter()
        .filter(|id| id.kind == Kind::Node)
        .map(|id| id.id);
    let (low, high) = nodes.fold((i64::MAX, i64::MIN), |(low, high), id| {
        (low.min(id), high.max(id))
    });
    let is_asked = |id: i64| (low..=high).contains(&id) && wanted.has(Kind::Node, id);
    let parents: KindSet = [
        (Kind::Way, asks(Kind::Node)),
        (Kind::Relation, !options.ids.is_empty()),
    ]
    .into_iter()
    .filter_map(|(kind, may_refer)| may_refer.then_some(kind))
    .collect();
    let blobs = select::blobs_of(&plan, KindSet::ALL, |record| {
        record.kinds.intersects(parents) || options.add_self && wanted.may_touch(record)
    });
    let sink = target.open(plan.header.clone())?;
    job.pass("write", input.file(), &blobs).write(
        &sink,
        <(Vec<Fate>, Vec<i64>, DensePicker)>::default,
        |(fates, ids, picker), blob, out| {
            fates.clear();
            select::fates_by(blob, fates, ids, |items, item, message, id| {
                let id = ElementId::new(select::kind_of(item), id);
                let refers = match item {
                    RawItem::Way if asks(Kind::Node) => {
                        let (_, refs) = items.parse_refs(message)?;
                        refs.any(is_asked)?
                    }
                    RawItem::Relation => refers(&items.parse_relation(message)?, &wanted)?,
                    _ => false,
                };
                Ok(match refers || options.add_self && wanted.contains(id) {
                    true => Fate::Keep,
                    false => Fate::Drop,
                })
            })?;
            select::write_fates(blob, out, fates, picker)
        },
    )?;
    job.objects_out(sink.counts());
    sink.finish().map(|_| ())
}

/// Whether a relation has one of these members.
fn refers(relation: &Relation<'_>, wanted: &Wanted) -> KernelResult<bool> {
    for member in relation.members() {
        if wanted.contains(member?.element) {
            return Ok(true);
        }
    }
    Ok(false)
}
