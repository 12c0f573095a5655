//! `cat`: copy files, adding an index record to every blob.
//!
//! One pass per input, each in a format of its own; text is turned into blocks and written as they come.
//! Compressed bytes are copied where nothing has to change: a blob that has an index record is not even read but
//! copied inside the kernel. A blob without one is decompressed to make it, and its compressed bytes are kept.
//! Only where elements or metadata are dropped are blocks built anew.
//!
//! With [`Options::dedupe`] the inputs, which must be sorted, are merged by ranges of ids; see the `merge`
//! module.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use osmill_engine::{
    Blob, BlockStream, Counts, Error, Input, Job, KernelResult, OutputOptions, Plan, Result, Sink,
    TaskOutput, output_header,
};
use osmill_model::KindSet;
use osmill_pbf::{FileHeader, SORTED};
use serde::Serialize;

use crate::order::Order;

/// How to copy.
#[derive(Debug, Clone)]
pub struct Options {
    /// Kinds of elements to keep.
    pub kinds: KindSet,
    /// Merge sorted inputs, keeping each element once.
    pub dedupe: bool,
    /// Name and version of the program for the file header.
    pub generator: String,
    /// Changes to the file header, applied last.
    pub header: HeaderChanges,
}

/// Header fields that the user sets.
#[derive(Debug, Clone, Default)]
pub struct HeaderChanges {
    /// Pairs of option and value, as osmium names them.
    pub set: Vec<(String, String)>,
    /// Options that keep the value of the input, where the command would drop it.
    pub kept: Vec<String>,
}

impl HeaderChanges {
    /// Reads `KEY=VALUE`, where an empty value removes the field, and `KEY!`, which keeps that of the input.
    pub fn parse(settings: &[String]) -> Result<Self> {
        let mut changes = HeaderChanges::default();
        for setting in settings {
            match (setting.split_once('='), setting.strip_suffix('!')) {
                (Some((key, value)), _) => changes.set.push((key.to_owned(), value.to_owned())),
                (None, Some(key)) => changes.kept.push(key.to_owned()),
                (None, None) => {
                    return Err(Error::Usage(format!(
                        "--output-header '{setting}': write KEY=VALUE, or KEY! to keep that of the input"
                    )));
                }
            }
        }
        changes.apply(&mut FileHeader::default())?;
        // A key is known if it can be removed.
        let known = HeaderChanges {
            set: changes
                .kept
                .iter()
                .map(|key| (key.clone(), String::new()))
                .collect(),
            kept: Vec::new(),
        };
        known.apply(&mut FileHeader::default())?;
        Ok(changes)
    }

    /// Whether a field keeps the value of the input.
    pub fn keeps(&self, key: &str) -> bool {
        self.kept.iter().any(|kept| kept == key)
    }

    /// Changes a header.
    pub fn apply(&self, header: &mut FileHeader) -> Result<()> {
        for (key, value) in &self.set {
            let text = (!value.is_empty()).then(|| value.clone());
            let bad = || Error::Usage(format!("--output-header {key}: '{value}' is not a value for it"));
            match key.as_str() {
                "generator" => header.writing_program = text,
                "source" => header.source = text,
                "osmosis_replication_timestamp" => {
                    header.replication_timestamp = text.map(|t| t.parse()).transpose().map_err(|_| bad())?;
                }
                "osmosis_replication_sequence_number" => {
                    header.replication_sequence = text.map(|t| t.parse()).transpose().map_err(|_| bad())?;
                }
                "osmosis_replication_base_url" => header.replication_base_url = text,
                _ => {
                    return Err(Error::Usage(format!(
                        "--output-header '{key}': there is no such field; use generator, source, \
                         osmosis_replication_timestamp, osmosis_replication_sequence_number or \
                         osmosis_replication_base_url"
                    )));
                }
            }
        }
        Ok(())
    }
}

/// What was copied.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Elements in the output.
    pub written: Counts,
    /// Bytes of the output.
    pub bytes: u64,
}

/// Copies `inputs` to one output, in this order; see the module's documentation.
pub fn cat(job: &Job, inputs: &[PathBuf], options: &Options, output: OutputOptions) -> Result<Report> {
    if inputs.iter().filter(|path| *path == Path::new("-")).count() > 1 {
        return Err(Error::Usage("standard input can be given once only".into()));
    }
    if inputs.is_empty() {
        return Err(Error::Usage("no input file was given".into()));
    }
    let cat = Cat { job, options };
    let sink = if options.dedupe {
        cat.merge(inputs, output)?
    } else {
        let mut sources = cat.open(inputs)?;
        // Text makes no claims, but files of data mostly are sorted, and commands like to know it. Whether it is so
        // is seen while copying.
        let hopes = match (inputs, &sources[..]) {
            ([path], [Source::Streamed(stream)]) => {
                output.path != Path::new("-")
                    && path.is_file()
                    && lock(stream).text_format().is_some_and(|format| !format.change)
            }
            _ => false,
        };
        match cat.copy(&mut sources, output.clone(), hopes)? {
            Some(sink) => sink,
            // The claim of the header turned out wrong, and the header has been written.
            None => {
                for (source, path) in sources.iter_mut().zip(inputs) {
                    match source {
                        Source::Planned(_, plan) => plan.header.set_optional(SORTED, false),
                        other => *other = Source::Later(path.clone(), other.header()),
                    }
                }
                cat.copy(&mut sources, output, false)?
                    .ok_or_else(|| Error::Failed("the input changes while it is read".into()))?
            }
        }
    };
    let written = sink.counts();
    job.objects_out(written);
    let bytes = sink.finish()?;
    Ok(Report { written, bytes })
}

