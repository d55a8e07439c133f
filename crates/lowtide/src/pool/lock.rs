//! The pool's lock, and the time for which it is held.
//!
//! Each miss takes this lock, so the time under it says how many misses a second a machine with
//! many processors can have at most (`docs/design/runtime.md`). It is measured on request, with two
//! or three looks at the clock for each acquisition; otherwise that costs a load.
//!
//! What the engine does under the lock is measured, too, and those looks would lengthen the time
//! for which it is held by a fifth. So of half of the acquisitions the whole is timed, and of the
//! other half what is inside; each counts twice.
//!
//! A thread that waits for a condition gives the lock back meanwhile: that is not counted.

use lowtide_pin::sync;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

/// How often the lock that the threads of a pager share was taken, for how long it was held, and
/// for how long threads waited for it. See [`MissTimes`](crate::instruments::MissTimes).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LockTimes {
    /// Times that it was taken.
    pub acquired: u64,
    /// Nanoseconds for which it was held: twice those of the half of its acquisitions that were
    /// timed as a whole.
    pub held_ns: u64,
    /// Nanoseconds for which threads waited for it, all together.
    pub waited_ns: u64,
}

/// What is counted, where it is requested.
#[derive(Debug, Default)]
pub(crate) struct LockClock {
    is_on: AtomicBool,
    /// What is done under the lock is timed, by its holder, which alone changes this.
    inside: AtomicBool,
    acquired: AtomicU64,
    held_ns: AtomicU64,
    waited_ns: AtomicU64,
}

impl LockClock {
    /// From now on it is counted, or not.
    pub(crate) fn set(&self, on: bool) {
        self.is_on.store(on, Relaxed);
        // The last holder may have left it.
        self.inside.store(false, Relaxed);
    }

    /// Whether what the holder does is timed, in place of the time for which it has the lock.
    pub(crate) fn is_inside(&self) -> bool {
        self.inside.load(Relaxed)
    }

    /// The lock was taken. Returns whether the whole time is to be counted.
    fn take(&self) -> bool {
        let number = self.acquired.fetch_add(1, Relaxed);
        // Turns with a period would always find the same kind of work.
        let inside = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 63 == 1;
        self.inside.store(inside, Relaxed);
        !inside
    }

    pub(crate) fn times(&self) -> LockTimes {
        LockTimes {
            acquired: self.acquired.load(Relaxed),
            held_ns: self.held_ns.load(Relaxed),
            waited_ns: self.waited_ns.load(Relaxed),
        }
    }
}

/// Adds the time since it was made, when it is dropped.
struct Holding<'a> {
    clock: &'a LockClock,
    since: Instant,
}

impl<'a> Holding<'a> {
    fn begin(clock: &'a LockClock) -> Self {
        Self { clock, since: Instant::now() }
    }
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        self.clock.held_ns.fetch_add(2 * nanos_since(self.since), Relaxed);
    }
}

/// Nanoseconds since an instant.
pub(crate) fn nanos_since(then: Instant) -> u64 {
    u64::try_from(then.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// A lock that is held.
pub(crate) struct TimedGuard<'a, T> {
    // Dropped before the lock is released.
    holding: Option<Holding<'a>>,
    guard: MutexGuard<'a, T>,
}

impl<'a, T> TimedGuard<'a, T> {
    /// Waits for the lock.
    pub(crate) fn lock(mutex: &'a Mutex<T>, clock: &'a LockClock) -> Self {
        if !clock.is_on.load(Relaxed) {
            return Self { holding: None, guard: sync::lock(mutex) };
        }
        let before = Instant::now();
        let guard = sync::lock(mutex);
        clock.waited_ns.fetch_add(nanos_since(before), Relaxed);
        Self { holding: clock.take().then(|| Holding::begin(clock)), guard }
    }

    /// Gives the lock to a function that waits for a condition, and returns with it.
    pub(crate) fn wait(self, wait: impl FnOnce(MutexGuard<'a, T>) -> MutexGuard<'a, T>) -> Self {
        self.wait_with(|guard| (wait(guard), ())).0
    }

    /// The same, of a function that returns something besides.
    pub(crate) fn wait_with<R>(
        self,
        wait: impl FnOnce(MutexGuard<'a, T>) -> (MutexGuard<'a, T>, R),
    ) -> (Self, R) {
        let clock = self.holding.as_ref().map(|holding| holding.clock);
        drop(self.holding);
        let (guard, result) = wait(self.guard);
        (Self { holding: clock.map(Holding::begin), guard }, result)
    }
}

impl<T> Deref for TimedGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for TimedGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Duration;

    const NAP: Duration = Duration::from_millis(20);

    #[test]
    fn the_time_under_the_lock_is_counted_and_the_time_of_a_wait_is_not() {
        let (mutex, clock) = (Mutex::new(0), LockClock::default());
        *TimedGuard::lock(&mutex, &clock) += 1;
        assert_eq!(clock.times(), LockTimes::default(), "it was not requested");
        clock.set(true);
        let mut whole = 0;
        while whole == 0 {
            let mut guard = TimedGuard::lock(&mutex, &clock);
            *guard += 1;
            whole += u32::from(!clock.is_inside());
            thread::sleep(NAP);
        }
        let held = clock.times();
        assert!(held.held_ns >= 40_000_000, "twice the one that was timed: {held:?}");
        let before = loop {
            let before = clock.times();
            let guard = TimedGuard::lock(&mutex, &clock);
            let (guard, ()) = guard.wait_with(|guard| {
                drop(guard);
                thread::sleep(10 * NAP);
                (mutex.lock().unwrap(), ())
            });
            drop(guard);
            if !clock.is_inside() {
                break before;
            }
        };
        let waited = clock.times();
        assert!(waited.held_ns - before.held_ns < 300_000_000, "{waited:?}");
    }

    #[test]
    fn half_of_the_acquisitions_are_timed_as_a_whole() {
        let (mutex, clock) = (Mutex::new(()), LockClock::default());
        clock.set(true);
        let mut inside = 0;
        for _ in 0..1000 {
            let _guard = TimedGuard::lock(&mutex, &clock);
            inside += u32::from(clock.is_inside());
        }
        assert!((400..600).contains(&inside), "{inside}");
        assert_eq!(clock.times().acquired, 1000);
    }

    #[test]
    fn a_thread_that_comes_while_it_is_held_is_counted_as_waiting() {
        let (mutex, clock) = (Mutex::new(()), LockClock::default());
        clock.set(true);
        let guard = TimedGuard::lock(&mutex, &clock);
        thread::scope(|scope| {
            scope.spawn(|| drop(TimedGuard::lock(&mutex, &clock)));
            thread::sleep(NAP);
            drop(guard);
        });
        assert_eq!(clock.times().acquired, 2);
    }
}
