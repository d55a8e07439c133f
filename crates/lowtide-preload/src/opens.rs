//! Opening files: without waiting, a file of which this process has a mirror.
//!
//! A process that opens a file for writing on which another holds a lease waits until that is given
//! up (`lowtide-run/leases.rs`). With `O_NONBLOCK` it does not wait: the call fails with
//! `EWOULDBLOCK`, and the lease is about to be given up. A program that is not changed would not
//! expect this from its own mapping. So the keeper is asked to give such leases up now, and the
//! call is repeated: as long as there were any, since another thread may map the file meanwhile.
//!
//! That the number of a descriptor is used again is noticed here as well (`reads.rs`), and that the
//! program serves page faults itself (`syscalls.rs`).
//!
//! # Safety
//!
//! Each function has the contract of the function whose name it has. The C library declares them
//! with optional arguments; callers pass the mode in the same place whether it counts or not.

#![allow(unsafe_code)]

use crate::interpose::Errno;
use crate::line::Question;
use crate::{reads, real, state, syscalls};
use libc::{c_char, c_int, mode_t};
use lowtide_run::leases;

/// Attempts while no lease of this process was given up, after which another process has one.
const IN_VAIN: u32 = 64;

/// Makes a call, and again while leases of this process are in its way.
///
/// Whether any were is not what the keeper's answer says, but whether it has given up any since the
/// last attempt: it may have done so because of the signal, or because another thread unmapped the
/// file, before it was asked.
fn attempt(flags: c_int, call: impl Fn() -> c_int) -> c_int {
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

/// Defines functions that open a file, each over the next one of its name: with a folder or
/// without, with a mode or without.
macro_rules! opens {
    ($($(#[$about:meta])*
        $name:ident([$($dir:ident)?] $path:ident, $flags:ident [$($mode:ident)?]) = $next:ident;
    )*) => {
        $(
            $(#[$about])*
            #[cfg_attr(not(test), unsafe(no_mangle))]
            unsafe extern "C" fn $name(
                $($dir: c_int,)?
                $path: *const c_char,
                $flags: c_int
                $(, $mode: mode_t)?
            ) -> c_int {
                // SAFETY: the program's path.
                unsafe { syscalls::note_open($path) };
                // SAFETY: the program's arguments.
                let call = || unsafe { real::$next($($dir,)? $path, $flags $(, $mode)?) };
                let got = attempt($flags, call);
                reads::opened(got);
                got
            }
        )*
    };
}

// On 64-bit Linux offsets have one size, so functions with `64` in their names are the same.
opens! {
    open([] path, flags [mode]) = open;
    open64([] path, flags [mode]) = open;
    openat([dir] path, flags [mode]) = openat;
    openat64([dir] path, flags [mode]) = openat;
    /// The function that the C library's checked headers call where the flags are no constant.
    /// Flags that need a mode are refused there, as by the library: without one.
    __open_2([] path, flags []) = __open_2;
    /// The same.
    __open64_2([] path, flags []) = __open_2;
    /// The same.
    __openat_2([dir] path, flags []) = __openat_2;
    /// The same.
    __openat64_2([dir] path, flags []) = __openat_2;
}
