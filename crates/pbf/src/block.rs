//! A decoded PrimitiveBlock and the views over its bytes.
//!
//! A [`Block`] owns the uncompressed protobuf bytes and where its string table and groups lie in them.
//! Elements are lazy views: [`Way`] holds slices of its message, a dense [`Node`] the running sums of its
//! columns. Nothing is allocated per element.

use std::cell::{OnceCell, RefCell};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use osmill_model::{Location, Timestamp};

use crate::dense::DenseNodes;
use crate::element::{Element, Node, RawMetadata, Relation, Tags, Way};
use crate::error::{BlockError, BlockErrorKind};
use crate::wire::{Field, Fields, Refs, Value, Varints, WireError, zigzag_decode};

/// Nanodegrees in a unit of [`Location`].
const NANODEGREES: i64 = 100;

/// A PrimitiveBlock: its uncompressed bytes and an index of its parts.
#[derive(Debug)]
pub struct Block {
    data: Vec<u8>,
    tables: Vec<Range<usize>>,
    groups: Vec<Range<usize>>,
    scale: Scale,
    strings: OnceCell<Vec<(u32, u32)>>,
    spare: RefCell<Vec<(u32, u32)>>,
    serial: u64,
}

/// How a block's numbers become locations and times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scale {
    pub granularity: i64,
    pub lat_offset: i64,
    pub lon_offset: i64,
    pub date_granularity: i64,
}

impl Default for Scale {
    fn default() -> Self {
        Scale {
            granularity: NANODEGREES,
            lat_offset: 0,
            lon_offset: 0,
            date_granularity: 1000,
        }
    }
}

impl Scale {
    fn unit(self, raw: i64, offset: i64) -> Option<i32> {
        let nanodegrees = raw.checked_mul(self.granularity)?.checked_add(offset)?;
        i32::try_from(nanodegrees / NANODEGREES).ok()
    }

    /// Whether raw coordinates are units of [`Location`].
    #[inline]
    pub fn is_plain(self) -> bool {
        self.granularity == NANODEGREES && self.lat_offset == 0 && self.lon_offset == 0
    }

    /// The location of raw coordinates; `None` for the value that libosmium writes where there is none.
    #[inline]
    pub fn location(self, lat: i64, lon: i64) -> Result<Option<Location>, BlockErrorKind> {
        let (lat, lon) = if self.is_plain() {
            (i32::try_from(lat).ok(), i32::try_from(lon).ok())
        } else {
            (self.unit(lat, self.lat_offset), self.unit(lon, self.lon_offset))
        };
        let (Some(lat), Some(lon)) = (lat, lon) else {
            return Err(BlockErrorKind::Coordinate);
        };
        Ok((lat != i32::MAX || lon != i32::MAX).then_some(Location { lon, lat }))
    }

    #[inline]
    pub fn timestamp(self, raw: i64) -> Result<Timestamp, BlockErrorKind> {
        if self.date_granularity == 1000 {
            return Ok(Timestamp(raw));
        }
        match raw.checked_mul(self.date_granularity) {
            Some(milliseconds) => Ok(Timestamp(milliseconds.div_euclid(1000))),
            None => Err(BlockErrorKind::Metadata {
                name: "timestamp",
                value: raw,
            }),
        }
    }
}

impl Default for Block {
    fn default() -> Self {
        Block::empty()
    }
}

impl Block {
    /// A block without elements.
    pub fn empty() -> Self {
        Block {
            data: Vec::new(),
            tables: Vec::new(),
            groups: Vec::new(),
            scale: Scale::default(),
            strings: OnceCell::new(),
            spare: RefCell::default(),
            serial: 0,
        }
    }

    /// The block of these uncompressed bytes.
    ///
    /// Looks at the outermost fields only: O(groups). Elements are checked as they are read.
    pub fn parse(data: Vec<u8>) -> Result<Self, BlockError> {
        let mut block = Block::empty();
        block.data = data;
        block.index()?;
        Ok(block)
    }

    /// Replaces the block's bytes by what `fill` leaves in the buffer, keeping allocations.
    /// After an error the block is empty.
    pub fn refill<E: From<BlockError>>(
        &mut self,
        fill: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.tables.clear();
        self.groups.clear();
        if let Some(mut strings) = self.strings.take() {
            strings.clear();
            *self.spare.get_mut() = strings;
        }
        let filled = fill(&mut self.data).and_then(|()| self.index().map_err(E::from));
        if filled.is_err() {
            self.tables.clear();
            self.groups.clear();
        }
        filled
    }

