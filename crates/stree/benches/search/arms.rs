//! What is measured.

use osmill_stree::{
    BucketBuilder, DigestIndex, Line, LineBuffer, NOT_FOUND, RankBitmap, Search, SearchTree, SortedIndex,
    TreeBuilder, Widths,
};

use crate::{Options, calibration};

/// A way to look up a batch of queries.
type Run<'a, Q> = Box<dyn Fn(&[Q], &mut [u64]) + Sync + 'a>;

/// One contestant.
pub struct Arm<'a, Q> {
    pub name: String,
    /// Bytes it needs, the column included if it reads it.
    pub bytes: usize,
    /// Whether it gets fewer queries.
    pub slow: bool,
    /// Whether it tells positions.
    pub checked: bool,
    pub note: String,
    pub run: Run<'a, Q>,
}

impl<Q> Arm<'_, Q> {
    /// Whether the arm is another's code.
    pub fn is_peer(&self) -> bool {
        ["binary_search", "ordsearch", "hashbrown", "znippy"]
            .iter()
            .any(|peer| self.name.contains(peer))
    }
}

/// An index of this crate.
pub fn index<'a, Q: Copy + Ord + Sync>(name: &str, bytes: usize, index: impl Search<Q> + 'a) -> Arm<'a, Q> {
    let run: Run<'a, Q> = Box::new(move |queries, out| index.position_into(queries, out));
    Arm {
        name: name.into(),
        bytes,
        slow: false,
        checked: true,
        note: String::new(),
        run,
    }
}

fn plain<'a, Q>(
    name: &str,
    bytes: usize,
    slow: bool,
    run: impl Fn(&[Q], &mut [u64]) + Sync + 'a,
) -> Arm<'a, Q> {
    Arm {
        name: name.into(),
        bytes,
        slow,
        checked: true,
        note: String::new(),
        run: Box::new(run),
    }
}

fn binary_search<Q: Ord + Sync>(keys: &[Q]) -> Arm<'_, Q> {
    plain("binary_search", size_of_val(keys), true, move |queries, out| {
        for (out, query) in out.iter_mut().zip(queries) {
            *out = keys
                .binary_search(query)
                .map_or(NOT_FOUND, |position| position as u64);
        }
    })
}

