//! Bounding boxes as people write them.

use osmill_model::BoundingBox;

use crate::multipolygon::{Corner, boxes_touch};
use crate::{MultiPolygon, RegionError};

/// Reads `left,bottom,right,top` in degrees.
///
/// The latitudes may come in either order. `left > right` means across the antimeridian: `170,60,-170,70` is
/// 20 degrees wide. Longitudes may go on beyond 180: `170,60,190,70` is the same box. Blanks around the
/// numbers are fine, and so are boxes without height or width, whose edges still hold locations.
///
/// # Errors
///
/// [`RegionError::Bbox`] if there are not four numbers, a latitude is beyond a pole, or a longitude more than
/// one and a half turns around.
pub fn parse_bbox(text: &str) -> Result<MultiPolygon, RegionError> {
    let fail = |reason: String| RegionError::Bbox {
        text: text.chars().take(100).collect(),
        reason,
    };
    let numbers = text
        .split(',')
        .map(|number| {
            number.trim().parse::<f64>().map_err(|_| {
                fail(format!(
                    "'{}' is not a number; write left,bottom,right,top",
                    number.trim()
                ))
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    let &[left, bottom, right, top] = &numbers[..] else {
        return Err(fail(format!(
            "{} numbers instead of four; write left,bottom,right,top in degrees",
            numbers.len()
        )));
    };
    bbox_area(left, bottom, right, top).map_err(fail)
}

/// The area of a box from its edges in degrees, read as [`parse_bbox`] does; what is wrong with them otherwise.
pub(crate) fn bbox_area(left: f64, bottom: f64, right: f64, top: f64) -> Result<MultiPolygon, String> {
    let (bottom, top) = if bottom > top {
        (top, bottom)
    } else {
        (bottom, top)
    };
    let low = Corner::from_degrees(left, bottom)?;
    let high = Corner::from_degrees(right, top)?;
    let right = if low.lon > high.lon {
        Corner::from_degrees(right + 360.0, top)?.lon
    } else {
        high.lon
    };
    if low.lon > right {
        return Err(format!("left {left} is more than a turn east of right"));
    }
    let ring = [
        (low.lon, low.lat),
        (right, low.lat),
        (right, high.lat),
        (low.lon, high.lat),
    ];
    let mut area = MultiPolygon::new();
    area.push_polygon(&ring.map(|(lon, lat)| Corner { lon, lat }), &[]);
    Ok(area)
}

/// Whether somebody probably wrote latitudes first: the box of a region misses the box of the data, and would
/// touch it if longitude and latitude were exchanged.
pub fn looks_swapped(region: BoundingBox, data: BoundingBox) -> bool {
    let planar = |bbox: BoundingBox| {
        let (left, right) = (bbox.min.lon, bbox.max.lon);
        let spans = if left <= right {
            vec![(left, right)]
        } else {
            vec![(left, i32::MAX), (i32::MIN, right)]
        };
        spans
            .into_iter()
            .map(move |(left, right)| BoundingBox::new(left, bbox.min.lat, right, bbox.max.lat))
    };
    let touches = |bbox: BoundingBox| planar(bbox).any(|a| planar(data).any(|b| boxes_touch(&a, &b)));
    // Written latitude first, a box with left > right is one whose latitudes came in the other order.
    let (low, high) = (
        region.min.lon.min(region.max.lon),
        region.min.lon.max(region.max.lon),
    );
    !touches(region) && touches(BoundingBox::new(region.min.lat, low, region.max.lat, high))
}

#[cfg(test)]
mod tests {
    use super::*;
    use osmill_model::Location;

    #[test]
    fn corners_in_any_order_of_latitude() {
        let plain = BoundingBox::new(113_500_000, 480_500_000, 117_300_000, 482_500_000);
        for text in ["11.35,48.05,11.73,48.25", " 11.35, 48.25 ,1.173e1,48.05"] {
            assert_eq!(parse_bbox(text).unwrap().bbox(), Some(plain), "{text}");
        }
    }

    #[test]
    fn left_of_right_is_across_the_antimeridian() {
        for text in ["170,60,-170,70", "170,60,190,70", "-190,60,-170,70"] {
            let area = parse_bbox(text).unwrap();
            for (lon, expected) in [
                (170, true),
                (180, true),
                (-180, true),
                (-175, true),
                (-169, false),
                (0, false),
            ] {
                let at = Location::new(lon * 10_000_000, 650_000_000);
                assert_eq!(area.contains(at), expected, "{text} {lon}");
            }
            assert_eq!(
                area.bbox(),
                Some(BoundingBox::new(
                    1_700_000_000,
                    600_000_000,
                    -1_700_000_000,
                    700_000_000
                ))
            );
        }
    }

    #[test]
    fn the_whole_earth_and_a_point() {
        let all = parse_bbox("-180,-90,180,90").unwrap();
        assert!(all.contains(Location::new(1_800_000_000, 900_000_000)) && all.contains(Location::new(0, 0)));
        let point = parse_bbox("1,2,1,2").unwrap();
        assert!(point.contains(Location::new(10_000_000, 20_000_000)));
        assert!(!point.contains(Location::new(10_000_001, 20_000_000)));
    }

    #[test]
    fn latitudes_first_are_noticed() {
        let data = BoundingBox::new(359_000_000, 543_000_000, 396_000_000, 572_000_000);
        for (text, expected) in [
            ("57.2,35.9,54.3,39.6", true),
            ("54.3,35.9,57.2,39.6", true),
            ("35.9,54.3,39.6,57.2", false),
            ("1,2,3,4", false),
            ("-57.2,35.9,-54.3,39.6", false),
        ] {
            let bbox = parse_bbox(text).unwrap().bbox().unwrap();
            assert_eq!(looks_swapped(bbox, data), expected, "{text}");
        }
        let pacific = BoundingBox::new(1_790_000_000, 0, -1_790_000_000, 10_000_000);
        assert!(!looks_swapped(
            parse_bbox("-179.5,0,-179.2,1").unwrap().bbox().unwrap(),
            pacific
        ));
    }

    #[test]
    fn refusals_say_what_to_write() {
        for (text, expected) in [
            ("", "is not a number"),
            ("1,2,3", "3 numbers instead of four"),
            ("1,2,3,4,5", "5 numbers"),
            ("1,2,3,x", "'x' is not a number"),
            ("36.0,95,37,99", "beyond the pole"),
            ("nan,1,2,3", "finite"),
            ("900,1,2,3", "turns"),
            ("540,1,-540,3", "turn"),
        ] {
            let message = parse_bbox(text).unwrap_err().to_string();
            assert!(message.contains(expected), "{text}: {message}");
        }
    }
}