/// Writes a side-car index beside each file, which stays as it is. Gives the paths of what was written.
pub fn index_beside(job: &Job, inputs: &[PathBuf], fsync: bool) -> Result<Vec<PathBuf>> {
    let mut written = Vec::new();
    for path in inputs {
        let input = job.open(path)?;
        if input.is_spooled() || input.text_format().is_some() {
            return Err(Error::Usage(format!(
                "{}: an index can stand beside a PBF file only",
                path.display()
            )));
        }
        let mut plan = input.plan(job.options().threads)?;
        job.complete(input.file(), &mut plan)?;
        let counts = plan.blobs.iter().filter_map(|blob| blob.index);
        counts.for_each(|record| job.objects_in(record.counts.into()));
        written.push(plan.write_sidecar(input.file(), fsync)?);
    }
    Ok(written)
}

struct Cat<'a> {
    job: &'a Job,
    options: &'a Options,
}

/// An input: as blobs of a file, or as what comes one after the other.
// There are as many as inputs.
#[allow(clippy::large_enum_variant)]
enum Source {
    Planned(Input, Plan),
    Streamed(Mutex<BlockStream>),
    /// One of several text files, which is opened again when its turn comes.
    Later(PathBuf, FileHeader),
}

impl Source {
    fn header(&self) -> FileHeader {
        match self {
            Source::Planned(_, plan) => plan.header.clone(),
            Source::Streamed(stream) => lock(stream).header().clone(),
            Source::Later(_, header) => header.clone(),
        }
    }

    fn path(&self) -> PathBuf {
        match self {
            Source::Planned(input, _) => input.path().to_owned(),
            Source::Streamed(stream) => lock(stream).path().to_owned(),
            Source::Later(path, _) => path.clone(),
        }
    }
}

