//! The file header: HeaderBlock.

use osmill_model::Timestamp;

use crate::error::HeaderError;
use crate::wire::{
    Field, Fields, Value, write_bytes_field, write_sint, write_varint, write_varint_field, zigzag_decode,
};

/// Feature flags that this library understands when a file requires them.
pub const SUPPORTED_FEATURES: [&str; 3] = ["OsmSchema-V0.6", "DenseNodes", "HistoricalInformation"];
/// Optional feature: elements are sorted by kind, then id, then version.
pub const SORTED: &str = "Sort.Type_then_ID";
/// Optional feature: ways carry the locations of their nodes.
pub const LOCATIONS_ON_WAYS: &str = "LocationsOnWays";
/// Required feature: several versions of an element, deleted ones among them.
pub const HISTORY: &str = "HistoricalInformation";

/// The rectangle of a file header, in nanodegrees, just as the file has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderBox {
    /// Western edge.
    pub left: i64,
    /// Eastern edge.
    pub right: i64,
    /// Northern edge.
    pub top: i64,
    /// Southern edge.
    pub bottom: i64,
}

impl HeaderBox {
    /// The smallest rectangle around both.
    pub fn union(self, other: HeaderBox) -> HeaderBox {
        HeaderBox {
            left: self.left.min(other.left),
            right: self.right.max(other.right),
            top: self.top.max(other.top),
            bottom: self.bottom.min(other.bottom),
        }
    }
}

/// The contents of a file's header block. What this library has no name for is kept in `unknown`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileHeader {
    /// The area that the data covers.
    pub bbox: Option<HeaderBox>,
    /// Features that a reader must know.
    pub required_features: Vec<String>,
    /// Features that a reader may make use of.
    pub optional_features: Vec<String>,
    /// The program that wrote the file.
    pub writing_program: Option<String>,
    /// Where the data comes from.
    pub source: Option<String>,
    /// Up to when changes are in the data.
    pub replication_timestamp: Option<Timestamp>,
    /// The number of the last change file that is in the data.
    pub replication_sequence: Option<i64>,
    /// Where change files for the data are found.
    pub replication_base_url: Option<String>,
    /// Fields without a name here, as wire bytes.
    pub unknown: Vec<u8>,
    /// The parts of the area, where a text file tells several. PBF has no place for them, only for the rectangle
    /// around them, [`bbox`](Self::bbox); they hold as long as they make it up.
    pub parts: Vec<HeaderBox>,
    /// JOSM's mark whether data may be uploaded. PBF has no place for it.
    pub upload: Option<String>,
}

impl FileHeader {
    /// A header with the features that every file needs, and our name as the writing program.
    pub fn new(writing_program: &str) -> Self {
        FileHeader {
            required_features: vec!["OsmSchema-V0.6".into(), "DenseNodes".into()],
            writing_program: Some(writing_program.into()),
            ..FileHeader::default()
        }
    }

    /// Reads a HeaderBlock message, and refuses one that requires a feature outside [`SUPPORTED_FEATURES`].
    pub fn parse(message: &[u8]) -> Result<Self, HeaderError> {
        let mut header = FileHeader::default();
        let text =
            |value: Value<'_>| Ok::<_, HeaderError>(String::from_utf8_lossy(value.bytes()?).into_owned());
        let mut fields = Fields::new(message);
        while let Some(field @ Field { number, value, .. }) = fields.try_next_field()? {
            match number {
                1 => header.bbox = Some(parse_box(value.bytes()?)?),
                4 => header.required_features.push(text(value)?),
                5 => header.optional_features.push(text(value)?),
                16 => header.writing_program = Some(text(value)?),
                17 => header.source = Some(text(value)?),
                32 => header.replication_timestamp = Some(Timestamp(value.varint()? as i64)),
                33 => header.replication_sequence = Some(value.varint()? as i64),
                34 => header.replication_base_url = Some(text(value)?),
                _ => header.unknown.extend_from_slice(field.bytes()),
            }
        }
        match header
            .required_features
            .iter()
            .find(|f| !SUPPORTED_FEATURES.contains(&f.as_str()))
        {
            Some(unknown) => Err(HeaderError::RequiredFeature(unknown.clone())),
            None => Ok(header),
        }
    }

