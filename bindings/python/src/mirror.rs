//! Mirrors: maps of which the budget is exact.
//!
//! A map of the kernel takes what its program touches, and is trimmed a moment later (`adopted`).
//! In a mirror a page comes in when the runtime has brought it, so there are never more than the
//! budget has. It covers the standard map (`lowtide::map::run::Cover`): Python's object does not
//! know of it. A mirror shows the file as it was when a page came in, and its stores would not
//! reach the file, so it is for maps that are read, of files that cannot change: it holds a read
//! lease on its file, as `lowtide run` does (`lowtide_run::leases`).
//!
//! ```text
//!   mirrored   the memfd, whose faults are served here; the kernel's map is hidden
//!   watched    the file is about to change: the kernel's map, kept within the budget as others
//!   child      a hole; `in_child` uncovers the map; `place_inherited` makes a mirror again
//! ```
//!
//! A child of `fork` has no threads that would serve its faults. So the memfd is not inherited, and
//! the handler of `pthread_atfork(3)` uncovers before `fork` returns: a child that a library forks
//! has the kernel's map, and a child of `os.fork` gets a mirror of its own.
//!
//! **The lease** belongs to a file that is opened for the mirror alone. A child closes what it has
//! of it, or an opener would wait for the child, too. The thread that hears that a lease is wanted
//! gives it up: it needs no lock of Python's.
//!
//! # Safety
//!
//! Python gives an address. The package takes it from a map that it has just made, which no other
//! thread knows yet, and keeps the map until [`Mirror::forget`]. What is mapped there is changed
//! while the process does not fork (`forks`), so a child finds either.

use crate::adopted::own;
use crate::budget::Uses;
use crate::errors::{NotPossible, OrRaise};
use crate::forks;
use crate::identity::{self, Identity};
use crate::pager::Account;
use crate::per_process::PerProcess;
use lowtide::map::run::{Cover, Mapped, Placed, keep_room};
use lowtide::map::{Adopted, MapOptions};
use lowtide_run::leases::{self, Leases, NoLease};
use lowtide_status::printable;
use lowtide_sys::let_go::LetGo;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rustix::fs::{Mode, OFlags, open};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// All mirrors, for children and for the thread that hears of leases. Locked in the gate only.
static ALL: Mutex<BTreeMap<u64, Weak<Kept>>> = Mutex::new(BTreeMap::new());
/// What they cover in this process, and the descriptors that have the leases. Locked in the gate
/// only, so a child finds it free.
static COVERS: Mutex<BTreeMap<u64, (Cover, i32)>> = Mutex::new(BTreeMap::new());
/// The thread that hears of leases, started for the first.
static LEASES: PerProcess<Leases> = PerProcess::new();
static NEXT: AtomicU64 = AtomicU64::new(0);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Addresses, and the part of a file that the kernel's map there has.
#[derive(Clone, Copy)]
struct Place {
    address: usize,
    len: usize,
    offset: u64,
}

/// The kernel's map of the package, which is shared.
fn mapped(file: &LetGo, place: Place) -> Mapped<'_> {
    Mapped { file: file.as_fd(), offset: place.offset, is_private: false }
}

/// The kernel's map cannot come back, and the mirror shows what may not be in the file any more.
fn lost() -> ! {
    eprintln!("lowtide: a map cannot be given back to the kernel (out of memory)");
    std::process::abort()
}

/// In a child of `fork`, before anything of it runs: the holes become maps of the kernel.
pub(crate) fn in_child() {
    for (cover, file) in std::mem::take(&mut *locked(&COVERS)).values() {
        // SAFETY: a hole is there, since mirrors are not inherited.
        let _ = unsafe { cover.take_off() };
        // SAFETY: opened for a mirror of the parent's, which nothing in this process uses.
        unsafe { libc::close(*file) };
    }
    leases::begin_in_child();
}

