//! Areas as rings of exact coordinates.

use osmill_model::{BoundingBox, COORDINATE_PRECISION, Location};

use crate::RegionError;
use crate::exact::{Position, position_in_ring};
use crate::index::Index;

/// Half a turn, in units of a coordinate.
pub(crate) const HALF_TURN: i64 = 180 * COORDINATE_PRECISION as i64;
/// A turn, in units of a coordinate.
pub(crate) const TURN: i64 = 2 * HALF_TURN;
/// The latitude of the north pole, in units of a coordinate.
const QUARTER_TURN: i32 = 90 * COORDINATE_PRECISION;
/// Rings that go on beyond the antimeridian are cut here, one unit beyond it, so that no valid location is
/// ever on an edge that only the cut has made.
const SEAM: i64 = HALF_TURN + 1;
/// Pairs of a hole and a part that are looked at before a region is called too complex.
const PAIR_LIMIT: usize = 50_000_000;

/// A corner whose longitude may be up to one and a half turns from Greenwich, in units of 10⁻⁷ degrees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Corner {
    pub lon: i64,
    pub lat: i32,
}

impl Corner {
    /// A corner from degrees, rounded as locations are; what is wrong with the numbers otherwise.
    pub fn from_degrees(lon: f64, lat: f64) -> Result<Corner, String> {
        if !lon.is_finite() || !lat.is_finite() {
            return Err(format!("{lon} {lat} are not both finite numbers"));
        }
        if lat.abs() > 90.0 {
            let swapped = if lon.abs() <= 90.0 && lat.abs() <= 180.0 {
                "; longitude comes first, is the order swapped?"
            } else {
                "; are these degrees?"
            };
            return Err(format!("latitude {lat} is beyond the pole{swapped}"));
        }
        if lon.abs() > 540.0 {
            return Err(format!(
                "longitude {lon} is more than one and a half turns around; are these degrees?"
            ));
        }
        let unit = |degrees: f64| (degrees * f64::from(COORDINATE_PRECISION)).round();
        Ok(Corner {
            lon: unit(lon) as i64,
            lat: unit(lat) as i32,
        })
    }
}

impl From<Location> for Corner {
    fn from(location: Location) -> Self {
        Corner {
            lon: i64::from(location.lon),
            lat: location.lat,
        }
    }
}

/// One outer ring and the holes cut out of it, as numbers of rings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub outer: usize,
    pub holes: Vec<usize>,
}

/// A set of polygons with holes, the geometry of a region.
///
/// A location belongs to it if it belongs to any of its parts: overlapping parts are united. It belongs to a
/// part if it is inside its outer ring or on an edge of it, and not strictly inside any of its holes, so the
/// edges of holes belong to it as well. A ring encloses what it winds around at all (the non-zero rule), so
/// that a ring crossing itself encloses all its loops.
///
/// Edges are straight lines in longitude and latitude, also from 179 to -179 degrees, the long way around.
/// Rings going on beyond ±180 degrees (from 179 to 181) are wrapped around; there, the latitude at which an
/// edge passes the antimeridian is rounded to the unit. The antimeridian is one line: a location at longitude
/// 180 belongs if one at -180 does. Corners beyond a pole are moved onto it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MultiPolygon {
    /// Without repeated corners, and closed implicitly. Longitudes may be one unit beyond ±180 degrees.
    pub(crate) rings: Vec<Vec<Location>>,
    pub(crate) parts: Vec<Part>,
}

impl MultiPolygon {
    /// No area at all.
    pub fn new() -> Self {
        Self::default()
    }

    /// The area of a bounding box with its edges; `min.lon > max.lon` means across the antimeridian.
    pub fn from_bbox(bbox: BoundingBox) -> Self {
        let (left, mut right) = (i64::from(bbox.min.lon), i64::from(bbox.max.lon));
        if left > right {
            right += TURN;
        }
        let (bottom, top) = (bbox.min.lat, bbox.max.lat);
        let ring = [(left, bottom), (right, bottom), (right, top), (left, top)];
        let mut area = MultiPolygon::new();
        area.push_polygon(&ring.map(|(lon, lat)| Corner { lon, lat }), &[]);
        area
    }

