//! tags-filter, getid, removeid and getparents against osmium, and on the cases that users reported.

mod beside;

use std::path::{Path, PathBuf};

use beside::{all, assert_same, few, job, opl, osmium, ready, small_job, to_pbf};
use osmill_engine::Job;
use osmill_model::Kind;
use osmill_ops::filter::TagFilter;
use osmill_ops::getid::{self, getid};
use osmill_ops::getparents::{self, getparents};
use osmill_ops::ids::parse_ids;
use osmill_ops::select::Target;
use osmill_ops::tags_filter::{self, tags_filter};

fn target(folder: &Path) -> Target {
    let mut target = Target::new(folder.join("ours.osm.pbf"));
    target.output.overwrite = true;
    target
}

/// osmium's output for these arguments, as OPL.
fn theirs(file: &Path, command: &[&str], rest: &[&str]) -> String {
    let mut arguments = command.to_vec();
    arguments.extend(["-f", "opl", "-o", "-", file.to_str().unwrap()]);
    arguments.extend(rest);
    String::from_utf8(osmium(&arguments)).unwrap()
}

fn filtered(file: &Path, folder: &Path, flags: &str, expressions: &[&str]) -> (String, tags_filter::Report) {
    filtered_by(&job(2), file, folder, flags, expressions)
}

fn filtered_by(
    job: &Job,
    file: &Path,
    folder: &Path,
    flags: &str,
    expressions: &[&str],
) -> (String, tags_filter::Report) {
    let target = target(folder);
    let options = tags_filter::Options {
        filter: TagFilter::parse(expressions).unwrap(),
        invert: flags.contains('i'),
        omit_referenced: flags.contains('R'),
        remove_tags: flags.contains('t'),
        exclude: flags.contains('x'),
    };
    let report = tags_filter(job, file, &options, &target).unwrap();
    (opl(&target.output.path), report)
}

const EXPRESSIONS: &[&[&str]] = &[
    &["w/highway=primary"],
    &["highway"],
    &["nr/name=*a*", "w/building!=yes"],
    &["a/building,landuse"],
    &["r/type=multipolygon,boundary"],
    &["n/amenity", "w/name:*"],
    &["/*=yes,no"],
    &["r/route=bicycle", "n/addr:*=1*"],
];

fn filter_like_osmium(files: &[PathBuf], all_flags: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    for file in files {
        for expressions in EXPRESSIONS {
            for &flags in all_flags {
                // There osmium loses ways and nodes; see the module's documentation.
                if flags.contains('i') && !flags.contains('R') && expressions[0].starts_with(['r']) {
                    continue;
                }
                // osmium 1.15 keeps which relations are members of which in 32 bits.
                let huge = file.ends_with("liechtenstein2024-huge-ids.osm.pbf");
                if huge
                    && !flags.contains('R')
                    && !expressions
                        .iter()
                        .all(|e| e.starts_with("n/") || e.starts_with("w/"))
                {
                    continue;
                }
                let (ours, report) = filtered(file, folder.path(), flags, expressions);
                let mut command = vec!["tags-filter".to_owned()];
                command.extend(flags.chars().map(|flag| format!("-{flag}")));
                let command: Vec<&str> = command.iter().map(String::as_str).collect();
                let expected = theirs(file, &command, expressions);
                let what = format!("{} {flags} {expressions:?}", file.display());
                assert_same(&what, &ours, &expected);
                let job = small_job(file, 4.0);
                let (in_ranges, _) = filtered_by(&job, file, folder.path(), flags, expressions);
                assert_same(&what, &in_ranges, &ours);
                let written = ours.lines().count() as u64;
                assert_eq!(
                    report.matched.total() + report.referenced.total(),
                    written,
                    "{what}"
                );
            }
        }
    }
}

#[test]
fn tags_filter_keeps_what_osmium_keeps() {
    if let Some(data) = ready() {
        filter_like_osmium(&few(&data), &["t", "iR"]);
    }
}

#[test]
#[ignore = "minutes: all real extracts"]
fn tags_filter_keeps_what_osmium_keeps_on_all_extracts() {
    if let Some(data) = ready() {
        filter_like_osmium(&all(&data), &["", "R", "t", "i", "iR", "it"]);
    }
}

#[test]
fn tags_filter_matches_history_version_by_version() {
    let Some(data) = ready() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = data.join("history/faroe-islands-oshdb.osh.pbf");
    for expressions in [&["w/highway"][..], &["natural=coastline", "r/type"]] {
        for flags in ["R", "iR"] {
            let (ours, _) = filtered(&file, folder.path(), flags, expressions);
            let mut command = vec!["tags-filter", "-R"];
            command.extend(flags.contains('i').then_some("-i"));
            assert_same(flags, &ours, &theirs(&file, &command, expressions));
        }
    }
}

/// One that is missing first, then ids of some elements of each kind.
fn some_ids(file: &Path) -> Vec<String> {
    let text = opl(file);
    let nodes = text
        .lines()
        .filter_map(|line| line.strip_prefix('n')?.split(' ').next());
    let largest = nodes.map(|id| id.parse::<i64>().unwrap()).max().unwrap_or(0);
    let mut ids = vec![format!("n{}", largest.max(0) + 7)];
    for letter in ["n", "w", "r"] {
        let lines: Vec<_> = text.lines().filter(|line| line.starts_with(letter)).collect();
        for part in [1, 3, 7] {
            if let Some(line) = lines.get(lines.len() * part / 8) {
                ids.push(line.split(' ').next().unwrap().to_owned());
            }
        }
    }
    ids
}

