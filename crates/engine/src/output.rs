//! Ordered outputs.
//!
//! Workers finish blobs in any order; the file holds them in the order of the input. A worker hands what its
//! task produced to the [`Sink`] as a list of pieces. The sink looks at the tasks in order, gives each piece
//! its place in the file as soon as all before it are known, and the worker that is there writes it. So
//! no thread is only a writer, and bytes are not copied into a queue.
//!
//! *Thin* pieces are blocks with few elements, not yet compressed. The sink gathers neighbours until they make
//! a full block; the worker that completes one encodes it. What is gathered depends on the order of the pieces
//! only, so the output is the same for every number of threads.
//!
//! Memory is bounded by permits: a task may only begin while fewer than [`Sink::IN_FLIGHT`] tasks lie between
//! it and the last one placed.

mod held;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use osmill_model::Kind;
use osmill_pbf::{
    BlobType, Block, BlockBuilder, Compression, Compressor, ELEMENTS_PER_BLOCK, Element, FileHeader,
    IndexRecord, MetadataFields, NodeArrays, write_blob_header, write_frame,
};

use crate::error::{Error, KernelResult, Result};
use crate::file::{AtomicFile, CopyError, DirectWriter, ReadBuffer, ReadFile, copy_range};
use crate::job::Blob;
use crate::plan::BlobEntry;
use crate::summary::{Counters, Counts, timed};
pub use held::{Held, HoldStore};

/// Where a command's result goes.
#[derive(Debug, Clone)]
pub struct OutputOptions {
    /// The path; `-` is standard output.
    pub path: PathBuf,
    /// Replace an existing file.
    pub overwrite: bool,
    /// Flush the file to disk before it gets its name.
    pub fsync: bool,
    /// Write past the page cache.
    pub direct: bool,
    /// How PBF blobs are compressed.
    pub compression: Compression,
    /// Which metadata is written.
    pub metadata: MetadataFields,
}

impl OutputOptions {
    /// Defaults for this path: zlib, everything kept, nothing replaced.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        OutputOptions {
            path: path.into(),
            overwrite: false,
            fsync: false,
            direct: false,
            compression: Compression::default(),
            metadata: MetadataFields::ALL,
        }
    }
}

/// A part of the output.
#[derive(Debug)]
enum Piece {
    /// Bytes as they go to the file.
    Bytes(Vec<u8>),
    /// A range of an input.
    Copy(Arc<ReadFile>, u64, u64),
    /// An uncompressed block with few elements of one kind.
    Thin(Vec<u8>, Kind, usize),
}

/// A place in the output whose bytes are known, or are being made.
#[derive(Debug)]
enum Slot {
    Ready(Piece),
    Pending,
}

#[derive(Debug)]
enum Target {
    File(AtomicFile),
    Direct(AtomicFile, DirectWriter),
    Stream(Box<dyn StreamWrite>),
}

trait StreamWrite: Write + Send + std::fmt::Debug {}
impl<T: Write + Send + std::fmt::Debug> StreamWrite for T {}

#[derive(Debug)]
struct State {
    /// The next task to be placed.
    next: u64,
    /// Tasks that are ahead of it.
    early: BTreeMap<u64, Vec<Piece>>,
    /// Placed pieces that are not written, because one before them is being made.
    slots: VecDeque<Slot>,
    /// Number of the first slot.
    first_slot: u64,
    /// Where the next piece goes in the file.
    offset: u64,
    thin: Vec<Vec<u8>>,
    thin_kind: Option<Kind>,
    thin_count: usize,
    /// For direct outputs and streams, which are written in order under the lock.
    target: Target,
    buffer: ReadBuffer,
    spare: Vec<Vec<u8>>,
    /// How many buffers are kept for later.
    most_spare: usize,
    counts: Counts,
    failed: bool,
}

/// An ordered output; see the module's documentation.
#[derive(Debug)]
pub struct Sink {
    options: OutputOptions,
    state: Mutex<State>,
    placed: Condvar,
    /// The output for writes without the lock.
    file: Option<Arc<File>>,
}

/// Blocks that were gathered and have to be encoded for a slot.
struct Merge {
    slot: u64,
    blocks: Vec<Vec<u8>>,
}

impl Sink {
    /// Tasks that may be between reading and writing at once.
    pub const IN_FLIGHT: u64 = 64;

