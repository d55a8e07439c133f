//! Charging: finding the group that pays for memory, and waiting for room where waiting can help.
//!
//! The engine's charge path (`lowtide-core`, `charge.rs`) decides; here its decisions are carried
//! out. Two kinds of things are charged: pages of a space, and reservations. The group that pays
//! for a thing is looked up under the lock each time, because a tenant may be removed while its
//! charge reclaims: then its parent pays.
//!
//! **Waiting.** A charge that finds nothing to evict is tried again until the pager's timeout
//! ends, as long as something in the full group may become evictable: guards are dropped and writes
//! end. The thread that waits writes dirty pages below the full group itself. An attempt may look
//! at every page of the group, so the pauses between fruitless attempts grow, and an attempt ends
//! when the patience does.
//!
//! Four conditions end the charge early, because no waiting changes them: guards of this thread pin
//! all pages; the dirty pages could not be written, at several attempts, also since the wait began;
//! there are anonymous pages only, and swap has refused as many as there are, twice, and has taken
//! none meanwhile; the kernel refuses the barrier that shows which pages are being read. Where
//! pages do not go to swap for a reason that may pass, that takes some more attempts.
//!
//! A thread inside a callback of `get_many` waits long enough for a write to end, and no longer. It
//! pins the page that it is shown, and perhaps has reads in flight. Several such threads may pin
//! all pages together, and each would wait for the others to return from their callbacks.

use super::oom::held_here;
use super::payer::{Effort, Full, Payer};
use super::{Pool, State, StateGuard};
use crate::fault::nested::is_nested;
use crate::swap::{REFUSAL, Tried};
use crate::zcache::give_up;
use lowtide_core::{Charge, MemcgId, Next, Reclaim, Task};
use lowtide_io::Deadline;
use lowtide_pin::hazard;
use std::time::Duration;

/// First pause between two tries of a charge that waits; each is twice as long as the one before.
const PAUSE: Duration = Duration::from_millis(1);
/// How often it doubles: 64 ms is the longest.
const DOUBLINGS: u32 = 6;
/// Fruitless tries in a row that need no pause: reclaim takes a few before it has aged what it may
/// evict.
const FREE_TRIES: u32 = 4;
/// Fruitless tries in a row after which a thread that must not wait for others gives up: half a
/// second, in which a device writes what is dirty.
const NESTED_TRIES: u32 = FREE_TRIES + 2 * DOUBLINGS;
/// Guards of a thread from which on it is worth checking, before anything is tried, whether they
/// pin all pages there are.
const MANY_GUARDS: usize = 64;

/// Attempts to make room that have failed so far.
#[derive(Clone, Copy, Debug)]
struct Failed {
    /// To write any of the open files.
    writes: u64,
    /// To store pages of the full group in swap.
    swaps: Tried,
}

impl State {
    /// The group that pays; `None` if the thing that it pays for is gone.
    pub(crate) fn group_of(&self, payer: Payer) -> Option<MemcgId> {
        match payer {
            Payer::Space(id) => {
                self.spaces.get(id.0 as usize)?.as_ref().map(|_| self.engine.group_of_space(id))
            }
            Payer::Reservation(index) => self.reservations.group(index),
            Payer::Swap(index) => self.swaps.group(index),
        }
    }
}