fn by_id_like_osmium(files: &[PathBuf]) {
    let folder = tempfile::tempdir().unwrap();
    let target = target(folder.path());
    for file in files {
        let ids = some_ids(file);
        // osmium refuses to look for negative ids; the model tests do.
        if ids.iter().any(|id| id.contains('-')) {
            continue;
        }
        let texts: Vec<&str> = ids.iter().map(String::as_str).collect();
        let parsed = parse_ids(&ids, Kind::Node).unwrap();
        for flags in ["", "r", "rt", "v"] {
            let options = getid::Options {
                ids: parsed.clone(),
                add_referenced: flags.contains('r'),
                remove_tags: flags.contains('t'),
                invert: flags.contains('v'),
            };
            let report = getid(&job(2), file, &options, &target).unwrap();
            // osmium has to be told of a history to follow all versions of references.
            let command = match flags {
                "r" => vec!["getid", "-r", "-H"],
                "rt" => vec!["getid", "-r", "-t", "-H"],
                "v" => vec!["removeid"],
                _ => vec!["getid"],
            };
            let what = format!("getid {flags} {} {ids:?}", file.display());
            let ours = opl(&target.output.path);
            assert_same(&what, &ours, &theirs(file, &command, &texts));
            assert!(report.missing_ids.contains(&parsed[0]), "{what}");
            let in_ranges = getid(&small_job(file, 0.01), file, &options, &target).unwrap();
            assert_same(&what, &opl(&target.output.path), &ours);
            assert_eq!(in_ranges.missing_ids, report.missing_ids, "{what}");
        }
        for add_self in [false, true] {
            let options = getparents::Options {
                ids: parsed.clone(),
                add_self,
            };
            getparents(&job(2), file, &options, &target).unwrap();
            let mut command = vec!["getparents"];
            command.extend(add_self.then_some("-s"));
            let what = format!("getparents {add_self} {} {ids:?}", file.display());
            assert_same(&what, &opl(&target.output.path), &theirs(file, &command, &texts));
        }
    }
}

#[test]
fn elements_by_id_are_osmiums() {
    if let Some(data) = ready() {
        by_id_like_osmium(&few(&data));
    }
}

#[test]
#[ignore = "a minute: all real extracts"]
fn elements_by_id_are_osmiums_on_all_extracts() {
    if let Some(data) = ready() {
        by_id_like_osmium(&all(&data));
    }
}

#[test]
fn elements_of_histories_by_id_are_osmiums() {
    if let Some(data) = ready() {
        by_id_like_osmium(&[data.join("history/faroe-islands-oshdb.osh.pbf")]);
    }
}

#[test]
fn nested_relations_and_cycles_are_followed() {
    let Some(data) = ready() else { return };
    let folder = tempfile::tempdir().unwrap();
    // Relation 2 holds relation 1 and itself, relation 1 a way of two nodes.
    let file = to_pbf(&data.join("cases/nest.osm"), folder.path());
    let (text, report) = filtered(&file, folder.path(), "", &["r/type=superroute"]);
    assert_eq!(text.lines().count(), 5, "{text}");
    assert_eq!((report.matched.total(), report.referenced.total()), (1, 4));
    let target = target(folder.path());
    let options = getid::Options {
        ids: parse_ids(&["r2"], Kind::Node).unwrap(),
        add_referenced: true,
        ..getid::Options::default()
    };
    let report = getid(&job(2), &file, &options, &target).unwrap();
    assert_eq!((opl(&target.output.path).lines().count(), report.missing), (5, 0));
}

#[test]
fn excluded_elements_that_others_refer_to_are_counted() {
    let Some(data) = ready() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = to_pbf(&data.join("cases/inv.osm"), folder.path());
    let (text, report) = filtered(&file, folder.path(), "i", &["w/maritime"]);
    assert_eq!(text.lines().count(), 4, "{text}");
    assert_eq!((report.referenced.total(), report.referenced.ways), (1, 1));
    let (text, report) = filtered(&file, folder.path(), "iR", &["w/maritime"]);
    assert_eq!((text.lines().count(), report.referenced.total()), (3, 0));
    assert!(text.contains("Mw1@"), "{text}");
    let (text, report) = filtered(&file, folder.path(), "ix", &["w/maritime"]);
    assert_eq!((text.lines().count(), report.members_dropped), (3, 1));
    assert!(!text.contains("w1"), "{text}");
}

/// Where osmium loses what is not matched and not referred to by what is left, it stays.
#[test]
fn inverted_expressions_about_relations_leave_ways_alone() {
    let Some(data) = ready() else { return };
    let folder = tempfile::tempdir().unwrap();
    for file in few(&data) {
        let (text, _) = filtered(&file, folder.path(), "i", &["r/type"]);
        let expected: String = opl(&file)
            .lines()
            .filter(|line| !line.starts_with('r'))
            .map(|line| format!("{line}\n"))
            .collect();
        assert_same("-i r/type", &text, &expected);
    }
}

#[test]
fn any_number_of_threads_writes_the_same_bytes() {
    let Some(data) = ready() else { return };
    let folder = tempfile::tempdir().unwrap();
    let target = target(folder.path());
    for file in few(&data) {
        let mut outputs = Vec::new();
        for threads in [1, 2, 5] {
            let options = tags_filter::Options {
                filter: TagFilter::parse(&["highway", "r/type"]).unwrap(),
                ..tags_filter::Options::default()
            };
            tags_filter(&job(threads), &file, &options, &target).unwrap();
            outputs.push(std::fs::read(&target.output.path).unwrap());
        }
        assert!(outputs.windows(2).all(|pair| pair[0] == pair[1]));
    }
}
