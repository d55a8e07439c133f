//! Times at which no handler of the program runs in a thread.
//!
//! A handler may do anything: call `exit`, wait for other threads while a collector has stopped
//! the world, or leave by `siglongjmp`. System calls have no locks, so none of this does harm to a
//! program that maps and unmaps. Therefore a thread that has a lock of ours has signals blocked
//! (`lock.rs`), and what arrives meanwhile is handled when the lock is free again, as after a
//! system call that cannot be interrupted.
//!
//! Two signals are not blocked:
//!
//! * The C library's own for `setuid(2)` and its kin (`c_library.rs`): the thread that changes the
//!   rights of all threads waits until each has handled it, with the lock that `pthread_create`
//!   needs. The keeper may start a thread before it answers the one that waits here. Its handler
//!   makes one system call. (That of `pthread_cancel` is blocked: it may end the thread where it
//!   is.)
//! * `SIGSYS`, which a sandbox raises for a system call that it makes itself. Were it blocked, the
//!   kernel would end the program. It comes from what this thread calls, never from elsewhere.
//!
//! In our own threads all are blocked for good.
//!
//! # Safety
//!
//! Masks are numbers of the kernel's size, of the calling thread.

#![allow(unsafe_code)]

use crate::c_library::RIGHTS_SIGNAL;
use crate::own;
use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// The kernel's set, a bit for each signal from 1 on.
const BLOCKED: u64 = !(1 << (RIGHTS_SIGNAL - 1) | 1 << (libc::SIGSYS - 1));

/// How often a thread became quiet, which thread that is, and what it blocked before.
#[derive(Clone, Copy)]
struct Nested {
    depth: u32,
    thread: i32,
    before: u64,
}

thread_local! {
    static NESTED: Cell<Nested> = const { Cell::new(Nested { depth: 0, thread: 0, before: 0 }) };
}

/// No handler of the program runs in this thread while any of these lives.
#[derive(Debug)]
pub(crate) struct Quiet {
    /// The thread.
    number: i32,
    is_counted: bool,
    /// A mask belongs to a thread.
    thread: PhantomData<*const ()>,
}

impl Quiet {
    /// Begins. Costs two system calls, and one for each within another.
    pub(crate) fn begin() -> Self {
        let number = own::number();
        let is_counted = !own::is_ours();
        if is_counted {
            let mut now = NESTED.get();
            // A child of `vfork` has this thread's memory. One that was killed here left its mark.
            if now.depth == 0 || now.thread != number {
                now = Nested { depth: 0, thread: number, before: set_mask(BLOCKED) };
            }
            NESTED.set(Nested { depth: now.depth + 1, ..now });
        }
        Self { number, is_counted, thread: PhantomData }
    }

    /// The thread's number.
    pub(crate) fn thread(&self) -> i32 {
        self.number
    }

    /// The thread that forks is the child's only one, and has another number.
    pub(crate) fn in_child(&mut self) {
        self.number = own::number();
        NESTED.set(Nested { thread: self.number, ..NESTED.get() });
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if self.is_counted {
            let now = NESTED.get();
            // Before a handler may run.
            NESTED.set(Nested { depth: now.depth - 1, ..now });
            if now.depth == 1 {
                set_mask(now.before);
            }
        }
    }
}

/// Sets the thread's mask; that before. By a system call: the C library's function leaves out the
/// signals that it needs itself.
fn set_mask(mask: u64) -> u64 {
    let mut before = MaybeUninit::<u64>::zeroed();
    let (mask, size) = (&raw const mask, size_of::<u64>());
    // SAFETY: one set is read and one is written, both of the kernel's size.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, mask, before.as_mut_ptr(), size)
    };
    // SAFETY: zeroes, or written.
    unsafe { before.assume_init() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask() -> u64 {
        let now = set_mask(0);
        set_mask(now);
        now
    }

    #[test]
    fn signals_are_blocked_until_the_last_of_several_ends_in_any_order() {
        let before = mask();
        let first = Quiet::begin();
        let second = Quiet::begin();
        assert_eq!(first.thread(), second.thread());
        drop(first);
        assert_eq!(mask() & 1 << (libc::SIGTERM - 1), 1 << (libc::SIGTERM - 1));
        assert_eq!(mask() & 1 << (RIGHTS_SIGNAL - 1), 0);
        drop(second);
        assert_eq!(mask(), before);
    }

    #[test]
    fn what_a_killed_child_of_vfork_left_is_not_believed() {
        let before = mask();
        NESTED.set(Nested { depth: 3, thread: own::number() + 1, before: u64::MAX });
        let quiet = Quiet::begin();
        assert_ne!(mask(), before);
        drop(quiet);
        assert_eq!(mask(), before);
    }
}
