//! The io_uring engine: one ring for each thread; the frames of a populated arena registered once.
//!
//! ```text
//!   backend ── donor ring: owns the registration of the arena, never submits
//!      │           │ cloned into (2 µs)
//!      ├── thread A ── ring ── a batch: up to `entries` reads in flight
//!      └── thread B ── ring, ring ── a batch in the callback of another takes a second ring
//! ```
//!
//! A ring is used by one thread at a time, for one purpose at a time: a request takes it out of the
//! thread's cache of rings and puts it back. So nothing is shared on the way to the device,
//! completions need no sorting by owner, and a nested use (the callback of a batch that misses)
//! opens another ring instead of waiting for its own caller. A read with nothing to overlap is a
//! `pread`, and takes no ring.
//!
//! | file | concept |
//! |---|---|
//! | `uring/setup` | which flags and registrations this kernel accepts; making rings |
//! | `uring/ring` | one ring: enter, reap, and what is left when the kernel refuses |
//! | `uring/queue` | many jobs on one ring |
//! | `uring/cache` | which rings belong to which thread, and when they are closed |
//!
//! # What pays, measured
//!
//! Linux 6.18 virtual machine, 2 processors, virtual disk under ext4, `O_DIRECT` reads of 4 KiB at
//! random from 2 GiB, arena of huge pages; five interleaved runs of one second, lowest and highest,
//! thousands of reads a second and processor time for one read (all threads, kernel included):
//!
//! | threads, reads | `pread` | ring | ring, deferred | ring, deferred, registered |
//! |---|---|---|---|---|
//! | 1, one | 14.0–17.2, 28 µs | 15.2–17.7, 27 µs | 14.8–17.7, 26 µs | 16.7–18.1, 25 µs |
//! | 32, one each | 65–77, 7.0 µs | 68–76, 7.8 µs | 68–73, 7.7 µs | 61–73, 8.9 µs |
//! | 1, 32 in flight, wait for 1 | | 56–62, 4.6 µs | 54–60, 6.0 µs | 56–62, 5.4 µs |
//! | 1, 32 in flight, wait for 8 | | 57–65, 5.3 µs | 61–72, 4.9 µs | **64–78, 3.5 µs** |
//!
//! So for a single read the device decides about the rate, and `pread` takes less processor time
//! where that is short: with 32 threads, in six interleaved pairs beside a load of 13, 7.5 to 12.1
//! µs a read where a ring took 8.8 to 12.8, at 1.12 times the rate. Its completion wakes the thread
//! and nothing more; a ring's runs task work in it, and is memory and a descriptor for each thread.
//! So single misses take `pread`.
//!
//! In a batch, deferred task work (`IORING_SETUP_DEFER_TASKRUN`: completions are processed when the
//! thread requests them, many at a time) with registered memory is best, *if the caller waits for
//! several completions at once*. That need not be a quarter of the depth if more reads are queued:
//! with 32 in flight and 8 queued, waiting for two at a time gave 78.5 k reads a second where
//! waiting for eight gave 71.3 (median of six interleaved pairs on an idle machine, each higher).
//! Opening a ring costs 31 µs, cloning the registration 2 µs, closing 56 µs; registering 256 MiB of
//! huge pages that are already present costs 0.3 ms.
//!
//! An arena that is not populated from the start is not registered, and each transfer pins its
//! pages: 4 % of the samples with 32 in flight. Four runs with 32 in flight showed no difference
//! with and without registration, so frames are not registered as they become resident.
//!
//! The ring's own descriptor is not registered (`IORING_REGISTER_RING_FDS`): the task would hold
//! the ring open until it exits, and with it the pinned arena, after the backend is gone.
//!
//! Sources: `io_uring_setup(2)`, `io_uring_enter(2)`, `io_uring_register(2)`.

mod cache;
mod queue;
mod ring;
mod setup;

use lowtide_sys::tell;
use std::sync::atomic::{AtomicBool, Ordering};

use self::cache::{Lease, RingCaches};
pub(super) use self::queue::Queue as UringQueue;
pub use self::setup::Refusal;
use self::setup::Setup;
use super::request::Arena;

/// The engine.
#[derive(Debug)]
pub(super) struct Uring {
    // Dropped first, so that every clone of the registration is gone before the original.
    caches: RingCaches,
    setup: Setup,
    depth: usize,
    warned: AtomicBool,
}

impl Uring {
    /// Opens the engine and tries it once in the calling thread.
    ///
    /// # Errors
    ///
    /// When the kernel does not offer a working io_uring: the step and the error.
    pub(super) fn open(depth: u32, arena: Option<Arena>) -> Result<Uring, Refusal> {
        let setup = Setup::probe(depth, arena)?;
        Ok(Uring {
            caches: RingCaches::new(),
            setup,
            depth: depth.max(1) as usize,
            warned: AtomicBool::new(false),
        })
    }

    /// What was accepted, in words.
    pub(super) fn describe(&self) -> String {
        self.setup.describe()
    }

    /// Takes a ring of this thread, opening one if there is none. `None` when the system has no
    /// more rings to give, or when the thread's local storage is gone because it is exiting.
    fn lease(&self) -> Option<Lease> {
        match self.caches.take(|| self.setup.open_ring()) {
            Ok(lease) => Some(lease),
            Err(error) => {
                if !self.warned.swap(true, Ordering::Relaxed) {
                    tell!(warn, %error, "cannot open a ring for a thread: it uses system calls \
                        instead");
                }
                None
            }
        }
    }

    /// A queue of overlapped requests on a ring of this thread, or `None` when there is no ring to
    /// have.
    pub(super) fn queue(&self) -> Option<UringQueue> {
        self.lease().map(|lease| UringQueue::new(lease, self.depth))
    }

    /// Counts the open rings: one strong reference for each, and one for the engine.
    #[cfg(test)]
    pub(super) fn rings(&self) -> std::sync::Weak<()> {
        self.setup.rings()
    }

    /// Makes the descriptor of this thread's ring refer to another file.
    #[cfg(test)]
    pub(super) fn replace_idle_ring(&self, with: std::os::fd::RawFd) {
        let mut lease = self.lease().expect("a ring can be opened");
        // SAFETY: both numbers are open descriptors; the ring's owner finds another file behind its
        // own.
        #[expect(unsafe_code, reason = "no safe call replaces a descriptor")]
        let replaced = unsafe { libc::dup2(with, lease.ring().descriptor()) };
        assert!(replaced >= 0);
    }
}
