//! `extract`: what is in a region, for any number of regions at once.
//!
//! # What an extract holds
//!
//! As osmium's strategies define it:
//!
//! * [`Strategy::Simple`]: nodes inside, ways with such a node, relations with such a node or way as a member.
//! * [`Strategy::CompleteWays`]: besides, all nodes of these ways, and the relations that contain these
//!   relations, directly or not.
//! * [`Strategy::Smart`]: besides, all node and way members, and the nodes of these ways, of relations of
//!   certain types among those that have a node or way inside, and of relations of which a certain part is
//!   inside anyway.
//!
//! Deletions of a change file belong to every extract.
//!
//! Regions are exact (see [`osmill_geometry`]); where osmium's even-odd rule cuts holes into parts that overlap,
//! there are none here. Any order of the input will do. Files with history keep every version of an element of
//! which one version belongs to the extract.
//!
//! # How
//!
//! Passes over one kind of element each find out which regions an id belongs to (see the `region_ids` module):
//!
//! | pass | reads | notes |
//! | --- | --- | --- |
//! | nodes | blobs of nodes whose box meets a region | nodes inside |
//! | ways | ways | ways with a node inside, those of their nodes that are not inside |
//! | relations | relations | relations with a member inside; for smart, their members |
//! | member ways | ways that were added, or of which any version was | their nodes |
//! | write | see below | |
//!
//! In an orderly file (sorted, every element once, one kind in each blob) most blobs are read once. What the first
//! passes find is encoded at once: `simple` writes it, the others hold it ([`osmill_engine::HoldStore`]). The last
//! pass puts it out in order, and reads only blobs in which there turned out to be more: of these, regions that have
//! no more get what is held. Few blobs are such: of the 5904 node blobs of a 47 M node file, where a box of 10 x 10
//! degrees has nodes in 5255, the nodes that ways bring in lie in 390. In other files the last pass reads whatever
//! holds anything that was noted.
//!
//! A PBF file without index records is taken for orderly if its header says that it is sorted, and the passes over
//! nodes, ways and relations verify that (see the `order` module): each blob is decompressed once. Where that turns out
//! wrong, the outputs are begun anew after a pass that finds the records.
//!
//! With [`Options::include_crossing`] and [`Options::include_enclosing`] others come between; see the `around`
//! module. The last one writes all outputs at once. A blob that belongs to an output whole is copied compressed.
//!
//! # Memory
//!
//! Ids cost about 8 bytes for 64 neighbouring ones of one region, 16 of one of many, and 32 while a pass notes them. Where those of the nodes inside take more than half of the job's memory, an orderly file is cut in
//! ranges of ids (see the `ranges` module), with the same output. If ids of ways take more than the memory, or those of
//! nodes in a file that is not orderly or with one of the two options above, that is an error which says so. Not counted is which
//! relations are members of which, and in ranges how many members of a relation are in which region. What is held goes to scratch beyond an eighth of the job's memory. Each output has a block that is being gathered. Its file is
//! kept open if the system lets the process have so many open, and opened again for each write if not (see
//! [`osmill_engine::OutputFiles`]).

mod around;
mod boundary;
mod order;
mod passes;
mod ranges;
mod region_ids;
mod strategy;
mod write;

use std::path::Path;

use osmill_engine::{Counts, Error, Job, OutputFiles, Plan, Result, Sink};
use osmill_geometry::{MultiPolygon, RegionSet, looks_swapped};
use osmill_model::BoundingBox;
use osmill_pbf::{FileHeader, HeaderBox};
use serde::Serialize;

pub use boundary::{boundaries_of_file, boundary_of};
pub use strategy::{Smart, Strategy};

use crate::select::{self, Target};
use order::Known;
use passes::{Found, Work};

/// A region and the output for what is in it.
#[derive(Debug, Clone)]
pub struct Extract {
    /// The region.
    pub area: MultiPolygon,
    /// The output.
    pub target: Target,
    /// Header options to take over from the input, in osmium's names.
    pub header_from_input: Vec<String>,
}

/// How to extract.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// How complete the extracts are.
    pub strategy: Strategy,
    /// Keep all versions, also if the file's header does not say that it has a history.
    pub with_history: bool,
    /// Write the box of the region into the header.
    pub set_bounds: bool,
    /// Keep ways that cross the region without a node inside. Of one region only.
    pub include_crossing: bool,
    /// Keep areas that surround a part of the region: closed ways, multipolygons and boundaries with all their
    /// members. Of one region only.
    pub include_enclosing: bool,
}

/// What went into an output.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Elements written.
    pub written: Counts,
    /// Bytes written.
    pub bytes: u64,
}

