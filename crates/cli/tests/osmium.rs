//! The program against `osmium`, on real files. Nothing is compared where `osmium` or the files are not there.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{command, run, stderr, stdout};
use osmill_testkit::fixtures::{extract, extracts, files, shared_data, small_extracts};
use osmill_testkit::osmium;
use serde_json::Value;

/// Asserts that two programs print the same, line by line, without keeping it.
#[track_caller]
fn assert_same_output(what: &str, mut ours: Command, mut theirs: Command) {
    let spawn = |command: &mut Command| {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = child.stdout.take().unwrap();
        (child, BufReader::with_capacity(1 << 20, stdout))
    };
    let (our_child, mut our_lines) = spawn(&mut ours);
    let (their_child, mut their_lines) = spawn(&mut theirs);
    let (mut a, mut b) = (Vec::new(), Vec::new());
    let mut number = 0;
    loop {
        a.clear();
        b.clear();
        let more =
            our_lines.read_until(b'\n', &mut a).unwrap() + their_lines.read_until(b'\n', &mut b).unwrap();
        number += 1;
        assert!(
            a == b,
            "{what}, line {number}:\n ours   {} theirs {}",
            String::from_utf8_lossy(&a),
            String::from_utf8_lossy(&b)
        );
        if more == 0 {
            break;
        }
    }
    for (name, child) in [("osmill", our_child), ("osmium", their_child)] {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{what}: {name}: {}", stderr(&output));
    }
}

fn osmium_command<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new("osmium");
    command.args(arguments);
    command
}

fn has_locations_on_ways(path: &Path) -> bool {
    let header = stdout(["inspect".as_ref(), "--json".as_ref(), path.as_os_str()]);
    let header: Value = serde_json::from_slice(&header).unwrap();
    header["header"]["option"]["locations_on_ways"] == "true"
}

/// Our lines of a file against the other program's lines of another.
#[track_caller]
fn assert_same_content(ours: &Path, theirs: &Path) {
    let format = match has_locations_on_ways(ours) {
        true => "opl,locations_on_ways=true",
        false => "opl",
    };
    assert_same_output(
        &ours.display().to_string(),
        command([
            "cat".as_ref(),
            "-j".as_ref(),
            "1".as_ref(),
            "-f".as_ref(),
            "opl".as_ref(),
            ours.as_os_str(),
            "-o".as_ref(),
            "-".as_ref(),
        ]),
        osmium_command([
            "cat".as_ref(),
            "-f".as_ref(),
            OsStr::new(format),
            theirs.as_os_str(),
        ]),
    );
}

/// Runs `test` on all of `items` by two threads.
fn in_parallel<T: Sync>(items: &[T], test: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    test(item);
                }
            });
        }
    });
}

#[test]
fn opl_is_the_same_line_by_line_for_every_real_file() {
    if !osmium::available() {
        return;
    }
    let mut all = extracts();
    if let Some(shared) = shared_data() {
        all.extend(files(&shared.join("history"), ".osh.pbf"));
        all.extend(files(&shared.join("history"), ".osm.pbf"));
    }
    in_parallel(&all, |path| {
        let header = osmium::run(["fileinfo".as_ref(), path.as_os_str()], b"").unwrap();
        if !header.status.success() {
            eprintln!("osmium cannot read {}", path.display());
            return;
        }
        assert_same_content(path, path);
    });
}

/// A few extracts of different origin: lz4, locations on ways, other writers, one with negative ids if there
/// is one; all of them with `all`.
fn sample(all: bool) -> Vec<PathBuf> {
    if all {
        let mut all = extracts();
        all.retain(|path| osmium::stdout(["fileinfo".as_ref(), path.as_os_str()], b"").is_ok());
        return all;
    }
    let mut sample: Vec<PathBuf> = [
        "saint_barthelemy-osmose-backend",
        "monaco.lz4-planetiler",
        "gibraltar-osmose-backend",
        "planet-planet-dump-ng",
    ]
    .iter()
    .filter_map(|name| extract(name))
    .collect();
    if sample.is_empty() {
        sample = small_extracts(4 << 20);
    }
    sample
}

