//! Search trees over a sorted column.
//!
//! # Layout
//!
//! The column itself is the bottom: *leaves* of one cache line, 8 or 16 keys. Above it stand levels of 64-byte *nodes*, from one
//! root down; the node of child `c` of node `i` is number `i * fanout + c` of the next level, so no pointer is stored. This is
//! an S+-tree whose separators are, per child but the last, the *largest key to the left* (queries that hit never need a
//! second leaf). Three widths of separators, one per level:
//!
//! | width | node | fanout |
//! | --- | --- | --- |
//! | 16 bits | header word, 28 x `u16` | 29 |
//! | 32 bits | header word, 14 x `u32` | 15 |
//! | 64 bits | 8 x `u64`: the plain S+-tree | 9 |
//!
//! The header is a frame of reference: `base | shift`, base a multiple of 64, shift in the low six bits. A separator `m` is
//! stored as `(m - base) >> shift`, a query `q` compares as `min((q - base) >> shift, all ones)`, saturating below at 0, and goes
//! right of the separators that are smaller. Each node has the smallest shift that its own span of keys allows. Rounding
//! down errs to the left only: a query is sent to the leaf that holds its lower bound or to an earlier one, the latter when it
//! lies between a separator and the next multiple of `2^shift`. So a leaf whose keys are all below the query is followed
//! forward, galloping. How many of the tree's own keys that affects is counted while building; a level with more than one in
//! 512 gets the next width. (For hash-like keys each 16-bit level sends about one key in 5000 a leaf too far left: nothing.)
//!
//! Padding separators are all ones, below which every query stays.
//!
//! # Batches
//!
//! Queries run in groups of 16, as a wavefront: at each step every level serves one group, the deepest first, and asks for the
//! lines that the next level will read for the same group some steps later, the more steps the larger that level. So cached and
//! uncached levels mix, and the lines in flight do not depend on the height. The few levels that fit the nearest cache
//! are walked at once. Queries that must look beyond their leaf wait in a queue until their line has come.
//!
//! Refuted: two-line leaves (each further line costs as much as the level it saves); one shift for a whole level (one wide node
//! spoils it); requiring exact 16-bit separators (the levels above the lowest would never have them).
//!
//! # File
//!
//! Parameters: 0 number of keys before the first in its line; 1 number of levels; then per level, root first, `nodes << 8 | width`
//! with width 16, 32 or 64. Sections: `levels`, all nodes, root first; `column`, the keys, after the given number of unused places.

mod build;

pub(crate) use build::first_descent;
pub use build::{TreeBuilder, Widths};

use crate::error::Result;
use crate::file::{Kind, PARAMS, Parts, Section, Source, file_methods, malformed};
use crate::kernel::{Batch, Isa, Line, Vector, below_window, cast, dispatch, prefetch_ref};
use crate::key::Key;
use crate::memory::{PageReport, Store};
use crate::search::{NOT_FOUND, Search};

/// Queries per group.
const GROUP: usize = 16;
/// Levels of up to this many bytes in all are walked at once.
const NEAR: usize = 8 << 10;
/// Groups between asking for a line and reading it: for levels of up to so many bytes.
const DELAYS: [(usize, usize); 3] = [(1 << 20, 1), (24 << 20, 2), (usize::MAX, 3)];
/// Queries that wait for a line beyond their leaf.
const QUEUE: usize = 64;
/// Parameters before the level table.
const LEVEL_TABLE: usize = 2;

/// A static search tree over sorted keys: works for any distribution, with duplicates, over its own or the caller's column.
///
/// Costs 4 % on top of the column. A random look-up in a batch reads the leaf and, in gigabytes, one node from memory. The
/// layout is described in the [module documentation](self).
///
/// ```
/// use osmill_stree::{Search, SearchTree};
///
/// let column: Vec<i64> = (-500..500).map(|key| key * 10).collect();
/// let tree = SearchTree::over(&column)?; // borrows the column
/// assert_eq!(tree.position(-20), Some(498));
/// assert_eq!(tree.lower_bound(-25), 498);
/// assert_eq!(tree.select(0), Some(-5000));
/// # Ok::<(), osmill_stree::Error>(())
/// ```
#[derive(Debug)]
pub struct SearchTree<'a, K: Key> {
    column: Column<'a, K>,
    /// Unused places before the first key in its line.
    skip: usize,
    nodes: Store<'a>,
    levels: Vec<Level>,
    isa: Isa,
}

