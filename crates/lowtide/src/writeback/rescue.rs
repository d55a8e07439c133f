//! After a failed sync: writing again what may not have arrived.
//!
//! The kernel reports a failed write of its own once, at the next sync, and forgets which pages it
//! was; a second sync may succeed without them. Everything that was written since the last good
//! sync therefore has to be written again. A page that is in memory becomes dirty again, at once,
//! so that it cannot be evicted. One that has left memory is read and written back as it is, before
//! the next sync: its bytes are wherever the failed sync left them, and there is no other copy. A
//! write that was under way when the sync failed may have arrived in part before that; it is
//! repeated when it ends (`worker.rs`).

use super::collect::{RUN_BYTES, make_dirty};
use super::ledger::Failure;
use crate::pool::Pool;
use crate::space::Space;
use lowtide_io::{FaultSite, Read, Slice, Write};
use lowtide_sys::tell;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// Makes all suspect pages dirty that are resident.
pub(super) fn make_suspects_dirty(pool: &Pool, space: &Space) {
    let suspects = lowtide_pin::sync::lock(&space.ledger).suspects();
    for page in suspects.into_iter().flatten() {
        if make_dirty(pool, space, page) {
            pool.fault_sites.mark(FaultSite::SyncFailedRewritten);
            lowtide_pin::sync::lock(&space.ledger).dirty_again(page..page + 1);
        }
    }
}

/// Handles all suspect pages: those that are resident become dirty, the others are written again.
/// Returns whether all were; if not, writes next to these pages are on their way, or the file is
/// being changed, and it has to be called again. Only the device's worker may call it, since no
/// other thread may write the file meanwhile. Blocks for as long as the device does.
///
/// # Errors
/// The pages that could not be read or written, which stay suspect.
pub(super) fn rescue(pool: &Pool, space: &Space) -> Result<bool, Failure> {
    make_suspects_dirty(pool, space);
    let suspects = lowtide_pin::sync::lock(&space.ledger).suspects();
    let longest = (RUN_BYTES >> pool.page_shift).max(1);
    for run in suspects {
        for start in run.clone().step_by(longest as usize) {
            let pages = start..run.end.min(start + longest);
            if !read_and_write(pool, space, pages)? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

fn read_and_write(pool: &Pool, space: &Space, pages: Range<u64>) -> Result<bool, Failure> {
    let offset = pages.start << pool.page_shift;
    // Otherwise what is cut off or punched in between would come back, and a neighbour's bytes from
    // before its write would be written after it.
    let alone = space.beneath.change(&(offset..pages.end << pool.page_shift));
    let Some(_alone) = alone.filter(|change| change.is_alone()) else { return Ok(false) };
    pool.fault_sites.mark(FaultSite::SyncFailedReadBack);
    let (path, fd) = (space.path_ref(), space.buffered_fd());
    let bytes = space.len().min(pages.end << pool.page_shift).saturating_sub(offset);
    let mut copy = vec![0_u8; bytes as usize];
    // Through the page cache, which takes any length. SAFETY: `copy` is this call's own and the
    // descriptor the space's; both outlive the calls that take the requests.
    #[expect(unsafe_code, reason = "the promise about the memory is given here")]
    let read = unsafe { Read::new(fd, offset, copy.as_mut_ptr(), bytes as u32, 0) };
    let result = pool.backend.read_one(path, read).and_then(|got| {
        let slices = vec![Slice::new(copy.as_ptr(), got as usize)];
        // SAFETY: as above.
        #[expect(unsafe_code, reason = "the promise about the memory is given here")]
        let write = unsafe { Write::new(path, fd, offset, slices, 0) };
        pool.backend.write_run(write)
    });
    let mut ledger = lowtide_pin::sync::lock(&space.ledger);
    match result {
        Ok(()) => {
            ledger.written(pages);
            Ok(true)
        }
        Err(error) => {
            tell!(warn, path = %space.path().display(), ?pages, %error, "pages that a \
                failed sync may have lost cannot be written again yet");
            let failure = Failure { pages, source: Arc::new(error) };
            ledger.still_suspect(failure.clone(), Instant::now());
            Err(failure)
        }
    }
}
