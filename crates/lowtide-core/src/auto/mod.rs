//! A limit that sets itself: the smallest with which threads wait no more than a target share of
//! the time for pages that it had evicted.
//!
//! [`AutoLimit`] is the controller as a value: no clock, no thread, no group. Its driver reports a
//! [`Sample`] several times a second and sets the limit that comes back. The idea is that of the
//! published controllers of cgroups (Weiner et al., "TMO: Transparent Memory Offloading in
//! Datacenters", ASPLOS 2022): take memory away slowly until pressure appears, give it back at
//! once. Two things differ, because an engine of its own knows more than a cgroup shows.
//!
//! **What counts as pressure.** Only waiting for pages that came *back*, and only where a limit
//! within the bounds would have kept them ([`Evidence`]). Cold pages are no pressure, so a scan is
//! none, however fast it reads; a loop over more than the largest limit is none either. It is
//! measured as time: the same number of refaults is nothing on a fast device, and much on a slow
//! one.
//!
//! **How far to grow.** The evidence says which limit would have been enough. So growth goes there,
//! by at most a half of the limit in a quarter of a second, and not at all where a doubling would
//! avoid less than a sixteenth of all waiting for the device.
//!
//! ```text
//!   credit   + target share × time, − pressure; between −4 s and 4 s of the target
//!   grow     credit < 0, and a larger limit is worth it
//!   shrink   credit at half or more, 2 s after the last growth: 1 % of the limit a second, faster
//!            and faster, up to 8 %, while no pressure answers
//!   hold     within 1/16 above the size at which pressure appeared last (the *knee*): for 10 s;
//!            twice as long each time that it appears near there again, 10 minutes at most
//!   forget   the knee, when pressure appears elsewhere, or the limit is an eighth below it, or
//!            half as many pages are accessed as then, for an eighth of that time
//!   idle     the limit stays. After 5 s 5 % of what is in memory goes back each second, down to
//!            the least; it may come back without growth
//! ```
//!
//! The credit lets a burst pass that ends by itself, and averages what single reads cost. Nothing
//! here waits for the program: the limit grows while all of its threads wait.

mod waiting;

pub use waiting::{Evidence, Waiting};

use crate::units::NS_PER_SEC;

/// Time after which a credit that is empty is full again, without pressure.
const CREDIT_NS: u64 = 4 * NS_PER_SEC;
/// A tick counts for at most this time: a driver that could not run has no evidence for the rest.
const TICK_MAX_NS: u64 = NS_PER_SEC;
/// Growth in a second is at most this multiple of the limit.
const GROWTH_A_SECOND: u64 = 2;
/// Growth is at least this part of the limit, so that it leaves the knee behind.
const GROWTH_PART: u64 = 8;
/// Time after a growth in which pages come back that now have room.
const SETTLE_NS: u64 = 2 * NS_PER_SEC;
/// Shrinking: millionths of the limit in a second, at first and at the most.
const RATE_FIRST: u64 = 10_000;
const RATE_MOST: u64 = 80_000;
/// A limit is held above the knee by this part.
const HOLD_PART: u64 = 16;
/// The knee is forgotten this part below it, and pressure this part away from it is another phase.
const FORGET_PART: u64 = 8;
const NEAR_PART: u64 = 4;
/// How long a knee is left alone, at first and at the most.
const WAIT_FIRST_NS: u64 = 10 * NS_PER_SEC;
const WAIT_MOST_NS: u64 = 600 * NS_PER_SEC;
/// How long a program is left its memory that does nothing, and millionths of it that go back in a
/// second from there on.
const IDLE_NS: u64 = 5 * NS_PER_SEC;
const IDLE_RATE: u64 = 50_000;
/// Another phase: less than this part of the pages is accessed that was when pressure appeared, for
/// this part of the time that the knee is left alone. So what comes and goes is given up, and later
/// each time that it comes back.
const PHASE_PART: u64 = 2;
const PHASE_WAIT_PART: u64 = 8;
/// What was waited counts half after this time.
const HALVING_NS: u64 = NS_PER_SEC;
const MILLION: u64 = 1_000_000;

/// Between which sizes a limit moves, and what it holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AutoBounds {
    /// Pages that the limit never falls below.
    pub least: u64,
    /// Pages that it never exceeds.
    pub most: u64,
    /// Millionths of the time that threads may wait, all together.
    pub target: u32,
}

/// What happened since the last sample.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// The driver's time.
    pub now_ns: u64,
    /// Pages charged now.
    pub usage: u64,
    /// Waiting for pages that the limit had evicted.
    pub waited: &'a Waiting,
    /// Pages accessed lately, in memory or not, where that is known.
    pub active: Option<u64>,
    /// The program did nothing: it brought no page in, and accessed none or used no processor.
    pub is_idle: bool,
    /// Usage is above the limit, and none of it can be evicted: it is pinned, dirty or reserved.
    pub is_stuck: bool,
}

