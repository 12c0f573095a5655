//! Repeated varint fields: the columns of dense nodes, ways and relations.

use super::bulk::{self, Sums};
use super::{Field, Fields, Value, WireError, from_here, read_varint, zigzag_decode};

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
        self.fold_pieces::<false, A>(self.chunk, init, |folded, _, number| step(folded, number))
    }

    /// Folds numbers with their places, which are counted from 0. The first piece is at the beginning of `readable`.
    #[inline(always)]
    fn fold_pieces<const SKIP_ZEROS: bool, A: Copy>(
        mut self,
        mut readable: &'a [u8],
        init: A,
        mut step: impl FnMut(A, usize, u64) -> A,
    ) -> Result<A, WireError> {
        let (mut folded, mut first) = (init, 0);
        loop {
            let piece = self.chunk;
            folded = bulk::fold::<SKIP_ZEROS, A>(readable, piece.len(), folded, |folded, at, number| {
                step(folded, first + at, number)
            })?;
            self.chunk = &[];
            if self.more.is_empty() || !self.refill() {
                return Ok(folded);
            }
            first += count_varints(piece);
            readable = self.chunk;
        }
    }

    /// Folds the running sums of the zigzag-coded numbers: the values of a delta-coded column.
    #[inline(always)]
    pub fn fold_sums<A: Copy>(self, init: A, step: impl FnMut(A, i64) -> A) -> Result<A, WireError> {
        self.fold_sums_from::<false, A>(self.chunk, 0, init, step)
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
        self.fold_sums_from::<true, A>(self.chunk, first, folded, step)
    }

    #[inline(always)]
    fn fold_sums_from<const SKIP_ZEROS: bool, A: Copy>(
        self,
        readable: &'a [u8],
        before: i64,
        init: A,
        mut step: impl FnMut(A, i64) -> A,
    ) -> Result<A, WireError> {
        let init = (before, init);
        let (_, folded) = self.fold_pieces::<SKIP_ZEROS, _>(readable, init, |(sum, folded), _, delta| {
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
        let (sum, done) =
            self.fold_pieces::<true, _>(self.chunk, (0i64, 0usize), |(sum, mut done), at, delta| {
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
        self.sums_to(&mut out[start..])?;
        Ok(())
    }

    /// Replaces `out` by the running sums of the zigzag-coded numbers, and gives the least and the greatest of them;
    /// the greatest is less if there is none.
    pub fn decode_deltas_over(self, out: &mut Vec<i64>) -> Result<(i64, i64), WireError> {
        out.resize(self.count(), 0);
        let sums = self.sums_to(out)?;
        Ok((sums.least, sums.greatest))
    }

    fn sums_to(mut self, slots: &mut [i64]) -> Result<Sums, WireError> {
        let mut sums = Sums::NONE;
        loop {
            sums = bulk::sums_to(self.chunk, sums, slots)?;
            self.chunk = &[];
            if self.more.is_empty() || !self.refill() {
                return Ok(sums);
            }
        }
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

/// The node references of a way: a short column of which is known what can be read behind it, so that it is read as fast
/// as a long one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Refs<'a> {
    column: Varints<'a>,
    /// The bytes of the column's first piece, and all that follow it in the block.
    readable: &'a [u8],
}

impl<'a> Refs<'a> {
    /// A column that lies in these bytes.
    #[inline]
    pub(crate) fn within(column: Varints<'a>, block: &'a [u8]) -> Self {
        Refs {
            column,
            readable: from_here(block, column.chunk),
        }
    }

    /// The column itself.
    pub const fn column(&self) -> Varints<'a> {
        self.column
    }

    /// Folds the values.
    #[inline(always)]
    pub fn fold<A: Copy>(self, init: A, step: impl FnMut(A, i64) -> A) -> Result<A, WireError> {
        self.column
            .fold_sums_from::<false, A>(self.readable, 0, init, step)
    }

    /// Whether any value is one that `is` tells, which is asked of all.
    #[inline(always)]
    pub fn any(self, mut is: impl FnMut(i64) -> bool) -> Result<bool, WireError> {
        self.fold(false, |any, value| any | is(value))
    }

    /// Visits the values.
    #[inline(always)]
    pub fn for_each(self, mut visit: impl FnMut(i64)) -> Result<(), WireError> {
        self.fold((), |(), value| visit(value))
    }

    /// Appends the values to `out`.
    pub fn decode_into(self, out: &mut Vec<i64>) -> Result<(), WireError> {
        let start = out.len();
        // No more than there are bytes, which is soon told.
        let most = match self.column.as_packed() {
            Some(packed) => packed.len(),
            None => self.column.count(),
        };
        out.resize(start + most, 0);
        let slots = &mut out[start..];
        let count = self.fold(0usize, |at, value| {
            if let Some(slot) = slots.get_mut(at) {
                *slot = value;
            }
            at + 1
        });
        out.truncate(start + count?);
        Ok(())
    }
}
