//! OPL: one element a line, fields separated by spaces.
//!
//! `n17 v2 dV c5 t2014-01-01T00:00:00Z i7 uAna Tname=Vaduz x9.5209 y47.141`
//!
//! Values that OPL has no word for when absent are printed as libosmium prints them: version, changeset and
//! uid as 0, time, user and location as nothing. Characters outside a list of plain ones are written as
//! `%hex%`. Bytes that are not UTF-8 are replaced by U+FFFD, since the format is text.

mod parse;

use osmill_model::{Location, Metadata, Timestamp, format_coordinate, format_integer};
use osmill_pbf::{Block, BlockError, Element, MetadataFields};

use crate::print::{PrintOptions, stored_location};

pub(crate) use parse::OplParser;

/// Appends a line for each element of the block with all that OPL has fields for, locations on ways where
/// there are any. Gives the number of nodes, ways and relations.
pub fn write_block(block: &Block, out: &mut Vec<u8>) -> Result<[u32; 3], BlockError> {
    let mut counts = [0; 3];
    for element in block.elements() {
        let element = element?;
        write_element(&element, out)?;
        counts[element.kind() as usize] += 1;
    }
    Ok(counts)
}

/// Appends the line of one element, line feed included; see [`write_block`].
pub fn write_element(element: &Element<'_>, out: &mut Vec<u8>) -> Result<(), BlockError> {
    write_element_as(element, &element.metadata()?, out)
}

/// Appends the line of one element with other metadata than its own; see [`write_block`].
pub fn write_element_as(
    element: &Element<'_>,
    metadata: &Metadata<'_>,
    out: &mut Vec<u8>,
) -> Result<(), BlockError> {
    print_element(element, metadata, &PrintOptions::default(), out)
}

/// Appends the line of one element with the metadata fields that the options name.
pub(crate) fn print_element(
    element: &Element<'_>,
    metadata: &Metadata<'_>,
    options: &PrintOptions,
    out: &mut Vec<u8>,
) -> Result<(), BlockError> {
    let fields = options.metadata;
    out.push(element.kind().letter() as u8);
    format_integer(out, element.id());
    if fields.version {
        out.extend_from_slice(b" v");
        format_integer(out, metadata.version.unwrap_or(0).into());
    }
    if has_any(fields) {
        out.extend_from_slice(if metadata.is_visible() { b" dV" } else { b" dD" });
    }
    if fields.changeset {
        out.extend_from_slice(b" c");
        format_integer(out, metadata.changeset.unwrap_or(0));
    }
    if fields.timestamp {
        out.extend_from_slice(b" t");
        if let Some(timestamp) = metadata.timestamp.filter(|t| *t != Timestamp(0)) {
            timestamp.format_into(out);
        }
    }
    if fields.uid {
        out.extend_from_slice(b" i");
        format_integer(out, metadata.uid.unwrap_or(0).max(0).into());
    }
    if fields.user {
        out.extend_from_slice(b" u");
        push_escaped(out, metadata.user.unwrap_or_default());
    }
    out.extend_from_slice(b" T");
    for (i, tag) in element.tags().enumerate() {
        let tag = tag?;
        if i > 0 {
            out.push(b',');
        }
        push_escaped(out, tag.key);
        out.push(b'=');
        push_escaped(out, tag.value);
    }
    match element {
        Element::Node(node) => {
            let location = stored_location(node, options)?;
            out.extend_from_slice(b" x");
            if let Some(location) = location {
                format_coordinate(out, location.lon);
            }
            out.extend_from_slice(b" y");
            if let Some(location) = location {
                format_coordinate(out, location.lat);
            }
        }
        Element::Way(way) => {
            out.extend_from_slice(b" N");
            let prints = options.locations_on_ways.unwrap_or(way.has_locations());
            let mut locations = prints.then(|| way.locations());
            for (i, id) in way.refs().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                out.push(b'n');
                format_integer(out, id?);
                if let Some(locations) = &mut locations {
                    push_way_location(out, locations.next().transpose()?.flatten());
                }
            }
        }
        Element::Relation(relation) => {
            out.extend_from_slice(b" M");
            for (i, member) in relation.members().enumerate() {
                let member = member?;
                if i > 0 {
                    out.push(b',');
                }
                out.push(member.element.kind.letter() as u8);
                format_integer(out, member.element.id);
                out.push(b'@');
                push_escaped(out, member.role);
            }
        }
    }
    out.push(b'\n');
    Ok(())
}

/// Whether anything beyond visibility is printed, without which that is left out, too.
fn has_any(fields: MetadataFields) -> bool {
    fields.version || fields.changeset || fields.timestamp || fields.uid || fields.user
}

fn push_way_location(out: &mut Vec<u8>, location: Option<Location>) {
    out.push(b'x');
    if let Some(location) = location {
        format_coordinate(out, location.lon);
    }
    out.push(b'y');
    if let Some(location) = location {
        format_coordinate(out, location.lat);
    }
}

