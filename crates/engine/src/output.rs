//! Ordered outputs.
//!
//! Workers finish blobs in any order; the file holds them in the order of the input. A worker hands what its
//! task produced to the [`Sink`] as a list of pieces. The sink looks at the tasks in order, gives each piece
//! its place in the file as soon as all before it are known, and the worker that is there writes it. So
//! no thread is only a writer, and bytes are not copied into a queue.
//!
//! *Thin* pieces are blocks with few elements, not yet compressed. The sink gathers neighbours until they make
//! a full block; the worker that completes one encodes it. Text that gets compressed is gathered in the same
//! way, until there is enough for a member. What is gathered depends on the order of the pieces only, so the
//! output is the same for every number of threads.
//!
//! Memory is bounded by permits: a task may only begin while fewer than [`Sink::IN_FLIGHT`] tasks lie between
//! it and the last one placed.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use osmill_model::Kind;
use osmill_pbf::{
    BlobType, Codec, Compression, Compressor, ELEMENTS_PER_BLOCK, FileHeader, LOCATIONS_ON_WAYS,
    MetadataFields, write_frame,
};
use osmill_text::format::{FormatError, FormatSpec, Syntax, TextCompression};
use osmill_text::{ActionJoiner, PrintHeader, Printer};

use crate::encode::Tools;
use crate::error::{Error, Fault, Result};
use crate::file::{
    AtomicFile, CopyError, DirectWriter, ReadBuffer, ReadFile, copy_range, is_written_in_place,
};
use crate::pool::{OutputFile, OutputFiles};
use crate::summary::{Counters, Counts, timed};

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
    /// Compress blobs that could be copied as they are, too.
    pub recompress: bool,
    /// Which metadata is kept. What is not is absent from the elements, and written as that; the format's
    /// `add_metadata` leaves out where it would stand, which differs in OPL only.
    pub metadata: MetadataFields,
    /// The format and its options, but for those that stand above. PBF where it leaves the syntax open.
    pub format: FormatSpec,
}

impl OutputOptions {
    /// Defaults for this path: the format that its name tells, zlib, everything kept, nothing replaced.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        OutputOptions {
            format: FormatSpec::of_path(&path).unwrap_or_default(),
            path,
            overwrite: false,
            fsync: false,
            direct: false,
            compression: Compression::default(),
            recompress: false,
            metadata: MetadataFields::ALL,
        }
    }

    /// Sets the format as `-f` gives it in osmium's syntax; what it leaves open, the path tells.
    pub fn set_format(&mut self, given: FormatSpec) -> Result<()> {
        let refused = |error: FormatError| Error::Usage(format!("{}: {error}", self.path.display()));
        let format = given.or_path(&self.path).map_err(refused)?;
        if let Some(syntax) = format.syntax {
            format.writable(syntax.name()).map_err(refused)?;
        }
        if let Some(compression) = format.blob_compression().map_err(refused)? {
            (self.compression, self.recompress) = (compression, true);
        }
        self.format = format;
        Ok(())
    }

    /// Whether the output is text, not PBF.
    pub fn is_text(&self) -> bool {
        self.format.syntax.is_some_and(|syntax| syntax != Syntax::Pbf)
    }

    /// Whether nothing is seen of the output before it is complete. Pipes and devices are written to directly.
    pub fn appears_when_complete(&self) -> bool {
        self.path != Path::new("-") && !is_written_in_place(&self.path)
    }

    /// Whether elements are coded alike, so that the same means serve both.
    pub(crate) fn codes_like(&self, other: &OutputOptions) -> bool {
        self.compression == other.compression
            && self.recompress == other.recompress
            && self.metadata == other.metadata
            && self.format == other.format
    }

    /// What stands before the first element of a file with this header.
    fn head(&self, header: &FileHeader) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if let Some(printer) = self.printer() {
            let generator = header.writing_program.as_deref().unwrap_or_default();
            printer.header(&PrintHeader::from_pbf(header, generator), &mut bytes);
            return Ok(bytes);
        }
        let mut header = header.clone();
        if self.format.pbf_dense_nodes == Some(false) {
            header.required_features.retain(|feature| feature != "DenseNodes");
        }
        if let Some(history) = self.format.history {
            header.set_history(history);
        }
        if self.format.locations_on_ways == Some(false) {
            header.set_optional(LOCATIONS_ON_WAYS, false);
        }
        write_frame(
            &mut bytes,
            BlobType::Header,
            None,
            &header.encode(),
            &mut Compressor::new(self.compression),
        )
        .map_err(|e| Error::Failed(format!("{}: {e}", self.path.display())))?;
        Ok(bytes)
    }

    /// What prints elements, if the output is text.
    pub(crate) fn printer(&self) -> Option<Printer> {
        Printer::of(&self.format)
    }

    /// The metadata that elements have when they are put into blocks.
    pub(crate) fn block_metadata(&self) -> MetadataFields {
        match self.is_text() {
            true => self.metadata,
            false => self.metadata.and(self.format.metadata.unwrap_or_default()),
        }
    }
}