    /// The HeaderBlock message.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(bbox) = &self.bbox {
            let mut message = Vec::new();
            for (field, value) in [(1, bbox.left), (2, bbox.right), (3, bbox.top), (4, bbox.bottom)] {
                write_varint(&mut message, field << 3);
                write_sint(&mut message, value);
            }
            write_bytes_field(&mut out, 1, &message);
        }
        for feature in &self.required_features {
            write_bytes_field(&mut out, 4, feature.as_bytes());
        }
        for feature in &self.optional_features {
            write_bytes_field(&mut out, 5, feature.as_bytes());
        }
        for (field, value) in [(16, &self.writing_program), (17, &self.source)] {
            if let Some(value) = value {
                write_bytes_field(&mut out, field, value.as_bytes());
            }
        }
        if let Some(Timestamp(seconds)) = self.replication_timestamp {
            write_varint_field(&mut out, 32, seconds as u64);
        }
        if let Some(sequence) = self.replication_sequence {
            write_varint_field(&mut out, 33, sequence as u64);
        }
        if let Some(url) = &self.replication_base_url {
            write_bytes_field(&mut out, 34, url.as_bytes());
        }
        out.extend_from_slice(&self.unknown);
        out
    }

    /// The areas that the data covers: the parts if they are told, else the rectangle around them, if any.
    pub fn areas(&self) -> Vec<HeaderBox> {
        let around = self.parts.iter().copied().reduce(HeaderBox::union);
        if around.is_some() && around == self.bbox {
            self.parts.clone()
        } else {
            self.bbox.into_iter().collect()
        }
    }

    /// Sets the areas that the data covers.
    pub fn set_areas(&mut self, areas: Vec<HeaderBox>) {
        self.bbox = areas.iter().copied().reduce(HeaderBox::union);
        self.parts = areas;
    }

    /// Whether the header names an optional feature.
    pub fn has_optional(&self, feature: &str) -> bool {
        self.optional_features.iter().any(|f| f == feature)
    }

    /// Adds or removes an optional feature.
    pub fn set_optional(&mut self, feature: &str, on: bool) {
        if !on {
            self.optional_features.retain(|f| f != feature);
        } else if !self.has_optional(feature) {
            self.optional_features.push(feature.into());
        }
    }

    /// Whether the file claims to be sorted by kind, then id.
    pub fn claims_sorted(&self) -> bool {
        self.has_optional(SORTED)
    }

    /// Whether the file claims that its ways carry locations.
    pub fn claims_locations_on_ways(&self) -> bool {
        self.has_optional(LOCATIONS_ON_WAYS)
    }

    /// Whether the file holds history: several versions of an element.
    pub fn has_history(&self) -> bool {
        self.required_features.iter().any(|f| f == HISTORY)
    }

    /// Adds or removes the history feature.
    pub fn set_history(&mut self, on: bool) {
        self.required_features.retain(|f| f != HISTORY);
        if on {
            self.required_features.push(HISTORY.into());
        }
    }
}

fn parse_box(message: &[u8]) -> Result<HeaderBox, HeaderError> {
    let mut edges = [0i64; 4];
    let mut fields = Fields::new(message);
    while let Some((number, value)) = fields.try_next()? {
        if let Some(edge) = edges.get_mut((number as usize).wrapping_sub(1)) {
            *edge = zigzag_decode(value.varint()?);
        }
    }
    let [left, right, top, bottom] = edges;
    Ok(HeaderBox {
        left,
        right,
        top,
        bottom,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_required_feature_we_do_not_know_is_refused_by_name() {
        let mut header = FileHeader::new("test");
        header.required_features.push("Wombat-2".into());
        let error = FileHeader::parse(&header.encode()).unwrap_err();
        assert_eq!(error, HeaderError::RequiredFeature("Wombat-2".into()));
    }

    #[test]
    fn parts_of_an_area_hold_while_they_make_it_up() {
        let part = |left| HeaderBox {
            left,
            right: left + 5,
            top: 3,
            bottom: -3,
        };
        let mut header = FileHeader::new("test");
        header.set_areas(vec![part(0), part(100)]);
        assert_eq!(header.bbox.map(|b| (b.left, b.right)), Some((0, 105)));
        assert_eq!(header.areas().len(), 2);
        assert_eq!(
            FileHeader::parse(&header.encode()).unwrap().areas(),
            [header.bbox.unwrap()]
        );
        header.bbox = Some(part(7));
        assert_eq!(header.areas(), [part(7)]);
        header.bbox = None;
        assert_eq!(header.areas(), []);
    }

    #[test]
    fn features_come_and_go() {
        let mut header = FileHeader::new("test");
        header.set_optional(SORTED, true);
        header.set_optional(SORTED, true);
        assert!(header.claims_sorted() && header.optional_features.len() == 1);
        header.set_optional(SORTED, false);
        assert!(!header.claims_sorted());
        header.set_history(true);
        assert!(header.has_history());
    }

    proptest! {
        #[test]
        fn headers_read_back_unknown_fields_included(
            edges: Option<[i64; 4]>, optional: Vec<String>, program: Option<String>, source: Option<String>,
            time: Option<i64>, sequence: Option<i64>, url: Option<String>, unknown in 100u32..1000,
        ) {
            let mut extra = Vec::new();
            write_bytes_field(&mut extra, unknown, b"kept");
            let header = FileHeader {
                bbox: edges.map(|[left, right, top, bottom]| HeaderBox { left, right, top, bottom }),
                optional_features: optional, writing_program: program, source,
                replication_timestamp: time.map(Timestamp), replication_sequence: sequence,
                replication_base_url: url, unknown: extra,
                ..FileHeader::new("")
            };
            prop_assert_eq!(FileHeader::parse(&header.encode()), Ok(header));
        }

        #[test]
        fn any_bytes_are_safe(bytes: Vec<u8>) {
            let _ = FileHeader::parse(&bytes);
        }
    }
}
