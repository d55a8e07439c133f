//! Charging a page, and the reclaim that this may take, in the charging task's own time.
//!
//! An invocation lets others run only where the engine has no isolated folios: before a walk, in a
//! nap, between batches, at its end. What it cost until then is spent there. Each step that looks
//! at folios takes the lruvec lock for as long as it goes through lists; the folios that it has
//! isolated are judged when it has released the lock. Passes that give up before they look at any
//! do without it. A task that opens a generation at the end of an aging waits for the lock
//! first: meanwhile others find the walk finished and the generation not there
//! (`docs/kernel/reclaim.md` §4.5).

use super::ctx::Ctx;
use super::window::count_unused;
use crate::memory::Walk;
use lowtide_core::{Charge, Next, Reclaim, Step};

/// Entries that an aging walk examines before it lets others run.
const WALK_CHUNK: u64 = 4096;

impl Ctx {
    /// Charges one page. Returns false when that is impossible: in the kernel, the out-of-memory
    /// killer comes.
    pub async fn charge(&self, in_lru_fault: bool) -> bool {
        self.charge_pages(1, in_lru_fault).await
    }

    /// The same for the pages of a folio.
    pub async fn charge_pages(&self, pages: u64, in_lru_fault: bool) -> bool {
        let began = self.now();
        let charged = self.try_charge(Charge::new(self.memcg(), pages), in_lru_fault).await;
        let locked = {
            let mut world = self.w();
            let now = world.sched.local(self.id);
            world.lock_for_miss(now)
        };
        if locked > 0 {
            self.spend(locked).await;
        }
        if !charged {
            let mut world = self.w();
            world.counts.oom += 1;
            world.counts.oom_tried_ns = world.sched.local(self.id) - began;
            world.watched(|watch, world| watch.out_of_memory(world, began));
        }
        charged
    }

    /// Charges a folio's pages that read-ahead would like to have. Returns false if that takes more
    /// than one reclaim.
    pub async fn charge_readahead(&self, pages: u64, in_lru_fault: bool) -> bool {
        self.try_charge(Charge::without_retries(self.memcg(), pages), in_lru_fault).await
    }

    async fn try_charge(&self, mut charge: Charge, in_lru_fault: bool) -> bool {
        let mut reclaimed = None;
        loop {
            let next = {
                let mut world = self.w();
                let task = world.engine_task(self.id, in_lru_fault);
                charge.next(&mut world.pool.engine, task, reclaimed)
            };
            match next {
                Next::Charged { over_high } => {
                    self.w().wake_kswapd_if_low();
                    self.charged_over(over_high).await;
                    return true;
                }
                Next::Failed { .. } => return false,
                Next::Gone => unreachable!("a group is not removed while its tasks run"),
                Next::Reclaim(reclaim) => {
                    self.w().counts.direct_reclaims += 1;
                    self.reclaim_stall(true);
                    reclaimed = Some(self.reclaim(*reclaim).await);
                    self.reclaim_stall(false);
                }
            }
        }
    }

    /// Runs an invocation of reclaim to its end. Returns the pages reclaimed.
    pub async fn reclaim(&self, mut reclaim: Reclaim) -> u64 {
        let mut cost = 0;
        // The next step opens the generation of an aging.
        let mut opening = false;
        loop {
            let step = {
                let world = &mut *self.w();
                let now = world.sched.local(self.id) + cost;
                let scanned = world.pool.engine.pgscan();
                let (passes, isolations, sorted) =
                    (reclaim.passes(), reclaim.isolations(), reclaim.sorted());
                let step = reclaim.step(&mut world.pool.engine, &mut world.pool.memory, now);
                let scanned = world.pool.engine.pgscan() - scanned;
                let sorted = reclaim.sorted() - sorted;
                let gave_up = reclaim.passes() > passes && reclaim.isolations() == isolations;
                if !gave_up {
                    let batches = u64::from(reclaim.isolations() - isolations).max(1);
                    cost += world.look_at_folios(reclaim.group(), now, batches, scanned, sorted);
                }
                cost += u64::from(reclaim.passes() - passes) * world.costs.reclaim_pass_ns;
                match step {
                    Step::Unmap => {
                        world.watched(|watch, world| watch.victims(world, reclaim.victims()));
                        let task = world.engine_task(self.id, false);
                        let work = world.unmap_victims(&mut reclaim, task);
                        cost += world.unmap_cost(work, now);
                    }
                    Step::Freed => {
                        cost += world.pool.take_freed(&reclaim) * world.costs.free_page_ns;
                        count_unused(world, &reclaim);
                        world.retries.evicted(&reclaim, now);
                        world.fit_zram();
                        world.watched(|watch, world| watch.freed(world, reclaim.freed()));
                    }
                    Step::WakeFlushers => world.wake_flusher(),
                    Step::Walk | Step::Throttle(..) | Step::Yield | Step::Done => {}
                }
                step
            };
            opening &= step == Step::Yield;
            match step {
                Step::Unmap | Step::Freed | Step::WakeFlushers => continue,
                _ => self.spend(std::mem::take(&mut cost)).await,
            }
            match step {
                Step::Walk => {
                    self.walk(&mut reclaim).await;
                    opening = reclaim.age_job().finished();
                }
                Step::Throttle(_, nanos) => {
                    {
                        let counts = &mut self.w().counts;
                        counts.throttled += 1;
                        counts.throttled_ns += nanos;
                    }
                    self.sleep(nanos).await;
                }
                Step::Done => return reclaim.reclaimed(),
                _ => {}
            }
            if opening {
                // Generations are opened in the order of time, and not by a task that runs ahead of
                // it.
                self.settle().await;
            }
        }
    }

    /// The aging walk, in chunks.
    async fn walk(&self, reclaim: &mut Reclaim) {
        let began = self.now();
        self.w().counts.walks += 1;
        let mut walk = Walk::default();
        loop {
            let (walked, cost) = {
                let world = &mut *self.w();
                let now = world.sched.local(self.id);
                let pool = &mut world.pool;
                let walked =
                    walk.step(&mut pool.memory, &mut pool.engine, reclaim.age_job(), WALK_CHUNK);
                let mut cost = walked.tables * world.costs.walk_table_ns
                    + walked.entries * world.costs.walk_entry_ns
                    + walked.young * world.costs.walk_young_ns;
                if reclaim.age_job().finished() {
                    // Interrupts are off from here until the generation is open: the task keeps its
                    // CPU.
                    world.sched.renew_slice(self.id);
                    cost +=
                        world.lock_lruvec(reclaim.group(), now + cost, world.costs.batch_lock_ns);
                }
                (walked, cost)
            };
            self.spend(cost).await;
            if walked.done {
                break;
            }
        }
        let ended = self.now();
        let mut world = self.w();
        world.counts.walk_ns += ended - began;
    }
}
