//! A plain model of OSM data and a PBF writer for it, independent of the digest's reader.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::path::{Path, PathBuf};

/// One element; `kind` 0 node, 1 way, 2 relation.
#[derive(Debug, Clone, PartialEq)]
pub struct Element {
    pub kind: u8,
    pub id: i64,
    pub version: i64,
    pub timestamp: i64,
    pub changeset: i64,
    pub uid: i64,
    pub user: String,
    pub visible: bool,
    /// In 100-nanodegree units: latitude, longitude.
    pub location: (i64, i64),
    pub tags: Vec<(String, String)>,
    pub refs: Vec<i64>,
    pub way_locations: Vec<(i64, i64)>,
    pub members: Vec<(i64, u8, String)>,
}

impl Element {
    pub fn new(kind: u8, id: i64) -> Self {
        Self {
            kind,
            id,
            version: 1,
            timestamp: 1_600_000_000,
            changeset: 7,
            uid: 3,
            user: "somebody".to_owned(),
            visible: true,
            location: (0, 0),
            tags: Vec::new(),
            refs: Vec::new(),
            way_locations: Vec::new(),
            members: Vec::new(),
        }
    }
}

/// How to write: none of it may show in a digest.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    pub dense: bool,
    pub block: usize,
    pub zlib: bool,
    /// Nanodegrees; must divide 100 times every coordinate.
    pub granularity: i64,
    pub offset: i64,
    pub packed: bool,
}

