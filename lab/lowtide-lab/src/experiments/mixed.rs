//! `mixed`: zipf reads and a few updates of a file of four budgets, and what checkpoints do to the
//! reads.
//!
//! ```text
//!   8 threads ──► a part of one file, zipf popularity ──► 95 %: read it    5 %: update it
//!   1 thread  ──► every 10 s: all that is dirty is made durable (a checkpoint)
//! ```
//!
//! A checkpoint writes thousands of single pages at once, and reads wait behind them at the device.
//! So the latencies of reads during a checkpoint and outside of one are kept apart.
//!
//! The two worlds share options, row and columns. They have different players: real operations are
//! those of YCSB on records of 1 KiB, each verified, and mappings in memory cgroups play the same
//! ones; a simulated thread loads and stores pages of a mapping. Sizes and popularity are made up.

use serde::Serialize;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::sim::options::{self, Common, OnMachine};
use clap::Args;
use lowtide::{Policy, Size};
use lowtide_bench::compare::plan::Comparison;
use lowtide_bench::compare::ycsb::Records;
use lowtide_bench::error::BenchError;
use lowtide_bench::options::{Operations, rounds, threads};
use lowtide_bench::sim::error::SimError;
use lowtide_bench::sim::host::Host;
use lowtide_bench::sim::{jobs, show};
use lowtide_bench::thread_pool::Until;
use lowtide_experiments::client::checkpoints::{self, MixedConfig, MixedResult};
use lowtide_report::columns::{Columns, label, number, refaults};
use lowtide_report::interrupt::{self, Cut};
use lowtide_report::json::LatencyUs;
use lowtide_report::measured::Common as Shared;
use lowtide_report::outcome::CheckpointsRow;
use lowtide_report::progress::{Patient, Unit};
use lowtide_report::rounds::{Turns, ratio};
use lowtide_report::row::{DeviceFigures, MeasuredFigures, Row, RowLatency};
use lowtide_report::spread::Spread;
use lowtide_report::table::{mib, us};
use lowtide_report::tally::{Latency, Slice};
use lowtide_report::values::{interval, seconds};
use lowtide_sim::spec::MachineSpec;
use lowtide_sim::{MachineConfig, MachineError};
use lowtide_workload::Workload;

use super::Sizes;
use crate::bench::script::{LabScript, Own};
use crate::bench::slow::Slowdown;

/// What only the rows of this experiment say.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct CheckpointRow {
    /// Checkpoints, and what reads noticed of them.
    pub(crate) checkpoints: Option<CheckpointsRow>,
}

/// Checkpoint intervals per round: one checkpoint, and half an interval in which it can end.
const CHECKPOINTS_A_ROUND: f64 = 1.5;

/// The table of both worlds.
const COLUMNS: Columns = Columns::named(
    1,
    &[
        ("policy", label),
        ("ops/s", |row| number(row.ops_per_s)),
        ("reads: p50 µs", |row| of(row, |made| us(made.outside_us.p50))),
        ("p99", |row| of(row, |made| us(made.outside_us.p99))),
        ("p99.9", |row| of(row, |made| us(made.outside_us.p999))),
        ("in checkpoints: p50", |row| of(row, |made| us(made.during_us.p50))),
        ("p99", |row| of(row, |made| us(made.during_us.p99))),
        ("p99.9", |row| of(row, |made| us(made.during_us.p999))),
        ("checkpoints", |row| of(row, |made| made.count.to_string())),
        ("each s", |row| of(row, |made| format!("{:.3}", made.seconds.median))),
        ("file refaults", refaults),
        ("MiB written", |row| mib(row.count("pgpgout") << 10)),
        ("pauses ms", |row| number(row.kernel.dirty_throttled_ms)),
    ],
);

fn of(row: &Row, text: fn(&CheckpointsRow) -> String) -> String {
    row.own::<CheckpointRow>().checkpoints.as_ref().map_or_else(String::new, text)
}

/// Options of `mixed` in both worlds.
#[derive(Debug, Args)]
struct Mixed {
    #[command(flatten)]
    sizes: Sizes,
    /// Threads of each system
    #[arg(long, value_name = "N", value_parser = threads(), default_value_t = 8)]
    threads: u32,
    /// Time between checkpoints, as in 500ms or 10s; operations continue during one
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "10s")]
    checkpoint: Duration,
    /// Percentage of operations that update
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100),
          default_value_t = 5)]
    write: u32,
}

