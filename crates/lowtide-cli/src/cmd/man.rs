//! `lowtide man`: manual pages, generated from the texts of `--help`.

use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;
use lowtide_report::out;

use crate::cli::Cli;

/// Writes a page for each command into a directory.
pub(crate) fn run(dir: &Path) -> ExitCode {
    match clap_mangen::generate_to(Cli::command(), dir) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            out::note(format_args!(
                "error: cannot write manual pages to {}: {error}; name a directory that exists \
                 and can be written to",
                dir.display()
            ));
            ExitCode::FAILURE
        }
    }
}
