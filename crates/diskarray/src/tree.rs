//! The counted directory: finding extents by key and by rank, and replacing them.
//!
//! Nodes are shared (`Arc`) between the writer and snapshots; the writer copies a node on its first change while somebody
//! else holds it. An entry above level 1 whose location is [`NOWHERE`] has a changed child in memory; other children are
//! pinned in memory or fetched through the store's node cache.

use crate::error::Result;
use crate::node::{CHANGED, Entry, Expect, MAX_LEVEL, NODE_BLOCKS, NOWHERE, Node, max_entries, min_entries};
use crate::space::Run;
use crate::store::Store;
use std::ops::Deref;
use std::sync::Arc;

/// A node that is borrowed from its parent or fetched.
pub enum NodeRef<'t> {
    Pinned(&'t Arc<Node>),
    Fetched(Arc<Node>),
}

impl Deref for NodeRef<'_> {
    type Target = Node;
    fn deref(&self) -> &Node {
        match self {
            Self::Pinned(n) => n,
            Self::Fetched(n) => n,
        }
    }
}

impl<'t> NodeRef<'t> {
    /// A copy of the reference that lives on its own.
    pub fn share(&self) -> Arc<Node> {
        match self {
            Self::Pinned(n) => (*n).clone(),
            Self::Fetched(n) => n.clone(),
        }
    }

    fn child(self, store: &Store, i: usize, range: (u64, u64)) -> Result<NodeRef<'t>> {
        match self {
            Self::Pinned(n) => match &n.kids[i] {
                Some(kid) => Ok(NodeRef::Pinned(kid)),
                None => store.node(&expect(n, i, range)).map(NodeRef::Fetched),
            },
            Self::Fetched(n) => match &n.kids[i] {
                Some(kid) => Ok(NodeRef::Fetched(kid.clone())),
                None => store.node(&expect(&n, i, range)).map(NodeRef::Fetched),
            },
        }
    }
}

fn expect(parent: &Node, i: usize, (low, high): (u64, u64)) -> Expect {
    let entry = parent.entry(i);
    Expect {
        block: entry.loc,
        sum: entry.sum,
        level: parent.level - 1,
        low,
        high,
        total: entry.count,
    }
}

/// Range of keys of entry `i` of a node that ends at `high`.
pub fn range_of(node: &Node, i: usize, high: u64) -> (u64, u64) {
    (node.keys[i], node.keys.get(i + 1).map_or(high, |next| next - 1))
}

/// An extent found, and the leaf of the directory it hangs on.
pub struct Spot<'t> {
    pub leaf: NodeRef<'t>,
    /// Its entry in the leaf.
    pub i: usize,
    /// Keys before the extent.
    pub before: u64,
    /// Last key of the leaf's range; the first is `leaf.keys[0]`.
    pub leaf_high: u64,
}

impl Spot<'_> {
    pub fn entry(&self) -> Entry {
        self.leaf.entry(self.i)
    }
    pub fn range(&self) -> (u64, u64) {
        range_of(&self.leaf, self.i, self.leaf_high)
    }
}

/// The directory.
#[derive(Clone)]
pub struct Tree {
    pub root: Arc<Node>,
}

/// Memory of the directory.
#[derive(Clone, Copy, Default)]
pub struct Footprint {
    /// Bytes of the nodes in memory.
    pub bytes: usize,
    /// Those of them that differ from disk.
    pub changed: usize,
    /// Whether there are nodes that have to be read when they are needed.
    pub paged: bool,
}

/// Changes an entry of a leaf, given its place and its range of keys; returns the new count.
pub type OnEntry<'f> = &'f mut dyn FnMut(&mut Node, usize, (u64, u64)) -> Result<u64>;
/// Writes a node of a range of keys; returns its block and checksum.
pub type PutNode<'f> = &'f mut dyn FnMut(&Node, (u64, u64)) -> Result<(u32, u32)>;
/// Sees a node, its range of keys and its block.
pub type OnNode<'f> = &'f mut dyn FnMut(&Node, (u64, u64), u32) -> Result<()>;

/// Runs of blocks that nothing in the new tree refers to.
pub type Freed = Vec<Run>;

impl Tree {
    pub fn empty() -> Self {
        Self {
            root: Arc::new(Node::empty()),
        }
    }

    pub fn count(&self) -> u64 {
        self.root.total
    }

