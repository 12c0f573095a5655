//! Extracts against osmium, against single extracts, and on the cases that users reported.

mod beside;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use beside::{all, assert_same, few, job, opl, osmium, ready, small_job, to_pbf};
use osmill_engine::{Counts, Job, JobOptions};
use osmill_geometry::{MultiPolygon, parse_bbox, parse_poly, read_region};
use osmill_ops::extract::{self, Extract, Options, Report, Strategy, extract};
use osmill_ops::select::Target;

fn target(path: PathBuf) -> Target {
    let mut target = Target::new(path);
    target.output.overwrite = true;
    target
}

fn ours(file: &Path, folder: &Path, areas: &[MultiPolygon], options: &Options) -> (Vec<String>, Vec<Report>) {
    ours_with(file, folder, areas, options, &job(2))
}

fn ours_with(
    file: &Path,
    folder: &Path,
    areas: &[MultiPolygon],
    options: &Options,
    job: &Job,
) -> (Vec<String>, Vec<Report>) {
    let extracts: Vec<_> = areas
        .iter()
        .enumerate()
        .map(|(i, area)| Extract {
            area: area.clone(),
            target: target(folder.join(format!("ours-{i}.osm.pbf"))),
            header_from_input: Vec::new(),
        })
        .collect();
    let reports = extract(job, file, &extracts, options).unwrap();
    let texts = extracts
        .iter()
        .map(|extract| opl(&extract.target.output.path))
        .collect();
    (texts, reports)
}

/// The box around the nodes of a file, as osmium has it, in degrees.
fn data_box(file: &Path) -> [f64; 4] {
    let text = osmium(&["fileinfo", "-e", "-g", "data.bbox", file.to_str().unwrap()]);
    let text = String::from_utf8(text).unwrap();
    let numbers: Vec<f64> = text
        .trim()
        .trim_matches(['(', ')'])
        .split(',')
        .map(|number| number.parse().unwrap())
        .collect();
    numbers.try_into().unwrap()
}

/// A box that is a part of a file's, given as fractions of it.
fn part(file: &Path, [left, bottom, right, top]: [f64; 4]) -> String {
    let [x0, y0, x1, y1] = data_box(file);
    let at = |a: f64, b: f64, part: f64| ((a + (b - a) * part) * 1e7).round() / 1e7;
    format!(
        "{},{},{},{}",
        at(x0, x1, left),
        at(y0, y1, bottom),
        at(x0, x1, right),
        at(y0, y1, top)
    )
}

const STRATEGIES: &[(&str, &[&str])] = &[
    ("simple", &[]),
    ("complete_ways", &[]),
    ("complete_ways", &["relations=false"]),
    ("smart", &[]),
    ("smart", &["types=any"]),
    ("smart", &["types=multipolygon,route"]),
    ("smart", &["complete-partial-relations=30"]),
    ("smart", &["types=none", "complete-partial-relations=60"]),
];

fn options(strategy: &str, settings: &[&str]) -> Options {
    let settings: Vec<String> = settings.iter().map(|s| (*s).to_owned()).collect();
    Options {
        strategy: Strategy::parse(strategy, &settings).unwrap(),
        ..Options::default()
    }
}

fn theirs(file: &Path, region: [&str; 2], strategy: &str, settings: &[&str]) -> String {
    let mut arguments = vec!["extract", "-f", "opl", "-o", "-", "-s", strategy];
    for setting in settings {
        arguments.extend(["-S", *setting]);
    }
    arguments.extend(region);
    arguments.push(file.to_str().unwrap());
    String::from_utf8(osmium(&arguments)).unwrap()
}

