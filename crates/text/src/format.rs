//! Names, suffixes and options of file formats, in the syntax that `osmium` made known, and the recognition
//! of formats by content.
//!
//! A format is written as a suffix, then options: `pbf`, `osm.bz2`, `osc.gz`, `pbf,add_metadata=false`,
//! `,history=true`. The suffixes, from the right: at most one compression (`gz`, `bz2`), one syntax (`pbf`,
//! `xml`, `opl`, `o5m`, `o5c`), one type (`osm`, `osh` history, `osc` changes). What stands left of them is
//! the name of the file and may hold any dots.
//!
//! Options: `add_metadata=` (`true`, `false`, `all`, `none`, or names joined by `+`), `history=`,
//! `xml_change_format=`, `force_visible_flag=`, `locations_on_ways=`, `pbf_dense_nodes=`,
//! `pbf_compression=`, `pbf_compression_level=`. An option without a value means `true`.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use osmill_pbf::{Codec, Compression, MetadataFields};

/// How elements are written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Syntax {
    /// Protocol buffers, `.osm.pbf`.
    Pbf,
    /// OSM XML and OsmChange.
    Xml,
    /// One line an element.
    Opl,
    /// o5m and o5c; read only.
    O5m,
}

impl Syntax {
    /// The name that options use.
    pub const fn name(self) -> &'static str {
        match self {
            Syntax::Pbf => "pbf",
            Syntax::Xml => "xml",
            Syntax::Opl => "opl",
            Syntax::O5m => "o5m",
        }
    }
}

impl fmt::Display for Syntax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Compression around a whole text file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TextCompression {
    /// None.
    #[default]
    None,
    /// gzip, possibly of several members.
    Gzip,
    /// bzip2, possibly of several streams.
    Bzip2,
}

impl TextCompression {
    /// Recognises a compression by the first three bytes of a file.
    pub fn of(head: &[u8]) -> Self {
        match head {
            [0x1f, 0x8b, ..] => TextCompression::Gzip,
            [b'B', b'Z', b'h', ..] => TextCompression::Bzip2,
            _ => TextCompression::None,
        }
    }
}

/// A format with its options, as a name or an argument tells it. Every part may be left open.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FormatSpec {
    /// The syntax; `None` where the name does not tell, so that the content has to.
    pub syntax: Option<Syntax>,
    /// Compression around the file.
    pub compression: TextCompression,
    /// Whether the file may hold several versions of an element, and deleted ones (`.osh`, `.osc`).
    pub history: Option<bool>,
    /// Whether the file holds changes (`.osc`, `.o5c`).
    pub change: Option<bool>,
    /// Which metadata is written.
    pub metadata: Option<MetadataFields>,
    /// Whether XML has a `visible` attribute without history, too.
    pub force_visible_flag: Option<bool>,
    /// Whether ways are written with the locations of their nodes, where they have them. They are unless this
    /// says no, in any format.
    pub locations_on_ways: Option<bool>,
    /// Whether nodes in PBF are dense.
    pub pbf_dense_nodes: Option<bool>,
    /// How blobs are compressed.
    pub pbf_compression: Option<Codec>,
    /// How hard, in the codec's own numbers.
    pub pbf_compression_level: Option<i32>,
}

/// A format that could not be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// A suffix that says nothing.
    #[error(
        "'{0}' is not a format; write pbf, osm, osh, osc, opl or o5m, with .gz or .bz2 behind it for text, \
         and options after a comma (osm.bz2,add_metadata=false)"
    )]
    Unknown(String),
    /// Suffixes that do not go together.
    #[error("'{0}' names two formats at once, or PBF with .gz or .bz2 (its blobs are compressed already)")]
    Conflict(String),
    /// An option that does not exist.
    #[error(
        "there is no format option '{0}'; there are add_metadata, history, xml_change_format, \
         force_visible_flag, locations_on_ways, pbf_dense_nodes, pbf_compression, pbf_compression_level"
    )]
    Option(String),
    /// A value that an option does not take.
    #[error("format option {option} is '{value}'; it takes {expected}")]
    Value {
        /// The option.
        option: &'static str,
        /// The value as given.
        value: String,
        /// What is allowed.
        expected: &'static str,
    },
    /// A format that cannot be written.
    #[error("{0} is read, not written; write pbf, osm, osc or opl")]
    NotWritten(Syntax),
}

