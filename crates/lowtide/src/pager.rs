//! The pager: one budget, and the files that share it.

use crate::config::PagerBuilder;
use crate::error::{BuildError, CloseError, OpenError};
use crate::pool::Pool;
use crate::pool::background::Threads;
#[cfg(feature = "status")]
use crate::publish::Publication;
use crate::recorder::Recorder;
use crate::space::open::OpenOptions;
use crate::stat::dirty_stat;
use crate::swap::Kept;
use crate::view::View;
use lowtide_core::counters::{DirtyStat, Stat};
use lowtide_core::{MemcgId, MemoryStat};
use lowtide_io::IoEngine;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::{fmt, io};

/// One budget of memory, and the files whose pages share it. Cheap to clone; all clones are the
/// same pager.
///
/// The memory is given back when the last clone and the last view are gone.
///
/// ```
/// use lowtide::{Pager, Size};
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("data");
/// # std::fs::write(&path, vec![1; 64 * 4096])?;
/// let pager = Pager::builder().max(Size::mib(8)).build()?;
/// let view = pager.open(&path)?;                 // to read; `OpenOptions` has the rest
/// assert_eq!(view.page(63)?[0], 1);
/// println!("{}", pager.stat());                  // lines as in the kernel's memory.stat
/// drop(view);
/// pager.close()?;                                // writes what is dirty; the error names the rest
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Pager {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    /// Dropped first: it has the pool while it writes.
    #[cfg(feature = "status")]
    pub(crate) publication: Publication,
    pub(crate) pool: Arc<Pool>,
    pub(crate) threads: Threads,
}

impl fmt::Debug for Pager {
    /// One line, without the pool's lock: values that contain a pager are logged.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pool = &self.inner.pool;
        let mut it = f.debug_struct("Pager");
        it.field("budget_bytes", &pool.budget_bytes()).field("page_size", &pool.page_bytes());
        it.finish_non_exhaustive()
    }
}

impl PagerBuilder {
    /// Reserves the memory and starts the background threads.
    ///
    /// # Errors
    /// [`BuildError`] names the choice that is impossible, or what the kernel refused.
    pub fn build(self) -> Result<Pager, BuildError> {
        let pool = Pool::new(&self)?;
        let threads = Threads::start(&pool)?;
        let inner = Inner {
            #[cfg(feature = "status")]
            publication: Publication::default(),
            pool,
            threads,
        };
        Ok(Pager { inner: Arc::new(inner) })
    }
}

impl Pager {
    /// Begins to build a pager.
    pub fn builder() -> PagerBuilder {
        PagerBuilder::default()
    }

