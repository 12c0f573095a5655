//! Locations on the earth.

use std::fmt;

/// Units per degree of a [`Location`]'s coordinates.
pub const COORDINATE_PRECISION: i32 = 10_000_000;

/// A longitude and a latitude in units of 10⁻⁷ degrees (about 1 cm), the precision of the OSM database.
///
/// Values outside ±180/±90 degrees can be held, since files contain them; [`Location::is_valid`] tells.
/// Absence is `Option<Location>`, never a special value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Location {
    /// Longitude (x), in 10⁻⁷ degrees.
    pub lon: i32,
    /// Latitude (y), in 10⁻⁷ degrees.
    pub lat: i32,
}

impl Location {
    /// A location from units of 10⁻⁷ degrees.
    pub const fn new(lon: i32, lat: i32) -> Self {
        Location { lon, lat }
    }

    /// A location from degrees, rounded to the nearest unit; `None` if a coordinate is not a number or does
    /// not fit.
    pub fn from_degrees(lon: f64, lat: f64) -> Option<Self> {
        let unit = |degrees: f64| {
            let units = (degrees * f64::from(COORDINATE_PRECISION)).round();
            (units.abs() <= f64::from(i32::MAX)).then_some(units as i32)
        };
        Some(Location {
            lon: unit(lon)?,
            lat: unit(lat)?,
        })
    }

    /// Whether the location is on the earth: within ±180 degrees of longitude and ±90 of latitude.
    pub const fn is_valid(self) -> bool {
        self.lon.unsigned_abs() <= 1_800_000_000 && self.lat.unsigned_abs() <= 900_000_000
    }

    /// Longitude in degrees.
    pub fn lon_degrees(self) -> f64 {
        f64::from(self.lon) / f64::from(COORDINATE_PRECISION)
    }

    /// Latitude in degrees.
    pub fn lat_degrees(self) -> f64 {
        f64::from(self.lat) / f64::from(COORDINATE_PRECISION)
    }
}

impl fmt::Display for Location {
    /// `lon,lat` in degrees without trailing zeros.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::with_capacity(28);
        format_coordinate(&mut text, self.lon);
        text.push(b',');
        format_coordinate(&mut text, self.lat);
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

/// Appends a coordinate of 10⁻⁷ degrees as a decimal number of degrees, exact and without trailing zeros:
/// `7.4195`, `-0.0000001`, `12`.
pub fn format_coordinate(out: &mut Vec<u8>, value: i32) {
    let mut digits = value.unsigned_abs();
    if value < 0 {
        out.push(b'-');
    }
    let whole = digits / COORDINATE_PRECISION as u32;
    digits %= COORDINATE_PRECISION as u32;
    if whole >= 100 {
        out.push(b'0' + (whole / 100) as u8);
    }
    if whole >= 10 {
        out.push(b'0' + (whole / 10 % 10) as u8);
    }
    out.push(b'0' + (whole % 10) as u8);
    if digits == 0 {
        return;
    }
    out.push(b'.');
    let mut unit = COORDINATE_PRECISION as u32 / 10;
    while digits > 0 {
        out.push(b'0' + (digits / unit) as u8);
        digits %= unit;
        unit /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn degrees_are_exact() {
        let cases = [
            (0, "0"),
            (74195000, "7.4195"),
            (-1, "-0.0000001"),
            (1800000000, "180"),
            (120000000, "12"),
            (i32::MIN, "-214.7483648"),
            (i32::MAX, "214.7483647"),
            (10, "0.000001"),
        ];
        for (value, expected) in cases {
            let mut out = Vec::new();
            format_coordinate(&mut out, value);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
        assert_eq!(Location::new(74195000, -1).to_string(), "7.4195,-0.0000001");
    }

    #[test]
    fn validity_is_that_of_the_earth() {
        assert!(Location::new(1_800_000_000, -900_000_000).is_valid());
        assert!(!Location::new(1_800_000_001, 0).is_valid());
        assert!(!Location::new(0, i32::MIN).is_valid());
        assert_eq!(Location::from_degrees(f64::NAN, 0.0), None);
        assert_eq!(Location::from_degrees(400.0, 0.0), None);
    }

    proptest! {
        #[test]
        fn text_reads_back(value: i32) {
            let mut out = Vec::new();
            format_coordinate(&mut out, value);
            let degrees: f64 = std::str::from_utf8(&out).unwrap().parse().unwrap();
            prop_assert_eq!((degrees * 1e7).round() as i64, i64::from(value));
        }
    }
}
