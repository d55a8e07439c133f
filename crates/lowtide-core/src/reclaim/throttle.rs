//! Writeback seen from reclaim: counting it, waking those who write, and sleeping when only waiting helps.
//!
//! * A batch that is dirty to the last page, none of it being written yet, says that the flushers lag: wake them.
//! * A pass in which everything dirty was already met once, and is being written now, says that
//!   reclaim runs ahead of the device: a direct reclaimer sleeps for a tick. Unless less than half of the group is dirty; then it only yields.
//!
//! Before S11 the flushers were woken once, at the end of the loop, if all dirty folios that the sorter met were unqueued; before S15
//! nothing was counted, so nobody ever slept, and a small group full of pages under writeback died within
//! milliseconds. The background reclaimer never sleeps for congestion, but it does wait for writes of pages that it marked for
//! immediate reclaim, once all that it takes is under writeback.
//!
//! Source: `reclaim.md` §4.3, 4.4, 4.6. The engine's "node" is the target itself (appendix C of the sheet).

use super::invocation::{Reason, Reclaim, Step};
use crate::engine::Engine;
use crate::limits::TICK_NS;
use crate::lruvec::NodeFlags;
use crate::policy::{Lists, Policy, Switches};

/// Why a reclaimer sleeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ThrottleReason {
    /// Everything dirty is being written: wait for the device.
    Congested,
    /// Pages marked for immediate reclaim are still being written (background reclaimer).
    Writeback,
    /// Too many folios are isolated by others (classical lists).
    Isolated,
}

impl ThrottleReason {
    /// Longest sleep in nanoseconds (`reclaim.md` §0).
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
    /// Accounts for the batch that was just shrunk. Returns whether to wake the flushers.
    pub(super) fn account_writeback(&mut self, policy: Policy) -> bool {
        let (stat, taken) = (self.batch.stat, self.batch.taken);
        self.pass.unqueued_dirty += stat.unqueued_dirty;
        let classical = policy.lists() == Lists::Classical;
        if classical || policy.has(Switches::S15) {
            self.pass.dirty += stat.dirty;
            self.pass.congested += stat.congested;
            self.pass.writeback += stat.writeback;
            self.pass.immediate += stat.immediate;
            self.pass.taken += taken;
        }
        (classical || policy.has(Switches::S11)) && taken > 0 && stat.unqueued_dirty == taken
    }

    /// Before S11: whether to wake the flushers at the end of the lruvec loop.
    pub(super) fn wake_at_loop_end(&self, policy: Policy) -> bool {
        !policy.has(Switches::S11)
            && self.pass.unqueued_dirty > 0
            && self.pass.unqueued_dirty == self.pass.file_taken
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
                self.nap(ThrottleReason::Writeback);
            }
            return;
        }
        lv.congested |= congested;
        if lv.congested || lv.node.congested {
            if engine.mostly_dirty(self.target) {
                self.nap(ThrottleReason::Congested);
            } else {
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