/// Where the keys are.
#[derive(Debug)]
enum Column<'a, K> {
    Borrowed(&'a [K]),
    /// In lines, after `skip` places.
    Stored {
        store: Store<'a>,
        len: usize,
    },
}

/// Width of a level's separators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Width {
    Bits16,
    Bits32,
    Bits64,
}

impl Width {
    const ALL: [Width; 3] = [Width::Bits16, Width::Bits32, Width::Bits64];

    /// Children of a node.
    const fn fanout(self) -> usize {
        match self {
            Width::Bits16 => 29,
            Width::Bits32 => 15,
            Width::Bits64 => 9,
        }
    }

    fn bits(self) -> u64 {
        match self {
            Width::Bits16 => 16,
            Width::Bits32 => 32,
            Width::Bits64 => 64,
        }
    }
}

/// One level of nodes.
#[derive(Clone, Copy, Debug)]
struct Level {
    /// First line in the node array.
    start: usize,
    /// Number of nodes, at least 1.
    nodes: usize,
    width: Width,
}

/// Which child of a node a query goes to, `< fanout`.
#[inline(always)]
fn child<V: Vector>(width: Width, node: &Line, query: u64) -> usize {
    let header = node.0[0];
    let offset = query.saturating_sub(header & !63) >> (header & 63);
    match width {
        Width::Bits16 => V::below_u16::<4>(node, offset.min(u64::from(u16::MAX)) as u16),
        Width::Bits32 => V::below_u32::<2>(cast::u32_lanes(node), offset.min(u64::from(u32::MAX)) as u32, 0),
        Width::Bits64 => V::below_u64::<0>(&node.0, query, 0),
    }
}

/// The tree as a batch uses it.
#[derive(Clone, Copy)]
struct View<'v, K> {
    keys: &'v [K],
    skip: usize,
    nodes: &'v [Line],
    levels: &'v [Level],
}

impl<'v, K: Key> View<'v, K> {
    /// Number of leaves, at least 1.
    #[inline(always)]
    fn leaves(&self) -> usize {
        (self.keys.len() + self.skip).div_ceil(K::PER_LINE).max(1)
    }

    /// First key of the window that is searched for a leaf. Windows at the ends are moved inside the column; the neighbours'
    /// keys that come in are all below or all not below every query that is sent there, so counting stays right.
    #[inline(always)]
    fn window(&self, leaf: usize) -> usize {
        (leaf * K::PER_LINE)
            .saturating_sub(self.skip)
            .min(self.keys.len() - K::PER_LINE)
    }

    /// Node or leaf below a node.
    #[inline(always)]
    fn descend<V: Vector>(&self, depth: usize, node: usize, query: u64) -> usize {
        let level = &self.levels[depth];
        let line = &self.nodes[level.start + node];
        let below = self
            .levels
            .get(depth + 1)
            .map_or(self.leaves(), |below| below.nodes);
        (node * level.width.fanout() + child::<V>(level.width, line, query)).min(below - 1)
    }

    /// Lower bound within a leaf's window, and whether it may lie beyond. The column must hold at least a line of keys.
    #[inline(always)]
    fn leaf<V: Vector>(&self, leaf: usize, query: u64) -> (usize, bool) {
        let start = self.window(leaf);
        let below = below_window::<K, V>(&self.keys[start..start + K::PER_LINE], query);
        (
            start + below,
            below == K::PER_LINE && start + below < self.keys.len(),
        )
    }

    /// First position from `from` on whose key is not below the query, by doubling steps. O(log distance).
    #[inline(always)]
    fn gallop(&self, from: usize, query: u64) -> usize {
        let (mut low, mut step) = (from, 1);
        while self
            .keys
            .get(low + step - 1)
            .is_some_and(|key| key.ordered() < query)
        {
            low += step;
            step *= 2;
        }
        let high = (low + step - 1).min(self.keys.len());
        low + self.keys[low..high].partition_point(|key| key.ordered() < query)
    }

