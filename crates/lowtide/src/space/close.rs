//! Closing a file: its pages are written and leave memory for good.
//!
//! The last view is gone, so there are no guards and no stores; only the background threads may
//! still look at the file's pages. What cannot be written keeps the file in the pager, as an
//! *orphan* that is tried again, and that the next open of the file finds. Otherwise the file is
//! *closed*: its lock is given back, an open finds it gone, and no page comes in any more. Up to
//! here opening is held off ([`Pool::opening`]), and nothing is waited for. Then each resident page
//! is locked as a store would lock it, taken out of the engine, and discarded.
//!
//! A page that read-ahead is bringing in is waited for, but not longer than the pager waits for a
//! device. If the device hangs, the file's records stay until the read has ended; the reading
//! thread drops them then.
//!
//! A guard that was forgotten (`mem::forget`) keeps its page, its frame and the file's translations
//! forever, even when the pager is gone: its slot names a translation by its address, which must
//! not become another's.

use super::Space;
use crate::error::{CloseError, Error, Unwritten};
use crate::pool::Pool;
use crate::warm::save::note_closing;
use crate::writeback::{Failure, write_error};
use crate::zcache::OfSpace;
use lowtide_core::Flags;
use lowtide_io::{Deadline, FaultSite};
use lowtide_pin::hazard;
use lowtide_pin::translation::{Entry, State as EntryState, Taken};
use lowtide_sys::tell;
use std::sync::Arc;
use std::time::Duration;

/// Looks at pinned pages, in one closing, before the pins are taken for forgotten guards.
const LOOKS: u32 = 100;
/// Time between two such looks.
const PAUSE: Duration = Duration::from_micros(100);

/// What one closing has found.
#[derive(Debug)]
struct Tally {
    /// Slots of all threads, as they were at the last look.
    slots: hazard::Slots,
    /// Looks that are left.
    looks: u32,
    /// The deadline of waits for pages that are being read.
    deadline: Deadline,
    /// Pages that stay because a guard was forgotten.
    forgotten: u64,
    /// Pages that stay because they are still being read.
    in_flight: u64,
}

/// A page that the file lacks was found in a file that was taken for clean.
struct StillDirty {
    page: u64,
}

impl Drop for Pool {
    /// A slot that is taken now is a forgotten guard's. Its file stays, or the address in the slot
    /// would become that of another translation, for which every store would wait.
    fn drop(&mut self) {
        let mut slots = hazard::Slots::default();
        hazard::look(&mut slots);
        let state = self.lock();
        for space in state.spaces.iter().flatten() {
            if slots.hold(&space.table.addresses()) {
                std::mem::forget(Arc::clone(space));
            }
        }
    }
}

impl Pool {
    /// The last view of a file is gone: writes what is dirty, and closes the file. If it cannot be
    /// written, or not within the deadline, it stays: the next open finds it as it is, and its
    /// writing goes on.
    pub(crate) fn close_space(&self, space: &Arc<Space>) {
        if let Some(zcache) = &space.zcache {
            zcache.forget_range(0..u64::MAX);
        }
        if space.is_writable() {
            let path = space.path_ref().display();
            match self.make_durable(space, 0..u64::MAX) {
                Ok(Ok(())) => {}
                Ok(Err(failure)) => {
                    tell!(warn, %path, error = %failure.source, "closed with pages that could \
                        not be written; they are tried again");
                }
                Err(error) => {
                    tell!(warn, %path, %error, "closed with pages that are not written yet");
                }
            }
            if !self.is_clean(space) {
                self.fault_sites.mark(FaultSite::CloseWithDirtyPages);
                return;
            }
        }
        self.forget_if_orphan(space, Deadline::after(self.io_timeout));
    }

