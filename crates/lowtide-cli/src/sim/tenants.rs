//! `lowtide sim tenants`: many programs of equal demand on one machine without enough memory.
//!
//! At a scale below 1 each page represents many: memory, swap and buffers shrink, the cost of a
//! page grows by the same factor, and the numbers of workers, CPUs and seconds do not change
//! (`docs/kernel/workloads.md` §0.3, T-mode). So requests take as long as at full size and fall
//! into the same buckets.

use std::sync::atomic::AtomicU64;

use clap::Args;
use lowtide::{Policy, Size};
use lowtide_sim::client::tenants::{
    self, BUCKETS_S, CONTENDED_SLOT_NS, TenantsConfig, TenantsResult,
};
use lowtide_sim::spec::{MachineSpec, SwapSpec};
use lowtide_sim::{Costs, MachineConfig, MachineError};

use super::clock::Stopwatch;
use super::error::SimError;
use super::host::Host;
use super::options::{self, AtScale, seconds};
use super::row::{Bucket, Row, RowLatency};
use super::show::{self, Head};
use super::{columns, compare, jobs};
use crate::interrupt::{self, Cut};
use crate::json::LatencyUs;
use crate::progress::{Patient, Unit};

/// The machine of the published evaluation.
const MACHINE: &str = "xeon-96t";
/// Swap, as a multiple of memory, if the machine has none: 256 GiB of zram on 128 GiB
/// (`docs/kernel/workloads.md` §2(b)).
const SWAP_TIMES: u64 = 2;
/// Default scale of the published experiment, so that three policies take a few minutes. The 600
/// virtual seconds have the same reason; the published runs took about 3,600.
const SCALE: &str = "0.0625";
/// The name of the workload.
pub(crate) const NAME: &str = "tenants";
/// One line for listings.
pub(crate) const ABOUT: &str =
    "servers with large buffers and their browsers, 32 tenants alike, on zram";

const MAX_HELP: &str = "Budget [default: all of the machine's memory]";
const HELP: &str = "\
64 workers with large buffers run on a machine with zram, without a group limit. Below full size a
page stands for many: memory shrinks, what a page costs grows, numbers and times stay. So the rows
stand beside the published figures at any --scale, on xeon-96t with all of its memory.

Example: lowtide sim tenants --seconds 120 --policy mglru-7.1,mglru-7.1+series";

/// Options of `sim tenants`.
#[derive(Debug, Args)]
#[command(
    after_help = HELP,
    mut_arg("machine", |arg| arg.default_value(MACHINE)),
    mut_arg("max", |arg| arg.help(MAX_HELP)),
    mut_arg("policy", |arg| arg.default_value(options::PUBLISHED_POLICIES)),
    mut_arg("scale", |arg| arg.default_value(SCALE))
)]
pub(crate) struct Options {
    /// Virtual seconds measured
    #[arg(
        long,
        value_name = "N",
        value_parser = seconds(),
        default_value_t = 600
    )]
    seconds: u64,
    /// The machine, the budget, the scale and the results.
    #[command(flatten)]
    at_scale: AtScale,
}

/// One run, with all options resolved.
#[derive(Clone, Debug)]
struct Plan {
    machine: MachineSpec,
    max: Option<u64>,
    config: TenantsConfig,
    scale: f64,
    /// Whether it is the published experiment at any scale.
    published: bool,
}

impl Plan {
    fn new(options: &Options) -> Result<Self, SimError> {
        let scale = options.at_scale.scale;
        let whole = options.at_scale.machine.load()?;
        let published = MachineSpec::preset(MACHINE)?.as_ref() == Some(&whole)
            && options.at_scale.max.is_none();
        let calibrated = if published {
            MachineSpec {
                costs: Costs { swap_slot_ns: CONTENDED_SLOT_NS, ..whole.costs.clone() },
                ..whole
            }
        } else {
            whole
        };
        let machine = part_of(&calibrated, scale);
        machine.validate()?;
        let max = options::machine_budget(options.at_scale.max, &machine, None)?;
        let run_ns = options.seconds * 1_000_000_000;
        let config = TenantsConfig {
            run_ns,
            ..TenantsConfig::published(scale, options.at_scale.common.seed)
        };
        Ok(Self { machine, max, config, scale, published })
    }

    fn head(&self) -> Head {
        let config = &self.config;
        let swap = self.machine.swap.as_ref().map_or_else(
            || "no swap".into(),
            |swap| format!("{} of {} for swap", options::floor(swap.size), swap.kind),
        );
        Head {
            what: format!("{NAME}: {ABOUT}"),
            machine: format!("{}; {swap}", show::machine(&self.machine)),
            max: self.max,
            data: format!(
                "{} workers of {} tenants, each with {} chunks of {}: {} in all; a page stands \
                 for {}",
                config.all_workers(),
                config.tenants,
                config.chunks,
                Size::new(config.chunk),
                options::floor(config.bytes()),
                (1.0 / self.scale * 100.0).round() / 100.0
            ),
            run: format!("{} s, of which nothing is left out", config.run_ns / 1_000_000_000),
        }
    }

