//! The commands that select elements, as people call them.

mod common;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{names, run, stderr, stdout};
use osmill_model::{Kind, Location};
use osmill_testkit::model::{Data, Element, Member, PbfOptions};

/// Arguments from a line of words, with `{}` for a folder.
fn words(line: &str, folder: &Path) -> Vec<OsString> {
    let folder = folder.to_str().expect("a plain path");
    line.split_whitespace()
        .map(|word| word.replace("{}", folder).into())
        .collect()
}

/// Runs a line of words; it has to succeed.
#[track_caller]
fn done(line: &str, folder: &Path) -> Vec<u8> {
    stdout(words(line, folder))
}

fn tried(line: &str, folder: &Path) -> Output {
    run(words(line, folder))
}

/// The ids in a file, as `n1 w2`.
#[track_caller]
fn ids(path: PathBuf) -> String {
    let text = String::from_utf8(stdout([
        "cat".as_ref(),
        "-f".as_ref(),
        "opl".as_ref(),
        "-o".as_ref(),
        "-".as_ref(),
        path.as_os_str(),
    ]))
    .expect("OPL is text");
    let ids = text
        .lines()
        .map(|line| line.split(' ').next().unwrap_or_default());
    ids.collect::<Vec<_>>().join(" ")
}

/// The ids of what a line of words that names no output selects.
#[track_caller]
fn selected(line: &str, folder: &Path) -> String {
    done(&format!("{line} -O -o {{}}/out.osm.pbf"), folder);
    ids(folder.join("out.osm.pbf"))
}

fn header(path: PathBuf) -> serde_json::Value {
    let json = stdout(["inspect".as_ref(), "--json".as_ref(), path.as_os_str()]);
    let value: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
    value["header"].clone()
}

fn write(data: &Data, folder: &Path, name: &str) {
    std::fs::write(folder.join(name), data.to_pbf()).expect("the folder can be written to");
}

/// A square of four nodes and what refers to it, and a way out of it.
fn place() -> Data {
    Data::opl(
        "n1 v1 x1 y1 uanna i7
         n2 v1 x2 y1
         n3 v1 x2 y2
         n4 v1 x1 y2
         n5 v1 x9 y9
         w1 v1 Nn1,n2,n3,n4,n1 Tbuilding=yes
         w2 v1 Nn3,n5
         w3 v1 Nn5,n6
         r1 v1 Mw2@outer,w3@outer Ttype=multipolygon,landuse=forest
         r2 v1 Mw2@outer,w3@outer Ttype=multipolygon,building=yes
         r3 v1 Mw1@outer Ttype=boundary",
    )
}

/// A grid of nodes, ways along its rows, and relations of ways: in many blobs.
fn grid() -> Data {
    const SIDE: i64 = 120;
    // Ids of rows lie far from each other, and of some ways from others.
    let node_id = |at: i64| 1 + at * 3 + at / SIDE * 50_000;
    let way_id = |at: i64| 5 + at * 2 + at / 40 * 9000;
    let mut data = Data::default();
    for at in 0..SIDE * SIDE {
        let mut node = Element::new(Kind::Node, node_id(at));
        let step = |n: i64| (n * 1_000_000) as i32;
        node.location = Some(Location::new(step(at % SIDE), step(at / SIDE)));
        if at % 7 == 0 {
            node.tags.push(("natural".into(), "tree".into()));
        }
        data.elements.push(node);
    }
    for at in 0..SIDE * SIDE / 12 {
        let mut way = Element::new(Kind::Way, way_id(at));
        way.refs = (0..13).map(|n| node_id((at * 12 + n) % (SIDE * SIDE))).collect();
        if at % 3 == 0 {
            way.tags.push(("highway".into(), "primary".into()));
        }
        data.elements.push(way);
    }
    for at in 0..SIDE {
        let mut relation = Element::new(Kind::Relation, 1 + at);
        relation.tags.push(("type".into(), "multipolygon".into()));
        for n in 0..7 {
            relation.members.push(Member {
                element: osmill_model::ElementId::new(
                    Kind::Way,
                    way_id((at * 31 + n * 17) % (SIDE * SIDE / 12)),
                ),
                role: "outer".into(),
            });
        }
        data.elements.push(relation);
    }
    data
}

