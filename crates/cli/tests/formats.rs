//! Every format into every other: what `osmium` writes, byte for byte, and what it cannot do.

mod common;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{run, run_with_input, stderr, stdout};
use osmill_model::{Location, Metadata};
use osmill_pbf::{BlobType, BlockBuilder, Compression, Compressor, FileHeader, write_frame};
use osmill_testkit::fixtures::{extract, extracts, files, shared_data};
use osmill_testkit::osmium;

/// Formats that are made of each file, as suffixes of names.
const INPUTS: [&str; 5] = ["osm.pbf", "osm", "osh", "osc", "opl"];

/// The same in compressed form: what is in them was compared already.
const COMPRESSED: [&str; 4] = ["osm.gz", "osm.bz2", "osc.gz", "opl.gz"];

/// Formats that each of these is turned into.
const OUTPUTS: [&str; 12] = [
    "osm",
    "osh",
    "osc",
    "opl",
    "osm,locations_on_ways=false",
    "opl,locations_on_ways=false",
    "osm,add_metadata=false",
    "osm,add_metadata=version+timestamp",
    "osc,add_metadata=timestamp+changeset",
    "opl,add_metadata=uid+user+changeset",
    "osm,force_visible_flag=true",
    "opl,add_metadata=none",
];

fn words<'a>(words: impl IntoIterator<Item = &'a str>, path: &'a Path) -> Vec<&'a OsStr> {
    let mut all: Vec<&OsStr> = words.into_iter().map(OsStr::new).collect();
    all.push(path.as_os_str());
    all
}

/// What the other program prints.
fn theirs<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Result<Vec<u8>, osmium::OsmiumError> {
    osmium::stdout(arguments, b"")
}

/// A change file without the places where an action ends and the same one begins: the other program has some wherever
/// one of its buffers ends.
fn joined(text: Vec<u8>) -> Vec<u8> {
    let mut text = String::from_utf8(text).expect("extracts are UTF-8");
    for action in ["create", "modify", "delete"] {
        text = text.replace(&format!("  </{action}>\n  <{action}>\n"), "");
    }
    text.into_bytes()
}

/// The first line where two texts differ.
fn difference(ours: &[u8], theirs: &[u8]) -> Option<String> {
    if ours == theirs {
        return None;
    }
    let lines = ours.split(|b| *b == b'\n').zip(theirs.split(|b| *b == b'\n'));
    let shown = |line: &[u8]| String::from_utf8_lossy(&line[..line.len().min(300)]).into_owned();
    Some(match lines.enumerate().find(|(_, (a, b))| a != b) {
        Some((number, (a, b))) => format!("line {}:\n ours   {}\n theirs {}", number + 1, shown(a), shown(b)),
        None => format!("{} and {} bytes", ours.len(), theirs.len()),
    })
}

/// Whether a file has locations on its ways. They stay there unless they are unwanted; the other program keeps them
/// only on demand.
fn has_locations_on_ways(path: &Path) -> bool {
    let bytes = std::fs::read(path).expect("the file is there");
    bytes[..bytes.len().min(1 << 16)]
        .windows(15)
        .any(|window| window == b"LocationsOnWays")
}

/// Converts a file into these formats by both programs, and compares the bytes. `false` where the other program cannot
/// read the file.
fn same_text(path: &Path, outputs: &[&str]) -> bool {
    let located = has_locations_on_ways(path);
    for format in outputs {
        let their_format = match located && !format.contains("locations_on_ways") {
            true => format!("{format},locations_on_ways=true"),
            false => (*format).to_owned(),
        };
        let arguments = |format| words(["cat", "--generator=x", "-f", format, "-o", "-"], path);
        let Ok(mut their_text) = theirs(arguments(&their_format)) else {
            eprintln!("osmium cannot read {}", path.display());
            return false;
        };
        let text = stdout(arguments(format));
        if format.starts_with("osc") {
            their_text = joined(their_text);
        }
        assert_eq!(
            difference(&text, &their_text),
            None,
            "{} as {format}",
            path.display()
        );
    }
    true
}

