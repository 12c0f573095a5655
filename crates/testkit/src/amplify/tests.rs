use super::*;
use crate::fixtures;
use crate::model::Data;
use crate::osmium;

/// Two small extracts that do not touch: with ids that repeat, references to nowhere, negative ids.
fn bases(directory: &Path) -> Vec<PathBuf> {
    let one = Data::opl(
        "n-1 v1 x1 y1
         n1 v1 t2020-01-01 c7 i3 uAna x10 y10
         n2 v2 x10.1 y10 Tname=a
         n3 v1 x10.1 y10.1 Taddr:housenumber=12a
         n900 v1 x10.05 y10.05
         w5 v1 Nn1,n2,n99 Thighway=path
         w6 v1 Nn98,n3
         w7 v1 Nn3,n900,n1
         r1 v1 Mw5@outer,w6@,n3@x Ttype=x
         r2 v1 Mr1@,r3@,w7@
         r3 v1 Mr1@",
    );
    let two = Data::opl("n2 v3 x50 y50\nn10 v1 x50.2 y50.1\nn11 v1 x50.3 y50.1\nw9 v1 Nn10,n11,n10");
    [one, two]
        .iter()
        .enumerate()
        .map(|(i, data)| {
            let path = directory.join(format!("{i}.osm.pbf"));
            std::fs::write(&path, data.to_pbf()).unwrap();
            path
        })
        .collect()
}

fn amplified(options: &Amplify, bases: &[PathBuf], directory: &Path) -> (Report, Data, PathBuf, PathBuf) {
    let (out, osc) = (directory.join("out.osm.pbf"), directory.join("out.osc.gz"));
    let report = options.run(bases, &out, Some(&osc)).unwrap();
    let data = Data::from_pbf(&std::fs::read(&out).unwrap()).unwrap();
    (report, data, out, osc)
}

#[test]
fn copies_are_sorted_and_complete() {
    let directory = tempfile::tempdir().unwrap();
    let bases = bases(directory.path());
    for copies in [1, 2, 7] {
        let options = Amplify {
            copies,
            ..Amplify::default()
        };
        let (report, data, ..) = amplified(&options, &bases, directory.path());
        // n98 and n99 are nowhere, which ends w6; r3 has no node and no way.
        assert_eq!(report.base.elements, [6, 3, 2]);
        assert_eq!((report.base.dropped_refs, report.base.dropped_members), (2, 2));
        assert_eq!(report.elements, [6, 3, 2].map(|n| n * copies as u64));
        assert_eq!(data.elements.len() as u64, 11 * copies as u64);
        assert_eq!(data.order_faults(false), []);
        assert_eq!(data.missing_references(true), []);
        let named = data.keep(|e| e.tag("highway").is_some());
        assert_eq!(named.elements.len(), copies);
        assert!(
            data.elements
                .iter()
                .all(|e| e.location.is_none_or(Location::is_valid))
        );
    }
}

#[test]
fn copies_keep_their_shape_and_metadata() {
    let directory = tempfile::tempdir().unwrap();
    let bases = bases(directory.path());
    let options = Amplify {
        copies: 3,
        ..Amplify::default()
    };
    let (_, data, ..) = amplified(&options, &bases, directory.path());
    let first = data
        .elements
        .iter()
        .find(|e| e.metadata.changeset.is_some())
        .unwrap();
    assert_eq!(first.metadata.user, Some("Ana".into()));
    // Absent stays absent.
    assert!(data.elements.iter().any(|e| e.metadata.timestamp.is_none()));
    let locations = data.node_locations();
    for way in data.elements.iter().filter(|e| e.tag("highway").is_some()) {
        let [a, b] = [0, 1].map(|i| locations[&way.refs[i]].unwrap());
        let width = f64::from((a.lon - b.lon).abs());
        // n2 is taken from the second extract, where its version is greater.
        assert!(width > 0.0);
    }
    let houses: Vec<_> = data
        .elements
        .iter()
        .filter_map(|e| e.tag("addr:housenumber"))
        .collect();
    assert_eq!(houses.len(), 3);
    assert!(houses.iter().any(|h| **h == "12a") && houses.iter().all(|h| h.0.ends_with(b"a")));
    for mode in [MetadataMode::Fill, MetadataMode::Strip] {
        let options = Amplify {
            copies: 3,
            metadata: mode,
            ..Amplify::default()
        };
        let (_, data, ..) = amplified(&options, &bases, directory.path());
        for element in &data.elements {
            let m = &element.metadata;
            assert!(m.version.is_some() && m.timestamp.is_some());
            assert_eq!(
                m.changeset.is_some() && m.uid.is_some() && m.user.is_some(),
                mode == MetadataMode::Fill
            );
        }
    }
}

