//! Locations on the earth.

use std::fmt;

use crate::decimal::format_coordinate;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_in_degrees() {
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
}
