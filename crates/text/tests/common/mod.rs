//! What the tests share: reading PBF, running `osmium`, and a plain form of elements to compare.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

use osmill_model::{ElementId, Location, Metadata, Timestamp};
use osmill_pbf::{BlobHeader, BlobType, Block, Decompressor, Element, FileHeader, Node};
use osmill_text::{Action, Error, Reader};

/// The collection of real files beside the repository, where it stands.
pub fn data() -> Option<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?.parent()?;
    Some(workspace.parent()?.join("shared/data")).filter(|path| path.is_dir())
}

/// Files of a directory of the collection whose names end so, in order.
pub fn files(directory: &str, suffix: &str) -> Vec<PathBuf> {
    let Some(path) = data().map(|data| data.join(directory)) else {
        return Vec::new();
    };
    let mut files: Vec<_> = std::fs::read_dir(path)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with(suffix))
        .collect();
    files.sort();
    files
}

/// What `osmium` prints, or `None` where it fails or is not there.
pub fn osmium(arguments: &[&str]) -> Option<Vec<u8>> {
    run("osmium", arguments)
}

pub fn run(program: &str, arguments: &[&str]) -> Option<Vec<u8>> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then_some(output.stdout)
}

/// Header and blocks of a PBF file.
pub fn read_pbf(path: &Path) -> (FileHeader, Vec<Block>) {
    let file = std::fs::read(path).unwrap();
    let mut rest = &file[..];
    let mut decompressor = Decompressor::default();
    let (mut header, mut blocks) = (FileHeader::default(), Vec::new());
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let (head, after) = after.split_at(osmill_pbf::parse_header_length(*length).unwrap());
        let head = BlobHeader::parse(head).unwrap();
        let (body, after) = after.split_at(head.data_size);
        rest = after;
        let blob = osmill_pbf::parse_blob(body).unwrap();
        let mut raw = Vec::new();
        decompressor.decompress(&blob, &mut raw).unwrap();
        match head.blob_type {
            BlobType::Header => header = FileHeader::parse(&raw).unwrap(),
            BlobType::Data => blocks.push(Block::parse(raw).unwrap()),
            BlobType::Other(_) => {}
        }
    }
    (header, blocks)
}

/// An element with all that it has.
#[derive(Debug, Clone, PartialEq)]
pub struct Plain {
    pub action: Option<Action>,
    pub element: ElementId,
    pub version: Option<i32>,
    pub timestamp: Option<Timestamp>,
    pub changeset: Option<i64>,
    pub uid: Option<i32>,
    pub user: Option<Vec<u8>>,
    pub visible: Option<bool>,
    pub location: Option<Location>,
    pub tags: Vec<(Vec<u8>, Vec<u8>)>,
    pub refs: Vec<(i64, Option<Location>)>,
    pub members: Vec<(ElementId, Vec<u8>)>,
}

impl Plain {
    pub fn new(element: ElementId) -> Self {
        Plain {
            action: None,
            element,
            version: None,
            timestamp: None,
            changeset: None,
            uid: None,
            user: None,
            visible: None,
            location: None,
            tags: Vec::new(),
            refs: Vec::new(),
            members: Vec::new(),
        }
    }

    pub fn of(action: Option<Action>, element: &Element<'_>) -> Self {
        let Metadata {
            version,
            timestamp,
            changeset,
            uid,
            user,
            visible,
        } = element.metadata().unwrap();
        let mut plain = Plain {
            action,
            version,
            timestamp,
            changeset,
            uid,
            user: user.map(<[u8]>::to_vec),
            visible,
            ..Plain::new(element.element_id())
        };
        for tag in element.tags() {
            let tag = tag.unwrap();
            plain.tags.push((tag.key.to_vec(), tag.value.to_vec()));
        }
        match element {
            Element::Node(node) => plain.location = Node::stored_location(node).unwrap(),
            Element::Way(way) => {
                let locations = way.locations().map(Result::unwrap);
                plain.refs = way.refs().map(Result::unwrap).zip(locations).collect();
            }
            Element::Relation(relation) => {
                for member in relation.members() {
                    let member = member.unwrap();
                    plain.members.push((member.element, member.role.to_vec()));
                }
            }
        }
        plain
    }
}

/// All elements of a text file, by way of blocks.
pub fn read_text(bytes: &[u8]) -> Result<Vec<Plain>, Error> {
    let mut reader = Reader::open(std::io::Cursor::new(bytes.to_vec()))?;
    let mut all = Vec::new();
    let mut block = Block::empty();
    while let Some(part) = reader.read(&mut block)? {
        let before = all.len();
        for element in block.elements() {
            let element = element.unwrap();
            assert_eq!(element.kind(), part.kind);
            all.push(Plain::of(part.action, &element));
        }
        assert_eq!(all.len() - before, part.count as usize);
    }
    Ok(all)
}
