//! Giving pages of a region up: they are nowhere afterwards, and read as zeroes.
//!
//! Page by page, each taken as a store takes it: one in memory is locked and its guards are waited
//! for; one in swap is made busy. A page that another thread compresses or brings in is waited for.

use super::access::{Owned, check_not_held, check_range, entry};
use super::fill::PAUSE;
use crate::attempt::{Attempts, Stop};
use crate::deadline::Deadline;
use crate::error::Error;
use crate::nested::is_nested;
use crate::pool::Pool;
use crate::space::Space;
use crate::store::{outwait_readers, unlock};
use crate::translation::{Entry, State as EntryState};
use lowtide_core::FolioId;
use std::ops::Range;
use std::time::Duration;

/// Time between two looks at a page of a region that is closed.
const LOOK: Duration = Duration::from_micros(50);

/// Makes a range of bytes zeroes. Whole pages take no memory and no swap afterwards.
pub(super) fn discard(pool: &Pool, space: &Space, bytes: Range<u64>) -> Result<(), Error> {
    let count = bytes.end.saturating_sub(bytes.start);
    check_range(space, bytes.start, count)?;
    if count == 0 {
        return Ok(());
    }
    let page_bytes = pool.page_bytes() as u64;
    let first = bytes.start.div_ceil(page_bytes);
    // Behind the end there is nothing to keep.
    let end = if bytes.end == space.len() { space.pages() } else { bytes.end / page_bytes };
    if first > end {
        return zero(pool, space, bytes);
    }
    zero(pool, space, bytes.start..first * page_bytes)?;
    zero(pool, space, (end * page_bytes).max(bytes.start)..bytes.end)?;
    discard_pages(pool, space, first..end)
}

/// Makes pages nowhere.
///
/// # Errors
/// A guard stays on one of them, or it is not in the region; those before it are gone.
pub(crate) fn discard_pages(
    pool: &Pool,
    space: &Space,
    mut pages: Range<u64>,
) -> Result<(), Error> {
    pages.try_for_each(|page| discard_page(pool, space, page))
}

/// Zeroes a part of one page, unless the page is nowhere.
fn zero(pool: &Pool, space: &Space, bytes: Range<u64>) -> Result<(), Error> {
    if bytes.start >= bytes.end {
        return Ok(());
    }
    let page = bytes.start >> pool.page_shift;
    if (entry(space, page)?.load() == EntryState::Absent { shadow: 0 }) {
        return Ok(());
    }
    let at = (bytes.start - (page << pool.page_shift)) as usize;
    let len = (bytes.end - bytes.start) as usize;
    Owned::take(pool, space, page)?.bytes()[at..at + len].fill(0);
    Ok(())
}

/// Makes a page nowhere, also one behind an end that was moved.
fn discard_page(pool: &Pool, space: &Space, page: u64) -> Result<(), Error> {
    let entry = space.table.get(page).ok_or_else(|| space.out_of_range(page))?;
    let mut attempts = Attempts::new(pool, space);
    loop {
        pool.check()?;
        match entry.load() {
            EntryState::Absent { shadow: 0 } => return Ok(()),
            EntryState::Absent { shadow } => {
                if entry.try_begin_read(shadow).is_ok() {
                    drop_from_swap(pool, space, page, entry);
                    return Ok(());
                }
            }
            EntryState::Resident { .. } => {
                check_not_held(space, page, entry)?;
                let Ok(mut taken) = entry.try_lock_for_store() else { continue };
                if !outwait_readers(entry, &mut taken, &mut attempts) {
                    unlock(pool, space, page, entry, taken);
                    attempts.again(Stop::Guarded(page))?;
                } else if drop_frame(pool, (space, page, entry), taken.frame) {
                    return Ok(());
                } else {
                    unlock(pool, space, page, entry, taken);
                }
            }
            seen @ (EntryState::Busy | EntryState::Locked { .. }) => {
                check_not_held(space, page, entry)?;
                if is_nested() {
                    return Err(Error::Nested { path: space.path(), page });
                }
                drop(pool.wait(entry, seen));
            }
        }
    }
}

/// Gives up the slot of a page that this thread has made busy.
fn drop_from_swap(pool: &Pool, space: &Space, page: u64, entry: &Entry) {
    let anon = space.anon();
    let slot = anon.slots.take(page);
    let store = anon.store();
    {
        let mut state = pool.lock();
        if !pool.is_poisoned() {
            let group = state.engine.group_of_space(space.id);
            state.engine.free_swap(group, 1);
        }
    }
    if entry.abort_read(0) {
        pool.waits.complete(entry, &Ok(()));
    }
    store.free(slot);
}

/// Gives up the frame of a page that this thread has locked, and on which no guard is. False,
/// having done nothing, after a defect of the pager.
fn drop_frame(pool: &Pool, (space, page, entry): (&Space, u64, &Entry), frame: u32) -> bool {
    let mut state = pool.lock();
    while !pool.is_poisoned() {
        if state.engine.remove(FolioId(frame)) {
            if let Some(mapped) = &space.mapped {
                mapped.release(page..page + 1);
            }
            if entry.discard() {
                pool.waits.complete(entry, &Ok(()));
            }
            let unused = pool.unused.take(frame);
            state.frames.free(frame, 0);
            drop(state);
            if unused {
                space.anon().ahead_ended(false);
            }
            pool.freed.wake_all();
            return true;
        }
        // A reclaim pass has it isolated, and compresses its neighbours.
        state = pool.freed.wait(state, PAUSE);
    }
    false
}

/// Drops all pages of a region that no thread uses any more. Returns whether all are gone: one
/// whose guard was forgotten stays.
pub(super) fn discard_all(pool: &Pool, space: &Space) -> bool {
    let deadline = Deadline::after(pool.patience);
    let mut gone = true;
    for pages in space.table.used() {
        for page in pages {
            // No thread uses the region: what has a page now ends by itself, unless a guard for
            // storing was forgotten.
            let entry = space.table.entry(page);
            let owned = || matches!(entry.load(), EntryState::Busy | EntryState::Locked { .. });
            while owned() && !deadline.has_passed() {
                std::thread::sleep(LOOK);
            }
            gone &= !owned() && discard_page(pool, space, page).is_ok();
        }
    }
    gone
}
