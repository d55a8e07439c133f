//! `lowtide sim dd-oom`: the throttling OOM of the published series, at full size, which is small.
//!
//! A kill is a result: the row reports it, with the group's counters at the kill.

use std::sync::atomic::AtomicU64;

use clap::Args;
use lowtide::{Policy, Size};
use lowtide_sim::client::dd::{self, DdConfig, DdResult};
use lowtide_sim::published::{Arm, MeasuredDd, dd_verdict, published_dd};
use lowtide_sim::spec::MachineSpec;
use lowtide_sim::{MachineConfig, MachineError};

use super::compare::criteria_lines;
use super::error::SimError;
use super::host::Host;
use super::options::{self, Common, OnMachine};
use super::row::{KillRow, Naps, Row};
use super::show::{self, Head};
use super::{columns, jobs};
use crate::interrupt::{self, Cut};
use crate::progress::{Patient, Unit};
use crate::span::Span;

/// The machine of the published runs: a disk whose writes take a second.
const MACHINE: &str = "delay-1s";

/// The name of the workload.
pub(crate) const NAME: &str = "dd-oom";
/// One line for listings.
pub(crate) const ABOUT: &str =
    "a writer to a slow device, in a group smaller than its file: the throttling OOM";

const HELP: &str = "\
The published experiment is small and runs at its full size. A kill is a result: the row says when,
and its counters are those of the group at that moment. With the default sizes each row stands
beside its published outcome, with a verdict.

Example: lowtide sim dd-oom --delay 100ms --policy mglru-7.1,mglru-7.1+series";

/// Options of `sim dd-oom`.
#[derive(Debug, Args)]
#[command(
    after_help = HELP,
    mut_arg("machine", |arg| arg.default_value(MACHINE)),
    mut_arg("policy", |arg| arg.default_value(options::PUBLISHED_POLICIES))
)]
pub(crate) struct Options {
    /// The machine.
    #[command(flatten)]
    machine: OnMachine,
    /// Budget of the writer's group
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, default_value = "128M")]
    max: Size,
    /// Size of the file
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, default_value = "192M")]
    size: Size,
    /// Write latency of the device, as in 100ms or 5s [default: as the machine's device]
    #[arg(long, value_name = "TIME")]
    delay: Option<Span>,
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
        let mut machine = options.machine.load()?;
        if let Some(delay) = options.delay.filter(|delay| delay.ns() != machine.device.write_ns) {
            machine.device.write_ns = delay.ns();
            machine.device.name =
                format!("{} (writes {} ms)", machine.device.name, delay.ns() as f64 / 1e6);
        }
        machine.validate()?;
        let whole = DdConfig::published();
        let max = options::group_budget(options.max, &machine)?;
        let size = options::data_pages(options.size, machine.page)? * machine.page;
        Ok(Self { machine, config: DdConfig { max, size, ..whole }, seed: options.common.seed })
    }

    fn head(&self) -> Head {
        Head {
            what: format!("{NAME}: {ABOUT}"),
            machine: show::machine(&self.machine),
            max: Some(self.config.max),
            data: format!(
                "a new file of {}, in writes of {}, without fsync",
                Size::new(self.config.size),
                Size::new(self.config.block)
            ),
            run: "until the file is written, or the writer is killed".into(),
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
            ..Row::default()
        };
        let row = row.on_machine(None, &result.stat, result.written / self.config.block);
        let group = &result.group;
        Row {
            written_bytes: Some(result.written),
            unclean_pct: Some(100.0 * result.unclean()),
            naps: Some(Naps::of(&group.events)),
            kill: result.killed_after_ns.map(|tried_ns| KillRow {
                seconds: result.stat.now_ns as f64 / 1e9,
                faulted: "writer",
                tried_ms: tried_ns as f64 / 1e6,
                clean_file_bytes: (group.file - group.file_dirty - group.file_writeback)
                    * group.page_bytes,
            }),
            ..row.with_group(group)
        }
    }

    fn published(&self, beside: &Row, arm: Arm) -> Row {
        let (posting, outcome) = published_dd(arm);
        Row {
            workload: beside.workload,
            world: "real",
            system: "published",
            source: Some(posting),
            policy: beside.policy.clone(),
            machine: beside.machine.clone(),
            max_bytes: Some(DdConfig::published().max),
            page_bytes: beside.page_bytes,
            threads: 1,
            oom: Some(u64::from(arm == Arm::Before)),
            outcome_published: Some(outcome),
            ..Row::default()
        }
    }

    /// Whether it is exactly the published experiment.
    fn is_published(&self) -> Result<bool, SimError> {
        Ok(self.config == DdConfig::published()
            && MachineSpec::preset(MACHINE)?.as_ref() == Some(&self.machine))
    }
}

/// One line about a row's kill.
fn kill_line(row: &Row) -> Option<String> {
    let kill = row.kill?;
    Some(format!(
        "{}: killed after {:.3} s, in MiB {}: a charge failed after {:.2} ms, with {:.1} % of the \
         group's cached file pages dirty or being written",
        row.policy,
        kill.seconds,
        (row.written_bytes.unwrap_or(0) >> 20) + 1,
        kill.tried_ms,
        row.unclean_pct.unwrap_or(0.0)
    ))
}

/// An arm in the verdict's form.
fn measured(config: &DdConfig, result: &DdResult) -> MeasuredDd {
    let kernel = &result.stat.kernel;
    MeasuredDd {
        written: result.written as f64 / config.size as f64,
        oom: result.group.limits.oom as f64,
        unclean: result.unclean(),
        throttled: (kernel.throttled + kernel.dirty_pauses) as f64,
        scanned_per_reclaimed: result.scanned_per_reclaimed(),
    }
}

/// Simulates the writer under every policy and prints the rows.
///
/// # Errors
/// Any [`SimError`]; a kill is not an error.
pub(crate) fn run(options: &Options) -> Result<(), SimError> {
    let policies = options.common.begin()?;
    let plan = Plan::new(options)?;
    let parallel =
        Host::ask().parallel(plan.machine.pages(), plan.config.size / plan.machine.page)?;
    plan.head().print(&options.common);

    let total = plan.config.size * policies.len() as u64;
    let progress = Patient::new("bytes", Unit::Bytes, total);
    let results = jobs::run(policies.len(), parallel, progress, |number, done| {
        plan.simulate(policies[number], done)
    });
    let published = plan.is_published()?;
    let mut rows = Vec::with_capacity(2 * policies.len());
    let mut arms = Vec::new();
    let mut cut = Cut::default();
    for (&policy, result) in policies.iter().zip(results) {
        let result =
            result.map_err(|error| SimError::of_machine(policy, error, "simulating dd-oom"));
        let Some(result) = cut.take(result)? else { continue };
        let row = plan.row(policy, &result);
        let arm = Arm::of(policy);
        arms.extend(arm.map(|arm| (arm, measured(&plan.config, &result))));
        let beside = arm.filter(|_| published).map(|arm| plan.published(&row, arm));
        rows.push(row);
        rows.extend(beside);
    }
    let mut closing: Vec<String> = rows.iter().filter_map(kill_line).collect();
    if let Some(first) = closing.first_mut() {
        first.insert(0, '\n');
    }
    let of = |wanted| arms.iter().find(|(arm, _)| *arm == wanted).map(|(_, measured)| measured);
    if let (Some(before), Some(after)) = (of(Arm::Before), of(Arm::After)) {
        closing.extend(criteria_lines(&dd_verdict(before, after, of(Arm::Classical))));
    }
    show::results(&options.common, &plan.machine, &rows, columns::DD_OOM, &closing, cut)
}
