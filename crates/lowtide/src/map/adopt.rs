//! Mappings of the kernel that come under a budget: made by a [`Map`](super::Map), or by the
//! program itself.

use super::area::Stores;
use super::error::MapError;
use super::mode::MapMode;
use super::noticed::WatchedFile;
use super::options::MapOptions;
use super::run::company::Company;
use super::server::{LET_GO, LOOK};
use super::space::{Body, check_page_size, open_space, page_tables};
use super::sweeper::sweeper_of;
use super::watch::{Watcher, read_runs};
use super::watched::{Mapping, Watched};
use crate::ahead::readahead::window_pages;
use crate::error::Error;
use crate::pager::Pager;
use crate::pool::Pool;
use crate::space::Space;
use crate::space::backing::FileKey;
use crate::view::Open;
use crate::warm::reader::opened;
use lowtide_io::Deadline;
use lowtide_sys::file;
use lowtide_sys::memory::page_size;
use lowtide_sys::page_cache::{self, Advice};
use lowtide_sys::room::{Own, bring};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A mapping that was taken over: watched, and kept within the budget, until this is dropped.
///
/// The mapping itself stays the program's, and works as usual. Addresses that were taken over twice
/// stay within the budget until both ends.
#[derive(Debug)]
pub struct Adopted {
    /// Among all of the process.
    number: u64,
    file: Arc<WatchedFile>,
    addresses: Range<usize>,
    /// The page of the file that the first address has.
    first: u64,
    exact: bool,
    /// Reading ahead is ours, and not the kernel's.
    ahead: bool,
    watcher: Arc<Watcher>,
    page_shift: u32,
    /// Where the addresses, or the file, ended when they were taken over: the nearer one.
    end: u64,
}

/// A file that is mapped, in a table of descriptors that is not the program's: it takes none of
/// these, and when it is closed the program loses no lock (`fcntl(2)`). A child of `fork` has to
/// open it again.
#[derive(Clone, Debug)]
pub struct MapFile(Arc<Own<File>>);

impl MapFile {
    /// The file of a descriptor.
    ///
    /// # Errors
    /// Why the file can neither be opened again nor its descriptor duplicated.
    pub fn of(file: BorrowedFd<'_>) -> io::Result<Self> {
        bring(file).map(|own| Self(Arc::new(own)))
    }

    const fn own(&self) -> &Arc<Own<File>> {
        &self.0
    }
}

/// How the program uses a file that is watched.
#[derive(Clone, Copy, Debug)]
pub(super) enum Use {
    /// Through a mapping, with such stores.
    Mapped(Stores),
    /// Through descriptors alone: nothing is to be seen in page tables.
    Read,
}

