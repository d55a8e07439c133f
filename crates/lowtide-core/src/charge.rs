//! Charging: taking pages from a budget, and what to do when there are none.
//!
//! [`Charge`] is the charge path of `docs/kernel/memcg.md` §2.2 as a value: it returns what to do
//! next, the driver does that and reports the result. A charge tries the stock, then a batch, then
//! exactly what is needed. If a group is full, that group is reclaimed; it may be an ancestor of
//! the one that is charged. A charge retries without limit as long as reclaim makes progress.
//! Without progress it survives one draining of stocks and sixteen retries, which belong to the
//! charge and are not refilled. A reclaim that finds nothing is a result, not an error; the driver
//! decides what [`Next::Failed`] means (wait, or return a typed error).
//!
//! A successful charge may bring a group above its `high`. [`Next::Charged`] reports the pages for
//! which the task then has to pay; the driver adds them up for each task and makes it pay before it
//! goes on (`high/`). Pages from a stock were paid for when the stock was filled.

use crate::engine::Engine;
use crate::limits::{MAX_RECLAIM_RETRIES, SWAP_CLUSTER_MAX};
use crate::memcg::CHARGE_BATCH;
use crate::policy::Lists;
use crate::reclaim::{Reason, Reclaim};
use crate::units::{MemcgId, MemcgSlot, Task};

/// Pages up to which progress of any size is enough to try again.
const PAGE_ALLOC_COSTLY: u64 = 8;

/// One charge in progress.
#[derive(Debug)]
pub struct Charge {
    memcg: MemcgId,
    pages: u64,
    batch: u64,
    retries: u32,
    drained: bool,
    /// The group that was full.
    over: MemcgId,
    /// A failure counts as `oom`.
    counted: bool,
    /// It is worth trying again after a reclaim that made too little room.
    retried: bool,
}

/// What to do next about a charge.
#[derive(Debug)]
pub enum Next {
    /// The pages are charged.
    Charged {
        /// Pages that were charged although a group on the way is above its `high`, or that a
        /// program [wants to know of](crate::hooks::LimitHooks::wants_charges): the task has to be
        /// handled for them.
        over_high: u64,
    },
    /// Run this reclaim to its end, then report what it reclaimed.
    Reclaim(Box<Reclaim>),
    /// Nothing could be reclaimed in all tries; nothing is charged.
    Failed {
        /// The group that is full.
        over: MemcgId,
    },
    /// The group has been removed; nothing is charged. Its parent has what it had.
    Gone,
}

/// Pages that a charge tries to take at once. The root has no stock.
fn charge_batch(memcg: MemcgId, pages: u64) -> u64 {
    if memcg == MemcgId::ROOT { pages } else { pages.max(CHARGE_BATCH) }
}

impl Charge {
    /// A charge of some pages to a group.
    #[must_use]
    pub fn new(memcg: MemcgId, pages: u64) -> Self {
        let batch = charge_batch(memcg, pages);
        let retries = MAX_RECLAIM_RETRIES;
        Self {
            memcg,
            pages,
            batch,
            retries,
            drained: false,
            over: memcg,
            counted: true,
            retried: true,
        }
    }

    /// A charge of a driver that waits and charges again when this one fails. The failure is not
    /// counted; a driver that gives up counts it with [`Engine::count_oom`].
    #[must_use]
    pub fn patient(memcg: MemcgId, pages: u64) -> Self {
        Self { counted: false, ..Self::new(memcg, pages) }
    }

    /// A charge that gives up, uncounted, if reclaim and one draining of stocks make no room for
    /// it: that of read-ahead, which can do without the page (`docs/kernel/fault-and-writeback.md`
    /// A6.6).
    #[must_use]
    pub fn without_retries(memcg: MemcgId, pages: u64) -> Self {
        Self { counted: false, retried: false, ..Self::new(memcg, pages) }
    }

