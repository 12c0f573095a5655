//! Output that is held back.
//!
//! A command may come across what it will write before it knows what comes earlier in the file, or whether there
//! will be more of it: which ways there are decides on the nodes, which stand before them. What a task has put out
//! is then held ([`TaskOutputs::hold`]) and put out again by a task of a later pass ([`TaskOutputs::restore`]), so
//! that most blobs need not be read a second time. Nothing tells the output from one that was written by the later
//! pass alone.
//!
//! Bytes stay in memory up to a limit, and go to a file without a name in the scratch folder beyond it. Ranges that
//! are copied from an input stay ranges.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use osmill_model::Kind;

use crate::error::{Error, KernelResult, Result};
use crate::file::{ReadBuffer, ReadFile};
use crate::output::Piece;
use crate::summary::Counts;
use crate::task::TaskOutputs;

/// Where held bytes are kept.
#[derive(Debug)]
pub struct HoldStore {
    /// Bytes that may stay in memory.
    limit: u64,
    scratch: PathBuf,
    state: Mutex<StoreState>,
}

#[derive(Debug, Default)]
struct StoreState {
    in_memory: u64,
    file: Option<(Arc<ReadFile>, Arc<File>)>,
    /// Bytes in the file.
    end: u64,
}

/// Bytes in a store.
#[derive(Debug)]
enum Stored {
    Memory(Vec<u8>),
    File(Arc<ReadFile>, u64, u64),
}

impl HoldStore {
    /// A store with `limit` bytes of memory and a file in the folder `scratch` for the rest, which is only made
    /// if it is needed.
    pub fn new(limit: u64, scratch: impl Into<PathBuf>) -> Self {
        HoldStore {
            limit,
            scratch: scratch.into(),
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, StoreState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, bytes: &[u8]) -> Result<Stored> {
        let size = bytes.len() as u64;
        let mut state = self.lock();
        if state.in_memory + size <= self.limit {
            state.in_memory += size;
            drop(state);
            return Ok(Stored::Memory(bytes.to_vec()));
        }
        let (reading, writing) = match &state.file {
            Some(open) => open.clone(),
            None => {
                let fail = |e| Error::io("create", &self.scratch, e);
                let file = tempfile::tempfile_in(&self.scratch).map_err(fail)?;
                let writing = Arc::new(file.try_clone().map_err(fail)?);
                let reading = Arc::new(ReadFile::from_file(file, self.scratch.clone())?);
                state.file.insert((reading, writing)).clone()
            }
        };
        let at = state.end;
        state.end += size;
        drop(state);
        writing
            .write_all_at(bytes, at)
            .map_err(|e| Error::write(&self.scratch, at, e))?;
        Ok(Stored::File(reading, at, size))
    }

    fn forget(&self, bytes: usize) {
        self.lock().in_memory -= bytes as u64;
    }
}

#[derive(Debug)]
enum HeldPiece {
    Bytes(Stored),
    Text(Stored),
    Copy(Arc<ReadFile>, u64, u64),
    Thin(Stored, Kind, usize),
}

/// What a task has put out, held back: for each output that has something its number, pieces and counts.
#[derive(Debug, Default)]
pub struct Held(Vec<(u32, Vec<HeldPiece>, Counts)>);

impl Held {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Drops what is for outputs, by their numbers, that `keep` does not want.
    pub fn retain(&mut self, store: &HoldStore, mut keep: impl FnMut(u32) -> bool) {
        self.0.retain(|(number, pieces, _)| {
            let kept = keep(*number);
            for piece in pieces.iter().filter(|_| !kept) {
                match piece {
                    HeldPiece::Bytes(Stored::Memory(bytes))
                    | HeldPiece::Text(Stored::Memory(bytes))
                    | HeldPiece::Thin(Stored::Memory(bytes), ..) => store.forget(bytes.len()),
                    _ => {}
                }
            }
            kept
        });
    }
}

impl TaskOutputs<'_> {
    /// Takes back what the task has put out so far, to be put out later.
    pub fn hold(&mut self, store: &HoldStore) -> KernelResult<Held> {
        let mut held = Vec::new();
        for (number, pieces, counts) in self.take() {
            let hold = |piece| -> Result<HeldPiece> {
                Ok(match piece {
                    Piece::Bytes(bytes) => {
                        let stored = store.keep(&bytes)?;
                        self.sinks()[number].give_back(bytes);
                        HeldPiece::Bytes(stored)
                    }
                    Piece::Text(bytes) => {
                        let stored = store.keep(&bytes)?;
                        self.sinks()[number].give_back(bytes);
                        HeldPiece::Text(stored)
                    }
                    Piece::Copy(file, at, len) => HeldPiece::Copy(file, at, len),
                    Piece::Thin(raw, kind, count) => HeldPiece::Thin(store.keep(&raw)?, kind, count),
                })
            };
            let pieces = pieces.into_iter().map(hold).collect::<Result<Vec<_>>>()?;
            if !pieces.is_empty() {
                held.push((number as u32, pieces, counts));
            }
        }
        Ok(Held(held))
    }

    /// Puts out what a task of an earlier pass over the same outputs was made to hold.
    pub fn restore(&mut self, held: Held, store: &HoldStore) -> KernelResult {
        let mut buffer = ReadBuffer::default();
        for (number, pieces, counts) in held.0 {
            let mut restore = |piece| -> Result<Piece> {
                Ok(match piece {
                    HeldPiece::Bytes(Stored::Memory(bytes)) => {
                        store.forget(bytes.len());
                        Piece::Bytes(bytes)
                    }
                    HeldPiece::Bytes(Stored::File(file, at, len)) | HeldPiece::Copy(file, at, len) => {
                        Piece::Copy(file, at, len)
                    }
                    HeldPiece::Thin(Stored::Memory(raw), kind, count) => {
                        store.forget(raw.len());
                        Piece::Thin(raw, kind, count)
                    }
                    HeldPiece::Text(Stored::Memory(text)) => {
                        store.forget(text.len());
                        Piece::Text(text)
                    }
                    HeldPiece::Thin(Stored::File(file, at, len), kind, count) => {
                        file.read_at(at, len as usize, &mut buffer)?;
                        Piece::Thin(buffer.as_slice().to_vec(), kind, count)
                    }
                    HeldPiece::Text(Stored::File(file, at, len)) => {
                        file.read_at(at, len as usize, &mut buffer)?;
                        Piece::Text(buffer.as_slice().to_vec())
                    }
                })
            };
            let pieces = pieces.into_iter().map(&mut restore).collect::<Result<Vec<_>>>()?;
            self.add(number as usize, pieces, counts);
        }
        Ok(())
    }
}
