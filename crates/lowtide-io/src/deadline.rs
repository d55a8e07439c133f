//! The moment at which an operation gives up.
//!
//! A caller gives the time to wait as a [`Duration`], and may give [`Duration::MAX`], which means
//! forever. No clock can name a moment that far away, so a deadline is a moment or *never*, and
//! all waiting code uses the deadline instead of adding to [`Instant::now`].

use std::sync::PoisonError;
use std::sync::{Condvar, MutexGuard};
use std::time::{Duration, Instant};

/// A moment, or never.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// The moment `time` from now; never, if the clock cannot count that far.
    pub fn after(time: Duration) -> Self {
        Self(Instant::now().checked_add(time))
    }

    /// The same, later by `time`.
    pub fn later(self, time: Duration) -> Self {
        Self(self.0.and_then(|at| at.checked_add(time)))
    }

    /// Whether the moment has come.
    #[must_use]
    pub fn has_passed(self) -> bool {
        self.0.is_some_and(|at| at <= Instant::now())
    }

    /// Waits for a notification, until the deadline at the longest. Returns the lock, and false if
    /// the deadline has passed.
    pub fn wait<'a, T>(self, on: &Condvar, guard: MutexGuard<'a, T>) -> (MutexGuard<'a, T>, bool) {
        let Some(at) = self.0 else {
            return (on.wait(guard).unwrap_or_else(PoisonError::into_inner), true);
        };
        let left = at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return (guard, false);
        }
        let (guard, _) = on.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner);
        (guard, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn a_deadline_beyond_the_clock_never_passes() {
        for time in [Duration::MAX, Duration::from_secs(u64::MAX)] {
            let deadline = Deadline::after(time);
            assert!(!deadline.has_passed() && !deadline.later(Duration::from_secs(1)).has_passed());
        }
        assert!(!Deadline::after(Duration::from_secs(1 << 40)).later(Duration::MAX).has_passed());
    }

    #[test]
    fn a_deadline_that_has_passed_is_not_waited_for() {
        let (lock, wakeup) = (Mutex::new(()), Condvar::new());
        let deadline = Deadline::after(Duration::ZERO);
        assert!(deadline.has_passed());
        let (_guard, in_time) = deadline.wait(&wakeup, lock.lock().unwrap());
        assert!(!in_time);
    }
}
