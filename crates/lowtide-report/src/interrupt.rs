//! Signals that end a run: one flag that every loop checks.
//!
//! The first SIGINT (Ctrl-C), SIGTERM or SIGHUP is a request: work stops after the current step,
//! the command shows the results so far, and destructors remove unfinished files, peers and memory
//! cgroups. A second signal ends the process at once. The exit code is the shell's for a process
//! that the signal ended: 130 for Ctrl-C, 143 for SIGTERM.
//!
//! SIGXFSZ, which the kernel raises for a file beyond `ulimit -f`, would end the process without a
//! message. It is caught, so that the write fails with an ordinary error.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::{io, thread};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use thiserror::Error;

use crate::out;

static REQUESTED: AtomicBool = AtomicBool::new(false);
/// The signal that requested the end.
static SIGNAL: AtomicI32 = AtomicI32::new(SIGINT);

/// The handler cannot be installed.
#[derive(Debug, Error)]
#[error("cannot listen for Ctrl-C: {0}")]
pub struct HandlerError(#[from] io::Error);

/// A signal requested the end of the run.
#[derive(Debug, Error)]
#[error("interrupted {during}")]
pub struct Interrupted {
    /// The time, as in `while measuring mmap` or `after 3 seeds`.
    pub during: String,
}

/// A run that was interrupted and has shown its results so far.
#[derive(Debug, Error)]
#[error("{0}; the results shown were measured before that")]
pub struct CutShort(Interrupted);

/// Errors that include an interruption.
pub trait Interruptible: Sized + From<Interrupted> + From<CutShort> {
    /// The interruption, if the error is one.
    ///
    /// # Errors
    /// Any other error.
    fn into_interrupted(self) -> Result<Interrupted, Self>;
}

/// The interruption of a run between its rows, if any. Completed rows are kept and shown.
#[derive(Debug, Default)]
pub struct Cut(Option<Interrupted>);

impl Cut {
    /// A result with which the run continues; `None` after an interruption.
    ///
    /// # Errors
    /// Any error other than an interruption.
    pub fn take<T, E: Interruptible>(&mut self, result: Result<T, E>) -> Result<Option<T>, E> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) => {
                self.0 = Some(error.into_interrupted()?);
                Ok(None)
            }
        }
    }

    /// Whether the run has been interrupted.
    pub const fn is_cut(&self) -> bool {
        self.0.is_some()
    }

    /// Ends a run that was interrupted before it had any result.
    ///
    /// # Errors
    /// The interruption.
    pub fn refuse_nothing(&mut self, nothing: bool) -> Result<(), Interrupted> {
        self.0.take_if(|_| nothing).map_or(Ok(()), Err)
    }

    /// The end of a run that has shown its results.
    ///
    /// # Errors
    /// [`CutShort`] if it was interrupted.
    pub fn verdict<E: Interruptible>(self) -> Result<(), E> {
        self.0.map_or(Ok(()), |interrupted| Err(CutShort(interrupted).into()))
    }
}

/// Installs the handler.
///
/// # Errors
/// [`HandlerError`] when it cannot be installed.
pub fn install() -> Result<(), HandlerError> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGXFSZ])?;
    thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever().filter(|&signal| signal != SIGXFSZ) {
            if REQUESTED.load(Ordering::Relaxed) {
                out::note(
                    "stopped at once; the next run removes any memory cgroup or unfinished file \
                     left behind",
                );
                std::process::exit(128 + signal);
            }
            SIGNAL.store(signal, Ordering::SeqCst);
            REQUESTED.store(true, Ordering::SeqCst);
            out::note("stopping and cleaning up (interrupt again to stop at once)");
        }
    })?;
    Ok(())
}

/// Whether the work should stop. One relaxed load.
#[inline]
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// The flag itself, for libraries that check one.
pub const fn flag() -> &'static AtomicBool {
    &REQUESTED
}

/// The exit code of a run that a signal ended.
pub fn exit_code() -> u8 {
    // Signal numbers are below 128.
    128 + SIGNAL.load(Ordering::SeqCst) as u8
}

/// Fails when the work should stop; `during` describes the work.
///
/// # Errors
/// [`Interrupted`].
pub fn check(during: impl FnOnce() -> String) -> Result<(), Interrupted> {
    if requested() { Err(Interrupted { during: format!("while {}", during()) }) } else { Ok(()) }
}