    /// Adds a polygon whose holes are its own: they leave other polygons alone.
    ///
    /// Rings may repeat their first location at their end or not. Empty rings are passed over.
    pub fn add_polygon(&mut self, outer: &[Location], holes: &[Vec<Location>]) {
        let corners = |ring: &[Location]| ring.iter().map(|&l| Corner::from(l)).collect::<Vec<_>>();
        let holes: Vec<_> = holes.iter().map(|ring| corners(ring)).collect();
        self.push_polygon(&corners(outer), &holes);
    }

    /// Makes an area of rings that do not say which hole belongs to which part: a hole is cut out of every
    /// outer ring, except of those that lie within it, which are islands.
    ///
    /// # Errors
    ///
    /// [`RegionError::TooComplex`] if tens of millions of pairs of holes and parts would have to be compared.
    pub fn from_rings(outers: &[Vec<Location>], holes: &[Vec<Location>]) -> Result<Self, RegionError> {
        let corners = |rings: &[Vec<Location>]| -> Vec<Vec<Corner>> {
            rings
                .iter()
                .map(|ring| ring.iter().map(|&l| l.into()).collect())
                .collect()
        };
        Self::from_corner_rings(&corners(outers), &corners(holes))
    }

    /// Adds all polygons of another area.
    pub fn unite(&mut self, other: MultiPolygon) {
        let base = self.rings.len();
        self.rings.extend(other.rings);
        self.parts.extend(other.parts.into_iter().map(|part| Part {
            outer: part.outer + base,
            holes: part.holes.into_iter().map(|hole| hole + base).collect(),
        }));
    }

    /// Whether there is no polygon.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The number of polygons.
    pub fn part_count(&self) -> usize {
        self.parts.len()
    }

    /// The number of corners of all rings.
    pub fn vertex_count(&self) -> usize {
        self.rings.iter().map(Vec::len).sum()
    }

    /// The smallest box around all parts that does not cross the antimeridian; `None` if there are none.
    pub fn envelope(&self) -> Option<BoundingBox> {
        self.parts
            .iter()
            .map(|part| self.ring_box(part.outer))
            .reduce(BoundingBox::union)
            .map(clamp)
    }

    /// The smallest box around all parts. It crosses the antimeridian (`min.lon > max.lon`) if that makes it
    /// narrower. `None` if there are no parts. O(parts log parts).
    pub fn bbox(&self) -> Option<BoundingBox> {
        let envelope = self.envelope()?;
        let mut spans: Vec<(i32, i32)> = self
            .parts
            .iter()
            .map(|part| clamp(self.ring_box(part.outer)))
            .map(|b| (b.min.lon, b.max.lon))
            .collect();
        spans.sort_unstable();
        // The widest gap between spans is where the box has to be open, unless the antimeridian's is wider.
        let around = i64::from(envelope.min.lon) + TURN - i64::from(envelope.max.lon);
        let mut widest = (around, envelope.min.lon, envelope.max.lon);
        let mut reached = spans[0].1;
        for &(from, to) in &spans[1..] {
            let gap = i64::from(from) - i64::from(reached);
            if gap > widest.0 {
                widest = (gap, from, reached);
            }
            reached = reached.max(to);
        }
        Some(BoundingBox::new(
            widest.1,
            envelope.min.lat,
            widest.2,
            envelope.max.lat,
        ))
    }

    /// Whether the location is inside or on an edge. Exact, and O(corners): for more than a few tests build a
    /// [`Region`](crate::Region).
    pub fn contains(&self, location: Location) -> bool {
        location.is_valid()
            && (self.contains_planar(location)
                || opposite(location).is_some_and(|twin| self.contains_planar(twin)))
    }

