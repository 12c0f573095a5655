//! `add-locations-to-ways`: put the locations of their nodes on ways.
//!
//! Passes over a sorted file whose nodes fit in memory:
//!
//! 1. `members`, over the blobs with relations: which nodes are members. Not needed where all nodes are kept.
//! 2. `nodes`, over those with nodes: their locations go into the table of `osmill-nodes`, and the nodes that
//!    are kept go to the output.
//! 3. `ways`, over the rest: references are looked up a blob at a time and the locations spliced into
//!    the wire bytes. Blobs without ways are copied. What is not found is missing.
//!
//! What does not fit is done in ranges of ids. Pass 2 is done for each range (after the first one only over
//! the blobs that touch it), and between two of them `ways` are read to note the locations of the one range in
//! scratch, so that ways are read once for each range. How the ranges are cut is found in the `ranges` module.
//!
//! The budget `--memory` is meant for all that the command takes: what its buffers need comes off first. Not counted are
//! ids of missing nodes (8 bytes each, 16 at times) and of nodes that are members of relations (8 bytes each), and a budget below
//! some 48 MiB is exceeded.
//!
//! The table has all nodes, whether a way refers to them or not: to know that beforehand takes another pass over the
//! ways, which is worth more than the few nodes that nothing refers to.
//!
//! In an input that is not sorted nodes come in any order, and their table takes more memory while it is filled; so it
//! has only the nodes that ways refer to, which another pass finds for each range
//! ([`osmill_nodes::Filler::scattered`]). Such an input is written in one pass at the end, in its own order.
//!
//! # Cost
//!
//! amp-500m (47 M nodes, 57 M references), seconds of two Zen 4 cores together; on the wall it is half of that and 0.1 s more:
//!
//! | phase | inflate | deflate | the rest |
//! | --- | --- | --- | --- |
//! | `nodes`, all | 0.8 | 0.6 | columns and table 0.65 (0.3 more where the system has to fetch the table's memory first), choosing and building the 4 % that are kept 0.35 |
//! | `ways`, all | 0.55 | 6.1 | look-ups 0.85, reading and splicing 0.8, writing 0.1 |
//!
//! That is 10.7 core-seconds (8.9 with `--compression zlib:1`, which writes 2.8 % more); of these the look-ups would save none with more stages or larger batches (see `osmill-nodes`). Where an
//! existing output is replaced, ext4 sends the new file to the disk before it lets the old name go, and frees the old one: 0.1 to
//! 0.3 s more on one core.
//!
//! So it is deflate that decides. Of ways with locations, libdeflate at level 5, which writes as much as zlib at level 6, takes
//! 121 MB/s; level 4 takes 133 and writes 0.4 % more, level 2 takes 143 and writes 0.8 % more, level 1 takes 187 and writes 2.7 %
//! more. How deep it searches matters little: at level 5 a depth of 2 instead of 16 gains 9 % of speed for 0.7 % of size; without
//! matches of three bytes it would gain 23 % for 1.4 %. Compiler options, profiles among them, change nothing.
//!
//! Tried and left: to deflate coordinates as they are, without a search for repetitions (an encoder of our own that was told
//! where they lie): 3 % larger than zlib at level 6, for a fifth more speed than libdeflate at level 4. To take the matches
//! over that the input's own deflate stream tells, at 2.6 times the speed of libdeflate at level 4: 4.4 % larger than zlib at level 6,
//! since chance repetitions of three and four bytes are what coordinates shrink by; with a search for them that looks at one
//! place for each length 1.5 % larger, and no faster.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use osmill_engine::{
    Blob, BlobEntry, Counts, Error, Fault, IdSet, Input, Job, KernelResult, Malformed, OutputOptions, Plan,
    Result, Sink, TaskOutput, output_header,
};
use osmill_model::{Kind, KindSet, Location, id_order};
use osmill_nodes::{
    Filler, IdRange, LocationStreams, LocationTable, NodeBatch, NodeIds, NodeSnapshot, NodeStore, free_space,
};
use osmill_pbf::{
    Block, DensePicker, Element, IndexRecord, Item, LOCATIONS_ON_WAYS, RawItem, SORTED, WayLocationSplicer,
};
use serde::Serialize;

