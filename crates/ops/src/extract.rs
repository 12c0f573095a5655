//! `extract`: what is in a region, for any number of regions at once.
//!
//! # What an extract holds
//!
//! As osmium's strategies define it:
//!
//! * [`Strategy::Simple`]: nodes inside, ways with such a node, relations with such a node or way as a member.
//! * [`Strategy::CompleteWays`]: besides, all nodes of these ways, and the relations that contain these
//!   relations, directly or not.
//! * [`Strategy::Smart`]: besides, all node and way members, and the nodes of these ways, of relations of
//!   certain types among those that have a node or way inside, and of relations of which a certain part is
//!   inside anyway.
//!
//! Deletions of a change file belong to every extract.
//!
//! Regions are exact (see [`osmill_geometry`]); where osmium's even-odd rule cuts holes into parts that overlap,
//! there are none here. Any order of the input will do. Files with history keep every version of an element of
//! which one version belongs to the extract.
//!
//! # How
//!
//! Passes over one kind of element each find out which regions an id belongs to (see the `region_ids` module):
//!
//! | pass | reads | notes |
//! | --- | --- | --- |
//! | nodes | blobs of nodes whose box meets a region | nodes inside |
//! | ways | ways | ways with a node inside, those of their nodes that are not inside |
//! | relations | relations | relations with a member inside; for smart, their members |
//! | member ways | ways that were added, or of which any version was | their nodes |
//! | write | see below | |
//!
//! In an orderly file (sorted, every element once, one kind in each blob) most blobs are read once. What the first
//! passes find is encoded at once: `simple` writes it, the others hold it ([`osmill_engine::HoldStore`]). The last
//! pass puts it out in order, and reads only blobs in which there turned out to be more: of these, regions that have
//! no more get what is held. Few blobs are such: of the 5904 node blobs of a 47 M node file, where a box of 10 x 10
//! degrees has nodes in 5255, the nodes that ways bring in lie in 390. In other files the last pass reads whatever
//! holds anything that was noted.
//!
//! With [`Options::include_crossing`] and [`Options::include_enclosing`] others come between; see the `around`
//! module. The last one writes all outputs at once. A blob that belongs to an output whole is copied compressed.

mod around;
mod boundary;
mod region_ids;
mod write;

use std::collections::{HashMap, HashSet};
use std::path::Path;

use osmill_engine::{
    Blob, BlobEntry, Counts, Error, HoldStore, Input, Job, KernelResult, Plan, Result, Sink, TaskOutputs,
    reserve_open_files,
};
use osmill_geometry::{Coverage, MultiPolygon, Region, RegionSet, looks_swapped};
use osmill_model::{BoundingBox, Kind, KindSet};
use osmill_pbf::{Element, FileHeader, HeaderBox, IndexRecord, Item, NodeColumns, RawItem, Relation};
use serde::Serialize;

pub use boundary::{boundaries_of_file, boundary_of};

use crate::select::{self, HeldBlobs, Target};
use region_ids::{Cursor, Gather, RegionIds};
use write::{Parts, Writing};

/// How complete an extract is; see the module's documentation.
#[derive(Debug, Clone, PartialEq)]
pub enum Strategy {
    /// Nodes inside, and what refers to them.
    Simple,
    /// All nodes of the ways, too.
    CompleteWays {
        /// Whether relations are written at all.
        relations: bool,
    },
    /// The members of some relations, too.
    Smart(Smart),
}

impl Default for Strategy {
    fn default() -> Self {
        Strategy::CompleteWays { relations: true }
    }
}

/// Which relations the smart strategy completes.
#[derive(Debug, Clone, PartialEq)]
pub struct Smart {
    /// Those whose tag `type` has one of these values; `None`: all.
    pub types: Option<Vec<String>>,
    /// Of these only relations with one of these tags, if there are any: a key, and a value if it matters.
    pub tags: Vec<(String, Option<String>)>,
    /// Besides, relations of which at least this percentage of the members belongs to the extract.
    pub complete_partial_percentage: f64,
}

impl Default for Smart {
    fn default() -> Self {
        Smart {
            types: Some(vec!["multipolygon".into()]),
            tags: Vec::new(),
            complete_partial_percentage: 100.0,
        }
    }
}

