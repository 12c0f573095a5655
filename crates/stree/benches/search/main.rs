//! Nanoseconds per look-up, every index against `binary_search` and (with `--features rivals`) other crates.
//!
//! `cargo bench -p osmill-stree -- [option=a,b,...]...`, each option a list:
//!
//! * `shape`: `osm`, `extract`, `hash`, `u32`, `digest`; `planet` (10^10 ids, 4 GB) and `collect` only when named
//! * `size`: bytes of keys, as `8M`, `128M`, `1G`
//! * `query`: `hit`, `miss`, `sorted`, `ways`
//! * `threads`: numbers
//! * `arm`: parts of arm names, to run only those (and `binary_search`)
//! * `rounds`, `pages` (`huge`, `small`)
//!
//! `--json` prints a JSON object a line instead, one for each arm and round, as the benchmark runner reads them.
//!
//! All arms of a setting run in one process, taking turns: in each round every arm answers another slice of the queries, so that
//! no arm finds the lines warm that the one before it fetched. Every answer is compared with the true position. The figure is the
//! median over the rounds. The calibration arm is one random cache line per query from a buffer of the size of the keys.

mod arms;
mod shapes;

use std::collections::HashMap;
use std::hint::black_box;
use std::time::Instant;

use arms::Arm;
use osmill_stree::{BitmapCollector, LineBuffer, RankBitmapBuilder, Search, prefetch};
use shapes::Random;

/// Queries per round and arm.
const ROUND: usize = 1 << 19;
/// Queries per round for arms slower than this many nanoseconds.
const SLOW_ROUND: usize = 1 << 16;

/// The options of the command line.
pub struct Options(HashMap<String, Vec<String>>);

impl Options {
    fn parse() -> Options {
        let mut options = HashMap::new();
        for argument in std::env::args().skip(1) {
            if let Some((name, values)) = argument.split_once('=') {
                let values = values.split(',').map(str::to_owned).collect();
                options.insert(name.trim_start_matches('-').to_owned(), values);
            }
        }
        Options(options)
    }

    fn list(&self, name: &str, default: &[&str]) -> Vec<String> {
        let default = || default.iter().map(|&value| value.to_owned()).collect();
        self.0.get(name).cloned().unwrap_or_else(default)
    }

    /// Whether an arm is to run.
    pub fn wants(&self, arm: &str) -> bool {
        let wanted = self.list("arm", &[""]);
        wanted.iter().any(|part| arm.contains(part.as_str())) || arm == "binary_search"
    }

    /// Whether figures are printed for a program.
    pub fn json(&self) -> bool {
        std::env::args().any(|argument| argument == "--json")
    }

    /// Whether indexes are to lie on huge pages.
    pub fn huge(&self) -> bool {
        self.list("pages", &["huge"])[0] == "huge"
    }
}

fn bytes_of(size: &str) -> usize {
    let (number, unit) = size.split_at(size.len() - 1);
    let shift = match unit {
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => panic!("a size is a number with K, M or G, not {size}"),
    };
    number.parse::<usize>().expect("a number before the unit") << shift
}

/// Runs `work` over the queries on so many threads.
fn on_threads<Q: Sync>(
    threads: usize,
    queries: &[Q],
    out: &mut [u64],
    work: &(dyn Fn(&[Q], &mut [u64]) + Sync),
) {
    if threads == 1 {
        return work(queries, out);
    }
    let part = queries.len().div_ceil(threads);
    std::thread::scope(|scope| {
        for (queries, out) in queries.chunks(part).zip(out.chunks_mut(part)) {
            scope.spawn(move || work(queries, out));
        }
    });
}

