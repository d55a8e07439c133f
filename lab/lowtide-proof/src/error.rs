//! What keeps a proof from going on.

use std::io;
use std::path::{Path, PathBuf};

use lowtide::{BuildError, OpenError, Size};
use thiserror::Error;

use crate::disk::PowerError;

/// A proof could not go on. It has proved nothing, and refuted nothing.
#[derive(Debug, Error)]
pub enum ProofError {
    /// One of its files cannot be used.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// What was tried, as a verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A pager cannot be made.
    #[error("cannot make a pager of {max} with pages of {page_bytes} bytes: {source}")]
    Setup {
        /// The budget.
        max: Size,
        /// Bytes of a page.
        page_bytes: u64,
        /// The runtime's reason.
        source: BuildError,
    },
    /// A pager does not take the file.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// What is left of the file cannot be said.
    #[error(transparent)]
    Image(#[from] PowerError),
    /// A region beside the file cannot be made.
    #[error("cannot make a region: {0}")]
    Region(String),
    /// A thread panicked, which is a bug.
    #[error("a thread of the proof panicked")]
    Worker,
}

impl ProofError {
    /// Names file and action of an I/O error.
    pub(crate) fn file(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::File { action, path: path.to_owned(), source }
    }
}
