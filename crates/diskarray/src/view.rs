//! Reading one state of the map: lookups, order statistics, many at a time, scans.

use crate::codec::{Page, Rows};
use crate::dirty::Dirty;
use crate::error::Result;
use crate::node::{CHANGED, Entry, NOWHERE};
use crate::store::Store;
use crate::transfer::ReadAhead;
use crate::tree::{Tree, guess, range_of};
use crate::value::MAX_VALUE;
use std::collections::VecDeque;

/// Sees a directory entry and its range of keys.
pub type OnEntry<'f> = &'f mut dyn FnMut(&Entry, (u64, u64)) -> Result<()>;

/// A state: a directory, and for the writer its changed extents.
#[derive(Clone, Copy)]
pub struct View<'a> {
    pub store: &'a Store,
    pub tree: &'a Tree,
    pub dirty: Option<&'a Dirty>,
}

impl crate::core::Core {
    pub fn view(&self) -> View<'_> {
        View {
            store: &self.store,
            tree: &self.tree,
            dirty: Some(&self.dirty),
        }
    }
}

/// One extent that a sorted run of requests touches.
pub(crate) struct Touch {
    pub entry: Entry,
    /// Keys before the extent.
    pub before: u64,
    /// Requests `from..to`.
    pub from: usize,
    pub to: usize,
}

