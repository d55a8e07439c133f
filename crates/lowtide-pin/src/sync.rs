//! The one place that chooses between real threads and a model checker's.
//!
//! [`crate::translation`] and [`crate::hazard`] are protocols between threads that share no lock. A
//! test that runs such a protocol a million times proves little, because the schedule that breaks
//! it may need a store to linger in a buffer for a microsecond. So they are also compiled against
//! [loom](https://docs.rs/loom), which runs a small program under *every* schedule and every stale
//! value that the memory model allows (`--cfg loom`; the proofs are in `tests/loom_*.rs`). The
//! crate takes its atomics, cells and globals from here, and from nowhere else.
//!
//! # Asymmetric fences
//!
//! [`light`] and [`heavy`] are [`lowtide_sys::membarrier`]: nothing on the side that runs at every
//! access, a system call on the side that runs once a batch. Loom knows no `membarrier(2)`, so both
//! are full `SeqCst` fences there. That models the real thing for what the protocol uses it for,
//! which is one pattern only: *store, fence, load* on one side against *store, fence, load* on the
//! other, and never `light` against `light`. `membarrier` makes every running thread execute a full
//! fence at some instant during the call. Whichever two instructions of the fast side that instant
//! falls between, the outcome is one of those two `SeqCst` fences also allow:
//!
//! ```text
//!   fast side:     store slot ─── light ─── load entry
//!                            ▲               ▲
//!   the instant:       (a) after the store   (b) before the load     (a), (b) or both hold always
//!                          slow side sees it     fast side sees the slow side's store
//! ```
//!
//! Under loom the fast side's fence sits at `light` for good; in reality it sits wherever the
//! instant falls, but a fence before the store satisfies (b) and one after the load satisfies (a),
//! so no outcome is possible on a machine that the model leaves out. What the model does *not*
//! excuse is the compiler: `light` is a compiler fence.
//!
//! [`full`] is a fence for both sides of the same pattern where readers execute one: `full` pairs
//! with `full` and with `heavy`, and *not* with `light`. A `SeqCst` fence in its place would pair
//! with the model's `light`, which in reality is nothing, and the model would not find a thread
//! that executes `full` where it needs `heavy`. So the model's `full` swaps one word, the same in
//! all threads: what came before it in one thread happens before what comes after a later one in
//! another, which is what `SeqCst` fences promise each other.

use std::sync::{Mutex, MutexGuard, PoisonError};

#[cfg(not(loom))]
mod real {

    pub use lowtide_sys::membarrier::is_refused;
    pub(crate) use lowtide_sys::membarrier::light;
    pub(crate) use std::cell::Cell;
    pub(crate) use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

    /// A fence that pairs with itself and with `heavy`.
    #[inline(always)]
    pub(crate) fn full() {
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    /// The slow side's fence. False if the kernel refuses it: then it is unknown what readers do.
    pub(crate) fn heavy() -> bool {
        lowtide_sys::membarrier::heavy().is_ok()
    }

    /// Whether `light` needs no fence instruction in this process. Decided once, forever.
    pub(crate) fn is_asymmetric() -> bool {
        lowtide_sys::membarrier::register() == lowtide_sys::membarrier::Mode::Asymmetric
    }

    /// [`light`] for callers that know that [`is_asymmetric`] holds: only a compiler fence.
    #[inline(always)]
    pub(crate) fn light_if_asymmetric() {
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
    }

    /// Whether thread-locals are destroyed when nothing global can be reached any more: never.
    #[inline(always)]
    pub(crate) const fn is_torn_down() -> bool {
        false
    }

    /// The lock of something global, and a condition for it.
    pub(crate) use std::sync::{Condvar as GlobalCondvar, Mutex as GlobalMutex};

    /// Declares a thread-local with a constant value: where the type needs no drop, reading it is
    /// one load.
    macro_rules! thread_cell {
        ($name:ident: $type:ty = $init:expr) => {
            std::thread_local! { static $name: $type = const { $init }; }
        };
    }
    pub(crate) use thread_cell;
}

#[cfg(loom)]
mod modelled {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    pub(crate) use loom::cell::Cell;
    pub(crate) use loom::sync::atomic::Ordering;
    /// The lock of a [`Global`], and a condition for it.
    pub(crate) use loom::sync::{Condvar as GlobalCondvar, Mutex as GlobalMutex};

    /// Declares an atomic that loom explores completely.
    ///
    /// To find the schedules worth trying, loom compares each access with the *last* access to the
    /// same location. A thread that loads a word and then swaps it has itself made the last access,
    /// which hides that another thread loaded the word before: the schedule in which that load
    /// comes later would never run. So each access here first stores to a second location. All
    /// accesses to that one are stores, and so none hides another; and as it is never loaded, it
    /// orders nothing in the memory model.
    macro_rules! explored_atomic {
        ($name:ident: $value:ty) => {
            #[derive(Debug, Default)]
            pub(crate) struct $name {
                real: loom::sync::atomic::$name,
                accesses: loom::sync::atomic::AtomicBool,
            }

            #[allow(dead_code, reason = "the words of the crate need different methods")]
            impl $name {
                pub(crate) fn new(value: $value) -> Self {
                    Self {
                        real: loom::sync::atomic::$name::new(value),
                        accesses: loom::sync::atomic::AtomicBool::new(false),
                    }
                }

                fn explored(&self) -> &loom::sync::atomic::$name {
                    self.accesses.store(true, Ordering::Relaxed);
                    &self.real
                }

                pub(crate) fn load(&self, order: Ordering) -> $value {
                    self.explored().load(order)
                }

                pub(crate) fn store(&self, value: $value, order: Ordering) {
                    self.explored().store(value, order);
                }

                pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                    self.explored().swap(value, order)
                }

                pub(crate) fn compare_exchange(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    self.explored().compare_exchange(current, new, success, failure)
                }

                pub(crate) fn compare_exchange_weak(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    self.explored().compare_exchange_weak(current, new, success, failure)
                }

                pub(crate) fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                    self.explored().fetch_or(value, order)
                }

                pub(crate) fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                    self.explored().fetch_and(value, order)
                }

