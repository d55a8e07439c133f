//! Above a limit: a thread that exceeded `high`, or refaulted pages that a limit had evicted,
//! reclaims or sleeps before its next miss.
//!
//! The engine decides how much (`lowtide-core`, `high/`); this file carries it out. A thread has an
//! *account* with each pool (`account.rs`): pages that it charged above `high`, stall that it has
//! not paid for, and whether it is stalled now.
//!
//! ```text
//!   charge ──► over high ──► owe()
//!   insert ──► refault of a page that a limit evicted ──► Stall ──(the read)──► stall_ends()
//!              stall_ends() books pressure, debt and advice
//!   the thread's next miss, before it takes anything ──► settle_high(): reclaim, then sleep
//! ```
//!
//! A kernel lets a task pay when it returns to its program. Here the program would have a guard by
//! then, and a store to that page would wait for the sleeping thread; so a thread pays at its next
//! miss, and not while it has guards or reads in flight. A thread that never misses again never
//! pays; that is harmless. A thread that never drops a guard does not pay either; its pages are
//! evicted all the same.
//!
//! **Which stalls are counted.** A stall is the time of a read that brings back a page which a
//! tenant's limit had evicted, and the time of reclaim for a tenant. Reads that overlap in one
//! thread are one stall, not many. Threads that wait for another thread's read, and pages that the
//! root's budget evicted, are not followed: that would cost every miss two acquisitions of the
//! lock. Nor does a pager know what threads do between its calls, so *full* pressure equals *some*.
//!
//! Source: `docs/kernel/memcg.md` §6, 7, 8, 14.

use super::account::{Account, Over, Stall};
use super::auto::UNSEEN_NS;
use super::payer::Payer;
use super::{Pool, State, StateGuard};
use crate::error::Error;
use crate::events;
use crate::fault::nested::{is_nested, is_serving};
use lowtide_core::high::handler::{HighPolicy, NOT_WORTH_NS};
use lowtide_core::high::{self, HighNext, Payment, Refaulted};
use lowtide_core::{MemcgId, Task};
use lowtide_io::Deadline;
use lowtide_pin::hazard;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Ticks a second, for penalties that count in ticks: the value of the kernels on which they were
/// published.
const HZ: u64 = 1000;

/// How a debt is paid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pay {
    All,
    /// What is above a limit is evicted; the time that would be slept is let off.
    Reclaim,
}

impl Pool {
    fn account<T>(&self, with: impl FnOnce(&mut Account) -> T) -> Option<T> {
        Account::with(self.number, with)
    }

    /// Notes that this thread charged pages above `high`, or pages that a program wants to know of.
    pub(crate) fn owe(&self, payer: Payer, pages: u64) {
        self.account(|account| match account.over.iter_mut().find(|o| o.payer == payer) {
            Some(over) => over.pages += pages,
            None => account.over.push(Over { payer, pages }),
        });
    }

    /// A page that is about to be read came back. Returns what to pass to [`Pool::stall_ends`] when
    /// it is there, if that matters to any limit.
    pub(crate) fn stall_begins(
        &self,
        state: &mut State,
        payer: Payer,
        group: MemcgId,
        refaulted: Option<Refaulted>,
    ) -> Option<Stall> {
        // The refault-recency policy looks at every refault, the others at those that a limit has
        // caused.
        let all = state.engine.high_policy(group) == HighPolicy::RefaultRecency;
        let refaulted = refaulted.filter(|refaulted| all || refaulted.is_for_a_limit())?;
        let began = self.now();
        if refaulted.recent
            && let Some(change) = self.account(|account| account.psi.enter_stall())
        {
            state.engine.psi_change(group, change, began);
        }
        Some(Stall { refaulted, payer, began })
    }

    /// A page came back without a read: counts the refault. No thread waited.
    pub(crate) fn refault_without_wait(
        &self,
        state: &mut State,
        group: MemcgId,
        refaulted: Option<Refaulted>,
    ) {
        let Some(refaulted) = refaulted else { return };
        let now = self.now();
        self.account(|account| {
            state.engine.stalled(group, &refaulted, 0, 0, &mut account.debt, now);
        });
    }

    /// The page is there, or could not be read: books the wait.
    pub(crate) fn stall_ends(&self, stall: Option<Stall>, bytes: u64) {
        self.end_stall(stall, bytes, 0);
    }

    /// The same of a page that had come in before it was noticed: what a thread waited for it is
    /// unknown.
    pub(crate) fn unseen_stall_ends(&self, stall: Option<Stall>, bytes: u64) {
        self.end_stall(stall, bytes, UNSEEN_NS);
    }

