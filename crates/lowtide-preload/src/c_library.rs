//! What differs between the C libraries of programs: that of GNU (glibc), and musl.
//!
//! This crate is built for one of them at a time, and all that depends on it is in the two files
//! below. Nothing else asks for which one it is built, but `lib.rs`, which leaves the functions out
//! that serve memory without a file.
//!
//! | | `gnu` | `musl` |
//! |---|---|---|
//! | our own memory | names of its allocator that nothing stands in front of | `malloc` of the C library itself, which is asked for it, also where code in this file calls it by its name |
//! | handlers of `fork(2)` are registered by | `__register_atfork`, of which `pthread_atfork` is a part of each program | `pthread_atfork` |
//! | thread-locals end by | `__cxa_thread_atexit_impl`, under the loader's lock | a key of the thread, without a lock that is held |
//! | the signal that changes the rights of all threads | 33 | 34 |
//! | a name that is not found | is forgotten | stays the program's next `dlerror(3)` |
//! | memory without a file (`--anon`) | kept | left alone: not one of its ways was tried |
//!
//! Functions that only one of them has, such as those that checked headers call, stand in front of
//! nothing in the other: no program calls them there. On 64-bit Linux those with `64` in their
//! names are the same as those without; programs for old versions of musl call both.

#[cfg_attr(target_env = "musl", path = "c_library/musl.rs")]
#[cfg_attr(not(target_env = "musl"), path = "c_library/gnu.rs")]
mod chosen;

pub(crate) use chosen::{
    KEEPS_MEMORY, OTHER, OWN, RIGHTS_SIGNAL, Resource, calloc, forget_missing, free, free_aligned,
    is_malloc, malloc, memalign, realloc, refusal, register_atfork,
};

/// What is registered for a fork.
pub(crate) type Handler = Option<extern "C" fn()>;
