//! Jobs and passes.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use osmill_model::ElementId;
use osmill_pbf::{
    BlobData, Block, Codec, Decompressor, FileHeader, IndexRecord, parse_blob, peek_first_element,
};

use crate::error::{Error, Fault, KernelResult, Malformed, Result};
use crate::file::{ReadBuffer, ReadFile};
use crate::output::Sink;
use crate::plan::{BlobEntry, Origin, Plan};
use crate::progress::Progress;
use crate::stream::BlockStream;
use crate::summary::{Allocations, Counters, Counts, Summary, cpu_time, peak_memory, timed};
use crate::task::{TaskOutput, TaskOutputs};
use osmill_text::format::FormatSpec;

/// Budgets and means of a job.
#[derive(Debug, Clone)]
pub struct JobOptions {
    /// Worker threads.
    pub threads: usize,
    /// Bytes of memory that a command may use for its tables.
    pub memory: u64,
    /// Folder for temporary files.
    pub scratch: PathBuf,
    /// Blobs of a task of a pass that writes: see [`Job::blobs_of_task`].
    pub blobs_of_task: Option<u64>,
    /// Read and write past the page cache.
    pub direct_io: bool,
    /// What is said of the format of inputs, as far as their content leaves that open.
    pub input_format: FormatSpec,
    /// Show progress on standard error.
    pub progress: bool,
    /// Tells what the program has allocated so far, if its allocator counts.
    pub allocations: Option<fn() -> Allocations>,
}

impl Default for JobOptions {
    fn default() -> Self {
        JobOptions {
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            memory: 1 << 30,
            scratch: std::env::temp_dir(),
            blobs_of_task: None,
            direct_io: false,
            input_format: FormatSpec::default(),
            progress: false,
            allocations: None,
        }
    }
}

/// A running command: its budgets, its progress, and the account of what it did.
#[derive(Debug)]
pub struct Job {
    options: JobOptions,
    progress: Progress,
    start: Instant,
    summary: Mutex<Summary>,
}

impl Job {
    /// A job with these budgets.
    pub fn new(options: JobOptions) -> Self {
        Job {
            progress: Progress::new(options.progress),
            options,
            start: Instant::now(),
            summary: Mutex::default(),
        }
    }

    /// The budgets.
    pub fn options(&self) -> &JobOptions {
        &self.options
    }

    fn summary_mut(&self) -> std::sync::MutexGuard<'_, Summary> {
        self.summary
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Tells the user something that is not an error.
    pub fn warn(&self, message: impl Into<String>) {
        self.summary_mut().warnings.push(message.into());
    }

    /// Notes how many elements were read.
    pub fn objects_in(&self, counts: Counts) {
        *self.summary_mut().objects_in.get_or_insert_default() += counts;
    }

    /// Notes how many elements were written.
    pub fn objects_out(&self, counts: Counts) {
        *self.summary_mut().objects_out.get_or_insert_default() += counts;
    }

    /// The account up to now.
    pub fn summary(&self) -> Summary {
        let mut summary = self.summary_mut().clone();
        summary.wall_s = self.start.elapsed().as_secs_f64();
        summary.cpu_s = cpu_time().as_secs_f64();
        summary.peak_memory = peak_memory();
        summary.bytes_read = summary.phases.iter().map(|p| p.bytes_read).sum();
        summary.bytes_written = summary.phases.iter().map(|p| p.bytes_written).sum();
        summary
    }

    /// Runs `work` as a named phase of the account.
    pub(crate) fn phase<T>(&self, name: &str, work: impl FnOnce(&Counters) -> T) -> T {
        let (start, cpu, counters) = (Instant::now(), cpu_time(), Counters::default());
        let allocated = self.options.allocations.map(|count| (count, count()));
        let result = work(&counters);
        let mut phase = counters.phase(name, start, cpu);
        phase.allocations = allocated.map(|(count, before)| count().since(before));
        self.summary_mut().phases.push(phase);
        result
    }

