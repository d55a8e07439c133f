//! `lowtide peer-mmap`, an internal command of `lowtide bench`.

use std::process::ExitCode;

use crate::bench::peer;

/// Serves the bench on standard input and output until the bench closes them.
pub(crate) fn run() -> ExitCode {
    match peer::child::serve() {
        Ok(()) => ExitCode::SUCCESS,
        // The bench has already received the error, if it still reads.
        Err(_) => ExitCode::FAILURE,
    }
}
