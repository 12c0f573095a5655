//! Little-endian bit strings.

/// Reads `width <= 64` bits at bit `at`; bits beyond the slice read as zero.
#[inline]
pub fn get(data: &[u8], at: usize, width: u32) -> u64 {
    if width == 0 {
        return 0;
    }
    let (byte, shift) = (at >> 3, (at & 7) as u32);
    let mask = u64::MAX >> (64 - width);
    if let Some(word) = data.get(byte..byte + 8) {
        let low = u64::from_le_bytes(word.try_into().expect("eight bytes")) >> shift;
        if shift + width <= 64 {
            return low & mask;
        }
        let next = u64::from(data.get(byte + 8).copied().unwrap_or(0));
        return (low | (next << (64 - shift))) & mask;
    }
    let mut raw = [0u8; 16];
    if let Some(rest) = data.get(byte..) {
        raw[..rest.len()].copy_from_slice(rest);
    }
    ((u128::from_le_bytes(raw) >> shift) as u64) & mask
}

/// Appends bit fields to a byte vector; each string starts and ends on a byte.
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    word: u64,
    fill: u32,
}

impl<'a> Writer<'a> {
    /// Starts a string at the end of `out`.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Self {
            out,
            word: 0,
            fill: 0,
        }
    }

    /// Appends the low `width <= 64` bits of `value`; higher bits must be zero.
    #[inline]
    pub fn push(&mut self, value: u64, width: u32) {
        if width == 0 {
            return;
        }
        self.word |= value << self.fill;
        let taken = 64 - self.fill;
        if width >= taken {
            self.out.extend_from_slice(&self.word.to_le_bytes());
            self.word = if taken == 64 { 0 } else { value >> taken };
            self.fill = width - taken;
        } else {
            self.fill += width;
        }
    }

    /// Pads to a whole byte.
    pub fn finish(self) {
        let bytes = self.fill.div_ceil(8) as usize;
        self.out.extend_from_slice(&self.word.to_le_bytes()[..bytes]);
    }
}

/// Bytes of a string of `n` fields of `width` bits.
pub fn bytes(n: usize, width: u32) -> usize {
    (n * width as usize).div_ceil(8)
}

/// Bits needed to write `v`.
pub fn width(v: u64) -> u32 {
    64 - v.leading_zeros()
}

/// Signed differences as small unsigned numbers.
pub fn zigzag(v: i64) -> u64 {
    ((v << 1) ^ (v >> 63)) as u64
}

/// Inverse of [`zigzag`].
pub fn unzigzag(v: u64) -> i64 {
    ((v >> 1) as i64) ^ -((v & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fields_come_back(fields in prop::collection::vec((any::<u64>(), 0u32..=64), 0..200)) {
            let mut out = vec![7u8];
            let mut w = Writer::new(&mut out);
            for &(v, width) in &fields {
                w.push(if width == 0 { 0 } else { v & (u64::MAX >> (64 - width)) }, width);
            }
            w.finish();
            let mut at = 8;
            for &(v, width) in &fields {
                let want = if width == 0 { 0 } else { v & (u64::MAX >> (64 - width)) };
                prop_assert_eq!(get(&out, at, width), want);
                at += width as usize;
            }
            prop_assert_eq!(out.len(), at.div_ceil(8));
        }

        #[test]
        fn zigzag_comes_back(v: i64) {
            prop_assert_eq!(unzigzag(zigzag(v)), v);
        }
    }
}