/// Why the limit is what it is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum AutoCause {
    /// It holds the target, or something keeps it from shrinking further.
    Hold,
    /// Threads waited for longer than the target, and more memory avoids that.
    Grow,
    /// What it holds cannot be evicted.
    Stuck,
    /// No thread waited for long.
    Shrink,
    /// The program does nothing.
    Idle,
}

impl AutoCause {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Grow => "grow",
            Self::Stuck => "stuck",
            Self::Shrink => "shrink",
            Self::Idle => "idle",
        }
    }
}

/// What to do now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AutoStep {
    /// The limit, in pages.
    pub limit: u64,
    /// Why.
    pub cause: AutoCause,
    /// Pages to evict although the limit allows them.
    pub give_back: u64,
    /// Millionths of the time since the last sample that threads waited for pages that the limit
    /// had evicted, all of them together: it may exceed a million.
    pub stall_share: u64,
}

/// Where pressure appeared last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Knee {
    size: u64,
    /// How long it is left alone.
    wait_ns: u64,
    /// Pages that were accessed lately.
    active: Option<u64>,
}

impl Knee {
    /// Whether another phase has come, in which fewer pages are in use.
    fn is_past(&self, active: Option<u64>) -> bool {
        self.active.zip(active).is_some_and(|(then, now)| now < then / PHASE_PART)
    }
}

/// See the module documentation.
#[derive(Clone, Debug)]
pub struct AutoLimit {
    bounds: AutoBounds,
    limit: u64,
    last_ns: u64,
    /// Nanoseconds of waiting that are allowed now.
    credit: i64,
    /// Time since the last growth.
    calm_ns: u64,
    rate: u64,
    knee: Option<Knee>,
    /// The one that was forgotten last, in case that it comes back.
    left: Option<Knee>,
    /// For how long the phase of the knee has been over.
    smaller_ns: u64,
    /// It shrank since the last growth.
    shrank: bool,
    idle_ns: u64,
    recent: Waiting,
    halved_ns: u64,
}

impl AutoLimit {
    /// A limit that begins at what is used, within the bounds. A `least` above `most` counts as
    /// `most`.
    #[must_use]
    pub fn new(bounds: AutoBounds, usage: u64, now_ns: u64) -> Self {
        let mut this = Self {
            bounds,
            limit: usage,
            last_ns: now_ns,
            credit: 0,
            calm_ns: 0,
            rate: RATE_FIRST,
            knee: None,
            left: None,
            smaller_ns: 0,
            shrank: false,
            idle_ns: 0,
            recent: Waiting::default(),
            halved_ns: 0,
        };
        this.set_bounds(bounds);
        this.credit = this.credit_most();
        this
    }

    /// The limit now, in pages.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The bounds and the target.
    #[must_use]
    pub const fn bounds(&self) -> AutoBounds {
        self.bounds
    }

    /// Changes the bounds or the target; what was learned stays. The limit is within them at once.
    pub fn set_bounds(&mut self, bounds: AutoBounds) {
        self.bounds = AutoBounds { least: bounds.least.min(bounds.most), ..bounds };
        self.limit = self.limit.clamp(self.bounds.least, self.bounds.most);
    }

    /// Looks at what happened, and moves the limit.
    pub fn tick(&mut self, sample: &Sample<'_>) -> AutoStep {
        let passed = sample.now_ns.saturating_sub(self.last_ns);
        self.last_ns = self.last_ns.max(sample.now_ns);
        let dt = passed.min(TICK_MAX_NS);
        let waited = u128::from(sample.waited.total_ns());
        let share = waited * u128::from(MILLION) / u128::from(passed.max(1));
        let stall_share = share.try_into().unwrap_or(u64::MAX);
        let step = |limit, cause, give_back| AutoStep { limit, cause, give_back, stall_share };
        if sample.is_idle && waited == 0 {
            let back = self.idle(sample.usage, dt);
            return step(self.limit, AutoCause::Idle, back);
        }
        self.idle_ns = 0;
        let cause = self.decide(sample, dt);
        step(self.limit, cause, 0)
    }

    /// Pages that go back while nothing happens.
    fn idle(&mut self, usage: u64, dt: u64) -> u64 {
        self.idle_ns = self.idle_ns.saturating_add(dt);
        self.calm_ns = self.calm_ns.saturating_add(dt);
        self.smaller_ns = self.smaller_ns.saturating_add(dt);
        if self.idle_ns < IDLE_NS {
            return 0;
        }
        part_in(usage, IDLE_RATE, dt).min(usage.saturating_sub(self.bounds.least))
    }

