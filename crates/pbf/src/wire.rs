//! The protobuf wire format: varints, fields, packed columns.
//!
//! Everything is a view over the caller's bytes. Varints of up to ten bytes are accepted however they are
//! padded, as protobuf does; an eleventh byte is an error.

pub(crate) mod bulk;
mod columns;

pub use columns::{Deltas, Refs, Varints, count_checked, count_varints};

/// What can be wrong at the level of protobuf's wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A varint or a length-delimited field runs past the end of its message.
    #[error("a field runs past the end of its message")]
    Truncated,
    /// A varint of more than ten bytes.
    #[error("a varint is longer than ten bytes")]
    VarintTooLong,
    /// A wire type that protobuf 3 does not have (the deprecated groups among them), or field number 0.
    #[error("a field has wire type {0} where none or another one is allowed")]
    WireType(u8),
}

/// Reads one varint from the front of `data` and moves past it.
#[inline(always)]
pub fn read_varint(data: &mut &[u8]) -> Result<u64, WireError> {
    match data {
        [byte, rest @ ..] if *byte < 0x80 => {
            *data = rest;
            Ok(u64::from(*byte))
        }
        [first, second, rest @ ..] if *second < 0x80 => {
            let value = u64::from(*first & 0x7f) | u64::from(*second) << 7;
            *data = rest;
            Ok(value)
        }
        _ => read_long_varint(data),
    }
}

#[inline]
fn read_long_varint(data: &mut &[u8]) -> Result<u64, WireError> {
    if let Some((head, _)) = data.split_first_chunk::<8>() {
        let word = u64::from_le_bytes(*head);
        let stops = !word & 0x8080_8080_8080_8080;
        if stops != 0 {
            let bits = stops.trailing_zeros() + 1;
            *data = &data[bits as usize / 8..];
            return Ok(gather_sevens(word & (u64::MAX >> (64 - bits))));
        }
    }
    let mut value = 0u64;
    for (i, &byte) in data.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f).wrapping_shl(7 * i as u32);
        if byte < 0x80 {
            *data = &data[i + 1..];
            return Ok(value);
        }
    }
    Err(if data.len() < 10 {
        WireError::Truncated
    } else {
        WireError::VarintTooLong
    })
}

/// Packs the low seven bits of each of eight bytes together.
#[inline(always)]
fn gather_sevens(word: u64) -> u64 {
    let x = (word & 0x007f_007f_007f_007f) | (word & 0x7f00_7f00_7f00_7f00) >> 1;
    let x = (x & 0x0000_3fff_0000_3fff) | (x & 0x3fff_0000_3fff_0000) >> 2;
    (x & 0x0fff_ffff) | (x & 0x0fff_ffff_0000_0000) >> 4
}

