//! Why a comparison ends without a result.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Everything that can go wrong.
#[derive(Debug, Error)]
pub enum Error {
    /// The sizes do not go together.
    #[error("{0}")]
    Usage(String),
    /// A data file failed.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// With which file or folder.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The folder has no room for the data.
    #[error(
        "{} has {free} MiB free and the data files need {needed}: free some space, name another \
         folder with --dir, or give a smaller --data", dir.display()
    )]
    Full {
        /// The folder.
        dir: PathBuf,
        /// MiB that are free.
        free: u64,
        /// MiB that are needed.
        needed: u64,
    },
    /// No memory for page buffers.
    #[error("no memory for {bytes} bytes of page buffers: {source}")]
    Memory {
        /// How many.
        bytes: usize,
        /// Why not.
        source: io::Error,
    },
    /// A cache keeps more pages than its capacity, by far.
    #[error("{system} holds more pages than its capacity, and frees none")]
    Exhausted {
        /// Which.
        system: &'static str,
    },
    /// No capacity was found at which a system and its tables fit.
    #[error("{system} does not fit into {bytes} bytes with pages of this size: give more --max")]
    Misfit {
        /// Which.
        system: String,
        /// The budget.
        bytes: u64,
    },
    /// The pager cannot be built.
    #[error("lowtide: {0}")]
    Build(#[from] lowtide::BuildError),
    /// The file cannot be opened in the pager.
    #[error("lowtide: {0}")]
    Open(#[from] lowtide::OpenError),
    /// An access of the pager failed.
    #[error("lowtide: {0}")]
    Lowtide(#[from] lowtide::Error),
    /// The workload cannot be drawn.
    #[error(transparent)]
    Distribution(#[from] lowtide_workload::DistributionError),
    /// A record had wrong bytes.
    #[error("{system}: {what}")]
    Wrong {
        /// The system that returned them.
        system: String,
        /// What is wrong with them.
        what: String,
    },
    /// A thread could not be started, or has panicked.
    #[error("a thread of {0} ended early")]
    Thread(String),
    /// A signal ended the run.
    #[error("interrupted; what was printed was measured before that")]
    Interrupted,
}

impl Error {
    /// A failure of a file.
    pub fn file(what: &'static str, path: &Path, source: io::Error) -> Self {
        Self::File { what, path: path.to_owned(), source }
    }
}
