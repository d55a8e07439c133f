//! `lowtide sim`.

use std::process::ExitCode;

use crate::sim::args::SimArgs;
use crate::{interrupt, out, sim};

/// Runs the simulation and turns a failure into one message and an exit code.
pub(crate) fn run(args: &SimArgs) -> ExitCode {
    match interrupt::install().map_err(Into::into).and_then(|()| sim::run(args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            out::note(format_args!("error: {error}"));
            ExitCode::from(error.exit_code())
        }
    }
}
