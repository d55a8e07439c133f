//! Bytes of the heap, counted while a cache is being weighed.
//!
//! The caches keep their tables, records and ghosts in the heap and do not say how many bytes that
//! is. The allocator of this program knows: while [`weigh`] runs, it adds the usable size of each
//! block that is allocated (which is what malloc really takes, without its header of 8 bytes, which
//! is added), and subtracts that of each block that is freed. At all other times an allocation
//! costs one load more than usual.
//!
//! # Safety
//!
//! Each call is passed on to the system's allocator unchanged. `malloc_usable_size(3)` gets
//! pointers that this allocator has returned and that are not freed yet.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

/// What malloc puts before each block.
const HEADER: i64 = 8;

static WEIGHING: AtomicBool = AtomicBool::new(false);
static LIVE: AtomicI64 = AtomicI64::new(0);

/// The system's allocator with a scale.
struct Weighed;

#[global_allocator]
static ALLOCATOR: Weighed = Weighed;

impl Weighed {
    #[inline]
    fn count(block: *mut u8, sign: i64) {
        if WEIGHING.load(Relaxed) && !block.is_null() {
            // SAFETY: The block is live and from malloc.
            let usable = unsafe { libc::malloc_usable_size(block.cast()) };
            LIVE.fetch_add(sign * (usable as i64 + HEADER), Relaxed);
        }
    }
}

// SAFETY: All four functions are the system allocator's.
unsafe impl GlobalAlloc for Weighed {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: The caller keeps the rules of the trait.
        let block = unsafe { System.alloc(layout) };
        Self::count(block, 1);
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: The caller keeps the rules of the trait.
        let block = unsafe { System.alloc_zeroed(layout) };
        Self::count(block, 1);
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        Self::count(block, -1);
        // SAFETY: The caller keeps the rules of the trait.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        Self::count(block, -1);
        // SAFETY: The caller keeps the rules of the trait.
        let moved = unsafe { System.realloc(block, layout, bytes) };
        Self::count(if moved.is_null() { block } else { moved }, 1);
        moved
    }
}

/// Bytes of heap that `work` allocated and has not freed when it returns: those of what it returns.
/// Other threads must not free meanwhile what was allocated before. Not for two calls at a time.
pub fn weigh<T>(work: impl FnOnce() -> T) -> (T, u64) {
    LIVE.store(0, Relaxed);
    WEIGHING.store(true, Relaxed);
    let made = work();
    WEIGHING.store(false, Relaxed);
    (made, u64::try_from(LIVE.load(Relaxed)).unwrap_or(0))
}

/// Gives free heap back to the system, so that what is resident afterwards is in use.
pub fn trim() {
    // SAFETY: The function takes no pointer and may be called at any time.
    unsafe { libc::malloc_trim(0) };
}
