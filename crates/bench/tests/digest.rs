//! The digest against a plain model: the same for every way of writing, different for every change of contents.

mod common;

use std::path::Path;

use common::{Element, Style, encode, small_file};
use osmill_bench::digest::{Digest, Facet};
use proptest::prelude::*;

fn digest_bytes(bytes: &[u8]) -> Digest {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    Digest::of_file(file.path(), 2).unwrap()
}

fn digest(elements: &[Element], style: Style) -> Digest {
    digest_bytes(&encode(elements, style))
}

prop_compose! {
    fn element(kind: u8)(
        id in prop_oneof![-5i64..500, Just(13_000_000_000)],
        numbers in (0i64..4, 0i64..2_000_000_000, 0i64..3, 0i64..3),
        user in "[a-c]{0,2}",
        visible in prop::bool::weighted(0.9),
        location in (-900_000_000i64..900_000_000, -1_800_000_000i64..1_800_000_000),
        tags in prop::collection::vec(("[a-d]{1,2}", "[a-dü]{0,3}"), 0..4),
        refs in prop::collection::vec(-3i64..1000, 0..6),
        located in any::<bool>(),
        members in prop::collection::vec((-3i64..1000, 0u8..3, "[ab]{0,1}"), 0..4),
    ) -> Element {
        let (version, timestamp, changeset, uid) = numbers;
        let mut element = Element {
            version, timestamp, changeset, uid, user, visible, location, tags,
            ..Element::new(kind, if id == 0 { 1 } else { id })
        };
        if kind == 1 {
            element.way_locations = if located { refs.iter().map(|&id| (id * 7, id * 9)).collect() } else { Vec::new() };
            element.refs = refs;
        }
        if kind == 2 {
            element.members = members;
        }
        element
    }
}

fn elements() -> impl Strategy<Value = Vec<Element>> {
    (
        prop::collection::vec(element(0), 0..20),
        prop::collection::vec(element(1), 0..8),
        prop::collection::vec(element(2), 0..5),
    )
        .prop_map(|(nodes, ways, relations)| [nodes, ways, relations].concat())
}

prop_compose! {
    fn style()(
        dense in any::<bool>(),
        block in 1usize..30,
        zlib in any::<bool>(),
        granularity in prop::sample::select(vec![1i64, 20, 100]),
        offset in prop::sample::select(vec![0i64, -4_000_000_000, 1_000_000]),
        packed in any::<bool>(),
    ) -> Style {
        Style { dense, block, zlib, granularity, offset, packed }
    }
}

fn order(element: &Element) -> (u8, bool, u64) {
    (element.kind, element.id > 0, element.id.unsigned_abs())
}

proptest! {
    #[test]
    fn the_way_of_writing_does_not_show(elements in elements(), style in style()) {
        let one = digest(&elements, Style::default());
        let two = digest(&elements, style);
        prop_assert_eq!(one.differences(&two, &[]), Vec::<String>::new());
        prop_assert_eq!(one.counts, two.counts);
    }

    #[test]
    fn counts_and_order_are_those_of_the_model(elements in elements()) {
        let digest = digest(&elements, Style::default());
        let of = |kind: u8| elements.iter().filter(move |element| element.kind == kind);
        let sum = |count: fn(&Element) -> usize| elements.iter().map(count).sum::<usize>() as i64;
        prop_assert_eq!(digest.count("nodes"), of(0).count() as i64);
        prop_assert_eq!(digest.count("ways"), of(1).count() as i64);
        prop_assert_eq!(digest.count("relations"), of(2).count() as i64);
        prop_assert_eq!(digest.count("tags"), sum(|element| element.tags.len()));
        prop_assert_eq!(digest.count("refs"), sum(|element| element.refs.len()));
        prop_assert_eq!(digest.count("members"), sum(|element| element.members.len()));
        prop_assert_eq!(digest.count("tagged_nodes"), of(0).filter(|node| !node.tags.is_empty()).count() as i64);
        prop_assert_eq!(digest.counts.get("max_way_id").copied(), of(1).map(|way| way.id).max());
        prop_assert_eq!(digest.counts.get("min_node_id").copied(), of(0).map(|node| node.id).min());
        prop_assert_eq!(digest.sorted, elements.is_sorted_by_key(order));
    }

    #[test]
    fn a_changed_element_shows_in_its_facet_alone(
        elements in elements(),
        at in any::<prop::sample::Index>(),
        what in 0usize..10,
    ) {
        prop_assume!(!elements.is_empty());
        let mut changed = elements.clone();
        let element = &mut changed[at.index(elements.len())];
        let expected: &[Facet] = match what {
            0 => { element.version += 1; &[Facet::Version] }
            1 => { element.timestamp += 1; &[Facet::Timestamp] }
            2 => { element.changeset += 1; &[Facet::Changeset] }
            3 => { element.uid += 1; &[Facet::Uid] }
            4 => { element.user.push('x'); &[Facet::User] }
            5 => { element.tags.push(("new".to_owned(), String::new())); &[Facet::Tags, Facet::TagOrder] }
            6 if element.kind == 1 => { element.refs.push(5); &[Facet::Refs] }
            7 if element.kind == 1 => { element.way_locations.push((5, 6)); &[Facet::WayLocations] }
            8 if element.kind == 2 => { element.members.push((5, 0, "x".to_owned())); &[Facet::Members] }
            9 if element.kind == 0 && element.visible => { element.location.1 += 1; &[Facet::Locations] }
            _ => return Ok(()),
        };
        let (one, two) = (digest(&elements, Style::default()), digest(&changed, Style::default()));
        for facet in Facet::ALL {
            prop_assert_eq!(one.facets[&facet] != two.facets[&facet], expected.contains(&facet), "{:?}", facet);
        }
        prop_assert!(!one.differences(&two, &[]).is_empty());
        prop_assert!(one.differences(&two, expected).is_empty());
    }

    #[test]
    fn any_bytes_give_a_digest_or_an_error(position in any::<prop::sample::Index>(), value: u8, raw: bool) {
        let folder = tempfile::tempdir().unwrap();
        let mut bytes = if raw {
            encode(&[Element::new(0, 1), Element::new(1, 2), Element::new(2, 3)], Style { zlib: false, ..Style::default() })
        } else {
            std::fs::read(small_file(folder.path(), "a.osm.pbf", 2)).unwrap()
        };
        let at = position.index(bytes.len());
        bytes[at] = value;
        let path = folder.path().join("b.osm.pbf");
        std::fs::write(&path, bytes).unwrap();
        let _ = Digest::of_file(&path, 1);
    }
}

