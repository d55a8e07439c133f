//! Moving compressed pages that are not needed soon from memory to the swap file.
//!
//! A page that is in swap belongs to no thread. To move it a thread makes its translation busy, as
//! a fault does, so that no other loads or drops it meanwhile; if another thread has it already, it
//! stays. Nothing is waited for while translations are owned, but the device.

use super::frames::share_of;
use super::slot::{Slot, Store};
use crate::pool::{Pool, State, StateGuard, end_orphans};
use crate::space::Space;
use crate::zcache::give_up;
use lowtide_core::{MemcgId, Owner, ZswapEvents};
use lowtide_pin::translation::{Entry, State as EntryState};
use std::sync::Arc;

/// Pages that go from memory to the file at a time.
const SPILLED: usize = 64;
/// Frames that compaction is to free then.
const COMPACTED: usize = 16;

/// A page that is moved.
struct Moving {
    space: Arc<Space>,
    owner: Owner,
    shadow: u32,
    from: Slot,
    bytes: Vec<u8>,
}

/// Frees frames of a store. Returns how many pages or frames it got anywhere with. Called without
/// the pool's lock.
pub(super) fn make_room(pool: &Pool, store: &Arc<dyn Store>) -> usize {
    let gone = if store.has_file() { spill(pool, store, SPILLED) } else { 0 };
    gone + store.compact(COMPACTED)
}

/// Whether compressed pages of a group and those below it take more than their share of a budget.
pub(crate) fn is_over_share(state: &State, group: MemcgId, budget: u64) -> bool {
    let within = |of| state.engine.is_within(of, group);
    state.swaps.frames_of(within) + state.zcaches.frames_of(within) > share_of(budget)
}

/// Frees frames of all stores of a group and those below it: called when its budget has become
/// smaller than what is compressed. Returns whether that got anywhere.
pub(crate) fn push_out<'a>(
    pool: &'a Pool,
    state: StateGuard<'a>,
    group: MemcgId,
) -> (StateGuard<'a>, bool) {
    let stores = state.swaps.all(|of| state.engine.is_within(of, group));
    drop(state);
    let gone: usize = stores.iter().map(|store| make_room(pool, store)).sum();
    drop(stores);
    let (state, copies) = give_up(pool, end_orphans(pool, pool.lock()), group);
    (state, gone > 0 || copies > 0)
}

/// Moves up to `count` of the coldest pages of a store to the file. Returns how many it were.
/// Called without the pool's lock.
fn spill(pool: &Pool, store: &Arc<dyn Store>, count: usize) -> usize {
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
    count_written(pool, &moving);
    for (page, to) in moving.iter().zip(&slots) {
        page.space.anon().slots.moved(page.owner.page, *to);
        page.give_back(pool);
        store.free(page.from);
    }
    slots.len()
}

/// Counts pages that were written from memory to the file, which this thread has.
fn count_written(pool: &Pool, moving: &[Moving]) {
    let Ok(mut state) = pool.lock_sound() else { return };
    for page in moving {
        let group = state.engine.group_of_space(page.owner.space);
        let written = ZswapEvents::written(1);
        state.engine.count_zswap(group, &written);
    }
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
