//! Dirty throttling: writers that are faster than their device.
//!
//! The engine decides how much each thread may make dirty (`lowtide-core`, `dirty/`); here writers
//! report what they did, and do what it decides. A thread has a [`Dirtier`] with each pool: the
//! pages that it made dirty and has not answered for. From time to time it has to answer, which may
//! mean a pause, of 200 ms at most.
//!
//! ```text
//!   a batch was stored ──► dirtied()       under the lock that the batch took anyway
//!     time to answer   ──► balance_dirty() without locks: wake the flusher, pause, look again
//! ```
//!
//! A thread that has guards, or reads in flight, does not pause, because others may wait for it; it
//! answers after the next batch that finds it free. Without background threads no other thread
//! would write while a writer pauses: it writes instead.
//!
//! **How far the limit may be exceeded.** A batch is no longer than what the thread may still make
//! dirty before it has to answer, so each thread is at most that far above the limit
//! ([`Dirtier::room`]: 32 pages when it begins, then the fewer the less room there is), or one
//! large folio.
//!
//! **A device that takes nothing.** At the limit a thread looks again after each pause, but not for
//! longer than the pager's timeout. Then it goes on, and does not wait at the limit again before
//! something has been written; nor does it wait for a file that fails at every try. So writes to a
//! dead device pause once, and fail with `OutOfBudget` when the budget is full.
//!
//! Source: `docs/kernel/fault-and-writeback.md` B4, B5.

use crate::fault::nested::is_nested;
use crate::pool::payer::Payer;
use crate::pool::{DirtiersLeft, Pool, State, StateGuard};
use crate::space::Space;
use lowtide_core::Dirtier;
use lowtide_io::Deadline;
use lowtide_pin::{hazard, sync};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// What this thread owes to one pool.
#[derive(Debug)]
struct Mine {
    /// [`Pool::number`].
    pool: u64,
    dirtier: Dirtier,
    /// Set when the wait timed out: the pages that had been written by then.
    gave_up: Option<u64>,
    left: Arc<DirtiersLeft>,
}

impl Drop for Mine {
    fn drop(&mut self) {
        sync::lock(&self.left).push(self.dirtier);
    }
}

thread_local! {
    static MINE: RefCell<Vec<Mine>> = const { RefCell::new(Vec::new()) };
}

/// Registers the destructor of what this thread owes (`thread_locals.rs`).
pub(crate) fn register() {
    MINE.with(|_| ());
}

/// What the thread owes to this pool. A thread that is ending owes nothing.
fn mine<T>(pool: &Pool, with: impl FnOnce(&mut Mine) -> T) -> Option<T> {
    let found = MINE.try_with(|mine| {
        let mut mine = mine.borrow_mut();
        let at = mine.iter().position(|m| m.pool == pool.number).unwrap_or_else(|| {
            // Those of pools that are gone are forgotten.
            mine.retain(|m| Arc::strong_count(&m.left) > 1);
            let left = Arc::clone(&pool.dirtiers_left);
            mine.push(Mine { pool: pool.number, dirtier: Dirtier::default(), gave_up: None, left });
            mine.len() - 1
        });
        with(&mut mine[at])
    });
    found.ok()
}

/// How many pages this thread may make dirty at once.
pub(super) fn room_to_dirty(pool: &Pool) -> u64 {
    mine(pool, |mine| mine.dirtier.room()).unwrap_or(1)
}

/// This thread made pages dirty that were not. Returns whether it has to answer for what it
/// did, when it owns nothing.
pub(super) fn dirtied(pool: &Pool, state: &mut State, space: &Space, pages: u64) -> bool {
    for dirtier in sync::lock(&pool.dirtiers_left).drain(..) {
        state.engine.dirtier_gone(dirtier);
    }
    mine(pool, |mine| state.engine.dirtied(&mut mine.dirtier, space.id, pages)).unwrap_or(false)
}

/// Answers for the pages that this thread made dirty. The thread has no lock and owns no
/// translation.
pub(super) fn balance_dirty(pool: &Pool, space: &Space) {
    if is_nested() || hazard::this_thread_holds() || pool.is_poisoned() {
        return;
    }
    let deadline = Deadline::after(pool.memory_timeout);
    let mut state = pool.lock();
    loop {
        let now = pool.now();
        let answer =
            mine(pool, |mine| state.engine.balance_dirty(&mut mine.dirtier, space.id, now));
        let Some(balance) = answer else { return };
        if !pool.background {
            if balance.wake_flusher || balance.pause_ns.is_some() {
                let group = state.group_of(Payer::Space(space.id));
                drop(state);
                if let Some(group) = group {
                    pool.write_back_below(group);
                }
            }
            return;
        }
        if balance.wake_flusher {
            drop(state);
            pool.wake_flusher_of(space);
            state = pool.lock();
        }
        let written = pool.io.counts.write_bytes.load(Relaxed);
        if balance.again && mine(pool, |mine| mine.gave_up) == Some(Some(written)) {
            return;
        }
        if let Some(ns) = balance.pause_ns {
            state = pause(pool, state, Duration::from_nanos(ns));
        }
        if !balance.again || pool.closing.load(Relaxed) {
            return;
        }
        if deadline.has_passed() || sync::lock(&space.ledger).hopeless().is_some() {
            let written = pool.io.counts.write_bytes.load(Relaxed);
            mine(pool, |mine| mine.gave_up = Some(written));
            return;
        }
    }
}

/// Sleeps without the lock; not longer than the pool is open.
fn pause<'a>(pool: &'a Pool, mut state: StateGuard<'a>, time: Duration) -> StateGuard<'a> {
    let (until, mut in_time) = (Deadline::after(time), true);
    while in_time && !pool.closing.load(Relaxed) {
        (state, in_time) = state.wait_with(|guard| until.wait(&pool.throttled, guard));
    }
    state
}
