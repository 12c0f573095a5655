//! Dense nodes: many nodes as delta-coded columns.

use osmill_model::{BoundingBox, ElementId, Kind, Location};

use crate::arrays::NodeArrays;
use crate::block::{Block, Item, RawItem, Scale};
use crate::element::{MetadataSource, Node, RawMetadata, RawTags};
use crate::error::{BlockError, BlockErrorKind};
use crate::index::{Beside, IndexBuilder, IndexRecord};
use crate::wire::{Deltas, Field, Fields, Varints, WireError};

/// The DenseNodes message of a group: a cursor over its nodes, and its columns.
#[derive(Debug, Clone)]
pub struct DenseNodes<'a> {
    block: &'a Block,
    count: usize,
    ids: Deltas<'a>,
    lats: Deltas<'a>,
    lons: Deltas<'a>,
    tags: Varints<'a>,
    info: Option<DenseInfo<'a>>,
}

/// The metadata columns of dense nodes, as they are in the file. An absent column is empty; any other has a
/// value for each node.
#[derive(Debug, Clone, Copy, Default)]
pub struct DenseInfo<'a> {
    /// Versions, not delta-coded; -1 where none is known.
    pub versions: Varints<'a>,
    /// Times in units of the block's date granularity.
    pub timestamps: Deltas<'a>,
    /// Changeset numbers.
    pub changesets: Deltas<'a>,
    /// User numbers.
    pub uids: Deltas<'a>,
    /// User names as string numbers.
    pub user_sids: Deltas<'a>,
    /// 0 where the node is deleted.
    pub visibles: Varints<'a>,
}

impl<'a> DenseInfo<'a> {
    fn parse(message: &'a [u8], count: usize) -> Result<Self, BlockError> {
        let mut columns = [Varints::default(); 6];
        let mut fields = Fields::new(message);
        while let Some(field @ Field { number, .. }) = fields.try_next_field()? {
            if let Some(column) = columns.get_mut((number as usize).wrapping_sub(1)) {
                column.push(field)?;
            }
        }
        const NAMES: [&str; 6] = ["version", "timestamp", "changeset", "uid", "user_sid", "visible"];
        for (column, name) in columns.iter().zip(NAMES) {
            let found = column.count();
            if found != 0 && found != count {
                return Err(BlockErrorKind::Lengths {
                    column: name,
                    expected: count,
                    found,
                }
                .into());
            }
        }
        let [versions, timestamps, changesets, uids, user_sids, visibles] = columns;
        Ok(DenseInfo {
            versions,
            timestamps: Deltas::new(timestamps),
            changesets: Deltas::new(changesets),
            uids: Deltas::new(uids),
            user_sids: Deltas::new(user_sids),
            visibles,
        })
    }

    #[inline]
    fn next(&mut self) -> Result<DenseRow, WireError> {
        Ok(DenseRow {
            version: self.versions.try_next()?,
            timestamp: self.timestamps.try_next()?,
            changeset: self.changesets.try_next()?,
            uid: self.uids.try_next()?,
            user_sid: self.user_sids.try_next()?,
            visible: self.visibles.try_next()?,
        })
    }
}

/// The metadata of one dense node as the columns have it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DenseRow {
    pub version: Option<u64>,
    pub timestamp: Option<i64>,
    pub changeset: Option<i64>,
    pub uid: Option<i64>,
    pub user_sid: Option<i64>,
    pub visible: Option<u64>,
}

impl DenseRow {
    #[inline]
    fn metadata(self, block: &Block) -> Result<RawMetadata, BlockErrorKind> {
        let mut metadata = RawMetadata::default();
        if let Some(raw) = self.version {
            metadata.set_version(raw as i64)?;
        }
        if let Some(raw) = self.timestamp {
            metadata.timestamp = Some(block.scale().timestamp(raw)?);
        }
        if let Some(raw) = self.changeset {
            metadata.set_changeset(raw)?;
        }
        if let Some(raw) = self.uid {
            metadata.set_uid(raw)?;
        }
        metadata.user_sid = self.user_sid.map(|sid| sid as u64);
        metadata.visible = self.visible.map(|visible| visible != 0);
        Ok(metadata)
    }
}