/// ASCII characters that stand for themselves.
const PLAIN: [bool; 128] = {
    let mut plain = [false; 128];
    let mut c = 0x21;
    while c < 0x7f {
        plain[c] = !matches!(c as u8, b'%' | b',' | b'=' | b'@');
        c += 1;
    }
    plain
};

fn push_escaped(out: &mut Vec<u8>, text: &[u8]) {
    let plain = text
        .iter()
        .take_while(|b| b.is_ascii() && PLAIN[**b as usize])
        .count();
    out.extend_from_slice(&text[..plain]);
    for chunk in text[plain..].utf8_chunks() {
        for c in chunk.valid().chars() {
            push_escaped_char(out, c);
        }
        if !chunk.invalid().is_empty() {
            push_escaped_char(out, char::REPLACEMENT_CHARACTER);
        }
    }
}

fn push_escaped_char(out: &mut Vec<u8>, c: char) {
    let code = c as u32;
    match code {
        0..0x80 if PLAIN[code as usize] => out.push(code as u8),
        0xa1..=0xac | 0xae..=0x5ff => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        _ => {
            // Two digits for what fits, else four or more.
            let digits = match code {
                0..=0xff => 2,
                0x100..=0xffff => 4,
                0x1_0000..=0xf_ffff => 5,
                _ => 6,
            };
            out.push(b'%');
            for shift in (0..digits).rev() {
                out.push(b"0123456789abcdef"[(code >> (4 * shift)) as usize & 15]);
            }
            out.push(b'%');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use osmill_model::{ElementId, Kind, Member, Tag};
    use osmill_pbf::BlockBuilder;
    use proptest::prelude::*;

    fn escaped(text: &[u8]) -> String {
        let mut out = Vec::new();
        push_escaped(&mut out, text);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn escapes() {
        assert_eq!(
            escaped("Zürich, a=b@c %".as_bytes()),
            "Zürich%2c%%20%a%3d%b%40%c%20%%25%"
        );
        assert_eq!(escaped("日本\u{1f600}\n".as_bytes()), "%65e5%%672c%%1f600%%0a%");
        assert_eq!(escaped(b"a\xffb"), "a%fffd%b");
        assert_eq!(escaped("\u{ad}\u{a0}\u{600}".as_bytes()), "%ad%%a0%%0600%");
    }

    #[test]
    fn lines_of_every_kind() {
        let mut builder = BlockBuilder::default();
        let metadata = Metadata {
            version: Some(2),
            timestamp: Some(Timestamp(1_388_534_400)),
            changeset: Some(5),
            uid: Some(7),
            user: Some(b"Ana B"),
            visible: None,
        };
        let tag = Tag {
            key: b"name",
            value: b"Vaduz",
        };
        builder.add_node(17, Some(Location::new(95_209_000, 471_410_000)), [tag], &metadata);
        builder.add_node(
            -3,
            None,
            [],
            &Metadata {
                visible: Some(false),
                ..Metadata::default()
            },
        );
        builder.add_way(5, &[17, -3], None, [tag, tag], &metadata);
        let on_way = [Some(Location::new(1, 2)), None];
        builder.add_way(6, &[17, -3], Some(&on_way), [], &Metadata::default());
        let member = Member {
            element: ElementId::new(Kind::Way, 5),
            role: b"outer ring",
        };
        builder.add_relation(
            9,
            &[member, Member { role: b"", ..member }],
            [],
            &Metadata::default(),
        );
        let mut raw = Vec::new();
        builder.finish(&mut raw);
        let mut out = Vec::new();
        assert_eq!(
            write_block(&Block::parse(raw).unwrap(), &mut out).unwrap(),
            [2, 2, 1]
        );
        let expected = "\
            n17 v2 dV c5 t2014-01-01T00:00:00Z i7 uAna%20%B Tname=Vaduz x9.5209 y47.141\n\
            n-3 v0 dD c0 t i0 u T x y\n\
            w5 v2 dV c5 t2014-01-01T00:00:00Z i7 uAna%20%B Tname=Vaduz,name=Vaduz Nn17,n-3\n\
            w6 v0 dV c0 t i0 u T Nn17x0.0000001y0.0000002,n-3xy\n\
            r9 v0 dV c0 t i0 u T Mw5@outer%20%ring,w5@\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    proptest! {
        #[test]
        fn escaped_text_has_no_separator_and_reads_back(text: String) {
            let line = escaped(text.as_bytes());
            prop_assert!(!line.contains([' ', ',', '=', '@', '\n', '\t']));
            let mut back = String::new();
            let mut parts = line.split('%');
            while let Some(plain) = parts.next() {
                back.push_str(plain);
                if let Some(code) = parts.next() {
                    back.push(char::from_u32(u32::from_str_radix(code, 16).unwrap()).unwrap());
                }
            }
            prop_assert_eq!(back, text);
        }
    }
}
