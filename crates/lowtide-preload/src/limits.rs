//! Limits that the program sets for itself, and stacks that it makes itself.
//!
//! * The window takes 64 GiB of addresses, also where the program has a few blocks. One that limits
//!   its addresses (`RLIMIT_AS`) counts on those that it has. So the window gives up what no block
//!   has used yet. What comes later is the kernel's.
//! * When a thread ends, the kernel stores to the thread's control block, on its stack, and waits
//!   for no page. A stack that the program gives to a thread is lent to it.
//!
//! # Safety
//!
//! Each function has the contract of the function whose name it has.

#![allow(unsafe_code)]

use crate::c_library::Resource;
use crate::interpose::{Errno, pages};
use crate::judge::Reason;
use crate::line::Question;
use crate::memory::WINDOW;
use crate::real::Next;
use crate::{heap, state};
use libc::{c_int, c_void, pid_t, pthread_attr_t, rlimit, size_t};
use std::mem;

static SETSTACK: Next = Next::new(c"pthread_attr_setstack");

/// Finds it, so that no allocator has to later.
pub(crate) fn look_up() {
    SETSTACK.look_up();
}

/// The program may have no more addresses than this.
fn limited(to: &rlimit) {
    let Some((state, _)) = state::get().filter(|(_, settings)| settings.anon) else { return };
    // With twice as many it does not matter.
    if to.rlim_cur / 2 >= WINDOW as u64 {
        return;
    }
    let _errno = Errno::save();
    if state.line.ask(Question::CutTail).is_some() {
        heap::say_once(Reason::Addresses);
    }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn prlimit(
    process: pid_t,
    resource: Resource,
    new: *const rlimit,
    old: *mut rlimit,
) -> c_int {
    let is_own = process == 0 || process.cast_unsigned() == std::process::id();
    if is_own && resource == libc::RLIMIT_AS && !new.is_null() {
        // SAFETY: the program's limit.
        limited(unsafe { &*new });
    }
    // SAFETY: the program's arguments.
    unsafe { libc::syscall(libc::SYS_prlimit64, process, resource, new, old) as c_int }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn setrlimit(resource: Resource, new: *const rlimit) -> c_int {
    // SAFETY: the program's arguments.
    unsafe { prlimit(0, resource, new, std::ptr::null_mut()) }
}

/// The same: on 64-bit Linux limits have one size.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn prlimit64(
    process: pid_t,
    resource: Resource,
    new: *const rlimit,
    old: *mut rlimit,
) -> c_int {
    // SAFETY: the program's arguments.
    unsafe { prlimit(process, resource, new, old) }
}

/// The same.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn setrlimit64(resource: Resource, new: *const rlimit) -> c_int {
    // SAFETY: the program's arguments.
    unsafe { setrlimit(resource, new) }
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn pthread_attr_setstack(
    attributes: *mut pthread_attr_t,
    start: *mut c_void,
    len: size_t,
) -> c_int {
    if let Err(errno) = heap::give_back_for(&pages(start, len), Reason::Stack) {
        return errno;
    }
    type F = unsafe extern "C" fn(*mut pthread_attr_t, *mut c_void, size_t) -> c_int;
    let Some(next) = SETSTACK.found() else { return libc::EINVAL };
    // SAFETY: the C library's function.
    let next = unsafe { mem::transmute::<*mut c_void, F>(next) };
    // SAFETY: the program's arguments.
    unsafe { next(attributes, start, len) }
}

/// A thread is about to get a stack that may have become a block since it was named.
///
/// # Errors
/// `ENOMEM`.
pub(crate) fn lend_stack(attributes: *const pthread_attr_t) -> Result<(), c_int> {
    if attributes.is_null() {
        return Ok(());
    }
    let (mut start, mut len) = (std::ptr::null_mut(), 0);
    // SAFETY: the program's attributes, and places for the answers.
    if unsafe { libc::pthread_attr_getstack(attributes, &raw mut start, &raw mut len) } != 0 {
        return Ok(());
    }
    heap::give_back_for(&pages(start, len), Reason::Stack)
}
