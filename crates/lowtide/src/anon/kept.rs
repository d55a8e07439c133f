//! Pages in memory that keep their slot in the swap file: the swap cache.
//!
//! A page that comes back from the file, and is not stored to, is there as it is in memory: evicted
//! again, it needs no write. So it keeps its slot, as in a kernel
//! (`docs/kernel/fault-and-writeback.md` A7, C3), until
//!
//! * it is stored to ([`give_up`]), given up, or its region ends;
//! * more than half of the file, of swap, or of what its tenant may have there is used: then pages
//!   that come back keep none, and reclaim takes the slots of pages that it finds in use (with
//!   `tide`, which decides without a look at swap, they keep them);
//! * the file is full, and others need the room ([`give_some_up`]).
//!
//! A page that comes back from compressed memory keeps nothing: its second copy would take room in
//! the tenant's budget, so loading is exclusive, as for zswap and zram (C7, C9).
//!
//! **Behind a pointer** a page that keeps its slot is installed *write-protected*, so that its
//! first store is a message, as of a file (`map/stores.rs`):
//!
//! > **Under the pool's lock, a page behind a pointer that has a slot is protected, or locked.**
//!
//! [`stored_through_a_pointer`] gives the slot up before it ends the protection. A message costs
//! more than the write that it saves where all pages are stored to in order. So stores that follow
//! each other ([`StoresInOrder`]) end the protection of a run of pages, twice as long each time.
//! A page that comes in for a store is not protected, and keeps nothing.
//!
//! While a slot is kept it counts as swap that the tenant uses. What is said of a kept slot, here
//! and in the engine, changes under the pool's lock. Stores are called without it.

use super::pages::AnonPages;
use crate::fault::Access;
use crate::pool::Pool;
use crate::space::Space;
use crate::swap::Slot;
use lowtide_core::{Engine, FolioId, Task};
use lowtide_pin::translation::{Entry, State as EntryState};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// Slots that are taken when the file is full, at least: more than a batch needs, so that the next
/// does not look again.
const WANTED: usize = 4096;
/// Pages that are looked at before the pool's lock is released for others.
const AT_ONCE: usize = 256;
/// Pages whose protection ends together, at most: as many as come in together.
const RUN: u64 = 64;
/// Places of a region at which stores in order are remembered.
const PLACES: usize = 8;

/// Whether a page that comes in, for a certain access, is to keep its slot if it has one. Behind a
/// pointer its first store has to be seen from the beginning.
pub(crate) fn keeps_slot(space: &Space, page: u64, access: Access) -> bool {
    let Some(anon) = &space.anon else { return false };
    let sees_stores = || match &space.mapped {
        Some(mapped) => access == Access::Mapped && mapped.watches(),
        None => true,
    };
    let slot = anon.slots.get(page);
    slot.is_in_file() && sees_stores() && anon.store().may_keep(slot)
}

/// Where the next store is expected, and how many pages it takes then.
#[derive(Debug, Default)]
pub(crate) struct StoresInOrder(Mutex<VecDeque<(u64, u64)>>);

impl StoresInOrder {
    /// How many pages are likely to be stored to from this one on.
    fn from(&self, page: u64) -> u64 {
        let mut places = lowtide_pin::sync::lock(&self.0);
        let place = places.iter().position(|(next, _)| *next == page);
        place.and_then(|at| places.remove(at)).map_or(1, |(_, run)| (run * 2).min(RUN))
    }

    /// Stores before `next` are not seen any more; it was hoped for `run` pages.
    fn note(&self, next: u64, run: u64) {
        let mut places = lowtide_pin::sync::lock(&self.0);
        if places.len() == PLACES {
            places.pop_front();
        }
        places.push_back((next, run));
    }
}

