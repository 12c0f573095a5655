//! Every file of the collections `odd` and `cases`: valid and odd ones are read rightly, malformed ones are
//! refused with one clear line and leave nothing behind.

mod common;

use std::path::{Path, PathBuf};

use common::{assert_refused, names, run, stderr};
use osmill_testkit::fixtures::{Class, files, odd_files, shared_data};
use osmill_testkit::osmium;

/// Files whose content `osmium` 1.15 reads wrongly or not at all, and the lines that are right. `osmium`'s
/// mistake stands in front.
fn right_where_osmium_is_wrong(name: &str) -> Option<Vec<String>> {
    let node = |id: i64, lon: &str, lat: &str| {
        format!("n{id} v1 dV c140000000 t2023-11-14T22:13:20Z i42 ualice T x{lon} y{lat}")
    };
    Some(match name {
        // Its OPL writer prints INT64_MIN as -8.
        "id-int64-extremes" => vec![
            node(i64::MIN, "7.40015", "43.7001"),
            node(i64::MAX, "7.4003", "43.7002"),
            node(-2, "7.40045", "43.7003"),
        ],
        // It keeps times in 32 unsigned bits: a time before 1970 comes out as 2106, one after 2106 not at all.
        "timestamps-extreme" => [
            ("", "7.40015", "43.7001"),
            ("1969-12-31T23:59:55Z", "7.4003", "43.7002"),
            ("2242-03-16T12:56:32Z", "7.40045", "43.7003"),
            ("2038-01-19T03:14:13Z", "7.4006", "43.7004"),
        ]
        .iter()
        .enumerate()
        .map(|(i, (time, lon, lat))| {
            format!("n{} v1 dV c140000000 t{time} i42 ualice T x{lon} y{lat}", i + 1)
        })
        .collect(),
        // It passes over repeated fields that are not packed, which protobuf allows.
        "unpacked-repeated" => {
            vec!["w1 v1 dV c140000000 t2023-11-14T22:13:20Z i42 ualice Thighway=residential Nn1,n2,n3".into()]
        }
        "G_unpacked" => vec!["w1 v0 dV c0 t i0 u Thighway=residential Nn1,n2".into()],
        "H_unpacked2" => vec!["w1 v0 dV c0 t i0 u Ta=b,c=d Nn1,n2".into()],
        // It has no zstd.
        "I_zstd" => vec!["n1 v0 dV c0 t i0 u Thighway=residential x1 y1".into()],
        // It stops at blobs of unknown type, which readers have to pass over.
        "N_index" => vec!["n1 v0 dV c0 t i0 u T x1 y1".into()],
        // It cuts the references where the locations end; here the others have none.
        "locations-on-ways-partial" => vec![
            "w1 v1 dV c140000000 t2023-11-14T22:13:20Z i42 ualice Thighway=residential \
             Nn1x7.40015y43.7001,n2x7.4003y43.7002,n3xy,n4xy"
                .into(),
        ],
        _ => return None,
    })
}

/// Files that `osmium` refuses although they are right, and how many nodes, ways and relations they have: zstd,
/// a blob type to pass over, a blob header of 63 KiB, a long value, control characters and a role that is not
/// UTF-8 (it reads those two, but cannot print them).
const REFUSED_BY_OSMIUM: [(&str, [u64; 3]); 7] = [
    ("comp-zstd-streaming-nosize", [100, 0, 0]),
    ("comp-mixed", [100, 16, 2]),
    ("unknown-blob-type", [100, 16, 0]),
    ("headerlen-63k", [100, 0, 0]),
    ("string-64k", [100, 0, 0]),
    ("string-nul-and-controls", [100, 0, 0]),
    ("fuzz-proto-18", [0, 0, 2]),
];

/// Files that the table calls valid or odd and that are refused all the same: the codec is not supported.
const UNSUPPORTED: [(&str, &str); 2] = [("comp-lzma", "lzma"), ("comp-bzip2-obsolete", "bzip2 (obsolete)")];

/// Files that the table calls malformed and that break no rule. Their bytes were changed at random: in the
/// first it hit a user's name and a latitude, in the second a role, which is not UTF-8 any more. What can be
/// told from a good file is told; nothing can be told here.
const HARMLESS: [&str; 2] = ["fuzz-proto-04", "fuzz-proto-18"];

/// Malformed in strings alone: what looks at ids or copies blobs does not read them.
const STRINGS_ONLY: [&str; 2] = ["kv-index-out-of-range", "T_badidx"];

