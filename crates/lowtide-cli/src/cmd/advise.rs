//! `lowtide advise`.

use std::process::ExitCode;

use super::started;
use crate::advise::{self, AdviseArgs};

pub(crate) fn run(args: &AdviseArgs) -> ExitCode {
    started(|| advise::run(args))
}