    fn decide(&mut self, sample: &Sample<'_>, dt: u64) -> AutoCause {
        self.remember(sample.waited, dt);
        let AutoBounds { most, .. } = self.bounds;
        let worth = self.recent.worth(self.limit, most, 2 * self.allowed(HALVING_NS));
        // What no limit within the bounds avoids is no reason to grow, nor one not to shrink.
        let pressure = worth.map_or(0, |_| sample.waited.between_ns(self.limit, most));
        let most_credit = self.credit_most();
        let change = (self.allowed(dt) as i64).saturating_sub_unsigned(pressure);
        self.credit = self.credit.saturating_add(change).clamp(-most_credit, most_credit);
        self.calm_ns = self.calm_ns.saturating_add(dt);
        let is_past = self.knee.is_some_and(|knee| knee.is_past(sample.active));
        self.smaller_ns = if is_past { self.smaller_ns.saturating_add(dt) } else { 0 };
        if sample.is_stuck && sample.usage > self.limit {
            self.note_pressure(sample.active);
            self.limit = sample.usage.min(most).max(self.limit);
            return AutoCause::Stuck;
        }
        match worth {
            Some(enough) if self.credit < 0 => self.grow(enough, sample.active, dt),
            _ if self.credit >= most_credit / 2 && self.calm_ns >= SETTLE_NS => {
                self.shrink(sample, dt)
            }
            _ => AutoCause::Hold,
        }
    }

    fn remember(&mut self, waited: &Waiting, dt: u64) {
        self.halved_ns += dt;
        if self.halved_ns >= HALVING_NS {
            self.halved_ns -= HALVING_NS;
            self.recent.halve();
        }
        self.recent.add(waited);
    }

    fn grow(&mut self, enough: u64, active: Option<u64>, dt: u64) -> AutoCause {
        let AutoBounds { most, .. } = self.bounds;
        if self.limit >= most {
            return AutoCause::Hold;
        }
        self.note_pressure(active);
        let least = self.limit / GROWTH_PART + 1;
        let largest = part_in(self.limit, GROWTH_A_SECOND * MILLION, dt).max(least);
        let by = enough.saturating_sub(self.limit).clamp(least, largest);
        self.limit = self.limit.saturating_add(by).min(most);
        // The next decision is about what happens under the new limit.
        self.credit = 0;
        AutoCause::Grow
    }

    /// Pressure appeared at the limit as it is.
    fn note_pressure(&mut self, active: Option<u64>) {
        let (size, fresh) = (self.limit, self.calm_ns >= SETTLE_NS);
        let is_near = |knee: &Knee| size.abs_diff(knee.size) <= knee.size / NEAR_PART;
        let twice = |knee: Knee| (2 * knee.wait_ns).min(WAIT_MOST_NS);
        let wait_ns = match (self.left.take_if(|left| !left.is_past(active)), self.knee) {
            (Some(left), _) => twice(left),
            // Growth goes on: no smaller limit was tried.
            (None, Some(knee)) if !fresh || !self.shrank => knee.wait_ns,
            (None, Some(knee)) if is_near(&knee) => twice(knee),
            _ => WAIT_FIRST_NS,
        };
        self.knee = Some(Knee { size, wait_ns, active });
        (self.shrank, self.rate, self.calm_ns) = (false, RATE_FIRST, 0);
    }

    fn shrink(&mut self, sample: &Sample<'_>, dt: u64) -> AutoCause {
        let (mut floor, usage) = (self.bounds.least, sample.usage);
        if let Some(knee) = self.knee {
            let is_past = self.smaller_ns >= knee.wait_ns / PHASE_WAIT_PART;
            if is_past || self.limit < knee.size - knee.size / FORGET_PART {
                self.left = self.knee.take();
            } else if self.calm_ns < knee.wait_ns {
                floor = floor.max(knee.size + knee.size / HOLD_PART);
            }
        }
        if self.limit <= floor {
            return AutoCause::Hold;
        }
        // Room that is not used goes sooner: that evicts nothing.
        let unused = self.limit.saturating_sub(usage + usage / 8);
        let by = part_in(self.limit, self.rate, dt).max(part_in(unused, MILLION / 8, dt)).max(1);
        self.limit = self.limit.saturating_sub(by).max(floor);
        self.shrank = true;
        self.rate = (self.rate + part_in(self.rate, MILLION / 4, dt)).min(RATE_MOST);
        AutoCause::Shrink
    }

    /// What may be waited in a time.
    fn allowed(&self, ns: u64) -> u64 {
        part_in(ns, u64::from(self.bounds.target), NS_PER_SEC)
    }

    fn credit_most(&self) -> i64 {
        self.allowed(CREDIT_NS).max(1) as i64
    }
}

/// Millionths a second of an amount, in a time.
fn part_in(of: u64, millionths: u64, ns: u64) -> u64 {
    let part = u128::from(of) * u128::from(millionths) / u128::from(MILLION);
    (part * u128::from(ns) / u128::from(NS_PER_SEC)).try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
