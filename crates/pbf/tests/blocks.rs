//! BlockBuilder, reader and splicer against a plain model of elements.

use osmill_model::{ElementId, Kind, Location, Member, Metadata, Tag, Timestamp};
use osmill_pbf::{
    Block, BlockBuilder, BlockError, DenseNodes, DensePicker, Element, IndexRecord, Item, MetadataFields,
    NodeArrays, NodeColumns, Splicer, peek_first_element,
};
use proptest::prelude::*;

type Bytes = Vec<u8>;

#[derive(Debug, Clone, PartialEq)]
struct Plain {
    id: ElementId,
    tags: Vec<(Bytes, Bytes)>,
    version: Option<i32>,
    timestamp: Option<i64>,
    changeset: Option<i64>,
    uid: Option<i32>,
    user: Option<Bytes>,
    visible: Option<bool>,
    location: Option<Location>,
    refs: Vec<i64>,
    locations: Option<Vec<Option<Location>>>,
    members: Vec<(ElementId, Bytes)>,
}

impl Plain {
    fn metadata(&self) -> Metadata<'_> {
        Metadata {
            version: self.version,
            timestamp: self.timestamp.map(Timestamp),
            changeset: self.changeset,
            uid: self.uid,
            user: self.user.as_deref(),
            visible: self.visible,
        }
    }

    fn add_to(&self, builder: &mut BlockBuilder) {
        let tags = self.tags.iter().map(|(key, value)| Tag { key, value });
        let metadata = self.metadata();
        match self.id.kind {
            Kind::Node => builder.add_node(self.id.id, self.location, tags, &metadata),
            Kind::Way => {
                builder.add_way(self.id.id, &self.refs, self.locations.as_deref(), tags, &metadata);
            }
            Kind::Relation => {
                let members: Vec<_> = self
                    .members
                    .iter()
                    .map(|(element, role)| Member {
                        element: *element,
                        role,
                    })
                    .collect();
                builder.add_relation(self.id.id, &members, tags, &metadata);
            }
        }
    }

    fn read(element: &Element<'_>) -> Plain {
        let metadata = element.metadata().unwrap();
        let mut plain = Plain {
            id: element.element_id(),
            tags: element
                .tags()
                .map(|t| t.map(|t| (t.key.to_vec(), t.value.to_vec())).unwrap())
                .collect(),
            version: metadata.version,
            timestamp: metadata.timestamp.map(|t| t.0),
            changeset: metadata.changeset,
            uid: metadata.uid,
            user: metadata.user.map(<[u8]>::to_vec),
            visible: metadata.visible,
            location: None,
            refs: Vec::new(),
            locations: None,
            members: Vec::new(),
        };
        match element {
            Element::Node(node) => plain.location = node.location().unwrap(),
            Element::Way(way) => {
                plain.refs = way.refs().map(Result::unwrap).collect();
                assert_eq!(way.ref_count(), plain.refs.len());
                plain.locations = way
                    .has_locations()
                    .then(|| way.locations().map(Result::unwrap).collect());
            }
            Element::Relation(relation) => {
                plain.members = relation
                    .members()
                    .map(|m| m.map(|m| (m.element, m.role.to_vec())).unwrap())
                    .collect();
            }
        }
        plain
    }
}

fn location() -> impl Strategy<Value = Location> {
    (any::<i32>(), -900_000_000..=900_000_000i32).prop_map(|(lon, lat)| Location { lon, lat })
}

fn text() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        "[a-z]{0,3}".prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..20)
    ]
}

fn id() -> impl Strategy<Value = i64> {
    prop_oneof![-50i64..50, any::<i64>()]
}

fn element_id() -> impl Strategy<Value = ElementId> {
    (0u64..3, id()).prop_map(|(kind, id)| ElementId::new(Kind::from_index(kind).unwrap(), id))
}