impl Pool {
    /// Charges pages to the group that pays. Returns that group; the charge is valid until the lock
    /// is released. Reclaims when a group is full, and waits if nothing can be reclaimed, but not
    /// longer than the pool's timeout; less than that if `effort` says so.
    pub(crate) fn charge<'a>(
        &'a self,
        mut state: StateGuard<'a>,
        payer: Payer,
        pages: u64,
        task: Task,
        effort: Effort,
    ) -> (StateGuard<'a>, Result<MemcgId, Full>) {
        let wait = effort == Effort::Wait;
        let mut deadline = None;
        let (mut fruitless, mut failed_before) = (0, None);
        loop {
            let group = if self.is_poisoned() { None } else { state.group_of(payer) };
            let Some(group) = group else {
                // Read-ahead in a file that was closed meanwhile.
                let (over, payer) = (MemcgId::ROOT, MemcgId::ROOT);
                return (state, Err(Full { over, payer, nested: false }));
            };
            let mut charge = match effort {
                Effort::Wait | Effort::Reclaim => Charge::patient(group, pages),
                Effort::ReclaimOnce => Charge::without_retries(group, pages),
            };
            let mut reclaimed = None;
            let over = loop {
                let next =
                    self.miss_clock.engine(|| charge.next(&mut state.engine, task, reclaimed));
                match next {
                    Next::Charged { over_high } => {
                        if over_high > 0 {
                            self.owe(payer, over_high);
                        }
                        return (state, Ok(group));
                    }
                    Next::Reclaim(reclaim) => {
                        let over = reclaim.target();
                        let until =
                            *deadline.get_or_insert_with(|| Deadline::after(self.memory_timeout));
                        let mut pinned = false;
                        if fruitless == 0 {
                            (state, pinned) = self.is_pinned_here(state, over);
                        }
                        if pinned {
                            return (state, Err(Full { over, payer: group, nested: false }));
                        }
                        if fruitless >= FREE_TRIES && wait {
                            let failed = state.failed_since(&mut failed_before, over);
                            if let Some(nested) =
                                self.gives_up(&mut state, over, failed, fruitless, until)
                            {
                                return (state, Err(Full { over, payer: group, nested }));
                            }
                            state = self.await_room(state, over, fruitless - FREE_TRIES);
                        }
                        let result;
                        (state, result) = self.reclaim_for(state, group, *reclaim, until);
                        fruitless = if result == 0 { fruitless + 1 } else { 0 };
                        reclaimed = Some(result);
                    }
                    Next::Failed { over } => break over,
                    Next::Gone => break group,
                }
            };
            if !state.engine.alive(group) {
                // Its parent pays.
                continue;
            }
            // Everything is pinned, in flight, dirty or being written. Others will give up some of
            // it.
            let until = *deadline.get_or_insert_with(|| Deadline::after(self.memory_timeout));
            if !wait {
                return (state, Err(Full { over, payer: group, nested: false }));
            }
            let failed = state.failed_since(&mut failed_before, over);
            if let Some(nested) = self.gives_up(&mut state, over, failed, fruitless, until) {
                return (state, Err(Full { over, payer: group, nested }));
            }
            state = self.await_room(state, over, fruitless.saturating_sub(FREE_TRIES));
        }
    }

    /// Reclaims for a group that is to pay, and counts the time as its tenant's stall. Where there
    /// is nothing to evict, compressed copies are given up.
    fn reclaim_for<'a>(
        &'a self,
        mut state: StateGuard<'a>,
        group: MemcgId,
        reclaim: Reclaim,
        until: Deadline,
    ) -> (StateGuard<'a>, u64) {
        let (over, stalls) = (reclaim.target(), group != MemcgId::ROOT);
        if stalls {
            self.reclaim_stall(&mut state, group, true);
        }
        let (mut state, mut reclaimed) = self.reclaim_until(state, reclaim, until);
        if reclaimed == 0 {
            (state, reclaimed) = give_up(self, state, over);
        }
        if stalls {
            self.reclaim_stall(&mut state, group, false);
        }
        (state, reclaimed)
    }

    /// Whether guards of this thread pin all that a group has, and no compressed copies can be
    /// given up instead, as some are now. Only where it has many guards.
    fn is_pinned_here<'a>(
        &'a self,
        state: StateGuard<'a>,
        over: MemcgId,
    ) -> (StateGuard<'a>, bool) {
        if hazard::guards_at_most() < MANY_GUARDS || !held_here(&state, over) {
            return (state, false);
        }
        let (state, copies) = give_up(self, state, over);
        (state, copies == 0)
    }

    /// Whether a thread that waits for room gives up, and if so, whether that is only because it
    /// must not wait for others ([`Full::nested`]).
    fn gives_up(
        &self,
        state: &mut State,
        over: MemcgId,
        failed: Failed,
        fruitless: u32,
        until: Deadline,
    ) -> Option<bool> {
        let hopeless = self.is_hopeless(state, over, failed);
        let nested = !hopeless && is_nested() && fruitless >= NESTED_TRIES;
        (until.has_passed() || hopeless || nested).then_some(nested)
    }

    /// Whether waiting for room in a group changes nothing. `failed` is [`State::failed`] when the
    /// wait began.
    fn is_hopeless(&self, state: &mut State, over: MemcgId, failed: Failed) -> bool {
        // One try may have begun before the trouble was over.
        let tried = state.failed_rounds() >= failed.writes + 2;
        let refused = state.tried(over).refused.saturating_sub(failed.swaps.refused);
        // Many batches have few pages, and those that never go are together: a few batches say
        // nothing of the other pages.
        let refused = refused > 0 && {
            let stat = state.engine.stat(over);
            refused >= 2 * REFUSAL * (stat.anon - stat.reserved)
        };
        hazard::is_refused()
            || !state.engine.may_become_reclaimable(over)
            || (tried && !state.engine.has_clean(over) && state.unwritable(over).is_some())
            || (refused && !state.engine.has_file(over))
            || held_here(state, over)
    }

    /// Releases the lock until something may have become evictable in a group, for a moment that is
    /// longer after more fruitless `tries`.
    pub(crate) fn await_room<'a>(
        &'a self,
        mut state: StateGuard<'a>,
        over: MemcgId,
        tries: u32,
    ) -> StateGuard<'a> {
        if state.engine.dirty() > 0 {
            drop(state);
            self.write_back_urgently(over);
            state = self.lock();
        }
        self.publish_alone(&mut state);
        state.wait(|guard| self.freed.wait(guard, PAUSE * (1 << tries.min(DOUBLINGS))))
    }

    /// Publishes statistics where no background thread does, for a thread that has found nothing to
    /// evict. Classical reclaim decides by what was published last, and would find nothing again.
    /// Cost: O(groups).
    pub(crate) fn publish_alone(&self, state: &mut State) {
        if !self.background {
            state.engine.publish();
        }
    }
}

impl State {
    /// What had failed when this charge began to wait for room in a group: now, if it has just
    /// begun to. Where swap has taken pages since, it begins again for swap.
    fn failed_since(&self, before: &mut Option<(MemcgId, Failed)>, over: MemcgId) -> Failed {
        let now = self.failed(over);
        match before {
            Some((same, failed)) if *same == over => {
                if failed.swaps.taken != now.swaps.taken {
                    failed.swaps = now.swaps;
                }
                *failed
            }
            _ => before.insert((over, now)).1,
        }
    }

    /// What has failed so far, where a group is full.
    fn failed(&self, over: MemcgId) -> Failed {
        Failed { writes: self.failed_rounds(), swaps: self.tried(over) }
    }

    /// What was tried to store of a group and those below it.
    fn tried(&self, over: MemcgId) -> Tried {
        self.swaps.tried(|group| self.engine.is_within(group, over))
    }

    /// How often writing any of the open files has failed so far.
    fn failed_rounds(&self) -> u64 {
        self.spaces
            .iter()
            .flatten()
            .map(|space| lowtide_pin::sync::lock(&space.ledger).failed_rounds())
            .sum()
    }
}
