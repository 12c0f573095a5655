//! The protobuf wire format: varints, fields, packed columns.
//!
//! Everything is a view over the caller's bytes. Varints of up to ten bytes are accepted however they are
//! padded, as protobuf does; an eleventh byte is an error.

mod bulk;

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

/// A repeated varint field of a message: packed in one piece, in several, or written number by number.
///
/// The usual case is one packed slice; what follows it in the message is only looked at when the message
/// was seen to hold the field more than once.
#[derive(Debug, Clone, Copy, Default)]
pub struct Varints<'a> {
    chunk: &'a [u8],
    more: &'a [u8],
    field: u32,
}

impl<'a> Varints<'a> {
    /// A column of one packed piece.
    pub const fn packed(chunk: &'a [u8]) -> Self {
        Varints {
            chunk,
            more: &[],
            field: 0,
        }
    }

    /// Takes note of an occurrence of the field.
    #[inline]
    pub(crate) fn push(&mut self, field: Field<'a>) -> Result<(), WireError> {
        if self.field == 0 {
            self.field = field.number;
            self.chunk = field.column()?;
            return Ok(());
        }
        value_is_column(field.value)?;
        if self.more.is_empty() {
            self.more = field.from_here;
        }
        Ok(())
    }

    /// Whether the field occurred.
    pub const fn is_present(&self) -> bool {
        self.field != 0 || !self.chunk.is_empty()
    }

    /// Whether there is no number in it.
    pub fn is_empty(&self) -> bool {
        self.chunk.is_empty() && (self.more.is_empty() || self.count() == 0)
    }

