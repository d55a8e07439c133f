//! The handle of a map: a pointer, and what belongs to it.

use super::error::MapError;
use super::mirror::Mirror;
use super::options::{Advice, MapOptions, Way};
use super::server::{Served, Server};
use crate::backing::{Backing, Create, Descriptors, Held, Wanted};
use crate::error::{Error, OpenError};
use crate::pager::Pager;
use crate::pool::Pool;
use crate::readahead::{ReadAhead, window_pages};
use crate::space::{SPACES_MAX, Space};
use crate::tenant::TenantError;
use crate::view::Open;
use lowtide_core::MemcgId;
use lowtide_sys::file::path_of;
use lowtide_sys::memory::page_size;
use lowtide_sys::page_cache;
use lowtide_sys::pagemap::Pagemap;
use lowtide_sys::shared::{Access, SharedMapping, Sharing, memfd};
use std::fmt;
use std::ops::{Deref, Range};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A file behind a pointer, under a budget. Dereferences to its bytes.
///
/// It stays where it is while it lives, and can be shared between threads. A child made by `fork`
/// does not have it: a touch there is `SIGSEGV`, because the child has no threads that would serve
/// it.
///
/// **Errors.** A page that cannot be read is `SIGBUS` for the thread that touches it, as in a map
/// of the kernel; [`error`](Map::error) says why. So is a page behind the end of a file that has
/// become shorter.
pub struct Map {
    base: NonNull<u8>,
    len: usize,
    /// `None` for a map without bytes.
    served: Option<Arc<Served>>,
    server: Option<Arc<Server>>,
    pager: Pager,
}

// SAFETY: a map is addresses of the process, not of a thread, and gives out shared references to
// bytes that no thread writes.
#[expect(unsafe_code, reason = "a pointer that is valid in all threads")]
unsafe impl Send for Map {}
// SAFETY: as above; all other fields are `Sync`.
#[expect(unsafe_code, reason = "a pointer that is valid in all threads")]
unsafe impl Sync for Map {}

/// What a map is doing. `Display` is one line for people.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MapReport {
    /// How its pages come in.
    pub way: Way,
    /// How, in words: what was chosen, and why.
    pub how: String,
    /// Bytes of the map.
    pub bytes: u64,
    /// Bytes that are in memory now.
    pub resident_bytes: u64,
    /// Page faults that were served.
    pub faults: u64,
}

impl fmt::Display for MapReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { way, how, bytes, resident_bytes, faults } = self;
        write!(f, "{way} ({how}): {resident_bytes} of {bytes} bytes in memory, {faults} faults")
    }
}

impl Map {
    pub(super) fn new(
        options: &MapOptions,
        pager: &Pager,
        file: BorrowedFd<'_>,
    ) -> Result<Self, MapError> {
        let pool = &pager.inner.pool;
        if pool.page_bytes() != page_size() {
            return Err(MapError::PageSize { pager: pool.page_bytes(), system: page_size() });
        }
        let group = options.group(pager)?;
        let size = lowtide_sys::file::size(file).map_err(MapError::kernel("fstat(2)"))?;
        let (offset, len) = (options.offset, options.len);
        let range = |len: u64, why| MapError::Range { offset, len, why };
        let bytes = match len {
            Some(len) => len as u64,
            None => size
                .checked_sub(offset)
                .ok_or_else(|| range(0, "it begins behind the end of the file"))?,
        };
        let end = offset
            .checked_add(bytes)
            .filter(|end| i64::try_from(*end).is_ok() && bytes <= isize::MAX as u64)
            .ok_or_else(|| range(bytes, "no address space is as large"))?;
        if bytes == 0 {
            let base = NonNull::<u8>::dangling();
            return Ok(Self { base, len: 0, served: None, server: None, pager: pager.clone() });
        }
        let server = pager.inner.threads.server().map_err(|(step, source)| MapError::Way {
            way: Way::Userfault,
            why: format!("{step} failed: {source}"),
        })?;
        let pages = offset >> pool.page_shift..end.div_ceil(pool.page_bytes() as u64);
        let mirror = Arc::new(Self::mirror(pool, &server, &pages)?);
        let space = space(pool, group, file, &mirror, pages.end)?;
        let open = Open::new(pager.clone(), Arc::clone(&space));
        let within = (offset - (pages.start << pool.page_shift)) as usize;
        let base = std::ptr::with_exposed_provenance_mut::<u8>(mirror.addresses().start + within);
        let base = NonNull::new(base).expect("the kernel maps nothing at address zero");
        let served = Arc::new(Served {
            space,
            mirror,
            ahead: ReadAhead::new(window_pages(pool, options.read_ahead)),
            error: Default::default(),
            faults: AtomicU64::new(0),
            open: Some(open),
        });
        // SAFETY: the window was just made, for this map alone, and is empty.
        #[expect(unsafe_code, reason = "the mirror decides what its memory contains")]
        let added = unsafe { server.add(&served) };
        added.map_err(MapError::kernel("registering with userfaultfd(2)"))?;
        let map = Self {
            base,
            len: bytes as usize,
            served: Some(served),
            server: Some(server),
            pager: pager.clone(),
        };
        if options.populate {
            map.populate(pages);
        }
        Ok(map)
    }