/// An index copied to memory without huge pages: `write` puts its file there, `open` reads it in place. The memory is never
/// returned.
fn on_small_pages<T>(
    bytes: u64,
    write: impl FnOnce(&mut [u8]) -> std::io::Result<()>,
    open: impl FnOnce(&'static [u8]) -> osmill_stree::Result<T>,
) -> T {
    let lines: &'static mut [Line] = vec![Line::ZERO; 8 + bytes as usize / 64].leak();
    write(osmill_stree::line_bytes_mut(lines)).expect("room");
    open(osmill_stree::line_bytes(lines)).expect("just written")
}

/// `$index` as it is, or on small pages if that is asked for.
macro_rules! placed {
    ($options:expr, $type:ty, $index:expr) => {{
        let index: $type = $index;
        if $options.huge() {
            index
        } else {
            on_small_pages(
                index.bytes(),
                |bytes| index.write_to(bytes),
                |bytes| <$type>::from_bytes(bytes),
            )
        }
    }};
}

/// All arms over 64-bit keys.
pub fn for_u64<'a>(options: &Options, shape: &str, column: &'a LineBuffer) -> Vec<Arm<'a, u64>> {
    let keys = column.keys::<u64>();
    let bytes = size_of_val(keys);
    let mut arms = vec![binary_search(keys)];
    if options.wants("one line per query") {
        arms.push(calibration(bytes));
    }
    if options.wants("RankBitmap") && shape != "hash" {
        let set = placed!(
            options,
            RankBitmap<'static>,
            RankBitmap::from_sorted(keys.iter().copied()).expect("ascending")
        );
        let name = if set.is_paged() {
            "RankBitmap, paged"
        } else {
            "RankBitmap, plain"
        };
        arms.push(index(name, set.bytes() as usize, set));
    }
    if options.wants("BucketIndex") {
        match BucketBuilder::new().threads(2).build(keys) {
            Ok(buckets) => {
                let buckets = placed!(options, osmill_stree::BucketIndex<'static, u64>, buckets);
                let name = format!("BucketIndex, {} per line", buckets.keys_per_line());
                let spilled = 100.0 * (buckets.expected_lines() - 1.0);
                let pages = buckets
                    .pages()
                    .map_or(String::new(), |pages| format!(", {pages}"));
                let mut arm = index(&name, buckets.bytes() as usize, buckets);
                arm.note = format!("[{spilled:.1} % not at home{pages}]");
                arms.push(arm);
            }
            Err(error) => println!("  ({error})"),
        }
    }
    if options.wants("SearchTree") {
        let tree = TreeBuilder::new().threads(2).over(keys).expect("sorted");
        let note = format!("{:?} bits", tree.widths());
        let mut arm = index("SearchTree", tree.bytes() as usize, tree);
        arm.note = note;
        arms.push(arm);
    }
    if options.wants("SearchTree, plain") {
        let tree = TreeBuilder::new()
            .threads(2)
            .widths(Widths::Plain)
            .over(keys)
            .expect("sorted");
        arms.push(index("SearchTree, plain", tree.bytes() as usize, tree));
    }
    if options.wants("SortedIndex") {
        let chosen = SortedIndex::build(keys).expect("sorted");
        let taken = chosen
            .choices()
            .iter()
            .find(|choice| choice.verdict.contains("taken"))
            .expect("one is");
        let note = format!("[{}]", taken.layout);
        let mut arm = index("SortedIndex", taken.bytes as usize, chosen);
        arm.note = note;
        arms.push(arm);
    }
    #[cfg(feature = "rivals")]
    rivals::for_u64(options, keys, &mut arms);
    arms
}

/// All arms over 32-bit keys.
pub fn for_u32<'a>(options: &Options, keys: &'a [u32]) -> Vec<Arm<'a, u32>> {
    let mut arms = vec![binary_search(keys)];
    if options.wants("one line per query") {
        arms.push(calibration(size_of_val(keys)));
    }
    if options.wants("BucketIndex") {
        let buckets = BucketBuilder::new().threads(2).build(keys).expect("even");
        let buckets = placed!(options, osmill_stree::BucketIndex<'static, u32>, buckets);
        let name = format!("BucketIndex, {} per line", buckets.keys_per_line());
        arms.push(index(&name, buckets.bytes() as usize, buckets));
    }
    if options.wants("SearchTree") {
        let tree = TreeBuilder::new().threads(2).copied(keys).expect("sorted");
        let tree = placed!(options, SearchTree<'static, u32>, tree);
        let note = format!("{:?} bits", tree.widths());
        let mut arm = index("SearchTree", tree.bytes() as usize, tree);
        arm.note = note;
        arms.push(arm);
    }
    #[cfg(feature = "rivals")]
    rivals::for_u32(options, keys, &mut arms);
    arms
}

/// All arms over object ids.
pub fn for_digests<'a>(options: &Options, ids: &'a [[u8; 20]]) -> Vec<Arm<'a, [u8; 20]>> {
    let mut arms = vec![binary_search(ids)];
    if options.wants("one line per query") {
        arms.push(calibration(size_of_val(ids)));
    }
    if options.wants("DigestIndex") {
        let digests = DigestIndex::with_threads(ids, 2).expect("digests");
        let digests = placed!(options, DigestIndex<'static, 20>, digests);
        arms.push(index("DigestIndex<20>", digests.bytes() as usize, digests));
    }
    // As git looks ids up: the first byte picks a range, the range is bisected.
    let fan_out: Vec<usize> = (0..=256)
        .map(|first| ids.partition_point(|id| usize::from(id[0]) < first))
        .collect();
    arms.push(plain(
        "fan-out and bisection",
        size_of_val(ids),
        true,
        move |queries: &[[u8; 20]], out| {
            for (out, query) in out.iter_mut().zip(queries) {
                let first = usize::from(query[0]);
                let (start, end) = (fan_out[first], fan_out[first + 1]);
                *out = ids[start..end]
                    .binary_search(query)
                    .map_or(NOT_FOUND, |at| (start + at) as u64);
            }
        },
    ));
    #[cfg(feature = "rivals")]
    rivals::for_digests(options, ids, &mut arms);
    arms
}

