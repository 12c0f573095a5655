//! The `osmill` program: arguments to commands, results to text, errors to exit codes.

mod allocations;
mod args;
mod commands;
mod render;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match &cli.command {
        Command::Help { topic } => commands::help::help(topic),
        Command::Completions { shell } => commands::help::completions(*shell),
        Command::Man { folder } => commands::help::man(folder),
        Command::Cat(args) => commands::cat::run(&cli.common, args),
        Command::Inspect(args) => commands::inspect::run(&cli.common, args),
        Command::Check(args) => commands::check::run(&cli.common, args),
        Command::Extract(args) => commands::extract::run(&cli.common, args),
        Command::TagsFilter(args) => commands::tags_filter::run(&cli.common, args),
        Command::Getid(args) => commands::getid::run_getid(&cli.common, args),
        Command::Removeid(args) => commands::getid::run_removeid(&cli.common, args),
        Command::Getparents(args) => commands::getid::run_getparents(&cli.common, args),
        Command::Nodes(command) => commands::nodes::run(&cli.common, command),
        Command::Set(command) => commands::set::run(&cli.common, command),
        Command::AddLocationsToWays(args) => commands::add_locations::run(&cli.common, args),
    };
    match result {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::from(1),
        Err(error) => {
            eprintln!("osmill: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

/// Whether the reader of our output has gone, as `head` does: nothing to complain about.
fn is_broken_pipe(error: &osmill_engine::Error) -> bool {
    matches!(error, osmill_engine::Error::Io { source, .. } if source.kind() == std::io::ErrorKind::BrokenPipe)
}
