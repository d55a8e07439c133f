//! A page that is locked, and the readers that it still has.
//!
//! What locks a page to change it looks into the slots of all threads and waits for the guards that
//! it finds. New readers wait for the lock, so the set of those to wait for only shrinks. The page
//! is unlocked with the bits that its hints have to know.

use crate::fault::attempt::Attempts;
use crate::pool::Pool;
use crate::space::Space;
use lowtide_pin::hazard::{self, Slots};
use lowtide_pin::translation::{Entry, Taken};
use std::time::Duration;

/// Looks at the slots before the thread begins to sleep between them.
const SPINS: u32 = 64;
/// Pause between two looks after that.
const LOOK_PAUSE: Duration = Duration::from_micros(50);

/// Ends a store, or one that could not begin.
pub(crate) fn unlock(pool: &Pool, space: &Space, page: u64, entry: &Entry, to: Taken) {
    if entry.unlock(to) {
        pool.waits.complete(entry, &Ok(()));
    }
    if to.dirty {
        space.table.hint(page).note_dirty();
    }
    if to.young {
        space.table.hint(page).note_young();
    }
}

/// Waits until no slot is on a page that is locked. Returns whether that came to be before the
/// attempt ended, or in a moment if the thread must not wait.
pub(crate) fn outwait_readers(
    entry: &Entry,
    taken: &mut Taken,
    attempts: &mut Attempts<'_>,
) -> bool {
    let address = entry.address()..=entry.address();
    let slots = hazard::scan_shared(taken.unfenced);
    *taken = taken.seen_in(&slots);
    if !slots.hold(&address) {
        return true;
    }
    // One fence is enough: it fixed the set of readers, and only they can pin the page again while
    // the entry is locked.
    let mut slots = Slots::clone(&slots);
    for tries in 0_u32.. {
        if slots.are_unknown() {
            break;
        }
        hazard::look(&mut slots);
        if !slots.hold(&address) {
            return true;
        }
        if tries < SPINS {
            std::thread::yield_now();
            continue;
        }
        if !attempts.outwaits_guard() {
            break;
        }
        std::thread::sleep(LOOK_PAUSE);
    }
    false
}
