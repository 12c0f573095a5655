//! A decoded PrimitiveBlock and the views over its bytes.
//!
//! A [`Block`] owns the uncompressed protobuf bytes and where its string table and groups lie in them.
//! Elements are lazy views: [`Way`] holds slices of its message, a dense [`Node`] the running sums of its
//! columns. Nothing is allocated per element.

use std::cell::{OnceCell, RefCell};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use osmill_model::{ElementId, Kind, Location, Member, Metadata, Tag, Timestamp};

use crate::dense::DenseNodes;
use crate::error::{BlockError, BlockErrorKind};
use crate::wire::{Deltas, Fields, Varints, WireError, zigzag_decode};

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
        loop {
            let from_here = fields.rest();
            let Some((number, _)) = fields.try_next()? else {
                return Ok(());
            };
            if number != 2 {
                visit(&from_here[..from_here.len() - fields.rest().len()]);
            }
        }
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
            loop {
                let from_here = fields.rest();
                let Some((number, value)) = fields.try_next()? else {
                    break;
                };
                if number == 1 {
                    column.push(number, value, from_here)?;
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

/// A node, way or relation.
// See [`Item`].
#[allow(clippy::large_enum_variant)]
#[derive(Debug, Clone)]
pub enum Element<'a> {
    /// A node.
    Node(Node<'a>),
    /// A way.
    Way(Way<'a>),
    /// A relation.
    Relation(Relation<'a>),
}

impl<'a> Element<'a> {
    /// Kind and id.
    #[inline]
    pub fn element_id(&self) -> ElementId {
        ElementId::new(self.kind(), self.id())
    }

    /// The kind.
    #[inline]
    pub fn kind(&self) -> Kind {
        match self {
            Element::Node(_) => Kind::Node,
            Element::Way(_) => Kind::Way,
            Element::Relation(_) => Kind::Relation,
        }
    }

    /// The id.
    #[inline]
    pub fn id(&self) -> i64 {
        match self {
            Element::Node(node) => node.id,
            Element::Way(way) => way.id,
            Element::Relation(relation) => relation.id,
        }
    }

    /// The same element without its tags. O(1).
    pub fn without_tags(mut self) -> Self {
        match &mut self {
            Element::Node(node) => node.tags.clear(),
            Element::Way(way) => way.tags.clear(),
            Element::Relation(relation) => relation.tags.clear(),
        }
        self
    }

    /// The tags.
    pub fn tags(&self) -> Tags<'a> {
        match self {
            Element::Node(node) => node.tags(),
            Element::Way(way) => way.tags(),
            Element::Relation(relation) => relation.tags(),
        }
    }

    /// The metadata.
    pub fn metadata(&self) -> Result<Metadata<'a>, BlockError> {
        self.raw_metadata()?
            .resolve(self.block())
            .map_err(|e| e.of(self.element_id()))
    }

    /// The metadata without looking up the name of the user.
    pub fn raw_metadata(&self) -> Result<RawMetadata, BlockError> {
        match self {
            Element::Node(node) => node.raw_metadata(),
            Element::Way(way) => RawMetadata::read(way.block, way.info),
            Element::Relation(relation) => RawMetadata::read(relation.block, relation.info),
        }
        .map_err(|e| e.of(self.element_id()))
    }

    /// The version, without reading the rest of the metadata.
    pub fn version(&self) -> Result<Option<i32>, BlockError> {
        Ok(self.raw_metadata()?.version)
    }

    /// The block that holds the element.
    pub fn block(&self) -> &'a Block {
        match self {
            Element::Node(node) => node.block,
            Element::Way(way) => way.block,
            Element::Relation(relation) => relation.block,
        }
    }
}

/// Metadata with the user as a string number, not yet looked up; see [`Metadata`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RawMetadata {
    /// The version.
    pub version: Option<i32>,
    /// When this version was made.
    pub timestamp: Option<Timestamp>,
    /// The changeset that made it.
    pub changeset: Option<i64>,
    /// The number of the user.
    pub uid: Option<i32>,
    /// The name of the user as a string number of the block.
    pub user_sid: Option<u64>,
    /// Whether the element exists.
    pub visible: Option<bool>,
}

impl RawMetadata {
    #[inline]
    pub(crate) fn set_version(&mut self, raw: i64) -> Result<(), BlockErrorKind> {
        // -1 is what some writers put where they know none.
        self.version = match raw {
            -1 => None,
            0.. => Some(i32::try_from(raw).map_err(|_| out_of_range("version", raw))?),
            _ => return Err(out_of_range("version", raw)),
        };
        Ok(())
    }

