//! Reading a descriptor, and writing to one: what is read of large files, and written, is noted
//! (`reads.rs`).
//!
//! Without `--files` this costs a load and a jump. A thread may be cancelled in these functions, so
//! they are of the kind that may be unwound. What the C library reads and writes by itself is in
//! `streams.rs`.
//!
//! # Safety
//!
//! Each function has the contract of the function whose name it has.

#![allow(unsafe_code)]

use crate::reads::{self, End, Way};
use crate::real_reads as real;
use libc::{c_int, c_void, iovec, off_t, size_t, ssize_t};

/// Defines functions that read from a descriptor, or write to it, and note where.
macro_rules! noted {
    ($($way:ident $name:ident($($arg:ident: $kind:ty),*) at $end:expr;)*) => {
        $(
            #[cfg_attr(not(test), unsafe(no_mangle))]
            unsafe extern "C-unwind" fn $name(fd: c_int, $($arg: $kind),*) -> ssize_t {
                // SAFETY: the program's arguments.
                let got = unsafe { real::$name(fd, $($arg),*) };
                reads::done(fd, got, $end, Way::$way);
                got
            }
        )*
    };
}

noted! {
    Read read(to: *mut c_void, len: size_t) at End::Place;
    Read pread(to: *mut c_void, len: size_t, offset: off_t) at End::At(offset);
    Read readv(to: *const iovec, count: c_int) at End::Place;
    Read preadv(to: *const iovec, count: c_int, offset: off_t) at End::At(offset);
    Read preadv2(to: *const iovec, count: c_int, offset: off_t, flags: c_int) at End::At(offset);
    Written write(from: *const c_void, len: size_t) at End::Place;
    Written pwrite(from: *const c_void, len: size_t, offset: off_t) at End::At(offset);
    Written writev(from: *const iovec, count: c_int) at End::Place;
    Written pwritev(from: *const iovec, count: c_int, offset: off_t) at End::At(offset);
    Written pwritev2(from: *const iovec, count: c_int, offset: off_t, flags: c_int)
        at End::At(offset);
}

/// The same functions by other names: on 64-bit Linux offsets have one size, and checked headers
/// say how much room there is.
macro_rules! also {
    ($($name:ident($($arg:ident: $kind:ty),*) = $call:expr;)*) => {
        $(
            #[cfg_attr(not(test), unsafe(no_mangle))]
            unsafe extern "C-unwind" fn $name($($arg: $kind),*) -> ssize_t {
                // SAFETY: the program's arguments.
                unsafe { $call }
            }
        )*
    };
}

also! {
    pread64(fd: c_int, to: *mut c_void, len: size_t, offset: off_t) = pread(fd, to, len, offset);
    preadv64(fd: c_int, to: *const iovec, count: c_int, offset: off_t)
        = preadv(fd, to, count, offset);
    preadv64v2(fd: c_int, to: *const iovec, count: c_int, offset: off_t, flags: c_int)
        = preadv2(fd, to, count, offset, flags);
    pwrite64(fd: c_int, from: *const c_void, len: size_t, offset: off_t)
        = pwrite(fd, from, len, offset);
    pwritev64(fd: c_int, from: *const iovec, count: c_int, offset: off_t)
        = pwritev(fd, from, count, offset);
    pwritev64v2(fd: c_int, from: *const iovec, count: c_int, offset: off_t, flags: c_int)
        = pwritev2(fd, from, count, offset, flags);
    __read_chk(fd: c_int, to: *mut c_void, len: size_t, room: size_t)
        = read(fd, to, checked(len, room));
    __pread_chk(fd: c_int, to: *mut c_void, len: size_t, offset: off_t, room: size_t)
        = pread(fd, to, checked(len, room), offset);
    __pread64_chk(fd: c_int, to: *mut c_void, len: size_t, offset: off_t, room: size_t)
        = pread(fd, to, checked(len, room), offset);
}

/// What checked headers demand: no more than there is room for.
pub(crate) fn checked(len: size_t, room: size_t) -> size_t {
    if len > room {
        std::process::abort();
    }
    len
}
