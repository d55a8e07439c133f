//! Experiments in which programs read files through mappings: `mmap-thrash` and `fio-mmap`.
//!
//! ```text
//!   experiment ──► plays (policy, fault path, program) ──► a player ──► rows, verdict
//! ```
//!
//! Each is one file that does not depend on its world. The player here is that on a simulated
//! machine; the programs are described in `lowtide_experiments::programs::mapping`, for a player on
//! real memory too.

use crate::experiments::SharingRow;
use serde::Serialize;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::sim::head;
use crate::sim::options::{Common, OnMachine, seconds};
use clap::Args;
use clap::builder::PossibleValuesParser;
use lowtide::Policy;
use lowtide_bench::sim::error::SimError;
use lowtide_bench::sim::host::Host;
use lowtide_bench::sim::{jobs, show};
use lowtide_experiments::client::{fio, thrash};
use lowtide_experiments::programs::mapping::{FioMmap, MapThrash};
use lowtide_report::columns::Columns;
use lowtide_report::interrupt::{self, Cut};
use lowtide_report::json::LatencyUs;
use lowtide_report::names::once;
use lowtide_report::out;
use lowtide_report::outcome::RetriesRow;
use lowtide_report::progress::{Patient, Unit};
use lowtide_report::row::{KernelFigures, Row};
use lowtide_report::verdict::{Closing, CriterionRow};
use lowtide_sim::spec::{FaultPath, MachineSpec};
use lowtide_sim::{MachineConfig, MachineError};

use super::simulated::Defaults;

/// What rows about faults of mappings say.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct FaultRow {
    /// How a simulated fault waits for its I/O, in experiments about that.
    pub(crate) fault_path: Option<&'static str>,
    /// Retries of faults, and what they depend on.
    pub(crate) retries: Option<RetriesRow>,
}

/// An experiment. The value has its own options.
pub(crate) trait Mapping: Args + fmt::Debug + Sync {
    const NAME: &str;
    /// One line for listings.
    const ABOUT: &str;
    /// The text below the options in its help.
    const HELP: &str;
    /// The defaults of a simulation.
    const SIMULATED: Defaults;
    /// The fault paths, with commas between them, unless an option names others.
    const PATHS: &str;
    /// The table.
    const COLUMNS: Columns;

    /// What runs, for `run` after `warm`, from a seed.
    fn program(&self, warm: Duration, run: Duration, seed: u64) -> Program;

    /// The size of the experiment relative to the published one.
    fn scale(&self) -> f64;

    /// Lines above the table: a name of up to nine letters, and its text.
    fn describe(&self, program: &Program) -> Vec<(&'static str, String)>;

    /// The rows of all plays, and published ones. `published`: it is the published machine.
    fn rows(&self, rows: Vec<Row>, published: bool) -> Vec<Row>;

    /// Whether what was published is reproduced.
    fn verdict(&self, rows: &[Row]) -> Vec<CriterionRow>;
}

/// What runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Program {
    /// Threads that map, read and unmap.
    Thrash(MapThrash),
    /// Jobs that read blocks at random.
    Fio(FioMmap),
}

impl Program {
    /// Bytes of all files.
    pub(crate) const fn bytes(&self) -> u64 {
        match self {
            Self::Thrash(thrash) => thrash.threads as u64 * thrash.file,
            Self::Fio(fio) => fio.jobs as u64 * fio.file,
        }
    }
}

/// `lowtide-lab sim NAME` of an experiment with mappings.
#[derive(Debug, Args)]
#[command(
    after_help = M::HELP,
    mut_arg("machine", |arg| arg.default_value(M::SIMULATED.machine)),
    mut_arg("policy", |arg| arg.default_value(M::SIMULATED.policies)),
    mut_arg("fault_path", |arg| arg.default_value(M::PATHS))
)]
pub(crate) struct SimulatedMapping<M: Mapping> {
    /// The machine.
    #[command(flatten)]
    machine: OnMachine,
    /// The experiment's own.
    #[command(flatten)]
    own: M,
    /// How faults wait for their I/O, a row for each
    #[arg(long, value_name = "W,W", value_delimiter = ',', value_parser = paths(),
          default_value = "mmap-lock-retry")]
    fault_path: Vec<String>,
    /// Virtual seconds measured
    #[arg(long, value_name = "N", value_parser = seconds(), default_value = M::SIMULATED.seconds)]
    seconds: u64,
    /// Policies, seed and results.
    #[command(flatten)]
    common: Common,
}

/// The names of the fault paths.
fn paths() -> PossibleValuesParser {
    PossibleValuesParser::new(FaultPath::ALL.map(FaultPath::name))
}

