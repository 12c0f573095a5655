//! `osmill-bench`: runs suites, writes reports, compares records.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand};

use osmill_bench::calibrate::Calibration;
use osmill_bench::definitions::{SUITES, Suite, selected};
use osmill_bench::digest::Digest;
use osmill_bench::inputs::{Input, Resolver};
use osmill_bench::machine::{self, Load, Machine, Source};
use osmill_bench::record::{self, End, Line, Run, Writer};
use osmill_bench::tools::{self, Tool};
use osmill_bench::{compare, measure, program, report, run};

#[derive(Parser)]
#[command(
    name = "osmill-bench",
    version,
    about = "Runs osmill and its peers in turn, verifies outputs, records figures"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a suite and append a record
    #[command(after_help = RUN_HELP)]
    Run(Box<RunArgs>),
    /// List suites, or the rows of one
    List {
        /// Suite
        suite: Option<String>,
    },
    /// Write a Markdown page with SVG plots about the last run in a record
    Report {
        /// Record file
        record: PathBuf,
        /// Folder for the page [default: bench/reports/NAME]
        #[arg(short, long)]
        output: Option<PathBuf>,
    },
    /// Compare the last runs of two records; exit code 1 when something became worse
    Compare {
        /// Record file
        old: PathBuf,
        /// Record file
        new: PathBuf,
        /// Tolerated change in percent
        #[arg(long, default_value_t = 10.0)]
        limit: f64,
        /// Show everything, not only what moved
        #[arg(short, long)]
        all: bool,
    },
    /// Measure what this machine can do and print it as JSON
    Calibrate {
        /// A file of at least 64 MiB on the device to probe; only read
        file: Option<PathBuf>,
    },
    /// Print the digest of a PBF as JSON: counts, and one sum a facet of its elements
    Digest {
        /// PBF file
        file: PathBuf,
    },
    /// Run one program and report on it (how the runner starts programs)
    #[command(hide = true)]
    Measure {
        #[arg(long)]
        report: PathBuf,
        #[arg(long)]
        directory: PathBuf,
        #[arg(long)]
        timeout: f64,
        #[arg(long)]
        processors: Option<usize>,
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
}

const RUN_HELP: &str = "\
Examples:
  osmill-bench run toolkit --input amp-500m.osm.pbf --peer pbfhogg=/opt/pbfhogg
  osmill-bench run toolkit --input amp-80m.osm.pbf --input amp-500m.osm.pbf --processors 1,2 --rows 'cat-*,check-refs'
  osmill-bench run toolkit --input amp-500m.osm.pbf --peer osmill-before=/tmp/osmill-old --rows inspect-extended
  osmill-bench run stree --with-peers

Exit codes: 0 all rows ran and were verified (or are absent or skipped, and say why); 1 a row failed; 2 wrong usage or an unusable file.";

#[derive(Args)]
struct RunArgs {
    /// Suite: toolkit, stree or diskarray
    suite: String,
    /// Input PBF (toolkit); several give scaling
    #[arg(short, long)]
    input: Vec<PathBuf>,
    /// Change file of the input [default: NAME.osc.gz beside NAME.osm.pbf]
    #[arg(long)]
    osc: Option<PathBuf>,
    /// A program: osmium, pbfhogg or osmill, or another build of one as KIND-ANYTHING. Found on PATH where not given
    #[arg(short, long, value_name = "NAME=PATH")]
    peer: Vec<String>,
    /// Leave a program out though it is on PATH
    #[arg(long, value_name = "NAME")]
    without: Vec<String>,
    /// The osmill to measure [default: the one beside this binary, or on PATH]
    #[arg(long)]
    osmill: Option<PathBuf>,
    /// Rows to run, comma-separated, `*` for anything
    #[arg(short, long)]
    rows: Option<String>,
    /// Leave out rows and arms that are marked heavy
    #[arg(long)]
    skip_heavy: bool,
    /// Run rows that osmill cannot do yet with the peers alone
    #[arg(long)]
    peers_only: bool,
    /// Engine suites: peers too (compiles them)
    #[arg(long)]
    with_peers: bool,
    /// Samples an arm
    #[arg(short = 'n', long, default_value_t = 5)]
    repeats: usize,
    /// Seconds an arm may spend on samples in a row
    #[arg(long, default_value_t = 20.0)]
    arm_seconds: f64,
    /// Minutes all rows together may take
    #[arg(long, default_value_t = 15.0)]
    budget: f64,
    /// Seconds a single run may take
    #[arg(long, default_value_t = 600.0)]
    timeout: f64,
    /// Numbers of processors to give each program, one after the other [default: all]
    #[arg(short = 'j', long, value_delimiter = ',')]
    processors: Vec<usize>,
    /// Drop the input's pages from the page cache before each run
    #[arg(long)]
    cold: bool,
    /// Region of extract rows: left,bottom,right,top
    #[arg(long, allow_hyphen_values = true)]
    bbox: Option<String>,
    /// Folder for outputs and derived inputs
    #[arg(long, default_value = "target/osmill-bench")]
    scratch: PathBuf,
    /// Record to append to [default: a new file in bench/records]
    #[arg(long)]
    record: Option<PathBuf>,
    /// Engine suites: run this program instead of the suite's own
    #[arg(long)]
    program: Option<String>,
    /// Engine suites: further arguments for the program
    #[arg(last = true)]
    arguments: Vec<String>,
}