/// The signed number that a `sint64` varint stands for.
#[inline(always)]
pub const fn zigzag_decode(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// The varint value of a `sint64`.
#[inline(always)]
pub const fn zigzag_encode(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Appends a varint.
#[inline(always)]
pub fn write_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a zigzag-coded varint.
#[inline(always)]
pub fn write_sint(out: &mut Vec<u8>, value: i64) {
    write_varint(out, zigzag_encode(value));
}

/// Appends varints: faster than one by one for more than a few.
pub fn write_varints(out: &mut Vec<u8>, values: impl IntoIterator<Item = u64>) {
    bulk::encode_all(out, values.into_iter());
}

/// Appends the differences of values that come after `last`, zigzag-coded; gives the last of them.
pub fn write_deltas(out: &mut Vec<u8>, last: i64, values: impl IntoIterator<Item = i64>) -> i64 {
    let mut last = last;
    bulk::encode_all(
        out,
        values.into_iter().map(|value| {
            let delta = value.wrapping_sub(last);
            last = value;
            zigzag_encode(delta)
        }),
    );
    last
}

/// The bytes of a block from those of a part of it on: what can be read there.
#[inline(always)]
pub(crate) fn from_here<'a>(block: &'a [u8], part: &'a [u8]) -> &'a [u8] {
    let start = (part.as_ptr() as usize).wrapping_sub(block.as_ptr() as usize);
    let all = block.get(start..).filter(|all| all.len() >= part.len());
    all.unwrap_or(part)
}

/// Bytes of a length-delimited field of a number up to 15 with so many bytes in it.
pub(crate) fn bytes_field_len(len: usize) -> usize {
    let bits = 64 - (len as u64 | 1).leading_zeros() as usize;
    1 + bits.div_ceil(7) + len
}

/// Appends a varint field.
#[inline]
pub fn write_varint_field(out: &mut Vec<u8>, field: u32, value: u64) {
    write_varint(out, u64::from(field) << 3);
    write_varint(out, value);
}

/// Appends a length-delimited field.
#[inline]
pub fn write_bytes_field(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    write_varint(out, u64::from(field) << 3 | 2);
    write_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a length-delimited field whose bytes `write` appends. `expected` tells about how many these are: where
/// their number has as many digits, they need not be moved.
pub(crate) fn write_field_with<E>(
    out: &mut Vec<u8>,
    field: u32,
    expected: usize,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    write_varint(out, u64::from(field) << 3 | 2);
    let length = out.len();
    write_varint(out, expected as u64);
    let start = out.len();
    write(out)?;
    let mut found = Vec::new();
    write_varint(&mut found, (out.len() - start) as u64);
    out.splice(length..start, found);
    Ok(())
}

/// Appends a length-delimited field unless it is empty.
#[inline]
pub fn write_packed_field(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    if !bytes.is_empty() {
        write_bytes_field(out, field, bytes);
    }
}

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// Wire type 0.
    Varint(u64),
    /// Wire type 1.
    Fixed64(u64),
    /// Wire type 2.
    Bytes(&'a [u8]),
    /// Wire type 5.
    Fixed32(u32),
}

impl<'a> Value<'a> {
    /// The number of a varint field.
    #[inline]
    pub fn varint(self) -> Result<u64, WireError> {
        match self {
            Value::Varint(value) => Ok(value),
            other => Err(WireError::WireType(other.wire_type())),
        }
    }

    /// The bytes of a length-delimited field.
    #[inline]
    pub fn bytes(self) -> Result<&'a [u8], WireError> {
        match self {
            Value::Bytes(bytes) => Ok(bytes),
            other => Err(WireError::WireType(other.wire_type())),
        }
    }

    fn wire_type(self) -> u8 {
        match self {
            Value::Varint(_) => 0,
            Value::Fixed64(_) => 1,
            Value::Bytes(_) => 2,
            Value::Fixed32(_) => 5,
        }
    }
}

/// A field of a message.
#[derive(Debug, Clone, Copy)]
pub struct Field<'a> {
    /// Its number.
    pub number: u32,
    /// Its value.
    pub value: Value<'a>,
    /// The message from the field's own key on.
    from_here: &'a [u8],
    len: usize,
}

impl<'a> Field<'a> {
    /// The field as it stands in the message, key and length included.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        &self.from_here[..self.len]
    }

    /// The bytes of the value as those of a column: the numbers of a packed one, or one number on its own.
    #[inline]
    fn column(&self) -> Result<&'a [u8], WireError> {
        match self.value {
            Value::Bytes(bytes) => Ok(bytes),
            value => {
                value.varint()?;
                let mut number = self.bytes();
                read_varint(&mut number)?;
                Ok(number)
            }
        }
    }
}

/// The fields of a message, in the order of its bytes.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a> {
    data: &'a [u8],
}

impl<'a> Fields<'a> {
    /// The fields of this message.
    pub const fn new(message: &'a [u8]) -> Self {
        Fields { data: message }
    }

