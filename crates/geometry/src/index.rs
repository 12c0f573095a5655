//! The cell index under [`Region`](crate::Region) and [`RegionSet`](crate::RegionSet).
//!
//! # Structure
//!
//! A tree of grids. The root grid covers the box of all regions with up to 512 x 512 cells, chosen by the
//! number of edges; a cell with more than sixteen edges is a grid of 8 x 8 cells itself, and so on. Cells
//! are powers of two wide, so a lookup is two shifts a level. A cell is one of
//!
//! * *uniform*: no edge touches it, and a list (shared by all cells with the same one) names the regions that
//!   hold the whole of it;
//! * a *leaf*: such a list, and for every other region that has edges here its *checks*, one a ring;
//! * a *grid*.
//!
//! # Checks
//!
//! A location is inside a ring if the ring's winding number around it is not zero: the number of edges that
//! pass to the left of it upwards, less those that pass downwards. A leaf must find that number from the edges
//! that touch it alone. So a check holds the winding number at a *reference* just outside the cell's lower
//! left corner: half a unit to the left of it (where no corner of a ring can be) and infinitely little above
//! it (so that an edge passes a row of locations or does not, never ends on it). From there the way to a
//! location leads up along the cell's left border and then right along the location's row:
//!
//! * Edges crossing the border are *steps*: the first row above the crossing, and by how much the number
//!   changes. Since rows are integers, the row is computed once, exactly.
//! * An edge counts on the row if it passes it to the right of the border and to the left of the location.
//!   The rows for which the first holds are an interval, again computed once. The second is a comparison of
//!   two 64-bit products. Their equality means that the location is on the edge.
//!
//! Building goes the same way: the references of the cells of a grid are found from the edges of the grid.
//!
//! # Bounds
//!
//! Long edges touch many cells. A grid is made only if the number of edges in all leaves stays below a fixed
//! multiple of the number of edges given (`EDGE_COPIES`), and coarser otherwise, so that memory and time
//! are linear in the input whatever it looks like; the lists of regions are bounded in the same way. Only
//! lookups get slower for hostile input.

mod build;

use osmill_model::{BoundingBox, Location};

pub(crate) use build::span;

/// What a cell holds: two bits say which, the rest is a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cell(u32);

pub(crate) enum CellKind {
    /// The number of a list of regions.
    Uniform(u32),
    Leaf(u32),
    Grid(u32),
}

impl Cell {
    const EMPTY: Cell = Cell(0);

    fn uniform(list: u32) -> Cell {
        Cell(list)
    }

    fn leaf(number: usize) -> Cell {
        Cell(1 << 30 | number as u32)
    }

    fn grid(number: usize) -> Cell {
        Cell(2 << 30 | number as u32)
    }

    #[inline]
    pub fn kind(self) -> CellKind {
        let number = self.0 & ((1 << 30) - 1);
        match self.0 >> 30 {
            0 => CellKind::Uniform(number),
            1 => CellKind::Leaf(number),
            _ => CellKind::Grid(number),
        }
    }
}

/// The cells of a rectangle, row by row from the lower left.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grid {
    pub x0: i32,
    pub y0: i32,
    /// Cells are `1 << x_shift` units wide.
    pub x_shift: u32,
    pub y_shift: u32,
    pub columns: u32,
    pub rows: u32,
    /// The number of the first cell.
    start: u32,
}

impl Grid {
    /// The number of the cell of a location, which must be in the grid.
    #[inline]
    pub fn cell_of(&self, p: Location) -> usize {
        let column = (p.lon.wrapping_sub(self.x0) as u32) >> self.x_shift;
        let row = (p.lat.wrapping_sub(self.y0) as u32) >> self.y_shift;
        self.start as usize + row as usize * self.columns as usize + column as usize
    }

    pub fn cell_at(&self, column: i64, row: i64) -> usize {
        self.start as usize + row as usize * self.columns as usize + column as usize
    }

    /// The column of a longitude, beyond the grid if it is.
    pub fn column(&self, x: i64) -> i64 {
        (x - i64::from(self.x0)) >> self.x_shift
    }

    pub fn row(&self, y: i64) -> i64 {
        (y - i64::from(self.y0)) >> self.y_shift
    }

    pub fn column_left(&self, column: i64) -> i64 {
        i64::from(self.x0) + (column << self.x_shift)
    }

    pub fn row_bottom(&self, row: i64) -> i64 {
        i64::from(self.y0) + (row << self.y_shift)
    }
}

/// A cell with edges.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Leaf {
    /// The list of regions that hold the whole cell.
    pub inside: u32,
    pub checks: (u32, u32),
}

/// One ring in one leaf. The checks of a part follow each other, its outer ring first, and so do those of a
/// region. A part without a check of its outer ring has the whole cell inside it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Check {
    pub region: u32,
    pub edges: (u32, u32),
    steps: (u32, u32),
    winding: i32,
    pub hole: bool,
    pub ends_part: bool,
}

/// An edge as a leaf sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeafEdge {
    /// The end with the lower latitude.
    pub low: Location,
    pub high: Location,
    /// The rows that it passes to the right of the leaf's left border: from this one ...
    from: i32,
    /// ... up to before this one.
    to: i32,
    /// What it adds to the winding number of locations to its right.
    turn: i32,
}

/// A crossing of a leaf's left border.
#[derive(Debug, Clone, Copy)]
struct Step {
    row: i32,
    turn: i32,
}

