//! `lowtide doctor`: the report of the probe.

use std::process::ExitCode;

use lowtide_host::probe::Probe;
use lowtide_report::out;

/// Prints the machine's features. A missing feature is part of the report, not a failure.
pub(crate) fn run() -> ExitCode {
    out::line(Probe::ask());
    ExitCode::SUCCESS
}
