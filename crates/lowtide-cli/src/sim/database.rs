//! `lowtide sim ycsb-a|b|c`: the published experiment, at full size or scaled down.
//!
//! Each policy has its own machine; machines are simulated in parallel on all cores and are
//! independent of each other.

use std::sync::atomic::AtomicU64;

use clap::Args;
use lowtide::{Policy, Size};
use lowtide_sim::client::database::{self, DatabaseConfig, DatabaseResult};
use lowtide_sim::spec::MachineSpec;
use lowtide_sim::{MachineConfig, MachineError};
use lowtide_workload::Letter;

use super::clock::Stopwatch;
use super::compare;
use super::count::Count;
use super::error::SimError;
use super::host::Host;
use super::options::{self, AtScale, threads};
use super::row::{Row, RowLatency};
use super::show::{self, Head};
use super::{columns, jobs};
use crate::interrupt::{self, Cut};
use crate::json::LatencyUs;
use crate::progress::{Patient, Unit};
use crate::table::thousands;

/// The machine of the published evaluation.
const MACHINE: &str = "xeon-96t";

const MAX_HELP: &str = "Budget; `max` for all of the machine's memory [default: 10G x scale]";
const HELP: &str = "\
This is the published evaluation of MGLRU: MongoDB under YCSB, with a database cache that the kernel
cannot reclaim, on a full machine: CPUs, locks, a device, read-ahead and writeback in virtual time.
At full size, ycsb-b on xeon-96t shows the published figures and a verdict.

Example: lowtide sim ycsb-b --scale 0.05 --machine hdd --threads 8";

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
    /// The machine, the budget, the scale and the results.
    #[command(flatten)]
    at_scale: AtScale,
}

/// One run, with all options resolved.
#[derive(Clone, Debug)]
struct Plan {
    letter: Letter,
    machine: MachineSpec,
    /// The group's limit, if it is less than the machine's memory.
    limit: Option<u64>,
    config: DatabaseConfig,
    /// Whether it is exactly the published experiment.
    published: bool,
}

impl Plan {
    fn new(options: &Options, letter: Letter) -> Result<Self, SimError> {
        let (scale, seed) = (options.at_scale.scale, options.at_scale.common.seed);
        let whole = DatabaseConfig { seed, ..DatabaseConfig::published(letter, scale) };
        let machine = options.at_scale.machine.load()?;
        let limit = options::machine_budget(options.at_scale.max, &machine, Some(whole.max))?;
        let max = limit.unwrap_or(machine.pages() * machine.page);
        let config = DatabaseConfig {
            ops: options.ops.map_or(whole.ops, |ops| ops.0),
            threads: options.threads,
            max,
            ..whole
        };
        if max <= config.anon {
            return Err(SimError::usage(
                format!(
                    "a budget of {} leaves no room for files: the database and its cache take {}",
                    Size::new(max),
                    options::floor(config.anon)
                ),
                "raise --max, or lower --scale",
            ));
        }
        let published = letter == Letter::B
            && config == DatabaseConfig { seed, ..DatabaseConfig::published(letter, 1.0) }
            && MachineSpec::preset(MACHINE)?.as_ref() == Some(&machine);
        Ok(Self { letter, machine, limit, config, published })
    }

    fn head(&self) -> Head {
        Head {
            what: format!("{}: {}", name(self.letter), about(self.letter)),
            machine: show::machine(&self.machine),
            max: self.limit,
            data: format!(
                "{} records; {} of memory of the database's own, which the kernel cannot reclaim",
                thousands(self.config.records as f64),
                options::floor(self.config.anon)
            ),
            run: format!(
                "{} thread{}; {} operations on a file that has been in use, nothing of it cached",
                self.config.threads,
                if self.config.threads == 1 { "" } else { "s" },
                thousands(self.config.ops as f64)
            ),
        }
    }

    fn simulate(&self, policy: Policy, done: &AtomicU64) -> Result<DatabaseResult, MachineError> {
        let machine =
            MachineConfig { spec: self.machine.clone(), policy, max: None, seed: self.config.seed };
        database::run(&machine, &self.config, done, interrupt::flag())
    }

    fn row(&self, policy: Policy, result: &DatabaseResult) -> Row {
        let row = Row {
            workload: name(self.letter),
            program: Some("document store"),
            world: "sim",
            system: "lowtide",
            policy: policy.to_string(),
            machine: self.machine.name.clone(),
            max_bytes: self.limit,
            page_bytes: self.machine.page,
            threads: self.config.threads,
            seed: Some(self.config.seed),
            latency_us: Some(RowLatency::Whole(LatencyUs::from(&result.latency))),
            ..Row::default()
        };
        row.on_machine(Some(&result.began), &result.ended, result.ops)
    }
}

/// Simulates the database under every policy and prints the rows.
///
/// # Errors
/// Any [`SimError`].
pub(crate) fn run(options: &Options, letter: Letter) -> Result<(), SimError> {
    let policies = options.at_scale.common.begin()?;
    let plan = Plan::new(options, letter)?;
    let timing = options.at_scale.timing.is_on();
    let frames = 2 * plan.config.max / plan.machine.page;
    let data_pages = plan.config.file_bytes(plan.machine.page) / plan.machine.page;
    let parallel = Host::ask().parallel(frames, data_pages)?;
    plan.head().print(&options.at_scale.common);

    let total = plan.config.ops * policies.len() as u64;
    let progress = Patient::new("operations", Unit::Steps, total);
    let results =
        jobs::run(policies.len(), if timing { 1 } else { parallel }, progress, |number, done| {
            let began = Stopwatch::start();
            plan.simulate(policies[number], done).map(|result| (result, began.elapsed()))
        });
    let mut rows = Vec::with_capacity(policies.len());
    let mut cut = Cut::default();
    for (&policy, result) in policies.iter().zip(results) {
        let result = result.map_err(|error| {
            SimError::of_machine(policy, error, &format!("simulating {}", name(letter)))
        });
        let Some((result, took)) = cut.take(result)? else { continue };
        let row = plan.row(policy, &result);
        rows.push(if timing { row.timed(took, result.ended.bytes, data_pages) } else { row });
    }
    let mut rows = compare::with_ratios(rows);
    let mut closing = compare::ratio_line(&rows);
    if plan.published {
        closing.extend(compare::verdict_lines(&rows));
        rows = compare::with_published(rows);
    }
    show::results(&options.at_scale.common, &plan.machine, &rows, columns::DATABASE, &closing, cut)
}
