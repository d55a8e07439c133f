//! The slots of swap: how many there are, and how many are in use.

use crate::limits::MIN_SWAP_PAGES;

/// The swap of a driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Swap {
    /// Its size in base pages; 0 is no swap.
    pub pages: u64,
    /// Reading and writing take no longer than copying, as with compressed memory: a folio that is
    /// mapped again keeps no slot.
    pub synchronous: bool,
}

/// Swap that is too small for what is in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "swap of {pages} pages cannot hold the {used} pages in use: read pages in, or drop them, \
     before making swap smaller"
)]
pub struct SwapTooSmall {
    /// The requested size.
    pub pages: u64,
    /// Slots in use.
    pub used: u64,
}

/// The slots of swap. Without any, anonymous memory is never evicted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots {
    /// Pages of swap that may still be used.
    pub(crate) free_pages: u64,
    /// All of it.
    pub(crate) total_pages: u64,
    /// Pages that are in swap alone.
    pub(crate) swapped_out: u64,
    pub(super) synchronous: bool,
    /// With fewer free pages than this the multi-gen LRU leaves anonymous memory alone.
    pub(crate) spared: u64,
}

impl Default for Slots {
    fn default() -> Self {
        let (free_pages, total_pages, swapped_out) = (0, 0, 0);
        let spared = MIN_SWAP_PAGES;
        Self { free_pages, total_pages, swapped_out, synchronous: false, spared }
    }
}

impl Slots {
    /// Makes swap larger or smaller.
    pub(super) const fn resize(&mut self, swap: Swap) -> Result<(), SwapTooSmall> {
        let used = self.total_pages - self.free_pages;
        if swap.pages < used {
            return Err(SwapTooSmall { pages: swap.pages, used });
        }
        self.total_pages = swap.pages;
        self.free_pages = swap.pages - used;
        self.synchronous = swap.synchronous;
        Ok(())
    }

    /// More than half of swap is used: slots are worth more than the writes that they may save
    /// (`docs/kernel/reclaim.md` §7.5).
    pub(crate) const fn full(&self) -> bool {
        self.free_pages * 2 < self.total_pages
    }
}
