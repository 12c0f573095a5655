//! Keys and queries. All are pseudo-random with fixed seeds.

use osmill_stree::{Key, LineBuffer};

/// splitmix64.
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = self.0;
        let x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ x >> 31
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    /// An exponentially distributed number.
    fn exponential(&mut self, mean: f64) -> f64 {
        let uniform = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        -(1.0 - uniform).ln() * mean
    }
}

pub fn shuffle<T>(items: &mut [T]) {
    let mut random = Random(9);
    for at in (1..items.len()).rev() {
        items.swap(at, random.below(at as u64 + 1) as usize);
    }
}

/// Ids as a planet has them: long runs from which one in five is missing, in clumps; 10^10 of them span 1.25 * 10^10.
pub fn osm_ids(seed: u64) -> impl Iterator<Item = u64> {
    let mut random = Random(seed);
    let (mut id, mut run) = (0u64, 0u64);
    std::iter::from_fn(move || {
        if run == 0 {
            let word = random.next();
            run = 1 + (word & 31);
            id += 1 + (word >> 32 & 7);
        } else {
            id += 1;
        }
        run -= 1;
        Some(id)
    })
}

/// Ids as a country has them: runs of some 40 with one in five missing, and exponential gaps of 1200 between them.
fn extract_ids(seed: u64) -> impl Iterator<Item = u64> {
    let mut random = Random(seed);
    let (mut id, mut run) = (1u64 << 20, 0u64);
    std::iter::from_fn(move || {
        if run == 0 {
            run = 1 + random.below(80);
            id += 1 + random.exponential(1200.0) as u64;
        } else {
            id += 1 + u64::from(random.next().is_multiple_of(5));
        }
        run -= 1;
        Some(id)
    })
}

/// Hash-like: sorted uniform numbers below 2^63, made as a running sum of exponential gaps.
fn hash_keys(seed: u64, count: usize) -> impl Iterator<Item = u64> {
    let mut random = Random(seed);
    // The sum strays by the root of the count; it must not run into the end.
    let count = count as f64;
    let mean = (1u64 << 63) as f64 / (count + 5.0 * count.sqrt());
    let mut key = 0u64;
    std::iter::from_fn(move || {
        key = (key + 1 + random.exponential(mean) as u64).min((1 << 63) - 1);
        Some(key)
    })
}

/// A column of a shape, on huge pages.
pub fn u64_keys(shape: &str, count: usize) -> LineBuffer {
    let mut buffer = LineBuffer::zeroed(count.div_ceil(8)).expect("memory");
    let column = &mut buffer.keys_mut::<u64>()[..count];
    let mut fill = |ids: &mut dyn Iterator<Item = u64>| {
        column.iter_mut().zip(ids).for_each(|(slot, id)| *slot = id);
    };
    match shape {
        "osm" => fill(&mut osm_ids(1)),
        "extract" => fill(&mut extract_ids(2)),
        "hash" => fill(&mut hash_keys(3, count)),
        other => panic!("no shape {other}"),
    }
    buffer
}

/// Uniform distinct 32-bit numbers: each number is taken with the same probability.
pub fn u32_keys(count: usize) -> Vec<u32> {
    let mut random = Random(4);
    // Gaps are geometric, so that every number is as likely as any other.
    let share = count as f64 * 1.002 / (1u64 << 32) as f64;
    let scale = -1.0 / (-share).ln_1p();
    let mut key = 0u64;
    let mut keys = Vec::with_capacity(count);
    while keys.len() < count {
        key += 1 + random.exponential(scale) as u64;
        match u32::try_from(key) {
            Ok(key) => keys.push(key),
            Err(_) => break,
        }
    }
    keys
}

/// Queries of a kind, and their positions.
pub fn queries<K: Key>(keys: &[K], kind: &str, count: usize) -> (Vec<K>, Vec<u64>) {
    let mut random = Random(5);
    let len = keys.len() as u64;
    let mut positions: Vec<u64> = match kind {
        // As ways name nodes: a dozen near one place, then a place elsewhere.
        "ways" => {
            let mut at = 0;
            (0..count)
                .map(|index| {
                    at = if index % 12 == 0 {
                        random.below(len)
                    } else {
                        (at + random.below(6)) % len
                    };
                    at
                })
                .collect()
        }
        _ => (0..count).map(|_| random.below(len)).collect(),
    };
    match kind {
        "hit" | "ways" => {}
        "sorted" => positions.sort_unstable(),
        "miss" => {
            // The next number after a key, where that is not a key itself.
            let mut queries: Vec<K> = Vec::with_capacity(count);
            while queries.len() < count {
                let position = random.below(len - 1) as usize;
                let next = keys[position].ordered() + 1;
                let gap = keys[position + 1].ordered() - keys[position].ordered();
                if gap > 1 {
                    queries.push(K::from_ordered(next + random.below(gap - 1)));
                }
            }
            return (queries, vec![u64::MAX; count]);
        }
        other => panic!("no kind of query {other}"),
    }
    (
        positions
            .iter()
            .map(|&position| keys[position as usize])
            .collect(),
        positions,
    )
}

/// Sorted object ids.
pub fn digests(count: usize) -> Vec<[u8; 20]> {
    let mut random = Random(6);
    let mut ids: Vec<[u8; 20]> = hash_keys(7, count)
        .take(count)
        .map(|prefix| {
            let mut id = [0; 20];
            id[..8].copy_from_slice(&(prefix << 1).to_be_bytes());
            id[8..16].copy_from_slice(&random.next().to_le_bytes());
            id[16..].copy_from_slice(&(random.next() as u32).to_le_bytes());
            id
        })
        .collect();
    ids.sort_unstable();
    ids
}

/// Queries for object ids, and their positions.
pub fn digest_queries(ids: &[[u8; 20]], count: usize) -> (Vec<[u8; 20]>, Vec<u64>) {
    let mut random = Random(8);
    let positions: Vec<u64> = (0..count).map(|_| random.below(ids.len() as u64)).collect();
    (
        positions.iter().map(|&position| ids[position as usize]).collect(),
        positions,
    )
}
