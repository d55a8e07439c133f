//! `file-anon-mix`: readers of a file beside threads that allocate and free, together more than the
//! budget: the aging OOM of the published series.
//!
//! ```text
//!   readers ──► every page of the file, in order ──► pause 120 ms ──► again, forever
//!   threads ──► each fills its share of the memory ──► all done: free it ──► pause ──► next round
//! ```
//!
//! The threads' memory cannot be swapped, so only pages of the file can be evicted, and an eviction
//! that gives up too early is an out-of-memory kill. That is a result here (`oom`): the row says
//! after how many rounds. Source: `docs/kernel/workloads.md` §3.
//!
//! Here is what the experiment is: sizes, the options of both worlds, and what follows from a row.
//! Each world performs it with a program of its own: what kills is that a hundred page tables are
//! walked at once, and the runtime has one table, and reservations instead of a heap
//! (`docs/decisions/0009-experiments.md`, what stays two programs).
//!
//! | file | concept |
//! |---|---|
//! | `simulated` | one run for each policy on a simulated machine, beside the published figures |
//! | `seeds`, `finished` | many seeds: how often a policy is killed; the file of finished runs |
//! | `reproducer` | the arguments of the public reproducer |
//! | `real` | the same on real memory |

mod finished;
mod real;
mod reproducer;
mod seeds;
mod simulated;

pub(crate) use finished::FinishedError;
pub(crate) use real::run as measure;
pub(crate) use simulated::run as simulate;

use crate::experiments::writing::WrittenRow;
use std::path::PathBuf;
use std::time::Duration;

use crate::sim::options as sim;
use clap::Args;
use lowtide_bench::options::{Policies, rounds};
use lowtide_experiments::client::mix::MixConfig;
use lowtide_report::columns::{self, Column};
use lowtide_report::row::Row;
use lowtide_report::values::{budget, seconds};

use crate::bench::tenancy::host::Common;
use reproducer::Reproducer;

/// The name of the workload.
pub(crate) const NAME: &str = "file-anon-mix";
/// One line for listings: of the simulation, and of the run on real memory.
pub(crate) const ABOUT: &str =
    "readers of a mapped file beside threads that allocate and free: the aging OOM";
pub(crate) const BENCH_ABOUT: &str =
    "readers of a file beside workers that allocate and free, 1.375 times the budget";
/// Its rows as a table.
const COLUMNS: &[Column] = columns::MIX;

/// The published run, whose sizes and readers' pause are those of both worlds.
const PUBLISHED: MixConfig = MixConfig::published();
/// The machine of the published runs: files on a ramdisk.
const MACHINE: &str = "ramdisk";
/// Default scale of a simulation: a minute or two for each policy. A budget below 256 MiB measures
/// the constants of reclaim more than its policy (`docs/kernel/workloads.md` §0.3).
const SCALE: &str = "0.015625";
/// Readers and workers on real memory: the published run has 96 each, on 96 threads.
const READERS: usize = 6;
const WORKERS: usize = 6;
const READER_PAUSE: Duration = Duration::from_nanos(PUBLISHED.pause_ns);
/// The workers' pause between rounds on real memory.
const ROUND_PAUSE: Duration = Duration::from_millis(60);

/// A published size, scaled to the budget on real memory.
const fn part(max: u64, published: u64) -> u64 {
    max / (MixConfig::MAX >> 30) * (published >> 30)
}

#[derive(Debug, Args)]
pub(crate) struct BenchOptions {
    /// Memory budget of the tenant; the published one is 128 times as large
    #[arg(long, value_name = "SIZE", value_parser = budget, default_value = "128M",
          allow_hyphen_values = true)]
    max: u64,
    /// Rounds of the workers; the published run has 128
    #[arg(long, value_name = "N", value_parser = rounds(), default_value_t = 16)]
    rounds: u32,
    /// Time limit of a row in seconds; it ends with the rounds completed by then
    #[arg(long, value_name = "S", value_parser = seconds, default_value = "30",
          allow_negative_numbers = true)]
    seconds: f64,
    #[command(flatten)]
    policies: Policies,
    #[command(flatten)]
    common: Common,
}

