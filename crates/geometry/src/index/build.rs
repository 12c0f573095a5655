//! Building the index: see the documentation of the parent module.

use std::collections::{HashMap, VecDeque};

use osmill_model::{BoundingBox, Location};

use super::{Cell, Check, Grid, Index, Leaf, LeafEdge, Step};
use crate::exact::{Wide, widen};
use crate::multipolygon::MultiPolygon;

/// Cells with more edges become grids. Fewer (6 to 12), and grids of 4 x 4, were not faster and took up to
/// twice the memory and time to build.
const LEAF_EDGES: usize = 16;
/// The root grid has at most `1 << ROOT_BITS` columns, and rows.
const ROOT_BITS: u32 = 9;
/// It has about `1 << MIN_ROOT_BITS` at least, however few edges there are, so that most cells have none.
const MIN_ROOT_BITS: u32 = 5;
/// Other grids have at most `1 << GRID_BITS` columns, and rows.
const GRID_BITS: u32 = 3;
/// Leaves may hold this many copies of each edge on average, all told.
const EDGE_COPIES: usize = 12;
/// Lists of regions may name this many regions for each copy of an edge.
const LISTED: usize = 8;
/// Work and cells that every index may use, however small.
const FREE_COST: usize = 1 << 14;

impl Index {
    /// The index of one ring without holes.
    pub fn of_ring(ring: &[Location]) -> Index {
        let mut area = MultiPolygon::new();
        area.add_polygon(ring, &[]);
        Index::build(&[&area])
    }

    /// The index of these regions, numbered from 0. O(edges) time and memory, give or take the depth of the
    /// tree, which is at most 12.
    pub fn build(regions: &[&MultiPolygon]) -> Index {
        let mut builder = Builder::default();
        builder.lists.insert(Vec::new(), 0);
        builder.index.list_ends.push(0);
        builder.build(regions);
        builder.index
    }
}

#[derive(Debug, Clone, Copy)]
struct Edge {
    a: Location,
    b: Location,
}

impl Edge {
    fn low_high(self) -> (Location, Location) {
        if self.a.lat < self.b.lat || (self.a.lat == self.b.lat && self.a.lon <= self.b.lon) {
            (self.a, self.b)
        } else {
            (self.b, self.a)
        }
    }

    fn turn(self) -> i32 {
        (i32::from(self.b.lat > self.a.lat)) - (i32::from(self.b.lat < self.a.lat))
    }

    /// The first row above the crossing with the line half a unit left of `x`, and by how much going up
    /// through it changes the winding number; `None` if the edge does not cross that line.
    fn step(self, x: i64) -> Option<Step> {
        let (ax, bx) = (i64::from(self.a.lon), i64::from(self.b.lon));
        if (ax < x) == (bx < x) {
            return None;
        }
        let rise = i128::from(self.b.lat) - i128::from(self.a.lat);
        let run = 2 * i128::from(bx - ax);
        let up = i128::from(2 * (x - ax) - 1) * rise * run.signum();
        let row = i128::from(self.a.lat) - (-up).div_euclid(run.abs());
        Some(Step {
            row: row as i32,
            turn: if bx > ax { -1 } else { 1 },
        })
    }

    /// The rows, from and up to before, that the edge passes to the right of the line half a unit left of `x`.
    fn rows_right_of(self, x: i64) -> (i32, i32) {
        let (low, high) = self.low_high();
        match self.step(x) {
            Some(step) if i64::from(high.lon) >= x => (low.lat.max(step.row), high.lat),
            Some(step) => (low.lat, high.lat.min(step.row)),
            None if i64::from(low.lon) >= x => (low.lat, high.lat),
            None => (low.lat, low.lat),
        }
    }

    /// The greatest integer x so that the edge passes the row, which it must pass, to the left of the line
    /// half a unit left of every integer greater than x.
    fn passes_row_at(self, row: i64) -> i64 {
        let (low, high) = self.low_high();
        let run = i64::from(high.lon) - i64::from(low.lon);
        let rise = i64::from(high.lat) - i64::from(low.lat);
        let product = (row - i64::from(low.lat)) * run;
        let x = i64::from(low.lon) + product.div_euclid(rise);
        let rest = 2 * product.rem_euclid(rise);
        // Exactly on such a line, the edge's slope decides, since rows are infinitely little above.
        x + i64::from(rest > rise || (rest == rise && run > 0))
    }