use crate::cat::HeaderChanges;
use crate::select::{self, Fate};

mod missing;
pub(crate) mod parts;
mod ranges;

use missing::Missing;
use parts::Parts;

/// What is kept, and what is an error.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Keep nodes without tags.
    pub keep_untagged: bool,
    /// Keep nodes that relations have as members.
    pub keep_members: bool,
    /// Leave references to nodes that are not there without a location, instead of failing.
    pub ignore_missing: bool,
    /// Take locations from a node store instead of from the nodes of the file.
    pub store: Option<PathBuf>,
    /// Name and version of the program for the file header.
    pub generator: String,
    /// Changes to the file header, applied last.
    pub header: HeaderChanges,
}

/// What was done.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Elements in the output.
    pub written: Counts,
    /// Bytes of the output.
    pub bytes: u64,
    /// References of ways to nodes.
    pub references: u64,
    /// Nodes that ways refer to and that are not in the input.
    pub missing: u64,
    /// Ranges of ids that were done one after the other.
    pub ranges: usize,
    /// Bytes of locations that were kept in scratch.
    pub scratch: u64,
}

/// Bytes of blobs with nodes that one task reads, at least.
const STRETCH: u64 = 2 << 20;

/// How many missing nodes an error names.
const NAMED: usize = 5;

/// Copies a file, or several one after the other, with the locations of their nodes on the ways; see the module's
/// documentation.
pub fn add_locations(
    job: &Job,
    inputs: &[PathBuf],
    options: &Options,
    output: OutputOptions,
) -> Result<Report> {
    let input = job.open_all(inputs)?;
    let mut plan = input.plan(job.options().threads)?;
    let parts = Parts::find(job, &input, &mut plan)?;
    let sorted = parts.boundary.is_some();
    if !sorted {
        job.warn(format!(
            "{}: the file is not sorted; every pass reads all of it, and it is written in its own order",
            input.path().display()
        ));
    }
    let work = Work::new(job, &input, options, &plan, parts)?;
    match work.run(output.clone()) {
        Err(error) if sorted && work.is_disorder(&error) => {
            job.warn(format!(
                "the header says that the file is sorted, but {error}; starting again as for an unsorted file, \
                 and the output does not claim it"
            ));
            job.complete(input.file(), &mut plan)?;
            plan.header.set_optional(SORTED, false);
            Work::new(job, &input, options, &plan, Parts::unsorted(&plan))?.run(output)
        }
        other => other,
    }
}

struct Work<'a> {
    job: &'a Job,
    input: &'a Input,
    options: &'a Options,
    plan: &'a Plan,
    parts: Parts,
    ranges: Vec<IdRange>,
    /// First and last node of each of the blobs with nodes, as far as is known.
    spans: Vec<OnceLock<(i64, i64)>>,
    /// Nodes that relations have as members, by [`id_order`].
    members: OnceLock<Vec<u64>>,
    missing: Missing,
    /// Set where a kind came out of turn.
    disorder: OnceLock<()>,
}

/// What the passes before the last one left for it.
// There is one of them; boxing would gain nothing.
#[allow(clippy::large_enum_variant)]
enum Found {
    /// The table of the last range, and what was noted of the others.
    Table(LocationTable, Option<LocationStreams>),
    /// A store has everything.
    Store(NodeSnapshot),
}