    fn mirror(pool: &Pool, server: &Server, pages: &Range<u64>) -> Result<Mirror, MapError> {
        let len = ((pages.end - pages.start) as usize) << pool.page_shift;
        let memory = memfd("lowtide", len as u64).map_err(MapError::kernel("memfd_create(2)"))?;
        let window = SharedMapping::map(&memory, 0, len, Access::Read, Sharing::Shared, false)
            .map_err(MapError::kernel("mmap(2)"))?;
        page_cache::dont_fork(window.addresses()).map_err(MapError::kernel("madvise(2)"))?;
        let pagemap = Pagemap::open().map_err(MapError::kernel("opening /proc/self/pagemap"))?;
        if !Pagemap::available() {
            return Err(MapError::Way {
                way: Way::Userfault,
                why: "the kernel cannot scan page tables (PAGEMAP_SCAN, Linux 6.7)".to_owned(),
            });
        }
        let faults = Arc::clone(server.faults());
        let rest = (pool.page_shift, pages.start, pool.young_faults);
        Ok(Mirror::new(memory, window, faults, pagemap, rest))
    }

    /// Bytes of the map.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether the map has no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first byte. Valid while the map lives.
    #[must_use]
    pub const fn as_ptr(&self) -> *const u8 {
        self.base.as_ptr()
    }

    /// Says how the map will be used.
    ///
    /// # Errors
    /// None at present; the type is that of `memmap2`.
    pub fn advise(&self, advice: Advice) -> std::io::Result<()> {
        self.advise_range(advice, 0, self.len)
    }

    /// Says how a part of the map, in bytes, will be used. [`Advice::WillNeed`] is about the part;
    /// the others are about the whole map.
    ///
    /// # Errors
    /// `InvalidInput` if the part is not in the map.
    pub fn advise_range(&self, advice: Advice, offset: usize, len: usize) -> std::io::Result<()> {
        let end = offset.checked_add(len).filter(|end| *end <= self.len).ok_or_else(|| {
            let text = format!("{len} bytes at {offset} are not in a map of {} bytes", self.len);
            std::io::Error::new(std::io::ErrorKind::InvalidInput, text)
        })?;
        let Some(served) = self.served.as_deref().filter(|_| len > 0) else { return Ok(()) };
        match advice {
            Advice::Normal | Advice::Sequential => served.ahead.resume(),
            Advice::Random => served.ahead.pause(),
            Advice::WillNeed => {
                let page = |at: usize| served.mirror.page_at(self.base.addr().get() + at);
                let pages = page(offset)..page(end - 1) + 1;
                self.pager.inner.threads.read_ahead(&served.space, pages);
            }
        }
        Ok(())
    }

    /// Why a page could not be brought in, if that ever happened: the first such error.
    #[must_use]
    pub fn error(&self) -> Option<Error> {
        let served = self.served.as_deref()?;
        crate::sync::lock(&served.error).clone()
    }

