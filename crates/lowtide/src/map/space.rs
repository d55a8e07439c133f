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
use lowtide_core::MemcgId;
use lowtide_sys::file::path_of;
use lowtide_sys::memory::page_size;
use lowtide_sys::pagemap::Pagemap;
use std::os::fd::BorrowedFd;
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
pub(super) fn page_tables(way: MapMode) -> Result<Pagemap, MapError> {
    let pagemap = Pagemap::open().map_err(MapError::kernel("opening /proc/self/pagemap"))?;
    if !pagemap.can_scan() {
        let why = "the kernel cannot scan page tables (PAGEMAP_SCAN, Linux 6.7)".to_owned();
        return Err(MapError::Mode { mode: way, why });
    }
    Ok(pagemap)
}

/// Makes a space of a file that has `pages` pages. In `pagecache` mode the kernel brings its
/// pages in, and coherence with writers is the kernel's, too. `stores`: the map writes to the file.
/// If lowtide writes what is stored, the file is locked (`flock(2)`), as one that a view writes.
pub(super) fn open_space(
    pool: &Pool,
    group: MemcgId,
    file: BorrowedFd<'_>,
    (body, way, stores): (Body, MapMode, bool),
    pages: u64,
) -> Result<Arc<Space>, MapError> {
    let cached = way == MapMode::PageCache;
    let link = path_of(file);
    let path = std::fs::read_link(&link).unwrap_or(link);
    let given = file.try_clone_to_owned().map_err(MapError::kernel("dup(2)"))?;
    let mode = if cached { IoMode::Buffered } else { pool.io_mode };
    // The kernel writes what is stored to mappings of its own.
    let write = stores && !cached;
    let wanted = Wanted { write, create: Create::No, mode, page_bytes: pool.page_bytes() };
    let descriptors = Descriptors::of_file(&path, given, &wanted)?;
    let _one_at_a_time = lowtide_pin::sync::lock(&pool.opening);
    let state = pool.lock();
    if pool.is_poisoned() {
        return Err(OpenError::Poisoned { path }.into());
    }
    let written = |space: &Arc<Space>| space.is_writable() && !space.is_closed();
    if (!cached || stores) && state.spaces_of(descriptors.key()).any(written) {
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
    let held = if write { descriptors.try_lock(&path, true) } else { Held::Nothing };
    if held == Held::Elsewhere {
        return Err(OpenError::Locked { path, waited: Duration::ZERO }.into());
    }
    let backing = Backing::new(&path, descriptors, held);
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