/// In a child of `os.fork`: makes mirrors of its own. Returns what could not be made, and why.
pub(crate) fn place_inherited() -> Vec<String> {
    all().iter().filter_map(|kept| kept.live().err().map(|error| error.to_string())).collect()
}

fn all() -> Vec<Arc<Kept>> {
    let _quiet = forks::quiet();
    let all = locked(&ALL);
    all.values().filter_map(Weak::upgrade).collect()
}

/// In the thread that hears of leases, and looks: one may be wanted, or a file be emptied.
fn give_up_wanted() {
    all().iter().for_each(|kept| kept.give_up_if_wanted());
}

/// A mirror, with the lease that keeps its file as it is.
struct Mirrored {
    number: u64,
    placed: Placed,
    /// Opened for it.
    file: LetGo,
    place: Place,
    cover: Cover,
}

impl Mirrored {
    /// Replaces the kernel's map.
    fn begin(number: u64, account: (&lowtide::Tenant, &LetGo), place: Place) -> PyResult<Self> {
        let (tenant, of_program) = account;
        let path = format!("/proc/self/fd/{}", of_program.as_fd().as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = open(path, flags, Mode::empty()).map_err(io::Error::from).or_raise()?;
        let file = LetGo::from(file);
        let listening =
            LEASES.get(|| Leases::begin(true, give_up_wanted).ok_or(NoLease::Resources));
        let lease = listening.and_then(|leases| leases.take(file.as_fd()));
        lease.map_err(|why| {
            NotPossible::new_err(format!("a mirror's file must not change: {why}"))
        })?;
        match Self::cover(tenant, &file, place) {
            Ok((placed, cover)) => {
                locked(&COVERS).insert(number, (cover, file.as_fd().as_raw_fd()));
                Ok(Self { number, placed, file, place, cover })
            }
            Err(error) => {
                leases::give_up(file.as_fd());
                Err(error)
            }
        }
    }

    fn cover(t: &lowtide::Tenant, file: &LetGo, place: Place) -> PyResult<(Placed, Cover)> {
        let options = MapOptions::new().tenant(t).offset(place.offset).on_error(|error| {
            // Not by `logging`: the thread may have Python's lock, and ends.
            let error = printable(&error.to_string());
            eprintln!("lowtide: a touch of a page is SIGBUS: {error}");
        });
        let addresses = place.address..place.address + place.len;
        keep_room();
        let mut cover = Cover::NONE;
        let put = |mirror| {
            // SAFETY: the map is the package's, for loads, and its file does not change. The
            // process does not fork.
            cover = unsafe { Cover::put(mirror, mapped(file, place), lost) }?;
            Ok(())
        };
        // SAFETY: as above. The file does not change before the lease is given up, and the map
        // stays until `end`.
        let placed = unsafe { options.serve(t.pager(), file.as_fd(), addresses, put) };
        Ok((placed.or_raise()?, cover))
    }

    /// The map is the kernel's when this returns, and the file may change.
    fn end(self) {
        // Uncovering does not fail.
        let _ = self.placed.end(|| {
            // SAFETY: covered when it began.
            unsafe { self.cover.take_off_surely(mapped(&self.file, self.place), lost) };
            Ok(())
        });
        locked(&COVERS).remove(&self.number);
        leases::give_up(self.file.as_fd());
    }
}

/// What there is of a map in this process.
struct Live {
    mirrored: Mutex<Option<Mirrored>>,
    /// The kernel's map, kept within the budget since the file may change.
    watched: Mutex<Option<Adopted>>,
}

/// A map, in any process that has it.
struct Kept {
    number: u64,
    account: Account,
    file: Arc<LetGo>,
    place: Place,
    /// The file was as it is when the map was made: where it may change later, it is watched.
    was_mirrored: AtomicBool,
    is_over: AtomicBool,
    live: PerProcess<Live>,
    _uses: Uses,
}

impl Kept {
    fn begin(
        account: &Account,
        file: &Arc<LetGo>,
        place: Place,
        was_mirrored: bool,
    ) -> PyResult<Arc<Self>> {
        let _quiet = forks::quiet();
        let place = Place { len: place.len.next_multiple_of(rustix::param::page_size()), ..place };
        let kept = Arc::new(Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            account: account.clone(),
            file: Arc::clone(file),
            place,
            was_mirrored: AtomicBool::new(was_mirrored),
            is_over: AtomicBool::new(false),
            live: PerProcess::new(),
            _uses: account.budget.uses(place.len as u64),
        });
        kept.live()?;
        locked(&ALL).insert(kept.number, Arc::downgrade(&kept));
        kept.give_up_if_wanted();
        Ok(kept)
    }

