//! `lowtide sim fill`: the share of the device's bandwidth that a writer achieves, and how evenly
//! it is throttled.
//!
//! The time is from the first write to the end of fsync.

use std::sync::atomic::AtomicU64;

use clap::Args;
use lowtide::{Policy, Size};
use lowtide_sim::client::dd::{self, DdConfig, DdResult};
use lowtide_sim::spec::MachineSpec;
use lowtide_sim::{MachineConfig, MachineError};

use super::error::SimError;
use super::full::Outcome;
use super::host::Host;
use super::options::{self, Common, OnMachine};
use super::row::{Row, RowLatency};
use super::show::{self, Head};
use super::{columns, jobs};
use crate::bench::Spread;
use crate::interrupt::{self, Cut};
use crate::json::LatencyUs;
use crate::progress::{Patient, Unit};

/// The name of the workload.
pub(crate) const NAME: &str = "fill";
/// One line for listings.
pub(crate) const ABOUT: &str = "a file of four budgets written from start to end and made durable";

/// Options of `sim fill`.
#[derive(Debug, Args)]
#[command(after_help = "Example: lowtide sim fill --max 64M --policy mglru,lru")]
pub(crate) struct Options {
    /// The machine.
    #[command(flatten)]
    machine: OnMachine,
    /// Budget of the writer's group
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, default_value = "256M")]
    max: Size,
    /// Size of the file [default: four budgets]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    size: Option<Size>,
    /// Policies, seed and results.
    #[command(flatten)]
    common: Common,
}

/// One run, with all options resolved.
#[derive(Clone, Debug)]
struct Plan {
    machine: MachineSpec,
    config: DdConfig,
    seed: u64,
}

impl Plan {
    fn new(options: &Options) -> Result<Self, SimError> {
        let machine = options.machine.load()?;
        machine.validate()?;
        let max = options::group_budget(options.max, &machine)?;
        let whole = DdConfig::fill(max);
        let size = options.size.unwrap_or(Size::new(whole.size));
        let size = options::data_pages(size, machine.page)? * machine.page;
        Ok(Self { machine, config: DdConfig { size, ..whole }, seed: options.common.seed })
    }

    fn head(&self) -> Head {
        Head {
            what: format!("{NAME}: {ABOUT}"),
            machine: show::machine(&self.machine),
            max: Some(self.config.max),
            data: format!(
                "a new file of {}, in writes of {}, then fsync",
                Size::new(self.config.size),
                Size::new(self.config.block)
            ),
            run: "until the file is durable".into(),
        }
    }

    fn simulate(&self, policy: Policy, done: &AtomicU64) -> Result<DdResult, MachineError> {
        let machine =
            MachineConfig { spec: self.machine.clone(), policy, max: None, seed: self.seed };
        dd::run(&machine, &self.config, done, interrupt::flag())
    }

    fn row(&self, policy: Policy, result: &DdResult) -> Row {
        let row = Row {
            workload: NAME,
            world: "sim",
            system: "lowtide",
            policy: policy.to_string(),
            machine: self.machine.name.clone(),
            max_bytes: Some(self.config.max),
            data_bytes: Some(self.config.size),
            page_bytes: self.machine.page,
            threads: 1,
            seed: Some(self.seed),
            latency_us: Some(RowLatency::Whole(LatencyUs::from(&result.latency))),
            written_bytes: Some(result.written),
            device_write_mib_per_s: Some(
                self.machine.device.write_bandwidth as f64 / f64::from(1 << 20),
            ),
            ..Row::default()
        };
        let row =
            row.on_machine(None, &result.stat, result.latency.len()).with_group(&result.group);
        let rate = result.written as f64 / f64::from(1 << 20) / (result.stat.now_ns as f64 / 1e9);
        Row { mib_per_s: Some(Spread::of([rate])), ..row }
    }
}

/// Simulates the writer under every policy and prints the rows.
///
/// # Errors
/// Any [`SimError`].
pub(crate) fn run(options: &Options) -> Result<(), SimError> {
    let policies = options.common.begin()?;
    let plan = Plan::new(options)?;
    let parallel =
        Host::ask().parallel(plan.machine.pages(), plan.config.size / plan.machine.page)?;
    plan.head().print(&options.common);

    let progress = Patient::new("bytes", Unit::Bytes, plan.config.size * policies.len() as u64);
    let results = jobs::run(policies.len(), parallel, progress, |number, done| {
        plan.simulate(policies[number], done)
    });
    let mut outcome = Outcome::default();
    let mut cut = Cut::default();
    for (&policy, result) in policies.iter().zip(results) {
        let result = result.map_err(|error| SimError::of_machine(policy, error, "simulating fill"));
        let Some(result) = cut.take(result)? else { continue };
        let row = plan.row(policy, &result);
        match result.killed_after_ns {
            None => outcome.rows.push(row),
            Some(_) => {
                outcome.killed(
                    row,
                    format!("out of memory after {} MiB; raise --max", result.written >> 20),
                );
            }
        }
    }
    outcome.cut = cut;
    outcome.show(&options.common, &plan.machine, columns::FILL, &[])
}