/// `lowtide-lab bench mixed`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: lowtide-lab bench mixed --checkpoint 2s --write 20",
    mut_arg("against", Slowdown::without_peers)
)]
pub(crate) struct RealMixed {
    #[command(flatten)]
    own: Mixed,
    /// Measured seconds of each system, over all rounds [default: 1.5 checkpoints a round]
    #[arg(long, value_name = "S", value_parser = seconds, conflicts_with = "ops",
          allow_negative_numbers = true)]
    seconds: Option<f64>,
    #[command(flatten)]
    ops: Operations,
    /// Slices of the measurement; systems take turns
    #[arg(long, value_name = "N", value_parser = rounds(), default_value_t = 3)]
    rounds: u32,
    #[command(flatten)]
    records: Records,
    #[command(flatten)]
    slowdown: Slowdown,
}

impl RealMixed {
    /// Plays it on all systems and prints the rows.
    pub(crate) fn run(&self) -> Result<(), BenchError> {
        let every = self.own.checkpoint.as_secs_f64();
        let usual = CHECKPOINTS_A_ROUND * every * f64::from(self.rounds);
        let seconds = Until::Seconds(self.seconds.unwrap_or(usual));
        let until = self.ops.until().unwrap_or(seconds);
        if let Until::Seconds(seconds) = until
            && seconds / f64::from(self.rounds) <= every
        {
            return Err(BenchError::usage(
                format!(
                    "rounds of {:.2} s end before the first checkpoint, after {:?}",
                    seconds / f64::from(self.rounds),
                    self.own.checkpoint
                ),
                "raise --seconds, lower --rounds, or make checkpoints more frequent with \
                 --checkpoint",
            ));
        }
        let sizes = (self.own.sizes.max, self.own.sizes.bytes());
        let times = (self.rounds, until);
        let every = self.own.checkpoint;
        let row = move |shared: &Shared, result: &Turns, base: &Turns| {
            real_row(every, shared, result, base)
        };
        let comparison: Comparison<'_, LabScript> = Comparison {
            threads: self.own.threads,
            device: self.slowdown.slowness().of_comparison(),
            notes: vec![format!(
                "a checkpoint every {every:?} by a separate thread: a flush, or msync of the whole \
                 mapping"
            )],
            own: Own::Mixed { every, updates: self.own.write }.of_job(),
            shown: Some((COLUMNS, Box::new(row))),
            ..self.records.comparison(Workload::Mixed, sizes, times)?
        };
        comparison.run()
    }
}

/// The row of a real system.
fn real_row(every: Duration, shared: &Shared, result: &Turns, base: &Turns) -> Row {
    let made = result.sum().checkpoints.unwrap_or_default();
    let (during, outside) = (Latency::from_pairs(&made.during), Latency::from_pairs(&made.outside));
    let mut reads = outside.clone();
    reads.add(&during);
    let row = Row::of_turns(result);
    let own = CheckpointRow {
        checkpoints: Some(CheckpointsRow {
            every_s: every.as_secs_f64(),
            count: made.seconds.len(),
            seconds: Spread::of(made.seconds.iter().copied()),
            reads_during: during.histogram().len(),
            reads_outside: outside.histogram().len(),
            during_us: LatencyUs::from(&during),
            outside_us: LatencyUs::from(&outside),
        }),
    };
    Row {
        workload: shared.workload,
        max_bytes: Some(shared.max_bytes),
        data_bytes: Some(shared.data_bytes),
        page_bytes: shared.page_bytes,
        threads: shared.threads,
        seed: Some(shared.seed),
        latency_us: Some(RowLatency::Whole(LatencyUs::from(&reads))),
        measured: MeasuredFigures {
            batch: Some(shared.batch),
            speed_ratio: Some(ratio(result, base, Slice::rate)),
            ..row.measured
        },
        device: DeviceFigures { slowed: shared.slowed.clone(), ..row.device },
        ..row
    }
    .with(own)
}