impl<'a> DenseNodes<'a> {
    /// Finds the columns and checks that they are equally long. O(bytes) by counting only.
    pub(crate) fn parse(block: &'a Block, message: &'a [u8]) -> Result<Self, BlockError> {
        let (mut ids, mut lats, mut lons) = (Varints::default(), Varints::default(), Varints::default());
        let (mut tags, mut info) = (Varints::default(), None);
        let mut fields = Fields::new(message);
        while let Some(field @ Field { number, value, .. }) = fields.try_next_field()? {
            match number {
                1 => ids.push(field)?,
                5 => info = Some(value.bytes()?),
                8 => lats.push(field)?,
                9 => lons.push(field)?,
                10 => tags.push(field)?,
                _ => {}
            }
        }
        let count = ids.count();
        for (column, values) in [("lat", &lats), ("lon", &lons)] {
            let found = values.count();
            if found != count {
                return Err(BlockErrorKind::Lengths {
                    column,
                    expected: count,
                    found,
                }
                .into());
            }
        }
        let info = info.map(|message| DenseInfo::parse(message, count)).transpose()?;
        Ok(DenseNodes {
            block,
            count,
            ids: Deltas::new(ids),
            lats: Deltas::new(lats),
            lons: Deltas::new(lons),
            tags,
            info,
        })
    }

    /// The block that the message is of.
    pub fn block(&self) -> &'a Block {
        self.block
    }

    pub(crate) fn scale(&self) -> Scale {
        self.block.scale()
    }

    /// How many nodes the message holds.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether the message holds no node.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The column of ids.
    pub fn ids(&self) -> Deltas<'a> {
        self.ids
    }

    /// An error as that of the node with this number. O(nodes).
    fn error_of(&self, number: usize, what: BlockErrorKind) -> BlockError {
        let mut ids = self.ids;
        match (0..=number).try_fold(None, |_, _| ids.try_next().map(Some)) {
            Ok(Some(Some(id))) => what.of(ElementId::new(Kind::Node, id)),
            _ => what.into(),
        }
    }

    /// The columns of latitudes and longitudes, in the block's own units.
    pub fn raw_locations(&self) -> (Deltas<'a>, Deltas<'a>) {
        (self.lats, self.lons)
    }

    /// The metadata columns.
    pub fn info(&self) -> Option<DenseInfo<'a>> {
        self.info
    }

    /// The column of tags: for each node string numbers of keys and values in turn, then 0.
    pub fn tag_column(&self) -> Varints<'a> {
        self.tags
    }

    /// Whether no node has a tag.
    pub fn is_untagged(&self) -> bool {
        match self.tags.as_packed() {
            Some(bytes) => bytes.iter().all(|byte| *byte == 0),
            None => false,
        }
    }

    /// Calls `visit` with the number, from 0, of each node that has a tag.
    pub fn for_each_tagged(&self, mut visit: impl FnMut(usize)) -> Result<(), BlockError> {
        let (mut tags, mut at) = (self.tags, 0);
        while at < self.count && !tags.is_empty() {
            at += tags.skip_zeros(self.count - at);
            let before = tags;
            skip_tags(&mut tags)?;
            if at < self.count && !matches!({ before }.try_next(), Ok(None | Some(0))) {
                visit(at);
            }
            at += 1;
        }
        Ok(())
    }

    /// Whether there is any metadata column.
    pub fn has_metadata(&self) -> bool {
        self.info.is_some_and(|info| {
            info.versions.is_present()
                || info.timestamps.column().is_present()
                || info.changesets.column().is_present()
                || info.uids.column().is_present()
                || info.user_sids.column().is_present()
                || info.visibles.is_present()
        })
    }

    /// Whether the nodes say which of them are deleted.
    pub fn has_visibility(&self) -> bool {
        self.info.is_some_and(|info| info.visibles.is_present())
    }

    /// The next node.
    #[inline]
    pub fn try_next(&mut self) -> Result<Option<Node<'a>>, BlockError> {
        Ok(self.try_next_raw()?.map(|(node, _)| node))
    }

    /// The next node, and its metadata as the columns have it.
    #[inline]
    pub(crate) fn try_next_raw(&mut self) -> Result<Option<(Node<'a>, DenseRow)>, BlockError> {
        let Some(id) = self.ids.try_next()? else {
            return Ok(None);
        };
        let fail = |e: BlockErrorKind| e.of(ElementId::new(Kind::Node, id));
        let (lat, lon) = match (self.lats.try_next()?, self.lons.try_next()?) {
            (Some(lat), Some(lon)) => (lat, lon),
            // Lengths were compared by counting; a broken varint in one column can still end it early.
            _ => return Err(fail(BlockErrorKind::Wire(WireError::Truncated))),
        };
        let tags = self.tags;
        skip_tags(&mut self.tags).map_err(fail)?;
        let row = match &mut self.info {
            Some(info) => info.next().map_err(|e| fail(e.into()))?,
            None => DenseRow::default(),
        };
        let metadata = row.metadata(self.block).map_err(fail)?;
        let node = Node {
            block: self.block,
            id,
            lat,
            lon,
            has_location: true,
            tags: RawTags::Dense(tags),
            metadata: MetadataSource::Dense(metadata),
        };
        Ok(Some((node, row)))
    }
}

