//! Stall debt: the default policy for limits. A task that makes a limited group thrash pays for the
//! stall that it caused, with sleep.
//!
//! # The policy
//!
//! When a task waits for a page that it had before, and that was evicted because of a *level*'s
//! limit, the wait is booked twice: as the level's stall, and as the task's debt at that level. The
//! level has a *price* `k`: for a second of debt the task sleeps `k` seconds at its next throttle
//! point, and the debt is paid. The price is set so that the level's stall comes down to a target
//! `β`: 0.1 seconds a second, for all its tasks together.
//!
//! ```text
//!   at a stall s:        burden ← burden × 2^(−Δt/3 s) + s × (1 + k)    (rate of the burden: b)
//!   price:               k = clamp(b / β' − 1, 0, 255)                  β' = 15/16 β
//!   at a throttle point: sleep = min(2 s, max over levels of k × debt)
//!                        and each level's debt falls by sleep / k
//! ```
//!
//! The *burden* is what the stalls cost the tasks: the time they waited and the time they will have
//! to sleep for it. This is the demand that the level would have without a price. If one task
//! thrashes all the time, stalls and sleeps fill its second, `b = 1` whatever the price, and `k =
//! 1/β' − 1`: enough to make the stall `β'`. With sixteen tasks `b = 16`, and the stall is `β'`
//! again. Because the demand hardly depends on the price, the price converges without overshooting:
//! in one step `1 + k` is multiplied by `ρ/β'`, where `ρ` is the stall rate, and with tasks that
//! also compute this is a contraction (with `m` tasks that compute `T` for each stall `s`, the
//! slope at the fixed point is `(T/s) / (m/β')`, positive, and below 1 whenever there is something
//! to throttle).
//!
//! # Where it departs from `docs/kernel/memcg.md` §8, and why
//!
//! * **The price is not `(ρ − β)/β`** (§8.4). That is a proportional controller: with the loop
//!   closed, one thrashing task has `ρ = 1/(1 + k)`, and it settles at `ρ = √β`, 32 % of the device
//!   for a target of 10 %; sixteen tasks settle where `k_max` is, at more than the whole device.
//! * **`k_max` is 255 rather than 8.** With 8, one task alone never gets below 1/9. The bound
//!   remains a bound: no task ever sleeps more than 255 times its own stall, so that a task without
//!   stall never sleeps; up to 24 thrashing tasks share the target, and beyond it grows slowly.
//! * **No cap for the single stalled task** (§8.7). It would leave half of the device to the one
//!   task that thrashes, and nothing to its neighbours; the limit is meant to cost the task its own
//!   latency.
//! * **No gate on pressure** (§8.7). The burden is measured stall of working-set pages, throttle
//!   sleep is in neither account, and below `β` the price is 0: the signal contains the gate.
//! * **The burden decays faster (3 s) than the stall that is shown (10 s).** A price that takes
//!   half a minute to rise leaves the neighbours alone with the thrasher for as long.
//! * **`β` is a ceiling**: the policy aims at 15/16 of it, so that noise stays below.
//! * **One stall counts for 250 ms at most**, which alone makes no price. A device with a hiccup
//!   does not mean a task that thrashes, and making the task wait once more would not help. On a
//!   device that always takes longer, more than the target gets through.
//!
//! What is kept: attribution to the level whose limit evicted the page, never to a global or
//! proactive reclaim; debt only for working-set refaults; a task's unpaid rest stays and decays;
//! the same policy for `high` and `max`; no sleep where it cannot help: a level is only paid for if
//! it was within a charge batch of its limit during the last 100 ms. Bytes are counted for display;
//! they are not part of the policy, since a batch of read-ahead costs the time that it costs.
//!
//! A wait for a device that neighbours keep busy is booked in full: the thrasher then steps back
//! further. Up to the highest price all this holds for any number of tasks; with 64 that thrash all
//! the time, the device is at a quarter instead of a tenth (`closed_loop.rs` in the tests has the
//! small world behind these figures).
//!
//! Nothing here depends on ticks, on the number of handlings, or on how a group's work is split
//! among tasks. Time is the driver's. Source: `docs/kernel/memcg.md` §8, 16 (16).

use super::decay::{Decayed, HalfLife};
use crate::hooks::DELAY_MAX_NS;

/// How long the stall and the debts remember.
const MEMORY: HalfLife = HalfLife::from_ns(10_000_000_000);
/// How long the burden remembers.
const RESPONSE: HalfLife = HalfLife::from_ns(3_000_000_000);
/// How long ago a level may have been near its limit to be paid for.
const NEAR_LIMIT_NS: u64 = 100_000_000;
/// Pages below the limit that count as near: one charge batch.
const NEAR_LIMIT_PAGES: u64 = 64;
/// What one stall counts for at most. Less than what a default target keeps in the burden, so that
/// a single read, however slow, makes no price.
const STALL_MAX_NS: u64 = 250_000_000;
/// Levels at which a task can have debts.
const DEBTS: usize = 4;

