//! Locations on ways, at wire level.
//!
//! A Way message that gets locations differs from the one before in fields 9 and 10 (`lat`, `lon`) only. The
//! rest, unknown fields included, is taken over as the bytes it is; no string is looked at.

use osmill_model::{ElementId, Kind, Location};

use crate::block::{Block, RawItem};
use crate::error::{BlockError, BlockErrorKind};
use crate::index::IndexRecord;
use crate::wire::{
    Field, Fields, WireError, bytes_field_len, write_deltas, write_field_with, write_packed_field,
    write_varint,
};

impl Block {
    /// Appends the node references of all ways of the block, in their order.
    pub fn way_refs_into(&self, refs: &mut Vec<i64>) -> Result<(), BlockError> {
        for group in self.groups() {
            let mut items = group.items();
            while let Some((item, message)) = items.try_next_raw()? {
                if item != RawItem::Way {
                    continue;
                }
                let (id, own) = items.parse_refs(message)?;
                own.decode_into(refs).map_err(|e| of_way(e, id))?;
            }
        }
        Ok(())
    }

    /// Whether the block's coordinates are in units of [`Location`], as those on ways then are, too.
    pub fn has_plain_coordinates(&self) -> bool {
        self.scale().is_plain()
    }
}

fn of_way(error: WireError, id: i64) -> BlockError {
    BlockErrorKind::from(error).of(ElementId::new(Kind::Way, id))
}

/// Writes blocks whose ways carry the locations of their nodes. Buffers are kept between blocks.
#[derive(Debug, Default)]
pub struct WayLocationSplicer {
    /// Of each way of the block that was read last the number of references, and whether it has a field of locations.
    ways: Vec<(u32, bool)>,
    /// Which block that was.
    serial: Option<u64>,
    columns: Vec<u8>,
}

impl WayLocationSplicer {
    /// Reads a block: appends the node references of all ways, in their order, and gives the block's record.
    pub fn read(&mut self, block: &Block, refs: &mut Vec<i64>) -> Result<IndexRecord, BlockError> {
        let WayLocationSplicer { ways, serial, .. } = self;
        ways.clear();
        *serial = None;
        let record = IndexRecord::with_walked(block, |way| {
            let before = refs.len();
            way.refs.decode_into(refs).map_err(|e| of_way(e, way.facts.id))?;
            ways.push(((refs.len() - before) as u32, way.location_field));
            Ok(())
        })?;
        *serial = Some(block.serial());
        Ok(record)
    }

    /// Appends to `out` the block that was read last with these locations on its ways. `locations` has one entry
    /// for each reference that [`WayLocationSplicer::read`] found; locations that were there are replaced.
    ///
    /// O(bytes of the block).
    ///
    /// # Panics
    ///
    /// If another block was read last, the block's coordinates are not plain ([`Block::has_plain_coordinates`]), or
    /// `locations` has another length than the ways have references.
    pub fn splice(
        &mut self,
        block: &Block,
        locations: &[Option<Location>],
        out: &mut Vec<u8>,
    ) -> Result<(), BlockError> {
        assert_eq!(self.serial, Some(block.serial()), "the block was read last");
        assert!(block.has_plain_coordinates(), "the block's own units are in use");
        let WayLocationSplicer { ways, columns, .. } = self;
        let (mut ways, mut rest) = (ways.iter(), locations);
        block.frame_fields(|bytes| out.extend_from_slice(bytes))?;
        for source in block.groups() {
            // A location takes four to five bytes.
            let expected = source.data().len() + 5 * rest.len();
            write_field_with(out, 2, expected, |group| -> Result<(), BlockError> {
                let mut fields = Fields::new(source.data());
                while let Some(field @ Field { number, value, .. }) = fields.try_next_field()? {
                    if number != 3 {
                        group.extend_from_slice(field.bytes());
                        continue;
                    }
                    let message = value.bytes()?;
                    let (refs, location_field) = ways.next().copied().unwrap_or_default();
                    let own;
                    (own, rest) = rest.split_at(refs as usize);
                    if location_field {
                        put_way(&without_locations(message)?, own, columns, group);
                    } else {
                        put_way(message, own, columns, group);
                    }
                }
                Ok(())
            })?;
        }
        assert!(rest.is_empty(), "one location for each reference");
        Ok(())
    }
}

/// A way's message without fields 9 and 10.
fn without_locations(message: &[u8]) -> Result<Vec<u8>, WireError> {
    let mut kept = Vec::with_capacity(message.len());
    let mut fields = Fields::new(message);
    while let Some(field @ Field { number, .. }) = fields.try_next_field()? {
        if number != 9 && number != 10 {
            kept.extend_from_slice(field.bytes());
        }
    }
    Ok(kept)
}

