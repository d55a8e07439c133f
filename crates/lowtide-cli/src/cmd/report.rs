//! `lowtide report`.

use std::process::ExitCode;

use super::started;
use crate::report::ReportArgs;

pub(crate) fn run(args: &ReportArgs) -> ExitCode {
    started(|| args.run())
}