impl MapOptions {
    /// Takes over a mapping that the program made of `file` from [`offset`](MapOptions::offset) on:
    /// [`MapMode::PageCache`] for memory that the program mapped itself. Mappings of one
    /// file for one tenant share their pages.
    ///
    /// Drops cached pages of the file that are not in use, so that later faults can be observed.
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
        let file = MapFile::of(file).map_err(MapError::kernel("dup(2)"))?;
        // SAFETY: the caller's promise.
        unsafe { self.adopt_file(pager, &file, address, len) }
    }

    /// The same, of a file that is open already.
    ///
    /// # Errors
    /// As [`adopt`](Self::adopt).
    ///
    /// # Safety
    /// As [`adopt`](Self::adopt).
    #[expect(unsafe_code, reason = "entries of page tables are taken out at these addresses")]
    pub unsafe fn adopt_file(
        &self,
        pager: &Pager,
        file: &MapFile,
        address: *const u8,
        len: usize,
    ) -> Result<Adopted, MapError> {
        let page = page_size();
        let range = |why| MapError::Range { offset: self.offset, len: len as u64, why };
        let start = address.addr();
        if len == 0 || !start.is_multiple_of(page) || !self.offset.is_multiple_of(page as u64) {
            return Err(range("a mapping begins with a page and has bytes"));
        }
        let addresses = len
            .checked_next_multiple_of(page)
            .and_then(|len| start.checked_add(len))
            .map(|end| start..end)
            .ok_or_else(|| range("no address space is as large"))?;
        self.take_over(pager, file.own(), addresses, Stores::Never)
    }

    /// Takes over a mapping from [`offset`](MapOptions::offset) on: whole pages, at least one.
    /// `stores` says what would be lost if it were zapped.
    pub(super) fn take_over(
        &self,
        pager: &Pager,
        file: &Arc<Own<File>>,
        addresses: Range<usize>,
        stores: Stores,
    ) -> Result<Adopted, MapError> {
        let pool = &pager.inner.pool;
        check_page_size(pool)?;
        let group = self.group(pager)?;
        let watcher = pager
            .inner
            .threads
            .service(Watcher::start)
            .map_err(MapError::kernel("starting a thread"))?;
        let first = self.offset >> pool.page_shift;
        let end = first + (addresses.len() >> pool.page_shift) as u64;
        let size = file.with(|file| file::size(file)).map_err(MapError::kernel("fstat(2)"))?;
        let file = self.watched_file(pager, &watcher, file, (group, Use::Mapped(stores)), end)?;
        let sees_touches = file.watched.sees_touches();
        let exact = sees_touches && watcher.make_exact(&addresses);
        if !self.keep_kernel_read_ahead {
            // Best effort: with read-around more comes in than is used.
            drop(page_cache::advise(addresses.clone(), Advice::Random));
            if sees_touches {
                let largest = window_pages(pool, self.read_ahead);
                lowtide_pin::sync::lock(&file.streams).allow(largest);
            }
        }
        let number = NEXT.fetch_add(1, Relaxed);
        let mapping = Mapping { addresses: addresses.clone(), first, owner: number };
        if stores == Stores::Private || !sees_touches {
            file.watched.add_copies(mapping);
        } else {
            file.watched.add(mapping);
        }
        let page_shift = pool.page_shift;
        let end = size.min(end << page_shift);
        let ahead = !self.keep_kernel_read_ahead;
        Ok(Adopted { number, file, addresses, first, exact, ahead, watcher, page_shift, end })
    }

    /// The file as it is watched already, or from now on.
    pub(super) fn watched_file(
        &self,
        pager: &Pager,
        watcher: &Watcher,
        file: &Arc<Own<File>>,
        (group, use_of): (lowtide_core::MemcgId, Use),
        end: u64,
    ) -> Result<Arc<WatchedFile>, MapError> {
        let (stores, reads) = match use_of {
            Use::Mapped(stores) => (stores, false),
            Use::Read => (Stores::Never, true),
        };
        let pool = &pager.inner.pool;
        let _one_at_a_time = watcher.one_at_a_time();
        let key = file.with(|file| FileKey::of(file)).map_err(MapError::kernel("fstat(2)"))?;
        let found = watcher.find(|space| {
            space.backing.key() == key && pool.lock().engine.group_of_space(space.id) == group
        });
        let is_visible = || file.with(|file| Ok(page_cache::is_visible(file))).unwrap_or(false);
        if let Some(found) = found {
            let seen = is_visible() && !stores.are_private();
            if !reads && !found.watched.sees_touches() && !seen {
                drop(page_tables(pool, MapMode::PageCache)?);
            }
            found.space.make_room(end << pool.page_shift).map_err(|error| MapError::Mode {
                mode: MapMode::PageCache,
                why: error.to_string(),
            })?;
            return Ok(found);
        }
        let sweeper = sweeper_of(pager)?;
        let pagemap = page_tables(pool, MapMode::PageCache).map(Some).or_else(|error| {
            let seen = is_visible() && !stores.are_private();
            if seen || reads { Ok(None) } else { Err(error) }
        })?;
        let company = Company::new(key.number());
        let (page_shift, young_faults) = (pool.page_shift, pool.young_faults);
        let file_of = Arc::clone(file);
        let watched = Arc::new(Watched::new(file_of, pagemap, page_shift, young_faults, company));
        if watched.company.say_pages(pool.exchange.get(), 0) == 0 {
            // Pages that are cached may be in large folios, of which no part can be dropped.
            drop(watched.drop_cached(0..0));
        }
        let body: Body = Arc::<Watched>::clone(&watched);
        let space = open_space(
            pool,
            group,
            (file, None),
            (body, MapMode::PageCache, stores == Stores::Shared),
            end,
        )?;
        let open = Some(Open::new(pager.clone(), Arc::clone(&space)));
        let (admitted, came, streams) = Default::default();
        let (noted, wishes, kernel_ahead) = Default::default();
        let file = Arc::new(WatchedFile {
            space,
            watched,
            admitted,
            came,
            streams,
            noted,
            wishes,
            kernel_ahead,
            open,
        });
        watcher.add(&file);
        sweeper.add(&file.space, Some(&file));
        let watched = Arc::downgrade(&file);
        let read = move |pool: &Pool, _: &Space, runs: &[_]| read_runs(pool, &watched, runs);
        opened(pool, &pager.inner.threads, &file.space, Box::new(read));
        Ok(file)
    }
}

impl Adopted {
    /// Stops managing this address range; nothing in it is evicted any more, unless it was taken
    /// over a second time. When this returns the program may unmap them or put other memory there.
    pub fn forget(&self, addresses: Range<usize>) {
        let start = addresses.start.max(self.addresses.start);
        let end = addresses.end.min(self.addresses.end);
        if start >= end {
            return;
        }
        for forgotten in self.file.watched.forget(&(start..end), self.number) {
            if self.exact {
                self.watcher.make_coarse(&forgotten);
            }
            if self.ahead {
                // What the program advised before cannot be known; its next advice counts.
                drop(page_cache::advise(forgotten, Advice::Normal));
            }
        }
    }