    fn index(&mut self) -> Result<(), BlockError> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        self.serial = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut scale = Scale::default();
        let base = self.data.as_ptr() as usize;
        let range = |bytes: &[u8]| {
            let start = bytes.as_ptr() as usize - base;
            start..start + bytes.len()
        };
        let mut fields = Fields::new(&self.data);
        while let Some((number, value)) = fields.try_next()? {
            match number {
                1 => self.tables.push(range(value.bytes()?)),
                2 => self.groups.push(range(value.bytes()?)),
                17 => scale.granularity = positive(value.varint()?)?,
                18 => scale.date_granularity = positive(value.varint()?)?,
                19 => scale.lat_offset = value.varint()? as i64,
                20 => scale.lon_offset = value.varint()? as i64,
                _ => {}
            }
        }
        self.scale = scale;
        Ok(())
    }

    /// The uncompressed bytes.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// A number that no other block of this process has had; it changes with the contents.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    pub(crate) fn scale(&self) -> Scale {
        self.scale
    }

    /// Nanodegrees in one unit of the block's coordinates.
    pub fn granularity(&self) -> i64 {
        self.scale.granularity
    }

    /// Milliseconds in one unit of the block's timestamps.
    pub fn date_granularity(&self) -> i64 {
        self.scale.date_granularity
    }

    /// The time of a raw timestamp of the block.
    pub fn timestamp(&self, raw: i64) -> Result<Timestamp, BlockError> {
        Ok(self.scale.timestamp(raw)?)
    }

    /// The metadata in an Info message of the block.
    #[inline]
    pub fn read_info(&self, info: &[u8]) -> Result<RawMetadata, BlockError> {
        Ok(RawMetadata::read(self, Some(info))?)
    }

    /// How many strings the string table has. O(strings) at the first use of a block's strings.
    pub fn string_count(&self) -> Result<usize, BlockError> {
        Ok(self.strings()?.len())
    }

    /// A string of the table. O(1) after the first use.
    #[inline]
    pub fn string(&self, index: u64) -> Result<&[u8], BlockErrorKind> {
        let strings = self.strings()?;
        match usize::try_from(index).ok().and_then(|i| strings.get(i)) {
            Some(&(start, len)) => Ok(&self.data[start as usize..(start + len) as usize]),
            None => Err(BlockErrorKind::StringIndex {
                index,
                len: strings.len(),
            }),
        }
    }

    #[inline]
    fn strings(&self) -> Result<&[(u32, u32)], WireError> {
        match self.strings.get() {
            Some(strings) => Ok(strings),
            None => self.read_strings(),
        }
    }

    #[cold]
    fn read_strings(&self) -> Result<&[(u32, u32)], WireError> {
        let mut strings = self.spare.take();
        strings.clear();
        let base = self.data.as_ptr() as usize;
        for table in &self.tables {
            let mut fields = Fields::new(&self.data[table.clone()]);
            while let Some((number, value)) = fields.try_next()? {
                if number == 1 {
                    let bytes = value.bytes()?;
                    strings.push(((bytes.as_ptr() as usize - base) as u32, bytes.len() as u32));
                }
            }
        }
        Ok(self.strings.get_or_init(|| strings))
    }

    /// The groups of the block.
    pub fn groups(&self) -> impl Iterator<Item = Group<'_>> {
        self.groups.iter().map(|range| Group {
            block: self,
            data: &self.data[range.clone()],
        })
    }

    /// All elements in the order of the bytes.
    pub fn elements(&self) -> Elements<'_> {
        Elements {
            block: self,
            groups: self.groups.iter(),
            fields: Fields::new(&[]),
            dense: None,
        }
    }

    /// The bytes of the string tables' fields, keys and lengths included, and of every other field that is
    /// not a group, in their order: what a block with other groups but the same strings has to begin with.
    pub(crate) fn frame_fields(&self, mut visit: impl FnMut(&[u8])) -> Result<(), WireError> {
        let mut fields = Fields::new(&self.data);
        while let Some(field @ Field { number, .. }) = fields.try_next_field()? {
            if number != 2 {
                visit(field.bytes());
            }
        }
        Ok(())
    }
}

