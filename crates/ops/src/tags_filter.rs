//! `tags-filter`: the elements whose tags match, and what they refer to.
//!
//! References are followed as [`crate::select`] describes; then one pass writes. With
//! [`Options::omit_referenced`] that pass is the only one. Kinds of which everything is kept anyway (with
//! [`Options::invert`], those no expression is about) are copied without being read, and references to them
//! are not noted.
//!
//! osmium gives the same, but for one case: with inverted expressions about relations or nodes only, it loses
//! ways (and nodes that are in ways) where no relation is left that refers to one. Here they are kept.
//!
//! Files with history: an element is matched version by version, and all versions of what is referred to are
//! kept.

use std::path::Path;

use osmill_engine::{Blob, Counts, Job, KernelResult, Result};
use osmill_model::{Kind, KindSet};
use osmill_pbf::{Block, Element, IndexRecord, Item};
use serde::Serialize;

use crate::filter::{BlockMatcher, TagFilter};
use crate::select::{self, Fate, Pick, Target, Wanted};

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
}

/// What was kept, and why.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// Elements kept for their tags.
    pub matched: Counts,
    /// Elements kept only because something refers to them.
    pub referenced: Counts,
}

struct Filtering<'a> {
    options: &'a Options,
    wanted: Wanted,
}

struct State<'a> {
    matcher: BlockMatcher<'a>,
    fates: Vec<Fate>,
    ids: Vec<i64>,
    report: Report,
}

/// Writes the elements of `input` that match; see the module's documentation.
pub fn tags_filter(job: &Job, input: &Path, options: &Options, target: &Target) -> Result<Report> {
    let (input, plan) = select::open_planned(job, input)?;
    let filtering = Filtering {
        options,
        wanted: Wanted::default(),
    };
    let noted: KindSet = Kind::ALL
        .into_iter()
        .filter(|kind| !filtering.keeps_all(*kind))
        .collect();
    if !options.omit_referenced && !noted.is_empty() {
        select::close(job, (&input, &plan), &filtering.wanted, noted, &filtering)?;
    }
    let sink = target.open(plan.header.clone())?;
    let blobs = select::blobs_of(&plan, KindSet::ALL, |record| filtering.may_keep(record));
    let states = job.pass("write", input.file(), &blobs).write(
        &sink,
        || filtering.state(),
        |state, blob, out| {
            filtering.judge(state, blob)?;
            if state.fates.is_empty() && filtering.keeps_kinds(&blob.record()?) {
                return out.copy(blob);
            }
            select::write_fates(blob, out, &state.fates)
        },
    )?;
    let mut report = Report::default();
    for state in states {
        report.matched += state.report.matched;
        report.referenced += state.report.referenced;
    }
    job.objects_in(select::total(&plan));
    job.objects_out(sink.counts());
    sink.finish()?;
    Ok(report)
}

impl<'a> Filtering<'a> {
    fn state(&self) -> State<'a> {
        State {
            matcher: BlockMatcher::new(&self.options.filter),
            fates: Vec::new(),
            ids: Vec::new(),
            report: Report::default(),
        }
    }

    /// Whether all elements of a kind are kept, whatever their tags.
    fn keeps_all(&self, kind: Kind) -> bool {
        self.options.invert && !self.options.filter.asks(kind)
    }

    fn keeps_kinds(&self, record: &IndexRecord) -> bool {
        record.kinds.iter().all(|kind| self.keeps_all(kind))
    }

    fn may_keep(&self, record: &IndexRecord) -> bool {
        let by_tags = record.kinds.iter().any(|kind| self.asks(kind));
        (by_tags && (self.options.invert || record.has_tags || self.options.filter.needs_no_tag()))
            || self.wanted.may_touch(record)
    }

    /// Decides about each element of a blob. Leaves no fates where the blob need not be looked at.
    fn judge(&self, state: &mut State<'a>, blob: &mut Blob) -> KernelResult {
        let record = blob.record()?;
        state.fates.clear();
        if self.keeps_kinds(&record) {
            state.report.matched += record.counts.into();
            return Ok(());
        }
        let block = blob.block()?;
        let may_match =
            record.kinds.iter().any(|kind| self.options.filter.asks(kind)) && state.matcher.begin(block)?;
        if !may_match && self.options.invert {
            state.fates.resize(record.count() as usize, Fate::Keep);
            state.report.matched += record.counts.into();
            return Ok(());
        }
        let State {
            matcher,
            fates,
            ids,
            report,
        } = state;
        let may_refer = self.wanted.may_touch(&record);
        let mut put = |matched: bool, kind: Kind, id: i64| {
            let kept = matched != self.options.invert;
            fates.push(if kept {
                report.matched.add(kind, 1);
                Fate::Keep
            } else if may_refer && self.wanted.has(kind, id) {
                report.referenced.add(kind, 1);
                if self.options.remove_tags {
                    Fate::Bare
                } else {
                    Fate::Keep
                }
            } else {
                Fate::Drop
            });
        };
        let asks_nodes = may_match && self.options.filter.asks(Kind::Node);
        for group in block.groups() {
            let mut items = group.items();
            while let Some(item) = items.try_next()? {
                let element = match item {
                    Item::Dense(dense) => {
                        ids.clear();
                        dense.ids().column().decode_deltas_into(ids)?;
                        let mut tags = dense.tag_column();
                        for id in ids.iter() {
                            let matched = asks_nodes
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
                            put(matched, Kind::Node, *id);
                        }
                        continue;
                    }
                    Item::Node(node) => Element::Node(node),
                    Item::Way(way) => Element::Way(way),
                    Item::Relation(relation) => Element::Relation(relation),
                };
                let matched = may_match && matcher.matches(block, &element)?;
                put(matched, element.kind(), element.id());
            }
        }
        Ok(())
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
}
