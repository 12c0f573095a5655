//! Running the program.

// Each test binary uses a part of this.
#![allow(dead_code)]

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The program with these arguments; it says nothing but results and errors.
pub fn command<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_osmill"));
    command.args(arguments).arg("--quiet").stdin(Stdio::null());
    command
}

/// Runs the program to its end.
pub fn run<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Output {
    command(arguments).output().expect("the program can be run")
}

/// Runs the program to its end with these bytes on standard input.
pub fn run_with_input<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>, input: &[u8]) -> Output {
    let mut child = command(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be run");
    let mut stdin = child.stdin.take();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if let Some(stdin) = &mut stdin {
                // The program may end before it has read everything.
                let _ = stdin.write_all(input);
            }
        });
        child.wait_with_output().expect("the program ends")
    })
}

/// Runs the program; it has to succeed. Gives its standard output.
#[track_caller]
pub fn stdout<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Vec<u8> {
    let arguments: Vec<_> = arguments.into_iter().map(|a| a.as_ref().to_os_string()).collect();
    let output = run(&arguments);
    assert!(
        output.status.success(),
        "{arguments:?} ended with {:?}: {}",
        output.status.code(),
        stderr(&output)
    );
    output.stdout
}

/// What the program said on standard error.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The names in a folder, hidden ones included.
pub fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .expect("the folder is there")
        .map(|entry| {
            entry
                .expect("it can be read")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}

/// Asserts that the program refused its input: exit code 2, and one line that names the file, the place, what
/// is wrong and what to do.
#[track_caller]
pub fn assert_refused(output: &Output, file: &str) {
    let said = stderr(output);
    assert_eq!(output.status.code(), Some(2), "{file}: {said}");
    assert_eq!(said.lines().count(), 1, "{file}: {said}");
    assert!(
        said.starts_with("osmill: ") && said.contains(file),
        "{file}: {said}"
    );
    let located = said.contains(": blob ") && said.contains(" at byte ");
    let other_format = said.contains("not OSM data");
    assert!(located || other_format, "{file}: {said}");
    // What to do stands at the end.
    assert!(said.contains("; "), "{file}: {said}");
}
