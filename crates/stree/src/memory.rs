//! Memory for lines: aligned to 64 bytes, on huge pages where the system gives them, and honest about where it does not.
//!
//! A look-up in a large index is one or two random cache lines. On 4 KiB pages each also costs a page walk (40 ns instead of 8
//! at 4 GB), so large buffers are reserved on a 2 MiB boundary and huge pages are asked for *before* the first touch; asking
//! later changes nothing that already has a small page. The advice is asked for the whole 2 MiB pages inside the buffer, so
//! it cannot fail for want of alignment, and the system's answer is kept and reported, never dropped.
//!
//! A process may have huge pages switched off for itself (a flag it inherits from its parent). This crate reports that
//! ([`PageReport`]) and leaves it alone: process-wide state belongs to the program, not to a library.

#![allow(unsafe_code)]

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use memmap2::{Mmap, MmapMut};

use crate::error::{Error, Result};
use crate::kernel::{Line, cast};
use crate::key::Key;

/// Bytes of a huge page.
const HUGE: usize = 2 << 20;
/// Below this many bytes a buffer is an ordinary allocation.
const LARGE: usize = HUGE;
/// Bytes moved at a time when a buffer grows: what growing needs on top of the data.
const STEP: usize = 32 * HUGE;

/// A growable, zeroed buffer of 64-byte lines.
///
/// ```
/// use osmill_stree::LineBuffer;
///
/// let mut column = LineBuffer::zeroed(1 << 20)?; // 64 MiB
/// column.keys_mut::<u64>()[5] = 42;
/// assert_eq!(column.keys::<u64>()[..6], [0, 0, 0, 0, 0, 42]);
/// println!("{}", column.pages());
/// # Ok::<(), osmill_stree::Error>(())
/// ```
#[derive(Debug)]
pub struct LineBuffer {
    memory: Memory,
    len: usize,
}

/// Where the lines lie. Shared by the plain and the atomic buffer, which never exist over the same memory at once.
#[derive(Debug)]
enum Memory {
    Small(Vec<Line>),
    Large(Region),
}

/// A private anonymous mapping, over-long by up to one huge page so that the part used can start on a boundary.
#[derive(Debug)]
struct Region {
    map: MmapMut,
    /// First byte used.
    start: usize,
    /// Usable bytes, a multiple of [`HUGE`].
    len: usize,
    /// The answer to the request for huge pages.
    advice: Advice,
}

/// What became of the request for huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// The buffer is too small for one.
    TooSmall,
    /// The system accepted; whether it then has the pages to give is another matter.
    Accepted,
    /// The system refused with this `errno`.
    Refused(i32),
    /// This system has no such request.
    Unsupported,
}

/// What is asked of the system for a range.
#[derive(Clone, Copy)]
enum Request {
    /// Huge pages on first touch.
    Huge,
    /// Huge pages in place of the small ones that are there (Linux 6.1 and later).
    Collapse,
}

/// Asks for huge pages for a range that starts and ends on huge page boundaries.
fn advise(bytes: *mut u8, len: usize, request: Request) -> Advice {
    debug_assert!((bytes as usize).is_multiple_of(HUGE) && len.is_multiple_of(HUGE));
    #[cfg(target_os = "linux")]
    {
        let advice = match request {
            Request::Huge => libc::MADV_HUGEPAGE,
            // The kernel's number; not every C library has a name for it.
            Request::Collapse => 25,
        };
        // SAFETY: the range is part of a mapping that the caller owns; neither advice changes its contents.
        let answer = unsafe { libc::madvise(bytes.cast(), len, advice) };
        if answer == 0 {
            Advice::Accepted
        } else {
            Advice::Refused(io::Error::last_os_error().raw_os_error().unwrap_or(0))
        }
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (bytes, len, request);
        Advice::Unsupported
    }
}

