//! The memory of a map, whatever may be done with it: what [`Map`](super::Map) and
//! [`MapMut`](super::MapMut) have in common.
//!
//! ```text
//!                 map        map_mut    map_copy   map_copy_read_only
//!   stores        never      shared     private    private, later
//!   userfault     mirror     mirror     refused    refused
//!   pagecache     zap, drop  zap, drop  page out   zap, drop; page out after `make_mut`
//! ```
//!
//! **Children.** After `fork` a child has the mappings in `pagecache` mode, and descriptors that
//! lead to its parent: one that registers memory of the *parent* for page faults, and the memory of
//! mirrors. So what a child does with a map that it inherited must not reach them. A map that is
//! dropped in a child unmaps what it has there, and leaves everything else to the parent.

use super::adopt::Adopted;
use super::error::MapError;
use super::mirror::{Mirror, Stored, Window};
use super::mode::MapMode;
use super::options::{Access, MapOptions};
use super::report::MapReport;
use super::serve::{serve, server_of};
use super::server::{Served, Server};
use super::space::{check_page_size, page_tables};
use crate::error::Error;
use crate::pager::Pager;
use crate::pool::Pool;
use lowtide_sys::memory::page_size;
use lowtide_sys::page_cache;
use lowtide_sys::room::{Own, bring};
use lowtide_sys::shared::{Rights, SharedMapping, Sharing, memfd};
use lowtide_sys::tell;
use lowtide_sys::userfault::UserFault;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Where the stores of a map go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stores {
    /// There are none.
    Never,
    /// To the file.
    Shared,
    /// To copies of pages.
    Private,
    /// To copies of pages, from `make_mut` on.
    PrivateLater,
}

impl Stores {
    /// Whether pages may become copies, which are nowhere else.
    pub(super) const fn are_private(self) -> bool {
        matches!(self, Self::Private | Self::PrivateLater)
    }
}

/// Addresses, and what belongs to them.
#[derive(Debug)]
pub(super) struct Area {
    pub(super) base: NonNull<u8>,
    pub(super) len: usize,
    pub(super) memory: Memory,
    pub(super) pager: Pager,
    /// How it was mapped.
    pub(super) options: MapOptions,
    /// The process that made it.
    pub(super) process: u32,
}

/// Where the bytes of a map are.
#[derive(Debug)]
pub(super) enum Memory {
    /// It has none.
    Nothing,
    Mirror {
        served: Arc<Served>,
        server: Arc<Server>,
    },
    /// Dropped in this order: pages leave the cache when they are not mapped any more.
    PageCache {
        window: SharedMapping,
        adopted: Adopted,
        stores: Stores,
        /// Whether the descriptor permits stores to the file.
        file_is_writable: bool,
    },
}

// SAFETY: a map is addresses of the process, not of a thread. It gives out references to its bytes
// by the rules of references: shared ones from `&self`, exclusive ones from `&mut self`.
#[expect(unsafe_code, reason = "a pointer that is valid in all threads")]
unsafe impl Send for Area {}
// SAFETY: as above; all other fields are `Sync`.
#[expect(unsafe_code, reason = "a pointer that is valid in all threads")]
unsafe impl Sync for Area {}