    /// The longitudes that the edge takes between two rows that it reaches, rounded outwards.
    fn span(self, bottom: i64, top: i64) -> (i64, i64) {
        let (low, high) = self.low_high();
        span(widen(low), widen(high), bottom, top)
    }

    /// Calls `f` with the columns of every row of the window that the edge may touch.
    fn touched(self, grid: &Grid, window: &Window, mut f: impl FnMut(i64, std::ops::RangeInclusive<i64>)) {
        let (low, high) = self.low_high();
        let rows = grid.row(low.lat.into()).max(window.rows.0)..=grid.row(high.lat.into()).min(window.rows.1);
        for row in rows {
            let bottom = grid.row_bottom(row);
            // Up to the next row: what lies between two rows of locations is the lower one's, which matters
            // to segments.
            let (left, right) = self.span(bottom, bottom + (1 << grid.y_shift));
            // A cell begins half a unit left of its first column.
            let columns =
                grid.column(left).max(window.columns.0)..=grid.column(right + 1).min(window.columns.1);
            if !columns.is_empty() {
                f(row, columns);
            }
        }
    }
}

/// The longitudes that the segment takes between two rows that it reaches, rounded outwards.
pub(crate) fn span(low: Wide, high: Wide, bottom: i64, top: i64) -> (i64, i64) {
    let ((ax, ay), (bx, by)) = (low, high);
    if ay == by || (bottom <= ay && by <= top) {
        return (ax.min(bx), ax.max(bx));
    }
    let at = |y: i64| ax + ((y - ay) * (bx - ax)).div_euclid(by - ay);
    let (first, last) = (at(bottom.max(ay)), at(top.min(by)));
    (first.min(last), first.max(last) + 1)
}

/// Columns and rows of a grid, first and last.
#[derive(Debug, Clone, Copy)]
struct Window {
    columns: (i64, i64),
    rows: (i64, i64),
}

impl Window {
    fn whole(grid: &Grid) -> Window {
        Window {
            columns: (0, i64::from(grid.columns) - 1),
            rows: (0, i64::from(grid.rows) - 1),
        }
    }

    fn of_box(grid: &Grid, bbox: &BoundingBox) -> Window {
        let whole = Window::whole(grid);
        Window {
            columns: (
                grid.column(bbox.min.lon.into()).max(0),
                // The half unit to the left of the next cell belongs to it.
                grid.column(i64::from(bbox.max.lon) + 1).min(whole.columns.1),
            ),
            rows: (
                grid.row(bbox.min.lat.into()).max(0),
                grid.row(bbox.max.lat.into()).min(whole.rows.1),
            ),
        }
    }

    fn width(&self) -> usize {
        (self.columns.1 - self.columns.0 + 1).max(0) as usize
    }

    fn len(&self) -> usize {
        self.width() * (self.rows.1 - self.rows.0 + 1).max(0) as usize
    }

    fn at(&self, column: i64, row: i64) -> usize {
        (row - self.rows.0) as usize * self.width() + (column - self.columns.0) as usize
    }

    fn contains(&self, column: i64, row: i64) -> bool {
        self.columns.0 <= column && column <= self.columns.1 && self.rows.0 <= row && row <= self.rows.1
    }
}

/// What a ring is in one cell.
#[derive(Debug, Clone, Default)]
struct Fragment {
    winding: i32,
    steps: Vec<Step>,
    edges: Vec<Edge>,
}

/// A part in a cell where at least one of its rings has edges.
#[derive(Debug, Clone)]
struct MixedPart {
    region: u32,
    /// `None` if the whole cell is inside the outer ring.
    outer: Option<Fragment>,
    holes: Vec<Fragment>,
}

/// What is known of a cell while building.
#[derive(Debug, Clone, Default)]
struct Content {
    inside: Vec<u32>,
    mixed: Vec<MixedPart>,
}

