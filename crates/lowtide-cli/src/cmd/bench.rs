//! `lowtide bench`.

use std::process::ExitCode;

use lowtide_report::{interrupt, out};

use crate::bench::{self, Bench};

/// Runs the benchmark and turns a failure into one message and an exit code.
pub(crate) fn run(bench: &Bench) -> ExitCode {
    match interrupt::install().map_err(Into::into).and_then(|()| bench::run(bench)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            out::note(format_args!("error: {error}"));
            ExitCode::from(error.exit_code())
        }
    }
}
