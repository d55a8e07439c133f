//! The part of a reclaim pass that compresses.
//!
//! The victims' translations are locked and no slot of a reader is on them, so their bytes stay as
//! they are while the pool's lock is given back. What could not be stored is dirty as before, gives
//! its slot up, and goes back among the young, as in a kernel whose swap refuses a page
//! (`docs/kernel/fault-and-writeback.md` C3, step 5).

use super::slot::{Slot, Store};
use crate::pool::{Pool, State};
use crate::space::Space;
use crate::translation::Taken;
use lowtide_core::{FolioId, Owner, Task, Unmapped, Victim};
use std::sync::{Arc, MutexGuard};

/// Frames that compaction is to free when a page was refused.
const COMPACTED: usize = 16;

/// A victim on its way to swap.
struct Leaving {
    /// Its place among the victims.
    at: usize,
    space: Arc<Space>,
    page: u64,
    frame: u32,
    /// Where it is in swap, if it was stored.
    slot: Option<Slot>,
}

/// Stores the victims that go to swap and that were unmapped. Gives the lock back meanwhile.
pub(crate) fn swap_out<'a>(
    pool: &'a Pool,
    mut state: MutexGuard<'a, State>,
    victims: &mut [Victim],
) -> MutexGuard<'a, State> {
    let mut leaving = Vec::new();
    let goes = |v: &Victim| v.to_swap && v.outcome == Unmapped::Done;
    for (at, victim) in victims.iter_mut().enumerate().filter(|(_, v)| goes(v)) {
        let id = victim.owner.space.0 as usize;
        let space = state.spaces[id].clone().expect("a folio's space is open");
        // It has no other copy: a page that was in swap has given its slot up.
        let begun = state.engine.start_writeback(victim.folio);
        assert!(begun, "{:?} goes to swap, and there is nothing to write", victim.owner);
        victim.outcome = Unmapped::Writing;
        let (page, frame) = (victim.owner.page, victim.folio.0);
        leaving.push(Leaving { at, space, page, frame, slot: None });
    }
    if leaving.is_empty() {
        return state;
    }
    drop(state);
    let mut compacted = false;
    for page in &mut leaving {
        let store = page.space.anon().store();
        page.slot = store_page(pool, &*store, page);
        if page.slot.is_none() && !compacted {
            compacted = true;
            if store.compact(COMPACTED) > 0 {
                page.slot = store_page(pool, &*store, page);
            }
        }
    }
    let mut state = pool.lock();
    if pool.is_poisoned() {
        return state;
    }
    if leaving.iter().all(|page| page.slot.is_none()) {
        state.swaps.note_refusal();
    }
    for Leaving { at, space, page, frame, slot } in &leaving {
        let id = FolioId(*frame);
        state.engine.end_writeback(id, slot.is_some(), Task::DESCRIPTOR);
        match slot {
            Some(slot) => space.anon().slots.set(*page, *slot),
            None => {
                state.engine.swap_fault(id, true, Task::DESCRIPTOR);
                victims[*at].outcome = Unmapped::Pinned;
                let entry = space.table.entry(*page);
                if entry.unlock(Taken::idle(*frame)) {
                    pool.waits.complete(entry, &Ok(()));
                }
            }
        }
    }
    state
}

fn store_page(pool: &Pool, store: &dyn Store, leaving: &Leaving) -> Option<Slot> {
    let owner = Owner { space: leaving.space.id, page: leaving.page };
    // The bytes do not change: see the module documentation.
    store.store(owner, pool.bytes(leaving.frame)).ok()
}
