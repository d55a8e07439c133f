//! The C library's heap in a limited address space.
//!
//! The GNU C library reserves 64 MiB of addresses, and for a moment twice as much, for the heap of
//! each thread. Where `ulimit -v` leaves no room for that, every small allocation of the thread
//! becomes a mapping of its own, and a program that allocates often spends its time in `mmap` and
//! `munmap`. All threads can share the first thread's heap, which grows page by page.

#![allow(unsafe_code)]

use rustix::process::{Resource, getrlimit};

/// Lets all threads share one heap if the address space is limited. For the start of a program,
/// before it has threads.
///
/// Does nothing where there is no limit, or with another C library.
pub fn fit_heap_to_limit() {
    if getrlimit(Resource::As).current.is_some() {
        share_one_heap();
    }
}

#[cfg(target_env = "gnu")]
fn share_one_heap() {
    // SAFETY: `mallopt` takes two numbers, touches nothing but the allocator's own settings, and
    // may be called at any time. A refusal leaves the allocator as it was, which is slower and not
    // wrong.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

#[cfg(not(target_env = "gnu"))]
fn share_one_heap() {}