    /// Whether a file that is not open has nothing that waits to be written.
    pub(crate) fn is_clean(&self, space: &Space) -> bool {
        // In the order in which a write ends, seen from behind: it is counted before its pages
        // become clean, and its outcome is in the ledger, and in the pages if it failed, before it
        // is counted no more.
        let dirty = space.table.last_dirty(0).is_some();
        let quiet = !dirty && !space.has_runs();
        // Changes of a file that has no flusher were never promised: its opening failed.
        let changed = space.new_changes().is_some() && space.device.get().is_some();
        quiet && !changed && lowtide_pin::sync::lock(&space.ledger).is_settled()
    }

    /// Closes a clean file that is not open, and gives its frames back. Waits until the deadline
    /// for pages that are being read. Cost: a look at each translation of the tables that were ever
    /// used, and at one byte of the others.
    pub(crate) fn forget_if_orphan(&self, space: &Arc<Space>, deadline: Deadline) {
        // When its last write has ended: a file that was written later is another one.
        note_closing(self, space);
        if space.device.get().is_none() {
            // A file that was made and could not be opened: its name needs no descriptor once it is
            // durable. If it cannot be, the next that flushes has to make it so.
            let _kept = space.sync_name(&self.backend);
        }
        {
            let _no_open = lowtide_pin::sync::lock(&self.opening);
            let stays = self.is_poisoned() || !space.is_orphan() || space.is_closed();
            if stays || !self.is_clean(space) {
                // It was opened meanwhile.
                return;
            }
            // Read-ahead brings no more pages in; those that are there already, or on their way,
            // are found below.
            let _state = self.lock();
            space.close();
            if let Some(name) = space.take_new_name() {
                lowtide_pin::sync::lock(&self.new_names).insert(space.backing.key(), name);
            }
            space.backing.unlock();
        }
        if let Some(mapped) = &space.mapped {
            // All at once: no pointer leads there, and what was stored is in the file.
            mapped.close();
        }
        self.forget(space, deadline);
    }

    /// Drops the pages of a closed file, and its records when none is left. The thread that ends
    /// the last read of the file calls this again.
    pub(crate) fn forget(&self, space: &Arc<Space>, deadline: Deadline) {
        let mut slots = hazard::Slots::default();
        hazard::scan(&mut slots, true);
        let mut tally = Tally { slots, looks: LOOKS, deadline, forgotten: 0, in_flight: 0 };
        // Reclaim stores no more of them, and what it is storing is waited for below.
        let _pause = space.zcache.as_ref().map(OfSpace::pause);
        for pages in space.table.used() {
            let entries = space.table.slice(pages.clone());
            if entries.iter().all(|e| matches!(e.load(), EntryState::Absent { .. })) {
                continue;
            }
            for page in pages {
                if let Err(StillDirty { page }) = self.forget_page(space, page, &mut tally) {
                    return self.keep(space, page);
                }
            }
        }
        if tally.in_flight > 0 {
            let (path, pages) = (space.path_ref().display(), tally.in_flight);
            tell!(warn, %path,
                pages,
                "a closed file is still being read, and its device does not answer"
            );
            return;
        }
        if let Some(zcache) = &space.zcache {
            zcache.end();
        }
        if tally.forgotten > 0 {
            return;
        }
        self.lock().remove_space(space);
        self.freed.wake_all();
    }

    /// Writes and syncs all files, each device's at the same time.
    pub(crate) fn write_everything(&self) -> Result<(), CloseError> {
        let spaces: Vec<_> =
            self.lock().spaces.iter().flatten().filter(|s| s.is_writable()).cloned().collect();
        let results = std::thread::scope(|scope| {
            let flush = |space: &Arc<Space>| self.make_durable(space, 0..u64::MAX);
            let waiting: Vec<_> = spaces
                .iter()
                .map(|space| std::thread::Builder::new().spawn_scoped(scope, move || flush(space)))
                .collect();
            let results = waiting.into_iter().zip(&spaces).map(|(thread, space)| match thread {
                Ok(thread) => thread.join().expect("waiting does not panic"),
                Err(_) => flush(space),
            });
            results.collect::<Vec<_>>()
        });
        let unwritten = |(space, result): (&Arc<Space>, Result<Result<(), Failure>, Error>)| {
            let source = match result {
                Ok(Ok(())) => return None,
                Ok(Err(failure)) => write_error(space, failure, 1),
                Err(error) => error,
            };
            let pages = lowtide_pin::sync::lock(&space.ledger).failed_pages();
            Some(Unwritten { path: space.path(), pages, source })
        };
        let files: Vec<_> = spaces.iter().zip(results).filter_map(unwritten).collect();
        if files.is_empty() { Ok(()) } else { Err(CloseError { files }) }
    }

