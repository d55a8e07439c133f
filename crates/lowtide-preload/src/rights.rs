//! What a program with one thread changes of that thread, and means all of itself.
//!
//! Capabilities, their securebits, filters of system calls and Landlock's rules belong to a thread.
//! A program with one thread gives its rights up by one call, and with lowtide's threads beside it
//! would have given up only a part: they have the same memory. The C library changes users in all
//! threads, and ends the process (`SIGABRT`) where one of them answers otherwise than the others,
//! as those do whose `PR_SET_KEEPCAPS` was not set. And a process with threads, or that shares its
//! root with one, cannot go into other namespaces.
//!
//! So *before* such a call of a program with one thread, lowtide's threads end. The mappings are
//! the kernel's from then on, without a budget, and the summary says so. What the program becomes
//! by `execve(2)`, and its children, begin again, with the rights that they have.
//!
//! A program with several threads has chosen one of them: nothing is done then.
//!
//! # Safety
//!
//! Each function has the contract of the function whose name it has. `prctl` has five arguments;
//! those that the caller has not passed have any value, as in the C library.

#![allow(unsafe_code)]

use crate::interpose::Errno;
use crate::judge::Reason;
use crate::line::Question;
use crate::own;
use crate::real::before_next;
use crate::state;
use crate::tasks::Tasks;
use libc::{c_int, c_long, c_void};
use std::thread;
use std::time::Duration;

/// How often it is looked whether our threads have ended, a millisecond apart.
const LOOKS: u32 = 5000;

/// Whether a request of `prctl(2)` is about rights of the calling thread.
const fn is_of_rights(option: c_int) -> bool {
    matches!(
        option,
        libc::PR_SET_KEEPCAPS
            | libc::PR_SET_SECUREBITS
            | libc::PR_CAPBSET_DROP
            | libc::PR_CAP_AMBIENT
            | libc::PR_SET_SECCOMP
    )
}

/// Whether `unshare(2)` refuses these flags to a process with threads.
const fn needs_one_thread(flags: c_int) -> bool {
    flags & (libc::CLONE_NEWUSER | libc::CLONE_VM | libc::CLONE_SIGHAND | libc::CLONE_THREAD) != 0
}

/// Whether a call by its number is one of these. Users are changed in the calling thread alone by
/// a call that is not the C library's.
pub(crate) fn changes(number: c_long, args: &[usize; 6]) -> bool {
    match number {
        libc::SYS_prctl => is_of_rights(args[0] as c_int),
        libc::SYS_unshare => needs_one_thread(args[0] as c_int),
        libc::SYS_capset
        | libc::SYS_setns
        | libc::SYS_seccomp
        | libc::SYS_landlock_restrict_self
        | libc::SYS_setuid
        | libc::SYS_setgid
        | libc::SYS_setreuid
        | libc::SYS_setregid
        | libc::SYS_setresuid
        | libc::SYS_setresgid
        | libc::SYS_setgroups => true,
        _ => false,
    }
}

/// The calling thread is about to be changed alone: if the program has no other, ours end.
pub(crate) fn before_change() {
    let Some((state, _)) = state::get().filter(|(state, _)| state.line.is_kept()) else { return };
    let _errno = Errno::save();
    if others(|number| !state.threads.has(number)) {
        return;
    }
    state.leave_alone(Reason::Rights);
    state.release_for(&(0..usize::MAX), Reason::Rights);
    state.line.ask(Question::End);
    // The kernel counts a thread until it is gone.
    for _ in 0..LOOKS {
        if !others(|_| true) {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Whether the process has such a thread beside the calling one.
fn others(such: impl Fn(i32) -> bool) -> bool {
    let own = own::number();
    let is_other = |number| (number != own && such(number)).then_some(());
    Tasks::open().is_none_or(|tasks| tasks.find(is_other) != Ok(None))
}

before_next! {
    prctl, PRCTL, (option: c_int, a: usize, b: usize, c: usize, d: usize),
        if is_of_rights(option) { before_change() };
    capset, CAPSET, (header: *mut c_void, data: *const c_void), before_change();
    unshare, UNSHARE, (flags: c_int), if needs_one_thread(flags) { before_change() };
    setns, SETNS, (descriptor: c_int, kind: c_int), before_change();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_change_one_thread_are_known_by_their_numbers() {
        let call = |number, first: c_int| changes(number, &[first as usize, 0, 0, 0, 0, 0]);
        assert!(call(libc::SYS_prctl, libc::PR_SET_KEEPCAPS));
        assert!(!call(libc::SYS_prctl, libc::PR_SET_NAME));
        assert!(call(libc::SYS_unshare, libc::CLONE_NEWUSER | libc::CLONE_NEWNS));
        assert!(!call(libc::SYS_unshare, libc::CLONE_FILES | libc::CLONE_NEWNS));
        assert!(call(libc::SYS_setresuid, 0) && !call(libc::SYS_getpid, 0));
    }
}