fn like_osmium(files: &[PathBuf], strategies: &[(&str, &[&str])]) {
    assert!(!files.is_empty(), "nothing to compare");
    let folder = tempfile::tempdir().unwrap();
    for file in files {
        let boxes = [
            [0.3, 0.35, 0.6, 0.55],
            [0.45, 0.45, 0.5, 0.5],
            [-1.0, -1.0, 2.0, 2.0],
        ];
        for fractions in boxes {
            let text = part(file, fractions);
            let area = parse_bbox(&text).unwrap();
            for (strategy, settings) in strategies {
                let options = options(strategy, settings);
                let (texts, _) = ours(file, folder.path(), std::slice::from_ref(&area), &options);
                let what = format!("{} {text} {strategy} {settings:?}", file.display());
                let theirs = theirs(file, ["-b", &text], strategy, settings);
                match *strategy {
                    "simple" => assert_same_but_for_firsts(&what, &texts[0], &theirs),
                    _ => assert_same(&what, &texts[0], &theirs),
                }
                let areas = std::slice::from_ref(&area);
                let (in_ranges, _) = ours_with(file, folder.path(), areas, &options, &small_job(file, 0.25));
                assert_same(&what, &in_ranges[0], &texts[0]);
            }
        }
    }
}

/// With `simple`, osmium 1.15 looks at the first node of a way, and of the nodes and ways that a relation has at the first
/// one only, where its manual says any. So ours may have more: elements of which it has not the first, and ours has another.
fn assert_same_but_for_firsts(what: &str, ours: &str, theirs: &str) {
    let parts = |line: &str| -> Vec<String> {
        let mut fields = line.split(' ').filter(|field| field.starts_with(['N', 'M']));
        let items = fields.next().unwrap_or_default()[1..].split(',');
        items
            .map(|item| item.split('@').next().unwrap_or_default().to_owned())
            .collect()
    };
    let ids = |text: &str| -> BTreeSet<String> {
        let firsts = text.lines().filter_map(|line| line.split(' ').next());
        firsts.map(str::to_owned).collect()
    };
    let known: BTreeSet<&str> = theirs.lines().collect();
    let (same, more): (Vec<&str>, Vec<&str>) = ours.lines().partition(|line| known.contains(line));
    assert_same(what, &same.join("\n"), theirs.trim_end());
    let (ours, theirs) = (ids(ours), ids(theirs));
    for line in more {
        let parts = parts(line);
        let mut parts = parts.iter().filter(|part| !part.starts_with('r'));
        let is_right = parts.next().is_some_and(|first| {
            !theirs.contains(first) && (ours.contains(first) || parts.any(|part| ours.contains(part)))
        });
        assert!(is_right, "{what}: only ours has {line}");
    }
}

#[test]
fn extracts_hold_what_osmiums_hold() {
    if let Some(data) = ready() {
        like_osmium(&sorted(few(&data)), STRATEGIES);
    }
}

/// osmium refuses inputs that are not sorted, and data that is there twice. It takes the wrong relations where their ids go
/// beyond 32 bits, and runs out of memory for negative ids.
fn sorted(files: Vec<PathBuf>) -> Vec<PathBuf> {
    let is_sorted = |file: &PathBuf| {
        let text = osmium(&["fileinfo", "-e", "-j", file.to_str().unwrap()]);
        let value: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let odd_ids = ["huge", "negative"].map(|ids| format!("liechtenstein2024-{ids}-ids.osm.pbf"));
        !odd_ids.iter().any(|name| file.ends_with(name))
            && value["data"]["objects_ordered"] == true
            && value["data"]["multiple_versions"] == false
    };
    files.into_iter().filter(is_sorted).collect()
}

#[test]
#[ignore = "minutes: all real extracts"]
fn extracts_hold_what_osmiums_hold_on_all_files() {
    if let Some(data) = ready() {
        like_osmium(&sorted(all(&data)), STRATEGIES);
    }
}

