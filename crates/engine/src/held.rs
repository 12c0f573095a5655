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
    /// From here on in this file.
    File(Arc<ReadFile>, u64),
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

    fn keep(&self, bytes: Vec<u8>) -> Result<Stored> {
        let size = bytes.len() as u64;
        let mut state = self.lock();
        if state.in_memory + size <= self.limit {
            state.in_memory += size;
            drop(state);
            return Ok(Stored::Memory(bytes));
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
            .write_all_at(&bytes, at)
            .map_err(|e| Error::write(&self.scratch, at, e))?;
        Ok(Stored::File(reading, at))
    }

    /// Takes kept bytes back, for their parts to be taken out of.
    fn take(&self, stored: Stored) -> Taken {
        if let Stored::Memory(bytes) = &stored {
            self.lock().in_memory -= bytes.len() as u64;
        }
        Taken {
            stored,
            at: 0,
            buffer: ReadBuffer::default(),
        }
    }
}

/// Kept bytes of which one part is taken after the other.
struct Taken {
    stored: Stored,
    at: u64,
    buffer: ReadBuffer,
}

impl Taken {
    /// Passes over a part.
    fn skip(&mut self, len: u64) -> u64 {
        let at = self.at;
        self.at += len;
        at
    }

    /// The next part, in memory.
    fn bytes(&mut self, len: u64) -> Result<Vec<u8>> {
        let at = self.skip(len);
        match &mut self.stored {
            Stored::Memory(bytes) if len == bytes.len() as u64 => Ok(std::mem::take(bytes)),
            Stored::Memory(bytes) => Ok(bytes[at as usize..][..len as usize].to_vec()),
            Stored::File(file, start) => {
                file.read_at(*start + at, len as usize, &mut self.buffer)?;
                Ok(self.buffer.as_slice().to_vec())
            }
        }
    }

    /// The next part as a piece of bytes, which stay where they are.
    fn piece(&mut self, len: u64) -> Result<Piece> {
        if let Stored::File(file, start) = &self.stored {
            let (file, start) = (file.clone(), *start);
            return Ok(Piece::Copy(file, start + self.skip(len), len));
        }
        Ok(Piece::Bytes(self.bytes(len)?))
    }
}

/// What a piece is.
#[derive(Debug)]
enum Form {
    Bytes,
    Text,
    Thin(Kind, u32),
    /// Not kept, but a range of this file from here on.
    Copy(Box<(Arc<ReadFile>, u64)>),
}

/// A piece of what is held. There are many: one for each blob and region.
#[derive(Debug)]
struct HeldPiece {
    output: u32,
    form: Form,
    /// Bytes.
    len: u64,
}

/// What is held for an output.
#[derive(Debug)]
struct HeldOutput {
    number: u32,
    /// Elements in its pieces by kind, of which a block has fewer than 2^32.
    counts: [u32; 3],
    wanted: bool,
}

/// What a task has put out, held back. All its bytes are kept together, so that each output which has something costs
/// little more than that.
#[derive(Debug)]
pub struct Held {
    /// By their outputs, in the order of the kept bytes.
    pieces: Box<[HeldPiece]>,
    /// In the same order.
    outputs: Box<[HeldOutput]>,
    stored: Stored,
}

impl Default for Held {
    fn default() -> Self {
        Held {
            pieces: Box::default(),
            outputs: Box::default(),
            stored: Stored::Memory(Vec::new()),
        }
    }
}

impl Held {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.outputs.is_empty()
    }

    /// Drops what is for outputs, by their numbers, that `keep` does not want.
    pub fn retain(&mut self, mut keep: impl FnMut(u32) -> bool) {
        for output in &mut self.outputs {
            output.wanted &= keep(output.number);
        }
    }
}

impl TaskOutputs<'_> {
    /// Takes back what the task has put out so far, to be put out later.
    pub fn hold(&mut self, store: &HoldStore) -> KernelResult<Held> {
        let put_out = self.take()?;
        let pieces_of = |pieces: &[Piece]| pieces.iter().map(Piece::bytes_in_memory).sum::<usize>();
        let size = put_out.iter().map(|(_, pieces, _)| pieces_of(pieces)).sum();
        let (mut held, mut outputs) = (Vec::new(), Vec::new());
        let mut bytes = Vec::with_capacity(size);
        for (number, pieces, counts) in put_out {
            if pieces.is_empty() {
                continue;
            }
            let output = number as u32;
            outputs.push(HeldOutput {
                number: output,
                counts: [counts.nodes, counts.ways, counts.relations].map(|count| count as u32),
                wanted: true,
            });
            for piece in pieces {
                let mut keep = |part: &[u8]| {
                    bytes.extend_from_slice(part);
                    part.len() as u64
                };
                let (form, len) = match &piece {
                    Piece::Bytes(part) => (Form::Bytes, keep(part)),
                    Piece::Text(part) => (Form::Text, keep(part)),
                    Piece::Thin(part, kind, count) => (Form::Thin(*kind, *count as u32), keep(part)),
                    Piece::Copy(file, at, len) => (Form::Copy(Box::new((file.clone(), *at))), *len),
                };
                if let Piece::Bytes(part) | Piece::Text(part) = piece {
                    self.sinks()[number].give_back(part);
                }
                held.push(HeldPiece { output, form, len });
            }
        }
        Ok(Held {
            pieces: held.into(),
            outputs: outputs.into(),
            stored: store.keep(bytes)?,
        })
    }

    /// Puts out what a task of an earlier pass over the same outputs was made to hold.
    pub fn restore(&mut self, held: Held, store: &HoldStore) -> KernelResult {
        let mut taken = store.take(held.stored);
        let mut pieces = held.pieces.into_iter().peekable();
        for HeldOutput {
            number,
            counts,
            wanted,
        } in held.outputs
        {
            let mut restored = Vec::new();
            while let Some(HeldPiece { form, len, .. }) = pieces.next_if(|piece| piece.output == number) {
                restored.push(match form {
                    Form::Copy(place) => Piece::Copy(place.0, place.1, len),
                    _ if !wanted => {
                        taken.skip(len);
                        continue;
                    }
                    Form::Bytes => taken.piece(len)?,
                    Form::Text => Piece::Text(taken.bytes(len)?),
                    Form::Thin(kind, count) => Piece::Thin(taken.bytes(len)?, kind, count as usize),
                });
            }
            if wanted {
                let [nodes, ways, relations] = counts.map(u64::from);
                let counts = Counts {
                    nodes,
                    ways,
                    relations,
                };
                self.put(number as usize, restored, counts)?;
            }
        }
        Ok(())
    }
}
