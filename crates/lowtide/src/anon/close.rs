//! Closing a region: its pages leave memory and swap for good.
//!
//! The last handle is gone, so no thread has a guard on a page or owns one, but those that reclaim:
//! a pass compresses pages, or writes them to the swap file, or moves them there from memory, for
//! as long as the device takes. The thread that drops the last handle waits for them for as long as
//! the pager's timeout, and not longer. What they have then keeps the region among the *orphans*,
//! and a pass that has given back what it had looks at all of those again:
//!
//! ```text
//!   drop ─► closed ─► an orphan ─► pages given up ─┬─► none is left: the records go
//!                        ▲                         └─► some are owned
//!                        └──── a pass of reclaim ends, or pages were moved to the file ──┘
//! ```
//!
//! A region is an orphan before its pages are looked at, and a pass looks at the orphans when it
//! owns nothing any more, both under the pool's lock. So either the pass sees the orphan, or the
//! page is seen to be given back. One thread at a time ends regions.
//!
//! A guard that was forgotten (`mem::forget`) keeps its page, and the region's translations,
//! forever . All else goes, the region's part of swap among it.

use super::discard::{drop_from_swap, try_drop_frame};
use super::kept;
use crate::pool::Pool;
use crate::space::Space;
use crate::store::unlock;
use lowtide_core::FolioId;
use lowtide_io::Deadline;
use lowtide_pin::hazard;
use lowtide_pin::translation::{Entry, State as EntryState};
use lowtide_sys::tell;
use std::sync::Arc;
use std::time::Duration;

/// Time between two looks at pages that reclaim owns.
const LOOK: Duration = Duration::from_millis(1);
/// Looks at the slots of guards before they are taken for those of forgotten guards.
const LOOKS: u32 = 100;
/// Time between two such looks.
const PAUSE: Duration = Duration::from_micros(100);

/// What became of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Left {
    /// It is nowhere.
    Gone,
    /// A thread that reclaims has it, and looks again.
    Owned,
    /// A guard on it was forgotten.
    Forgotten,
}

/// The last handle of a region is gone: gives all of it back, or leaves that to the threads that
/// reclaim its pages.
pub(super) fn close(pool: &Pool, space: &Arc<Space>) {
    space.drop_handle();
    {
        let mut state = pool.lock();
        space.close();
        state.orphans.push((Arc::clone(space), end));
    }
    let deadline = Deadline::after(pool.memory_timeout);
    // Not with `ending` held for longer than a look takes: each pass of reclaim wants it.
    while !end(pool, space) && !deadline.has_passed() && !pool.is_poisoned() {
        drop(pool.lock().wait(|guard| pool.freed.wait(guard, LOOK)));
    }
}

/// Gives up the pages of an orphan, and its records when reclaim owns none of them. Returns whether
/// it is an orphan no more.
fn end(pool: &Pool, space: &Arc<Space>) -> bool {
    let _one_at_a_time = lowtide_pin::sync::lock(&pool.ending);
    if !pool.lock().orphans.iter().any(|(orphan, _)| Arc::ptr_eq(orphan, space)) {
        return true;
    }
    // No thread takes a guard any more; one that ends a fault of a heap may still drop its own.
    let (mut slots, addresses) = (hazard::Slots::default(), space.table.addresses());
    hazard::scan(&mut slots, true);
    for _ in 0..LOOKS {
        if !slots.hold(&addresses) {
            break;
        }
        std::thread::sleep(PAUSE);
        hazard::look(&mut slots);
    }
    let (mut owned, mut forgotten) = (false, slots.hold(&addresses));
    for page in space.table.used().flatten() {
        match give_up(pool, space, page, &slots) {
            Left::Gone => {}
            Left::Owned => owned = true,
            Left::Forgotten => forgotten = true,
        }
    }
    if pool.is_poisoned() {
        return false;
    }
    space.anon().trim(0..u64::MAX);
    if owned {
        return false;
    }
    let store = space.anon().take_store();
    {
        let mut state = pool.lock();
        state.orphans.retain(|(orphan, _)| !Arc::ptr_eq(orphan, space));
        if !forgotten {
            state.remove_space(space);
        }
    }
    drop(store);
    pool.freed.wake_all();
    if forgotten {
        let path = space.path_ref().display();
        tell!(warn, %path, "a region was dropped, and a guard on a page of it forgotten");
    }
    true
}

fn give_up(pool: &Pool, space: &Space, page: u64, slots: &hazard::Slots) -> Left {
    let entry = space.table.entry(page);
    let held = slots.hold(&(entry.address()..=entry.address()));
    loop {
        if pool.is_poisoned() {
            return Left::Owned;
        }
        match entry.load() {
            EntryState::Absent { shadow: 0 } => return Left::Gone,
            EntryState::Absent { shadow } => {
                if entry.try_begin_read(shadow).is_ok() {
                    drop_from_swap(pool, space, page, entry);
                    return Left::Gone;
                }
            }
            EntryState::Resident { .. } => {
                let Ok(taken) = entry.try_lock_for_store() else { continue };
                if !held && try_drop_frame(pool, (space, page, entry), taken.frame) {
                    return Left::Gone;
                }
                if held {
                    // It stays, and what swap has of it does not.
                    kept::give_up(pool, space, page, taken.frame);
                }
                unlock(pool, space, page, entry, taken);
                return if held { Left::Forgotten } else { Left::Owned };
            }
            EntryState::Locked { .. } if is_forgotten(pool, entry) => return Left::Forgotten,
            EntryState::Busy | EntryState::Locked { .. } => return Left::Owned,
        }
    }
}

/// Whether a page is locked by no pass of reclaim, and so by a guard for storing that was
/// forgotten: a pass has isolated the folios whose translations it has locked.
fn is_forgotten(pool: &Pool, entry: &Entry) -> bool {
    let state = pool.lock();
    let EntryState::Locked { frame, .. } = entry.load() else { return false };
    !pool.is_poisoned() && !state.engine.is_isolated(FolioId(frame))
}