    /// What the map is doing. Cost: a look at the translation of each page.
    #[must_use]
    pub fn report(&self) -> MapReport {
        let shift = self.pager.inner.pool.page_shift;
        let resident = |served: &Served| served.space.table.resident() << shift;
        MapReport {
            way: Way::Userfault,
            how: match self.served.as_deref() {
                None => "no bytes".to_owned(),
                Some(served) if served.mirror.user_mode_only() => {
                    "faults of system calls are not served".to_owned()
                }
                Some(served) => served.space.backing.why().to_owned(),
            },
            bytes: self.len as u64,
            resident_bytes: self.served.as_deref().map_or(0, resident),
            faults: self.served.as_deref().map_or(0, |served| served.faults.load(Relaxed)),
        }
    }

    /// Reads pages from the first on, until they are there or the budget is full.
    fn populate(&self, pages: Range<u64>) {
        let Some(served) = self.served.as_deref() else { return };
        // A page that cannot be read says so when it is touched.
        drop(self.pager.inner.pool.read_ahead(&served.space, pages));
    }
}

/// A new space of a file, whose pages are in a mirror.
fn space(
    pool: &Pool,
    group: MemcgId,
    file: BorrowedFd<'_>,
    mirror: &Arc<Mirror>,
    pages: u64,
) -> Result<Arc<Space>, MapError> {
    let path = path_of(file);
    let given = file.try_clone_to_owned().map_err(MapError::kernel("dup(2)"))?;
    let (mode, page_bytes) = (pool.io_mode, pool.page_bytes());
    let wanted = Wanted { write: false, create: Create::No, mode, page_bytes };
    let descriptors = Descriptors::of_file(&path, given, &wanted)?;
    let _one_at_a_time = crate::sync::lock(&pool.opening);
    let mut state = pool.lock();
    if pool.is_poisoned() {
        return Err(OpenError::Poisoned { path }.into());
    }
    if !state.engine.alive(group) {
        return Err(TenantError::Gone.into());
    }
    if state.spaces_of(descriptors.key()).any(|space| space.is_writable() && !space.is_closed()) {
        return Err(MapError::Way {
            way: Way::Userfault,
            why: format!(
                "{} is open for writing in this pager, and a map would not see what is stored",
                path.display()
            ),
        });
    }
    let backing = Backing::new(&path, descriptors, Held::Nothing);
    let id = state.engine.add_space(group);
    let len = pages << pool.page_shift;
    let made = if id.0 < SPACES_MAX {
        Space::new(id, backing, len, 0, pool.page_shift, len)
    } else {
        Err(OpenError::TooMany { path, limit: SPACES_MAX })
    };
    match made {
        Ok(mut space) => {
            space.mapped = Some(Arc::<Mirror>::clone(mirror));
            let space = Arc::new(space);
            state.add_space(&space);
            Ok(space)
        }
        Err(error) => {
            state.engine.remove_space(id);
            Err(error.into())
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        if let (Some(server), Some(served)) = (&self.server, &self.served) {
            server.remove(&served.mirror.addresses());
        }
    }
}

impl Deref for Map {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the addresses are mapped while this lives, and each page has the bytes of the
        // file from the first load on; the caller of `MapOptions::map` promised that these do not
        // change.
        #[expect(unsafe_code, reason = "this is where a mapping becomes a slice")]
        unsafe {
            std::slice::from_raw_parts(self.base.as_ptr(), self.len)
        }
    }
}

impl AsRef<[u8]> for Map {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map")
            .field("ptr", &self.base)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl Pager {
    /// Maps a whole file for reading; [`MapOptions`] has the rest.
    ///
    /// # Errors
    /// As [`MapOptions::map`].
    ///
    /// # Safety
    /// As [`MapOptions::map`].
    #[expect(unsafe_code, reason = "other processes can change what references point to")]
    pub unsafe fn map(&self, file: impl std::os::fd::AsFd) -> Result<Map, MapError> {
        // SAFETY: the caller's promise.
        unsafe { MapOptions::new().map(self, file) }
    }
}

impl crate::Tenant {
    /// Maps a whole file for reading, and charges its pages to this tenant.
    ///
    /// # Errors
    /// As [`MapOptions::map`].
    ///
    /// # Safety
    /// As [`MapOptions::map`].
    #[expect(unsafe_code, reason = "other processes can change what references point to")]
    pub unsafe fn map(&self, file: impl std::os::fd::AsFd) -> Result<Map, MapError> {
        // SAFETY: the caller's promise.
        unsafe { MapOptions::new().tenant(self).map(&self.pager, file) }
    }
}
