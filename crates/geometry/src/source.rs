//! Files of regions, whatever their format.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::str::FromStr;

use flate2::read::MultiGzDecoder;

use crate::{MultiPolygon, RegionError, parse_geojson, parse_poly};

/// Files, compressed or not, that are larger are refused.
pub const MAX_FILE_SIZE: u64 = 1 << 28;
/// Enough of a file to tell its format.
const HEAD: u64 = 1 << 14;

/// The format of a file that holds an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RegionFormat {
    /// Osmosis' polygon format, for [`parse_poly`].
    Poly,
    /// GeoJSON, for [`parse_geojson`].
    GeoJson,
    /// OSM data in any format, with boundary or multipolygon relations in it, for [`assemble`](crate::assemble()).
    Osm,
}

impl FromStr for RegionFormat {
    type Err = String;

    /// Reads the names that the config file of `extract` uses: `poly`, `geojson`, `osm`.
    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "poly" => Ok(RegionFormat::Poly),
            "geojson" => Ok(RegionFormat::GeoJson),
            "osm" => Ok(RegionFormat::Osm),
            _ => Err(format!("unknown file type '{name}'; write poly, geojson or osm")),
        }
    }
}

/// Tells the format of an uncompressed file by its first bytes, some kilobytes of it, and where these leave it
/// open by its name.
///
/// # Errors
///
/// [`RegionError::Empty`] for an empty file, [`RegionError::UnknownFormat`] for what is none of the formats,
/// saying what it looks like.
pub fn sniff(head: &[u8], name: Option<&str>) -> Result<RegionFormat, RegionError> {
    let unknown = |what: &str| {
        Err(RegionError::UnknownFormat(format!(
            "this is {what}; regions are read from .poly, GeoJSON and OSM files"
        )))
    };
    let name = name.unwrap_or_default().to_ascii_lowercase();
    let name = [".gz", ".bz2"]
        .iter()
        .fold(name.as_str(), |name, end| name.strip_suffix(end).unwrap_or(name));
    let suffix = name.rsplit_once('.').map_or("", |(_, suffix)| suffix);
    let has = |needle: &[u8]| {
        head.windows(needle.len())
            .any(|window| window.eq_ignore_ascii_case(needle))
    };
    let text = head
        .strip_prefix(b"\xEF\xBB\xBF")
        .unwrap_or(head)
        .trim_ascii_start();
    if head.is_empty() {
        return Err(RegionError::Empty("the file is empty".to_owned()));
    }
    let start = &head[head.len().min(4)..head.len().min(40)];
    if start.windows(9).any(|window| window == b"OSMHeader")
        || head.starts_with(b"BZh")
        || head.starts_with(&[0xFF, 0xE0])
    {
        return Ok(RegionFormat::Osm);
    }
    match text.first() {
        Some(b'{' | b'[') => return Ok(RegionFormat::GeoJson),
        Some(b'<') if has(b"<osm") => return Ok(RegionFormat::Osm),
        Some(b'<') if has(b"<html") || has(b"<!doctype html") => {
            return unknown("an HTML page, often an error message of a server");
        }
        Some(b'<') => return unknown("XML, but not OSM data"),
        _ => {}
    }
    if head.starts_with(&[0x28, 0xB5, 0x2F, 0xFD]) {
        return unknown("compressed with zstd");
    }
    if head.starts_with(b"PK\x03\x04") {
        return unknown("a ZIP archive");
    }
    if head.contains(&0) {
        return unknown("binary data");
    }
    match suffix {
        "poly" => return Ok(RegionFormat::Poly),
        "json" | "geojson" => return Ok(RegionFormat::GeoJson),
        "opl" => return Ok(RegionFormat::Osm),
        _ => {}
    }
    let starts =
        |word: &str| text.len() >= word.len() && text[..word.len()].eq_ignore_ascii_case(word.as_bytes());
    if ["POLYGON", "MULTIPOLYGON", "SRID="].into_iter().any(starts) && has(b"((") {
        return unknown("well-known text (WKT)");
    }
    if is_opl(text) {
        Ok(RegionFormat::Osm)
    } else {
        Ok(RegionFormat::Poly)
    }
}