impl Content {
    fn edge_count(&self) -> usize {
        let part = |part: &MixedPart| {
            part.outer
                .iter()
                .chain(&part.holes)
                .map(|ring| ring.edges.len())
                .sum::<usize>()
        };
        self.mixed.iter().map(part).sum()
    }

    /// Drops what does not matter, since the region holds the whole cell anyway.
    fn settle(&mut self) {
        self.inside.sort_unstable();
        self.inside.dedup();
        let inside = &self.inside;
        self.mixed
            .retain(|part| inside.binary_search(&part.region).is_err());
    }
}

/// A ring spread over the cells of a window.
struct Spread {
    window: Window,
    /// The winding number at each cell's reference.
    winding: Vec<i32>,
    /// Cells of the window with edges, ascending.
    touched: Vec<(usize, Fragment)>,
}

impl Spread {
    /// Spreads a ring whose winding number is `fragment.winding` at the reference of the grid.
    fn new(fragment: &Fragment, grid: &Grid, window: Window) -> Spread {
        let width = window.width();
        let mut winding = vec![0; window.len()];
        let mut touching: Vec<(u32, u32)> = Vec::new();
        for (number, edge) in fragment.edges.iter().enumerate() {
            edge.touched(grid, &window, |row, columns| {
                let first = window.at(*columns.start(), row);
                touching.extend(
                    columns
                        .enumerate()
                        .map(|(i, _)| ((first + i) as u32, number as u32)),
                );
            });
            let (from, to) = edge.rows_right_of(grid.x0.into());
            if from < to {
                let first = (grid.row(i64::from(from) - 1) + 1).max(window.rows.0);
                let last = grid.row(i64::from(to) - 1).min(window.rows.1);
                for row in first..=last {
                    let x = edge.passes_row_at(grid.row_bottom(row));
                    let column = (grid.column(x) + 1).max(window.columns.0);
                    if column <= window.columns.1 {
                        winding[window.at(column, row)] += edge.turn();
                    }
                }
            }
        }
        for (row, cells) in winding.chunks_mut(width.max(1)).enumerate() {
            let bottom = grid.row_bottom(window.rows.0 + row as i64);
            let passed = fragment.steps.iter().filter(|step| i64::from(step.row) <= bottom);
            let mut sum = fragment.winding + passed.map(|step| step.turn).sum::<i32>();
            for cell in cells {
                sum += *cell;
                *cell = sum;
            }
        }
        touching.sort_unstable();
        let touched = touching
            .chunk_by(|a, b| a.0 == b.0)
            .map(|pairs| {
                let cell = pairs[0].0 as usize;
                let left = grid.column_left(window.columns.0 + (cell % width) as i64);
                let bottom = grid.row_bottom(window.rows.0 + (cell / width) as i64);
                let rows = bottom + 1..bottom + (1 << grid.y_shift);
                let edges: Vec<Edge> = pairs
                    .iter()
                    .map(|&(_, number)| fragment.edges[number as usize])
                    .collect();
                let steps = edges
                    .iter()
                    .filter_map(|edge| edge.step(left))
                    .filter(|step| rows.contains(&i64::from(step.row)))
                    .collect();
                let winding = winding[cell];
                (
                    cell,
                    Fragment {
                        winding,
                        steps,
                        edges,
                    },
                )
            })
            .collect();
        Spread {
            window,
            winding,
            touched,
        }
    }
}

#[derive(Default)]
struct Builder {
    index: Index,
    lists: HashMap<Vec<u32>, u32>,
}