    /// Opens the output. Nothing stands under its name before [`Sink::finish`].
    pub fn create(options: OutputOptions) -> Result<Sink> {
        let target = if options.path == Path::new("-") {
            Target::Stream(Box::new(std::io::stdout()))
        } else {
            let file = AtomicFile::create(&options.path, options.overwrite)?;
            if !file.is_seekable() {
                let fail = |e| Error::io("write", &options.path, e);
                Target::Stream(Box::new(file.file.try_clone().map_err(fail)?))
            } else {
                match options.direct.then(|| DirectWriter::new(&file.file)).flatten() {
                    Some(writer) => Target::Direct(file, writer),
                    None => Target::File(file),
                }
            }
        };
        let file = match &target {
            Target::File(file) => Some(file.file.clone()),
            _ => None,
        };
        Ok(Sink {
            options,
            state: Mutex::new(State {
                next: 0,
                early: BTreeMap::new(),
                slots: VecDeque::new(),
                first_slot: 0,
                offset: 0,
                thin: Vec::new(),
                thin_kind: None,
                thin_count: 0,
                target,
                buffer: ReadBuffer::default(),
                spare: Vec::new(),
                most_spare: 16,
                counts: Counts::default(),
                failed: false,
            }),
            placed: Condvar::new(),
            file,
        })
    }

    /// Opens a PBF output and writes its file header.
    pub fn create_pbf(options: OutputOptions, header: &FileHeader) -> Result<Sink> {
        let sink = Sink::create(options)?;
        let mut bytes = Vec::new();
        let mut compressor = Compressor::new(sink.options.compression);
        write_frame(
            &mut bytes,
            BlobType::Header,
            None,
            &header.encode(),
            &mut compressor,
            &mut Vec::new(),
        )
        .map_err(|e| Error::Failed(format!("{}: {e}", sink.options.path.display())))?;
        sink.prelude(bytes)?;
        Ok(sink)
    }

    /// Writes bytes before those of any task.
    pub fn prelude(&self, bytes: Vec<u8>) -> Result<()> {
        let mut state = self.lock();
        state.slots.push_back(Slot::Ready(Piece::Bytes(bytes)));
        let writes = self.place(&mut state)?;
        drop(state);
        self.write(writes, &Counters::default())
    }

    /// Keeps at most this many buffers for later pieces, instead of 16: for outputs that are one of many.
    pub fn limit_spare_buffers(&self, most: usize) {
        self.lock().most_spare = most;
    }

