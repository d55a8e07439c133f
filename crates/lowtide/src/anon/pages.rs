//! What the pages of a region have that those of a file have not.

use super::slots::Slots;
use crate::swap::Store;
use std::sync::{Arc, Mutex};

/// What a space has instead of a file.
#[derive(Debug)]
pub(crate) struct AnonPages {
    pub(crate) slots: Slots,
    /// Taken out when the region is closed: what it drops takes the pool's lock.
    store: Mutex<Option<Arc<dyn Store>>>,
}

impl AnonPages {
    pub(super) fn new(store: Option<Arc<dyn Store>>) -> Self {
        Self { slots: Slots::default(), store: Mutex::new(store) }
    }

    /// Where its pages go that are evicted. Not to be dropped under the pool's lock.
    ///
    /// # Panics
    /// When the pager has no swap, or the region is closed: then no page is evicted.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        let store = crate::sync::lock(&self.store).clone();
        store.expect("pages of a region are in swap only where there is swap")
    }

    pub(super) fn take_store(&self) -> Option<Arc<dyn Store>> {
        crate::sync::lock(&self.store).take()
    }
}
