//! A condition of the pool's lock that costs nothing while no thread waits for it.
//!
//! The standard condition variable makes a system call for each notification, waiters or not. Some
//! of ours are notified for every miss or every batch of victims, and almost always no thread
//! waits. So waiters are counted: a thread counts itself under the lock before it waits, and takes
//! itself off the count when it has the lock again. A wake-up while the count is zero costs a load.
//!
//! *No wake-up is lost.* A wake-up follows a change that was made under the lock. A thread that
//! took the lock after that change has seen it; one that took the lock before has counted itself
//! before the change could be made. A flag that the first wake-up clears would not do: a wake-up
//! for an earlier change could clear it between a thread's look and its sleep, and the next wake-up
//! would find none.

use std::sync::PoisonError;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Condvar, MutexGuard};
use std::time::Duration;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Wakeup {
    woken: Condvar,
    /// Threads that wait, and that no [`wake_all_once`](Self::wake_all_once) has woken. Changes
    /// under the lock.
    waiting: AtomicU32,
    /// Calls of `wake_all_once` that took threads off the count. Changes under the lock.
    rounds: AtomicU32,
}

impl Wakeup {
    /// Waits until it is woken, or until the timeout. `guard` is of the lock under which threads
    /// are woken, or after the release of which.
    pub(crate) fn wait<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        time: Duration,
    ) -> MutexGuard<'a, T> {
        self.waiting.fetch_add(1, Relaxed);
        let round = self.rounds.load(Relaxed);
        let (guard, _) =
            self.woken.wait_timeout(guard, time).unwrap_or_else(PoisonError::into_inner);
        if self.rounds.load(Relaxed) == round {
            let before = self.waiting.fetch_sub(1, Relaxed);
            assert!(before > 0, "a thread that was not counted has waited");
        }
        guard
    }

    /// As [`wake_all`](Self::wake_all), by a caller that has the lock, whose contents `_locked` is.
    /// Waiters are taken off the count, so further calls cost a load until they have had the lock:
    /// the caller may take it many times before that, and would make a system call each time. No
    /// thread is between its count and its sleep meanwhile.
    pub(crate) fn wake_all_once<T>(&self, _locked: &T) {
        if self.is_awaited() {
            self.waiting.store(0, Relaxed);
            self.rounds.fetch_add(1, Relaxed);
            self.woken.notify_all();
        }
    }

    /// Wakes all waiters. Called after a change under the lock; the lock may have been released.
    /// Cost: a load, if no thread waits.
    pub(crate) fn wake_all(&self) {
        if self.is_awaited() {
            self.woken.notify_all();
        }
    }

    /// Whether a thread waits, or is about to go on.
    fn is_awaited(&self) -> bool {
        self.waiting.load(Relaxed) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn a_thread_that_waits_is_woken_and_no_wake_up_is_in_vain() {
        let (lock, wakeup) = (Mutex::new(false), Wakeup::default());
        wakeup.wake_all();
        assert!(!wakeup.is_awaited());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut done = lock.lock().unwrap();
                while !*done {
                    done = wakeup.wait(done, Duration::from_secs(3600));
                }
            });
            while !wakeup.is_awaited() {
                std::thread::yield_now();
            }
            *lock.lock().unwrap() = true;
            wakeup.wake_all();
        });
        assert!(!wakeup.is_awaited(), "the next one costs a load");
    }

    #[test]
    fn under_the_lock_a_thread_is_woken_once_and_counts_again_when_it_waits_again() {
        let (lock, wakeup) = (Mutex::new(0), Wakeup::default());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut steps = lock.lock().unwrap();
                while *steps < 100 {
                    steps = wakeup.wait(steps, Duration::from_secs(3600));
                }
            });
            for step in 1..=100 {
                while !wakeup.is_awaited() {
                    std::thread::yield_now();
                }
                let mut steps = lock.lock().unwrap();
                *steps = step;
                wakeup.wake_all_once(&*steps);
                assert!(!wakeup.is_awaited(), "it has been woken, and cannot have the lock yet");
                wakeup.wake_all_once(&*steps);
            }
        });
        assert!(!wakeup.is_awaited());
    }
}