/// The constants that a group can be given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StallDebt {
    /// Stall of a level that has no price: nanoseconds a second, all its tasks together. 0 counts
    /// as 1.
    pub target: u64,
    /// Highest price: seconds of sleep for a second of stall.
    pub price_max: u32,
}

impl Default for StallDebt {
    /// A tenth of a second a second, and 255.
    fn default() -> Self {
        Self { target: 100_000_000, price_max: 255 }
    }
}

impl StallDebt {
    fn aim(&self) -> u64 {
        (self.target - self.target / 16).max(1)
    }
}

/// Seconds of sleep for a second of stall, with 16 binary digits behind the point.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Price(u64);

impl Price {
    const ONE: u64 = 1 << 16;

    /// The price in thousandths.
    #[must_use]
    pub const fn thousandths(self) -> u64 {
        (self.0 as u128 * 1000 / Self::ONE as u128) as u64
    }

    fn of(self, stall: u64) -> u64 {
        (u128::from(stall) * u128::from(self.0) / u128::from(Self::ONE))
            .try_into()
            .unwrap_or(u64::MAX)
    }

    /// The stall that a sleep pays for, rounded up. Not called with a price of 0.
    fn paid_by(self, sleep: u64) -> u64 {
        scaled(sleep).div_ceil(self.0)
    }
}

/// With the binary digits of a price behind the point; more than three days count as three.
fn scaled(ns: u64) -> u64 {
    ns.min(u64::MAX / Price::ONE) * Price::ONE
}

/// Why a page was not there: the reclaim that evicted it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EvictedFor {
    /// The level was above its `high`.
    High,
    /// The level was at its `max`.
    Max,
    /// Memory was requested in advance.
    Proactive,
    /// The whole pool was short of memory.
    Global,
}

/// A task waited for a page that it had before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refault {
    /// Identity of the group whose limit evicted the page.
    pub level: u64,
    /// Its depth: the root's children have 1.
    pub depth: u32,
    /// What the limit was.
    pub evicted_for: EvictedFor,
    /// Whether the page would have been resident with no more memory than the working set has (the
    /// refault is recent).
    pub working_set: bool,
    /// Nanoseconds that the task waited.
    pub stall_ns: u64,
    /// Bytes that were read, read-ahead included.
    pub bytes: u64,
}

impl Refault {
    /// What of the wait is booked, and whether there is anything to book.
    fn counts(&self) -> Option<u64> {
        let limit = matches!(self.evicted_for, EvictedFor::High | EvictedFor::Max);
        (limit && self.working_set && self.stall_ns > 0).then(|| self.stall_ns.min(STALL_MAX_NS))
    }
}

/// What a level remembers: one for each group that has, or had, a limit. O(1) an event.
#[derive(Clone, Copy, Debug, Default)]
pub struct LevelStall {
    stall: Decayed,
    burden: Decayed,
    near_limit: Option<u64>,
    total_ns: u64,
    total_bytes: u64,
}

impl LevelStall {
    /// Reports the level's usage and the lower of its limits (pages), at the points where the
    /// engine has them: at charges, at reclaim, at a throttle point.
    pub fn note_usage(&mut self, usage: u64, limit: u64, now_ns: u64) {
        if usage.saturating_add(NEAR_LIMIT_PAGES) >= limit && limit != crate::hooks::NO_LIMIT {
            self.near_limit = Some(now_ns);
        }
    }

    /// Stall that was booked, in nanoseconds a second over the last ten seconds. More than one task
    /// can stall: this may exceed a second.
    #[must_use]
    pub fn rate(&self, now_ns: u64) -> u64 {
        self.stall.per_second(MEMORY, now_ns)
    }

    /// All stall that was ever booked (nanoseconds) and the bytes read in it.
    #[must_use]
    pub const fn totals(&self) -> (u64, u64) {
        (self.total_ns, self.total_bytes)
    }

    /// The price of a second of debt now: 0 when the level is not near its limit.
    #[must_use]
    pub fn price(&self, policy: &StallDebt, now_ns: u64) -> Price {
        let near = self.near_limit.is_some_and(|then| now_ns.saturating_sub(then) <= NEAR_LIMIT_NS);
        if near { self.demand_price(policy, now_ns) } else { Price(0) }
    }

