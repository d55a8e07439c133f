//! One budget for several processes: the table of `lowtide run` (`lowtide-preload/shares.rs`), and
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
use lowtide::{Pager, Size};
use lowtide_run::shares::Shares;
use pyo3::prelude::*;
use rustix::process::geteuid;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time between two looks at what the others have, alone and beside others.
const ALONE: Duration = Duration::from_millis(100);
const BESIDE: Duration = Duration::from_millis(20);
/// Processes from which on the looks become fewer.
const MANY: usize = 8;
/// A process that brought nothing in for this time wants no more than it has.
const QUIET: Duration = Duration::from_secs(2);
/// A limit comes down by at most this beyond what is in memory.
const STEP: u64 = 8 << 20;
/// A new process waits no longer than this to hear of its part.
const PATIENCE: Duration = Duration::from_secs(1);

/// Descriptors of tables, which children close.
static DESCRIPTORS: Mutex<Vec<i32>> = Mutex::new(Vec::new());

/// A path for a new table. What killed processes leave under such a name is removed by the next
/// `lowtide run`.
pub(crate) fn new_path() -> PathBuf {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let (user, process) = (geteuid().as_raw(), std::process::id());
    let folder = ["/dev/shm", "/tmp"].map(Path::new).into_iter().find(|path| path.is_dir());
    let folder = folder.map_or_else(std::env::temp_dir, Path::to_owned);
    folder.join(format!("lowtide-run-{user}-{process}-{since:x}"))
}

/// This process has a part of a budget.
pub(crate) struct Sharing {
    stop: Mutex<Option<Sender<()>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Sharing {
    /// Takes a part, and keeps the pager's limit at what it is. Returns when the first limit is
    /// set. Where there is no table, the process has the whole budget.
    pub(crate) fn begin(path: &Path, budget: &Arc<Budget>, pager: &Pager) -> Self {
        let (stop, stopped) = channel();
        let (begun, first) = channel();
        let (path, budget, max) = (path.to_owned(), Arc::downgrade(budget), budget.spec.max);
        // The root is the pager: it must not be kept by this thread.
        let root = pager.root();
        let part =
            Part { budget, max: max.bytes(), faults: (0, Instant::now()), part: max.bytes() };
        let run = move || {
            let Ok(shares) = Shares::open(&path) else { return };
            descriptors(|all| all.push(shares.file().as_raw_fd()));
            part.keep(&shares, root, &begun, &stopped);
            shares.leave();
            descriptors(|all| all.retain(|fd| *fd != shares.file().as_raw_fd()));
        };
        let thread = thread::Builder::new().name("lowtide-share".into()).spawn(run).ok();
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

struct Part {
    budget: Weak<Budget>,
    max: u64,
    /// Pages that had come in, and when that changed last.
    faults: (u64, Instant),
    /// What this process may have now.
    part: u64,
}

impl Part {
    fn keep(
        mut self,
        shares: &Shares,
        root: lowtide::Tenant,
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
            let pause = self.look(shares, &tenant);
            drop(tenant);
            let _ = begun.send(());
            if stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    /// Sets the limit; the time until the next look.
    fn look(&mut self, shares: &Shares, root: &lowtide::Tenant) -> Duration {
        let (Ok(stat), Ok(has)) = (root.stat(), root.usage()) else { return ALONE };
        let mapped = self.budget.upgrade().map_or(0, |budget| budget.mapped());
        let now = Instant::now();
        if stat.events.pgfault != self.faults.0 {
            self.faults = (stat.events.pgfault, now);
        }
        let is_quiet = now.duration_since(self.faults.1) >= QUIET;
        let wants = if is_quiet { has } else { mapped.max(has) };
        let (part, sharing) = shares.divide(0, self.max, wants, has);
        let part = part.max(has.saturating_sub(STEP)).min(self.max);
        if part != self.part && root.set_max(Size::new(part)).is_ok() {
            self.part = part;
        }
        if sharing == 1 { ALONE } else { BESIDE * (1 + sharing / MANY) as u32 }
    }
}

fn descriptors<T>(change: impl FnOnce(&mut Vec<i32>) -> T) -> T {
    change(&mut DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// In a child of `fork`: the parts of its parent are its parent's alone.
pub(crate) fn leave_to_parent() {
    for fd in descriptors(std::mem::take) {
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
