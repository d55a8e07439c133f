//! `lowtide sim high-thrash`: a task that thrashes above `memory.high`, under each law of what it
//! pays, with and without read-ahead.
//!
//! Each row is two runs: the thrasher alone, as it was published, which gives the figures of the
//! device; and the same with a neighbour on the device, which gives what stands under `neighbour`.
//! How the neighbour does without a thrasher is one more run.

use std::path::PathBuf;
use std::sync::atomic::AtomicU64;

use clap::Args;
use lowtide::{Policy, Size};
use lowtide_bpf::Programs;
use lowtide_core::high::handler::HighPolicy;
use lowtide_core::hooks::LimitHooks;
use lowtide_sim::client::thrash::{self, Neighbour, ThrashConfig, ThrashResult};
use lowtide_sim::published::{
    Arm, MeasuredThrash, SarSample, ThrashArms, published_thrash, thrash_verdict,
};
use lowtide_sim::spec::MachineSpec;
use lowtide_sim::{MachineConfig, MachineError};

use super::error::SimError;
use super::host::Host;
use super::options::{self, Common, OnMachine, seconds, threads};
use super::row::{DeviceSample, NeighbourRow, Row};
use super::show::{self, Head};
use super::{columns, compare, jobs};
use crate::interrupt::{self, Cut};
use crate::json::LatencyUs;
use crate::law::{Law, ProgramError};
use crate::progress::{Patient, Unit};

/// The machine of the published samples.
const MACHINE: &str = "thrash";
/// Whose behaviour the published kernel had: it is older than the reclaim-loop series.
const POLICIES: &str = "mglru,mglru-7.1";
/// The name of the workload.
pub(crate) const NAME: &str = "high-thrash";
/// A line about it.
pub(crate) const ABOUT: &str =
    "a task that thrashes above memory.high, and a neighbour on its disk";

const HELP: &str = "\
A task with a memory.high of 150M reads a larger file at random. Each policy has a row for each law
of --high-policy and each program of --bpf, with and without read-ahead: what the task pays for
being over its limit, and what a neighbour on the same disk gets. On the default machine the rows
stand beside the published samples, with a verdict.

Example: lowtide sim high-thrash --policy mglru --bpf examples/bpf/refault_recency.bpf.o";

/// Options of `sim high-thrash`.
#[derive(Debug, Args)]
#[command(
    after_help = HELP,
    mut_arg("machine", |arg| arg.default_value(MACHINE)),
    mut_arg("policy", |arg| arg.default_value(POLICIES))
)]
pub(crate) struct Options {
    /// The machine.
    #[command(flatten)]
    machine: OnMachine,
    /// Threads of the workload
    #[arg(
        long,
        value_name = "N",
        value_parser = threads(),
        default_value_t = 1
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
    /// What tasks pay for being over memory.high
    #[arg(
        long,
        value_name = "P,P",
        value_delimiter = ',',
        default_value = "overage,refault-recency,stall-debt"
    )]
    high_policy: Vec<HighPolicy>,
    /// A program that decides what tasks pay, one more row for each: an object file for eBPF
    #[arg(long, value_name = "FILE")]
    bpf: Vec<PathBuf>,
    /// Only the runs without read-ahead
    #[arg(long)]
    no_readahead: bool,
    /// Policies, seed and results.
    #[command(flatten)]
    common: Common,
}

/// A law's program, one of its own for each run, so that none sees another's maps.
///
/// # Errors
/// [`SimError::Program`].
fn hooks(law: &Law) -> Result<Option<Box<dyn LimitHooks>>, SimError> {
    match law {
        Law::Builtin(_) => Ok(None),
        Law::Program { name, object } => {
            let programs = Programs::load(object, name)
                .map_err(|error| ProgramError { path: name.into(), why: error.to_string() })?;
            Ok(Some(Box::new(programs)))
        }
    }
}

/// One row: two runs.
#[derive(Clone, Debug)]
struct Case {
    policy: Policy,
    law: Law,
    readahead: bool,
}

/// The runs, decided.
#[derive(Debug)]
struct Plan {
    machine: MachineSpec,
    threads: u32,
    run_ns: u64,
    seed: u64,
    cases: Vec<Case>,
    /// Whether it is the published experiment.
    published: bool,
}