#[test]
fn the_order_of_tags_and_swapped_contents_show() {
    let tag = |key: &str| (key.to_owned(), "v".to_owned());
    let mut one = vec![Element::new(0, 1), Element::new(0, 2)];
    one[0].tags = vec![tag("a"), tag("b")];
    let mut two = one.clone();
    two[0].tags.reverse();
    let of = |elements: &[Element]| digest(elements, Style::default());
    assert_eq!(of(&one).differences(&of(&two), &[]), ["tag-order"]);
    // The same tags at another node: sums over elements must not hide it.
    let mut three = one.clone();
    three[1].tags = std::mem::take(&mut three[0].tags);
    assert_eq!(of(&one).differences(&of(&three), &[]), ["tags", "tag-order"]);
    // Twice is not once.
    let twice = [one.clone(), one.clone()].concat();
    assert!(
        of(&one)
            .differences(&of(&twice), &[])
            .contains(&"nodes (2 and 4)".to_owned())
    );
}

#[test]
fn truncation_anywhere_is_an_error_or_a_shorter_file() {
    let folder = tempfile::tempdir().unwrap();
    let whole = std::fs::read(small_file(folder.path(), "a.osm.pbf", 3)).unwrap();
    let full = digest_bytes(&whole);
    let path = folder.path().join("cut.osm.pbf");
    for length in 0..whole.len() {
        std::fs::write(&path, &whole[..length]).unwrap();
        if let Ok(digest) = Digest::of_file(&path, 1) {
            assert!(!digest.differences(&full, &[]).is_empty(), "cut at {length}");
        }
    }
    let error = Digest::of_file(Path::new("/nonexistent"), 1)
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("/nonexistent: "), "{error}");
}

/// What osmium makes of a file is the same to the digest, in every format variant that osmium writes. Passes without osmium.
#[test]
fn osmium_rewrites_do_not_show() {
    if std::process::Command::new("osmium")
        .arg("--version")
        .output()
        .is_err()
    {
        eprintln!("osmium is not installed: nothing compared");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = small_file(folder.path(), "a.osm.pbf", 50);
    let original = Digest::of_file(&path, 2).unwrap();
    for (index, format) in ["pbf", "pbf,pbf_dense_nodes=false", "pbf,pbf_compression=none"]
        .into_iter()
        .enumerate()
    {
        let out = folder.path().join(format!("{index}.osm.pbf"));
        let status = std::process::Command::new("osmium")
            .args(["cat", "-f", format, "-o"])
            .args([&out, &path])
            .status()
            .unwrap();
        assert!(status.success());
        let rewritten = Digest::of_file(&out, 2).unwrap();
        assert_eq!(
            original.differences(&rewritten, &[]),
            Vec::<String>::new(),
            "{format}"
        );
    }
    let out = folder.path().join("c.osm.pbf");
    let clean = ["cat", "-f", "pbf,add_metadata=false", "-o"];
    assert!(
        std::process::Command::new("osmium")
            .args(clean)
            .args([&out, &path])
            .status()
            .unwrap()
            .success()
    );
    let clean = Digest::of_file(&out, 2).unwrap();
    assert_eq!(
        original.differences(&clean, &[]),
        ["version", "timestamp", "changeset", "uid", "user"]
    );
}