impl Strategy {
    /// Reads a strategy's name and its options in osmium's spelling, `KEY=VALUE`.
    pub fn parse(name: &str, options: &[String]) -> Result<Strategy> {
        let mut strategy = match name {
            "simple" => Strategy::Simple,
            "complete_ways" | "complete-ways" => Strategy::default(),
            "smart" => Strategy::Smart(Smart::default()),
            _ => {
                return Err(Error::Usage(format!(
                    "there is no strategy '{name}'; use simple, complete_ways or smart"
                )));
            }
        };
        for option in options {
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            let bad = |what: &str| Error::Usage(format!("-S {option}: {what}"));
            let words = || value.split(',').map(|word| word.trim().to_owned());
            match (&mut strategy, key) {
                (Strategy::CompleteWays { relations }, "relations") => {
                    *relations = match value {
                        "false" => false,
                        "true" => true,
                        _ => return Err(bad("write relations=false")),
                    };
                }
                (Strategy::Smart(smart), "types") => {
                    smart.types = match value {
                        "any" => None,
                        "" => return Err(bad("write types=any or a list of types")),
                        _ => Some(words().collect()),
                    };
                }
                (Strategy::Smart(smart), "tags") => {
                    let tag = |word: String| match word.split_once('=') {
                        Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
                        None => (word, None),
                    };
                    smart.tags = words().map(tag).collect();
                }
                (Strategy::Smart(smart), "complete-partial-relations") => {
                    let percentage = value.parse().ok().filter(|p| (0.0..=100.0).contains(p));
                    smart.complete_partial_percentage =
                        percentage.ok_or_else(|| bad("write a percentage between 0 and 100"))?;
                }
                _ => return Err(bad(&format!("strategy {name} has no such option"))),
            }
        }
        Ok(strategy)
    }
}

impl Smart {
    fn completes(&self, relation: &Relation<'_>) -> KernelResult<bool> {
        let mut type_fits = self.types.is_none();
        let mut tags_fit = self.tags.is_empty();
        for tag in relation.tags() {
            let tag = tag?;
            if let Some(types) = &self.types
                && tag.key == b"type"
            {
                type_fits = types.iter().any(|name| name.as_bytes() == tag.value);
            }
            tags_fit |= self.tags.iter().any(|(key, value)| {
                key.as_bytes() == tag.key && value.as_ref().is_none_or(|value| value.as_bytes() == tag.value)
            });
        }
        Ok(type_fits && tags_fit)
    }
}

/// A region and the output for what is in it.
#[derive(Debug, Clone)]
pub struct Extract {
    /// The region.
    pub area: MultiPolygon,
    /// The output.
    pub target: Target,
    /// Header options to take over from the input, in osmium's names.
    pub header_from_input: Vec<String>,
}

/// How to extract.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// How complete the extracts are.
    pub strategy: Strategy,
    /// Keep all versions, also if the file's header does not say that it has a history.
    pub with_history: bool,
    /// Write the box of the region into the header.
    pub set_bounds: bool,
    /// Keep ways that cross the region without a node inside. Of one region only.
    pub include_crossing: bool,
    /// Keep areas that surround a part of the region: closed ways, multipolygons and boundaries with all their
    /// members. Of one region only.
    pub include_enclosing: bool,
}

/// What went into an output.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Elements written.
    pub written: Counts,
    /// Bytes written.
    pub bytes: u64,
}

/// Writes what is in each of the regions to its output, in one go. A report for each of them.
///
/// Outputs with nothing in them are written, too, and warned of.
pub fn extract(job: &Job, input: &Path, extracts: &[Extract], options: &Options) -> Result<Vec<Report>> {
    let Some(first) = extracts.first() else {
        return Err(Error::Usage("no region was given".into()));
    };
    reserve_open_files(extracts.len())?;
    let (input, plan) = select::open_planned(job, input)?;
    // A change file is no history, though it may hold an element twice.
    let history = options.with_history || plan.header.has_history() && !input.is_change();
    if history && !matches!(options.strategy, Strategy::CompleteWays { .. }) {
        return Err(Error::Usage(format!(
            "{}: this file has a history, which works with the strategy complete_ways only",
            input.path().display()
        )));
    }
    let wish = around::Wish {
        crossing: options.include_crossing,
        enclosing: options.include_enclosing,
    };
    if wish != around::Wish::default() && (history || extracts.len() > 1) {
        return Err(Error::Usage(
            "what crosses or encloses a region can be added for one region at a time, and not with history"
                .into(),
        ));
    }
    let sinks = extracts
        .iter()
        .map(|extract| open_sink(extract, &plan.header, options))
        .collect::<Result<Vec<Sink>>>()?;
    if sinks.len() > 4 {
        sinks.iter().for_each(|sink| sink.limit_spare_buffers(1));
    }
    let work = Work {
        job,
        input: &input,
        plan: &plan,
        regions: RegionSet::new(extracts.iter().map(|extract| &extract.area)),
        strategy: &options.strategy,
        history,
        orderly: select::is_orderly(&plan) && !input.is_change(),
    };
    work.run(&first.area, wish, &sinks)?;
    job.objects_in(select::total(&plan));
    let data = data_box(&plan);
    let mut reports = Vec::new();
    for (extract, sink) in extracts.iter().zip(sinks) {
        let written = sink.counts();
        if written.total() == 0 {
            job.warn(nothing_found(extract, data));
        }
        job.objects_out(written);
        reports.push(Report {
            written,
            bytes: sink.bytes(),
        });
        sink.finish()?;
    }
    Ok(reports)
}

