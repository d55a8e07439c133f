//! Slots that nothing needs any more, until they are freed.
//!
//! Reclaim takes the slots of pages in memory under the pool's lock (`kept.rs`), and stores are
//! called without it: so what was taken waits here.

use crate::space::Space;
use crate::swap::{Slot, Store};
use std::sync::{Arc, Mutex};

/// Slots that reclaim has taken from pages in memory, to be freed when the pool's lock is not held.
#[derive(Debug, Default)]
pub(crate) struct Void(Mutex<Vec<(Arc<dyn Store>, Slot)>>);

impl Void {
    /// Reclaim has taken the slot of a page. Under the pool's lock.
    pub(crate) fn note(&self, space: &Space, page: u64) {
        let anon = space.anon();
        let slot = anon.take_kept(page);
        if !slot.is_none() {
            lowtide_pin::sync::lock(&self.0).push((anon.store(), slot));
        }
    }

    /// Whether there are some.
    pub(crate) fn is_empty(&self) -> bool {
        lowtide_pin::sync::lock(&self.0).is_empty()
    }

    /// Frees them. Returns how many. Without the pool's lock.
    pub(crate) fn free(&self) -> usize {
        let slots = std::mem::take(&mut *lowtide_pin::sync::lock(&self.0));
        let count = slots.len();
        slots.into_iter().for_each(|(store, slot)| store.free(slot));
        count
    }
}