/// `lowtide-lab sim mixed`.
#[derive(Debug, Args)]
#[command(after_help = "Example: lowtide-lab sim mixed --checkpoint 2s --write 20")]
pub(crate) struct SimulatedMixed {
    /// The machine.
    #[command(flatten)]
    machine: OnMachine,
    /// The experiment's own.
    #[command(flatten)]
    own: Mixed,
    /// Virtual seconds measured
    #[arg(long, value_name = "N", value_parser = options::seconds(), default_value_t = 30)]
    seconds: u64,
    /// Policies, seed and results.
    #[command(flatten)]
    common: Common,
}

impl SimulatedMixed {
    /// Simulates it under every policy and prints the rows.
    pub(crate) fn run(&self) -> Result<(), SimError> {
        let policies = self.common.begin()?;
        let machine = self.machine.load()?;
        machine.validate()?;
        let max = options::group_budget(Size::new(self.own.sizes.max), &machine)?;
        let file = Size::new(self.own.sizes.bytes());
        let config = MixedConfig {
            file: options::data_pages(file, machine.page)? * machine.page,
            threads: self.own.threads,
            update_percent: self.own.write.into(),
            run_ns: Duration::from_secs(self.seconds).as_nanos() as u64,
            checkpoint_ns: self.own.checkpoint.as_nanos() as u64,
            ..MixedConfig::new(max, self.common.seed)
        };
        let parallel = Host::ask().parallel(machine.pages(), config.file / machine.page)?;
        head(&machine, &config).print(&self.common);

        let each = (config.warm_ns + config.run_ns) / 1_000_000;
        let all = each * policies.len() as u64;
        let progress = Patient::new("virtual milliseconds", Unit::Steps, all);
        let results = jobs::run(policies.len(), parallel, progress, |number, done| {
            simulate(&machine, &config, policies[number], done)
        });
        let (mut rows, mut cut) = (Vec::with_capacity(policies.len()), Cut::default());
        for (&policy, result) in policies.iter().zip(results) {
            let result =
                result.map_err(|error| SimError::of_machine(policy, error, "simulating mixed"));
            let Some(result) = cut.take(result)? else { continue };
            rows.push(simulated_row(&machine, &config, policy, &result));
        }
        show::results(&self.common, &machine, &rows, COLUMNS, Vec::new(), cut)
    }
}

fn head(machine: &MachineSpec, config: &MixedConfig) -> show::Head {
    let seconds = |ns: u64| ns as f64 / 1e9;
    show::Head {
        what: format!("{}: {}", Workload::Mixed, Workload::Mixed.description()),
        machine: show::machine(machine),
        max: Some(config.max),
        data: format!("a mapped file of {}, advised to be random", Size::new(config.file)),
        run: format!(
            "{} threads, {} % stores, a checkpoint every {} s; {} s, after {} s that are left out",
            config.threads,
            config.update_percent,
            seconds(config.checkpoint_ns),
            seconds(config.run_ns),
            seconds(config.warm_ns)
        ),
    }
}

fn simulate(
    machine: &MachineSpec,
    config: &MixedConfig,
    policy: Policy,
    done: &AtomicU64,
) -> Result<MixedResult, MachineError> {
    let machine = MachineConfig { spec: machine.clone(), policy, max: None, seed: config.seed };
    checkpoints::run(&machine, config, done, interrupt::flag())
}

fn simulated_row(
    machine: &MachineSpec,
    config: &MixedConfig,
    policy: Policy,
    result: &MixedResult,
) -> Row {
    let mut reads = result.outside.clone();
    reads.add(&result.during).expect("both have the same bounds");
    let row = Row {
        workload: Workload::Mixed.name(),
        world: "sim",
        system: "lowtide",
        policy: policy.to_string(),
        machine: machine.name.clone(),
        max_bytes: Some(config.max),
        data_bytes: Some(config.file),
        page_bytes: machine.page,
        threads: config.threads,
        seed: Some(config.seed),
        latency_us: Some(RowLatency::Whole(LatencyUs::from(&reads))),
        ..Row::default()
    }
    .with(CheckpointRow {
        checkpoints: Some(CheckpointsRow {
            every_s: config.checkpoint_ns as f64 / 1e9,
            count: result.checkpoints.len(),
            seconds: Spread::of(result.checkpoints.iter().map(|&ns| ns as f64 / 1e9)),
            reads_during: result.during.len(),
            reads_outside: result.outside.len(),
            during_us: LatencyUs::from(&result.during),
            outside_us: LatencyUs::from(&result.outside),
        }),
    });
    row.on_machine(Some(&result.began), &result.ended, result.ops)
}