impl Builder {
    fn build(&mut self, regions: &[&MultiPolygon]) {
        self.index.bounds = regions
            .iter()
            .filter_map(|region| region.envelope())
            .reduce(BoundingBox::union);
        self.index.solid = regions.iter().any(|region| {
            let is_all = |bbox: BoundingBox| self.index.bounds == Some(bbox);
            region.parts.iter().any(|part| {
                part.holes.is_empty()
                    && is_all(region.ring_box(part.outer))
                    && is_box(&region.rings[part.outer])
            })
        });
        // References are counted from the grid's left, so no edge may be beyond it, not even of a hole.
        let Some(all) = regions
            .iter()
            .flat_map(|region| (0..region.rings.len()).map(|ring| region.ring_box(ring)))
            .reduce(BoundingBox::union)
        else {
            return;
        };

        let edge_count: usize = regions
            .iter()
            .flat_map(|region| region.parts.iter().map(move |part| (region, part)))
            .map(|(region, part)| {
                region.rings[part.outer].len()
                    + part
                        .holes
                        .iter()
                        .map(|&hole| region.rings[hole].len())
                        .sum::<usize>()
            })
            .sum();
        let budget = edge_count * EDGE_COPIES + FREE_COST;
        let mut bits = (usize::BITS - edge_count.leading_zeros())
            .div_ceil(2)
            .max(MIN_ROOT_BITS - 1)
            + 1;
        let grid = loop {
            bits = bits.min(ROOT_BITS);
            let grid = self.root_grid(&all, bits);
            if bits == 0 || cost(regions, &grid, budget) <= budget {
                break grid;
            }
            bits -= 1;
        };
        let contents = spread_root(regions, &grid);
        self.index.grids.push(grid);
        self.index.cells.resize(contents.len(), Cell::EMPTY);
        let mut copies: usize = contents.iter().map(Content::edge_count).sum();
        let mut queue: VecDeque<(usize, Grid, Content)> = VecDeque::new();
        // Regions named in the queue.
        let mut named = self.enqueue(grid, contents, &mut queue);
        while let Some((slot, cell, content)) = queue.pop_front() {
            let edges = content.edge_count();
            named -= content.inside.len();
            let names = self.index.list_regions.len() + named + (content.inside.len() << (2 * GRID_BITS));
            if edges > LEAF_EDGES
                && names <= budget * LISTED
                && let Some(grid) = self.divided(&cell)
            {
                let contents = spread_cell(&content, &grid);
                let divided: usize = contents.iter().map(Content::edge_count).sum();
                let most = contents.iter().map(Content::edge_count).max().unwrap_or(0);
                let worth = most < edges || divided < edges * 3;
                let cells = self.index.cells.len() + contents.len();
                if worth && copies - edges + divided <= budget && cells < (budget * 8).min(1 << 29) {
                    copies = copies - edges + divided;
                    self.index.cells[slot] = Cell::grid(self.index.grids.len());
                    self.index.grids.push(grid);
                    self.index.cells.resize(cells, Cell::EMPTY);
                    named += self.enqueue(grid, contents, &mut queue);
                    continue;
                }
            }
            self.index.cells[slot] = self.leaf(&cell, content);
        }
    }

    /// The grid over the box with about `1 << bits` columns and rows.
    fn root_grid(&self, bbox: &BoundingBox, bits: u32) -> Grid {
        let shift = |from: i32, to: i32| {
            let width = i64::from(to) - i64::from(from);
            (64 - width.leading_zeros()).saturating_sub(bits).min(31)
        };
        let (x_shift, y_shift) = (
            shift(bbox.min.lon, bbox.max.lon),
            shift(bbox.min.lat, bbox.max.lat),
        );
        let cells = |from: i32, to: i32, shift: u32| ((i64::from(to) - i64::from(from)) >> shift) as u32 + 1;
        Grid {
            x0: bbox.min.lon,
            y0: bbox.min.lat,
            x_shift,
            y_shift,
            columns: cells(bbox.min.lon, bbox.max.lon, x_shift),
            rows: cells(bbox.min.lat, bbox.max.lat, y_shift),
            start: 0,
        }
    }

    /// The grid that a cell, given as a grid of one, can be divided into.
    fn divided(&self, cell: &Grid) -> Option<Grid> {
        let (x_bits, y_bits) = (cell.x_shift.min(GRID_BITS), cell.y_shift.min(GRID_BITS));
        (x_bits + y_bits > 0).then(|| Grid {
            x_shift: cell.x_shift - x_bits,
            y_shift: cell.y_shift - y_bits,
            columns: 1 << x_bits,
            rows: 1 << y_bits,
            start: self.index.cells.len() as u32,
            ..*cell
        })
    }

