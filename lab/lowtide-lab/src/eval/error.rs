//! Every error that ends an evaluation, and its exit code.

use std::io;
use std::path::PathBuf;

use lowtide_report::exit::Failure;
use lowtide_report::interrupt::{self, HandlerError};
use thiserror::Error;

/// Why an evaluation is not complete.
#[derive(Debug, Error)]
pub(crate) enum EvalError {
    /// A name that no experiment has, or options that are none.
    #[error("{what}; {advice}")]
    Usage {
        what: String,
        /// What to write instead.
        advice: String,
    },
    /// The folder cannot be used.
    #[error("cannot use the folder {}: {source}; choose another one with -o", path.display())]
    Place { path: PathBuf, source: io::Error },
    /// Another evaluation uses the folder.
    #[error(
        "another lowtide-lab eval uses {}; wait for it, or choose another folder with -o",
        path.display()
    )]
    Busy { path: PathBuf },
    /// A result cannot be kept.
    #[error("cannot write {}: {source}; free some space, and give the same command again",
        path.display())]
    Write { path: PathBuf, source: io::Error },
    /// Experiments without a result.
    #[error("{} of {all} experiments failed: {}; the same command tries them again",
        failed.len(), failed.join("; "))]
    Failed {
        /// Their names, each with its reason.
        failed: Vec<String>,
        /// How many there were.
        all: usize,
    },
    /// Ctrl-C.
    #[error(
        "interrupted after {complete} of {all} experiments; what is complete is in {}, and the \
         same command goes on from there",
        path.display()
    )]
    Interrupted { complete: usize, all: usize, path: PathBuf },
    /// The signal handler cannot be installed.
    #[error(transparent)]
    Handler(#[from] HandlerError),
}

impl Failure for EvalError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Usage { .. } => 2,
            Self::Interrupted { .. } => interrupt::exit_code(),
            _ => 1,
        }
    }
}
