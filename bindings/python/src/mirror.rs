//! Mirrors: maps of which the budget is exact.
//!
//! A map of the kernel takes what its program touches, and is trimmed a moment later (`adopted`).
//! In a mirror a page comes in when the runtime has brought it, so there are never more than the
//! budget has. Its memory is a memfd that takes the addresses of the standard map: Python's object
//! does not know of it. A mirror shows the file as it was when a page came in, and its stores would
//! not reach the file, so it is for maps that are read.
//!
//! ```text
//!   placed     a memfd, whose faults are served here
//!   ended      the kernel's map of the file, as it was before
//!   child      a hole; `in_child` maps the file there; `place_inherited` places a mirror again
//! ```
//!
//! A child of `fork` has no threads that would serve its faults. So the memfd is not inherited, and
//! the handler of `pthread_atfork(3)` fills the hole before `fork` returns: a child that a library
//! forks has the kernel's map, and a child of `os.fork` gets a mirror of its own.
//!
//! # Safety
//!
//! Python gives an address. The package takes it from a map that it has just made, which no other
//! thread knows yet, and keeps the map until [`Mirror::forget`]. What is mapped there is changed
//! while the process does not fork (`forks`), so a child finds either.

use crate::budget::Uses;
use crate::errors::OrRaise;
use crate::forks;
use crate::pager::Account;
use crate::per_process::PerProcess;
use lowtide::map::MapOptions;
use lowtide::map::run::Placed;
use lowtide_sys::shared::memfd;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rustix::fs::fstat;
use rustix::io::fcntl_dupfd_cloexec;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// All mirrors, for children.
static ALL: Mutex<BTreeMap<u64, Weak<Kept>>> = Mutex::new(BTreeMap::new());
/// Where they are placed in this process. Its lock is taken in the gate only, so a child finds it
/// free.
static PLACES: Mutex<BTreeMap<u64, Place>> = Mutex::new(BTreeMap::new());
static NEXT: AtomicU64 = AtomicU64::new(0);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Addresses, and the part of a file that the kernel's map there has.
#[derive(Clone, Copy)]
struct Place {
    address: usize,
    len: usize,
    file: i32,
    offset: u64,
}

