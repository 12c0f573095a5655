//! Files: positional reads, atomic outputs, direct I/O.
//!
//! Direct I/O asks for buffers, offsets and lengths aligned to [`ALIGNMENT`]. Reads fetch the aligned range
//! around what is wanted. Writes go through one aligned buffer; only the last one, at the end of the file, is
//! padded, and the file is cut to its length afterwards.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};

use crate::error::{Error, Result};
use crate::pool::{OutputFile, OutputFiles};

/// What direct I/O is aligned to, in bytes: enough for all disks in use.
pub(crate) const ALIGNMENT: usize = 4096;

/// A file that is read at any position, from any thread.
#[derive(Debug)]
pub struct ReadFile {
    file: File,
    path: PathBuf,
    size: u64,
    direct: bool,
}

/// A buffer for reads. Its allocation is kept between reads.
#[derive(Debug, Default)]
pub struct ReadBuffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl ReadBuffer {
    /// The bytes that were read last.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    /// A writable buffer of `len` bytes that begins at a multiple of `alignment` in memory.
    fn aligned(&mut self, len: usize, alignment: usize) -> &mut [u8] {
        if self.bytes.len() < len + alignment {
            self.bytes.clear();
            self.bytes.resize(len + alignment, 0);
        }
        self.start = self.bytes.as_ptr().align_offset(alignment);
        self.len = len;
        &mut self.bytes[self.start..self.start + len]
    }
}

impl ReadFile {
    /// Opens a regular file. With `direct`, reads go past the page cache where the file system can.
    pub fn open(path: &Path, direct: bool) -> Result<Self> {
        let fail = |e| Error::io("open", path, e);
        let mut direct = direct;
        let mut options = OpenOptions::new();
        options.read(true);
        let file = if direct {
            options.custom_flags(OFlags::DIRECT.bits() as i32);
            match options.open(path) {
                Err(e) if e.kind() == io::ErrorKind::InvalidInput => {
                    direct = false;
                    File::open(path)
                }
                other => other,
            }
        } else {
            options.open(path)
        }
        .map_err(fail)?;
        let metadata = file.metadata().map_err(fail)?;
        if metadata.is_dir() {
            return Err(fail(io::Error::from(io::ErrorKind::IsADirectory)));
        }
        Ok(ReadFile {
            file,
            path: path.to_owned(),
            size: metadata.len(),
            direct,
        })
    }

    /// A file that is open already, such as a spooled stream.
    pub fn from_file(file: File, path: PathBuf) -> Result<Self> {
        let size = file.metadata().map_err(|e| Error::io("read", &path, e))?.len();
        Ok(ReadFile {
            file,
            path,
            size,
            direct: false,
        })
    }

