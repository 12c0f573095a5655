//! What this machine can do, measured beside every record, so that records of different days can be told apart by more
//! than their age.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Rates of the machine, each the best of a few tries of some tens of milliseconds, one thread unless said otherwise.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Copying 64 MiB from memory to memory, in GB/s of copied bytes.
    pub memcpy_gb_s: f64,
    /// Inflating zlib blobs of block-like bytes with libdeflate, in MB/s of output.
    pub inflate_mb_s: f64,
    /// One cache line from a random place in 256 MiB, each address depending on the line before, in ns.
    pub random_line_ns: f64,
    /// The same with 16 chains in flight at once, in ns a line.
    pub random_line_parallel_ns: f64,
    /// Random 4 KiB reads past the page cache, one at a time, per second; `None` where direct I/O is refused.
    pub device_iops_1: Option<f64>,
    /// The same with 16 threads.
    pub device_iops_16: Option<f64>,
}

impl Calibration {
    /// Measures everything; takes about two seconds and 256 MiB. `file` is what the device is probed with (read only); files
    /// under 64 MiB tell nothing about a device and are left alone.
    pub fn measure(file: Option<&Path>) -> Self {
        let (random_line_ns, random_line_parallel_ns) = random_lines();
        Self {
            memcpy_gb_s: memcpy(),
            inflate_mb_s: inflate(),
            random_line_ns,
            random_line_parallel_ns,
            device_iops_1: file.and_then(|path| device(path, 1)),
            device_iops_16: file.and_then(|path| device(path, 16)),
        }
    }

    /// The rates that bear on every row, by name, with whether more is better.
    pub fn rates(&self) -> [(&'static str, f64, bool); 4] {
        [
            ("memcpy GB/s", self.memcpy_gb_s, true),
            ("inflate MB/s", self.inflate_mb_s, true),
            ("random line ns", self.random_line_ns, false),
            ("random line ns, 16 chains", self.random_line_parallel_ns, false),
        ]
    }
}

/// A small generator for test bytes (SplitMix64), so that every machine measures the same thing.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }
}

/// The shortest of a few runs, in seconds.
fn best(tries: usize, mut run: impl FnMut()) -> f64 {
    (0..tries)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min)
}

fn memcpy() -> f64 {
    let from = vec![1u8; 64 << 20];
    let mut to = vec![2u8; 64 << 20];
    let seconds = best(5, || {
        to.copy_from_slice(std::hint::black_box(&from));
        std::hint::black_box(&mut to);
    });
    from.len() as f64 / 1e9 / seconds
}

/// Bytes like those of a block: words of a string table, then columns of small varints.
fn block_like(length: usize) -> Vec<u8> {
    const WORDS: [&str; 16] = [
        "highway",
        "residential",
        "building",
        "yes",
        "name",
        "surface",
        "asphalt",
        "source",
        "addr:street",
        "addr:housenumber",
        "service",
        "natural",
        "tree",
        "landuse",
        "oneway",
        "maxspeed",
    ];
    let mut random = Random(7);
    let mut bytes = Vec::with_capacity(length + 64);
    while bytes.len() < length / 8 {
        let word = WORDS[random.next() as usize % WORDS.len()];
        bytes.push(10);
        bytes.push(word.len() as u8 + 3);
        bytes.extend_from_slice(word.as_bytes());
        bytes.extend_from_slice(format!("{:03}", random.next() % 1000).as_bytes());
    }
    while bytes.len() < length {
        // Skewed magnitudes, one to three bytes each, as deltas of coordinates have.
        let magnitude = random.next() % 18 + 1;
        let mut value = random.next() & ((1 << magnitude) - 1);
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
    }
    bytes.truncate(length);
    bytes
}

fn inflate() -> f64 {
    let plain = block_like(1 << 20);
    let level = libdeflater::CompressionLvl::new(6).unwrap_or_default();
    let mut compressor = libdeflater::Compressor::new(level);
    let mut packed = vec![0u8; compressor.zlib_compress_bound(plain.len())];
    let Ok(length) = compressor.zlib_compress(&plain, &mut packed) else {
        return 0.0;
    };
    let mut decompressor = libdeflater::Decompressor::new();
    let mut output = vec![0u8; plain.len()];
    let mut total = 0usize;
    let seconds = best(8, || {
        total = 0;
        for _ in 0..16 {
            let written = decompressor.zlib_decompress(std::hint::black_box(&packed[..length]), &mut output);
            total += written.unwrap_or(0);
            std::hint::black_box(&output);
        }
    });
    total as f64 / 1e6 / seconds
}

fn random_lines() -> (f64, f64) {
    // One cycle through all lines of 64 bytes (Sattolo's shuffle), so that a chain never falls into a short loop.
    const LINES: usize = (256 << 20) / 64;
    let mut random = Random(11);
    let mut order: Vec<u32> = (0..LINES as u32).collect();
    for index in (1..LINES).rev() {
        order.swap(index, random.next() as usize % index);
    }
    let mut next = vec![[0u32; 16]; LINES];
    for (line, &target) in next.iter_mut().zip(&order) {
        line[0] = target;
    }
    drop(order);
    let walk = |at: u32| next[at as usize][0];
    const STEPS: usize = 400_000;
    let dependent = best(3, || {
        let mut at = random.next() as u32 % LINES as u32;
        for _ in 0..STEPS {
            at = walk(at);
        }
        std::hint::black_box(at);
    });
    let parallel = best(3, || {
        let mut at = [0u32; 16].map(|_| random.next() as u32 % LINES as u32);
        for _ in 0..STEPS / 4 {
            at = at.map(walk);
        }
        std::hint::black_box(at);
    });
    (
        dependent * 1e9 / STEPS as f64,
        parallel * 1e9 / (STEPS / 4 * 16) as f64,
    )
}

/// Random reads of 4 KiB from `threads` threads for 300 ms, with direct I/O so that the page cache has no part in it.
fn device(path: &Path, threads: usize) -> Option<f64> {
    const BLOCK: usize = 4096;
    const TIME: Duration = Duration::from_millis(300);
    let size = std::fs::metadata(path).ok()?.len();
    if size < 64 << 20 {
        return None;
    }
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECT | rustix::fs::OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, rustix::fs::Mode::empty()).ok()?);
    let blocks = size / BLOCK as u64;
    let reads = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|seed| {
                let file = &file;
                scope.spawn(move || {
                    let mut random = Random(seed as u64 + 1);
                    let mut buffer = vec![0u8; 2 * BLOCK];
                    let aligned = buffer.as_ptr().align_offset(BLOCK).min(BLOCK);
                    let buffer = &mut buffer[aligned..aligned + BLOCK];
                    let (start, mut reads) = (Instant::now(), 0u64);
                    while start.elapsed() < TIME {
                        file.read_exact_at(buffer, random.next() % blocks * BLOCK as u64)
                            .ok()?;
                        reads += 1;
                    }
                    Some(reads as f64 / start.elapsed().as_secs_f64())
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().ok().flatten())
            .sum::<Option<f64>>()
    });
    reads.filter(|&rate| rate > 0.0)
}