impl<'a> View<'a> {
    /// An extent that is changed in memory.
    #[inline]
    fn slot(&self, loc: u32) -> Option<Page<'a>> {
        Some(self.dirty.filter(|_| loc & CHANGED != 0)?.page(loc & !CHANGED))
    }

    /// Runs `f` on an extent, which has a place.
    #[inline]
    fn with_extent<R>(&self, e: &Entry, f: impl FnOnce(&Page<'_>) -> R) -> Result<R> {
        match self.slot(e.loc) {
            Some(page) => Ok(f(&page)),
            None => self.store.with_extent(e.loc, e.sum, f),
        }
    }

    /// As [`with_extent`](Self::with_extent), for a search that is likely to end at row `at`.
    #[inline]
    fn with_extent_near<R>(&self, e: &Entry, at: usize, f: impl FnOnce(&Page<'_>) -> R) -> Result<R> {
        match self.slot(e.loc) {
            Some(page) => Ok(f(&page)),
            None => {
                let guess = Some(self.store.guess(at, e.count));
                self.store.with_extent_near(e.loc, e.sum, guess, f)
            }
        }
    }

    /// Asks for the cache lines that a search ending at row `at` reads; false if the extent is not in memory.
    #[inline]
    pub fn fetch(&self, e: &Entry, at: usize) -> bool {
        match self.dirty.filter(|_| e.loc & CHANGED != 0) {
            Some(dirty) => {
                dirty.prefetch(e.loc & !CHANGED, at);
                true
            }
            None => e.loc == NOWHERE || self.store.pool.fetch(e.loc, self.store.guess(at, e.count)),
        }
    }

    /// Finds `key`; its value goes to `out`.
    #[inline]
    pub fn get(&self, key: u64, out: &mut [u8]) -> Result<bool> {
        let (e, at) = self.tree.find_entry(self.store, key)?;
        if e.count == 0 {
            return Ok(false);
        }
        self.with_extent_near(&e, at, |page| {
            let (i, hit) = page.lower_bound_near(key, at);
            if hit {
                page.value_at(i, out);
            }
            hit
        })
    }

    /// Number of keys below `key`.
    pub fn rank(&self, key: u64) -> Result<u64> {
        let spot = self.tree.find(self.store, key)?;
        let e = spot.entry();
        if e.count == 0 {
            return Ok(spot.before);
        }
        let at = guess(key, spot.range(), e.count);
        let within = self.with_extent_near(&e, at, |page| page.lower_bound_near(key, at).0)?;
        Ok(spot.before + within as u64)
    }

    /// The key of a rank, its value to `out`; `None` from the number of keys on.
    pub fn at(&self, rank: u64, out: &mut [u8]) -> Result<Option<u64>> {
        if rank >= self.tree.count() {
            return Ok(None);
        }
        let spot = self.tree.find_rank(self.store, rank)?;
        let (e, i) = (spot.entry(), (rank - spot.before) as usize);
        self.with_extent_near(&e, i, |page| {
            page.value_at(i, out);
            page.key_at(i)
        })
        .map(Some)
    }

    /// Calls `f` for the directory entries whose first key lies in `low..=high`, in order, with their ranges.
    pub fn entries(&self, low: u64, high: u64, f: OnEntry<'_>) -> Result<()> {
        let mut from = low;
        loop {
            let spot = self.tree.find(self.store, from)?;
            let first = if spot.leaf.keys[spot.i] < from {
                spot.i + 1
            } else {
                spot.i
            };
            for i in first..spot.leaf.len() {
                if spot.leaf.keys[i] > high {
                    return Ok(());
                }
                f(&spot.leaf.entry(i), range_of(&spot.leaf, i, spot.leaf_high))?;
            }
            match spot.leaf_high.checked_add(1) {
                Some(next) if next <= high => from = next,
                _ => return Ok(()),
            }
        }
    }

    /// Number of the entries that [`entries`](Self::entries) visits.
    pub fn count_entries(&self, low: u64, high: u64) -> Result<usize> {
        let (mut from, mut n) = (low, 0);
        loop {
            let spot = self.tree.find(self.store, from)?;
            let first = spot.leaf.keys.partition_point(|&k| k < from);
            n += spot.leaf.keys.partition_point(|&k| k <= high) - first;
            match spot.leaf_high.checked_add(1) {
                Some(next) if next <= high => from = next,
                _ => return Ok(n),
            }
        }
    }

    /// All rows of an extent, appended to `rows`.
    pub fn rows(&self, e: &Entry, rows: &mut Rows) -> Result<()> {
        if e.loc == NOWHERE {
            return Ok(());
        }
        let decoded = self.with_extent(e, |page| page.decode(rows))?;
        decoded.map_err(|why| self.store.corrupt(e.loc, why))
    }

    /// Answers sorted requests extent by extent, with reads ahead. `place` finds where the request `i` belongs: the touch it opens, and
    /// the first request after it that belongs elsewhere. `answer` is called for each touch with its extent, if it has one.
    fn sweep(
        &self,
        n: usize,
        place: &dyn Fn(usize) -> Result<Touch>,
        answer: &mut dyn FnMut(&Touch, Option<Page<'_>>) -> Result<()>,
    ) -> Result<()> {
        let mut ahead = ReadAhead::new(self.store)?;
        let mut touches: VecDeque<Touch> = VecDeque::new();
        let mut planned = 0;
        loop {
            while planned < n && ahead.pending() < self.store.window && touches.len() < 4 * self.store.window
            {
                let touch = place(planned)?;
                planned = touch.to;
                if touch.entry.loc != NOWHERE && self.slot(touch.entry.loc).is_none() {
                    ahead.enqueue(touch.entry.loc, touch.entry.sum);
                }
                touches.push_back(touch);
            }
            let Some(touch) = touches.pop_front() else {
                return Ok(());
            };
            if touch.entry.loc == NOWHERE {
                answer(&touch, None)?;
            } else if let Some(page) = self.slot(touch.entry.loc) {
                answer(&touch, Some(page))?;
            } else {
                let keep = touch.to - touch.from < 8;
                ahead.next(|block, bytes, cached| {
                    if keep && !cached {
                        self.store.pool.insert_new(block, bytes);
                    }
                    answer(&touch, Some(self.store.page(block, bytes)?))
                })??;
            }
        }
    }

    fn touch_of_key(&self, keys: &dyn Fn(usize) -> u64, n: usize, i: usize) -> Result<Touch> {
        let spot = self.tree.find(self.store, keys(i))?;
        let high = spot.range().1;
        let mut to = i + 1;
        while to < n && keys(to) <= high {
            to += 1;
        }
        Ok(Touch {
            entry: spot.entry(),
            before: spot.before,
            from: i,
            to,
        })
    }

    /// Looks up sorted keys; `found(i, hit, value)` is called for each in order. `keys(i)` gives the `i`-th.
    pub fn get_sorted(
        &self,
        n: usize,
        keys: &dyn Fn(usize) -> u64,
        found: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let w = self.store.shape.width;
        let mut value = [0u8; MAX_VALUE];
        self.sweep(n, &|i| self.touch_of_key(keys, n, i), &mut |touch, page| {
            for i in touch.from..touch.to {
                let hit = page.is_some_and(|page| {
                    let (at, hit) = page.lower_bound(keys(i));
                    if hit {
                        page.value_at(at, &mut value[..w]);
                    }
                    hit
                });
                found(i, hit.then_some(&value[..w]));
            }
            Ok(())
        })
    }

    /// Ranks of sorted keys.
    pub fn rank_sorted(
        &self,
        n: usize,
        keys: &dyn Fn(usize) -> u64,
        found: &mut dyn FnMut(usize, u64),
    ) -> Result<()> {
        self.sweep(n, &|i| self.touch_of_key(keys, n, i), &mut |touch, page| {
            for i in touch.from..touch.to {
                let within = page.map_or(0, |page| page.lower_bound(keys(i)).0);
                found(i, touch.before + within as u64);
            }
            Ok(())
        })
    }

    /// Keys and values of sorted ranks below the number of keys.
    pub fn at_sorted(
        &self,
        n: usize,
        ranks: &dyn Fn(usize) -> u64,
        found: &mut dyn FnMut(usize, u64, &[u8]),
    ) -> Result<()> {
        let place = |i: usize| {
            let spot = self.tree.find_rank(self.store, ranks(i))?;
            let (entry, before) = (spot.entry(), spot.before);
            let mut to = i + 1;
            while to < n && ranks(to) < before + entry.count {
                to += 1;
            }
            Ok(Touch {
                entry,
                before,
                from: i,
                to,
            })
        };
        let w = self.store.shape.width;
        let mut value = [0u8; MAX_VALUE];
        self.sweep(n, &place, &mut |touch, page| {
            for i in touch.from..touch.to {
                let at = (ranks(i) - touch.before) as usize;
                if let Some(page) = &page {
                    page.value_at(at, &mut value[..w]);
                    found(i, page.key_at(at), &value[..w]);
                }
            }
            Ok(())
        })
    }

    /// Iterates over `low..=high` from both ends.
    pub fn scan(&self, low: u64, high: u64) -> Scan<'a> {
        Scan {
            view: *self,
            low,
            high,
            done: low > high,
            front: Rows::default(),
            front_at: 0,
            plan: Plan::default(),
            back: Rows::default(),
            back_chunk: vec![],
            back_left: 0,
        }
    }
}

/// Extents ahead of a scan.
#[derive(Default)]
struct Plan<'a> {
    ahead: Option<ReadAhead<'a>>,
    /// With whether `ahead` reads it.
    entries: VecDeque<(Entry, bool)>,
    /// Where planning goes on; `None` at the end or before the start.
    from: Option<u64>,
    started: bool,
    /// Extents to keep ahead: grows as the scan proves long.
    window: usize,
}

