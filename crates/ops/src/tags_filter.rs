//! `tags-filter`: the elements whose tags match, and what they refer to.
//!
//! # Passes
//!
//! References are followed, in ranges of ids where they have to be, as [`crate::select`] describes; then one pass
//! writes. In an orderly file the ways are held as they are matched, so that their blobs are read once. With
//! [`Options::omit_referenced`] there is one pass only. Kinds of which everything is kept anyway (with
//! [`Options::invert`], those no expression is about) are copied without being read, and references to them
//! are not noted.
//!
//! # What is kept
//!
//! osmium gives the same, but for one case: with inverted expressions about relations or nodes only, it loses
//! ways (and nodes that are in ways) where no relation is left that refers to one. Here they are kept.
//!
//! With [`Options::exclude`] the elements that match are found in a pass before, so that references can leave
//! them out.
//!
//! Files with history: an element is matched version by version, and all versions of what is referred to are
//! kept. Of change files all deletions are kept, whatever the expressions: deleted elements have no tags there, and
//! without them the deletion would be lost.

use std::path::Path;

use osmill_engine::{Blob, Counts, Error, Input, Job, KernelResult, Plan, Result, Sink, TaskOutput};
use osmill_model::{ElementId, Kind, KindSet, Member, Tag};
use osmill_pbf::{Block, BlockBuilder, DenseNodes, DensePicker, Element, IndexRecord, Item};
use serde::Serialize;

use crate::filter::{BlockMatcher, TagFilter};
use crate::select::{self, Fate, HeldBack, Here, Pick, Target, Wanted};

/// What is kept.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// What elements are matched with. A filter without expressions matches nothing.
    pub filter: TagFilter,
    /// Keep the elements that do not match instead.
    pub invert: bool,
    /// Do not keep what kept elements refer to.
    pub omit_referenced: bool,
    /// Drop the tags of elements that are only kept because something refers to them.
    pub remove_tags: bool,
    /// With [`Options::invert`]: elements that match are left out although kept ones refer to them. Relations lose
    /// them as members. Nodes that kept ways need stay, without tags.
    pub exclude: bool,
}

/// What was kept, and why.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// Elements kept for their tags.
    pub matched: Counts,
    /// Elements kept only because something refers to them. With [`Options::invert`] these are elements that
    /// match.
    pub referenced: Counts,
    /// With [`Options::exclude`], members that relations have lost.
    pub members_dropped: u64,
}

impl Report {
    fn add(&mut self, other: &Report) {
        self.matched += other.matched;
        self.referenced += other.referenced;
        self.members_dropped += other.members_dropped;
    }
}

struct Filtering<'a> {
    options: &'a Options,
    wanted: Wanted,
    /// Elements that match, if they are left out of references.
    excluded: Wanted,
    /// Kinds whose ids are noted when something refers to them; all others are kept anyway.
    noted: KindSet,
    /// Whether deleted elements are kept, as in change files.
    keeps_deleted: bool,
}

struct State<'a> {
    matcher: BlockMatcher<'a>,
    fates: Vec<Fate>,
    ids: Vec<i64>,
    report: Report,
    builder: BlockBuilder,
    picker: DensePicker,
}

/// Writes the elements of `input` that match; see the module's documentation.
pub fn tags_filter(job: &Job, input: &Path, options: &Options, target: &Target) -> Result<Report> {
    if options.exclude && !options.invert {
        return Err(Error::Usage(
            "elements can be excluded only where what does not match is kept; add -i".into(),
        ));
    }
    let (input, plan) = select::open_planned(job, input)?;
    let mut filtering = Filtering {
        options,
        wanted: Wanted::by_ranges(job),
        excluded: Wanted::new(job),
        noted: KindSet::ALL,
        keeps_deleted: input.is_change(),
    };
    filtering.noted = Kind::ALL
        .into_iter()
        .filter(|kind| !filtering.keeps_all(*kind))
        .collect();
    let sink = target.open(plan.header.clone())?;
    let report = filtering.run(job, (&input, &plan), &sink)?;
    job.objects_in(select::total(&plan));
    job.objects_out(sink.counts());
    sink.finish()?;
    Ok(report)
}

