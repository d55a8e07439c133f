//! The lruvec loop of the multi-gen LRU: how much to scan, when to age, when to stop.
//!
//! Before the series the budget was computed again at every slice, and the result could be "aging
//! is needed". Then the caller that aged left the loop, and a caller that found aging in progress
//! got a budget of zero and left with nothing done; sixteen such visits make an out-of-memory kill
//! beside gigabytes of clean pages. Since then the budget is fixed once (size shifted by priority,
//! no lower bound), aging is decided apart from it, and the loop goes on whatever the result of
//! aging. Source: `docs/kernel/reclaim.md` §3.1-3.3, 4.5.

use super::invocation::{At, Reclaim, Step};
use crate::engine::Engine;
use crate::limits::{
    DEF_PRIORITY, MAX_LRU_BATCH, MIN_LRU_BATCH, MIN_NR_GENS, SWAP_CLUSTER_MAX, SWAPPINESS_ANON_ONLY,
};
use crate::lruvec::{AgeJob, Locked};
use crate::policy::Switches;

/// State of one run through the loop.
#[derive(Debug, Default)]
pub(super) struct MglruLoop {
    /// Pages of the budget: those left (S4), or those of this slice (before).
    budget: u64,
    /// Pages scanned in this loop (before S4).
    scanned: u64,
    /// Aging was needed in this loop.
    aged: bool,
    /// This thread has opened a generation: on a whole machine the next group follows.
    pub(super) rotate: bool,
}

/// Whether three generations are few enough for another.
fn due(lru: &Locked<'_>) -> bool {
    if lru.policy.has(Switches::THREE) {
        return true;
    }
    // In 6.12, only if most pages are young, or few old.
    let [old, young] = [lru.evictable_min_seq(), lru.lv.gens.max_seq].map(|seq| lru.pages_of(seq));
    let all = lru.evictable_size();
    2 * young > all || 4 * old < all
}

/// Generations of the oldest type that may be evicted.
fn generations(lru: &Locked<'_>) -> u64 {
    lru.lv.gens.max_seq - lru.evictable_min_seq() + 1
}

impl Reclaim {
    /// Pages that a pass may scan: what is not protected, always shifted, never rounded up, so that
    /// a small group is left alone at high priorities.
    fn scan_budget(&mut self, engine: &mut Engine) -> u64 {
        let lru = engine.locked(self.group);
        if lru.effective_swappiness() == SWAPPINESS_ANON_ONLY && !lru.can_swap() {
            return 0;
        }
        let least = if lru.policy.has(Switches::FLOOR) { SWAP_CLUSTER_MAX } else { 0 };
        let size = lru.evictable_size();
        let scaled = lru.policy.has(Switches::SCALED);
        let size = if scaled { self.unprotected(size) } else { size };
        (size >> self.priority).max(least)
    }

    pub(super) fn begin_mglru(&mut self, engine: &mut Engine) {
        self.mglru = MglruLoop::default();
        self.at = At::Slice;
        if engine.policy.has(Switches::S4) {
            self.mglru.budget = self.scan_budget(engine);
            if self.mglru.budget == 0 {
                self.leave_mglru(engine);
            }
        }
    }

    /// One slice, up to the isolation of a batch. Returns whether an aging walk comes first.
    pub(super) fn mglru_slice(&mut self, engine: &mut Engine) -> bool {
        let lru = engine.locked(self.group);
        let n = generations(&lru);
        let few = n <= MIN_NR_GENS || (n == MIN_NR_GENS + 1 && due(&lru));
        let age = if lru.policy.has(Switches::S4) {
            // With three generations there is something to evict, so the first pass goes without
            // aging.
            n <= MIN_NR_GENS || (few && self.priority < DEF_PRIORITY)
        } else {
            self.mglru.budget = if n <= MIN_NR_GENS { 0 } else { self.scan_budget(engine) };
            few && self.priority < DEF_PRIORITY
        };
        if age {
            self.age(engine)
        } else {
            self.evict_or_leave(engine);
            false
        }
    }

    /// Begins aging. Returns whether there is a walk to make.
    fn age(&mut self, engine: &mut Engine) -> bool {
        let id = engine.memcgs.id(self.group);
        let lru = engine.locked(self.group);
        let seq = lru.lv.gens.max_seq;
        self.job = AgeJob::begin(&lru, id, seq);
        if self.job.is_none() {
            self.aged(engine, false);
        }
        self.job.is_some()
    }

    /// Aging was tried; `opened`: this thread opened the new generation.
    pub(super) fn aged(&mut self, engine: &mut Engine, opened: bool) {
        // A walk context exists from the first aging to the end of the loop.
        self.mglru.aged = true;
        self.mglru.rotate |= opened;
        self.walking |= opened || self.at == At::WalkEnd;
        self.at = At::Slice;
        if !engine.policy.has(Switches::S8) {
            self.leave_mglru(engine);
            return;
        }
        if !engine.policy.has(Switches::S4) {
            self.mglru.budget = self.scan_budget(engine);
        }
        self.evict_or_leave(engine);
    }

    fn evict_or_leave(&mut self, engine: &mut Engine) {
        if self.mglru.budget == 0 {
            self.leave_mglru(engine);
            return;
        }
        let cap = batch_cap(engine);
        let exact = engine.policy.has(Switches::REQUEST);
        let folios = if exact { self.mglru.budget.min(cap) } else { cap };
        self.isolate(engine, folios);
        if self.batch.isolated() {
            self.at = At::Settle;
        } else {
            self.after_batch(engine);
        }
    }

    /// A batch is done; decides whether there is another.
    pub(super) fn after_batch(&mut self, engine: &mut Engine) {
        self.at = At::Slice;
        let scanned = self.batch.scanned;
        let more = if engine.policy.has(Switches::S4) {
            self.mglru.budget = self.mglru.budget.saturating_sub(scanned);
            self.mglru.budget > 0
        } else {
            self.mglru.scanned += scanned;
            self.mglru.scanned < self.mglru.budget
        };
        // On a whole machine fairness comes from the order of groups: one batch after an aging is
        // enough.
        let slice_over = self.whole_machine() && self.mglru.aged;
        let to_the_end = !engine.policy.has(Switches::GOAL) && !self.whole_machine();
        let enough = self.abort() && !to_the_end;
        let again = scanned > 0 && more && !enough && !slice_over;
        // A loop of many batches must not keep other threads from the lock (§3.3, both versions).
        // Nor must many passes that find nothing: they may wait for the generation that another
        // thread is about to open, under that lock (§4.5).
        if again || scanned == 0 {
            self.pending.push_back(Step::Yield);
        }
        if !again {
            self.leave_mglru(engine);
        }
    }

    fn leave_mglru(&mut self, engine: &mut Engine) {
        self.wake_at_loop_end(engine);
        self.at = At::LruvecEnd;
    }
}

/// Folios that one batch may scan.
fn batch_cap(engine: &Engine) -> u64 {
    if engine.policy.has(Switches::S7) { MIN_LRU_BATCH } else { MAX_LRU_BATCH }
}
