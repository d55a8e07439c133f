//! The swap of one tenant: storing, loading and freeing pages.

use super::frames::FrameSource;
use super::slot::{Refused, Slot, Store};
use crate::error::Error;
use crate::oom::out_of_budget;
use crate::payer::Payer;
use crate::pool::Pool;
use crate::tenant::TenantError;
use lowtide_core::{MemcgId, Owner, Task};
use lowtide_swap::{CompressedStore, Handle, StoreLimits, StoreStat};
use std::io;
use std::sync::Arc;

/// Frames that a store has in reserve, at most: as many as a batch of victims needs if it
/// compresses to a quarter.
const RESERVE_MAX: u64 = 16;
/// The part of the tenant's budget that the reserve may be.
const RESERVE_PART: u64 = 32;

/// What the owner of a stored page is called in the store.
const fn tag(owner: Owner) -> u64 {
    (owner.space.0 as u64) << TAG_SHIFT | owner.page
}

/// Bits of a tag for the page.
const TAG_SHIFT: u32 = 40;
const _: () = assert!(Owner::PAGES_MAX <= 1 << TAG_SHIFT && Owner::SPACES_MAX as u64 <= 1 << 24);

/// The swap of one tenant. Lives as long as a region of the tenant does. Dropped without the
/// pool's lock: it gives frames back.
#[derive(Debug)]
pub(crate) struct TenantSwap {
    /// Before `place`, so that all frames are back when the place ends.
    store: CompressedStore<FrameSource>,
    place: Place,
}

/// A place among the [`Swaps`](super::Swaps). Given up on drop.
#[derive(Debug)]
struct Place(FrameSource);

impl TenantSwap {
    /// The swap of a group that exists; `None` if the pager has none.
    ///
    /// # Errors
    /// [`Error::Tenant`] if the group is gone; [`Error::OutOfBudget`] if there is no room for the
    /// reserve.
    pub(crate) fn of(pool: &Arc<Pool>, group: MemcgId) -> Result<Option<Arc<dyn Store>>, Error> {
        if !pool.has_swap {
            return Ok(None);
        }
        // One thread at a time makes one.
        let _one_at_a_time = crate::sync::lock(&pool.making_swap);
        let mut state = pool.lock();
        pool.check()?;
        if !state.engine.alive(group) {
            return Err(TenantError::Gone.into());
        }
        if let Some(swap) = state.swaps.find(group) {
            drop(state);
            return Ok(Some(swap));
        }
        let index = state.swaps.begin(group);
        let max = state.engine.max(group).min(u64::from(pool.frames));
        drop(state);
        let source = FrameSource { pool: Arc::clone(pool), index };
        let swap = Arc::new(Self {
            store: CompressedStore::new(source.clone(), StoreLimits::default()),
            place: Place(source),
        });
        let found: Arc<dyn Store> = Arc::<Self>::clone(&swap);
        swap.place.fill(&found, (max / RESERVE_PART).clamp(1, RESERVE_MAX))?;
        Ok(Some(found))
    }
}

impl Store for TenantSwap {
    fn store(&self, owner: Owner, bytes: &[u8]) -> Result<Slot, Refused> {
        self.store.store_tagged(bytes, tag(owner)).map(slot_of).map_err(|_| Refused)
    }

    fn load(&self, slot: Slot, to: &mut [u8]) -> io::Result<()> {
        self.store.load(handle(slot), to).map_err(io::Error::other)
    }

    fn free(&self, slot: Slot) {
        self.store.free(handle(slot));
    }

    fn compact(&self, frames: usize) -> usize {
        self.store.compact(frames)
    }

    fn stat(&self) -> StoreStat {
        self.store.stat()
    }
}

fn slot_of(handle: Handle) -> Slot {
    Slot(u64::from(handle.to_bits()) + 1)
}

fn handle(slot: Slot) -> Handle {
    assert!(!slot.is_none(), "a page is read from swap that is not there");
    Handle::from_bits((slot.0 - 1) as u32)
}

impl Place {
    /// Charges the reserve, and lets the store be found.
    fn fill(&self, store: &Arc<dyn Store>, pages: u64) -> Result<(), Error> {
        let FrameSource { pool, index } = &self.0;
        let payer = Payer::Swap(*index);
        let (mut state, charged) = pool.charge(pool.lock(), payer, pages, Task::DESCRIPTOR, true);
        pool.check()?;
        let group =
            charged.map_err(|full| out_of_budget(&mut state, full, pages, pool.page_shift))?;
        let mut reserve = Vec::new();
        while (reserve.len() as u64) < pages
            && let Some(frame) = pool.take_arena_frames(&mut state, 0)
        {
            reserve.push(frame);
        }
        // The system may have no memory for all of them.
        state.engine.uncharge(group, pages - reserve.len() as u64);
        state.swaps.settle(*index, store, reserve);
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let FrameSource { pool, index } = &self.0;
        let mut state = pool.lock();
        if pool.is_poisoned() {
            return;
        }
        let (reserve, group) = state.swaps.end(*index);
        state.engine.uncharge(group, reserve.len() as u64);
        for frame in reserve {
            state.frames.free(frame, 0);
        }
        drop(state);
        pool.freed.wake_all();
    }
}