/// osmium's lines, those of ways with their locations where the file says that it has them.
fn their_lines(path: &Path, arguments: &[&str]) -> Vec<u8> {
    let format = match has_locations_on_ways(path) {
        true => "opl,locations_on_ways=true",
        false => "opl",
    };
    let mut all: Vec<&OsStr> = vec![
        "cat".as_ref(),
        "-f".as_ref(),
        OsStr::new(format),
        path.as_os_str(),
    ];
    all.extend(arguments.iter().map(OsStr::new));
    osmium::stdout(all, b"").unwrap_or_else(|e| panic!("{e}"))
}

#[track_caller]
fn assert_equal_text(what: &str, ours: &[u8], theirs: &[u8]) {
    if ours == theirs {
        return;
    }
    for (i, (a, b)) in ours
        .split(|c| *c == b'\n')
        .zip(theirs.split(|c| *c == b'\n'))
        .enumerate()
    {
        assert!(
            a == b,
            "{what}, line {}:\n left  {}\n right {}",
            i + 1,
            String::from_utf8_lossy(a),
            String::from_utf8_lossy(b)
        );
    }
    panic!("{what}: {} bytes and {} bytes", ours.len(), theirs.len());
}

fn what_is_written_is_read_alike(all: bool) {
    if !osmium::available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let sample = sample(all);
    let numbered: Vec<(usize, &PathBuf)> = sample.iter().enumerate().collect();
    in_parallel(&numbered, |(number, path)| {
        let write = |arguments: &[&str]| {
            let out = folder.path().join(format!("{number}.osm.pbf"));
            let mut command = command([
                "cat".as_ref(),
                path.as_os_str(),
                "-O".as_ref(),
                "-o".as_ref(),
                out.as_os_str(),
            ]);
            let output = command.args(arguments).output().unwrap();
            assert!(output.status.success(), "{}: {}", path.display(), stderr(&output));
            out
        };
        let original = their_lines(path, &[]);
        for options in [
            &[][..],
            &["--compression", "none"],
            &["--compression", "lz4"],
            &["--compression", "zlib:1"],
        ] {
            let out = write(options);
            assert_equal_text(
                &format!("{} {options:?}", path.display()),
                &their_lines(&out, &[]),
                &original,
            );
        }
        for (ours, theirs) in [
            ("node", "node"),
            ("way", "way"),
            ("relation", "relation"),
            ("node,relation", "node"),
        ] {
            let out = write(&["-t", ours]);
            let mut wanted = vec!["-t", theirs];
            if ours.contains(',') {
                wanted.extend(["-t", "relation"]);
            }
            assert_equal_text(
                &format!("{} -t {ours}", path.display()),
                &their_lines(&out, &[]),
                &their_lines(path, &wanted),
            );
        }
        for attribute in ["version", "timestamp", "changeset", "uid", "user"] {
            let out = write(&["-c", attribute]);
            let wanted = their_lines(path, &["-c", attribute]);
            let what = format!("{} -c {attribute}", path.display());
            assert_equal_text(&what, &their_lines(&out, &[]), &wanted);
            // The same when it is printed right away.
            let printed = stdout([
                "cat".as_ref(),
                "-f".as_ref(),
                "opl".as_ref(),
                "-c".as_ref(),
                attribute.as_ref(),
                path.as_os_str(),
                "-o".as_ref(),
                "-".as_ref(),
            ]);
            assert_equal_text(&what, &printed, &wanted);
        }
        let out = write(&[
            "-c",
            "user",
            "-c",
            "uid",
            "-c",
            "changeset",
            "-t",
            "way",
            "--compression",
            "zlib:12",
        ]);
        let wanted = their_lines(path, &["-c", "user", "-c", "uid", "-c", "changeset", "-t", "way"]);
        assert_equal_text(
            &format!("{}, several", path.display()),
            &their_lines(&out, &[]),
            &wanted,
        );
    });
}

#[test]
fn osmium_reads_what_is_written_as_the_same() {
    what_is_written_is_read_alike(false);
}

#[test]
#[ignore = "every extract in fifteen forms: minutes"]
fn osmium_reads_what_is_written_as_the_same_for_every_extract() {
    what_is_written_is_read_alike(true);
}