    /// Lower bound among fewer keys than a line holds.
    #[inline(always)]
    fn tiny(&self, query: u64) -> usize {
        self.keys
            .iter()
            .map(|key| usize::from(key.ordered() < query))
            .sum()
    }
}

/// One query.
struct One<'v, 'o, K> {
    view: View<'v, K>,
    query: u64,
    position: &'o mut usize,
}

impl<K: Key> Batch for One<'_, '_, K> {
    #[inline(always)]
    fn run<V: Vector>(self) {
        let One {
            view,
            query,
            position,
        } = self;
        if view.keys.len() < K::PER_LINE {
            *position = view.tiny(query);
            return;
        }
        let leaf = (0..view.levels.len()).fold(0, |node, depth| view.descend::<V>(depth, node, query));
        let (at, beyond) = view.leaf::<V>(leaf, query);
        *position = if beyond { view.gallop(at, query) } else { at };
    }
}

/// A batch. `each(i, position, equal)`; with `UPPER`, positions are upper bounds and `equal` means nothing.
struct Wavefront<'v, 'q, K, F, const UPPER: bool> {
    view: View<'v, K>,
    queries: &'q [K],
    each: F,
}

/// Queries on their way down together.
#[derive(Clone, Copy)]
struct Group {
    queries: [u64; GROUP],
    /// Node or leaf to be read next.
    places: [usize; GROUP],
}

/// The schedule of a wavefront: the step, after a group's first, at which each stage serves it. Stage 0 walks the near levels,
/// stage `s` the level `near + s - 1`, the last stage the leaves.
struct Schedule {
    /// Levels walked in stage 0.
    near: usize,
    starts: [usize; PARAMS],
    stages: usize,
}

impl Schedule {
    fn new<K: Key>(view: &View<'_, K>) -> Schedule {
        let mut near = 0;
        let mut bytes = 0;
        for level in view.levels {
            bytes += level.nodes * 64;
            if bytes > NEAR {
                break;
            }
            near += 1;
        }
        let mut starts = [0; PARAMS];
        let stages = view.levels.len() - near + 2;
        for stage in 1..stages {
            let bytes = view
                .levels
                .get(near + stage - 1)
                .map_or(size_of_val(view.keys), |level| level.nodes * 64);
            let delay = DELAYS
                .iter()
                .find(|(limit, _)| bytes <= *limit)
                .map_or(1, |&(_, delay)| delay);
            starts[stage] = starts[stage - 1] + delay;
        }
        Schedule { near, starts, stages }
    }
}

impl<K: Key, F: FnMut(usize, usize, bool), const UPPER: bool> Wavefront<'_, '_, K, F, UPPER> {
    /// What is searched for: with `UPPER`, the first key that is not below the successor of the query.
    #[inline(always)]
    fn needle(query: K) -> u64 {
        if UPPER {
            query.ordered() + u64::from(query != K::MAX)
        } else {
            query.ordered()
        }
    }

    #[inline(always)]
    fn answer(&mut self, index: usize, position: usize) {
        let query = self.queries[index];
        if UPPER {
            let position = if query == K::MAX {
                self.view.keys.len()
            } else {
                position
            };
            (self.each)(index, position, false);
        } else {
            (self.each)(
                index,
                position,
                self.view.keys.get(position).is_some_and(|&key| key == query),
            );
        }
    }
}

