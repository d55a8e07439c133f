//! In which manner the pages of a map come in, for a host that chooses between both ways.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Pages that came in so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Manner {
    /// When they were touched, away from others that did.
    pub alone: u64,
    /// They were read ahead, since others had been touched in order.
    pub in_order: u64,
}

/// The same, as it is counted.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    alone: AtomicU64,
    in_order: AtomicU64,
}

impl Counted {
    pub(crate) fn alone(&self, pages: u64) {
        self.alone.fetch_add(pages, Relaxed);
    }

    pub(crate) fn in_order(&self, pages: u64) {
        self.in_order.fetch_add(pages, Relaxed);
    }

    pub(crate) fn now(&self) -> Manner {
        Manner { alone: self.alone.load(Relaxed), in_order: self.in_order.load(Relaxed) }
    }
}
