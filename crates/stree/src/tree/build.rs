//! Building a tree: the levels from the bottom up, each by several threads.

use super::{Column, LEVEL_TABLE, Level, SearchTree, Width};
use crate::error::{Error, Result};
use crate::file::PARAMS;
use crate::kernel::{Isa, Line, cast};
use crate::key::Key;
use crate::memory::{LineBuffer, Store};

/// A level may send one in so many keys a leaf too far left.
const TOLERANCE: usize = 512;

/// Which widths of separators a tree may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Widths {
    /// Per level the narrowest that the keys allow.
    #[default]
    Narrowest,
    /// 64 bits everywhere: the plain S+-tree of fanout 9.
    Plain,
}

/// Builds a [`SearchTree`]: from a column, or key by key.
///
/// ```
/// use osmill_stree::{Search, TreeBuilder};
///
/// let mut builder = TreeBuilder::new();
/// for key in 0..1000u32 {
///     builder.push(key / 2)?;
/// }
/// let tree = builder.finish()?;
/// assert_eq!(tree.range(10..20), 20..40);
/// # Ok::<(), osmill_stree::Error>(())
/// ```
#[derive(Debug)]
pub struct TreeBuilder<K: Key> {
    threads: usize,
    widths: Widths,
    column: Option<LineBuffer>,
    len: usize,
    last: Option<K>,
}

impl<K: Key> Default for TreeBuilder<K> {
    fn default() -> TreeBuilder<K> {
        TreeBuilder::new()
    }
}

impl<K: Key> TreeBuilder<K> {
    /// An empty builder of one thread.
    pub fn new() -> TreeBuilder<K> {
        TreeBuilder {
            threads: 1,
            widths: Widths::default(),
            column: None,
            len: 0,
            last: None,
        }
    }

    /// Uses so many threads to build the levels.
    pub fn threads(mut self, threads: usize) -> TreeBuilder<K> {
        self.threads = threads.max(1);
        self
    }

    /// Restricts the widths of separators.
    pub fn widths(mut self, widths: Widths) -> TreeBuilder<K> {
        self.widths = widths;
        self
    }

    /// Appends a key to the tree's own column. Amortised O(1).
    ///
    /// # Errors
    ///
    /// [`Error::Unsorted`] for a key below the last one; the builder is as before. [`Error::Memory`].
    #[inline]
    pub fn push(&mut self, key: K) -> Result<()> {
        if self.last.is_some_and(|last| last > key) {
            return Err(unsorted(self.len));
        }
        let column = match &mut self.column {
            Some(column) => column,
            None => self.column.insert(LineBuffer::zeroed(0)?),
        };
        if self.len == column.len() * K::PER_LINE {
            column.push(Line::ZERO)?;
        }
        column.keys_mut::<K>()[self.len] = key;
        self.len += 1;
        self.last = Some(key);
        Ok(())
    }

    /// Number of keys pushed.
    pub fn len(&self) -> u64 {
        self.len as u64
    }