    /// The output's options.
    pub fn options(&self) -> &OutputOptions {
        &self.options
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panicking worker ends the whole job, so a poisoned state is never built upon.
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Waits until task `task` may begin. `false` if the job has failed meanwhile.
    pub(crate) fn permit(&self, task: u64, counters: &Counters) -> bool {
        let mut state = self.lock();
        if !state.failed && task >= state.next + Self::IN_FLIGHT {
            state = timed(&counters.wait_ns, || {
                self.placed
                    .wait_while(state, |state| {
                        !state.failed && task >= state.next + Self::IN_FLIGHT
                    })
                    .unwrap_or_else(std::sync::PoisonError::into_inner)
            });
        }
        !state.failed
    }

    /// Lets all waiting workers go.
    pub(crate) fn fail(&self) {
        self.lock().failed = true;
        self.placed.notify_all();
    }

    pub(crate) fn spare_buffer(&self) -> Vec<u8> {
        self.lock().spare.pop().unwrap_or_default()
    }

    /// Takes what task `task` produced. Each task from 0 on has to be submitted once.
    fn submit(
        &self,
        task: u64,
        pieces: Vec<Piece>,
        counts: Counts,
        tools: &mut Tools,
        counters: &Counters,
    ) -> Result<()> {
        let mut merges = Vec::new();
        let mut state = self.lock();
        state.counts += counts;
        if task != state.next {
            state.early.insert(task, pieces);
            return Ok(());
        }
        let mut next = Some(pieces);
        while let Some(pieces) = next {
            state.next += 1;
            for piece in pieces {
                state.push(piece, &mut merges);
            }
            let number = state.next;
            next = state.early.remove(&number);
        }
        self.placed.notify_all();
        let writes = self.place(&mut state)?;
        drop(state);
        self.write(writes, counters)?;
        for merge in merges {
            self.encode(merge, tools, counters)?;
        }
        Ok(())
    }

    fn encode(&self, merge: Merge, tools: &mut Tools, counters: &Counters) -> Result<()> {
        let bytes = tools.merge(merge.blocks, self, counters)?;
        let mut state = self.lock();
        let at = (merge.slot - state.first_slot) as usize;
        state.slots[at] = Slot::Ready(Piece::Bytes(bytes));
        let writes = self.place(&mut state)?;
        drop(state);
        self.write(writes, counters)
    }

    /// Gives the pieces at the front their offsets.
    fn place(&self, state: &mut State) -> Result<Vec<(u64, Piece)>> {
        let mut writes = Vec::new();
        while let Some(Slot::Ready(_)) = state.slots.front() {
            let Some(Slot::Ready(piece)) = state.slots.pop_front() else {
                break;
            };
            state.first_slot += 1;
            let len = match &piece {
                Piece::Bytes(bytes) => bytes.len() as u64,
                Piece::Copy(_, _, len) => *len,
                Piece::Thin(..) => unreachable!("thin pieces are gathered before they get a slot"),
            };
            let offset = state.offset;
            state.offset += len;
            match &mut state.target {
                // Neighbouring ranges become one copy.
                Target::File(_) => match (writes.last_mut(), piece) {
                    (Some((_, Piece::Copy(from, at, size))), Piece::Copy(next, next_at, next_size))
                        if Arc::ptr_eq(from, &next) && *at + *size == next_at =>
                    {
                        *size += next_size;
                    }
                    (_, piece) => writes.push((offset, piece)),
                },
                Target::Direct(..) | Target::Stream(_) => {
                    if let Err(error) = self.write_in_order(state, piece, offset) {
                        state.failed = true;
                        self.placed.notify_all();
                        return Err(error);
                    }
                }
            }
        }
        Ok(writes)
    }

    fn write_in_order(&self, state: &mut State, piece: Piece, offset: u64) -> Result<()> {
        let State { target, buffer, .. } = state;
        let mut put = |bytes: &[u8]| match target {
            Target::Direct(file, writer) => writer.write(&file.file, bytes),
            Target::Stream(stream) => stream.write_all(bytes),
            Target::File(_) => unreachable!("files are written without the lock"),
        };
        let fail = |e| Error::write(&self.options.path, offset, e);
        match piece {
            Piece::Bytes(bytes) => {
                put(&bytes).map_err(fail)?;
                state.keep_spare(bytes);
            }
            Piece::Copy(from, mut at, mut len) => {
                while len > 0 {
                    let step = len.min(1 << 20);
                    from.read_at(at, step as usize, buffer)?;
                    let bytes = buffer.as_slice();
                    if bytes.is_empty() {
                        let gone = std::io::Error::other("it became shorter while it was read");
                        return Err(Error::io("read", from.path(), gone));
                    }
                    put(bytes).map_err(fail)?;
                    at += bytes.len() as u64;
                    len -= bytes.len() as u64;
                }
            }
            Piece::Thin(..) => unreachable!("thin pieces are gathered before they get a slot"),
        }
        Ok(())
    }

    fn write(&self, writes: Vec<(u64, Piece)>, counters: &Counters) -> Result<()> {
        use std::sync::atomic::Ordering::Relaxed;
        let Some(file) = &self.file else { return Ok(()) };
        for (offset, piece) in writes {
            let fail = |e| Error::write(&self.options.path, offset, e);
            match piece {
                Piece::Bytes(bytes) => {
                    timed(&counters.write_ns, || file.write_all_at(&bytes, offset)).map_err(fail)?;
                    counters.bytes_written.fetch_add(bytes.len() as u64, Relaxed);
                    self.lock().keep_spare(bytes);
                }
                Piece::Copy(from, at, len) => {
                    let mut buffer = ReadBuffer::default();
                    timed(&counters.write_ns, || {
                        copy_range(&from, at, file, offset, len, &mut buffer)
                    })
                    .map_err(|e| match e {
                        CopyError::Read(e) => e,
                        CopyError::Write(e) => fail(e),
                    })?;
                    counters.bytes_read.fetch_add(len, Relaxed);
                    counters.bytes_written.fetch_add(len, Relaxed);
                }
                Piece::Thin(..) => unreachable!("thin pieces are gathered before they get a slot"),
            }
        }
        Ok(())
    }

    /// Begins another pass whose tasks are counted from 0 and whose pieces come after all so far.
    pub(crate) fn next_pass(&self) {
        self.lock().next = 0;
    }

    /// Elements that are in the output.
    pub fn counts(&self) -> Counts {
        self.lock().counts
    }

    /// Bytes that have their place in the output so far; what is being gathered comes on top.
    pub fn bytes(&self) -> u64 {
        self.lock().offset
    }

    /// Writes what is left and gives the file its name. Gives the size of the output in bytes.
    pub fn finish(self) -> Result<u64> {
        let mut merges = Vec::new();
        self.lock().flush_thin(&mut merges);
        let mut tools = Tools::new(&self.options);
        for merge in merges {
            self.encode(merge, &mut tools, &Counters::default())?;
        }
        let state = self
            .state
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        debug_assert!(
            state.slots.is_empty() && state.early.is_empty(),
            "every piece has been written"
        );
        let bytes = state.offset;
        let fail = |e| Error::write(&self.options.path, bytes, e);
        match state.target {
            Target::Stream(mut stream) => match stream.flush() {
                Err(e) if e.kind() == std::io::ErrorKind::InvalidInput => Ok(()),
                other => other.map_err(fail),
            },
            Target::Direct(file, mut writer) => {
                writer.finish(&file.file).map_err(fail)?;
                file.commit(self.options.fsync)
            }
            Target::File(file) => file.commit(self.options.fsync),
        }?;
        Ok(bytes)
    }
}

impl State {
    fn push(&mut self, piece: Piece, merges: &mut Vec<Merge>) {
        match piece {
            Piece::Thin(block, kind, count) => {
                if self.thin_kind.is_some_and(|k| k != kind) {
                    self.flush_thin(merges);
                }
                self.thin_kind = Some(kind);
                self.thin_count += count;
                self.thin.push(block);
                if self.thin_count >= ELEMENTS_PER_BLOCK {
                    self.flush_thin(merges);
                }
            }
            piece => {
                self.flush_thin(merges);
                self.slots.push_back(Slot::Ready(piece));
            }
        }
    }

