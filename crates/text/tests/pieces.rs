//! Several threads read what one reads, whatever stands where the file is cut.

mod common;

use std::io::Cursor;

use common::Plain;
use osmill_pbf::Block;
use osmill_text::{Error, Reader};

fn read(text: &str, threads: usize) -> (Vec<Plain>, Vec<String>, Option<Error>) {
    let mut reader = match Reader::open_with(Cursor::new(text.as_bytes().to_vec()), threads) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Vec::new(), Some(error)),
    };
    let (mut all, mut block) = (Vec::new(), Block::empty());
    let error = loop {
        match reader.read(&mut block) {
            Ok(Some(part)) => {
                all.extend(block.elements().map(|e| Plain::of(part.action, &e.unwrap())));
            }
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    let warnings = reader.warnings().iter().map(ToString::to_string).collect();
    (all, warnings, error)
}

fn compare(text: &str) {
    let (one, one_warnings, one_error) = read(text, 1);
    for threads in [2, 3] {
        let (several, warnings, error) = read(text, threads);
        // Elements of an unfinished block are lost in an error; how many differs.
        if one_error.is_none() {
            assert_eq!(one.len(), several.len());
        }
        assert!(one.iter().zip(&several).all(|(a, b)| a == b), "elements differ");
        assert_eq!(one_warnings, warnings);
        assert_eq!(
            one_error.as_ref().map(ToString::to_string),
            error.map(|e| e.to_string())
        );
    }
}

/// About `mib` MiB of nodes with something else between every so many.
fn nodes(mib: usize, every: usize, mut between: impl FnMut(usize) -> String) -> String {
    let mut text = String::with_capacity((mib + 1) << 20);
    let mut id = 0;
    while text.len() < mib << 20 {
        id += 1;
        text.push_str(&format!(
            "<node id=\"{id}\" version=\"2\" user=\"somebody with a name\" lat=\"1.5\" lon=\"2.5\">\n  \
             <tag k=\"note\" v=\"a value as long as values are: {id}\"/>\n</node>\n"
        ));
        if id % every == 0 {
            text.push_str(&between(id));
        }
    }
    text
}

#[test]
fn plain_data() {
    let body = nodes(14, 1000, |id| {
        format!("<way id='{id}'><nd ref='1'/></way>\n<relation id='{id}'/>")
    });
    compare(&format!("<osm version='0.6'>\n{body}</osm>\n"));
}

#[test]
fn comments_and_unknown_elements_full_of_elements() {
    let inside = nodes(2, usize::MAX, |_| String::new());
    let body = nodes(14, 30_000, |id| {
        format!("<!-- {inside} -->\n<new{}>{inside}</new{0}>\n", id / 30_000)
    });
    compare(&format!("<osm version='0.6'>\n{body}</osm>\n"));
}

#[test]
fn actions_that_change_often_and_seldom() {
    for every in [500, 50_000] {
        let mut actions = ["create", "delete", "modify"].iter().cycle();
        let mut open = "modify";
        let body = nodes(10, every, |_| {
            let next = actions.next().unwrap();
            let between = format!("</{open}>\n<{next}>\n");
            open = next;
            between
        });
        compare(&format!(
            "<osmChange version='0.6'><modify>\n{body}</{open}></osmChange>\n"
        ));
    }
}

#[test]
fn errors_keep_their_place() {
    for at in [100, 40_000, 80_000] {
        let body = nodes(14, at, |id| format!("<way id='{id}'><nd ref='1.5'/></way>"));
        compare(&format!("<osm version='0.6'>\n{body}</osm>\n"));
    }
    let mut text = format!("<osm>{}</osm>", nodes(9, usize::MAX, |_| String::new()));
    text.truncate(text.len() - 200);
    compare(&text);
}

#[test]
fn opl_is_cut_at_lines() {
    let mut text = String::new();
    for id in 0..120_000 {
        text.push_str(&format!(
            "n{id} v1 dV c5 t2014-01-01T00:00:00Z i7 uAna%20%B Tname=Vaduz,note=a%20%long%20%value x9.5 y47\n"
        ));
    }
    compare(&text);
    text.push_str("w1 Nx\n");
    compare(&text);
}
