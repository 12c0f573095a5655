//! Bitmaps: the densest sets, with up to eight keys a byte. A change is a bit: it needs no decoding of tens of thousands of keys.
//!
//! ```text
//! payload: first key u64, then one bit a key from it on, least significant first
//! ```
//!
//! Payloads under change are as long as an extent has room and end in zeros; [`finish`] tells what of them is to be written.

use super::{BITMAP, Encoded, Page, u64_at, words};

/// Bytes before the bits.
const BASE: usize = 8;

/// Leading keys that a bitmap of `limit` bytes would hold.
pub(super) fn fit(keys: &[u64], limit: usize) -> usize {
    let bits = (limit - BASE) as u64 * 8;
    keys.partition_point(|k| k - keys[0] < bits).min(u16::MAX.into())
}

/// Writes the first `count` keys as a payload.
pub(super) fn write(keys: &[u64], count: usize, out: &mut [u8]) -> Encoded {
    let span = (keys[count - 1] - keys[0]) as usize + 1;
    let used = BASE + span.div_ceil(8);
    out[..BASE].copy_from_slice(&keys[0].to_le_bytes());
    out[BASE..used].fill(0);
    for k in &keys[..count] {
        flip(out, (k - keys[0]) as usize);
    }
    Encoded {
        codec: BITMAP,
        count,
        used,
    }
}

/// Copies the payload of an extent to where it can be changed. `None` when it is not a bitmap, one too long for `out`, or one that contradicts its
/// header, which [`Page::decode`] tells.
pub fn copy(page: &Page<'_>, out: &mut [u8]) -> Option<()> {
    let (base, map) = page.bitmap()?;
    let ones: u32 = words(map).map(u64::count_ones).sum();
    if ones as usize != page.count() || base.checked_add(map.len() as u64 * 8).is_none() {
        return None;
    }
    let (head, tail) = out.split_at_mut_checked(BASE + map.len())?;
    head[..BASE].copy_from_slice(&base.to_le_bytes());
    head[BASE..].copy_from_slice(map);
    tail.fill(0);
    Some(())
}

/// The keys that a payload of this length can hold: first, and last.
pub fn span(payload: &[u8]) -> (u64, u64) {
    let base = u64_at(payload, 0);
    (base, base.saturating_add((payload.len() - BASE) as u64 * 8 - 1))
}

/// The bit of a key, if there is room for it.
pub fn place(payload: &[u8], key: u64) -> Option<usize> {
    let (low, high) = span(payload);
    (low..=high).contains(&key).then(|| (key - low) as usize)
}

/// Whether a bit is set.
pub fn holds(payload: &[u8], bit: usize) -> bool {
    payload[BASE + bit / 8] >> (bit % 8) & 1 == 1
}

/// Sets or clears a bit.
pub fn flip(payload: &mut [u8], bit: usize) {
    payload[BASE + bit / 8] ^= 1 << (bit % 8);
}

/// What to write of a payload with `count` keys; `None` when the keys are better written anew: few of them are left, or the first is gone.
pub fn finish(payload: &[u8], count: usize) -> Option<Encoded> {
    let zeros = payload
        .rchunks(8)
        .take_while(|word| word.iter().all(|&b| b == 0))
        .count();
    let rest = &payload[..payload.len().saturating_sub(zeros * 8)];
    let used = rest.iter().rposition(|&b| b != 0)?.max(BASE) + 1;
    // A key a byte is where groups of differences become smaller.
    (holds(payload, 0) && count >= used).then_some(Encoded {
        codec: BITMAP,
        count,
        used,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Shape;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn changes_in_place_are_changes_of_the_set(
            start in prop_oneof![Just(0u64), any::<u64>(), Just(u64::MAX - 801)],
            keys in prop::collection::btree_set(0u64..700, 1..600),
            changes in prop::collection::vec(0u64..1000, 0..200),
        ) {
            let shape = Shape::new(&[]).unwrap();
            let mut set: BTreeSet<u64> = keys.iter().filter_map(|k| start.checked_add(*k)).collect();
            let sorted: Vec<u64> = set.iter().copied().collect();
            let mut written = vec![7; 108];
            let n = fit(&sorted, written.len());
            let encoded = write(&sorted, n, &mut written);
            sorted[n..].iter().for_each(|k| { set.remove(k); });
            let mut payload = vec![9; 108];
            copy(&Page::of_bitmap(&shape, &written[..encoded.used], n), &mut payload).unwrap();
            let mut count = n;
            for key in changes.into_iter().filter_map(|c| start.checked_add(c)) {
                let Some(bit) = place(&payload, key) else {
                    prop_assert!(key < sorted[0] || key - sorted[0] >= 800);
                    continue;
                };
                prop_assert_eq!(holds(&payload, bit), set.contains(&key));
                flip(&mut payload, bit);
                if set.remove(&key) { count -= 1 } else { set.insert(key); count += 1 }
            }
            let mut rows = super::super::Rows::default();
            Page::of_bitmap(&shape, &payload, count).decode(&mut rows).unwrap();
            prop_assert!(rows.keys.iter().eq(&set));
            if let Some(e) = finish(&payload, count) {
                let mut anew = vec![0; 108];
                prop_assert_eq!(write(&rows.keys, count, &mut anew), e);
                prop_assert_eq!(&anew[..e.used], &payload[..e.used]);
            }
        }
    }
}
