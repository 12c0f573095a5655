//! What a worker puts out while it does a task.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use osmill_model::Kind;
use osmill_pbf::{
    BlobType, Block, BlockBuilder, DenseNodes, DensePicker, ELEMENTS_PER_BLOCK, Element, IndexRecord,
    NodeArrays, write_blob_header,
};

use crate::encode::Tools;
use crate::error::KernelResult;
use crate::job::Blob;
use crate::output::{Piece, Sink};
use crate::plan::Origin;
use crate::summary::{Counters, Counts};

/// What one worker writes to an output, task by task, whatever the format of the output.
#[derive(Debug)]
pub struct TaskOutput<'s> {
    sink: &'s Sink,
    counters: &'s Counters,
    tools: Tools,
    /// The task at hand, where its output may be handed over in parts.
    task: Option<u64>,
    pieces: Vec<Piece>,
    bytes: Vec<u8>,
    counts: Counts,
}

/// Bytes of text that a task may have in memory: a blob of hundreds of thousands of elements would make many
/// times that.
const MOST_TEXT: usize = 8 << 20;

impl<'s> TaskOutput<'s> {
    pub(crate) fn new(sink: &'s Sink, counters: &'s Counters) -> Self {
        TaskOutput {
            sink,
            counters,
            tools: Tools::new(sink.options()),
            task: None,
            pieces: Vec::new(),
            bytes: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Tells where the elements that follow come from. A pass over blobs does it itself.
    pub fn begin(&mut self, origin: Origin) {
        self.tools.begin(origin);
    }

    /// Bytes that are appended to the output as they are: frames that a caller has made itself.
    pub fn bytes(&mut self) -> &mut Vec<u8> {
        if self.bytes.capacity() == 0 {
            self.bytes = self.sink.spare_buffer();
        }
        &mut self.bytes
    }

    /// Adds an element to the block that is being gathered.
    ///
    /// A block ends when it is full or the kind changes. What is left at the end of the task, if it is less than half a
    /// block, goes into the full one before, or is put together with what the next tasks leave.
    pub fn keep(&mut self, element: &Element<'_>) -> KernelResult {
        if self.tools.is_text() {
            self.flush_partial()?;
            self.bytes();
            self.tools.print(&mut self.bytes, element)?;
            self.counts.add(element.kind(), 1);
            return self.relieve();
        }
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

    /// Adds the nodes of a message that a picker wants ([`DensePicker::want`]), as [`TaskOutput::keep`] does one by one.
    pub fn keep_wanted(&mut self, dense: &DenseNodes<'_>, picker: &mut DensePicker) -> KernelResult {
        if !self.tools.is_text()
            && let Some(nodes) = picker.arrays(dense)?
        {
            return self.keep_nodes(dense.block(), nodes, 0..nodes.ids.len());
        }
        picker.visit(dense, |_, node| self.keep(&Element::Node(node)))
    }

    /// The builder of the block that is being gathered, with room for an element of this kind; for elements
    /// that are made anew.
    pub fn builder(&mut self, kind: Kind) -> KernelResult<&mut BlockBuilder> {
        self.make_room(kind)?;
        Ok(&mut self.tools.builder)
    }

    fn make_room(&mut self, kind: Kind) -> KernelResult {
        if self.tools.builder.is_full() {
            self.flush_aside()?;
            self.swap_aside();
        } else if self.tools.builder.kind().is_some_and(|open| open != kind) {
            self.flush_partial()?;
        }
        Ok(())
    }

    fn swap_aside(&mut self) {
        std::mem::swap(&mut self.tools.builder, &mut self.tools.aside);
    }

    fn flush_aside(&mut self) -> KernelResult {
        if self.tools.aside.is_empty() {
            return Ok(());
        }
        self.swap_aside();
        let result = self.flush_full();
        self.swap_aside();
        result
    }

    fn flush_full(&mut self) -> KernelResult {
        self.bytes();
        let index = self.tools.flush_builder(&mut self.bytes, self.counters)?;
        self.counts += index.counts.into();
        Ok(())
    }

    /// Ends the gathered block: as it is if it is at least half full or is printed, together with the one before if
    /// there is one, as a thin piece otherwise.
    fn flush_partial(&mut self) -> KernelResult {
        let len = self.tools.builder.len();
        let Some(kind) = self.tools.builder.kind().filter(|_| len > 0) else {
            return self.flush_aside();
        };
        let is_thin = len * 2 < ELEMENTS_PER_BLOCK && !self.tools.is_text();
        if is_thin && self.tools.join_aside()? {
            return self.flush_full();
        }
        self.flush_aside()?;
        if !is_thin {
            return self.flush_full();
        }
        let mut raw = Vec::new();
        let index = self.tools.builder.finish(&mut raw);
        self.counts += index.counts.into();
        self.end_bytes();
        self.pieces.push(Piece::Thin(raw, kind, len));
        Ok(())
    }

    /// Tells which task's output follows, of which parts may be handed over early.
    pub(crate) fn begin_task(&mut self, task: Option<u64>) {
        self.task = task;
    }

    /// Hands over what there is, if it is text of some size.
    fn relieve(&mut self) -> KernelResult {
        let Some(task) = self.task.filter(|_| self.bytes.len() >= MOST_TEXT) else {
            return Ok(());
        };
        let (pieces, counts) = self.take()?;
        self.sink
            .submit_part(task, pieces, counts, &mut self.tools, self.counters)?;
        self.bytes();
        Ok(())
    }

    /// Adds a block whose elements have been counted.
    fn code(&mut self, block: &Block, index: &IndexRecord) -> KernelResult {
        self.bytes();
        if !self.tools.is_text() {
            return self.tools.block(&mut self.bytes, block, index, self.counters);
        }
        for element in block.elements() {
            self.tools.print(&mut self.bytes, &element?)?;
            self.relieve()?;
        }
        Ok(())
    }

    fn end_bytes(&mut self) {
        self.tools.end_text(&mut self.bytes);
        if !self.bytes.is_empty() {
            let bytes = std::mem::take(&mut self.bytes);
            self.pieces.push(match self.tools.gathers_text() {
                true => Piece::Text(bytes),
                false => Piece::Bytes(bytes),
            });
        }
    }

    /// Adds a whole block from its uncompressed bytes, with its index record.
    pub fn block(&mut self, raw: &[u8], index: &IndexRecord) -> KernelResult {
        self.flush_partial()?;
        self.bytes();
        self.tools.raw_block(&mut self.bytes, raw, index, self.counters)?;
        self.counts += index.counts.into();
        Ok(())
    }

    /// Adds all elements of a blob, in the cheapest way that the output allows: by copying the frame inside the
    /// kernel if the file has it as we would write it, by copying the compressed bytes if the options of the
    /// output leave the elements as they are, and by coding them anew otherwise.
    pub fn copy(&mut self, blob: &mut Blob) -> KernelResult {
        let index = blob.record()?;
        if index.kinds.is_empty() {
            return Ok(());
        }
        self.flush_partial()?;
        self.counts += index.counts.into();
        if !self.tools.copies(&index) || !blob.is_stored() {
            return self.code(blob.block()?, &index);
        }
        self.counters.blobs_copied.fetch_add(1, Relaxed);
        let entry = *blob.entry();
        if let Some(file) = blob.file().filter(|_| entry.is_ours()) {
            let file = file.clone();
            self.end_bytes();
            self.pieces
                .push(Piece::Copy(file, entry.offset, entry.frame_size()));
            return Ok(());
        }
        self.bytes();
        let message = blob.message()?;
        let record = index.encode(message.len());
        write_blob_header(&mut self.bytes, BlobType::Data, Some(&record), message.len());
        self.bytes.extend_from_slice(message);
        Ok(())
    }

    /// Whether [`TaskOutput::copy`] takes the compressed bytes of a blob with this record.
    pub fn copies(&self, record: &IndexRecord) -> bool {
        self.tools.copies(record)
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

/// Means of encoding for sinks that may differ in format and options.
#[derive(Debug)]
struct Codings {
    /// For each sink the first that codes elements in the same way.
    of_sink: Vec<usize>,
    /// The coding that is in use.
    current: usize,
    /// The means of the others, by coding.
    others: Vec<(usize, Tools)>,
}

impl Codings {
    /// The means of the first sink are in use elsewhere.
    fn new(sinks: &[Sink]) -> Self {
        let mut others: Vec<(usize, Tools)> = Vec::new();
        let mut of_sink = Vec::with_capacity(sinks.len());
        for (i, sink) in sinks.iter().enumerate() {
            let mut known = std::iter::once(0).chain(others.iter().map(|(coding, _)| *coding));
            let alike = known.find(|known| sinks[*known].options().codes_like(sink.options()));
            if alike.is_none() {
                others.push((i, Tools::new(sink.options())));
            }
            of_sink.push(alike.unwrap_or(i));
        }
        Codings {
            of_sink,
            current: 0,
            others,
        }
    }

    /// Exchanges the means in use for those of this sink.
    fn turn_to(&mut self, sink: usize, tools: &mut Tools) {
        let coding = self.of_sink[sink];
        if coding == self.current {
            return;
        }
        if let Some((slot, others)) = self.others.iter_mut().find(|(slot, _)| *slot == coding) {
            std::mem::swap(tools, others);
            *slot = std::mem::replace(&mut self.current, coding);
        }
    }
}

/// What one worker writes to several outputs, task by task. There are as many means of encoding as there are
/// ways of coding among the outputs, whatever their number.
#[derive(Debug)]
pub struct TaskOutputs<'s> {
    sinks: &'s [Sink],
    /// Where the worker writes to, for the moment one of the sinks; there is none if there are no sinks.
    out: Option<TaskOutput<'s>>,
    codings: Codings,
    task: Option<u64>,
    origin: Origin,
    /// The output that was written to last, if that can go on.
    open: Option<usize>,
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
            codings: Codings::new(sinks),
            task: None,
            origin: Origin::default(),
            open: None,
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

    /// Tells which task begins, and where its elements come from.
    pub(crate) fn begin(&mut self, task: u64, origin: Origin) {
        (self.task, self.origin) = (Some(task), origin);
    }

    /// Writes to output number `number` what `work` puts out.
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
        if self.open != Some(number) {
            self.close()?;
        }
        let Some(out) = &mut self.out else { return Ok(()) };
        self.open = Some(number);
        self.codings.turn_to(number, &mut out.tools);
        out.sink = sink;
        out.begin(self.origin);
        // With several outputs, or more than one turn, what comes first is not known before the end.
        let task = self
            .task
            .filter(|_| self.sinks.len() == 1 && self.done.is_empty());
        out.begin_task(task);
        work(out)
    }

    /// Ends what the task has put out so far.
    fn close(&mut self) -> KernelResult {
        let (Some(number), Some(out)) = (self.open.take(), &mut self.out) else {
            return Ok(());
        };
        let (pieces, counts) = out.take()?;
        self.add(number, pieces, counts);
        Ok(())
    }

    /// Puts out pieces that were made before.
    pub(crate) fn put(&mut self, number: usize, pieces: Vec<Piece>, counts: Counts) -> KernelResult {
        self.close()?;
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

    /// Takes back what the task has put out so far, by output.
    pub(crate) fn take(&mut self) -> KernelResult<Vec<(usize, Vec<Piece>, Counts)>> {
        self.close()?;
        self.places.clear();
        Ok(std::mem::take(&mut self.done))
    }

    /// The outputs.
    pub(crate) fn sinks(&self) -> &'s [Sink] {
        self.sinks
    }

    /// Hands the task's output over: to every sink something, be it nothing.
    pub(crate) fn submit(&mut self, task: u64) -> KernelResult {
        self.close()?;
        let Some(out) = &mut self.out else { return Ok(()) };
        self.places.clear();
        self.done.sort_unstable_by_key(|(number, ..)| *number);
        let mut done = self.done.drain(..).peekable();
        for (i, sink) in self.sinks.iter().enumerate() {
            let (pieces, counts) = match done.next_if(|(number, ..)| *number == i) {
                Some((_, pieces, counts)) => (pieces, counts),
                None => Default::default(),
            };
            // What the sink gathers is encoded in its own way.
            self.codings.turn_to(i, &mut out.tools);
            sink.submit(task, pieces, counts, &mut out.tools, out.counters)?;
        }
        Ok(())
    }
}
