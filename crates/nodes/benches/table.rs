//! Size and speed of the table on a file: `cargo bench -p osmill-nodes -- FILE.osm.pbf`.
//!
//! Fills a table from the file with all threads, then looks up the references of its ways in their order on one
//! thread, in batches of a blob, and compares with a sorted array that is searched by bisection. With `--selected`
//! the table has only the nodes that ways refer to.

use std::path::PathBuf;
use std::time::Instant;

use osmill_engine::{IdSet, Input, Job, JobOptions, Result};
use osmill_nodes::{Filler, IdRange, NodeBatch};

fn main() -> Result<()> {
    let Some(path) = std::env::args()
        .skip(1)
        .find(|a| !a.starts_with('-'))
        .map(PathBuf::from)
    else {
        eprintln!("no file was given: nothing is measured");
        return Ok(());
    };
    let selected = std::env::args().any(|a| a == "--selected");
    let job = Job::new(JobOptions::default());
    let input = Input::open(&path, false, &std::env::temp_dir())?;
    let plan = input.plan(job.options().threads)?;
    let wanted = IdSet::new();
    let start = Instant::now();
    let states = job.pass("references", input.file(), &plan.blobs).scan(
        <(Vec<i64>, Vec<(u64, Vec<i64>)>)>::default,
        |(refs, all), blob| {
            refs.clear();
            blob.block()?.way_refs_into(refs)?;
            wanted.insert_all(refs);
            if !refs.is_empty() {
                all.push((blob.entry().number, refs.clone()));
            }
            Ok(())
        },
    )?;
    let mut refs: Vec<(u64, Vec<i64>)> = states.into_iter().flat_map(|(_, all)| all).collect();
    refs.sort_unstable_by_key(|(number, _)| *number);
    println!(
        "collecting {:.2} s, {:.1} MB of pages",
        start.elapsed().as_secs_f64(),
        wanted.bytes() as f64 / 1e6
    );

    let start = Instant::now();
    let referenced = wanted.count() as f64;
    let filler = if selected {
        Filler::selected(wanted)
    } else {
        Filler::sorted(IdRange::ALL)
    };
    let states = job.pass("nodes", input.file(), &plan.blobs).scan(
        <(NodeBatch, Vec<_>)>::default,
        |(nodes, rows), blob| {
            let at = plan
                .blobs
                .binary_search_by_key(&blob.entry().number, |b| b.number);
            nodes.read(blob.block()?)?;
            filler.add(at.unwrap_or(0), nodes)?;
            rows.extend(nodes.ids().iter().copied().zip(nodes.locations().iter().copied()));
            Ok(())
        },
    )?;
    let table = filler.finish()?;
    println!("filling {:.2} s", start.elapsed().as_secs_f64());
    let bytes = table.bytes() as f64;
    println!(
        "{} nodes, {referenced} of them referred to: {:.2} bytes a node, {:.2} a node that is referred to",
        table.len(),
        bytes / table.len() as f64,
        bytes / referenced
    );

    let count: usize = refs.iter().map(|(_, refs)| refs.len()).sum();
    let (mut sum, mut locations) = (0u64, Vec::new());
    let start = Instant::now();
    for (_, refs) in &refs {
        locations.clear();
        table.locate(refs, &mut locations);
        sum = locations.iter().flatten().fold(sum, |sum, at| {
            sum.wrapping_mul(31)
                .wrapping_add(u64::from(at.lon as u32) ^ u64::from(at.lat as u32) << 32)
        });
    }
    println!(
        "{count} look-ups in way order: {:.1} ns each",
        start.elapsed().as_nanos() as f64 / count as f64
    );

    let mut rows: Vec<_> = states.into_iter().flat_map(|(_, rows)| rows).collect();
    rows.sort_unstable_by_key(|(id, _)| *id);
    let mut expected = 0u64;
    let start = Instant::now();
    for id in refs.iter().flat_map(|(_, refs)| refs) {
        let at = rows
            .binary_search_by_key(id, |(id, _)| *id)
            .ok()
            .and_then(|at| rows[at].1);
        if let Some(at) = at {
            expected = expected
                .wrapping_mul(31)
                .wrapping_add(u64::from(at.lon as u32) ^ u64::from(at.lat as u32) << 32);
        }
    }
    println!(
        "by bisection: {:.1} ns each",
        start.elapsed().as_nanos() as f64 / count as f64
    );
    assert_eq!(sum, expected, "both have to find the same");
    Ok(())
}