/// A file that is not sorted, and has a relation twice, gives what its sorted copy gives, in its own order.
#[test]
fn inputs_need_not_be_sorted() {
    let Some(data) = ready() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = &few(&data)[0];
    assert!(sorted(vec![file.clone()]).is_empty());
    let copy = folder.path().join("sorted.osm.pbf");
    osmium(&["sort", "-o", copy.to_str().unwrap(), file.to_str().unwrap()]);
    let text = part(file, [0.3, 0.35, 0.6, 0.55]);
    let area = parse_bbox(&text).unwrap();
    for (strategy, settings) in STRATEGIES {
        let options = options(strategy, settings);
        let (texts, _) = ours(file, folder.path(), std::slice::from_ref(&area), &options);
        let (expected, _) = ours(&copy, folder.path(), std::slice::from_ref(&area), &options);
        let in_order = |text: &str| {
            let mut lines: Vec<&str> = text.lines().collect();
            lines.sort_unstable();
            lines.join("\n")
        };
        assert!(!expected[0].is_empty());
        let what = format!("{strategy} {settings:?}");
        assert_same(&what, &in_order(&texts[0]), &in_order(&expected[0]));
    }
}

#[test]
fn history_extracts_hold_all_versions_as_osmiums_do() {
    let Some(data) = ready() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = data.join("history/faroe-islands-oshdb.osh.pbf");
    let text = part(&file, [0.3, 0.35, 0.6, 0.55]);
    let area = parse_bbox(&text).unwrap();
    let (texts, _) = ours(
        &file,
        folder.path(),
        std::slice::from_ref(&area),
        &Options::default(),
    );
    let mut arguments = vec!["extract", "-H", "-f", "opl", "-o", "-", "-b", &text];
    arguments.push(file.to_str().unwrap());
    let expected = String::from_utf8(osmium(&arguments)).unwrap();
    assert_same("history", &texts[0], &expected);
    // Other strategies refuse.
    for strategy in ["simple", "smart"] {
        let extracts = [Extract {
            area: area.clone(),
            target: target(folder.path().join("refused.osm.pbf")),
            header_from_input: Vec::new(),
        }];
        let result = extract(&job(1), &file, &extracts, &options(strategy, &[]));
        assert_eq!(result.unwrap_err().exit_code(), 2);
        assert!(!folder.path().join("refused.osm.pbf").exists());
    }
}

#[test]
fn many_regions_at_once_are_what_each_is_alone() {
    let Some(data) = ready() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = &few(&data)[1];
    let mut areas: Vec<MultiPolygon> = Vec::new();
    for i in 0..6 {
        let x = f64::from(i) * 0.15;
        areas.push(parse_bbox(&part(file, [x, x, x + 0.3, x + 0.4])).unwrap());
    }
    areas.push(parse_bbox("100,10,101,11").unwrap());
    areas.push(areas[2].clone());
    for (strategy, settings) in STRATEGIES {
        let options = options(strategy, settings);
        let (together, reports) = ours(file, folder.path(), &areas, &options);
        assert_eq!(reports[6].written, Counts::default());
        for (i, area) in areas.iter().enumerate() {
            let (alone, report) = ours(file, folder.path(), std::slice::from_ref(area), &options);
            assert_same(
                &format!("{strategy} {settings:?} region {i}"),
                &together[i],
                &alone[0],
            );
            assert_eq!(report[0].written, reports[i].written);
        }
    }
}

#[test]
fn any_number_of_threads_and_any_memory_writes_the_same_bytes() {
    let Some(data) = ready() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = &few(&data)[1];
    let areas = [
        parse_bbox(&part(file, [0.1, 0.1, 0.7, 0.8])).unwrap(),
        parse_bbox(&part(file, [0.3, 0.3, 0.6, 0.9])).unwrap(),
    ];
    for (strategy, blobs_of_task) in [
        ("smart", None),
        ("smart", Some(4)),
        ("simple", Some(4)),
        ("simple", Some(50)),
    ] {
        let mut outputs = Vec::new();
        // Without memory, what is held goes to scratch.
        for (threads, memory) in [(1, 1 << 30), (2, 1 << 30), (5, 1 << 30), (2, 0)] {
            let job = Job::new(JobOptions {
                threads,
                memory,
                blobs_of_task,
                ..JobOptions::default()
            });
            ours_with(file, folder.path(), &areas, &options(strategy, &[]), &job);
            let read = |i| std::fs::read(folder.path().join(format!("ours-{i}.osm.pbf"))).unwrap();
            outputs.push([read(0), read(1)]);
        }
        assert!(outputs[0].iter().all(|output| output.len() > 10_000));
        assert!(
            outputs.windows(2).all(|pair| pair[0] == pair[1]),
            "{strategy} {blobs_of_task:?}"
        );
    }
}

