//! `getparents`: the ways and relations that refer to given elements.
//!
//! One pass. Ways are read only if a node is asked about; blobs that can hold no parent and none of the
//! elements themselves are passed over. One level of references is looked at: neither relations of the parents
//! nor parents of the parents are written.

use std::path::Path;

use osmill_engine::{Job, Result};
use osmill_model::{ElementId, Kind, KindSet};
use osmill_pbf::{DensePicker, Item};

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
    let wanted = Wanted::default();
    options.ids.iter().for_each(|id| {
        wanted.insert(*id);
    });
    let asks = |kind: Kind| !wanted.is_empty(kind);
    let parents: KindSet = [
        (Kind::Way, asks(Kind::Node)),
        (Kind::Relation, !options.ids.is_empty()),
    ]
    .into_iter()
    .filter_map(|(kind, may_refer)| may_refer.then_some(kind))
    .collect();
    let is_self = |kind: Kind, id: i64| options.add_self && wanted.has(kind, id);
    let blobs = select::blobs_of(&plan, KindSet::ALL, |record| {
        record.kinds.intersects(parents) || options.add_self && wanted.may_touch(record)
    });
    let sink = target.open(plan.header.clone())?;
    job.pass("write", input.file(), &blobs).write(
        &sink,
        <(Vec<Fate>, Vec<i64>, DensePicker)>::default,
        |(fates, ids, picker), blob, out| {
            fates.clear();
            for group in blob.block()?.groups() {
                let mut items = group.items();
                while let Some(item) = items.try_next()? {
                    let keep = match item {
                        Item::Dense(dense) => {
                            ids.clear();
                            dense.ids().column().decode_deltas_into(ids)?;
                            fates.extend(ids.iter().map(|id| match is_self(Kind::Node, *id) {
                                true => Fate::Keep,
                                false => Fate::Drop,
                            }));
                            continue;
                        }
                        Item::Node(node) => is_self(Kind::Node, node.id()),
                        Item::Way(way) => {
                            ids.clear();
                            if asks(Kind::Node) {
                                way.refs().column().decode_deltas_into(ids)?;
                            }
                            ids.iter().any(|id| wanted.has(Kind::Node, *id)) || is_self(Kind::Way, way.id())
                        }
                        Item::Relation(relation) => {
                            let mut refers = false;
                            for member in relation.members() {
                                refers |= wanted.contains(member?.element);
                            }
                            refers || is_self(Kind::Relation, relation.id())
                        }
                    };
                    fates.push(if keep { Fate::Keep } else { Fate::Drop });
                }
            }
            select::write_fates(blob, out, fates, picker)
        },
    )?;
    job.objects_out(sink.counts());
    sink.finish().map(|_| ())
}
