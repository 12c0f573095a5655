//! Arguments. Names follow what users of `osmium` type.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use osmill_engine::{Error, FormatSpec, Job, JobOptions, Result};
use osmill_model::{Kind, KindSet};

use crate::commands;
use crate::commands::target::{Attribute, OutputArgs};

/// OpenStreetMap data at planet scale, on one small machine.
#[derive(Debug, Parser)]
#[command(
    name = "osmill",
    version,
    about,
    after_help = "\
Exit codes: 0 done; 1 a negative answer (references dangle, an id was not found) or the work failed;
2 wrong arguments, or an input that is missing or damaged.

Run 'osmill help COMMAND' for the options of a command and examples, 'osmill help formats' for the file formats
that are read and written and their options.",
    max_term_width = 110,
    disable_help_subcommand = true
)]
pub struct Cli {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Cat(CatArgs),
    Inspect(InspectArgs),
    Check(CheckArgs),
    Extract(commands::extract::ExtractArgs),
    TagsFilter(commands::tags_filter::TagsFilterArgs),
    Getid(commands::getid::GetidArgs),
    Removeid(commands::getid::RemoveidArgs),
    Getparents(commands::getid::GetparentsArgs),
    AddLocationsToWays(AddLocationsArgs),
    #[command(subcommand)]
    Nodes(NodesCommand),
    #[command(subcommand)]
    Set(commands::set::SetCommand),
    /// Print the help of a command, or of a topic: formats
    Help {
        /// The command, or the topic
        #[arg(value_name = "COMMAND")]
        topic: Vec<String>,
    },
    /// Print a script that completes arguments in a shell
    ///
    /// Where it belongs depends on the shell.
    #[command(after_help = "\
Examples:
  osmill completions bash > ~/.local/share/bash-completion/completions/osmill
  osmill completions zsh > ~/.zfunc/_osmill
  osmill completions fish > ~/.config/fish/completions/osmill.fish")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write manual pages: one for each command, and one for the file formats
    #[command(after_help = "\
Examples:
  osmill man /usr/local/share/man/man1
      Pages for 'man osmill', 'man osmill-cat' and so on.")]
    Man {
        /// The folder to write them to
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
    },
}

/// Options that mean the same in every command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Common options")]
pub struct Common {
    /// Worker threads [default: one for each processor]
    #[arg(short = 'j', long, global = true, value_name = "N")]
    pub threads: Option<usize>,
    /// Memory for the tables of a command, such as 512M or 4G; what does not fit is done in more passes over the input,
    /// or the command says how much it needs
    #[arg(long, global = true, value_name = "SIZE", default_value = "1G", value_parser = parse_size)]
    pub memory: u64,
    /// Folder for temporary files [default: the system's]
    #[arg(long, global = true, value_name = "FOLDER")]
    pub scratch: Option<PathBuf>,
    /// Format of the inputs, such as osm, osc.gz or opl,history=true. What the content tells goes before; see
    /// 'osmill help formats'
    #[arg(short = 'F', long, global = true, value_name = "FORMAT")]
    pub input_format: Option<FormatSpec>,
    /// Read and write past the page cache
    #[arg(long, global = true)]
    pub direct_io: bool,
    /// Say nothing but results and errors
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Tell what each phase of the work took
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// How the account of the work is written to standard error
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "FORMAT",
        default_value = "text"
    )]
    pub log: LogFormat,
    /// Show progress even if standard error is not a terminal
    #[arg(long, global = true, overrides_with = "no_progress")]
    pub progress: bool,
    /// Do not show progress
    #[arg(long, global = true)]
    pub no_progress: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// A line for people
    Text,
    /// JSON lines: one for each phase, then the summary
    Json,
}

