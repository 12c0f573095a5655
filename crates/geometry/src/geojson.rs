//! Areas in GeoJSON (RFC 7946).
//!
//! A document is read into [`Object`]s that keep what regions need: coordinates go into compact vectors while
//! they are parsed, so that memory stays near the size of the text. The depth of nesting is bounded by the
//! JSON parser.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::multipolygon::Corner;
use crate::{MultiPolygon, RegionError};

/// Reads a GeoJSON document: a Polygon or a MultiPolygon, bare, as a Feature, or any number of them in a
/// FeatureCollection, which are united.
///
/// Features without geometry are passed over. A third coordinate (altitude) is ignored. Rings need not repeat
/// their first corner, but need three.
///
/// # Errors
///
/// [`RegionError::Json`] if it is not JSON, [`RegionError::GeoJson`] with the place if it is something else
/// (points and lines enclose nothing, and are refused rather than ignored), [`RegionError::Empty`] if no area
/// is left.
pub fn parse_geojson(bytes: &[u8]) -> Result<MultiPolygon, RegionError> {
    let document = Object::parse(bytes)?;
    let mut area = MultiPolygon::new();
    match document.kind()? {
        "FeatureCollection" => {
            for (number, feature) in document.features()?.iter().enumerate() {
                if let Some(part) = feature.feature_area(&format!("features[{number}]"))? {
                    area.unite(part);
                }
            }
        }
        "Feature" => {
            if let Some(part) = document.feature_area("feature")? {
                area = part;
            }
        }
        _ => area = document.geometry_area("geometry")?,
    }
    if area.is_empty() {
        return Err(RegionError::Empty("no feature has a geometry".to_owned()));
    }
    Ok(area)
}

/// Any GeoJSON object, with what regions need.
#[derive(Debug, Deserialize)]
pub(crate) struct Object {
    #[serde(rename = "type")]
    kind: Option<Value>,
    coordinates: Option<Coordinates>,
    geometry: Option<Box<Object>>,
    #[serde(default)]
    geometries: Option<Vec<Object>>,
    features: Option<Vec<Object>>,
    /// The members of a feature that the format leaves to its maker.
    #[serde(default)]
    pub properties: Option<Map<String, Value>>,
    /// The feature's id.
    #[serde(default)]
    pub id: Option<Value>,
}

impl Object {
    pub fn parse(bytes: &[u8]) -> Result<Object, RegionError> {
        let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
        if bytes.trim_ascii_start().starts_with(b"[") {
            return Err(fail("document", "an array, not a GeoJSON object"));
        }
        Ok(serde_json::from_slice(bytes)?)
    }

    pub fn kind(&self) -> Result<&str, RegionError> {
        match &self.kind {
            Some(Value::String(kind)) => Ok(kind),
            Some(_) => Err(fail("type", "not a string")),
            None => Err(fail("document", "no \"type\", so this is JSON but not GeoJSON")),
        }
    }

    pub fn features(&self) -> Result<&[Object], RegionError> {
        self.features
            .as_deref()
            .ok_or_else(|| fail("document", "a FeatureCollection without \"features\""))
    }

    /// The area of a feature; `None` if it says that it has none.
    pub fn feature_area(&self, place: &str) -> Result<Option<MultiPolygon>, RegionError> {
        if self.kind()? != "Feature" {
            return Err(fail(place, format!("a {} instead of a Feature", self.kind()?)));
        }
        self.geometry
            .as_ref()
            .map(|geometry| geometry.geometry_area(&format!("{place}.geometry")))
            .transpose()
    }

