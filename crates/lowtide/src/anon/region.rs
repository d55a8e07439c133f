//! The handle of a region: making and growing it.

use super::access::{self, Owned};
use super::page::PageMut;
use super::{close, discard, pages::AnonPages};
use crate::error::Error;
use crate::map::MappedPages;
use crate::pager::Pager;
use crate::pool::Pool;
use crate::space::backing::Backing;
use crate::space::{PAGES_MAX, SPACES_MAX, Space};
use crate::swap::TenantSwap;
use crate::tenant::{Tenant, TenantError};
use crate::view::guard::Page;
use crate::view::hits::Hits;
use lowtide_core::MemcgId;
use lowtide_core::Size;
use lowtide_pin::translation::{Entry, State as EntryState};
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Addresses that are reserved for the translations of a region beyond its size: for 64 GiB of
/// pages of 4 KiB.
const GROWTH_PAGES: u64 = 1 << 24;

/// The choices for a region.
///
/// ```
/// use lowtide::{Size, RegionOptions, Pager, SwapOptions};
///
/// # let swap = SwapOptions::compressed(Size::mib(1));
/// # let pager = Pager::builder().max(Size::mib(4)).swap(swap).build()?;
/// let tenant = pager.tenant("query").max(Size::mib(2)).create()?;
/// let sorted = RegionOptions::new().name("sort").create(&tenant, 16 << 20)?;
/// assert_eq!(format!("{sorted:?}").contains("[anon:sort]"), true);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "options do nothing until `create`"]
pub struct RegionOptions {
    name: Option<String>,
    growth: u64,
}

impl RegionOptions {
    /// A region without a name that can grow.
    pub fn new() -> Self {
        Self::default()
    }

    /// Its name in errors and reports, as in `/proc/self/maps`: `[anon:NAME]`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Bytes that the region can [grow](Region::grow) to, if that is more than its size and 64 GiB
    /// (with pages of 4 KiB). Only addresses are reserved.
    pub fn growth(mut self, bytes: impl Into<Size>) -> Self {
        self.growth = bytes.into().bytes();
        self
    }

    /// Makes a region of `bytes` zeroes whose pages are charged to a tenant. It takes no memory
    /// before it is stored to; the first region of a tenant reserves up to 17 pages for the
    /// compression of others.
    ///
    /// # Errors
    /// [`Error::Tenant`] when the tenant is gone; [`Error::OutOfBudget`] when there is no room for
    /// that reserve; [`Error::Grow`] for a size that cannot be described.
    pub fn create(&self, tenant: &Tenant, bytes: impl Into<Size>) -> Result<Region, Error> {
        let bytes = bytes.into().bytes();
        let pool = &tenant.pager.inner.pool;
        let pages = bytes.div_ceil(pool.page_bytes() as u64);
        let room = (pages + GROWTH_PAGES).min(PAGES_MAX) << pool.page_shift;
        let name = self.name.as_deref();
        let open = Open::new(&tenant.pager, tenant.id, name, bytes..self.growth.max(room), None)?;
        Ok(Region {
            hits: Hits::new(&open.space, pool),
            space: Arc::clone(&open.space),
            pool: Arc::clone(pool),
            open: Arc::new(open),
        })
    }
}

/// What all clones of a region share. Dropping it gives up all pages.
pub(crate) struct Open {
    pager: Pager,
    space: Arc<Space>,
}

impl Open {
    /// Makes a region of `sizes.start` bytes that can grow to `sizes.end`. Its pages are in the
    /// arena, or in memory that a program has a pointer to.
    pub(crate) fn new(
        pager: &Pager,
        group: MemcgId,
        name: Option<&str>,
        sizes: Range<u64>,
        mapped: Option<Arc<dyn MappedPages>>,
    ) -> Result<Self, Error> {
        let pool = &pager.inner.pool;
        let path = PathBuf::from(name.map_or("[anon]".to_owned(), |n| format!("[anon:{n}]")));
        let anon = AnonPages::new(TenantSwap::of(pool, group)?);
        let space = Self::add_space(pool, group, &path, sizes, (anon, mapped))?;
        Ok(Self { pager: pager.clone(), space })
    }

    /// The region's entry in the pager.
    pub(crate) const fn space(&self) -> &Arc<Space> {
        &self.space
    }

