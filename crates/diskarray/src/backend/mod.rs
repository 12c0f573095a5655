//! Where blocks live: a small trait, and its implementations.

mod file;
mod memory;
mod sim;
mod threads;
#[cfg(target_os = "linux")]
mod uring;

pub use crate::buf::{AlignedBuf, BLOCK};
pub use file::{Access, FileBackend};
pub use memory::MemoryBackend;
pub use sim::{Fault, SimDisk, Tear};

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// A flat, resizable array of bytes that can be made durable.
///
/// Offsets and lengths of all requests are multiples of [`BLOCK`]; all memory is block-aligned. Writes to different
/// places may become durable in any order, wholly or in part, until [`flush`](Backend::flush) returns.
pub trait Backend: Send + Sync + 'static {
    /// Which back end runs, and why this one: for people.
    fn describe(&self) -> String;
    /// Whether there is a device behind it whose speed is worth measuring.
    fn is_device(&self) -> bool {
        false
    }
    /// Present length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether nothing was ever written.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Grows with zeros or cuts.
    fn set_len(&self, bytes: u64) -> io::Result<()>;
    /// Gives the storage of a stretch back, where that is possible: its bytes may be anything after that.
    fn release(&self, _offset: u64, _bytes: u64) -> io::Result<()> {
        Ok(())
    }
    /// Bytes of storage taken, as far as it is known.
    fn stored(&self) -> io::Result<u64> {
        self.len()
    }
    /// Fills `buf`; reading beyond the end is an error.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;
    /// Writes all of `buf`.
    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()>;
    /// Makes every completed write durable. After an error nothing is known about any write since the last success.
    fn flush(&self) -> io::Result<()>;
    /// A queue on which up to `depth` requests are in flight.
    fn queue(self: Arc<Self>, depth: usize) -> io::Result<Box<dyn Queue>>;
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Disk to memory.
    Read,
    /// Memory to disk.
    Write,
}

/// One read or write; owns its memory until it completes.
#[derive(Debug)]
pub struct Request {
    /// Handed back with the completion.
    pub tag: u64,
    /// Direction.
    pub kind: Kind,
    /// Byte offset on the back end.
    pub offset: u64,
    /// Bytes, at most the buffer's length.
    pub len: usize,
    /// Source or target.
    pub buf: AlignedBuf,
}

/// A finished request.
#[derive(Debug)]
pub struct Completion {
    /// Tag of the request.
    pub tag: u64,
    /// Whether all bytes went through.
    pub result: io::Result<()>,
    /// The request's memory.
    pub buf: AlignedBuf,
}

/// Requests in flight, from one thread. Dropping a queue waits for what is in flight.
pub trait Queue: Send {
    /// Starts a request; may hold it back until [`complete`](Queue::complete) is asked to wait.
    fn submit(&mut self, request: Request) -> io::Result<()>;
    /// Takes a finished request in any order. With `wait`, blocks until there is one; `None` when nothing is in flight,
    /// or without `wait` nothing has finished.
    fn complete(&mut self, wait: bool) -> io::Result<Option<Completion>>;
    /// Requests submitted and not yet taken back.
    fn in_flight(&self) -> usize;
}

/// A queue that runs every request at once, for back ends where nothing is gained by waiting.
struct Immediate<B: Backend + ?Sized> {
    backend: Arc<B>,
    done: VecDeque<Completion>,
}

impl<B: Backend + ?Sized> Immediate<B> {
    fn new(backend: Arc<B>) -> Self {
        Self {
            backend,
            done: VecDeque::new(),
        }
    }
}

fn run<B: Backend + ?Sized>(backend: &B, mut request: Request) -> Completion {
    let result = match request.kind {
        Kind::Read => backend.read_at(request.offset, &mut request.buf[..request.len]),
        Kind::Write => backend.write_at(request.offset, &request.buf[..request.len]),
    };
    Completion {
        tag: request.tag,
        result,
        buf: request.buf,
    }
}

impl<B: Backend + ?Sized> Queue for Immediate<B> {
    fn submit(&mut self, request: Request) -> io::Result<()> {
        self.done.push_back(run(&*self.backend, request));
        Ok(())
    }
    fn complete(&mut self, _: bool) -> io::Result<Option<Completion>> {
        Ok(self.done.pop_front())
    }
    fn in_flight(&self) -> usize {
        self.done.len()
    }
}
