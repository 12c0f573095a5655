//! Groups of 64 keys behind a skip table; keys and value columns packed per group.
//!
//! ```text
//! payload: bases   g x u64      first key of each group, g = ceil(count / 64)
//!          table   g x { u16 offset, u8 key mode, per column { base: column bytes, u8 mode } }
//!          data    per group, at its offset: columns in order, then keys; each string byte aligned
//! key mode 0..=64: differences to the previous key, minus 1, in that many bits (0: consecutive keys)
//!          128:    bitmap, bit j set when base + 1 + j is a key; it ends where the next group starts
//! column mode: low 7 bits = width b; high bit clear: value - base in b bits (base is the least value);
//!          high bit set: base is the first value, then zigzag differences to the predecessor
//! ```

use super::bits;
use crate::value::{MAX_COLUMNS, Shape};

/// Keys of a full group.
pub const GROUP: usize = 64;
/// Most groups of one extent: bounds what one change has to decode.
pub const MAX_GROUPS: usize = 128;

const BITMAP: u8 = 128;
const DELTA: u8 = 128;

/// Bytes of one row of the skip table, the base key included.
fn stride(shape: &Shape) -> usize {
    8 + row(shape)
}

fn row(shape: &Shape) -> usize {
    3 + shape.columns.len() + shape.width
}

/// Reads a column of a row-major value as a signed integer.
#[inline]
fn load_column(bytes: &[u8]) -> i64 {
    let mut raw = [0u8; 8];
    match bytes.len() {
        4 => return i64::from(i32::from_le_bytes(bytes.try_into().expect("four bytes"))),
        8 => return i64::from_le_bytes(bytes.try_into().expect("eight bytes")),
        n => raw[..n].copy_from_slice(bytes),
    }
    let unused = 64 - 8 * bytes.len() as u32;
    (i64::from_le_bytes(raw) << unused) >> unused
}

#[inline]
fn store_column(v: i64, out: &mut [u8]) {
    match out.len() {
        4 => out.copy_from_slice(&(v as i32).to_le_bytes()),
        8 => out.copy_from_slice(&v.to_le_bytes()),
        n => out.copy_from_slice(&v.to_le_bytes()[..n]),
    }
}

/// How one group would be written, and its size.
struct GroupPlan {
    key_mode: u8,
    columns: [(i64, u8); MAX_COLUMNS],
    data: usize,
}

fn plan(shape: &Shape, keys: &[u64], vals: &[u8]) -> GroupPlan {
    let n = keys.len();
    let widest = keys.windows(2).fold(0, |w, k| w | (k[1] - k[0] - 1));
    let delta_bits = bits::width(widest);
    let delta_bytes = bits::bytes(n - 1, delta_bits);
    let span = keys[n - 1] - keys[0];
    let (key_mode, key_bytes) = match (span as usize).div_ceil(8) {
        bitmap if span < 1 << 16 && bitmap < delta_bytes => (BITMAP, bitmap),
        _ => (delta_bits as u8, delta_bytes),
    };
    let mut columns = [(0, 0); MAX_COLUMNS];
    let mut data = key_bytes;
    let mut from = 0;
    for (slot, &w) in columns.iter_mut().zip(&shape.columns) {
        let to = from + w as usize;
        let at = |i: usize| load_column(&vals[i * shape.width + from..i * shape.width + to]);
        let first = at(0);
        let (mut low, mut high, mut previous, mut zig) = (first, first, first, 0);
        for i in 1..n {
            let v = at(i);
            low = low.min(v);
            high = high.max(v);
            zig |= bits::zigzag(v.wrapping_sub(previous));
            previous = v;
        }
        let frame = bits::width(high.wrapping_sub(low) as u64);
        let delta = bits::width(zig);
        let (frame_bytes, delta_bytes) = (bits::bytes(n, frame), bits::bytes(n - 1, delta));
        // A frame of reference is read at random; differences have to be clearly smaller to be worth a scan.
        if delta_bytes + n / 16 < frame_bytes {
            *slot = (first, DELTA | delta as u8);
            data += delta_bytes;
        } else {
            *slot = (low, frame as u8);
            data += frame_bytes;
        }
        from = to;
    }
    GroupPlan {
        key_mode,
        columns,
        data,
    }
}