impl Default for Style {
    fn default() -> Self {
        Self {
            dense: true,
            block: 100,
            zlib: true,
            granularity: 100,
            offset: 0,
            packed: true,
        }
    }
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn number(out: &mut Vec<u8>, field: u64, value: u64) {
    varint(out, field << 3);
    varint(out, value);
}

fn bytes(out: &mut Vec<u8>, field: u64, value: &[u8]) {
    varint(out, field << 3 | 2);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn repeated(out: &mut Vec<u8>, field: u64, values: &[u64], packed: bool) {
    if values.is_empty() {
        return;
    }
    if packed {
        let mut body = Vec::new();
        values.iter().for_each(|&value| varint(&mut body, value));
        bytes(out, field, &body);
    } else {
        values.iter().for_each(|&value| number(out, field, value));
    }
}

fn deltas(values: impl IntoIterator<Item = i64>) -> Vec<u64> {
    let mut last = 0;
    values
        .into_iter()
        .map(|value| zigzag(value - std::mem::replace(&mut last, value)))
        .collect()
}

struct Strings(Vec<String>);

impl Strings {
    fn index(&mut self, text: &str) -> u64 {
        if text.is_empty() {
            return 0;
        }
        match self.0.iter().position(|known| known == text) {
            Some(index) => index as u64,
            None => {
                self.0.push(text.to_owned());
                self.0.len() as u64 - 1
            }
        }
    }
}

fn info(element: &Element, strings: &mut Strings) -> Vec<u8> {
    let mut out = Vec::new();
    number(&mut out, 1, element.version as u64);
    number(&mut out, 2, element.timestamp as u64);
    number(&mut out, 3, element.changeset as u64);
    number(&mut out, 4, element.uid as u64);
    number(&mut out, 5, strings.index(&element.user));
    if !element.visible {
        number(&mut out, 6, 0);
    }
    out
}

fn tags(out: &mut Vec<u8>, element: &Element, strings: &mut Strings, packed: bool) {
    let keys: Vec<u64> = element.tags.iter().map(|(key, _)| strings.index(key)).collect();
    let values: Vec<u64> = element
        .tags
        .iter()
        .map(|(_, value)| strings.index(value))
        .collect();
    repeated(out, 2, &keys, packed);
    repeated(out, 3, &values, packed);
}

fn block(elements: &[Element], style: Style) -> Vec<u8> {
    let mut strings = Strings(vec![String::new()]);
    let scale = |value: i64| (value * 100 - style.offset) / style.granularity;
    let mut groups = Vec::new();
    for kind in 0..3u8 {
        let own: Vec<&Element> = elements.iter().filter(|element| element.kind == kind).collect();
        let mut group = Vec::new();
        if kind == 0 && style.dense && !own.is_empty() {
            let mut dense = Vec::new();
            repeated(
                &mut dense,
                1,
                &deltas(own.iter().map(|node| node.id)),
                style.packed,
            );
            let mut meta = Vec::new();
            let plain =
                |value: fn(&Element) -> i64| own.iter().map(|node| value(node) as u64).collect::<Vec<_>>();
            repeated(&mut meta, 1, &plain(|node| node.version), style.packed);
            repeated(
                &mut meta,
                2,
                &deltas(own.iter().map(|node| node.timestamp)),
                style.packed,
            );
            repeated(
                &mut meta,
                3,
                &deltas(own.iter().map(|node| node.changeset)),
                style.packed,
            );
            repeated(
                &mut meta,
                4,
                &deltas(own.iter().map(|node| node.uid)),
                style.packed,
            );
            let users: Vec<i64> = own.iter().map(|node| strings.index(&node.user) as i64).collect();
            repeated(&mut meta, 5, &deltas(users), style.packed);
            if own.iter().any(|node| !node.visible) {
                repeated(&mut meta, 6, &plain(|node| i64::from(node.visible)), style.packed);
            }
            bytes(&mut dense, 5, &meta);
            repeated(
                &mut dense,
                8,
                &deltas(own.iter().map(|node| scale(node.location.0))),
                style.packed,
            );
            repeated(
                &mut dense,
                9,
                &deltas(own.iter().map(|node| scale(node.location.1))),
                style.packed,
            );
            if own.iter().any(|node| !node.tags.is_empty()) {
                let mut column = Vec::new();
                for node in &own {
                    for (key, value) in &node.tags {
                        column.extend([strings.index(key), strings.index(value)]);
                    }
                    column.push(0);
                }
                repeated(&mut dense, 10, &column, style.packed);
            }
            bytes(&mut group, 2, &dense);
        } else {
            for element in own {
                let mut out = Vec::new();
                number(
                    &mut out,
                    1,
                    if kind == 0 {
                        zigzag(element.id)
                    } else {
                        element.id as u64
                    },
                );
                tags(&mut out, element, &mut strings, style.packed);
                bytes(&mut out, 4, &info(element, &mut strings));
                if kind == 0 {
                    number(&mut out, 8, zigzag(scale(element.location.0)));
                    number(&mut out, 9, zigzag(scale(element.location.1)));
                }
                if kind == 1 {
                    repeated(&mut out, 8, &deltas(element.refs.iter().copied()), style.packed);
                    let locations = &element.way_locations;
                    repeated(
                        &mut out,
                        9,
                        &deltas(locations.iter().map(|at| scale(at.0))),
                        style.packed,
                    );
                    repeated(
                        &mut out,
                        10,
                        &deltas(locations.iter().map(|at| scale(at.1))),
                        style.packed,
                    );
                }
                if kind == 2 {
                    let members = &element.members;
                    let roles: Vec<u64> = members.iter().map(|(_, _, role)| strings.index(role)).collect();
                    let kinds: Vec<u64> = members.iter().map(|(_, kind, _)| u64::from(*kind)).collect();
                    repeated(&mut out, 8, &roles, style.packed);
                    repeated(
                        &mut out,
                        9,
                        &deltas(members.iter().map(|(id, _, _)| *id)),
                        style.packed,
                    );
                    repeated(&mut out, 10, &kinds, style.packed);
                }
                bytes(&mut group, [1, 3, 4][usize::from(kind)], &out);
            }
        }
        if !group.is_empty() {
            groups.push(group);
        }
    }
    let mut out = Vec::new();
    let mut table = Vec::new();
    strings
        .0
        .iter()
        .for_each(|text| bytes(&mut table, 1, text.as_bytes()));
    bytes(&mut out, 1, &table);
    groups.iter().for_each(|group| bytes(&mut out, 2, group));
    if style.granularity != 100 {
        number(&mut out, 17, style.granularity as u64);
    }
    if style.offset != 0 {
        number(&mut out, 19, style.offset as u64);
        number(&mut out, 20, style.offset as u64);
    }
    out
}

fn frame(out: &mut Vec<u8>, kind: &str, plain: &[u8], zlib: bool) {
    let mut blob = Vec::new();
    if zlib {
        let mut compressor = libdeflater::Compressor::new(libdeflater::CompressionLvl::fastest());
        let mut packed = vec![0; compressor.zlib_compress_bound(plain.len())];
        let length = compressor.zlib_compress(plain, &mut packed).unwrap();
        number(&mut blob, 2, plain.len() as u64);
        bytes(&mut blob, 3, &packed[..length]);
    } else {
        bytes(&mut blob, 1, plain);
    }
    let mut header = Vec::new();
    bytes(&mut header, 1, kind.as_bytes());
    number(&mut header, 3, blob.len() as u64);
    out.extend_from_slice(&(header.len() as u32).to_be_bytes());
    out.extend_from_slice(&header);
    out.extend_from_slice(&blob);
}

/// A whole PBF. Elements must be ordered by kind; blocks are cut at changes of kind.
pub fn encode(elements: &[Element], style: Style) -> Vec<u8> {
    let mut out = Vec::new();
    let mut header = Vec::new();
    bytes(&mut header, 4, b"OsmSchema-V0.6");
    bytes(&mut header, 4, b"DenseNodes");
    bytes(&mut header, 5, b"Sort.Type_then_ID");
    frame(&mut out, "OSMHeader", &header, style.zlib);
    for run in elements.chunk_by(|one, two| one.kind == two.kind) {
        for part in run.chunks(style.block.max(1)) {
            frame(&mut out, "OSMData", &block(part, style), style.zlib);
        }
    }
    out
}

/// A file with a few elements of each kind, times `count`.
pub fn small_file(folder: &Path, name: &str, count: i64) -> PathBuf {
    let mut elements = Vec::new();
    for id in 1..=count * 10 {
        let mut node = Element::new(0, id);
        node.location = (id * 1000, -id * 1000);
        elements.push(node);
    }
    for id in 1..=count * 3 {
        let mut way = Element::new(1, id);
        way.refs = vec![id, id + 1];
        way.tags = vec![("highway".to_owned(), "primary".to_owned())];
        elements.push(way);
    }
    for id in 1..=count {
        let mut relation = Element::new(2, id);
        relation.members = vec![(id, 1, "outer".to_owned())];
        elements.push(relation);
    }
    let path = folder.join(name);
    std::fs::write(&path, encode(&elements, Style::default())).unwrap();
    path
}

/// An executable shell script. Another process writes it: were it open for writing here, a child that another test forks
/// meanwhile would hold it open, too, and running it would fail with "text file busy".
pub fn script(folder: &Path, name: &str, body: &str) -> PathBuf {
    let path = folder.join(name);
    let status = std::process::Command::new("sh")
        .args([
            "-c",
            "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$0\" && chmod 755 \"$0\"",
        ])
        .arg(&path)
        .arg(body)
        .status()
        .unwrap();
    assert!(status.success(), "{}", path.display());
    path
}
