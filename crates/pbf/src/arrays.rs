//! The elements of a block as arrays, for comparing and copying many at once.

use std::ops::Range;

use osmill_model::{ElementId, Kind};

use crate::block::{Block, RawItem};
use crate::dense::DenseNodes;
use crate::element::RawMetadata;
use crate::error::{BlockError, BlockErrorKind};
use crate::wire::{Fields, Varints};

/// The nodes of a DenseNodes message as arrays of absolute values. Arrays are kept between blocks.
///
/// Only the plain case is read: block units that are those of [`osmill_model::Location`], no visibility, no
/// missing versions. That is nearly every block there is; others have to be read node by node.
#[derive(Debug, Default)]
pub struct NodeArrays {
    /// Ids.
    pub ids: Vec<i64>,
    /// Versions; empty if the block has none.
    pub versions: Vec<i64>,
    /// Times in seconds since 1970; empty if the block has none.
    pub timestamps: Vec<i64>,
    pub(crate) lats: Vec<i64>,
    pub(crate) lons: Vec<i64>,
    pub(crate) changesets: Vec<i64>,
    pub(crate) uids: Vec<i64>,
    pub(crate) user_sids: Vec<i64>,
    /// Where each node's tags begin in `tags`, and where the last one's end.
    pub(crate) tag_starts: Vec<u32>,
    /// String numbers of keys and values in turn.
    pub(crate) tags: Vec<u32>,
}

impl NodeArrays {
    /// Reads a message. `false`, with nothing usable in the arrays, if it is not of the plain case.
    pub fn read(&mut self, block: &Block, dense: &DenseNodes<'_>) -> Result<bool, BlockError> {
        if !NodeArrays::may_hold(block, dense) {
            return Ok(false);
        }
        let info = dense.info().unwrap_or_default();
        let (lats, lons) = dense.raw_locations();
        for (array, column) in [
            (&mut self.ids, dense.ids()),
            (&mut self.lats, lats),
            (&mut self.lons, lons),
            (&mut self.timestamps, info.timestamps),
            (&mut self.changesets, info.changesets),
            (&mut self.uids, info.uids),
            (&mut self.user_sids, info.user_sids),
        ] {
            array.clear();
            column.column().decode_deltas_into(array)?;
        }
        self.versions.clear();
        info.versions
            .decode_into(&mut self.versions, |version| version as i64)?;
        if !self.is_in_range() {
            return Ok(false);
        }
        self.read_tags(dense.tag_column())
    }

    /// Whether a message is of the plain case as far as can be told without reading it.
    pub(crate) fn may_hold(block: &Block, dense: &DenseNodes<'_>) -> bool {
        let scale = block.scale();
        let has_visibility = dense.info().is_some_and(|info| info.visibles.is_present());
        scale.is_plain() && scale.date_granularity == 1000 && !has_visibility
    }

    /// Whether all values are what they can be in the plain case.
    pub(crate) fn is_in_range(&self) -> bool {
        let fits = |values: &[i64], low: i64, high: i64| values.iter().all(|v| (low..=high).contains(v));
        let i32s = |values: &[i64]| fits(values, i32::MIN.into(), i32::MAX.into());
        fits(&self.versions, 0, i32::MAX.into())
            && fits(&self.changesets, 0, 0xffff_ffff)
            && i32s(&self.uids)
            && i32s(&self.lats)
            && i32s(&self.lons)
            && fits(&self.user_sids, 0, u32::MAX.into())
    }

    /// The error of the first node of a range that has a string which the block does not.
    pub(crate) fn error_of(&self, block: &Block, mut range: Range<usize>, users: bool) -> Option<BlockError> {
        range.find_map(|at| {
            let tags = self.tag_starts[at] as usize..self.tag_starts[at + 1] as usize;
            let tags = self.tags[tags].iter().map(|sid| u64::from(*sid));
            let user = users.then(|| self.user_sids[at] as u64);
            let error = user
                .into_iter()
                .chain(tags)
                .find_map(|sid| block.string(sid).err())?;
            Some(error.of(ElementId::new(Kind::Node, self.ids[at])))
        })
    }

