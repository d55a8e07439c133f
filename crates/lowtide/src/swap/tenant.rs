//! The swap of one tenant: storing, loading and freeing pages.

use super::file::Backing;
use super::frames::FrameSource;
use super::slot::{Around, IN_FILE, Refused, Slot, Store, owner, tag};
use crate::error::Error;
use crate::pool::Pool;
use crate::pool::oom::out_of_budget;
use crate::pool::payer::{Effort, Payer};
use crate::tenant::TenantError;
use lowtide_core::{MemcgId, Owner, Task};
use lowtide_swap::{
    CompressedStore, Corrupt, Handle, Incoming, Neighbours, Outgoing, ReadAhead, ReadError,
    Rejected, StoreLimits, StoreStat, SwapFile,
};
use std::io;
use std::sync::Arc;

/// Frames that a store has in reserve for pages, at most: as many as a batch of victims needs if it
/// compresses to a quarter.
const RESERVE_MAX: u64 = 16;
/// Cold pages that one round of maintenance compresses again.
const RECOMPRESSED: usize = 256;
/// Frames that one round is to free by moving pages together.
const COMPACTED: usize = 64;
/// The part of the tenant's budget that the reserve may be.
const RESERVE_PART: u64 = 32;

/// The swap of one tenant. Lives as long as a region of the tenant does. Dropped without the
/// pool's lock: it gives frames back.
#[derive(Debug)]
pub(crate) struct TenantSwap {
    /// Before `place`, so that all frames are back when the place ends.
    store: CompressedStore<FrameSource>,
    /// The file of the pager, for what does not compress and what was not used for long.
    file: Option<Arc<SwapFile<Backing>>>,
    place: Place,
}

/// A place among the [`Swaps`](super::Swaps). Given up on drop.
#[derive(Debug)]
struct Place(FrameSource);

impl TenantSwap {
    /// The swap of a group that exists; `None` if the pager has none.
    ///
    /// # Errors
    /// [`Error::Tenant`] if the group is gone; [`Error::OutOfBudget`] if there is no room for the
    /// reserve.
    pub(crate) fn of(pool: &Arc<Pool>, group: MemcgId) -> Result<Option<Arc<dyn Store>>, Error> {
        if !pool.has_swap {
            return Ok(None);
        }
        // One thread at a time makes one.
        let _one_at_a_time = lowtide_pin::sync::lock(&pool.making_swap);
        let mut state = pool.lock_sound()?;
        if !state.engine.alive(group) {
            return Err(TenantError::Gone.into());
        }
        if let Some(swap) = state.swaps.find(group) {
            drop(state);
            return Ok(Some(swap));
        }
        let index = state.swaps.begin(group);
        let max = state.engine.max(group).min(u64::from(pool.frames));
        drop(state);
        let source = FrameSource { pool: Arc::clone(pool), index };
        let swap = Arc::new(Self {
            // What does not compress takes as much as it gives back.
            store: CompressedStore::new(
                source.clone(),
                StoreLimits { raw: false, ..StoreLimits::default() },
            ),
            file: pool.swap_file.clone(),
            place: Place(source),
        });
        let found: Arc<dyn Store> = Arc::<Self>::clone(&swap);
        // One more, for a table of slots.
        swap.place.fill(&found, 1 + (max / RESERVE_PART).clamp(1, RESERVE_MAX))?;
        Ok(Some(found))
    }
}

impl Store for TenantSwap {
    fn keep(&self, owner: Owner, bytes: &[u8]) -> Result<Slot, Refused> {
        let stored = self.store.store_tagged(bytes, tag(owner));
        stored.map(|handle| Slot(u64::from(handle.to_bits()) + 1)).map_err(|why| match why {
            Rejected::Incompressible => Refused::Incompressible,
            _ => Refused::Full,
        })
    }

    fn write(&self, pages: &[(Owner, &[u8])]) -> io::Result<Vec<Slot>> {
        let Some(file) = &self.file else {
            let why = "they do not compress, or have no room compressed, and there is no swap file";
            return Err(io::Error::new(io::ErrorKind::StorageFull, why));
        };
        let outgoing = |&(owner, bytes): &(Owner, _)| Outgoing { bytes, tag: tag(owner) };
        let outgoing: Vec<_> = pages.iter().map(outgoing).collect();
        let slots = file.write(&outgoing).map_err(io::Error::other)?;
        Ok(slots.into_iter().map(in_file).collect())
    }

