//! Numbers and times as text.
//!
//! Files are mostly numbers. Those in the form that all writers give them are read eight digits at a time, as in
//! Lemire's "Quickly parsing eight digits"; any other goes through a loop or the standard library, with the
//! same outcome.

use osmill_model::Timestamp;

const ZEROS: u64 = 0x3030_3030_3030_3030;

/// The value of eight digits, the first in the lowest byte; `None` if one is none.
#[inline]
fn eight_digits(word: u64) -> Option<u64> {
    let digits = word ^ ZEROS;
    if (digits | digits.wrapping_add(0x0606_0606_0606_0606)) & 0xf0f0_f0f0_f0f0_f0f0 != 0 {
        return None;
    }
    let pairs = digits.wrapping_mul(10 << 8 | 1) >> 8 & 0x00ff_00ff_00ff_00ff;
    let fours = pairs.wrapping_mul(100 << 16 | 1) >> 16 & 0x0000_ffff_0000_ffff;
    Some(fours.wrapping_mul(10_000 << 32 | 1) >> 32)
}

/// One to eight bytes as a word, the first in the lowest byte.
#[inline]
fn word(text: &[u8]) -> u64 {
    let len = text.len();
    if let Some(word) = text.first_chunk::<8>() {
        u64::from_le_bytes(*word)
    } else if let (Some(first), Some(last)) = (text.first_chunk::<4>(), text.last_chunk::<4>()) {
        // Where they overlap they are the same.
        u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << (8 * (len - 4))
    } else {
        let byte = |at: usize| u64::from(text[at]) << (8 * at);
        byte(0) | byte(len / 2) | byte(len - 1)
    }
}

/// The value of one to eight digits.
#[inline]
fn few_digits(text: &[u8]) -> Option<u64> {
    let missing = 8 * (8 - text.len() as u32);
    eight_digits(word(text) << missing | ZEROS.unbounded_shr(64 - missing))
}

/// A decimal integer with an optional sign.
#[inline]
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let value = match digits.len() {
        1..=8 => few_digits(digits)?,
        9..=16 => {
            let (high, low) = digits.split_at(digits.len() - 8);
            few_digits(high)? * 100_000_000 + eight_digits(word(low))?
        }
        _ => return std::str::from_utf8(text).ok()?.parse().ok(),
    } as i64;
    Some(if negative { -value } else { value })
}

/// A decimal number of degrees in units of 10⁻⁷ degrees, rounded half away from zero; an exponent may follow.
/// Not limited to the earth.
#[inline]
pub(crate) fn coordinate(text: &[u8]) -> Option<i64> {
    plain_coordinate(text).or_else(|| any_coordinate(text))
}

/// A coordinate with one to three digits before the point and one to seven after it; `None` for any other.
#[inline]
fn plain_coordinate(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    let point = digits.iter().take(4).position(|b| *b == b'.')?;
    let (whole, fraction) = (&digits[..point], &digits[point + 1..]);
    if whole.is_empty() || fraction.is_empty() || fraction.len() > 7 {
        return None;
    }
    let fraction = word(fraction) | ZEROS << (8 * fraction.len());
    // The eighth digit is a 0 that was put there.
    let value = (few_digits(whole)? * 10_000_000 + eight_digits(fraction)? / 10) as i64;
    Some(if negative { -value } else { value })
}

fn any_coordinate(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let mut value = 0i64;
    let mut at = 0;
    while let Some(digit @ b'0'..=b'9') = digits.get(at) {
        value = value * 10 + i64::from(digit - b'0');
        at += 1;
        // Far outside the earth, and far from an overflow.
        if value > 100_000_000 {
            return exponential(text);
        }
    }
    let mut seen = at;
    let mut scale = 7;
    if digits.get(at) == Some(&b'.') {
        at += 1;
        while let Some(digit @ b'0'..=b'9') = digits.get(at) {
            if scale > 0 {
                value = value * 10 + i64::from(digit - b'0');
                scale -= 1;
            } else if scale == 0 {
                value += i64::from(*digit >= b'5');
                scale = -1;
            }
            at += 1;
            seen += 1;
        }
    }
    if seen == 0 {
        return None;
    }
    if at < digits.len() {
        return exponential(text);
    }
    const POWERS: [i64; 8] = [1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000];
    if scale > 0 {
        value *= POWERS[scale as usize];
    }
    Some(if negative { -value } else { value })
}

/// A time as [`Timestamp`] reads it.
#[inline]
pub(crate) fn time(text: &[u8]) -> Option<Timestamp> {
    plain_time(text).or_else(|| std::str::from_utf8(text).ok()?.parse().ok())
}

