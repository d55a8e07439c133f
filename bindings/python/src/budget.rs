//! A budget: how a pager is built, and what this process has of it: the pager, or a place on a
//! shelf (`shelf.rs`).
//!
//! A Python program passes a budget to its workers, by `fork` or by pickling. Each process builds
//! a pager of its own for it, and those processes divide the budget (`sharing.rs`). Which processes
//! share is a path: a budget that was passed on has the same one.

use crate::errors::{IntoPython, OrRaise};
use crate::forks;
use crate::log;
use crate::per_process::PerProcess;
use crate::sharing::{self, Sharing};
use crate::shelf::Stand;
use lowtide::{Pager, Policy, Size, Stat, SwapOptions, Tenant, TenantError};
use pyo3::PyResult;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// Bytes that a swap file has at most: it takes room on the disk as pages are written.
const SWAP_FILE_MOST: Size = Size::gib(64);

/// What a pager is built of.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) max: Size,
    pub(crate) policy: Policy,
    pub(crate) page_size: usize,
    /// Bytes of memory that compressed pages may take, where memory without a file is wanted.
    pub(crate) swap: Option<Size>,
    /// A folder for what does not compress.
    pub(crate) swap_dir: Option<PathBuf>,
    pub(crate) populate: bool,
    /// The list of the pages that were in memory, and the process that saves it.
    pub(crate) warm: Option<(PathBuf, u32)>,
    /// Whether evicted pages of files may stay compressed.
    pub(crate) zcache: bool,
    /// Whether it is on a shelf: of nothing but a size, for maps.
    pub(crate) on_shelf: bool,
}

/// The memory of a process.
pub(crate) struct Live {
    /// The root of a pager, or a tenant of one that others share.
    root: Tenant,
    sharing: OnceLock<Sharing>,
    /// Dropped last.
    stand: Option<Stand>,
}

/// See the file's header.
pub(crate) struct Budget {
    pub(crate) spec: Spec,
    /// What processes that share it open.
    path: OnceLock<PathBuf>,
    is_shared: AtomicBool,
    is_closed: AtomicBool,
    live: PerProcess<Live>,
    /// Bytes of maps and files that are used under it.
    mapped: AtomicU64,
}

/// All of this process, and those that it has from its parent.
static ALL: Mutex<Vec<Weak<Budget>>> = Mutex::new(Vec::new());

fn all() -> Vec<Arc<Budget>> {
    let _quiet = forks::quiet();
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|budget| budget.strong_count() > 0);
    all.iter().filter_map(Weak::upgrade).collect()
}

/// From now on the budgets in use are shared with the processes that this one makes.
pub(crate) fn share_all() {
    for budget in all() {
        if budget.live.made().is_some() {
            budget.share();
        }
    }
}

/// No process is to count on this one any more: it ends.
pub(crate) fn leave_all() {
    for budget in all() {
        if let Some(live) = budget.live.made()
            && let Some(sharing) = live.sharing.get()
        {
            sharing.leave();
        }
    }
}

impl Budget {
    /// A budget that no other process has.
    pub(crate) fn new(spec: Spec) -> Arc<Self> {
        Self::make(spec, None)
    }

    /// The budget that processes share under a path: one for each process.
    pub(crate) fn shared(spec: Spec, path: PathBuf) -> Arc<Self> {
        let same = all().into_iter().find(|budget| budget.path.get() == Some(&path));
        same.unwrap_or_else(|| Self::make(spec, Some(path)))
    }

    fn make(spec: Spec, path: Option<PathBuf>) -> Arc<Self> {
        let is_shared = AtomicBool::new(path.is_some());
        let path = path.map_or_else(OnceLock::new, OnceLock::from);
        let (is_closed, live, mapped) = Default::default();
        let budget = Arc::new(Self { spec, path, is_shared, is_closed, live, mapped });
        let _quiet = forks::quiet();
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(Arc::downgrade(&budget));
        budget
    }

