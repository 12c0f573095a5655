//! Makes test data: `osmill-testkit amplify`, `synth`, `degrade`.

use std::error::Error;
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use osmill_model::{BoundingBox, Location};
use osmill_pbf::{Compression, MetadataFields};
use osmill_testkit::amplify::{Amplify, MetadataMode};
use osmill_testkit::degrade::{Degrade, Flags, Ids, Order};
use osmill_testkit::encode::Layout;
use osmill_testkit::file::WriteOptions;
use osmill_testkit::synth::Synth;

/// Makes OpenStreetMap test data of any size.
#[derive(Parser)]
#[command(name = "osmill-testkit", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Lay out shifted copies of real extracts as one sorted, referentially complete file.
    Amplify(AmplifyArgs),
    /// Make a planet-shaped file from a seed.
    Synth(SynthArgs),
    /// Make a variant of a file that is harder to read.
    Degrade(DegradeArgs),
}

#[derive(Args)]
struct WriteArgs {
    /// none, zlib, zlib:LEVEL, zstd, zstd:LEVEL or lz4.
    #[arg(long, default_value_t)]
    compression: Compression,
    /// Write osmill's index records into the blob headers.
    #[arg(long)]
    index: bool,
    /// Threads that build and compress; the output does not depend on it.
    #[arg(short = 'j', long)]
    threads: Option<usize>,
}