fn write_grid(folder: &Path) {
    let options = PbfOptions {
        elements_per_block: 300,
        index: false,
        ..PbfOptions::default()
    };
    std::fs::write(folder.join("grid.osm.pbf"), grid().to_pbf_with(&options)).expect("written");
}

#[test]
fn every_memory_and_number_of_threads_gives_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_grid(folder);
    // With what is found in ranges of ids where memory is small.
    let commands = [
        ("extract -b 1.05,1.05,9,10 -s simple", "nodes inside"),
        ("extract -b 1.05,1.05,9,10", "nodes inside"),
        ("extract -b 1.05,1.05,9,10 -S relations=false", "nodes inside"),
        ("extract -b 1.05,1.05,9,10 -s smart", "nodes inside"),
        (
            "extract -b 1.05,1.05,9,10 -s smart -S complete-partial-relations=40",
            "nodes inside",
        ),
        ("extract -b 1.05,1.05,9,10 -s smart --include-crossing", ""),
        ("tags-filter w/highway=primary", "nodes that"),
        (
            "tags-filter -t r/type=multipolygon n/natural",
            "ways that, nodes that",
        ),
        ("tags-filter -i highway natural", "ways that, nodes that"),
        (
            "tags-filter -i --exclude highway natural",
            "ways that, nodes that",
        ),
        ("tags-filter -R highway natural", ""),
        ("getid -r -i {}/ids", "ways that, nodes that"),
        ("getid -i {}/ids", ""),
        ("getparents -s -i {}/ids", ""),
    ];
    let ids: String = (0..40)
        .map(|at| format!("r{}\nw{}\nn{}\n", 3 + at * 3, 25 + at * 30, 4 + at * 50_003))
        .collect();
    std::fs::write(folder.join("ids"), ids).unwrap();
    for (command, in_ranges) in commands {
        let (name, rest) = command.split_once(' ').unwrap();
        // Arguments that name elements or tags come after the file.
        let mut outputs = Vec::new();
        for (budget, is_small) in [
            ("--memory 4K --threads 1", true),
            ("--memory 20K --threads 2", true),
            ("--threads 5", false),
        ] {
            let (options, tags): (Vec<&str>, Vec<&str>) = match name {
                "tags-filter" => rest.split(' ').partition(|word| word.starts_with('-')),
                _ => (rest.split(' ').collect(), Vec::new()),
            };
            let line = format!(
                "{name} {budget} {} {{}}/grid.osm.pbf {} --scratch {{}} -O -o {{}}/out.osm.pbf",
                options.join(" "),
                tags.join(" ")
            );
            let output = tried(&line, folder);
            let told = String::from_utf8(output.stderr).unwrap();
            assert!(matches!(output.status.code(), Some(0 | 1)), "{line}: {told}");
            let expected = if is_small { in_ranges } else { "" };
            let expected: Vec<&str> = expected.split_terminator(", ").collect();
            assert_eq!(
                told.matches("ranges of ids").count(),
                expected.len(),
                "{line}: {told}"
            );
            for what in expected {
                assert!(told.contains(&format!("the ids of the {what}")), "{line}: {told}");
            }
            outputs.push(std::fs::read(folder.join("out.osm.pbf")).unwrap());
        }
        assert!(outputs[0].len() > 500, "{command}");
        assert!(outputs.windows(2).all(|pair| pair[0] == pair[1]), "{command}");
        assert_eq!(names(folder), ["grid.osm.pbf", "ids", "out.osm.pbf"]);
    }
}

