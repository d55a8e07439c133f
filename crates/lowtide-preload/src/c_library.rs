//! What differs between the C libraries of programs: that of GNU (glibc), and musl.
//!
//! This crate is built for one of them at a time, and all that depends on it is in the two files
//! below. Nothing else asks for which one it is built, but `lib.rs`, which leaves the functions out
//! that read.
//!
//! | | `gnu` | `musl` |
//! |---|---|---|
//! | our own memory | inner names of its allocator | its own `malloc`, also for code in this file |
//! | handlers of `fork(2)` | `__register_atfork`, which all programs call | `pthread_atfork` |
//! | thread-locals end by | `__cxa_thread_atexit_impl`, with the loader's lock | a key, no lock |
//! | the signal that changes the rights of all threads | 33 | 34 |
//! | a name that is not found | is forgotten | stays the program's next `dlerror(3)` |
//! | standard streams, beside our threads alone | are not locked (`stdio.rs`) | are as usual |
//! | files that are read (`--files`) | kept | left alone: not one of the ways was tried |
//!
//! Functions that only one of them has, such as those that checked headers call, stand in front of
//! nothing in the other: no program calls them there. On 64-bit Linux those with `64` in their
//! names are the same as those without; programs for old versions of musl call both.

#[cfg_attr(target_env = "musl", path = "c_library/musl.rs")]
#[cfg_attr(not(target_env = "musl"), path = "c_library/gnu.rs")]
mod chosen;

pub(crate) use chosen::{
    NOTES_READS, OTHER, OWN, RIGHTS_SIGNAL, calloc, forget_missing, free, free_aligned,
    has_own_allocator, lock_standard_streams, look_up, malloc, memalign, realloc, refusal,
    register_atfork, unlock_standard_streams,
};

/// What is registered for a fork.
pub(crate) type Handler = Option<extern "C" fn()>;
