//! OSM XML and OsmChange, laid out as `osmium` lays them out.

use osmill_model::{Kind, Location, Metadata, Timestamp, format_coordinate, format_integer};
use osmill_pbf::{BlockError, Element};

use crate::assemble::Action;
use crate::print::{PrintHeader, PrintOptions, stored_location};

/// Appends the XML declaration, the start tag of the root, and the bounds.
pub(crate) fn write_header(header: &PrintHeader, options: &PrintOptions, out: &mut Vec<u8>) {
    out.extend_from_slice(b"<?xml version='1.0' encoding='UTF-8'?>\n<");
    out.extend_from_slice(if options.change { b"osmChange" } else { b"osm" });
    out.extend_from_slice(b" version=\"0.6\"");
    if let Some(upload) = &header.upload {
        out.extend_from_slice(b" upload=\"");
        push_escaped(out, upload.as_bytes());
        out.push(b'"');
    }
    out.extend_from_slice(b" generator=\"");
    push_escaped(out, header.generator.as_bytes());
    out.extend_from_slice(b"\">\n");
    for bounds in &header.bounds {
        out.extend_from_slice(b"  <bounds");
        push_location(out, [b" minlat=\"", b" minlon=\""], bounds.min);
        push_location(out, [b" maxlat=\"", b" maxlon=\""], bounds.max);
        out.extend_from_slice(b"/>\n");
    }
}

/// Appends the end tag of the root.
pub(crate) fn write_end(options: &PrintOptions, out: &mut Vec<u8>) {
    out.extend_from_slice(if options.change {
        b"</osmChange>\n"
    } else {
        b"</osm>\n"
    });
}

pub(crate) fn open_action(action: Action, out: &mut Vec<u8>) {
    out.extend_from_slice(b"  <");
    out.extend_from_slice(action.name().as_bytes());
    out.extend_from_slice(b">\n");
}

pub(crate) fn close_action(action: Option<Action>, out: &mut Vec<u8>) {
    if let Some(action) = action {
        out.extend_from_slice(b"  </");
        out.extend_from_slice(action.name().as_bytes());
        out.extend_from_slice(b">\n");
    }
}

/// Appends one element, without the action around it.
pub(crate) fn print_element(
    element: &Element<'_>,
    metadata: &Metadata<'_>,
    options: &PrintOptions,
    out: &mut Vec<u8>,
) -> Result<(), BlockError> {
    let indent: &[u8] = if options.change { b"    " } else { b"  " };
    let name = element.kind().name().as_bytes();
    out.extend_from_slice(indent);
    out.push(b'<');
    out.extend_from_slice(name);
    out.extend_from_slice(b" id=\"");
    format_integer(out, element.id());
    out.push(b'"');
    print_metadata(metadata, options, out);
    let mut is_empty = element.tags().is_empty();
    match element {
        Element::Node(node) => {
            if let Some(location) = stored_location(node, options)? {
                push_location(out, [b" lat=\"", b" lon=\""], location);
            }
        }
        Element::Way(way) => is_empty &= way.ref_count() == 0,
        Element::Relation(relation) => is_empty &= relation.member_count() == 0,
    }
    if is_empty {
        out.extend_from_slice(b"/>\n");
        return Ok(());
    }
    out.extend_from_slice(b">\n");
    match element {
        Element::Node(_) => {}
        Element::Way(way) => {
            let locations = options.locations_on_ways != Some(false) && way.has_locations();
            let mut locations = locations.then(|| way.locations());
            for id in way.refs() {
                out.extend_from_slice(indent);
                out.extend_from_slice(b"  <nd ref=\"");
                format_integer(out, id?);
                out.push(b'"');
                if let Some(locations) = &mut locations
                    && let Some(location) = locations.next().transpose()?.flatten()
                {
                    push_location(out, [b" lat=\"", b" lon=\""], location);
                }
                out.extend_from_slice(b"/>\n");
            }
        }
        Element::Relation(relation) => {
            for member in relation.members() {
                let member = member?;
                out.extend_from_slice(indent);
                out.extend_from_slice(match member.element.kind {
                    Kind::Node => b"  <member type=\"node\" ref=\"".as_slice(),
                    Kind::Way => b"  <member type=\"way\" ref=\"",
                    Kind::Relation => b"  <member type=\"relation\" ref=\"",
                });
                format_integer(out, member.element.id);
                out.extend_from_slice(b"\" role=\"");
                push_escaped(out, member.role);
                out.extend_from_slice(b"\"/>\n");
            }
        }
    }
    for tag in element.tags() {
        let tag = tag?;
        out.extend_from_slice(indent);
        out.extend_from_slice(b"  <tag k=\"");
        push_escaped(out, tag.key);
        out.extend_from_slice(b"\" v=\"");
        push_escaped(out, tag.value);
        out.extend_from_slice(b"\"/>\n");
    }
    out.extend_from_slice(indent);
    out.extend_from_slice(b"</");
    out.extend_from_slice(name);
    out.extend_from_slice(b">\n");
    Ok(())
}

/// Values that are absent, 0 or empty are left out.
fn print_metadata(metadata: &Metadata<'_>, options: &PrintOptions, out: &mut Vec<u8>) {
    let number = |out: &mut Vec<u8>, name: &[u8], value: i64| {
        out.extend_from_slice(name);
        format_integer(out, value);
        out.push(b'"');
    };
    let fields = options.metadata;
    if let Some(version) = metadata.version.filter(|v| fields.version && *v != 0) {
        number(out, b" version=\"", version.into());
    }
    if let Some(timestamp) = metadata
        .timestamp
        .filter(|t| fields.timestamp && *t != Timestamp(0))
    {
        out.extend_from_slice(b" timestamp=\"");
        timestamp.format_into(out);
        out.push(b'"');
    }
    if let Some(uid) = metadata.uid.filter(|uid| fields.uid && *uid > 0) {
        number(out, b" uid=\"", uid.into());
    }
    if let Some(user) = metadata.user.filter(|user| fields.user && !user.is_empty()) {
        out.extend_from_slice(b" user=\"");
        push_escaped(out, user);
        out.push(b'"');
    }
    if let Some(changeset) = metadata.changeset.filter(|c| fields.changeset && *c != 0) {
        number(out, b" changeset=\"", changeset);
    }
    if options.visible {
        out.extend_from_slice(if metadata.is_visible() {
            b" visible=\"true\"".as_slice()
        } else {
            b" visible=\"false\""
        });
    }
}

fn push_location(out: &mut Vec<u8>, [lat, lon]: [&[u8]; 2], location: Location) {
    out.extend_from_slice(lat);
    format_coordinate(out, location.lat);
    out.push(b'"');
    out.extend_from_slice(lon);
    format_coordinate(out, location.lon);
    out.push(b'"');
}

/// Bytes that are written as entities.
const SPECIAL: [bool; 256] = {
    let mut special = [false; 256];
    let bytes = b"&\"'<>\n\r\t";
    let mut i = 0;
    while i < bytes.len() {
        special[bytes[i] as usize] = true;
        i += 1;
    }
    special
};

/// Appends the text of an attribute value.
pub(crate) fn push_escaped(out: &mut Vec<u8>, text: &[u8]) {
    let mut rest = text;
    while let Some(at) = rest.iter().position(|b| SPECIAL[*b as usize]) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(match rest[at] {
            b'&' => b"&amp;".as_slice(),
            b'"' => b"&quot;",
            b'\'' => b"&apos;",
            b'<' => b"&lt;",
            b'>' => b"&gt;",
            b'\n' => b"&#xA;",
            b'\r' => b"&#xD;",
            _ => b"&#x9;",
        });
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}
