//! `check`: order, uniqueness and references.

use std::collections::HashSet;
use std::ops::Range;

use osmill_engine::{
    Blob, BlobEntry, Counts, FrozenIds, IdRuns, IdSets, Input, Job, KernelResult, Plan, Result,
};
use osmill_model::{ElementId, Kind, KindSet};
use osmill_pbf::{IndexRecord, Item, RawItem};
use serde::Serialize;

use crate::order::{Offence, Order};
use crate::split;

/// What [`ids`] found.
#[derive(Debug, Clone, Serialize)]
pub struct IdReport {
    /// Elements.
    pub count: Counts,
    /// Whether kinds, ids and (with history) versions never go down.
    pub sorted: bool,
    /// How many elements come after a larger one.
    pub out_of_order: u64,
    /// The first of them.
    pub first_out_of_order: Option<Offence>,
    /// Elements that are there more than once: the occurrences after the first.
    pub duplicates: u64,
    /// The first that was found; in a sorted file the first of the file.
    pub first_duplicate: Option<String>,
}

impl IdReport {
    /// Whether nothing is wrong.
    pub fn is_good(&self) -> bool {
        self.sorted && self.duplicates == 0
    }
}

/// Checks the order of the elements and that none is there twice.
///
/// A sorted file is read once and needs no memory to speak of. Where elements are out of order, a second pass
/// looks for duplicates with sets of ids; with history it cannot tell versions apart and counts only
/// neighbours.
pub fn ids(job: &Job, input: &Input, plan: &Plan) -> Result<IdReport> {
    let history = plan.header.has_history();
    let states = job.pass("ids", input.file(), &plan.blobs).scan(
        <(Counts, Vec<Order>)>::default,
        |(counts, orders), blob| {
            let number = blob.entry().number;
            let block = blob.block()?;
            let record = IndexRecord::of(block)?;
            orders.push(match Order::of_record(&record, number) {
                Some(order) if !history => order,
                _ => Order::of(block, number, history)?,
            });
            *counts += record.counts.into();
            Ok(())
        },
    )?;
    let mut count = Counts::default();
    let mut orders = Vec::new();
    for (counts, found) in states {
        count += counts;
        orders.extend(found);
    }
    job.objects_in(count);
    let order = Order::of_blobs(orders);
    let mut report = IdReport {
        count,
        sorted: order.is_sorted(),
        out_of_order: order.descents,
        first_out_of_order: order.first_descent,
        duplicates: order.repeats,
        first_duplicate: order.first_repeat.map(|offence| offence.element.to_string()),
    };
    if !report.sorted && !history {
        let seen = IdSets::new();
        let states = job.pass("duplicates", input.file(), &plan.blobs).scan(
            <(u64, Option<ElementId>)>::default,
            |(duplicates, first), blob| {
                for_each_id(blob, |id| {
                    if !seen.insert(id) {
                        *duplicates += 1;
                        *first = Some(first.map_or(id, |known| known.min(id)));
                    }
                })
            },
        )?;
        report.duplicates = states.iter().map(|(duplicates, _)| duplicates).sum();
        report.first_duplicate = states
            .iter()
            .filter_map(|(_, id)| *id)
            .min()
            .map(|id| id.to_string());
    }
    Ok(report)
}

fn for_each_id(blob: &mut Blob, mut visit: impl FnMut(ElementId)) -> KernelResult {
    for group in blob.block()?.groups() {
        let mut items = group.items();
        while let Some(item) = items.try_next()? {
            match item {
                Item::Dense(dense) => {
                    let mut ids = dense.ids();
                    while let Some(id) = ids.try_next()? {
                        visit(ElementId::new(Kind::Node, id));
                    }
                }
                Item::Node(node) => visit(ElementId::new(Kind::Node, node.id())),
                Item::Way(way) => visit(ElementId::new(Kind::Way, way.id())),
                Item::Relation(relation) => visit(ElementId::new(Kind::Relation, relation.id())),
            }
        }
    }
    Ok(())
}

/// What [`refs`] looks at.
#[derive(Debug, Clone, Copy, Default)]
pub struct RefOptions {
    /// Check the members of relations, too.
    pub relations: bool,
    /// Report each missing reference, not their numbers alone.
    pub list: bool,
}

/// A reference to something that is not in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Dangling {
    /// What is missing.
    #[serde(serialize_with = "as_text")]
    pub missing: ElementId,
    /// What refers to it.
    #[serde(serialize_with = "as_text")]
    pub from: ElementId,
}

fn as_text<S: serde::Serializer>(id: &ElementId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(id)
}

/// What [`refs`] found.
#[derive(Debug, Clone, Default, Serialize)]
pub struct RefReport {
    /// Elements.
    pub count: Counts,
    /// Node references of ways that lead nowhere.
    pub missing_way_nodes: u64,
    /// Members of relations that are not there, by kind; absent if they were not looked at.
    pub missing_members: Option<Counts>,
    /// How many different elements these members are.
    pub missing_member_elements: Option<Counts>,
    /// The missing references in the order of the file, if asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dangling: Vec<Dangling>,
}

