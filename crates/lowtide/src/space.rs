//! One open file and its translations: what all views of it share.

use crate::backing::Backing;
use crate::error::{Error, OpenError};
use crate::io::Backend;
use crate::translation::Table;
use crate::writeback::{Device, Ledger};
use lowtide_core::{FolioId, SpaceId};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};

/// Translations that a file may grow to without being opened again: 2^28 pages of address space (1 GiB of entries),
/// which costs nothing until it is used.
const GROWTH_RESERVE_PAGES: u64 = 1 << 28;

/// One open file under a pager.
pub(crate) struct Space {
    pub(crate) id: SpaceId,
    pub(crate) table: Table,
    pub(crate) backing: Backing,
    /// log2 of base pages in the folios that a miss brings in.
    pub(crate) order: u8,
    page_shift: u32,
    len: AtomicU64,
    /// From this page on the file is a hole that this pager made when it extended the file, and nothing has been stored there since.
    hole_from: AtomicU64,
    /// What write-back knows about the file.
    pub(crate) ledger: Mutex<Ledger>,
    /// Who writes it; set when it becomes writable.
    pub(crate) device: OnceLock<Arc<Device>>,
    /// Runs of its pages that are on their way.
    pub(crate) in_flight: AtomicU32,
    /// Its size was changed and may not be durable.
    pub(crate) size_is_new: AtomicBool,
    growing: Mutex<()>,
    /// Opens that are not closed. Raised under [`Pool::opening`](crate::pool::Pool).
    handles: AtomicU32,
    /// The last view is gone: no more pages come in. Changes under the pool's lock.
    closed: AtomicBool,
    /// The file's name may not be durable.
    name_is_new: AtomicBool,
}

impl Space {
    pub(crate) fn new(
        id: SpaceId,
        backing: Backing,
        len: u64,
        order: u8,
        page_shift: u32,
    ) -> Result<Self, OpenError> {
        let pages = len.div_ceil(1 << page_shift);
        let reserve = pages.saturating_add(GROWTH_RESERVE_PAGES).next_multiple_of(1 << order);
        let table = Table::new(pages.next_multiple_of(1 << order), reserve)
            .map_err(|source| OpenError::Translation { path: backing.path().to_path_buf(), source })?;
        Ok(Self {
            id,
            table,
            backing,
            order,
            page_shift,
            len: AtomicU64::new(len),
            hole_from: AtomicU64::new(len.div_ceil(1 << page_shift)),
            ledger: Mutex::default(),
            device: OnceLock::new(),
            in_flight: AtomicU32::new(0),
            size_is_new: AtomicBool::new(false),
            growing: Mutex::new(()),
            handles: AtomicU32::new(1),
            closed: AtomicBool::new(false),
            name_is_new: AtomicBool::new(false),
        })
    }

    pub(crate) fn path_ref(&self) -> &Arc<PathBuf> {
        self.backing.path()
    }

    pub(crate) fn path(&self) -> Arc<PathBuf> {
        Arc::clone(self.backing.path())
    }

    /// Bytes of the file when it was last looked at.
    pub(crate) fn len(&self) -> u64 {
        self.len.load(Relaxed)
    }

    /// Pages of the file, a partial last one included.
    pub(crate) fn pages(&self) -> u64 {
        self.len().div_ceil(1 << self.page_shift)
    }

    /// Counts another open.
    pub(crate) fn add_handle(&self) {
        self.handles.fetch_add(1, SeqCst);
    }

    /// Counts one open less; returns whether it was the last.
    pub(crate) fn drop_handle(&self) -> bool {
        self.handles.fetch_sub(1, SeqCst) == 1
    }

    /// Whether nobody has the file open. Final only while [`Pool::opening`](crate::pool::Pool) is held.
    pub(crate) fn is_orphan(&self) -> bool {
        self.handles.load(SeqCst) == 0
    }

    /// Notes that the file was made by this pager.
    pub(crate) fn name_is_new(&self) {
        self.name_is_new.store(true, SeqCst);
    }

    /// Whether the file's name may not be durable.
    pub(crate) fn is_name_new(&self) -> bool {
        self.name_is_new.load(SeqCst)
    }

