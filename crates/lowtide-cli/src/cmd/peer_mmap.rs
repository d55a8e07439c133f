//! `lowtide peer-mmap`, which only `lowtide bench` starts.

use std::process::ExitCode;

use crate::bench::peer;

/// Serves the bench at the other end of standard input and output until it hangs up.
pub(crate) fn run() -> ExitCode {
    match peer::child::serve() {
        Ok(()) => ExitCode::SUCCESS,
        // The bench has been told already, as far as it still listens.
        Err(_) => ExitCode::FAILURE,
    }
}
