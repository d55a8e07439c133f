//! A lock and a wait that allocate nothing, and are free in the child of a fork.
//!
//! A wrapper may run while the program's allocator holds its own locks (it unmaps memory), and in a
//! process that was forked while another thread held any lock. So the locks here are words in
//! memory that the kernel wipes at a fork (`wiped.rs`), zero means free, and what they protect
//! never allocates and never calls the program.

use rustix::io::Errno;
use rustix::thread::futex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// Taken, and another thread may sleep.
const AWAITED: u32 = 2;

/// Sleeps until the word is changed and woken, or not `expected`, or the time is over.
pub(crate) fn sleep(word: &AtomicU32, expected: u32, at_most: Option<Duration>) {
    let time = at_most.and_then(|time| time.try_into().ok());
    // Every way to return is followed by another look at the word.
    let _: Result<(), Errno> =
        futex::wait(word, futex::Flags::PRIVATE, expected, time.as_ref()).map(|_| ());
}

/// Wakes all threads that sleep on the word.
pub(crate) fn wake(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::PRIVATE, i32::MAX as u32);
}

/// A lock. All zeroes is a free one.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Lock(AtomicU32);

impl Lock {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// Waits for the lock and takes it.
    pub(crate) fn lock(&self) -> Locked<'_> {
        let taken = self.0.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_err() {
            while self.0.swap(AWAITED, Ordering::Acquire) != FREE {
                sleep(&self.0, AWAITED, None);
            }
        }
        Locked(self)
    }
}

impl Lock {
    /// Gives back what this thread has taken and [forgotten](std::mem::forget).
    pub(crate) fn unlock(&self) {
        drop(Locked(self));
    }
}

/// The lock is held while this lives.
#[derive(Debug)]
pub(crate) struct Locked<'a>(&'a Lock);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        if self.0.0.swap(FREE, Ordering::Release) == AWAITED {
            wake(&self.0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;
    use std::thread;

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
}
