//! What a fault of an anonymous page puts into a frame: zeroes, or what swap has.

use crate::pool::Pool;
use crate::space::Space;
use lowtide_core::{FolioId, Task};
use std::io;
use std::time::Duration;

/// Time between two attempts to remove a folio that a reclaim pass has isolated.
pub(super) const PAUSE: Duration = Duration::from_millis(1);

/// Fills the frame of a page that this thread has made busy. Returns the bytes that it has now:
/// all. If the page was in swap, it is not any more.
///
/// # Errors
/// The page is in swap as before.
pub(crate) fn fill(pool: &Pool, space: &Space, page: u64, frame: u32) -> io::Result<u32> {
    let (anon, page_bytes) = (space.anon(), pool.page_bytes());
    // SAFETY: the frame is this thread's until its claim is resolved: it is charged, and no
    // translation leads to it.
    #[expect(unsafe_code, reason = "frames are raw memory until they are published")]
    let bytes = unsafe { std::slice::from_raw_parts_mut(pool.frame_ptr(frame), page_bytes) };
    let slot = anon.slots.get(page);
    if slot.is_none() {
        bytes.fill(0);
        return Ok(page_bytes as u32);
    }
    let store = anon.store();
    store.load(slot, bytes)?;
    anon.slots.take(page);
    {
        let mut state = pool.lock();
        if !pool.is_poisoned() {
            let freed = state.engine.swap_fault(FolioId(frame), false, Task::FAULT);
            assert!(freed, "a page that was loaded keeps its slot");
        }
    }
    store.free(slot);
    Ok(page_bytes as u32)
}

/// Gives back the frame of a page that could not be loaded: it is in swap as before.
pub(crate) fn give_back(pool: &Pool, frame: u32) {
    let mut state = pool.lock();
    while !pool.is_poisoned() {
        if state.engine.swap_in_failed(FolioId(frame)) {
            state.frames.free(frame, 0);
            drop(state);
            pool.freed.wake_all();
            return;
        }
        // A reclaim pass has it isolated, and compresses its neighbours.
        state = pool.freed.wait(state, PAUSE);
    }
}