/// Whether the first line is that of an element in OPL: `n17 v1 ...`.
fn is_opl(text: &[u8]) -> bool {
    let line = text.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let mut words = line.split(|&byte| byte == b' ');
    let (Some([b'n' | b'w' | b'r', id @ ..]), Some([b'v', version @ ..])) = (words.next(), words.next())
    else {
        return false;
    };
    let number =
        |digits: &[u8]| !digits.is_empty() && digits.iter().all(|b| b.is_ascii_digit() || *b == b'-');
    number(id) && number(version)
}

/// Reads an area from the content of a file, which may be compressed with gzip. The name of the file helps
/// where its content leaves the format open.
///
/// # Errors
///
/// Those of [`sniff`], [`parse_poly`] and [`parse_geojson`]; [`RegionError::OsmFile`] if it holds OSM data;
/// [`RegionError::TooLarge`].
pub fn parse_region(bytes: &[u8], name: Option<&str>) -> Result<MultiPolygon, RegionError> {
    area_from(bytes, name, None, MAX_FILE_SIZE)
}

/// Reads an area from a file; see [`parse_region`]. OSM files are told after some kilobytes, not read. If the
/// format is given, the content is not asked.
///
/// # Errors
///
/// Those of [`parse_region`], and [`RegionError::Read`], in [`RegionError::InFile`].
pub fn read_region(path: &Path, format: Option<RegionFormat>) -> Result<MultiPolygon, RegionError> {
    File::open(path)
        .map_err(RegionError::from)
        .and_then(|file| {
            area_from(
                file,
                path.file_name().and_then(|name| name.to_str()),
                format,
                MAX_FILE_SIZE,
            )
        })
        .map_err(|error| error.in_file(path))
}

/// Reads a text file, such as a config or a list of features, which may be compressed with gzip.
pub(crate) fn read_text(path: &Path) -> Result<Vec<u8>, RegionError> {
    let file = File::open(path)?;
    let (mut bytes, mut rest) = read_head(file, MAX_FILE_SIZE)?;
    read_rest(&mut bytes, &mut rest, MAX_FILE_SIZE)?;
    Ok(bytes)
}

fn area_from(
    source: impl Read,
    name: Option<&str>,
    format: Option<RegionFormat>,
    limit: u64,
) -> Result<MultiPolygon, RegionError> {
    let (mut bytes, mut rest) = read_head(source, limit)?;
    let format = match format {
        Some(format) => format,
        None => sniff(&bytes, name)?,
    };
    if format == RegionFormat::Osm {
        return Err(RegionError::OsmFile);
    }
    read_rest(&mut bytes, &mut rest, limit)?;
    match format {
        RegionFormat::GeoJson => parse_geojson(&bytes),
        _ => parse_poly(&bytes),
    }
}

/// The first bytes, uncompressed, and a reader of the others.
fn read_head<'a>(source: impl Read + 'a, limit: u64) -> Result<(Vec<u8>, Box<dyn Read + 'a>), RegionError> {
    let mut source = source.take(limit + 1);
    let mut magic = Vec::new();
    source.by_ref().take(2).read_to_end(&mut magic)?;
    let zipped = magic == [0x1F, 0x8B];
    let whole = std::io::Cursor::new(magic).chain(source);
    let mut whole: Box<dyn Read + 'a> = if zipped {
        Box::new(MultiGzDecoder::new(whole))
    } else {
        Box::new(whole)
    };
    let mut head = Vec::new();
    whole.by_ref().take(HEAD).read_to_end(&mut head)?;
    Ok((head, whole))
}

