//! Views of elements over the bytes of a block.

use osmill_model::{ElementId, Kind, Location, Member, Metadata, Tag, Timestamp};

use crate::block::{Block, RawItem, Scale};
use crate::error::{BlockError, BlockErrorKind};
use crate::wire::{Deltas, Field, Fields, Value, Varints, WireError, read_varint, zigzag_decode};

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

    #[inline]
    pub(crate) fn read(block: &Block, info: Option<&[u8]>) -> Result<Self, BlockErrorKind> {
        let mut metadata = RawMetadata::default();
        let Some(info) = info else { return Ok(metadata) };
        let mut rest = info;
        // As every writer has it: numbers in fields of numbers up to 15.
        while let [key, tail @ ..] = rest
            && key & 0x87 == 0
        {
            rest = tail;
            let value = read_varint(&mut rest)?;
            metadata.set(block, u32::from(key >> 3), Value::Varint(value))?;
        }
        let mut fields = Fields::new(rest);
        while let Some((number, value)) = fields.try_next()? {
            metadata.set(block, number, value)?;
        }
        Ok(metadata)
    }

    #[inline(always)]
    fn set(&mut self, block: &Block, number: u32, value: Value<'_>) -> Result<(), BlockErrorKind> {
        match number {
            0 => return Err(WireError::WireType(0).into()),
            1 => self.set_version(value.varint()? as i64)?,
            2 => self.timestamp = Some(block.scale().timestamp(value.varint()? as i64)?),
            3 => self.set_changeset(value.varint()? as i64)?,
            4 => self.set_uid(value.varint()? as i64)?,
            5 => self.user_sid = Some(value.varint()?),
            6 => self.visible = Some(value.varint()? != 0),
            _ => {}
        }
        Ok(())
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
        while let Some(field @ Field { number, value, .. }) = fields.try_next_field()? {
            match number {
                1 => id = Some(zigzag_decode(value.varint()?)),
                2 => tags.0.push(field)?,
                3 => tags.1.push(field)?,
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
        self.block.scale().location(self.lat, self.lon).map_err(fail)
    }

    /// What stands in the columns of the location, for a deleted node, too: change files may tell where it was.
    /// Some writers put 0/0 there.
    pub fn stored_location(&self) -> Result<Option<Location>, BlockError> {
        if !self.has_location {
            return Ok(None);
        }
        let location = self.block.scale().location(self.lat, self.lon);
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

/// What ways and relations have in common: id, tags, Info, and the columns of fields 8 to 10.
type MessageParts<'a> = (i64, RawTags<'a>, Option<&'a [u8]>, [Varints<'a>; 3]);

#[inline(always)]
fn parse_message(message: &[u8]) -> Result<MessageParts<'_>, BlockError> {
    let (mut id, mut info) = (None, None);
    let (mut keys, mut values) = (Varints::default(), Varints::default());
    let mut columns = [Varints::default(); 3];
    let mut fields = Fields::new(message);
    while let Some(field @ Field { number, value, .. }) = fields.try_next_field()? {
        match number {
            1 => id = Some(value.varint()? as i64),
            2 => keys.push(field)?,
            3 => values.push(field)?,
            4 => info = Some(value.bytes()?),
            8 => columns[0].push(field)?,
            9 => columns[1].push(field)?,
            10 => columns[2].push(field)?,
            _ => {}
        }
    }
    let id = id.ok_or(BlockErrorKind::NoId)?;
    Ok((id, RawTags::Pairs { keys, values }, info, columns))
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
        let (id, tags, info, [refs, lats, lons]) = parse_message(message)?;
        Ok(Way {
            block,
            id,
            tags,
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

    /// The locations that the way carries, one for each reference. Where it carries fewer, `None` follows.
    pub fn locations(&self) -> WayLocations<'a> {
        WayLocations {
            way: ElementId::new(Kind::Way, self.id),
            scale: self.block.scale(),
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
        let (id, tags, info, [roles, ids, kinds]) = parse_message(message)?;
        Ok(Relation {
            block,
            id,
            tags,
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

impl<'a> Tags<'a> {
    /// Finds the two columns of tags in the message of an element.
    #[inline]
    pub(crate) fn parse(block: &'a Block, item: RawItem, message: &'a [u8]) -> Result<Self, BlockError> {
        let kind = match item {
            RawItem::Node | RawItem::Dense => Kind::Node,
            RawItem::Way => Kind::Way,
            RawItem::Relation => Kind::Relation,
        };
        let (mut id, mut keys, mut values) = (0, Varints::default(), Varints::default());
        let mut fields = Fields::new(message);
        while let Some(field @ Field { number, value, .. }) = fields.try_next_field()? {
            match number {
                1 if item == RawItem::Node => id = zigzag_decode(value.varint()?),
                1 => id = value.varint()? as i64,
                2 => keys.push(field)?,
                3 => values.push(field)?,
                _ => {}
            }
        }
        Ok(Tags {
            block,
            element: ElementId::new(kind, id),
            raw: RawTags::Pairs { keys, values },
        })
    }

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