/// Writes what is in each of the regions to its output, in one go. A report for each of them.
///
/// Outputs with nothing in them are written, too, and warned of.
pub fn extract(job: &Job, input: &Path, extracts: &[Extract], options: &Options) -> Result<Vec<Report>> {
    let Some(first) = extracts.first() else {
        return Err(Error::Usage("no region was given".into()));
    };
    if extracts.len() > region_ids::REGIONS {
        return Err(Error::Usage(format!(
            "{} regions are too many; give at most {} at a time",
            extracts.len(),
            region_ids::REGIONS
        )));
    }
    let input = job.open(input)?;
    let mut plan = input.plan(job.options().threads)?;
    // A change file is no history, though it may hold an element twice.
    let history = options.with_history || plan.header.has_history() && !input.is_change();
    if history && !matches!(options.strategy, Strategy::CompleteWays { .. }) {
        return Err(Error::Usage(format!(
            "{}: this file has a history, which works with the strategy complete_ways only",
            input.path().display()
        )));
    }
    let wish = around::Wish {
        crossing: options.include_crossing,
        enclosing: options.include_enclosing,
    };
    if wish != around::Wish::default() && (history || extracts.len() > 1) {
        return Err(Error::Usage(
            "what crosses or encloses a region can be added for one region at a time, and not with history"
                .into(),
        ));
    }
    let regions = RegionSet::new(extracts.iter().map(|extract| &extract.area));
    let can_restart = extracts
        .iter()
        .all(|extract| extract.target.output.appears_when_complete());
    let mut presumed = match history || wish != around::Wish::default() || !can_restart {
        true => None,
        false => order::presume(&input, &plan),
    };
    loop {
        if presumed.is_none() {
            select::complete(job, &input, &mut plan)?;
        }
        let sinks = open_sinks(extracts, &plan.header, options)?;
        let mut work = Work {
            job,
            input: &input,
            orderly: presumed.is_some() || select::is_orderly(&plan.blobs) && !input.is_change(),
            known: Known::new(plan.clone(), presumed.take()),
            regions: &regions,
            strategy: &options.strategy,
            history,
        };
        match work.run(&first.area, wish, &sinks) {
            Ok(Found::All) => return finish(job, extracts, sinks, &work.known.plan),
            Ok(Found::Disorder) => {}
            // What is said of a damaged file does not depend on its order.
            Err(Error::Malformed { .. }) if work.known.is_presumed() => {}
            Err(error) => return Err(error),
        }
    }
}

fn open_sinks(extracts: &[Extract], input: &FileHeader, options: &Options) -> Result<Vec<Sink>> {
    let files = OutputFiles::for_outputs(extracts.len());
    let sinks = extracts
        .iter()
        .map(|extract| open_sink(&files, extract, input, options))
        .collect::<Result<Vec<Sink>>>()?;
    if sinks.len() > 4 {
        sinks.iter().for_each(|sink| sink.limit_spare_buffers(1));
    }
    Ok(sinks)
}

/// Ends the outputs, into which all of the file of this plan that belongs there was written.
fn finish(job: &Job, extracts: &[Extract], sinks: Vec<Sink>, plan: &Plan) -> Result<Vec<Report>> {
    job.objects_in(select::total(plan));
    let data = data_box(plan);
    let mut reports = Vec::new();
    for (extract, sink) in extracts.iter().zip(sinks) {
        let written = sink.counts();
        if written.total() == 0 {
            job.warn(nothing_found(extract, data));
        }
        job.objects_out(written);
        reports.push(Report {
            written,
            bytes: sink.bytes(),
        });
        sink.finish()?;
    }
    Ok(reports)
}

fn open_sink(files: &OutputFiles, extract: &Extract, input: &FileHeader, options: &Options) -> Result<Sink> {
    let mut header = input.clone();
    let keeps = |name: &str| extract.header_from_input.iter().any(|option| option == name);
    // What holds for the whole input need not hold for a part of it.
    if !keeps("osmosis_replication_timestamp") && !keeps("timestamp") {
        header.replication_timestamp = None;
    }
    if !keeps("osmosis_replication_sequence_number") {
        header.replication_sequence = None;
    }
    if !keeps("osmosis_replication_base_url") {
        header.replication_base_url = None;
    }
    header.set_history(options.with_history || input.has_history());
    header.bbox = match options.set_bounds {
        true => extract.area.bbox().map(|bbox| {
            let nano = |value: i32| i64::from(value) * 100;
            HeaderBox {
                left: nano(bbox.min.lon),
                right: nano(bbox.max.lon),
                top: nano(bbox.max.lat),
                bottom: nano(bbox.min.lat),
            }
        }),
        false => None,
    };
    extract.target.open_among(files, header)
}

/// The box around all nodes, if index records tell; the header's otherwise.
fn data_box(plan: &Plan) -> Option<BoundingBox> {
    let boxes = plan.blobs.iter().filter_map(|blob| blob.index?.bbox);
    boxes.reduce(BoundingBox::union)
}

fn nothing_found(extract: &Extract, data: Option<BoundingBox>) -> String {
    let name = extract.target.output.path.display();
    let (Some(region), Some(data)) = (extract.area.bbox(), data) else {
        return format!("{name}: nothing is in the region");
    };
    let hint = match looks_swapped(region, data) {
        true => "; are longitudes and latitudes swapped?",
        false => "",
    };
    format!("{name}: nothing is in the region {region}; the data is within {data}{hint}")
}