#[test]
fn polygons_of_every_kind() {
    let Some(data) = ready() else { return };
    let folder = tempfile::tempdir().unwrap();
    let case = |name: &str| to_pbf(&data.join("cases").join(name), folder.path());
    let ids = |file: &Path, area: MultiPolygon| -> String {
        let (texts, _) = ours(file, folder.path(), &[area], &Options::default());
        let ids = texts[0]
            .lines()
            .map(|line| line.split(' ').next().unwrap_or_default());
        ids.collect::<Vec<_>>().join(" ")
    };
    // Overlapping parts are united: osmium leaves out what is in both.
    let poly = std::fs::read(data.join("cases/o2.poly")).unwrap();
    assert_eq!(ids(&case("ov.osm"), parse_poly(&poly).unwrap()), "n1 n2 n3");
    // Boxes cross the antimeridian where osmium turns them around.
    let across = parse_bbox("170,60,-170,70").unwrap();
    assert_eq!(ids(&case("am.osm"), across), "n1 n2 n3 n4 w1 w2");
    let russia = read_region(&data.join("cases/ru.poly"), None).unwrap();
    let found = ids(&case("am.osm"), russia);
    assert!(found.contains("n1 n2") && found.contains("w1"), "{found}");
    // Nodes on the edges, between the corners as well.
    let diamond = read_region(&data.join("cases/diamond.poly"), None).unwrap();
    assert_eq!(ids(&case("bord.osm"), diamond).split(' ').count(), 8);
}

