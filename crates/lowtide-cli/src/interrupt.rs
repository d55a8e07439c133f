//! Ctrl-C: one flag that every loop looks at.
//!
//! The first signal (SIGINT, SIGTERM or SIGHUP) asks: work stops after the step in hand, the command returns
//! [`Interrupted`], and on the way out destructors remove unfinished files, peers and memory cgroups. A second one
//! ends the process where it is.

use std::sync::atomic::{AtomicBool, Ordering};

use thiserror::Error;

use crate::out;

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// The handler cannot be installed.
#[derive(Debug, Error)]
#[error("cannot listen for Ctrl-C: {0}")]
pub(crate) struct HandlerError(#[from] ctrlc::Error);

/// Ctrl-C was pressed.
#[derive(Debug, Error)]
#[error("interrupted while {during}")]
pub(crate) struct Interrupted {
    /// What was going on.
    pub(crate) during: String,
}

/// Installs the handler.
///
/// # Errors
/// [`HandlerError`] when the kernel refuses it.
pub(crate) fn install() -> Result<(), HandlerError> {
    ctrlc::set_handler(|| {
        if REQUESTED.swap(true, Ordering::Relaxed) {
            out::note("stopped at once; a memory cgroup or an unfinished file may be left behind");
            std::process::exit(1);
        }
        out::note("stopping and cleaning up (once more to stop at once)");
    })
    .map_err(HandlerError)
}

/// Whether the work should stop. One relaxed load.
#[inline]
pub(crate) fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// The flag itself, for libraries that look at one.
pub(crate) const fn flag() -> &'static AtomicBool {
    &REQUESTED
}

/// Fails when the work should stop; `during` says what that work was.
///
/// # Errors
/// [`Interrupted`].
pub(crate) fn check(during: impl FnOnce() -> String) -> Result<(), Interrupted> {
    if requested() { Err(Interrupted { during: during() }) } else { Ok(()) }
}