    /// The extent that answers for `key`.
    #[inline]
    pub fn find(&self, store: &Store, key: u64) -> Result<Spot<'_>> {
        let (mut node, mut before, mut high) = (NodeRef::Pinned(&self.root), 0, u64::MAX);
        loop {
            let i = node.find(key);
            let here = node.before(i);
            if node.level == 1 {
                return Ok(Spot {
                    leaf: node,
                    i,
                    before: before + here,

                    leaf_high: high,
                });
            }
            before += here;
            let range = range_of(&node, i, high);
            high = range.1;
            node = node.child(store, i, range)?;
        }
    }

    /// As [`find`](Self::find), without ranks; also the row at which the key is likely to be.
    #[inline]
    pub fn find_entry(&self, store: &Store, key: u64) -> Result<(Entry, usize)> {
        let (mut node, mut high) = (NodeRef::Pinned(&self.root), u64::MAX);
        loop {
            let i = node.find(key);
            let range = range_of(&node, i, high);
            if node.level == 1 {
                let entry = node.entry(i);
                return Ok((entry, guess(key, range, entry.count)));
            }
            high = range.1;
            node = node.child(store, i, range)?;
        }
    }

    /// The extent that holds the `rank`-th key; `rank < count()`.
    pub fn find_rank(&self, store: &Store, rank: u64) -> Result<Spot<'_>> {
        let (mut node, mut before, mut high) = (NodeRef::Pinned(&self.root), 0, u64::MAX);
        loop {
            let (i, here) = node.find_rank(rank - before);
            if node.level == 1 {
                return Ok(Spot {
                    leaf: node,
                    i,
                    before: before + here,

                    leaf_high: high,
                });
            }
            before += here;
            let range = range_of(&node, i, high);
            high = range.1;
            node = node.child(store, i, range)?;
        }
    }

    /// Lets `change` alter the entry for `key` in place; it returns the new count of the entry. Counts above follow.
    pub fn modify(&mut self, store: &Store, key: u64, freed: &mut Freed, change: OnEntry<'_>) -> Result<()> {
        modify(&mut self.root, store, key, u64::MAX, freed, change)
    }

    /// Replaces all entries within `low..=high` by `new`, which covers the same keys. `low` is the start of an entry and `high`
    /// the end of one.
    pub fn replace(
        &mut self,
        store: &Store,
        low: u64,
        high: u64,
        new: &[Entry],
        freed: &mut Freed,
    ) -> Result<()> {
        let root = Arc::make_mut(&mut self.root);
        replace(root, store, u64::MAX, (low, high), new, freed)?;
        loop {
            if self.root.len() > max_entries(self.root.level) {
                let parts = split(&self.root);
                let mut above = Node::new(self.root.level + 1, parts.len());
                for part in parts {
                    above.push(entry_of(&part), Some(Arc::new(part)));
                }
                self.root = Arc::new(above);
            } else if self.root.level > 1 && self.root.len() == 1 {
                let top = self.root.entry(0);
                self.root = match &self.root.kids[0] {
                    Some(kid) => kid.clone(),
                    None => store.node(&expect(&self.root, 0, (top.key, u64::MAX)))?,
                };
                // The root has no parent that would hold its place on disk, so it is written anew.
                release(store, top.loc, freed);
            } else {
                return Ok(());
            }
        }
    }

    /// Marks the node of a level that starts at `key`, and all above it, as changed, so that the next checkpoint moves it.
    pub fn displace(&mut self, store: &Store, key: u64, level: u8, freed: &mut Freed) -> Result<()> {
        let (mut node, mut high) = (&mut self.root, u64::MAX);
        while node.level > level {
            let inner = Arc::make_mut(node);
            let i = inner.find(key);
            let range = range_of(inner, i, high);
            node = child_mut(inner, i, store, high, freed)?;
            high = range.1;
        }
        Ok(())
    }

    /// What of the directory is in memory.
    pub fn footprint(&self) -> Footprint {
        fn walk(node: &Node, sum: &mut Footprint) {
            sum.bytes += node.memory();
            for (i, kid) in node.kids.iter().enumerate() {
                let Some(kid) = kid else {
                    sum.paged = true;
                    continue;
                };
                if node.locs[i] == NOWHERE {
                    sum.changed += kid.memory();
                }
                walk(kid, sum);
            }
        }
        let mut sum = Footprint::default();
        walk(&self.root, &mut sum);
        sum
    }

    /// Lets go of unchanged nodes just above the extents, from the end of the key range, until the rest is within `bytes`.
    pub fn unpin(&mut self, bytes: usize) {
        fn walk(node: &mut Arc<Node>, excess: &mut usize) {
            if node.level < 2 || *excess == 0 {
                return;
            }
            let Some(node) = Arc::get_mut(node) else { return };
            for i in (0..node.len()).rev() {
                if node.level > 2 {
                    if let Some(kid) = &mut node.kids[i] {
                        walk(kid, excess);
                    }
                } else if node.locs[i] != NOWHERE
                    && let Some(kid) = node.kids[i].take()
                {
                    *excess = excess.saturating_sub(kid.memory());
                }
                if *excess == 0 {
                    return;
                }
            }
        }
        let mut excess = self.footprint().bytes.saturating_sub(bytes);
        walk(&mut self.root, &mut excess);
    }

    /// Gives every changed node below the root a place on disk. `put` writes a node of a range and returns place and checksum.
    pub fn settle(&mut self, put: PutNode<'_>) -> Result<()> {
        fn walk(node: &mut Arc<Node>, high: u64, put: PutNode<'_>) -> Result<()> {
            if node.level == 1 || !node.locs.contains(&NOWHERE) {
                return Ok(());
            }
            let node = Arc::make_mut(node);
            for i in 0..node.len() {
                if node.locs[i] != NOWHERE {
                    continue;
                }
                let range = range_of(node, i, high);
                let kid = node.kids[i].as_mut().expect("a changed child is in memory");
                walk(kid, range.1, put)?;
                let (loc, sum) = put(kid, range)?;
                node.set_place(i, loc, sum);
            }
            Ok(())
        }
        walk(&mut self.root, u64::MAX, put)
    }

    /// Calls `visit` for every node with its range and place (`NOWHERE` for the root and for changed nodes), parents first.
    pub fn visit(&self, store: &Store, visit: OnNode<'_>) -> Result<()> {
        fn walk(
            node: NodeRef<'_>,
            store: &Store,
            range: (u64, u64),
            loc: u32,
            visit: OnNode<'_>,
        ) -> Result<()> {
            visit(&node, range, loc)?;
            if node.level == 1 {
                return Ok(());
            }
            for i in 0..node.len() {
                let below = range_of(&node, i, range.1);
                let kid = match &node.kids[i] {
                    Some(kid) => NodeRef::Pinned(kid),
                    None => NodeRef::Fetched(store.node(&expect(&node, i, below))?),
                };
                walk(kid, store, below, node.locs[i], visit)?;
            }
            Ok(())
        }
        walk(NodeRef::Pinned(&self.root), store, (0, u64::MAX), NOWHERE, visit)
    }

    /// Reads the directory below the root into memory, level by level from the top, as far as `bytes` go; calls `visit` for every
    /// node place on the way, also for those that are let go again.
    pub fn load(
        &mut self,
        store: &Store,
        bytes: usize,
        visit: &mut dyn FnMut(u32, &Node) -> Result<()>,
    ) -> Result<()> {
        fn walk(
            node: &mut Node,
            high: u64,
            store: &Store,
            left: &mut usize,
            visit: &mut dyn FnMut(u32, &Node) -> Result<()>,
        ) -> Result<()> {
            if node.level == 1 {
                return Ok(());
            }
            for i in 0..node.len() {
                let range = range_of(node, i, high);
                let fetched = store.node(&expect(node, i, range))?;
                store.forget_node(node.locs[i]);
                visit(node.locs[i], &fetched)?;
                let mut kid = Arc::unwrap_or_clone(fetched);
                walk(&mut kid, range.1, store, left, visit)?;
                if kid.level > 1 || kid.memory() <= *left {
                    *left = left.saturating_sub(kid.memory());
                    node.kids[i] = Some(Arc::new(kid));
                }
            }
            Ok(())
        }
        if self.root.level > MAX_LEVEL {
            return Err(store.corrupt(0, "directory is deeper than the format allows"));
        }
        let mut left = bytes.saturating_sub(self.root.memory());
        walk(Arc::make_mut(&mut self.root), u64::MAX, store, &mut left, visit)
    }
}