impl Common {
    /// A job with these budgets.
    pub fn job(&self) -> Result<Job> {
        use std::io::IsTerminal;
        let defaults = JobOptions::default();
        if self.threads == Some(0) {
            return Err(Error::Usage("--threads: at least one thread is needed".into()));
        }
        let scratch = self.scratch.clone().unwrap_or(defaults.scratch);
        if !scratch.is_dir() {
            return Err(Error::Usage(format!(
                "--scratch {}: there is no such folder",
                scratch.display()
            )));
        }
        let terminal = std::io::stderr().is_terminal();
        Ok(Job::new(JobOptions {
            threads: self.threads.unwrap_or(defaults.threads),
            memory: self.memory,
            scratch,
            direct_io: self.direct_io,
            input_format: self.input_format.clone().unwrap_or_default(),
            blobs_of_task: None,
            progress: (self.progress || terminal && !self.quiet && self.log == LogFormat::Text)
                && !self.no_progress,
            allocations: crate::allocations::counter(),
        }))
    }
}

/// Reads a number of bytes: `64M`, `1.5GiB`, `4000000`.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit_bytes = match unit
        .trim()
        .to_ascii_lowercase()
        .trim_end_matches("ib")
        .trim_end_matches('b')
    {
        "" => 1.0,
        "k" => 1024.0,
        "m" => 1024f64.powi(2),
        "g" => 1024f64.powi(3),
        "t" => 1024f64.powi(4),
        _ => return Err(format!("'{unit}' is not a unit; use K, M, G or T")),
    };
    let bytes = number.parse::<f64>().map_err(|e| e.to_string())? * unit_bytes;
    if bytes < 1.0 {
        return Err("it must be at least one byte".into());
    }
    Ok(bytes as u64)
}

/// The name and version of this program.
pub fn generator() -> String {
    concat!("osmill/", env!("CARGO_PKG_VERSION")).into()
}

/// Concatenate and convert files, and add an index to every PBF blob.
///
/// Inputs and the output may be of any format; see 'osmill help formats'. Compressed PBF data is copied as it is; a small index record goes into the header of each blob, so that later
/// commands can pass over what they do not need. Blobs that have one are copied inside the kernel.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  osmill cat region.osm.pbf -o indexed.osm.pbf
      Copy a file and index it.
  osmill cat -t way,relation region.osm.pbf -o lines.osm.pbf
      Keep ways and relations only.
  osmill cat -c user -c uid -c changeset region.osm.pbf -o public.osm.pbf
      Drop what tells about mappers.
  osmill cat --dedupe a.osm.pbf b.osm.pbf -o both.osm.pbf
      Merge sorted files; of elements that are in both the newest is kept.
  osmill cat region.osm.pbf -o region.osm.bz2
      Convert to compressed OSM XML.
  osmill cat --index region.osm.pbf
      Leave the file as it is, and write region.osm.pbf.idx beside it.
  osmill cat -f opl region.osm.pbf -o - | grep '^r'
      Print as text.
  curl https://example.org/region.osm.gz | osmill cat - -o region.osm.pbf
      Convert what comes through a pipe; formats are recognised by content.
  osmill cat -f osm,add_metadata=version+timestamp region.osm.pbf -o region.osm
      Keep some of the metadata.")]
pub struct CatArgs {
    /// Files of any format; '-' is standard input
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub output: OutputArgs,
    /// Keep only these kinds: node, way, relation, separated by commas
    #[arg(short = 't', long, value_name = "KIND", value_delimiter = ',', value_parser = parse_kind)]
    pub object_type: Vec<Kind>,
    /// Drop this metadata: version, timestamp, changeset, uid or user. Can be given several times
    #[arg(short = 'c', long, value_enum, value_name = "ATTRIBUTE")]
    pub clean: Vec<Attribute>,
    /// Merge sorted inputs and keep each element once: the highest version, then the latest time, then that of
    /// the first input. Files with history keep every version once
    #[arg(long)]
    pub dedupe: bool,
    /// Copy nothing, but write what an index has to say of each file beside it, to FILE.idx. Commands find it there as
    /// long as the file does not change
    #[arg(long, conflicts_with_all = ["output", "dedupe", "object_type", "clean"])]
    pub index: bool,
}

