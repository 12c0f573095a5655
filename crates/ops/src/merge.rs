//! Merging sorted inputs, each element once.
//!
//! The blobs of all inputs are laid side by side by their ranges of ids. A blob that no other overlaps is
//! copied. Blobs that cover the same range, one of each input, are compared byte by byte and copied if they
//! are equal. What is left, runs of blobs that overlap each other, is cut into shards at the beginnings of
//! blobs; a worker decodes the blobs that touch its shard and merges those elements of them that lie in it.
//!
//! Of elements with the same id the newest is kept: the highest version, then the latest time, then the
//! first input. With history every version is kept once, at the latest time that is given for it.

use std::cmp::Ordering;
use std::sync::Arc;

use osmill_engine::{
    Blob, BlobEntry, Error, Fault, Input, Job, KernelResult, Malformed, Plan, ReadFile, Result, Sink,
    TaskOutput,
};
use osmill_model::ElementId;
use osmill_pbf::{Element, Elements, IndexRecord, MetadataFields};

use crate::cat::Options;
use crate::order::Order;

/// Elements that a shard should hold at most, unless one blob holds more.
const SHARD_ELEMENTS: u64 = 64 * 1024;

/// A blob of one of the inputs.
#[derive(Debug, Clone, Copy)]
struct Source {
    input: usize,
    entry: BlobEntry,
    record: IndexRecord,
    first: ElementId,
    last: ElementId,
}

/// What a worker does at once.
#[derive(Debug)]
enum Task {
    /// A blob that no other overlaps.
    Alone(Source),
    /// One blob of each of several inputs, alike as far as their records tell.
    Alike(Vec<Source>),
    /// The elements from `from` (included) to `until` (excluded) of these blobs.
    Shard {
        sources: Vec<Source>,
        from: Option<ElementId>,
        until: Option<ElementId>,
    },
}

pub(crate) fn merge(
    job: &Job,
    inputs: &[Input],
    mut plans: Vec<Plan>,
    options: &Options,
    metadata: MetadataFields,
    sink: &Sink,
) -> Result<()> {
    let files: Vec<Arc<ReadFile>> = inputs.iter().map(|input| input.file().clone()).collect();
    for (file, plan) in files.iter().zip(&mut plans) {
        job.complete(file, plan)?;
        require_sorted(file, plan)?;
        job.objects_in(plan.blobs.iter().filter_map(|b| b.index).fold(
            Default::default(),
            |mut sum, record| {
                sum += record.counts.into();
                sum
            },
        ));
    }
    let history = plans.iter().any(|plan| plan.header.has_history());
    let tasks = cut(&plans);
    drop(plans);
    let merger = Merger {
        files,
        options,
        metadata,
        history,
    };
    job.tasks(
        "merge",
        tasks.len() as u64,
        sink,
        Vec::new,
        |readers, number, out| merger.run(readers, &tasks[number as usize], out),
    )?;
    Ok(())
}

/// Refuses a file whose records show that it is not sorted, naming the first offender.
pub(crate) fn require_sorted(file: &Arc<ReadFile>, plan: &Plan) -> Result<()> {
    let mut last: Option<ElementId> = None;
    for entry in &plan.blobs {
        let Some(record) = entry.index else { continue };
        let unsorted = |previous, element| Error::Malformed {
            path: file.path().to_owned(),
            blob: entry.number,
            offset: entry.offset,
            source: Malformed::Unsorted { element, previous },
        };
        if !record.sorted {
            let mut blob = Blob::new(file.clone());
            blob.begin(*entry);
            let order = blob
                .block()
                .and_then(|block| Order::of(block, entry.number, false));
            let order = order.map_err(|fault| blob.locate(fault))?;
            if let Some(offence) = order.first_descent {
                return Err(unsorted(offence.previous, offence.element));
            }
        }
        if let (Some(previous), Some(first)) = (last, record.first())
            && first < previous
        {
            return Err(unsorted(previous, first));
        }
        last = record.last().or(last);
    }
    Ok(())
}

