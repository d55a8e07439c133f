//! The policies of this folder on the engine's tree: booking what refaults cost, and making a task
//! pay before it goes on.
//!
//! ```text
//!   Engine::insert ──► Refaulted ──(the driver waits for the contents)──► Engine::stalled
//!                                        books the wait with the level and the task
//!
//!   Charge ──► over_high ──► the task's pages over ──┐
//!                            Engine::owes ───────────┴──► Payment::next ──► reclaim, sleep
//!                                        at the end of the operation, without any lock
//! ```
//!
//! **Which group caused a refault?** A shadow has no room for the group whose limit evicted its
//! page. But evictions come in bursts: the group remembers for which limit it was last reclaimed,
//! and a page that comes back recently enough to count was evicted in the same burst, or one like
//! it. Pages evicted on request, or because the whole pool was short, are charged to no task: the
//! root is not a level that tasks pay for, unless its limit sets itself ([`auto`](crate::auto)).
//!
//! The policy of the task's own group decides how it pays; programs
//! ([`LimitHooks`](crate::hooks::LimitHooks)) are inherited from the nearest ancestor that has one.
//! Source: `docs/kernel/memcg.md` §6, 7.1, 8.

use super::account::{Payer, Refaulted};
use super::handler::{HighPolicy, HighStep, LevelView, OverLimit, SleepCause, TaskFacts};
use super::stall_debt::{self, EvictedFor, Price, Refault, TaskDebt};
use crate::auto::Waiting;
use crate::engine::Engine;
use crate::lruvec::Sighting;
use crate::memcg::Memcg;
use crate::psi::{Change, Pressure, Psi};
use crate::reclaim::{Reason, Reclaim};
use crate::units::{MemcgId, MemcgSlot};

/// Ticks a second that pressure is sampled by; the kernel's usual one.
const PSI_HZ: u64 = 1000;

/// What to do next about a task that is over a limit.
#[derive(Debug)]
pub enum HighNext {
    /// Run this reclaim to its end, then report what it reclaimed.
    Reclaim(Box<Reclaim>),
    /// Sleep, as a throttle in the sense of [`psi`](crate::psi), then call again. The debt is
    /// already reduced by it.
    Sleep {
        /// Nanoseconds, at most 2 s.
        ns: u64,
        /// What it is for.
        cause: SleepCause,
    },
    /// The task goes on.
    Done,
}

/// A task that pays, stepped by its driver as a [`Charge`](crate::Charge) is.
#[derive(Debug)]
pub struct Payment {
    handler: OverLimit,
    memcg: MemcgId,
    pages_over: u64,
}

impl Payment {
    /// Begins to handle a task of a group: takes the pages that it charged above a limit, and
    /// leaves 0.
    #[must_use]
    pub fn new(engine: &Engine, memcg: MemcgId, pages_over: &mut u64) -> Self {
        let policy = if engine.alive(memcg) {
            engine.memcgs[memcg].high.policy
        } else {
            HighPolicy::Overage
        };
        let over = *pages_over;
        Self { handler: OverLimit::new(policy, pages_over), memcg, pages_over: over }
    }

    /// The next thing to do. `debt` is the task's, `number` its identity for programs, `hz` the
    /// ticks of the driver's scheduler, `reclaimed` the result of the reclaim that the last
    /// call returned.
    pub fn next(
        &mut self,
        engine: &mut Engine,
        payer: &mut Payer<'_>,
        now: u64,
        reclaimed: Option<u64>,
    ) -> HighNext {
        let mut reclaimed = reclaimed;
        if !engine.alive(self.memcg) {
            return HighNext::Done;
        }
        loop {
            let slots: Vec<MemcgSlot> = engine.levels_of(self.memcg.slot).collect();
            let views: Vec<LevelView> = slots.iter().map(|&slot| engine.level_view(slot)).collect();
            let prices = engine.prices(&slots, now);
            let group = &engine.memcgs[self.memcg].high;
            let facts = TaskFacts {
                dying: payer.dying,
                hz: payer.hz,
                since_refault_ns: group
                    .last_refault_ns
                    .map_or(u64::MAX, |then| now.saturating_sub(then)),
                owed_ns: payer.debt.owed(&prices, now),
            };
            let (memcg, over) = (self.memcg, self.pages_over);
            let step = self.handler.next(&views, &facts, reclaimed.take(), |delays| {
                engine.ask_throttle(memcg, payer, over, &facts, delays, now)
            });
            match step {
                HighStep::Reclaim { level, goal } => {
                    engine.memcgs.raise(slots[level], |events| &mut events.high);
                    let target = engine.memcgs.id(slots[level]);
                    let reclaim = Reclaim::new(target, goal, Reason::Direct, payer.task).for_high();
                    return HighNext::Reclaim(Box::new(reclaim));
                }
                HighStep::SwapEvent { level } => {
                    engine.memcgs.raise_swap(slots[level], |events| &mut events.high);
                }
                HighStep::Sleep { ns, cause } => {
                    payer.debt.pay(ns, &prices, now);
                    return HighNext::Sleep { ns, cause };
                }
                HighStep::Done => return HighNext::Done,
            }
        }
    }
}