impl<M: Mapping> SimulatedMapping<M> {
    /// Simulates each policy with each fault path and prints the rows.
    pub(crate) fn run(&self) -> Result<(), SimError> {
        let policies = self.common.begin()?;
        let paths: Vec<FaultPath> =
            self.fault_path.iter().filter_map(|name| name.parse().ok()).collect();
        let paths = once(&paths, ToString::to_string, out::note);
        let machine = self.machine.load()?;
        machine.validate()?;
        let published = MachineSpec::preset(M::SIMULATED.machine)?.as_ref() == Some(&machine);
        let machine = self.scaled(machine);
        let (warm, run) = (M::SIMULATED.warm, Duration::from_secs(self.seconds));
        let program = self.own.program(warm, run, self.common.seed);
        let plays: Vec<(Policy, FaultPath)> =
            policies.iter().flat_map(|&p| paths.iter().map(move |&path| (p, path))).collect();
        let parallel =
            Host::ask().parallel(program.bytes() / machine.page, program.bytes() / machine.page)?;
        head::experiment(
            &self.common,
            &format!("{}: {}", M::NAME, M::ABOUT),
            &machine,
            &self.own.describe(&program),
            &format!("{} s, after {} s that are left out", run.as_secs(), warm.as_secs()),
        );
        let each = (warm + run).as_millis() as u64;
        let progress = Patient::new("virtual milliseconds", Unit::Steps, each * plays.len() as u64);
        let results = jobs::run(plays.len(), parallel, progress, |job, done| {
            let (policy, path) = plays[job];
            let row = self.row(&machine, &program, policy, path);
            simulate(&machine, &program, (policy, path, self.common.seed), row, done)
        });
        let (mut rows, mut cut) = (Vec::new(), Cut::default());
        for (&(policy, _), result) in plays.iter().zip(results) {
            let result = result.map_err(|error| {
                SimError::of_machine(policy, error, &format!("simulating {}", M::NAME))
            });
            rows.extend(cut.take(result)?);
        }
        let rows = self.own.rows(rows, published);
        let closing = Closing { lines: Vec::new(), verdict: self.own.verdict(&rows) };
        show::results(&self.common, &machine, &rows, M::COLUMNS, closing, cut)
    }

    /// The machine with a part of its CPUs, so that there are as many threads for each.
    fn scaled(&self, machine: MachineSpec) -> MachineSpec {
        let cpus = (f64::from(machine.cpus) * self.own.scale()).round().clamp(1.0, 4096.0) as u32;
        MachineSpec { cpus, ..machine }
    }

    fn row(
        &self,
        machine: &MachineSpec,
        program: &Program,
        policy: Policy,
        path: FaultPath,
    ) -> Row {
        let (max, high, threads) = match program {
            Program::Thrash(thrash) => (thrash.max, Some(thrash.high), thrash.threads),
            Program::Fio(fio) => (fio.max, None, fio.jobs),
        };
        let scale = self.own.scale();
        Row {
            workload: M::NAME,
            world: "sim",
            system: "lowtide",
            policy: policy.to_string(),
            machine: machine.name.clone(),
            max_bytes: Some(max),
            data_bytes: Some(program.bytes()),
            page_bytes: machine.page,
            threads,
            seed: Some(self.common.seed),
            scale: (scale != 1.0).then_some(scale),
            kernel: KernelFigures { high_bytes: high, ..KernelFigures::default() },
            ..Row::default()
        }
        .with(FaultRow { fault_path: Some(path.name()), ..FaultRow::default() })
    }
}

/// Simulates a program.
fn simulate(
    machine: &MachineSpec,
    program: &Program,
    (policy, fault_path, seed): (Policy, FaultPath, u64),
    row: Row,
    done: &AtomicU64,
) -> Result<Row, MachineError> {
    let spec = MachineSpec { fault_path, ..machine.clone() };
    let config = MachineConfig { spec, policy, max: None, seed };
    let stop = interrupt::flag();
    match program {
        Program::Fio(program) => {
            let result = fio::run(&config, program, done, stop)?;
            let reads = result.reads.iter().sum();
            let row = row.on_machine(Some(&result.began), &result.ended, reads);
            Ok({
                let own = SharingRow { hit_ratio: Some(result.hit_ratio()), ..row.own() };
                row.with(own)
            })
        }
        Program::Thrash(program) => {
            let result = thrash::run(&config, program, done, stop)?;
            let rounds: u64 = result.rounds.iter().sum();
            let row = row.on_machine(Some(&result.began), &result.ended, rounds);
            let drops = row.kernel.retry_mmap_drop.unwrap_or(0);
            let misses = row.kernel.retry_io_miss.unwrap_or(0);
            let times = &result.times;
            let lifetime = &times.lifetime;
            let lock = result.mmap_lock;
            let spins = result.ended.lruvec_lock.since(&result.began.lruvec_lock);
            let high_ns = result.ended.kernel.high_sleep_ns - result.began.kernel.high_sleep_ns;
            let faults = RetriesRow {
                miss_per_drop_pct: percent(misses, drops),
                expected_pct: Some(100.0 * times.expected_misses()),
                window_us: (!times.window.is_empty()).then(|| LatencyUs::from(&times.window)),
                lifetime_us: (!lifetime.is_empty()).then(|| LatencyUs::from(lifetime)),
                shortest_lifetime_us: (!lifetime.is_empty()).then(|| lifetime.min() as f64 / 1e3),
                mmap_lock_wait_us: Some(lock.waited_ns as f64 / 1e3 / lock.acquired.max(1) as f64),
            };
            Ok({
                let base = row.with_workers(result.rounds);
                let own = FaultRow { retries: Some(faults), ..base.own() };
                Row {
                    rounds: Some(rounds.try_into().unwrap_or(u32::MAX)),
                    kernel: KernelFigures {
                        lruvec_lock_ms: Some(spins.waited_ns as f64 / 1e6),
                        throttled_ms: Some(high_ns as f64 / 1e6),
                        ..base.kernel
                    },
                    ..base
                }
                .with(own)
            })
        }
    }
}

/// A share in percent; 0 of nothing.
fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}