impl FormatSpec {
    /// What the name of a file tells. A name without a known suffix gives an open format, not an error.
    pub fn of_name(name: &str) -> Result<Self, FormatError> {
        let mut spec = FormatSpec::default();
        let base = name.rsplit(['/', '\\']).next().unwrap_or_default();
        spec.read_suffixes(base)
            .map_err(|()| FormatError::Conflict(base.into()))?;
        Ok(spec)
    }

    /// What the path of a file tells; see [`of_name`](Self::of_name). `-` tells nothing.
    pub fn of_path(path: &Path) -> Result<Self, FormatError> {
        match path.file_name() {
            Some(name) => FormatSpec::of_name(&name.to_string_lossy()),
            None => Ok(FormatSpec::default()),
        }
    }

    /// The format of a file: what an argument (of `-f` or `-F`) leaves open, the path tells.
    pub fn of_path_and_argument(path: &Path, argument: Option<&str>) -> Result<Self, FormatError> {
        let given = argument.map_or(Ok(FormatSpec::default()), str::parse)?;
        given.or_path(path)
    }

    /// This format, as an argument gives it, with what it leaves open as the path tells it.
    pub fn or_path(self, path: &Path) -> Result<Self, FormatError> {
        if self.syntax.is_some() {
            return Ok(self);
        }
        let named = FormatSpec::of_path(path)?;
        Ok(FormatSpec {
            syntax: named.syntax,
            compression: named.compression,
            history: self.history.or(named.history),
            change: self.change.or(named.change),
            ..self
        })
    }

    /// Reads suffixes from the right, and gives what stands left of them.
    fn read_suffixes<'a>(&mut self, name: &'a str) -> Result<&'a str, ()> {
        let mut rest = name;
        let mut typed = false;
        let mut found = false;
        loop {
            let (left, suffix) = match rest.rsplit_once('.') {
                Some(parts) => parts,
                None => ("", rest),
            };
            let suffix = suffix.to_ascii_lowercase();
            let syntax = match suffix.as_str() {
                "gz" | "bz2" if !found && self.compression == TextCompression::None => {
                    self.compression = if suffix == "gz" {
                        TextCompression::Gzip
                    } else {
                        TextCompression::Bzip2
                    };
                    None
                }
                "osm" | "osh" | "osc" if !typed => {
                    typed = true;
                    self.history = (suffix != "osm").then_some(true).or(self.history);
                    self.change = (suffix == "osc").then_some(true).or(self.change);
                    self.syntax.is_none().then_some(Syntax::Xml)
                }
                "pbf" => Some(Syntax::Pbf),
                "xml" => Some(Syntax::Xml),
                "opl" => Some(Syntax::Opl),
                "o5m" => Some(Syntax::O5m),
                "o5c" => {
                    self.history = Some(true);
                    self.change = Some(true);
                    Some(Syntax::O5m)
                }
                _ => break,
            };
            if let Some(syntax) = syntax {
                // In opl.pbf the first word is a name.
                if self.syntax.is_some() {
                    break;
                }
                self.syntax = Some(syntax);
                found = true;
            }
            rest = left;
            if typed || rest.is_empty() {
                break;
            }
        }
        if self.syntax == Some(Syntax::Pbf) && self.compression != TextCompression::None {
            return Err(());
        }
        Ok(rest)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), FormatError> {
        const BOOLEAN: &str = "true or false";
        let boolean = |option: &'static str| match value {
            "true" | "yes" | "1" => Ok(Some(true)),
            "false" | "no" | "0" => Ok(Some(false)),
            _ => Err(FormatError::Value {
                option,
                value: value.into(),
                expected: BOOLEAN,
            }),
        };
        match name {
            "add_metadata" => self.metadata = Some(parse_metadata(value)?),
            "history" => self.history = boolean("history")?,
            "xml_change_format" => self.change = boolean("xml_change_format")?,
            "force_visible_flag" => self.force_visible_flag = boolean("force_visible_flag")?,
            "locations_on_ways" => self.locations_on_ways = boolean("locations_on_ways")?,
            "pbf_dense_nodes" => self.pbf_dense_nodes = boolean("pbf_dense_nodes")?,
            "pbf_compression" => {
                self.pbf_compression = Some(match value {
                    "none" | "false" => Codec::Raw,
                    "zlib" | "true" => Codec::Zlib,
                    "lz4" => Codec::Lz4,
                    "zstd" => Codec::Zstd,
                    _ => {
                        return Err(FormatError::Value {
                            option: "pbf_compression",
                            value: value.into(),
                            expected: "none, zlib, lz4 or zstd",
                        });
                    }
                });
            }
            "pbf_compression_level" => {
                let level = value.parse().ok().filter(|level| (0..=22).contains(level));
                self.pbf_compression_level = Some(level.ok_or_else(|| FormatError::Value {
                    option: "pbf_compression_level",
                    value: value.into(),
                    expected: "a number: 0 to 12 for zlib, 1 to 22 for zstd",
                })?);
            }
            _ => return Err(FormatError::Option(name.into())),
        }
        Ok(())
    }

    /// The compression of blobs that the options ask for, if they do; checks the level against the codec.
    pub fn blob_compression(&self) -> Result<Option<Compression>, FormatError> {
        if self.pbf_compression.is_none() && self.pbf_compression_level.is_none() {
            return Ok(None);
        }
        let codec = self.pbf_compression.unwrap_or(Codec::Zlib);
        let mut compression = Compression::default_of(codec);
        if let Some(level) = self.pbf_compression_level {
            let (allowed, expected) = match codec {
                Codec::Zlib => (0..=12, "0 to 12 with zlib"),
                Codec::Zstd => (1..=22, "1 to 22 with zstd"),
                Codec::Raw | Codec::Lz4 => (0..=22, "a number"),
            };
            if !allowed.contains(&level) {
                return Err(FormatError::Value {
                    option: "pbf_compression_level",
                    value: level.to_string(),
                    expected,
                });
            }
            compression.level = Some(level);
        }
        Ok(Some(compression))
    }

    /// Checks that the format can be written: it is known, and not one that is only read.
    pub fn writable(&self, name: &str) -> Result<Syntax, FormatError> {
        match self.syntax {
            None => Err(FormatError::Unknown(name.into())),
            Some(Syntax::O5m) => Err(FormatError::NotWritten(Syntax::O5m)),
            Some(syntax) => Ok(syntax),
        }
    }

    /// How text is printed in this format. Other than with `osmium`, locations stay on ways unless
    /// `locations_on_ways=false` is given.
    pub fn print_options(&self) -> crate::PrintOptions {
        let change = self.change == Some(true) && self.syntax != Some(Syntax::Opl);
        crate::PrintOptions {
            metadata: self.metadata.unwrap_or_default(),
            change,
            visible: !change && (self.history == Some(true) || self.force_visible_flag == Some(true)),
            locations_on_ways: self.locations_on_ways,
            deleted_locations: false,
        }
    }
}