impl Block {
    /// The message of dense nodes that the block has and no other element besides; `None` if it has others, or nothing.
    pub fn only_dense(&self) -> Result<Option<DenseNodes<'_>>, BlockError> {
        let mut only = None;
        for group in self.groups() {
            let mut items = group.items();
            while let Some((item, message)) = items.try_next_raw()? {
                if item != RawItem::Dense || only.is_some() {
                    return Ok(None);
                }
                only = Some(items.parse_dense(message)?);
            }
        }
        Ok(only)
    }
}

/// Reads some of many dense nodes: columns are gone through whole, which is many times faster than node by
/// node, and only what is asked for is kept and put together. Buffers are kept between uses.
#[derive(Debug, Default)]
pub struct DensePicker {
    /// Numbers of the nodes that are wanted.
    wanted: Vec<u32>,
    /// What the columns have of these. Tags are there only if they were read to know what is wanted.
    nodes: NodeArrays,
    versions: Vec<u64>,
    visibles: Vec<u64>,
    /// Nodes with tags, and where these begin.
    tagged: Vec<(u32, u32)>,
    /// Ids, latitudes and longitudes of all nodes, lent by columns, and of which block they are.
    lent: [Vec<i64>; 3],
    lender: Option<u64>,
}

impl DensePicker {
    /// Takes ids and locations that have been read from a block over, so that picking from the same block need not
    /// read them again. Leaves the columns in disorder.
    pub fn lend(&mut self, columns: &mut NodeColumns) {
        self.lender = columns.source.take();
        if self.lender.is_some() {
            let [ids, lats, lons] = &mut self.lent;
            std::mem::swap(ids, &mut columns.ids);
            std::mem::swap(lats, &mut columns.lats);
            std::mem::swap(lons, &mut columns.lons);
        }
    }

    /// Calls `visit` with the number, counted from 0, and the view of each `wanted` node. Numbers ascend; those that no
    /// node has are passed over.
    ///
    /// # Errors
    ///
    /// Those of reading the nodes one by one up to the last one wanted, and those of `visit`.
    ///
    /// # Panics
    ///
    /// If the numbers do not ascend.
    pub fn pick<'a, E: From<BlockError>>(
        &mut self,
        dense: &DenseNodes<'a>,
        wanted: impl IntoIterator<Item = u32>,
        visit: impl FnMut(u32, Node<'a>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.wanted.clear();
        self.nodes.tag_starts.clear();
        let exists = |number: &u32| (*number as usize) < dense.count;
        self.wanted.extend(wanted.into_iter().take_while(exists));
        self.visit(dense, visit)
    }

    /// Wants the nodes of a message that have tags, and those with the numbers `also`, which ascend: for
    /// [`DensePicker::arrays`] and [`DensePicker::visit`]. Gives how many these are.
    ///
    /// # Errors
    ///
    /// Tags that cannot be read.
    pub fn want_tagged(&mut self, dense: &DenseNodes<'_>, also: &[u32]) -> Result<usize, BlockError> {
        self.read_tagged(dense)?;
        let DensePicker {
            wanted,
            nodes,
            tagged,
            ..
        } = self;
        wanted.clear();
        nodes.tag_starts.clear();
        let mut also = also
            .iter()
            .copied()
            .filter(|at| (*at as usize) < dense.count)
            .peekable();
        for &(number, start) in tagged.iter() {
            while let Some(untagged) = also.next_if(|next| *next < number) {
                wanted.push(untagged);
                nodes.tag_starts.push(start);
            }
            also.next_if_eq(&number);
            wanted.push(number);
            nodes.tag_starts.push(start);
        }
        wanted.extend(also);
        nodes.tag_starts.resize(wanted.len() + 1, nodes.tags.len() as u32);
        Ok(wanted.len())
    }

