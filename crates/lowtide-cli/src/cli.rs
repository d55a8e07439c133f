//! The command line: commands, help texts and examples, as clap types.

use std::env;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::advise::AdviseArgs;
use crate::bench::Bench;
use crate::cmd::metrics::{ExportArgs, MetricsArgs};
use crate::cmd::stat::StatArgs;
use crate::report::{self, ReportArgs};
use crate::run::RunArgs;
use crate::sim::Simulation;
use crate::top::TopArgs;

#[derive(Debug, Parser)]
#[command(
    name = "lowtide",
    version,
    max_term_width = 100,
    about = "Use data bigger than a memory budget: Linux's page reclaim as a user-space engine",
    after_help = "Exit codes: 0 success, 1 failure, 2 bad usage, 130 ended by Ctrl-C, 143 by \
        SIGTERM."
)]
pub(crate) struct Cli {
    /// The command.
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Do not split tables that are wider than 100 columns
    #[arg(long, global = true, display_order = 999)]
    pub(crate) wide: bool,
}

/// Beginnings of a command line in documents.
#[cfg(test)]
pub(crate) const STARTS: &[&str] =
    &["lowtide ", "cargo run --release -- ", "cargo run --release --quiet -- "];

impl Cli {
    /// Parses the command line of this process.
    pub(crate) fn parse_current() -> Self {
        if env::args_os().nth(1).is_some_and(|name| name == "run") {
            let RunAlone { command: Alone::Run(run), wide } = RunAlone::parse();
            return Self { command: Command::Run(run), wide };
        }
        Self::parse()
    }
}

/// The command line, as far as `run` needs it. All commands have hundreds of options, and to make
/// those takes longer than everything else before a program starts.
#[derive(Debug, Parser)]
#[command(name = "lowtide", max_term_width = 100)]
struct RunAlone {
    #[command(subcommand)]
    command: Alone,
    /// Do not split tables that are wider than 100 columns
    #[arg(long, global = true, display_order = 999)]
    wide: bool,
}

/// As in [`Command`].
#[derive(Debug, Subcommand)]
enum Alone {
    /// Run a program, and keep its file mappings within a budget
    #[command(args_override_self = true, long_about = RUN_ABOUT, after_long_help = RUN_HELP)]
    Run(RunArgs),
}

const BENCH_ABOUT: &str = "\
Run a workload on a real file under a memory budget, and compare lowtide with other systems.

All systems run side by side, each with the same budget, and take turns in short slices. Ratios
compare a row with the first row of the same round. Every byte read is verified.

The repository's `lowtide-lab` has the experiments and proofs of lowtide's builders.";

const BENCH_HELP: &str = "\
`lowtide bench WORKLOAD --help` lists the options of a workload.

Examples:
  lowtide bench gather --skew hot
  lowtide bench ycsb-b --against none
  lowtide bench scan --stride 16 --against mmap-random,map-userfault,map-pagecache

Exit codes: 0 success, 1 failure, 2 bad usage, 130 ended by Ctrl-C, 143 by SIGTERM.";

const SIM_HELP: &str = "\
`lowtide sim WORKLOAD --help` explains a workload and its options.

The simulator runs the same engine as the library; time, CPUs and devices are simulated. Each policy
has a row. The same seed gives the same results on any machine.

--json prints one object with all rows. Counters under `stat` have the kernel's names; pgpgin and
pgpgout are in KiB. Times are virtual. Only host_seconds (CPU time), accesses_per_s (per core) and
bytes_per_page describe the simulator itself and vary between runs; --timing=off omits them, and the
output is then identical for the same seed.

Examples:
  lowtide sim zipf --ops 1M --policy mglru-7.1,mglru-7.1+S10,mglru
  lowtide sim zipf --machine laptop --max 512M --threads 4 --write 10
  lowtide sim trace t.csv --mrc --advise 0.01

docs/traces.md describes the formats of traces, docs/machines.md the files for --machine.
Exit codes: 0 success, 1 failure, 2 bad usage, 130 ended by Ctrl-C, 143 by SIGTERM.";

const RUN_ABOUT: &str = "\
Run a program, and keep its file mappings within a budget.

The program is not changed and needs no privilege. A library loaded into it sees which files it
maps, and drops pages of them when more are in memory than the budget allows. The mappings stay the
kernel's own, so the program reads and writes the same bytes. All processes that the program starts
share its budget. Without --max it sets itself, as small as the program allows. With --files the
page cache of large files that it reads or writes counts, too. For memory without a file (the heap)
use a memory cgroup with swap or zram, or the library's regions.";

const RUN_HELP: &str = "\
Examples:
  lowtide run -- python3 search.py
  lowtide run --max 1G -- python3 search.py
  lowtide run --high 1G --max 1.2G -- mdb_stat -e data.mdb
  lowtide run --files --max 1G -- python3 query.py
  lowtide run --max 1G --map '*.idx=256M' --json --summary run.json -- ./server
  lowtide run --max 1G --metrics 9464 -- ./server

