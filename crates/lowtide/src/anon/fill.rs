//! What a fault of an anonymous page brings: zeroes, or what swap has.
//!
//! ```text
//!   busy ──► frame ──► fill: bytes ──► behind a pointer: installed ──► leave_swap ──► resident
//!                        └─ cannot be read ──► give_back: in swap as before
//! ```

use super::ahead::Neighbours;
use crate::fault::Destination;
use crate::pool::Pool;
use crate::space::Space;
use lowtide_core::{FolioId, Task, ZswapEvents};
use std::io;
use std::time::Duration;

/// Time between two attempts to remove a folio that a reclaim pass has isolated.
pub(super) const PAUSE: Duration = Duration::from_millis(1);

/// Fetches the bytes of a page that this thread has made busy. Returns how many: all. The page is
/// in swap as before.
///
/// # Errors
/// It cannot be read, or is not what was stored.
pub(crate) fn fill(pool: &Pool, space: &Space, page: u64, to: &Destination) -> io::Result<u32> {
    let (anon, page_bytes) = (space.anon(), pool.page_bytes());
    // SAFETY: the destination is this thread's until its claim is resolved: a frame that is charged
    // and that no translation leads to, or memory of this thread, of a page's size.
    #[expect(unsafe_code, reason = "frames are raw memory until they are published")]
    let bytes = unsafe { std::slice::from_raw_parts_mut(to.at, page_bytes) };
    let slot = anon.slots.get(page);
    if slot.is_none() {
        bytes.fill(0);
    } else if space.mapped.is_some() {
        // A load through a pointer cannot fail for want of time.
        while let Err(error) = anon.store().load(slot, bytes) {
            if error.kind() != io::ErrorKind::TimedOut {
                return Err(error);
            }
        }
    } else {
        let mut around = Neighbours::new(pool, space);
        let loaded = anon.store().load_with(slot, bytes, &anon.ahead, &mut around);
        around.publish();
        loaded?;
    }
    Ok(page_bytes as u32)
}

/// The bytes of a page are where they are to be: if it was in swap, it is in memory now, and gives
/// its slot up, or [keeps](super::keeps_slot) it.
pub(crate) fn leave_swap(pool: &Pool, space: &Space, (page, frame): (u64, u32), keeps: bool) {
    let anon = space.anon();
    let slot = anon.slots.get(page);
    if slot.is_none() {
        return;
    }
    let store = anon.store();
    {
        let mut state = pool.lock();
        if !pool.is_poisoned() {
            let id = FolioId(frame);
            if !slot.is_in_file() {
                let group = state.engine.group_of_space(space.id);
                let loaded = ZswapEvents::loaded(1);
                state.engine.count_zswap(group, &loaded);
            }
            if !state.engine.swap_fault_from(id, false, !keeps, Task::FAULT) {
                anon.note_kept();
                return;
            }
        }
        anon.slots.take(page);
    }
    store.free(slot);
}

/// Gives back the frame of a page that could not be brought in: it is where it was before.
pub(crate) fn give_back(pool: &Pool, space: &Space, page: u64, frame: u32) {
    let is_new = space.anon().slots.get(page).is_none();
    let mut state = pool.lock();
    while !pool.is_poisoned() {
        let id = FolioId(frame);
        let removed =
            if is_new { state.engine.remove(id) } else { state.engine.swap_in_failed(id) };
        if removed {
            state.frames.free(frame, 0);
            drop(state);
            pool.freed.wake_all();
            return;
        }
        // A reclaim pass has it isolated, and compresses its neighbours.
        state = state.wait(|guard| pool.freed.wait(guard, PAUSE));
    }
}