    fn has_file(&self) -> bool {
        self.file.is_some()
    }

    fn load(&self, slot: Slot, to: &mut [u8]) -> io::Result<()> {
        match Kept::of(slot) {
            Kept::Memory(handle) => self.store.load(handle, to).map_err(corrupt),
            Kept::File(slot) => self.file().read_alone(slot, to).map_err(read_error),
        }
    }

    fn load_many(&self, pages: &mut [(Slot, &mut [u8])]) -> Vec<io::Result<()>> {
        let mut results: Vec<io::Result<()>> = Vec::with_capacity(pages.len());
        let mut of_file = Vec::new();
        for (at, (slot, to)) in pages.iter_mut().enumerate() {
            results.push(match Kept::of(*slot) {
                Kept::Memory(handle) => self.store.load(handle, to).map_err(corrupt),
                Kept::File(slot) => {
                    of_file.push((at, Incoming { slot, to }));
                    Ok(())
                }
            });
        }
        if !of_file.is_empty() {
            of_file.sort_unstable_by_key(|(_, page)| page.slot);
            let (places, mut incoming): (Vec<_>, Vec<_>) = of_file.into_iter().unzip();
            let read = self.file().read_together(&mut incoming);
            for (at, result) in places.into_iter().zip(read) {
                results[at] = result.map_err(read_error);
            }
        }
        results
    }

    fn load_with(
        &self,
        slot: Slot,
        to: &mut [u8],
        ahead: &ReadAhead,
        neighbours: &mut dyn Around,
    ) -> io::Result<()> {
        match Kept::of(slot) {
            Kept::Memory(handle) => self.store.load(handle, to).map_err(corrupt),
            Kept::File(slot) => {
                self.file().read(slot, to, ahead, &mut Tagged(neighbours)).map_err(read_error)
            }
        }
    }

    fn count_ahead(&self, taken: u64, hits: u64, wasted: u64) {
        if let Some(file) = &self.file {
            file.count_ahead(taken, hits, wasted);
        }
    }

    fn peek(&self, slot: Slot, to: &mut [u8]) -> io::Result<()> {
        match Kept::of(slot) {
            Kept::Memory(handle) => self.store.peek(handle, to).map_err(corrupt),
            Kept::File(_) => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    fn may_keep(&self, slot: Slot) -> bool {
        matches!(Kept::of(slot), Kept::File(_)) && {
            let stat = self.file().stat();
            u64::from(stat.used) * 2 <= u64::from(stat.slots)
        }
    }

    fn is_file_full(&self, pages: usize) -> bool {
        self.file.as_ref().is_some_and(|file| {
            let stat = file.stat();
            u64::from(stat.used) + pages as u64 > u64::from(stat.slots)
        })
    }

    fn free(&self, slot: Slot) {
        match Kept::of(slot) {
            Kept::Memory(handle) => self.store.free(handle),
            Kept::File(slot) => self.file().free(slot),
        }
    }

    fn free_many(&self, slots: &[Slot]) {
        let mut in_file = Vec::with_capacity(slots.len());
        for &slot in slots {
            match Kept::of(slot) {
                Kept::Memory(handle) => self.store.free(handle),
                Kept::File(slot) => in_file.push(slot),
            }
        }
        if !in_file.is_empty() {
            self.file().free_all(&in_file);
        }
    }

    fn pay_for_slots(&self) -> Option<u32> {
        self.place.0.charge_slots()
    }

    fn give_back_slots(&self, frames: &[u32]) {
        self.place.0.uncharge_slots(frames);
    }

    fn coldest(&self, count: usize) -> Vec<(Owner, Slot)> {
        let cold = self.store.coldest(count).into_iter();
        cold.map(|cold| (owner(cold.tag), Slot(u64::from(cold.handle.to_bits()) + 1))).collect()
    }

    fn compact(&self, frames: usize) -> usize {
        self.store.compact(frames)
    }

    fn maintain(&self) {
        self.store.age();
        self.store.recompress(RECOMPRESSED);
        self.store.compact(COMPACTED);
    }

    fn stat(&self) -> StoreStat {
        self.store.stat()
    }
}

impl TenantSwap {
    fn file(&self) -> &SwapFile<Backing> {
        self.file.as_deref().expect("a page is in the swap file, so there is one")
    }
}

/// A slot of the file.
fn in_file(slot: lowtide_swap::Slot) -> Slot {
    Slot(IN_FILE | u64::from(slot.to_bits()))
}

/// Neighbours by what they are, not by their tags. None of them keeps its slot.
struct Tagged<'a>(&'a mut dyn Around);

impl Neighbours for Tagged<'_> {
    fn wants(&mut self, slot: lowtide_swap::Slot, tag: u64) -> bool {
        self.0.wants(owner(tag), in_file(slot))
    }

