//! Locations of references in scratch, between passes over ranges of ids.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use osmill_engine::{Error, Result};
use osmill_model::Location;
use osmill_pbf::wire::{read_varint, write_varint, zigzag_decode, zigzag_encode};

/// Bytes that the file system of a folder has left for us.
pub fn free_space(folder: &Path) -> Result<u64> {
    let stat = rustix::fs::statvfs(folder).map_err(|e| Error::io("look at", folder, e.into()))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// For each range of ids and each blob of ways, the locations of the references into the range, in their
/// order: differences to the one before as varints, with a zero byte where a node is missing.
///
/// The file has no name and goes with its last handle, however the process ends.
#[derive(Debug)]
pub struct LocationStreams {
    file: File,
    folder: PathBuf,
    end: AtomicU64,
    blobs: usize,
    /// Offset and length of each stream.
    index: Mutex<Vec<(u64, u64)>>,
}

impl LocationStreams {
    /// No streams yet, for `ranges` ranges and `blobs` blobs, in a file in this folder.
    pub fn create(folder: &Path, ranges: usize, blobs: usize) -> Result<LocationStreams> {
        Ok(LocationStreams {
            file: tempfile::tempfile_in(folder).map_err(|e| Error::io("create a file in", folder, e))?,
            folder: folder.to_owned(),
            end: AtomicU64::new(0),
            blobs,
            index: Mutex::new(vec![(0, 0); ranges * blobs]),
        })
    }

    /// Bytes in scratch.
    pub fn bytes(&self) -> u64 {
        self.end.load(Relaxed)
    }

    /// Writes the stream of a range and a blob. `buffer` is for the bytes.
    pub fn write(
        &self,
        range: usize,
        blob: usize,
        locations: &[Option<Location>],
        buffer: &mut Vec<u8>,
    ) -> Result<()> {
        buffer.clear();
        encode(locations, buffer);
        let len = buffer.len() as u64;
        let offset = self.end.fetch_add(len, Relaxed);
        self.file
            .write_all_at(buffer, offset)
            .map_err(|e| Error::write(&self.folder, offset, e))?;
        let mut index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
        index[range * self.blobs + blob] = (offset, len);
        Ok(())
    }

    /// Reads the stream of a range and a blob.
    pub fn read(&self, range: usize, blob: usize) -> Result<Stream> {
        let (offset, len) = {
            let index = self.index.lock().unwrap_or_else(PoisonError::into_inner);
            index[range * self.blobs + blob]
        };
        let mut bytes = vec![0; len as usize];
        self.file
            .read_exact_at(&mut bytes, offset)
            .map_err(|e| Error::io("read scratch in", &self.folder, e))?;
        Ok(Stream {
            bytes,
            at: 0,
            last: Location::default(),
        })
    }
}

fn encode(locations: &[Option<Location>], out: &mut Vec<u8>) {
    let mut last = Location::default();
    for location in locations {
        match location {
            None => out.push(0),
            Some(at) => {
                write_varint(out, zigzag_encode(i64::from(at.lon) - i64::from(last.lon)) + 1);
                write_varint(out, zigzag_encode(i64::from(at.lat) - i64::from(last.lat)));
                last = *at;
            }
        }
    }
}

/// The locations of a stream, one after the other.
#[derive(Debug)]
pub struct Stream {
    bytes: Vec<u8>,
    at: usize,
    last: Location,
}

impl Stream {
    /// The location of the next reference into the range.
    pub fn next_location(&mut self) -> Option<Location> {
        let mut rest = &self.bytes[self.at..];
        let lon = read_varint(&mut rest).unwrap_or(0);
        if lon != 0 {
            let lat = read_varint(&mut rest).unwrap_or(0);
            let move_by = |from: i32, by: u64| i64::from(from).wrapping_add(zigzag_decode(by)) as i32;
            self.last = Location::new(move_by(self.last.lon, lon - 1), move_by(self.last.lat, lat));
        }
        self.at = self.bytes.len() - rest.len();
        (lon != 0).then_some(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn streams_read_back(
            streams in proptest::collection::vec(
                proptest::collection::vec(any::<Option<(i32, i32)>>(), 0..50),
                6,
            ),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let written = LocationStreams::create(folder.path(), 2, 3).unwrap();
            let streams: Vec<Vec<Option<Location>>> = streams
                .into_iter()
                .map(|s| s.into_iter().map(|at| at.map(|(lon, lat)| Location::new(lon, lat))).collect())
                .collect();
            let mut buffer = Vec::new();
            for (i, stream) in streams.iter().enumerate().rev() {
                written.write(i / 3, i % 3, stream, &mut buffer).unwrap();
            }
            for (i, stream) in streams.iter().enumerate() {
                let mut read = written.read(i / 3, i % 3).unwrap();
                for location in stream {
                    prop_assert_eq!(read.next_location(), *location);
                }
            }
        }
    }

    #[test]
    fn some_space_is_free() {
        assert!(free_space(&std::env::temp_dir()).unwrap() > 0);
        assert!(free_space(Path::new("/no/such/folder")).is_err());
    }
}
