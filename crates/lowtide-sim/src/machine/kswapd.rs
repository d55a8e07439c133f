//! The background reclaimer, on a machine without a group limit: it keeps some frames free, so that
//! tasks seldom have to reclaim themselves.
//!
//! Three watermarks of free frames: below *low* it is woken, at *high* it rests, below *min* tasks
//! reclaim for themselves. With a group limit below the machine's memory there is always free
//! memory, so it never runs, and all reclaim is by the tasks that charge. Source:
//! `docs/kernel/reclaim.md` §7.3.

use super::ctx::Ctx;
use super::world::World;
use lowtide_core::{MemcgId, Reason, Reclaim};

/// Fruitless runs after which it gives up until another task makes progress.
const HOPELESS: u32 = 16;
/// Nanoseconds it rests when hopeless or out of work, unless woken.
const REST_NS: u64 = 1_000_000_000;

impl World {
    /// Frames that could be charged at once.
    pub fn free_pages(&self) -> u64 {
        let engine = &self.pool.engine;
        (engine.max(MemcgId::ROOT) + self.kswapd.min).saturating_sub(engine.usage(MemcgId::ROOT))
    }

    /// Wakes the background reclaimer when little is free.
    pub fn wake_kswapd_if_low(&mut self) {
        if let Some(task) = self.kswapd.task
            && self.kswapd.asleep
            && self.free_pages() < self.kswapd.low
        {
            self.kswapd.asleep = false;
            self.counts.kswapd_wakes += 1;
            self.sched.wake(task);
        }
    }
}

impl Ctx {
    /// The background reclaimer's life.
    pub async fn kswapd(self) {
        let mut fruitless = 0;
        loop {
            let (free, high) = {
                let world = self.w();
                if world.clients == 0 {
                    return;
                }
                (world.free_pages(), world.kswapd.high)
            };
            if free >= high || fruitless >= HOPELESS {
                self.settle().await;
                self.w().kswapd.asleep = true;
                self.block(Some(REST_NS)).await;
                self.w().kswapd.asleep = false;
                fruitless = 0;
                continue;
            }
            let reclaim = {
                let world = self.w();
                let goal = world.kswapd.high.max(lowtide_core::limits::SWAP_CLUSTER_MAX);
                Reclaim::new(
                    MemcgId::ROOT,
                    goal.min(high - free),
                    Reason::Kswapd,
                    world.engine_task(self.id, false),
                )
            };
            let reclaimed = self.reclaim(reclaim).await;
            fruitless = if reclaimed == 0 { fruitless + 1 } else { 0 };
        }
    }
}