impl Plan {
    fn new(options: &Options, policies: &[Policy]) -> Result<Self, SimError> {
        let seed = options.common.seed;
        let machine = options.machine.load()?;
        machine.validate()?;
        let config = ThrashConfig::published(HighPolicy::Overage, true, seed);
        // Nothing but the limit may make reclaim happen.
        let (needed, memory) = (2 * config.file, machine.pages() * machine.page);
        if memory < needed {
            return Err(SimError::usage(
                format!(
                    "machine `{}` has {} for programs and files",
                    machine.name,
                    options::floor(memory)
                ),
                format!(
                    "choose one with at least {}, so that memory is short in the group alone",
                    Size::new(needed)
                ),
            ));
        }
        let laws = Law::all(Some(&options.high_policy), &options.bpf)?;
        let readahead: &[bool] = if options.no_readahead { &[false] } else { &[true, false] };
        let mut cases = Vec::new();
        for &policy in policies {
            for law in &laws {
                cases.extend(readahead.iter().map(|&readahead| Case {
                    policy,
                    law: law.clone(),
                    readahead,
                }));
            }
        }
        let threads = options.threads;
        let published = MachineSpec::preset(MACHINE)?.as_ref() == Some(&machine) && threads == 1;
        let run_ns = options.seconds * 1_000_000_000;
        Ok(Self { machine, threads, run_ns, seed, cases, published })
    }

    fn config(&self, case: &Case, neighbour: Option<Neighbour>) -> ThrashConfig {
        let published = ThrashConfig::published(case.law.builtin(), case.readahead, self.seed);
        ThrashConfig { threads: self.threads, run_ns: self.run_ns, neighbour, ..published }
    }

    fn head(&self) -> Head {
        let config = self.config(&self.cases[0], Some(Neighbour::default()));
        Head {
            what: format!("{NAME}: {ABOUT}"),
            machine: show::machine(&self.machine),
            max: None,
            data: format!(
                "a file of {}, memory.high {}, {} thread{}; a neighbour reads 4K and thinks for 1 \
                 ms, in runs of its own",
                Size::new(config.file),
                Size::new(config.high),
                self.threads,
                if self.threads == 1 { "" } else { "s" }
            ),
            run: format!(
                "{} s, after {} s that are left out",
                self.run_ns / 1_000_000_000,
                config.warm_ns / 1_000_000_000
            ),
        }
    }

    /// Jobs: two for each case, and the neighbour alone.
    const fn jobs(&self) -> usize {
        2 * self.cases.len() + 1
    }

    fn simulate(&self, job: usize, done: &AtomicU64) -> Result<ThrashResult, SimError> {
        let neighbour = Some(Neighbour::default());
        let (case, config) = match self.cases.get(job / 2) {
            Some(case) => {
                (case, self.config(case, if job.is_multiple_of(2) { None } else { neighbour }))
            }
            None => {
                let case = &self.cases[0];
                (case, ThrashConfig { threads: 0, ..self.config(case, neighbour) })
            }
        };
        let machine = MachineConfig {
            spec: self.machine.clone(),
            policy: case.policy,
            max: None,
            seed: self.seed,
        };
        let failed =
            |error: MachineError| SimError::of_machine(case.policy, error, "simulating a thrash");
        thrash::run(&machine, &config, hooks(&case.law)?, done, interrupt::flag()).map_err(failed)
    }

    fn row(
        &self,
        case: &Case,
        alone: &ThrashResult,
        beside: &ThrashResult,
        quiet: &ThrashResult,
    ) -> Row {
        let config = self.config(case, None);
        let seconds = config.run_ns as f64 / 1e9;
        let rate = |ops: u64| ops as f64 / seconds;
        let reads =
            |result: &ThrashResult| result.neighbour.as_ref().map_or(0, |neighbour| neighbour.ops);
        let row = Row {
            workload: NAME,
            world: "sim",
            system: "lowtide",
            policy: case.policy.to_string(),
            machine: self.machine.name.clone(),
            data_bytes: Some(config.file),
            page_bytes: self.machine.page,
            threads: self.threads,
            seed: Some(self.seed),
            high_policy: Some(case.law.name()),
            high_bytes: Some(config.high),
            readahead: Some(case.readahead),
            samples: Some(samples(alone)),
            neighbour: beside.neighbour.as_ref().map(|neighbour| NeighbourRow {
                ops_per_s: rate(neighbour.ops),
                alone_ops_per_s: rate(reads(quiet)),
                latency_us: LatencyUs::from(&neighbour.latency),
                thrasher_ops_per_s: rate(beside.ops()),
            }),
            jain: (self.threads > 1)
                .then(|| lowtide_sim::statistics::Spread::of(&alone.iterations).jain),
            ..Row::default()
        };
        let row = row.on_machine(Some(&alone.began), &alone.ended, alone.ops());
        let commands = |stat: &lowtide_sim::MachineStat| stat.device.reads + stat.device.writes;
        Row {
            device_tps: Some(rate(commands(&alone.ended) - commands(&alone.began))),
            throttled_ms: Some(alone.slept_ns() as f64 / 1e6),
            ..row
        }
    }
}

fn samples(result: &ThrashResult) -> Vec<DeviceSample> {
    let sample = |sample: &thrash::Sample| DeviceSample {
        tps: sample.commands as f64,
        read_kib: sample.read_bytes as f64 / 1024.0,
        util_pct: Some(sample.busy_ns as f64 / 1e7),
    };
    result.samples.iter().map(sample).collect()
}

