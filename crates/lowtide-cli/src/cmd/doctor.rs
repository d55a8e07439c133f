//! `lowtide doctor`: the probe's report.

use std::process::ExitCode;

use lowtide_host::probe::Probe;

use crate::out;

/// Prints what the machine offers. What is missing is part of the report, not a failure.
pub(crate) fn run() -> ExitCode {
    out::line(Probe::ask());
    ExitCode::SUCCESS
}
