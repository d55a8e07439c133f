//! The pager: one budget, and the files that share it.

use crate::background::Threads;
use crate::config::Builder;
use crate::error::{BuildError, OpenError};
use crate::fault_sites::FaultSite;
use crate::pool::Pool;
use crate::space::{Backing, Space};
use crate::stat::Stat;
use crate::tenant::{ExportError, Tenant, TenantError};
use crate::view::{Open, View};
use lowtide_core::limits::MAX_ORDER;
use lowtide_core::{MemcgId, SpaceId};
use lowtide_sys::file::OpenMode;
use std::path::Path;
use std::sync::Arc;

/// One budget of memory, and the files whose pages share it. Cheap to clone; all clones are the same pager.
///
/// The memory is given back when the last clone and the last view are gone.
#[derive(Clone, Debug)]
pub struct Pager {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) pool: Arc<Pool>,
    pub(crate) threads: Threads,
}

impl Pager {
    /// Begins to build a pager.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn build(config: &Builder) -> Result<Self, BuildError> {
        let pool = Arc::new(Pool::new(config)?);
        let threads = Threads::start(&pool)?;
        Ok(Self { inner: Arc::new(Inner { pool, threads }) })
    }

    /// Opens a file for reading, in folios of one base page.
    ///
    /// # Errors
    /// [`OpenError`] says what is wrong with the file.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<View, OpenError> {
        OpenOptions::new().open(self, path)
    }

    /// Bytes of a base page.
    #[must_use]
    pub fn page_size(&self) -> usize {
        self.inner.pool.page_bytes()
    }

    /// One consistent snapshot of the counters. Takes the pool's lock for a moment.
    #[must_use]
    pub fn stat(&self) -> Stat {
        let pool = &self.inner.pool;
        let huge_bytes = pool.huge_bytes() as u64;
        let state = pool.lock();
        let translation = state.spaces.iter().flatten().map(|s| s.table.metadata_bytes()).sum();
        let tables = state.engine.metadata_bytes() + state.frames.metadata_bytes();
        Stat {
            memory: state.engine.stat(MemcgId::ROOT),
            io: pool.io.snapshot(),
            budget_bytes: pool.arena_bytes() as u64,
            huge_bytes,
            frame_metadata_bytes: tables as u64,
            translation_bytes: translation,
        }
    }

    /// Lines for people: which I/O engine was chosen and why, and how each open file is read.
    #[must_use]
    pub fn report(&self) -> String {
        let pool = &self.inner.pool;
        let mut text = format!("I/O engine: {}\n", pool.backend.reason());
        for space in pool.lock().spaces.iter().flatten() {
            text += &format!("{}: {}\n", space.path().display(), space.describe_io());
        }
        text
    }

    /// The I/O engine in use: [`IoEngine::Uring`](crate::IoEngine::Uring) or [`IoEngine::Psync`](crate::IoEngine::Psync).
    #[must_use]
    pub fn io_engine(&self) -> crate::IoEngine {
        self.inner.pool.backend.engine()
    }

    /// Checks every invariant of the engine and of the frames. Cost: a look at every frame; for tests and for runs that ask for it.
    ///
    /// # Errors
    /// A sentence that names the first invariant that does not hold.
    pub fn validate(&self) -> Result<(), String> {
        let pool = &self.inner.pool;
        let mut state = pool.lock();
        state.engine.validate()?;
        let reserved = state.engine.stat(MemcgId::ROOT).reserved;
        let charged = state.engine.usage(MemcgId::ROOT);
        let free = u64::from(state.frames.free_frames());
        let frames = (pool.arena_bytes() >> pool.page_shift) as u64;
        if charged - reserved + free == frames {
            Ok(())
        } else {
            Err(format!(
                "{charged} pages are charged, {reserved} of them reserved, and {free} frames are free, of {frames}"
            ))
        }
    }

    /// Brings the directory of [`Builder::export_dir`](crate::Builder::export_dir) up to date now. Without one nothing happens.
    ///
    /// # Errors
    /// [`ExportError`] names the first file that could not be written. The others have been, and nothing else is affected.
    pub fn export(&self) -> Result<(), ExportError> {
        let pool = &self.inner.pool;
        pool.exporter.as_ref().map_or(Ok(()), |exporter| exporter.round(pool))
    }

    /// What went wrong in the last round of exports, if anything did.
    #[must_use]
    pub fn export_error(&self) -> Option<ExportError> {
        self.inner.pool.exporter.as_ref()?.last_error()
    }

    /// How often each place was reached that deals with failing devices, for tests of failing devices.
    #[must_use]
    pub fn fault_sites(&self) -> Vec<(FaultSite, u64)> {
        self.inner.pool.fault_sites.counts()
    }

    /// Publishes the statistics that classical reclaim works with, which background threads otherwise do every two seconds.
    #[doc(hidden)]
    pub fn publish(&self) {
        self.inner.pool.lock().engine.publish();
    }
}