impl Region {
    fn reserve(bytes: usize) -> Result<Region> {
        let memory = |source| Error::Memory {
            bytes: bytes as u64,
            source,
        };
        let overflow = || memory(io::Error::from(io::ErrorKind::OutOfMemory));
        let len = bytes.checked_next_multiple_of(HUGE).ok_or_else(overflow)?;
        let whole = len.checked_add(HUGE).ok_or_else(overflow)?;
        let mut map = MmapMut::map_anon(whole).map_err(memory)?;
        let start = (map.as_ptr() as usize).next_multiple_of(HUGE) - map.as_ptr() as usize;
        let advice = advise(map[start..].as_mut_ptr(), len, Request::Huge);
        Ok(Region {
            map,
            start,
            len,
            advice,
        })
    }

    /// Gives the memory of these bytes of the used part back; they read as zero from then on.
    fn discard(&mut self, from: usize, len: usize) {
        #[cfg(target_os = "linux")]
        {
            let range = &mut self.map[self.start + from..self.start + from + len];
            // SAFETY: the range lies inside a private anonymous mapping that `self` owns alone; zero bytes are valid lines.
            // Failure only means that the memory is released later, with the mapping.
            unsafe { libc::madvise(range.as_mut_ptr().cast(), range.len(), libc::MADV_DONTNEED) };
        }
        #[cfg(not(target_os = "linux"))]
        let _ = (from, len);
    }

    fn bytes(&self) -> &[u8] {
        &self.map[self.start..self.start + self.len]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.map[self.start..self.start + self.len]
    }
}

impl Memory {
    fn zeroed(lines: usize) -> Result<Memory> {
        let too_many = || Error::Memory {
            bytes: (lines as u64).saturating_mul(64),
            source: io::Error::from(io::ErrorKind::OutOfMemory),
        };
        let bytes = lines
            .checked_mul(64)
            .filter(|&bytes| bytes <= isize::MAX as usize)
            .ok_or_else(too_many)?;
        if bytes < LARGE || cfg!(miri) {
            let mut small = Vec::new();
            small.try_reserve_exact(lines).map_err(|_| too_many())?;
            small.resize(lines, Line::ZERO);
            return Ok(Memory::Small(small));
        }
        Ok(Memory::Large(Region::reserve(bytes)?))
    }

    fn capacity(&self) -> usize {
        match self {
            Memory::Small(lines) => lines.len(),
            Memory::Large(region) => region.len / 64,
        }
    }

    fn lines(&self) -> &[Line] {
        match self {
            Memory::Small(lines) => lines,
            Memory::Large(region) => cast::lines_of(region.bytes()).unwrap_or(&[]),
        }
    }

    fn lines_mut(&mut self) -> &mut [Line] {
        match self {
            Memory::Small(lines) => lines,
            Memory::Large(region) => cast::lines_of_mut(region.bytes_mut()).unwrap_or(&mut []),
        }
    }

    fn report(&self) -> PageReport {
        let (bytes, advice, range) = match self {
            Memory::Small(lines) => (lines.len() * 64, Advice::TooSmall, None),
            Memory::Large(region) => {
                let start = region.bytes().as_ptr() as usize;
                (region.len, region.advice, Some(start..start + region.len))
            }
        };
        PageReport {
            bytes: bytes as u64,
            huge_bytes: range.and_then(huge_bytes_of),
            advice,
            disabled_for_process: disabled_for_process(),
            system: std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
                .ok()
                .and_then(|modes| modes.split(['[', ']']).nth(1).map(str::to_owned)),
        }
    }
}

impl LineBuffer {
    /// A buffer of `lines` lines, all zero. Memory is taken when a part is first written.
    ///
    /// # Errors
    ///
    /// [`Error::Memory`] if the system refuses the address space.
    pub fn zeroed(lines: usize) -> Result<LineBuffer> {
        Ok(LineBuffer {
            memory: Memory::zeroed(lines)?,
            len: lines,
        })
    }

    /// Number of lines.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no line.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The lines.
    pub fn lines(&self) -> &[Line] {
        &self.memory.lines()[..self.len]
    }

