//! The laboratory of lowtide: experiments and proofs that its builders run.
//!
//! The command `lowtide` answers whether lowtide helps on a machine or with a trace. This one
//! measures parts of lowtide, reproduces published results, and tries to break guarantees. It is
//! never installed, and plays with the same parts: [`lowtide_bench`] for access to data, threads
//! and systems, [`lowtide_report`] for rows and tables.
//!
//! | file | concept |
//! |---|---|
//! | `cli` | the command line |
//! | `bench` | measurements on real memory, and proofs |
//! | `sim` | simulations |
//! | `experiments` | what both worlds play, and their players |
//! | `eval` | all published experiments in one command |
//! | `peer` | the process of a peer, with the requests of this command |
//! | `crash_writer` | the process that `bench crash` kills |
//! | `throttle` | throttle policies, programs among them |
//! | `error` | failures that only experiments have |

#![deny(unsafe_code)]

mod bench;
mod cli;
mod crash_writer;
#[cfg(test)]
#[path = "../../../crates/lowtide-cli/src/documented.rs"]
mod documented;
mod error;
mod eval;
mod experiments;
mod peer;
mod sim;
mod throttle;

use std::process::ExitCode;

use clap::Parser;
use lowtide_report::exit::{ended, started};
use lowtide_report::{out, table};

fn main() -> ExitCode {
    out::speak_as("lowtide-lab");
    lowtide_host::heap::fit_heap_to_limit();
    let cli = cli::Cli::parse();
    if cli.wide {
        table::be_wide();
    }
    ended(match cli.command {
        cli::Command::Bench(bench) => started(|| bench.run()),
        cli::Command::Sim(simulation) => started(|| simulation.run()),
        cli::Command::Eval(eval) => started(|| eval.run()),
        cli::Command::List => cli::list(),
        cli::Command::PeerMmap => peer::run(),
        cli::Command::CrashWriter(args) => crash_writer::run(&args),
    })
}