/// A part of the output.
#[derive(Debug)]
pub(crate) enum Piece {
    /// Bytes as they go to the file.
    Bytes(Vec<u8>),
    /// A range of an input.
    Copy(Arc<ReadFile>, u64, u64),
    /// An uncompressed block with few elements of one kind.
    Thin(Vec<u8>, Kind, usize),
    /// Text that is to be compressed.
    Text(Vec<u8>),
}

impl Piece {
    /// Bytes of its own.
    pub fn bytes_in_memory(&self) -> usize {
        match self {
            Piece::Bytes(bytes) | Piece::Thin(bytes, ..) | Piece::Text(bytes) => bytes.len(),
            Piece::Copy(..) => 0,
        }
    }
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
    Direct(Arc<File>, AtomicFile, DirectWriter),
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
    /// For OsmChange, so that its layout does not tell where blocks end.
    joiner: Option<ActionJoiner>,
    /// Where the next piece goes in the file.
    offset: u64,
    /// Thin blocks, or text, that is being gathered.
    thin: Vec<Vec<u8>>,
    thin_kind: Option<Kind>,
    /// Elements in the blocks, or bytes of text.
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
    file: Option<OutputFile>,
    /// Whether the output is text that gets compressed.
    gathers_text: bool,
}

/// Blocks or text that were gathered and have to be encoded for a slot.
struct Merge {
    slot: u64,
    parts: Vec<Vec<u8>>,
}

/// Bytes of text that are compressed as one at least: enough for gzip to lose nothing, and a block of bzip2.
const TEXT_MEMBER: usize = 900_000;

/// Bytes of text that are kept back for the last member, so that it is not small: libosmium up to 2.19 takes a bzip2
/// file for ended when it has read the last bytes of the file ahead, and loses a stream that begins in these.
const LAST_MEMBER: usize = 300_000;

impl Sink {
    /// Tasks that may be between reading and writing at once.
    pub const IN_FLIGHT: u64 = 64;

    /// Opens the output for elements of a file with this header, and writes what stands before them in its
    /// format. Nothing stands under its name before [`Sink::finish`].
    pub fn create(options: OutputOptions, header: &FileHeader) -> Result<Sink> {
        Sink::create_among(&OutputFiles::default(), options, header)
    }

    /// [`Sink::create`] for one of many outputs. If files may have to be closed meanwhile, direct output is not
    /// possible.
    pub fn create_among(files: &OutputFiles, options: OutputOptions, header: &FileHeader) -> Result<Sink> {
        let fail = |e| Error::io("write", &options.path, e);
        let target = if options.path == Path::new("-") {
            Target::Stream(Box::new(std::io::stdout()))
        } else {
            let file = AtomicFile::create_among(files, &options.path, options.overwrite)?;
            let open = file.file.get().map_err(fail)?;
            if !file.is_seekable() {
                Target::Stream(Box::new(open.try_clone().map_err(fail)?))
            } else {
                let direct = options.direct && !files.need_names();
                match direct.then(|| DirectWriter::new(&open)).flatten() {
                    Some(writer) => Target::Direct(open, file, writer),
                    None => Target::File(file),
                }
            }
        };
        Sink::begin(options, target, header)
    }