/// Other crates.
#[cfg(feature = "rivals")]
mod rivals {
    use std::hash::Hash;

    use hashbrown::HashMap;
    use ordsearch::OrderedCollection;
    use osmill_stree::NOT_FOUND;
    use znippy_zoomies::stree::STree64;
    use znippy_zoomies::stree32::STree32;

    use super::{Arm, plain};
    use crate::Options;

    /// A map from key to position.
    fn hash_map<'a, Q: Copy + Hash + Eq + Sync + Send + 'a>(
        options: &Options,
        keys: &[Q],
        arms: &mut Vec<Arm<'a, Q>>,
    ) {
        if !options.wants("hashbrown") {
            return;
        }
        let map: HashMap<Q, u32> = keys
            .iter()
            .zip(0..)
            .map(|(&key, position)| (key, position))
            .collect();
        let bytes = map.allocation_size();
        arms.push(plain("hashbrown::HashMap", bytes, true, move |queries, out| {
            for (out, query) in out.iter_mut().zip(queries) {
                *out = map.get(query).map_or(NOT_FOUND, |&position| u64::from(position));
            }
        }));
    }

    /// Tells the key, not its position: the answers are not compared, but presence is.
    fn ordsearch<'a, Q: Copy + Ord + Sync + Send + 'a>(
        options: &Options,
        keys: &[Q],
        arms: &mut Vec<Arm<'a, Q>>,
    ) {
        if !options.wants("ordsearch") {
            return;
        }
        let collection = OrderedCollection::from_sorted_iter(keys.iter().copied());
        let mut arm = plain(
            "ordsearch (no position)",
            size_of_val(keys),
            true,
            move |queries: &[Q], out| {
                for (out, query) in out.iter_mut().zip(queries) {
                    *out = u64::from(collection.find_gte(*query) == Some(query));
                }
            },
        );
        arm.checked = false;
        arms.push(arm);
    }

    fn write(found: Vec<Option<usize>>, out: &mut [u64]) {
        for (out, found) in out.iter_mut().zip(found) {
            *out = found.map_or(NOT_FOUND, |position| position as u64);
        }
    }

    pub fn for_u64<'a>(options: &Options, keys: &'a [u64], arms: &mut Vec<Arm<'a, u64>>) {
        let signed = |keys: &[u64]| keys.iter().map(|&key| key as i64).collect::<Vec<i64>>();
        if options.wants("znippy") {
            let tree = STree64::new(&signed(keys));
            let bytes = size_of_val(keys) * 9 / 8;
            arms.push(plain(
                "znippy STree64 batch_stream<128>",
                bytes,
                false,
                move |queries, out| {
                    write(tree.batch_stream::<128>(&signed(queries)), out);
                },
            ));
        }
        hash_map(options, keys, arms);
        ordsearch(options, keys, arms);
    }

    pub fn for_u32<'a>(options: &Options, keys: &'a [u32], arms: &mut Vec<Arm<'a, u32>>) {
        if options.wants("znippy") {
            let tree = STree32::new(keys);
            let bytes = size_of_val(keys) * 17 / 16;
            arms.push(plain(
                "znippy STree32 batch_stream<128>",
                bytes,
                false,
                move |queries, out| {
                    write(tree.batch_stream::<128>(queries), out);
                },
            ));
        }
        hash_map(options, keys, arms);
        ordsearch(options, keys, arms);
    }

    pub fn for_digests<'a>(options: &Options, ids: &'a [[u8; 20]], arms: &mut Vec<Arm<'a, [u8; 20]>>) {
        hash_map(options, ids, arms);
        ordsearch(options, ids, arms);
    }
}
