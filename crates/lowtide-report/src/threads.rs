//! The threads of one piece of work: they start together, and end before the work returns.
//!
//! ```text
//! caller    create them ─ all exist ─ open ── beside ─────────────── join ── results, in order
//! thread              wait ────────────┴───── work ────── result ────┘
//! ```
//!
//! No thread works before all of them exist, so the first does not have the machine to itself, and
//! a thread that the kernel cannot create ends the work before it begins.
//!
//! Threads that work until a request to end check a [`Stop`], which Ctrl-C sets too. A thread
//! that panics sets it, so that the others end early; the panic is then an error of the caller and
//! not a second panic.
//!
//! Threads borrow from the caller, as in [`std::thread::scope`], which this builds on. Two kinds of
//! thread must outlive the call that starts them, and are kept elsewhere: those of a measured
//! system (`bench/thread_pool.rs`) and the one that writes a trace (`bench/record/log.rs`).

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::channel;
use std::{io, thread};

use thiserror::Error;

use crate::interrupt;

/// Why threads have no result.
#[derive(Debug, Error)]
pub enum ThreadError {
    /// The kernel cannot create them.
    #[error(
        "cannot start {count} threads: {source}; use fewer threads, or raise the limit on \
         processes (`ulimit -u`)"
    )]
    Create {
        /// Number of threads.
        count: usize,
        /// The kernel's error.
        source: io::Error,
    },
    /// One of them panicked, which is a bug.
    #[error("a worker thread panicked; please report the lines above")]
    Panicked,
}

/// A request to stop.
#[derive(Debug, Default)]
pub struct Stop(AtomicBool);

impl Stop {
    /// Whether threads should stop: because of [`request`](Self::request), or of Ctrl-C. Two
    /// relaxed loads.
    #[inline]
    pub fn is_requested(&self) -> bool {
        self.0.load(Relaxed) || interrupt::requested()
    }

    /// Stops them.
    pub fn request(&self) {
        self.0.store(true, Relaxed);
    }
}

/// Sets the flag if the thread panics.
struct StopOnPanic<'a>(&'a Stop);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.request();
        }
    }
}

/// Runs every one of `works` on its own thread while the caller runs `beside`, and returns the
/// result of `beside` and those of the threads, in order. Waits for threads that still work when
/// `beside` returns: set `stop` there, if they check it.
///
/// # Errors
/// [`ThreadError::Create`] before any work, and [`ThreadError::Panicked`].
///
/// # Panics
/// If `beside` panics, after the threads have ended.
pub fn run<W, T, B>(
    stop: &Stop,
    works: impl IntoIterator<Item = W>,
    beside: impl FnOnce() -> B,
) -> Result<(B, Vec<T>), ThreadError>
where
    W: FnOnce() -> T + Send,
    T: Send,
{
    let works: Vec<W> = works.into_iter().collect();
    let count = works.len();
    // Whether to work, once that is known. A barrier would wait for a thread that was not created.
    let gate: OnceLock<bool> = OnceLock::new();
    let (arrive, arrived) = channel();
    thread::scope(|scope| {
        let create = |(number, work): (usize, W)| {
            let (arrive, gate) = (arrive.clone(), &gate);
            thread::Builder::new().name(format!("worker-{number}")).spawn_scoped(scope, move || {
                let _guard = StopOnPanic(stop);
                // The caller waits for it.
                let _ = arrive.send(());
                if *gate.wait() { Some(work()) } else { None }
            })
        };
        let threads: io::Result<Vec<_>> = works.into_iter().enumerate().map(create).collect();
        let threads = match threads {
            Ok(threads) => threads,
            Err(source) => {
                let _ = gate.set(false);
                return Err(ThreadError::Create { count, source });
            }
        };
        arrived.iter().take(count).for_each(drop);
        let _ = gate.set(true);
        let guard = StopOnPanic(stop);
        let beside = beside();
        drop(guard);
        let results = threads.into_iter().map(|thread| thread.join().ok().flatten());
        // All are joined before the first panic is reported.
        let results: Vec<Option<T>> = results.collect();
        let results: Option<Vec<T>> = results.into_iter().collect();
        results.map(|results| (beside, results)).ok_or(ThreadError::Panicked)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    #[test]
    fn threads_run_together_and_their_results_keep_their_order() {
        // Each waits for all others, so one after the other they would never end.
        let working = AtomicUsize::new(0);
        let works = (0..4).map(|number| {
            let working = &working;
            move || {
                working.fetch_add(1, Relaxed);
                while working.load(Relaxed) < 4 {
                    thread::yield_now();
                }
                number * number
            }
        });
        let (beside, results) = run(&Stop::default(), works, || "beside").unwrap();
        assert_eq!((beside, results), ("beside", vec![0, 1, 4, 9]));
        let none = run(&Stop::default(), Vec::<fn()>::new(), || 7).unwrap();
        assert_eq!(none, (7, vec![]));
    }

    #[test]
    fn a_stop_ends_threads_that_check_it() {
        let stop = Stop::default();
        let work = || {
            let mut steps = 0_u64;
            while !stop.is_requested() {
                steps += 1;
                thread::sleep(Duration::from_millis(1));
            }
            steps
        };
        let beside = || {
            thread::sleep(Duration::from_millis(20));
            stop.request();
        };
        let ((), steps) = run(&stop, [work, work], beside).unwrap();
        assert!(steps.iter().all(|&steps| steps > 0), "{steps:?}");
    }

    #[test]
    fn a_panic_is_an_error_and_stops_the_other_threads() {
        let stop = Stop::default();
        let works = (0..3).map(|number| {
            let stop = &stop;
            move || {
                assert!(number != 1, "as the test wants");
                while !stop.is_requested() {
                    thread::yield_now();
                }
            }
        });
        assert!(matches!(run(&stop, works, || ()), Err(ThreadError::Panicked)));
    }

    #[test]
    fn a_caller_that_panics_stops_its_threads() {
        let stop = Stop::default();
        let work = || {
            while !stop.is_requested() {
                thread::yield_now();
            }
        };
        let caller = || run(&stop, [work], || panic!("as the test wants"));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(caller)).is_err());
    }
}
