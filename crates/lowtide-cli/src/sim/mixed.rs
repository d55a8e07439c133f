//! `lowtide sim mixed`: the effect of a checkpoint on concurrent reads.

use std::sync::atomic::AtomicU64;

use clap::Args;
use lowtide::{Policy, Size};
use lowtide_sim::client::checkpoints::{self, MixedConfig, MixedResult};
use lowtide_sim::spec::MachineSpec;
use lowtide_sim::{MachineConfig, MachineError};

use super::error::SimError;
use super::host::Host;
use super::options::{self, Common, OnMachine, seconds, threads};
use super::row::{CheckpointsRow, Row, RowLatency};
use super::show::{self, Head};
use super::{columns, jobs};
use crate::bench::Spread;
use crate::interrupt::{self, Cut};
use crate::json::LatencyUs;
use crate::progress::{Patient, Unit};
use crate::span::Span;

/// Virtual nanoseconds of a second.
const SECOND_NS: u64 = 1_000_000_000;

/// The name of the workload.
pub(crate) const NAME: &str = "mixed";
/// One line for listings.
pub(crate) const ABOUT: &str =
    "zipf loads and a few stores of a mapped file, and what a checkpoint does to the loads";

/// Options of `sim mixed`.
#[derive(Debug, Args)]
#[command(after_help = "Example: lowtide sim mixed --checkpoint 2s --write 20")]
pub(crate) struct Options {
    /// The machine.
    #[command(flatten)]
    machine: OnMachine,
    /// Budget of the program's group
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, default_value = "256M")]
    max: Size,
    /// Size of the file [default: four budgets]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    size: Option<Size>,
    /// Threads of the workload
    #[arg(
        long,
        value_name = "N",
        value_parser = threads(),
        default_value_t = 8
    )]
    threads: u32,
    /// Virtual seconds measured
    #[arg(
        long,
        value_name = "N",
        value_parser = seconds(),
        default_value_t = 30
    )]
    seconds: u64,
    /// Time between checkpoints, as in 500ms or 10s
    #[arg(long, value_name = "TIME", default_value = "10s")]
    checkpoint: Span,
    /// Percentage of accesses that store
    #[arg(
        long,
        value_name = "PERCENT",
        value_parser = clap::value_parser!(u32).range(0..=100),
        default_value_t = 5
    )]
    write: u32,
    /// Policies, seed and results.
    #[command(flatten)]
    common: Common,
}

/// One run, with all options resolved.
#[derive(Clone, Debug)]
struct Plan {
    machine: MachineSpec,
    config: MixedConfig,
}

impl Plan {
    fn new(options: &Options) -> Result<Self, SimError> {
        let machine = options.machine.load()?;
        machine.validate()?;
        let max = options::group_budget(options.max, &machine)?;
        let whole = MixedConfig::new(max, options.common.seed);
        let checkpoint_ns = options.checkpoint.ns();
        if checkpoint_ns == 0 {
            return Err(SimError::usage(
                "--checkpoint 0s leaves no time between checkpoints",
                "give the time between two of them, such as --checkpoint 10s",
            ));
        }
        let size = options.size.unwrap_or(Size::new(whole.file));
        let config = MixedConfig {
            file: options::data_pages(size, machine.page)? * machine.page,
            threads: options.threads,
            update_percent: options.write.into(),
            run_ns: options.seconds * SECOND_NS,
            checkpoint_ns,
            ..whole
        };
        Ok(Self { machine, config })
    }

    fn head(&self) -> Head {
        let config = &self.config;
        Head {
            what: format!("{NAME}: {ABOUT}"),
            machine: show::machine(&self.machine),
            max: Some(config.max),
            data: format!("a mapped file of {}, advised to be random", Size::new(config.file)),
            run: format!(
                "{} threads, {} % stores, a checkpoint every {} s; {} s, after {} s that are left \
                 out",
                config.threads,
                config.update_percent,
                config.checkpoint_ns as f64 / 1e9,
                config.run_ns / SECOND_NS,
                config.warm_ns / SECOND_NS
            ),
        }
    }

    fn simulate(&self, policy: Policy, done: &AtomicU64) -> Result<MixedResult, MachineError> {
        let machine =
            MachineConfig { spec: self.machine.clone(), policy, max: None, seed: self.config.seed };
        checkpoints::run(&machine, &self.config, done, interrupt::flag())
    }

    fn row(&self, policy: Policy, result: &MixedResult) -> Row {
        let mut reads = result.outside.clone();
        reads.add(&result.during).expect("both have the same bounds");
        let row = Row {
            workload: NAME,
            world: "sim",
            system: "lowtide",
            policy: policy.to_string(),
            machine: self.machine.name.clone(),
            max_bytes: Some(self.config.max),
            data_bytes: Some(self.config.file),
            page_bytes: self.machine.page,
            threads: self.config.threads,
            seed: Some(self.config.seed),
            latency_us: Some(RowLatency::Whole(LatencyUs::from(&reads))),
            checkpoints: Some(CheckpointsRow {
                every_s: self.config.checkpoint_ns as f64 / 1e9,
                count: result.checkpoints.len(),
                seconds: Spread::of(result.checkpoints.iter().map(|&ns| ns as f64 / 1e9)),
                reads_during: result.during.len(),
                reads_outside: result.outside.len(),
                during_us: LatencyUs::from(&result.during),
                outside_us: LatencyUs::from(&result.outside),
            }),
            ..Row::default()
        };
        row.on_machine(Some(&result.began), &result.ended, result.ops)
    }
}

/// Simulates the readers under every policy and prints the rows.
///
/// # Errors
/// Any [`SimError`].
pub(crate) fn run(options: &Options) -> Result<(), SimError> {
    let policies = options.common.begin()?;
    let plan = Plan::new(options)?;
    let parallel =
        Host::ask().parallel(plan.machine.pages(), plan.config.file / plan.machine.page)?;
    plan.head().print(&options.common);

    let each = (plan.config.warm_ns + plan.config.run_ns) / 1_000_000;
    let progress = Patient::new("virtual milliseconds", Unit::Steps, each * policies.len() as u64);
    let results = jobs::run(policies.len(), parallel, progress, |number, done| {
        plan.simulate(policies[number], done)
    });
    let mut rows = Vec::with_capacity(policies.len());
    let mut cut = Cut::default();
    for (&policy, result) in policies.iter().zip(results) {
        let result =
            result.map_err(|error| SimError::of_machine(policy, error, "simulating mixed"));
        let Some(result) = cut.take(result)? else { continue };
        rows.push(plan.row(policy, &result));
    }
    show::results(&options.common, &plan.machine, &rows, columns::MIXED, &[], cut)
}
