//! Storing to pages that are resident.
//!
//! Locked translations, one look at the slots of all readers, then the bytes. The look needs a
//! barrier of the kernel's only where readers without a fence were permitted, which the store ends.
//! The engine is updated, and the translation made dirty, under one acquisition of the pool's lock
//! and while the translation is locked: a thread that has that lock and sees a dirty translation
//! finds a dirty folio, or one that is being written.

use super::balance;
use super::readers::{outwait_readers, unlock};
use super::{Batch, copy};
use crate::error::Error;
use crate::fault::attempt::{Attempts, Stop};
use crate::pool::{Pool, State};
use crate::space::Space;
use lowtide_core::{Flags, Folio, FolioId};
use lowtide_io::{Deadline, FaultSite};
use lowtide_pin::hazard;
use lowtide_pin::translation::{Entry, State as EntryState, Taken};
use std::time::Duration;

/// Time between two looks at a page that is being written.
const PAUSE: Duration = Duration::from_millis(1);

impl Batch<'_, '_> {
    /// Stores to all pages that are resident and have no reader at this moment.
    pub(super) fn overwrite(&mut self) {
        let (pool, space) = (self.pool, self.space);
        let mut locked: Vec<(usize, Taken)> = Vec::new();
        for (index, part) in self.parts.iter().enumerate().filter(|(_, part)| !part.done) {
            if let Some(Ok(taken)) = space.table.get(part.page).map(Entry::try_lock_for_store) {
                locked.push((index, taken));
            }
        }
        if locked.is_empty() {
            return;
        }
        let slots = hazard::scan_shared(locked.iter().any(|(_, taken)| taken.unfenced));
        locked.retain_mut(|(index, taken)| {
            *taken = taken.seen_in(&slots);
            let (index, taken) = (*index, *taken);
            let page = self.parts[index].page;
            let entry = space.table.entry(page);
            let read = slots.hold(&(entry.address()..=entry.address()));
            if read {
                // It is stored to when this thread owns nothing else.
                unlock(pool, space, page, entry, taken);
            }
            !read
        });
        if space.is_stable() && !pool.is_poisoned() {
            let state = pool.lock();
            locked.retain(|&(index, taken)| {
                let page = self.parts[index].page;
                let written = is_written(&state, space, page, taken.frame);
                if written {
                    unlock(pool, space, page, space.table.entry(page), taken);
                }
                !written
            });
        }
        self.overwrite_locked(&locked);
    }

    /// Stores to one page, if it is resident when it is locked and its readers leave before this
    /// attempt ends. Where pages must not change while they are written, waits for its write.
    ///
    /// # Errors
    /// [`Error::HeldElsewhere`], [`Error::NoBarrier`], [`Error::Nested`], [`Error::Timeout`]
    pub(super) fn overwrite_alone(
        &mut self,
        index: usize,
        entry: &Entry,
        attempts: &mut Attempts<'_>,
    ) -> Result<(), Error> {
        let (pool, space) = (self.pool, self.space);
        let page = self.parts[index].page;
        let Ok(mut taken) = entry.try_lock_for_store() else { return Ok(()) };
        if !outwait_readers(entry, &mut taken, attempts) {
            unlock(pool, space, page, entry, taken);
            return attempts.again(Stop::held(page, taken));
        }
        if space.is_stable()
            && !pool.is_poisoned()
            && is_written(&pool.lock(), space, page, taken.frame)
        {
            // No write begins while a store has the page locked (`writeback/collect.rs`).
            unlock(pool, space, page, entry, taken);
            return outwait_write(pool, space, page, entry, Deadline::after(pool.io_timeout));
        }
        self.overwrite_locked(&[(index, taken)]);
        Ok(())
    }

    /// Stores to pages that are locked and have no readers.
    fn overwrite_locked(&mut self, locked: &[(usize, Taken)]) {
        let (pool, space) = (self.pool, self.space);
        for &(index, taken) in locked {
            copy(pool, taken.frame, &self.parts[index], false);
            pool.sample_marks.touch(taken.frame);
            self.parts[index].done = true;
        }
        if locked.iter().any(|(_, taken)| !taken.dirty) {
            let Ok(mut state) = pool.lock_sound() else {
                for &(index, taken) in locked {
                    self.parts[index].done = false;
                    let page = self.parts[index].page;
                    unlock(pool, space, page, space.table.entry(page), taken);
                }
                return;
            };
            let mut dirtied = 0;
            for &(index, taken) in locked.iter().filter(|(_, taken)| !taken.dirty) {
                let folio = state
                    .engine
                    .folio_of(FolioId(taken.frame))
                    .expect("a resident frame has a folio");
                let kept = space.table.entry(self.parts[index].page).set_dirty();
                assert!(
                    kept,
                    "page {} left memory while a store had it locked",
                    self.parts[index].page
                );
                // The folio may be dirty already, because of another page of it.
                if state.engine.set_dirty(folio) {
                    dirtied += state.engine.folio(folio).map_or(1, Folio::pages);
                }
            }
            self.must_answer |= dirtied > 0 && balance::dirtied(pool, &mut state, space, dirtied);
        }
        for &(index, taken) in locked {
            let page = self.parts[index].page;
            space.ends_hole(page);
            unlock(pool, space, page, space.table.entry(page), Taken { dirty: true, ..taken });
        }
    }
}

/// Whether the folio of a page is under write-back. The page is locked or resident while the lock
/// is held.
fn is_written(state: &State, space: &Space, page: u64, frame: u32) -> bool {
    let folio = state.engine.folio(state.folio_of(space, page, frame));
    folio.is_some_and(|folio| folio.flags().contains(Flags::WRITEBACK))
}

/// Waits until the folio of a page is not being written; returns at once if the page is not
/// resident.
///
/// # Errors
/// [`Error::Timeout`]
fn outwait_write(
    pool: &Pool,
    space: &Space,
    page: u64,
    entry: &Entry,
    deadline: Deadline,
) -> Result<(), Error> {
    let mut state = pool.lock();
    loop {
        pool.check()?;
        let EntryState::Resident { frame, .. } = entry.load() else { return Ok(()) };
        if !is_written(&state, space, page, frame) {
            return Ok(());
        }
        if deadline.has_passed() {
            pool.fault_sites.mark(FaultSite::DeadlinePassed);
            let waited = pool.io_timeout;
            let what = "waiting for a page that is being written";
            return Err(Error::Timeout { path: space.path(), waited, what });
        }
        state = state.wait(|guard| pool.freed.wait(guard, PAUSE));
    }
}
