//! Closing a file: its pages leave memory for good.
//!
//! The last view is gone, so nobody has a guard and nobody stores; only the background threads may still look at the file's pages. Each
//! resident page is locked as a store would lock it, taken out of the engine, and discarded. A guard that was forgotten (`mem::forget`)
//! keeps its page, its frame and the file's translations for ever, because somebody may still read through it.

use crate::hazard;
use crate::pool::Pool;
use crate::space::Space;
use crate::translation::State as EntryState;
use lowtide_core::FolioId;
use lowtide_core::limits::TABLE_ENTRIES;
use std::time::Duration;

/// Looks at pages that are held, in one closing, before those who hold them are taken for forgotten guards.
const LOOKS: u32 = 100;
/// Time between two such looks.
const PAUSE: Duration = Duration::from_micros(100);

/// What one closing has found.
#[derive(Debug)]
struct Tally {
    /// Slots of all threads, as they were at the last look.
    slots: Vec<usize>,
    /// Looks that are left.
    looks: u32,
    /// Dirty pages that were dropped.
    lost: u64,
    /// Pages that stay because a guard was forgotten.
    forgotten: u64,
}

impl Pool {
    /// Writes what is dirty, drops everything, and gives the frames back. Cost: a look at every translation of the file.
    pub(crate) fn close_space(&self, space: &Space) {
        if space.is_writable() {
            self.write_back(space);
            if let Err(error) = self.backend.sync(space.path_ref(), space.buffered_fd()) {
                tracing::warn!(path = %space.path().display(), %error, "the file may not be durable");
            }
        }
        let _no_open = crate::sync::lock(&self.opening);
        if !space.is_orphan() {
            // Somebody opened it meanwhile.
            return;
        }
        // Nobody writes the file's pages from here on: a folio cannot go while it is being written.
        let _no_writing = crate::sync::lock(&space.writing);
        {
            // Whoever reads ahead now brings no more pages in; those that are there already, or on their way, are found below.
            let _state = self.lock();
            space.close();
        }
        let mut slots = Vec::new();
        hazard::scan(&mut slots);
        let mut tally = Tally { slots, looks: LOOKS, lost: 0, forgotten: 0 };
        let pages = space.table.pages();
        for table in (0..pages).step_by(TABLE_ENTRIES as usize) {
            let entries = space.table.slice(table..table + TABLE_ENTRIES);
            if entries.iter().all(|e| matches!(e.load(), EntryState::Absent { .. })) {
                continue;
            }
            for page in table..table + entries.len() as u64 {
                self.forget_page(space, page, &mut tally);
            }
        }
        if tally.lost > 0 {
            tracing::error!(path = %space.path().display(), pages = tally.lost, "closed with pages that could not be written: they are lost");
        }
        let mut state = self.lock();
        space.backing.unlock();
        if tally.forgotten == 0 {
            state.engine.remove_space(space.id);
            state.spaces[space.id.0 as usize] = None;
        }
        drop(state);
        self.freed.notify_all();
    }

    /// Drops the folio that a page belongs to, if it is resident.
    fn forget_page(&self, space: &Space, page: u64, tally: &mut Tally) {
        let entry = space.table.entry(page);
        loop {
            match entry.load() {
                EntryState::Absent { .. } => return,
                // Background reading ahead, or reclaim: it will be over in a moment.
                seen @ (EntryState::Busy | EntryState::Locked { .. }) => drop(self.waits.wait(entry, seen)),
                EntryState::Resident { frame, .. } => {
                    let mut state = self.lock();
                    if !matches!(entry.load(), EntryState::Resident { frame: again, .. } if again == frame) {
                        continue;
                    }
                    let Some(id) = state.engine.folio_of(FolioId(frame)) else { return };
                    let Some(folio) = state.engine.folio(id).copied() else { return };
                    let entries = crate::reclaim::entries_of(space, folio.owner().page, folio.order());
                    if entries.clone().any(|e| hazard::holds(&tally.slots, &(e.address()..=e.address()))) {
                        if tally.looks > 0 {
                            // Whoever reads ahead holds a page for the moment in which it arrives.
                            drop(state);
                            std::thread::sleep(PAUSE);
                            tally.looks -= 1;
                            hazard::scan(&mut tally.slots);
                            continue;
                        }
                        tally.forgotten += 1;
                        return;
                    }
                    // Under the pool's lock nobody else locks translations of this file: no views are left.
                    for e in entries {
                        if let Ok(taken) = e.try_lock_for_store() {
                            tally.lost += u64::from(taken.dirty);
                            if e.discard() {
                                self.waits.land(e, &Ok(()));
                            }
                        }
                    }
                    let removed = state.engine.remove(id);
                    assert!(removed, "{id:?} is isolated outside of the pool's lock");
                    state.frames.free(id.0, folio.order());
                    return;
                }
            }
        }
    }
}
