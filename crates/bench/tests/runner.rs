//! The runner with programs that are shell scripts: order of turns, verification, limits, records, reports, comparison.

mod common;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::{script, small_file};
use osmill_bench::compare::{self, Verdict};
use osmill_bench::definitions::Suite;
use osmill_bench::inputs::{Input, Resolver};
use osmill_bench::measure::{Launch, Sample};
use osmill_bench::record::{self, Line, Outcome, Record, Row, Run, Writer};
use osmill_bench::tools::Tool;
use osmill_bench::{report, run};

const LAUNCHER: &str = env!("CARGO_BIN_EXE_osmill-bench");

/// A folder with an input, three scripts under the names of the tools, and a log of who ran when.
struct World {
    folder: tempfile::TempDir,
    tools: Vec<Tool>,
    input: Input,
}

impl World {
    /// `bodies`: name of the tool and what its script does when asked for more than `--help` and `--version`.
    fn new(bodies: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let tools = bodies
            .iter()
            .map(|(name, body)| {
                let head = format!(
                    "case \"$*\" in gone*) exit 2;; *--help) echo 'options: --known'; exit 0;; \
                     --version) echo {name} 1.0; exit 0;; esac\necho {name} >> {}",
                    log.display()
                );
                let path = script(folder.path(), name, &format!("{head}\n{body}"));
                Tool::at(name, &path).unwrap()
            })
            .collect();
        let input = Input::open(&small_file(folder.path(), "small.osm.pbf", 20), None, 1).unwrap();
        Self { folder, tools, input }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn options(&self) -> run::Options {
        run::Options {
            rows: None,
            skip_heavy: false,
            without_own: false,
            repeats: 3,
            arm_seconds: 60.0,
            budget: Duration::from_secs(600),
            timeout: Duration::from_secs(20),
            processors: Vec::new(),
            cold: false,
            scratch: self.path().join("scratch"),
            launcher: PathBuf::from(LAUNCHER),
        }
    }

    fn run(&self, suite: &str, options: &run::Options) -> Vec<Row> {
        let suite = Suite::parse("test", suite).unwrap();
        let mut resolver = Resolver::new(&suite, &self.tools, &self.path().join("derived"), None).unwrap();
        let mut rows = Vec::new();
        let inputs = std::slice::from_ref(&self.input);
        run::rows(
            "r",
            &suite,
            &self.tools,
            inputs,
            &mut resolver,
            options,
            |row| -> Result<(), ()> {
                rows.push(row);
                Ok(())
            },
        )
        .unwrap();
        rows
    }

    fn turns(&self) -> String {
        std::fs::read_to_string(self.path().join("log"))
            .unwrap_or_default()
            .replace('\n', " ")
            .trim()
            .to_owned()
    }
}

const COPY: &str = "
[[row]]
name = \"copy\"
what = \"copies\"
arms.osmill.args = \"copy {in} {out}\"
arms.pbfhogg.args = \"copy {in} {out}\"
arms.osmium.args = \"copy {in} {out}\"
verify = { kind = \"elements\", against = \"input\" }
";

const CP: &str = "cp \"$2\" \"$3\"";

#[test]
fn arms_take_turns_after_a_warm_up_and_are_verified_each_time() {
    let world = World::new(&[("osmill", CP), ("pbfhogg", CP), ("osmium", CP)]);
    let rows = world.run(COPY, &world.options());
    assert_eq!(world.turns(), "osmill pbfhogg osmium ".repeat(4).trim());
    let row = &rows[0];
    assert_eq!((row.outcome, row.arms.len()), (Outcome::Ok, 3), "{}", row.reason);
    for arm in &row.arms {
        assert_eq!(arm.samples.len(), 3);
        assert_eq!(arm.verified.runs, 4);
        assert_eq!(arm.output_bytes, Some(row.input_bytes));
        assert!(
            arm.samples
                .iter()
                .all(|sample| !sample.from_warm_up && sample.exit == Some(0))
        );
        assert!(
            arm.command.iter().all(|word| !word.contains('/')),
            "{:?}",
            arm.command
        );
    }
    assert!(row.arms[0].own && !row.arms[1].own);
}

#[test]
fn a_slow_arm_counts_its_warm_up_and_takes_fewer_turns() {
    let slow = format!("sleep 0.4; {CP}");
    let world = World::new(&[("osmill", CP), ("osmium", &slow)]);
    let options = run::Options {
        arm_seconds: 0.5,
        ..world.options()
    };
    let rows = world.run(COPY, &options);
    let samples: Vec<usize> = rows[0].arms.iter().map(|arm| arm.samples.len()).collect();
    assert_eq!(samples, [3, 1]);
    assert!(rows[0].arms[1].samples[0].from_warm_up && !rows[0].arms[0].samples[0].from_warm_up);
}

#[test]
fn a_wrong_output_is_a_failure_and_not_a_figure() {
    let other = small_file(
        &std::env::temp_dir(),
        &format!("other-{}.osm.pbf", std::process::id()),
        21,
    );
    let wrong = format!("cp {} \"$3\"", other.display());
    let world = World::new(&[("osmill", &wrong), ("osmium", CP)]);
    let rows = world.run(COPY, &world.options());
    std::fs::remove_file(other).unwrap();
    assert_eq!(rows[0].outcome, Outcome::Failed);
    assert!(
        rows[0].reason.contains("osmill differs") && rows[0].reason.contains("nodes (210 and 200)"),
        "{}",
        rows[0].reason
    );
    assert!(rows[0].arms.iter().all(|arm| arm.samples.is_empty()));
    assert_eq!(
        world.turns(),
        "osmill osmium",
        "nothing is measured after a wrong output"
    );
}

#[test]
fn a_repeat_that_gives_something_else_fails_the_row() {
    let fickle = "if [ -e once ]; then head -c 40 \"$2\" > \"$3\"; else cp \"$2\" \"$3\"; touch once; fi";
    let world = World::new(&[("osmill", fickle)]);
    let rows = world.run(COPY, &world.options());
    assert_eq!(rows[0].outcome, Outcome::Failed, "{}", rows[0].reason);
}

#[test]
fn known_differences_of_peers_are_recorded_and_others_fail() {
    let suite = |differs: &str| {
        format!(
            "[[row]]\nname = \"count\"\nwhat = \"counts\"\narms.osmill.args = \"count\"\narms.osmium.args = \"count\"\n\
             arms.pbfhogg = {{ args = \"count\"{differs} }}\n[row.verify]\nkind = \"counts\"\ninput = [\"nodes\"]\n\
             read.osmill.nodes = [\"json:/nope\", \"json:/n\"]\nread.osmium.nodes = ['re:nodes: ([0-9,]+)']\n\
             read.pbfhogg.nodes = [\"json:/n\"]\n"
        )
    };
    let world = World::new(&[
        (
            "osmill",
            "echo '{\"n\": 200}'; echo '{\"phase\":\"scan\",\"wall\":1}' >&2; echo chatter >&2",
        ),
        ("osmium", "echo 'nodes: 2,00' >&2"),
        ("pbfhogg", "echo '{\"n\": 199}'"),
    ]);
    let rows = world.run(&suite(", differs = \"starts at one\""), &world.options());
    assert_eq!(rows[0].outcome, Outcome::Ok, "{}", rows[0].reason);
    let peer = rows[0].arms.iter().find(|arm| arm.arm == "pbfhogg").unwrap();
    assert_eq!(peer.verified.known.as_deref(), Some("starts at one"));
    assert!(peer.verified.differences[0].contains("199"));
    assert_eq!(
        rows[0].arms[0].log,
        [serde_json::json!({"phase": "scan", "wall": 1})]
    );
    let rows = world.run(&suite(""), &world.options());
    assert_eq!(rows[0].outcome, Outcome::Failed);
    assert!(rows[0].reason.contains("pbfhogg differs"), "{}", rows[0].reason);
}

#[test]
fn lines_are_compared_in_any_order_after_rewriting() {
    let suite = "[[row]]\nname = \"tags\"\nwhat = \"tags\"\narms.osmill.args = \"t\"\narms.osmium.args = \"t\"\n[row.verify]\n\
                 kind = \"lines\"\nread.osmill = { match = '^(\\d+) (\\S+)$', to = \"$1 $2\" }\n\
                 read.osmium = { match = '^(\\d+)\\t\"(.*)\"$', to = \"$1 $2\", unescape = [['\"\"', '\"']] }\n";
    let ours = "echo '2 b\"'; echo 1 a; echo total: 2";
    let world = World::new(&[
        ("osmill", ours),
        ("osmium", "printf '1\\t\"a\"\\n2\\t\"b\"\"\"\\n'"),
    ]);
    assert_eq!(world.run(suite, &world.options())[0].outcome, Outcome::Ok);
    let world = World::new(&[
        ("osmill", ours),
        ("osmium", "printf '1\\t\"a\"\\n3\\t\"b\"\"\"\\n'"),
    ]);
    assert_eq!(world.run(suite, &world.options())[0].outcome, Outcome::Failed);
}

#[test]
fn absent_heavy_and_unfed_rows_are_named_and_passed_over() {
    let world = World::new(&[("osmill", CP), ("osmium", CP)]);
    let row = |name: &str, args: &str, more: &str| {
        format!(
            "[[row]]\nname = \"{name}\"\nwhat = \"x\"\n{more}\narms.osmill.args = \"{args}\"\narms.osmium.args = \"copy {{in}} {{out}}\"\n\
             verify = {{ kind = \"elements\", against = \"input\" }}\n"
        )
    };
    let suite = row("a", "gone {in} {out}", "")
        + &row("b", "copy {in} {out} --unknown=3", "")
        + &row("c", "copy {in} {out} --known", "heavy = true")
        + &row("d", "copy {osc} {out}", "")
        + &row("e", "copy {in} {out}", "");
    let options = run::Options {
        skip_heavy: true,
        repeats: 1,
        ..world.options()
    };
    let rows = world.run(&suite, &options);
    let outcomes: Vec<Outcome> = rows.iter().map(|row| row.outcome).collect();
    use Outcome::{Absent, Ok, Skipped};
    assert_eq!(outcomes, [Absent, Absent, Skipped, Skipped, Ok]);
    assert!(rows[0].reason.contains("no command `gone`"), "{}", rows[0].reason);
    assert!(rows[1].reason.contains("--unknown"), "{}", rows[1].reason);
    assert!(rows[3].reason.contains("--osc"), "{}", rows[3].reason);
    // Peers alone, on request; and patterns choose rows.
    let options = run::Options {
        without_own: true,
        rows: Some("a,*b".to_owned()),
        ..options
    };
    let rows = world.run(&suite, &options);
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row.outcome == Ok && row.arms.len() == 1));
    // No time left.
    let options = run::Options {
        budget: Duration::ZERO,
        ..world.options()
    };
    assert!(
        world
            .run(&suite, &options)
            .iter()
            .all(|row| row.outcome == Skipped)
    );
}

