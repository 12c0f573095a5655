//! Elements survive every format; damaged bytes end in an error or in elements, never in a panic.

mod common;

use common::{Plain, read_text};
use osmill_model::{ElementId, Kind, Location, Member, Metadata, Tag, Timestamp};
use osmill_pbf::{Block, BlockBuilder};
use osmill_text::compress::TextCompressor;
use osmill_text::format::TextCompression;
use osmill_text::{Action, PrintHeader, PrintOptions, Printer};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

fn kind() -> impl Strategy<Value = Kind> {
    (0u64..3).prop_map(|index| Kind::from_index(index).unwrap())
}

/// Text as people write it, and the characters that formats have trouble with.
fn text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof!["[a-z:_]{0,12}", "[&<>\"'%,=@ \n\t\r#;x0-9]{0,8}", "\\PC{0,6}",].prop_map(String::into_bytes)
}

fn location() -> impl Strategy<Value = Location> {
    (-1_800_000_000i32..=1_800_000_000, -900_000_000i32..=900_000_000)
        .prop_map(|(lon, lat)| Location::new(lon, lat))
}

/// An element whose every value the formats have a word for: no zeros and no empty user, which are printed
/// like absent ones.
fn element() -> impl Strategy<Value = Plain> {
    let metadata = (
        option::of(1..i32::MAX),
        option::of(1i64..4_000_000_000),
        option::of(1i64..4_294_967_295),
        option::of(1..i32::MAX),
        option::of(text().prop_filter("not empty", |t| !t.is_empty())),
        any::<bool>(),
    );
    let content = (
        option::of(location()),
        vec((text(), text()), 0..4),
        vec((any::<i64>(), option::of(location())), 0..5),
        vec((kind(), any::<i64>(), text()), 0..4),
    );
    (kind(), any::<i64>(), metadata, content).prop_map(|(kind, id, metadata, content)| {
        let (version, timestamp, changeset, uid, user, deleted) = metadata;
        let (location, tags, refs, members) = content;
        let any_location = refs.iter().any(|r| r.1.is_some());
        Plain {
            version,
            timestamp: timestamp.map(Timestamp),
            changeset,
            uid,
            user,
            visible: deleted.then_some(false),
            location: location.filter(|_| kind == Kind::Node),
            tags,
            refs: if kind == Kind::Way { refs } else { Vec::new() }
                .into_iter()
                .map(|(id, location)| (id, location.filter(|_| any_location)))
                .collect(),
            members: if kind == Kind::Relation {
                members
            } else {
                Vec::new()
            }
            .into_iter()
            .map(|(kind, id, role)| (ElementId::new(kind, id), role))
            .collect(),
            ..Plain::new(ElementId::new(kind, id))
        }
    })
}

fn block_of(elements: &[Plain]) -> Block {
    let mut builder = BlockBuilder::default();
    for plain in elements {
        let metadata = Metadata {
            version: plain.version,
            timestamp: plain.timestamp,
            changeset: plain.changeset,
            uid: plain.uid,
            user: plain.user.as_deref(),
            visible: plain.visible,
        };
        let tags = plain.tags.iter().map(|(key, value)| Tag { key, value });
        let id = plain.element.id;
        match plain.element.kind {
            Kind::Node => builder.add_node(id, plain.location, tags, &metadata),
            Kind::Way => {
                let refs: Vec<i64> = plain.refs.iter().map(|r| r.0).collect();
                let locations: Vec<_> = plain.refs.iter().map(|r| r.1).collect();
                let any = locations.iter().any(Option::is_some);
                builder.add_way(id, &refs, any.then_some(&locations), tags, &metadata);
            }
            Kind::Relation => {
                let members: Vec<_> = plain
                    .members
                    .iter()
                    .map(|(element, role)| Member {
                        element: *element,
                        role,
                    })
                    .collect();
                builder.add_relation(id, &members, tags, &metadata);
            }
        }
    }
    let mut bytes = Vec::new();
    builder.finish(&mut bytes);
    Block::parse(bytes).unwrap()
}