    fn simulate(&self, policy: Policy, done: &AtomicU64) -> Result<TenantsResult, MachineError> {
        let machine = MachineConfig {
            spec: self.machine.clone(),
            policy,
            max: self.max,
            seed: self.config.seed,
        };
        tenants::run(&machine, &self.config, done, interrupt::flag())
    }

    fn row(&self, policy: Policy, result: &TenantsResult) -> Row {
        let requests: Vec<u64> = result.workers.iter().map(|worker| worker.requests).collect();
        let total = requests.iter().sum();
        let row = Row {
            workload: NAME,
            program: Some("heaps on swap"),
            world: "sim",
            system: "lowtide",
            policy: policy.to_string(),
            machine: self.machine.name.clone(),
            max_bytes: self.max,
            data_bytes: Some(self.config.bytes()),
            page_bytes: self.machine.page,
            threads: self.config.all_workers(),
            seed: Some(self.config.seed),
            scale: Some(self.scale),
            latency_us: Some(RowLatency::Whole(LatencyUs::from(&result.latency))),
            latency_buckets: Some(Bucket::all(&BUCKETS_S, &result.buckets)),
            lruvec_lock_ms: Some(result.stat.lruvec_lock.waited_ns as f64 / 1e6),
            swap_lock_ms: Some(result.stat.swap_lock.waited_ns as f64 / 1e6),
            ..Row::default()
        };
        row.with_workers(requests).on_machine(None, &result.stat, total)
    }
}

/// The machine in which each page represents `1 / scale` pages of `whole`, with swap.
fn part_of(whole: &MachineSpec, scale: f64) -> MachineSpec {
    let part = |bytes: u64| ((bytes / whole.page) as f64 * scale).round() as u64 * whole.page;
    let swap = whole.swap.clone().unwrap_or_else(|| SwapSpec::zram(SWAP_TIMES * whole.memory));
    MachineSpec {
        memory: part(whole.memory),
        kernel: part(whole.kernel),
        swap: Some(SwapSpec { size: part(swap.size), ..swap }),
        costs: whole.costs.coarse(1.0 / scale),
        ..whole.clone()
    }
}

/// Simulates the tenants under every policy and prints the rows.
///
/// # Errors
/// Any [`SimError`].
pub(crate) fn run(options: &Options) -> Result<(), SimError> {
    let policies = options.at_scale.common.begin()?;
    let plan = Plan::new(options)?;
    let timing = options.at_scale.timing.is_on();
    let frames = plan.max.map_or(plan.machine.pages(), |max| max / plan.machine.page);
    let data_pages = plan.config.bytes() / plan.machine.page;
    let parallel = Host::ask().parallel(frames, data_pages)?;
    plan.head().print(&options.at_scale.common);

    let total = plan.config.run_ns / 1_000_000 * policies.len() as u64;
    let progress = Patient::new("virtual milliseconds", Unit::Steps, total);
    let results =
        jobs::run(policies.len(), if timing { 1 } else { parallel }, progress, |number, done| {
            let began = Stopwatch::start();
            plan.simulate(policies[number], done).map(|result| (result, began.elapsed()))
        });
    let mut rows = Vec::with_capacity(policies.len());
    let mut cut = Cut::default();
    for (&policy, result) in policies.iter().zip(results) {
        let result =
            result.map_err(|error| SimError::of_machine(policy, error, "simulating tenants"));
        let Some((result, took)) = cut.take(result)? else { continue };
        let row = plan.row(policy, &result);
        rows.push(if timing { row.timed(took, result.stat.bytes, data_pages) } else { row });
    }
    let mut rows = compare::with_ratios(rows);
    let mut closing = compare::ratio_line(&rows);
    if plan.published {
        closing.extend(compare::tenants_verdict_lines(&rows));
        rows = compare::with_published_tenants(rows);
    }
    show::results(&options.at_scale.common, &plan.machine, &rows, columns::TENANTS, &closing, cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_machine_has_all_of_its_cpus_and_dearer_pages() {
        let whole = MachineSpec::load(MACHINE).unwrap();
        let part = part_of(&whole, 1.0 / 16.0);
        part.validate().unwrap();
        assert_eq!((part.cpus, part.memory, part.kernel), (96, 8 << 30, 512 << 20));
        assert_eq!(
            part.swap,
            Some(SwapSpec::zram(16 << 30)),
            "the published one had twice its memory"
        );
        assert_eq!(part.costs.unmap_ns, 16 * whole.costs.unmap_ns);
        assert_eq!(part.costs.context_switch_ns, whole.costs.context_switch_ns);
        let phone = MachineSpec::load("phone").unwrap();
        assert_eq!(part_of(&phone, 1.0).swap, phone.swap, "a machine's own swap stays");
    }
}
