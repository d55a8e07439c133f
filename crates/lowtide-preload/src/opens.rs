//! Opening files: without waiting, a file of which this process has a mirror.
//!
//! A process that opens a file for writing on which another holds a lease waits until that is given
//! up (`leases.rs`). With `O_NONBLOCK` it does not wait: the call fails with `EWOULDBLOCK`, and the
//! lease is about to be given up. A program that is not changed would not expect this from its own
//! mapping. So the keeper is asked to give such leases up now, and the call is repeated: as long as
//! there were any, since another thread may map the file meanwhile.
//!
//! A device whose driver may store into memory is noticed here as well (`devices.rs`), and that the
//! number of a descriptor is used again (`reads.rs`).
//!
//! # Safety
//!
//! Each function has the contract of the function whose name it has. The C library declares them
//! with optional arguments; callers pass the mode in the same place whether it counts or not.

#![allow(unsafe_code)]

use crate::interpose::Errno;
use crate::line::Question;
use crate::{devices, futexes, leases, reads, real, state};
use libc::{c_char, c_int, mode_t};

/// Attempts while no lease of this process was given up, after which another process has one.
const IN_VAIN: u32 = 64;

/// Makes a call, and again while leases of this process are in its way.
///
/// Whether any were is not what the keeper's answer says, but whether it has given up any since the
/// last attempt: it may have done so because of the signal, or because another thread unmapped the
/// file, before it was asked.
fn attempt(flags: c_int, call: impl Fn() -> c_int) -> c_int {
    let got = attempt_file(flags, call);
    reads::opened(got);
    let Err(errno) = devices::opened(got) else { return got };
    // SAFETY: nothing else knows the descriptor.
    unsafe { libc::syscall(libc::SYS_close, got) };
    Errno::set(errno);
    -1
}

/// The same, of whatever is no device.
fn attempt_file(flags: c_int, call: impl Fn() -> c_int) -> c_int {
    let had_any = leases::are_any();
    let mut given_up = leases::given_up();
    let mut got = call();
    if got >= 0 || flags & libc::O_NONBLOCK == 0 {
        return got;
    }
    let is_refused = |got: c_int| {
        got < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EWOULDBLOCK)
    };
    let Some((state, _)) = state::get() else { return got };
    let mut in_vain = 0;
    let is_ours = had_any || leases::are_any() || leases::given_up() != given_up;
    while is_ours && is_refused(got) && in_vain < IN_VAIN {
        {
            let _errno = Errno::save();
            if state.line.ask(Question::Leases).is_none() {
                break;
            }
        }
        let now = leases::given_up();
        in_vain = if now == given_up { in_vain + 1 } else { 0 };
        given_up = now;
        got = call();
    }
    got
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the program's path.
    unsafe { futexes::note_open(path) };
    // SAFETY: the program's arguments.
    attempt(flags, || unsafe { real::open(path, flags, mode) })
}

/// The same: on 64-bit Linux offsets have one size.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the program's arguments.
    unsafe { open(path, flags, mode) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the program's path.
    unsafe { futexes::note_open(path) };
    // SAFETY: the program's arguments.
    attempt(flags, || unsafe { real::openat(dir, path, flags, mode) })
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

/// What the C library's checked headers call where the flags are no constant. Flags that need a
/// mode are refused there, as by the library: without one.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn __open_2(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the program's path.
    unsafe { futexes::note_open(path) };
    // SAFETY: the program's arguments.
    attempt(flags, || unsafe { real::open_2(path, flags) })
}

/// The same.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn __open64_2(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the program's arguments.
    unsafe { __open_2(path, flags) }
}

/// The same.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn __openat_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the program's path.
    unsafe { futexes::note_open(path) };
    // SAFETY: the program's arguments.
    attempt(flags, || unsafe { real::openat_2(dir, path, flags) })
}

/// The same.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn __openat64_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the program's arguments.
    unsafe { __openat_2(dir, path, flags) }
}
