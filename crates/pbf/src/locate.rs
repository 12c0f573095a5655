//! Locations on ways, at wire level.
//!
//! A Way message that gets locations differs from the one before in fields 9 and 10 (`lat`, `lon`) only. The
//! rest, unknown fields included, is taken over as the bytes it is; no string is looked at.

use osmill_model::{ElementId, Kind, Location};

use crate::block::Block;
use crate::error::{BlockError, BlockErrorKind};
use crate::wire::{Fields, Varints, WireError, write_bytes_field, write_deltas, write_varint};

/// Writes blocks whose ways carry the locations of their nodes. Buffers are kept between blocks.
#[derive(Debug, Default)]
pub struct WayLocationSplicer {
    group: Vec<u8>,
    lats: Vec<u8>,
    lons: Vec<u8>,
}

/// What is looked at of a way's message.
struct Message<'a> {
    bytes: &'a [u8],
    id: i64,
    refs: Varints<'a>,
    /// Whether there is a field of locations, be it an empty one.
    has_locations: bool,
}

impl<'a> Message<'a> {
    fn walk(bytes: &'a [u8]) -> Result<Self, BlockError> {
        let (mut id, mut refs, mut has_locations) = (None, Varints::default(), false);
        let mut fields = Fields::new(bytes);
        loop {
            let from_here = fields.rest();
            let Some((number, value)) = fields.try_next()? else {
                break;
            };
            match number {
                1 => id = Some(value.varint()? as i64),
                8 => refs.push(number, value, from_here)?,
                9 | 10 => has_locations = true,
                _ => {}
            }
        }
        Ok(Message {
            bytes,
            id: id.ok_or(BlockErrorKind::NoId)?,
            refs,
            has_locations,
        })
    }
}

impl Block {
    /// Appends the node references of all ways of the block, in their order.
    pub fn way_refs_into(&self, refs: &mut Vec<i64>) -> Result<(), BlockError> {
        for group in self.groups() {
            let mut fields = Fields::new(group.data());
            while let Some((number, value)) = fields.try_next()? {
                if number == 3 {
                    let way = Message::walk(value.bytes()?)?;
                    let failed = |e: WireError| BlockErrorKind::from(e).of(ElementId::new(Kind::Way, way.id));
                    way.refs.decode_deltas_into(refs).map_err(failed)?;
                }
            }
        }
        Ok(())
    }

    /// Whether the block's coordinates are in units of [`Location`], as those on ways then are, too.
    pub fn has_plain_coordinates(&self) -> bool {
        self.scale().is_plain()
    }
}

impl WayLocationSplicer {
    /// Appends to `out` the block with these locations on its ways. `locations` has one entry for each
    /// reference of each way, as [`Block::way_refs_into`] gives them; locations that were there are replaced.
    ///
    /// O(bytes of the block).
    ///
    /// # Panics
    ///
    /// If the block's coordinates are not plain ([`Block::has_plain_coordinates`]), or `locations` has another
    /// length than the ways have references.
    pub fn splice(
        &mut self,
        block: &Block,
        locations: &[Option<Location>],
        out: &mut Vec<u8>,
    ) -> Result<(), BlockError> {
        assert!(block.has_plain_coordinates(), "the block's own units are in use");
        let mut rest = locations;
        block.frame_fields(|bytes| out.extend_from_slice(bytes))?;
        for group in block.groups() {
            self.group.clear();
            let mut fields = Fields::new(group.data());
            loop {
                let from_here = fields.rest();
                let Some((number, value)) = fields.try_next()? else {
                    break;
                };
                if number == 3 {
                    let way = Message::walk(value.bytes()?)?;
                    let own;
                    (own, rest) = rest.split_at(way.refs.count());
                    self.put_way(&way, own)?;
                } else {
                    self.group
                        .extend_from_slice(&from_here[..from_here.len() - fields.rest().len()]);
                }
            }
            write_bytes_field(out, 2, &self.group);
        }
        assert!(rest.is_empty(), "one location for each reference");
        Ok(())
    }

    /// Appends the way as a field of the group.
    fn put_way(&mut self, way: &Message<'_>, locations: &[Option<Location>]) -> Result<(), BlockError> {
        let message = way.bytes;
        self.lats.clear();
        self.lons.clear();
        let nowhere = Location::new(i32::MAX, i32::MAX);
        let locations = locations.iter().map(|at| at.unwrap_or(nowhere));
        write_deltas(&mut self.lats, 0, locations.clone().map(|at| i64::from(at.lat)));
        write_deltas(&mut self.lons, 0, locations.map(|at| i64::from(at.lon)));
        let columns = [(9, &self.lats), (10, &self.lons)].map(|(field, column)| {
            let len = column.len();
            // One byte for the key, the length, the column; nothing for an empty one.
            (
                field,
                column,
                if len == 0 {
                    0
                } else {
                    1 + varint_len(len as u64) + len
                },
            )
        });
        let added = columns.iter().map(|(_, _, len)| len).sum::<usize>();
        let group = &mut self.group;
        let mut put_head = |len: usize| {
            write_varint(group, 3 << 3 | 2);
            write_varint(group, (len + added) as u64);
        };
        if way.has_locations {
            let mut kept = Vec::with_capacity(message.len());
            let mut fields = Fields::new(message);
            loop {
                let from_here = fields.rest();
                let Some((number, _)) = fields.try_next()? else {
                    break;
                };
                if number != 9 && number != 10 {
                    kept.extend_from_slice(&from_here[..from_here.len() - fields.rest().len()]);
                }
            }
            put_head(kept.len());
            group.extend_from_slice(&kept);
        } else {
            put_head(message.len());
            group.extend_from_slice(message);
        }
        for (field, column, len) in columns {
            if len > 0 {
                write_bytes_field(group, field, column);
            }
        }
        Ok(())
    }
}

/// Bytes of a varint.
fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::BlockBuilder;
    use crate::wire::write_varint_field;
    use osmill_model::{Metadata, Tag};
    use proptest::prelude::*;

    #[test]
    fn lengths_of_varints() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1 << shift) - 1, u64::MAX >> shift] {
                let mut bytes = Vec::new();
                write_varint(&mut bytes, value);
                assert_eq!(varint_len(value), bytes.len(), "{value}");
            }
        }
    }

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
        let mut out = Vec::new();
        let locations = [Some(Location::new(-1, 1)), None];
        WayLocationSplicer::default()
            .splice(&block, &locations, &mut out)
            .unwrap();
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

            let mut spliced = Vec::new();
            WayLocationSplicer::default().splice(&block, &locations, &mut spliced).unwrap();
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