    /// The lines, to write.
    pub fn lines_mut(&mut self) -> &mut [Line] {
        &mut self.memory.lines_mut()[..self.len]
    }

    /// The buffer as bytes, as they are in a file.
    pub fn bytes(&self) -> &[u8] {
        cast::bytes(self.lines())
    }

    /// The buffer as bytes, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        cast::bytes_mut(self.lines_mut())
    }

    /// The buffer as a column of keys.
    pub fn keys<K: Key>(&self) -> &[K] {
        cast::keys(self.lines())
    }

    /// The buffer as a column of keys, to write.
    pub fn keys_mut<K: Key>(&mut self) -> &mut [K] {
        cast::keys_mut(self.lines_mut())
    }

    /// Makes the buffer `lines` lines long. New lines are zero.
    ///
    /// Growing within the reserve costs nothing; beyond it the lines move to a reserve twice as large, and their old memory is
    /// given back while they move, so that at no time more than the data and 64 MiB is in use. Amortised O(1) per line.
    ///
    /// # Errors
    ///
    /// [`Error::Memory`] if the system refuses the address space; the buffer is then as it was.
    pub fn resize(&mut self, lines: usize) -> Result<()> {
        if lines < self.len {
            self.lines_mut()[lines..].fill(Line::ZERO);
        } else if lines > self.memory.capacity() {
            let mut grown = Memory::zeroed(lines.max(self.memory.capacity().saturating_mul(2)))?;
            let step = STEP / 64;
            for from in (0..self.len).step_by(step) {
                let to = (from + step).min(self.len);
                grown.lines_mut()[from..to].copy_from_slice(&self.memory.lines()[from..to]);
                if let Memory::Large(region) = &mut self.memory {
                    region.discard(from * 64, STEP.min(region.len - from * 64));
                }
            }
            self.memory = grown;
        }
        self.len = lines;
        Ok(())
    }

    /// Appends one line.
    ///
    /// # Errors
    ///
    /// As [`resize`](LineBuffer::resize).
    #[inline]
    pub fn push(&mut self, line: Line) -> Result<()> {
        let at = self.len;
        self.resize(at + 1)?;
        self.lines_mut()[at] = line;
        Ok(())
    }

    /// Asks the system to move what has been written onto huge pages, where it had none to give at the first touch. Touches the
    /// whole buffer; takes as long as copying it.
    pub fn collapse(&mut self) -> Advice {
        match &mut self.memory {
            Memory::Small(_) => Advice::TooSmall,
            Memory::Large(region) => {
                let len = (self.len * 64).next_multiple_of(HUGE).min(region.len);
                advise(region.bytes_mut().as_mut_ptr(), len, Request::Collapse)
            }
        }
    }

    /// Which pages the buffer lies on. Reads `/proc`; not for hot paths.
    pub fn pages(&self) -> PageReport {
        self.memory.report()
    }
}

/// A line that several threads may set bits in.
pub(crate) type AtomicLine = [AtomicU64; 8];

/// A zeroed buffer of lines that threads write together.
#[derive(Debug)]
pub(crate) struct AtomicBuffer {
    /// Owns the lines; only its `Drop` is ever used.
    _memory: Memory,
    len: usize,
    /// Start of the lines in `memory`. Kept apart, since no reference to them as plain lines may exist while they are shared.
    start: *mut AtomicLine,
}

// SAFETY: the pointer is to memory owned by `_memory`, which neither moves nor is touched otherwise while the buffer lives; it
// is only ever seen as atomics.
unsafe impl Send for AtomicBuffer {}
// SAFETY: as above.
unsafe impl Sync for AtomicBuffer {}

impl AtomicBuffer {
    /// A buffer of `lines` lines, all zero. Memory is taken when a part is first written.
    pub(crate) fn zeroed(lines: usize) -> Result<AtomicBuffer> {
        let mut memory = Memory::zeroed(lines)?;
        let start = memory.lines_mut().as_mut_ptr().cast();
        Ok(AtomicBuffer {
            _memory: memory,
            len: lines,
            start,
        })
    }