fn open_sink(extract: &Extract, input: &FileHeader, options: &Options) -> Result<Sink> {
    let mut header = input.clone();
    let keeps = |name: &str| extract.header_from_input.iter().any(|option| option == name);
    // What holds for the whole input need not hold for a part of it.
    if !keeps("osmosis_replication_timestamp") && !keeps("timestamp") {
        header.replication_timestamp = None;
    }
    if !keeps("osmosis_replication_sequence_number") {
        header.replication_sequence = None;
    }
    if !keeps("osmosis_replication_base_url") {
        header.replication_base_url = None;
    }
    header.set_history(options.with_history || input.has_history());
    header.bbox = match options.set_bounds {
        true => extract.area.bbox().map(|bbox| {
            let nano = |value: i32| i64::from(value) * 100;
            HeaderBox {
                left: nano(bbox.min.lon),
                right: nano(bbox.max.lon),
                top: nano(bbox.max.lat),
                bottom: nano(bbox.min.lat),
            }
        }),
        false => None,
    };
    extract.target.open(header)
}

/// The box around all nodes, if index records tell; the header's otherwise.
fn data_box(plan: &Plan) -> Option<BoundingBox> {
    let boxes = plan.blobs.iter().filter_map(|blob| blob.index?.bbox);
    boxes.reduce(BoundingBox::union)
}

fn nothing_found(extract: &Extract, data: Option<BoundingBox>) -> String {
    let name = extract.target.output.path.display();
    let (Some(region), Some(data)) = (extract.area.bbox(), data) else {
        return format!("{name}: nothing is in the region");
    };
    let hint = match looks_swapped(region, data) {
        true => "; are longitudes and latitudes swapped?",
        false => "",
    };
    format!("{name}: nothing is in the region {region}; the data is within {data}{hint}")
}

struct Work<'a> {
    job: &'a Job,
    input: &'a Input,
    plan: &'a Plan,
    regions: RegionSet,
    strategy: &'a Strategy,
    history: bool,
    /// See [`select::is_orderly`].
    orderly: bool,
}

/// Outputs that nothing goes into: those of passes that only look.
const NONE: &[Sink] = &[];

/// What belongs to the extracts, by kind: what may be held, and what turned out to belong later.
struct Chosen {
    nodes: RegionIds,
    more_nodes: RegionIds,
    ways: RegionIds,
    more_ways: RegionIds,
    relations: RegionIds,
    none: RegionIds,
    /// Whether all ways are held.
    ways_held: bool,
}

impl Chosen {
    fn of(&self, kind: Kind) -> [&RegionIds; 2] {
        match kind {
            Kind::Node => [&self.nodes, &self.more_nodes],
            Kind::Way => [&self.ways, &self.more_ways],
            Kind::Relation => [&self.relations, &self.none],
        }
    }

    /// Whether a blob has to be read, whatever is held of it.
    fn is_to_be_read(&self, record: &IndexRecord, orderly: bool) -> bool {
        let Some(kind) = record.kinds.single() else {
            return true;
        };
        let [known, more] = self.of(kind);
        match kind {
            Kind::Node if orderly => more.may_touch(record),
            Kind::Way if self.ways_held => false,
            _ => known.may_touch(record) || more.may_touch(record),
        }
    }
}

