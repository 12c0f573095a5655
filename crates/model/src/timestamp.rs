//! Points in time.

use std::fmt;
use std::str::FromStr;

use crate::decimal::eight_digits;

/// Seconds since 1970-01-01T00:00:00Z. Before 1970 and after 2106 are fine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(
    /// Seconds since the epoch.
    pub i64,
);

/// Days from 1970-01-01 to a date of the proleptic Gregorian calendar.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    // Years are counted from March, so that the leap day is the last of its year.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The date, as year, month, day, that many days after 1970-01-01.
fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    // From here on all values are small, and divisions by constants cheap.
    let day_of_era = days.rem_euclid(146_097) as u32;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + i64::from(year_of_era) + i64::from(month <= 2);
    (year, month, day)
}

impl Timestamp {
    /// Appends `2024-02-29T23:59:59Z`.
    pub fn format_into(self, out: &mut Vec<u8>) {
        let (year, month, day) = civil_from_days(self.0.div_euclid(86_400));
        let second = self.0.rem_euclid(86_400) as u32;
        let mut text = *b"0000-00-00T00:00:00Z";
        let is_usual = (0..=9999).contains(&year);
        let four = if is_usual { year as u32 } else { 0 };
        let date = eight_digits(four * 10_000 + month * 100 + day).to_le_bytes();
        let minute = second / 60;
        let time = eight_digits(minute / 60 * 10_000 + minute % 60 * 100 + second % 60).to_le_bytes();
        text[..4].copy_from_slice(&date[..4]);
        for (at, pair) in [
            (5, &date[4..6]),
            (8, &date[6..]),
            (11, &time[2..4]),
            (14, &time[4..6]),
            (17, &time[6..]),
        ] {
            text[at..at + 2].copy_from_slice(pair);
        }
        if is_usual {
            out.extend_from_slice(&text);
        } else {
            out.extend_from_slice(year.to_string().as_bytes());
            out.extend_from_slice(&text[4..]);
        }
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = Vec::with_capacity(20);
        self.format_into(&mut out);
        f.write_str(std::str::from_utf8(&out).map_err(|_| fmt::Error)?)
    }
}

/// A time that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a time; write 2024-02-29T23:59:59Z, 2024-02-29T23:59:59+01:00 or 2024-02-29")]
pub struct ParseTimestampError(
    /// The text as it was given.
    pub String,
);

impl FromStr for Timestamp {
    type Err = ParseTimestampError;

    /// Reads ISO 8601 with `Z`, with an offset, with a fraction of a second (dropped), or a date alone
    /// (midnight UTC).
    fn from_str(text: &str) -> Result<Self, ParseTimestampError> {
        parse(text.trim().as_bytes())
            .map(Timestamp)
            .ok_or_else(|| ParseTimestampError(text.to_owned()))
    }
}

fn parse(text: &[u8]) -> Option<i64> {
    let number = |from: usize, len: usize| -> Option<i64> {
        let digits = text.get(from..from + len)?;
        digits
            .iter()
            .try_fold(0, |n, d| d.is_ascii_digit().then(|| n * 10 + i64::from(d - b'0')))
    };
    let (year, month, day) = (number(0, 4)?, number(5, 2)?, number(8, 2)?);
    if text[4] != b'-' || text[7] != b'-' || !(1..=12).contains(&month) || day == 0 {
        return None;
    }
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = [31, 28 + i64::from(leap), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month as usize - 1];
    if day > length {
        return None;
    }
    let midnight = days_from_civil(year, month, day) * 86_400;
    if text.len() == 10 {
        return Some(midnight);
    }
    let (hour, minute, second) = (number(11, 2)?, number(14, 2)?, number(17, 2)?);
    if !matches!(text[10], b'T' | b't' | b' ') || text[13] != b':' || text[16] != b':' {
        return None;
    }
    // A leap second is counted as the first second of the next minute, as POSIX time does.
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let time = midnight + hour * 3600 + minute * 60 + second;
    let mut zone = &text[19..];
    if let [b'.' | b',', fraction @ ..] = zone {
        let digits = fraction.iter().take_while(|b| b.is_ascii_digit()).count();
        if digits == 0 {
            return None;
        }
        zone = &fraction[digits..];
    }
    match zone {
        [] | [b'Z' | b'z'] => Some(time),
        [sign @ (b'+' | b'-'), offset @ ..] => {
            let two = |pair: &[u8]| match pair {
                [a, b] if a.is_ascii_digit() && b.is_ascii_digit() => {
                    Some(i64::from(a - b'0') * 10 + i64::from(b - b'0'))
                }
                _ => None,
            };
            let (hours, minutes) = match offset.len() {
                2 => (two(offset)?, 0),
                4 => (two(&offset[..2])?, two(&offset[2..])?),
                5 if offset[2] == b':' => (two(&offset[..2])?, two(&offset[3..])?),
                _ => return None,
            };
            if hours > 23 || minutes > 59 {
                return None;
            }
            let seconds = hours * 3600 + minutes * 60;
            Some(if *sign == b'+' {
                time - seconds
            } else {
                time + seconds
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_accepted_form() {
        let cases = [
            ("1970-01-01T00:00:00Z", 0),
            ("2005-04-09T19:54:13+00:00", 1_113_076_453),
            ("2005-04-09T21:54:13.25+0200", 1_113_076_453),
            ("2005-04-09T17:54:13-02", 1_113_076_453),
            ("2024-02-29", 1_709_164_800),
            ("1969-12-31T23:59:59Z", -1),
        ];
        for (text, seconds) in cases {
            assert_eq!(text.parse(), Ok(Timestamp(seconds)), "{text}");
        }
        for text in [
            "",
            "2024",
            "2023-02-29",
            "2024-13-01",
            "2024-01-01T24:00:00Z",
            "2024-01-01T00:00:00X",
            "2024-01-01T00:00:00.Z",
            "2024-01-01X00:00:00Z",
            "2024-01-01T00:00",
        ] {
            assert!(text.parse::<Timestamp>().is_err(), "{text}");
        }
    }

    #[test]
    fn years_of_any_length_are_shown() {
        let day = 86_400;
        let cases = [
            (-719_528 * day - 1, "-1-12-31T23:59:59Z"),
            (-719_528 * day, "0000-01-01T00:00:00Z"),
            (2_932_897 * day - 1, "9999-12-31T23:59:59Z"),
            (2_932_897 * day, "10000-01-01T00:00:00Z"),
        ];
        for (seconds, text) in cases {
            assert_eq!(Timestamp(seconds).to_string(), text);
        }
    }

    proptest! {
        #[test]
        fn text_reads_back(seconds in -62_135_596_800i64..253_402_300_800) {
            prop_assert_eq!(Timestamp(seconds).to_string().parse(), Ok(Timestamp(seconds)));
        }

        #[test]
        fn any_seconds_can_be_shown_and_any_text_tried(seconds: i64, text in "\\PC{0,30}") {
            let _ = Timestamp(seconds).to_string();
            let _ = text.parse::<Timestamp>();
        }
    }
}
