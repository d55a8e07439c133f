//! `fork`, which a Python program uses to make workers.
//!
//! A child has one thread, and locks as they were at that moment. So no thread of ours begins or
//! ends, and nothing is opened or adopted, while the process forks: all that does so is [`quiet`],
//! and a handler of `pthread_atfork(3)` closes the gate.
//!
//! ```text
//!   os.fork    budgets in use are shared from now on (`sharing`), and nothing is logged (`log`)
//!   prepare    the gate is closed
//!   parent     the gate is open
//!   child      another generation, another gate
//!   os.fork    in the child: maps are adopted again (`adopted`)
//! ```
//!
//! A child that a library forks finds out by the generation what is not its own, and adopts nothing
//! before it uses it.
//!
//! **Python's lock.** The thread that forks has it, and waits for the gate. So no thread in the
//! gate may wait for Python's lock: exceptions that are made there are made without it.
//!
//! # Safety
//!
//! Handlers of `pthread_atfork(3)` are registered. Python does not unload extension modules.

use crate::{adopted, budget, log, mirror, sharing};
use pyo3::prelude::*;
use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{MutexGuard, Once, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Grows by one in each child.
static GENERATION: AtomicU64 = AtomicU64::new(0);
/// The gate of this process. Leaked: a child gets another.
static GATE: AtomicPtr<RwLock<()>> = AtomicPtr::new(ptr::null_mut());

/// The gate, closed, and the one lock that is taken outside of it.
type Closed = (RwLockWriteGuard<'static, ()>, MutexGuard<'static, Vec<i32>>);

thread_local! {
    /// How often this thread is in the gate.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// What this thread holds while it forks.
    static CLOSED: RefCell<Option<Closed>> = const { RefCell::new(None) };
}

/// The generation of this process: another one in each child.
pub(crate) fn generation() -> u64 {
    GENERATION.load(Ordering::Acquire)
}

fn new_gate() -> *mut RwLock<()> {
    Box::into_raw(Box::new(RwLock::new(())))
}

fn gate() -> &'static RwLock<()> {
    // SAFETY: set by `watch` before anything else runs, and never freed.
    unsafe { &*GATE.load(Ordering::Acquire) }
}

/// While this lives, the process does not fork. The thread does not wait for Python's lock.
pub(crate) struct Quiet(Option<RwLockReadGuard<'static, ()>>);

/// See [`Quiet`]. May be nested.
pub(crate) fn quiet() -> Quiet {
    let is_first = DEPTH.replace(DEPTH.get() + 1) == 0;
    // The thread that forks has closed the gate itself.
    let is_closed_here = CLOSED.with_borrow(Option::is_some);
    let enter = || gate().read().unwrap_or_else(PoisonError::into_inner);
    Quiet((is_first && !is_closed_here).then(enter))
}

impl Drop for Quiet {
    fn drop(&mut self) {
        drop(self.0.take());
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Does what waits for threads of ours where Python drops an object: its lock is held there, and
/// given up meanwhile.
pub(crate) fn without_pythons_lock(work: impl FnOnce() + Send) {
    Python::attach(|py| py.detach(work));
}

extern "C" fn prepare() {
    let gate = gate().write().unwrap_or_else(PoisonError::into_inner);
    CLOSED.set(Some((gate, sharing::descriptors())));
}

extern "C" fn in_parent() {
    CLOSED.take();
}

extern "C" fn in_child() {
    CLOSED.take();
    GENERATION.fetch_add(1, Ordering::AcqRel);
    // Threads that are not here may wait for the other one.
    GATE.store(new_gate(), Ordering::Release);
    log::in_child();
    mirror::in_child();
}

/// From now on the process forks only while the gate is closed, and children know what they are.
pub(crate) fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        GATE.store(new_gate(), Ordering::Release);
        // SAFETY: functions of this kind, in a library that is never unloaded.
        unsafe { libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child)) };
    });
}

/// For `os.register_at_fork(before=...)`: what the child will use is shared with it.
#[pyfunction]
pub(crate) fn before_fork(py: Python<'_>) {
    py.detach(|| {
        budget::share_all();
        log::pause();
    });
}

/// For `os.register_at_fork(after_in_parent=...)`.
#[pyfunction]
pub(crate) fn after_fork_in_parent(py: Python<'_>) {
    py.detach(log::resume);
}

/// For `os.register_at_fork(after_in_child=...)`: adopts what the child inherited. Returns what
/// could not be adopted, and why.
#[pyfunction]
pub(crate) fn after_fork_in_child(py: Python<'_>) -> Vec<String> {
    py.detach(|| {
        let mut problems = adopted::adopt_inherited();
        problems.extend(mirror::place_inherited());
        problems
    })
}
