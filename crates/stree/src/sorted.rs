//! One index for any sorted keys: the layout is chosen by what the keys are like.
//!
//! The choice compares, for each layout, the bytes it takes and the cache lines that a random query for a present key reads. A line
//! counts by where its array will mostly lie: 1 for more than 16 MiB, 1/4 for more than 512 KiB, 1/16 below, typical of the second
//! and third level caches of today. Layouts over the budget, if there is one, are left out; of the others the fewest lines win,
//! and among those within a twentieth the fewest bytes. [`SortedIndex::choices`] tells what was compared.

use std::fmt;

use crate::bitmap::{self, RankBitmap};
use crate::buckets::{BucketBuilder, BucketIndex};
use crate::error::{Error, Result};
use crate::kernel::Isa;
use crate::key::Key;
use crate::search::{NOT_FOUND, Search};
use crate::tree::{SearchTree, TreeBuilder, first_descent};

/// An index whose layout was chosen by [`SortedIndexBuilder`].
///
/// ```
/// use osmill_stree::{Search, SortedIndex};
///
/// let ids: Vec<i64> = (-100_000..100_000).filter(|id| id % 7 != 0).collect();
/// let index = SortedIndex::build(&ids)?;
/// assert!(index.as_bitmap().is_some()); // dense enough for bits
/// assert_eq!(index.select(index.position(5).unwrap()), Some(5));
/// for choice in index.choices() {
///     println!("{choice}");
/// }
/// # Ok::<(), osmill_stree::Error>(())
/// ```
#[derive(Debug)]
pub struct SortedIndex<'a, K: Key> {
    layout: Layout<'a, K>,
    choices: Vec<Choice>,
}

#[derive(Debug)]
enum Layout<'a, K: Key> {
    Bitmap(RankBitmap<'a>),
    Buckets(BucketIndex<'a, K>),
    Tree(SearchTree<'a, K>),
}

/// One layout that was considered.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Choice {
    /// Name of the layout.
    pub layout: &'static str,
    /// Bytes it takes, the keys included. Exact but for the tree's levels, which are computed as 16 bits wide.
    pub bytes: u64,
    /// Cache lines per random query for a present key, weighted by where they lie; none if the layout cannot be used.
    pub lines: Option<f64>,
    /// Why it was or was not taken.
    pub verdict: String,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.layout)?;
        if let Some(lines) = self.lines {
            write!(f, "{} bytes, {lines:.2} lines per query: ", self.bytes)?;
        }
        write!(f, "{}", self.verdict)
    }
}

/// Chooses and builds a [`SortedIndex`].
#[derive(Clone, Copy, Debug, Default)]
pub struct SortedIndexBuilder {
    threads: usize,
    budget: Option<u64>,
}

const BITMAP: &str = "rank bitmap";
const BUCKETS: &str = "buckets";
const TREE: &str = "search tree";

/// What a line of an array of so many bytes counts.
fn weight(bytes: u64) -> f64 {
    match bytes {
        0..=0x8_0000 => 1.0 / 16.0,
        0x8_0001..=0x100_0000 => 0.25,
        _ => 1.0,
    }
}

impl SortedIndexBuilder {
    /// A builder of one thread without a budget.
    pub fn new() -> SortedIndexBuilder {
        SortedIndexBuilder::default()
    }

    /// Uses so many threads.
    pub fn threads(mut self, threads: usize) -> SortedIndexBuilder {
        self.threads = threads;
        self
    }

    /// Leaves out layouts of more than so many bytes. The smallest is taken if all are larger.
    pub fn budget(mut self, bytes: u64) -> SortedIndexBuilder {
        self.budget = Some(bytes);
        self
    }