impl<K: Key, F: FnMut(usize, usize, bool), const UPPER: bool> Batch for Wavefront<'_, '_, K, F, UPPER> {
    #[inline(always)]
    fn run<V: Vector>(mut self) {
        let (view, queries) = (self.view, self.queries);
        if view.keys.len() < K::PER_LINE {
            for (index, &query) in queries.iter().enumerate() {
                self.answer(index, view.tiny(Self::needle(query)));
            }
            return;
        }
        let Schedule { near, starts, stages } = Schedule::new(&view);
        let ring = (starts[stages - 1] + 1).next_power_of_two();
        let mut groups = vec![
            Group {
                queries: [0; GROUP],
                places: [0; GROUP]
            };
            ring
        ];
        let mut waiting = [(0usize, 0usize); QUEUE];
        let mut waiting_len = 0;
        let total = queries.len().div_ceil(GROUP);
        for step in 0..total + starts[stages - 1] {
            for stage in (0..stages).rev() {
                let Some(number) = step.checked_sub(starts[stage]).filter(|&number| number < total) else {
                    continue;
                };
                let group = &mut groups[number & (ring - 1)];
                if stage == stages - 1 {
                    let first = number * GROUP;
                    let group = *group;
                    for lane in 0..GROUP.min(queries.len() - first) {
                        let (position, beyond) = view.leaf::<V>(group.places[lane], group.queries[lane]);
                        if beyond {
                            prefetch_ref(&raw const view.keys[position]);
                            waiting[waiting_len] = (first + lane, position);
                            waiting_len += 1;
                        } else {
                            self.answer(first + lane, position);
                        }
                    }
                    if waiting_len > QUEUE - GROUP {
                        for &(index, position) in &waiting[..waiting_len] {
                            self.answer(index, view.gallop(position, Self::needle(queries[index])));
                        }
                        waiting_len = 0;
                    }
                    continue;
                }
                if stage == 0 {
                    let first = number * GROUP;
                    group.places = [0; GROUP];
                    for (needle, &query) in group.queries.iter_mut().zip(&queries[first..]) {
                        *needle = Self::needle(query);
                    }
                    for depth in 0..near {
                        walk::<K, V>(&view, depth, group);
                    }
                } else {
                    walk::<K, V>(&view, near + stage - 1, group);
                }
                let depth = near + stage;
                if let Some(level) = view.levels.get(depth) {
                    let nodes = &view.nodes[level.start..];
                    group
                        .places
                        .iter()
                        .for_each(|&node| prefetch_ref(nodes.as_ptr().wrapping_add(node)));
                } else {
                    group
                        .places
                        .iter()
                        .for_each(|&leaf| prefetch_ref(&raw const view.keys[view.window(leaf)]));
                }
            }
        }
        for &(index, position) in &waiting[..waiting_len] {
            self.answer(index, view.gallop(position, Self::needle(queries[index])));
        }
    }
}

/// Takes a group one level down.
#[inline(always)]
fn walk<K: Key, V: Vector>(view: &View<'_, K>, depth: usize, group: &mut Group) {
    // The width is matched here, so that the loops below know it.
    macro_rules! at_width {
        ($width:expr) => {{
            let level = view.levels[depth];
            let nodes = &view.nodes[level.start..level.start + level.nodes];
            let below = view
                .levels
                .get(depth + 1)
                .map_or(view.leaves(), |below| below.nodes);
            for lane in 0..GROUP {
                let node = group.places[lane];
                let child = child::<V>($width, &nodes[node], group.queries[lane]);
                group.places[lane] = (node * $width.fanout() + child).min(below - 1);
            }
        }};
    }
    match view.levels[depth].width {
        Width::Bits16 => at_width!(Width::Bits16),
        Width::Bits32 => at_width!(Width::Bits32),
        Width::Bits64 => at_width!(Width::Bits64),
    }
}

impl<'a, K: Key> SearchTree<'a, K> {
    /// The sorted keys.
    pub fn keys(&self) -> &[K] {
        match &self.column {
            Column::Borrowed(keys) => keys,
            Column::Stored { store, len } => &cast::keys(store.lines())[self.skip..self.skip + *len],
        }
    }

