//! Giving pages of a region up: they are nowhere afterwards, and read as zeroes; or lazily, so that
//! reclaim may drop them (`lazy.rs`).
//!
//! Page by page, each taken as a store takes it: one in memory is locked and its guards are waited
//! for; one in swap is made busy. A page that another thread compresses or brings in is waited for.

use super::access::{Owned, check_not_held, check_range, entry};
use super::fill::PAUSE;
use super::pages::AnonPages;
use crate::ahead::readahead::note_evicted;
use crate::error::Error;
use crate::fault::Claim;
use crate::fault::attempt::{Attempts, Stop};
use crate::pool::Pool;
use crate::space::Space;
use crate::space::whole::{Parts, has_all};
use crate::store::{outwait_readers, unlock};
use crate::swap::{Slot, fill_reserves};
use lowtide_core::{FolioId, Task};
use lowtide_pin::translation::{Entry, State as EntryState, Taken};
use std::ops::Range;

/// Makes a range of bytes zeroes. Whole pages take no memory and no swap afterwards.
pub(super) fn discard(pool: &Pool, space: &Space, bytes: Range<u64>) -> Result<(), Error> {
    let count = bytes.end.saturating_sub(bytes.start);
    check_range(space, bytes.start, count)?;
    if count == 0 {
        return Ok(());
    }
    let Parts { head, whole, tail } = Parts::of(&bytes, space.len(), pool.page_shift);
    zero(pool, space, head)?;
    zero(pool, space, tail)?;
    discard_pages(pool, space, whole, bytes.end)
}

/// Permits reclaim to drop the whole pages in a range. Those that a thread stores to at this
/// moment, or that reclaim looks at, stay as they are.
///
/// # Errors
/// The range is not all in the region.
pub(super) fn free_lazily(pool: &Pool, space: &Space, bytes: Range<u64>) -> Result<(), Error> {
    check_range(space, bytes.start, bytes.end.saturating_sub(bytes.start))?;
    let mut pages = Parts::of(&bytes, space.len(), pool.page_shift).whole;
    pages.try_for_each(|page| free_page_lazily(pool, space, page, bytes.end))
}

