//! Merging sorted inputs, each element once.
//!
//! The blobs of all inputs are laid side by side by the ids that they begin with, which the index or the head of
//! a blob tells. A blob that no other overlaps is copied. Blobs that cover the same range, one of each input, are
//! compared byte by byte and copied if they are equal. What is left, runs of blobs that overlap each
//! other, is cut into shards at the beginnings of blobs; a worker decodes the blobs that touch its shard and
//! merges those elements of them that lie in it. It does so on arrays of ids, versions and times, and copies
//! the winners in runs.
//!
//! Of elements with the same id the newest is kept: the highest version, then the latest time, then the
//! first input. With history every version is kept once, at the latest time that is given for it.
//!
//! Where the end of a blob is not known, it is taken to lie before the beginning of the next one. A file in
//! which two blobs share an element (several versions, say) breaks that; it is noticed when the blobs are read,
//! and the merge starts again with the ends of all blobs found out first.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use osmill_engine::{
    Blob, BlobEntry, Counts, Error, Fault, Input, Job, KernelResult, Malformed, Plan, ReadFile, Result, Sink,
    TaskOutput,
};
use osmill_model::{ElementId, Kind, id_order};
use osmill_pbf::{Block, Elements, Item, MessageArrays, NodeArrays};

use crate::cat::Options;
use crate::order::Order;

/// Elements that a shard should hold at most, unless one blob holds more.
const SHARD_ELEMENTS: u64 = 64 * 1024;
/// What a blob of unknown contents is taken to hold.
const USUAL_ELEMENTS: u64 = 8000;

/// Where the elements of a blob end; the order is that of how far they reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// At this element, which is the last one if the flag is set and lies behind it if not.
    At(ElementId, bool),
    /// With the file.
    Open,
}

impl End {
    /// Whether an element may come before the end.
    fn reaches(self, element: ElementId) -> bool {
        match self {
            End::At(last, included) => element < last || element == last && included,
            End::Open => true,
        }
    }
}

/// A blob of one of the inputs.
#[derive(Debug, Clone, Copy)]
struct Source {
    input: usize,
    entry: BlobEntry,
    first: ElementId,
    end: End,
}

impl Source {
    fn is_unique(&self) -> bool {
        self.entry.index.is_none_or(|record| record.unique)
    }

    fn elements(&self) -> u64 {
        self.entry.index.map_or(USUAL_ELEMENTS, |record| record.count())
    }
}

/// What a worker does at once.
#[derive(Debug)]
enum Task {
    /// A blob that no other overlaps.
    Alone(Source),
    /// One blob of each of several inputs, alike as far as can be told from outside.
    Alike(Vec<Source>),
    /// The elements from `from` (included) to `until` (excluded) of these blobs.
    Shard {
        sources: Vec<Source>,
        from: Option<ElementId>,
        until: Option<ElementId>,
    },
}

/// Merges the inputs into outputs that `sink` opens; the one that is returned is complete.
pub(crate) fn merge(
    job: &Job,
    inputs: &[Input],
    mut plans: Vec<Plan>,
    options: &Options,
    sink: impl Fn() -> Result<Sink>,
) -> Result<Sink> {
    let files: Vec<Arc<ReadFile>> = inputs.iter().map(|input| input.file().clone()).collect();
    let history = plans.iter().any(|plan| plan.header.has_history());
    loop {
        let mut sources = Vec::new();
        for (input, (file, plan)) in files.iter().zip(&plans).enumerate() {
            sources.extend(lay_out(job, input, file, plan)?);
        }
        let tasks = cut(sources);
        let output = sink()?;
        let merger = Merger {
            files: files.clone(),
            options,
            history,
            wrong_ends: AtomicBool::new(false),
        };
        let states = job.tasks(
            "merge",
            tasks.len() as u64,
            &output,
            State::default,
            |state, number, out| merger.run(state, &tasks[number as usize], out),
        )?;
        if !merger.wrong_ends.load(Relaxed) {
            states.iter().for_each(|state| job.objects_in(state.counts));
            return Ok(output);
        }
        drop(output);
        for (file, plan) in files.iter().zip(&mut plans) {
            job.complete(file, plan)?;
            require_sorted(file, plan)?;
        }
    }
}

