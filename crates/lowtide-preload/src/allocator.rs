//! Where this library's own memory comes from: the C library's allocator, by the names that nothing
//! stands in front of.
//!
//! The program may have an allocator of its own, whose memory is in blocks that are kept within the
//! budget. A thread of it that holds the allocator's lock may wait for a page, and our threads
//! bring that page in. So they must not need that lock, or any memory that is kept: neither
//! `malloc` of the program, nor ours in front of it.
//!
//! # Safety
//!
//! The functions are those of the GNU C library, with the contracts of `malloc(3)`.

#![allow(unsafe_code)]

use libc::{c_void, size_t};
use std::alloc::{GlobalAlloc, Layout};

unsafe extern "C" {
    pub(crate) fn __libc_malloc(size: size_t) -> *mut c_void;
    pub(crate) fn __libc_calloc(count: size_t, size: size_t) -> *mut c_void;
    pub(crate) fn __libc_realloc(old: *mut c_void, size: size_t) -> *mut c_void;
    pub(crate) fn __libc_memalign(align: size_t, size: size_t) -> *mut c_void;
    pub(crate) fn __libc_free(block: *mut c_void);
}

/// What `malloc` aligns to.
const ALIGN: usize = 16;

struct Own;

#[cfg(not(test))]
#[global_allocator]
static OWN: Own = Own;

// SAFETY: the C library's allocator, with the alignment that it has, or that is requested.
unsafe impl GlobalAlloc for Own {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let block = if layout.align() <= ALIGN {
            // SAFETY: any size.
            unsafe { __libc_malloc(layout.size()) }
        } else {
            // SAFETY: any size and any power of two.
            unsafe { __libc_memalign(layout.align(), layout.size()) }
        };
        block.cast()
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGN {
            // SAFETY: any size.
            return unsafe { __libc_calloc(1, layout.size()).cast() };
        }
        // SAFETY: the caller's layout.
        let block = unsafe { self.alloc(layout) };
        if !block.is_null() {
            // SAFETY: the block was just made, of this size.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.align() <= ALIGN {
            // SAFETY: the block is of this allocator.
            return unsafe { __libc_realloc(block.cast(), size).cast() };
        }
        // SAFETY: the caller promises that the size is valid for the alignment.
        let layout_now = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: as above.
        let now = unsafe { self.alloc(layout_now) };
        if !now.is_null() {
            // SAFETY: both blocks have these bytes, and do not overlap.
            unsafe { block.copy_to_nonoverlapping(now, layout.size().min(size)) };
            // SAFETY: the block is the caller's to give up.
            unsafe { self.dealloc(block, layout) };
        }
        now
    }

    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: the block is of this allocator.
        unsafe { __libc_free(block.cast()) };
    }
}