fn print(mut printer: Printer, elements: &[Plain]) -> Vec<u8> {
    let mut out = Vec::new();
    printer.header(&PrintHeader::default(), &mut out);
    printer.block(&block_of(elements), None, &mut out).unwrap();
    printer.end(&mut out);
    out
}

fn options() -> PrintOptions {
    PrintOptions {
        locations_on_ways: Some(true),
        deleted_locations: true,
        ..PrintOptions::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn xml_reads_back(elements in vec(element(), 0..12)) {
        let visible = PrintOptions { visible: true, ..options() };
        let mut found = read_text(&print(Printer::xml(visible), &elements)).unwrap();
        for plain in &mut found {
            plain.visible = plain.visible.filter(|visible| !visible);
        }
        prop_assert_eq!(found, elements);
    }

    #[test]
    fn changes_read_back(elements in vec(element(), 0..12)) {
        let change = PrintOptions { change: true, ..options() };
        let mut found = read_text(&print(Printer::xml(change), &elements)).unwrap();
        for plain in &mut found {
            let expected = match (plain.visible, plain.version) {
                (Some(false), _) => Action::Delete,
                (_, Some(1)) => Action::Create,
                _ => Action::Modify,
            };
            prop_assert_eq!(plain.action.take(), Some(expected));
        }
        prop_assert_eq!(found, elements);
    }

    #[test]
    fn opl_reads_back_from_any_compression(elements in vec(element(), 1..12), cut in any::<prop::sample::Index>()) {
        let text = print(Printer::opl(options()), &elements);
        for compression in [TextCompression::None, TextCompression::Gzip, TextCompression::Bzip2] {
            let mut compressor = TextCompressor::new(compression);
            let (left, right) = text.split_at(cut.index(text.len()));
            let mut file = Vec::new();
            compressor.write(left, &mut file);
            compressor.write(right, &mut file);
            prop_assert_eq!(&read_text(&file).unwrap(), &elements);
        }
    }

    #[test]
    fn damaged_files_are_safe(
        elements in vec(element(), 1..8),
        format in 0..3,
        damage in vec((any::<prop::sample::Index>(), any::<u8>(), 0..4), 1..6),
    ) {
        let printer = match format {
            0 => Printer::xml(options()),
            1 => Printer::xml(PrintOptions { change: true, ..options() }),
            _ => Printer::opl(options()),
        };
        let mut text = print(printer, &elements);
        for (place, byte, what) in damage {
            let at = place.index(text.len());
            match what {
                0 => text[at] = byte,
                1 => text[at] ^= 1 << (byte & 7),
                2 => text.insert(at, byte),
                _ => { text.remove(at); }
            }
            if text.is_empty() {
                break;
            }
        }
        let _ = read_text(&text);
    }

    #[test]
    fn any_bytes_are_safe(start in 0..5usize, bytes: Vec<u8>, words in vec("[<>/!\\[\\]?&;=\"' a-z-]{0,20}", 0..10)) {
        let start: &[u8] = [b"".as_slice(), b"<osm>", b"<osmChange><create>", b"n1 ", b"\xff\xe0\x04o5m2"][start];
        let _ = read_text(&[start, &bytes].concat());
        let _ = read_text(&[start, words.concat().as_bytes()].concat());
    }

    #[test]
    fn o5m_of_any_data_sets_is_safe(sets in vec((0x10u8..0x13, vec(0u8..6, 0..30)), 0..20), damage: u8) {
        let mut file = b"\xff\xe0\x04o5c2".to_vec();
        for (kind, mut body) in sets {
            // Mostly small numbers and zero bytes, so that references and strings come about.
            if damage & 3 == 0 {
                body.push(damage);
            }
            file.push(kind);
            file.push(body.len() as u8);
            file.append(&mut body);
        }
        file.push(0xfe);
        let _ = read_text(&file);
    }
}
