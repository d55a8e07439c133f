//! `lowtide-lab sim tenants`: many programs of equal demand on one machine without enough memory.
//!
//! At a scale below 1 each page represents many: memory, swap and buffers shrink, the cost of a
//! page grows by the same factor, and the numbers of workers, CPUs and seconds do not change
//! (`docs/kernel/workloads.md` §0.3, T-mode). So requests take as long as at full size and fall
//! into the same buckets.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::sim::options;
use lowtide::{Policy, Size};
use lowtide_bench::sim::clock::Stopwatch;
use lowtide_bench::sim::error::SimError;
use lowtide_bench::sim::host::Host;
use lowtide_bench::sim::jobs;
use lowtide_bench::sim::show::{self, Head};
use lowtide_experiments::client::tenants::{self, TenantsResult};
use lowtide_experiments::programs::tenants::Tenants;
use lowtide_report::interrupt::{self, Cut};
use lowtide_report::json::LatencyUs;
use lowtide_report::progress::{Patient, Unit};
use lowtide_report::row::{KernelFigures, Row};
use lowtide_report::verdict::Closing;
use lowtide_sim::spec::{MachineSpec, SwapSpec};
use lowtide_sim::{MachineConfig, MachineError, MachineStat};

use crate::sim::compare;

use super::{ABOUT, COLUMNS, MACHINE, NAME, SWAP_TIMES, SimOptions, describe, row_of};

/// One run, with all options resolved.
#[derive(Clone, Debug)]
struct Plan {
    /// One node of the machine.
    machine: MachineSpec,
    nodes: u32,
    /// The budget of a node.
    max: Option<u64>,
    tenants: Tenants,
    run_ns: u64,
    scale: f64,
    /// Whether it is the published experiment at any scale.
    published: bool,
}

impl Plan {
    fn new(options: &SimOptions) -> Result<Self, SimError> {
        let scale = options.at_scale.scale;
        let whole = options.at_scale.machine.load()?;
        let published = MachineSpec::preset(MACHINE)?.as_ref() == Some(&whole)
            && options.at_scale.max.is_none()
            && options.having.is_published();
        let nodes = options.nodes;
        let machine = tenants::node(&part_of(&whole, scale), nodes);
        machine.validate()?;
        let max = options.at_scale.max.map(|max| match max.is_max() {
            true => max,
            false => Size::new(max.bytes() / u64::from(nodes)),
        });
        let max = options::machine_budget(max, &machine, None)?;
        let run_ns = options.seconds * 1_000_000_000;
        let tenants = options.having.tenants(scale, options.at_scale.common.seed);
        Ok(Self { machine, nodes, max, tenants, run_ns, scale, published })
    }

    fn head(&self) -> Head {
        let swap = self.machine.swap.as_ref().map_or_else(
            || "no swap".into(),
            |swap| format!("{} of {} for swap", options::floor(swap.size), swap.kind),
        );
        Head {
            what: format!("{NAME}: {ABOUT}"),
            machine: match self.nodes {
                1 => format!("{}; {swap}", show::machine(&self.machine)),
                nodes => format!("{nodes} nodes, each {}; {swap}", show::machine(&self.machine)),
            },
            max: self.max,
            data: format!(
                "{}: {} in all; a page stands for {}",
                describe(&self.tenants),
                options::floor(self.tenants.bytes()),
                (1.0 / self.scale * 100.0).round() / 100.0
            ),
            run: format!("{} s, of which nothing is left out", self.run_ns / 1_000_000_000),
        }
    }

    /// One node under a policy.
    fn simulate(
        &self,
        policy: Policy,
        which: u32,
        done: &AtomicU64,
    ) -> Result<TenantsResult, MachineError> {
        let machine = MachineConfig {
            spec: self.machine.clone(),
            policy,
            max: self.max,
            seed: self.tenants.seed.wrapping_add(u64::from(which)),
        };
        let node = (which, self.nodes);
        tenants::run(&machine, &self.tenants, node, self.run_ns, done, interrupt::flag())
    }

