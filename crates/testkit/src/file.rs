//! PBF files as streams: frames read one after the other; blocks built by several threads and written in
//! order.
//!
//! Writing: jobs come from an iterator, a worker turns each into the frames of its blocks, and the calling
//! thread writes them in the order of the jobs. At most `2 × threads + 2` jobs are between iterator and file,
//! so memory does not grow with the file. The bytes do not depend on the number of threads.

use std::io::{self, Read, Write};
use std::sync::{Mutex, mpsc};

use osmill_pbf::{
    BlobHeader, BlobType, Block, BlockBuilder, BlockError, Compression, Compressor, Decompressor, FileHeader,
    FrameError, IndexRecord, parse_blob, parse_header_length, write_frame,
};

use crate::model::ReadError;

/// A frame as it stands in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The BlobHeader message.
    pub header: Vec<u8>,
    /// The Blob message.
    pub blob: Vec<u8>,
}

impl Frame {
    /// What the blob is for.
    pub fn blob_type(&self) -> BlobType<'_> {
        BlobHeader::parse(&self.header).map_or(BlobType::Other(b""), |header| header.blob_type)
    }

    /// The index data of the header.
    pub fn index_data(&self) -> Option<&[u8]> {
        BlobHeader::parse(&self.header).ok()?.index_data
    }

    /// Appends the frame, length bytes included.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.header.len() as u32).to_be_bytes());
        out.extend_from_slice(&self.header);
        out.extend_from_slice(&self.blob);
    }
}

/// Reads frames from a stream.
#[derive(Debug)]
pub struct Frames<R> {
    input: R,
}

impl<R: Read> Frames<R> {
    /// The frames of this stream.
    pub fn new(input: R) -> Self {
        Frames { input }
    }

    /// The next frame; `None` at the end of the file.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, ReadError> {
        let mut length = [0; 4];
        if self.input.read(&mut length[..1])? == 0 {
            return Ok(None);
        }
        self.input.read_exact(&mut length[1..])?;
        let mut header = vec![0; parse_header_length(length)?];
        self.input.read_exact(&mut header)?;
        let size = BlobHeader::parse(&header)?.data_size;
        let mut blob = vec![0; size];
        self.input.read_exact(&mut blob)?;
        Ok(Some(Frame { header, blob }))
    }
}

/// Calls `visit` with every block of a stream; gives the last file header in it.
pub fn read_blocks<E: From<ReadError>>(
    input: impl Read,
    mut visit: impl FnMut(&Block) -> Result<(), E>,
) -> Result<FileHeader, E> {
    let mut header = FileHeader::default();
    let mut frames = Frames::new(input);
    let mut decompressor = Decompressor::default();
    let mut block = Block::empty();
    while let Some(frame) = frames.next_frame()? {
        match frame.blob_type() {
            BlobType::Other(_) => {}
            BlobType::Header => {
                header = read_header(&frame, &mut decompressor)?;
            }
            BlobType::Data => {
                let blob = parse_blob(&frame.blob).map_err(ReadError::from)?;
                block.refill(|raw| decompressor.decompress(&blob, raw).map_err(ReadError::from))?;
                visit(&block)?;
            }
        }
    }
    Ok(header)
}

/// Reads the file header of a header frame.
pub fn read_header(frame: &Frame, decompressor: &mut Decompressor) -> Result<FileHeader, ReadError> {
    let mut raw = Vec::new();
    decompressor.decompress(&parse_blob(&frame.blob)?, &mut raw)?;
    Ok(FileHeader::parse(&raw)?)
}

/// Why a file could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The output failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// An element is too large for a blob.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// An element that was to be copied is damaged.
    #[error(transparent)]
    Block(#[from] BlockError),
}

/// How a file is written.
#[derive(Debug, Clone, Copy)]
pub struct WriteOptions {
    /// The compression of the blobs.
    pub compression: Compression,
    /// Whether blob headers carry index records.
    pub index: bool,
    /// How many threads build and compress; at least 1.
    pub threads: usize,
}

impl Default for WriteOptions {
    fn default() -> Self {
        WriteOptions {
            compression: Compression::default(),
            index: false,
            threads: std::thread::available_parallelism().map_or(2, |n| n.get()),
        }
    }
}

/// Builds blocks and gathers their frames.
#[derive(Debug)]
pub struct FrameBuilder {
    builder: BlockBuilder,
    compression: Compression,
    compressor: Compressor,
    index: bool,
    raw: Vec<u8>,
    frames: Vec<u8>,
    error: Option<FrameError>,
}

impl FrameBuilder {
    /// A builder that compresses so.
    pub fn new(compression: Compression, index: bool) -> Self {
        FrameBuilder {
            builder: BlockBuilder::default(),
            compression,
            compressor: Compressor::new(compression),
            index,
            raw: Vec::new(),
            frames: Vec::new(),
            error: None,
        }
    }

    /// The builder for the next element: a full block is closed first.
    pub fn next_builder(&mut self) -> &mut BlockBuilder {
        if self.builder.is_full() {
            self.close_block();
        }
        &mut self.builder
    }

    /// The builder of the open block, however full it is.
    pub fn open(&mut self) -> &mut BlockBuilder {
        &mut self.builder
    }

    /// How many elements the open block has.
    pub fn len(&self) -> usize {
        self.builder.len()
    }

    /// Whether the open block has no element.
    pub fn is_empty(&self) -> bool {
        self.builder.is_empty()
    }

