//! The commands that select against the slow model, on generated data of every shape.

mod common;

use std::collections::BTreeSet;
use std::path::Path;

use common::{job, job_in};
use osmill_engine::{Job, JobOptions};
use osmill_geometry::{MultiPolygon, Region};
use osmill_model::{BoundingBox, ElementId, Kind, Location};
use osmill_ops::extract::{Extract, Options, Smart, Strategy as Extracting, extract};
use osmill_ops::filter::TagFilter;
use osmill_ops::select::Target;
use osmill_ops::{getid, getparents, tags_filter};
use osmill_pbf::{BlobType, Compression, FileHeader, SORTED};
use osmill_testkit::encode::Layout;
use osmill_testkit::file::FrameBuilder;
use osmill_testkit::model::{Completeness, Data, PbfOptions, SmartOptions, TagExpression};
use osmill_testkit::strategies::{self, Shape};
use proptest::prelude::*;

/// A file of the data, in thin blocks, with index or without.
fn file(data: &Data, elements_per_block: usize, index: bool, folder: &Path) -> std::path::PathBuf {
    file_with(data, (elements_per_block, index), data.header(), folder)
}

/// [`file`] with this header, true or not.
fn file_with(
    data: &Data,
    (elements_per_block, index): (usize, bool),
    header: FileHeader,
    folder: &Path,
) -> std::path::PathBuf {
    let path = folder.join("input.osm.pbf");
    let options = PbfOptions {
        elements_per_block,
        index,
        header: Some(header),
        ..PbfOptions::default()
    };
    std::fs::write(&path, data.to_pbf_with(&options)).unwrap();
    path
}

fn target(folder: &Path, name: &str) -> Target {
    let mut target = Target::new(folder.join(name));
    target.output.overwrite = true;
    target
}

fn read(target: &Target) -> Data {
    Data::from_pbf(&std::fs::read(&target.output.path).unwrap()).unwrap()
}

fn any_shape() -> impl Strategy<Value = Data> {
    prop_oneof![
        strategies::data_of(Shape::CONSISTENT),
        strategies::data_of(Shape::SORTED),
        strategies::data_of(Shape::HISTORY),
        strategies::data_of(Shape::WILD),
    ]
}

fn one_version() -> impl Strategy<Value = Data> {
    prop_oneof![
        strategies::data_of(Shape::CONSISTENT),
        strategies::data_of(Shape::SORTED),
        // So much that nodes have to be found in ranges.
        strategies::data_of(Shape {
            elements: 1200,
            ids: 600,
            ..Shape::SORTED
        }),
    ]
}

fn area() -> impl Strategy<Value = MultiPolygon> {
    (strategies::location(), strategies::location()).prop_map(|(a, b)| {
        let low = Location::new(a.lon.min(b.lon), a.lat.min(b.lat));
        let high = Location::new(a.lon.max(b.lon), a.lat.max(b.lat));
        MultiPolygon::from_bbox(BoundingBox { min: low, max: high })
    })
}

/// More than the ids of a page of a set.
const STREW: i64 = 9001;

/// Ids of nodes and ways that lie far from each other, so that a set of them takes much memory.
fn strewn(mut data: Data) -> Data {
    for element in &mut data.elements {
        let members = element.members.iter_mut().map(|member| &mut member.element);
        for id in members
            .chain([&mut element.id])
            .filter(|id| id.kind == Kind::Node)
        {
            id.id *= STREW;
        }
        element.refs.iter_mut().for_each(|id| *id *= STREW);
    }
    data
}

/// Bytes of memory for ids: few, so that nodes are found in ranges, or enough.
fn memory() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(1 << 30)]
}

fn ids() -> impl Strategy<Value = BTreeSet<ElementId>> {
    prop::collection::btree_set(strategies::element_id(Shape::SORTED), 1..6)
}

fn check_extract(
    data: &Data,
    (block, index): (usize, bool),
    areas: &[MultiPolygon],
    strategy: &Extracting,
    with_history: bool,
    model: &Completeness,
    memory: u64,
) -> Result<(), TestCaseError> {
    let folder = tempfile::tempdir().unwrap();
    let input = file(data, block, index, folder.path());
    let extracts: Vec<Extract> = areas
        .iter()
        .enumerate()
        .map(|(i, area)| Extract {
            area: area.clone(),
            target: target(folder.path(), &format!("{i}.osm.pbf")),
            header_from_input: Vec::new(),
        })
        .collect();
    let options = Options {
        strategy: strategy.clone(),
        with_history,
        ..Options::default()
    };
    extract(&job_in(memory), &input, &extracts, &options).unwrap();
    for extract in &extracts {
        let region = Region::new(extract.area.clone());
        let expected = data.extract(|location| region.contains(location), model);
        prop_assert_eq!(read(&extract.target), expected);
    }
    Ok(())
}