#[test]
fn failing_programs_fail_the_row_and_say_why() {
    let world = World::new(&[("osmill", "echo 'disk full' >&2; exit 3")]);
    let reason = &world.run(COPY, &world.options())[0].reason;
    assert!(
        reason.contains("exit code 3") && reason.contains("disk full"),
        "{reason}"
    );
    let world = World::new(&[("osmill", "kill -9 $$")]);
    let reason = &world.run(COPY, &world.options())[0].reason;
    assert!(reason.contains("signal 9"), "{reason}");
    let world = World::new(&[("osmill", "sleep 30 & sleep 30")]);
    let start = Instant::now();
    let options = run::Options {
        timeout: Duration::from_millis(300),
        ..world.options()
    };
    let rows = world.run(COPY, &options);
    assert!(rows[0].reason.contains("time limit"), "{}", rows[0].reason);
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "descendants were waited for"
    );
}

#[test]
fn a_derived_input_can_be_the_oracle_and_be_made_in_steps() {
    let suite = |by: &str| {
        format!("[[derived]]\nname = \"right\"\nwhat = \"x\"\nshared = true\nby.osmium = \"{by}\"\n")
            + &COPY.replace("\"input\"", "\"derived:right\"")
    };
    let world = World::new(&[("osmill", CP), ("osmium", CP)]);
    let options = run::Options {
        repeats: 1,
        ..world.options()
    };
    let rows = world.run(&suite("copy {in} {step} && copy {step} {out}"), &options);
    assert_eq!(rows[0].outcome, Outcome::Ok, "{}", rows[0].reason);
    assert!(
        rows[0].arms[0].verified.how.contains("`right`"),
        "{}",
        rows[0].arms[0].verified.how
    );
    assert!(
        std::fs::read_dir(world.path().join("derived")).unwrap().count() == 1,
        "steps are left behind"
    );
    let rows = world.run(&suite("copy {in} {step} && gone {step} {out}"), &options);
    assert_eq!(rows[0].outcome, Outcome::Skipped);
    assert!(
        rows[0].reason.contains("right") && rows[0].reason.contains("gone"),
        "{}",
        rows[0].reason
    );
    let error = Suite::parse("t", &COPY.replace("\"input\"", "\"derived:wrong\""))
        .unwrap_err()
        .to_string();
    assert!(error.contains("wrong"), "{error}");
}

