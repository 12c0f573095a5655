//! Jobs and files for the tests.

// Each test binary uses a part of this.
#![allow(dead_code)]

use std::path::{Path, PathBuf};

use osmill_engine::{Error, Job, JobOptions, OutputOptions};
use osmill_model::KindSet;
use osmill_ops::cat::{HeaderChanges, Options, Report, cat};
use osmill_pbf::{BlobHeader, BlobType, Compression, FileHeader, IndexRecord, MAX_WRITTEN_BLOB_HEADER_SIZE};
use osmill_testkit::encode::{Layout, encode_block};
use osmill_testkit::file::{FrameBuilder, Frames};
use osmill_testkit::model::Data;
use proptest::prelude::*;

/// A job with so many threads.
pub fn job(threads: usize) -> Job {
    Job::new(JobOptions {
        // As for a file that is large.
        blobs_of_task: Some(3),
        threads,
        ..JobOptions::default()
    })
}

/// A job with two threads and so many bytes of memory.
pub fn job_in(memory: u64) -> Job {
    Job::new(JobOptions {
        // As for a file that is large.
        blobs_of_task: Some(3),
        threads: 2,
        memory,
        ..JobOptions::default()
    })
}

/// Options of a `cat` that changes nothing.
pub fn options() -> Options {
    Options {
        kinds: KindSet::ALL,
        dedupe: false,
        generator: "test".into(),
        header: HeaderChanges::default(),
    }
}

/// How a file is laid out.
#[derive(Debug, Clone)]
pub struct Form {
    /// Elements in a block, whatever their kinds.
    pub elements_per_block: usize,
    pub layout: Layout,
    pub compression: Compression,
    /// Of each block, whether its header has an index record; over and over.
    pub index: Vec<bool>,
}

impl Default for Form {
    fn default() -> Self {
        Form {
            elements_per_block: 8000,
            layout: Layout::default(),
            compression: Compression::default(),
            index: vec![false],
        }
    }
}

/// Forms of every sort that keep all values.
pub fn form() -> impl Strategy<Value = Form> {
    let layout = (any::<bool>(), any::<bool>(), 0usize..4, 1usize..20, any::<bool>()).prop_map(
        |(dense, packed, granularity, group_size, offsets)| Layout {
            dense,
            packed,
            granularity: [1, 10, 50, 100][granularity],
            lat_offset: if offsets { 1_000_000_000 } else { 0 },
            lon_offset: if offsets { -5_000_000_000 } else { 0 },
            date_granularity: if offsets { 1 } else { 1000 },
            group_size,
        },
    );
    let compression = prop::sample::select(vec!["none", "zlib", "zlib:1", "zstd", "lz4"]);
    let index = prop_oneof![
        Just(vec![false]),
        Just(vec![true]),
        prop::collection::vec(any::<bool>(), 1..5)
    ];
    (1usize..30, layout, compression, index).prop_map(|(elements_per_block, layout, compression, index)| {
        Form {
            elements_per_block,
            layout,
            compression: compression.parse().unwrap(),
            index,
        }
    })
}

/// The data as a file of this form, with a header that tells the truth.
pub fn pbf(data: &Data, form: &Form) -> Vec<u8> {
    pbf_with(data, form, &data.header())
}

/// The data as a file of this form.
pub fn pbf_with(data: &Data, form: &Form, header: &FileHeader) -> Vec<u8> {
    let mut out = Vec::new();
    let mut frames = FrameBuilder::new(form.compression, true);
    frames.add_raw(BlobType::Header, &header.encode(), None);
    out.extend(frames.take().unwrap());
    for (i, elements) in data.elements.chunks(form.elements_per_block).enumerate() {
        let raw = encode_block(elements, &form.layout);
        let record = IndexRecord::of(&osmill_pbf::Block::parse(raw.clone()).unwrap()).unwrap();
        let mut frames = FrameBuilder::new(form.compression, form.index[i % form.index.len()]);
        frames.add_raw(BlobType::Data, &raw, Some(&record));
        out.extend(frames.take().unwrap());
    }
    out
}

/// A folder with files.
pub struct Folder(pub tempfile::TempDir);

impl Folder {
    pub fn new() -> Self {
        Folder(tempfile::tempdir().unwrap())
    }

    pub fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    pub fn output(&self) -> OutputOptions {
        OutputOptions {
            overwrite: true,
            ..OutputOptions::new(self.0.path().join("out.osm.pbf"))
        }
    }

    /// Runs `cat` and gives the bytes of the output.
    pub fn cat(
        &self,
        job: &Job,
        inputs: &[PathBuf],
        options: &Options,
        output: OutputOptions,
    ) -> Result<(Report, Vec<u8>), Error> {
        let (path, is_text) = (output.path.clone(), output.is_text());
        let report = cat(job, inputs, options, output)?;
        let bytes = std::fs::read(path).unwrap();
        assert_eq!(report.bytes, bytes.len() as u64);
        if !is_text {
            assert_frames(&bytes);
        }
        Ok((report, bytes))
    }
}

/// Asserts what holds of every file that is written: short blob headers, index records that are true.
#[track_caller]
pub fn assert_frames(bytes: &[u8]) {
    let mut frames = Frames::new(bytes);
    let mut decompressor = osmill_pbf::Decompressor::default();
    while let Some(frame) = frames.next_frame().unwrap() {
        assert!(frame.header.len() <= MAX_WRITTEN_BLOB_HEADER_SIZE);
        if frame.blob_type() != BlobType::Data {
            continue;
        }
        let header = BlobHeader::parse(&frame.header).unwrap();
        let record = IndexRecord::decode(
            header.index_data.expect("every blob is indexed"),
            frame.blob.len(),
        );
        let mut raw = Vec::new();
        decompressor
            .decompress(&osmill_pbf::parse_blob(&frame.blob).unwrap(), &mut raw)
            .unwrap();
        let block = osmill_pbf::Block::parse(raw).unwrap();
        assert_eq!(record, Some(IndexRecord::of(&block).unwrap()));
    }
}

/// Opens a file and makes its plan.
pub fn open(job: &Job, path: &Path) -> (osmill_engine::Input, osmill_ops::inspect::Inspection) {
    osmill_ops::inspect::inspect(job, path).unwrap()
}
