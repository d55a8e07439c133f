//! One open file and its translations: the state that all views of it share.

use super::backing::{Backing, NewName};
use super::beneath::Beneath;
use crate::ahead::around::Around;
use crate::anon::AnonPages;
use crate::error::{Error, OpenError};
use crate::fault::nested::is_nested;
use crate::map::{MappedPages, StoredPages};
use crate::writeback::{Device, Ledger};
use crate::zcache::OfSpace;
use lowtide_core::limits::MAX_ORDER;
use lowtide_core::reuse::Kind;
use lowtide_core::{FolioId, Owner, SpaceId};
use lowtide_io::Backend;
use lowtide_pin::hazard;
use lowtide_pin::translation::{Entry, Table};
use rustix::process::{Resource, getrlimit};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::atomic::{Ordering::Acquire, Ordering::Release};
use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
    TryLockError,
};
use std::time::Duration;

/// Pages that a file may have: as many as the engine can number, in whole folios of the largest
/// order.
pub(crate) const PAGES_MAX: u64 = Owner::PAGES_MAX - (1 << MAX_ORDER);
/// The part of the addresses of a process that the translations of one file may take for pages
/// that the file does not have yet. Guess: a program opens some files, and maps others itself.
const GROWTH_PART: u64 = 64;
/// Files that may be open at a time.
pub(crate) const SPACES_MAX: u32 = Owner::SPACES_MAX;

/// Time between two checks whether stores have ended, or may begin.
const SHAPE_PAUSE: Duration = Duration::from_micros(50);

/// Cuts a byte range into pages: the page, the offset within it, and the part of the caller's
/// buffer.
pub(crate) fn parts(
    offset: u64,
    len: usize,
    shift: u32,
) -> impl Iterator<Item = (u64, usize, Range<usize>)> {
    let page_bytes = 1_usize << shift;
    let mut done = 0;
    std::iter::from_fn(move || {
        (done < len).then(|| {
            let position = offset + done as u64;
            let at = (position & (page_bytes as u64 - 1)) as usize;
            let n = (page_bytes - at).min(len - done);
            let part = done..done + n;
            done += n;
            (position >> shift, at, part)
        })
    })
}

/// Translations for `pages`, and room for as many of `reserved` as there are addresses for. Where
/// they are limited (`ulimit -v`), room to grow takes only a part of them: the rest is the
/// program's. If that fails, half of the growth, a quarter, and so on. Returns how many there is
/// room for.
fn table_with_room(pages: u64, reserved: u64) -> io::Result<(Table, u64)> {
    let addresses = getrlimit(Resource::As).current.unwrap_or(u64::MAX);
    let most = addresses / GROWTH_PART / size_of::<Entry>() as u64;
    let mut growth = (reserved - pages).min((most >> MAX_ORDER) << MAX_ORDER);
    loop {
        match Table::new(pages, pages + growth) {
            Ok(table) => return Ok((table, (pages + growth).max(1))),
            Err(error) if growth == 0 || error.kind() != io::ErrorKind::OutOfMemory => {
                return Err(error);
            }
            Err(_) => growth = (growth / 2) >> MAX_ORDER << MAX_ORDER,
        }
    }
}