impl Engine {
    /// Sets what tasks of a group pay for being over a limit. Default: stall debt.
    ///
    /// # Panics
    /// When the group is gone.
    pub fn set_high_policy(&mut self, memcg: MemcgId, policy: HighPolicy) {
        self.memcgs[memcg].high.policy = policy;
    }

    /// What tasks of a group pay for being over a limit.
    ///
    /// # Panics
    /// When the group is gone.
    #[must_use]
    pub fn high_policy(&self, memcg: MemcgId) -> HighPolicy {
        self.memcgs[memcg].high.policy
    }

    /// Books that a thread waited for a page that came back. `bytes` were read, read-ahead
    /// included. Call it when the contents are there. A group that is gone is ignored.
    pub fn stalled(
        &mut self,
        memcg: MemcgId,
        refaulted: &Refaulted,
        stall_ns: u64,
        bytes: u64,
        debt: &mut TaskDebt,
        now: u64,
    ) {
        if !self.alive(memcg) {
            return;
        }
        let group = &mut self.memcgs[memcg].high;
        group.last_refault_ns = group.last_refault_ns.max(Some(now.saturating_sub(stall_ns)));
        let Some((level, evicted_for)) = refaulted.by else { return };
        if !self.alive(level) {
            return;
        }
        let Level { usage, limit, depth } = self.level(level.slot);
        let of = &mut self.memcgs[level].high;
        of.missing.get_or_insert_default().note(refaulted.distance, stall_ns, now);
        of.stall.note_usage(usage, limit, now);
        let refault = Refault {
            level: level.number(),
            depth,
            evicted_for,
            // A policy may or may not give the page a place among the active (a generation can be
            // over long before as much as the level holds was evicted). What counts here is
            // whether the page would have stayed in a memory twice the size.
            working_set: refaulted.recent || refaulted.distance <= usage,
            stall_ns,
            bytes,
        };
        let policy = of.stall_debt;
        stall_debt::book(&policy, &mut of.stall, debt, &refault, now);
    }

    /// Makes a group's `high` a limit that a controller sets ([`auto`](crate::auto)): what its
    /// tasks wait for is noted for that, and costs them no sleep. The root can have such a limit,
    /// too.
    ///
    /// # Panics
    /// When the group is gone.
    pub fn follow_waiting(&mut self, memcg: MemcgId, follow: bool) {
        let auto = &mut self.memcgs[memcg].high.auto;
        if follow != auto.is_some() {
            *auto = follow.then(Box::default);
        }
    }

    /// A task waited for a page that a limit had evicted: notes it for the controller of that
    /// limit, if there is one.
    pub fn waited(&mut self, refaulted: &Refaulted, stall_ns: u64) {
        let Some((level, EvictedFor::High | EvictedFor::Max)) = refaulted.by else { return };
        if self.alive(level) {
            let Memcg { memory, high, .. } = &mut self.memcgs[level];
            if let Some(auto) = &mut high.auto {
                auto.note(memory.usage, refaulted.distance, stall_ns);
            }
        }
    }

    /// What was waited for pages that a group's limit had evicted, since the last call. Nothing
    /// without [`follow_waiting`](Self::follow_waiting).
    ///
    /// # Panics
    /// When the group is gone.
    pub fn take_waiting(&mut self, memcg: MemcgId) -> Waiting {
        let auto = self.memcgs[memcg].high.auto.as_mut();
        auto.map_or_else(Waiting::default, |auto| auto.take())
    }

    /// Nanoseconds that a task of a group would have to sleep for its debts now: worth a
    /// [`Payment`] if it is long enough to be worth a sleep, even if the task has
    /// charged nothing over a limit.
    #[must_use]
    pub fn owes(&mut self, memcg: MemcgId, debt: &TaskDebt, now: u64) -> u64 {
        if debt.is_clear(now)
            || !self.alive(memcg)
            || self.memcgs[memcg].high.policy != HighPolicy::StallDebt
        {
            return 0;
        }
        let slots: Vec<MemcgSlot> = self.levels_of(memcg.slot).collect();
        let prices = self.prices(&slots, now);
        debt.owed(&prices, now)
    }

