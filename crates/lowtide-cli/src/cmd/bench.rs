//! `lowtide bench`.

use std::process::ExitCode;

use super::started;
use crate::bench::{self, Bench};

pub(crate) fn run(bench: &Bench) -> ExitCode {
    started(|| bench::run(bench))
}
