//! The end of a command: one message for a failure, and an exit code.

use std::fmt::Display;
use std::process::ExitCode;

use crate::{interrupt, out};

/// An error that ends a command, with its exit code.
pub trait Failure: Display + From<interrupt::HandlerError> {
    /// See the list of exit codes in `lowtide --help`.
    fn exit_code(&self) -> u8;
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