prop_compose! {
    fn plain()(
        id in element_id(),
        tags in proptest::collection::vec((text(), text()), 0..4),
        metadata in (
            proptest::option::of(0..i32::MAX), proptest::option::of(any::<i64>()),
            proptest::option::of(0..=0xffff_ffffi64), proptest::option::of(any::<i32>()),
            proptest::option::of(text()), proptest::option::of(any::<bool>()),
        ),
        location in proptest::option::of(location()),
        refs in proptest::collection::vec((id(), proptest::option::of(location())), 0..6),
        on_way in any::<bool>(),
        members in proptest::collection::vec((element_id(), text()), 0..5),
    ) -> Plain {
        let (version, timestamp, changeset, uid, user, visible) = metadata;
        let (mut plain_refs, mut locations): (Vec<i64>, Vec<_>) = refs.into_iter().unzip();
        if id.kind != Kind::Way {
            plain_refs.clear();
            locations.clear();
        }
        Plain {
            id, tags, version, timestamp, changeset, uid, user, visible,
            location: location.filter(|_| id.kind == Kind::Node && visible != Some(false)),
            locations: (on_way && !plain_refs.is_empty()).then_some(locations),
            refs: plain_refs,
            members: if id.kind == Kind::Relation { members } else { Vec::new() },
        }
    }
}
/// Runs of one kind and metadata shape, as files have them, and wild mixtures.
fn plains() -> impl Strategy<Value = Vec<Plain>> {
    proptest::collection::vec(plain(), 0..40)
}

fn build(plains: &[Plain]) -> (Block, IndexRecord) {
    let mut builder = BlockBuilder::default();
    plains.iter().for_each(|p| p.add_to(&mut builder));
    let mut bytes = Vec::new();
    let record = builder.finish(&mut bytes);
    (Block::parse(bytes).unwrap(), record)
}

fn read(block: &Block) -> Vec<Plain> {
    block.elements().map(|e| Plain::read(&e.unwrap())).collect()
}

/// What a picker wants is what is expected, as arrays if it can be, and node by node.
fn check_wanted(
    dense: &DenseNodes<'_>,
    picker: &mut DensePicker,
    expected: &[(u32, Plain)],
) -> Result<(), TestCaseError> {
    let mut builder = BlockBuilder::default();
    if let Some(nodes) = picker.arrays(dense).unwrap() {
        builder
            .copy_nodes(dense.block(), nodes, 0..nodes.ids.len())
            .unwrap();
        let mut raw = Vec::new();
        builder.finish(&mut raw);
        let copied = read(&Block::parse(raw).unwrap());
        prop_assert!(copied.iter().eq(expected.iter().map(|(_, plain)| plain)));
    }
    let mut visited = Vec::new();
    let seen = picker.visit(dense, |number, node| {
        visited.push((number, Plain::read(&Element::Node(node))));
        Ok::<(), BlockError>(())
    });
    prop_assert!(seen.is_ok());
    prop_assert_eq!(visited, expected);
    Ok(())
}

/// Nodes 1 and 2, with this column of tags, in a block whose only string is empty.
fn two_nodes(tags: &[u8]) -> Block {
    let field = |number: u8, content: &[u8]| [&[number << 3 | 2, content.len() as u8], content].concat();
    let columns = [
        field(1, &[2, 2]),
        field(8, &[0, 0]),
        field(9, &[0, 0]),
        field(10, tags),
    ]
    .concat();
    let group = field(2, &field(2, &columns));
    Block::parse([field(1, &field(1, b"")), group].concat()).unwrap()
}

#[test]
fn errors_of_many_nodes_name_the_one() {
    let mut picker = DensePicker::default();
    // A key without value, and a string that is not there.
    for (tags, is_read) in [(&[0, 1][..], false), (&[0, 7, 7, 0], true)] {
        let block = two_nodes(tags);
        let dense = block.only_dense().unwrap().unwrap();
        let named = Some(ElementId::new(Kind::Node, 2));
        for all in [true, false] {
            let wanted = match all {
                true => picker.want(&dense, 0..2),
                false => picker.want_tagged(&dense, &[]).map(|_| ()),
            };
            assert_eq!(wanted.is_ok(), is_read);
            let error = wanted.and_then(|()| {
                let nodes = picker.arrays(&dense)?.unwrap();
                BlockBuilder::default().copy_nodes(&block, nodes, 0..nodes.ids.len())
            });
            assert_eq!(error.unwrap_err().element, named);
        }
        picker.want(&dense, 0..1).unwrap();
        assert_eq!(picker.arrays(&dense).unwrap().unwrap().ids, [1]);
    }
}

