//! Every command against the slow model, on generated data in generated forms.

mod common;

use std::collections::BTreeMap;

use common::{Folder, Form, form, job, open, options, pbf, pbf_with};
use osmill_engine::{Job, JobOptions, OutputOptions};
use osmill_model::{BoundingBox, Kind, KindSet, Location, Timestamp, id_order};
use osmill_ops::check::{self, RefOptions};
use osmill_ops::filter::TagFilter;
use osmill_ops::{inspect, tags};
use osmill_pbf::{FileHeader, HeaderBox, LOCATIONS_ON_WAYS, MetadataFields, SORTED};
use osmill_testkit::model::{Data, OrderFault, PbfOptions};
use osmill_testkit::osmium::opl_lines_of_pbf;
use osmill_testkit::strategies::{Shape, data, data_of};
use proptest::prelude::*;

fn kinds() -> impl Strategy<Value = KindSet> {
    (1u8..8).prop_map(KindSet::from_bits)
}

fn fields() -> impl Strategy<Value = MetadataFields> {
    any::<[bool; 5]>().prop_map(|[version, timestamp, changeset, uid, user]| MetadataFields {
        version,
        timestamp,
        changeset,
        uid,
        user,
        visible: true,
    })
}

/// The same data in many blobs of one size, in the default form.
fn plain(data: &Data, elements_per_block: usize, index: bool) -> Vec<u8> {
    data.to_pbf_with(&PbfOptions {
        elements_per_block,
        index,
        ..PbfOptions::default()
    })
}

fn cases(n: u32) -> ProptestConfig {
    ProptestConfig {
        // Failures are told with their data; nothing is written beside the sources.
        failure_persistence: None,
        ..ProptestConfig::with_cases(n)
    }
}

