//! The allocator that the program would have called, and the functions that read into its memory.
//!
//! An allocator is called before this library is initialised: by the constructors of others. What
//! one function has given out another takes back, so all of them are looked up at the first call of
//! any. While they are looked up, `dlsym` may allocate; that is served by the C library.
//!
//! # Safety
//!
//! As in `real.rs`.

#![allow(unsafe_code)]

use crate::c_library;
use crate::real::Next;
use libc::{
    FILE, aiocb, c_char, c_int, c_uint, c_void, iovec, mmsghdr, msghdr, off_t, sigevent, size_t,
    sockaddr, socklen_t, ssize_t, timespec,
};
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};

static MALLOC: Next = Next::new(c"malloc");
static CALLOC: Next = Next::new(c"calloc");
static REALLOC: Next = Next::new(c"realloc");
static FREE: Next = Next::new(c"free");
static MEMALIGN: Next = Next::new(c"memalign");
static ALIGNED_ALLOC: Next = Next::new(c"aligned_alloc");
static POSIX_MEMALIGN: Next = Next::new(c"posix_memalign");
static USABLE: Next = Next::new(c"malloc_usable_size");
static READ: Next = Next::new(c"read");
static PREAD: Next = Next::new(c"pread");
static PREADV: Next = Next::new(c"preadv");
static READV: Next = Next::new(c"readv");
static PREADV2: Next = Next::new(c"preadv2");
static RECV: Next = Next::new(c"recv");
static RECVFROM: Next = Next::new(c"recvfrom");
static RECVMSG: Next = Next::new(c"recvmsg");
static RECVMMSG: Next = Next::new(c"recvmmsg");
static FREAD: Next = Next::new(c"fread");
static FREAD_UNLOCKED: Next = Next::new(c"fread_unlocked");
static SETVBUF: Next = Next::new(c"setvbuf");
static AIO_READ: Next = Next::new(c"aio_read");
static LIO_LISTIO: Next = Next::new(c"lio_listio");
static FORK: Next = Next::new(c"fork");

static LOOKING: AtomicBool = AtomicBool::new(false);

/// Finds all of them, once.
#[cold]
pub(crate) fn look_up() {
    if LOOKING.swap(true, Ordering::AcqRel) {
        return;
    }
    // `malloc` last: when it is found, the others are.
    for next in [
        &CALLOC,
        &REALLOC,
        &FREE,
        &MEMALIGN,
        &ALIGNED_ALLOC,
        &POSIX_MEMALIGN,
        &USABLE,
        &READ,
        &PREAD,
        &PREADV,
        &READV,
        &PREADV2,
        &RECV,
        &RECVFROM,
        &RECVMSG,
        &RECVMMSG,
        &FREAD,
        &FREAD_UNLOCKED,
        &SETVBUF,
        &AIO_READ,
        &LIO_LISTIO,
        &FORK,
        &MALLOC,
    ] {
        next.look_up();
    }
}

/// Whether the program allocates with the C library's `malloc`. Another allocator has functions of
/// its own besides, which would get blocks that it does not know.
pub(crate) fn malloc_is_the_c_librarys() -> bool {
    look_up();
    MALLOC.get().is_some_and(c_library::is_malloc)
}