    #[inline]
    pub(crate) fn set_changeset(&mut self, raw: i64) -> Result<(), BlockErrorKind> {
        self.changeset = match raw {
            -1 => None,
            0..=0xffff_ffff => Some(raw),
            _ => return Err(out_of_range("changeset", raw)),
        };
        Ok(())
    }

    #[inline]
    pub(crate) fn set_uid(&mut self, raw: i64) -> Result<(), BlockErrorKind> {
        self.uid = Some(i32::try_from(raw).map_err(|_| out_of_range("uid", raw))?);
        Ok(())
    }

    pub(crate) fn read(block: &Block, info: Option<&[u8]>) -> Result<Self, BlockErrorKind> {
        let mut metadata = RawMetadata::default();
        let Some(info) = info else { return Ok(metadata) };
        let mut fields = Fields::new(info);
        while let Some((number, value)) = fields.try_next()? {
            match number {
                1 => metadata.set_version(value.varint()? as i64)?,
                2 => metadata.timestamp = Some(block.scale.timestamp(value.varint()? as i64)?),
                3 => metadata.set_changeset(value.varint()? as i64)?,
                4 => metadata.set_uid(value.varint()? as i64)?,
                5 => metadata.user_sid = Some(value.varint()?),
                6 => metadata.visible = Some(value.varint()? != 0),
                _ => {}
            }
        }
        Ok(metadata)
    }

    pub(crate) fn resolve(self, block: &Block) -> Result<Metadata<'_>, BlockErrorKind> {
        Ok(Metadata {
            version: self.version,
            timestamp: self.timestamp,
            changeset: self.changeset,
            uid: self.uid,
            user: self.user_sid.map(|sid| block.string(sid)).transpose()?,
            visible: self.visible,
        })
    }
}

fn out_of_range(name: &'static str, value: i64) -> BlockErrorKind {
    BlockErrorKind::Metadata { name, value }
}

/// A node.
#[derive(Debug, Clone)]
pub struct Node<'a> {
    pub(crate) block: &'a Block,
    pub(crate) id: i64,
    pub(crate) lat: i64,
    pub(crate) lon: i64,
    pub(crate) has_location: bool,
    pub(crate) tags: RawTags<'a>,
    pub(crate) metadata: MetadataSource<'a>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum MetadataSource<'a> {
    /// A plain node: its Info and its whole message.
    Info(Option<&'a [u8]>, &'a [u8]),
    Dense(RawMetadata),
}

impl<'a> Node<'a> {
    pub(crate) fn parse(block: &'a Block, message: &'a [u8]) -> Result<Self, BlockError> {
        let (mut id, mut lat, mut lon, mut info) = (None, None, None, None);
        let mut tags = (Varints::default(), Varints::default());
        let mut fields = Fields::new(message);
        loop {
            let from_here = fields.rest();
            let Some((number, value)) = fields.try_next()? else {
                break;
            };
            match number {
                1 => id = Some(zigzag_decode(value.varint()?)),
                2 => tags.0.push(number, value, from_here)?,
                3 => tags.1.push(number, value, from_here)?,
                4 => info = Some(value.bytes()?),
                8 => lat = Some(zigzag_decode(value.varint()?)),
                9 => lon = Some(zigzag_decode(value.varint()?)),
                _ => {}
            }
        }
        Ok(Node {
            block,
            id: id.ok_or(BlockErrorKind::NoId)?,
            lat: lat.unwrap_or_default(),
            lon: lon.unwrap_or_default(),
            has_location: lat.is_some() && lon.is_some(),
            tags: RawTags::Pairs {
                keys: tags.0,
                values: tags.1,
            },
            metadata: MetadataSource::Info(info, message),
        })
    }

    /// The id.
    #[inline]
    pub fn id(&self) -> i64 {
        self.id
    }

    /// Where the node is. `None` for deleted nodes and where the file says that it does not know.
    #[inline]
    pub fn location(&self) -> Result<Option<Location>, BlockError> {
        let fail = |e: BlockErrorKind| e.of(ElementId::new(Kind::Node, self.id));
        if !self.has_location || self.raw_metadata().map_err(fail)?.visible == Some(false) {
            return Ok(None);
        }
        self.block.scale.location(self.lat, self.lon).map_err(fail)
    }

