//! `lowtide-lab sim ycsb-a|b|c`: the published experiment, at full size or scaled down.

use crate::sim::options::{self, AtScale, threads};
use clap::Args;
use lowtide_bench::sim::error::SimError;
use lowtide_experiments::client::database::DatabaseConfig;
use lowtide_report::count::Count;
use lowtide_sim::spec::MachineSpec;
use lowtide_workload::Letter;

use super::{Dirty, Plan, Reading, columns};

/// The machine of the published evaluation.
const MACHINE: &str = "xeon-96t";

const MAX_HELP: &str = "Budget; `max` for all of the machine's memory [default: 10G x scale]";
const HELP: &str = "\
This is the published evaluation of MGLRU: MongoDB under YCSB, with a database cache that the kernel
cannot reclaim, on a full machine: CPUs, locks, a device, read-ahead and writeback in virtual time.
At full size, ycsb-b on xeon-96t shows the published figures and a verdict.

Example: lowtide-lab sim ycsb-b --scale 0.05 --machine hdd --threads 8 --explain";

/// The name of a letter's workload.
pub(crate) const fn name(letter: Letter) -> &'static str {
    match letter {
        Letter::A => "ycsb-a",
        Letter::B => "ycsb-b",
        Letter::C => "ycsb-c",
    }
}

/// One line for listings.
pub(crate) const fn about(letter: Letter) -> &'static str {
    match letter {
        Letter::A => "a document store with a cache of its own: half reads, half updates",
        Letter::B => "a document store with a cache of its own: 95 % reads, 5 % updates",
        Letter::C => "a document store with a cache of its own: reads only",
    }
}

/// Options of `sim ycsb-a`, `ycsb-b` and `ycsb-c`.
#[derive(Debug, Args)]
#[command(
    after_help = HELP,
    mut_arg("machine", |arg| arg.default_value(MACHINE)),
    mut_arg("max", |arg| arg.help(MAX_HELP)),
    mut_arg("policy", |arg| arg.default_value(options::PUBLISHED_POLICIES))
)]
pub(crate) struct Options {
    /// Threads of the workload
    #[arg(
        long,
        value_name = "N",
        value_parser = threads(),
        default_value_t = 32
    )]
    threads: u32,
    /// Operations of all threads together, as in 200k or 50M [default: 6M x scale]
    #[arg(long, value_name = "N", visible_alias = "accesses", allow_hyphen_values = true)]
    ops: Option<Count>,
    /// How much may be dirty.
    #[command(flatten)]
    dirty: Dirty,
    /// Read-ahead, and what is printed about it.
    #[command(flatten)]
    reading: Reading,
    /// The machine, the budget, the scale and the results.
    #[command(flatten)]
    at_scale: AtScale,
}

/// Simulates the database under every policy and prints the rows.
pub(crate) fn run(options: &Options, letter: Letter) -> Result<(), SimError> {
    let policies = options.at_scale.common.begin()?;
    let timing = options.at_scale.timing.is_on();
    plan(options, letter)?.run(&options.at_scale.common, &policies, timing)
}

fn plan(options: &Options, letter: Letter) -> Result<Plan, SimError> {
    let (scale, seed) = (options.at_scale.scale, options.at_scale.common.seed);
    let whole = DatabaseConfig { seed, ..DatabaseConfig::published(letter, scale) };
    let machine = options.at_scale.machine.load()?;
    let is_default = MachineSpec::preset(MACHINE)?.as_ref() == Some(&machine);
    let limit = options::machine_budget(options.at_scale.max, &machine, Some(whole.max))?;
    let max = limit.unwrap_or(machine.pages() * machine.page);
    let config = DatabaseConfig {
        ops: options.ops.map_or(whole.ops, |ops| ops.0),
        threads: options.threads,
        max,
        dirty_limits: options.dirty.limits(machine.page)?,
        ..whole
    };
    let full = DatabaseConfig { seed, ..DatabaseConfig::published(letter, 1.0) };
    let plan = Plan {
        limit,
        name: name(letter),
        about: about(letter),
        // Which read-ahead the published machine had is not known.
        published: letter == Letter::B && config == full && is_default,
        machine: options.reading.on(machine)?,
        config,
        columns: columns::DATABASE,
        explain: options.reading.explain,
    };
    plan.with_room("raise --max, or lower --scale")
}
