//! Accesses through the descriptor, recorded without a lock.
//!
//! The kernel counts an access through a descriptor by changing the folio's flag word atomically.
//! Here only the engine writes the flag word, and a reader just counts: one byte per frame, written
//! with plain loads and stores. The engine takes the count and applies it ("absorbs" it) whenever
//! it is about to look at the folio's flags, and never in between; since multi-gen accesses change
//! nothing but flags, applying them late gives exactly the same result. An access that is lost to a
//! race between two readers is not counted, which a heuristic can bear.
//!
//! The classical lists move a folio at its second access, so there the reader has to call the
//! engine, at most until the folio is active and referenced; from then on the byte is "settled" and
//! nothing is done.
//!
//! For `tide` an access is a young bit. A read that misses marks the folio that it has just brought
//! in; the engine knows of that access, so the first mark after an insertion through the descriptor
//! is an *echo*, and is swallowed.

use crate::policy::Lists;
use crate::units::FolioId;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// More accesses than this in a row have no further effect (`docs/kernel/reclaim.md` §1.2).
const SATURATED: u8 = 5;
/// Classical lists: no access has an effect until the engine resets the count.
const SETTLED: u8 = 0xff;
/// `tide`: the next access is the one that brought the folio in.
const ECHO: u8 = 0xfe;

/// One byte per frame, shared between the engine and the threads that read.
#[derive(Debug)]
pub struct AccessCounts {
    notes: Box<[AtomicU8]>,
    lists: Lists,
}

impl AccessCounts {
    pub(crate) fn new(frames: usize, lists: Lists) -> Self {
        Self { notes: (0..frames).map(|_| AtomicU8::new(0)).collect(), lists }
    }

    /// Counts one access through the descriptor. Two relaxed memory operations at most.
    ///
    /// Returns whether the caller must also call
    /// [`Engine::mark_accessed`](crate::Engine::mark_accessed): at most a few times per residency
    /// with the classical lists, never with others.
    #[inline]
    #[must_use]
    pub fn record(&self, folio: FolioId) -> bool {
        let note = &self.notes[folio.index()];
        let n = note.load(Relaxed);
        match self.lists {
            Lists::Classical => return n != SETTLED,
            Lists::MultiGen if n < SATURATED => note.store(n + 1, Relaxed),
            Lists::Tide if n == 0 => note.store(1, Relaxed),
            Lists::Tide if n == ECHO => note.store(0, Relaxed),
            Lists::MultiGen | Lists::Tide => {}
        }
        false
    }

    /// Looks at the note of a frame, so that it is in the cache when it is taken.
    #[inline]
    pub(crate) fn look(&self, folio: FolioId) -> u8 {
        self.notes.get(folio.index()).map_or(0, |note| note.load(Relaxed))
    }

    /// The same for some frames, side by side.
    #[inline]
    pub(crate) fn look_at(&self, folios: impl Iterator<Item = FolioId>) {
        std::hint::black_box(folios.fold(0, |seen, folio| seen | self.look(folio)));
    }

    /// Takes the count since the last time (0..=5).
    #[inline]
    pub(crate) fn take(&self, folio: FolioId) -> u8 {
        let note = &self.notes[folio.index()];
        let n = note.load(Relaxed);
        if n == 0 || n >= ECHO {
            return 0;
        }
        note.store(0, Relaxed);
        n
    }

    /// Classical lists: whether further accesses to the folio can still change anything.
    #[inline]
    pub(crate) fn settle(&self, folio: FolioId, settled: bool) {
        if self.lists == Lists::Classical {
            self.notes[folio.index()].store(if settled { SETTLED } else { 0 }, Relaxed);
        }
    }

    /// Forgets everything about a frame that got a new folio. `descriptor`: not by a fault.
    #[inline]
    pub(crate) fn reset(&self, folio: FolioId, descriptor: bool) {
        let echo = descriptor && self.lists == Lists::Tide;
        self.notes[folio.index()].store(if echo { ECHO } else { 0 }, Relaxed);
    }

    /// Bytes of memory that the notes take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.notes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_saturate_and_are_taken_once() {
        let a = AccessCounts::new(2, Lists::MultiGen);
        for _ in 0..9 {
            assert!(!a.record(FolioId(1)));
        }
        assert_eq!((a.take(FolioId(1)), a.take(FolioId(1)), a.take(FolioId(0))), (5, 0, 0));
    }

    #[test]
    fn the_read_that_misses_is_no_second_access() {
        let a = AccessCounts::new(1, Lists::Tide);
        let f = FolioId(0);
        a.reset(f, true);
        assert_eq!(a.take(f), 0);
        assert!(!a.record(f));
        assert_eq!(a.take(f), 0, "the echo");
        assert!(!a.record(f) && !a.record(f));
        assert_eq!((a.take(f), a.take(f)), (1, 0));
        a.reset(f, false);
        assert!(!a.record(f));
        assert_eq!(a.take(f), 1, "a fault marks nothing");
    }

    #[test]
    fn classical_readers_tell_the_engine_until_it_is_settled() {
        let a = AccessCounts::new(1, Lists::Classical);
        assert!(a.record(FolioId(0)));
        a.settle(FolioId(0), true);
        assert!(!a.record(FolioId(0)));
        a.settle(FolioId(0), false);
        assert!(a.record(FolioId(0)));
    }
}