    fn contains_planar(&self, location: Location) -> bool {
        self.parts.iter().any(|part| {
            position_in_ring(&self.rings[part.outer], location) != Position::Outside
                && part
                    .holes
                    .iter()
                    .all(|&hole| position_in_ring(&self.rings[hole], location) != Position::Inside)
        })
    }

    /// A corner of each part.
    pub(crate) fn anchors(&self) -> impl Iterator<Item = Location> {
        self.parts
            .iter()
            .filter_map(|part| self.rings[part.outer].iter().copied().find(|l| l.is_valid()))
    }

    pub(crate) fn ring_box(&self, ring: usize) -> BoundingBox {
        box_of(&self.rings[ring])
    }

    /// Adds a polygon with its own holes, wrapped around the earth as far as it goes.
    pub(crate) fn push_polygon(&mut self, outer: &[Corner], holes: &[Vec<Corner>]) {
        for turn in turns(outer) {
            let piece = wrap(outer, turn);
            if piece.is_empty() {
                continue;
            }
            let outer = self.rings.len();
            self.rings.push(piece);
            let first = self.rings.len();
            // A hole may be given a turn away from its polygon.
            for hole in holes {
                for hole_turn in turns(hole) {
                    let piece = wrap(hole, hole_turn);
                    if !piece.is_empty() {
                        self.rings.push(piece);
                    }
                }
            }
            self.parts.push(Part {
                outer,
                holes: (first..self.rings.len()).collect(),
            });
        }
    }

    /// [`MultiPolygon::from_rings`] for rings that may go on beyond ±180 degrees.
    pub(crate) fn from_corner_rings(
        outers: &[Vec<Corner>],
        holes: &[Vec<Corner>],
    ) -> Result<Self, RegionError> {
        let pieces = |rings: &[Vec<Corner>]| -> Vec<Vec<Location>> {
            rings
                .iter()
                .flat_map(|ring| turns(ring).map(move |turn| wrap(ring, turn)))
                .filter(|piece| !piece.is_empty())
                .collect()
        };
        let mut rings = pieces(outers);
        let parts = rings.len();
        rings.extend(pieces(holes));
        let boxes: Vec<_> = rings.iter().map(|ring| box_of(ring)).collect();
        let mut area = MultiPolygon {
            parts: (0..parts)
                .map(|outer| Part {
                    outer,
                    holes: Vec::new(),
                })
                .collect(),
            rings,
        };
        let mut by_left: Vec<usize> = (0..parts).collect();
        by_left.sort_unstable_by_key(|&outer| boxes[outer].min.lon);
        let mut looked_at = 0;
        for hole in parts..area.rings.len() {
            let near = by_left.partition_point(|&outer| boxes[outer].min.lon <= boxes[hole].max.lon);
            looked_at += near;
            if looked_at > PAIR_LIMIT {
                return Err(RegionError::TooComplex {
                    holes: area.rings.len() - parts,
                    parts,
                });
            }
            // Made for the first candidate: most holes have no island, some have thousands.
            let mut inside_hole = None;
            for &outer in &by_left[..near] {
                if !boxes_touch(&boxes[outer], &boxes[hole]) {
                    continue;
                }
                let island = is_within(&boxes[outer], &boxes[hole])
                    && doubled_area(&area.rings[outer]) < doubled_area(&area.rings[hole])
                    && {
                        looked_at += area.rings[outer].len();
                        let inside = inside_hole.get_or_insert_with(|| Index::of_ring(&area.rings[hole]));
                        area.rings[outer]
                            .iter()
                            .all(|&corner| inside.contains_planar(corner))
                    };
                if !island {
                    area.parts[outer].holes.push(hole);
                }
            }
        }
        Ok(area)
    }
}

/// The other name of a location on the antimeridian.
#[inline]
pub(crate) fn opposite(location: Location) -> Option<Location> {
    (location.lon.unsigned_abs() == HALF_TURN as u32).then(|| Location::new(-location.lon, location.lat))
}

