//! The end of a process whose first thread has ended before the others.
//!
//! The C library ends a process with status 0 when its last thread ends, and counts ours among
//! them. So does the kernel. A program whose `main` ends with `pthread_exit` would live forever.
//! Therefore the keeper looks whether the first thread has ended and all others are ours; no
//! process ends before its first thread, so almost always this is one look at one thread.
//!
//! | how the first thread ended | what ends the process |
//! |---|---|
//! | `pthread_exit`, `thrd_exit`, `pthread_cancel` | `exit(0)`, as in the C library's last thread |
//! | the bare system call | `_exit(0)`: the kernel takes the status of the last thread |
//!
//! `exit` runs the program's handlers and writes its streams out, so it must be called in a thread
//! that has the program's descriptors. When all threads of the program have ended, only a thread
//! that was there before has them: it is started ([`prepare`]) when the first thread is about to
//! end. It is not one of ours for the wrappers, because what it runs is the program's.
//!
//! Until then signals are the program's threads' as usual.
//!
//! # Safety
//!
//! The functions have the contracts of those whose names they have. They leave by unwinding
//! (`C-unwind`), through frames that have nothing to drop.

#![allow(unsafe_code)]

use crate::lock;
use crate::own;
use crate::real::before;
use crate::real_threads as real;
use crate::state::{self, State};
use crate::tasks::Tasks;
use libc::{c_int, c_void, pthread_t};
use lowtide_sys::threads;
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::pread;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// How often the keeper looks whether the first thread has ended.
const SELDOM: Duration = Duration::from_secs(1);
/// The same, when it is known to end.
const OFTEN: Duration = Duration::from_millis(10);

/// What is known of it. All zeroes is: nothing.
#[derive(Debug)]
pub(crate) struct Last {
    /// The first thread was about to end.
    first_ends: AtomicU32,
    /// There is a thread that waits to call `exit`.
    watched: AtomicU32,
    /// It is to do that.
    is_over: AtomicU32,
}

fn is_first() -> bool {
    own::number().cast_unsigned() == std::process::id()
}

/// The first thread is about to end, in the thread that makes it so.
fn ends() {
    if let Some((state, _)) = state::get() {
        state.last.first_ends.store(1, Ordering::Release);
        prepare(state);
        state.line.ring();
    }
}

/// Starts the thread that calls `exit`, if it will be needed. Called by a thread of the program.
pub(crate) fn prepare(state: &'static State) {
    let last = &state.last;
    if last.first_ends.load(Ordering::Acquire) == 0
        || !state.line.is_kept()
        || last.watched.swap(1, Ordering::AcqRel) != 0
    {
        return;
    }
    let run = move || {
        let number = own::number();
        state.threads.add(number);
        while state.last.is_over.load(Ordering::Acquire) == 0 {
            lock::sleep(&state.last.is_over, 0, None);
        }
        // SAFETY: what the C library does in the last thread of a process.
        unsafe { libc::exit(0) };
    };
    if threads::spawn("lowtide-last", run).is_err() {
        last.watched.store(0, Ordering::Release);
    }
}

before! {
    "C-unwind" fn pthread_exit(value: *mut c_void) -> !, if is_first() { ends() };
    "C-unwind" fn thrd_exit(value: c_int) -> !, if is_first() { ends() };
    "C-unwind" fn pthread_cancel(thread: pthread_t) -> c_int,
        if state::get().is_some_and(|(state, _)| state.is_first_thread(thread)) { ends() };
}

/// The keeper's look at the threads of the process.
pub(crate) struct Look {
    /// `/proc/self/task`, and the `stat` of the first thread, which says whether it has ended. Both
    /// are opened at the beginning: the program may change its root, and limit its descriptors.
    tasks: Option<(Tasks, OwnedFd)>,
}

impl Look {
    pub(crate) fn new() -> Self {
        let with_first = |tasks: Tasks| {
            let (path, flags) = (format!("{}/stat", std::process::id()), OFlags::RDONLY);
            let first = openat(&tasks, path, flags | OFlags::CLOEXEC, Mode::empty()).ok()?;
            Some((tasks, first))
        };
        Self { tasks: Tasks::open().and_then(with_first) }
    }

    /// How long until the next look.
    pub(crate) fn pause(state: &State) -> Duration {
        if state.last.first_ends.load(Ordering::Acquire) == 0 { SELDOM } else { OFTEN }
    }

    /// Ends the process, if all that is left of it are our threads.
    pub(crate) fn look(&self, state: &State) {
        let Some((tasks, first)) = &self.tasks else { return };
        if !first_has_ended(first) || Self::has_others(tasks, state) {
            return;
        }
        if state.last.watched.load(Ordering::Acquire) == 0 {
            // SAFETY: no thread of the program is there, so there is nothing else to end.
            unsafe { libc::_exit(0) };
        }
        state.last.is_over.store(1, Ordering::Release);
        lock::wake(&state.last.is_over);
    }

    /// Whether there is a thread of the program beside the first.
    fn has_others(tasks: &Tasks, state: &State) -> bool {
        let is_other = |number: i32| {
            let is_first = number.cast_unsigned() == std::process::id();
            let is_ours = is_first || state.threads.has(number) || is_io_worker(tasks, number);
            (!is_ours).then_some(())
        };
        tasks.find(is_other) != Ok(None)
    }
}

/// Whether a thread is a worker of io_uring, which is a thread of neither.
fn is_io_worker(tasks: &Tasks, number: i32) -> bool {
    let mut text = [0; 256];
    let stat = openat(tasks, format!("{number}/stat"), OFlags::CLOEXEC, Mode::empty());
    let len = stat.and_then(|stat| pread(stat, &mut text, 0)).unwrap_or(0);
    threads::is_io_worker(&text[..len])
}

/// Whether the first thread, whose `stat` this is, has ended.
fn first_has_ended(stat: &OwnedFd) -> bool {
    let mut text = [0; 256];
    pread(stat, &mut text, 0).is_ok_and(|len| threads::has_ended(&text[..len]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_thread_has_not_ended_while_it_lives() {
        let look = Look::new();
        let (_, first) = look.tasks.as_ref().expect("the threads");
        assert!((0..2).all(|_| !first_has_ended(first)), "this process lives");
    }
}
