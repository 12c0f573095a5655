//! Where results go, and how they are written: the arguments that all commands with an output share.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use osmill_engine::{Error, FormatSpec, OutputOptions, Result};
use osmill_ops::cat::HeaderChanges;
use osmill_ops::select::Target;
use osmill_pbf::{Compression, MetadataFields};

use crate::args::{Common, generator};

/// How outputs are written.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output options")]
pub struct WriteArgs {
    /// Format of the output with its options, such as osm.bz2 or pbf,pbf_compression=zstd [default: by its name];
    /// see 'osmill help formats'
    #[arg(short = 'f', long, value_name = "FORMAT")]
    pub output_format: Option<FormatSpec>,
    /// How PBF blobs are compressed: none, zlib, zlib:0-12, zstd, zstd:1-22 or lz4. All are compressed anew if
    /// this is given; otherwise only those whose contents change, with zlib
    #[arg(long, value_name = "CODEC")]
    pub compression: Option<Compression>,
    /// Replace the output if it exists. It may be one of the inputs: it is replaced at the end, in one step
    #[arg(short = 'O', long)]
    pub overwrite: bool,
    /// Flush the output to disk before it gets its name
    #[arg(long)]
    pub fsync: bool,
    /// Name and version of the program for the file header
    #[arg(long, value_name = "NAME", default_value_t = generator())]
    pub generator: String,
    /// Set a field of the file header: generator, source, osmosis_replication_timestamp,
    /// osmosis_replication_sequence_number or osmosis_replication_base_url; empty removes it. KEY! keeps that of
    /// the input where the command would drop it
    #[arg(long, value_name = "KEY=VALUE")]
    pub output_header: Vec<String>,
}

impl WriteArgs {
    /// The options for an output of this name, in this format unless it is that of the arguments. This is the one
    /// place where arguments become options.
    fn options(&self, common: &Common, path: &Path, format: Option<FormatSpec>) -> Result<OutputOptions> {
        let mut options = OutputOptions {
            overwrite: self.overwrite,
            fsync: self.fsync,
            direct: common.direct_io,
            ..OutputOptions::new(path)
        };
        let format = format.or_else(|| self.output_format.clone());
        options.set_format(format.unwrap_or_default())?;
        if options.format.syntax.is_none() && path.extension().is_some() {
            return Err(Error::Usage(format!(
                "{}: the name tells no format; give one with -f, such as -f pbf",
                path.display()
            )));
        }
        if let Some(compression) = self.compression {
            if options.is_text() {
                return Err(Error::Usage(format!(
                    "{}: --compression is about PBF; text is compressed as its suffix says, .gz or .bz2",
                    path.display()
                )));
            }
            (options.compression, options.recompress) = (compression, true);
        }
        Ok(options)
    }

    /// An output of this name of a command that selects elements, in this format unless it is that of the
    /// arguments.
    pub fn target_as(&self, common: &Common, path: &Path, format: Option<FormatSpec>) -> Result<Target> {
        Ok(Target {
            output: self.options(common, path, format)?,
            generator: self.generator.clone(),
            header: self.header()?,
        })
    }

    /// Changes to the file header.
    pub fn header(&self) -> Result<HeaderChanges> {
        HeaderChanges::parse(&self.output_header)
    }
}

/// Where the result goes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output options")]
pub struct OutputArgs {
    /// Write to this file; '-' is standard output, which is meant, too, where only a format is given
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub write: WriteArgs,
}

impl OutputArgs {
    /// The options for the output.
    pub fn options(&self, common: &Common) -> Result<OutputOptions> {
        self.write.options(common, self.path()?, None)
    }

    /// The output of a command that selects elements.
    pub fn target(&self, common: &Common) -> Result<Target> {
        self.write.target_as(common, self.path()?, None)
    }

    fn path(&self) -> Result<&Path> {
        match &self.output {
            Some(path) => Ok(path),
            None if self.write.output_format.is_some() => Ok(Path::new("-")),
            None => Err(Error::Usage(
                "where to? Give a file with -o, or with -f the format for standard output".into(),
            )),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Attribute {
    Version,
    Timestamp,
    Changeset,
    Uid,
    User,
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
