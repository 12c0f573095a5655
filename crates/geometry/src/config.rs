//! Lists of extracts, as osmium's `extract --config` reads them.
//!
//! ```json
//! {
//!     "directory": "/tmp/",
//!     "extracts": [
//!         { "output": "a.osm.pbf", "bbox": [11.35, 48.05, 11.73, 48.25] },
//!         { "output": "b.osm.pbf", "bbox": { "left": 1, "bottom": 2, "right": 3, "top": 4 } },
//!         { "output": "c", "output_format": "pbf", "description": "ignored",
//!           "polygon": [ [ [9.6, 53.5], [9.7, 53.5], [9.7, 53.6] ] ] },
//!         { "output": "d.osm.pbf", "multipolygon": { "file_name": "d.poly", "file_type": "poly" },
//!           "output_header": { "generator": "mine", "osmosis_replication_timestamp": null } }
//!     ]
//! }
//! ```
//!
//! `//` and `/* */` comments and commas before a closing bracket are fine. Members of other names are ignored.

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::bbox_text::bbox_area;
use crate::geojson::{Coordinates, area_of_coordinates};
use crate::source::read_text;
use crate::{MultiPolygon, RegionError, RegionFormat, read_region};

/// A list of extracts.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Where outputs belong whose names are relative, if the config says so.
    pub directory: Option<PathBuf>,
    /// The extracts, at least one, no two with the same output.
    pub extracts: Vec<ConfigExtract>,
}

/// One output and its region.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigExtract {
    /// The name of the output file.
    pub output: String,
    /// The format of the output, if its name does not tell it.
    pub output_format: Option<String>,
    /// A remark.
    pub description: Option<String>,
    /// The region.
    pub region: RegionSource,
    /// Header options of the output, in the order of their names.
    pub output_header: Vec<(String, HeaderValue)>,
}

/// What a header option of an output is set to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderValue {
    /// This value.
    Set(String),
    /// The value that the input has (`null` in the config).
    FromInput,
}

/// Where a region comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum RegionSource {
    /// From the config itself.
    Area(MultiPolygon),
    /// From a file.
    File {
        /// The file.
        path: PathBuf,
        /// Its format, if given.
        format: Option<RegionFormat>,
    },
}

impl RegionSource {
    /// The area, read from the file if it is in one.
    ///
    /// # Errors
    ///
    /// Those of [`read_region`]; [`RegionError::OsmFile`] in [`RegionError::InFile`] if the file has to be
    /// assembled by the caller.
    pub fn load(self) -> Result<MultiPolygon, RegionError> {
        match self {
            RegionSource::Area(area) => Ok(area),
            RegionSource::File { path, format } => read_region(&path, format),
        }
    }
}

#[derive(Deserialize)]
struct RawConfig {
    directory: Option<String>,
    extracts: Option<Vec<RawExtract>>,
}

#[derive(Deserialize)]
struct RawExtract {
    output: Option<String>,
    output_format: Option<String>,
    description: Option<String>,
    bbox: Option<Value>,
    polygon: Option<RawArea>,
    multipolygon: Option<RawArea>,
    output_header: Option<Map<String, Value>>,
}

enum RawArea {
    Inline(Coordinates),
    File(FileName),
}

#[derive(Deserialize)]
struct FileName {
    file_name: Option<String>,
    file_type: Option<String>,
}

impl<'de> Deserialize<'de> for RawArea {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AreaVisitor;
        impl<'de> Visitor<'de> for AreaVisitor {
            type Value = RawArea;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of coordinates or an object with a \"file_name\"")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<RawArea, A::Error> {
                Coordinates::deserialize(SeqAccessDeserializer::new(items)).map(RawArea::Inline)
            }
            fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<RawArea, A::Error> {
                FileName::deserialize(MapAccessDeserializer::new(members)).map(RawArea::File)
            }
        }
        deserializer.deserialize_any(AreaVisitor)
    }
}