/// The blobs of one input with what is known of their ranges. Refuses blobs that begin before the one before
/// them does.
fn lay_out(job: &Job, input: usize, file: &Arc<ReadFile>, plan: &Plan) -> Result<Vec<Source>> {
    let firsts = job
        .pass("heads", file, &plan.blobs)
        .scan(Vec::new, |firsts, blob| {
            if let Some(first) = blob.first_element()? {
                firsts.push((blob.entry().number, first));
            }
            Ok(())
        })?;
    let mut firsts: Vec<(u64, ElementId)> = firsts.into_iter().flatten().collect();
    firsts.sort_unstable_by_key(|(number, _)| *number);
    let mut blobs = plan.blobs.iter();
    let mut sources: Vec<Source> = Vec::new();
    for (number, first) in firsts {
        // Blobs without elements are passed over.
        let Some(entry) = blobs.by_ref().find(|blob| blob.number == number) else {
            break;
        };
        if let Some(before) = sources.last_mut() {
            if first < before.first {
                let source = Malformed::Unsorted {
                    element: first,
                    previous: before.first,
                };
                return Err(malformed(file, entry, source));
            }
            if before.entry.index.is_none() {
                before.end = End::At(first, false);
            }
        }
        let end = entry
            .index
            .and_then(|record| record.last())
            .map_or(End::Open, |last| End::At(last, true));
        sources.push(Source {
            input,
            entry: *entry,
            first,
            end,
        });
    }
    Ok(sources)
}

fn malformed(file: &Arc<ReadFile>, entry: &BlobEntry, source: Malformed) -> Error {
    Error::Malformed {
        path: file.path().to_owned(),
        blob: entry.number,
        offset: entry.offset,
        source,
    }
}

/// Refuses a file whose records show that it is not sorted, naming the first offender.
fn require_sorted(file: &Arc<ReadFile>, plan: &Plan) -> Result<()> {
    let mut last: Option<ElementId> = None;
    for entry in &plan.blobs {
        let Some(record) = entry.index else { continue };
        if !record.sorted {
            let mut blob = Blob::new(file.clone());
            blob.begin(*entry);
            let order = blob
                .block()
                .and_then(|block| Order::of(block, entry.number, false));
            let order = order.map_err(|fault| blob.locate(fault))?;
            if let Some(offence) = order.first_descent {
                let (previous, element) = (offence.previous, offence.element);
                return Err(malformed(file, entry, Malformed::Unsorted { element, previous }));
            }
        }
        if let (Some(previous), Some(element)) = (last, record.first())
            && element < previous
        {
            return Err(malformed(file, entry, Malformed::Unsorted { element, previous }));
        }
        last = record.last().or(last);
    }
    Ok(())
}

/// Makes tasks of blobs that lie side by side.
fn cut(mut sources: Vec<Source>) -> Vec<Task> {
    sources.sort_by_key(|source| (source.first, source.input));
    let mut tasks = Vec::new();
    let mut rest = &sources[..];
    while !rest.is_empty() {
        let (mut len, mut end) = (1, rest[0].end);
        while let Some(next) = rest.get(len).filter(|next| end.reaches(next.first)) {
            end = end.max(next.end);
            len += 1;
        }
        let (run, after) = rest.split_at(len);
        rest = after;
        cut_run(run, &mut tasks);
    }
    tasks
}

