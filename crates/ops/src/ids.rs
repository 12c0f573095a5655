//! Lists of ids, in every spelling and from every source that users have.

use std::path::Path;

use osmill_engine::{Error, Job, Result};
use osmill_model::{ElementId, Kind};
use osmill_pbf::Item;

/// Reads ids from arguments: `n1`, `w2`, `node/1`, addresses of elements, bare numbers of the `default` kind.
/// An argument may hold several, separated by spaces, tabs, commas, semicolons, slashes or bars.
pub fn parse_ids<S: AsRef<str>>(texts: &[S], default: Kind) -> Result<Vec<ElementId>> {
    let mut ids = Vec::new();
    for text in texts {
        let text = text.as_ref();
        if let Ok(id) = ElementId::parse_with_default(text, Some(default)) {
            ids.push(id);
            continue;
        }
        let words = text.split([' ', '\t', ',', ';', '|', '\n']);
        for word in words.filter(|word| !word.is_empty()) {
            match ElementId::parse_with_default(word, Some(default)) {
                Ok(id) => ids.push(id),
                Err(error) => {
                    // Slashes separate ids, too, but only where they do not belong to one.
                    let parts = word.split('/').filter(|part| !part.is_empty());
                    let parts: Result<Vec<_>, _> = parts
                        .map(|part| ElementId::parse_with_default(part, Some(default)))
                        .collect();
                    match parts {
                        Ok(parts) if !parts.is_empty() => ids.extend(parts),
                        _ => return Err(Error::Usage(error.to_string())),
                    }
                }
            }
        }
    }
    Ok(ids)
}

/// Reads ids from a text file, or from standard input if it is `-`: one at the start of each line; what
/// follows a blank or `#` is ignored, and so are empty lines. OPL files are such lists.
pub fn read_ids(path: &Path, default: Kind) -> Result<Vec<ElementId>> {
    use std::io::BufRead;
    let fail = |e| Error::io("read", path, e);
    let source: Box<dyn std::io::Read> = match path == Path::new("-") {
        true => Box::new(std::io::stdin()),
        false => Box::new(std::fs::File::open(path).map_err(fail)?),
    };
    let mut source = std::io::BufReader::new(source);
    let (mut ids, mut line, mut number) = (Vec::new(), Vec::new(), 0);
    loop {
        line.clear();
        number += 1;
        if source.read_until(b'\n', &mut line).map_err(fail)? == 0 {
            return Ok(ids);
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.split('#').next().unwrap_or_default().trim();
        // An address has its own '#'; it is cut off with the comment, which takes nothing from the id.
        let Some(word) = text.split_whitespace().next() else {
            continue;
        };
        let id = ElementId::parse_with_default(word, Some(default))
            .or_else(|_| ElementId::parse_with_default(text, Some(default)))
            .map_err(|error| Error::Usage(format!("{}: line {number}: {error}", path.display())))?;
        ids.push(id);
    }
}

/// The ids of all elements of a PBF file.
pub fn ids_of_file(job: &Job, path: &Path) -> Result<Vec<ElementId>> {
    let input = job.open(path)?;
    let plan = input.plan(job.options().threads)?;
    let states = job
        .pass("ids", input.file(), &plan.blobs)
        .scan(Vec::new, |ids, blob| {
            for group in blob.block()?.groups() {
                let mut items = group.items();
                while let Some(item) = items.try_next()? {
                    match item {
                        Item::Dense(dense) => dense
                            .ids()
                            .column()
                            .for_each_sum(|id| ids.push(ElementId::new(Kind::Node, id)))?,
                        Item::Node(node) => ids.push(ElementId::new(Kind::Node, node.id())),
                        Item::Way(way) => ids.push(ElementId::new(Kind::Way, way.id())),
                        Item::Relation(relation) => ids.push(ElementId::new(Kind::Relation, relation.id())),
                    }
                }
            }
            Ok(())
        })?;
    Ok(states.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling() {
        let ids = |texts: &[&str]| {
            let ids = parse_ids(texts, Kind::Node).unwrap();
            ids.iter().map(ElementId::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(ids(&["n13", "w22", "17", "r21"]), "n13 w22 n17 r21");
        assert_eq!(ids(&["n13,w22;17|r21\tn1 n2"]), "n13 w22 n17 r21 n1 n2");
        assert_eq!(ids(&["node/1", "way 2", "n1/n2/3"]), "n1 w2 n1 n2 n3");
        assert_eq!(ids(&["https://www.openstreetmap.org/way/5#map=1/2/3,n-6"]), "w5");
        assert_eq!(ids(&["way/5,relation/6"]), "w5 r6");
        for bad in ["x", "n1,x", "node", "//x"] {
            assert!(parse_ids(&[bad], Kind::Node).is_err(), "{bad}");
        }
    }

    #[test]
    fn files_are_lists() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ids");
        let text = "# ids\n\n  n1 v1 dV\nw2# comment\r\n3\nhttps://osm.org/relation/4#x\nnode 5\n";
        std::fs::write(&path, text).unwrap();
        let ids = read_ids(&path, Kind::Way).unwrap();
        let ids: Vec<_> = ids.iter().map(ElementId::to_string).collect();
        assert_eq!(ids, ["n1", "w2", "w3", "r4", "n5"]);
        std::fs::write(&path, "n1\nx\n").unwrap();
        let error = read_ids(&path, Kind::Way).unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
    }
}