#[test]
fn a_list_of_regions_with_formats_headers_and_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write(&place(), folder, "in.osm.pbf");
    std::fs::write(
        folder.join("part.poly"),
        "part\n1\n 0.5 0.5\n 1.5 0.5\n 1.5 2.5\n 0.5 2.5\nEND\nEND\n",
    )
    .unwrap();
    std::fs::write(
        folder.join("list.json"),
        r#"{"directory": "nowhere", "extracts": [
            {"output": "a.osm.pbf", "bbox": [8, 8, 10, 10], "output_header": {"osmosis_replication_base_url": "x://y"}},
            {"output": "b.any", "output_format": "opl", "bbox": {"left": 1.5, "bottom": 0, "right": 3, "top": 3}},
            {"output": "c.osm.pbf", "description": "by file", "polygon": {"file_name": "part.poly", "file_type": "poly"}},
            {"output": "d.osm.pbf", "multipolygon": [[[[0,0],[3,0],[3,3],[0,3],[0,0]],[[0.9,0.9],[1.1,0.9],[1.1,2.1],[0.9,2.1],[0.9,0.9]]]]}
        ]}"#,
    )
    .unwrap();
    std::fs::create_dir(folder.join("out")).unwrap();
    let line = "extract -c {}/list.json -d {}/out -s simple --set-bounds {}/in.osm.pbf";
    done(line, folder);
    let out = folder.join("out");
    assert_eq!(names(&out), ["a.osm.pbf", "b.any", "c.osm.pbf", "d.osm.pbf"]);
    assert_eq!(ids(out.join("a.osm.pbf")), "n5 w2 w3 r1 r2");
    assert_eq!(ids(out.join("c.osm.pbf")), "n1 n4 w1 r3");
    assert_eq!(ids(out.join("d.osm.pbf")), "n2 n3 w1 w2 r1 r2 r3");
    let text = std::fs::read_to_string(out.join("b.any")).unwrap();
    assert!(text.starts_with("n2 v1"), "{text}");
    let a = header(out.join("a.osm.pbf"));
    assert_eq!(a["option"]["osmosis_replication_base_url"], "x://y");
    assert_eq!(a["boxes"], serde_json::json!([[8.0, 8.0, 10.0, 10.0]]));
    // Nothing is replaced unless that is asked for, and nothing is made beside what is there.
    std::fs::remove_file(out.join("a.osm.pbf")).unwrap();
    let output = tried(line, folder);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert_eq!(names(&out), ["b.any", "c.osm.pbf", "d.osm.pbf"]);
    done(&format!("{line} -O"), folder);
    assert_eq!(names(&out).len(), 4);
}

#[test]
fn regions_from_features_are_named_by_their_properties() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write(&place(), folder, "in.osm.pbf");
    std::fs::write(
        folder.join("regions.geojson"),
        r#"{"type":"FeatureCollection","features":[
            {"type":"Feature","properties":{"id":"one"},"geometry":{"type":"Polygon","coordinates":[[[0,0],[3,0],[3,3],[0,3],[0,0]]]}},
            {"type":"Feature","properties":{"id":"two"},"geometry":{"type":"Polygon","coordinates":[[[8,8],[10,8],[10,10],[8,10],[8,8]]]}}]}"#,
    )
    .unwrap();
    done(
        "extract --from-features {}/regions.geojson --name {id}.osm.pbf -d {} -s simple {}/in.osm.pbf",
        folder,
    );
    assert_eq!(ids(folder.join("one.osm.pbf")), "n1 n2 n3 n4 w1 w2 r1 r2 r3");
    assert_eq!(ids(folder.join("two.osm.pbf")), "n5 w2 w3 r1 r2");
    let output = tried(
        "extract -p {}/regions.geojson {}/in.osm.pbf -o {}/both.osm.pbf",
        folder,
    );
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(
        ids(folder.join("both.osm.pbf")),
        "n1 n2 n3 n4 n5 w1 w2 w3 r1 r2 r3"
    );
}