    /// The packed bytes, if the column is in one piece.
    pub fn as_packed(&self) -> Option<&'a [u8]> {
        self.more.is_empty().then_some(self.chunk)
    }

    /// How many numbers there are. O(bytes), eight at a time.
    pub fn count(&self) -> usize {
        let mut total = count_varints(self.chunk);
        let mut copy = *self;
        while copy.refill() {
            total += count_varints(copy.chunk);
        }
        total
    }

    /// The next number.
    #[inline(always)]
    pub fn try_next(&mut self) -> Result<Option<u64>, WireError> {
        if self.chunk.is_empty() && (self.more.is_empty() || !self.refill()) {
            return Ok(None);
        }
        read_varint(&mut self.chunk).map(Some)
    }

    /// Moves on to the next piece that is not empty. Pieces were checked when the message was read.
    #[cold]
    fn refill(&mut self) -> bool {
        let mut fields = Fields::new(self.more);
        loop {
            match fields.try_next_field() {
                Ok(Some(field)) if field.number == self.field => {
                    self.more = fields.rest();
                    self.chunk = field.column().unwrap_or_default();
                    if !self.chunk.is_empty() {
                        return true;
                    }
                }
                Ok(Some(_)) => {}
                _ => {
                    self.chunk = &[];
                    self.more = &[];
                    return false;
                }
            }
        }
    }

    /// Folds all numbers that are left, many at a time: faster than [`Varints::try_next`] for long columns.
    ///
    /// What is folded should be a few numbers; they stay in registers, which what a closure changes does not.
    #[inline(always)]
    pub fn fold<A: Copy>(self, init: A, mut step: impl FnMut(A, u64) -> A) -> Result<A, WireError> {
        self.fold_pieces::<false, A>(init, |folded, _, number| step(folded, number))
    }

    /// Folds numbers with their places, which are counted from 0.
    #[inline(always)]
    fn fold_pieces<const SKIP_ZEROS: bool, A: Copy>(
        mut self,
        init: A,
        mut step: impl FnMut(A, usize, u64) -> A,
    ) -> Result<A, WireError> {
        let (mut folded, mut first) = (init, 0);
        loop {
            let piece = self.chunk;
            folded = bulk::fold::<SKIP_ZEROS, A>(piece, folded, |folded, at, number| {
                step(folded, first + at, number)
            })?;
            self.chunk = &[];
            if self.more.is_empty() || !self.refill() {
                return Ok(folded);
            }
            first += count_varints(piece);
        }
    }

    /// Folds the running sums of the zigzag-coded numbers: the values of a delta-coded column.
    #[inline(always)]
    pub fn fold_sums<A: Copy>(self, init: A, step: impl FnMut(A, i64) -> A) -> Result<A, WireError> {
        self.fold_sums_from::<false, A>(0, init, step)
    }

    /// Folds the values of a delta-coded column like [`Varints::fold_sums`], but passes over values that equal the one
    /// before them: for what depends on the set of the values alone. Columns of metadata change at one node in four.
    #[inline(always)]
    pub fn fold_changes<A: Copy>(
        mut self,
        init: A,
        mut step: impl FnMut(A, i64) -> A,
    ) -> Result<A, WireError> {
        let Some(first) = self.try_next()?.map(zigzag_decode) else {
            return Ok(init);
        };
        let folded = step(init, first);
        self.fold_sums_from::<true, A>(first, folded, step)
    }

    #[inline(always)]
    fn fold_sums_from<const SKIP_ZEROS: bool, A: Copy>(
        self,
        before: i64,
        init: A,
        mut step: impl FnMut(A, i64) -> A,
    ) -> Result<A, WireError> {
        let (_, folded) = self.fold_pieces::<SKIP_ZEROS, _>((before, init), |(sum, folded), _, delta| {
            let sum = sum.wrapping_add(zigzag_decode(delta));
            (sum, step(folded, sum))
        })?;
        Ok(folded)
    }

    /// Visits all numbers that are left.
    #[inline]
    pub fn for_each(self, mut visit: impl FnMut(u64)) -> Result<(), WireError> {
        self.fold((), |(), value| visit(value))
    }

    /// Visits the running sums of the zigzag-coded numbers.
    #[inline]
    pub fn for_each_sum(self, mut visit: impl FnMut(i64)) -> Result<(), WireError> {
        self.fold_sums((), |(), value| visit(value))
    }

    /// Appends what `of` makes of each number to `out`.
    pub fn decode_into<T: Clone + Default>(
        self,
        out: &mut Vec<T>,
        of: impl Fn(u64) -> T,
    ) -> Result<(), WireError> {
        let start = out.len();
        out.resize(start + self.count(), T::default());
        let slots = &mut out[start..];
        self.fold(0usize, |at, value| {
            if let Some(slot) = slots.get_mut(at) {
                *slot = of(value);
            }
            at + 1
        })?;
        Ok(())
    }

    /// Appends to `out` the numbers at these places, which are counted from 0 and ascend. Nothing is appended if there
    /// is no number.
    ///
    /// O(bytes), eight at a time where few places are asked for.
    ///
    /// # Errors
    ///
    /// A varint at one of these places that is broken.
    ///
    /// # Panics
    ///
    /// If the places do not ascend.
    pub fn gather_into(mut self, places: &[u32], out: &mut Vec<u64>) -> Result<(), WireError> {
        let mut at = 0;
        for place in places {
            self.skip((place - at) as usize);
            let Some(number) = self.try_next()? else { break };
            out.push(number);
            at = place + 1;
        }
        Ok(())
    }

    /// Appends to `out` the running sums of the zigzag-coded numbers at these places, which are counted from 0 and
    /// ascend. Nothing is appended if there is no number.
    ///
    /// O(bytes), and several times faster than [`Varints::decode_deltas_into`] where few places are asked for and most
    /// numbers are 0, as in columns of metadata.
    pub fn gather_sums_into(self, places: &[u32], out: &mut Vec<i64>) -> Result<(), WireError> {
        if self.is_empty() {
            return Ok(());
        }
        let (start, end) = (out.len(), places.len());
        out.resize(start + end, 0);
        let sums = &mut out[start..];
        let (sum, done) = self.fold_pieces::<true, _>((0i64, 0usize), |(sum, mut done), at, delta| {
            // Up to here the sum has not changed.
            while let (Some(place), Some(slot)) = (places.get(done), sums.get_mut(done))
                && (*place as usize) < at
            {
                *slot = sum;
                done += 1;
            }
            (sum.wrapping_add(zigzag_decode(delta)), done)
        })?;
        sums[done..].fill(sum);
        Ok(())
    }

    /// Moves past so many numbers, or all that are left. O(bytes), eight at a time.
    fn skip(&mut self, mut count: usize) {
        while count > 0 && (!self.chunk.is_empty() || !self.more.is_empty() && self.refill()) {
            let (passed, bytes) = passed_varints(self.chunk, count);
            count -= passed;
            self.chunk = &self.chunk[bytes..];
        }
    }

    /// Moves past at most `most` numbers that are 0, and gives how many. It stops before one that is not, or that
    /// is padded.
    pub(crate) fn skip_zeros(&mut self, most: usize) -> usize {
        let mut skipped = 0;
        loop {
            let zeros = leading_zeros(&self.chunk[..self.chunk.len().min(most - skipped)]);
            self.chunk = &self.chunk[zeros..];
            skipped += zeros;
            if !self.chunk.is_empty() || skipped == most || self.more.is_empty() || !self.refill() {
                return skipped;
            }
        }
    }

    /// Appends the running sums of the zigzag-coded numbers to `out`.
    pub fn decode_deltas_into(self, out: &mut Vec<i64>) -> Result<(), WireError> {
        if self.chunk.len() <= SHORT && self.more.is_empty() {
            out.reserve(self.chunk.len());
            return self.for_each_sum(|value| out.push(value));
        }
        let start = out.len();
        out.resize(start + self.count(), 0);
        self.sums_to(&mut out[start..])
    }

    /// Replaces `out` by the running sums of the zigzag-coded numbers.
    pub fn decode_deltas_over(self, out: &mut Vec<i64>) -> Result<(), WireError> {
        out.resize(self.count(), 0);
        self.sums_to(out)
    }

    fn sums_to(self, slots: &mut [i64]) -> Result<(), WireError> {
        self.fold_sums(0usize, |at, value| {
            if let Some(slot) = slots.get_mut(at) {
                *slot = value;
            }
            at + 1
        })?;
        Ok(())
    }
}

