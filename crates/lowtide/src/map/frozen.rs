//! Memory without a file while nothing is stored to it: for copies of it.
//!
//! A child of `fork` does not have this memory. One that shall have it gets a copy, and the copy
//! has to be of one moment: if it has a store of some thread, it has all stores that this thread
//! made before. So stores wait while it is made. Two steps see to that:
//!
//! 1. The *gate* is closed. Server threads that are in the memory finish; those that come put their
//!    faults off. So no page comes in, and no protection is ended.
//! 2. The pages are protected. Setting it returns when no processor has an older entry in use, so a
//!    store has landed by then, or its thread waits in a fault.
//!
//! Pages may leave meanwhile, which needs no server thread. When the gate opens, the protection
//! stays: a page may always be protected, and the next store to it is a message too many.

use super::area::Memory;
use super::pages::StoredPages;
use super::report::MapReport;
use super::server::Served;
use super::writable::MapMut;
use crate::anon::discard_pages;
use crate::error::Error;
use crate::pool::Pool;
use crate::store::unlock;
use lowtide_pin::translation::State;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Memory of [`MapOptions::map_anon`](super::MapOptions::map_anon) to which no thread stores while
/// this lives. A thread that tries to, or that touches a page that is not in memory, waits. So the
/// map itself cannot be used; [`thaw`](Self::thaw) returns it.
pub struct Frozen {
    // Opened before the map goes, if that is dropped: its threads are waited for.
    closed: Closed,
    map: MapMut,
}

/// The gate of a memory, which opens when this goes.
struct Closed(Arc<Served>);

impl Drop for Closed {
    fn drop(&mut self) {
        self.0.gate.open();
    }
}

/// A map that could not be frozen: as before.
#[derive(Debug)]
pub struct NotFrozen {
    /// The map.
    pub map: MapMut,
    /// Why.
    pub source: io::Error,
}

impl fmt::Display for NotFrozen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stores to a map cannot be stopped for a moment: {}", self.source)
    }
}

impl std::error::Error for NotFrozen {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

impl MapMut {
    /// Lets stores to these parts wait, in bytes, whole pages: those of threads that have pointers
    /// to them. Touches of missing pages wait everywhere in the map.
    ///
    /// Cost: some microseconds, and a nanosecond for each page.
    ///
    /// # Errors
    /// [`NotFrozen`], with the map: `Unsupported` for a map of a file, or in a child;
    /// `InvalidInput` for a part that is not in the map; else the kernel's.
    // The map comes back, and is not small.
    #[expect(clippy::result_large_err, reason = "the map is returned as it was given")]
    pub fn freeze(self, parts: &[Range<usize>]) -> Result<Frozen, NotFrozen> {
        let refused = |map, source| Err(NotFrozen { map, source });
        if let Err(source) = self.0.check_own() {
            return refused(self, source);
        }
        let served = match &self.0.memory {
            Memory::Mirror { served, .. } if served.mirror.is_heap() => Arc::clone(served),
            _ => return refused(self, io::ErrorKind::Unsupported.into()),
        };
        assert!(served.gate.close(), "a map is frozen once at a time");
        let frozen = Frozen { closed: Closed(served), map: self };
        let protect = |part: &Range<usize>| {
            let part = frozen.map.0.part(part.clone())?;
            frozen.closed.0.mirror.protect(frozen.pages(&part))
        };
        match parts.iter().try_for_each(protect) {
            Ok(()) => Ok(frozen),
            Err(source) => refused(frozen.thaw(), source),
        }
    }

    /// Takes a part back that was [lent](Frozen::lend), in bytes, whole pages. Its memory is
    /// dropped in one step. Afterwards it is zeroes, and nothing can be touched there before its
    /// protection is changed (`mprotect(2)`).
    ///
    /// # Errors
    /// `InvalidInput` for a part that is not in the map, `Unsupported` in a child; else the
    /// kernel's: the part stays lent, and what is there may be gone.
    ///
    /// # Safety
    /// All of the part was lent, and no thread uses what is there.
    #[expect(unsafe_code, reason = "what is at the addresses is replaced")]
    pub unsafe fn take_back(&mut self, part: Range<usize>) -> io::Result<()> {
        let part = self.0.part(part)?;
        self.0.check_own()?;
        let Memory::Mirror { served, .. } = &self.0.memory else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let shift = self.0.pager.inner.pool.page_shift;
        served.mirror.take_back(&((part.start >> shift) as u64..(part.end >> shift) as u64))
    }