/// Converts a file into every output format by both programs, and compares.
fn compare(path: &Path) {
    let name = path.display();
    if !same_text(path, &OUTPUTS) {
        return;
    }
    // PBF is compared by its elements; compressed text by what is in it.
    let folder = tempfile::tempdir().unwrap();
    let plain = stdout(words(
        ["cat", "-f", "opl,locations_on_ways=false", "-o", "-"],
        path,
    ));
    for suffix in ["osm.pbf", "osh.pbf", "osm.gz", "opl.bz2"] {
        let out = folder.path().join(format!("out.{suffix}"));
        stdout([
            OsStr::new("cat"),
            path.as_os_str(),
            OsStr::new("-o"),
            out.as_os_str(),
        ]);
        let read = theirs(words(["cat", "-f", "opl,locations_on_ways=false"], &out)).unwrap();
        // XML has no place for deletion, nor has a PBF file without history.
        if suffix.starts_with("os") && suffix != "osh.pbf" && plain.windows(4).any(|w| w == b" dD ") {
            continue;
        }
        let (read, plain) = match suffix {
            // Absent and 0 are the same in XML.
            "osm.gz" => as_xml(&out, path),
            _ => (read, plain.clone()),
        };
        assert_eq!(difference(&read, &plain), None, "{name} as {suffix}");
    }
}

fn as_xml(out: &Path, path: &Path) -> (Vec<u8>, Vec<u8>) {
    let format = "osm,locations_on_ways=false";
    (
        theirs(words(["cat", "--generator=x", "-f", format], out)).unwrap(),
        stdout(words(["cat", "--generator=x", "-f", format, "-o", "-"], path)),
    )
}

/// Makes a file in each of the formats, and compares what becomes of them.
fn compare_all(path: &Path) {
    let folder = tempfile::tempdir().unwrap();
    for suffix in INPUTS {
        let file = folder.path().join(format!("v1.2.{suffix}"));
        let made = theirs([
            OsStr::new("cat"),
            path.as_os_str(),
            OsStr::new("-o"),
            file.as_os_str(),
        ]);
        if made.is_err() {
            eprintln!("osmium cannot write {} as {suffix}", path.display());
            return;
        }
        compare(&file);
    }
    for suffix in COMPRESSED {
        let file = folder.path().join(format!("v1.2.{suffix}"));
        theirs([
            OsStr::new("cat"),
            path.as_os_str(),
            OsStr::new("-o"),
            file.as_os_str(),
        ])
        .expect("it was written without compression");
        same_text(&file, &["osm", "opl"]);
    }
    let o5m = folder.path().join("a.o5m");
    let made = std::process::Command::new("osmconvert")
        .arg(path)
        .arg(format!("-o={}", o5m.display()))
        .output();
    // Of what it cannot read it makes an empty file, and calls that success.
    let is_made = std::fs::metadata(&o5m).is_ok_and(|data| data.len() > 0);
    if !is_made || !made.is_ok_and(|output| output.status.success()) {
        eprintln!("osmconvert cannot make o5m of {}", path.display());
        return;
    }
    // The other program invents users where an o5m file has metadata without any.
    let lines = ["cat", "-f", "opl,locations_on_ways=false"];
    let original = theirs(words(lines, path)).expect("it was read before");
    if stdout(words(lines, &o5m)) == original
        && theirs(words(lines, &o5m)).is_ok_and(|lines| lines != original)
    {
        eprintln!("osmium does not read {} back from o5m", path.display());
        return;
    }
    compare(&o5m);
}

#[test]
fn a_small_file_converts_as_osmium_converts_them() {
    if !osmium::available() {
        return;
    }
    if let Some(path) = extract("cobb-county.filtered-opentripplanner") {
        compare_all(&path);
    }
}

