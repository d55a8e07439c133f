//! A lock and a wait that allocate nothing, and are free in the child of a fork.
//!
//! A wrapper may run while the program's allocator holds its own locks (it unmaps memory), and in a
//! process that was forked while another thread held any lock. So the locks here are words in
//! memory that the kernel wipes at a fork (`wiped.rs`), zero means free, and what they protect
//! never allocates and never calls the program. Or they are in ordinary memory, and the thread
//! that forks has them meanwhile (`forks.rs`).
//!
//! **Signals.** No handler of the program runs in a thread that has a lock (`quiet.rs`), so no
//! thread waits in a handler for what it has itself, or leaves a lock by a jump.
//!
//! **Owners.** The word of a lock is the number of the thread that has it. A child of `vfork` uses
//! its parent's memory, and may be killed while it has a lock. So a thread that has waited for
//! [`LOOK`] looks whether the owner lives, and takes the lock of one that does not. What such a
//! child was about to change may be changed in part: an entry of a table may be missing, which
//! leaves a mapping to the kernel; none refers to what is not there.

use crate::quiet::Quiet;
use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, test_kill_process, waitid};
use rustix::thread::futex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const FREE: u32 = 0;
/// Beside the owner's number: another thread may sleep.
const AWAITED: u32 = 1 << 31;

/// How long a thread waits before it looks whether the one that it waits for lives.
pub(crate) const LOOK: Duration = Duration::from_millis(500);

/// Sleeps until the word is changed and woken, or not `expected`, or the time is over; whether it
/// is.
pub(crate) fn sleep(word: &AtomicU32, expected: u32, at_most: Option<Duration>) -> bool {
    let time = at_most.and_then(|time| time.try_into().ok());
    // Every way to return is followed by another look at the word.
    let slept = futex::wait(word, futex::Flags::PRIVATE, expected, time.as_ref());
    slept == Err(Errno::TIMEDOUT)
}

/// Wakes all threads that sleep on the word.
pub(crate) fn wake(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::PRIVATE, i32::MAX as u32);
}

/// Whether a thread of this process, or a child that has its memory, can still give up what it has.
fn is_alive(number: u32) -> bool {
    let Some(thread) = i32::try_from(number).ok().and_then(Pid::from_raw) else { return false };
    if test_kill_process(thread) == Err(Errno::SRCH) {
        return false;
    }
    // A child that was killed is there until its parent asks for it. It stays so: `NOWAIT`.
    let any_child = WaitIdOptions::from_bits_retain(libc::__WALL as u32);
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT | any_child;
    !matches!(waitid(WaitId::Pid(thread), ended), Ok(Some(_)))
}

/// A lock. All zeroes is a free one.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Lock(AtomicU32);

impl Lock {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// Takes the lock for this thread if it is free; whether it was.
    fn take(&self, quiet: &Quiet) -> bool {
        let me = quiet.thread().cast_unsigned();
        self.0.compare_exchange(FREE, me, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Waits for the lock and takes it. Costs three system calls, in a thread of the program.
    pub(crate) fn lock(&self) -> Locked<'_> {
        let quiet = Quiet::begin();
        if !self.take(&quiet) {
            self.wait(&quiet);
        }
        Locked { lock: self, quiet }
    }

    /// Takes the lock if it is free.
    #[cfg(test)]
    pub(crate) fn try_lock(&self) -> Option<Locked<'_>> {
        let quiet = Quiet::begin();
        // Made only by the owner: what is made here gives the lock back when it goes.
        self.take(&quiet).then_some(quiet).map(|quiet| Locked { lock: self, quiet })
    }

    /// The same, but waits until the deadline at most.
    pub(crate) fn lock_until(&self, deadline: Instant) -> Option<Locked<'_>> {
        let quiet = Quiet::begin();
        let is_taken = self.take(&quiet) || self.wait_until(&quiet, Some(deadline));
        is_taken.then_some(quiet).map(|quiet| Locked { lock: self, quiet })
    }

    #[cold]
    fn wait(&self, quiet: &Quiet) {
        self.wait_until(quiet, None);
    }

    /// Whether the lock was taken before the deadline.
    fn wait_until(&self, quiet: &Quiet, deadline: Option<Instant>) -> bool {
        let me = quiet.thread().cast_unsigned();
        let exchange = |old: u32, new: u32| {
            self.0.compare_exchange(old, new, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        loop {
            let seen = self.0.load(Ordering::Relaxed);
            let awaited = seen | AWAITED;
            if seen == FREE {
                // Others may sleep still.
                if exchange(FREE, me | AWAITED) {
                    return true;
                }
                continue;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return false;
            }
            if (seen == awaited || exchange(seen, awaited))
                && sleep(&self.0, awaited, Some(left.unwrap_or(LOOK).min(LOOK)))
                && !is_alive(seen & !AWAITED)
                && exchange(awaited, me | AWAITED)
            {
                return true;
            }
        }
    }
}

/// The lock is held while this lives.
#[derive(Debug)]
pub(crate) struct Locked<'a> {
    lock: &'a Lock,
    /// Ends after the lock is given back.
    quiet: Quiet,
}

impl Locked<'_> {
    /// This is in a child of `fork` now, whose thread has another number.
    pub(crate) fn in_child(&mut self) {
        self.quiet.in_child();
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let word = &self.lock.0;
        if word.swap(FREE, Ordering::Release) & AWAITED != 0 {
            // It marks the lock again, for the others.
            let _ = futex::wake(word, futex::Flags::PRIVATE, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;
    use std::thread;

    #[test]
    fn a_lock_that_is_tried_in_vain_stays_with_its_owner() {
        let lock = Lock::new();
        let held = lock.try_lock().unwrap();
        let tries = || lock.try_lock().is_some() || lock.0.load(Ordering::Relaxed) == FREE;
        assert!(!thread::scope(|scope| scope.spawn(tries).join().unwrap()));
        drop(held);
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn one_thread_at_a_time_has_the_lock() {
        let (lock, count) = (Lock::new(), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let _held = lock.lock();
                        // A load and a store: two threads at a time would lose some.
                        let value = count.load(Ordering::Relaxed);
                        count.store(std::hint::black_box(value) + 1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(count.into_inner(), 80_000);
    }

    #[test]
    fn the_lock_of_a_thread_that_died_is_taken_and_that_of_a_living_one_is_not() {
        let gone = thread::spawn(crate::own::number).join().expect("a number");
        // A thread that was joined may be a moment from its end.
        while test_kill_process(Pid::from_raw(gone).expect("a number")).is_ok() {
            thread::yield_now();
        }
        let lock = Lock(AtomicU32::new(gone.cast_unsigned()));
        drop(lock.lock());
        thread::scope(|scope| {
            let held = lock.lock();
            let waits = scope.spawn(|| drop(lock.lock()));
            thread::sleep(LOOK * 3);
            assert!(!waits.is_finished(), "the lock of a living thread was taken");
            drop(held);
        });
        assert_eq!(lock.0.into_inner(), FREE);
    }
}