    /// Settles the cells of a grid: those without edges now, the others in the queue, each as a grid of one.
    /// Returns the number of regions named in the queue by this.
    fn enqueue(
        &mut self,
        grid: Grid,
        contents: Vec<Content>,
        queue: &mut VecDeque<(usize, Grid, Content)>,
    ) -> usize {
        let mut named = 0;
        for (number, content) in contents.into_iter().enumerate() {
            let slot = grid.start as usize + number;
            if content.mixed.is_empty() {
                let list = self.list(&content.inside);
                self.index.cells[slot] = Cell::uniform(list);
            } else {
                let (column, row) = (number as u32 % grid.columns, number as u32 / grid.columns);
                let cell = Grid {
                    x0: grid.column_left(column.into()) as i32,
                    y0: grid.row_bottom(row.into()) as i32,
                    columns: 1,
                    rows: 1,
                    ..grid
                };
                named += content.inside.len();
                queue.push_back((slot, cell, content));
            }
        }
        named
    }

    fn list(&mut self, regions: &[u32]) -> u32 {
        if let Some(&list) = self.lists.get(regions) {
            return list;
        }
        let list = self.index.list_ends.len() as u32;
        self.index.list_regions.extend_from_slice(regions);
        self.index.list_ends.push(self.index.list_regions.len() as u32);
        self.lists.insert(regions.to_vec(), list);
        list
    }

    fn leaf(&mut self, cell: &Grid, mut content: Content) -> Cell {
        let inside = self.list(&content.inside);
        content.mixed.sort_by_key(|part| part.region);
        let first = self.index.checks.len();
        for part in &content.mixed {
            let rings = part
                .outer
                .iter()
                .map(|ring| (ring, false))
                .chain(part.holes.iter().map(|ring| (ring, true)));
            for (ring, hole) in rings {
                self.push_check(part.region, ring, hole, cell);
            }
            if let Some(last) = self.index.checks.last_mut() {
                last.ends_part = true;
            }
        }
        self.index.leaves.push(Leaf {
            inside,
            checks: (first as u32, self.index.checks.len() as u32),
        });
        Cell::leaf(self.index.leaves.len() - 1)
    }

    fn push_check(&mut self, region: u32, ring: &Fragment, hole: bool, cell: &Grid) {
        let index = &mut self.index;
        let (edges, steps) = (index.edges.len() as u32, index.steps.len() as u32);
        index.edges.extend(ring.edges.iter().map(|edge| {
            let (low, high) = edge.low_high();
            let (from, to) = edge.rows_right_of(cell.x0.into());
            LeafEdge {
                low,
                high,
                from,
                to,
                turn: edge.turn(),
            }
        }));
        index.steps.extend_from_slice(&ring.steps);
        index.checks.push(Check {
            region,
            edges: (edges, index.edges.len() as u32),
            steps: (steps, index.steps.len() as u32),
            winding: ring.winding,
            hole,
            ends_part: false,
        });
    }
}

/// What a root grid would cost in copies of edges and in looking at cells, or a number above the limit.
fn cost(regions: &[&MultiPolygon], grid: &Grid, limit: usize) -> usize {
    let mut cost = grid.columns as usize * grid.rows as usize / 16;
    for region in regions {
        for part in &region.parts {
            for &ring in std::iter::once(&part.outer).chain(&part.holes) {
                let window = Window::of_box(grid, &region.ring_box(ring));
                cost += window.len() / 8;
                for edge in ring_edges(&region.rings[ring]) {
                    edge.touched(grid, &window, |_, columns| {
                        cost += (columns.end() - columns.start()) as usize + 1
                    });
                    if cost > limit {
                        return cost;
                    }
                }
            }
        }
    }
    cost
}

/// Whether the ring goes once around an upright rectangle.
fn is_box(ring: &[Location]) -> bool {
    let level = |i: usize| ring[i].lat == ring[(i + 1) % 4].lat;
    let upright = |i: usize| ring[i].lon == ring[(i + 1) % 4].lon;
    ring.len() == 4
        && ((level(0) && upright(1) && level(2) && upright(3))
            || (upright(0) && level(1) && upright(2) && level(3)))
}

fn ring_edges(ring: &[Location]) -> impl Iterator<Item = Edge> {
    let next = ring.iter().skip(1).chain(ring.first());
    ring.iter().zip(next).map(|(&a, &b)| Edge { a, b })
}