    /// Builds the index that suits the keys. A search tree goes over `keys` where they are; other layouts hold the keys themselves
    /// and leave `keys` alone. O(keys).
    ///
    /// # Errors
    ///
    /// [`Error::Unsorted`] or [`Error::Memory`].
    pub fn build<K: Key>(self, keys: &[K]) -> Result<SortedIndex<'_, K>> {
        let threads = self.threads.max(1);
        if let Some(position) = first_descent(keys, threads) {
            return Err(Error::Unsorted {
                position: position as u64,
                why: "it is below the one before it",
            });
        }
        let mut choices = vec![choose_bitmap(keys), choose_buckets(keys), choose_tree(keys)];
        loop {
            let chosen = self.choose(&mut choices);
            let layout = match choices[chosen].layout {
                BITMAP => RankBitmap::from_sorted(keys.iter().map(|key| key.ordered())).map(Layout::Bitmap),
                BUCKETS => BucketBuilder::new()
                    .threads(threads)
                    .build(keys)
                    .map(Layout::Buckets),
                _ => TreeBuilder::new().threads(threads).over(keys).map(Layout::Tree),
            };
            match layout {
                // The narrow buckets may turn out uneven; then the others are compared again.
                Err(Error::Uneven { why, .. }) => {
                    choices[chosen].lines = None;
                    choices[chosen].verdict = why;
                }
                layout => {
                    return Ok(SortedIndex {
                        layout: layout?,
                        choices,
                    });
                }
            }
        }
    }

    /// Which of the choices to take; writes the verdicts.
    fn choose(self, choices: &mut [Choice]) -> usize {
        let fits = |choice: &Choice| self.budget.is_none_or(|budget| choice.bytes <= budget);
        let usable = |choice: &Choice| choice.lines.is_some();
        let any_fits = choices.iter().any(|choice| usable(choice) && fits(choice));
        if !any_fits {
            return self.smallest(choices);
        }
        let candidates = || {
            choices
                .iter()
                .enumerate()
                .filter(|(_, choice)| usable(choice) && fits(choice))
        };
        let fewest = candidates()
            .filter_map(|(_, choice)| choice.lines)
            .fold(f64::INFINITY, f64::min);
        let near = |choice: &Choice| choice.lines.is_some_and(|lines| lines <= fewest * 1.05);
        let best = candidates()
            .filter(|(_, choice)| near(choice))
            .min_by_key(|(_, choice)| choice.bytes);
        let chosen = best.map_or(choices.len() - 1, |(index, _)| index);
        let (chosen_bytes, layout) = (choices[chosen].bytes, choices[chosen].layout);
        for (index, choice) in choices.iter_mut().enumerate() {
            if !usable(choice) {
                continue;
            }
            choice.verdict = if index == chosen {
                "taken".into()
            } else if !fits(choice) {
                "over the budget".into()
            } else if !near(choice) {
                format!("more lines than the {layout}")
            } else {
                format!("larger than the {layout}, {chosen_bytes} bytes, for about as many lines")
            };
        }
        chosen
    }

    /// Nothing fits the budget: the smallest is taken all the same.
    fn smallest(self, choices: &mut [Choice]) -> usize {
        let numbered = choices
            .iter()
            .enumerate()
            .filter(|(_, choice)| choice.lines.is_some());
        let chosen = numbered
            .min_by_key(|(_, choice)| choice.bytes)
            .map_or(choices.len() - 1, |(index, _)| index);
        for (index, choice) in choices
            .iter_mut()
            .enumerate()
            .filter(|(_, choice)| choice.lines.is_some())
        {
            let verdict = if index == chosen {
                "over the budget, but the smallest: taken"
            } else {
                "over the budget"
            };
            choice.verdict = verdict.into();
        }
        chosen
    }
}

fn choose_bitmap<K: Key>(keys: &[K]) -> Choice {
    if let Some(at) = keys.windows(2).position(|pair| pair[0] == pair[1]) {
        let verdict = format!("not possible: key number {} comes twice", at + 1);
        return Choice {
            layout: BITMAP,
            bytes: 0,
            lines: None,
            verdict,
        };
    }
    let size = bitmap::size_for(keys.iter().map(|key| key.ordered()));
    let directory = if size.directory == 0 {
        0.0
    } else {
        weight(size.directory)
    };
    Choice {
        layout: BITMAP,
        bytes: size.lines + size.directory,
        lines: Some(weight(size.lines) + directory),
        verdict: String::new(),
    }
}

fn choose_buckets<K: Key>(keys: &[K]) -> Choice {
    match BucketBuilder::new().measure(keys) {
        Ok((bytes, per_query)) => {
            let lines = Some(per_query * weight(bytes));
            Choice {
                layout: BUCKETS,
                bytes,
                lines,
                verdict: String::new(),
            }
        }
        Err(error) => {
            let verdict = format!("not possible: {error}");
            Choice {
                layout: BUCKETS,
                bytes: 0,
                lines: None,
                verdict,
            }
        }
    }
}

