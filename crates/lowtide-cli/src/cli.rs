//! What can be asked of the command, in clap's terms.

use clap::{Parser, Subcommand, ValueEnum};

use crate::bench::args::BenchArgs;
use crate::bench::proof::victim::VictimArgs;
use crate::sim::args::SimArgs;

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "lowtide",
    version,
    about = "Use data bigger than a memory budget: Linux's page reclaim as a user-space engine",
    after_help = "Exit codes: 0 done, 1 the work failed, 2 bad usage, 130 ended by Ctrl-C, 143 by \
        SIGTERM."
)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

const SIM_ABOUT: &str = "\
Run a workload or a trace on a simulated machine, under any reclaim policies.

The engine is the one that the library runs on real memory; time, CPUs and devices are simulated. The same seed gives the \
same results on any machine.";

const SIM_HELP: &str = "\
Machines:
  ycsb-a, ycsb-b and ycsb-c are a document store with a cache of its own, as in the published evaluation, on the full \
machine: CPUs, tasks, locks, a device, read-ahead, write-back, in virtual time. At its full size, \
ycsb-b on xeon-96t is shown \
beside the published figures, with the verdict whether they were reproduced.
  tenants are 64 workers with large buffers on a machine with zram, without a group limit. Below full size a page stands for many: memory \
shrinks, what a page costs grows, numbers and times stay, so on xeon-96t the published figures \
are shown at any --scale.
  high-thrash and noisy-neighbour run on it, too, in groups of their own: a task that thrashes above memory.high pays by each law of \
--high-policy and each program of --bpf, with and without read-ahead, beside the published \
samples; tenants keep their hit ratio beside a \
scanner with memory.low, or lose it without.
  file-anon-mix is the published aging OOM: more memory than the budget, no swap, and a hundred tasks that reclaim at once. A kill is a result, and the \
row has the counters of that moment. At a part of the size the machine is slower by as much, so \
that passes over memory take as long \
as at the full size. Whether 7.1 is killed, and when, differs from seed to seed.
  zipf, uniform, loop and traces run on the full machine with --machine. Without, they run on the plain one, which has one CPU, \
no time, no read-ahead and no fault-around, so that its counters mean exactly what the accesses did.

Results:
  --json prints one object with a row for each policy. Counters under `stat` have the kernel's names; pgpgin and pgpgout are \
in KiB. Times are virtual. host_seconds (processor time), accesses_per_s and bytes_per_page are \
about the simulation itself and differ \
between machines and runs; --timing=off leaves them out, and then the same seed prints the same \
bytes. accesses_per_s is of one \
core; drawing or reading the accesses is not in it on the plain machine.

Examples:
  lowtide sim ycsb-b --policy mglru-7.1,mglru-7.1+S10,mglru
  lowtide sim ycsb-b --scale 0.05 --machine hdd --threads 8
  lowtide sim tenants --seconds 120 --policy mglru-7.1,mglru
  lowtide sim high-thrash --policy mglru --bpf examples/bpf/refault_recency.bpf.o
  lowtide sim noisy-neighbour --policy mglru,lru
  lowtide sim file-anon-mix --rounds 20 --seed 1
  lowtide sim zipf --accesses 50M --json
  lowtide sim zipf --machine laptop --max 512M --threads 4 --write 10
  lowtide sim --trace t.csv --max 64M --policy mglru,lru

docs/traces.md describes the formats of traces, docs/machines.md the files for --machine.

Exit codes: 0 done, 1 the work failed, 2 bad usage, 130 ended by Ctrl-C, 143 by SIGTERM.";

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a workload on a real file under a memory budget, beside other systems
    #[command(
        args_override_self = true,
        long_about = "Run a workload on a real file under a memory budget, beside other \
            systems.\n\n\
        All systems are alive at the same time, each with the same budget, and take turns in \
        short slices; every \
        ratio is to the first row of the same round. Every byte read is verified.\n\n\
        Two are no measurements but proofs (crash, power-cut): they kill writers and cut the \
        power of their disk, and fail if a byte is missing \
        that a flush had called durable.\n\n\
        With tenants (high-thrash, noisy-neighbour, tenants, file-anon-mix, program-cost) rows \
        follow one another, each in a pager of \
        its own, and there are no other systems; every load looks at one kilobyte of its page, \
        which is verified.\n\n\
        Examples:\n  \
        lowtide bench ycsb-b --against none\n  \
        lowtide bench fill --max 256M\n  \
        lowtide bench mixed --threads 8 --checkpoint 10s\n  \
        lowtide bench ycsb-b --record run.lt.zst && lowtide sim --trace run.lt.zst --mrc --advise \
        0.01\n  \
        lowtide bench replay --trace mix.csv --max 64M\n  \
        lowtide bench ycsb-b --policy mglru,mglru-7.1,lru --device-delay read=2ms,write=10ms\n  \
        lowtide bench high-thrash --bpf examples/bpf/refault_recency.bpf.o\n  \
        lowtide bench high-thrash --threads 1,4,16 --no-readahead\n  \
        lowtide bench crash --cycles 1000 --threads 8 --seed 1\n  \
        lowtide bench power-cut --cuts 10000 --seed 1\n  \
        lowtide bench program-cost --bpf examples/bpf/noop.bpf.o"
    )]
    Bench(Box<BenchArgs>),
    /// Run a workload or a trace on a simulated machine, under any reclaim policies
    #[command(args_override_self = true, long_about = SIM_ABOUT, after_long_help = SIM_HELP)]
    Sim(Box<SimArgs>),
    /// Print what can be chosen by name
    List {
        /// Of which kind
        what: Listing,
        /// Print the machine NAME as a file for `sim --machine`, to be changed [machines]
        #[arg(long, value_name = "NAME")]
        toml: Option<String>,
    },
    /// Explain what this machine offers and what it refuses
    Doctor,
    /// The worker behind `--against mmap`; speaks JSON lines with the bench that started it
    #[command(hide = true)]
    PeerMmap,
    /// The process that `bench crash` kills
    #[command(hide = true)]
    CrashWriter(VictimArgs),
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
