//! What is global, in a process that forks (see *Records* in the parent module).
//!
//! A child has the thread that forked, and no other: a thread that had a lock, or ran a look for
//! others, is not there to end it. So the child leaves both where they are and gets its own.

use super::{Registry, Slots, own_records};
use crate::rounds::Rounds;
use crate::sync::lock;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard};

/// One of a process. Leaked, since any thread may use it at any time.
struct OfProcess<T: 'static>(AtomicPtr<T>);

impl<T> OfProcess<T> {
    const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// That of this process, made with `new` if it is the first use.
    fn get(&self, new: impl FnOnce() -> T) -> &'static T {
        let mut there = self.0.load(Ordering::Acquire);
        if there.is_null() {
            let ours = Box::into_raw(Box::new(new()));
            let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
            there = match self.0.compare_exchange(there, ours, success, failure) {
                Ok(_) => ours,
                Err(first) => {
                    // SAFETY: made above, and no other thread has seen it.
                    drop(unsafe { Box::from_raw(ours) });
                    first
                }
            };
        }
        // SAFETY: made here or in `put`, and never freed since it could be seen.
        unsafe { &*there }
    }

    /// Another one, or none until the first use.
    fn put(&self, other: Option<T>) {
        let other = other.map_or(ptr::null_mut(), |other| Box::into_raw(Box::new(other)));
        self.0.store(other, Ordering::Release);
    }
}

static REGISTRY: OfProcess<Mutex<Registry>> = OfProcess::new();
/// The looks at all slots that threads share.
static ROUNDS: OfProcess<Rounds<Slots>> = OfProcess::new();

/// The registry of this process, locked.
pub(super) fn registry() -> MutexGuard<'static, Registry> {
    lock(REGISTRY.get(Mutex::default))
}

/// The shared looks of this process.
pub(super) fn rounds() -> &'static Rounds<Slots> {
    ROUNDS.get(Rounds::default)
}

extern "C" fn in_child() {
    // Guards of other threads are of pages that the child does not use.
    let registry = Registry { all: own_records().collect(), ..Registry::default() };
    REGISTRY.put(Some(Mutex::new(registry)));
    ROUNDS.put(None);
}

/// Called before the first thread has a record. Two threads may register the handler both: the
/// second call in a child makes another registry of the same records. A `Once` would be worse: a
/// child that is forked while another thread is in it waits for that thread.
pub(super) fn watch() {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if WATCHED.load(Ordering::Acquire) {
        return;
    }
    // SAFETY: a function of this kind; a library with it is never unloaded, because its threads
    // have destructors of thread-locals.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    WATCHED.store(true, Ordering::Release);
}