    /// What this process has of it, made if need be.
    fn live(&self) -> PyResult<Arc<Live>> {
        if let Some(live) = self.live.made() {
            return Ok(live);
        }
        // Outside of the closure: a budget makes something for this process, too.
        let tenant = self.account.tenant()?;
        self.live.get(|| {
            // Looked at under the lock that `end` takes after it was set.
            if self.is_over.load(Ordering::Acquire) {
                return Err(PyValueError::new_err("the map is closed"));
            }
            let (mirrored, watched) =
                match Mirrored::begin(self.number, (&tenant, &self.file), self.place) {
                    Ok(mirrored) => (Some(mirrored), None),
                    Err(_) if self.was_mirrored.load(Ordering::Acquire) => {
                        (None, Some(self.watch(&tenant)?))
                    }
                    Err(error) => return Err(error),
                };
            self.was_mirrored.store(true, Ordering::Release);
            Ok(Live { mirrored: Mutex::new(mirrored), watched: Mutex::new(watched) })
        })
    }

    /// Keeps the kernel's map within the budget.
    fn watch(&self, tenant: &lowtide::Tenant) -> PyResult<Adopted> {
        let Place { address, len, offset } = self.place;
        let options = MapOptions::new().tenant(tenant).offset(offset);
        let start = address as *const u8;
        // SAFETY: the package's map of this file is there, without the right to store, and stays
        // until `end`.
        unsafe { options.adopt(tenant.pager(), self.file.as_fd(), start, len) }.or_raise()
    }

    /// If another process, or this one, waits for the lease, the map becomes the kernel's, and the
    /// lease is given up.
    fn give_up_if_wanted(&self) {
        let _quiet = forks::quiet();
        let Some(live) = self.live.made() else { return };
        let mut mirrored = locked(&live.mirrored);
        if mirrored.as_ref().is_none_or(|mirrored| leases::is_held(mirrored.file.as_fd())) {
            return;
        }
        if let Some(mirrored) = mirrored.take() {
            mirrored.end();
        }
        match self.account.tenant().and_then(|tenant| self.watch(&tenant)) {
            Ok(adopted) => *locked(&live.watched) = Some(adopted),
            Err(error) => {
                let error = printable(&error.to_string());
                eprintln!("lowtide: a map is not kept within its budget: {error}");
            }
        }
    }

