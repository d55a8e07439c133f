//! Owning all pages of a range for a moment, to change what the file is beneath them.
//!
//! A resident page is locked, as a store locks it; an absent one may be made busy, as a read makes
//! it, so that no thread brings it in meanwhile. When this thread owns all of them, no guard is on
//! any, and none of their folios is being written. Then it drops them, changes their bytes, or
//! gives them back as they were.
//!
//! It is all or nothing: a thread that owns several translations never waits for another's. If a
//! page is busy in another thread, or is being written, everything is given back, and the thread
//! looks again after a pause. Guards are waited for while the pages are owned, since no new ones
//! can be taken; but not for long at a time, since the holder of a guard may need these pages to
//! drop it (`attempt.rs`).

use super::Space;
use crate::error::Error;
use crate::fault::attempt::{Attempts, Stop};
use crate::pool::Pool;
use crate::store::{outwait_readers, unlock};
use lowtide_core::{Flags, FolioId};
use lowtide_pin::hazard;
use lowtide_pin::translation::{Entry, State as EntryState, Taken};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(1);
/// Folios that are dropped under one acquisition of the pool's lock.
const DROPPED_AT_ONCE: usize = 64;

/// How a page is owned.
#[derive(Clone, Copy, Debug)]
enum Hold {
    /// It is resident, and was like this.
    Locked(Taken),
    /// It is absent, with this shadow.
    Busy(u32),
}

/// Why a range cannot be owned now.
#[derive(Debug)]
enum Blocked {
    /// Another thread has this page, or it is being written.
    Busy(u64),
    /// This thread has a guard on a page.
    HeldHere(u64),
}

/// Pages that this thread owns. Dropping it gives them back.
pub(crate) struct Owned<'a> {
    pool: &'a Pool,
    space: &'a Space,
    /// In page order. If the range had whole folios, all pages of a folio are here or none.
    pages: Vec<(u64, Hold)>,
}

impl<'a> Owned<'a> {
    /// Owns all pages of `range` that are resident, and those of `absent` that are not. With
    /// `settled` none of their folios is being written; the range has whole folios then.
    ///
    /// Cost: a look at each translation of `absent` and of the tables of the range that were ever
    /// used, and one `membarrier`.
    ///
    /// # Errors
    /// [`Error::HeldHere`], or that the attempt has ended. This thread owns nothing then.
    pub(crate) fn take(
        pool: &'a Pool,
        space: &'a Space,
        range: Range<u64>,
        absent: Range<u64>,
        settled: bool,
        attempts: &mut Attempts<'_>,
    ) -> Result<Self, Stop> {
        loop {
            pool.check()?;
            match Self::try_take(pool, space, &range, &absent, settled) {
                Ok(mut owned) => {
                    owned.outwait_guards(attempts)?;
                    return Ok(owned);
                }
                Err(Blocked::HeldHere(page)) => {
                    return Err(Stop::Failed(Error::HeldHere { path: space.path(), page }));
                }
                Err(Blocked::Busy(page)) if !attempts.outwaits_owner() => {
                    return Err(Stop::Busy(page));
                }
                Err(Blocked::Busy(_)) => {}
            }
            let state = pool.lock();
            drop(state.wait(|guard| pool.freed.wait(guard, PAUSE)));
        }
    }

    fn try_take(
        pool: &'a Pool,
        space: &'a Space,
        range: &Range<u64>,
        absent: &Range<u64>,
        settled: bool,
    ) -> Result<Self, Blocked> {
        let mut owned = Self { pool, space, pages: Vec::new() };
        let has_guards = hazard::this_thread_holds();
        // A page that has just come in is in a table that is seen to be used.
        drop(pool.lock());
        for (page, entry) in entries_in(space, range, absent) {
            let hold = loop {
                match entry.load() {
                    EntryState::Absent { .. } if !absent.contains(&page) => break None,
                    EntryState::Absent { shadow } => {
                        if entry.try_begin_read(shadow).is_ok() {
                            break Some(Hold::Busy(shadow));
                        }
                    }
                    _ if has_guards && hazard::held_by_this_thread(entry.address()) => {
                        return Err(Blocked::HeldHere(page));
                    }
                    EntryState::Busy | EntryState::Locked { .. } => {
                        return Err(Blocked::Busy(page));
                    }
                    EntryState::Resident { .. } => {
                        if let Ok(taken) = entry.try_lock_for_store() {
                            break Some(Hold::Locked(taken));
                        }
                    }
                }
            };
            owned.pages.extend(hold.map(|hold| (page, hold)));
        }
        // No write of a folio begins while all of its pages are locked or busy; one may be under
        // way.
        match settled.then(|| owned.being_written()).flatten() {
            Some(page) => Err(Blocked::Busy(page)),
            None => Ok(owned),
        }
    }
}