/// Makes tasks of blobs that hang together by their ranges.
fn cut_run(run: &[Source], tasks: &mut Vec<Task>) {
    let alike = |a: &Source, b: &Source| {
        let (x, y) = (&a.entry, &b.entry);
        a.first == b.first && a.end == b.end && x.data_size == y.data_size && x.raw_size == y.raw_size
    };
    match run {
        [alone] if alone.is_unique() => tasks.push(Task::Alone(*alone)),
        [first, others @ ..]
            if !others.is_empty()
                && run.iter().all(Source::is_unique)
                && others.iter().all(|other| alike(first, other))
                && run.windows(2).all(|w| w[0].input != w[1].input) =>
        {
            tasks.push(Task::Alike(run.to_vec()));
        }
        _ => {
            // Cut where blobs begin, once the elements that begin before are enough.
            let mut cuts = Vec::new();
            let mut elements = 0;
            for (i, source) in run.iter().enumerate() {
                if i > 0 && elements >= SHARD_ELEMENTS && cuts.last() != Some(&source.first) {
                    cuts.push(source.first);
                    elements = 0;
                }
                elements += source.elements();
            }
            let mut from = None;
            // Blobs that may reach into the shard at hand: `run` is in the order of their first elements.
            let mut open: Vec<Source> = Vec::new();
            let mut ahead = run;
            for until in cuts.into_iter().map(Some).chain([None]) {
                let begin = ahead.partition_point(|source| until.is_none_or(|until| source.first < until));
                open.extend_from_slice(&ahead[..begin]);
                ahead = &ahead[begin..];
                let mut sources = open.clone();
                sources.sort_by_key(|source| (source.input, source.entry.number));
                tasks.push(Task::Shard { sources, from, until });
                open.retain(|source| until.is_some_and(|until| source.end.reaches(until)));
                from = until;
            }
        }
    }
}

struct Merger<'a> {
    files: Vec<Arc<ReadFile>>,
    options: &'a Options,
    history: bool,
    /// Whether a blob ends behind where it was taken to end.
    wrong_ends: AtomicBool,
}

/// What a worker keeps between tasks.
#[derive(Default)]
struct State {
    readers: Vec<Blob>,
    lists: Vec<List>,
    counts: Counts,
}

impl Merger<'_> {
    fn run(&self, state: &mut State, task: &Task, out: &mut TaskOutput<'_>) -> Result<()> {
        if self.wrong_ends.load(Relaxed) {
            return Ok(());
        }
        let (sources, from, until) = match task {
            Task::Alone(source) => (std::slice::from_ref(source), None, None),
            Task::Alike(sources) => (&sources[..], None, None),
            Task::Shard { sources, from, until } => (&sources[..], *from, *until),
        };
        for (i, source) in sources.iter().enumerate() {
            let file = &self.files[source.input];
            match state.readers.get_mut(i) {
                Some(reader) => reader.turn_to(file, source.entry),
                None => {
                    let mut reader = Blob::new(file.clone());
                    reader.begin(source.entry);
                    state.readers.push(reader);
                }
            }
        }
        let readers = &mut state.readers[..sources.len()];
        let done = match task {
            Task::Alone(_) => self.copy(readers, sources, out)?,
            Task::Alike(_) => are_equal(readers)? && self.copy(readers, sources, out)?,
            Task::Shard { .. } => false,
        };
        if !done {
            state
                .lists
                .resize_with(state.lists.len().max(sources.len()), List::default);
            let lists = &mut state.lists[..sources.len()];
            for ((reader, source), list) in readers.iter_mut().zip(sources).zip(lists.iter_mut()) {
                if let Err(fault) = reader.block().map(|_| ()) {
                    return Err(reader.locate(fault));
                }
                list.read(reader.decoded(), source)
                    .map_err(|fault| reader.locate(fault))?;
                if list.last.is_some_and(|last| !source.end.reaches(last)) {
                    self.wrong_ends.store(true, Relaxed);
                    return Ok(());
                }
            }
            let elements = readers
                .iter()
                .map(|reader| (reader.decoded().elements(), 0))
                .collect();
            Shard {
                merger: self,
                readers,
                sources,
                lists,
                elements,
                from,
                until,
            }
            .run(out)?;
        }
        // Blobs that were copied are equal, and the first one's record was made.
        let copied = readers
            .first()
            .filter(|_| done)
            .and_then(|reader| reader.entry().index);
        for (i, (reader, source)) in readers.iter_mut().zip(sources).enumerate() {
            // Each blob counts in the task in which it begins.
            if from.is_none_or(|from| source.first >= from) {
                state.counts += match copied {
                    Some(record) => record.counts.into(),
                    None => state.lists.get(i).map(List::counts).unwrap_or_default(),
                };
            }
            out.account(reader);
        }
        Ok(())
    }

    /// Copies the first blob whole, if it is as simple as it seems and nothing in it is to be left out.
    fn copy(&self, readers: &mut [Blob], sources: &[Source], out: &mut TaskOutput<'_>) -> Result<bool> {
        let (Some(blob), Some(source)) = (readers.first_mut(), sources.first()) else {
            return Ok(true);
        };
        let mut copy = |blob: &mut Blob| -> KernelResult<bool> {
            let record = blob.record()?;
            if !record.unique || self.history {
                return Ok(false);
            }
            if record.last().is_some_and(|last| !source.end.reaches(last)) {
                self.wrong_ends.store(true, Relaxed);
                return Ok(true);
            }
            if !self.options.kinds.is_superset(record.kinds) {
                return Ok(!self.options.kinds.intersects(record.kinds));
            }
            out.copy(blob)?;
            Ok(true)
        };
        copy(blob).map_err(|fault| blob.locate(fault))
    }
}

