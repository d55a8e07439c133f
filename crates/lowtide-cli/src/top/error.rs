//! Why `lowtide top` ended.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// An error of `lowtide top`.
#[derive(Debug, Error)]
pub(crate) enum TopError {
    #[error("process {pid} is not in the recording {}", .path.display())]
    NotRecorded { pid: u32, path: PathBuf },
    #[error("cannot read the recording {}: {source}", .path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error(
        "{} is not a recording of `lowtide top --record`: line {line}: {why}",
        .path.display()
    )]
    NoRecording { path: PathBuf, line: usize, why: String },
    #[error("{} has no samples: `lowtide top --record` wrote none", .path.display())]
    Empty { path: PathBuf },
    #[error(
        "cannot write the recording {}: {source}; the samples before are in it",
        .path.display()
    )]
    Record { path: PathBuf, source: io::Error },
    #[error("cannot use the terminal: {0}; `lowtide top --once` needs none")]
    Terminal(io::Error),
    #[error("{0}")]
    Pages(#[from] lowtide_status::Error),
}