impl Place {
    /// Maps a descriptor there, for loads.
    fn map(&self, file: i32, offset: u64, how: i32) -> io::Result<()> {
        let (at, flags) = (self.address as *mut libc::c_void, libc::MAP_SHARED | how);
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        // SAFETY: at the addresses is the map that the package keeps for this, or what was put in
        // its place here, or a hole in a child.
        let found = unsafe { libc::mmap(at, self.len, libc::PROT_READ, flags, file, offset) };
        if found == at { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// The kernel's map of the file. It takes the place of a whole mapping, so there are not more
    /// of them than before, and it is mapped as it once was.
    fn uncover(&self) -> io::Result<()> {
        self.map(self.file, self.offset, libc::MAP_FIXED)
    }

    /// Puts memory there, which children do not inherit.
    fn cover(&self, memory: &impl AsRawFd) -> io::Result<()> {
        self.map(memory.as_raw_fd(), 0, libc::MAP_FIXED)?;
        let at = self.address as *mut libc::c_void;
        // SAFETY: changes what children have of the mapping that was made above.
        if unsafe { libc::madvise(at, self.len, libc::MADV_DONTFORK) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        self.uncover()?;
        Err(error)
    }
}

/// In a child of `fork`, before anything of it runs: the holes become maps of the kernel.
pub(crate) fn in_child() {
    for place in std::mem::take(&mut *locked(&PLACES)).values() {
        // Where something else is by now it is left alone, as it is not ours.
        let _ = place.map(place.file, place.offset, libc::MAP_FIXED_NOREPLACE);
    }
}

/// In a child of `os.fork`: places mirrors of its own. Returns what could not be placed, and why.
pub(crate) fn place_inherited() -> Vec<String> {
    let here: Vec<Arc<Kept>> = locked(&ALL).values().filter_map(Weak::upgrade).collect();
    here.iter().filter_map(|kept| kept.placed().err().map(|error| error.to_string())).collect()
}

/// A mirror, in any process that has its map.
struct Kept {
    number: u64,
    account: Account,
    file: Arc<OwnedFd>,
    place: Place,
    is_over: AtomicBool,
    live: PerProcess<Placed>,
    _uses: Uses,
}

impl Kept {
    fn begin(
        account: &Account,
        file: &Arc<OwnedFd>,
        offset: u64,
        address: usize,
        len: usize,
    ) -> PyResult<Arc<Self>> {
        let _quiet = forks::quiet();
        let len = len.next_multiple_of(rustix::param::page_size());
        let kept = Arc::new(Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            account: account.clone(),
            file: Arc::clone(file),
            place: Place { address, len, file: file.as_raw_fd(), offset },
            is_over: AtomicBool::new(false),
            live: PerProcess::default(),
            _uses: account.budget.uses(len as u64),
        });
        kept.placed()?;
        locked(&ALL).insert(kept.number, Arc::downgrade(&kept));
        Ok(kept)
    }

    /// That of this process, placed if need be.
    fn placed(&self) -> PyResult<Arc<Placed>> {
        if let Some(placed) = self.live.made() {
            return Ok(placed);
        }
        // Outside of the closure: a budget makes something for this process, too.
        let tenant = self.account.tenant()?;
        self.live.get(|| {
            // Looked at under the lock that `end` takes after it was set.
            if self.is_over.load(Ordering::Acquire) {
                return Err(PyValueError::new_err("the map is closed"));
            }
            let Place { address, len, offset, .. } = self.place;
            let options = MapOptions::new().tenant(&tenant).offset(offset).on_error(|error| {
                // Not by `logging`: the thread may have Python's lock, and ends.
                eprintln!("lowtide: a touch of a page is SIGBUS: {error}");
            });
            let memory = memfd("lowtide", len as u64).or_raise()?;
            self.place.cover(&memory).or_raise()?;
            let (file, addresses) = (self.file.as_fd(), address..address + len);
            // SAFETY: the memory is new and sparse, mapped at these addresses for loads, and not
            // inherited. The thread that made the map is in its constructor, or the only one of a
            // child. The map stays until `end`; the package says that the file must not change.
            match unsafe { options.serve(tenant.pager(), file, memory, addresses) } {
                Ok(placed) => {
                    locked(&PLACES).insert(self.number, self.place);
                    Ok(placed)
                }
                Err(error) => {
                    self.place.uncover().or_raise()?;
                    Err(error).or_raise()
                }
            }
        })
    }

    /// When this returns the map is the kernel's.
    fn end(&self) -> io::Result<()> {
        let _quiet = forks::quiet();
        self.is_over.store(true, Ordering::Release);
        locked(&ALL).remove(&self.number);
        let Some(placed) = self.live.made() else { return Ok(()) };
        placed.end(|| self.place.uncover())?;
        locked(&PLACES).remove(&self.number);
        self.live.take();
        Ok(())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            // Other memory may come to these addresses now, and would be taken for the mirror.
            eprintln!("lowtide: a mirror cannot be taken away: {error}");
            std::process::abort();
        }
    }
}

/// A map of a file that was replaced by a mirror. It has the methods of `Adopted`.
#[pyclass(module = "lowtide._lowtide", frozen)]
pub(crate) struct Mirror {
    account: Account,
    /// A descriptor of our own: the program may close its one.
    file: Arc<OwnedFd>,
    offset: u64,
    kept: Mutex<Option<Arc<Kept>>>,
}

impl Mirror {
    fn kept(&self) -> Option<Arc<Kept>> {
        locked(&self.kept).clone()
    }
}

#[pymethods]
impl Mirror {
    /// Replaces the map of `len` bytes at an address, of the file of a descriptor from `offset` on.
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
        // SAFETY: borrowed for the next call, which says so if there is no such descriptor.
        let borrowed = unsafe { BorrowedFd::borrow_raw(fd.max(0)) };
        let file = Arc::new(fcntl_dupfd_cloexec(borrowed, 3).map_err(io::Error::from).or_raise()?);
        let kept = py.detach(|| Kept::begin(&account, &file, offset, address, len))?;
        Ok(Self { account, file, offset, kept: Mutex::new(Some(kept)) })
    }

    /// The map is the kernel's when this returns, and may go.
    fn forget(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| {
            let kept = locked(&self.kept).take();
            kept.map_or(Ok(()), |kept| kept.end()).or_raise()
        })
    }

    /// Replaces the map at other addresses, after it was forgotten.
    fn adopt_at(&self, py: Python<'_>, address: usize, len: usize) -> PyResult<()> {
        py.detach(|| {
            let kept = Kept::begin(&self.account, &self.file, self.offset, address, len)?;
            *locked(&self.kept) = Some(kept);
            Ok(())
        })
    }

    /// Says whether pages will be read at random: it is about the whole map.
    fn advise(&self, py: Python<'_>, random: bool) -> PyResult<()> {
        let Some(kept) = self.kept() else { return Ok(()) };
        py.detach(|| kept.placed().map(|placed| placed.advise(random)))
    }

    /// A range of the map is soon wanted.
    fn will_need(&self, py: Python<'_>, start: usize, len: usize) -> PyResult<()> {
        let Some(kept) = self.kept() else { return Ok(()) };
        let from = kept.place.address.saturating_add(start);
        py.detach(|| kept.placed().map(|placed| placed.will_need(from..from.saturating_add(len))))
    }

    /// Bytes of memory that it takes.
    #[getter]
    fn resident(&self, py: Python<'_>) -> PyResult<u64> {
        let Some(kept) = self.kept() else { return Ok(0) };
        // Not placed for this: a child that a library forked has the kernel's map.
        py.detach(|| Ok(kept.live.made().map_or(0, |placed| placed.memory_bytes())))
    }

    /// Device and number of the file.
    #[getter]
    fn file(&self) -> PyResult<(u64, u64)> {
        let stat = fstat(&self.file).map_err(io::Error::from).or_raise()?;
        Ok((stat.st_dev, stat.st_ino))
    }

    /// Whether it is in force.
    fn __bool__(&self) -> bool {
        locked(&self.kept).is_some()
    }
}