    fn add_space(
        pool: &Pool,
        group: MemcgId,
        path: &Path,
        sizes: Range<u64>,
        (anon, mapped): (AnonPages, Option<Arc<dyn MappedPages>>),
    ) -> Result<Arc<Space>, Error> {
        let (bytes, room) = (sizes.start, sizes.end);
        let refused = |why: String| Error::Grow {
            path: Arc::new(path.to_owned()),
            len: bytes,
            source: Arc::new(io::Error::new(io::ErrorKind::FileTooLarge, why)),
        };
        let mut state = pool.lock_sound()?;
        if !state.engine.alive(group) {
            return Err(TenantError::Gone.into());
        }
        let id = state.engine.add_space(group);
        let made = if id.0 < SPACES_MAX {
            let backing = Backing::anonymous(path, id.0);
            Space::new(id, backing, bytes, 0, pool.page_shift, room).map_err(|e| e.to_string())
        } else {
            Err(format!("a pager has at most {SPACES_MAX} files and regions"))
        };
        match made {
            Ok(mut space) => {
                space.anon = Some(anon);
                space.mapped = mapped;
                let space = Arc::new(space);
                state.add_space(&space);
                Ok(space)
            }
            Err(why) => {
                state.engine.remove_space(id);
                drop(state);
                Err(refused(why))
            }
        }
    }
}

impl fmt::Debug for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Open").field(&self.space).finish()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let pool = &*self.pager.inner.pool;
        if pool.is_poisoned() {
            drop(self.space.anon().take_store());
            return;
        }
        close::close(pool, &self.space);
    }
}

/// Memory of the program's own that may be larger than the tenant's budget: the pages that are not
/// in memory are in swap ([`SwapOptions`](crate::SwapOptions)). Cheap to clone and to share between
/// threads; dropping the last clone gives everything back.
///
/// ```
/// use lowtide::{Size, Pager, SwapOptions};
///
/// let swap = SwapOptions::compressed(Size::mib(1));
/// let pager = Pager::builder().max(Size::mib(4)).swap(swap).build()?;
/// let tenant = pager.tenant("query").max(Size::mib(2)).create()?;
///
/// let heap = tenant.region(8 << 20)?;                 // four times what the tenant may use
/// for page in 0..heap.page_count() {
///     heap.page_mut(page)?.fill(page as u8);           // a guard: the page is this thread's
/// }
/// assert!(tenant.usage()? <= 2 << 20);              // compressed pages included
/// assert!(heap.page(700)?.iter().all(|byte| *byte == 700_u32 as u8));
///
/// heap.write_at(5_000_000, b"bytes")?;              // copied, at any offset
/// heap.clear(0..4 << 20)?;                        // zeroes from now on, and no memory
/// assert_eq!(heap.page(3)?[0], 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Region {
    hits: Hits,
    pub(super) space: Arc<Space>,
    pub(super) pool: Arc<Pool>,
    open: Arc<Open>,
}

impl Tenant {
    /// Makes a region of `bytes` zeroes; [`RegionOptions`] has choices.
    ///
    /// # Errors
    /// As [`RegionOptions::create`].
    pub fn region(&self, bytes: impl Into<Size>) -> Result<Region, Error> {
        RegionOptions::new().create(self, bytes)
    }
}

impl Clone for Region {
    fn clone(&self) -> Self {
        Self {
            hits: Hits::new(&self.space, &self.pool),
            space: Arc::clone(&self.space),
            pool: Arc::clone(&self.pool),
            open: Arc::clone(&self.open),
        }
    }
}

impl fmt::Debug for Region {
    /// One line, without the pool's lock: values that contain a region are logged.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut it = f.debug_struct("Region");
        it.field("name", &self.space.path_ref()).field("len", &self.space.len());
        it.finish_non_exhaustive()
    }
}

