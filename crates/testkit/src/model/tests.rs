//! Cases by hand, and the same functions against the independent tool on generated data.

use std::collections::BTreeSet;

use osmill_model::{BoundingBox, ElementId, KindSet, Location, Timestamp};
use osmill_pbf::{Compression, MetadataFields};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;
use crate::osmium;
use crate::strategies::{self, Shape};

fn ids(text: &str) -> BTreeSet<ElementId> {
    text.split_whitespace().map(|id| id.parse().unwrap()).collect()
}

fn unit_box(left: i32, bottom: i32, right: i32, top: i32) -> BoundingBox {
    let unit = 10_000_000;
    BoundingBox::new(left * unit, bottom * unit, right * unit, top * unit)
}

/// Runs `check` on data of a shape as often as a process per case allows.
fn against_osmium<T: std::fmt::Debug + 'static>(
    cases: u32,
    strategy: impl Strategy<Value = T> + 'static,
    check: impl Fn(T) -> Result<(), TestCaseError>,
) {
    if !osmium::available() {
        return;
    }
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    if let Err(error) = TestRunner::new(config).run(&strategy.boxed(), check) {
        panic!("{error}");
    }
}

/// What OPL can say of data: absence and 0 look alike there, and locations of deleted nodes do not show.
fn said(data: &Data) -> Vec<String> {
    data.opl_lines()
}

/// Positive ids and full metadata, sorted, with references to nowhere: what the tool treats as we do.
const PLAIN: Shape = Shape {
    dangling: true,
    ..Shape::CONSISTENT
};

#[test]
fn opl_reads_back() {
    let text = "w-7 v2 dD c3 t2024-01-01T00:00:00Z i4 uA%20%b Tk=v,k=w Nn1x1y-2,n2xy";
    let element: Element = text.parse().unwrap();
    assert_eq!(element.to_string(), text);
    assert_eq!(
        element.locations,
        Some(vec![Some(Location::new(10_000_000, -20_000_000)), None])
    );
    for bad in [
        "x1",
        "n1 q5",
        "n1 vx",
        "w1 N1",
        "w1 Nn1x1y1,n2",
        "n1 Tk",
        "r1 M5",
        "n1 x999 y0",
        "n1 ü",
    ] {
        assert!(bad.parse::<Element>().is_err(), "{bad}");
    }
}

#[test]
fn cat_and_clean() {
    let a = Data::opl("n2 v1 c5 x1 y1\nn1 v1\nr1 v1 Mn1@");
    let b = Data::opl("w1 v1 uAna Nn1");
    let both = Data::cat(&[&a, &b], KindSet::NODES | KindSet::WAYS);
    assert_eq!(both, Data::opl("n2 v1 c5 x1 y1\nn1 v1\nw1 v1 uAna Nn1"));
    let fields = MetadataFields {
        changeset: false,
        user: false,
        ..MetadataFields::ALL
    };
    assert_eq!(both.clean(fields), Data::opl("n2 v1 x1 y1\nn1 v1\nw1 v1 Nn1"));
}

#[test]
fn sort_keeps_versions_apart_and_negative_ids_first() {
    let data = Data::opl("w1 v1\nn1 v2\nn1 v1\nn-2\nn-1\nn0\nn1 v1 Ta=b");
    let sorted = Data::opl("n0\nn-1\nn-2\nn1 v1\nn1 v1 Ta=b\nn1 v2\nw1 v1");
    assert_eq!(data.sort(), sorted);
    assert!(!data.is_sorted() && sorted.is_sorted());
}

