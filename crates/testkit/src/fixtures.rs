//! Real and odd files for tests.
//!
//! The large collection `shared/data` stands beside the repository on some machines only. Tests run on it
//! where it stands, and on the repository's own `data/` alone where it does not; [`extracts`] prints which.

use std::path::{Path, PathBuf};

/// The root of the workspace.
pub fn workspace() -> PathBuf {
    let crate_directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_directory
        .ancestors()
        .nth(2)
        .unwrap_or(crate_directory)
        .to_path_buf()
}

/// `../shared/data` beside the workspace, where it stands.
pub fn shared_data() -> Option<PathBuf> {
    let path = workspace().parent()?.join("shared/data");
    path.is_dir().then_some(path)
}

/// The files under a directory whose names end so, by name; none where there is no such directory.
pub fn files(directory: &Path, suffix: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.to_string_lossy().ends_with(suffix))
        .collect();
    found.sort();
    found
}

/// Every real extract there is: those of the repository's `data/`, and of the shared collection where it
/// stands. Prints which of the two.
pub fn extracts() -> Vec<PathBuf> {
    let mut found = files(&workspace().join("data"), ".osm.pbf");
    match shared_data() {
        Some(shared) => {
            eprintln!("testing on the repository's data and the shared collection");
            found.extend(files(&shared.join("extracts"), ".osm.pbf"));
        }
        None => eprintln!("testing on the repository's data alone"),
    }
    found
}

/// The extracts of at most this many bytes: for tests that have to be quick.
pub fn small_extracts(bytes: u64) -> Vec<PathBuf> {
    let mut found = extracts();
    found.retain(|path| path.metadata().is_ok_and(|m| m.len() <= bytes));
    found
}

/// An extract of the shared collection by its name without suffix; `None` where the collection is not there.
///
/// # Panics
///
/// If the collection has no such extract.
pub fn extract(name: &str) -> Option<PathBuf> {
    let path = shared_data()?.join("extracts").join(format!("{name}.osm.pbf"));
    assert!(path.is_file(), "there is no extract of the name {name}");
    Some(path)
}

/// What an odd file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// By the specification; a reader must read it.
    Valid,
    /// Against the specification or silent in it, but with one sensible reading.
    Odd,
    /// A reader must refuse it.
    Malformed,
}

/// A file of the collection of odd ones, and what is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OddFile {
    /// Where it is.
    pub path: PathBuf,
    /// What it is.
    pub class: Class,
    /// What is odd about it.
    pub description: String,
    /// What `osmium fileinfo -e` 1.15 says: nodes, ways and relations, or its message. Not always rightly.
    pub osmium: Result<[u64; 3], String>,
}

/// The odd files of the shared collection that its table describes; none where the collection is not there.
///
/// # Panics
///
/// If the table has a line that does not read as its head line says.
pub fn odd_files() -> Vec<OddFile> {
    let Some(directory) = shared_data().map(|shared| shared.join("odd")) else {
        return Vec::new();
    };
    let table = std::fs::read_to_string(directory.join("EXPECT.tsv")).unwrap_or_default();
    table
        .lines()
        .skip(1)
        .map(|line| parse_odd(&directory, line))
        .collect()
}

fn parse_odd(directory: &Path, line: &str) -> OddFile {
    let columns: Vec<&str> = line.split('\t').collect();
    let [file, class, description, code, answer] = columns[..] else {
        panic!("EXPECT.tsv: '{line}' has not five columns");
    };
    let class = match class {
        "valid" => Class::Valid,
        "odd" => Class::Odd,
        "malformed" => Class::Malformed,
        other => panic!("EXPECT.tsv: '{other}' is no class"),
    };
    let counts: Vec<u64> = answer.split('/').filter_map(|n| n.parse().ok()).collect();
    OddFile {
        path: directory.join(file),
        class,
        description: description.to_owned(),
        osmium: match (code, &counts[..]) {
            ("0", &[nodes, ways, relations]) => Ok([nodes, ways, relations]),
            _ => Err(answer.to_owned()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Data;

    #[test]
    fn the_table_of_odd_files_is_read() {
        let directory = Path::new("d");
        let odd = parse_odd(directory, "a.osm.pbf\todd\twhat it is\t0\t1/2/3");
        assert_eq!((odd.class, odd.osmium), (Class::Odd, Ok([1, 2, 3])));
        let bad = parse_odd(directory, "b.osm.pbf\tmalformed\twhat\t1\tPBF error: x/y");
        assert_eq!(bad.osmium, Err("PBF error: x/y".into()));
        let files = odd_files();
        if shared_data().is_some() {
            assert!(files.len() > 80, "{}", files.len());
            assert!(files.iter().all(|odd| odd.path.is_file()));
        }
    }

    #[test]
    fn valid_odd_files_have_the_counts_of_the_table() {
        for odd in odd_files().iter().filter(|odd| odd.class == Class::Valid) {
            let data = Data::from_pbf(&std::fs::read(&odd.path).unwrap());
            // Where the tool refuses a valid file there is no count to compare with.
            let Ok(expected) = odd.osmium else { continue };
            let data = data.unwrap_or_else(|error| panic!("{}: {error}", odd.path.display()));
            let mut counts = [0; 3];
            data.elements.iter().for_each(|e| counts[e.kind() as usize] += 1);
            assert_eq!(counts, expected, "{}", odd.path.display());
        }
    }
}
