//! `osmill set`: every command against a `BTreeSet`, exit codes, bad input.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use common::{run, run_with_input, stderr, stdout};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

fn words<'a>(arguments: &[&'a str], file: &'a Path) -> Vec<&'a str> {
    // The file follows the name of the command.
    let mut all = vec!["set", arguments[0], file.to_str().unwrap()];
    all.extend(&arguments[1..]);
    all
}

fn lines<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|i| i.to_string() + "\n").collect()
}

fn text(arguments: &[&str], file: &Path) -> String {
    String::from_utf8(stdout(words(arguments, file))).unwrap()
}

/// Numbers over all magnitudes, in no order, some twice.
fn numbers(n: u64, mut seed: u64) -> Vec<u64> {
    (0..n)
        .map(|_| {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (seed ^ seed >> 31) >> (seed >> 59)
        })
        .collect()
}

#[test]
fn commands_agree_with_a_model() {
    let folder = Folder::new();
    let file = folder.at("set");
    let first = numbers(20_000, 1);
    let mut model: BTreeSet<u64> = first.iter().copied().collect();
    let built = run_with_input(words(&["build"], &file), lines(&first).as_bytes());
    assert!(built.status.success(), "{}", stderr(&built));
    assert_eq!(text(&["range"], &file), lines(&model));

    // Insertion from a binary file, deletion from a text file with comments and empty lines.
    let more = numbers(5_000, 2);
    let binary: Vec<u8> = more.iter().flat_map(|k| k.to_le_bytes()).collect();
    std::fs::write(folder.at("more"), binary).unwrap();
    text(
        &["insert", "-b", "-i", folder.at("more").to_str().unwrap()],
        &file,
    );
    model.extend(&more);
    let less = [&first[..1_000], &[3, 5, 7]].concat();
    let commented = format!("# gone\n\n{}", lines(&less).replace('\n', " # so it is\n"));
    std::fs::write(folder.at("less"), commented).unwrap();
    text(&["delete", "--input", folder.at("less").to_str().unwrap()], &file);
    model.retain(|k| !less.contains(k));
    assert_eq!(text(&["range"], &file), lines(&model));
    assert_eq!(
        text(&["range", "--reverse", "-n", "100"], &file),
        lines(model.iter().rev().take(100))
    );
    assert_eq!(
        text(&["range", "1000", "100000"], &file),
        lines(model.range(1000..=100_000))
    );
    assert_eq!(
        text(&["range", "1000", "100000", "--count"], &file),
        lines([model.range(1000..=100_000).count()])
    );
    let packed = stdout(words(&["range", "-b", "1000"], &file));
    assert!(packed.chunks(8).eq(model.range(1000..).map(|k| k.to_le_bytes())));

    let sorted: Vec<u64> = model.iter().copied().collect();
    assert_eq!(
        text(&["at", "0", "777", "5"], &file),
        lines([sorted[0], sorted[777], sorted[5]])
    );
    let (low, high) = (sorted[100], sorted[9_000]);
    let ranks = text(&["rank", &low.to_string(), &(high + 1).to_string(), "0"], &file);
    assert_eq!(ranks, lines([100, 9_001, 0]));

    // Search prints what is there in the order asked.
    let asked = [sorted[10], u64::MAX - 3, sorted[2]];
    let found = run_with_input(words(&["search"], &file), lines(asked).as_bytes());
    assert_eq!(found.status.code(), Some(1));
    assert_eq!(
        String::from_utf8(found.stdout).unwrap(),
        lines([sorted[10], sorted[2]])
    );
    assert_eq!(
        text(&["search", &sorted[10].to_string()], &file),
        lines([sorted[10]])
    );
    let missing = run_with_input(words(&["search", "--missing"], &file), lines(asked).as_bytes());
    assert_eq!(String::from_utf8(missing.stdout).unwrap(), lines([u64::MAX - 3]));

    text(&["compact"], &file);
    assert!(text(&["verify"], &file).ends_with("sound\n"));
    let stats: serde_json::Value = serde_json::from_str(&text(&["stats", "--json"], &file)).unwrap();
    assert_eq!(stats["keys"], model.len());
    assert!(text(&["stats"], &file).contains("bytes a key"));
    assert_eq!(text(&["range"], &file), lines(&model));
}