#[test]
fn merging_keeps_the_newest_or_every_version() {
    // U08 of the collected cases, and the two one-node files.
    let dup = Data::opl("n1 v1 x1 y1\nn1 v1 x1 y1\nn1 v2 x2 y2");
    assert_eq!(Data::merge(&[&dup]), Data::opl("n1 v2 x2 y2"));
    assert_eq!(
        Data::merge_history(&[&dup]),
        Data::opl("n1 v1 x1 y1\nn1 v2 x2 y2")
    );
    let (m1, m2) = (Data::opl("n1 v1 x1 y1"), Data::opl("n1 v2 x2 y2"));
    assert_eq!(Data::merge(&[&m2, &m1]), m2);
    // At equal version the later time wins; at equal time the first input.
    let (old, new) = (Data::opl("n1 v1 t2020-01-01"), Data::opl("n1 v1 t2021-01-01"));
    assert_eq!(Data::merge(&[&old, &new]), new);
    let (first, second) = (Data::opl("n1 v1 Ta=1"), Data::opl("n1 v1 Ta=2"));
    assert_eq!(Data::merge(&[&first, &second]), first);
}

#[test]
fn checks_name_the_offenders() {
    let data = Data::opl("n1 v1\nn3 v1\nn2 v1\nn2 v1\nn2 v2\nw1 Nn1,n9\nr1 Mw1@,w2@x,r1@");
    let faults = data.order_faults(true);
    let n2 = "n2".parse().unwrap();
    assert_eq!(
        faults,
        [
            OrderFault::Unsorted { at: 2, element: n2 },
            OrderFault::Repeated { at: 3, element: n2 }
        ]
    );
    assert_eq!(data.order_faults(false).len(), 3);
    let missing = |from: &str, to: &str| MissingReference {
        from: from.parse().unwrap(),
        to: to.parse().unwrap(),
    };
    assert_eq!(data.missing_references(false), [missing("w1", "n9")]);
    assert_eq!(
        data.missing_references(true),
        [missing("w1", "n9"), missing("r1", "w2")]
    );
}

#[test]
fn renumbering_with_references_to_nowhere() {
    // `miss.osm` of the collected cases.
    let miss = Data::opl("n50 v1 x1 y1\nw7 v1 Nn99,n50,n60\nr3 v1 Mr9@,w7@,n99@");
    assert_eq!(
        miss.renumber([1, 1, 1], Unresolved::Number),
        Data::opl("n1 v1 x1 y1\nw1 v1 Nn2,n1,n3\nr1 v1 Mr2@,w1@,n2@")
    );
    assert_eq!(
        miss.renumber([-1, 100, 1], Unresolved::Keep),
        Data::opl("n-1 v1 x1 y1\nw100 v1 Nn99,n-1,n60\nr1 v1 Mr9@,w100@,n99@")
    );
}

#[test]
fn extracts_of_one_place() {
    let data = Data::opl(
        "n1 x1 y1
         n2 x9 y9
         n3 x5 y5
         w1 Nn1,n2
         w2 Nn3
         w3 Nn2,n3
         r1 Mw1@,w3@ Ttype=multipolygon
         r2 Mr1@
         r3 Mr2@
         r4 Mw2@",
    );
    let region = unit_box(0, 0, 2, 2);
    let extract = |strategy| data.extract(|l| region.contains(l), &strategy).ids();
    assert_eq!(extract(Completeness::Simple), ids("n1 w1 r1"));
    assert_eq!(extract(Completeness::CompleteWays), ids("n1 n2 w1 r1 r2 r3"));
    let smart = extract(Completeness::Smart(SmartOptions::default()));
    assert_eq!(smart, ids("n1 n2 n3 w1 w3 r1 r2 r3"));
    let routes = SmartOptions {
        types: Some(vec!["route".into()]),
    };
    assert_eq!(
        extract(Completeness::Smart(routes)),
        extract(Completeness::CompleteWays)
    );
    let across = BoundingBox::new(1_700_000_000, 600_000_000, -1_700_000_000, 700_000_000);
    // U03: both sides of the antimeridian.
    let am = Data::opl(
        "n1 x180 y66\nn2 x180 y67\nn3 x-180 y66.5\nn4 x-179.9 y66.5\nn5 x0 y66\nw1 Nn1,n2\nw2 Nn3,n4",
    );
    let found = am.extract(|l| across.contains(l), &Completeness::Simple).ids();
    assert_eq!(found, ids("n1 n2 n3 n4 w1 w2"));
}