    fn geometry_area(&self, place: &str) -> Result<MultiPolygon, RegionError> {
        let kind = self.kind()?;
        let coordinates = || {
            self.coordinates
                .as_ref()
                .ok_or_else(|| fail(place, format!("a {kind} without \"coordinates\"")))
        };
        let inner = format!("{place}.coordinates");
        let mut area = MultiPolygon::new();
        match kind {
            "Polygon" => add_polygon(&mut area, coordinates()?, &inner)?,
            "MultiPolygon" => add_multipolygon(&mut area, coordinates()?, &inner)?,
            "GeometryCollection" if self.geometries.as_ref().is_none_or(Vec::is_empty) => {
                return Err(fail(place, "an empty GeometryCollection encloses nothing"));
            }
            other => {
                return Err(fail(
                    place,
                    format!("a {other} is no area; Polygon and MultiPolygon are understood"),
                ));
            }
        }
        Ok(area)
    }
}

/// Reads the coordinates of a Polygon, or of a MultiPolygon, on their own.
pub(crate) fn area_of_coordinates(
    coordinates: &Coordinates,
    multi: bool,
    place: &str,
) -> Result<MultiPolygon, RegionError> {
    let mut area = MultiPolygon::new();
    if multi {
        add_multipolygon(&mut area, coordinates, place)?;
    } else {
        add_polygon(&mut area, coordinates, place)?;
    }
    Ok(area)
}

fn fail(place: &str, reason: impl Into<String>) -> RegionError {
    RegionError::GeoJson {
        place: place.to_owned(),
        reason: reason.into(),
    }
}

fn add_multipolygon(
    area: &mut MultiPolygon,
    coordinates: &Coordinates,
    place: &str,
) -> Result<(), RegionError> {
    let polygons = coordinates.list(place, "a list of polygons")?;
    if polygons.is_empty() {
        return Err(fail(place, "no polygon in the list"));
    }
    for (number, polygon) in polygons.iter().enumerate() {
        add_polygon(area, polygon, &format!("{place}[{number}]"))?;
    }
    Ok(())
}

fn add_polygon(area: &mut MultiPolygon, coordinates: &Coordinates, place: &str) -> Result<(), RegionError> {
    let mut rings = coordinates
        .list(place, "a list of rings")?
        .iter()
        .enumerate()
        .map(|(number, ring)| ring_corners(ring, &format!("{place}[{number}]")))
        .collect::<Result<Vec<_>, _>>()?;
    if rings.is_empty() {
        return Err(fail(place, "no ring in the list"));
    }
    let outer = rings.remove(0);
    area.push_polygon(&outer, &rings);
    Ok(())
}

fn ring_corners(ring: &Coordinates, place: &str) -> Result<Vec<Corner>, RegionError> {
    let Coordinates::Line(points) = ring else {
        return Err(fail(place, format!("{ring} where a ring of positions belongs")));
    };
    if points.len() < 3 {
        return Err(fail(
            place,
            format!("a ring of {} positions, which needs at least three", points.len()),
        ));
    }
    points
        .iter()
        .enumerate()
        .map(|(number, &[lon, lat])| {
            Corner::from_degrees(lon, lat).map_err(|reason| fail(&format!("{place}[{number}]"), reason))
        })
        .collect()
}

/// Coordinates of any depth.
#[derive(Debug)]
pub(crate) enum Coordinates {
    Number(f64),
    Position([f64; 2]),
    /// Positions; never empty.
    Line(Vec<[f64; 2]>),
    List(Vec<Coordinates>),
}

impl Coordinates {
    fn list(&self, place: &str, expected: &str) -> Result<&[Coordinates], RegionError> {
        match self {
            Coordinates::List(list) => Ok(list),
            other => Err(fail(place, format!("{other} where {expected} belongs"))),
        }
    }
}

impl fmt::Display for Coordinates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Coordinates::Number(_) => "a number",
            Coordinates::Position(_) => "a position",
            Coordinates::Line(_) => "a list of positions",
            Coordinates::List(list) if list.is_empty() => "an empty list",
            Coordinates::List(_) => "a list of lists",
        })
    }
}

impl<'de> Deserialize<'de> for Coordinates {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CoordinatesVisitor)
    }
}

