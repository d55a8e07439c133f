//! Giving pages of a region up: they are nowhere afterwards, and read as zeroes; or lazily, so that
//! reclaim may drop them (`lazy.rs`).
//!
//! Page by page, each taken as a store takes it: one in memory is locked and its guards are waited
//! for; one in swap is made busy. A page that another thread compresses or brings in is waited for.

use super::access::{Owned, check_not_held, check_range, entry};
use super::fill::PAUSE;
use super::pages::AnonPages;
use crate::attempt::{Attempts, Stop};
use crate::deadline::Deadline;
use crate::error::Error;
use crate::nested::is_nested;
use crate::pool::Pool;
use crate::readahead::note_evicted;
use crate::space::Space;
use crate::store::{outwait_readers, unlock};
use crate::swap::Slot;
use crate::translation::{Entry, State as EntryState, Taken};
use lowtide_core::{FolioId, Task};
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
    let (pages, edges) = whole_pages(&bytes, space.len(), pool.page_shift);
    for edge in edges {
        zero(pool, space, edge)?;
    }
    discard_pages(pool, space, pages)
}

/// The pages that lie in a range of the bytes of a region of `len`, and what of the range lies
/// before and behind them. The last page lies in a range that ends with the region: behind the end
/// there is nothing to keep.
pub(crate) fn whole_pages(
    bytes: &Range<u64>,
    len: u64,
    page_shift: u32,
) -> (Range<u64>, [Range<u64>; 2]) {
    let first = bytes.start.div_ceil(1 << page_shift);
    let to_end = (bytes.end == len).then(|| len.div_ceil(1 << page_shift));
    let end = to_end.unwrap_or(bytes.end >> page_shift);
    if first > end {
        // It lies in one page.
        return (first..first, [bytes.clone(), bytes.end..bytes.end]);
    }
    let (from, to) = (first << page_shift, end << page_shift);
    (first..end, [bytes.start..from.min(bytes.end), to.max(bytes.start).min(bytes.end)..bytes.end])
}

/// Permits reclaim to drop the whole pages in a range. Those that a thread stores to at this
/// moment, or that reclaim looks at, stay as they are.
///
/// # Errors
/// The range is not all in the region.
pub(super) fn free_lazily(pool: &Pool, space: &Space, bytes: Range<u64>) -> Result<(), Error> {
    check_range(space, bytes.start, bytes.end.saturating_sub(bytes.start))?;
    let (pages, _) = whole_pages(&bytes, space.len(), pool.page_shift);
    pages.into_iter().try_for_each(|page| free_page_lazily(pool, space, page))
}

fn free_page_lazily(pool: &Pool, space: &Space, page: u64) -> Result<(), Error> {
    pool.check()?;
    let entry = entry(space, page)?;
    match entry.load() {
        EntryState::Absent { shadow: 0 } | EntryState::Busy | EntryState::Locked { .. } => Ok(()),
        EntryState::Absent { .. } => discard_page(pool, space, page),
        EntryState::Resident { .. } => {
            if let Ok(taken) = entry.try_lock_for_store() {
                let freed = free_frame(pool, space.anon(), page, taken.frame);
                let young = taken.young && !freed;
                unlock(pool, space, page, entry, Taken { young, ..taken });
            }
            Ok(())
        }
    }
}

/// The same for a page in memory, which this thread has locked. Returns whether it can be dropped.
fn free_frame(pool: &Pool, anon: &AnonPages, page: u64, frame: u32) -> bool {
    let slot = {
        let mut state = pool.lock();
        if pool.is_poisoned() || !state.engine.free_lazily(FolioId(frame), Task::DESCRIPTOR) {
            return false;
        }
        anon.take_kept(page)
    };
    anon.lazy.insert(page);
    if !slot.is_none() {
        anon.store().free(slot);
    }
    true
}

/// Makes pages nowhere.
///
/// # Errors
/// A guard stays on one of them, or it is not in the region; those before it are gone.
pub(crate) fn discard_pages(pool: &Pool, space: &Space, pages: Range<u64>) -> Result<(), Error> {
    let result = pages.clone().try_for_each(|page| discard_page(pool, space, page));
    space.anon().trim(pages);
    result
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
                    attempts.again(Stop::held(page, taken))?;
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
                drop(pool.wait(space, entry, seen));
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
            let anon = space.anon();
            let slot = if anon.keeps() { anon.take_kept(page) } else { Slot::NONE };
            anon.lazy.remove(page);
            if let Some(mapped) = &space.mapped {
                mapped.release(page..page + 1);
            }
            if entry.discard() {
                pool.waits.complete(entry, &Ok(()));
            }
            note_evicted(pool, space, page, frame..frame + 1);
            state.frames.free(frame, 0);
            drop(state);
            if !slot.is_none() {
                anon.store().free(slot);
            }
            pool.freed.wake_all();
            return true;
        }
        // A reclaim pass has it isolated, and compresses its neighbours.
        state = state.wait(|guard| pool.freed.wait(guard, PAUSE));
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
    if !pool.is_poisoned() {
        space.anon().trim(0..u64::MAX);
    }
    gone
}
