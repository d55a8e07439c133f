//! Ctrl-C: one flag that every loop looks at.
//!
//! The first signal (SIGINT, SIGTERM or SIGHUP) asks: workers stop after the operation in hand, the bench returns
//! [`BenchError::Interrupted`], and on the way out destructors remove unfinished files, peers and memory cgroups. A second one
//! ends the process where it is.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::bench::error::BenchError;
use crate::out;

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Installs the handler.
///
/// # Errors
/// [`BenchError::Handler`] when the kernel refuses it.
pub(crate) fn install() -> Result<(), BenchError> {
    ctrlc::set_handler(|| {
        if REQUESTED.swap(true, Ordering::Relaxed) {
            out::note("stopped at once; a memory cgroup or an unfinished file may be left behind");
            std::process::exit(1);
        }
        out::note("stopping and cleaning up (once more to stop at once)");
    })
    .map_err(|source| BenchError::Handler { source })
}

/// Whether the work should stop. One relaxed load.
#[inline]
pub(crate) fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// Fails when the work should stop; `during` says what that work was.
///
/// # Errors
/// [`BenchError::Interrupted`].
pub(crate) fn check(during: impl FnOnce() -> String) -> Result<(), BenchError> {
    if requested() { Err(BenchError::Interrupted { during: during() }) } else { Ok(()) }
}