fn read_rest(bytes: &mut Vec<u8>, rest: &mut dyn Read, limit: u64) -> Result<(), RegionError> {
    rest.take(limit).read_to_end(bytes)?;
    if bytes.len() as u64 > limit {
        return Err(RegionError::TooLarge { limit });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;
    use std::io::Write;

    const POLY: &[u8] = b"x\n1\n0 0\n4 0\n4 4\nEND\nEND\n";
    const GEOJSON: &[u8] = br#" {"type":"Polygon","coordinates":[[[0,0],[4,0],[4,4]]]}"#;

    fn zip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn content_decides_before_the_name() {
        for (bytes, name) in [
            (POLY, "a.geojson.poly"),
            (GEOJSON, "a.poly"),
            (GEOJSON, "a"),
            (POLY, "a"),
            (POLY, "b.osm"),
        ] {
            let area = parse_region(bytes, Some(name)).unwrap();
            assert_eq!(area.vertex_count(), 3, "{name}");
            assert_eq!(parse_region(&zip(bytes), Some(name)).unwrap(), area, "{name}");
            assert_eq!(
                parse_region(&[zip(&bytes[..9]), zip(&bytes[9..])].concat(), None).unwrap(),
                area
            );
        }
        // Not JSON by its look: the name decides, and the message is about JSON.
        assert!(matches!(
            parse_region(POLY, Some("a.json")),
            Err(RegionError::Json(_))
        ));
    }

    #[test]
    fn osm_files_are_told() {
        for head in [
            &b"<?xml version='1.0'?>\n<osm version=\"0.6\">"[..],
            b"<osmChange>",
            b"\0\0\0\x0d\x0a\x09OSMHeader\x18\x7c",
            b"BZh91AY",
            b"n17 v1 dV c0 t\n",
            b"r-5 v3 dV\n",
        ] {
            assert!(
                matches!(parse_region(head, None), Err(RegionError::OsmFile)),
                "{head:?}"
            );
        }
        assert!(matches!(
            parse_region(&zip(b"<osm>"), Some("a.poly")),
            Err(RegionError::OsmFile)
        ));
    }

    #[test]
    fn what_else_is_named() {
        for (head, expected) in [
            (&b"<!DOCTYPE html><html>"[..], "HTML"),
            (b"<kml>", "XML"),
            (b"PK\x03\x04aaaa", "ZIP"),
            (b"\x28\xB5\x2F\xFDaaaa", "zstd"),
            (b"MULTIPOLYGON (((0 0, 1 1)))", "WKT"),
            (b"abc\0", "binary"),
        ] {
            let message = parse_region(head, None).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
        assert!(matches!(parse_region(b"", None), Err(RegionError::Empty(_))));
    }

    #[test]
    fn files_are_named_in_errors() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("area.poly");
        std::fs::write(&path, &POLY[..10]).unwrap();
        let message = read_region(&path, None).unwrap_err().to_string();
        assert!(message.contains("area.poly: line 4: "), "{message}");
        std::fs::write(&path, POLY).unwrap();
        assert!(read_region(&path, None).is_ok());
        assert!(matches!(
            read_region(&path, Some(RegionFormat::Osm)),
            Err(RegionError::InFile { source, .. }) if matches!(*source, RegionError::OsmFile)
        ));
        assert!(read_region(&directory.path().join("none"), None).is_err());
    }

    #[test]
    fn bombs_are_refused() {
        let bomb = zip(&vec![b' '; 1 << 22]);
        assert!(bomb.len() < 1 << 16);
        for source in [&bomb[..], &[b' '; (1 << 20) + 1]] {
            assert!(matches!(
                area_from(source, Some("a.poly"), None, 1 << 20),
                Err(RegionError::TooLarge { limit: 0x10_0000 })
            ));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_tried(bytes in prop::collection::vec(any::<u8>(), 0..100), zipped: bool) {
            let bytes = if zipped { zip(&bytes) } else { bytes };
            let _ = parse_region(&bytes, None);
        }

        #[test]
        fn damaged_gzip_is_survived(at: prop::sample::Index, byte: u8, cut: prop::sample::Index) {
            let mut bytes = zip(POLY);
            let at = at.index(bytes.len());
            bytes[at] = byte;
            bytes.truncate(cut.index(bytes.len()) + 1);
            let _ = parse_region(&bytes, None);
        }
    }
}
