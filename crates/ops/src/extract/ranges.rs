//! Extracts whose nodes do not fit in memory: in ranges of ids.
//!
//! Of an orderly file the pass over nodes stops where there is no more room for those inside. With what it has found,
//! ways and the members of relations are looked at, and it goes on from there. When all ranges are done it is known
//! which ways and relations belong to the extracts. Where ways are completed, the ranges are gone through once more, for
//! the nodes of ways and the members of relations that are not inside: what is held of blobs with such nodes is
//! completed. So, for N ranges, blobs of ways are read N times for `simple`, 2 N + 1 times for the others, which read
//! those of nodes twice.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use osmill_engine::{BlobEntry, Error, Result, Sink};
use osmill_model::Kind;
use osmill_nodes::IdRange;
use osmill_pbf::IndexRecord;

use super::passes::{Chosen, Found, Inside, NONE, Work, with_parents};
use super::region_ids::{Gather, RegionIds};
use super::write::Writing;
use crate::select::{self, HeldBack, IdBudget};

/// The room for the ids that a pass over blobs finds, which it goes through in their order.
pub struct Room {
    budget: IdBudget,
    /// Whether the pass stops when there is no more room. Otherwise that is an error.
    stops: bool,
    /// It stops between tasks; see [`osmill_engine::Job::blobs_of_task`].
    divisor: u64,
    blobs: Mutex<Blobs>,
}

#[derive(Default)]
struct Blobs {
    /// The end of the last task that was begun: one more than the number that its last blob may have.
    begun: u64,
    /// The number from which on they are left out.
    end: Option<u64>,
}

impl Room {
    /// Room for the ids of some blobs of a file, of which so many are a task.
    pub fn some(budget: IdBudget, blobs_of_task: u64) -> Self {
        Room {
            budget,
            stops: true,
            divisor: blobs_of_task,
            blobs: Mutex::default(),
        }
    }

    /// Room for the ids of all blobs.
    pub fn for_all(budget: IdBudget) -> Self {
        Room {
            stops: false,
            ..Room::some(budget, 1)
        }
    }

    fn blobs(&self) -> std::sync::MutexGuard<'_, Blobs> {
        self.blobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the blob of this number is one of those with room. If it is, its ids have to be taken.
    pub fn begin(&self, number: u64) -> bool {
        let mut blobs = self.blobs();
        let has_room = blobs.end.is_none_or(|end| number < end);
        if has_room {
            blobs.begun = blobs.begun.max((number / self.divisor + 1) * self.divisor);
        }
        has_room
    }

    /// Charges what the ids take. Blobs that have been begun have room in any case.
    pub fn charge(&self, ids: &mut Gather) -> Result<()> {
        match ids.charge(&self.budget) {
            Err(Error::Memory { .. }) if self.stops => {
                let mut blobs = self.blobs();
                let begun = blobs.begun;
                blobs.end.get_or_insert(begun);
                Ok(())
            }
            other => other,
        }
    }

    /// From which blob on there was no room.
    pub fn end(&self) -> Option<u64> {
        self.blobs().end
    }
}

/// Of relations, how many of their members are known to be in which regions.
#[derive(Default)]
pub struct Members(HashMap<i64, Vec<(u32, usize)>>);

impl Members {
    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Regions of members of a relation, each with their number.
    pub fn of(&self, relation: i64) -> &[(u32, usize)] {
        self.0.get(&relation).map_or(&[], Vec::as_slice)
    }

    fn add(&mut self, relation: i64, region: u32) {
        let of = self.0.entry(relation).or_default();
        match of.iter_mut().find(|(known, _)| *known == region) {
            Some((_, count)) => *count += 1,
            None => of.push((region, 1)),
        }
    }
}

