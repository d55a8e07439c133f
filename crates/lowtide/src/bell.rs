//! A condition of the pool's lock that costs nothing while nobody waits for it.
//!
//! The standard condition variable makes a system call for each notification, waiters or not. Some of ours are notified for every miss
//! or every batch of victims, and almost always nobody waits. So a waiter leaves a note, under the lock, before it waits; the one who notifies looks
//! at the note first, and takes it. Threads that wait again after a time-out leave a new one; a note of a thread that is gone costs one
//! vain call.

use crate::sync::{Condvar, MutexGuard};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    heard: Condvar,
    awaited: AtomicBool,
}

impl Bell {
    /// Waits until the bell is rung, or so long. `guard` is of the lock under which the bell is rung, or after the release of which.
    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>, time: Duration) -> MutexGuard<'a, T> {
        self.awaited.store(true, Relaxed);
        let (guard, _) = self.heard.wait_timeout(guard, time).unwrap_or_else(PoisonError::into_inner);
        guard
    }

    /// Wakes all who wait. To be called after a change under the lock; the lock need not be held any more. Cost: a load, if nobody waits.
    pub(crate) fn ring(&self) {
        if self.awaited.load(Relaxed) && self.awaited.swap(false, Relaxed) {
            self.heard.notify_all();
        }
    }

    /// Whether a thread waits, or waited and nobody rang since.
    #[cfg(test)]
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn a_thread_that_waits_is_woken_and_no_bell_is_rung_in_vain() {
        let (lock, bell) = (Mutex::new(false), Bell::default());
        bell.ring();
        assert!(!bell.is_awaited());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut done = lock.lock().unwrap();
                while !*done {
                    done = bell.wait(done, Duration::from_secs(3600));
                }
            });
            while !bell.is_awaited() {
                std::thread::yield_now();
            }
            *lock.lock().unwrap() = true;
            bell.ring();
        });
        assert!(!bell.is_awaited(), "the next one costs a load");
    }
}
