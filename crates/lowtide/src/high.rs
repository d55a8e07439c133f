//! Above `high`: whoever charged too much pays before he goes on.
//!
//! A charge that succeeds although a group on the way is above its `high` leaves a debt: the pages that it took. Debts are the thread's, and are paid
//! when the operation has what it came for and the thread holds no lock, as a task pays when it returns to user mode. An operation inside a callback of `get_many`
//! leaves its debt to the outer one, which may have reads in flight that others wait for.
//!
//! Paying means to reclaim from each level that is above its `high`, as many pages as are owed at first and a batch at a time then, until all
//! levels have come down or nothing comes. Source: `memcg.md` §6.1, 6.2.

use crate::charge::Payer;
use crate::many::pipelines;
use crate::pool::Pool;
use lowtide_core::limits::{MAX_RECLAIM_RETRIES, SWAP_CLUSTER_MAX};
use lowtide_core::{Reason, Reclaim, Task};
use std::cell::RefCell;

/// What a thread owes.
#[derive(Clone, Copy, Debug)]
struct Debt {
    /// [`Pool::number`].
    pool: u64,
    payer: Payer,
    pages: u64,
}

thread_local! {
    static DEBTS: RefCell<Vec<Debt>> = const { RefCell::new(Vec::new()) };
}

impl Pool {
    /// Notes that this thread charged pages above `high`.
    pub(crate) fn owe(&self, payer: Payer, pages: u64) {
        // A thread that is ending has no debts any more.
        let _ = DEBTS.try_with(|debts| {
            let mut debts = debts.borrow_mut();
            match debts.iter_mut().find(|d| d.pool == self.number && d.payer == payer) {
                Some(debt) => debt.pages += pages,
                None => debts.push(Debt { pool: self.number, payer, pages }),
            }
        });
    }

    /// Pays what this thread owes to this pool. To be called where an operation that may have charged has what it came for, without any lock.
    ///
    /// Cost: a look at a thread-local if nothing is owed.
    #[inline]
    pub(crate) fn settle_high(&self) {
        let owes = DEBTS.try_with(|debts| !debts.borrow().is_empty());
        if owes != Ok(true) || pipelines() > 0 {
            return;
        }
        while let Some(debt) = self.take_debt() {
            self.pay(debt);
        }
    }

    fn take_debt(&self) -> Option<Debt> {
        DEBTS.with_borrow_mut(|debts| {
            let at = debts.iter().position(|d| d.pool == self.number)?;
            Some(debts.swap_remove(at))
        })
    }

    /// The over-limit handler of §6.2. It reclaims; how long the thread sleeps is a law's to say, and this is the one place to ask it: after
    /// each round, with the levels that are still above `high`, what is owed, and what was reclaimed.
    #[cold]
    fn pay(&self, debt: Debt) {
        let mut goal = debt.pages;
        let mut retries = MAX_RECLAIM_RETRIES;
        let mut state = self.lock();
        // The group is looked up each time: it may be removed meanwhile, and its parent have the debt.
        while let Some(group) = state.group_of(debt.payer) {
            let levels = state.engine.levels_over_high(group);
            if levels.is_empty() {
                return;
            }
            let mut reclaimed = 0;
            for level in levels {
                state.engine.count_high(level);
                let reclaim = Reclaim::new(level, goal, Reason::Direct, Task::DESCRIPTOR);
                let pages;
                (state, pages) = self.reclaim(state, reclaim);
                reclaimed += pages;
            }
            if reclaimed == 0 {
                if retries == 0 {
                    return;
                }
                retries -= 1;
            }
            goal = SWAP_CLUSTER_MAX;
        }
    }
}