type Failure = Box<dyn Error>;

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Run(args) => run_suite(&args),
        Command::List { suite } => list(suite.as_deref()),
        Command::Report { record, output } => write_report(&record, output),
        Command::Compare { old, new, limit, all } => compare_records(&old, &new, limit, all),
        Command::Calibrate { file } => {
            print_json(&Calibration::measure(file.as_deref())).map(|()| ExitCode::SUCCESS)
        }
        Command::Digest { file } => Digest::of_file(&file, threads())
            .map_err(Failure::from)
            .and_then(|digest| print_json(&digest))
            .map(|()| ExitCode::SUCCESS),
        Command::Measure {
            report,
            directory,
            timeout,
            processors,
            command,
        } => launch(&report, &directory, timeout, processors, &command),
    };
    done.unwrap_or_else(|error| {
        eprintln!("osmill-bench: {error}");
        ExitCode::from(2)
    })
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    println!("{}", serde_json::to_string_pretty(value)?);
    Ok(())
}

fn launch(
    report: &Path,
    directory: &Path,
    timeout: f64,
    processors: Option<usize>,
    command: &[String],
) -> Result<ExitCode, Failure> {
    let timeout = Duration::try_from_secs_f64(timeout)?;
    let sample = measure::launch(command, directory, processors, timeout)?;
    std::fs::write(report, serde_json::to_vec(&sample)?)?;
    Ok(ExitCode::SUCCESS)
}

fn list(suite: Option<&str>) -> Result<ExitCode, Failure> {
    let Some(name) = suite else {
        for (name, _) in SUITES {
            let suite = Suite::named(name)?;
            println!(
                "{name:<12} {} rows, {} programs",
                suite.row.len(),
                suite.program.len()
            );
        }
        return Ok(ExitCode::SUCCESS);
    };
    let suite = Suite::named(name)?;
    for row in &suite.row {
        let arms: Vec<&str> = row.arms.keys().map(String::as_str).collect();
        println!(
            "{:<26}{} {} [{}]",
            row.name,
            if row.heavy { "heavy" } else { "     " },
            row.what,
            arms.join(", ")
        );
    }
    for program in &suite.program {
        println!(
            "{:<26}{} {}",
            program.name,
            if program.heavy { "heavy" } else { "     " },
            program.what
        );
    }
    for derived in &suite.derived {
        println!("{{{}}}: {}", derived.name, derived.what);
    }
    Ok(ExitCode::SUCCESS)
}

/// The programs to measure: osmill, then what is given, then what is on PATH.
fn find_tools(args: &RunArgs) -> Result<Vec<Tool>, Failure> {
    let beside = std::env::current_exe()?.with_file_name(tools::OWN);
    let own = match &args.osmill {
        Some(path) => Some(Tool::at(tools::OWN, path)?),
        None if beside.is_file() => Some(Tool::at(tools::OWN, &beside)?),
        None => Tool::on_path(tools::OWN),
    };
    let mut found: Vec<Tool> = own.into_iter().collect();
    for peer in &args.peer {
        let (name, path) = peer
            .split_once('=')
            .ok_or_else(|| format!("--peer {peer}: NAME=PATH is needed"))?;
        found.retain(|tool| tool.name != name);
        found.push(Tool::at(name, Path::new(path))?);
    }
    for name in ["pbfhogg", "osmium"] {
        if !found.iter().any(|tool| tool.name == name) {
            found.extend(Tool::on_path(name));
        }
    }
    found.retain(|tool| !args.without.contains(&tool.name));
    Ok(found)
}