/// Row of an extent at which a key would be if the keys of its range were spread evenly.
#[inline]
pub fn guess(key: u64, (low, high): (u64, u64), count: u64) -> usize {
    // Rounding does not matter: a guess may be wrong.
    (key.wrapping_sub(low) as f64 / (high - low) as f64 * count as f64) as usize
}

fn entry_of(node: &Node) -> Entry {
    Entry {
        key: node.keys[0],
        count: node.total,
        loc: NOWHERE,
        sum: 0,
    }
}

fn release(store: &Store, loc: u32, freed: &mut Freed) {
    if loc != NOWHERE && loc & CHANGED == 0 {
        store.forget_node(loc);
        freed.push((loc, NODE_BLOCKS));
    }
}

/// The child of entry `i`, ready to be changed: in memory, unshared, its place on disk given up.
fn child_mut<'n>(
    node: &'n mut Node,
    i: usize,
    store: &Store,
    high: u64,
    freed: &mut Freed,
) -> Result<&'n mut Arc<Node>> {
    if node.kids[i].is_none() {
        let range = range_of(node, i, high);
        node.kids[i] = Some(store.node(&expect(node, i, range))?);
    }
    release(store, node.locs[i], freed);
    node.set_place(i, NOWHERE, 0);
    Ok(node.kids[i].as_mut().expect("set above"))
}

