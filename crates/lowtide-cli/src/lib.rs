//! The `lowtide` command, as a library: the laboratory plays its experiments with the same parts.
//!
//! This file only dispatches: [`cli`] defines the command line, and [`cmd`] has one file for each
//! command. The work of `lowtide bench` is in [`mod@bench`], that of `lowtide sim` in [`mod@sim`],
//! that of `lowtide run` in [`mod@run`], and experiments that bench and sim share in [`mod@lab`].
//! Results go to standard output; errors, notes and progress go to standard error.
//!
//! Exit codes: 0 success, 1 failure, 2 bad usage, 130 and 143 for a run that Ctrl-C or SIGTERM
//! ended.

#![deny(unsafe_code)]

pub mod bench;
pub mod cli;
mod cmd;
#[cfg(test)]
mod documented;
mod itself;
mod lab;
mod run;
pub mod sim;
mod throttle;

use std::process::ExitCode;

use lowtide_report::{out, table};

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    lowtide_host::heap::fit_heap_to_limit();
    let cli = cli::Cli::parse_current();
    if cli.wide {
        table::be_wide();
    }
    let code = match cli.command {
        cli::Command::Bench(bench) => cmd::bench::run(&bench),
        cli::Command::Sim(args) => cmd::sim::run(&args),
        cli::Command::Run(args) => cmd::run::run(&args),
        cli::Command::List { what, toml } => cmd::list::run(what, toml.as_deref()),
        cli::Command::Doctor => cmd::doctor::run(),
        cli::Command::Completions { shell } => cmd::completions::run(shell),
        cli::Command::Man { dir } => cmd::man::run(&dir),
        cli::Command::PeerMmap => cmd::peer_mmap::run(),
        cli::Command::CrashWriter(args) => cmd::crash_writer::run(&args),
    };
    match out::failure() {
        Some(error) => {
            out::note(format_args!(
                "error: cannot write the results to standard output: {error}; free some space, or \
                 redirect the output"
            ));
            if code == ExitCode::SUCCESS { ExitCode::FAILURE } else { code }
        }
        None => code,
    }
}
