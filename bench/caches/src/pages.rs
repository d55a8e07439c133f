//! A file of records behind a budget of memory: what every system of the comparison does.
//!
//! [`Cached`] is what a program writes that has a cache and no lowtide: look the page up; if it is
//! not there, `pread` it into a pooled buffer and insert it. Updates are written through: the page
//! is copied, changed, written with `pwrite`, and inserted. A page that is being filled or changed
//! is locked, one mutex for all pages with the same hash; without that, a reader could put back
//! what it read before an update. It also makes threads that miss the same page read it once.
//!
//! [`View`] needs no such lock for reads. Updates take one for the record, because
//! an update depends on what it finds, and two of the same record must not meet.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::layout::RecordLayout;
use lowtide::{Pager, View};
use lowtide_workload::record::{self, RECORD_BYTES, RecordError};

use crate::cache::PageCache;
use crate::error::Error;
use crate::slab::{Fresh, Slab, Slot};

/// Locks of pages. More would not be held at once more often; each takes 8 bytes.
const LOCKS: usize = 4096;
/// How often a thread waits for a free buffer before the cache is called broken.
const PATIENCE: u32 = 10_000;

/// Accesses to records of one file.
pub trait Pages: Send + Sync {
    /// Verifies the record `key`. Returns whether its page was read from the device.
    ///
    /// # Errors
    /// [`Error::Wrong`], and failures of the device.
    fn read(&self, key: u64) -> Result<bool, Error>;

    /// Replaces the record by its next version. Returns whether its page was read.
    ///
    /// # Errors
    /// As [`Pages::read`].
    fn update(&self, key: u64) -> Result<bool, Error>;

    /// Makes all updates durable.
    ///
    /// # Errors
    /// Failures of the device.
    fn flush(&self) -> Result<(), Error>;

    /// Bytes that the system takes now, except for what `weigh` has found in the heap.
    fn bytes(&self) -> u64;

    /// Misses and read requests since the start, if the system itself counts them.
    fn counts(&self) -> Option<Counts> {
        None
    }
}

/// What a system has counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Accesses that waited for the device.
    pub misses: u64,
    /// Read requests: fewer than misses where neighbours are read together.
    pub reads: u64,
}

/// Locks of pages, or of records.
struct Locks(Box<[Mutex<()>]>);

impl Locks {
    fn new() -> Self {
        Self((0..LOCKS).map(|_| Mutex::new(())).collect())
    }

    fn of(&self, number: u64) -> &Mutex<()> {
        &self.0[lowtide_workload::prng::mix64(number) as usize % LOCKS]
    }

    fn lock(&self, number: u64) -> MutexGuard<'_, ()> {
        self.of(number).lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wrong(system: &str, error: RecordError) -> Error {
    Error::Wrong { system: system.to_owned(), what: error.to_string() }
}

/// `pread` and a cache.
pub struct Cached<C> {
    cache: C,
    /// Dropped after the cache.
    slab: Lease,
    locks: Locks,
    file: File,
    layout: RecordLayout,
}

impl<C: PageCache> Cached<C> {
    /// A cache of `pages` pages of `file`, for `threads` threads. There are a few more buffers than
    /// pages: two for each thread, which reads into one and looks at another, and what the cache
    /// needs ([`PageCache::SPARE`]).
    ///
    /// # Errors
    /// Those of [`Slab::leaked`].
    pub fn new(
        file: File,
        layout: RecordLayout,
        pages: usize,
        threads: u32,
    ) -> Result<Self, Error> {
        let slots = pages + 2 * threads as usize + C::SPARE;
        let slots = u32::try_from(slots).unwrap_or(u32::MAX - 1);
        let slab = Slab::leaked(slots, layout.page_bytes())?;
        Ok(Self { cache: C::new(pages), slab: Lease(slab), locks: Locks::new(), file, layout })
    }

    /// Puts a page in as a miss does, without reading it. Its buffer is touched.
    ///
    /// # Errors
    /// [`Error::Exhausted`].
    pub fn put_blank(&self, page: u64) -> Result<(), Error> {
        if self.cache.get(page).is_none() {
            let mut fresh = self.fresh()?;
            fresh.bytes()[0] = 0;
            self.cache.put(page, fresh.done());
        }
        Ok(())
    }

    fn fresh(&self) -> Result<Fresh, Error> {
        for _ in 0..PATIENCE {
            if let Some(fresh) = self.slab.0.take() {
                return Ok(fresh);
            }
            self.cache.relieve();
            std::thread::yield_now();
        }
        Err(Error::Exhausted { system: C::NAME })
    }