/// The lines of a merge by the rule of `cat --dedupe`, from the lines of the inputs: the highest version, then
/// the latest time, then the first input.
fn newest_of(inputs: &[Vec<u8>]) -> Vec<String> {
    type Place = (u8, bool, u64);
    type Age = (i64, String);
    let mut newest: BTreeMap<Place, (Age, String)> = BTreeMap::new();
    for input in inputs {
        for line in String::from_utf8_lossy(input).lines() {
            let field = |letter: char| {
                let word = line.split(' ').find(|word| word.starts_with(letter));
                word.map(|word| word[1..].to_owned()).unwrap_or_default()
            };
            let kind = "nwr".find(&line[..1]).unwrap() as u8;
            let id: i64 = line[1..].split(' ').next().unwrap().parse().unwrap();
            let key = (kind, id > 0, id.unsigned_abs());
            let age = (field('v').parse::<i64>().unwrap(), field('t'));
            match newest.get(&key) {
                Some((known, _)) if *known >= age => {}
                _ => {
                    newest.insert(key, (age, line.to_owned()));
                }
            }
        }
    }
    newest.into_values().map(|(_, line)| line).collect()
}

#[test]
fn merges_of_overlapping_extracts_keep_the_newest() {
    if !osmium::available() {
        return;
    }
    // The same country at different times, from different sources.
    let groups: Vec<Vec<PathBuf>> = [
        &["andorra-planetiler", "andorra-osm2gpd", "andorra-geodude"][..],
        &["monaco-osrm-backend", "monaco.lz4-planetiler"],
    ]
    .iter()
    .map(|names| names.iter().filter_map(|name| extract(name)).collect::<Vec<_>>())
    .filter(|paths| paths.len() > 1)
    .collect();
    let folder = tempfile::tempdir().unwrap();
    for paths in groups {
        // The other program needs sorted inputs, too, and cannot be told to keep the newest: it keeps every
        // version, so that its lines are the union of the inputs' lines.
        let lines: Vec<Vec<u8>> = paths.iter().map(|path| their_lines(path, &[])).collect();
        let out = folder.path().join("merged.osm.pbf");
        let mut command = command(["cat", "--dedupe", "-O"]);
        let output = command.arg("-o").arg(&out).args(&paths).output().unwrap();
        assert!(output.status.success(), "{paths:?}: {}", stderr(&output));
        let merged = their_lines(&out, &[]);
        let merged: Vec<String> = String::from_utf8_lossy(&merged)
            .lines()
            .map(str::to_owned)
            .collect();
        let expected = newest_of(&lines);
        assert_eq!(merged.len(), expected.len(), "{paths:?}");
        for (ours, right) in merged.iter().zip(&expected) {
            assert_eq!(ours, right, "{paths:?}");
        }
        let mut union: Vec<&OsStr> = vec!["merge".as_ref(), "-f".as_ref(), "opl".as_ref()];
        union.extend(paths.iter().map(|path| path.as_os_str()));
        let union = osmium::stdout(union, b"").unwrap();
        // Of a version that several inputs have, either program may take another's tags or user.
        let versions = |lines: Vec<String>| -> Vec<String> {
            let words = |line: &String| {
                let words: Vec<&str> = line.split(' ').collect();
                [words[0], words[1], words[4]].join(" ")
            };
            lines.iter().map(words).collect()
        };
        let (union, expected) = (versions(newest_of(&[union])), versions(expected));
        for (theirs, right) in union.iter().zip(&expected) {
            assert_eq!(
                theirs, right,
                "{paths:?}: both programs merge to the same newest versions"
            );
        }
        assert_eq!(union.len(), expected.len(), "{paths:?}");
        let good = run(["check".as_ref(), "--ids".as_ref(), out.as_os_str()]);
        assert_eq!(good.status.code(), Some(0), "{paths:?}");
    }
}