    fn take(&mut self, _: lowtide_swap::Slot, tag: u64, page: &[u8]) -> bool {
        self.0.arrived(owner(tag), page);
        false
    }
}

/// A slot, decoded.
enum Kept {
    Memory(Handle),
    File(lowtide_swap::Slot),
}

impl Kept {
    fn of(slot: Slot) -> Self {
        assert!(!slot.is_none(), "a page is read from swap that is not there");
        match slot.in_file() {
            Some(slot) => Self::File(slot),
            None => Self::Memory(Handle::from_bits((slot.0 - 1) as u32)),
        }
    }
}

fn corrupt(error: Corrupt) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// The device's error as it is; one of the contents with its text.
fn read_error(error: ReadError) -> io::Error {
    match error {
        ReadError::Io { source, .. } => source,
        other => io::Error::new(io::ErrorKind::InvalidData, other),
    }
}

impl Place {
    /// Charges the reserve, and lets the store be found.
    fn fill(&self, store: &Arc<dyn Store>, pages: u64) -> Result<(), Error> {
        let FrameSource { pool, index } = &self.0;
        let payer = Payer::Swap(*index);
        let (mut state, charged) =
            pool.charge(pool.lock(), payer, pages, Task::DESCRIPTOR, Effort::Wait);
        pool.check()?;
        let group =
            charged.map_err(|full| out_of_budget(&mut state, full, pages, pool.page_shift))?;
        let mut reserve = Vec::new();
        while (reserve.len() as u64) < pages
            && let Some(frame) = pool.take_arena_frames(&mut state, 0)
        {
            reserve.push(frame);
        }
        // The system may have no memory for all of them.
        state.engine.uncharge(group, pages - reserve.len() as u64);
        state.swaps.settle(*index, store, reserve);
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let FrameSource { pool, index } = &self.0;
        let Ok(mut state) = pool.lock_sound() else { return };
        let (reserve, group) = state.swaps.end(*index);
        state.engine.uncharge(group, reserve.len() as u64);
        for frame in reserve {
            state.frames.free(frame, 0);
        }
        drop(state);
        pool.freed.wake_all();
    }
}

#[cfg(test)]
mod tests {
    use crate::instruments::{Inject, InjectOp, Request, Verdict};
    use crate::swap::maintain;
    use crate::{Error, Pager, Size, SwapOptions};
    use lowtide_core::FolioId;
    use std::io::{self, ErrorKind};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    const PAGE: u64 = 4096;
    /// Pages of a region, of which a fifth is kept.
    const PAGES: u64 = 140;
    const KEPT: u64 = PAGES / 5;

    /// A page that repeats a text of its own.
    fn text(page: u64) -> Vec<u8> {
        format!("what page {page} holds; ").bytes().cycle().take(4096).collect()
    }

    #[test]
    fn a_compressed_page_that_was_overwritten_is_an_error_and_never_other_bytes() {
        let swap = SwapOptions::compressed(Size::mib(1));
        let pager = Pager::builder().max(Size::mib(2)).swap(swap).build().unwrap();
        let heap = pager.root().region(4 << 20).unwrap();
        for page in 0..heap.page_count() {
            heap.page_mut(page).unwrap().copy_from_slice(&text(page));
        }
        let pool = &pager.inner.pool;
        {
            let state = pool.lock();
            for frame in (0..pool.frames).filter(|&f| state.engine.folio_of(FolioId(f)).is_none()) {
                // One bit of every few compressed pages.
                for at in (0..4096).step_by(1024) {
                    // SAFETY: the frame is free, in reserve or a store's. No thread uses a store
                    // now, and none takes a frame while this one has the lock.
                    #[expect(unsafe_code, reason = "plays broken memory")]
                    unsafe {
                        *pool.frame_ptr(frame).wrapping_add(at) ^= 1;
                    }
                }
            }
        }
        let mut wrong = 0;
        for page in (0..heap.page_count()).rev() {
            match heap.page(page) {
                Ok(guard) => assert!(guard[..] == text(page), "page {page}"),
                Err(Error::SwapIn { source, .. }) => {
                    assert_eq!(source.kind(), ErrorKind::InvalidData);
                    wrong += 1;
                }
                Err(other) => panic!("{other}"),
            }
        }
        assert!(wrong > 10, "{wrong} pages were overwritten");
        assert!(pager.root().swap_stat().unwrap().corrupt >= wrong);
        pager.validate().unwrap();
        heap.clear(0..heap.len()).unwrap();
        heap.page_mut(7).unwrap().copy_from_slice(&text(7));
        drop(heap);
        assert_eq!(pager.root().usage().unwrap(), 0);
        pager.validate().unwrap();
    }