    /// The lines.
    #[inline(always)]
    pub(crate) fn lines(&self) -> &[AtomicLine] {
        // SAFETY: `start` points to at least `len` lines owned by `self._memory` (a `Vec` never resized, or a mapping); they are
        // integers, for which the atomic type has the same size and no larger alignment than a line, and are accessed through
        // this view only.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

/// Where an index keeps one of its arrays of lines.
#[derive(Debug)]
pub(crate) enum Store<'a> {
    /// In memory of its own.
    Owned(LineBuffer),
    /// In a mapped file, from line `start` of the mapping.
    Mapped {
        map: Arc<Mmap>,
        start: usize,
        len: usize,
    },
    /// In the caller's bytes.
    Borrowed(&'a [Line]),
}

impl Store<'_> {
    #[inline]
    pub(crate) fn lines(&self) -> &[Line] {
        match self {
            Store::Owned(buffer) => buffer.lines(),
            Store::Mapped { map, start, len } => cast::lines_of(map)
                .and_then(|lines| lines.get(*start..*start + *len))
                .unwrap_or(&[]),
            Store::Borrowed(lines) => lines,
        }
    }

    /// The page report of memory of its own, else none.
    pub(crate) fn pages(&self) -> Option<PageReport> {
        match self {
            Store::Owned(buffer) => Some(buffer.pages()),
            _ => None,
        }
    }
}

/// Maps a file for reading.
pub(crate) fn map_file(path: &std::path::Path) -> Result<Mmap> {
    let map = || {
        let file = std::fs::File::open(path)?;
        // SAFETY: the documentation of every `open` asks that the file is not changed while it is mapped. Whatever its bytes
        // are, look-ups stay within the sections.
        unsafe { Mmap::map(&file) }
    };
    map().map_err(|source| Error::Io {
        what: format!("mapping {}", path.display()),
        source,
    })
}

/// Which pages a buffer lies on, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageReport {
    /// Bytes reserved.
    pub bytes: u64,
    /// Bytes on huge pages at this moment, where the system tells. Parts never written have no page at all.
    pub huge_bytes: Option<u64>,
    /// The answer to the request for huge pages.
    pub advice: Advice,
    /// Whether this process has huge pages switched off (`PR_SET_THP_DISABLE`, set by it or inherited).
    pub disabled_for_process: bool,
    /// The system's mode: `always`, `madvise` or `never`, where it has one.
    pub system: Option<String>,
}

impl fmt::Display for PageReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes as f64 / (1 << 20) as f64;
        write!(f, "{:.1} MiB", mib(self.bytes))?;
        if let Some(huge) = self.huge_bytes {
            write!(f, ", {:.1} MiB of it on huge pages", mib(huge))?;
        }
        match self.advice {
            Advice::TooSmall => write!(f, ", too small for huge pages")?,
            Advice::Accepted => {}
            Advice::Refused(errno) => {
                write!(f, ", huge pages refused: {}", io::Error::from_raw_os_error(errno))?
            }
            Advice::Unsupported => write!(f, ", no huge pages on this system")?,
        }
        if self.disabled_for_process {
            write!(f, ", switched off for this process (PR_SET_THP_DISABLE)")?;
        }
        if self.system.as_deref() == Some("never") {
            write!(
                f,
                ", switched off for the system (transparent_hugepage/enabled = never)"
            )?;
        }
        Ok(())
    }
}

/// Whether huge pages are switched off for this process.
fn disabled_for_process() -> bool {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        // SAFETY: reads one flag of the process; takes no pointers.
        unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, 0, 0, 0, 0) > 0 }
    }
    #[cfg(any(not(target_os = "linux"), miri))]
    false
}

