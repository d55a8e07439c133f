//! Why `lowtide top` ended.

use std::io;

use thiserror::Error;

/// An error of `lowtide top`.
#[derive(Debug, Error)]
pub(crate) enum TopError {
    #[error("cannot use the terminal: {0}; `lowtide top --once` needs none")]
    Terminal(io::Error),
    #[error("{0}")]
    Pages(#[from] lowtide_status::Error),
}