/// How to open a file as a view. Reading is always allowed.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    write: bool,
    create: Option<u64>,
    order: u8,
    tenant: Option<Tenant>,
}

impl OpenOptions {
    /// For reading, in folios of one base page.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the view may be written to.
    #[must_use]
    pub fn write(mut self, write: bool) -> Self {
        self.write = write;
        self
    }

    /// Creates the file if it is not there, and makes it at least `bytes` long; implies writing. An existing longer file keeps its length.
    #[must_use]
    pub fn create(mut self, bytes: u64) -> Self {
        self.create = Some(bytes);
        self.write = true;
        self
    }

    /// Brings pages in `2^order` at a time, in one folio of up to 2 MiB. For large reads: fewer, larger transfers. Where there is no contiguous
    /// room in memory, a single page is brought in instead.
    #[must_use]
    pub fn folio_order(mut self, order: u8) -> Self {
        self.order = order;
        self
    }

    /// Charges the view's pages to a tenant. Without one they are charged to the root, which only the pager's own budget limits.
    #[must_use]
    pub fn tenant(mut self, tenant: &Tenant) -> Self {
        self.tenant = Some(tenant.clone());
        self
    }

    /// Opens the file.
    ///
    /// # Errors
    /// [`OpenError`] says what is wrong with the file or with the options.
    pub fn open(&self, pager: &Pager, path: impl AsRef<Path>) -> Result<View, OpenError> {
        let (path, pool) = (path.as_ref(), &pager.inner.pool);
        let tenant = |source| OpenError::Tenant { path: path.to_owned(), source };
        let group = match &self.tenant {
            Some(other) if !Arc::ptr_eq(&other.pager.inner, &pager.inner) => {
                return Err(tenant(TenantError::OtherPager));
            }
            Some(tenant) => tenant.id,
            None => MemcgId::ROOT,
        };
        let limit = (2 << 20).min(pool.arena_bytes() as u64 / 8).max(pool.page_bytes() as u64);
        let bytes = (pool.page_bytes() as u64).checked_shl(u32::from(self.order)).unwrap_or(u64::MAX);
        if self.order > MAX_ORDER || bytes > limit {
            return Err(OpenError::FolioOrder { bytes, limit });
        }
        let mut access = if self.write { OpenMode::READ_WRITE } else { OpenMode::READ };
        access.create = self.create.is_some();
        let backing = Backing::open(path, access, pool.io_mode, pool.page_bytes())?;
        let io = |source| OpenError::Io { path: path.to_owned(), source };
        if let Some(bytes) = self.create
            && backing.is_regular()
            && backing.size().map_err(io)? < bytes
        {
            backing.set_len(&pool.backend, bytes).map_err(io)?;
        }
        let len = backing.size().map_err(io)?;
        let mut state = pool.lock();
        if !state.engine.alive(group) {
            return Err(tenant(TenantError::Gone));
        }
        let id: SpaceId = state.engine.add_space(group);
        let space = match Space::new(id, backing, len, self.order, pool.page_shift) {
            Ok(space) => Arc::new(space),
            Err(e) => {
                state.engine.remove_space(id);
                return Err(e);
            }
        };
        let index = id.0 as usize;
        if state.spaces.len() <= index {
            state.spaces.resize(index + 1, None);
        }
        state.spaces[index] = Some(Arc::clone(&space));
        drop(state);
        Ok(View::new(Open::new(pager.clone(), space)))
    }
}