/// Appends a way as a field of its group. `columns` is for its columns of coordinates.
fn put_way(message: &[u8], locations: &[Option<Location>], columns: &mut Vec<u8>, group: &mut Vec<u8>) {
    let nowhere = Location::new(i32::MAX, i32::MAX);
    let locations = locations.iter().map(|at| at.unwrap_or(nowhere));
    columns.clear();
    write_deltas(columns, 0, locations.clone().map(|at| i64::from(at.lat)));
    let (lats, lons) = {
        let len = columns.len();
        write_deltas(columns, 0, locations.map(|at| i64::from(at.lon)));
        columns.split_at(len)
    };
    let len = |column: &[u8]| match column.len() {
        0 => 0,
        len => bytes_field_len(len),
    };
    write_varint(group, 3 << 3 | 2);
    write_varint(group, (message.len() + len(lats) + len(lons)) as u64);
    group.extend_from_slice(message);
    write_packed_field(group, 9, lats);
    write_packed_field(group, 10, lons);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::BlockBuilder;
    use crate::wire::{write_bytes_field, write_varint_field};
    use osmill_model::{Metadata, Tag};
    use proptest::prelude::*;

    #[test]
    fn unknown_fields_stay_and_old_locations_go() {
        // A way with id 7, refs 1 and 2, one location too few, and an unknown field 77.
        let mut way = Vec::new();
        write_varint_field(&mut way, 1, 7);
        write_bytes_field(&mut way, 9, &[2]);
        write_bytes_field(&mut way, 8, &[2, 2]);
        write_bytes_field(&mut way, 77, b"kept");
        write_bytes_field(&mut way, 10, &[4]);
        let (mut group, mut data) = (Vec::new(), Vec::new());
        write_bytes_field(&mut group, 3, &way);
        write_bytes_field(&mut group, 99, b"group");
        write_bytes_field(&mut data, 2, &group);
        write_bytes_field(&mut data, 55, b"block");
        let block = Block::parse(data).unwrap();
        let (mut out, mut refs) = (Vec::new(), Vec::new());
        let locations = [Some(Location::new(-1, 1)), None];
        let mut splicer = WayLocationSplicer::default();
        splicer.read(&block, &mut refs).unwrap();
        splicer.splice(&block, &locations, &mut out).unwrap();
        for kept in [&b"kept"[..], b"group", b"block"] {
            assert!(out.windows(kept.len()).any(|w| w == kept));
        }
        let block = Block::parse(out).unwrap();
        let Some(Ok(crate::Element::Way(way))) = block.elements().next() else {
            panic!("a way")
        };
        assert_eq!(way.locations().collect::<Result<Vec<_>, _>>().unwrap(), locations);
        assert_eq!(way.refs().collect::<Result<Vec<_>, _>>().unwrap(), [1, 2]);
    }

    proptest! {
        /// Splicing gives what building way by way gives.
        #[test]
        fn splicing_is_building(
            ways in proptest::collection::vec(
                (any::<i64>(), proptest::collection::vec((any::<i64>(), any::<Option<(i32, i32)>>()), 0..20), any::<bool>()),
                0..20,
            ),
        ) {
            let mut builder = BlockBuilder::default();
            let (mut locations, mut all_refs) = (Vec::new(), Vec::new());
            for (id, nodes, located) in &ways {
                let refs: Vec<i64> = nodes.iter().map(|(id, _)| *id).collect();
                let old = vec![Some(Location::new(5, 6)); refs.len()];
                let tags = [Tag { key: b"highway", value: b"path" }];
                builder.add_way(*id, &refs, located.then_some(&old[..]), tags, &Metadata::default());
                locations.extend(nodes.iter().map(|(_, at)| {
                    at.map(|(lon, lat)| Location::new(lon, lat))
                        .filter(|at| (at.lon, at.lat) != (i32::MAX, i32::MAX))
                }));
                all_refs.extend(refs);
            }
            let mut data = Vec::new();
            builder.finish(&mut data);
            let block = Block::parse(data).unwrap();
            let mut refs = Vec::new();
            block.way_refs_into(&mut refs).unwrap();
            prop_assert_eq!(&refs, &all_refs);

            let (mut spliced, mut splicer) = (Vec::new(), WayLocationSplicer::default());
            refs.clear();
            splicer.read(&block, &mut refs).unwrap();
            prop_assert_eq!(&refs, &all_refs);
            splicer.splice(&block, &locations, &mut spliced).unwrap();
            let mut rest = locations.iter().copied();
            for element in block.elements() {
                let crate::Element::Way(way) = element.unwrap() else { unreachable!() };
                let own: Vec<_> = rest.by_ref().take(way.ref_count()).collect();
                builder.copy_way_with_locations(&way, own.into_iter()).unwrap();
            }
            let mut built = Vec::new();
            builder.finish(&mut built);
            let (spliced, built) = (Block::parse(spliced).unwrap(), Block::parse(built).unwrap());
            let facts = |block: &Block| -> Vec<_> {
                block.elements().map(|element| {
                    let crate::Element::Way(way) = element.unwrap() else { unreachable!() };
                    let tags: Vec<_> = way.tags().map(|t| t.unwrap().value.to_vec()).collect();
                    let refs: Vec<_> = way.refs().map(Result::unwrap).collect();
                    (way.id(), tags, refs, way.locations().map(Result::unwrap).collect::<Vec<_>>())
                }).collect()
            };
            prop_assert_eq!(facts(&spliced), facts(&built));
        }
    }
}