    /// Passes the page to `look`, from the cache or the file. The caller has its lock.
    fn find<R>(&self, page: u64, look: impl FnOnce(&[u8]) -> R) -> Result<(R, bool), Error> {
        match self.cache.get(page) {
            Some(held) => Ok((look(&held), false)),
            None => self.fill(page).map(|slot| (look(&slot), true)),
        }
    }

    /// Reads the page and puts it into the cache.
    fn fill(&self, page: u64) -> Result<Slot, Error> {
        let mut fresh = self.fresh()?;
        self.file
            .read_exact_at(fresh.bytes(), self.offset(page))
            .map_err(|error| self.failed("read", page, error))?;
        let slot = fresh.done();
        self.cache.put(page, slot.clone());
        Ok(slot)
    }

    const fn offset(&self, page: u64) -> u64 {
        page * self.layout.page_bytes() as u64
    }

    fn failed(&self, what: &str, page: u64, error: io::Error) -> Error {
        Error::Wrong { system: C::NAME.into(), what: format!("cannot {what} page {page}: {error}") }
    }
}

impl<C: PageCache> Pages for Cached<C> {
    #[inline]
    fn read(&self, key: u64) -> Result<bool, Error> {
        let place = self.layout.place(key);
        let check = |page: &[u8]| record::verify(key, &page[place.offset..][..RECORD_BYTES]);
        if let Some(held) = self.cache.get(place.page) {
            return check(&held).map(|_| false).map_err(|error| wrong(C::NAME, error));
        }
        // Only a thread that had to wait looks again.
        let (found, missed) = match self.locks.of(place.page).try_lock() {
            Ok(_alone) => (check(&self.fill(place.page)?), true),
            Err(TryLockError::Poisoned(_) | TryLockError::WouldBlock) => {
                let _lock = self.locks.lock(place.page);
                self.find(place.page, check)?
            }
        };
        found.map(|_| missed).map_err(|error| wrong(C::NAME, error))
    }

    fn update(&self, key: u64) -> Result<bool, Error> {
        let place = self.layout.place(key);
        let mut fresh = self.fresh()?;
        let _lock = self.locks.lock(place.page);
        let ((), missed) = self.find(place.page, |page| fresh.bytes().copy_from_slice(page))?;
        let (slots, _) = fresh.bytes()[place.offset..].as_chunks_mut::<RECORD_BYTES>();
        record::update(key, &mut slots[0]).map_err(|error| wrong(C::NAME, error))?;
        self.file
            .write_all_at(fresh.bytes(), self.offset(place.page))
            .map_err(|error| self.failed("write", place.page, error))?;
        self.cache.put(place.page, fresh.done());
        Ok(missed)
    }

    fn flush(&self) -> Result<(), Error> {
        self.file.sync_data().map_err(|error| self.failed("sync", 0, error))
    }

    fn bytes(&self) -> u64 {
        self.slab.0.bytes()
    }
}

/// The buffers of one cache, given back when it is gone.
struct Lease(&'static Slab);

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.retire();
    }
}

/// lowtide: a view of the file in a pager.
pub struct Paged {
    pager: Pager,
    view: View,
    locks: Locks,
    layout: RecordLayout,
    label: String,
}

impl Paged {
    /// `view` is open in `pager`, whose page size is the layout's.
    pub fn new(pager: Pager, view: View, layout: RecordLayout, label: String) -> Self {
        Self { pager, view, locks: Locks::new(), layout, label }
    }
}

impl Pages for Paged {
    #[inline]
    fn read(&self, key: u64) -> Result<bool, Error> {
        let place = self.layout.place(key);
        let page = self.view.page(place.page)?;
        record::verify(key, &page[place.offset..][..RECORD_BYTES])
            // The pager counts its misses itself.
            .map(|_| false)
            .map_err(|error| wrong(&self.label, error))
    }

    fn update(&self, key: u64) -> Result<bool, Error> {
        let place = self.layout.place(key);
        let _lock = self.locks.lock(key);
        let mut slot = [0; RECORD_BYTES];
        slot.copy_from_slice(&self.view.page(place.page)?[place.offset..][..RECORD_BYTES]);
        record::update(key, &mut slot).map_err(|error| wrong(&self.label, error))?;
        self.view.write_at(key * RECORD_BYTES as u64, &slot)?;
        Ok(false)
    }

    fn flush(&self) -> Result<(), Error> {
        Ok(self.view.flush()?)
    }

    fn bytes(&self) -> u64 {
        let stat = self.pager.stat();
        stat.budget_bytes + stat.frame_metadata_bytes + stat.translation_bytes
    }

    fn counts(&self) -> Option<Counts> {
        let stat = self.pager.stat();
        Some(Counts { misses: stat.misses, reads: stat.io.reads })
    }
}