const EXPRESSIONS: &[&str] = &[
    "highway",
    "n/*=*",
    "w/name=a*",
    "a/type",
    "r/type=multipolygon",
    "*!=yes",
];

/// What a file says that claims to be sorted, with index records and without: outputs, warnings, and the passes over it.
fn extract_of_claim(
    data: &Data,
    layout: (usize, bool),
    strategy: &Extracting,
) -> (Vec<u8>, Vec<String>, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let mut header = data.header();
    header.set_optional(SORTED, true);
    let input = file_with(data, layout, header, folder.path());
    let extracts = [Extract {
        area: MultiPolygon::from_bbox(BoundingBox {
            min: Location::new(0, 0),
            max: Location::new(50, 50),
        }),
        target: target(folder.path(), "out.osm.pbf"),
        header_from_input: Vec::new(),
    }];
    let options = Options {
        strategy: strategy.clone(),
        ..Options::default()
    };
    let job = job(2);
    extract(&job, &input, &extracts, &options).unwrap();
    let summary = job.summary();
    let warnings = summary.warnings.iter().map(|warning| {
        let (_, text) = warning.split_once(": ").unwrap_or_default();
        text.to_owned()
    });
    (
        std::fs::read(&extracts[0].target.output.path).unwrap(),
        warnings.collect(),
        summary.phases.into_iter().map(|phase| phase.name).collect(),
    )
}

/// Files without index records that claim to be sorted give what they give with them, whether the claim is true or
/// not; if it is, in passes over one kind each.
#[test]
fn claims_of_order_are_verified_on_the_way() {
    let mut sorted: Vec<String> = (1..=40)
        .map(|id| format!("n{id} v1 x0.00000{:02} y0.0000010", 10 + id))
        .collect();
    sorted.extend((1..=20).map(|id| format!("w{id} v1 Thighway=path Nn{},n{}", 2 * id - 1, 2 * id)));
    sorted.extend((1..=9).map(|id| format!("r{id} v1 Ttype=multipolygon Mw{},r{}@", 2 * id, id % 9 + 1)));
    let moved = |from: usize, to: usize| {
        let mut lines = sorted.clone();
        let line = lines.remove(from);
        lines.insert(to, line);
        lines
    };
    let mut twice = sorted.clone();
    twice.insert(20, sorted[20].clone());
    let cases = [
        (sorted.clone(), true),
        // Within a block, across blocks, nodes behind ways and relations, a way before nodes, a relation before ways.
        (moved(4, 5), false),
        (moved(2, 30), false),
        (moved(12, 50), false),
        (moved(12, 68), false),
        (moved(45, 3), false),
        (moved(65, 42), false),
        (moved(61, 68), false),
        // Sorted, but not orderly.
        (twice, false),
    ];
    for (lines, orderly) in cases {
        let data = Data::opl(&lines.join("\n"));
        for strategy in [
            Extracting::Simple,
            Extracting::default(),
            Extracting::Smart(Smart::default()),
        ] {
            for block in [1, 3, 7, 100] {
                let (known, warned, _) = extract_of_claim(&data, (block, true), &strategy);
                let (found, told, phases) = extract_of_claim(&data, (block, false), &strategy);
                assert!(Data::from_pbf(&known).unwrap().elements.len() > 5);
                assert!(known == found, "{strategy:?} {block} {lines:?}");
                assert_eq!(told, warned);
                assert_eq!(
                    !phases.contains(&"index".to_owned()),
                    orderly,
                    "{phases:?} {block}"
                );
            }
        }
    }
}

