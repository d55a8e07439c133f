//! The functions behind those that read files (`calls.rs`, `streams.rs`).
//!
//! Constructors of other libraries, and allocators, may read before this library is initialised:
//! then a descriptor is read by the system call, and a function of streams is looked up.
//!
//! # Safety
//!
//! As in `real.rs`.

#![allow(unsafe_code)]

use crate::real::Next;
use libc::{FILE, c_int, c_void, iovec, off_t, size_t, ssize_t};
use std::mem;

static READ: Next = Next::new(c"read");
static PREAD: Next = Next::new(c"pread");
static PREADV: Next = Next::new(c"preadv");
static READV: Next = Next::new(c"readv");
static PREADV2: Next = Next::new(c"preadv2");
static FREAD: Next = Next::new(c"fread");
static FREAD_UNLOCKED: Next = Next::new(c"fread_unlocked");

/// Finds all of them.
pub(crate) fn look_up() {
    for next in [&READ, &PREAD, &PREADV, &READV, &PREADV2, &FREAD, &FREAD_UNLOCKED] {
        next.look_up();
    }
}

/// Defines a function that calls the next one of its name, or `else` if there is none.
macro_rules! next {
    (
        $name:ident, $next:ident.$get:ident,
        ($($arg:ident: $kind:ty),*) -> $result:ty, $else:expr
    ) => {
        pub(crate) unsafe fn $name($($arg: $kind),*) -> $result {
            type F = unsafe extern "C-unwind" fn($($kind),*) -> $result;
            match $next.$get() {
                Some(next) => {
                    // SAFETY: the module's header.
                    let next = unsafe { mem::transmute::<*mut c_void, F>(next) };
                    // SAFETY: the caller's arguments, which are the program's.
                    unsafe { next($($arg),*) }
                }
                #[allow(unused_unsafe, reason = "of some there is nothing to call")]
                // SAFETY: as above.
                None => unsafe { $else },
            }
        }
    };
}

next!(
    read, READ.get, (fd: c_int, to: *mut c_void, len: size_t) -> ssize_t,
    libc::syscall(libc::SYS_read, fd, to, len) as ssize_t
);
next!(
    pread, PREAD.get, (fd: c_int, to: *mut c_void, len: size_t, offset: off_t) -> ssize_t,
    libc::syscall(libc::SYS_pread64, fd, to, len, offset) as ssize_t
);
next!(
    preadv, PREADV.get, (fd: c_int, to: *const iovec, count: c_int, offset: off_t) -> ssize_t,
    libc::syscall(libc::SYS_preadv, fd, to, count, offset, 0_usize) as ssize_t
);
next!(
    readv, READV.get, (fd: c_int, to: *const iovec, count: c_int) -> ssize_t,
    libc::syscall(libc::SYS_readv, fd, to, count) as ssize_t
);
next!(
    preadv2, PREADV2.get,
    (fd: c_int, to: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t,
    libc::syscall(libc::SYS_preadv2, fd, to, count, offset, 0_usize, flags) as ssize_t
);
// Streams are the C library's alone: without it there is nothing to call, and the call fails.
next!(
    fread, FREAD.found, (to: *mut c_void, size: size_t, count: size_t, stream: *mut FILE) -> size_t,
    { let _ = (to, size, count, stream); 0 }
);
next!(
    fread_unlocked, FREAD_UNLOCKED.found,
    (to: *mut c_void, size: size_t, count: size_t, stream: *mut FILE) -> size_t,
    { let _ = (to, size, count, stream); 0 }
);
