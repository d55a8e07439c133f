//! Writing to pages.
//!
//! A store must not change bytes that somebody reads through a guard. So the writer locks the page's translation (new
//! readers wait), looks with one `membarrier` whose slots are on the page, and waits for those guards to be dropped; then the page is its own
//! until it unlocks it, dirty. A guard therefore shows one consistent state of its page for as long as it lives, and a write to one page is atomic
//! against guards. Writers of one page exclude each other in the same way.

use crate::error::Error;
use crate::fault::Access;
use crate::hazard;
use crate::pool::Pool;
use crate::space::Space;
use crate::translation::{Entry, Taken};
use lowtide_core::FolioId;
use std::time::{Duration, Instant};

/// Looks at the slots before the writer begins to sleep between them.
const SPINS: u32 = 64;

impl Pool {
    /// Copies bytes into one page, from `at` on; the range lies within the page. Returns whether the page was clean before.
    pub(crate) fn store(&self, space: &Space, page: u64, at: usize, bytes: &[u8]) -> Result<bool, Error> {
        let entry = self.entry(space, page)?;
        if hazard::held_by_this_thread(entry.address()) {
            return Err(Error::HeldHere { path: space.path(), page });
        }
        let locked = loop {
            // Resident first: a page of which only a part is written must be read.
            let (_, held) = self.hold_entry(space, page, entry, Access::Descriptor)?;
            drop(held);
            if let Ok(locked) = entry.try_lock_for_store() {
                break locked;
            }
        };
        if let Err(e) = self.wait_for_readers(space, page, entry) {
            self.unlock(space, page, entry, locked);
            return Err(e);
        }
        let target = self.frame_ptr(locked.frame).wrapping_add(at);
        // SAFETY: the translation is locked, and no slot was on it after that was visible to all threads: nobody reads or writes
        // the frame until it is unlocked. `at + bytes.len()` is within the page, and `bytes` is not in the arena
        // mutably, since nobody has a mutable view of it.
        #[expect(unsafe_code, reason = "frames are shared memory behind a protocol")]
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len());
        }
        if !locked.dirty {
            // Before the translation says so, and while the page is locked: whoever sees a dirty translation finds a dirty folio.
            let mut state = self.lock();
            let folio = state.engine.folio_of(FolioId(locked.frame)).expect("a resident frame has a folio");
            state.engine.set_dirty(folio);
        }
        self.unlock(space, page, entry, Taken { dirty: true, ..locked });
        Ok(!locked.dirty)
    }

    /// Ends a store, or one that could not begin.
    pub(crate) fn unlock(&self, space: &Space, page: u64, entry: &Entry, to: Taken) {
        if entry.unlock(to.frame, to.dirty, to.young) {
            self.waits.land(entry, &Ok(()));
        }
        if to.dirty {
            space.table.hint(page).note_dirty();
        }
        if to.young {
            space.table.hint(page).note_young();
        }
    }

    fn wait_for_readers(&self, space: &Space, page: u64, entry: &Entry) -> Result<(), Error> {
        let mut slots = Vec::new();
        let mut deadline = None;
        for tries in 0_u32.. {
            hazard::scan(&mut slots);
            if !hazard::holds(&slots, &(entry.address()..=entry.address())) {
                return Ok(());
            }
            if tries < SPINS {
                std::thread::yield_now();
                continue;
            }
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + self.patience);
            if Instant::now() >= deadline {
                break;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        Err(Error::HeldElsewhere { path: space.path(), page, seconds: self.patience.as_secs() })
    }
}