impl<'a> Work<'a> {
    fn new(
        job: &'a Job,
        input: &'a Input,
        options: &'a Options,
        plan: &'a Plan,
        parts: Parts,
    ) -> Result<Work<'a>> {
        let ranges = match options.store {
            Some(_) => vec![IdRange::ALL],
            None => ranges::cut(job, input, &parts)?,
        };
        Ok(Work {
            spans: parts.nodes.iter().map(|_| OnceLock::new()).collect(),
            disorder: OnceLock::new(),
            job,
            input,
            options,
            plan,
            parts,
            ranges,
            members: OnceLock::new(),
            missing: Missing::default(),
        })
    }

    fn is_sorted(&self) -> bool {
        self.parts.boundary.is_some()
    }

    /// Whether the work failed for nothing but the order of the input.
    fn is_disorder(&self, error: &Error) -> bool {
        let unsorted = matches!(
            error,
            Error::Malformed {
                source: Malformed::Unsorted { .. },
                ..
            }
        );
        unsorted || self.disorder.get().is_some()
    }

    /// The end of the work on the assumption that a blob which is not the boundary is of one kind.
    fn out_of_turn(&self, blob: &BlobEntry) -> Fault {
        let _ = self.disorder.set(());
        Error::Failed(format!(
            "{}: blob {} at byte {} has nodes behind ways or ways behind relations",
            self.input.path().display(),
            blob.number,
            blob.offset
        ))
        .into()
    }

    fn run(&self, mut output: OutputOptions) -> Result<Report> {
        let mut header = output_header(vec![self.plan.header.clone()], &self.options.generator);
        header.set_optional(LOCATIONS_ON_WAYS, true);
        self.options.header.apply(&mut header)?;
        output.format.locations_on_ways.get_or_insert(true);
        let sink = Sink::create(output, &header)?;

        let mut report = Report {
            written: Counts::default(),
            bytes: 0,
            references: 0,
            missing: 0,
            ranges: self.ranges.len(),
            scratch: 0,
        };
        if self.options.keep_members && !self.options.keep_untagged {
            self.find_members()?;
        }
        let found = match &self.options.store {
            Some(path) => self.open_store(path, &sink)?,
            None => self.make_table(&sink, &mut report)?,
        };
        let blobs = if self.is_sorted() {
            &self.parts.ways
        } else {
            &self.plan.blobs
        };
        let states = self.job.pass("ways", self.input.file(), blobs).write(
            &sink,
            Writer::default,
            |writer, blob, out| self.write_blob(writer, blob, out, &found),
        )?;
        drop(found);
        for writer in states {
            self.job.objects_in(writer.counts);
            report.references += writer.references;
        }
        report.missing = self.tell_missing()?;
        report.written = sink.counts();
        report.bytes = sink.bytes();
        self.job.objects_out(report.written);
        sink.finish()?;
        Ok(report)
    }

    /// All passes before the last one, with a table of the file's own nodes.
    fn make_table(&self, sink: &Sink, report: &mut Report) -> Result<Found> {
        let mut streams = None;
        if self.ranges.len() > 1 {
            self.check_scratch()?;
            streams = Some(LocationStreams::create(
                &self.job.options().scratch,
                self.ranges.len() - 1,
                self.parts.ways.len(),
            )?);
        }
        let mut number = 0;
        let table = loop {
            let table = if self.is_sorted() {
                self.fill_sorted(number, sink)?
            } else {
                self.fill_scattered(number)?
            };
            match &streams {
                Some(streams) if number + 1 < self.ranges.len() => {
                    self.note_locations(number, &table, streams)?;
                    number += 1;
                }
                _ => break table,
            }
        };
        report.scratch = streams.as_ref().map_or(0, LocationStreams::bytes);
        Ok(Found::Table(table, streams))
    }

    /// The passes before the last one where a store has the locations: kept nodes are written.
    fn open_store(&self, path: &Path, sink: &Sink) -> Result<Found> {
        let store = NodeStore::open(path, self.job.options().memory, true)?.snapshot()?;
        if self.is_sorted() {
            self.write_kept(None, sink)?;
        }
        Ok(Found::Store(store))
    }

    /// What comes of nodes that are not there, and how many those are.
    fn tell_missing(&self) -> Result<u64> {
        let missing = self.missing.sorted();
        let count = missing.len();
        if count == 0 {
            return Ok(0);
        }
        let names: Vec<String> = missing.iter().take(NAMED).map(i64::to_string).collect();
        let message = format!(
            "{}: {count} nodes that ways refer to are not in the {}: {}{}",
            self.input.path().display(),
            if self.options.store.is_some() {
                "store"
            } else {
                "file"
            },
            names.join(", "),
            if count > NAMED { ", ..." } else { "" }
        );
        if self.options.ignore_missing {
            self.job
                .warn(format!("{message}; references to them have no location"));
            return Ok(count as u64);
        }
        Err(Error::Failed(format!(
            "{message}; nothing was written. With --ignore-missing-nodes such references stay without a location"
        )))
    }

    /// Collects the nodes that are members of relations. They are few and lie far apart, so they are kept as a
    /// sorted list.
    fn find_members(&self) -> Result<()> {
        let states = self
            .job
            .pass("members", self.input.file(), &self.parts.relations)
            .scan(Vec::new, |members, blob| {
                let before = members.len();
                for group in blob.block()?.groups() {
                    let mut items = group.items();
                    while let Some(item) = items.try_next()? {
                        let Item::Relation(relation) = item else { continue };
                        for element in relation.member_elements() {
                            let element = element?;
                            if element.kind == Kind::Node {
                                members.push(id_order(element.id));
                            }
                        }
                    }
                }
                members[before..].sort_unstable();
                Ok(())
            })?;
        let mut members = states.concat();
        members.sort_unstable();
        members.dedup();
        members.shrink_to_fit();
        let _ = self.members.set(members);
        Ok(())
    }

    /// Refuses to begin what the disk cannot hold.
    fn check_scratch(&self) -> Result<()> {
        let folder = &self.job.options().scratch;
        let noted = (self.ranges.len() - 1) as f64 / self.ranges.len() as f64;
        let references = ranges::references(self.input, &self.parts.ways)? * noted;
        let (need, free) = ((references * ranges::SCRATCH_BYTES) as u64, free_space(folder)?);
        if need > free {
            return Err(Error::Failed(format!(
                "{}: with this --memory, up to {need} bytes of scratch are needed, and {free} are free; \
                 give more memory, or another folder with --scratch",
                folder.display()
            )));
        }
        Ok(())
    }

    /// Makes the table of a range of a file that is not sorted.
    fn fill_scattered(&self, number: usize) -> Result<LocationTable> {
        let (range, wanted) = (self.ranges[number], IdSet::new());
        self.job
            .pass("references", self.input.file(), &self.parts.ways)
            .scan(Vec::new, |refs, blob| {
                refs.clear();
                blob.block()?.way_refs_into(refs)?;
                refs.retain(|id| range.contains(*id));
                wanted.insert_all(refs);
                Ok(())
            })?;
        let filler = Filler::scattered(NodeIds::freeze(wanted, self.job.options().threads)?);
        let states = self
            .job
            .pass("nodes", self.input.file(), &self.parts.nodes)
            .scan(<(NodeBatch, u64)>::default, |(nodes, count), blob| {
                nodes.read(blob.block()?)?;
                *count += nodes.ids().len() as u64;
                filler.add(self.position(&self.parts.nodes, blob), nodes)
            })?;
        self.count_nodes(number, states.iter().map(|(_, count)| count).sum());
        filler.finish()
    }

    /// Makes the table of a range of a sorted file. At the first one, kept nodes are written.
    fn fill_sorted(&self, number: usize, sink: &Sink) -> Result<LocationTable> {
        let range = self.ranges[number];
        let filler = Filler::sorted(range);
        if number == 0 {
            self.write_kept(Some(&filler), sink)?;
            return filler.finish();
        }
        let touched: Vec<BlobEntry> = self
            .parts
            .nodes
            .iter()
            .zip(&self.spans)
            .filter(|(_, span)| {
                span.get()
                    .is_some_and(|(first, last)| range.intersects(*first, *last))
            })
            .map(|(blob, _)| *blob)
            .collect();
        self.job
            .pass("nodes", self.input.file(), &touched)
            .scan(NodeBatch::default, |nodes, blob| {
                self.read_nodes(nodes, blob)?;
                filler.add(self.position(&touched, blob), nodes)
            })?;
        filler.finish()
    }

    /// Reads all nodes of a sorted file, writes those that are kept, and fills the first table.
    ///
    /// Few are kept of each blob, so a task is a stretch of blobs: what is kept makes whole blocks then.
    fn write_kept(&self, filler: Option<&Filler>, sink: &Sink) -> Result<()> {
        let stretches = stretches(&self.parts.nodes);
        let states = self.job.tasks(
            "nodes",
            stretches.len() as u64,
            sink,
            || Keeper::new(self.input),
            |keeper, task, out| {
                for at in stretches[task as usize].clone() {
                    keeper.blob.begin(self.parts.nodes[at]);
                    out.begin(keeper.blob.entry().origin);
                    self.write_kept_of(at, keeper, filler, out)
                        .map_err(|fault| keeper.blob.locate(fault))?;
                }
                out.account(&mut keeper.blob);
                Ok(())
            },
        )?;
        self.count_nodes(0, states.iter().map(|keeper| keeper.count).sum());
        Ok(())
    }

    /// Does that for one blob.
    fn write_kept_of(
        &self,
        at: usize,
        keeper: &mut Keeper,
        filler: Option<&Filler>,
        out: &mut TaskOutput<'_>,
    ) -> KernelResult {
        let Keeper {
            blob,
            nodes,
            kept,
            count,
        } = keeper;
        self.read_nodes(nodes, blob)?;
        *count += nodes.ids().len() as u64;
        if let Some((first, last)) = nodes.ids().first().zip(nodes.ids().last()) {
            let _ = self.spans[at].set((*first, *last));
        }
        if let Some(filler) = filler {
            filler.add(at, nodes)?;
        }
        self.write_nodes(nodes, kept, blob, out)
    }

    fn count_nodes(&self, range: usize, nodes: u64) {
        if range == 0 {
            self.job.objects_in(Counts {
                nodes,
                ..Counts::default()
            });
        }
    }

    /// Reads the nodes of a blob of a sorted file.
    fn read_nodes(&self, nodes: &mut NodeBatch, blob: &mut Blob) -> KernelResult {
        let boundary = self.parts.boundary == Some(blob.entry().number);
        let block = blob.block()?;
        nodes.read(block)?;
        if !boundary && nodes.others() > 0 {
            return Err(self.out_of_turn(blob.entry()));
        }
        Ok(())
    }

    /// Which of `blobs` this is.
    fn position(&self, blobs: &[BlobEntry], blob: &Blob) -> usize {
        blobs
            .binary_search_by_key(&blob.entry().number, |entry| entry.number)
            .unwrap_or(usize::MAX)
    }

    /// Writes the nodes that are kept of those that were read from a blob. Leaves `nodes` in disorder.
    fn write_nodes(
        &self,
        nodes: &mut NodeBatch,
        kept: &mut Kept,
        blob: &mut Blob,
        out: &mut TaskOutput<'_>,
    ) -> KernelResult {
        if self.options.keep_untagged && nodes.others() == 0 {
            return out.copy(blob);
        }
        let only_dense = match self.options.keep_untagged {
            true => None,
            false => blob.decoded().only_dense()?,
        };
        if let Some(dense) = only_dense {
            let Kept { picker, members, .. } = kept;
            members.clear();
            self.for_each_member(nodes.ids(), |at| members.push(at as u32));
            picker.lend(nodes.columns_mut());
            let count = picker.want_tagged(&dense, members)?;
            return match count > 0 && count == dense.len() {
                true => out.copy(blob),
                false => out.keep_wanted(&dense, picker),
            };
        }
        self.mark_kept(blob.decoded(), nodes.ids(), &mut kept.fates)?;
        kept.picker.lend(nodes.columns_mut());
        select::write_fates(blob, out, &kept.fates, &mut kept.picker)
    }

    /// The fate of each element of a block whose nodes have these ids: nodes are kept or not, all others dropped.
    fn mark_kept(&self, block: &Block, mut ids: &[i64], fates: &mut Vec<Fate>) -> KernelResult {
        let untagged = match self.options.keep_untagged {
            true => Fate::Keep,
            false => Fate::Drop,
        };
        fates.clear();
        for group in block.groups() {
            let mut items = group.items();
            while let Some((item, message)) = items.try_next_raw()? {
                let start = fates.len();
                match item {
                    RawItem::Dense => {
                        let dense = items.parse_dense(message)?;
                        fates.resize(start + dense.len(), untagged);
                        dense.for_each_tagged(|at| fates[start + at] = Fate::Keep)?;
                    }
                    RawItem::Node if items.parse_tags(item, message)?.is_empty() => fates.push(untagged),
                    RawItem::Node => fates.push(Fate::Keep),
                    RawItem::Way | RawItem::Relation => {
                        fates.push(Fate::Drop);
                        continue;
                    }
                }
                let own;
                (own, ids) = ids.split_at(ids.len().min(fates.len() - start));
                self.for_each_member(own, |at| fates[start + at] = Fate::Keep);
            }
        }
        Ok(())
    }

    /// Calls `visit` with the place of each of these nodes that is a member of a relation. Members are few, so they are
    /// looked for among the nodes, whose positive ids ascend over long stretches.
    fn for_each_member(&self, ids: &[i64], mut visit: impl FnMut(usize)) {
        let Some(members) = self.members.get() else { return };
        let mut start = 0;
        for run in ids.chunk_by(|a, b| 0 < *a && a <= b) {
            let mut at = 0;
            let first = members.partition_point(|member| *member < id_order(run[0]));
            for member in &members[first..] {
                at += run[at..].partition_point(|id| id_order(*id) < *member);
                while run.get(at).is_some_and(|id| id_order(*id) == *member) {
                    visit(start + at);
                    at += 1;
                }
                if at == run.len() {
                    break;
                }
            }
            start += run.len();
        }
    }

    /// Notes in scratch where the nodes of a range are, for each reference.
    fn note_locations(&self, number: usize, table: &LocationTable, streams: &LocationStreams) -> Result<()> {
        let range = self.ranges[number];
        self.job
            .pass("references", self.input.file(), &self.parts.ways)
            .scan(
                <(Vec<i64>, Vec<Option<Location>>, Vec<u8>)>::default,
                |(refs, locations, buffer), blob| {
                    refs.clear();
                    locations.clear();
                    blob.block()?.way_refs_into(refs)?;
                    refs.retain(|id| range.contains(*id));
                    if !table.locate(refs, locations) {
                        self.missing.note(refs, locations);
                    }
                    streams.write(number, self.position(&self.parts.ways, blob), locations, buffer)?;
                    Ok(())
                },
            )?;
        Ok(())
    }

    /// Appends the location of each reference of a blob.
    fn locate(&self, writer: &mut Writer, blob: &Blob, found: &Found) -> KernelResult {
        let Writer {
            refs,
            locations,
            rest,
            rest_locations,
            ..
        } = writer;
        locations.clear();
        let (table, streams) = match found {
            Found::Table(table, Some(streams)) => (table, streams),
            Found::Table(table, None) => {
                if !table.locate(refs, locations) {
                    self.missing.note(refs, locations);
                }
                return Ok(());
            }
            Found::Store(store) => {
                store.locate(refs, locations)?;
                self.missing.note(refs, locations);
                return Ok(());
            }
        };
        let at = self.position(&self.parts.ways, blob);
        let (last, others) = self.ranges.split_last().unwrap_or((&IdRange::ALL, &[]));
        let mut noted = Vec::with_capacity(others.len());
        for number in 0..others.len() {
            noted.push(streams.read(number, at)?);
        }
        rest.clear();
        rest.extend(refs.iter().filter(|id| last.contains(**id)));
        rest_locations.clear();
        if !table.locate(rest, rest_locations) {
            self.missing.note(rest, rest_locations);
        }
        let mut rest = rest_locations.iter();
        for id in refs.iter() {
            let noted = others
                .iter()
                .zip(&mut noted)
                .find(|(range, _)| range.contains(*id));
            locations.push(match noted {
                Some((_, stream)) => stream.next_location(),
                None => rest.next().copied().flatten(),
            });
        }
        Ok(())
    }

    /// Writes what is not a node, and in an unsorted file nodes, too.
    fn write_blob(
        &self,
        writer: &mut Writer,
        blob: &mut Blob,
        out: &mut TaskOutput<'_>,
        found: &Found,
    ) -> KernelResult {
        let record = read_references(writer, blob)?;
        let nodes = record.kinds.contains(Kind::Node);
        let [_, ways, relations] = record.counts.map(u64::from);
        writer.counts += Counts {
            ways,
            relations,
            ..Counts::default()
        };
        if self.parts.is_out_of_turn(blob.entry().number, record.kinds) {
            return Err(self.out_of_turn(blob.entry()));
        }
        if record.kinds == KindSet::NODES && !self.is_sorted() {
            writer.nodes.read(blob.block()?)?;
            return self.write_nodes(&mut writer.nodes, &mut writer.kept, blob, out);
        }
        if writer.refs.is_empty() && !nodes {
            return out.copy(blob);
        }
        writer.references += writer.refs.len() as u64;
        self.locate(writer, blob, found)?;
        if !self.options.ignore_missing && self.missing.any() {
            // Nothing of this stays; only what else is missing is of interest.
            return Ok(());
        }
        let block = blob.block()?;
        if record.has_way_locations && writer.locations.contains(&None) {
            keep_old_locations(block, &mut writer.locations)?;
        }
        if nodes || !block.has_plain_coordinates() {
            return self.write_elements(writer, block, out);
        }
        writer.raw.clear();
        writer.splicer.splice(block, &writer.locations, &mut writer.raw)?;
        let record = IndexRecord {
            has_way_locations: true,
            ..record
        };
        out.block(&writer.raw, &record)
    }

    /// Writes a blob of mixed kinds, or with units of its own, element by element.
    fn write_elements(&self, writer: &mut Writer, block: &Block, out: &mut TaskOutput<'_>) -> KernelResult {
        writer.nodes.read(block)?;
        self.mark_kept(block, writer.nodes.ids(), &mut writer.kept.fates)?;
        let mut locations = writer.locations.iter().copied();
        for (element, fate) in block.elements().zip(&writer.kept.fates) {
            let element = element?;
            match &element {
                Element::Node(_) => {
                    if *fate == Fate::Keep && !self.is_sorted() {
                        out.keep(&element)?;
                    }
                }
                Element::Way(way) => {
                    let own = locations.by_ref().take(way.ref_count());
                    out.builder(Kind::Way)?.copy_way_with_locations(way, own)?;
                }
                Element::Relation(_) => out.keep(&element)?,
            }
        }
        Ok(())
    }
}