impl<'a> Filtering<'a> {
    fn run(&mut self, job: &Job, (input, plan): (&Input, &Plan), sink: &Sink) -> Result<Report> {
        let mut report = Report::default();
        if self.options.exclude {
            self.find_excluded(job, (input, plan))?;
        }
        if self.options.omit_referenced || self.noted.is_empty() {
            self.pass(job, (input, plan), KindSet::ALL, sink, None, &mut report)?;
        } else if select::is_orderly(&plan.blobs) && self.noted.contains(Kind::Node) {
            select::close_over_members(job, (input, plan), &self.wanted, self.noted, self)?;
            self.resolve(Kind::Way, job, (input, plan))?;
            let held = HeldBack::new(job);
            self.pass(job, (input, plan), KindSet::WAYS, sink, Some(&held), &mut report)?;
            self.resolve(Kind::Node, job, (input, plan))?;
            self.pass(job, (input, plan), KindSet::ALL, sink, Some(&held), &mut report)?;
        } else {
            select::close_over_members(job, (input, plan), &self.wanted, self.noted, self)?;
            self.resolve(Kind::Way, job, (input, plan))?;
            select::close_ways(job, (input, plan), &self.wanted, self.noted, self)?;
            self.resolve(Kind::Node, job, (input, plan))?;
            self.pass(job, (input, plan), KindSet::ALL, sink, None, &mut report)?;
        }
        Ok(report)
    }

    /// Sees to elements that something refers to and that found no room.
    fn resolve(&mut self, kind: Kind, job: &Job, (input, plan): (&Input, &Plan)) -> Result<()> {
        let wanted = std::mem::replace(&mut self.wanted, Wanted::new(job));
        let find = |part: &Wanted| select::close_kind(job, (input, plan), part, kind, self);
        self.wanted = wanted.resolve(kind, job, (input, plan), find, |_, _| ())?;
        Ok(())
    }

    /// Writes what is kept of all kinds. Of ways alone holds it, and notes their nodes; where this has been done,
    /// ways are not looked at again.
    fn pass(
        &self,
        job: &Job,
        (input, plan): (&Input, &Plan),
        kinds: KindSet,
        sink: &Sink,
        held: Option<&HeldBack>,
        report: &mut Report,
    ) -> Result<()> {
        let holds = kinds == KindSet::WAYS;
        let blobs = match held.filter(|_| !holds) {
            None => select::blobs_of(plan, kinds, |record| self.may_keep(record)),
            Some(held) => {
                let mut blobs = plan.blobs.clone();
                blobs.retain(|blob| match blob.index {
                    Some(record) if record.kinds == KindSet::WAYS => held.has(blob),
                    Some(record) => self.may_keep(&record),
                    None => true,
                });
                blobs
            }
        };
        let name = if holds { "ways" } else { "write" };
        let states = job.pass(name, input.file(), &blobs).write_many(
            std::slice::from_ref(sink),
            || self.state(),
            |state, blob, outs| {
                if !holds
                    && let Some(held) = held
                    && let Some(all) = held.take(blob)
                {
                    return outs.restore(all, held.store());
                }
                outs.to(0, |out| self.blob(state, blob, out, holds))?;
                match held {
                    Some(held) if holds => held.hold(blob, outs),
                    _ => Ok(()),
                }
            },
        )?;
        states.iter().for_each(|state| report.add(&state.report));
        Ok(())
    }

    /// Writes what is kept of a blob.
    fn blob(
        &self,
        state: &mut State<'a>,
        blob: &mut Blob,
        out: &mut TaskOutput<'_>,
        note_nodes: bool,
    ) -> KernelResult {
        self.judge(state, blob, note_nodes)?;
        let record = blob.record()?;
        if state.fates.is_empty() && self.keeps_kinds(&record) {
            return out.copy(blob);
        }
        if self.rewrites(&record) {
            return self.write_without_members(state, blob, out);
        }
        select::write_fates(blob, out, &state.fates, &mut state.picker)
    }

    /// Notes the elements that match.
    fn find_excluded(&self, job: &Job, (input, plan): (&Input, &Plan)) -> Result<()> {
        let asked: KindSet = Kind::ALL
            .into_iter()
            .filter(|kind| self.options.filter.asks(*kind))
            .collect();
        let blobs = select::blobs_of(plan, asked, |record| {
            record.has_tags || self.options.filter.needs_no_tag()
        });
        job.pass("match", input.file(), &blobs).scan(
            || self.state(),
            |state, blob| {
                let block = blob.block()?;
                if !state.matcher.begin(block)? {
                    return Ok(());
                }
                for element in block.elements() {
                    let element = element?;
                    if state.matcher.matches(block, &element)? {
                        self.excluded.insert(element.element_id());
                    }
                }
                Ok(())
            },
        )?;
        self.excluded.complete()
    }