    /// The bytes that have not been read.
    pub const fn rest(&self) -> &'a [u8] {
        self.data
    }

    /// The next field with its place; `None` at the end of the message.
    #[inline(always)]
    pub fn try_next_field(&mut self) -> Result<Option<Field<'a>>, WireError> {
        let from_here = self.data;
        let next = self.try_next()?;
        Ok(next.map(|(number, value)| Field {
            number,
            value,
            from_here,
            len: from_here.len() - self.data.len(),
        }))
    }

    /// The next field's number and value; `None` at the end of the message.
    #[inline(always)]
    pub fn try_next(&mut self) -> Result<Option<(u32, Value<'a>)>, WireError> {
        if self.data.is_empty() {
            return Ok(None);
        }
        let key = read_varint(&mut self.data)?;
        let value = match key & 7 {
            0 => Value::Varint(read_varint(&mut self.data)?),
            2 => {
                let len = read_varint(&mut self.data)?;
                if len > self.data.len() as u64 {
                    return Err(WireError::Truncated);
                }
                let (bytes, rest) = self.data.split_at(len as usize);
                self.data = rest;
                Value::Bytes(bytes)
            }
            1 => {
                let (bytes, rest) = self.data.split_first_chunk().ok_or(WireError::Truncated)?;
                self.data = rest;
                Value::Fixed64(u64::from_le_bytes(*bytes))
            }
            5 => {
                let (bytes, rest) = self.data.split_first_chunk().ok_or(WireError::Truncated)?;
                self.data = rest;
                Value::Fixed32(u32::from_le_bytes(*bytes))
            }
            other => return Err(WireError::WireType(other as u8)),
        };
        let number = u32::try_from(key >> 3).unwrap_or(u32::MAX);
        if number == 0 {
            return Err(WireError::WireType((key & 7) as u8));
        }
        Ok(Some((number, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_field_is_the_same_whatever_was_expected() {
        for len in [0, 1, 127, 128, 20_000] {
            let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let mut plain = vec![9];
            write_bytes_field(&mut plain, 2, &bytes);
            for expected in [0, 127, 128, 20_000, 3_000_000] {
                let mut found = vec![9];
                write_field_with(&mut found, 2, expected, |out| {
                    out.extend_from_slice(&bytes);
                    Ok::<(), ()>(())
                })
                .unwrap();
                assert!(found == plain, "{len} bytes, {expected} expected");
            }
        }
    }

    #[test]
    fn padded_varints_are_read_and_longer_ones_refused() {
        let mut padded: &[u8] = &[0x85, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00, 7];
        assert_eq!(read_varint(&mut padded), Ok(5));
        assert_eq!(padded, [7]);
        let mut long: &[u8] = &[0x80; 11];
        assert_eq!(read_varint(&mut long), Err(WireError::VarintTooLong));
        let mut cut: &[u8] = &[0x80, 0x80];
        assert_eq!(read_varint(&mut cut), Err(WireError::Truncated));
        assert_eq!(read_varint(&mut [].as_slice()), Err(WireError::Truncated));
    }

    /// The column that is field 3 of a message.
    fn in_pieces(message: &[u8]) -> Varints<'_> {
        let mut column = Varints::default();
        let mut fields = Fields::new(message);
        while let Some(field) = fields.try_next_field().unwrap() {
            if field.number == 3 {
                column.push(field).unwrap();
            }
        }
        column
    }

    #[test]
    fn a_column_in_pieces() {
        // Field 3: packed {1, 2}, a single 300, another field, packed {}, packed {4}.
        let mut message = Vec::new();
        write_bytes_field(&mut message, 3, &[1, 2]);
        write_varint_field(&mut message, 3, 300);
        write_varint_field(&mut message, 9, 77);
        write_bytes_field(&mut message, 3, &[]);
        write_bytes_field(&mut message, 3, &[4]);
        let mut column = in_pieces(&message);
        assert_eq!(column.count(), 4);
        let mut values = Vec::new();
        while let Some(value) = column.try_next().unwrap() {
            values.push(value);
        }
        assert_eq!(values, [1, 2, 300, 4]);
    }

    #[test]
    fn groups_and_field_zero_are_refused() {
        assert_eq!(Fields::new(&[0x0b]).try_next(), Err(WireError::WireType(3)));
        assert_eq!(Fields::new(&[0x00, 0x01]).try_next(), Err(WireError::WireType(0)));
        assert_eq!(
            Fields::new(&[0x0a, 0x05, 0x00]).try_next(),
            Err(WireError::Truncated)
        );
    }

    proptest! {
        #[test]
        fn varints_read_back(values in proptest::collection::vec((any::<u64>(), 0u32..64).prop_map(|(v, shift)| v >> shift), 0..400)) {
            let mut bytes = Vec::new();
            values.iter().for_each(|v| write_varint(&mut bytes, *v));
            prop_assert_eq!(count_varints(&bytes), values.len());
            prop_assert_eq!(count_checked(&bytes), Ok(values.len()));
            let mut all = Vec::new();
            Varints::packed(&bytes).for_each(|v| all.push(v)).unwrap();
            prop_assert_eq!(&all, &values);
            let mut column = Varints::packed(&bytes);
            for value in values {
                prop_assert_eq!(column.try_next(), Ok(Some(value)));
            }
            prop_assert_eq!(column.try_next(), Ok(None));
        }

        #[test]
        fn deltas_read_back(values: Vec<i64>) {
            let mut bytes = Vec::new();
            let mut last = 0i64;
            for value in &values {
                write_sint(&mut bytes, value.wrapping_sub(last));
                last = *value;
            }
            let len = bytes.len();
            let packed = bytes.clone();
            let column = Varints::packed(&packed);
            prop_assert_eq!(Deltas::new(column).collect::<Result<Vec<_>, _>>().unwrap(), values.clone());
            // In the midst of other bytes, and at their end.
            for behind in [0, 100] {
                bytes.truncate(len);
                bytes.resize(len + behind, 0x80);
                let refs = Refs::within(Varints::packed(&bytes[..len]), &bytes);
                for value in &values {
                    prop_assert_eq!(refs.any(|found| found == *value), Ok(true));
                }
                prop_assert_eq!(refs.any(|found| !values.contains(&found)), Ok(false));
                let mut decoded = vec![1, 2];
                refs.decode_into(&mut decoded).unwrap();
                prop_assert_eq!(&decoded[2..], &values);
            }
            let mut decoded = Vec::new();
            column.decode_deltas_into(&mut decoded).unwrap();
            prop_assert_eq!(decoded, values);
        }

        #[test]
        fn some_of_a_column(
            values in proptest::collection::vec((prop_oneof![Just(0i64), any::<i64>()], any::<bool>()), 0..200),
        ) {
            let mut bytes = Vec::new();
            values.iter().for_each(|(value, _)| write_sint(&mut bytes, *value));
            let mut message = Vec::new();
            for piece in values.chunks(70) {
                let mut bytes = Vec::new();
                piece.iter().for_each(|(value, _)| write_sint(&mut bytes, *value));
                write_bytes_field(&mut message, 3, &bytes);
            }
            let numbered = (0u32..).zip(&values);
            let places: Vec<u32> = numbered.filter(|(_, (_, wanted))| *wanted).map(|(at, _)| at).collect();
            let wanted = |all: &[i64]| places.iter().map(|at| all[*at as usize]).collect::<Vec<_>>();
            let mut sums = Vec::new();
            Varints::packed(&bytes).decode_deltas_into(&mut sums).unwrap();
            let columns = [Varints::packed(&bytes), in_pieces(&message)];
            for column in columns {
                let (mut found, mut numbers) = (Vec::new(), Vec::new());
                column.gather_sums_into(&places, &mut found).unwrap();
                prop_assert_eq!(found, wanted(&sums));
                column.gather_into(&places, &mut numbers).unwrap();
                let numbers: Vec<i64> = numbers.into_iter().map(zigzag_decode).collect();
                let all: Vec<i64> = values.iter().map(|(value, _)| *value).collect();
                prop_assert_eq!(numbers, wanted(&all));
            }

            let zeros = values.iter().take_while(|(value, _)| *value == 0).count();
            for most in [0, 1, 7, 8, 200] {
                let mut column = Varints::packed(&bytes);
                prop_assert_eq!(column.skip_zeros(most), zeros.min(most));
                prop_assert_eq!(column.count(), values.len() - zeros.min(most));
            }
        }

        #[test]
        fn any_bytes_end(bytes in proptest::collection::vec(prop_oneof![any::<u8>(), 0x80u8..], 0..300)) {
            let mut fields = Fields::new(&bytes);
            while let Ok(Some(_)) = fields.try_next() {}
            // Both ways of reading a column agree on damaged bytes, too.
            let one_by_one: Result<Vec<_>, _> = Deltas::new(Varints::packed(&bytes)).collect();
            let mut at_once = Vec::new();
            let result = Varints::packed(&bytes).decode_deltas_into(&mut at_once);
            let counted = one_by_one.as_ref().map(Vec::len).map_err(|e| *e);
            prop_assert_eq!(one_by_one.clone(), result.map(|()| at_once));
            prop_assert_eq!(count_checked(&bytes), counted);
            let short = &bytes[..bytes.len().min(40)];
            let counted: Result<usize, _> = Varints::packed(short).fold(0, |count, _| count + 1);
            prop_assert_eq!(count_checked(short), counted);
        }
    }
}