/// Of the last page `end` may be all there is. A page that is not all freed any more stays as it
/// is.
fn free_page_lazily(pool: &Pool, space: &Space, page: u64, end: u64) -> Result<(), Error> {
    pool.check()?;
    let entry = entry(space, page)?;
    match entry.load() {
        EntryState::Absent { shadow: 0 } | EntryState::Busy | EntryState::Locked { .. } => Ok(()),
        EntryState::Absent { .. } => discard_page(pool, space, page, end).map(drop),
        EntryState::Resident { .. } => {
            if let Ok(taken) = entry.try_lock_for_store() {
                let freed = has_all(space, end, (page + 1) << pool.page_shift)
                    && free_frame(pool, space.anon(), page, taken.frame);
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

/// Makes pages nowhere. Of the last of them the bytes before `end` may be all there are: if that is
/// not so any more, when the page is owned, those become zeroes.
///
/// # Errors
/// A guard stays on one of them, or it is not in the region; those before it are gone.
pub(crate) fn discard_pages(
    pool: &Pool,
    space: &Space,
    pages: Range<u64>,
    end: u64,
) -> Result<(), Error> {
    let discard = |page| match discard_page(pool, space, page, end)? {
        Discarded::Gone => Ok(()),
        Discarded::IsLonger => zero(pool, space, page << pool.page_shift..end),
    };
    let result = pages.clone().try_for_each(discard);
    pool.lock().reuse.forget(space.id, pages.clone());
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

/// What became of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Discarded {
    /// It is nowhere.
    Gone,
    /// It stays as it is: the region has become longer, and has more of it than is given up.
    IsLonger,
}

/// Makes a page nowhere, if the region has nothing of it past `end`.
fn discard_page(pool: &Pool, space: &Space, page: u64, end: u64) -> Result<Discarded, Error> {
    let entry = space.table.get(page).ok_or_else(|| space.out_of_range(page))?;
    let is_all = || has_all(space, end, (page + 1) << pool.page_shift);
    let mut attempts = Attempts::new(pool, space);
    loop {
        pool.check()?;
        match entry.load() {
            EntryState::Absent { shadow: 0 } => return Ok(Discarded::Gone),
            EntryState::Absent { shadow } => {
                if entry.try_begin_read(shadow).is_err() {
                    continue;
                }
                if !is_all() {
                    pool.abandon(space, &Claim::of_one(page, shadow), &Ok(()));
                    return Ok(Discarded::IsLonger);
                }
                drop_from_swap(pool, space, page, entry);
                return Ok(Discarded::Gone);
            }
            EntryState::Resident { .. } => {
                check_not_held(space, page, entry)?;
                let Ok(mut taken) = entry.try_lock_for_store() else { continue };
                if !outwait_readers(entry, &mut taken, &mut attempts) {
                    unlock(pool, space, page, entry, taken);
                    attempts.again(Stop::held(page, taken))?;
                } else if !is_all() {
                    unlock(pool, space, page, entry, taken);
                    return Ok(Discarded::IsLonger);
                } else if drop_frame(pool, (space, page, entry), taken.frame) {
                    return Ok(Discarded::Gone);
                } else {
                    unlock(pool, space, page, entry, taken);
                }
            }
            seen @ (EntryState::Busy | EntryState::Locked { .. }) => {
                check_not_held(space, page, entry)?;
                space.check_not_nested(page)?;
                drop(pool.wait(space, entry, seen));
            }
        }
    }
}

/// Gives up the slot of a page that this thread has made busy.
pub(super) fn drop_from_swap(pool: &Pool, space: &Space, page: u64, entry: &Entry) {
    let anon = space.anon();
    let slot = anon.slots.take(page);
    let store = anon.store();
    if let Ok(mut state) = pool.lock_sound() {
        let group = state.engine.group_of_space(space.id);
        state.engine.free_swap(group, 1);
    }
    if entry.abort_read(0) {
        pool.waits.complete(entry, &Ok(()));
    }
    store.free(slot);
}

/// Gives up the frame of a page that this thread has locked, and on which no guard is. False,
/// having done nothing, after a defect of the pager.
fn drop_frame(pool: &Pool, at: (&Space, u64, &Entry), frame: u32) -> bool {
    while !pool.is_poisoned() {
        if try_drop_frame(pool, at, frame) {
            return true;
        }
        // A reclaim pass has it isolated, and compresses its neighbours.
        drop(pool.lock().wait(|guard| pool.freed.wait(guard, PAUSE)));
    }
    false
}

/// The same, if no reclaim pass has it isolated.
pub(super) fn try_drop_frame(
    pool: &Pool,
    (space, page, entry): (&Space, u64, &Entry),
    frame: u32,
) -> bool {
    let mut state = pool.lock();
    if pool.is_poisoned() || !state.engine.remove(FolioId(frame)) {
        return false;
    }
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
    fill_reserves(pool, &mut state);
    drop(state);
    if !slot.is_none() {
        anon.store().free(slot);
    }
    pool.freed.wake_all();
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pager, Region, Size, SwapOptions};

    const LAST: u64 = 3;
    /// Where the region ends that is given up, in its last page.
    const END: u64 = LAST * 4096 + 1000;

    /// A region that ends at [`END`] and is full of ones, before others make it longer.
    fn region(pager: &Pager) -> Region {
        let heap = pager.root().region(END).unwrap();
        heap.write_at(0, &[1; END as usize]).unwrap();
        heap
    }

    fn pager() -> Pager {
        let swap = SwapOptions::compressed(Size::mib(1));
        Pager::builder().max(Size::mib(2)).swap(swap).build().unwrap()
    }

    fn evict(heap: &Region) {
        while heap.is_resident(LAST) {
            heap.pager().root().reclaim(Size::new(1 << 20)).unwrap();
        }
    }

    /// Others make the region longer, and store past the old end.
    fn store_past(heap: &Region) {
        assert_eq!(heap.grow(1000).unwrap(), END);
        heap.write_at(END, &[3; 1000]).unwrap();
    }

    /// The last page has this byte before the old end, and past it what was stored there.
    fn check(heap: &Region, before: u8) {
        let mut found = [0; 2000];
        heap.read_at(LAST * 4096, &mut found).unwrap();
        assert!(found[..1000].iter().all(|byte| *byte == before), "what was given up");
        assert!(found[1000..].iter().all(|byte| *byte == 3), "what was stored past it is lost");
        heap.pager().validate().unwrap();
    }

    #[test]
    fn a_discard_of_what_was_all_of_the_last_page_keeps_what_was_stored_past_it_meanwhile() {
        let pager = pager();
        for in_swap in [false, true] {
            let heap = region(&pager);
            store_past(&heap);
            if in_swap {
                evict(&heap);
            }
            // A thread that found that its range ends with the region is late.
            discard_pages(heap_pool(&heap), &heap.space, 0..LAST + 1, END).unwrap();
            check(&heap, 0);
            let before = heap.page(LAST - 1).unwrap();
            assert!(before.iter().all(|byte| *byte == 0) && !heap.is_resident(LAST - 1));
        }
    }

    #[test]
    fn a_page_that_is_freed_lazily_and_has_become_longer_meanwhile_stays() {
        let pager = pager();
        for in_swap in [false, true] {
            let heap = region(&pager);
            store_past(&heap);
            if in_swap {
                evict(&heap);
            }
            free_page_lazily(heap_pool(&heap), &heap.space, LAST, END).unwrap();
            evict(&heap);
            check(&heap, 1);
        }
    }

    #[test]
    fn what_is_stored_past_the_end_of_a_page_that_was_freed_lazily_keeps_the_page() {
        let pager = pager();
        let heap = region(&pager);
        heap.advise_free(0..END).unwrap();
        store_past(&heap);
        evict(&heap);
        check(&heap, 1);
    }

    fn heap_pool(heap: &Region) -> &Pool {
        &heap.pool
    }
}