impl Area {
    pub(super) fn new(
        options: &MapOptions,
        pager: &Pager,
        file: BorrowedFd<'_>,
        stores: Stores,
    ) -> Result<Self, MapError> {
        let pool = &pager.inner.pool;
        check_page_size(pool)?;
        let size = lowtide_sys::file::size(file).map_err(MapError::kernel("fstat(2)"))?;
        let (offset, len) = (options.offset, options.len);
        let range = |len: u64, why| MapError::Range { offset, len, why };
        let bytes = match len {
            Some(len) => len as u64,
            None => size
                .checked_sub(offset)
                .ok_or_else(|| range(0, "it begins past the end of the file"))?,
        };
        let end = offset
            .checked_add(bytes)
            .filter(|end| i64::try_from(*end).is_ok() && bytes <= isize::MAX as u64)
            .ok_or_else(|| range(bytes, "no address space is as large"))?;
        let mut area = Self {
            base: NonNull::dangling(),
            len: bytes as usize,
            memory: Memory::Nothing,
            pager: pager.clone(),
            options: options.clone(),
            process: std::process::id(),
        };
        if bytes == 0 {
            return Ok(area);
        }
        let pages = offset >> pool.page_shift..end.div_ceil(pool.page_bytes() as u64);
        let wanted = Wanted { options, pager, file, pages: &pages, stores };
        let (start, memory) = match options.mode {
            _ if stores != Stores::Never => {
                // What is appended to the file later is not the map's.
                let options = &options.clone().len(bytes as usize);
                Wanted { options, ..wanted }.for_stores()?
            }
            MapMode::Userfault => wanted.mirrored()?,
            MapMode::PageCache => wanted.cached()?,
            // A map that a system call cannot read would surprise.
            MapMode::Auto => match pager.inner.threads.service(Server::start) {
                Ok(server)
                    if !server.faults().fact(UserFault::user_mode_only)
                        && page_tables(pool, MapMode::Auto).is_ok() =>
                {
                    wanted.mirrored()?
                }
                _ => wanted.cached()?,
            },
        };
        let within = (offset - (pages.start << pool.page_shift)) as usize;
        area.place(start + within);
        area.memory = memory;
        if options.populate {
            area.advise(Access::WillNeed, 0..area.len).map_err(MapError::kernel("madvise(2)"))?;
        }
        Ok(area)
    }

    pub(super) fn place(&mut self, address: usize) {
        let base = std::ptr::with_exposed_provenance_mut::<u8>(address);
        self.base = NonNull::new(base).expect("the kernel maps nothing at address zero");
    }

    /// Memory for pages. `stores`: the bytes that may be stored to, and whether it is a heap.
    pub(super) fn mirror(
        pool: &Pool,
        server: &Server,
        pages: &Range<u64>,
        stores: Option<(Range<u64>, bool)>,
    ) -> Result<Mirror, MapError> {
        let len = ((pages.end - pages.start) as usize) << pool.page_shift;
        let memory = Own::make(|| memfd("lowtide", len as u64));
        let memory = memory.map_err(MapError::kernel("memfd_create(2)"))?;
        let access = if stores.is_some() { Rights::ReadWrite } else { Rights::Read };
        let window =
            |memory: &File| SharedMapping::map(memory, 0, len, access, Sharing::Shared, false);
        let window = memory.with(window).map_err(MapError::kernel("mmap(2)"))?;
        page_cache::dont_fork(window.addresses())
            .map_err(MapError::kernel("madvise(MADV_DONTFORK)"))?;
        // As the kernel leaves out its own mapping of a file. A dump that has it is only larger.
        let _ = page_cache::advise(window.addresses(), page_cache::Advice::DontDump);
        let stored = stores.map(|(bounds, heap)| Stored { bounds, heap });
        let pagemap = page_tables(pool, MapMode::Userfault)?;
        let faults = Arc::clone(server.faults());
        let rest = (pool.page_shift, pages.start, pool.young_faults);
        Ok(Mirror::new(memory, Window::Own(window), faults, pagemap, rest, stored))
    }

    /// Says how a part of the map, in bytes, will be used.
    pub(super) fn advise(&self, access: Access, part: Range<usize>) -> io::Result<()> {
        let part = self.part(part)?;
        if part.is_empty() || self.is_foreign() {
            return Ok(());
        }
        match (&self.memory, access) {
            (Memory::Nothing, _) | (Memory::Mirror { .. }, Access::DontFork) => Ok(()),
            (Memory::Mirror { served, .. }, Access::Normal | Access::Sequential) => {
                served.ahead.resume();
                Ok(())
            }
            (Memory::Mirror { served, .. }, Access::Random) => {
                served.ahead.pause();
                Ok(())
            }
            // Nothing is read ahead from swap.
            (Memory::Mirror { served, .. }, Access::WillNeed) if served.mirror.is_heap() => Ok(()),
            (Memory::Mirror { served, .. }, Access::WillNeed) => {
                let page = |at: usize| served.mirror.page_at(self.base.addr().get() + at);
                let pages = page(part.start)..page(part.end - 1) + 1;
                self.pager.inner.threads.read_ahead(&served.space, pages);
                Ok(())
            }
            (memory, _) => {
                let addresses = self.addresses_of(&part);
                let order = matches!(access, Access::Normal | Access::Random | Access::Sequential);
                if order
                    && let Memory::PageCache { adopted, .. } = memory
                    && adopted.advise(addresses.clone(), access == Access::Random)
                {
                    return Ok(());
                }
                if access == Access::WillNeed
                    && let Memory::PageCache { adopted, .. } = memory
                    && adopted.will_need(addresses.clone())
                {
                    return Ok(());
                }
                match access {
                    Access::Normal => page_cache::advise(addresses, page_cache::Advice::Normal),
                    Access::Random => page_cache::advise(addresses, page_cache::Advice::Random),
                    Access::Sequential => {
                        page_cache::advise(addresses, page_cache::Advice::Sequential)
                    }
                    Access::WillNeed => page_cache::will_need(addresses),
                    Access::PopulateRead => page_cache::populate_read(addresses),
                    Access::DontDump => page_cache::advise(addresses, page_cache::Advice::DontDump),
                    Access::DontFork => page_cache::dont_fork(addresses),
                }
            }
        }
    }