#[test]
fn bytes_depend_on_options_alone() {
    let directory = tempfile::tempdir().unwrap();
    let bases = bases(directory.path());
    let bytes = |seed, threads| {
        let options = Amplify {
            copies: 50,
            seed,
            write: WriteOptions {
                threads,
                ..WriteOptions::default()
            },
            ..Amplify::default()
        };
        let (_, _, out, osc) = amplified(&options, &bases, directory.path());
        (std::fs::read(out).unwrap(), std::fs::read(osc).unwrap())
    };
    assert!(bytes(1, 1) == bytes(1, 4));
    assert!(bytes(1, 1) != bytes(2, 1));
}

#[test]
fn nothing_to_copy_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let empty = directory.path().join("empty.osm.pbf");
    std::fs::write(&empty, Data::opl("n-1 x1 y1").to_pbf()).unwrap();
    let out = directory.path().join("out.osm.pbf");
    let options = Amplify::default();
    assert!(matches!(
        options.run(&[&empty], &out, None),
        Err(AmplifyError::Empty)
    ));
    let none = Amplify {
        copies: 0,
        ..Amplify::default()
    };
    assert!(matches!(
        none.run(&[&empty], &out, None),
        Err(AmplifyError::NoCopies)
    ));
    let absent = directory.path().join("absent.osm.pbf");
    let error = options.run(&[&absent], &out, None).unwrap_err();
    assert!(error.to_string().contains("absent.osm.pbf"), "{error}");
}

#[test]
fn a_real_extract_and_its_diff_satisfy_the_tool() {
    let base = fixtures::small_extracts(700_000)
        .into_iter()
        .find(|path| path.to_string_lossy().contains("monaco"));
    let Some(base) = base else { return };
    if !osmium::available() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let options = Amplify {
        copies: 3,
        metadata: MetadataMode::Fill,
        ..Amplify::default()
    };
    let (out, osc) = (
        directory.path().join("out.osm.pbf"),
        directory.path().join("out.osc.gz"),
    );
    let report = options.run(&[base], &out, Some(&osc)).unwrap();
    let changed = report.diff.unwrap();
    assert!(
        [changed.created, changed.modified, changed.deleted]
            .iter()
            .all(|n| n[0] > 0 && n[1] > 0)
    );
    let after = directory.path().join("after.osm.pbf");
    let [out, osc, after] = [&out, &osc, &after].map(|p| p.to_str().unwrap());
    osmium::stdout(["apply-changes", out, osc, "-o", after], b"").unwrap();
    for file in [out, after] {
        osmium::stdout(["check-refs", "-r", file], b"").unwrap();
        let info = osmium::stdout(["fileinfo", "-e", "-g", "data.objects_ordered", file], b"").unwrap();
        assert_eq!(info, b"yes\n");
    }
    let count = |file: &str, what: &str| -> u64 {
        let key = format!("data.count.{what}");
        let out = osmium::stdout(["fileinfo", "-e", "-g", &key, file], b"").unwrap();
        String::from_utf8(out).unwrap().trim().parse().unwrap()
    };
    for (kind, what) in ["nodes", "ways", "relations"].iter().enumerate() {
        assert_eq!(count(out, what), report.elements[kind]);
        let expected = report.elements[kind] + changed.created[kind] - changed.deleted[kind];
        assert_eq!(count(after, what), expected, "{what}");
    }
}