    /// Tries to charge. `reclaimed` is the result of the reclaim that the last call returned.
    pub fn next(&mut self, engine: &mut Engine, task: Task, reclaimed: Option<u64>) -> Next {
        if !engine.alive(self.memcg) {
            return Next::Gone;
        }
        if let Some(reclaimed) = reclaimed
            && !self.try_again(engine, reclaimed)
        {
            if self.counted {
                engine.count_oom(self.over);
            }
            return Next::Failed { over: self.over };
        }
        loop {
            let slot = self.memcg.slot;
            if engine.charge_from_stock(task.cpu, slot, self.pages) {
                return Next::Charged { over_high: 0 };
            }
            match engine.charge_levels(slot, self.batch, self.pages) {
                Ok(()) => {
                    engine.refill_stock(task.cpu, slot, self.batch - self.pages);
                    let over_high = if engine.is_paid_for(slot) { self.batch } else { 0 };
                    return Next::Charged { over_high };
                }
                Err(_) if self.batch > self.pages => self.batch = self.pages,
                Err(over) => {
                    self.over = engine.memcgs.id(over);
                    engine.memcgs.raise(over, |events| &mut events.max);
                    let goal = self.pages.max(engine.least_goal(over));
                    return Next::Reclaim(Box::new(Reclaim::new(
                        self.over,
                        goal,
                        Reason::Direct,
                        task,
                    )));
                }
            }
        }
    }

    fn try_again(&mut self, engine: &mut Engine, reclaimed: u64) -> bool {
        if !engine.alive(self.over) || engine.memcgs[self.over].memory.margin() >= self.pages {
            return true;
        }
        if !std::mem::replace(&mut self.drained, true) {
            engine.drain_stocks(self.over.slot);
            return true;
        }
        if !self.retried {
            return false;
        }
        if reclaimed > 0 && self.pages <= PAGE_ALLOC_COSTLY {
            return true;
        }
        let left = self.retries > 0;
        self.retries = self.retries.saturating_sub(1);
        left
    }
}

impl Engine {
    /// Charges pages to a group and its ancestors, or names the one that is full.
    ///
    /// # Errors
    /// The first group on the way up whose limit would be exceeded. Nothing is charged then.
    ///
    /// # Panics
    /// When the group is gone.
    pub fn try_charge(&mut self, memcg: MemcgId, pages: u64) -> Result<(), MemcgId> {
        assert!(self.alive(memcg), "group {} has been removed", memcg.number());
        self.charge_levels(memcg.slot, pages, pages).map_err(|over| self.memcgs.id(over))
    }

    /// Charges pages if there is room for them as things are: from the stock, a batch, or just what
    /// is needed. Returns for how many the task has to pay ([`Next::Charged`]), or `None` if some
    /// group on the way up is full; then nothing is charged, and nothing is counted. For drivers
    /// that charge many pages under one acquisition of their lock, and reclaim ([`Charge`]) later,
    /// when they hold nothing that other threads wait for.
    ///
    /// # Panics
    /// When the group is gone.
    pub fn charge_if_room(&mut self, memcg: MemcgId, pages: u64, task: Task) -> Option<u64> {
        assert!(self.alive(memcg), "group {} has been removed", memcg.number());
        let slot = memcg.slot;
        if self.charge_from_stock(task.cpu, slot, pages) {
            return Some(0);
        }
        let batch = charge_batch(memcg, pages);
        let charged = if self.full_level(slot, batch, pages).is_none() {
            batch
        } else if batch > pages && self.full_level(slot, pages, pages).is_none() {
            pages
        } else {
            return None;
        };
        self.memcgs.add(slot, charged, pages);
        self.refill_stock(task.cpu, slot, charged - pages);
        Some(if self.is_paid_for(slot) { charged } else { 0 })
    }

    /// Gives pages back to a group and its ancestors: for a charge whose folio was never created. A
    /// group that is gone has left its charges to its parent: then `memcg` is the parent.
    ///
    /// # Panics
    /// When the group is gone, or fewer pages are charged to it.
    pub fn uncharge(&mut self, memcg: MemcgId, pages: u64) {
        assert!(self.alive(memcg), "group {} has been removed", memcg.number());
        self.memcgs.sub(memcg.slot, pages, pages);
    }

    /// Notes that pages that have just been charged to a group hold memory of the program's own.
    ///
    /// # Panics
    /// When the group is gone.
    pub fn reserve(&mut self, memcg: MemcgId, pages: u64) {
        self.memcgs[memcg].reserved += pages;
    }