impl FromStr for FormatSpec {
    type Err = FormatError;

    /// Reads `SUFFIX[,OPTION[=VALUE]...]`. The suffix may be empty.
    fn from_str(text: &str) -> Result<Self, FormatError> {
        let mut spec = FormatSpec::default();
        let mut parts = text.split(',');
        let first = parts.next().unwrap_or_default();
        if first.contains('=') {
            parts = text.split(',');
        } else if !first.is_empty() {
            let rest = spec
                .read_suffixes(first)
                .map_err(|()| FormatError::Conflict(first.into()))?;
            if !rest.is_empty() || spec.syntax.is_none() {
                return Err(FormatError::Unknown(first.into()));
            }
        }
        for option in parts.filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, "true"));
            spec.set(name, value)?;
        }
        spec.blob_compression()?;
        Ok(spec)
    }
}

fn parse_metadata(value: &str) -> Result<MetadataFields, FormatError> {
    match value {
        "true" | "yes" | "all" => return Ok(MetadataFields::ALL),
        "false" | "no" | "none" => {
            return Ok(MetadataFields::NONE);
        }
        _ => {}
    }
    let mut fields = MetadataFields::NONE;
    for name in value.split('+') {
        let field = match name {
            "version" => &mut fields.version,
            "timestamp" => &mut fields.timestamp,
            "changeset" => &mut fields.changeset,
            "uid" => &mut fields.uid,
            "user" => &mut fields.user,
            _ => {
                return Err(FormatError::Value {
                    option: "add_metadata",
                    value: value.into(),
                    expected: "true, false, or some of version, timestamp, changeset, uid, user joined by '+'",
                });
            }
        };
        *field = true;
    }
    // Whether an element exists goes with any of the others.
    fields.visible = true;
    Ok(fields)
}

