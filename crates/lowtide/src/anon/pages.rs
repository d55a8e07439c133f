//! What the pages of a region have that those of a file have not.

use super::slots::Slots;
use crate::swap::Store;
use lowtide_swap::ReadAhead;
use std::sync::{Arc, Mutex};

/// What a space has instead of a file.
#[derive(Debug)]
pub(crate) struct AnonPages {
    pub(crate) slots: Slots,
    /// How many pages come back from the file together.
    pub(crate) ahead: ReadAhead,
    /// Taken out when the region is closed: what it drops takes the pool's lock.
    store: Mutex<Option<Arc<dyn Store>>>,
}

impl AnonPages {
    pub(super) fn new(store: Option<Arc<dyn Store>>) -> Self {
        Self { slots: Slots::default(), ahead: ReadAhead::default(), store: Mutex::new(store) }
    }

    /// Where its pages go that are evicted. Not to be dropped under the pool's lock.
    ///
    /// # Panics
    /// When the pager has no swap, or the region is closed: then no page is evicted.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        let store = crate::sync::lock(&self.store).clone();
        store.expect("pages of a region are in swap only where there is swap")
    }

    /// A page that was read with another is touched for the first time, or gone before that.
    pub(crate) fn ahead_ended(&self, touched: bool) {
        if touched {
            self.ahead.hit();
        }
        if let Some(store) = &*crate::sync::lock(&self.store) {
            store.count_ahead(0, u64::from(touched), u64::from(!touched));
        }
    }

    pub(super) fn take_store(&self) -> Option<Arc<dyn Store>> {
        crate::sync::lock(&self.store).take()
    }
}