/// A time of the form `2024-02-29T23:59:59Z` from 1970 to 2099; `None` for any other.
#[inline]
fn plain_time(text: &[u8]) -> Option<Timestamp> {
    let text: &[u8; 20] = text.try_into().ok()?;
    let word = |at: usize| {
        text[at..]
            .first_chunk::<8>()
            .map(|word| u64::from_le_bytes(*word))
    };
    // Digits become their values, and what stands between them 0, or something is wrong.
    let halves = [
        (
            word(0)? ^ u64::from_le_bytes(*b"0000-00-"),
            0xff_00_00_ff_00_00_00_00,
        ),
        (
            word(8)? ^ u64::from_le_bytes(*b"00T00:00"),
            0x00_00_ff_00_00_ff_00_00,
        ),
        (
            word(12)? ^ u64::from_le_bytes(*b"0:00:00Z"),
            0xff_00_00_ff_00_00_ff_00,
        ),
    ];
    for (half, between) in halves {
        let too_large = (half | half.wrapping_add(0x0606_0606_0606_0606)) & 0xf0f0_f0f0_f0f0_f0f0;
        if too_large | half & between != 0 {
            return None;
        }
    }
    let digit = |at: usize| i64::from(text[at] - b'0');
    let two = |at: usize| 10 * digit(at) + digit(at + 1);
    let (year, month, day) = (100 * two(0) + two(2), two(5), two(8));
    let (hour, minute, second) = (two(11), two(14), two(17));
    // Days of the year before each month, of a year without a leap day.
    const BEFORE: [i64; 13] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365];
    let is_leap = i64::from(year % 4 == 0);
    if !(1970..2100).contains(&year) || !(1..=12).contains(&month) || hour > 23 || minute > 59 || second > 59
    {
        return None;
    }
    let (before, after) = (BEFORE[month as usize - 1], BEFORE[month as usize]);
    if day == 0 || day > after - before + i64::from(month == 2) * is_leap {
        return None;
    }
    let leap_days = (year - 1969) / 4 + i64::from(month > 2) * is_leap;
    let days = 365 * (year - 1970) + leap_days + before + day - 1;
    Some(Timestamp(((days * 24 + hour) * 60 + minute) * 60 + second))
}

#[cold]
fn exponential(text: &[u8]) -> Option<i64> {
    // Letters other than the exponent's would let "inf" and "nan" pass.
    if !text
        .iter()
        .all(|b| matches!(b, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'))
    {
        return None;
    }
    let degrees: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    let units = (degrees * 1e7).round();
    (units.abs() < 1e18).then_some(units as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn coordinates_as_files_have_them() {
        let cases: [(&str, Option<i64>); 17] = [
            ("0", Some(0)),
            ("-0.0000001", Some(-1)),
            ("7.4195", Some(74_195_000)),
            ("180", Some(1_800_000_000)),
            ("47.12345674", Some(471_234_567)),
            ("47.12345675999", Some(471_234_568)),
            ("-47.123456749999999", Some(-471_234_567)),
            ("1e-5", Some(100)),
            ("1.5E1", Some(150_000_000)),
            ("5.", Some(50_000_000)),
            (".5", Some(5_000_000)),
            ("", None),
            ("-", None),
            (".", None),
            ("nan", None),
            ("1,5", None),
            ("99999999999999999999999999", None),
        ];
        for (text, expected) in cases {
            assert_eq!(coordinate(text.as_bytes()), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn printed_coordinates_read_back(value: i32) {
            let mut text = Vec::new();
            osmill_model::format_coordinate(&mut text, value);
            prop_assert_eq!(coordinate(&text), Some(i64::from(value)));
        }

        #[test]
        fn integers_like_the_standard_library(text in "[+-]?[0-9]{0,21}x?") {
            prop_assert_eq!(integer(text.as_bytes()), text.parse().ok());
        }

        #[test]
        fn plain_coordinates_like_any(text in "[+-]?[0-9]{0,4}[.,]?[0-9]{0,9}") {
            if let Some(value) = plain_coordinate(text.as_bytes()) {
                prop_assert_eq!(any_coordinate(text.as_bytes()), Some(value));
            }
        }

        #[test]
        fn times_like_the_model(
            text in "[0-9]{3}[0-9a][-:][01][0-9][-.][0-3][0-9][T ][0-2][0-9]:[0-6][0-9]:[0-7][0-9][Zz]",
            seconds in 0i64..4_200_000_000,
        ) {
            prop_assert_eq!(time(text.as_bytes()), text.parse().ok());
            let text = Timestamp(seconds).to_string();
            prop_assert_eq!(plain_time(text.as_bytes()).or(time(text.as_bytes())), Some(Timestamp(seconds)));
            prop_assert_eq!(plain_time(text.as_bytes()).is_some(), seconds < 4_102_444_800);
        }

        #[test]
        fn any_bytes_are_safe(text: Vec<u8>) {
            prop_assert_eq!(integer(&text), std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok()));
            let _ = (coordinate(&text), time(&text));
        }

        #[test]
        fn damaged_numbers(value: i64, at: prop::sample::Index, byte: u8) {
            let mut text = value.to_string().into_bytes();
            let at = at.index(text.len());
            text[at] = byte;
            prop_assert_eq!(integer(&text), std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok()));
            if let Some(value) = plain_coordinate(&text) {
                prop_assert_eq!(any_coordinate(&text), Some(value));
            }
        }
    }
}
