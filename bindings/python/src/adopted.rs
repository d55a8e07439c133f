//! Mappings of the program that were taken over.
//!
//! The mapping is Python's own: a `mmap.mmap`, or what a library has mapped. Here it is watched,
//! and kept within its budget. Code that unmaps it, or puts something else there, calls
//! [`Adopted::forget`] first: for maps of `lowtide.mmap` that is the map itself, which drops this
//! object before its memory goes.
//!
//! A child of `fork` inherits the mapping, and adopts it for its own pager before `fork` returns
//! there ([`adopt_inherited`]).
//!
//! # Safety
//!
//! Python gives an address. The package takes it from the object that made the mapping, and keeps
//! the object alive for as long as this lives.

use crate::budget::Uses;
use crate::errors::OrRaise;
use crate::forks;
use crate::identity::{self, Identity};
use crate::pager::Account;
use crate::per_process::PerProcess;
use lowtide::map::MapOptions;
use lowtide_sys::let_go::{LetGo, let_go};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, getrlimit};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Everything that is adopted, for children.
static ALL: Mutex<BTreeMap<u64, Weak<Kept>>> = Mutex::new(BTreeMap::new());
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A mapping, in any process that has it.
struct Kept {
    number: u64,
    source: Source,
    address: usize,
    len: usize,
    /// Children have the mapping, too.
    is_inherited: AtomicBool,
    /// It is not to be adopted any more: the memory may be another mapping's.
    is_over: AtomicBool,
    live: PerProcess<lowtide::map::Adopted>,
    _uses: Uses,
}

/// Which file is mapped, and who pays.
#[derive(Clone)]
struct Source {
    account: Account,
    /// A descriptor of our own: the program may close its one.
    file: Arc<LetGo>,
    offset: u64,
}

/// Of the descriptors that the process may have, this part may be ours: a map without a budget
/// needs one, and the program others.
const PART: u64 = 4;

/// A descriptor of our own of the same file: the program may close its one.
///
/// # Errors
/// `EMFILE` past our part.
pub(crate) fn own(fd: i32) -> PyResult<Arc<LetGo>> {
    // SAFETY: borrowed for the next call, which says so if there is no such descriptor.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd.max(0)) };
    let own = fcntl_dupfd_cloexec(borrowed, 3).map_err(io::Error::from).or_raise()?;
    let own = LetGo::from(own);
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / PART;
    // The kernel gives out the lowest number that is free.
    if u64::try_from(own.as_fd().as_raw_fd()).is_ok_and(|number| number > most) {
        return Err(io::Error::from_raw_os_error(libc::EMFILE)).or_raise();
    }
    Ok(Arc::new(own))
}

/// Closes a descriptor, without a lock that the program has on its file.
#[pyfunction]
pub(crate) fn close(py: Python<'_>, fd: i32) {
    // SAFETY: the package has opened it, and gives it away.
    let descriptor = unsafe { OwnedFd::from_raw_fd(fd.max(0)) };
    py.detach(|| let_go(descriptor));
}

/// Device and number of an open file, as mappings have them.
#[pyfunction]
pub(crate) fn as_mapped(py: Python<'_>, fd: i32) -> PyResult<(u64, u64)> {
    // SAFETY: borrowed for the next call, which says so if there is no such descriptor.
    let file = unsafe { BorrowedFd::borrow_raw(fd.max(0)) };
    py.detach(|| identity::as_mapped(file)).or_raise()
}

impl Kept {
    fn begin(source: Source, address: usize, len: usize) -> PyResult<Arc<Self>> {
        let _quiet = forks::quiet();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let _uses = source.account.budget.uses(len as u64);
        let (is_inherited, is_over) = (AtomicBool::new(true), AtomicBool::new(false));
        let live = PerProcess::default();
        let kept = Self { number, source, address, len, is_inherited, is_over, live, _uses };
        kept.adopt()?;
        let kept = Arc::new(kept);
        all().insert(number, Arc::downgrade(&kept));
        Ok(kept)
    }

    /// Adopts it for this process, unless it is.
    fn adopt(&self) -> PyResult<Arc<lowtide::map::Adopted>> {
        if let Some(adopted) = self.live.made() {
            return Ok(adopted);
        }
        // Outside of the closure: a budget makes something for this process, too.
        let tenant = self.source.account.tenant()?;
        self.live.get(|| {
            // Looked at under the lock that `end` takes after it was set.
            if self.is_over.load(Ordering::Acquire) {
                return Err(PyValueError::new_err("the map is closed"));
            }
            let options = MapOptions::new().tenant(&tenant).offset(self.source.offset);
            let (file, start) = (self.source.file.as_fd(), self.address as *const u8);
            // SAFETY: the package promises that a shared mapping of this file is there, or a
            // private one without the right to store, and that it stays until `end`.
            unsafe { options.adopt(tenant.pager(), file, start, self.len) }.or_raise()
        })
    }

