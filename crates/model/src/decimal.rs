//! Decimal digits, eight at a time.
//!
//! Text output is mostly ids, coordinates and times, so digits are made in the lanes of a word: halves, then pairs, then
//! single digits, each by a multiplication in place of a division. It is the way of Lemire's "Quickly parsing eight
//! digits" gone backwards.

/// `00000000`.
const ZEROS: u64 = 0x3030_3030_3030_3030;

/// The eight digits of a number below 10⁸, the first in the lowest byte.
#[inline]
pub(crate) fn eight_digits(value: u32) -> u64 {
    debug_assert!(value < 100_000_000);
    let fours = u64::from(value / 10_000) | u64::from(value % 10_000) << 32;
    // x·10486 >> 20 is x/100 below 10⁴, x·103 >> 10 is x/10 below 10².
    let hundreds = (fours * 10_486) >> 20 & 0x0000_007f_0000_007f;
    let pairs = hundreds | (fours - 100 * hundreds) << 16;
    let tens = (pairs * 103) >> 10 & 0x000f_000f_000f_000f;
    (tens | (pairs - 10 * tens) << 8) | ZEROS
}

/// Appends the first `len` bytes of a word: eight are copied and the rest cut off, which takes no call.
#[inline]
fn push_bytes(out: &mut Vec<u8>, word: u64, len: usize) {
    let end = out.len() + len;
    out.extend_from_slice(&word.to_le_bytes());
    out.truncate(end);
}

/// Appends a number below 10⁸.
#[inline]
fn push_few(out: &mut Vec<u8>, value: u32) {
    let word = eight_digits(value);
    // The last digit stays even if it is 0.
    let zeros = ((word ^ ZEROS) | 1 << 56).trailing_zeros() / 8;
    push_bytes(out, word >> (8 * zeros), 8 - zeros as usize);
}

/// Appends a decimal integer.
#[inline]
pub fn format_integer(out: &mut Vec<u8>, value: i64) {
    const LIMIT: u64 = 100_000_000;
    if value < 0 {
        out.push(b'-');
    }
    let magnitude = value.unsigned_abs();
    if magnitude < LIMIT {
        return push_few(out, magnitude as u32);
    }
    let (high, low) = (magnitude / LIMIT, (magnitude % LIMIT) as u32);
    if high < LIMIT {
        push_few(out, high as u32);
    } else {
        push_few(out, (high / LIMIT) as u32);
        push_bytes(out, eight_digits((high % LIMIT) as u32), 8);
    }
    push_bytes(out, eight_digits(low), 8);
}

/// Appends a coordinate of 10⁻⁷ degrees as a decimal number of degrees, exact and without trailing zeros:
/// `7.4195`, `-0.0000001`, `12`.
#[inline]
pub fn format_coordinate(out: &mut Vec<u8>, value: i32) {
    if value < 0 {
        out.push(b'-');
    }
    let units = value.unsigned_abs();
    push_few(out, units / 10_000_000);
    // The seven digits behind the point; the point takes the place of the zero before them.
    let fraction = eight_digits(units % 10_000_000);
    let digits = (fraction ^ ZEROS).leading_zeros() / 8;
    if digits < 8 {
        let point = u64::from(b'0' ^ b'.');
        push_bytes(out, fraction ^ point, 8 - digits as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(print: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = b"x".to_vec();
        print(&mut out);
        String::from_utf8(out.split_off(1)).unwrap()
    }

    #[test]
    fn lanes_are_exact() {
        for four in 0..10_000u32 {
            for value in [four, four * 10_000, four * 10_001] {
                assert_eq!(
                    eight_digits(value).to_le_bytes(),
                    *format!("{value:08}").as_bytes()
                );
            }
        }
    }

    #[test]
    fn integers_at_every_length() {
        for power in 0..19 {
            for near in -2..=2 {
                let value = 10i64.pow(power) + near;
                assert_eq!(text(|out| format_integer(out, value)), value.to_string());
                assert_eq!(text(|out| format_integer(out, -value)), (-value).to_string());
            }
        }
        for value in [0, i64::MIN, i64::MAX] {
            assert_eq!(text(|out| format_integer(out, value)), value.to_string());
        }
    }

    #[test]
    fn coordinates_at_the_ends() {
        for (value, expected) in [
            (0, "0"),
            (74_195_000, "7.4195"),
            (-1, "-0.0000001"),
            (10, "0.000001"),
            (120_000_000, "12"),
            (1_800_000_000, "180"),
            (i32::MIN, "-214.7483648"),
            (i32::MAX, "214.7483647"),
        ] {
            assert_eq!(text(|out| format_coordinate(out, value)), expected);
        }
    }

    proptest! {
        #[test]
        fn integers(value: i64, shift in 0u32..64) {
            prop_assert_eq!(text(|out| format_integer(out, value >> shift)), (value >> shift).to_string());
        }

        #[test]
        fn coordinates(value: i32, zeros in 0u32..9) {
            for value in [value, value / 10i32.pow(zeros) * 10i32.pow(zeros)] {
                let exact = format!("{:.7}", f64::from(value) / 1e7);
                let exact = exact.trim_end_matches('0').trim_end_matches('.');
                let expected = if value == 0 { "0" } else { exact };
                prop_assert_eq!(text(|out| format_coordinate(out, value)), expected);
            }
        }
    }
}
