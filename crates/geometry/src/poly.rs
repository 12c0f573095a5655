//! The `.poly` format of osmosis.
//!
//! ```text
//! name of the file          ignored
//! 1                         name of a ring; a leading ! makes it a hole
//!    13.73  52.39           longitude, latitude; exponents are fine, what follows on the line is ignored
//!    13.71  52.40
//!    13.69  52.38
//! END                       of the ring; repeating the first corner is optional
//! !2
//!    ...
//! END
//! END                       of the file, after which another may follow
//! ```
//!
//! Blank lines, blanks around a line, carriage returns, a byte order mark and any bytes in names are fine.

use crate::multipolygon::Corner;
use crate::{MultiPolygon, RegionError};

/// Reads a `.poly` file. All rings are united, and those marked with `!` cut out of them as
/// [`MultiPolygon::from_rings`] does, whatever the order.
///
/// # Errors
///
/// [`RegionError::Poly`] with the line for a line that is not what it should be, a ring of fewer than three
/// corners, or an `END` missing at the end; [`RegionError::Empty`] if there is nothing but holes.
pub fn parse_poly(bytes: &[u8]) -> Result<MultiPolygon, RegionError> {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    let mut lines = bytes
        .split(|&byte| byte == b'\n')
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim_ascii()))
        .filter(|(_, line)| !line.is_empty());
    let mut outers = Vec::new();
    let mut holes = Vec::new();
    // The first line is the name, whatever it says.
    while let Some((name_line, name)) = lines.next() {
        if coordinates(name).is_some() {
            return Err(fail(
                name_line,
                "coordinates instead of the name that comes first",
            ));
        }
        let mut last = name_line;
        let rings_before = outers.len() + holes.len();
        loop {
            let Some((header_line, header)) = lines.next() else {
                return Err(fail(last, "the file ends without a last END; is it complete?"));
            };
            last = header_line;
            if is_end(header) {
                break;
            }
            if coordinates(header).is_some() {
                return Err(fail(header_line, "coordinates instead of the name of a ring"));
            }
            let ring = parse_ring(&mut lines, &mut last)?;
            if header.starts_with(b"!") {
                holes.push(ring);
            } else {
                outers.push(ring);
            }
        }
        if outers.len() + holes.len() == rings_before {
            return Err(fail(last, "END without any ring before it"));
        }
    }
    if outers.is_empty() {
        return Err(RegionError::Empty(if holes.is_empty() {
            "the file is empty".to_owned()
        } else {
            "all rings are holes (their names begin with '!')".to_owned()
        }));
    }
    MultiPolygon::from_corner_rings(&outers, &holes)
}

fn parse_ring<'a>(
    lines: &mut impl Iterator<Item = (usize, &'a [u8])>,
    last: &mut usize,
) -> Result<Vec<Corner>, RegionError> {
    let mut ring = Vec::new();
    for (number, line) in lines {
        *last = number;
        if is_end(line) {
            if ring.len() < 3 {
                return Err(fail(number, "the ring ends with fewer than three corners"));
            }
            return Ok(ring);
        }
        let Some((lon, lat)) = coordinates(line) else {
            let shown: String = String::from_utf8_lossy(line).chars().take(60).collect();
            return Err(fail(
                number,
                format!("'{shown}' is neither a longitude and a latitude, separated by blanks, nor END"),
            ));
        };
        ring.push(Corner::from_degrees(lon, lat).map_err(|reason| fail(number, reason))?);
    }
    Err(fail(*last, "the file ends within a ring; is it complete?"))
}

fn fail(line: usize, reason: impl Into<String>) -> RegionError {
    RegionError::Poly {
        line,
        reason: reason.into(),
    }
}

fn is_end(line: &[u8]) -> bool {
    line.eq_ignore_ascii_case(b"END")
}