    /// Runs tasks 0, 1, ... on all threads, each from begin to end on one thread.
    ///
    /// `next` gives the next task to a worker, in order; `body` does it. Both have the worker's own state.
    /// If a task fails, no further ones begin, and the error of the first one in order is returned.
    fn run<S: Send>(
        &self,
        make: impl Fn() -> S + Sync,
        next: impl Fn(&mut S) -> Result<Option<u64>> + Sync,
        body: impl Fn(&mut S, u64) -> Result<()> + Sync,
        fail: impl Fn() + Sync,
    ) -> Result<Vec<S>> {
        let stop = AtomicBool::new(false);
        let first_error = Mutex::new(None::<(u64, Error)>);
        let note = |task: u64, error: Error| {
            stop.store(true, Relaxed);
            let mut first = first_error
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            if first.as_ref().is_none_or(|(known, _)| task < *known) {
                *first = Some((task, error));
            }
            fail();
        };
        let work = || {
            let mut state = make();
            let mut last = 0;
            while !stop.load(Relaxed) {
                match next(&mut state) {
                    Ok(Some(task)) => {
                        last = task;
                        if let Err(error) = body(&mut state, task) {
                            note(task, error);
                            break;
                        }
                    }
                    Ok(None) => break,
                    Err(error) => {
                        note(last + 1, error);
                        break;
                    }
                }
            }
            state
        };
        let states = std::thread::scope(|scope| {
            let others: Vec<_> = (1..self.options.threads.max(1))
                .map(|_| scope.spawn(work))
                .collect();
            let mut states = vec![work()];
            for other in others {
                match other.join() {
                    Ok(state) => states.push(state),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            states
        });
        match first_error
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
        {
            Some((_, error)) => Err(error),
            None => Ok(states),
        }
    }

    /// Blobs of this file whose numbers give the same when divided by this are one task of a pass that writes.
    ///
    /// Thin blocks, which have to be put together again, occur at the ends of tasks only; but there have to be so many
    /// tasks that many threads have enough. If the options leave it open, the size of the file decides: the output is
    /// the same for every number of threads and any memory.
    pub fn blobs_of_task(&self, file: &ReadFile) -> u64 {
        const BYTES_FOR_EACH: u64 = 30_000_000;
        let by_size = || (file.size() / BYTES_FOR_EACH).min(16);
        self.options.blobs_of_task.unwrap_or_else(by_size).max(1)
    }

    /// A pass over these blobs of a file; see [`Pass`].
    pub fn pass<'a>(&'a self, name: &'a str, file: &Arc<ReadFile>, blobs: &'a [BlobEntry]) -> Pass<'a> {
        Pass {
            job: self,
            name,
            source: Source::Planned(file.clone(), blobs),
        }
    }

