//! `osmill nodes apply` killed at any point: a change is there as a whole, with its number, or not at all.

use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

fn osmill(arguments: &[&str], files: &[&Path]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_osmill"))
        .args(arguments)
        .args(files)
        .output()
        .unwrap()
}

fn dump(store: &Path) -> (Vec<u8>, i64) {
    // The system gives the lock of a killed process back only when its requests to the disk have ended.
    let mut check = osmill(&["nodes", "check"], &[store]);
    for _ in 0..100 {
        if !String::from_utf8_lossy(&check.stderr).contains("in use") {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
        check = osmill(&["nodes", "check"], &[store]);
    }
    assert!(check.status.success(), "{check:?}");
    let stats = osmill(&["nodes", "stats", "--json"], &[store]);
    let stats: serde_json::Value = serde_json::from_slice(&stats.stdout).unwrap();
    let dump = osmill(&["nodes", "dump"], &[store]);
    assert!(dump.status.success());
    (dump.stdout, stats["sequence"].as_i64().unwrap_or(0))
}

#[test]
fn a_killed_change_is_whole_or_absent() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/monaco.osm.pbf");
    let built = osmill(&["-q", "nodes", "build"], &[&data, &at("start")]);
    assert!(built.status.success(), "{built:?}");
    // Sets nodes strewn over all ids, old and new ones.
    let mut text = String::from("<osmChange version=\"0.6\"><modify>");
    for i in 0..20_000u64 {
        let id = i * 0x9e37_79b9 % 9_000_000_000 + 1;
        let _ = write!(
            text,
            "<node id=\"{id}\" version=\"9\" lat=\"{}.5\" lon=\"{}\"/>",
            i % 90,
            i % 180
        );
    }
    text.push_str("</modify></osmChange>");
    std::fs::write(at("change.osc"), text).unwrap();

    let (store, done) = (at("store"), at("done"));
    std::fs::copy(at("start"), &done).unwrap();
    let base = dump(&done);
    let number = (base.1 + 1).to_string();
    let arguments = ["-q", "nodes", "apply", "--sequence", number.as_str()];
    let start = std::time::Instant::now();
    let applied = osmill(&arguments, &[&done, &at("change.osc")]);
    assert!(applied.status.success(), "{applied:?}");
    let whole = start.elapsed();
    let after = dump(&done);
    assert_ne!(base.0, after.0);

    let (mut absent, mut there) = (0, 0);
    for step in 0..24u32 {
        std::fs::copy(at("start"), &store).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_osmill"))
            .args(arguments)
            .args([&store, &at("change.osc")])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(whole * step / 20 + Duration::from_millis(1));
        let _ = child.kill();
        child.wait().unwrap();
        let found = dump(&store);
        if found == base {
            absent += 1;
        } else {
            assert!(found == after, "killed at step {step}");
            there += 1;
        }
    }
    eprintln!("killed 24 times: {absent} times absent, {there} times there");
}