/// One open file under a pager.
pub(crate) struct Space {
    pub(crate) id: SpaceId,
    pub(crate) table: Table,
    pub(crate) backing: Backing,
    /// Where the bytes of its pages are, if a program reaches them through a pointer. Otherwise
    /// they are in the arena.
    pub(crate) mapped: Option<Arc<dyn MappedPages>>,
    /// What it has instead of a file.
    pub(crate) anon: Option<AnonPages>,
    /// Its pages that were evicted and are kept compressed.
    pub(crate) zcache: Option<OfSpace>,
    /// log2 of base pages in the folios that a miss brings in.
    pub(crate) order: u8,
    page_shift: u32,
    len: AtomicU64,
    /// From this page on the file is a hole that this pager made when it extended the file, and
    /// nothing has been stored there since.
    hole_from: AtomicU64,
    /// What write-back knows about the file.
    pub(crate) ledger: Mutex<Ledger>,
    /// The device whose flusher writes it; set when it becomes writable.
    pub(crate) device: OnceLock<Arc<Device>>,
    /// Runs of its pages that are on their way.
    in_flight: AtomicU32,
    /// Pages that were read ahead and evicted before they were used.
    pub(crate) wasted_pages: AtomicU64,
    /// Pages that the page cache has of it beyond what is charged, and that do not go: they are in
    /// use elsewhere.
    pub(crate) elsewhere_pages: AtomicU64,
    /// Where its neighbours are worth reading with a page.
    pub(crate) around: Around,
    /// Changes of its length, and holes made in it.
    changes: AtomicU64,
    /// How many of the changes are durable.
    durable_changes: AtomicU64,
    /// Translations that there is room for.
    reserved: u64,
    /// Shared by stores; a thread that cuts pages out of the file has it alone. Taken before
    /// everything else.
    shape: RwLock<()>,
    /// Threads that wait to have it alone.
    reshapers: AtomicU32,
    /// One thread learns or changes the length at a time.
    growing: Mutex<()>,
    /// Direct writes beside what changes the file through the page cache.
    pub(crate) beneath: Beneath,
    /// From this page on nothing comes in and nothing is written: the file is about to end before
    /// it. Changes under the pool's lock.
    cut_from: AtomicU64,
    /// Opens that are not closed. Raised under [`Pool::opening`](crate::pool::Pool).
    handles: AtomicU32,
    /// The last view is gone: no more pages come in. Changes under the pool's lock.
    closed: AtomicBool,
    /// The file's name, if it may not be durable.
    new_name: Mutex<Option<NewName>>,
    /// Others may have changed the file.
    changed: AtomicBool,
    /// Why pages must not change while they are written, if so. Set when it becomes writable.
    stable: OnceLock<Option<String>>,
}

impl Space {
    pub(crate) fn new(
        id: SpaceId,
        backing: Backing,
        len: u64,
        order: u8,
        page_shift: u32,
        room: u64,
    ) -> Result<Self, OpenError> {
        let pages = len.div_ceil(1 << page_shift);
        if pages > PAGES_MAX {
            let (path, limit) = (backing.path().to_path_buf(), PAGES_MAX << page_shift);
            return Err(OpenError::TooLarge { path, bytes: len, limit });
        }
        let reserved =
            room.div_ceil(1 << page_shift).clamp(pages, PAGES_MAX).next_multiple_of(1 << order);
        let pages = pages.next_multiple_of(1 << order);
        let (table, reserved) = table_with_room(pages, reserved).map_err(|source| {
            OpenError::Translation { path: backing.path().to_path_buf(), source }
        })?;
        Ok(Self {
            id,
            table,
            backing,
            mapped: None,
            anon: None,
            zcache: None,
            order,
            page_shift,
            len: AtomicU64::new(len),
            hole_from: AtomicU64::new(len.div_ceil(1 << page_shift)),
            ledger: Mutex::default(),
            device: OnceLock::new(),
            in_flight: AtomicU32::new(0),
            wasted_pages: AtomicU64::new(0),
            elsewhere_pages: AtomicU64::new(0),
            around: Around::default(),
            changes: AtomicU64::new(0),
            durable_changes: AtomicU64::new(0),
            reserved,
            shape: RwLock::new(()),
            reshapers: AtomicU32::new(0),
            growing: Mutex::new(()),
            beneath: Beneath::default(),
            cut_from: AtomicU64::new(u64::MAX),
            handles: AtomicU32::new(1),
            closed: AtomicBool::new(false),
            new_name: Mutex::default(),
            changed: AtomicBool::new(false),
            stable: OnceLock::new(),
        })
    }

    /// What it has instead of a file.
    ///
    /// # Panics
    /// When it has a file.
    pub(crate) fn anon(&self) -> &AnonPages {
        self.anon.as_ref().expect("anonymous pages belong to a region")
    }

    /// What its pages are like for the sample of accesses.
    pub(crate) const fn kind(&self) -> Kind {
        Kind { order: self.order, dear: self.mapped.is_some() }
    }

    pub(crate) fn path_ref(&self) -> &Arc<PathBuf> {
        self.backing.path()
    }

    pub(crate) fn path(&self) -> Arc<PathBuf> {
        Arc::clone(self.backing.path())
    }

    /// Bytes of the file when it was last looked at.
    pub(crate) fn len(&self) -> u64 {
        // A thread that sees the length sees the translations that were made for it.
        self.len.load(Acquire)
    }

