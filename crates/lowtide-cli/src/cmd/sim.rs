//! `lowtide sim`.

use std::process::ExitCode;

use super::started;
use crate::sim::Simulation;

pub(crate) fn run(simulation: &Simulation) -> ExitCode {
    started(|| simulation.run())
}