#[test]
fn filters_close_over_cycles() {
    // U07: a relation that contains itself, and a grandchild.
    let nest = Data::opl("n1\nn2\nn3\nw1 Nn1,n2\nr1 Mw1@\nr2 Mr1@,r2@ Ttype=superroute");
    let filter = TagExpression::parse("r/type=superroute").unwrap();
    let selected = nest.tags_filter(|e| filter.matches(e), false, false);
    assert_eq!(selected.data.ids(), ids("n1 n2 w1 r1 r2"));
    assert_eq!(selected.matched, ids("r2"));
    assert_eq!(selected.referenced, ids("n1 n2 w1 r1"));
    let (selected, missing) = nest.get_ids(&ids("r2 n7"), true, true);
    assert_eq!(selected.data.ids(), ids("n1 n2 w1 r1 r2"));
    assert_eq!(missing, ids("n7"));
    assert_eq!(nest.get_parents(&ids("n1 r1"), false).ids(), ids("w1 r2"));
    assert_eq!(nest.get_parents(&ids("r2"), true).ids(), ids("r2"));
    assert_eq!(nest.remove_ids(&ids("n1 r2")).ids(), ids("n2 n3 w1 r1"));
    // U06: an excluded way comes back as a member.
    let inv = Data::opl("n1\nn2\nw1 Nn1,n2 Tmaritime=yes\nr1 Mw1@ Ttype=boundary");
    let maritime = TagExpression::parse("w/maritime").unwrap();
    let without = inv.tags_filter(|e| !maritime.matches(e), false, true);
    assert_eq!(without.data.ids(), ids("n1 n2 w1 r1"));
    assert_eq!(without.referenced, ids("w1"));
    assert!(without.data.elements[2].tags.is_empty());
    let without = inv.tags_filter(|e| !maritime.matches(e), true, false);
    assert_eq!(without.data.ids(), ids("n1 n2 r1"));
}

#[test]
fn expressions_match_as_the_tool_does() {
    // U05: a leading star looks for a substring.
    let star = Data::opl("n1 Tname=xyz\nn2 Tname=xy\nn3 Tname=a%2c%b%3d%c*");
    let found = |text: &str| {
        let filter = TagExpression::parse(text).unwrap();
        star.keep(|e| filter.matches(e)).ids()
    };
    assert_eq!(found("n/name=*y"), ids("n1 n2"));
    assert_eq!(found("name=xy*,q"), ids("n1 n2"));
    assert_eq!(found("w/name"), ids(""));
    assert_eq!(found("n/na*!=xy"), ids("n1 n3"));
    assert_eq!(found("*ame*"), ids("n1 n2 n3"));
    assert_eq!(TagExpression::parse("x/name"), None);
    let areas =
        Data::opl("w1 Nn1,n2,n3,n1 Ta=b\nw2 Nn1,n2,n3 Ta=b\nr1 Ttype=boundary,a=b\nr2 Ttype=route,a=b");
    let area = TagExpression::parse("a/a").unwrap();
    assert_eq!(areas.keep(|e| area.matches(e)).ids(), ids("w1 r1"));
}

#[test]
fn locations_come_to_ways() {
    // U18: the node of the restriction stays when members are kept.
    let rm = Data::opl("n1 x1 y1\nn2 x2 y1\nn3 x5 y5\nw1 Nn1,n2,n4\nr1 Mn3@via,w1@from Ttype=restriction");
    let (with, missing) = rm.add_locations(false, true);
    assert_eq!(
        with,
        Data::opl("n3 x5 y5\nw1 Nn1x1y1,n2x2y1,n4xy\nr1 Mn3@via,w1@from Ttype=restriction")
    );
    assert_eq!(missing.len(), 1);
    assert_eq!(missing[0].to.to_string(), "n4");
    assert_eq!(rm.add_locations(false, false).0.ids(), ids("w1 r1"));
    assert_eq!(rm.add_locations(true, false).0.ids(), rm.ids());
}

