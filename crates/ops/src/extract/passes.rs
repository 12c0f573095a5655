//! The passes that find out what belongs to the extracts, and write it.

use std::collections::{HashMap, HashSet};

use osmill_engine::{Blob, BlobEntry, Input, Job, KernelResult, Result, Sink, TaskOutputs};
use osmill_geometry::{Coverage, MultiPolygon, Region, RegionSet};
use osmill_model::{BoundingBox, Kind, KindSet};
use osmill_pbf::{IndexRecord, NodeColumns, Relation};

use super::around;
use super::order::{Known, Learned};
use super::ranges::{Members, Room};
use super::region_ids::{Cursor, Gather, RegionIds};
use super::strategy::Strategy;
use super::write::{Parts, Writing};
use crate::select::{self, HeldBack, IdBudget};

/// Some regions to be cut out of an input.
pub struct Work<'a> {
    pub job: &'a Job,
    pub input: &'a Input,
    pub known: Known,
    pub regions: &'a RegionSet,
    pub strategy: &'a Strategy,
    pub history: bool,
    /// See [`select::is_orderly`].
    pub orderly: bool,
}

/// How the passes ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// All that belongs to the extracts was written.
    All,
    /// The file is not as orderly as it was presumed to be. What was written has to be thrown away.
    Disorder,
}

/// What is kept in memory, for messages.
const WHAT: &str = "the ids that belong to the regions";

/// Outputs that nothing goes into: those of passes that only look.
pub const NONE: &[Sink] = &[];

/// What belongs to the extracts, by kind: what may be held, and what turned out to belong later.
pub struct Chosen {
    pub nodes: RegionIds,
    pub more_nodes: RegionIds,
    pub ways: RegionIds,
    pub more_ways: RegionIds,
    pub relations: RegionIds,
    pub none: RegionIds,
    /// Whether all ways are held.
    pub ways_held: bool,
}

/// The nodes inside, of some blobs.
pub struct Inside {
    pub ids: RegionIds,
    pub learned: Vec<Learned>,
    /// How many of the blobs these are; the others were left out for want of room.
    pub blobs: usize,
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

/// What the pass over relations finds out.
#[derive(Default)]
pub struct Related {
    pub relations: Vec<Gather>,
    /// Members of the relations that are completed.
    pub nodes: Vec<Gather>,
    pub ways: Vec<Gather>,
    /// All pairs of a member relation and the relation that it is a member of.
    pub parents: Vec<(i64, i64)>,
    pub learned: Vec<Learned>,
}

impl Work<'_> {
    /// Whether ways bring all their nodes.
    pub fn completes_ways(&self) -> bool {
        *self.strategy != Strategy::Simple
    }

    /// What ids of ways and relations, and of nodes that others bring in, may take.
    pub fn budget(&self) -> IdBudget {
        IdBudget::of(self.job, WHAT)
    }

    /// Room for nodes inside, as many as there may be at a time.
    pub fn room_for_range(&self) -> Room {
        Room::some(
            IdBudget::of_range(self.job, WHAT),
            self.job.blobs_of_task(self.input.file()),
        )
    }

    /// Finds what belongs to the extracts and writes it.
    ///
    /// In an orderly file, what `simple` finds is written at once. For the other strategies it is held, and only
    /// blobs in which there turns out to be more are read again.
    pub fn run(&mut self, area: &MultiPolygon, wish: around::Wish, sinks: &[Sink]) -> Result<Found> {
        let around = wish != around::Wish::default();
        let at_once = self.orderly && !around && *self.strategy == Strategy::Simple;
        let some = |is: bool| if is { sinks } else { NONE };
        let ways_held = self.orderly && !around;
        let held = (!at_once).then(|| HeldBack::new(self.job));
        let held = held.as_ref();
        let blobs = self.node_blobs();
        let room = match self.orderly && !around && !self.history {
            true => self.room_for_range(),
            false => Room::for_all(self.budget()),
        };
        let first = self.nodes_inside(&blobs, &room, some(self.orderly), held)?;
        if first.blobs < blobs.len() {
            return self.run_in_ranges(&blobs, first, sinks, held);
        }
        let inside = first.ids;
        if !self.known.learn(Kind::Node, first.learned) {
            return Ok(Found::Disorder);
        }
        // With history the nodes of all versions are noted later.
        let note_nodes = self.completes_ways() && !self.history;
        let (mut nodes, mut ways, learned) = self.ways_with(&inside, note_nodes, some(ways_held), held)?;
        if !self.known.learn(Kind::Way, learned) {
            return Ok(Found::Disorder);
        }
        let mut surrounding = HashSet::new();
        if around {
            let found = around::around(self, &Region::new(area.clone()), &ways, wish)?;
            ways = RegionIds::new([ways.to_gather(), found.ways])?;
            if self.completes_ways() {
                nodes.push(found.nodes);
            }
            surrounding = found.relations;
        }
        let before = Members::default();
        let related = self.relations_with(&inside, &ways, &surrounding, &before, some(at_once))?;
        if !self.known.learn(Kind::Relation, related.learned) {
            return Ok(Found::Disorder);
        }
        let Some(held) = held else {
            return Ok(Found::All);
        };
        let mut relations = RegionIds::new(related.relations)?;
        if self.completes_ways() {
            relations = with_parents(relations, related.parents)?;
        }
        nodes.extend(related.nodes);
        let more_ways = RegionIds::new(related.ways)?.without(&ways)?;
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
        self.write(&chosen, held, sinks)?;
        Ok(Found::All)
    }

