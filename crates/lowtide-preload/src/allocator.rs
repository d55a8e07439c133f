//! Where this library's own memory comes from: the C library's allocator, without what stands in
//! front of it (`c_library.rs`).
//!
//! The program may have an allocator of its own. A thread that holds its lock may wait for ours: it
//! unmaps a mapping that is adopted, or touches a page of a mirror. So our threads must not need
//! that lock.
//!
//! # Safety
//!
//! The functions are those of the C library, with the contracts of `malloc(3)`.

#![allow(unsafe_code)]

use crate::c_library;
use std::alloc::{GlobalAlloc, Layout};

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
            unsafe { c_library::malloc(layout.size()) }
        } else {
            // SAFETY: any size and any power of two.
            unsafe { c_library::memalign(layout.align(), layout.size()) }
        };
        block.cast()
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGN {
            // SAFETY: any size.
            return unsafe { c_library::calloc(1, layout.size()).cast() };
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
            return unsafe { c_library::realloc(block.cast(), size).cast() };
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

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let block = block.cast();
        if layout.align() <= ALIGN {
            // SAFETY: the block is of this allocator.
            unsafe { c_library::free(block) };
        } else {
            // SAFETY: as above, of this alignment.
            unsafe { c_library::free_aligned(block) };
        }
    }
}
