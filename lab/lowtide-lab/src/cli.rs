//! The command line: commands, help texts and examples, as clap types.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use lowtide_report::out;

use crate::bench::Bench;
use crate::bench::proof::victim::VictimArgs;
use crate::eval::EvalArgs;
use crate::sim::Simulation;

#[derive(Debug, Parser)]
#[command(
    name = "lowtide-lab",
    version,
    max_term_width = 100,
    about = "Experiments and proofs of lowtide's builders",
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
pub(crate) const STARTS: &[&str] = &["lowtide-lab ", "cargo run --release -p lowtide-lab -- "];

const BENCH_ABOUT: &str = "\
Measure a part of lowtide on real files and real memory, or prove a guarantee.

Systems run side by side, each with the same budget, and take turns in short slices. Ratios compare
a row with the first row of the same round. Every byte read is verified.

Workloads with tenants (high-thrash to program-cost) run their rows one after another, each in its
own pager. crash and power-cut are proofs: they kill writers or cut the disk's power, and fail if
a flushed byte is lost.";

const BENCH_HELP: &str = "\
`lowtide-lab bench WORKLOAD --help` lists the options of a workload.

Examples:
  lowtide-lab bench mixed --threads 8 --checkpoint 10s
  lowtide-lab bench ycsb-b --device-delay read=2ms,write=10ms
  lowtide-lab bench ycsb-b --record run.lt.zst && lowtide sim trace run.lt.zst --mrc
  lowtide-lab bench replay --trace mix.csv --max 64M
  lowtide-lab bench depth --depth 1,8,32 --against fio
  lowtide-lab bench in-order --op read,read_at --io-size 64K,1M
  lowtide-lab bench fill --max 256M
  lowtide-lab bench high-thrash --threads 1,4,16 --no-readahead
  lowtide-lab bench high-thrash --bpf examples/bpf/refault_recency.bpf.o
  lowtide-lab bench program-cost --bpf examples/bpf/noop.bpf.o
  lowtide-lab bench crash --cycles 1000 --threads 8 --seed 1
  lowtide-lab bench power-cut --cuts 10000 --seed 1

Exit codes: 0 success, 1 failure, 2 bad usage, 130 ended by Ctrl-C, 143 by SIGTERM.";

const SIM_HELP: &str = "\
`lowtide-lab sim WORKLOAD --help` explains a workload and its options.

The simulator runs the same engine as the library; time, CPUs and devices are simulated. Each policy
has a row. The same seed gives the same results on any machine. --json prints one object with all
rows, as `lowtide sim` does.

Examples:
  lowtide-lab sim ycsb-b --scale 0.05 --policy mglru-7.1,mglru-7.1+S10,mglru
  lowtide-lab sim kernel-build --scale 0.1
  lowtide-lab sim corpus --half tuning
  lowtide-lab sim swarm 300 --seed 1

docs/machines.md describes the files for --machine.
Exit codes: 0 success, 1 failure, 2 bad usage, 130 ended by Ctrl-C, 143 by SIGTERM.";

const EVAL_HELP: &str = "\
Each experiment is a command of `sim` or `bench`, which its result names. Its rule is that of
docs/kernel/workloads.md: a range for each thing that is compared. Results are files in DIR, which
`lowtide report DIR -o report.html` draws; eval.csv has the verdicts, figures.csv each published
figure beside ours. Ctrl-C ends it in order, and the same command goes on from there.

Examples:
  lowtide-lab eval --quick
  lowtide-lab eval --quick --world sim --seeds 3 -o eval-seeds
  lowtide-lab eval --only ycsb-b,kernel-build --list
  lowtide-lab eval --only ycsb-b --with 'ycsb-b=--read-ahead 128K' -o eval-128K

Exit codes: 0 success, whatever the verdicts; 1 an experiment failed; 2 bad usage; 130 ended by
Ctrl-C, 143 by SIGTERM.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure a part of lowtide on real files and real memory, or prove a guarantee
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
    /// Run an experiment on a simulated machine, under one or more reclaim policies
    #[command(
        subcommand,
        args_override_self = true,
        subcommand_value_name = "WORKLOAD",
        subcommand_help_heading = "Workloads",
        disable_help_subcommand = true,
        after_help = SIM_HELP
    )]
    Sim(Simulation),
    /// Play all published experiments, and say which results are reproduced
    #[command(after_help = EVAL_HELP)]
    Eval(EvalArgs),
    /// List the workloads, each with a line about it
    List,
    /// The worker of peers that use the kernel's memory; speaks JSON lines with the bench that
    /// started it
    #[command(hide = true)]
    PeerMmap,
    /// The process that `bench crash` kills
    #[command(hide = true)]
    CrashWriter(VictimArgs),
}

/// Prints the workloads of both worlds.
pub(crate) fn list() -> ExitCode {
    let command = Cli::command();
    for world in ["bench", "sim"] {
        let workloads =
            command.find_subcommand(world).into_iter().flat_map(|of| of.get_subcommands());
        for workload in workloads {
            let about = workload.get_about().map_or_else(String::new, ToString::to_string);
            out::line(format_args!("{world:<6} {:<16} {about}", workload.get_name()));
        }
    }
    ExitCode::SUCCESS
}
