//! What a view asks of write-back: flush, and forget.

use super::ledger::{Failure, Told};
use crate::deadline::Deadline;
use crate::error::Error;
use crate::hazard;
use crate::nested::is_nested;
use crate::pool::Pool;
use crate::reclaim::folio_of;
use crate::space::Space;
use crate::translation::{Entry, State as EntryState, Taken};
use lowtide_core::Flags;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

impl Pool {
    /// Makes durable what was stored to pages before the call, and tells the handle whose cursor it is of incidents since it last asked.
    pub(crate) fn flush(
        &self,
        space: &Arc<Space>,
        pages: Range<u64>,
        cursor: &AtomicU64,
    ) -> Result<(), Error> {
        let outcome = self.make_durable(space, pages)?;
        let told = space.tell(cursor);
        match (outcome, told) {
            (Err(failure), told) => Err(write_error(space, failure, told.map_or(0, |t| t.incidents))),
            (Ok(()), Some(Told { incidents, last })) => Err(write_error(space, last, incidents)),
            (Ok(()), None) => Ok(()),
        }
    }

    /// Drops what pages hold that the file does not: they are absent afterwards. A large folio that is not wholly in the range stays. Returns the number of
    /// dirty pages that were dropped.
    pub(crate) fn discard(&self, space: &Space, pages: Range<u64>) -> Result<u64, Error> {
        let deadline = Deadline::after(self.io_deadline);
        let (mut dropped, mut page, mut from) = (0, pages.start, pages.start);
        let forgotten = |pages: Range<u64>| crate::sync::lock(&space.ledger).discarded(pages);
        while page < pages.end.min(space.table.pages()) {
            match self.discard_folio(space, page, &pages, deadline) {
                Ok(Discarded::Absent) => page += 1,
                Ok(Discarded::Gone { end, dirty }) => {
                    dropped += dirty;
                    page = end;
                }
                Ok(Discarded::Kept(of_folio)) => {
                    forgotten(from..of_folio.start.max(from));
                    (page, from) = (of_folio.end, of_folio.end);
                }
                Err(e) => {
                    forgotten(from..page);
                    return Err(e);
                }
            }
        }
        forgotten(from..pages.end.max(from));
        Ok(dropped)
    }

    /// Takes the folio of a page out of memory, dirty or not, if it lies wholly within `wanted`. Waits for
    /// guards, for stores and for its write, and owns nothing but the folio while it does.
    ///
    /// # Errors
    /// [`Error::HeldHere`], [`Error::HeldElsewhere`], [`Error::Nested`], [`Error::Timeout`]; the folio is as it was.
    pub(crate) fn discard_folio(
        &self,
        space: &Space,
        page: u64,
        wanted: &Range<u64>,
        deadline: Deadline,
    ) -> Result<Discarded, Error> {
        let entry = space.table.entry(page);
        loop {
            let state = self.lock();
            self.check()?;
            let frame = match entry.load() {
                EntryState::Absent { .. } => return Ok(Discarded::Absent),
                EntryState::Resident { frame, .. } => frame,
                seen @ (EntryState::Busy | EntryState::Locked { .. }) => {
                    drop(state);
                    if hazard::held_by_this_thread(entry.address()) {
                        // A store that has the page locked waits for this thread's guard.
                        return Err(Error::HeldHere { path: space.path(), page });
                    }
                    if is_nested() {
                        // What this thread waits for may be among what it reads itself.
                        return Err(Error::Nested { path: space.path(), page });
                    }
                    drop(self.wait(entry, seen));
                    continue;
                }
            };
            let id = folio_of(&state, space, page, frame);
            let folio = *state.engine.folio(id).expect("it was just found");
            let of_folio = folio.owner().page..folio.owner().page + (1 << folio.order());
            if of_folio.start < wanted.start || of_folio.end > wanted.end {
                return Ok(Discarded::Kept(of_folio));
            }
            if of_folio.clone().any(|p| hazard::held_by_this_thread(space.table.entry(p).address())) {
                return Err(Error::HeldHere { path: space.path(), page });
            }
            if folio.flags().contains(Flags::WRITEBACK) {
                drop(state);
                self.outwait_write(space, page, entry, deadline)?;
                continue;
            }
            drop(state);
            // All of it or nothing: who owns several translations does not wait for another.
            let entries: Vec<&Entry> = of_folio.clone().map(|p| space.table.entry(p)).collect();
            let taken: Vec<Taken> = entries.iter().map_while(|e| e.try_lock_for_store().ok()).collect();
            let give_back = || {
                for ((entry, page), taken) in entries.iter().zip(of_folio.clone()).zip(&taken) {
                    self.unlock(space, page, entry, *taken);
                }
            };
            if taken.len() < entries.len() {
                give_back();
                std::thread::yield_now();
                continue;
            }
            if let Some(held) = entries.iter().position(|e| !self.outwait_readers(e)) {
                give_back();
                return Err(self.held(space, of_folio.start + held as u64));
            }
            let mut state = self.lock();
            if let Err(e) = self.check() {
                give_back();
                return Err(e);
            }
            // Before the pages were locked, the folio may have been evicted, and come back elsewhere or in pieces. Or its write has begun.
            let now = state.engine.folio(id).filter(|now| {
                let same = now.owner() == folio.owner() && now.order() == folio.order();
                same && !now.flags().contains(Flags::WRITEBACK)
            });
            if now.is_none() || taken.iter().zip(id.0..).any(|(taken, frame)| taken.frame != frame) {
                drop(state);
                give_back();
                continue;
            }
            for entry in entries {
                if entry.discard() {
                    self.waits.land(entry, &Ok(()));
                }
            }
            state.free_folio(id, folio.order());
            drop(state);
            self.freed.ring();
            let dirty = taken.iter().filter(|t| t.dirty).count() as u64;
            return Ok(Discarded::Gone { end: of_folio.end, dirty });
        }
    }
}

/// What came of discarding a page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Discarded {
    /// It was not in memory.
    Absent,
    /// It has left memory with the other pages of its folio: the page behind them, and how many were dirty.
    Gone { end: u64, dirty: u64 },
    /// These are the pages of its folio, and some of them are to stay.
    Kept(Range<u64>),
}

impl Space {
    /// What a handle has not been told yet; moves its cursor.
    fn tell(&self, cursor: &AtomicU64) -> Option<Told> {
        let mut ledger = crate::sync::lock(&self.ledger);
        let mut at = cursor.load(Relaxed);
        let told = ledger.tell(&mut at);
        cursor.store(at, Relaxed);
        told
    }
}

/// The error of a view, for pages that could not be written.
pub(crate) fn write_error(space: &Space, failure: Failure, incidents: u64) -> Error {
    let Failure { pages, source } = failure;
    let end = space.pages().max(pages.start);
    Error::Write { path: space.path(), pages: pages.start..pages.end.min(end), incidents, source }
}
