//! Hints: what a walk over the entries of a view may skip.
//!
//! A view has one translation a page, and a walk that looks for young or dirty ones would read them
//! all. So each table of [`TABLE_ENTRIES`](lowtide_core::limits::TABLE_ENTRIES) neighbours has a
//! byte that says whether some entry of it *may* be YOUNG, and whether some *may* be DIRTY.
//!
//! A thread that sets a bit in an entry notes it here *afterwards*; a walk takes the note *first*,
//! and then looks at the entries:
//!
//! ```text
//!   setter: entry |= YOUNG; if hint is clear { hint |= YOUNG }
//!   walker: hint &= !YOUNG; look at all entries
//! ```
//!
//! A bit may be missed by the walk that runs at this moment, but it is never hidden from all walks
//! to come. Were the setter's two steps the other way round, the walker could run between them. As
//! they are, only one order could hide a bit: the setter reads the hint while it is still set, and
//! the walker, having cleared it, reads the entry while it is still clear. All four accesses are
//! `SeqCst`, so they have one total order, in which the setter's read precedes the walker's
//! clearing; but then the setter's bit, before its read, precedes the walker's look, after its
//! clearing. So the walker sees it.
//!
//! A walk that leaves a bit set which it has seen must note it again.
//!
//! A third bit is set when the first page of the table comes in, and stays: what looks for pages in
//! memory (a cut, an aging walk, closing) looks at no other tables. Files and regions may be
//! sparse, and far larger than what was ever used of them, so neighbouring tables have a byte like
//! this together, too, of which only that bit is used.

use crate::sync::{AtomicU8, Ordering};

const YOUNG: u8 = 1;
const DIRTY: u8 = 2;
const USED: u8 = 4;

/// Whether some entry of one table may be young, some may be dirty, and some ever led to a frame.
/// See the module documentation.
#[repr(transparent)]
#[derive(Debug, Default)]
pub struct Hint(AtomicU8);

impl Hint {
    /// Called after YOUNG was set in an entry of this table. One load if it is noted already.
    #[inline]
    pub fn note_young(&self) {
        self.note(YOUNG);
    }

    /// Called after DIRTY was set in an entry of this table.
    #[inline]
    pub fn note_dirty(&self) {
        self.note(DIRTY);
    }

    /// Clears the note and returns whether it was there: if so, the caller must look at every
    /// entry.
    pub fn take_young(&self) -> bool {
        self.take(YOUNG)
    }

    /// Clears the note and returns whether it was there: if so, the caller must look at every
    /// entry.
    pub fn take_dirty(&self) -> bool {
        self.take(DIRTY)
    }

    /// Whether DIRTY is noted.
    #[inline]
    pub fn may_be_dirty(&self) -> bool {
        self.0.load(Ordering::Relaxed) & DIRTY != 0
    }

    /// Called under the pool's lock, when a page of this table gets a frame. Returns whether it is
    /// the first.
    #[inline]
    pub fn note_used(&self) -> bool {
        let first = !self.was_used();
        self.note(USED);
        first
    }

    /// Whether a page of this table ever had a frame. Only for a caller that has had the pool's
    /// lock since the last page may have come.
    pub fn was_used(&self) -> bool {
        self.0.load(Ordering::Relaxed) & USED != 0
    }

    #[inline]
    fn note(&self, bit: u8) {
        if self.0.load(Ordering::SeqCst) & bit == 0 {
            self.0.fetch_or(bit, Ordering::SeqCst);
        }
    }

    fn take(&self, bit: u8) -> bool {
        // A note that arrives after this load stays for the next walk.
        if self.0.load(Ordering::Relaxed) & bit == 0 {
            return false;
        }
        self.0.fetch_and(!bit, Ordering::SeqCst) & bit != 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_taken_once_and_apart_from_the_other() {
        let hint = Hint::default();
        assert!(!hint.take_young() && !hint.take_dirty());
        hint.note_young();
        hint.note_young();
        hint.note_dirty();
        assert!(hint.take_young() && !hint.take_young());
        assert!(hint.take_dirty() && !hint.take_dirty());
        assert!(!hint.was_used());
        assert!(hint.note_used() && !hint.note_used());
        assert!(!hint.take_young() && !hint.take_dirty() && hint.was_used(), "it stays");
    }
}
