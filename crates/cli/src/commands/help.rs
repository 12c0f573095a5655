//! `osmill help`, `completions` and `man`: what is made from the description of the arguments.

use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_mangen::roff::{Roff, roman};
use osmill_engine::{Error, Result};

use crate::args::Cli;
use crate::render;

/// The topic of file formats.
const FORMATS: &str = include_str!("formats.txt");

/// Prints the help of a command, of a topic, or of the program.
pub fn help(topic: &[String]) -> Result<ExitCode> {
    let words: Vec<&str> = topic.iter().map(String::as_str).collect();
    if matches!(words[..], ["formats" | "file-formats"]) {
        render::print(FORMATS)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut cli = Cli::command();
    // Common options belong to every command once the parts are put together.
    cli.build();
    let mut command = &mut cli;
    for word in words {
        command = command.find_subcommand_mut(word).ok_or_else(|| {
            Error::Usage(format!(
                "there is no help on '{}'; run osmill --help for the commands, or osmill help formats",
                topic.join(" ")
            ))
        })?;
    }
    render::print(&command.render_long_help().to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// Prints a script for a shell.
pub fn completions(shell: clap_complete::Shell) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "osmill", &mut script);
    render::print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes manual pages into a folder.
pub fn man(folder: &Path) -> Result<ExitCode> {
    clap_mangen::generate_to(Cli::command(), folder).map_err(|e| Error::io("write", folder, e))?;
    let path = folder.join("osmill-formats.5");
    std::fs::write(&path, formats_page()).map_err(|e| Error::io("write", &path, e))?;
    Ok(ExitCode::SUCCESS)
}

/// The topic of file formats as a manual page. Its tables are kept as they are laid out.
fn formats_page() -> String {
    let mut page = Roff::new();
    page.control(
        "TH",
        [
            "osmill-formats",
            "5",
            "",
            concat!("osmill ", env!("CARGO_PKG_VERSION")),
        ],
    );
    page.control("SH", ["NAME"]);
    page.text([roman(
        "osmill-formats - file formats that osmill reads and writes",
    )]);
    page.control("SH", ["DESCRIPTION"]);
    page.control("nf", []);
    for line in FORMATS.lines().skip(2) {
        page.text([roman(line)]);
    }
    page.control("fi", []);
    page.to_roff()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_in_the_help_are_those_that_exist() {
        let words = FORMATS.lines().filter_map(|line| line.strip_prefix("  "));
        let options = words.filter_map(|line| {
            line.split_once('=')
                .filter(|(name, _)| name.contains('_') || *name == "history")
        });
        let mut count = 0;
        for (name, _) in options {
            let value = match name {
                "pbf_compression" => "lz4",
                "pbf_compression_level" => "1",
                _ => "true",
            };
            let spec: std::result::Result<osmill_engine::FormatSpec, _> =
                format!("pbf,{name}={value}").parse();
            assert!(spec.is_ok(), "{name}");
            count += 1;
        }
        assert_eq!(count, 8);
    }
}
