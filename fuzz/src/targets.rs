//! The targets.

use osmill_pbf::{
    BlobHeader, Block, BlockBuilder, BlockError, Compressor, Decompressor, Element, FileHeader,
    INDEX_RECORD_SIZE, IndexRecord, Item, MAX_BLOB_SIZE, MetadataFields, Splicer, parse_blob,
    parse_header_length, peek_blob,
};

/// A file header: what can be read can be written, and reads back as the same.
pub fn header(data: &[u8]) {
    if let Some((length, rest)) = data.split_first_chunk::<4>() {
        let _ = parse_header_length(*length).map(|length| BlobHeader::parse(&rest[..length.min(rest.len())]));
    }
    let Ok(header) = FileHeader::parse(data) else {
        return;
    };
    let again = FileHeader::parse(&header.encode()).expect("what was written can be read");
    assert_eq!(again, header);
}

/// A blob: header, message and compressed data. Never more than the limit comes out, and what comes out goes
/// in again.
pub fn blob(data: &[u8]) {
    let _ = BlobHeader::parse(data);
    let _ = peek_blob(data, data.len());
    let record = IndexRecord::decode(data.get(..INDEX_RECORD_SIZE).unwrap_or(data), data.len());
    if let Some(record) = record {
        assert_eq!(IndexRecord::decode(&record.encode(7), 7), Some(record));
    }
    let Ok(blob) = parse_blob(data) else { return };
    let mut raw = Vec::new();
    if Decompressor::default().decompress(&blob, &mut raw).is_err() {
        return;
    }
    assert!(raw.len() <= MAX_BLOB_SIZE);
    let mut compressor = Compressor::new("zlib:1".parse().expect("a codec"));
    let message = compressor
        .blob(&raw, None)
        .expect("it is within the limits")
        .concat();
    let mut again = Vec::new();
    let blob = parse_blob(&message).expect("what was written can be read");
    Decompressor::default()
        .decompress(&blob, &mut again)
        .expect("it is whole");
    assert!(again == raw);
    block(&raw);
}

/// A block: all ways to read it agree on what it holds, and a copy holds the same.
pub fn block(data: &[u8]) {
    let Ok(block) = Block::parse(data.to_vec()) else {
        return;
    };
    let record = IndexRecord::of(&block);
    let mut elements = 0u64;
    let mut builder = BlockBuilder::new(MetadataFields::ALL);
    let mut lines = Vec::new();
    let read = (|| -> Result<(), BlockError> {
        for element in block.elements() {
            let element = element?;
            lines.push(describe(&element)?);
            builder.copy(&element)?;
            elements += 1;
        }
        Ok(())
    })();
    let mut out = Vec::new();
    let _ = Splicer::default().strip_metadata(&block, MetadataFields::NONE, &mut out);
    let _ = Splicer::default().keep(&block, &mut Vec::new(), |_| true);
    for group in block.groups() {
        // Dense nodes column by column.
        for item in group.items() {
            match item {
                Ok(Item::Dense(dense)) => {
                    let mut ids = dense.ids();
                    while let Ok(Some(_)) = ids.try_next() {}
                    let _ = dense.tag_column().for_each(|_| ());
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
    }
    // A record is made from whole columns and may find a fault at the end of one that nobody reads.
    let (Ok(()), Ok(record)) = (read, record) else {
        return;
    };
    assert_eq!(record.count(), elements);
    let mut raw = Vec::new();
    let built = builder.finish(&mut raw);
    assert_eq!(
        (built.counts, built.kinds, built.refs),
        (record.counts, record.kinds, record.refs)
    );
    assert_eq!(
        (built.sorted, built.unique, built.bbox),
        (record.sorted, record.unique, record.bbox)
    );
    let copy = Block::parse(raw).expect("what was written can be read");
    let copied: Vec<String> = copy
        .elements()
        .map(|element| describe(&element.expect("every element")).expect("every value"))
        .collect();
    assert_eq!(copied, lines);
}

/// All that an element has, as text.
fn describe(element: &Element<'_>) -> Result<String, BlockError> {
    let tags = element.tags().collect::<Result<Vec<_>, _>>()?;
    let metadata = element.metadata()?;
    let body = match element {
        Element::Node(node) => format!("{:?}", node.location()?),
        Element::Way(way) => {
            let refs = way.refs().collect::<Result<Vec<_>, _>>()?;
            let locations = way.locations().collect::<Result<Vec<_>, _>>()?;
            format!("{refs:?} {locations:?}")
        }
        Element::Relation(relation) => format!("{:?}", relation.members().collect::<Result<Vec<_>, _>>()?),
    };
    Ok(format!("{} {metadata:?} {tags:?} {body}", element.element_id()))
}