fn choose_tree<K: Key>(keys: &[K]) -> Choice {
    let mut level = size_of_val(keys).div_ceil(64) as u64;
    let (mut bytes, mut lines) = (0, 0.0);
    loop {
        bytes += level * 64;
        lines += weight(level * 64);
        if level <= 1 {
            break;
        }
        level = level.div_ceil(29);
    }
    Choice {
        layout: TREE,
        bytes,
        lines: Some(lines),
        verdict: String::new(),
    }
}

impl<'a, K: Key> SortedIndex<'a, K> {
    /// The index that suits the keys best, without a budget; one thread.
    ///
    /// # Errors
    ///
    /// As [`SortedIndexBuilder::build`].
    pub fn build(keys: &'a [K]) -> Result<SortedIndex<'a, K>> {
        SortedIndexBuilder::new().build(keys)
    }

    /// The layouts that were compared, and why one was taken.
    pub fn choices(&self) -> &[Choice] {
        &self.choices
    }

    /// The bitmap, if that is the layout; its ids are the keys' ordered bits.
    pub fn as_bitmap(&self) -> Option<&RankBitmap<'a>> {
        match &self.layout {
            Layout::Bitmap(bitmap) => Some(bitmap),
            _ => None,
        }
    }

    /// The buckets, if that is the layout.
    pub fn as_buckets(&self) -> Option<&BucketIndex<'a, K>> {
        match &self.layout {
            Layout::Buckets(buckets) => Some(buckets),
            _ => None,
        }
    }

    /// The tree, if that is the layout.
    pub fn as_tree(&self) -> Option<&SearchTree<'a, K>> {
        match &self.layout {
            Layout::Tree(tree) => Some(tree),
            _ => None,
        }
    }
}

/// Calls a method of whichever index there is; for the bitmap the last form, on the ordered bits.
macro_rules! each_layout {
    ($self:ident, $index:ident => $call:expr, $bitmap:ident => $on_bits:expr) => {
        match &$self.layout {
            Layout::Bitmap($bitmap) => $on_bits,
            Layout::Buckets($index) => $call,
            Layout::Tree($index) => $call,
        }
    };
}

impl<K: Key> Search<K> for SortedIndex<'_, K> {
    fn len(&self) -> u64 {
        each_layout!(self, index => index.len(), bitmap => bitmap.len())
    }

    fn isa(&self) -> Isa {
        each_layout!(self, index => index.isa(), bitmap => bitmap.isa())
    }

    fn lower_bound(&self, key: K) -> u64 {
        each_layout!(self, index => index.lower_bound(key), bitmap => bitmap.lower_bound(key.ordered()))
    }

    fn upper_bound(&self, key: K) -> u64 {
        each_layout!(self, index => index.upper_bound(key), bitmap => bitmap.upper_bound(key.ordered()))
    }

    fn position(&self, key: K) -> Option<u64> {
        each_layout!(self, index => index.position(key), bitmap => bitmap.position(key.ordered()))
    }

    fn select(&self, position: u64) -> Option<K> {
        each_layout!(self, index => index.select(position), bitmap => bitmap.select(position).map(K::from_ordered))
    }

    fn for_each_lower_bound<F: FnMut(usize, u64)>(&self, queries: &[K], mut each: F) {
        each_layout!(
            self,
            index => index.for_each_lower_bound(queries, each),
            bitmap => bitmap.for_each_rank(queries, |index, rank, _| each(index, rank))
        );
    }

    fn for_each_upper_bound<F: FnMut(usize, u64)>(&self, queries: &[K], mut each: F) {
        each_layout!(
            self,
            index => index.for_each_upper_bound(queries, each),
            bitmap => bitmap.for_each_rank(queries, |index, rank, present| each(index, rank + present))
        );
    }

    fn for_each_position<F: FnMut(usize, u64)>(&self, queries: &[K], mut each: F) {
        each_layout!(
            self,
            index => index.for_each_position(queries, each),
            bitmap => bitmap.for_each_rank(queries, |index, rank, present| {
                each(index, if present == 1 { rank } else { NOT_FOUND });
            })
        );
    }
}