/// Regions that were found for an element, each once.
#[derive(Default)]
struct Found(Vec<u32>);

impl Found {
    fn note(&mut self, region: u32) {
        if !self.0.contains(&region) {
            self.0.push(region);
        }
    }
}

impl Work<'_> {
    /// Whether ways bring all their nodes.
    fn completes_ways(&self) -> bool {
        *self.strategy != Strategy::Simple
    }

    /// Finds what belongs to the extracts and writes it.
    ///
    /// In an orderly file, what `simple` finds is written at once. For the other strategies it is held, and only
    /// blobs in which there turns out to be more are read again.
    fn run(&self, area: &MultiPolygon, wish: around::Wish, sinks: &[Sink]) -> Result<()> {
        let around = wish != around::Wish::default();
        let at_once = self.orderly && !around && *self.strategy == Strategy::Simple;
        let some = |is: bool| if is { sinks } else { NONE };
        let ways_held = self.orderly && !around;
        let held = (!at_once).then(|| HeldBack {
            store: select::hold_store(self.job),
            blobs: HeldBlobs::default(),
        });
        let held = held.as_ref();
        let inside = self.nodes_inside(some(self.orderly), held)?;
        let (mut nodes, mut ways) = self.ways_with(&inside, some(ways_held), held)?;
        let mut surrounding = HashSet::new();
        if around {
            let found = around::around(self, &Region::new(area.clone()), &ways, wish)?;
            ways = RegionIds::new([ways.to_gather(), found.ways])?;
            if self.completes_ways() {
                nodes.push(found.nodes);
            }
            surrounding = found.relations;
        }
        let (relations, member_nodes, member_ways) =
            self.relations_with(&inside, &ways, &surrounding, some(at_once))?;
        let Some(held) = held else { return Ok(()) };
        nodes.extend(member_nodes);
        let more_ways = RegionIds::new(member_ways)?.without(&ways)?;
        if self.history {
            // The other versions, too.
            let all = RegionIds::new([ways.to_gather(), more_ways.to_gather()])?;
            nodes.extend(self.nodes_of((&ways, &all), NONE, held)?);
        } else if self.completes_ways() {
            nodes.extend(self.nodes_of((&ways, &more_ways), some(ways_held), held)?);
        }
        let [deleted_nodes, deleted_ways, deleted_relations] = self.deletions()?;
        nodes.extend(deleted_nodes);
        let with = |ids: RegionIds, deleted: Vec<Gather>| match deleted.is_empty() {
            true => Ok(ids),
            false => RegionIds::new(deleted.into_iter().chain([ids.to_gather()])),
        };
        let chosen = Chosen {
            more_nodes: RegionIds::new(nodes)?.without(&inside)?,
            nodes: inside,
            more_ways: with(more_ways, deleted_ways)?.without(&ways)?,
            ways,
            relations: with(relations, deleted_relations)?,
            none: RegionIds::new([])?,
            ways_held,
        };
        self.write(&chosen, held, sinks)
    }

    /// The deleted elements of a change file by kind, which belong to all extracts: without them the deletions would
    /// be lost.
    fn deletions(&self) -> Result<[Vec<Gather>; 3]> {
        let mut deleted = <[Vec<Gather>; 3]>::default();
        if !self.input.is_change() {
            return Ok(deleted);
        }
        let blobs = select::blobs_of(self.plan, KindSet::ALL, |record| record.has_visibility);
        let regions = self.regions.len() as u32;
        let states = self.job.pass("deletions", self.input.file(), &blobs).scan(
            <[Gather; 3]>::default,
            |deleted, blob| {
                for element in blob.block()?.elements() {
                    let element = element?;
                    if element.metadata()?.visible == Some(false) {
                        let of_kind = &mut deleted[element.kind() as usize];
                        (0..regions).for_each(|region| of_kind.add(region, element.id()));
                    }
                }
                Ok(())
            },
        )?;
        for state in states {
            deleted.iter_mut().zip(state).for_each(|(all, ids)| all.push(ids));
        }
        Ok(deleted)
    }

    /// The nodes inside, which are written to `sinks` or held.
    fn nodes_inside(&self, sinks: &[Sink], held: Option<&HeldBack>) -> Result<RegionIds> {
        struct State {
            inside: Gather,
            columns: NodeColumns,
            parts: Parts,
        }
        let make = || State {
            inside: Gather::default(),
            columns: NodeColumns::default(),
            parts: Parts::default(),
        };
        // What is known of a blob by its box: regions that hold all of it, and whether others hold a part.
        let coverage = |bbox: BoundingBox| {
            let coverages = self.regions.classify(bbox);
            let whole = coverages
                .iter()
                .enumerate()
                .filter(|(_, c)| **c == Coverage::Inside);
            let whole: Vec<u32> = whole.map(|(region, _)| region as u32).collect();
            (whole, coverages.contains(&Coverage::Mixed))
        };
        let blobs = select::blobs_of(self.plan, KindSet::NODES, |record| {
            let outside = |bbox| self.regions.classify_union(bbox) == Coverage::Outside;
            record.bbox.is_some_and(|bbox| !outside(bbox))
        });
        let states = self.job.pass("nodes", self.input.file(), &blobs).write_many(
            sinks,
            make,
            |state, blob, outs| {
                let State {
                    inside,
                    columns,
                    parts,
                } = state;
                let Some(bbox) = blob.record()?.bbox else {
                    return Ok(());
                };
                let (whole, partly) = coverage(bbox);
                columns.read(blob.block()?)?;
                parts.begin();
                for (&id, location) in columns.ids.iter().zip(&columns.locations) {
                    let mut found = |region| {
                        inside.add(region, id);
                        parts.add(region);
                    };
                    match *location {
                        Some(location) if partly => {
                            self.regions.for_each_containing(location, found);
                        }
                        Some(location) if location.is_valid() => {
                            whole.iter().for_each(|region| found(*region));
                        }
                        _ => {}
                    }
                    parts.next();
                }
                parts.lend(columns);
                put(parts, blob, outs, held)
            },
        )?;
        RegionIds::new(states.into_iter().map(|state| state.inside))
    }

    /// The ways with a node inside, which are written to `sinks` or held, and, if ways are completed, the nodes of
    /// these that are not inside.
    fn ways_with(
        &self,
        inside: &RegionIds,
        sinks: &[Sink],
        held: Option<&HeldBack>,
    ) -> Result<(Vec<Gather>, RegionIds)> {
        struct State<'r> {
            inside: Cursor<'r>,
            ways: Gather,
            nodes: Gather,
            refs: Vec<i64>,
            found: Found,
            parts: Parts,
        }
        let make = || State {
            inside: inside.cursor(),
            ways: Gather::default(),
            nodes: Gather::default(),
            refs: Vec::new(),
            found: Found::default(),
            parts: Parts::default(),
        };
        // With history the nodes of all versions are noted later.
        let note_nodes = self.completes_ways() && !self.history;
        let one = self.regions.len() == 1;
        let blobs = select::blobs_of(self.plan, KindSet::WAYS, |_| !inside.is_empty());
        let states = self.job.pass("ways", self.input.file(), &blobs).write_many(
            sinks,
            make,
            |state, blob, outs| {
                let State {
                    inside,
                    ways,
                    nodes,
                    refs,
                    found,
                    parts,
                } = state;
                parts.begin();
                for_each_way(blob, refs, |id, refs| {
                    found.0.clear();
                    if one {
                        if refs.iter().any(|id| inside.any(*id)) {
                            found.0.push(0);
                        }
                    } else {
                        refs.iter()
                            .for_each(|id| inside.each(*id, |region| found.note(region)));
                    }
                    for &region in &found.0 {
                        ways.add(region, id);
                        parts.add(region);
                    }
                    if note_nodes && !found.0.is_empty() {
                        for id in refs {
                            inside.others(*id, &found.0, |region| nodes.add(region, *id));
                        }
                    }
                    parts.next();
                    Ok(())
                })?;
                put(parts, blob, outs, held)
            },
        )?;
        let (nodes, ways): (Vec<_>, Vec<_>) = states.into_iter().map(|s| (s.nodes, s.ways)).unzip();
        Ok((nodes, RegionIds::new(ways)?))
    }

    /// The relations that belong to the extracts; of those that are completed the nodes and the ways. The
    /// `surrounding` ones belong to region 0 and are completed. All but parents of relations are written to `sinks`.
    fn relations_with(
        &self,
        inside: &RegionIds,
        ways: &RegionIds,
        surrounding: &HashSet<i64>,
        sinks: &[Sink],
    ) -> Result<(RegionIds, Vec<Gather>, Vec<Gather>)> {
        struct State<'r> {
            inside: Cursor<'r>,
            ways: Cursor<'r>,
            relations: Gather,
            member_nodes: Gather,
            member_ways: Gather,
            /// Regions of the relation, and how many of its members are in each.
            found: Vec<(u32, usize)>,
            parents: Vec<(i64, i64)>,
            parts: Parts,
        }
        let make = || State {
            inside: inside.cursor(),
            ways: ways.cursor(),
            relations: Gather::default(),
            member_nodes: Gather::default(),
            member_ways: Gather::default(),
            found: Vec::new(),
            parents: Vec::new(),
            parts: Parts::default(),
        };
        let wanted = *self.strategy != Strategy::CompleteWays { relations: false };
        let any = !inside.is_empty() || !ways.is_empty() || !surrounding.is_empty();
        let blobs = select::blobs_of(self.plan, KindSet::RELATIONS, |_| wanted && any);
        let states = self.job.pass("relations", self.input.file(), &blobs).write_many(
            sinks,
            make,
            |state, blob, outs| {
                state.parts.begin();
                for element in blob.block()?.elements() {
                    let Element::Relation(relation) = element? else {
                        continue;
                    };
                    state.found.clear();
                    for member in relation.members() {
                        let member = member?.element;
                        let found = &mut state.found;
                        let note = |region| match found.iter_mut().find(|(known, _)| *known == region) {
                            Some((_, count)) => *count += 1,
                            None => found.push((region, 1)),
                        };
                        match member.kind {
                            Kind::Node => state.inside.each(member.id, note),
                            Kind::Way => state.ways.each(member.id, note),
                            Kind::Relation => state.parents.push((member.id, relation.id())),
                        }
                    }
                    let surrounds = surrounding.contains(&relation.id());
                    if surrounds && state.found.is_empty() {
                        state.found.push((0, 0));
                    }
                    for &(region, _) in &state.found {
                        state.relations.add(region, relation.id());
                        state.parts.add(region);
                    }
                    state.parts.next();
                    if state.found.is_empty() {
                        continue;
                    }
                    // From how many members on a relation is completed, as hundredths.
                    let enough = match self.strategy {
                        _ if surrounds => 0.0,
                        Strategy::Smart(smart) if smart.completes(&relation)? => 0.0,
                        Strategy::Smart(smart) => {
                            relation.member_count() as f64 * smart.complete_partial_percentage
                        }
                        _ => continue,
                    };
                    for &(region, count) in &state.found {
                        if (count as f64 * 100.0) < enough {
                            continue;
                        }
                        for member in relation.members() {
                            let member = member?.element;
                            match member.kind {
                                Kind::Node => state.member_nodes.add(region, member.id),
                                Kind::Way => state.member_ways.add(region, member.id),
                                Kind::Relation => {}
                            }
                        }
                    }
                }
                put(&mut state.parts, blob, outs, None)
            },
        )?;
        let (mut relations, mut nodes, mut ways, mut parents) = (vec![], vec![], vec![], vec![]);
        for state in states {
            relations.push(state.relations);
            nodes.push(state.member_nodes);
            ways.push(state.member_ways);
            parents.extend(state.parents);
        }
        let mut relations = RegionIds::new(relations)?;
        if self.completes_ways() {
            relations = with_parents(relations, parents)?;
        }
        Ok((relations, nodes, ways))
    }

    /// All nodes of the ways in `more`, of every version of them. What is held of blobs with these is completed.
    fn nodes_of(
        &self,
        (known, more): (&RegionIds, &RegionIds),
        sinks: &[Sink],
        held: &HeldBack,
    ) -> Result<Vec<Gather>> {
        if more.is_empty() {
            return Ok(Vec::new());
        }
        let blobs = select::blobs_of(self.plan, KindSet::WAYS, |record| {
            record.kinds.single().is_none() || more.may_touch(record)
        });
        let make = || {
            let parts = Parts::default();
            (
                known.cursor(),
                more.cursor(),
                Gather::default(),
                Vec::new(),
                parts,
            )
        };
        let states = self
            .job
            .pass("member ways", self.input.file(), &blobs)
            .write_many(sinks, make, |(known, more, nodes, refs, parts), blob, outs| {
                parts.begin();
                for group in blob.block()?.groups() {
                    let mut items = group.items();
                    while let Some((item, message)) = items.try_next_raw()? {
                        if item != RawItem::Way {
                            continue;
                        }
                        refs.clear();
                        items.parse_ids(item, message, refs)?;
                        let Some(&id) = refs.first() else { continue };
                        known.each(id, |region| parts.add(region));
                        more.each(id, |region| parts.add_more(region));
                        parts.next();
                        if more.any(id)
                            && let Item::Way(way) = items.parse(item, message)?
                        {
                            refs.clear();
                            way.refs().column().decode_deltas_into(refs)?;
                            more.each(id, |region| refs.iter().for_each(|id| nodes.add(region, *id)));
                        }
                    }
                }
                if outs.is_empty() {
                    return Ok(());
                }
                let before = held.blobs.take(blob.entry().number).unwrap_or_default();
                parts.rewrite(blob, outs, before, &held.store)?;
                held.blobs.hold(blob, outs, &held.store)
            })?;
        Ok(states.into_iter().map(|(_, _, nodes, ..)| nodes).collect())
    }

    /// Writes what was chosen, from what is held where that is all.
    fn write(&self, chosen: &Chosen, held: &HeldBack, sinks: &[Sink]) -> Result<()> {
        let is_to_be_read = |blob: &BlobEntry| {
            blob.index
                .is_none_or(|record| chosen.is_to_be_read(&record, self.orderly))
        };
        let mut blobs = self.plan.blobs.clone();
        blobs.retain(|blob| held.blobs.has(blob.number) || is_to_be_read(blob));
        let make = || {
            let cursors = Kind::ALL.map(|kind| chosen.of(kind).map(RegionIds::cursor));
            Writing::new(cursors)
        };
        self.job
            .pass("write", self.input.file(), &blobs)
            .write_many(sinks, make, |state, blob, outs| {
                let store = &held.store;
                match held.blobs.take(blob.entry().number) {
                    Some(all) if !is_to_be_read(blob.entry()) => outs.restore(all, store),
                    some => state.blob(blob, outs, some.map(|held| (held, store))),
                }
            })?;
        Ok(())
    }
}