#[test]
fn derived_inputs_are_made_once_and_read_by_their_tool() {
    let suite =
        "[[derived]]\nname = \"indexed\"\nwhat = \"x\"\nby.osmill = \"copy {in} {out}\"\nelse = \"in\"\n"
            .to_owned()
            + &COPY.replace("{in}", "{indexed}");
    let world = World::new(&[("osmill", CP), ("osmium", CP)]);
    let options = run::Options {
        repeats: 1,
        ..world.options()
    };
    for _ in 0..2 {
        let rows = world.run(&suite, &options);
        assert_eq!(rows[0].outcome, Outcome::Ok, "{}", rows[0].reason);
        assert!(
            rows[0].arms[0].command[2].starts_with("indexed-osmill-"),
            "{:?}",
            rows[0].arms[0].command
        );
        assert_eq!(rows[0].arms[1].command[2], "small.osm.pbf");
    }
    assert_eq!(
        world.turns(),
        "osmill osmill osmium osmill osmium osmill osmium osmill osmium"
    );
}

fn launch(folder: &Path, command: &[&str], timeout: Duration) -> Sample {
    let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
    let launch = Launch {
        launcher: Path::new(LAUNCHER),
        command: &command,
        directory: folder,
        processors: Some(1),
        timeout,
    };
    launch.run().unwrap()
}