/// Bytes of a column that is not worth counting before it is decoded.
const SHORT: usize = 64;

fn value_is_column(value: Value<'_>) -> Result<(), WireError> {
    match value {
        Value::Varint(_) | Value::Bytes(_) => Ok(()),
        other => Err(WireError::WireType(other.wire_type())),
    }
}

/// How many bytes before the first that is not 0.
fn leading_zeros(bytes: &[u8]) -> usize {
    let (words, tail) = bytes.as_chunks::<8>();
    for (i, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        if word != 0 {
            return 8 * i + word.trailing_zeros() as usize / 8;
        }
    }
    let rest = tail.iter().position(|byte| *byte != 0);
    bytes.len() - tail.len() + rest.unwrap_or(tail.len())
}

/// How many varints, at most `most`, end in these bytes, and how many bytes they take; all bytes if fewer end there.
fn passed_varints(bytes: &[u8], most: usize) -> (usize, usize) {
    let (words, _) = bytes.as_chunks::<8>();
    let (mut passed, mut at) = (0, 0);
    for word in words {
        let ends = (!u64::from_le_bytes(*word) & 0x8080_8080_8080_8080).count_ones() as usize;
        if passed + ends >= most {
            break;
        }
        passed += ends;
        at += 8;
    }
    for byte in &bytes[at..] {
        if passed == most {
            return (passed, at);
        }
        passed += usize::from(*byte < 0x80);
        at += 1;
    }
    (passed, bytes.len())
}