#[test]
fn the_smart_strategy_completes_relations_with_certain_tags() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write(&place(), folder, "in.osm.pbf");
    let of = |settings: &str| {
        selected(
            &format!("extract -b 0,0,3,3 -s smart {settings} {{}}/in.osm.pbf"),
            folder,
        )
    };
    let with_all = "n1 n2 n3 n4 n5 w1 w2 w3 r1 r2 r3";
    assert_eq!(of(""), with_all);
    assert_eq!(of("-S tags=landuse"), with_all);
    assert_eq!(of("-S tags=amenity,building=yes"), with_all);
    let without = "n1 n2 n3 n4 n5 w1 w2 r1 r2 r3";
    assert_eq!(of("-S tags=building=no"), without);
    assert_eq!(of("-S types=route"), without);
    assert_eq!(of("-S types=any -S tags=amenity"), without);
    assert_eq!(of("-S types=none -S complete-partial-relations=50"), with_all);
    assert_eq!(of("-S types=none -S complete-partial-relations=51"), without);
    let output = tried(
        "extract -b 0,0,3,3 -s simple -S tags=x {}/in.osm.pbf -o {}/x.osm.pbf",
        folder,
    );
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("no such option"), "{}", stderr(&output));
}

#[test]
fn empty_extracts_are_warned_of_and_can_fail() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let data = Data::opl("n1 x36 y55\nn2 x36.5 y55.5");
    write(&data, folder, "in.osm.pbf");
    let say = |options: &str| {
        let line = format!("extract {options} {{}}/in.osm.pbf -O -o {{}}/out.osm.pbf");
        tried(&line, folder)
    };
    let output = say("-b 54,35,56,37");
    assert_eq!(output.status.code(), Some(0));
    assert!(stderr(&output).contains("swapped"), "{}", stderr(&output));
    assert_eq!(ids(folder.join("out.osm.pbf")), "");
    assert_eq!(say("-b 54,35,56,37 --fail-empty").status.code(), Some(1));
    assert_eq!(say("-b 35,54,37,56 --fail-empty").status.code(), Some(0));
}

#[test]
fn metadata_can_be_dropped_from_extracts() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write(&place(), folder, "in.osm.pbf");
    done(
        "extract -b 0,0,3,3 --clean user --clean uid {}/in.osm.pbf -o {}/out.osm.pbf",
        folder,
    );
    let found = Data::from_pbf(&std::fs::read(folder.join("out.osm.pbf")).unwrap()).unwrap();
    assert_eq!(found.elements.len(), place().elements.len() - 1);
    for element in &found.elements {
        assert!(element.metadata.user.is_none() && element.metadata.uid.is_none());
        assert_eq!(element.metadata.version, Some(1));
    }
}

#[test]
fn boundaries_come_from_files_and_from_the_input() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write(&place(), folder, "in.osm.pbf");
    let border = Data::opl(
        "n1 x1.5 y0\nn2 x3 y0\nn3 x3 y3\nn4 x1.5 y3\nw1 Nn1,n2,n3\nw2 Nn3,n4,n1\n\
         r9 Mw1@outer,w2@outer,n1@label Ttype=boundary",
    );
    write(&border, folder, "border.osm.pbf");
    assert_eq!(
        selected("extract -p {}/border.osm.pbf -s simple {}/in.osm.pbf", folder),
        "n2 n3 w1 w2 r1 r2 r3"
    );
    // The same as XML.
    done("cat {}/border.osm.pbf -o {}/border.osm", folder);
    assert_eq!(
        selected("extract -p {}/border.osm -s simple {}/in.osm.pbf", folder),
        "n2 n3 w1 w2 r1 r2 r3"
    );
    assert_eq!(
        selected("extract --region r3 -s simple {}/in.osm.pbf", folder),
        "n1 n2 n3 n4 w1 w2 r1 r2 r3"
    );
}

