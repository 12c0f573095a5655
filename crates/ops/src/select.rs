//! What the commands that select elements share.
//!
//! Such a command finds out, in passes over parts of the input, which ids it wants ([`Wanted`]), and then
//! writes those elements in one last pass. There a blob gets a [`Fate`] for each of its elements, from ids and
//! tags only. Blobs of which nothing is kept are passed over, blobs of which everything is kept are copied with
//! their compressed bytes, and only the others are put together anew.
//!
//! References are followed by [`close_over_members`], relations to their members and these to theirs, and by
//! [`close_ways`], ways to their nodes. What they find is a few bits an id where ids are dense, and a KiB where one is
//! alone among thousands. Where that is more than half of the job's memory, it is found again for one range of ids
//! after the other, and the elements of each range are marked by their places in scratch ([`Wanted::resolve`]): the last
//! pass is the same, and so is the output. For N ranges of nodes this reads ways and relations N times more, and nodes
//! once more. Ids that a user asks for are in a sorted list anyway ([`Requested`]).

mod close;
mod held;
mod marks;
mod requested;
mod wanted;

use std::collections::HashMap;
use std::path::Path;

use osmill_engine::{
    Blob, BlobEntry, Counts, Input, Job, KernelResult, OutputFiles, OutputOptions, Plan, Result, Sink,
    TaskOutput, output_header,
};
use osmill_model::{ElementId, Kind, KindSet, Location};
use osmill_pbf::wire::Refs;
use osmill_pbf::{
    Block, BlockError, DensePicker, Element, FileHeader, IndexRecord, Item, Items, RawItem, Relation, SORTED,
};

pub(crate) use close::{ByIdOnly, Pick, close_kind, close_over_members, close_ways};
pub(crate) use held::HeldBack;
pub(crate) use requested::Requested;
pub(crate) use wanted::{Here, IdBudget, Wanted};

use crate::cat::HeaderChanges;

/// Where the selected elements go.
#[derive(Debug, Clone)]
pub struct Target {
    /// The file, its format, and how it is written.
    pub output: OutputOptions,
    /// Name and version of the program for the file header.
    pub generator: String,
    /// Changes to the file header, applied last.
    pub header: HeaderChanges,
}

impl Target {
    /// A target of this path with defaults: the format of its name, header fields of the input.
    pub fn new(path: impl Into<std::path::PathBuf>) -> Self {
        Target {
            output: OutputOptions::new(path),
            generator: "osmill".into(),
            header: HeaderChanges::default(),
        }
    }

    /// Opens the output for elements of a file with this header.
    pub(crate) fn open(&self, header: FileHeader) -> Result<Sink> {
        self.open_among(&OutputFiles::default(), header)
    }

    /// [`Target::open`] for one of many outputs.
    pub(crate) fn open_among(&self, files: &OutputFiles, mut header: FileHeader) -> Result<Sink> {
        header = output_header(vec![header], &self.generator);
        self.header.apply(&mut header)?;
        Sink::create_among(files, self.output.clone(), &header)
    }
}

/// Opens an input and completes its plan: after this every blob has an index record.
pub(crate) fn open_planned(job: &Job, path: &Path) -> Result<(Input, Plan)> {
    let input = job.open(path)?;
    let mut plan = input.plan(job.options().threads)?;
    complete(job, &input, &mut plan)?;
    Ok((input, plan))
}

/// Completes the plan of an input. Where the records show that a file is not sorted although its header says so, the
/// claim is dropped with a warning.
pub(crate) fn complete(job: &Job, input: &Input, plan: &mut Plan) -> Result<()> {
    job.complete(input.file(), plan)?;
    if plan.header.claims_sorted() && plan.is_sorted() == Some(false) {
        job.warn(format!(
            "{}: the header says that the file is sorted, but it is not; the output does not claim it",
            input.path().display()
        ));
        plan.header.set_optional(SORTED, false);
    }
    Ok(())
}

/// The blobs of a plan that have elements of these kinds, and for which `also` holds.
pub(crate) fn blobs_of(
    plan: &Plan,
    kinds: KindSet,
    mut also: impl FnMut(&IndexRecord) -> bool,
) -> Vec<BlobEntry> {
    let is_of = |blob: &&BlobEntry| {
        blob.index
            .is_none_or(|record| record.kinds.intersects(kinds) && also(&record))
    };
    plan.blobs.iter().filter(is_of).copied().collect()
}

