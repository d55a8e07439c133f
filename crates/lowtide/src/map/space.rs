//! The space of a file whose pages a program reaches through a pointer, and what it needs.

use super::error::MapError;
use super::mode::MapMode;
use super::pages::MappedPages;
use crate::config::IoMode;
use crate::error::OpenError;
use crate::pool::Pool;
use crate::space::backing::{Backing, Create, Descriptors, Held, Wanted};
use crate::space::{PAGES_MAX, SPACES_MAX, Space};
use crate::tenant::TenantError;
use crate::zcache::{OfSpace, Zcache};
use lowtide_core::MemcgId;
use lowtide_sys::file::path_of;
use lowtide_sys::memory::page_size;
use lowtide_sys::pagemap::{Pagemap, Query, Region};
use lowtide_sys::room::Own;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Where the bytes of its pages are.
pub(super) type Body = Arc<dyn MappedPages>;

/// How far a file that the kernel caches may grow while it is mapped: by this, and by as much as it
/// has. This takes 64 MiB of addresses (4 bytes a page), which count where a process has a limit of
/// them (`RLIMIT_AS`).
const GROWTH: u64 = 64 << 30;

/// A map has pages of the processor's size, so its pager must count in them.
pub(super) fn check_page_size(pool: &Pool) -> Result<(), MapError> {
    let (pager, system) = (pool.page_bytes(), page_size());
    if pager == system { Ok(()) } else { Err(MapError::PageSize { pager, system }) }
}

/// The page tables of this process, which both ways scan for touched pages.
pub(crate) type PageTables = Arc<Own<Pagemap>>;

/// Those of a pager, opened for its first map.
pub(super) fn page_tables(pool: &Pool, way: MapMode) -> Result<PageTables, MapError> {
    if let Some(there) = pool.page_tables.get() {
        return Ok(Arc::clone(there));
    }
    let pagemap = Own::make(Pagemap::open);
    let pagemap = pagemap.map_err(MapError::kernel("opening /proc/self/pagemap"))?;
    if !pagemap.with(|map| Ok(map.can_scan())).unwrap_or(false) {
        let why = "the kernel cannot scan page tables (PAGEMAP_SCAN, Linux 6.7)".to_owned();
        return Err(MapError::Mode { mode: way, why });
    }
    Ok(Arc::clone(pool.page_tables.get_or_init(|| Arc::new(pagemap))))
}

/// [`Pagemap::scan`].
pub(super) fn scan(
    tables: &PageTables,
    addresses: Range<usize>,
    query: &Query,
    found: &mut Vec<Region>,
) -> io::Result<()> {
    tables.with(|map| map.scan(addresses, query, found))
}

/// The descriptors of a file behind pointers: for reads, in the room; for writes, if there are any,
/// in the table of the program, whose threads write back.
fn open(
    path: &Path,
    file: &Own<File>,
    writer: Option<BorrowedFd<'_>>,
    wanted: impl Fn(bool) -> Wanted + Sync,
) -> Result<(Own<Descriptors>, Option<Descriptors>), MapError> {
    let io = |source| OpenError::Io { path: path.to_owned(), source };
    let reads = Own::try_make(|| {
        let given = file.fact(File::try_clone).map_err(io)?;
        Ok::<_, OpenError>(Descriptors::of_file(path, given.into(), &wanted(false))?.for_reads())
    });
    let writes = writer.map(|writer| {
        let given = writer.try_clone_to_owned().map_err(io)?;
        Descriptors::of_file(path, given, &wanted(true))
    });
    Ok((reads.map_err(MapError::kernel("starting a thread"))??, writes.transpose()?))
}

/// Makes a space of a file that has `pages` pages. In `pagecache` mode the kernel brings its
/// pages in, and coherence with writers is the kernel's, too. `stores`: the map writes to the file.
/// If lowtide writes what is stored, the file is locked (`flock(2)`), as one that a view writes.
pub(super) fn open_space(
    pool: &Pool,
    group: MemcgId,
    (file, writer): (&Own<File>, Option<BorrowedFd<'_>>),
    (body, way, stores): (Body, MapMode, bool),
    pages: u64,
) -> Result<Arc<Space>, MapError> {
    let cached = way == MapMode::PageCache;
    let name = |file: &File| {
        let link = path_of(file);
        Ok(std::fs::read_link(&link).unwrap_or(link))
    };
    let path = file.with(name).map_err(MapError::kernel("readlink(2)"))?;
    let mode = if cached { IoMode::Buffered } else { pool.io_mode };
    // The kernel writes what is stored to mappings of its own.
    let write = stores && !cached;
    let page_bytes = pool.page_bytes();
    let wanted = |write| Wanted { write, create: Create::No, mode, page_bytes };
    let (descriptors, writes) = open(&path, file, writer.filter(|_| write), wanted)?;
    let key = descriptors.fact(Descriptors::key);
    let _one_at_a_time = lowtide_pin::sync::lock(&pool.opening);
    let Ok(state) = pool.lock_sound() else { return Err(OpenError::Poisoned { path }.into()) };
    let written = |space: &Arc<Space>| space.is_writable() && !space.is_closed();
    if (!cached || stores) && state.spaces_of(key).any(written) {
        return Err(MapError::Mode {
            mode: way,
            why: format!(
                "{} is open for writing in this pager, and {} would not see what is stored",
                path.display(),
                if stores { "a view and a writable map" } else { "a map" }
            ),
        });
    }
    drop(state);
    // Two that write whole pages would lose each other's stores.
    let lock = |writes: &Descriptors| writes.try_lock(&path, true);
    let held = writes.as_ref().map_or(Held::Nothing, lock);
    if held == Held::Elsewhere {
        return Err(OpenError::Locked { path, waited: Duration::ZERO }.into());
    }
    let backing = Backing::in_room(&path, descriptors, writes, held);
    // Before the lock, and dropped after it. The kernel's own pages are not ours to compress.
    let zcache = if cached { None } else { Zcache::of_map(pool, group) };
    let mut state = pool.lock();
    if !state.engine.alive(group) {
        backing.unlock();
        return Err(TenantError::Gone.into());
    }
    let id = state.engine.add_space(group);
    let len = pages << pool.page_shift;
    let grown = len.saturating_mul(2).saturating_add(GROWTH);
    let room = if cached { grown.min(PAGES_MAX << pool.page_shift) } else { len };
    let made = if id.0 < SPACES_MAX {
        Space::new(id, backing, len, 0, pool.page_shift, room)
    } else {
        Err(OpenError::TooMany { path, limit: SPACES_MAX })
    };
    match made {
        Ok(mut space) => {
            space.mapped = Some(body);
            space.zcache = zcache.map(|cache| OfSpace::new(cache, id));
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
