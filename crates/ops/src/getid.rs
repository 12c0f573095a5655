//! `getid` and `removeid`: elements by their ids, or all others.
//!
//! Only blobs that can hold one of the ids are read: those whose index record allows it, and in a sorted file
//! without an index those that bisection finds. References are followed as [`crate::select`] describes.

use std::path::Path;

use osmill_engine::{Blob, BlobEntry, Error, IdSets, Input, Job, Plan, Result};
use osmill_model::{ElementId, Kind, KindSet};
use osmill_pbf::{DensePicker, Element, IndexRecord};
use serde::Serialize;

use crate::select::{self, ByIdOnly, Fate, Target, Wanted};

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
    let mut ids = options.ids.clone();
    ids.sort_unstable();
    ids.dedup();
    if options.invert && (options.add_referenced || options.remove_tags) {
        return Err(Error::Usage(
            "what the removed elements refer to cannot be added; leave out -r and -t".into(),
        ));
    }
    let input = job.open(input)?;
    let mut plan = input.plan(job.options().threads)?;
    let wanted = Wanted::new(job);
    ids.iter().for_each(|id| {
        wanted.insert(*id);
    });
    wanted.complete()?;
    let by_bisection = !plan.is_indexed() && plan.header.claims_sorted() && !options.invert;
    if !by_bisection || options.add_referenced {
        job.complete(input.file(), &mut plan)?;
    }
    if options.add_referenced {
        select::close(job, (&input, &plan), &wanted, KindSet::ALL, &ByIdOnly)?;
    }
    let requested: &[ElementId] = &ids;
    // A few ids are compared with the ranges of the blobs themselves; many are looked up coarsely.
    let few = !options.add_referenced && requested.len() <= 1 << 16;
    let touches = |record: &IndexRecord| match (few, record.first(), record.last()) {
        (true, Some(first), Some(last)) => {
            let at = requested.partition_point(|id| *id < first);
            requested.get(at).is_some_and(|id| *id <= last)
        }
        _ => wanted.may_touch(record),
    };
    let blobs = match by_bisection && !plan.is_indexed() {
        true => job.look("bisect", input.file(), |reader| bisect(reader, &plan, requested))?,
        false => select::blobs_of(&plan, KindSet::ALL, |record| options.invert || touches(record)),
    };
    let found = IdSets::new();
    let sink = target.open(plan.header.clone())?;
    job.pass("write", input.file(), &blobs).write(
        &sink,
        <(Vec<Fate>, Vec<i64>, DensePicker)>::default,
        |(fates, scratch, picker), blob, out| {
            let record = blob.record()?;
            if !touches(&record) {
                return match options.invert {
                    true => out.copy(blob),
                    false => Ok(()),
                };
            }
            fates.clear();
            select::fates_by(blob, fates, scratch, |_, item, _, id| {
                let id = ElementId::new(select::kind_of(item), id);
                let has = wanted.contains(id);
                if has {
                    found.insert(id);
                }
                Ok(match has {
                    true if options.remove_tags && requested.binary_search(&id).is_err() => Fate::Bare,
                    has if has != options.invert => Fate::Keep,
                    _ => Fate::Drop,
                })
            })?;
            select::write_fates(blob, out, fates, picker)
        },
    )?;
    let mut report = Report {
        requested: ids.len() as u64,
        ..Report::default()
    };
    report.missing_ids = ids.into_iter().filter(|id| !found.contains(*id)).collect();
    if options.add_referenced {
        report
            .missing_ids
            .extend(dangling(job, (&input, &plan), &wanted, &found)?);
        report.missing_ids.sort_unstable();
        report.missing_ids.dedup();
    }
    report.missing = report.missing_ids.len() as u64;
    job.objects_out(sink.counts());
    sink.finish()?;
    Ok(report)
}

/// What wanted ways and relations refer to that was not found. One more pass over them, if anything is missing.
fn dangling(
    job: &Job,
    (input, plan): (&Input, &Plan),
    wanted: &Wanted,
    found: &IdSets,
) -> Result<Vec<ElementId>> {
    if Kind::ALL
        .iter()
        .all(|kind| wanted.count(*kind) == found.of(*kind).count())
    {
        return Ok(Vec::new());
    }
    let kinds = KindSet::WAYS.union(KindSet::RELATIONS);
    let blobs = select::blobs_of(plan, kinds, |record| wanted.may_touch(record));
    select::find(job, ("missing", input, &blobs), |missing, blob| {
        for element in blob.block()?.elements() {
            let element = element?;
            if !wanted.contains(element.element_id()) {
                continue;
            }
            match element {
                Element::Node(_) => {}
                Element::Way(way) => way.refs().column().for_each_sum(|id| {
                    if !found.of(Kind::Node).contains(id) {
                        missing.push(ElementId::new(Kind::Node, id));
                    }
                })?,
                Element::Relation(relation) => {
                    for member in relation.members() {
                        let member = member?.element;
                        if !found.contains(member) {
                            missing.push(member);
                        }
                    }
                }
            }
        }
        Ok(())
    })
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