/// Blobs without elements, at the end of nodes and between them, where nodes are found in ranges.
#[test]
fn empty_blobs_between_ranges() {
    let of_node = |id: i64| format!("n{} v1 x0.000{id:04} y0.0000010", id * STREW);
    let nodes = |count: i64| {
        let nodes = (1..=count).map(of_node);
        let nodes: Vec<String> = ["n1 v1 x9 y9".into()].into_iter().chain(nodes).collect();
        Data::opl(&nodes.join("\n"))
    };
    let of_way = |id: i64| format!("w{id} v1 Nn{},n1", (id * 30) * STREW);
    let rest: Vec<String> = (1..=20).map(of_way).chain(["r1 v1 Mw3@".into()]).collect();
    let rest = Data::opl(&rest.join("\n"));
    let mut header = rest.header();
    header.set_optional(SORTED, true);
    let form = common::Form {
        elements_per_block: 20,
        layout: Layout::default(),
        compression: Compression::default(),
        index: vec![false],
    };
    let bare = common::pbf_with(&Data::default(), &form, &header);
    let mut empty = FrameBuilder::new(Compression::default(), false);
    empty.add_raw(BlobType::Data, b"\x0a\x02\x0a\x00", None);
    let empty = empty.take().unwrap();
    let file = |count: i64, empties: usize| {
        let mut bytes = common::pbf_with(&nodes(count), &form, &header);
        bytes.extend(empty.repeat(empties));
        bytes.extend(&common::pbf_with(&rest, &form, &header)[bare.len()..]);
        bytes
    };
    for strategy in [
        Extracting::Simple,
        Extracting::default(),
        Extracting::Smart(Smart::default()),
    ] {
        let cut = |bytes: &[u8], memory: u64| {
            let folder = tempfile::tempdir().unwrap();
            let input = folder.path().join("in.osm.pbf");
            std::fs::write(&input, bytes).unwrap();
            let extracts = [Extract {
                area: MultiPolygon::from_bbox(BoundingBox {
                    min: Location::new(0, 0),
                    max: Location::new(1_000_000, 50),
                }),
                target: target(folder.path(), "out.osm.pbf"),
                header_from_input: Vec::new(),
            }];
            let options = Options {
                strategy: strategy.clone(),
                ..Options::default()
            };
            let job = job_in(memory);
            extract(&job, &input, &extracts, &options).unwrap();
            let ranges = job
                .summary()
                .warnings
                .iter()
                .any(|told| told.contains("ranges of ids"));
            assert_eq!(ranges, memory == 0);
            read(&extracts[0].target)
        };
        // The last range ends at the last node in one of these.
        for count in (699..900).step_by(20) {
            let expected = cut(&file(count, 0), 1 << 30);
            assert!(expected.elements.len() > count as usize);
            for empties in [0, 1, 9] {
                assert_eq!(
                    cut(&file(count, empties), 0),
                    expected,
                    "{strategy:?} {count} {empties}"
                );
            }
        }
    }
}

