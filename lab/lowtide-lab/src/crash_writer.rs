//! `lowtide-lab crash-writer`, an internal command of `lowtide-lab bench crash`.

use std::process::ExitCode;

use lowtide_report::out;

use crate::bench::proof::victim::{self, VictimArgs};

/// Writes until it is killed.
pub(crate) fn run(args: &VictimArgs) -> ExitCode {
    match victim::run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            out::note(format_args!("crash-writer: {what}"));
            ExitCode::FAILURE
        }
    }
}