    /// Wants the nodes of a message with these numbers, which ascend: for [`DensePicker::arrays`] and
    /// [`DensePicker::visit`]. Those that no node has are passed over.
    ///
    /// # Errors
    ///
    /// Tags that cannot be read, up to those of the last node wanted.
    pub fn want(
        &mut self,
        dense: &DenseNodes<'_>,
        numbers: impl Iterator<Item = u32>,
    ) -> Result<(), BlockError> {
        let DensePicker { wanted, nodes, .. } = self;
        let NodeArrays { tag_starts, tags, .. } = nodes;
        wanted.clear();
        tag_starts.clear();
        tags.clear();
        let mut column = TagCursor::new(dense);
        for number in numbers.take_while(|number| (*number as usize) < dense.count) {
            wanted.push(number);
            tag_starts.push(tags.len() as u32);
            let fail = |e: BlockErrorKind| dense.error_of(number as usize, e);
            column.seek(number as usize).map_err(fail)?;
            column.read(tags).map_err(fail)?;
        }
        tag_starts.push(tags.len() as u32);
        Ok(())
    }

    /// Finds the nodes with tags, and reads these.
    fn read_tagged(&mut self, dense: &DenseNodes<'_>) -> Result<(), BlockError> {
        let (tagged, tags) = (&mut self.tagged, &mut self.nodes.tags);
        tagged.clear();
        tags.clear();
        let (mut column, mut at) = (dense.tags, 0);
        while at < dense.count && !column.is_empty() {
            at += column.skip_zeros(dense.count - at);
            if at == dense.count {
                break;
            }
            let start = tags.len();
            read_tags_into(&mut column, tags).map_err(|e| dense.error_of(at, e))?;
            if tags.len() > start {
                tagged.push((at as u32, start as u32));
            }
            at += 1;
        }
        Ok(())
    }

    /// The nodes that [`DensePicker::want`] or [`DensePicker::want_tagged`] wanted of this message as arrays; `None` if it
    /// is not of the plain case that [`NodeArrays`] are for.
    pub fn arrays(&mut self, dense: &DenseNodes<'_>) -> Result<Option<&NodeArrays>, BlockError> {
        if self.nodes.tag_starts.len() != self.wanted.len() + 1 || !NodeArrays::may_hold(dense.block, dense) {
            return Ok(None);
        }
        self.gather(dense)?;
        self.nodes.versions.clear();
        let versions = self.versions.iter().map(|version| *version as i64);
        self.nodes.versions.extend(versions);
        Ok(self.nodes.is_in_range().then_some(&self.nodes))
    }

