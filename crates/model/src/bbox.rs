//! Rectangles of longitude and latitude.

use std::fmt;

use crate::Location;

/// A rectangle of locations, its edges included. Corners are in units of 10⁻⁷ degrees.
///
/// `min.lon > max.lon` means a box across the antimeridian; [`BoundingBox::contains`] honours that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BoundingBox {
    /// The south-western corner.
    pub min: Location,
    /// The north-eastern corner.
    pub max: Location,
}

impl BoundingBox {
    /// The box of one location.
    pub const fn of(location: Location) -> Self {
        BoundingBox {
            min: location,
            max: location,
        }
    }

    /// A box from its edges in units of 10⁻⁷ degrees.
    pub const fn new(left: i32, bottom: i32, right: i32, top: i32) -> Self {
        BoundingBox {
            min: Location::new(left, bottom),
            max: Location::new(right, top),
        }
    }

    /// Whether the location is inside or on an edge.
    pub const fn contains(&self, location: Location) -> bool {
        let lon = if self.min.lon <= self.max.lon {
            self.min.lon <= location.lon && location.lon <= self.max.lon
        } else {
            self.min.lon <= location.lon || location.lon <= self.max.lon
        };
        lon && self.min.lat <= location.lat && location.lat <= self.max.lat
    }

    /// Grows the box, which must not cross the antimeridian, so that it contains the location.
    pub fn extend(&mut self, location: Location) {
        self.min.lon = self.min.lon.min(location.lon);
        self.min.lat = self.min.lat.min(location.lat);
        self.max.lon = self.max.lon.max(location.lon);
        self.max.lat = self.max.lat.max(location.lat);
    }

    /// The smallest box around both; neither may cross the antimeridian.
    pub fn union(mut self, other: BoundingBox) -> BoundingBox {
        self.extend(other.min);
        self.extend(other.max);
        self
    }
}

impl fmt::Display for BoundingBox {
    /// `(left,bottom,right,top)` in degrees.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({},{})", self.min, self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_are_inside_and_the_antimeridian_can_be_crossed() {
        let plain = BoundingBox::new(-10, -10, 10, 10);
        assert!(plain.contains(Location::new(10, -10)) && !plain.contains(Location::new(11, 0)));
        let across = BoundingBox::new(1_700_000_000, 0, -1_700_000_000, 10);
        assert!(across.contains(Location::new(1_800_000_000, 0)));
        assert!(across.contains(Location::new(-1_800_000_000, 10)));
        assert!(!across.contains(Location::new(0, 5)));
    }

    #[test]
    fn growing() {
        let mut b = BoundingBox::of(Location::new(5, 5));
        b.extend(Location::new(-5, 7));
        assert_eq!(b, BoundingBox::new(-5, 5, 5, 7));
        assert_eq!(
            b.union(BoundingBox::new(0, 0, 9, 1)),
            BoundingBox::new(-5, 0, 9, 7)
        );
        assert_eq!(
            BoundingBox::new(0, -1, 20_000_000, 1).to_string(),
            "(0,-0.0000001,2,0.0000001)"
        );
    }
}
