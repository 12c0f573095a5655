//! Bytes of a file, decompressed on a thread of their own.
//!
//! Compression is recognised by the first bytes. A gzip file may have several members, a bzip2 file several
//! streams; both are read to the end. At most a few chunks wait for the parser.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use bzip2::read::MultiBzDecoder;
use flate2::bufread::MultiGzDecoder;

use crate::format::TextCompression;

/// Bytes that are handed over at a time.
pub(crate) const CHUNK: usize = 1 << 20;
/// Decompressed chunks of an input.
#[derive(Debug)]
pub(crate) struct Source {
    chunks: Option<Receiver<io::Result<Vec<u8>>>>,
    spent: Sender<Vec<u8>>,
    thread: Option<JoinHandle<()>>,
    compression: TextCompression,
}

impl Source {
    /// Begins to read up to `ahead` chunks ahead.
    pub fn new(mut input: impl Read + Send + 'static, ahead: usize) -> io::Result<Self> {
        let mut head = Vec::with_capacity(3);
        input.by_ref().take(3).read_to_end(&mut head)?;
        let compression = TextCompression::of(&head);
        let input = io::Cursor::new(head).chain(input);
        let (give, chunks) = sync_channel(ahead);
        let (spent, take) = channel();
        let thread = std::thread::Builder::new()
            .name("decompress".into())
            .spawn(move || {
                let input = io::BufReader::with_capacity(256 << 10, input);
                match compression {
                    TextCompression::None => pump(input, &give, &take),
                    TextCompression::Gzip => pump(MultiGzDecoder::new(input), &give, &take),
                    TextCompression::Bzip2 => pump(MultiBzDecoder::new(input), &give, &take),
                }
            })?;
        Ok(Source {
            chunks: Some(chunks),
            spent,
            thread: Some(thread),
            compression,
        })
    }

    pub fn compression(&self) -> TextCompression {
        self.compression
    }

    /// The next bytes, or `None` at the end.
    pub fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        match &self.chunks {
            Some(chunks) => chunks.recv().ok().transpose(),
            None => Ok(None),
        }
    }

    /// Gives a chunk back for its memory.
    pub fn recycle(&self, chunk: Vec<u8>) {
        // The thread may have ended; then the chunk is freed here.
        let _ = self.spent.send(chunk);
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        // The thread ends when it finds nobody to send to. A read that waits for its input cannot be
        // interrupted: the thread is left to it.
        self.chunks = None;
        if let Some(thread) = self.thread.take().filter(JoinHandle::is_finished) {
            let _ = thread.join();
        }
    }
}

fn pump(mut input: impl Read, give: &SyncSender<io::Result<Vec<u8>>>, take: &Receiver<Vec<u8>>) {
    loop {
        let mut chunk = take.try_recv().unwrap_or_default();
        chunk.clear();
        chunk.reserve_exact(CHUNK);
        let read = input.by_ref().take(CHUNK as u64).read_to_end(&mut chunk);
        // What came before the error is parsed first, so that an error in it is told.
        if !chunk.is_empty() && give.send(Ok(chunk)).is_err() {
            return;
        }
        match read {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) => {
                let error = match error.kind() {
                    io::ErrorKind::UnexpectedEof => io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the compressed data ends early; the file is truncated, fetch it again",
                    ),
                    _ => error,
                };
                let _ = give.send(Err(error));
                return;
            }
        }
    }
}