#[test]
fn changes_apply_and_derive() {
    // U09 and U10: created though version 2, changed though the version is the same, deleted as a way.
    let old = Data::opl("n2 v1 t2016-01-01 x1 y1 Ta=1\nw5 v2 t2016-01-01 Nn2");
    let new = Data::opl("n1 v2 t2016-09-14 x1.2 y1.4\nn2 v1 t2016-01-01 x1 y1 Ta=2");
    let change = old.derive(&new);
    assert_eq!(
        change,
        Change::opl(
            "+ n1 v2 t2016-09-14 x1.2 y1.4
             ~ n2 v1 t2016-01-01 x1 y1 Ta=2
             - w5 v2 t2016-01-01"
        )
    );
    assert_eq!(old.apply(&[&change]), new);
    // An older version does not come back.
    assert_eq!(new.apply(&[&Change::opl("~ n1 v1 x9 y9")]), new);
    let history = old.apply_history(&[&Change::opl("- n2 v2 x1 y1")]);
    assert_eq!(
        history,
        Data::opl("n2 v1 t2016-01-01 x1 y1 Ta=1\nn2 v2 dD\nw5 v2 t2016-01-01 Nn2")
    );
}

#[test]
fn simplified_changes_do_not_depend_on_the_order_of_files() {
    // U11: creation and later deletion with the same version; U12: a version twice.
    let (d1, d2) = (
        Change::opl("+ w4 v1 t2016-05-01 Nn1"),
        Change::opl("- w4 v1 t2016-05-03"),
    );
    assert_eq!(Change::simplify(&[&d1, &d2]), d2);
    assert_eq!(Change::simplify(&[&d2, &d1]), d2);
    let s1 = Change::opl("~ n1 v21 t2024-08-05 x1 y1\n~ n1 v21 t2024-08-05 x1 y1");
    assert_eq!(Change::simplify(&[&s1]).actions.len(), 1);
    assert_eq!(Change::merge(&[&s1]).actions.len(), 2);
}

#[test]
fn moved_nodes_move_on_ways() {
    // U19, with a deleted node besides.
    let data = Data::opl("w1 v1 Nn1x1y1,n2x2y2,n3x3y3\nw2 v1 Nn9x9y9");
    let change = Change::opl("~ n2 v2 x9 y9\n- n3 v2\n+ w3 v1 Nn1,n5");
    let after = data.apply_with_locations(&[&change]);
    assert_eq!(
        after,
        Data::opl("n2 v2 x9 y9\nw1 v1 Nn1x1y1,n2x9y9,n3xy\nw2 v1 Nn9x9y9\nw3 v1 Nn1x1y1,n5xy")
    );
}

#[test]
fn times_cut_history() {
    let history = Data::opl(
        "n1 v1 t2020-01-01 x1 y1
         n1 v2 t2021-01-01 x2 y2
         n1 v3 dD t2022-01-01
         n2 v1 t2021-06-01 x1 y1",
    );
    let time = |text: &str| text.parse::<Timestamp>().unwrap();
    let at = |text| history.at_time(time(text)).opl_lines().len();
    assert_eq!(
        (
            at("2019-12-31"),
            at("2020-01-01"),
            at("2021-07-01"),
            at("2022-01-01")
        ),
        (0, 1, 2, 1)
    );
    let between = history.in_time(time("2021-02-01"), time("2022-01-01"));
    assert_eq!(
        between,
        Data::opl("n1 v2 t2021-01-01 x2 y2\nn2 v1 t2021-06-01 x1 y1")
    );
    let later = history.in_time(time("2022-01-01"), time("2023-01-01"));
    assert_eq!(later, Data::opl("n1 v3 dD t2022-01-01\nn2 v1 t2021-06-01 x1 y1"));
}