impl RefReport {
    /// Whether nothing is missing.
    pub fn is_good(&self) -> bool {
        self.missing_way_nodes == 0 && self.missing_members.is_none_or(|counts| counts.total() == 0)
    }
}

/// Checks that what ways and relations refer to is in the file.
///
/// The ids are collected first, then the references are looked up. If the header says that the file is sorted,
/// each blob is read once: nodes, then ways, then relations. If that turns out wrong, or nothing is known of
/// the order, a pass over everything collects the ids, and a second one over the blobs with ways or relations
/// looks up what they refer to.
pub fn refs(job: &Job, input: &Input, plan: &Plan, options: RefOptions) -> Result<RefReport> {
    let check = RefCheck {
        job,
        input,
        options,
        missing_once: IdSets::new(),
    };
    let found = match split::by_kind(input, plan)? {
        Some(ranges) => match check.by_kind(&plan.blobs, ranges)? {
            Some(found) => found,
            None => {
                job.warn(format!(
                    "{}: the header says that the file is sorted by kind, but it is not; it is read twice",
                    input.path().display()
                ));
                let check = RefCheck {
                    missing_once: IdSets::new(),
                    ..check
                };
                check.in_two_passes(&plan.blobs)?
            }
        },
        None => check.in_two_passes(&plan.blobs)?,
    };
    job.objects_in(found.count);
    let mut dangling = found.dangling;
    dangling.sort_by_key(|(blob, _)| *blob);
    Ok(RefReport {
        count: found.count,
        missing_way_nodes: found.way_nodes,
        missing_members: options.relations.then_some(found.members),
        missing_member_elements: options.relations.then_some(found.elements),
        dangling: dangling.into_iter().map(|(_, dangling)| dangling).collect(),
    })
}

struct RefCheck<'a> {
    job: &'a Job,
    input: &'a Input,
    options: RefOptions,
    missing_once: IdSets,
}

/// What a pass of the check does.
#[derive(Clone, Copy)]
struct Step {
    name: &'static str,
    /// Kinds whose elements are counted.
    count: KindSet,
    /// Kinds whose ids are collected.
    collect: KindSet,
    /// Kinds whose references are looked up; what they refer to has been collected by an earlier pass.
    look_up: KindSet,
}

