//! What a view asks of write-back: flush, and forget.

use super::ledger::{Failure, Told};
use crate::deadline::Deadline;
use crate::error::Error;
use crate::fault_sites::FaultSite;
use crate::hazard;
use crate::pool::Pool;
use crate::space::Space;
use crate::translation::{Entry, State as EntryState, Taken};
use lowtide_core::{Flags, FolioId};
use std::ops::Range;
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Pause between two looks at a page that is being written.
const PAUSE: Duration = Duration::from_millis(1);

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
            (Ok(()), None) if space.backing.is_removed() => Err(Error::Removed { path: space.path() }),
            (Ok(()), None) => Ok(()),
        }
    }

    /// Drops what pages hold that the file does not: they are absent afterwards. Of a large folio all pages must be in the range. Returns the number of dirty pages that were dropped.
    pub(crate) fn discard(&self, space: &Space, pages: Range<u64>) -> Result<u64, Error> {
        let deadline = Deadline::after(self.io_deadline);
        let mut dropped = 0;
        let mut page = pages.start;
        let end = pages.end.min(space.table.pages());
        while page < end {
            page = match self.discard_folio(space, page, &pages, deadline)? {
                Some((next, dirty)) => {
                    dropped += dirty;
                    next
                }
                None => page + 1,
            };
        }
        crate::sync::lock(&space.ledger).discarded(pages);
        Ok(dropped)
    }

    /// Drops the folio of a page, if it is resident and wholly within `wanted`. Returns the page behind it, and how many of its pages were dirty.
    fn discard_folio(
        &self,
        space: &Space,
        page: u64,
        wanted: &Range<u64>,
        deadline: Deadline,
    ) -> Result<Option<(u64, u64)>, Error> {
        let mut slots = hazard::Slots::default();
        loop {
            let entry = space.table.entry(page);
            let frame = match entry.load() {
                EntryState::Absent { .. } => return Ok(None),
                seen @ (EntryState::Busy | EntryState::Locked { .. }) => {
                    drop(self.waits.wait(entry, seen));
                    continue;
                }
                EntryState::Resident { frame, .. } => frame,
            };
            let found = {
                let state = self.lock();
                let id = state.engine.folio_of(FolioId(frame));
                id.and_then(|id| state.engine.folio(id).map(|f| (id, f.owner().page, f.order(), f.flags())))
            };
            let Some((id, first, order, flags)) = found else { continue };
            let of_folio = first..first + (1 << order);
            if of_folio.start < wanted.start || of_folio.end > wanted.end {
                return Ok(Some((of_folio.end, 0)));
            }
            if of_folio.clone().any(|p| hazard::held_by_this_thread(space.table.entry(p).address())) {
                return Err(Error::HeldHere { path: space.path(), page });
            }
            if flags.contains(Flags::WRITEBACK) {
                let state = self.lock();
                drop(self.freed.wait_timeout(state, PAUSE).unwrap_or_else(PoisonError::into_inner));
                if deadline.has_passed() {
                    self.fault_sites.mark(FaultSite::DeadlinePassed);
                    let seconds = self.io_deadline.as_secs_f64();
                    let what = "waiting for a page that is being written";
                    return Err(Error::Timeout { path: space.path(), seconds, what });
                }
                continue;
            }
            // All of it or nothing: who owns several translations does not wait for another.
            let entries: Vec<&Entry> = of_folio.clone().map(|p| space.table.entry(p)).collect();
            let taken: Vec<Taken> = entries.iter().map_while(|e| e.try_lock_for_store().ok()).collect();
            let give_back = |taken: &[Taken]| {
                for ((entry, page), taken) in entries.iter().zip(of_folio.clone()).zip(taken) {
                    self.unlock(space, page, entry, *taken);
                }
            };
            let mine = taken.len() == entries.len() && taken[0].frame == id.0;
            if !mine {
                give_back(&taken);
                std::thread::yield_now();
                continue;
            }
            if let Some(held) = entries.iter().position(|e| !self.outwait_readers(e, &mut slots)) {
                give_back(&taken);
                return Err(self.held(space, first + held as u64));
            }
            let mut state = self.lock();
            let writing = state.engine.folio(id).is_some_and(|f| f.flags().contains(Flags::WRITEBACK));
            if writing {
                drop(state);
                give_back(&taken);
                continue;
            }
            let removed = state.engine.remove(id);
            assert!(removed, "{id:?} is isolated outside of the pool's lock");
            for entry in entries {
                if entry.discard() {
                    self.waits.land(entry, &Ok(()));
                }
            }
            state.frames.free(id.0, order);
            drop(state);
            self.freed.notify_all();
            let dirty = taken.iter().filter(|t| t.dirty).count() as u64;
            return Ok(Some((of_folio.end, dirty)));
        }
    }
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
