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
use super::server::Served;
use super::writable::MapMut;
use crate::pager::Pager;
use crate::pool::Pool;
use crate::store::unlock;
use crate::translation::State;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Memory of [`MapOptions::map_anon`](super::MapOptions::map_anon) to which no thread stores while
/// this lives. A thread that tries to, or that touches a page that is not in memory, waits. Other
/// threads may not change the memory through the map meanwhile.
pub struct Frozen {
    served: Arc<Served>,
    pager: Pager,
}

impl MapMut {
    /// Lets stores to these parts wait, in bytes, whole pages. Touches of missing pages wait
    /// everywhere in the map.
    ///
    /// Cost: some microseconds, and a nanosecond for each page.
    ///
    /// # Errors
    /// `Unsupported` for a map of a file, or in a child; `WouldBlock` if it is frozen already;
    /// `InvalidInput` for a part that is not in the map; else the kernel's.
    pub fn freeze(&self, parts: &[Range<usize>]) -> io::Result<Frozen> {
        self.0.check_own()?;
        let Memory::Mirror { served, .. } = &self.0.memory else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        if !served.mirror.is_heap() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        if !served.gate.close() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let frozen = Frozen { served: Arc::clone(served), pager: self.0.pager.clone() };
        for part in parts {
            let part = self.0.part(part.clone())?;
            frozen.served.mirror.protect(frozen.pages(&part))?;
        }
        Ok(frozen)
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
        &self.pager.inner.pool
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
        let (pool, space, mirror) = (self.pool(), &*self.served.space, &self.served.mirror);
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
                    mirror.read(page << pool.page_shift, to);
                    unlock(pool, space, page, entry, taken);
                    return Ok(true);
                }
                seen @ (State::Busy | State::Locked { .. }) => drop(pool.wait(space, entry, seen)),
            }
        }
    }

    /// Ends the map: `replace` puts other memory at its addresses, with the same bytes. Threads
    /// that wait for a page look again, there. While `replace` runs no thread of the pager touches
    /// the addresses, and none does so afterwards. The map must be
    /// [forgotten](std::mem::forget), not dropped, because dropping it unmaps the addresses.
    ///
    /// # Errors
    /// What `replace` says. The memory is served by no thread then, either.
    pub fn replace(&self, replace: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.served.mirror.detach_and(replace)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.served.gate.open();
    }
}

impl fmt::Debug for Frozen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frozen").field("space", &self.served.space).finish_non_exhaustive()
    }
}