    /// When this returns the map is the kernel's, and may go.
    fn end(&self) {
        let _quiet = forks::quiet();
        self.is_over.store(true, Ordering::Release);
        locked(&ALL).remove(&self.number);
        let Some(live) = self.live.take() else { return };
        if let Some(mirrored) = locked(&live.mirrored).take() {
            mirrored.end();
        }
        if let Some(adopted) = locked(&live.watched).take() {
            adopted.forget(adopted.addresses());
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.end();
    }
}

/// A map of a file that was replaced by a mirror. It has the methods of `Adopted`.
#[pyclass(module = "lowtide._lowtide", frozen)]
pub(crate) struct Mirror {
    account: Account,
    /// A descriptor of our own: the program may close its one.
    file: Arc<LetGo>,
    offset: u64,
    kept: Mutex<Option<Arc<Kept>>>,
}

impl Mirror {
    fn kept(&self) -> Option<Arc<Kept>> {
        locked(&self.kept).clone()
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        let kept = locked(&self.kept).take();
        // Not by dropping it: the thread that hears of leases may have it for a moment longer, and
        // the memory goes when this returns.
        forks::without_pythons_lock(|| kept.iter().for_each(|kept| kept.end()));
    }
}

#[pymethods]
impl Mirror {
    /// Replaces the map of `len` bytes at an address, of the file of a descriptor from `offset` on.
    /// An `OSError` says why the file may change, so that there is no mirror.
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
        let file = own(fd)?;
        let place = Place { address, len, offset };
        let kept = py.detach(|| Kept::begin(&account, &file, place, false))?;
        Ok(Self { account, file, offset, kept: Mutex::new(Some(kept)) })
    }

    /// The map is the kernel's when this returns, and may go.
    fn forget(&self, py: Python<'_>) {
        py.detach(|| {
            let kept = locked(&self.kept).take();
            if let Some(kept) = kept {
                kept.end();
            }
        });
    }

    /// Replaces the map at other addresses, after it was forgotten.
    fn adopt_at(&self, py: Python<'_>, address: usize, len: usize) -> PyResult<()> {
        py.detach(|| {
            let place = Place { address, len, offset: self.offset };
            let kept = Kept::begin(&self.account, &self.file, place, true)?;
            *locked(&self.kept) = Some(kept);
            Ok(())
        })
    }

    /// Says whether pages will be read at random: it is about the whole map.
    fn advise(&self, py: Python<'_>, random: bool) -> PyResult<()> {
        let Some(kept) = self.kept() else { return Ok(()) };
        py.detach(|| {
            let live = kept.live()?;
            if let Some(mirrored) = &*locked(&live.mirrored) {
                mirrored.placed.advise(random);
            }
            if let Some(adopted) = &*locked(&live.watched) {
                adopted.advise(adopted.addresses(), random);
            }
            Ok(())
        })
    }

    /// A range of the map is soon wanted.
    fn will_need(&self, py: Python<'_>, start: usize, len: usize) -> PyResult<()> {
        let Some(kept) = self.kept() else { return Ok(()) };
        let from = kept.place.address.saturating_add(start);
        let range = from..from.saturating_add(len);
        py.detach(|| {
            let live = kept.live()?;
            if let Some(mirrored) = &*locked(&live.mirrored) {
                mirrored.placed.will_need(range.clone());
            }
            if let Some(adopted) = &*locked(&live.watched) {
                adopted.will_need(range);
            }
            Ok(())
        })
    }

    /// Bytes of memory that it takes.
    #[getter]
    fn resident(&self, py: Python<'_>) -> u64 {
        let Some(kept) = self.kept() else { return 0 };
        py.detach(|| {
            // Not placed for this: a child that a library forked has the kernel's map.
            let Some(live) = kept.live.made() else { return 0 };
            let mirrored = locked(&live.mirrored).as_ref().map(|one| one.placed.memory_bytes());
            let watched = || locked(&live.watched).as_ref().map(Adopted::resident_bytes);
            mirrored.or_else(watched).unwrap_or(0)
        })
    }

    /// Whether the budget is exact now: until the file is opened for writing, or cut.
    #[getter]
    fn is_exact(&self, py: Python<'_>) -> bool {
        let Some(kept) = self.kept() else { return false };
        py.detach(|| kept.live.made().is_some_and(|live| locked(&live.mirrored).is_some()))
    }

    /// Which file it is.
    #[getter]
    fn file(&self) -> PyResult<Identity> {
        identity::of_file(self.file.as_fd()).or_raise()
    }

    /// Whether it is in force.
    fn __bool__(&self) -> bool {
        locked(&self.kept).is_some()
    }
}