fn are_equal(readers: &mut [Blob]) -> Result<bool> {
    let Some((first, others)) = readers.split_first_mut() else {
        return Ok(true);
    };
    if let Err(fault) = first.message().map(|_| ()) {
        return Err(first.locate(fault));
    }
    for other in others {
        let equal = match (first.message(), other.message()) {
            (Ok(a), Ok(b)) => a == b,
            (_, Err(fault)) => return Err(other.locate(fault)),
            (Err(fault), _) => return Err(first.locate(fault)),
        };
        if !equal {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The elements of a block as arrays.
#[derive(Default)]
struct List {
    /// Kind and [`id_order`] of the elements.
    keys: Vec<(Kind, u64)>,
    form: Form,
    nodes: NodeArrays,
    messages: MessageArrays,
    /// Versions and times where the block is of neither form.
    versions: Vec<i64>,
    times: Vec<i64>,
    last: Option<ElementId>,
}

/// How the elements of a block are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Form {
    /// One by one.
    #[default]
    Mixed,
    /// It is one DenseNodes message of the plain case.
    Nodes,
    /// All are ways, or all are relations.
    Messages(Kind),
}

impl List {
    fn read(&mut self, block: &Block, source: &Source) -> KernelResult {
        let List { keys, .. } = self;
        keys.clear();
        self.versions.clear();
        self.times.clear();
        self.form = match only_dense(block)? {
            Some(dense) if self.nodes.read(block, &dense)? => Form::Nodes,
            Some(_) => Form::Mixed,
            None => self.messages.read(block)?.map_or(Form::Mixed, Form::Messages),
        };
        let mut take = |kind: Kind, ids: &[i64]| {
            keys.extend(ids.iter().map(|id| (kind, id_order(*id))));
            ids.last().map(|id| ElementId::new(kind, *id))
        };
        match self.form {
            Form::Nodes => self.last = take(Kind::Node, &self.nodes.ids),
            Form::Messages(kind) => self.last = take(kind, &self.messages.ids),
            Form::Mixed => {
                self.last = None;
                for element in block.elements() {
                    let element = element?;
                    let metadata = element.raw_metadata()?;
                    keys.push((element.kind(), id_order(element.id())));
                    self.versions.push(metadata.version.unwrap_or(0).into());
                    self.times
                        .push(metadata.timestamp.map_or(i64::MIN, |time| time.0));
                    self.last = Some(element.element_id());
                }
            }
        }
        if !self.keys.is_sorted() {
            let order = Order::of(block, source.entry.number, false)?;
            if let Some(offence) = order.first_descent {
                let (previous, element) = (offence.previous, offence.element);
                return Err(Fault::Here(Malformed::Unsorted { element, previous }));
            }
        }
        Ok(())
    }

    /// How many elements of each kind there are.
    fn counts(&self) -> Counts {
        let before = |kind: Kind| self.keys.partition_point(|key| key.0 < kind) as u64;
        let (ways, relations) = (before(Kind::Way), before(Kind::Relation));
        Counts {
            nodes: ways,
            ways: relations - ways,
            relations: self.keys.len() as u64 - relations,
        }
    }

    /// Versions and times of all elements, each empty where none has it.
    fn ages(&self) -> (&[i64], &[i64]) {
        match self.form {
            Form::Nodes => (&self.nodes.versions, &self.nodes.timestamps),
            Form::Messages(_) => (&self.messages.versions, &self.messages.timestamps),
            Form::Mixed => (&self.versions, &self.times),
        }
    }

    /// Version and time of an element, by which the newest is chosen.
    fn age(&self, at: usize) -> (i64, i64) {
        let (versions, times) = self.ages();
        (
            versions.get(at).copied().unwrap_or(0),
            times.get(at).copied().unwrap_or(i64::MIN),
        )
    }

    /// Numbers of the elements from `from` (included) to `until` (excluded).
    fn within(&self, from: Option<ElementId>, until: Option<ElementId>) -> Range<usize> {
        let place = |id: ElementId| self.keys.partition_point(|key| *key < (id.kind, id_order(id.id)));
        from.map_or(0, place)..until.map_or(self.keys.len(), place)
    }
}

/// The nodes of a block that holds one DenseNodes message and nothing else.
fn only_dense(block: &Block) -> KernelResult<Option<osmill_pbf::DenseNodes<'_>>> {
    let mut found = None;
    for item in block.groups().flat_map(|group| group.items()) {
        match item? {
            Item::Dense(dense) if found.is_none() => found = Some(dense),
            _ => return Ok(None),
        }
    }
    Ok(found)
}

/// The merge of one shard.
struct Shard<'s> {
    merger: &'s Merger<'s>,
    readers: &'s [Blob],
    sources: &'s [Source],
    lists: &'s [List],
    /// For each block its elements that have not been passed, and how many have: runs of a block come in order.
    elements: Vec<(Elements<'s>, usize)>,
    from: Option<ElementId>,
    until: Option<ElementId>,
}

/// Where the merge stands in one input.
struct Cursor {
    /// The blobs of the input that are left, the current one first.
    lists: Range<usize>,
    /// The elements of the current one that are left.
    range: Range<usize>,
}

/// Elements of one list that follow each other in the output.
struct Run {
    list: usize,
    range: Range<usize>,
}

impl Shard<'_> {
    fn key(&self, cursor: &Cursor) -> Option<(Kind, u64)> {
        (!cursor.range.is_empty()).then(|| self.lists[cursor.lists.start].keys[cursor.range.start])
    }

    /// Moves to the next blob of the input while the current one is used up.
    fn settle(&self, cursor: &mut Cursor) {
        while cursor.range.is_empty() && cursor.lists.len() > 1 {
            cursor.lists.start += 1;
            cursor.range = self.lists[cursor.lists.start].within(self.from, self.until);
        }
    }

    fn run(&mut self, out: &mut TaskOutput<'_>) -> Result<()> {
        let mut cursors: Vec<Cursor> = Vec::new();
        for (i, source) in self.sources.iter().enumerate() {
            match cursors.last_mut() {
                Some(cursor) if self.sources[cursor.lists.start].input == source.input => {
                    cursor.lists.end = i + 1
                }
                _ => cursors.push(Cursor {
                    lists: i..i + 1,
                    range: self.lists[i].within(self.from, self.until),
                }),
            }
        }
        cursors.iter_mut().for_each(|cursor| self.settle(cursor));
        let mut run = Run { list: 0, range: 0..0 };
        let mut same: Vec<(usize, usize)> = Vec::new();
        loop {
            if let ([one, other], false) = (&mut cursors[..], self.merger.history) {
                let (list, run_of_one, run_of_other) = self.easy_run(one, other);
                let taken = if list == one.lists.start { &one } else { &other };
                let start = taken.range.start;
                let len = if list == one.lists.start {
                    run_of_one
                } else {
                    run_of_other
                };
                self.add(&mut run, list, start..start + len, out)?;
                one.range.start += run_of_one;
                other.range.start += run_of_other;
            }
            let heads = cursors.iter().filter_map(|cursor| self.key(cursor));
            let Some(key) = heads.min() else { break };
            same.clear();
            for cursor in &mut cursors {
                while self.key(cursor) == Some(key) {
                    same.push((cursor.lists.start, cursor.range.start));
                    cursor.range.start += 1;
                    self.settle(cursor);
                }
            }
            if self.merger.history {
                // A stable sort: of the same version and time the first input's comes first.
                same.sort_by_key(|(list, at)| {
                    let (version, time) = self.lists[*list].age(*at);
                    (version, std::cmp::Reverse(time))
                });
                same.dedup_by_key(|(list, at)| self.lists[*list].age(*at).0);
                for &(list, at) in &same {
                    self.add(&mut run, list, at..at + 1, out)?;
                }
            } else if let [first, others @ ..] = &same[..] {
                let mut best = *first;
                for other in others {
                    if self.lists[other.0].age(other.1) > self.lists[best.0].age(best.1) {
                        best = *other;
                    }
                }
                self.add(&mut run, best.0, best.1..best.1 + 1, out)?;
            }
        }
        self.flush(&run, out)
    }

    /// The elements at which two inputs stand of which one look tells the fate, as many as there are: those in
    /// one input only, or those in both of which the first input's are no older. Gives the list that they are taken
    /// from and how many elements of each input are dealt with.
    ///
    /// The last element of a blob and elements that are there several times are left to the long way.
    fn easy_run(&self, one: &Cursor, other: &Cursor) -> (usize, usize, usize) {
        let (a, b) = (&self.lists[one.lists.start], &self.lists[other.lists.start]);
        let (a_keys, b_keys) = (&a.keys[one.range.clone()], &b.keys[other.range.clone()]);
        let unique = |keys: &[(Kind, u64)], at: usize| keys.get(at + 1).is_some_and(|next| *next != keys[at]);
        let alone = |keys: &[(Kind, u64)], before: (Kind, u64)| {
            (0..keys.len())
                .take_while(|at| keys[*at] < before && unique(keys, *at))
                .count()
        };
        match (a_keys, b_keys) {
            ([x, ..], [y, ..]) if x == y => {
                let ((a_versions, a_times), (b_versions, b_times)) = (a.ages(), b.ages());
                let (i, j) = (one.range.start, other.range.start);
                let value = |values: &[i64], at: usize, none: i64| values.get(at).copied().unwrap_or(none);
                let no_older = |at: usize| {
                    let versions = (value(a_versions, i + at, 0), value(b_versions, j + at, 0));
                    let times = || (value(a_times, i + at, i64::MIN), value(b_times, j + at, i64::MIN));
                    versions.0 > versions.1 || versions.0 == versions.1 && times().0 >= times().1
                };
                let both = (0..a_keys.len().min(b_keys.len()))
                    .take_while(|at| a_keys[*at] == b_keys[*at] && unique(a_keys, *at) && unique(b_keys, *at))
                    .take_while(|at| no_older(*at))
                    .count();
                (one.lists.start, both, both)
            }
            ([x, ..], [y, ..]) if x < y => (one.lists.start, alone(a_keys, *y), 0),
            ([x, ..], [_, ..]) => (other.lists.start, 0, alone(b_keys, *x)),
            _ => (one.lists.start, 0, 0),
        }
    }

    fn add(
        &mut self,
        run: &mut Run,
        list: usize,
        range: Range<usize>,
        out: &mut TaskOutput<'_>,
    ) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        if run.list == list && run.range.end == range.start {
            run.range.end = range.end;
            return Ok(());
        }
        self.flush(run, out)?;
        *run = Run { list, range };
        Ok(())
    }

    fn flush(&mut self, run: &Run, out: &mut TaskOutput<'_>) -> Result<()> {
        if run.range.is_empty() {
            return Ok(());
        }
        let blob = &self.readers[run.list];
        self.write(run.list, run.range.clone(), out)
            .map_err(|fault| blob.locate(fault))
    }

    fn write(&mut self, number: usize, range: Range<usize>, out: &mut TaskOutput<'_>) -> KernelResult {
        let kinds = self.merger.options.kinds;
        let list = &self.lists[number];
        let block = self.readers[number].decoded();
        match list.form {
            Form::Nodes if kinds.contains(Kind::Node) => return out.keep_nodes(block, &list.nodes, range),
            Form::Messages(kind) if kinds.contains(kind) => {
                for at in range {
                    out.builder(kind)?.copy_message(block, kind, &list.messages, at)?;
                }
                return Ok(());
            }
            Form::Nodes | Form::Messages(_) => return Ok(()),
            Form::Mixed => {}
        }
        let (elements, passed) = &mut self.elements[number];
        if range.start > *passed {
            elements.nth(range.start - *passed - 1).transpose()?;
        }
        *passed = range.end;
        for element in elements.take(range.len()) {
            let element = element?;
            if kinds.contains(element.kind()) {
                out.keep(&element)?;
            }
        }
        Ok(())
    }
}