    /// Ends it. Where it was the last of its file, the file is closed and nothing is charged for it
    /// when this returns: the thread that watches may be looking at it, and is waited for, but no
    /// longer than a while.
    pub(super) fn end(self) {
        self.forget(self.addresses.clone());
        let (file, watched) = (Arc::downgrade(&self.file), Arc::clone(&self.file.watched));
        drop(self);
        let is_in_use = |file: &WatchedFile| !watched.is_unmapped() || file.noted.is_read();
        // The thread may have the last share of the file, and be closing it.
        let has_ended = || file.upgrade().map_or(watched.has_ended(), |file| is_in_use(&file));
        let deadline = Deadline::after(LET_GO);
        while !has_ended() && !deadline.has_passed() {
            std::thread::sleep(LOOK);
        }
    }

    /// Says whether the pages at these addresses will be read at random: then nothing is read ahead
    /// for them from now on. Otherwise what is read in order is. Returns false where the kernel
    /// reads ahead, which must be advised instead.
    pub fn advise(&self, addresses: Range<usize>, random: bool) -> bool {
        if self.ahead {
            let pages = self.pages_of(&addresses);
            lowtide_pin::sync::lock(&self.file.streams).advise(&pages, random);
        }
        self.ahead
    }

    /// The pages of the file at those of some addresses that were taken over.
    fn pages_of(&self, addresses: &Range<usize>) -> Range<u64> {
        let page = |at: usize| {
            let within = at.clamp(self.addresses.start, self.addresses.end);
            self.first + ((within - self.addresses.start) >> self.page_shift) as u64
        };
        page(addresses.start)..page(addresses.end)
    }

    /// The pages at these addresses are soon wanted: they are read in the background, as far as
    /// there is room, and no more than an eighth of the budget. Returns false where the kernel
    /// reads ahead, which must be advised instead.
    pub fn will_need(&self, addresses: Range<usize>) -> bool {
        if self.ahead && !addresses.is_empty() {
            self.watcher.will_need(&self.file, self.pages_of(&addresses));
        }
        self.ahead
    }

    /// How many pages of the file came in so far, and in which manner.
    #[cfg(feature = "run")]
    #[must_use]
    pub fn manner(&self) -> super::run::Manner {
        self.file.came.now()
    }

    /// [Forgets](Self::forget) all addresses, so that dropping this forgets nothing. The file's
    /// pages stay known as long as this lives.
    pub(super) fn retire(&mut self) {
        self.forget(self.addresses.clone());
        self.addresses = 0..0;
    }

    /// The file, as it was given.
    pub(super) fn file(&self) -> &Arc<Own<File>> {
        self.file.watched.file()
    }

    /// The error for pages that were in the file when it was mapped and are not any more.
    pub(super) fn missing_end(&self) -> Option<Error> {
        let (path, page_bytes) = (self.file.space.path(), 1_u64 << self.page_shift);
        let source = match self.file().with(|file| file::size(file)) {
            Ok(size) if size >= self.end => return None,
            Ok(size) => {
                let page = size.div_ceil(page_bytes);
                let text = format!("the file has become shorter than its map: {size} bytes");
                let source = io::Error::new(io::ErrorKind::UnexpectedEof, text);
                return Some(Error::Read { path, page, source: Arc::new(source) });
            }
            Err(source) => source,
        };
        Some(Error::Read { path, page: 0, source: Arc::new(source) })
    }

    /// The addresses that were taken over.
    #[must_use]
    pub fn addresses(&self) -> Range<usize> {
        self.addresses.clone()
    }

    /// Whether touches of single pages are seen. If not, a page looks touched when one of
    /// its neighbours was.
    pub(super) const fn is_exact(&self) -> bool {
        self.exact
    }

    /// Whether it is seen which pages are touched. If not, page tables cannot be scanned, and pages
    /// leave in the order in which they came.
    pub(super) fn sees_touches(&self) -> bool {
        self.file.watched.sees_touches()
    }

    /// Bytes of the file that are known to be in memory. Cost: a look at each of its translations.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        self.file.space.table.resident() << self.page_shift
    }

    /// Bytes of the file that are in memory beyond these, since they are in use elsewhere: other
    /// processes have mapped them.
    pub(super) fn elsewhere_bytes(&self) -> u64 {
        self.file.space.elsewhere_bytes()
    }

    /// Pages of the file that were noticed to have come in.
    pub(super) fn admitted(&self) -> u64 {
        self.file.admitted.load(Relaxed)
    }
}

impl Drop for Adopted {
    fn drop(&mut self) {
        self.forget(self.addresses.clone());
    }
}