#[test]
fn deletions_of_change_files_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let change = r#"<osmChange version="0.6" generator="test">
        <create><node id="1" version="1" lon="1" lat="1"><tag k="amenity" v="bar"/></node></create>
        <modify><node id="2" version="2" lon="9" lat="9"/>
            <way id="1" version="2"><nd ref="1"/><nd ref="7"/><tag k="highway" v="path"/></way></modify>
        <delete><node id="3" version="4" lon="9" lat="9"/><way id="2" version="3"/><relation id="3" version="2"/></delete>
        </osmChange>"#;
    std::fs::write(folder.join("in.osc"), change).unwrap();
    let text = |line: &str| {
        done(&format!("{line} -O -o {{}}/out.osc"), folder);
        std::fs::read_to_string(folder.join("out.osc")).unwrap()
    };
    let has = |text: &str, what: &[&str]| what.iter().all(|what| text.contains(what));
    let deleted = [
        "<delete>",
        "<node id=\"3\"",
        "<way id=\"2\"",
        "<relation id=\"3\"",
    ];
    let found = text("tags-filter {}/in.osc n/amenity");
    assert!(has(&found, &deleted) && found.contains("<create>"), "{found}");
    assert!(!found.contains("<modify>"), "{found}");
    let found = text("tags-filter -R {}/in.osc w/highway");
    assert!(has(&found, &deleted) && found.contains("<modify>"), "{found}");
    assert!(!found.contains("<create>"), "{found}");
    for strategy in ["simple", "complete_ways", "smart"] {
        let found = text(&format!("extract -b 0,0,2,2 -s {strategy} {{}}/in.osc"));
        assert!(has(&found, &deleted), "{strategy}: {found}");
        let inside = ["<node id=\"1\"", "<way id=\"1\""];
        assert!(has(&found, &inside), "{strategy}: {found}");
        assert!(!found.contains("<node id=\"2\""), "{strategy}: {found}");
    }
}

#[test]
fn extracts_of_a_history_hold_all_versions() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let data = Data::opl(
        "n1 v1 dV x1 y1\nn1 v2 dV x9 y9\nn1 v3 dD\nn2 v1 dV x8 y8\nn3 v1 dV x7 y7\n\
         w1 v1 dV Nn1,n2\nw1 v2 dV Nn2,n3\nw2 v1 dV Nn3",
    );
    write(&data, folder, "in.osh.pbf");
    done("extract -H -b 0,0,2,2 {}/in.osh.pbf -o {}/out.osh.pbf", folder);
    assert_eq!(ids(folder.join("out.osh.pbf")), "n1 n1 n1 n2 n3 w1 w1");
    let found = header(folder.join("out.osh.pbf"));
    assert_eq!(found["with_history"], true);
    let output = tried(
        "extract -H -s smart -b 0,0,2,2 {}/in.osh.pbf -o {}/x.osh.pbf",
        folder,
    );
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}

#[test]
fn more_outputs_than_files_may_be_open() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_grid(folder);
    let regions: Vec<String> = (0..300)
        .map(|at| {
            let (x, y) = (at % 20, at / 20);
            let name = format!("{at}.osm.pbf");
            format!(
                r#"{{"output": "{name}", "bbox": [{}, {}, {}, {}]}}"#,
                f64::from(x) * 0.6,
                f64::from(y) * 0.8,
                f64::from(x + 1) * 0.6,
                f64::from(y + 1) * 0.8
            )
        })
        .collect();
    let list = format!(r#"{{"extracts": [{}]}}"#, regions.join(","));
    std::fs::write(folder.join("list.json"), list).unwrap();
    // Without a limit that matters, with one that the program can raise, and with one that it cannot.
    let limits = ["ulimit -Sn 1000", "ulimit -Sn 100", "ulimit -n 64"];
    for (at, limit) in limits.iter().enumerate() {
        let program = env!("CARGO_BIN_EXE_osmill");
        let line = format!(
            "mkdir out{at} && {limit} && exec {program} extract --quiet -c list.json -d out{at} grid.osm.pbf"
        );
        let output = Command::new("sh")
            .args(["-c", &line])
            .current_dir(folder)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{limit}: {}", stderr(&output));
        let out = folder.join(format!("out{at}"));
        assert_eq!(names(&out).len(), 300, "{limit}");
        for name in names(&out) {
            let read = |at: usize| std::fs::read(folder.join(format!("out{at}")).join(&name)).unwrap();
            assert!(read(at) == read(0), "{limit}: {name}");
        }
    }
}

