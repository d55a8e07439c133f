//! One budget for several processes: the table of `lowtide run` (`lowtide-run`, `shares.rs`), and
//! the thread that looks at it.
//!
//! The table's file is open here as any other, so a child of `fork` has its descriptor, and with it
//! the locks that say that the parent lives. The child closes it ([`leave_to_parent`]).
//!
//! # Safety
//!
//! A child closes descriptors whose owners it has forgotten: no other code there has them.

use crate::budget::{self, Budget};
use crate::log;
use lowtide::{Size, Tenant};
use lowtide_run::part::{Part, Seen, pause};
use lowtide_run::place;
use lowtide_run::shares::Shares;
use pyo3::prelude::*;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// A new process waits no longer than this to hear of its part.
const PATIENCE: Duration = Duration::from_secs(1);

/// Descriptors of tables, which children close.
static DESCRIPTORS: Mutex<Vec<i32>> = Mutex::new(Vec::new());

/// A path for a new table. Where there is no folder for one, it leads nowhere: nothing is shared.
pub(crate) fn new_path() -> PathBuf {
    place::new_path().unwrap_or_default()
}

/// This process has a part of a budget.
pub(crate) struct Sharing {
    stop: Mutex<Option<Sender<()>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Sharing {
    /// Takes a part, and keeps the pager's limit at what it is. Returns when the first limit is
    /// set. Where there is no table, the process has the whole budget.
    pub(crate) fn begin(path: &Path, budget: &Arc<Budget>, root: Tenant) -> Self {
        let (stop, stopped) = channel();
        let (begun, first) = channel();
        let (path, budget, max) = (path.to_owned(), Arc::downgrade(budget), budget.spec.max);
        let limit = Limit { budget, part: Part::whole(0, max.bytes()) };
        let run = move || {
            // No process forks between a descriptor and its place in the list.
            let mut listed = descriptors();
            let Ok(mut shares) = Shares::open(&path) else { return };
            listed.push(shares.file().as_raw_fd());
            drop(listed);
            // It has the pager, and must not be kept by this thread.
            limit.keep(&mut shares, root, &begun, &stopped);
            shares.leave();
            // In the list as long as it is open: a child closes what is in the list.
            let mut listed = descriptors();
            listed.retain(|fd| *fd != shares.file().as_raw_fd());
            drop(shares);
        };
        let thread = lowtide_sys::threads::spawn("lowtide-share", run).ok();
        let _ = first.recv_timeout(PATIENCE);
        Self { stop: Mutex::new(Some(stop)), thread: Mutex::new(thread) }
    }

    /// Gives the part up, before the process ends.
    pub(crate) fn leave(&self) {
        drop(self.stop.lock().unwrap_or_else(PoisonError::into_inner).take());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

/// The limit of this process's pager, and the part that it follows.
struct Limit {
    budget: Weak<Budget>,
    part: Part,
}

impl Limit {
    fn keep(
        mut self,
        shares: &mut Shares,
        root: Tenant,
        begun: &Sender<()>,
        stopped: &Receiver<()>,
    ) {
        let mut root = Some(root);
        loop {
            // The pager is this thread's for a moment only.
            let tenant = match root.take() {
                Some(first) => Some(first),
                None => self.budget.upgrade().and_then(|budget| budget.root_if_made()),
            };
            let Some(tenant) = tenant else { return };
            let until = self.look(shares, &tenant);
            drop(tenant);
            let _ = begun.send(());
            if stopped.recv_timeout(until) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    /// Sets the limit; the time until the next look.
    fn look(&mut self, shares: &mut Shares, root: &Tenant) -> Duration {
        let mut listed = descriptors();
        let before = shares.file().as_raw_fd();
        if shares.follow() {
            listed.retain(|fd| *fd != before);
            listed.push(shares.file().as_raw_fd());
        }
        drop(listed);
        let (Ok(stat), Ok(has)) = (root.stat(), root.usage()) else { return pause(1) };
        let could_use = self.budget.upgrade().map_or(0, |budget| budget.mapped());
        let seen = Seen { faults: stat.events.pgfault, has, could_use };
        let set = |bytes| root.set_max(Size::new(bytes)).is_ok();
        pause(self.part.look(shares, seen, set))
    }
}

/// Threads of budgets that begin and end change them outside of the gate, because the thread that
/// ends one may be in it and waits for them. So a process forks with this lock (`forks`).
pub(crate) fn descriptors() -> MutexGuard<'static, Vec<i32>> {
    DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// For tests: a thread has the lock for a while, as those have for a moment that end a part.
#[cfg(debug_assertions)]
#[pyfunction]
pub(crate) fn hold_descriptors(py: Python<'_>, seconds: f64) {
    let (has, had) = channel();
    std::thread::spawn(move || {
        let _held = descriptors();
        let _ = has.send(());
        std::thread::sleep(Duration::from_secs_f64(seconds));
    });
    py.detach(move || had.recv()).unwrap_or_default();
}

/// In a child of `fork`: the parts of its parent are its parent's alone.
pub(crate) fn leave_to_parent() {
    for fd in std::mem::take(&mut *descriptors()) {
        // SAFETY: a descriptor of the parent's table, which nothing in the child uses.
        unsafe { libc::close(fd) };
    }
}

/// For `atexit`.
#[pyfunction]
pub(crate) fn leave_all(py: Python<'_>) {
    py.detach(|| {
        budget::leave_all();
        log::end();
    });
}