impl Work<'_> {
    /// Goes on where the pass over the nodes of these blobs stopped after a `first` part of them.
    pub fn run_in_ranges(
        &mut self,
        blobs: &[BlobEntry],
        first: Inside,
        sinks: &[Sink],
        held: Option<&HeldBack>,
    ) -> Result<Found> {
        let none = || RegionIds::new([]);
        let (mut ways, mut members) = (none()?, Members::default());
        let (mut learned_nodes, mut learned_ways) = (Vec::new(), None);
        // Where ranges end among the blobs.
        let mut ends = Vec::new();
        let mut part = first;
        loop {
            let end = ends.last().unwrap_or(&0) + part.blobs;
            ends.push(end);
            learned_nodes.append(&mut part.learned);
            let (_, found, learned) = self.ways_with(&part.ids, false, NONE, None)?;
            ways = RegionIds::new([ways.to_gather(), found.to_gather()])?;
            learned_ways.get_or_insert(learned);
            if end == blobs.len() {
                break;
            }
            self.count_members(&part.ids, &mut members)?;
            part = self.nodes_inside(&blobs[end..], &self.room_for_range(), sinks, held)?;
        }
        self.job.warn(format!(
            "the ids of the nodes inside do not fit in --memory at once: {} ranges of ids",
            ends.len()
        ));
        if !self.known.learn(Kind::Node, learned_nodes)
            || !self.known.learn(Kind::Way, learned_ways.unwrap_or_default())
        {
            return Ok(Found::Disorder);
        }
        let to = match held {
            None => {
                self.write_ways(&ways, sinks)?;
                sinks
            }
            Some(_) => NONE,
        };
        let related = self.relations_with(&part.ids, &ways, &HashSet::new(), &members, to)?;
        if !self.known.learn(Kind::Relation, related.learned) {
            return Ok(Found::Disorder);
        }
        let Some(held) = held else {
            return Ok(Found::All);
        };
        let more_ways = RegionIds::new(related.ways)?.without(&ways)?;
        let member_nodes = RegionIds::new(related.nodes)?;
        let ranges = self.ranges(blobs, &ends);
        // Behind the last range there may be blobs without elements.
        let mut last = Some(part.ids).filter(|_| ranges.len() == ends.len());
        for (number, range) in ranges.iter().enumerate().rev() {
            let inside = match last.take() {
                Some(ids) => ids,
                None => {
                    let start = number.checked_sub(1).map_or(0, |before| ends[before]);
                    let blobs = &blobs[start..ends[number]];
                    self.nodes_inside(blobs, &Room::for_all(self.budget()), NONE, None)?
                        .ids
                }
            };
            let mut nodes = self.nodes_outside(&inside, [&ways, &more_ways], range)?;
            nodes.push(member_nodes.to_gather());
            let more = RegionIds::new(nodes)?.without(&inside)?;
            self.complete_held([&inside, &more], range, held, sinks)?;
        }
        let chosen = Chosen {
            nodes: none()?,
            more_nodes: none()?,
            ways,
            more_ways,
            relations: with_parents(RegionIds::new(related.relations)?, related.parents)?,
            none: none()?,
            ways_held: false,
        };
        self.write(&chosen, held, sinks)?;
        Ok(Found::All)
    }

    /// The ids of ranges that end behind so many of the blobs.
    fn ranges(&self, blobs: &[BlobEntry], ends: &[usize]) -> Vec<IdRange> {
        let plan = &self.known.plan.blobs;
        let first_of = |blob: &BlobEntry| {
            let at = plan.partition_point(|known| known.number < blob.number);
            plan.get(at)?.index?.first()
        };
        let starts = ends
            .iter()
            .filter_map(|end| blobs[*end..].iter().find_map(first_of));
        let starts: Vec<i64> = starts.map(|first| first.id).collect();
        IdRange::cut_at(&starts)
    }

    /// Adds what members of relations are inside.
    fn count_members(&self, inside: &RegionIds, members: &mut Members) -> Result<()> {
        if !self.has_relations() || inside.is_empty() {
            return Ok(());
        }
        let blobs = self.known.blobs_of(Kind::Relation, |_| true);
        let states = self.job.pass("members", self.input.file(), &blobs).scan(
            || (inside.cursor(), Vec::new()),
            |(inside, found), blob| {
                select::for_each_relation(blob, |relation| {
                    for member in relation.members() {
                        let member = member?.element;
                        if member.kind == Kind::Node {
                            inside.each(member.id, |region| found.push((relation.id(), region)));
                        }
                    }
                    Ok(())
                })
            },
        )?;
        for (relation, region) in states.into_iter().flat_map(|(_, found)| found) {
            members.add(relation, region);
        }
        Ok(())
    }

    /// Writes ways.
    fn write_ways(&self, ways: &RegionIds, sinks: &[Sink]) -> Result<()> {
        let none = RegionIds::new([])?;
        let blobs = self.known.blobs_of(Kind::Way, |record| ways.may_touch(record));
        let make = || Writing::new([&none, ways, &none].map(|known| [known.cursor(), none.cursor()]));
        self.job
            .pass("write ways", self.input.file(), &blobs)
            .write_many(sinks, make, |state, blob, outs| state.blob(blob, outs, None))?;
        Ok(())
    }

    /// The nodes of ways that lie in a range of ids and are not inside.
    fn nodes_outside(
        &self,
        inside: &RegionIds,
        ways: [&RegionIds; 2],
        range: &IdRange,
    ) -> Result<Vec<Gather>> {
        let blobs = self
            .known
            .blobs_of(Kind::Way, |record| ways.iter().any(|ways| ways.may_touch(record)));
        let budget = self.budget();
        let make = || {
            let (refs, found) = (Vec::new(), Vec::new());
            (
                inside.cursor(),
                ways.map(RegionIds::cursor),
                Gather::default(),
                refs,
                found,
            )
        };
        let states = self.job.pass("nodes of ways", self.input.file(), &blobs).scan(
            make,
            |(inside, ways, nodes, refs, found), blob| {
                select::for_each_way(blob, |id, column| {
                    found.clear();
                    for known in ways.iter_mut() {
                        known.each(id, |region| found.push(region));
                    }
                    if !found.is_empty() {
                        refs.clear();
                        column.decode_into(refs)?;
                        for id in refs.iter().filter(|id| range.contains(**id)) {
                            inside.others(*id, found, |region| nodes.add(region, *id));
                        }
                    }
                    Ok(())
                })?;
                Ok(nodes.charge(&budget)?)
            },
        )?;
        Ok(states.into_iter().map(|(_, _, nodes, ..)| nodes).collect())
    }

    /// Completes what is held of the blobs in a range of ids that turned out to have more nodes than those inside.
    fn complete_held(
        &self,
        [inside, more]: [&RegionIds; 2],
        range: &IdRange,
        held: &HeldBack,
        sinks: &[Sink],
    ) -> Result<()> {
        let in_range = |record: &IndexRecord| match (record.first(), record.last()) {
            (Some(first), Some(last)) => range.intersects(first.id, last.id),
            _ => false,
        };
        let blobs = self
            .known
            .blobs_of(Kind::Node, |record| in_range(record) && more.may_touch(record));
        let none = RegionIds::new([])?;
        let make = || {
            let no_more = || [none.cursor(), none.cursor()];
            Writing::new([[inside.cursor(), more.cursor()], no_more(), no_more()])
        };
        self.job
            .pass("more nodes", self.input.file(), &blobs)
            .write_many(sinks, make, |state, blob, outs| {
                let before = held.take(blob).unwrap_or_default();
                state.blob(blob, outs, Some((before, held.store())))?;
                held.hold(blob, outs)
            })?;
        Ok(())
    }
}