fn lock(stream: &Mutex<BlockStream>) -> MutexGuard<'_, BlockStream> {
    stream.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cat<'_> {
    fn open(&self, inputs: &[PathBuf]) -> Result<Vec<Source>> {
        let threads = self.job.options().threads;
        inputs
            .iter()
            .map(|path| {
                if let Some(stream) = self.job.stream(path)? {
                    if inputs.len() > 1 && path.is_file() {
                        return Ok(Source::Later(path.clone(), stream.header().clone()));
                    }
                    return Ok(Source::Streamed(Mutex::new(stream)));
                }
                let input = self.job.open(path)?;
                let plan = input.plan(threads)?;
                Ok(Source::Planned(input, plan))
            })
            .collect()
    }

    fn sink(&self, output: OutputOptions, headers: Vec<FileHeader>, sorted: bool) -> Result<Sink> {
        let mut header = output_header(headers, &self.options.generator);
        header.set_optional(SORTED, sorted);
        self.options.header.apply(&mut header)?;
        Sink::create(output, &header)
    }

    /// Copies one input after the other. With `hopes`, a single stream is taken to be sorted. `None` if the
    /// header that was written makes a false claim and can be written again.
    fn copy(&self, sources: &mut [Source], output: OutputOptions, hopes: bool) -> Result<Option<Sink>> {
        let headers: Vec<FileHeader> = sources.iter().map(Source::header).collect();
        let claims = !output.is_text() && (hopes || headers.iter().all(FileHeader::claims_sorted));
        let sorted = match &*sources {
            [Source::Planned(_, plan)] => claims && plan.is_sorted() != Some(false),
            [Source::Streamed(_)] => claims,
            // With several inputs, records must show that each begins where the one before ended.
            several => claims && concatenation_is_sorted(several),
        };
        if let ([Source::Planned(input, _)], true, false) = (&*sources, claims, sorted) {
            self.job.warn(format!(
                "{}: the header says that the file is sorted, but its index says that it is not; \
                 the output does not claim it",
                input.path().display()
            ));
        }
        let (text, several) = (output.is_text(), sources.len() > 1);
        let seekable = output.path != Path::new("-");
        let sink = self.sink(output, headers, sorted)?;
        let mut orders = Vec::new();
        let mut read = Counts::default();
        for source in &mut *sources {
            if let Source::Later(path, _) = source
                && let Some(stream) = self.job.stream(path)?
            {
                *source = Source::Streamed(Mutex::new(stream));
            }
            let kernel = |state: &mut State, blob: &mut Blob, out: &mut TaskOutput<'_>| {
                self.kernel(state, blob, out, sorted)
            };
            let states = match &*source {
                Source::Planned(input, plan) => {
                    let pass = self.job.pass("copy", input.file(), &plan.blobs);
                    pass.write(&sink, State::default, kernel)?
                }
                Source::Streamed(stream) => {
                    let pass = self.job.stream_pass("copy", stream);
                    pass.write(&sink, State::default, kernel)?
                }
                Source::Later(path, _) => {
                    return Err(Error::Failed(format!(
                        "{}: it changes while it is read",
                        path.display()
                    )));
                }
            };
            let (counts, order) = State::fold(states);
            read += counts;
            orders.push(order);
            if let Source::Streamed(stream) = source {
                let stream = &*lock(stream);
                self.job.end_stream(stream);
                if stream.headers_differ() && !text {
                    return Err(Error::Failed(format!(
                        "{}: it has several file headers, which say different things; save it to a file and run \
                         osmill cat on that",
                        stream.path().display()
                    )));
                }
            }
            if several {
                // Its buffers are needed no more.
                *source = Source::Later(source.path(), source.header());
            }
        }
        if let ([order], [source], true) = (&orders[..], &*sources, sorted)
            && let Some(offence) = order.first_descent
        {
            if hopes {
                return Ok(None);
            }
            let streamed = matches!(source, Source::Streamed(_));
            let message = format!(
                "{}: the header says that the {} is sorted, but {} comes after {} in blob {}",
                source.path().display(),
                if streamed { "data" } else { "file" },
                offence.element,
                offence.previous,
                offence.blob
            );
            if streamed {
                return Err(Error::Failed(format!(
                    "{message}; save it to a file and run osmill cat on that"
                )));
            }
            if !seekable {
                return Err(Error::Failed(format!(
                    "{message}; the output makes the same claim"
                )));
            }
            self.job.warn(format!("{message}; the output does not claim it"));
            return Ok(None);
        }
        self.job.objects_in(read);
        Ok(Some(sink))
    }

    fn merge(&self, inputs: &[PathBuf], output: OutputOptions) -> Result<Sink> {
        let inputs = inputs
            .iter()
            .map(|path| self.job.open(path))
            .collect::<Result<Vec<Input>>>()?;
        let plans = inputs
            .iter()
            .map(|input| input.plan(self.job.options().threads))
            .collect::<Result<Vec<Plan>>>()?;
        let headers: Vec<_> = plans.iter().map(|plan| plan.header.clone()).collect();
        let sink = || self.sink(output.clone(), headers.clone(), true);
        crate::merge::merge(self.job, &inputs, plans, self.options, sink)
    }

    /// Copies a blob. Where the header claims that the file is sorted, notes whether it is.
    fn kernel(
        &self,
        state: &mut State,
        blob: &mut Blob,
        out: &mut TaskOutput<'_>,
        sorted: bool,
    ) -> KernelResult {
        let kinds = self.options.kinds;
        let known = blob.entry().index;
        let record = blob.record()?;
        state.counts += record.counts.into();
        let number = blob.entry().number;
        if sorted {
            state
                .orders
                .push(match (known, Order::of_record(&record, number)) {
                    (_, Some(order)) => order,
                    (Some(record), None) if record.sorted => Order::of_sorted(&record, number),
                    _ => Order::of(blob.block()?, number, record.has_visibility)?,
                });
        }
        if kinds.is_superset(record.kinds) {
            return out.copy(blob);
        }
        if kinds.intersects(record.kinds) {
            for element in blob.block()?.elements() {
                let element = element?;
                if kinds.contains(element.kind()) {
                    out.keep(&element)?;
                }
            }
        }
        Ok(())
    }
}

#[derive(Default)]
struct State {
    counts: Counts,
    orders: Vec<Order>,
}

impl State {
    fn fold(states: Vec<State>) -> (Counts, Order) {
        let mut counts = Counts::default();
        let mut orders = Vec::new();
        for state in states {
            counts += state.counts;
            orders.extend(state.orders);
        }
        (counts, Order::of_blobs(orders))
    }
}

/// Whether records show that the inputs, one after the other, are sorted.
fn concatenation_is_sorted(sources: &[Source]) -> bool {
    let mut last = None;
    sources.iter().all(|source| {
        let Source::Planned(_, plan) = source else {
            return false;
        };
        plan.is_sorted() == Some(true)
            && plan.blobs.iter().filter_map(|blob| blob.index).all(|record| {
                let follows = record.first().is_none() || record.first() >= last;
                last = record.last().or(last);
                follows
            })
    })
}