    fn end_stall(&self, stall: Option<Stall>, bytes: u64, unseen_ns: u64) {
        let Some(Stall { refaulted, payer, began }) = stall else { return };
        let mut state = self.lock();
        if self.is_poisoned() {
            return;
        }
        let now = self.now();
        let Some(group) = state.group_of(payer) else { return };
        self.account(|account| {
            if refaulted.recent {
                state.engine.psi_change(group, account.psi.leave_stall(), now);
            }
            let since = began.max(account.booked_until);
            account.booked_until = now;
            account.stalled_for = Some(payer);
            let stall_ns = now.saturating_sub(since);
            state.engine.waited(&refaulted, stall_ns.max(unseen_ns));
            state.engine.stalled(group, &refaulted, stall_ns, bytes, &mut account.debt, now);
        });
    }

    /// Reclaim for a tenant begins or ends in this thread: a stall.
    pub(crate) fn reclaim_stall(&self, state: &mut State, group: MemcgId, begins: bool) {
        let change = self.account(|account| {
            if begins { account.psi.enter_stall() } else { account.psi.leave_stall() }
        });
        if let Some(change) = change {
            state.engine.psi_change(group, change, self.now());
        }
    }

    /// Whether this thread owes this pool anything. Cost: a look at a thread-local.
    #[inline]
    pub(crate) fn owes(&self) -> bool {
        Account::any_owed(self.number)
    }

    /// Pays what this thread owes to this pool. Called without any lock; with guards or reads in
    /// flight it is a no-op, and the debt stays.
    ///
    /// # Errors
    /// [`Error::Poisoned`].
    #[cold]
    pub(crate) fn settle_high(&self) -> Result<(), Error> {
        self.settle(if is_serving() { Pay::Reclaim } else { Pay::All })
    }

    /// The same, in part.
    pub(crate) fn settle(&self, how: Pay) -> Result<(), Error> {
        self.check()?;
        if is_nested() || hazard::this_thread_holds() {
            return Ok(());
        }
        while let Some(over) = self.account(|account| account.over.pop()).flatten() {
            self.pay(over, how)?;
        }
        let stalled_for = self.account(|account| account.stalled_for.take()).flatten();
        if let Some(payer) = stalled_for {
            let owes = {
                let mut state = self.lock();
                let now = self.now();
                let group = state.group_of(payer);
                self.account(|account| {
                    group.map_or(0, |group| state.engine.owes(group, &account.debt, now))
                })
            };
            if owes.is_some_and(|ns| ns > NOT_WORTH_NS) {
                self.pay(Over { payer, pages: 0 }, how)?;
            }
        }
        Ok(())
    }

    /// The over-limit handler, carried out.
    fn pay(&self, over: Over, how: Pay) -> Result<(), Error> {
        let mut state = self.lock();
        let Some(group) = state.group_of(over.payer) else { return Ok(()) };
        let mut pages = over.pages;
        let mut payment = Payment::new(&state.engine, group, &mut pages);
        let mut reclaimed = None;
        loop {
            let now = self.now();
            let next = self.account(|account| {
                let mut payer = high::Payer {
                    task: Task::DESCRIPTOR,
                    debt: &mut account.debt,
                    number: account.number,
                    hz: HZ,
                    dying: false,
                };
                payment.next(&mut state.engine, &mut payer, now, reclaimed.take())
            });
            match next {
                Some(HighNext::Reclaim(reclaim)) => {
                    self.reclaim_stall(&mut state, group, true);
                    let pages;
                    (state, pages) = self.reclaim(state, *reclaim);
                    reclaimed = Some(pages);
                    self.reclaim_stall(&mut state, group, false);
                }
                Some(HighNext::Sleep { .. }) if how == Pay::Reclaim => return Ok(()),
                Some(HighNext::Sleep { ns, cause }) => {
                    if events::throttles_wanted() {
                        let tenant = state.names.path(&state.engine, group);
                        drop(state);
                        events::throttled(&tenant, ns, cause);
                        state = self.lock();
                    }
                    self.throttle(state, group, ns);
                    state = self.lock();
                }
                Some(HighNext::Done) | None => return Ok(()),
            }
        }
    }

    /// Sleeps for a limit. Ends early when the pool is closed.
    fn throttle(&self, mut state: StateGuard<'_>, group: MemcgId, ns: u64) {
        if let Some(change) = self.account(|account| account.psi.enter_throttle()) {
            state.engine.psi_change(group, change, self.now());
        }
        let (until, mut in_time) = (Deadline::after(Duration::from_nanos(ns)), true);
        while in_time && !self.closing.load(Relaxed) {
            (state, in_time) = state.wait_with(|guard| until.wait(&self.throttled, guard));
        }
        self.io.counts.throttled.fetch_add(ns, Relaxed);
        if let Some(change) = self.account(|account| account.psi.leave_throttle()) {
            state.engine.psi_change(group, change, self.now());
        }
    }
}