    fn flush_thin(&mut self, merges: &mut Vec<Merge>) {
        if self.thin.is_empty() {
            return;
        }
        let slot = self.first_slot + self.slots.len() as u64;
        self.slots.push_back(Slot::Pending);
        merges.push(Merge {
            slot,
            blocks: std::mem::take(&mut self.thin),
        });
        (self.thin_kind, self.thin_count) = (None, 0);
    }

    fn keep_spare(&mut self, mut buffer: Vec<u8>) {
        if self.spare.len() < self.most_spare && buffer.capacity() <= 4 << 20 {
            buffer.clear();
            self.spare.push(buffer);
        }
    }
}

/// A worker's own means of encoding.
#[derive(Debug)]
struct Tools {
    compressor: Compressor,
    builder: BlockBuilder,
    raw: Vec<u8>,
    message: Vec<u8>,
}

impl Tools {
    fn new(options: &OutputOptions) -> Self {
        Tools {
            compressor: Compressor::new(options.compression),
            builder: BlockBuilder::new(options.metadata),
            raw: Vec::new(),
            message: Vec::new(),
        }
    }

    /// Appends the frame of an uncompressed block.
    fn frame(
        &mut self,
        out: &mut Vec<u8>,
        raw: &[u8],
        index: &IndexRecord,
        counters: &Counters,
    ) -> KernelResult {
        timed(&counters.deflate_ns, || {
            write_frame(
                out,
                BlobType::Data,
                Some(index),
                raw,
                &mut self.compressor,
                &mut self.message,
            )
        })?;
        counters
            .blobs_written
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    }

    /// Appends the frame of the builder's block.
    fn flush_builder(&mut self, out: &mut Vec<u8>, counters: &Counters) -> KernelResult<IndexRecord> {
        let mut raw = std::mem::take(&mut self.raw);
        raw.clear();
        let index = self.builder.finish(&mut raw);
        let framed = self.frame(out, &raw, &index, counters);
        self.raw = raw;
        framed.map(|()| index)
    }

