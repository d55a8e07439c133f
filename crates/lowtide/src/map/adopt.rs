//! Mappings of the kernel that come under a budget: made by a [`Map`](super::Map), or by the
//! program itself.

use super::error::MapError;
use super::options::{MapOptions, Way};
use super::space::{Body, open_space};
use super::watch::{WatchedFile, Watcher};
use super::watched::{Mapping, Watched};
use crate::pager::Pager;
use crate::view::Open;
use lowtide_sys::memory::page_size;
use lowtide_sys::page_cache::{self, Advice};
use lowtide_sys::pagemap::Pagemap;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// A mapping that was taken over: watched, and kept within the budget, until this is dropped.
///
/// The mapping itself stays the program's, and works as ever.
#[derive(Debug)]
pub struct Adopted {
    file: Arc<WatchedFile>,
    addresses: Range<usize>,
    exact: bool,
    watcher: Arc<Watcher>,
    page_shift: u32,
}

impl MapOptions {
    /// Takes over a mapping that the program made of `file` from [`offset`](MapOptions::offset) on:
    /// the way [`Way::PageCache`], for memory that the program mapped itself. Mappings of one file
    /// for one tenant share their pages.
    ///
    /// What is cached of the file and not in use is dropped, so that all that comes in is noticed.
    ///
    /// # Errors
    /// [`MapError`] says what is wrong with the range, or what the kernel refuses.
    ///
    /// # Safety
    /// The addresses are a mapping of this file, shared, or private and never stored to through it.
    /// The program calls [`Adopted::forget`] *before* it puts anything else there, takes the right
    /// to store to a private mapping, or unmaps it.
    #[expect(unsafe_code, reason = "entries of page tables are taken out at these addresses")]
    pub unsafe fn adopt(
        &self,
        pager: &Pager,
        file: BorrowedFd<'_>,
        address: *const u8,
        len: usize,
    ) -> Result<Adopted, MapError> {
        let pool = &pager.inner.pool;
        let page = page_size();
        if pool.page_bytes() != page {
            return Err(MapError::PageSize { pager: pool.page_bytes(), system: page });
        }
        let range = |why| MapError::Range { offset: self.offset, len: len as u64, why };
        let start = address.addr();
        if len == 0 || !start.is_multiple_of(page) || !self.offset.is_multiple_of(page as u64) {
            return Err(range("a mapping begins with a page and has bytes"));
        }
        let addresses = start
            .checked_add(len.next_multiple_of(page))
            .map(|end| start..end)
            .ok_or_else(|| range("no address space is as large"))?;
        let group = self.group(pager)?;
        let watcher =
            pager.inner.threads.watcher().map_err(MapError::kernel("starting a thread"))?;
        let first = self.offset >> pool.page_shift;
        let end = first + (addresses.len() >> pool.page_shift) as u64;
        let file = self.watched_file(pager, &watcher, file, group, end)?;
        let exact = watcher.make_exact(&addresses);
        if self.read_ahead != Some(u64::MAX) {
            // Best effort: with read-around more comes in than is used.
            drop(page_cache::advise(addresses.clone(), Advice::Random));
        }
        file.watched.add(Mapping { addresses: addresses.clone(), first });
        Ok(Adopted { file, addresses, exact, watcher, page_shift: pool.page_shift })
    }

    /// The file as it is watched already, or from now on.
    fn watched_file(
        &self,
        pager: &Pager,
        watcher: &Watcher,
        file: BorrowedFd<'_>,
        group: lowtide_core::MemcgId,
        end: u64,
    ) -> Result<Arc<WatchedFile>, MapError> {
        let pool = &pager.inner.pool;
        let _one_at_a_time = watcher.adopting();
        let key = crate::backing::FileKey::of(file).map_err(MapError::kernel("fstat(2)"))?;
        let found = watcher.find(|space| {
            space.backing.key() == key && pool.lock().engine.group_of_space(space.id) == group
        });
        if let Some(found) = found {
            found
                .space
                .make_room(end << pool.page_shift)
                .map_err(|error| MapError::Way { way: Way::PageCache, why: error.to_string() })?;
            return Ok(found);
        }
        let pagemap = Pagemap::open().map_err(MapError::kernel("opening /proc/self/pagemap"))?;
        if !Pagemap::available() {
            return Err(MapError::Way {
                way: Way::PageCache,
                why: "the kernel cannot scan page tables (PAGEMAP_SCAN, Linux 6.7)".to_owned(),
            });
        }
        let own = file.try_clone_to_owned().map_err(MapError::kernel("dup(2)"))?;
        let watched =
            Arc::new(Watched::new(own.into(), pagemap, pool.page_shift, pool.young_faults));
        // Pages that are cached already may be in large folios, of which no part can be dropped.
        drop(page_cache::drop_cached(watched.file(), 0, 0));
        let body: Body = Arc::<Watched>::clone(&watched);
        let space = open_space(pool, group, file, (body, true), end)?;
        let open = Some(Open::new(pager.clone(), Arc::clone(&space)));
        let (admitted, streams) = (AtomicU64::new(0), Mutex::default());
        let file = Arc::new(WatchedFile { space, watched, admitted, streams, open });
        watcher.add(&file);
        Ok(file)
    }
}

impl Adopted {
    /// Looks at these addresses no more, and takes nothing away there. When this returns the
    /// program may unmap them or put other memory there.
    pub fn forget(&self, addresses: Range<usize>) {
        let start = addresses.start.max(self.addresses.start);
        let end = addresses.end.min(self.addresses.end);
        if start >= end {
            return;
        }
        for forgotten in self.file.watched.forget(&(start..end)) {
            if self.exact {
                self.watcher.make_coarse(&forgotten);
            }
        }
    }

    /// The addresses that were taken over.
    #[must_use]
    pub fn addresses(&self) -> Range<usize> {
        self.addresses.clone()
    }

    /// Whether touches of single pages are seen. If not, a page looks touched when one of
    /// its neighbours was.
    #[must_use]
    pub const fn is_exact(&self) -> bool {
        self.exact
    }

    /// Bytes of the file that are known to be in memory. Cost: a look at each of its translations.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        self.file.space.table.resident() << self.page_shift
    }

    /// Pages of the file that were noticed to have come in.
    #[must_use]
    pub fn admitted(&self) -> u64 {
        self.file.admitted.load(Relaxed)
    }
}

impl Drop for Adopted {
    fn drop(&mut self) {
        self.forget(self.addresses.clone());
    }
}