    /// Calls `visit` with the number and the view of each node of a message that is wanted.
    ///
    /// # Errors
    ///
    /// As for [`DensePicker::pick`].
    pub fn visit<'a, E: From<BlockError>>(
        &mut self,
        dense: &DenseNodes<'a>,
        mut visit: impl FnMut(u32, Node<'a>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.wanted.is_empty() {
            self.lender = None;
            return Ok(());
        }
        self.gather(dense).map_err(BlockError::from)?;
        let nodes = &self.nodes;
        let mut tags = TagCursor::new(dense);
        for (row, ((&id, &lat), &lon)) in nodes.ids.iter().zip(&nodes.lats).zip(&nodes.lons).enumerate() {
            let fail = |e: BlockErrorKind| e.of(ElementId::new(Kind::Node, id));
            let own_tags = tags.seek(self.wanted[row] as usize).map_err(BlockError::from)?;
            skip_tags(&mut { own_tags }).map_err(fail)?;
            let values = DenseRow {
                version: self.versions.get(row).copied(),
                timestamp: nodes.timestamps.get(row).copied(),
                changeset: nodes.changesets.get(row).copied(),
                uid: nodes.uids.get(row).copied(),
                user_sid: nodes.user_sids.get(row).copied(),
                visible: self.visibles.get(row).copied(),
            };
            let node = Node {
                block: dense.block,
                id,
                lat,
                lon,
                has_location: true,
                tags: RawTags::Dense(own_tags),
                metadata: MetadataSource::Dense(values.metadata(dense.block).map_err(fail)?),
            };
            visit(self.wanted[row], node)?;
        }
        Ok(())
    }

    /// Reads what the columns have of the wanted nodes.
    fn gather(&mut self, dense: &DenseNodes<'_>) -> Result<(), WireError> {
        let info = dense.info.unwrap_or_default();
        let nodes = &mut self.nodes;
        let columns = [
            (&mut nodes.ids, dense.ids),
            (&mut nodes.lats, dense.lats),
            (&mut nodes.lons, dense.lons),
            (&mut nodes.timestamps, info.timestamps),
            (&mut nodes.changesets, info.changesets),
            (&mut nodes.uids, info.uids),
            (&mut nodes.user_sids, info.user_sids),
        ];
        let lent = self.lender.take() == Some(dense.block.serial()) && self.lent[0].len() == dense.count;
        for (number, (values, column)) in columns.into_iter().enumerate() {
            values.clear();
            match self.lent.get(number).filter(|_| lent) {
                Some(all) => values.extend(self.wanted.iter().map(|at| all[*at as usize])),
                None => column.column().gather_sums_into(&self.wanted, values)?,
            }
        }
        for (values, column) in [
            (&mut self.versions, info.versions),
            (&mut self.visibles, info.visibles),
        ] {
            values.clear();
            column.gather_into(&self.wanted, values)?;
        }
        Ok(())
    }
}

/// Goes through the tags of dense nodes: nodes without any cost next to nothing.
struct TagCursor<'a> {
    tags: Varints<'a>,
    /// The node whose tags come next.
    at: usize,
}

impl<'a> TagCursor<'a> {
    fn new(dense: &DenseNodes<'a>) -> Self {
        TagCursor {
            tags: dense.tags,
            at: 0,
        }
    }

    /// The tags of this node and all that follow. It does not lie before one that was sought before.
    fn seek(&mut self, node: usize) -> Result<Varints<'a>, BlockErrorKind> {
        while self.at < node && !self.tags.is_empty() {
            self.at += self.tags.skip_zeros(node - self.at);
            if self.at < node {
                self.at += 1;
                skip_tags(&mut self.tags)?;
            }
        }
        Ok(self.tags)
    }

    /// Reads the tags of the node that was sought last, and turns to the next one.
    fn read(&mut self, tags: &mut Vec<u32>) -> Result<(), BlockErrorKind> {
        self.at += 1;
        read_tags_into(&mut self.tags, tags)
    }
}

/// Reads the tags of one node: string numbers of keys and values in turn.
#[inline]
fn read_tags_into(column: &mut Varints<'_>, tags: &mut Vec<u32>) -> Result<(), BlockErrorKind> {
    read_tags(column, |key, value| {
        tags.extend([key, value].map(|sid| sid.min(u32::MAX.into()) as u32));
    })
}

/// Goes past the tags of one node.
#[inline]
fn skip_tags(tags: &mut Varints<'_>) -> Result<(), BlockErrorKind> {
    read_tags(tags, |_, _| {})
}

/// Calls `visit` with the string numbers of key and value of each tag of a node.
#[inline]
fn read_tags(tags: &mut Varints<'_>, mut visit: impl FnMut(u64, u64)) -> Result<(), BlockErrorKind> {
    loop {
        match tags.try_next()? {
            None | Some(0) => return Ok(()),
            Some(key) => match tags.try_next()? {
                Some(value) => visit(key, value),
                None => {
                    return Err(BlockErrorKind::Lengths {
                        column: "keys_vals",
                        expected: 2,
                        found: 1,
                    });
                }
            },
        }
    }
}

/// Ids and locations of nodes, read column by column. Buffers are kept between uses.
#[derive(Debug, Default)]
pub struct NodeColumns {
    /// The ids.
    pub ids: Vec<i64>,
    /// For each id where the node is, as [`Node::location`] says it.
    pub locations: Vec<Option<Location>>,
    lats: Vec<i64>,
    lons: Vec<i64>,
    /// The block that all nodes are from, if they are from one message of dense nodes.
    source: Option<u64>,
}

impl NodeColumns {
    /// Forgets all nodes.
    pub fn clear(&mut self) {
        self.ids.clear();
        self.locations.clear();
        self.source = None;
    }