proptest! {
    #[test]
    fn what_is_built_is_read(plains in plains()) {
        let (block, record) = build(&plains);
        prop_assert_eq!(read(&block), plains.clone());
        prop_assert_eq!(IndexRecord::of(&block).unwrap(), record);
        let mut columns = NodeColumns::default();
        prop_assert_eq!(columns.read_with_record(&block).unwrap(), record);
        let nodes = plains.iter().filter(|p| p.id.kind == Kind::Node);
        prop_assert_eq!(&columns.ids, &nodes.clone().map(|p| p.id.id).collect::<Vec<_>>());
        prop_assert_eq!(&columns.locations, &nodes.map(|p| p.location).collect::<Vec<_>>());
    }

    #[test]
    fn the_index_record_is_that_of_the_elements(plains in plains()) {
        let (_, record) = build(&plains);
        let ids: Vec<_> = plains.iter().map(|p| p.id).collect();
        prop_assert_eq!(record.count() as usize, ids.len());
        prop_assert_eq!(record.first(), ids.iter().min().copied());
        prop_assert_eq!(record.last(), ids.iter().max().copied());
        prop_assert_eq!(record.sorted, ids.is_sorted());
        prop_assert_eq!(record.unique, ids.windows(2).all(|w| w[0] < w[1]));
        prop_assert_eq!(record.has_tags, plains.iter().any(|p| !p.tags.is_empty()));
        prop_assert_eq!(record.has_metadata, plains.iter().any(|p| !p.metadata().is_empty()));
        prop_assert_eq!(record.has_way_locations, plains.iter().any(|p| p.locations.is_some()));
        let refs = plains.iter().map(|p| p.refs.len() + p.members.len()).sum::<usize>();
        prop_assert_eq!(record.refs as usize, refs);
        let inside = plains.iter().filter_map(|p| p.location);
        let lons: Vec<_> = inside.clone().map(|l| l.lon).collect();
        prop_assert_eq!(record.bbox.map(|b| (b.min.lon, b.max.lon)), lons.iter().min().copied().zip(lons.iter().max().copied()));
    }

    #[test]
    fn copies_are_equal(first in plains(), second in plains()) {
        let mut builder = BlockBuilder::default();
        let (a, _) = build(&first);
        let (b, _) = build(&second);
        // In turn, so that the translation of string numbers changes sides often.
        let mut expected = Vec::new();
        for i in 0..first.len().max(second.len()) {
            for (plains, block) in [(&first, &a), (&second, &b)] {
                if let Some(plain) = plains.get(i) {
                    builder.copy(&block.elements().nth(i).unwrap().unwrap()).unwrap();
                    expected.push(plain.clone());
                }
            }
        }
        let mut bytes = Vec::new();
        let record = builder.finish(&mut bytes);
        let block = Block::parse(bytes).unwrap();
        prop_assert_eq!(read(&block), expected);
        prop_assert_eq!(IndexRecord::of(&block).unwrap(), record);
    }

    /// Many nodes at once are copied as they are one by one.
    #[test]
    fn ranges_of_nodes_are_copied(plains in plains(), cuts: (usize, usize), bits in 0u8..32) {
        let on = |bit: u8| bits & (1 << bit) != 0;
        let fields = MetadataFields {
            version: on(0), timestamp: on(1), changeset: on(2), uid: on(3), user: on(4), visible: true,
        };
        // Blocks as they are in practice: the same metadata on all nodes.
        let nodes: Vec<_> = plains.into_iter().filter(|p| p.id.kind == Kind::Node).map(|mut p| {
            (p.visible, p.version, p.user) = (None, Some(p.version.unwrap_or(7)), Some(p.user.unwrap_or_default()));
            (p.timestamp, p.changeset, p.uid) = (p.timestamp.or(Some(5)), None, p.uid.or(Some(1)));
            p
        }).collect();
        let (block, _) = build(&nodes);
        let (mut fast, mut slow) = (BlockBuilder::new(fields), BlockBuilder::new(fields));
        let mut columns = NodeArrays::default();
        for item in block.groups().flat_map(|group| group.items()) {
            let Item::Dense(dense) = item.unwrap() else { continue };
            prop_assert!(columns.read(&block, &dense).unwrap());
            let (a, b) = (cuts.0 % (dense.len() + 1), cuts.1 % (dense.len() + 1));
            for range in [a.min(b)..a.max(b), 0..dense.len(), a..a] {
                fast.copy_nodes(&block, &columns, range.clone()).unwrap();
                for node in dense.clone().skip(range.start).take(range.len()) {
                    slow.copy(&Element::Node(node.unwrap())).unwrap();
                }
            }
        }
        let (mut a, mut b) = (Vec::new(), Vec::new());
        prop_assert_eq!(fast.finish(&mut a), slow.finish(&mut b));
        prop_assert_eq!(read(&Block::parse(a).unwrap()), read(&Block::parse(b).unwrap()));
    }

    /// Picking some nodes of a message gives what reading all of them gives, with columns lent or not.
    #[test]
    fn some_nodes_are_picked(plains in plains(), bits: u64) {
        let nodes: Vec<_> = plains.into_iter().filter(|p| p.id.kind == Kind::Node).collect();
        let (block, _) = build(&nodes);
        let (mut picker, mut columns) = (DensePicker::default(), NodeColumns::default());
        let wants = |at: usize| bits & (1 << (at % 64)) != 0;
        let mut seen = Vec::new();
        for item in block.groups().flat_map(|group| group.items()) {
            let Item::Dense(dense) = item.unwrap() else { continue };
            let all: Vec<_> = dense.clone().map(|node| Plain::read(&Element::Node(node.unwrap()))).collect();
            let numbered = || all.iter().enumerate();
            let expected: Vec<_> = numbered().filter(|(at, _)| wants(*at)).map(|(_, p)| p.clone()).collect();
            for lend in [false, true] {
                if lend {
                    columns.clear();
                    columns.push_dense(&dense).unwrap();
                    prop_assert_eq!(&columns.ids, &all.iter().map(|p| p.id.id).collect::<Vec<_>>());
                    prop_assert_eq!(&columns.locations, &all.iter().map(|p| p.location).collect::<Vec<_>>());
                    picker.lend(&mut columns);
                }
                let mut picked = Vec::new();
                let numbers = (0..all.len() as u32 + 2).filter(|at| wants(*at as usize));
                picker.pick(&dense, numbers, |_, node| {
                    picked.push(Plain::read(&Element::Node(node)));
                    Ok::<(), BlockError>(())
                }).unwrap();
                prop_assert_eq!(&picked, &expected);

                // Those with tags, and some others.
                let some: Vec<u32> = (0..all.len() as u32 + 2).filter(|at| wants(*at as usize)).collect();
                let expected: Vec<_> = numbered()
                    .filter(|(at, p)| wants(*at) || !p.tags.is_empty())
                    .map(|(at, p)| (at as u32, p.clone()))
                    .collect();
                prop_assert_eq!(picker.want_tagged(&dense, &some).unwrap(), expected.len());
                check_wanted(&dense, &mut picker, &expected)?;
                let expected: Vec<_> = numbered()
                    .filter(|(at, _)| wants(*at))
                    .map(|(at, p)| (at as u32, p.clone()))
                    .collect();
                picker.want(&dense, some.into_iter()).unwrap();
                check_wanted(&dense, &mut picker, &expected)?;
            }
            let mut tagged = Vec::new();
            dense.for_each_tagged(|at| tagged.push(at)).unwrap();
            let expected: Vec<_> = numbered().filter(|(_, p)| !p.tags.is_empty()).map(|(at, _)| at).collect();
            prop_assert_eq!(tagged, expected);
            seen.extend(all);
        }
        prop_assert_eq!(seen, nodes);
    }

    #[test]
    fn the_first_element_is_seen_early(plains in plains(), cut: usize) {
        let (block, _) = build(&plains);
        prop_assert_eq!(peek_first_element(block.data()), plains.first().map(|p| p.id));
        let cut = cut % (block.data().len() + 1);
        let peeked = peek_first_element(&block.data()[..cut]);
        prop_assert!(peeked.is_none() || peeked == plains.first().map(|p| p.id));
    }

    #[test]
    fn splices_keep_what_they_are_told(plains in plains(), bits: u64) {
        let (block, _) = build(&plains);
        let mut i = 0;
        let mut out = Vec::new();
        let kept = |i: usize| bits & (1 << (i % 64)) != 0;
        let spliced = Splicer::default().keep(&block, &mut out, |_| { i += 1; kept(i - 1) }).unwrap();
        let expected: Vec<_> =
            plains.iter().enumerate().filter(|(i, _)| kept(*i)).map(|(_, p)| p.clone()).collect();
        prop_assert_eq!((spliced.kept, spliced.total), (expected.len(), plains.len()));
        let block = Block::parse(out).unwrap();
        prop_assert_eq!(read(&block), expected);
    }

    #[test]
    fn metadata_can_be_left_out(plains in plains(), bits in 0u8..64) {
        let on = |bit: u8| bits & (1 << bit) != 0;
        let fields = MetadataFields {
            version: on(0), timestamp: on(1), changeset: on(2), uid: on(3), user: on(4), visible: true,
        };
        let (block, _) = build(&plains);
        let mut builder = BlockBuilder::new(fields);
        block.elements().for_each(|e| builder.copy(&e.unwrap()).unwrap());
        let mut bytes = Vec::new();
        builder.finish(&mut bytes);
        let mut stripped = Vec::new();
        let left = Splicer::default().strip_metadata(&block, fields, &mut stripped).unwrap();
        let users: Vec<Bytes> = plains.iter().filter_map(|p| p.user.clone()).collect();
        let expected: Vec<_> = plains.into_iter().map(|mut p| {
            p.version = p.version.filter(|_| on(0));
            p.timestamp = p.timestamp.filter(|_| on(1));
            p.changeset = p.changeset.filter(|_| on(2));
            p.uid = p.uid.filter(|_| on(3));
            p.user = p.user.filter(|_| on(4));
            p
        }).collect();
        prop_assert_eq!(left, expected.iter().any(|p| !p.metadata().is_empty()));
        let stripped = Block::parse(stripped).unwrap();
        prop_assert_eq!(&read(&stripped), &expected);
        if !on(4) {
            // No name is left behind in the string table, unless something else is spelled the same.
            let texts: Vec<&Bytes> = expected.iter().flat_map(|p| {
                p.tags.iter().flat_map(|(k, v)| [k, v]).chain(p.members.iter().map(|(_, role)| role))
            }).collect();
            for i in 0..stripped.string_count().unwrap() as u64 {
                let string = stripped.string(i).unwrap().to_vec();
                prop_assert!(string.is_empty() || !users.contains(&string) || texts.contains(&&string));
            }
        }
        prop_assert_eq!(read(&Block::parse(bytes).unwrap()), expected);
    }

    #[test]
    fn dense_nodes_can_be_made_plain(plains in plains()) {
        let (block, _) = build(&plains);
        let mut bytes = Vec::new();
        Splicer::default().plain_nodes(&block, &mut bytes).unwrap();
        let plain = Block::parse(bytes).unwrap();
        let is_dense = |item| matches!(item, Ok(Item::Dense(_)));
        prop_assert!(!plain.groups().flat_map(|group| group.items()).any(is_dense));
        prop_assert_eq!(read(&plain), plains);
    }

    #[test]
    fn locations_of_ways_can_be_left_out(plains in plains()) {
        let (block, _) = build(&plains);
        let mut bytes = Vec::new();
        Splicer::default().strip_way_locations(&block, &mut bytes).unwrap();
        let expected: Vec<_> = plains.into_iter().map(|p| Plain { locations: None, ..p }).collect();
        prop_assert_eq!(read(&Block::parse(bytes).unwrap()), expected);
    }

    /// Damaged blocks end in errors, and every way of looking at them ends.
    #[test]
    fn any_bytes_are_safe(plains in plains(), flips in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..6)) {
        let (block, _) = build(&plains);
        let mut bytes = block.data().to_vec();
        for (at, value) in flips {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        let Ok(block) = Block::parse(bytes) else { return Ok(()) };
        let mut builder = BlockBuilder::default();
        for element in block.elements() {
            let Ok(element) = element else { break };
            let _ = element.metadata();
            element.tags().take_while(Result::is_ok).count();
            match &element {
                Element::Node(node) => { let _ = node.location(); }
                Element::Way(way) => { way.locations().take_while(Result::is_ok).count(); }
                Element::Relation(relation) => { relation.members().take_while(Result::is_ok).count(); }
            }
            let _ = builder.copy(&element);
        }
        // Which damage is seen may differ, as not the same columns are read.
        let beside = NodeColumns::default().read_with_record(&block);
        if let (Ok(record), Ok(beside)) = (IndexRecord::of(&block), beside) {
            prop_assert_eq!(record, beside);
        }
        let mut out = Vec::new();
        let _ = Splicer::default().keep(&block, &mut out, |e| e.id() % 2 == 0);
        let _ = Splicer::default().plain_nodes(&block, &mut out);
        let _ = Splicer::default().strip_way_locations(&block, &mut out);
        // Elements that could not be copied have left nothing behind.
        let mut bytes = Vec::new();
        let expected = builder.len();
        builder.finish(&mut bytes);
        prop_assert_eq!(Block::parse(bytes).unwrap().elements().map(Result::unwrap).count(), expected);
    }
}