#[test]
fn what_meets_a_region_without_a_node_inside() {
    let Some(data) = ready() else { return };
    let folder = tempfile::tempdir().unwrap();
    let text = "\
n1 v1 x-5 y0\nn2 v1 x5 y0\nn3 v1 x-5 y-5\nn4 v1 x5 y-5\nn5 v1 x5 y5\nn6 v1 x-5 y5\nn7 v1 x-5 y2\nn8 v1 x0 y9\n\
w1 v1 Thighway=primary Nn1,n2\nw2 v1 Tlanduse=forest Nn3,n4,n5,n6,n3\nw3 v1 Nn7,n8\n\
w4 v1 Nn3,n4\nw5 v1 Nn4,n5,n6,n3\n\
r1 v1 Ttype=boundary Mw4@outer,w5@outer\nr2 v1 Ttype=route Mw1@\nr3 v1 Ttype=multipolygon Mw3@outer\n";
    let source = folder.path().join("around.opl");
    std::fs::write(&source, text).unwrap();
    let file = to_pbf(&source, folder.path());
    let ids = |crossing: bool, enclosing: bool, strategy: &str| -> String {
        let options = Options {
            include_crossing: crossing,
            include_enclosing: enclosing,
            ..options(strategy, &[])
        };
        let area = parse_bbox("-1,-1,1,1").unwrap();
        let (texts, _) = ours(&file, folder.path(), &[area], &options);
        let ids = texts[0]
            .lines()
            .map(|line| line.split(' ').next().unwrap_or_default());
        ids.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(ids(false, false, "smart"), "");
    assert_eq!(ids(true, false, "complete_ways"), "n1 n2 w1 r2");
    assert_eq!(ids(true, false, "simple"), "w1 r2");
    assert_eq!(ids(false, true, "complete_ways"), "n3 n4 n5 n6 w2 w4 w5 r1");
    assert_eq!(ids(true, true, "smart"), "n1 n2 n3 n4 n5 n6 w1 w2 w4 w5 r1 r2");
    let file = to_pbf(&data.join("cases/cross.osm"), folder.path());
    let options = Options {
        include_crossing: true,
        ..Options::default()
    };
    let (texts, _) = ours(
        &file,
        folder.path(),
        &[parse_bbox("-1,-1,1,1").unwrap()],
        &options,
    );
    assert_same("U02", &texts[0], &opl(&file));
}

#[test]
fn a_swapped_box_is_recognised() {
    let Some(data) = ready() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = &few(&data)[1];
    let extracts = [Extract {
        area: parse_bbox("36.1,-5.4,36.2,-5.3").unwrap(),
        target: target(folder.path().join("swapped.osm.pbf")),
        header_from_input: Vec::new(),
    }];
    let job = job(2);
    let reports = extract(&job, file, &extracts, &Options::default()).unwrap();
    assert_eq!(reports[0].written.total(), 0);
    let warnings = job.summary().warnings;
    assert!(
        warnings
            .iter()
            .any(|w| w.contains("nothing is in the region") && w.contains("swapped")),
        "{warnings:?}"
    );
}

#[test]
fn regions_come_from_relations_of_the_input() {
    let Some(data) = ready() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = few(&data)[1].clone();
    // The municipality of La Linea is not all there, so its border is open; the message says where.
    let error = extract::boundary_of(&job(2), &file, 342099)
        .unwrap_err()
        .to_string();
    assert!(error.contains("r342099") && error.contains("open"), "{error}");
    let error = extract::boundary_of(&job(2), &file, 1).unwrap_err().to_string();
    assert!(error.contains("no relation r1"), "{error}");
    // A multipolygon, used as region directly and by way of a file of its own.
    let file = to_pbf(&data.join("cases/mp.osm"), folder.path());
    let text = opl(&file);
    let id = text.lines().find_map(|line| line.strip_prefix('r')).unwrap();
    let id = id.split(' ').next().unwrap().parse().unwrap();
    let area = extract::boundary_of(&job(2), &file, id).unwrap();
    assert_eq!(extract::boundaries_of_file(&job(2), &file).unwrap(), area);
    let (texts, _) = ours(&file, folder.path(), &[area], &Options::default());
    assert_same("all of it", &texts[0], &text);
}

#[test]
fn headers_say_what_holds_for_the_extract() {
    let Some(data) = ready() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = &few(&data)[1];
    let path = folder.path().join("headers.osm.pbf");
    let header = |from_input: &[&str], set_bounds: bool| {
        let extracts = [Extract {
            area: parse_bbox("-5.36,36.1,-5.34,36.2").unwrap(),
            target: target(path.clone()),
            header_from_input: from_input.iter().map(|s| (*s).to_owned()).collect(),
        }];
        let options = Options {
            set_bounds,
            ..Options::default()
        };
        extract(&job(2), file, &extracts, &options).unwrap();
        let text = osmium(&["fileinfo", "-j", path.to_str().unwrap()]);
        serde_json::from_slice::<serde_json::Value>(&text).unwrap()["header"].clone()
    };
    let plain = header(&[], false);
    assert_eq!(plain["boxes"], serde_json::json!([]));
    assert_eq!(plain["option"]["sorting"], "Type_then_ID");
    assert!(plain["option"]["osmosis_replication_timestamp"].is_null());
    let full = header(&["osmosis_replication_timestamp"], true);
    assert_eq!(full["boxes"], serde_json::json!([[-5.36, 36.1, -5.34, 36.2]]));
    assert_eq!(
        full["option"]["osmosis_replication_timestamp"],
        "2017-09-03T23:40:03Z"
    );
}