    /// A pass over the blobs of a stream.
    pub fn stream_pass<'a>(&'a self, name: &'a str, stream: &'a Mutex<BlockStream>) -> Pass<'a> {
        Pass {
            job: self,
            name,
            source: Source::Stream(stream),
        }
    }

    /// Runs `count` tasks that are more than a blob each, such as ranges of ids over several inputs, writing
    /// to `sink` in their order. `body` has the worker's state, the number of the task, and the output.
    pub fn tasks<S: Send>(
        &self,
        name: &str,
        count: u64,
        sink: &Sink,
        make: impl Fn() -> S + Sync,
        body: impl Fn(&mut S, u64, &mut TaskOutput<'_>) -> Result<()> + Sync,
    ) -> Result<Vec<S>> {
        self.phase(name, |counters| {
            sink.next_pass();
            let cursor = AtomicU64::new(0);
            let bar = self.progress.start(name, count);
            let states = self.run(
                || (make(), TaskOutput::new(sink, counters)),
                |_| {
                    let task = cursor.fetch_add(1, Relaxed);
                    Ok((task < count && sink.permit(task, counters)).then_some(task))
                },
                |(state, out), task| {
                    out.begin_task(Some(task));
                    body(state, task, out)?;
                    bar.advance(1);
                    out.submit(task).map_err(|fault| match fault {
                        Fault::Other(error) => *error,
                        Fault::Here(what) => Error::Failed(what.to_string()),
                    })
                },
                || sink.fail(),
            )?;
            Ok(states.into_iter().map(|(state, _)| state).collect())
        })
    }

    /// Runs `count` tasks on what is in memory. `body` has the worker's state and the number of the task; gives
    /// the states, of which chance tells which tasks each has done.
    pub fn each<S: Send>(
        &self,
        name: &str,
        count: u64,
        make: impl Fn() -> S + Sync,
        body: impl Fn(&mut S, u64) -> Result<()> + Sync,
    ) -> Result<Vec<S>> {
        self.phase(name, |_| {
            let cursor = AtomicU64::new(0);
            let next = |_: &mut S| {
                let task = cursor.fetch_add(1, Relaxed);
                Ok((task < count).then_some(task))
            };
            self.run(make, next, body, || ())
        })
    }

    /// Looks at blobs of a file here and there, on one thread, as a named phase of the account. `work` has a reader
    /// that it turns to one blob after the other.
    pub fn look<T>(
        &self,
        name: &str,
        file: &Arc<ReadFile>,
        work: impl FnOnce(&mut Blob) -> Result<T>,
    ) -> Result<T> {
        self.phase(name, |counters| {
            let mut reader = Blob::new(file.clone());
            let found = work(&mut reader);
            reader.account(counters);
            found
        })
    }

    /// Decodes the blobs of a plan that have no index record, and fills the records in.
    ///
    /// After this every entry of the plan has one.
    pub fn complete(&self, file: &Arc<ReadFile>, plan: &mut Plan) -> Result<()> {
        if plan.is_indexed() {
            return Ok(());
        }
        let missing: Vec<BlobEntry> = plan.blobs.iter().filter(|b| b.index.is_none()).copied().collect();
        let found = self.pass("index", file, &missing).scan(Vec::new, |found, blob| {
            let record = blob.record()?;
            found.push((blob.entry().number, record));
            Ok(())
        })?;
        let mut found: Vec<(u64, IndexRecord)> = found.into_iter().flatten().collect();
        found.sort_unstable_by_key(|(number, _)| *number);
        let mut found = found.into_iter();
        for blob in plan.blobs.iter_mut().filter(|b| b.index.is_none()) {
            blob.index = found.next().map(|(_, record)| record);
        }
        Ok(())
    }
}

enum Source<'a> {
    Planned(Arc<ReadFile>, &'a [BlobEntry]),
    Stream(&'a Mutex<BlockStream>),
}

/// How far the workers of a pass have come.
#[derive(Default)]
struct Cursor {
    /// Blobs of the plan that were begun.
    begun: usize,
    tasks: u64,
}

/// One run over the blobs of an input, in parallel. Each blob is worked on by one thread from reading to
/// writing.
///
/// What is written of a few blobs that follow one another is one task: what one leaves of a block goes on with the
/// next. Which ones that are does not depend on the threads ([`Job::blobs_of_task`]).
pub struct Pass<'a> {
    job: &'a Job,
    name: &'a str,
    source: Source<'a>,
}

