//! What files hold in practice, well-formed and not.

mod common;

use common::{Plain, read_text};
use osmill_model::{BoundingBox, ElementId, Kind, Location, Timestamp};
use osmill_text::{Action, Error, Place, Problem, Reader};

fn open(text: &str) -> Reader {
    Reader::open(std::io::Cursor::new(text.as_bytes().to_vec())).unwrap()
}

fn read(text: &str) -> Vec<Plain> {
    read_text(text.as_bytes()).unwrap()
}

fn error(text: &str) -> String {
    read_text(text.as_bytes()).unwrap_err().to_string()
}

fn node(id: i64, lon: i32, lat: i32) -> Plain {
    Plain {
        location: Some(Location::new(lon, lat)),
        ..Plain::new(ElementId::new(Kind::Node, id))
    }
}

fn tag(key: &str, value: &str) -> (Vec<u8>, Vec<u8>) {
    (key.into(), value.into())
}

#[test]
fn everything_that_elements_have() {
    let text = "\u{feff}<?xml version='1.0' encoding='UTF-8'?>\r\n<!-- <node id='9'/> -->\r\n\
        <osm version=\"0.6\" generator=\"a &amp; b\" upload='never' timestamp='2024-01-01T00:00:00Z'>\r\n\
        <bounds minlat='1' minlon='2' maxlat='3' maxlon='4'/><bound box='-1,-2,3.5,4' origin='x'/>\r\n\
        <node lon='7.4195' visible='true' user='Zo&#235;' uid='7' changeset='5' version='2' id='-17'\r\n\
         timestamp='2005-04-09T21:54:13.25+02:00' lat='43.7310'><tag v='x&#10;y &lt;' k='a\tb'/></node>\r\n\
        <way id='5' version='1'><nd ref='-17'/><![CDATA[<nd ref='3'/>]]><nd ref='2' lat='1' lon='2'></nd>\
        <!-- - -> -- --><tag k='a' v=''/></way >\r\n\
        <relation id='9' ><member type='way' ref='5' role='outer'/><member ref='1' type='node'/></relation>\
        </osm>\r\n<!-- end -->\r\n";
    let reader = open(text);
    let header = reader.header();
    assert_eq!(header.generator.as_deref(), Some("a & b"));
    assert_eq!(header.upload.as_deref(), Some("never"));
    assert_eq!(header.version.as_deref(), Some("0.6"));
    assert_eq!(header.timestamp, Some(Timestamp(1_704_067_200)));
    let bounds = [
        BoundingBox::new(20_000_000, 10_000_000, 40_000_000, 30_000_000),
        BoundingBox::new(-20_000_000, -10_000_000, 40_000_000, 35_000_000),
    ];
    assert_eq!(header.bounds, bounds);
    let expected = vec![
        Plain {
            version: Some(2),
            timestamp: Some(Timestamp(1_113_076_453)),
            changeset: Some(5),
            uid: Some(7),
            user: Some("Zoë".into()),
            visible: Some(true),
            tags: vec![tag("a b", "x\ny <")],
            ..node(-17, 74_195_000, 437_310_000)
        },
        Plain {
            version: Some(1),
            refs: vec![(-17, None), (2, Some(Location::new(20_000_000, 10_000_000)))],
            tags: vec![tag("a", "")],
            ..Plain::new(ElementId::new(Kind::Way, 5))
        },
        Plain {
            members: vec![
                (ElementId::new(Kind::Way, 5), b"outer".to_vec()),
                (ElementId::new(Kind::Node, 1), Vec::new()),
            ],
            ..Plain::new(ElementId::new(Kind::Relation, 9))
        },
    ];
    assert_eq!(read(text), expected);
}

#[test]
fn actions_are_kept_as_the_file_has_them() {
    let text = "<osmChange version='0.6'><modify><node id='1' version='1' lat='1' lon='1'/></modify>\
        <create/><delete if-unused='true'><node id='2' version='3' lat='2' lon='2'/><way id='3'/></delete>\
        <create><node id='4' version='5' lat='0' lon='0'/></create></osmChange>";
    let found: Vec<_> = read(text)
        .iter()
        .map(|p| (p.action.unwrap(), p.element.id, p.visible))
        .collect();
    let expected = [
        (Action::Modify, 1, None),
        (Action::Delete, 2, Some(false)),
        (Action::Delete, 3, Some(false)),
        (Action::Create, 4, None),
    ];
    assert_eq!(found, expected);
    assert_eq!(
        read(text)[1].location,
        Some(Location::new(20_000_000, 20_000_000))
    );
    let mut in_order = Vec::new();
    open(text)
        .for_each(|action, element| {
            in_order.push((action.unwrap(), element.id()));
            Ok::<(), Box<dyn std::error::Error>>(())
        })
        .unwrap();
    assert_eq!(in_order, expected.map(|(action, id, _)| (action, id)));
}