#[test]
fn differences_are_by_version() {
    let left = Data::opl("n1 v1\nn2 v1 Ta=1\nn3 v1");
    let right = Data::opl("n2 v1 Ta=2\nn3 v2\nw1 v1");
    let found: Vec<_> = diff(&left, &right, |a, b| a == b)
        .into_iter()
        .map(|difference| match difference {
            Difference::Left(e) => format!("-{}", e.id),
            Difference::Right(e) => format!("+{}", e.id),
            Difference::Changed(e, _) => format!("*{}", e.id),
            Difference::Same(e) => format!(" {}", e.id),
        })
        .collect();
    assert_eq!(found, ["-n1", "*n2", "-n3", "+n3", "+w1"]);
}

proptest! {
    #[test]
    fn layout_does_not_change_data(data in strategies::data(), blocks in 1usize..10, codec in 0usize..4) {
        let options = PbfOptions {
            compression: ["none", "zlib", "zstd", "lz4"][codec].parse::<Compression>().unwrap(),
            elements_per_block: blocks,
            index: blocks % 2 == 0,
            header: None,
        };
        prop_assert_eq!(Data::from_pbf(&data.to_pbf_with(&options)).unwrap(), data);
    }

    #[test]
    fn short_lines_read_back(data in strategies::data()) {
        for element in &data.elements {
            // A name, key or role may be empty, which OPL cannot tell from absence; and `dV` is not kept.
            let mut plain = element.clone();
            plain.metadata.visible = plain.metadata.visible.filter(|v| !v);
            plain.metadata.user = plain.metadata.user.filter(|Text(u)| !u.is_empty());
            prop_assert_eq!(plain.to_string().parse::<Element>().unwrap(), plain);
        }
    }

    #[test]
    fn what_is_derived_applies(a in strategies::data_of(Shape::SORTED), b in strategies::data_of(Shape::SORTED)) {
        // Only where no element goes back in version, which a change cannot say.
        let change = a.derive(&b);
        let goes_back = b.elements.iter().any(|new| a.elements.iter().any(|old| old.id == new.id
            && (new.version(), new.seconds()) < (old.version(), old.seconds())));
        prop_assume!(!goes_back);
        prop_assert_eq!(a.apply(&[&change]), b);
    }

    #[test]
    fn merging_is_idempotent(a in strategies::data_of(Shape::WILD), b in strategies::data_of(Shape::WILD)) {
        let once = Data::merge(&[&a, &b]);
        prop_assert_eq!(Data::merge(&[&once, &a]), once.clone());
        prop_assert!(once.is_sorted());
        let all = Data::merge_history(&[&a, &b]);
        prop_assert_eq!(Data::merge(&[&all]).ids(), once.ids());
        prop_assert_eq!(Data::merge_history(&[&all]), all);
    }
}

#[test]
fn reading_agrees_with_the_tool() {
    against_osmium(24, strategies::data(), |mut data| {
        // The tool prints locations on every way or on none.
        for way in data.elements.iter_mut().filter(|e| !e.refs.is_empty()) {
            way.locations
                .get_or_insert_with(|| way.refs.iter().map(|_| None).collect());
        }
        let theirs = osmium::data(&data, &["cat", "-f", "opl,locations_on_ways=true", "{}"]).unwrap();
        prop_assert_eq!(said(&theirs), said(&data));
        Ok(())
    });
}

#[test]
fn sorting_agrees_with_the_tool() {
    let shape = Shape {
        locations_on_ways: false,
        ..Shape::WILD
    };
    against_osmium(24, strategies::data_of(shape), |data| {
        let theirs = osmium::data(&data, &["sort", "-f", "opl", "{}"]).unwrap();
        let key = |data: &Data| -> Vec<_> { data.elements.iter().map(|e| (e.id, e.version())).collect() };
        prop_assert_eq!(key(&theirs), key(&data.sort()));
        Ok(())
    });
}

