//! The handle of a tenant: the tree, figures, files to open.

use super::{TenantBuilder, TenantError, TenantFile};
use crate::error::OpenError;
use crate::pager::Pager;
use crate::pool::{Pool, StateGuard};
use crate::space::open::OpenOptions;
use crate::swap::{self, Kept, SwapStat};
use crate::view::View;
use crate::zcache::ZcacheStat;
use lowtide_core::{MemcgEvents, MemcgId, MemoryStat};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// A budget within the budget of a pager, and everything that is charged to it. Cheap to clone; all
/// clones are the same tenant.
///
/// Tenants form a tree below the pager. The usage of a tenant is part of the usage of all its
/// ancestors. Limits and protection work as those of the kernel's memory cgroups, in bytes rounded
/// down to pages:
///
/// | limit | meaning |
/// |---|---|
/// | `max` | usage never exceeds it; a charge without room evicts pages of the tenant, or fails |
/// | `high` | above it, a thread that charges evicts pages of the tenant before it goes on |
/// | `low` | a tenant below it is not evicted for others, as long as there is anything else |
/// | `min` | a tenant below it is never evicted for others, even if their operations fail |
///
/// Handles do not keep a tenant alive: it exists until it is [removed](Tenant::remove) or the pager
/// goes. From then on all handles return [`TenantError::Gone`], forever: an old handle never finds
/// a tenant that is created later, whatever its name. A pager can create and remove some four
/// thousand million tenants in its life.
///
/// ```
/// use lowtide::{Size, OpenOptions, Pager};
///
/// # let dir = tempfile::tempdir()?;
/// # let (path, other) = (dir.path().join("index"), dir.path().join("log"));
/// let pager = Pager::builder().max(Size::mib(8)).build()?;
/// let index = pager.tenant("index").low(Size::mib(2)).create()?;
/// let scans = pager.tenant("scans").max(Size::mib(1)).create()?;
///
/// let view = OpenOptions::new().create_with_len(16 << 20).tenant(&index).open(&pager, &path)?;
/// let log = OpenOptions::new().create_with_len(64 << 20).tenant(&scans).open(&pager, &other)?;
/// drop(view.page(3)?);
/// for page in 0..log.page_count() {
///     drop(log.page(page)?);                            // 64 MiB, in at most 1 MiB of memory
/// }
/// assert!(scans.usage()? <= 1 << 20);
/// assert!(index.usage()? > 0);
/// let _ = scans.set_max(Size::kib(512))?;                      // while it runs
/// print!("{}", scans.stat()?);                          // as memory.stat
/// scans.remove()?;                                      // the root has its pages; `log` works on
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Tenant {
    pub(crate) pager: Pager,
    pub(crate) id: MemcgId,
}

impl Pager {
    /// Begins to make a tenant below the root.
    pub fn tenant(&self, name: &str) -> TenantBuilder {
        self.root().child(name)
    }

    /// The tenant that is the pager itself: everything is charged to it, and it is never removed.
    /// `max` is its only limit.
    #[must_use]
    pub fn root(&self) -> Tenant {
        Tenant { pager: self.clone(), id: MemcgId::ROOT }
    }

    /// The tenant at a path such as `a/b`; a slash in front changes nothing. The empty path is the
    /// root.
    #[must_use]
    pub fn find(&self, path: &str) -> Option<Tenant> {
        let state = self.inner.pool.lock();
        let path = path.strip_prefix('/').unwrap_or(path);
        let mut id = MemcgId::ROOT;
        for name in path.split('/').filter(|_| !path.is_empty()) {
            id = state.names.find(id, name)?;
        }
        drop(state);
        Some(Tenant { pager: self.clone(), id })
    }
}

impl Tenant {
    pub(crate) fn pool(&self) -> &Pool {
        &self.pager.inner.pool
    }

