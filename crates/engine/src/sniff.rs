//! Telling what a file is from its first bytes.

use std::fmt;

/// What the first bytes of a file look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sniffed {
    /// OSM PBF.
    Pbf,
    /// Nothing at all.
    Empty,
    /// A web page.
    Html,
    /// OSM XML or an OsmChange file.
    OsmXml,
    /// Other XML.
    Xml,
    /// gzip data.
    Gzip,
    /// bzip2 data.
    Bzip2,
    /// xz data.
    Xz,
    /// Zstandard data.
    Zstd,
    /// A zip archive.
    Zip,
    /// o5m or o5c.
    O5m,
    /// OPL.
    Opl,
    /// JSON.
    Json,
    /// A vector tile.
    VectorTile,
    /// An SQLite database (MBTiles, GeoPackage).
    Sqlite,
    /// Zero bytes.
    Zeros,
    /// Something else.
    Unknown,
}

impl Sniffed {
    /// Looks at the first bytes; a few hundred are enough.
    pub fn of(head: &[u8]) -> Sniffed {
        let text = head
            .strip_prefix(b"\xef\xbb\xbf")
            .unwrap_or(head)
            .trim_ascii_start();
        let begins = |word: &[u8]| text.len() >= word.len() && text[..word.len()].eq_ignore_ascii_case(word);
        let holds = |word: &[u8]| text.windows(word.len()).any(|w| w == word);
        match head {
            [] => Sniffed::Empty,
            [0, 0, _, _, 0x0a, 9, b'O', b'S', b'M', b'H', ..] => Sniffed::Pbf,
            [0, 0, _, _, 0x0a, 7, b'O', b'S', b'M', b'D', ..] => Sniffed::Pbf,
            [0x1f, 0x8b, ..] => Sniffed::Gzip,
            [b'B', b'Z', b'h', ..] => Sniffed::Bzip2,
            [0xfd, b'7', b'z', b'X', b'Z', ..] => Sniffed::Xz,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Sniffed::Zstd,
            [b'P', b'K', 3 | 5, ..] => Sniffed::Zip,
            [0xff, 0xe0, 4, b'o', b'5', ..] => Sniffed::O5m,
            _ if head.starts_with(b"SQLite format 3") => Sniffed::Sqlite,
            _ if begins(b"<!doctype html") || begins(b"<html") => Sniffed::Html,
            _ if begins(b"<osm") || (begins(b"<?xml") && holds(b"<osm")) => Sniffed::OsmXml,
            _ if begins(b"<?xml") => Sniffed::Xml,
            _ if begins(b"{") || begins(b"[") => Sniffed::Json,
            [b'n' | b'w' | b'r', b'0'..=b'9' | b'-', ..] => Sniffed::Opl,
            [0x1a, _, _, ..] => Sniffed::VectorTile,
            _ if head.iter().all(|b| *b == 0) => Sniffed::Zeros,
            _ => Sniffed::Unknown,
        }
    }

    /// What to do about it, as the end of a message.
    pub(crate) fn hint(self) -> &'static str {
        match self {
            Sniffed::Empty => "; the download or the program that wrote it failed",
            Sniffed::Html => {
                "; a server answered with a page instead of the file, look into it and fetch again"
            }
            Sniffed::VectorTile => "; tiles are made from OSM data and cannot be turned back into it",
            Sniffed::Gzip | Sniffed::Bzip2 | Sniffed::Xz | Sniffed::Zstd | Sniffed::Zip => {
                "; unpack it first (PBF files are compressed inside)"
            }
            Sniffed::OsmXml | Sniffed::Opl | Sniffed::O5m => "; convert it to .osm.pbf first",
            Sniffed::Zeros => "; the download did not complete, fetch it again",
            _ => "; check the name, or fetch it again",
        }
    }
}

impl fmt::Display for Sniffed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Sniffed::Pbf => "OSM PBF",
            Sniffed::Empty => "an empty file",
            Sniffed::Html => "an HTML page",
            Sniffed::OsmXml => "OSM XML",
            Sniffed::Xml => "XML of another kind",
            Sniffed::Gzip => "gzip data",
            Sniffed::Bzip2 => "bzip2 data",
            Sniffed::Xz => "xz data",
            Sniffed::Zstd => "zstd data",
            Sniffed::Zip => "a zip archive",
            Sniffed::O5m => "o5m data",
            Sniffed::Opl => "OPL text",
            Sniffed::Json => "JSON",
            Sniffed::VectorTile => "perhaps a vector tile",
            Sniffed::Sqlite => "an SQLite database",
            Sniffed::Zeros => "a file of zero bytes",
            Sniffed::Unknown => "data of an unknown kind",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_pass_by_mistake() {
        let cases: [(&[u8], Sniffed); 13] = [
            (b"", Sniffed::Empty),
            (b"\0\0\0\x0d\x0a\x09OSMHeader\x18", Sniffed::Pbf),
            (b"<!DOCTYPE html><html>", Sniffed::Html),
            (b"\n <HTML>", Sniffed::Html),
            (b"<?xml version='1.0'?>\n<osm version=\"0.6\">", Sniffed::OsmXml),
            (b"<?xml version='1.0'?><gpx>", Sniffed::Xml),
            (b"\x1f\x8b\x08", Sniffed::Gzip),
            (b"BZh9", Sniffed::Bzip2),
            (b"n1 v1 dV", Sniffed::Opl),
            (b"{\"type\":", Sniffed::Json),
            (b"\x1a\x8a\x02\x0a\x05water", Sniffed::VectorTile),
            (&[0; 20], Sniffed::Zeros),
            (b"hello", Sniffed::Unknown),
        ];
        for (head, expected) in cases {
            assert_eq!(Sniffed::of(head), expected, "{head:?}");
        }
    }
}