#[test]
fn what_josm_adds() {
    let text = "<osm version='0.6' upload='false'><node id='-1' action='modify' lat='1' lon='1'/>\
        <node id='2' action='delete' version='1' visible='true' lat='1' lon='1'/></osm>";
    let visible: Vec<_> = read(text).iter().map(|p| p.visible).collect();
    assert_eq!(visible, [None, Some(false)]);
    assert!(open(text).warnings().is_empty());
}

#[test]
fn unknown_things_are_passed_over_with_one_warning_each() {
    let text = "<osmChange version='0.6'><modify>\n<way id='1' x='1'><bbox minlat='1'><a><b/></a></bbox>\
        <nd ref='1'/><bbox/></way>\n<way id='2' x='1'><bounds/><nd ref='1'/>text</way>\n<gpx><way id='3'/></gpx>\
        </modify></osmChange>";
    let found = read(text);
    assert_eq!(found.iter().map(|p| p.element.id).collect::<Vec<_>>(), [1, 2]);
    assert!(found.iter().all(|p| p.refs == [(1, None)]));
    let reader = open(text);
    let warnings: Vec<_> = reader.warnings().iter().map(ToString::to_string).collect();
    let expected = [
        "line 2: attribute x of <way> is passed over",
        "line 2: <bbox> in <way> is passed over",
        "line 3: <bounds> in <way> is passed over",
        "line 3: text in <way> is passed over",
        "line 4: <gpx> in <modify> is passed over",
    ];
    assert_eq!(warnings, expected);
}

#[test]
fn wrong_values_are_named_with_object_attribute_and_place() {
    let osm = |body: &str| error(&format!("<osm>\n  {body}\n</osm>"));
    assert_eq!(
        osm("<node id='17' lat='91' lon='0'/>"),
        "line 2, column 22: node 17: lat is '91', which is not a latitude from -90 to 90"
    );
    assert_eq!(
        osm("<way id='5'>é<nd ref='x'/></way>"),
        "line 2, column 25: way 5: ref is 'x', which is not a whole number of 64 bits"
    );
    assert!(osm("<way id='5' version='-3'/>").contains("way 5: version is '-3'"));
    assert!(osm("<way id='5' timestamp='yesterday'/>").contains("timestamp is 'yesterday'"));
    assert!(osm("<way id='5' uid='99999999999'/>").contains("uid is '99999999999'"));
    assert!(osm("<way id='5' visible='maybe'/>").contains("visible is 'maybe'"));
    assert!(osm("<way version='1'/>").contains("<way> has no attribute id"));
    assert!(osm("<node id='1' lat='1'/>").contains("node 1: <node> has no attribute lon"));
    assert!(osm("<relation id='1'><member type='area' ref='1'/></relation>").contains("type is 'area'"));
    assert!(osm("<node id='1'><tag k='a' v='&nbsp;'/></node>").contains("'&nbsp'"));
    assert!(osm("<node id='1'><tag k='a'/></node>").contains("<tag> has no attribute v"));
    assert!(osm("<way id='1'></node>").contains("</node> where </way> has to stand"));
    assert!(osm("<way id='1' a='<'/>").contains("closing quote"));
    assert!(osm("<way id=1/>").contains("expected a quoted value"));
    assert!(osm("</create>").contains("</create> where </osm> has to stand"));
    let change = error("<osmChange><node id='1'/></osmChange>");
    assert!(
        change.contains("<node> outside of <create>, <modify> and <delete>"),
        "{change}"
    );
    let twice = error("<osm></osm><osm></osm>");
    assert!(twice.contains("expected the end of the file"), "{twice}");
    assert!(error("<?xml version='1.0'?><gpx></gpx>").contains("<gpx>, not <osm>"));
    assert!(error("<?xml version='1.0' encoding='ISO-8859-1'?><osm/>").contains("only UTF-8"));
    assert!(matches!(read_text(b"<html></html>"), Err(Error::Format(_))));
    assert!(error("").contains("an empty file"));
}

#[test]
fn opl_errors_have_places_too() {
    let opl = |line: &str| error(&format!("n1 v1 x1 y1\n{line}\n"));
    assert_eq!(
        opl("n2 v1 x1 y91"),
        "line 2, column 10: node 2: latitude is '91', which is not a number of degrees within the earth's limits"
    );
    assert!(opl("w1 Nn1,x2").contains("a node reference is 'x2'"));
    assert!(opl("r1 Mx1@").contains("a member is 'x1@'"));
    assert!(opl("n1 Ta").contains("a tag is 'a'"));
    assert!(opl("n1 Ta=%zz%").contains("an escape is 'zz'"));
    assert!(opl("q1").contains("begins with n, w, r, c or #"));
    assert!(opl("n1 Nn1").contains("field is 'Nn1'"));
    let found = read("# made by hand\r\n\nn1 Ta=b%20%c,d=e\r\nc5 k1\nw-2 dD Nn1,n2x1y2\tv3");
    assert_eq!(found[0].tags, [tag("a", "b c"), tag("d", "e")]);
    assert_eq!(found[1].refs[1], (2, Some(Location::new(10_000_000, 20_000_000))));
    assert_eq!((found[1].version, found[1].visible), (Some(3), Some(false)));
}