impl WriteArgs {
    fn options(&self) -> WriteOptions {
        WriteOptions {
            compression: self.compression,
            index: self.index,
            threads: self.threads.unwrap_or(WriteOptions::default().threads),
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Meta {
    /// As the extracts have it.
    Keep,
    /// Make up what is absent.
    Fill,
    /// Versions and times only.
    Strip,
}

#[derive(Args)]
struct AmplifyArgs {
    /// How many copies.
    copies: usize,
    /// The file to write.
    output: PathBuf,
    /// Real extracts.
    #[arg(required = true)]
    bases: Vec<PathBuf>,
    /// Also write a daily diff for the file (.osc.gz).
    #[arg(long, value_name = "FILE")]
    osc: Option<PathBuf>,
    /// What becomes of metadata.
    #[arg(long, value_enum, default_value = "keep")]
    meta: Meta,
    /// Where the copies lie: west,south,east,north in degrees.
    #[arg(long, value_parser = parse_bbox, allow_hyphen_values = true, default_value = "-170,-55,170,70")]
    bbox: BoundingBox,
    /// Seed of everything random.
    #[arg(long, default_value_t = 42)]
    seed: u64,
    #[command(flatten)]
    write: WriteArgs,
}

#[derive(Args)]
struct SynthArgs {
    /// How many nodes; ways and relations follow from them.
    nodes: u64,
    /// The file to write.
    output: PathBuf,
    /// Seed of everything.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    write: WriteArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum OrderArg {
    Keep,
    ShuffleBlobs,
    ReverseBlobs,
    ShuffleElements,
}

#[derive(Clone, Copy, ValueEnum)]
enum IdsArg {
    Keep,
    Negate,
    Huge,
}

#[derive(Clone, Copy, ValueEnum)]
enum FlagsArg {
    Keep,
    Strip,
    ClaimSorted,
}

#[derive(Args)]
struct DegradeArgs {
    /// The file to read.
    input: PathBuf,
    /// The file to write.
    output: PathBuf,
    /// The order of the elements.
    #[arg(long, value_enum, default_value = "keep")]
    order: OrderArg,
    /// Elements in a block.
    #[arg(long, value_name = "N")]
    block: Option<usize>,
    /// What becomes of ids.
    #[arg(long, value_enum, default_value = "keep")]
    ids: IdsArg,
    /// What becomes of the header's optional features.
    #[arg(long, value_enum, default_value = "keep")]
    flags: FlagsArg,
    /// How many of a million elements are left out.
    #[arg(long, value_name = "N", default_value_t = 0)]
    drop: u32,
    /// Take all metadata away.
    #[arg(long)]
    strip_metadata: bool,
    /// Take the header's bounding box away.
    #[arg(long)]
    strip_bbox: bool,
    /// Write nodes one by one instead of dense.
    #[arg(long)]
    plain: bool,
    /// Write repeated fields number by number.
    #[arg(long)]
    unpacked: bool,
    /// Nanodegrees in a unit of coordinates.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(i32).range(1..))]
    granularity: i32,
    /// Elements in a group at most.
    #[arg(long, value_name = "N")]
    group: Option<usize>,
    /// Codecs, one blob after the other in turn.
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    compression: Vec<Compression>,
    /// Write index records.
    #[arg(long)]
    index: bool,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads that encode and compress.
    #[arg(short = 'j', long)]
    threads: Option<usize>,
}

fn parse_bbox(text: &str) -> Result<BoundingBox, String> {
    let fail = || format!("'{text}' is not west,south,east,north in degrees");
    let edges: Vec<f64> = text
        .split(',')
        .map(|edge| edge.trim().parse().map_err(|_| fail()))
        .collect::<Result<_, _>>()?;
    let [west, south, east, north] = edges[..] else {
        return Err(fail());
    };
    let corner = |lon, lat| {
        Location::from_degrees(lon, lat)
            .filter(|l| l.is_valid())
            .ok_or_else(fail)
    };
    let (min, max) = (corner(west, south)?, corner(east, north)?);
    if min.lon > max.lon || min.lat > max.lat {
        return Err(fail());
    }
    Ok(BoundingBox { min, max })
}

fn amplify(args: &AmplifyArgs) -> Result<(), Box<dyn Error>> {
    let report = Amplify {
        copies: args.copies,
        metadata: match args.meta {
            Meta::Keep => MetadataMode::Keep,
            Meta::Fill => MetadataMode::Fill,
            Meta::Strip => MetadataMode::Strip,
        },
        bbox: args.bbox,
        seed: args.seed,
        write: args.write.options(),
    }
    .run(&args.bases, &args.output, args.osc.as_deref())?;
    let [nodes, ways, relations] = report.elements;
    eprintln!(
        "{}: {nodes} nodes, {ways} ways, {relations} relations, {} bytes",
        args.output.display(),
        report.bytes
    );
    let base = report.base;
    eprintln!(
        "left out, since no extract has them: {} nodes of ways, {} members",
        base.dropped_refs, base.dropped_members
    );
    if let (Some(diff), Some(path)) = (report.diff, &args.osc) {
        eprintln!(
            "{}: nodes, ways, relations created {:?}, modified {:?}, deleted {:?}",
            path.display(),
            diff.created,
            diff.modified,
            diff.deleted
        );
    }
    Ok(())
}

fn create(path: &PathBuf) -> Result<BufWriter<File>, Box<dyn Error>> {
    let file = File::create(path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(BufWriter::with_capacity(1 << 20, file))
}

fn synth(args: &SynthArgs) -> Result<(), Box<dyn Error>> {
    let mut output = create(&args.output)?;
    let bytes = Synth {
        nodes: args.nodes,
        seed: args.seed,
        write: args.write.options(),
    }
    .run(&mut output)?;
    output.flush()?;
    eprintln!("{}: {bytes} bytes", args.output.display());
    Ok(())
}

fn degrade(args: &DegradeArgs) -> Result<(), Box<dyn Error>> {
    let input = File::open(&args.input).map_err(|e| format!("{}: {e}", args.input.display()))?;
    if let (Ok(a), Ok(b)) = (args.input.canonicalize(), args.output.canonicalize())
        && a == b
    {
        return Err("input and output are the same file".into());
    }
    let options = Degrade {
        order: match args.order {
            OrderArg::Keep => Order::Keep,
            OrderArg::ShuffleBlobs => Order::ShuffleBlobs,
            OrderArg::ReverseBlobs => Order::ReverseBlobs,
            OrderArg::ShuffleElements => Order::ShuffleElements,
        },
        elements_per_block: args.block,
        metadata: if args.strip_metadata {
            MetadataFields::NONE
        } else {
            MetadataFields::ALL
        },
        ids: match args.ids {
            IdsArg::Keep => Ids::Keep,
            IdsArg::Negate => Ids::Negate,
            IdsArg::Huge => Ids::Huge,
        },
        drop_per_million: args.drop,
        layout: Layout {
            dense: !args.plain,
            packed: !args.unpacked,
            granularity: args.granularity,
            group_size: args.group.unwrap_or(usize::MAX),
            ..Layout::default()
        },
        compressions: args.compression.clone(),
        index: args.index,
        strip_bbox: args.strip_bbox,
        flags: match args.flags {
            FlagsArg::Keep => Flags::Keep,
            FlagsArg::Strip => Flags::Strip,
            FlagsArg::ClaimSorted => Flags::ClaimSorted,
        },
        seed: args.seed,
        threads: args.threads.unwrap_or(WriteOptions::default().threads),
    };
    let mut output = create(&args.output)?;
    let report = options.run(BufReader::with_capacity(1 << 20, input), &mut output)?;
    output.flush()?;
    eprintln!(
        "{}: {} of {} elements in {} blobs, {} bytes",
        args.output.display(),
        report.written,
        report.read,
        report.blobs,
        report.bytes
    );
    Ok(())
}

fn main() -> ExitCode {
    let done = match &Cli::parse().command {
        Command::Amplify(args) => amplify(args),
        Command::Synth(args) => synth(args),
        Command::Degrade(args) => degrade(args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("osmill-testkit: {error}");
            ExitCode::FAILURE
        }
    }
}
