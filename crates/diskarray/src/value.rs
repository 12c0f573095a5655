//! Fixed-size values and how they fall into integer columns.

/// Most bytes of a value.
pub const MAX_VALUE: usize = 32;
/// Most columns of a value.
pub const MAX_COLUMNS: usize = 8;

/// A value of fixed width, stored as little-endian integer columns that are packed one by one.
///
/// Columns that vary little among neighbouring keys (coordinates, counters, times) take few bits, so cut a value
/// where its parts move independently. Widths are in bytes, 1 to 8 each, at most [`MAX_COLUMNS`] columns and
/// [`MAX_VALUE`] bytes in all; each column is read as a signed integer.
pub trait Value: Copy + PartialEq + std::fmt::Debug + Send + Sync + 'static {
    /// Bytes of each column, in storage order. Empty for a set.
    const COLUMNS: &'static [u8];
    /// Writes the value; `out` has exactly the sum of [`Self::COLUMNS`] bytes.
    fn store(&self, out: &mut [u8]);
    /// Reads a value back from bytes written by [`Self::store`].
    fn load(bytes: &[u8]) -> Self;
}

impl Value for () {
    const COLUMNS: &'static [u8] = &[];
    fn store(&self, _: &mut [u8]) {}
    fn load(_: &[u8]) -> Self {}
}

macro_rules! integer_value {
    ($($t:ty),*) => {$(
        impl Value for $t {
            const COLUMNS: &'static [u8] = &[size_of::<$t>() as u8];
            fn store(&self, out: &mut [u8]) {
                out.copy_from_slice(&self.to_le_bytes());
            }
            fn load(bytes: &[u8]) -> Self {
                let mut raw = [0; size_of::<$t>()];
                raw.copy_from_slice(bytes);
                Self::from_le_bytes(raw)
            }
        }
    )*};
}
integer_value!(u8, i8, u16, i16, u32, i32, u64, i64);

macro_rules! pair_value {
    ($($t:ty),*) => {$(
        impl Value for ($t, $t) {
            const COLUMNS: &'static [u8] = &[size_of::<$t>() as u8, size_of::<$t>() as u8];
            fn store(&self, out: &mut [u8]) {
                let (a, b) = out.split_at_mut(size_of::<$t>());
                self.0.store(a);
                self.1.store(b);
            }
            fn load(bytes: &[u8]) -> Self {
                let (a, b) = bytes.split_at(size_of::<$t>());
                (<$t>::load(a), <$t>::load(b))
            }
        }
    )*};
}
pair_value!(i32, u32, i64, u64);

macro_rules! bytes_value {
    ($($n:literal => $columns:expr),*) => {$(
        impl Value for [u8; $n] {
            const COLUMNS: &'static [u8] = &$columns;
            fn store(&self, out: &mut [u8]) {
                out.copy_from_slice(self);
            }
            fn load(bytes: &[u8]) -> Self {
                let mut raw = [0; $n];
                raw.copy_from_slice(bytes);
                raw
            }
        }
    )*};
}
bytes_value!(1 => [1], 2 => [2], 4 => [4], 8 => [8], 12 => [8, 4], 16 => [8, 8], 24 => [8, 8, 8], 32 => [8, 8, 8, 8]);

/// The shape of a value at run time: what [`Value::COLUMNS`] says, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub columns: Vec<u8>,
    pub width: usize,
}

impl Shape {
    /// `None` when the columns break the limits above.
    pub fn new(columns: &[u8]) -> Option<Self> {
        let width = columns.iter().map(|&c| c as usize).sum();
        let fits = columns.len() <= MAX_COLUMNS && width <= MAX_VALUE;
        (fits && columns.iter().all(|c| (1..=8).contains(c))).then(|| Self {
            columns: columns.to_vec(),
            width,
        })
    }

    pub fn of<V: Value>() -> Self {
        Self::new(V::COLUMNS).expect("Value::COLUMNS keeps the documented limits")
    }
}
