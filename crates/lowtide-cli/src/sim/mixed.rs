//! `lowtide sim mixed`: what a checkpoint does to those who read meanwhile.

use std::sync::atomic::AtomicU64;

use lowtide::{Policy, Size};
use lowtide_sim::client::checkpoints::{self, MixedConfig, MixedResult};
use lowtide_sim::spec::MachineSpec;
use lowtide_sim::{MachineConfig, MachineError};

use super::args::{SimArgs, Target};
use super::error::SimError;
use super::host::Host;
use super::row::{CheckpointsRow, Row, RowLatency};
use super::show::{self, Head};
use super::{columns, jobs, options};
use crate::bench::Spread;
use crate::interrupt::{self, Cut};
use crate::json::LatencyUs;
use crate::progress::{Patient, Unit};
use crate::span::Span;

/// An ordinary machine.
const MACHINE: &str = "laptop";
/// The budget if nothing is said.
const MAX_BYTES: u64 = 256 << 20;
/// Virtual nanoseconds of a second.
const SECOND_NS: u64 = 1_000_000_000;

/// One run, decided.
#[derive(Clone, Debug)]
struct Plan {
    machine: MachineSpec,
    config: MixedConfig,
}

impl Plan {
    fn new(args: &SimArgs) -> Result<Self, SimError> {
        let machine = options::machine_or(args, MACHINE)?;
        machine.validate()?;
        let max = options::group_budget(args, &machine, MAX_BYTES)?;
        let whole = MixedConfig::new(max, args.seed);
        let checkpoint_ns = args.checkpoint.map_or(whole.checkpoint_ns, Span::ns);
        if checkpoint_ns == 0 {
            return Err(SimError::usage(
                "--checkpoint 0s leaves no time between checkpoints",
                "give the time between two of them, such as --checkpoint 10s",
            ));
        }
        let config = MixedConfig {
            file: options::data_pages(args, whole.file, machine.page)? * machine.page,
            threads: args.threads.unwrap_or(whole.threads),
            update_percent: args.write.map_or(whole.update_percent, u64::from),
            run_ns: args.seconds.map_or(whole.run_ns, |seconds| seconds * SECOND_NS),
            checkpoint_ns,
            ..whole
        };
        Ok(Self { machine, config })
    }

    fn head(&self) -> Head {
        let config = &self.config;
        Head {
            what: format!("{}: {}", Target::Mixed.name(), Target::Mixed.description()),
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
            workload: Target::Mixed.name(),
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
pub(crate) fn run(args: &SimArgs) -> Result<(), SimError> {
    let plan = Plan::new(args)?;
    let policies = args.policies();
    let parallel =
        Host::ask().parallel(plan.machine.pages(), plan.config.file / plan.machine.page)?;
    plan.head().print(args);

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
    show::results(args, &plan.machine, &rows, columns::MIXED, &[], cut)
}