fn write_group(shape: &Shape, keys: &[u64], vals: &[u8], plan: &GroupPlan, out: &mut Vec<u8>) {
    let mut from = 0;
    for (&(base, mode), &w) in plan.columns.iter().zip(&shape.columns) {
        let to = from + w as usize;
        let at = |i: usize| load_column(&vals[i * shape.width + from..i * shape.width + to]);
        let width = u32::from(mode & 127);
        let mut writer = bits::Writer::new(out);
        if mode & DELTA == 0 {
            (0..keys.len()).for_each(|i| writer.push(at(i).wrapping_sub(base) as u64, width));
        } else {
            (1..keys.len()).for_each(|i| writer.push(bits::zigzag(at(i).wrapping_sub(at(i - 1))), width));
        }
        writer.finish();
        from = to;
    }
    if plan.key_mode == BITMAP {
        let start = out.len();
        let span = (keys[keys.len() - 1] - keys[0]) as usize;
        out.resize(start + span.div_ceil(8), 0);
        for &k in &keys[1..] {
            let bit = (k - keys[0] - 1) as usize;
            out[start + bit / 8] |= 1 << (bit % 8);
        }
    } else {
        let mut writer = bits::Writer::new(out);
        keys.windows(2)
            .for_each(|k| writer.push(k[1] - k[0] - 1, u32::from(plan.key_mode)));
        writer.finish();
    }
}

/// Writes as many leading keys as fit `limit` bytes into `out` (cleared first); returns how many.
pub fn encode(shape: &Shape, keys: &[u64], vals: &[u8], limit: usize, out: &mut Vec<u8>) -> usize {
    let mut plans: Vec<(usize, GroupPlan)> = Vec::with_capacity(16);
    let (mut n, mut size) = (0, 0);
    while n < keys.len() && plans.len() < MAX_GROUPS {
        let mut take = GROUP.min(keys.len() - n);
        let fits = loop {
            let p = plan(shape, &keys[n..n + take], &vals[n * shape.width..]);
            if size + stride(shape) + p.data <= limit {
                break Some(p);
            }
            // The last group of an extent may be short, to fill the block.
            take = match take {
                0..=4 => break None,
                t => t * 3 / 4,
            };
        };
        let Some(p) = fits else { break };
        size += stride(shape) + p.data;
        plans.push((take, p));
        n += take;
        if take < GROUP {
            break;
        }
    }
    out.clear();
    let mut at = 0;
    for &(take, _) in &plans {
        out.extend_from_slice(&keys[at].to_le_bytes());
        at += take;
    }
    let mut offset = plans.len() * stride(shape);
    for (_, p) in &plans {
        out.extend_from_slice(&(offset as u16).to_le_bytes());
        out.push(p.key_mode);
        for (&(base, mode), &w) in p.columns.iter().zip(&shape.columns) {
            out.extend_from_slice(&base.to_le_bytes()[..w as usize]);
            out.push(mode);
        }
        offset += p.data;
    }
    at = 0;
    for (take, p) in &plans {
        write_group(shape, &keys[at..at + take], &vals[at * shape.width..], p, out);
        at += take;
    }
    debug_assert_eq!(out.len(), offset);
    n
}

/// A packed payload; every access is bounds-checked, whatever the bytes say.
#[derive(Clone, Copy)]
pub struct Packed<'a> {
    shape: &'a Shape,
    data: &'a [u8],
    count: usize,
    groups: usize,
}

/// One group, cut into its strings.
struct Group<'a> {
    base: u64,
    n: usize,
    key_mode: u8,
    keys: &'a [u8],
    row: &'a [u8],
    columns: &'a [u8],
}

impl<'a> Packed<'a> {
    /// `None` when the skip table does not fit the payload or its offsets go astray.
    pub fn new(shape: &'a Shape, data: &'a [u8], count: usize) -> Option<Self> {
        let groups = count.div_ceil(GROUP);
        let page = Self {
            shape,
            data,
            count,
            groups,
        };
        (groups <= MAX_GROUPS && groups * stride(shape) <= data.len()).then_some(())?;
        (0..groups).all(|g| page.group(g).is_some()).then_some(page)
    }

