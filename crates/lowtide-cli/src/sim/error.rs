//! Everything that can end a simulation, and which exit code it means.
//!
//! A message says what failed, where, and what to do. What is wrong with single values is already
//! refused by the argument parser.

use std::io;

use lowtide::Policy;
use lowtide_core::ConfigError;
use lowtide_sim::spec::SpecError;
use lowtide_sim::{MachineError, PlayError};
use lowtide_workload::DistributionError;
use lowtide_workload::trace::TraceFileError;
use thiserror::Error;

use crate::interrupt::{self, CutShort, HandlerError, Interrupted, Interruptible};
use crate::json::ResultsError;
use crate::law::ProgramError;
use crate::table::memory;

/// Why a simulation ended without a result, or with one that has gaps.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum SimError {
    /// Options that are fine alone and impossible together, or that mean nothing for what is
    /// simulated.
    #[error("{what}; {advice}")]
    Usage {
        /// What does not go.
        what: String,
        /// What to write instead.
        advice: String,
    },
    /// There is no such machine.
    #[error(transparent)]
    Machine(#[from] SpecError),
    /// The workload has nothing to choose from.
    #[error(transparent)]
    Distribution(#[from] DistributionError),
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceFileError),
    /// The machine that this runs on is too small for what is simulated.
    #[error(
        "simulating that takes about {} of memory and {} are available; lower --max or --size, or \
         choose fewer policies at a time",
        memory(*needed), memory(*available)
    )]
    HostMemory {
        /// Bytes, as estimated.
        needed: u64,
        /// Bytes available.
        available: u64,
    },
    /// The engine refuses the budget.
    #[error("{0}; choose another --max")]
    Budget(#[from] ConfigError),
    /// An access that the plain machine refuses.
    #[error(transparent)]
    Play(PlayError),
    /// The simulated machine stopped.
    #[error("{policy}: {source}")]
    Simulation {
        /// The row.
        policy: String,
        /// Why.
        source: MachineError,
    },
    /// Rows that ended in a simulated out-of-memory kill. They have been printed as far as they
    /// went.
    #[error("{policy}: {what}")]
    OutOfMemory {
        /// The row.
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
    /// The picture cannot be written.
    #[error(
        "cannot write the plot to {}: {source}; choose another file with --plot",
        path.display()
    )]
    Plot {
        /// The file.
        path: std::path::PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A program cannot be used.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// A swarm found something.
    #[error("{0}")]
    Swarm(String),
    /// A trace cannot be played many times.
    #[error("{0}")]
    Tape(String),
    /// The signal handler cannot be installed.
    #[error(transparent)]
    Handler(#[from] HandlerError),
    /// Ctrl-C.
    #[error("{0}; there is no result")]
    Interrupted(#[from] Interrupted),
    /// Ctrl-C after some rows.
    #[error(transparent)]
    CutShort(#[from] CutShort),
}

impl SimError {
    /// An option that cannot be carried out.
    pub(crate) fn usage(what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::Usage { what: what.into(), advice: advice.into() }
    }

    /// What a simulated machine says of the row of `policy`, while `during`.
    pub(crate) fn of_machine(policy: Policy, source: MachineError, during: &str) -> Self {
        match source {
            MachineError::Config(source) => Self::Budget(source),
            MachineError::Interrupted { .. } => {
                Interrupted { during: format!("while {during}") }.into()
            }
            source => Self::Simulation { policy: policy.to_string(), source },
        }
    }

    /// 2 when the command line itself is at fault, else 1; what the signal says for a run that one
    /// ended.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Interrupted(_) | Self::CutShort(_) => interrupt::exit_code(),
            // What cannot be read may be there tomorrow.
            Self::Machine(SpecError::Read { .. } | SpecError::This { .. }) => 1,
            Self::Usage { .. }
            | Self::Machine(_)
            | Self::Distribution(_)
            | Self::Budget(_)
            | Self::Program(_)
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
