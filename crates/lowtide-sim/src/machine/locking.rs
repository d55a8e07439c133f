//! Taking the locks of a machine (`lock.rs`), and handing them over.

use super::ctx::Ctx;
use super::lock::{Contention, PoolLock, RwSemId, SpinLock};
use super::world::World;
use lowtide_core::MemcgId;

impl World {
    /// From now on each miss takes one lock for this time, and none of the kernel's for lists.
    pub fn lock_pool(&mut self, hold_ns: u64) {
        self.pool_lock = Some(PoolLock { lock: SpinLock::default(), hold_ns });
    }

    /// The lock that misses take.
    pub fn lock_of_misses(&self) -> Contention {
        match &self.pool_lock {
            Some(pool) => pool.lock.contention,
            None => self.lruvec_contention(),
        }
    }

    /// That of the locks of all groups' lists.
    pub fn lruvec_contention(&self) -> Contention {
        let all = self.lruvec_locks.values();
        all.fold(Contention::default(), |sum, lock| sum.with(&lock.contention))
    }

    /// Takes the lock of a group's lists for the work of a reclaimer. Returns what that costs;
    /// nothing where the pool's lock stands for it.
    pub(super) fn lock_lruvec(&mut self, group: MemcgId, now: u64, hold: u64) -> u64 {
        if self.pool_lock.is_some() {
            return 0;
        }
        self.lruvec_locks.entry(group).or_default().take(self.sched.now, now, hold)
    }

    /// Goes through a group's lists and judges what it finds, in `batches` of folios: `scanned` of
    /// them are candidates for eviction, `sorted` are moved from list to list. Returns what that
    /// costs; nothing where the pool's lock stands for it.
    ///
    /// The lock of the lruvec is held while a batch is taken off its list, and not while its folios
    /// are judged, which takes a look at each of their translations. What the classical lists
    /// deactivate is judged too. Folios that the multi-gen LRU sorts stay under the lock, and their
    /// translations are not looked for.
    pub(super) fn look_at_folios(
        &mut self,
        group: MemcgId,
        now: u64,
        batches: u64,
        scanned: u64,
        sorted: u64,
    ) -> u64 {
        let looked = self.pool.memory.take_looked();
        if self.pool_lock.is_some() {
            return 0;
        }
        let judged = if self.pool.classical() { scanned + sorted } else { scanned };
        let moving = (scanned + sorted) * self.costs.scan_folio_ns;
        let judging = judged * self.costs.judge_ns + looked * self.costs.look_ns;
        let (hold, judging) = (self.costs.batch_lock_ns + moving / batches, judging / batches);
        (0..batches).fold(0, |cost, _| cost + self.lock_lruvec(group, now + cost, hold) + judging)
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

#[cfg(test)]
mod tests {
    use super::super::{Machine, MachineConfig};
    use crate::Costs;
    use crate::spec::MachineSpec;
    use lowtide_core::MemcgId;
    use std::sync::atomic::AtomicBool;

    fn machine(policy: &str, costs: Costs) -> Machine {
        let laptop = MachineSpec::load("laptop").expect("a preset");
        let spec = MachineSpec { cpus: 1, memory: 8 << 20, kernel: 0, swap: None, costs, ..laptop };
        let policy = policy.parse().expect("a policy");
        Machine::new(&MachineConfig { spec, policy, max: Some(2 << 20), seed: 1 }).expect("valid")
    }

    /// Four batches of 32, a quarter of them candidates. A kernel has the lock for one batch at a
    /// time, so another task waits for the rest of one, not of all four.
    #[test]
    fn the_lock_is_held_for_a_batch_and_not_while_it_is_judged() {
        let costs = Costs::default();
        let moving = 4 * costs.batch_lock_ns + 128 * costs.scan_folio_ns;
        for (policy, judged) in [("lru", 128), ("mglru", 32)] {
            let machine = machine(policy, costs.clone());
            let mut world = machine.world();
            let cost = world.look_at_folios(MemcgId::ROOT, 0, 4, 32, 96);
            assert_eq!(cost, moving + judged * costs.judge_ns, "{policy}");
            let other = world.look_at_folios(MemcgId::ROOT, 10, 1, 0, 0);
            assert_eq!(other, moving / 4 - 10 + costs.batch_lock_ns, "{policy}");
            let group = world.pool.engine.create_group(MemcgId::ROOT).expect("there is room");
            let other = world.look_at_folios(group, 10, 1, 0, 0);
            assert_eq!(other, costs.batch_lock_ns, "{policy}: lists of another group");
        }
    }

    /// Looks that reclaim takes at the translations of a file of 300 pages that `mappers` processes
    /// have mapped and used, while another file is read through all of memory.
    fn looks(mappers: u32) -> u64 {
        let run = |look_ns| {
            let mut m = machine("lru", Costs { look_ns, ..Costs::default() });
            let (mappings, other) = {
                let mut world = m.world();
                let (text, other) = (world.add_file(300), world.add_file(4_000));
                let map = |_| {
                    let space = world.add_address_space(MemcgId::ROOT);
                    let open = world.open(text);
                    world.map_file(space, open)
                };
                let mappings: Vec<_> = (0..mappers).map(map).collect();
                (mappings, world.open(other))
            };
            m.client(async move |ctx| {
                for mapping in mappings {
                    ctx.access(mapping, 0, 300, false).await?;
                }
                ctx.read(other, 0, 4_000).await
            });
            m.run(&AtomicBool::new(false), &mut || {}).expect("files can always go");
            m.stat().busy_ns
        };
        (run(1_000) - run(0)) / 1_000
    }

    #[test]
    fn a_page_that_many_processes_map_takes_a_look_at_each_of_them() {
        let (one, eight) = (looks(1), looks(8));
        // One young translation spares a page once, and the second look finds none.
        assert!(one.abs_diff(2 * 300) <= 6, "{one}");
        // Several make it active at the first look, at eight translations.
        assert!(eight.abs_diff(8 * 300) <= 24, "{eight}");
    }
}
