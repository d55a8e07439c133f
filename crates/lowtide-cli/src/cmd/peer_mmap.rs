//! `lowtide peer-mmap`, an internal command of `lowtide bench`.

use std::process::ExitCode;

use lowtide_bench::peer::child::{self, Peer};
use lowtide_bench::play::job::Operations;

/// Serves the bench on standard input and output until the bench closes them.
pub(crate) fn run() -> ExitCode {
    let mut peer = Peer::<Operations>::default();
    match child::serve(|request| peer.answer(request)) {
        Ok(()) => ExitCode::SUCCESS,
        // The bench has already received the error, if it still reads.
        Err(_) => ExitCode::FAILURE,
    }
}
