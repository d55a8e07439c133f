//! Writing to pages.
//!
//! A store must not change bytes that another thread reads through a guard, and should not read
//! bytes that it replaces. So there are two paths:
//!
//! ```text
//!   absent, all of it replaced ──► busy ──► frame, bytes, engine ──────► resident, dirty   fill.rs
//!   resident ──► locked ──► wait for readers ──► bytes, engine ──► resident, dirty    overwrite.rs
//! ```
//!
//! No thread can have a guard on an absent page, so the first path needs no look at the slots of
//! readers. The second locks the translation (new readers wait), finds whose slots are on the page
//! (with one `membarrier`, if readers without a fence may be there, `unfenced.rs`), and waits for
//! those guards to be dropped; then it owns the page until it unlocks it. A guard therefore shows
//! one consistent state of its page for as long as it lives, and a write to one page is atomic
//! against guards. Writers of one page exclude each other in the same way.
//!
//! # Batches
//!
//! A long write takes up to [`BATCH`] neighbouring pages together: one acquisition of the pool's
//! lock for all that were absent, at most one `membarrier` and one acquisition for all that were
//! resident. A batch only *tries*: it leaves alone what it cannot have at once (another thread has
//! the page, a guard is on it, there is no room for it, it must be read first), ends what it owns,
//! and stores to the first such page by itself, in attempts that end (`attempt.rs`). So no store
//! waits while it owns translations of several pages, and two writers of the same pages cannot
//! block each other. After a batch the thread owns nothing: that is when it answers for what it
//! made dirty (`balance.rs`).
//!
//! # What needs no read
//!
//! A page whose bytes are all replaced: written from end to end; or written from its first byte to
//! the end of the file; or lying in a hole that this pager made when it extended the file
//! ([`Space::is_hole`]), whose other bytes are zeroes. Each is judged while the translation is
//! busy, so it stays true.

mod balance;
mod fill;
mod overwrite;
mod readers;

pub(crate) use balance::register;
pub(crate) use readers::{outwait_readers, unlock};

use crate::error::Error;
use crate::fault::Access;
use crate::fault::attempt::Attempts;
use crate::pool::Pool;
use crate::space::Space;
use crate::space::parts;
use lowtide_pin::hazard;
use lowtide_pin::translation::State as EntryState;

/// Pages of a batch, or one large folio if that is more. As many as reclaim takes at a time, for
/// the same reason: the `membarrier` is shared by all of them, and others wait for the lock no
/// longer than for a reclaim.
const BATCH: u64 = 64;

/// What a write does to one page.
#[derive(Debug)]
struct Part<'b> {
    page: u64,
    /// Offset within the page.
    at: usize,
    bytes: &'b [u8],
    done: bool,
}

/// Pages that one thread writes, and the space that they are of.
struct Batch<'a, 'b> {
    pool: &'a Pool,
    space: &'a Space,
    /// In page order, without gaps.
    parts: Vec<Part<'b>>,
    /// This thread has to answer for the pages that it made dirty.
    must_answer: bool,
}

/// Copies bytes into a file that is long enough, from `offset` on.
///
/// Cost of a page: the copy, and some hundred nanoseconds; if only a part of it is replaced and
/// it is absent, a read.
pub(crate) fn store(pool: &Pool, space: &Space, offset: u64, bytes: &[u8]) -> Result<(), Error> {
    let folio = 1_u64 << space.order;
    let mut cut = parts(offset, bytes.len(), pool.page_shift)
        .map(|(page, at, part)| Part { page, at, bytes: &bytes[part], done: false })
        .peekable();
    let capacity = (bytes.len() >> pool.page_shift).min(BATCH.max(folio) as usize) + 2;
    let parts = Vec::with_capacity(capacity);
    let mut batch = Batch { pool, space, parts, must_answer: false };
    while let Some(first) = cut.peek().map(|part| part.page) {
        batch.parts.clear();
        // Batches end where large folios do.
        let pages = balance::room_to_dirty(pool).clamp(1, BATCH);
        let end = if folio > pages {
            first / folio * folio + folio
        } else {
            (first + pages) / folio * folio
        };
        batch.parts.extend(std::iter::from_fn(|| cut.next_if(|part| part.page < end)));
        let stored = batch.store();
        if batch.must_answer {
            balance::balance_dirty(pool, space);
            batch.must_answer = false;
        }
        stored?;
    }
    Ok(())
}

impl Batch<'_, '_> {
    fn store(&mut self) -> Result<(), Error> {
        if self.pool.owes() {
            // Before anything is taken.
            self.pool.settle_high()?;
        }
        loop {
            self.pool.check()?;
            self.fill();
            self.overwrite();
            match self.parts.iter().position(|part| !part.done) {
                Some(first) => self.store_alone(first)?,
                None => return Ok(()),
            }
        }
    }

    /// Stores to one page, and waits for whatever prevents it. The thread owns nothing else
    /// meanwhile.
    fn store_alone(&mut self, index: usize) -> Result<(), Error> {
        let (pool, space) = (self.pool, self.space);
        let page = self.parts[index].page;
        // The file is long enough while this thread stores to it, and the number of translations
        // only grows.
        let entry = space.table.entry(page);
        if hazard::held_by_this_thread(entry.address()) {
            return Err(Error::HeldHere { path: space.path(), page });
        }
        let mut attempts = Attempts::new(pool, space);
        while !self.parts[index].done {
            pool.check()?;
            match entry.load() {
                EntryState::Absent { shadow } => {
                    if !self.fill_alone(index, entry, shadow)? {
                        // Only a part of it is replaced: it must be read. Reclaim may evict it
                        // before the next look, but not forever.
                        drop(pool.hold_entry(space, page, entry, Access::Patched)?);
                    }
                }
                EntryState::Resident { .. } => self.overwrite_alone(index, entry, &mut attempts)?,
                seen @ (EntryState::Busy | EntryState::Locked { .. }) => {
                    space.check_not_nested(page)?;
                    // A read error of another thread is no error of this store: it looks again.
                    if let Err(timeout @ Error::Timeout { .. }) = pool.wait(space, entry, seen) {
                        return Err(timeout);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Bytes from the caller into a frame that is the caller's alone, zeroes around them if `zeroed`.
fn copy(pool: &Pool, frame: u32, part: &Part<'_>, zeroed: bool) {
    let (bytes, page_bytes) = (part.bytes, pool.page_bytes());
    assert!(part.at + bytes.len() <= page_bytes, "a part of a page lies within it");
    let target = pool.frame_ptr(frame);
    if zeroed && bytes.len() < page_bytes {
        // SAFETY: as below, for the whole frame.
        #[expect(unsafe_code, reason = "frames are shared memory behind a protocol")]
        unsafe {
            target.write_bytes(0, page_bytes);
        }
    }
    // SAFETY: the frame belongs to this thread: its translation is busy by this thread, so no
    // reader ever saw the frame in it; or locked by this thread, and no slot was on it after that
    // was visible to all threads. So no other thread reads or writes it until the translation is
    // published or unlocked. The range lies within the frame, and `bytes` is not in the arena
    // mutably, since there are no mutable views of it.
    #[expect(unsafe_code, reason = "frames are shared memory behind a protocol")]
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), target.wrapping_add(part.at), bytes.len());
    }
}
