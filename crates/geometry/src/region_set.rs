//! Many regions under one index.

use osmill_model::{BoundingBox, Location};

use crate::index::Index;
use crate::multipolygon::{boxes_touch, opposite};
use crate::{Coverage, MultiPolygon};

/// Boxes that cover more cells of the root grid are not looked at cell by cell.
const CELL_LIMIT: u64 = 4096;

/// Many regions, numbered from 0 in the order given, that are asked together which of them hold a location.
///
/// One index serves them all, so that a test costs what it costs with one region, and the calls for the
/// regions found. Answers are those of a [`Region`](crate::Region) each. The areas themselves are not kept.
#[derive(Debug, Clone)]
pub struct RegionSet {
    index: Index,
    extents: Vec<Extent>,
}

#[derive(Debug, Clone)]
struct Extent {
    bbox: Option<BoundingBox>,
    envelope: Option<BoundingBox>,
    anchors: Vec<Location>,
}

impl RegionSet {
    /// Builds the index. O(corners of all regions) time and memory.
    ///
    /// # Panics
    ///
    /// If there are more than 2³² regions.
    pub fn new<'a>(regions: impl IntoIterator<Item = &'a MultiPolygon>) -> Self {
        let regions: Vec<&MultiPolygon> = regions.into_iter().collect();
        assert!(u32::try_from(regions.len()).is_ok(), "more regions than numbers");
        RegionSet {
            index: Index::build(&regions),
            extents: regions
                .iter()
                .map(|area| Extent {
                    bbox: area.bbox(),
                    envelope: area.envelope(),
                    anchors: area.anchors().collect(),
                })
                .collect(),
        }
    }

    /// The number of regions.
    pub fn len(&self) -> usize {
        self.extents.len()
    }

    /// Whether there are no regions.
    pub fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// Calls `f` once with the number of each region that holds the location, in no particular order.
    #[inline]
    pub fn for_each_containing(&self, location: Location, mut f: impl FnMut(u32)) {
        match opposite(location) {
            None => self.index.for_each_planar(location, f),
            Some(twin) => {
                let mut found = Vec::new();
                self.index.for_each_planar(location, |region| found.push(region));
                self.index.for_each_planar(twin, |region| found.push(region));
                found.sort_unstable();
                found.dedup();
                found.into_iter().for_each(&mut f);
            }
        }
    }

    /// Appends to `near`, in their order, the places of the locations that may be in a region: those that are not are
    /// off the box around all of them. Costs less than a nanosecond for each, which asking the index does not.
    pub fn find_near(&self, locations: &[Option<Location>], near: &mut Vec<u32>) {
        let Some(bounds) = self.index.bounds else { return };
        // One comparison for both ends: what lies below the lower one wraps around.
        let within =
            |value: i32, low: i32, high: i32| value.wrapping_sub(low) as u32 <= high.wrapping_sub(low) as u32;
        let lies_near = |at: Location| {
            let lat = within(at.lat, bounds.min.lat, bounds.max.lat);
            let lon = within(at.lon, bounds.min.lon, bounds.max.lon);
            lat & (lon | opposite(at).is_some())
        };
        let start = near.len();
        near.resize(start + locations.len(), 0);
        let mut end = start;
        // Without a branch that would be foretold wrongly.
        for (place, location) in (0u32..).zip(locations) {
            near[end] = place;
            end += usize::from(location.is_some() & lies_near(location.unwrap_or_default()));
        }
        near.truncate(end);
    }

    /// Whether any region holds the location.
    #[inline]
    pub fn any_contains(&self, location: Location) -> bool {
        self.index.contains_planar(location)
            || opposite(location).is_some_and(|twin| self.index.contains_planar(twin))
    }

    /// What every region, in their order, is to the box: see [`Region::classify`](crate::Region::classify).
    /// `Mixed` is said more often: of a box that covers much of all regions together, only the regions whose
    /// boxes do not touch it are told apart.
    pub fn classify(&self, bbox: BoundingBox) -> Vec<Coverage> {
        self.index
            .coverages(bbox, self.len(), CELL_LIMIT, |region, bbox| {
                self.extents[region as usize]
                    .envelope
                    .is_some_and(|envelope| boxes_touch(&envelope, bbox))
            })
    }

    /// What the union of all regions is to the box, as [`Region::classify`](crate::Region::classify) says it.
    pub fn classify_union(&self, bbox: BoundingBox) -> Coverage {
        self.index.coverage(bbox)
    }

    /// Calls `f` once with the number of each region that holds any point of the segment; see
    /// [`Region::intersects_segment`](crate::Region::intersects_segment).
    pub fn for_each_intersecting(&self, a: Location, b: Location, f: impl FnMut(u32)) {
        let mut found = Vec::new();
        self.for_each_containing(a, |region| found.push(region));
        self.for_each_containing(b, |region| found.push(region));
        self.index.for_each_touched(a, b, |region| {
            found.push(region);
            false
        });
        found.sort_unstable();
        found.dedup();
        found.into_iter().for_each(f);
    }

    /// Calls `f` with the number of each region that has a part inside the area; see
    /// [`Region::is_enclosed_by`](crate::Region::is_enclosed_by).
    pub fn for_each_enclosed_by(&self, area: &MultiPolygon, mut f: impl FnMut(u32)) {
        let Some(bounds) = area.envelope() else { return };
        for (number, extent) in self.extents.iter().enumerate() {
            let near = extent
                .envelope
                .is_some_and(|envelope| boxes_touch(&envelope, &bounds));
            if near && extent.anchors.iter().any(|&anchor| area.contains(anchor)) {
                f(number as u32);
            }
        }
    }

    /// The smallest box around a region, as [`MultiPolygon::bbox`] says it; `None` if it is empty.
    ///
    /// # Panics
    ///
    /// If there is no region of this number.
    pub fn bbox(&self, region: u32) -> Option<BoundingBox> {
        self.extents[region as usize].bbox
    }

    /// The smallest box around all regions that does not cross the antimeridian.
    pub fn envelope(&self) -> Option<BoundingBox> {
        self.index.bounds
    }

    /// The memory that the index uses, in bytes.
    pub fn index_size(&self) -> usize {
        self.index.size()
    }
}
