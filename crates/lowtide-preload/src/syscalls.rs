//! Calls that a program makes by `syscall(2)`, past the functions of their names.
//!
//! Two of them matter here. A raw `clone` makes a child without the handlers of `fork(3)`
//! (`clones.rs`). And a program that has a `userfaultfd(2)` of its own registers memory with it, of
//! which the kernel does not take a second registration: its files are left alone from then on. It
//! may open `/dev/userfaultfd` as well ([`note_open`]).
//!
//! # Safety
//!
//! `syscall` has as many arguments as the kernel takes; those that the caller has not passed have
//! any value, as in the C library.

#![allow(unsafe_code)]

use crate::execs::missing;
use crate::interpose::Errno;
use crate::judge::Reason;
use crate::real::next;
use crate::{clones, rights, state};
use libc::{c_char, c_long};
use std::ffi::CStr;

/// What is behind `syscall(2)`: it takes words.
mod real {
    use super::{missing, next};
    use libc::c_long;

    next! {
        SYSCALL.found: "C" fn syscall(
            number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize
        ) -> c_long,
            else c_long::from(missing());
    }
}
pub(crate) use real::look_up;

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    let args = [a, b, c, d, e, f];
    // SAFETY: the program's arguments.
    let call = || unsafe { real::syscall(number, a, b, c, d, e, f) };
    if number == libc::SYS_userfaultfd {
        yield_to_program();
    } else if rights::changes(number, &args) {
        rights::before_change();
    } else if clones::makes_child(number, &args) {
        return clones::make(call);
    }
    call()
}

/// A file is about to be opened.
///
/// # Safety
/// A path of the program.
pub(crate) unsafe fn note_open(path: *const c_char) {
    // SAFETY: the caller's promise. A path that is not one is refused by the call.
    if !path.is_null() && unsafe { CStr::from_ptr(path) } == c"/dev/userfaultfd" {
        yield_to_program();
    }
}

/// All memory is the program's from now on.
fn yield_to_program() {
    let Some((state, _)) = state::get() else { return };
    let _errno = Errno::save();
    state.leave_alone(Reason::Userfaultfd);
    state.release_for(&(0..usize::MAX), Reason::Userfaultfd);
}