#[test]
fn renumbering_agrees_with_the_tool() {
    against_osmium(24, strategies::data_of(PLAIN), |data| {
        let theirs = osmium::data(&data, &["renumber", "-f", "opl", "{}"]).unwrap();
        prop_assert_eq!(said(&theirs), said(&data.renumber([1, 1, 1], Unresolved::Number)));
        Ok(())
    });
}

#[test]
fn extracts_agree_with_the_tool() {
    let region = unit_box(-1, -1, 2, 2);
    let strategies = [
        ("simple", Completeness::Simple, vec![]),
        ("complete_ways", Completeness::CompleteWays, vec![]),
        ("smart", Completeness::Smart(SmartOptions::default()), vec![]),
        (
            "smart",
            Completeness::Smart(SmartOptions { types: None }),
            vec!["-S", "types=any"],
        ),
    ];
    against_osmium(16, strategies::data_of(PLAIN), |data| {
        for (name, strategy, options) in &strategies {
            let mut command = vec!["extract", "-f", "opl", "-b", "-1,-1,2,2", "-s", name];
            command.extend(options);
            command.push("{}");
            let theirs = osmium::data(&data, &command).unwrap();
            let ours = data.extract(|l| region.contains(l), strategy);
            if *strategy == Completeness::Simple {
                // The tool looks at the first node of a way only, before its version 1.19.
                prop_assert!(theirs.ids().is_subset(&ours.ids()));
                continue;
            }
            prop_assert_eq!(said(&theirs), said(&ours), "{} {:?}", name, options);
        }
        Ok(())
    });
}

#[test]
fn filters_agree_with_the_tool() {
    let expressions = [
        "highway",
        "r/type=multipolygon",
        "nw/*=y*",
        "a/building,type",
        "name!=yes",
        "r/*",
    ];
    against_osmium(12, strategies::data_of(PLAIN), |data| {
        for expression in expressions {
            let filter = TagExpression::parse(expression).unwrap();
            for (options, invert, omit, untag) in [
                (&["-R"][..], false, true, false),
                (&["-i", "-R"][..], true, true, false),
                (&["-t"][..], false, false, true),
                (&["-i"][..], true, false, false),
            ] {
                // Where an expression names kinds, the tool's -i without -R loses untagged ways.
                if invert && !omit && expression.contains('/') {
                    continue;
                }
                let mut command = vec!["tags-filter", "-f", "opl"];
                command.extend(options);
                command.extend(["{}", expression]);
                let theirs = osmium::data(&data, &command).unwrap();
                let ours = data.tags_filter(|e| filter.matches(e) != invert, omit, untag);
                prop_assert_eq!(said(&theirs), said(&ours.data), "{:?} {}", options, expression);
            }
        }
        Ok(())
    });
}

#[test]
fn ids_agree_with_the_tool() {
    let wanted = ["n1", "n7", "w3", "w9", "r2", "r5"];
    let set: BTreeSet<ElementId> = wanted.iter().map(|id| id.parse().unwrap()).collect();
    against_osmium(24, strategies::data_of(PLAIN), |data| {
        for (command, ours) in [
            (
                &["getid", "-f", "opl", "-r"][..],
                data.get_ids(&set, true, false).0.data,
            ),
            (
                &["getid", "-f", "opl"][..],
                data.get_ids(&set, false, false).0.data,
            ),
            (&["getparents", "-f", "opl"][..], data.get_parents(&set, false)),
            (
                &["getparents", "-f", "opl", "-s"][..],
                data.get_parents(&set, true),
            ),
            (&["removeid", "-f", "opl"][..], data.remove_ids(&set)),
        ] {
            let mut arguments = command.to_vec();
            arguments.push("in.osm.pbf");
            arguments.extend(wanted);
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("in.osm.pbf");
            std::fs::write(&path, data.to_pbf()).unwrap();
            let path = path.to_string_lossy().into_owned();
            let arguments = arguments
                .into_iter()
                .map(|a| if a == "in.osm.pbf" { path.as_str() } else { a });
            // getid ends with 1 when ids are missing, and has written what it found.
            let out = osmium::run(arguments, b"").unwrap().stdout;
            let theirs = Data::opl(&String::from_utf8(out).unwrap());
            prop_assert_eq!(said(&theirs), said(&ours), "{:?}", command);
        }
        Ok(())
    });
}

