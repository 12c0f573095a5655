//! `osmill add-locations-to-ways`.

use std::process::ExitCode;

use osmill_engine::Result;
use osmill_ops::add_locations::{Options, add_locations};

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
        generator: args.output.write.generator.clone(),
        header: args.output.write.header()?,
    };
    let report = add_locations(&job, &args.files, &options, args.output.options(common)?)?;
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
