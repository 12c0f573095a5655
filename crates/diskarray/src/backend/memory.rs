//! Blocks in RAM, for sets that need no file and for tests.

use super::{Backend, Immediate, Queue};
use std::io;
use std::sync::{Arc, RwLock};

/// A back end in memory; nothing outlives it. Its bytes do not count towards a store's memory budget.
#[derive(Debug, Default)]
pub struct MemoryBackend {
    bytes: RwLock<Vec<u8>>,
}

impl MemoryBackend {
    /// An empty back end.
    pub fn new() -> Self {
        Self::default()
    }

    /// One that starts with the given bytes.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self {
            bytes: RwLock::new(bytes),
        }
    }

    /// A copy of all bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.read().clone()
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Vec<u8>> {
        self.bytes.read().unwrap_or_else(|poison| poison.into_inner())
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Vec<u8>> {
        self.bytes.write().unwrap_or_else(|poison| poison.into_inner())
    }
}

/// Range of a request within `len` bytes.
pub(super) fn span(offset: u64, len: usize, total: usize) -> io::Result<std::ops::Range<usize>> {
    let start = usize::try_from(offset)
        .ok()
        .filter(|&s| s.checked_add(len).is_some_and(|end| end <= total));
    start
        .map(|s| s..s + len)
        .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

impl Backend for MemoryBackend {
    fn describe(&self) -> String {
        "memory".into()
    }
    fn len(&self) -> io::Result<u64> {
        Ok(self.read().len() as u64)
    }
    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let bytes = usize::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        self.write().resize(bytes, 0);
        Ok(())
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let bytes = self.read();
        buf.copy_from_slice(&bytes[span(offset, buf.len(), bytes.len())?]);
        Ok(())
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let mut bytes = self.write();
        let span = span(offset, buf.len(), bytes.len())?;
        bytes[span].copy_from_slice(buf);
        Ok(())
    }
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
    fn queue(self: Arc<Self>, _: usize) -> io::Result<Box<dyn Queue>> {
        Ok(Box::new(Immediate::new(self)))
    }
}