#[test]
#[ignore = "every real file in every pair of formats: many minutes"]
fn all_files_convert_as_osmium_converts_them() {
    if !osmium::available() {
        return;
    }
    let mut all = extracts();
    all.extend(
        shared_data()
            .into_iter()
            .flat_map(|data| files(&data.join("history"), ".pbf")),
    );
    // Smallest first, and each file told: a run that is cut short has said something, too.
    all.sort_by_key(|path| std::fs::metadata(path).map_or(0, |data| data.len()));
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(path) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match std::panic::catch_unwind(|| compare_all(path)) {
                        Ok(()) => eprintln!("{}: the same", path.display()),
                        Err(_) => failed.lock().expect("nothing panics with it").push(path),
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("nothing panics with it");
    assert!(failed.is_empty(), "not the same: {failed:#?}");
}

/// A folder with small files of every format.
fn small() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.osm");
    let text = r#"<?xml version='1.0' encoding='UTF-8'?>
<osm version="0.6" upload="never" generator="x">
  <bounds minlat="1" minlon="2" maxlat="3" maxlon="4"/>
  <bounds minlat="11" minlon="12" maxlat="13" maxlon="14"/>
  <node id="1" version="3" timestamp="2005-04-09T19:54:13Z" uid="7" user="a &amp; b" changeset="5" lat="1.5" lon="2.25">
    <tag k="name" v="&lt;Straße&gt;"/>
  </node>
  <node id="2" lat="-0.0000001" lon="180"/>
  <way id="1" version="1">
    <nd ref="1"/>
    <nd ref="2"/>
  </way>
  <relation id="1" version="2">
    <member type="way" ref="1" role="outer"/>
  </relation>
</osm>
"#;
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

#[test]
fn xml_comes_back_from_every_format_as_it_was() {
    let (folder, path) = small();
    let text = std::fs::read(&path).unwrap();
    let mut last = path.clone();
    for suffix in ["osm.gz", "osm.bz2", "xml"] {
        let next = folder.path().join(format!("b.{suffix}"));
        stdout([
            OsStr::new("cat"),
            last.as_os_str(),
            "-o".as_ref(),
            next.as_os_str(),
            "--generator=x".as_ref(),
        ]);
        last = next;
    }
    assert_eq!(std::fs::read(&last).unwrap(), text);
    // Formats with one rectangle or none keep that, and the elements.
    let elements = |text: &[u8]| -> Vec<String> {
        let text = String::from_utf8(text.to_vec()).unwrap();
        let lines = text
            .lines()
            .filter(|line| !line.contains("<bounds") && !line.contains("<osm"));
        lines.map(str::to_owned).collect()
    };
    for suffix in ["osm.pbf", "opl", "opl.gz", "pbf"] {
        let next = folder.path().join(format!("c.{suffix}"));
        stdout([
            OsStr::new("cat"),
            path.as_os_str(),
            "-o".as_ref(),
            next.as_os_str(),
        ]);
        let back = stdout(words(["cat", "-f", "osm", "-o", "-"], &next));
        assert_eq!(elements(&back), elements(&text), "{suffix}");
        let bounds = String::from_utf8(back).unwrap();
        let whole = r#"<bounds minlat="1" minlon="2" maxlat="13" maxlon="14"/>"#;
        assert_eq!(bounds.contains(whole), suffix.ends_with("pbf"), "{suffix}");
    }
}

#[test]
fn inputs_of_several_formats_are_one_output() {
    let (folder, path) = small();
    let mut all = vec![path.clone()];
    for suffix in ["osm.pbf", "opl.bz2", "osm.gz"] {
        let next = folder.path().join(format!("d.{suffix}"));
        stdout([
            OsStr::new("cat"),
            path.as_os_str(),
            "-o".as_ref(),
            next.as_os_str(),
        ]);
        all.push(next);
    }
    let one = stdout(words(["cat", "-f", "opl", "-o", "-"], &path));
    let mut arguments = vec![
        "cat".as_ref(),
        "-f".as_ref(),
        "opl".as_ref(),
        "-o".as_ref(),
        OsStr::new("-"),
    ];
    arguments.extend(all.iter().map(|path| path.as_os_str()));
    assert_eq!(stdout(&arguments), one.repeat(4));
    // One of them through a pipe.
    arguments[5] = OsStr::new("-");
    let piped = run_with_input(&arguments, &std::fs::read(&path).unwrap());
    assert_eq!(piped.stdout, one.repeat(4), "{}", stderr(&piped));
    // Merged, each element is there once.
    arguments[5] = path.as_os_str();
    arguments.push("--dedupe".as_ref());
    assert_eq!(stdout(&arguments), one);
}

#[test]
fn a_format_without_an_output_is_for_standard_output() {
    let (_folder, path) = small();
    let told = stdout(words(["cat", "-f", "opl", "-o", "-"], &path));
    assert_eq!(stdout(words(["cat", "-f", "opl"], &path)), told);
    assert_eq!(run(words(["cat"], &path)).status.code(), Some(2));
}

#[test]
fn names_do_not_deceive() {
    let (folder, path) = small();
    let one = stdout(words(["cat", "-f", "opl", "-o", "-"], &path));
    let pbf = folder.path().join("really.pbf");
    stdout([
        OsStr::new("cat"),
        path.as_os_str(),
        "-o".as_ref(),
        pbf.as_os_str(),
    ]);
    for (from, name) in [
        (&path, "text.osm.pbf"),
        (&pbf, "blobs.osm.gz"),
        (&path, "no-suffix"),
        (&pbf, "a.txt"),
    ] {
        let renamed = folder.path().join(name);
        std::fs::copy(from, &renamed).unwrap();
        assert_eq!(
            stdout(words(["cat", "-f", "opl", "-o", "-"], &renamed)),
            one,
            "{name}"
        );
    }
    let empty = folder.path().join("empty.opl");
    std::fs::write(&empty, "").unwrap();
    assert_eq!(stdout(words(["cat", "-f", "opl", "-o", "-"], &empty)), b"");
    assert_eq!(
        stdout(["cat", "-F", "opl", "-", "-f", "osm", "-o", "-", "--generator=x"]),
        { b"<?xml version='1.0' encoding='UTF-8'?>\n<osm version=\"0.6\" generator=\"x\">\n</osm>\n" }
    );
    let refused = run(words(
        ["cat", "-f", "pbf", "-o", "-"],
        &folder.path().join("empty.osm"),
    ));
    assert_eq!(refused.status.code(), Some(2));
    for name in ["out.o5m", "out.geojson"] {
        let out = folder.path().join(name);
        let refused = run([
            OsStr::new("cat"),
            path.as_os_str(),
            "-o".as_ref(),
            out.as_os_str(),
        ]);
        assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
        assert!(stderr(&refused).contains(name) && !out.exists());
    }
}

#[test]
fn every_command_takes_text_and_gives_text() {
    let (folder, path) = small();
    let lines = |arguments: &[&str]| -> Vec<String> {
        let output = run(words(arguments.iter().copied(), &path));
        assert!(
            matches!(output.status.code(), Some(0 | 1)),
            "{arguments:?}: {}",
            stderr(&output)
        );
        let text = String::from_utf8(output.stdout).unwrap();
        let ids = text
            .lines()
            .map(|line| line.split(' ').next().unwrap_or_default().to_owned());
        ids.collect()
    };
    let out = ["-f", "opl", "-o", "-"];
    let with = |command: &[&'static str]| [command, &out].concat();
    assert_eq!(
        lines(&with(&["extract", "-b", "1,1,3,3"])),
        ["n1", "n2", "w1", "r1"]
    );
    assert_eq!(
        lines(&with(&["add-locations-to-ways", "-n"])),
        ["n1", "n2", "w1", "r1"]
    );
    let filter = run([
        &words(["tags-filter"], &path)[..],
        &["name", "-f", "opl", "-o", "-"].map(OsStr::new),
    ]
    .concat());
    assert!(String::from_utf8(filter.stdout).unwrap().starts_with("n1 "));
    for (command, expected) in [("getid", "w1 "), ("removeid", "n1 "), ("getparents", "r1 ")] {
        let arguments = [
            &words([command], &path)[..],
            &["w1", "-f", "opl", "-o", "-"].map(OsStr::new),
        ]
        .concat();
        let output = run(&arguments);
        assert!(
            output.stdout.starts_with(expected.as_bytes()),
            "{command}: {}",
            stderr(&output)
        );
    }
    assert_eq!(
        run(words(["check", "-r", "--refs"], &path)).status.code(),
        Some(0)
    );
    let inspected = String::from_utf8(stdout(words(["inspect"], &path))).unwrap();
    assert!(
        inspected.contains("OSM XML") && inspected.contains("(12.0,11.0,14.0,13.0)")
            || inspected.contains("(12,11,14,13)"),
        "{inspected}"
    );
    assert_eq!(
        stdout(words(["inspect", "-g", "data.count.nodes"], &path)),
        b"2\n"
    );
    let blocks = run(words(["inspect", "--blocks"], &path));
    assert_eq!(blocks.status.code(), Some(2));
    assert!(stderr(&blocks).contains("only PBF has"), "{}", stderr(&blocks));
    let store = folder.path().join("store");
    run([
        OsStr::new("nodes"),
        "build".as_ref(),
        path.as_os_str(),
        store.as_os_str(),
    ]);
    assert_eq!(
        stdout([
            OsStr::new("nodes"),
            "get".as_ref(),
            store.as_os_str(),
            "1".as_ref()
        ]),
        b"n1 x2.25 y1.5\n"
    );
}

/// Changes keep what they are: in OsmChange, also where a creation has another version than 1.
#[test]
fn changes_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.osc");
    let text = r#"<?xml version='1.0' encoding='UTF-8'?>
<osmChange version="0.6" generator="x">
  <create>
    <node id="1" version="4" lat="1" lon="2"/>
  </create>
  <modify>
    <node id="2" version="1" lat="1" lon="2"/>
  </modify>
  <delete>
    <node id="3" version="2" lat="5" lon="6"/>
    <way id="4" version="2"/>
  </delete>
</osmChange>
"#;
    std::fs::write(&path, text).unwrap();
    let out = folder.path().join("d.osc.gz");
    stdout([
        OsStr::new("cat"),
        path.as_os_str(),
        "-o".as_ref(),
        out.as_os_str(),
        "--generator=x".as_ref(),
    ]);
    let back = stdout(words(["cat", "-f", "osc", "--generator=x", "-o", "-"], &out));
    assert_eq!(String::from_utf8(back).unwrap(), text);
    let got = [
        &words(["getid"], &out)[..],
        &["n1", "n3", "-f", "osc", "--generator=x", "-o", "-"].map(OsStr::new),
    ]
    .concat();
    let got = String::from_utf8(stdout(got)).unwrap();
    assert!(
        got.contains("<create>\n    <node id=\"1\"") && got.contains("<delete>\n    <node id=\"3\""),
        "{got}"
    );
    // Every other format has what it can tell of that.
    let opl = String::from_utf8(stdout(words(["cat", "-f", "opl", "-o", "-"], &path))).unwrap();
    assert!(
        opl.lines()
            .nth(2)
            .is_some_and(|line| line.starts_with("n3 v2 dD ")),
        "{opl}"
    );
    let pbf = folder.path().join("c.osc.pbf");
    stdout([
        OsStr::new("cat"),
        path.as_os_str(),
        "-o".as_ref(),
        pbf.as_os_str(),
    ]);
    let header = String::from_utf8(stdout(words(["inspect"], &pbf))).unwrap();
    assert!(header.contains("HistoricalInformation"), "{header}");
}

#[test]
fn options_of_pbf_are_acted_upon() {
    let (folder, path) = small();
    let write = |format: &str| {
        let out = folder.path().join("o.osm.pbf");
        stdout([
            OsStr::new("cat"),
            path.as_os_str(),
            "-O".as_ref(),
            "-f".as_ref(),
            format.as_ref(),
            "-o".as_ref(),
            out.as_os_str(),
        ]);
        out
    };
    let text = |path: &Path| stdout(words(["cat", "-f", "opl", "-o", "-"], path));
    let one = text(&path);
    for (codec, format) in [
        ("none", "none"),
        ("zlib", "zlib"),
        ("lz4", "lz4"),
        ("zstd", "zstd,pbf_compression_level=5"),
    ] {
        let out = write(&format!("pbf,pbf_compression={format}"));
        let blocks = String::from_utf8(stdout(words(["inspect"], &out))).unwrap();
        assert!(blocks.contains(codec), "{format}: {blocks}");
        assert_eq!(text(&out), one);
    }
    let dense = std::fs::metadata(write("pbf,pbf_compression=none"))
        .unwrap()
        .len();
    let out = write("pbf,pbf_compression=none,pbf_dense_nodes=false");
    assert_ne!(std::fs::metadata(&out).unwrap().len(), dense);
    assert_eq!(text(&out), one);
    assert!(
        !String::from_utf8(stdout(words(["inspect"], &out)))
            .unwrap()
            .contains("DenseNodes")
    );
    // A PBF input is coded anew for that.
    let copy = folder.path().join("copy.osm.pbf");
    stdout([
        OsStr::new("cat"),
        out.as_os_str(),
        "-o".as_ref(),
        copy.as_os_str(),
        "-f".as_ref(),
        ",pbf_compression=lz4,add_metadata=version".as_ref(),
    ]);
    let stripped = String::from_utf8(text(&copy)).unwrap();
    assert!(stripped.starts_with("n1 v3 dV c0 t i0 u T"), "{stripped}");
    let history = String::from_utf8(stdout(words(["inspect"], &write("pbf,history=true")))).unwrap();
    assert!(history.contains("HistoricalInformation"));
}

/// A compressed file in several streams, cut anywhere, is read to its end.
#[test]
fn several_streams_are_one_file() {
    let Some(data) = shared_data() else { return };
    for name in ["ms.osm.gz", "ms.osm.bz2"] {
        let path = data.join("cases").join(name);
        let text = stdout(words(["cat", "-f", "opl", "-o", "-"], &path));
        assert_eq!(text.iter().filter(|b| **b == b'\n').count(), 3, "{name}");
    }
}

/// Runs `cat` on text; gives its exit code, what it printed, and what it said.
fn cat_text(text: &str) -> (Option<i32>, String, String) {
    let output = run_with_input(["cat", "-", "-f", "opl", "-o", "-"], text.as_bytes());
    let printed = String::from_utf8(output.stdout.clone()).unwrap();
    (output.status.code(), printed, stderr(&output))
}

#[test]
fn unknown_children_are_passed_over_with_one_warning() {
    let way = r#"<way id="1" version="2"><bbox minlat="1" minlon="1" maxlat="2" maxlon="2"/><bounds minlat="1" minlon="1" maxlat="2" maxlon="2"/><nd ref="1"/></way>"#;
    let (code, printed, said) = cat_text(&format!(
        "<osmChange version=\"0.6\"><modify>{way}{way}</modify></osmChange>"
    ));
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(printed.lines().count(), 2);
    assert_eq!(said.matches("bbox").count(), 1, "{said}");
}

#[test]
fn wrong_values_are_named_with_their_place() {
    let (code, _, said) =
        cat_text("<osm version=\"0.6\">\n  <node id=\"5\" lat=\"91\" lon=\"0\"/>\n</osm>\n");
    assert_eq!(code, Some(2));
    for part in ["line 2", "node 5", "lat", "'91'"] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn times_with_offsets_and_fractions_are_read() {
    for (time, expected) in [
        ("2005-04-09T19:54:13+00:00", "t2005-04-09T19:54:13Z"),
        ("2005-04-09T21:54:13+02:00", "t2005-04-09T19:54:13Z"),
        ("2005-04-09T19:54:13.123Z", "t2005-04-09T19:54:13Z"),
    ] {
        let (code, printed, said) = cat_text(&format!(
            "<osm version=\"0.6\"><node id=\"1\" timestamp=\"{time}\" lat=\"1\" lon=\"1\"/></osm>"
        ));
        assert_eq!(code, Some(0), "{said}");
        assert!(printed.contains(expected), "{printed}");
    }
}

#[test]
fn long_values_are_kept_whole_and_nothing_is_left_after_an_error() {
    let long = "x".repeat(70_000);
    let text = format!(
        "<osm version=\"0.6\"><node id=\"1\" lat=\"1\" lon=\"1\"><tag k=\"k\" v=\"{long}\"/></node></osm>"
    );
    let (code, printed, said) = cat_text(&text);
    assert_eq!(code, Some(0), "{said}");
    assert!(printed.contains(&long));
    let folder = tempfile::tempdir().unwrap();
    let (input, out) = (folder.path().join("a.osm"), folder.path().join("a.osm.pbf"));
    std::fs::write(&input, &text[..text.len() - 9]).unwrap();
    let cut = run([
        OsStr::new("cat"),
        input.as_os_str(),
        "-o".as_ref(),
        out.as_os_str(),
    ]);
    assert_eq!(cut.status.code(), Some(2));
    assert!(stderr(&cut).contains("truncated"), "{}", stderr(&cut));
    assert_eq!(common::names(folder.path()), ["a.osm"]);
}

/// Blobs of hundreds of thousands of elements are printed a part at a time, and come out as one.
#[test]
fn large_blobs_are_printed_whole() {
    let mut expected = String::new();
    let mut file = Vec::new();
    let mut compressor = Compressor::new(Compression::default());
    let header = FileHeader::new("x").encode();
    write_frame(&mut file, BlobType::Header, None, &header, &mut compressor).unwrap();
    for first in [1, 200_001] {
        let mut builder = BlockBuilder::default();
        for id in first..first + 200_000 {
            let location = Location::new(id as i32, 5);
            builder.add_node(id, Some(location), [], &Metadata::default());
            let lon = id as f64 / 1e7;
            expected.push_str(&format!("  <node id=\"{id}\" lat=\"0.0000005\" lon=\"{lon:.7}"));
            expected.truncate(expected.trim_end_matches('0').len());
            expected.push_str("\"/>\n");
        }
        let mut raw = Vec::new();
        builder.finish(&mut raw);
        write_frame(&mut file, BlobType::Data, None, &raw, &mut compressor).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.osm.pbf");
    std::fs::write(&path, file).unwrap();
    let expected = format!(
        "<?xml version='1.0' encoding='UTF-8'?>\n<osm version=\"0.6\" generator=\"x\">\n{expected}</osm>\n"
    );
    let printed = stdout(words(["cat", "--generator=x", "-f", "osm", "-o", "-"], &path));
    assert_eq!(difference(&printed, expected.as_bytes()), None);
    let zipped = folder.path().join("large.osm.gz");
    stdout([
        OsStr::new("cat"),
        path.as_os_str(),
        "--generator=x".as_ref(),
        "-o".as_ref(),
        zipped.as_os_str(),
    ]);
    let again = stdout(words(["cat", "--generator=x", "-f", "osm", "-o", "-"], &zipped));
    assert_eq!(difference(&again, expected.as_bytes()), None);
}

/// Older versions of libosmium lose a small stream at the end of a bzip2 file.
#[test]
fn bzip2_files_do_not_end_in_small_streams() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("a.opl.bz2");
    for nodes in [20_000, 24_200, 40_000] {
        let lines = (0..nodes).map(|id| {
            format!(
                "n{id} v1 dV c0 t i0 u Tname={:x} x1.5 y2.5\n",
                id * 7_919 % 65_521
            )
        });
        let text: String = lines
            .chain(["w1 v1 dV c0 t i0 u T Nn1,n2\n".to_owned()])
            .collect();
        let arguments = ["cat", "-F", "opl", "-", "-O", "-o"].map(OsStr::new);
        let written = run_with_input(
            arguments.iter().copied().chain([out.as_os_str()]),
            text.as_bytes(),
        );
        assert!(written.status.success(), "{}", stderr(&written));
        let bytes = std::fs::read(&out).unwrap();
        let last = bytes
            .windows(10)
            .rposition(|window| window == b"BZh91AY&SY")
            .unwrap();
        assert!(
            last == 0 || bytes.len() - last > 5000,
            "{nodes}: {} of {}",
            last,
            bytes.len()
        );
        assert_eq!(
            stdout(words(["cat", "-f", "opl", "-o", "-"], &out)),
            text.as_bytes()
        );
        if osmium::available() {
            assert_eq!(
                theirs(words(["cat", "-f", "opl"], &out)).unwrap(),
                text.as_bytes()
            );
        }
    }
}
