//! The hit path, and only that.
//!
//! A hit overlaps with the hits around it as far as they fit into the processor's window, so the
//! number of instructions counts rather than any single one. Everything that a hit needs is
//! therefore copied into the view, one load away: where the translations are, how many there are,
//! where the frames are, how large a page is. One comparison tells a hit from everything else:
//! resident *and* young. A page in any other state (even at its first access since the last aging)
//! takes the slow path. So does one hit of a thousand, to be counted ([`lowtide_pin::sampling`]).
//!
//! # Safety
//!
//! The addresses are of the file's translation table and of the pool's arena. Neither moves; both
//! are dropped only after the last view, which keeps their owners alive. Where there were no
//! addresses for frames when the view was opened, no page is known here, and so none is a fast hit.

use crate::pool::Pool;
use crate::space::Space;
use lowtide_pin::hazard::{self, Held, KeptSlot};
use lowtide_pin::translation::Entry;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};

/// The addresses and sizes that a view's hits need.
#[derive(Debug)]
pub(crate) struct Hits {
    entries: *const Entry,
    /// Translations known to exist; the table may have more by now, never fewer.
    pages: AtomicU64,
    frames: *const u8,
    page_bytes: usize,
}

// SAFETY: the addresses are shared and read-only. What is behind them is atomic (entries), or
// reached only under the protocol of `lowtide_pin::hazard` (frames), by any thread.
unsafe impl Send for Hits {}
// SAFETY: as for `Send`.
unsafe impl Sync for Hits {}

impl Hits {
    pub(crate) fn new(space: &Space, pool: &Pool) -> Self {
        let frames: *const u8 = pool.frames_base();
        let pages = if frames.is_null() { 0 } else { space.table.pages() };
        let (entries, page_bytes) = (space.table.base(), pool.page_bytes());
        Self { entries, pages: AtomicU64::new(pages), frames, page_bytes }
    }

    /// Learns how many translations there are now. Writes only if there are more: threads that
    /// share the view read this line at each hit.
    pub(crate) fn learn(&self, space: &Space) {
        let pages = space.table.pages();
        if !self.frames.is_null() && pages > self.pages.load(Relaxed) {
            self.pages.fetch_max(pages, AcqRel);
        }
    }

    /// Bytes of a page.
    #[inline(always)]
    pub(crate) fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// What a reader of its own needs, without what threads share. Without a barrier on all
    /// processors no page is a fast hit.
    pub(crate) fn alone(&self) -> Alone {
        let pages = if KeptSlot::spares_the_fence() { self.pages.load(Acquire) } else { 0 };
        let &Self { entries, frames, page_bytes, .. } = self;
        Alone { entries, pages, frames, page_bytes }
    }

    /// The bytes of a page that is resident and young, pinned; `None` for all others, and for a hit
    /// that is to be counted for all: nothing is pinned then.
    #[inline(always)]
    pub(crate) fn find(&self, page: u64) -> Option<(*const u8, Held)> {
        if page >= self.pages.load(Acquire) {
            return None;
        }
        // SAFETY: the table had at least `pages` entries when that was learned, and it only grows
        // and never moves.
        let entry = unsafe { self.entries.add(page as usize) };
        // SAFETY: an entry is an atomic in memory that stays mapped while the view lives.
        let (frame, held) = unsafe { &*entry }.pin_young()?;
        if !hazard::counts_down() {
            return None;
        }
        // A product, not a shift: on x86 a shift by a variable is three operations.
        Some((self.frames.wrapping_add(frame as usize * self.page_bytes), held))
    }
}

/// A copy of [`Hits`] that one thread has for itself, so that it can be in registers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alone {
    entries: *const Entry,
    pages: u64,
    frames: *const u8,
    page_bytes: usize,
}

impl Alone {
    /// The bytes of a page that is resident and young, pinned in the slot; `None` for all others:
    /// nothing is pinned then, but the slot may have to [rest](KeptSlot::rest).
    #[inline(always)]
    pub(crate) fn find(&self, page: u64, slot: &KeptSlot) -> Option<*const u8> {
        if page >= self.pages {
            return None;
        }
        // SAFETY: as in `Hits::find`.
        let entry = unsafe { self.entries.add(page as usize) };
        // SAFETY: as in `Hits::find`.
        let frame = unsafe { &*entry }.keep_young(slot)?;
        Some(self.frames.wrapping_add(frame as usize * self.page_bytes))
    }

    /// The same, to which no page is a fast hit.
    pub(crate) const fn without_pages(self) -> Self {
        Self { pages: 0, ..self }
    }

    /// Bytes of a page.
    #[inline(always)]
    pub(crate) const fn page_bytes(&self) -> usize {
        self.page_bytes
    }
}
