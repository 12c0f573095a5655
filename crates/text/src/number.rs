//! Numbers as text.

/// A decimal integer with an optional sign.
#[inline]
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if digits.is_empty() {
        return None;
    }
    // Eighteen digits cannot overflow.
    if digits.len() <= 18 {
        let mut value = 0i64;
        for digit in digits {
            let digit = digit.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            value = value * 10 + i64::from(digit);
        }
        return Some(if negative { -value } else { value });
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A decimal number of degrees in units of 10⁻⁷ degrees, rounded half away from zero; an exponent may follow.
/// Not limited to the earth.
#[inline]
pub(crate) fn coordinate(text: &[u8]) -> Option<i64> {
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
        fn any_bytes_are_safe(text: Vec<u8>) {
            let _ = (integer(&text), coordinate(&text));
        }
    }
}