/// Lays the blobs side by side and makes tasks of them.
fn cut(plans: &[Plan]) -> Vec<Task> {
    let mut sources: Vec<Source> = Vec::new();
    for (input, plan) in plans.iter().enumerate() {
        for entry in &plan.blobs {
            let Some(record) = entry.index else { continue };
            if let (Some(first), Some(last)) = (record.first(), record.last()) {
                sources.push(Source {
                    input,
                    entry: *entry,
                    record,
                    first,
                    last,
                });
            }
        }
    }
    sources.sort_by_key(|source| (source.first, source.input));
    let mut tasks = Vec::new();
    let mut rest = &sources[..];
    while let Some(start) = rest.first() {
        let mut until = start.last;
        let mut len = 1;
        while let Some(next) = rest.get(len).filter(|next| next.first <= until) {
            until = until.max(next.last);
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
        a.input != b.input && a.record == b.record && a.entry.data_size == b.entry.data_size
    };
    match run {
        [alone] if alone.record.unique => tasks.push(Task::Alone(*alone)),
        [first, others @ ..]
            if first.record.unique
                && !others.is_empty()
                && others.iter().all(|other| alike(first, other))
                && others.windows(2).all(|w| w[0].input != w[1].input) =>
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
                elements += source.record.count();
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
                sources.sort_by_key(|source| source.input);
                tasks.push(Task::Shard { sources, from, until });
                open.retain(|source| until.is_some_and(|until| source.last >= until));
                from = until;
            }
        }
    }
}

struct Merger<'a> {
    files: Vec<Arc<ReadFile>>,
    options: &'a Options,
    metadata: MetadataFields,
    history: bool,
}