    /// What stands in the columns of the location, for a deleted node, too: change files may tell where it was.
    /// Some writers put 0/0 there.
    pub fn stored_location(&self) -> Result<Option<Location>, BlockError> {
        if !self.has_location {
            return Ok(None);
        }
        let location = self.block.scale.location(self.lat, self.lon);
        location.map_err(|e| e.of(ElementId::new(Kind::Node, self.id)))
    }

    /// The tags.
    pub fn tags(&self) -> Tags<'a> {
        Tags {
            block: self.block,
            element: ElementId::new(Kind::Node, self.id),
            raw: self.tags,
        }
    }

    /// The wire bytes of a plain node's message; dense nodes have none.
    pub fn message(&self) -> Option<&'a [u8]> {
        match self.metadata {
            MetadataSource::Info(_, message) => Some(message),
            MetadataSource::Dense(_) => None,
        }
    }

    #[inline]
    pub(crate) fn raw_metadata(&self) -> Result<RawMetadata, BlockErrorKind> {
        match self.metadata {
            MetadataSource::Info(info, _) => RawMetadata::read(self.block, info),
            MetadataSource::Dense(metadata) => Ok(metadata),
        }
    }
}

/// A way.
#[derive(Debug, Clone)]
pub struct Way<'a> {
    pub(crate) block: &'a Block,
    pub(crate) id: i64,
    pub(crate) tags: RawTags<'a>,
    pub(crate) info: Option<&'a [u8]>,
    pub(crate) refs: Varints<'a>,
    pub(crate) lats: Varints<'a>,
    pub(crate) lons: Varints<'a>,
    pub(crate) message: &'a [u8],
}

impl<'a> Way<'a> {
    pub(crate) fn parse(block: &'a Block, message: &'a [u8]) -> Result<Self, BlockError> {
        let (mut id, mut info) = (None, None);
        let (mut keys, mut values) = (Varints::default(), Varints::default());
        let (mut refs, mut lats, mut lons) = (Varints::default(), Varints::default(), Varints::default());
        let mut fields = Fields::new(message);
        loop {
            let from_here = fields.rest();
            let Some((number, value)) = fields.try_next()? else {
                break;
            };
            match number {
                1 => id = Some(value.varint()? as i64),
                2 => keys.push(number, value, from_here)?,
                3 => values.push(number, value, from_here)?,
                4 => info = Some(value.bytes()?),
                8 => refs.push(number, value, from_here)?,
                9 => lats.push(number, value, from_here)?,
                10 => lons.push(number, value, from_here)?,
                _ => {}
            }
        }
        Ok(Way {
            block,
            id: id.ok_or(BlockErrorKind::NoId)?,
            tags: RawTags::Pairs { keys, values },
            info,
            refs,
            lats,
            lons,
            message,
        })
    }

    /// The id.
    #[inline]
    pub fn id(&self) -> i64 {
        self.id
    }

    /// The ids of the way's nodes in order.
    #[inline]
    pub fn refs(&self) -> Deltas<'a> {
        Deltas::new(self.refs)
    }

    /// How many node references the way has.
    pub fn ref_count(&self) -> usize {
        self.refs.count()
    }

    /// Whether the way carries locations of its nodes.
    pub fn has_locations(&self) -> bool {
        !self.lats.is_empty() || !self.lons.is_empty()
    }

    /// Whether the message has a field of locations, be it an empty one.
    pub(crate) fn has_location_fields(&self) -> bool {
        self.lats.is_present() || self.lons.is_present()
    }

    /// The locations that the way carries, one for each reference. Where it carries fewer, `None` follows.
    pub fn locations(&self) -> WayLocations<'a> {
        WayLocations {
            way: ElementId::new(Kind::Way, self.id),
            scale: self.block.scale,
            rest: self.refs,
            lats: Deltas::new(self.lats),
            lons: Deltas::new(self.lons),
        }
    }

    /// The tags.
    pub fn tags(&self) -> Tags<'a> {
        Tags {
            block: self.block,
            element: ElementId::new(Kind::Way, self.id),
            raw: self.tags,
        }
    }

    /// The wire bytes of the way's message.
    pub fn message(&self) -> &'a [u8] {
        self.message
    }
}

/// The locations on a way; see [`Way::locations`].
#[derive(Debug, Clone)]
pub struct WayLocations<'a> {
    way: ElementId,
    scale: Scale,
    rest: Varints<'a>,
    lats: Deltas<'a>,
    lons: Deltas<'a>,
}

