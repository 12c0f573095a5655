//! Key streams: what to store, and what to ask for.

/// SplitMix64: a seed is all a run needs to be repeated.
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }
}

fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The `i`-th of `n` ascending keys spread over all 64 bits: one in each stretch of `2^64 / n`, at a place that only the seed knows.
/// Even numbers, so that an odd key is always absent.
pub fn spread(i: u64, n: u64) -> u64 {
    let width = u64::MAX / n;
    (i * width + mix(i) % (width - 1)) & !1
}

/// A key that is present, by its rank.
pub fn present(random: &mut Random, n: u64) -> u64 {
    spread(random.below(n), n)
}

/// A key that is absent.
pub fn absent(random: &mut Random) -> u64 {
    random.next() | 1
}

/// Node ids as an OpenStreetMap planet has them: long dense runs with a fifth of the ids gone, ascending.
pub fn node_ids(n: u64) -> impl Iterator<Item = u64> {
    let mut random = Random(17);
    let mut id = 0;
    (0..n).map(move |_| {
        id += 1;
        let r = random.next();
        if r.is_multiple_of(5) {
            id += 1 + (r >> 32) % 3;
        }
        if r % 4096 == 1 {
            id += (r >> 32) % 2000;
        }
        id
    })
}

/// Locations as mappers leave them: short walks of a few metres to some tens, then a jump to another place of the neighbourhood, at
/// times to another part of the world. Units of 1e-7 degree.
pub fn locations() -> impl Iterator<Item = (i32, i32)> {
    let mut random = Random(23);
    let (mut x, mut y, mut left, mut town) = (0i32, 0i32, 0u64, (0i32, 0i32));
    std::iter::from_fn(move || {
        if left == 0 {
            left = 4 + random.below(40);
            if random.below(60) == 0 {
                let lon = random.below(3_600_000_000) as i64 - 1_800_000_000;
                town = (lon as i32, random.below(1_500_000_000) as i32 - 700_000_000);
            }
            // Ways of one mapper lie within about a kilometre.
            x = town.0.wrapping_add(random.below(200_000) as i32);
            y = town.1.wrapping_add(random.below(100_000) as i32);
        }
        left -= 1;
        x = x.wrapping_add(random.below(4000) as i32 - 2000);
        y = y.wrapping_add(random.below(3000) as i32 - 1500);
        Some((x, y))
    })
}

/// Ranks by Zipf's law with exponent 0.99 over `n`, by inversion of the continuous approximation, scattered over the ranks.
pub fn zipf(random: &mut Random, n: u64) -> u64 {
    const S: f64 = 0.99;
    let u = (random.next() >> 11) as f64 / (1u64 << 53) as f64;
    let top = (n as f64).powf(1.0 - S);
    let x = (1.0 + u * (top - 1.0)).powf(1.0 / (1.0 - S));
    mix(x as u64) % n
}

/// Which keys are stored, asked for and added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Spread over 64 bits, asked for evenly.
    Uniform,
    /// Even numbers from 0 on; new ones come at the end, in order.
    Ascending,
    /// Spread over 64 bits, asked for by Zipf's law; new ones come beside those asked for.
    Zipf,
    /// Node ids of OpenStreetMap: dense runs with gaps; new ones fill gaps.
    Osm,
}

impl Pattern {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Uniform, Self::Ascending, Self::Zipf, Self::Osm];

    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Ascending => "ascending",
            Self::Zipf => "zipf",
            Self::Osm => "osm",
        }
    }

    /// The sorted keys of a set of `n`.
    pub fn keys(self, n: u64) -> Vec<u64> {
        match self {
            Self::Uniform | Self::Zipf => (0..n).map(|i| spread(i, n)).collect(),
            Self::Ascending => (0..n).map(|i| i * 2).collect(),
            Self::Osm => node_ids(n).collect(),
        }
    }

    /// A key to ask for that is there.
    pub fn present(self, random: &mut Random, keys: &[u64]) -> u64 {
        let n = keys.len() as u64;
        let rank = if self == Self::Zipf {
            zipf(random, n)
        } else {
            random.below(n)
        };
        keys[rank as usize]
    }

    /// A key to ask for that is not there.
    pub fn absent(self, random: &mut Random, keys: &[u64]) -> u64 {
        match self {
            Self::Uniform | Self::Zipf => absent(random),
            Self::Ascending => random.below(keys.len() as u64) * 2 + 1,
            Self::Osm => loop {
                let key = random.below(keys[keys.len() - 1]);
                if keys.binary_search(&key).is_err() {
                    return key;
                }
            },
        }
    }

    /// Up to `m` different keys that are not there, in the order in which they come.
    pub fn fresh(self, random: &mut Random, keys: &[u64], m: usize) -> Vec<u64> {
        if self == Self::Ascending {
            let last = keys[keys.len() - 1];
            return (1..=m as u64).map(|i| last + 2 * i).collect();
        }
        let mut fresh: Vec<u64> = (0..m)
            .map(|_| match self {
                Self::Zipf => self.present(random, keys).wrapping_add(random.below(1 << 24)) | 1,
                _ => self.absent(random, keys),
            })
            .collect();
        fresh.sort_unstable();
        fresh.dedup();
        for i in (1..fresh.len()).rev() {
            fresh.swap(i, random.below(i as u64 + 1) as usize);
        }
        fresh
    }
}
