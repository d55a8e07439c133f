//! Charging: whoever takes memory finds the group that pays, and waits where waiting can help.
//!
//! The engine's charge path (`lowtide-core`, `charge.rs`) decides; here its decisions are carried out. Two kinds of things are paid for: pages of a
//! space, and reservations. Which group pays for a thing is looked up under the lock each time, because a tenant may be removed while its
//! charge reclaims: then its parent pays.
//!
//! A charge that the engine gives up is tried again until the pager's patience ends, as long as something in the full group may become
//! evictable: guards are dropped and writes end. Dirty pages below the full group are written by whoever waits.

use crate::deadline::Deadline;
use crate::hazard;
use crate::pool::{Pool, State};
use lowtide_core::{Charge, MemcgId, Next, SpaceId, Task};
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

/// Pause between two tries of a charge that waits.
const PAUSE: Duration = Duration::from_millis(1);

/// Something that pages are charged for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Payer {
    /// The pages of an open file.
    Space(SpaceId),
    /// A reservation, by its place in [`State::reservations`].
    Reservation(usize),
}

/// No room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Full {
    /// The group that is full.
    pub(crate) over: MemcgId,
    /// The group that was to pay.
    pub(crate) payer: MemcgId,
}

impl State {
    /// The group that pays; `None` if the thing that it pays for is gone.
    pub(crate) fn group_of(&self, payer: Payer) -> Option<MemcgId> {
        match payer {
            Payer::Space(id) => {
                self.spaces.get(id.0 as usize)?.as_ref().map(|_| self.engine.group_of_space(id))
            }
            Payer::Reservation(index) => self.reservations.group(index),
        }
    }
}

impl Pool {
    /// Charges pages to whoever pays. Returns that group; its charge is of this hold of the lock. Reclaims when a group is full, and waits if nothing can be reclaimed,
    /// but not longer than the pool's patience; with `wait` false not at all.
    pub(crate) fn charge<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        payer: Payer,
        pages: u64,
        task: Task,
        wait: bool,
    ) -> (MutexGuard<'a, State>, Result<MemcgId, Full>) {
        let mut deadline = None;
        loop {
            let Some(group) = state.group_of(payer) else {
                // Reading ahead in a file that was closed meanwhile.
                return (state, Err(Full { over: MemcgId::ROOT, payer: MemcgId::ROOT }));
            };
            let mut charge = Charge::patient(group, pages);
            let mut reclaimed = None;
            let over = loop {
                match charge.next(&mut state.engine, task, reclaimed) {
                    Next::Charged { over_high } => {
                        if over_high > 0 {
                            self.owe(payer, over_high);
                        }
                        return (state, Ok(group));
                    }
                    Next::Reclaim(reclaim) => {
                        let tenant = group != MemcgId::ROOT;
                        if tenant {
                            self.reclaim_stall(&mut state, group, true);
                        }
                        let result;
                        (state, result) = self.reclaim(state, *reclaim);
                        if tenant {
                            self.reclaim_stall(&mut state, group, false);
                        }
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
            // Everything is held, in flight, dirty or being written. Others will let go of some of it.
            let deadline = *deadline.get_or_insert_with(|| Deadline::after(self.patience));
            if !wait
                || hazard::is_refused()
                || deadline.has_passed()
                || !state.engine.may_become_reclaimable(over)
            {
                return (state, Err(Full { over, payer: group }));
            }
            state = self.await_room(state, over);
        }
    }

    /// Lets go of the lock until something may have become evictable in a group, for a moment at most.
    pub(crate) fn await_room<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        over: MemcgId,
    ) -> MutexGuard<'a, State> {
        if state.engine.dirty() > 0 {
            drop(state);
            self.write_back_urgently(over);
            state = self.lock();
        }
        (state, _) = self.freed.wait_timeout(state, PAUSE).unwrap_or_else(PoisonError::into_inner);
        state
    }
}