impl Iterator for WayLocations<'_> {
    type Item = Result<Option<Location>, BlockError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut read = || -> Result<Option<Option<Location>>, BlockErrorKind> {
            if self.rest.try_next()?.is_none() {
                return Ok(None);
            }
            match (self.lats.try_next()?, self.lons.try_next()?) {
                (Some(lat), Some(lon)) => Ok(Some(self.scale.location(lat, lon)?)),
                (None, None) => Ok(Some(None)),
                _ => Err(BlockErrorKind::Lengths {
                    column: "lon",
                    expected: self.lats.column().count(),
                    found: self.lons.column().count(),
                }),
            }
        };
        let item = read().map_err(|e| e.of(self.way));
        if item.is_err() {
            self.rest = Varints::default();
        }
        item.transpose()
    }
}

/// A relation.
#[derive(Debug, Clone)]
pub struct Relation<'a> {
    pub(crate) block: &'a Block,
    pub(crate) id: i64,
    pub(crate) tags: RawTags<'a>,
    pub(crate) info: Option<&'a [u8]>,
    pub(crate) roles: Varints<'a>,
    pub(crate) ids: Varints<'a>,
    pub(crate) kinds: Varints<'a>,
    pub(crate) message: &'a [u8],
}

impl<'a> Relation<'a> {
    pub(crate) fn parse(block: &'a Block, message: &'a [u8]) -> Result<Self, BlockError> {
        let (mut id, mut info) = (None, None);
        let (mut keys, mut values) = (Varints::default(), Varints::default());
        let (mut roles, mut ids, mut kinds) = (Varints::default(), Varints::default(), Varints::default());
        let mut fields = Fields::new(message);
        loop {
            let from_here = fields.rest();
            let Some((number, value)) = fields.try_next()? else {
                break;
            };
            match number {
                1 => id = Some(value.varint()? as i64),
                2 => keys.push(number, value, from_here)?,
                3 => values.push(number, value, from_here)?,
                4 => info = Some(value.bytes()?),
                8 => roles.push(number, value, from_here)?,
                9 => ids.push(number, value, from_here)?,
                10 => kinds.push(number, value, from_here)?,
                _ => {}
            }
        }
        Ok(Relation {
            block,
            id: id.ok_or(BlockErrorKind::NoId)?,
            tags: RawTags::Pairs { keys, values },
            info,
            roles,
            ids,
            kinds,
            message,
        })
    }

    /// The id.
    #[inline]
    pub fn id(&self) -> i64 {
        self.id
    }

    /// The members in order.
    pub fn members(&self) -> Members<'a> {
        Members {
            relation: self.clone(),
            ids: Deltas::new(self.ids),
        }
    }

    /// The members in order, without their roles: no string is looked at.
    pub fn member_elements(&self) -> impl Iterator<Item = Result<ElementId, BlockError>> + use<'a> {
        let mut members = self.members();
        std::iter::from_fn(move || {
            let element = members.try_next_raw().transpose()?;
            if element.is_err() {
                (members.ids, members.relation.kinds, members.relation.roles) = Default::default();
            }
            let relation = ElementId::new(Kind::Relation, members.relation.id);
            Some(element.map(|(element, _)| element).map_err(|e| e.of(relation)))
        })
    }

    /// How many members the relation has.
    pub fn member_count(&self) -> usize {
        self.ids.count()
    }

    /// The tags.
    pub fn tags(&self) -> Tags<'a> {
        Tags {
            block: self.block,
            element: ElementId::new(Kind::Relation, self.id),
            raw: self.tags,
        }
    }

    /// The wire bytes of the relation's message.
    pub fn message(&self) -> &'a [u8] {
        self.message
    }
}

/// The members of a relation; see [`Relation::members`].
#[derive(Debug, Clone)]
pub struct Members<'a> {
    relation: Relation<'a>,
    ids: Deltas<'a>,
}

impl<'a> Members<'a> {
    /// The next member with its role as a string number.
    #[inline]
    pub(crate) fn try_next_raw(&mut self) -> Result<Option<(ElementId, u64)>, BlockErrorKind> {
        let (id, kind) = (self.ids.try_next()?, self.relation.kinds.try_next()?);
        let role = self.relation.roles.try_next()?;
        match (id, kind, role) {
            (None, None, None) => Ok(None),
            (Some(id), Some(kind), Some(role)) => {
                let kind = Kind::from_index(kind).ok_or(BlockErrorKind::MemberType(kind))?;
                Ok(Some((ElementId::new(kind, id), role)))
            }
            _ => Err(self.lengths()),
        }
    }

