//! What a view requests of write-back: flush and discard.

use super::ledger::{Failure, Report};
use crate::error::Error;
use crate::fault::attempt::Attempts;
use crate::pool::Pool;
use crate::space::Space;
use crate::space::owned::Owned;
use lowtide_pin::translation::State as EntryState;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Makes durable what was stored to pages before the call, and reports incidents that the handle
/// with this cursor has not seen.
pub(crate) fn flush(
    pool: &Pool,
    space: &Arc<Space>,
    pages: Range<u64>,
    cursor: &AtomicU64,
) -> Result<(), Error> {
    let outcome = pool.make_durable(space, pages)?;
    let report = space.report(cursor);
    match (outcome, report) {
        (Err(failure), report) => {
            Err(write_error(space, failure, report.map_or(0, |r| r.incidents)))
        }
        (Ok(()), Some(Report { incidents, last })) => Err(write_error(space, last, incidents)),
        (Ok(()), None) => Ok(()),
    }
}

/// Drops what pages hold that the file does not: they are absent afterwards. A large folio that
/// is not wholly in the range stays. Returns the number of dirty pages that were dropped.
pub(crate) fn discard(pool: &Pool, space: &Space, pages: Range<u64>) -> Result<u64, Error> {
    let (mut dropped, mut page) = (0, pages.start);
    while page < pages.end.min(space.table.pages()) {
        match discard_folio(pool, space, page, &pages)? {
            Discarded::Absent => page += 1,
            Discarded::Gone { end, dirty } => {
                dropped += dirty;
                page = end;
            }
            Discarded::Kept(of_folio) => page = of_folio.end,
        }
    }
    Ok(dropped)
}

/// Takes the folio of a page out of memory, dirty or not, if it lies wholly within `wanted`.
/// Waits for guards, for stores and for its write, and owns nothing but the folio, for an
/// attempt at a time.
///
/// # Errors
/// [`Error::HeldHere`], [`Error::HeldElsewhere`], [`Error::Nested`], [`Error::Timeout`]; the
/// folio is as it was.
fn discard_folio(
    pool: &Pool,
    space: &Space,
    page: u64,
    wanted: &Range<u64>,
) -> Result<Discarded, Error> {
    Attempts::new(pool, space).repeat(|attempts| {
        loop {
            pool.check()?;
            let Some(of_folio) = folio_around(pool, space, page) else {
                return Ok(Discarded::Absent);
            };
            if of_folio.start < wanted.start || of_folio.end > wanted.end {
                return Ok(Discarded::Kept(of_folio));
            }
            let mut owned = Owned::take(pool, space, of_folio.clone(), 0..0, true, attempts)?;
            let dirty = owned.drop_folios(of_folio.start);
            if owned.is_empty() {
                return Ok(Discarded::Gone { end: of_folio.end, dirty });
            }
            // Before it was owned it was evicted, and came back as a part of another folio.
        }
    })
}

/// The pages of the folio that a page is in; only the page itself while it is being read. `None`
/// if it is absent: then the ledger forgets it, before anything new is stored to it.
fn folio_around(pool: &Pool, space: &Space, page: u64) -> Option<Range<u64>> {
    let state = pool.lock();
    match space.table.entry(page).load() {
        EntryState::Absent { .. } => {
            // A page gets its frame under the pool's lock.
            lowtide_pin::sync::lock(&space.ledger).discarded(page..page + 1);
            None
        }
        EntryState::Busy => Some(page..page + 1),
        // It stays there: evicting and discarding take the lock.
        EntryState::Resident { frame, .. } | EntryState::Locked { frame, .. } => {
            let folio =
                state.engine.folio(state.folio_of(space, page, frame)).expect("it was just found");
            Some(folio.owner().page..folio.owner().page + folio.pages())
        }
    }
}

/// The result of discarding a page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Discarded {
    /// It was not in memory.
    Absent,
    /// It has left memory with the other pages of its folio: the page behind them, and how many
    /// were dirty.
    Gone { end: u64, dirty: u64 },
    /// These are the pages of its folio, and some of them are to stay.
    Kept(Range<u64>),
}

impl Space {
    /// The incidents that a handle has not seen yet; moves its cursor.
    fn report(&self, cursor: &AtomicU64) -> Option<Report> {
        let mut ledger = lowtide_pin::sync::lock(&self.ledger);
        let mut at = cursor.load(Relaxed);
        let report = ledger.report(&mut at);
        cursor.store(at, Relaxed);
        report
    }
}

/// The error of a view, for pages that could not be written.
pub(crate) fn write_error(space: &Space, failure: Failure, incidents: u64) -> Error {
    let Failure { pages, source } = failure;
    let end = space.pages().max(pages.start);
    Error::Write { path: space.path(), pages: pages.start..pages.end.min(end), incidents, source }
}