    /// The row of all nodes together.
    fn row(&self, policy: Policy, nodes: &[TenantsResult]) -> Row {
        let mut workers: Vec<_> = nodes.iter().flat_map(|node| &node.workers).collect();
        workers.sort_by_key(|worker| worker.tenant);
        let requests: Vec<u64> = workers.iter().map(|worker| worker.requests).collect();
        let total = requests.iter().sum();
        let mut latency = nodes[0].latency.clone();
        let mut buckets = nodes[0].buckets;
        for node in &nodes[1..] {
            latency += &node.latency;
            buckets.iter_mut().zip(node.buckets).for_each(|(sum, ops)| *sum += ops);
        }
        let ms = |of: fn(&MachineStat) -> u64| {
            Some(nodes.iter().map(|node| of(&node.stat)).sum::<u64>() as f64 / 1e6)
        };
        let row = {
            let base = row_of(&self.tenants, self.scale, LatencyUs::from(&latency), &buckets);
            Row {
                world: "sim",
                policy: policy.to_string(),
                machine: self.machine.name.clone(),
                max_bytes: self.max.map(|max| max * u64::from(self.nodes)),
                page_bytes: self.machine.page,
                kernel: KernelFigures {
                    nodes: (self.nodes > 1).then_some(self.nodes),
                    lruvec_lock_ms: ms(|stat| stat.lruvec_lock.waited_ns),
                    swap_lock_ms: ms(|stat| stat.swap_lock.waited_ns),
                    zram_bytes: Some(nodes.iter().map(|node| node.stat.zram_bytes).sum()),
                    ..base.kernel
                },
                ..base
            }
        };
        let of_node = |node: &TenantsResult| Row::default().on_machine(None, &node.stat, 0);
        let others: Vec<Row> = nodes[1..].iter().map(of_node).collect();
        let row = row.with_workers(requests).on_machine(None, &nodes[0].stat, total);
        let row = others.iter().fold(row, Row::plus_counts);
        // With a limit, what matters is how long tasks slept for it.
        let slept = ms(|stat| stat.kernel.high_sleep_ns);
        Row {
            kernel: KernelFigures {
                throttled_ms: if self.tenants.swap_high.is_some() {
                    slept
                } else {
                    row.kernel.throttled_ms
                },
                ..row.kernel
            },
            ..row
        }
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
pub(crate) fn run(options: &SimOptions) -> Result<(), SimError> {
    let policies = options.at_scale.common.begin()?;
    let plan = Plan::new(options)?;
    let timing = options.at_scale.timing.is_on();
    let frames = plan.max.map_or(plan.machine.pages(), |max| max / plan.machine.page);
    let data_pages = plan.tenants.bytes() / plan.machine.page;
    let nodes = plan.nodes as usize;
    let parallel = Host::ask().parallel(frames, data_pages / u64::from(plan.nodes))?;
    plan.head().print(&options.at_scale.common);

    let runs = policies.len() * nodes;
    let total = plan.run_ns / 1_000_000 * runs as u64;
    let progress = Patient::new("virtual milliseconds", Unit::Steps, total);
    let results = jobs::run(runs, if timing { 1 } else { parallel }, progress, |number, done| {
        let began = Stopwatch::start();
        let (policy, which) = (policies[number / nodes], (number % nodes) as u32);
        plan.simulate(policy, which, done).map(|result| (result, began.elapsed()))
    });
    let mut rows = Vec::with_capacity(policies.len());
    let mut cut = Cut::default();
    let mut results = results.into_iter();
    for &policy in &policies {
        let (mut of_nodes, mut took) = (Vec::with_capacity(nodes), Duration::ZERO);
        for result in results.by_ref().take(nodes) {
            let result =
                result.map_err(|error| SimError::of_machine(policy, error, "simulating tenants"));
            if let Some((result, time)) = cut.take(result)? {
                of_nodes.push(result);
                took += time;
            }
        }
        if of_nodes.len() < nodes {
            continue;
        }
        let row = plan.row(policy, &of_nodes);
        let bytes = of_nodes.iter().map(|node| node.stat.bytes).sum();
        rows.push(if timing { row.timed(took, bytes, data_pages) } else { row });
    }
    let mut rows = compare::with_ratios(rows);
    let mut closing: Closing = compare::ratio_line(&rows).into();
    if plan.published {
        closing.verdict = compare::verdict_on_tenants(&rows);
        rows = compare::with_published_tenants(rows);
    }
    show::results(&options.at_scale.common, &plan.machine, &rows, COLUMNS, closing, cut)
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