    #[cold]
    fn lengths(&self) -> BlockErrorKind {
        // What is left of each column tells which one is short.
        let left = [
            self.ids.column().count() as isize,
            self.relation.kinds.count() as isize,
            self.relation.roles.count() as isize,
        ];
        let (column, found) = if left[1] != left[0] {
            ("types", left[1])
        } else {
            ("roles_sid", left[2])
        };
        BlockErrorKind::Lengths {
            column,
            expected: left[0] as usize,
            found: found as usize,
        }
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = Result<Member<'a>, BlockError>;

    fn next(&mut self) -> Option<Self::Item> {
        let block = self.relation.block;
        let item = self
            .try_next_raw()
            .and_then(|member| {
                member
                    .map(|(element, role)| {
                        Ok(Member {
                            element,
                            role: block.string(role)?,
                        })
                    })
                    .transpose()
            })
            .map_err(|e| e.of(ElementId::new(Kind::Relation, self.relation.id)));
        if item.is_err() {
            (self.ids, self.relation.kinds, self.relation.roles) = Default::default();
        }
        item.transpose()
    }
}

/// Where an element's tags lie.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RawTags<'a> {
    /// Keys and values in two columns.
    Pairs { keys: Varints<'a>, values: Varints<'a> },
    /// Keys and values in turn, up to a zero or the end: dense nodes.
    Dense(Varints<'a>),
}

impl RawTags<'_> {
    /// The next tag as string numbers.
    #[inline]
    pub fn try_next(&mut self) -> Result<Option<(u64, u64)>, BlockErrorKind> {
        match self {
            RawTags::Pairs { keys, values } => match (keys.try_next()?, values.try_next()?) {
                (Some(key), Some(value)) => Ok(Some((key, value))),
                (None, None) => Ok(None),
                (key, _) => {
                    let short = usize::from(key.is_some());
                    Err(BlockErrorKind::Lengths {
                        column: "vals",
                        expected: keys.count() + short,
                        found: values.count() + 1 - short,
                    })
                }
            },
            RawTags::Dense(column) => match column.try_next()? {
                None | Some(0) => {
                    *column = Varints::default();
                    Ok(None)
                }
                Some(key) => match column.try_next()? {
                    Some(value) => Ok(Some((key, value))),
                    None => Err(BlockErrorKind::Lengths {
                        column: "keys_vals",
                        expected: 2,
                        found: 1,
                    }),
                },
            },
        }
    }

    pub fn clear(&mut self) {
        *self = RawTags::Dense(Varints::default());
    }
}

/// The tags of an element, in the order of the file.
#[derive(Debug, Clone)]
pub struct Tags<'a> {
    block: &'a Block,
    element: ElementId,
    raw: RawTags<'a>,
}

impl Tags<'_> {
    /// Whether there is no tag.
    pub fn is_empty(&self) -> bool {
        match self.raw {
            RawTags::Pairs { keys, .. } => keys.is_empty(),
            RawTags::Dense(mut column) => matches!(column.try_next(), Ok(None | Some(0))),
        }
    }

    /// How many tags there are; for ways and relations without reading them.
    pub fn count_tags(&self) -> Result<usize, BlockError> {
        match self.raw {
            RawTags::Pairs { keys, values } => {
                let (expected, found) = (keys.count(), values.count());
                if found != expected {
                    let lengths = BlockErrorKind::Lengths {
                        column: "vals",
                        expected,
                        found,
                    };
                    return Err(lengths.of(self.element));
                }
                Ok(found)
            }
            RawTags::Dense(_) => {
                let (mut tags, mut count) = (self.clone(), 0);
                while tags.try_next_ids()?.is_some() {
                    count += 1;
                }
                Ok(count)
            }
        }
    }

    /// The next tag as string numbers of the block.
    #[inline]
    pub fn try_next_ids(&mut self) -> Result<Option<(u64, u64)>, BlockError> {
        self.raw.try_next().map_err(|e| e.of(self.element))
    }
}

impl<'a> Iterator for Tags<'a> {
    type Item = Result<Tag<'a>, BlockError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let block = self.block;
        let item = self.raw.try_next().and_then(|ids| {
            ids.map(|(key, value)| {
                Ok(Tag {
                    key: block.string(key)?,
                    value: block.string(value)?,
                })
            })
            .transpose()
        });
        if item.is_err() {
            self.raw.clear();
        }
        item.map_err(|e| e.of(self.element)).transpose()
    }
}