#[test]
fn samples_hold_what_the_program_used() {
    let folder = tempfile::tempdir().unwrap();
    let minute = Duration::from_secs(60);
    // This process is big; what it starts must not inherit its peak.
    let ballast = vec![1u8; 300 << 20];
    let small = launch(folder.path(), &["true"], minute);
    assert!(
        std::hint::black_box(ballast).len() > 1 && small.peak_rss_bytes < 40 << 20,
        "{small:?}"
    );
    assert!(small.peak_rss_bytes > 100_000 && small.exit == Some(0) && small.wall_s < 5.0);

    let busy = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; sleep 0.25; head -c 3000000 /dev/zero > big; echo done";
    let sample = launch(folder.path(), &["sh", "-c", busy], minute);
    assert!(
        sample.user_s > 0.01 && sample.wall_s > sample.user_s,
        "{sample:?}"
    );
    assert!(sample.minor_faults > 10 && sample.voluntary_switches > 0);
    let points = &sample.timeline;
    assert!(
        points.len() >= 3 && points.windows(2).all(|pair| pair[0].ms < pair[1].ms),
        "{points:?}"
    );
    assert!(
        points
            .iter()
            .all(|point| point.rss > 0 && point.rss <= sample.peak_rss_bytes + (64 << 10))
    );
    assert_eq!(
        std::fs::read_to_string(folder.path().join("stdout")).unwrap(),
        "done\n"
    );

    let sample = launch(
        folder.path(),
        &["dd", "if=/dev/zero", "of=dd-out", "bs=1000000", "count=5"],
        minute,
    );
    let io = sample.io.unwrap();
    assert!(
        io.write_call_bytes >= 5_000_000 && io.read_call_bytes >= 5_000_000,
        "{io:?}"
    );

    let sample = launch(folder.path(), &["sh", "-c", "exit 7"], minute);
    assert_eq!(sample.exit, Some(7));
    let sample = launch(folder.path(), &["sleep", "30"], Duration::from_millis(200));
    assert!(
        sample.timed_out && sample.exit.is_none() && sample.signal == Some(9),
        "{sample:?}"
    );
    let nowhere = ["/nonexistent/program".to_owned()];
    let broken = Launch {
        launcher: Path::new(LAUNCHER),
        command: &nowhere,
        directory: folder.path(),
        processors: None,
        timeout: minute,
    };
    let error = broken.run().unwrap_err().to_string();
    assert!(error.contains("/nonexistent/program"), "{error}");
}