    fn demand_price(&self, policy: &StallDebt, now_ns: u64) -> Price {
        let burden = self.burden.per_second(RESPONSE, now_ns);
        let price = (scaled(burden) / policy.aim()).saturating_sub(Price::ONE);
        Price(price.min(u64::from(policy.price_max) * Price::ONE))
    }

    fn book(&mut self, policy: &StallDebt, stall: u64, bytes: u64, now_ns: u64) {
        let cost = stall.saturating_add(self.demand_price(policy, now_ns).of(stall));
        self.burden.add(RESPONSE, now_ns, cost);
        // A price that cannot rise further must be able to fall at once.
        let most = policy.aim().saturating_mul(u64::from(policy.price_max) + 1);
        self.burden.cap(RESPONSE, now_ns, Decayed::kept_by(RESPONSE, most));
        self.stall.add(MEMORY, now_ns, stall);
        self.total_ns = self.total_ns.saturating_add(stall);
        self.total_bytes = self.total_bytes.saturating_add(bytes);
    }
}

/// What a task has not paid yet: at up to four levels. What does not fit goes to the highest level
/// among them.
#[derive(Clone, Copy, Debug, Default)]
pub struct TaskDebt {
    debts: [Debt; DEBTS],
}

#[derive(Clone, Copy, Debug, Default)]
struct Debt {
    level: u64,
    depth: u32,
    stall: Decayed,
}

impl TaskDebt {
    /// Whether the task owes nothing anywhere, which is the usual case.
    #[must_use]
    pub fn is_clear(&self, now_ns: u64) -> bool {
        self.debts.iter().all(|d| d.stall.at(MEMORY, now_ns) == 0)
    }

    /// Unpaid stall at all levels, in nanoseconds.
    #[must_use]
    pub fn unpaid(&self, now_ns: u64) -> u64 {
        self.debts.iter().map(|d| d.stall.at(MEMORY, now_ns)).fold(0, u64::saturating_add)
    }

    /// How long the task would have to sleep now, at most 2 s: the dearest of its levels. `levels`
    /// are the groups from its own upward, with their prices; debts at other groups do not
    /// count.
    ///
    /// A driver calls this at each return from a fault that stalled, and handles the task
    /// (`handler.rs`) when the result is worth a sleep: the sooner a debt is paid, the less the
    /// clamp cuts off.
    #[must_use]
    pub fn owed(&self, levels: &[(u64, Price)], now_ns: u64) -> u64 {
        let of = |debt: &Debt| debt.price(levels).of(debt.stall.at(MEMORY, now_ns));
        self.debts.iter().map(of).max().unwrap_or(0).min(DELAY_MAX_NS)
    }

    /// Pays with a sleep, whatever it was imposed for. Called with the levels and the time of
    /// [`TaskDebt::owed`].
    pub fn pay(&mut self, slept_ns: u64, levels: &[(u64, Price)], now_ns: u64) {
        for debt in &mut self.debts {
            let price = debt.price(levels);
            if price.0 > 0 {
                debt.stall.take(MEMORY, now_ns, price.paid_by(slept_ns));
            }
        }
    }

    fn book(&mut self, level: u64, depth: u32, stall: u64, now_ns: u64) {
        let empty = |d: &Debt| d.stall.at(MEMORY, now_ns) == 0;
        let place = self.debts.iter().position(|d| d.level == level && !empty(d));
        if let Some(at) = place.or_else(|| self.debts.iter().position(empty)) {
            let debt = &mut self.debts[at];
            if place.is_none() {
                *debt = Debt { level, depth, stall: Decayed::default() };
            }
            debt.stall.add(MEMORY, now_ns, stall);
            return;
        }
        if let Some(top) = self.debts.iter_mut().min_by_key(|d| d.depth) {
            if depth < top.depth {
                (top.level, top.depth) = (level, depth);
            }
            top.stall.add(MEMORY, now_ns, stall);
        }
    }
}

impl Debt {
    fn price(&self, levels: &[(u64, Price)]) -> Price {
        levels.iter().find(|(id, _)| *id == self.level).map_or(Price(0), |&(_, price)| price)
    }
}

/// Books a refault with the level whose limit caused it and with the task that waited. Returns the
/// nanoseconds that were booked: 0 if no limit caused it.
pub fn book(
    policy: &StallDebt,
    level: &mut LevelStall,
    task: &mut TaskDebt,
    refault: &Refault,
    now_ns: u64,
) -> u64 {
    let Some(stall) = refault.counts() else { return 0 };
    level.book(policy, stall, refault.bytes, now_ns);
    task.book(refault.level, refault.depth, stall, now_ns);
    stall
}

#[cfg(test)]
mod tests;