const MAX_HELP: &str =
    "Budget; `max` for all of the machine's memory [default: 16G x scale; 48G x scale for v2]";
const SIM_HELP: &str = "\
96 readers and 96 allocating threads want more memory than the budget, without swap, and a hundred
of them reclaim at once. A kill is a result: its row has the counters of that moment. At a part of
the size the machine is slower by as much, so that passes over memory take as long as at full size.
Whether mglru-7.1 is killed, and when, differs from seed to seed. Below each row are the
published figures, if sizes, tasks, pauses, budget and machine are the published ones, at any scale.

--args takes what the public reproducer takes, but for the file's name: size of the memory, size of
the file, threads that fill, processes that read, a reader's pause in µs, and the pause between
rounds in s [1]. v3 is \"14g 8g 96 96 120000\"; v2 is \"44g 8g 96 96 120000\" with --max 48G.
Sizes are those of the full size: --scale applies to them.

--seeds prints how often a policy is killed, and after which rounds. With --out, every run is
appended to a file when it ends, and the same command continues where it was interrupted.

Examples:
  lowtide-lab sim file-anon-mix --rounds 20 --seed 1
  lowtide-lab sim file-anon-mix --args v2 --rounds 20
  lowtide-lab sim file-anon-mix --seeds 100 --seed 1 --rounds 20 --out kills.jsonl";

/// Options of `sim file-anon-mix`.
#[derive(Debug, Args)]
#[command(
    after_help = SIM_HELP,
    mut_arg("machine", |arg| arg.default_value(MACHINE)),
    mut_arg("max", |arg| arg.help(MAX_HELP)),
    mut_arg("policy", |arg| arg.default_value(sim::PUBLISHED_POLICIES)),
    mut_arg("scale", |arg| arg.default_value(SCALE))
)]
pub(crate) struct SimOptions {
    /// Rounds of filling and unmapping
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000),
        default_value_t = 128
    )]
    rounds: u32,
    /// Arguments of the public reproducer, or the name of published ones: v2, v3
    #[arg(long, value_name = "ARGS", default_value = "v3")]
    args: Reproducer,
    /// Count kills over this many seeds: --seed and those after it
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000),
        conflicts_with = "timing"
    )]
    seeds: Option<u32>,
    /// File to which finished runs are appended; runs that it has are not repeated
    #[arg(long, value_name = "FILE", requires = "seeds")]
    out: Option<PathBuf>,
    /// The machine, the budget, the scale and the results.
    #[command(flatten)]
    at_scale: sim::AtScale,
}

/// One line about a row's kill.
fn kill_line(row: &Row) -> Option<String> {
    let kill = row.own::<WrittenRow>().kill?;
    let share = row.max_bytes.map_or_else(String::new, |max| {
        format!(", {:.0} % of the budget,", 100.0 * kill.clean_file_bytes as f64 / max as f64)
    });
    Some(format!(
        "{}: killed after {:.1} s, in round {}: a charge of the {} failed after {:.2} ms, while \
         {}{share} were clean pages of the file",
        row.policy,
        kill.seconds,
        row.rounds.unwrap_or(0) + 1,
        kill.faulted,
        kill.tried_ms,
        sim::floor(kill.clean_file_bytes)
    ))
}

/// One line about a row of real memory that ended before its last round.
fn ending(row: &Row, rounds: u32) -> Option<String> {
    let why = if row.oom == Some(0) { "the time was over" } else { "no room could be made" };
    (row.rounds != Some(rounds)).then(|| {
        format!("{}: ended after {} of {rounds} rounds: {why}", row.policy, row.rounds.unwrap_or(0))
    })
}
