//! Frames of the arena as the memory of a store.
//!
//! A store takes one when it needs more, and drops it when it is empty. Each is charged to the
//! group of the store. Where the group is full the frame comes from the store's reserve, so that
//! reclaim, which stores pages *because* the group is full, gets on. No reclaim is begun here.

use crate::pool::{Pool, State};
use lowtide_core::{MemcgId, Task};
use lowtide_swap::PageSource;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// The part of a group's budget that compressed pages may take: three of four.
const SHARE: (u64, u64) = (3, 4);

/// The frames of one store.
#[derive(Clone, Debug)]
pub(super) struct FrameSource {
    pub(super) pool: Arc<Pool>,
    /// Its place among the [`Swaps`](super::Swaps) of the pool.
    pub(super) index: usize,
}

/// Who has a frame of the arena for compressed pages.
pub(crate) trait Keeper {
    fn pool(&self) -> &Pool;

    /// Takes the frame back.
    fn give_back(&self, frame: u32);
}

/// One frame that a store has. Given back on drop.
#[derive(Debug)]
pub(crate) struct Frame<K: Keeper> {
    pub(crate) keeper: K,
    /// Its memory is there.
    pub(crate) number: u32,
}

impl PageSource for FrameSource {
    type Page = Frame<Self>;

    fn take(&self) -> Option<Frame<Self>> {
        let pool = &*self.pool;
        let mut state = pool.lock_sound().ok()?;
        let group = state.swaps.group(self.index)?;
        let most = share(&state, group);
        if !state.swaps.has_room(self.index, most) {
            return None;
        }
        let charged = take_charged(pool, &mut state, group);
        let number = state.swaps.take(self.index, charged)?;
        Some(Frame { keeper: self.clone(), number })
    }

    /// A frame is charged and not used, so its memory stays with the system: as much is used on the
    /// heap. One of the reserve, which has memory, only if the group is full.
    fn charge_table(&self) -> bool {
        let pool = &*self.pool;
        let Ok(mut state) = pool.lock_sound() else { return false };
        let Some(group) = state.swaps.group(self.index) else { return false };
        let most = share(&state, group);
        if !state.swaps.has_share(self.index, most) {
            return false;
        }
        let frame = charge_unused(&mut state, group);
        state.swaps.take_for_table(self.index, frame)
    }
}

impl FrameSource {
    /// Charges a frame for a table of slots: as for one of the store.
    pub(super) fn charge_slots(&self) -> Option<u32> {
        let mut state = self.pool.lock_sound().ok()?;
        let group = state.swaps.group(self.index)?;
        let frame = charge_unused(&mut state, group);
        state.swaps.take_for_slots(self.index, frame)
    }

    /// Gives frames of such tables back.
    pub(super) fn uncharge_slots(&self, frames: &[u32]) {
        let pool = &*self.pool;
        let Ok(mut state) = pool.lock_sound() else { return };
        let group = state.swaps.group(self.index).expect("a store has a place while it has frames");
        state.swaps.give_slots(self.index, frames.len() as u64);
        state.engine.uncharge(group, frames.len() as u64);
        for &frame in frames {
            state.frames.free(frame, 0);
        }
        fill_reserves(pool, &mut state);
        drop(state);
        pool.freed.wake_all();
    }
}

impl<K: Keeper> Deref for Frame<K> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let pool = self.keeper.pool();
        // SAFETY: the frame was taken from the allocator for this value alone, and no translation
        // leads to it until it is given back, when this value is dropped. Its memory was populated
        // when it was taken, and the pool, which the keeper keeps alive, keeps it mapped.
        #[expect(unsafe_code, reason = "this is where a frame becomes a slice")]
        unsafe {
            std::slice::from_raw_parts(pool.frame_ptr(self.number), pool.page_bytes())
        }
    }
}

impl<K: Keeper> DerefMut for Frame<K> {
    fn deref_mut(&mut self) -> &mut [u8] {
        let pool = self.keeper.pool();
        // SAFETY: as for `deref`; and this value is borrowed mutably, so no other slice of it is.
        #[expect(unsafe_code, reason = "this is where a frame becomes a slice")]
        unsafe {
            std::slice::from_raw_parts_mut(pool.frame_ptr(self.number), pool.page_bytes())
        }
    }
}

impl<K: Keeper> Drop for Frame<K> {
    fn drop(&mut self) {
        self.keeper.give_back(self.number);
    }
}

impl Keeper for FrameSource {
    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn give_back(&self, frame: u32) {
        let pool = &*self.pool;
        let Ok(mut state) = pool.lock_sound() else { return };
        if state.swaps.give(self.index, frame) {
            return;
        }
        let group = state.swaps.group(self.index).expect("a store has a place while it has frames");
        state.frames.free(frame, 0);
        state.engine.uncharge(group, 1);
        drop(state);
        pool.freed.wake_all();
    }
}

/// Frames that compressed pages of a group may take: not all that the group may have, or nothing
/// would be left for the pages that it works with.
fn share(state: &State, group: MemcgId) -> u64 {
    share_of(budget_of(state, group))
}

/// Pages that a group may use: the smallest limit of it and those above.
pub(crate) fn budget_of(state: &State, group: MemcgId) -> u64 {
    let levels = std::iter::successors(Some(group), |&at| state.engine.parent(at));
    levels.map(|at| state.engine.max(at)).min().unwrap_or_default()
}

/// The same of a budget.
pub(super) const fn share_of(max: u64) -> u64 {
    max / SHARE.1 * SHARE.0
}

/// A frame that is charged to a group and gets no memory, if there is room for it as things are.
pub(crate) fn charge_unused(state: &mut State, group: MemcgId) -> Option<u32> {
    state.engine.charge_if_room(group, 1, Task::DESCRIPTOR)?;
    let frame = state.frames.alloc(0);
    if frame.is_none() {
        state.engine.uncharge(group, 1);
    }
    frame
}

/// A frame that is charged to a group, if there is room for it as things are.
pub(crate) fn take_charged(pool: &Pool, state: &mut State, group: MemcgId) -> Option<u32> {
    state.engine.charge_if_room(group, 1, Task::DESCRIPTOR)?;
    let frame = pool.take_arena_frames(state, 0);
    if frame.is_none() {
        state.engine.uncharge(group, 1);
    }
    frame
}

/// Fills the reserves of stores as far as there is room: called when frames have come free, before
/// other threads can charge them.
pub(crate) fn fill_reserves(pool: &Pool, state: &mut State) {
    while let Some((index, frame)) = {
        let lacking: Vec<_> = state.swaps.lacking().collect();
        let charge = |(index, group)| Some((index, take_charged(pool, state, group)?));
        lacking.into_iter().find_map(charge)
    } {
        let kept = state.swaps.keep(index, frame);
        assert!(kept, "the reserve lacked a frame, and does not any more");
    }
}
