//! Single elements.

use osmill_engine::{Blob, BlobEntry, Input, Job, KernelResult, Plan, Result};
use osmill_model::ElementId;
use osmill_pbf::Element;
use serde::Serialize;

/// An element with all that a file says of it.
#[derive(Debug, Clone, Serialize)]
pub struct Shown {
    /// `n17`.
    pub id: String,
    /// Number of the blob that holds it.
    pub blob: u64,
    /// The version.
    pub version: Option<i32>,
    /// The time of the version.
    pub timestamp: Option<String>,
    /// The changeset.
    pub changeset: Option<i64>,
    /// The number of the user.
    pub uid: Option<i32>,
    /// The name of the user.
    pub user: Option<String>,
    /// Whether it exists.
    pub visible: Option<bool>,
    /// Longitude and latitude in degrees, of a node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<[f64; 2]>,
    /// Keys and values, in the order of the file.
    pub tags: Vec<(String, String)>,
    /// Node references of a way, with locations where it carries them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refs: Vec<(i64, Option<[f64; 2]>)>,
    /// Members of a relation: element and role.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<(String, String)>,
}

fn degrees(location: osmill_model::Location) -> [f64; 2] {
    [location.lon_degrees(), location.lat_degrees()]
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Shown {
    fn of(element: &Element<'_>, blob: u64) -> KernelResult<Shown> {
        let metadata = element.metadata()?;
        let mut shown = Shown {
            id: element.element_id().to_string(),
            blob,
            version: metadata.version,
            timestamp: metadata.timestamp.map(|t| t.to_string()),
            changeset: metadata.changeset,
            uid: metadata.uid,
            user: metadata.user.map(text),
            visible: metadata.visible,
            location: None,
            tags: Vec::new(),
            refs: Vec::new(),
            members: Vec::new(),
        };
        for tag in element.tags() {
            let tag = tag?;
            shown.tags.push((text(tag.key), text(tag.value)));
        }
        match element {
            Element::Node(node) => shown.location = node.location()?.map(degrees),
            Element::Way(way) => {
                let mut locations = way.locations();
                for id in way.refs() {
                    let location = locations.next().transpose()?.flatten();
                    shown.refs.push((id?, location.map(degrees)));
                }
            }
            Element::Relation(relation) => {
                for member in relation.members() {
                    let member = member?;
                    shown
                        .members
                        .push((member.element.to_string(), text(member.role)));
                }
            }
        }
        Ok(shown)
    }
}

/// Finds all versions of an element. Only blobs whose index record allows it are read.
pub fn show(job: &Job, input: &Input, plan: &Plan, id: ElementId) -> Result<Vec<Shown>> {
    let blobs = candidates(input, plan, id)?;
    let states = job
        .pass("find", input.file(), &blobs)
        .scan(Vec::new, |found, blob| {
            let number = blob.entry().number;
            for element in blob.block()?.elements() {
                let element = element?;
                if element.element_id() == id {
                    found.push(Shown::of(&element, number)?);
                }
            }
            Ok(())
        })?;
    let mut found: Vec<Shown> = states.into_iter().flatten().collect();
    found.sort_by_key(|shown| shown.blob);
    Ok(found)
}

/// The blobs that may hold an element: by index records, or by bisection where the header says that the file
/// is sorted.
fn candidates(input: &Input, plan: &Plan, id: ElementId) -> Result<Vec<BlobEntry>> {
    let may_hold = |blob: &&BlobEntry| {
        blob.index.is_none_or(|record| {
            record.first().is_some_and(|first| first <= id) && record.last().is_some_and(|last| last >= id)
        })
    };
    if plan.is_indexed() || !plan.header.claims_sorted() {
        return Ok(plan.blobs.iter().filter(may_hold).copied().collect());
    }
    let mut reader = Blob::new(input.file().clone());
    let mut range_of = |entry: &BlobEntry| {
        reader.begin(*entry);
        reader.record().map_err(|fault| reader.locate(fault))
    };
    let (mut low, mut high) = (0, plan.blobs.len());
    // The first blob whose last element is not before the one sought.
    while low < high {
        let middle = low + (high - low) / 2;
        match range_of(&plan.blobs[middle])?.last() {
            Some(last) if last < id => low = middle + 1,
            _ => high = middle,
        }
    }
    let mut found = Vec::new();
    for entry in &plan.blobs[low..] {
        let record = range_of(entry)?;
        if record.first().is_some_and(|first| first > id) {
            break;
        }
        found.push(BlobEntry {
            index: Some(record),
            ..*entry
        });
    }
    Ok(found)
}
