//! `lowtide sim`.

use std::process::ExitCode;

use lowtide_report::{interrupt, out};

use crate::sim::Simulation;

/// Runs the simulation and turns a failure into one message and an exit code.
pub(crate) fn run(simulation: &Simulation) -> ExitCode {
    match interrupt::install().map_err(Into::into).and_then(|()| simulation.run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            out::note(format_args!("error: {error}"));
            ExitCode::from(error.exit_code())
        }
    }
}
