//! `lowtide run`: this process becomes the program.

use std::process::ExitCode;

use lowtide_report::out;

use crate::run::{self, RunArgs};

/// Starts the program. Returns only if it cannot be started: with a message, and the exit code that
/// `env(1)` and `nice(1)` use for the same reason.
pub(crate) fn run(args: &RunArgs) -> ExitCode {
    let error = run::become_program(args);
    out::note(format_args!("error: {error}"));
    ExitCode::from(error.exit_code())
}