    /// Makes the file's name durable, if this pager made it. Blocks for as long as the device does.
    pub(crate) fn sync_name(&self) -> io::Result<()> {
        if !self.is_name_new() {
            return Ok(());
        }
        let parent = self.path_ref().parent().filter(|dir| !dir.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
        self.name_is_new.store(false, SeqCst);
        Ok(())
    }

    /// Says that the last view is gone.
    pub(crate) fn close(&self) {
        self.closed.store(true, Relaxed);
    }

    /// Takes back that the last view is gone: the file could not be let go. Under the pool's lock.
    pub(crate) fn stays(&self) {
        self.closed.store(false, Relaxed);
    }

    /// Whether the last view is gone. To be asked under the pool's lock by whoever brings a page in.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.backing.is_writable()
    }

    pub(crate) fn out_of_range(&self, page: u64) -> Error {
        Error::OutOfRange { path: self.path(), page, len: self.len() }
    }

    pub(crate) fn read_error(&self, page: u64, source: io::Error) -> Error {
        Error::Read { path: self.path(), page, source: Arc::new(source) }
    }

    /// Looks at the file's size again, and makes room for the translations of what was added.
    pub(crate) fn refresh_len(&self) -> Result<u64, Error> {
        let _one_at_a_time = crate::sync::lock(&self.growing);
        let len = self.backing.size().map_err(|e| self.read_error(0, e))?;
        self.found_len(len);
        // Somebody made it shorter. What was stored there and is not written yet makes it as long again.
        let dirty = if len < self.len() { self.table.last_dirty(len >> self.page_shift) } else { None };
        let len = dirty.map_or(len, |page| len.max(self.len().min((page + 1) << self.page_shift)));
        self.set_len_locked(len)?;
        Ok(len)
    }

    /// The file has so many bytes. What somebody else has added need not be a hole.
    fn found_len(&self, len: u64) {
        if len > self.len() {
            self.hole_from.fetch_max(len.div_ceil(1 << self.page_shift), Relaxed);
        }
    }

    /// Whether the file has only zeroes in a page, because nobody ever stored to it or to a page behind it since the file was extended by this pager. To be asked by whoever
    /// has the page's translation busy.
    pub(crate) fn is_hole(&self, page: u64) -> bool {
        page >= self.hole_from.load(Relaxed)
    }

    /// Pages up to this one are about to be stored to. To be said before their translations tell.
    pub(crate) fn ends_hole(&self, page: u64) {
        // Almost always it is known already: a line that nobody writes.
        if self.is_hole(page) {
            self.hole_from.fetch_max(page + 1, Relaxed);
        }
    }

    fn set_len_locked(&self, len: u64) -> Result<(), Error> {
        let pages = len.div_ceil(1 << self.page_shift).next_multiple_of(1 << self.order);
        self.table.grow(pages).map_err(|source| self.grow_error(len, source))?;
        self.len.store(len, Relaxed);
        Ok(())
    }

    fn grow_error(&self, len: u64, source: io::Error) -> Error {
        Error::Grow { path: self.path(), len, source: Arc::new(source) }
    }

    /// Makes the file at least so long.
    pub(crate) fn extend_to(&self, backend: &Backend, len: u64) -> Result<(), Error> {
        let _one_at_a_time = crate::sync::lock(&self.growing);
        let now = self.backing.size().map_err(|e| self.grow_error(len, e))?;
        self.found_len(now);
        if now < len {
            if !self.backing.is_regular() {
                let full = io::Error::from_raw_os_error(libc::ENOSPC);
                return Err(self.grow_error(len, full));
            }
            self.backing.set_len(backend, len).map_err(|e| self.grow_error(len, e))?;
            self.size_is_new.store(true, SeqCst);
        }
        self.set_len_locked(now.max(len))
    }

    /// The descriptor that goes through the page cache. Making it durable makes the whole file durable.
    pub(crate) fn buffered_fd(&self) -> RawFd {
        self.backing.buffered().as_raw_fd()
    }

    /// One line for people: how the file is read.
    pub(crate) fn describe_io(&self) -> &str {
        self.backing.why()
    }
}

/// First frame of the large folio that a frame of this space belongs to, by alignment. For a page that came in alone, where there was no
/// room for a large folio, it may name another folio; good enough for counting accesses.
#[inline]
pub(crate) const fn head_of(frame: u32, order: u8) -> FolioId {
    FolioId(frame & !((1 << order) - 1))
}

impl std::fmt::Debug for Space {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Space")
            .field("id", &self.id)
            .field("backing", &self.backing)
            .field("len", &self.len())
            .field("order", &self.order)
            .finish_non_exhaustive()
    }
}