    /// A task of a group changed: updates the pressure of the group and of its ancestors. A group
    /// that is gone is ignored.
    pub fn psi_change(&mut self, memcg: MemcgId, change: Change, now: u64) {
        if !self.alive(memcg) || change.from == change.to {
            return;
        }
        let mut at = Some(memcg.slot);
        while let Some(slot) = at {
            let group = &mut self.memcgs[slot];
            group
                .high
                .psi
                .get_or_insert_with(|| Box::new(Psi::new(PSI_HZ, now)))
                .apply(change, now);
            at = group.parent;
        }
    }

    /// `memory.pressure` of a group.
    ///
    /// # Panics
    /// When the group is gone.
    pub fn pressure(&mut self, memcg: MemcgId, now: u64) -> Pressure {
        self.memcgs[memcg].high.psi.as_mut().map_or_else(Pressure::default, |psi| psi.read(now))
    }

    /// The budget in pages that would have avoided nine tenths of the waiting for evicted pages;
    /// the usage of the group if no thread waited.
    ///
    /// # Panics
    /// When the group is gone.
    pub fn advice(&mut self, memcg: MemcgId, now: u64) -> u64 {
        let group = &mut self.memcgs[memcg];
        let usage = group.memory.usage;
        group.high.missing.as_mut().map_or(usage, |missing| missing.suggest(usage, now))
    }

    /// Refault stall of a group's limit in nanoseconds a second, decayed over ten seconds.
    ///
    /// # Panics
    /// When the group is gone.
    #[must_use]
    pub fn stall_rate(&self, memcg: MemcgId, now: u64) -> u64 {
        self.memcgs[memcg].high.stall.rate(now)
    }

    /// Pages of a group were evicted, for a limit of the group `by` or for another reason.
    pub(crate) fn note_evicted(
        &mut self,
        group: MemcgSlot,
        by: MemcgId,
        cause: EvictedFor,
        pages: u64,
    ) {
        self.memcgs[group].high.evicted_by = Some((by, cause));
        let mut at = Some(group);
        while let Some(slot) = at {
            let level = &mut self.memcgs[slot];
            if let Some(auto) = &mut level.high.auto {
                auto.evicted(pages);
            }
            at = level.parent;
        }
    }

    /// The refault as it is to be booked.
    pub(crate) fn refaulted(&self, memcg: MemcgSlot, sighting: Sighting) -> Refaulted {
        let by = self.memcgs[memcg].high.evicted_by;
        Refaulted { recent: sighting.recent, distance: sighting.distance, by }
    }

    /// A group and its ancestors; the root only if its limit sets itself.
    fn levels_of(&self, slot: MemcgSlot) -> impl Iterator<Item = MemcgSlot> {
        let counts = |at: MemcgSlot| {
            let group = &self.memcgs[at];
            group.parent.is_some() || group.high.auto.is_some()
        };
        self.memcgs.upwards(slot).filter(move |&at| counts(at))
    }

    fn level_view(&self, slot: MemcgSlot) -> LevelView {
        let group = &self.memcgs[slot];
        LevelView {
            id: self.memcgs.id(slot).number(),
            usage: group.memory.usage,
            high: group.memory.high,
            swap_usage: group.swap.usage,
            swap_high: group.swap.high,
            is_auto: group.high.auto.is_some(),
        }
    }

    fn level(&self, slot: MemcgSlot) -> Level {
        let group = &self.memcgs[slot];
        Level {
            usage: group.memory.usage,
            limit: group.memory.high.min(group.memory.max),
            depth: group.depth,
        }
    }

    /// The prices of the levels now, by identity.
    fn prices(&mut self, slots: &[MemcgSlot], now: u64) -> Vec<(u64, Price)> {
        slots
            .iter()
            .map(|&slot| {
                let Level { usage, limit, .. } = self.level(slot);
                let id = self.memcgs.id(slot).number();
                let high = &mut self.memcgs[slot].high;
                high.stall.note_usage(usage, limit, now);
                let price = match &high.auto {
                    Some(_) => Price::default(),
                    None => high.stall.price(&high.stall_debt, now),
                };
                (id, price)
            })
            .collect()
    }
}

/// A level's usage, and the lower of its limits, in pages.
struct Level {
    usage: u64,
    limit: u64,
    depth: u32,
}
