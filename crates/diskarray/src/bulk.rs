//! Filling an empty store from sorted rows: extents and directory are written once, from left to right.

use crate::apply::{FILL, Out};
use crate::commit::NodeBatch;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::node::{Entry, NOWHERE, Node, max_entries};
use crate::store::Store;
use std::sync::Arc;

/// Open nodes, one a level from 1 on.
struct Builder {
    levels: Vec<Node>,
    batch: NodeBatch,
    pinned: usize,
}

impl Builder {
    /// Adds an entry at a level (1 for extents), closing the node there first when it is full.
    fn add(&mut self, core: &mut Core, level: u8, entry: Entry, kid: Option<Arc<Node>>) -> Result<()> {
        let i = usize::from(level) - 1;
        if self.levels.len() <= i {
            self.levels.push(Node::new(level, 16));
        }
        if self.levels[i].len() >= max_entries(level) * 9 / 10 {
            let full = std::mem::replace(&mut self.levels[i], Node::new(level, 16));
            self.close(core, full, entry.key - 1)?;
        }
        self.levels[i].push(entry, kid);
        Ok(())
    }

    fn close(&mut self, core: &mut Core, mut node: Node, high: u64) -> Result<()> {
        node = node.slice(0, node.len());
        let mut entry = Entry {
            key: node.keys[0],
            count: node.total,
            loc: NOWHERE,
            sum: 0,
        };
        let level = node.level + 1;
        // Beyond the directory's share of memory nodes just above the extents go to disk at once.
        if node.level == 1 && self.pinned + node.memory() > core.budget.directory {
            (entry.loc, entry.sum) = self.batch.put(core, &node, (entry.key, high), core.epoch + 1)?;
            return self.add(core, level, entry, None);
        }
        self.pinned += node.memory();
        self.add(core, level, entry, Some(Arc::new(node)))
    }

    fn finish(mut self, core: &mut Core) -> Result<Arc<Node>> {
        let mut level = 0;
        while level + 1 < self.levels.len() {
            let node = std::mem::replace(&mut self.levels[level], Node::new(level as u8 + 1, 0));
            self.close(core, node, u64::MAX)?;
            level += 1;
        }
        self.batch.finish(core)?;
        Ok(Arc::new(
            self.levels.pop().expect("at least one extent was added"),
        ))
    }
}

impl Core {
    /// Fills the empty store; `next` writes a value and returns its key, or `None` at the end. Returns the number of keys.
    pub fn bulk_load(&mut self, next: &mut dyn FnMut(&mut [u8]) -> Option<u64>) -> Result<u64> {
        self.check_writable()?;
        if self.tree.count() > 0 || !self.dirty.is_empty() {
            return Err(Error::NotEmpty {
                file: self.store.name.clone(),
            });
        }
        let r = self.bulk_unguarded(next);
        match r {
            // The caller's mistake: nothing of the input is reachable, the store stays as it was.
            Err(Error::NotAscending { .. }) => {
                self.guarded(Self::finish_writes)?;
            }
            Err(_) => self
                .store
                .poisoned
                .store(true, std::sync::atomic::Ordering::Relaxed),
            Ok(_) => {}
        }
        r
    }

    fn bulk_unguarded(&mut self, next: &mut dyn FnMut(&mut [u8]) -> Option<u64>) -> Result<u64> {
        let store: Arc<Store> = self.store.clone();
        let w = store.shape.width;
        let mut old = vec![];
        self.view().entries(0, u64::MAX, &mut |e, _| {
            old.push(e.loc);
            Ok(())
        })?;
        let mut builder = Builder {
            levels: vec![],
            batch: NodeBatch::default(),
            pinned: 0,
        };
        let mut out = Out::new();
        let mut previous: Option<u64> = None;
        let mut value = [0u8; crate::value::MAX_VALUE];
        while let Some(key) = next(&mut value[..w]) {
            if let Some(previous) = previous.filter(|&p| p >= key) {
                return Err(Error::NotAscending { previous, key });
            }
            previous = Some(key);
            out.rows.keys.push(key);
            out.rows.vals.extend_from_slice(&value[..w]);
            if out.waiting() > 4 * out.typical.max(256) {
                self.write_full(&mut out, FILL)?;
                for entry in std::mem::take(&mut out.entries) {
                    builder.add(self, 1, entry, None)?;
                }
            }
        }
        self.write_full(&mut out, FILL)?;
        self.write_rest(&mut out, u64::MAX)?;
        for entry in std::mem::take(&mut out.entries) {
            builder.add(self, 1, entry, None)?;
        }
        self.finish_writes()?;
        old.into_iter()
            .filter(|&loc| loc != NOWHERE)
            .for_each(|loc| self.space.free((loc, 1)));
        self.tree.root = builder.finish(self)?;
        self.nodes_settled = true;
        self.touched.add(0, u64::MAX);
        self.journal_overflows();
        self.uncommitted = true;
        self.rebudget();
        Ok(self.tree.count())
    }
}
