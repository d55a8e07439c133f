//! What this library remembers, in memory that the kernel wipes when the process forks.
//!
//! A child has the parent's memory, but only the thread that forked: our own thread is gone, and a
//! lock that another thread held stays taken forever. So all that the wrappers use is in pages
//! with `MADV_WIPEONFORK`, and zero bytes mean: nothing was adopted, nothing was counted, no thread
//! runs, every lock is free. A child therefore begins again, however it was made (`fork`, a raw
//! `clone`), without a handler. What it inherited is left to the kernel. What it maps itself is
//! served, within a budget of its own, if `fork` has made it: the locks of the runtime and of the
//! C library are as they should be only where their handlers ran ([`note_whole`]).
//!
//! [`note_whole`]: crate::state::note_whole
//!
//! # Safety
//!
//! [`Zeroed`] is implemented by types for which zero bytes are a valid value and which are `Sync`.
//! The memory is never unmapped, so references to it live forever.

#![allow(unsafe_code)]

use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ptr::{self, NonNull};

/// Types for which zero bytes are a valid value.
///
/// # Safety
/// They are, also for a process in which another value was there before a fork.
pub(crate) unsafe trait Zeroed: Sync + 'static {}

/// Maps memory that begins as zeroes and becomes zeroes in every child; `None` if the kernel
/// refuses. `T` repeated `count` times.
pub(crate) fn map<T: Zeroed>(count: usize) -> Option<NonNull<T>> {
    let len = size_of::<T>().checked_mul(count)?;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: no address is demanded, so this replaces nothing.
    let start = unsafe {
        rustix::mm::mmap_anonymous(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags)
    };
    let start = start.ok()?;
    // SAFETY: the mapping is new, and this does not change what is in it.
    if unsafe { rustix::mm::madvise(start, len, Advice::LinuxWipeOnFork) }.is_err() {
        // SAFETY: the mapping is ours, and nothing refers to it yet.
        let _ = unsafe { rustix::mm::munmap(start, len) };
        return None;
    }
    NonNull::new(start.cast())
}
