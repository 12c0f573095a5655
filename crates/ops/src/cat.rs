//! `cat`: copy files, adding an index record to every blob.
//!
//! One pass per input. Compressed bytes are copied where nothing has to change: a blob that has an index
//! record is not even read but copied inside the kernel. A blob without one is decompressed to make it, and
//! its compressed bytes are kept. Only where elements or metadata are dropped are blocks built anew.
//!
//! With [`Options::dedupe`] the inputs, which must be sorted, are merged by ranges of ids; see the `merge`
//! module.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use osmill_engine::{
    Blob, Counts, Error, FrameStream, Input, Job, KernelResult, OutputOptions, Plan, Result, Sink,
    TaskOutput, output_header,
};
use osmill_model::KindSet;
use osmill_pbf::{FileHeader, IndexRecord, MetadataFields, SORTED, Splicer};
use serde::Serialize;

use crate::order::Order;

/// What the output is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// PBF.
    #[default]
    Pbf,
    /// OPL text.
    Opl,
}

/// How to copy.
#[derive(Debug, Clone)]
pub struct Options {
    /// Kinds of elements to keep.
    pub kinds: KindSet,
    /// Merge sorted inputs, keeping each element once.
    pub dedupe: bool,
    /// Compress all blobs anew, even where nothing else changes.
    pub recompress: bool,
    /// The format of the output.
    pub format: Format,
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
}

impl HeaderChanges {
    /// Reads `KEY=VALUE`; an empty value removes the field.
    pub fn parse(settings: &[String]) -> Result<Self> {
        let mut set = Vec::new();
        for setting in settings {
            let Some((key, value)) = setting.split_once('=') else {
                return Err(Error::Usage(format!(
                    "--output-header '{setting}': write KEY=VALUE"
                )));
            };
            set.push((key.to_owned(), value.to_owned()));
        }
        let changes = HeaderChanges { set };
        changes.apply(&mut FileHeader::default())?;
        Ok(changes)
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
    if options.format == Format::Opl && options.recompress {
        return Err(Error::Usage("--compression has no meaning for OPL".into()));
    }
    if inputs.iter().filter(|path| *path == Path::new("-")).count() > 1 {
        return Err(Error::Usage("standard input can be given once only".into()));
    }
    let cat = Cat {
        job,
        options,
        metadata: output.metadata,
    };
    let sink = match inputs {
        [] => return Err(Error::Usage("no input file was given".into())),
        [one] if one == Path::new("-") && !options.dedupe => cat.stream(output)?,
        _ => {
            let inputs = inputs
                .iter()
                .map(|path| crate::open(job, path))
                .collect::<Result<Vec<_>>>()?;
            let threads = job.options().threads;
            let mut plans = inputs
                .iter()
                .map(|input| input.plan(threads))
                .collect::<Result<Vec<Plan>>>()?;
            if options.dedupe {
                cat.merge(inputs, plans, output)?
            } else {
                match cat.copy(&inputs, &plans, output.clone())? {
                    Some(sink) => sink,
                    // The claim of the header turned out wrong, and the header has been written.
                    None => {
                        plans
                            .iter_mut()
                            .for_each(|plan| plan.header.set_optional(SORTED, false));
                        cat.copy(&inputs, &plans, output)?
                            .ok_or_else(|| Error::Failed("the input changes while it is read".into()))?
                    }
                }
            }
        }
    };
    let written = sink.counts();
    job.objects_out(written);
    let bytes = sink.finish()?;
    Ok(Report { written, bytes })
}

struct Cat<'a> {
    job: &'a Job,
    options: &'a Options,
    metadata: MetadataFields,
}