    /// Opens a file for reading, in folios of one base page.
    ///
    /// # Errors
    /// [`OpenError`] gives what is wrong with the file.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<View, OpenError> {
        OpenOptions::new().open(self, path)
    }

    /// Writes and syncs everything, and reports what could not be written. Views that are still
    /// open keep working; the memory is given back when they are gone, too.
    ///
    /// Without this the same happens when the last handle is dropped, and what could not be written
    /// is only logged.
    ///
    /// # Errors
    /// [`CloseError`] names the files. Pages that are unwritten when the last view is dropped are
    /// lost.
    pub fn close(self) -> Result<(), CloseError> {
        self.inner.pool.write_everything()
    }

    /// Bytes of a base page.
    #[must_use]
    pub fn page_size(&self) -> usize {
        self.inner.pool.page_bytes()
    }

    /// Dirty data of all files. Takes the pool's lock for a moment, and is cheap enough for a
    /// hundred calls a second. All zeroes after a defect of the pager
    /// ([`Error::Poisoned`](crate::Error::Poisoned)).
    #[must_use]
    pub fn dirty(&self) -> DirtyStat {
        let pool = &self.inner.pool;
        let Ok(state) = pool.lock_sound() else { return DirtyStat::default() };
        dirty_stat(&state.engine, MemcgId::ROOT, pool.page_shift)
    }

    /// One consistent snapshot of the counters. Takes the pool's lock for a moment, and reads
    /// `/proc/self/smaps` before, which takes about a millisecond.
    ///
    /// After a defect of the pager ([`Error::Poisoned`](crate::Error::Poisoned)) `poisoned` is set,
    /// and what only the engine knows is zero: it may have been in the middle of a change.
    #[must_use]
    pub fn stat(&self) -> Stat {
        let pool = &self.inner.pool;
        let huge_bytes = pool.huge_bytes() as u64;
        let kept = Kept::of(pool, MemcgId::ROOT);
        let spaces: Vec<_> = pool.lock().spaces.iter().flatten().cloned().collect();
        let translation = spaces.iter().map(|space| space.table.memory_bytes()).sum();
        drop(spaces);
        let state = pool.lock();
        let poisoned = pool.is_poisoned();
        let failed = state
            .spaces
            .iter()
            .flatten()
            .map(|s| lowtide_pin::sync::lock(&s.ledger).failed_pages())
            .sum();
        let (memory, dirty, tables) = if poisoned {
            (MemoryStat::default(), DirtyStat::default(), 0)
        } else {
            let tables = pool.table_bytes(&state);
            let dirty = dirty_stat(&state.engine, MemcgId::ROOT, pool.page_shift);
            (kept.among(state.engine.stat(MemcgId::ROOT)), dirty, tables)
        };
        let mut stat = Stat::default();
        stat.poisoned = poisoned;
        stat.memory = memory;
        stat.unwritten_bytes = (memory.file_dirty + memory.file_writeback) * memory.page_bytes;
        stat.failed_pages = failed;
        stat.io = pool.io.counts.snapshot();
        stat.dirty = dirty;
        stat.budget_bytes = pool.budget_bytes();
        stat.resident_bytes = state.resident.resident_bytes();
        stat.huge_bytes = huge_bytes;
        stat.frame_metadata_bytes = tables as u64;
        stat.translation_bytes = translation;
        (stat.hits, stat.misses) = (pool.io.hits(), pool.io.misses());
        stat
    }

    /// Records accesses to a sample of the pages in a file, as a trace in lowtide's text format,
    /// until the pager ends: `lowtide advise` and `lowtide sim trace` play it with any policy at
    /// any size. It has what the [curve](crate::budget::Curve) is made of: at most 8192 pages,
    /// whose accesses have the time of the next look at the sample.
    ///
    /// If the file cannot be written any more, the recording ends, and the log has the error.
    ///
    /// # Errors
    /// The file cannot be written, no thread can be started, or it records already.
    pub fn record(&self, file: File) -> io::Result<()> {
        let Inner { pool, threads, .. } = &*self.inner;
        let mut file = Some(file);
        threads.service(|pool| match file.take() {
            Some(file) => Recorder::start(pool, file),
            None => Err(io::ErrorKind::AlreadyExists.into()),
        })?;
        pool.check().map_err(io::Error::other)?;
        if file.is_some() { Err(io::ErrorKind::AlreadyExists.into()) } else { Ok(()) }
    }

    /// Lines for people: which I/O engine was chosen and why, how each open file is read, and
    /// whether the pager met a defect of its own ([`Error::Poisoned`](crate::Error::Poisoned)).
    #[must_use]
    pub fn report(&self) -> String {
        let pool = &self.inner.pool;
        let mut text = format!("I/O engine: {}\n", pool.backend.reason());
        let state = pool.lock();
        if let Err(defect) = pool.check() {
            text += &format!("{defect}\n");
        }
        let resident = state.resident.resident_bytes();
        text +=
            &format!("memory: {resident} bytes resident, of a budget of {}\n", pool.budget_bytes());
        for space in state.spaces.iter().flatten() {
            text += &format!("{}: {}\n", space.path().display(), space.describe_io());
        }
        text
    }

    /// The I/O engine in use: [`IoEngine::Uring`](crate::IoEngine::Uring) or
    /// [`IoEngine::Psync`](crate::IoEngine::Psync).
    #[must_use]
    pub fn io_engine(&self) -> IoEngine {
        self.inner.pool.backend.engine()
    }
}