/// A record of a real run of scripts over two inputs, written and read back.
fn record(world: &World, path: &Path) -> Record {
    let sleepy = |seconds: f64| Sample {
        wall_s: seconds,
        user_s: seconds,
        peak_rss_bytes: 50_000_000,
        exit: Some(0),
        ..Sample::default()
    };
    let mut rows = world.run(COPY, &world.options());
    let mut bigger = rows[0].clone();
    bigger.input = "bigger.osm.pbf".to_owned();
    bigger.input_bytes *= 4;
    rows.push(bigger);
    let mut failed = rows[0].clone();
    failed.row = "broken".to_owned();
    failed.outcome = Outcome::Failed;
    failed.reason = "output | differs".to_owned();
    failed.arms.clear();
    rows[0].arms[0].log = vec![
        serde_json::json!({"phase": {"name": "scan", "wall": 0.5, "blobs": 123}}),
        serde_json::json!({"summary": {"wall": 0.9, "phases": [{"name": "scan", "wall": 0.5, "blobs": 123}]}}),
    ];
    for (index, row) in rows.iter_mut().enumerate() {
        for (arm, speed) in row.arms.iter_mut().zip([1.0, 4.0, 9.0]) {
            let wall = speed * (1.0 + 3.0 * index as f64);
            arm.samples = [0.98, 1.0, 1.02].map(|noise| sleepy(wall * noise)).to_vec();
        }
        row.goals = [("pbfhogg".to_owned(), 3.5), ("osmium".to_owned(), 10.0)].into();
    }
    rows.push(failed);
    let figure = |(arm, peer, cost): (&str, bool, f64)| record::ProgramResult {
        run: "r".to_owned(),
        program: "p".to_owned(),
        line: serde_json::json!({
            "row": "search", "arm": arm, "n": 1e6, "ns_per_query": cost, "checked": true, "peer": peer,
        }),
    };
    let record = Record {
        run: Run {
            id: "r".to_owned(),
            suite: "test".to_owned(),
            tools: world.tools.clone(),
            ..Run::default()
        },
        rows,
        programs: [
            ("ours", false, 10.0),
            ("ours", false, 10.4),
            ("theirs", true, 31.0),
        ]
        .map(figure)
        .to_vec(),
        end: Some(record::End {
            run: "r".to_owned(),
            ..record::End::default()
        }),
    };
    save(&record, path);
    let read = record::load_last(path).unwrap();
    assert_eq!(
        (&read.rows, &read.programs, &read.end),
        (&record.rows, &record.programs, &record.end)
    );
    read
}

fn save(record: &Record, path: &Path) {
    let mut writer = Writer::append_to(path).unwrap();
    writer.write(&Line::Run(Box::new(record.run.clone()))).unwrap();
    record
        .rows
        .iter()
        .for_each(|row| writer.write(&Line::Row(row.clone())).unwrap());
    record
        .programs
        .iter()
        .for_each(|result| writer.write(&Line::Program(result.clone())).unwrap());
    record
        .end
        .iter()
        .for_each(|end| writer.write(&Line::End(end.clone())).unwrap());
}

#[test]
fn records_compare_with_themselves_and_not_with_doctored_ones() {
    let world = World::new(&[("osmill", CP), ("pbfhogg", CP), ("osmium", CP)]);
    let path = world.path().join("record.jsonl");
    let old = record(&world, &path);
    assert_eq!((old.rows.len(), old.programs.len()), (3, 3));
    let same = compare::compare(&old, &old, 0.1);
    assert!(
        !same.fails()
            && same
                .comparisons
                .iter()
                .all(|figure| figure.verdict == Verdict::Same),
        "{}",
        same.render(true)
    );

    let doctored = |change: fn(&mut Record)| {
        let mut new = old.clone();
        change(&mut new);
        compare::compare(&old, &new, 0.1)
    };
    let scale = |record: &mut Record, arm: usize, by: f64| {
        record.rows[0].arms[arm]
            .samples
            .iter_mut()
            .for_each(|sample| sample.wall_s *= by);
    };
    let verdict = |outlook: &compare::Outlook| outlook.comparisons[0].verdict;
    let slower = doctored(|record| {
        record.rows[0].arms[0]
            .samples
            .iter_mut()
            .for_each(|sample| sample.wall_s *= 1.15)
    });
    assert!(
        slower.fails() && verdict(&slower) == Verdict::Worse,
        "{}",
        slower.render(true)
    );
    assert!(slower.render(false).contains("x1.150"));
    let slightly = doctored(|record| {
        record.rows[0].arms[0]
            .samples
            .iter_mut()
            .for_each(|sample| sample.wall_s *= 1.08)
    });
    assert!(!slightly.fails());
    let fatter = doctored(|record| {
        record.rows[1].arms[0]
            .samples
            .iter_mut()
            .for_each(|sample| sample.peak_rss_bytes *= 2)
    });
    assert!(fatter.fails());
    let mut new = old.clone();
    scale(&mut new, 0, 0.5);
    let faster = compare::compare(&old, &new, 0.1);
    assert!(!faster.fails() && verdict(&faster) == Verdict::Better);
    // A peer that became slower is a sign of another machine, not of a worse osmill.
    let mut new = old.clone();
    scale(&mut new, 1, 2.0);
    assert!(!compare::compare(&old, &new, 0.1).fails());
    // Beyond 10 %, inside the noise.
    let noisy = doctored(|record| {
        for (sample, factor) in record.rows[0].arms[0].samples.iter_mut().zip([0.8, 1.15, 1.5]) {
            sample.wall_s *= factor;
        }
    });
    assert!(
        !noisy.fails() && verdict(&noisy) == Verdict::Unclear,
        "{}",
        noisy.render(true)
    );
    assert!(
        doctored(|record| drop(record.rows.remove(0))).fails(),
        "a row that is gone"
    );
    assert!(
        doctored(|record| record.rows[0].outcome = Outcome::Failed).fails(),
        "a row that is wrong now"
    );
    let engine = doctored(|record| {
        record
            .programs
            .iter_mut()
            .for_each(|result| result.line["ns_per_query"] = 14.0.into());
    });
    assert!(engine.fails());
    let moved = doctored(|record| record.run.machine.cpu = "another".to_owned());
    assert!(
        moved
            .warnings
            .iter()
            .any(|warning| warning.contains("other machine"))
    );

    let other = world.path().join("doctored.jsonl");
    let mut new = old.clone();
    scale(&mut new, 0, 1.3);
    save(&new, &other);
    let code = |old: &Path, new: &Path| {
        let arguments = ["compare".as_ref(), old.as_os_str(), new.as_os_str()];
        std::process::Command::new(LAUNCHER)
            .args(arguments)
            .output()
            .unwrap()
            .status
            .code()
    };
    assert_eq!(code(&path, &path), Some(0));
    assert_eq!(code(&path, &other), Some(1));
    assert_eq!(code(&path, &world.path().join("none")), Some(2));
}