/// Whether the records of all blobs of a file show that it is sorted, has every element once, and one kind in each
/// blob. There what is found out about an element where it stands is true of all the file.
pub(crate) fn is_orderly(blobs: &[BlobEntry]) -> bool {
    let mut last: Option<ElementId> = None;
    blobs.iter().all(|blob| {
        let Some(record) = blob.index else { return false };
        let orderly = match (record.first(), record.last()) {
            (Some(first), Some(end)) => {
                let follows = last.is_none_or(|last| last < first);
                last = Some(end);
                follows && first.kind == end.kind
            }
            _ => true,
        };
        orderly && record.sorted && record.unique
    })
}

/// Elements of all blobs, by their records.
pub(crate) fn total(plan: &Plan) -> Counts {
    let mut counts = Counts::default();
    for record in plan.blobs.iter().filter_map(|blob| blob.index) {
        counts += record.counts.into();
    }
    counts
}

/// What becomes of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is left out.
    Drop,
    /// It is written as it is.
    Keep,
    /// It is written without its tags.
    Bare,
}

impl Fate {
    /// Kept as it is, or left out.
    pub fn keep_if(is_kept: bool) -> Fate {
        match is_kept {
            true => Fate::Keep,
            false => Fate::Drop,
        }
    }
}

/// Writes the elements of a decoded blob that `fates`, which has one entry for each, does not drop.
pub(crate) fn write_fates(
    blob: &mut Blob,
    out: &mut TaskOutput<'_>,
    fates: &[Fate],
    picker: &mut DensePicker,
) -> KernelResult {
    // Without fates nothing of the blob is kept.
    if !fates.is_empty() && fates.iter().all(|fate| *fate == Fate::Keep) {
        return out.copy(blob);
    }
    let numbered = (0u32..).zip(fates);
    let wanted = numbered.filter(|(_, fate)| **fate != Fate::Drop);
    let wanted = wanted.map(|(at, _)| at);
    if !fates.contains(&Fate::Bare) {
        return keep_picked(blob.decoded(), picker, wanted, out);
    }
    for_each_picked(blob.decoded(), picker, wanted, |at, element| {
        match fates[at as usize] {
            Fate::Keep => out.keep(&element),
            Fate::Bare => out.keep(&element.without_tags()),
            Fate::Drop => Ok(()),
        }
    })
}

/// What becomes of the elements of a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judged {
    /// All are written as they are.
    AllKept,
    /// None is written.
    AllDropped,
    /// Each has a [`Fate`] of its own.
    EachByFate,
}

/// Writes elements of these blobs to a target in one pass. `judge` tells whether all elements of a blob are kept or none,
/// or pushes the fate of each. It has scratch for ids.
pub(crate) fn write_judged(
    job: &Job,
    (input, plan): (&Input, &Plan),
    blobs: &[BlobEntry],
    target: &Target,
    judge: impl Fn(&mut Blob, &mut Vec<Fate>, &mut Vec<i64>) -> KernelResult<Judged> + Sync,
) -> Result<()> {
    let sink = target.open(plan.header.clone())?;
    job.pass("write", input.file(), blobs).write(
        &sink,
        <(Vec<Fate>, Vec<i64>, DensePicker)>::default,
        |(fates, ids, picker), blob, out| {
            fates.clear();
            match judge(blob, fates, ids)? {
                Judged::AllKept => out.copy(blob),
                Judged::AllDropped => Ok(()),
                Judged::EachByFate => write_fates(blob, out, fates, picker),
            }
        },
    )?;
    job.objects_out(sink.counts());
    sink.finish()?;
    Ok(())
}

/// Calls `visit` with the number and the view of each `wanted` element of a block. Numbers ascend. The other elements
/// cost little.
pub(crate) fn for_each_picked<'b>(
    block: &'b Block,
    picker: &mut DensePicker,
    wanted: impl Iterator<Item = u32>,
    mut visit: impl FnMut(u32, Element<'b>) -> KernelResult,
) -> KernelResult {
    let mut wanted = wanted.peekable();
    let mut at = 0u32;
    for group in block.groups() {
        let mut items = group.items();
        while wanted.peek().is_some() {
            let Some((item, message)) = items.try_next_raw()? else {
                break;
            };
            if item != RawItem::Dense && wanted.next_if_eq(&at).is_none() {
                at += 1;
                continue;
            }
            let element = match items.parse(item, message)? {
                Item::Dense(dense) => {
                    let first = at;
                    at += dense.len() as u32;
                    let own = std::iter::from_fn(|| wanted.next_if(|next| *next < at));
                    picker.pick(&dense, own.map(|at| at - first), |number, node| {
                        visit(first + number, Element::Node(node))
                    })?;
                    continue;
                }
                Item::Node(node) => Element::Node(node),
                Item::Way(way) => Element::Way(way),
                Item::Relation(relation) => Element::Relation(relation),
            };
            visit(at, element)?;
            at += 1;
        }
    }
    Ok(())
}