#[test]
fn what_was_excluded_and_came_back_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let data =
        Data::opl("n1 x1 y1\nn2 x2 y2 Tmaritime=yes\nw1 Nn1,n2 Tmaritime=yes\nr1 Mw1@,n2@ Ttype=boundary");
    write(&data, folder, "in.osm.pbf");
    let say = |options: &str| {
        let line = format!("tags-filter {options} {{}}/in.osm.pbf maritime -O -o {{}}/out.osm.pbf");
        // With what it has to say: the others are quiet.
        let output = Command::new(env!("CARGO_BIN_EXE_osmill"))
            .args(words(&line, folder))
            .output()
            .unwrap();
        assert!(output.status.success());
        stderr(&output)
    };
    let said = say("-i");
    assert!(
        said.contains("2 excluded elements were added again as references"),
        "{said}"
    );
    assert_eq!(ids(folder.join("out.osm.pbf")), "n1 n2 w1 r1");
    let said = say("-i --exclude");
    assert!(
        said.contains("lost 2 excluded members") && !said.contains("added again"),
        "{said}"
    );
    let found = Data::from_pbf(&std::fs::read(folder.join("out.osm.pbf")).unwrap()).unwrap();
    let ids: Vec<String> = found.elements.iter().map(|e| e.id.to_string()).collect();
    assert_eq!(ids, ["n1", "r1"]);
    assert!(found.elements[1].members.is_empty());
    let output = tried(
        "tags-filter --exclude {}/in.osm.pbf maritime -o {}/x.osm.pbf",
        folder,
    );
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn elements_are_found_by_bisection_and_in_every_spelling() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_grid(folder);
    let line = "getid --log json --threads 1 {}/grid.osm.pbf n4 node/7 https://www.openstreetmap.org/way/25#map=1 \
                relation/3 13 -O -o {}/out.osm.pbf";
    let output = tried(line, folder);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(ids(folder.join("out.osm.pbf")), "n4 n7 n13 w25 r3");
    let said = stderr(&output);
    let phases: Vec<serde_json::Value> = said
        .lines()
        .filter_map(|line| Some(serde_json::from_str::<serde_json::Value>(line).ok()?["phase"].clone()))
        .filter(|phase| !phase.is_null())
        .collect();
    // No index was made of the fifty blobs: some were looked at, and the three with the elements were read.
    let names: Vec<_> = phases
        .iter()
        .map(|phase| phase["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["bisect", "write"], "{said}");
    let looked = phases[0]["blobs_decoded"].as_u64().unwrap();
    assert!((3..40).contains(&looked), "{said}");
    assert_eq!(phases[1]["blobs_decoded"], 3, "{said}");
    // Missing ones.
    let output = tried(
        "getid {}/grid.osm.pbf n4 n5 w6 --verbose-ids -O -o {}/out.osm.pbf",
        folder,
    );
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("not found: n5 w6"),
        "{}",
        stderr(&output)
    );
    assert_eq!(ids(folder.join("out.osm.pbf")), "n4");
    // Lists, and files as lists.
    std::fs::write(folder.join("ids"), "# some\nn4 v1 x1\nw25\n3\n").unwrap();
    done(
        "getid --default-type relation -i {}/ids {}/grid.osm.pbf -O -o {}/some.osm.pbf",
        folder,
    );
    assert_eq!(ids(folder.join("some.osm.pbf")), "n4 w25 r3");
    assert_eq!(
        selected("getid -I {}/some.osm.pbf {}/grid.osm.pbf", folder),
        "n4 w25 r3"
    );
    done(
        "removeid -I {}/some.osm.pbf {}/out.osm.pbf n1 -O -o {}/none.osm.pbf",
        folder,
    );
    assert_eq!(ids(folder.join("none.osm.pbf")), "");
    assert!(selected("getparents {}/grid.osm.pbf n4", folder).starts_with("w5"));
}
