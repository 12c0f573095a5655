//! `osmill tags-filter`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use osmill_engine::{Error, Result};
use osmill_ops::filter::TagFilter;
use osmill_ops::tags_filter::{Options, tags_filter};

use crate::args::Common;
use crate::commands::target::OutputArgs;
use crate::render;

/// Keep the elements whose tags match one of some expressions, and what they refer to.
///
/// An expression is KEY, KEY=VALUE or KEY!=VALUE, after letters for the kinds of elements that it is about:
/// n/ node, w/ way, r/ relation, a/ area (a closed way or a multipolygon). Lists are separated by commas; a '*'
/// alone is anything, at the end any ending, at the start any text around.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  osmill tags-filter region.osm.pbf w/highway=primary,secondary -o roads.osm.pbf
      Main roads with their nodes.
  osmill tags-filter -R region.osm.pbf n/amenity -o amenities.osm.pbf
      Nodes only, read once.
  osmill tags-filter -i region.osm.pbf building -o unbuilt.osm.pbf
      Everything but buildings. What others refer to stays; the account tells how much that is.
  osmill tags-filter --strict region.osm.pbf 'w/highway & !name & surface~\"^(gravel|dirt)$\"' -o x.osm.pbf
      Several conditions, absent tags, regular expressions.

Strict expressions: conditions joined with '&'; '!KEY' for no such tag; '~' and '!~' with a regular expression;
'*' anywhere in a word stands for anything there, so that '*y' is an ending; '\\' or double quotes take away
the meaning of special characters.")]
pub struct TagsFilterArgs {
    /// File of any format; '-' is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Elements that match any of these are kept
    #[arg(value_name = "EXPRESSION")]
    pub filters: Vec<String>,
    #[command(flatten)]
    pub output: OutputArgs,
    /// Read expressions from this file, one a line; '#' begins a comment. Can be given several times
    #[arg(short = 'e', long = "expressions", value_name = "FILE")]
    pub expression_files: Vec<PathBuf>,
    /// Keep what does not match
    #[arg(short = 'i', long)]
    pub invert_match: bool,
    /// Do not keep nodes of kept ways and members of kept relations unless they match
    #[arg(short = 'R', long)]
    pub omit_referenced: bool,
    /// Drop the tags of elements that are only kept because others refer to them
    #[arg(short = 't', long)]
    pub remove_tags: bool,
    /// With -i: leave what matches out even where others refer to it. Relations lose it as a member; nodes that
    /// ways need stay without tags
    #[arg(long, requires = "invert_match")]
    pub exclude: bool,
    /// Read the expressions in the strict form
    #[arg(long)]
    pub strict: bool,
}

pub fn run(common: &Common, args: &TagsFilterArgs) -> Result<ExitCode> {
    let job = common.job()?;
    let mut expressions = args.filters.clone();
    for path in &args.expression_files {
        expressions.extend(read_expressions(path, args.strict)?);
    }
    if expressions.is_empty() {
        return Err(Error::Usage(
            "no expression was given; write some after the file, or use -e".into(),
        ));
    }
    let filter = match args.strict {
        true => TagFilter::parse_strict(&expressions)?,
        false => TagFilter::parse(&expressions)?,
    };
    let options = Options {
        filter,
        invert: args.invert_match,
        omit_referenced: args.omit_referenced,
        remove_tags: args.remove_tags,
        exclude: args.exclude,
    };
    let report = tags_filter(&job, &args.file, &options, &args.output.target(common)?)?;
    if !common.quiet {
        let what = if args.invert_match {
            "not matched"
        } else {
            "matched"
        };
        eprintln!(
            "osmill tags-filter: {what}: {}; kept because others refer to them: {}",
            render::counts(&report.matched),
            render::counts(&report.referenced)
        );
        if args.invert_match && !args.exclude && report.referenced.total() > 0 {
            eprintln!(
                "osmill tags-filter: {} excluded elements were added again as references of others; --exclude leaves \
                 them out of these, -R drops them",
                render::number(report.referenced.total())
            );
        }
        if report.members_dropped > 0 {
            eprintln!(
                "osmill tags-filter: relations lost {} excluded members",
                render::number(report.members_dropped)
            );
        }
    }
    render::account(common, "tags-filter", &job);
    Ok(ExitCode::SUCCESS)
}

/// The expressions of a file. In strict ones a '#' can be quoted, so only lines that begin with it are comments.
fn read_expressions(path: &Path, strict: bool) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::io("read", path, e))?;
    let lines = text.lines().map(|line| match strict {
        true if line.trim_start().starts_with('#') => "",
        true => line.trim(),
        false => line.split('#').next().unwrap_or_default().trim(),
    });
    Ok(lines.filter(|line| !line.is_empty()).map(str::to_owned).collect())
}