/// A page of a region behind a pointer is stored to, and this thread holds it: what the file has of
/// it is void, and so it is of those that are expected to follow. `unprotect` lets stores to them
/// go on. False, having done nothing, if another thread has the page locked at this moment.
pub(crate) fn stored_through_a_pointer(
    pool: &Pool,
    (space, order): (&Space, &StoresInOrder),
    page: u64,
    unprotect: impl FnOnce(Range<u64>),
) -> bool {
    let (anon, hoped) = (space.anon(), order.from(page));
    let mut slots = Vec::new();
    let mut end = page;
    let mut state = pool.lock();
    // One that is not resident comes in protected, or leaves, and stays protected.
    while end < page + hoped
        && let Some(EntryState::Resident { frame, .. }) = space.table.get(end).map(Entry::load)
    {
        if anon.keeps() && !anon.slots.get(end).is_none() && !pool.is_poisoned() {
            slots.extend(take_slot(&mut state.engine, anon, end, frame));
        }
        end += 1;
    }
    if end > page {
        unprotect(page..end);
    }
    drop(state);
    order.note(end, hoped);
    if !slots.is_empty() {
        anon.store().free_many(&slots);
    }
    end > page
}

/// A page that this thread has locked is stored to: what the file has of it is void.
#[cold]
pub(super) fn give_up(pool: &Pool, space: &Space, page: u64, frame: u32) {
    let anon = space.anon();
    if anon.slots.get(page).is_none() {
        return;
    }
    let slot = {
        let Ok(mut state) = pool.lock_sound() else { return };
        take_slot(&mut state.engine, anon, page, frame)
    };
    // Reclaim may have taken it meanwhile.
    if let Some(slot) = slot {
        anon.store().free(slot);
    }
}

/// A page in memory gives its slot up, under the pool's lock: what the file has of it is void.
/// Returns the slot, if it has one, which the caller frees without that lock.
fn take_slot(engine: &mut Engine, anon: &AnonPages, page: u64, frame: u32) -> Option<Slot> {
    engine.swap_fault(FolioId(frame), true, Task::DESCRIPTOR);
    Some(anon.take_kept(page)).filter(|slot| !slot.is_none())
}

/// Takes slots of pages in memory, [`WANTED`] or all there are: called when the file is full.
/// Returns how many.
pub(crate) fn give_some_up(pool: &Pool) -> usize {
    let spaces: Vec<_> = {
        let state = pool.lock();
        let keeps = |space: &&Arc<Space>| space.anon.as_ref().is_some_and(|anon| anon.keeps());
        state.spaces.iter().flatten().filter(keeps).cloned().collect()
    };
    let mut freed = 0;
    for space in &spaces {
        for pages in space.anon().slots.pages().chunks(AT_ONCE) {
            let taken = take(pool, space, pages);
            freed += taken.unwrap_or(0) + pool.void.free();
            if taken.is_none() {
                return freed;
            }
            if freed >= WANTED {
                return freed;
            }
        }
    }
    freed
}

/// Takes the slots of some pages, where these are in memory, and frees them. Returns how many;
/// `None` if the pager has failed.
fn take(pool: &Pool, space: &Arc<Space>, pages: &[u64]) -> Option<usize> {
    let mut state = pool.lock_sound().ok()?;
    let there = state.spaces.get(space.id.0 as usize).and_then(Option::as_ref);
    if !there.is_some_and(|there| Arc::ptr_eq(there, space)) {
        // The region has ended, and its frames are of others.
        return Some(0);
    }
    let anon = space.anon();
    let mut slots = Vec::new();
    for &page in pages {
        // One that is locked is being stored to, or evicted.
        if let EntryState::Resident { frame, .. } = space.table.entry(page).load()
            && !anon.slots.get(page).is_none()
        {
            slots.extend(take_slot(&mut state.engine, anon, page, frame));
        }
    }
    if slots.is_empty() {
        return Some(0);
    }
    // The region may end when the lock is free, and has no store any more.
    let store = anon.store();
    drop(state);
    store.free_many(&slots);
    Some(slots.len())
}
