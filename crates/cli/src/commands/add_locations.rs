//! `osmill add-locations-to-ways`.

use std::process::ExitCode;

use osmill_engine::{OutputOptions, Result};
use osmill_ops::add_locations::{Options, add_locations};
use osmill_ops::cat::HeaderChanges;

use crate::args::{AddLocationsArgs, Common, IndexType};
use crate::render;

pub fn run(common: &Common, args: &AddLocationsArgs) -> Result<ExitCode> {
    let job = common.job()?;
    let options = Options {
        keep_untagged: args.keep_untagged_nodes,
        keep_members: !args.no_keep_member_nodes,
        ignore_missing: args.ignore_missing_nodes,
        store: match &args.index_type {
            IndexType::Auto => None,
            IndexType::Store(path) => Some(path.clone()),
        },
        generator: args.output.generator.clone(),
        header: HeaderChanges::parse(&args.output.output_header)?,
    };
    let output = OutputOptions {
        overwrite: args.output.overwrite,
        fsync: args.output.fsync,
        direct: common.direct_io,
        compression: args.compression.unwrap_or_default(),
        ..OutputOptions::new(&args.output.output)
    };
    let report = add_locations(&job, &args.file, &options, output)?;
    if report.ranges > 1 && !common.quiet {
        job.warn(format!(
            "the nodes did not fit in --memory at once: {} ranges of ids, {} of scratch",
            report.ranges,
            render::bytes(report.scratch)
        ));
    }
    render::account(common, "add-locations-to-ways", &job);
    Ok(ExitCode::SUCCESS)
}