    /// Fails one request, and counts all of them: reads, writes and holes.
    #[derive(Debug)]
    struct One {
        fails: u64,
        seen: [AtomicU64; 3],
    }

    impl Inject for One {
        fn before(&self, request: &Request<'_>) -> Verdict {
            let kind = match request.op {
                InjectOp::Read => 0,
                InjectOp::Write => 1,
                InjectOp::Punch => 2,
                other => panic!("{other:?} of the swap file"),
            };
            self.seen[kind].fetch_add(1, Relaxed);
            let broken = || Verdict::Fail(io::Error::from_raw_os_error(5));
            if request.number == self.fails { broken() } else { Verdict::Pass }
        }
    }

    /// What a page holds in some version, which does not compress.
    fn noise(page: u64, version: u64) -> Vec<u8> {
        let mut state = (page << 8 | version).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let next = |_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        };
        (0..PAGE / 8).flat_map(next).collect()
    }

    /// Stores, gives most of it up, looks after the file, and reads what is left, twice, while one
    /// request fails. What fails is right when it is done again. Returns the requests by kind, and
    /// how many calls failed.
    fn play(fails: u64) -> ([u64; 3], u64) {
        let dir = tempfile::tempdir().unwrap();
        let inject = Arc::new(One { fails, seen: Default::default() });
        // Two clusters: both are needed.
        let swap = SwapOptions::compressed(Size::new(PAGE)).file(dir.path(), Size::kib(512));
        let pager = Pager::builder().max(Size::mib(1)).swap(swap).background(false);
        let pager = pager.inject(Arc::<One>::clone(&inject)).build().unwrap();
        let tenant = pager.tenant("heap").max(Size::kib(160)).create().unwrap();
        let heap = tenant.region(PAGES * PAGE).unwrap();
        let mut failed = 0;
        let mut insist = |act: &dyn Fn() -> Result<(), Error>| match act() {
            Ok(()) => {}
            Err(Error::SwapIn { .. } | Error::OutOfBudget { .. }) => {
                failed += 1;
                act().expect("only one request fails");
            }
            Err(other) => panic!("{other}"),
        };
        let pool = &*pager.inner.pool;
        for version in 1..3 {
            for page in 0..PAGES {
                let bytes = noise(page, version);
                insist(&|| heap.page_mut(page).map(|mut to| to.copy_from_slice(&bytes)));
            }
            insist(&|| heap.clear(KEPT * PAGE..heap.len()));
            drop(maintain(pool, pool.lock()));
            for page in 0..PAGES {
                let due = if page < KEPT { noise(page, version) } else { vec![0; PAGE as usize] };
                insist(&|| heap.page(page).map(|found| assert!(found[..] == due, "page {page}")));
            }
            pager.validate().unwrap();
        }
        drop(heap);
        drop(maintain(pool, pool.lock()));
        let left = (pager.root().usage().unwrap(), pager.root().swap_usage().unwrap());
        assert_eq!((left, pager.swap_file().unwrap().used), ((0, 0), 0));
        pager.validate().unwrap();
        (inject.seen.each_ref().map(|count| count.load(Relaxed)), failed)
    }

    #[test]
    fn each_request_of_the_swap_file_may_fail_once_those_for_holes_among_them() {
        let (requests, failed) = play(u64::MAX);
        assert!(failed == 0 && requests.iter().all(|count| *count > 1), "{requests:?}");
        let failed: u64 = (0..requests.iter().sum()).map(|number| play(number).1).sum();
        assert!(failed > 0, "of {requests:?} requests, no read was needed by itself");
    }
}