/// The translations of a range that may lead to frames, and all of `absent`, in page order. A page
/// that is busy and not among them is about to be read, and will be read after this look.
fn entries_in<'s>(
    space: &'s Space,
    range: &Range<u64>,
    absent: &Range<u64>,
) -> impl Iterator<Item = (u64, &'s Entry)> {
    let part = |from: u64, to: u64| from.max(range.start)..to.min(range.end);
    let [before, within, after] = [
        part(0, absent.start),
        part(absent.start, absent.end),
        part(absent.end.max(absent.start), u64::MAX),
    ];
    let table = &space.table;
    let used = table.used_in(before).chain([within]).chain(table.used_in(after));
    used.flat_map(|pages| (pages.start..).zip(table.slice(pages)))
}

impl Owned<'_> {
    fn locked(&self) -> impl Iterator<Item = (u64, Taken)> {
        self.pages.iter().filter_map(|&(page, hold)| match hold {
            Hold::Locked(taken) => Some((page, taken)),
            Hold::Busy(_) => None,
        })
    }

    /// A page whose folio is being written.
    fn being_written(&self) -> Option<u64> {
        let state = self.pool.lock();
        let mut written = self.locked().filter(|(_, taken)| {
            let folio =
                state.engine.folio_of(FolioId(taken.frame)).and_then(|id| state.engine.folio(id));
            folio.is_some_and(|folio| folio.flags().contains(Flags::WRITEBACK))
        });
        written.next().map(|(page, _)| page)
    }

    /// Whether no page is owned: none was there, or all were dropped.
    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Waits until no guard is on any of the pages.
    fn outwait_guards(&mut self, attempts: &mut Attempts<'_>) -> Result<(), Stop> {
        if self.locked().next().is_none() {
            return Ok(());
        }
        // One look serves all pages that have no guard; it is made after all of them were locked.
        let slots = hazard::scan_shared(self.locked().any(|(_, taken)| taken.unfenced));
        for (page, hold) in &mut self.pages {
            let Hold::Locked(taken) = hold else { continue };
            // A barrier has ended reads without a fence, also where the page is given back as it
            // was.
            *taken = taken.seen_in(&slots);
            let entry = self.space.table.entry(*page);
            let held = slots.hold(&(entry.address()..=entry.address()));
            if held && !outwait_readers(entry, taken, attempts) {
                return Err(Stop::held(*page, *taken));
            }
        }
        Ok(())
    }

    /// Drops the folios that are clean.
    pub(crate) fn drop_clean(&mut self) {
        self.drop_folios(u64::MAX);
    }

    /// Drops the folios that begin at `from` or behind it, dirty or not, and those before it that
    /// are clean. They are absent afterwards, without history. Returns how many pages were dirty.
    ///
    /// The ledger forgets the failed writes of pages from `from` on while they are still owned:
    /// what another thread stores to them afterwards is not what was dropped.
    pub(crate) fn drop_folios(&mut self, from: u64) -> u64 {
        let forgotten =
            |pages: Range<u64>| lowtide_pin::sync::lock(&self.space.ledger).discarded(pages);
        let (pool, space) = (self.pool, self.space);
        let (mut kept, mut dropped_dirty) = (Vec::new(), 0);
        let mut rest = &self.pages[..];
        while !rest.is_empty() {
            let Ok(mut state) = pool.lock_sound() else {
                kept.extend_from_slice(rest);
                break;
            };
            for _ in 0..DROPPED_AT_ONCE {
                let Some(&(page, hold)) = rest.first() else { break };
                let Hold::Locked(taken) = hold else {
                    if page >= from {
                        forgotten(page..page + 1);
                    }
                    kept.push((page, hold));
                    rest = &rest[1..];
                    continue;
                };
                let id = state
                    .engine
                    .folio_of(FolioId(taken.frame))
                    .expect("a resident frame has a folio");
                let folio = *state.engine.folio(id).expect("it was just found");
                let (first, pages) = (folio.owner().page, folio.pages());
                let count = rest.iter().take_while(|(page, _)| *page < first + pages).count();
                let (of_folio, behind) = rest.split_at(count);
                rest = behind;
                // A page may have become dirty since it was locked: a sync that failed makes it so
                // (`writeback/rescue.rs`), under this lock.
                let is_dirty = |page| {
                    matches!(space.table.entry(page).load(), EntryState::Locked { dirty: true, .. })
                };
                let dirty = of_folio.iter().filter(|(page, _)| is_dirty(*page)).count() as u64;
                let stays = first < from && dirty > 0;
                if page != first || count as u64 != pages || stays {
                    kept.extend_from_slice(of_folio);
                    continue;
                }
                if first >= from {
                    forgotten(first..first + pages);
                }
                for (page, _) in of_folio {
                    let entry = space.table.entry(*page);
                    if entry.discard() {
                        pool.waits.complete(entry, &Ok(()));
                    }
                }
                state.free_folio(id, folio.order());
                dropped_dirty += dirty;
            }
            drop(state);
            pool.freed.wake_all();
        }
        self.pages = kept;
        dropped_dirty
    }

    /// Makes all bytes of the pages zero from an offset in the file on.
    pub(crate) fn zero_from(&self, offset: u64) {
        let (shift, bytes) = (self.pool.page_shift, self.pool.page_bytes());
        for (page, taken) in self.locked() {
            let from = offset.saturating_sub(page << shift).min(bytes as u64) as usize;
            let target = self.pool.frame_ptr(taken.frame).wrapping_add(from);
            // SAFETY: the page is locked by this thread and no guard is on it, so its frame is this
            // thread's alone; `from..bytes` lies within the frame.
            #[expect(unsafe_code, reason = "frames are shared memory behind a protocol")]
            unsafe {
                target.write_bytes(0, bytes - from);
            }
        }
    }

    /// Reads a range of the file into the pages that it touches, through the page cache.
    pub(crate) fn read_again(&self, range: Range<u64>) -> io::Result<()> {
        let shift = self.pool.page_shift;
        let mut copy = vec![0; self.pool.page_bytes()];
        for (page, taken) in self.locked() {
            let start = page << shift;
            let (from, to) = (range.start.max(start), range.end.min(start + copy.len() as u64));
            if from >= to {
                continue;
            }
            let part = &mut copy[..(to - from) as usize];
            self.space.backing.buffered().read_exact_at(part, from)?;
            let target = self.pool.frame_ptr(taken.frame).wrapping_add((from - start) as usize);
            // SAFETY: as in `zero_from`; the part lies within the page, and the copy is this call's
            // own.
            #[expect(unsafe_code, reason = "frames are shared memory behind a protocol")]
            unsafe {
                std::ptr::copy_nonoverlapping(part.as_ptr(), target, part.len());
            }
        }
        Ok(())
    }

    /// The pages from this one on are no longer in the file: they were not accessed.
    pub(crate) fn forget_accesses(&mut self, from: u64) {
        for (page, hold) in &mut self.pages {
            if let Hold::Locked(taken) = hold
                && *page >= from
            {
                taken.young = false;
            }
        }
    }
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        for (page, hold) in self.pages.drain(..) {
            let entry = self.space.table.entry(page);
            match hold {
                Hold::Locked(taken) => unlock(self.pool, self.space, page, entry, taken),
                Hold::Busy(shadow) => {
                    if entry.abort_read(shadow) {
                        self.pool.waits.complete(entry, &Ok(()));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OpenOptions, Pager, Size};

    #[test]
    fn of_a_sparse_file_the_pages_are_looked_at_that_were_used_and_those_that_are_to_be_absent() {
        const PAGES: u64 = 1 << 30;
        let dir = tempfile::tempdir().unwrap();
        let pager = Pager::builder().max(Size::mib(1)).build().unwrap();
        let view =
            OpenOptions::new().create_with_len(PAGES << 12).open(&pager, dir.path().join("sparse"));
        let view = view.unwrap();
        view.write_at((PAGES - 1) << 12, &[1; 4096]).unwrap();
        let space = pager.inner.pool.lock().spaces.iter().flatten().next().unwrap().clone();
        let looked = |range, absent| {
            let pages = entries_in(&space, &range, &absent).map(|(page, _)| page);
            pages.collect::<Vec<_>>()
        };
        let last = PAGES - 512..PAGES;
        assert!(looked(0..PAGES, 7..9).into_iter().eq((7..9).chain(last.clone())));
        assert!(looked(8..PAGES, 7..9).into_iter().eq((8..9).chain(last.clone())));
        assert!(looked(0..PAGES, 0..0).into_iter().eq(last));
        assert!(looked(PAGES - 5..PAGES, PAGES - 3..PAGES).into_iter().eq(PAGES - 5..PAGES));
        view.set_len(5000).unwrap();
        assert_eq!((view.len(), view.page(1).unwrap()[0]), (5000, 0));
        pager.validate().unwrap();
    }
}
