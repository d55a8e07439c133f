//! A limit that sets itself, as the pool keeps it: its controller, and what became of it. What
//! samples it, and carries out what it decides, is `setter.rs`.

use crate::tenant::{AutoLimits, AutoStat};
use lowtide_core::auto::{AutoBounds, AutoLimit, AutoStep};
use lowtide_core::{Engine, MemcgId, Size};
use std::time::Duration;

/// What a wait counts for that was not measured: a random read of a device that does ten thousand
/// of them a second.
pub(crate) const UNSEEN_NS: u64 = 100_000;
/// Of the pages in use, this part and as much more memory is kept: what goes back comes again soon.
const SLACK_PART: u64 = 32;
const SLACK_BYTES: u64 = 4 << 20;

/// A limit that sets itself.
#[derive(Debug)]
pub(crate) struct Auto {
    pub(super) limits: AutoLimits,
    pub(super) controller: AutoLimit,
    /// Reads and refaults until the last sample.
    pub(super) reads: u64,
    pub(super) refaults: u64,
    pub(super) stuck: bool,
    pub(super) figures: Figures,
}

/// What became of it so far. Sums are of pages times nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Figures {
    since_ns: u64,
    time_ns: u128,
    limit: u128,
    usage: u128,
    least: u64,
    most: u64,
    grown: u64,
    shrunk: u64,
    pub(super) waited_ns: u64,
    pub(super) refaults: u64,
    share: u64,
}

impl Auto {
    /// Begins with what the tenant uses.
    pub(crate) fn new(limits: AutoLimits, usage: u64, now: u64, page_shift: u32) -> Self {
        let controller = AutoLimit::new(bounds_of(&limits, page_shift), usage, now);
        let at = controller.limit();
        let figures = Figures { since_ns: now, least: at, most: at, ..Figures::default() };
        Self { limits, controller, reads: 0, refaults: 0, stuck: false, figures }
    }

    /// Changes the bounds or the target; what was learned stays.
    pub(crate) fn set_limits(&mut self, limits: AutoLimits, page_shift: u32) {
        self.limits = limits;
        self.controller.set_bounds(bounds_of(&limits, page_shift));
    }

    /// The limit now, in pages.
    pub(crate) const fn limit(&self) -> u64 {
        self.controller.limit()
    }

    /// What became of it.
    pub(crate) fn stat(&self, page_shift: u32) -> AutoStat {
        let Figures { time_ns, least, most, grown, shrunk, waited_ns, refaults, .. } = self.figures;
        let bytes = |pages: u64| pages << page_shift;
        let mean = |sum: u128, now: u64| bytes(sum.checked_div(time_ns).map_or(now, |m| m as u64));
        AutoStat {
            limits: self.limits,
            limit_bytes: bytes(self.limit()),
            least_bytes: bytes(least),
            most_bytes: bytes(most),
            mean_bytes: mean(self.figures.limit, self.limit()),
            mean_usage_bytes: mean(self.figures.usage, 0),
            grown,
            shrunk,
            refaults,
            waited: Duration::from_nanos(waited_ns),
            stall_share: self.figures.share as f64 / 1e6,
        }
    }
}

impl Figures {
    pub(super) fn note(&mut self, now: u64, usage: u64, before: u64, step: &AutoStep) {
        let passed = u128::from(now.saturating_sub(std::mem::replace(&mut self.since_ns, now)));
        self.time_ns += passed;
        self.limit += u128::from(before) * passed;
        self.usage += u128::from(usage) * passed;
        self.least = self.least.min(step.limit);
        self.most = self.most.max(step.limit);
        self.grown += u64::from(step.limit > before);
        self.shrunk += u64::from(step.limit < before);
        self.share = step.stall_share;
    }
}

pub(super) fn bounds_of(limits: &AutoLimits, page_shift: u32) -> AutoBounds {
    let pages = |size: Size| size.bytes() >> page_shift;
    let target = (limits.target * 1e6) as u32;
    AutoBounds { least: pages(limits.least), most: pages(limits.most), target }
}

/// Pages whose memory is kept where limits set themselves: those in use and a few more.
pub(super) fn pages_to_keep(engine: &Engine, page_shift: u32) -> u64 {
    let used = engine.usage(MemcgId::ROOT);
    used + used / SLACK_PART + (SLACK_BYTES >> page_shift)
}
