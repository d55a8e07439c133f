//! The View API: reading and writing the pages of a file under a budget.
//!
//! The hit path is [`View::page`]: find the translation (an index into a dense array), publish its
//! address in a slot of this thread, load it; if it is resident, its frame number is the address of
//! the bytes. No lock, no system call, no atomic read-modify-write, except when the page is touched
//! for the first time since the last aging.

use super::flow::Flow;
use super::guard::Page;
use super::hits::Hits;
use crate::ahead::readahead::{ReadAhead, note_access};
use crate::budget::Curve;
use crate::error::Error;
use crate::fault::Access;
use crate::fault::nested::Nested;
use crate::pager::Pager;
use crate::pool::{Pool, looks};
use crate::space::Space;
use crate::space::length::Length;
use crate::space::punch::punch;
use crate::{store, writeback};
use lowtide_pin::translation::{Entry, State as EntryState};
use lowtide_sys::room;
use std::cell::Cell;
use std::fmt;
use std::fs::File;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, RwLockReadGuard};

/// Attempts to read up to the end of a file that becomes shorter all the time.
const CLAMPS: u32 = 16;

/// What all clones of a view share: one open of the file. Dropping the last of the file's opens
/// writes back and forgets its pages.
pub(crate) struct Open {
    pager: Pager,
    space: Arc<Space>,
    /// The device did not answer lately: closing does not wait for it once more.
    hopeless: AtomicBool,
}

impl Open {
    pub(crate) fn new(pager: Pager, space: Arc<Space>) -> Self {
        Self { pager, space, hopeless: AtomicBool::new(false) }
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pager.inner.pool
    }

    /// Reads pages ahead in the background.
    pub(crate) fn read_ahead(&self, pages: Range<u64>) {
        self.pager.inner.threads.read_ahead(&self.space, pages);
    }
}

impl fmt::Debug for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Open").field(&self.space).finish()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // A file that is left behind is written by the flusher, and found by the next open.
        if self.space.drop_handle() && !self.hopeless.load(Relaxed) {
            // The last handle of a map may go with a thread of the room.
            room::outside(|| self.pager.inner.pool.close_space(&self.space));
        }
    }
}

/// An open file, page by page. Cheap to clone and to share between threads.
///
/// A clone is a handle of its own in one respect: each gets the error of a failed write once, from
/// its own [`flush`](View::flush). When the last clone is dropped, dirty pages are written, but no
/// caller is left to get an error: call `flush` before.
///
/// ```
/// use lowtide::{Size, OpenOptions, Pager};
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("table.bin");
/// let pager = Pager::builder().max(Size::mib(8)).build()?;
/// let view = OpenOptions::new().create_with_len(32 << 20).open(&pager, &path)?;
///
/// view.write_at(10_000, b"written")?;            // at any offset
/// let mut bytes = [0; 7];
/// view.read_at(10_000, &mut bytes)?;             // copied, from any range
/// assert_eq!(&bytes, b"written");
/// view.flush()?;                                 // now it survives a power cut
///
/// view.prefetch(100 << 12..200 << 12);                     // soon wanted: read in the background
/// let mut zeroes = 0;
/// view.get_many(&[100, 150, 199], |_, page| zeroes += page.iter().filter(|&&b| b == 0).count())?;
/// assert_eq!(zeroes, 3 * view.page_size());
///
/// let other = view.clone();                      // for another thread: the same pages
/// std::thread::spawn(move || other.page(2).map(|page| page[0])).join().expect("no panic")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct View {
    hits: Hits,
    ahead: ReadAhead,
    space: Arc<Space>,
    pool: Arc<Pool>,
    open: Arc<Open>,
    errors_seen: AtomicU64,
    writes: bool,
    sync: bool,
}

impl fmt::Debug for View {
    /// One line, without the pool's lock: values that contain a view are logged.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut it = f.debug_struct("View");
        it.field("path", &self.space.path_ref())
            .field("len", &self.space.len())
            .field("writes", &self.writes);
        it.finish_non_exhaustive()
    }
}

impl Clone for View {
    fn clone(&self) -> Self {
        Self {
            hits: Hits::new(&self.space, &self.pool),
            ahead: self.ahead.another(),
            space: Arc::clone(&self.space),
            pool: Arc::clone(&self.pool),
            open: Arc::clone(&self.open),
            errors_seen: AtomicU64::new(self.errors_seen.load(Relaxed)),
            writes: self.writes,
            sync: self.sync,
        }
    }
}