/// Times all arms over one set of queries and prints a table.
pub fn compare<Q: Copy + Sync>(
    title: &str,
    options: &Options,
    keys: (u64, usize),
    arms: &[Arm<'_, Q>],
    queries: &[Q],
    answers: &[u64],
) {
    let rounds = queries.len() / ROUND;
    // Each slice comes to every arm once, at different times.
    let shares =
        |stride: &usize| (2..=*stride).any(|part| stride.is_multiple_of(part) && rounds.is_multiple_of(part));
    let stride = (3..).find(|stride| !shares(stride)).unwrap_or(1);
    let slices: Vec<_> = queries
        .chunks_exact(ROUND)
        .zip(answers.chunks_exact(ROUND))
        .collect();
    for threads in options.list("threads", &["1"]) {
        let threads: usize = threads.parse().expect("a number of threads");
        let mut times = vec![Vec::new(); arms.len()];
        let mut out = vec![0u64; ROUND];
        for round in 0..rounds {
            for (index, arm) in arms.iter().enumerate() {
                let (queries, answers) = slices[(round + index * stride) % rounds];
                let count = if arm.slow { SLOW_ROUND } else { ROUND };
                let (queries, answers) = (&queries[..count], &answers[..count]);
                out[..count].fill(7);
                let start = Instant::now();
                on_threads(threads, queries, &mut out[..count], &*arm.run);
                times[index].push(start.elapsed().as_nanos() as f64 / count as f64);
                if arm.checked && out[..count] != *answers {
                    let at = (0..count).find(|&at| out[at] != answers[at]).unwrap_or(0);
                    panic!(
                        "{}: query {at} is at {}, not {}",
                        arm.name, answers[at] as i64, out[at] as i64
                    );
                }
                black_box(&out);
            }
        }
        let median = |times: &mut Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        };
        let medians: Vec<f64> = times.iter_mut().map(median).collect();
        let base = arms
            .iter()
            .position(|arm| arm.name == "binary_search")
            .map(|index| medians[index]);
        if options.json() {
            for (arm, times) in arms.iter().zip(&times).filter(|(arm, _)| arm.checked) {
                for ns in times {
                    println!(
                        "{{\"row\":{title:?},\"arm\":{:?},\"n\":{},\"threads\":{threads},\"ns_per_query\":{ns:.3},\
                         \"checked\":true,\"peer\":{},\"bytes\":{}}}",
                        arm.name,
                        keys.0,
                        arm.is_peer(),
                        arm.bytes
                    );
                }
            }
            continue;
        }
        println!("\n{title}, {} keys, {threads} thread(s)", keys.0);
        for ((arm, median), times) in arms.iter().zip(&medians).zip(&times) {
            let ratio = base.map_or(0.0, |base| base / median);
            let size = arm.bytes as f64 / keys.0 as f64;
            println!(
                "  {:<34} {median:>8.2} ns  (best {:>8.2})  {ratio:>6.1}x  {size:>6.2} B/key {}",
                arm.name, times[0], arm.note
            );
        }
    }
}

/// One random line per query: what memory allows.
pub fn calibration<Q: Copy + Sync + 'static>(bytes: usize) -> Arm<'static, Q> {
    let mut buffer = LineBuffer::zeroed(bytes / 64).expect("memory");
    buffer.lines_mut().iter_mut().for_each(|line| line.0[0] = 1);
    let note = format!("[{}]", buffer.pages());
    let run = move |queries: &[Q], out: &mut [u64]| {
        let lines = buffer.lines();
        let mut random = Random(out.as_ptr() as u64 ^ Instant::now().elapsed().as_nanos() as u64);
        let mut ring = [0usize; 32];
        for index in 0..queries.len() {
            let next = ((u128::from(random.next()) * lines.len() as u128) >> 64) as usize;
            prefetch(lines, next);
            out[index] = lines[std::mem::replace(&mut ring[index % 32], next)].0[0];
        }
    };
    Arm {
        name: "one line per query".into(),
        bytes,
        slow: false,
        checked: false,
        note,
        run: Box::new(run),
    }
}