/// Reads the name of a kind.
pub fn parse_kind(text: &str) -> Result<Kind, String> {
    match text.trim() {
        "n" | "node" | "nodes" => Ok(Kind::Node),
        "w" | "way" | "ways" => Ok(Kind::Way),
        "r" | "relation" | "relations" => Ok(Kind::Relation),
        other => Err(format!(
            "'{other}' is not a kind of element; use node, way or relation"
        )),
    }
}

/// The kinds that were asked for; all if none was named.
pub fn kind_set(kinds: &[Kind]) -> KindSet {
    if kinds.is_empty() {
        KindSet::ALL
    } else {
        kinds.iter().copied().collect()
    }
}

/// Show what a file holds.
///
/// Without options only headers and the index are read, which takes a moment whatever the size of the file.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  osmill inspect region.osm.pbf
      What the headers and the index say.
  osmill inspect -e region.osm.pbf
      Read everything: counts, order, times, metadata, sizes.
  osmill inspect -g header.option.osmosis_replication_timestamp region.osm.pbf
      One value, for scripts; any name of the JSON form.
  osmill inspect --tags --min-count 1000 region.osm.pbf w/highway
      How often values of highway occur on ways.
  osmill inspect --show w4781367 region.osm.pbf
      One element.")]
pub struct InspectArgs {
    /// File of any format; '-' is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// With --tags: count only tags that match one of these: KEY, KEY=VALUE, KEY!=VALUE, with '*' at either
    /// end, lists with commas, and n/, w/ or r/ in front
    #[arg(value_name = "EXPRESSION", requires = "tags")]
    pub expressions: Vec<String>,
    /// Read everything and verify what the headers claim
    #[arg(short, long)]
    pub extended: bool,
    /// Count keys and tags
    #[arg(long, conflicts_with_all = ["extended", "blocks", "nodes", "show", "get"])]
    pub tags: bool,
    /// With --tags: count keys alone, or tags (keys with values) alone
    #[arg(long, value_enum, value_name = "WHAT", requires = "tags")]
    pub only: Option<TagPart>,
    /// With --tags: leave out what occurs less often
    #[arg(short = 'm', long, value_name = "N", default_value_t = 1, requires = "tags")]
    pub min_count: u64,
    /// With --tags: leave out what occurs more often
    #[arg(short = 'M', long, value_name = "N", default_value_t = u64::MAX, hide_default_value = true, requires = "tags")]
    pub max_count: u64,
    /// With --tags: order of the lines
    #[arg(
        short,
        long,
        value_enum,
        value_name = "ORDER",
        default_value = "count-desc",
        requires = "tags"
    )]
    pub sort: TagOrder,
    /// With --tags: only of these kinds
    #[arg(short = 't', long, value_name = "KIND", value_delimiter = ',', value_parser = parse_kind, requires = "tags")]
    pub object_type: Vec<Kind>,
    /// List the blobs
    #[arg(long, conflicts_with_all = ["extended", "nodes", "show", "get"])]
    pub blocks: bool,
    /// Statistics of the nodes' ids and locations
    #[arg(long, conflicts_with_all = ["extended", "show", "get"])]
    pub nodes: bool,
    /// Show an element: n17, way/5 or the address of its page
    #[arg(long, value_name = "ID", conflicts_with_all = ["extended", "get"])]
    pub show: Option<String>,
    /// Print one value, such as data.count.nodes or header.bbox
    #[arg(short, long, value_name = "NAME")]
    pub get: Option<String>,
    /// Write JSON
    #[arg(short, long)]
    pub json: bool,
    /// Worker threads [default: one for each processor]
    // As in `Common`, which takes the value over, but without the letter: here it stands for JSON.
    #[arg(long, value_name = "N", help_heading = "Common options")]
    threads: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TagPart {
    Keys,
    Tags,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TagOrder {
    CountDesc,
    CountAsc,
    NameAsc,
    NameDesc,
}

/// Check the order of a file, that no element is there twice, and that references lead somewhere.
///
/// Without options, ids and the node references of ways are checked.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  osmill check region.osm.pbf
      Order, duplicates, and node references of ways.
  osmill check --refs -r -i region.osm.pbf
      References of ways and relations, each missing one on a line.")]
pub struct CheckArgs {
    /// File of any format; '-' is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Check that elements are sorted by kind and id, and that none is there twice
    #[arg(long)]
    pub ids: bool,
    /// Check that the nodes of ways are there
    #[arg(long)]
    pub refs: bool,
    /// With --refs: check the members of relations, too
    #[arg(short = 'r', long)]
    pub check_relations: bool,
    /// With --refs: print every missing reference
    #[arg(short = 'i', long)]
    pub show_ids: bool,
    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

/// Put the locations of their nodes on ways.
///
/// Nodes without tags that no relation has as a member are dropped, since nothing needs them any more.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  osmill add-locations-to-ways region.osm.pbf -o located.osm.pbf
      Ways with locations; nodes only where they have tags or a relation has them.
  osmill add-locations-to-ways -n --memory 256M region.osm.pbf -o located.osm.pbf
      Keep all nodes, and use little memory.")]
pub struct AddLocationsArgs {
    /// Files of any format, taken as if they were one; '-' is standard input
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub output: OutputArgs,
    /// Keep nodes without tags
    #[arg(short = 'n', long)]
    pub keep_untagged_nodes: bool,
    /// Keep nodes that relations have as members: the default
    #[arg(long, overrides_with = "no_keep_member_nodes")]
    pub keep_member_nodes: bool,
    /// Drop nodes without tags even where relations have them as members
    #[arg(long)]
    pub no_keep_member_nodes: bool,
    /// Leave references to nodes that are not in the file without a location, or with the one that the way
    /// has already, instead of failing
    #[arg(long)]
    pub ignore_missing_nodes: bool,
    /// Where locations come from: 'auto' adapts to the data and to --memory, 'store=PATH' takes them from a
    /// store that 'osmill nodes' made. The names of other programs' types are taken and mean 'auto'
    #[arg(short, long, value_name = "TYPE", default_value = "auto", value_parser = parse_index_type)]
    pub index_type: IndexType,
    /// Print the types of index and exit
    #[arg(short = 'I', long, num_args = 0, default_missing_value = "", value_parser = show_index_types)]
    pub show_index_types: Option<String>,
    /// Taken for the sake of other programs' scripts; negative ids need no index of their own
    #[arg(long, value_name = "TYPE", value_parser = parse_index_type, hide = true)]
    pub index_type_neg: Option<IndexType>,
}

/// A store of node locations on disk: build it once, keep it up to date with change files, ask it by id.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Examples:
  osmill nodes build region.osm.pbf region.nodes
  osmill nodes apply region.nodes 3048.osc.gz 3049.osc.gz
  osmill nodes get region.nodes 17 n18 node/19
  osmill add-locations-to-ways -i store=region.nodes region.osm.pbf -o located.osm.pbf")]
pub enum NodesCommand {
    /// Make a store from the nodes of a PBF file
    Build {
        /// File of any format; '-' is standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// The store to make
        #[arg(value_name = "STORE")]
        store: PathBuf,
        /// Replace the store if it exists
        #[arg(short = 'O', long)]
        overwrite: bool,
    },
    /// Print where nodes are; exit code 1 if one is not there
    Get {
        /// The store
        #[arg(value_name = "STORE")]
        store: PathBuf,
        /// Nodes: 17, n17, node/17; '-' reads them from standard input
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
    },
    /// Apply change files in order, each with its sequence number in one step
    Apply {
        /// The store
        #[arg(value_name = "STORE")]
        store: PathBuf,
        /// OsmChange files, plain or compressed
        #[arg(value_name = "CHANGE", required = true)]
        changes: Vec<PathBuf>,
        /// Sequence number of the first file; those after it count up. Without it the state file beside each
        /// change is read: NAME.state.txt for NAME.osc.gz
        #[arg(long, value_name = "N")]
        sequence: Option<i64>,
    },
    /// Print all nodes in the order of ids
    Dump {
        /// The store
        #[arg(value_name = "STORE")]
        store: PathBuf,
    },
    /// Tell what a store holds and takes
    Stats {
        /// The store
        #[arg(value_name = "STORE")]
        store: PathBuf,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Read the whole store and check it; exit code 1 if it is damaged
    Check {
        /// The store
        #[arg(value_name = "STORE")]
        store: PathBuf,
    },
    /// Move data into holes that changes have left, and cut the file
    Compact {
        /// The store
        #[arg(value_name = "STORE")]
        store: PathBuf,
    },
    /// Make a store from a flat node file of osmium or osm2pgsql
    Import {
        /// The flat file
        #[arg(value_name = "FLAT")]
        flat: PathBuf,
        /// The store to make
        #[arg(value_name = "STORE")]
        store: PathBuf,
        /// Replace the store if it exists
        #[arg(short = 'O', long)]
        overwrite: bool,
    },
    /// Write a flat node file for osmium or osm2pgsql; its size follows the largest id
    Export {
        /// The store
        #[arg(value_name = "STORE")]
        store: PathBuf,
        /// The flat file to write
        #[arg(value_name = "FLAT")]
        flat: PathBuf,
        /// Replace the flat file if it exists
        #[arg(short = 'O', long)]
        overwrite: bool,
    },
}

/// Where locations are looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexType {
    /// In a table that is made for the purpose.
    Auto,
    /// In a store.
    Store(PathBuf),
}

/// Names of types of index. All but the first are other programs'.
const INDEX_TYPES: [&str; 14] = [
    "auto",
    "memory",
    "external",
    "sparse",
    "dense",
    "flex_mem",
    "sparse_mem_array",
    "sparse_mem_map",
    "sparse_mem_table",
    "sparse_mmap_array",
    "sparse_file_array",
    "dense_mem_array",
    "dense_mmap_array",
    "dense_file_array",
];

/// Prints the types of index and ends the program, as `--help` does: whatever else is given or missing.
fn show_index_types(_: &str) -> Result<String, String> {
    let names = INDEX_TYPES.join("\n");
    println!("{names}\nstore=PATH");
    std::process::exit(0)
}

/// Reads the name of a type of index.
pub fn parse_index_type(text: &str) -> Result<IndexType, String> {
    if let Some(path) = text.strip_prefix("store=") {
        return Ok(IndexType::Store(path.into()));
    }
    // Some take a file name, which is not needed.
    let name = text.split_once(',').map_or(text, |(name, _)| name);
    if INDEX_TYPES.contains(&name) {
        return Ok(IndexType::Auto);
    }
    Err(format!(
        "'{name}' is not a type of index; use auto, store=PATH, or one of {}",
        INDEX_TYPES[1..].join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn types_of_index() {
        for name in INDEX_TYPES {
            assert_eq!(parse_index_type(name), Ok(IndexType::Auto), "{name}");
        }
        assert_eq!(
            parse_index_type("dense_file_array,nodes.bin"),
            Ok(IndexType::Auto)
        );
        assert_eq!(parse_index_type("store=a,b"), Ok(IndexType::Store("a,b".into())));
        assert!(parse_index_type("btree").is_err_and(|e| e.contains("flex_mem")));
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_size("64M"), Ok(64 << 20));
        assert_eq!(parse_size("1.5GiB"), Ok(3 << 29));
        assert_eq!(parse_size("2t"), Ok(2 << 40));
        assert_eq!(parse_size("4000"), Ok(4000));
        for bad in ["", "x", "1X", "0", "-1", "1.2.3G"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }
}