/// Iterator over the rows of a key range; reads ahead once it has run for a while.
pub struct Scan<'a> {
    view: View<'a>,
    low: u64,
    high: u64,
    done: bool,
    front: Rows,
    front_at: usize,
    plan: Plan<'a>,
    back: Rows,
    /// Extents before the one in `back`, last next.
    back_chunk: Vec<Entry>,
    back_left: usize,
}

impl Scan<'_> {
    /// Tops up the plan, and reads the next extent; false at the end.
    fn advance(&mut self) -> Result<bool> {
        let view = self.view;
        let plan = &mut self.plan;
        if !plan.started {
            plan.started = true;
            // The extent that holds the lower bound may start before it.
            plan.from = Some(view.tree.find(view.store, self.low)?.range().0);
        }
        if plan.entries.len() <= plan.window / 2 {
            plan.window = (plan.window * 4).clamp(1, view.store.window);
            while let Some(from) = plan.from.filter(|&f| f <= self.high)
                && plan.entries.len() < plan.window
            {
                let spot = view.tree.find(view.store, from)?;
                for i in spot.i..spot.leaf.len() {
                    let (e, range) = (spot.leaf.entry(i), range_of(&spot.leaf, i, spot.leaf_high));
                    plan.from = range.1.checked_add(1);
                    if range.0 > self.high {
                        plan.from = None;
                        break;
                    }
                    if e.count > 0 {
                        if plan.window > 4 && plan.ahead.is_none() {
                            plan.ahead = Some(ReadAhead::new(view.store)?);
                        }
                        let ahead = plan.ahead.as_mut().filter(|_| view.slot(e.loc).is_none());
                        plan.entries.push_back((e, ahead.is_some()));
                        if let Some(ahead) = ahead {
                            ahead.enqueue(e.loc, e.sum);
                        }
                    }
                    if plan.entries.len() >= plan.window {
                        break;
                    }
                }
            }
        }
        let Some((e, read)) = plan.entries.pop_front() else {
            return Ok(false);
        };
        self.front.clear();
        self.front_at = 0;
        match &mut plan.ahead {
            Some(ahead) if read => {
                let front = &mut self.front;
                ahead
                    .next(|block, bytes, _| Ok(view.store.page(block, bytes)?.decode(front)))??
                    .map_err(|why| view.store.corrupt(e.loc, why))?;
            }
            _ => view.rows(&e, &mut self.front)?,
        }
        Ok(true)
    }

    fn step(&mut self) -> Result<Option<u64>> {
        while !self.done {
            if self.front_at < self.front.keys.len() {
                let key = self.front.keys[self.front_at];
                self.front_at += 1;
                if key < self.low {
                    continue;
                }
                if key > self.high {
                    break;
                }
                match key.checked_add(1) {
                    Some(next) => self.low = next,
                    None => self.done = true,
                }
                return Ok(Some(key));
            }
            if !self.advance()? {
                break;
            }
        }
        self.done = true;
        Ok(None)
    }

    /// The next row from the front.
    pub fn next_row(&mut self) -> Result<Option<(u64, &[u8])>> {
        let key = self.step()?;
        let w = self.view.store.shape.width;
        Ok(key.map(|k| (k, &self.front.vals[(self.front_at - 1) * w..self.front_at * w])))
    }

    fn retreat(&mut self) -> Result<bool> {
        if self.back_chunk.is_empty() {
            let spot = self.view.tree.find(self.view.store, self.high)?;
            // A chunk grows with what was taken already.
            let n = (self.back_left * 2).clamp(1, 64);
            self.back_left = n;
            let from = (spot.i + 1).saturating_sub(n);
            self.back_chunk
                .extend((from..=spot.i).map(|i| spot.leaf.entry(i)));
            if n > 8 {
                let mut ahead = ReadAhead::new(self.view.store)?;
                let wanted = |e: &&Entry| e.count > 0 && self.view.slot(e.loc).is_none();
                let blocks: Vec<Entry> = self.back_chunk.iter().filter(wanted).copied().collect();
                blocks.iter().for_each(|e| ahead.enqueue(e.loc, e.sum));
                for _ in &blocks {
                    ahead.next(|block, bytes, cached| {
                        if !cached {
                            self.view.store.pool.insert_new(block, bytes);
                        }
                    })?;
                }
            }
        }
        let Some(e) = self.back_chunk.pop() else {
            return Ok(false);
        };
        self.back.clear();
        self.view.rows(&e, &mut self.back)?;
        while self.back.keys.last().is_some_and(|&k| k > self.high) {
            self.back.keys.pop();
        }
        if self.back.keys.is_empty() {
            // Nothing left here: go on below this extent.
            let low = e.key;
            if low == 0 || low <= self.low {
                return Ok(false);
            }
            self.high = low - 1;
        }
        Ok(true)
    }

    /// The next row from the back.
    pub fn next_row_back(&mut self) -> Result<Option<(u64, &[u8])>> {
        while !self.done {
            if let Some(key) = self.back.keys.pop() {
                if key < self.low {
                    break;
                }
                match key.checked_sub(1) {
                    Some(next) => self.high = next,
                    None => self.done = true,
                }
                let (w, i) = (self.view.store.shape.width, self.back.keys.len());
                return Ok(Some((key, &self.back.vals[i * w..i * w + w])));
            }
            if !self.retreat()? {
                break;
            }
        }
        self.done = true;
        Ok(None)
    }
}