impl RefCheck<'_> {
    /// Reads each blob once. `None` if a blob holds a kind that it should not by the claim of the header.
    fn by_kind(&self, blobs: &[BlobEntry], ranges: [Range<usize>; 3]) -> Result<Option<Found>> {
        let [nodes, ways, relations] = ranges;
        let (n, w, r, none) = (KindSet::NODES, KindSet::WAYS, KindSet::RELATIONS, KindSet::NONE);
        let kinds = |at: usize| -> KindSet {
            let held = [(&nodes, n), (&ways, w), (&relations, r)];
            held.iter()
                .filter(|(range, _)| range.contains(&at))
                .fold(none, |set, (_, kind)| set | *kind)
        };
        let allowed: Vec<KindSet> = (0..blobs.len()).map(kinds).collect();
        let ids = |kinds: KindSet| if self.options.relations { kinds } else { none };
        let mut present: [FrozenIds; 3] = Default::default();
        let mut all = Found::default();
        let steps = [
            (
                &nodes,
                Step {
                    name: "nodes",
                    count: n,
                    collect: n,
                    look_up: none,
                },
            ),
            (
                &ways,
                Step {
                    name: "ways",
                    count: w,
                    collect: ids(w),
                    look_up: w,
                },
            ),
            (
                &relations,
                Step {
                    name: "relations",
                    count: r,
                    collect: ids(r),
                    look_up: none,
                },
            ),
            (
                &relations,
                Step {
                    name: "members",
                    count: none,
                    collect: none,
                    look_up: ids(r),
                },
            ),
        ];
        for (range, step) in steps {
            if (step.count | step.look_up).is_empty() {
                continue;
            }
            let found = self.pass(step, &blobs[range.clone()], &mut present)?;
            let fits = |(number, held): &(u64, KindSet)| {
                let at = blobs.partition_point(|blob| blob.number < *number);
                allowed.get(at).is_some_and(|allowed| allowed.is_superset(*held))
            };
            if !found.held.iter().all(fits) {
                return Ok(None);
            }
            all.merge(found);
        }
        Ok(Some(all))
    }

    fn in_two_passes(&self, blobs: &[BlobEntry]) -> Result<Found> {
        let (collect, look_up) = match self.options.relations {
            true => (KindSet::ALL, KindSet::WAYS | KindSet::RELATIONS),
            false => (KindSet::NODES, KindSet::WAYS),
        };
        let mut present: [FrozenIds; 3] = Default::default();
        let step = Step {
            name: "ids",
            count: KindSet::ALL,
            collect,
            look_up: KindSet::NONE,
        };
        let mut all = self.pass(step, blobs, &mut present)?;
        let refers: HashSet<u64> = all
            .held
            .iter()
            .filter(|(_, held)| held.intersects(look_up))
            .map(|(number, _)| *number)
            .collect();
        let referring: Vec<BlobEntry> = blobs
            .iter()
            .filter(|b| refers.contains(&b.number))
            .copied()
            .collect();
        let step = Step {
            name: "references",
            count: KindSet::NONE,
            collect: KindSet::NONE,
            look_up,
        };
        all.merge(self.pass(step, &referring, &mut present)?);
        Ok(all)
    }

    fn pass(&self, step: Step, blobs: &[BlobEntry], present: &mut [FrozenIds; 3]) -> Result<Found> {
        let collected: [IdRuns; 3] = Default::default();
        let known = &*present;
        let states =
            self.job
                .pass(step.name, self.input.file(), blobs)
                .scan(Found::default, |found, blob| {
                    found.ids.iter_mut().for_each(Vec::clear);
                    self.look(found, blob, step, known)?;
                    for (ids, runs) in found.ids.iter().zip(&collected) {
                        if !ids.is_empty() {
                            runs.add(ids);
                        }
                    }
                    Ok(())
                })?;
        for ((kind, runs), present) in Kind::ALL.into_iter().zip(collected).zip(present) {
            if step.collect.contains(kind) {
                *present = runs.freeze()?;
            }
        }
        let mut all = Found::default();
        states.into_iter().for_each(|found| all.merge(found));
        Ok(all)
    }

    fn look(&self, found: &mut Found, blob: &mut Blob, step: Step, present: &[FrozenIds; 3]) -> KernelResult {
        found.blob = blob.entry().number;
        let mut held = KindSet::NONE;
        let mut count = Counts::default();
        for group in blob.block()?.groups() {
            let mut items = group.items();
            while let Some((item, message)) = items.try_next_raw()? {
                match item {
                    RawItem::Dense | RawItem::Node => {
                        held.insert(Kind::Node);
                        if step.collect.contains(Kind::Node) {
                            let before = found.ids[0].len();
                            items.parse_ids(item, message, &mut found.ids[0])?;
                            count.nodes += (found.ids[0].len() - before) as u64;
                        }
                    }
                    RawItem::Way => {
                        held.insert(Kind::Way);
                        count.ways += 1;
                        if step.collect.contains(Kind::Way) {
                            items.parse_ids(item, message, &mut found.ids[1])?;
                        }
                        if step.look_up.contains(Kind::Way) {
                            let way = items.parse_way(message)?;
                            let from = ElementId::new(Kind::Way, way.id());
                            let (mut missing, nodes) = (0, &present[0]);
                            way.refs().column().for_each_sum(|id| {
                                if !nodes.contains(id) {
                                    missing += 1;
                                    found.note(self.options.list, ElementId::new(Kind::Node, id), from);
                                }
                            })?;
                            found.way_nodes += missing;
                        }
                    }
                    RawItem::Relation => {
                        held.insert(Kind::Relation);
                        count.relations += 1;
                        if step.collect.contains(Kind::Relation) {
                            items.parse_ids(item, message, &mut found.ids[2])?;
                        }
                        if step.look_up.contains(Kind::Relation) {
                            let relation = items.parse_relation(message)?;
                            let from = ElementId::new(Kind::Relation, relation.id());
                            for member in relation.members() {
                                let missing = member?.element;
                                if !present[missing.kind as usize].contains(missing.id) {
                                    found.members.add(missing.kind, 1);
                                    found
                                        .elements
                                        .add(missing.kind, self.missing_once.insert(missing).into());
                                    found.note(self.options.list, missing, from);
                                }
                            }
                        }
                    }
                }
            }
        }
        for kind in step.count.iter() {
            found.count.add(kind, count.of(kind));
        }
        found.held.push((found.blob, held));
        Ok(())
    }
}

#[derive(Default)]
struct Found {
    count: Counts,
    /// Kinds of elements in each blob.
    held: Vec<(u64, KindSet)>,
    way_nodes: u64,
    members: Counts,
    elements: Counts,
    dangling: Vec<(u64, Dangling)>,
    blob: u64,
    ids: [Vec<i64>; 3],
}

impl Found {
    #[cold]
    fn note(&mut self, list: bool, missing: ElementId, from: ElementId) {
        if list {
            self.dangling.push((self.blob, Dangling { missing, from }));
        }
    }

    fn merge(&mut self, other: Found) {
        self.count += other.count;
        self.held.extend(other.held);
        self.way_nodes += other.way_nodes;
        self.members += other.members;
        self.elements += other.elements;
        self.dangling.extend(other.dangling);
    }
}
