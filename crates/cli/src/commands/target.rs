//! Where the elements go that a command selects.

use std::path::Path;

use clap::Args;
use osmill_engine::{OutputOptions, Result};
use osmill_ops::cat::{Format, HeaderChanges};
use osmill_ops::select::Target;
use osmill_pbf::{Compression, MetadataFields};

use crate::args::{self, Attribute, Common, OutputArgs};

/// The output of a command that selects elements.
#[derive(Debug, Args)]
pub struct TargetArgs {
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub coding: CodingArgs,
}

/// How outputs are written.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output options")]
pub struct CodingArgs {
    /// Format of the output [default: by its name]
    #[arg(short = 'f', long, value_enum, value_name = "FORMAT")]
    pub output_format: Option<args::Format>,
    /// How blobs are compressed: none, zlib, zlib:0-12, zstd, zstd:1-22 or lz4
    #[arg(long, value_name = "CODEC", default_value = "zlib")]
    pub compression: Compression,
}

impl CodingArgs {
    /// The format for an output of this name.
    pub fn format(&self, path: &Path) -> Format {
        match self.output_format {
            Some(args::Format::Opl) => Format::Opl,
            Some(args::Format::Pbf) => Format::Pbf,
            None => format_of(path),
        }
    }
}

/// The format that a file name means.
pub fn format_of(path: &Path) -> Format {
    match path.extension() {
        Some(extension) if extension == "opl" => Format::Opl,
        _ => Format::Pbf,
    }
}

/// All metadata but these attributes.
pub fn without(clean: &[Attribute]) -> MetadataFields {
    let mut metadata = MetadataFields::ALL;
    for attribute in clean {
        match attribute {
            Attribute::Version => metadata.version = false,
            Attribute::Timestamp => metadata.timestamp = false,
            Attribute::Changeset => metadata.changeset = false,
            Attribute::Uid => metadata.uid = false,
            Attribute::User => metadata.user = false,
        }
    }
    metadata
}

impl TargetArgs {
    /// The target that the arguments name.
    pub fn target(&self, common: &Common) -> Result<Target> {
        let OutputArgs {
            output,
            overwrite,
            fsync,
            generator,
            output_header,
        } = &self.output;
        Ok(Target {
            output: OutputOptions {
                overwrite: *overwrite,
                fsync: *fsync,
                direct: common.direct_io,
                compression: self.coding.compression,
                ..OutputOptions::new(output)
            },
            format: self.coding.format(output),
            generator: generator.clone(),
            header: HeaderChanges::parse(output_header)?,
        })
    }
}