    /// The path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The size in bytes when it was opened.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The first bytes of the file.
    pub fn head(&self) -> Result<Vec<u8>> {
        let mut buffer = ReadBuffer::default();
        self.read_at(0, 512, &mut buffer)?;
        Ok(buffer.as_slice().to_vec())
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Reads up to `len` bytes at `offset`: fewer only at the end of the file.
    pub fn read_at(&self, offset: u64, len: usize, buffer: &mut ReadBuffer) -> Result<()> {
        if !self.direct {
            if buffer.bytes.len() < len {
                buffer.bytes.resize(len, 0);
            }
            buffer.start = 0;
            buffer.len = self.fill(offset, &mut buffer.bytes[..len])?;
            return Ok(());
        }
        let lead = (offset % ALIGNMENT as u64) as usize;
        let span = (lead + len).next_multiple_of(ALIGNMENT);
        let found = self.fill(offset - lead as u64, buffer.aligned(span, ALIGNMENT))?;
        buffer.start += lead;
        buffer.len = found.saturating_sub(lead).min(len);
        Ok(())
    }

    fn fill(&self, offset: u64, bytes: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < bytes.len() {
            match self.file.read_at(&mut bytes[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => {
                    done += n;
                    // A direct read that ends off the alignment has met the end of the file.
                    if self.direct && done % ALIGNMENT != 0 {
                        break;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Error::io("read", &self.path, e)),
            }
        }
        Ok(done)
    }
}

/// Reads from a stream until `bytes` is full or the stream ends; gives the number of bytes read.
pub(crate) fn read_full(source: &mut dyn Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        match source.read(&mut bytes[done..]) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

/// A file that appears under its name only when it is complete.
///
/// It is written without a name (`O_TMPFILE`) where the file system can, so that even a killed process leaves
/// nothing behind, and under a temporary name in the same folder elsewhere, and where it may be closed meanwhile.
#[derive(Debug)]
pub(crate) struct AtomicFile {
    pub file: OutputFile,
    /// Where the file will be; symbolic links are followed.
    target: PathBuf,
    temporary: Option<tempfile::TempPath>,
    /// A device or pipe is written to directly, and so is what needs no name.
    in_place: bool,
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Whether what is written to this path is seen at once: by whoever reads the pipe, or the device.
pub(crate) fn is_written_in_place(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| {
        let kind = metadata.file_type();
        kind.is_char_device() || kind.is_block_device() || kind.is_fifo() || kind.is_socket()
    })
}

impl AtomicFile {
    pub fn create(path: &Path, overwrite: bool) -> Result<Self> {
        AtomicFile::create_among(&OutputFiles::default(), path, overwrite)
    }

    /// One of the files of many outputs.
    pub fn create_among(files: &OutputFiles, path: &Path, overwrite: bool) -> Result<Self> {
        let fail = |e| Error::io("create", path, e);
        let target = match path.canonicalize() {
            Ok(target) => target,
            Err(_) => path.to_owned(),
        };
        if is_written_in_place(&target) {
            let file = OpenOptions::new().write(true).open(&target).map_err(fail)?;
            return Ok(AtomicFile {
                file: OutputFile::Open(Arc::new(file)),
                target,
                temporary: None,
                in_place: true,
            });
        }
        if let Ok(metadata) = target.metadata() {
            if metadata.is_dir() {
                return Err(fail(io::Error::from(io::ErrorKind::IsADirectory)));
            }
            if !overwrite {
                return Err(Error::Exists(path.to_owned()));
            }
        }
        let unnamed = || {
            let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
            rustix::fs::open(folder_of(&target), flags, Mode::from_raw_mode(0o666)).ok()
        };
        if !files.need_names()
            && let Some(file) = unnamed()
        {
            return Ok(AtomicFile {
                file: OutputFile::Open(Arc::new(file.into())),
                target,
                temporary: None,
                in_place: false,
            });
        }
        let named = tempfile::Builder::new()
            .prefix(".osmill-")
            .suffix(".tmp")
            .permissions(std::fs::Permissions::from_mode(0o666))
            .tempfile_in(folder_of(&target))
            .map_err(fail)?;
        let (file, temporary) = named.into_parts();
        Ok(AtomicFile {
            file: files.add(file, temporary.to_path_buf()),
            target,
            temporary: Some(temporary),
            in_place: false,
        })
    }

    /// A file without a name that does not get one. `folder` is for messages.
    pub fn unnamed(file: File, folder: &Path) -> Self {
        AtomicFile {
            file: OutputFile::Open(Arc::new(file)),
            target: folder.to_owned(),
            temporary: None,
            in_place: true,
        }
    }

    /// Whether offsets mean anything: not for pipes and devices.
    pub fn is_seekable(&self) -> bool {
        !self.in_place
    }

    /// Gives the file its name, replacing what was there.
    pub fn commit(self, sync: bool) -> Result<()> {
        let fail = |e: io::Error| Error::io("finish", &self.target, e);
        if self.in_place {
            return Ok(());
        }
        if sync {
            self.file.get().and_then(|file| file.sync_all()).map_err(fail)?;
        }
        match self.temporary {
            Some(temporary) => temporary.persist(&self.target).map_err(|e| fail(e.error))?,
            None => {
                let file = self.file.get().map_err(fail)?;
                link_over(&file, &self.target).map_err(fail)?;
            }
        }
        if sync {
            File::open(folder_of(&self.target))
                .and_then(|folder| folder.sync_all())
                .map_err(fail)?;
        }
        Ok(())
    }
}

/// Names an unnamed file `target`, replacing what was there.
fn link_over(file: &File, target: &Path) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let source = format!("/proc/self/fd/{}", file.as_raw_fd());
    let link = |name: &Path| rustix::fs::linkat(CWD, source.as_str(), CWD, name, AtFlags::SYMLINK_FOLLOW);
    match link(target) {
        Ok(()) => return Ok(()),
        Err(e) if e == rustix::io::Errno::EXIST => {}
        Err(e) => return Err(e.into()),
    }
    // A link cannot replace a file, a rename can.
    let staging = tempfile::Builder::new()
        .prefix(".osmill-")
        .suffix(".tmp")
        .make_in(folder_of(target), |name| {
            link(name)?;
            Ok(())
        })?;
    staging.into_temp_path().persist(target).map_err(|e| e.error)
}

/// Writes a stream of bytes past the page cache.
#[derive(Debug)]
pub(crate) struct DirectWriter {
    buffer: ReadBuffer,
    filled: usize,
    offset: u64,
}

impl DirectWriter {
    const SIZE: usize = 4 << 20;

    /// Switches the file to direct I/O; `None` if it cannot.
    pub fn new(file: &File) -> Option<Self> {
        let flags = rustix::fs::fcntl_getfl(file).ok()?;
        rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT).ok()?;
        Some(DirectWriter {
            buffer: ReadBuffer::default(),
            filled: 0,
            offset: 0,
        })
    }

    pub fn write(&mut self, file: &File, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let space = self.buffer.aligned(Self::SIZE, ALIGNMENT);
            let n = bytes.len().min(space.len() - self.filled);
            space[self.filled..self.filled + n].copy_from_slice(&bytes[..n]);
            self.filled += n;
            bytes = &bytes[n..];
            if self.filled == Self::SIZE {
                file.write_all_at(self.buffer.as_slice(), self.offset)?;
                self.offset += Self::SIZE as u64;
                self.filled = 0;
            }
        }
        Ok(())
    }

    /// Writes what is left and cuts the file to its length.
    pub fn finish(&mut self, file: &File) -> io::Result<()> {
        let length = self.offset + self.filled as u64;
        if self.filled > 0 {
            let padded = self.filled.next_multiple_of(ALIGNMENT);
            let filled = self.filled;
            let space = self.buffer.aligned(Self::SIZE, ALIGNMENT);
            space[filled..padded].fill(0);
            file.write_all_at(&space[..padded], self.offset)?;
        }
        file.set_len(length)
    }
}

/// Copies a range between files, inside the kernel where it can.
pub(crate) fn copy_range(
    from: &ReadFile,
    mut from_offset: u64,
    to: &File,
    mut to_offset: u64,
    mut len: u64,
    buffer: &mut ReadBuffer,
) -> Result<(), CopyError> {
    let mut in_kernel = !from.direct;
    while len > 0 {
        if in_kernel {
            let step = len.min(1 << 30) as usize;
            match rustix::fs::copy_file_range(
                &from.file,
                Some(&mut from_offset),
                to,
                Some(&mut to_offset),
                step,
            ) {
                Ok(0) => return Err(CopyError::Read(truncated(from, from_offset))),
                Ok(n) => len -= n as u64,
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::NOSPC) => {
                    return Err(CopyError::Write(io::ErrorKind::StorageFull.into()));
                }
                Err(_) => in_kernel = false,
            }
            continue;
        }
        let step = len.min(1 << 20) as usize;
        from.read_at(from_offset, step, buffer).map_err(CopyError::Read)?;
        let bytes = buffer.as_slice();
        if bytes.is_empty() {
            return Err(CopyError::Read(truncated(from, from_offset)));
        }
        to.write_all_at(bytes, to_offset).map_err(CopyError::Write)?;
        from_offset += bytes.len() as u64;
        to_offset += bytes.len() as u64;
        len -= bytes.len() as u64;
    }
    Ok(())
}