    /// A part of the map, in bytes, if it is one.
    pub(super) fn part(&self, part: Range<usize>) -> io::Result<Range<usize>> {
        if part.start <= part.end && part.end <= self.len {
            return Ok(part);
        }
        let text = format!("bytes {part:?} are not in a map of {} bytes", self.len);
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    }

    /// The whole pages around a part.
    fn addresses_of(&self, part: &Range<usize>) -> Range<usize> {
        let (start, page) = (self.base.addr().get(), page_size());
        (start + part.start) / page * page..(start + part.end).next_multiple_of(page)
    }

    /// Why a page could not be brought in.
    pub(super) fn error(&self) -> Option<Error> {
        match &self.memory {
            Memory::Nothing => None,
            Memory::Mirror { served, .. } => lowtide_pin::sync::lock(&served.error).clone(),
            Memory::PageCache { adopted, .. } => adopted.missing_end(),
        }
    }

    pub(super) fn report(&self) -> MapReport {
        let shift = self.pager.inner.pool.page_shift;
        let (mut elsewhere_bytes, mut swapped_bytes) = (0, 0);
        let (mode, how, resident_bytes, faults) = match &self.memory {
            Memory::Nothing => (MapMode::Auto, "no bytes", 0, 0),
            Memory::Mirror { served, .. } => {
                let mirror = &served.mirror;
                let how = match (mirror.user_mode_only(), mirror.is_stored_to()) {
                    (true, false) => {
                        "a system call on a page that is not in memory fails with \
                        EFAULT"
                    }
                    (true, true) => {
                        "a system call fails with EFAULT on a page that is not in \
                        memory, or that it stores to first"
                    }
                    (false, _) => "system calls may use the memory, too",
                };
                let resident = served.space.table.resident() << shift;
                elsewhere_bytes = served.space.elsewhere_bytes();
                if mirror.is_heap() {
                    swapped_bytes = served.space.anon().swapped_pages() << shift;
                }
                (MapMode::Userfault, how, resident, served.faults.load(Relaxed))
            }
            Memory::PageCache { adopted, stores, .. } => {
                let how = match stores {
                    Stores::Private => "pages that are stored to are the program's own memory",
                    _ if !adopted.sees_touches() => {
                        "what is cached is seen, and not what is touched"
                    }
                    _ if adopted.is_exact() => "touches of single pages are seen",
                    _ => "a page looks touched when a neighbour was",
                };
                elsewhere_bytes = adopted.elsewhere_bytes();
                (MapMode::PageCache, how, adopted.resident_bytes(), adopted.admitted())
            }
        };
        let bytes = self.len as u64;
        MapReport { mode, how, bytes, resident_bytes, elsewhere_bytes, swapped_bytes, faults }
    }

    /// A child of `fork` has neither the memory of mirrors nor threads that write.
    pub(super) fn check_own(&self) -> io::Result<()> {
        if !self.is_foreign() {
            return Ok(());
        }
        let text = "a child does not have the maps of its parent";
        Err(io::Error::new(io::ErrorKind::Unsupported, text))
    }

    /// Whether this is a child of the process that made the map.
    pub(super) fn is_foreign(&self) -> bool {
        std::process::id() != self.process
    }
}

/// A map that is to be made.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    options: &'a MapOptions,
    pager: &'a Pager,
    file: BorrowedFd<'a>,
    pages: &'a Range<u64>,
    stores: Stores,
}

