//! One region for each feature of a GeoJSON file.

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;

use crate::geojson::Object;
use crate::source::read_text;
use crate::{MultiPolygon, RegionError};

/// The longest name that file systems take, in bytes.
const MAX_NAME: usize = 255;

/// An area with the name of the output that is to hold it.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedArea {
    /// The name: the template, filled in.
    pub name: String,
    /// The area.
    pub area: MultiPolygon,
}

/// Makes an area of each feature of a FeatureCollection, and a name for it from a template such as
/// `{id}.osm.pbf`.
///
/// `{key}` stands for the property of that key, a string, a number, true or false; `{id}` is the feature's own
/// id if there is no such property. `{{` and `}}` stand for braces. The template may name directories, values
/// may not: slashes, backslashes, other characters that file systems refuse (`:*?"<>|`) and control characters
/// in a value become `-`, so that `us/ohio` is `us-ohio`.
///
/// # Errors
///
/// [`RegionError::Config`] for a template that cannot be read, [`RegionError::GeoJson`] with the number of the
/// feature if it has no area or not the property, or if its name is none (empty, `.`, `..`, longer than 255
/// bytes) or that of another feature; those of [`parse_geojson`](crate::parse_geojson).
pub fn parse_features(bytes: &[u8], template: &str) -> Result<Vec<NamedArea>, RegionError> {
    let template = parse_template(template)?;
    let document = Object::parse(bytes)?;
    let features = match document.kind()? {
        "FeatureCollection" => document.features()?,
        "Feature" => std::slice::from_ref(&document),
        other => {
            return Err(RegionError::GeoJson {
                place: "document".to_owned(),
                reason: format!("a {other} instead of a FeatureCollection"),
            });
        }
    };
    if features.is_empty() {
        return Err(RegionError::Empty(
            "there is no feature in the collection".to_owned(),
        ));
    }
    let mut named = Vec::with_capacity(features.len());
    let mut numbers: HashMap<String, usize> = HashMap::with_capacity(features.len());
    for (number, feature) in features.iter().enumerate() {
        let place = format!("features[{number}]");
        let fail = |reason: String| RegionError::GeoJson {
            place: place.clone(),
            reason,
        };
        let area = feature
            .feature_area(&place)?
            .ok_or_else(|| fail("no geometry".to_owned()))?;
        let name = fill_in(&template, feature).map_err(fail)?;
        if let Some(earlier) = numbers.insert(name.clone(), number) {
            return Err(fail(format!(
                "its name '{name}' is that of features[{earlier}] as well; use a property that tells them apart"
            )));
        }
        named.push(NamedArea { name, area });
    }
    Ok(named)
}

/// Reads a file, which may be compressed with gzip; see [`parse_features`].
///
/// # Errors
///
/// Those of [`parse_features`], [`RegionError::Read`] and [`RegionError::TooLarge`], in [`RegionError::InFile`].
pub fn read_features(path: &Path, template: &str) -> Result<Vec<NamedArea>, RegionError> {
    read_text(path)
        .and_then(|text| parse_features(&text, template))
        .map_err(|error| error.in_file(path))
}

enum Piece {
    Text(String),
    Property(String),
}

fn parse_template(template: &str) -> Result<Vec<Piece>, RegionError> {
    let fail = |reason: &str| RegionError::Config {
        extract: None,
        reason: format!("name '{template}': {reason}; write a property in braces, as in '{{id}}.osm.pbf'"),
    };
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut chars = template.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '{' | '}' if chars.next_if_eq(&c).is_some() => text.push(c),
            '{' => {
                let mut key = String::new();
                loop {
                    match chars.next() {
                        Some('}') => break,
                        Some('{') => return Err(fail("a brace within braces")),
                        Some(c) => key.push(c),
                        None => return Err(fail("a brace is not closed")),
                    }
                }
                if key.is_empty() {
                    return Err(fail("nothing in the braces"));
                }
                pieces.push(Piece::Text(std::mem::take(&mut text)));
                pieces.push(Piece::Property(key));
            }
            '}' => return Err(fail("a closing brace that was not opened")),
            '\0' => return Err(fail("a zero byte")),
            c => text.push(c),
        }
    }
    pieces.push(Piece::Text(text));
    Ok(pieces)
}