    /// What this process has of it, made if this is its first use.
    ///
    /// # Errors
    /// That of making it; that the budget is closed.
    pub(crate) fn root(self: &Arc<Self>) -> PyResult<Tenant> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(crate::errors::Closed::new_err("the pager is closed: make another one"));
        }
        let live = self.live.get(|| {
            log::begin();
            self.build()
        })?;
        if self.is_shared.load(Ordering::Acquire) {
            self.begin_sharing(&live);
        }
        Ok(live.root.clone())
    }

    /// Its counters. What is counted for no tenant is that of the shelf.
    ///
    /// # Errors
    /// As [`Budget::root`].
    pub(crate) fn stat(self: &Arc<Self>) -> PyResult<Stat> {
        let root = self.root()?;
        let mut stat = root.pager().stat();
        if self.spec.on_shelf {
            stat.memory = root.stat().or_raise()?;
            stat.dirty = root.dirty().or_raise()?;
            stat.unwritten_bytes = stat.dirty.dirty_bytes + stat.dirty.writeback_bytes;
            stat.budget_bytes = self.spec.max.bytes();
        }
        Ok(stat)
    }

    fn build(&self) -> PyResult<Live> {
        let Spec { max, policy, page_size, swap, swap_dir, populate, warm, zcache, on_shelf } =
            self.spec.clone();
        let sharing = OnceLock::new();
        if on_shelf {
            let stand = Stand::take(max)?;
            return Ok(Live { root: stand.tenant.clone(), sharing, stand: Some(stand) });
        }
        let mut builder = Pager::builder().max(max).policy(policy).base_page(page_size);
        if swap.is_some() || swap_dir.is_some() {
            let mut options = SwapOptions::compressed(swap.unwrap_or(Size::MAX));
            if let Some(dir) = swap_dir {
                options = options.file(dir, SWAP_FILE_MOST);
            }
            builder = builder.swap(options);
        }
        if let Some((path, _)) = warm.filter(|(_, process)| *process == std::process::id()) {
            builder = builder.warm(path);
        }
        let builder = builder.populate(populate).zcache(zcache);
        let pager = builder.build().map_err(IntoPython::into_python)?;
        Ok(Live { root: pager.root(), sharing, stand: None })
    }

    /// Lets other processes have a part of it, from now on: the path by which they do.
    pub(crate) fn share(self: &Arc<Self>) -> PathBuf {
        let path = self.path.get_or_init(sharing::new_path).clone();
        self.is_shared.store(true, Ordering::Release);
        if let Some(live) = self.live.made() {
            self.begin_sharing(&live);
        }
        path
    }

    fn begin_sharing(self: &Arc<Self>, live: &Arc<Live>) {
        let Some(path) = self.path.get() else { return };
        let _quiet = forks::quiet();
        live.sharing.get_or_init(|| Sharing::begin(path, self, live.root.clone()));
    }

    /// Writes everything, and lets the pager go as soon as nothing of it is in use.
    ///
    /// # Errors
    /// What could not be written.
    pub(crate) fn close(&self) -> Result<(), lowtide::CloseError> {
        self.is_closed.store(true, Ordering::Release);
        let Some(live) = self.live.made() else { return Ok(()) };
        let _quiet = forks::quiet();
        if live.stand.is_none() {
            drop(self.live.take());
        }
        // A tenant stays until the last map of it is gone.
        live.root.pager().clone().close()
    }

    /// The root of this process's pager, if that was built.
    pub(crate) fn root_if_made(&self) -> Option<Tenant> {
        self.live.made().map(|live| live.root.clone())
    }

    /// Whether it is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Notes that `bytes` more are in use under it, until the result is dropped.
    pub(crate) fn uses(self: &Arc<Self>, bytes: u64) -> Uses {
        self.mapped.fetch_add(bytes, Ordering::Relaxed);
        Uses(Arc::clone(self), bytes)
    }

    /// Bytes of what is in use under it.
    pub(crate) fn mapped(&self) -> u64 {
        self.mapped.load(Ordering::Relaxed)
    }
}

/// See [`Budget::uses`].
pub(crate) struct Uses(Arc<Budget>, u64);

impl Drop for Uses {
    fn drop(&mut self) {
        self.0.mapped.fetch_sub(self.1, Ordering::Relaxed);
    }
}

/// A tenant, in any process: its place below the root, and its limits.
#[derive(Debug, Default)]
pub(crate) struct Place {
    /// Names from the budget's root on, which has none.
    pub(crate) steps: Vec<Step>,
}

/// A tenant's name and limits.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) name: String,
    /// `min`, `low`, `high` and `max`.
    pub(crate) limits: [Option<Size>; 4],
}

impl Place {
    /// The tenant in this process, made if need be.
    ///
    /// # Errors
    /// Those of making tenants.
    pub(crate) fn find(&self, root: Tenant) -> Result<Tenant, TenantError> {
        let mut tenant = root;
        for Step { name, limits: [min, low, high, max] } in &self.steps {
            let children = tenant.children()?;
            let named = |child: &&Tenant| child.name().is_ok_and(|found| *found == **name);
            if let Some(found) = children.iter().find(named) {
                tenant = found.clone();
                continue;
            }
            let mut builder = tenant.child(name);
            if let Some(min) = *min {
                builder = builder.min(min);
            }
            if let Some(low) = *low {
                builder = builder.low(low);
            }
            if let Some(high) = *high {
                builder = builder.high(high);
            }
            if let Some(max) = *max {
                builder = builder.max(max);
            }
            tenant = builder.create()?;
        }
        Ok(tenant)
    }
}