    /// Ends the open block.
    pub fn close_block(&mut self) {
        if self.builder.is_empty() {
            return;
        }
        let mut raw = std::mem::take(&mut self.raw);
        raw.clear();
        let record = self.builder.finish(&mut raw);
        self.add_raw(BlobType::Data, &raw, Some(&record));
        self.raw = raw;
    }

    /// Compresses what follows so.
    pub fn set_compression(&mut self, compression: Compression) {
        if self.compression != compression {
            self.compression = compression;
            self.compressor = Compressor::new(compression);
        }
    }

    /// Adds a frame with these uncompressed bytes.
    pub fn add_raw(&mut self, blob_type: BlobType<'_>, raw: &[u8], record: Option<&IndexRecord>) {
        let record = record.filter(|_| self.index);
        let written = write_frame(&mut self.frames, blob_type, record, raw, &mut self.compressor);
        if let Err(error) = written {
            self.error.get_or_insert(error);
        }
    }

    /// The frames so far, the open block closed.
    pub fn take(&mut self) -> Result<Vec<u8>, FrameError> {
        self.close_block();
        match self.error.take() {
            Some(error) => Err(error),
            None => Ok(std::mem::take(&mut self.frames)),
        }
    }
}

/// The frame of a file header.
pub fn header_frame(header: &FileHeader, compression: Compression) -> Result<Vec<u8>, FrameError> {
    let mut frames = FrameBuilder::new(compression, false);
    frames.add_raw(BlobType::Header, &header.encode(), None);
    frames.take()
}

/// Writes a file: the header, then for each job the blocks that `build` makes of it. Gives its size in bytes.
pub fn write_blocks<J: Send>(
    out: &mut impl Write,
    header: &FileHeader,
    options: &WriteOptions,
    jobs: impl Iterator<Item = J> + Send,
    build: impl Fn(J, &mut FrameBuilder) + Sync,
) -> Result<u64, WriteError> {
    let head = header_frame(header, options.compression)?;
    out.write_all(&head)?;
    let mut size = head.len() as u64;
    let threads = options.threads.max(1);
    let (job_sender, job_receiver) = mpsc::sync_channel(threads);
    let job_receiver = Mutex::new(job_receiver);
    let (order_sender, order) = mpsc::sync_channel::<mpsc::Receiver<Result<Vec<u8>, FrameError>>>(threads);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut frames = FrameBuilder::new(options.compression, options.index);
                loop {
                    let job = job_receiver.lock().ok().and_then(|receiver| receiver.recv().ok());
                    let Some((job, reply)) = job else {
                        return;
                    };
                    build(job, &mut frames);
                    let reply: mpsc::Sender<_> = reply;
                    // The writer may have given up; then nobody waits for the frames.
                    let _ = reply.send(frames.take());
                }
            });
        }
        scope.spawn(move || {
            for job in jobs {
                let (reply, frames) = mpsc::channel();
                if order_sender.send(frames).is_err() || job_sender.send((job, reply)).is_err() {
                    return;
                }
            }
        });
        // Dropped at an error, which ends the feeder and with it the workers.
        let order = order;
        for frames in order.iter() {
            let frames = frames
                .recv()
                .map_err(|_| io::Error::other("a worker panicked"))??;
            out.write_all(&frames)?;
            size += frames.len() as u64;
        }
        out.flush()?;
        Ok(size)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Data;
    use osmill_model::{Location, Metadata};

    fn numbered(jobs: u64, threads: usize) -> Vec<u8> {
        let mut out = Vec::new();
        let options = WriteOptions {
            threads,
            ..WriteOptions::default()
        };
        let size = write_blocks(
            &mut out,
            &FileHeader::new("test"),
            &options,
            0..jobs,
            |job, frames| {
                for i in 0..1000 {
                    let id = (job * 1000 + i) as i64;
                    frames
                        .next_builder()
                        .add_node(id, Some(Location::default()), [], &Metadata::default());
                }
            },
        );
        assert_eq!(size.unwrap(), out.len() as u64);
        out
    }

    #[test]
    fn jobs_come_out_in_order_for_any_number_of_threads() {
        let one = numbered(57, 1);
        assert!(one == numbered(57, 3));
        let data = Data::from_pbf(&one).unwrap();
        assert!(data.elements.iter().map(|e| e.id.id).eq(0..57_000));
    }

    #[test]
    fn a_failing_output_ends_the_work() {
        struct Full(usize);
        impl Write for Full {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0 = self
                    .0
                    .checked_sub(bytes.len())
                    .ok_or(io::ErrorKind::StorageFull)?;
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let result = write_blocks(
            &mut Full(500),
            &FileHeader::new("test"),
            &WriteOptions::default(),
            0..1000i64,
            |id, frames| {
                frames.next_builder().add_node(id, None, [], &Metadata::default());
            },
        );
        assert!(matches!(result, Err(WriteError::Io(_))));
    }

    #[test]
    fn cut_files_are_errors() {
        let bytes = numbered(1, 1);
        for len in 1..bytes.len() {
            let whole = Data::from_pbf(&bytes[..len]);
            let header = 4 + u32::from_be_bytes(bytes[..4].try_into().unwrap()) as usize;
            let first = header + BlobHeader::parse(&bytes[4..header]).unwrap().data_size;
            assert_eq!(whole.is_ok(), len == first, "{len}");
        }
    }
}