    /// Gives pages back that were [reserved](Engine::reserve).
    ///
    /// # Panics
    /// When the group is gone, or has fewer reserved.
    pub fn release_reserved(&mut self, memcg: MemcgId, pages: u64) {
        let group = &mut self.memcgs[memcg];
        assert!(
            group.reserved >= pages,
            "{pages} reserved pages are given back of {}",
            group.reserved
        );
        group.reserved -= pages;
        self.uncharge(memcg, pages);
    }

    /// Charges `batch` pages to a group and its ancestors, but to the root, whose counter is the
    /// number of frames in use, `pages`.
    fn charge_levels(&mut self, slot: MemcgSlot, batch: u64, pages: u64) -> Result<(), MemcgSlot> {
        match self.full_level(slot, batch, pages) {
            Some(over) => {
                self.memcgs[over].memory.failcnt += 1;
                Err(over)
            }
            None => {
                self.memcgs.add(slot, batch, pages);
                Ok(())
            }
        }
    }

    /// Pages that a reclaim of a full group is to free at least. With `tide`, no more than a 256th
    /// of a small group: what is freed ahead of need would have been hit.
    fn least_goal(&self, over: MemcgSlot) -> u64 {
        if self.policy.lists() == Lists::Tide {
            (self.memcgs[over].memory.max / 256).clamp(1, SWAP_CLUSTER_MAX)
        } else {
            SWAP_CLUSTER_MAX
        }
    }

    /// The first group on the way up whose limit a charge would exceed.
    fn full_level(&self, slot: MemcgSlot, batch: u64, pages: u64) -> Option<MemcgSlot> {
        let amount = |at: MemcgSlot| if self.memcgs[at].parent.is_none() { pages } else { batch };
        self.memcgs.upwards(slot).find(|&at| self.memcgs[at].memory.margin() < amount(at))
    }

    /// Takes pages that were charged in advance. The root has not seen them yet.
    fn charge_from_stock(&mut self, cpu: u16, slot: MemcgSlot, pages: u64) -> bool {
        if slot == MemcgId::ROOT.slot {
            return false;
        }
        let room = self.memcgs[MemcgId::ROOT].memory.margin() >= pages;
        if !room || !self.stocks.consume(cpu, slot, pages) {
            return false;
        }
        self.memcgs.add(slot, 0, pages);
        true
    }

    fn refill_stock(&mut self, cpu: u16, slot: MemcgSlot, pages: u64) {
        if pages == 0 {
            return;
        }
        if let Some((group, pages)) = self.stocks.refill(cpu, slot, pages) {
            self.memcgs.sub(group, pages, 0);
        }
    }

    /// Gives the stocks of a group and everything below it back to the counters.
    pub(crate) fn drain_stocks(&mut self, top: MemcgSlot) {
        let memcgs = &self.memcgs;
        for (group, pages) in self.stocks.drain(|group| memcgs.is_below(group, top)) {
            self.memcgs.sub(group, pages, 0);
        }
    }