    /// Whether no key was pushed.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The tree of the keys pushed.
    ///
    /// # Errors
    ///
    /// [`Error::Memory`].
    pub fn finish(mut self) -> Result<SearchTree<'static, K>> {
        let store = Store::Owned(match self.column.take() {
            Some(column) => column,
            None => LineBuffer::zeroed(0)?,
        });
        let (nodes, levels) = self.build(&cast::keys(store.lines())[..self.len], 0)?;
        let column = Column::Stored { store, len: self.len };
        Ok(SearchTree {
            column,
            skip: 0,
            nodes: Store::Owned(nodes),
            levels,
            isa: Isa::best(),
        })
    }

    /// The tree over a column that stays where it is. O(keys / 8) to build, and O(keys) to check their order.
    ///
    /// Leaves follow the cache lines of the column, wherever it starts.
    ///
    /// # Errors
    ///
    /// [`Error::Unsorted`] or [`Error::Memory`].
    pub fn over(self, column: &[K]) -> Result<SearchTree<'_, K>> {
        self.check(column)?;
        let skip = column.as_ptr() as usize % 64 / size_of::<K>();
        let (nodes, levels) = self.build(column, skip)?;
        let column = Column::Borrowed(column);
        Ok(SearchTree {
            column,
            skip,
            nodes: Store::Owned(nodes),
            levels,
            isa: Isa::best(),
        })
    }

    /// The tree with a copy of a column, on huge pages.
    ///
    /// # Errors
    ///
    /// [`Error::Unsorted`] or [`Error::Memory`].
    pub fn copied(mut self, column: &[K]) -> Result<SearchTree<'static, K>> {
        self.check(column)?;
        let mut buffer = LineBuffer::zeroed(column.len().div_ceil(K::PER_LINE))?;
        buffer.keys_mut()[..column.len()].copy_from_slice(column);
        self.len = column.len();
        self.column = Some(buffer);
        self.finish()
    }

    fn check(&self, column: &[K]) -> Result<()> {
        match first_descent(column, self.threads) {
            Some(position) => Err(unsorted(position)),
            None => Ok(()),
        }
    }

    /// All levels above a column, root first.
    fn build(&self, keys: &[K], skip: usize) -> Result<(LineBuffer, Vec<Level>)> {
        let mut children = (keys.len() + skip).div_ceil(K::PER_LINE);
        // Leaves below one child of the level being built.
        let mut span = 1;
        let mut built: Vec<(Width, LineBuffer)> = Vec::new();
        while children > 1 {
            let (width, nodes) = self.level(keys, skip, span, children)?;
            span *= width.fanout();
            children = nodes.len();
            built.push((width, nodes));
        }
        debug_assert!(built.len() <= PARAMS - LEVEL_TABLE);
        let mut all = LineBuffer::zeroed(built.iter().map(|(_, nodes)| nodes.len()).sum())?;
        let mut levels = Vec::new();
        let mut start = 0;
        for (width, nodes) in built.iter().rev() {
            all.lines_mut()[start..start + nodes.len()].copy_from_slice(nodes.lines());
            levels.push(Level {
                start,
                nodes: nodes.len(),
                width: *width,
            });
            start += nodes.len();
        }
        Ok((all, levels))
    }

    /// One level, of the narrowest width that sends few keys astray.
    fn level(&self, keys: &[K], skip: usize, span: usize, children: usize) -> Result<(Width, LineBuffer)> {
        let limit = keys.len() / TOLERANCE;
        for width in [Width::Bits16, Width::Bits32] {
            if self.widths == Widths::Plain {
                break;
            }
            let (nodes, astray) = self.level_of(width, keys, skip, span, children)?;
            if astray <= limit {
                return Ok((width, nodes));
            }
        }
        let (nodes, _) = self.level_of(Width::Bits64, keys, skip, span, children)?;
        Ok((Width::Bits64, nodes))
    }

    /// One level of a given width, and how many keys it sends too far left.
    fn level_of(
        &self,
        width: Width,
        keys: &[K],
        skip: usize,
        span: usize,
        children: usize,
    ) -> Result<(LineBuffer, usize)> {
        let (fanout, limit) = (width.fanout(), keys.len() / TOLERANCE);
        let mut level = LineBuffer::zeroed(children.div_ceil(fanout))?;
        let fill = |first: usize, nodes: &mut [Line]| -> usize {
            let mut separators = Vec::with_capacity(fanout);
            let mut astray = 0;
            for (index, node) in nodes.iter_mut().enumerate() {
                let child = (first + index) * fanout;
                separators.clear();
                // The first key right of each separator; the one before it is the largest on the left.
                let last = (child + fanout).min(children);
                separators.extend((child + 1..last).map(|child| child * span * K::PER_LINE - skip));
                astray += fill_node(width, node, keys, &separators);
                if astray > limit {
                    // This width will not do.
                    break;
                }
            }
            astray
        };
        let part = level.len().div_ceil(self.threads).max(256);
        let astray = if part >= level.len() {
            fill(0, level.lines_mut())
        } else {
            let fill = &fill;
            std::thread::scope(|scope| {
                let parts = level.lines_mut().chunks_mut(part).enumerate();
                let threads: Vec<_> = parts
                    .map(|(index, nodes)| scope.spawn(move || fill(index * part, nodes)))
                    .collect();
                let results = threads.into_iter().map(|thread| thread.join());
                results
                    .map(|astray| astray.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                    .sum()
            })
        };
        Ok((level, astray))
    }
}

impl<K: Key> SearchTree<'static, K> {
    /// The tree with a copy of sorted keys; one thread. See [`TreeBuilder`] for more ways.
    ///
    /// # Errors
    ///
    /// [`Error::Unsorted`] or [`Error::Memory`].
    pub fn from_sorted(keys: &[K]) -> Result<SearchTree<'static, K>> {
        TreeBuilder::new().copied(keys)
    }
}