    fn base(&self, g: usize) -> u64 {
        u64::from_le_bytes(self.data[g * 8..g * 8 + 8].try_into().expect("eight bytes"))
    }

    fn offset(&self, g: usize) -> usize {
        if g == self.groups {
            return self.data.len();
        }
        let at = self.groups * 8 + g * row(self.shape);
        usize::from(u16::from_le_bytes([self.data[at], self.data[at + 1]]))
    }

    fn group(&self, g: usize) -> Option<Group<'a>> {
        let n = GROUP.min(self.count - g * GROUP);
        let at = self.groups * 8 + g * row(self.shape);
        let row = &self.data[at..at + row(self.shape)];
        let section = self.data.get(self.offset(g)..self.offset(g + 1))?;
        let (mut length, mut at) = (0, 3);
        for &w in &self.shape.columns {
            let mode = row[at + w as usize];
            let width = u32::from(mode & 127);
            if width > 64 {
                return None;
            }
            length += bits::bytes(if mode & DELTA == 0 { n } else { n - 1 }, width);
            at += w as usize + 1;
        }
        let key_mode = row[2];
        if length > section.len() || (key_mode > 64 && key_mode != BITMAP) {
            return None;
        }
        let (columns, keys) = section.split_at(length);
        if key_mode != BITMAP && keys.len() < bits::bytes(n - 1, u32::from(key_mode)) {
            return None;
        }
        Some(Group {
            base: self.base(g),
            n,
            key_mode,
            keys,
            row,
            columns,
        })
    }

    /// Group that would hold `key`, 0 when it lies before all.
    fn group_of(&self, key: u64) -> usize {
        let (mut low, mut high) = (0, self.groups);
        while low < high {
            let mid = (low + high) / 2;
            if self.base(mid) <= key {
                low = mid + 1
            } else {
                high = mid
            }
        }
        low.saturating_sub(1)
    }

    /// Number of keys below `key`, and whether `key` itself is there.
    pub fn lower_bound(&self, key: u64) -> (usize, bool) {
        let g = self.group_of(key);
        let Some(group) = (self.groups > 0).then(|| self.group(g)).flatten() else {
            return (0, false);
        };
        let (i, hit) = group.lower_bound(key);
        (g * GROUP + i, hit)
    }

    /// The `i`-th key; 0 beyond the end.
    pub fn key_at(&self, i: usize) -> u64 {
        if i >= self.count {
            return 0;
        }
        self.group(i / GROUP).map_or(0, |g| g.key_at(i % GROUP))
    }

    /// Writes the `i`-th value, row-major.
    pub fn value_at(&self, i: usize, out: &mut [u8]) {
        if let Some(group) = (i < self.count).then(|| self.group(i / GROUP)).flatten() {
            group.value_at(self.shape, i % GROUP, out);
        }
    }

    /// Appends all keys and values.
    pub fn decode(&self, keys: &mut Vec<u64>, vals: &mut Vec<u8>) {
        for group in (0..self.groups).filter_map(|g| self.group(g)) {
            group.decode_keys(keys);
            group.decode_values(self.shape, vals);
        }
    }
}