    /// When this returns the memory may go.
    fn end(&self) {
        let _quiet = forks::quiet();
        self.is_over.store(true, Ordering::Release);
        all().remove(&self.number);
        if let Some(adopted) = self.live.take() {
            // Another thread may have it for a moment longer.
            adopted.forget(adopted.addresses());
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.end();
    }
}

fn all() -> MutexGuard<'static, BTreeMap<u64, Weak<Kept>>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// In a child of `fork`: adopts what it inherited. Returns what could not be adopted, and why.
pub(crate) fn adopt_inherited() -> Vec<String> {
    crate::sharing::leave_to_parent();
    let here: Vec<Arc<Kept>> = all().values().filter_map(Weak::upgrade).collect();
    let is_here = |kept: &&Arc<Kept>| kept.is_inherited.load(Ordering::Acquire);
    let adopt = |kept: &Arc<Kept>| kept.adopt().err().map(|error| error.to_string());
    here.iter().filter(is_here).filter_map(adopt).collect()
}

/// A mapping that is kept within a budget.
#[pyclass(module = "lowtide._lowtide", frozen)]
pub(crate) struct Adopted {
    source: Source,
    kept: Mutex<Option<Arc<Kept>>>,
}

impl Adopted {
    fn slot(&self) -> MutexGuard<'_, Option<Arc<Kept>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> Option<Arc<Kept>> {
        self.slot().clone()
    }
}

/// Whether the pages of a file are its only place, so that none can go: tmpfs and others.
#[pyfunction]
pub(crate) fn lives_in_memory(fd: i32) -> bool {
    // SAFETY: borrowed for the next call, which says so if there is no such descriptor.
    lowtide_run::local::lives_in_memory(unsafe { BorrowedFd::borrow_raw(fd.max(0)) })
}

impl Drop for Adopted {
    fn drop(&mut self) {
        let kept = self.slot().take();
        // Another thread may have it for a moment longer, and the memory goes when this returns.
        forks::without_pythons_lock(|| kept.iter().for_each(|kept| kept.end()));
    }
}

#[pymethods]
impl Adopted {
    /// Adopts `len` bytes at an address, where the file of a descriptor is mapped from `offset` on.
    #[new]
    fn new(
        py: Python<'_>,
        address: usize,
        len: usize,
        fd: i32,
        offset: u64,
        budget: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let account = Account::of(budget)?;
        let source = Source { account, file: own(fd)?, offset };
        let kept = py.detach(|| Kept::begin(source.clone(), address, len))?;
        Ok(Self { source, kept: Mutex::new(Some(kept)) })
    }

    /// Nothing of it is evicted any more: when this returns the memory may go.
    fn forget(&self, py: Python<'_>) {
        py.detach(|| {
            let kept = self.slot().take();
            if let Some(kept) = kept {
                kept.end();
            }
        });
    }

    /// Adopts the mapping at other addresses, after it was forgotten.
    fn adopt_at(&self, py: Python<'_>, address: usize, len: usize) -> PyResult<()> {
        py.detach(|| {
            let kept = Kept::begin(self.source.clone(), address, len)?;
            *self.slot() = Some(kept);
            Ok(())
        })
    }

    /// Says whether pages will be read at random. Returns false where the kernel reads ahead.
    fn advise(&self, py: Python<'_>, start: usize, len: usize, random: bool) -> PyResult<bool> {
        let Some(kept) = self.kept() else { return Ok(false) };
        py.detach(|| {
            let from = kept.address.saturating_add(start);
            Ok(kept.adopt()?.advise(from..from.saturating_add(len), random))
        })
    }

    /// Whether children have the mapping (not after `MADV_DONTFORK`).
    fn inherit(&self, inherited: bool) {
        if let Some(kept) = self.kept() {
            kept.is_inherited.store(inherited, Ordering::Release);
        }
    }

    /// Bytes of the file that are known to be in memory.
    #[getter]
    fn resident(&self, py: Python<'_>) -> PyResult<u64> {
        let Some(kept) = self.kept() else { return Ok(0) };
        py.detach(|| Ok(kept.adopt()?.resident_bytes()))
    }

    /// The first address, and the bytes.
    #[getter]
    fn addresses(&self) -> (usize, usize) {
        self.kept().map_or((0, 0), |kept| (kept.address, kept.len))
    }

    /// Which file it is.
    #[getter]
    fn file(&self) -> PyResult<Identity> {
        Ok(identity::of_file(self.source.file.as_fd())?)
    }

    /// The offset in the file that the first address has.
    #[getter]
    fn offset(&self) -> u64 {
        self.source.offset
    }

    /// Whether it is in force.
    fn __bool__(&self) -> bool {
        self.slot().is_some()
    }
}