fn json(arguments: &[&OsStr]) -> Value {
    let output = run(arguments);
    assert!(
        matches!(output.status.code(), Some(0 | 1)),
        "{arguments:?}: {}",
        stderr(&output)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A number that osmium prints after a label.
fn number_after(text: &str, label: &str) -> u64 {
    let rest = text
        .split_once(label)
        .unwrap_or_else(|| panic!("'{label}' in {text}"))
        .1;
    rest.trim_start()
        .split(|c: char| !c.is_ascii_digit())
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

fn references_are_checked_alike(all: bool) {
    if !osmium::available() {
        return;
    }
    in_parallel(&sample(all), |path| {
        let sorted = stdout([
            "inspect".as_ref(),
            "-e".as_ref(),
            "-g".as_ref(),
            "data.objects_ordered".as_ref(),
            path.as_os_str(),
        ]);
        if !sorted.starts_with(b"true") {
            eprintln!(
                "{} is not sorted, as osmium check-refs has to have it",
                path.display()
            );
            return;
        }
        let ours = json(&[
            "check".as_ref(),
            "--refs".as_ref(),
            "-r".as_ref(),
            "-i".as_ref(),
            "--json".as_ref(),
            path.as_os_str(),
        ]);
        let ours = &ours["refs"];
        let theirs = osmium::run(
            [
                "check-refs".as_ref(),
                "-r".as_ref(),
                "-i".as_ref(),
                path.as_os_str(),
            ],
            b"",
        )
        .unwrap();
        let text = stderr(&theirs);
        if !matches!(theirs.status.code(), Some(0 | 1)) || !text.contains("Nodes     in ways") {
            eprintln!("osmium check-refs refuses {}: {text}", path.display());
            return;
        }
        assert_eq!(
            ours["missing_way_nodes"],
            number_after(&text, "Nodes     in ways      missing:"),
            "{}",
            path.display()
        );
        // It counts missing nodes and ways of relations once each, and missing relations as often as they are
        // referred to.
        for (kind, label) in [
            ("nodes", "Nodes     in relations missing:"),
            ("ways", "Ways      in relations missing:"),
        ] {
            let number = number_after(&text, label);
            assert_eq!(
                ours["missing_member_elements"][kind],
                number,
                "{}: {kind}\n{text}",
                path.display()
            );
        }
        let number = number_after(&text, "Relations in relations missing:");
        assert!(
            ours["missing_members"]["relations"] == number
                || ours["missing_member_elements"]["relations"] == number,
            "{}: {ours} {text}",
            path.display()
        );
        // Every missing element, from what refers to it.
        let mut listed: Vec<String> = String::from_utf8_lossy(&theirs.stdout)
            .lines()
            .map(str::to_owned)
            .collect();
        let mut found: Vec<String> = ours["dangling"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|d| {
                format!(
                    "{} in {}",
                    d["missing"].as_str().unwrap(),
                    d["from"].as_str().unwrap()
                )
            })
            .collect();
        listed.sort();
        found.sort();
        found.dedup();
        // It lists nodes and ways that members lack once, from the first relation that refers to them; here
        // each reference is listed.
        for line in &listed {
            assert!(found.binary_search(line).is_ok(), "{}: {line}", path.display());
        }
        let of_ways = |lines: &[String]| -> Vec<String> {
            lines
                .iter()
                .filter(|line| line.contains(" in w"))
                .cloned()
                .collect()
        };
        let mut in_ways = of_ways(&listed);
        in_ways.dedup();
        assert_eq!(of_ways(&found), in_ways, "{}", path.display());
        let elements = |lines: &[String]| -> BTreeSet<String> {
            lines
                .iter()
                .map(|line| line.split(' ').next().unwrap().to_owned())
                .collect()
        };
        assert_eq!(elements(&found), elements(&listed), "{}", path.display());
    });
}

#[test]
fn references_are_checked_as_osmium_does() {
    references_are_checked_alike(false);
}

#[test]
#[ignore = "every extract: a minute"]
fn references_are_checked_as_osmium_does_in_every_extract() {
    references_are_checked_alike(true);
}

fn inspection_is_alike(all: bool) {
    if !osmium::available() {
        return;
    }
    in_parallel(&sample(all), |path| {
        let name = path.display();
        let ours = json(&[
            "inspect".as_ref(),
            "-e".as_ref(),
            "--json".as_ref(),
            path.as_os_str(),
        ]);
        let theirs = osmium::stdout(
            [
                "fileinfo".as_ref(),
                "-e".as_ref(),
                "-j".as_ref(),
                path.as_os_str(),
            ],
            b"",
        )
        .unwrap();
        let theirs: Value = serde_json::from_slice(&theirs).unwrap();
        let (data, right) = (&ours["data"], &theirs["data"]);
        for kind in ["nodes", "ways", "relations"] {
            assert_eq!(data["count"][kind], right["count"][kind], "{name}");
            // It gives 0 where there is none, and the extremes by number where ids are negative.
            if data["count"][kind] != 0 && data["negative_ids"][kind] == 0 {
                assert_eq!(data["minid"][kind], right["minid"][kind], "{name}");
                assert_eq!(data["maxid"][kind], right["maxid"][kind], "{name}");
            }
        }
        // An element without a time makes it print no first time; such elements are left out here.
        if right["timestamp"]["first"] == "" {
            assert_eq!(ours["metadata"]["all_objects"]["timestamp"], false, "{name}");
        } else {
            assert_eq!(data["timestamp"]["first"], right["timestamp"]["first"], "{name}");
            assert_eq!(data["timestamp"]["last"], right["timestamp"]["last"], "{name}");
        }
        let edges = |value: &Value| -> Vec<i64> {
            let numbers = value
                .as_array()
                .into_iter()
                .flatten()
                .flat_map(|edge| match edge {
                    Value::Array(pair) => pair.clone(),
                    number => vec![number.clone()],
                });
            numbers
                .map(|n| (n.as_f64().unwrap() * 1e7).round() as i64)
                .collect()
        };
        assert_eq!(edges(&data["bbox"]), edges(&right["bbox"]), "{name}");
        assert_eq!(data["objects_ordered"], right["objects_ordered"], "{name}");
        assert_eq!(
            ours["header"]["with_history"], theirs["header"]["with_history"],
            "{name}"
        );
        for (ours, theirs) in ours["header"]["boxes"]
            .as_array()
            .into_iter()
            .flatten()
            .zip(theirs["header"]["boxes"].as_array().into_iter().flatten())
        {
            // It cuts nanodegrees off where they are rounded here.
            for (a, b) in edges(ours).iter().zip(edges(theirs)) {
                assert!((a - b).abs() <= 1, "{name}: {ours} {theirs}");
            }
        }
        for attribute in ["version", "timestamp", "changeset", "uid", "user"] {
            for scope in ["all_objects", "some_objects"] {
                let (key, value) = (&ours["metadata"][scope], &right["metadata"][scope]);
                assert_eq!(key[attribute], value[attribute], "{name} {scope} {attribute}");
            }
        }
    });
}

#[test]
fn inspection_says_what_fileinfo_says() {
    inspection_is_alike(false);
}

#[test]
#[ignore = "every extract: a minute"]
fn inspection_says_what_fileinfo_says_of_every_extract() {
    inspection_is_alike(true);
}

fn tags_are_counted_alike(all: bool) {
    if !osmium::available() {
        return;
    }
    in_parallel(&sample(all), |path| {
        for (expression, memory) in [
            (&[][..], "1G"),
            (&["highway=*", "amenity=*", "name:*=*"], "64K"),
            (&["-t", "node", "highway=*"], "64K"),
        ] {
            let theirs: Vec<&OsStr> = ["tags-count".as_ref(), path.as_os_str()]
                .into_iter()
                .chain(expression.iter().map(OsStr::new))
                .collect();
            let theirs = osmium::stdout(theirs, b"").unwrap();
            let mut right: Vec<String> = String::from_utf8_lossy(&theirs)
                .lines()
                .map(|line| {
                    // Number, quoted key, quoted value if the expression asks for values.
                    line.split('\t')
                        .map(|field| field.trim_matches('"'))
                        .collect::<Vec<_>>()
                        .join("\t")
                })
                .collect();
            let mut ours = command(["inspect", "--tags", "--json", "--memory", memory]);
            ours.arg(if expression.is_empty() {
                "--only=keys"
            } else {
                "--only=tags"
            });
            let ours = ours.arg(path).args(expression).output().unwrap();
            assert!(ours.status.success(), "{}", stderr(&ours));
            let ours: Value = serde_json::from_slice(&ours.stdout).unwrap();
            let list = ours
                .as_array()
                .or(ours["tags"].as_array())
                .unwrap_or_else(|| panic!("{ours}"));
            let mut counts: Vec<String> = list
                .iter()
                .map(|tag| {
                    let text = |name: &str| tag[name].as_str().unwrap_or_default().replace('"', "");
                    match tag["value"].is_null() {
                        true => format!("{}\t{}", tag["count"], text("key")),
                        false => format!("{}\t{}\t{}", tag["count"], text("key"), text("value")),
                    }
                })
                .collect();
            right
                .iter_mut()
                .for_each(|line| *line = line.replace("\\\"", "").replace('"', ""));
            counts.sort();
            right.sort();
            assert_eq!(counts, right, "{} {expression:?}", path.display());
        }
    });
}

#[test]
fn tags_are_counted_as_osmium_does() {
    tags_are_counted_alike(false);
}

#[test]
#[ignore = "every extract: minutes"]
fn tags_are_counted_as_osmium_does_in_every_extract() {
    tags_are_counted_alike(true);
}
