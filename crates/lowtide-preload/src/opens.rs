//! Opening files: without waiting, a file of which this process has a mirror.
//!
//! A process that opens a file for writing on which another holds a lease waits until that is given
//! up (`leases.rs`). With `O_NONBLOCK` it does not wait: the call fails with `EWOULDBLOCK`, and the
//! lease is about to be given up. A program that is not changed would not expect this from its own
//! mapping. So the keeper is asked to give such leases up now, and the call is repeated, once.
//!
//! # Safety
//!
//! Each function has the contract of the function whose name it has. The C library declares them
//! with optional arguments; callers pass the mode in the same place whether it counts or not.

#![allow(unsafe_code)]

use crate::interpose::Errno;
use crate::line::Question;
use crate::{mirrors, real, state};
use libc::{c_char, c_int, mode_t};

/// Whether a call that failed may work now.
fn shall_repeat(got: c_int, flags: c_int) -> bool {
    if got >= 0 || flags & libc::O_NONBLOCK == 0 || !mirrors::are_any() {
        return false;
    }
    let Some((state, _)) = state::get() else { return false };
    if std::io::Error::last_os_error().raw_os_error() != Some(libc::EWOULDBLOCK) {
        return false;
    }
    let _errno = Errno::save();
    state.line.ask(Question::Leases).is_some()
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the program's arguments.
    let got = unsafe { real::open(path, flags, mode) };
    // SAFETY: the same.
    if shall_repeat(got, flags) { unsafe { real::open(path, flags, mode) } } else { got }
}

/// The same: on 64-bit Linux offsets have one size.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the program's arguments.
    unsafe { open(path, flags, mode) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the program's arguments.
    let got = unsafe { real::openat(dir, path, flags, mode) };
    // SAFETY: the same.
    if shall_repeat(got, flags) { unsafe { real::openat(dir, path, flags, mode) } } else { got }
}

/// The same.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn openat64(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    // SAFETY: the program's arguments.
    unsafe { openat(dir, path, flags, mode) }
}