fn positive(value: u64) -> Result<i64, BlockErrorKind> {
    match i32::try_from(value) {
        Ok(value) if value > 0 => Ok(i64::from(value)),
        _ => Err(BlockErrorKind::Granularity(value as i64)),
    }
}

/// A PrimitiveGroup.
#[derive(Debug, Clone, Copy)]
pub struct Group<'a> {
    block: &'a Block,
    data: &'a [u8],
}

impl<'a> Group<'a> {
    /// The wire bytes of the group's message.
    pub(crate) fn data(&self) -> &'a [u8] {
        self.data
    }

    /// What the group holds, in the order of its bytes. Dense nodes come as one item.
    pub fn items(&self) -> Items<'a> {
        Items {
            block: self.block,
            fields: Fields::new(self.data),
        }
    }
}

/// The contents of a group; see [`Group::items`].
#[derive(Debug, Clone)]
pub struct Items<'a> {
    block: &'a Block,
    fields: Fields<'a>,
}

/// One field of a group.
// Items live on the stack, one at a time; boxing the large ones would allocate per element.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, Clone)]
pub enum Item<'a> {
    /// A plain node.
    Node(Node<'a>),
    /// Many nodes in columns.
    Dense(DenseNodes<'a>),
    /// A way.
    Way(Way<'a>),
    /// A relation.
    Relation(Relation<'a>),
}

/// What kind of thing a field of a group is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RawItem {
    /// A Node message.
    Node,
    /// A DenseNodes message.
    Dense,
    /// A Way message.
    Way,
    /// A Relation message.
    Relation,
}

impl<'a> Items<'a> {
    /// The next item as the bytes of its message, unread; changesets and unknown fields are passed over.
    #[inline(always)]
    pub fn try_next_raw(&mut self) -> Result<Option<(RawItem, &'a [u8])>, BlockError> {
        while let Some((number, value)) = self.fields.try_next()? {
            let item = match number {
                1 => RawItem::Node,
                2 => RawItem::Dense,
                3 => RawItem::Way,
                4 => RawItem::Relation,
                _ => continue,
            };
            return Ok(Some((item, value.bytes()?)));
        }
        Ok(None)
    }

    /// Appends the ids in a message of [`Items::try_next_raw`], reading no more of it than is needed.
    #[inline]
    pub fn parse_ids(&self, item: RawItem, message: &'a [u8], ids: &mut Vec<i64>) -> Result<(), BlockError> {
        let mut fields = Fields::new(message);
        if item == RawItem::Dense {
            let mut column = Varints::default();
            while let Some(field @ Field { number, .. }) = fields.try_next_field()? {
                if number == 1 {
                    column.push(field)?;
                }
            }
            return Ok(column.decode_deltas_into(ids)?);
        }
        let mut id = None;
        while let Some((number, value)) = fields.try_next()? {
            if number == 1 {
                let value = value.varint()?;
                id = Some(if item == RawItem::Node {
                    zigzag_decode(value)
                } else {
                    value as i64
                });
                // Every writer puts the id first.
                break;
            }
        }
        ids.push(id.ok_or(BlockErrorKind::NoId)?);
        Ok(())
    }

    /// Id and keys, as string numbers, of a way or relation in a message of [`Items::try_next_raw`], for telling
    /// quickly that its tags are of no interest. `None` where a full look is needed.
    #[inline]
    pub fn parse_keys(&self, message: &'a [u8]) -> Option<(i64, Varints<'a>)> {
        let (mut id, mut keys) = (None, None);
        let mut fields = Fields::new(message);
        while let Ok(Some((number, value))) = fields.try_next() {
            match (number, value) {
                (1, Value::Varint(value)) => id = Some(value as i64),
                (2, Value::Bytes(bytes)) if keys.is_none() => keys = Some(bytes),
                (1 | 2, _) => return None,
                _ => {}
            }
        }
        match fields.rest() {
            [] => Some((id?, Varints::packed(keys.unwrap_or_default()))),
            _ => None,
        }
    }

    /// Id and node references of a way in a message of [`Items::try_next_raw`], reading no more of it than is needed.
    #[inline]
    pub fn parse_refs(&self, message: &'a [u8]) -> Result<(i64, Refs<'a>), BlockError> {
        let (mut id, mut refs) = (None, Varints::default());
        let mut fields = Fields::new(message);
        while let Some(field @ Field { number, value, .. }) = fields.try_next_field()? {
            match number {
                1 => id = Some(value.varint()? as i64),
                8 => refs.push(field)?,
                _ => {}
            }
        }
        Ok((
            id.ok_or(BlockErrorKind::NoId)?,
            Refs::within(refs, &self.block.data),
        ))
    }

    /// The way in a message of [`Items::try_next_raw`].
    pub fn parse_way(&self, message: &'a [u8]) -> Result<Way<'a>, BlockError> {
        Way::parse(self.block, message)
    }

    /// The dense nodes in a message of [`Items::try_next_raw`].
    pub fn parse_dense(&self, message: &'a [u8]) -> Result<DenseNodes<'a>, BlockError> {
        DenseNodes::parse(self.block, message)
    }

    /// The plain node in a message of [`Items::try_next_raw`].
    pub fn parse_node(&self, message: &'a [u8]) -> Result<Node<'a>, BlockError> {
        Node::parse(self.block, message)
    }

    /// The relation in a message of [`Items::try_next_raw`].
    pub fn parse_relation(&self, message: &'a [u8]) -> Result<Relation<'a>, BlockError> {
        Relation::parse(self.block, message)
    }

    /// The tags in a message of [`Items::try_next_raw`] that is one element's, reading no more of it than is
    /// needed. Dense nodes have theirs in [`DenseNodes::tag_column`].
    #[inline]
    pub fn parse_tags(&self, item: RawItem, message: &'a [u8]) -> Result<Tags<'a>, BlockError> {
        Tags::parse(self.block, item, message)
    }

    /// The item in a message of [`Items::try_next_raw`].
    #[inline]
    pub fn parse(&self, item: RawItem, message: &'a [u8]) -> Result<Item<'a>, BlockError> {
        Ok(match item {
            RawItem::Node => Item::Node(Node::parse(self.block, message)?),
            RawItem::Dense => Item::Dense(DenseNodes::parse(self.block, message)?),
            RawItem::Way => Item::Way(Way::parse(self.block, message)?),
            RawItem::Relation => Item::Relation(Relation::parse(self.block, message)?),
        })
    }

    /// The next item; changesets and unknown fields are passed over.
    #[inline]
    pub fn try_next(&mut self) -> Result<Option<Item<'a>>, BlockError> {
        Ok(match self.try_next_raw()? {
            Some((RawItem::Node, message)) => Some(Item::Node(Node::parse(self.block, message)?)),
            Some((RawItem::Dense, message)) => Some(Item::Dense(DenseNodes::parse(self.block, message)?)),
            Some((RawItem::Way, message)) => Some(Item::Way(Way::parse(self.block, message)?)),
            Some((RawItem::Relation, message)) => Some(Item::Relation(Relation::parse(self.block, message)?)),
            None => None,
        })
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Result<Item<'a>, BlockError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let item = self.try_next();
        if item.is_err() {
            self.fields = Fields::new(&[]);
        }
        item.transpose()
    }
}

/// The elements of a block; see [`Block::elements`].
#[derive(Debug, Clone)]
pub struct Elements<'a> {
    block: &'a Block,
    groups: std::slice::Iter<'a, Range<usize>>,
    fields: Fields<'a>,
    dense: Option<DenseNodes<'a>>,
}

impl<'a> Elements<'a> {
    #[inline]
    fn try_next(&mut self) -> Result<Option<Element<'a>>, BlockError> {
        loop {
            if let Some(dense) = &mut self.dense {
                if let Some(node) = dense.try_next()? {
                    return Ok(Some(Element::Node(node)));
                }
                self.dense = None;
            }
            let mut items = Items {
                block: self.block,
                fields: self.fields,
            };
            let item = items.try_next()?;
            self.fields = items.fields;
            match item {
                Some(Item::Dense(dense)) => self.dense = Some(dense),
                Some(Item::Node(node)) => return Ok(Some(Element::Node(node))),
                Some(Item::Way(way)) => return Ok(Some(Element::Way(way))),
                Some(Item::Relation(relation)) => return Ok(Some(Element::Relation(relation))),
                None => match self.groups.next() {
                    Some(range) => self.fields = Fields::new(&self.block.data[range.clone()]),
                    None => return Ok(None),
                },
            }
        }
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Element<'a>, BlockError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let item = self.try_next();
        if item.is_err() {
            (self.fields, self.dense, self.groups) = (Fields::new(&[]), None, [].iter());
        }
        item.transpose()
    }
}
