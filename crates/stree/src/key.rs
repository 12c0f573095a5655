//! The key types.

mod sealed {
    pub trait Sealed {}
    impl Sealed for u32 {}
    impl Sealed for u64 {}
    impl Sealed for i32 {}
    impl Sealed for i64 {}
}

/// A key: `u32`, `u64`, `i32` or `i64`.
///
/// Everything inside the crate compares *ordered bits*: an unsigned number of the key's width whose order is the key's order.
/// Unsigned keys are their own ordered bits; signed keys flip the top bit. The trait is sealed: the kernels are written for
/// these four widths, and reading a column out of a file is sound only for types in which every bit pattern is a value.
pub trait Key:
    sealed::Sealed + Copy + Ord + Send + Sync + std::fmt::Debug + std::hash::Hash + 'static
{
    /// Keys in one 64-byte line.
    const PER_LINE: usize = 64 / size_of::<Self>();
    /// Width in bits.
    const BITS: u32 = size_of::<Self>() as u32 * 8;
    /// XOR of this with a stored key gives its ordered bits: zero, or the sign bit.
    #[doc(hidden)]
    const FLIP: u64;
    /// Number of the type in a file header.
    #[doc(hidden)]
    const TAG: u32;
    /// Name of the type in messages.
    #[doc(hidden)]
    const NAME: &'static str;
    /// The largest key.
    const MAX: Self;
    /// The smallest key.
    const MIN: Self;

    /// Ordered bits, zero-extended to 64.
    fn ordered(self) -> u64;

    /// The key with these ordered bits; bits above the key's width are ignored.
    fn from_ordered(bits: u64) -> Self;
}

macro_rules! key {
    ($type:ty, $unsigned:ty, $flip:expr, $tag:expr) => {
        impl Key for $type {
            const FLIP: u64 = $flip;
            const TAG: u32 = $tag;
            const NAME: &'static str = stringify!($type);
            const MAX: Self = <$type>::MAX;
            const MIN: Self = <$type>::MIN;

            #[inline(always)]
            fn ordered(self) -> u64 {
                u64::from(self as $unsigned) ^ $flip
            }

            #[inline(always)]
            fn from_ordered(bits: u64) -> Self {
                (bits ^ $flip) as $type
            }
        }
    };
}

key!(u32, u32, 0, 1);
key!(u64, u64, 0, 2);
key!(i32, u32, 1 << 31, 3);
key!(i64, u64, 1 << 63, 4);

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip<K: Key>(keys: &[K]) {
        for pair in keys.windows(2) {
            assert!(pair[0].ordered() < pair[1].ordered(), "{pair:?}");
        }
        for &key in keys {
            assert_eq!(K::from_ordered(key.ordered()), key);
        }
    }

    #[test]
    fn ordered_bits_keep_the_order() {
        round_trip(&[0u32, 1, u32::MAX]);
        round_trip(&[0u64, 1, u64::MAX]);
        round_trip(&[i32::MIN, -1, 0, 1, i32::MAX]);
        round_trip(&[i64::MIN, -1, 0, 1, i64::MAX]);
    }
}