fn whole_ring(ring: &[Location]) -> Fragment {
    Fragment {
        winding: 0,
        steps: Vec::new(),
        edges: ring_edges(ring).collect(),
    }
}

/// Spreads all regions over the cells of the root grid.
fn spread_root(regions: &[&MultiPolygon], grid: &Grid) -> Vec<Content> {
    let mut contents = vec![Content::default(); grid.columns as usize * grid.rows as usize];
    for (number, region) in regions.iter().enumerate() {
        for part in &region.parts {
            // Away from its own box a ring has no edges, and winds around nothing.
            let spread = |ring: usize| {
                let window = Window::of_box(grid, &region.ring_box(ring));
                Spread::new(&whole_ring(&region.rings[ring]), grid, window)
            };
            let holes = part.holes.iter().map(|&hole| spread(hole));
            settle_part(
                number as u32,
                Some(spread(part.outer)),
                holes,
                grid,
                &mut contents,
            );
        }
    }
    contents.iter_mut().for_each(Content::settle);
    contents
}

/// Spreads a cell over the cells of the grid that it becomes.
fn spread_cell(content: &Content, grid: &Grid) -> Vec<Content> {
    let mut contents = vec![Content::default(); grid.columns as usize * grid.rows as usize];
    for cell in &mut contents {
        cell.inside.extend_from_slice(&content.inside);
    }
    for part in &content.mixed {
        let spread = |ring: &Fragment| Spread::new(ring, grid, Window::whole(grid));
        let outer = part.outer.as_ref().map(spread);
        settle_part(
            part.region,
            outer,
            part.holes.iter().map(spread),
            grid,
            &mut contents,
        );
    }
    contents.iter_mut().for_each(Content::settle);
    contents
}

/// Adds one part to the cells: where it covers them, and where its rings have to be looked at. Without an
/// outer ring, the part covers the grid but for its holes.
fn settle_part(
    region: u32,
    outer: Option<Spread>,
    holes: impl Iterator<Item = Spread>,
    grid: &Grid,
    contents: &mut [Content],
) {
    let window = outer
        .as_ref()
        .map_or_else(|| Window::whole(grid), |spread| spread.window);
    let mut cut_out = vec![false; window.len()];
    let mut hole_edges: HashMap<usize, Vec<Fragment>> = HashMap::new();
    for hole in holes {
        let mut touched = hole.touched.into_iter().peekable();
        for (cell, &winding) in hole.winding.iter().enumerate() {
            let column = hole.window.columns.0 + (cell % hole.window.width()) as i64;
            let row = hole.window.rows.0 + (cell / hole.window.width()) as i64;
            let fragment = touched.next_if(|(touched, _)| *touched == cell);
            if !window.contains(column, row) {
                continue;
            }
            match fragment {
                Some((_, fragment)) => hole_edges
                    .entry(window.at(column, row))
                    .or_default()
                    .push(fragment),
                None => cut_out[window.at(column, row)] |= winding != 0,
            }
        }
    }
    let mut outer = outer;
    let mut touched = outer
        .as_mut()
        .map(|spread| std::mem::take(&mut spread.touched))
        .unwrap_or_default()
        .into_iter()
        .peekable();
    for (cell, &cut_out) in cut_out.iter().enumerate() {
        let edges = touched
            .next_if(|(touched, _)| *touched == cell)
            .map(|(_, fragment)| fragment);
        let covered = match (&edges, &outer) {
            (Some(_), _) | (None, None) => true,
            (None, Some(spread)) => spread.winding[cell] != 0,
        };
        if cut_out || !covered {
            continue;
        }
        let column = window.columns.0 + (cell % window.width()) as i64;
        let row = window.rows.0 + (cell / window.width()) as i64;
        let content = &mut contents[row as usize * grid.columns as usize + column as usize];
        let holes = hole_edges.remove(&cell).unwrap_or_default();
        if edges.is_none() && holes.is_empty() {
            content.inside.push(region);
        } else {
            content.mixed.push(MixedPart {
                region,
                outer: edges,
                holes,
            });
        }
    }
}