    /// A page of a file that seemed clean has bytes that the file lacks. That would be a defect of
    /// ours, and it does not cost the bytes: the file stays as an orphan and is written.
    fn keep(&self, space: &Arc<Space>, page: u64) {
        tell!(error, path = %space.path_ref().display(), page, "a dirty page was found in a \
            closed file that seemed clean; it is written now");
        {
            let _state = self.lock();
            space.stays();
        }
        if let Some(device) = space.device.get() {
            device.write_orphan(space);
        }
    }

    /// Drops the folio that a page belongs to, if it is resident.
    ///
    /// # Errors
    /// It is dirty, or being written: nothing was dropped.
    fn forget_page(&self, space: &Space, page: u64, tally: &mut Tally) -> Result<(), StillDirty> {
        let entry = space.table.entry(page);
        loop {
            match entry.load() {
                EntryState::Absent { .. } => return Ok(()),
                // Reclaim has it, which looks at it under the pool's lock.
                EntryState::Locked { .. } if !self.is_poisoned() => std::thread::sleep(PAUSE),
                // Read-ahead: it is over in a moment, unless the device hangs.
                EntryState::Busy | EntryState::Locked { .. } => {
                    if self.is_poisoned() {
                        return Err(StillDirty { page });
                    }
                    if tally.deadline.has_passed() {
                        tally.in_flight += 1;
                        return Ok(());
                    }
                    std::thread::sleep(PAUSE);
                }
                EntryState::Resident { frame, .. } => {
                    let mut state = self.lock();
                    let now = entry.load();
                    if !matches!(now, EntryState::Resident { frame: same, .. } if same == frame) {
                        continue;
                    }
                    let id = state.folio_of(space, page, frame);
                    let folio = *state.engine.folio(id).expect("it was just found");
                    let first = folio.owner().page;
                    let entries = space.entries(first, folio.order());
                    let dirty =
                        |e: &Entry| matches!(e.load(), EntryState::Resident { dirty: true, .. });
                    let unwritten = entries.clone().position(dirty);
                    if unwritten.is_some() || folio.flags().contains(Flags::WRITEBACK) {
                        let page = first + unwritten.unwrap_or(0) as u64;
                        space.table.hint(page).note_dirty();
                        return Err(StillDirty { page });
                    }
                    if entries.clone().any(|e| tally.slots.hold(&(e.address()..=e.address()))) {
                        if tally.looks > 0 {
                            // Read-ahead pins a page for the moment in which it arrives.
                            drop(state);
                            std::thread::sleep(PAUSE);
                            tally.looks -= 1;
                            hazard::look(&mut tally.slots);
                            continue;
                        }
                        tally.forgotten += 1;
                        return Ok(());
                    }
                    // Under the pool's lock no other thread locks translations of this file: no
                    // views are left.
                    for e in entries {
                        let taken = e.try_lock_for_store();
                        assert!(
                            matches!(taken, Ok(Taken { dirty: false, .. })),
                            "a page of a file that is not open is {taken:?} while its folio \
                             is dropped"
                        );
                        if e.discard() {
                            self.waits.complete(e, &Ok(()));
                        }
                    }
                    state.free_folio(id, folio.order());
                    return Ok(());
                }
            }
        }
    }
}