/// The two numbers that the line begins with.
fn coordinates(line: &[u8]) -> Option<(f64, f64)> {
    let mut words = line
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    let mut number = || -> Option<f64> {
        let word = words.next()?;
        // Words such as "inf" and "nan" parse as numbers, but are names.
        word.iter().any(u8::is_ascii_digit).then_some(())?;
        std::str::from_utf8(word).ok()?.parse().ok()
    };
    Some((number()?, number()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use osmill_model::{BoundingBox, Location};
    use proptest::prelude::*;

    fn holds(area: &MultiPolygon, lon: f64, lat: f64) -> bool {
        area.contains(Location::from_degrees(lon, lat).unwrap())
    }

    const OVERLAPPING: &str =
        "m\n1\n  0 0\n  0 2\n  2 2\n  2 0\n  0 0\nEND\n2\n  1 1\n  1 3\n  3 3\n  3 1\n  1 1\nEND\nEND\n";

    #[test]
    fn overlapping_rings_are_united() {
        let area = parse_poly(OVERLAPPING.as_bytes()).unwrap();
        for at in [0.5, 1.5, 2.5] {
            assert!(holds(&area, at, at), "{at}");
        }
        assert!(!holds(&area, 0.5, 2.5));
    }

    #[test]
    fn a_ring_touching_the_antimeridian_holds_both_its_names() {
        let area = parse_poly(b"ru\n1\n170 60\n180 60\n180 70\n170 70\n170 60\nEND\nEND\n").unwrap();
        assert!(holds(&area, 180.0, 65.0) && holds(&area, -180.0, 65.0) && !holds(&area, -179.9, 65.0));
    }

    #[test]
    fn everything_lenient() {
        let text = "\u{feff}na\u{e9}me\r\n\r\n area one \r\n 1.0E+01 -1e0 ignored\r\n1.1E1\t-1\r\n+1.1E+001  0.0\r\n\r\nend\r\n!hole\r\n\
            10.8 -0.9\r\n10.9 -0.9\r\n10.9 -0.8\r\nEND\r\nEND\r\nsecond\r\n1\r\n20 0\r\n21 0\r\n21 1\r\nEND\r\nEND";
        let area = parse_poly(text.as_bytes()).unwrap();
        assert_eq!(area.part_count(), 2);
        assert!(holds(&area, 10.5, -0.9) && !holds(&area, 10.89, -0.89) && holds(&area, 20.5, 0.2));
        assert_eq!(
            area.bbox(),
            Some(BoundingBox::new(
                100_000_000,
                -10_000_000,
                210_000_000,
                10_000_000
            ))
        );
        let mut latin1 = text.replace('\u{e9}', "?").into_bytes();
        latin1[4] = 0xE9;
        assert!(parse_poly(&latin1).is_ok());
    }

    #[test]
    fn holes_are_cut_whatever_the_order() {
        let text = "x\n!h\n2 2\n3 2\n3 3\n2 3\nEND\n1\n0 0\n4 0\n4 4\n0 4\nEND\nEND\n";
        let area = parse_poly(text.as_bytes()).unwrap();
        assert!(!holds(&area, 2.5, 2.5) && holds(&area, 2.0, 2.5) && holds(&area, 1.0, 1.0));
    }

    #[test]
    fn errors_name_the_line() {
        for (text, line, expected) in [
            ("x\n1\n0 0\n1 1\nEND\nEND\n", 5, "fewer than three"),
            ("x\n1\n0 0\n1 1\n1 0\n", 5, "within a ring"),
            ("x\n1\n0 0\n1 1\n1 0\nEND\n", 6, "without a last END"),
            ("x\n1\n0 0\n\n1,1\n1 0\nEND\nEND\n", 5, "'1,1'"),
            ("x\n1\n0 0\n0 95\n1 0\nEND\nEND\n", 4, "pole"),
            ("x\n1\n0 0\n0 1\n1e999 0\nEND\nEND\n", 5, "finite"),
            ("x\nEND\n", 2, "without any ring"),
            ("x\n0 0\n0 1\n1 1\nEND\nEND\n", 2, "name of a ring"),
            ("0 0\n0 1\n1 1\nEND\nEND\n", 1, "name that comes first"),
            ("x", 1, "without a last END"),
        ] {
            match parse_poly(text.as_bytes()).unwrap_err() {
                RegionError::Poly { line: at, reason } => {
                    assert!(
                        at == line && reason.contains(expected),
                        "{text:?}: {at}: {reason}"
                    );
                }
                other => panic!("{text:?}: {other}"),
            }
        }
        assert!(matches!(parse_poly(b" \n\n"), Err(RegionError::Empty(_))));
        assert!(matches!(
            parse_poly(b"x\n!1\n0 0\n1 1\n1 0\nEND\nEND\n"),
            Err(RegionError::Empty(_))
        ));
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_tried(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_poly(&bytes);
        }

        #[test]
        fn any_lines_can_be_tried(
            lines in prop::collection::vec(
                prop::sample::select(vec!["END", "END", "1", "!2", "0 0", "1 1", "5 -5", "1e308 1", "-180.5 3", "x"]),
                0..40,
            )
        ) {
            let _ = parse_poly(lines.join("\n").as_bytes());
        }
    }
}