impl Merger<'_> {
    fn run(&self, readers: &mut Vec<Blob>, task: &Task, out: &mut TaskOutput<'_>) -> Result<()> {
        let (sources, from, until) = match task {
            Task::Alone(source) => (std::slice::from_ref(source), None, None),
            Task::Alike(sources) => (&sources[..], None, None),
            Task::Shard { sources, from, until } => (&sources[..], *from, *until),
        };
        readers.truncate(0);
        for source in sources {
            let mut blob = Blob::new(self.files[source.input].clone());
            blob.begin(source.entry);
            readers.push(blob);
        }
        let done = match task {
            Task::Alone(_) => self.copy(readers, out)?,
            Task::Alike(_) => self.are_equal(readers)? && self.copy(readers, out)?,
            Task::Shard { .. } => false,
        };
        if !done {
            for reader in readers.iter_mut() {
                if let Err(fault) = reader.block().map(|_| ()) {
                    return Err(reader.locate(fault));
                }
            }
            self.merge(readers, sources, from, until, out)?;
        }
        readers.iter_mut().for_each(|reader| out.account(reader));
        Ok(())
    }

    /// Copies the first blob whole, if nothing in it is to be left out.
    fn copy(&self, readers: &mut [Blob], out: &mut TaskOutput<'_>) -> Result<bool> {
        let Some(blob) = readers.first_mut() else {
            return Ok(true);
        };
        let Some(record) = blob.entry().index else {
            return Ok(false);
        };
        let cleans = record.has_metadata && self.metadata != MetadataFields::ALL;
        if cleans || self.options.recompress || !self.options.kinds.is_superset(record.kinds) {
            return Ok(!self.options.kinds.intersects(record.kinds));
        }
        match blob.message() {
            Ok(message) => out
                .copy_message(message, &record)
                .map_err(located_at(&self.files[0])),
            Err(fault) => return Err(blob.locate(fault)),
        }?;
        Ok(true)
    }

    fn are_equal(&self, readers: &mut [Blob]) -> Result<bool> {
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

    fn merge(
        &self,
        readers: &mut [Blob],
        sources: &[Source],
        from: Option<ElementId>,
        until: Option<ElementId>,
        out: &mut TaskOutput<'_>,
    ) -> Result<()> {
        // One stream for each input: its blobs one after the other.
        let mut streams: Vec<Stream<'_>> = Vec::new();
        for (reader, source) in readers.iter().zip(sources) {
            match streams.last_mut().filter(|stream| stream.input == source.input) {
                Some(stream) => stream.later.push(reader),
                None => streams.push(Stream {
                    input: source.input,
                    current: None,
                    later: vec![reader],
                    head: None,
                }),
            }
        }
        for stream in &mut streams {
            stream.later.reverse();
            stream.advance()?;
            while stream
                .head
                .as_ref()
                .is_some_and(|(id, _)| from.is_some_and(|from| *id < from))
            {
                stream.advance()?;
            }
        }
        let mut winners: Vec<Element<'_>> = Vec::new();
        loop {
            let next = streams
                .iter()
                .filter_map(|stream| stream.head.as_ref().map(|(id, _)| *id))
                .min();
            let Some(id) = next.filter(|id| until.is_none_or(|until| *id < until)) else {
                return Ok(());
            };
            winners.clear();
            for stream in &mut streams {
                while let Some((_, element)) = stream.head.take_if(|(head, _)| *head == id) {
                    stream.advance()?;
                    if winners.is_empty() {
                        winners.push(element);
                    } else {
                        self.contend(&mut winners, element)
                            .map_err(|fault| stream.locate(fault))?;
                    }
                }
            }
            if self.options.kinds.contains(id.kind) {
                for winner in &winners {
                    out.keep(winner).map_err(located_at(&self.files[0]))?;
                }
            }
        }
    }

    /// Takes another element of the same id among the winners, or not.
    fn contend<'b>(&self, winners: &mut Vec<Element<'b>>, element: Element<'b>) -> KernelResult {
        let age = |element: &Element<'_>| -> KernelResult<_> {
            let metadata = element.metadata()?;
            Ok((metadata.version.unwrap_or(0), metadata.timestamp))
        };
        if self.history {
            let version = age(&element)?.0;
            let mut at = winners.len();
            while at > 0 {
                match age(&winners[at - 1])?.0.cmp(&version) {
                    Ordering::Less => break,
                    Ordering::Equal => {
                        if age(&element)? > age(&winners[at - 1])? {
                            winners[at - 1] = element;
                        }
                        return Ok(());
                    }
                    Ordering::Greater => at -= 1,
                }
            }
            winners.insert(at, element);
        } else if age(&element)? > age(&winners[0])? {
            winners[0] = element;
        }
        Ok(())
    }
}

fn located_at(file: &Arc<ReadFile>) -> impl Fn(Fault) -> Error + '_ {
    move |fault| match fault {
        Fault::Other(error) => *error,
        Fault::Here(what) => Error::Failed(format!("{}: {what}", file.path().display())),
    }
}

/// The elements of one input within a shard.
struct Stream<'b> {
    input: usize,
    current: Option<(&'b Blob, Elements<'b>)>,
    /// Blobs that come after, the next one last.
    later: Vec<&'b Blob>,
    head: Option<(ElementId, Element<'b>)>,
}

impl Stream<'_> {
    fn locate(&self, fault: Fault) -> Error {
        match (&self.current, fault) {
            (Some((blob, _)), fault) => blob.locate(fault),
            (None, Fault::Other(error)) => *error,
            (None, Fault::Here(what)) => Error::Failed(what.to_string()),
        }
    }

    fn advance(&mut self) -> Result<()> {
        loop {
            if let Some((blob, elements)) = &mut self.current
                && let Some(element) = elements.next()
            {
                let element = element.map_err(|e| blob.locate(e.into()))?;
                self.head = Some((element.element_id(), element));
                return Ok(());
            }
            match self.later.pop() {
                Some(blob) => self.current = Some((blob, blob.decoded().elements())),
                None => {
                    self.head = None;
                    return Ok(());
                }
            }
        }
    }
}
