//! Holding a page for reading, owning it for storing, copying to and from it.

use super::kept;
use super::page::writes_here;
use crate::ahead::readahead::{first_use, note_access};
use crate::error::Error;
use crate::fault::attempt::{Attempts, Stop};
use crate::fault::{Access, Claim};
use crate::pool::Pool;
use crate::space::whole::has_all;
use crate::space::{Space, parts};
use crate::store::{outwait_readers, unlock};
use lowtide_core::FolioId;
use lowtide_pin::hazard::{self, Held};
use lowtide_pin::translation::{Entry, State as EntryState, Taken};

/// The largest page.
const PAGE_MAX: usize = *crate::config::PAGE_BYTES.end();

/// What pages hold that are nowhere. Aligned as the largest page is, as its elements may be.
#[repr(align(65536))]
struct Zeroes([u8; PAGE_MAX]);

const _: () = assert!(align_of::<Zeroes>() == PAGE_MAX);

static ZEROES: Zeroes = Zeroes([0; PAGE_MAX]);

/// A page that this thread has locked for a store, and that no thread reads.
#[derive(Debug)]
pub(super) struct Owned<'a> {
    pub(super) pool: &'a Pool,
    space: &'a Space,
    page: u64,
    entry: &'a Entry,
    taken: Taken,
}

impl<'a> Owned<'a> {
    /// Makes a page resident and locks it; waits for the guards on it.
    ///
    /// # Errors
    /// As [`Region::write_at`](super::Region::write_at).
    pub(super) fn take(pool: &'a Pool, space: &'a Space, page: u64) -> Result<Self, Error> {
        let entry = entry(space, page)?;
        check_not_held(space, page, entry)?;
        let mut attempts = Attempts::new(pool, space);
        // The fault reports this access to the engine.
        let mut reported = false;
        loop {
            pool.check()?;
            match entry.load() {
                EntryState::Absent { .. } => {
                    drop(pool.hold_entry(space, page, entry, Access::Mapped)?);
                    reported = true;
                }
                EntryState::Resident { .. } => {
                    let Ok(mut taken) = entry.try_lock_for_store() else { continue };
                    if outwait_readers(entry, &mut taken, &mut attempts) {
                        first_use(pool, space, page, taken.frame);
                        taken.young |= !reported;
                        if space.anon().keeps() {
                            kept::give_up(pool, space, page, taken.frame);
                        }
                        if space.anon().lazy.any() {
                            withdraw_lazy_free(pool, space, page, taken.frame);
                        }
                        return Ok(Self { pool, space, page, entry, taken });
                    }
                    unlock(pool, space, page, entry, taken);
                    attempts.again(Stop::held(page, taken))?;
                }
                seen @ (EntryState::Busy | EntryState::Locked { .. }) => {
                    space.check_not_nested(page)?;
                    // An error of another thread's fault is no error of this one: it looks again.
                    drop(pool.wait(space, entry, seen));
                }
            }
        }
    }

    /// The translation's address, which names the page.
    pub(super) fn address(&self) -> usize {
        self.entry.address()
    }

    /// The first byte of the page.
    pub(super) fn as_ptr(&self) -> *mut u8 {
        self.pool.frame_ptr(self.taken.frame)
    }

    /// The bytes of the page.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the translation is locked by this value, so the frame is this page's, and no
        // other thread reads or writes it; within the thread it is borrowed from this value.
        #[expect(unsafe_code, reason = "this is where a frame becomes a slice")]
        unsafe {
            std::slice::from_raw_parts_mut(self.as_ptr(), self.pool.page_bytes())
        }
    }
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        unlock(self.pool, self.space, self.page, self.entry, self.taken);
    }
}

/// A page that this thread has locked is stored to: it is memory like other again.
#[cold]
fn withdraw_lazy_free(pool: &Pool, space: &Space, page: u64, frame: u32) {
    if space.anon().lazy.remove(page)
        && let Ok(mut state) = pool.lock_sound()
    {
        state.engine.set_dirty(FolioId(frame));
    }
}

/// The translation of a page of a region.
pub(super) fn entry(space: &Space, page: u64) -> Result<&Entry, Error> {
    let entry = space.table.get(page).filter(|_| page < space.pages());
    entry.ok_or_else(|| space.out_of_range(page))
}

/// Makes a page behind a pointer resident and pins it, also one that was nowhere.
///
/// # Errors
/// As [`Region::page_mut`](super::Region::page_mut), but for guards.
pub(crate) fn bring_in(
    pool: &Pool,
    space: &Space,
    page: u64,
    access: Access,
) -> Result<Held, Error> {
    let entry = entry(space, page)?;
    Ok(pool.hold_entry(space, page, entry, access)?.1)
}

/// A thread that owns a page, or holds it, would wait for itself.
pub(super) fn check_not_held(space: &Space, page: u64, entry: &Entry) -> Result<(), Error> {
    let address = entry.address();
    if hazard::held_by_this_thread(address) || writes_here(address) {
        return Err(Error::HeldHere { path: space.path(), page });
    }
    Ok(())
}

/// Pins a page for reading: its first byte. A page that is nowhere stays there.
///
/// # Errors
/// As [`Region::page`](super::Region::page).
pub(super) fn hold(pool: &Pool, space: &Space, page: u64) -> Result<(*const u8, Held), Error> {
    let entry = entry(space, page)?;
    let (seen, held) = entry.hold();
    let frame = match seen {
        EntryState::Absent { shadow: 0 } => {
            pool.check()?;
            // The slot keeps stores to the page waiting, as it does for a page in memory.
            return Ok((ZEROES.0.as_ptr(), held));
        }
        EntryState::Resident { frame, .. } => {
            note_access(pool, space, page, seen, Access::Mapped, false);
            return Ok((pool.frame_ptr(frame), held));
        }
        EntryState::Locked { .. } if writes_here(entry.address()) => {
            return Err(Error::HeldHere { path: space.path(), page });
        }
        _ => pool.fault(space, page, entry, held, Access::Mapped)?,
    };
    Ok((pool.frame_ptr(frame.0), frame.1))
}

