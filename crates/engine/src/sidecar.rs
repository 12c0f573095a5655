//! The side-car index: what is known of the blobs of a file, in a file beside it.
//!
//! For files whose blob headers have no index records and that are to stay as they are. `NAME.idx` beside
//! `NAME` holds, little-endian:
//!
//! | bytes | what |
//! | --- | --- |
//! | 0-7 | magic `osmilidx` |
//! | 8-11 | version, 1 |
//! | 12-15 | bytes of an entry, 80 |
//! | 16-23 | size of the file |
//! | 24-31 | when the file was changed last, in seconds since 1970 |
//! | 32-39 | the nanoseconds of that |
//! | 40-47 | hash of the file's first and last 64 KiB |
//! | 48-55 | number of entries |
//! | then entries | offset of the frame (8), bytes of its header (4) and of its data (4), the index record (64) |
//! | 8 at the end | hash of everything before |
//!
//! Hashes are FNV-1a of 64 bits. The walk over the headers stays the truth: an entry gives its record to the blob that
//! is where it says, of the size that it says, and has none of its own. A side-car that was not made from the file as
//! it is now is ignored with a warning.

use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use osmill_pbf::{INDEX_RECORD_SIZE, IndexRecord};

use crate::error::{Error, Result};
use crate::file::{AtomicFile, ReadBuffer, ReadFile};
use crate::plan::{BlobEntry, Plan};

const MAGIC: [u8; 8] = *b"osmilidx";
const VERSION: u32 = 1;
const HEADER_SIZE: usize = 56;
const ENTRY_SIZE: usize = 16 + INDEX_RECORD_SIZE;
/// Bytes at either end of the file that tell it from others.
const ENDS: usize = 64 << 10;

/// Where the side-car of a file is.
pub fn sidecar_path(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".idx");
    PathBuf::from(name)
}

/// What a side-car says of the blobs of a file.
#[derive(Debug, Default)]
pub(crate) struct Sidecar {
    /// In the order of their offsets.
    entries: Vec<(u64, u32, u32, IndexRecord)>,
}

/// FNV-1a, eight bytes at a time.
#[derive(Clone, Copy)]
struct Hash(u64);

impl Hash {
    fn new() -> Self {
        Hash(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, bytes: &[u8]) {
        let mut step = |word: u64| self.0 = (self.0 ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| step(u64::from_le_bytes(*word)));
        rest.iter().for_each(|byte| step(u64::from(*byte)));
    }
}

/// Everything by which a file is known again: the bytes of the side-car's header but for the number of entries.
fn identity(file: &ReadFile) -> Result<[u8; HEADER_SIZE]> {
    let metadata = file.file().metadata();
    let metadata = metadata.map_err(|e| Error::io("read", file.path(), e))?;
    let (mut hash, mut buffer) = (Hash::new(), ReadBuffer::default());
    for at in [0, file.size().saturating_sub(ENDS as u64)] {
        file.read_at(at, ENDS, &mut buffer)?;
        let bytes = buffer.as_slice();
        hash.add(&bytes[..bytes.len().min(ENDS)]);
    }
    let mut header = [0; HEADER_SIZE];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[12..16].copy_from_slice(&(ENTRY_SIZE as u32).to_le_bytes());
    header[16..24].copy_from_slice(&file.size().to_le_bytes());
    header[24..32].copy_from_slice(&metadata.mtime().to_le_bytes());
    header[32..40].copy_from_slice(&metadata.mtime_nsec().to_le_bytes());
    header[40..48].copy_from_slice(&hash.0.to_le_bytes());
    Ok(header)
}

impl Sidecar {
    /// Reads the side-car beside a file, if there is one. The message says why one that is there cannot be used.
    pub fn beside(file: &ReadFile) -> Result<std::result::Result<Option<Sidecar>, String>> {
        let path = sidecar_path(file.path());
        let Ok(opened) = File::open(&path) else {
            return Ok(Ok(None));
        };
        let unusable = |why: &str| {
            Ok(Err(format!(
                "{} is ignored: {why}; make it anew with osmill cat --index {}",
                path.display(),
                file.path().display()
            )))
        };
        let size = opened.metadata().map(|metadata| metadata.len()).unwrap_or(0);
        let mut source = BufReader::with_capacity(1 << 16, opened);
        let mut header = [0; HEADER_SIZE];
        if source.read_exact(&mut header).is_err() || header[..8] != MAGIC {
            return unusable("it is not an index of osmill");
        }
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| header[at + i]));
        if word(8) != u64::from(VERSION) | (ENTRY_SIZE as u64) << 32 {
            return unusable("it is of another version");
        }
        if header[..48] != identity(file)?[..48] {
            return unusable("the file has changed since it was made");
        }
        // No more than the file holds is allocated.
        let count = word(48);
        if count.checked_mul(ENTRY_SIZE as u64) != size.checked_sub(HEADER_SIZE as u64 + 8) {
            return unusable("it is cut off");
        }
        let mut hash = Hash::new();
        hash.add(&header);
        let mut entries = Vec::with_capacity(count as usize);
        let mut bytes = [0; ENTRY_SIZE];
        for _ in 0..count {
            if source.read_exact(&mut bytes).is_err() {
                return unusable("it is cut off");
            }
            hash.add(&bytes);
            let short = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
            let offset = u64::from_le_bytes(std::array::from_fn(|i| bytes[i]));
            let data_size = short(12);
            if let Some(record) = IndexRecord::decode(&bytes[16..], data_size as usize) {
                entries.push((offset, short(8), data_size, record));
            }
        }
        let mut check = [0; 8];
        if source.read_exact(&mut check).is_err() || u64::from_le_bytes(check) != hash.0 {
            return unusable("it is damaged");
        }
        entries.sort_unstable_by_key(|entry| entry.0);
        Ok(Ok(Some(Sidecar { entries })))
    }

    /// Gives records to blobs that have none.
    pub fn fill(&self, blobs: &mut [BlobEntry]) {
        for blob in blobs.iter_mut().filter(|blob| blob.index.is_none()) {
            let found = self.entries.binary_search_by_key(&blob.offset, |entry| entry.0);
            if let Some((_, header_size, data_size, record)) = found.ok().map(|at| self.entries[at])
                && (header_size, data_size) == (blob.header_size, blob.data_size)
            {
                blob.index = Some(record);
            }
        }
    }
}

impl Plan {
    /// Writes what the plan knows of its blobs to the side-car of its file, replacing the one that is there. Gives its
    /// path.
    pub fn write_sidecar(&self, file: &ReadFile, fsync: bool) -> Result<PathBuf> {
        let path = sidecar_path(file.path());
        let known = || self.blobs.iter().filter_map(|blob| Some((blob, blob.index?)));
        let mut bytes = identity(file)?.to_vec();
        bytes[48..56].copy_from_slice(&(known().count() as u64).to_le_bytes());
        let mut hash = Hash::new();
        hash.add(&bytes);
        for (blob, record) in known() {
            let start = bytes.len();
            bytes.extend_from_slice(&blob.offset.to_le_bytes());
            bytes.extend_from_slice(&blob.header_size.to_le_bytes());
            bytes.extend_from_slice(&blob.data_size.to_le_bytes());
            bytes.extend_from_slice(&record.encode(blob.data_size as usize));
            hash.add(&bytes[start..]);
        }
        bytes.extend_from_slice(&hash.0.to_le_bytes());
        let out = AtomicFile::create(&path, true)?;
        let written = out.file.get().and_then(|file| (&*file).write_all(&bytes));
        written.map_err(|e| Error::write(&path, 0, e))?;
        out.commit(fsync)?;
        Ok(path)
    }
}