/// A document of every kind of thing, to be damaged.
fn sample() -> String {
    let mut text = String::from("<?xml version='1.0' encoding='UTF-8'?>\n<osm version='0.6'>\n <!-- a -->\n");
    for id in 1..4 {
        text.push_str(&format!(
            " <node id='{id}' version='1' user='a&amp;b' lat='1.5' lon='-2'><tag k='k' v='&#x41;'/></node>\n \
             <way id='{id}'><nd ref='1'/><![CDATA[x]]><tag k='a' v='b'/></way>\n \
             <relation id='{id}'><member type='node' ref='1' role='r'/></relation>\n"
        ));
    }
    text + "</osm>\n"
}

#[test]
fn truncated_files_are_errors_at_every_byte() {
    let text = sample();
    let whole = text.trim_end().len();
    for end in 0..whole {
        let result = read_text(&text.as_bytes()[..end]);
        match result {
            Err(Error::Format(_)) if end < 60 => {}
            Err(Error::At { problem, place, .. }) => {
                assert!(matches!(problem, Problem::Truncated(_)), "{end}: {problem}");
                let lines = text[..end].matches('\n').count() as u64;
                assert!(
                    matches!(place, Place::Line { line, .. } if line == lines + 1),
                    "{end}: {place}"
                );
            }
            other => panic!("{end}: {other:?}"),
        }
    }
    assert_eq!(read_text(&text.as_bytes()[..whole]).unwrap().len(), 9);
}