/// The error of a range that is not all in a region.
pub(super) fn check_range(space: &Space, offset: u64, bytes: u64) -> Result<(), Error> {
    if offset.checked_add(bytes).is_none_or(|end| end > space.len()) {
        return Err(space.range_out_of(offset, bytes));
    }
    Ok(())
}

/// Copies bytes out of a region.
pub(super) fn copy_out(
    pool: &Pool,
    space: &Space,
    offset: u64,
    buf: &mut [u8],
) -> Result<(), Error> {
    check_range(space, offset, buf.len() as u64)?;
    for (page, at, part) in parts(offset, buf.len(), pool.page_shift) {
        let (bytes, _held) = hold(pool, space, page)?;
        let count = part.len();
        // SAFETY: the page has `page_bytes` bytes, in which the part lies; while `_held` lives they
        // are neither stored to nor given to another page.
        #[expect(unsafe_code, reason = "this is where a frame becomes a slice")]
        let bytes = unsafe { std::slice::from_raw_parts(bytes.wrapping_add(at), count) };
        buf[part].copy_from_slice(bytes);
    }
    Ok(())
}

/// Stores all of a page that is in swap, or all that the region has of it, without loading it.
/// False, having done nothing, if it is not in swap. There is no guard on such a page, so none has
/// to be waited for.
fn replace(pool: &Pool, space: &Space, page: u64, bytes: &[u8]) -> Result<bool, Error> {
    let entry = entry(space, page)?;
    let in_swap = || match entry.load() {
        EntryState::Absent { shadow } if shadow != 0 => Some(shadow),
        _ => None,
    };
    if in_swap().is_none() {
        return Ok(false);
    }
    if pool.owes() {
        pool.settle_high()?;
    }
    pool.check()?;
    let Some(shadow) = in_swap().filter(|&shadow| entry.try_begin_read(shadow).is_ok()) else {
        return Ok(false);
    };
    let mut claim = Claim::of_one(page, shadow);
    if !is_all(pool, space, page, bytes.len()) {
        pool.abandon(space, &claim, &Ok(()));
        return Ok(false);
    }
    let Some((frame, _)) = pool.frames_for(space, page, &mut claim, Access::Replaced)? else {
        return Ok(false);
    };
    // SAFETY: the frame is this thread's until its claim is resolved: it is charged, and no
    // translation leads to it.
    #[expect(unsafe_code, reason = "frames are raw memory until they are published")]
    let to = unsafe { std::slice::from_raw_parts_mut(pool.frame_ptr(frame), pool.page_bytes()) };
    let (stored, behind) = to.split_at_mut(bytes.len());
    stored.copy_from_slice(bytes);
    behind.fill(0);
    let anon = space.anon();
    let (slot, store) = (anon.slots.take(page), anon.store());
    if entry.finish_read(frame, pool.young_faults) {
        pool.waits.complete(entry, &Ok(()));
    }
    if pool.young_faults {
        space.table.hint(page).note_young();
    }
    store.free(slot);
    Ok(true)
}

/// Whether the first `len` bytes of a page are all that the region has of it.
fn is_all(pool: &Pool, space: &Space, page: u64, len: usize) -> bool {
    has_all(space, (page << pool.page_shift) + len as u64, (page + 1) << pool.page_shift)
}

/// Copies bytes into a region.
pub(super) fn copy_in(pool: &Pool, space: &Space, offset: u64, bytes: &[u8]) -> Result<(), Error> {
    check_range(space, offset, bytes.len() as u64)?;
    for (page, at, part) in parts(offset, bytes.len(), pool.page_shift) {
        let all = at == 0 && is_all(pool, space, page, part.len());
        if all && replace(pool, space, page, &bytes[part.clone()])? {
            continue;
        }
        let mut owned = Owned::take(pool, space, page)?;
        owned.bytes()[at..at + part.len()].copy_from_slice(&bytes[part]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pager, Size, SwapOptions};

    #[test]
    fn a_store_to_what_was_all_of_the_last_page_keeps_what_was_stored_behind_it_meanwhile() {
        const LAST: u64 = 3;
        let swap = SwapOptions::compressed(Size::mib(1));
        let pager = Pager::builder().max(Size::mib(2)).swap(swap).build().unwrap();
        let (pool, tenant) = (&pager.inner.pool, pager.root());
        let heap = tenant.region(LAST * 4096 + 1000).unwrap();
        let evict = || {
            while heap.is_resident(LAST) {
                tenant.reclaim(Size::new(1 << 20)).unwrap();
            }
        };
        heap.write_at(LAST * 4096, &[1; 1000]).unwrap();
        evict();
        assert!(replace(pool, &heap.space, LAST, &[2; 1000]).unwrap(), "it is all of the page");
        // A thread that found that it is is late: others grow the region, and store to it.
        heap.grow(1000).unwrap();
        heap.write_at(LAST * 4096 + 1000, &[3; 1000]).unwrap();
        evict();
        assert!(!replace(pool, &heap.space, LAST, &[4; 1000]).unwrap(), "it is a part of it now");
        assert!(!heap.is_resident(LAST));
        let mut found = [0; 2000];
        heap.read_at(LAST * 4096, &mut found).unwrap();
        assert!(found[..1000].iter().all(|byte| *byte == 2));
        assert!(found[1000..].iter().all(|byte| *byte == 3), "what was stored behind is lost");
        pager.validate().unwrap();
    }
}
