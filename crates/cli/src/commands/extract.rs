//! `osmill extract`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgGroup, Args};
use osmill_engine::{Error, FormatSpec, Job, Result};
use osmill_geometry::{
    HeaderValue, MultiPolygon, RegionError, RegionFormat, RegionSource, parse_bbox, read_config,
    read_features, read_region,
};
use osmill_model::{ElementId, Kind};
use osmill_ops::extract::{self, Extract, Options, Strategy};
use osmill_ops::select::Target;

use crate::args::Common;
use crate::commands::target::{Attribute, WriteArgs, without};
use crate::render;

/// Cut out regions.
///
/// The region is a box, a polygon (.poly, GeoJSON, or boundary relations of an OSM file), or a relation of the
/// input. Any number of regions is cut out in one go with a list of them.
#[derive(Debug, Args)]
#[command(
    group(ArgGroup::new("what").required(true).args(["bbox", "polygon", "config", "from_features", "region"])),
    after_help = "\
Examples:
  osmill extract -b 9.47,47.04,9.64,47.28 europe.osm.pbf -o liechtenstein.osm.pbf
      A box: west, south, east, north. If west is greater than east, it crosses the antimeridian.
  osmill extract -p berlin.poly -s smart germany.osm.pbf -o berlin.osm.pbf
      A polygon, with all members of multipolygons.
  osmill extract --region r1155955 europe.osm.pbf -o liechtenstein.osm.pbf
      The area of a relation of the input.
  osmill extract -c extracts.json planet.osm.pbf
      Many regions, as osmium's config files list them.
  osmill extract --from-features regions.geojson --name '{id}.osm.pbf' -d out planet.osm.pbf
      One output for each feature, named after its properties.

Strategies (-s) and their options (-S):
  simple          nodes inside, ways with such a node, relations with such a node or way
  complete_ways   besides, all nodes of these ways, and relations that contain these relations
                  relations=false: no relations
  smart           besides, all node and way members of some relations
                  types=any or types=A,B: of relations of these types [default: multipolygon]
                  tags=KEY,KEY=VALUE: of those only ones with such a tag
                  complete-partial-relations=X: also of relations with X percent of their members inside

Outputs get their names when they are complete; before, they have none, and a killed process leaves nothing behind.
Only if there are more outputs than the system lets a process have files open (ulimit -Hn) are they written under
temporary names, .osmill-*.tmp in their folders, which remain then."
)]
pub struct ExtractArgs {
    /// File of any format; '-' is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Box: LEFT,BOTTOM,RIGHT,TOP in degrees
    #[arg(short = 'b', long, value_name = "BOX", allow_hyphen_values = true)]
    pub bbox: Option<String>,
    /// Polygon file: .poly, GeoJSON (all features are united), or OSM data with boundary relations
    #[arg(short = 'p', long, value_name = "FILE")]
    pub polygon: Option<PathBuf>,
    /// List of regions and outputs in JSON
    #[arg(short = 'c', long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// GeoJSON file whose features are one region each
    #[arg(long, value_name = "FILE", requires = "name")]
    pub from_features: Option<PathBuf>,
    /// With --from-features: names of the outputs, with properties of the features in braces
    #[arg(long, value_name = "TEMPLATE", requires = "from_features")]
    pub name: Option<String>,
    /// A boundary or multipolygon relation of the input
    #[arg(long, value_name = "ID")]
    pub region: Option<String>,
    /// Folder for the outputs of -c and --from-features
    #[arg(short = 'd', long, value_name = "FOLDER")]
    pub directory: Option<PathBuf>,
    /// How complete the extract is: simple, complete_ways or smart
    #[arg(short = 's', long, value_name = "STRATEGY", default_value = "complete_ways")]
    pub strategy: String,
    /// An option of the strategy. Can be given several times
    #[arg(short = 'S', long = "option", value_name = "KEY=VALUE")]
    pub options: Vec<String>,
    /// Keep all versions of elements that belong to the extract in any version. Files whose header says that
    /// they have a history are recognised
    #[arg(short = 'H', long)]
    pub with_history: bool,
    /// Keep ways that cross the region without a node inside
    #[arg(long, conflicts_with_all = ["config", "from_features"])]
    pub include_crossing: bool,
    /// Keep areas around the region: closed ways, and multipolygons and boundaries with all their members
    #[arg(long, conflicts_with_all = ["config", "from_features"])]
    pub include_enclosing: bool,
    /// Exit with 1 if nothing is in a region
    #[arg(long)]
    pub fail_empty: bool,

    /// Write to this file; '-' is standard output, which is meant, too, where only a format is given
    #[arg(
        short,
        long,
        value_name = "FILE",
        required_unless_present_any = ["config", "from_features", "output_format"],
        conflicts_with_all = ["config", "from_features"],
        help_heading = "Output options"
    )]
    pub output: Option<PathBuf>,
    /// Write the box of the region into the header
    #[arg(long, help_heading = "Output options")]
    pub set_bounds: bool,
    /// Drop this metadata: version, timestamp, changeset, uid or user. Can be given several times
    #[arg(long, value_enum, value_name = "ATTRIBUTE", help_heading = "Output options")]
    pub clean: Vec<Attribute>,
    #[command(flatten)]
    pub write: WriteArgs,
}

