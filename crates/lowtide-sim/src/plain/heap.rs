//! Heaps of the plain machine, and their swap.
//!
//! ```text
//!   load, store ─► mapped? ─no─► resident? ─no─► swapped out? ─no─► load: map the zero page
//!                    │              │                │              store: charge ─► insert ─► map
//!                    │              │                │                                 (minor)
//!                    │              │                └─yes─► charge ─► swap_in ─► read ─┐ (major)
//!                    │              └──yes (swap cache)──────────────────► swap_fault ─► map young
//!                    └──yes──► young; a store sets the dirty bit, and no code notices
//! ```
//!
//! A translation is writable from the first fault on, also when a load brought the page in. So a
//! page that is stored to later keeps the slot that its load left it, and the engine learns of the
//! store when the page is unmapped. A load from a page that was never stored to maps the one page
//! of zeros, which has no owner and is never reclaimed; the first store to it faults again.
//!
//! Slots are counted, by the engine. A resident page has one if its folio is in the swap cache; a
//! page that is gone has one because it went.

use super::{Plain, PlainConfig, PlayError, Space};
use crate::memory::ObjectId;
use lowtide_core::{Engine, MemcgId, Reclaim, Swap, Task, Unmapped};
use lowtide_workload::SpaceId;

/// Gives an engine that is still empty the swap of its configuration.
pub(super) fn give_swap(engine: &mut Engine, config: &PlainConfig) {
    engine.set_swappiness(MemcgId::ROOT, config.swappiness);
    if let Some(swap) = config.swap {
        // No more slots than can be counted twice, which no machine will ever use.
        let swap =
            Swap { pages: swap.pages.min(u64::MAX / 4), synchronous: swap.latency_ns.is_none() };
        engine.set_swap(swap).expect("none of it is used");
    }
}

impl Plain {
    /// A fault on a page of a heap. Returns whether the page was resident.
    pub(super) fn heap_fault(
        &mut self,
        space: SpaceId,
        at: Space,
        page: u64,
        store: bool,
    ) -> Result<bool, PlayError> {
        let cached = self.pool.memory.cached(at.object, page);
        // The zero page counts as resident: it has been touched before.
        let zero = self.pool.memory.vmas[at.vma.0 as usize].ptes.get(page).present;
        let resident = cached.frame().is_some() || zero;
        self.pool.engine.count_fault(MemcgId::ROOT, cached.is_gone());
        self.counts.misses += u64::from(!resident);
        if let Some(frame) = cached.frame() {
            self.pool.engine.swap_fault(frame, store, Task::FAULT);
        } else if cached.is_gone() {
            self.publish_in_time();
            self.make_room(space, page, Task::FAULT)?;
            let frame = self.pool.swap_in(at.object, page, MemcgId::ROOT, Task::FAULT);
            self.wait_for_read();
            self.pool.engine.swap_fault(frame, store, Task::FAULT);
        } else if store {
            self.make_room(space, page, Task::FAULT)?;
            self.pool.insert(at.object, page, false, MemcgId::ROOT, Task::FAULT);
        } else {
            self.pool.memory.map(at.vma, page, false);
            return Ok(resident);
        }
        self.pool.memory.map(at.vma, page, true);
        self.pool.memory.vmas[at.vma.0 as usize].touch(page, store);
        if cached.frame().is_none() {
            self.forget_first(at, page);
        }
        Ok(resident)
    }

    /// Drops the translations of the victims of a reclaim, and writes those of heaps to their slots
    /// if they are dirty.
    pub(super) fn unmap_victims(&mut self, reclaim: &mut Reclaim) {
        for victim in reclaim.victims() {
            let (object, page) = (ObjectId(victim.owner.space.0), victim.owner.page);
            // Traces have no lazy free: what is anonymous goes to swap.
            let stored = victim.to_swap && self.pool.memory.is_dirty(object, page);
            self.pool.memory.unmap(object, page);
            victim.outcome = Unmapped::Done;
            if !self.pool.begin_swap_out(victim, stored) {
                continue;
            }
            match self.config.swap.and_then(|swap| swap.latency_ns) {
                None => self.pool.engine.end_writeback(victim.folio, true, Task::FAULT),
                Some(latency) => self.write_ends_in(latency, victim.folio),
            }
        }
    }

    /// Whether every slot is free or has one page.
    pub(super) fn validate_swap(&self) -> Result<(), String> {
        let Some(swap) = self.config.swap else { return Ok(()) };
        self.pool.validate_swap(swap.pages.min(u64::MAX / 4))
    }
}