    /// Opens a PBF output, whatever its name tells, and writes its file header.
    pub fn create_pbf(mut options: OutputOptions, header: &FileHeader) -> Result<Sink> {
        options.format.syntax = Some(Syntax::Pbf);
        Sink::create(options, header)
    }

    /// A PBF output in the folder `scratch` that never gets a name, for what is read several times;
    /// [`Sink::finish_scratch`] ends it.
    pub(crate) fn scratch(scratch: &Path, header: &FileHeader) -> Result<Sink> {
        let file = tempfile::tempfile_in(scratch).map_err(|e| Error::io("create", scratch, e))?;
        let options = OutputOptions {
            compression: Compression::default_of(Codec::Lz4),
            format: FormatSpec::default(),
            ..OutputOptions::new(scratch)
        };
        let file = AtomicFile::unnamed(file, scratch);
        Sink::begin(options, Target::File(file), header)
    }

    fn begin(options: OutputOptions, target: Target, header: &FileHeader) -> Result<Sink> {
        let file = match &target {
            Target::File(file) => Some(file.file.clone()),
            _ => None,
        };
        let head = options.head(header)?;
        let is_change = options.printer().is_some_and(|printer| printer.is_change());
        let sink = Sink {
            gathers_text: options.is_text() && options.format.compression != TextCompression::None,
            options,
            state: Mutex::new(State {
                next: 0,
                early: BTreeMap::new(),
                slots: VecDeque::new(),
                first_slot: 0,
                joiner: is_change.then(ActionJoiner::default),
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
        };
        sink.add(head)?;
        Ok(sink)
    }

    /// Adds bytes that belong to no task: those before the first, or behind the last.
    fn add(&self, bytes: Vec<u8>) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let piece = if self.gathers_text {
            Piece::Text(bytes)
        } else {
            Piece::Bytes(bytes)
        };
        let tools = &mut Tools::new(&self.options);
        self.pass_on(self.lock(), vec![piece], tools, &Counters::default())
    }

    /// Takes a buffer that is not needed any more.
    pub(crate) fn give_back(&self, buffer: Vec<u8>) {
        self.lock().keep_spare(buffer);
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
    pub(crate) fn submit(
        &self,
        task: u64,
        pieces: Vec<Piece>,
        counts: Counts,
        tools: &mut Tools,
        counters: &Counters,
    ) -> Result<()> {
        let mut state = self.lock();
        state.counts += counts;
        if task != state.next {
            state.early.insert(task, pieces);
            return Ok(());
        }
        let mut in_order = pieces;
        state.next += 1;
        let mut next = state.next;
        while let Some(mut more) = state.early.remove(&next) {
            in_order.append(&mut more);
            next += 1;
        }
        state.next = next;
        self.placed.notify_all();
        self.pass_on(state, in_order, tools, counters)
    }

    /// Takes a part of what task `task` produces; more of it follows. Waits until all tasks before it were
    /// submitted.
    pub(crate) fn submit_part(
        &self,
        task: u64,
        pieces: Vec<Piece>,
        counts: Counts,
        tools: &mut Tools,
        counters: &Counters,
    ) -> Result<()> {
        let mut state = self.lock();
        if !state.failed && task != state.next {
            state = timed(&counters.wait_ns, || {
                self.placed
                    .wait_while(state, |state| !state.failed && task != state.next)
                    .unwrap_or_else(std::sync::PoisonError::into_inner)
            });
        }
        if state.failed {
            // The error that ended the job is told by whoever met it.
            return Ok(());
        }
        state.counts += counts;
        self.pass_on(state, pieces, tools, counters)
    }

    /// Takes the pieces that are next in the file, and writes and encodes what can be.
    fn pass_on(
        &self,
        mut state: MutexGuard<'_, State>,
        pieces: Vec<Piece>,
        tools: &mut Tools,
        counters: &Counters,
    ) -> Result<()> {
        let mut merges = Vec::new();
        for piece in pieces {
            state.push(piece, &mut merges);
        }
        let writes = self.place(&mut state)?;
        drop(state);
        self.write(writes, counters)?;
        for merge in merges {
            self.encode(merge, tools, counters)?;
        }
        Ok(())
    }

    fn encode(&self, mut merge: Merge, tools: &mut Tools, counters: &Counters) -> Result<()> {
        let mut bytes = self.spare_buffer();
        tools
            .merge(&mut merge.parts, &mut bytes, counters)
            .map_err(|fault| match fault {
                Fault::Here(what) => {
                    Error::Failed(format!("{}: cannot write: {what}", self.options.path.display()))
                }
                Fault::Other(error) => *error,
            })?;
        let mut state = self.lock();
        merge.parts.into_iter().for_each(|text| state.keep_spare(text));
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
                Piece::Thin(..) | Piece::Text(_) => {
                    unreachable!("thin pieces are gathered before they get a slot")
                }
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
            Target::Direct(open, _, writer) => writer.write(open, bytes),
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
            Piece::Thin(..) | Piece::Text(_) => {
                unreachable!("thin pieces are gathered before they get a slot")
            }
        }
        Ok(())
    }

    fn write(&self, writes: Vec<(u64, Piece)>, counters: &Counters) -> Result<()> {
        use std::sync::atomic::Ordering::Relaxed;
        let (Some(file), Some((first, _))) = (&self.file, writes.first()) else {
            return Ok(());
        };
        let file = file
            .get()
            .map_err(|e| Error::write(&self.options.path, *first, e))?;
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
                        copy_range(&from, at, &file, offset, len, &mut buffer)
                    })
                    .map_err(|e| match e {
                        CopyError::Read(e) => e,
                        CopyError::Write(e) => fail(e),
                    })?;
                    counters.bytes_read.fetch_add(len, Relaxed);
                    counters.bytes_written.fetch_add(len, Relaxed);
                }
                Piece::Thin(..) | Piece::Text(_) => {
                    unreachable!("thin pieces are gathered before they get a slot")
                }
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
        self.end()
    }

    /// Ends an output that was made by [`Sink::scratch`] and gives its file, which messages call `path`.
    pub(crate) fn finish_scratch(self, path: &Path) -> Result<ReadFile> {
        let file = self.file.as_ref().map(|file| file.get()?.try_clone()).transpose();
        let file = file.map_err(|e| Error::io("finish", &self.options.path, e))?;
        self.end()?;
        match file {
            Some(file) => ReadFile::from_file(file, path.to_owned()),
            None => unreachable!("scratch outputs are files"),
        }
    }

    fn end(self) -> Result<u64> {
        if let Some(mut printer) = self.options.printer() {
            let mut bytes = Vec::new();
            printer.end(&mut bytes);
            self.add(bytes)?;
        }
        let mut merges = Vec::new();
        let mut state = self.lock();
        if self.gathers_text && state.offset == 0 && state.thin.is_empty() && state.slots.is_empty() {
            // A compressed file of nothing has one empty member.
            state.thin.push(Vec::new());
        }
        state.flush_thin(&mut merges);
        drop(state);
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
            Target::Direct(open, file, mut writer) => {
                writer.finish(&open).map_err(fail)?;
                file.commit(self.options.fsync)
            }
            Target::File(file) => file.commit(self.options.fsync),
        }?;
        Ok(bytes)
    }
}

impl State {
    fn push(&mut self, mut piece: Piece, merges: &mut Vec<Merge>) {
        if let Some(joiner) = &mut self.joiner {
            match &mut piece {
                Piece::Bytes(text) | Piece::Text(text) => joiner.join(text),
                Piece::Copy(..) => self.slots.push_back(Slot::Ready(Piece::Bytes(joiner.close()))),
                Piece::Thin(..) => {}
            }
        }
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
            Piece::Text(text) => {
                self.thin_count += text.len();
                self.thin.push(text);
                let (mut first_kept, mut kept) = (self.thin.len(), 0);
                while kept < LAST_MEMBER && first_kept > 0 {
                    first_kept -= 1;
                    kept += self.thin[first_kept].len();
                }
                if self.thin_count - kept >= TEXT_MEMBER {
                    let last = self.thin.split_off(first_kept);
                    self.flush_thin(merges);
                    (self.thin, self.thin_count) = (last, kept);
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
            parts: std::mem::take(&mut self.thin),
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