/// Defines a function that calls the next one of its name, or `else` while that is looked for.
macro_rules! next {
    ($name:ident, $next:ident, ($($arg:ident: $kind:ty),*) -> $result:ty, $else:expr) => {
        pub(crate) unsafe fn $name($($arg: $kind),*) -> $result {
            type F = unsafe extern "C-unwind" fn($($kind),*) -> $result;
            let found = $next.get().or_else(|| {
                look_up();
                $next.get()
            });
            match found {
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

next!(malloc, MALLOC, (size: size_t) -> *mut c_void, c_library::malloc(size));
next!(calloc, CALLOC, (count: size_t, size: size_t) -> *mut c_void, c_library::calloc(count, size));
next!(
    realloc, REALLOC, (old: *mut c_void, size: size_t) -> *mut c_void, c_library::realloc(old, size)
);
next!(free, FREE, (old: *mut c_void) -> (), c_library::free(old));
next!(
    memalign, MEMALIGN, (align: size_t, size: size_t) -> *mut c_void,
    c_library::memalign(align, size)
);
next!(
    aligned_alloc, ALIGNED_ALLOC, (align: size_t, size: size_t) -> *mut c_void,
    c_library::memalign(align, size)
);
next!(
    posix_memalign, POSIX_MEMALIGN,
    (to: *mut *mut c_void, align: size_t, size: size_t) -> c_int,
    {
        let got = c_library::memalign(align, size);
        if !got.is_null() {
            to.write(got);
        }
        if got.is_null() { libc::ENOMEM } else { 0 }
    }
);
// Nothing calls it for memory whose allocator is not known.
next!(malloc_usable_size, USABLE, (block: *mut c_void) -> size_t, { let _ = block; 0 });
next!(
    read, READ, (fd: c_int, to: *mut c_void, len: size_t) -> ssize_t,
    libc::syscall(libc::SYS_read, fd, to, len) as ssize_t
);
next!(
    pread, PREAD, (fd: c_int, to: *mut c_void, len: size_t, offset: off_t) -> ssize_t,
    libc::syscall(libc::SYS_pread64, fd, to, len, offset) as ssize_t
);
next!(
    preadv, PREADV, (fd: c_int, to: *const iovec, count: c_int, offset: off_t) -> ssize_t,
    libc::syscall(libc::SYS_preadv, fd, to, count, offset, 0_usize) as ssize_t
);
next!(
    readv, READV, (fd: c_int, to: *const iovec, count: c_int) -> ssize_t,
    libc::syscall(libc::SYS_readv, fd, to, count) as ssize_t
);
next!(
    preadv2, PREADV2,
    (fd: c_int, to: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t,
    libc::syscall(libc::SYS_preadv2, fd, to, count, offset, 0_usize, flags) as ssize_t
);
next!(
    recv, RECV, (fd: c_int, to: *mut c_void, len: size_t, flags: c_int) -> ssize_t,
    libc::syscall(libc::SYS_recvfrom, fd, to, len, flags, 0_usize, 0_usize) as ssize_t
);
next!(
    recvfrom, RECVFROM,
    (
        fd: c_int,
        to: *mut c_void,
        len: size_t,
        flags: c_int,
        from: *mut sockaddr,
        from_len: *mut socklen_t
    ) -> ssize_t,
    libc::syscall(libc::SYS_recvfrom, fd, to, len, flags, from, from_len) as ssize_t
);
next!(
    recvmsg, RECVMSG, (fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t,
    libc::syscall(libc::SYS_recvmsg, fd, message, flags) as ssize_t
);
next!(
    recvmmsg, RECVMMSG,
    (fd: c_int, all: *mut mmsghdr, count: c_uint, flags: c_int, within: *mut timespec) -> c_int,
    libc::syscall(libc::SYS_recvmmsg, fd, all, count, flags, within) as c_int
);
// Streams and asynchronous reads are the C library's alone: without it there is nothing to call,
// and the call fails.
next!(
    fread, FREAD, (to: *mut c_void, size: size_t, count: size_t, stream: *mut FILE) -> size_t,
    { let _ = (to, size, count, stream); 0 }
);
next!(
    fread_unlocked, FREAD_UNLOCKED,
    (to: *mut c_void, size: size_t, count: size_t, stream: *mut FILE) -> size_t,
    { let _ = (to, size, count, stream); 0 }
);
next!(
    setvbuf, SETVBUF,
    (stream: *mut FILE, buffer: *mut c_char, mode: c_int, size: size_t) -> c_int,
    { let _ = (stream, buffer, mode, size); -1 }
);
next!(aio_read, AIO_READ, (what: *mut aiocb) -> c_int, { let _ = what; -1 });
next!(
    lio_listio, LIO_LISTIO,
    (mode: c_int, all: *const *mut aiocb, count: c_int, event: *mut sigevent) -> c_int,
    { let _ = (mode, all, count, event); -1 }
);
next!(
    fork, FORK, () -> c_int,
    libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0_usize, 0_usize, 0_usize, 0_usize) as c_int
);
