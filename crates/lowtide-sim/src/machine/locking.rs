//! Taking the locks of a machine (`lock.rs`), and handing them over.

use super::ctx::Ctx;
use super::lock::{Contention, PoolLock, RwSemId, SpinLock};
use super::world::World;

impl World {
    /// From now on each miss takes one lock for this time, and none of the kernel's for lists.
    pub fn lock_pool(&mut self, hold_ns: u64) {
        self.pool_lock = Some(PoolLock { lock: SpinLock::default(), hold_ns });
    }

    /// The lock that misses take.
    pub fn lock_of_misses(&self) -> Contention {
        self.pool_lock.as_ref().map_or(self.lruvec_lock.contention, |pool| pool.lock.contention)
    }

    /// Takes the lock of the lruvec for the work of a reclaimer. Returns what that costs; nothing
    /// where the pool's lock stands for it.
    pub(super) fn lock_lruvec(&mut self, now: u64, hold: u64) -> u64 {
        if self.pool_lock.is_some() {
            return 0;
        }
        self.lruvec_lock.take(self.sched.now, now, hold)
    }

    /// Goes through lists under the lock of the lruvec, then judges without it what was isolated.
    /// Returns what both cost; nothing where the pool's lock stands for them.
    pub(super) fn look_at_folios(&mut self, now: u64, hold: u64, judging: u64) -> u64 {
        if self.pool_lock.is_some() { 0 } else { self.lock_lruvec(now, hold) + judging }
    }

    /// Takes the pool's lock for a miss. Returns what that costs.
    pub(super) fn lock_for_miss(&mut self, now: u64) -> u64 {
        let past = self.sched.now;
        self.pool_lock.as_mut().map_or(0, |pool| pool.lock.take(past, now, pool.hold_ns))
    }

    /// Releases a semaphore and hands it to the tasks that may have it next.
    pub fn release(&mut self, id: RwSemId, write: bool) {
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
    pub async fn take(&self, id: RwSemId, write: bool) {
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
