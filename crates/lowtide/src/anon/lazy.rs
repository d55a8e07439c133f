//! Which pages of a region were freed lazily: they are dropped when memory is needed, and until
//! they are stored to.
//!
//! The engine has such a page on the lists of files (`lowtide_core`, `swap.rs`), so reclaim takes
//! it early and stores it nowhere. A kernel learns of a store to it when it drops the translation,
//! from the bit that the processor sets. A store through a guard sets no bit that reclaim would
//! see, so it withdraws its page at once. A page comes into this set, and leaves it, by the thread
//! that has its translation locked.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The pages of a region that were freed lazily, and neither stored to nor dropped since.
#[derive(Debug, Default)]
pub(crate) struct LazyPages {
    pages: Mutex<HashSet<u64>>,
    count: AtomicUsize,
}

impl LazyPages {
    /// Whether there are some. A thread that has locked a page is not misled about that page.
    pub(super) fn any(&self) -> bool {
        self.count.load(Relaxed) > 0
    }

    pub(super) fn insert(&self, page: u64) {
        let mut pages = lowtide_pin::sync::lock(&self.pages);
        pages.insert(page);
        self.count.store(pages.len(), Relaxed);
    }

    /// A page was stored to, or is gone. Returns whether it was in the set.
    pub(crate) fn remove(&self, page: u64) -> bool {
        if !self.any() {
            return false;
        }
        let mut pages = lowtide_pin::sync::lock(&self.pages);
        let was = pages.remove(&page);
        self.count.store(pages.len(), Relaxed);
        was
    }
}