    /// Bytes of the file that are in memory beyond its charge, since they are in use elsewhere.
    pub(crate) fn elsewhere_bytes(&self) -> u64 {
        self.offset(self.elsewhere_pages.load(Relaxed))
    }

    /// Where in the file a page begins.
    pub(crate) const fn offset(&self, page: u64) -> u64 {
        page << self.page_shift
    }

    /// Pages of the file, a partial last one included.
    pub(crate) fn pages(&self) -> u64 {
        self.len().div_ceil(1 << self.page_shift)
    }

    /// Counts another open.
    pub(crate) fn add_handle(&self) {
        assert!(
            !self.is_closed(),
            "{} was opened while it was being dropped",
            self.path_ref().display()
        );
        self.handles.fetch_add(1, SeqCst);
    }

    /// Counts one open less; returns whether it was the last.
    pub(crate) fn drop_handle(&self) -> bool {
        let before = self.handles.fetch_sub(1, SeqCst);
        assert!(before > 0, "{} was closed more often than opened", self.path_ref().display());
        before == 1
    }

    /// Its pages as write-back sees them, if a program stores to them through a pointer.
    pub(crate) fn stored(&self) -> Option<&dyn StoredPages> {
        self.mapped.as_ref()?.stored()
    }

    /// The translations of a folio's pages.
    pub(crate) fn entries(&self, page: u64, order: u8) -> std::slice::Iter<'_, Entry> {
        self.table.slice(page..page + (1 << order)).iter()
    }

    /// Whether the file is not open. Final only while [`Pool::opening`](crate::pool::Pool) is held.
    pub(crate) fn is_orphan(&self) -> bool {
        self.handles.load(SeqCst) == 0
    }

    /// Notes that the file's length was changed, or a hole made in it.
    pub(crate) fn note_change(&self) {
        self.changes.fetch_add(1, SeqCst);
    }

    /// How many changes there were, if not all of them are durable: the argument of
    /// [`Space::are_durable`] after a sync.
    pub(crate) fn new_changes(&self) -> Option<u64> {
        let changes = self.changes.load(SeqCst);
        (changes > self.durable_changes.load(SeqCst)).then_some(changes)
    }

    /// That many changes are durable: a sync has succeeded that began when there were as many.
    pub(crate) fn are_durable(&self, changes: u64) {
        self.durable_changes.fetch_max(changes, SeqCst);
    }

    /// Notes that this pager gave the file its name.
    pub(crate) fn name_is_new(&self, name: NewName) {
        *lowtide_pin::sync::lock(&self.new_name) = Some(name);
    }

    /// The name of the file, if it may not be durable: the next open of the file is to have it.
    pub(crate) fn take_new_name(&self) -> Option<NewName> {
        lowtide_pin::sync::lock(&self.new_name).take()
    }

    /// Makes the file's name durable, if this pager gave it. Blocks for as long as the device does.
    pub(crate) fn sync_name(&self, backend: &Backend) -> Result<(), Error> {
        let mut name = lowtide_pin::sync::lock(&self.new_name);
        if let Some(new) = &*name {
            let error = |e| Error::NameNotDurable { path: self.path(), source: Arc::new(e) };
            self.backing.sync_name(backend, new).map_err(error)?;
            *name = None;
        }
        Ok(())
    }

    /// Others may have changed the file while its lock was not held.
    pub(crate) fn others_changed_it(&self) {
        self.changed.store(true, SeqCst);
    }

    /// Whether others may have changed the file since the last call.
    pub(crate) fn takes_notice_of_others(&self) -> bool {
        self.changed.swap(false, SeqCst)
    }

    /// Marks that the last view is gone.
    pub(crate) fn close(&self) {
        assert!(self.is_orphan(), "{} is dropped while it is open", self.path_ref().display());
        self.closed.store(true, Relaxed);
    }

    /// Counts a run of its pages that is on its way.
    pub(crate) fn run_begins(&self) {
        self.in_flight.fetch_add(1, SeqCst);
    }

    /// Counts a run less: its outcome is in the ledger and in the pages.
    pub(crate) fn run_ends(&self) {
        let before = self.in_flight.fetch_sub(1, SeqCst);
        assert!(before > 0, "more runs of {} have ended than begun", self.path_ref().display());
    }

    /// Whether runs of its pages are on their way.
    pub(crate) fn has_runs(&self) -> bool {
        self.in_flight.load(SeqCst) > 0
    }

    /// Takes back that the last view is gone: the file could not be closed. Under the pool's lock.
    pub(crate) fn stays(&self) {
        self.closed.store(false, Relaxed);
    }

    /// Whether the last view is gone. For threads that bring a page in, under the pool's lock.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.backing.is_writable()
    }

    pub(crate) fn out_of_range(&self, page: u64) -> Error {
        self.range_out_of(self.offset(page), 1 << self.page_shift)
    }

    pub(crate) fn range_out_of(&self, offset: u64, bytes: u64) -> Error {
        Error::OutOfRange { path: self.path(), offset, bytes, len: self.len() }
    }

    /// The file ends before this page, whatever is known of its length.
    pub(crate) fn not_there(&self, page: u64) -> Error {
        let len = self.backing.size().unwrap_or_else(|_| self.len());
        let (offset, bytes) = (self.offset(page), 1 << self.page_shift);
        Error::OutOfRange { path: self.path(), offset, bytes, len }
    }

    pub(crate) fn read_error(&self, page: u64, source: io::Error) -> Error {
        let (path, source) = (self.path(), Arc::new(source));
        match self.anon {
            None => Error::Read { path, page, source },
            Some(_) => Error::SwapIn { path, page, source },
        }
    }

    /// Lets this thread store to pages: none is cut out of the file meanwhile. A thread gives way
    /// to those that want to cut, unless it has a guard: a store may be waiting for that guard, and
    /// the cut waits for the store.
    ///
    /// `None` if that would take a wait that may be for this thread: it has reads of its own in
    /// flight.
    pub(crate) fn storing(&self) -> Option<RwLockReadGuard<'_, ()>> {
        if is_nested() {
            return match self.shape.try_read() {
                Ok(storing) => Some(storing),
                Err(TryLockError::Poisoned(e)) => Some(e.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            };
        }
        // Almost always there is none: a line that is not written.
        while self.reshapers.load(SeqCst) > 0 && !hazard::this_thread_holds() {
            std::thread::sleep(SHAPE_PAUSE);
        }
        Some(self.shape.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits for stores to end, and keeps others from beginning. It does not wait in the lock
    /// itself, where it would block stores by threads that have guards.
    ///
    /// # Errors
    /// [`Error::Nested`]
    pub(crate) fn reshaping(&self) -> Result<RwLockWriteGuard<'_, ()>, Error> {
        self.reshapers.fetch_add(1, SeqCst);
        let alone = loop {
            match self.shape.try_write() {
                Ok(alone) => break Ok(alone),
                Err(TryLockError::Poisoned(e)) => break Ok(e.into_inner()),
                Err(TryLockError::WouldBlock) if is_nested() => break Err(self.nested()),
                Err(TryLockError::WouldBlock) => std::thread::sleep(SHAPE_PAUSE),
            }
        };
        self.reshapers.fetch_sub(1, SeqCst);
        alone
    }

    /// Refuses a callback that would have to wait for a page: perhaps for what this thread reads
    /// itself.
    ///
    /// # Errors
    /// [`Error::Nested`]
    pub(crate) fn check_not_nested(&self, page: u64) -> Result<(), Error> {
        if is_nested() { Err(Error::Nested { path: self.path(), page }) } else { Ok(()) }
    }

    /// The error of a callback that would have to wait for another thread that changes the length.
    fn nested(&self) -> Error {
        Error::Nested { path: self.path(), page: self.pages() }
    }

    /// Waits until no part of the file is about to be cut off. The caller owns no translation.
    pub(crate) fn await_cut(&self) {
        drop(self.shape.read().unwrap_or_else(PoisonError::into_inner));
    }

    /// Locks the length, to learn or to change it.
    ///
    /// # Errors
    /// [`Error::Nested`]
    pub(crate) fn growing(&self) -> Result<MutexGuard<'_, ()>, Error> {
        match self.growing.try_lock() {
            Ok(growing) => Ok(growing),
            Err(TryLockError::Poisoned(e)) => Ok(e.into_inner()),
            Err(TryLockError::WouldBlock) if is_nested() => Err(self.nested()),
            Err(TryLockError::WouldBlock) => Ok(lowtide_pin::sync::lock(&self.growing)),
        }
    }

    /// Whether a page must not come in, because it is about to be cut off. Called under the pool's
    /// lock.
    pub(crate) fn is_cut(&self, page: u64) -> bool {
        page >= self.cut_from.load(Relaxed)
    }

    /// Sets the page from which on the file is about to be cut off; `u64::MAX` for none. Under the
    /// pool's lock.
    pub(crate) fn cut_from(&self, page: u64) {
        let before = self.cut_from.swap(page, Relaxed);
        // One thread cuts at a time, and resets the mark.
        assert!(
            (before == u64::MAX) != (page == u64::MAX),
            "{} is cut from page {page} on while it is cut from {before} on",
            self.path_ref().display()
        );
    }

    /// What another process has added to the file need not be a hole.
    pub(crate) fn found_len(&self, len: u64) {
        if len > self.len() {
            self.hole_from.fetch_max(len.div_ceil(1 << self.page_shift), Relaxed);
        }
    }

    /// Whether the file has only zeroes in a page, because neither it nor a page behind it was
    /// stored to since this pager extended the file. The caller has the page's translation busy.
    pub(crate) fn is_hole(&self, page: u64) -> bool {
        page >= self.hole_from.load(Relaxed)
    }

    /// Pages up to this one are about to be stored to. Called before their translations show it.
    pub(crate) fn ends_hole(&self, page: u64) {
        // Almost always it is known already: a line that is not written.
        if self.is_hole(page) {
            self.hole_from.fetch_max(page + 1, Relaxed);
        }
    }

    /// The file was cut to this length: what it grows by later is a hole.
    pub(crate) fn begins_hole(&self, len: u64) {
        self.hole_from.fetch_min(len.div_ceil(1 << self.page_shift), Relaxed);
    }

    /// Sets the length in memory: makes the translations that it needs, then changes it.
    pub(crate) fn set_known_len(&self, len: u64) -> Result<(), Error> {
        self.make_room(len)?;
        assert!(
            self.growing.try_lock().is_err(),
            "the length changes while no thread is to change it"
        );
        self.len.store(len, Release);
        Ok(())
    }

    /// Makes translations for a file of that length.
    pub(crate) fn make_room(&self, len: u64) -> Result<(), Error> {
        let pages = len.div_ceil(1 << self.page_shift);
        if pages > self.reserved {
            return Err(self.too_long(len));
        }
        let pages = pages.next_multiple_of(1 << self.order);
        self.table.grow(pages).map_err(|source| self.grow_error(len, source))
    }

    /// The error of a file that would have more pages than there is room for.
    pub(crate) fn too_long(&self, len: u64) -> Error {
        let room = self.reserved << self.page_shift;
        let advice = match self.anon {
            None => "view has room for {} bytes; open the file with a larger `OpenOptions::growth`",
            Some(_) => {
                "region has room for {} bytes; make it with a larger `RegionOptions::growth`"
            }
        };
        let advice = format!("the {}", advice.replace("{}", &room.to_string()));
        self.grow_error(len, io::Error::new(io::ErrorKind::FileTooLarge, advice))
    }

    pub(crate) fn grow_error(&self, len: u64, source: io::Error) -> Error {
        Error::Grow { path: self.path(), len, source: Arc::new(source) }
    }

    /// The descriptor that goes through the page cache. Making it durable makes the whole file
    /// durable.
    pub(crate) fn buffered_fd(&self) -> RawFd {
        self.backing.buffered().as_raw_fd()
    }

    /// Decides whether pages must not change while they are written, as requested or as the file
    /// needs it. The first decision is final.
    pub(crate) fn decide_stable(&self, wanted: Option<bool>) {
        self.stable.get_or_init(|| match wanted {
            Some(wanted) => wanted.then(|| "as requested".to_owned()),
            None => {
                crate::space::stable::needed_by(self.backing.buffered(), self.backing.key().device)
            }
        });
    }

    /// Whether pages must not change while they are written (`stable.rs`).
    pub(crate) fn is_stable(&self) -> bool {
        matches!(self.stable.get(), Some(Some(_)))
    }

    /// One line for people: how the file is read and written.
    pub(crate) fn describe_io(&self) -> String {
        let how = self.backing.why();
        match self.stable.get() {
            Some(Some(why)) => {
                format!("{how}; stores wait for pages that are being written ({why})")
            }
            _ => how.to_owned(),
        }
    }
}

/// First frame of the large folio that a frame of this space belongs to, by alignment. For a page
/// that came in alone, where there was no room for a large folio, it may name another folio; good
/// enough for counting accesses.
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
