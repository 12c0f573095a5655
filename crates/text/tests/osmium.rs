//! Byte for byte what `osmium` writes. Skipped where it is not installed, or the collection of files is not
//! there.

mod common;

use std::io::Write;
use std::path::Path;

use common::{Plain, files, osmium, read_pbf, read_text, run};
use osmill_text::format::FormatSpec;
use osmill_text::{PrintHeader, Printer, Reader};

const FORMATS: [&str; 12] = [
    "osm",
    "osh",
    "osc",
    "opl",
    "osm,add_metadata=false",
    "osm,add_metadata=version+user",
    "opl,add_metadata=none",
    "opl,add_metadata=timestamp+uid+changeset",
    "osm,locations_on_ways=true",
    "opl,locations_on_ways=true",
    "osm,force_visible_flag=true",
    "osm,xml_change_format=true",
];

/// A name for the first place where two texts differ.
fn difference(ours: &[u8], theirs: &[u8]) -> Option<String> {
    if ours == theirs {
        return None;
    }
    let lines = ours.split(|b| *b == b'\n').zip(theirs.split(|b| *b == b'\n'));
    let first = lines.enumerate().find(|(_, (a, b))| a != b);
    Some(match first {
        Some((number, (a, b))) => format!(
            "line {}: ours {:?}, theirs {:?}",
            number + 1,
            String::from_utf8_lossy(a),
            String::from_utf8_lossy(b)
        ),
        None => format!("{} and {} bytes", ours.len(), theirs.len()),
    })
}

/// A printer for a format as `osmium` understands it, which prints locations on ways on demand only.
fn printer(format: &str) -> Printer {
    let mut spec: FormatSpec = format.parse().unwrap();
    spec.locations_on_ways.get_or_insert(false);
    Printer::of(&spec).unwrap()
}

fn compare_pbf(path: &Path) {
    let (header, blocks) = read_pbf(path);
    for format in FORMATS {
        let arguments = ["cat", path.to_str().unwrap(), "-f", format, "--generator=x"];
        let Some(theirs) = osmium(&arguments) else {
            continue;
        };
        let mut printer = printer(format);
        let mut ours = Vec::new();
        printer.header(&PrintHeader::from_pbf(&header, "x"), &mut ours);
        for block in &blocks {
            printer.block(block, None, &mut ours).unwrap();
        }
        printer.end(&mut ours);
        let difference = difference(&joined(ours), &joined(theirs));
        assert_eq!(difference, None, "{} as {format}", path.display());
    }
}

/// Converts a text file as `osmium cat` does: it knows creates from modifies by the version, whatever the
/// file says.
fn convert(path: &Path, format: &str) -> Vec<u8> {
    let mut reader = Reader::from_path(path).unwrap();
    let mut printer = printer(format);
    printer.options_mut().deleted_locations = true;
    let mut out = Vec::new();
    printer.header(&PrintHeader::from_text(reader.header(), "x"), &mut out);
    let mut block = osmill_pbf::Block::empty();
    while reader.read(&mut block).unwrap().is_some() {
        printer.elements(&block, None, &mut out).unwrap();
    }
    printer.end(&mut out);
    out
}

/// A change file without the places where an action ends and the same one begins: `osmium` has them where its
/// buffers end.
fn joined(text: Vec<u8>) -> Vec<u8> {
    let mut text = String::from_utf8(text).unwrap();
    for action in ["create", "modify", "delete"] {
        text = text.replace(&format!("  </{action}>\n  <{action}>\n"), "");
    }
    text.into_bytes()
}

fn compare_text(path: &Path) {
    for format in FORMATS {
        let arguments = ["cat", path.to_str().unwrap(), "-f", format, "--generator=x"];
        let Some(theirs) = osmium(&arguments) else {
            continue;
        };
        let difference = difference(&joined(convert(path, format)), &joined(theirs));
        assert_eq!(difference, None, "{} as {format}", path.display());
    }
}

#[test]
fn small_extracts_print_as_osmium_prints_them() {
    for name in [
        "gibraltar-osmose-backend.osm.pbf",
        "cobb-county.filtered-opentripplanner.osm.pbf",
    ] {
        files("extracts", name).iter().for_each(|path| compare_pbf(path));
    }
}

#[test]
#[ignore = "minutes: every real file in every format"]
fn all_extracts_print_as_osmium_prints_them() {
    for directory in ["extracts", "history", "cases"] {
        for path in files(directory, ".pbf") {
            // What osmium refuses, or misreads, is no model.
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let refused = osmium(&["cat", path.to_str().unwrap(), "-f", "opl"]).is_none();
            if !refused && !name.contains("_unpacked") {
                compare_pbf(&path);
            }
        }
    }
}

#[test]
fn text_files_convert_as_osmium_converts_them() {
    let mut paths = files("cases", ".osm");
    paths.extend(files("cases", ".osc"));
    paths.extend(files("cases", ".osm.gz"));
    paths.extend(files("changes", "planet-minutely-000466354.osc.gz"));
    paths.extend(files("changes", "backend.osc.gz"));
    paths.iter().for_each(|path| compare_text(path));
}

#[test]
#[ignore = "a minute: every change file in every format"]
fn change_files_convert_as_osmium_converts_them() {
    files("changes", ".osc.gz")
        .iter()
        .for_each(|path| compare_text(path));
}

#[test]
fn o5m_as_other_tools_write_it() {
    for name in [
        "gibraltar-osmose-backend.osm.pbf",
        "liechtenstein-2013-08-03-osm2pgsql-54bc92.osm.pbf",
    ] {
        for path in files("extracts", name) {
            let Some(o5m) = run("osmconvert", &[path.to_str().unwrap(), "--out-o5m"]) else {
                continue;
            };
            let mut file = tempfile::Builder::new().suffix(".o5m").tempfile().unwrap();
            file.write_all(&o5m).unwrap();
            compare_text(file.path());
        }
    }
}

#[test]
fn o5c_as_other_tools_write_it() {
    for path in files("changes", "andorra_2021-04-13_to_2021-06-22.osc.gz") {
        let mut file = tempfile::Builder::new().suffix(".o5c").tempfile().unwrap();
        let mut osc = tempfile::Builder::new().suffix(".osc").tempfile().unwrap();
        let Some(text) = osmium(&["cat", path.to_str().unwrap(), "-f", "osc"]) else {
            continue;
        };
        osc.write_all(&text).unwrap();
        let Some(o5c) = run("osmconvert", &[osc.path().to_str().unwrap(), "--out-o5c"]) else {
            continue;
        };
        file.write_all(&o5c).unwrap();
        compare_text(file.path());
    }
}

#[test]
fn bzip2_of_several_streams_reads_like_gzip_of_several_members() {
    let read = |name: &str| -> Option<Vec<Plain>> {
        let path = files("cases", name).pop()?;
        Some(read_text(&std::fs::read(path).unwrap()).unwrap())
    };
    let Some(gzip) = read("ms.osm.gz") else { return };
    assert_eq!(gzip.len(), 3);
    assert_eq!(read("ms.osm.bz2"), Some(gzip));
}