fn box_of(ring: &[Location]) -> BoundingBox {
    let mut bbox = BoundingBox::of(ring.first().copied().unwrap_or_default());
    ring.iter().for_each(|&location| bbox.extend(location));
    bbox
}

fn clamp(mut bbox: BoundingBox) -> BoundingBox {
    bbox.min.lon = bbox.min.lon.max(-HALF_TURN as i32);
    bbox.max.lon = bbox.max.lon.min(HALF_TURN as i32);
    bbox
}

pub(crate) fn boxes_touch(a: &BoundingBox, b: &BoundingBox) -> bool {
    a.min.lon <= b.max.lon && b.min.lon <= a.max.lon && a.min.lat <= b.max.lat && b.min.lat <= a.max.lat
}

fn is_within(inner: &BoundingBox, outer: &BoundingBox) -> bool {
    outer.contains(inner.min) && outer.contains(inner.max)
}

/// Twice the area that the ring encloses.
fn doubled_area(ring: &[Location]) -> u128 {
    let mut sum = 0i128;
    let mut a = ring.last().copied().unwrap_or_default();
    for &b in ring {
        sum += i128::from(a.lon) * i128::from(b.lat) - i128::from(b.lon) * i128::from(a.lat);
        a = b;
    }
    sum.unsigned_abs()
}

/// The turns by which the ring has to be moved so that each of its stretches comes to lie within ±180 degrees.
fn turns(ring: &[Corner]) -> std::ops::RangeInclusive<i64> {
    let min = ring.iter().map(|corner| corner.lon).min().unwrap_or(0);
    let max = ring.iter().map(|corner| corner.lon).max().unwrap_or(0);
    if min >= -HALF_TURN && max <= HALF_TURN {
        return 0..=0;
    }
    (min + HALF_TURN).div_euclid(TURN)..=(max + HALF_TURN).div_euclid(TURN)
}

/// The stretch of the ring within ±180 degrees (and one unit more) after moving it back by `turn` turns,
/// without repeated corners; empty if there is none.
fn wrap(ring: &[Corner], turn: i64) -> Vec<Location> {
    let moved = ring.iter().map(|corner| Corner {
        lon: corner.lon - turn * TURN,
        lat: corner.lat.clamp(-QUARTER_TURN, QUARTER_TURN),
    });
    let mut piece: Vec<Corner> = moved.collect();
    if piece.iter().any(|corner| corner.lon < -SEAM) {
        piece = cut(&piece, -SEAM, |lon| lon >= -SEAM);
    }
    if piece.iter().any(|corner| corner.lon > SEAM) {
        piece = cut(&piece, SEAM, |lon| lon <= SEAM);
    }
    let mut locations: Vec<Location> = piece
        .into_iter()
        .map(|corner| Location::new(corner.lon as i32, corner.lat))
        .collect();
    locations.dedup();
    while locations.len() > 1 && locations.first() == locations.last() {
        locations.pop();
    }
    locations
}

