//! `lowtide top`.

use std::process::ExitCode;

use lowtide_report::out;

use crate::top::{self, End, TopArgs};

/// Shows the processes under lowtide until a key or a signal ends it.
pub(crate) fn run(args: &TopArgs) -> ExitCode {
    match top::run(args) {
        Ok(End::Quit) => ExitCode::SUCCESS,
        // Signal numbers are below 128.
        Ok(End::Signal(signal)) => ExitCode::from(128 + signal as u8),
        Err(error) => {
            out::note(format_args!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}
