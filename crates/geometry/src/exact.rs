//! Exact predicates on integer coordinates.
//!
//! Everything is decided by the sign of a cross product. Within the range of valid locations a single
//! product of a longitude difference (at most 3.6e9 + 2) and a latitude difference (at most 1.8e9) fits an
//! `i64`, and two products are compared rather than subtracted, so no step rounds or overflows. Segments that
//! were moved by a turn of the earth, and locations of unknown validity, go through `i128`.

use std::cmp::Ordering;

use osmill_model::Location;

/// Where a location lies with regard to a closed ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Position {
    Outside,
    Edge,
    Inside,
}

/// On which side of the line from `a` to `b` the point `p` lies: `Greater` is to its right. Any `i32`.
pub(crate) fn side(a: Location, b: Location, p: Location) -> Ordering {
    side_wide(widen(a), widen(b), widen(p))
}

/// A location whose longitude may be a turn away.
pub(crate) type Wide = (i64, i64);

pub(crate) fn widen(location: Location) -> Wide {
    (i64::from(location.lon), i64::from(location.lat))
}

/// [`side`] for wide locations.
pub(crate) fn side_wide(a: Wide, b: Wide, p: Wide) -> Ordering {
    let along = i128::from(p.0 - a.0) * i128::from(b.1 - a.1);
    let across = i128::from(b.0 - a.0) * i128::from(p.1 - a.1);
    along.cmp(&across)
}

/// Whether two closed segments share a point.
pub(crate) fn segments_touch(a: Wide, b: Wide, c: Wide, d: Wide) -> bool {
    let apart = |a0: i64, a1: i64, b0: i64, b1: i64| a0.max(a1) < b0.min(b1) || b0.max(b1) < a0.min(a1);
    if apart(a.0, b.0, c.0, d.0) || apart(a.1, b.1, c.1, d.1) {
        return false;
    }
    // Boxes overlap: the segments touch unless one lies strictly on one side of the other's line.
    let strictly_beside = |first: Ordering, second: Ordering| first == second && first != Ordering::Equal;
    !strictly_beside(side_wide(a, b, c), side_wide(a, b, d))
        && !strictly_beside(side_wide(c, d, a), side_wide(c, d, b))
}

/// Whether the closed segment `a`-`b` shares a point with the closed rectangle.
pub(crate) fn segment_touches_box(a: Location, b: Location, min: Location, max: Location) -> bool {
    if a.lon.max(b.lon) < min.lon
        || a.lon.min(b.lon) > max.lon
        || a.lat.max(b.lat) < min.lat
        || a.lat.min(b.lat) > max.lat
    {
        return false;
    }
    let first = side(a, b, min);
    first == Ordering::Equal
        || [
            Location::new(min.lon, max.lat),
            Location::new(max.lon, min.lat),
            max,
        ]
        .into_iter()
        .any(|corner| side(a, b, corner) != first)
}

/// Where `p` lies with regard to the ring through `points` (the last one joined to the first), by its winding
/// number: whatever the ring goes around at all is inside. O(points).
pub(crate) fn position_in_ring(points: &[Location], p: Location) -> Position {
    let Some(&last) = points.last() else {
        return Position::Outside;
    };
    let mut winding = 0i32;
    let mut a = last;
    for &b in points {
        if a.lat.min(b.lat) <= p.lat && p.lat <= a.lat.max(b.lat) {
            let side = side(a, b, p);
            if side == Ordering::Equal && a.lon.min(b.lon) <= p.lon && p.lon <= a.lon.max(b.lon) {
                return Position::Edge;
            }
            if a.lat <= p.lat && p.lat < b.lat && side == Ordering::Greater {
                winding += 1;
            } else if b.lat <= p.lat && p.lat < a.lat && side == Ordering::Less {
                winding -= 1;
            }
        }
        a = b;
    }
    if winding == 0 {
        Position::Outside
    } else {
        Position::Inside
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(lon: i32, lat: i32) -> Location {
        Location::new(lon, lat)
    }

    #[test]
    fn a_ring_holds_its_edges() {
        let ring = [at(0, 0), at(4, 0), at(4, 4), at(0, 4)];
        assert_eq!(position_in_ring(&ring, at(2, 2)), Position::Inside);
        for p in [at(0, 0), at(2, 0), at(4, 3), at(0, 4), at(1, 4)] {
            assert_eq!(position_in_ring(&ring, p), Position::Edge, "{p}");
        }
        for p in [at(5, 0), at(-1, 0), at(2, 5), at(2, -1), at(5, 4)] {
            assert_eq!(position_in_ring(&ring, p), Position::Outside, "{p}");
        }
        assert_eq!(position_in_ring(&[], at(0, 0)), Position::Outside);
        assert_eq!(position_in_ring(&[at(1, 1)], at(1, 1)), Position::Edge);
    }

    #[test]
    fn extremes_do_not_overflow() {
        let ring = [
            at(i32::MIN, i32::MIN),
            at(i32::MAX, i32::MIN),
            at(i32::MAX, i32::MAX),
            at(i32::MIN, i32::MAX),
        ];
        assert_eq!(position_in_ring(&ring, at(0, 0)), Position::Inside);
        assert_eq!(position_in_ring(&ring, at(i32::MAX, 0)), Position::Edge);
    }

    proptest! {
        /// Small coordinates make touching, collinear and degenerate pairs common.
        #[test]
        fn touching_segments(c in prop::array::uniform8(-4i64..5)) {
            let (a, b, p, q) = ((c[0], c[1]), (c[2], c[3]), (c[4], c[5]), (c[6], c[7]));
            // The model: a common point of two lattice segments of this size has coordinates whose
            // denominators divide a cross product of at most 128, so solve for both parameters.
            let cross = |u: Wide, v: Wide| u.0 * v.1 - u.1 * v.0;
            let (r, s, w) = ((b.0 - a.0, b.1 - a.1), (q.0 - p.0, q.1 - p.1), (p.0 - a.0, p.1 - a.1));
            let d = cross(r, s);
            let on = |x: Wide, u: Wide, v: Wide| {
                cross((v.0 - u.0, v.1 - u.1), (x.0 - u.0, x.1 - u.1)) == 0
                    && x.0 >= u.0.min(v.0) && x.0 <= u.0.max(v.0)
                    && x.1 >= u.1.min(v.1) && x.1 <= u.1.max(v.1)
            };
            let expected = if d == 0 {
                on(a, p, q) || on(b, p, q) || on(p, a, b) || on(q, a, b)
            } else {
                let (t, u) = (cross(w, s) * d.signum(), cross(w, r) * d.signum());
                (0..=d.abs()).contains(&t) && (0..=d.abs()).contains(&u)
            };
            prop_assert_eq!(segments_touch(a, b, p, q), expected);
        }

        #[test]
        fn boxes_touch_as_their_edges_and_insides_do(c in prop::array::uniform8(-4i32..5)) {
            let (a, b) = (at(c[0], c[1]), at(c[2], c[3]));
            let min = at(c[4].min(c[6]), c[5].min(c[7]));
            let max = at(c[4].max(c[6]), c[5].max(c[7]));
            let corners = [min, at(max.lon, min.lat), max, at(min.lon, max.lat)];
            let expected = position_in_ring(&corners, a) != Position::Outside
                || (0..4).any(|i| segments_touch(widen(a), widen(b), widen(corners[i]), widen(corners[(i + 1) % 4])));
            prop_assert_eq!(segment_touches_box(a, b, min, max), expected);
        }
    }
}