                pub(crate) fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                    self.explored().fetch_max(value, order)
                }
            }
        };
    }
    explored_atomic!(AtomicU8: u8);
    explored_atomic!(AtomicU32: u32);
    explored_atomic!(AtomicU64: u64);
    explored_atomic!(AtomicUsize: usize);

    /// The fast side's fence.
    pub(crate) fn light() {
        loom::sync::atomic::fence(Ordering::SeqCst);
    }

    /// The model's fast side always has its fence.
    pub(crate) fn is_asymmetric() -> bool {
        true
    }

    /// As [`light`].
    pub(crate) fn light_if_asymmetric() {
        light();
    }

    /// The word of this execution that all full fences swap.
    static FULL: std::sync::Mutex<Option<(u64, &'static Swapped)>> = std::sync::Mutex::new(None);

    type Swapped = loom::sync::atomic::AtomicBool;

    /// A fence that pairs with itself and with `heavy`.
    pub(crate) fn full() {
        let now = EXECUTION.load(Ordering::Relaxed);
        let word = match *super::lock(&FULL) {
            Some((execution, word)) if execution == now => word,
            ref mut stale => stale.insert((now, Box::leak(Box::new(Swapped::new(false))))).1,
        };
        word.swap(true, Ordering::AcqRel);
    }

    /// The slow side's fence.
    pub(crate) fn heavy() -> bool {
        full();
        loom::sync::atomic::fence(Ordering::SeqCst);
        true
    }

    /// The model never refuses its fence.
    pub fn is_refused() -> bool {
        false
    }

    /// Whether thread-locals are destroyed when nothing global can be reached any more: after a
    /// proof has failed.
    pub(crate) fn is_torn_down() -> bool {
        std::thread::panicking()
    }

    /// Counts executions of proofs, so that each has globals of its own.
    static EXECUTION: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

    /// Runs `proof`, which must join the threads that it spawns, under every schedule with at most
    /// `preemptions` forced switches; `None` for every schedule there is. Proofs run one at a time.
    ///
    /// Returns the outcomes that the proof had, so that the caller can check that both sides of a
    /// race have won it: a proof that never comes to the interesting case proves nothing.
    pub fn prove<T: Ord + Send + 'static>(
        preemptions: Option<usize>,
        proof: impl Fn() -> T + Sync + Send + 'static,
    ) -> BTreeSet<T> {
        static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let _one = super::lock(&ONE_AT_A_TIME);
        let outcomes = Arc::new(std::sync::Mutex::new(BTreeSet::new()));
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = preemptions;
        builder.check({
            let outcomes = Arc::clone(&outcomes);
            move || {
                EXECUTION.fetch_add(1, Ordering::Relaxed);
                // Makes its word before there are other threads.
                full();
                let outcome = proof();
                super::lock(&outcomes).insert(outcome);
            }
        });
        std::mem::take(&mut *super::lock(&outcomes))
    }

    /// A global behind a lock, made again by the first thread that needs it in each execution.
    ///
    /// Loom's own lazy statics end with the proof's main thread, which is too early: destructors of
    /// thread-locals run after a thread has been joined. These are leaked.
    pub(crate) struct Global<T: 'static> {
        init: fn() -> GlobalMutex<T>,
        made: std::sync::Mutex<Option<(u64, &'static GlobalMutex<T>)>>,
    }

    impl<T> Global<T> {
        /// A global that `init` makes.
        pub(crate) const fn new(init: fn() -> GlobalMutex<T>) -> Self {
            Self { init, made: std::sync::Mutex::new(None) }
        }

        /// Locks the one of this execution.
        pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'static, T> {
            let now = EXECUTION.load(Ordering::Relaxed);
            let made = match *super::lock(&self.made) {
                Some((execution, mutex)) if execution == now => mutex,
                ref mut stale => stale.insert((now, Box::leak(Box::new((self.init)())))).1,
            };
            made.lock().unwrap_or_else(super::PoisonError::into_inner)
        }
    }

    /// Declares a thread-local; the model gives each of its threads one in each execution.
    macro_rules! thread_cell {
        ($name:ident: $type:ty = $init:expr) => {
            loom::thread_local! { static $name: $type = $init; }
        };
    }
    pub(crate) use thread_cell;
}

#[cfg(loom)]
pub use modelled::*;
#[cfg(not(loom))]
pub use real::*;

/// Locks `mutex`, also after a panic of another holder: use it where every critical section leaves
/// the value whole.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