#[test]
fn a_report_has_tables_pictures_exponents_and_failures() {
    let world = World::new(&[("osmill", CP), ("pbfhogg", CP), ("osmium", CP)]);
    let record = record(&world, &world.path().join("record.jsonl"));
    let page = report::write(&record, &world.path().join("report")).unwrap();
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.contains("**4.0x**") && text.contains("**9.0x**"), "{text}");
    assert!(text.contains("pbfhogg 3.5x met") && text.contains("osmium 10x **missed**"));
    assert!(text.contains("output \\| differs"));
    for line in ["| name | blobs | wall |", "| scan | 123 | 0.5 |", "|  |  | 0.9 |"] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    // Walls are four times as long for four times the input.
    assert!(
        text.contains("| copy | osmill |") && text.contains("| 1.00 |"),
        "{text}"
    );
    for name in text
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(name, _)| name)
    {
        let picture = std::fs::read_to_string(page.with_file_name(name)).unwrap();
        assert!(picture.starts_with("<svg") && !picture.contains("NaN"), "{name}");
    }
    assert!(
        page.with_file_name("scaling-time.svg").is_file() && page.with_file_name("programs.svg").is_file()
    );
}

#[test]
fn the_command_runs_an_engine_suite_and_leaves_a_record() {
    let folder = tempfile::tempdir().unwrap();
    let figures =
        r#"echo '{"row":"search","arm":"ours","n":10,"ns_per_query":5,"checked":true}'; [ "$1" != --fail ]"#;
    let program = script(folder.path(), "engine", figures);
    let record = folder.path().join("record.jsonl");
    let run = |arguments: &[&str]| {
        std::process::Command::new(LAUNCHER)
            .args(["run", "stree", "--program"])
            .arg(&program)
            .arg("--record")
            .arg(&record)
            .args(arguments)
            .output()
            .unwrap()
            .status
            .code()
    };
    assert_eq!(run(&[]), Some(0));
    assert_eq!(run(&["--", "--fail"]), Some(1));
    let runs = record::load(&record).unwrap();
    assert_eq!(runs.len(), 2);
    assert!(
        runs.iter()
            .all(|run| run.programs.len() == 1 && run.end.is_some())
    );
    let calibration = &runs[0].run.calibration;
    assert!(
        calibration.memcpy_gb_s > 0.1 && calibration.inflate_mb_s > 10.0 && calibration.random_line_ns > 1.0
    );
    assert!(calibration.random_line_parallel_ns < calibration.random_line_ns);
    assert!(!runs[0].run.machine.kernel.is_empty() && runs[0].run.machine.memory_bytes > 0);
}