/// What was published, a row for each set of samples.
fn published() -> Vec<Row> {
    let arms = [
        (Arm::Before, HighPolicy::Overage, true),
        (Arm::After, HighPolicy::RefaultRecency, true),
        (Arm::After, HighPolicy::RefaultRecency, false),
    ];
    let row = |(arm, policy, readahead): (Arm, HighPolicy, bool)| {
        let sar = published_thrash(arm, readahead);
        let mean =
            |of: fn(&SarSample) -> f64| Some(sar.iter().map(of).sum::<f64>() / sar.len() as f64);
        Row {
            workload: NAME,
            world: "real",
            system: "published",
            source: Some("patch"),
            policy: "not stated".into(),
            machine: MACHINE.into(),
            page_bytes: 4096,
            threads: 1,
            high_policy: Some(policy.to_string()),
            readahead: Some(readahead),
            device_tps: mean(|sample| sample.tps),
            device_read_kib_per_s: mean(|sample| sample.read_kib),
            device_util_pct: mean(|sample| sample.util_pct),
            samples: Some(
                sar.iter()
                    .map(|s| DeviceSample {
                        tps: s.tps,
                        read_kib: s.read_kib,
                        util_pct: Some(s.util_pct),
                    })
                    .collect(),
            ),
            ..Row::default()
        }
    };
    arms.map(row).into()
}

/// The verdict for the rows of a policy.
fn verdict(rows: &[Row], policy: Policy) -> Vec<String> {
    let of = |law: HighPolicy, readahead: bool| {
        let row = rows.iter().find(|row| {
            row.policy == policy.to_string()
                && row.high_policy == Some(law.to_string())
                && row.readahead == Some(readahead)
        })?;
        let samples = row.samples.iter().flatten();
        Some(MeasuredThrash {
            samples: samples
                .map(|s| SarSample {
                    tps: s.tps,
                    read_kib: s.read_kib,
                    util_pct: s.util_pct.unwrap_or(f64::NAN),
                })
                .collect(),
            ops_per_s: row.ops_per_s.unwrap_or(f64::NAN),
            neighbour_per_s: row
                .neighbour
                .as_ref()
                .map_or(f64::NAN, |neighbour| neighbour.ops_per_s),
        })
    };
    let arms = ThrashArms {
        before: of(HighPolicy::Overage, true),
        patched: of(HighPolicy::RefaultRecency, true),
        patched_random: of(HighPolicy::RefaultRecency, false),
        ours: of(HighPolicy::StallDebt, true),
        ours_random: of(HighPolicy::StallDebt, false),
    };
    let criteria = thrash_verdict(&arms);
    if criteria.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![format!("\nwith {policy}:")];
    lines.extend(
        compare::criteria_lines(&criteria).into_iter().map(|line| line.trim_start().to_owned()),
    );
    lines
}

/// Simulates every law with and without read-ahead and prints the rows.
///
/// # Errors
/// Any [`SimError`].
pub(crate) fn run(options: &Options) -> Result<(), SimError> {
    let plan = Plan::new(options, &options.common.begin()?)?;
    let config = plan.config(&plan.cases[0], None);
    let pages = (config.file + Neighbour::default().file) / plan.machine.page;
    let parallel = Host::ask().parallel(plan.machine.pages(), pages)?;
    plan.head().print(&options.common);

    let each = (config.warm_ns + config.run_ns) / 1_000_000;
    let progress = Patient::new("virtual milliseconds", Unit::Steps, each * plan.jobs() as u64);
    let results = jobs::run(plan.jobs(), parallel, progress, |job, done| plan.simulate(job, done));
    let mut cut = Cut::default();
    let results =
        results.into_iter().map(|result| cut.take(result)).collect::<Result<Vec<_>, _>>()?;
    // Of a run that was interrupted, the rows are shown whose parts have all ended; the neighbour
    // alone is a part of each.
    let mut rows: Vec<Row> = Vec::new();
    if let Some((Some(quiet), pairs)) = results.split_last() {
        for (case, pair) in plan.cases.iter().zip(pairs.chunks_exact(2)) {
            if let [Some(alone), Some(beside)] = pair {
                rows.push(plan.row(case, alone, beside, quiet));
            }
        }
    }
    cut.refuse_nothing(rows.is_empty())?;
    let mut closing = Vec::new();
    if let Some(neighbour) = rows.first().and_then(|row| row.neighbour.as_ref()) {
        closing.push(format!(
            "\nthe neighbour alone: {:.0} reads a second",
            neighbour.alone_ops_per_s
        ));
    }
    if plan.published {
        let mut policies: Vec<Policy> = plan.cases.iter().map(|case| case.policy).collect();
        policies.dedup();
        closing.extend(policies.into_iter().flat_map(|policy| verdict(&rows, policy)));
        rows.extend(published());
    }
    show::results(&options.common, &plan.machine, &rows, columns::HIGH_THRASH, &closing, cut)
}
