//! `osmill cat`.

use std::path::Path;
use std::process::ExitCode;

use osmill_engine::{OutputOptions, Result};
use osmill_ops::cat::{Format, HeaderChanges, Options, cat};
use osmill_pbf::MetadataFields;

use crate::args::{self, Attribute, CatArgs, Common};
use crate::render;

pub fn run(common: &Common, args: &CatArgs) -> Result<ExitCode> {
    let job = common.job()?;
    let mut metadata = MetadataFields::ALL;
    for attribute in &args.clean {
        match attribute {
            Attribute::Version => metadata.version = false,
            Attribute::Timestamp => metadata.timestamp = false,
            Attribute::Changeset => metadata.changeset = false,
            Attribute::Uid => metadata.uid = false,
            Attribute::User => metadata.user = false,
        }
    }
    let options = Options {
        kinds: args::kind_set(&args.object_type),
        dedupe: args.dedupe,
        recompress: args.compression.is_some(),
        format: match args.output_format {
            Some(args::Format::Opl) => Format::Opl,
            Some(args::Format::Pbf) => Format::Pbf,
            None => format_of(&args.output.output),
        },
        generator: args.output.generator.clone(),
        header: HeaderChanges::parse(&args.output.output_header)?,
    };
    let output = OutputOptions {
        overwrite: args.output.overwrite,
        fsync: args.output.fsync,
        direct: common.direct_io,
        compression: args.compression.unwrap_or_default(),
        metadata,
        ..OutputOptions::new(&args.output.output)
    };
    cat(&job, &args.files, &options, output)?;
    render::account(common, "cat", &job);
    Ok(ExitCode::SUCCESS)
}

fn format_of(path: &Path) -> Format {
    match path.extension() {
        Some(extension) if extension == "opl" => Format::Opl,
        _ => Format::Pbf,
    }
}