/// What the first bytes of a file look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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
    /// XML in UTF-16.
    Utf16,
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
    /// Looks at the first bytes; a few hundred are enough unless comments come first.
    pub fn of(head: &[u8]) -> Sniffed {
        let text = head
            .strip_prefix(b"\xef\xbb\xbf")
            .unwrap_or(head)
            .trim_ascii_start();
        let begins = |word: &[u8]| text.len() >= word.len() && text[..word.len()].eq_ignore_ascii_case(word);
        let holds = |word: &[u8]| memchr::memmem::find(text, word).is_some();
        match head {
            [] => Sniffed::Empty,
            [0, 0, _, _, 0x0a, 9, b'O', b'S', b'M', b'H', ..] => Sniffed::Pbf,
            [0, 0, _, _, 0x0a, 7, b'O', b'S', b'M', b'D', ..] => Sniffed::Pbf,
            [0x1f, 0x8b, ..] => Sniffed::Gzip,
            [b'B', b'Z', b'h', ..] => Sniffed::Bzip2,
            [0xfd, b'7', b'z', b'X', b'Z', ..] => Sniffed::Xz,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Sniffed::Zstd,
            [b'P', b'K', 3 | 5, ..] => Sniffed::Zip,
            [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [b'<', 0, ..] | [0, b'<', ..] => Sniffed::Utf16,
            [0xff, 0xe0, 4, b'o', b'5', ..] => Sniffed::O5m,
            _ if head.starts_with(b"SQLite format 3") => Sniffed::Sqlite,
            _ if begins(b"<!doctype html") || begins(b"<html") => Sniffed::Html,
            _ if begins(b"<osm") => Sniffed::OsmXml,
            _ if (begins(b"<?xml") || begins(b"<!--") || begins(b"<!doctype")) && holds(b"<osm") => {
                Sniffed::OsmXml
            }
            _ if begins(b"<?xml") => Sniffed::Xml,
            _ if begins(b"{") || begins(b"[") => Sniffed::Json,
            _ if is_opl(text) => Sniffed::Opl,
            [0x1a, _, _, ..] => Sniffed::VectorTile,
            _ if head.iter().all(|b| *b == 0) => Sniffed::Zeros,
            _ => Sniffed::Unknown,
        }
    }

    /// What to do about it where a PBF file was wanted, as the end of a message.
    pub fn hint(self) -> &'static str {
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

/// Whether the first line that is neither empty nor a comment begins as one of OPL does.
fn is_opl(text: &[u8]) -> bool {
    let line = text
        .split(|b| *b == b'\n')
        .find(|line| !line.trim_ascii().is_empty() && !line.starts_with(b"#"));
    matches!(
        line,
        Some([b'n' | b'w' | b'r' | b'c', b'0'..=b'9', ..] | [b'n' | b'w' | b'r', b'-', b'0'..=b'9', ..])
    )
}

impl fmt::Display for Sniffed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Sniffed::Pbf => "OSM PBF",
            Sniffed::Empty => "an empty file",
            Sniffed::Html => "an HTML page",
            Sniffed::OsmXml => "OSM XML",
            Sniffed::Xml => "XML of another kind",
            Sniffed::Utf16 => "text in UTF-16 (convert it to UTF-8 first)",
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
    use proptest::prelude::*;

    fn spec(text: &str) -> FormatSpec {
        text.parse().unwrap()
    }

    #[test]
    fn names_with_any_dots() {
        use Syntax::{O5m, Opl, Pbf, Xml};
        use TextCompression::{Bzip2, Gzip, None as Plain};
        let cases = [
            ("planet.osm.pbf", Some(Pbf), Plain, None, None),
            ("a.b.osm", Some(Xml), Plain, None, None),
            ("v1.2/x.osm.2024.opl.bz2", Some(Opl), Bzip2, None, None),
            ("466.osc.gz", Some(Xml), Gzip, Some(true), Some(true)),
            ("history.osh.pbf", Some(Pbf), Plain, Some(true), None),
            ("changes.osc.pbf", Some(Pbf), Plain, Some(true), Some(true)),
            ("x.OSM.GZ", Some(Xml), Gzip, None, None),
            ("x.osm.opl", Some(Opl), Plain, None, None),
            ("pbf.osm", Some(Xml), Plain, None, None),
            ("opl.pbf", Some(Pbf), Plain, None, None),
            ("x.o5c", Some(O5m), Plain, Some(true), Some(true)),
            ("x.xml", Some(Xml), Plain, None, None),
            ("x.tar.gz", None, Gzip, None, None),
            ("x", None, Plain, None, None),
            ("-", None, Plain, None, None),
            ("", None, Plain, None, None),
        ];
        for (name, syntax, compression, history, change) in cases {
            let found = FormatSpec::of_name(name).unwrap();
            let expected = FormatSpec {
                syntax,
                compression,
                history,
                change,
                ..FormatSpec::default()
            };
            assert_eq!(found, expected, "{name}");
        }
        assert!(FormatSpec::of_name("x.osm.pbf.gz").is_err());
    }

    #[test]
    fn options_of_osmium() {
        assert_eq!(
            spec("pbf,add_metadata=false").metadata,
            Some(MetadataFields::NONE)
        );
        let some = spec("osm.bz2,add_metadata=version+uid").metadata.unwrap();
        assert!(some.version && some.uid && some.visible && !some.user && !some.changeset);
        assert_eq!(spec("osm,history").history, Some(true));
        assert_eq!(spec(",xml_change_format=true").change, Some(true));
        assert_eq!(spec("pbf,locations_on_ways").locations_on_ways, Some(true));
        let zstd = spec("pbf,pbf_compression=zstd,pbf_compression_level=19");
        assert_eq!(
            zstd.blob_compression(),
            Ok(Some(Compression {
                codec: Codec::Zstd,
                level: Some(19)
            }))
        );
        assert_eq!(spec("pbf").blob_compression(), Ok(None));
        assert!(spec("osc").print_options().change && !spec("osc").print_options().visible);
        assert!(spec("osh").print_options().visible);
        assert!(spec("osm,force_visible_flag=true").print_options().visible);
    }

    #[test]
    fn what_is_refused_is_named() {
        let message = |text: &str| text.parse::<FormatSpec>().unwrap_err().to_string();
        assert!(message("foo").contains("'foo' is not a format"));
        assert!(message("x.osm").contains("'x.osm' is not a format"));
        assert!(message("gz").contains("'gz' is not a format"));
        assert!(message("pbf,bla=1").contains("no format option 'bla'"));
        assert!(message("pbf,history=maybe").contains("history is 'maybe'"));
        assert!(message("osm,add_metadata=foo").contains("add_metadata is 'foo'"));
        assert!(message("pbf,pbf_compression=foo").contains("none, zlib, lz4 or zstd"));
        assert!(message("pbf,pbf_compression_level=13").contains("0 to 12"));
        assert!(message("pbf.gz").contains("at once"));
        assert_eq!(
            spec("o5m").writable("o5m"),
            Err(FormatError::NotWritten(Syntax::O5m))
        );
        assert!(
            FormatSpec::default()
                .writable("x.txt")
                .unwrap_err()
                .to_string()
                .contains("x.txt")
        );
    }

    #[test]
    fn an_argument_wins_over_the_name_where_it_says_something() {
        let path = Path::new("x.osc.gz");
        let both = FormatSpec::of_path_and_argument(path, Some(",add_metadata=none")).unwrap();
        assert_eq!(
            (both.syntax, both.compression, both.change),
            (Some(Syntax::Xml), TextCompression::Gzip, Some(true))
        );
        let given = FormatSpec::of_path_and_argument(path, Some("opl")).unwrap();
        assert_eq!(
            (given.syntax, given.compression, given.change),
            (Some(Syntax::Opl), TextCompression::None, None)
        );
    }

    #[test]
    fn what_people_pass_by_mistake() {
        let cases: [(&[u8], Sniffed); 17] = [
            (b"", Sniffed::Empty),
            (b"\0\0\0\x0d\x0a\x09OSMHeader\x18", Sniffed::Pbf),
            (b"<!DOCTYPE html><html>", Sniffed::Html),
            (b"\n <HTML>", Sniffed::Html),
            (b"<?xml version='1.0'?>\n<osm version=\"0.6\">", Sniffed::OsmXml),
            (b"\xef\xbb\xbf<!-- made by hand --><osmChange>", Sniffed::OsmXml),
            (b"<?xml version='1.0'?><gpx>", Sniffed::Xml),
            (b"\xff\xfe<\0", Sniffed::Utf16),
            (b"\x1f\x8b\x08", Sniffed::Gzip),
            (b"BZh9", Sniffed::Bzip2),
            (b"n1 v1 dV", Sniffed::Opl),
            (b"# a comment\n\nr-1", Sniffed::Opl),
            (b"\xff\xe0\x04o5m2", Sniffed::O5m),
            (b"{\"type\":", Sniffed::Json),
            (b"\x1a\x8a\x02\x0a\x05water", Sniffed::VectorTile),
            (&[0; 20], Sniffed::Zeros),
            (b"hello", Sniffed::Unknown),
        ];
        for (head, expected) in cases {
            assert_eq!(Sniffed::of(head), expected, "{head:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_safe(text: String, bytes: Vec<u8>) {
            let _ = (text.parse::<FormatSpec>(), FormatSpec::of_name(&text), Sniffed::of(&bytes));
        }
    }
}
