//! What the pages of a region have that those of a file have not.

use super::lazy::LazyPages;
use super::slots::Slots;
use crate::swap::{Slot, Store};
use lowtide_swap::ReadAhead;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// What a space has instead of a file.
#[derive(Debug)]
pub(crate) struct AnonPages {
    pub(crate) slots: Slots,
    /// How many pages come back from the file together.
    pub(crate) ahead: ReadAhead,
    /// Pages in memory that have a slot (`kept.rs`).
    kept: AtomicU64,
    /// Pages that reclaim may drop (`lazy.rs`).
    pub(crate) lazy: LazyPages,
    /// Taken out when the region is closed: what it drops takes the pool's lock.
    store: Mutex<Option<Arc<dyn Store>>>,
}

impl AnonPages {
    pub(super) fn new(store: Option<Arc<dyn Store>>) -> Self {
        Self {
            slots: Slots::default(),
            ahead: ReadAhead::default(),
            kept: AtomicU64::new(0),
            lazy: LazyPages::default(),
            store: Mutex::new(store),
        }
    }

    /// Where its pages go that are evicted. Not to be dropped under the pool's lock.
    ///
    /// # Panics
    /// When the pager has no swap, or the region is closed: then no page is evicted.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        let store = lowtide_pin::sync::lock(&self.store).clone();
        store.expect("pages of a region are in swap only where there is swap")
    }

    /// Whether pages in memory have slots.
    pub(super) fn keeps(&self) -> bool {
        self.kept.load(Relaxed) > 0
    }

    /// Pages that are in swap, and not in memory.
    pub(crate) fn swapped_pages(&self) -> u64 {
        self.slots.count().saturating_sub(self.kept.load(Relaxed))
    }

    /// A page that comes into memory keeps its slot. Under the pool's lock, as all that follows.
    pub(super) fn note_kept(&self) {
        self.kept.fetch_add(1, Relaxed);
    }

    /// A page that has kept its slot leaves memory.
    pub(crate) fn note_gone(&self) {
        self.kept.fetch_sub(1, Relaxed);
    }

    /// A page in memory loses its slot, if it has one: returns it.
    pub(super) fn take_kept(&self, page: u64) -> Slot {
        let slot = self.slots.take(page);
        if !slot.is_none() {
            self.note_gone();
        }
        slot
    }

    /// Pages were brought in with others.
    pub(super) fn ahead_taken(&self, pages: u64) {
        if let Some(store) = &*lowtide_pin::sync::lock(&self.store) {
            store.count_ahead(pages, 0, 0);
        }
    }

    /// A page that was read with another is touched for the first time, or gone before that.
    pub(crate) fn ahead_ended(&self, touched: bool) {
        if touched {
            self.ahead.hit();
        }
        if let Some(store) = &*lowtide_pin::sync::lock(&self.store) {
            store.count_ahead(0, u64::from(touched), u64::from(!touched));
        }
    }

    /// A page is about to go to swap: its slot can be noted from now on, until it is, or until the
    /// page stays. False if the tenant has no room for the table.  Called without the pool's lock.
    pub(crate) fn expect_slot(&self, page: u64, store: &dyn Store) -> bool {
        let Err(needed) = self.slots.expect(page) else { return true };
        let mut frames = Vec::with_capacity(needed);
        frames.extend((0..needed).map_while(|_| store.pay_for_slots()));
        let expected = self.slots.expect_with(page, &mut frames);
        if !frames.is_empty() {
            store.give_back_slots(&frames);
        }
        expected
    }

    /// Pages were discarded: tables of slots that are not needed any more go. Called without the
    /// pool's lock.
    pub(super) fn trim(&self, pages: Range<u64>) {
        let frames = self.slots.trim(pages);
        if !frames.is_empty() {
            self.store().give_back_slots(&frames);
        }
    }

    pub(super) fn take_store(&self) -> Option<Arc<dyn Store>> {
        lowtide_pin::sync::lock(&self.store).take()
    }
}
