//! Following references: relations to their members and these to theirs, ways to their nodes.
//!
//! Relations are read once for the edges between relations, which are then followed in memory, so that the depth of
//! nesting costs nothing and cycles end.

use std::collections::HashMap;

use osmill_engine::{Input, Job, KernelResult, Plan, Result};
use osmill_model::{ElementId, Kind, KindSet};
use osmill_pbf::{Block, Element};

use super::{Wanted, blobs_of, for_each_relation};

/// Edges from relations to relations that are their members.
type Edges = Vec<(i64, i64)>;

/// Follows wanted relations to the relations among their members, and these to theirs. Those that were not
/// wanted before are added to `new`, too. O(edges), whatever the depth; cycles end.
fn close_relations(wanted: &Wanted, edges: impl IntoIterator<Item = (i64, i64)>, new: &Wanted) {
    let mut children: HashMap<i64, Vec<i64>> = HashMap::new();
    for (parent, child) in edges {
        children.entry(parent).or_default().push(child);
    }
    let mut open: Vec<i64> = children
        .keys()
        .copied()
        .filter(|id| wanted.has(Kind::Relation, *id))
        .collect();
    while let Some(parent) = open.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            let id = ElementId::new(Kind::Relation, child);
            if wanted.insert(id) {
                new.insert(id);
                open.push(child);
            }
        }
    }
}

/// Notes what an element refers to directly: nodes and ways of a relation, nodes of a way.
fn note_references<P: Pick>(
    element: &Element<'_>,
    wanted: &Wanted,
    noted: KindSet,
    pick: &P,
    refs: &mut Vec<i64>,
) -> KernelResult {
    match element {
        Element::Node(_) => {}
        Element::Way(way) => {
            if noted.contains(Kind::Node) {
                refs.clear();
                way.refs().column().decode_deltas_into(refs)?;
                wanted.insert_all(Kind::Node, refs);
            }
        }
        Element::Relation(relation) => {
            for member in relation.members() {
                let member = member?.element;
                if member.kind != Kind::Relation && noted.contains(member.kind) && !pick.ignores(member) {
                    wanted.insert(member);
                }
            }
        }
    }
    Ok(())
}

/// Finds relations and ways by more than their ids while references are followed.
pub(crate) trait Pick: Sync {
    /// A worker's state.
    type State: Send;
    /// Makes it.
    fn make(&self) -> Self::State;
    /// Whether elements of this kind have to be asked about.
    fn asks(&self, kind: Kind) -> bool;
    /// Begins a block; whether any of its elements can be picked.
    fn begin(&self, state: &mut Self::State, block: &Block) -> KernelResult<bool>;
    /// Whether an element is picked.
    fn picks(&self, state: &mut Self::State, element: &Element<'_>) -> KernelResult<bool>;
    /// Whether a member of a relation is passed over.
    fn ignores(&self, _: ElementId) -> bool {
        false
    }
}

/// Picks nothing.
pub(crate) struct ByIdOnly;

impl Pick for ByIdOnly {
    type State = ();
    fn make(&self) {}
    fn asks(&self, _: Kind) -> bool {
        false
    }
    fn begin(&self, (): &mut (), _: &Block) -> KernelResult<bool> {
        Ok(false)
    }
    fn picks(&self, (): &mut (), _: &Element<'_>) -> KernelResult<bool> {
        Ok(false)
    }
}

/// Adds to `wanted` all of one kind that relations and ways refer to, directly or not, which `pick` picks or which are
/// wanted, as [`close_over_members`] and [`close_ways`] do: for [`Wanted::resolve`].
pub(crate) fn close_kind<P: Pick>(
    job: &Job,
    (input, plan): (&Input, &Plan),
    wanted: &Wanted,
    kind: Kind,
    pick: &P,
) -> Result<()> {
    let noted = KindSet::from(kind);
    close_over_members(job, (input, plan), wanted, noted, pick)?;
    close_ways(job, (input, plan), wanted, noted, pick)
}

/// Adds to `wanted` the relations that `pick` picks, and the members of all wanted ones, directly or not. `noted` are the
/// kinds whose ids are of use; those of other kinds are all written anyway.
///
/// At most two passes: all relations for their edges and members, nested relations for their members.
pub(crate) fn close_over_members<P: Pick>(
    job: &Job,
    (input, plan): (&Input, &Plan),
    wanted: &Wanted,
    noted: KindSet,
    pick: &P,
) -> Result<()> {
    let make = || (pick.make(), Vec::new(), Edges::new());
    if pick.asks(Kind::Relation) || !wanted.is_empty(Kind::Relation) {
        let blobs = blobs_of(plan, KindSet::RELATIONS, |_| true);
        let states =
            job.pass("relations", input.file(), &blobs)
                .scan(make, |(state, refs, edges), blob| {
                    let may_pick = pick.begin(state, blob.block()?)?;
                    for_each_relation(blob, |relation| {
                        for member in relation.members() {
                            let member = member?.element;
                            if member.kind == Kind::Relation && !pick.ignores(member) {
                                edges.push((relation.id(), member.id));
                            }
                        }
                        let element = Element::Relation(relation.clone());
                        let id = element.element_id();
                        if wanted.contains(id) || may_pick && pick.picks(state, &element)? {
                            wanted.insert(id);
                            note_references(&element, wanted, noted, pick, refs)?;
                        }
                        Ok(())
                    })
                })?;
        let edges = states.into_iter().flat_map(|(_, _, edges)| edges);
        let new = Wanted::new(job);
        close_relations(wanted, edges, &new);
        if !new.is_empty(Kind::Relation) {
            let blobs = blobs_of(plan, KindSet::RELATIONS, |record| new.may_touch(record));
            job.pass("nested relations", input.file(), &blobs)
                .scan(Vec::new, |refs, blob| {
                    for element in blob.block()?.elements() {
                        let element = element?;
                        if new.contains(element.element_id()) {
                            note_references(&element, wanted, noted, pick, refs)?;
                        }
                    }
                    Ok(())
                })?;
        }
    }
    Ok(())
}

/// Adds to `wanted` the nodes of the ways that are wanted or picked, in one pass.
pub(crate) fn close_ways<P: Pick>(
    job: &Job,
    (input, plan): (&Input, &Plan),
    wanted: &Wanted,
    noted: KindSet,
    pick: &P,
) -> Result<()> {
    let make = || (pick.make(), Vec::new());
    let asks = pick.asks(Kind::Way);
    if noted.contains(Kind::Node) && (asks || !wanted.is_empty(Kind::Way)) {
        let blobs = blobs_of(plan, KindSet::WAYS, |record| asks || wanted.may_touch(record));
        job.pass("ways", input.file(), &blobs)
            .scan(make, |(state, refs), blob| {
                let here = wanted.here(blob)?;
                let block = blob.block()?;
                let may_pick = asks && pick.begin(state, block)?;
                if !may_pick && here.is_none() {
                    return Ok(());
                }
                for (number, element) in block.elements().enumerate() {
                    let element = element?;
                    let ElementId { kind, id } = element.element_id();
                    let is_wanted = || here.as_ref().is_some_and(|here| here.has(kind, id, number));
                    if kind == Kind::Way && (is_wanted() || may_pick && pick.picks(state, &element)?) {
                        note_references(&element, wanted, noted, pick, refs)?;
                    }
                }
                Ok(())
            })?;
    }
    Ok(())
}
