//! `lowtide-lab sim wt`: the database that real kernels ran, whose figures
//! `docs/design/fidelity.md` compares. What decides about its reads are options: how large the
//! windows of read-ahead are, where dirty leaves go, and how much may be dirty for how long.

use crate::sim::options::{self, Common, OnMachine, Timing, threads};
use clap::{Args, ValueEnum};
use lowtide::Size;
use lowtide_bench::sim::error::SimError;
use lowtide_experiments::client::database::{DatabaseConfig, Layout};
use lowtide_report::count::Count;

use super::{Dirty, Plan, Reading, columns};

/// The machine that stands for the one on which real kernels ran it.
const MACHINE: &str = "emulated";
/// The policies of those kernels.
const POLICIES: &str = "mglru-7.1,mglru,lru";
/// The largest part of the file that may be free: with more the file grows without bound.
const FREE_MOST: u32 = 90;

const HELP: &str = "\
The file is 2.5G, the budget leaves 0.6G of it in the page cache, and the store's own cache takes
what is read most. 90k operations precede those that are measured. docs/design/fidelity.md has the
figures of real kernels. To keep the dirty limits out of the way, raise both.

Examples:
  lowtide-lab sim wt --explain
  lowtide-lab sim wt --read-ahead 128K --dirty-background 90 --dirty-limit 95";

/// The name of the workload.
pub(crate) const NAME: &str = "wt";
/// One line for listings.
pub(crate) const ABOUT: &str =
    "a document store as real kernels ran it: scattered dirty pages and long read-ahead";

/// Options of `sim wt`.
#[derive(Debug, Args)]
#[command(
    after_help = HELP,
    mut_arg("machine", |arg| arg.default_value(MACHINE)),
    mut_arg("policy", |arg| arg.default_value(POLICIES))
)]
pub(crate) struct Options {
    /// Percentage of operations that update their record
    #[arg(
        long,
        value_name = "PERCENT",
        value_parser = clap::value_parser!(u32).range(0..=100),
        default_value_t = 5
    )]
    updates: u32,
    /// Where dirty leaves are written: scattered (to free places of the file) or appended
    #[arg(
        long,
        value_enum,
        value_name = "LAYOUT",
        default_value = "scattered",
        hide_possible_values = true
    )]
    layout: Places,
    /// Percentage of the file that is free at first, for --layout scattered [default: 15]
    #[arg(long, value_name = "PERCENT", value_parser = free, allow_negative_numbers = true)]
    free: Option<u32>,
    /// Threads of the workload
    #[arg(
        long,
        value_name = "N",
        value_parser = threads(),
        default_value_t = 32
    )]
    threads: u32,
    /// Operations measured, of all threads together, as in 200k or 50M
    #[arg(
        long,
        value_name = "N",
        visible_alias = "accesses",
        allow_hyphen_values = true,
        default_value = "100k"
    )]
    ops: Count,
    /// Budget; `max` for all of the machine's memory [default: 1088M]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    max: Option<Size>,
    /// How much may be dirty.
    #[command(flatten)]
    dirty: Dirty,
    /// Read-ahead, and what is printed about it.
    #[command(flatten)]
    reading: Reading,
    /// The machine.
    #[command(flatten)]
    machine: OnMachine,
    /// Whether rows include the simulation's speed.
    #[command(flatten)]
    timing: Timing,
    /// Policies, seed and results.
    #[command(flatten)]
    common: Common,
}

/// Where dirty leaves are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Places {
    /// To free places.
    Scattered,
    /// To the end of the file.
    Appended,
}

impl From<Places> for Layout {
    fn from(places: Places) -> Self {
        match places {
            Places::Scattered => Self::Scattered,
            Places::Appended => Self::Appended,
        }
    }
}

fn free(text: &str) -> Result<u32, String> {
    let percent = text.parse().ok().filter(|percent| (0..=FREE_MOST).contains(percent));
    percent.ok_or_else(|| {
        format!("some of the file holds leaves: give a whole number from 0 to {FREE_MOST}, as 15")
    })
}

/// Simulates the database under every policy and prints the rows.
pub(crate) fn run(options: &Options) -> Result<(), SimError> {
    let policies = options.common.begin()?;
    plan(options)?.run(&options.common, &policies, options.timing.is_on())
}

fn plan(options: &Options) -> Result<Plan, SimError> {
    let whole = DatabaseConfig::ground_truth();
    let layout = Layout::from(options.layout);
    if layout == Layout::Appended && options.free.is_some() {
        return Err(SimError::usage(
            "--free has no effect with --layout appended: leaves go behind all others",
            "omit one of them",
        ));
    }
    let machine = options.reading.on(options.machine.load()?)?;
    let limit = options::machine_budget(options.max, &machine, Some(whole.max))?;
    let max = limit.unwrap_or(machine.pages() * machine.page);
    let plan = Plan {
        limit,
        name: NAME,
        about: ABOUT,
        config: DatabaseConfig {
            update_percent: options.updates,
            ops: options.ops.0,
            threads: options.threads,
            max,
            layout,
            free_percent: options.free.unwrap_or(whole.free_percent),
            dirty_limits: options.dirty.limits(machine.page)?,
            seed: options.common.seed,
            ..whole
        },
        machine,
        columns: columns::WT,
        published: false,
        explain: options.reading.explain,
    };
    plan.with_room("raise --max")
}