/// How many varints end in these bytes.
pub fn count_varints(bytes: &[u8]) -> usize {
    const LOWEST: u64 = 0x0101_0101_0101_0101;
    let ends = |word: u64| !word >> 7 & LOWEST;
    let (words, tail) = bytes.as_chunks::<8>();
    let last = match bytes.last_chunk::<8>() {
        // The bytes that have been counted with the words are shifted out.
        Some(last) if !tail.is_empty() => ends(u64::from_le_bytes(*last)) >> (8 * (8 - tail.len())),
        Some(_) => 0,
        None => return tail.iter().filter(|byte| **byte < 0x80).count(),
    };
    let mut total = 0;
    // Eight counters in a word, added up before one of them can overflow.
    let mut before = last;
    for words in words.chunks(254) {
        let counters = words.iter().fold(std::mem::take(&mut before), |sum: u64, word| {
            sum + ends(u64::from_le_bytes(*word))
        });
        let pairs = (counters & 0x00ff_00ff_00ff_00ff) + (counters >> 8 & 0x00ff_00ff_00ff_00ff);
        total += (pairs.wrapping_mul(0x0001_0001_0001_0001) >> 48) as usize;
    }
    total
}

/// Like [`count_varints`], and makes sure that each could be read. O(bytes); short columns are not decoded.
pub fn count_checked(bytes: &[u8]) -> Result<usize, WireError> {
    if let ([.., 0..0x80], Some(last)) = (bytes, bytes.last_chunk::<8>())
        && bytes.len() <= 64
    {
        let mut ends = bulk::eight_ends(*last) << (bytes.len() - 8);
        for (i, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
            ends |= bulk::eight_ends(*word) << (8 * i);
        }
        // With the bytes behind the column as if they were ends.
        if bulk::none_is_long(ends | u64::MAX.checked_shl(bytes.len() as u32).unwrap_or(0)) {
            return Ok(ends.count_ones() as usize);
        }
    }
    Varints::packed(bytes).fold(0, |count, _| count + 1)
}

/// A zigzag- and delta-coded column, as running sums.
#[derive(Debug, Clone, Copy, Default)]
pub struct Deltas<'a> {
    column: Varints<'a>,
    sum: i64,
}

impl<'a> Deltas<'a> {
    /// The running sums of this column.
    pub const fn new(column: Varints<'a>) -> Self {
        Deltas { column, sum: 0 }
    }

    /// The column itself.
    pub const fn column(&self) -> Varints<'a> {
        self.column
    }

    /// Whether any value is one that `is` tells. Those behind the first such are not read.
    #[inline]
    pub fn any_value(mut self, mut is: impl FnMut(i64) -> bool) -> Result<bool, WireError> {
        if let Some(mut rest) = self.column.as_packed() {
            let mut sum = self.sum;
            while !rest.is_empty() {
                sum = sum.wrapping_add(zigzag_decode(read_varint(&mut rest)?));
                if is(sum) {
                    return Ok(true);
                }
            }
            return Ok(false);
        }
        while let Some(value) = self.try_next()? {
            if is(value) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The next value.
    #[inline(always)]
    pub fn try_next(&mut self) -> Result<Option<i64>, WireError> {
        Ok(self.column.try_next()?.map(|delta| {
            self.sum = self.sum.wrapping_add(zigzag_decode(delta));
            self.sum
        }))
    }
}

impl Iterator for Deltas<'_> {
    type Item = Result<i64, WireError>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let item = self.try_next();
        if item.is_err() {
            // Nothing sensible can follow a broken varint.
            self.column = Varints::default();
        }
        item.transpose()
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
            let column = Varints::packed(&bytes);
            prop_assert_eq!(Deltas::new(column).collect::<Result<Vec<_>, _>>().unwrap(), values.clone());
            let middle = values.get(values.len() / 2);
            let mut seen = Vec::new();
            let found = Deltas::new(column).any_value(|value| {
                seen.push(value);
                Some(&value) == middle
            });
            prop_assert_eq!(found, Ok(middle.is_some()));
            let first = values.iter().position(|value| Some(value) == middle);
            prop_assert_eq!(&seen[..], &values[..first.map_or(0, |at| at + 1)]);
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
