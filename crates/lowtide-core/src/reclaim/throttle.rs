//! Writeback as reclaim sees it: counting it, waking the flushers, and sleeping when only waiting
//! helps.
//!
//! * A batch that is dirty to the last page, none of it being written yet, shows that the flushers
//!   lag: wake them.
//! * A pass in which all dirty pages were already met once, and are being written now, shows that
//!   reclaim runs ahead of the device: a direct reclaimer sleeps for a tick. If less than half of
//!   the group is dirty it only yields.
//!
//! Before S11 the flushers were woken once, at the end of the loop, if the pass had isolated no
//! clean file page and none of the dirty ones that it met was being written. With some clean pages
//! around that hardly ever happens. Before S15 nothing was counted, so reclaim never slept, and a
//! small group full of pages under writeback died within milliseconds. The background reclaimer
//! never sleeps for congestion, but it does wait for writes of pages that it marked for immediate
//! reclaim, once all that it takes is under writeback.
//!
//! Source: `docs/kernel/reclaim.md` §4.3, 4.4, 4.6. The engine's "node" is the target itself
//! (section C of that page).

use super::invocation::{Reason, Reclaim, Step};
use crate::counters::Events;
use crate::engine::Engine;
use crate::limits::TICK_NS;
use crate::lruvec::{NodeFlags, Scan};
use crate::policy::{Lists, Switches};
use crate::units::LruType;

/// Why a reclaimer sleeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ThrottleReason {
    /// All dirty pages are being written: wait for the device.
    Congested,
    /// Pages marked for immediate reclaim are still being written (background reclaimer).
    Writeback,
    /// Other reclaimers have isolated too many folios (classical lists).
    Isolated,
}

impl ThrottleReason {
    /// Longest sleep in nanoseconds (`docs/kernel/reclaim.md` §0).
    #[must_use]
    pub const fn timeout_ns(self) -> u64 {
        match self {
            Self::Congested => TICK_NS,
            Self::Writeback => 100_000_000,
            Self::Isolated => 20_000_000,
        }
    }
}

/// Sums over one pass, in pages.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PassCounts {
    dirty: u64,
    congested: u64,
    writeback: u64,
    immediate: u64,
    taken: u64,
    pub(super) file_taken: u64,
    pub(super) unqueued_dirty: u64,
}

impl Reclaim {
    /// Accounts for the batch that was just shrunk, and wakes the flushers if all of it is waiting
    /// for them.
    pub(super) fn account_writeback(&mut self, engine: &mut Engine) {
        let (policy, stat, taken) = (engine.policy, self.batch.stat, self.batch.taken);
        self.pass.unqueued_dirty += stat.unqueued_dirty;
        let classical = policy.lists() != Lists::MultiGen;
        if classical || policy.has(Switches::S15) {
            self.pass.dirty += stat.dirty;
            self.pass.congested += stat.congested;
            self.pass.writeback += stat.writeback;
            self.pass.immediate += stat.immediate;
            self.pass.taken += taken;
            let events = self.events_of_target(engine);
            events.nr_shrink_dirty += stat.dirty;
            events.nr_shrink_congested += stat.congested;
            events.nr_shrink_writeback += stat.writeback;
            events.nr_shrink_immediate += stat.immediate;
            events.nr_shrink_taken += taken;
        }
        if (classical || policy.has(Switches::S11)) && taken > 0 && stat.unqueued_dirty == taken {
            self.wake_flushers(engine);
        }
    }

    /// Before S11: counts what [`Reclaim::wake_at_loop_end`] decides from. Isolated file pages
    /// count as taken in addition to the dirty ones that were sorted away: one clean page keeps the
    /// flushers asleep.
    pub(super) fn count_for_wake(&mut self, t: LruType, scan: &Scan) {
        let isolated = if t == LruType::File { scan.isolated } else { 0 };
        self.pass.file_taken += scan.dirty_sorted + isolated;
        self.pass.unqueued_dirty += scan.unqueued_dirty;
    }

    /// Before S11: wakes the flushers at the end of the lruvec loop, if every file page that the
    /// pass took waits for them.
    pub(super) fn wake_at_loop_end(&mut self, engine: &mut Engine) {
        if !engine.policy.has(Switches::S11)
            && self.pass.unqueued_dirty > 0
            && self.pass.unqueued_dirty == self.pass.file_taken
        {
            self.wake_flushers(engine);
        }
    }

    fn wake_flushers(&mut self, engine: &mut Engine) {
        self.events_of_target(engine).nr_wakeup_flushers += 1;
        self.pending.push_back(Step::WakeFlushers);
    }

    /// Sleeps, counted.
    pub(super) fn sleep(&mut self, engine: &mut Engine, reason: ThrottleReason) {
        let events = self.events_of_target(engine);
        *match reason {
            ThrottleReason::Congested => &mut events.nr_throttled_congested,
            ThrottleReason::Writeback => &mut events.nr_throttled_writeback,
            ThrottleReason::Isolated => &mut events.nr_throttled_isolated,
        } += 1;
        self.pending.push_back(Step::Throttle(reason, reason.timeout_ns()));
    }

    fn events_of_target<'a>(&self, engine: &'a mut Engine) -> &'a mut Events {
        &mut engine.memcgs[self.target].events
    }

    /// Sets the flags of congestion, and sleeps where that is the only thing left to do.
    pub(super) fn throttle_after_pass(&mut self, engine: &mut Engine) {
        let pass = self.pass;
        let congested = pass.dirty > 0 && pass.dirty == pass.congested;
        let lv = &mut engine.memcgs[self.target].lruvec;
        if self.reason == Reason::Kswapd {
            lv.node.writeback |= pass.writeback > 0 && pass.writeback == pass.taken;
            lv.node.congested |= congested;
            if pass.immediate > 0 {
                self.sleep(engine, ThrottleReason::Writeback);
            }
            return;
        }
        lv.congested |= congested;
        if lv.congested || lv.node.congested {
            if engine.mostly_dirty(self.target) {
                self.sleep(engine, ThrottleReason::Congested);
            } else {
                self.events_of_target(engine).nr_throttled_yield += 1;
                self.pending.push_back(Step::Yield);
            }
        }
    }

    /// Ends the time that the flags of congestion hold.
    pub(super) fn clear_congestion(&self, engine: &mut Engine) {
        let lv = &mut engine.memcgs[self.target].lruvec;
        if self.reason != Reason::Kswapd {
            lv.congested = false;
        } else if self.reclaimed >= self.goal {
            lv.node = NodeFlags::default();
        }
    }
}