    /// The deleted elements of a change file by kind, which belong to all extracts: without them the deletions would
    /// be lost.
    fn deletions(&self) -> Result<[Vec<Gather>; 3]> {
        let mut deleted = <[Vec<Gather>; 3]>::default();
        if !self.input.is_change() {
            return Ok(deleted);
        }
        let blobs = select::blobs_of(&self.known.plan, KindSet::ALL, |record| record.has_visibility);
        let regions = self.regions.len() as u32;
        let budget = self.budget();
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
                Ok(deleted.iter_mut().try_for_each(|ids| ids.charge(&budget))?)
            },
        )?;
        for state in states {
            deleted.iter_mut().zip(state).for_each(|(all, ids)| all.push(ids));
        }
        Ok(deleted)
    }

    /// The blobs with nodes that may be inside.
    fn node_blobs(&self) -> Vec<BlobEntry> {
        self.known.blobs_of(Kind::Node, |record| {
            let outside = |bbox| self.regions.classify_union(bbox) == Coverage::Outside;
            record.bbox.is_some_and(|bbox| !outside(bbox))
        })
    }

    /// The nodes inside, of those blobs that there is room for, which are written to `sinks` or held.
    pub fn nodes_inside(
        &self,
        blobs: &[BlobEntry],
        room: &Room,
        sinks: &[Sink],
        held: Option<&HeldBack>,
    ) -> Result<Inside> {
        #[derive(Default)]
        struct State {
            learned: Learned,
            inside: Gather,
            columns: NodeColumns,
            /// Places of nodes that may be inside.
            near: Vec<u32>,
            parts: Parts,
        }
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
        let states = self.job.pass("nodes", self.input.file(), blobs).write_many(
            sinks,
            State::default,
            |state, blob, outs| {
                let State {
                    learned,
                    inside,
                    columns,
                    near,
                    parts,
                } = state;
                if !room.begin(blob.entry().number) {
                    return Ok(());
                }
                learned.read_nodes(blob, columns)?;
                let Some(bbox) = blob.record()?.bbox else {
                    return Ok(());
                };
                let (whole, partly) = coverage(bbox);
                parts.begin();
                near.clear();
                match whole.is_empty() {
                    true => self.regions.find_near(&columns.locations, near),
                    false => near.extend(0..columns.ids.len() as u32),
                }
                for &place in near.iter() {
                    let id = columns.ids[place as usize];
                    parts.turn_to(place);
                    let mut found = |region| {
                        inside.add(region, id);
                        parts.add(region);
                    };
                    match columns.locations[place as usize] {
                        Some(location) if partly => {
                            self.regions.for_each_containing(location, found);
                        }
                        Some(location) if location.is_valid() => {
                            whole.iter().for_each(|region| found(*region));
                        }
                        _ => {}
                    }
                }
                parts.turn_to(columns.ids.len() as u32);
                room.charge(inside)?;
                parts.lend(columns);
                put(parts, blob, outs, held)
            },
        )?;
        let (inside, learned): (Vec<_>, Vec<_>) = states.into_iter().map(|s| (s.inside, s.learned)).unzip();
        let left_out = |blob: &BlobEntry| room.end().is_some_and(|end| blob.number >= end);
        Ok(Inside {
            ids: RegionIds::new(inside)?,
            learned,
            blobs: blobs.partition_point(|blob| !left_out(blob)),
        })
    }

    /// The ways with a node inside, which are written to `sinks` or held, and with `note_nodes` the nodes of these
    /// that are not inside.
    pub fn ways_with(
        &self,
        inside: &RegionIds,
        note_nodes: bool,
        sinks: &[Sink],
        held: Option<&HeldBack>,
    ) -> Result<(Vec<Gather>, RegionIds, Vec<Learned>)> {
        struct State<'r> {
            learned: Learned,
            inside: Cursor<'r>,
            ways: Gather,
            nodes: Gather,
            refs: Vec<i64>,
            /// Regions of the way.
            found: Vec<u32>,
            parts: Parts,
        }
        let make = || State {
            learned: Learned::default(),
            inside: inside.cursor(),
            ways: Gather::default(),
            nodes: Gather::default(),
            refs: Vec::new(),
            found: Vec::new(),
            parts: Parts::default(),
        };
        let budget = self.budget();
        let nodes_inside = inside;
        let regions = self.regions.len();
        let blobs = self.known.blobs_of(Kind::Way, |_| !inside.is_empty());
        let states = self.job.pass("ways", self.input.file(), &blobs).write_many(
            sinks,
            make,
            |state, blob, outs| {
                let State {
                    learned,
                    inside,
                    ways,
                    nodes,
                    refs,
                    found,
                    parts,
                } = state;
                parts.begin();
                learned.read_ways(blob, |id, column| {
                    // Most ways are in no region.
                    if column.any(|node| nodes_inside.may_have(node))? {
                        found.clear();
                        let mut ask = |node| {
                            if found.len() < regions && nodes_inside.may_have(node) {
                                inside.each(node, |region| {
                                    if !found.contains(&region) {
                                        found.push(region);
                                    }
                                });
                            }
                        };
                        if note_nodes {
                            refs.clear();
                            column.decode_into(refs)?;
                            refs.iter().for_each(|node| ask(*node));
                        } else {
                            column.for_each(ask)?;
                        }
                        for &region in found.iter() {
                            ways.add(region, id);
                            parts.add(region);
                        }
                        for &node in refs.iter().filter(|_| note_nodes && !found.is_empty()) {
                            inside.others(node, found, |region| nodes.add(region, node));
                        }
                    }
                    parts.next();
                    Ok(())
                })?;
                ways.charge(&budget)?;
                nodes.charge(&budget)?;
                put(parts, blob, outs, held)
            },
        )?;
        let (mut nodes, mut ways, mut learned) = (Vec::new(), Vec::new(), Vec::new());
        for state in states {
            nodes.push(state.nodes);
            ways.push(state.ways);
            learned.push(state.learned);
        }
        Ok((nodes, RegionIds::new(ways)?, learned))
    }

    /// Whether any relations are written.
    pub fn has_relations(&self) -> bool {
        *self.strategy != Strategy::CompleteWays { relations: false }
    }

    /// The relations that belong to the extracts; of those that are completed the nodes and the ways. The
    /// `surrounding` ones belong to region 0 and are completed. What is known of members `before` is added. All but
    /// parents of relations are written to `sinks`.
    pub fn relations_with(
        &self,
        inside: &RegionIds,
        ways: &RegionIds,
        surrounding: &HashSet<i64>,
        before: &Members,
        sinks: &[Sink],
    ) -> Result<Related> {
        let make = || Relating {
            strategy: self.strategy,
            surrounding,
            before,
            inside: inside.cursor(),
            ways: ways.cursor(),
            relations: Gather::default(),
            member_nodes: Gather::default(),
            member_ways: Gather::default(),
            found: Vec::new(),
            parents: Vec::new(),
            parts: Parts::default(),
            learned: Learned::default(),
        };
        let wanted = self.has_relations();
        let any = !inside.is_empty() || !ways.is_empty() || !surrounding.is_empty() || !before.is_empty();
        let blobs = self.known.blobs_of(Kind::Relation, |_| wanted && any);
        let budget = self.budget();
        let states = self.job.pass("relations", self.input.file(), &blobs).write_many(
            sinks,
            make,
            |state, blob, outs| {
                state.learned.look(blob)?;
                if !wanted || !any {
                    return Ok(());
                }
                state.parts.begin();
                select::for_each_relation(blob, |relation| state.look(relation))?;
                state.relations.charge(&budget)?;
                state.member_nodes.charge(&budget)?;
                state.member_ways.charge(&budget)?;
                put(&mut state.parts, blob, outs, None)
            },
        )?;
        let mut related = Related::default();
        for state in states {
            related.relations.push(state.relations);
            related.nodes.push(state.member_nodes);
            related.ways.push(state.member_ways);
            related.parents.extend(state.parents);
            related.learned.push(state.learned);
        }
        Ok(related)
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
        let blobs = self.known.blobs_of(Kind::Way, |record| {
            record.kinds.single().is_none() || more.may_touch(record)
        });
        let make = || {
            let parts = Parts::default();
            (known.cursor(), more.cursor(), Gather::default(), parts)
        };
        let budget = self.budget();
        let states = self
            .job
            .pass("member ways", self.input.file(), &blobs)
            .write_many(sinks, make, |(known, more, nodes, parts), blob, outs| {
                parts.begin();
                select::for_each_way(blob, |id, refs| {
                    known.each(id, |region| parts.add(region));
                    more.each(id, |region| parts.add_more(region));
                    parts.next();
                    if more.any(id) {
                        refs.fold((), |(), node| more.each(id, |region| nodes.add(region, node)))?;
                    }
                    Ok(())
                })?;
                nodes.charge(&budget)?;
                if outs.is_empty() {
                    return Ok(());
                }
                let before = held.take(blob).unwrap_or_default();
                parts.rewrite(blob, outs, before, held.store())?;
                held.hold(blob, outs)
            })?;
        Ok(states.into_iter().map(|(_, _, nodes, _)| nodes).collect())
    }

    /// Writes what was chosen, from what is held where that is all.
    pub fn write(&self, chosen: &Chosen, held: &HeldBack, sinks: &[Sink]) -> Result<()> {
        let is_to_be_read = |blob: &BlobEntry| {
            blob.index
                .is_none_or(|record| chosen.is_to_be_read(&record, self.orderly))
        };
        let mut blobs = self.known.plan.blobs.clone();
        blobs.retain(|blob| held.has(blob) || is_to_be_read(blob));
        let make = || {
            let cursors = Kind::ALL.map(|kind| chosen.of(kind).map(RegionIds::cursor));
            Writing::new(cursors)
        };
        self.job
            .pass("write", self.input.file(), &blobs)
            .write_many(sinks, make, |state, blob, outs| match held.take(blob) {
                Some(all) if !is_to_be_read(blob.entry()) => outs.restore(all, held.store()),
                some => state.blob(blob, outs, some.map(|part| (part, held.store()))),
            })?;
        Ok(())
    }
}

