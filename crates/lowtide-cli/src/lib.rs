//! The `lowtide` command, as a library: the laboratory plays its experiments with the same parts.
//!
//! This file only dispatches: `cli` defines the command line, and [`cmd`] has one file for each
//! command. The work of `lowtide bench` is in [`mod@bench`], that of `lowtide sim` in [`mod@sim`],
//! that of `lowtide run` in `run`, of `lowtide top` in `top`, and of `lowtide report` in `report`.
//! Results go to standard output; errors, notes and progress go to standard error.
//!
//! Exit codes: 0 success, 1 failure, 2 bad usage, 130 and 143 for a run that Ctrl-C or SIGTERM
//! ended.

#![deny(unsafe_code)]
#![allow(missing_docs, reason = "the laboratory alone uses this library; its files explain it")]

mod advise;
pub mod bench;
mod cli;
pub mod cmd;
#[cfg(test)]
mod documented;
pub mod itself;
mod report;
mod run;
pub mod sim;
mod top;

use std::process::ExitCode;

use lowtide_report::table;

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    lowtide_host::heap::fit_heap_to_limit();
    let cli = cli::Cli::parse_current();
    if cli.wide {
        table::be_wide();
    }
    cmd::ended(match cli.command {
        cli::Command::Bench(bench) => cmd::bench::run(&bench),
        cli::Command::Sim(args) => cmd::sim::run(&args),
        cli::Command::Run(args) => cmd::run::run(&args),
        cli::Command::Advise(args) => cmd::advise::run(&args),
        cli::Command::Stat(args) => cmd::stat::run(&args),
        cli::Command::Metrics(args) => cmd::metrics::run(&args),
        cli::Command::Export(args) => cmd::metrics::accompany(&args),
        cli::Command::Top(args) => cmd::top::run(&args),
        cli::Command::List { what, toml } => cmd::list::run(what, toml.as_deref()),
        cli::Command::Doctor => cmd::doctor::run(),
        cli::Command::Report(args) => cmd::report::run(&args),
        cli::Command::Completions { shell } => cmd::completions::run(shell),
        cli::Command::Man { dir } => cmd::man::run(&dir),
        cli::Command::PeerMmap => cmd::peer_mmap::run(),
    })
}