impl View {
    pub(crate) fn new(open: Open, writes: bool, sync: bool, window: u64) -> Self {
        let cursor = lowtide_pin::sync::lock(&open.space.ledger).cursor();
        Self {
            hits: Hits::new(&open.space, &open.pager.inner.pool),
            ahead: ReadAhead::new(window),
            space: Arc::clone(&open.space),
            pool: Arc::clone(&open.pager.inner.pool),
            errors_seen: AtomicU64::new(cursor),
            open: Arc::new(open),
            writes,
            sync,
        }
    }

    /// How many accesses to this file would miss at other sizes, if the memory were its own; `None`
    /// before the first access was looked at.
    #[must_use]
    pub fn curve(&self) -> Option<Curve> {
        let pool = self.open.pool();
        let state = looks::look_now(pool, pool.lock());
        let curve = state.reuse.of_space(self.space.id);
        drop(state);
        curve.map(|curve| Curve::new(curve, pool.page_shift, None))
    }

    /// Bytes of the file when it was last looked at. Another process may have changed it since.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.space.len()
    }

    /// Whether the file had no bytes when it was last looked at.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Pages of the file, a partial last one included.
    #[must_use]
    pub fn page_count(&self) -> u64 {
        self.space.pages()
    }

    /// Bytes of a page.
    #[must_use]
    pub fn page_size(&self) -> usize {
        self.pool.page_bytes()
    }

    /// Whether the file is read and written past the kernel's page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.space.backing.is_direct()
    }

    /// Whether a page is in memory at this moment, as `mincore` says. This call is no access, and
    /// its result may be outdated when it returns. A page that is being read, or that does not
    /// exist, is not resident.
    ///
    /// Cost: one load.
    #[must_use]
    pub fn is_resident(&self, page: u64) -> bool {
        let state = self.space.table.get(page).map(Entry::load);
        matches!(state, Some(EntryState::Resident { .. } | EntryState::Locked { .. }))
    }

    /// Looks at the file's size again, for a file that grows or shrinks; returns its bytes.
    ///
    /// A read past the known end looks by itself. Pages that are resident stay readable when the
    /// file has shrunk.
    ///
    /// # Errors
    /// [`Error::Read`] when the size cannot be learned, [`Error::Grow`] when there is no memory for
    /// the translations.
    pub fn refresh_len(&self) -> Result<u64, Error> {
        Length::of(&self.pool, &self.space).refresh()
    }

    /// Pins a page for reading. The access counts as one through a mapping.
    ///
    /// Cost: a few nanoseconds if the page is resident; otherwise one read of the device, which
    /// other threads that want the page share, and perhaps the reclaim of a few pages.
    ///
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Read`], [`Error::OutOfBudget`]; [`Error::Nested`] inside a
    /// callback of [`get_many`](View::get_many).
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
        let pool = &*self.pool;
        self.look_ahead(page..page.saturating_add(1));
        let (frame, held) = pool.hold_page(&self.space, page, Access::Mapped)?;
        self.hits.learn(&self.space);
        Ok(Page::new(pool.frame_ptr(frame), pool.page_bytes(), held))
    }

    /// As [`page`](View::page), without waiting for a device: `None` if the page is not in memory
    /// at this moment, or another thread evicts it, or stores to it. For threads that must not
    /// block, such as those of an executor, and leave misses to others. A page that is found counts
    /// as accessed; one that is not does not, and nothing is read.
    ///
    /// Cost: as a hit of `page`, and for a page past the known end of the file a look at its size.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]; [`Error::Grow`] and [`Error::Read`] as
    /// [`refresh_len`](View::refresh_len).
    ///
    /// # Examples
    /// ```
    /// # let file = tempfile::NamedTempFile::new()?;
    /// # std::fs::write(file.path(), [7; 4096])?;
    /// # let pager = lowtide::Pager::builder().max(lowtide::Size::mib(1)).build()?;
    /// let view = pager.open(file.path())?;
    /// assert!(view.try_page(0)?.is_none());
    /// assert_eq!(view.page(0)?[0], 7);               // somewhere else, where it may take its time
    /// assert_eq!(view.try_page(0)?.map(|page| page[0]), Some(7));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn try_page(&self, page: u64) -> Result<Option<Page<'_>>, Error> {
        if let Some((bytes, held)) = self.hits.find(page) {
            return Ok(Some(Page::new(bytes, self.hits.page_bytes(), held)));
        }
        let pool = &*self.pool;
        let (seen, held) = pool.entry(&self.space, page)?.hold();
        let EntryState::Resident { frame, .. } = seen else { return Ok(None) };
        note_access(pool, &self.space, page, seen, Access::Mapped, false);
        self.hits.learn(&self.space);
        Ok(Some(Page::new(pool.frame_ptr(frame), pool.page_bytes(), held)))
    }

    /// What its hits need.
    pub(crate) const fn hits(&self) -> &Hits {
        &self.hits
    }

    /// The translation of a page.
    pub(crate) fn entry(&self, page: u64) -> Option<&Entry> {
        self.space.table.get(page)
    }

    /// A hit stands for those that were not counted.
    pub(crate) fn note_sample(&self) {
        self.pool.io.note_sample(&self.space);
    }

    /// Copies bytes from the file, from any offset, as `pread` does for a range that must exist.
    /// Each page counts as accessed through a descriptor. An empty range can be read at any offset.
    ///
    /// Cost: the copy, and about 200 ns; for pages that are not resident, reads of the device.
    /// Absent neighbours are read together, in transfers of up to 512 KiB, several of which are in
    /// flight: one call for a large range is many times faster than one for each page.
    ///
    /// # Errors
    /// As [`page`](View::page), for the first page that fails; [`Error::OutOfRange`] if the range
    /// extends past the end of the file. Part of `buf` may have been filled.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        #[expect(
            unsafe_code,
            reason = "there is no safe way from initialised to perhaps uninitialised bytes"
        )]
        // SAFETY: `read_uninit` only writes bytes of the file to it, and never makes any of it
        // uninitialised.
        let to = unsafe { &mut *(std::ptr::from_mut(buf) as *mut [MaybeUninit<u8>]) };
        self.read_uninit(offset, to)
    }

    /// As [`read_at`](View::read_at), into memory that need not be initialised. All of it is, when
    /// this returns `Ok`.
    ///
    /// # Errors
    /// As `read_at`.
    pub fn read_uninit(&self, offset: u64, buf: &mut [MaybeUninit<u8>]) -> Result<(), Error> {
        if buf.is_empty() {
            return Ok(());
        }
        self.check_range(offset, buf.len())?;
        self.look_ahead_of(offset, buf.len());
        self.pool.copy_out(&self.space, offset, buf)
    }

    /// Copies a range of the file into new memory, which is not zeroed before.
    ///
    /// # Errors
    /// As [`read_at`](View::read_at); a range that does not exist takes no memory.
    ///
    /// # Examples
    /// ```
    /// # let file = tempfile::NamedTempFile::new()?;
    /// # std::fs::write(file.path(), b"one two")?;
    /// # let pager = lowtide::Pager::builder().max(lowtide::Size::mib(1)).build()?;
    /// let view = pager.open(file.path())?;
    /// assert_eq!(view.read_to_vec(4..7)?, b"two");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_to_vec(&self, bytes: Range<u64>) -> Result<Vec<u8>, Error> {
        let count = bytes.end.saturating_sub(bytes.start);
        let len =
            usize::try_from(count).map_err(|_| self.space.range_out_of(bytes.start, count))?;
        self.check_range(bytes.start, len)?;
        let mut vec = Vec::with_capacity(len);
        self.read_uninit(bytes.start, &mut vec.spare_capacity_mut()[..len])?;
        // SAFETY: `read_uninit` has initialised the first `len` bytes of the capacity.
        #[expect(unsafe_code, reason = "fills memory that was not initialised")]
        unsafe {
            vec.set_len(len);
        }
        Ok(vec)
    }

    /// Copies what exists of a range into `buf`, as `pread` does: fewer bytes than `buf` holds if
    /// the file ends before, none past its end. Returns the number of bytes.
    ///
    /// # Errors
    /// As [`page`](View::page), without [`Error::OutOfRange`].
    pub fn read_clamped(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Error> {
        let end = offset.saturating_add(buf.len() as u64);
        let mut attempts = 0;
        loop {
            if end > self.len() || attempts > 0 {
                Length::of(&self.pool, &self.space).look_behind_end()?;
            }
            let count = end.min(self.len()).saturating_sub(offset) as usize;
            match self.read_at(offset, &mut buf[..count]) {
                Ok(()) => return Ok(count),
                // It has become shorter since this thread looked.
                Err(Error::OutOfRange { .. }) if attempts < CLAMPS => attempts += 1,
                Err(e) => return Err(e),
            }
        }
    }

    /// Copies bytes into the file, at any offset; a range past the end makes the file longer, and
    /// what lies between reads as zeroes. Within one page the write is atomic against guards and
    /// other writes; pages are written in no certain order.
    ///
    /// The bytes are durable after [`flush`](View::flush), or on return if the file was opened with
    /// [`OpenOptions::sync`](crate::OpenOptions::sync).
    ///
    /// Cost: about half a microsecond for each whole page, however many there are, and no read; for
    /// a page of which only a part is written, a read if it is not resident. Many pages in one call
    /// are cheaper than many calls.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; [`Error::HeldHere`] and [`Error::HeldElsewhere`] when a guard stands in
    /// the way; [`Error::OutOfBudget`]; as [`page`](View::page) for a page of which only a part is
    /// written; [`Error::Grow`]. Pages before the failing one have been written, and some of those
    /// after it may have been.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let (space, pool) = (&*self.space, &*self.pool);
        self.check_writes()?;
        if bytes.is_empty() {
            // As `pwrite` of nothing: the file keeps its length.
            return Ok(());
        }
        let end = offset.checked_add(bytes.len() as u64);
        let end = end.ok_or_else(|| space.too_long(u64::MAX))?;
        {
            let _storing = self.room_for(end)?;
            store::store(pool, space, offset, bytes)?;
        }
        if self.sync { self.flush_range(offset..end) } else { Ok(()) }
    }

    fn check_writes(&self) -> Result<(), Error> {
        if self.writes { Ok(()) } else { Err(Error::ReadOnly { path: self.space.path() }) }
    }

    /// Makes the file at least this long, and lets this thread store to it until the result is
    /// dropped.
    fn room_for(&self, end: u64) -> Result<RwLockReadGuard<'_, ()>, Error> {
        loop {
            if end > self.space.len() {
                Length::of(&self.pool, &self.space).extend_to(end)?;
            }
            let storing = self.space.storing().ok_or_else(|| {
                let page = end >> self.pool.page_shift;
                Error::Nested { path: self.space.path(), page }
            })?;
            // It may have been cut off in between.
            if end <= self.space.len() {
                return Ok(storing);
            }
        }
    }

    /// Truncates or extends the file to `bytes`. New bytes read as zero; truncated bytes are gone
    /// from memory and disk, and if the file grows again the gap reads as zero. Other threads see
    /// the file either as it was or as it is; stores wait while the length changes. Durable after
    /// [`flush`](View::flush).
    ///
    /// Like a store, this waits for guards on pages that go, and on the one that the new end falls
    /// into. A large folio counts as one page. So a guard shows the bytes that it was made with
    /// until it is dropped.
    ///
    /// Cost: a system call; to cut, a look at each translation past the new end, in tables that
    /// were ever used.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; [`Error::Grow`]; to cut, [`Error::HeldHere`] and
    /// [`Error::HeldElsewhere`] when a guard prevents it, [`Error::Timeout`] when such a
    /// page is being read or written and the device does not answer; [`Error::Nested`] inside a
    /// callback of [`get_many`](View::get_many). On error, the file is unchanged.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let pager = lowtide::Pager::builder().max(lowtide::Size::mib(1)).build()?;
    /// let options = lowtide::OpenOptions::new().create_with_len(0);
    /// let view = options.open(&pager, dir.path().join("log"))?;
    /// view.write_at(0, b"twelve bytes")?;
    /// view.set_len(6)?;
    /// view.set_len(8)?;
    /// assert_eq!(view.read_to_vec(0..8)?, b"twelve\0\0");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_len(&self, bytes: u64) -> Result<(), Error> {
        self.check_writes()?;
        Length::of(&self.pool, &self.space).set(bytes)
    }

    /// Makes a range of bytes read as zeroes, as far as it lies in the file, and gives its space on
    /// disk back where the file system can (`fallocate(2)`); elsewhere zeroes are stored. The
    /// file's length stays. Each page is seen as before or as zeroes. Durable after
    /// [`flush`](View::flush).
    ///
    /// Cost: a system call for 16 MiB, and a look at each translation of the range.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; [`Error::HeldHere`] and [`Error::HeldElsewhere`] when a guard stands in
    /// the way; [`Error::Timeout`] when a page is being read or written and the device does not
    /// answer; [`Error::Nested`] inside a callback of [`get_many`](View::get_many);
    /// [`Error::Punch`] when the file system refuses; as [`write_at`](View::write_at) for the
    /// two ends. On error, bytes before the failing offset have already been zeroed.
    ///
    /// # Examples
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let pager = lowtide::Pager::builder().max(lowtide::Size::mib(4)).build()?;
    /// let path = dir.path().join("heap");
    /// let view = lowtide::OpenOptions::new().create_with_len(1 << 20).open(&pager, path)?;
    /// view.write_at(0, &[7; 1 << 20])?;
    /// view.punch(100..1 << 19)?;
    /// assert_eq!(view.read_to_vec(98..102)?, [7, 7, 0, 0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn punch(&self, bytes: Range<u64>) -> Result<(), Error> {
        self.check_writes()?;
        if bytes.end > self.len() {
            Length::of(&self.pool, &self.space).look_behind_end()?;
        }
        let _storing = self.room_for(0)?;
        punch(&self.pool, &self.space, bytes)
    }

    /// Shows many pages to `each`, with their positions in `pages`. Pages that are resident come
    /// first; the others are read with up to the pager's depth in flight, and come as they arrive.
    /// Each access counts as one through a mapping.
    ///
    /// `each` returns nothing, or a [`ControlFlow`](std::ops::ControlFlow): after a `Break` it is
    /// not called again, nothing more is read, and the call returns `Ok` once the reads in flight
    /// have ended.
    ///
    /// Pages that follow each other in the list and in the file, and are absent, are read together,
    /// in transfers of up to 512 KiB: a sorted list is cheaper than a shuffled one.
    ///
    /// Inside `each`, a read or store of a page of this pager that is busy in another thread fails
    /// with [`Error::Nested`] at once. A page for which there is no room fails the same way after
    /// half a second, in which dirty pages are written: several callbacks may pin all pages
    /// together.
    ///
    /// # Errors
    /// As [`page`](View::page), for the first page that fails. Some pages may already have been
    /// shown.
    pub fn get_many<F: Flow>(
        &self,
        pages: &[u64],
        mut each: impl FnMut(usize, &[u8]) -> F,
    ) -> Result<(), Error> {
        if pages.iter().max().is_some_and(|last| *last >= self.page_count()) {
            // Before reads are in flight: a thread that has some must not wait for the page in
            // which the file ended.
            Length::of(&self.pool, &self.space).look_behind_end()?;
        }
        if let [first, .., last] = *pages
            && last.checked_sub(first) == Some(pages.len() as u64 - 1)
        {
            self.look_ahead(first..last.saturating_add(1));
        }
        let (pool, ended) = (&*self.pool, Cell::new(false));
        let list = pages.iter().copied().take_while(|_| !ended.get());
        let read = pool.read_many(&self.space, list, Access::Mapped, |index, _, frame| {
            if !ended.get() {
                let _in_callback = Nested::begin();
                ended.set(each(index, pool.bytes(frame)).is_break());
            }
        });
        // Pages that were on their way then are not wanted any more.
        if ended.get() { Ok(()) } else { read }
    }

    /// Hints that a range of bytes will be needed soon. Its pages are read in the background if
    /// there is room: in free memory, and in place of an eighth of the tenant's clean pages. The
    /// call does not block. Errors are left to the threads that read the pages.
    ///
    /// Pages that are read in order do not need it
    /// ([`OpenOptions::read_ahead`](crate::OpenOptions::read_ahead)).
    pub fn prefetch(&self, bytes: Range<u64>) {
        let pages = self.pages_of(&bytes);
        let end = pages.end.min(self.page_count());
        if pages.start < end {
            self.open.read_ahead(pages.start..end);
        }
    }

    /// The pages that a range of bytes touches.
    fn pages_of(&self, bytes: &Range<u64>) -> Range<u64> {
        let shift = self.pool.page_shift;
        let first = bytes.start >> shift;
        if bytes.start >= bytes.end { first..first } else { first..((bytes.end - 1) >> shift) + 1 }
    }

    /// Writes what is dirty, and returns when everything that was written before the call, through
    /// any view of the file, is durable: bytes, the file's size, and the name of a file that
    /// [`create_with_len`](crate::OpenOptions::create_with_len) made. No-op on a read-only view.
    ///
    /// Threads that flush at the same time share their syncs. Cost where nothing was written: a
    /// message to the flusher and back.
    ///
    /// # Errors
    /// [`Error::Write`] if something could not be written, or if a write of the file failed since
    /// this handle last got such an error, even if all is well by now: each handle gets each
    /// incident once. Pages that could not be written stay dirty and are tried again, by the next
    /// flush at once. [`Error::Timeout`] after
    /// [`PagerBuilder::io_timeout`](crate::PagerBuilder::io_timeout). [`Error::NameNotDurable`] if
    /// all is durable but the name of a file that this pager made. A file that has no name any more
    /// is flushed like any other.
    pub fn flush(&self) -> Result<(), Error> {
        self.flush_pages(0..u64::MAX)
    }

    /// Makes everything durable, as [`flush`](View::flush) does, and drops this handle. If it is
    /// the last one of the file, the file is closed: its pages leave memory, and its lock is free.
    ///
    /// # Errors
    /// As `flush`. The handle is dropped all the same. Pages whose write failed stay in the pager
    /// and are tried again; the next open of the file finds it.
    pub fn close(self) -> Result<(), Error> {
        let flushed = self.flush();
        if matches!(flushed, Err(Error::Timeout { .. })) && Arc::strong_count(&self.open) == 1 {
            self.open.hopeless.store(true, Relaxed);
        }
        flushed
    }

    /// The descriptor that goes through the page cache.
    pub(crate) fn buffered(&self) -> &File {
        self.space.backing.buffered()
    }

    /// As [`flush`](View::flush), for the pages that a range of bytes touches.
    ///
    /// # Errors
    /// As `flush`; pages outside of the range that cannot be written are no error, but incidents
    /// are reported as always.
    pub fn flush_range(&self, bytes: Range<u64>) -> Result<(), Error> {
        if bytes.is_empty() { Ok(()) } else { self.flush_pages(self.pages_of(&bytes)) }
    }

    fn flush_pages(&self, pages: Range<u64>) -> Result<(), Error> {
        if !self.writes {
            return Ok(());
        }
        writeback::flush(&self.pool, &self.space, pages, &self.errors_seen)
    }

    /// Discards unsaved changes to the pages that lie entirely in `bytes`: the next access reads
    /// the file. For pages that [cannot be written](Error::Write), or that are not wanted any more.
    /// Returns the number of dirty pages that were dropped. A partial last page counts if the range
    /// reaches the end of the file.
    ///
    /// A large folio ([`folio_order`](crate::advanced::OpenAdvanced::folio_order)) stays unless
    /// all of its pages are in the range.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; [`Error::HeldHere`] and [`Error::HeldElsewhere`] when a guard stands in
    /// the way; [`Error::Timeout`] when a page is being read or written and the device does not
    /// answer; [`Error::Nested`] inside a callback of [`get_many`](View::get_many). On
    /// error, pages before the failing one have been dropped.
    pub fn revert(&self, bytes: Range<u64>) -> Result<u64, Error> {
        self.check_writes()?;
        let shift = self.pool.page_shift;
        let up = |offset: u64| offset.div_ceil(1 << shift);
        let end = if bytes.end >= self.len() { up(bytes.end) } else { bytes.end >> shift };
        let first = up(bytes.start);
        writeback::discard(&self.pool, &self.space, first..end.max(first))
    }

    /// Notes that a range of bytes is about to be read.
    fn look_ahead_of(&self, offset: u64, len: usize) {
        if len > 0 {
            let shift = self.pool.page_shift;
            self.look_ahead(offset >> shift..((offset + len as u64 - 1) >> shift) + 1);
        }
    }

    /// Notes that pages are about to be used, and reads ahead what will be wanted next, if they are
    /// read in order.
    ///
    /// Cost: a look at their translations, up to the first that is absent.
    fn look_ahead(&self, request: Range<u64>) {
        if self.ahead.is_off() {
            return;
        }
        let space = &*self.space;
        let absent = |&page: &u64| {
            matches!(space.table.get(page).map(Entry::load), Some(EntryState::Absent { .. }))
        };
        let missed = request.clone().find(absent);
        let window = match missed {
            Some(at) => self.ahead.missed(&request, at, &self.pool, space),
            None => self.ahead.touched(&request, &self.pool, space),
        };
        if let Some(window) = window {
            self.open.read_ahead(window);
        } else if missed.is_some() && request.end - request.start == 1 {
            self.pool.read_around(space, request.start);
        }
    }

    fn check_range(&self, offset: u64, len: usize) -> Result<(), Error> {
        let space = &*self.space;
        let behind = |len: u64| offset.checked_add(len).is_none_or(|end| end > space.len());
        if behind(len as u64) && {
            Length::of(&self.pool, space).look_behind_end()?;
            behind(len as u64)
        } {
            return Err(space.range_out_of(offset, len as u64));
        }
        Ok(())
    }
}
