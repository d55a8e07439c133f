//! Failures that only experiments have. The errors of `lowtide bench` and `lowtide sim` carry them.

use lowtide_bench::error::BenchError;
use lowtide_bench::sim::error::SimError;
use lowtide_proof::error::ProofError;
use lowtide_report::threads::ThreadError;
use thiserror::Error;

use crate::experiments::file_anon_mix::FinishedError;
use crate::throttle::ProgramError;

/// Why an experiment has no result that can be trusted.
#[derive(Debug, Error)]
pub(crate) enum LabError {
    /// The data of `bench hit` was not entirely in memory.
    #[error(
        "{pages} pages were read from the device during `bench hit`; the data did not fit in the \
         budget"
    )]
    NotResident { pages: u64 },
    /// lowtide did not count pages of its own map.
    #[error(
        "{pages} pages of the map were touched, and not noticed within seconds: the machine is too \
         busy, or does not say which pages are in memory (see `lowtide doctor`)"
    )]
    NotNoticed { pages: u64 },
    /// A durability guarantee was broken.
    #[error(
        "{proof}: {lost} bytes lost and {wrong} wrong; please report this with the command line; \
         the first: {first}"
    )]
    Broken {
        /// Which proof failed.
        proof: &'static str,
        /// Flushed bytes that were older after the failure.
        lost: u64,
        /// Bytes that were never written there.
        wrong: u64,
        /// The first of them.
        first: String,
    },
    /// A proof did not reach every case that it must cover.
    #[error(
        "no byte was lost or wrong, but these cases never occurred: {missing}; run more cuts with \
         --cuts, or choose another --seed"
    )]
    Uncovered {
        /// What.
        missing: String,
    },
    /// A swarm found a failure.
    #[error("{0}")]
    Swarm(String),
}

impl From<LabError> for BenchError {
    fn from(error: LabError) -> Self {
        Self::Own(Box::new(error))
    }
}

impl From<LabError> for SimError {
    fn from(error: LabError) -> Self {
        Self::Own(Box::new(error))
    }
}

impl From<ProgramError> for BenchError {
    fn from(error: ProgramError) -> Self {
        let (what, advice) = error.parts();
        Self::usage(what, advice)
    }
}

impl From<ProgramError> for SimError {
    fn from(error: ProgramError) -> Self {
        let (what, advice) = error.parts();
        Self::usage(what, advice)
    }
}

impl From<FinishedError> for SimError {
    fn from(error: FinishedError) -> Self {
        match error {
            FinishedError::Foreign { path, line } => Self::usage(
                format!("line {line} of {} is not a finished run of file-anon-mix", path.display()),
                "name another file with --out",
            ),
            error => Self::Own(Box::new(error)),
        }
    }
}

/// The error of a proof, as one of the bench.
pub(crate) fn of_proof(error: ProofError) -> BenchError {
    match error {
        ProofError::File { action, path, source } => BenchError::file(action, &path, source),
        ProofError::Setup { max, page_bytes, source } => {
            BenchError::Setup { max, page_bytes, source }
        }
        ProofError::Open(error) => BenchError::Open(error),
        ProofError::Image(_) | ProofError::Region(_) => {
            BenchError::Peer { peer: "power-cut", what: error.to_string() }
        }
        ProofError::Worker => BenchError::Threads(ThreadError::Panicked),
    }
}