impl<'a, K: Key> SearchTree<'a, K> {
    /// The tree over a column that stays where it is; one thread. See [`TreeBuilder::over`].
    ///
    /// # Errors
    ///
    /// [`Error::Unsorted`] or [`Error::Memory`].
    pub fn over(column: &'a [K]) -> Result<SearchTree<'a, K>> {
        TreeBuilder::new().over(column)
    }
}

fn unsorted(position: usize) -> Error {
    Error::Unsorted {
        position: position as u64,
        why: "it is below the one before it",
    }
}

/// Position of the first key that is below the one before it.
pub(crate) fn first_descent<K: Key>(keys: &[K], threads: usize) -> Option<usize> {
    let descent = |keys: &[K]| {
        keys.windows(2)
            .position(|pair| pair[0] > pair[1])
            .map(|at| at + 1)
    };
    let part = keys.len().div_ceil(threads.max(1)).max(1 << 16);
    if part >= keys.len() {
        return descent(keys);
    }
    std::thread::scope(|scope| {
        let starts = (0..keys.len()).step_by(part);
        let threads: Vec<_> = starts
            .map(|start| {
                let end = (start + part + 1).min(keys.len());
                scope.spawn(move || descent(&keys[start..end]).map(|at| start + at))
            })
            .collect();
        let results = threads.into_iter().map(|thread| thread.join());
        results
            .filter_map(|found| found.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .min()
    })
}

/// Writes one node, given for each separator the position of the first key to its right. Returns how many keys it sends too far
/// left.
fn fill_node<K: Key>(width: Width, node: &mut Line, keys: &[K], separators: &[usize]) -> usize {
    *node = Line([u64::MAX; 8]);
    let largest_left = |right: &usize| keys[right - 1].ordered();
    if width == Width::Bits64 {
        node.0
            .iter_mut()
            .zip(separators)
            .for_each(|(lane, right)| *lane = largest_left(right));
        return 0;
    }
    let (Some(first), Some(last)) = (separators.first(), separators.last()) else {
        // A node of one child: any header will do, the padding keeps every query left.
        node.0[0] = 0;
        return 0;
    };
    let base = largest_left(first) & !63;
    let span = largest_left(last) - base;
    // All ones is the padding, so a separator must stay below it.
    let limit = (1u64 << width.bits()) - 2;
    let shift = (0..64).find(|shift| span >> shift <= limit).unwrap_or(63u32);
    node.0[0] = base | u64::from(shift);
    let mut astray = 0;
    for (index, right) in separators.iter().enumerate() {
        let offset = (largest_left(right) - base) >> shift;
        match width {
            Width::Bits16 => cast::u16_lanes_mut(node)[4 + index] = offset as u16,
            _ => cast::u32_lanes_mut(node)[2 + index] = offset as u32,
        }
        // Queries from here on go right. All keys on the right below it are sent left.
        let turn = u128::from(base) + (u128::from(offset + 1) << shift);
        let left_out = |key: &K| u128::from(key.ordered()) < turn;
        if left_out(&keys[*right]) {
            // Keys equal to the largest on the left have their lower bound there: these are right to go left.
            let equal = largest_left(right);
            let rest = &keys[*right..];
            astray += rest.partition_point(left_out) - rest.partition_point(|key| key.ordered() <= equal);
        }
    }
    astray
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Search;

    #[test]
    fn widths_follow_the_keys() {
        let dense: Vec<u64> = (0..100_000).collect();
        assert_eq!(SearchTree::over(&dense).unwrap().widths(), [16, 16, 16]);
        let plain = TreeBuilder::new().widths(Widths::Plain).over(&dense).unwrap();
        assert!(plain.widths().iter().all(|&bits| bits == 64));
        // Each node spans a huge gap and tight runs on both sides: 16 bits cannot tell the runs' keys apart.
        let runs: Vec<u64> = (0..100_000)
            .map(|key| ((key / 100) << 40) | (key % 100))
            .collect();
        assert!(SearchTree::over(&runs).unwrap().widths().contains(&64));
    }

    #[test]
    fn unsorted_columns_are_refused_at_the_first_descent() {
        let mut keys: Vec<u64> = (0..300_000).collect();
        keys[200_000] = 7;
        for threads in [1, 2, 3] {
            let error = TreeBuilder::new().threads(threads).over(&keys).unwrap_err();
            assert!(
                matches!(
                    error,
                    Error::Unsorted {
                        position: 200_000,
                        ..
                    }
                ),
                "{error}"
            );
        }
        let mut builder = TreeBuilder::new();
        builder.push(3i32).unwrap();
        builder.push(3).unwrap();
        assert!(matches!(
            builder.push(2),
            Err(Error::Unsorted { position: 2, .. })
        ));
        assert_eq!(builder.finish().unwrap().upper_bound(3), 2);
    }

    #[test]
    fn threads_build_the_same_tree() {
        let keys: Vec<u64> = (0..400_000u64).map(|key| key * key / 7).collect();
        let bytes = |threads| {
            let mut bytes = Vec::new();
            TreeBuilder::new()
                .threads(threads)
                .copied(&keys)
                .unwrap()
                .write_to(&mut bytes)
                .unwrap();
            bytes
        };
        assert!(bytes(1) == bytes(3));
    }
}