    fn read_tags(&mut self, column: Varints<'_>) -> Result<bool, BlockError> {
        let nodes = self.ids.len();
        let (starts, tags) = (&mut self.tag_starts, &mut self.tags);
        starts.clear();
        starts.resize(nodes + 1, 0);
        tags.clear();
        tags.resize(column.count(), 0);
        let (open, node, end) =
            column.fold((0u64, 0usize, 0usize), |(key, node, at), sid| match (key, sid) {
                (0, 0) => {
                    if let Some(start) = starts.get_mut(node + 1) {
                        *start = at as u32;
                    }
                    (0, node + 1, at)
                }
                (0, sid) => (sid, node, at),
                (key, value) => {
                    if let Some(pair) = tags.get_mut(at..at + 2) {
                        pair.copy_from_slice(&[key, value].map(|sid| sid.min(u32::MAX.into()) as u32));
                    }
                    (0, node, at + 2)
                }
            })?;
        if open != 0 {
            return Err(BlockErrorKind::Lengths {
                column: "keys_vals",
                expected: 2,
                found: 1,
            }
            .into());
        }
        tags.truncate(end);
        // Delimiters may be missing at the end: nodes without tags, or one whose tags nothing ends.
        starts[(node + 1).min(nodes + 1)..].fill(end as u32);
        Ok(true)
    }
}

/// The ways or the relations of a block: what tells them and their versions apart as arrays, and where their
/// messages lie. Arrays are kept between blocks.
#[derive(Debug, Default)]
pub struct MessageArrays {
    /// Ids.
    pub ids: Vec<i64>,
    /// Versions, 0 where there is none.
    pub versions: Vec<i64>,
    /// Times in seconds since 1970, the least number where there is none.
    pub timestamps: Vec<i64>,
    /// Where in the block's bytes each message begins and ends.
    pub(crate) places: Vec<(u32, u32)>,
}

impl MessageArrays {
    /// Reads a block. `None`, with nothing usable in the arrays, if it holds anything but ways, or anything but
    /// relations; otherwise which of them.
    pub fn read(&mut self, block: &Block) -> Result<Option<Kind>, BlockError> {
        self.ids.clear();
        self.versions.clear();
        self.timestamps.clear();
        self.places.clear();
        let base = block.data().as_ptr() as usize;
        let mut known = None;
        for group in block.groups() {
            let mut items = group.items();
            while let Some((item, message)) = items.try_next_raw()? {
                let kind = match item {
                    RawItem::Way => Kind::Way,
                    RawItem::Relation => Kind::Relation,
                    RawItem::Node | RawItem::Dense => return Ok(None),
                };
                if *known.get_or_insert(kind) != kind {
                    return Ok(None);
                }
                let (mut id, mut info) = (None, None);
                let mut fields = Fields::new(message);
                while let Some((number, value)) = fields.try_next()? {
                    match number {
                        1 => id = Some(value.varint()? as i64),
                        4 => info = Some(value.bytes()?),
                        _ => {}
                    }
                }
                let id = id.ok_or(BlockErrorKind::NoId)?;
                let metadata = RawMetadata::read(block, info).map_err(|e| e.of(ElementId::new(kind, id)))?;
                self.ids.push(id);
                self.versions.push(metadata.version.unwrap_or(0).into());
                let timestamp = metadata.timestamp.map_or(i64::MIN, |time| time.0);
                self.timestamps.push(timestamp);
                // Blocks have at most 32 MiB.
                let start = (message.as_ptr() as usize - base) as u32;
                self.places.push((start, start + message.len() as u32));
            }
        }
        Ok(known)
    }
}

/// The first element of a block, from the first bytes of its decompressed data. `None` if they do not reach so
/// far, or the fields are in an unusual order.
pub fn peek_first_element(prefix: &[u8]) -> Option<ElementId> {
    use crate::wire::{read_varint, zigzag_decode};
    // The key of a length-delimited field and the bytes after its length.
    fn enter(data: &[u8]) -> Option<(u64, usize, &[u8])> {
        let mut rest = data;
        let key = read_varint(&mut rest).ok()?;
        if key & 7 != 2 {
            return None;
        }
        let len = usize::try_from(read_varint(&mut rest).ok()?).ok()?;
        Some((key >> 3, len, rest))
    }
    let mut data = prefix;
    let group = loop {
        let (field, len, rest) = enter(data)?;
        match field {
            1 => data = rest.get(len..)?,
            2 => break rest,
            _ => return None,
        }
    };
    let (field, _, message) = enter(group)?;
    if field == 2 {
        let (1, _, mut ids) = enter(message)? else {
            return None;
        };
        return Some(ElementId::new(
            Kind::Node,
            zigzag_decode(read_varint(&mut ids).ok()?),
        ));
    }
    let mut rest = message;
    if read_varint(&mut rest).ok()? != 1 << 3 {
        return None;
    }
    let id = read_varint(&mut rest).ok()?;
    match field {
        1 => Some(ElementId::new(Kind::Node, zigzag_decode(id))),
        3 => Some(ElementId::new(Kind::Way, id as i64)),
        4 => Some(ElementId::new(Kind::Relation, id as i64)),
        _ => None,
    }
}
