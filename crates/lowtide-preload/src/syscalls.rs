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

use crate::interpose::Errno;
use crate::judge::Reason;
use crate::real::Next;
use crate::{clones, rights, state};
use libc::{c_char, c_long, c_void};
use std::ffi::CStr;
use std::mem;

static SYSCALL: Next = Next::new(c"syscall");

/// Finds it, so that no allocator has to later.
pub(crate) fn look_up() {
    SYSCALL.look_up();
}

type Six = [usize; 6];

/// What `syscall(2)` of the C library does.
fn call(number: c_long, args: Six) -> c_long {
    type F = unsafe extern "C" fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long;
    let Some(next) = SYSCALL.found() else {
        Errno::set(libc::ENOSYS);
        return -1;
    };
    // SAFETY: the C library's function, whose arguments are words.
    let next = unsafe { mem::transmute::<*mut c_void, F>(next) };
    let [a, b, c, d, e, f] = args;
    // SAFETY: the program's arguments.
    unsafe { next(number, a, b, c, d, e, f) }
}

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
    match number {
        libc::SYS_userfaultfd => {
            yield_to_program();
            call(number, args)
        }
        _ if rights::changes(number, &args) => {
            rights::before_change();
            call(number, args)
        }
        _ if clones::makes_child(number, &args) => clones::make(|| call(number, args)),
        _ => call(number, args),
    }
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
