//! Every single write of a command fails once, and every flush: the output that was there stays, nothing else is
//! left, and the message names the file.
//!
//! A small library that is loaded before the system's makes the calls fail. It is compiled here; where there is no
//! C compiler, or the program is linked in another way, the test says so and passes.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{command, stderr};

const SHIM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static atomic_long calls;

/* Whether this call, to a file, is the one that fails. */
static int fails(const char *kind, int fd) {
    const char *wish = getenv("FAILING_CALL");
    struct stat status;
    size_t len = strlen(kind);
    if (!wish || strncmp(wish, kind, len) || wish[len] != ':') return 0;
    if (fstat(fd, &status) || !S_ISREG(status.st_mode)) return 0;
    return atomic_fetch_add(&calls, 1) + 1 == atol(wish + len + 1);
}

#define REAL(name, type) static type real; if (!real) real = (type)dlsym(RTLD_NEXT, name)

typedef ssize_t (*write_call)(int, const void *, size_t);
typedef ssize_t (*pwrite_call)(int, const void *, size_t, off64_t);
typedef int (*sync_call)(int);

ssize_t write(int fd, const void *bytes, size_t len) {
    REAL("write", write_call);
    if (fails("write", fd)) { errno = ENOSPC; return -1; }
    return real(fd, bytes, len);
}
ssize_t pwrite64(int fd, const void *bytes, size_t len, off64_t at) {
    REAL("pwrite64", pwrite_call);
    if (fails("write", fd)) { errno = ENOSPC; return -1; }
    return real(fd, bytes, len, at);
}
int fsync(int fd) {
    REAL("fsync", sync_call);
    if (fails("fsync", fd)) { errno = EIO; return -1; }
    return real(fd);
}
int fdatasync(int fd) {
    REAL("fdatasync", sync_call);
    if (fails("fsync", fd)) { errno = EIO; return -1; }
    return real(fd);
}
"#;

/// The library, if it can be made and has an effect on the program.
fn shim(folder: &Path) -> Option<PathBuf> {
    let (source, library) = (folder.join("shim.c"), folder.join("shim.so"));
    std::fs::write(&source, SHIM).unwrap();
    let made = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([&library, &source])
        .arg("-ldl")
        .output();
    match made {
        Ok(output) if output.status.success() => Some(library),
        _ => {
            eprintln!("there is no C compiler: failing calls are not tested");
            None
        }
    }
}

struct Case<'a> {
    shim: &'a Path,
    arguments: Vec<&'a str>,
    output: &'a Path,
}

impl Case<'_> {
    fn run(&self, failing: &str) -> Output {
        command(&self.arguments)
            .arg("-o")
            .arg(self.output)
            .args(["-O", "--fsync", "--threads", "2"])
            .env("LD_PRELOAD", self.shim)
            .env("FAILING_CALL", failing)
            .output()
            .expect("the program can be run")
    }

    /// Lets one call after the other fail until there is none left. Gives how many there were.
    fn fail_each(&self, kind: &str, message: &str) -> usize {
        let folder = self.output.parent().unwrap();
        for call in 1..=2000 {
            std::fs::write(self.output, "as it was").unwrap();
            let result = self.run(&format!("{kind}:{call}"));
            let said = stderr(&result);
            let what = format!("{:?}, {kind} {call}: {said}", self.arguments);
            let left: Vec<_> = std::fs::read_dir(folder)
                .unwrap()
                .map(|e| e.unwrap().file_name())
                .collect();
            assert_eq!(left.len(), 1, "{what}: {left:?}");
            if result.status.success() {
                assert_ne!(std::fs::read(self.output).unwrap(), b"as it was", "{what}");
                return call - 1;
            }
            assert_eq!(result.status.code(), Some(1), "{what}");
            assert_eq!(said.lines().count(), 1, "{what}");
            assert!(said.contains(message), "{what}");
            assert!(
                said.contains(folder.to_str().unwrap()),
                "the file is named: {what}"
            );
            // Once the folder is flushed the file has its name, and it is whole.
            let now = std::fs::read(self.output).unwrap();
            let whole = now != b"as it was";
            assert!(!whole || kind == "fsync" && call > 1, "{what}");
        }
        panic!("{:?} does not end", self.arguments);
    }
}

#[test]
fn outputs_survive_each_failing_call() {
    let folder = tempfile::tempdir().unwrap();
    let Some(shim) = shim(folder.path()) else { return };
    let out = folder.path().join("out");
    std::fs::create_dir(&out).unwrap();
    let data = |name: &str| format!("{}/../../data/{name}.osm.pbf", env!("CARGO_MANIFEST_DIR"));
    let (monaco, andorra) = (data("monaco"), data("andorra"));
    let cases: [(&[&str], &str); 10] = [
        (&["cat", &monaco], "a.osm.pbf"),
        (&["cat", &monaco, &andorra, "--direct-io"], "a.osm.pbf"),
        (&["cat", &monaco, "--compression", "zstd"], "a.osm.pbf"),
        (&["cat", "--dedupe", &monaco, &andorra], "a.osm.pbf"),
        (&["cat", &monaco], "a.osm"),
        (&["cat", &monaco], "a.osm.gz"),
        (&["extract", "-b", "7.41,43.72,7.43,43.74", &monaco], "a.osm.pbf"),
        (&["tags-filter", &monaco, "w/highway"], "a.opl"),
        (&["getid", "-r", &monaco, "w4097656"], "a.osm.pbf"),
        (&["add-locations-to-ways", &monaco], "a.osm.pbf"),
    ];
    for (arguments, name) in cases {
        let case = Case {
            shim: &shim,
            arguments: arguments.to_vec(),
            output: &out.join(name),
        };
        if case.run("write:1").status.success() {
            eprintln!("the library has no effect on the program: failing calls are not tested");
            return;
        }
        let writes = case.fail_each("write", "the disk is full");
        let flushes = case.fail_each("fsync", "Input/output error");
        assert!(
            writes > 0 && flushes > 0,
            "{arguments:?}: {writes} writes, {flushes} flushes"
        );
        std::fs::remove_file(case.output).unwrap();
    }
}