/// Cuts off what lies beyond a meridian (Sutherland and Hodgman's re-entrant clipping, one plane).
fn cut(ring: &[Corner], meridian: i64, keep: impl Fn(i64) -> bool) -> Vec<Corner> {
    let mut kept = Vec::with_capacity(ring.len() + 4);
    let Some(&last) = ring.last() else {
        return kept;
    };
    let mut a = last;
    for &b in ring {
        if keep(a.lon) != keep(b.lon) {
            let (run, rise) = (b.lon - a.lon, i64::from(b.lat) - i64::from(a.lat));
            // Rounded to the nearest unit; |run| is at least 1 and every product far below i128's range.
            let doubled = 2 * i128::from(rise) * i128::from(meridian - a.lon) * i128::from(run.signum());
            let lat = i64::from(a.lat)
                + (doubled + i128::from(run.abs())).div_euclid(2 * i128::from(run.abs())) as i64;
            kept.push(Corner {
                lon: meridian,
                lat: lat as i32,
            });
        }
        if keep(b.lon) {
            kept.push(b);
        }
        a = b;
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn deg(lon: f64, lat: f64) -> Location {
        Location::from_degrees(lon, lat).unwrap()
    }

    fn corners(points: &[(f64, f64)]) -> Vec<Corner> {
        points
            .iter()
            .map(|&(lon, lat)| Corner::from_degrees(lon, lat).unwrap())
            .collect()
    }

    fn square(from: f64, to: f64) -> Vec<Location> {
        vec![
            deg(from, from),
            deg(to, from),
            deg(to, to),
            deg(from, to),
            deg(from, from),
        ]
    }

    #[test]
    fn overlapping_parts_are_united_and_holes_stay_with_their_polygon() {
        let mut area = MultiPolygon::new();
        area.add_polygon(&square(0.0, 2.0), &[]);
        area.add_polygon(&square(1.0, 3.0), &[square(1.5, 2.5)]);
        for (at, expected) in [
            (0.5, true),
            (1.2, true),
            (1.7, true),
            (2.2, false),
            (2.5, true),
            (3.1, false),
        ] {
            assert_eq!(area.contains(deg(at, at)), expected, "{at}");
        }
        assert_eq!(area.part_count(), 2);
        assert_eq!(area.vertex_count(), 12);
    }

    #[test]
    fn loose_holes_are_cut_out_of_all_but_islands() {
        let rings = [square(0.0, 10.0), square(4.0, 5.0), square(7.0, 12.0)];
        let area = MultiPolygon::from_rings(&rings, &[square(3.0, 8.0)]).unwrap();
        for (at, expected) in [
            (1.0, true),
            (3.5, false),
            (4.5, true),
            (6.0, false),
            (7.5, false),
            (11.0, true),
        ] {
            assert_eq!(area.contains(deg(at, at)), expected, "{at}");
        }
        // A hole equal to its part leaves the line only.
        let area = MultiPolygon::from_rings(&[square(0.0, 1.0)], &[square(0.0, 1.0)]).unwrap();
        assert!(area.contains(deg(0.0, 0.5)) && !area.contains(deg(0.5, 0.5)));
    }

    #[test]
    fn rings_beyond_the_antimeridian_come_back_on_the_other_side() {
        let mut area = MultiPolygon::new();
        let ring = corners(&[(170.0, 60.0), (190.0, 60.0), (190.0, 70.0), (170.0, 70.0)]);
        area.push_polygon(
            &ring,
            &[corners(&[
                (-179.0, 64.0),
                (-178.0, 64.0),
                (-178.0, 66.0),
                (-179.0, 66.0),
            ])],
        );
        for (lon, lat, expected) in [
            (175.0, 65.0, true),
            (180.0, 65.0, true),
            (-180.0, 65.0, true),
            (-180.0, 60.0, true),
            (-175.0, 65.0, true),
            (-178.5, 65.0, false),
            (-169.0, 65.0, false),
            (169.0, 65.0, false),
            (180.0, 71.0, false),
        ] {
            assert_eq!(area.contains(deg(lon, lat)), expected, "{lon} {lat}");
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
        assert_eq!(
            area.envelope(),
            Some(BoundingBox::new(
                -1_800_000_000,
                600_000_000,
                1_800_000_000,
                700_000_000
            ))
        );
        assert!(!area.contains(Location::new(1_800_000_001, 650_000_000)));
    }

    #[test]
    fn touching_the_antimeridian_is_enough_for_its_other_name() {
        let area = MultiPolygon::from_bbox(BoundingBox::new(1_700_000_000, 0, 1_800_000_000, 10));
        assert!(area.contains(Location::new(-1_800_000_000, 5)));
        assert!(!area.contains(Location::new(-1_799_999_999, 5)));
    }

    #[test]
    fn locations_off_the_earth_do_no_harm() {
        let far =
            [i32::MIN, -1, i32::MAX].map(|lon| [i32::MIN, 1, i32::MAX].map(|lat| Location::new(lon, lat)));
        let ring = far.concat();
        let mut area =
            MultiPolygon::from_rings(std::slice::from_ref(&ring), std::slice::from_ref(&ring)).unwrap();
        area.add_polygon(&ring, &[]);
        let region = crate::Region::new(area.clone());
        for p in [
            deg(-180.0, 0.0),
            deg(90.0, 89.0),
            deg(-90.0, -90.0),
            deg(30.0, -80.0),
        ] {
            assert_eq!(region.contains(p), area.contains(p), "{p}");
        }
        assert!(ring.iter().all(|&p| p.is_valid() || !region.contains(p)));
        let all = BoundingBox::new(i32::MIN, i32::MIN, i32::MAX, i32::MAX);
        assert!(MultiPolygon::from_bbox(all).contains(deg(180.0, 90.0)));
    }

    #[test]
    fn numbers_out_of_range_are_explained() {
        assert!(Corner::from_degrees(36.0, 91.0).unwrap_err().contains("swapped"));
        assert!(Corner::from_degrees(1000.0, 0.0).unwrap_err().contains("turns"));
        assert!(Corner::from_degrees(f64::NAN, 0.0).is_err());
    }

    #[test]
    fn too_many_pairs_are_refused() {
        let dot = vec![deg(1.0, 1.0)];
        let many = vec![dot; 8000];
        assert!(matches!(
            MultiPolygon::from_rings(&many, &many),
            Err(RegionError::TooComplex { .. })
        ));
    }

    proptest! {
        /// Turning the whole ring around the earth changes nothing.
        #[test]
        fn a_turn_is_the_identity(
            points in prop::collection::vec((-400i64..400, -80i32..80), 1..8),
            probe in (-180i32..=180, -80i32..80),
            turn in -1i64..=1,
        ) {
            let unit = i64::from(COORDINATE_PRECISION);
            let ring = |turn: i64| -> Vec<Corner> {
                points
                    .iter()
                    .map(|&(lon, lat)| Corner { lon: lon * unit / 4 + turn * TURN, lat: lat * unit as i32 })
                    .collect()
            };
            let area = |turn| {
                let mut area = MultiPolygon::new();
                area.push_polygon(&ring(turn), &[]);
                area
            };
            let probe = Location::new(probe.0 * unit as i32, probe.1 * unit as i32);
            prop_assert_eq!(area(0).contains(probe), area(turn).contains(probe));
        }

        /// Against a model that does not wrap the ring but asks it about each of the location's names.
        #[test]
        fn wrapping_is_asking_a_turn_away(
            points in prop::collection::vec((-30i64..30, -8i32..8), 3..8),
            probe in (-18i32..=18, -8i32..8),
        ) {
            // Slopes that meet the antimeridian at whole units: rounding has nothing to do.
            let unit = 10_000_000i64 * 10;
            let ring: Vec<Corner> = points
                .iter()
                .map(|&(lon, lat)| Corner { lon: lon * unit, lat: lat * unit as i32 })
                .collect();
            let mut area = MultiPolygon::new();
            area.push_polygon(&ring, &[]);
            let probe = Location::new(probe.0 * unit as i32, probe.1 * unit as i32);
            // Scaled down, a turn is 36, and everything fits.
            let small: Vec<Location> = points.iter().map(|&(lon, lat)| Location::new(lon as i32, lat)).collect();
            let at = |turn: i32| {
                let p = Location::new((i64::from(probe.lon) / unit) as i32 + 36 * turn, (i64::from(probe.lat) / unit) as i32);
                position_in_ring(&small, p)
            };
            let model = (-2..=2).map(at).collect::<Vec<_>>();
            if model.iter().all(|&p| p == Position::Outside) {
                prop_assert!(!area.contains(probe));
            } else if model.contains(&Position::Inside) {
                prop_assert!(area.contains(probe));
            }
        }
    }
}