    /// Writes the elements of a blob; relations lose the members that are left out.
    fn write_without_members(
        &self,
        state: &mut State<'a>,
        blob: &mut Blob,
        out: &mut TaskOutput<'_>,
    ) -> KernelResult {
        let State {
            fates,
            report,
            builder,
            ..
        } = state;
        let put = |at: usize, element: Element<'_>, out: &mut TaskOutput<'_>| match fates.get(at) {
            Some(Fate::Bare) => out.keep(&element.without_tags()),
            Some(Fate::Keep) => out.keep(&element),
            _ => Ok(()),
        };
        for (at, element) in blob.block()?.elements().enumerate() {
            let element = element?;
            if fates.get(at) == Some(&Fate::Drop) {
                continue;
            }
            match self.without_members(&element, builder, &mut report.members_dropped)? {
                None => put(at, element, out)?,
                Some(less) => less.elements().try_for_each(|element| put(at, element?, out))?,
            }
        }
        Ok(())
    }

    /// A block with the relation without the members that are left out; `None` if it has none of these, or is no
    /// relation.
    fn without_members(
        &self,
        element: &Element<'_>,
        builder: &mut BlockBuilder,
        dropped: &mut u64,
    ) -> KernelResult<Option<Block>> {
        let Element::Relation(relation) = element else {
            return Ok(None);
        };
        let members: Vec<Member<'_>> = relation.members().collect::<Result<_, _>>()?;
        let left: Vec<Member<'_>> = members
            .iter()
            .filter(|member| !self.ignores(member.element))
            .copied()
            .collect();
        if left.len() == members.len() {
            return Ok(None);
        }
        *dropped += (members.len() - left.len()) as u64;
        let tags: Vec<Tag<'_>> = relation.tags().collect::<Result<_, _>>()?;
        builder.add_relation(relation.id(), &left, tags, &element.metadata()?);
        let mut raw = Vec::new();
        builder.finish(&mut raw);
        Ok(Some(Block::parse(raw)?))
    }

    fn state(&self) -> State<'a> {
        State {
            matcher: BlockMatcher::new(&self.options.filter),
            fates: Vec::new(),
            ids: Vec::new(),
            report: Report::default(),
            builder: BlockBuilder::default(),
            picker: DensePicker::default(),
        }
    }

    /// Whether all elements of a kind are kept, whatever their tags.
    fn keeps_all(&self, kind: Kind) -> bool {
        self.options.invert && !self.options.filter.asks(kind)
    }

    fn keeps_kinds(&self, record: &IndexRecord) -> bool {
        record.kinds.iter().all(|kind| self.keeps_all(kind))
    }

    /// Whether relations of a blob may lose members.
    fn rewrites(&self, record: &IndexRecord) -> bool {
        self.options.exclude && record.kinds.contains(Kind::Relation)
    }

    fn may_keep(&self, record: &IndexRecord) -> bool {
        let by_tags = record.kinds.iter().any(|kind| self.asks(kind));
        (by_tags && (self.options.invert || record.has_tags || self.options.filter.needs_no_tag()))
            || (self.keeps_deleted && record.has_visibility)
            || self.wanted.may_touch(record)
    }

    /// Decides about each element of a blob. Leaves no fates where the blob need not be looked at. With
    /// `note_nodes`, notes the nodes of the ways that are kept.
    fn judge(&self, state: &mut State<'a>, blob: &mut Blob, note_nodes: bool) -> KernelResult {
        let record = blob.record()?;
        state.fates.clear();
        let here = self.wanted.here(blob)?;
        let whole = !note_nodes && !self.rewrites(&record);
        if self.keeps_kinds(&record) && whole {
            state.report.matched += record.counts.into();
            return Ok(());
        }
        let block = blob.block()?;
        let may_match =
            record.kinds.iter().any(|kind| self.options.filter.asks(kind)) && state.matcher.begin(block)?;
        if !may_match && self.options.invert && whole {
            state.fates.resize(record.count() as usize, Fate::Keep);
            state.report.matched += record.counts.into();
            return Ok(());
        }
        let keeps_deleted = self.keeps_deleted && record.has_visibility;
        if !may_match && here.is_none() && !keeps_deleted && !self.options.invert {
            return Ok(());
        }
        let State {
            matcher,
            fates,
            ids,
            report,
            ..
        } = state;
        let mut put = Judgement {
            options: self.options,
            wanted: here.as_ref(),
            fates,
            report,
        };
        let asks_nodes = may_match && self.options.filter.asks(Kind::Node);
        for group in block.groups() {
            let mut items = group.items();
            while let Some((item, message)) = items.try_next_raw()? {
                let mut may_match = may_match;
                let kind = select::kind_of(item);
                if kind != Kind::Node && !keeps_deleted {
                    // Most elements are told by their keys.
                    if let Some((id, keys)) = items.parse_keys(message) {
                        may_match = may_match && matcher.may_match_keys(keys);
                        if !may_match && (!note_nodes || put.is_dropped(kind, id)) {
                            put.decide(false, false, kind, id);
                            continue;
                        }
                    }
                }
                let element = match items.parse(item, message)? {
                    Item::Dense(dense) => {
                        self.judge_dense(
                            (block, &dense),
                            asks_nodes,
                            keeps_deleted,
                            (matcher, ids),
                            &mut put,
                        )?;
                        continue;
                    }
                    Item::Node(node) => Element::Node(node),
                    Item::Way(way) => Element::Way(way),
                    Item::Relation(relation) => Element::Relation(relation),
                };
                let matched = may_match && matcher.matches(block, &element)?;
                let deleted = keeps_deleted && element.metadata()?.visible == Some(false);
                let fate = put.decide(matched, deleted, kind, element.id());
                if let (true, Element::Way(way)) = (note_nodes && fate != Fate::Drop, &element) {
                    ids.clear();
                    way.refs().column().decode_deltas_into(ids)?;
                    self.wanted.insert_all(Kind::Node, ids);
                }
            }
        }
        Ok(())
    }

    fn judge_dense(
        &self,
        (block, dense): (&Block, &DenseNodes<'_>),
        asks: bool,
        keeps_deleted: bool,
        (matcher, ids): (&mut BlockMatcher<'a>, &mut Vec<i64>),
        put: &mut Judgement<'_>,
    ) -> KernelResult {
        ids.clear();
        dense.ids().column().decode_deltas_into(ids)?;
        let mut tags = dense.tag_column();
        let mut visibles = dense
            .info()
            .filter(|_| keeps_deleted)
            .map(|info| info.visibles)
            .unwrap_or_default();
        for id in ids.iter() {
            let matched = asks
                && matcher.matches_ids(
                    block,
                    Kind::Node,
                    || {
                        Ok(match tags.try_next()? {
                            None | Some(0) => None,
                            Some(key) => tags.try_next()?.map(|value| (key, value)),
                        })
                    },
                    || Ok(false),
                )?;
            let deleted = visibles.try_next()? == Some(0);
            put.decide(matched, deleted, Kind::Node, *id);
        }
        Ok(())
    }
}

/// Decides about the elements of a blob one by one.
struct Judgement<'s> {
    options: &'s Options,
    /// What is referred to, if that can be in the blob.
    wanted: Option<&'s Here<'s>>,
    fates: &'s mut Vec<Fate>,
    report: &'s mut Report,
}

