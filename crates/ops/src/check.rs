//! `check`: order, uniqueness and references.

use std::sync::Mutex;

use osmill_engine::{Blob, BlobEntry, Counts, IdSets, Input, Job, KernelResult, Plan, Result};
use osmill_model::{ElementId, Kind};
use osmill_pbf::{IndexRecord, Item};
use serde::Serialize;

use crate::order::{Offence, Order};

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
/// Two passes: one over all blobs collects the ids, one over those with ways or relations looks their
/// references up. Any order of the file will do.
pub fn refs(job: &Job, input: &Input, plan: &Plan, options: RefOptions) -> Result<RefReport> {
    let present = IdSets::new();
    // Blobs that have to be read again, found out in the first pass.
    let referring = Mutex::new(Vec::<BlobEntry>::new());
    let states = job.pass("ids", input.file(), &plan.blobs).scan(
        || (Counts::default(), Vec::new()),
        |(counts, ids), blob| {
            let mut refers = false;
            for group in blob.block()?.groups() {
                let mut items = group.items();
                while let Some(item) = items.try_next()? {
                    match item {
                        Item::Dense(dense) => {
                            ids.clear();
                            dense.ids().column().decode_deltas_into(ids)?;
                            counts.nodes += ids.len() as u64;
                            present.of(Kind::Node).insert_all(ids);
                        }
                        Item::Node(node) => {
                            counts.nodes += 1;
                            present.of(Kind::Node).insert(node.id());
                        }
                        Item::Way(way) => {
                            counts.ways += 1;
                            refers = true;
                            if options.relations {
                                present.of(Kind::Way).insert(way.id());
                            }
                        }
                        Item::Relation(relation) => {
                            counts.relations += 1;
                            refers |= options.relations;
                            if options.relations {
                                present.of(Kind::Relation).insert(relation.id());
                            }
                        }
                    }
                }
            }
            if refers {
                let entry = *blob.entry();
                referring
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner)
                    .push(entry);
            }
            Ok(())
        },
    )?;
    let mut report = RefReport {
        missing_members: options.relations.then(Counts::default),
        missing_member_elements: options.relations.then(Counts::default),
        ..RefReport::default()
    };
    states.iter().for_each(|(counts, _)| report.count += *counts);
    job.objects_in(report.count);
    let mut blobs = referring
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    blobs.sort_unstable_by_key(|blob| blob.number);
    let missing_once = IdSets::new();
    let states = job
        .pass("references", input.file(), &blobs)
        .scan(Found::default, |found, blob| {
            found.blob = blob.entry().number;
            for group in blob.block()?.groups() {
                let mut items = group.items();
                while let Some(item) = items.try_next()? {
                    match item {
                        Item::Way(way) => {
                            let from = ElementId::new(Kind::Way, way.id());
                            let mut refs = std::mem::take(&mut found.refs);
                            refs.clear();
                            way.refs().column().decode_deltas_into(&mut refs)?;
                            for &id in &refs {
                                if !present.of(Kind::Node).contains(id) {
                                    found.way_nodes += 1;
                                    found.note(options.list, ElementId::new(Kind::Node, id), from);
                                }
                            }
                            found.refs = refs;
                        }
                        Item::Relation(relation) if options.relations => {
                            let from = ElementId::new(Kind::Relation, relation.id());
                            for member in relation.members() {
                                let missing = member?.element;
                                if !present.contains(missing) {
                                    found.members.add(missing.kind, 1);
                                    found
                                        .elements
                                        .add(missing.kind, missing_once.insert(missing).into());
                                    found.note(options.list, missing, from);
                                }
                            }
                        }
                        _ => {}
                    }
                }
            }
            Ok(())
        })?;
    let mut dangling = Vec::new();
    for found in states {
        report.missing_way_nodes += found.way_nodes;
        if let Some(members) = &mut report.missing_members {
            *members += found.members;
        }
        if let Some(elements) = &mut report.missing_member_elements {
            *elements += found.elements;
        }
        dangling.extend(found.dangling);
    }
    dangling.sort_by_key(|(blob, _)| *blob);
    report.dangling = dangling.into_iter().map(|(_, dangling)| dangling).collect();
    Ok(report)
}

#[derive(Default)]
struct Found {
    blob: u64,
    refs: Vec<i64>,
    way_nodes: u64,
    members: Counts,
    elements: Counts,
    dangling: Vec<(u64, Dangling)>,
}

impl Found {
    #[cold]
    fn note(&mut self, list: bool, missing: ElementId, from: ElementId) {
        if list {
            self.dangling.push((self.blob, Dangling { missing, from }));
        }
    }
}