/// Bytes on huge pages in a range of addresses, from `/proc/self/smaps`.
///
/// The kernel may have merged the range with its neighbours: what is reported of an area is at most its overlap with the range.
fn huge_bytes_of(range: std::ops::Range<usize>) -> Option<u64> {
    let smaps = std::fs::read_to_string("/proc/self/smaps").ok()?;
    let mut huge = 0;
    let mut overlap = 0;
    for line in smaps.lines() {
        let first = line.split_ascii_whitespace().next()?;
        if let Some((start, end)) = first.split_once('-') {
            let hex = |text| usize::from_str_radix(text, 16).ok();
            let (start, end) = (hex(start)?, hex(end)?);
            overlap = end.min(range.end).saturating_sub(start.max(range.start)) as u64;
        } else if first == "AnonHugePages:" {
            let kib: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
            huge += (kib << 10).min(overlap);
        }
    }
    Some(huge)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn large_buffers_are_aligned_and_advised() {
        let mut buffer = LineBuffer::zeroed(5 << 20 >> 6).unwrap();
        assert_eq!(buffer.lines().as_ptr() as usize % 64, 0);
        if cfg!(all(target_os = "linux", not(miri))) {
            assert_eq!(buffer.lines().as_ptr() as usize % HUGE, 0);
            let report = buffer.pages();
            // The request itself must succeed wherever the kernel knows it: EINVAL here would be our misalignment.
            if report.system.is_some() {
                assert_eq!(report.advice, Advice::Accepted, "{report}");
            }
            buffer.lines_mut().fill(Line([1; 8]));
            // Older kernels do not know the request; what was written must be there whatever the answer.
            let answer = buffer.collapse();
            assert_ne!(answer, Advice::TooSmall);
            assert!(buffer.lines().iter().all(|line| line.0 == [1; 8]));
            let report = buffer.pages();
            let wanted = matches!(report.system.as_deref(), Some("always" | "madvise"));
            if wanted && !report.disabled_for_process {
                assert!(report.huge_bytes.is_some(), "{report}");
            }
            assert!(report.to_string().contains("MiB"));
        }
    }

    #[test]
    fn a_refusal_is_told() {
        let report = LineBuffer::zeroed(1).unwrap().pages();
        assert!(report.to_string().contains("too small"), "{report}");
        let report = PageReport {
            advice: Advice::Refused(22),
            disabled_for_process: true,
            system: Some("never".into()),
            ..report
        };
        let text = report.to_string();
        for part in ["refused", "PR_SET_THP_DISABLE", "enabled = never"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn growing_keeps_the_lines_and_zeroes_the_rest() {
        let mut buffer = LineBuffer::zeroed(0).unwrap();
        let total: u64 = if cfg!(miri) { 300 } else { 3 << 20 };
        for index in 0..total {
            buffer.push(Line([index; 8])).unwrap();
        }
        assert!(
            buffer
                .lines()
                .iter()
                .zip(0..)
                .all(|(line, index)| line.0 == [index; 8])
        );
        buffer.resize(10).unwrap();
        buffer.resize(20).unwrap();
        assert_eq!(buffer.lines()[9].0, [9; 8]);
        assert!(buffer.lines()[10..].iter().all(|line| line.0 == [0; 8]));
    }

    #[test]
    #[cfg_attr(miri, ignore)] // the interpreter itself gives up on such a size
    fn impossible_sizes_are_errors() {
        for lines in [usize::MAX, usize::MAX / 64, 1 << 50] {
            let error = LineBuffer::zeroed(lines).unwrap_err();
            assert!(matches!(error, Error::Memory { .. }), "{error}");
        }
    }

    #[test]
    fn threads_share_an_atomic_buffer() {
        let buffer = AtomicBuffer::zeroed(100).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let buffer = &buffer;
                scope.spawn(move || {
                    for line in buffer.lines() {
                        line[3].fetch_or(1 << thread, Ordering::Relaxed);
                    }
                });
            }
        });
        assert!(
            buffer
                .lines()
                .iter()
                .all(|line| line[3].load(Ordering::Relaxed) == 15)
        );
    }
}
