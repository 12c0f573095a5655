//! `osmill getid`, `removeid` and `getparents`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use osmill_engine::{Error, Job, Result};
use osmill_model::{ElementId, Kind};
use osmill_ops::{getid, getparents, ids};

use crate::args::{Common, parse_kind};
use crate::commands::target::OutputArgs;
use crate::render;

/// Which elements are meant.
#[derive(Debug, Args)]
pub struct IdArgs {
    /// File of any format; '-' is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Ids: n17, w-3, node/17, addresses of elements on openstreetmap.org, or numbers of the default type
    #[arg(value_name = "ID", allow_negative_numbers = true)]
    pub ids: Vec<String>,
    /// The kind of ids that do not say it: node, way or relation
    #[arg(long, value_name = "KIND", default_value = "node", value_parser = parse_kind)]
    pub default_type: Kind,
    /// Read ids from this text file, one at the start of each line (OPL will do); '-' is standard input. Can be
    /// given several times
    #[arg(short = 'i', long, value_name = "FILE")]
    pub id_file: Vec<PathBuf>,
    /// Take the ids of all elements of this file of any format. Can be given several times
    #[arg(short = 'I', long, value_name = "FILE")]
    pub id_osm_file: Vec<PathBuf>,
    /// Print the ids that were asked for, and those that are missing
    #[arg(long)]
    pub verbose_ids: bool,
}

impl IdArgs {
    fn read(&self, job: &Job) -> Result<Vec<ElementId>> {
        let mut found = ids::parse_ids(&self.ids, self.default_type)?;
        for path in &self.id_file {
            found.extend(ids::read_ids(path, self.default_type)?);
        }
        for path in &self.id_osm_file {
            found.extend(ids::ids_of_file(job, path)?);
        }
        if found.is_empty() {
            return Err(Error::Usage(
                "no id was given; write some after the file, or use -i or -I".into(),
            ));
        }
        found.sort_unstable();
        found.dedup();
        if self.verbose_ids {
            print_ids("asked for", &found);
        }
        Ok(found)
    }
}

fn print_ids(what: &str, ids: &[ElementId]) {
    let ids: Vec<_> = ids.iter().map(ElementId::to_string).collect();
    eprintln!("osmill: {what}: {}", ids.join(" "));
}

/// Get elements by their ids.
///
/// Exits with 1 if an element is missing.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  osmill getid region.osm.pbf n17 w22 relation/5 -o some.osm.pbf
      Three elements.
  osmill getid -r region.osm.pbf r54224 -o boundary.osm.pbf
      A relation with all its members, theirs, and their nodes.
  osmill getid region.osm.pbf -i ids.txt -f opl -o -
      Print the elements whose ids are in a file.")]
pub struct GetidArgs {
    #[command(flatten)]
    pub ids: IdArgs,
    #[command(flatten)]
    pub output: OutputArgs,
    /// Get, too, what the elements refer to: nodes of ways, members of relations, and theirs
    #[arg(short = 'r', long)]
    pub add_referenced: bool,
    /// With -r: drop the tags of elements that were not asked for themselves
    #[arg(short = 't', long, requires = "add_referenced")]
    pub remove_tags: bool,
    /// Files with history are read without being told; all versions of the elements are written
    #[arg(short = 'H', long)]
    pub with_history: bool,
    /// Get all other elements: the same as removeid
    #[arg(long, conflicts_with_all = ["add_referenced", "remove_tags"])]
    pub invert: bool,
}

pub fn run_getid(common: &Common, args: &GetidArgs) -> Result<ExitCode> {
    let job = common.job()?;
    let options = getid::Options {
        ids: args.ids.read(&job)?,
        add_referenced: args.add_referenced,
        remove_tags: args.remove_tags,
        invert: args.invert,
    };
    let report = getid::getid(&job, &args.ids.file, &options, &args.output.target(common)?)?;
    let ends_well = report.missing == 0 || args.invert;
    if report.missing > 0 && !common.quiet {
        eprintln!(
            "osmill getid: {} not found{}",
            match report.missing {
                1 => "one element was".into(),
                n => format!("{} elements were", render::number(n)),
            },
            if args.ids.verbose_ids {
                ""
            } else {
                "; --verbose-ids lists them"
            }
        );
    }
    if args.ids.verbose_ids {
        print_ids("not found", &report.missing_ids);
    }
    render::account(common, "getid", &job);
    Ok(if ends_well {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

/// Remove elements by their ids.
///
/// What refers to them stays as it is.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  osmill removeid region.osm.pbf n17 w22 -o rest.osm.pbf
      Everything but two elements.")]
pub struct RemoveidArgs {
    #[command(flatten)]
    pub ids: IdArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

pub fn run_removeid(common: &Common, args: &RemoveidArgs) -> Result<ExitCode> {
    let job = common.job()?;
    let options = getid::Options {
        ids: args.ids.read(&job)?,
        invert: true,
        ..getid::Options::default()
    };
    getid::getid(&job, &args.ids.file, &options, &args.output.target(common)?)?;
    render::account(common, "removeid", &job);
    Ok(ExitCode::SUCCESS)
}

/// Get the ways and relations that refer to elements.
///
/// One level: no parents of parents.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  osmill getparents region.osm.pbf n17 -o parents.osm.pbf
      Ways through a node, and relations that it is a member of.
  osmill getparents -s region.osm.pbf w22 -f opl -o -
      Relations of a way, and the way itself.")]
pub struct GetparentsArgs {
    #[command(flatten)]
    pub ids: IdArgs,
    #[command(flatten)]
    pub output: OutputArgs,
    /// Get the elements themselves, too
    #[arg(short = 's', long)]
    pub add_self: bool,
}

pub fn run_getparents(common: &Common, args: &GetparentsArgs) -> Result<ExitCode> {
    let job = common.job()?;
    let options = getparents::Options {
        ids: args.ids.read(&job)?,
        add_self: args.add_self,
    };
    getparents::getparents(&job, &args.ids.file, &options, &args.output.target(common)?)?;
    render::account(common, "getparents", &job);
    Ok(ExitCode::SUCCESS)
}