/// A worker's buffers for writing.
#[derive(Default)]
struct Writer {
    counts: Counts,
    references: u64,
    refs: Vec<i64>,
    locations: Vec<Option<Location>>,
    rest: Vec<i64>,
    rest_locations: Vec<Option<Location>>,
    nodes: NodeBatch,
    kept: Kept,
    splicer: WayLocationSplicer,
    raw: Vec<u8>,
}

/// What a worker needs to go through nodes and write those that are kept.
struct Keeper {
    blob: Blob,
    nodes: NodeBatch,
    kept: Kept,
    /// How many nodes it has read.
    count: u64,
}

impl Keeper {
    fn new(input: &Input) -> Keeper {
        Keeper {
            blob: Blob::new(input.file().clone()),
            nodes: NodeBatch::default(),
            kept: Kept::default(),
            count: 0,
        }
    }
}

/// Blobs one after the other, of about [`STRETCH`] bytes together.
fn stretches(blobs: &[BlobEntry]) -> Vec<Range<usize>> {
    let mut stretches = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (at, blob) in blobs.iter().enumerate() {
        bytes += u64::from(blob.data_size);
        if bytes >= STRETCH || at + 1 == blobs.len() {
            stretches.push(start..at + 1);
            (start, bytes) = (at + 1, 0);
        }
    }
    stretches
}

/// A worker's buffers for picking the nodes that are kept.
#[derive(Default)]
struct Kept {
    fates: Vec<Fate>,
    members: Vec<u32>,
    picker: DensePicker,
}

/// Reads the references of a blob's ways. Gives its record.
fn read_references(writer: &mut Writer, blob: &mut Blob) -> KernelResult<IndexRecord> {
    writer.refs.clear();
    if let Some(record) = blob.entry().index
        && !record.kinds.contains(Kind::Way)
    {
        return Ok(record);
    }
    let record = writer.splicer.read(blob.block()?, &mut writer.refs)?;
    blob.learn(record);
    Ok(record)
}

/// Where nothing else is known, what the ways carry already stays.
fn keep_old_locations(block: &Block, locations: &mut [Option<Location>]) -> KernelResult {
    let mut rest = locations.iter_mut();
    for element in block.elements() {
        if let Element::Way(way) = element? {
            for (old, new) in way.locations().zip(rest.by_ref().take(way.ref_count())) {
                *new = new.or(old?);
            }
        }
    }
    Ok(())
}
