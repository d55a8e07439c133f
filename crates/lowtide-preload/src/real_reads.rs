//! The functions behind those that read and write files (`calls.rs`, `streams.rs`).
//!
//! Constructors of other libraries, and allocators, may call them before this library is
//! initialised: then it is the system call, and a function of streams is looked up.
//!
//! # Safety
//!
//! As in `real.rs`.

#![allow(unsafe_code)]

use crate::real::next;
use libc::{FILE, c_int, c_void, iovec, off_t, size_t, ssize_t};

next! {
    READ.get: "C-unwind" fn read(fd: c_int, to: *mut c_void, len: size_t) -> ssize_t,
        else libc::syscall(libc::SYS_read, fd, to, len) as ssize_t;
    PREAD.get: "C-unwind" fn pread(
        fd: c_int, to: *mut c_void, len: size_t, offset: off_t
    ) -> ssize_t,
        else libc::syscall(libc::SYS_pread64, fd, to, len, offset) as ssize_t;
    PREADV.get: "C-unwind" fn preadv(
        fd: c_int, to: *const iovec, count: c_int, offset: off_t
    ) -> ssize_t,
        else libc::syscall(libc::SYS_preadv, fd, to, count, offset, 0_usize) as ssize_t;
    READV.get: "C-unwind" fn readv(fd: c_int, to: *const iovec, count: c_int) -> ssize_t,
        else libc::syscall(libc::SYS_readv, fd, to, count) as ssize_t;
    PREADV2.get: "C-unwind" fn preadv2(
        fd: c_int, to: *const iovec, count: c_int, offset: off_t, flags: c_int
    ) -> ssize_t,
        else libc::syscall(libc::SYS_preadv2, fd, to, count, offset, 0_usize, flags) as ssize_t;
    WRITE.get: "C-unwind" fn write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t,
        else libc::syscall(libc::SYS_write, fd, from, len) as ssize_t;
    PWRITE.get: "C-unwind" fn pwrite(
        fd: c_int, from: *const c_void, len: size_t, offset: off_t
    ) -> ssize_t,
        else libc::syscall(libc::SYS_pwrite64, fd, from, len, offset) as ssize_t;
    WRITEV.get: "C-unwind" fn writev(fd: c_int, from: *const iovec, count: c_int) -> ssize_t,
        else libc::syscall(libc::SYS_writev, fd, from, count) as ssize_t;
    PWRITEV.get: "C-unwind" fn pwritev(
        fd: c_int, from: *const iovec, count: c_int, offset: off_t
    ) -> ssize_t,
        else libc::syscall(libc::SYS_pwritev, fd, from, count, offset, 0_usize) as ssize_t;
    PWRITEV2.get: "C-unwind" fn pwritev2(
        fd: c_int, from: *const iovec, count: c_int, offset: off_t, flags: c_int
    ) -> ssize_t,
        else libc::syscall(libc::SYS_pwritev2, fd, from, count, offset, 0_usize, flags) as ssize_t;
    // Streams are the C library's alone: without it there is nothing to call, and the call fails.
    FREAD.found: "C-unwind" fn fread(
        to: *mut c_void, size: size_t, count: size_t, stream: *mut FILE
    ) -> size_t,
        else 0;
    FREAD_UNLOCKED.found: "C-unwind" fn fread_unlocked(
        to: *mut c_void, size: size_t, count: size_t, stream: *mut FILE
    ) -> size_t,
        else 0;
    FWRITE.found: "C-unwind" fn fwrite(
        from: *const c_void, size: size_t, count: size_t, stream: *mut FILE
    ) -> size_t,
        else 0;
    FWRITE_UNLOCKED.found: "C-unwind" fn fwrite_unlocked(
        from: *const c_void, size: size_t, count: size_t, stream: *mut FILE
    ) -> size_t,
        else 0;
}
