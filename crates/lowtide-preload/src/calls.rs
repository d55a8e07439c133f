//! Reading into memory that is kept.
//!
//! A read that is a copy waits for pages as the program does. Every other one goes elsewhere, and
//! is copied (`copies.rs` says which, `elsewhere.rs` how). Into other memory a read costs a
//! comparison more. Here, too, reads of large files are noted (`reads.rs`). Sockets are in
//! `receives.rs`, what the C library reads by itself in `streams.rs` and `aio.rs`.
//!
//! A thread may be cancelled in these functions, so they are of the kind that may be unwound.
//!
//! # Safety
//!
//! Each function has the contract of the function whose name it has.

#![allow(unsafe_code)]

use crate::copies::{self, Manner};
use crate::elsewhere::{self, PARTS};
use crate::reads::{self, End};
use crate::{blocks, real_memory};
use libc::{c_int, c_void, iovec, off_t, size_t, ssize_t};
use std::slice;

/// Whether bytes may be in memory that is kept.
pub(crate) fn may_be_kept(to: *const c_void, len: usize) -> bool {
    len > 0 && blocks::may_touch(&(to as usize..(to as usize).saturating_add(len)))
}

/// How a read into these parts is made.
fn manner(fd: c_int, parts: &[iovec]) -> Manner {
    if parts.iter().any(|part| may_be_kept(part.iov_base, part.iov_len)) {
        copies::of(fd)
    } else {
        Manner::Copies
    }
}

/// The program's parts; none where the call fails, or is too long to be served.
///
/// # Safety
/// As `readv`.
pub(crate) unsafe fn parts<'a>(to: *const iovec, count: usize) -> &'a [iovec] {
    if to.is_null() || !(1..=PARTS).contains(&count) {
        return &[];
    }
    // SAFETY: the program's array.
    unsafe { slice::from_raw_parts(to, count) }
}

/// Where a piece of a file begins. A negative offset, which is the file's own place, stays so.
fn plus(offset: off_t, done: usize) -> off_t {
    if offset < 0 { offset } else { offset.saturating_add_unsigned(done as u64) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn read(fd: c_int, to: *mut c_void, len: size_t) -> ssize_t {
    let part = [iovec { iov_base: to, iov_len: len }];
    let got = match manner(fd, &part) {
        // SAFETY: the program's arguments.
        Manner::Copies => unsafe { real_memory::read(fd, to, len) },
        manner => elsewhere::read_into(manner, &part, |to, _| {
            // SAFETY: room elsewhere.
            unsafe { real_memory::read(fd, to[0].iov_base, to[0].iov_len) }
        }),
    };
    reads::done(fd, got, End::Place);
    got
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn pread(
    fd: c_int,
    to: *mut c_void,
    len: size_t,
    offset: off_t,
) -> ssize_t {
    let part = [iovec { iov_base: to, iov_len: len }];
    let got = match manner(fd, &part) {
        // SAFETY: the program's arguments.
        Manner::Copies => unsafe { real_memory::pread(fd, to, len, offset) },
        manner => elsewhere::read_into(manner, &part, |to, done| {
            let (to, len) = (to[0].iov_base, to[0].iov_len);
            // SAFETY: room elsewhere.
            unsafe { real_memory::pread(fd, to, len, plus(offset, done)) }
        }),
    };
    reads::done(fd, got, End::At(offset));
    got
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn readv(fd: c_int, to: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the program's arguments.
    let all = unsafe { parts(to, count as usize) };
    let got = match manner(fd, all) {
        // SAFETY: as above.
        Manner::Copies => unsafe { real_memory::readv(fd, to, count) },
        manner => elsewhere::read_into(manner, all, |to, _| {
            // SAFETY: room elsewhere.
            unsafe { real_memory::readv(fd, to.as_ptr(), to.len() as c_int) }
        }),
    };
    reads::done(fd, got, End::Place);
    got
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn preadv(
    fd: c_int,
    to: *const iovec,
    count: c_int,
    offset: off_t,
) -> ssize_t {
    // SAFETY: the program's arguments.
    let all = unsafe { parts(to, count as usize) };
    let got = match manner(fd, all) {
        // SAFETY: as above.
        Manner::Copies => unsafe { real_memory::preadv(fd, to, count, offset) },
        manner => elsewhere::read_into(manner, all, |to, done| {
            let (list, count) = (to.as_ptr(), to.len() as c_int);
            // SAFETY: room elsewhere.
            unsafe { real_memory::preadv(fd, list, count, plus(offset, done)) }
        }),
    };
    reads::done(fd, got, End::At(offset));
    got
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn preadv2(
    fd: c_int,
    to: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the program's arguments.
    let all = unsafe { parts(to, count as usize) };
    let got = match manner(fd, all) {
        // SAFETY: as above.
        Manner::Copies => unsafe { real_memory::preadv2(fd, to, count, offset, flags) },
        manner => elsewhere::read_into(manner, all, |to, done| {
            let (list, count) = (to.as_ptr(), to.len() as c_int);
            // SAFETY: room elsewhere.
            unsafe { real_memory::preadv2(fd, list, count, plus(offset, done), flags) }
        }),
    };
    reads::done(fd, got, End::At(offset));
    got
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