/// Writes each `wanted` element of a block as it is. Numbers ascend.
pub(crate) fn keep_picked(
    block: &Block,
    picker: &mut DensePicker,
    wanted: impl Iterator<Item = u32>,
    out: &mut TaskOutput<'_>,
) -> KernelResult {
    if let Some(dense) = block.only_dense()? {
        picker.want(&dense, wanted)?;
        return out.keep_wanted(&dense, picker);
    }
    for_each_picked(block, picker, wanted, |_, element| out.keep(&element))
}

/// The kind of what a raw item holds.
pub(crate) fn kind_of(item: RawItem) -> Kind {
    match item {
        RawItem::Node | RawItem::Dense => Kind::Node,
        RawItem::Way => Kind::Way,
        RawItem::Relation => Kind::Relation,
    }
}

/// Calls `visit` with the id and the references of each way of a blob, which are not decoded.
pub(crate) fn for_each_way(
    blob: &mut Blob,
    mut visit: impl FnMut(i64, Refs<'_>) -> Result<(), BlockError>,
) -> KernelResult {
    for group in blob.block()?.groups() {
        let mut items = group.items();
        while let Some((item, message)) = items.try_next_raw()? {
            if item == RawItem::Way {
                let (id, refs) = items.parse_refs(message)?;
                visit(id, refs)?;
            }
        }
    }
    Ok(())
}

/// Calls `visit` with each relation of a blob.
pub(crate) fn for_each_relation(
    blob: &mut Blob,
    mut visit: impl FnMut(&Relation<'_>) -> KernelResult,
) -> KernelResult {
    for group in blob.block()?.groups() {
        let mut items = group.items();
        while let Some((item, message)) = items.try_next_raw()? {
            if item == RawItem::Relation {
                visit(&items.parse_relation(message)?)?;
            }
        }
    }
    Ok(())
}

/// A pass that only finds something: what all workers have found, in no order.
pub(crate) fn find<T: Send>(
    job: &Job,
    (name, input, blobs): (&str, &Input, &[BlobEntry]),
    look: impl Fn(&mut Vec<T>, &mut Blob) -> KernelResult + Sync,
) -> Result<Vec<T>> {
    let states = job.pass(name, input.file(), blobs).scan(Vec::new, look)?;
    Ok(states.into_iter().flatten().collect())
}

/// Where the wanted nodes are, in a pass of this name.
pub(crate) fn locations_of(
    job: &Job,
    name: &str,
    (input, plan): (&Input, &Plan),
    wanted: &Wanted,
) -> Result<HashMap<i64, Location>> {
    wanted.complete()?;
    let blobs = blobs_of(plan, KindSet::NODES, |record| wanted.may_touch(record));
    let found = find(job, (name, input, &blobs), |found, blob| {
        for element in blob.block()?.elements() {
            if let Element::Node(node) = element?
                && wanted.has(Kind::Node, node.id())
                && let Some(location) = node.location()?
            {
                found.push((node.id(), location));
            }
        }
        Ok(())
    })?;
    Ok(found.into_iter().collect())
}

/// Calls `visit` with the items, the item, its message, and the id of each element of a block, of which there are many
/// in a message of dense nodes. `ids` is scratch.
pub(crate) fn for_each_in<'b>(
    blob: &'b mut Blob,
    ids: &mut Vec<i64>,
    mut visit: impl FnMut(&Items<'b>, RawItem, &'b [u8], i64) -> KernelResult,
) -> KernelResult {
    for group in blob.block()?.groups() {
        let mut items = group.items();
        while let Some((item, message)) = items.try_next_raw()? {
            ids.clear();
            items.parse_ids(item, message, ids)?;
            ids.iter().try_for_each(|id| visit(&items, item, message, *id))?;
        }
    }
    Ok(())
}
