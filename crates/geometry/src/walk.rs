//! Boxes and segments on the cell index.

use osmill_model::{BoundingBox, Location};

use crate::exact::{Wide, segment_touches_box, segments_touch, widen};
use crate::index::{CellKind, Check, Grid, Index, Leaf, span};
use crate::multipolygon::{HALF_TURN, TURN, boxes_touch};

/// How much of a box a region holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Coverage {
    /// The region holds every location of the box.
    Inside,
    /// The region holds no location of the box.
    Outside,
    /// The region may hold some locations of the box and not others.
    Mixed,
}

impl Coverage {
    /// Of two boxes taken together.
    fn and(self, other: Coverage) -> Coverage {
        if self == other { self } else { Coverage::Mixed }
    }

    /// Of a box, given that of its locations on the antimeridian under their other name: those add to what the
    /// region holds, and take nothing away.
    fn or_at_seam(self, seam: Coverage) -> Coverage {
        match (self, seam) {
            (Coverage::Inside, _) | (_, Coverage::Outside) => self,
            _ => Coverage::Mixed,
        }
    }
}

/// A piece of a box: what lies in one cell without grid.
enum Piece<'a> {
    /// In a cell without edges, the regions that hold it.
    Uniform(&'a [u32]),
    /// In a cell with edges; the lower left and the upper right corner of the piece.
    Leaf(&'a Leaf, Location, Location),
}

impl Index {
    /// What the region is to the box, if there is one region in the index.
    pub fn coverage(&self, bbox: BoundingBox) -> Coverage {
        let (boxes, seam) = in_the_plane(bbox);
        let coverage = boxes
            .into_iter()
            .map(|bbox| self.planar_coverage(bbox))
            .reduce(Coverage::and);
        seam.into_iter()
            .fold(coverage.unwrap_or(Coverage::Outside), |coverage, line| {
                coverage.or_at_seam(self.planar_coverage(line))
            })
    }

    fn planar_coverage(&self, bbox: BoundingBox) -> Coverage {
        let Some(bounds) = self.bounds.filter(|bounds| boxes_touch(bounds, &bbox)) else {
            return Coverage::Outside;
        };
        let beyond = !(bounds.contains(bbox.min) && bounds.contains(bbox.max));
        if self.solid {
            return if beyond { Coverage::Mixed } else { Coverage::Inside };
        }
        let mut coverage = beyond.then_some(Coverage::Outside);
        self.for_each_piece(bbox, &mut |piece| {
            let here = match piece {
                Piece::Uniform([]) => Coverage::Outside,
                Piece::Uniform(_) => Coverage::Inside,
                Piece::Leaf(leaf, ..) if leaf.inside != 0 => Coverage::Inside,
                Piece::Leaf(leaf, min, max) => {
                    if self
                        .checks_of(leaf)
                        .iter()
                        .any(|check| self.touches(check, min, max))
                    {
                        Coverage::Mixed
                    } else if self.contains_planar(min) {
                        Coverage::Inside
                    } else {
                        Coverage::Outside
                    }
                }
            };
            coverage = Some(coverage.map_or(here, |so_far| so_far.and(here)));
            coverage == Some(Coverage::Mixed)
        });
        coverage.unwrap_or(Coverage::Outside)
    }

    /// What each of `count` regions is to the box. Where the box covers more than `cell_limit` cells of the
    /// root grid, those of the regions that `may_touch` approves are called mixed unseen.
    pub fn coverages(
        &self,
        bbox: BoundingBox,
        count: usize,
        cell_limit: u64,
        may_touch: impl Fn(u32, &BoundingBox) -> bool,
    ) -> Vec<Coverage> {
        let zip = |a: Vec<Coverage>, b: Vec<Coverage>, join: fn(Coverage, Coverage) -> Coverage| {
            a.into_iter().zip(b).map(|(a, b)| join(a, b)).collect::<Vec<_>>()
        };
        let ask = |bbox| self.planar_coverages(bbox, count, cell_limit, &may_touch);
        let (boxes, seam) = in_the_plane(bbox);
        let coverages = boxes.into_iter().map(ask).reduce(|a, b| zip(a, b, Coverage::and));
        let coverages = coverages.unwrap_or_else(|| vec![Coverage::Outside; count]);
        seam.into_iter()
            .map(ask)
            .fold(coverages, |a, b| zip(a, b, Coverage::or_at_seam))
    }

    fn planar_coverages(
        &self,
        bbox: BoundingBox,
        count: usize,
        cell_limit: u64,
        may_touch: &impl Fn(u32, &BoundingBox) -> bool,
    ) -> Vec<Coverage> {
        let mut coverages = vec![Coverage::Outside; count];
        let (Some(bounds), Some(root)) = (
            self.bounds.filter(|bounds| boxes_touch(bounds, &bbox)),
            self.root(),
        ) else {
            return coverages;
        };
        if window(root, &bbox).is_some_and(|(columns, rows)| {
            (columns.1 - columns.0 + 1) as u64 * (rows.1 - rows.0 + 1) as u64 > cell_limit
        }) {
            for (number, coverage) in coverages.iter_mut().enumerate() {
                if may_touch(number as u32, &bbox) {
                    *coverage = Coverage::Mixed;
                }
            }
            return coverages;
        }
        // The number of pieces that each region holds, and whether it has an edge in one.
        let mut held = vec![(0u32, false); count];
        let mut pieces = u32::from(!(bounds.contains(bbox.min) && bounds.contains(bbox.max)));
        self.for_each_piece(bbox, &mut |piece| {
            pieces += 1;
            match piece {
                Piece::Uniform(regions) => regions.iter().for_each(|&region| held[region as usize].0 += 1),
                Piece::Leaf(leaf, min, max) => {
                    for &region in self.list(leaf.inside) {
                        held[region as usize].0 += 1;
                    }
                    for check in self.checks_of(leaf) {
                        held[check.region as usize].1 |= self.touches(check, min, max);
                    }
                    self.check(leaf, min, |region| {
                        held[region as usize].0 += 1;
                        false
                    });
                }
            }
            false
        });
        for (coverage, (in_pieces, edges)) in coverages.iter_mut().zip(held) {
            *coverage = match in_pieces {
                _ if edges => Coverage::Mixed,
                0 => Coverage::Outside,
                _ if in_pieces == pieces => Coverage::Inside,
                _ => Coverage::Mixed,
            };
        }
        coverages
    }

    fn checks_of(&self, leaf: &Leaf) -> &[Check] {
        &self.checks[leaf.checks.0 as usize..leaf.checks.1 as usize]
    }

    fn touches(&self, check: &Check, min: Location, max: Location) -> bool {
        self.edges[check.edges.0 as usize..check.edges.1 as usize]
            .iter()
            .any(|edge| segment_touches_box(edge.low, edge.high, min, max))
    }

    /// Calls `f` with the pieces of the box, which does not cross the antimeridian, until it returns true.
    /// What lies outside of the root grid is left out.
    fn for_each_piece(&self, bbox: BoundingBox, f: &mut impl FnMut(Piece<'_>) -> bool) -> bool {
        self.root().is_some_and(|root| self.pieces_of(root, bbox, f))
    }

    fn pieces_of(&self, grid: &Grid, bbox: BoundingBox, f: &mut impl FnMut(Piece<'_>) -> bool) -> bool {
        let Some((columns, rows)) = window(grid, &bbox) else {
            return false;
        };
        for row in rows.0..=rows.1 {
            for column in columns.0..=columns.1 {
                let done = match self.cells[grid.cell_at(column, row)].kind() {
                    CellKind::Uniform(list) => f(Piece::Uniform(self.list(list))),
                    CellKind::Grid(number) => self.pieces_of(&self.grids[number as usize], bbox, f),
                    CellKind::Leaf(leaf) => {
                        let (left, bottom) = (grid.column_left(column), grid.row_bottom(row));
                        let (right, top) = (grid.column_left(column + 1) - 1, grid.row_bottom(row + 1) - 1);
                        let min =
                            Location::new(bbox.min.lon.max(left as i32), bbox.min.lat.max(bottom as i32));
                        let max = Location::new(
                            i64::from(bbox.max.lon).min(right) as i32,
                            i64::from(bbox.max.lat).min(top) as i32,
                        );
                        f(Piece::Leaf(&self.leaves[leaf as usize], min, max))
                    }
                };
                if done {
                    return true;
                }
            }
        }
        false
    }

    /// Calls `f` with the region of every edge that the segment touches, often more than once, until it
    /// returns true. A segment of more than half a turn is taken the shorter way, across the antimeridian.
    pub fn for_each_touched(&self, a: Location, b: Location, mut f: impl FnMut(u32) -> bool) {
        let (Some(root), true, true) = (self.root(), a.is_valid(), b.is_valid()) else {
            return;
        };
        let (a, mut b) = (widen(a), widen(b));
        if (b.0 - a.0).abs() > HALF_TURN {
            b.0 -= (b.0 - a.0).signum() * TURN;
        }
        for turn in [0, -TURN, TURN] {
            let (a, b) = ((a.0 + turn, a.1), (b.0 + turn, b.1));
            if a.0.min(b.0) <= HALF_TURN && a.0.max(b.0) >= -HALF_TURN && self.segment_in(root, a, b, &mut f)
            {
                return;
            }
        }
    }

    fn segment_in(&self, grid: &Grid, a: Wide, b: Wide, f: &mut impl FnMut(u32) -> bool) -> bool {
        let (low, high) = if a.1 <= b.1 { (a, b) } else { (b, a) };
        let rows = grid.row(low.1).max(0)..=grid.row(high.1).min(i64::from(grid.rows) - 1);
        for row in rows {
            let bottom = grid.row_bottom(row);
            // An edge between two rows is known to the lower one, which thus reaches up to the next.
            let (left, right) = span(low, high, bottom, grid.row_bottom(row + 1));
            let columns = grid.column(left).max(0)..=grid.column(right + 1).min(i64::from(grid.columns) - 1);
            for column in columns {
                let done = match self.cells[grid.cell_at(column, row)].kind() {
                    CellKind::Uniform(_) => false,
                    CellKind::Grid(number) => self.segment_in(&self.grids[number as usize], a, b, f),
                    CellKind::Leaf(leaf) => self.checks_of(&self.leaves[leaf as usize]).iter().any(|check| {
                        self.edges[check.edges.0 as usize..check.edges.1 as usize]
                            .iter()
                            .any(|edge| {
                                let seam = |p: Location| i64::from(p.lon).abs() > HALF_TURN;
                                !(seam(edge.low) && seam(edge.high))
                                    && segments_touch(a, b, widen(edge.low), widen(edge.high))
                                    && f(check.region)
                            })
                    }),
                };
                if done {
                    return true;
                }
            }
        }
        false
    }
}

/// Columns and rows of the grid that the box touches, first and last.
fn window(grid: &Grid, bbox: &BoundingBox) -> Option<((i64, i64), (i64, i64))> {
    let columns = (
        grid.column(bbox.min.lon.into()).max(0),
        grid.column(bbox.max.lon.into()).min(i64::from(grid.columns) - 1),
    );
    let rows = (
        grid.row(bbox.min.lat.into()).max(0),
        grid.row(bbox.max.lat.into()).min(i64::from(grid.rows) - 1),
    );
    (columns.0 <= columns.1 && rows.0 <= rows.1).then_some((columns, rows))
}

/// A box as boxes that do not cross the antimeridian, and what it has of the antimeridian under its other name.
fn in_the_plane(bbox: BoundingBox) -> (Vec<BoundingBox>, Vec<BoundingBox>) {
    if bbox.min.lat > bbox.max.lat {
        return (Vec::new(), Vec::new());
    }
    let edge = HALF_TURN as i32;
    let with_lon = |left: i32, right: i32| BoundingBox::new(left, bbox.min.lat, right, bbox.max.lat);
    if bbox.min.lon > bbox.max.lon {
        return (
            vec![with_lon(bbox.min.lon, edge), with_lon(-edge, bbox.max.lon)],
            Vec::new(),
        );
    }
    let seam = [-edge, edge]
        .into_iter()
        .filter(|&lon| {
            bbox.min.lon <= -lon && -lon <= bbox.max.lon && !(bbox.min.lon <= lon && lon <= bbox.max.lon)
        })
        .map(|lon| with_lon(lon, lon));
    (vec![bbox], seam.collect())
}