    /// One block of many.
    fn merge(&mut self, blocks: Vec<Vec<u8>>, sink: &Sink, counters: &Counters) -> Result<Vec<u8>> {
        let mut out = sink.spare_buffer();
        let located = |fault| match fault {
            crate::error::Fault::Here(what) => {
                Error::Failed(format!("{}: cannot write: {what}", sink.options.path.display()))
            }
            crate::error::Fault::Other(error) => *error,
        };
        let merge = || -> KernelResult {
            for bytes in blocks {
                let block = Block::parse(bytes)?;
                for element in block.elements() {
                    self.builder.copy(&element?)?;
                    if self.builder.is_full() && self.builder.len() >= 2 * ELEMENTS_PER_BLOCK {
                        self.flush_builder(&mut out, counters)?;
                    }
                }
            }
            if !self.builder.is_empty() {
                self.flush_builder(&mut out, counters)?;
            }
            Ok(())
        };
        merge().map_err(located)?;
        Ok(out)
    }
}

/// What one worker writes to an output, task by task.
#[derive(Debug)]
pub struct TaskOutput<'s> {
    sink: &'s Sink,
    counters: &'s Counters,
    tools: Tools,
    pieces: Vec<Piece>,
    bytes: Vec<u8>,
    counts: Counts,
}

impl<'s> TaskOutput<'s> {
    pub(crate) fn new(sink: &'s Sink, counters: &'s Counters) -> Self {
        TaskOutput {
            sink,
            counters,
            tools: Tools::new(&sink.options),
            pieces: Vec::new(),
            bytes: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Bytes that are appended to the output as they are: text, or whole frames.
    pub fn bytes(&mut self) -> &mut Vec<u8> {
        if self.bytes.capacity() == 0 {
            self.bytes = self.sink.spare_buffer();
        }
        &mut self.bytes
    }

    /// Counts elements that were written by way of [`TaskOutput::bytes`].
    pub fn count(&mut self, counts: Counts) {
        self.counts += counts;
    }

    /// Adds an element to the block that is being gathered.
    ///
    /// A block ends when it is full or the kind changes. What is left at the end of the task is put together
    /// with what the next tasks leave.
    pub fn keep(&mut self, element: &Element<'_>) -> KernelResult {
        self.make_room(element.kind())?;
        self.tools.builder.copy(element)?;
        Ok(())
    }

    /// Adds a range of nodes that were read into arrays, as [`TaskOutput::keep`] does one by one.
    pub fn keep_nodes(&mut self, block: &Block, columns: &NodeArrays, range: Range<usize>) -> KernelResult {
        let mut start = range.start;
        while start < range.end {
            self.make_room(Kind::Node)?;
            let room = ELEMENTS_PER_BLOCK.saturating_sub(self.tools.builder.len()).max(1);
            let end = range.end.min(start + room);
            self.tools.builder.copy_nodes(block, columns, start..end)?;
            start = end;
        }
        Ok(())
    }

    /// The builder of the block that is being gathered, with room for an element of this kind; for elements
    /// that are made anew.
    pub fn builder(&mut self, kind: Kind) -> KernelResult<&mut BlockBuilder> {
        self.make_room(kind)?;
        Ok(&mut self.tools.builder)
    }

    fn make_room(&mut self, kind: Kind) -> KernelResult {
        if self.tools.builder.is_full() {
            self.flush_full()?;
        } else if self.tools.builder.kind().is_some_and(|open| open != kind) {
            self.flush_partial()?;
        }
        Ok(())
    }

    fn flush_full(&mut self) -> KernelResult {
        self.bytes();
        let index = self.tools.flush_builder(&mut self.bytes, self.counters)?;
        self.counts += index.counts.into();
        Ok(())
    }

    /// Ends the gathered block: as it is if it is at least half full, as a thin piece otherwise.
    fn flush_partial(&mut self) -> KernelResult {
        let len = self.tools.builder.len();
        let Some(kind) = self.tools.builder.kind().filter(|_| len > 0) else {
            return Ok(());
        };
        if len * 2 >= ELEMENTS_PER_BLOCK {
            return self.flush_full();
        }
        let mut raw = Vec::new();
        let index = self.tools.builder.finish(&mut raw);
        self.counts += index.counts.into();
        self.end_bytes();
        self.pieces.push(Piece::Thin(raw, kind, len));
        Ok(())
    }

    fn end_bytes(&mut self) {
        if !self.bytes.is_empty() {
            self.pieces.push(Piece::Bytes(std::mem::take(&mut self.bytes)));
        }
    }

    /// Adds a whole block from its uncompressed bytes.
    pub fn block(&mut self, raw: &[u8], index: &IndexRecord) -> KernelResult {
        self.flush_partial()?;
        self.bytes();
        self.tools.frame(&mut self.bytes, raw, index, self.counters)?;
        self.counts += index.counts.into();
        Ok(())
    }

    /// Adds a blob with its compressed bytes as they are and a header of our own with this index record.
    pub fn copy_message(&mut self, message: &[u8], index: &IndexRecord) -> KernelResult {
        self.flush_partial()?;
        self.bytes();
        let record = index.encode(message.len());
        write_blob_header(&mut self.bytes, BlobType::Data, Some(&record), message.len());
        self.bytes.extend_from_slice(message);
        self.counts += index.counts.into();
        self.counters
            .blobs_copied
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    }

    /// Adds a frame of an input as it is, without reading it here.
    pub fn copy_frame(&mut self, file: &Arc<ReadFile>, entry: &BlobEntry) -> KernelResult {
        self.flush_partial()?;
        self.end_bytes();
        self.pieces
            .push(Piece::Copy(file.clone(), entry.offset, entry.frame_size()));
        if let Some(index) = &entry.index {
            self.counts += index.counts.into();
        }
        self.counters
            .blobs_copied
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    }

    /// Adds to the account of the phase what a blob reader of this task did.
    pub fn account(&self, blob: &mut Blob) {
        blob.account(self.counters);
    }

    /// What was put out since the last call.
    fn take(&mut self) -> KernelResult<(Vec<Piece>, Counts)> {
        self.flush_partial()?;
        self.end_bytes();
        Ok((std::mem::take(&mut self.pieces), std::mem::take(&mut self.counts)))
    }

    /// Hands the task's output over.
    pub(crate) fn submit(&mut self, task: u64) -> KernelResult {
        let (pieces, counts) = self.take()?;
        self.sink
            .submit(task, pieces, counts, &mut self.tools, self.counters)?;
        Ok(())
    }
}

/// What one worker writes to several outputs, task by task. The means of encoding are there once, whatever the
/// number of outputs.
#[derive(Debug)]
pub struct TaskOutputs<'s> {
    sinks: &'s [Sink],
    /// Where the worker writes to, for the moment one of the sinks; there is none if there are no sinks.
    out: Option<TaskOutput<'s>>,
    /// Outputs that the task has written to, and what.
    done: Vec<(usize, Vec<Piece>, Counts)>,
    /// Where in `done` each of these outputs is.
    places: HashMap<usize, usize>,
}

impl<'s> TaskOutputs<'s> {
    pub(crate) fn new(sinks: &'s [Sink], counters: &'s Counters) -> Self {
        TaskOutputs {
            sinks,
            out: sinks.first().map(|sink| TaskOutput::new(sink, counters)),
            done: Vec::new(),
            places: HashMap::new(),
        }
    }

