//! One region, with its index.

use osmill_model::{BoundingBox, Location};

use crate::exact::{Position, position_in_ring};
use crate::index::Index;
use crate::multipolygon::opposite;
use crate::{Coverage, MultiPolygon};

/// An area that is asked about many locations: see [`MultiPolygon`] for what belongs to it.
///
/// All answers are exact. A test costs a few nanoseconds, whatever the number of corners: the earth under the
/// region is divided into cells of which most are wholly inside or outside, and the others hold a dozen edges
/// or so. Building takes time and memory linear in the number of corners.
#[derive(Debug, Clone)]
pub struct Region {
    area: MultiPolygon,
    index: Index,
}

impl Region {
    /// Builds the index of an area. O(corners).
    pub fn new(area: MultiPolygon) -> Self {
        let index = Index::build(&[&area]);
        Region { area, index }
    }

    /// Whether the location is inside or on an edge. Locations off the earth never are.
    #[inline]
    pub fn contains(&self, location: Location) -> bool {
        self.index.contains_planar(location)
            || opposite(location).is_some_and(|twin| self.index.contains_planar(twin))
    }

    /// What the region is to a box. `Inside` and `Outside` are certain, `Mixed` may be said of boxes that an
    /// edge only passes through, such as one between two parts that touch. The time is that of looking at the
    /// cells that the box covers, at most some hundred thousand, less if the answer is `Mixed`.
    pub fn classify(&self, bbox: BoundingBox) -> Coverage {
        self.index.coverage(bbox)
    }

    /// Whether any point of the segment, not only its ends, is in the region. A segment of more than 180
    /// degrees of longitude is taken the shorter way, across the antimeridian. A segment with an end off the
    /// earth is judged by its other end.
    ///
    /// An edge of a hole counts as part of the region along all its length, even where the hole, against the
    /// rules, lies outside of the polygon that it belongs to.
    pub fn intersects_segment(&self, a: Location, b: Location) -> bool {
        self.contains(a) || self.contains(b) || self.crosses(a, b)
    }

    /// Whether any point of the line through these locations is in the region.
    pub fn intersects_line(&self, line: &[Location]) -> bool {
        line.iter().any(|&location| self.contains(location))
            || line.windows(2).any(|pair| self.crosses(pair[0], pair[1]))
    }

    fn crosses(&self, a: Location, b: Location) -> bool {
        let mut touched = false;
        self.index.for_each_touched(a, b, |_| {
            touched = true;
            true
        });
        touched
    }

    /// Whether the ring has any part of the region inside it. For a ring that does not
    /// [intersect](Region::intersects_line) the region this means that it surrounds that part.
    /// O(corners of the ring x parts of the region).
    pub fn is_enclosed_by_ring(&self, ring: &[Location]) -> bool {
        self.area
            .anchors()
            .any(|anchor| position_in_ring(ring, anchor) != Position::Outside)
    }

    /// Whether the area has any part of the region inside it, and not in one of its holes; see
    /// [`Region::is_enclosed_by_ring`].
    pub fn is_enclosed_by(&self, area: &MultiPolygon) -> bool {
        self.area.anchors().any(|anchor| area.contains(anchor))
    }

    /// The smallest box around the region, across the antimeridian (`min.lon > max.lon`) where that is
    /// narrower; `None` if the region is empty.
    pub fn bbox(&self) -> Option<BoundingBox> {
        self.area.bbox()
    }

    /// The smallest box around the region that does not cross the antimeridian.
    pub fn envelope(&self) -> Option<BoundingBox> {
        self.index.bounds
    }

    /// The area.
    pub fn area(&self) -> &MultiPolygon {
        &self.area
    }

    /// The memory that the index uses, in bytes.
    pub fn index_size(&self) -> usize {
        self.index.size()
    }
}

impl From<MultiPolygon> for Region {
    fn from(area: MultiPolygon) -> Self {
        Region::new(area)
    }
}
