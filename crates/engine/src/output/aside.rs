//! Asides: what comes later in an output than things that are not known yet.
//!
//! A command may find out first what stands last in its output: which ways there are decides on the nodes, which
//! come before them. What it finds is encoded at once and put aside, so that its blobs need not be read a second
//! time. Bytes stay in memory up to a limit that all asides of a job share, and go to a file without a name in the
//! scratch folder beyond it. Ranges that are copied from an input stay ranges.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Piece, Sink, Slot, Target, Tools};
use crate::error::{Error, Result};
use crate::file::ReadFile;
use crate::job::Job;
use crate::summary::Counters;

/// Where the bytes of asides are kept.
#[derive(Debug)]
pub struct AsideStore {
    /// Bytes that may stay in memory.
    limit: u64,
    scratch: PathBuf,
    state: Mutex<StoreState>,
}

#[derive(Debug, Default)]
struct StoreState {
    in_memory: u64,
    file: Option<(Arc<ReadFile>, File)>,
    /// Bytes in the file.
    end: u64,
}

impl AsideStore {
    /// A store with `limit` bytes of memory and a file in the folder `scratch` for the rest, which is only made
    /// if it is needed.
    pub fn new(limit: u64, scratch: impl Into<PathBuf>) -> Arc<Self> {
        Arc::new(AsideStore {
            limit,
            scratch: scratch.into(),
            state: Mutex::default(),
        })
    }

    fn keep(&self, bytes: &[u8]) -> Result<Piece> {
        let size = bytes.len() as u64;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.in_memory + size <= self.limit {
            state.in_memory += size;
            return Ok(Piece::Bytes(bytes.to_vec()));
        }
        if state.file.is_none() {
            let fail = |e| Error::io("create", &self.scratch, e);
            let file = tempfile::tempfile_in(&self.scratch).map_err(fail)?;
            let writing = file.try_clone().map_err(fail)?;
            state.file = Some((Arc::new(ReadFile::from_file(file, self.scratch.clone())?), writing));
        }
        let at = state.end;
        state.end += size;
        let Some((reading, writing)) = &state.file else {
            unreachable!("the file has just been made")
        };
        writing
            .write_all_at(bytes, at)
            .map_err(|e| Error::write(&self.scratch, at, e))?;
        Ok(Piece::Copy(reading.clone(), at, size))
    }
}

/// The pieces of one output that are aside.
#[derive(Debug)]
pub(super) struct Aside {
    store: Arc<AsideStore>,
    pieces: Vec<Piece>,
}

impl Aside {
    /// Takes the next piece. Gives its buffer back if the bytes were copied.
    pub fn push(&mut self, piece: Piece) -> Result<Option<Vec<u8>>> {
        match piece {
            Piece::Bytes(bytes) => {
                self.pieces.push(self.store.keep(&bytes)?);
                Ok(Some(bytes))
            }
            piece => {
                self.pieces.push(piece);
                Ok(None)
            }
        }
    }
}

impl Sink {
    /// A sink for what comes later in this output: see [`Job::append`]. It has the same options.
    pub fn aside(&self, store: &Arc<AsideStore>) -> Sink {
        let aside = Aside {
            store: store.clone(),
            pieces: Vec::new(),
        };
        let sink = Sink::to_target(self.options.clone(), Target::Aside(aside));
        sink.limit_spare_buffers(self.lock().most_spare);
        sink
    }

    /// Puts what is in an aside behind everything that this output holds.
    fn append(&self, aside: Sink, counters: &Counters) -> Result<()> {
        aside.flush(counters)?;
        let state = aside.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.flush(counters)?;
        let mut own = self.lock();
        own.counts += state.counts;
        if let Target::Aside(aside) = state.target {
            own.slots.extend(aside.pieces.into_iter().map(Slot::Ready));
        }
        let writes = self.place(&mut own)?;
        drop(own);
        self.write(writes, counters)
    }

    /// Encodes what has been gathered of thin pieces, so that nothing is added to it.
    pub(super) fn flush(&self, counters: &Counters) -> Result<()> {
        let mut merges = Vec::new();
        self.lock().flush_thin(&mut merges);
        if merges.is_empty() {
            return Ok(());
        }
        let mut tools = Tools::new(&self.options);
        for merge in merges {
            self.encode(merge, &mut tools, counters)?;
        }
        Ok(())
    }
}

impl Job {
    /// Puts each of the asides behind what its output holds so far, given in the order of the outputs.
    pub fn append(&self, sinks: &[Sink], asides: Vec<Sink>) -> Result<()> {
        let asides: Mutex<Vec<(&Sink, Sink)>> = Mutex::new(sinks.iter().zip(asides).rev().collect());
        self.phase("append", |counters| {
            let next = || asides.lock().unwrap_or_else(PoisonError::into_inner).pop();
            self.for_each_worker(|| {
                while let Some((sink, aside)) = next() {
                    sink.append(aside, counters)?;
                }
                Ok(())
            })
        })
    }
}