impl std::fmt::Debug for Pass<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pass")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Pass<'_> {
    /// Looks at every blob. Gives the workers' states; their order and which blobs each has seen are chance.
    pub fn scan<S: Send>(
        self,
        make: impl Fn() -> S + Sync,
        kernel: impl Fn(&mut S, &mut Blob) -> KernelResult + Sync,
    ) -> Result<Vec<S>> {
        self.go(&[], make, |state, blob, _| kernel(state, blob))
    }

    /// Looks at every blob and writes to an output, in the order of the blobs.
    pub fn write<S: Send>(
        self,
        sink: &Sink,
        make: impl Fn() -> S + Sync,
        kernel: impl Fn(&mut S, &mut Blob, &mut TaskOutput<'_>) -> KernelResult + Sync,
    ) -> Result<Vec<S>> {
        self.go(std::slice::from_ref(sink), make, |state, blob, outs| {
            outs.to(0, |out| kernel(state, blob, out))
        })
    }

    /// Looks at every blob and writes to many outputs, in the order of the blobs. The kernel chooses among the
    /// outputs by their numbers in `sinks`.
    pub fn write_many<S: Send>(
        self,
        sinks: &[Sink],
        make: impl Fn() -> S + Sync,
        kernel: impl Fn(&mut S, &mut Blob, &mut TaskOutputs<'_>) -> KernelResult + Sync,
    ) -> Result<Vec<S>> {
        self.go(sinks, make, kernel)
    }

    fn go<S: Send>(
        self,
        sinks: &[Sink],
        make: impl Fn() -> S + Sync,
        kernel: impl Fn(&mut S, &mut Blob, &mut TaskOutputs<'_>) -> KernelResult + Sync,
    ) -> Result<Vec<S>> {
        let Pass { job, name, source } = self;
        job.phase(name, |counters| {
            sinks.iter().for_each(Sink::next_pass);
            let total = match &source {
                Source::Planned(_, blobs) => blobs.iter().map(|b| u64::from(b.data_size)).sum(),
                Source::Stream(stream) => {
                    let stream = stream.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    stream.size().unwrap_or(0)
                }
            };
            let bar = job.progress.start(name, total);
            // The blobs of a task: those of which the numbers have the same quotient.
            let divisor = match &source {
                Source::Planned(file, _) if !sinks.is_empty() => job.blobs_of_task(file),
                _ => 1,
            };
            let cursor = Mutex::new(Cursor::default());
            let states = job.run(
                || {
                    let blob = match &source {
                        Source::Planned(file, _) => Blob::new(file.clone()),
                        Source::Stream(_) => Blob::of_stream(),
                    };
                    (make(), blob, TaskOutputs::new(sinks, counters), &[][..])
                },
                |(_, blob, _, own)| {
                    let mut cursor = cursor.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    match &source {
                        Source::Planned(_, blobs) => {
                            let rest = &blobs[cursor.begun..];
                            let of_task = |blob: &BlobEntry| blob.number / divisor;
                            let mut tasks = rest.chunk_by(|a, b| of_task(a) == of_task(b));
                            let Some(blobs) = tasks.next() else {
                                return Ok(None);
                            };
                            cursor.begun += blobs.len();
                            *own = blobs;
                        }
                        Source::Stream(stream) => {
                            let mut stream = stream.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                            if !stream.next(blob)? {
                                return Ok(None);
                            }
                        }
                    }
                    let task = cursor.tasks;
                    cursor.tasks += 1;
                    drop(cursor);
                    // Every task is submitted to all sinks, so the first one tells for all.
                    Ok(sinks
                        .first()
                        .is_none_or(|sink| sink.permit(task, counters))
                        .then_some(task))
                },
                |(state, blob, outs, own), task| {
                    let mut work = |blob: &mut Blob| {
                        outs.begin(task, blob.entry.origin);
                        let result = kernel(state, blob, outs);
                        blob.account(counters);
                        bar.advance(u64::from(blob.entry.data_size));
                        result.map_err(|fault| blob.locate(fault))
                    };
                    match source {
                        Source::Planned(..) => own.iter().try_for_each(|entry| {
                            blob.begin(*entry);
                            work(blob)
                        })?,
                        // It came with the task.
                        Source::Stream(_) => work(blob)?,
                    }
                    outs.submit(task).map_err(|fault| blob.locate(fault))
                },
                || sinks.iter().for_each(Sink::fail),
            )?;
            Ok(states.into_iter().map(|(state, ..)| state).collect())
        })
    }
}

/// How far a blob has been brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Planned,
    Read,
    Decoded,
}

/// A blob that a worker is busy with: read, decompressed and indexed as far as it is asked to be.
///
/// The buffers are the worker's and serve one blob after the other.
#[derive(Debug)]
pub struct Blob {
    file: Option<Arc<ReadFile>>,
    path: PathBuf,
    entry: BlobEntry,
    stage: Stage,
    buffer: ReadBuffer,
    message: Vec<u8>,
    decompressor: Decompressor,
    block: Block,
    read_ns: AtomicU64,
    inflate_ns: AtomicU64,
    bytes_read: u64,
    decoded: u64,
    read: u64,
}

impl Blob {
    /// A reader of blobs of this file, for tasks that open blobs on their own.
    pub fn new(file: Arc<ReadFile>) -> Self {
        let path = file.path().to_owned();
        Blob {
            file: Some(file),
            path,
            ..Blob::of_stream()
        }
    }

    fn of_stream() -> Self {
        Blob {
            file: None,
            path: PathBuf::new(),
            entry: BlobEntry::default(),
            stage: Stage::Planned,
            buffer: ReadBuffer::default(),
            message: Vec::new(),
            decompressor: Decompressor::default(),
            block: Block::empty(),
            read_ns: AtomicU64::new(0),
            inflate_ns: AtomicU64::new(0),
            bytes_read: 0,
            decoded: 0,
            read: 0,
        }
    }

    /// Turns to a blob of another file.
    pub fn turn_to(&mut self, file: &Arc<ReadFile>, entry: BlobEntry) {
        if !self.file.as_ref().is_some_and(|open| Arc::ptr_eq(open, file)) {
            self.file = Some(file.clone());
            self.path = file.path().to_owned();
        }
        self.begin(entry);
    }

    /// Turns to another blob of the file.
    pub fn begin(&mut self, entry: BlobEntry) {
        self.entry = entry;
        self.stage = Stage::Planned;
    }

    /// Where a stream puts the stored bytes of the next blob.
    pub(crate) fn stored_mut(&mut self) -> &mut Vec<u8> {
        &mut self.message
    }

    /// Turns to a blob whose stored bytes are there.
    pub(crate) fn begin_read(&mut self, entry: BlobEntry, path: PathBuf) {
        self.entry = entry;
        self.path = path;
        self.stage = Stage::Read;
        self.bytes_read += entry.frame_size();
        self.read += 1;
    }

    /// Turns to a blob that was made from text, `read` bytes of it: its uncompressed bytes are taken out of
    /// `raw`.
    pub(crate) fn begin_made(
        &mut self,
        entry: BlobEntry,
        path: &Path,
        raw: &mut Vec<u8>,
        read: u64,
    ) -> Result<()> {
        self.entry = entry;
        if self.path != path {
            self.path = path.to_owned();
        }
        let parsed = self.block.refill(|bytes| -> KernelResult {
            std::mem::swap(bytes, raw);
            Ok(())
        });
        parsed.map_err(|fault| self.locate(fault))?;
        self.stage = Stage::Decoded;
        self.bytes_read += read;
        Ok(())
    }

    /// Whether the blob has a stored form, [`Blob::message`]. What was made from text has none.
    pub fn is_stored(&self) -> bool {
        self.file.is_some() || self.entry.origin == Origin::Pbf
    }

    /// What the plan knows of the blob.
    pub fn entry(&self) -> &BlobEntry {
        &self.entry
    }

    /// The file, unless the blob came from a stream.
    pub fn file(&self) -> Option<&Arc<ReadFile>> {
        self.file.as_ref()
    }

    fn fetch(&mut self) -> KernelResult {
        if !self.is_stored() {
            let name = self.path.display();
            let message = format!("{name}: a block made from text has no stored form");
            return Err(Error::Failed(message).into());
        }
        if self.stage >= Stage::Read {
            return Ok(());
        }
        let Some(file) = &self.file else {
            unreachable!("blobs of a stream have been read")
        };
        let size = self.entry.data_size as usize;
        timed(&self.read_ns, || {
            file.read_at(self.entry.data_offset(), size, &mut self.buffer)
        })?;
        let found = self.buffer.as_slice().len();
        if found < size {
            let (found, expected) = (found as u64, size as u64);
            return Err(Fault::Here(Malformed::Truncated { found, expected }));
        }
        self.bytes_read += size as u64;
        self.read += 1;
        self.stage = Stage::Read;
        Ok(())
    }

    /// The Blob message: compressed data and its codec, as the file has it.
    pub fn message(&mut self) -> KernelResult<&[u8]> {
        self.fetch()?;
        Ok(self.stored())
    }

    fn stored(&self) -> &[u8] {
        if self.file.is_some() {
            self.buffer.as_slice()
        } else {
            &self.message
        }
    }

    /// Codec and stored bytes.
    pub fn data(&mut self) -> KernelResult<BlobData<'_>> {
        self.fetch()?;
        Ok(parse_blob(self.stored())?)
    }

    /// The decompressed block.
    pub fn block(&mut self) -> KernelResult<&Block> {
        if self.stage < Stage::Decoded {
            self.fetch()?;
            let Blob {
                file,
                buffer,
                message,
                decompressor,
                block,
                inflate_ns,
                ..
            } = self;
            let stored = if file.is_some() {
                buffer.as_slice()
            } else {
                message
            };
            let data = parse_blob(stored)?;
            timed(inflate_ns, || {
                block.refill(|bytes| -> KernelResult { Ok(decompressor.decompress(&data, bytes)?) })
            })?;
            self.decoded += 1;
            self.stage = Stage::Decoded;
        }
        Ok(&self.block)
    }

    /// The block that [`Blob::block`] has decompressed; an empty one before that.
    pub fn decoded(&self) -> &Block {
        &self.block
    }

    /// The first element of the blob, which is its smallest where the blob is sorted: from the index record if
    /// there is one, else by decompressing no more than is needed.
    pub fn first_element(&mut self) -> KernelResult<Option<ElementId>> {
        if let Some(index) = self.entry.index {
            return Ok(index.first());
        }
        if self.stage < Stage::Decoded {
            let data = self.data()?;
            if data.codec == Codec::Zlib
                && let Some(first) = peek_zlib(data.data)
            {
                return Ok(Some(first));
            }
        }
        Ok(self
            .block()?
            .elements()
            .next()
            .transpose()?
            .map(|element| element.element_id()))
    }

    /// The index record: the header's, or from the decoded block where it has none.
    pub fn record(&mut self) -> KernelResult<IndexRecord> {
        match self.entry.index {
            Some(index) => Ok(index),
            None => {
                let index = IndexRecord::of(self.block()?)?;
                self.entry.index = Some(index);
                Ok(index)
            }
        }
    }

    /// Takes over the record of the decoded block from those who have walked it anyway.
    pub fn learn(&mut self, record: IndexRecord) {
        self.entry.index.get_or_insert(record);
    }

    /// Completes an error with file, blob number and byte offset.
    pub fn locate(&self, fault: Fault) -> Error {
        match fault {
            Fault::Here(source) => Error::Malformed {
                path: self.path.clone(),
                blob: self.entry.number,
                offset: self.entry.offset,
                source,
            },
            Fault::Other(error) => *error,
        }
    }

    pub(crate) fn account(&mut self, counters: &Counters) {
        counters
            .read_ns
            .fetch_add(std::mem::take(self.read_ns.get_mut()), Relaxed);
        counters
            .inflate_ns
            .fetch_add(std::mem::take(self.inflate_ns.get_mut()), Relaxed);
        counters
            .bytes_read
            .fetch_add(std::mem::take(&mut self.bytes_read), Relaxed);
        counters
            .blobs_decoded
            .fetch_add(std::mem::take(&mut self.decoded), Relaxed);
        counters
            .blobs_read
            .fetch_add(std::mem::take(&mut self.read), Relaxed);
    }
}