    /// Replaces what there is by the nodes of a block.
    pub fn read(&mut self, block: &Block) -> Result<(), BlockError> {
        self.clear();
        for group in block.groups() {
            let mut items = group.items();
            while let Some(item) = items.try_next()? {
                match item {
                    Item::Dense(dense) => self.push_dense(&dense)?,
                    Item::Node(node) => self.push(&node)?,
                    Item::Way(_) | Item::Relation(_) => {}
                }
            }
        }
        Ok(())
    }

    /// As [`NodeColumns::read`], and gives the block's record: columns are gone through once for both.
    pub fn read_with_record(&mut self, block: &Block) -> Result<IndexRecord, BlockError> {
        self.clear();
        IndexRecord::beside(block, self)
    }

    /// Appends dense nodes.
    pub fn push_dense(&mut self, dense: &DenseNodes<'_>) -> Result<(), BlockError> {
        self.append(dense).map(|_| ())
    }

    /// Appends dense nodes, and gives the box around them if every one has a location.
    fn append(&mut self, dense: &DenseNodes<'_>) -> Result<Option<BoundingBox>, BlockError> {
        let start = self.ids.len();
        self.source = (start == 0).then(|| dense.block.serial());
        dense.ids.column().decode_deltas_into(&mut self.ids)?;
        let (south, north) = dense.lats.column().decode_deltas_over(&mut self.lats)?;
        let (west, east) = dense.lons.column().decode_deltas_over(&mut self.lons)?;
        let scale = dense.block.scale();
        let raw = self.lats.iter().copied().zip(self.lons.iter().copied());
        let bbox = match [west, south, east, north].map(i32::try_from) {
            [Ok(west), Ok(south), Ok(east), Ok(north)] if scale.is_plain() => {
                Some(BoundingBox::new(west, south, east, north))
            }
            _ => None,
        };
        const NOWHERE: Location = Location::new(i32::MAX, i32::MAX);
        if let Some(bbox) = &bbox {
            // No coordinate is too large.
            let here = raw.map(|(lat, lon)| Location::new(lon as i32, lat as i32));
            match bbox.max == NOWHERE {
                true => self
                    .locations
                    .extend(here.map(|at| (at != NOWHERE).then_some(at))),
                false => self.locations.extend(here.map(Some)),
            }
        } else {
            for ((lat, lon), &id) in raw.zip(&self.ids[start..]) {
                let location = scale.location(lat, lon);
                self.locations
                    .push(location.map_err(|e| e.of(ElementId::new(Kind::Node, id)))?);
            }
        }
        // A broken column ends early.
        self.locations.resize(self.ids.len(), None);
        if let Some(mut visibles) = dense.info.map(|info| info.visibles) {
            let mut at = start;
            while let Some(visible) = visibles.try_next()? {
                if visible == 0 && at < self.locations.len() {
                    self.locations[at] = None;
                }
                at += 1;
            }
        }
        Ok(bbox.filter(|bbox| bbox.max != NOWHERE && !dense.has_visibility()))
    }

    /// Appends a node.
    pub fn push(&mut self, node: &Node<'_>) -> Result<(), BlockError> {
        self.source = None;
        self.locations.push(node.location()?);
        self.ids.push(node.id());
        Ok(())
    }
}

impl<'a> Beside<'a> for NodeColumns {
    fn dense(&mut self, dense: &DenseNodes<'a>, record: &mut IndexBuilder) -> Result<(), BlockError> {
        let start = self.ids.len();
        let bbox = self.append(dense)?;
        record.note_dense_facts(dense);
        record.note_ids(&self.ids[start..]);
        match bbox {
            Some(bbox) => {
                record.note_location(bbox.min);
                record.note_location(bbox.max);
            }
            None => {
                let known = self.locations[start..].iter().flatten();
                known.for_each(|at| record.note_location(*at));
            }
        }
        Ok(())
    }

    fn node(&mut self, node: &Node<'a>) -> Result<(), BlockError> {
        self.push(node)
    }
}

impl<'a> Iterator for DenseNodes<'a> {
    type Item = Result<Node<'a>, BlockError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let item = self.try_next();
        if item.is_err() {
            self.ids = Deltas::default();
        }
        item.transpose()
    }
}