/// What a worker of the pass over relations knows and finds.
struct Relating<'r> {
    strategy: &'r Strategy,
    surrounding: &'r HashSet<i64>,
    before: &'r Members,
    inside: Cursor<'r>,
    ways: Cursor<'r>,
    relations: Gather,
    member_nodes: Gather,
    member_ways: Gather,
    /// Regions of the relation, and how many of its members are in each.
    found: Vec<(u32, usize)>,
    parents: Vec<(i64, i64)>,
    parts: Parts,
    learned: Learned,
}

impl Relating<'_> {
    fn look(&mut self, relation: &Relation<'_>) -> KernelResult {
        self.find_regions(relation)?;
        for &(region, _) in &self.found {
            self.relations.add(region, relation.id());
            self.parts.add(region);
        }
        self.parts.next();
        match self.enough(relation)? {
            Some(enough) if !self.found.is_empty() => self.note_members(relation, enough),
            _ => Ok(()),
        }
    }

    /// Notes the regions with a member of the relation, and what relations the relation is a parent of.
    fn find_regions(&mut self, relation: &Relation<'_>) -> KernelResult {
        self.found.clear();
        let found = &mut self.found;
        found.extend_from_slice(self.before.of(relation.id()));
        for member in relation.members() {
            let member = member?.element;
            let note = |region| match found.iter_mut().find(|(known, _)| *known == region) {
                Some((_, count)) => *count += 1,
                None => found.push((region, 1)),
            };
            match member.kind {
                Kind::Node => self.inside.each(member.id, note),
                Kind::Way => self.ways.each(member.id, note),
                Kind::Relation => self.parents.push((member.id, relation.id())),
            }
        }
        if self.found.is_empty() && self.surrounding.contains(&relation.id()) {
            self.found.push((0, 0));
        }
        Ok(())
    }

    /// From how many members in a region on the relation is completed, in hundredths; `None` if it never is.
    fn enough(&self, relation: &Relation<'_>) -> KernelResult<Option<f64>> {
        Ok(match self.strategy {
            _ if self.surrounding.contains(&relation.id()) => Some(0.0),
            Strategy::Smart(smart) if smart.completes(relation)? => Some(0.0),
            Strategy::Smart(smart) => {
                Some(relation.member_count() as f64 * smart.complete_partial_percentage)
            }
            _ => None,
        })
    }

    fn note_members(&mut self, relation: &Relation<'_>, enough: f64) -> KernelResult {
        for &(region, count) in &self.found {
            if (count as f64 * 100.0) < enough {
                continue;
            }
            for member in relation.members() {
                let member = member?.element;
                match member.kind {
                    Kind::Node => self.member_nodes.add(region, member.id),
                    Kind::Way => self.member_ways.add(region, member.id),
                    Kind::Relation => {}
                }
            }
        }
        Ok(())
    }
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
        Some(held) => held.hold(blob, outs),
        None => Ok(()),
    }
}

/// Adds the relations that contain those that are there, directly or not, to the same regions. `parents` are
/// all pairs of a member relation and the relation that it is a member of. O(pairs x regions), cycles end.
pub fn with_parents(relations: RegionIds, parents: Vec<(i64, i64)>) -> Result<RegionIds> {
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
