//! Page-aligned buffers, as direct I/O wants them. Large ones are mappings of their own: freed, they go back to the system at once and leave no
//! holes in the heap, so that what the budget counts is what the process takes.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Bytes of one block, the unit of every read and write.
pub const BLOCK: usize = 4096;

/// From this many blocks on a buffer is a mapping.
const MAPPED: usize = 8;
/// From this many blocks on a mapping is laid out for huge pages: random reads of a large pool otherwise wait for page tables.
pub const HUGE: usize = (2 << 20) / BLOCK;

/// Asks the processor for the cache line of a byte, if there is one. A hint without effect on what the program does.
#[inline]
pub fn prefetch(bytes: &[u8], at: usize) {
    #[cfg(target_arch = "x86_64")]
    if at < bytes.len() {
        // SAFETY: prefetching reads nothing that the program can see, and the address lies inside of the slice.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(bytes.as_ptr().add(at).cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, at);
}

/// A zero-initialised byte buffer whose address and length are multiples of [`BLOCK`].
///
/// Requests own their buffer while they are in flight, so the kernel never writes into memory that
/// someone else holds.
pub struct AlignedBuf {
    ptr: NonNull<u8>,
    blocks: usize,
}

// SAFETY: the buffer is plain owned memory; nothing in it is tied to a thread.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared access is by `&[u8]` only.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// A zeroed buffer of `blocks` blocks.
    ///
    /// # Panics
    /// If `blocks` is 0. Aborts when memory is exhausted, as `Vec` does.
    pub fn new(blocks: usize) -> Self {
        assert!(blocks > 0, "an aligned buffer holds at least one block");
        #[cfg(target_os = "linux")]
        if blocks >= MAPPED {
            return Self::map(blocks);
        }
        let layout = Self::layout(blocks);
        // SAFETY: the layout has a non-zero size because `blocks > 0`.
        let raw = unsafe { alloc_zeroed(layout) };
        let Some(ptr) = NonNull::new(raw) else {
            handle_alloc_error(layout)
        };
        Self { ptr, blocks }
    }

    #[cfg(target_os = "linux")]
    fn map(blocks: usize) -> Self {
        use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
        let len = blocks * BLOCK;
        let huge = blocks.is_multiple_of(HUGE);
        let (align, extra) = if huge {
            (HUGE * BLOCK, HUGE * BLOCK)
        } else {
            (BLOCK, 0)
        };
        // SAFETY: a new private mapping at a place the kernel chooses touches no memory that anybody knows.
        let raw = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                len + extra,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        let Ok(raw) = raw else {
            handle_alloc_error(Self::layout(blocks))
        };
        let skip = raw.align_offset(align);
        // SAFETY: the bytes before and after the aligned part are whole pages of the mapping made above, and nothing refers to them.
        // Failing to give them back or to advise only costs memory or speed.
        let start = unsafe {
            let start = raw.byte_add(skip);
            if skip > 0 {
                let _ = munmap(raw, skip);
            }
            if extra > skip {
                let _ = munmap(start.byte_add(len), extra - skip);
            }
            if huge {
                let _ = madvise(start, len, Advice::LinuxHugepage);
            }
            start
        };
        let ptr = NonNull::new(start.cast()).expect("a mapping is never at 0");
        Self { ptr, blocks }
    }

    fn layout(blocks: usize) -> Layout {
        Layout::from_size_align(blocks * BLOCK, BLOCK).expect("buffer size fits the address space")
    }

    /// Length in blocks.
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// Blocks of memory that a buffer of `blocks` takes: in the heap one more goes to its alignment.
    pub(crate) const fn footprint(blocks: usize) -> usize {
        if blocks < MAPPED { blocks + 1 } else { blocks }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `ptr` points at `blocks * BLOCK` initialised bytes owned by `self`.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.blocks * BLOCK) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the access unique.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.blocks * BLOCK) }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        #[cfg(target_os = "linux")]
        if self.blocks >= MAPPED {
            // SAFETY: mapped in `map` with this length, and dropped once.
            let _ = unsafe { rustix::mm::munmap(self.ptr.as_ptr().cast(), self.blocks * BLOCK) };
            return;
        }
        // SAFETY: allocated in `new` with the same layout, and dropped once.
        unsafe { dealloc(self.ptr.as_ptr(), Self::layout(self.blocks)) }
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuf({} blocks)", self.blocks)
    }
}