struct CoordinatesVisitor;

impl<'de> Visitor<'de> for CoordinatesVisitor {
    type Value = Coordinates;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("coordinates: numbers, or arrays of them")
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Coordinates, E> {
        Ok(Coordinates::Number(number))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Coordinates, E> {
        Ok(Coordinates::Number(number as f64))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Coordinates, E> {
        Ok(Coordinates::Number(number as f64))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Coordinates, A::Error> {
        match items.next_element::<Coordinates>()? {
            None => Ok(Coordinates::List(Vec::new())),
            Some(Coordinates::Number(lon)) => {
                let Some(lat) = items.next_element::<f64>()? else {
                    return Err(A::Error::custom(
                        "a position of one number, which needs a longitude and a latitude",
                    ));
                };
                while items.next_element::<f64>()?.is_some() {}
                Ok(Coordinates::Position([lon, lat]))
            }
            Some(Coordinates::Position(first)) => {
                let mut line = vec![first];
                while let Some(next) = items.next_element::<Coordinates>()? {
                    match next {
                        Coordinates::Position(position) => line.push(position),
                        other => return Err(A::Error::custom(format!("{other} among positions"))),
                    }
                }
                Ok(Coordinates::Line(line))
            }
            Some(first) => {
                let mut list = vec![first];
                while let Some(next) = items.next_element()? {
                    list.push(next);
                }
                Ok(Coordinates::List(list))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use osmill_model::Location;
    use proptest::prelude::*;

    fn holds(area: &MultiPolygon, lon: f64, lat: f64) -> bool {
        area.contains(Location::from_degrees(lon, lat).unwrap())
    }

    const SQUARE: &str = "[[0,0],[2,0],[2,2],[0,2],[0,0]]";
    const OTHER: &str = "[[1,1],[3,1,99.5],[3,3],[1.0e0,3]]";

    #[test]
    fn every_form_of_an_area() {
        let polygon = format!(r#"{{"type":"Polygon","coordinates":[{SQUARE}]}}"#);
        let multi = format!(r#"{{"coordinates":[[{SQUARE}],[{OTHER}]],"type":"MultiPolygon"}}"#);
        let feature = |geometry: &str| {
            format!(r#"{{"type":"Feature","id":7,"properties":null,"geometry":{geometry}}}"#)
        };
        let other = format!(r#"{{"type":"Polygon","coordinates":[{OTHER}],"bbox":[1,1,3,3]}}"#);
        let collection = format!(
            "\u{feff} {{\"type\":\"FeatureCollection\",\"crs\":{{\"type\":\"name\"}},\"features\":[{},{},{}]}}",
            feature(&polygon),
            feature("null"),
            feature(&other)
        );
        for (text, parts) in [
            (&polygon, 1),
            (&feature(&polygon), 1),
            (&multi, 2),
            (&feature(&multi), 2),
            (&collection, 2),
        ] {
            let area = parse_geojson(text.as_bytes()).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(area.part_count(), parts, "{text}");
            assert!(holds(&area, 0.5, 0.5) && holds(&area, 1.5, 1.5));
            assert_eq!(holds(&area, 2.5, 2.5), parts == 2, "{text}");
        }
    }

    #[test]
    fn holes_are_the_polygon_s_own() {
        let text = format!(
            r#"{{"type":"MultiPolygon","coordinates":[[{SQUARE},[[1.2,1.2],[1.8,1.2],[1.8,1.8]]],[{OTHER}]]}}"#
        );
        assert!(holds(&parse_geojson(text.as_bytes()).unwrap(), 1.7, 1.3));
        let text =
            format!(r#"{{"type":"Polygon","coordinates":[{SQUARE},[[1.2,1.2],[1.8,1.2],[1.8,1.8]]]}}"#);
        assert!(!holds(&parse_geojson(text.as_bytes()).unwrap(), 1.7, 1.3));
    }

    #[test]
    fn refusals_name_the_place() {
        for (text, expected) in [
            ("{", "cannot be read as JSON"),
            ("[]", "an array"),
            ("{}", "no \"type\""),
            (r#"{"type":3}"#, "not a string"),
            (r#"{"type":"Point","coordinates":[1,2]}"#, "a Point is no area"),
            (
                r#"{"type":"GeometryCollection","geometries":[]}"#,
                "empty GeometryCollection",
            ),
            (
                r#"{"type":"GeometryCollection","geometries":[{"type":"Point"}]}"#,
                "no area",
            ),
            (r#"{"type":"Polygon"}"#, "without \"coordinates\""),
            (r#"{"type":"Polygon","coordinates":[]}"#, "no ring"),
            (r#"{"type":"MultiPolygon","coordinates":[]}"#, "no polygon"),
            (
                r#"{"type":"Polygon","coordinates":[[[0,0],[1,1]]]}"#,
                "coordinates[0]: a ring of 2",
            ),
            (
                r#"{"type":"Polygon","coordinates":[[0,0],[1,1],[1,0]]}"#,
                "a list of positions where a list of rings",
            ),
            (
                r#"{"type":"MultiPolygon","coordinates":[[[0,0],[1,1],[1,0]]]}"#,
                "coordinates[0]: a list of positions",
            ),
            (
                r#"{"type":"Polygon","coordinates":[[[0,0],[1,1],[1]]]}"#,
                "one number",
            ),
            (
                r#"{"type":"Polygon","coordinates":[[[0,0],[1,"x"],[1,2]]]}"#,
                "cannot be read as JSON",
            ),
            (
                r#"{"type":"Polygon","coordinates":[[[36,54],[39,95],[36,95]]]}"#,
                "coordinates[0][1]: latitude 95",
            ),
            (r#"{"type":"FeatureCollection"}"#, "without \"features\""),
            (
                r#"{"type":"FeatureCollection","features":[]}"#,
                "no feature has a geometry",
            ),
            (
                r#"{"type":"FeatureCollection","features":[{"type":"Polygon"}]}"#,
                "features[0]: a Polygon instead",
            ),
            (r#"{"type":"Topology"}"#, "a Topology is no area"),
        ] {
            let message = parse_geojson(text.as_bytes()).unwrap_err().to_string();
            assert!(message.contains(expected), "{text}: {message}");
        }
    }

    #[test]
    fn deep_nesting_is_an_error_not_an_overflow() {
        let arrays = format!(r#"{{"type":"Polygon","coordinates":{}"#, "[".repeat(1_000_000));
        assert!(parse_geojson(arrays.as_bytes()).is_err());
        let objects = r#"{"type":"Feature","geometry":"#.repeat(100_000);
        assert!(parse_geojson(objects.as_bytes()).is_err());
        let collections = r#"{"type":"FeatureCollection","features":["#.repeat(100_000);
        assert!(parse_geojson(collections.as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_tried(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_geojson(&bytes);
        }

        #[test]
        fn any_tokens_can_be_tried(
            tokens in prop::collection::vec(
                prop::sample::select(vec![
                    "{", "}", "[", "]", ",", ":", "\"type\"", "\"Polygon\"", "\"coordinates\"", "\"features\"",
                    "1", "-180.5", "1e300", "null", "[[[1,1],[2,2],[1,2]]]",
                ]),
                0..30,
            )
        ) {
            let _ = parse_geojson(tokens.concat().as_bytes());
        }

        #[test]
        fn damage_is_survived(at in 0usize..90, byte: u8) {
            let mut text = format!(r#"{{"type":"Feature","geometry":{{"type":"Polygon","coordinates":[{SQUARE}]}}}}"#).into_bytes();
            let at = at % text.len();
            text[at] = byte;
            let _ = parse_geojson(&text);
        }
    }
}