impl Region {
    /// Bytes of the region.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.space.len()
    }

    /// Whether the region has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Pages of the region, a partial last one included.
    #[must_use]
    pub fn page_count(&self) -> u64 {
        self.space.pages()
    }

    /// Bytes of a page.
    #[must_use]
    pub fn page_size(&self) -> usize {
        self.pool.page_bytes()
    }

    /// The pager.
    #[must_use]
    pub fn pager(&self) -> &Pager {
        &self.open.pager
    }

    /// Whether a page is in memory at this moment. This call is no access. Cost: one load.
    #[must_use]
    pub fn is_resident(&self, page: u64) -> bool {
        let state = self.space.table.get(page).map(Entry::load);
        matches!(state, Some(EntryState::Resident { .. } | EntryState::Locked { .. }))
    }

    /// Pages that are in swap. Cost: a look at a word for each page of tables that ever had one
    /// there.
    #[must_use]
    pub fn swapped_pages(&self) -> u64 {
        self.space.anon().swapped_pages()
    }

    /// Pins a page for reading. A page that was never stored to shows zeroes and takes no memory.
    ///
    /// Cost: a few nanoseconds if the page is in memory; otherwise a decompression, and perhaps the
    /// reclaim of a few pages.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::SwapIn`], [`Error::OutOfBudget`]; [`Error::HeldHere`] if
    /// this thread has a [`PageMut`] of the page.
    #[inline(always)]
    pub fn page(&self, page: u64) -> Result<Page<'_>, Error> {
        match self.hits.find(page) {
            Some((bytes, held)) => Ok(Page::new(bytes, self.hits.page_bytes(), held)),
            None => self.page_slow(page),
        }
    }

    #[cold]
    #[inline(never)]
    fn page_slow(&self, page: u64) -> Result<Page<'_>, Error> {
        let (bytes, held) = access::hold(&self.pool, &self.space, page)?;
        self.hits.learn(&self.space);
        Ok(Page::new(bytes, self.pool.page_bytes(), held))
    }

    /// Takes a page for storing: it is this thread's while the guard lives. Waits for guards of
    /// other threads on it.
    ///
    /// Cost: about half a microsecond if the page is in memory; else as for
    /// [`page`](Region::page).
    ///
    /// # Errors
    /// As [`page`](Region::page); [`Error::HeldHere`] and [`Error::HeldElsewhere`] when a guard
    /// stands in the way.
    pub fn page_mut(&self, page: u64) -> Result<PageMut<'_>, Error> {
        Ok(PageMut::new(Owned::take(&self.pool, &self.space, page)?))
    }

    /// Copies bytes from the region, from any offset. Each page counts as accessed.
    ///
    /// # Errors
    /// As [`page`](Region::page); [`Error::OutOfRange`] when the range ends past the end of the
    /// region. Part of the buffer may have been filled.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        access::copy_out(&self.pool, &self.space, offset, buf)
    }

    /// Copies bytes into the region, at any offset. Within one page the write is atomic against
    /// guards and other writes; pages are written in ascending order. A page that is in swap and is
    /// written as a whole is not loaded.
    ///
    /// # Errors
    /// As [`page_mut`](Region::page_mut); [`Error::OutOfRange`] when the range ends past the end of
    /// the region. Pages before the failing one have been written.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        access::copy_in(&self.pool, &self.space, offset, bytes)
    }

    /// Makes a range of bytes zeroes. The whole pages in it take neither memory nor swap
    /// afterwards.
    ///
    /// # Errors
    /// As [`page_mut`](Region::page_mut); pages before the failing one are zeroes.
    pub fn clear(&self, bytes: Range<u64>) -> Result<(), Error> {
        discard::discard(&self.pool, &self.space, bytes)
    }

    /// Permits the pager to drop the whole pages in a range when memory is needed, as madvise(2)
    /// with `MADV_FREE`: they go with the oldest pages of files, and are stored nowhere. Until one
    /// is dropped it reads as before; from then on it is zeroes. A store keeps its page. Pages in
    /// swap are zeroes at once; those that a thread stores to at this moment are left alone.
    ///
    /// For memory that is likely to be used again soon, with new contents: unlike
    /// [`clear`](Region::clear), this costs no fault if memory was not needed in between. While
    /// such pages are left, each store to the region looks whether it is to one of them.
    ///
    /// Cost: about 110 ns a page, and 30 ns for the first store to it afterwards. After a discard
    /// that store takes half a microsecond more.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] when the range ends past the end of the region.
    pub fn advise_free(&self, bytes: Range<u64>) -> Result<(), Error> {
        discard::free_lazily(&self.pool, &self.space, bytes)
    }

    /// Makes the region `bytes` longer, all zeroes. Returns where they begin.
    ///
    /// # Errors
    /// [`Error::Grow`]: more than [`RegionOptions::growth`] allows, or there is no memory for the
    /// translations.
    pub fn grow(&self, bytes: u64) -> Result<u64, Error> {
        let _one_at_a_time = self.space.growing()?;
        let len = self.space.len();
        let longer = len.checked_add(bytes).ok_or_else(|| self.space.too_long(u64::MAX))?;
        self.space.set_known_len(longer)?;
        Ok(len)
    }
}