impl Group<'_> {
    fn lower_bound(&self, key: u64) -> (usize, bool) {
        if key <= self.base {
            return (0, key == self.base);
        }
        if self.key_mode == BITMAP {
            let bit = key - self.base - 1;
            let whole = ((bit / 64) as usize).min(self.keys.len().div_ceil(8));
            let ones: u32 = (0..whole)
                .map(|w| bits::get(self.keys, w * 64, 64).count_ones())
                .sum();
            let rest = (bit % 64) as u32;
            let word = bits::get(self.keys, whole * 64, 64);
            let below = (word & !(u64::MAX << rest)).count_ones();
            return (1 + (ones + below) as usize, (word >> rest) & 1 == 1);
        }
        let width = u32::from(self.key_mode);
        if width == 0 {
            let ahead = key - self.base;
            return if ahead < self.n as u64 {
                (ahead as usize, true)
            } else {
                (self.n, false)
            };
        }
        let mut k = self.base;
        for i in 1..self.n {
            k = k
                .wrapping_add(bits::get(self.keys, (i - 1) * width as usize, width))
                .wrapping_add(1);
            if k >= key {
                return (i, k == key);
            }
        }
        (self.n, false)
    }

    fn key_at(&self, i: usize) -> u64 {
        if i == 0 {
            return self.base;
        }
        if self.key_mode == BITMAP {
            let mut left = i - 1;
            for w in 0..self.keys.len().div_ceil(8) {
                let mut word = bits::get(self.keys, w * 64, 64);
                let ones = word.count_ones() as usize;
                if left < ones {
                    (0..left).for_each(|_| word &= word - 1);
                    return self
                        .base
                        .wrapping_add(1 + w as u64 * 64 + u64::from(word.trailing_zeros()));
                }
                left -= ones;
            }
            return self.base;
        }
        let width = u32::from(self.key_mode);
        let gaps = (0..i).fold(0u64, |sum, j| {
            sum.wrapping_add(bits::get(self.keys, j * width as usize, width))
        });
        self.base.wrapping_add(gaps).wrapping_add(i as u64)
    }

    fn decode_keys(&self, keys: &mut Vec<u64>) {
        let start = keys.len();
        keys.push(self.base);
        if self.key_mode == BITMAP {
            'words: for w in 0..self.keys.len().div_ceil(8) {
                let mut word = bits::get(self.keys, w * 64, 64);
                while word != 0 {
                    if keys.len() == start + self.n {
                        break 'words;
                    }
                    let bit = u64::from(word.trailing_zeros());
                    keys.push(self.base.wrapping_add(1 + w as u64 * 64 + bit));
                    word &= word - 1;
                }
            }
            // Fewer bits than keys is damage; repeating the last key makes the order check of the caller fail.
            let last = keys[keys.len() - 1];
            keys.resize(start + self.n, last);
            return;
        }
        let width = u32::from(self.key_mode);
        let mut k = self.base;
        for i in 0..self.n - 1 {
            k = k
                .wrapping_add(bits::get(self.keys, i * width as usize, width))
                .wrapping_add(1);
            keys.push(k);
        }
    }

    fn value_at(&self, shape: &Shape, i: usize, out: &mut [u8]) {
        let (mut from, mut at, mut string) = (0, 3, self.columns);
        for &w in &shape.columns {
            let w = w as usize;
            let base = load_column(&self.row[at..at + w]);
            let mode = self.row[at + w];
            let width = mode & 127;
            let v = if mode & DELTA == 0 {
                base.wrapping_add(bits::get(string, i * width as usize, width.into()) as i64)
            } else {
                (0..i).fold(base, |v, j| {
                    v.wrapping_add(bits::unzigzag(bits::get(
                        string,
                        j * width as usize,
                        width.into(),
                    )))
                })
            };
            store_column(v, &mut out[from..from + w]);
            let fields = if mode & DELTA == 0 { self.n } else { self.n - 1 };
            string = &string[bits::bytes(fields, width.into())..];
            from += w;
            at += w + 1;
        }
    }

    fn decode_values(&self, shape: &Shape, vals: &mut Vec<u8>) {
        let start = vals.len();
        vals.resize(start + self.n * shape.width, 0);
        let rows = &mut vals[start..];
        let (mut from, mut at, mut string) = (0, 3, self.columns);
        for &w in &shape.columns {
            let w = w as usize;
            let base = load_column(&self.row[at..at + w]);
            let mode = self.row[at + w];
            let width = usize::from(mode & 127);
            let mut previous = base;
            for (i, out) in rows.chunks_exact_mut(shape.width).enumerate() {
                let v = if mode & DELTA == 0 {
                    base.wrapping_add(bits::get(string, i * width, width as u32) as i64)
                } else {
                    if i > 0 {
                        let step = bits::get(string, (i - 1) * width, width as u32);
                        previous = previous.wrapping_add(bits::unzigzag(step));
                    }
                    previous
                };
                store_column(v, &mut out[from..from + w]);
            }
            let fields = if mode & DELTA == 0 { self.n } else { self.n - 1 };
            string = &string[bits::bytes(fields, width as u32)..];
            from += w;
            at += w + 1;
        }
    }
}