fn modify(
    node: &mut Arc<Node>,
    store: &Store,
    key: u64,
    high: u64,
    freed: &mut Freed,
    change: OnEntry<'_>,
) -> Result<()> {
    let node = Arc::make_mut(node);
    let i = node.find(key);
    let range = range_of(node, i, high);
    let count = if node.level == 1 {
        change(node, i, range)?
    } else {
        let kid = child_mut(node, i, store, high, freed)?;
        modify(kid, store, key, range.1, freed, change)?;
        kid.total
    };
    if node.count(i) != count {
        node.set_count(i, count);
    }
    Ok(())
}

fn split(node: &Node) -> Vec<Node> {
    let parts = node.len().div_ceil(max_entries(node.level) * 3 / 4).max(2);
    (0..parts)
        .map(|p| node.slice(node.len() * p / parts, node.len() * (p + 1) / parts))
        .collect()
}

fn replace(
    node: &mut Node,
    store: &Store,
    node_high: u64,
    (low, high): (u64, u64),
    new: &[Entry],
    freed: &mut Freed,
) -> Result<()> {
    if node.level == 1 {
        let from = node.keys.partition_point(|&k| k < low);
        let to = node.keys.partition_point(|&k| k <= high);
        if to - from == new.len() && (from..to).zip(new).all(|(i, e)| node.keys[i] == e.key) {
            for (i, e) in (from..to).zip(new) {
                node.set_count(i, e.count);
                node.set_place(i, e.loc, e.sum);
            }
        } else {
            node.splice(from, to, new.iter().map(|&e| (e, None)));
        }
        return Ok(());
    }
    let (first, last) = (node.find(low), node.find(high));
    for i in first..=last {
        let range = range_of(node, i, node_high);
        let within = range.0 >= low && range.1 <= high;
        if i > first && within && node.level == 2 {
            // Nothing of this leaf remains; the caller frees its extents.
            release(store, node.locs[i], freed);
            node.kids[i] = Some(Arc::new(Node::new(1, 0)));
            node.set_place(i, NOWHERE, 0);
            node.set_count(i, 0);
            continue;
        }
        let kid = Arc::make_mut(child_mut(node, i, store, node_high, freed)?);
        replace(
            kid,
            store,
            range.1,
            (low, high),
            if i == first { new } else { &[] },
            freed,
        )?;
        let (total, key) = (kid.total, kid.keys.first().copied());
        node.set_count(i, total);
        if let Some(key) = key {
            node.keys[i] = key;
        }
    }
    balance(node, store, node_high, first, last, freed)
}

/// Drops empty children among `first..=last`, splits those that are too long and joins those that are too short.
fn balance(
    node: &mut Node,
    store: &Store,
    node_high: u64,
    first: usize,
    last: usize,
    freed: &mut Freed,
) -> Result<()> {
    let most = max_entries(node.level - 1);
    let least = min_entries(node.level - 1);
    for i in (first..=last).rev() {
        let Some(kid) = &node.kids[i] else { continue };
        if kid.len() == 0 {
            node.splice(i, i + 1, std::iter::empty());
        } else if kid.len() > most {
            let parts = split(kid);
            node.splice(
                i,
                i + 1,
                parts
                    .into_iter()
                    .map(|part| (entry_of(&part), Some(Arc::new(part)))),
            );
        }
    }
    // Neighbours outside of the range may be joined too: from the right end, so that indices stay valid.
    let mut i = (last + 1).min(node.len().saturating_sub(1));
    while i > 0 && i + 1 > first {
        let length = |n: &Node, i: usize| n.kids[i].as_ref().map(|k| k.len());
        let short = [i - 1, i]
            .iter()
            .any(|&j| length(node, j).is_some_and(|n| n < least));
        if short && i < node.len() {
            // An unpinned neighbour has to be read to know its length.
            let right = child_shared(node, i, store, node_high)?;
            let left = child_shared(node, i - 1, store, node_high)?;
            if left.len() + right.len() <= most * 3 / 4 {
                let mut joined = left.slice(0, left.len());
                for j in 0..right.len() {
                    joined.push(right.entry(j), right.kids.get(j).cloned().flatten());
                }
                release(store, node.locs[i], freed);
                release(store, node.locs[i - 1], freed);
                node.splice(
                    i - 1,
                    i + 1,
                    std::iter::once((entry_of(&joined), Some(Arc::new(joined)))),
                );
            }
        }
        i -= 1;
    }
    Ok(())
}

fn child_shared(node: &Node, i: usize, store: &Store, high: u64) -> Result<Arc<Node>> {
    match &node.kids[i] {
        Some(kid) => Ok(kid.clone()),
        None => store.node(&expect(node, i, range_of(node, i, high))),
    }
}
