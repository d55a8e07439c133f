//! Charging: taking pages from a budget, and what to do when there are none.
//!
//! [`Charge`] is the charge path of `reclaim.md` §7.1 as a value: the driver asks it what to do next, does
//! that, and reports back. A charge retries for free as long as reclaim makes progress; without progress it survives one draining of
//! caches and sixteen retries, which belong to the charge and are not refilled. Reclaim that finds nothing
//! is a result, not an error; what the driver makes of [`Next::Failed`] (wait, or a typed error) is its own affair.

use crate::engine::Engine;
use crate::limits::{MAX_RECLAIM_RETRIES, SWAP_CLUSTER_MAX};
use crate::reclaim::{Reason, Reclaim};
use crate::units::{MemcgId, Task};

/// Pages up to which progress of any size is enough to try again.
const PAGE_ALLOC_COSTLY: u64 = 8;

/// One charge in progress.
#[derive(Debug)]
pub struct Charge {
    memcg: MemcgId,
    pages: u64,
    retries: u32,
    drained: bool,
}

/// What to do next about a charge.
#[derive(Debug)]
pub enum Next {
    /// The pages are charged.
    Charged,
    /// Run this reclaim to its end, then report what it reclaimed.
    Reclaim(Box<Reclaim>),
    /// Nothing could be reclaimed in all tries; nothing is charged.
    Failed,
}

impl Charge {
    /// A charge of some pages to a group.
    #[must_use]
    pub const fn new(memcg: MemcgId, pages: u64) -> Self {
        Self { memcg, pages, retries: MAX_RECLAIM_RETRIES, drained: false }
    }

    /// Tries to charge. `reclaimed` is the result of the reclaim that the last call asked for.
    pub fn next(&mut self, engine: &mut Engine, task: Task, reclaimed: Option<u64>) -> Next {
        if let Some(reclaimed) = reclaimed
            && !self.try_again(engine, reclaimed)
        {
            engine.memcgs[self.memcg.index()].limits.oom += 1;
            return Next::Failed;
        }
        match engine.try_charge(self.memcg, self.pages) {
            Ok(()) => Next::Charged,
            Err(over) => {
                engine.memcgs[over.index()].limits.max += 1;
                let goal = self.pages.max(SWAP_CLUSTER_MAX);
                Next::Reclaim(Box::new(Reclaim::new(over, goal, Reason::Direct, task)))
            }
        }
    }

    fn try_again(&mut self, engine: &Engine, reclaimed: u64) -> bool {
        if engine.memcgs[self.memcg.index()].margin() >= self.pages {
            return true;
        }
        if !std::mem::replace(&mut self.drained, true) {
            return true;
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
    pub fn try_charge(&mut self, memcg: MemcgId, pages: u64) -> Result<(), MemcgId> {
        let mut at = Some(memcg);
        while let Some(id) = at {
            let group = &self.memcgs[id.index()];
            if group.margin() < pages {
                return Err(id);
            }
            at = group.parent;
        }
        self.for_ancestors(memcg, |group| group.usage += pages);
        Ok(())
    }

    /// Gives pages back to a group and its ancestors: for a charge whose folio never came to be.
    pub fn uncharge(&mut self, memcg: MemcgId, pages: u64) {
        self.for_ancestors(memcg, |group| group.usage -= pages);
    }

    fn for_ancestors(&mut self, memcg: MemcgId, mut each: impl FnMut(&mut crate::memcg::Memcg)) {
        let mut at = Some(memcg);
        while let Some(id) = at {
            let group = &mut self.memcgs[id.index()];
            each(group);
            at = group.parent;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ConfigError;
    use crate::policy::Policy;
    use crate::testing::filled;
    use crate::units::{FolioId, LruType};

    /// Reports results of reclaim to a charge that never finds room; returns how many reports it survives.
    fn patience(pages: u64, reports: impl Fn(u32) -> u64) -> u32 {
        let mut engine = filled(Policy::MGLRU, 64, LruType::File);
        let mut charge = Charge::new(MemcgId::ROOT, pages);
        let mut reclaimed = None;
        for n in 0..1000 {
            match charge.next(&mut engine, Task::FAULT, reclaimed) {
                Next::Reclaim(_) => reclaimed = Some(reports(n)),
                Next::Charged => panic!("there was no room"),
                Next::Failed => return n,
            }
        }
        1000
    }

    /// I31: one invocation, one after the draining of caches, sixteen retries.
    #[test]
    fn a_charge_survives_seventeen_fruitless_invocations() {
        assert_eq!(patience(1, |_| 0), 18);
    }

    /// `reclaim.md` §9, 35: progress of any size is enough for a small charge, not for a large one.
    #[test]
    fn progress_costs_no_retry_up_to_eight_pages() {
        assert_eq!(patience(8, |_| 1), 1000);
        assert_eq!(patience(9, |_| 1), 18);
    }

    /// `reclaim.md` §9, 47: retries belong to the charge and are not refilled by progress in between.
    #[test]
    fn progress_does_not_refill_the_retries() {
        assert_eq!(patience(1, |n| u64::from(n % 2)), 35, "18 fruitless ones among 17 fruitful");
    }

    /// `reclaim.md` §7.2.
    #[test]
    fn a_budget_that_was_lowered_admits_nobody_until_usage_has_come_down() {
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
    fn a_failed_charge_charges_nothing_and_counts_as_oom() {
        let mut engine = filled(Policy::MGLRU, 64, LruType::File);
        let mut charge = Charge::new(MemcgId::ROOT, 1);
        let mut reclaimed = None;
        while !matches!(charge.next(&mut engine, Task::FAULT, reclaimed), Next::Failed) {
            reclaimed = Some(0);
        }
        let stat = engine.stat(MemcgId::ROOT);
        assert_eq!((stat.current, stat.limits.max, stat.limits.oom), (64, 18, 1));
    }
}
