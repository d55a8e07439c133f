//! Every error that ends a simulation, and its exit code.
//!
//! A message says what failed, where, and what to do. The argument parser already rejects single
//! values that do not parse.

use std::io;

use lowtide::Policy;
use lowtide_core::ConfigError;
use lowtide_report::exit::Failure;
use lowtide_report::interrupt::{self, CutShort, HandlerError, Interrupted, Interruptible};
use lowtide_report::json::ResultsError;
use lowtide_report::table::memory;
use lowtide_report::threads::ThreadError;
use lowtide_sim::spec::SpecError;
use lowtide_sim::{MachineError, PlayError};
use lowtide_workload::DistributionError;
use lowtide_workload::trace::TraceFileError;
use thiserror::Error;

/// Why a simulation ended without a result, or with an incomplete one.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SimError {
    /// Options that are valid alone but not together, or that have no meaning for the workload.
    #[error("{what}; {advice}")]
    Usage {
        what: String,
        /// What to write instead.
        advice: String,
    },
    /// The machine is unknown, or its description is wrong.
    #[error(transparent)]
    Machine(#[from] SpecError),
    /// The workload's distribution has no items.
    #[error(transparent)]
    Distribution(#[from] DistributionError),
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceFileError),
    /// The host has too little memory for the simulation.
    #[error(
        "the simulation needs about {} of memory, but only {} is available; lower --max or \
         --size, or choose fewer policies at a time",
        memory(*needed), memory(*available)
    )]
    HostMemory {
        /// Bytes, as estimated.
        needed: u64,
        /// Bytes available.
        available: u64,
    },
    /// The engine rejects the budget.
    #[error("{0}; choose another --max")]
    Budget(#[from] ConfigError),
    /// The plain machine rejects an access.
    #[error(transparent)]
    Play(PlayError),
    /// The simulated machine stopped.
    #[error("{policy}: {source}")]
    Simulation { policy: String, source: MachineError },
    /// A row ended in a simulated out-of-memory kill. Its results up to then have been printed.
    #[error("{policy}: {what}")]
    OutOfMemory {
        policy: String,
        /// What did not fit, and what to do.
        what: String,
    },
    /// The results cannot be written to a file.
    #[error(transparent)]
    Results(#[from] ResultsError),
    /// The results cannot be written to standard output.
    #[error("cannot write the results to standard output: {0}; name a file with --json FILE")]
    Output(#[source] io::Error),
    /// The plot cannot be written.
    #[error(
        "cannot write the plot to {}: {source}; choose another file with --plot",
        path.display()
    )]
    Plot { path: std::path::PathBuf, source: io::Error },
    /// A workload that another command adds failed in its own way.
    #[error(transparent)]
    Own(Box<dyn std::error::Error + Send + Sync>),
    /// A trace cannot be packed for repeated replay.
    #[error("{0}")]
    Tape(String),
    /// Threads could not be started, or panicked.
    #[error(transparent)]
    Threads(#[from] ThreadError),
    /// The signal handler cannot be installed.
    #[error(transparent)]
    Handler(#[from] HandlerError),
    #[error("{0}; there is no result")]
    Interrupted(#[from] Interrupted),
    /// Ctrl-C after some rows.
    #[error(transparent)]
    CutShort(#[from] CutShort),
}

impl SimError {
    /// An option that cannot be used.
    pub fn usage(what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::Usage { what: what.into(), advice: advice.into() }
    }

    /// The error of a simulated machine in the row of `policy`; `during` names the work.
    pub fn of_machine(policy: Policy, source: MachineError, during: &str) -> Self {
        match source {
            MachineError::Config(source) => Self::Budget(source),
            MachineError::Interrupted { .. } => {
                Interrupted { during: format!("while {during}") }.into()
            }
            source => Self::Simulation { policy: policy.to_string(), source },
        }
    }
}

impl Failure for SimError {
    /// 2 if the command line is wrong, the signal's code if a signal ended the run, otherwise 1.
    fn exit_code(&self) -> u8 {
        match self {
            Self::Interrupted(_) | Self::CutShort(_) => interrupt::exit_code(),
            // An unreadable file is an environment error, not a usage error.
            Self::Machine(SpecError::Read { .. } | SpecError::This { .. }) => 1,
            Self::Usage { .. }
            | Self::Machine(_)
            | Self::Distribution(_)
            | Self::Budget(_)
            | Self::Results(ResultsError::Place { .. })
            | Self::Simulation { source: MachineError::NoRoom { .. }, .. } => 2,
            _ => 1,
        }
    }
}

impl Interruptible for SimError {
    fn into_interrupted(self) -> Result<Interrupted, Self> {
        match self {
            Self::Interrupted(interrupted) => Ok(interrupted),
            error => Err(error),
        }
    }
}
