//! `osmill cat`.

use std::process::ExitCode;

use osmill_engine::Result;
use osmill_ops::cat::{Options, cat, index_beside};

use crate::args::{self, CatArgs, Common};
use crate::commands::target::without;
use crate::render;

pub fn run(common: &Common, args: &CatArgs) -> Result<ExitCode> {
    let job = common.job()?;
    if args.index {
        for path in index_beside(&job, &args.files, args.output.write.fsync)? {
            render::print(&format!("{}\n", path.display()))?;
        }
        render::account(common, "cat", &job);
        return Ok(ExitCode::SUCCESS);
    }
    let mut output = args.output.options(common)?;
    output.metadata = output.metadata.and(without(&args.clean));
    let options = Options {
        kinds: args::kind_set(&args.object_type),
        dedupe: args.dedupe,
        generator: args.output.write.generator.clone(),
        header: args.output.write.header()?,
    };
    cat(&job, &args.files, &options, output)?;
    render::account(common, "cat", &job);
    Ok(ExitCode::SUCCESS)
}
