//! The few protobuf wire rules that a digest needs: varints, tags and length-delimited fields over a byte slice.

/// Why bytes could not be read as protobuf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed(pub &'static str);

/// One field of a message as it stands on the wire.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value<'a> {
    /// Wire type 0.
    Varint(u64),
    /// Wire type 2.
    Bytes(&'a [u8]),
    /// Wire types 1 and 5, which no OSM message uses: skipped by their width.
    Fixed,
}

/// A message read field by field.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message<'a> {
    rest: &'a [u8],
}

impl<'a> Message<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next field, or `None` at the end of the message.
    pub fn next(&mut self) -> Result<Option<(u32, Value<'a>)>, Malformed> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = varint(&mut self.rest)?;
        let field = u32::try_from(tag >> 3).map_err(|_| Malformed("field number out of range"))?;
        let value = match tag & 7 {
            0 => Value::Varint(varint(&mut self.rest)?),
            1 => {
                self.take(8)?;
                Value::Fixed
            }
            2 => {
                let length = varint(&mut self.rest)?;
                let length = usize::try_from(length).map_err(|_| Malformed("length out of range"))?;
                Value::Bytes(self.take(length)?)
            }
            5 => {
                self.take(4)?;
                Value::Fixed
            }
            _ => return Err(Malformed("unknown wire type")),
        };
        Ok(Some((field, value)))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or(Malformed("field runs past its message"))?;
        self.rest = rest;
        Ok(head)
    }
}

/// Reads one varint and advances `bytes` past it.
#[inline]
pub(super) fn varint(bytes: &mut &[u8]) -> Result<u64, Malformed> {
    let mut value = 0u64;
    for (index, &byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            *bytes = &bytes[index + 1..];
            return Ok(value);
        }
    }
    Err(Malformed("varint without an end"))
}

#[inline]
pub(super) fn zigzag(value: u64) -> i64 {
    ((value >> 1) as i64) ^ -((value & 1) as i64)
}

/// How a repeated number is coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    /// `int32`, `int64`, `uint32`, `bool`, `enum`.
    Plain,
    /// `sint32`, `sint64`, each the difference to the one before.
    Delta,
}

/// Appends a repeated number field, packed or not, to `column`. Deltas are left as they are; [`integrate`] sums
/// them once the whole message is read, because a writer may split a packed field.
#[inline]
pub(super) fn append(column: &mut Vec<i64>, value: Value<'_>, coding: Coding) -> Result<(), Malformed> {
    let convert = |raw: u64| {
        if coding == Coding::Plain {
            raw as i64
        } else {
            zigzag(raw)
        }
    };
    match value {
        Value::Varint(raw) => column.push(convert(raw)),
        Value::Bytes(mut packed) => {
            while !packed.is_empty() {
                column.push(convert(varint(&mut packed)?));
            }
        }
        Value::Fixed => return Err(Malformed("fixed-width number where a varint belongs")),
    }
    Ok(())
}

/// Turns differences into values. Overflow wraps: an odd file then gives an odd digest, not a panic.
#[inline]
pub(super) fn integrate(column: &mut [i64]) {
    let mut sum = 0i64;
    for value in column {
        sum = sum.wrapping_add(*value);
        *value = sum;
    }
}
