//! Frames of the arena as the memory of a store of clean pages.
//!
//! Each is charged to the group of the store, and taken only where there is room for it as things
//! are: without one a copy is lost, and nothing else. Compressed pages take at most three quarters
//! of what their group uses.

use super::places::Zcaches;
use crate::pool::{Pool, State};
use crate::swap::{Frame, Keeper, charge_unused, take_charged};
use lowtide_core::MemcgId;
use lowtide_core::zcache::is_over_share;
use lowtide_swap::PageSource;
use std::sync::{Arc, Weak};

/// Where a store takes frames. A pool has its files, which have their stores: so a store does not
/// keep the pool, as each frame does.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) pool: Weak<Pool>,
    pub(super) index: usize,
    pub(super) page_bytes: usize,
}

/// Who has a frame.
#[derive(Debug)]
pub(super) struct Held {
    pool: Arc<Pool>,
    index: usize,
}

impl PageSource for Source {
    type Page = Frame<Held>;

    fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    fn take(&self) -> Option<Frame<Held>> {
        let pool = self.pool.upgrade()?;
        let number = {
            let mut state = pool.lock_sound().ok()?;
            let group = state.zcaches.group(self.index);
            if takes_too_much(&state, group) {
                return None;
            }
            let number = take_charged(&pool, &mut state, group)?;
            state.zcaches.count(self.index, true);
            number
        };
        Some(Frame { keeper: Held { pool, index: self.index }, number })
    }

    fn charge_table(&self) -> bool {
        let Some(pool) = self.pool.upgrade() else { return false };
        let Ok(mut state) = pool.lock_sound() else { return false };
        let group = state.zcaches.group(self.index);
        if takes_too_much(&state, group) {
            return false;
        }
        let Some(frame) = charge_unused(&mut state, group) else { return false };
        state.zcaches.take_for_table(self.index, frame);
        true
    }

    fn uncharge_table(&self) {
        let Some(pool) = self.pool.upgrade() else { return };
        give_back(&pool, self.index, |zcaches| zcaches.give_table(self.index));
    }
}

impl Keeper for Held {
    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn give_back(&self, frame: u32) {
        give_back(&self.pool, self.index, |zcaches| {
            zcaches.count(self.index, false);
            frame
        });
    }
}

/// Gives back a frame of the store at a place, which the group pays for no more.
fn give_back(pool: &Pool, index: usize, which: impl FnOnce(&mut Zcaches) -> u32) {
    let Ok(mut state) = pool.lock_sound() else { return };
    let group = state.zcaches.group(index);
    let frame = which(&mut state.zcaches);
    state.frames.free(frame, 0);
    state.engine.uncharge(group, 1);
    drop(state);
    pool.freed.wake_all();
}

/// Whether compressed pages of a group take more than their share of what it uses.
pub(super) fn takes_too_much(state: &State, group: MemcgId) -> bool {
    is_over_share(state.zcaches.frames_of_group(group), state.engine.usage(group))
}
