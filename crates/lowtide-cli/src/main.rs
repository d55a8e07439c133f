//! The `lowtide` command.
//!
//! This file only dispatches: `cli` defines the command line, and [`cmd`] has one file for each
//! small command. The work of `lowtide bench` is in [`lowtide_bench`], that of `lowtide sim` in
//! [`mod@sim`], that of `lowtide run` in `run`, of `lowtide top` in `top`, and of `lowtide report`
//! in `report`. Results go to standard output; errors, notes and progress go to standard error.
//!
//! Exit codes: 0 success, 1 failure, 2 bad usage, 130 and 143 for a run that Ctrl-C or SIGTERM
//! ended.

#![forbid(unsafe_code)]

mod advise;
mod bench;
mod cli;
mod cmd;
#[cfg(test)]
mod documented;
mod report;
mod run;
mod sim;
mod top;

use std::process::ExitCode;

use lowtide_report::exit::{ended, started};
use lowtide_report::table;

fn main() -> ExitCode {
    lowtide_host::heap::fit_heap_to_limit();
    let cli = cli::Cli::parse_current();
    if cli.wide {
        table::be_wide();
    }
    ended(match cli.command {
        cli::Command::Bench(bench) => started(|| bench::run(&bench)),
        cli::Command::Sim(args) => started(|| args.run()),
        cli::Command::Run(args) => cmd::run::run(&args),
        cli::Command::Advise(args) => started(|| advise::run(&args)),
        cli::Command::Stat(args) => cmd::stat::run(&args),
        cli::Command::Metrics(args) => cmd::metrics::run(&args),
        cli::Command::Export(args) => cmd::metrics::accompany(&args),
        cli::Command::Top(args) => cmd::top::run(&args),
        cli::Command::List { what, toml } => cmd::list::run(what, toml.as_deref()),
        cli::Command::Doctor => cmd::doctor::run(),
        cli::Command::Report(args) => started(|| args.run()),
        cli::Command::Completions { shell } => cmd::completions::run(shell),
        cli::Command::Man { dir } => cmd::man::run(&dir),
        cli::Command::PeerMmap => cmd::peer_mmap::run(),
    })
}
