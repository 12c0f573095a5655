//! What the commands that select elements share.
//!
//! Such a command finds out, in passes over parts of the input, which ids it wants ([`Wanted`]), and then
//! writes those elements in one last pass. There a blob gets a [`Fate`] for each of its elements, from ids and
//! tags only. Blobs of which nothing is kept are passed over, blobs of which everything is kept are copied with
//! their compressed bytes, and only the others are put together anew.
//!
//! References are followed by [`close`]: relations to their members and these to theirs, ways to their nodes.
//! Relations are read once for the edges between relations, which are then followed in memory, so that the
//! depth of nesting costs nothing and cycles end.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use osmill_engine::{
    Blob, BlobEntry, Counts, Error, Held, HoldStore, IdSets, Input, Job, KernelResult, OutputFiles,
    OutputOptions, Plan, Result, Sink, TaskOutput, TaskOutputs, output_header,
};
use osmill_model::{ElementId, Kind, KindSet, Location};
use osmill_pbf::wire::Deltas;
use osmill_pbf::{
    Block, DensePicker, Element, FileHeader, IndexRecord, Item, Items, RawItem, Relation, SORTED,
};

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
///
/// Where the records show that a file is not sorted although its header says so, the claim is dropped with a
/// warning.
pub(crate) fn open_planned(job: &Job, path: &Path) -> Result<(Input, Plan)> {
    let input = job.open(path)?;
    let mut plan = input.plan(job.options().threads)?;
    job.complete(input.file(), &mut plan)?;
    if plan.header.claims_sorted() && plan.is_sorted() == Some(false) {
        job.warn(format!(
            "{}: the header says that the file is sorted, but it is not; the output does not claim it",
            input.path().display()
        ));
        plan.header.set_optional(SORTED, false);
    }
    Ok((input, plan))
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

/// Whether a completed plan shows a file that is sorted, has every element once, and one kind in each blob. There
/// what is found out about an element where it stands is true of all the file.
pub(crate) fn is_orderly(plan: &Plan) -> bool {
    let mut last: Option<ElementId> = None;
    plan.blobs.iter().all(|blob| {
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

/// Part of the memory of a job that output which is held back may take, as a divisor.
const HELD_SHARE: u64 = 8;

/// What tasks have put out and hold back, by the numbers of their blobs.
#[derive(Debug)]
pub(crate) struct HeldBack {
    store: HoldStore,
    blobs: Mutex<HashMap<u64, Held>>,
}

impl HeldBack {
    /// Nothing so far.
    pub fn new(job: &Job) -> Self {
        HeldBack {
            store: HoldStore::new(job.options().memory / HELD_SHARE, &job.options().scratch),
            blobs: Mutex::default(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Held>> {
        self.blobs
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Where it is kept.
    pub fn store(&self) -> &HoldStore {
        &self.store
    }

    /// Holds what a blob's task has put out so far. Takes the place of what was held of the blob before.
    pub fn hold(&self, blob: &Blob, outs: &mut TaskOutputs<'_>) -> KernelResult {
        let held = outs.hold(&self.store)?;
        if !held.is_empty() {
            self.lock().insert(blob.entry().number, held);
        }
        Ok(())
    }

    /// Takes what is held of a blob.
    pub fn take(&self, blob: &Blob) -> Option<Held> {
        self.lock().remove(&blob.entry().number)
    }

    /// Whether something is held of a blob.
    pub fn has(&self, blob: &BlobEntry) -> bool {
        self.lock().contains_key(&blob.number)
    }
}

/// Bytes that ids may take whatever the memory of a job.
const IDS_LEAST: u64 = 64 << 20;

/// How much memory the ids of one kind that a pass finds may take. They are needed all at once, so it is an error if
/// they do not fit.
#[derive(Debug)]
pub(crate) struct IdBudget {
    what: &'static str,
    memory: u64,
    used: AtomicU64,
}

impl IdBudget {
    /// That of a job. `what` names the ids for messages.
    pub fn of(job: &Job, what: &'static str) -> Self {
        IdBudget {
            what,
            memory: job.options().memory,
            used: AtomicU64::new(0),
        }
    }

    /// Notes that so many bytes more are in use.
    pub fn charge(&self, bytes: u64) -> Result<()> {
        self.check(self.used.fetch_add(bytes, Relaxed) + bytes)
    }

    /// Whether so many bytes are too many.
    fn is_exceeded_by(&self, bytes: u64) -> bool {
        bytes > self.memory.max(IDS_LEAST)
    }

    /// Refuses more bytes than there may be.
    pub fn check(&self, bytes: u64) -> Result<()> {
        match self.is_exceeded_by(bytes) {
            false => Ok(()),
            true => Err(Error::Memory {
                what: self.what,
                needed: bytes,
                allowed: self.memory,
            }),
        }
    }
}

/// Elements of all blobs, by their records.
pub(crate) fn total(plan: &Plan) -> Counts {
    let mut counts = Counts::default();
    for record in plan.blobs.iter().filter_map(|blob| blob.index) {
        counts += record.counts.into();
    }
    counts
}

/// Ids that are wanted, with a coarse copy that tells of a range of ids whether any is.
///
/// What would take more memory than the job has is not added; [`Wanted::complete`] tells.
#[derive(Debug)]
pub(crate) struct Wanted {
    ids: IdSets,
    coarse: IdSets,
    budget: IdBudget,
    full: AtomicBool,
}

/// Ids that share a bit of the coarse copy: a power of two, as a shift.
const COARSE: u32 = 12;
/// Ids that are added before there is another look whether there is room.
const LOOK: usize = 1024;
/// Bits of the coarse copy that are looked at for one range at most.
const COARSE_LOOKS: i64 = 4096;

impl Wanted {
    /// Nothing so far.
    pub fn new(job: &Job) -> Self {
        Wanted {
            ids: IdSets::new(),
            coarse: IdSets::new(),
            budget: IdBudget::of(job, "the ids of the elements that are kept"),
            full: AtomicBool::new(false),
        }
    }

    /// Whether there is room for ids near this one.
    fn has_room(&self, kind: Kind, id: i64) -> bool {
        if self.coarse.of(kind).insert(id >> COARSE) && self.budget.is_exceeded_by(self.ids.of(kind).bytes())
        {
            self.full.store(true, Relaxed);
        }
        !self.full.load(Relaxed)
    }

    /// Adds an element; whether it is new.
    pub fn insert(&self, element: ElementId) -> bool {
        self.has_room(element.kind, element.id) && self.ids.insert(element)
    }

    /// Adds elements of one kind.
    pub fn insert_all(&self, kind: Kind, ids: &[i64]) {
        for some in ids.chunks(LOOK) {
            for near in some.chunk_by(|a, b| a >> COARSE == b >> COARSE) {
                if !self.has_room(kind, near[0]) {
                    return;
                }
            }
            self.ids.of(kind).insert_all(some);
        }
    }

    /// Refuses to go on if not all elements found room.
    pub fn complete(&self) -> Result<()> {
        match self.full.load(Relaxed) {
            false => Ok(()),
            true => {
                let bytes = Kind::ALL.map(|kind| self.ids.of(kind).bytes());
                self.budget.check(bytes.into_iter().max().unwrap_or(0))
            }
        }
    }

    /// Whether the element was added.
    #[inline]
    pub fn contains(&self, element: ElementId) -> bool {
        self.ids.contains(element)
    }

    /// Whether the element was added.
    #[inline]
    pub fn has(&self, kind: Kind, id: i64) -> bool {
        self.ids.of(kind).contains(id)
    }

    /// How many elements of a kind were added. O(memory).
    pub fn count(&self, kind: Kind) -> u64 {
        self.ids.of(kind).count()
    }

    /// Whether no element of a kind was added.
    pub fn is_empty(&self, kind: Kind) -> bool {
        self.coarse.of(kind).bytes() == 0
    }

    /// Whether a blob may have any of the elements.
    pub fn may_touch(&self, record: &IndexRecord) -> bool {
        let (Some(first), Some(last)) = (record.first(), record.last()) else {
            return false;
        };
        if first.kind != last.kind || (first.id > 0) != (last.id > 0) {
            return true;
        }
        let (low, high) = (first.id.min(last.id) >> COARSE, first.id.max(last.id) >> COARSE);
        if high - low >= COARSE_LOOKS {
            return true;
        }
        let coarse = self.coarse.of(first.kind);
        (low..=high).any(|bit| coarse.contains(bit))
    }
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

/// Writes the elements of a decoded blob that `fates`, which has one entry for each, does not drop.
pub(crate) fn write_fates(
    blob: &mut Blob,
    out: &mut TaskOutput<'_>,
    fates: &[Fate],
    picker: &mut DensePicker,
) -> KernelResult {
    let Some(last) = fates.iter().rposition(|fate| *fate != Fate::Drop) else {
        return Ok(());
    };
    if fates.iter().all(|fate| *fate == Fate::Keep) {
        return out.copy(blob);
    }
    for_each_picked(
        blob.decoded(),
        picker,
        last + 1,
        |at| fates[at] != Fate::Drop,
        |at, element| match fates[at] {
            Fate::Keep => out.keep(&element),
            Fate::Bare => out.keep(&element.without_tags()),
            Fate::Drop => Ok(()),
        },
    )
}

/// Calls `visit` with the number and the view of each of the first `end` elements of a block that `wants` picks
/// by its number. The others cost little.
pub(crate) fn for_each_picked<'b>(
    block: &'b Block,
    picker: &mut DensePicker,
    end: usize,
    wants: impl Fn(usize) -> bool,
    mut visit: impl FnMut(usize, Element<'b>) -> KernelResult,
) -> KernelResult {
    let mut at = 0;
    for group in block.groups() {
        let mut items = group.items();
        while at < end {
            let Some((item, message)) = items.try_next_raw()? else {
                break;
            };
            if item != RawItem::Dense && !wants(at) {
                at += 1;
                continue;
            }
            match items.parse(item, message)? {
                Item::Dense(dense) => {
                    let (first, count) = (at, dense.len());
                    at += count;
                    if !(first..at.min(end)).any(&wants) {
                        continue;
                    }
                    let mut wanted = (first..at).filter(|at| wants(*at));
                    picker.pick(
                        &dense,
                        |place| first + place < end && wants(first + place),
                        |node| match wanted.next() {
                            Some(at) => visit(at, Element::Node(node)),
                            None => Ok(()),
                        },
                    )?;
                }
                Item::Node(node) => {
                    visit(at, Element::Node(node))?;
                    at += 1;
                }
                Item::Way(way) => {
                    visit(at, Element::Way(way))?;
                    at += 1;
                }
                Item::Relation(relation) => {
                    visit(at, Element::Relation(relation))?;
                    at += 1;
                }
            }
        }
    }
    Ok(())
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
    mut visit: impl FnMut(i64, Deltas<'_>) -> KernelResult,
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

/// Whether any of a way's references is one that `is` tells; those behind the first one are not read.
#[inline]
pub(crate) fn any_ref(mut refs: Deltas<'_>, mut is: impl FnMut(i64) -> bool) -> KernelResult<bool> {
    while let Some(id) = refs.try_next()? {
        if is(id) {
            return Ok(true);
        }
    }
    Ok(false)
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

/// Pushes the fate of each element of a block. `fate` has the items, the item, its message, and the id of the
/// element, of which there are many in a message of dense nodes.
pub(crate) fn fates_by<'b>(
    blob: &'b mut Blob,
    fates: &mut Vec<Fate>,
    ids: &mut Vec<i64>,
    fate: impl Fn(&Items<'b>, RawItem, &'b [u8], i64) -> KernelResult<Fate>,
) -> KernelResult {
    for group in blob.block()?.groups() {
        let mut items = group.items();
        while let Some((item, message)) = items.try_next_raw()? {
            ids.clear();
            items.parse_ids(item, message, ids)?;
            for id in ids.iter() {
                fates.push(fate(&items, item, message, *id)?);
            }
        }
    }
    Ok(())
}

/// Edges from relations to relations that are their members.
type Edges = Vec<(i64, i64)>;

/// Follows wanted relations to the relations among their members, and these to theirs. Those that were not
/// wanted before are added to `new`, too. O(edges), whatever the depth; cycles end.
fn close_relations(wanted: &Wanted, edges: impl IntoIterator<Item = (i64, i64)>, new: &Wanted) {
    let mut children: HashMap<i64, Vec<i64>> = HashMap::new();
    for (parent, child) in edges {
        children.entry(parent).or_default().push(child);
    }
    let mut open: Vec<i64> = children
        .keys()
        .copied()
        .filter(|id| wanted.has(Kind::Relation, *id))
        .collect();
    while let Some(parent) = open.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            let id = ElementId::new(Kind::Relation, child);
            if wanted.insert(id) {
                new.insert(id);
                open.push(child);
            }
        }
    }
}

/// Notes what an element refers to directly: nodes and ways of a relation, nodes of a way.
fn note_references<P: Pick>(
    element: &Element<'_>,
    wanted: &Wanted,
    noted: KindSet,
    pick: &P,
    refs: &mut Vec<i64>,
) -> KernelResult {
    match element {
        Element::Node(_) => {}
        Element::Way(way) => {
            if noted.contains(Kind::Node) {
                refs.clear();
                way.refs().column().decode_deltas_into(refs)?;
                wanted.insert_all(Kind::Node, refs);
            }
        }
        Element::Relation(relation) => {
            for member in relation.members() {
                let member = member?.element;
                if member.kind != Kind::Relation && noted.contains(member.kind) && !pick.ignores(member) {
                    wanted.insert(member);
                }
            }
        }
    }
    Ok(())
}

/// Finds relations and ways by more than their ids while references are followed.
pub(crate) trait Pick: Sync {
    /// A worker's state.
    type State: Send;
    /// Makes it.
    fn make(&self) -> Self::State;
    /// Whether elements of this kind have to be asked about.
    fn asks(&self, kind: Kind) -> bool;
    /// Begins a block; whether any of its elements can be picked.
    fn begin(&self, state: &mut Self::State, block: &Block) -> KernelResult<bool>;
    /// Whether an element is picked.
    fn picks(&self, state: &mut Self::State, element: &Element<'_>) -> KernelResult<bool>;
    /// Whether a member of a relation is passed over.
    fn ignores(&self, _: ElementId) -> bool {
        false
    }
}

/// Picks nothing.
pub(crate) struct ByIdOnly;

impl Pick for ByIdOnly {
    type State = ();
    fn make(&self) {}
    fn asks(&self, _: Kind) -> bool {
        false
    }
    fn begin(&self, (): &mut (), _: &Block) -> KernelResult<bool> {
        Ok(false)
    }
    fn picks(&self, (): &mut (), _: &Element<'_>) -> KernelResult<bool> {
        Ok(false)
    }
}

/// Adds to `wanted` the relations and ways that `pick` picks, and what all wanted ones refer to, directly or
/// not. `noted` are the kinds whose ids are of use; those of other kinds are all written anyway.
///
/// At most three passes: all relations for their edges and members, nested relations for their members, ways
/// for their nodes.
pub(crate) fn close<P: Pick>(
    job: &Job,
    (input, plan): (&Input, &Plan),
    wanted: &Wanted,
    noted: KindSet,
    pick: &P,
) -> Result<()> {
    close_over_members(job, (input, plan), wanted, noted, pick)?;
    close_ways(job, (input, plan), wanted, noted, pick)?;
    wanted.complete()
}

/// The first half of [`close`]: adds the relations that are picked, and the members of all wanted ones.
pub(crate) fn close_over_members<P: Pick>(
    job: &Job,
    (input, plan): (&Input, &Plan),
    wanted: &Wanted,
    noted: KindSet,
    pick: &P,
) -> Result<()> {
    let make = || (pick.make(), Vec::new(), Edges::new());
    if pick.asks(Kind::Relation) || !wanted.is_empty(Kind::Relation) {
        let blobs = blobs_of(plan, KindSet::RELATIONS, |_| true);
        let states =
            job.pass("relations", input.file(), &blobs)
                .scan(make, |(state, refs, edges), blob| {
                    let may_pick = pick.begin(state, blob.block()?)?;
                    for_each_relation(blob, |relation| {
                        for member in relation.members() {
                            let member = member?.element;
                            if member.kind == Kind::Relation && !pick.ignores(member) {
                                edges.push((relation.id(), member.id));
                            }
                        }
                        let element = Element::Relation(relation.clone());
                        let id = element.element_id();
                        if wanted.contains(id) || may_pick && pick.picks(state, &element)? {
                            wanted.insert(id);
                            note_references(&element, wanted, noted, pick, refs)?;
                        }
                        Ok(())
                    })
                })?;
        let edges = states.into_iter().flat_map(|(_, _, edges)| edges);
        let new = Wanted::new(job);
        close_relations(wanted, edges, &new);
        if !new.is_empty(Kind::Relation) {
            let blobs = blobs_of(plan, KindSet::RELATIONS, |record| new.may_touch(record));
            job.pass("nested relations", input.file(), &blobs)
                .scan(Vec::new, |refs, blob| {
                    for element in blob.block()?.elements() {
                        let element = element?;
                        if new.contains(element.element_id()) {
                            note_references(&element, wanted, noted, pick, refs)?;
                        }
                    }
                    Ok(())
                })?;
        }
    }
    Ok(())
}

/// The second half of [`close`]: adds the nodes of the ways that are wanted or picked.
fn close_ways<P: Pick>(
    job: &Job,
    (input, plan): (&Input, &Plan),
    wanted: &Wanted,
    noted: KindSet,
    pick: &P,
) -> Result<()> {
    let make = || (pick.make(), Vec::new());
    let asks = pick.asks(Kind::Way);
    if noted.contains(Kind::Node) && (asks || !wanted.is_empty(Kind::Way)) {
        let blobs = blobs_of(plan, KindSet::WAYS, |record| asks || wanted.may_touch(record));
        job.pass("ways", input.file(), &blobs)
            .scan(make, |(state, refs), blob| {
                let record = blob.record()?;
                let block = blob.block()?;
                let may_pick = asks && pick.begin(state, block)?;
                if !may_pick && !wanted.may_touch(&record) {
                    return Ok(());
                }
                for element in block.elements() {
                    let element = element?;
                    if element.kind() == Kind::Way
                        && (wanted.contains(element.element_id())
                            || may_pick && pick.picks(state, &element)?)
                    {
                        note_references(&element, wanted, noted, pick, refs)?;
                    }
                }
                Ok(())
            })?;
    }
    Ok(())
}