/// What passes have found and not written yet.
struct HeldBack {
    store: HoldStore,
    blobs: HeldBlobs,
}

/// Writes the noted elements of a blob if there are outputs; holds them if that is asked for.
fn put(
    parts: &mut Parts,
    blob: &mut Blob,
    outs: &mut TaskOutputs<'_>,
    held: Option<&HeldBack>,
) -> KernelResult {
    if outs.is_empty() {
        return Ok(());
    }
    parts.write(blob, outs)?;
    match held {
        Some(held) => held.blobs.hold(blob, outs, &held.store),
        None => Ok(()),
    }
}

/// Calls `visit` with the id and the references of each way of a blob.
fn for_each_way(
    blob: &mut Blob,
    refs: &mut Vec<i64>,
    mut visit: impl FnMut(i64, &[i64]) -> KernelResult,
) -> KernelResult {
    for group in blob.block()?.groups() {
        let mut items = group.items();
        while let Some(item) = items.try_next()? {
            if let Item::Way(way) = item {
                refs.clear();
                way.refs().column().decode_deltas_into(refs)?;
                visit(way.id(), refs)?;
            }
        }
    }
    Ok(())
}

/// Adds the relations that contain those that are there, directly or not, to the same regions. `parents` are
/// all pairs of a member relation and the relation that it is a member of. O(pairs x regions), cycles end.
fn with_parents(relations: RegionIds, parents: Vec<(i64, i64)>) -> Result<RegionIds> {
    if parents.is_empty() || relations.is_empty() {
        return Ok(relations);
    }
    let mut of: HashMap<i64, Vec<i64>> = HashMap::new();
    for &(child, parent) in &parents {
        of.entry(child).or_default().push(parent);
    }
    let mut cursor = relations.cursor();
    let mut open: Vec<(u32, i64)> = Vec::new();
    for child in of.keys() {
        cursor.each(*child, |region| open.push((region, *child)));
    }
    let mut new = HashSet::new();
    while let Some((region, child)) = open.pop() {
        for &parent in of.get(&child).into_iter().flatten() {
            let mut known = false;
            cursor.each(parent, |r| known |= r == region);
            if !known && new.insert((region, parent)) {
                open.push((region, parent));
            }
        }
    }
    let mut gather = relations.to_gather();
    for (region, id) in new {
        gather.add(region, id);
    }
    RegionIds::new([gather])
}