/// An o5c file: two nodes, a way, a relation and a deleted node, with strings in place and by reference.
fn o5c() -> Vec<u8> {
    fn unsigned(mut value: u64, out: &mut Vec<u8>) {
        while value > 0x7f {
            out.push(value as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
    }
    fn signed(value: i64, out: &mut Vec<u8>) {
        unsigned((value << 1 ^ value >> 63) as u64, out);
    }
    let mut file = b"\xff\xe0\x04o5c2".to_vec();
    let mut set = |kind: u8, body: &[u8]| {
        file.push(kind);
        unsigned(body.len() as u64, &mut file);
        file.extend_from_slice(body);
    };
    let mut body = Vec::new();
    signed(1_704_067_200, &mut body);
    set(0xdc, &body);
    body.clear();
    for edge in [-10, -20, 30, 40] {
        signed(edge, &mut body);
    }
    set(0xdb, &body);
    let mut node = Vec::new();
    signed(100, &mut node);
    unsigned(1, &mut node);
    signed(1_704_067_200, &mut node);
    signed(5, &mut node);
    node.extend_from_slice(b"\0\x07\0Ana\0");
    signed(74_195_000, &mut node);
    signed(-437_310_000, &mut node);
    node.extend_from_slice(b"\0name\0Vaduz\0");
    set(0x10, &node);
    node.clear();
    signed(-101, &mut node);
    unsigned(2, &mut node);
    signed(60, &mut node);
    signed(1, &mut node);
    node.push(2);
    signed(1, &mut node);
    signed(1, &mut node);
    node.push(1);
    set(0x10, &node);
    let mut way = Vec::new();
    signed(6, &mut way);
    way.push(0);
    let mut refs = Vec::new();
    signed(100, &mut refs);
    signed(-101, &mut refs);
    unsigned(refs.len() as u64, &mut way);
    way.extend_from_slice(&refs);
    set(0x11, &way);
    let mut relation = Vec::new();
    signed(4, &mut relation);
    relation.push(0);
    let mut members = Vec::new();
    signed(5, &mut members);
    members.extend_from_slice(b"\x001outer\0");
    signed(1, &mut members);
    members.push(1);
    unsigned(members.len() as u64, &mut relation);
    relation.extend_from_slice(&members);
    set(0x12, &relation);
    let mut gone = Vec::new();
    signed(1, &mut gone);
    unsigned(3, &mut gone);
    signed(0, &mut gone);
    signed(0, &mut gone);
    gone.extend_from_slice(b"\0\0\0");
    set(0x10, &gone);
    file.push(0xfe);
    file
}

#[test]
fn o5c_holds_all_that_elements_have() {
    let file = o5c();
    let reader = Reader::open(std::io::Cursor::new(file.clone())).unwrap();
    assert!(reader.header().is_change);
    assert_eq!(reader.header().timestamp, Some(Timestamp(1_704_067_200)));
    assert_eq!(reader.header().bounds, [BoundingBox::new(-10, -20, 30, 40)]);
    let first = Plain {
        action: Some(Action::Create),
        version: Some(1),
        timestamp: Some(Timestamp(1_704_067_200)),
        changeset: Some(5),
        uid: Some(7),
        user: Some(b"Ana".to_vec()),
        tags: vec![tag("name", "Vaduz")],
        ..node(100, 74_195_000, -437_310_000)
    };
    let second = Plain {
        action: Some(Action::Modify),
        version: Some(2),
        timestamp: Some(Timestamp(1_704_067_260)),
        changeset: Some(6),
        ..first.clone()
    };
    let second = Plain {
        element: ElementId::new(Kind::Node, -1),
        location: Some(Location::new(74_195_001, -437_309_999)),
        ..second
    };
    let way = Plain {
        action: Some(Action::Modify),
        refs: vec![(100, None), (-1, None)],
        ..Plain::new(ElementId::new(Kind::Way, 5))
    };
    let relation = Plain {
        action: Some(Action::Modify),
        members: vec![
            (ElementId::new(Kind::Way, 5), b"outer".to_vec()),
            (ElementId::new(Kind::Way, 6), b"outer".to_vec()),
        ],
        ..Plain::new(ElementId::new(Kind::Relation, 9))
    };
    let gone = Plain {
        action: Some(Action::Delete),
        version: Some(3),
        timestamp: Some(Timestamp(1_704_067_260)),
        changeset: Some(6),
        visible: Some(false),
        ..Plain::new(ElementId::new(Kind::Node, 10))
    };
    assert_eq!(read_text(&file).unwrap(), [first, second, way, relation, gone]);
}

#[test]
fn truncated_opl_is_whole_lines_and_a_warning() {
    let text = "n1 v1 dV Ta=b x1 y2\nw12 Nn1,n2 Thighway=a%20%b\nr3 Mn1@r,w12@\n";
    for end in 2..text.len() {
        let mut reader = match Reader::open(std::io::Cursor::new(text[..end].to_owned())) {
            Err(Error::At { .. }) => continue,
            reader => reader.unwrap(),
        };
        let mut block = osmill_pbf::Block::empty();
        let (mut elements, mut failed) = (0, false);
        loop {
            match reader.read(&mut block) {
                Ok(Some(part)) => elements += part.count as usize,
                Ok(None) => break,
                Err(Error::At { .. }) => {
                    failed = true;
                    break;
                }
                Err(other) => panic!("{end}: {other}"),
            }
        }
        let whole = text[..end].matches('\n').count();
        let cut = !text[..end].ends_with('\n');
        assert!(
            failed || elements == whole + usize::from(cut),
            "{end}: {elements}"
        );
        let warned = reader
            .warnings()
            .iter()
            .any(|warning| warning.text.contains("truncated"));
        assert_eq!(warned || failed, cut, "{end}");
    }
}

#[test]
fn truncated_and_damaged_o5m_is_safe() {
    let file = o5c();
    for end in 0..file.len() {
        assert!(read_text(&file[..end]).is_err(), "{end}");
        for bit in 0..8 {
            let mut damaged = file.clone();
            damaged[end] ^= 1 << bit;
            let _ = read_text(&damaged);
        }
    }
}

#[test]
fn compressed_files_that_end_early_are_errors() {
    use osmill_text::compress::TextCompressor;
    use osmill_text::format::TextCompression;
    for compression in [TextCompression::Gzip, TextCompression::Bzip2] {
        let mut compressor = TextCompressor::new(compression);
        let mut bytes = Vec::new();
        let text = sample();
        for piece in text.as_bytes().chunks(100) {
            compressor.write(piece, &mut bytes);
        }
        assert_eq!(read_text(&bytes).unwrap(), read(&text));
        for end in [3, bytes.len() / 2, bytes.len() - 1] {
            let error = read_text(&bytes[..end]).unwrap_err();
            assert!(matches!(error, Error::Read(_) | Error::At { .. }), "{error}");
        }
    }
}

#[test]
fn elements_of_any_size_up_to_the_limit() {
    let value = "v".repeat(70_000);
    let mut text = format!("<osm><node id='1' lat='1' lon='1'><tag k='a' v='{value}'/></node><way id='2'>");
    for id in 0..200_000 {
        text.push_str(&format!("<nd ref='{id}'/>"));
    }
    text.push_str("</way>");
    let found = read(&format!("{text}</osm>"));
    assert_eq!(found[0].tags[0].1.len(), 70_000);
    assert_eq!(found[1].refs.len(), 200_000);
    text.push_str("<way id='3'>");
    text.push_str(&"<nd ref='1'/>".repeat(1_600_000));
    let message = error(&text);
    assert!(
        message.contains("one element takes more than 16 MiB"),
        "{message}"
    );
}