#[test]
fn locations_agree_with_the_tool() {
    against_osmium(24, strategies::data_of(PLAIN), |data| {
        for (option, keep_untagged, keep_members) in [
            ("--keep-untagged-nodes", true, false),
            ("--keep-member-nodes", false, true),
            ("-O", false, false),
        ] {
            let format = "opl,locations_on_ways=true";
            let command = [
                "add-locations-to-ways",
                "--ignore-missing-nodes",
                option,
                "-f",
                format,
                "{}",
            ];
            let theirs = osmium::data(&data, &command).unwrap();
            let ours = data.add_locations(keep_untagged, keep_members).0;
            prop_assert_eq!(said(&theirs), said(&ours), "{}", option);
        }
        Ok(())
    });
}

#[test]
fn changes_agree_with_the_tool() {
    let data_and_change = (strategies::data_of(PLAIN), strategies::change(PLAIN));
    against_osmium(24, data_and_change, |(mut data, mut change)| {
        // The tool takes neighbours of different kinds for one element when their ids are equal.
        let actions = change.actions.iter_mut().map(|(_, element)| element);
        for element in data.elements.iter_mut().chain(actions) {
            element.id.id = element.id.id * 3 + element.kind() as i64;
        }
        let files = [
            ("{}", &data.to_pbf()[..], "osm.pbf"),
            ("{c}", &change.to_osc()[..], "osc"),
        ];
        let theirs = osmium::data_of(&files, &["apply-changes", "-f", "opl", "{}", "{c}"]).unwrap();
        prop_assert_eq!(said(&theirs), said(&data.apply(&[&change])));
        Ok(())
    });
}

#[test]
fn times_agree_with_the_tool() {
    let shape = Shape {
        negative: false,
        ..Shape::HISTORY
    };
    against_osmium(24, strategies::data_of(shape), |data| {
        // The tool takes versions to follow each other in time.
        let in_order = data
            .elements
            .windows(2)
            .all(|w| w[0].id != w[1].id || w[0].seconds() <= w[1].seconds());
        prop_assume!(in_order);
        let (from, to) = (
            Timestamp(1_500_000_000 + 10 * 86_400),
            Timestamp(1_500_000_000 + 30 * 86_400),
        );
        let (a, b) = (from.to_string(), to.to_string());
        let theirs = osmium::data(&data, &["time-filter", "-f", "opl", "{}", &a]).unwrap();
        prop_assert_eq!(said(&theirs), said(&data.at_time(from)));
        let theirs = osmium::data(&data, &["time-filter", "-f", "opl", "{}", &a, &b]).unwrap();
        prop_assert_eq!(said(&theirs), said(&data.in_time(from, to)));
        Ok(())
    });
}

#[test]
fn merging_agrees_with_the_tool() {
    let shape = Shape {
        dangling: true,
        history: true,
        negative: false,
        ..Shape::CONSISTENT
    };
    against_osmium(
        16,
        (strategies::data_of(shape), strategies::data_of(shape)),
        |(a, b)| {
            let files = [
                ("{}", &a.to_pbf()[..], "osm.pbf"),
                ("{b}", &b.to_pbf()[..], "osm.pbf"),
            ];
            let theirs = osmium::data_of(&files, &["merge", "-H", "-f", "opl", "{}", "{b}"]).unwrap();
            let key = |data: &Data| -> Vec<_> { data.elements.iter().map(|e| (e.id, e.version())).collect() };
            let mut theirs = key(&theirs);
            theirs.dedup();
            prop_assert_eq!(theirs, key(&Data::merge_history(&[&a, &b])));
            Ok(())
        },
    );
}
