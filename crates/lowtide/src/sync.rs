//! The one place that chooses between real threads and a model checker's.
//!
//! [`crate::translation`] and [`crate::hazard`] are protocols between threads that share no lock. A test that runs
//! such a protocol a million times proves little, because the schedule that breaks it may need a store to linger in a
//! buffer for a microsecond. So they are also compiled against [loom](https://docs.rs/loom), which runs a small
//! program under *every* schedule and every stale value that the memory model allows (`--cfg loom`; the proofs are in
//! `tests/loom_*.rs`). Code that is to be proved takes its atomics, locks and cells from here, and from nowhere else.
//!
//! # Asymmetric fences
//!
//! [`light`] and [`heavy`] are [`lowtide_sys::membarrier`]: nothing on the side that runs at every access, a system
//! call on the side that runs once a batch. Loom knows no `membarrier(2)`, so both are full `SeqCst` fences there.
//! That models the real thing for what the protocol uses it for, which is one pattern only: *store, fence, load* on one
//! side against *store, fence, load* on the other, and never `light` against `light`. `membarrier` makes every running
//! thread execute a full fence at some instant during the call. Whichever two instructions of the fast side that
//! instant falls between, the outcome is one of those two `SeqCst` fences also allow:
//!
//! ```text
//!   fast side:     store slot ─── light ─── load entry
//!                            ▲               ▲
//!   the instant:       (a) after the store   (b) before the load        (a), (b) or both are always true
//!                          slow side sees it     fast side sees the slow side's store
//! ```
//!
//! Under loom the fast side's fence sits at `light` for good; in reality it sits wherever the instant falls, but a
//! fence before the store satisfies (b) and one after the load satisfies (a), so no outcome is possible on a machine that
//! the model leaves out. What the model does *not* excuse is the compiler: `light` is a compiler fence.
//!
//! # `SeqCst` accesses
//!
//! Loom treats a `SeqCst` *access* as if it were only acquire and release, and reports races that the language forbids.
//! Where a protocol depends on the single total order of such accesses, [`seqcst_access`] stands between them: a full
//! fence for the checker, and nothing in the product.

#![allow(unused_imports, reason = "each proof includes this file, and uses only what its protocol needs")]

#[cfg(not(loom))]
mod real {
    pub(crate) use lowtide_sys::membarrier::{heavy, light};
    pub(crate) use std::cell::Cell;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
    pub(crate) use std::sync::{Arc, Condvar, Mutex, MutexGuard};
    pub(crate) use std::thread;

    /// Marks the place between two `SeqCst` accesses whose order matters; no instruction. See the file's header.
    #[inline(always)]
    pub(crate) fn seqcst_access() {}

    /// Whether thread-locals are destroyed when nothing global can be reached any more: never.
    #[inline(always)]
    pub(crate) fn is_torn_down() -> bool {
        false
    }

    /// Declares a thread-local with a constant value: where the type needs no drop, reading it is one load.
    macro_rules! thread_cell {
        ($name:ident: $type:ty = $init:expr) => {
            std::thread_local! { static $name: $type = const { $init }; }
        };
    }

    /// Declares a global lock.
    macro_rules! global_mutex {
        ($name:ident: $type:ty = $init:expr) => {
            static $name: std::sync::Mutex<$type> = std::sync::Mutex::new($init);
        };
    }
    pub(crate) use {global_mutex, thread_cell};
}

#[cfg(loom)]
mod modelled {
    pub(crate) use loom::cell::Cell;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
    pub(crate) use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
    pub(crate) use loom::thread;

    /// The fast side's fence.
    pub(crate) fn light() {
        loom::sync::atomic::fence(Ordering::SeqCst);
    }

    /// The slow side's fence.
    pub(crate) fn heavy() {
        loom::sync::atomic::fence(Ordering::SeqCst);
    }

    /// Marks the place between two `SeqCst` accesses whose order matters. See the file's header.
    pub(crate) fn seqcst_access() {
        loom::sync::atomic::fence(Ordering::SeqCst);
    }

    std::thread_local! {
        /// The proof has returned. The model runs all its threads on one real thread, so this is one flag for all.
        static PROVED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }

    /// Whether thread-locals are destroyed when nothing global can be reached any more: those of the proof's main
    /// thread, and those of all threads after a proof has failed.
    pub(crate) fn is_torn_down() -> bool {
        PROVED.get() || std::thread::panicking()
    }

    /// Runs `proof`, which must join the threads that it spawns, under every schedule with at most `preemptions` forced switches;
    /// `None` for every schedule there is.
    #[allow(dead_code, reason = "only proofs call it")]
    pub(crate) fn prove(preemptions: Option<usize>, proof: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = preemptions;
        builder.check(move || {
            PROVED.set(false);
            proof();
            PROVED.set(true);
        });
    }

    /// Declares a thread-local; the model gives each of its threads one in each execution.
    macro_rules! thread_cell {
        ($name:ident: $type:ty = $init:expr) => {
            loom::thread_local! { static $name: $type = $init; }
        };
    }

    /// Declares a global lock, fresh in each execution of the model.
    macro_rules! global_mutex {
        ($name:ident: $type:ty = $init:expr) => {
            loom::lazy_static! { static ref $name: loom::sync::Mutex<$type> = loom::sync::Mutex::new($init); }
        };
    }
    pub(crate) use {global_mutex, thread_cell};
}

#[cfg(loom)]
pub(crate) use modelled::*;
#[cfg(not(loom))]
pub(crate) use real::*;

/// Locks `mutex`, also after a panic of another holder: use it where every critical section leaves the value whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