impl Wanted<'_> {
    /// A mapping that may be stored to. Returns the address of the first page.
    fn for_stores(self) -> Result<(usize, Memory), MapError> {
        match (self.options.mode, self.stores) {
            (MapMode::Userfault, Stores::Shared) => self.mirrored(),
            (MapMode::Userfault, _) => Err(MapError::Mode {
                mode: MapMode::Userfault,
                why: "it writes what is stored to the file; use `pagecache` for maps whose stores \
                      are their own"
                    .to_owned(),
            }),
            // A program that is killed loses nothing that it stored there.
            _ => self.cached(),
        }
    }

    /// `userfault` mode. Returns the address of the first page.
    fn mirrored(self) -> Result<(usize, Memory), MapError> {
        let Self { options, pager, file, pages, stores } = self;
        let writes = stores == Stores::Shared;
        if writes && !is_read_write(file)? {
            let step = "storing to a file that was not opened for reading and writing";
            return Err(MapError::kernel(step)(io::ErrorKind::PermissionDenied.into()));
        }
        let pool = &pager.inner.pool;
        let server = server_of(pager)?;
        let bounds = writes.then(|| {
            let end = pages.end << pool.page_shift;
            let len = options.len.map_or(end, |len| len as u64);
            options.offset..options.offset.saturating_add(len).min(end)
        });
        let bounds = bounds.map(|bounds| (bounds, false));
        let mirror = Area::mirror(pool, &server, pages, bounds)?;
        let start = mirror.addresses().start;
        let writer = writes.then_some(file);
        let file = bring(file).map_err(MapError::kernel("dup(2)"))?;
        let served = serve(options, pager, (&file, writer), (&server, mirror), pages)?;
        Ok((start, Memory::Mirror { served, server }))
    }

    /// `pagecache` mode. Returns the address of the first page.
    fn cached(self) -> Result<(usize, Memory), MapError> {
        let Self { options, pager, file, pages, stores } = self;
        let shift = pager.inner.pool.page_shift;
        let (offset, len) = (pages.start << shift, ((pages.end - pages.start) as usize) << shift);
        let file_is_writable = is_read_write(file)?;
        let (access, sharing) = match stores {
            Stores::Never => (Rights::Read, Sharing::Shared),
            Stores::Shared => (Rights::ReadWrite, Sharing::Shared),
            Stores::Private => (Rights::ReadWrite, Sharing::Private),
            Stores::PrivateLater => (Rights::Read, Sharing::Private),
        };
        let window = SharedMapping::map(file, offset, len, access, sharing, false)
            .map_err(MapError::kernel("mmap(2)"))?;
        let start = window.addresses().start;
        let options = options.clone().offset(offset);
        let brought = Arc::new(bring(file).map_err(MapError::kernel("dup(2)"))?);
        let adopted = options.take_over(pager, &brought, window.addresses(), stores)?;
        Ok((start, Memory::PageCache { window, adopted, stores, file_is_writable }))
    }
}

/// Whether a descriptor was opened for reading and writing.
fn is_read_write(file: BorrowedFd<'_>) -> Result<bool, MapError> {
    let flags = rustix::fs::fcntl_getfl(file)
        .map_err(|errno| MapError::kernel("fcntl(2)")(errno.into()))?;
    Ok((flags & rustix::fs::OFlags::RWMODE) == rustix::fs::OFlags::RDWR)
}

impl Drop for Area {
    fn drop(&mut self) {
        let memory = std::mem::replace(&mut self.memory, Memory::Nothing);
        if self.is_foreign() {
            // The last handle of a pager waits for threads, which a child does not have.
            std::mem::forget(self.pager.clone());
            match memory {
                Memory::PageCache { window, adopted, .. } => {
                    std::mem::forget(adopted);
                    drop(window);
                }
                other => std::mem::forget(other),
            }
            return;
        }
        match memory {
            Memory::Nothing => {}
            Memory::Mirror { server, served } => {
                server.remove(&served);
                served.await_threads();
                let file = served.mirror.is_stored_to() && !served.mirror.is_heap();
                if file && Arc::strong_count(&served) > 1 {
                    // What was stored is in the file when this returns.
                    served.flush(0..u64::MAX).unwrap_or_else(|error| {
                        tell!(warn, %error, "a map is dropped before all of it was written");
                    });
                }
            }
            Memory::PageCache { window, adopted, .. } => {
                adopted.forget(adopted.addresses());
                drop(window);
                adopted.end();
            }
        }
    }
}