/// See the module's documentation.
#[derive(Debug, Clone, Default)]
pub(crate) struct Index {
    /// The box of all regions, within the earth's.
    pub bounds: Option<BoundingBox>,
    /// Whether one of the parts is a rectangle without holes that fills the bounds.
    pub solid: bool,
    pub grids: Vec<Grid>,
    pub cells: Vec<Cell>,
    pub leaves: Vec<Leaf>,
    pub checks: Vec<Check>,
    pub edges: Vec<LeafEdge>,
    steps: Vec<Step>,
    /// The regions of each list; list 0 is empty.
    list_ends: Vec<u32>,
    list_regions: Vec<u32>,
}

impl Index {
    pub fn list(&self, list: u32) -> &[u32] {
        let start = match list {
            0 => 0,
            _ => self.list_ends[list as usize - 1],
        };
        &self.list_regions[start as usize..self.list_ends[list as usize] as usize]
    }

    /// The grid of the whole index; `None` if there is no region.
    pub fn root(&self) -> Option<&Grid> {
        self.grids.first()
    }

    /// Whether any region holds the location, whose longitude is taken as it is.
    #[inline]
    pub fn contains_planar(&self, p: Location) -> bool {
        let Some(bounds) = &self.bounds else { return false };
        if p.lon < bounds.min.lon
            || p.lon > bounds.max.lon
            || p.lat < bounds.min.lat
            || p.lat > bounds.max.lat
        {
            return false;
        }
        if self.solid {
            return true;
        }
        let mut grid = &self.grids[0];
        loop {
            match self.cells[grid.cell_of(p)].kind() {
                CellKind::Uniform(list) => return list != 0,
                CellKind::Leaf(leaf) => return self.leaf_contains(&self.leaves[leaf as usize], p),
                CellKind::Grid(number) => grid = &self.grids[number as usize],
            }
        }
    }

    /// Calls `f` with every region that holds the location, whose longitude is taken as it is.
    #[inline]
    pub fn for_each_planar(&self, p: Location, mut f: impl FnMut(u32)) {
        let Some(bounds) = &self.bounds else { return };
        if p.lon < bounds.min.lon
            || p.lon > bounds.max.lon
            || p.lat < bounds.min.lat
            || p.lat > bounds.max.lat
        {
            return;
        }
        let mut grid = &self.grids[0];
        loop {
            match self.cells[grid.cell_of(p)].kind() {
                CellKind::Uniform(list) => {
                    return self.list(list).iter().copied().for_each(f);
                }
                CellKind::Leaf(leaf) => {
                    let leaf = &self.leaves[leaf as usize];
                    self.list(leaf.inside).iter().copied().for_each(&mut f);
                    return self.check(leaf, p, |region| {
                        f(region);
                        false
                    });
                }
                CellKind::Grid(number) => grid = &self.grids[number as usize],
            }
        }
    }

    fn leaf_contains(&self, leaf: &Leaf, p: Location) -> bool {
        let mut found = leaf.inside != 0;
        if !found {
            self.check(leaf, p, |_| {
                found = true;
                true
            });
        }
        found
    }

    /// Calls `f` once for each region with checks in the leaf that holds the location, until it returns true.
    pub fn check(&self, leaf: &Leaf, p: Location, mut f: impl FnMut(u32) -> bool) {
        let mut done = None;
        let mut inside_part = true;
        for check in &self.checks[leaf.checks.0 as usize..leaf.checks.1 as usize] {
            if done == Some(check.region) {
                continue;
            }
            if inside_part {
                let (on_edge, winding) = self.winding(check, p);
                inside_part = on_edge || (winding != 0) != check.hole;
            }
            if check.ends_part {
                if inside_part {
                    done = Some(check.region);
                    if f(check.region) {
                        return;
                    }
                }
                inside_part = true;
            }
        }
    }

    /// Whether the location is on an edge, and if not its winding number.
    #[inline]
    fn winding(&self, check: &Check, p: Location) -> (bool, i32) {
        let mut winding = check.winding;
        for step in &self.steps[check.steps.0 as usize..check.steps.1 as usize] {
            winding += if p.lat >= step.row { step.turn } else { 0 };
        }
        for edge in &self.edges[check.edges.0 as usize..check.edges.1 as usize] {
            if p.lat < edge.low.lat || p.lat > edge.high.lat {
                continue;
            }
            // Fits: see `exact`. Locations and edges are within the earth's range here.
            let along = (i64::from(p.lon) - i64::from(edge.low.lon))
                * (i64::from(edge.high.lat) - i64::from(edge.low.lat));
            let across = (i64::from(edge.high.lon) - i64::from(edge.low.lon))
                * (i64::from(p.lat) - i64::from(edge.low.lat));
            if along == across {
                if p.lon >= edge.low.lon.min(edge.high.lon) && p.lon <= edge.low.lon.max(edge.high.lon) {
                    return (true, 0);
                }
            } else if along > across && p.lat >= edge.from && p.lat < edge.to {
                winding += edge.turn;
            }
        }
        (false, winding)
    }

    /// The memory in use, in bytes.
    pub fn size(&self) -> usize {
        size_of_val(&self.grids[..])
            + size_of_val(&self.cells[..])
            + size_of_val(&self.leaves[..])
            + size_of_val(&self.checks[..])
            + size_of_val(&self.edges[..])
            + size_of_val(&self.steps[..])
            + size_of_val(&self.list_ends[..])
            + size_of_val(&self.list_regions[..])
    }
}
