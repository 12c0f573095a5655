//! A file, by direct I/O where the file system allows it.

use super::threads::Threads;
use super::{Backend, Queue};
#[cfg(target_os = "linux")]
use rustix::fs::{FallocateFlags, fallocate};
use rustix::fs::{FlockOperation, OFlags, flock};
#[cfg(target_os = "linux")]
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

/// How a file is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// The best that a probe with a real read finds: io_uring, else threads; direct, else buffered.
    #[default]
    Auto,
    /// io_uring with direct I/O, or an error.
    Uring,
    /// A thread pool with direct I/O where possible.
    Threads,
    /// A thread pool through the page cache. The page cache then grows beyond the store's memory budget.
    Buffered,
}

/// A back end on one file, locked while it is open.
pub struct FileBackend {
    file: Arc<File>,
    uring: bool,
    story: String,
}

/// Threads of a queue: about 85 % of what io_uring reaches on a device of 90 K operations a second.
const THREADS: usize = 32;

impl FileBackend {
    /// Opens, or with `create` makes, a file and locks it: for one writer, or shared among readers of an unchanging file.
    ///
    /// # Errors
    /// Those of the operating system; `WouldBlock` when the lock is still held elsewhere after half a second.
    pub fn open(path: &Path, access: Access, create: bool, write: bool) -> io::Result<Self> {
        let options = |flags: OFlags, create: bool| {
            let mut o = OpenOptions::new();
            o.read(true)
                .write(write)
                .create_new(create)
                .custom_flags(flags.bits() as i32);
            o.open(path)
        };
        let plain = options(OFlags::empty(), create)?;
        let (file, direct) = match access {
            Access::Buffered => (plain, Err("asked for".to_owned())),
            _ => match options(direct_flag(), false) {
                Ok(file) => match probe_direct(&file) {
                    Ok(()) => (file, Ok(())),
                    Err(e) => (plain, Err(format!("direct I/O fails: {e}"))),
                },
                Err(e) => (plain, Err(format!("direct I/O is refused: {e}"))),
            },
        };
        let lock = if write {
            FlockOperation::NonBlockingLockExclusive
        } else {
            FlockOperation::NonBlockingLockShared
        };
        take_lock(&file, lock)?;
        let file = Arc::new(file);
        let ring = match access {
            Access::Auto | Access::Uring => probe_uring(&file),
            Access::Threads | Access::Buffered => Err(io::Error::other("not asked for")),
        };
        if let (Access::Uring, Err(e)) = (access, ring.as_ref()) {
            return Err(io::Error::new(
                e.kind(),
                format!("io_uring does not work here: {e}"),
            ));
        }
        let story = format!(
            "{}, {}",
            ring.as_ref().map_or_else(
                |e| format!("{THREADS} threads (io_uring: {e})"),
                |()| "io_uring".into()
            ),
            direct.map_or_else(|why| format!("buffered ({why})"), |()| "direct I/O".into()),
        );
        Ok(Self {
            file,
            uring: ring.is_ok(),
            story,
        })
    }
}

/// A process that was killed with requests in flight keeps its lock until the kernel has wound up its ring, so a held lock gets some
/// patience.
fn take_lock(file: &File, lock: FlockOperation) -> io::Result<()> {
    let mut tries = 50;
    loop {
        match flock(file, lock) {
            Err(rustix::io::Errno::WOULDBLOCK) if tries > 0 => {
                tries -= 1;
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            other => return Ok(other?),
        }
    }
}

fn direct_flag() -> OFlags {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    return OFlags::DIRECT;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    OFlags::empty()
}

fn probe_direct(file: &File) -> io::Result<()> {
    file.read_at(&mut super::AlignedBuf::new(1), 0).map(drop)
}

#[cfg(target_os = "linux")]
fn probe_uring(file: &Arc<File>) -> io::Result<()> {
    super::uring::Uring::probe(file.clone())
}

#[cfg(not(target_os = "linux"))]
fn probe_uring(_: &Arc<File>) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

impl Backend for FileBackend {
    fn describe(&self) -> String {
        self.story.clone()
    }
    fn is_device(&self) -> bool {
        true
    }
    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }
    #[cfg(target_os = "linux")]
    fn release(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, hole, offset, bytes) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            other => Ok(other?),
        }
    }
    fn stored(&self) -> io::Result<u64> {
        // In units of 512 bytes, whatever the file system's blocks are.
        Ok(self.file.metadata()?.blocks() * 512)
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.file.write_all_at(buf, offset)
    }
    fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }
    fn queue(self: Arc<Self>, depth: usize) -> io::Result<Box<dyn Queue>> {
        #[cfg(target_os = "linux")]
        if self.uring {
            return Ok(Box::new(super::uring::Uring::new(self.file.clone(), depth)?));
        }
        Ok(Box::new(Threads::new(self, depth.clamp(1, THREADS))?))
    }
}
