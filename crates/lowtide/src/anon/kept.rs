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
//! the tenant's budget, so loading is exclusive, as for zswap and zram (C7, C9). A page behind a
//! pointer is stored to without notice, so it keeps nothing either.
//!
//! While a slot is kept it counts as swap that the tenant uses. What is said of a kept slot, here
//! and in the engine, changes under the pool's lock. Stores are called without it.

use crate::pool::Pool;
use crate::space::Space;
use crate::swap::{Slot, Store};
use crate::translation::State as EntryState;
use lowtide_core::{FolioId, Task};
use std::sync::{Arc, Mutex};

/// Slots that are taken when the file is full, at least: more than a batch needs, so that the next
/// does not look again.
const WANTED: usize = 4096;
/// Pages that are looked at before the pool's lock is released for others.
const AT_ONCE: usize = 256;

/// Slots that reclaim has taken from pages in memory, to be freed when the pool's lock is not held.
#[derive(Debug, Default)]
pub(crate) struct Void(Mutex<Vec<(Arc<dyn Store>, Slot)>>);

impl Void {
    /// Reclaim has taken the slot of a page. Under the pool's lock.
    pub(crate) fn note(&self, space: &Space, page: u64) {
        let anon = space.anon();
        let slot = anon.take_kept(page);
        if !slot.is_none() {
            crate::sync::lock(&self.0).push((anon.store(), slot));
        }
    }

    /// Whether there are some.
    pub(crate) fn is_empty(&self) -> bool {
        crate::sync::lock(&self.0).is_empty()
    }

    /// Frees them. Returns how many. Without the pool's lock.
    pub(crate) fn free(&self) -> usize {
        let slots = std::mem::take(&mut *crate::sync::lock(&self.0));
        let count = slots.len();
        slots.into_iter().for_each(|(store, slot)| store.free(slot));
        count
    }
}

/// A page that this thread has locked is stored to: what the file has of it is void.
#[cold]
pub(super) fn give_up(pool: &Pool, space: &Space, page: u64, frame: u32) {
    let anon = space.anon();
    if anon.slots.get(page).is_none() {
        return;
    }
    let slot = {
        let mut state = pool.lock();
        if pool.is_poisoned() {
            return;
        }
        state.engine.swap_fault(FolioId(frame), true, Task::DESCRIPTOR);
        anon.take_kept(page)
    };
    // Reclaim may have taken it meanwhile.
    if !slot.is_none() {
        anon.store().free(slot);
    }
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
            if !take(pool, space, pages) {
                return freed + pool.void.free();
            }
            freed += pool.void.free();
            if freed >= WANTED {
                return freed;
            }
        }
    }
    freed
}

/// Takes the slots of some pages, where these are in memory, under the pool's lock. False if the
/// pager has failed.
fn take(pool: &Pool, space: &Arc<Space>, pages: &[u64]) -> bool {
    let mut state = pool.lock();
    if pool.is_poisoned() {
        return false;
    }
    let there = state.spaces.get(space.id.0 as usize).and_then(Option::as_ref);
    if !there.is_some_and(|there| Arc::ptr_eq(there, space)) {
        // The region has ended, and its frames are of others.
        return true;
    }
    for &page in pages {
        // One that is locked is being stored to, or evicted.
        if let EntryState::Resident { frame, .. } = space.table.entry(page).load()
            && state.engine.swap_fault(FolioId(frame), true, Task::DESCRIPTOR)
        {
            pool.void.note(space, page);
        }
    }
    true
}