fn main() {
    let options = Options::parse();
    let shapes = options.list("shape", &["osm", "extract", "hash", "u32", "digest"]);
    for size in options.list("size", &["8M"]) {
        let bytes = bytes_of(&size);
        for shape in &shapes {
            let kinds = options.list("query", &["hit"]);
            let rounds: usize = options.list("rounds", &["8"])[0]
                .parse()
                .expect("a number of rounds");
            let title = |kind: &str| format!("{shape} {size} {kind}");
            let queries = rounds * ROUND;
            match shape.as_str() {
                "u32" => {
                    let keys = shapes::u32_keys(bytes / 4);
                    let arms = arms::for_u32(&options, &keys);
                    for kind in &kinds {
                        let (queries, answers) = shapes::queries(&keys, kind, queries);
                        compare(
                            &title(kind),
                            &options,
                            (keys.len() as u64, bytes),
                            &arms,
                            &queries,
                            &answers,
                        );
                    }
                }
                "digest" => {
                    let ids = shapes::digests(bytes / 20);
                    let arms = arms::for_digests(&options, &ids);
                    let (queries, answers) = shapes::digest_queries(&ids, queries);
                    compare(
                        &title("hit"),
                        &options,
                        (ids.len() as u64, bytes),
                        &arms,
                        &queries,
                        &answers,
                    );
                }
                "planet" => planet(&options, queries),
                "collect" => collect(bytes / 8),
                _ => {
                    let keys = shapes::u64_keys(shape, bytes / 8);
                    let arms = arms::for_u64(&options, shape, &keys);
                    for kind in &kinds {
                        let (queries, answers) = shapes::queries(keys.keys(), kind, queries);
                        let count = keys.keys::<u64>().len() as u64;
                        compare(&title(kind), &options, (count, bytes), &arms, &queries, &answers);
                    }
                }
            }
        }
    }
}

/// The whole planet: 10^10 ids, streamed into a bitmap.
fn planet(options: &Options, count: usize) {
    let mut ids = shapes::osm_ids(7);
    let total = 10_000_000_000u64;
    let mut random = Random(3);
    // Queries are ids at random positions, drawn in order and then shuffled.
    let mut wanted: Vec<u64> = (0..count)
        .map(|_| ((u128::from(random.next()) * u128::from(total)) >> 64) as u64)
        .collect();
    wanted.sort_unstable();
    let mut queries = Vec::with_capacity(count);
    let mut next = 0;
    let start = Instant::now();
    let mut builder = RankBitmapBuilder::new().expect("memory");
    for position in 0..total {
        let id = ids.next().expect("endless");
        builder.push(id).expect("ascending");
        while next < wanted.len() && wanted[next] == position {
            queries.push((id, position));
            next += 1;
        }
    }
    let set = builder.finish().expect("memory");
    println!(
        "planet: {total} ids in {:.1} s, {}",
        start.elapsed().as_secs_f64(),
        set.pages().expect("own")
    );
    shapes::shuffle(&mut queries);
    let (queries, answers): (Vec<u64>, Vec<u64>) = queries.into_iter().unzip();
    let bytes = set.bytes() as usize;
    let arms = [calibration(bytes), arms::index("RankBitmap", bytes, set)];
    compare("planet hit", options, (total, bytes), &arms, &queries, &answers);
}

/// Collecting ids in random order.
fn collect(count: usize) {
    let ids = shapes::u64_keys("extract", count);
    let mut shuffled = ids.keys::<u64>().to_vec();
    shapes::shuffle(&mut shuffled);
    for threads in [1, 2] {
        let collector = BitmapCollector::new();
        let start = Instant::now();
        std::thread::scope(|scope| {
            for part in shuffled.chunks(shuffled.len().div_ceil(threads)) {
                let collector = &collector;
                scope.spawn(move || part.chunks(8000).for_each(|ids| collector.insert_all(ids)));
            }
        });
        let inserted = start.elapsed().as_nanos() as f64 / count as f64;
        let start = Instant::now();
        let set = collector.freeze_with(threads).expect("memory");
        let frozen = start.elapsed().as_nanos() as f64 / count as f64;
        assert_eq!(set.len(), count as u64);
        println!(
            "collect {count} ids, {threads} thread(s): insert {inserted:.2} ns, freeze {frozen:.2} ns per id"
        );
    }
}
