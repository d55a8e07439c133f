//! The commands, one file each: they run the work and choose the exit code.

pub(crate) mod advise;
pub(crate) mod bench;
pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod list;
pub(crate) mod man;
pub(crate) mod metrics;
pub(crate) mod peer_mmap;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod sim;
pub(crate) mod stat;
pub(crate) mod top;

use std::fmt::Display;
use std::process::ExitCode;

use lowtide_report::{interrupt, out};

use crate::bench::error::BenchError;
use crate::sim::error::SimError;

/// An error that ends a command, with its exit code.
pub trait Failure: Display + From<interrupt::HandlerError> {
    /// See the list of exit codes in `lowtide --help`.
    fn exit_code(&self) -> u8;
}

impl Failure for BenchError {
    fn exit_code(&self) -> u8 {
        Self::exit_code(self)
    }
}

impl Failure for SimError {
    fn exit_code(&self) -> u8 {
        Self::exit_code(self)
    }
}

/// Runs work that Ctrl-C ends, and turns a failure into one message and an exit code.
pub fn started<E: Failure>(work: impl FnOnce() -> Result<(), E>) -> ExitCode {
    match interrupt::install().map_err(Into::into).and_then(|()| work()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            out::note(format_args!("error: {error}"));
            ExitCode::from(error.exit_code())
        }
    }
}

/// The exit code of a command that has ended with `code`: a failure if its results could not be
/// printed.
pub fn ended(code: ExitCode) -> ExitCode {
    match out::failure() {
        Some(error) => {
            out::note(format_args!(
                "error: cannot write the results to standard output: {error}; free some space, or \
                 redirect the output"
            ));
            if code == ExitCode::SUCCESS { ExitCode::FAILURE } else { code }
        }
        None => code,
    }
}