/// The first element of a compressed block, if decompressing its head tells.
fn peek_zlib(data: &[u8]) -> Option<ElementId> {
    const STEP: usize = 8 << 10;
    const MOST: usize = 256 << 10;
    let mut zlib = flate2::Decompress::new(true);
    let mut head = Vec::new();
    while head.len() < MOST {
        let (before, read) = (head.len(), zlib.total_in() as usize);
        head.reserve(STEP);
        let status = zlib
            .decompress_vec(data.get(read..)?, &mut head, flate2::FlushDecompress::None)
            .ok()?;
        if let Some(first) = peek_first_element(&head) {
            return Some(first);
        }
        if status == flate2::Status::StreamEnd || head.len() == before {
            return None;
        }
    }
    None
}

/// The header of an output that holds elements of these inputs, before a command adds what it knows.
///
/// The first header's fields travel on; what cannot hold for all is dropped. Our own name becomes the writing
/// program.
pub fn output_header(headers: Vec<FileHeader>, generator: &str) -> FileHeader {
    let mut header = crate::plan::merge_headers(headers);
    header.writing_program = Some(generator.to_owned());
    header
}

/// Formats a duration as people read it: `950 ms`, `12.3 s`, `4 m 05 s`.
pub fn format_duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    match seconds {
        ..1.0 => format!("{:.0} ms", seconds * 1e3),
        ..60.0 => format!("{seconds:.1} s"),
        _ => format!("{} m {:02} s", seconds as u64 / 60, seconds as u64 % 60),
    }
}