#[test]
fn values_travel_with_their_numbers() {
    let folder = Folder::new();
    let file = folder.at("map");
    let input = "7 70\n3 30\n9 90\n3 31\n";
    let built = run_with_input(
        words(&["build", "--values", "--encoding", "raw"], &file),
        input.as_bytes(),
    );
    assert!(built.status.success(), "{}", stderr(&built));
    text(&["insert", "5=50", "7 71"], &file);
    text(&["delete", "9"], &file);
    let model = BTreeMap::from([(3, 31), (5, 50), (7, 71)]);
    assert_eq!(
        text(&["range"], &file),
        lines(model.iter().map(|(k, v)| format!("{k} {v}")))
    );
    assert_eq!(text(&["search", "7"], &file), "7 71\n");
    assert_eq!(text(&["at", "1"], &file), "5 50\n");
    let bare = run(words(&["insert", "8"], &file));
    assert_eq!(bare.status.code(), Some(2));
    assert!(stderr(&bare).contains("NUMBER VALUE"), "{}", stderr(&bare));
}

#[test]
fn mistakes_are_told_and_leave_nothing_behind() {
    let folder = Folder::new();
    let file = folder.at("set");
    let fails = |arguments: &[&str], input: &[u8], code: i32, part: &str| {
        let output = run_with_input(words(arguments, &file), input);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(
            said.contains(part) && !said.contains("panicked"),
            "{arguments:?}: {said}"
        );
    };
    fails(&["search", "1"], b"", 2, "cannot open");
    fails(&["build"], b"1\n2\nthree\n", 2, "line 3: 'three'");
    fails(&["build"], b"1\n-2\n", 2, "line 2");
    fails(&["build"], b"1 2\n", 2, "more than one number");
    fails(
        &["build", "-b"],
        b"123456789",
        2,
        "9 bytes are not a multiple of 8",
    );
    fails(&["build"], b"1\n\xff\xfe\n", 2, "--binary");
    fails(&["build", "--memory", "1M"], b"1\n", 2, "memory");
    fails(&["build", "-i", "/no/such/file"], b"", 2, "/no/such/file");
    assert_eq!(
        std::fs::read_dir(folder.0.path()).unwrap().count(),
        0,
        "a failed build leaves no file"
    );

    assert!(
        run_with_input(words(&["build"], &file), b"18446744073709551615\n0\n5\n")
            .status
            .success()
    );
    fails(&["build"], b"1\n", 2, "-O");
    assert_eq!(text(&["range"], &file), "0\n5\n18446744073709551615\n");
    fails(&["at", "3"], b"", 1, "3 numbers");
    fails(&["search", "6"], b"", 1, "");
    fails(&["range", "9", "3"], b"", 2, "above HIGH");
    fails(&["insert"], b"7\nx\n", 2, "line 2");
    assert_eq!(
        text(&["search", "5", "0"], &file),
        "5\n0\n",
        "an insertion that failed changed nothing"
    );
    let name = file.to_str().unwrap().to_owned();
    fails(&["search", &name], b"", 2, "-i");
    assert!(
        run_with_input(words(&["build", "-O"], &file), b"")
            .status
            .success()
    );
    assert_eq!(text(&["range"], &file), "");

    std::fs::write(&file, b"not a set at all").unwrap();
    fails(&["stats"], b"", 2, "");
    // A flipped byte in each extent; some of them are out of use.
    std::fs::remove_file(&file).unwrap();
    let many = lines(numbers(50_000, 9));
    assert!(
        run_with_input(words(&["build"], &file), many.as_bytes())
            .status
            .success()
    );
    let mut bytes = std::fs::read(&file).unwrap();
    let extent = |at: &usize| bytes[at + 4..at + 6] == [0x5e, 0xda];
    let extents: Vec<usize> = (64..bytes.len() / 4096)
        .map(|b| b * 4096)
        .filter(extent)
        .collect();
    extents.iter().for_each(|at| bytes[at + 1000] ^= 4);
    std::fs::write(&file, bytes).unwrap();
    let checked = run(words(&["verify"], &file));
    assert_eq!(checked.status.code(), Some(1), "{}", stderr(&checked));
    fails(&["range"], b"", 1, "block");
}