/// Where ranges of nodes end, a task of several blobs does, so that the output is the same with all at once.
#[test]
fn tasks_are_not_cut_by_ranges() {
    let lines = (1..=30_000).map(|id| {
        // Blobs are neither inside nor outside as a whole.
        let lat = if id % 5 == 0 { 8 } else { 1 };
        format!("n{} v1 x1 y{lat}", id * STREW)
    });
    let data = Data::opl(&lines.collect::<Vec<_>>().join("\n"));
    let folder = tempfile::tempdir().unwrap();
    let mut header = data.header();
    header.set_optional(SORTED, true);
    let input = file_with(&data, (700, true), header, folder.path());
    let extracts = [Extract {
        area: MultiPolygon::from_bbox(BoundingBox::new(0, 0, 20_000_000, 20_000_000)),
        target: target(folder.path(), "out.osm.pbf"),
        header_from_input: Vec::new(),
    }];
    let options = Options {
        strategy: Extracting::Simple,
        ..Options::default()
    };
    let mut different = BTreeSet::new();
    for blobs_of_task in [1, 4, 21, 100] {
        let mut outputs = Vec::new();
        for (threads, memory) in [(2, 1 << 30), (1, 0), (2, 0), (2, 300_000)] {
            let job = Job::new(JobOptions {
                threads,
                memory,
                blobs_of_task: Some(blobs_of_task),
                ..JobOptions::default()
            });
            extract(&job, &input, &extracts, &options).unwrap();
            let in_ranges = |told: &String| told.contains("ranges of ids");
            let warnings = job.summary().warnings;
            // A task has room in any case.
            let expected = memory < 1 << 30 && blobs_of_task < 100;
            assert_eq!(
                warnings.iter().any(in_ranges),
                expected,
                "{blobs_of_task}: {warnings:?}"
            );
            outputs.push(std::fs::read(&extracts[0].target.output.path).unwrap());
        }
        assert!(
            outputs.windows(2).all(|pair| pair[0] == pair[1]),
            "{blobs_of_task}"
        );
        assert_eq!(Data::from_pbf(&outputs[0]).unwrap().elements.len(), 24_000);
        different.extend(outputs);
    }
    // They do matter: blocks end elsewhere.
    assert!(different.len() > 2);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn extracts_of_one_version(
        data in one_version(),
        layout in (1usize..9, any::<bool>()),
        areas in prop::collection::vec(area(), 1..4),
        all_types in any::<bool>(),
        memory in memory(),
    ) {
        let data = strewn(data);
        let smart = Smart {
            types: (!all_types).then(|| vec!["multipolygon".into()]),
            ..Smart::default()
        };
        let model = SmartOptions { types: smart.types.clone() };
        for (strategy, model) in [
            (Extracting::Simple, Completeness::Simple),
            (Extracting::default(), Completeness::CompleteWays),
            (Extracting::Smart(smart), Completeness::Smart(model)),
        ] {
            check_extract(&data, layout, &areas, &strategy, false, &model, memory)?;
        }
    }

    #[test]
    fn extracts_with_all_versions(
        data in any_shape(),
        layout in (1usize..9, any::<bool>()),
        areas in prop::collection::vec(area(), 1..3),
    ) {
        check_extract(&data, layout, &areas, &Extracting::default(), true, &Completeness::CompleteWays, 0)?;
    }

    #[test]
    fn filters_of_one_version(
        data in one_version(),
        (block, index) in (1usize..9, any::<bool>()),
        chosen in prop::sample::subsequence(EXPRESSIONS.to_vec(), 1..4),
        (invert, omit_referenced, remove_tags) in any::<(bool, bool, bool)>(),
        memory in memory(),
    ) {
        let data = strewn(data);
        let folder = tempfile::tempdir().unwrap();
        let input = file(&data, block, index, folder.path());
        let target = target(folder.path(), "out.osm.pbf");
        let options = tags_filter::Options {
            filter: TagFilter::parse(&chosen).unwrap(),
            invert,
            omit_referenced,
            remove_tags,
            ..tags_filter::Options::default()
        };
        let report = tags_filter::tags_filter(&job_in(memory), &input, &options, &target).unwrap();
        let model: Vec<_> = chosen.iter().map(|text| TagExpression::parse(text).unwrap()).collect();
        let expected = data.tags_filter(
            |element| model.iter().any(|expression| expression.matches(element)) != invert,
            omit_referenced,
            remove_tags,
        );
        prop_assert_eq!(read(&target), expected.data);
        prop_assert_eq!(report.matched.total(), expected.matched.len() as u64);
        prop_assert_eq!(report.referenced.total(), expected.referenced.len() as u64);
    }

    #[test]
    fn elements_by_id(
        data in any_shape(),
        (block, index) in (1usize..9, any::<bool>()),
        ids in ids(),
        (references, remove_tags, add_self) in any::<(bool, bool, bool)>(),
        memory in memory(),
    ) {
        let data = strewn(data);
        let of_data = |id: &ElementId| match id.kind {
            Kind::Relation => *id,
            kind => ElementId::new(kind, id.id * STREW),
        };
        let ids: BTreeSet<ElementId> = ids.iter().map(of_data).collect();
        let folder = tempfile::tempdir().unwrap();
        let input = file(&data, block, index, folder.path());
        let target = target(folder.path(), "out.osm.pbf");
        let mut options = getid::Options {
            ids: ids.iter().copied().collect(),
            add_referenced: references,
            remove_tags: references && remove_tags,
            invert: false,
        };
        let report = getid::getid(&job_in(memory), &input, &options, &target).unwrap();
        let (expected, missing) = data.get_ids(&ids, references, options.remove_tags);
        prop_assert_eq!(read(&target), expected.data);
        let found: BTreeSet<_> = report.missing_ids.iter().copied().collect();
        if references {
            prop_assert!(found.is_superset(&missing));
            let there = data.ids();
            prop_assert!(found.iter().all(|id| !there.contains(id)));
        } else {
            prop_assert_eq!(found, missing);
        }
        (options.add_referenced, options.remove_tags, options.invert) = (false, false, true);
        getid::getid(&job_in(memory), &input, &options, &target).unwrap();
        prop_assert_eq!(read(&target), data.remove_ids(&ids));
        let options = getparents::Options {
            ids: options.ids,
            add_self,
        };
        getparents::getparents(&job_in(memory), &input, &options, &target).unwrap();
        prop_assert_eq!(read(&target), data.get_parents(&ids, add_self));
    }
}