fn name_of(path: &Path) -> String {
    path.file_name()
        .unwrap()
        .to_string_lossy()
        .replace(".osm.pbf", "")
}

fn opl(path: &Path) -> Vec<String> {
    let output = run([
        "cat".as_ref(),
        "-f".as_ref(),
        "opl".as_ref(),
        path.as_os_str(),
        "-o".as_ref(),
        "-".as_ref(),
    ]);
    assert!(output.status.success(), "{}: {}", path.display(), stderr(&output));
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

fn counts(path: &Path) -> [u64; 3] {
    let output = run([
        "inspect".as_ref(),
        "-e".as_ref(),
        "--json".as_ref(),
        path.as_os_str(),
    ]);
    assert!(output.status.success(), "{}: {}", path.display(), stderr(&output));
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    ["nodes", "ways", "relations"].map(|kind| value["data"]["count"][kind].as_u64().unwrap())
}

/// A readable file: all commands agree on it, and a copy has the same content.
fn assert_read(path: &Path, expected: Option<[u64; 3]>) {
    let name = name_of(path);
    let lines = opl(path);
    let counts = counts(path);
    let letters = ['n', 'w', 'r'].map(|letter| lines.iter().filter(|l| l.starts_with(letter)).count() as u64);
    assert_eq!(counts, letters, "{name}");
    if let Some(expected) = expected {
        assert_eq!(counts, expected, "{name}");
    }
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy.osm.pbf");
    let output = run(["cat".as_ref(), path.as_os_str(), "-o".as_ref(), copy.as_os_str()]);
    assert!(output.status.success(), "{name}: {}", stderr(&output));
    assert_eq!(opl(&copy), lines, "{name}: the copy");
    let output = run([
        "cat".as_ref(),
        "--compression".as_ref(),
        "zstd".as_ref(),
        path.as_os_str(),
        "-O".as_ref(),
        "-o".as_ref(),
        copy.as_os_str(),
    ]);
    assert!(output.status.success(), "{name}: {}", stderr(&output));
    assert_eq!(opl(&copy), lines, "{name}: the copy in zstd");
    let output = run([
        "check".as_ref(),
        "-r".as_ref(),
        "--ids".as_ref(),
        path.as_os_str(),
    ]);
    assert!(
        matches!(output.status.code(), Some(0 | 1)),
        "{name}: {}",
        stderr(&output)
    );
    // A false claim of the header is told; there is nothing else to say.
    let warned = stderr(&output).contains("the header says that the file is sorted");
    assert_eq!(
        warned,
        name == "claims-sorted-but-is-not",
        "{name}: {}",
        stderr(&output)
    );
    assert_eq!(output.stderr.is_empty(), !warned, "{name}: {}", stderr(&output));

    if let Some(right) = right_where_osmium_is_wrong(&name) {
        assert_eq!(lines, right, "{name}");
    } else if let Some((_, right)) = REFUSED_BY_OSMIUM.iter().find(|(odd, _)| *odd == name) {
        assert_eq!(counts, *right, "{name}");
    } else if osmium::available() {
        // Locations on ways are printed on demand there, and always here.
        let theirs = match lines
            .iter()
            .any(|line| line.starts_with('w') && line.contains('x') && name.contains("loc"))
        {
            true => osmium::opl_lines_with_locations(path),
            false => osmium::opl_lines(path),
        };
        assert_eq!(lines, theirs.unwrap(), "{name}");
    }
}

/// A malformed file: refused, and nothing is left of an output.
fn assert_malformed(path: &Path) {
    let name = name_of(path);
    let file = path.file_name().unwrap().to_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.osm.pbf");
    assert_refused(&run(["inspect".as_ref(), "-e".as_ref(), path.as_os_str()]), file);
    let text = folder.path().join("out.opl");
    assert_refused(
        &run(["cat".as_ref(), path.as_os_str(), "-o".as_ref(), text.as_os_str()]),
        file,
    );
    if !STRINGS_ONLY.contains(&&name[..]) {
        assert_refused(
            &run(["cat".as_ref(), path.as_os_str(), "-o".as_ref(), out.as_os_str()]),
            file,
        );
        assert_refused(&run(["check".as_ref(), path.as_os_str()]), file);
        assert_refused(
            &run([
                "cat".as_ref(),
                "-t".as_ref(),
                "way".as_ref(),
                path.as_os_str(),
                "-o".as_ref(),
                out.as_os_str(),
            ]),
            file,
        );
    }
    if out.exists() {
        std::fs::remove_file(&out).unwrap();
    }
    assert_eq!(names(folder.path()), [""; 0], "{name} left something behind");
    // A file that was there before is still the same.
    std::fs::write(&text, b"before").unwrap();
    assert_refused(
        &run([
            "cat".as_ref(),
            path.as_os_str(),
            "-O".as_ref(),
            "-o".as_ref(),
            text.as_os_str(),
        ]),
        file,
    );
    assert_eq!(std::fs::read(&text).unwrap(), b"before", "{name}");
    assert_eq!(names(folder.path()), ["out.opl"], "{name}");
    // The same bytes from standard input.
    let bytes = std::fs::read(path).unwrap();
    let output = common::run_with_input(["cat", "-f", "opl", "-", "-o", "-"], &bytes);
    assert_refused(&output, "standard input");
}

#[test]
fn odd_files_are_read_or_refused() {
    for odd in odd_files() {
        let name = name_of(&odd.path);
        if let Some((_, codec)) = UNSUPPORTED.iter().find(|(file, _)| *file == name) {
            assert_malformed(&odd.path);
            let output = run(["inspect".as_ref(), "-e".as_ref(), odd.path.as_os_str()]);
            assert!(stderr(&output).contains(codec), "{name}: {}", stderr(&output));
        } else if odd.class == Class::Malformed && !HARMLESS.contains(&&name[..]) {
            assert_malformed(&odd.path);
        } else {
            assert_read(&odd.path, odd.osmium.ok());
        }
    }
}

#[test]
fn files_beside_the_table_and_cases_are_read_or_refused() {
    let Some(shared) = shared_data() else { return };
    let known: Vec<PathBuf> = odd_files().into_iter().map(|odd| odd.path).collect();
    // A real file that ends in a frame; a changeset of -12, which `osmium` refuses, too; a required feature; a
    // string number out of range; columns of different lengths.
    let refused = [
        "real-truncated",
        "GranFileBlock1-deflate-osmbinary",
        "GranFileBlock1-none-osmbinary",
        "L_req",
        "T_badidx",
        "U_mismatch",
    ];
    let mut seen = 0;
    for path in files(&shared.join("odd"), ".pbf")
        .iter()
        .chain(&files(&shared.join("cases"), ".pbf"))
    {
        if known.contains(path) {
            continue;
        }
        seen += 1;
        if refused.contains(&&name_of(path)[..]) {
            assert_malformed(path);
        } else {
            assert_read(path, None);
        }
    }
    assert!(seen > 15, "{seen}");
}

#[test]
fn odd_strings_come_out_whole() {
    let Some(shared) = shared_data() else { return };
    let lines = |name: &str| opl(&shared.join("odd").join(name).with_extension("osm.pbf"));
    let long = lines("string-64k");
    let value = long
        .iter()
        .filter_map(|l| l.split_once("="))
        .map(|(_, v)| v)
        .find(|v| v.len() > 60_000);
    assert!(value.is_some_and(|v| v.starts_with("éééé") && v.split(' ').next().unwrap().len() == 65_000));
    let controls = lines("string-nul-and-controls");
    assert!(controls.iter().any(|line| line.contains("%00%")), "{controls:#?}");
    // The blobs of several codecs hold what the file with one codec holds.
    assert_eq!(lines("comp-mixed"), lines("good"));
}

#[test]
fn a_missing_file_and_a_folder_are_named() {
    for (path, what) in [("/no/such/file.osm.pbf", "No such file"), ("/tmp", "directory")] {
        let output = run(["inspect", path]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.lines().count() == 1 && said.contains(path) && said.contains(what),
            "{said}"
        );
    }
}

/// `-j` is JSON where osmium has it so, and the number of threads elsewhere.
#[test]
fn the_letter_of_json() {
    let monaco = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/monaco.osm.pbf");
    let json = common::run(["inspect", "-j", monaco]);
    let value: serde_json::Value = serde_json::from_slice(&json.stdout).expect("it is JSON");
    assert!(value["blobs"]["count"].is_u64());
    let threads = common::run(["inspect", "--threads", "1", "-g", "blobs.count", monaco]);
    assert_eq!(
        String::from_utf8_lossy(&threads.stdout).trim(),
        value["blobs"]["count"].to_string()
    );
    assert!(
        common::run(["check", "--ids", "-j", "1", monaco])
            .status
            .success()
    );
}