proptest! {
    #![proptest_config(cases(150))]

    #[test]
    fn cat_keeps_what_it_should(
        inputs in prop::collection::vec((data(), form()), 1..4),
        kinds in kinds(),
        fields in prop_oneof![Just(MetadataFields::ALL), fields()],
        recompress: bool,
        threads in 1usize..4,
        direct: bool,
    ) {
        let folder = Folder::new();
        let paths: Vec<_> = inputs.iter().enumerate().map(|(i, (data, form))| folder.file(&format!("{i}.osm.pbf"), &pbf(data, form))).collect();
        let options = osmill_ops::cat::Options { kinds, ..options() };
        let output = OutputOptions { metadata: fields, direct, recompress, ..folder.output() };
        let (report, bytes) = folder.cat(&job(threads), &paths, &options, output).unwrap();
        let all: Vec<&Data> = inputs.iter().map(|(data, _)| data).collect();
        let expected = Data::cat(&all, kinds).clean(fields);
        let (header, found) = Data::with_header_from_pbf(&bytes).unwrap();
        prop_assert_eq!(&found, &expected);
        prop_assert_eq!(report.written.total(), expected.elements.len() as u64);
        // The header claims no order that is not there, and keeps a true claim of a single input.
        if header.claims_sorted() {
            prop_assert!(Data::cat(&all, KindSet::ALL).is_sorted_by_id());
        }
        if let [(data, _)] = &inputs[..] {
            prop_assert_eq!(header.claims_sorted(), data.is_sorted());
        }
        if all.iter().any(|data| data.header().has_history()) {
            prop_assert!(header.has_history());
        }
        // As text, the same elements.
        let output = OutputOptions { metadata: fields, format: "opl".parse().unwrap(), ..folder.output() };
        let (_, text) = folder.cat(&job(threads), &paths, &options, output).unwrap();
        let lines: Vec<String> = String::from_utf8(text).unwrap().lines().map(str::to_owned).collect();
        prop_assert_eq!(lines, opl_lines_of_pbf(&bytes).unwrap());
    }

    #[test]
    fn a_second_cat_changes_nothing(data in data(), form in form()) {
        let folder = Folder::new();
        let first = folder.file("first.osm.pbf", &pbf(&data, &form));
        let (_, indexed) = folder.cat(&job(2), &[first], &options(), folder.output()).unwrap();
        let second = folder.file("second.osm.pbf", &indexed);
        let (_, again) = folder.cat(&job(2), &[second], &options(), folder.output()).unwrap();
        prop_assert!(indexed == again);
    }

    #[test]
    fn output_does_not_depend_on_threads_or_io(
        inputs in prop::collection::vec((data_of(Shape::SORTED), form()), 1..3),
        kinds in kinds(),
        dedupe: bool,
    ) {
        let folder = Folder::new();
        let paths: Vec<_> = inputs.iter().enumerate().map(|(i, (data, form))| folder.file(&format!("{i}.osm.pbf"), &pbf(data, form))).collect();
        let options = osmill_ops::cat::Options { kinds, dedupe, ..options() };
        let (_, one) = folder.cat(&job(1), &paths, &options, folder.output()).unwrap();
        for threads in 2..4 {
            let (_, more) = folder.cat(&job(threads), &paths, &options, folder.output()).unwrap();
            prop_assert!(one == more, "{} threads", threads);
        }
        let direct = Job::new(JobOptions { threads: 2, direct_io: true, ..JobOptions::default() });
        let output = OutputOptions { direct: true, fsync: true, ..folder.output() };
        let (_, direct) = folder.cat(&direct, &paths, &options, output).unwrap();
        prop_assert!(one == direct, "direct I/O");
        // Into one of the inputs.
        let output = OutputOptions { path: paths[0].clone(), ..folder.output() };
        let (_, onto) = folder.cat(&job(2), &paths, &options, output).unwrap();
        prop_assert!(one == onto, "onto an input");
    }

    #[test]
    fn dedupe_keeps_the_newest(
        inputs in prop::collection::vec((data_of(Shape::SORTED), form()), 2..4),
        kinds in kinds(),
        fields in prop_oneof![4 => Just(MetadataFields::ALL), 1 => fields()],
        threads in 1usize..4,
    ) {
        assert_merged(&inputs, kinds, fields, threads)?;
    }

    #[test]
    fn dedupe_of_history_keeps_every_version(
        inputs in prop::collection::vec((data_of(Shape::HISTORY), form()), 2..4),
        kinds in kinds(),
        threads in 1usize..4,
    ) {
        assert_merged(&inputs, kinds, MetadataFields::ALL, threads)?;
    }

    #[test]
    fn dedupe_of_nearly_equal_files(
        base in data_of(Shape { ids: 300, elements: 300, ..Shape::CONSISTENT }),
        changes in data_of(Shape { ids: 300, elements: 3, ..Shape::CONSISTENT }),
        size in 1usize..60,
        index: bool,
        threads in 1usize..4,
    ) {
        // Most blobs of the two are byte-equal.
        let newer = Data::merge(&[&changes, &base]);
        let folder = Folder::new();
        let paths = [
            folder.file("a.osm.pbf", &plain(&base, size, index)),
            folder.file("b.osm.pbf", &plain(&newer, size, index)),
        ];
        let options = osmill_ops::cat::Options { dedupe: true, ..options() };
        for (order, inputs) in [([0, 1], [&base, &newer]), ([1, 0], [&newer, &base])] {
            let paths = order.map(|i| paths[i].clone());
            let (_, bytes) = folder.cat(&job(threads), &paths, &options, folder.output()).unwrap();
            prop_assert_eq!(Data::from_pbf(&bytes).unwrap(), Data::merge(&inputs));
        }
    }

    #[test]
    fn dedupe_refuses_what_is_not_sorted(data in data_of(Shape { negative: true, ..Shape::WILD }), form in form()) {
        let folder = Folder::new();
        let path = folder.file("a.osm.pbf", &pbf(&data, &form));
        let options = osmill_ops::cat::Options { dedupe: true, ..options() };
        let result = folder.cat(&job(2), &[path], &options, folder.output());
        prop_assert_eq!(result.is_ok(), data.is_sorted_by_id(), "{:?}", result.err().map(|e| e.to_string()));
        if !data.is_sorted_by_id() {
            prop_assert!(!folder.output().path.exists());
        }
    }

    #[test]
    fn check_ids_finds_every_fault(data in data(), form in form(), threads in 1usize..4) {
        let folder = Folder::new();
        let path = folder.file("a.osm.pbf", &pbf(&data, &form));
        let job = job(threads);
        let (input, inspection) = open(&job, &path);
        let report = check::ids(&job, &input, &inspection.plan).unwrap();
        let history = data.header().has_history();
        let faults = data.order_faults(history);
        let unsorted: Vec<_> = faults.iter().filter_map(|fault| match fault {
            OrderFault::Unsorted { element, .. } => Some(*element),
            OrderFault::Repeated { .. } => None,
        }).collect();
        prop_assert_eq!(report.out_of_order, unsorted.len() as u64);
        prop_assert_eq!(report.sorted, unsorted.is_empty());
        prop_assert_eq!(report.first_out_of_order.map(|offence| offence.element), unsorted.first().copied());
        prop_assert_eq!(report.count.total(), data.elements.len() as u64);
        let duplicates = match (unsorted.is_empty(), history) {
            (false, false) => data.elements.len() - data.ids().len(),
            _ => faults.len() - unsorted.len(),
        };
        prop_assert_eq!(report.duplicates, duplicates as u64);
        prop_assert_eq!(report.first_duplicate.is_some(), duplicates > 0);
        prop_assert_eq!(report.is_good(), faults.is_empty() && duplicates == 0);
    }

    #[test]
    fn check_refs_finds_every_missing_element(
        data in data(),
        form in form(),
        relations: bool,
        lies: bool,
        threads in 1usize..4,
    ) {
        let folder = Folder::new();
        let mut header = data.header();
        if lies {
            header.set_optional(SORTED, true);
        }
        let path = folder.file("a.osm.pbf", &pbf_with(&data, &form, &header));
        let job = job(threads);
        let (input, inspection) = open(&job, &path);
        let report = check::refs(&job, &input, &inspection.plan, RefOptions { relations, list: true }).unwrap();
        let missing = data.missing_references(relations);
        let of_ways = missing.iter().filter(|m| m.from.kind == Kind::Way).count();
        prop_assert_eq!(report.missing_way_nodes, of_ways as u64);
        prop_assert_eq!(report.is_good(), missing.is_empty());
        let mut listed: Vec<_> = report.dangling.iter().map(|d| (d.from, d.missing)).collect();
        let mut expected: Vec<_> = missing.iter().map(|m| (m.from, m.to)).collect();
        if data.is_sorted() {
            prop_assert_eq!(&listed, &expected);
        }
        listed.sort();
        expected.sort();
        prop_assert_eq!(listed, expected);
        if relations {
            let members = |kind: Kind| missing.iter().filter(move |m| m.from.kind == Kind::Relation && m.to.kind == kind).map(|m| m.to);
            for kind in Kind::ALL {
                let (all, different) = (members(kind).count(), members(kind).collect::<std::collections::BTreeSet<_>>().len());
                prop_assert_eq!(report.missing_members.unwrap().of(kind), all as u64);
                prop_assert_eq!(report.missing_member_elements.unwrap().of(kind), different as u64);
            }
        }
        let counted = check::refs(&job, &input, &inspection.plan, RefOptions { relations, list: false }).unwrap();
        prop_assert_eq!(counted.missing_way_nodes, report.missing_way_nodes);
        prop_assert_eq!(counted.missing_members, report.missing_members);
        prop_assert!(counted.dangling.is_empty());
        prop_assert_eq!(counted.count, report.count);
    }

    #[test]
    fn inspect_counts_everything(data in data(), form in form(), threads in 1usize..4) {
        let folder = Folder::new();
        let path = folder.file("a.osm.pbf", &pbf(&data, &form));
        let job = job(threads);
        let (input, inspection) = open(&job, &path);
        let found = inspect::extended(&job, &input, &inspection.plan).unwrap();
        for kind in Kind::ALL {
            let all: Vec<_> = data.elements.iter().filter(|e| e.kind() == kind).collect();
            prop_assert_eq!(found.counts.of(kind), all.len() as u64);
            prop_assert_eq!(found.tagged.of(kind), all.iter().filter(|e| !e.tags.is_empty()).count() as u64);
            prop_assert_eq!(found.tags.of(kind), all.iter().map(|e| e.tags.len() as u64).sum::<u64>());
            prop_assert_eq!(found.negative.of(kind), all.iter().filter(|e| e.id.id < 0).count() as u64);
            let ids = || all.iter().map(|e| e.id.id);
            prop_assert_eq!(found.ids[kind as usize], ids().min_by_key(|id| id_order(*id)).zip(ids().max_by_key(|id| id_order(*id))));
        }
        prop_assert_eq!(found.refs, data.elements.iter().map(|e| e.refs.len() as u64).sum::<u64>());
        prop_assert_eq!(found.members, data.elements.iter().map(|e| e.members.len() as u64).sum::<u64>());
        prop_assert_eq!(found.deleted, data.elements.iter().filter(|e| !e.is_visible()).count() as u64);
        prop_assert_eq!(found.located_ways, data.elements.iter().filter(|e| e.locations.is_some()).count() as u64);
        let times = || data.elements.iter().filter_map(|e| e.metadata.timestamp).filter(|t| *t != Timestamp(0));
        prop_assert_eq!(found.timestamps, times().min().zip(times().max()));
        let has = [
            data.elements.iter().filter(|e| e.metadata.version.is_some_and(|v| v > 0)).count(),
            times().count(),
            data.elements.iter().filter(|e| e.metadata.changeset.is_some_and(|c| c > 0)).count(),
            data.elements.iter().filter(|e| e.metadata.uid.is_some_and(|u| u > 0)).count(),
            // An empty name is none: files are stripped of names so.
            data.elements.iter().filter(|e| e.metadata.user.as_ref().is_some_and(|u| *u != "")).count(),
        ];
        prop_assert_eq!(found.metadata, has.map(|n| n as u64));
        let locations: Vec<Location> = data.elements.iter().filter_map(|e| e.location).collect();
        let bbox = locations.iter().map(|l| BoundingBox { min: *l, max: *l }).reduce(|a, b| a.union(b));
        prop_assert_eq!(found.bbox, bbox);
        let history = data.header().has_history();
        let faults = data.order_faults(history);
        let descents = faults.iter().filter(|f| matches!(f, OrderFault::Unsorted { .. })).count();
        prop_assert_eq!((found.descents, found.repeats), (descents as u64, (faults.len() - descents) as u64));
        prop_assert_eq!(found.bytes.values().map(|b| b.blobs).sum::<u64>(), data.elements.len().div_ceil(form.elements_per_block) as u64);
        // What the index says is the same.
        let (_, indexed) = folder.cat(&job, &[path], &options(), folder.output()).unwrap();
        let path = folder.file("b.osm.pbf", &indexed);
        let (_, inspection) = open(&job, &path);
        let index = inspection.index.expect("every blob has a record");
        prop_assert_eq!(index.counts, found.counts);
        prop_assert_eq!(index.refs, found.refs + found.members);
        prop_assert_eq!(index.bbox, found.bbox);
    }

    #[test]
    fn tags_are_counted_exactly_with_any_memory(
        data in data(),
        form in form(),
        kinds in kinds(),
        memory in prop_oneof![Just(1u64), 1u64..5000, Just(1 << 30)],
        min_count in 1u64..4,
        expression in prop::sample::select(vec![vec![], vec!["highway"], vec!["n/name=*y", "w/*"], vec!["type!=route"]]),
        threads in 1usize..4,
    ) {
        let folder = Folder::new();
        let path = folder.file("a.osm.pbf", &pbf(&data, &form));
        let job = Job::new(JobOptions { threads, memory, ..JobOptions::default() });
        let (input, inspection) = open(&job, &path);
        let filter = TagFilter::parse(&expression).unwrap();
        let options = tags::Options { kinds, filter: filter.clone(), min_count, max_count: 20, keys: true, values: true };
        let found = tags::count(&job, &input, &inspection.plan, &options).unwrap();
        let mut counts: BTreeMap<(String, Option<String>), u64> = BTreeMap::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        for element in data.elements.iter().filter(|e| kinds.contains(e.kind())) {
            for (key, value) in &element.tags {
                if filter.matches(element.kind(), osmill_model::Tag { key: &key.0, value: &value.0 }) {
                    *counts.entry((text(&key.0), None)).or_default() += 1;
                    *counts.entry((text(&key.0), Some(text(&value.0)))).or_default() += 1;
                }
            }
        }
        let mut expected: Vec<_> = counts.into_iter().filter(|(_, n)| (min_count..=20).contains(n)).map(|((key, value), count)| (std::cmp::Reverse(count), key, value)).collect();
        expected.sort();
        let found: Vec<_> = found.into_iter().map(|tag| (std::cmp::Reverse(tag.count), tag.key, tag.value)).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn an_element_is_found_with_all_its_versions(data in data(), form in form(), pick: prop::sample::Index) {
        prop_assume!(!data.elements.is_empty());
        let folder = Folder::new();
        let path = folder.file("a.osm.pbf", &pbf(&data, &form));
        let job = job(2);
        let (input, inspection) = open(&job, &path);
        let id = pick.get(&data.elements).id;
        let shown = inspect::show(&job, &input, &inspection.plan, id).unwrap();
        let expected: Vec<_> = data.elements.iter().filter(|e| e.id == id).collect();
        prop_assert_eq!(shown.len(), expected.len());
        for (shown, element) in shown.iter().zip(expected) {
            prop_assert_eq!(&shown.id, &id.to_string());
            prop_assert_eq!(shown.version, element.metadata.version);
            prop_assert_eq!((shown.tags.len(), shown.refs.len(), shown.members.len()), (element.tags.len(), element.refs.len(), element.members.len()));
        }
    }

    #[test]
    fn a_false_claim_is_dropped_with_a_warning(data in data(), form in form()) {
        let folder = Folder::new();
        let mut header = data.header();
        header.set_optional(SORTED, true);
        let path = folder.file("a.osm.pbf", &pbf_with(&data, &form, &header));
        let job = job(2);
        let (_, bytes) = folder.cat(&job, &[path], &options(), folder.output()).unwrap();
        let (header, found) = Data::with_header_from_pbf(&bytes).unwrap();
        prop_assert_eq!(&found, &data);
        let summary = job.summary();
        let told = !summary.warnings.is_empty();
        prop_assert_eq!(header.claims_sorted(), !told, "{:?}", summary.warnings);
        // Between the two, versions of an element are out of order, which an index does not show.
        if data.is_sorted() {
            prop_assert!(!told, "{:?}", summary.warnings);
        } else if !data.is_sorted_by_id() {
            prop_assert!(told);
        }
        prop_assert_eq!(summary.objects_in.unwrap_or_default().total(), data.elements.len() as u64);
    }
}

/// Order by kind and id, whatever the versions.
trait SortedById {
    fn is_sorted_by_id(&self) -> bool;
}

impl SortedById for Data {
    fn is_sorted_by_id(&self) -> bool {
        self.elements.is_sorted_by_key(|e| e.id)
    }
}

fn assert_merged(
    inputs: &[(Data, Form)],
    kinds: KindSet,
    fields: MetadataFields,
    threads: usize,
) -> Result<(), TestCaseError> {
    let folder = Folder::new();
    let paths: Vec<_> = inputs
        .iter()
        .enumerate()
        .map(|(i, (data, form))| folder.file(&format!("{i}.osm.pbf"), &pbf(data, form)))
        .collect();
    let options = osmill_ops::cat::Options {
        dedupe: true,
        kinds,
        ..options()
    };
    let output = OutputOptions {
        metadata: fields,
        ..folder.output()
    };
    let (report, bytes) = folder.cat(&job(threads), &paths, &options, output).unwrap();
    let all: Vec<&Data> = inputs.iter().map(|(data, _)| data).collect();
    let merged = match all.iter().any(|data| data.header().has_history()) {
        true => Data::merge_history(&all),
        false => Data::merge(&all),
    };
    let expected = Data::cat(&[&merged], kinds).clean(fields);
    let (header, found) = Data::with_header_from_pbf(&bytes).unwrap();
    prop_assert_eq!(&found, &expected);
    prop_assert!(header.claims_sorted());
    prop_assert_eq!(report.written.total(), expected.elements.len() as u64);
    Ok(())
}

#[test]
fn headers_travel_through() {
    let data = Data::opl("n1 v1 x1 y1\nn2 v1 x1 y2\nw1 v1 Nn1,n2");
    let mut unknown = Vec::new();
    osmill_pbf::wire::write_bytes_field(&mut unknown, 99, b"from a later version");
    let header = FileHeader {
        bbox: Some(HeaderBox {
            left: -1_000_000_001,
            right: 2_000_000_002,
            top: 3_000_000_003,
            bottom: -4,
        }),
        source: Some("a survey".into()),
        replication_timestamp: Some(Timestamp(1_700_000_000)),
        replication_sequence: Some(4711),
        replication_base_url: Some("https://example.org/day".into()),
        optional_features: vec![SORTED.into(), "SomethingNew".into()],
        unknown,
        ..FileHeader::new("another program")
    };
    let folder = Folder::new();
    let path = folder.file("a.osm.pbf", &pbf_with(&data, &Form::default(), &header));
    let written = |options: &osmill_ops::cat::Options, inputs: &[std::path::PathBuf]| {
        let (_, bytes) = folder.cat(&job(2), inputs, options, folder.output()).unwrap();
        Data::with_header_from_pbf(&bytes).unwrap().0
    };
    let ours = FileHeader {
        writing_program: Some("test".into()),
        ..header.clone()
    };
    let one = std::slice::from_ref(&path);
    assert_eq!(written(&options(), one), ours);
    let output = OutputOptions {
        recompress: true,
        ..folder.output()
    };
    let (_, recompressed) = folder.cat(&job(2), one, &options(), output).unwrap();
    assert_eq!(Data::with_header_from_pbf(&recompressed).unwrap().0, ours);
    assert_eq!(
        written(
            &osmill_ops::cat::Options {
                dedupe: true,
                ..options()
            },
            one
        ),
        ours
    );
    // What the user sets comes last; an empty value removes.
    let changes = ["source=mine", "osmosis_replication_base_url=", "generator=me"].map(str::to_owned);
    let changed = osmill_ops::cat::Options {
        header: osmill_ops::cat::HeaderChanges::parse(&changes).unwrap(),
        ..options()
    };
    let expected = FileHeader {
        source: Some("mine".into()),
        replication_base_url: None,
        writing_program: Some("me".into()),
        ..header.clone()
    };
    assert_eq!(written(&changed, one), expected);
    // Of two files, what holds of both: the older state, no sequence number, the box around both.
    let second = FileHeader {
        bbox: Some(HeaderBox {
            left: 0,
            right: 5_000_000_000,
            top: 1,
            bottom: -7,
        }),
        replication_timestamp: Some(Timestamp(1_600_000_000)),
        optional_features: vec![SORTED.into(), LOCATIONS_ON_WAYS.into()],
        ..header.clone()
    };
    let two = [
        path.clone(),
        folder.file("b.osm.pbf", &pbf_with(&data, &Form::default(), &second)),
    ];
    let both = written(&options(), &two);
    assert_eq!(
        both.bbox,
        Some(HeaderBox {
            left: -1_000_000_001,
            right: 5_000_000_000,
            top: 3_000_000_003,
            bottom: -7
        })
    );
    assert_eq!(both.replication_timestamp, Some(Timestamp(1_600_000_000)));
    assert_eq!(
        (both.replication_sequence, both.replication_base_url),
        (None, None)
    );
    assert_eq!(both.source.as_deref(), Some("a survey"));
    assert!(both.optional_features.is_empty(), "{:?}", both.optional_features);
}

#[test]
fn files_that_follow_each_other_stay_sorted() {
    let folder = Folder::new();
    let first = Data::opl("n1 v1 x1 y1\nn2 v1 x1 y2");
    let second = Data::opl("n3 v1 x1 y1\nw1 v1 Nn1,n2");
    for (index, sorted) in [(true, true), (false, false)] {
        let form = Form {
            index: vec![index],
            ..Form::default()
        };
        let paths = [
            folder.file("a.osm.pbf", &pbf(&first, &form)),
            folder.file("b.osm.pbf", &pbf(&second, &form)),
        ];
        let (_, bytes) = folder.cat(&job(2), &paths, &options(), folder.output()).unwrap();
        let (header, data) = Data::with_header_from_pbf(&bytes).unwrap();
        assert_eq!(data, Data::cat(&[&first, &second], KindSet::ALL));
        // Without records it would take a pass to know; the claim is left out.
        assert_eq!(header.claims_sorted(), sorted);
        let (_, bytes) = folder
            .cat(
                &job(2),
                &[paths[1].clone(), paths[0].clone()],
                &options(),
                folder.output(),
            )
            .unwrap();
        assert!(!Data::with_header_from_pbf(&bytes).unwrap().0.claims_sorted());
    }
}
