//! Standard input and output without a lock for each character, in a program that has one thread.
//!
//! While a process has one thread, the C library of GNU does not lock a stream to put a character
//! into it or to take one out. With the first second thread it begins to, for good. In a program of
//! one thread the second one is ours, and it uses no stream. The lock may cost more than
//! everything else that `putc(3)` does.
//!
//! A program may take over the locks of a stream (`FSETLOCKING_BYCALLER` of `__fsetlocking(3)`).
//! That is set for both streams before the program's first instruction, and undone in the program's
//! first `pthread_create(3)`, before it makes the thread. From then on all is as alone.
//!
//! **A thread that comes past `pthread_create` would find streams without locks.** So this is done
//! only where none can: the program and its libraries need none of the names in [`OTHER_WAYS`].
//! Those start threads inside of the C library, or find functions that nothing needs by name. What
//! the C library opens by itself (name services, character sets) starts threads by names, if any. A
//! thread that a program makes by a bare system call is unknown to the C library, and is not looked
//! for: it must use no standard stream.
//!
//! **A lock must not be given back that was not taken.** A function of the C library looks once
//! before and once after what it does, so the answer must not change while one is at work. Before
//! `main` none is. In `pthread_create` one would be, if it is called by the allocator, for a
//! buffer, or by a function that the program registered for `printf`. So the allocator must be the
//! C library's own, and the names that register are in the list, too. A handler of a signal must
//! not call `pthread_create`.
//!
//! | event | |
//! |---|---|
//! | `fork`, `_Fork`, `clone`: a child | has one thread, and the streams as they are |
//! | `exec` | a new program begins again |
//! | the first thread ends (`last.rs`) | ours that calls `exit` is then the only one |
//! | `flockfile(3)` | locks in any case |
//! | a program that asks, or decides, how a stream is locked | is left alone: it needs the name |
//! | `stdout = other` | the streams that the process began with are meant |
//! | `freopen`, `fclose` | with locks: they forget that there are none, and give one back |
//!
//! Streams that the program opens are locked, as in any program with threads.

use crate::{c_library, imports};
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

/// By what a thread may come that `pthread_create` does not see, or see too late.
const OTHER_WAYS: [&CStr; 26] = [
    // Any function, by a name that is made at run time; objects that are not looked at here.
    c"dlsym",
    c"dlvsym",
    c"dlopen",
    c"dlmopen",
    // Threads of the C library's, whose functions are the program's.
    c"thrd_create",
    c"timer_create",
    c"mq_notify",
    c"getaddrinfo_a",
    c"aio_read",
    c"aio_read64",
    c"aio_write",
    c"aio_write64",
    c"aio_fsync",
    c"aio_fsync64",
    c"lio_listio",
    c"lio_listio64",
    // A thread that the C library knows nothing of, and that takes the locks of streams.
    c"clone",
    c"__clone",
    // Functions of the program's inside of those of streams.
    c"register_printf_function",
    c"register_printf_modifier",
    c"register_printf_specifier",
    c"register_printf_type",
    // The program has an answer of its own.
    c"__fsetlocking",
    // Old names of the C library's for its own libraries.
    c"__libc_dlsym",
    c"__libc_dlvsym",
    c"__libc_dlopen_mode",
];

/// The program has started a thread, or is about to.
static HAS_THREADS: AtomicBool = AtomicBool::new(false);
/// The streams are not locked. Of memory that a child has, as it has the streams.
static IS_UNLOCKED: AtomicBool = AtomicBool::new(false);

/// The process begins: no function of a stream is at work.
pub(crate) fn begin() {
    if c_library::has_own_allocator() && !imports::needs_any(&OTHER_WAYS) {
        go_on();
    }
}

/// The streams need no locks, unless the program has threads.
pub(crate) fn go_on() {
    if !HAS_THREADS.load(Ordering::Acquire) {
        c_library::unlock_standard_streams();
        IS_UNLOCKED.store(true, Ordering::Release);
    }
}

/// They have locks again; whether they had none.
pub(crate) fn give_up() -> bool {
    let had_none = IS_UNLOCKED.swap(false, Ordering::AcqRel);
    if had_none {
        c_library::lock_standard_streams();
    }
    had_none
}

/// A thread of the program is about to start another one.
pub(crate) fn before_thread() {
    HAS_THREADS.store(true, Ordering::Release);
    give_up();
}