fn truncated(from: &ReadFile, offset: u64) -> Error {
    let what = io::Error::other(format!(
        "it became shorter while it was read, and ends at byte {offset}"
    ));
    Error::io("read", &from.path, what)
}

/// Which side of a copy failed.
#[derive(Debug)]
pub(crate) enum CopyError {
    Read(Error),
    Write(io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_atomic_file_appears_at_the_end_or_never() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let file = AtomicFile::create(&path, false).unwrap();
        file.file.get().unwrap().write_all_at(b"new", 0).unwrap();
        assert!(!path.exists());
        drop(file);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);

        std::fs::write(&path, b"old").unwrap();
        assert!(matches!(AtomicFile::create(&path, false), Err(Error::Exists(_))));
        let file = AtomicFile::create(&path, true).unwrap();
        file.file.get().unwrap().write_all_at(b"new", 0).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        file.commit(true).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_link_stays_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (real, link) = (folder.path().join("real"), folder.path().join("link"));
        std::fs::write(&real, b"old").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let file = AtomicFile::create(&link, true).unwrap();
        file.file.get().unwrap().write_all_at(b"new", 0).unwrap();
        file.commit(false).unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read(&real).unwrap(), b"new");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn direct_io_reads_and_writes_any_length(pieces in proptest::collection::vec(0usize..3_000_000, 0..6), at: usize, len in 0usize..20_000) {
            // The folder for temporary files may be in memory, where direct I/O does not exist.
            let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
            let path = folder.path().join("direct");
            let file = AtomicFile::create(&path, false).unwrap();
            let open = file.file.get().unwrap();
            let Some(mut writer) = DirectWriter::new(&open) else { return Ok(()) };
            let mut expected = Vec::new();
            for (i, piece) in pieces.iter().enumerate() {
                let bytes: Vec<u8> = (0..*piece).map(|j| (i * 31 + j * 7) as u8).collect();
                writer.write(&open, &bytes).unwrap();
                expected.extend_from_slice(&bytes);
            }
            writer.finish(&open).unwrap();
            file.commit(false).unwrap();
            prop_assert!(std::fs::read(&path).unwrap() == expected);
            let read = ReadFile::open(&path, true).unwrap();
            let at = if expected.is_empty() { 0 } else { at % expected.len() };
            let mut buffer = ReadBuffer::default();
            read.read_at(at as u64, len, &mut buffer).unwrap();
            prop_assert!(buffer.as_slice() == &expected[at..(at + len).min(expected.len())]);
        }
    }
}
