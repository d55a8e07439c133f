//! Locks with contention that can be measured.
//!
//! A [`SpinLock`] is held for short times that are known when it is taken, so it is a *timeline*: whoever comes while it is held spins
//! (spends CPU time) until it is free. An [`RwSem`] is held across sleeps: who cannot have it blocks, in the order of arrival, and
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
    free_at: u64,
    pub(crate) contention: Contention,
}

impl SpinLock {
    /// Takes the lock at `now` for `hold` nanoseconds. Returns the nanoseconds from now until it is released again: waiting and holding.
    pub(crate) fn take(&mut self, now: u64, hold: u64) -> u64 {
        let wait = self.free_at.saturating_sub(now);
        self.contention.acquired += 1;
        self.contention.contended += u64::from(wait > 0);
        self.contention.waited_ns += wait;
        self.free_at = now + wait + hold;
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