    /// How many outputs there are.
    pub fn len(&self) -> usize {
        self.sinks.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.sinks.is_empty()
    }

    /// Writes to output number `number` what `work` puts out. All outputs share the metadata fields and the
    /// compression of the first.
    ///
    /// # Panics
    ///
    /// If there is no output of that number.
    pub fn to(
        &mut self,
        number: usize,
        work: impl FnOnce(&mut TaskOutput<'s>) -> KernelResult,
    ) -> KernelResult {
        let sink = &self.sinks[number];
        let Some(out) = &mut self.out else { return Ok(()) };
        out.sink = sink;
        work(out)?;
        let (pieces, counts) = out.take()?;
        self.add(number, pieces, counts);
        Ok(())
    }

    /// Adds to what the task has put out for an output.
    fn add(&mut self, number: usize, pieces: Vec<Piece>, counts: Counts) {
        match self.places.entry(number) {
            Entry::Occupied(place) => {
                let (_, before, sum) = &mut self.done[*place.get()];
                before.extend(pieces);
                *sum += counts;
            }
            Entry::Vacant(place) => {
                place.insert(self.done.len());
                self.done.push((number, pieces, counts));
            }
        }
    }

    /// Hands the task's output over: to every sink something, be it nothing.
    pub(crate) fn submit(&mut self, task: u64) -> KernelResult {
        let Some(out) = &mut self.out else { return Ok(()) };
        self.places.clear();
        self.done.sort_unstable_by_key(|(number, ..)| *number);
        let mut done = self.done.drain(..).peekable();
        for (i, sink) in self.sinks.iter().enumerate() {
            let (pieces, counts) = match done.next_if(|(number, ..)| *number == i) {
                Some((_, pieces, counts)) => (pieces, counts),
                None => Default::default(),
            };
            sink.submit(task, pieces, counts, &mut out.tools, out.counters)?;
        }
        Ok(())
    }
}
