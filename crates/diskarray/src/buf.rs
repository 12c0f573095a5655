//! Page-aligned heap buffers, as direct I/O wants them.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Bytes of one block, the unit of every read and write.
pub const BLOCK: usize = 4096;

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
        let layout = Self::layout(blocks);
        // SAFETY: the layout has a non-zero size because `blocks > 0`.
        let raw = unsafe { alloc_zeroed(layout) };
        let Some(ptr) = NonNull::new(raw) else {
            handle_alloc_error(layout)
        };
        Self { ptr, blocks }
    }

    fn layout(blocks: usize) -> Layout {
        Layout::from_size_align(blocks * BLOCK, BLOCK).expect("buffer size fits the address space")
    }

    /// Length in blocks.
    pub fn blocks(&self) -> usize {
        self.blocks
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
        // SAFETY: allocated in `new` with the same layout, and dropped once.
        unsafe { dealloc(self.ptr.as_ptr(), Self::layout(self.blocks)) }
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuf({} blocks)", self.blocks)
    }
}
