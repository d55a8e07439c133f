//! Locks with contention that can be measured.
//!
//! A [`SpinLock`] is held for short times that are known when it is taken, so it is a *timeline*: whoever comes while it is held spins
//! (spends CPU time) until it is free. A task's own time may be ahead of the machine's, by a whole batch of reclaim, so a lock may have been taken in
//! what is the future to others; they have it before that, if they are done by then. An [`RwSem`] is held across sleeps: who cannot have it blocks, in the order of arrival, and
//! a writer that waits keeps later readers out, as the kernel's does.

use super::ctx::Ctx;
use super::sched::TaskId;
use super::world::World;
use std::collections::VecDeque;

/// How often a lock was taken and what waiting for it cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Contention {
    /// Times taken.
    pub acquired: u64,
    /// Times somebody had to wait.
    pub contended: u64,
    /// Nanoseconds of waiting, all tasks together.
    pub waited_ns: u64,
}

/// A lock that is spun for.
#[derive(Debug, Default)]
pub(crate) struct SpinLock {
    /// When it is held, from and to, in the order of time; what is over is forgotten.
    holds: VecDeque<(u64, u64)>,
    pub(crate) contention: Contention,
}

impl SpinLock {
    /// Takes the lock at `now` for `hold` nanoseconds, or as soon afterwards as it is free for so long. Returns the nanoseconds from now until it is released again:
    /// waiting and holding. `clock` is the machine's time, before which nobody will come any more.
    pub(crate) fn take(&mut self, clock: u64, now: u64, hold: u64) -> u64 {
        while self.holds.front().is_some_and(|&(_, to)| to <= clock) {
            self.holds.pop_front();
        }
        let (mut from, mut at) = (now, 0_usize);
        for &(begins, ends) in &self.holds {
            if from + hold <= begins {
                break;
            }
            from = from.max(ends);
            at += 1;
        }
        match at.checked_sub(1).map(|before| &mut self.holds[before]) {
            Some((_, to)) if *to == from => *to += hold,
            _ => self.holds.insert(at, (from, from + hold)),
        }
        let wait = from - now;
        self.contention.acquired += 1;
        self.contention.contended += u64::from(wait > 0);
        self.contention.waited_ns += wait;
        wait + hold
    }
}

/// The number of a semaphore in the world's table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RwSemId(pub(crate) u32);

/// A lock that is slept for: any number of readers, or one writer.
#[derive(Debug, Default)]
pub(crate) struct RwSem {
    readers: u32,
    writer: bool,
    waiting: VecDeque<(TaskId, bool)>,
    pub(crate) contention: Contention,
}

impl RwSem {
    fn may_enter(&self, write: bool) -> bool {
        !self.writer && (!write || self.readers == 0)
    }

    fn enter(&mut self, write: bool) {
        self.contention.acquired += 1;
        if write {
            self.writer = true;
        } else {
            self.readers += 1;
        }
    }

    /// Takes the lock if nobody has to be waited for.
    pub(crate) fn try_take(&mut self, write: bool) -> bool {
        let free = self.waiting.is_empty() && self.may_enter(write);
        if free {
            self.enter(write);
        }
        free
    }
}

impl World {
    /// Releases a semaphore and hands it to those who may have it next.
    pub(crate) fn release(&mut self, id: RwSemId, write: bool) {
        let sem = &mut self.rwsems[id.0 as usize];
        if write {
            sem.writer = false;
        } else {
            sem.readers -= 1;
        }
        while let Some(&(task, write)) = sem.waiting.front() {
            if !sem.may_enter(write) {
                break;
            }
            // Handed over: the lock is the task's from now on, although it still has to get a CPU.
            sem.enter(write);
            sem.waiting.pop_front();
            self.sched.wake(task);
        }
    }
}

impl Ctx {
    /// Takes a semaphore, blocking as long as it takes.
    pub(crate) async fn take(&self, id: RwSemId, write: bool) {
        if self.w().rwsems[id.0 as usize].try_take(write) {
            return;
        }
        self.settle().await;
        let since = {
            let mut world = self.w();
            let now = world.sched.now;
            let sem = &mut world.rwsems[id.0 as usize];
            if sem.try_take(write) {
                return;
            }
            sem.waiting.push_back((self.id, write));
            now
        };
        self.block(None).await;
        let mut world = self.w();
        let waited = world.sched.now - since;
        let contention = &mut world.rwsems[id.0 as usize].contention;
        contention.contended += 1;
        contention.waited_ns += waited;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_comes_while_a_lock_is_held_waits_until_it_is_free() {
        let mut lock = SpinLock::default();
        assert_eq!(lock.take(0, 100, 10), 10);
        assert_eq!(lock.take(0, 105, 10), 5 + 10);
        assert_eq!(lock.take(0, 105, 10), 15 + 10, "one after the other");
        assert_eq!(lock.take(0, 130, 10), 10, "free again");
        assert_eq!(lock.contention, Contention { acquired: 4, contended: 2, waited_ns: 20 });
    }

    #[test]
    fn a_lock_that_is_held_in_the_future_is_free_until_then() {
        let mut lock = SpinLock::default();
        assert_eq!(lock.take(0, 1000, 100), 100);
        assert_eq!(lock.take(0, 500, 100), 100, "done before the other begins");
        assert_eq!(lock.take(0, 950, 50), 50, "just");
        assert_eq!(lock.take(0, 950, 51), 150 + 51, "not in time");
        assert_eq!(lock.take(0, 550, 10), 50 + 10, "the earlier one is still there");
        assert_eq!(lock.take(2000, 2000, 1), 1);
        assert_eq!(lock.holds.len(), 1, "what is over is forgotten");
    }
}
