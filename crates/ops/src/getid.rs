//! `getid` and `removeid`: elements by their ids, or all others.
//!
//! Only blobs that can hold one of the ids are read: those whose index record allows it, and in a sorted file
//! without an index those that bisection finds. References are followed as [`crate::select`] describes.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use osmill_engine::{Blob, BlobEntry, Error, IdSet, IdSets, Job, Plan, Result};
use osmill_model::{ElementId, Kind, KindSet};
use serde::Serialize;

use crate::select::{self, ByIdOnly, Fate, Judged, Requested, Target, Wanted};

/// Which elements are written.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Their ids, in any order, any number of times.
    pub ids: Vec<ElementId>,
    /// Write, too, what they refer to, directly or not.
    pub add_referenced: bool,
    /// Drop the tags of elements that are only written because something refers to them.
    pub remove_tags: bool,
    /// Write all elements but these.
    pub invert: bool,
}

/// What was found.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// How many elements were asked for.
    pub requested: u64,
    /// How many of these, or of what they refer to, are not in the file.
    pub missing: u64,
    /// Which, in file order.
    #[serde(skip)]
    pub missing_ids: Vec<ElementId>,
}

/// Writes the elements of `input` with these ids, or all others; see the module's documentation.
///
/// With [`Options::add_referenced`], elements that are referred to and not there count as missing as well.
pub fn getid(job: &Job, input: &Path, options: &Options, target: &Target) -> Result<Report> {
    if options.invert && (options.add_referenced || options.remove_tags) {
        return Err(Error::Usage(
            "what the removed elements refer to cannot be added; leave out -r and -t".into(),
        ));
    }
    let requested = Requested::new(&options.ids);
    let mut report = Report {
        requested: requested.ids().len() as u64,
        ..Report::default()
    };
    report.missing_ids = match options.add_referenced {
        true => with_references(job, input, options, &requested, target)?,
        false => by_id(job, input, options.invert, &requested, target)?,
    };
    report.missing = report.missing_ids.len() as u64;
    Ok(report)
}

/// Writes the elements that are asked for, or all others. Those that are missing.
fn by_id(
    job: &Job,
    input: &Path,
    invert: bool,
    requested: &Requested,
    target: &Target,
) -> Result<Vec<ElementId>> {
    let input = job.open(input)?;
    let mut plan = input.plan(job.options().threads)?;
    let bisects = !plan.is_indexed() && plan.header.claims_sorted() && !invert;
    let blobs = match bisects {
        true => job.look("bisect", input.file(), |reader| {
            bisect(reader, &plan, requested.ids())
        })?,
        false => {
            job.complete(input.file(), &mut plan)?;
            select::blobs_of(&plan, KindSet::ALL, |record| {
                invert || requested.may_touch(record)
            })
        }
    };
    let found: Vec<AtomicBool> = requested.ids().iter().map(|_| AtomicBool::new(false)).collect();
    let source = (&input, &plan);
    select::write_judged(job, source, &blobs, target, |blob, fates, ids| {
        if !requested.may_touch(&blob.record()?) {
            return Ok(if invert {
                Judged::AllKept
            } else {
                Judged::AllDropped
            });
        }
        let mut at = 0;
        select::for_each_in(blob, ids, |_, item, _, id| {
            let place = requested.find(&mut at, ElementId::new(select::kind_of(item), id));
            if let Some(place) = place {
                found[place].store(true, Relaxed);
            }
            fates.push(Fate::keep_if(place.is_some() != invert));
            Ok(())
        })?;
        Ok(Judged::EachByFate)
    })?;
    let asked = requested.ids().iter().zip(found);
    Ok(asked
        .filter(|(_, found)| !found.load(Relaxed))
        .map(|(id, _)| *id)
        .collect())
}

/// Writes the elements that are asked for and all that they refer to. What of that is missing.
fn with_references(
    job: &Job,
    input: &Path,
    options: &Options,
    requested: &Requested,
    target: &Target,
) -> Result<Vec<ElementId>> {
    let (input, plan) = select::open_planned(job, input)?;
    let source = (&input, &plan);
    let seed = |wanted: &Wanted, kinds: KindSet| {
        let seeds = requested.ids().iter().filter(|id| kinds.contains(id.kind));
        seeds.for_each(|id| {
            wanted.insert(*id);
        });
    };
    let mut missing = Vec::new();
    let mut note = |kind: Kind, wanted: &IdSet, found: &IdSet| {
        wanted.for_each(|id| {
            if !found.contains(id) {
                missing.push(ElementId::new(kind, id));
            }
        });
    };
    let mut resolve = |wanted: Wanted, kind: Kind| {
        let find = |part: &Wanted| {
            seed(part, kind.into());
            select::close_kind(job, source, part, kind, &ByIdOnly)
        };
        wanted.resolve(kind, job, source, find, |wanted, found| note(kind, wanted, found))
    };
    let wanted = Wanted::by_ranges(job).of_two_sets();
    seed(&wanted, KindSet::ALL);
    select::close_over_members(job, source, &wanted, KindSet::ALL, &ByIdOnly)?;
    let wanted = resolve(wanted, Kind::Way)?;
    select::close_ways(job, source, &wanted, KindSet::ALL, &ByIdOnly)?;
    let wanted = resolve(wanted, Kind::Node)?;
    let found = IdSets::new();
    let blobs = select::blobs_of(&plan, KindSet::ALL, |record| wanted.may_touch(record));
    select::write_judged(job, source, &blobs, target, |blob, fates, ids| {
        let Some(here) = wanted.here(blob)? else {
            return Ok(Judged::AllDropped);
        };
        select::for_each_in(blob, ids, |_, item, _, id| {
            let id = ElementId::new(select::kind_of(item), id);
            let has = here.has(id.kind, id.id, fates.len());
            if has && !wanted.is_marked(id.kind) {
                found.insert(id);
            }
            fates.push(match has {
                true if options.remove_tags && !requested.contains(id) => Fate::Bare,
                has => Fate::keep_if(has),
            });
            Ok(())
        })?;
        Ok(Judged::EachByFate)
    })?;
    for kind in Kind::ALL {
        note(kind, wanted.ids(kind), found.of(kind));
    }
    missing.sort_unstable();
    Ok(missing)
}

/// The blobs of a file whose header says that it is sorted that can hold one of these sorted ids.
fn bisect(reader: &mut Blob, plan: &Plan, ids: &[ElementId]) -> Result<Vec<BlobEntry>> {
    let mut known: Vec<BlobEntry> = plan.blobs.clone();
    let mut record_of = |at: usize| {
        if known[at].index.is_none() {
            reader.begin(known[at]);
            known[at].index = Some(reader.record().map_err(|fault| reader.locate(fault))?);
        }
        Ok::<_, osmill_engine::Error>(known[at].index.unwrap_or_default())
    };
    let mut found: Vec<usize> = Vec::new();
    for id in ids {
        // Between the last blob found and the end.
        let (mut low, mut high) = (found.last().copied().unwrap_or(0), plan.blobs.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match record_of(middle)?.last() {
                Some(last) if last < *id => low = middle + 1,
                _ => high = middle,
            }
        }
        while low < plan.blobs.len() {
            let record = record_of(low)?;
            if record.first().is_some_and(|first| first > *id) {
                break;
            }
            if found.last().is_none_or(|last| *last < low) {
                found.push(low);
            }
            low += 1;
        }
    }
    Ok(found.into_iter().map(|at| known[at]).collect())
}
