//! Moving compressed pages that are not needed soon from memory to the swap file.
//!
//! A page that is in swap belongs to no thread. To move it a thread makes its translation busy, as
//! a fault does, so that no other loads or drops it meanwhile; if another thread has it already, it
//! stays. Nothing is waited for while translations are owned, but the device.

use super::slot::{Slot, Store};
use crate::pool::Pool;
use crate::space::Space;
use crate::translation::{Entry, State as EntryState};
use lowtide_core::Owner;
use std::sync::Arc;

/// A page that is moved.
struct Moving {
    space: Arc<Space>,
    owner: Owner,
    shadow: u32,
    from: Slot,
    bytes: Vec<u8>,
}

/// Moves up to `count` of the coldest pages of a store to the file. Returns how many it were.
/// Called without the pool's lock.
pub(super) fn spill(pool: &Pool, store: &Arc<dyn Store>, count: usize) -> usize {
    let cold = store.coldest(count);
    let owned: Vec<_> = {
        let state = pool.lock();
        let space_of = |owner: Owner| state.spaces.get(owner.space.0 as usize)?.clone();
        cold.into_iter().filter_map(|(owner, from)| Some((space_of(owner)?, owner, from))).collect()
    };
    let mut moving: Vec<_> = owned
        .into_iter()
        .filter_map(|(space, owner, from)| claim(pool, store, (space, owner), from))
        .collect();
    moving.retain_mut(|page| {
        let read = store.peek(page.from, &mut page.bytes).is_ok();
        if !read {
            // Its next access has the error.
            page.give_back(pool);
        }
        read
    });
    let pages: Vec<_> = moving.iter().map(|page| (page.owner, &page.bytes[..])).collect();
    let written = if pages.is_empty() { Ok(Vec::new()) } else { store.write(&pages) };
    let Ok(slots) = written else {
        moving.iter().for_each(|page| page.give_back(pool));
        return 0;
    };
    for (page, to) in moving.iter().zip(&slots) {
        let slots = &page.space.anon().slots;
        slots.take(page.owner.page);
        slots.set(page.owner.page, *to);
        page.give_back(pool);
        store.free(page.from);
    }
    slots.len()
}

/// Makes a page busy that is where the store says. Since the store has said so, the page may have
/// left it, and even its region may be another's.
fn claim(
    pool: &Pool,
    store: &Arc<dyn Store>,
    (space, owner): (Arc<Space>, Owner),
    from: Slot,
) -> Option<Moving> {
    space.anon.as_ref()?;
    let EntryState::Absent { shadow } = space.table.get(owner.page)?.load() else { return None };
    if shadow == 0 || space.table.entry(owner.page).try_begin_read(shadow).is_err() {
        return None;
    }
    let mut moving = Moving { space, owner, shadow, from, bytes: Vec::new() };
    let anon = moving.space.anon();
    if anon.slots.get(owner.page) == from && Arc::ptr_eq(store, &anon.store()) {
        moving.bytes = vec![0; pool.page_bytes()];
        return Some(moving);
    }
    moving.give_back(pool);
    None
}

impl Moving {
    /// Lets other threads have the page.
    fn give_back(&self, pool: &Pool) {
        let entry: &Entry = self.space.table.entry(self.owner.page);
        if entry.abort_read(self.shadow) {
            pool.waits.complete(entry, &Ok(()));
        }
    }
}