    /// The pool's lock, with the tenant alive.
    pub(super) fn lock(&self) -> Result<StateGuard<'_>, TenantError> {
        let state = self.pool().lock_sound().map_err(|_| TenantError::Poisoned)?;
        if state.engine.alive(self.id) { Ok(state) } else { Err(TenantError::Gone) }
    }

    pub(super) fn to_bytes(&self, pages: u64) -> u64 {
        pages << self.pool().page_shift
    }

    /// Begins to make a tenant below this one.
    pub fn child(&self, name: &str) -> TenantBuilder {
        TenantBuilder::new(self.clone(), name)
    }

    /// Opens a file for reading, and charges its pages to this tenant.
    ///
    /// # Errors
    /// [`OpenError`] says what is wrong with the file, or that the tenant is gone.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<View, OpenError> {
        OpenOptions::new().tenant(self).open(&self.pager, path)
    }

    /// The pager.
    #[must_use]
    pub const fn pager(&self) -> &Pager {
        &self.pager
    }

    /// Its name; empty for the root.
    ///
    /// # Errors
    /// [`TenantError::Gone`].
    pub fn name(&self) -> Result<Arc<str>, TenantError> {
        Ok(self.lock()?.names.get(self.id).unwrap_or_default())
    }

    /// The names from the root down to it, as in `/a/b`; `/` for the root.
    ///
    /// # Errors
    /// [`TenantError::Gone`].
    pub fn path(&self) -> Result<String, TenantError> {
        let state = self.lock()?;
        Ok(state.names.path(&state.engine, self.id))
    }

    /// The tenant above it; `None` for the root.
    ///
    /// # Errors
    /// [`TenantError::Gone`].
    pub fn parent(&self) -> Result<Option<Self>, TenantError> {
        let parent = self.lock()?.engine.parent(self.id);
        Ok(parent.map(|id| Self { pager: self.pager.clone(), id }))
    }

    /// The tenants directly below it, in the order in which they came.
    ///
    /// # Errors
    /// [`TenantError::Gone`].
    pub fn children(&self) -> Result<Vec<Self>, TenantError> {
        let state = self.lock()?;
        Ok(state
            .engine
            .children(self.id)
            .map(|id| Self { pager: self.pager.clone(), id })
            .collect())
    }

    /// Bytes charged to it and those below: `memory.current`. Up to 64 pages of it may be charged
    /// in advance.
    ///
    /// # Errors
    /// [`TenantError::Gone`].
    pub fn usage(&self) -> Result<u64, TenantError> {
        Ok(self.to_bytes(self.lock()?.engine.usage(self.id)))
    }

    /// The most bytes that were ever charged at a time: `memory.peak`.
    ///
    /// # Errors
    /// [`TenantError::Gone`].
    pub fn peak(&self) -> Result<u64, TenantError> {
        Ok(self.to_bytes(self.lock()?.engine.peak(self.id)))
    }

    /// Bytes of pages that it and those below have in swap, as they were before compression:
    /// `memory.swap.current`. What the compressed pages take is part of [`usage`](Tenant::usage).
    ///
    /// # Errors
    /// [`TenantError::Gone`].
    pub fn swap_usage(&self) -> Result<u64, TenantError> {
        Ok(self.to_bytes(self.lock()?.engine.swap_usage(self.id)))
    }

    /// Swap usage of this tenant and its descendants: pages, and the memory they occupy compressed.
    ///
    /// # Errors
    /// [`TenantError::Gone`].
    pub fn swap_stat(&self) -> Result<SwapStat, TenantError> {
        let (stores, slots) = {
            let state = self.lock()?;
            let within = |group| state.engine.is_within(group, self.id);
            (state.swaps.all(within), state.swaps.slots_of(within))
        };
        Ok(swap::sum(&stores, slots, self.pool().page_shift))
    }

    /// Clean pages of files that this tenant and its descendants have compressed.
    ///
    /// # Errors
    /// [`TenantError::Gone`].
    pub fn zcache_stat(&self) -> Result<ZcacheStat, TenantError> {
        let caches = {
            let state = self.lock()?;
            state.zcaches.every(|group| state.engine.is_within(group, self.id))
        };
        Ok(ZcacheStat::of(&caches, self.pool().page_shift))
    }

    /// Counters and sizes of it and those below; `Display` is the text of `memory.stat`. Cost:
    /// O(tenants below).
    ///
    /// # Errors
    /// [`TenantError::Gone`].
    pub fn stat(&self) -> Result<MemoryStat, TenantError> {
        let kept = Kept::of(self.pool(), self.id);
        Ok(kept.among(self.lock()?.engine.stat(self.id)))
    }

    /// Limit events of it and those below; `Display` is the text of `memory.events`.
    ///
    /// # Errors
    /// [`TenantError::Gone`].
    pub fn events(&self) -> Result<MemcgEvents, TenantError> {
        Ok(self.lock()?.engine.limit_events(self.id))
    }

    /// The text of one of the kernel's files.
    ///
    /// ```
    /// # use lowtide::{Size, Pager, TenantFile};
    /// # let pager = Pager::builder().max(Size::mib(8)).build()?;
    /// let tenant = pager.tenant("a").max(Size::mib(2)).create()?;
    /// assert_eq!(tenant.text(TenantFile::Max)?, "2097152\n");
    /// assert_eq!(tenant.text(TenantFile::High)?, "max\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`TenantError::Gone`].
    pub fn text(&self, file: TenantFile) -> Result<String, TenantError> {
        let pool = self.pool();
        let is_stat = file == TenantFile::Stat;
        let kept = if is_stat { Kept::of(pool, self.id) } else { Kept::default() };
        Ok(file.text(&mut *self.lock()?, self.id, pool, kept))
    }
}

impl PartialEq for Tenant {
    /// Whether both are the same tenant of the same pager.
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && Arc::ptr_eq(&self.pager.inner, &other.pager.inner)
    }
}

impl Eq for Tenant {}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenant").field("id", &self.id).finish_non_exhaustive()
    }
}
