//! The handle of a map: a pointer, and what belongs to it.

use super::adopt::Adopted;
use super::error::MapError;
use super::mirror::Mirror;
use super::options::{Advice, MapOptions, Way};
use super::server::{Served, Server};
use super::space::{Body, open_space};
use crate::error::Error;
use crate::pager::Pager;
use crate::pool::Pool;
use crate::readahead::{ReadAhead, window_pages};
use crate::view::Open;
use lowtide_sys::file::{OpenMode, reopen};
use lowtide_sys::memory::page_size;
use lowtide_sys::page_cache;
use lowtide_sys::pagemap::Pagemap;
use lowtide_sys::shared::{Access, SharedMapping, Sharing, memfd};
use std::fmt;
use std::ops::{Deref, Range};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

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
    memory: Memory,
    pager: Pager,
}

/// Where the bytes of a map are.
#[derive(Debug)]
enum Memory {
    /// It has none.
    Nothing,
    Mirror {
        served: Arc<Served>,
        server: Arc<Server>,
    },
    /// Dropped in this order: pages leave the cache when they are not mapped any more.
    PageCache {
        _window: SharedMapping,
        adopted: Adopted,
    },
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
    /// What that means here.
    pub how: &'static str,
    /// Bytes of the map.
    pub bytes: u64,
    /// Bytes that are in memory now.
    pub resident_bytes: u64,
    /// Page faults that were served, or pages that were noticed to come in.
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
        let mut map = Self {
            base: NonNull::dangling(),
            len: bytes as usize,
            memory: Memory::Nothing,
            pager: pager.clone(),
        };
        if bytes == 0 {
            return Ok(map);
        }
        let pages = offset >> pool.page_shift..end.div_ceil(pool.page_bytes() as u64);
        let (start, memory) = match options.way {
            Way::Userfault => Self::mirrored(options, pager, file, &pages)?,
            Way::PageCache => Self::cached(options, pager, file, &pages)?,
            // A map that a system call cannot read would surprise.
            Way::Auto => match pager.inner.threads.server() {
                Ok(server) if !server.faults().user_mode_only() => {
                    Self::mirrored(options, pager, file, &pages)?
                }
                _ => Self::cached(options, pager, file, &pages)?,
            },
        };
        let within = (offset - (pages.start << pool.page_shift)) as usize;
        let base = std::ptr::with_exposed_provenance_mut::<u8>(start + within);
        map.base = NonNull::new(base).expect("the kernel maps nothing at address zero");
        map.memory = memory;
        if options.populate {
            map.advise(Advice::WillNeed).map_err(MapError::kernel("madvise(2)"))?;
        }
        Ok(map)
    }

    /// The way `userfault`. Returns the address of the first page.
    fn mirrored(
        options: &MapOptions,
        pager: &Pager,
        file: BorrowedFd<'_>,
        pages: &Range<u64>,
    ) -> Result<(usize, Memory), MapError> {
        let pool = &pager.inner.pool;
        let group = options.group(pager)?;
        let server = pager.inner.threads.server().map_err(|(step, source)| MapError::Way {
            way: Way::Userfault,
            why: format!("{step} failed: {source}"),
        })?;
        let mirror = Arc::new(Self::mirror(pool, &server, pages)?);
        let body: Body = Arc::<Mirror>::clone(&mirror);
        let space = open_space(pool, group, file, (body, false), pages.end)?;
        let open = Some(Open::new(pager.clone(), Arc::clone(&space)));
        let start = mirror.addresses().start;
        let served = Arc::new(Served {
            space,
            mirror,
            ahead: ReadAhead::new(window_pages(pool, options.read_ahead)),
            error: Mutex::default(),
            faults: AtomicU64::new(0),
            open,
        });
        // SAFETY: the window was just made, for this map alone, and is empty.
        #[expect(unsafe_code, reason = "the mirror decides what its memory contains")]
        let added = unsafe { server.add(&served) };
        added.map_err(MapError::kernel("registering with userfaultfd(2)"))?;
        Ok((start, Memory::Mirror { served, server }))
    }

    /// The way `pagecache`. Returns the address of the first page.
    fn cached(
        options: &MapOptions,
        pager: &Pager,
        file: BorrowedFd<'_>,
        pages: &Range<u64>,
    ) -> Result<(usize, Memory), MapError> {
        let shift = pager.inner.pool.page_shift;
        let (offset, len) = (pages.start << shift, ((pages.end - pages.start) as usize) << shift);
        // A mapping that may become writable can be watched page by page.
        let own = reopen(file, OpenMode::READ_WRITE).ok();
        let mapped = own.as_ref().map_or(file, AsFd::as_fd);
        let window = SharedMapping::map(mapped, offset, len, Access::Read, Sharing::Shared, false)
            .map_err(MapError::kernel("mmap(2)"))?;
        let start = window.addresses().start;
        let options = options.clone().offset(offset);
        // SAFETY: the mapping is this map's alone, shared, and stays until the adoption has ended.
        #[expect(unsafe_code, reason = "entries of page tables are taken out there")]
        let adopted = unsafe { options.adopt(pager, file, window.as_ptr(), len) }?;
        Ok((start, Memory::PageCache { adopted, _window: window }))
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
        if len == 0 {
            return Ok(());
        }
        let start = self.base.addr().get();
        match &self.memory {
            Memory::Nothing => {}
            Memory::Mirror { served, .. } => match advice {
                Advice::Normal | Advice::Sequential => served.ahead.resume(),
                Advice::Random => served.ahead.pause(),
                Advice::WillNeed => {
                    let page = |at: usize| served.mirror.page_at(start + at);
                    let pages = page(offset)..page(end - 1) + 1;
                    self.pager.inner.threads.read_ahead(&served.space, pages);
                }
            },
            Memory::PageCache { .. } => {
                let page = page_size();
                let addresses =
                    (start + offset) / page * page..(start + end).next_multiple_of(page);
                match advice {
                    Advice::Normal => page_cache::advise(addresses, page_cache::Advice::Normal)?,
                    Advice::Random => page_cache::advise(addresses, page_cache::Advice::Random)?,
                    Advice::Sequential => {
                        page_cache::advise(addresses, page_cache::Advice::Sequential)?;
                    }
                    Advice::WillNeed => page_cache::will_need(addresses)?,
                }
            }
        }
        Ok(())
    }

    /// Why a page could not be brought in, if that ever happened: the first such error.
    #[must_use]
    pub fn error(&self) -> Option<Error> {
        match &self.memory {
            Memory::Mirror { served, .. } => crate::sync::lock(&served.error).clone(),
            Memory::Nothing | Memory::PageCache { .. } => None,
        }
    }

    /// What the map is doing. Cost: a look at the translation of each page.
    #[must_use]
    pub fn report(&self) -> MapReport {
        let shift = self.pager.inner.pool.page_shift;
        let (way, how, resident_bytes, faults) = match &self.memory {
            Memory::Nothing => (Way::Auto, "no bytes", 0, 0),
            Memory::Mirror { served, .. } => {
                let how = if served.mirror.user_mode_only() {
                    "a system call on a page that is not in memory fails with EFAULT"
                } else {
                    "system calls may use the memory, too"
                };
                let resident = served.space.table.resident() << shift;
                (Way::Userfault, how, resident, served.faults.load(Relaxed))
            }
            Memory::PageCache { adopted, .. } => {
                let how = if adopted.is_exact() {
                    "touches of single pages are seen"
                } else {
                    "a page looks touched when a neighbour was"
                };
                (Way::PageCache, how, adopted.resident_bytes(), adopted.admitted())
            }
        };
        MapReport { way, how, bytes: self.len as u64, resident_bytes, faults }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        match &self.memory {
            Memory::Nothing => {}
            Memory::Mirror { server, served } => server.remove(&served.mirror.addresses()),
            Memory::PageCache { adopted, .. } => adopted.forget(adopted.addresses()),
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
    pub unsafe fn map(&self, file: impl AsFd) -> Result<Map, MapError> {
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
    pub unsafe fn map(&self, file: impl AsFd) -> Result<Map, MapError> {
        // SAFETY: the caller's promise.
        unsafe { MapOptions::new().tenant(self).map(&self.pager, file) }
    }
}