    /// Whether a task has to be handled for a batch that it charged to a group: the group or one of
    /// its ancestors is above its `high`, or a program wants to know of each batch.
    fn is_paid_for(&self, slot: MemcgSlot) -> bool {
        let over_high = |at: MemcgSlot| {
            let group = &self.memcgs[at];
            group.memory.over_high() || group.swap.over_high()
        };
        self.memcgs.upwards(slot).any(over_high) || self.charges_wanted(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ConfigError;
    use crate::policy::Policy;
    use crate::testing::filled;
    use crate::units::{FolioId, LruType};

    /// Reports results of reclaim to a charge that never finds room; returns how many reports it
    /// survives.
    fn patience(pages: u64, reports: impl Fn(u32) -> u64) -> u32 {
        let mut engine = filled(Policy::MGLRU, 64, LruType::File);
        let mut charge = Charge::new(MemcgId::ROOT, pages);
        let mut reclaimed = None;
        for n in 0..1000 {
            match charge.next(&mut engine, Task::FAULT, reclaimed) {
                Next::Reclaim(_) => reclaimed = Some(reports(n)),
                Next::Charged { .. } | Next::Gone => panic!("there was no room"),
                Next::Failed { .. } => return n,
            }
        }
        1000
    }

    /// I31: one invocation, one after the draining of caches, sixteen retries.
    #[test]
    fn a_charge_survives_seventeen_fruitless_invocations() {
        assert_eq!(patience(1, |_| 0), 18);
    }

    /// `docs/kernel/reclaim.md` §9, 35: progress of any size is enough for a small charge, not for
    /// a large one.
    #[test]
    fn progress_costs_no_retry_up_to_eight_pages() {
        assert_eq!(patience(8, |_| 1), 1000);
        assert_eq!(patience(9, |_| 1), 18);
    }

    /// `docs/kernel/reclaim.md` §9, 47: retries belong to the charge and are not refilled by
    /// progress in between.
    #[test]
    fn progress_does_not_refill_the_retries() {
        assert_eq!(patience(1, |n| u64::from(n % 2)), 35, "18 fruitless ones among 17 fruitful");
    }

    /// `docs/kernel/reclaim.md` §7.2.
    #[test]
    fn a_budget_that_was_lowered_admits_no_charge_until_usage_has_come_down() {
        let mut engine = filled(Policy::MGLRU, 64, LruType::File);
        engine.set_max(MemcgId::ROOT, 40).unwrap();
        assert_eq!(
            (engine.max(MemcgId::ROOT), engine.usage(MemcgId::ROOT)),
            (40, 64),
            "nothing goes by itself"
        );
        engine.validate().unwrap();
        for id in (0..25).map(FolioId) {
            assert!(engine.try_charge(MemcgId::ROOT, 1).is_err());
            assert!(engine.remove(id));
        }
        engine.validate().unwrap();
        assert_eq!(engine.try_charge(MemcgId::ROOT, 1), Ok(()), "39 are left");
        engine.set_max(MemcgId::ROOT, 64).unwrap();
        assert_eq!(engine.try_charge(MemcgId::ROOT, 24), Ok(()));
    }

    #[test]
    fn impossible_budgets_are_refused_and_change_nothing() {
        let mut engine = filled(Policy::MGLRU, 64, LruType::File);
        let small = engine.set_max(MemcgId::ROOT, 31).unwrap_err();
        let large = engine.set_max(MemcgId::ROOT, 65).unwrap_err();
        assert_eq!(small, ConfigError::BudgetTooSmall { pages: 31 });
        assert_eq!(large, ConfigError::BudgetTooLarge { pages: 65, frames: 64 });
        assert_eq!(engine.max(MemcgId::ROOT), 64);
    }

    #[test]
    fn a_charge_if_there_is_room_takes_what_fits_and_counts_nothing_when_it_does_not() {
        let mut engine = filled(Policy::MGLRU, 200, LruType::File);
        for id in (0..150).map(FolioId) {
            assert!(engine.remove(id));
        }
        let group = engine.create_group(MemcgId::ROOT).unwrap();
        engine.set_max(group, 70).unwrap();
        engine.set_high(group, 65);
        assert_eq!(engine.charge_if_room(group, 1, Task::FAULT), Some(0));
        assert_eq!(
            (engine.usage(group), engine.usage(MemcgId::ROOT)),
            (64, 51),
            "a batch, of which the root sees one"
        );
        assert_eq!(engine.charge_if_room(group, 64, Task::FAULT), None);
        assert_eq!(engine.charge_if_room(group, 6, Task::FAULT), Some(0), "of the stock");
        assert_eq!(engine.charge_if_room(group, 57, Task::FAULT), Some(0));
        assert_eq!(
            engine.charge_if_room(group, 6, Task::FAULT),
            Some(6),
            "no batch fits, and the group is above `high`"
        );
        assert_eq!(engine.charge_if_room(group, 1, Task::FAULT), None);
        assert_eq!((engine.usage(group), engine.usage(MemcgId::ROOT)), (70, 120));
        assert_eq!(engine.stat(group).limits.max, 0);
    }

    #[test]
    fn a_failed_charge_charges_nothing_and_counts_as_oom() {
        let mut engine = filled(Policy::MGLRU, 64, LruType::File);
        let mut charge = Charge::new(MemcgId::ROOT, 1);
        let mut reclaimed = None;
        while !matches!(charge.next(&mut engine, Task::FAULT, reclaimed), Next::Failed { .. }) {
            reclaimed = Some(0);
        }
        let stat = engine.stat(MemcgId::ROOT);
        assert_eq!((stat.current, stat.limits.max, stat.limits.oom), (64, 18, 1));
    }
}