SIGUSR1 makes a program without a handler for it print the current summary.
Exit codes: those of the program; 2 bad usage, or a program that cannot load the library (static,
Go, set-user-ID, of another architecture); 126 it cannot be executed; 127 it was not found.";

const ADVISE_HELP: &str = "\
A process publishes the curve of strict LRU, from a sample of its pages. A trace is played with each
policy. docs/advice.md says how exact each answer is.

Examples:
  lowtide run --max 1G --record run.csv --advise -- ./server
  lowtide advise run.csv --target 0.01 --plot curves.html
  lowtide advise 4711

Exit codes: 0 success, 1 failure, 2 bad usage.";

const STAT_HELP: &str = "\
A program under `lowtide run` is seen from the first mapping that is kept; one with the library or
the Python package, if it publishes its status. Only processes of this user are seen.

Examples:
  lowtide stat
  lowtide stat 4711 --interval 2
  lowtide stat 4711 --json | jq .pagers[0].tenants[0].usage_bytes";

const METRICS_HELP: &str = "\
All processes of this user that have a status page are exported. `lowtide run --metrics` does the
same for one program.

Examples:
  lowtide metrics --listen 9464
  lowtide metrics --file /var/lib/node_exporter/lowtide.prom
  lowtide metrics --once";

const TOP_ABOUT: &str = "\
Show all processes of this user that are under lowtide, while they run.

A row is a process, with its memory, its faults, and how long its threads wait for memory. Enter
goes down to its tenants, and to a page of each with its limits, the ages of its pages, and what
half and twice the memory would change. `?` lists the keys. The processes are not slowed down: each
writes a page about itself once a second, and this command reads it.";

const TOP_HELP: &str = "\
Examples:
  lowtide top
  lowtide top 4711 --interval 0.5
  lowtide top --once | head

Without a terminal it prints a table once. NO_COLOR removes colours; without a locale of UTF-8 it
draws with ASCII alone. docs/watching.md explains what is shown.
Exit codes: 0 it was quit, or has printed its table; 1 failure; 2 bad usage; 129 the terminal was
closed; 130 ended by Ctrl-C, 143 by SIGTERM.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a workload on a real file under a memory budget, and compare it with other systems
    #[command(
        subcommand,
        args_override_self = true,
        long_about = BENCH_ABOUT,
        after_long_help = BENCH_HELP,
        subcommand_value_name = "WORKLOAD",
        subcommand_help_heading = "Workloads",
        disable_help_subcommand = true
    )]
    Bench(Bench),
    /// Run a workload or a trace on a simulated machine, under one or more reclaim policies
    #[command(
        subcommand,
        args_override_self = true,
        subcommand_value_name = "WORKLOAD",
        subcommand_help_heading = "Workloads",
        disable_help_subcommand = true,
        after_help = SIM_HELP
    )]
    Sim(Simulation),
    /// Run a program, and keep its file mappings within a budget
    #[command(args_override_self = true, long_about = RUN_ABOUT, after_long_help = RUN_HELP)]
    Run(RunArgs),
    /// Say how large a budget should be: of a running program, or of a recorded one
    #[command(after_help = ADVISE_HELP)]
    Advise(AdviseArgs),
    /// Show what processes under lowtide do now
    #[command(args_override_self = true, after_help = STAT_HELP)]
    Stat(StatArgs),
    /// Export what processes under lowtide do as metrics of Prometheus
    #[command(args_override_self = true, after_help = METRICS_HELP)]
    Metrics(MetricsArgs),
    /// The process behind `lowtide run --metrics`
    #[command(hide = true)]
    Export(ExportArgs),
    /// Show all processes that are under lowtide, while they run
    #[command(args_override_self = true, long_about = TOP_ABOUT, after_long_help = TOP_HELP)]
    Top(TopArgs),
    /// List the names that options accept
    List {
        /// The kind of names
        what: Listing,
        /// With `machines`: print the machine NAME as a TOML file for `sim --machine`
        #[arg(long, value_name = "NAME")]
        toml: Option<String>,
    },
    /// Report which features lowtide can use on this machine, and why others are unavailable
    Doctor,
    /// Draw results as one page of HTML: pictures, tables, how to repeat them
    #[command(after_help = report::HELP)]
    Report(ReportArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write a manual page for each command
    Man {
        /// The output directory, which must exist
        dir: PathBuf,
    },
    /// The worker behind `--against mmap`; speaks JSON lines with the bench that started it
    #[command(hide = true)]
    PeerMmap,
}

/// What `lowtide list` can list.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Listing {
    /// Names for `lowtide bench`
    Workloads,
    /// Names for `--policy`, and the switches that can follow them
    Policies,
    /// Names for `--machine`, and the devices that a machine file can name
    Machines,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn run_has_the_same_help_alone() {
        let of = |mut command: clap::Command| {
            command.build();
            let run = command.find_subcommand_mut("run").unwrap();
            (run.render_long_help().to_string(), run.render_help().to_string())
        };
        assert_eq!(of(RunAlone::command()), of(Cli::command()));
    }
}
