//! Locks with contention that can be measured.
//!
//! A [`SpinLock`] is held for short times that are known when it is taken, so it is a *timeline*: a
//! task that comes while it is held spins (spends CPU time) until it is free. Tasks run ahead of
//! the machine's clock, so one may come to the lock, in virtual time, before another that has been
//! there already; it gets the lock if it can be done before that one. An [`RwSem`] is held across
//! sleeps: a task that cannot have it blocks, in the order of arrival, and a writer that waits
//! keeps later readers out, as the kernel's does.

use super::sched::TaskId;
use std::collections::VecDeque;

/// How often a lock was taken and what waiting for it cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Contention {
    /// Times taken.
    pub acquired: u64,
    /// Times a task had to wait.
    pub contended: u64,
    /// Nanoseconds of waiting, all tasks together.
    pub waited_ns: u64,
    /// Nanoseconds for which a lock that is spun for was held.
    pub held_ns: u64,
}

impl Contention {
    /// The sum with that of another lock.
    #[must_use]
    pub const fn with(&self, other: &Self) -> Self {
        Self {
            acquired: self.acquired + other.acquired,
            contended: self.contended + other.contended,
            waited_ns: self.waited_ns + other.waited_ns,
            held_ns: self.held_ns + other.held_ns,
        }
    }

    /// What was added since an earlier reading.
    #[must_use]
    pub const fn since(&self, before: &Self) -> Self {
        Self {
            acquired: self.acquired - before.acquired,
            contended: self.contended - before.contended,
            waited_ns: self.waited_ns - before.waited_ns,
            held_ns: self.held_ns - before.held_ns,
        }
    }
}

/// A lock that is spun for.
#[derive(Debug, Default)]
pub struct SpinLock {
    /// When it is held, from and until, in order: what is over is forgotten.
    held: VecDeque<(u64, u64)>,
    pub contention: Contention,
}

impl SpinLock {
    /// Takes the lock at `now` for `hold` nanoseconds. Returns the nanoseconds from now until it is
    /// released again: waiting and holding. No task will come before `past`. Cost: O(times that it
    /// is held at from then on), those without a gap counting as one.
    pub fn take(&mut self, past: u64, now: u64, hold: u64) -> u64 {
        while self.held.front().is_some_and(|&(_, until)| until <= past) {
            self.held.pop_front();
        }
        let mut begin = now;
        let mut at = self.held.partition_point(|&(_, until)| until <= now);
        while let Some(&(from, until)) = self.held.get(at)
            && from < begin + hold.max(1)
        {
            begin = until;
            at += 1;
        }
        let wait = begin - now;
        self.contention.acquired += 1;
        self.contention.contended += u64::from(wait > 0);
        self.contention.waited_ns += wait;
        self.contention.held_ns += hold;
        self.hold(at, begin, begin + hold);
        wait + hold
    }

    /// Adds a time that is free to what is held, before number `at`.
    fn hold(&mut self, at: usize, from: u64, until: u64) {
        let joins_next = self.held.get(at).is_some_and(|&(next, _)| next == until);
        match at.checked_sub(1).and_then(|before| self.held.get_mut(before)) {
            Some(before) if before.1 == from => {
                before.1 = until;
                if joins_next {
                    self.held[at - 1].1 = self.held[at].1;
                    self.held.remove(at);
                }
            }
            _ if joins_next => self.held[at].0 = from,
            _ if from < until => self.held.insert(at, (from, until)),
            _ => {}
        }
    }
}

/// One lock for all that a miss has the engine do, as the runtime has it.
#[derive(Debug)]
pub struct PoolLock {
    pub(super) lock: SpinLock,
    /// For how long a miss holds it.
    pub(super) hold_ns: u64,
}

/// The number of a semaphore in the world's table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RwSemId(pub u32);

/// A lock that is slept for: any number of readers, or one writer.
#[derive(Debug, Default)]
pub struct RwSem {
    pub(super) readers: u32,
    pub(super) writer: bool,
    pub(super) waiting: VecDeque<(TaskId, bool)>,
    pub contention: Contention,
}

impl RwSem {
    pub(super) fn may_enter(&self, write: bool) -> bool {
        !self.writer && (!write || self.readers == 0)
    }

    pub(super) fn enter(&mut self, write: bool) {
        self.contention.acquired += 1;
        if write {
            self.writer = true;
        } else {
            self.readers += 1;
        }
    }

    /// Takes the lock if no task has to be waited for.
    pub fn try_take(&mut self, write: bool) -> bool {
        let free = self.waiting.is_empty() && self.may_enter(write);
        if free {
            self.enter(write);
        }
        free
    }
}

impl RwSem {
    /// Whether no task has it.
    pub const fn is_free(&self) -> bool {
        self.readers == 0 && !self.writer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_comes_while_the_lock_is_held_waits() {
        let mut lock = SpinLock::default();
        assert_eq!(
            (lock.take(0, 100, 50), lock.take(0, 120, 50), lock.take(0, 120, 10)),
            (50, 80, 90)
        );
        assert_eq!(lock.take(0, 300, 50), 50, "it has been free since 210");
        let counted = Contention {
            acquired: 4,
            contended: 2,
            waited_ns: 30 + 80,
            held_ns: 50 + 50 + 10 + 50,
        };
        assert_eq!(lock.contention, counted);
    }

    #[test]
    fn a_task_that_is_done_before_the_next_does_not_wait_for_it() {
        let mut lock = SpinLock::default();
        assert_eq!(lock.take(0, 1000, 50), 50);
        assert_eq!(
            (lock.take(0, 100, 900), lock.take(0, 100, 10)),
            (900, 960),
            "no gap before 1050"
        );
        assert_eq!(lock.take(0, 50, 50), 50, "just before all of them");
        assert_eq!(lock.held.len(), 1, "without a gap they are one");
        assert_eq!(lock.take(1060, 1060, 5), 5);
        assert_eq!(lock.held, [(1060, 1065)], "what is over is forgotten");
    }

    #[test]
    fn holds_of_no_length_change_nothing() {
        let mut lock = SpinLock::default();
        assert_eq!((lock.take(0, 10, 0), lock.take(0, 5, 10), lock.take(0, 6, 0)), (0, 10, 9));
        assert_eq!(lock.held, [(5, 15)]);
    }
}