    fn view(&self) -> View<'_, K> {
        View {
            keys: self.keys(),
            skip: self.skip,
            nodes: self.nodes.lines(),
            levels: &self.levels,
        }
    }

    fn find(&self, query: u64) -> usize {
        let mut position = 0;
        dispatch(
            self.isa,
            One {
                view: self.view(),
                query,
                position: &mut position,
            },
        );
        position
    }

    /// Bytes of the levels above the column.
    pub fn overhead(&self) -> u64 {
        self.nodes.lines().len() as u64 * 64
    }

    /// Bits per separator of each level, root first.
    pub fn widths(&self) -> Vec<u32> {
        self.levels
            .iter()
            .map(|level| level.width.bits() as u32)
            .collect()
    }

    /// Which pages its levels and its own column lie on.
    pub fn pages(&self) -> Vec<PageReport> {
        let column = match &self.column {
            Column::Borrowed(_) => None,
            Column::Stored { store, .. } => store.pages(),
        };
        self.nodes.pages().into_iter().chain(column).collect()
    }

    pub(crate) fn parts(&self) -> Parts<'_> {
        let mut params = [0; PARAMS];
        params[0] = self.skip as u64;
        params[1] = self.levels.len() as u64;
        for (param, level) in params[LEVEL_TABLE..].iter_mut().zip(&self.levels) {
            *param = (level.nodes as u64) << 8 | level.width.bits();
        }
        let keys = self.keys();
        Parts {
            kind: Kind::Tree,
            key_type: K::TAG,
            keys: keys.len() as u64,
            params,
            sections: vec![
                Section::lines(self.nodes.lines()),
                Section {
                    front: self.skip * size_of::<K>(),
                    body: cast::key_bytes(keys),
                },
            ],
        }
    }

    fn from_source(source: Source<'a>) -> Result<SearchTree<'a, K>> {
        let mut opened = source.open(Kind::Tree, K::TAG)?;
        let (nodes, store) = (opened.section()?, opened.section()?);
        let places = store.lines().len() * K::PER_LINE;
        let skip = opened.params[0] as usize;
        let count = opened.params[1] as usize;
        let len = usize::try_from(opened.keys).ok().filter(|len| *len <= places);
        let Some(len) = len.filter(|len| skip < K::PER_LINE && len + skip <= places) else {
            return Err(malformed("the column is shorter than the number of keys"));
        };
        let mut levels = Vec::new();
        let mut start = 0;
        for &param in opened.params[LEVEL_TABLE..].get(..count).unwrap_or(&[]) {
            let width = Width::ALL.into_iter().find(|width| width.bits() == param & 255);
            let level = (param >> 8) as usize;
            let end = level.checked_add(start).filter(|&end| end <= nodes.lines().len());
            let (Some(width), Some(end), 1..) = (width, end, level) else {
                return Err(malformed(
                    "the level table names an unknown width or more nodes than there are",
                ));
            };
            levels.push(Level {
                start,
                nodes: level,
                width,
            });
            start = end;
        }
        if count > PARAMS - LEVEL_TABLE {
            return Err(malformed(format!("{count} levels")));
        }
        let column = Column::Stored { store, len };
        Ok(SearchTree {
            column,
            skip,
            nodes,
            levels,
            isa: Isa::best(),
        })
    }
}

file_methods!(SearchTree<'a, K: Key>);

impl<K: Key> SearchTree<'_, K> {
    fn wavefront<F: FnMut(usize, usize, bool), const UPPER: bool>(&self, queries: &[K], each: F) {
        dispatch(
            self.isa,
            Wavefront::<_, _, UPPER> {
                view: self.view(),
                queries,
                each,
            },
        );
    }
}

impl<K: Key> Search<K> for SearchTree<'_, K> {
    fn len(&self) -> u64 {
        self.keys().len() as u64
    }

    fn isa(&self) -> Isa {
        self.isa
    }

    fn lower_bound(&self, key: K) -> u64 {
        self.find(key.ordered()) as u64
    }

    fn upper_bound(&self, key: K) -> u64 {
        if key == K::MAX {
            self.len()
        } else {
            self.find(key.ordered() + 1) as u64
        }
    }

    fn position(&self, key: K) -> Option<u64> {
        let position = self.find(key.ordered());
        (self.keys().get(position) == Some(&key)).then_some(position as u64)
    }

    fn select(&self, position: u64) -> Option<K> {
        self.keys().get(usize::try_from(position).ok()?).copied()
    }

    fn for_each_lower_bound<F: FnMut(usize, u64)>(&self, queries: &[K], mut each: F) {
        self.wavefront::<_, false>(queries, |index, position, _| each(index, position as u64));
    }

    fn for_each_upper_bound<F: FnMut(usize, u64)>(&self, queries: &[K], mut each: F) {
        self.wavefront::<_, true>(queries, |index, position, _| each(index, position as u64));
    }

    fn for_each_position<F: FnMut(usize, u64)>(&self, queries: &[K], mut each: F) {
        self.wavefront::<_, false>(queries, |index, position, equal| {
            each(index, if equal { position as u64 } else { NOT_FOUND });
        });
    }
}
