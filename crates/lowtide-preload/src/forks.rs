//! What a child of `fork` finds of mappings that are adopted: the program's own in the place of
//! mirrors (`mirrors.rs`), and all of them kept within the budget again (`inherited.rs`), when all
//! handlers have run and `fork` is about to return there.
//!
//! Our handlers are the first that are registered, so before the fork they run last, and after it
//! first: no handler of the program's finds a mirror's addresses empty in a child. To be the first,
//! this library stands in front of the function that registers (`c_library.rs`).
//!
//! Between the handler before the fork and the one after it this thread has the lock of the table
//! of mirrors, so no handler of a signal runs (`quiet.rs`).
//!
//! # Safety
//!
//! The handlers run in the thread that forks, in the order of `pthread_atfork(3)`.

#![allow(unsafe_code)]

use crate::lock::Locked;
use crate::ranges::Entry;
use crate::{c_library, inherited, mirrors, reads, real, state};
use libc::c_int;
use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a thread that forks has meanwhile.
struct Forking {
    covers: Locked<'static>,
    /// What is adopted.
    ranges: Vec<Entry>,
}

struct Place(UnsafeCell<Option<Forking>>);

// SAFETY: touched by the thread that forks, which has the lock of the covers.
unsafe impl Sync for Place {}

static FORKING: Place = Place(UnsafeCell::new(None));

/// What this process has of its parent's mappings, and whether the parent had mirrors, until `fork`
/// returns in it.
struct Inherited(UnsafeCell<(Vec<Entry>, bool)>);

// SAFETY: touched by the only thread of a child: in a handler, and before `fork` returns.
unsafe impl Sync for Inherited {}

static INHERITED: Inherited = Inherited(UnsafeCell::new((Vec::new(), false)));

static REGISTERED: AtomicBool = AtomicBool::new(false);

/// From now on children of `fork` find what they should: registers the handlers, before all others.
pub(crate) fn register() {
    if !REGISTERED.swap(true, Ordering::AcqRel) {
        let object = ptr::null_mut();
        // SAFETY: the functions are of this kind, and live as long as the process: a preloaded
        // library is never unloaded.
        unsafe {
            c_library::register_atfork(Some(before_fork), Some(after_fork), Some(in_child), object);
        }
    }
}

extern "C" fn before_fork() {
    let covers = mirrors::lock_for_fork();
    let ranges = state::get().map(|(state, _)| state.ranges.all()).unwrap_or_default();
    // SAFETY: this thread has the lock.
    unsafe { *FORKING.0.get() = Some(Forking { covers, ranges }) };
}

/// Takes what [`before_fork`] left.
fn forking() -> Option<Forking> {
    // SAFETY: this thread has the lock.
    unsafe { (*FORKING.0.get()).take() }
}

extern "C" fn after_fork() {
    drop(forking());
}

extern "C" fn in_child() {
    let Some(Forking { mut covers, ranges }) = forking() else { return };
    let had_mirrors = mirrors::are_any();
    mirrors::in_child(&mut covers);
    state::note_whole();
    // SAFETY: as above.
    unsafe { *INHERITED.0.get() = (ranges, had_mirrors) };
}

#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn fork() -> c_int {
    // SAFETY: the program's call.
    let child = unsafe { real::fork() };
    if child == 0 {
        // SAFETY: as above.
        let (all, had_mirrors) = std::mem::take(unsafe { &mut *INHERITED.0.get() });
        inherited::begin(&all, had_mirrors);
        reads::start();
    }
    child
}