/// Reads a config from its text. Names of region files are taken to be relative to `base`, the directory of
/// the config. Files are not opened.
///
/// # Errors
///
/// [`RegionError::Json`], [`RegionError::Config`] and [`RegionError::InExtract`], which name the extract.
pub fn parse_config(text: &[u8], base: &Path) -> Result<Config, RegionError> {
    let text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
    let raw: RawConfig = serde_json::from_slice(&strict_json(text))?;
    let fail = |reason: &str| RegionError::Config {
        extract: None,
        reason: reason.to_owned(),
    };
    let extracts = raw.extracts.ok_or_else(|| {
        fail("no \"extracts\" in the config; write {\"extracts\": [{\"output\": ..., \"bbox\": ...}]}")
    })?;
    if extracts.is_empty() {
        return Err(fail("\"extracts\" is empty, so there is nothing to do"));
    }
    let extracts = extracts
        .into_iter()
        .enumerate()
        .map(|(index, raw)| {
            read_extract(raw, index + 1, base).map_err(|error| match error {
                error @ RegionError::Config { .. } => error,
                source => RegionError::InExtract {
                    extract: index + 1,
                    source: Box::new(source),
                },
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    let mut outputs = HashSet::new();
    for (index, extract) in extracts.iter().enumerate() {
        if !outputs.insert(&extract.output) {
            return Err(RegionError::Config {
                extract: Some(index + 1),
                reason: format!("'{}' is the output of an earlier extract as well", extract.output),
            });
        }
    }
    Ok(Config {
        directory: raw
            .directory
            .filter(|directory| !directory.is_empty())
            .map(PathBuf::from),
        extracts,
    })
}

/// Reads a config file, which may be compressed with gzip; see [`parse_config`].
///
/// # Errors
///
/// Those of [`parse_config`], [`RegionError::Read`] and [`RegionError::TooLarge`], in [`RegionError::InFile`].
pub fn read_config(path: &Path) -> Result<Config, RegionError> {
    let base = path.parent().unwrap_or(Path::new(""));
    read_text(path)
        .and_then(|text| parse_config(&text, base))
        .map_err(|error| error.in_file(path))
}

fn read_extract(raw: RawExtract, number: usize, base: &Path) -> Result<ConfigExtract, RegionError> {
    let fail = |reason: String| RegionError::Config {
        extract: Some(number),
        reason,
    };
    let output = raw
        .output
        .filter(|output| !output.is_empty())
        .ok_or_else(|| fail("no \"output\", the name of the file to write".to_owned()))?;
    let given = [
        raw.bbox.is_some(),
        raw.polygon.is_some(),
        raw.multipolygon.is_some(),
    ];
    if given.into_iter().filter(|&given| given).count() != 1 {
        return Err(fail(format!(
            "'{output}' needs one of \"bbox\", \"polygon\" and \"multipolygon\""
        )));
    }
    let region = if let Some(bbox) = &raw.bbox {
        RegionSource::Area(read_bbox(bbox).map_err(|reason| fail(format!("\"bbox\": {reason}")))?)
    } else {
        let multi = raw.multipolygon.is_some();
        let place = if multi { "multipolygon" } else { "polygon" };
        match raw.polygon.or(raw.multipolygon) {
            Some(RawArea::Inline(coordinates)) => {
                RegionSource::Area(area_of_coordinates(&coordinates, multi, place)?)
            }
            Some(RawArea::File(file)) => {
                let name = file
                    .file_name
                    .filter(|name| !name.is_empty())
                    .ok_or_else(|| fail(format!("\"{place}\" has no \"file_name\"")))?;
                let format = file.file_type.filter(|kind| !kind.is_empty());
                RegionSource::File {
                    path: base.join(name),
                    format: format.map(|kind| kind.parse()).transpose().map_err(fail)?,
                }
            }
            None => return Err(fail("no region".to_owned())),
        }
    };
    let output_header = raw
        .output_header
        .unwrap_or_default()
        .into_iter()
        .map(|(name, value)| match value {
            Value::String(value) => Ok((name, HeaderValue::Set(value))),
            Value::Null => Ok((name, HeaderValue::FromInput)),
            other => Err(fail(format!(
                "\"output_header\": {name} is {other}; write a string, or null to take it from the input"
            ))),
        })
        .collect::<Result<Vec<_>, _>>()?;
    Ok(ConfigExtract {
        output,
        output_format: raw.output_format.filter(|format| !format.is_empty()),
        description: raw.description,
        region,
        output_header,
    })
}

fn read_bbox(value: &Value) -> Result<MultiPolygon, String> {
    let expected = "write [left, bottom, right, top] or an object with these members";
    let edges: Vec<&Value> = match value {
        Value::Array(numbers) if numbers.len() == 4 => numbers.iter().collect(),
        Value::Array(numbers) => {
            return Err(format!("{} numbers instead of four; {expected}", numbers.len()));
        }
        Value::Object(members) => ["left", "bottom", "right", "top"]
            .into_iter()
            .map(|name| {
                members
                    .get(name)
                    .ok_or_else(|| format!("no \"{name}\"; {expected}"))
            })
            .collect::<Result<_, _>>()?,
        _ => return Err(format!("neither an array nor an object; {expected}")),
    };
    let edge = |i: usize| {
        edges[i]
            .as_f64()
            .ok_or_else(|| format!("{} is not a number; {expected}", edges[i]))
    };
    bbox_area(edge(0)?, edge(1)?, edge(2)?, edge(3)?)
}

/// Blanks out comments and commas before closing brackets, so that places in messages stay those of the text.
fn strict_json(text: &[u8]) -> Vec<u8> {
    let mut out = text.to_vec();
    let mut comma = None;
    let mut at = 0;
    while at < out.len() {
        match out[at] {
            b'"' => {
                comma = None;
                at += 1;
                while at < out.len() && out[at] != b'"' {
                    at += if out[at] == b'\\' { 2 } else { 1 };
                }
            }
            b'/' if matches!(out.get(at + 1), Some(b'/' | b'*')) => {
                let rest = &out[at + 2..];
                let end = if out[at + 1] == b'/' {
                    rest.iter().position(|&byte| byte == b'\n')
                } else {
                    rest.windows(2).position(|pair| pair == b"*/").map(|end| end + 2)
                };
                let end = end.map_or(out.len(), |end| at + 2 + end);
                for byte in &mut out[at..end] {
                    if *byte != b'\n' {
                        *byte = b' ';
                    }
                }
                at = end;
                continue;
            }
            b',' => comma = Some(at),
            b'}' | b']' => {
                if let Some(comma) = comma.take() {
                    out[comma] = b' ';
                }
            }
            byte if byte.is_ascii_whitespace() => {}
            _ => comma = None,
        }
        at += 1;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use osmill_model::{BoundingBox, Location};
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<Config, RegionError> {
        parse_config(text.as_bytes(), Path::new("/base"))
    }

    fn area(extract: &ConfigExtract) -> &MultiPolygon {
        match &extract.region {
            RegionSource::Area(area) => area,
            RegionSource::File { path, .. } => panic!("{path:?}"),
        }
    }

    #[test]
    fn everything_that_osmium_reads() {
        let config = parse(
            r#"{ // a comment with "quotes, ]"
                "directory": "/tmp/", "unknown": [1, {"a": null}],
                "extracts": [
                    { "output": "a//b.osm.pbf", "bbox": [11.35, 48.05, 11.73, 48.25] },
                    { "output": "b.osm.pbf", "bbox": { "left": 170, "right": -170, "top": 70, "bottom": 60 }, },
                    /* a longer
                       one */
                    { "output": "c", "output_format": "pbf", "description": "x \" y",
                      "polygon": [[[0, 0], [2, 0], [2, 2], [0, 2], [0, 0]], [[1, 1], [1.5, 1], [1.5, 1.5]]] },
                    { "output": "d.osm.pbf",
                      "multipolygon": [[[[0, 0], [2, 0], [2, 2]]], [[[5, 5], [6, 5], [6, 6]]]],
                      "output_header": { "generator": "mine", "osmosis_replication_timestamp": null } },
                    { "output": "e.osm.pbf", "polygon": { "file_name": "e.geojson", "file_type": "geojson" } },
                    { "output": "f.osm.pbf", "multipolygon": { "file_name": "/f.osm" } },
                ],
            }"#,
        )
        .unwrap();
        assert_eq!(config.directory.as_deref(), Some(Path::new("/tmp/")));
        let [a, b, c, d, e, f] = &config.extracts[..] else {
            panic!("{config:?}")
        };
        assert_eq!(a.output, "a//b.osm.pbf");
        assert_eq!(
            area(a).bbox(),
            Some(BoundingBox::new(
                113_500_000,
                480_500_000,
                117_300_000,
                482_500_000
            ))
        );
        assert!(area(b).contains(Location::new(1_750_000_000, 650_000_000)));
        assert!(!area(b).contains(Location::new(0, 650_000_000)));
        assert_eq!(
            (c.output_format.as_deref(), c.description.as_deref()),
            (Some("pbf"), Some("x \" y"))
        );
        assert!(!area(c).contains(Location::new(14_000_000, 12_000_000)));
        assert_eq!(area(d).part_count(), 2);
        assert_eq!(
            d.output_header,
            [
                ("generator".to_owned(), HeaderValue::Set("mine".to_owned())),
                ("osmosis_replication_timestamp".to_owned(), HeaderValue::FromInput)
            ]
        );
        assert_eq!(
            e.region,
            RegionSource::File {
                path: "/base/e.geojson".into(),
                format: Some(RegionFormat::GeoJson)
            }
        );
        assert_eq!(
            f.region,
            RegionSource::File {
                path: "/f.osm".into(),
                format: None
            }
        );
    }

    #[test]
    fn refusals_name_the_extract() {
        let one =
            |members: &str| format!(r#"{{"extracts":[{{"output":"ok","bbox":[0,0,1,1]}},{{{members}}}]}}"#);
        for (text, expected) in [
            ("", "cannot be read as JSON"),
            ("[]", "cannot be read as JSON"),
            ("{}", "no \"extracts\""),
            (r#"{"extracts":[]}"#, "empty"),
            (&one(r#""bbox":[0,0,1,1]"#), "extract 2: no \"output\""),
            (&one(r#""output":"a""#), "extract 2: 'a' needs one of"),
            (
                &one(r#""output":"a","bbox":[0,0,1,1],"polygon":[]"#),
                "extract 2: 'a' needs one of",
            ),
            (
                &one(r#""output":"a","bbox":[0,0,1]"#),
                "extract 2: \"bbox\": 3 numbers",
            ),
            (
                &one(r#""output":"a","bbox":[0,0,1,"x"]"#),
                "\"x\" is not a number",
            ),
            (&one(r#""output":"a","bbox":{"left":1}"#), "no \"bottom\""),
            (&one(r#""output":"a","bbox":7"#), "neither an array"),
            (&one(r#""output":"a","bbox":[36,95,37,96]"#), "pole"),
            (&one(r#""output":"a","polygon":7"#), "line 1 column"),
            (
                &one(r#""output":"a","polygon":[]"#),
                "extract 2: polygon: no ring",
            ),
            (
                &one(r#""output":"a","polygon":{}"#),
                "extract 2: \"polygon\" has no \"file_name\"",
            ),
            (
                &one(r#""output":"a","polygon":{"file_name":"x","file_type":"kml"}"#),
                "extract 2: unknown file type 'kml'",
            ),
            (
                &one(r#""output":"a","bbox":[0,0,1,1],"output_header":{"generator":1}"#),
                "generator is 1; write a string",
            ),
            (
                &one(r#""output":"ok","bbox":[0,0,1,1]"#),
                "extract 2: 'ok' is the output of an earlier",
            ),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(expected), "{text}: {message}");
        }
    }

    #[test]
    fn files_are_loaded_from_beside_the_config() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("a.poly"), "x\n1\n0 0\n4 0\n4 4\nEND\nEND\n").unwrap();
        let path = directory.path().join("config.json");
        std::fs::write(
            &path,
            r#"{"extracts":[{"output":"a","polygon":{"file_name":"a.poly"}}]}"#,
        )
        .unwrap();
        let mut config = read_config(&path).unwrap();
        assert_eq!(config.extracts.remove(0).region.load().unwrap().vertex_count(), 3);
        std::fs::write(&path, "{").unwrap();
        assert!(
            read_config(&path)
                .unwrap_err()
                .to_string()
                .contains("config.json: cannot be read")
        );
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_tried(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_config(&bytes, Path::new(""));
        }

        /// What is JSON already keeps its meaning.
        #[test]
        fn strings_are_left_alone(text in "[a/*\"\\\\,\\]} \n]{0,20}", number: i32) {
            let value = serde_json::json!({ "a": [text, number], "b": {}, "c": [[], text] });
            let bytes = serde_json::to_vec_pretty(&value).unwrap();
            prop_assert_eq!(strict_json(&bytes), bytes);
        }
    }
}