impl Cat<'_> {
    fn sink(&self, output: OutputOptions, headers: Vec<FileHeader>, sorted: bool) -> Result<Sink> {
        match self.options.format {
            Format::Opl => Sink::create(output),
            Format::Pbf => {
                let mut header = output_header(headers, &self.options.generator);
                header.set_optional(SORTED, sorted);
                self.options.header.apply(&mut header)?;
                Sink::create_pbf(output, &header)
            }
        }
    }

    /// Copies one input after the other. `None` if the header that was written makes a false claim and can
    /// be written again.
    fn copy(&self, inputs: &[Input], plans: &[Plan], output: OutputOptions) -> Result<Option<Sink>> {
        let claims = plans.iter().all(|plan| plan.header.claims_sorted());
        // With several inputs, records must show that each begins where the one before ended.
        let sorted = match plans {
            [plan] => claims && plan.is_sorted() != Some(false),
            _ => claims && concatenation_is_sorted(plans),
        };
        if let ([input], true, false, Format::Pbf) = (inputs, claims, sorted, self.options.format) {
            self.job.warn(format!(
                "{}: the header says that the file is sorted, but its index says that it is not; \
                 the output does not claim it",
                input.path().display()
            ));
        }
        let seekable = output.path != Path::new("-");
        let headers = plans.iter().map(|plan| plan.header.clone()).collect();
        let sink = self.sink(output, headers, sorted)?;
        let mut orders = Vec::new();
        let mut read = Counts::default();
        for (input, plan) in inputs.iter().zip(plans) {
            let states = self.job.pass("copy", input.file(), &plan.blobs).write(
                &sink,
                State::default,
                |state, blob, out| self.kernel(state, blob, out, sorted),
            )?;
            let (counts, order) = State::fold(states);
            read += counts;
            orders.push(order);
        }
        if let ([order], true, Format::Pbf) = (&orders[..], sorted, self.options.format)
            && let Some(offence) = order.first_descent
        {
            let message = format!(
                "{}: the header says that the file is sorted, but {} comes after {} in blob {}",
                inputs[0].path().display(),
                offence.element,
                offence.previous,
                offence.blob
            );
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

    /// Copies standard input, reading it once.
    fn stream(&self, output: OutputOptions) -> Result<Sink> {
        let mut stream = FrameStream::stdin();
        let header = stream.header()?;
        let sorted = header.claims_sorted();
        let path = stream.path().to_owned();
        let sink = self.sink(output, vec![header], sorted)?;
        let stream = Mutex::new(stream);
        let states =
            self.job
                .stream_pass("copy", &stream)
                .write(&sink, State::default, |state, blob, out| {
                    self.kernel(state, blob, out, sorted)
                })?;
        let (counts, order) = State::fold(states);
        self.job.objects_in(counts);
        let stream = stream
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if stream.headers_differ() && self.options.format == Format::Pbf {
            return Err(Error::Failed(format!(
                "{}: it has several file headers, which say different things; save it to a file and run \
                 osmill cat on that",
                path.display()
            )));
        }
        if let (Some(offence), true, Format::Pbf) = (order.first_descent, sorted, self.options.format) {
            return Err(Error::Failed(format!(
                "{}: the header says that the data is sorted, but {} comes after {} in blob {}; \
                 save it to a file and run osmill cat on that",
                path.display(),
                offence.element,
                offence.previous,
                offence.blob
            )));
        }
        Ok(sink)
    }

    fn merge(&self, inputs: Vec<Input>, plans: Vec<Plan>, output: OutputOptions) -> Result<Sink> {
        if self.options.format != Format::Pbf {
            return Err(Error::Usage("--dedupe writes PBF only".into()));
        }
        let headers: Vec<_> = plans.iter().map(|plan| plan.header.clone()).collect();
        let sink = || self.sink(output.clone(), headers.clone(), true);
        crate::merge::merge(self.job, &inputs, plans, self.options, self.metadata, sink)
    }

    /// Copies a blob. Where the header claims that the file is sorted, notes whether it is.
    fn kernel(
        &self,
        state: &mut State,
        blob: &mut Blob,
        out: &mut TaskOutput<'_>,
        sorted: bool,
    ) -> KernelResult {
        let Options {
            kinds,
            format,
            recompress,
            ..
        } = *self.options;
        if format == Format::Opl {
            return self.print(state, blob, out);
        }
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
        if record.kinds.is_empty() || !kinds.intersects(record.kinds) {
            return Ok(());
        }
        let cleans = record.has_metadata && self.metadata != MetadataFields::ALL;
        let filters = !kinds.is_superset(record.kinds);
        if cleans && !filters {
            state.raw.clear();
            let has_metadata = state
                .splicer
                .strip_metadata(blob.block()?, self.metadata, &mut state.raw)?;
            return out.block(
                &state.raw,
                &IndexRecord {
                    has_metadata,
                    ..record
                },
            );
        }
        if filters {
            for element in blob.block()?.elements() {
                let element = element?;
                if kinds.contains(element.kind()) {
                    out.keep(&element)?;
                }
            }
            return Ok(());
        }
        if recompress {
            return out.block(blob.block()?.data(), &record);
        }
        self.copy_whole(blob, out, known, &record)
    }

    /// Copies a blob with its compressed bytes: unread if its header is as we would write it.
    fn copy_whole(
        &self,
        blob: &mut Blob,
        out: &mut TaskOutput<'_>,
        known: Option<IndexRecord>,
        record: &IndexRecord,
    ) -> KernelResult {
        let entry = *blob.entry();
        match (blob.file().cloned(), known) {
            (Some(file), Some(_))
                if entry.header_size as usize <= 4 + osmill_pbf::MAX_WRITTEN_BLOB_HEADER_SIZE =>
            {
                out.copy_frame(&file, &entry)
            }
            _ => out.copy_message(blob.message()?, record),
        }
    }

    fn print(&self, state: &mut State, blob: &mut Blob, out: &mut TaskOutput<'_>) -> KernelResult {
        let kinds = self.options.kinds;
        if blob
            .entry()
            .index
            .is_some_and(|record| !kinds.intersects(record.kinds))
        {
            return Ok(());
        }
        let mut counts = [0; 3];
        for element in blob.block()?.elements() {
            let element = element?;
            if kinds.contains(element.kind()) {
                counts[element.kind() as usize] += 1;
                let metadata = self.metadata.filter(element.metadata()?);
                osmill_text::opl::write_element_as(&element, &metadata, out.bytes())?;
            }
        }
        state.counts += counts.into();
        out.count(counts.into());
        Ok(())
    }
}

#[derive(Default)]
struct State {
    counts: Counts,
    orders: Vec<Order>,
    splicer: Splicer,
    raw: Vec<u8>,
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
fn concatenation_is_sorted(plans: &[Plan]) -> bool {
    let mut last = None;
    plans.iter().all(|plan| {
        plan.is_sorted() == Some(true)
            && plan.blobs.iter().filter_map(|blob| blob.index).all(|record| {
                let follows = record.first().is_none() || record.first() >= last;
                last = record.last().or(last);
                follows
            })
    })
}
