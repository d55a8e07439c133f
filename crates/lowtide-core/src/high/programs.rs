//! Calling the programs that are attached to groups: what they see, and how far their answers go.
//!
//! A group without a program has that of its nearest ancestor. A program that decides about
//! protection can protect a group or give it up, but not make a charge fail that could succeed:
//! what it protects is treated as best effort, and is taken before a reclaim returns with nothing.
//! Source: `docs/kernel/memcg.md` §15.

use super::Payer;
use super::handler::{Delays, TaskFacts};
use crate::engine::Engine;
use crate::hooks::{LimitReason, LimitSnapshot, ReclaimRequest, ThrottleAnswer};
use crate::memcg::Protection;
use crate::units::{MemcgId, MemcgSlot};

impl Engine {
    /// The snapshot of a group that a program would get.
    ///
    /// # Panics
    /// When the group is gone.
    pub fn snapshot(&mut self, memcg: MemcgId, reason: LimitReason, now: u64) -> LimitSnapshot {
        let pressure = self.pressure(memcg, now);
        let group = &self.memcgs[memcg];
        LimitSnapshot {
            stall_rate: group.high.stall.rate(now),
            psi_some_us: pressure.some.total.as_micros() as u64,
            psi_full_us: pressure.full.total.as_micros() as u64,
            psi_some_avg10: pressure.some.averages[0],
            psi_full_avg10: pressure.full.averages[0],
            since_refault_ns: group
                .high
                .last_refault_ns
                .map_or(u64::MAX, |then| now.saturating_sub(then)),
            now_ns: now,
            ..self.still(memcg, reason)
        }
    }

    /// The part of a snapshot that does not depend on the time.
    fn still(&self, memcg: MemcgId, reason: LimitReason) -> LimitSnapshot {
        let limits = self.limits(memcg);
        let (emin, elow) = self.effective(memcg);
        let group = &self.memcgs[memcg];
        LimitSnapshot {
            reason: reason as u32,
            group: memcg.number(),
            level: group.depth,
            page_bytes: self.page_bytes as u32,
            usage: group.memory.usage,
            max: limits.max,
            high: limits.high,
            low: limits.low,
            min: limits.min,
            elow,
            emin,
            swap_usage: group.swap.usage,
            swap_max: limits.swap_max,
            ..LimitSnapshot::default()
        }
    }

    /// Calls the program that decides for a group, if there is one.
    pub(super) fn ask_throttle(
        &mut self,
        memcg: MemcgId,
        payer: &Payer<'_>,
        pages_over: u64,
        facts: &TaskFacts,
        delays: Delays,
        now: u64,
    ) -> ThrottleAnswer {
        let Some(of) = self.hooked(memcg.slot) else { return ThrottleAnswer::Default };
        let (group, reason) = if self.asks_charges(of) {
            // A task that is handled for its debts alone has charged nothing.
            if pages_over == 0 {
                return ThrottleAnswer::Default;
            }
            (memcg, LimitReason::Charge)
        } else {
            (self.memcgs.id(of), LimitReason::High)
        };
        let snapshot = LimitSnapshot {
            task: payer.number,
            task_debt_ns: payer.debt.unpaid(now),
            nr_over_high: pages_over,
            since_refault_ns: facts.since_refault_ns,
            overage_delay_ns: delays.overage_ns,
            default_delay_ns: delays.default_ns,
            hz: payer.hz,
            ..self.snapshot(group, reason, now)
        };
        let hooks = self.memcgs[of].hooks.as_mut().expect("the group has a program");
        hooks.throttle(&snapshot)
    }

    /// The group itself or the nearest ancestor that has a program.
    fn hooked(&self, slot: MemcgSlot) -> Option<MemcgSlot> {
        self.memcgs.upwards(slot).find(|&at| self.memcgs[at].hooks.is_some())
    }

    fn asks_charges(&self, hooked: MemcgSlot) -> bool {
        self.memcgs[hooked].hooks.as_ref().is_some_and(|hooks| hooks.wants_charges())
    }

    /// Whether a program wants to know of each batch that is charged to a group. The root has no
    /// batches.
    pub(crate) fn charges_wanted(&self, slot: MemcgSlot) -> bool {
        slot != MemcgId::ROOT.slot && self.hooked(slot).is_some_and(|of| self.asks_charges(of))
    }

    /// Tells the program of a group that it was created, or is about to be removed.
    pub(crate) fn tell_life(&mut self, memcg: MemcgId, reason: LimitReason) {
        let Some(of) = self.hooked(memcg.slot) else { return };
        let snapshot = self.still(memcg, reason);
        let hooks = self.memcgs[of].hooks.as_mut().expect("the group has a program");
        if reason == LimitReason::Online {
            hooks.online(&snapshot);
        } else {
            hooks.offline(&snapshot);
        }
    }

    /// Whether reclaim has to spare a group altogether, and whether as long as others have
    /// something: as computed, or as its program decides.
    pub(crate) fn ask_protection(
        &mut self,
        slot: MemcgSlot,
        computed: &Protection,
        now: u64,
    ) -> Spared {
        let spared = Spared { min: computed.below_min(), low: computed.below_low() };
        let Some(of) = self.hooked(slot) else { return spared };
        let snapshot = self.snapshot(self.memcgs.id(slot), LimitReason::Protection, now);
        let hooks = self.memcgs[of].hooks.as_mut().expect("the group has a program");
        let (min, low) = (hooks.below_min(&snapshot), hooks.below_low(&snapshot));
        Spared {
            // Protection that only the program grants is best effort.
            min: spared.min && min != Some(false),
            low: low.unwrap_or(spared.low) || (!spared.min && min == Some(true)),
        }
    }

    /// Pages that the program of a group wants to be reclaimed from it now, ahead of need. The
    /// driver calls this at its own interval. At most what the group uses.
    ///
    /// # Panics
    /// When the group is gone.
    pub fn ask_proactive(&mut self, memcg: MemcgId, now: u64) -> u64 {
        let snapshot = self.snapshot(memcg, LimitReason::Proactive, now);
        let usage = self.usage(memcg);
        self.memcgs[memcg].hooks.as_mut().map_or(0, |hooks| hooks.proactive(&snapshot).min(usage))
    }

    /// Pages that the program of a group wants to be reclaimed besides: of the group, and of those
    /// below it that it knows from snapshots. At most what each uses.
    ///
    /// # Panics
    /// When the group is gone.
    pub fn take_requests(&mut self, memcg: MemcgId) -> Vec<(MemcgId, u64)> {
        let hooks = self.memcgs[memcg].hooks.as_mut();
        let requests = hooks.map_or_else(Vec::new, |hooks| hooks.take_requests());
        let meant = |request: &ReclaimRequest| {
            let group = self.below(memcg).find(|at| at.number() == request.group)?;
            Some((group, request.pages.min(self.usage(group))))
        };
        requests.iter().filter_map(meant).collect()
    }

    /// Whether a group has a program of its own.
    ///
    /// # Panics
    /// When the group is gone.
    #[must_use]
    pub fn has_hooks(&self, memcg: MemcgId) -> bool {
        self.memcgs[memcg].hooks.is_some()
    }
}

/// How a group is spared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Spared {
    /// Altogether.
    pub(crate) min: bool,
    /// As long as others have something.
    pub(crate) low: bool,
}