pub fn run(common: &Common, args: &ExtractArgs) -> Result<ExitCode> {
    let job = common.job()?;
    let extracts = extracts(&job, common, args)?;
    let options = Options {
        strategy: Strategy::parse(&args.strategy, &args.options)?,
        with_history: args.with_history,
        set_bounds: args.set_bounds,
        include_crossing: args.include_crossing,
        include_enclosing: args.include_enclosing,
    };
    let reports = extract::extract(&job, &args.file, &extracts, &options)?;
    if !common.quiet && reports.len() > 1 {
        for (extract, report) in extracts.iter().zip(&reports) {
            eprintln!(
                "osmill extract: {}: {}, {}",
                extract.target.output.path.display(),
                render::counts(&report.written),
                render::bytes(report.bytes)
            );
        }
    }
    render::account(common, "extract", &job);
    let empty = reports.iter().any(|report| report.written.total() == 0);
    Ok(match args.fail_empty && empty {
        true => ExitCode::from(1),
        false => ExitCode::SUCCESS,
    })
}

fn refused(error: RegionError) -> Error {
    Error::Usage(error.to_string())
}

fn is_osm_file(error: &RegionError) -> bool {
    match error {
        RegionError::OsmFile => true,
        RegionError::InFile { source, .. } => is_osm_file(source),
        _ => false,
    }
}

/// The area in a file, assembled if it holds OSM data.
fn area_of_file(job: &Job, path: &Path, format: Option<RegionFormat>) -> Result<MultiPolygon> {
    match read_region(path, format) {
        Err(error) if is_osm_file(&error) => extract::boundaries_of_file(job, path),
        other => other.map_err(refused),
    }
}

fn extracts(job: &Job, common: &Common, args: &ExtractArgs) -> Result<Vec<Extract>> {
    let in_directory = |configured: Option<&Path>, name: &str| {
        let directory = args.directory.as_deref().or(configured);
        directory.unwrap_or(Path::new("")).join(name)
    };
    if let Some(path) = &args.config {
        let config = read_config(path).map_err(refused)?;
        let mut extracts = Vec::new();
        for extract in config.extracts {
            let output = in_directory(config.directory.as_deref(), &extract.output);
            let area = match extract.region {
                RegionSource::Area(area) => area,
                RegionSource::File { path, format } => area_of_file(job, &path, format)?,
            };
            let format = extract.output_format.as_deref().map(str::parse).transpose();
            let format =
                format.map_err(|e| Error::Usage(format!("{}: output_format: {e}", path.display())))?;
            let mut target = target(common, args, &output, format)?;
            for (key, value) in extract.output_header {
                match value {
                    HeaderValue::Set(value) => target.header.set.push((key, value)),
                    HeaderValue::FromInput => target.header.kept.push(key),
                }
            }
            target.header.apply(&mut osmill_pbf::FileHeader::default())?;
            extracts.push(Extract {
                area,
                header_from_input: target.header.kept.clone(),
                target,
            });
        }
        return Ok(extracts);
    }
    if let (Some(path), Some(template)) = (&args.from_features, &args.name) {
        let features = read_features(path, template).map_err(refused)?;
        return features
            .into_iter()
            .map(|feature| {
                let target = target(common, args, &in_directory(None, &feature.name), None)?;
                Ok(Extract {
                    area: feature.area,
                    header_from_input: target.header.kept.clone(),
                    target,
                })
            })
            .collect();
    }
    let area = if let Some(text) = &args.bbox {
        parse_bbox(text).map_err(refused)?
    } else if let Some(path) = &args.polygon {
        area_of_file(job, path, None)?
    } else {
        let text = args.region.as_deref().unwrap_or_default();
        let id = ElementId::parse_with_default(text, Some(Kind::Relation))
            .map_err(|e| Error::Usage(format!("--region: {e}")))?;
        if id.kind != Kind::Relation {
            return Err(Error::Usage(format!(
                "--region {text}: only relations are regions"
            )));
        }
        extract::boundary_of(job, &args.file, id.id)?
    };
    let target = target(
        common,
        args,
        args.output.as_deref().unwrap_or(Path::new("-")),
        None,
    )?;
    Ok(vec![Extract {
        area,
        header_from_input: target.header.kept.clone(),
        target,
    }])
}

fn target(common: &Common, args: &ExtractArgs, path: &Path, format: Option<FormatSpec>) -> Result<Target> {
    let mut target = args.write.target_as(common, path, format)?;
    target.output.metadata = target.output.metadata.and(without(&args.clean));
    Ok(target)
}
