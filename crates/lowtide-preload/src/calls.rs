//! Reading from a device into memory that is kept.
//!
//! With `O_DIRECT` the device stores past the page tables, so it is not noticed, and would be lost
//! if the page left meanwhile. Such a read goes elsewhere, and is copied. Every other read is a
//! copy that the kernel makes, which waits for pages as the program does.
//!
//! # Safety
//!
//! Each function has the contract of the function whose name it has.

#![allow(unsafe_code)]

use crate::interpose::Errno;
use crate::{blocks, real_memory};
use libc::{c_int, c_void, iovec, off_t, size_t, ssize_t};
use std::{ptr, slice};

/// The kernel's limit of parts of a read.
const PARTS: usize = 1024;

/// Memory of the kernel's, for whole pages.
struct Elsewhere {
    start: *mut u8,
    len: usize,
}

impl Elsewhere {
    fn new(len: usize) -> Option<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: no address is demanded, so this replaces nothing.
        let got =
            unsafe { libc::syscall(libc::SYS_mmap, 0_usize, len, prot, flags, -1_isize, 0_usize) };
        let start = ptr::with_exposed_provenance_mut(got as usize);
        (got != -1).then_some(Self { start, len })
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        // SAFETY: a mapping of ours.
        unsafe { libc::syscall(libc::SYS_munmap, self.start, self.len) };
    }
}

/// Whether a read into these parts must go elsewhere.
fn is_direct(fd: c_int, parts: &[iovec]) -> bool {
    if !parts.iter().any(|part| part.iov_len > 0 && blocks::may_have(part.iov_base as usize)) {
        return false;
    }
    // SAFETY: asks about a number.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    flags >= 0 && flags & libc::O_DIRECT != 0
}

/// Makes a read into parts of memory, perhaps elsewhere.
fn read_into(
    fd: c_int,
    parts: &[iovec],
    read: impl FnOnce(*const iovec, c_int) -> ssize_t,
) -> ssize_t {
    let count = parts.len() as c_int;
    if parts.len() > PARTS || !is_direct(fd, parts) {
        return read(parts.as_ptr(), count);
    }
    let page = rustix::param::page_size();
    // The same place in a page: the device may demand it.
    let room = |part: &iovec| (part.iov_base as usize % page + part.iov_len).next_multiple_of(page);
    let memory = parts.iter().map(room).sum::<usize>();
    let (Some(elsewhere), Some(list)) =
        (Elsewhere::new(memory.max(page)), Elsewhere::new(page * (PARTS * 16 / page).max(1)))
    else {
        Errno::set(libc::ENOMEM);
        return -1;
    };
    let list: *mut iovec = list.start.cast();
    let mut at = elsewhere.start;
    for (number, part) in parts.iter().enumerate() {
        let iov_base = at.wrapping_add(part.iov_base as usize % page).cast();
        let place = list.wrapping_add(number);
        // SAFETY: the list has room for all parts.
        unsafe { place.write(iovec { iov_base, iov_len: part.iov_len }) };
        at = at.wrapping_add(room(part));
    }
    let got = read(list, count);
    let mut left = usize::try_from(got).unwrap_or(0);
    for (number, part) in parts.iter().enumerate() {
        let len = part.iov_len.min(left);
        let place = list.wrapping_add(number);
        // SAFETY: written above.
        let from = unsafe { place.read() }.iov_base;
        // SAFETY: the read has stored that many bytes there, and the program has room for them.
        unsafe { ptr::copy_nonoverlapping(from.cast::<u8>(), part.iov_base.cast(), len) };
        left -= len;
    }
    got
}

/// # Safety
/// As `readv`.
unsafe fn parts<'a>(to: *const iovec, count: c_int) -> &'a [iovec] {
    match usize::try_from(count) {
        // SAFETY: the program's array.
        Ok(count @ 1..=PARTS) if !to.is_null() => unsafe { slice::from_raw_parts(to, count) },
        _ => &[],
    }
}

/// Reads into one part.
fn read_one(
    fd: c_int,
    to: *mut c_void,
    len: size_t,
    read: impl FnOnce(*mut c_void) -> ssize_t,
) -> ssize_t {
    let part = [iovec { iov_base: to, iov_len: len }];
    // SAFETY: there is one part.
    read_into(fd, &part, |list, _| read(unsafe { list.read() }.iov_base))
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn read(fd: c_int, to: *mut c_void, len: size_t) -> ssize_t {
    // SAFETY: the program's arguments, or as much room elsewhere.
    read_one(fd, to, len, |to| unsafe { real_memory::read(fd, to, len) })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn pread(fd: c_int, to: *mut c_void, len: size_t, offset: off_t) -> ssize_t {
    // SAFETY: the program's arguments, or as much room elsewhere.
    read_one(fd, to, len, |to| unsafe { real_memory::pread(fd, to, len, offset) })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn readv(fd: c_int, to: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the program's arguments.
    let all = unsafe { parts(to, count) };
    if all.is_empty() {
        // SAFETY: as above.
        return unsafe { real_memory::readv(fd, to, count) };
    }
    // SAFETY: the same parts, or as many of the same length elsewhere.
    read_into(fd, all, |to, count| unsafe { real_memory::readv(fd, to, count) })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn preadv(fd: c_int, to: *const iovec, count: c_int, offset: off_t) -> ssize_t {
    // SAFETY: the program's arguments.
    let all = unsafe { parts(to, count) };
    if all.is_empty() {
        // SAFETY: as above.
        return unsafe { real_memory::preadv(fd, to, count, offset) };
    }
    // SAFETY: the same parts, or as many of the same length elsewhere.
    read_into(fd, all, |to, count| unsafe { real_memory::preadv(fd, to, count, offset) })
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn preadv2(
    fd: c_int,
    to: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the program's arguments.
    let all = unsafe { parts(to, count) };
    if all.is_empty() {
        // SAFETY: as above.
        return unsafe { real_memory::preadv2(fd, to, count, offset, flags) };
    }
    // SAFETY: the same parts, or as many of the same length elsewhere.
    read_into(fd, all, |to, count| unsafe { real_memory::preadv2(fd, to, count, offset, flags) })
}

/// The same functions by other names: on 64-bit Linux offsets have one size, and checked headers
/// say how much room there is.
macro_rules! also {
    ($($name:ident($($arg:ident: $kind:ty),*) = $call:expr;)*) => {
        $(
            #[cfg_attr(not(test), unsafe(no_mangle))]
            unsafe extern "C" fn $name($($arg: $kind),*) -> ssize_t {
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
fn checked(len: size_t, room: size_t) -> size_t {
    if len > room {
        std::process::abort();
    }
    len
}