fn run_suite(args: &RunArgs) -> Result<ExitCode, Failure> {
    let suite = Suite::named(&args.suite)?;
    if !suite.row.is_empty() && args.input.is_empty() {
        return Err(format!("suite {} needs --input FILE", args.suite).into());
    }
    let budget = Duration::try_from_secs_f64(args.budget * 60.0)?;
    let timeout = Duration::try_from_secs_f64(args.timeout)?;
    let tools = if suite.row.is_empty() {
        Vec::new()
    } else {
        find_tools(args)?
    };
    let inputs = args
        .input
        .iter()
        .map(|path| Input::open(path, args.osc.as_deref(), threads()))
        .collect::<Result<Vec<_>, _>>()?;
    let started = machine::timestamp();
    let record = args.record.clone().unwrap_or_else(|| {
        PathBuf::from(format!(
            "bench/records/{}-{}.jsonl",
            started.replace(':', ""),
            args.suite
        ))
    });
    eprintln!("calibrating");
    let head = Run {
        id: format!("{started}-{}", args.suite),
        suite: args.suite.clone(),
        started,
        command: own_command_line(),
        source: Source::read(Path::new(".")),
        machine: Machine::read(),
        load: Load::now(),
        calibration: Calibration::measure(inputs.first().map(|input| input.path.as_path())),
        tools: tools.clone(),
        inputs: inputs.iter().map(|input| input.info.clone()).collect(),
    };
    let id = head.id.clone();
    let start = Instant::now();
    let mut writer = Writer::append_to(&record)?;
    writer.write(&Line::Run(Box::new(head)))?;

    let mut failed = 0;
    if !suite.row.is_empty() {
        std::fs::create_dir_all(&args.scratch)?;
        let scratch = args.scratch.canonicalize()?;
        let mut resolver = Resolver::new(&suite, &tools, &scratch.join("derived"), args.bbox.as_deref())?;
        let options = run::Options {
            rows: args.rows.clone(),
            skip_heavy: args.skip_heavy,
            without_own: args.peers_only,
            repeats: args.repeats.max(1),
            arm_seconds: args.arm_seconds,
            budget,
            timeout,
            processors: args.processors.clone(),
            cold: args.cold,
            scratch,
            launcher: std::env::current_exe()?,
        };
        failed += run::rows(&id, &suite, &tools, &inputs, &mut resolver, &options, |row| {
            writer.write(&Line::Row(row))
        })?;
    }
    let programs = suite
        .program
        .iter()
        .filter(|program| selected(args.rows.as_deref(), &program.name));
    for definition in programs.filter(|program| !(program.heavy && args.skip_heavy)) {
        let mut definition = definition.clone();
        if let Some(program) = &args.program {
            definition.command = vec![program.clone()];
            definition.with_peers.clear();
        }
        eprintln!("{}", definition.name);
        let done = program::run(&id, &definition, args.with_peers, &args.arguments, |result| {
            writer.write(&Line::Program(result)).map_err(Failure::from)
        });
        match done {
            Ok(count) => eprintln!("  {count} figures"),
            Err(error) => {
                eprintln!("  failed: {error}");
                failed += 1;
            }
        }
    }
    let finished = machine::timestamp();
    writer.write(&Line::End(End {
        run: id,
        finished,
        wall_s: start.elapsed().as_secs_f64(),
        load: Load::now(),
    }))?;
    eprintln!("record: {}", writer.path().display());
    if failed > 0 {
        eprintln!("{failed} failed");
        return Ok(ExitCode::from(1));
    }
    Ok(ExitCode::SUCCESS)
}

/// This process's arguments, files by their names alone: a record says nothing about the folders of a machine.
fn own_command_line() -> Vec<String> {
    let shown = |word: &str| {
        let (option, path) = word
            .split_once('=')
            .map_or(("", word), |(option, path)| (option, path));
        let name = Path::new(path)
            .file_name()
            .map_or(path.into(), |name| name.to_string_lossy());
        let name = if path.contains('/') { name } else { path.into() };
        if option.is_empty() {
            name.into_owned()
        } else {
            format!("{option}={name}")
        }
    };
    std::env::args().skip(1).map(|word| shown(&word)).collect()
}

fn write_report(path: &Path, output: Option<PathBuf>) -> Result<ExitCode, Failure> {
    let record = record::load_last(path)?;
    let output =
        output.unwrap_or_else(|| PathBuf::from("bench/reports").join(path.file_stem().unwrap_or_default()));
    println!("{}", report::write(&record, &output)?.display());
    Ok(ExitCode::SUCCESS)
}

fn compare_records(old: &Path, new: &Path, limit: f64, all: bool) -> Result<ExitCode, Failure> {
    let (old, new) = (record::load_last(old)?, record::load_last(new)?);
    let outlook = compare::compare(&old, &new, limit / 100.0);
    print!("{}", outlook.render(all));
    let rows: BTreeSet<&str> = outlook
        .comparisons
        .iter()
        .filter(|figure| figure.fails())
        .map(|figure| figure.row.as_str())
        .collect();
    if outlook.fails() {
        eprintln!("worse: {}", rows.into_iter().collect::<Vec<_>>().join("; "));
        return Ok(ExitCode::from(1));
    }
    Ok(ExitCode::SUCCESS)
}