    /// Whether system calls may use the memory. Otherwise one that touches a page that is not in
    /// memory fails with `EFAULT`.
    #[must_use]
    pub fn serves_system_calls(&self) -> bool {
        match &self.0.memory {
            Memory::Mirror { served, .. } => !served.mirror.user_mode_only(),
            _ => true,
        }
    }
}

impl Frozen {
    fn pool(&self) -> &Pool {
        &self.map.0.pager.inner.pool
    }

    fn pages(&self, part: &Range<usize>) -> Range<u64> {
        let shift = self.pool().page_shift;
        (part.start >> shift) as u64..(part.end >> shift) as u64
    }

    /// Calls `each` with every page of a part, in bytes, whole pages, that is not all zeroes for
    /// never having been stored to: its offset, and its bytes. Where a page is does not change.
    ///
    /// # Errors
    /// A page in swap cannot be read; or what `each` says.
    pub fn for_each_page(
        &self,
        part: Range<usize>,
        mut each: impl FnMut(usize, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut bytes = vec![0; self.pool().page_bytes()];
        for page in self.pages(&part) {
            if self.peek(page, &mut bytes)? {
                each((page as usize) << self.pool().page_shift, &bytes)?;
            }
        }
        Ok(())
    }

    /// Copies a page; false if it is nowhere.
    fn peek(&self, page: u64, to: &mut [u8]) -> io::Result<bool> {
        let (pool, space, mirror) = (self.pool(), &*self.closed.0.space, &self.closed.0.mirror);
        let Some(entry) = space.table.get(page) else { return Ok(false) };
        loop {
            pool.check()?;
            match entry.load() {
                State::Absent { shadow: 0 } => return Ok(false),
                State::Absent { shadow } if entry.try_begin_read(shadow).is_ok() => {
                    let anon = space.anon();
                    let loaded = anon.store().load(anon.slots.get(page), to);
                    if entry.abort_read(shadow) {
                        pool.waits.complete(entry, &Ok(()));
                    }
                    return loaded.map(|()| true);
                }
                State::Absent { .. } => {}
                // Locked, it does not leave.
                State::Resident { .. } => {
                    let Ok(taken) = entry.try_lock_for_store() else { continue };
                    let read = mirror.read(page << pool.page_shift, to);
                    unlock(pool, space, page, entry, taken);
                    return read.map(|()| true);
                }
                seen @ (State::Busy | State::Locked { .. }) => drop(pool.wait(space, entry, seen)),
            }
        }
    }

    /// Lends a part to the program, in bytes, whole pages: `replace` puts other memory at its
    /// addresses, in one step. What the pages had is given up. Threads that wait for one look
    /// again, there. While `replace` runs no thread of the pager touches the addresses, and none
    /// does so until the part is [taken back](MapMut::take_back).
    ///
    /// # Errors
    /// `InvalidInput` for a part that is not in the map, or what `replace` says: then nothing
    /// changes. The pager's: the part is lent, and its pages take room in the budget until the map
    /// goes.
    ///
    /// # Safety
    /// What `replace` puts there can be loaded from and stored to by the holder of the map, or is
    /// not touched through it. Dropping the map unmaps the part, too.
    #[expect(unsafe_code, reason = "a map dereferences to its addresses")]
    pub unsafe fn lend(
        &mut self,
        part: Range<usize>,
        replace: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let pages = self.pages(&self.map.0.part(part)?);
        self.closed.0.mirror.lend(&pages, replace)?;
        Ok(discard_pages(self.pool(), &self.closed.0.space, pages, u64::MAX)?)
    }

    /// Ends it: what waits goes on.
    #[must_use]
    pub fn thaw(self) -> MapMut {
        let Self { closed, map } = self;
        drop(closed);
        map
    }

    /// As [`MapMut::report`].
    #[must_use]
    pub fn report(&self) -> MapReport {
        self.map.report()
    }

    /// As [`MapMut::error`].
    #[must_use]
    pub fn error(&self) -> Option<Error> {
        self.map.error()
    }
}

impl fmt::Debug for Frozen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frozen").field("map", &self.map).finish_non_exhaustive()
    }
}
