//! What can be asked of the command, in clap's terms.

use clap::{Parser, Subcommand, ValueEnum};

use crate::bench::args::BenchArgs;

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "lowtide",
    version,
    about = "Use data bigger than a memory budget: Linux's page reclaim as a user-space engine",
    after_help = "Exit codes: 0 done, 1 the work failed, 2 bad usage."
)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a workload on a real file under a memory budget, beside other systems
    #[command(
        args_override_self = true,
        long_about = "Run a workload on a real file under a memory budget, beside other systems.\n\n\
        All systems are alive at the same time, each with the same budget, and take turns in short slices; every \
        ratio is to the first row of the same round. Every byte read is verified."
    )]
    Bench(Box<BenchArgs>),
    /// Print what can be chosen by name
    List {
        /// Of which kind
        what: Listing,
    },
    /// Explain what this machine offers and what it refuses
    Doctor,
    /// The worker behind `--against mmap`; speaks JSON lines with the bench that started it
    #[command(hide = true)]
    PeerMmap,
}

/// What `lowtide list` can list.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Listing {
    /// Names for `lowtide bench`
    Workloads,
    /// Names for `--policy`, and the switches that may follow them
    Policies,
    /// Names for `--machine`, and the devices that a machine's file may name
    Machines,
}
