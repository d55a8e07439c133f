//! `lowtide sim ycsb-a|b|c`: the published experiment, at its full size or a part of it.
//!
//! One machine for each policy, side by side on the cores there are. Which row is where in time
//! does not matter to any of them.

use std::sync::atomic::AtomicU64;

use lowtide::{Policy, Size};
use lowtide_sim::client::database::{self, DatabaseConfig, DatabaseResult};
use lowtide_sim::spec::MachineSpec;
use lowtide_sim::{MachineConfig, MachineError};
use lowtide_workload::Letter;

use super::args::{SimArgs, Target};
use super::clock::Stopwatch;
use super::compare;
use super::error::SimError;
use super::host::Host;
use super::row::{Row, RowLatency};
use super::show::{self, Head};
use super::{columns, jobs, options};
use crate::interrupt::{self, Cut};
use crate::json::LatencyUs;
use crate::progress::{Patient, Unit};
use crate::table::thousands;

/// The machine of the published evaluation.
const MACHINE: &str = "xeon-96t";
/// Its budget: a group of 10 GiB (`docs/kernel/workloads.md` §1(b)).
const MAX_BYTES: u64 = 10 << 30;
/// Bytes of data for each record (`docs/kernel/workloads.md` §1(b)): leaves of 32 KiB hold 27.
const RECORD_BYTES: u64 = (32 << 10) / 27;

/// One run, decided.
#[derive(Clone, Debug)]
struct Plan {
    target: Target,
    machine: MachineSpec,
    max: Option<u64>,
    config: DatabaseConfig,
    /// Whether it is the published experiment, and nothing else.
    published: bool,
}

impl Plan {
    fn new(args: &SimArgs, letter: Letter) -> Result<Self, SimError> {
        let scale = options::scale(args)?;
        let whole = DatabaseConfig { seed: args.seed, ..DatabaseConfig::published(letter) };
        let part = |amount: u64| ((amount as f64 * scale).round() as u64).max(1);
        // Sizes are whole mebibytes, and so whole pages.
        let size = |bytes: u64| part(bytes >> 20) << 20;
        let config = DatabaseConfig {
            records: part(whole.records),
            ops: args.ops.map_or(part(whole.ops), |ops| ops.0),
            threads: args.threads.unwrap_or(whole.threads),
            cache: size(whole.cache),
            index: size(whole.index),
            other: size(whole.other),
            ..whole
        };
        let machine = options::machine_or(args, MACHINE)?;
        let max = options::machine_budget(args, &machine, Some(size(MAX_BYTES)))?;
        let own = config.cache + config.other;
        if let Some(max) = max.filter(|&max| max <= own) {
            return Err(SimError::usage(
                format!(
                    "a budget of {} leaves no room for files: the database takes {} for its own \
                     cache and itself",
                    Size::new(max),
                    options::floor(own)
                ),
                "raise --max, or lower --scale",
            ));
        }
        let published = letter == Letter::B
            && config == DatabaseConfig { seed: args.seed, ..DatabaseConfig::published(letter) }
            && max == Some(MAX_BYTES)
            && MachineSpec::preset(MACHINE)?.as_ref() == Some(&machine);
        Ok(Self { target: Target::Database(letter), machine, max, config, published })
    }

    fn head(&self) -> Head {
        Head {
            what: format!("{}: {}", self.target.name(), self.target.description()),
            machine: show::machine(&self.machine),
            max: self.max,
            data: format!(
                "{} records; a cache of {} in the database, which is not the kernel's to reclaim",
                thousands(self.config.records as f64),
                options::floor(self.config.cache)
            ),
            run: format!(
                "{} thread{}; {} operations, after all records have been loaded",
                self.config.threads,
                if self.config.threads == 1 { "" } else { "s" },
                thousands(self.config.ops as f64)
            ),
        }
    }

    fn simulate(&self, policy: Policy, done: &AtomicU64) -> Result<DatabaseResult, MachineError> {
        let machine = MachineConfig {
            spec: self.machine.clone(),
            policy,
            max: self.max,
            seed: self.config.seed,
        };
        database::run(&machine, &self.config, done, interrupt::flag())
    }

    fn row(&self, policy: Policy, result: &DatabaseResult) -> Row {
        let row = Row {
            workload: self.target.name(),
            world: "sim",
            system: "lowtide",
            policy: policy.to_string(),
            machine: self.machine.name.clone(),
            max_bytes: self.max,
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
pub(crate) fn run(args: &SimArgs, letter: Letter) -> Result<(), SimError> {
    let plan = Plan::new(args, letter)?;
    let policies = args.policies();
    let timing = options::timing(args, false);
    let frames = plan.max.map_or(plan.machine.pages(), |max| max / plan.machine.page);
    let data_pages = plan.config.records.saturating_mul(RECORD_BYTES) / plan.machine.page;
    let parallel = Host::ask().parallel(frames, data_pages)?;
    plan.head().print(args);

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
            SimError::of_machine(policy, error, &format!("simulating {}", plan.target.name()))
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
    show::results(args, &plan.machine, &rows, columns::DATABASE, &closing, cut)
}