fn fill_in(template: &[Piece], feature: &Object) -> Result<String, String> {
    let mut name = String::new();
    for piece in template {
        let key = match piece {
            Piece::Text(text) => {
                name.push_str(text);
                continue;
            }
            Piece::Property(key) => key,
        };
        let property = feature
            .properties
            .as_ref()
            .and_then(|properties| properties.get(key));
        let own = feature.id.as_ref().filter(|_| key == "id");
        let value = match property.filter(|value| !value.is_null()).or(own) {
            Some(Value::String(value)) => value.clone(),
            Some(value @ (Value::Number(_) | Value::Bool(_))) => value.to_string(),
            Some(_) => return Err(format!("its property '{key}' is neither text nor a number")),
            None => return Err(format!("it has no property '{key}' to name it by")),
        };
        if value.trim().is_empty() {
            return Err(format!("its property '{key}' is empty"));
        }
        name.extend(value.chars().map(|c| match c {
            '/' | '\\' | ':' | '*' | '?' | '"' | '<' | '>' | '|' => '-',
            c if c.is_control() => '-',
            c => c,
        }));
    }
    for component in name.split('/') {
        if matches!(component, "." | "..") {
            return Err(format!("its name '{name}' leads to another directory"));
        }
        if component.len() > MAX_NAME {
            return Err(format!(
                "its name is {} bytes long, more than {MAX_NAME}",
                component.len()
            ));
        }
    }
    if name.is_empty() || name.ends_with('/') {
        return Err(format!("'{name}' is no name of a file"));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn feature(members: &str) -> String {
        format!(
            r#"{{"type":"Feature","geometry":{{"type":"Polygon","coordinates":[[[0,0],[1,0],[1,1]]]}}{members}}}"#
        )
    }

    fn names(features: &[String], template: &str) -> Result<Vec<String>, String> {
        let text = format!(
            r#"{{"type":"FeatureCollection","features":[{}]}}"#,
            features.join(",")
        );
        parse_features(text.as_bytes(), template)
            .map(|named| named.into_iter().map(|named| named.name).collect())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn names_come_from_properties() {
        let features = [
            feature(r#","properties":{"id":"us/ohio","n":1}"#),
            feature(r#","id":7,"properties":{"id":null,"n":2.5}"#),
            feature(r#","id":"x","properties":{"id":"a:b\u0007","n":true}"#),
        ];
        assert_eq!(
            names(&features, "out/{id}-{n}.{{x}}.osm.pbf").unwrap(),
            [
                "out/us-ohio-1.{x}.osm.pbf",
                "out/7-2.5.{x}.osm.pbf",
                "out/a-b--true.{x}.osm.pbf"
            ]
        );
    }

    #[test]
    fn unsafe_and_missing_names_are_refused() {
        let plain = feature(r#","properties":{"id":"a"}"#);
        let with = |id: &str| feature(&format!(r#","properties":{{"id":{id}}}"#));
        for (features, template, expected) in [
            (
                vec![plain.clone()],
                "{name}",
                "features[0]: it has no property 'name'",
            ),
            (
                vec![plain.clone(), plain.clone()],
                "{id}",
                "features[1]: its name 'a' is that of features[0]",
            ),
            (vec![plain.clone(), plain.clone()], "x", "is that of features[0]"),
            (vec![plain.clone()], "{id", "not closed"),
            (vec![plain.clone()], "id}", "not opened"),
            (vec![plain.clone()], "{}", "nothing in the braces"),
            (vec![plain.clone()], "{a{b}}", "within braces"),
            (vec![plain.clone()], "../{id}", "another directory"),
            (vec![plain.clone()], "{id}/", "no name of a file"),
            (vec![plain], "", "no name of a file"),
            (vec![with(r#""..""#)], "{id}", "another directory"),
            (vec![with(r#"" ""#)], "{id}", "is empty"),
            (vec![with("[1]")], "{id}", "neither text"),
            (
                vec![with(&format!("\"{}\"", "x".repeat(300)))],
                "{id}",
                "300 bytes",
            ),
            (vec![], "{id}", "no feature"),
            (
                vec![r#"{"type":"Feature","geometry":null}"#.to_owned()],
                "x",
                "features[0]: no geometry",
            ),
        ] {
            let message = names(&features, template).unwrap_err();
            assert!(message.contains(expected), "{template}: {message}");
        }
        assert!(parse_features(br#"{"type":"Polygon"}"#, "x").is_err());
    }

    proptest! {
        /// Whatever the value, the name stays one component.
        #[test]
        fn values_never_leave_their_directory(id in "\\PC{0,20}|[./\\\\a]{1,6}") {
            let id = serde_json::to_string(&id).unwrap();
            if let Ok(names) = names(&[feature(&format!(r#","properties":{{"id":{id}}}"#))], "d/{id}") {
                let path = std::path::Path::new(&names[0]);
                prop_assert_eq!(path.components().count(), 2);
                prop_assert!(path.components().all(|c| matches!(c, std::path::Component::Normal(_))));
            }
        }

        #[test]
        fn any_template_can_be_tried(template in "[{}a/]{0,12}") {
            let _ = names(&[feature(r#","properties":{"a":"b"}"#)], &template);
        }
    }
}