impl Judgement<'_> {
    /// Whether an element that does not match is left out.
    #[inline]
    fn is_dropped(&self, kind: Kind, id: i64) -> bool {
        !self.options.invert && !self.is_wanted(kind, id)
    }

    /// Whether something refers to the next element, which is this one.
    #[inline]
    fn is_wanted(&self, kind: Kind, id: i64) -> bool {
        self.wanted
            .is_some_and(|wanted| wanted.has(kind, id, self.fates.len()))
    }

    #[inline]
    fn decide(&mut self, matched: bool, deleted: bool, kind: Kind, id: i64) -> Fate {
        let fate = if matched != self.options.invert || deleted {
            self.report.matched.add(kind, 1);
            Fate::Keep
        } else if self.is_wanted(kind, id) {
            self.report.referenced.add(kind, 1);
            match self.options.remove_tags || self.options.exclude {
                true => Fate::Bare,
                false => Fate::Keep,
            }
        } else {
            Fate::Drop
        };
        self.fates.push(fate);
        fate
    }
}

impl<'a> Pick for Filtering<'a> {
    type State = (BlockMatcher<'a>, bool);

    fn make(&self) -> Self::State {
        (BlockMatcher::new(&self.options.filter), false)
    }

    fn asks(&self, kind: Kind) -> bool {
        self.options.invert || self.options.filter.asks(kind)
    }

    fn begin(&self, (matcher, may_match): &mut Self::State, block: &Block) -> KernelResult<bool> {
        *may_match = matcher.begin(block)?;
        Ok(*may_match || self.options.invert)
    }

    fn picks(&self, (matcher, may_match): &mut Self::State, element: &Element<'_>) -> KernelResult<bool> {
        Ok((*may_match && matcher.matches(element.block(), element)?) != self.options.invert)
    }

    fn ignores(&self, member: ElementId) -> bool {
        self.options.exclude && self.excluded.contains(member)
    }
}
